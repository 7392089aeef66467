"""Direct connections from n-grams, against dictionaries and plain operations."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from seqtool.core.config import from_dict
from seqtool.lm.neural import softmax
from seqtool.lm.neural.config import ModelConfig, OutputConfig
from seqtool.lm.neural.data import IGNORED
from seqtool.lm.neural.maxent import MaxentSoftmax
from seqtool.lm.neural.network import NeuralNetwork
from seqtool.lm.neural.output import Surroundings
from seqtool.training.config import TrainingConfig
from seqtool.training.optimisers import Optimisers

HIDDEN, VOCABULARY, NUM_STEPS, NUM_STREAMS = 5, 30, 12, 4


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax, "CHUNK_BYTES", 1)  # 16 rows


def make(size: int, order: int = 4, dtype: torch.dtype = torch.float64) -> MaxentSoftmax:
    config = OutputConfig(layer="maxent", direct_order=order, direct_size=size)
    layer = MaxentSoftmax(config, Surroundings(HIDDEN, VOCABULARY)).to(dtype)
    generator = torch.Generator().manual_seed(7)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, generator=generator)
    return layer.train()


def batch(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return ids of few words, so that contexts recur, hidden states, and targets."""
    generator = torch.Generator().manual_seed(seed)
    shape = NUM_STEPS, NUM_STREAMS
    ids_TB = torch.randint(4, shape, generator=generator)
    targets_TB = torch.randint(VOCABULARY, shape, generator=generator)
    targets_TB[3, 1] = targets_TB[5, 0] = IGNORED
    hidden_NH = torch.randn(
        NUM_STEPS * NUM_STREAMS, HIDDEN, generator=generator, dtype=torch.float64
    )
    return ids_TB, hidden_NH.requires_grad_(), targets_TB.flatten()


def read(layer: MaxentSoftmax, ids_TB: Tensor) -> Tensor:
    history_BK = layer.direct.initial_history(NUM_STREAMS)
    hashes_TBK = layer.direct.context_hashes(ids_TB, history_BK)
    return hashes_TBK.flatten(0, 1)


def test_n_grams_that_were_met_have_weights() -> None:
    # in a table of which hardly anything is used, as a dictionary from n-grams to slots says
    layer = make(1_000_003)
    ids_TB, _, targets_N = batch()
    hashes_NK = read(layer, ids_TB)
    layer.direct.find(hashes_NK, targets_N)
    starts_NK, _ = layer.direct.places(hashes_NK)
    met: dict[tuple[tuple[int, ...], int], int] = {}
    rows = [(step, stream) for step in range(NUM_STEPS) for stream in range(NUM_STREAMS)]
    for row, (step, stream) in enumerate(rows):
        for k in range(min(3, step + 1)):
            if targets_N[row] != IGNORED:
                context = tuple(ids_TB[step - k : step + 1, stream].tolist())
                word = int(targets_N[row])
                met[context, word] = (int(starts_NK[row, k]) + word) % 1_000_003
    assert len(set(met.values())) == len(met)
    assert (layer.direct.marks_S != 0).nonzero()[:, 0].tolist() == sorted(met.values())
    logits_NV = layer.direct.logits(hashes_NK)
    for row, (step, stream) in enumerate(rows):
        contexts = [
            tuple(ids_TB[step - k : step + 1, stream].tolist()) for k in range(min(3, step + 1))
        ]
        for word in range(VOCABULARY):
            slots = [met[c, word] for c in contexts if (c, word) in met]
            expected = sum(layer.direct.weight[slot].item() for slot in slots)
            assert logits_NV[row, word].item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("size", [31, 64, 100_000])
def test_a_slot_stays_with_whom_it_belongs_to(size: int) -> None:
    layer = make(size)
    ids_TB, _, targets_N = batch()
    hashes_NK = read(layer, ids_TB)
    layer.direct.find(hashes_NK, targets_N)
    marks_S = layer.direct.marks_S.clone()
    assert marks_S.any()
    # plain operations claim the same slots
    plain = make(size)
    plain.direct.logits(hashes_NK, targets_N)
    assert torch.equal(plain.direct.marks_S, marks_S)
    other_TB, _, others_N = batch(seed=1)
    layer.direct.find(read(layer, other_TB), others_N)
    kept_S = marks_S != 0
    assert torch.equal(layer.direct.marks_S[kept_S], marks_S[kept_S])
    if size > VOCABULARY + 1:  # else there was no room for more
        assert (layer.direct.marks_S != 0).sum() > kept_S.sum()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("size", [31, 64, 1000])
