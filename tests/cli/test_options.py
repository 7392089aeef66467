"""What commands share: options from configurations, notes, JSON, tables and the default model."""

from __future__ import annotations

import inspect
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
from seqtool.cli.options import emit, offer, show_table, takes_options, with_options
from seqtool.cli.usage import Command, UsageError
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
    loud: Annotated[bool, typer.Option("--loud", help="Shout.")] = False
    num: Annotated[int, typer.Option(help="A number.")] = 3


TABLE = {
    "--size": "model.size",
    "-c,--cell-name": offer("model.cell", help="The cell."),
    "--tied/--untied": "model.tied",
    "--keep": "model.keep",
    "--rate": offer("model.rate", metavar="R"),
    "--names": offer("name", "model.cell"),
}
PLACE = f"{__name__}:Outer"


def run(*args: str, shows_defaults: bool = False) -> tuple[int, str, dict[str, Any]]:
    seen: dict[str, Any] = {}

    @takes_options(PLACE, TABLE, shows_defaults=shows_defaults)
    def command(text: str = "t", *, settings: dict[str, Any], group: Group) -> None:
        """Do it."""
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


def test_fields_of_a_dataclass_are_options_and_a_list_may_be_refused() -> None:
    _, _, seen = run("--loud", "--num", "4", "--text", "u", "--keep", "0, 1 2")
    assert (seen["text"], seen["group"]) == ("u", Group(loud=True, num=4))
    assert seen["settings"] == {"model.keep": (0, 1, 2)}
    code, output, _ = run("--keep", "0 x")
    assert code == 2
    assert "no list of whole numbers" in output


def test_help_and_defaults_come_from_the_fields() -> None:
    code, output, _ = run("--help", shows_defaults=True)
    assert code == 0
    for words in (
        "--size N Units per layer. [default: 8]",
        "--cell-name -c lstm|rhn The cell. [default: lstm]",
        "rhn: tied weights.",
        "--keep N N ... Numbers to keep.",
        "--rate R How fast.",
        "--loud",
    ):
        assert words in output
    assert run(shows_defaults=True)[2]["settings"]["model.size"] == 8


def test_a_setting_that_is_not_there_is_found_out() -> None:
    @takes_options(PLACE, {"--size": "model.nothing"})
    def command(*, settings: dict[str, Any]) -> None: ...

    with pytest.raises(KeyError):
        with_options(command)


def test_options_stand_where_the_parameters_do() -> None:
    @takes_options(PLACE, {"--size": "model.size"})
    def command(a: int = 1, *, settings: dict[str, Any], b: int = 2, group: Group) -> None: ...

    names = list(inspect.signature(with_options(command, reads_text=True)).parameters)
    assert names == ["a", "size", "b", "loud", "num", "max_line"]


@pytest.mark.parametrize(
    ("command", "text", "name"),
    [
        ("train-lm", "model: {cell: lstm, depth: 7}", "model.depth"),
        ("train-lm", "model: {cell: rhn, depth: 7}", ""),
        ("train-parser", "model: {encoder_size: 9}", "model.encoder_size"),
        # what is as it is without the file counts as little
        ("train-parser", "model: {encoder_size: 128}", ""),
        ("train-parser --raw", "parser: {model: {arc_size: 9}}", "parser.model.arc_size"),
        ("train-tagger", "training: {schedule_factor: 3.0}", "training.schedule_factor"),
    ],
)
def test_a_setting_of_a_file_that_does_not_count(
    seqtool: Callable[..., Any], tmp_path: Path, command: str, text: str, name: str
) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(text, encoding="utf-8")
    result = seqtool(*command.split(), "--config", path, "--list-settings")
    assert result.code == bool(name)
    assert result.stderr.startswith(f"error: {path}: {name} counts only where" if name else "")


def test_a_file_of_all_settings_is_no_wish_for_each(
    seqtool: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "all.yaml"
    listed = seqtool("train-parser", "--preset", "linear", "--list-settings").stdout
    path.write_text(listed, encoding="utf-8")
    for preset in ("linear", "fast"):
        command = ("train-parser", "--preset", preset, "--config", path, "--list-settings")
        assert seqtool(*command).stderr == ""


def test_emit_prints_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    emit(
        {
            "path": Path("runs/lm"),
            "group": Group(num=2),
            "infinite": [math.inf, -math.inf, math.nan, 1.0],
            "numpy": (np.float64("nan"), np.int32(3), np.arange(2)),
            "word": "말",
            "none": None,
        }
    )
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.count("\n") == 1
    assert "말" in captured.out
    assert json.loads(captured.out) == {
        "path": "runs/lm",
        "group": {"loud": False, "num": 2},
        "infinite": [None, None, None, 1.0],
        "numpy": [None, 3, [0, 1]],
        "word": "말",
        "none": None,
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


def test_no_cell_is_cut_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "66")
    row = ["[red]말[/red]", "runs/lm", "1,374,712", " ".join(["a b c d e f"] * 8)]
    show_table("Title", ["word", "model", "parameters", "about"], [row])
    out = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out)
    assert max(map(len, out.splitlines())) <= 66
    assert all(cell in out for cell in row[:3])
    assert set(row[3].split()) <= set(out.split())  # prose is folded


def test_default_model_is_the_one_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match="no model was given") as caught:
        default_model("lm")
    assert caught.value.hint == "train one with `seqtool train-lm`"
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


def test_usage_errors_are_those_of_typers_copy_of_click() -> None:
    """Typer has no public name for the class, which all mistakes on a command line are of."""
    assert UsageError.__name__ == "UsageError"
    assert issubclass(typer.BadParameter, UsageError)
    assert not issubclass(UsageError, typer.BadParameter)
