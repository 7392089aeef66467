"""Entities and their scores: by hand, and as seqeval counts them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtool.parsing.tagger.entities import (
    LabelCounts,
    allowed_pairs,
    are_entities,
    entities_of,
    keeps_to_bio,
)


def test_entities_by_hand() -> None:
    labels = ["B-PER", "I-PER", "O", "B-LOC", "I-LOC", "B-LOC", "O", "I-PER", "I-LOC", "I-LOC"]
    assert entities_of(labels) == [
        ("PER", 0, 2),
        ("LOC", 3, 5),
        ("LOC", 5, 6),
        ("PER", 7, 8),  # an I that goes on with nothing begins
        ("LOC", 8, 10),
    ]
    found = entities_of(["B-A", "I-A", "E-A", "I-A", "S-A", "S-A", "E-A"])
    assert found == [("A", *span) for span in ((0, 3), (3, 4), (4, 5), (5, 6), (6, 7))]
    assert entities_of(["B-A-b", "I-A-b"]) == [("A-b", 0, 2)]
    assert entities_of([]) == entities_of(["O"]) == []


def test_scores_by_hand() -> None:
    counts = LabelCounts()
    counts.add(["B-A", "I-A", "O", "B-B"], ["B-A", "I-A", "O", "B-A"])
    counts.add(["B-B", "I-B"], ["B-B", "O"])
    assert counts.total == (100 / 3, 100 / 3, 100 / 3, 3)
    assert counts.by_type == {"A": (50.0, 100.0, 200 / 3, 1), "B": (0.0, 0.0, 0.0, 2)}
    assert counts.accuracy == pytest.approx(100 * 4 / 6)


@pytest.mark.parametrize("alphabet", ["BI", "BIES"])
def test_entities_are_those_of_seqeval(alphabet: str) -> None:
    judge = pytest.importorskip("seqeval.metrics.sequence_labeling")
    metrics = pytest.importorskip("seqeval.metrics")
    source = random.Random(2)
    names = ["O", "O", *(f"{part}-{type_}" for part in alphabet for type_ in ("PER", "LOC", "X-Y"))]
    for _ in range(40):
        lengths = [source.randrange(1, 9) for _ in range(6)]
        gold, found = ([source.choices(names, k=n) for n in lengths] for _ in range(2))
        # some entities in common, so that scores are not all zeros
        found = [list(labels) if source.random() < 0.4 else other
                 for labels, other in zip(gold, found, strict=True)]  # fmt: skip
        counts = LabelCounts()
        for labels, others in zip(gold, found, strict=True):
            spans = [(span.type, span.begin, span.end - 1) for span in entities_of(labels)]
            assert spans == judge.get_entities(labels)
            counts.add(labels, others)
        for name in ("precision", "recall", "f1"):
            expected = getattr(metrics, f"{name}_score")(gold, found, zero_division=0)
            assert getattr(counts.total, name) == pytest.approx(100 * expected)
        assert counts.accuracy == pytest.approx(100 * metrics.accuracy_score(gold, found))
        report = metrics.classification_report(gold, found, output_dict=True, zero_division=0)
        for name, scores in counts.by_type.items():
            of_type = report[name]
            wanted = [100 * of_type[key] for key in ("precision", "recall", "f1-score")]
            assert scores == pytest.approx([*wanted, of_type["support"]])


def test_what_bio_allows() -> None:
    labels = ["O", "I-A", "B-A", "I-B", "B-B"]
    # O may be followed by all but I; A's B and I by A's I, too; the begin of a sentence is as O
    assert allowed_pairs(labels).astype(int).tolist() == [
        [1, 0, 1, 0, 1],
        [1, 1, 1, 0, 1],
        [1, 1, 1, 0, 1],
        [1, 0, 1, 1, 1],
        [1, 0, 1, 1, 1],
        [1, 0, 1, 0, 1],
    ]
    assert keeps_to_bio([["O"], ["B-A", "I-A", "O"]])
    for broken in (["I-A"], ["B-B", "I-A"], ["B-A", "E-A"], ["NOUN"], ["O", "O"], ["B-"]):
        assert not keeps_to_bio([broken])
    assert are_entities({"O", "B-A", "E-x y"})
    assert not are_entities({"O", "B"})


@given(st.lists(st.sampled_from(["O", "B-A", "I-A", "B-B", "I-B"]), max_size=9))
def test_spans_of_bio_write_the_labels_again(labels: list[str]) -> None:
    written = ["O"] * len(labels)
    for type_, begin, end in entities_of(labels):
        written[begin:end] = [f"B-{type_}", *[f"I-{type_}"] * (end - begin - 1)]
    assert entities_of(written) == entities_of(labels)
    if keeps_to_bio([labels]):
        assert written == labels
