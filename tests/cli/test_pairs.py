"""`seqtool pairs` as a user meets it."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toy_models import BigramModel, two_words, use_toys, word_tokenizer

from seqtool.lm.mixture.cache import CacheModel
from seqtool.lm.mixture.model import MixedModel

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def _workplace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let A and B be the model of the worked examples."""
    learning = lambda: MixedModel([two_words(), CacheModel(two_words())])  # noqa: E731
    toys = {"A": two_words, "B": two_words, "learning": learning}
    of_b = [[1 / 4, 1 / 4, 1 / 8, 3 / 8]] * 5  # <unk>, </s>, a and b, whatever comes before
    toys["other"] = lambda: BigramModel(word_tokenizer("ab"), of_b)
    use_toys(monkeypatch, toys)
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
    assert [row[:2] for row in rows[:4]] == [["f", "p"], ["f", "q"], ["f", "all"], ["g", "q"]]
    assert rows[4] == ["all", "3", *["33.3%", "6.1", "to", "79.2", "1"] * 2]
    assert rows[5] == ["mean", "of", "3", "paradigms", "33.3%", "33.3%"]
    assert [line[:20] for line in result.stderr.splitlines()][1:] == ["note: in 1 pair of 3"] * 2


def test_json(seqtool: Run) -> None:
    result = json.loads(seqtool("pairs", "x.tsv", "-m", "A", "--json").stdout)
    (model,) = result.pop("models")
    assert result == {"pairs": 3, "score": "sentence", "confidence": 0.95}
    names = ("model", "kind", "pairs", "right", "wrong", "ties")
    assert [model[name] for name in names] == ["A", "toy-bigram", 3, 1, 1, 1]
    assert {
        *("pairs_that_differ_in_unknown_words", "pairs_with_unknown_words_elsewhere"),
        *("mean_over_paradigms", "phenomena", "paradigms"),
    } <= model.keys()
    sample = seqtool("pairs", "-m", "A", "--json")
    assert json.loads(sample.stdout)["pairs"] == 400
    assert "no FILE given: using the shipped sample" in sample.stderr


def test_a_table_of_all_pairs(seqtool: Run) -> None:
    assert seqtool("pairs", "x.tsv", "-m", "A", "-m", "B", "-o", "out.csv").code == 0
    with Path("out.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["model"] for row in rows] == ["A"] * 3 + ["B"] * 3
    assert [*rows[0]] == [
        *("pair", "phenomenon", "paradigm", "model", "good", "bad", "log2_good", "log2_bad"),
        *("difference", "outcome", "unknown"),
    ]
    shown = [(row["outcome"], row["difference"], row["unknown"]) for row in rows]
    assert (shown[0], shown[2]) == (("right", "2.415037", ""), ("tie", "0.000000", "dog cat"))
    result = seqtool("pairs", "x.tsv", "-m", "A", "-o", "-")
    assert result.stdout.splitlines()[0].split("\t")[:2] == ["pair", "phenomenon"]
    assert "3 pairs, whole sentences" in result.stderr


def test_a_second_model_is_tested_against_the_first(seqtool: Run) -> None:
    words = ("pairs", "x.tsv", "-m", "A", "-m", "other")
    first, other = json.loads(seqtool(*words, "--json").stdout)["models"]
    assert "against_first" not in first  # of the other, a b and b a are a tie
    assert other["against_first"] == {"only_this": 1, "only_first": 1, "p_value": 1.0}
    assert "only other is right in 1 pair, only A in 1: p = 1.0000" in seqtool(*words).stderr


def test_conditions(seqtool: Run) -> None:
    rows = ["item,c,good,bad", *("1,x,a b,b a", "1,y,b a,a b", "2,x,a b,b a", "2,y,b a,a b")]
    Path("c.csv").write_text("\n".join(rows))
    words = ("pairs", "c.csv", "-m", "A", "--by", "c", "--item-column", "item")
    shown = "y 2 -2.415 -2.415 to -2.415 2 -4.830 -4.830 to -4.830"  # twice the bits
    assert " ".join(seqtool(*words).stdout.splitlines()[-1].split()) == shown


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("x.tsv -m A --by paradigm", "--by and --item-column belong together"),
        ("x.tsv -m A --by c --item-column paradigm", "x.tsv:2: has no column 'c'"),
        ("x.tsv -m A --score word", "score is 'word'"),
        ("x.tsv -m A -o - --json", "--json"),
        ("x.tsv -m A -o x.xlsx", "x.xlsx has no suffix of a table"),
        ("x.tsv -m A -o x.tsv", "x.tsv: is read, and would be replaced"),
        ("z.tsv -m A", "z.tsv: no such file or directory"),
        ("x.tsv -m A -m C", "C: no such model"),  # before A scores
        ("x.tsv -m A -m learning --score region", "a region cannot be scored by itself"),
        ("bad.csv -m A", "bad.csv:3: the text contains the special symbol </s>"),
    ],
)
def test_mistakes(refused: Callable[..., str], typed: str, words: str) -> None:
    Path("bad.csv").write_text("good,bad\na b,a a\na </s>,a b\n")
    refused(f"pairs {typed}", words)
