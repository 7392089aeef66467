"""Where a run happens: which of its processes this is, what the processor can do, Ctrl-C.

torchrun starts a command several times and sets RANK (0 to WORLD_SIZE - 1) and, per machine,
LOCAL_RANK and LOCAL_WORLD_SIZE. The first process alone prints and writes. No torch is needed here.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType

from seqtool.core.errors import ConfigError


@dataclass(frozen=True)
class Place:
    """One process among those of a run.

    Attributes:
        rank: its number, from 0.
        size: how many there are.
        local_rank: its number among those of this machine.
        local_size: how many there are on this machine.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1


def place() -> Place:
    """Return the place of this process; without torchrun it is the only one.

    Raises:
        ConfigError: the environment contradicts itself.
    """
    # a launcher sets them together; a stray one of another program means nothing
    if not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
        return Place()
    try:
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        local_rank = int(os.environ.get("LOCAL_RANK", rank))
        local_size = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    except ValueError as error:
        raise ConfigError(
            "RANK, WORLD_SIZE, LOCAL_RANK or LOCAL_WORLD_SIZE is no number", hint=_UNSET
        ) from error
    if not (0 <= local_rank < local_size <= size and local_rank <= rank < size):
        raise ConfigError(
            f"process {rank} of {size}, {local_rank} of {local_size} on this machine, cannot be",
            hint=_UNSET,
        )
    return Place(rank, size, local_rank, local_size)


_UNSET = "start it with torchrun, or unset these variables of the environment"


def program() -> str:
    """Return how seqtool was started, as a hint repeats it."""
    here = place()
    if here.size == 1:
        return "seqtool"
    machines = here.size // here.local_size
    nodes = f"--nnodes {machines} " if machines > 1 else ""
    return f"torchrun {nodes}--nproc-per-node {here.local_size} -m seqtool"


def refuse_several(command: str) -> None:
    """Refuse a command that would do its work once in every process.

    Raises:
        ConfigError: there are several processes.
    """
    if (here := place()).size > 1:
        raise ConfigError(
            f"{command} runs in one process, but torchrun started {here.size}",
            hint=f"start it without torchrun: seqtool {command}",
        )


@contextmanager
def quiet_unless_first() -> Iterator[None]:
    """Within the block, a process that is not the first prints nothing."""
    with ExitStack() as stack:
        if place().rank:
            nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
            stack.enter_context(redirect_stdout(nowhere))
            stack.enter_context(redirect_stderr(nowhere))
        yield


# what the kernel calls the instructions that multiply bfloat16
_BF16_FLAGS = {"avx512_bf16", "amx_bf16"}
CPU_INFO = Path("/proc/cpuinfo")


@cache
def has_bf16_products() -> bool:
    """Return whether the processor has instructions for products of bfloat16.

    Linux names them; elsewhere this is False. Without them, torch's products of bfloat16 are slower
    than those of float32.
    """
    try:
        lines = CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    flags = next((line for line in lines if line.startswith("flags")), "")
    return not _BF16_FLAGS.isdisjoint(flags.split())


_speaks: bool | None = None


def speaks() -> bool:
    """Return whether the error that ends this process is to be shown: one of a run's is.

    That is the error of the process that failed first, as far as the processes had met.
    """
    return place().rank == 0 if _speaks is None else _speaks


def let_speak(speaks: bool) -> None:
    """Decide what `speaks` returns."""
    global _speaks
    _speaks = speaks


class Interruption:
    """Set by Ctrl-C or SIGTERM; the loop then saves and stops. A second Ctrl-C stops at once."""

    def __init__(self) -> None:
        self.requested = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen to signals while the block runs; outside the main thread nothing is heard."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(number, self._handle) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)
