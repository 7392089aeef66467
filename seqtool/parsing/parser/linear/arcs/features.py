"""The features of arcs, hashed, and the scores that they sum up to; compiled.

A feature is a place in one array of weights, see `encoding.sparse`. A feature of labels is a row of
weights that begins at such a place, one for each label; behind the last place there is room for one
row.

Sentences are given as in `encoding.features.TokenArrays`: the types of all tokens, and the row of
ROOT, which is word 0 of the sentence.
"""

from __future__ import annotations

import numpy as np
from numba import types

from seqtool.core.jit import compiled
from seqtool.parsing.encoding.features import NONE_TYPE
from seqtool.parsing.encoding.sparse import mix, place_of
from seqtool.parsing.parser.linear.arcs.templates import (
    ADDRESSES,
    ARCS,
    BETWEEN,
    D_LEFT,
    D_NEXT,
    D_PREV,
    D_RIGHT,
    GRAND,
    H_NEXT,
    H_PREV,
    LABELS,
    SIBLING,
    B,
    D,
    H,
    features_type,
)

NUM_ADDRESSES = len(ADDRESSES)

_ints = types.int32[::1]
_table = types.int32[:, ::1]
_places = types.int64[::1]
_floats = types.float32[::1]
_int = types.int64


@compiled(_int(_int, _int))
def distance_of(head, dependent):  # type: ignore[no-untyped-def]
    """Return a number for the direction of an arc and its length: 1, 2, 3, 4, 5, 6 to 10, more."""
    length = abs(dependent - head)
    bucket = min(length, 5) + (length > 5) + (length > 10)
    return 2 * bucket + (dependent > head)


@compiled(_int(features_type, _int, _places, _int, _places, _int))
def hashed(features, family, where, distance, places, num):  # type: ignore[no-untyped-def]
    """Write two places for each template of a family, without distance and with it.

    Args:
        features: see `Features`.
        family: one of ARCS, BETWEEN, LABELS.
        where: the type at each address.
        distance: see `distance_of`.
        places: where to write.
        num: how many there are before.

    Returns:
        How many there are then.
    """
    for t in range(features.families[family], features.families[family + 1]):
        state = features.states[t]
        for part in range(features.begins[t], features.begins[t + 1]):
            type_ = where[features.addresses[part]]
            state = mix(state, np.int64(features.values[type_, features.columns[part]]))
        places[num] = place_of(state, features.num_bits)
        places[num + 1] = place_of(mix(state, distance), features.num_bits)
        num += 2
    return num


@compiled(types.void(_ints, _int, _int, _int, _int, _places))
def stand(token_types, root, num_words, head, dependent, where):  # type: ignore[no-untyped-def]
    """Note the types of head, dependent and the words beside them."""
    where[H] = token_types[root + head]
    where[D] = token_types[root + dependent]
    where[H_PREV] = token_types[root + head - 1] if head > 0 else NONE_TYPE
    where[H_NEXT] = token_types[root + head + 1] if head < num_words else NONE_TYPE
    # no test: a dependent is a word, so that ROOT at least stands before it
    where[D_PREV] = token_types[root + dependent - 1]
    where[D_NEXT] = token_types[root + dependent + 1] if dependent < num_words else NONE_TYPE


@compiled(_int(features_type, _ints, _int, _int))
def add_tag(features, between, num, type_):  # type: ignore[no-untyped-def]
    """Add a type to `num` of different tags, unless its tag is there; return how many there are."""
    if features.tag < 0:
        return 0
    for i in range(num):
        if features.values[between[i], features.tag] == features.values[type_, features.tag]:
            return num
    between[num] = type_
    return num + 1


@compiled(_int(features_type, _ints, _int, _int, _int, _ints))
def tags_between(  # type: ignore[no-untyped-def]
    features, token_types, root, head, dependent, between
):
    """Gather types of the different tags between two words, from the head on; return how many."""
    num = 0
    step = 1 if dependent > head else -1
    for word in range(head + step, dependent, step):
        num = add_tag(features, between, num, token_types[root + word])
    return num


@compiled(_int(features_type, _places, _ints, _int, _int, _places))
def arc_places(features, where, between, num_between, distance, places):  # type: ignore[no-untyped-def]
    """Write the places of the features of an arc; return how many."""
    num = hashed(features, ARCS, where, distance, places, 0)
    for i in range(num_between):
        where[B] = between[i]
        num = hashed(features, BETWEEN, where, distance, places, num)
    return num


@compiled(_int(features_type, _ints, _int, _int))
def most_places(features, token_types, root, num_words):  # type: ignore[no-untyped-def]
    """Return how many places the features of an arc of a sentence have at most."""
    # at most all tags of the sentence stand between two of its words
    between = np.empty(num_words, np.int32)
    num_tags = 0
    for word in range(1, num_words + 1):
        num_tags = add_tag(features, between, num_tags, token_types[root + word])
    num_arcs, num_between = features.families[ARCS + 1], features.families[BETWEEN + 1]
    return 2 * (num_arcs + (num_between - num_arcs) * num_tags)


