"""What is fitted to the validation part: temperatures, calibrations, and the scores of arcs."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parsing.parser.tiny import make_sentence, random_parser, random_sentences, tiny_config

from seqtool.core import checkpoint
from seqtool.core.config import from_dict
from seqtool.core.errors import ConfigError
from seqtool.parsing.parser import calibration
from seqtool.parsing.parser.calibration import (
    CALIBRATED_BEAMS,
    CURVE_POINTS,
    PRIOR_WORDS,
    TEMPERATURE,
    TEMPERATURE_BEAM,
    TEMPERATURES,
    Calibration,
    calibrated,
    calibrations_from_json,
    calibrations_to_json,
    fit_calibration,
    fit_temperature,
)
from seqtool.parsing.parser.config import ParserConfig
from seqtool.parsing.parser.data import GoldTrees
from seqtool.parsing.parser.parser import Parser, Tree
from seqtool.treebank.conllu import read_batches
from seqtool.treebank.evaluation import calibration_error
from seqtool.treebank.sentence import Sentence

LOGS = np.log(np.asarray(TEMPERATURES) / TEMPERATURE)
STEP = math.log(TEMPERATURES[-1] / TEMPERATURES[0]) / (CURVE_POINTS - 1)


@pytest.mark.parametrize("best", [1.1, 1.5, 2.0, 2.9])
@pytest.mark.parametrize("words", [10.0, 1000.0, 100_000.0])
def test_a_parabola_and_the_prior_by_hand(best: float, words: float) -> None:
    """-w (x - m)^2 - p x^2 is highest at w m / (w + p)."""
    middle = math.log(best / TEMPERATURE)
    num_right = 1e6 - words * (LOGS - middle) ** 2
    found = math.log(fit_temperature(num_right.tolist()) / TEMPERATURE)
    assert found == pytest.approx(words * middle / (words + PRIOR_WORDS), abs=STEP / 2 + 1e-3)


def test_a_curve_that_is_not_alike_on_both_sides() -> None:
    """3 x - x^3 has its maximum at 1; of x / m, at m. Without many words, that is."""
    parts = LOGS / math.log(2.25 / TEMPERATURE)
    found = fit_temperature((1e7 + 1e6 * (3 * parts - parts**3)).tolist())
    assert found == pytest.approx(2.25, rel=STEP)


@given(st.lists(st.integers(0, 30), min_size=len(TEMPERATURES), max_size=len(TEMPERATURES)))
def test_only_differences_count_and_few_words_hardly_move_it(num_right: list[int]) -> None:
    found = fit_temperature(num_right)
    assert TEMPERATURES[0] <= found <= TEMPERATURES[-1]
    assert fit_temperature([num + 1000 for num in num_right]) == found
    assert fit_temperature([num // 4 for num in num_right]) == pytest.approx(TEMPERATURE, rel=0.2)
    assert fit_temperature([num_right[0]] * len(TEMPERATURES)) == TEMPERATURE


def parser(seed: int = 0, **learning: Any) -> Parser:
    config = tiny_config()
    learning = dataclasses.asdict(config.learning) | learning
    learnt = from_dict(type(config.learning), learning)
    return random_parser(dataclasses.replace(config, learning=learnt), seed=seed)


def temperature(one: Parser) -> float:
    return one.decoder.temperature  # type: ignore[attr-defined,no-any-return]


def tune(one: Parser, sentences: list[Sentence], trees: list[Tree]) -> Parser:
    gold = GoldTrees(one.encode(sentences), trees)
    one.tune(dataclasses.make_dataclass("Data", ["dev"])(gold))
    return one


def tuned_like(one: Parser, best: float) -> Parser:
    """A parser that is tuned on the trees that it finds itself with another temperature."""
    sentences, other = random_sentences(150, 12), parser(beam_temperature=best)
    trees = list(other.trees(other.encode(sentences), beam=TEMPERATURE_BEAM))
    return tune(one, sentences, trees)


@pytest.mark.parametrize("best", [1.0, 3.0])
def test_the_temperature_that_is_fitted_is_used_and_saved(
    best: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "PRIOR_WORDS", 0.0)
    one = tuned_like(parser(), best)
    value = one.config.learning.beam_temperature
    assert value == temperature(one) == pytest.approx(best, rel=0.2)
    one.save(tmp_path / "parser", scores={}, data={})
    opened = checkpoint.load(tmp_path / "parser", Parser)
    assert opened.config == one.config
    assert opened.is_calibrated
    assert opened.calibrations == opened.copy().calibrations == one.calibrations
    sentences = random_sentences(60, 12, seed=1)

    def parsed(other: Parser, beam: int = 4) -> list[Tree]:
        return list(other.trees(other.encode(sentences), beam=beam))

    assert parsed(opened) == parsed(opened.copy()) == parsed(one)
    assert parsed(parser(beam_temperature=value)) == parsed(one)
    assert parsed(parser(beam_temperature=4 - best)) != parsed(one)
    assert parsed(parser(), 1) == parsed(one, 1)  # greedy parsing has none
    # the probabilities that are calibrated are those of the new temperature
    tables, again, usual = (
        np.concatenate(
            [t.probabilities.ravel() for t in each.arc_tables(each.encode(sentences), beam=4)]
        )
        for each in (one, opened, parser())
    )
    assert (tables == again).all()
    assert (tables != usual).any()


def test_a_temperature_that_is_given_stays() -> None:
    one = tuned_like(parser(beam_temperature=2.0), 1.0)
    assert one.config.learning.beam_temperature == temperature(one) == 2.0
    assert temperature(parser(loss="global", beam_temperature=2.0)) == 1.0
    members = [parser(seed, beam_temperature=2.0**seed) for seed in range(3)]
    # of an ensemble, it is the geometric mean
    assert temperature(members[0].ensemble(members[1:])) == pytest.approx(2.0)
    for value in (-1.0, 0.01, 11.0):
        with pytest.raises(ConfigError, match="beam_temperature is"):
            from_dict(ParserConfig, {"learning": {"beam_temperature": value}})


@pytest.mark.parametrize("power", [0.5, 1.0, 3.0])
def test_a_distortion_is_found(power: float) -> None:
    """Of arcs p, the share p ** power is right.

    A group of 1,000 arcs has a standard error of 0.016 at most, and half as much on average.
    """
    generator = np.random.default_rng(0)
    probabilities = generator.beta(4.0, 1.0, 20000)
    found = fit_calibration(probabilities, generator.random(20000) < probabilities**power)
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
    middle = (1.75 / 3 + 5.5 / 6) / 2
    expected = [1.75 / 3, 1.75 / 3, middle, 5.5 / 6]
    assert found(np.asarray([0.0, 0.2, 0.425, 1.0])).tolist() == pytest.approx(expected)


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
    one, two = parser(1), parser(2)
    one.calibrations, two.calibrations = {1: low, 4: low}, {1: high}
    # at 0.2, 0.4, 0.6, 0.8 the first is 0.1, 0.3, 0.5, 0.7 and the second 0.3, 0.3, 0.9, 0.9
    for together in (one.ensemble([two]), two.ensemble([one])):
        assert together.calibrations.keys() == {1}
        assert together.calibrations[1].inputs == (0.2, 0.4, 0.6, 0.8)
        assert together.calibrations[1].outputs == pytest.approx((0.2, 0.3, 0.7, 0.8))


@pytest.mark.parametrize("stored", [["x"], 3, {"x": [[0.5], [0.5]]}, {"1": [["x"], [0.5]]}])
def test_other_things_are_no_calibrations(stored: Any) -> None:
    assert calibrations_from_json(None) == {}
    with pytest.raises(ValueError, match="calibrations are"):
        calibrations_from_json(stored)


def test_the_error_by_hand() -> None:
    """Two bins of two: |0.5 - 0.3| and |1 - 0.85|, so 0.175."""
    found = calibration_error(
        np.asarray([0.9, 0.2, 0.4, 0.8]), np.asarray([True, False, True, True]), num_bins=2
    )
    assert found.error == pytest.approx((abs(0.5 - 0.3) + abs(1.0 - 0.85)) / 2)
    assert [(each.words, each.accuracy) for each in found.bins] == [(2, 0.5), (2, 1.0)]


def test_the_order_of_words_makes_no_difference_to_the_error() -> None:
    generator = np.random.default_rng(1)
    probabilities = generator.choice([0.25, 0.5, 1.0], 500)
    are_right = generator.random(500) < 0.7
    order = generator.permutation(500)
    first = calibration_error(probabilities, are_right)
    second = calibration_error(probabilities[order], are_right[order])
    assert second.error == pytest.approx(first.error, abs=1e-12)


def tuned(**learning: Any) -> tuple[Parser, list[Sentence]]:
    """A parser whose calibrations are fitted on its own trees with every third head wrong."""
    one, sentences = parser(**learning), random_sentences(40, 9)
    gold = [
        ([head if i % 3 else -1 for i, head in enumerate(heads)], deprels)
        for heads, deprels in one.trees(one.encode(sentences))
    ]
    return tune(one, sentences, gold), sentences


def test_a_globally_trained_parser_is_calibrated_for_its_own_beam() -> None:
    one, _ = tuned(loss="global", global_beam=6)
    assert set(one.calibrations) == {*CALIBRATED_BEAMS, 6}


@pytest.mark.parametrize("beam", [1, 4])
def test_scores_are_calibrated_change_no_tree_and_keep_what_misc_has(
    beam: int, tmp_path: Path
) -> None:
    one, sentences = tuned()
    assert set(one.calibrations) == set(CALIBRATED_BEAMS)
    for sentence in sentences[::2]:
        sentence.rows[0][9] = "SpaceAfter=No|Score=0.1|x"
    path = tmp_path / "text.conllu"
    path.write_text("".join(sentence.to_conllu() for sentence in sentences), encoding="utf-8")
    scored: Any = list(one.parse_stream(read_batches(str(path)), beam=beam, scores=True))
    tables = one.arc_tables(one.encode(sentences), beam=beam)
    one.parse(sentences, beam=beam)
    for place, (sentence, plain, table) in enumerate(zip(scored, sentences, tables, strict=True)):
        assert sentence.heads() == plain.heads()
        words = np.arange(len(sentence))
        expected = one.calibrations[beam](table.probabilities[words, sentence.heads()])
        if len(sentence) == 1:  # there is no other tree
            expected = np.ones(1)
        scores = [token.score for token in sentence]
        assert scores == pytest.approx(expected.tolist(), abs=0.0005 + 1e-9)
        items = sentence.rows[0][9].split("|")
        assert items[:-1] == (["SpaceAfter=No", "x"] if place % 2 == 0 else [])


def test_a_parser_without_calibrations_gives_its_marginals() -> None:
    one = parser()
    assert not one.is_calibrated
    doc = one([make_sentence([("a", "X"), ("B", "Y"), ("cc", "X")])], scores=True)
    (table,) = one.arc_tables(one.encode(doc))
    for token in doc[0]:
        expected = table.probabilities[token.number - 1, token.head or 0]
        assert token.score == pytest.approx(float(expected), abs=0.0005 + 1e-6)
    (plain,) = one([make_sentence([("a", "X"), ("B", "Y")])])
    assert [token.score for token in plain] == [None, None]
