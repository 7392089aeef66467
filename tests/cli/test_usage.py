"""--help as people see it: whole names, options in groups, examples that run; and completion."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import typer
from conftest import ROOT

from seqtool.cli import app

Run = Callable[..., Any]
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


def test_brackets_in_a_text_are_no_markup(seqtool: Run) -> None:
    assert "local[2]" in seqtool("ngram", "train", "--help").stdout


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
        ("seqtool par", {"parse"}),
        ("seqtool train-p", {"train-parser"}),
        ("seqtool ngram ", {name[6:] for name in app.COMMANDS if name.startswith("ngram ")}),
        ("seqtool parse --be", {"--beam"}),
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


@pytest.mark.parametrize("completed", ["", "seqtool parse --"])
def test_help_and_completion_import_little(completed: str) -> None:
    code = (
        "import os, sys\n"
        f"if words := {completed!r}:\n"
        "    os.environ |= {'_SEQTOOL_COMPLETE': 'complete_bash', 'COMP_WORDS': words}\n"
        "    os.environ['COMP_CWORD'] = '2'\n"
        "from seqtool.cli.app import main\n"
        "assert main(['--help']) == 0\n"
        "assert not {'torch', 'numpy', 'numba', 'yaml'} & sys.modules.keys(), 'heavy'"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ("--allow-missing" if completed else "--install-completion") in run.stdout.split()
