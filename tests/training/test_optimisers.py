"""Single steps of every optimiser against its published update, in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seqtool.training.config import TrainingConfig
from seqtool.training.optimisers import Optimisers

RATE = 0.1
START = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
GRADIENTS = (
    torch.tensor([0.3, -0.4, 0.0], dtype=torch.float64),
    torch.tensor([-0.1, 0.2, 0.6], dtype=torch.float64),
    torch.tensor([0.2, 0.2, -0.3], dtype=torch.float64),
)


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


class OneWeight(nn.Module):
    """A vector, and a matrix that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(START.clone())
        self.unused = nn.Parameter(torch.ones(2, 2))


def iterates(
    *,
    rates: tuple[float, ...] = (RATE,) * 3,
    gradients: tuple[Tensor, ...] = GRADIENTS,
    **settings: Any,
) -> list[Tensor]:
    """The weights after each step, with these gradients."""
    module = OneWeight()
    config = TrainingConfig(**{"clip_norm": 0.0, "learning_rate": RATE, **settings})
    optimisers = Optimisers(module, config)
    result = []
    for rate, gradient in zip(rates, gradients, strict=True):
        module.weight.grad = gradient.clone()
        optimisers.step(rate)
        assert module.weight.grad is None
        result.append(module.weight.detach().clone())
    assert module.unused.equal(torch.ones(2, 2))
    return result


def assert_same(actual: list[Tensor], expected: list[Tensor]) -> None:
    torch.testing.assert_close(torch.stack(actual), torch.stack(expected), rtol=1e-12, atol=1e-13)


def test_sgd_with_momentum_and_weight_decay() -> None:
    expected, weight, velocity = [], START, torch.zeros(3)
    for gradient in GRADIENTS:
        decayed = gradient + 0.01 * weight
        velocity = 0.9 * velocity + decayed
        weight = weight - RATE * velocity
        expected.append(weight)
    assert_same(iterates(optimiser="sgd", momentum=0.9, weight_decay=0.01), expected)


def test_adagrad() -> None:
    expected, weight, squares = [], START, torch.zeros(3)
    for gradient in GRADIENTS:
        squares = squares + gradient**2
        weight = weight - RATE * gradient / (squares.sqrt() + 1e-10)
        expected.append(weight)
    assert_same(iterates(optimiser="adagrad"), expected)


def test_rmsprop_with_momentum() -> None:
    expected, weight = [], START
    squares = velocity = torch.zeros(3)
    for gradient in GRADIENTS:
        squares = 0.99 * squares + 0.01 * gradient**2
        velocity = 0.5 * velocity + gradient / (squares.sqrt() + 1e-8)
        weight = weight - RATE * velocity
        expected.append(weight)
    assert_same(iterates(optimiser="rmsprop", momentum=0.5), expected)


@pytest.mark.parametrize("decoupled", [False, True])
def test_adam_and_adamw(decoupled: bool) -> None:
    beta1, beta2, decay = 0.8, 0.95, 0.02
    expected, weight = [], START
    first = second = torch.zeros(3)
    for number, given in enumerate(GRADIENTS, 1):
        gradient = given if decoupled else given + decay * weight
        if decoupled:  # Loshchilov & Hutter 2019
            weight = weight * (1 - RATE * decay)
        first = beta1 * first + (1 - beta1) * gradient
        second = beta2 * second + (1 - beta2) * gradient**2
        unbiased = first / (1 - beta1**number)
        scale = (second / (1 - beta2**number)).sqrt() + 1e-8
        weight = weight - RATE * unbiased / scale
        expected.append(weight)
    name = "adamw" if decoupled else "adam"
    actual = iterates(optimiser=name, beta1=beta1, beta2=beta2, weight_decay=decay)
    assert_same(actual, expected)


