"""Learning of a tagger's sparse features, one word after another.

With x the features of a word that are not dropped and w(v) the weights of value v, of UPOS, XPOS or
FEATS, the score of a bundle is the sum of w(v) x over its three values; the loss is -log P(bundle)
by the softmax over all bundles, and AdaGrad (Duchi et al. 2011) takes

    w(v) -= rate * g(v) x / sqrt(sum of the g(v)^2 x so far)

with g(v) = P(v) - 1 if v is the word's, else P(v). Where it is below `LEAST_GRADIENT`, nothing is
learnt. The weights of the model are the averages over all words read.
"""

from __future__ import annotations

import numpy as np
from numba import types

from seqtool.core.arrays import Bytes, Floats, Halves, Ints
from seqtool.core.jit import compiled
from seqtool.parsing.sparse.engine import (
    SEEN,
    Averaged,
    add,
    averaged_type,
    mix,
    place_of,
    sum_rows,
)
from seqtool.parsing.sparse.words import (
    FEWEST_BITS,
    WEIGHTS,
    Words,
    compile_templates,
    hash_words,
    shapes,
)
from seqtool.parsing.tagger.config import TaggerConfig

LEAST = 2  # a feature that is there once helps no other word
RATE, LEAST_GRADIENT = 0.1, 0.03
# of the scores beside those of the network; 0.25 to 1 are nearly alike, and 0.5 never harmed
SHARE = 0.5
PLACES_PER_WORD = 64  # weights for each word of the treebank, but no more than are asked for

_table = types.int32[:, ::1]
_floats = types.float32[::1]


def num_bits(config: TaggerConfig, num_words: int) -> int:
    """Return the bits of hashes that a treebank of so many words needs, no more than are asked."""
    needed = max(FEWEST_BITS, int(PLACES_PER_WORD * num_words).bit_length())
    return min(config.model.sparse_bits, needed)


@compiled(
    types.void(
        *(_table, types.uint8[::1], types.int64[::1], types.int32[::1], _table, averaged_type),
        *(_floats, _floats, types.float64, types.int64),
    )
)
def _learn_words(  # type: ignore[no-untyped-def]
    rows, counts, order, bundles, members, weights, squares, scores, dropout, draw
):
    """Learn words in an order, by the places `rows` of their features and their `bundles`.

    At each place, `counts` tells how often its feature is there, up to `LEAST`. `members` are the
    values of bundles, [B, 3]; `squares` the sums of the squared gradients of all weights; `scores`
    is room for those of all values. At each word, a share `dropout` of its features is left out, by
    a number `draw` of the epoch.
    """
    num_bundles, num_columns = members.shape
    kept = np.empty((1, rows.shape[1]), np.int32)
    gradients = np.empty_like(scores)
    chances = np.empty(num_bundles, np.float32)
    for word in order:
        num = 0
        state = mix(mix(0, draw + 1), word)
        for template in range(rows.shape[1]):
            # a number below 2^20 that depends on the epoch, the word and the template alone
            is_dropped = place_of(mix(state, template), 20) < dropout * (1 << 20)
            if counts[rows[word, template]] >= LEAST and not is_dropped:
                kept[0, num] = rows[word, template]
                num += 1
        sum_rows(kept[:, :num].copy(), 0, weights.values, scores)
        for bundle in range(num_bundles):
            chances[bundle] = 0.0
            for column in range(num_columns):
                chances[bundle] += scores[members[bundle, column]]
        highest, total = chances.max(), 0.0
        for bundle in range(num_bundles):
            chances[bundle] = np.exp(chances[bundle] - highest)
            total += chances[bundle]
        gradients[:] = 0.0
        for bundle in range(num_bundles):
            chance = chances[bundle] / total
            for column in range(num_columns):
                gradients[members[bundle, column]] += chance
        for column in range(num_columns):
            gradients[members[bundles[word], column]] -= 1.0
        for value in range(scores.shape[0]):
            gradient = gradients[value]
            if abs(gradient) >= LEAST_GRADIENT:
                for place in range(num):
                    at = kept[0, place] + value
                    squares[at] += gradient * gradient
                    # the sum is not 0: it holds the square of this gradient
                    change = -RATE * gradient / np.sqrt(squares[at])
                    add(weights, at, np.float32(change))
        weights.num[0] += 1


class SparseLearner:
    """Sparse features while they are learnt.

    Args:
        config: all settings, `sparse_bits` as `num_bits` gives them.
        words: those of the treebank.
        bundles: int32 [T], of each word.
        members: int32 [B, 3], which of all values those of a bundle are.
        num_values: of all columns together.

    Attributes:
        epochs: learnt so far.
    """

    def __init__(
        self, config: TaggerConfig, words: Words, bundles: Ints, members: Ints, num_values: int
    ) -> None:
        self._config, self._bundles, self._members = config, bundles, members
        templates, _ = compile_templates(config.model.sparse_templates)
        bits = config.model.sparse_bits
        self._rows = hash_words(words, templates, bits)
        counts = np.bincount(self._rows.ravel(), minlength=1 << bits)
        self._counts: Bytes = np.minimum(counts, LEAST).astype(np.uint8)
        size = shapes(bits, num_values)[WEIGHTS]
        self._weights = Averaged(
            np.zeros(size, np.float32), np.zeros(size, np.float64), np.zeros(1, np.int64)
        )
        self._squares: Floats = np.zeros(size, np.float32)
        self._scores: Floats = np.empty(num_values, np.float32)
        self.epochs = 0

    def learn_until(self, epochs: int) -> None:
        """Learn up to so many epochs in all; what they bring does not depend on how it is asked."""
        learning, seed = self._config.learning, self._config.training.seed
        while self.epochs < min(epochs, learning.sparse_epochs):
            self.epochs += 1
            _learn_words(
                self._rows,
                self._counts,
                np.random.default_rng((seed, self.epochs)).permutation(len(self._rows)),
                self._bundles,
                self._members,
                self._weights,
                self._squares,
                self._scores,
                learning.dropout_sparse,
                seed * learning.sparse_epochs + self.epochs,
            )

    def arrays(self) -> dict[str, Halves | Bytes]:
        """Return the arrays of `words.SparseFeatures`, by their names in the model."""
        # as many features as training kept, on average
        factor = SHARE * (1.0 - self._config.learning.dropout_sparse)
        weights = (factor * self._weights.average()).astype(np.float16)
        return {WEIGHTS: weights, SEEN: np.packbits(self._counts >= LEAST)}
