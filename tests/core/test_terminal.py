"""What reaches a terminal, a file and a pipe."""

from __future__ import annotations

import io
import json
import os
import pty
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtool.core.progress import open_console
from seqtool.core.terminal import echo, guarded, json_text, safe, stream

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


def on_a_pty(monkeypatch: pytest.MonkeyPatch, columns: int = 80) -> tuple[int, io.TextIOWrapper]:
    master, slave = pty.openpty()
    terminal = os.fdopen(slave, "w", encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    return master, terminal


def test_a_terminal_shows_what_is_printed_and_obeys_only_what_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master, terminal = on_a_pty(monkeypatch)
    with guarded():
        print(HOSTILE[:-5])
        sys.stdout.buffer.write("\x1b[2J말뭉치\x9d\n".encode())
        open_console().print("\x1b[31mc", style="bold", markup=False, highlight=False)
        echo("\x1b[1mx", bold=True)
    content = b""
    with terminal:
        while content.count(b"\n") < 4:
            content += os.read(master, 4096)
    os.close(master)
    shown = content.decode().replace("\r\n", "\n")
    assert shown == (
        "␛]0;x␇a\ufffd31mb␡\n"
        "␛[2J말뭉치\ufffd\n"
        "\x1b[1m␛[31mc\x1b[0m\n"
        "\x1b[1m␛[1mx\x1b[0m\n"
    )  # fmt: skip


def test_a_file_gets_every_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "out").open("w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        file.write("before\n")
        with guarded() as finish:
            echo(HOSTILE)
            sys.stdout.buffer.write(bytes(range(256)))
            finish()
        echo("after")
    content = (tmp_path / "out").read_bytes()
    assert content == b"before\n" + HOSTILE.encode() + b"\n" + bytes(range(256)) + b"after\n"


def test_what_a_command_left_unsaid_fails_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with guarded() as finish:
            sys.stdout.write("held back")
            with pytest.raises(OSError, match="stdout"):
                finish()
            echo("nothing more is said of it")
            with pytest.raises(OSError, match="stdout"):  # even where a command went on
                finish()


def test_a_pipe_that_does_not_block_gets_all(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    content = bytes(1 << 20)
    got = bytearray()

    def read() -> None:
        while piece := os.read(reader, 1000):
            got.extend(piece)

    thread = threading.Thread(target=read)
    with os.fdopen(writer, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        shown = stream()
        thread.start()
        shown.buffer.write(content)
        shown.flush()
    thread.join()
    os.close(reader)
    assert bytes(got) == content


def test_a_guard_that_a_library_kept_says_nothing_later(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with guarded():
        kept = sys.stdout
        echo("x")
    kept.write("y")
    kept.flush()
    assert not kept.isatty()
    assert capfd.readouterr().out == "x\n"
