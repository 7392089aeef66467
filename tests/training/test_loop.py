from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor
from toy_tasks import NUM_STEPS, NUM_SYMBOLS, ToyTask

from seqtool.core.errors import ModelError, TrainingError
from seqtool.core.progress import Event, RunFinished, RunStarted
from seqtool.training import loop
from seqtool.training.config import Stage, TrainingConfig
from seqtool.training.loop import train

EPOCHS = 3
TOTAL = EPOCHS * NUM_STEPS
RUNS: dict[str, dict[str, Any]] = {
    "sgd": {"optimiser": "sgd", "learning_rate": 0.5, "momentum": 0.9},
    "adagrad": {"optimiser": "adagrad", "weight_decay": 0.01},
    "rmsprop": {"optimiser": "rmsprop", "momentum": 0.2},
    "adam": {"optimiser": "adam"},
    "adamw": {"optimiser": "adamw", "weight_decay": 0.1, "clip_norm": 0.1},
    "asgd": {"optimiser": "asgd", "learning_rate": 0.5, "average_after": 1},
    "sparse-adam": {"optimiser": "sgd", "embedding_optimiser": "sparse-adam"},
    "divide": {"schedule": "divide"},
    "step": {"schedule": "step", "schedule_every": 2, "clip_norm": 0.0},
    "plateau": {"schedule": "plateau", "learning_rate": 1.0},
    "cyclic": {"schedule": "cyclic", "optimiser": "asgd"},
    "one-cycle": {"schedule": "one-cycle"},
    "cosine": {"schedule": "cosine", "schedule_warmup": 0.3},
    "patience": {"patience": 1, "learning_rate": 1.0},
}


@pytest.fixture(autouse=True)
def every_step_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "REPORT_SECONDS", 0.0)


def run(
    directory: Path,
    task: ToyTask | None = None,
    *,
    resume: bool = False,
    stop_at: int | None = None,
    fingerprint: dict[str, Any] | None = None,
    stages: Sequence[Stage] = (),
    **settings: Any,
) -> list[Event]:
    """Train the toy task, until step `stop_at`; return the events."""
    config = TrainingConfig(**{"epochs": EPOCHS, **settings})
    task = task or ToyTask(sparse=config.embedding_optimiser == "sparse-adam")
    directory.mkdir(exist_ok=True)
    return list(
        train(
            task,
            config,
            directory,
            device="cpu",
            fingerprint=fingerprint or {"model": {"size": 3}},
            resume=resume,
            should_stop=lambda step: step == stop_at,
            stages=stages,
        )
    )


def state(directory: Path) -> dict[str, Tensor]:
    return load_file(directory / "last" / "state.safetensors")


def record(directory: Path) -> dict[str, Any]:
    """Where the run stands, without what depends on the clock."""
    content = json.loads((directory / "last" / "state.json").read_text())
    timing = {"seconds", "epoch_seconds", "log_bytes"}
    return {key: value for key, value in content["run"].items() if key not in timing}


def log(directory: Path, kind: str = "") -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (directory / "log.jsonl").read_text().splitlines()]
    return [line for line in lines if kind in ("", line["event"])]


def curve(directory: Path) -> list[tuple[Any, ...]]:
    """What the log says of every step and epoch, without what depends on the clock."""
    names = ("event", "epoch", "step", "loss", "learning_rate", "scores", "is_best", "gradients")
    return [
        tuple(line.get(name) for name in names)
        for line in log(directory)
        if line["event"] in ("step", "epoch")
    ]


def assert_same_run(one: Path, other: Path) -> None:
    """Both ended with the same weights, optimiser, random state, record, log and model."""
    first, second = state(one), state(other)
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert value.equal(second[name]), name
    assert record(one) == record(other)
    assert curve(one) == curve(other)
    model, other_model = (load_file(path / "weights.safetensors") for path in (one, other))
    assert model.keys() == other_model.keys()
    assert all(value.equal(other_model[name]) for name, value in model.items())
    assert not (one / "best").exists()
    assert not (other / "best").exists()


