"""MIRA: its step keeps to its constraint, and a version of dictionaries learns the same."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsing.parser.references import int32
from parsing.parser.tiny import write_treebank
from parsing.sparse import named
from parsing.sparse.test_arcs import places_of_arc, places_of_label

from seqtool.core.config import from_dict
from seqtool.parsing.encoding.features import encode
from seqtool.parsing.parser.config import ParserConfig, preset
from seqtool.parsing.parser.data import prepare_data
from seqtool.parsing.parser.graph.trees import projective_trees
from seqtool.parsing.sparse.engine import Averaged
from seqtool.parsing.sparse.mira import take_step
from seqtool.parsing.sparse.task import MiraTask
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.sentence import FORM, UPOS

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
