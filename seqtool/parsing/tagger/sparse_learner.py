"""Learning of sparse features, one word after another.

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
from seqtool.parsing.encoding.averages import Averaged, add, averaged_type
from seqtool.parsing.encoding.sparse import SEEN, mix, place_of, sum_rows
from seqtool.parsing.tagger.config import TaggerConfig
from seqtool.parsing.tagger.sparse import (
    FEWEST_BITS,
    WEIGHTS,
    Words,
    compile_templates,
    hash_word,
    shapes,
    templates_type,
    words_type,
)

LEAST = 2  # a feature that is there once helps no other word
RATE, LEAST_GRADIENT = 0.1, 0.03
# of the scores beside those of the network; 0.25 to 1 are nearly alike, and 0.5 never harmed
SHARE = 0.5
PLACES_PER_WORD = 64  # weights for each word of the treebank, but no more than are asked for

_ints = types.int32[::1]
_table = types.int32[:, ::1]
_floats = types.float32[::1]
_int = types.int64


def num_bits(config: TaggerConfig, num_words: int) -> int:
    """Return the bits of hashes that a treebank of so many words needs, no more than are asked."""
    needed = max(FEWEST_BITS, int(PLACES_PER_WORD * num_words).bit_length())
    return min(config.model.sparse_bits, needed)


@compiled(types.void(words_type, templates_type, _int, types.uint8[::1]))
def _count(words, templates, num_bits, counts):  # type: ignore[no-untyped-def]
    """Count the features of all words, each up to `LEAST`."""
    values = np.empty(templates.values.shape[0], np.int64)
    row = np.empty(templates.ends.shape[0], np.int32)
    for word in range(words.places.shape[0]):
        hash_word(words, word, templates, num_bits, values, row)
        for template in range(row.shape[0]):
            # no further, as a byte would wrap around
            if counts[row[template]] < LEAST:
                counts[row[template]] += 1


@compiled(types.float64(_floats, _table, _int, _floats, _floats))
def _gradients(scores, members, gold, chances, gradients):  # type: ignore[no-untyped-def]
    """Fill in the gradient of each value's score; return the loss in nats.

    `members` are the values of bundles, [B, 3]; `chances` is room for all bundles.
    """
    num_bundles, num_columns = members.shape
    highest = np.float32(-np.inf)
    for bundle in range(num_bundles):
        score = np.float32(0.0)
        for column in range(num_columns):
            score += scores[members[bundle, column]]
        chances[bundle] = score
        highest = max(highest, score)
    total = 0.0
    for bundle in range(num_bundles):
        chances[bundle] = np.exp(chances[bundle] - highest)
        total += chances[bundle]
    gradients[:] = 0.0
    for bundle in range(num_bundles):
        chance = chances[bundle] / total
        for column in range(num_columns):
            gradients[members[bundle, column]] += chance
    for column in range(num_columns):
        gradients[members[gold, column]] -= 1.0
    # of a score far below the best one, the exponential may be 0
    return np.log(total) - np.log(max(chances[gold], 1e-30))


@compiled(
    types.float64(
        words_type,
        templates_type,
        _int,
        types.uint8[::1],
        types.int64[::1],
        _ints,
        _table,
        averaged_type,
        _floats,
        types.float64,
        _int,
    )
)
def learn_words(  # type: ignore[no-untyped-def]
    words, templates, num_bits, counts, order, bundles, members, weights, squares, dropout, draw
):
    """Learn words in an order; return the mean loss in nats, each word's before it is learnt.

    `counts` are those of `_count`, `bundles` of all words, `members` the values of bundles, [B, 3].
    `squares` are the sums of the squared gradients of all weights. At each word, a share `dropout`
    of its features is left out, by a number `draw` of the epoch.
    """
    num_values = weights.values.shape[0] - (1 << num_bits) + 1
    values = np.empty(templates.values.shape[0], np.int64)
    row = np.empty(templates.ends.shape[0], np.int32)
    kept = np.empty((1, row.shape[0]), np.int32)
    scores = np.empty(num_values, np.float32)
    gradients = np.empty(num_values, np.float32)
    chances = np.empty(members.shape[0], np.float32)
    loss = 0.0
    for word in order:
        hash_word(words, word, templates, num_bits, values, row)
        num = 0
        state = mix(mix(0, draw + 1), word)
        for template in range(row.shape[0]):
            # a number below 2^20 that depends on the epoch, the word and the template alone
            is_dropped = place_of(mix(state, template), 20) < dropout * (1 << 20)
            if counts[row[template]] >= LEAST and not is_dropped:
                kept[0, num] = row[template]
                num += 1
        sum_rows(kept[:, :num].copy(), 0, weights.values, scores)
        loss += _gradients(scores, members, bundles[word], chances, gradients)
        for value in range(num_values):
            gradient = gradients[value]
            if abs(gradient) >= LEAST_GRADIENT:
                for place in range(num):
                    at = kept[0, place] + value
                    squares[at] += gradient * gradient
                    # the sum is not 0: it holds the square of this gradient
                    change = -RATE * gradient / np.sqrt(squares[at])
                    add(weights, at, np.float32(change))
        weights.num[0] += 1
    return loss / max(1, order.shape[0])


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
        self._config, self._words, self._bundles, self._members = config, words, bundles, members
        self._templates, _ = compile_templates(config.model.sparse_templates)
        bits = config.model.sparse_bits
        size = shapes(bits, num_values)[WEIGHTS]
        self._weights = Averaged(
            np.zeros(size, np.float32), np.zeros(size, np.float64), np.zeros(1, np.int64)
        )
        self._squares: Floats = np.zeros(size, np.float32)
        self._counts: Bytes = np.zeros(1 << bits, np.uint8)
        _count(words, self._templates, bits, self._counts)
        self.epochs = 0

    def learn_until(self, epochs: int) -> None:
        """Learn up to so many epochs in all; what they bring does not depend on how it is asked."""
        learning = self._config.learning
        while self.epochs < min(epochs, learning.sparse_epochs):
            self.epochs += 1
            seed = self._config.training.seed
            order = np.random.default_rng((seed, self.epochs)).permutation(len(self._bundles))
            learn_words(
                self._words,
                self._templates,
                self._config.model.sparse_bits,
                self._counts,
                order,
                self._bundles,
                self._members,
                self._weights,
                self._squares,
                learning.dropout_sparse,
                seed * learning.sparse_epochs + self.epochs,
            )

    def arrays(self) -> dict[str, Halves | Bytes]:
        """Return the arrays of `sparse.SparseFeatures`, by their names in the model."""
        # as many features as training kept, on average
        factor = SHARE * (1.0 - self._config.learning.dropout_sparse)
        weights = (factor * self._weights.average()).astype(np.float16)
        return {WEIGHTS: weights, SEEN: np.packbits(self._counts >= LEAST)}
