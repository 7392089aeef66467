"""What a command reads whose input is not named: stdin, or the sample."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from parsing.parser.tiny import random_parser, tiny_config
from parsing.tagger.toy import random_tagger

Run = Callable[..., Any]
TREES = "".join(
    f"1\t{form}\t{form}\tX\t_\t_\t2\tdet\t_\t_\n2\tb\tb\tY\t_\t_\t0\troot\t_\t_\n\n"
    for form in ("a", "B", "cc")
)


@pytest.fixture
def parser(given: Run) -> str:
    random_parser(tiny_config()).save(Path("parser"), scores={}, data={})
    return "parser"


def test_texts_come_from_stdin(given: Run, root: Path) -> None:
    def run(typed: str) -> Any:
        result = given("a b\na\n" * 10, typed)
        assert "given: reading stdin\n" in result.stderr
        return result

    counted = json.loads(run("ngram counts --json --order 1").stdout)["ngrams"]
    assert counted == [{"ngram": ["a"], "count": 20}, {"ngram": ["b"], "count": 10}]
    prepared = json.loads(run("prepare --json -o corpus").stdout)
    assert [source["path"] for source in prepared["sources"]] == ["<stdin>"]
    assert run("ngram train -o m --order 2").code == 0
    measured = json.loads(run("eval-ppl -m m --json").stdout)
    assert (measured["text"], measured["tokens"]) == (["-"], 50)
    assert given("b", "generate -m m --temperature 0").stdout.startswith("b")
    result = given("I love it. You do.", "segment --rules --format lines")
    assert (result.code, result.stdout) == (0, "I love it.\nYou do.\n")
    # a file is given as a pipe is
    Path("x.txt").write_text("a b\n")
    with Path("x.txt").open("rb") as stream:
        words = [sys.executable, "-m", "seqtool", "ngram", "counts", "--order", "1"]
        env = {**os.environ, "PYTHONPATH": str(root)}
        result = subprocess.run(words, stdin=stream, capture_output=True, check=True, env=env)
    assert b"given: reading stdin\n" in result.stderr


def test_treebanks_come_from_stdin(given: Run, parser: str) -> None:
    result = given(TREES, f"parse -m {parser}")
    assert result.stderr == "no FILE given: reading stdin\n"
    assert result.stdout.count("\n\n") == 3
    parsed = result.stdout
    result = given(TREES, f"eval-parser -m {parser} --json")
    assert result.stderr == "no GOLD given: reading stdin\n"
    scores = json.loads(result.stdout)
    assert scores["gold"] == "-"
    # what a pipe gives is not set aside for the default model
    Path("gold.conllu").write_text(TREES)
    result = given(parsed, "eval-parser gold.conllu --json")
    assert result.stderr == "no PREDICTED given: reading stdin\n"
    assert json.loads(result.stdout)["LAS"] == scores["LAS"]


@pytest.mark.parametrize(
    ("command", "text", "words"),
    [
        ("ngram train", "", "the text is empty"),
        ("segment --rules", "", "the text is empty"),
        ("train-parser", TREES, "file"),  # what is trained on is read more than once
        ("ngram counts", TREES, "is a treebank, not text"),
        ("prepare", "# hash\n\n" + TREES, "is a treebank, not text"),
        ("parse -m parser", "I love it.\n", "<stdin>:1: no CoNLL-U: the lines have no columns"),
        ("parse -m parser", "# hash\nI love it.\nSo do you.\n", "<stdin>:2: no CoNLL-U"),
        ("parse -m parser", TREES.replace("\t", "  "), "separate columns with tabs"),
        ("tag -m tagger", "I love it.\n", "--raw"),
    ],
)
def test_what_stdin_cannot_be(given: Run, parser: str, command: str, text: str, words: str) -> None:
    random_tagger().save(Path("tagger"), scores={}, data={})
    result = given(text, command)
    assert (result.code, result.stdout) == (1, "")
    reading, error, hint = result.stderr.splitlines()
    assert reading.endswith("given: reading stdin")
    assert error.startswith("error: ")
    assert words in error + hint
    assert {path.name for path in Path().iterdir()} == {"parser", "tagger"}


def test_the_sample_is_for_devices(given: Run, seqtool_process: Run, parser: str) -> None:
    """Without a pipe or a file on stdin, as in a job of cron."""
    result = seqtool_process("parse", "-m", parser, cwd=Path.cwd())
    assert result.code == 0
    assert result.stderr.startswith("no FILE given: using the shipped sample, ")


@pytest.fixture
def given(seqtool_process: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `seqtool TYPED` in an empty folder with this on stdin, and nothing that names it."""
    monkeypatch.chdir(tmp_path)
    return lambda text, typed: seqtool_process(*typed.split(), input=text.encode(), cwd=tmp_path)
