"""`seqtool analyse states` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqtool as library

Run = Callable[..., Any]
VERSION = Path(__file__).parents[1] / "kept"


def test_a_language_model(seqtool: Run, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("the old dog\na cat\n")
    output = tmp_path / "x.npy"
    model = VERSION / "lm-bpe"
    for options in ([], ["--layer", "0"], ["--pool", "mean"]):
        result = seqtool(
            "analyse", "states", tmp_path / "x.txt", "-m", model, "-o", output, *options
        )
        found = np.load(output)
        assert result.stdout == f"{output}: 5 words of 2 sentences, {found.shape[1]} numbers each\n"
        lm = library.load(model)
        given = {"layer": 0} if "--layer" in options else {}
        given |= {"pool": "mean"} if options[:1] == ["--pool"] else {}
        expected = np.concatenate(lm.states(["the old dog", "a cat"], **given))
        np.testing.assert_array_equal(found, expected)
    table = (tmp_path / "x.tsv").read_text().splitlines()
    assert table[0].split("\t") == ["row", "sentence", "number", "word", "start", "end"]
    assert table[5].split("\t") == ["4", "2", "2", "cat", "2", "5"]


def test_files_that_nobody_named_stay(
    seqtool: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ("analyse", "states", VERSION / "valid.txt", "-m", VERSION / "lm-rnn")
    table = Path("states.tsv")
    table.write_text("mine")
    for options in ([], ["-o", "states.npy"]):
        result = seqtool(*command, *options)
        assert (result.code, result.stderr.count("\n"), table.read_text()) == (1, 2, "mine")
    table.unlink()
    assert [seqtool(*command).code for _ in range(2)] == [0, 1]
    assert seqtool(*command, "-o", "states.npy").code == 0


@pytest.mark.parametrize(
    ("model", "text", "options"),
    [
        ("parser-bilstm", "dev.conllu", []),
        ("tagger", "dev.conllu", ["--layer", "1"]),
        ("pipeline", "raw.txt", ["--part", "tagger"]),
        ("pipeline", "dev.conllu", ["--part", "tagger"]),
    ],
)
def test_parsers_and_taggers(
    model: str, text: str, options: list[str], seqtool: Run, tmp_path: Path
) -> None:
    output = tmp_path / "x.npy"
    result = seqtool(
        "analyse", "states", VERSION / text, "-m", VERSION / model, "-o", output, "--json", *options
    )
    told = json.loads(result.stdout)
    found = np.load(output)
    assert (told["rows"], told["width"]) == found.shape
    table = (tmp_path / "x.tsv").read_text().splitlines()
    assert len(table) == 1 + told["rows"]
    assert int(table[-1].split("\t")[1]) == told["sentences"]


@pytest.mark.parametrize(
    ("model", "text", "options", "message"),
    [
        ("ngram", "valid.txt", [], "a model of kind ngram has no states"),
        ("parser", "dev.conllu", [], "the parser has no encoder"),
        ("pipeline", "raw.txt", [], "the parser has no encoder"),
        ("segmenter", "dev.conllu", [], "the model has no states"),
        ("tagger", "raw.txt", [], "cannot read plain text"),
        ("tagger", "dev.conllu", ["--layer", "0"], "there is no layer 0"),
        ("tagger", "dev.conllu", ["--part", "tagger"], "part is for models of several parts"),
        ("lm-rnn", "valid.txt", ["--pool", "first"], "--pool is 'first'"),
        ("lm-rnn", "valid.txt", ["--layer", "2"], "there is no layer 2: the network has 1 layer"),
        ("lm-rnn", "valid.txt", ["--part", "tagger"], "part is for parsers"),
        ("tagger", "dev.conllu", ["--pool", "mean"], "pool is for language models"),
        ("lm-rnn", "/dev/null", [], "the file is empty"),
        ("lm-rnn", "nothing.txt", [], "no such file"),
    ],
)
def test_errors_are_two_lines_and_leave_nothing(
    model: str, text: str, options: list[str], message: str, seqtool: Run, tmp_path: Path
) -> None:
    output = tmp_path / "x.npy"
    result = seqtool(
        "analyse", "states", VERSION / text, "-m", VERSION / model, "-o", output, *options
    )
    assert result.code == 1
    error, hint = result.stderr.splitlines()
    assert message in error
    assert hint.startswith("hint: ")
    assert list(tmp_path.iterdir()) == []


def test_a_hint_says_that_what_is_missing_may_be_allowed(seqtool: Run, tmp_path: Path) -> None:
    bare, output = tmp_path / "bare.conllu", tmp_path / "x.npy"
    rows = ["1\tthe\t_\t_\t_\t_\t_\t_\t_\t_", "2\tdog\t_\t_\t_\t_\t_\t_\t_\t_"]
    bare.write_text("\n".join([*rows, "", ""]))
    given = ("analyse", "states", bare, "-m", VERSION / "parser-bilstm", "-o", output)
    refused = seqtool(*given)
    assert refused.code == 1
    assert refused.stderr.splitlines()[-1].endswith("; --allow-missing parses it as it is")
    assert seqtool(*given, "--allow-missing").code == 0


def test_a_table_is_no_text(seqtool: Run, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("item,text\n1,the dog\n")
    result = seqtool(
        "analyse", "states", tmp_path / "x.csv", "-m", VERSION / "lm-bpe", "-o", tmp_path / "x.npy"
    )
    assert (result.code, (tmp_path / "x.npy").exists()) == (1, False)
    assert "is a table, whose other cells" in result.stderr
