"""Where a run happens: its processes, the processor and the memory of the machine.

torchrun starts a command several times and sets RANK (0 to WORLD_SIZE - 1) and, per machine,
LOCAL_RANK and LOCAL_WORLD_SIZE. The first process alone prints and writes. No torch is needed here.
"""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache, wraps
from inspect import signature
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from seqtool.core import storage
from seqtool.core.errors import ConfigError, DataError

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Place:
    """One process among those of a run."""

    rank: int = 0  # its number
    size: int = 1  # how many there are
    local_rank: int = 0  # its number among those of this machine
    local_size: int = 1  # how many there are on this machine


def place() -> Place:
    """Return the place of this process; without torchrun it is the only one."""
    # a launcher sets them together; a stray one of another program means nothing
    if not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
        return Place()
    try:
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        local_rank = int(os.environ.get("LOCAL_RANK", rank))
        local_size = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    except ValueError as error:
        what = "RANK, WORLD_SIZE, LOCAL_RANK or LOCAL_WORLD_SIZE is no number"
        hint = "start it with torchrun, or unset these variables of the environment"
        raise ConfigError(what, hint=hint) from error
    return Place(rank, size, local_rank, local_size)


def program() -> str:
    """Return how seqtool was started, as a hint repeats it."""
    here = place()
    if here.size == 1:
        return "seqtool"
    machines = here.size // here.local_size
    nodes = f"--nnodes {machines} " if machines > 1 else ""
    return f"torchrun {nodes}--nproc-per-node {here.local_size} -m seqtool"


def resuming(command: str, output: str | Path) -> str:
    """Return the command that continues a run, as a shell reads it: train-lm --resume -o DIR."""
    return f"{program()} {command} --resume -o {shlex.quote(str(output))}"


def refuse_several(command: str) -> None:
    """Refuse a command that would do its work once in every process, if there are several."""
    if (here := place()).size > 1:
        if here.rank:
            time.sleep(2.0)  # the launcher kills the others at the first exit: the first says why
        what = f"{command} runs in one process, but torchrun started {here.size}"
        raise ConfigError(what, hint=f"start it without torchrun: seqtool {command}")


@contextmanager
def quiet_unless_first() -> Iterator[None]:
    """Within the block, a process that is not the first prints nothing."""
    if not place().rank:
        yield
        return
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        redirect_stdout(nowhere),
        redirect_stderr(nowhere),
    ):
        yield


