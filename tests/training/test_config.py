from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtool.core.config import refuse_unread
from seqtool.core.errors import ConfigError
from seqtool.lm.neural.config import NeuralLMConfig
from seqtool.training.config import (
    OPTIMISERS,
    SCHEDULES,
    Position,
    TrainingConfig,
    learning_rate,
)
from seqtool.training.optimisers import _arguments


def rates(*positions: Position, **settings: object) -> list[float]:
    config = TrainingConfig(learning_rate=1.0, **settings)  # type: ignore[arg-type]
    return [learning_rate(config, position) for position in positions]


def by_epoch(*epochs: float) -> list[Position]:
    """Positions in a run of ten epochs of ten steps."""
    return [Position(round(10 * epoch), 100, epoch) for epoch in epochs]


def by_step(*steps: int) -> list[Position]:
    """Positions in a run of ten steps, two epochs of five."""
    return [Position(step, 10, step / 5) for step in steps]


def test_constant() -> None:
    assert rates(*by_epoch(0, 3.7, 9.9), schedule="constant") == [1.0, 1.0, 1.0]


def test_divide_after_an_epoch() -> None:
    # the small LSTM of Zaremba et al. (2014): halved in each epoch after the fourth
    values = rates(*by_epoch(0, 3.9, 4.0, 4.9, 5.0, 6.5), schedule="divide", schedule_after=4)
    assert values == [1.0, 1.0, 1 / 2, 1 / 2, 1 / 4, 1 / 8]
    values = rates(*by_epoch(0, 1), schedule="divide", schedule_factor=1.25)
    assert values == pytest.approx([0.8, 0.64], rel=1e-15)


def test_step_halves_every_few_epochs() -> None:
    values = rates(*by_epoch(0, 2.9, 3.0, 5.9, 6.0, 9.5), schedule="step", schedule_every=3)
    assert values == [1.0, 1.0, 1 / 2, 1 / 2, 1 / 4, 1 / 8]
    values = rates(*by_epoch(4.9, 5), schedule="step", schedule_factor=10.0)
    assert values == [1.0, 0.1]


def test_divide_never_reaches_below_the_minimum() -> None:
    settings = {"schedule": "divide", "schedule_minimum": 0.1}
    assert rates(*by_epoch(2, 3, 9), **settings) == [1 / 8, 0.1, 0.1]
    far = Position(10**6, 10**7, 10**5)
    assert rates(far, schedule="divide") == [0.0]


def test_plateau_divides_once_per_plateau() -> None:
    positions = [Position(50, 100, 5.0, num_plateaus=number) for number in (0, 1, 3)]
    assert rates(*positions, schedule="plateau") == [1.0, 1 / 2, 1 / 8]
    assert rates(*positions, schedule="plateau", schedule_factor=4.0) == [1.0, 1 / 4, 1 / 64]


def test_cyclic_is_a_triangle() -> None:
    # a cycle of four epochs: from 0.2 up to 1 in two epochs, and down again
    values = rates(
        *by_epoch(0, 1, 2, 3, 4, 4.5), schedule="cyclic", schedule_cycle=4, schedule_minimum=0.2
    )
    assert values == pytest.approx([0.2, 0.6, 1.0, 0.6, 0.2, 0.4], rel=1e-15)


def test_cosine() -> None:
    # step s of 10: (1 + cos(pi s / 10)) / 2
    values = rates(*by_step(0, 5, 10), schedule="cosine")
    assert values == pytest.approx([1.0, 0.5, 0.0], abs=1e-15)
    values = rates(*by_step(0, 5, 10), schedule="cosine", schedule_minimum=0.1)
    assert values == pytest.approx([1.0, 0.55, 0.1], abs=1e-15)


def test_cosine_after_warm_up() -> None:
    # 4 of 10 steps rise: 1/4, 2/4, 3/4, 1; then the cosine over the other 6
    values = rates(*by_step(0, 1, 2, 3, 4, 7, 10), schedule="cosine", schedule_warmup=0.4)
    assert values == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 0.5, 0.0], abs=1e-15)


def test_rates_that_end_nowhere_rise_too() -> None:
    # 4 of 10 steps rise to what the schedule says: 1/4, 2/4, 3/4, 1
    values = rates(*by_step(0, 1, 2, 3, 4, 9), schedule="constant", schedule_warmup=0.4)
    assert values == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 1.0], rel=1e-15)
    halved = Position(1, 10, 1.0)  # the second step of a stage of ten epochs
    assert rates(halved, schedule="divide", schedule_warmup=0.4) == [0.5 / 4]


