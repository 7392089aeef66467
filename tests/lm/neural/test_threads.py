"""Streams that are divided among threads: the same as by one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from seqtool.lm.neural import products
from seqtool.lm.neural.config import ModelConfig
from seqtool.lm.neural.network import NeuralNetwork
from seqtool.lm.neural.products import parts_of


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def sizes(num_streams: int, num_weights: int = 1_000_000) -> list[int]:
    parts = parts_of(num_streams, num_weights)
    return [part.stop - part.start for part in parts]


def test_parts_are_the_whole_and_not_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "torch_is_faster", lambda: False)
    # 16 streams or more a part, and no more parts than threads
    assert [sizes(num) for num in (1, 31, 32, 50, 100)] == [
        [1],
        [31],
        [16, 16],
        [16, 17, 17],
        [33, 33, 34],
    ]
    # 3,000,000 multiplications or more a part
    assert [sizes(64, num) for num in (93_749, 93_750, 140_625)] == [[64], [32, 32], [21, 21, 22]]
    assert parts_of(50, 1_000_000) == [slice(0, 16), slice(16, 33), slice(33, 50)]
    torch.set_num_threads(1)
    assert sizes(500) == [500]


def batch_of(
    cell: str, num_streams: int, settings: dict[str, Any], dtype: torch.dtype
) -> tuple[NeuralNetwork, Tensor, list[tuple[Tensor, ...]]]:
    """A network, and the ids and states of a window."""
    torch.manual_seed(1)
    network = NeuralNetwork(ModelConfig(**{"cell": cell, "hidden_size": 6, **settings}), 40).to(
        dtype
    )
    generator = torch.Generator().manual_seed(2)
    ids_TB = torch.randint(40, (9, num_streams), generator=generator)
    state = [
        tuple(torch.randn(part.shape, generator=generator, dtype=dtype) for part in layer)
        for layer in network.initial_state(num_streams)
    ]
    return network, ids_TB, state


def window(
    cell: str, num_streams: int, settings: dict[str, Any], *, half: bool = False
) -> tuple[list[Tensor], list[Tensor]]:
    """What a window of a network gives: outputs with the states after it, and all gradients."""
    dtype = torch.float32 if half else torch.float64
    network, ids_TB, state = batch_of(cell, num_streams, settings, dtype)
    parts = [part.requires_grad_() for layer in state for part in layer]
    torch.manual_seed(3)  # of dropout
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
        outputs_TBH, after = network.train()(ids_TB, state)
    weights = torch.linspace(-1, 1, outputs_TBH.numel(), dtype=dtype).view(outputs_TBH.shape)
    states = [part for layer in after for part in layer]
    assert all(part.is_contiguous() for part in states)
    ((outputs_TBH * weights).sum() + sum(part.square().sum() for part in states)).backward()
    learnt = [*parts, *network.parameters()]
    gradients = [p.grad.to_dense() for p in learnt if p.grad is not None]
    assert len(gradients) > 4
    return [outputs_TBH.detach(), *(part.detach() for part in states)], gradients


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of parts of all loops; even the smallest are divided."""
    monkeypatch.setattr(products, "torch_is_faster", lambda: False)
    monkeypatch.setattr(products, "LEAST_WORK", 1)
    numbers: list[int] = []
    divide = products.in_threads

    def counted(function: Any, *arguments: Any) -> Any:
        numbers.append(len(arguments[0]))
        return divide(function, *arguments)

    monkeypatch.setattr("seqtool.lm.neural.highway.in_threads", counted)
    return numbers


NOISE = {"dropout": "variational", "dropout_state": 0.3, "dropout_update": 0.2}


@pytest.mark.parametrize(
    ("cell", "settings"),
    [
        ("rhn", {"depth": 3}),
        ("rhn", {"depth": 2, "carry": "separate", "layers": 2, **NOISE}),
        ("rhn", {"depth": 2, **NOISE, "dropout": "plain"}),
    ],
)
def test_windows_are_those_of_one_thread(
    cell: str, settings: dict[str, Any], used: list[int]
) -> None:
    divided = window(cell, 50, settings)
    assert used == [3] * 2 * settings.get("layers", 1)  # forward and backward
    network, ids_TB, state = batch_of(cell, 50, settings, torch.float64)
    with torch.no_grad():  # where every step overwrites the one before
        without, _ = network.eval()(ids_TB, state)
    assert used[-1] == 3
    torch.set_num_threads(1)
    whole = window(cell, 50, settings)
    assert used[-1] == 1
    for one, other in zip(itertools.chain(*divided), itertools.chain(*whole), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
    with torch.no_grad():
        torch.testing.assert_close(without, network(ids_TB, state)[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("cell", "settings"), [("rhn", {"depth": 2, **NOISE})])
def test_half_windows_are_those_of_one_thread(
    cell: str, settings: dict[str, Any], used: list[int]
) -> None:
    divided = window(cell, 50, settings, half=True)
    assert used == [3, 3]
    torch.set_num_threads(1)
    whole = window(cell, 50, settings, half=True)
    # of each stream, the same sums in the same order
    for one, other in zip(divided[0], whole[0], strict=True):
        assert torch.equal(one, other)
    # gradients of weights are sums of parts, each of them rounded to 8 bits
    for one, other in zip(divided[1], whole[1], strict=True):
        assert float((one - other).norm()) < 2.0**-7 * float(other.norm())
