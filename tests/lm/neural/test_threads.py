"""Streams that are divided among threads: the same as by one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from seqtool.lm.neural import products, threads
from seqtool.lm.neural.config import ModelConfig
from seqtool.lm.neural.network import NeuralNetwork
from seqtool.lm.neural.threads import in_threads, parts_of


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def sizes(num_streams: int, num_weights: int = 1_000_000, *, half: bool = False) -> list[int]:
    parts = parts_of(num_streams, num_weights, half=half)
    return [part.stop - part.start for part in parts]


def test_parts_are_the_whole_and_not_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "torch_is_faster", lambda: False)
    monkeypatch.setattr(threads, "has_bf16_dot_products", lambda: True)
    # 16 streams or more a part, and no more parts than threads
    assert [sizes(num) for num in (1, 31, 32, 50, 100)] == [
        [1],
        [31],
        [16, 16],
        [16, 17, 17],
        [33, 33, 34],
    ]
    # of bfloat16, as many as there are tiles of 16 columns
    assert [sizes(num, 10**7, half=True) for num in (16, 17, 33, 64)] == [
        [16],
        [8, 9],
        [11, 11, 11],
        [21, 21, 22],
    ]
    # 3,000,000 multiplications or more a part
    assert [sizes(64, num) for num in (93_749, 93_750, 140_625)] == [[64], [32, 32], [21, 21, 22]]
    assert parts_of(50, 1_000_000, half=False) == [slice(0, 16), slice(16, 33), slice(33, 50)]
    torch.set_num_threads(1)
    assert sizes(500) == [500]


def test_where_torch_makes_the_products_nothing_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "torch_is_faster", lambda: True)
    assert sizes(500) == [500]
    monkeypatch.setattr(threads, "torch_is_faster", lambda: False)
    monkeypatch.setattr(threads, "has_bf16_dot_products", lambda: False)
    assert sizes(500, half=True) == [500]


def test_each_part_has_a_thread_and_no_gradient() -> None:
    weight = torch.ones(2, requires_grad=True)

    def look(number: int, letter: str) -> tuple[int, str, bool, bool]:
        is_main = threading.current_thread() is threading.main_thread()
        return number, letter, is_main, (weight * 2).requires_grad

    found = in_threads(look, [1, 2], ["a", "b"])
    assert found == [(1, "a", False, False), (2, "b", False, False)]
    # one part is the caller's own business
    assert in_threads(look, [1], ["a"]) == [(1, "a", True, False)]
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda number: 1 / number, [1, 0])


def window(cell: str, num_streams: int, settings: dict[str, Any]) -> list[Tensor]:
    """What a window of a network gives: outputs, the states after it, and all gradients."""
    torch.manual_seed(1)
    network = NeuralNetwork(ModelConfig(cell=cell, hidden_size=6, **settings), 40).double()
    generator = torch.Generator().manual_seed(2)
    ids_TB = torch.randint(40, (9, num_streams), generator=generator)
    state = [
        tuple(torch.randn(part.shape, generator=generator, dtype=torch.float64) for part in layer)
        for layer in network.initial_state(num_streams)
    ]
    torch.manual_seed(3)  # of dropout
    outputs_TBH, after = network.train()(ids_TB, state)
    loss = (outputs_TBH * torch.randn(outputs_TBH.shape, generator=generator)).sum()
    (loss + sum(part.square().sum() for layer in after for part in layer)).backward()
    gradients = [p.grad.to_dense() for p in network.parameters() if p.grad is not None]
    assert len(gradients) > 3
    return [outputs_TBH.detach(), *(part.detach() for layer in after for part in layer), *gradients]


NOISE = {"dropout": "variational", "dropout_state": 0.3, "dropout_update": 0.2}


@pytest.mark.parametrize(
    ("cell", "settings"),
    [
        ("rhn", {"depth": 3}),
        ("rhn", {"depth": 2, "carry": "separate", "layers": 2, **NOISE}),
        ("rhn", {"depth": 2, **NOISE, "dropout": "plain"}),
        ("lstm", {**NOISE}),
        ("lstm", {"layers": 2, "projection_size": 4, **NOISE, "dropout": "plain"}),
        ("lstm", {"mogrifier_rounds": 3, **NOISE}),
    ],
)
def test_windows_are_those_of_one_thread(
    cell: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "torch_is_faster", lambda: False)
    monkeypatch.setattr(products, "torch_is_faster", lambda: False)
    monkeypatch.setattr(threads, "LEAST_WORK", 1)
    used: list[int] = []
    divide = threads.in_threads

    def counted(function: Any, *arguments: Any) -> Any:
        used.append(len(arguments[0]))
        return divide(function, *arguments)

    for module in ("highway_cpu", "lstm_cpu"):
        monkeypatch.setattr(f"seqtool.lm.neural.{module}.in_threads", counted)
    divided = window(cell, 50, settings)
    assert used == [3] * 2 * settings.get("layers", 1)  # forward and backward
    torch.set_num_threads(1)
    whole = window(cell, 50, settings)
    assert used[-1] == 1
    for one, other in zip(divided, whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
