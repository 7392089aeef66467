"""Probabilities of arcs: what is fitted, what is stored, what is written."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parsing.parser.tiny import make_sentence, random_parser, random_sentences, tiny_config

from seqtool.core import checkpoint
from seqtool.core.vocabulary import Vocabulary
from seqtool.parsing.parser import calibration
from seqtool.parsing.parser.calibration import (
    Calibration,
    fit,
    from_json,
    log_odds,
    nearest,
    to_json,
)
from seqtool.parsing.parser.data import GoldTrees
from seqtool.parsing.parser.model import Parser
from seqtool.treebank.conllu import read_batches
from seqtool.treebank.evaluation import calibration_error
from seqtool.treebank.sentence import Sentence


def drawn(slope: float, bias: float, num: int = 20000) -> tuple[Any, Any]:
    """Probabilities, and arcs that are right as a logistic regression on them says."""
    generator = np.random.default_rng(0)
    probabilities = generator.beta(4.0, 1.0, num)
    chances = 1 / (1 + np.exp(-(slope * log_odds(probabilities) + bias)))
    return probabilities, generator.random(num) < chances


@pytest.mark.parametrize(("slope", "bias"), [(1.0, 0.0), (0.6, 0.5), (2.0, -1.0)])
def test_a_distortion_is_found(slope: float, bias: float) -> None:
    """With 20,000 arcs, the standard error of both is below 0.03."""
    found = fit(*drawn(slope, bias))
    assert found == pytest.approx((slope, bias), abs=0.1)


def test_the_fit_is_the_most_probable_one() -> None:
    """No other slope and bias nearby have a smaller cross-entropy with their penalty."""
    probabilities, are_right = drawn(0.7, 0.3, 500)

    def loss(of: Calibration) -> float:
        found = of(probabilities)
        penalty = 0.5 * ((of.slope - 1) ** 2 + of.bias**2)
        return float(-np.log(np.where(are_right, found, 1 - found)).sum() + penalty)

    best = fit(probabilities, are_right)
    for slope, bias in ((0.001, 0.0), (-0.001, 0.0), (0.0, 0.001), (0.0, -0.001)):
        assert loss(best) < loss(Calibration(best.slope + slope, best.bias + bias))


@pytest.mark.parametrize(
    ("probabilities", "are_right"),
    [
        ([0.9] * 5, [True] * 5),
        ([1.0] * 5, [False] * 5),
        ([1.0], [True]),
        ([0.0, 1.0, 1.0], [False, True, True]),
        ([0.99, 0.98, 0.01, 0.02] * 50, [False, False, True, True] * 50),
    ],
)
def test_few_and_odd_arcs_give_a_finite_fit(probabilities: Any, are_right: Any) -> None:
    found = fit(np.asarray(probabilities), np.asarray(are_right))
    assert np.isfinite(found).all()
    # the more probable arc is never called the less probable one
    given = np.asarray([0.0, 0.1, 0.5, 0.9, 1.0])
    values = found(given)
    assert (np.diff(values) >= 0).all()
    assert ((values > 0) & (values < 1)).all()


def test_the_calibration_of_the_nearest_beam() -> None:
    fitted = {1: Calibration(1.0, 0.0), 4: Calibration(2.0, 0.0)}
    assert [nearest(fitted, beam) for beam in (1, 3, 4, 64)] == [fitted[1], *[fitted[4]] * 3]
    assert nearest({}, 1) is None


def test_what_is_stored_is_what_is_read() -> None:
    fitted = {1: Calibration(0.75, 0.125), 4: Calibration(0.5, -1.0)}
    assert from_json(to_json(fitted)) == fitted
    assert from_json(None) == {}


@pytest.mark.parametrize(
    "stored",
    [[], {"1": [1.0]}, {"x": [1.0, 0.0]}, {"0": [1.0, 0.0]}, {"1": [float("nan"), 0.0]}, 3],
)
def test_other_things_are_refused(stored: Any) -> None:
    with pytest.raises(ValueError, match=r"calibrations are|invalid literal"):
        from_json(stored or ["x"])


def test_the_error_by_hand() -> None:
    """Two bins of two: |0.5 - 0.3| and |1 - 0.85|, so 0.175."""
    found = calibration_error(
        np.asarray([0.9, 0.2, 0.4, 0.8]), np.asarray([True, False, True, True]), num_bins=2
    )
    assert found.error == pytest.approx((abs(0.5 - 0.3) + abs(1.0 - 0.85)) / 2)
    assert [each.words for each in found.bins] == [2, 2]
    assert [each.accuracy for each in found.bins] == [0.5, 1.0]


def test_the_order_of_words_makes_no_difference_to_the_error() -> None:
    generator = np.random.default_rng(1)
    probabilities = generator.choice([0.25, 0.5, 1.0], 500)
    are_right = generator.random(500) < 0.7
    order = generator.permutation(500)
    first = calibration_error(probabilities, are_right)
    second = calibration_error(probabilities[order], are_right[order])
    assert second.error == pytest.approx(first.error, abs=1e-12)
    # of all arcs together, confidence and accuracy are what they are
    whole = calibration_error(probabilities, are_right, num_bins=1)
    assert whole.error == pytest.approx(abs(probabilities.mean() - are_right.mean()))


def tuned() -> tuple[Parser, list[Sentence]]:
    """A parser whose calibrations are fitted on its own trees with every third head wrong."""
    parser = random_parser(tiny_config())
    sentences = random_sentences(40, 9)
    trees = [(heads, deprels) for heads, deprels in parser.trees(parser.encode(sentences))]
    gold = [
        ([head if i % 3 else -1 for i, head in enumerate(heads)], deprels)
        for heads, deprels in trees
    ]
    parser.tune(_data(parser, GoldTrees(parser.encode(sentences), gold)))
    return parser, sentences


def _data(parser: Parser, gold: GoldTrees) -> Any:
    return dataclasses.make_dataclass("Data", ["dev"])(gold)


def test_a_parser_keeps_its_calibrations(tmp_path: Path) -> None:
    parser, sentences = tuned()
    assert set(parser.calibrations) == set(calibration.BEAMS)
    parser.save(tmp_path / "parser", scores={}, data={})
    opened = checkpoint.load(tmp_path / "parser", Parser)
    assert opened.calibrations == parser.calibrations
    assert opened.is_calibrated
    assert opened.copy().calibrations == parser.calibrations
    found = [[sentence.copy() for sentence in sentences] for _ in range(2)]
    for one, each in zip((parser, opened), found, strict=True):
        one.parse(each, scores=True)
    assert found[0] == found[1]


def test_damaged_calibrations_are_damage(tmp_path: Path) -> None:
    parser, _ = tuned()
    vocabulary = parser.vocabulary
    vocabulary.extra["calibrations"] = {"1": ["x"]}
    vocabulary.save(tmp_path / "vocabulary.json")
    with pytest.raises(ValueError, match="could not convert"):
        from_json(Vocabulary.load(tmp_path / "vocabulary.json").extra["calibrations"])


def test_scores_are_those_of_the_arc_tables() -> None:
    parser, sentences = tuned()
    for beam in (1, 4):
        parsed = [sentence.copy() for sentence in sentences]
        parser.parse(parsed, beam=beam, scores=True)
        tables = parser.arc_tables(parser.encode(sentences), beam=beam)
        fitted = parser.calibrations[beam]
        for sentence, table in zip(parsed, tables, strict=True):
            words = np.arange(len(sentence))
            expected = fitted(table.probabilities[words, sentence.heads()])
            scores = [token.score for token in sentence]
            assert scores == pytest.approx(expected.tolist(), abs=0.0005 + 1e-9)


@pytest.mark.parametrize("beam", [1, 4])
def test_scores_change_no_tree_and_keep_what_misc_has(beam: int, tmp_path: Path) -> None:
    parser, sentences = tuned()
    for sentence in sentences[::2]:
        sentence.rows[0][9] = "SpaceAfter=No|Score=0.1|x"
    plain = [sentence.copy() for sentence in sentences]
    parser.parse(plain, beam=beam)
    path = tmp_path / "text.conllu"
    path.write_text("".join(sentence.to_conllu() for sentence in sentences), encoding="utf-8")
    scored: Any = list(parser.parse_stream(read_batches(str(path)), beam=beam, scores=True))
    assert [sentence.heads() for sentence in scored] == [sentence.heads() for sentence in plain]
    for place, sentence in enumerate(scored):
        items = sentence.rows[0][9].split("|")
        assert items[:-1] == (["SpaceAfter=No", "x"] if place % 2 == 0 else [])
        assert all(0 <= token.score <= 1 for token in sentence)


def test_a_parser_without_calibrations_gives_what_it_thinks() -> None:
    parser = random_parser(tiny_config())
    assert not parser.is_calibrated
    assert "calibrations" not in parser.vocabulary.extra
    doc = parser([make_sentence([("a", "X"), ("B", "Y"), ("cc", "X")])], scores=True)
    (table,) = parser.arc_tables(parser.encode(doc))
    for token in doc[0]:
        assert token.head is not None
        expected = table.probabilities[token.number - 1, token.head]
        assert token.score == pytest.approx(float(expected), abs=0.0005 + 1e-6)
    (plain,) = parser([make_sentence([("a", "X"), ("B", "Y")])])
    assert [token.score for token in plain] == [None, None]
