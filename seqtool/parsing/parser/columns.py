"""Columns that a parser reads, and a text lacks.

A parser that was trained with tags gives rubbish without them. A sentence lacks a column where all
of its words have `_` there. Of UPOS one such sentence is enough to tell; but words without FEATS
are common, so a text lacks FEATS where more words in a row have none than chance would bring.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from seqtool.core.arrays import Bytes, Longs
from seqtool.core.errors import DataError
from seqtool.parsing.encoding.features import TokenArrays, Types, token_rows
from seqtool.treebank.sentence import COLUMNS, FORM, Sentence

CHANCE = 1e-6  # words without a column are chance where it is more likely than this
# of a long text, words in a row that may be without a column that the treebank has for most words:
# they come in clusters, as 21 addresses of web pages do in a training part of 200,000 words
CLUSTER = 50
OLD_SHARE = 0.6  # of words without FEATS, for a parser that does not know its treebank's

HINT = (
    "tag it first with `seqtool tag`, or use a model of `train-parser --raw`, which tags; "
    "`seqtool parse --allow-missing` parses it as it is"
)


_READER = "this parser"


@contextmanager
def naming_reader(name: str | None) -> Iterator[None]:
    """Within the block, say by its name, if it needs one, which parser reads what a text lacks."""
    try:
        yield
    except DataError as error:
        if name is not None and error.hint == HINT:
            error.message = error.message.replace(_READER, name)
        raise


class Lacking(NamedTuple):
    """A sentence, by its place among those given, and the columns that it lacks."""

    sentence: int
    columns: tuple[str, ...]
    others_too: bool  # the sentences before it lack some of them as well

    def error(self, path: str, line: int) -> DataError:
        """Return the error of this sentence, which begins in this line of a file."""
        *first, last = self.columns
        named = f"{', '.join(first)} and {last}" if first else last
        who = "no word up to here has" if self.others_too else "no word of the sentence has"
        return DataError(
            f"{who} {named}, which {_READER} reads", hint=HINT, path=path or None, line=line
        )


def most_without(share: float) -> float:
    """Return how many words may be without a column that this share of words lacks by nature."""
    if share <= 0:
        return 0
    return math.inf if share >= 1 else math.log(CHANCE) / math.log(share)


class ColumnCheck:
    """Looks for sentences that lack a column that a parser reads.

    Args:
        types: those of the parser.
    """

    def __init__(self, types: Types) -> None:
        self._types = types
        columns = types.lexical.columns
        self._most = {  # place of a column -> most words without it
            place: most_without(share)
            for place, share in enumerate(_shares(types))
            if columns[place] != FORM and share < 1
        }
        self._num = dict.fromkeys(self._most, 0)  # words without it so far

    def find(self, arrays: TokenArrays, *, is_all: bool = False) -> Lacking | None:
        """Return the first of the next sentences, as the types encode them, with too little.

        Args:
            arrays: the sentences.
            is_all: there are no others, before or after.
        """
        if not self._most or not len(arrays.lengths):
            return None
        rows = token_rows(arrays.tokens, arrays.lengths)
        lengths = arrays.lengths.astype(np.int64)
        # bits of the columns that each word has not; those of ROOT are all set
        lacks = np.frombuffer(bytes(self._types.empty), np.uint8)[arrays.types[rows]]
        begins = np.cumsum(lengths + 1) - (lengths + 1)
        in_sentence = np.bitwise_and.reduceat(lacks, begins)
        found: list[tuple[int, int, int]] = []  # sentence, words in a row up to it, place
        for place, most in self._most.items():
            num = self._in_a_row(place, in_sentence, lengths)
            is_short = is_all and num[-1] == lengths.sum()  # no word of a text has it
            too_many = num > (most if is_short or not most else max(most, CLUSTER))
            if too_many.any():
                sentence = int(np.argmax(too_many))
                found.append((sentence, int(num[sentence]), place))
        if not found:
            return None
        sentence = min(found)[0]
        here = [item for item in found if item[0] == sentence]
        names = tuple(COLUMNS[self._types.lexical.columns[place]] for _, _, place in here)
        of_sentence = int(lengths[sentence])
        return Lacking(
            sentence, names, max([of_sentence, *(num for _, num, _ in here)]) > of_sentence
        )

    def _in_a_row(self, place: int, in_sentence: Bytes, lengths: Longs) -> Longs:
        """Return how many words, up to each sentence, are without a column since one had it."""
        is_without = (in_sentence >> place & 1).astype(np.bool_)
        total = self._num[place] + np.cumsum(np.where(is_without, lengths, 0))
        before = np.maximum.accumulate(np.where(is_without, 0, total))
        counted: Longs = total - before
        self._num[place] = int(counted[-1])
        return counted


def refuse_lacking(
    sentences: Sequence[Sentence], arrays: TokenArrays, check: ColumnCheck, *, is_all: bool
) -> None:
    """Refuse the first of the next sentences with too little; arguments are those of `find`.

    Raises:
        DataError: there is one.
    """
    if (lacking := check.find(arrays, is_all=is_all)) is not None:
        sentence = sentences[lacking.sentence]
        raise lacking.error(sentence.path, sentence.line_of(1))


def _shares(types: Types) -> list[float]:
    """Return the share of the words of the treebank that have `_`, of each column of types."""
    if types.empty_shares is not None:
        return list(types.empty_shares)
    known = {
        types.lexical.columns[place]: symbols
        for table in (types.lexical, types.tags)
        for place, symbols in table.whole_values()
    }
    shares = []
    for column in types.lexical.columns:
        symbols = known.get(column, ())
        shares.append(1.0 if set(symbols) <= {"_"} else OLD_SHARE if "_" in symbols else 0.0)
    return shares
