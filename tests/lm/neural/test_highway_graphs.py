"""The recorded loop of rhn, with a recorder of torch's operations in place of CUDA's.

As a CUDA graph does, it repeats operations on the memory that they had when they were recorded, and
runs no Python in between.
"""

from __future__ import annotations

import copy
import logging
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from seqtool.lm.neural import highway
from seqtool.lm.neural.config import ModelConfig
from seqtool.lm.neural.highway import RecurrentHighwayCell
from seqtool.lm.neural.highway_graphs import (
    BEFORE_CAPTURE,
    MOST_SHAPES,
    Loop,
    RecordedLoops,
    Window,
    load_kernels,
)
from seqtool.lm.neural.highway_loops import StreamsFirst

Arguments = tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]


class Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, result))
        return result

    def replay(self) -> None:
        for func, args, kwargs, result in self.calls:
            with torch.autocast("cpu", enabled=False):  # the calls are those that it had made
                again = func(*args, **kwargs)
            for old, new in zip(tree_leaves(result), tree_leaves(again), strict=True):
                if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class Captures:
    """Records functions, and counts how often they are replayed."""

    def __init__(self) -> None:
        self.num_captured = self.num_replayed = 0

    def __call__(self, run: Callable[[], None]) -> Callable[[], None]:
        run()
        with Recorder() as recorder:
            run()
        self.num_captured += 1

        def replay() -> None:
            self.num_replayed += 1
            recorder.replay()

        return replay


def arguments(
    steps: int = 4,
    batch: int = 3,
    size: int = 5,
    depth: int = 3,
    gates: int = 2,
    *,
    masked: bool = True,
    dtype: torch.dtype = torch.float64,
) -> Arguments:
    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=dtype).requires_grad_()

    width = gates * size
    mask = torch.bernoulli(torch.full((batch, size), 0.5, dtype=dtype)) * 2
    return (
        *(draw(steps, batch, width), draw(batch, size), draw(depth, size, width)),
        *(draw(depth - 1, width), mask if masked else None),
    )


def run(function: Callable[..., Tensor], given: Arguments) -> list[Tensor]:
    """Outputs and gradients, of a loss that weighs every output differently."""
    given = tuple(part if part is None else part.detach().clone() for part in given)
    for part in given[:4]:
        part.requires_grad_()
    outputs = function(*given)
    weights = torch.linspace(-1, 1, outputs.numel(), dtype=outputs.dtype)
    (outputs * weights.view_as(outputs)).sum().backward()
    return [outputs.detach(), *(part.grad for part in given[:4])]


def assert_same(found: list[Tensor], expected: list[Tensor]) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"masked": False},
        {"gates": 3},
        {"steps": 1, "batch": 1},
        {"depth": 1, "size": 1},
    ],
)
def test_replayed_windows_are_those_of_the_loop(shape: dict[str, Any]) -> None:
    torch.manual_seed(1)
    captures = Captures()
    loops = RecordedLoops(captures)
    for number in range(BEFORE_CAPTURE + 4):
        given = arguments(**shape)
        assert_same(run(loops, given), run(StreamsFirst.apply, given))
        replayed = max(0, number + 1 - BEFORE_CAPTURE)
        assert captures.num_replayed == 2 * replayed
    assert captures.num_captured == 2


def recorded(given: Arguments) -> tuple[RecordedLoops, Captures]:
    captures = Captures()
    loops = RecordedLoops(captures)
    for _ in range(BEFORE_CAPTURE + 1):
        run(loops, given)
    assert captures.num_replayed == 2
    return loops, captures


def test_memory_that_is_still_needed_is_left_alone() -> None:
    torch.manual_seed(2)
    first, second = arguments(), arguments()
    loops, captures = recorded(arguments())
    outputs, others = loops(*first), loops(*second)  # the second runs the plain loop
    assert captures.num_replayed == 3
    before = outputs.clone()
    (outputs.sum() + others.sum()).backward()
    expected = [StreamsFirst.apply(*given) for given in (first, second)]
    found = [part.grad for given in (first, second) for part in given[:4]]
    for given in (first, second):
        for part in given[:4]:
            part.grad = None
    sum(part.sum() for part in expected).backward()
    assert_same(found, [part.grad for given in (first, second) for part in given[:4]])
    # outputs are copies, and memory is free again after the gradient, or when nobody asks for it
    del others
    loops(*second)
    loops(*first)
    assert captures.num_replayed == 6
    assert outputs.equal(before)


def test_a_second_gradient_is_refused() -> None:
    loops, _ = recorded(arguments())
    outputs = loops(*arguments())
    outputs.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="asked for a second time"):
        outputs.sum().backward()


def test_without_gradients_nothing_is_recorded() -> None:
    captures = Captures()
    loops = RecordedLoops(captures)
    given = arguments()
    with torch.no_grad():
        for _ in range(BEFORE_CAPTURE + 2):
            assert loops(*given).equal(StreamsFirst.apply(*given))
    assert captures.num_captured == 0


def test_a_capture_that_fails_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    def fail(run: Callable[[], None]) -> Callable[[], None]:
        raise RuntimeError("CUDA error: operation not permitted\nmore lines")

    loops = RecordedLoops(fail)
    with caplog.at_level(logging.WARNING):
        for _ in range(2 * BEFORE_CAPTURE + 3):
            given = arguments()
            assert_same(run(loops, given), run(StreamsFirst.apply, given))
    assert [record.getMessage() for record in caplog.records] == [
        "rhn: no further window is recorded as a CUDA graph: CUDA error: operation not permitted"
    ]


