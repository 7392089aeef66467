"""The linear classifier: the score of a transition is the sum of the weights of features with it.

A feature's hash is a place in one array of weights; the weights of the transitions 0 .. T - 1 with
that feature stand from there on, one after another, so that they are added as a row:

    weights  float32 [2^hash_bits + T - 1]
             ...|w(f, 0) w(f, 1) ... w(f, T-1)|...      rows of other features overlap with it

Most of a row is zero: a feature has weights with the few transitions that it was ever right or
wrong about. So rows share places with little harm, as single weights do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import thread_time

import numpy as np
from numba import types

from seqtool.core.arrays import Floats, Ints
from seqtool.core.jit import compiled
from seqtool.parsing.encoding.features import Types
from seqtool.parsing.encoding.sparse import hash_templates, score_rows
from seqtool.parsing.parser.config import ModelConfig
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.linear.hashing import Values
from seqtool.parsing.parser.linear.transitions.templates import (
    ATTRIBUTE,
    LABEL,
    Templates,
    compile_templates,
)
from seqtool.parsing.parser.transition.hidden_layer import Seen, extract
from seqtool.parsing.parser.transition.search import Scorer
from seqtool.parsing.parser.transition.transitions import Configurations

WEIGHTS = "transitions"  # the name of the array

_int = types.int64
_table = types.int32[:, ::1]
_templates = types.NamedTuple((_table, types.int32[::1], types.int32[::1]), Templates)
_seen = types.NamedUniTuple(_table, 3, Seen)


@compiled(types.void(_seen, _table, _templates, _int, _table))
def _hash(seen, of_types, templates, num_bits, rows):  # type: ignore[no-untyped-def]
    """Note the row of each feature of some configurations, [N, templates]."""
    values = np.empty(templates.values.shape[0], np.int64)
    for place in range(rows.shape[0]):
        for number in range(values.shape[0]):
            kind, slot = templates.values[number, 0], templates.values[number, 1]
            if kind == ATTRIBUTE:
                values[number] = of_types[seen.words[place, slot], templates.values[number, 2]]
            elif kind == LABEL:
                values[number] = seen.labels[place, slot]
            else:
                values[number] = seen.measures[place, slot]
        hash_templates(values, templates.parts, templates.ends, num_bits, rows[place])


@dataclass
class Timing:
    """Where the time of parsing goes, in seconds of the processor."""

    found: float = 0.0  # what stands in the places that features look at
    hashed: float = 0.0  # features made of that
    summed: float = 0.0  # their weights fetched from memory, and added
    total: float = 0.0  # all; the rest is the search, legality and transitions

    @property
    def share(self) -> float:
        """The share of features in all, in percent."""
        return 100.0 * (self.found + self.hashed + self.summed) / self.total


def num_weights(config: ModelConfig, labels: Labels) -> int:
    """Return the length of the array of weights."""
    return (1 << config.hash_bits) + labels.num_transitions - 1


class LinearClassifier:
    """Scores transitions by sparse features.

    Args:
        config: templates and hash; its system is chosen, and its templates are, too.
        weights: by name; of this array, `num_weights`.

    Attributes:
        values: of types, to be extended before they are met.
        timing: what was spent on features so far.
    """

    def __init__(self, config: ModelConfig, weights: Mapping[str, Floats]) -> None:
        self._num_bits = config.hash_bits
        self._templates, self._slots, attributes = compile_templates(config.templates)
        # half precision is what the file has
        self._weights = weights[WEIGHTS].astype(np.float16).view(np.uint16)
        self.values = Values(attributes)
        self.timing = Timing()

    @property
    def num_templates(self) -> int:
        """The number of features of a configuration."""
        return len(self._templates.ends)

    def prepare(self, types_met: Types) -> None:
        """Make ready for the types that were met since the last time."""
        self.values.extend(types_met)

    def rows(self, configurations: Configurations, which: Ints, token_types: Ints) -> Ints:
        """Return the rows of the features of configurations, int32 [N, templates].

        Args:
            configurations: where the configurations are.
            which: which of them.
            token_types: the type of every token.
        """
        begin = thread_time()
        seen = extract(configurations, which, token_types, self._slots)
        found = thread_time()
        rows = np.empty((len(which), self.num_templates), np.int32)
        _hash(seen, self.values.table, self._templates, self._num_bits, rows)
        self.timing.found += found - begin
        self.timing.hashed += thread_time() - found
        return rows

    def scorer(self, token_types: Ints) -> Scorer:
        """Return what scores the configurations of sentences, by the types of all tokens."""

        def score(configurations: Configurations, which: Ints, scores: Floats) -> None:
            rows = self.rows(configurations, which, token_types)
            begin = thread_time()
            score_rows(rows, self._weights, scores)
            self.timing.summed += thread_time() - begin

        return score
