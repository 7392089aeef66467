"""A process that has seqtool loaded, and runs each command in a child that may be made to fail.

    python -m faults.server     one request a line on stdin, one answer a line on stdout

A request either starts a command, and is answered by its number of the process, or waits for the
one of a number. A child starts in milliseconds, where a command takes a second to import torch.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

ACTIONS = {"nothing": 0, "kill": 1, "signal": 2, "error": 3, "errors": 4}


def _load() -> Any:
    """Import all that a command may need, so that children do not."""
    for name in (
        "seqtool.lm.neural.train",
        "seqtool.lm.ngram.train",
        "seqtool.lm.ngram.model",
        "seqtool.lm.mixture.model",
        "seqtool.parsing.pipeline.train",
        "seqtool.parsing.segmenter.train",
        "seqtool.parsing.tagger.train",
        "seqtool.parsing.parser.train",
        "torch._dynamo",  # which torch imports with the first optimiser: a second of each training
        *("duckdb", "pydantic", "typer._adapters"),  # a tenth of a second of each command
    ):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    app = importlib.import_module("seqtool.cli.app")
    app.load_commands()
    return app.main


def _run_child(main: Any, request: dict[str, Any], shim: Any, report: int) -> None:
    """Run one command; what it prints goes to files, its exit code and events to `report`."""
    os.setsid()
    os.chdir(request["cwd"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb", closefd=False))
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
        setattr(sys, name, io.TextIOWrapper(os.fdopen(number, "wb", closefd=False)))
    if request["memory"]:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + request["memory"],) * 2)
    sys.argv = ["seqtool", *request["args"]]
    code = 70
    if shim is not None:
        action = ACTIONS[request["do"]]
        shim.fault_arm(os.fsencode(request["cwd"]), request["at"], action, request["value"])
    try:
        code = main(request["args"])
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 70
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    events = shim.fault_count() if shim is not None else 0
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    os.write(report, json.dumps({"code": code, "events": events, "memory": usage}).encode())
    os._exit(code & 0xFF)


class _Running(NamedTuple):
    """A child: where it reports, when it was started, and how many seconds it may take."""

    reader: int
    started: float
    seconds: float


def _wait(child: int, running: _Running) -> dict[str, Any]:
    """Return what a child has done when it has ended; it is killed when its time is over."""
    timed_out, status = False, 0
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() - running.started > running.seconds:
            timed_out = True
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            break
        time.sleep(0.002)
    answer: dict[str, Any] = {"code": None, "events": 0, "memory": 0}
    with os.fdopen(running.reader, "rb") as stream:
        content = stream.read()
    if content:
        answer |= json.loads(content)
    answer["signal"] = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    answer["timed_out"] = timed_out
    answer["seconds"] = time.monotonic() - running.started
    return answer


def main() -> None:
    """Answer requests until stdin ends."""
    command = _load()
    gc.collect()
    gc.freeze()  # else a collection in a child copies the pages of all that is loaded
    preload = os.environ.get("LD_PRELOAD")
    shim = ctypes.CDLL(preload) if preload else None
    if shim is not None:
        shim.fault_arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_int]
        shim.fault_count.restype = ctypes.c_long
    print("ready", flush=True)
    running: dict[int, _Running] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            print(json.dumps(_wait(request["wait"], running.pop(request["wait"]))), flush=True)
            continue
        started = time.monotonic()
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            try:
                _run_child(command, request, shim, writer)
            finally:
                os._exit(70)
        os.close(writer)
        running[child] = _Running(reader, started, request["seconds"])
        print(child, flush=True)
    for child in running:  # a test has failed before it waited for them
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    main()
    os._exit(0)  # at once: duckdb would tell what it leaves in memory
