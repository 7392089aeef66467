"""Items of CoNLL-U through a parser, many together, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from seqtool.treebank.conllu import Broken, Item, SentenceBatch, no_item
from seqtool.treebank.sentence import Sentence

CHUNK_WORDS = 1 << 13  # parsed together: enough for the lanes to be full most of the time
HELD_BYTES = 1 << 24  # of text, about, while a chunk is gathered: few words may have long comments


class ParsesChunk(Protocol):
    """Gives every sentence of the next items a tree."""

    def __call__(self, items: Sequence[Item], /, *, is_last: bool = False) -> None:
        """Parse the next items; no others come after the last ones."""


def in_stream(items: Iterable[Item], parse: ParsesChunk) -> Iterator[Item]:
    """Give items, in order, once `parse` was given them, many together.

    Raises:
        TypeError: when iterated: an item is something else.
    """
    chunk: list[Item] = []
    num_words = num_bytes = 0
    stretch = b""
    for item in items:
        chunk.append(item)
        if isinstance(item, SentenceBatch):
            num_words += len(item.words)
            # batches of one stretch hold it once
            num_bytes += len(item.stretch) if item.stretch is not stretch else 0
            stretch = item.stretch
        elif isinstance(item, Sentence):
            num_words += len(item)
            num_bytes += sum(map(len, item.comments))
        elif isinstance(item, Broken):
            num_bytes += len(item.text)
        else:
            raise no_item(item)
        if num_words >= CHUNK_WORDS or num_bytes >= HELD_BYTES:
            parse(chunk)
            yield from chunk
            chunk, num_words, num_bytes, stretch = [], 0, 0, b""
    parse(chunk, is_last=True)
    yield from chunk
