"""Fixtures that several test files share, and the settings of the whole suite."""

from __future__ import annotations

import io
import ipaddress
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).resolve().parents[1]

# tiny models are faster on one thread; output must not depend on who runs the tests
os.environ.setdefault("OMP_NUM_THREADS", "1")
threadpool_limits(1, user_api="blas")  # a plugin may have loaded NumPy before this file
for name in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS"):  # Typer's help would have colours
    os.environ.pop(name, None)
os.environ.update(NO_COLOR="1", COLUMNS="100")
# else each process that a test starts, and each worker, would compile all modules again
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# what a test writes need not outlive a loss of power, and a training waits forty times for the
# disk; processes of their own, such as those of tests/faults, wait as ever
os.fsync = lambda handle: None

# a machine under load must not fail a property, and a failure must come again
settings.register_profile("seqtool", deadline=None, derandomize=True)
settings.load_profile("seqtool")


# a shell lets what it starts in the background ignore Ctrl-C, and so would all that is started here
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # by nohup
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _refuse_the_network(event: str, arguments: tuple[Any, ...]) -> None:
    """Let a test talk to a server of its own alone: it must pass, and mean the same, anywhere."""
    if event != "socket.connect":
        return
    ours, address = arguments
    if ours.family in (socket.AF_INET, socket.AF_INET6):
        assert ipaddress.ip_address(address[0]).is_loopback, f"a test connects to {address[0]}"


sys.addaudithook(_refuse_the_network)


class CommandResult(NamedTuple):
    """What a command left behind."""

    code: int
    stdout: str
    stderr: str


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture
def shared_data() -> Path:
    """The folder of real corpora beside the repository; skips without it."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no folder ../shared/data with the real corpora")
    return folder


@pytest.fixture(scope="session")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.txt and valid.txt: lines of one to seven of six letters."""
    folder = tmp_path_factory.mktemp("letters")
    chooser = random.Random(1)
    for name, num_lines in (("train", 60), ("valid", 12)):
        lines = [
            " ".join(chooser.choices("abcdef", k=chooser.randint(1, 7))) for _ in range(num_lines)
        ]
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def seqtool(capsys: pytest.CaptureFixture[str]) -> Callable[..., CommandResult]:
    """Run `seqtool ARGS...` in this process: `result = seqtool("inspect", path)`."""
    from seqtool.cli.app import main

    def run(*args: object) -> CommandResult:
        capsys.readouterr()
        code = main([str(arg) for arg in args])
        captured = capsys.readouterr()
        return CommandResult(code, captured.out, captured.err)

    return run


@pytest.fixture
def seqtool_process() -> Callable[..., CommandResult]:
    """Run `seqtool ARGS...` in a process of its own, with this on a pipe to its stdin.

    Without it, stdin is /dev/null, and a command that names no input takes the sample.
    """

    def run(
        *args: object, input: bytes | None = None, cwd: Path | None = None, **env: str
    ) -> CommandResult:
        process = subprocess.run(
            [sys.executable, "-m", "seqtool", *map(str, args)],
            **({"stdin": subprocess.DEVNULL} if input is None else {"input": input}),
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(ROOT), **env},
            capture_output=True,
            check=False,
            timeout=300,
        )
        return CommandResult(
            process.returncode, process.stdout.decode("utf-8"), process.stderr.decode("utf-8")
        )

    return run


@pytest.fixture(scope="session")
def errors_of() -> Callable[[str], str]:
    """What the validator of Universal Dependencies reports at its level 2, that of the tree."""
    from udtools import validator

    report = io.StringIO()
    judge = validator.Validator(lang="ud", level=2, output=report)

    def errors(text: str) -> str:
        report.seek(0)
        report.truncate()
        state = judge.validate_file_handle(io.StringIO(text))
        judge.validate_end(state)
        return "" if state.passed() else report.getvalue()

    return errors
