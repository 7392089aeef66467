"""Morphology as a tagger knows it: the forms of words, and the bundles of their tags.

The vector of a form is the sum of the embeddings of its lexical symbols (itself, its affixes, its
shape), beside what filters find in its characters (see `text.characters`).

A bundle is a combination of UPOS, XPOS and FEATS that was met in training. A word gets one of them
as a whole, so that its three tags agree.

Dimensions: U forms, D width of a form's vector, T words, B bundles, P parts of values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from numba import types

from seqtool.core.arrays import Floats, Ints
from seqtool.core.jit import compiled
from seqtool.parsing.encoding.features import SymbolTable, morphemes
from seqtool.parsing.sparse.words import attributes_of
from seqtool.text.characters import Characters, Convolution
from seqtool.treebank.sentence import FEATS, FORM, UPOS, XPOS

_ints = types.int32[::1]
_table = types.int32[:, ::1]
_floats = types.float32[:, ::1]


# forms remembered; a text's own are few, but no text is to fill the memory
MAX_FORMS = 1 << 15

FORM_FIELDS = ("form", "prefix", "suffix", "shape")


def lexical_table(counts: Mapping[str, int], min_count: int) -> SymbolTable:
    """Return the symbols of forms: themselves, in lower case, their affixes and their shapes."""
    types = [((form,), count) for form, count in counts.items()]
    return SymbolTable.build(types, FORM_FIELDS, min_count, (FORM,))


class Forms:
    """Forms and their vectors, made when a form is first met.

    Args:
        symbols: of forms and their affixes.
        characters: those that are known.
        weights: the arrays of `network.TaggerNetwork`, by their names there.
        attributes: those that sparse features look at.
    """

    def __init__(
        self,
        symbols: SymbolTable,
        characters: Characters,
        weights: Mapping[str, Floats],
        attributes: Sequence[str] = (),
    ) -> None:
        self.symbols, self.characters, self._names = symbols, characters, attributes
        self._lexical = weights["lexical.weight"]
        self._convolution = Convolution(weights)
        self._width = self._lexical.shape[1] + self._convolution.num_filters
        self.clear()

    def clear(self) -> None:
        """Forget all forms."""
        self._ids: dict[str, int] = {}
        self._vectors: Floats = np.empty((0, self._width), np.float32)
        self._attributes: Ints = np.empty((0, len(self._names)), np.int32)

    def numbers(self, forms: Sequence[str]) -> Ints:
        """Return the numbers of forms; the next call may number them anew, if too many are met."""
        # before anything is added, so that the numbers of one call are good together
        if len(self._ids) > MAX_FORMS:
            self.clear()
        new = list(dict.fromkeys(form for form in forms if form not in self._ids))
        if new:
            self._add(new)
        return np.asarray([self._ids[form] for form in forms], np.int32)

    def _add(self, forms: Sequence[str]) -> None:
        first, needed = len(self._ids), len(self._ids) + len(forms)
        for number, form in enumerate(forms, first):
            self._ids[form] = number
        if needed > len(self._vectors):
            grown = np.empty((needed + needed // 4, self._width), np.float32)
            grown[:first] = self._vectors[:first]
            self._vectors = grown
            attributes = np.empty((len(grown), len(self._names)), np.int32)
            attributes[:first] = self._attributes[:first]
            self._attributes = attributes
        rows = np.asarray([self.symbols.row((form,)) for form in forms], np.int32)
        split = self._lexical.shape[1]
        self._vectors[first:needed, :split] = self._lexical[rows].sum(1)
        self._vectors[first:needed, split:] = self._convolution.vectors(
            *self.characters.rows(forms)
        )
        self._attributes[first:needed] = attributes_of(forms, self._names)

    def vectors(self, numbers: Ints) -> Floats:
        """Return the vectors of forms, [U, D]."""
        chosen: Floats = self._vectors[numbers]
        return chosen

    def attributes(self, numbers: Ints) -> Ints:
        """Return the attributes of forms, [U, attributes]; see `sparse.attributes_of`."""
        chosen: Ints = self._attributes[numbers]
        return chosen


TAG_COLUMNS = (UPOS, XPOS, FEATS)

Bundle = tuple[str, str, str]


def _parts_of(xpos: str) -> Iterator[tuple[str, str]]:
    """Give the parts of an XPOS, each with where it is; one that is not joined is its own part."""
    tags = morphemes(xpos)
    yield from (("in", tag) for tag in tags)
    yield from (("first", tags[0]), ("last", tags[-1]))


@compiled(types.void(types.float32[:, ::1], _table, _ints, _table, _ints))
def best_bundles(scores, bundles, starts, kept, best):  # type: ignore[no-untyped-def]
    """Choose the bundle of the highest score for each word; the first one of equals.

    Args:
        scores: [T, sum of the columns' values], of one column after another.
        bundles: [B, columns], the value of each column.
        starts: [columns], where the scores of each column begin.
        kept: [T, columns], the value that is there, -1 where there is none.
        best: [T], is written. As few kept values as can be differ from those of the bundle.
    """
    num_columns = bundles.shape[1]
    for token in range(scores.shape[0]):
        highest = np.float32(-np.inf)
        fewest = num_columns + 1  # more than can differ, so that the first bundle is taken
        for bundle in range(bundles.shape[0]):
            score, differing = np.float32(0.0), 0
            for column in range(num_columns):
                value = bundles[bundle, column]
                score += scores[token, starts[column] + value]
                wanted = kept[token, column]
                if wanted >= 0 and wanted != value:
                    differing += 1
            # tags that are there come first: no score outweighs one more that differs
            if differing < fewest or (differing == fewest and score > highest):
                highest, fewest = score, differing
                best[token] = bundle


class Bundles:
    """The bundles in the order of their numbers, and the values of each column."""

    def __init__(self, names: Sequence[Bundle]) -> None:
        self.names = tuple(names)
        # of each column, value -> number, in the order in which bundles first have them
        self.values: tuple[dict[str, int], ...] = tuple({} for _ in TAG_COLUMNS)
        for bundle in self.names:
            for numbers, value in zip(self.values, bundle, strict=True):
                numbers.setdefault(value, len(numbers))
        self.ids = {bundle: number for number, bundle in enumerate(self.names)}

    @classmethod
    def build(cls, counts: Mapping[Bundle, int]) -> Self:
        """Return the bundles that occur, the most frequent first."""
        return cls(sorted(counts, key=lambda bundle: (-counts[bundle], bundle)))

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def table(self) -> Ints:
        """The value of each column in each bundle, [B, 3]."""
        rows = [
            [numbers[value] for numbers, value in zip(self.values, bundle, strict=True)]
            for bundle in self.names
        ]
        return np.asarray(rows, np.int32).reshape(-1, len(TAG_COLUMNS))

    @cached_property
    def starts(self) -> Ints:
        """Where the values of each column begin among those of all, [3]."""
        sizes = [len(numbers) for numbers in self.values]
        return np.cumsum([0, *sizes[:-1]], dtype=np.int32)

    @property
    def num_values(self) -> int:
        """Values of all columns together."""
        return sum(len(numbers) for numbers in self.values)

    @cached_property
    def parts(self) -> Floats:
        """Which parts each value is made of, [num_values, P]: those that several values have.

        Parts are the morphemes of a joined XPOS and, beside, its first and its last one.
        """
        of_values = [
            set(_parts_of(value) if column == XPOS else ())
            for column, numbers in zip(TAG_COLUMNS, self.values, strict=True)
            for value in numbers
        ]
        counts = Counter(part for parts in of_values for part in parts)
        shared = sorted(part for part, count in counts.items() if count > 1)
        return np.asarray(
            [[part in parts for part in shared] for parts in of_values], np.float32
        ).reshape(len(of_values), len(shared))

    @classmethod
    def of(cls, table: Sequence[Sequence[Any]]) -> Self:
        """Return the bundles of a vocabulary's table.

        Raises:
            ValueError: it is not that.
        """
        names = [(str(upos), str(xpos), str(feats)) for upos, xpos, feats in table]
        if not names or len(set(names)) < len(names) or not all(map(all, names)):
            raise ValueError("bundles are missing, or met twice")
        return cls(names)


def values_there(rows: Sequence[Sequence[str]], values: Sequence[Mapping[str, int]]) -> Ints:
    """Return the number of the value that each column of a word has already, [T, 3]; -1: none.

    A word has no UPOS if that is `_`. In XPOS and FEATS `_` is a value too: these are missing where
    no word of the sentence has any.
    """
    there = np.full((len(rows), len(TAG_COLUMNS)), -1, np.int32)
    for place, (column, numbers) in enumerate(zip(TAG_COLUMNS, values, strict=True)):
        found = [row[column] for row in rows]
        if found.count("_") == len(found):
            continue
        there[:, place] = [numbers.get(value, -1) for value in found]
        if column == UPOS:
            there[[value == "_" for value in found], place] = -1
    return there
