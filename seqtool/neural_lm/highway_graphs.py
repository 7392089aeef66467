"""The loop of the recurrent highway cell on a GPU, recorded once and replayed (CUDA graphs).

A window of 35 tokens at depth 10 is 350 micro-steps of a few small kernels each, which take longer
to launch one by one than to run. A recorded window is launched as a whole; it works in memory of
its own, into which its arguments are copied, and out of which its results are.

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

from seqtool.neural_lm.highway_loops import StreamsFirst, loop_backward, loop_forward

Capture = Callable[[Callable[[], None]], Callable[[], None]]

# how often a window of one shape is run before it is recorded: some come once in an epoch
BEFORE_CAPTURE = 2
# recorded shapes per layer: each holds what its window saves for the gradient
MOST_SHAPES = 4
WARM_UP = 3

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


class RecordedLoops:
    """The loop over a window, recorded for each shape that comes again.

    It is `StreamsFirst` in all that can be seen, and is that where nothing is recorded: without
    gradients, and for shapes beyond the first few. If recording fails, one line of the log says so,
    and nothing is recorded any more.

    Args:
        capture: records a function.
    """

    def __init__(self, capture: Capture = capture) -> None:
        self._capture = capture
        self._windows: dict[tuple[object, ...], _Window] = {}
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
        window = self._window(arguments) if torch.is_grad_enabled() else None
        outputs_TBH: Tensor = (
            StreamsFirst.apply(*arguments)  # type: ignore[no-untyped-call]
            if window is None
            else _Replayed.apply(window, *arguments)  # type: ignore[no-untyped-call]
        )
        return outputs_TBH

    @property
    def num_recorded(self) -> int:
        """How many shapes of windows are recorded."""
        return len(self._windows)

    def _window(self, arguments: tuple[Tensor | None, ...]) -> _Window | None:
        """Return the recorded window of this shape, if it is recorded and nobody needs its memory.

        Records it when it is time.
        """
        key = tuple(
            None if part is None else (part.shape, part.dtype, part.device) for part in arguments
        )
        window = self._windows.get(key)
        if window is not None:
            return None if window.is_held() else window
        self._seen[key] += 1
        if self._gave_up or self._seen[key] <= BEFORE_CAPTURE:
            return None
        if len(self._windows) == MOST_SHAPES:
            self._give_up(f"windows have more than {MOST_SHAPES} shapes")
            return None
        try:
            window = _Window(arguments, self._capture)
        except RuntimeError as error:
            self._give_up(str(error).partition("\n")[0])
            return None
        self._windows[key] = window
        return window

    def _give_up(self, reason: str) -> None:
        self._gave_up = True
        self._seen.clear()
        _log.warning("rhn: no further window is recorded as a CUDA graph: %s", reason)

    def __deepcopy__(self, memo: dict[int, Any]) -> RecordedLoops:
        """Return none: a copy of a module has its own."""
        return RecordedLoops(self._capture)

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave what is recorded out of what is pickled."""
        return RecordedLoops, (self._capture,)


class _Saved:
    """Takes the place of the context in which an autograd function saves tensors."""

    saved_tensors: tuple[Tensor | None, ...] = ()

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        self.saved_tensors = tensors


class _Token:
    """Held by who may still ask for the gradient of a window."""


class _Window:
    """A recorded window: its memory, its forward and its backward pass."""

    def __init__(self, arguments: tuple[Tensor | None, ...], capture: Capture) -> None:
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
        self._outputs_TBH = loop_forward(self._saved, *self._arguments)

    def _run_backward(self) -> None:
        self._grads = loop_backward(self._saved, self._grad_TBH)

    def is_held(self) -> bool:
        """Return whether the gradient of the last forward pass may still be asked for."""
        return self._holder is not None and self._holder() is not None

    def forward(self, arguments: tuple[Tensor | None, ...]) -> tuple[Tensor, _Token]:
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
    def forward(ctx: Any, window: _Window, *arguments: Tensor | None) -> Tensor:
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
