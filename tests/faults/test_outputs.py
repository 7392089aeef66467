"""What is printed arrives, or the exit code says that it did not; it moves no terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from faults.runs import ROOT, Commands

KEPT = ROOT / "tests" / "kept"

PRINTING = (
    ("--help",),
    ("help", "parsing"),
    ("fetch", "--list"),
    ("generate", "-m", "ngram", "--num", "3", "--json"),
    ("eval-ppl", "valid.txt", "-m", "ngram"),
    ("ngram", "export", "ngram", "-"),
    ("inspect", "lm-rnn"),
    ("parse", "dev.conllu", "-m", "parser"),
    ("parse", "dev.conllu", "-m", "parser", "--format", "tree"),
    ("segment", "raw.txt", "-m", "segmenter"),
)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(KEPT, tmp_path_factory.mktemp("kept") / "kept"))


def check_left(commands: Commands, words: tuple[object, ...], folder: Path, pipe: Path) -> None:
    """Run a command whose output goes to a pipe that is opened and left."""
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: os.close(os.open(pipe, os.O_RDONLY)), daemon=True)
    reader.start()
    how = {} if pipe in words else {"stdout": pipe}
    result = commands(*words, cwd=folder, **how)
    reader.join()
    assert result.code in (0, 141), result  # what is short may be in the pipe before it is left
    assert "error" not in result.stderr, result
    assert "Traceback" not in result.stderr, result


@pytest.mark.parametrize("words", PRINTING, ids=" ".join)
def test_a_full_output_is_an_error_and_a_reader_that_goes_away_is_none(
    commands: Commands, kept: Path, words: tuple[str, ...], tmp_path: Path
) -> None:
    result = commands(*words, cwd=kept, stdout="/dev/full")
    assert result.code == 1, result
    assert result.is_clean, result
    check_left(commands, words, kept, tmp_path / "pipe")


WRITING = (
    ("ngram", "export", "ngram"),
    ("eval-ppl", "valid.txt", "-m", "ngram", "--per-token"),
    ("parse", "dev.conllu", "-m", "parser", "-o"),
)


@pytest.mark.parametrize("words", WRITING, ids=" ".join)
def test_a_device_and_a_pipe_are_written_to(
    commands: Commands, kept: Path, words: tuple[str, ...], tmp_path: Path
) -> None:
    full = commands(*words, "/dev/full", cwd=kept)
    assert full.code == 1, full
    assert "error: /dev/full: no space left on device\n" in full.stderr, full
    assert full.is_clean, full
    check_left(commands, (*words, tmp_path / "pipe"), kept, tmp_path / "pipe")


TRAINING = ("ngram", "train", "text.txt", "--order", "2", "-o", "ng", "--force")


@pytest.mark.parametrize(
    ("words", "redirection", "code"),
    [
        (("--help",), ">&-", 1),
        (("inspect", "lm-rnn"), ">&-", 1),
        (TRAINING, "2>/dev/full", 0),
        (TRAINING, "2>&-", 0),
        (("inspect", "none"), "2>&-", 1),
    ],
)
def test_a_closed_stdout_is_an_error_and_a_closed_stderr_ends_no_work(
    kept: Path, words: tuple[str, ...], redirection: str, code: int
) -> None:
    ended = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" -m seqtool "$@" {redirection}', sys.executable, *words],
        cwd=kept,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == code, ended
    assert bool(ended.stdout) == (words is TRAINING)
    assert bool(re.match("error: .*\nhint: ", ended.stderr)) == (redirection == ">&-")


# changes the title, clears the screen, types for the reader, colours, and the 8-bit forms of it
HOSTILE = "\x1b]0;owned\x07a\x1b[2Jb\x1b[31mc\x9b31md\x9d0;x\x9ce\x07\x08f"
HOSTILE_NAME = "w\x1b[31mx\x9b0m.txt"
# what a program that draws tables, colours and bars may send
ALLOWED = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[[0-9]*[ABKG]|\x1b\]8;[^\x1b]*\x1b\\")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which everything that can hold text holds what a terminal obeys."""
    folder = tmp_path_factory.mktemp("hostile") / "kept"
    shutil.copytree(KEPT, folder)
    (folder / "t.txt").write_text(f"the {HOSTILE} old\n" * 30, "utf-8")
    record = {"text": f"the {HOSTILE}", HOSTILE: 1}
    (folder / "t.jsonl").write_text(json.dumps(record) + "\n", "utf-8")
    trees = (folder / "dev.conllu").read_text("utf-8")
    lines = []
    for line in trees.splitlines():
        columns = line.split("\t")
        if len(columns) == 10 and columns[0] == "1":
            columns[1] = columns[2] = columns[4] = HOSTILE
            columns[7], columns[9] = f"dep:{HOSTILE}", f"Note={HOSTILE}"
        lines.append("\t".join(columns))
    (folder / "bad.conllu").write_text(f"# text = {HOSTILE}\n" + "\n".join(lines) + "\n\n", "utf-8")
    (folder / "broken.conllu").write_text(f"1\t{HOSTILE}\tx\n\n", "utf-8")
    (folder / "settings.yaml").write_text(f'"{json.dumps(HOSTILE)[1:-1]}": 1\n', "utf-8")
    shutil.copy(folder / "t.txt", folder / HOSTILE_NAME)
    for model in ("lm-rnn", "parser", "ngram"):
        path = folder / model / "model.json"
        header = json.loads(path.read_text("utf-8"))
        header.pop("sha256", None)
        header["command"] = HOSTILE
        header["data"] = {HOSTILE: HOSTILE}
        header["scores"] = {**header["scores"], HOSTILE: 1.0}
        header["versions"] = {"seqtool": HOSTILE}
        path.write_text(json.dumps(header), "utf-8")
    return folder