def writes_to(argument: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function alone write to the directory that an argument of it names; see `writing`.

    Of several processes of a run the first one writes; nobody does where the argument is None.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def alone(*args: P.args, **kwargs: P.kwargs) -> R:
            bound = signature(function).bind(*args, **kwargs)
            bound.apply_defaults()
            path = bound.arguments[argument]
            if path is None or place().rank:
                return function(*args, **kwargs)
            with storage.writing(path):
                return function(*args, **kwargs)

        return alone

    return decorate


CPU_INFO = Path("/proc/cpuinfo")


def _cpu_entry(name: str) -> list[str]:
    """Return the words that Linux has for an entry of the first processor; none elsewhere."""
    found = re.search(rf"^{name}\s*:(.*)$", _text(CPU_INFO), re.MULTILINE)
    return found[1].split() if found else []


def cpu_vendor() -> str:
    """Return the maker of the processor as Linux names it, such as GenuineIntel; "" elsewhere."""
    return "".join(_cpu_entry("vendor_id"))


@cache
def has_bf16_products() -> bool:
    """Whether this is, as Linux says, a processor on which products of bfloat16 are faster.

    Those are processors with units for whole matrices (AMX), and AMD's with AVX-512 BF16. On
    Intel's with AVX-512 BF16 alone, torch makes products of 1,024 at half the speed of float32's
    (84 and 160 GFLOP/s on a Xeon whose AMX is hidden); without either it is slower everywhere.
    """
    flags = _cpu_entry("flags")
    return "amx_bf16" in flags or ("avx512_bf16" in flags and cpu_vendor() == "AuthenticAMD")


_reports_errors: bool | None = None


def reports_errors() -> bool:
    """Return whether the error that ends this process is to be shown: one of a run's is.

    That is the error of the process that failed first, as far as the processes had met.
    """
    return place().rank == 0 if _reports_errors is None else _reports_errors


def let_report_errors(reports: bool) -> None:
    """Decide what `reports_errors` returns."""
    global _reports_errors
    _reports_errors = reports


_UNTOLD = 10**9  # bytes that are taken where the system does not tell what is free
_MEMINFO, _STATUS = Path("/proc/meminfo"), Path("/proc/self/status")
_CGROUPS, _OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def available_threads() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_available(limit: int | None = None) -> int | None:
    """Return how many bytes this process can still have; None where the system does not tell.

    With a limit, that is how many it may take in all, whatever the system says.
    """
    if limit is not None:
        held = _figures(_STATUS).get("RssAnon", 0) * 1024  # mapped files do not count
        return max(0, limit - held)
    return min(_free_memory(), default=None)


def memory_limit() -> int:
    """Return how many bytes this process may take where more than that can go to disk.

    That is what it holds, and half of what is free; 1 GB more where the system does not tell.
    """
    held = _figures(_STATUS).get("RssAnon", 0) * 1024
    free = memory_available()
    return held + (_UNTOLD if free is None else free // 2)


# of glibc's malloc.h: blocks from which on the system is asked for each alone, and how much is kept
# free at the end of the memory; here, and as far as glibc raises them by itself
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
_KEPT = {_MMAP_THRESHOLD: 1 << 30, _TRIM_THRESHOLD: (1 << 31) - 1}
_USUAL = {_MMAP_THRESHOLD: 32 << 20, _TRIM_THRESHOLD: 64 << 20}


def _call_malloc(name: str, *arguments: int) -> None:
    """Call a function of the C library that glibc alone has."""
    if (function := getattr(ctypes.CDLL(None), name, None)) is not None:
        function(*arguments)


@contextmanager
def keeping_freed_memory() -> Iterator[None]:
    """Within the block, keep the pages of large blocks that are freed, where glibc allocates them.

    A loop that allocates the same large blocks again and again, such as gradients, has the system
    clear their pages each time otherwise. What is not for steps of one shape may grow by it.
    """
    for setting in _KEPT.items():
        _call_malloc("mallopt", *setting)
    try:
        yield
    finally:
        for setting in _USUAL.items():
            _call_malloc("mallopt", *setting)
        give_back_memory()


def give_back_memory() -> None:
    """Give the system the pages of memory that were freed, where the C library is glibc.

    It keeps the free room between blocks that stay: steps that allocate and free blocks of some
    megabytes, of many sizes, leave gigabytes of such room.
    """
    _call_malloc("malloc_trim", 0)


def check_memory(num_bytes: int, purpose: str, hint: str, limit: int | None = None) -> None:
    """Refuse what takes more memory than there is.

    The `purpose` is the subject of "need", the `hint` what to do beside telling a limit, which is
    as for `memory_available`.
    """
    available = memory_available(limit)
    if available is not None and num_bytes > available:
        more = "raise" if limit is not None else "if there is more, say how much with"
        what = f"{purpose} need about {size_text(num_bytes)} of memory"
        what = f"{what}, but {size_text(available)} are available"
        raise DataError(what, hint=f"{hint}; {more} --memory")


def size_text(num_bytes: int) -> str:
    """Return a number of bytes as people read it."""
    return f"{num_bytes / 1e9:.2f} GB" if num_bytes >= 10**8 else f"{num_bytes / 1e6:.1f} MB"


def parse_size(text: str) -> int:
    """Return the bytes that 8G, 500M or 1.5GB stands for; a ConfigError if it is no size."""
    found = re.fullmatch(r"(\d+(?:\.\d*)?)\s*([KMGT]?)B?", text.strip().upper())
    if found is None or float(found[1]) == 0:
        raise ConfigError(f"{text!r} is no size of memory", hint="give one like 8G or 500M")
    return int(float(found[1]) * 1000 ** " KMGT".index(found[2] or " "))


def _free_memory() -> Iterator[int]:
    """Give what the machine and each control group (v2) above this process have left."""
    if "MemAvailable" in (machine := _figures(_MEMINFO)):
        yield machine["MemAvailable"] * 1024
    own = re.search(r"^0::/(.*)$", _text(_OWN_CGROUPS), re.MULTILINE)
    group = _CGROUPS / (own[1] if own else "")
    for folder in (group, *group.parents):  # in a container the path may be the host's
        limit, used = _text(folder / "memory.max").strip(), _text(folder / "memory.current")
        if limit.isdecimal() and used.strip().isdecimal():  # not "max"
            statistics = _figures(folder / "memory.stat")
            # pages of files that were read are counted as used, but given back when asked for
            cached = sum(statistics.get(name, 0) for name in ("active_file", "inactive_file"))
            yield max(int(limit) - max(int(used) - cached, 0), 0)


def _text(path: Path) -> str:
    """Return what a file of Linux holds; nothing where there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _figures(path: Path) -> dict[str, int]:
    """Return the first number after each name in a file of Linux."""
    pairs = re.findall(r"^(\S+?):?\s+(\d+)", _text(path), re.MULTILINE)
    return {name: int(number) for name, number in pairs}


@cache
def _blas() -> Any:
    """Return what sets the threads of BLAS, of the libraries that are loaded at the first call.

    NumPy's is among them, as products are of its arrays. To look for them takes some milliseconds.
    """
    from threadpoolctl import ThreadpoolController  # not every command multiplies

    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[object]:
    """Return the context in which NumPy's products are made by the calling thread."""
    limited: AbstractContextManager[object] = _blas().limit(limits=1, user_api="blas")
    return limited