@pytest.mark.parametrize("begin", [0, 2, 4, 7])
def test_averaged_sgd_keeps_the_mean_of_the_iterates(begin: int) -> None:
    """The mean of all weights after the first `begin` steps."""
    module = OneWeight()
    config = TrainingConfig(optimiser="asgd", clip_norm=0.0, learning_rate=RATE)
    optimisers = Optimisers(module, config)
    with optimisers.averaged():  # nothing to average yet
        assert module.weight.equal(START)
    weights: list[Tensor] = []
    for number in range(7):
        if number == begin:
            optimisers.average_from(number)
        module.weight.grad = GRADIENTS[number % 3].clone()
        optimisers.step(RATE)
        raw = module.weight.detach().clone()
        torch.testing.assert_close(
            raw, (weights[-1] if weights else START) - RATE * GRADIENTS[number % 3]
        )
        weights.append(raw)
        counted = weights[begin:] or weights[-1:]
        with optimisers.averaged():
            mean = torch.stack(counted).mean(dim=0)
            torch.testing.assert_close(module.weight.detach(), mean, rtol=1e-12, atol=1e-13)
        assert module.weight.equal(raw)


def test_sparse_adam_changes_only_the_rows_that_are_used() -> None:
    torch.manual_seed(1)
    module = nn.Sequential(nn.Embedding(5, 3, sparse=True), nn.Linear(3, 1))
    config = TrainingConfig(optimiser="sgd", embedding_optimiser="sparse-adam", clip_norm=0.0)
    optimisers = Optimisers(module, config)
    before = [parameter.detach().clone() for parameter in module.parameters()]
    module(torch.tensor([1, 3, 3])).sum().backward()
    table, weight, bias = module.parameters()
    row_gradient = table.grad.to_dense() if table.grad is not None else torch.zeros(())
    optimisers.step(RATE)
    # the first step of Adam: m = (1 - beta1) g and v = (1 - beta2) g^2, both unbiased; eps 1e-8
    scale = (1 - config.beta2) ** 0.5
    expected = before[0] - RATE * scale * row_gradient / (scale * row_gradient.abs() + 1e-8)
    torch.testing.assert_close(table.detach(), expected, rtol=1e-12, atol=1e-12)
    assert table[[0, 2, 4]].equal(before[0][[0, 2, 4]])
    # the bias has three times the gradient 1, under plain SGD
    torch.testing.assert_close(bias.detach(), before[2] - 3 * RATE)
    assert not weight.equal(before[1])


@pytest.mark.parametrize("optimiser", ["sgd", "rmsprop"])
def test_a_run_that_goes_on_may_have_momentum_for_the_first_time(optimiser: str) -> None:
    """The first step after it is as without: there is no velocity yet."""
    first = Optimisers(before := OneWeight(), TrainingConfig(optimiser=optimiser, clip_norm=0.0))
    before.weight.grad = GRADIENTS[0].clone()
    first.step(RATE)
    tensors, numbers = first.state()
    moved = []
    for momentum in (0.9, 0.0):
        module = OneWeight()
        config = TrainingConfig(optimiser=optimiser, momentum=momentum, clip_norm=0.0)
        after = Optimisers(module, config)
        after.restore({name: value.clone() for name, value in tensors.items()}, numbers)
        module.weight.grad = GRADIENTS[1].clone()
        after.step(RATE)
        moved.append(module.weight.detach())
    assert not moved[0].equal(START)
    torch.testing.assert_close(moved[0], moved[1], rtol=1e-12, atol=1e-13)


def test_clipping_by_the_norm_of_all_gradients() -> None:
    """The norm of (3, 4, 12) is 13, so that all is halved; that of (0, 0, 6) is below the limit."""
    module = nn.ParameterDict({"a": torch.zeros(2), "b": torch.zeros(1)})
    config = TrainingConfig(optimiser="sgd", learning_rate=1.0, clip_norm=6.5)
    optimisers = Optimisers(module, config)
    for a, b in (((3.0, 4.0), 12.0), ((0.0, 0.0), 6.0)):
        module.a.grad, module.b.grad = torch.tensor(a), torch.tensor([b])
        optimisers.step(1.0)
    torch.testing.assert_close(module.a.tolist() + module.b.tolist(), [-1.5, -2.0, -12.0])
