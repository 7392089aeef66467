"""What a command reads whose input is not named: stdin, or the sample."""

from __future__ import annotations

import io
import json
import os
import pty
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from parsing.parser.tiny import random_parser, random_sentences, tiny_config
from parsing.tagger.toy import random_tagger

from seqtool.cli.options import is_stdin_given

Run = Callable[..., Any]
TREES = "".join(
    f"1\t{form}\t{form}\tX\t_\t_\t2\tdet\t_\t_\n2\tb\tb\tY\t_\t_\t0\troot\t_\t_\n\n"
    for form in ("a", "B", "cc")
)


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def give(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Let stdin be a pipe, or a file, that holds a text."""
    with ExitStack() as stack:

        def set_stdin(text: str, kind: str = "pipe") -> None:
            if kind == "file":
                Path(".stdin").write_text(text)
                stream = stack.enter_context(open(".stdin"))
            else:
                reading, writing = os.pipe()
                os.write(writing, text.encode())  # little enough for the pipe to hold
                os.close(writing)
                stream = stack.enter_context(os.fdopen(reading))
            monkeypatch.setattr(sys, "stdin", stream)

        yield set_stdin


@pytest.fixture
def parser() -> str:
    random_parser(tiny_config()).save(Path("parser"), scores={}, data={})
    return "parser"


def test_what_counts_as_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    one, other = socket.socketpair()
    terminal, terminal_end = pty.openpty()
    null = os.open(os.devnull, os.O_RDONLY)
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    expected = [(reading, True), (one.fileno(), True), (file, True), (terminal_end, False)]
    for number, is_given in [*expected, (null, False)]:
        with open(number, closefd=False) as stream:
            monkeypatch.setattr(sys, "stdin", stream)
            assert is_stdin_given() is is_given
    with open(null, closefd=False) as closed:
        pass
    for stream in (closed, io.StringIO("text")):
        monkeypatch.setattr(sys, "stdin", stream)
        assert not is_stdin_given()
    for number in (reading, writing, terminal, terminal_end, null, file):
        os.close(number)
    one.close()
    other.close()


@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_texts_come_from_stdin(seqtool: Run, give: Callable[..., None], kind: str) -> None:
    def run(*words: object) -> Any:
        give("a b\na\n" * 10, kind)
        result = seqtool(*words)
        assert "given: reading stdin\n" in result.stderr
        return result

    counted = json.loads(run("ngram", "counts", "--json", "--order", 1).stdout)["ngrams"]
    assert counted == [{"ngram": ["a"], "count": 20}, {"ngram": ["b"], "count": 10}]
    prepared = json.loads(run("prepare", "--json", "-o", "corpus").stdout)
    assert [source["path"] for source in prepared["sources"]] == ["<stdin>"]
    assert run("ngram", "train", "-o", "m", "--order", 2).code == 0
    measured = json.loads(run("eval-ppl", "-m", "m", "--json").stdout)
    assert (measured["text"], measured["tokens"]) == (["-"], 50)
    give("b", kind)
    assert seqtool("generate", "-m", "m", "--temperature", 0).stdout.startswith("b")


def test_treebanks_come_from_stdin(seqtool: Run, give: Callable[..., None], parser: str) -> None:
    give(TREES)
    result = seqtool("parse", "-m", parser)
    assert result.stderr == "no FILE given: reading stdin\n"
    assert result.stdout.count("\n\n") == 3
    parsed = result.stdout
    give(TREES)
    result = seqtool("eval-parser", "-m", parser, "--json")
    assert result.stderr == "no GOLD given: reading stdin\n"
    scores = json.loads(result.stdout)
    assert scores["gold"] == "-"
    # what a pipe gives is not set aside for the default model
    Path("gold.conllu").write_text(TREES)
    give(parsed)
    result = seqtool("eval-parser", "gold.conllu", "--json")
    assert result.stderr == "no PREDICTED given: reading stdin\n"
    assert json.loads(result.stdout)["LAS"] == scores["LAS"]


def test_plain_text_comes_from_stdin(seqtool: Run, give: Callable[..., None]) -> None:
    give("I love it. You do.")
    result = seqtool("segment", "--rules", "--format", "lines")
    assert (result.code, result.stdout) == (0, "I love it.\nYou do.\n")


@pytest.mark.parametrize(
    ("command", "text", "words"),
    [
        ("ngram train", "", "the text is empty"),
        ("prepare", "", "the text is empty"),
        ("segment --rules", "", "the text is empty"),
        ("train-lm --hidden 2", "", "the text is empty"),
        ("train-tagger", TREES, "file"),  # what is trained on is read more than once
        ("train-parser", TREES, "file"),
        ("ngram counts", TREES, "is a treebank, not text"),
        ("segment --rules", TREES, "is a treebank, not text"),
        ("prepare", "# hash\n\n" + TREES, "is a treebank, not text"),
    ],
)
def test_what_stdin_cannot_be(
    seqtool: Run, give: Callable[..., None], command: str, text: str, words: str
) -> None:
    give(text)
    result = seqtool(*command.split())
    assert (result.code, result.stdout) == (1, "")
    reading, error, hint = result.stderr.splitlines()
    assert reading.endswith("given: reading stdin")
    assert error.startswith("error: ")
    assert words in error + hint
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("command", ["parse", "tag"])
@pytest.mark.parametrize(
    ("text", "line"), [("I love it.\n", 1), ("# hash\nI love it.\nSo do you.\n\nOr not?", 2)]
)
def test_plain_text_is_no_treebank(
    seqtool: Run, give: Callable[..., None], parser: str, command: str, text: str, line: int
) -> None:
    if command == "tag":
        random_tagger().save(Path(parser), scores={}, data={})
    give(text)
    result = seqtool(command, "-m", parser)
    assert (result.code, result.stdout) == (1, "")
    _, error, hint = result.stderr.splitlines()
    assert error == f"error: <stdin>:{line}: no CoNLL-U: the lines have no columns"
    assert "--raw" in hint


def test_columns_apart_by_spaces_are_no_plain_text(
    seqtool: Run, give: Callable[..., None], parser: str
) -> None:
    give(TREES.replace("\t", "  "))
    assert "separate columns with tabs, not spaces" in seqtool("parse", "-m", parser).stderr


def test_the_sample_is_for_devices(
    seqtool: Run, monkeypatch: pytest.MonkeyPatch, parser: str
) -> None:
    sample = Path("sample.conllu")
    sample.write_text("".join(sentence.to_conllu() for sentence in random_sentences(2, 3)))
    monkeypatch.setattr("seqtool.text.datasets.sample_treebank", lambda *_: sample)
    with open(os.devnull) as null:
        monkeypatch.setattr(sys, "stdin", null)
        result = seqtool("parse", "-m", parser)
    assert result.code == 0
    assert result.stderr == "no FILE given: using the shipped sample, sample.conllu\n"
