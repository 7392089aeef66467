"""Probabilities of arcs: what is fitted, what is stored, what is written."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parsing.parser.tiny import make_sentence, random_parser, random_sentences, tiny_config

from seqtool.core import checkpoint
from seqtool.core.errors import ModelError
from seqtool.parsing.parser import calibration
from seqtool.parsing.parser import parser as parser_module
from seqtool.parsing.parser.calibration import (
    Calibration,
    calibrations_from_json,
    calibrations_to_json,
    fit_calibration,
)
from seqtool.parsing.parser.data import GoldTrees
from seqtool.parsing.parser.parser import Parser
from seqtool.treebank.conllu import read_batches
from seqtool.treebank.evaluation import calibration_error
from seqtool.treebank.sentence import Sentence


def drawn(power: float, num: int) -> tuple[Any, Any]:
    """Probabilities p, and arcs of which the share p ** power is right."""
    generator = np.random.default_rng(0)
    probabilities = generator.beta(4.0, 1.0, num)
    return probabilities, generator.random(num) < probabilities**power


@pytest.mark.parametrize("power", [0.5, 1.0, 3.0])
def test_a_distortion_is_found(power: float) -> None:
    """A group of 1,000 arcs has a standard error of 0.016 at most, and half as much on average."""
    found = fit_calibration(*drawn(power, 20000))
    others = np.random.default_rng(1).beta(4.0, 1.0, 5000)
    assert np.abs(found(others) - others**power).mean() < 0.015
    # outside of the first and the last mean, the function is constant
    inside = others[(others > found.inputs[0]) & (others < found.inputs[-1])]
    assert np.abs(found(inside) - inside**power).max() < 0.05


def test_the_fit_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three groups of two arcs; five of six are right, so the prior is 6 / 8.

    With it, (1 + 0.75) / 3, (2 + 0.75) / 3 and (2 + 0.75) / 3 are right: the last two do not rise,
    and become one of (4 + 1.5) / 6 at the mean of both.
    """
    monkeypatch.setattr(calibration, "SMALLEST_GROUP", 2)
    found = fit_calibration(
        np.asarray([0.9, 0.1, 0.3, 0.5, 0.7, 0.5]),
        np.asarray([True, False, True, True, True, True]),
    )
    assert found.inputs == pytest.approx((0.2, (0.5 + 0.8) / 2))
    assert found.outputs == pytest.approx((1.75 / 3, 5.5 / 6))
    # constant outside, linear inside
    given = np.asarray([0.0, 0.2, 0.425, 1.0])
    middle = (1.75 / 3 + 5.5 / 6) / 2
    assert found(given).tolist() == pytest.approx([1.75 / 3, 1.75 / 3, middle, 5.5 / 6])


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0, 1.0000001]), st.booleans()),
        min_size=1,
        max_size=400,
    )
)
@settings(max_examples=50)
def test_any_arcs_give_a_fit_that_rises(arcs: list[tuple[float, bool]]) -> None:
    probabilities, are_right = zip(*arcs, strict=True)
    found = fit_calibration(np.asarray(probabilities, np.float32), np.asarray(are_right))
    # the more probable arc is never called the less probable one, and none is certain
    values = found(np.linspace(0, 1, 11))
    assert (np.diff(values) >= 0).all()
    assert ((values > 0) & (values < 1)).all()
    assert calibrations_from_json(calibrations_to_json({1: found})) == {1: found}


def test_the_calibration_of_the_nearest_beam() -> None:
    fitted = {1: Calibration((0.5,), (0.5,)), 4: Calibration((0.5,), (0.25,))}
    half = np.asarray([0.5])
    found = [calibrated(half, fitted, beam).tolist() for beam in (1, 3, 4, 64)]
    assert found == [[0.5], [0.25], [0.25], [0.25]]
    assert calibrated(half, {}, 1) is half


def test_an_ensemble_has_the_mean_of_its_members_calibrations() -> None:
    low, high = Calibration((0.2, 0.8), (0.1, 0.7)), Calibration((0.4, 0.6), (0.3, 0.9))
    one, two = (random_parser(tiny_config(), seed=seed) for seed in (1, 2))
    one.calibrations, two.calibrations = {1: low, 4: low}, {1: high}
    # at 0.2, 0.4, 0.6, 0.8 the first is 0.1, 0.3, 0.5, 0.7 and the second 0.3, 0.3, 0.9, 0.9
    for together in (one.ensemble([two]), two.ensemble([one])):
        assert together.calibrations.keys() == {1}
        assert together.calibrations[1].inputs == (0.2, 0.4, 0.6, 0.8)
        assert together.calibrations[1].outputs == pytest.approx((0.2, 0.3, 0.7, 0.8))
    assert one.calibrations == {1: low, 4: low}


def test_what_is_stored_is_what_is_read() -> None:
    fitted = {1: Calibration((0.25, 0.75), (0.5, 1.0)), 4: Calibration((0.5,), (0.25,))}
    assert calibrations_from_json(calibrations_to_json(fitted)) == fitted
    assert calibrations_from_json(None) == {}


@pytest.mark.parametrize(
    "stored",
    [
        ["x"],
        3,
        {"x": [[0.5], [0.5]]},
        {"0": [[0.5], [0.5]]},
        {"1" + "0" * 400: [[0.5], [0.5]]},
        {"1": [[0.5]]},
        {"1": [[0.5], [0.5, 0.75]]},
        {"1": [[], []]},
        {"1": [["x"], [0.5]]},
        {"1": [[0.5, 0.25], [0.25, 0.5]]},
        {"1": [[0.25, 0.5], [0.25, float("nan")]]},
        {"1": [[0.5], [1.5]]},
    ],
)
def test_other_things_are_refused(stored: Any) -> None:
    with pytest.raises(ValueError, match="calibrations are"):
        calibrations_from_json(stored)


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


def tuned(**learning: Any) -> tuple[Parser, list[Sentence]]:
    """A parser whose calibrations are fitted on its own trees with every third head wrong."""
    config = tiny_config()
    learnt = dataclasses.replace(config.learning, **learning)
    parser = random_parser(dataclasses.replace(config, learning=learnt))
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
    assert set(parser.calibrations) == set(calibration.CALIBRATED_BEAMS)
    parser.save(tmp_path / "parser", scores={}, data={})
    opened = checkpoint.load(tmp_path / "parser", Parser)
    assert opened.calibrations == parser.calibrations
    assert opened.is_calibrated
    assert opened.copy().calibrations == parser.calibrations
    found = [[sentence.copy() for sentence in sentences] for _ in range(2)]
    for one, each in zip((parser, opened), found, strict=True):
        one.parse(each, scores=True)
    assert found[0] == found[1]


def test_a_globally_trained_parser_is_calibrated_for_its_own_beam() -> None:
    parser, _ = tuned(loss="global", global_beam=6)
    assert set(parser.calibrations) == {*calibration.CALIBRATED_BEAMS, 6}


def test_damaged_calibrations_are_a_damaged_model(tmp_path: Path) -> None:
    parser, _ = tuned()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parser_module, "calibrations_to_json", lambda found: {"1": [["x"]]})
        parser.save(tmp_path / "parser", scores={}, data={})
    with pytest.raises(ModelError, match="does not fit its own description"):
        checkpoint.load(tmp_path / "parser")


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
            if len(sentence) == 1:  # there is no other tree
                expected = np.ones(1)
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