@pytest.mark.parametrize("name", RUNS)
def test_a_stopped_run_continues_exactly(tmp_path: Path, name: str) -> None:
    run(tmp_path / "whole", **RUNS[name])
    # stopped before the first step, within the first epoch, at its end, and once more
    for number, stops in enumerate([(0, 3), (NUM_STEPS,), (5, 6, 11)]):
        path = tmp_path / str(number)
        for resumed, stop in enumerate(stops):
            events = run(path, resume=resumed > 0, stop_at=stop, **RUNS[name])
            if name == "patience" and stop == 11:
                continue  # it had ended before
            assert isinstance(events[-1], RunFinished)
            assert (events[-1].reason, events[-1].step) == ("interrupted", stop)
        run(path, resume=True, **RUNS[name])
        assert_same_run(tmp_path / "whole", path)


@pytest.mark.parametrize("stop_at", [2, 2 * NUM_STEPS, 2 * NUM_STEPS + 1])
def test_the_schedule_goes_over_each_stage_once(tmp_path: Path, stop_at: int) -> None:
    stages = (Stage(2), Stage(1, rate=0.5))
    settings: dict[str, Any] = {"schedule": "cosine", "learning_rate": 0.4, "stages": stages}
    task = ToyTask()
    started = run(tmp_path / "whole", task, **settings)[0]
    assert isinstance(started, RunStarted)
    assert (started.epochs, started.total_steps) == (3, 3 * NUM_STEPS)
    rates = [line["learning_rate"] for line in log(tmp_path / "whole", "step")]
    places = [
        (stage, step / (stage.epochs * NUM_STEPS))
        for stage in stages
        for step in range(stage.epochs * NUM_STEPS)
    ]
    assert rates == pytest.approx(
        [0.4 * stage.rate * 0.5 * (1 + math.cos(math.pi * done)) for stage, done in places]
    )
    assert task.progress == pytest.approx([done for _, done in places])
    run(tmp_path / "parts", stop_at=stop_at, **settings)
    run(tmp_path / "parts", resume=True, **settings)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


DYING = """
import pathlib, sys
from crashes import deaths, dies_at
from training.test_loop import assert_same_run, run
from seqtool.training import loop
from seqtool.training import state as saved_state
from seqtool.training.config import Stage, TrainingConfig
from seqtool.training.optimisers import Optimisers
from toy_tasks import ToyTask
loop.REPORT_SECONDS = 0.0
# what torch imports at the first step, so that not every child does; no autograd before a fork
module = ToyTask().module
module.linear.weight.grad = module.linear.weight.detach().clone()
Optimisers(module, TrainingConfig(optimiser="asgd")).step(0.1)
folder = pathlib.Path(sys.argv[1])
settings = dict(epochs=2, save_minutes=1e-9, optimiser="asgd", learning_rate=0.5)
assert not dies_at(10**6, lambda: run(folder / "whole", **settings))
(folder / "run").mkdir()
act = lambda: run(folder / "run" / "x", **settings)
*left, whole = deaths(folder / "run", act, int(sys.argv[2]))
assert_same_run(folder / "whole", whole / "x")
for path in (folder / "x" for folder in left):
    path.mkdir(exist_ok=True)
    assert not dies_at(10**6, lambda: run(path, resume=True, **{**settings, "save_minutes": 9.0}))
    assert_same_run(folder / "whole", path)
    names = sorted(item.name for item in path.iterdir())
    assert names == ["last", "log.jsonl", "weights.safetensors"], names
print(len(left))
"""


