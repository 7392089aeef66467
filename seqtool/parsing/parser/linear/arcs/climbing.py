"""From a tree to better ones, by one changed head after another; compiled.

With scores of second order, the best tree of all, or with grandparents, is not found by dynamic
programming over siblings. From the best projective tree without grandparents, the search goes to
the best tree that differs in one head, and so on until none is better (McDonald & Pereira 2006,
section 2.2; with more kinds of parts: Zhang, Lei, Barzilay & Jaakkola 2014).

What the changes bring are scores of single arcs, too, by which trees near the best one are compared
and probabilities of arcs are told.
"""

from __future__ import annotations

import numpy as np
from numba import types

from seqtool.core.jit import compiled

_floats = types.float32[::1]
_ints = types.int32[::1]
_int = types.int64

LEAST_GAIN = 1e-4  # what is less may be rounding, which would go round in circles


@compiled(types.float32(_floats, _int, _int, _int, _int))
def _sibling_score(siblings, width, word, head, sibling):  # type: ignore[no-untyped-def]
    """Return the score of a word with its sibling, 0 for none; 0 where there is no such word."""
    if word == 0 or head == 0:
        return np.float32(0.0)
    return siblings[((word - 1) * width + head) * width + sibling]


@compiled(types.void(_ints, _floats, _floats, _floats, _floats, _floats))
def write_gains(heads, scores, siblings, above, below, gains):  # type: ignore[no-untyped-def]
    """Write by how much the score of a tree grows when one word gets another head, in O(n^2).

    Args:
        heads: the tree, of n words.
        scores: of arcs, [n, 1 + n], flat.
        siblings: see `graph.siblings`.
        above: see `score_grands`.
        below: see there.
        gains: [n, 1 + n], flat, written: of each word and head; 0 for the head that it has. Whether
            that would be a tree is not looked at.
    """
    num_words = heads.shape[0]
    width = num_words + 1
    # each word's next sibling towards the head, and away from it; 0 where there is none
    inner, outer = np.zeros(width, np.int64), np.zeros(width, np.int64)
    for head in range(1, width):
        for step in (-1, 1):
            nearest = 0
            word = head + step
            while 0 < word <= num_words:
                if heads[word - 1] == head:
                    inner[word] = nearest
                    if nearest > 0:
                        outer[nearest] = word
                    nearest = word
                word += step
    lost = np.zeros(width, np.float32)  # of each word, what its head and its siblings give
    for word in range(1, width):
        own = np.int64(heads[word - 1])
        place = (word - 1) * width + own
        lost[word] = scores[place] + above[place] + below[place]
        lost[word] += _sibling_score(siblings, width, word, own, inner[word])
        lost[word] += _sibling_score(siblings, width, outer[word], own, word)
        # without the word, the next one outwards has the one next inwards as its sibling
        lost[word] -= _sibling_score(siblings, width, outer[word], own, inner[word])
    for head in range(width):
        for step in (-1, 1):
            # the dependents of the head on either side of where we are
            near, far = 0, 0
            word = head + step
            if head > 0:  # arcs from ROOT have no scores of siblings
                far = word
                while 0 < far <= num_words and heads[far - 1] != head:
                    far += step
                far = far if 0 < far <= num_words else 0
            while 0 < word <= num_words:
                place = (word - 1) * width + head
                if heads[word - 1] == head:
                    gains[place] = 0.0
                    near, far = word, outer[word]
                else:
                    gain = scores[place] + above[place] + below[place] - lost[word]
                    # between two siblings, the word makes two pairs of one
                    gain += _sibling_score(siblings, width, word, head, near)
                    gain += _sibling_score(siblings, width, far, head, word)
                    gain -= _sibling_score(siblings, width, far, head, near)
                    gains[place] = gain
                word += step
    for word in range(1, width):
        gains[(word - 1) * width + word] = 0.0


@compiled(types.boolean(_ints, _int, _int))
def _is_below(heads, word, above):  # type: ignore[no-untyped-def]
    """Return whether a word is another one, or below it."""
    while word != above and word != 0:
        word = np.int64(heads[word - 1])
    return word == above


@compiled(types.boolean(_ints))
def is_projective(heads):  # type: ignore[no-untyped-def]
    """Return whether no arc of a tree crosses another, or covers the root."""
    for word in range(1, heads.shape[0] + 1):
        head = heads[word - 1]
        # ROOT is word 0, left of all others: so an arc over the root word is refused as a crossing
        low, high = (head, word) if head < word else (word, head)
        for between in range(low + 1, high):
            if heads[between - 1] < low or heads[between - 1] > high:
                return False
    return True


@compiled(types.boolean(_ints, _floats, types.boolean))
def take_best(heads, gains, projective):  # type: ignore[no-untyped-def]
    """Change the head that brings the most, if one does; return whether there was one.

    The root stays the root; what comes out is a tree, a projective one if that is asked for.
    """
    num_words = heads.shape[0]
    width = num_words + 1
    best, best_word, best_head = np.float32(LEAST_GAIN), 0, 0
    for word in range(1, width):
        before = heads[word - 1]
        if before == 0:
            continue
        for head in range(1, width):
            gain = gains[(word - 1) * width + head]
            # tests of the tree take long: they are made only for a gain above the best so far
            if gain > best and not _is_below(heads, head, word):
                heads[word - 1] = head
                if not projective or is_projective(heads):
                    best, best_word, best_head = gain, word, head
                heads[word - 1] = before
    if best_word > 0:
        heads[best_word - 1] = best_head
    return best_word > 0
