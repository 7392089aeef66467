"""The fused softmax and cross-entropy against torch's own, in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from seqtool.lm.neural import softmax as module
from seqtool.lm.neural.config import OutputConfig
from seqtool.lm.neural.data import IGNORED
from seqtool.lm.neural.output import FullSoftmax, Surroundings

# chunks are made as small as they get, 16 rows, so that N on both sides of a border is cheap
CHUNK_ROWS = 16
NUMS = [1, CHUNK_ROWS - 1, CHUNK_ROWS, CHUNK_ROWS + 1, 3 * CHUNK_ROWS, 3 * CHUNK_ROWS + 5]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", 1)


def make(
    vocabulary_size: int, hidden_size: int = 5, dtype: torch.dtype = torch.float64
) -> FullSoftmax:
    softmax = FullSoftmax(OutputConfig(), Surroundings(hidden_size, vocabulary_size)).to(dtype)
    generator = torch.Generator().manual_seed(vocabulary_size)
    for parameter in softmax.parameters():
        nn.init.normal_(parameter, generator=generator)
    return softmax


def batch(num: int, softmax: FullSoftmax, ignored: float = 0.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(num)
    vocabulary_size, hidden_size = softmax.weight.shape
    hidden = torch.randn(num, hidden_size, generator=generator, dtype=softmax.weight.dtype)
    targets = torch.randint(vocabulary_size, (num,), generator=generator)
    targets[torch.rand(num, generator=generator) < ignored] = IGNORED
    return hidden.requires_grad_(), targets


@pytest.mark.parametrize("scale", [1.0, 0.125], ids=["loss", "scaled loss"])
@pytest.mark.parametrize("ignored", [0.0, 0.4])
@pytest.mark.parametrize("vocabulary_size", [1, 2, 3, 50])
@pytest.mark.parametrize("num", NUMS)
def test_loss_and_gradients_are_those_of_torch(
    num: int, vocabulary_size: int, ignored: float, scale: float
) -> None:
    softmax = make(vocabulary_size)
    hidden, targets = batch(num, softmax, ignored)
    if num == 1:
        targets[0] = vocabulary_size - 1
    leaves = [hidden, softmax.weight, softmax.bias]
    loss = softmax.loss(hidden, targets)
    expected = functional.cross_entropy(
        functional.linear(hidden, softmax.weight, softmax.bias), targets, ignore_index=IGNORED
    )
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-12)
    for ours, theirs in zip(
        torch.autograd.grad(loss * scale, leaves),
        torch.autograd.grad(expected * scale, leaves),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_gradients_outlive_the_next_loss() -> None:
    softmax = make(50, dtype=torch.float32)
    hidden, targets = batch(20, softmax)
    softmax.loss(hidden, targets).backward()
    copies = [
        part.grad.clone() for part in (hidden, *softmax.parameters()) if part.grad is not None
    ]
    softmax.loss(*batch(21, softmax))
    kept = [part.grad for part in (hidden, *softmax.parameters())]
    assert len(copies) == len(kept)
    for one, other in zip(kept, copies, strict=True):
        assert one is not None
        assert torch.equal(one, other)


def test_huge_logits_do_not_overflow() -> None:
    softmax = make(9)
    hidden, targets = batch(20, softmax)
    hidden = (hidden * 1e4).detach().requires_grad_()
    loss = softmax.loss(hidden, targets)
    expected = functional.cross_entropy(
        functional.linear(hidden, softmax.weight, softmax.bias), targets
    )
    torch.testing.assert_close(loss, expected, rtol=1e-14, atol=0)
    (gradient,) = torch.autograd.grad(loss, hidden)
    assert gradient.isfinite().all()


def test_loss_without_gradients() -> None:
    softmax = make(7)
    hidden, targets = batch(20, softmax)
    with torch.no_grad():
        loss = softmax.loss(hidden, targets)
    assert not loss.requires_grad
    assert loss.item() == softmax.loss(hidden, targets).item()


def test_tied_weight_gets_both_gradients() -> None:
    embedding = nn.Embedding(6, 5).double()
    softmax = FullSoftmax(OutputConfig(), Surroundings(5, 6, embedding.weight)).double()
    assert softmax.weight is embedding.weight
    inputs, targets = torch.tensor([0, 2, 2, 5, 1]), torch.tensor([2, 2, 5, 1, 0])
    softmax.loss(torch.tanh(embedding(inputs)), targets).backward()
    reading, writing = (embedding.weight.detach().clone().requires_grad_() for _ in range(2))
    logits = torch.tanh(reading[inputs]) @ writing.T + softmax.bias
    parts = torch.autograd.grad(functional.cross_entropy(logits, targets), (reading, writing))
    assert embedding.weight.grad is not None
    torch.testing.assert_close(embedding.weight.grad, parts[0] + parts[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("num", NUMS)
def test_target_log_probs_are_gathered_log_probs(num: int) -> None:
    softmax = make(11)
    hidden, targets = batch(num, softmax, ignored=0.3)
    log_probs = softmax.log_probs(hidden)
    torch.testing.assert_close(
        log_probs, torch.log_softmax(hidden @ softmax.weight.T + softmax.bias, dim=1)
    )
    torch.testing.assert_close(
        log_probs.exp().sum(dim=1), torch.ones(num, dtype=torch.float64), rtol=0, atol=1e-14
    )
    expected = log_probs.gather(1, targets.clamp(min=0)[:, None])[:, 0]
    expected = expected.masked_fill(targets == IGNORED, 0.0)
    ours = softmax.target_log_probs(hidden, targets)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-13)


def test_bfloat16_products_err_no_more_than_their_rounding() -> None:
    # bfloat16 keeps 8 bits: rounding is relative, by at most u = 2^-8. A logit is a sum of products
    # of two rounded numbers, itself rounded, so it errs by at most e = (3u + 3u^2 + u^3) sum |h w|;
    # the loss, a difference of logsumexp and a logit, by 2e, and a probability by a factor exp(2e).
    # Sums are made in float32, whose own rounding is some 2^-24 per addend: slack below.
    u, slack = 2.0**-8, 1e-5
    softmax = make(40, hidden_size=16, dtype=torch.float32)
    with torch.no_grad():
        softmax.weight *= 0.2
    hidden, targets = batch(50, softmax, ignored=0.2)
    leaves = [hidden, softmax.weight, softmax.bias]
    exact = softmax.loss(hidden, targets)
    exact_gradients = torch.autograd.grad(exact, leaves)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = softmax.loss(hidden, targets)
    half_gradients = torch.autograd.grad(half, leaves)
    assert half.dtype == torch.float32
    assert half.item() != exact.item(), "products were not made in bfloat16"

    with torch.no_grad():
        h, w = hidden.abs(), softmax.weight.abs()
        error = (((1 + u) ** 3 - 1) * (h @ w.T)).max()
        assert abs(half - exact) <= 2 * error + slack
        kept = (targets != IGNORED)[:, None] / (targets != IGNORED).sum()
        probs = softmax.log_probs(hidden).exp().float()
        hot = functional.one_hot(targets.clamp(min=0), 40)
        logit_error = torch.expm1(2 * error) * probs * kept  # of d loss / d logits
        logit_bound = ((probs - hot).abs() * kept + logit_error) * ((1 + u) ** 3 - 1) + logit_error
        bounds = (logit_bound @ w, logit_bound.T @ h, logit_error.sum(dim=0))
        for ours, theirs, bound in zip(half_gradients, exact_gradients, bounds, strict=True):
            assert ours.dtype == torch.float32
            assert ((ours - theirs).abs() <= bound + slack).all()
