"""`seqtool help` and --help: pages, whole names, examples that run; and completion."""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from seqtool.cli import app
from seqtool.cli.help import MANUAL, TOPICS

Run = Callable[..., Any]


def test_without_topic_all_topics_are_listed(seqtool: Run) -> None:
    result = seqtool("help")
    lines = result.stdout.splitlines()
    for topic, about in TOPICS.items():
        assert any(line.startswith(topic) and line.endswith(about) for line in lines)
    # where there is no terminal, a page is Markdown
    page = seqtool("help", "PARSING")
    assert page.stdout.startswith((MANUAL / "parsing.md").read_text().partition("\n")[0])


def test_commands_and_settings_are_shown(seqtool: Run) -> None:
    commands = seqtool("help", "reference")
    assert (commands.code, commands.stderr) == (0, "")
    assert commands.stdout.count("Usage: seqtool ") == len(app.COMMANDS)
    settings = seqtool("help", "settings").stdout
    for line in ("- `model.cell` = ", "- `order` = `", "`seqtool train-parser --preset fast`:"):
        assert line in settings


@pytest.mark.parametrize("name", ["parse", "ngram train", "ngram", "help"])
def test_a_command_shows_its_help(seqtool: Run, name: str) -> None:
    assert seqtool("help", *name.split()) == seqtool(*name.split(), "--help")


def test_a_terminal_shows_a_page_in_the_pager(tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho PAGED\ncat\n")
    pager.chmod(0o755)
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "seqtool", "help", "measure"],
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


@pytest.mark.parametrize(
    ("typed", "advice"),
    [("parsin", "parsing"), ("trian-lm", "train-lm"), ("xyzzy", "`seqtool help` lists the pages")],
)
def test_unknown_topics(refused: Callable[..., str], typed: str, advice: str) -> None:
    assert advice in refused(f"help {typed}", typed)


PAGES = ["", *app.GROUPS, *app.COMMANDS]


@pytest.fixture(scope="module")
def root() -> Any:
    return typer.main.get_command(app.build_app())


def command_of(root: Any, name: str) -> Any:
    command = root
    for word in name.split():
        command = command.commands[word]
    return command


@pytest.mark.parametrize("name", PAGES)
def test_help_shows_every_word(
    seqtool: Run, root: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = seqtool(*name.split(), "--help")
    assert (result.code, result.stderr) == (0, "")
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "…" not in result.stdout  # nothing is cut
    shown = set(re.sub("[│╭╮╰╯─]", " ", result.stdout).split())
    command = command_of(root, name)
    for param in command.params:
        assert param.help, f"{param.name} of seqtool {name} has no help text"
        assert set(param.help.split()) <= shown, param.name
        if param.param_type_name == "option":
            assert {*param.opts, *param.secondary_opts} <= shown
            assert param.is_flag or param.metavar, param.name
    for inner in getattr(command, "commands", {}):
        assert inner in shown


def test_commands_and_options_stand_in_groups(seqtool: Run) -> None:
    def headings(*words: str) -> list[str]:
        return re.findall(r"╭─ (.*?) ─", seqtool(*words, "--help").stdout)

    assert headings()[1:] == list(app.PANELS)
    assert headings("parse")[-4:] == ["Input", "Output", "Run", "Spark"]
    assert headings("train-lm") == ["Arguments", "Settings", "Input", "Output", "Run"]


def commands_in(example: str) -> Iterator[list[str]]:
    """Give the words of each command of seqtool in an example of a shell."""
    words: list[str] = []
    for word in [*shlex.split(example), "|"]:
        if word in ("|", ">"):
            if words and words[0] == "seqtool":
                yield words[1:]
            words = []
        else:
            words.append(word)


@pytest.mark.parametrize("name", app.COMMANDS)
def test_examples_are_commands(root: Any, name: str) -> None:
    heading, *examples = command_of(root, name).epilog.splitlines()
    assert heading == "Examples:"
    assert 1 <= len(examples) <= 5
    assert any(f"seqtool {name}" in example for example in examples)
    for example in examples:
        assert len(example) <= 80
        parsed = list(commands_in(example))
        assert parsed
        for words in parsed:
            size = 2 if words[0] in app.GROUPS else 1
            other = command_of(root, " ".join(words[:size]))
            parent = root.make_context("seqtool", [], resilient_parsing=True)
            with other.make_context("seqtool", words[size:], parent=parent) as context:
                assert not context.args  # all were understood


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("seqtool train-p", {"train-parser"}),
        ("seqtool ngram ", {name[6:] for name in app.COMMANDS if name.startswith("ngram ")}),
        ("seqtool ngram train --smoo", {"--smoothing"}),
        ("seqtool --ver", {"--version"}),
    ],
)
def test_bash_completes(
    seqtool: Run, monkeypatch: pytest.MonkeyPatch, typed: str, expected: set[str]
) -> None:
    monkeypatch.setenv("_SEQTOOL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split(" ")) - 1))
    result = seqtool()
    assert (result.code, set(result.stdout.split())) == (0, expected)
