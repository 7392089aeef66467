"""The characters of forms as numbers, and the convolution over them without torch.

    symbols  0 PAD  1 BEGIN  2 END, then classes of unknown characters, then those known

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
from seqtool.core.compiled import compiled

_ints = types.int32[::1]
_floats = types.float32[:, ::1]


@compiled(types.void(types.float32[:, :, ::1], types.float32[::1], _ints, _ints, _floats))
def strongest(products, bias, symbols, lengths, vectors):  # type: ignore[no-untyped-def]
    """What each filter finds at most in each form, zero at least.

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
        best[:] = np.float32(0.0)
        for place in range(begin, end):
            sums[:] = bias
            for offset in range(width):
                at = place + offset - half
                if begin <= at < end:
                    row = products[offset, symbols[at]]
                    for unit in range(num_filters):
                        sums[unit] += row[unit]
            for unit in range(num_filters):
                best[unit] = max(best[unit], sums[unit])
        begin = end


@compiled(types.void(_floats, types.int32[:, ::1], _ints, types.int32[:, ::1], _ints))
def best_bundles(scores, bundles, starts, kept, best):  # type: ignore[no-untyped-def]
    """The bundle of the highest score of each word; the first one of equals.

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
        fewest = num_columns + 1
        for bundle in range(bundles.shape[0]):
            score, differing = np.float32(0.0), 0
            for column in range(num_columns):
                value = bundles[bundle, column]
                score += scores[token, starts[column] + value]
                wanted = kept[token, column]
                if wanted >= 0 and wanted != value:
                    differing += 1
            if differing < fewest or (differing == fewest and score > highest):
                highest, fewest = score, differing
                best[token] = bundle


PAD, BEGIN, END = range(3)
MAX_CHARACTERS = 32  # of a longer form, the first and the last 16 are looked at

# general categories of Unicode: what an unknown character is taken for
CATEGORIES = (
    *("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No"),
    *("Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So"),
    *("Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"),
)


class Characters:
    """The characters that are known.

    Args:
        known: in the order of their numbers.
    """

    def __init__(self, known: Sequence[str]) -> None:
        self.known = "".join(known)

    @classmethod
    def build(cls, forms: Mapping[str, int], min_count: int) -> Characters:
        """Those of forms that occur so often, rarer ones left out."""
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
        """How many symbols there are."""
        return END + 1 + len(CATEGORIES) + len(self.known)

    def rows(self, forms: Iterable[str]) -> tuple[Ints, Ints]:
        """The symbols of forms one after another, each from BEGIN to END, and their lengths."""
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
    """Forms one after another as rows of a table, [U, L], PAD at their ends."""
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
        """The vectors of forms, [U, F], of their characters as `Characters.rows` gives them."""
        vectors = np.empty((len(lengths), len(self._bias)), np.float32)
        strongest(self._products, self._bias, symbols, lengths, vectors)
        return vectors
