"""Schedules by hand, and settings that are refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtool.core.config import refuse_unread
from seqtool.core.errors import ConfigError
from seqtool.lm.neural.config import NeuralLMConfig
from seqtool.training.config import SCHEDULES, Position, TrainingConfig, learning_rate, seconds_of

EPOCHS = [Position(round(10 * epoch), 100, epoch) for epoch in (0, 2.9, 3, 5.9, 6, 9.5)]  # of 10
STEPS = [Position(step, 10, step / 5) for step in (0, 1, 2, 3, 4, 7, 10)]  # of 10, in two epochs
PLATEAUS = [Position(50, 100, 5.0, num_plateaus=number) for number in (0, 1, 3)]
TIMES = [Position(5, 10, 1.0, time_passed=share) for share in (0.0, 0.6, 0.8, 1.0)]


@pytest.mark.parametrize(
    ("settings", "positions", "expected"),
    [
        ({}, EPOCHS, [1] * 6),
        # the small LSTM of Zaremba et al. (2014) halves in each epoch after the fourth
        (
            {"schedule": "divide", "schedule_after": 4},
            EPOCHS,
            [1, 1, 1, 1 / 4, 1 / 8, 1 / 64],
        ),
        (
            {"schedule": "divide", "schedule_factor": 1.25, "schedule_minimum": 0.3},
            EPOCHS,
            [1 / 1.25, 1 / 1.25**3, 1 / 1.25**4, 0.3, 0.3, 0.3],
        ),
        ({"schedule": "step", "schedule_every": 3}, EPOCHS, [1, 1, 1 / 2, 1 / 2, 1 / 4, 1 / 8]),
        ({"schedule": "plateau", "schedule_factor": 4.0}, PLATEAUS, [1, 1 / 4, 1 / 64]),
        # a cycle of four epochs: from 0.2 up to 1 in two epochs, and down again
        (
            {"schedule": "cyclic", "schedule_cycle": 4, "schedule_minimum": 0.2},
            EPOCHS,
            [0.2, 0.64, 0.6, 0.96, 1, 0.2 + 0.8 * 0.75],
        ),
        # step s of 10: (1 + cos(pi s / 10)) / 2, over the lowest rate
        (
            {"schedule": "cosine", "schedule_minimum": 0.1},
            STEPS,
            [0.1 + 0.45 * (1 + math.cos(math.pi * step / 10)) for step in (0, 1, 2, 3, 4, 7, 10)],
        ),
        # 4 of 10 steps rise: 1/4, 2/4, 3/4, 1; then the cosine over the other 6
        (
            {"schedule": "cosine", "schedule_warmup": 0.4},
            STEPS,
            [1 / 4, 1 / 2, 3 / 4, 1, 1, 0.5, 0],
        ),
        ({"schedule_warmup": 0.4}, STEPS, [1 / 4, 1 / 2, 3 / 4, 1, 1, 1, 1]),
        # 3 of 10 steps rise from 1/25: 1/25 + 24/25 k/3; then the cosine over the other 7
        (
            {"schedule": "one-cycle"},
            STEPS,
            [0.36, 0.68, 1, 1, *((1 + math.cos(math.pi * k / 7)) / 2 for k in (1, 4)), 0],
        ),
        # with a limit of time, the last two fifths fall to 0
        ({}, TIMES, [1, 1, 0.5, 0]),
    ],
)
def test_schedules_by_hand(
    settings: dict[str, Any], positions: list[Position], expected: list[float]
) -> None:
    config = TrainingConfig(learning_rate=1.0, **settings)
    rates = [learning_rate(config, position) for position in positions]
    assert rates == pytest.approx(expected, rel=1e-14, abs=1e-15)


@given(
    st.sampled_from(sorted(SCHEDULES)),
    st.integers(1, 50),
    st.integers(1, 20),
    st.data(),
)
def test_every_rate_lies_between_the_lowest_and_the_highest(
    schedule: str, steps_per_epoch: int, epochs: int, data: st.DataObject
) -> None:
    total = steps_per_epoch * epochs
    step = data.draw(st.integers(0, total - 1))
    config = TrainingConfig(
        learning_rate=data.draw(st.floats(1e-6, 1e3)),
        schedule=schedule,  # type: ignore[arg-type]
        schedule_minimum=data.draw(st.floats(0, 1)),
        schedule_warmup=data.draw(st.floats(0, 0.99)),
        schedule_factor=data.draw(st.floats(1.01, 100)),
        schedule_cycle=data.draw(st.floats(0.1, 10)),
    )
    at = Position(step, total, step / steps_per_epoch, data.draw(st.integers(0, 9)))
    rate = learning_rate(config, at)
    lowest = config.learning_rate * config.schedule_minimum
    assert lowest <= rate <= config.learning_rate * (1 + 1e-12)
    assert math.isfinite(rate)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"epochs": 0}, "at least 1"),
        ({"learning_rate": 0.0}, "more than 0"),
        ({"learning_rate": math.nan}, "nan"),
        ({"learning_rate": "fast"}, "a number"),
        ({"momentum": 1.0}, "less than 1"),
        ({"optimiser": "adm"}, "'adm'"),
        ({"schedule": "onecycle"}, "'onecycle'"),
        ({"seed": 2**64}, "at most"),
        ({"average_after": 3, "optimiser": "asgd", "epochs": 3}, "training has 3 epochs"),
        ({"asgd_trigger": 5, "optimiser": "asgd", "average_after": 1}, "either can say"),
        *(
            ({"time_limit": text}, "which is no time")
            for text in ("", "0s", "2 weeks", "30m1h", "1h30", "-5m", "1e3s", "h")
        ),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TrainingConfig(**settings)
    assert str(caught.value).startswith(next(iter(settings)))
    assert words in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("1h30m", 5400), ("1.5h", 5400), (" 2H ", 7200), (2.5, 2.5)],
)
def test_durations(text: str | float, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    ("settings", "name", "is_read"),
    [
        ({"optimiser": "sgd", "beta1": 0.5}, "beta1", False),
        ({"optimiser": "sgd", "beta1": 0.5, "embedding_optimiser": "sparse-adam"}, "beta1", True),
        ({"momentum": 0.5}, "momentum", False),
        ({"momentum": 0.5, "optimiser": "rmsprop"}, "momentum", True),
        ({"schedule_factor": 3.0}, "schedule_factor", False),
        ({"schedule_factor": 3.0, "schedule": "plateau"}, "schedule_factor", True),
        ({"schedule_every": 2, "schedule": "divide"}, "schedule_every", False),
        ({"schedule_cycle": 3.0, "schedule": "cosine"}, "schedule_cycle", False),
        ({"schedule_minimum": 0.1}, "schedule_minimum", False),
        ({"schedule_minimum": 0.1, "schedule_warmup": 0.1}, "schedule_minimum", True),
        ({"schedule_minimum": 0.1, "time_limit": "5s"}, "schedule_minimum", True),
        ({"asgd_trigger": 5}, "asgd_trigger", False),
        ({"average_after": 1, "optimiser": "asgd"}, "average_after", True),
    ],
)
def test_what_another_setting_decides(settings: dict[str, Any], name: str, is_read: bool) -> None:
    config = NeuralLMConfig(training=TrainingConfig(**settings))
    if is_read:
        return refuse_unread([(config, f"training.{name}")])
    with pytest.raises(ConfigError, match=f"training.{name} counts only where "):
        refuse_unread([(config, f"training.{name}")])
