"""Processes of tests: several that meet as those of torchrun do, and whether one is there."""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

from seqtool.training.hardware import set_threads

SECONDS = 100  # after which a process that waits in vain is ended by the system


def together(folder: Path, action: Callable[[int], object], num: int = 2) -> list[str]:
    """Run `action(rank)` in `num` forked processes; return the text of what each returned.

    What an action raises fails the test. The processes join nothing by themselves: `action` is to
    call what does, such as `train_lm`.
    """
    with socket.socket() as held, warnings.catch_warnings():
        # no other program gets the port before the first process listens there, which may while it
        # is bound here: both reuse addresses
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        warnings.simplefilter("ignore", DeprecationWarning)  # no other thread is needed there
        children = []
        for rank in range(num):
            child = os.fork()
            if child == 0:
                _run(rank, num, port, folder, action)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0] * num, codes
    return [_result(folder, rank).read_text() for rank in range(num)]


def is_running(pid: int) -> bool:
    """Whether a process is there, and has not ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")  # one that ended stays until its parent looks
    return not status.is_file() or status.read_text().rpartition(")")[2].split()[0] != "Z"


def _run(rank: int, num: int, port: int, folder: Path, action: Callable[[int], object]) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # it may be that of pytest's own time limit
    signal.alarm(SECONDS)
    faulthandler.dump_traceback_later(SECONDS - 5, file=2)  # where it hangs
    places = {"RANK": rank, "WORLD_SIZE": num, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in places.items()})
    set_threads(1)  # of torch's threads a forked process has none: a parallel loop waits in vain
    try:
        _result(folder, rank).write_text(str(action(rank)))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _result(folder: Path, rank: int) -> Path:
    return folder / f"result-{rank}.txt"
