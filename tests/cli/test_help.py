"""`seqtool help`: pages, the --help of a command, near names, and what a terminal gets."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqtool.cli.app import COMMANDS
from seqtool.cli.help import MANUAL, TOPICS

Run = Callable[..., Any]


def test_without_topic_all_topics_are_listed(seqtool: Run) -> None:
    result = seqtool("help")
    assert result.code == 0
    lines = result.stdout.splitlines()
    for topic, about in TOPICS.items():
        assert any(line.startswith(topic) and line.endswith(about) for line in lines)
    assert "seqtool help TOPIC" in result.stdout


@pytest.mark.parametrize("topic", ["parsing", "PARSING"])
def test_a_page_is_markdown_where_there_is_no_terminal(seqtool: Run, topic: str) -> None:
    code, page, errors = seqtool("help", topic)
    assert (code, errors) == (0, "")
    assert (
        page.partition("\n")[0] == (MANUAL / f"{topic.lower()}.md").read_text().partition("\n")[0]
    )


def test_commands_and_settings_are_shown(seqtool: Run) -> None:
    commands = seqtool("help", "reference")
    assert (commands.code, commands.stderr) == (0, "")
    assert commands.stdout.count("Usage: seqtool ") == len(COMMANDS)
    settings = seqtool("help", "settings").stdout
    for line in ("- `model.cell` = ", "- `order` = `", "`seqtool train-parser --preset fast`:"):
        assert line in settings


@pytest.mark.parametrize("name", ["parse", "ngram train", "ngram", "help"])
def test_a_command_shows_its_help(seqtool: Run, name: str) -> None:
    assert seqtool("help", *name.split()) == seqtool(*name.split(), "--help")


@pytest.mark.parametrize(
    ("typed", "hint"),
    [("parsin", "parsing"), ("trian-lm", "train-lm"), ("xyzzy", "`seqtool help` lists the pages")],
)
def test_unknown_topics_are_an_error_of_two_lines(seqtool: Run, typed: str, hint: str) -> None:
    result = seqtool("help", typed)
    assert (result.code, result.stdout) == (1, "")
    error, line = result.stderr.splitlines()
    assert typed in error
    assert hint in line


def test_a_terminal_shows_a_page_in_the_pager(tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho PAGED\ncat\n")
    pager.chmod(0o755)
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "seqtool", "help", "evaluate"],
        stdin=child,
        stdout=child,
        stderr=child,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "PAGER": str(pager)},
        cwd=Path(__file__).parents[2],
    )
    os.close(child)
    shown = b""
    try:
        while piece := os.read(parent, 65536):
            shown += piece
    except OSError:  # the other end is closed
        pass
    os.close(parent)
    assert process.wait() == 0
    assert b"PAGED" in shown
    assert b"erplexity" in shown
    assert b"```" not in shown
