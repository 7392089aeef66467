"""Work that the processes of a pool do in tests; a new process can import it at once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from seqtool.core.errors import DataError


def make(pace: float = 0.0) -> Callable[[int], tuple[int, int]]:
    """Return the work: the square of a number and the process, the later the smaller it is.

    Number 13 is refused, and number 66 kills the process.
    """

    def work(number: int) -> tuple[int, int]:
        if number == 13:
            raise DataError("unlucky", hint="take another", path="a", line=3)
        if number == 66:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(pace if number % 3 == 0 else 0.0)
        return number * number, os.getpid()

    return work
