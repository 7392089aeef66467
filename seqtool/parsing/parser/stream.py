"""Items of CoNLL-U through a parser, many together, in order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import ClassVar, Protocol

from seqtool.parsing.inputs import Given, annotate, annotate_each
from seqtool.treebank.conllu import Broken, Item, SentenceBatch, no_item
from seqtool.treebank.document import Doc
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


class ParsesInputs(ABC):
    """Gives whatever can be parsed as a document, by means of `parse_stream`.

    Attributes:
        kind: of the model, as a message names it.
    """

    kind: ClassVar[str]

    @abstractmethod
    def parse_stream(
        self,
        items: Iterable[Item],
        *,
        beam: int = 1,
        allow_missing: bool = False,
        scores: bool = False,
    ) -> Iterator[Item]:
        """Give the items with new trees, in order."""

    def __call__(
        self, given: Given, *, beam: int = 1, allow_missing: bool = False, scores: bool = False
    ) -> Doc:
        """Return sentences, or whatever else is given but plain text, with trees.

        Args:
            given: a `pathlib.Path` of CoNLL-U; a `Doc` or sentences; `conllu.TokenList`s; a
                document of spaCy; for a parser that reads no tags, also sentences as lists of
                words. See `seqtool.parsing.inputs`.
            beam: hypotheses per sentence.
            allow_missing: parse also sentences without columns that the parser reads.
            scores: as of `parse_stream`; `Token.score` has them.

        Raises:
            TypeError: something else is given.
            ModelError: a text, which a parser does not split.
            DataError: a file that cannot be read, or what no sentence can be made of.
        """
        work = partial(self.parse_stream, beam=beam, allow_missing=allow_missing, scores=scores)
        return annotate(given, work, None, what=self.kind)

    def pipe(
        self,
        inputs: Iterable[Given],
        *,
        beam: int = 1,
        allow_missing: bool = False,
        scores: bool = False,
    ) -> Iterator[Doc]:
        """Give a document for each input, in order; faster than one call for each."""
        work = partial(self.parse_stream, beam=beam, allow_missing=allow_missing, scores=scores)
        return annotate_each(inputs, work, None, what=self.kind)
