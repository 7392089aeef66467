"""The engine of sparse features: templates, the hash by which features find weights, their sums.

A template is a text of one value or more, separated by spaces; all of them make one feature:

    w.suffix3             an attribute at a place: the last letters of a word
    w-1.lower w.suffix3   two of them together

Which places and attributes there are is a matter of each family: `words`, `transitions`, `arcs`.
A value that is not there is 0, and the feature is one all the same, as those of MaltParser's null
values are.

A feature is its template's number and its values; its hash is a place in an array of 2^bits
weights. Features that share a place share its weight (Weinberger et al. 2009): what is rare is
then learnt less well, and nothing has to be looked up. Where a feature has a weight for each of
several outcomes (transitions, tags, labels), these are a row that begins at its place:

    weights  float32 [2^bits + T - 1]
             ...|w(f, 0) w(f, 1) ... w(f, T-1)|...      rows of other features overlap with it

Most of a row is zero: a feature has weights with the few outcomes that it was ever right or wrong
about. So rows share places with little harm, as single weights do.

Averages of weights are kept lazily (Daumé 2006, section 2.1; the perceptron's are those of Collins
2002): an update changes a few weights, and notes beside each the update times the number of
examples before it. With w after n examples and the sum u of what was noted, the average over the
weights after each of the n examples is w - u / n.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Self

import numpy as np
from numba import types

from seqtool.core.arrays import Doubles, Floats, Ints, Longs
from seqtool.core.errors import ConfigError
from seqtool.core.instructions import fetch, real
from seqtool.core.jit import compiled
from seqtool.parsing.encoding.features import FIELDS, ROOT, ROOT_TYPE, Types

NAME = "standard"  # stands for the templates of the literature among those of a setting

# an odd number, whose product takes the low bits of a value to all bits above (Knuth: 2^64 / the
# golden ratio), as Numba has it: a whole number with a sign
FACTOR = np.int64(0x9E3779B97F4A7C15 - (1 << 64))
TOP = np.int64(36)  # bits from here on are the best mixed ones

_int = types.int64
_ints = types.int32[::1]
_longs = types.int64[::1]


class Templates(NamedTuple):
    """Templates as compiled code reads them.

    Attributes:
        values: int32 [num_values, 2]: the place and the attribute of each value, as numbers.
        parts: int32, of one template after another, the numbers of its values.
        ends: int32 [num_templates], where the parts of each end.
        states: int64 [num_templates], what the hash of each begins with.
    """

    values: Ints
    parts: Ints
    ends: Ints
    states: Longs


templates_type = types.NamedTuple((types.int32[:, ::1], _ints, _ints, _longs), Templates)


def template_list(text: str, *places: str) -> tuple[str, ...]:
    """Return templates, separated by commas in a text, once for each of some places.

    >>> template_list("{0}.form, {0}.upos {1}.upos", "s1 s0", "s0 b0")
    ('s1.form', 's1.upos s0.upos', 's0.form', 's0.upos b0.upos')
    """
    return tuple(
        " ".join(one.format(*names.split()).split())
        for names in places or ("",)
        for one in text.split(",")
    )


def expanded(texts: Iterable[str], standard: Sequence[str]) -> tuple[str, ...]:
    """Return templates with `NAME` replaced by the standard ones, and single spaces."""
    return tuple(
        one for text in texts for one in (standard if text == NAME else (" ".join(text.split()),))
    )


def compile_templates(
    texts: Iterable[str], number_of: Callable[[str], tuple[int, int]]
) -> Templates:
    """Return templates as tables.

    Args:
        texts: of templates.
        number_of: returns the place and the attribute of a value, such as `w-1.lower`; it raises a
            `ConfigError` where there is none.

    Raises:
        ConfigError: one that cannot be read; it is quoted.
    """
    values: dict[tuple[int, int], int] = {}
    parts: list[int] = []
    ends: list[int] = []
    for text in texts:
        try:
            if not text.split():
                raise ConfigError("there is no value", hint="write one or more, with spaces")
            parts += [values.setdefault(number_of(one), len(values)) for one in text.split()]
        except ConfigError as error:
            raise ConfigError(f"the template {text!r}: {error.message}", hint=error.hint) from error
        ends.append(len(parts))
    # not from template 0 on: a hash of zeros would stay 0
    states = FACTOR * np.arange(1, len(ends) + 1, dtype=np.int64)
    return Templates(
        np.asarray(list(values), np.int32).reshape(-1, 2),
        np.asarray(parts, np.int32),
        np.asarray(ends, np.int32),
        states ^ states >> 32,
    )


@compiled(_int(_int, _int))
def mix(state, value):  # type: ignore[no-untyped-def]
    """Return the state of a hash after one more value; products wrap around."""
    state = (state ^ value) * FACTOR
    # the high bits are mixed best; they come down to where the next product spreads them
    return state ^ (state >> 32)


@compiled(_int(_int, _int))
def place_of(state, num_bits):  # type: ignore[no-untyped-def]
    """Return the place of a feature among 2^num_bits weights, of no more than 26 bits."""
    # 26 bits from bit 36 on stay below the sign, which the shift would repeat
    return (state * FACTOR) >> TOP & ((1 << num_bits) - 1)


@compiled(types.void(templates_type, _longs, _int, _ints))
def hash_templates(templates, values, num_bits, places):  # type: ignore[no-untyped-def]
    """Write the places of the features of all templates, [num_templates], by all values."""
    parts, ends, begin = templates.parts, templates.ends, 0
    for template in range(ends.shape[0]):
        state = templates.states[template]
        for part in range(begin, ends[template]):
            state = mix(state, values[parts[part]])
        begin = ends[template]
        places[template] = place_of(state, num_bits)


SEEN = "sparse.seen"  # the array of a model that is bytes: bits of the places that were learnt
TOGETHER = 4  # rows that are added at once

_table = types.int32[:, ::1]
_weights = (types.float32[::1], types.uint16[::1])  # as they are learnt, and as they are read


class Averaged(NamedTuple):
    """Weights, as compiled code reads and changes them.

    Attributes:
        values: float32 [N], the weights as they are.
        noted: float64 [N], of each weight the sum of its updates times `num` at that time.
        num: int64 [1], the examples so far, those without an update too.
    """

    values: Floats
    noted: Doubles
    num: Longs

    def average(self) -> Floats:
        """Return the average of the weights over all examples so far, float32 [N]."""
        return (self.values - self.noted / max(1, int(self.num[0]))).astype(np.float32)


averaged_type = types.NamedTuple((types.float32[::1], types.float64[::1], _longs), Averaged)


@compiled(types.void(averaged_type, types.int64, types.float32))
def add(weights, place, change):  # type: ignore[no-untyped-def]
    """Change one weight; `num` counts an example only after all its changes."""
    weights.values[place] += change
    weights.noted[place] += np.float64(change) * weights.num[0]


@compiled([types.void(_table, _int, kind, types.float32[::1]) for kind in _weights])
def sum_rows(rows, place, weights, scores):  # type: ignore[no-untyped-def]
    """Fill in the scores of all outcomes in one place, by the rows of its features.

    Weights are float32, or halves as their bits: fewer lines of memory, and the sums are the same.
    """
    num_rows, num = rows.shape[1], scores.shape[0]
    scores[:] = 0.0
    at = 0
    while at + TOGETHER <= num_rows:
        # rows are far from each other, and memory takes longer than adding: the next are asked for
        for ahead in range(at + TOGETHER, min(at + 2 * TOGETHER, num_rows)):
            for line in range(0, num, 16):  # 16 floats are a line of the cache
                fetch(weights, rows[place, ahead] + line)
        a, b = rows[place, at], rows[place, at + 1]
        c, d = rows[place, at + 2], rows[place, at + 3]
        for outcome in range(num):
            scores[outcome] += (real(weights, a + outcome) + real(weights, b + outcome)) + (
                real(weights, c + outcome) + real(weights, d + outcome)
            )
        at += TOGETHER
    while at < num_rows:
        a = rows[place, at]
        for outcome in range(num):
            scores[outcome] += real(weights, a + outcome)
        at += 1


@compiled([types.void(_table, kind, types.float32[:, ::1]) for kind in _weights])
def score_rows(rows, weights, scores):  # type: ignore[no-untyped-def]
    """Fill in the scores of the outcomes in all places, [N, T]; see `sum_rows`."""
    for place in range(rows.shape[0]):
        sum_rows(rows, place, weights, scores[place])


# a word's attributes: groups of symbols of which every type has exactly one
ATTRIBUTES = {
    group: field
    for field, groups in FIELDS.items()
    for group, (_, _, most) in groups.items()
    if most == 1
}


class AttributeReader:
    """What linear decoders share: the attributes of types, as numbers, and members of an ensemble.

    Args:
        attributes: names in `ATTRIBUTES`, whose fields the types are read by.

    Attributes:
        table: int32 [num_types, num_attributes], of the types met so far; 0 where no word is, else
            the number of a symbol.
    """

    def __init__(self, attributes: Sequence[str]) -> None:
        self._names = tuple(attributes)
        self.table: Ints = np.zeros((0, len(self._names)), np.int32)
        self._others: list[Self] = []

    @property
    def members(self) -> list[Self]:
        """This one, and those that joined it."""
        return [self, *self._others]

    def joined(self, others: Sequence[Self]) -> Self:
        """Return an ensemble of this one and others; see `Decoder.joined`."""
        together = copy.copy(self)
        together._others = [member for each in (self, *others) for member in each.members][1:]
        return together

    @property
    def num_bytes(self) -> int:
        """Memory of the attributes of types, of the member with most."""
        return max(member.table.nbytes for member in self.members)

    def clear(self) -> None:
        """Forget all types."""
        for member in self.members:
            member.table = np.zeros((0, len(member._names)), np.int32)

    def prepare(self, types: Types) -> None:
        """Add the types that were met since the last time."""
        for member in self.members:
            if len(types) > len(member.table):
                rows = member._attributes_of(types, len(member.table))
                member.table = np.concatenate((member.table, rows))

    def _attributes_of(self, types: Types, begin: int) -> Ints:
        """Return the attributes of the types from a number on."""
        rows = np.zeros((len(types) - begin, len(self._names)), np.int32)
        tables = types.lexical, types.tags
        for symbols, table in zip(types.arrays(begin), tables, strict=True):
            for column, name in enumerate(self._names):
                if name in table.groups:
                    first, last = table.range_of(name)
                    is_inside = (symbols >= first) & (symbols <= last)
                    rows[:, column] = np.where(is_inside, symbols, 0).max(axis=1)
        if begin <= ROOT_TYPE < len(types):
            rows[ROOT_TYPE - begin] = ROOT
        return rows