def test_few_shapes_are_recorded(caplog: pytest.LogCaptureFixture) -> None:
    captures = Captures()
    loops = RecordedLoops(captures)
    with caplog.at_level(logging.WARNING):
        for _ in range(BEFORE_CAPTURE + 2):
            for steps in range(1, MOST_SHAPES + 3):
                given = arguments(steps)
                assert_same(run(loops, given), run(StreamsFirst.apply, given))
    assert captures.num_captured == 2 * MOST_SHAPES
    (record,) = caplog.records
    assert record.getMessage().endswith(f"windows have more than {MOST_SHAPES} shapes")


def test_the_cell_records_its_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU; the CPU's own loop is put out of the way."""
    torch.manual_seed(3)
    cell = RecurrentHighwayCell(4, 5, ModelConfig(cell="rhn", depth=2)).double()
    for parameter in cell.parameters():
        torch.nn.init.uniform_(parameter, -0.5, 0.5)
    other = copy.deepcopy(cell)
    captures = Captures()
    monkeypatch.setattr(cell, "recorded", RecordedLoops(captures))
    monkeypatch.setattr(highway, "numpy_is_fast", lambda: False)
    monkeypatch.setattr(highway, "RECORDED_ON", ("cpu",))
    state = cell.initial_state(3)
    for _ in range(BEFORE_CAPTURE + 2):
        inputs = torch.randn(6, 3, 4, dtype=torch.float64)
        for module in (cell, other):
            module.zero_grad()
            module(inputs, state)[0].square().sum().backward()
        for (name, one), two in zip(cell.named_parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(one.grad, two.grad, rtol=1e-10, atol=1e-12, msg=name)
    assert captures.num_replayed == 4


class Kernels(StreamsFirst):
    """In place of the Triton kernels, which a CPU cannot run."""


class WrongOutputs(StreamsFirst):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        return 1 - StreamsFirst.forward(ctx, *given)


class WrongGradient(StreamsFirst):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        projected, *others = StreamsFirst.backward(ctx, grad)
        return (-projected, *others)


class CompilationError(Exception):
    pass


class NotCompiled(StreamsFirst):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        raise CompilationError("at 3:7:\n    tl.dot(")


@pytest.mark.parametrize("faster", [StreamsFirst, Kernels])
def test_the_faster_loop_runs_all_windows(faster: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(4)
    seen = []

    def cost(window: Window) -> float:
        window.replay()
        seen.append(window.loop)
        return 1.0 if window.loop is faster else 2.0

    captures = Captures()
    loops = RecordedLoops(captures, lambda: Kernels, cost)
    with torch.no_grad():
        loops(*arguments(dtype=torch.float32))
    assert loops.loop is None
    for steps in (4, 4, 3, 3, 3, 4):
        given = arguments(steps, dtype=torch.float32)
        assert_same(run(loops, given), run(StreamsFirst.apply, given))
    assert loops.loop is faster
    assert seen == [StreamsFirst, Kernels]
    # both at first, then the better one again for the other shape, when it came a third time
    assert captures.num_captured == 6
    assert loops.num_recorded == 2
    # comparing: 2 of each; measuring: 2 of each; 4 windows of those above
    assert captures.num_replayed == 8 + 8
    applied = []
    monkeypatch.setattr(faster, "apply", lambda *given: applied.append(given) or given[0])
    loops(*arguments(5, dtype=torch.float32))
    assert len(applied) == 1


@pytest.mark.parametrize(
    ("loop", "reason"),
    [
        (NotCompiled, "CompilationError: at 3:7:"),
        (WrongOutputs, "RuntimeError: their results are not those of the plain loop"),
        (WrongGradient, "RuntimeError: their results are not those of the plain loop"),
    ],
)
def test_kernels_that_fail_are_told_once(
    loop: Loop, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(5)
    captures = Captures()
    loops = RecordedLoops(captures, lambda: loop, lambda window: window.loop is StreamsFirst)
    for _ in range(3):
        given = arguments(dtype=torch.float32)
        assert_same(run(loops, given), run(StreamsFirst.apply, given))
    assert loops.loop is StreamsFirst
    assert loops.num_recorded == 1
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == f"rhn: windows run without the Triton kernels: {reason}"


def test_without_triton_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(6)
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "seqtool.lm.neural.highway_kernels", raising=False)
    captures = Captures()
    loops = RecordedLoops(captures, load_kernels)
    for _ in range(BEFORE_CAPTURE + 2):
        given = arguments(dtype=torch.float32)
        assert_same(run(loops, given), run(StreamsFirst.apply, given))
    assert captures.num_replayed == 4
    (record,) = caplog.records
    line = "rhn: windows run without the Triton kernels: ModuleNotFoundError: "
    assert record.getMessage().startswith(line)


def test_kernels_are_for_float32(caplog: pytest.LogCaptureFixture) -> None:
    loops = RecordedLoops(Captures(), lambda: NotCompiled)
    run(loops, arguments(dtype=torch.float64))
    assert loops.loop is StreamsFirst
    assert caplog.records == []


def test_a_window_is_recorded_as_it_runs_under_autocast() -> None:
    """The loop of torch leaves autocast, recorded or not; each setting has its own windows."""
    torch.manual_seed(7)
    loops = RecordedLoops(Captures(), None)
    for _ in range(BEFORE_CAPTURE + 2):
        given = arguments(dtype=torch.float32)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert_same(run(loops, given), run(StreamsFirst.apply, given))
    assert loops.num_recorded == 1
    for _ in range(BEFORE_CAPTURE + 1):
        run(loops, arguments(dtype=torch.float32))
    assert loops.num_recorded == 2
