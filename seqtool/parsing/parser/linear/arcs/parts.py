"""Parts of a tree of second order: siblings and grandparents; their features and scores; compiled.

Of the arc from h to d, the sibling s is the next dependent of h between h and d, if there is one,
and the grandparent g is the head of h. Arcs from ROOT have neither: there is one, and ROOT has no
head. The score of a tree is the sum of those of its arcs, and of (h, s, d) and (g, h, d) for each
arc from a word. Sentences are given as in `features`.
"""

from __future__ import annotations

import numpy as np
from numba import types

from seqtool.core.jit import compiled
from seqtool.parsing.encoding.features import NONE_TYPE
from seqtool.parsing.encoding.sparse import mix, place_of
from seqtool.parsing.parser.linear.arcs.features import (
    NUM_ADDRESSES,
    distance_of,
    hashed,
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

_ints = types.int32[::1]
_places = types.int64[::1]
_table = types.int64[:, ::1]
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


# There are so many triples of words that their features are hashed in another way: each word in its
# role has a code for each template, once for a sentence, and the place of a feature is that of the
# sum of three codes.


@compiled(types.void(features_type, _int, _int, _int, _places))
def _write_codes(features, family, role, type_, codes):  # type: ignore[no-untyped-def]
    """Write the codes of a word for all templates of a family; its role is an address."""
    begin = features.families[family]
    for t in range(begin, features.families[family + 1]):
        state = features.states[t]
        for part in range(features.begins[t], features.begins[t + 1]):
            if features.addresses[part] == role:
                state = mix(state, np.int64(features.values[type_, features.columns[part]]))
        # a sum is the same in any order: without the role, two words could change places unnoticed
        codes[t - begin] = mix(state, role)


@compiled(_table(features_type, _ints, _int, _int, _int, _int))
def _codes_of(features, token_types, root, num_words, family, role):  # type: ignore[no-untyped-def]
    """Return the codes of ROOT and all words of a sentence, and behind them those of no word."""
    num = features.families[family + 1] - features.families[family]
    codes = np.empty((num_words + 2, num), np.int64)
    for word in range(num_words + 1):
        _write_codes(features, family, role, token_types[root + word], codes[word])
    _write_codes(features, family, role, NONE_TYPE, codes[num_words + 1])
    return codes


@compiled(types.float32(_places, _places, _int, _floats))
def _sum_at(codes, others, num_bits, weights):  # type: ignore[no-untyped-def]
    """Return the sum of the weights of all templates; `others` are sums of codes, too."""
    total = np.float32(0.0)
    for t in range(codes.shape[0]):
        total += weights[place_of(codes[t] + others[t], num_bits)]
    return total


@compiled(_int(features_type, _int, _places, _int, _places, _int))
def _triple_places(features, family, where, turns, places, num):  # type: ignore[no-untyped-def]
    """Write the place of each template of a family of three words; return how many there are."""
    first = SIBLING if family == SIBLINGS else GRAND
    begin = features.families[family]
    size = features.families[family + 1] - begin
    codes = np.empty(size, np.int64)
    sums = np.full(size, turns, np.int64)
    for role in (first, H, D):
        _write_codes(features, family, role, where[role], codes)
        sums += codes
    for t in range(size):
        places[num + t] = place_of(sums[t], features.num_bits)
    return num + size


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
    num = _triple_places(features, SIBLINGS, where, np.int64(word > head), places, num)
    return _triple_places(features, GRANDS, where, _turns_of(grand, head, word), places, num)


@compiled(types.float32(features_type, _places, _int, _floats, _places))
def _score_of_pair(features, where, span, weights, places):  # type: ignore[no-untyped-def]
    """Return the sum of the weights of the features of a dependent and its sibling."""
    total = np.float32(0.0)
    for i in range(hashed(features, PAIRS, where, span, places, 0)):
        total += weights[places[i]]
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
            # with a sibling the head does not count, so that a pair is scored once for all heads
            span = _span_of(0, sibling, word)
            pairs[word, sibling] = _score_of_pair(features, where, span, weights, places)
    sentence = features, token_types, root, num_words, SIBLINGS
    of_heads, of_words = _codes_of(*sentence, H), _codes_of(*sentence, D)
    of_siblings = _codes_of(*sentence, SIBLING)
    both = np.empty(of_heads.shape[1], np.int64)
    bits = features.num_bits
    for word in range(1, width):
        where[D] = token_types[root + word]
        where[SIBLING] = NONE_TYPE
        for head in range(1, width):
            if head == word:
                continue
            row = scores[((word - 1) * width + head) * width :]
            for t in range(both.shape[0]):
                # what all siblings share is added up outside of the innermost loop
                both[t] = of_heads[head, t] + of_words[word, t] + (word > head)
            row[0] += _score_of_pair(features, where, _span_of(head, 0, word), weights, places)
            row[0] += _sum_at(of_siblings[width], both, bits, weights)
            for sibling in range(min(head, word) + 1, max(head, word)):
                total = _sum_at(of_siblings[sibling], both, bits, weights)
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
    num_words = np.int64(heads.shape[0])
    width = num_words + 1
    sentence = features, token_types, root, num_words, GRANDS
    of_heads, of_words = _codes_of(*sentence, H), _codes_of(*sentence, D)
    of_grands = _codes_of(*sentence, GRAND)
    both = np.empty(of_heads.shape[1], np.int64)
    bits = features.num_bits
    # words under other heads, which have their own
    for head in range(1, width):
        grand = np.int64(heads[head - 1])
        for word in range(1, width):
            if word == head:
                continue
            turns = _turns_of(grand, head, word)
            for t in range(both.shape[0]):
                both[t] = of_heads[head, t] + of_grands[grand, t] + turns
            total = _sum_at(of_words[word], both, bits, weights)
            above[(word - 1) * width + head] += total
    # words under their own head, if that one got another
    for word in range(1, width):
        own = np.int64(heads[word - 1])
        if own == 0:
            continue
        for other in range(width):
            # `other` may be the head that `own` has: what it gives is what another one would lose
            if other in (word, own):
                continue
            turns = _turns_of(other, own, word)
            for t in range(both.shape[0]):
                both[t] = of_heads[own, t] + of_words[word, t] + turns
            total = _sum_at(of_grands[other], both, bits, weights)
            below[(own - 1) * width + other] += total
