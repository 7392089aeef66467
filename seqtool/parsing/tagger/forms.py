"""The forms met so far: their numbers, and the vectors of each, computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from seqtool.core.arrays import Floats, Ints
from seqtool.parsing.encoding.features import SymbolTable
from seqtool.parsing.tagger.characters import Characters, Convolution
from seqtool.treebank.sentence import FORM

# forms remembered; a text's own are few, but no text is to fill the memory
MAX_FORMS = 1 << 15

FIELDS = ("form", "prefix", "suffix", "shape")


def lexical_table(counts: Mapping[str, int], min_count: int) -> SymbolTable:
    """The symbols of forms: themselves, in lower case, their affixes and their shapes."""
    types = [((form,), count) for form, count in counts.items()]
    return SymbolTable.build(types, FIELDS, min_count, (FORM,))


class Forms:
    """Forms and their vectors, made when a form is first met.

    Args:
        symbols: of forms and their affixes.
        characters: those that are known.
        weights: the arrays of `network.TaggerNetwork`, by their names there.
    """

    def __init__(
        self, symbols: SymbolTable, characters: Characters, weights: Mapping[str, Floats]
    ) -> None:
        self.symbols, self.characters = symbols, characters
        self._lexical = weights["lexical.weight"]
        self._convolution = Convolution(
            weights["characters.embedding.weight"],
            weights["characters.filters.weight"],
            weights["characters.filters.bias"],
        )
        self._width = self._lexical.shape[1] + len(weights["characters.filters.bias"])
        self.clear()

    def clear(self) -> None:
        """Forget all forms."""
        self._ids: dict[str, int] = {}
        self._vectors: Floats = np.empty((0, self._width), np.float32)

    def numbers(self, forms: Sequence[str]) -> Ints:
        """The numbers of forms, which end with the next call if too many have been met."""
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
        rows = np.asarray([self.symbols.row((form,)) for form in forms], np.int32)
        split = self._lexical.shape[1]
        self._vectors[first:needed, :split] = self._lexical[rows].sum(1)
        self._vectors[first:needed, split:] = self._convolution.vectors(
            *self.characters.rows(forms)
        )

    def vectors(self, numbers: Ints) -> Floats:
        """The vectors of forms, [U, D]."""
        chosen: Floats = self._vectors[numbers]
        return chosen
