"""Processes that share the streams of a batch train as one process with all of them does."""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from process_groups import together
from safetensors.torch import load_file, save_file

from seqtool.core import checkpoint
from seqtool.core.config import from_dict
from seqtool.core.errors import ConfigError, Interrupted, ModelError, SeqtoolError, TrainingError
from seqtool.core.progress import EpochDone, Event
from seqtool.lm.neural.config import NeuralLMConfig
from seqtool.lm.neural.train import LanguageModelTask, TrainedLM, train_lm
from seqtool.text.prepared import PreparedCorpus
from seqtool.training import loop
from seqtool.training.hardware import ALONE, Group, joined

# the NumPy loop of rhn, the loop for masked states, shared weights, odd sizes
MODELS: dict[str, dict[str, Any]] = {
    "lstm": {"cell": "lstm"},
    "gru, tied": {"cell": "gru", "tied": True, "layers": 2, "connection": "residual"},
    "rnn": {"cell": "rnn", "embedding_size": 3},
    "rhn, tied": {"cell": "rhn", "depth": 3, "tied": True, "layers": 2, "connection": "highway"},
    "rhn": {"cell": "rhn", "depth": 2, "carry": "separate"},
    "window": {"cell": "window", "connection": "dense", "layers": 2},
    # clusters of some letters, of one, and of <unk>, which no process ever sees
    "adaptive": {"output": {"layer": "adaptive", "cutoffs": [3, 6, 7]}},
    "adaptive, tied": {"output": {"layer": "adaptive", "cutoffs": [2, 4]}, "tied": True},
}


def config(model: dict[str, Any], **training: Any) -> NeuralLMConfig:
    return from_dict(
        NeuralLMConfig,
        {
            "model": {"hidden_size": 6, **model},
            "data": {"batch_size": 4, "bptt": 7, "eval_batch_size": 3},
            "training": {"epochs": 2, "optimiser": "sgd", "learning_rate": 0.5, **training},
        },
    )


def of(name: str) -> NeuralLMConfig:
    return config(MODELS[name])


def gradients(group: Group, corpus: PreparedCorpus, name: str) -> dict[str, torch.Tensor]:
    """Mean loss, gradients of the third window, and perplexity, in float64."""
    task = LanguageModelTask(corpus, of(name), device="cpu", group=group)
    task.module.double()
    task.start_epoch(0)
    loss = group.parallel(task.module, task.loss)
    for index in range(3):
        task.module.zero_grad()
        value, num_items = loss(index)
        value.backward()
    total, items = group.totals([float(value.detach()) * num_items, num_items])
    found = {"loss": torch.tensor(total / items, dtype=torch.float64)}
    for key, parameter in task.module.named_parameters():
        assert parameter.grad is not None
        found[key] = parameter.grad.to_dense().contiguous()
    task.module.eval()
    with torch.no_grad():
        perplexity = task.validate()["valid_perplexity"]
    return {**found, "perplexity": torch.tensor(perplexity, dtype=torch.float64)}


def test_gradients_are_those_of_the_joint_batch(tmp_path: Path, corpus: PreparedCorpus) -> None:
    def action(rank: int) -> None:
        with joined("cpu") as group:
            for name in MODELS:
                save_file(gradients(group, corpus, name), tmp_path / f"{name}-{rank}")

    together(tmp_path, action)
    for name in MODELS:
        expected = gradients(ALONE, corpus, name)
        assert len(expected) > 4
        for rank in (0, 1):
            found = load_file(tmp_path / f"{name}-{rank}")
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-13)


def weights(path: Path) -> dict[str, torch.Tensor]:
    return load_file(path / checkpoint.WEIGHTS)


def state(path: Path) -> dict[str, torch.Tensor]:
    return load_file(path / "last" / "state.safetensors")


