"""Streams of sentences, parsed many at a time.

    batch of CoNLL-U -> numbers of its words' texts -> types -> heads, labels -> batch with trees

Words of a batch (`conllu.SentenceBatch`) never become Python objects. Sentences that were read as
objects are parsed by `Parser.parse`, among the batches and in their places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from seqtool.core.arrays import Ints
from seqtool.parsing.encoding.features import NONE_TYPE, ROOT_TYPE, TokenArrays
from seqtool.treebank.conllu import Item, Sentence, SentenceBatch, sentences_of
from seqtool.treebank.projectivity import LIFTED, deprojectivise
from seqtool.treebank.scanner import LabelTexts, TextTable

if TYPE_CHECKING:
    from seqtool.parsing.parser.model import Parser

CHUNK_WORDS = 1 << 13  # parsed together: enough for the lanes to be full most of the time
HELD_BYTES = 1 << 24  # of text, about, while a chunk is gathered: few words may have long comments


def parse_stream(parser: Parser, items: Iterable[Item], *, beam: int = 1) -> Iterator[Item]:
    """Give the items with new trees, in order; broken sentences as they are.

    Args:
        parser: gives the trees. One that reads a language model's states needs the words
            themselves, so that each batch comes back as its sentences.
        items: what `read_conllu`, `read_items` or `read_batches` gives.
        beam: hypotheses per sentence.
    """
    if parser.word_states is not None:
        items = sentences_of(items)
    parsing = _StreamParser(parser, beam)
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
        else:
            num_bytes += len(item.text)
        if num_words >= CHUNK_WORDS or num_bytes >= HELD_BYTES:
            parsing.parse(chunk)
            yield from chunk
            chunk, num_words, num_bytes, stretch = [], 0, 0, b""
    parsing.parse(chunk)
    yield from chunk


class _StreamParser:
    """A parser, and the types of the texts that batches number.

    Args:
        parser: gives the trees.
        beam: hypotheses per sentence.
    """

    def __init__(self, parser: Parser, beam: int) -> None:
        self._parser, self._beam = parser, beam
        names = parser.labels.names
        # those that lifted arcs get when they are put back may be no label of the parser
        every = dict.fromkeys([*names, *(name.partition(LIFTED)[0] for name in names)])
        self._label_ids = {name: number for number, name in enumerate(every)}
        self._label_texts = LabelTexts(list(every))
        self._texts: TextTable | None = None
        self._types: Ints = np.empty(0, np.int32)  # of its texts, by number; -1: not asked for yet
        self._num_cleared = -1

    def parse(self, items: Sequence[Item]) -> None:
        """Give every sentence of some items a tree."""
        if sentences := [item for item in items if isinstance(item, Sentence)]:
            self._parser.parse(sentences, beam=self._beam)
        if batches := [item for item in items if isinstance(item, SentenceBatch)]:
            self._parse_batches(batches)

    def _parse_batches(self, batches: Sequence[SentenceBatch]) -> None:
        arrays, rows = self._encode(batches)
        heads, label_ids = self._parser.heads_and_labels(arrays, beam=self._beam)
        names = self._label_texts.names
        for place in self._parser.with_lifted_arcs(arrays, label_ids):
            begin = arrays.tokens[place] + 1
            words = slice(begin, begin + arrays.lengths[place])
            lifted = [names[label] for label in label_ids[words]]
            heads[words], deprels = deprojectivise(heads[words].tolist(), lifted)
            label_ids[words] = [self._label_ids[deprel] for deprel in deprels]
        heads, label_ids = heads[rows], label_ids[rows]
        begin = 0
        for batch in batches:
            words = slice(begin, begin + len(batch.words))
            batch.trees = heads[words], label_ids[words], self._label_texts
            begin = words.stop

    def _encode(self, batches: Sequence[SentenceBatch]) -> tuple[TokenArrays, Ints]:
        """Return batches as token arrays, and the rows of their words."""
        self._parser.limit_types()
        word_types = np.concatenate([self._types_of(b.texts, b.numbers) for b in batches])
        lengths = np.concatenate([batch.lengths for batch in batches]).astype(np.int32)
        # a row for NONE, then for each sentence's ROOT and words
        tokens = (1 + np.cumsum(lengths + 1) - (lengths + 1)).astype(np.int32)
        is_word = np.ones(1 + len(lengths) + len(word_types), np.bool_)
        is_word[0] = False
        is_word[tokens] = False
        types = np.full(len(is_word), ROOT_TYPE, np.int32)
        types[0] = NONE_TYPE
        types[is_word] = word_types
        return TokenArrays(types, tokens, lengths), np.flatnonzero(is_word).astype(np.int32)

    def _types_of(self, texts: TextTable, numbers: Ints) -> Ints:
        """Return the parser's types of words, given the numbers of their texts."""
        types = self._parser.types
        # the reader may begin a new table, and the parser forget its types, at any time
        if texts is not self._texts or self._num_cleared != types.num_cleared:
            self._texts, self._num_cleared = texts, types.num_cleared
            self._types = np.empty(0, np.int32)
        if len(self._types) < len(texts):
            new = np.full(len(texts) - len(self._types), -1, np.int32)
            self._types = np.concatenate((self._types, new))
        unknown = np.unique(numbers[self._types[numbers] < 0])
        if len(unknown):
            # as rows of ten columns, of which types read only FORM to FEATS
            columns = [["", *text.split("\t")] for text in texts.texts(unknown)]
            self._types[unknown] = types.numbers(columns)
        return self._types[numbers]
