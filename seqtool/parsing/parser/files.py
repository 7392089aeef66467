"""Parsing from CoNLL-U to CoNLL-U without a Python object per word.

    bytes -> places of words -> numbers of their texts -> types -> heads, labels -> bytes

Sentences are what `corpora.plain` finds; those that are odd take the way of `corpora.conllu`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from seqtool.core.arrays import Bytes, Ints
from seqtool.parsing.encoding.features import NONE_TYPE, ROOT_TYPE, TokenArrays
from seqtool.parsing.parser.model import Parser
from seqtool.treebank.conllu import Broken, read_item, read_stretches, refused
from seqtool.treebank.projectivity import LIFTED, deprojectivise
from seqtool.treebank.scanner import NUM_WORDS, Analyses, LabelTexts, PlainSentences
from seqtool.treebank.sentence import Sentence

CHUNK_WORDS = 1 << 13  # words parsed together: the lanes stay full for most of the time
HELD_BYTES = 1 << 24  # of files at most, and one stretch, while a chunk is gathered
OBJECT_BYTES = 1 << 10  # of a sentence beside its text, about
TABLE_BYTES = 1 << 26  # of the texts met; all are dropped when there are more


def parse_files(
    parser: Parser, inputs: Sequence[str], *, beam: int = 1, skip_invalid: bool = False
) -> Iterator[bytes | Broken]:
    """Give the sentences of CoNLL-U files with new trees, as they are to be written.

    What `parse_stream` makes of `read_conllu`, or of `read_items` if broken sentences are passed
    on, in the same order.

    Args:
        parser: gives the trees; one that reads no language model's states.
        inputs: files, directories and `-`, as `read_conllu` takes them.
        beam: hypotheses per sentence.
        skip_invalid: pass broken sentences on.

    Raises:
        DataError: when iterated: a broken sentence, no sentence at all, or a file that cannot be
            read.
    """
    chunk = _Chunk(parser, beam)
    for path, line, stretch in read_stretches(inputs):
        data = np.frombuffer(stretch, np.uint8)
        position = counted = 0
        while position < len(stretch):
            position, is_odd = chunk.take(data, position)
            if is_odd:
                line += stretch.count(b"\n", counted, position)
                counted = position
                end = stretch.find(b"\n\n", position)
                end = len(stretch) - 1 if end < 0 else end
                item = read_item(stretch[position:end].decode(), path, line, "columns")
                if isinstance(item, Broken) and not skip_invalid:
                    raise refused(item)
                chunk.add(item, end - position)
                position = end
            if chunk.is_full:
                yield from chunk.parsed()
    yield from chunk.parsed()


class _Part(NamedTuple):
    """Plain sentences that follow one another in the same stretch."""

    data: Bytes
    sentences: slice
    words: slice


class _Chunk:
    """Sentences that are parsed together."""

    def __init__(self, parser: Parser, beam: int) -> None:
        self._parser, self._beam = parser, beam
        names = parser.labels.names
        # those that lifted arcs get when they are put back may be no label of the parser
        every = dict.fromkeys([*names, *(name.partition(LIFTED)[0] for name in names)])
        self._label_ids = {name: number for number, name in enumerate(every)}
        self._label_names = list(every)
        self._label_texts = LabelTexts(self._label_names)
        self._analyses = Analyses()
        self._plain = PlainSentences()
        self._forget_types()
        self._clear()

    def _clear(self) -> None:
        self._plain.clear()
        self._parts: list[_Part | Sentence | Broken] = []
        self._numbers: list[Ints] = []
        self._num_others = 0  # words of sentences that are not plain
        self._newest: Bytes | None = None  # the stretch that was taken from last
        self._num_bytes = 0
        self._parser.limit_types()
        if self._is_stale() or self._analyses.num_bytes > TABLE_BYTES:
            self._analyses.clear()
            self._forget_types()

    def _is_stale(self) -> bool:
        """Whether the parser's types have other numbers now."""
        return self._types_cleared != self._parser.types.num_cleared

    def _forget_types(self) -> None:
        self._types: Ints = np.empty(0, np.int32)  # of texts, by number
        self._types_cleared = self._parser.types.num_cleared

    @property
    def is_full(self) -> bool:
        """Whether it is to be parsed before more is taken."""
        num_words = self._plain.num_words + self._num_others
        return num_words >= CHUNK_WORDS or self._num_bytes >= HELD_BYTES

    def take(self, data: Bytes, position: int) -> tuple[int, bool]:
        """Take plain sentences from a position on, until it is full; see `PlainSentences.find`."""
        plain = self._plain
        first, word = plain.num_sentences, plain.num_words
        position, is_odd = plain.find(data, position, CHUNK_WORDS - self._num_others)
        if plain.num_sentences > first:
            words = slice(word, plain.num_words)
            self._parts.append(_Part(data, slice(first, plain.num_sentences), words))
            self._numbers.append(self._analyses.numbers(data, plain.words[words]))
            if data is not self._newest:
                self._newest = data
                self._num_bytes += len(data)
        return position, is_odd

    def add(self, item: Sentence | Broken, num_bytes: int) -> None:
        """Take a sentence that was read another way, of so many bytes."""
        self._parts.append(item)
        self._num_others += len(item) if isinstance(item, Sentence) else 0
        self._num_bytes += num_bytes + OBJECT_BYTES

    def parsed(self) -> Iterator[bytes | Broken]:
        """Give all sentences that were taken, in order; then there are none."""
        others = [part for part in self._parts if isinstance(part, Sentence)]
        if others:
            self._parser.parse(others, beam=self._beam)
        heads, labels = self._trees()
        for part in self._parts:
            if isinstance(part, _Part):
                yield self._plain.write(
                    *part, heads[part.words], labels[part.words], self._label_texts
                )
            elif isinstance(part, Sentence):
                yield part.to_conllu().encode()
            else:
                yield part
        self._clear()

    def _trees(self) -> tuple[Ints, Ints]:
        """The heads and labels of the words of all plain sentences."""
        if not self._plain.num_words:
            return np.empty(0, np.int32), np.empty(0, np.int32)
        arrays, rows = self._encode()
        heads, label_ids = self._parser.heads_and_labels(arrays, beam=self._beam)
        for place in self._parser.with_lifted_arcs(arrays, label_ids):
            begin = arrays.tokens[place] + 1
            words = slice(begin, begin + arrays.lengths[place])
            names = [self._label_names[label] for label in label_ids[words]]
            heads[words], names = deprojectivise(heads[words].tolist(), names)
            label_ids[words] = [self._label_ids[name] for name in names]
        return heads[rows], label_ids[rows]

    def _encode(self) -> tuple[TokenArrays, Ints]:
        """All plain sentences as token arrays, and the rows of their words."""
        parser = self._parser
        if self._is_stale():  # only if it parsed something else meanwhile
            self._forget_types()
        new = range(len(self._types), len(self._analyses))
        if new:
            # as rows of ten columns, of which types read only these
            columns = [["", *self._analyses.text(number).split("\t")] for number in new]
            numbers = np.asarray(parser.types.numbers(columns), np.int32)
            self._types = np.concatenate((self._types, numbers))
        lengths = self._plain.sentences[:, NUM_WORDS].astype(np.int32)
        # a row for NONE, then for each sentence's ROOT and words
        tokens = (1 + np.cumsum(lengths + 1) - (lengths + 1)).astype(np.int32)
        is_word = np.ones(1 + len(lengths) + self._plain.num_words, np.bool_)
        is_word[0] = False
        is_word[tokens] = False
        types = np.full(len(is_word), ROOT_TYPE, np.int32)
        types[0] = NONE_TYPE
        types[is_word] = self._types[np.concatenate(self._numbers)]
        return TokenArrays(types, tokens, lengths), np.flatnonzero(is_word).astype(np.int32)
