"""The loop of the recurrent highway cell on a GPU, recorded once and replayed (CUDA graphs).

A window of 35 tokens at depth 10 is 350 micro-steps of a few small kernels each, which take longer
to launch one by one than to run. A recorded window is launched as a whole; it works in memory of
its own, into which its arguments are copied, and out of which its results are.

Where Triton is installed, the first window is recorded twice, as torch's operations and as kernels
made for the micro-steps (`highway_kernels.py`); all windows then take what is faster.

Not yet run on a GPU: the memory and the order of the operations are tested on the CPU, the capture
itself follows the documentation of torch.cuda.graphs.

Dimensions in names: T steps of the window, B parallel streams, H units, D recurrence depth, G gates
(G x H columns), E = D - 1.
"""

from __future__ import annotations

import logging
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqtool.lm.neural.highway_loops import StreamsFirst

Capture = Callable[[Callable[[], None]], Callable[[], None]]
# the loop over a window, with the arguments of `StreamsFirst`
Loop = type[torch.autograd.Function]
Arguments = tuple[Tensor | None, ...]

# how often a window of one shape is run before it is recorded: some come once in an epoch
BEFORE_CAPTURE = 2
# recorded shapes per layer: each holds what its window saves for the gradient
MOST_SHAPES = 4
WARM_UP = 3
TIMED = 5
# of the norm, between two loops: rounding to bfloat16 makes hundredths of it, an error about 1
MOST_DIFFERENCE = 0.1

_log = logging.getLogger(__name__)


def capture(run: Callable[[], None]) -> Callable[[], None]:
    """Record what a function launches on the current GPU; return what launches it again.

    The function must neither wait for the GPU nor depend on what is computed there.
    """
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # libraries choose and allocate at their first calls
        for _ in range(WARM_UP):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    # other threads, such as those that watch over NCCL, may call CUDA meanwhile
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        run()
    replay: Callable[[], None] = graph.replay
    return replay


def milliseconds(window: Window) -> float:
    """Return the least time on the GPU, of several, of both directions of a recorded window."""
    times: list[float] = []
    for _ in range(TIMED):
        start, end = (
            torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            for _ in range(2)
        )
        start.record()
        window.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return min(times)


def load_kernels() -> Loop:
    """Return the loop in Triton kernels.

    Raises:
        ImportError: Triton is not installed.
    """
    from seqtool.lm.neural.highway_kernels import MicroStepKernels  # imports Triton

    return MicroStepKernels


