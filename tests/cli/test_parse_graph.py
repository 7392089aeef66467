"""`seqtool parse` with a graph-based parser: no torch, and sentences that are too long."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from parsing.parser.graph.test_decoder import graph_parser
from parsing.parser.tiny import make_sentence, random_parser, random_sentences, tiny_config

from seqtool.treebank.conllu import read_conllu, write_conllu
from seqtool.treebank.sentence import find_fault

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "parser"
    graph_parser("projective").save(path, scores={}, data={})
    return path


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.conllu"
    # few tags that the parser does not know, so that it does not warn
    sentences = random_sentences(12, 9, tags="XXXYYYZ")
    write_conllu(sentences, path)
    return path


def test_a_note_tells_of_sentences_that_are_too_long(
    seqtool: Run, model: Path, text: Path, tmp_path: Path
) -> None:
    long = tmp_path / "long.conllu"
    long.write_text(make_sentence([("a", "X"), ("B", "Y")] * 501).to_conllu(), encoding="utf-8")
    output = tmp_path / "out.conllu"
    result = seqtool("parse", text, long, long, "-m", model, "-o", output)
    assert "2 sentences of more than 1,000 words" in result.stderr
    sentences = list(read_conllu([output]))
    assert [len(sentence) for sentence in sentences[-2:]] == [1002, 1002]
    assert all(find_fault(sentence.heads()) is None for sentence in sentences)
    assert "1,000" not in seqtool("parse", text, "-m", model, "-o", output).stderr


def test_it_says_that_a_beam_changes_nothing(
    seqtool: Run, model: Path, text: Path, tmp_path: Path
) -> None:
    greedy, wide = (seqtool("parse", text, "-m", model, "--beam", str(beam)) for beam in (1, 4))
    assert greedy.stdout == wide.stdout
    assert greedy.stderr == ""
    assert "--beam changes nothing" in wide.stderr
    # a vote has a beam where one of its parsers has one
    other = tmp_path / "other"
    random_parser(tiny_config()).save(other, scores={}, data={})
    assert "--beam" not in seqtool("parse", text, "-m", other, "--beam", "4").stderr
    both = seqtool("parse", text, "-m", model, "-m", other, "--beam", "4")
    assert (both.code, both.stderr) == (0, "")
    scored = seqtool("eval-parser", text, "-m", model, "-m", other, "--beam", "4")
    assert f"{model}: finds a tree without a beam" in scored.stderr
    assert f"{other}: " not in scored.stderr


def test_the_card_says_what_it_is(model: Path) -> None:
    card = (model / "README.md").read_text(encoding="utf-8")
    assert "Graph-based (biaffine scores of arcs), a bidirectional LSTM, 6 units for heads" in card


def test_torch_is_not_imported(model: Path, text: Path) -> None:
    code = (
        "import sys; from seqtool.cli.app import main; "
        f"code = main(['parse', {str(text)!r}, '-m', {str(model)!r}, '-o', {os.devnull!r}]); "
        "sys.exit(code or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