@compiled(types.void(features_type, _ints, _int, _int, _floats, _floats))
def score_arcs(features, token_types, root, num_words, weights, scores):  # type: ignore[no-untyped-def]
    """Add the scores of all arcs of a sentence to `scores`, [dependent, head], flat."""
    where = np.zeros(NUM_ADDRESSES, np.int64)
    between = np.empty(num_words, np.int32)
    places = np.empty(most_places(features, token_types, root, num_words), np.int64)
    width = num_words + 1
    for head in range(width):
        for step in (-1, 1):
            num_between = 0
            # outwards, so that what stands between grows by one word at a time
            word = head + step
            while 0 < word <= num_words:
                stand(token_types, root, num_words, head, word, where)
                distance = distance_of(head, word)
                num = arc_places(features, where, between, num_between, distance, places)
                total = np.float32(0.0)
                for i in range(num):
                    total += weights[places[i]]
                scores[(word - 1) * width + head] += total
                num_between = add_tag(features, between, num_between, token_types[root + word])
                word += step


@compiled(types.void(features_type, _ints, _ints, _ints, _floats, _floats))
def score_sentences(  # type: ignore[no-untyped-def]
    features, token_types, tokens, lengths, weights, scores
):
    """Add the scores of all arcs of sentences to `scores`, those of one after those of another.

    Their ROOTs are in the rows `tokens`; they have so many words as `lengths` say.
    """
    begin = np.int64(0)
    for sentence in range(tokens.shape[0]):
        num_words = np.int64(lengths[sentence])
        end = begin + num_words * (num_words + 1)
        root = np.int64(tokens[sentence])
        score_arcs(features, token_types, root, num_words, weights, scores[begin:end])
        begin = end


@compiled(types.void(_ints, _int, _table))
def outer_children(heads, num_words, around):  # type: ignore[no-untyped-def]
    """Note the outermost child on either side of each word, and each word's next inner sibling.

    Args:
        heads: of words 1..num_words, from 0 on.
        num_words: how many.
        around: [3, 1 + num_words or more], written: the outermost child on the left and that on the
            right, and the next child of the same head on the same side, towards the head; -1 where
            there is none.
    """
    around[:, : num_words + 1] = -1
    # from the head outwards: the child noted last is the inner sibling of the next one
    for word in range(1, num_words + 1):
        head = heads[word - 1]
        if word > head:
            around[2, word] = around[1, head]
            around[1, head] = word
    for word in range(num_words, 0, -1):
        head = heads[word - 1]
        if word < head:
            around[2, word] = around[0, head]
            around[0, head] = word


@compiled(_int(_ints, _int, _int))
def type_of(token_types, root, word):  # type: ignore[no-untyped-def]
    """Return the type of a word, that of no word for -1."""
    return token_types[root + word] if word >= 0 else NONE_TYPE


@compiled(_int(features_type, _ints, _int, _int, _int, _ints, _table, _int, _places, _places))
def label_places(  # type: ignore[no-untyped-def]
    features, token_types, root, num_words, head, tree, around, word, where, places
):
    """Write the places of the features of the label of an arc to a word; return how many.

    The tree that it is in, or would be, is told by the heads `tree` and by `around`, which
    `outer_children` wrote; `where` is room.
    """
    stand(token_types, root, num_words, head, word, where)
    where[D_LEFT] = type_of(token_types, root, around[0, word])
    where[D_RIGHT] = type_of(token_types, root, around[1, word])
    # siblings are known under the head that the word has in the tree, and under no other
    where[SIBLING] = type_of(token_types, root, around[2, word] if head == tree[word - 1] else -1)
    where[GRAND] = type_of(token_types, root, tree[head - 1] if head else -1)
    # the direction alone: how far the head is says little of the label
    direction = distance_of(0, 1) if word > head else distance_of(1, 0)
    return hashed(features, LABELS, where, direction, places, 0)


@compiled(types.void(_places, _int, _floats, _int, _int, _floats))
def add_rows(places, num, weights, first, last, scores):  # type: ignore[no-untyped-def]
    """Add the scores of the labels from `first` to before `last` of a word to `scores`."""
    for i in range(num):
        row = weights[places[i] : places[i] + last]
        for label in range(first, last):
            scores[label] += row[label]


@compiled(
    types.void(
        features_type,
        _ints,
        _ints,
        _ints,
        _ints,
        _ints,
        _int,
        _floats,
        types.float32[:, ::1],
    )
)
def score_labels(  # type: ignore[no-untyped-def]
    features, token_types, tokens, lengths, heads, tree, num_arc_labels, weights, scores
):
    """Add the scores of the labels of arcs, one to each word, to `scores`, [words, labels].

    The arcs come from `heads`; for `tree` see `label_places`: both are of all words, those of one
    sentence after those of another. Only the labels that an arc may have are scored: from words,
    the first `num_arc_labels`, from ROOT, the others.
    """
    longest = np.int64(0)
    for sentence in range(lengths.shape[0]):
        longest = max(longest, np.int64(lengths[sentence]))
    around = np.empty((3, longest + 1), np.int32)
    where = np.zeros(NUM_ADDRESSES, np.int64)
    num_templates = features.families[LABELS + 1] - features.families[LABELS]
    places = np.empty(2 * num_templates, np.int64)
    begin = np.int64(0)
    for sentence in range(lengths.shape[0]):
        num_words, root = np.int64(lengths[sentence]), np.int64(tokens[sentence])
        own = tree[begin : begin + num_words]
        outer_children(own, num_words, around)
        for word in range(1, num_words + 1):
            row = begin + word - 1
            head = np.int64(heads[row])
            num = label_places(
                features, token_types, root, num_words, head, own, around, word, where, places
            )
            first = 0 if head else num_arc_labels
            last = num_arc_labels if head else scores.shape[1]
            add_rows(places, num, weights, first, last, scores[row])
        begin += num_words