class RecordedLoops:
    """The loop over a window, recorded for each shape that comes again.

    It is `StreamsFirst` in all that can be seen but rounding. Nothing is recorded without
    gradients, where `StreamsFirst` itself runs, and for shapes beyond the first few. If recording
    fails, one line of the log says so, and nothing is recorded any more.

    The first window that asks for gradients decides between `StreamsFirst` and the Triton kernels:
    both are recorded (and hold memory for that moment), and the kernels are taken, for all windows
    with gradients, if they agree and are faster. That they cannot be imported or compiled, or
    disagree, is one line of the log. Runs are the same bit for bit only if both decide alike.

    Args:
        capture: records a function.
        kernels: returns the loop that competes with `StreamsFirst`; None: there is none.
        cost: of a recorded window; the loop of the cheapest one is taken.
    """

    def __init__(
        self,
        capture: Capture = capture,
        kernels: Callable[[], Loop] | None = load_kernels,
        cost: Callable[[Window], float] = milliseconds,
    ) -> None:
        self._capture = capture
        self._kernels = kernels
        self._cost = cost
        self._loop: Loop | None = None
        self._windows: dict[tuple[object, ...], Window] = {}
        self._seen: Counter[tuple[object, ...]] = Counter()
        self._gave_up = False

    def __call__(
        self,
        projected_TBG: Tensor,
        state_BH: Tensor,
        weight_DHG: Tensor,
        bias_EG: Tensor,
        mask_BH: Tensor | None,
    ) -> Tensor:
        """Return the outputs (T, B, H)."""
        arguments = projected_TBG, state_BH, weight_DHG, bias_EG, mask_BH
        outputs_TBH: Tensor
        if not torch.is_grad_enabled():
            outputs_TBH = StreamsFirst.apply(*arguments)  # type: ignore[no-untyped-call]
            return outputs_TBH
        if self._loop is None:
            with torch.no_grad():
                self._loop = self._choose(arguments)
        window = self._window(self._loop, arguments)
        outputs_TBH = (
            self._loop.apply(*arguments)  # type: ignore[no-untyped-call]
            if window is None
            else _Replayed.apply(window, *arguments)  # type: ignore[no-untyped-call]
        )
        return outputs_TBH

    @property
    def loop(self) -> Loop | None:
        """The loop that was chosen; None before the first window that asks for gradients."""
        return self._loop

    @property
    def num_recorded(self) -> int:
        """How many shapes of windows are recorded."""
        return len(self._windows)

    def _choose(self, arguments: Arguments) -> Loop:
        """Return the faster loop, and keep its window of these arguments."""
        kernels = self._load(arguments)
        plain = self._record(StreamsFirst, arguments) if kernels is not None else None
        if kernels is None or plain is None:
            return StreamsFirst
        windows = [plain]
        try:
            fused = Window(kernels, arguments, self._capture)
            fused.check_against(plain, arguments)
            windows.append(fused)
        except Exception as error:  # compilers, linkers and drivers fail in ways of their own
            _log_without_kernels(error)
        best = min(windows, key=self._cost)
        self._windows[_key(arguments)] = best
        return best.loop

    def _load(self, arguments: Arguments) -> Loop | None:
        if self._kernels is None or any(
            part is not None and part.dtype != torch.float32 for part in arguments
        ):
            return None
        try:
            return self._kernels()
        except Exception as error:  # what is installed may be damaged, or of another version
            _log_without_kernels(error)
            return None

    def _window(self, loop: Loop, arguments: Arguments) -> Window | None:
        """Return the recorded window of this shape, if it is recorded and nobody needs its memory.

        Records it when it is time.
        """
        key = _key(arguments)
        window = self._windows.get(key)
        if window is not None:
            return None if window.is_held() else window
        self._seen[key] += 1
        if self._gave_up or self._seen[key] <= BEFORE_CAPTURE:
            return None
        if len(self._windows) == MOST_SHAPES:
            self._give_up(f"windows have more than {MOST_SHAPES} shapes")
            return None
        window = self._record(loop, arguments)
        if window is not None:
            self._windows[key] = window
        return window

    def _record(self, loop: Loop, arguments: Arguments) -> Window | None:
        try:
            return Window(loop, arguments, self._capture)
        except RuntimeError as error:
            self._give_up(_first_line(error))
            return None

    def _give_up(self, reason: str) -> None:
        self._gave_up = True
        self._seen.clear()
        _log.warning("rhn: no further window is recorded as a CUDA graph: %s", reason)

    def __deepcopy__(self, memo: dict[int, Any]) -> RecordedLoops:
        """Return none: a copy of a module has its own."""
        return RecordedLoops(self._capture, self._kernels, self._cost)

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave what is recorded out of what is pickled."""
        return RecordedLoops, (self._capture, self._kernels, self._cost)


def _key(arguments: Arguments) -> tuple[object, ...]:
    """Return what windows must share to be replayed for one another."""
    shapes = (None if part is None else (part.shape, part.dtype, part.device) for part in arguments)
    # what autocast rounds to, if anything, is recorded too
    kind = next(part.device.type for part in arguments if part is not None)
    enabled = torch.is_autocast_enabled(kind)
    return *shapes, torch.get_autocast_dtype(kind) if enabled else None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _log_without_kernels(error: Exception) -> None:
    reason = f"{type(error).__name__}: {_first_line(error)}"
    _log.warning("rhn: windows run without the Triton kernels: %s", reason)


class _Saved:
    """Takes the place of the context in which an autograd function saves tensors."""

    saved_tensors: tuple[Tensor | None, ...] = ()

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        self.saved_tensors = tensors


class _Token:
    """Held by who may still ask for the gradient of a window."""


class Window:
    """A recorded window: its memory, its forward and its backward pass.

    Args:
        loop: what is recorded.
        arguments: of the loop; their shapes count, and values to record with.
        capture: records a function.
    """

    def __init__(self, loop: Loop, arguments: Arguments, capture: Capture) -> None:
        self.loop = loop
        self._arguments: list[Any] = [
            None if part is None else part.detach().clone(memory_format=torch.contiguous_format)
            for part in arguments
        ]
        self._saved = _Saved()
        self._holder: weakref.ref[_Token] | None = None
        with torch.no_grad():
            self._forward = capture(self._run_forward)
            self._grad_TBH = torch.zeros_like(self._outputs_TBH)
            self._backward = capture(self._run_backward)

    def _run_forward(self) -> None:
        self._outputs_TBH = self.loop.forward(self._saved, *self._arguments)

    def _run_backward(self) -> None:
        self._grads = self.loop.backward(self._saved, self._grad_TBH)

    def replay(self) -> None:
        """Launch both directions, on whatever is in memory."""
        self._forward()
        self._backward()

    def is_held(self) -> bool:
        """Return whether the gradient of the last forward pass may still be asked for."""
        return self._holder is not None and self._holder() is not None

    def check_against(self, other: Window, arguments: Arguments) -> None:
        """Compare outputs and gradients with those of another window.

        Raises:
            RuntimeError: they differ by more than rounding.
        """
        results = []
        for window in (self, other):
            outputs_TBH, _ = window.forward(arguments)
            weights = torch.linspace(-1, 1, outputs_TBH.numel(), device=outputs_TBH.device)
            grads = window.backward(weights.view_as(outputs_TBH))
            results.append([outputs_TBH, *(grad for grad in grads if grad is not None)])
        for found, expected in zip(*results, strict=True):
            if not (found - expected).norm() <= MOST_DIFFERENCE * expected.norm():
                raise RuntimeError("their results are not those of the plain loop")

    def forward(self, arguments: Arguments) -> tuple[Tensor, _Token]:
        """Return the outputs (T, B, H), and what is to be kept until `backward`."""
        for own, given in zip(self._arguments, arguments, strict=True):
            if own is not None and given is not None:
                own.copy_(given)
        self._forward()
        token = _Token()
        self._holder = weakref.ref(token)
        return self._outputs_TBH.clone(), token

    def backward(self, grad_TBH: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the arguments."""
        self._grad_TBH.copy_(grad_TBH)
        self._backward()
        return tuple(None if grad is None else grad.clone() for grad in self._grads)


class _Replayed(torch.autograd.Function):
    """A recorded window in the graph of gradients."""

    @staticmethod
    def forward(ctx: Any, window: Window, *arguments: Tensor | None) -> Tensor:
        """Return the outputs (T, B, H)."""
        ctx.window = window
        outputs_TBH, ctx.token = window.forward(arguments)
        return outputs_TBH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_TBH: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of all arguments but the mask; that can be asked for once."""
        if ctx.token is None:
            raise RuntimeError("the gradient of a recorded window was asked for a second time")
        ctx.token = None  # its memory is free for the next window
        grads = ctx.window.backward(grad_TBH)
        return None, *grads
