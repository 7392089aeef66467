"""`seqtool train-parser --raw --only segmenter` and `seqtool segment`."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from parsing.segmenter.tiny_segmenter import write_treebank

from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.document import rebuild
from seqtool.treebank.sentence import FORM

Run = Callable[..., Any]


def forms(path: Path) -> list[list[str]]:
    return [sentence.column(FORM) for sentence in read_conllu(path, check="columns")]


@pytest.fixture
def letter(tmp_path: Path) -> Path:
    path = tmp_path / "letter.txt"
    path.write_bytes(b"Dear all,\r\n\r\nyes we can't.  No.")
    return path


def test_a_segmenter_is_trained_and_used(seqtool: Run, tmp_path: Path) -> None:
    treebank = write_treebank(tmp_path / "t.conllu", 60)
    sizes = ("model.character_units=4", "model.token_units=4")
    small = [part for size in sizes for part in ("--set", size)] + ["--epochs", "1", "--json"]
    command = ("train-parser", "--raw", "--only", "segmenter", treebank, "-o", tmp_path / "s")
    result = seqtool(*command, *small)
    assert result.code == 0, result.stderr
    assert {"epochs", "dev_mean", "dev_words", "dev_sentences"} <= json.loads(result.stdout).keys()
    assert "every tenth sentence is held out as dev: 6 of 60" in result.stderr
    text, output = tmp_path / "text.txt", tmp_path / "out.conllu"
    text.write_text("abba du\nbab. aa\n\nab")
    assert seqtool("segment", text, "-m", tmp_path / "s", "-o", output).code == 0
    sentences = list(read_conllu(output, check="columns"))
    assert rebuild(sentences) == text.read_text()
    assert sentences[0].comments[:2] == [f"# newdoc id = {text}", "# newpar"]
    assert seqtool("segment", text, "-m", tmp_path / "s", "--presegmented", "-o", output).code == 0
    assert len(forms(output)) == 3
    assert "segmenter" in seqtool("inspect", tmp_path / "s").stdout


def test_rules_and_given_words_need_no_model(seqtool: Run, letter: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.conllu"
    assert seqtool("segment", letter, "--rules", "-o", output).code == 0
    assert forms(output) == [["Dear", "all", ","], ["yes", "we", "can't", "."], ["No", "."]]
    assert rebuild(read_conllu(output, check="columns")).encode() == letter.read_bytes()
    assert seqtool("segment", letter, "--rules", "--presegmented", "-o", output).code == 0
    assert forms(output) == [["Dear", "all", ","], ["yes", "we", "can't", ".", "No", "."]]
    assert seqtool("segment", letter, "--pretokenized", "-o", output).code == 0
    assert forms(output) == [["Dear", "all,"], ["yes", "we", "can't.", "No."]]
    # documents are numbered on
    both = seqtool("segment", letter, letter, "--rules").stdout
    assert [both.count(f"# sent_id = {number}\n") for number in range(1, 8)] == [1] * 6 + [0]
    assert both.count(f"# newdoc id = {letter}\n") == 2


def test_sentences_as_lines(seqtool: Run, letter: Path, tmp_path: Path) -> None:
    for name, expected in (
        ("text", ["Dear all ,", "yes we can't .", "No ."]),
        ("lines", ["Dear all,", "yes we can't.", "No."]),
    ):
        result = seqtool("segment", letter, "--rules", "--format", name)
        assert (result.code, result.stdout.splitlines()) == (0, expected)
        packed = tmp_path / "out.gz"
        assert seqtool("segment", letter, "--rules", "-f", name, "-o", packed).code == 0
        assert gzip.decompress(packed.read_bytes()).decode() == result.stdout


def test_a_text_is_not_written_over(
    refused: Callable[..., str], seqtool: Run, letter: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "letter.txt").write_bytes(letter.read_bytes())
    for typed in ("letter.txt -o letter.txt", "texts -o texts/"):
        refused(f"segment --rules --format text {typed}", "is read, and would be replaced")
    # what has another name is written beside them
    assert seqtool("segment", folder, "--rules", "-o", f"{folder}/").code == 0
    assert sorted(path.name for path in folder.iterdir()) == ["letter.conllu", "letter.txt"]
    # and over a file of that name in another folder, which is not read
    assert seqtool("segment", folder / "letter.txt", "--rules", "-o", tmp_path).code == 0


@pytest.mark.parametrize(
    ("name", "shown"), [(b"b\xff.txt", "b\\udcff.txt"), (b"b\nc\r.txt", "b\\nc\\r.txt")]
)
def test_a_name_that_a_comment_cannot_hold(
    seqtool_process: Run, tmp_path: Path, name: bytes, shown: str
) -> None:
    """It is not UTF-8, or has a line end."""
    path = os.path.join(os.fsencode(tmp_path), name)
    with open(path, "w") as file:
        file.write("Yes.")
    result = seqtool_process("segment", tmp_path, "--rules")
    assert result.stdout.splitlines()[0] == f"# newdoc id = {tmp_path}/{shown}"
    into = seqtool_process("segment", tmp_path, "--rules", "-o", f"{tmp_path / 'out'}/")
    assert into.code == 0, into.stderr
    (written,) = os.listdir(os.path.join(os.fsencode(tmp_path), b"out"))
    assert written == name.replace(b".txt", b".conllu")


@pytest.mark.parametrize(
    ("options", "content", "message"),
    [
        ("--presegmented --pretokenized", b"a", "--pretokenized includes --presegmented"),
        ("--rules -m x", b"a", "--rules needs no model"),
        ("-m nothing", b"a", "no such model"),
        ("--rules --format line", b"a", "no format is called 'line'"),
        ("--rules", b"a\0b", "a NUL at byte 1"),
    ],
)
def test_mistakes(
    refused: Callable[..., str], tmp_path: Path, options: str, content: bytes, message: str
) -> None:
    (tmp_path / "t.txt").write_bytes(content)
    refused(f"segment t.txt {options} -o o.conllu", message)
