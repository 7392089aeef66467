"""Scores of labels: by hand, and as scikit-learn has them."""

from __future__ import annotations

import random

import pytest

from seqtool.classification.evaluation import evaluate


def test_scores_by_hand() -> None:
    gold = ["a", "a", "a", "b", "b", "c"]
    found = ["a", "a", "b", "b", "a", "a"]
    scores = evaluate(["a", "b", "d"], gold, found)
    assert scores.labels == ("a", "b", "d", "c")
    assert scores.confusion.tolist() == [[2, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]]
    assert scores.accuracy == 50.0
    assert scores.majority == 50.0  # three of six are "a"
    # a: 2 of 4 found, 2 of 3 gold; b: 1 of 2 and 1 of 2; c: never found; d: not there at all
    of_a, of_b, of_d, of_c = scores.by_label
    assert of_a == ("a", 50.0, pytest.approx(200 / 3), pytest.approx(400 / 7), 3)
    assert of_b == ("b", 50.0, 50.0, 50.0, 2)
    assert of_c == ("c", 0.0, 0.0, 0.0, 1)
    assert of_d == ("d", 0.0, 0.0, 0.0, 0)
    assert scores.macro_f1 == pytest.approx((400 / 7 + 50 + 0) / 3)


def test_scores_are_those_of_scikit_learn() -> None:
    metrics = pytest.importorskip(
        "sklearn.metrics", reason="scikit-learn is not installed: make judges"
    )
    source = random.Random(1)
    for num_labels in (2, 3, 6):
        labels = [f"l{number}" for number in range(num_labels)]
        gold, found = (source.choices(labels, k=40) for _ in range(2))
        scores = evaluate(labels, gold, found)
        assert scores.accuracy == pytest.approx(100 * metrics.accuracy_score(gold, found))
        macro = metrics.f1_score(gold, found, average="macro", zero_division=0)
        assert scores.macro_f1 == pytest.approx(100 * macro)
        matrix = metrics.confusion_matrix(gold, found, labels=labels)
        assert scores.confusion.tolist() == matrix.tolist()
        rows = metrics.precision_recall_fscore_support(gold, found, labels=labels, zero_division=0)
        for i, each in enumerate(scores.by_label):
            assert each[1:] == pytest.approx([*(100 * rows[k][i] for k in range(3)), rows[3][i]])
