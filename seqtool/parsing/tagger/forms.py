"""Forms as a tagger sees them: their symbols, their characters, and their vectors without torch.

The vector of a form is the sum of the embeddings of its lexical symbols (itself, its affixes, its
shape), beside what filters find in its characters.

    characters  0 PAD  1 BEGIN  2 END, then classes of unknown characters, then those known

Dimensions: U forms, L characters of the longest with BEGIN and END, C width of a character's
vector, K characters that a filter sees, F filters, D width of a form's vector.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numba import types

from seqtool.core.arrays import Floats, Ints
from seqtool.core.compiled import compiled
from seqtool.parsing.encoding.features import CATEGORIES, SymbolTable
from seqtool.treebank.sentence import FORM

_ints = types.int32[::1]
_floats = types.float32[:, ::1]


@compiled(types.void(types.float32[:, :, ::1], types.float32[::1], _ints, _ints, _floats))
def strongest(products, bias, symbols, lengths, vectors):  # type: ignore[no-untyped-def]
    """Write the strongest answer of each filter to each form, zero at least.

    Args:
        products: [K, num_symbols, F]; those of PAD are not used: beyond a form there is nothing.
        bias: [F].
        symbols: of forms, one after another.
        lengths: of each.
        vectors: [U, F], is written.
    """
    width, num_filters = products.shape[0], products.shape[2]
    half = width // 2
    sums = np.empty(num_filters, np.float32)
    begin = 0
    for form in range(lengths.shape[0]):
        end = begin + lengths[form]
        best = vectors[form]
        best[:] = np.float32(0.0)  # the ReLU behind the maximum: no answer is below zero
        for place in range(begin, end):
            sums[:] = bias
            for offset in range(width):
                # a product depends on one character and its place under the filter alone
                at = place + offset - half
                if begin <= at < end:
                    row = products[offset, symbols[at]]
                    for unit in range(num_filters):
                        sums[unit] += row[unit]
            for unit in range(num_filters):
                best[unit] = max(best[unit], sums[unit])
        begin = end


# forms remembered; a text's own are few, but no text is to fill the memory
MAX_FORMS = 1 << 15

FIELDS = ("form", "prefix", "suffix", "shape")

PAD, BEGIN, END = range(3)
MAX_CHARACTERS = 32  # of a longer form, the first and the last 16 are looked at


class Characters:
    """The characters that are known.

    Args:
        known: in the order of their numbers.
    """

    def __init__(self, known: Sequence[str]) -> None:
        self.known = "".join(known)

    @classmethod
    def build(cls, forms: Mapping[str, int], min_count: int) -> Characters:
        """Return the characters of forms, rarer ones left out."""
        counts: Counter[str] = Counter()
        for form, count in forms.items():
            for character in form:
                counts[character] += count
        return cls([char for char, count in counts.most_common() if count >= min_count])

    @cached_property
    def _ids(self) -> dict[str, int]:
        first = END + 1 + len(CATEGORIES)
        return {character: number for number, character in enumerate(self.known, first)}

    @cached_property
    def unknowns(self) -> Ints:
        """The symbol that each symbol becomes when its character is taken for unknown."""
        classes = np.arange(self.num_symbols, dtype=np.int32)
        for character, number in self._ids.items():
            classes[number] = _class_of(character)
        return classes

    @property
    def num_symbols(self) -> int:
        """The number of symbols."""
        return END + 1 + len(CATEGORIES) + len(self.known)

    def rows(self, forms: Iterable[str]) -> tuple[Ints, Ints]:
        """Return the symbols of forms one after another, from BEGIN to END, and their lengths."""
        symbols: list[int] = []
        lengths: list[int] = []
        ids = self._ids
        for form in forms:
            if len(form) > MAX_CHARACTERS:
                form = form[: MAX_CHARACTERS // 2] + form[-MAX_CHARACTERS // 2 :]
            symbols.append(BEGIN)
            symbols += [ids.get(character) or _class_of(character) for character in form]
            symbols.append(END)
            lengths.append(2 + len(form))
        return np.asarray(symbols, np.int32), np.asarray(lengths, np.int32)


def _class_of(character: str) -> int:
    return END + 1 + CATEGORIES.index(unicodedata.category(character))


def padded(symbols: Ints, lengths: Ints) -> Ints:
    """Return forms one after another as rows of a table, [U, L], PAD at their ends."""
    table = np.full((len(lengths), int(lengths.max(initial=1))), PAD, np.int32)
    table[np.arange(table.shape[1]) < lengths[:, None]] = symbols
    return table


class Convolution:
    """`network.CharacterNetwork` for forms, as sums of rows of a table.

    What a filter makes of K characters is a sum of K products, each of which depends on one
    character and its place alone.

    Args:
        embeddings: of characters, [num_symbols, C].
        weight: of the filters, [F, C, K], K odd.
        bias: [F].
    """

    def __init__(self, embeddings: Floats, weight: Floats, bias: Floats) -> None:
        self._products = np.ascontiguousarray(
            np.einsum("vc,fck->kvf", embeddings, weight).astype(np.float32)
        )
        self._bias = bias

    def vectors(self, symbols: Ints, lengths: Ints) -> Floats:
        """Return the vectors of forms, [U, F], from what `Characters.rows` gives."""
        vectors = np.empty((len(lengths), len(self._bias)), np.float32)
        strongest(self._products, self._bias, symbols, lengths, vectors)
        return vectors


def lexical_table(counts: Mapping[str, int], min_count: int) -> SymbolTable:
    """Return the symbols of forms: themselves, in lower case, their affixes and their shapes."""
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
        """Return the numbers of forms; the next call may number them anew, if too many are met."""
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
        """Return the vectors of forms, [U, D]."""
        chosen: Floats = self._vectors[numbers]
        return chosen
