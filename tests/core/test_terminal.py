"""What reaches a terminal, a file and a pipe."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtool.core.progress import open_console
from seqtool.core.terminal import close_outputs, echo, json_text, safe, stream

HOSTILE = "\x1b]0;x\x07a\x9b31mb\x7f\r\nc\td"


@given(st.text())
def test_a_safe_text_has_no_character_that_a_terminal_obeys(text: str) -> None:
    shown = safe(text)
    assert not [c for c in shown if (ord(c) < 32 and c not in "\t\n") or 0x7F <= ord(c) <= 0x9F]
    assert safe(shown) == shown


def test_controls_become_pictures() -> None:
    assert safe(HOSTILE) == "␛]0;x␇a\ufffd31mb␡\nc\td"


@given(st.text())
def test_json_reads_back_and_moves_no_terminal(text: str) -> None:
    line = json_text({"a": text})
    assert json.loads(line) == {"a": text}
    assert safe(line) == line


def test_a_terminal_shows_what_is_printed_and_obeys_only_what_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master, slave = pty.openpty()
    terminal = os.fdopen(slave, "w", encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    echo(HOSTILE[:-5])
    shown = stream()
    shown.buffer.write("\x1b[2J말뭉치\x9d\n".encode())
    shown.flush()
    open_console().print("\x1b[31mc", style="bold", markup=False, highlight=False)
    echo("\x1b[1mx", bold=True)
    content = b""
    with terminal:
        while content.count(b"\n") < 4:
            content += os.read(master, 4096)
    os.close(master)
    assert content.decode().replace("\r\n", "\n") == (
        "␛]0;x␇a\ufffd31mb␡\n"
        "␛[2J말뭉치\ufffd\n"
        "\x1b[1m␛[31mc\x1b[0m\n"
        "\x1b[1m␛[1mx\x1b[0m\n"
    )  # fmt: skip


def test_a_file_gets_every_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "out").open("w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        file.write("before\n")
        echo(HOSTILE)
        shown = stream()
        shown.buffer.write(bytes(range(256)))
        shown.flush()
    content = (tmp_path / "out").read_bytes()
    assert content == b"before\n" + HOSTILE.encode() + b"\n" + bytes(range(256))


def test_what_a_command_left_unsaid_fails_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        sys.stdout.write("held back")
        with pytest.raises(OSError, match="stdout"):
            close_outputs()
        close_outputs()  # it is said once


PRINTING = "from seqtool.core.terminal import echo, open_outputs; open_outputs(); echo('x' * 10**6)"


def test_a_pipe_that_does_not_block_gets_all() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with subprocess.Popen([sys.executable, "-c", PRINTING], stdout=writer) as process:
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            assert pipe.read() == b"x" * 10**6 + b"\n"
    assert process.returncode == 0
