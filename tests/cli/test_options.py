"""What commands share: options from configurations, notes, JSON, tables and the default model."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from seqtool.cli.models import default_model
from seqtool.cli.options import (
    argument,
    emit,
    option,
    option_for,
    show_table,
    takes_options,
    with_options,
)
from seqtool.cli.usage import Command, join_numbers
from seqtool.core.config import Config, setting
from seqtool.core.errors import ModelError


@dataclass(frozen=True)
class Inner(Config):
    size: int = setting(8, "units per layer", minimum=1)
    cell: Literal["lstm", "rhn"] = setting("lstm", "lstm or rhn")
    tied: bool = setting(False, "rhn: tied weights")
    keep: tuple[int, ...] = setting((), "numbers to keep")
    rate: float | None = setting(None, "how fast.")


@dataclass(frozen=True)
class Outer(Config):
    model: Inner = setting(Inner, "the network")
    name: str = setting("x", "a name")


@dataclass(frozen=True)
class Group:
    loud: bool = option(False, "Shout.")
    num: Annotated[int, typer.Option("--num", "-n", help="A number.")] = 3


TABLE = {
    "--size": "model.size",
    "-c,--cell-name": option_for("model.cell", help="The cell."),
    "--tied/--untied": "model.tied",
    "--keep": "model.keep",
    "--rate": option_for("model.rate", metavar="R"),
    "--names": option_for("name", "model.cell"),
}
PLACE = f"{__name__}:Outer"


def run(*args: str, shows_defaults: bool = False) -> tuple[int, str, dict[str, Any]]:
    seen: dict[str, Any] = {}

    @takes_options(PLACE, TABLE, shows_defaults=shows_defaults)
    def command(
        text: str = option("t", "A text.", "TEXT", "-x"),
        file: str = argument("f", "A file.", "FILE"),
        *,
        settings: dict[str, Any],
        group: Group,
    ) -> None:
        """Do it."""
        assert file == "f"
        seen.update(text=text, settings=settings, group=group)

    app = typer.Typer()
    app.command(cls=Command)(with_options(command))
    result = CliRunner().invoke(app, args)
    return result.exit_code, " ".join(re.sub("[│╭╮╰╯─]", " ", result.output).split()), seen


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        ("", {}),
        ("--size 3 -c rhn --untied", {"model.size": 3, "model.cell": "rhn", "model.tied": False}),
        ("--keep 0,1,2 --rate 0.5", {"model.keep": (0, 1, 2), "model.rate": 0.5}),
        ("--names rhn", {"name": "rhn", "model.cell": "rhn"}),
        ("--size 0", {"model.size": 0}),  # bounds are for the configuration to refuse
    ],
)
def test_only_what_is_given_is_set(words: str, settings: dict[str, Any]) -> None:
    assert run(*words.split()) == (0, "", {"text": "t", "settings": settings, "group": Group()})
    _, _, seen = run("f", "--loud", "--num", "4", "-x", "u", *words.split())
    assert seen == {"text": "u", "settings": settings, "group": Group(loud=True, num=4)}


def test_help_and_defaults_come_from_the_fields() -> None:
    code, output, _ = run("--help", shows_defaults=True)
    assert code == 0
    for words in (
        "--size N Units per layer. [default: 8]",
        "--cell-name -c lstm|rhn The cell. [default: lstm]",
        "rhn: tied weights.",
        "--keep N N ... Numbers to keep.",
        "--rate R How fast.",
        "FILE A file.",
        "--text -x TEXT A text. [default: t]",
        "--loud Shout.",
    ):
        assert words in output
    assert run(shows_defaults=True)[2]["settings"]["model.size"] == 8


def test_emit_prints_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    content = {
        "path": Path("runs/lm"),
        "group": Group(num=2),
        "infinite": [math.inf, -math.inf, math.nan, 1.0],
        "numpy": (np.float64("nan"), np.int32(3), np.arange(2)),
        "word": "말",
    }
    emit(content)
    captured = capsys.readouterr()
    assert (captured.err, captured.out.count("\n"), "말" in captured.out) == ("", 1, True)
    assert json.loads(captured.out) == {
        "path": "runs/lm",
        "group": {"loud": False, "num": 2},
        "infinite": [None, None, None, 1.0],
        "numpy": [None, 3, [0, 1]],
        "word": "말",
    }


def test_plain_table_aligns_wide_characters(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [["말뭉치", 5, "2.5 MB", "a"], ["an", "1,000", "-", ""]]
    show_table("Words", ["word", "count", "size", "note"], rows)
    show_table("", ["a", "b"], [])
    # each Hangul syllable is two columns wide, and columns of numbers stand to the right
    assert capsys.readouterr().out == (
        "Words\n"
        "word    count    size  note\n"
        "말뭉치      5  2.5 MB  a\n"
        "an      1,000       -\n"
        "a  b\n"
    )  # fmt: skip


def test_default_model_is_the_one_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match="no model was given"):
        default_model("lm")
    for name, kind in (("other", "mixture"), ("third", "neural-lm"), ("trees", "parser")):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "model.json").write_text(json.dumps({"kind": kind}))
    for kind, near in (("parser", "runs/trees"), ("lm", "runs/other, runs/third")):
        with pytest.raises(ModelError, match="no model was given") as caught:
            default_model(kind)
        assert near in caught.value.hint
    (tmp_path / "runs" / "third").rename(tmp_path / "runs" / "lm")
    assert default_model("lm") == Path("runs/lm")
    assert "runs/lm" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "joined"),
    [
        ("text --prune 0 0 1 -o m", "text --prune 0,0,1 -o m"),
        ("--prune 0,1 1 --order 3 4", "--prune 0,1,1 --order 3 4"),
        ("--prune 0 -- 1", "--prune 0 -- 1"),
    ],
)
def test_numbers_apart_by_spaces(args: str, joined: str) -> None:
    assert join_numbers(args.split()) == joined.split()


@pytest.mark.parametrize(
    ("command", "text", "word"),
    [
        ("train-lm", "model: {cell: lstm, depth: 7}", "my.yaml: model.depth counts only where"),
        ("train-lm", "model: {cell: rhn, depth: 7}", ""),
        # what is as it is without the file says nothing
        ("train-parser", "model: {encoder_size: 128}", ""),
        ("train-parser --raw", "parser: {model: {arc_size: 9}}", "arc_size counts only where"),
    ],
)
def test_a_file_of_settings_that_do_not_count(
    seqtool: Callable[..., Any], tmp_path: Path, command: str, text: str, word: str
) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(text, encoding="utf-8")
    result = seqtool(*command.split(), "--config", path, "--list-settings")
    assert result.code == 0
    assert word in result.stderr if word else result.stderr == ""