def losses(path: Path) -> list[float]:
    lines = [json.loads(line) for line in (path / "log.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["event"] in ("step", "epoch")]


@pytest.mark.parametrize("name", ["lstm", "rhn"])
def test_training_is_that_of_one_process(
    tmp_path: Path, corpus: PreparedCorpus, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "REPORT_SECONDS", 0.0)

    def action(rank: int) -> tuple[dict[str, float], int]:
        events: list[Event] = []
        trained = train_lm(corpus, tmp_path / "two", of(name), on_event=events.append)
        perplexity = trained.scores["valid_perplexity"]
        assert len([event for event in events if isinstance(event, EpochDone)]) == 2 * (rank == 0)
        return perplexity

    one = train_lm(corpus, tmp_path / "one", of(name))
    first, second = together(tmp_path, action)
    assert first == second
    assert math.isclose(float(first), one.scores["valid_perplexity"], rel_tol=1e-5)
    torch.testing.assert_close(
        weights(tmp_path / "two"), weights(tmp_path / "one"), rtol=1e-4, atol=1e-6
    )
    ours, theirs = losses(tmp_path / "two"), losses(tmp_path / "one")
    assert len(ours) == len(theirs) > 10
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    header, other = (checkpoint.read_header(tmp_path / folder) for folder in ("two", "one"))
    assert header.num_parameters == other.num_parameters
    assert header.scores.keys() == other.scores.keys()


DROPPING = {"cell": "rhn", "depth": 2, "dropout_input": 0.3, "dropout_state": 0.2}


def stopped(
    corpus: PreparedCorpus, path: Path, stop: Callable[[int], bool] | None, *, resume: bool
) -> TrainedLM | str:
    try:
        settings = config(DROPPING, optimiser="adam", learning_rate=0.01)
        return train_lm(None if resume else corpus, path, settings, resume=resume, should_stop=stop)
    except Interrupted as error:
        return str(error)


def signalled_at(step: int) -> Callable[[int], bool]:
    """As Ctrl-C or torchrun does it: the loop hears of it before the next step."""

    def signal_then(now: int) -> bool:
        if now == step - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return False

    return signal_then


def test_a_stopped_run_continues_exactly(tmp_path: Path, corpus: PreparedCorpus) -> None:
    def whole(rank: int) -> None:
        stopped(corpus, tmp_path / "whole", None, resume=False)

    def pieces(rank: int) -> list[object]:
        path = tmp_path / "pieces"
        # the second process gets a signal, then the first is told to stop: both do
        return [
            stopped(corpus, path, signalled_at(4) if rank else None, resume=False),
            stopped(corpus, path, lambda step: rank == 0 and step >= 9, resume=True),
            stopped(corpus, path, None, resume=True).path.name,  # type: ignore[union-attr]
        ]

    together(tmp_path, whole)
    told = [f"the run was interrupted at step {step}; the state is saved" for step in (4, 9)]
    assert together(tmp_path, pieces) == [str([*told, "pieces"])] * 2
    expected, found = state(tmp_path / "whole"), state(tmp_path / "pieces")
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert value.equal(found[name]), name
    # each has drawn masks of its own
    assert not expected["random.cpu"].equal(expected["rank1.random.cpu"])
    assert not expected["carried.0.0"].equal(expected["rank1.carried.0.0"])


def test_another_number_of_processes_is_refused(tmp_path: Path, corpus: PreparedCorpus) -> None:
    def begin(rank: int) -> object:
        return stopped(corpus, tmp_path / "two", lambda step: step == 2, resume=False)

    def resume(rank: int) -> str:
        with pytest.raises(ModelError) as caught:
            stopped(corpus, tmp_path / "one", None, resume=True)
        return f"{caught.value.message}; {caught.value.hint}"

    together(tmp_path, begin)
    with pytest.raises(ModelError, match="trained by 2 processes, not by 1") as caught:
        stopped(corpus, tmp_path / "two", None, resume=True)
    assert caught.value.hint.startswith("resume it with torchrun --nproc-per-node 2")
    stopped(corpus, tmp_path / "one", lambda step: step == 2, resume=False)
    told = "the run was trained by one process, not by 2; resume it without torchrun, or start"
    assert all(text.startswith(told) for text in together(tmp_path, resume))


def test_what_fails_in_one_process_ends_all(
    tmp_path: Path, corpus: PreparedCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be shared, a text that one does not find, a loss that is no number."""

    def failure(rank: int, settings: NeuralLMConfig, path: Path | PreparedCorpus) -> str:
        with pytest.raises(SeqtoolError) as caught:
            train_lm(path, tmp_path / "failed", settings)
        assert not (tmp_path / "failed" / "model.json").exists()
        return f"{type(caught.value).__name__}: {caught.value.message}"

    def action(rank: int) -> list[str]:
        uneven = from_dict(NeuralLMConfig, {"data": {"batch_size": 3}})
        told = [
            failure(rank, uneven, corpus),
            failure(rank, config({"output": {"layer": "maxent"}}), corpus),
            failure(rank, of("lstm"), tmp_path / "none.txt" if rank == 0 else corpus),
        ]
        assert rank > 0 or not (tmp_path / "failed").exists()
        original = LanguageModelTask.loss

        def broken(task: LanguageModelTask, index: int) -> tuple[torch.Tensor, int]:
            loss, num_items = original(task, index)
            return loss * (math.nan if index == 3 and rank == 1 else 1.0), num_items

        monkeypatch.setattr(LanguageModelTask, "loss", broken)
        return [*told, failure(rank, of("lstm"), corpus)]

    told = [
        f"{ConfigError.__name__}: batch_size is 3, which 2 processes cannot share evenly",
        f"{ConfigError.__name__}: several processes cannot share a hash table of n-grams",
        "DataError: no such file or directory",
        f"{TrainingError.__name__}: the loss is not a number at step 4 (epoch 1)",
    ]
    assert together(tmp_path, action) == [str(told)] * 2
