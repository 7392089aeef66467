"""The temperature of beams: what is fitted, where it is used, what is stored."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsing.parser.tiny import random_parser, random_sentences, tiny_config

from seqtool.core import checkpoint
from seqtool.core.config import from_dict
from seqtool.core.errors import ConfigError
from seqtool.parsing.parser import parser as parser_module
from seqtool.parsing.parser.calibration import (
    CURVE_POINTS,
    PRIOR_WORDS,
    TEMPERATURE,
    TEMPERATURE_BEAM,
    TEMPERATURES,
    fit_temperature,
    needs_temperature,
)
from seqtool.parsing.parser.config import ParserConfig
from seqtool.parsing.parser.data import GoldTrees
from seqtool.parsing.parser.parser import Parser, Tree
from seqtool.parsing.parser.transition.decoder import TransitionDecoder

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
    middle = math.log(2.25 / TEMPERATURE)
    parts = LOGS / middle
    found = fit_temperature((1e7 + 1e6 * (3 * parts - parts**3)).tolist())
    assert found == pytest.approx(2.25, rel=STEP)


@given(st.lists(st.integers(0, 30), min_size=len(TEMPERATURES), max_size=len(TEMPERATURES)))
def test_it_is_among_those_tried_and_only_differences_count(num_right: list[int]) -> None:
    found = fit_temperature(num_right)
    assert TEMPERATURES[0] <= found <= TEMPERATURES[-1]
    assert fit_temperature([num + 1000 for num in num_right]) == found


def test_where_all_are_alike_it_is_the_usual_one() -> None:
    assert fit_temperature([7] * len(TEMPERATURES)) == TEMPERATURE


def parser(seed: int = 0, **learning: Any) -> Parser:
    config = tiny_config()
    learning = dataclasses.asdict(config.learning) | learning
    return random_parser(
        dataclasses.replace(config, learning=from_dict(type(config.learning), learning)), seed=seed
    )


def temperature_of(one: Parser) -> float:
    assert isinstance(one.decoder, TransitionDecoder)
    return one.decoder.temperature


def tuned(one: Parser, best: float) -> Parser:
    """A parser whose temperature is fitted on the trees that it finds itself with another one."""
    sentences, other = random_sentences(150, 12), parser(beam_temperature=best)
    trees = list(other.trees(other.encode(sentences), beam=TEMPERATURE_BEAM))
    gold = GoldTrees(one.encode(sentences), trees)
    one.tune(dataclasses.make_dataclass("Data", ["dev"])(gold))
    return one


@pytest.mark.parametrize("best", [1.0, 3.0])
def test_what_is_fitted_is_used_and_saved(
    best: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Sequence[int]] = []

    def highest(num_right: Sequence[int]) -> float:
        told.append(num_right)
        return TEMPERATURES[int(np.argmax(num_right))]

    monkeypatch.setattr(parser_module, "fit_temperature", highest)
    one = tuned(parser(), best)
    value = one.config.learning.beam_temperature
    assert value == temperature_of(one) == best
    # by the one that made the trees, all words are right
    assert max(told[0]) == sum(map(len, random_sentences(150, 12)))
    one.save(tmp_path / "parser", scores={}, data={})
    opened = checkpoint.load(tmp_path / "parser", Parser)
    assert opened.config == one.config
    sentences = random_sentences(60, 12, seed=1)
    found = list(one.trees(one.encode(sentences), beam=4))

    def parsed(other: Parser, beam: int = 4) -> list[Tree]:
        return list(other.trees(other.encode(sentences), beam=beam))

    assert parsed(opened) == parsed(opened.copy()) == found
    assert parsed(parser(beam_temperature=value)) == found
    assert parsed(parser(beam_temperature=4 - best)) != found
    # greedy parsing has none
    assert parsed(parser(), 1) == parsed(one, 1)
    # the probabilities that are calibrated are those of the new temperature
    tables, again, usual = (
        np.concatenate(
            [
                table.probabilities.ravel()
                for table in each.arc_tables(each.encode(sentences), beam=4)
            ]
        )
        for each in (one, opened, parser())
    )
    assert (tables == again).all()
    assert (tables != usual).any()


def test_one_that_is_given_stays() -> None:
    one = tuned(parser(beam_temperature=2.0), 1.0)
    assert one.config.learning.beam_temperature == temperature_of(one) == 2.0


@given(st.lists(st.integers(0, 9), min_size=len(TEMPERATURES), max_size=len(TEMPERATURES)))
def test_ten_words_hardly_move_it(num_right: list[int]) -> None:
    assert fit_temperature(num_right) == pytest.approx(TEMPERATURE, rel=0.2)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, True),
        ({"model": {"encoder": "bilstm"}}, True),
        ({"learning": {"beam_temperature": 1.25}}, False),
        ({"learning": {"loss": "global"}}, False),
        ({"model": {"classifier": "linear"}}, False),
        ({"model": {"decoder": "graph", "encoder": "bilstm"}}, False),
    ],
)
def test_what_is_fitted(settings: dict[str, Any], expected: bool) -> None:
    assert needs_temperature(from_dict(ParserConfig, settings)) == expected


def test_global_training_leaves_none() -> None:
    assert temperature_of(parser(loss="global", beam_temperature=2.0)) == 1.0


def test_together_it_is_the_geometric_mean() -> None:
    members = [parser(seed, beam_temperature=2.0**seed) for seed in range(3)]
    assert temperature_of(members[0].ensemble(members[1:])) == pytest.approx(2.0)


@pytest.mark.parametrize("value", [-1.0, 0.01, 11.0])
def test_others_are_refused(value: float) -> None:
    with pytest.raises(ConfigError, match="beam_temperature is"):
        from_dict(ParserConfig, {"learning": {"beam_temperature": value}})
