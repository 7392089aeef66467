"""The memory that a text needs, and whether the machine has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from seqtool.core.errors import DataError

# Peak memory of training per token, beyond what the imports take, measured on a text of 24 million
# tokens of whose 5-grams 69% are different: 17 bytes at order 1, 25 at 2 and 3, 42 at 5, 89 at 7,
# 136 at 9. Up to order 4 the positions of the n-grams are most of it, then the n-grams themselves.
_BYTES_PER_TOKEN = 25
_BYTES_PER_TOKEN_AND_ORDER = 24
_ORDERS_OF_FEW = 4

_MEMINFO = Path("/proc/meminfo")
_LIMITS = (  # of control groups, version 2 and version 1: the limit, and what is in use of it
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)


def memory_needed(num_tokens: int, order: int) -> int:
    """Return about how many bytes it takes to train on a text."""
    many = max(0, order - _ORDERS_OF_FEW)
    return num_tokens * (_BYTES_PER_TOKEN + _BYTES_PER_TOKEN_AND_ORDER * many)


def memory_available() -> int | None:
    """Return how many bytes this process can still have; None where the system does not tell."""
    return min(_figures(), default=None)


def check_memory(num_bytes: int, purpose: str) -> None:
    """Refuse what would not fit into memory.

    Args:
        num_bytes: about what it takes.
        purpose: what takes it, as the subject of "need".

    Raises:
        DataError: it needs more than is available.
    """
    available = memory_available()
    if available is not None and num_bytes > available:
        raise DataError(
            f"{purpose} need about {num_bytes / 1e9:.2f} GB of memory, "
            f"but {available / 1e9:.2f} GB are available",
            hint="choose a lower --order or give less text; pruning comes too late to help",
        )


def _figures() -> Iterator[int]:
    if _MEMINFO.is_file():
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                yield int(line.split()[1]) * 1024
    for limit_path, used_path in _LIMITS:
        if Path(limit_path).is_file() and Path(used_path).is_file():
            limit = Path(limit_path).read_text().strip()
            if limit.isdecimal():  # not "max"
                yield max(int(limit) - int(Path(used_path).read_text()), 0)
