"""The frame around every command: help, version, exit codes, and errors as two lines."""

from __future__ import annotations

import errno
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from typer.main import get_params_from_function

from seqtool import __version__
from seqtool.cli import app
from seqtool.core.errors import DataError, Interrupted

Run = Callable[..., Any]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Make every command raise this instead of running."""

    def install(error: BaseException) -> None:
        def run(*_args: Any, **_keywords: Any) -> None:
            raise error

        monkeypatch.setattr(app, "build_app", lambda args: run)

    return install


def test_help_names_every_command(seqtool: Run) -> None:
    for flag in ("--help", "-h"):
        result = seqtool(flag)
        assert result.code == 0
        assert result.stderr == ""
        for name in app.COMMANDS:
            assert re.search(rf"\b{name.partition(' ')[0]}\b", result.stdout)
    for group in app.GROUPS:
        inside = seqtool(group, "--help").stdout
        for name in app.COMMANDS:
            if name.startswith(f"{group} "):
                assert re.search(rf"\b{name.removeprefix(group).strip()}\b", inside)


@pytest.mark.parametrize("name", app.COMMANDS)
def test_help_of_every_command_explains_every_option(seqtool: Run, name: str) -> None:
    result = seqtool(*name.split(), "--help")
    assert result.code == 0
    assert f"seqtool {name}" in result.stdout
    for parameter in get_params_from_function(app.load_commands()[name]).values():
        if parameter.annotation is not typer.Context:
            assert parameter.default.help, f"{parameter.name} of seqtool {name} has no help text"


def test_version(seqtool: Run) -> None:
    assert seqtool("--version") == (0, f"seqtool {__version__}\n", "")


def test_no_command_shows_help(seqtool: Run) -> None:
    result = seqtool()
    assert result.code == 2
    assert "prepare" in result.stdout + result.stderr


@pytest.mark.parametrize("args", [["nonsense"], ["--nonsense"], ["inspect", "--nonsense"]])
def test_usage_errors_exit_with_2(seqtool: Run, args: list[str]) -> None:
    result = seqtool(*args)
    assert result.code == 2
    assert result.stdout == ""
    assert "nonsense" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("error", "code", "lines"),
    [
        (
            DataError("token 7 has no head", hint="fix the line", path="a.conllu", line=3),
            1,
            ["error: a.conllu:3: token 7 has no head", "hint: fix the line"],
        ),
        (DataError("is empty"), 1, ["error: is empty"]),
        (
            Interrupted("the state is in runs/lm/last", hint="continue with --resume"),
            130,
            ["interrupted: the state is in runs/lm/last", "hint: continue with --resume"],
        ),
        (
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "runs/lm/log.jsonl"),
            1,
            [
                "error: runs/lm/log.jsonl: no space left on device",
                "hint: free some space or write to another disk with -o, then run the command "
                "again",
            ],
        ),
        (KeyboardInterrupt(), 130, []),
    ],
)
def test_errors_are_two_lines(
    seqtool: Run,
    failing: Callable[[BaseException], None],
    error: BaseException,
    code: int,
    lines: list[str],
) -> None:
    failing(error)
    assert seqtool("anything") == (code, "", "".join(f"{line}\n" for line in lines))


def caused_by(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory", "weights.safetensors"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
        RuntimeError("can't start new thread"),
        SystemError("error return without exception set"),
        caused_by(DataError("is damaged", path="model"), MemoryError()),
    ],
    ids=repr,
)
def test_a_lack_of_memory_is_told_as_one(
    seqtool: Run, failing: Callable[[BaseException], None], error: Exception
) -> None:
    failing(error)
    result = seqtool("anything")
    assert result == (1, "", f"error: out of memory\nhint: {app._MEMORY_HINT}\n")


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total"
        ),
        torch.OutOfMemoryError("HIP out of memory. Tried to allocate 2.00 GiB."),
        torch.OutOfMemoryError("Allocation on device 0 would exceed allowed memory."),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("MPS backend out of memory (MPS allocated: 8.00 GB)"),
        caused_by(DataError("is damaged", path="model"), torch.OutOfMemoryError("CUDA out of")),
    ],
    ids=repr,
)
def test_a_lack_of_memory_of_a_gpu_is_told_as_one(
    seqtool: Run, failing: Callable[[BaseException], None], error: Exception
) -> None:
    failing(error)
    result = seqtool("anything")
    assert result == (1, "", f"error: the GPU is out of memory\nhint: {app._GPU_MEMORY_HINT}\n")


def test_a_text_that_speaks_of_memory_is_no_lack_of_it(
    seqtool: Run, failing: Callable[[BaseException], None]
) -> None:
    failing(DataError("the word 'out of memory' does not occur", hint="take another"))
    assert "does not occur" in seqtool("anything").stderr


def test_usage_errors_are_two_lines(seqtool: Run) -> None:
    for words, said in (
        (("inspect", "--nonsense"), "no such option: --nonsense"),
        (("ngram", "export"), "missing argument 'MODEL'"),
        (("train-lm", "--cell"), "option '--cell' requires an argument"),
    ):
        error, hint = seqtool(*words).stderr.splitlines()
        assert error == f"error: {said}"
        command = "seqtool " + " ".join(word for word in words if not word.startswith("-"))
        assert hint == f"hint: see `{command} --help`"


@pytest.mark.parametrize("bug", [RuntimeError("shapes differ"), KeyError("x"), AssertionError()])
def test_a_bug_is_two_lines_that_say_where_it_is(
    seqtool: Run, failing: Callable[[BaseException], None], bug: Exception
) -> None:
    failing(bug)
    code, printed, told = seqtool("anything")
    assert (code, printed) == (1, "")
    error, hint = told.splitlines()
    assert error.startswith(f"error: {type(bug).__name__} in test_app.py:")
    assert hint == "hint: this is a bug of seqtool: report it with what --debug shows"


@pytest.mark.parametrize("error", [DataError("is empty", path="a.txt"), KeyError("x")])
def test_debug_shows_the_traceback_of_any_error(
    seqtool: Run, failing: Callable[[BaseException], None], error: Exception
) -> None:
    failing(error)
    without, shown = seqtool("anything"), seqtool("anything", "--debug")
    assert shown.code == without.code == 1
    assert shown.stderr.startswith("Traceback (most recent call last):\n")
    assert shown.stderr.endswith(without.stderr)


def test_debug_before_a_group_runs_what_the_group_alone_runs(seqtool: Run) -> None:
    alone, shown = seqtool("analyse", "--none"), seqtool("--debug", "analyse", "--none")
    assert "analyse report --help" in alone.stderr
    assert shown.stderr.endswith(alone.stderr)


def test_debug_after_two_dashes_is_an_argument(seqtool: Run) -> None:
    assert "--debug" in seqtool("inspect", "--", "--debug").stderr


def test_output_is_utf8_on_any_platform() -> None:
    script = "from seqtool.cli import app; app.main(['--version']); print('말뭉치')"
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    assert run.stdout.decode("utf-8").splitlines()[1] == "말뭉치"


def test_closed_pipe_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "seqtool", "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()  # as `| head -0` does
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


def test_an_output_that_is_full_is_told_once() -> None:
    with open("/dev/full", "wb") as full:
        run = subprocess.run(
            [sys.executable, "-m", "seqtool", "--help"], stdout=full, stderr=subprocess.PIPE
        )
    assert run.returncode == 1
    error, hint = run.stderr.decode().splitlines()  # the end of the interpreter adds nothing
    assert error == "error: stdout: no space left on device"
    assert hint.startswith("hint: ")


def test_help_is_quick() -> None:
    """It takes less than twice as long again as what reads options and draws, whatever the load."""

    def cpu_seconds() -> float:  # of the processes that ended; wall time depends on other work
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def least(*arguments: str) -> float:
        seconds = []
        for _ in range(3):
            before = cpu_seconds()
            subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
            seconds.append(cpu_seconds() - before)
        return min(seconds)

    drawing = "import typer, rich.console, rich.markdown, rich.panel, rich.table"
    assert least("-m", "seqtool", "--help") < 3 * least("-c", drawing)


@pytest.mark.parametrize(
    ("command", "where"),
    [
        (("parse", "a.conllu", "-o", ""), "after -o"),
        (("parse", "a.conllu", "--output="), "after --output"),
        (("draw", ""), "among the arguments"),
        (("train-parser", "a.conllu", "--dev", ""), "after --dev"),
        (("eval-ppl", "-m", ""), "after -m"),
        (("eval-ppl", "--json", ""), "among the arguments"),
        (("ngram", "train", ""), "among the arguments"),
    ],
)
def test_an_empty_name_is_not_the_current_directory(
    seqtool: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    where: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.conllu").write_text("1\tHi\thi\tINTJ\t_\t_\t0\troot\t_\t_\n\n")
    result = seqtool(*command)
    assert (result.code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: the name {where} is empty\nhint: ")
    assert [path.name for path in tmp_path.iterdir()] == ["a.conllu"]


def test_an_empty_text_is_a_text(seqtool: Run, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("a b c d e\n" * 9)
    assert seqtool("ngram", "train", tmp_path / "t.txt", "-o", tmp_path / "m").code == 0
    assert seqtool("generate", "--next", 3, "--prompt", "", "-m", tmp_path / "m").code == 0
