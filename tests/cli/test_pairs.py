"""`seqtool pairs` as a user meets it."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toy_models import two_words

from seqtool.core.errors import ConfigError, ModelError
from seqtool.lm.mixture.cache import CacheModel
from seqtool.lm.mixture.model import MixedModel
from seqtool.lm.pairs import evaluate_pairs

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let every model be that of the worked examples."""
    model = two_words()
    monkeypatch.setattr("seqtool.lm.mixture.model.open_language_model", lambda *_, **__: model)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.tsv").write_text(
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
    notes = result.stderr.splitlines()
    assert notes[0].startswith("note: 1 pair of 3 differs in a word that A does not know")
    assert len(notes) == 2


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


def test_a_table_of_all_pairs(seqtool: Run, tmp_path: Path) -> None:
    before = (tmp_path / "x.tsv").read_bytes()
    result = seqtool("pairs", "x.tsv", "-m", "A", "-o", "x.tsv")
    assert result.stderr.startswith("error: x.tsv: is read, and would be replaced\n")
    assert (result.code, (tmp_path / "x.tsv").read_bytes()) == (1, before)
    assert seqtool("pairs", "x.tsv", "-m", "A", "-m", "B", "-o", "out.csv").code == 0
    with (tmp_path / "out.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["model"] for row in rows] == ["A"] * 3 + ["B"] * 3
    assert rows[0] == {
        "pair": "1",
        "phenomenon": "f",
        "paradigm": "p",
        "model": "A",
        "good": "a b",
        "bad": "b a",
        "log2_good": "-3.000000",  # 1/2 1/2 1/2
        "log2_bad": "-5.415037",  # 1/4 3/8 1/4 = 3/128
        "difference": "2.415037",
        "outcome": "right",
        "unknown": "",
    }
    assert (rows[2]["outcome"], rows[2]["difference"], rows[2]["unknown"]) == (
        *("tie", "0.000000", "dog cat"),
    )
    result = seqtool("pairs", "x.tsv", "-m", "A", "-o", "-")
    assert result.stdout.splitlines()[0].split("\t")[:2] == ["pair", "phenomenon"]
    assert "3 pairs, whole sentences" in result.stderr


def test_all_models_are_opened_before_one_scores(
    seqtool: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_model(path: Path, **options: Any) -> Any:
        if path == Path("B"):
            raise ModelError("no such model", hint="train one", path=path)
        return two_words()

    monkeypatch.setattr("seqtool.lm.mixture.model.open_language_model", open_model)
    scored: list[Any] = []
    monkeypatch.setattr("seqtool.lm.pairs.evaluate_pairs", lambda *args, **_: scored.append(args))
    result = seqtool("pairs", "x.tsv", "-m", "A", "-m", "B")
    assert (result.code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: B: no such model\n")
    assert not scored


def test_regions_of_a_model_that_learns(seqtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    models = {"A": two_words(), "B": MixedModel([two_words(), CacheModel(two_words())])}
    monkeypatch.setattr(
        "seqtool.lm.mixture.model.open_language_model", lambda path, **_: models[str(path)]
    )
    words = ("pairs", "x.tsv", "-m", "A", "-m", "B")
    result = seqtool(*words, "--score", "region")
    assert (result.code, result.stdout) == (1, "")
    assert result.stderr == (
        "error: the model learns from the text, so a region cannot be scored by itself\n"
        "hint: use --score sentence, or name a model without a cache\n"
    )
    with pytest.raises(ConfigError, match="a region cannot be scored by itself"):
        evaluate_pairs(models["B"], "x.tsv", score="region")
    assert seqtool(*words).code == 0


def test_the_sample_is_the_default(seqtool: Run) -> None:
    result = seqtool("pairs", "-m", "A", "--json")
    assert json.loads(result.stdout)["pairs"] == 400
    assert "no FILE given: using the shipped sample" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["x.tsv", "--score", "word"], "error: --score is 'word'"),
        (["x.tsv", "-o", "-", "--json"], "error: --json and a table both write to stdout"),
        (["x.tsv", "-o", "x.xlsx"], "error: x.xlsx has no suffix of a table"),
        (["y.tsv"], "error: y.tsv:2: bad or sentence_bad is missing"),
        (["z.tsv"], "error: z.tsv: no such file or directory"),
    ],
)
def test_errors_are_two_lines(
    options: list[str], message: str, seqtool: Run, tmp_path: Path
) -> None:
    (tmp_path / "y.tsv").write_text("good\twrong\na\tb\n")
    result = seqtool("pairs", *options, "-m", "A")
    assert result.code == 1
    error, hint = result.stderr.splitlines()
    assert error.startswith(message)
    assert hint.startswith("hint: ")
    assert not (tmp_path / "x.xlsx").exists()


@pytest.mark.parametrize("score", ["sentence", "region"])
def test_a_sentence_that_cannot_be_read_is_located(
    seqtool: Run, tmp_path: Path, score: str
) -> None:
    (tmp_path / "bad.csv").write_text("good,bad\na b,a a\na </s>,a b\n")
    result = seqtool("pairs", "bad.csv", "-m", "A", "--score", score)
    assert result.stderr.startswith("error: bad.csv:3: the text contains the special symbol </s>")
