"""Parts of a tree of second order: siblings and grandparents; their features and scores; compiled.

Of the arc from h to d, the sibling s is the next dependent of h between h and d, if there is one,
and the grandparent g is the head of h. Arcs from ROOT have neither: there is one, and ROOT has no
head. The score of a tree is the sum of those of its arcs, and of (h, s, d) and (g, h, d) for each
arc from a word. Sentences are given as in `features`.
"""

from __future__ import annotations

import numpy as np

from seqtool.core import types
from seqtool.core.compiled import compiled
from seqtool.parsing.encoding.features import NONE_TYPE
from seqtool.parsing.parser.linear.arcs.features import (
    NUM_ADDRESSES,
    distance_of,
    hashed,
    state_of,
    type_of,
)
from seqtool.parsing.parser.linear.arcs.templates import (
    GRAND,
    GRANDS,
    PAIRS,
    SIBLING,
    SIBLINGS,
    D,
    H,
    features_type,
)
from seqtool.parsing.parser.linear.hashing import mix, place_of

_ints = types.int32[::1]
_places = types.int64[::1]
_floats = types.float32[::1]
_int = types.int64


@compiled(types.boolean(features_type))
def has_parts(features):  # type: ignore[no-untyped-def]
    """Return whether there are templates of second order."""
    return features.families[PAIRS] < features.families[GRANDS + 1]


@compiled(_int(features_type))
def most_part_places(features):  # type: ignore[no-untyped-def]
    """Return how many places the features of second order of one word have at most."""
    return 2 * (features.families[GRANDS + 1] - features.families[PAIRS])


@compiled(_int(_int, _int, _int))
def _span_of(head, sibling, word):  # type: ignore[no-untyped-def]
    """Return direction and length from the sibling, or the head where there is none, to a word."""
    return distance_of(sibling if sibling > 0 else head, word)


@compiled(_int(_int, _int, _int))
def _turns_of(grand, head, word):  # type: ignore[no-untyped-def]
    """Return a number for the directions of the arc to a head and of that from it."""
    return 2 * (head > grand) + (word > head)


@compiled(_int(features_type, _int, _places, _int, _places, _int))
def _turned(features, family, where, turns, places, num):  # type: ignore[no-untyped-def]
    """Write one place for each template of a family, with the directions of arcs; see `hashed`.

    There are so many triples of words that a second place for each, without them, would take long.
    """
    for t in range(features.families[family], features.families[family + 1]):
        places[num] = place_of(mix(state_of(features, t, where), turns), features.num_bits)
        num += 1
    return num


@compiled(
    _int(features_type, _ints, _int, _int, _int, _int, _int, _places, _places),
)
def part_places(  # type: ignore[no-untyped-def]
    features, token_types, root, word, head, sibling, grand, where, places
):
    """Write the places of the features of second order of a word; return how many.

    It has none if its head is ROOT. Its sibling is -1 where there is none; `where` is room.
    """
    if head == 0:
        return 0
    where[D], where[H] = token_types[root + word], token_types[root + head]
    where[SIBLING] = type_of(token_types, root, sibling)
    where[GRAND] = token_types[root + grand]
    span = _span_of(head, sibling, word)
    num = hashed(features, PAIRS, where, span, places, 0)
    num = _turned(features, SIBLINGS, where, np.int64(word > head), places, num)
    return _turned(features, GRANDS, where, _turns_of(grand, head, word), places, num)


@compiled(types.float32(features_type, _places, _int, _floats, _places))
def _score_of_pair(features, where, span, weights, places):  # type: ignore[no-untyped-def]
    """Return the sum of the weights of the features of a dependent and its sibling."""
    total = np.float32(0.0)
    for i in range(hashed(features, PAIRS, where, span, places, 0)):
        total += weights[places[i]]
    return total


@compiled(types.float32(features_type, _int, _places, _int, _floats))
def _score_of_three(features, family, where, turns, weights):  # type: ignore[no-untyped-def]
    """Return the sum of the weights of the features of three words; see `_turned`."""
    total = np.float32(0.0)
    for t in range(features.families[family], features.families[family + 1]):
        total += weights[place_of(mix(state_of(features, t, where), turns), features.num_bits)]
    return total


@compiled(types.void(features_type, _ints, _int, _int, _floats, _floats))
def score_siblings(features, token_types, root, num_words, weights, scores):  # type: ignore[no-untyped-def]
    """Add the scores of all siblings of a sentence to `scores`, as `graph.siblings` has them.

    Takes O(n^3) for n words.
    """
    width = num_words + 1
    where = np.zeros(NUM_ADDRESSES, np.int64)
    places = np.empty(most_part_places(features), np.int64)
    pairs = np.zeros((width, width), np.float32)  # of dependent and sibling
    for word in range(1, width):
        where[D] = token_types[root + word]
        for sibling in range(1, width):
            where[SIBLING] = token_types[root + sibling]
            span = _span_of(0, sibling, word)
            pairs[word, sibling] = _score_of_pair(features, where, span, weights, places)
    for word in range(1, width):
        where[D] = token_types[root + word]
        for head in range(1, width):
            if head == word:
                continue
            where[H] = token_types[root + head]
            row = scores[((word - 1) * width + head) * width :]
            where[SIBLING] = NONE_TYPE
            side = np.int64(word > head)
            row[0] += _score_of_pair(features, where, _span_of(head, 0, word), weights, places)
            row[0] += _score_of_three(features, SIBLINGS, where, side, weights)
            for sibling in range(min(head, word) + 1, max(head, word)):
                where[SIBLING] = token_types[root + sibling]
                total = _score_of_three(features, SIBLINGS, where, side, weights)
                row[sibling] += pairs[word, sibling] + total


@compiled(types.void(features_type, _ints, _int, _ints, _floats, _floats, _floats))
def score_grands(  # type: ignore[no-untyped-def]
    features, token_types, root, heads, weights, above, below
):
    """Add the scores of the grandparents that one change of a tree brings about, in O(n^2).

    Args:
        features: see `Features`.
        token_types: see `features`.
        root: the row of ROOT.
        weights: of the features.
        heads: the tree, of n words.
        above: [n, 1 + n], flat: of each dependent and head, with the head's head in the tree.
        below: [n, 1 + n], flat: of each word and the head that it may get, with the dependents that
            the word has in the tree, the sum over these.
    """
    num_words = heads.shape[0]
    width = num_words + 1
    where = np.zeros(NUM_ADDRESSES, np.int64)
    for word in range(1, width):
        parent = np.int64(heads[word - 1])
        where[D] = token_types[root + word]
        for other in range(width):
            if other == word:
                continue
            # the word under another head, which has its own
            if other > 0:
                grand = np.int64(heads[other - 1])
                where[GRAND], where[H] = token_types[root + grand], token_types[root + other]
                turns = _turns_of(grand, other, word)
                total = _score_of_three(features, GRANDS, where, turns, weights)
                above[(word - 1) * width + other] += total
            # the word under its own, if that one got another
            if parent > 0 and other != parent:
                where[GRAND], where[H] = token_types[root + other], token_types[root + parent]
                turns = _turns_of(other, parent, word)
                total = _score_of_three(features, GRANDS, where, turns, weights)
                below[(parent - 1) * width + other] += total
