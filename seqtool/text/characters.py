"""Forms as the characters that they are made of, and filters over these, without torch.

    characters  0 PAD  1 BEGIN  2 END, then classes of unknown characters, then those known

Dimensions: U forms, L characters of the longest with BEGIN and END, C width of a character's
vector, K characters that a filter sees, F filters.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numba import types

from seqtool.core.arrays import Floats, Ints
from seqtool.core.jit import compiled

_ints = types.int32[::1]
_NUMBERS = (types.float32, types.float64)

# general categories of Unicode, by which unknown characters are told apart
CATEGORIES = (
    *("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe"),
    *("Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"),
)

PAD, BEGIN, END = range(3)
MAX_CHARACTERS = 32  # of a longer form, the first and the last 16 are looked at


@compiled(
    [
        types.void(
            number[:, :, ::1], number[::1], _ints, _ints, number[:, ::1], types.int32[:, ::1]
        )
        for number in _NUMBERS
    ]
)
def strongest(products, bias, symbols, lengths, vectors, places):  # type: ignore[no-untyped-def]
    """Write the strongest answer of each filter to each form; -inf to one without characters.

    Args:
        products: [K, num_symbols, F]; those of PAD are not used: beyond a form there is nothing.
        bias: [F].
        symbols: of forms, one after another.
        lengths: of each.
        vectors: [U, F], is written.
        places: [U, F], is written: the character that the filter stands over, the first of those
            that are as strong; nothing of a form without characters. Of no rows, nothing is.
    """
    width, num_filters = products.shape[0], products.shape[2]
    half, keeps_places = width // 2, len(places) > 0
    sums = np.empty_like(bias)
    begin = 0
    for form in range(lengths.shape[0]):
        end = begin + lengths[form]
        best = vectors[form]
        for unit in range(num_filters):
            best[unit] = -np.inf
        for place in range(begin, end):
            for unit in range(num_filters):
                sums[unit] = bias[unit]
            for offset in range(width):
                # a product depends on one character and its place under the filter alone
                at = place + offset - half
                if begin <= at < end:
                    row = products[offset, symbols[at]]
                    for unit in range(num_filters):
                        sums[unit] += row[unit]
            if keeps_places:
                for unit in range(num_filters):
                    if sums[unit] > best[unit]:
                        best[unit], places[form, unit] = sums[unit], place
            else:
                for unit in range(num_filters):
                    best[unit] = max(best[unit], sums[unit])
        begin = end


@compiled(
    [
        types.void(
            number[:, ::1],
            types.int32[:, ::1],
            _ints,
            _ints,
            number[:, :, ::1],
            number[::1],
        )
        for number in _NUMBERS
    ]
)
def differentiate_strongest(grads, places, symbols, lengths, grad_products, grad_bias):  # type: ignore[no-untyped-def]
    """Add the gradients of the answers to those of products and bias, see `strongest`."""
    width, num_filters = grad_products.shape[0], grad_products.shape[2]
    half = width // 2
    begin = 0
    for form in range(lengths.shape[0]):
        end = begin + lengths[form]
        # a form without characters has no places that could be read
        for unit in range(num_filters * (end > begin)):
            grad = grads[form, unit]
            grad_bias[unit] += grad
            for offset in range(width):
                at = places[form, unit] + offset - half
                if begin <= at < end:
                    grad_products[offset, symbols[at], unit] += grad
        begin = end


class Characters:
    """The characters that are known, in the order of their numbers."""

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
            # no known character has the number 0, so that `or` means unknown
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
        weights: the arrays of a network that has one, by their names there: see `filter_shapes`.
    """

    def __init__(self, weights: Mapping[str, Floats]) -> None:
        embeddings, filters, bias = (weights[name] for name in (EMBEDDING, FILTERS, BIAS))
        self._products = np.ascontiguousarray(
            np.einsum("vc,fck->kvf", embeddings, filters).astype(np.float32)
        )
        self._bias = bias

    @property
    def num_filters(self) -> int:
        """F."""
        return len(self._bias)

    def vectors(self, symbols: Ints, lengths: Ints) -> Floats:
        """Return the vectors of forms, [U, F], from what `Characters.rows` gives."""
        vectors = np.empty((len(lengths), len(self._bias)), np.float32)
        nowhere = np.empty((0, 0), np.int32)
        strongest(self._products, self._bias, symbols, lengths, vectors, nowhere)
        # after the maximum, once for each form, as ReLU keeps the order; -inf becomes 0
        return np.maximum(vectors, 0, out=vectors)


EMBEDDING = "characters.embedding.weight"
FILTERS, BIAS = "characters.filters.weight", "characters.filters.bias"


def filter_shapes(
    num_symbols: int, size: int, num_filters: int, filter_width: int
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays of a `network.CharacterNetwork` called `characters`."""
    return {
        EMBEDDING: (num_symbols, size),
        FILTERS: (num_filters, size, filter_width),
        BIAS: (num_filters,),
    }
