"""Features of arcs: by hand, and one place for each that has a name."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from parsing.parser.linear.arcs import named
from parsing.parser.tiny import LABELS, make_sentence

from seqtool.core.arrays import Longs
from seqtool.core.config import from_dict
from seqtool.parsing.encoding.features import SymbolTable, TokenArrays, Types, columns_of, encode
from seqtool.parsing.parser.config import ModelConfig
from seqtool.parsing.parser.linear.arcs.features import (
    NUM_ADDRESSES,
    arc_places,
    distance_of,
    label_places,
    most_places,
    outer_children,
    stand,
    tags_between,
)
from seqtool.parsing.parser.linear.arcs.scorer import ArcScorer
from seqtool.parsing.parser.linear.arcs.templates import (
    FAMILIES,
    Features,
    atoms_of,
    compile_templates,
    parse_template,
)

FIELDS = ["form", "suffix", "upos"]
WORDS = [("The", "D"), ("big", "A"), ("dog", "N"), ("never", "R"), ("sleeps", "V")]


def types_of(rows: list[list[str]]) -> Types:
    columns = columns_of(FIELDS)
    counts = {tuple(row[column] for column in columns): 2 for row in rows}
    kinds = (["form", "suffix"], ["upos"])
    return Types(*(SymbolTable.build(counts.items(), kind, 1, columns) for kind in kinds))


def scorer_of(words: list[tuple[str, str]], **model: Any) -> tuple[ArcScorer, TokenArrays]:
    sentence = make_sentence(words)
    types = types_of(sentence.rows)
    arrays = encode([sentence], types)
    config = from_dict(ModelConfig, {"fields": FIELDS, "hash_bits": 26, **model})
    scorer = ArcScorer(config, LABELS)
    scorer.extend(types)
    return scorer, arrays


def places_of_arc(
    features: Features, arrays: TokenArrays, head: int, word: int, root: int = 1
) -> Longs:
    num_words = int(arrays.lengths[0])
    where, between = np.zeros(NUM_ADDRESSES, np.int64), np.empty(num_words, np.int32)
    most = most_places(features, arrays.types, root, num_words)
    places = np.empty(most, np.int64)
    stand(arrays.types, root, num_words, head, word, where)
    num_between = tags_between(features, arrays.types, root, head, word, between)
    distance = distance_of(head, word)
    num = arc_places(features, where, between, num_between, distance, places)
    return places[:num]


def places_of_label(features: Features, arrays: TokenArrays, heads: list[int], word: int) -> Longs:
    num_words, tree = len(heads), np.asarray(heads, np.int32)
    around, where = np.empty((3, num_words + 1), np.int32), np.zeros(NUM_ADDRESSES, np.int64)
    outer_children(tree, num_words, around)
    places = np.empty(4 * len(features.states), np.int64)
    head = heads[word - 1]
    num = label_places(
        features, arrays.types, 1, num_words, head, tree, around, word, where, places
    )
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
    scorer, arrays = scorer_of(WORDS)
    assert len(places_of_arc(scorer.features, arrays, 3, 1)) == len(found)
    # "dog" in "The <- dog <- sleeps", which "never" depends on too
    heads = [3, 3, 5, 5, 0]
    of_label = named.label(words, heads, 3)
    assert ("h.tag d.tag s.tag", "V", "N", "R", "left") in of_label
    assert ("h.tag d.tag dl.form", "V", "N", "the") in of_label
    assert ("g.tag h.tag d.tag", "ROOT", "V", "N") in of_label
    assert len(places_of_label(scorer.features, arrays, heads, 3)) == len(of_label)


def test_a_feature_is_a_place() -> None:
    chooser = random.Random(0)
    words = [(chooser.choice(["a", "bcd", "Efgh", "x"]), chooser.choice("XYZ")) for _ in range(18)]
    scorer, arrays = scorer_of(words)
    rows = named.words_of(*zip(*words, strict=True))
    heads = [chooser.choice([h for h in range(19) if h != word]) for word in range(1, 19)]
    places: dict[named.Feature, int] = {}
    for word in range(1, 19):
        found = [
            (named.arc(rows, head, word), places_of_arc(scorer.features, arrays, head, word))
            for head in range(19)
            if head != word
        ]
        of_label = [("label", *name) for name in named.label(rows, heads, word)]
        found.append((of_label, places_of_label(scorer.features, arrays, heads, word)))
        for names, numbers in found:
            for name, number in zip(names, numbers.tolist(), strict=True):
                assert places.setdefault(name, number) == number
    # none of these few shares a place with another
    assert len(places) > 4000
    assert len(set(places.values())) == len(places)


def test_a_score_is_the_sum_of_weights() -> None:
    scorer, arrays = scorer_of(WORDS, hash_bits=12)
    weights = np.random.default_rng(0).normal(size=(1 << 12) + len(LABELS)).astype(np.float32)
    scores = np.zeros(5 * 6, np.float32)
    scorer.add_arc_scores(weights, arrays, scores)
    table = scores.reshape(5, 6)
    for head in range(6):
        for word in set(range(1, 6)) - {head}:
            places = places_of_arc(scorer.features, arrays, head, word)
            assert table[word - 1, head] == pytest.approx(weights[places].sum(), abs=1e-4)
    assert not table[np.arange(5), np.arange(1, 6)].any()
    heads = [3, 3, 5, 5, 0]
    tree, scores_WL = np.asarray(heads, np.int32), np.zeros((5, len(LABELS)), np.float32)
    scorer.add_label_scores(weights, arrays, tree, tree, scores_WL)
    for word, head in enumerate(heads, 1):
        places = places_of_label(scorer.features, arrays, heads, word)
        for number in range(len(LABELS)):
            is_fit = (number >= len(LABELS.arcs)) == (head == 0)
            expected = weights[places + number].sum() if is_fit else 0.0
            assert scores_WL[word - 1, number] == pytest.approx(expected, abs=1e-4)


def test_atoms_are_by_the_fields() -> None:
    assert atoms_of(["form", "xpos"]) == {"form": "lower", "tag": "xpos"}
    assert atoms_of(["upos", "xpos"]) == {"tag": "upos", "fine": "xpos"}
    # without tags, nothing tells the words between apart
    features = compile_templates(atoms_of(["form"]), 20)
    assert features.tag == -1
    assert features.families[1] == features.families[2]


def test_templates_can_be_read() -> None:
    assert all(parse_template(text) for family in FAMILIES for text in family)
    assert all(len({*family}) == len(family) for family in FAMILIES)
    with pytest.raises(ValueError, match=r"'h.form e.tag' names 'e.tag'"):
        parse_template("h.form e.tag")
