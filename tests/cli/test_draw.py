"""`seqtool draw` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from toy_trees import GOLD, GOLDEN, TREES

Run = Callable[..., Any]


def test_trees_in_the_terminal(seqtool: Run) -> None:
    result = seqtool("draw", TREES, "--gold", GOLD)
    assert result == (0, (GOLDEN / "trees.txt").read_text(encoding="utf-8"), "")


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
    assert (tmp_path / name).read_text(encoding="utf-8").startswith(begin)


def test_a_directory_gets_a_file_for_each_sentence(seqtool: Run, tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    result = seqtool("draw", TREES, GOLD, "--down", "-o", f"{folder}/")
    assert result == (0, "", f"{folder}: 4 pictures\n")
    names = [path.name for path in sorted(folder.iterdir())]
    assert names == [
        f"000{i}-{name}.svg"
        for i, name in enumerate(("projective", "crossing", "multiword", "leftward"), 1)
    ]
    for path in folder.iterdir():
        root = ElementTree.parse(path).getroot()
        assert float(root.get("height", "")) > float(root.get("width", "")) / 3
    again = seqtool("draw", TREES, "-o", folder)
    assert again.code == 1
    assert "is there, and not empty" in again.stderr
    # nothing is left of what fails half-way
    other = tmp_path / "other"
    broken = tmp_path / "broken.conllu"
    broken.write_text(TREES.read_text(encoding="utf-8") + "1\ta\n\n", encoding="utf-8")
    failed = seqtool("draw", broken, "-o", f"{other}/")
    assert failed.code == 1
    assert failed.stderr.startswith(f"error: {broken}:")
    assert not other.exists()


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
        (f"{GOLD} --beside -f json", "--beside"),
        ("--differing", "--differing"),
        ("--down", "--down"),
        ("--where deprel=nonsense", "--where"),
        ("--where nonsense=a", "nonsense"),
        ("- --gold -", "stdin"),
    ],
)
def test_what_cannot_be_drawn(
    seqtool: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: str, word: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = seqtool("draw", TREES, *args.split())
    first, second = result.stderr.splitlines()
    assert (result.code, result.stdout) == (1, "")
    assert word in first
    assert second.startswith("hint: ")
    assert list(tmp_path.iterdir()) == []
