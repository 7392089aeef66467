"""Regularisers of whole networks: where they act, what they share, and that evaluation is free."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from watched_networks import SHARE, Observed, assert_mean_is_one, batch, cells, make, mask_of

from seqtool.core.checkpoint import WEIGHTS
from seqtool.core.config import from_dict
from seqtool.core.errors import Interrupted
from seqtool.lm.neural.config import NeuralLMConfig
from seqtool.lm.neural.train import LanguageModelTask, train_lm
from seqtool.text.prepared import PreparedCorpus

# Sizes.


@pytest.mark.parametrize("connection", ["plain", "residual", "dense", "highway"])
@pytest.mark.parametrize(
    ("settings", "widths"),
    [
        ({"last_size": 4}, [6, 6, 4]),
        ({"projection_size": 3}, [3, 3, 3]),
        ({"projection_size": 3, "last_size": 5}, [3, 3, 3]),
        ({"cell": "gru", "last_size": 9}, [6, 6, 9]),
    ],
)
@pytest.mark.parametrize("tied", [False, True])
def test_widths_of_layers(
    settings: dict[str, Any], widths: list[int], connection: str, tied: bool
) -> None:
    network = make(hidden_size=6, layers=3, connection=connection, tied=tied, **settings)
    assert [cell.output_size for cell in cells(network)] == widths
    assert network.embedding.embedding_dim == (widths[-1] if tied else 6)
    hidden, states = network(batch(), network.initial_state(4))
    assert [state[0].shape[1] for state in states] == widths
    assert hidden.shape == (6, 4, widths[-1])
    network.softmax.loss(hidden.flatten(0, 1), batch().flatten()).backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


# Dropout.


def test_dropout_between_layers_has_a_share_of_its_own() -> None:
    settings = {"hidden_size": 40, "layers": 3, "dropout": "variational"}
    network = make(dropout_input=0.0, dropout_hidden=SHARE, **settings).train()
    seen = Observed(network, batch())
    assert torch.equal(seen.given[0][0], network.embedding(batch()))
    for layer in (1, 2):
        assert_mean_is_one(mask_of(seen.given[layer][0], seen.gave[layer - 1])[0])
    assert torch.equal(seen.hidden, seen.gave[2])
    only_first = make(dropout_input=SHARE, dropout_hidden=0.0, **settings).train()
    seen = Observed(only_first, batch())
    mask_of(seen.given[0][0], only_first.embedding(batch()))
    assert torch.equal(seen.given[1][0], seen.gave[0])


EVERYTHING: dict[str, Any] = {
    "dropout": "variational",
    "dropout_words": 0.2,
    "dropout_input": 0.2,
    "dropout_hidden": 0.3,
    "dropout_state": 0.2,
    "dropout_update": 0.2,
    "dropout_weights": 0.3,
    "dropout_output": 0.2,
    "activation_penalty": 2.0,
    "temporal_penalty": 1.0,
}


@pytest.mark.parametrize("cell", ["lstm", "gru", "rhn"])
def test_evaluation_knows_no_regulariser(cell: str) -> None:
    dropped = make(cell=cell, hidden_size=7, layers=2, **EVERYTHING)
    whole = make(cell=cell, hidden_size=7, layers=2)
    expected, _ = whole.eval()(batch(), whole.initial_state(4))
    hidden, _ = dropped.eval()(batch(), dropped.initial_state(4))
    assert torch.equal(hidden, expected)
    trained, _ = dropped.train()(batch(), dropped.initial_state(4))
    assert not torch.equal(trained, expected)


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru", "rhn", "window"])
def test_everything_in_half_precision(cell: str) -> None:
    unfit = {"rnn": ("update",), "window": ("update", "weights", "state")}.get(cell, ())
    settings = {**EVERYTHING, **{f"dropout_{name}": 0.0 for name in unfit}}
    network = make(cell=cell, hidden_size=8, layers=2, **settings).float().train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden, _ = network(batch(), network.initial_state(4))
        loss = network.softmax.loss(hidden.flatten(0, 1), batch().flatten())
    loss.backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


# Penalties and windows, in training.


def make_task(corpus: PreparedCorpus, **sections: dict[str, Any]) -> LanguageModelTask:
    values: dict[str, dict[str, Any]] = {
        "model": {"hidden_size": 6, **sections.get("model", {})},
        "data": {"batch_size": 3, "bptt": 12, **sections.get("data", {})},
        "training": sections.get("training", {}),
    }
    return LanguageModelTask(corpus, from_dict(NeuralLMConfig, values), device="cpu")


def gradients(task: LanguageModelTask) -> tuple[float, list[Tensor]]:
    torch.manual_seed(9)
    task.module.zero_grad()
    task.module.train()
    task.start_epoch(0)
    loss, _ = task.loss(0)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.item(), [p.grad for p in task.module.parameters() if p.grad is not None]


@pytest.mark.parametrize(("alpha", "beta"), [(2.0, 0.0), (0.0, 3.0), (2.0, 1.0)])
def test_penalties_are_in_the_gradient_and_not_in_the_perplexity(
    corpus: PreparedCorpus, alpha: float, beta: float
) -> None:
    settings = {"dropout_output": SHARE, "layers": 2}
    plain = make_task(corpus, model=settings)
    plain_loss, plain_gradients = gradients(plain)
    penalised = make_task(
        corpus, model={**settings, "activation_penalty": alpha, "temporal_penalty": beta}
    )
    loss, found = gradients(penalised)
    assert loss == plain_loss
    # alpha acts on the output with dropout, beta without it
    torch.manual_seed(9)
    network = plain.module
    inputs_TB, _ = plain._train.cut(0, 12)
    undropped_TBH, _ = network.run_layers(inputs_TB, network.initial_state(3))
    dropped_TBH = network.drop_output(undropped_TBH)
    squares = torch.stack([row.pow(2).mean() for row in dropped_TBH]).mean()
    changes = [(undropped_TBH[t + 1] - undropped_TBH[t]).pow(2).mean() for t in range(11)]
    network.zero_grad()
    (alpha * squares + beta * torch.stack(changes).mean()).backward()
    added = [
        torch.zeros_like(p) if p.grad is None else p.grad.to_dense() for p in network.parameters()
    ]
    for one, before, more in zip(found, plain_gradients, added, strict=True):
        torch.testing.assert_close(one.to_dense(), before.to_dense() + more, rtol=1e-4, atol=1e-7)
    for task in (penalised, plain):
        task.module.eval()
    with torch.no_grad():
        assert penalised.validate() == plain.validate()


def test_random_windows_read_the_text_once_with_their_rates(corpus: PreparedCorpus) -> None:
    even = make_task(corpus)
    task = make_task(corpus, data={"random_bptt": True})
    assert [even.rate_factor(index) for index in range(even.start_epoch(0))] == [1.0] * len(
        even._train
    )
    counts = set()
    for epoch in (0, 1, 2, 0):
        num_steps = task.start_epoch(epoch)
        lengths = []
        for index in range(num_steps):
            _, num_tokens = task.loss(index)
            lengths.append(num_tokens // 3)
            assert task.rate_factor(index) == pytest.approx(lengths[-1] / 12)
        assert sum(lengths) == task._train.length
        counts.add((epoch, *lengths))
    assert len(counts) == 3  # epoch 0 is drawn alike again, and the others differ


AWD = {
    "model": {
        **{key: value for key, value in EVERYTHING.items() if key != "dropout_update"},
        "hidden_size": 7,
        "layers": 2,
        "last_size": 5,
        "tied": True,
        "init": "units",
    },
    "data": {"batch_size": 3, "bptt": 12, "random_bptt": True},
    "training": {"epochs": 5, "optimiser": "asgd", "asgd_trigger": 1, "learning_rate": 20.0},
}
RHN = {
    "model": {
        **EVERYTHING,
        "dropout_rise": 0.7,
        "cell": "rhn",
        "depth": 2,
        "hidden_size": 7,
        "tied": True,
    },
    "data": {"batch_size": 3, "bptt": 12, "random_bptt": True},
    "training": {"epochs": 2, "schedule": "cosine"},
}


@pytest.mark.parametrize("values", [AWD, RHN], ids=["awd-lstm", "rhn"])
def test_a_stopped_run_continues_exactly(
    tmp_path: Path, corpus: PreparedCorpus, values: dict[str, Any]
) -> None:
    settings = from_dict(NeuralLMConfig, values)
    train_lm(corpus, tmp_path / "whole", settings)
    with pytest.raises(Interrupted):
        train_lm(corpus, tmp_path / "parts", settings, should_stop=lambda step: step == 5)
    if values is AWD:
        with pytest.raises(Interrupted):
            train_lm(output=tmp_path / "parts", resume=True, should_stop=lambda step: step == 30)
    train_lm(output=tmp_path / "parts", resume=True)
    run = json.loads((tmp_path / "parts" / "last" / "state.json").read_text())["run"]
    if values is AWD:
        assert 5 < run["averaging_since"] < 30 < run["step"]
    one, other = (load_file(tmp_path / name / WEIGHTS) for name in ("whole", "parts"))
    assert one.keys() == other.keys()
    assert all(value.equal(other[name]) for name, value in one.items())
