"""Features of arcs by hand, one place for each that has a name, and MIRA against dictionaries."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsing.parser.references import int32
from parsing.parser.tiny import LABELS, make_sentence, write_treebank
from parsing.sparse import named

from seqtool.core.arrays import Longs
from seqtool.core.config import from_dict
from seqtool.parsing.encoding.features import SymbolTable, TokenArrays, Types, columns_of, encode
from seqtool.parsing.parser.config import ModelConfig, ParserConfig, preset
from seqtool.parsing.parser.data import prepare_data
from seqtool.parsing.parser.graph.trees import projective_trees
from seqtool.parsing.sparse.arc_decoder import LinearGraphDecoder
from seqtool.parsing.sparse.arcs import (
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
from seqtool.parsing.sparse.engine import Averaged
from seqtool.parsing.sparse.mira import take_step
from seqtool.parsing.sparse.task import MiraTask
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.sentence import FORM, UPOS

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
    assert compile_features(atoms_of(["form"]), 20).tag == -1  # nothing tells words between apart


PLACES = st.lists(st.integers(0, 7), min_size=1, max_size=12)


@given(gold=PLACES, other=PLACES, loss=st.integers(1, 5), longest=st.sampled_from([0.0, 0.05, 9.0]))
def test_a_step_is_the_smallest_that_wins_by_the_loss(
    gold: list[int], other: list[int], loss: int, longest: float
) -> None:
    begin = np.random.default_rng(len(gold)).normal(size=8).astype(np.float32)
    weights = Averaged(begin.copy(), np.zeros(8), np.asarray([3]))
    changes = np.zeros(8, np.float32)
    places = np.asarray([*gold, *other])
    missing = take_step(weights, places, len(gold), len(places), float(loss), longest, changes)
    vector = np.bincount(gold, minlength=8) - np.bincount(other, minlength=8)
    margin, norm = vector @ begin.astype(np.float64), vector @ vector
    assert missing == pytest.approx(max(0.0, loss - margin), abs=1e-5)
    step = min(longest, missing / norm) if norm else 0.0
    assert np.allclose(weights.values, begin + step * vector, atol=1e-5)
    if norm and longest == 9.0:  # long enough: the gold ones now win by the loss, or did before
        now = vector @ weights.values.astype(np.float64)
        assert now == pytest.approx(max(loss, margin), abs=1e-4)
    # the average is over the examples before too, in which the change was not there
    assert np.allclose(weights.noted, 3.0 * (weights.values - begin), atol=1e-5)
    assert not changes.any()


def test_a_version_of_dictionaries_learns_the_same(tmp_path: Path) -> None:
    path = write_treebank(tmp_path / "train.conllu", 25, non_projective=0.1)
    base = preset("mst")
    base["model"] |= {"fields": ["form", "suffix", "upos"], "min_count": 1, "hash_bits": 24}
    base["model"] |= {"trees": "projective"}
    data = prepare_data([str(path)], str(path), from_dict(ParserConfig, base))
    task, longest = MiraTask(data.config, data), 0.02
    weights: dict[tuple[object, ...], float] = defaultdict(float)
    totals: dict[tuple[object, ...], float] = defaultdict(float)

    def learn(gold: list[named.Feature], other: list[named.Feature], loss: float) -> None:
        change = Counter(gold)
        change.subtract(other)
        missing = loss - sum(weights[name] * n for name, n in change.items())
        norm = sum(n * n for n in change.values())
        step = min(longest, missing / norm) if norm and missing > 0 else 0.0
        for name, n in change.items():
            weights[name] += step * n

    sentences = list(read_conllu(path))
    arrays, first = data.train.arrays, len(data.labels.arcs)
    num = 0
    for epoch in range(2):
        for index in range(task.start_epoch(epoch)):
            task.learn(index, longest)
        for place in np.concatenate(task._batches).tolist():
            sentence, begin = sentences[place], int(arrays.tokens[place]) + 1
            words = named.words_of(sentence.column(FORM), sentence.column(UPOS))
            n = len(words) - 1
            heads = data.heads[begin : begin + n].tolist()
            scores = np.zeros((n, n + 1), np.float32)
            for word in range(1, n + 1):
                for head in set(range(n + 1)) - {word}:
                    score = sum(weights[name] for name in named.arc(words, head, word))
                    scores[word - 1, head] = score + (head != heads[word - 1])
            found = projective_trees(scores.ravel(), int32([n])).tolist()
            wrong = [word for word in range(1, n + 1) if found[word - 1] != heads[word - 1]]
            if wrong:
                arcs = [
                    [name for word in wrong for name in named.arc(words, tree[word - 1], word)]
                    for tree in (heads, found)
                ]
                learn(*arcs, float(len(wrong)))
            for word in range(1, n + 1):
                names = named.label(words, heads, word)
                gold = int(data.label_ids[begin + word - 1])
                ids = range(first) if heads[word - 1] else range(first, len(data.labels))
                points = [sum(weights[*name, i] for name in names) + (i != gold) for i in ids]
                best = ids[int(np.argmax(np.asarray(points, np.float32)))]
                if best != gold:
                    rows = [[(*name, i) for name in names] for i in (gold, best)]
                    learn(*rows, 1.0)
            num += 1
            for name, weight in weights.items():
                totals[name] += weight
    averages = task.weights.average()
    assert sum(abs(weight) > 1e-3 for weight in weights.values()) > 500
    # the weights of every feature of the treebank, by its place
    features = task._decoder.features
    for sentence in sentences[:8]:
        words = named.words_of(sentence.column(FORM), sentence.column(UPOS))
        heads, one = sentence.heads(), encode([sentence], data.types)
        for word in range(1, len(words)):
            for head in set(range(len(words))) - {word}:
                expected = sum(totals[name] / num for name in named.arc(words, head, word))
                places = places_of_arc(features, one, head, word)
                assert averages[places].sum() == pytest.approx(expected, abs=1e-4)
            places = places_of_label(features, one, heads, word)
            for i in range(len(data.labels)):
                expected = sum(totals[*name, i] / num for name in named.label(words, heads, word))
                assert averages[places + i].sum() == pytest.approx(expected, abs=1e-4)
