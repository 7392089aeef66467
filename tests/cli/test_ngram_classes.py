"""`seqtool ngram classes` and models of classes, as a user meets them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.test_ngram import two_lines

Run = Callable[..., Any]
TEXT = "the dog sleeps\nthe cat sees a dog\na dog sees the cat\n" * 9


@pytest.fixture(autouse=True)
def with_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(TEXT, encoding="utf-8")
    Path("other.txt").write_text("the cat sleeps\na cat sees the owl\n", encoding="utf-8")


def test_from_classes_to_a_model_in_use(seqtool: Run, seqtool_process: Run) -> None:
    result = seqtool("ngram", "classes", "text.txt", "--num", 3, "-o", "c.tsv")
    assert (result.code, result.stdout) == (0, "c.tsv\n")
    lines = Path("c.tsv").read_text(encoding="utf-8").splitlines()
    # the largest class first, and of each the most frequent word
    assert lines == ["dog\t1", "cat\t1", "the\t2", "a\t2", "sees\t3", "sleeps\t3"]
    assert result.stderr.splitlines()[-1] == "next: seqtool ngram train CORPUS --classes c.tsv"
    shown = seqtool_process("ngram", "classes", "text.txt", "--num", 3).stdout
    assert shown.splitlines() == lines
    words = ("text.txt", "--num", 3, "--sweeps", 1, "-o", "d.tsv", "--json")
    told = json.loads(seqtool("ngram", "classes", *words).stdout)
    assert (told["num"], told["words"], len(told["moved"])) == (3, 6, 1)
    words = ("text.txt", "--classes", "c.tsv", "--order", 3, "-o", "m", "--json")
    told = json.loads(seqtool("ngram", "train", *words).stdout)
    assert told["vocabulary_size"] == 8
    assert seqtool("ngram", "train", "text.txt", "--order", 3, "-o", "words").code == 0
    evaluated = json.loads(seqtool("eval-ppl", "other.txt", "-m", "m", "--json").stdout)
    alone = json.loads(seqtool("eval-ppl", "other.txt", "-m", "words", "--json").stdout)
    assert evaluated["perplexity"] < alone["perplexity"]  # it generalises over the cat
    assert evaluated["oov"] == 1
    words = ("other.txt", "-m", "m", "-m", "words", "--tune", "text.txt", "--json")
    mixed = json.loads(seqtool("eval-ppl", *words).stdout)
    assert sum(mixed["weights"]) == pytest.approx(1)
    for command in (
        ("generate", "-m", "m", "--seed", 1),
        ("generate", "-m", "m", "--prompt", "the", "--next", 2),
        ("surprisal", "other.txt", "-m", "m", "--entropy"),
        ("eval-ppl", "other.txt", "--compare", "-m", "m", "-m", "words"),
        ("analyse", "context", "text.txt", "-m", "m", "--json"),
    ):
        assert seqtool(*command).code == 0, command
    shown = seqtool("inspect", "m").stdout
    assert "class-ngram" in shown
    assert ["classes", "5"] in [line.split() for line in shown.splitlines()]
    assert "3-gram language model of 5 word classes" in Path("m", "README.md").read_text()


def test_what_models_of_classes_do_not_do(seqtool: Run) -> None:
    Path("c.tsv").write_text("dog x\ncat x\n", encoding="utf-8")
    words = ("ngram", "train", "text.txt", "--classes", "c.tsv", "--order", 2, "-o", "m")
    error, hint = two_lines(seqtool(*words, "--arpa", "x.arpa"))
    assert "a model of classes has no list of n-grams of words" in error
    error, _ = two_lines(seqtool(*words, "--engine", "duckdb"))
    assert "n-grams of classes are counted in memory only" in error
    assert not Path("m").exists()
    assert seqtool(*words).code == 0
    assert seqtool("ngram", "train", "text.txt", "--order", 2, "-o", "words").code == 0
    for command in (
        ("ngram", "export", "m", "x.arpa"),
        ("ngram", "prune", "m", "-o", "p"),
        ("ngram", "mix", "m", "words", "-o", "p"),
    ):
        error, hint = two_lines(seqtool(*command))
        assert "m: is a model of kind class-ngram, and only n-gram models" in error
        assert "without --classes" in hint
    assert not Path("x.arpa").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--num 7", "7 classes are wanted, but the text has 6 words"),
        ("-o no/c.tsv", "no/c.tsv: the directory to write to is not there"),
        ("-o ./text.txt", "./text.txt: is read, and would be replaced"),
        ("--json", "the classes and --json would both go to stdout"),
        ("--memory 1K", "need about"),
    ],
)
def test_mistakes_of_classes(seqtool: Run, arguments: str, message: str) -> None:
    before = sorted(Path().iterdir())
    assert message in two_lines(seqtool("ngram", "classes", "text.txt", *arguments.split()))[0]
    assert sorted(Path().iterdir()) == before


def test_mistakes_of_a_file_of_classes(seqtool: Run) -> None:
    words = ("ngram", "train", "text.txt", "--classes")
    Path("bad.tsv").write_text("dog x\ncat\n", encoding="utf-8")
    assert two_lines(seqtool(*words, "bad.tsv"))[0].startswith(
        "error: bad.tsv:2: a line has two fields"
    )
    assert "no such file" in two_lines(seqtool(*words, "none.tsv"))[0]
    Path("owl.tsv").write_text("owl x\n", encoding="utf-8")
    assert "no word of the text is among" in two_lines(seqtool(*words, "owl.tsv"))[0]
    assert seqtool("prepare", "text.txt", "--unit", "char", "-o", "chars").code == 0
    error, _ = two_lines(seqtool("ngram", "classes", "chars", "--num", 3))
    assert "classes are of words, but the corpus is of char units" in error
