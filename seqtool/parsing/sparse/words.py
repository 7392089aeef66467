"""Sparse features of words in their sentences, whose scores a tagger adds to those of its network.

A network finds what words have in common; features of two or three words as they are written, as
taggers had them before (Ratnaparkhi 1996), remember what is said often. P(bundle) is the softmax
over the sums of its values' scores, as that of the network. Weights are learnt apart from the
network, so that neither relies on the other.

The place of a value is that of a word: `w`, `w-1` to `w-9` before it, `w+1` to `w+9` after it. Its
attribute is `form`, `lower` (case), `prefix1` to `prefix4`, `suffix1` to `suffix5`, `shape` or
`case`. See `engine`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from seqtool.core.arrays import Floats, Ints
from seqtool.core.errors import ConfigError, did_you_mean
from seqtool.core.jit import compiled
from seqtool.parsing.encoding.features import shape
from seqtool.parsing.sparse import engine
from seqtool.parsing.sparse.engine import (
    SEEN,
    Templates,
    expanded,
    hash_templates,
    score_rows,
    template_list,
    templates_type,
)

WEIGHTS = "sparse.weight"  # the name of the array of weights; that of bits is `SEEN`
ATTRIBUTES: dict[str, Callable[[str], str]] = {
    "form": str,
    "lower": str.lower,
    **{f"prefix{n}": lambda form, n=n: form[:n].lower() for n in range(1, 5)},  # type: ignore[misc]
    **{f"suffix{n}": lambda form, n=n: form[-n:].lower() for n in range(1, 6)},  # type: ignore[misc]
    "shape": shape,
    # whether it begins with a capital, and whether it has no small letter
    "case": lambda form: f"{form[:1].isupper()}{form.upper() == form}",
}
FEWEST_BITS = 10  # of a hash
STANDARD = template_list(
    "w.form, w.lower, w.shape, w.prefix1, w.prefix2, w.prefix3, w.prefix4, w.suffix1, w.suffix2,"
    "w.suffix3, w.suffix4, w.suffix5, w-3.lower, w-2.lower, w-1.lower, w+1.lower, w+2.lower,"
    "w+3.lower, w-2.lower w-1.lower, w-1.lower w.lower, w.lower w+1.lower, w+1.lower w+2.lower,"
    "w-1.lower w+1.lower, w-1.lower w.lower w+1.lower, w-1.suffix3, w+1.suffix3,"
    "w-1.suffix2 w.suffix3, w.suffix3 w+1.suffix2, w-1.lower w.suffix3, w.suffix3 w+1.lower,"
    "w-1.suffix2 w.suffix2 w+1.suffix2, w-1.shape, w+1.shape, w-1.shape w.shape w+1.shape,"
    "w-1.case w.case w+1.case, w-1.case w.shape"
)
_VALUE = re.compile(r"w([+-][1-9])?\.(\w+)")

_int = types.int64
_ints = types.int32[::1]
_table = types.int32[:, ::1]


class Words(NamedTuple):
    """The words of sentences, as compiled code reads them.

    Attributes:
        attributes: int32 [U, A], the attributes of distinct forms.
        places: int32 [T], which of them each word has.
        begins, ends: int32 [T], the words between which its sentence is.
    """

    attributes: Ints
    places: Ints
    begins: Ints
    ends: Ints


words_type = types.NamedTuple((_table, _ints, _ints, _ints), Words)


def chosen(texts: Iterable[str]) -> tuple[str, ...]:
    """Return templates with `engine.NAME` replaced by the standard ones."""
    return expanded(texts, STANDARD)


def compile_templates(texts: Sequence[str]) -> tuple[Templates, tuple[str, ...]]:
    """Return templates as tables, and the attributes that they look at, in the tables' order.

    The place of a value is how far from the word it stands.

    Raises:
        ConfigError: one that cannot be read; it is quoted.
    """
    attributes: dict[str, int] = {}

    def number_of(value: str) -> tuple[int, int]:
        found = _VALUE.fullmatch(value)
        if found is None or found[2] not in ATTRIBUTES:
            hint = "write w.suffix3, w-1.lower w.lower ..."
            if found is not None:
                hint = did_you_mean(found[2], ATTRIBUTES)
            raise ConfigError(f"{value!r} is no value", hint=hint)
        return int(found[1] or 0), attributes.setdefault(found[2], len(attributes))

    return engine.compile_templates(texts, number_of), tuple(attributes)


def attributes_of(forms: Sequence[str], names: Sequence[str]) -> Ints:
    """Return the attributes of forms as numbers, [forms, names], the same on every machine."""
    functions = [ATTRIBUTES[name] for name in names]
    rows = [
        [zlib.crc32(function(form).encode("utf-8", "surrogatepass")) for function in functions]
        for form in forms
    ]
    return np.asarray(rows, np.uint32).reshape(len(forms), len(names)).view(np.int32)


def words_of(attributes: Ints, places: Ints, lengths: Ints) -> Words:
    """Return the words of sentences of some lengths, with the attributes of distinct forms."""
    ends = np.cumsum(lengths, dtype=np.int32)
    begins, ends = np.repeat(ends - lengths, lengths), np.repeat(ends, lengths)
    return Words(attributes, places, begins.astype(np.int32), ends)


@compiled(types.void(words_type, templates_type, _int, _table))
def _hash_words(words, templates, num_bits, rows):  # type: ignore[no-untyped-def]
    values = np.empty(templates.values.shape[0], np.int64)
    for word in range(rows.shape[0]):
        for number in range(values.shape[0]):
            other = word + templates.values[number, 0]
            values[number] = 0  # outside the sentence
            if words.begins[word] <= other < words.ends[word]:
                values[number] = words.attributes[words.places[other], templates.values[number, 1]]
        hash_templates(templates, values, num_bits, rows[word])


def hash_words(words: Words, templates: Templates, num_bits: int) -> Ints:
    """Return the places of the features of words, int32 [T, templates]."""
    rows = np.empty((len(words.places), len(templates.states)), np.int32)
    _hash_words(words, templates, num_bits, rows)
    return rows


def shapes(num_bits: int, num_values: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays."""
    return {WEIGHTS: ((1 << num_bits) + num_values - 1,), SEEN: ((1 << num_bits) // 8,)}


class SparseFeatures:
    """Scores values by sparse features.

    Args:
        templates: such as `STANDARD`.
        num_bits: features are hashed to 2^num_bits places.
        num_values: of all columns together, V.
        weights: by name; of these arrays, `shapes`: the weights, of which those of a feature are V
            from its place on; and bits, set at the places of features that were learnt.

    Attributes:
        attributes: of forms, by name, that `scores` is to be given.
    """

    def __init__(
        self,
        templates: Sequence[str],
        num_bits: int,
        num_values: int,
        weights: Mapping[str, npt.NDArray[Any]],
    ) -> None:
        self._templates, self.attributes = compile_templates(templates)
        self._num_bits, self._num_values, self._seen = num_bits, num_values, weights[SEEN]
        # a row of zeros behind all others, for what was not learnt
        self._unseen = len(weights[WEIGHTS])
        halves = np.zeros(self._unseen + num_values, np.float16)
        halves[: self._unseen] = weights[WEIGHTS]
        self._weights = halves.view(np.uint16)

    def scores(self, words: Words) -> Floats:
        """Return the scores of values of words, [T, V]."""
        rows = hash_words(words, self._templates, self._num_bits)
        is_seen = self._seen[rows >> 3] >> (7 - (rows & 7)) & 1  # as np.packbits has them
        scores = np.empty((len(rows), self._num_values), np.float32)
        score_rows(np.where(is_seen, rows, np.int32(self._unseen)), self._weights, scores)
        return scores
