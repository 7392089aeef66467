"""One sentence learnt: the smallest change of the weights by which its tree wins; compiled.

MIRA with the one best wrong tree (McDonald et al. 2005), which is the passive-aggressive update
PA-I (Crammer et al. 2006, section 4): of the gold tree and the best other one, whose feature counts
differ by the vector d, the weights take the step

    w + t d,    t = min(C, (loss - w.d) / d.d),    where loss > w.d

so that the gold tree then wins by its loss, the number of wrong heads, unless the step would be
longer than C. The best other tree is found with one point for each wrong arc added to the scores.
Labels are learnt after that, word by word, with the gold tree around them and a loss of 1.
"""

from __future__ import annotations

import numpy as np
from numba import types

from seqtool.core.jit import compiled
from seqtool.parsing.sparse.arcs import (
    NUM_ADDRESSES,
    add_rows,
    arc_places,
    features_type,
    label_places,
    most_places,
    outer_children,
    tags_between,
)
from seqtool.parsing.sparse.engine import add, averaged_type

_ints = types.int32[::1]
_places = types.int64[::1]
_floats = types.float32[::1]
_int = types.int64
_double = types.float64


@compiled(_double(averaged_type, _places, _int, _int, _double, _double, _floats))
def take_step(weights, places, num_gold, num, loss, longest, changes):  # type: ignore[no-untyped-def]
    """Learn that the gold features win; return by how much they fell short of it, 0 or more.

    Args:
        weights: those of the features.
        places: the places of the gold features, then of those that stand against them.
        num_gold: how many the former are.
        num: how many there are of both.
        loss: by how much the gold ones are to win.
        longest: C, the longest step; 0 to measure only.
        changes: float32, as many zeros as weights; zeros again afterwards.
    """
    # a feature that is on both sides, or several times on one, counts by its sum
    for i in range(num):
        changes[places[i]] += np.float32(1.0) if i < num_gold else np.float32(-1.0)
    margin, norm = 0.0, 0.0
    for i in range(num):
        sign = 1.0 if i < num_gold else -1.0
        margin += sign * weights.values[places[i]]
        norm += sign * changes[places[i]]  # in all, the sum of squares
    missing = max(0.0, loss - margin)
    # norm 0: both sides have the same features, and no step tells them apart
    step = min(longest, missing / norm) if norm > 0.0 else 0.0
    for i in range(num):
        change = changes[places[i]]
        if change != 0.0:
            changes[places[i]] = 0.0  # once, however often it occurs
            if step > 0.0:
                add(weights, places[i], np.float32(step * change))
    return missing


@compiled(_double(features_type, _ints, _ints, _ints, _double, averaged_type, _floats))
def learn_heads(features, words, gold, best, longest, weights, changes):  # type: ignore[no-untyped-def]
    """Learn the heads of a sentence; return by how much its tree fell short, 0 or more.

    Args:
        features: see `arcs.Features`.
        words: the types of its tokens, ROOT first.
        gold: the heads of the gold tree.
        best: those of the best tree, with a point for each wrong arc.
        longest: see `take_step`, as for all that follow.
        weights: that are learnt.
        changes: zeros.
    """
    num_wrong = (gold != best).sum()
    if num_wrong == 0:
        return 0.0
    where = np.zeros(NUM_ADDRESSES, np.int64)
    between = np.empty_like(words)
    places = np.empty(2 * num_wrong * most_places(features, words), np.int64)
    num = num_gold = 0
    for heads in (gold, best):
        # set twice: in the end it is where the features of `best` begin
        num_gold = num
        for word in range(1, words.shape[0]):
            # where both have the same arc, its features would cancel out
            if gold[word - 1] != best[word - 1]:
                head = np.int64(heads[word - 1])
                num_between = tags_between(features, words, head, word, between)
                num += arc_places(
                    features, words, head, word, between, num_between, where, places[num:]
                )
    return take_step(weights, places, num_gold, num, float(num_wrong), longest, changes)


@compiled(_double(features_type, _ints, _ints, _ints, _int, _int, _double, averaged_type, _floats))
def learn_labels(  # type: ignore[no-untyped-def]
    features, words, heads, gold, num_arc_labels, num_labels, longest, weights, changes
):
    """Learn the labels of a sentence in its gold tree; return the sum of what they fell short by.

    Heads and labels of its words are `heads` and `gold`; of all labels, the first `num_arc_labels`
    are of arcs from words. For the others see `learn_heads`.
    """
    around = outer_children(heads)
    where = np.zeros(NUM_ADDRESSES, np.int64)
    most = 2 * features.states.shape[0]
    places, rivals = np.empty(most, np.int64), np.empty(2 * most, np.int64)
    scores = np.empty(num_labels, np.float32)
    total = 0.0
    for word in range(1, words.shape[0]):
        head = np.int64(heads[word - 1])
        num = label_places(features, words, head, word, heads, around, where, places)
        first, last = (0, num_arc_labels) if head else (num_arc_labels, num_labels)
        # a point for each wrong label, as for each wrong arc
        scores[first:last] = 1.0
        scores[gold[word - 1]] = 0.0
        add_rows(places, num, weights.values, first, last, scores)
        best = first + np.argmax(scores[first:last])
        # the gold label, best in spite of these points, wins by 1 already
        if best != gold[word - 1]:
            for i in range(num):
                rivals[i] = places[i] + gold[word - 1]
                rivals[num + i] = places[i] + best
            total += take_step(weights, rivals, num, 2 * num, 1.0, longest, changes)
    return total
