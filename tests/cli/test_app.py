"""The frame around every command: errors as two lines, exit codes, outputs that fail."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from seqtool import __version__
from seqtool.cli import app
from seqtool.core.errors import DataError, Interrupted

Run = Callable[..., Any]
Fail = Callable[[BaseException], None]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Fail:
    """Make every command raise this instead of running."""

    def install(error: BaseException) -> None:
        def run(*_args: Any, **_keywords: Any) -> None:
            raise error

        monkeypatch.setattr(app, "build_app", lambda args: run)

    return install


def test_version(seqtool: Run) -> None:
    assert seqtool("--version") == (0, f"seqtool {__version__}\n", "")


@pytest.mark.parametrize(
    ("words", "said", "command"),
    [
        ("nonsense", "nonsense", "seqtool"),
        ("--nonsense", "--nonsense", "seqtool"),
        ("--debug analyse --none", "--none", "seqtool analyse report"),
        ("inspect -- --debug", "--debug", ""),
        ("ngram export", "'MODEL'", "seqtool ngram export"),
        ("train-lm --cell", "'--cell' requires", "seqtool train-lm"),
        ("ngram train x --prune 0,x", "0,x", "seqtool ngram train"),
        ("ngram counts x --sort size", "size", "seqtool ngram counts"),
    ],
)
def test_mistakes_of_use_are_two_lines(seqtool: Run, words: str, said: str, command: str) -> None:
    code, printed, shown = seqtool(*words.split())
    assert (code, printed) == (2 if command else 1, "")
    error, hint = shown.splitlines()[-2:]
    assert error.startswith("error: ")
    assert said in error
    assert hint.startswith("hint: ")
    assert command in hint


def caused_by(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (DataError("no head", hint="x", path="a.txt", line=3), "error: a.txt:3: no head"),
        (MemoryError(), "error: out of memory"),
        (ImportError("x.so: failed to map segment from shared object"), "error: out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "error: out of memory"),
        (RuntimeError("can't start new thread"), "error: out of memory"),
        (caused_by(DataError("is damaged"), MemoryError()), "error: out of memory"),
        (torch.OutOfMemoryError("Allocation on device 0 would exceed"), "the GPU is out of memory"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED"), "the GPU is out of memory"),
        (DataError("the word 'out of memory' does not occur", hint="x"), "does not occur"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "log"), "log: no space left on device"),
        (KeyError("x"), "error: KeyError in test_app.py:"),
    ],
    ids=repr,
)
def test_the_error_names_the_cause(
    seqtool: Run, failing: Fail, error: Exception, words: str
) -> None:
    failing(error)
    code, printed, shown = seqtool("anything")
    assert (code, printed) == (1, "")
    first, hint = shown.splitlines()
    assert words in first
    assert hint.startswith("hint: ")


@pytest.mark.parametrize("error", [DataError("is empty", path="a.txt"), KeyError("x")])
def test_debug_shows_the_traceback_of_any_error(
    seqtool: Run, failing: Fail, error: Exception
) -> None:
    failing(error)
    without, shown = seqtool("anything"), seqtool("anything", "--debug")
    assert shown.code == without.code == 1
    assert shown.stderr.startswith("Traceback (most recent call last):\n")
    assert shown.stderr.endswith(without.stderr)


def test_output_is_utf8_on_any_platform() -> None:
    script = "from seqtool.cli import app; app.main(['--version']); print('말뭉치')"
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    assert run.stdout.decode("utf-8").splitlines()[1] == "말뭉치"


@pytest.mark.parametrize("command", [["--help"], ["help"]])
def test_a_closed_pipe_is_no_error_and_a_full_disk_is_one(command: list[str]) -> None:
    words = [sys.executable, "-m", "seqtool", *command]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()  # as `| head -0` does
    assert process.communicate()[1] == b""
    assert process.returncode == 141
    with open("/dev/full", "wb") as full:
        run = subprocess.run(words, stdout=full, stderr=subprocess.PIPE)
    assert run.returncode == 1
    error, hint = run.stderr.decode().splitlines()  # the end of the interpreter adds nothing
    assert error.endswith("no space left on device")
    assert hint.startswith("hint: ")


@pytest.mark.parametrize(
    "command", ["parse a.conllu -o|", "parse a.conllu --output=", "draw|", "ngram train|"]
)
def test_an_empty_name_is_not_the_current_directory(
    seqtool: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.conllu").write_text("1\tHi\thi\tINTJ\t_\t_\t0\troot\t_\t_\n\n")
    words = command.rstrip("|").split()
    result = seqtool(*words, *[""] * command.endswith("|"))
    assert (result.code, result.stdout) == (2, "")
    assert "is empty" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.conllu"]


def test_an_empty_text_is_a_text(seqtool: Run, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("a b c d e\n" * 9)
    assert seqtool("ngram", "train", tmp_path / "t.txt", "-o", tmp_path / "m").code == 0
    assert seqtool("generate", "--next", 3, "--prompt", "", "-m", tmp_path / "m").code == 0


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (Interrupted("saved", hint="go on"), "interrupted: saved\nhint: go on\n"),
        (KeyboardInterrupt(), ""),
    ],
)
def test_an_interrupt_is_130(seqtool: Run, failing: Fail, error: BaseException, lines: str) -> None:
    failing(error)
    assert seqtool("anything") == (130, "", lines)
