"""`seqtool pairs` as a user meets it."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toy_models import two_words, use_toys

from seqtool.lm.mixture.cache import CacheModel
from seqtool.lm.mixture.model import MixedModel

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def _workplace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let A and B be the model of the worked examples."""
    learning = lambda: MixedModel([two_words(), CacheModel(two_words())])  # noqa: E731
    use_toys(monkeypatch, {"A": two_words, "B": two_words, "learning": learning})
    monkeypatch.chdir(tmp_path)
    Path("x.tsv").write_text(
        "good\tbad\tphenomenon\tparadigm\n"
        "a b\tb a\tf\tp\n"  # right
        "b b\ta a\tf\tq\n"  # wrong
        "dog\tcat\tg\tq\n"  # a tie: both are unknown
    )


def test_the_table(seqtool: Run) -> None:
    result = seqtool("pairs", "x.tsv", "-m", "A", "-m", "B")
    assert result.code == 0
    title, columns, *rows = (line.split() for line in result.stdout.splitlines())
    assert " ".join(title) == "x.tsv: 3 pairs, whole sentences"
    assert columns[:5] == ["phenomenon", "paradigm", "pairs", "right:", "A"]
    one = ["100.0%", "20.7", "to", "100.0", "0"]  # Wilson's interval of 1 of 1
    none = ["0.0%", "0.0", "to", "79.3"]
    third = ["33.3%", "6.1", "to", "79.2", "1"]
    assert rows == [
        ["f", "p", "1", *one, *one],
        ["f", "q", "1", *none, "0", *none, "0"],
        ["f", "all", "2", *["50.0%", "9.5", "to", "90.5", "0"] * 2],
        ["g", "q", "1", *none, "1", *none, "1"],
        ["all", "3", *third, *third],
        ["mean", "of", "3", "paradigms", "33.3%", "33.3%"],
    ]
    assert [line[:20] for line in result.stderr.splitlines()] == ["note: in 1 pair of 3"] * 2


def test_json(seqtool: Run) -> None:
    result = json.loads(seqtool("pairs", "x.tsv", "-m", "A", "--json").stdout)
    (model,) = result.pop("models")
    assert result == {"pairs": 3, "score": "sentence", "confidence": 0.95}
    assert [model[name] for name in ("model", "kind", "pairs", "right", "wrong", "ties")] == [
        *("A", "toy-bigram", 3, 1, 1, 1)
    ]
    assert model["pairs_that_differ_in_unknown_words"] == 1
    assert model["pairs_with_unknown_words_elsewhere"] == 0
    assert model["mean_over_paradigms"] == pytest.approx(1 / 3)
    assert model["phenomena"][1]["phenomenon"] == "g"
    assert model["paradigms"][0]["interval"] == pytest.approx([0.2065, 1.0], abs=1e-4)
    sample = seqtool("pairs", "-m", "A", "--json")
    assert json.loads(sample.stdout)["pairs"] == 400
    assert "no FILE given: using the shipped sample" in sample.stderr


def test_a_table_of_all_pairs(seqtool: Run) -> None:
    assert seqtool("pairs", "x.tsv", "-m", "A", "-m", "B", "-o", "out.csv").code == 0
    with Path("out.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["model"] for row in rows] == ["A"] * 3 + ["B"] * 3
    assert rows[0] == {
        **{"pair": "1", "phenomenon": "f", "paradigm": "p", "model": "A"},
        **{"good": "a b", "bad": "b a"},
        "log2_good": "-3.000000",  # 1/2 1/2 1/2
        "log2_bad": "-5.415037",  # 1/4 3/8 1/4 = 3/128
        **{"difference": "2.415037", "outcome": "right", "unknown": ""},
    }
    assert (rows[2]["outcome"], rows[2]["difference"], rows[2]["unknown"]) == (
        *("tie", "0.000000", "dog cat"),
    )
    result = seqtool("pairs", "x.tsv", "-m", "A", "-o", "-")
    assert result.stdout.splitlines()[0].split("\t")[:2] == ["pair", "phenomenon"]
    assert "3 pairs, whole sentences" in result.stderr


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("x.tsv -m A --score word", "score is 'word'"),
        ("x.tsv -m A -o - --json", "--json"),
        ("x.tsv -m A -o x.xlsx", "x.xlsx has no suffix of a table"),
        ("x.tsv -m A -o x.tsv", "x.tsv: is read, and would be replaced"),
        ("y.tsv -m A", "y.tsv:2: bad or sentence_bad is missing"),
        ("z.tsv -m A", "z.tsv: no such file or directory"),
        ("x.tsv -m A -m C", "C: no such model"),  # before A scores
        ("x.tsv -m A -m learning --score region", "a region cannot be scored by itself"),
        ("bad.csv -m A", "bad.csv:3: the text contains the special symbol </s>"),
        ("bad.csv -m A --score region", "bad.csv:3: the text contains the special symbol </s>"),
    ],
)
def test_a_mistake_is_two_lines(seqtool: Run, typed: str, words: str) -> None:
    Path("y.tsv").write_text("good\twrong\na\tb\n")
    Path("bad.csv").write_text("good,bad\na b,a a\na </s>,a b\n")
    before = {path: path.read_bytes() for path in Path().iterdir()}
    result = seqtool("pairs", *typed.split())
    assert (result.code, result.stdout) == (1, "")
    error, hint = result.stderr.splitlines()
    assert words in error
    assert hint.startswith("hint: ")
    assert {path: path.read_bytes() for path in Path().iterdir()} == before
