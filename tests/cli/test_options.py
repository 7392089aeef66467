"""What commands share: notes, JSON, tables and the default model."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import typer

from seqtool.cli.models import default_model
from seqtool.cli.options import UsageError, _is_number, emit, note, show_table
from seqtool.core.errors import ModelError


def test_notes_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    note("using the shipped sample")
    assert capsys.readouterr() == ("", "using the shipped sample\n")


def test_notes_are_folded_on_a_terminal_but_not_their_commands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = "hint: continue with: seqtool train-lm --resume -o runs/a-name-that-is-long"
    text = f"note: tokens read as <unk>, which is easier, 말뭉치 말뭉치\n{command}"
    monkeypatch.setenv("COLUMNS", "20")
    note(text)
    assert capsys.readouterr().err == f"{text}\n"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    note(text)
    assert capsys.readouterr().err.splitlines() == [
        *("note: tokens read as", "<unk>, which is", "easier, 말뭉치", "말뭉치", command)
    ]


@dataclass
class Score:
    perplexity: float
    tokens: int


def test_emit_prints_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    emit(
        {
            "path": Path("runs/lm"),
            "score": Score(1.5, 2),
            "infinite": [math.inf, -math.inf, math.nan, 1.0],
            "numpy": (np.float64("nan"), np.int32(3), np.arange(2)),
            "word": "말",
            "yes": True,
            "none": None,
        }
    )
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.count("\n") == 1
    assert "말" in captured.out
    assert json.loads(captured.out) == {
        "path": "runs/lm",
        "score": {"perplexity": 1.5, "tokens": 2},
        "infinite": [None, None, None, 1.0],
        "numpy": [None, 3, [0, 1]],
        "word": "말",
        "yes": True,
        "none": None,
    }


def test_plain_table_aligns_wide_characters(capsys: pytest.CaptureFixture[str]) -> None:
    show_table("Words", ["word", "count", "note"], [["말뭉치", 5, "a"], ["an", "1,000", ""]])
    # each Hangul syllable is two columns wide
    assert capsys.readouterr().out == (
        "Words\n"
        "word    count  note\n"
        "말뭉치      5  a\n"
        "an      1,000\n"
    )  # fmt: skip


def test_table_without_rows(capsys: pytest.CaptureFixture[str]) -> None:
    show_table("", ["a", "b"], [])
    assert capsys.readouterr().out == "a  b\n"


def test_terminal_table_shows_text_as_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    show_table("Title", ["a", "b"], [["[red]x[/red]", "말"]])
    out = capsys.readouterr().out
    assert "[red]x[/red]" in out
    assert "말" in out


@pytest.mark.parametrize("width", [30, 44, 60, 80, 120])
def test_no_cell_is_cut_on_a_narrow_terminal(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(width))
    columns = ["model", "right: runs/ngram", "95% interval", "parameters", "about"]
    about = " ".join(["a b c d e f"] * 8)
    rows = [["runs/ngram-of-order-5", "57.1%", "50.0 to 63.9", "1,374,712", about]]
    show_table("Pairs", columns, rows)
    out = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out)
    assert "…" not in out
    for cell in rows[0][:4]:
        assert cell in out
    lines = [line for line in out.splitlines() if about not in line]  # the terminal breaks it
    assert max(map(len, lines)) <= width


def test_rows_are_blocks_where_columns_have_no_room(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "36")
    columns = ["모델", "kind", "parameters", "95% interval", "ties"]
    rows = [["runs/a", "ngram", "74,712", "50.0 to 63.9", "3"], ["mean", "", "1", "", "10"]]
    show_table("", columns, rows)
    assert capsys.readouterr().out.splitlines() == [
        "\x1b[1mruns/a  ngram\x1b[0m",
        "   parameters  74,712",
        "   95% interval  50.0 to 63.9",
        "   ties   3",
        "\x1b[1mmean\x1b[0m",
        "   parameters       1",
        "   ties  10",
    ]
    show_table("", ["trial", "learning rate", "dropout"], [[3, "0.0001234567890", "0.123456789"]])
    assert capsys.readouterr().out.startswith("\x1b[1mtrial 3\x1b[0m\n   learning rate")


def test_default_model_is_the_one_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, kind in (("other", "mixture"), ("third", "neural-lm"), ("trees", "parser")):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "model.json").write_text(json.dumps({"kind": kind}))
    with pytest.raises(ModelError) as of_parsers:
        default_model("parser")
    assert of_parsers.value.hint == (
        "train one with `seqtool train-parser`, or choose one: runs/trees"
    )
    with pytest.raises(ModelError, match="no model was given") as caught:
        default_model("lm")
    assert caught.value.hint == (
        "train one with `seqtool train-lm`, or choose one: runs/other, runs/third"
    )
    (tmp_path / "runs" / "third").rename(tmp_path / "runs" / "lm")
    assert default_model("lm") == Path("runs/lm")
    assert "runs/lm" in capsys.readouterr().err


def test_no_model_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match="no model was given") as caught:
        default_model("lm")
    assert caught.value.hint == "train one with `seqtool train-lm`"


@pytest.mark.parametrize(
    ("cell", "is_number"),
    [
        ("1,234", True),
        ("-0.5", True),
        ("3:07", True),
        ("12%", True),
        ("2.5 MB", True),
        ("42s", True),
        ("-", True),
        ("8b4b4d9604c0", False),
        ("3 little pigs", False),
        ("lstm", False),
    ],
)
def test_columns_of_numbers_are_recognised(cell: str, is_number: bool) -> None:
    assert _is_number(cell) is is_number


def test_usage_errors_are_those_of_typers_copy_of_click() -> None:
    """Typer has no public name for the class, which all mistakes on a command line are of."""
    assert UsageError.__name__ == "UsageError"
    assert issubclass(typer.BadParameter, UsageError)
    assert not issubclass(UsageError, typer.BadParameter)
