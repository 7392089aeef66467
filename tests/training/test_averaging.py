"""When averaged SGD begins to average, and rates that a task scales, in whole runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from toy_tasks import NUM_STEPS, ToyTask
from training.test_loop import assert_same_run, record, run, state

from seqtool.training import loop
from seqtool.training.config import TrainingConfig
from seqtool.training.loop import _Loop
from seqtool.training.state import RunState

# with a trigger of 2, epoch 5 is the first that is worse than the best before the last two
SCORES = [5.0, 4.0, 4.5, 3.9, 4.6, 3.8, 3.7]
TRIGGERED = {"optimiser": "asgd", "asgd_trigger": 2, "learning_rate": 0.5, "epochs": 7}


@pytest.fixture(autouse=True)
def every_step_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "REPORT_SECONDS", 0.0)


class Watching(ToyTask):
    """Keeps the weights that every step begins with."""

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self.weights: list[Tensor] = []

    def loss(self, index: int) -> tuple[Tensor, int]:
        if torch.is_grad_enabled():  # not when a state is judged before it is saved
            self.weights.append(self.module.linear.weight.detach().clone())
        return super().loss(index)


def test_averaging_begins_after_the_epoch_that_triggers_it(tmp_path: Path) -> None:
    task = Watching(scripted=SCORES)
    run(tmp_path, task, **TRIGGERED)
    assert record(tmp_path)["averaging_since"] == 5 * NUM_STEPS
    after = [*task.weights[1:], state(tmp_path)["module.linear.weight"]]
    for epoch, validated in enumerate(task.validated):
        steps = slice(5 * NUM_STEPS, (epoch + 1) * NUM_STEPS)
        expected = torch.stack(after[steps]).mean(dim=0) if epoch >= 5 else after[steps.stop - 1]
        torch.testing.assert_close(validated, expected, rtol=1e-6, atol=1e-7)
    plain = Watching(scripted=SCORES)
    run(tmp_path / "sgd", plain, optimiser="sgd", learning_rate=0.5, epochs=7)
    for one, other in zip(task.weights, plain.weights, strict=True):
        torch.testing.assert_close(one, other)  # what is trained is plain SGD throughout


def test_without_a_trigger_nothing_is_averaged(tmp_path: Path) -> None:
    task = Watching(scripted=[5.0, 4.0, 3.0])
    run(tmp_path, task, **{**TRIGGERED, "epochs": 3})
    assert record(tmp_path)["averaging_since"] is None
    assert task.validated[-1].equal(state(tmp_path)["module.linear.weight"])


@pytest.mark.parametrize("stop", [18, 5 * NUM_STEPS, 5 * NUM_STEPS + 1])
def test_a_run_stopped_around_the_trigger_continues_exactly(tmp_path: Path, stop: int) -> None:
    run(tmp_path / "whole", ToyTask(scripted=SCORES), **TRIGGERED)
    for resume, at in ((False, stop), (True, 26), (True, None)):
        task = ToyTask(scripted=SCORES)
        run(tmp_path / "parts", task, resume=resume, stop_at=at, **TRIGGERED)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def transcribed_trigger(scores: list[float], num_recent: int) -> int | None:
    """Merity, Keskar & Socher (2018), algorithm 1, with a check after each epoch.

    t counts the checks made before: if t > n and v > min over l in 0 .. t - n - 1 of logs[l].
    """
    logs: list[float] = []
    for t, score in enumerate(scores):
        if t > num_recent and score > min(logs[k] for k in range(t - num_recent)):
            return t
        logs.append(score)
    return None


@given(st.lists(st.integers(1, 9), max_size=12), st.integers(1, 5), st.booleans())
def test_the_trigger_is_that_of_the_paper(scores: list[int], num: int, larger: bool) -> None:
    loop = _Loop.__new__(_Loop)
    loop.task = SimpleNamespace(larger_is_better=larger)  # type: ignore[assignment]
    loop.config = TrainingConfig(optimiser="asgd", asgd_trigger=num)
    loop.run = RunState()
    begun: list[int] = []
    for epoch, score in enumerate(scores):
        loop.begin_averaging = lambda epoch=epoch: begun.append(epoch)  # type: ignore[method-assign]
        loop.watch_for_trigger(-score if larger else score)
    expected = transcribed_trigger([float(score) for score in scores], num)
    assert (begun[0] if begun else None) == expected


def test_the_rate_of_a_batch_is_scaled_by_its_task(tmp_path: Path) -> None:
    factors = (0.5, 1.0, 2.0, 0.0)
    task = Watching(scripted=[1.0], rate_factors=factors)
    settings = {"optimiser": "sgd", "learning_rate": 0.5, "epochs": 1, "clip_norm": 0.0}
    run(tmp_path, task, **settings)
    after = [*task.weights[1:], state(tmp_path)["module.linear.weight"]]
    steps = [new - old for old, new in zip(task.weights, after, strict=True)]
    whole = Watching(scripted=[1.0])
    run(tmp_path / "whole", whole, **settings)
    torch.testing.assert_close(steps[0], 0.5 * (whole.weights[1] - whole.weights[0]))
    assert not steps[3].any()
    assert steps[2].any()
