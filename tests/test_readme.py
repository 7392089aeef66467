"""The README is a promise: its commands exist, its quick start runs as written, its links lead on.

The `seqtool` lines and `python` blocks of the sections `RUN` run in order in an empty folder, with
two differences from a reader's shell: training is made short (`SHORTER`), and every text file that
is named holds `BROUGHT`, or its words.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import CommandResult
from typer.main import get_params_from_function

from seqtool.cli.app import COMMANDS, GROUPS, load_commands

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"

# a later --set wins, so these hold whatever the README says
SHORTER = {
    "train-parser": ["--epochs", "1", "--hidden", "16"],
    "train-lm": [
        *("--set", "training.epochs=1", "--set", "model.hidden_size=8", "--set", "model.layers=1"),
        *("--set", "model.embedding_size=null"),
    ],
}
BROUGHT = "the old dog sleeps .\na cat saw the dog .\nthe cat that the dog saw sleeps .\n" * 60
LEXICON = "\n".join(sorted(set(BROUGHT.split())))


class Block(NamedTuple):
    """A fenced block: the heading it stands under, its language, its text, its line in the file."""

    heading: str
    language: str
    text: str
    line: int


def fenced_blocks(text: str) -> Iterator[Block]:
    heading, language, start, inside = "", "", 0, []
    in_block = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("```"):
            if in_block:
                yield Block(heading, language, "\n".join(inside), start)
            in_block, language, start, inside = not in_block, line[3:].strip(), number + 1, []
        elif in_block:
            inside.append(line)
        elif line.startswith("#"):
            heading = line.lstrip("# ")


def seqtool_commands(block: str) -> Iterator[str]:
    """The `seqtool ...` commands of a block, `$ ` prompts dropped, continued lines joined."""
    for line in re.sub(r"\\\n\s*", "", block).splitlines():
        command = line.strip().removeprefix("$ ")
        if command.startswith("seqtool "):
            yield command


def command_name(words: list[str]) -> str:
    """The command that an argument list begins with: one word, or a group and one of its own."""
    return " ".join(words[: 2 if words[0] in GROUPS else 1])


BLOCKS = list(fenced_blocks(README.read_text(encoding="utf-8")))
RUN = ("Quick start", "A 5-gram for a speech recogniser", "Surprisal for a linguist")
QUICK_START = [block for block in BLOCKS if block.heading == "Quick start"]
SHELL = ("sh", "console", "bash")


def promised_commands() -> list[str]:
    fenced = [
        command
        for block in BLOCKS
        if block.language in (*SHELL, "")
        for command in seqtool_commands(block.text)
    ]
    prose = re.sub(r"^```.*?^```", "", README.read_text(encoding="utf-8"), flags=re.M | re.S)
    return fenced + re.findall(r"`(seqtool [a-z][^`]*)`", prose)


@pytest.fixture(scope="module")
def options() -> dict[str, set[str]]:
    """Command -> its options, long and short."""
    found = {}
    for name, function in load_commands().items():
        names = {"--help", "-h"}
        for parameter in get_params_from_function(function).values():
            declared = getattr(parameter.default, "param_decls", None) or (
                "--" + parameter.name.replace("_", "-"),
            )
            names.update(part for name in declared for part in name.split("/"))
        found[name] = names
    return found


def test_there_is_a_quick_start() -> None:
    commands = [command for block in QUICK_START for command in seqtool_commands(block.text)]
    assert {"train-lm", "eval-ppl", "generate"} <= {shlex.split(line)[1] for line in commands}


@pytest.mark.parametrize("command", promised_commands())
def test_every_command_and_option_exists(command: str, options: dict[str, set[str]]) -> None:
    words = shlex.split(re.split(r"[|>&;]", command)[0], comments=True)
    name = command_name(words[1:])
    if name.startswith("-"):
        assert name in ("--help", "--version", "-h")
        return
    assert name in COMMANDS
    flags = [word.partition("=")[0] for word in words[1:] if re.match(r"--?[a-z]", word)]
    assert [flag for flag in flags if flag not in options[name]] == []


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z0-9]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    text = README.read_text(encoding="utf-8")
    promised = set(re.findall(r"(?:^|`)make ([a-z0-9]+)", text, flags=re.M))
    assert {"demo", "test"} <= promised <= targets


def test_every_link_leads_to_a_file() -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", README.read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("heading", RUN)
def test_section_runs_as_written(
    heading: str,
    seqtool: Callable[..., CommandResult],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = [block for block in BLOCKS if block.heading == heading]
    assert any(True for block in blocks for _ in seqtool_commands(block.text))
    for name in sorted(set(re.findall(r"[\w/-]+\.txt\b", "".join(b.text for b in blocks)))):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(LEXICON if "lexicon" in name else BROUGHT, encoding="utf-8")
    for block in blocks:
        for command in seqtool_commands(block.text):
            words = shlex.split(command, comments=True)[1:]
            result = seqtool(*words, *SHORTER.get(command_name(words), []))
            assert result.code == 0, f"README.md:{block.line}: {command}\n{result.stderr}"
        if block.language == "python" and can_import(block.text):
            run = subprocess.run(
                [sys.executable, "-W", "error", "-c", block.text],
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
                capture_output=True,
                text=True,
                check=False,
            )
            assert run.returncode == 0, f"README.md:{block.line}:\n{run.stderr}"


def can_import(script: str) -> bool:
    """Whether the modules of a script are installed: `kenlm` need not be."""
    return all(find_spec(name) for name in re.findall(r"^import (\w+)", script, flags=re.M))
