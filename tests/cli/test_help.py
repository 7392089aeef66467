"""`seqtool help`: pages, the reference of a command, near names, and what a terminal gets."""

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
from seqtool.cli.help import MANUAL, TOPICS, for_terminal

Run = Callable[..., Any]


def test_without_topic_all_topics_are_listed(seqtool: Run) -> None:
    result = seqtool("help")
    assert result.code == 0
    for topic, about in TOPICS.items():
        assert any(
            line.startswith(topic) and line.endswith(about) for line in result.stdout.splitlines()
        )
    assert "seqtool help TOPIC" in result.stdout
    assert "--help" in result.stdout


@pytest.mark.parametrize("topic", TOPICS)
def test_a_page_is_markdown_where_there_is_no_terminal(seqtool: Run, topic: str) -> None:
    page = (MANUAL / f"{topic}.md").read_text(encoding="utf-8")
    assert seqtool("help", topic) == (0, page, "")
    assert seqtool("help", topic.upper()).stdout == page


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_shows_its_reference(seqtool: Run, name: str) -> None:
    for words in (name.split(), [name]):
        result = seqtool("help", *words)
        assert result.code == 0
        assert result.stdout.startswith(f"## seqtool {name}\n")
        assert result.stdout.count("\n## ") == 0


def test_a_group_shows_all_its_commands(seqtool: Run) -> None:
    shown = seqtool("help", "ngram").stdout
    assert shown.startswith("## seqtool ngram train\n")
    assert shown.count("## seqtool ") == len([name for name in COMMANDS if "ngram " in name])


@pytest.mark.parametrize(
    ("typed", "hint"),
    [("parsin", "parsing"), ("trian-lm", "train-lm"), ("xyzzy", "`seqtool help` lists the pages")],
)
def test_unknown_topics_are_an_error_of_two_lines(seqtool: Run, typed: str, hint: str) -> None:
    result = seqtool("help", typed)
    assert result.code == 1
    assert result.stdout == ""
    error, line = result.stderr.splitlines()
    assert error == f"error: the manual has no page or command '{typed}'"
    assert line.startswith("hint: ")
    assert hint in line


def test_links_of_a_page_become_commands() -> None:
    text = "<!-- needs: time -->\n![a tree](tree.svg)\nSee [Figures](figures.md#speed) here.\n"
    assert for_terminal(text) == "(picture: a tree)\nSee Figures (`seqtool help figures`) here.\n"


def on_terminal(*args: str, **env: str) -> str:
    """Return what a terminal of 24 lines shows of `seqtool ARGS`."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "seqtool", *args],
        stdin=child,
        stdout=child,
        stderr=child,
        env={**os.environ, "TERM": "xterm", "LINES": "24", "COLUMNS": "80", **env},
        cwd=Path(__file__).parents[2],
    )
    os.close(child)
    shown = b""
    while True:
        try:
            piece = os.read(parent, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        shown += piece
    os.close(parent)
    assert process.wait() == 0
    return shown.decode("utf-8").replace("\r\n", "\n")


def test_a_terminal_shows_a_long_page_in_the_pager(tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text(
        f"#!/bin/sh\necho PAGED\nexec {sys.executable} -c "
        "'import sys; sys.stdout.write(sys.stdin.read())'\n"
    )
    pager.chmod(0o755)
    shown = on_terminal("help", "evaluate", PAGER=str(pager))
    assert "PAGED" in shown
    assert "Perplexity" in shown
    assert "```" not in shown


def test_a_terminal_shows_a_short_section_at_once(tmp_path: Path) -> None:
    shown = on_terminal("help", "help", PAGER="false")
    assert "seqtool help" in shown
    assert "##" not in shown