def test_compiled_loops_agree_with_plain_operations(size: int, dtype: torch.dtype) -> None:
    layer = make(size, dtype=dtype)
    ids_TB, hidden_NH, targets_N = batch()
    hidden_NH = hidden_NH.detach().to(dtype).requires_grad_()
    hashes_NK = read(layer, ids_TB)
    after = layer.after(hashes_NK)
    loss = after.loss(hidden_NH, targets_N)
    logits_NV = functional.linear(hidden_NH, layer.weight, layer.bias)
    logits_NV = logits_NV + layer.direct.logits(hashes_NK)
    expected = functional.cross_entropy(logits_NV, targets_N, ignore_index=IGNORED)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    torch.testing.assert_close(loss, expected, rtol=tolerance, atol=0)
    leaves = [hidden_NH, *layer.parameters()]
    ours, theirs = (torch.autograd.grad(value * 0.5, leaves) for value in (loss, expected))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.to_dense(), other.to_dense(), rtol=0, atol=tolerance)
    log_probs_NV = logits_NV.log_softmax(dim=1)
    torch.testing.assert_close(
        after.log_probs(hidden_NH).to(dtype), log_probs_NV, rtol=0, atol=10 * tolerance
    )
    sums_N = after.log_probs(hidden_NH).exp().sum(dim=1)
    torch.testing.assert_close(sums_N, torch.ones_like(sums_N), rtol=0, atol=1e-13)
    chosen_N = -functional.nll_loss(log_probs_NV, targets_N, ignore_index=IGNORED, reduction="none")
    for enabled in (False, True):
        with torch.set_grad_enabled(enabled):
            scores_N = after.target_log_probs(hidden_NH, targets_N)
        torch.testing.assert_close(scores_N, chosen_N, rtol=0, atol=10 * tolerance)


def test_it_learns_what_a_network_without_units_to_spare_cannot() -> None:
    # the next word is a function of the last two; one unit cannot know them
    generator = torch.Generator().manual_seed(0)
    table = torch.randint(9, (9, 9), generator=generator)
    words = [1, 2]
    for number in range(400):  # now and then any word, so that there is no short cycle
        chance = int(torch.randint(9, (1,), generator=generator))
        words.append(chance if number % 5 == 0 else int(table[words[-2], words[-1]]))
    ids_TB, targets_TB = torch.tensor(words[:-1])[:, None], torch.tensor(words[1:])[:, None]
    nats = {}
    for layer in ("full", "maxent"):
        torch.manual_seed(0)
        output: dict[str, Any] = {"layer": layer}
        if layer == "maxent":
            output["direct_size"] = 5000
        config = from_dict(ModelConfig, {"cell": "rnn", "hidden_size": 1, "output": output})
        network = NeuralNetwork(config, 9).train()
        optimisers = Optimisers(network, TrainingConfig(learning_rate=0.01))
        for _ in range(40):
            state = network.initial_state(1)
            reader = network.output(ids_TB, state)
            hidden_T1H, _ = network(ids_TB, state)
            loss = reader.loss(hidden_T1H[:, 0], targets_TB[:, 0])
            loss.backward()  # type: ignore[no-untyped-call]
            optimisers.step(0.01)
        nats[layer] = loss.item()
    assert nats["full"] > 0.9 * math.log(9)
    assert nats["maxent"] < 0.6 * math.log(9)


def test_n_grams_learn_at_their_own_rate() -> None:
    # AdaGrad's first step is the rate itself, whatever the gradient; 0.3 halves as 0.01 does
    layer = make(1000)
    ids_TB, hidden_NH, targets_N = batch()
    before = layer.direct.weight.detach().clone()
    optimisers = Optimisers(layer, TrainingConfig(learning_rate=0.01))
    layer.after(read(layer, ids_TB)).loss(hidden_NH, targets_N).backward()  # type: ignore[no-untyped-call]
    optimisers.step(0.005)
    change_S = (layer.direct.weight.detach() - before)[:, 0].abs()
    is_met_S = layer.direct.marks_S != 0
    torch.testing.assert_close(
        change_S[is_met_S], torch.full_like(change_S[is_met_S], 0.15), rtol=0, atol=1e-6
    )
    assert not change_S[~is_met_S].any()
