"""`--input` of `parse` and `tag`: what a file is, whatever its name, and in parts as well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from server.running import PIPELINE

from seqtool.parsing.segmenter.documents import Given, read_parts, segment_files, segment_parts
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.sentence import FORM, UPOS

Run = Callable[..., Any]
WORDS = [["The", "old dog", "sleeps", "."], ["It", "dreams"]]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    texts = {
        "horizontal": "\n".join(
            " ".join(word.replace(" ", "\u00a0") for word in words) for words in WORDS
        ),
        "vertical": "\n\n".join("\n".join(words) for words in WORDS),
        "text": "The dog sleeps.",
        "conllu": "1\tdogs\t_\t_\t_\t_\t_\t_\t_\t_\n\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return {name: tmp_path / name for name in texts}


@pytest.mark.parametrize("command", ["parse", "tag"])
def test_words_are_taken_as_they_are(seqtool: Run, files: dict[str, Path], command: str) -> None:
    for layout in ("horizontal", "vertical"):
        result = seqtool(command, files[layout], "--input", layout, "-m", PIPELINE)
        assert result.code == 0, result.stderr
        check = "tree" if command == "parse" else "columns"
        found = list(read_conllu(result.stdout, check=check))
        assert [sentence.column(FORM) for sentence in found] == WORDS
        assert all("_" not in sentence.column(UPOS) for sentence in found)
        assert found[0].comments[0] == f"# newdoc id = {files[layout]}"


def test_the_name_of_a_file_says_nothing_then(
    seqtool: Run, files: dict[str, Path], tmp_path: Path
) -> None:
    as_text = seqtool("parse", files["text"], "--input", "text", "-m", PIPELINE)
    assert as_text.stdout == seqtool("parse", files["text"], "--raw", "-m", PIPELINE).stdout
    named = files["conllu"].rename(tmp_path / "trees.txt")
    result = seqtool("parse", named, "--input", "conllu", "-m", PIPELINE)
    assert [sentence.column(FORM) for sentence in read_conllu(result.stdout)] == [["dogs"]]


def test_options_that_do_not_go_together(seqtool: Run, files: dict[str, Path]) -> None:
    for options, error in (
        (["--input", "vertical", "--raw"], "error: --input vertical and --raw do not go together"),
        (["--input", "conllu", "--rules"], "error: --input conllu and --rules do not go together"),
        (["--input", "horizontl"], "error: no input is called 'horizontl'"),
    ):
        result = seqtool("parse", files["text"], *options, "-m", PIPELINE)
        assert result.code == 1
        assert result.stderr.splitlines()[0] == error
        assert len(result.stderr.splitlines()) == 2


@pytest.mark.parametrize("given", get_args(Given))
def test_parts_are_read_as_the_whole_is(tmp_path: Path, given: Given) -> None:
    path = tmp_path / "text"
    lines = ["a b c", "", "d e", "f", "", "", "g", "h i", "j\tk", "", "l"] * 20
    path.write_text("\r\n".join(lines), encoding="utf-8")
    whole = [sentence.to_conllu() for sentence in segment_files([path], None, given=given)]
    parts = list(read_parts([path], given=given, size=30))
    assert len(parts) > 9
    texts = ((name, [text], begins) for name, text, begins in parts)
    assert [found.to_conllu() for found in segment_parts(texts, None, given=given)] == whole
