"""`seqtool compare` as a user meets it."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toy_models import random_bigrams, two_words, word_tokenizer

from seqtool.lm.comparison import COLUMNS

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def _toys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let models be ARPA files by name, and toys by content."""
    models = {"A.arpa": two_words(), "B.arpa": random_bigrams(word_tokenizer("ab"), seed=1)}
    monkeypatch.setattr(
        "seqtool.lm.mixture.model.open_language_model", lambda path, **__: models[path.name]
    )
    monkeypatch.chdir(tmp_path)
    for name in models:
        (tmp_path / name).write_text("x" * 500_000)
    (tmp_path / "x.txt").write_text("a b\nb a a\na\n", encoding="utf-8")


BOTH = ("-m", "A.arpa", "-m", "B.arpa", "--samples", "50")


def test_the_table(seqtool: Run) -> None:
    result = seqtool("compare", *BOTH, "x.txt")
    assert result.code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "x.txt: 3 sentences"
    columns = "model kind perplexity bits per byte parameters MB tokens/s training s"
    assert lines[1].split() == columns.split()
    for line, name in zip(lines[2:4], ("A.arpa", "B.arpa"), strict=True):
        cells = line.split()
        assert cells[:2] == [name, "toy-bigram"]
        assert (cells[4], cells[5], cells[7]) == ("-", "0.5", "-")
    assert lines[5] == "against A.arpa: bits per token, paired bootstrap over sentences"
    assert lines[6].split() == ["model", "difference", "95%", "from", "to", "p"]
    assert lines[7].split()[0] == "B.arpa"
    assert len(lines) == 8


def test_the_text_is_not_replaced(seqtool: Run) -> None:
    Path("x.txt").rename("x.tsv")
    before = Path("x.tsv").read_bytes()
    result = seqtool("compare", *BOTH, "x.tsv", "-o", "x.tsv")
    assert (result.code, Path("x.tsv").read_bytes()) == (1, before)
    assert result.stderr.startswith("error: x.tsv: is read, and would be replaced\n")


def test_json_and_a_file(seqtool: Run) -> None:
    result = seqtool("compare", *BOTH, "x.txt", "--json", "-o", "t.csv", "--seed", "3")
    content = json.loads(result.stdout)
    assert {name: content[name] for name in ("text", "per", "samples", "seed")} == {
        **{"text": ["x.txt"], "per": "token", "samples": 50, "seed": 3}
    }
    first, second = content["models"]
    assert first["against_first"] is None
    assert second["against_first"].keys() == {"difference", "p_value", "low", "high", "samples"}
    with Path("t.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert [row["model"] for row in rows] == ["A.arpa", "B.arpa"]
    assert (rows[0]["difference"], rows[0]["parameters"]) == ("", "")
    assert float(rows[1]["difference"]) == pytest.approx(
        second["against_first"]["difference"], abs=1e-6
    )
    assert float(rows[1]["perplexity"]) == pytest.approx(second["perplexity"], abs=1e-6)


def test_a_table_on_stdout_alone(seqtool: Run) -> None:
    result = seqtool("compare", *BOTH, "x.txt", "-o", "-")
    assert result.stdout.splitlines()[0].split("\t") == list(COLUMNS)
    assert len(result.stdout.splitlines()) == 3


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (("x.txt",), "error: no model was given"),
        (("-m", "A.arpa", "x.txt"), "error: A.arpa is the only model"),
        (("-m", "A.arpa", "-m", "A.arpa", "x.txt"), "error: A.arpa is given twice"),
        ((*BOTH, "none.txt"), "error: none.txt: no such file"),
        ((*BOTH, "x.txt", "-o", "t.png"), "error: t.png has no suffix of a table"),
        ((*BOTH, "x.txt", "-o", "-", "--json"), "error: --json and a table both write to stdout"),
        ((*BOTH, "x.txt", "--split", "test"), "error: --split test needs a prepared corpus"),
        (BOTH, "error: A.arpa: an ARPA file does not say what it was trained on"),
    ],
)
def test_a_mistake_is_two_lines(
    seqtool: Run, typed: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqtool.cli.options.is_stdin_given", lambda: False)
    result = seqtool("compare", *typed)
    assert (result.code, result.stdout) == (1, "")
    first, second = result.stderr.splitlines()
    assert first.startswith(message)
    assert second.startswith("hint: ")


def test_each_model_reads_stdin(seqtool_process: Run, tmp_path: Path) -> None:
    arpa = "\\data\\\nngram 1=4\n\n\\1-grams:\n-99\t<s>\n-0.5\t</s>\n-1\t<unk>\n{}\ta\n\n\\end\\\n"
    for name, log10 in (("A.arpa", "-0.23"), ("B.arpa", "-0.4")):
        (tmp_path / name).write_text(arpa.format(log10))
    models = ("-m", "A.arpa", "-m", "B.arpa", "--json")
    piped = seqtool_process("compare", *models, "-", input=b"a a\na\n", cwd=tmp_path)
    assert piped.code == 0
    first, second = json.loads(piped.stdout)["models"]
    assert first["tokens"] == second["tokens"] == 5
    assert first["parameters"] == 4
    assert second["perplexity"] > first["perplexity"]
