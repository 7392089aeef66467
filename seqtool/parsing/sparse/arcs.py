"""Sparse features of arcs and of their labels, and the scores that they sum up to.

These are the parsers of McDonald, Crammer & Pereira 2005. A value of a template (`engine`) is
`address.atom`: "h.form d.tag" is the form of the head with the tag of the dependent. Each template
makes one feature of an arc, and a second one that also has the direction of the arc and its length
(their table 1; what they call a part of speech is here `tag`, and there are more atoms).

    addresses  h, d: head and dependent;  h-1, h+1, d-1, d+1: the words beside them;
               b: each different tag between the two, in turn;
               of a label: dl, dr the outermost children of d; s: the sibling of d between h and
               d that is next to d; g: the head of h
    atoms      form (lower case), lemma, prefix (3 characters), suffix (3), shape,
               tag (UPOS; XPOS where no UPOS is read), fine (XPOS beside UPOS), feats

A feature of labels is a row of weights, see `engine`. Word 0 of a sentence is ROOT.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numba import types

from seqtool.core.arrays import Ints, Longs
from seqtool.core.jit import compiled
from seqtool.parsing.encoding.features import NONE_TYPE
from seqtool.parsing.parser.config import ModelConfig
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.sparse.engine import (
    ATTRIBUTES,
    FACTOR,
    compile_templates,
    mix,
    place_of,
    template_list,
)

WEIGHTS = "features"  # their name among the arrays of a model

# atom -> the group of symbols that it is
ATOMS = {
    **{"form": "lower", "lemma": "lemma", "prefix": "prefix3", "suffix": "suffix3"},
    **{"shape": "shape", "tag": "upos", "fine": "xpos", "feats": "feats"},
}
ADDRESSES = ("h", "d", "h-1", "h+1", "d-1", "d+1", "b", "dl", "dr", "s", "g")
H, D, H_PREV, H_NEXT, D_PREV, D_NEXT, B, D_LEFT, D_RIGHT, SIBLING, GRAND = range(len(ADDRESSES))
NUM_ADDRESSES = len(ADDRESSES)

# of arcs, McDonald et al. 2005: words and tags of both, then the tags around them, then what other
# columns and the parts of forms say
ARC_TEMPLATES = template_list(
    "h.form h.tag, h.form, h.tag, d.form d.tag, d.form, d.tag, h.form h.tag d.form d.tag,"
    "h.tag d.form d.tag, h.form d.form d.tag, h.form h.tag d.tag, h.form h.tag d.form,"
    "h.form d.form, h.tag d.tag, h.tag h+1.tag d-1.tag d.tag, h-1.tag h.tag d-1.tag d.tag,"
    "h.tag h+1.tag d.tag d+1.tag, h-1.tag h.tag d.tag d+1.tag, h.tag h+1.tag d.tag,"
    "h-1.tag h.tag d.tag, h.tag d-1.tag d.tag, h.tag d.tag d+1.tag, h.fine, d.fine, h.fine d.fine,"
    "h.fine d.tag, h.tag d.fine, h.lemma, d.lemma, h.lemma d.lemma, h.lemma d.tag, h.tag d.lemma,"
    "h.fine d-1.fine d.fine, h.fine h+1.fine d.fine, h.tag h.feats, d.tag d.feats,"
    "h.tag h.feats d.tag d.feats, h.tag d.tag d.feats, h.tag h.feats d.tag, h.tag d.suffix,"
    "h.suffix d.tag, h.suffix d.suffix, d.prefix, h.prefix, h.tag d.prefix, d.shape,"
    "h.shape d.shape"
)
# for each different tag between head and dependent
BETWEEN_TEMPLATES = template_list("h.tag b.tag d.tag")
# of the label of an arc, when the tree is known
LABEL_TEMPLATES = template_list(
    "d.form, d.tag, d.lemma, d.fine, d.suffix, d.prefix, d.shape, d.form d.tag, d.tag d.feats,"
    "d.tag d.fine d.feats, h.form, h.tag, h.lemma, h.fine, h.suffix, h.form h.tag, h.tag h.feats,"
    "h.tag d.tag, h.form d.tag, h.tag d.form, h.lemma d.lemma, h.lemma d.tag, h.tag d.lemma,"
    "h.fine d.fine, h.tag d.tag d.feats, h.tag h.feats d.tag d.feats, h.form h.tag d.form d.tag,"
    "h.tag d.suffix, h.suffix d.tag, h.suffix d.suffix, h.tag d-1.tag d.tag, h.tag d.tag d+1.tag,"
    "d-1.tag d.tag d+1.tag, d-1.form d.tag, d.tag d+1.form, h.tag h+1.tag d.tag,"
    "h-1.tag h.tag d.tag, h.tag d.tag dl.tag, h.tag d.tag dl.form, h.lemma d.tag dl.form,"
    "d.form dl.form, h.tag d.tag dr.tag, h.tag d.tag dr.form, dl.tag d.tag dr.tag,"
    "h.tag d.tag s.tag, h.lemma d.tag s.tag, h.tag d.tag s.form, g.tag h.tag d.tag,"
    "g.form h.tag d.tag, g.tag h.form d.tag"
)
ARCS, BETWEEN, LABELS = range(3)
FAMILIES = (ARC_TEMPLATES, BETWEEN_TEMPLATES, LABEL_TEMPLATES)


class Features(NamedTuple):
    """What features are made of, as compiled code reads it.

    Attributes:
        families: int32 [4]: family f has the templates from families[f] to below families[f + 1].
        values: int32 [parts, 2], of one template after another the places in `ADDRESSES`, and the
            columns of `symbols`.
        begins: int32 [templates + 1], where the parts of each begin.
        states: int64 [templates], what the hash of each begins with.
        symbols: int32 [types, columns], those of the types that are known; see `AttributeReader`.
        tag: the column by which the words between are told apart; -1 without one.
        num_bits: of a feature's place among the weights.
    """

    families: Ints
    values: Ints
    begins: Ints
    states: Longs
    symbols: Ints
    tag: int
    num_bits: int


_ints = types.int32[::1]
_table = types.int32[:, ::1]
_places = types.int64[::1]
_floats = types.float32[::1]
_int = types.int64
features_type = types.NamedTuple((_ints, _table, _ints, _places, _table, _int, _int), Features)


def compile_features(read: Mapping[str, str], hash_bits: int) -> Features:
    """Return the features of those templates of which every atom is read; no type is known yet.

    Args:
        read: see `atoms_of`; an atom's column is its place among them.
        hash_bits: 2 to the power of so many features have a weight of their own.
    """
    columns = {atom: column for column, atom in enumerate(read)}

    def number_of(value: str) -> tuple[int, int]:
        address, _, atom = value.partition(".")
        return ADDRESSES.index(address), columns[atom]

    kept = [
        (family, number, text)
        for family, texts in enumerate(FAMILIES)
        for number, text in enumerate(texts)
        if all(value.partition(".")[2] in columns for value in text.split())
    ]
    templates = compile_templates([text for _, _, text in kept], number_of)
    # far from each other, so that no symbol takes the number of a template to that of another
    starts = [family + 1 << 20 | number for family, number, _ in kept]
    return Features(
        np.searchsorted([family for family, _, _ in kept], range(4)).astype(np.int32),
        templates.values[templates.parts],
        np.append(0, templates.ends).astype(np.int32),
        FACTOR * np.asarray(starts, np.int64),
        np.empty((0, len(columns)), np.int32),
        columns.get("tag", -1),
        hash_bits,
    )


def weight_shapes(config: ModelConfig, labels: Labels) -> dict[str, tuple[int, ...]]:
    """Return the shape of the weights: a place for each hashed feature, room for labels behind."""
    return {WEIGHTS: ((1 << config.hash_bits) + len(labels),)}


def atoms_of(fields: Sequence[str]) -> dict[str, str]:
    """Return the atoms that a parser of some fields reads, each with its group of symbols."""
    read = {atom: group for atom, group in ATOMS.items() if ATTRIBUTES[group] in fields}
    if "tag" not in read and "fine" in read:
        read["tag"] = read.pop("fine")
    return read


@compiled(_int(_int, _int))
def distance_of(head, dependent):  # type: ignore[no-untyped-def]
    """Return a number for the direction of an arc and its length: 1, 2, 3, 4, 5, 6 to 10, more."""
    length = abs(dependent - head)
    bucket = min(length, 5) + (length > 5) + (length > 10)
    return 2 * bucket + (dependent > head)


@compiled(_int(features_type, _int, _places, _int, _places, _int))
def _hash(features, family, where, distance, places, num):  # type: ignore[no-untyped-def]
    """Write two places for each template of a family, without distance and with it.

    The types at all addresses are `where`, and `num` places are there before; returns how many
    there are then.
    """
    for template in range(features.families[family], features.families[family + 1]):
        state = features.states[template]
        for part in range(features.begins[template], features.begins[template + 1]):
            type_ = where[features.values[part, 0]]
            state = mix(state, np.int64(features.symbols[type_, features.values[part, 1]]))
        places[num] = place_of(state, features.num_bits)
        places[num + 1] = place_of(mix(state, distance), features.num_bits)
        num += 2
    return num


@compiled(types.void(_ints, _int, _int, _places))
def _stand(words, head, dependent, where):  # type: ignore[no-untyped-def]
    """Note the types of head, dependent and the words beside them."""
    last = words.shape[0] - 1
    where[H] = words[head]
    where[D] = words[dependent]
    where[H_PREV] = words[head - 1] if head > 0 else NONE_TYPE
    where[H_NEXT] = words[head + 1] if head < last else NONE_TYPE
    # no test: a dependent is a word, so that ROOT at least stands before it
    where[D_PREV] = words[dependent - 1]
    where[D_NEXT] = words[dependent + 1] if dependent < last else NONE_TYPE


@compiled(_int(features_type, _ints, _int, _int))
def _add_tag(features, between, num, type_):  # type: ignore[no-untyped-def]
    """Add a type to `num` of different tags, unless its tag is there; return how many there are."""
    if features.tag < 0:
        return 0
    for i in range(num):
        if features.symbols[between[i], features.tag] == features.symbols[type_, features.tag]:
            return num
    between[num] = type_
    return num + 1


@compiled(_int(features_type, _ints, _int, _int, _ints))
def tags_between(features, words, head, dependent, between):  # type: ignore[no-untyped-def]
    """Gather types of the different tags between two words, from the head on; return how many."""
    num = 0
    step = 1 if dependent > head else -1
    for word in range(head + step, dependent, step):
        num = _add_tag(features, between, num, words[word])
    return num


@compiled(_int(features_type, _ints, _int, _int, _ints, _int, _places, _places))
def arc_places(  # type: ignore[no-untyped-def]
    features, words, head, dependent, between, num_between, where, places
):
    """Write the places of the features of an arc; return how many.

    Args:
        features: see `Features`.
        words: the types of a sentence's tokens, ROOT first.
        head: its place there.
        dependent: likewise.
        between: what `tags_between` wrote,
        num_between: and returned.
        where: room for the type at each address.
        places: is written; `most_places` tells how many there may be.
    """
    _stand(words, head, dependent, where)
    distance = distance_of(head, dependent)
    num = _hash(features, ARCS, where, distance, places, 0)
    for i in range(num_between):
        where[B] = between[i]
        num = _hash(features, BETWEEN, where, distance, places, num)
    return num


@compiled(_int(features_type, _ints))
def most_places(features, words):  # type: ignore[no-untyped-def]
    """Return how many places the features of an arc of a sentence have at most."""
    # at most all tags of the sentence stand between two of its words
    num_tags = tags_between(features, words, 0, words.shape[0], np.empty_like(words))
    num_arcs, num_both = features.families[BETWEEN], features.families[LABELS]
    return 2 * (num_arcs + (num_both - num_arcs) * num_tags)


@compiled(types.void(features_type, _ints, _ints, _ints, _floats, _floats))
def score_arcs(  # type: ignore[no-untyped-def]
    features, token_types, tokens, lengths, weights, scores
):
    """Add the scores of all arcs of sentences to `scores`, those of one after those of another.

    Their ROOTs are in the rows `tokens`; they have so many words as `lengths` say.
    """
    where = np.zeros(NUM_ADDRESSES, np.int64)
    begin = np.int64(0)
    for sentence in range(tokens.shape[0]):
        root, width = np.int64(tokens[sentence]), np.int64(lengths[sentence]) + 1
        words = token_types[root : root + width]
        between = np.empty_like(words)
        places = np.empty(most_places(features, words), np.int64)
        for head in range(width):
            for step in (-1, 1):
                num_between = 0
                # outwards, so that what stands between grows by one word at a time
                word = head + step
                while 0 < word < width:
                    num = arc_places(
                        features, words, head, word, between, num_between, where, places
                    )
                    total = np.float32(0.0)
                    for i in range(num):
                        total += weights[places[i]]
                    scores[begin + (word - 1) * width + head] += total
                    num_between = _add_tag(features, between, num_between, words[word])
                    word += step
        begin += (width - 1) * width


@compiled(_table(_ints))
def outer_children(heads):  # type: ignore[no-untyped-def]
    """Return the outermost children of each word, and each word's next inner sibling.

    Of the words 1..N with these heads, int32 [3, 1 + N]: the outermost child on the left and that
    on the right, and the next child of the same head on the same side, towards the head; -1 where
    there is none.
    """
    num_words = heads.shape[0]
    around = np.full((3, num_words + 1), -1, np.int32)
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
    return around


@compiled(_int(_ints, _int))
def _type_of(words, word):  # type: ignore[no-untyped-def]
    """Return the type of a word, that of no word for -1."""
    return words[word] if word >= 0 else NONE_TYPE


@compiled(_int(features_type, _ints, _int, _int, _ints, _table, _places, _places))
def label_places(  # type: ignore[no-untyped-def]
    features, words, head, word, tree, around, where, places
):
    """Write the places of the features of the label of an arc to a word; return how many.

    The tree that it is in, or would be, is given by the heads `tree` and by `around`, which
    `outer_children` returned; for the others see `arc_places`.
    """
    _stand(words, head, word, where)
    where[D_LEFT] = _type_of(words, around[0, word])
    where[D_RIGHT] = _type_of(words, around[1, word])
    # siblings are known under the head that the word has in the tree, and under no other
    where[SIBLING] = _type_of(words, around[2, word] if head == tree[word - 1] else -1)
    where[GRAND] = _type_of(words, tree[head - 1] if head else -1)
    # the direction alone: how far the head is says little of the label
    direction = distance_of(0, 1) if word > head else distance_of(1, 0)
    return _hash(features, LABELS, where, direction, places, 0)


@compiled(types.void(_places, _int, _floats, _int, _int, _floats))
def add_rows(places, num, weights, first, last, scores):  # type: ignore[no-untyped-def]
    """Add the scores of the labels from `first` to before `last` of a word to `scores`."""
    for i in range(num):
        row = weights[places[i] : places[i] + last]
        for label in range(first, last):
            scores[label] += row[label]


@compiled(
    types.void(
        *(features_type, _ints, _ints, _ints, _ints, _ints, _int, _floats, types.float32[:, ::1])
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
    where = np.zeros(NUM_ADDRESSES, np.int64)
    places = np.empty(2 * features.states.shape[0], np.int64)
    begin = np.int64(0)
    for sentence in range(lengths.shape[0]):
        num_words, root = np.int64(lengths[sentence]), np.int64(tokens[sentence])
        words = token_types[root : root + num_words + 1]
        own = tree[begin : begin + num_words]
        around = outer_children(own)
        for word in range(1, num_words + 1):
            row = begin + word - 1
            head = np.int64(heads[row])
            num = label_places(features, words, head, word, own, around, where, places)
            first = 0 if head else num_arc_labels
            last = num_arc_labels if head else scores.shape[1]
            add_rows(places, num, weights, first, last, scores[row])
        begin += num_words
