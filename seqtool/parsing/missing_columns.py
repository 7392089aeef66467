"""Missing columns: those that a parser reads, and that a text does not have.

A parser that was trained with tags gives rubbish without them. A sentence misses a column where all
of its words have `_` there. Of UPOS one such sentence is enough to tell; but words without FEATS
are common, so a text misses FEATS where more words in a row have none than chance would bring.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice

import numpy as np

from seqtool.core.arrays import Bytes, Longs
from seqtool.core.errors import DataError
from seqtool.parsing.encoding.features import TokenArrays, Types, token_rows
from seqtool.treebank.sentence import COLUMNS, FORM, Sentence

CHANCE = 1e-6  # words without a column are chance where it is more likely than this
# of a long text, words in a row that may be without a column that the treebank has for most words:
# they come in clusters, as 21 addresses of web pages do in a training part of 200,000 words
CLUSTER = 50

MISSING_HINT = (
    "tag it first with `seqtool tag`, or use a model of `train-parser --raw`, which tags; "
    "`seqtool parse --allow-missing` parses it as it is"
)
_READER = "this parser"


@contextmanager
def naming_reader(name: str | None) -> Iterator[None]:
    """Within the block, errors of missing columns call the parser by its name, if one is given."""
    try:
        yield
    except DataError as error:
        if name is not None and error.hint == MISSING_HINT:
            error.message = error.message.replace(_READER, name)
        raise


def most_without(share: float) -> float:
    """Return how many words may be without a column that this share of words lacks by nature."""
    if share <= 0:
        return 0
    return math.inf if share >= 1 else math.log(CHANCE) / math.log(share)


class ColumnCheck:
    """Looks for missing columns in the chunks of a text, one after another.

    Args:
        types: of the parser; where these do not know how often the treebank leaves columns empty,
            nothing is missed.
        from_start: whether the first chunk begins the text. A text that has a column nowhere misses
            it also where it has fewer words than stand together in the middle of others.
    """

    def __init__(self, types: Types, *, from_start: bool = True) -> None:
        self._columns = types.lexical.columns
        self._most = {  # place of a column -> most words without it
            place: most_without(share)
            for place, share in enumerate(types.empty_shares or ())
            if self._columns[place] != FORM and share < 1
        }
        self._num = dict.fromkeys(self._most, 0)  # words without it so far
        self._is_start = from_start

    def refuse(self, sentences: Iterable[Sentence], arrays: TokenArrays, types: Types) -> None:
        """Refuse the next sentences where columns are missing.

        Args:
            sentences: of the next chunk.
            arrays: the same.
            types: by which they are encoded.

        Raises:
            DataError: columns are missing; it has the line of the first such sentence.
        """
        if (missing := self.find(arrays, types)) is None:
            return
        place, columns, num_words = missing
        sentence = next(islice(sentences, place, None))
        *first, last = (COLUMNS[column] for column in columns)
        named = f"{', '.join(first)} and {last}" if first else last
        who = "up to here" if num_words > len(sentence) else "of the sentence"
        raise DataError(
            f"no word {who} has {named}, which {_READER} reads",
            hint=MISSING_HINT,
            path=sentence.path or None,
            line=sentence.line_of(1),
        )

    def find(self, arrays: TokenArrays, types: Types) -> tuple[int, list[int], int] | None:
        """Return the place of the first of the next sentences where columns are missing.

        Behind it, these columns, and how many words in a row are without one of them.
        """
        is_start, self._is_start = self._is_start, False
        if not self._most or not len(arrays.lengths):
            return None
        lengths = arrays.lengths.astype(np.int64)
        # bits of the columns that each word has not; those of ROOT are all set
        rows = token_rows(arrays.tokens, arrays.lengths)
        empty = np.frombuffer(bytes(types.empty), np.uint8)[arrays.types[rows]]
        begins = np.cumsum(lengths + 1) - (lengths + 1)
        in_sentence = np.bitwise_and.reduceat(empty, begins)
        missing: list[tuple[int, int, int]] = []  # sentence, column, words in a row up to it
        for place, most in self._most.items():
            in_a_row = self._in_a_row(place, in_sentence, lengths)
            is_nowhere = is_start and in_a_row[-1] == lengths.sum()
            too_many = in_a_row > (most if is_nowhere or not most else max(most, CLUSTER))
            if too_many.any():
                sentence = int(np.argmax(too_many))
                missing.append((sentence, self._columns[place], int(in_a_row[sentence])))
        if not missing:
            return None
        first = min(sentence for sentence, _, _ in missing)
        here = [(column, num) for sentence, column, num in missing if sentence == first]
        return first, [column for column, _ in here], max(num for _, num in here)

    def _in_a_row(self, place: int, in_sentence: Bytes, lengths: Longs) -> Longs:
        """Return how many words, up to each sentence, are without a column since one had it."""
        is_without = (in_sentence >> place & 1).astype(np.bool_)
        total = self._num[place] + np.cumsum(np.where(is_without, lengths, 0))
        before = np.maximum.accumulate(np.where(is_without, 0, total))
        counted: Longs = total - before
        self._num[place] = int(counted[-1])
        return counted