def test_one_cycle() -> None:
    # 3 of 10 steps rise from 1/25: 1/25 + 24/25 k/3; then the cosine over the other 7
    values = rates(*by_step(0, 1, 2, 3, 10), schedule="one-cycle")
    assert values == pytest.approx([0.36, 0.68, 1.0, 1.0, 0.0], abs=1e-15)
    values = rates(*by_step(0, 4), schedule="one-cycle", schedule_warmup=0.5)
    assert values == pytest.approx([0.04 + 0.96 / 5, 1.0], abs=1e-15)


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
    ("settings", "message", "hint"),
    [
        ({"epochs": 0}, "epochs is 0, but must be at least 1", "change epochs"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0, but must be more than 0", None),
        ({"learning_rate": math.nan}, "learning_rate is nan", None),
        ({"learning_rate": "fast"}, "learning_rate is 'fast', but must be a number", None),
        ({"momentum": 1.0}, "momentum is 1.0, but must be less than 1", None),
        ({"optimiser": "adm"}, "optimiser is 'adm'", "did you mean adam or adamw?"),
        ({"schedule": "onecycle"}, "schedule is 'onecycle'", "did you mean one-cycle"),
        ({"seed": 2**64}, "seed is 18446744073709551616, but must be at most", None),
        (
            {"optimiser": "asgd", "average_after": 3, "epochs": 3},
            "average_after is 3, but training has 3 epochs",
            "make average_after smaller than epochs",
        ),
        (
            {"optimiser": "asgd", "asgd_trigger": 5, "average_after": 1},
            "asgd_trigger and average_after are set",
            "leave one of them out",
        ),
    ],
)
def test_impossible_settings_are_refused(
    settings: dict[str, object], message: str, hint: str | None
) -> None:
    with pytest.raises(ConfigError) as caught:
        TrainingConfig(**settings)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)
    assert hint is None or caught.value.hint.startswith(hint)


def is_refused(settings: dict[str, object], name: str) -> bool:
    config = NeuralLMConfig(training=TrainingConfig(**settings))  # type: ignore[arg-type]
    try:
        refuse_unread([(config, f"training.{name}")])
    except ConfigError as error:
        return error.message.startswith(f"training.{name} counts only where ")
    return False


@pytest.mark.parametrize(
    ("field", "name", "value"),
    [
        ("optimiser", "beta1", 0.8),
        ("optimiser", "beta2", 0.9),
        ("optimiser", "momentum", 0.5),
        ("schedule", "schedule_factor", 3.0),
        ("schedule", "schedule_every", 2),
        ("schedule", "schedule_after", 3),
        ("schedule", "schedule_cycle", 3.0),
        ("schedule", "schedule_minimum", 0.6),
        ("schedule", "plateau_patience", 2),
    ],
)
def test_a_setting_is_refused_where_it_changes_nothing(field: str, name: str, value: float) -> None:
    """What a schedule or an optimiser makes of it is compared with what it makes of the default."""
    positions = [Position(step, 100, step / 10, num_plateaus=step // 20) for step in range(100)]
    for choice in SCHEDULES if field == "schedule" else OPTIMISERS:
        if choice == "sparse-adam":
            continue
        usual: dict[str, object] = {field: choice, "epochs": 10}
        changed = {**usual, name: value}
        plain, other = TrainingConfig(**usual), TrainingConfig(**changed)  # type: ignore[arg-type]
        if field == "optimiser":
            is_read = _arguments(plain) != _arguments(other)
        elif name == "plateau_patience":  # the loop counts plateaus by it
            is_read = choice == "plateau"
        else:
            is_read = any(learning_rate(plain, at) != learning_rate(other, at) for at in positions)
        assert is_refused(changed, name) == (not is_read), choice
        assert not is_refused(usual, name)


@pytest.mark.parametrize(
    ("settings", "name", "refused"),
    [
        ({"schedule_minimum": 0.1, "schedule_warmup": 0.1}, "schedule_minimum", False),
        ({"schedule_minimum": 0.1, "time_limit": "5s"}, "schedule_minimum", False),
        ({"optimiser": "sgd", "beta1": 0.5}, "beta1", True),
        (
            {"optimiser": "sgd", "beta1": 0.5, "embedding_optimiser": "sparse-adam"},
            "beta1",
            False,
        ),
        ({"asgd_trigger": 5}, "asgd_trigger", True),
        ({"average_after": 1}, "average_after", True),
        ({"average_after": 1, "optimiser": "asgd"}, "average_after", False),
    ],
)
def test_what_another_setting_decides(
    settings: dict[str, object], name: str, refused: bool
) -> None:
    assert is_refused(settings, name) == refused


def test_every_optimiser_and_schedule_that_a_setting_names_is_there() -> None:
    for name in ("sgd", "adagrad", "rmsprop", "adam", "adamw", "asgd"):
        assert TrainingConfig(optimiser=name).optimiser in OPTIMISERS  # type: ignore[arg-type]
        assert callable(OPTIMISERS[name])
    for name in SCHEDULES:
        assert TrainingConfig(schedule=name).schedule == name  # type: ignore[arg-type]
