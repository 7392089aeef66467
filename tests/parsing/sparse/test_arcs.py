"""Features of arcs: by hand, and one place for each that has a name."""

from __future__ import annotations

import random

import numpy as np
import pytest
from parsing.parser.tiny import LABELS, make_sentence
from parsing.sparse import named

from seqtool.core.arrays import Longs
from seqtool.core.config import from_dict
from seqtool.parsing.encoding.features import SymbolTable, TokenArrays, Types, columns_of, encode
from seqtool.parsing.parser.config import ModelConfig
from seqtool.parsing.sparse.arc_decoder import LinearGraphDecoder
from seqtool.parsing.sparse.arcs import (
    FAMILIES,
    NUM_ADDRESSES,
    WEIGHTS,
    Features,
    arc_places,
    atoms_of,
    compile_features,
    label_places,
    most_places,
    outer_children,
    tags_between,
)

FIELDS = ["form", "suffix", "upos"]
WORDS = [("The", "D"), ("big", "A"), ("dog", "N"), ("never", "R"), ("sleeps", "V")]


def types_of(rows: list[list[str]]) -> Types:
    columns = columns_of(FIELDS)
    counts = {tuple(row[column] for column in columns): 2 for row in rows}
    kinds = (["form", "suffix"], ["upos"])
    return Types(*(SymbolTable.build(counts.items(), kind, 1, columns) for kind in kinds))


def decoder_of(
    words: list[tuple[str, str]], hash_bits: int = 26
) -> tuple[LinearGraphDecoder, TokenArrays]:
    """A decoder of random weights, and a sentence that it knows."""
    sentence = make_sentence(words)
    types = types_of(sentence.rows)
    config = from_dict(ModelConfig, {"fields": FIELDS, "hash_bits": hash_bits})
    weights = np.random.default_rng(0).normal(size=(1 << 12) + len(LABELS)).astype(np.float32)
    decoder = LinearGraphDecoder(config, LABELS, {WEIGHTS: weights})
    arrays = encode([sentence], types)
    decoder.prepare(types)
    return decoder, arrays


def places_of_arc(features: Features, arrays: TokenArrays, head: int, word: int) -> Longs:
    words, where = arrays.types[1:], np.zeros(NUM_ADDRESSES, np.int64)
    places, between = np.empty(most_places(features, words), np.int64), np.empty_like(words)
    num_between = tags_between(features, words, head, word, between)
    num = arc_places(features, words, head, word, between, num_between, where, places)
    return places[:num]


def places_of_label(features: Features, arrays: TokenArrays, heads: list[int], word: int) -> Longs:
    tree, where = np.asarray(heads, np.int32), np.zeros(NUM_ADDRESSES, np.int64)
    places = np.empty(4 * len(features.states), np.int64)
    arc = heads[word - 1], word, tree, outer_children(tree)
    num = label_places(features, arrays.types[1:], *arc, where, places)
    return places[:num]


def test_features_of_a_sentence_by_hand() -> None:
    words = named.words_of(*zip(*WORDS, strict=True))
    # "The" on "dog": leftwards, two words away, with an adjective between
    found = named.arc(words, 3, 1)
    assert ("h.form d.form", "dog", "the", "left 2") in found
    assert ("h.tag b.tag d.tag", "N", "A", "D") in found
    assert ("h.tag h+1.tag d-1.tag d.tag", "N", "R", "ROOT", "D", "left 2") in found
    assert ("h-1.tag h.tag d.tag d+1.tag", "A", "N", "D", "A") in found
    # and each has a place: two for a template
    decoder, arrays = decoder_of(WORDS)
    assert len(places_of_arc(decoder.features, arrays, 3, 1)) == len(found)
    # "dog" in "The <- dog <- sleeps", which "never" depends on too
    heads = [3, 3, 5, 5, 0]
    of_label = named.label(words, heads, 3)
    assert ("h.tag d.tag s.tag", "V", "N", "R", "left") in of_label
    assert ("h.tag d.tag dl.form", "V", "N", "the") in of_label
    assert ("g.tag h.tag d.tag", "ROOT", "V", "N") in of_label
    assert len(places_of_label(decoder.features, arrays, heads, 3)) == len(of_label)


def test_a_feature_is_a_place() -> None:
    chooser = random.Random(0)
    words = [(chooser.choice(["a", "bcd", "Efgh", "x"]), chooser.choice("XYZ")) for _ in range(18)]
    decoder, arrays = decoder_of(words)
    rows = named.words_of(*zip(*words, strict=True))
    heads = [chooser.choice([h for h in range(19) if h != word]) for word in range(1, 19)]
    places: dict[named.Feature, int] = {}
    for word in range(1, 19):
        found = [
            (named.arc(rows, head, word), places_of_arc(decoder.features, arrays, head, word))
            for head in range(19)
            if head != word
        ]
        of_label = [("label", *name) for name in named.label(rows, heads, word)]
        found.append((of_label, places_of_label(decoder.features, arrays, heads, word)))
        for names, numbers in found:
            for name, number in zip(names, numbers.tolist(), strict=True):
                assert places.setdefault(name, number) == number
    # none of these few shares a place with another
    assert len(places) > 4000
    assert len(set(places.values())) == len(places)


def test_a_score_is_the_sum_of_weights() -> None:
    decoder, arrays = decoder_of(WORDS, hash_bits=12)
    weights = decoder._weights
    table = decoder.arc_scores(arrays).reshape(5, 6)
    for head in range(6):
        for word in set(range(1, 6)) - {head}:
            places = places_of_arc(decoder.features, arrays, head, word)
            assert table[word - 1, head] == pytest.approx(weights[places].sum(), abs=1e-4)
    assert not table[np.arange(5), np.arange(1, 6)].any()
    heads = [3, 3, 5, 5, 0]
    tree = np.asarray(heads, np.int32)
    scores_WL = decoder.label_scores(arrays, tree, tree)
    for word, head in enumerate(heads, 1):
        places = places_of_label(decoder.features, arrays, heads, word)
        for number in range(len(LABELS)):
            is_fit = (number >= len(LABELS.arcs)) == (head == 0)
            expected = weights[places + number].sum() if is_fit else 0.0
            assert scores_WL[word - 1, number] == pytest.approx(expected, abs=1e-4)


def test_atoms_are_by_the_fields() -> None:
    assert atoms_of(["form", "xpos"]) == {"form": "lower", "tag": "xpos"}
    assert atoms_of(["upos", "xpos"]) == {"tag": "upos", "fine": "xpos"}
    # without tags, nothing tells the words between apart
    features = compile_features(atoms_of(["form"]), 20)
    assert features.tag == -1
    assert features.families[1] == features.families[2]
    assert all(len({*family}) == len(family) for family in FAMILIES)
