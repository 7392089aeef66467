"""The Triton kernels of rhn beside the equations, in Triton's interpreter on the CPU.

Not collected by itself: `test_highway_kernels.py` runs it in a process of its own, since the
interpreter is chosen before Triton is imported (TRITON_INTERPRET=1).
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from seqtool.lm.neural import highway
from seqtool.lm.neural.config import ModelConfig
from seqtool.lm.neural.highway import RecurrentHighwayCell
from seqtool.lm.neural.highway_graphs import RecordedLoops, load_kernels
from seqtool.lm.neural.highway_kernels import MicroStepKernels

Arguments = tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]

# (T, B, H, D): one stream, one step, one unit; more streams and units than one program takes
EDGES = [(1, 1, 1, 1), (3, 1, 19, 3), (1, 5, 7, 2), (2, 70, 5, 2), (2, 17, 64, 1), (2, 3, 67, 2)]


def drawn_shapes(num: int) -> list[tuple[int, int, int, int]]:
    draw = random.Random(7).randint
    return [(draw(1, 4), draw(1, 40), draw(1, 70), draw(1, 3)) for _ in range(num)]


def arguments(shape: tuple[int, int, int, int], num_gates: int, *, masked: bool) -> Arguments:
    steps, batch, size, depth = shape
    generator = torch.Generator().manual_seed(sum(shape))

    def draw(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator)

    width = num_gates * size
    mask = (draw(batch, size) > 0).float() * 2
    return (
        *(draw(steps, batch, width), draw(batch, size), draw(depth, size, width) / size**0.5),
        *(draw(depth - 1, width), mask if masked else None),
    )


def equations(
    projected_TBG: Tensor,
    state: Tensor,
    weight_DHG: Tensor,
    bias_EG: Tensor,
    mask: Tensor | None,
) -> Tensor:
    """Zilly et al. 2017, eqs. 6-9, a gate at a time."""
    size = state.shape[1]
    outputs = []
    for projected in projected_TBG:
        for level, weight in enumerate(weight_DHG):
            entering = state if mask is None else state * mask
            sums = entering @ weight + (projected if level == 0 else bias_EG[level - 1])
            h, t, *rest = torch.split(sums, size, dim=1)
            t = torch.sigmoid(t)
            c = torch.sigmoid(rest[0]) if rest else 1 - t
            state = torch.tanh(h) * t + state * c
        outputs.append(state)
    return torch.stack(outputs)


def run(
    function: Callable[..., Tensor], given: Arguments, dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    """Outputs and gradients, of a loss that weighs every output differently."""
    leaves = [None if part is None else part.detach().to(dtype) for part in given]
    for part in leaves[:4]:
        part.requires_grad_()
    outputs = function(*leaves)
    generator = torch.Generator().manual_seed(3)
    (outputs * torch.randn(outputs.shape, generator=generator)).sum().backward()
    grads = [torch.zeros_like(part) if part.grad is None else part.grad for part in leaves[:4]]
    return [outputs.detach(), *grads]


def assert_close(found: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.float32
        assert one.shape == other.shape
        error = torch.linalg.vector_norm(one.double() - other)
        assert error <= tolerance * torch.linalg.vector_norm(other)


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("num_gates", [2, 3], ids=["coupled", "separate"])
@pytest.mark.parametrize("shape", [*EDGES, *drawn_shapes(3)], ids=str)
def test_kernels_are_the_equations(
    shape: tuple[int, int, int, int], num_gates: int, masked: bool
) -> None:
    given = arguments(shape, num_gates, masked=masked)
    found = run(MicroStepKernels.apply, given)
    assert_close(found, run(equations, given, torch.float64), 1e-5)


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("num_gates", [2, 3], ids=["coupled", "separate"])
def test_under_autocast_products_alone_are_rounded(num_gates: int, masked: bool) -> None:
    """In float16, as the interpreter has no products of bfloat16."""
    given = arguments((3, 4, 21, 2), num_gates, masked=masked)
    exact = run(equations, given, torch.float64)
    with torch.autocast("cpu", dtype=torch.float16):
        found = run(MicroStepKernels.apply, given)
    assert_close(found, exact, 5e-3)
    with pytest.raises(AssertionError):
        assert_close(found, exact, 1e-5)


def test_arguments_and_gradients_lie_in_memory_as_they_like() -> None:
    steps, batch, size, depth = shape = (3, 4, 6, 2)
    projected, state, weight, bias, _ = arguments(shape, 2, masked=False)
    given = (
        projected.transpose(0, 1).contiguous().transpose(0, 1),
        state.t().contiguous().t(),
        weight.transpose(1, 2).contiguous().transpose(1, 2),
        bias[:, :1].expand(depth - 1, 2 * size),
        torch.tensor([[0.0], [2.0], [2.0], [0.0]]).expand(batch, size),
    )

    def summed(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda *parts: function(*parts).sum(dim=1)  # its gradient has a stride of 0

    found = run(summed(MicroStepKernels.apply), given)
    assert_close(found, run(summed(equations), given, torch.float64), 1e-5)
    assert len(found[0]) == steps


def rerun(function: Callable[[], None]) -> Callable[[], None]:
    """In place of recording: do it again."""
    function()
    return function


@pytest.mark.parametrize("carry", ["coupled", "separate"])
def test_the_cell_takes_the_kernels(
    carry: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a GPU, where they are faster."""
    monkeypatch.setattr(highway, "numpy_is_fast", lambda: False)
    config = ModelConfig(cell="rhn", depth=2, carry=carry)
    cell, exact = (RecurrentHighwayCell(4, 21, config) for _ in range(2))
    for parameter in cell.parameters():
        torch.nn.init.uniform_(parameter, -0.5, 0.5)
    exact.load_state_dict(cell.state_dict())
    exact.double()
    cell.recorded = RecordedLoops(
        rerun, load_kernels, lambda window: window.loop is not MicroStepKernels
    )
    generator = torch.Generator().manual_seed(4)
    for steps in (2, 2, 1):  # the last one is not recorded
        inputs = torch.randn(steps, 3, 4, generator=generator)
        mask = (torch.rand(3, 21, generator=generator) > 0.5) * 2.0
        results = []
        for module, device in ((exact, "none"), (cell, "cpu")):
            monkeypatch.setattr(highway, "RECORDED_ON", (device,))
            kind = module.bias.dtype
            module.zero_grad()
            outputs, _ = module(inputs.to(kind), (torch.full((3, 21), 0.1, dtype=kind),), mask)
            outputs.square().sum().backward()
            results.append([outputs.detach(), *(part.grad for part in module.parameters())])
        assert_close(results[1], results[0], 1e-5)
    assert cell.recorded.loop is MicroStepKernels
    assert cell.recorded.num_recorded == 1
    assert caplog.records == []