def test_a_killed_run_continues_exactly(tmp_path: Path) -> None:
    """It dies at file operations all over the run: within saves, promotions and the log."""
    process = subprocess.run(
        [sys.executable, "-c", DYING, str(tmp_path), "5"],
        env={**os.environ, "PYTHONPATH": f"{Path(__file__).parents[1]}:{Path(__file__).parent}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert int(process.stdout) > 30


def finish(events: list[Event]) -> RunFinished:
    (finished,) = (event for event in events if isinstance(event, RunFinished))
    return finished


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_best_epoch_stays_the_model(tmp_path: Path, sign: float) -> None:
    """Also in a continuation none of whose epochs is better; an equal one is not."""
    scores = [sign * score for score in (3.0, 1.0, 2.0, 1.0, 4.0, 0.5, 6.0)]
    best: list[Tensor] = []
    for epochs in (3, 5, 7):
        task = ToyTask(scripted=scores)
        task.larger_is_better = sign < 0
        finished = finish(run(tmp_path, task, epochs=epochs, resume=epochs > 3))
        best += task.validated[1:2] if epochs == 3 else task.validated[:1] if epochs == 7 else []
        model = load_file(tmp_path / "weights.safetensors")["linear.weight"]
        assert model.equal(best[-1])
        assert finished.best_epoch == (6 if epochs == 7 else 2)
        assert finished.best_scores == {"valid_error": scores[finished.best_epoch - 1]}


def test_early_stopping_counts_epochs_without_improvement(tmp_path: Path) -> None:
    scores = [5.0, 4.0, 4.5, 3.0, 3.5, 3.4, 3.3, 1.0]
    # stopped is stopped: resuming makes no further step; more patience goes on
    for patience, *expected in (
        (3, "stopped early", 7, 4),
        (3, "stopped early", 7, 4),
        (4, "finished", 8, 8),
    ):
        task = ToyTask(scripted=scores)
        end = finish(run(tmp_path, task, epochs=8, patience=patience, resume=True))
        assert [end.reason, end.epoch, end.best_epoch] == expected


def test_the_rate_is_divided_on_plateaus(tmp_path: Path) -> None:
    scores = [5.0, 4.0, 4.5, 4.5, 3.0, 3.1, 3.2, 3.3, 3.4]
    settings = {"schedule": "plateau", "learning_rate": 8.0, "optimiser": "sgd", "epochs": 9}
    run(tmp_path / "1", ToyTask(scripted=scores), **settings)
    # no improvement in epochs 3, 4, 6, 7 and 8: the epochs after them are slower
    expected = [8.0, 8.0, 8.0, 4.0, 2.0, 2.0, 1.0, 0.5, 0.25]
    assert [line["learning_rate"] for line in log(tmp_path / "1", "epoch")] == expected
    run(tmp_path / "2", ToyTask(scripted=scores), plateau_patience=2, **settings)
    expected = [8.0, 8.0, 8.0, 8.0, 4.0, 4.0, 4.0, 2.0, 2.0]
    assert [line["learning_rate"] for line in log(tmp_path / "2", "epoch")] == expected


@pytest.mark.parametrize(
    ("number", "step"), [(signal.SIGINT, 7), (signal.SIGTERM, 7), (signal.SIGINT, 8)]
)
def test_a_signal_saves_and_stops(tmp_path: Path, number: signal.Signals, step: int) -> None:
    """The step that runs when it comes is finished, and so is the validation after step 8."""

    class Signalled(ToyTask):
        def loss(self, index: int) -> tuple[Tensor, int]:
            if (self._epoch, index, step) == (1, 2, 7):
                os.kill(os.getpid(), number)
            return super().loss(index)

        def validate(self) -> dict[str, float]:
            if (self._epoch, step) == (1, 8):
                os.kill(os.getpid(), number)
            return super().validate()

    before = signal.getsignal(number)
    events = run(tmp_path / "stopped", Signalled())
    assert signal.getsignal(number) is before
    assert (finish(events).reason, finish(events).step) == ("interrupted", step)
    run(tmp_path / "stopped", resume=True)
    run(tmp_path / "whole")
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


def test_a_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
    class Impatient(ToyTask):
        def loss(self, index: int) -> tuple[Tensor, int]:
            if self._epoch == 1:
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGINT)
                pytest.fail("not stopped at once")
            return super().loss(index)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", Impatient())
    assert signal.getsignal(signal.SIGINT) is before
    run(tmp_path / "stopped", resume=True)
    run(tmp_path / "whole")
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


def is_finite(directory: Path) -> bool:
    return all(
        bool(value.isfinite().all())
        for name, value in state(directory).items()
        if value.is_floating_point()
    )


def test_weights_that_are_not_finite_are_never_saved(tmp_path: Path) -> None:
    """A gradient is not a number, that of a symbol which the next batch does not have."""

    class BadGradient(ToyTask):
        def loss(self, index: int) -> tuple[Tensor, int]:
            loss, num_items = super().loss(index)
            if self._epoch == 1 and index == 1:
                (absent, *_) = {*range(NUM_SYMBOLS)} - {*self._ids[2].tolist()}
                loss = loss + (self.module.embedding.weight[absent] * 0.0).sum().sqrt()
            return loss, num_items

    with pytest.raises(TrainingError, match="weights are no longer finite after step 6"):
        run(tmp_path, BadGradient(), save_minutes=1e-9, clip_norm=0.0)
    assert record(tmp_path)["step"] == 5
    assert is_finite(tmp_path)


@pytest.mark.parametrize(
    ("factor", "words", "step"),
    [
        (math.nan, "the loss is not a number", 1),
        (math.inf, "the loss is infinite", 6),
        (1e6, "the loss exploded to", 11),
    ],
)
def test_a_bad_loss_stops_and_names_its_step(
    tmp_path: Path, factor: float, words: str, step: int
) -> None:
    with pytest.raises(TrainingError) as caught:
        run(tmp_path, ToyTask(factors={step: factor}), save_minutes=1e-9)
    assert caught.value.message.startswith(words)
    assert caught.value.message.endswith(f" at step {step} (epoch {1 + (step - 1) // NUM_STEPS})")
    assert is_finite(tmp_path)
    assert record(tmp_path)["step"] < step
    # it goes on from there at a lower rate
    events = run(tmp_path, resume=True, learning_rate=1e-4)
    assert finish(events).reason == "finished"


def test_norms_of_gradients_are_logged(tmp_path: Path) -> None:
    run(tmp_path / "whole", clip_norm=0.3)
    # of each step: what is above 0.3 is clipped to it
    norms = [line["gradients"] for line in log(tmp_path / "whole", "step")]
    assert 0 < sum(norm["clipped"] for norm in norms) < TOTAL
    for norm in norms:
        assert norm["clipped_norm"] == pytest.approx(min(norm["norm"], 0.3))
        assert norm["clipped"] == (norm["norm"] > 0.3)


@pytest.mark.parametrize("score", [math.nan, math.inf])
def test_a_validation_that_is_not_finite_stops(tmp_path: Path, score: float) -> None:
    with pytest.raises(TrainingError, match=r"after step 8 \(epoch 2\)"):
        run(tmp_path, ToyTask(scripted=[1.0, score, 1.0]))
    assert record(tmp_path)["step"] == NUM_STEPS
    assert (tmp_path / "best" / "weights.safetensors").is_file()
    assert finish(run(tmp_path, resume=True)).reason == "finished"


def test_another_configuration_is_refused_by_name(tmp_path: Path) -> None:
    before = {"model": {"size": 3, "cell": "rnn"}, "shape": (1, 2)}
    run(tmp_path, stop_at=2, fingerprint=before)
    saved = state(tmp_path)
    changed = {"model": {"size": 4, "cell": "rnn"}, "shape": (1, 2), "corpus": "x"}
    with pytest.raises(ModelError) as caught:
        run(tmp_path, resume=True, fingerprint=changed)
    assert (
        caught.value.message == "the run differs: corpus was None, not x; model.size was 3, not 4"
    )
    assert caught.value.path == str(tmp_path / "last")
    assert all(value.equal(saved[name]) for name, value in state(tmp_path).items())
    assert finish(run(tmp_path, resume=True, fingerprint=before)).reason == "finished"


def test_a_model_is_not_trained_anew_where_the_state_of_its_run_is_gone(tmp_path: Path) -> None:
    run(tmp_path)
    (tmp_path / "model.json").touch()  # which every model has but a toy's
    model = tmp_path / "weights.safetensors"
    before, log_before = model.read_bytes(), log(tmp_path)
    shutil.rmtree(tmp_path / "last")
    with pytest.raises(ModelError, match="no longer there") as caught:
        run(tmp_path, resume=True, epochs=9)
    assert caught.value.path == str(tmp_path / "last")
    assert (model.read_bytes(), log(tmp_path)) == (before, log_before)


@pytest.mark.parametrize("name", ["state.json", "state.safetensors"])
def test_a_damaged_state_is_told(tmp_path: Path, name: str) -> None:
    run(tmp_path, stop_at=2)
    path = tmp_path / "last" / name
    whole = path.read_bytes()
    for position in (*range(0, len(whole), len(whole) // 20), len(whole) - 1):
        flipped = bytes([whole[position] ^ 1])
        for damaged in (whole[:position] + flipped + whole[position + 1 :], whole[:position]):
            path.write_bytes(damaged)
            with pytest.raises(ModelError) as caught:
                run(tmp_path, resume=True)
            assert caught.value.message.startswith(
                ("the saved state is damaged", "made by another")
            )
    path.unlink()
    with pytest.raises(ModelError, match="the saved state is damaged"):
        run(tmp_path, resume=True)
    path.mkdir()  # as root may read every file, a directory stands for one that it may not
    with pytest.raises(ModelError, match="cannot be read: is a directory") as caught:
        run(tmp_path, resume=True)
    assert "--force" not in caught.value.hint


# averaged SGD

# with a trigger of 2, epoch 5 is the first that is worse than the best before the last two
SCORES = [5.0, 4.0, 4.5, 3.9, 4.6, 3.8, 3.7]
TRIGGERED = {"optimiser": "asgd", "asgd_trigger": 2, "learning_rate": 0.5, "epochs": 7}


class Watching(ToyTask):
    """Keeps the weights that every step begins with."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.weights: list[Tensor] = []

    def loss(self, index: int) -> tuple[Tensor, int]:
        self.weights.append(self.module.linear.weight.detach().clone())
        return super().loss(index)


@pytest.mark.parametrize(
    ("settings", "first"), [(TRIGGERED, 5), ({"optimiser": "asgd", "average_after": 1}, 1)]
)
def test_averages_are_validated_and_saved_but_not_trained(
    tmp_path: Path, settings: dict[str, Any], first: int
) -> None:
    common = {"learning_rate": 0.5, "epochs": 7, "clip_norm": 0.0}
    task, plain = Watching(scripted=SCORES), Watching(scripted=SCORES)
    run(tmp_path / "asgd", task, **{**settings, **common})
    assert record(tmp_path / "asgd")["averaging_since"] == first * NUM_STEPS
    after = [*task.weights[1:], state(tmp_path / "asgd")["module.linear.weight"]]
    for epoch, validated in enumerate(task.validated):
        steps = slice(first * NUM_STEPS, (epoch + 1) * NUM_STEPS)
        mean = torch.stack(after[steps]).mean(dim=0) if epoch >= first else after[steps.stop - 1]
        torch.testing.assert_close(validated, mean, rtol=1e-6, atol=1e-7)
    model = load_file(tmp_path / "asgd" / "weights.safetensors")["linear.weight"]
    assert model.equal(task.validated[-1])
    run(tmp_path / "sgd", plain, optimiser="sgd", **common)
    torch.testing.assert_close(task.weights, plain.weights)  # what is trained is plain SGD


@pytest.mark.parametrize("stop", [18, 5 * NUM_STEPS, 5 * NUM_STEPS + 1])
def test_a_run_stopped_around_the_trigger_continues_exactly(tmp_path: Path, stop: int) -> None:
    run(tmp_path / "whole", ToyTask(scripted=SCORES), **TRIGGERED)
    for resume, at in ((False, stop), (True, 26), (True, None)):
        task = ToyTask(scripted=SCORES)
        run(tmp_path / "parts", task, resume=resume, stop_at=at, **TRIGGERED)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


@given(st.lists(st.integers(1, 9), max_size=12), st.integers(1, 5), st.booleans())
def test_the_trigger_is_that_of_the_paper(scores: list[float], num: int, larger: bool) -> None:
    """Merity, Keskar & Socher (2018), algorithm 1: if t > n and v > min of logs[0 .. t - n - 1]."""
    for t, score in enumerate(scores):
        expected = t > num and score > min(scores[k] for k in range(t - num))
        earlier = [-one if larger else one for one in scores[:t]]
        assert loop.is_triggered(earlier, -score if larger else score, num, larger) == expected


def test_the_rate_of_a_batch_is_scaled_by_its_task(tmp_path: Path) -> None:
    task = Watching(scripted=[1.0], rate_factors=(0.5, 1.0, 2.0, 0.0))
    whole = Watching(scripted=[1.0])
    settings = {"optimiser": "sgd", "learning_rate": 0.5, "epochs": 1, "clip_norm": 0.0}
    run(tmp_path / "scaled", task, **settings)
    run(tmp_path / "whole", whole, **settings)
    steps = [new - old for old, new in itertools.pairwise(task.weights)]
    torch.testing.assert_close(steps[0], 0.5 * (whole.weights[1] - whole.weights[0]))
    assert steps[2].any()
    assert state(tmp_path / "scaled")["module.linear.weight"].equal(task.weights[3])
