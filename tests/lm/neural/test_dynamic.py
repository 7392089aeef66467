"""Dynamic evaluation: against the formulas as a plain loop, and what must not change."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor
from toy_models import word_tokenizer

from seqtool.core.arrays import Ids
from seqtool.core.errors import ModelError
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.neural.config import DynamicConfig, ModelConfig, OutputConfig
from seqtool.lm.neural.dynamic import (
    DynamicLanguageModel,
    GradientStatistics,
    gradient_statistics,
    tune_dynamic,
)
from seqtool.lm.neural.model import NeuralLanguageModel
from seqtool.lm.neural.network import NeuralNetwork

WORDS = "abcdefg"
SIZE = len(WORDS) + 2
IDS = np.random.default_rng(1).integers(0, SIZE, 47).astype(np.int32)
CONFIG = DynamicConfig(rate=0.05, decay=0.1, segment=6, epsilon=0.01)
KINDS: list[dict[str, Any]] = [
    {"cell": "lstm", "tied": True},
    {"cell": "lstm", "layers": 2, "dropout_output": 0.5},
    {"cell": "rhn"},
    {"cell": "gru", "connection": "dense", "layers": 2},
    {"cell": "window"},
    {"cell": "rnn", "output": OutputConfig(layer="adaptive", cutoffs=(4, 6))},
    {"cell": "rnn", "output": OutputConfig(layer="nce", noise_samples=3)},
    {"cell": "rnn", "output": OutputConfig(layer="maxent", direct_order=2, direct_size=64)},
]


def make(**settings: Any) -> NeuralLanguageModel:
    torch.manual_seed(4)
    config = ModelConfig(**{"hidden_size": 5, "init_range": 0.6, **settings})
    counts = np.arange(SIZE, 0, -1)
    network = NeuralNetwork(config, SIZE, counts=counts).double()
    return NeuralLanguageModel(network, word_tokenizer(WORDS))


def statistics_of(model: NeuralLanguageModel) -> GradientStatistics:
    generator = torch.Generator().manual_seed(2)
    return GradientStatistics(
        tuple(
            torch.rand(weight.shape, generator=generator, dtype=weight.dtype)
            for weight in model.network.parameters()
        ),
        "text",
        100,
    )


def score(model: NeuralLanguageModel, *blocks: Ids) -> npt.NDArray[np.float64]:
    return np.concatenate([scores.log_probs for scores in model.score_ids(blocks)])


def log_probs(network: NeuralNetwork, inputs_T: Ids, targets_T: Ids, state: Any) -> tuple[Any, Any]:
    """Return the log-probabilities [T], taken from those of every symbol, and the state."""
    inputs_T1 = torch.from_numpy(inputs_T.astype(np.int64))[:, None]
    output = network.output(inputs_T1, state)
    hidden_T1H, state = network(inputs_T1, state)
    log_probs_TV = output.log_probs(hidden_T1H[:, 0])
    state = [tuple(part.detach() for part in layer) for layer in state]
    return log_probs_TV[torch.arange(len(targets_T)), torch.from_numpy(targets_T).long()], state


def naive(
    model: NeuralLanguageModel, rms: tuple[Tensor, ...], config: DynamicConfig, ids: Ids
) -> npt.NDArray[np.float64]:
    """Return the scores [N] by the equations of Krause et al. (2018, eq. 5 to 7)."""
    network = copy.deepcopy(model.network)
    weights = list(network.parameters())
    trained = [weight.detach().clone() for weight in weights]
    mean = torch.cat([part.flatten() for part in rms]).mean()
    inputs = np.concatenate(([EOS_ID], ids[:-1]))
    state = network.initial_state(1)
    scores = []
    for start in range(0, len(ids), config.segment):
        window = slice(start, start + config.segment)
        found_T, state = log_probs(network, inputs[window], ids[window], state)
        scores.append(found_T.detach().numpy())
        grads = torch.autograd.grad(-found_T.mean(), weights)
        with torch.no_grad():
            for weight, first, part, grad in zip(weights, trained, rms, grads, strict=True):
                back = config.decay * torch.clamp(part / mean, max=1 / config.decay)
                step = config.rate * grad.to_dense() / (part + config.epsilon)
                weight += back * (first - weight) - step
    return np.concatenate(scores)


@pytest.mark.parametrize("settings", KINDS, ids=str)
def test_is_the_plain_loop(settings: dict[str, Any]) -> None:
    model = make(**settings)
    statistics = statistics_of(model)
    before = copy.deepcopy(model.network.state_dict())
    dynamic = DynamicLanguageModel(model, statistics, CONFIG)
    expected = naive(model, statistics.rms, CONFIG, IDS)
    np.testing.assert_allclose(score(dynamic, IDS), expected, rtol=1e-9)
    np.testing.assert_allclose(score(dynamic, IDS), expected, rtol=1e-9)  # it begins anew
    assert np.abs(expected - score(model, IDS)).max() > 0.01
    for name, weight in model.network.state_dict().items():
        torch.testing.assert_close(weight, before[name], rtol=0, atol=0)
        assert not weight.requires_grad or weight.grad is None


def test_where_blocks_end_changes_nothing() -> None:
    model = make(cell="lstm")
    dynamic = DynamicLanguageModel(model, statistics_of(model), CONFIG)
    whole = score(dynamic, IDS)
    for cuts in ([1], [5, 6, 7], [3, 3, 12, 40], list(range(47))):
        np.testing.assert_allclose(score(dynamic, *np.split(IDS, cuts)), whole, rtol=1e-10)


def test_a_segment_is_scored_before_it_is_learned_from() -> None:
    model = make(cell="lstm")
    dynamic = DynamicLanguageModel(model, statistics_of(model), CONFIG)
    static, found = score(model, IDS), score(dynamic, IDS)
    np.testing.assert_allclose(found[:6], static[:6], rtol=1e-12)
    assert (found[6:12] != static[6:12]).all()
    for end in range(1, len(IDS)):  # what comes later changes nothing
        np.testing.assert_allclose(score(dynamic, IDS[:end]), found[:end], rtol=1e-10)


def test_statistics_are_the_root_of_the_mean_square(tmp_path: Path) -> None:
    model = make(cell="lstm", layers=2, dropout_input=0.5)
    text = tmp_path / "train.txt"
    text.write_text("a b c d e\nf g a b\n" * 20)  # 220 tokens
    config = DynamicConfig(segment=1)
    found = gradient_statistics(model, text, config)
    assert found.tokens == 200
    ids = np.array(
        [model.tokenizer.vocabulary.encode([*"abcde", "</s>", *"fgab", "</s>"])]
    ).flatten()
    ids = np.tile(ids, 20)
    inputs_TB = np.concatenate(([EOS_ID], ids[:-1]))[:200].reshape(100, 2).T
    targets_TB = ids[:200].reshape(100, 2).T
    weights = list(model.network.parameters())
    squares = [torch.zeros_like(weight) for weight in weights]
    state: Any = model.network.initial_state(100)
    for inputs_B, targets_B in zip(inputs_TB, targets_TB, strict=True):
        hidden_1BH, state = model.network(torch.from_numpy(inputs_B.astype(np.int64))[None], state)
        state = [tuple(part.detach() for part in layer) for layer in state]
        log_probs_BV = model.network.softmax.log_probs(hidden_1BH[0])
        loss = -log_probs_BV[torch.arange(100), torch.from_numpy(targets_B).long()].mean()
        for square, grad in zip(squares, torch.autograd.grad(loss, weights), strict=True):
            square += grad**2
    for rms, square in zip(found.rms, squares, strict=True):
        torch.testing.assert_close(rms, (square / 2).sqrt(), rtol=1e-9, atol=1e-15)
    relative = torch.cat([part.flatten() for part in found.relative()])
    assert float(relative.mean()) == pytest.approx(1, rel=1e-12)


def test_tuning_takes_the_best_that_it_tried(tmp_path: Path) -> None:
    model = make(cell="lstm")
    text = tmp_path / "held-out.txt"
    text.write_text("a b c d\nb c d e\n" * 4)
    dynamic = DynamicLanguageModel(model, statistics_of(model), CONFIG)
    seen = []
    tuning = tune_dynamic(dynamic, text, on_trial=lambda *trial: seen.append(trial))
    assert tuning.tried == tuple(seen)
    assert tuning.tokens == 40
    best = min(seen, key=lambda trial: trial[1])
    assert (tuning.model.config, tuning.perplexity) == best
    ids = model.tokenizer.encode_block(text.read_bytes())
    for config, perplexity in seen:
        scores = score(DynamicLanguageModel(model, dynamic.statistics, config), ids)
        assert perplexity == pytest.approx(np.exp(-scores.mean()), rel=1e-9)
    # no neighbour of the rate is better, with the decay that it was chosen with
    rates = sorted({config.rate for config, _ in seen})
    assert all(b / a == pytest.approx(2) for a, b in itertools.pairwise(rates))
    only = tune_dynamic(dynamic, text, names=["decay"])
    assert {config.rate for config, _ in only.tried} == {CONFIG.rate}


def test_a_rate_that_is_too_high_is_said(tmp_path: Path) -> None:
    model = make(cell="rnn", activation="relu")
    config = dataclasses.replace(CONFIG, rate=1e30, decay=0.0)
    dynamic = DynamicLanguageModel(model, statistics_of(model), config)
    with pytest.raises(ModelError, match=r"lost its balance at a rate of 1e\+30") as caught:
        score(dynamic, IDS)
    assert "--dynamic-rate" in caught.value.hint
    text = tmp_path / "held-out.txt"
    text.write_text("a b c d\n" * 8)
    tuned = tune_dynamic(dynamic, text, names=["rate"])
    assert tuned.tried[0][1] == np.inf
    # also where scores stay finite, and mean nothing
    far = dataclasses.replace(CONFIG, rate=1e5, decay=0.0)
    gated = make(cell="lstm")
    with pytest.raises(ModelError, match="lost its balance at a rate of 100000"):
        score(DynamicLanguageModel(gated, statistics_of(gated), far), np.tile(IDS, 4))
