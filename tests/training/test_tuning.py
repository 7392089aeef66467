"""Search for settings, over trainings whose scores are a formula."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtool.core.config import Config, from_dict, load_yaml, setting
from seqtool.core.errors import (
    ConfigError,
    DataError,
    Interrupted,
    OutputError,
    SeqtoolError,
    TrainingError,
)
from seqtool.parsing.parser.config import ParserConfig
from seqtool.training.config import TrainingConfig
from seqtool.training.run import TrainedModel
from seqtool.training.tuning import (
    Range,
    draw,
    draw_trials,
    read_space,
    tune,
)


@dataclass(frozen=True)
class ToyModel(Config):
    size: int = setting(10, "units", minimum=1)
    rate: float = setting(0.5, "any", above=0)
    cutoffs: tuple[int, ...] | None = setting(None, "any")

    def check(self) -> None:
        if self.size == 13:
            raise ConfigError("size is 13, which is unlucky", hint="take another")


@dataclass(frozen=True)
class ToyConfig(Config):
    description: str = setting("", "any")
    model: ToyModel = setting(ToyModel, "any")
    training: TrainingConfig = setting(TrainingConfig, "any")


class ToyTraining:
    """A training that keeps what it is called with; the score is a formula of the settings.

    Args:
        formula: of the settings; NaN stands for a training that fails.
        stop_at: the calls, from 1, that are interrupted.
    """

    __name__ = "train_toy"

    def __init__(
        self, formula: Callable[[ToyConfig], float], stop_at: tuple[int, ...] = ()
    ) -> None:
        self.formula, self.stop_at = formula, stop_at
        self.configs: list[ToyConfig] = []
        self.calls: list[dict[str, Any]] = []

    def __call__(
        self, data: Any, output: Path, config: ToyConfig, *, resume: bool, **more: Any
    ) -> TrainedModel:
        self.calls.append({"data": data, "folder": output.name, "resume": resume})
        output.mkdir(parents=True, exist_ok=True)
        (output / "run.json").write_text("{}")
        if len(self.calls) in self.stop_at:
            raise Interrupted("the run was interrupted", hint="continue it")
        self.configs.append(config)
        score = self.formula(config)
        if math.isnan(score):
            raise TrainingError("the loss is NaN", hint="any")
        scores = {"toy_perplexity": score, "dev_toy": -score}
        return TrainedModel(output, scores, 2.5, 7, config.training.epochs, "float32", 1.0)


def size(config: ToyConfig) -> float:
    return float(config.model.size)


def search(train: ToyTraining, output: Path, space: Any, **more: Any) -> Any:
    config = from_dict(ToyConfig, {"training": more.pop("training", {"epochs": 9})})
    more.setdefault("score", "toy_perplexity")
    return tune(train, more.pop("data", "text"), config, space, output=output, **more)  # type: ignore[arg-type]


def test_what_a_setting_may_be() -> None:
    for text, domain in (
        ("lstm, rhn", ("lstm", "rhn")),
        ("true,null,[2,3]", (True, None, [2, 3])),
        ("3..7", Range(3, 7)),
        ("1e-4..1e-2:log", Range(1e-4, 1e-2, True)),
        ("-2..-0.5", Range(-2, -0.5)),
    ):
        assert read_space({"cutoffs": text}, ToyConfig) == {"model.cutoffs": domain}
    for text, is_whole in (("3..7", True), ("3.0..7", False), ("8..512:log", True)):
        assert read_space({"size": text}, ToyConfig)["model.size"].is_whole == is_whole  # type: ignore[union-attr]


def test_draws_by_hand() -> None:
    assert [draw(("a", "b"), chance) for chance in (0.0, 0.49, 0.5, 0.99)] == list("aabb")
    # four whole numbers, a quarter each
    assert [draw(Range(3, 6), chance) for chance in (0.0, 0.24, 0.25, 0.5, 0.999)] == [
        *(3, 3, 4, 5, 6)
    ]
    # three digits; half way between 1 and 100 by logarithms is 10
    assert draw(Range(0.0, 1.0), 0.12345) == 0.123
    assert draw(Range(1.0, 100.0, True), 0.5) == 10.0
    # 1 has log 2 / log 5 = 0.4307 of the logarithms from 1 to 4 + 1
    assert [draw(Range(1, 4, True), chance) for chance in (0.43, 0.431, 0.999)] == [1, 2, 4]
    # three digits would be below the lower end
    assert draw(Range(0.12345, 1.0), 0.0) == 0.12345


@given(
    ends=st.tuples(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6)).filter(lambda two: two[0] < two[1]),
    chance=st.floats(0, 1, exclude_max=True),
    is_log=st.booleans(),
    is_whole=st.booleans(),
)
def test_draws_stay_in_their_range(
    ends: tuple[float, float], chance: float, is_log: bool, is_whole: bool
) -> None:
    low, high = (math.ceil(end) for end in ends) if is_whole else ends
    value = draw(Range(low, high, is_log), chance)
    assert low <= value <= high
    assert isinstance(value, int) == is_whole


def test_trials_are_distinct_and_spread_evenly() -> None:
    space = {"a": (1, 2, 3), "b": Range(1, 4)}
    trials = draw_trials(space, 100, seed=1)
    assert sorted((trial["a"], trial["b"]) for trial in trials) == [
        (a, b) for a in (1, 2, 3) for b in (1, 2, 3, 4)
    ]
    # they begin alike, however many they are
    assert draw_trials(space, 5, seed=1) == trials[:5]
    assert draw_trials(space, 5, seed=2) != trials[:5]
    # eight in a row are spread over each setting
    others = {"two": ("a", "b"), "four": Range(1, 4), "rate": Range(0.0, 8.0)}
    trials = draw_trials(others, 24, seed=3)
    for begin in (0, 8, 16):
        block = trials[begin : begin + 8]
        assert sorted(trial["two"] for trial in block) == ["a"] * 4 + ["b"] * 4
        assert sorted(trial["four"] for trial in block) == [1, 1, 2, 2, 3, 3, 4, 4]
        assert sorted(int(trial["rate"]) for trial in block) == list(range(8))


def test_the_settings_as_they_are_come_first(tmp_path: Path) -> None:
    train = ToyTraining(size)
    search(train, tmp_path / "in", {"size": [30, 10, 20], "rate": "0.25..0.75"}, trials=5)
    models = [config.model for config in train.configs]
    assert models[0] == ToyModel(size=10, rate=0.5)  # the defaults of ToyModel
    assert len({(model.size, model.rate) for model in models}) == 5
    # not where one of them is not among what is tried
    train = ToyTraining(size)
    search(train, tmp_path / "out", {"size": [30, 20, 10], "rate": [0.25, 0.75]}, trials=3)
    assert all(config.model.rate != 0.5 for config in train.configs)


def test_halving_keeps_the_best(tmp_path: Path) -> None:
    train = ToyTraining(size)
    tuned = search(train, tmp_path / "out", {"size": "100..999"}, trials=9, rounds=3, factor=3)
    by_size = sorted(config.model.size for config in train.configs[:9])
    # 9 trials of one epoch, the best 3 of 3, the best of 9
    assert [config.training.epochs for config in train.configs] == [1] * 9 + [3] * 3 + [9]
    assert sorted(config.model.size for config in train.configs[9:12]) == by_size[:3]
    assert train.configs[12].model.size == by_size[0] == tuned.best.settings["model.size"]
    assert (tuned.best.round, tuned.best.score) == (3, by_size[0])
    assert [outcome.settings["model.size"] for outcome in tuned.ranking()][:3] == by_size[:3]
    assert [outcome.round for outcome in tuned.ranking()] == [3, 2, 2, *[1] * 6]
    # of a score that is no perplexity, more is better
    train = ToyTraining(size)
    search(train, tmp_path / "other", {"size": "100..999"}, trials=9, rounds=3, score="dev_toy")
    assert sorted(config.model.size for config in train.configs[9:12]) == by_size[:3]
    # a limit of time is shared in place of epochs
    train, timed = ToyTraining(size), {"time_limit": "6m"}
    search(train, tmp_path / "timed", {"size": [4, 5]}, rounds=2, factor=2, training=timed)
    assert [config.training.time_limit for config in train.configs] == [180.0, 180.0, "6m"]


@pytest.mark.parametrize("stop_at", [(3,), (6,), (1, 4)])
def test_a_search_that_was_stopped_goes_on(tmp_path: Path, stop_at: tuple[int, ...]) -> None:
    space: dict[str, Any] = {"model.size": "100..999", "rate": [0.5, 0.25], "cutoffs": [None, [4]]}
    more = {"trials": 4, "rounds": 2, "factor": 2}
    whole = search(ToyTraining(size), tmp_path / "whole", space, **more)
    train = ToyTraining(size, stop_at)
    for _ in stop_at:
        with pytest.raises(Interrupted):
            search(train, tmp_path / "out", space, **more)
    tuned = search(train, tmp_path / "out", space, **more)
    assert tuned.outcomes == whole.outcomes
    assert from_dict(ToyConfig, load_yaml(tmp_path / "out" / "best.yaml")) == tuned.config
    files = [tmp_path / name / "best.yaml" for name in ("out", "whole")]
    assert files[0].read_text() == files[1].read_text()
    # what was stopped was continued, and nothing was done twice
    assert [number for number, call in enumerate(train.calls, 1) if call["resume"]] == [
        number + 1 for number in stop_at
    ]
    assert len(train.calls) == 4 + 2 + len(stop_at)
    assert [call["data"] for call in train.calls if call["resume"]] == [None] * len(stop_at)
    # said once more, it has nothing left to do; more trials add to it
    again = search(train, tmp_path / "out", space, **more)
    assert (again.outcomes, len(train.calls)) == (whole.outcomes, 6 + len(stop_at))
    more["trials"] = 6
    assert len(search(train, tmp_path / "out", space, **more).outcomes) >= 6 + 2


def test_more_trials_do_not_lose_the_best(tmp_path: Path) -> None:
    """Short trainings mislead: what they keep out of the last round may have been best in it."""

    def formula(config: ToyConfig) -> float:
        is_whole = config.training.epochs == 9
        if config.model.size == train.configs[0].model.size:
            return 1.0 if is_whole else 90.0
        return config.model.size / 10 + (50.0 if is_whole else 0.0)

    train, space = ToyTraining(formula), {"size": [1, 2, 3]}
    first = search(train, tmp_path, space, trials=1, rounds=2, factor=2)
    more = search(train, tmp_path, space, trials=3, rounds=2, factor=2)
    assert len([one for one in more.outcomes if one.round == 2]) == 2
    assert first.best.score == more.best.score == 1.0


@pytest.mark.parametrize("kind", [TrainingError, DataError])
def test_trials_that_fail_come_last(tmp_path: Path, kind: type[SeqtoolError]) -> None:
    def formula(config: ToyConfig) -> float:
        if config.model.size > 15:
            raise kind("too large", hint="any")
        return config.model.size

    tuned = search(ToyTraining(formula), tmp_path / "some", {"size": [12, 20, 11]}, rounds=2)
    assert tuned.best.settings == {"model.size": 11}
    assert [outcome.score for outcome in tuned.ranking()] == [11, 12, None]
    assert tuned.ranking()[-1].problem == "too large"
    with pytest.raises(kind, match="too large"):  # nothing could be trained
        search(ToyTraining(formula), tmp_path / "all", {"size": [20, 21]})


def test_another_search_is_not_replaced(tmp_path: Path) -> None:
    output, train = tmp_path / "out", ToyTraining(size)
    search(train, output, {"size": [2, 3]})
    changes: list[tuple[Any, dict[str, Any]]] = [
        ({"size": [2, 4]}, {}),
        ({"size": [2, 3]}, {"seed": 2}),
        ({"size": [2, 3]}, {"training": {"epochs": 8}}),
        ({"size": [2, 3]}, {"dev": "other"}),
        ({"size": [2, 3]}, {"data": "other"}),
    ]
    for space, more in changes:
        with pytest.raises(OutputError, match="holds another search"):
            search(train, output, space, **more)
    # where it is computed is not of the search
    search(train, output, {"size": [2, 3]}, threads=2, should_stop=None)
    assert len(train.calls) == 2
    tuned = search(train, output, {"size": [1, 4]}, force=True)
    assert (tuned.best.score, len(train.calls)) == (1, 4)
    (output / "tune.json").write_text('{"about": 1}')
    with pytest.raises(OutputError, match="damaged"):
        search(train, output, {"size": [1, 4]})
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("two years")
    with pytest.raises(OutputError, match="is no search"):
        search(train, tmp_path / "mine", {"size": [2, 3]}, force=True)
    assert (tmp_path / "mine" / "thesis.txt").exists()


@pytest.mark.parametrize(
    ("space", "more", "message"),
    [
        ({}, {}, "nothing is to be tried"),
        ({"sise": [1]}, {}, "unknown setting sise"),
        ({"size": [1], "model.size": [2]}, {}, "model.size is named twice"),
        ({"size": [12, 13]}, {}, "can have size=13: .*unlucky"),
        ({"size": ["a"]}, {}, "must be a whole number"),
        *(({"size": bad}, {}, "no values") for bad in ("7..3", "0..1:log", "{", 5, [])),
        ({"size": [1]}, {"trials": 0}, "trials is 0"),
        ({"size": [1]}, {"factor": 1.0}, "factor is 1"),
        ({"epochs": [1, 2]}, {"training": {"time_limit": "6m"}}, "a time limit takes the place"),
    ],
)
def test_mistakes_are_found_before_anything_is_trained(
    tmp_path: Path, space: Any, more: dict[str, Any], message: str
) -> None:
    train = ToyTraining(size)
    with pytest.raises(SeqtoolError, match=message) as caught:
        search(train, tmp_path / "out", space, **more)
    assert caught.value.hint
    assert not train.calls
    assert not (tmp_path / "out" / "tune.json").exists()


def test_epochs_of_a_small_treebank_are_searched_and_halved_like_others(tmp_path: Path) -> None:
    """Of a parser, `small_epochs` count in place of `training.epochs` that nobody gave."""
    found: list[tuple[int, int]] = []

    def train(
        data: Any, output: Path, config: ParserConfig, *, resume: bool, **more: Any
    ) -> TrainedModel:
        output.mkdir(parents=True, exist_ok=True)
        (output / "run.json").write_text("{}")
        found.append((config.training.epochs, config.learning.small_epochs))
        return TrainedModel(
            output, {"dev_las": config.model.hidden_size}, 1.0, 1, 1, "float32", 1.0
        )

    config = from_dict(ParserConfig, {"training": {"epochs": 8}, "learning": {"small_epochs": 16}})
    tune(train, "x", config, {"training.epochs": [1, 2]}, output=tmp_path / "e", score="dev_las")  # type: ignore[arg-type]
    assert sorted(found) == [(1, 0), (2, 0)]
    found.clear()
    space = {"model.hidden_size": [4, 6]}
    tune(train, "x", config, space, output=tmp_path / "r", score="dev_las", rounds=2, factor=2)  # type: ignore[arg-type]
    assert found == [(4, 8), (4, 8), (8, 16)]
