"""Commands that are run, and made to fail, for the tests of this folder."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SHIM = Path(__file__).with_name("events.c")


@cache
def shim() -> Path | None:
    """Return the library made of `events.c`; None without a C compiler, or not on Linux."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        return None
    library = Path(tempfile.mkdtemp(prefix="seqtool-faults-")) / "events.so"
    command = [compiler, "-shared", "-fPIC", "-O2", str(SHIM), "-o", str(library), "-ldl"]
    made = subprocess.run(command, capture_output=True, check=False)
    return library if made.returncode == 0 else None


@dataclass(frozen=True)
class Result:
    """What a command left behind; its code is None when it was killed."""

    args: tuple[str, ...]
    stdout: str
    stderr: str
    code: int | None
    signal: int | None
    events: int  # changes of files that it made
    memory: int  # its largest resident size in bytes; that of the loaded program included
    seconds: float
    timed_out: bool

    def __str__(self) -> str:
        return (
            f"seqtool {' '.join(self.args)}\n-> code {self.code}, signal {self.signal}, "
            f"{self.seconds:.1f} s{' (timed out)' if self.timed_out else ''}\n"
            f"{self.stdout[-1500:]}{self.stderr[-1500:]}"
        )

    @property
    def is_clean(self) -> bool:
        """Whether the command did its work, or said in two lines why it did not."""
        if self.timed_out or self.code is None:
            return False
        if "Traceback" in self.stderr or "bug of seqtool" in self.stderr:
            return False
        if self.code in (1, 130):
            told = [line.split(":")[0] for line in self.stderr.splitlines()]
            return any(word in told for word in ("error", "interrupted")) and "hint" in told
        return self.code in (0, 2)


class Commands:
    """A process with seqtool loaded that runs commands in children of it."""

    def __init__(self) -> None:
        library = shim()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests"))),
            "PYTHONDONTWRITEBYTECODE": "1",  # or the first run makes more changes than the next
            "OMP_NUM_THREADS": "1",
            "NO_COLOR": "1",
            "COLUMNS": "100",
        }
        if library is not None:
            environment["LD_PRELOAD"] = str(library)
        self._num_runs = 0
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "faults.server"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.folder = Path(tempfile.mkdtemp(prefix="seqtool-faults-"))
        assert self._answer() == "ready"

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def __call__(self, *args: object, cwd: Path, **how: Any) -> Result:
        """Run `seqtool ARGS...` in the directory `cwd`; `start` says how it may be run."""
        return self.start(*args, cwd=cwd, **how).wait()

    def start(
        self,
        *args: object,
        cwd: Path,
        do: str = "nothing",
        at: int = 0,
        value: int = 0,
        stdout: str | Path | None = None,
        stderr: str | Path | None = None,
        seconds: float = 120,
        memory: int = 0,
    ) -> Running:
        """Start `seqtool ARGS...` in the directory `cwd`; it runs beside what is started next.

        Args:
            args: the command.
            cwd: where it runs; the changes of files below it are counted.
            do: what happens at change `at`: kill, signal (`value`), error (errno `value`), or
                errors from there on.
            at: number of the change, from 1.
            value: see `do`.
            stdout: where its output goes, if not into the result.
            stderr: the same.
            seconds: it is killed after so long.
            memory: bytes that it may ask for beyond those of the loaded program; 0 for all.
        """
        self._num_runs += 1
        out, err = (self.folder / f"{name}-{self._num_runs}" for name in ("stdout", "stderr"))
        words = tuple(str(arg) for arg in args)
        request = {"args": words, "cwd": str(cwd), "do": do, "at": at, "value": value}
        request |= {"stdout": str(stdout or out), "stderr": str(stderr or err)}
        process = self.ask({**request, "seconds": seconds, "memory": memory})
        return Running(self, process, words, out, err)

    def ask(self, request: dict[str, Any]) -> Any:
        """Return what the server answers."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._answer())


@dataclass(frozen=True)
class Running:
    """A command that was started, with the number of its process."""

    commands: Commands
    process: int
    words: tuple[str, ...]
    out: Path
    err: Path

    def has_told(self, text: str, seconds: float = 120) -> bool:
        """Wait until it has told something; return whether it has."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.err.is_file() and text in self.err.read_text("utf-8", "replace"):
                return True
            time.sleep(0.01)
        return False

    def wait(self) -> Result:
        """Return what it leaves behind when it has ended."""
        answer = self.commands.ask({"wait": self.process})
        texts = [
            path.read_text("utf-8", "replace") if path.is_file() else ""
            for path in (self.out, self.err)
        ]
        return Result(self.words, *texts, **answer)


def sums_of(paths: Iterable[Path]) -> dict[str, str]:
    """Return the sums of the files that are there, without the headers of safetensors."""
    sums = {}
    for path in sorted(paths):
        if path.is_file():
            content = path.read_bytes()
            if path.suffix == ".safetensors":
                content = content[8 + int.from_bytes(content[:8], "little") :]
            sums[path.name] = hashlib.sha256(content).hexdigest()[:16]
    return sums


def leftovers(folder: Path) -> list[str]:
    """Return the names below a directory that only an interrupted writer leaves."""
    from seqtool.core.storage import is_leftover

    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob(".*") if is_leftover(path.name)
    )
