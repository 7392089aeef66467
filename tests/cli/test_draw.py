"""`seqtool draw` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from toy_trees import GOLD, TREES

Run = Callable[..., Any]


@pytest.mark.parametrize(
    ("name", "begin"),
    [
        ("trees.svg", "<svg "),
        ("trees.tex", "% pdflatex"),
        ("trees.html", "<!DOCTYPE html>"),
        ("trees.txt", "# projective"),
        ("trees", "# projective"),
        ("trees.jsonl", '{"id":'),
    ],
)
def test_the_name_says_what_is_drawn(seqtool: Run, tmp_path: Path, name: str, begin: str) -> None:
    assert seqtool("draw", TREES, "-o", tmp_path / name) == (0, "", "")
    text = (tmp_path / name).read_text(encoding="utf-8")
    assert text.startswith(begin)
    assert TREES.name not in text  # a single analysis needs no name


def test_a_directory_gets_a_file_for_each_sentence(
    refused: Callable[..., str], seqtool: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "pictures"
    result = seqtool("draw", TREES, GOLD, "-o", f"{folder}/")
    assert result == (0, "", f"{folder}: 4 pictures\n")
    names = [path.name for path in sorted(folder.iterdir())]
    assert names[::3] == ["0001-projective.svg", "0004-leftward.svg"]
    for path in folder.iterdir():
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
    refused(f"draw {TREES} -o pictures", "is there, and not empty")
    # nothing is left of what fails half-way
    broken = TREES.read_text(encoding="utf-8") + "1\ta\n\n"
    (tmp_path / "broken.conllu").write_text(broken, encoding="utf-8")
    refused("draw broken.conllu -o other/", "broken.conllu:")


def test_words_below_one_another(seqtool: Run, tmp_path: Path) -> None:
    def text(*args: object) -> str:
        assert seqtool("draw", TREES, *args, "-o", tmp_path / "x").code == 0
        return (tmp_path / "x").read_text(encoding="utf-8")

    assert "matrix(0 1 1 0 0 0)" in text("-f", "svg", "--down")
    assert "matrix" not in text("-f", "svg")
    assert '<option value="down" selected>' in text("-f", "html", "--down")
    assert "selected>" not in text("-f", "html")


def test_only_some_sentences(seqtool: Run) -> None:
    def drawn(*args: object) -> list[str]:
        result = seqtool("draw", TREES, "-f", "json", *args)
        assert result.code == 0
        return [json.loads(line)["id"] for line in result.stdout.splitlines()]

    assert drawn() == ["projective", "crossing", "multiword", "leftward"]
    assert drawn("--where", "deprel=aux") == ["multiword"]
    assert drawn("--where", "form=us", "--where", "deprel=obl") == ["projective"]
    assert drawn("--gold", GOLD, "--differing") == ["projective", "crossing"]
    assert drawn(GOLD, "--differing") == ["projective", "projective", "crossing", "crossing"]


@pytest.mark.parametrize(
    ("args", "word"),
    [
        ("-f nonsense", "nonsense"),
        ("-o x.pdf", ".pdf"),
        ("-o no/x.svg", "directory"),
        ("-o x/ -f html", "html"),
        ("--beside", "--beside"),
        ("--down", "--down"),
        ("--differing", "--differing"),
        ("--where deprel=nonsense", "--where"),
        ("- --gold -", "stdin"),
    ],
)
def test_mistakes(refused: Callable[..., str], args: str, word: str) -> None:
    refused(f"draw {TREES} {args}", word)