ON_TERMINAL = (
    ("ngram", "counts", "t.txt"),
    ("ngram", "train", "t.txt", "--order", "2", "-o", "ng", "--force"),
    ("eval-ppl", "t.txt", "-m", "ngram", "--per-token", "-"),
    ("generate", "-m", "ngram", "--prompt", f"q{HOSTILE}"),
    ("inspect", "lm-rnn"),
    ("inspect", "lm-rnn", "--json"),
    ("inspect", "bad.conllu"),
    ("prepare", "broken.conllu"),
    ("prepare", "t.txt", "-o", f"x{HOSTILE.replace('/', '')}", "--force"),
    ("parse", "bad.conllu", "-m", "parser"),
    ("parse", "bad.conllu", "-m", "parser", "--format", "tree"),
    ("parse", "broken.conllu", "-m", "parser", "--skip-invalid"),
    ("segment", "t.txt", "-m", "segmenter"),
    ("eval-parser", "bad.conllu", "bad.conllu", "--errors"),
    ("train-lm", "t.txt", "--config", "settings.yaml"),
    ("train-lm", "t.txt", "--set", f"{HOSTILE}=1"),
    ("train-lm", HOSTILE_NAME, "--batch-size=2", "--bptt=4", "--epochs=1", "-o", "lm\x1b[31mc"),
    ("inspect", f"--{HOSTILE}"),
)


@pytest.mark.parametrize(
    "words", ON_TERMINAL, ids=lambda words: " ".join(words).encode().hex()[:50]
)
def test_nothing_that_is_printed_moves_a_terminal(
    commands: Commands, hostile: Path, words: tuple[str, ...]
) -> None:
    master, slave = pty.openpty()
    seen: list[bytes] = []

    def read() -> None:
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:
                return
            if not piece:
                return
            seen.append(piece)

    reader = threading.Thread(target=read)
    reader.start()
    result = commands(
        *words, cwd=hostile, stdout=os.ttyname(slave), stderr=os.ttyname(slave), seconds=60
    )
    os.close(slave)
    reader.join(10)
    os.close(master)
    shown = b"".join(seen).decode("utf-8", "replace")
    assert result.code is not None, result
    assert "Traceback" not in shown, shown
    left = ALLOWED.sub("", shown)
    moved = re.findall("[^\n\r\t\x20-\x7e\xa0-\U0010ffff]", left)
    assert not moved, f"{moved} in {left!r}"
    assert "\x1b[31mc" not in shown, "a colour of the data's own"
