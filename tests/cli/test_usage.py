"""--help as people see it: whole words, options in groups, examples that run; and completion."""

from __future__ import annotations

import inspect
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib import import_module
from typing import Any

import pytest
import typer
from conftest import ROOT

from seqtool.analysis import context
from seqtool.cli import app
from seqtool.cli.ngram import COUNTED
from seqtool.cli.usage import (
    DEFAULT_PANEL,
    PANELS,
    argument_name,
    by_panel,
    help_lines,
    option_names,
)
from seqtool.lm.mixture.config import WEIGHT, CacheConfig
from seqtool.lm.neural.config import DynamicConfig

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


def context_of(root: Any, command: Any, name: str, args: list[str], **options: Any) -> Any:
    """Return the context of a command as it is when it is typed: a first one is remembered."""
    parent = root.make_context("seqtool", [], resilient_parsing=True)
    return command.make_context(name, args, parent=parent, **options)


@pytest.mark.parametrize("width", [80, 110])
@pytest.mark.parametrize("name", PAGES)
def test_no_word_is_broken(
    seqtool: Run, root: Any, monkeypatch: pytest.MonkeyPatch, name: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    result = seqtool(*name.split(), "--help")
    assert (result.code, result.stderr) == (0, "")
    assert all(len(line) <= width for line in result.stdout.splitlines())
    command = command_of(root, name)
    context = context_of(root, command, "seqtool", [], resilient_parsing=True)
    texts = [command.help, command.epilog, f"Usage: seqtool {name} [OPTIONS] COMMAND [ARGS]..."]
    texts += [
        f"{panel}:" for panel in (*PANELS, DEFAULT_PANEL, "Examples", "Arguments", "Commands")
    ]
    for each in command.get_params(context):
        is_option = each.param_type_name == "option"
        texts += [each.help, f"[default: {each.default}]"]
        texts += [option_names(each) if is_option else argument_name(each)]
        texts += [f"{each.rich_help_panel}:"]
    for inner, each in getattr(command, "commands", {}).items():
        texts += [inner, each.help]
    known = {word for text in texts if text for word in text.split()}
    assert [word for word in result.stdout.split() if word not in known] == []
    # what Typer would write for types of Python
    assert not re.search(r"<(bool|str|int|float|path|list)|BOOLEAN|INTEGER", result.stdout, re.I)


@pytest.mark.parametrize("name", app.COMMANDS)
def test_every_option_has_a_group_and_says_what_it_takes(root: Any, name: str) -> None:
    command = command_of(root, name)
    options = [each for each in command.params if each.param_type_name == "option"]
    for option in options:
        assert option.is_flag or option.metavar, option.name
    panels = by_panel(options)
    assert [option for members in panels.values() for option in members if option.hidden] == []
    # a long list is no help; that of settings stands for a page of its own
    assert max((len(panels[p]) for p in panels if p != "Settings"), default=0) <= 14


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
    command = command_of(root, name)
    examples = command.epilog.splitlines()
    assert 1 <= len(examples) <= 5
    assert any(f"seqtool {name}" in example for example in examples)
    for example in examples:
        assert len(example) <= 78
        parsed = list(commands_in(example))
        assert parsed
        for words in parsed:
            size = 2 if words[0] in app.GROUPS else 1
            other = command_of(root, " ".join(words[:size]))
            with context_of(root, other, "seqtool", words[size:]) as context:
                assert not context.args  # all were understood


def test_own_groups_come_first(root: Any) -> None:
    command = command_of(root, "eval-ppl")
    context = context_of(root, command, "eval-ppl", [], resilient_parsing=True)
    headings = [line for line, is_heading in help_lines(command, context, 80) if is_heading]
    assert headings == [
        *("Examples:", "Arguments:", "Options:"),
        *("Cache: adapts to the text that is measured:",),
        *("Dynamic evaluation: adapts to the text that is measured:",),
        *("Spark:",),
        *("Model:", "Input:", "Output:", "Run:"),
    ]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("seqtool par", ["parse"]),
        (
            "seqtool train-",
            [
                *("train-lm", "train-snm", "train-segmenter", "train-tagger", "train-parser"),
                "train-classifier",
            ],
        ),
        ("seqtool ngram ", ["train", "export", "import", "prune", "mix", "counts", "classes"]),
        ("seqtool parse --be", ["--beam"]),
        ("seqtool ngram train --smoo", ["--smoothing"]),
        ("seqtool --ver", ["--version"]),
    ],
)
def test_bash_completes(
    seqtool: Run, monkeypatch: pytest.MonkeyPatch, typed: str, expected: list[str]
) -> None:
    monkeypatch.setenv("_SEQTOOL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split(" ")) - 1))
    result = seqtool()
    assert (result.code, result.stdout.split()) == (0, expected)


def test_completion_is_offered_and_imports_little(seqtool: Run) -> None:
    assert "--install-completion" in seqtool("--help").stdout
    code = (
        "import os, sys; os.environ.update(_SEQTOOL_COMPLETE='complete_bash', "
        "COMP_WORDS='seqtool parse --', COMP_CWORD='2')\n"
        "from seqtool.cli.app import main\n"
        "assert main([]) == 0\n"
        "assert not {'torch', 'numpy', 'numba'} & sys.modules.keys(), 'heavy'"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "--allow-missing" in run.stdout.split()


TOLD = re.compile(r"([0-9][0-9.,]*) (?:if not given|by default|if neither given nor tuned)")
# where defaults of options are, by command; of an analysis, also the parameters of its function
ELSEWHERE: dict[str, dict[str, Any]] = {
    "eval-ppl": {
        "cache_lambda": WEIGHT,
        **{f"cache_{name}": value for name, value in asdict(CacheConfig()).items()},
        **{f"dynamic_{name}": value for name, value in asdict(DynamicConfig()).items()},
        "dynamic_stats_tokens": DynamicConfig().statistics_tokens,
    },
    "analyse context": {"lengths": context.LENGTHS[-1]},
    "ngram counts": {"order": COUNTED},
}


@pytest.mark.parametrize("name", app.COMMANDS)
def test_defaults_that_help_tells_are_those_that_count(root: Any, name: str) -> None:
    wanted: dict[str, Any] = {}
    group, _, analysis = name.partition(" ")
    if group == "analyse" and analysis not in ("report", "states"):
        module = {"spectrum": "spectra"}.get(analysis, analysis)
        function = import_module(f"seqtool.analysis.{module}").analyse
        parameters = inspect.signature(function).parameters
        wanted = {key: parameter.default for key, parameter in parameters.items()}
        wanted |= {key.removeprefix("num_"): wanted[key] for key in wanted if "num_" in key}
        wanted["names"] = wanted.get("num_mapped")
    wanted |= ELSEWHERE.get(name, {})
    told = {
        parameter.name: float(found[1].replace(",", ""))
        for parameter in command_of(root, name).params
        if (found := TOLD.search(getattr(parameter, "help", None) or ""))
    }
    assert told == {option: wanted[option] for option in told}
    assert told or name not in ELSEWHERE
