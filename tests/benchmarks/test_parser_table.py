"""The table of parsers on the shipped sample: what is trained, kept, gone on with, and refused."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest
from benchmarks import parser_table
from benchmarks.parser_table import ROWS, main

from seqtool.core import checkpoint
from seqtool.text.datasets import sample_treebank
from seqtool.treebank.conllu import read_conllu, write_conllu

TINY = (
    *("training.epochs=1", "learning.global_epochs=1", "model.hash_bits=12", "model.min_count=1"),
    *("model.lexical_size=8", "model.tag_size=4", "model.hidden_size=8", "model.type_units=4"),
    *("model.encoder_size=4", "model.encoder_layers=1", "model.context_units=4"),
    *("model.arc_size=4", "model.relation_size=4", "learning.min_steps=1"),
)


def arguments(folder: Path, language: str, *more: str) -> list[str]:
    """Those of a small treebank of the sample, which is written if it is not there."""
    files = [folder / f"{language}-{part}.conllu" for part in ("train", "dev")]
    for path, begin in zip(files, (0, 40), strict=True):
        sentences = read_conllu(sample_treebank(language, "valid"))
        write_conllu(islice(sentences, begin, begin + 40 - begin // 2), path)
    settings = [word for setting in TINY for word in ("--set", setting)]
    out = str(folder / "out")
    return [*map(str, files), "--out", out, "--threads", "1", *settings, *more]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure on few words, once."""
    monkeypatch.setattr(parser_table, "LEAST_WORDS", 200)
    monkeypatch.setattr(parser_table, "REPEATS", 1)


def test_all_rows_of_the_korean_sample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(tmp_path, "ko", "--seeds", "1")) == 0
    table = (tmp_path / "out" / "parsers.md").read_text()
    assert capsys.readouterr().out.startswith(table.rstrip("\n"))
    lines = table.splitlines()
    assert len(lines) == 2 + sum(len(row.beams) for row in ROWS)
    assert "not run" not in table
    kept = json.loads((tmp_path / "out" / "parsers.json").read_text())
    assert set(kept["figures"]) == {f"{row.name}-1" for row in ROWS}
    for row in ROWS:
        figures = kept["figures"][f"{row.name}-1"]
        assert figures["minutes"] > 0
        for beam in row.beams:
            found = figures["searches"][str(beam)]
            assert 0 <= found["las"] <= found["uas"] <= 100
            assert found["words_per_second"] > 0
            assert ("words_per_second_alone" in found) == (not row.members)
    # the scores are those of the model that was chosen
    header = checkpoint.read_header(tmp_path / "out" / "fast-1")
    greedy = kept["figures"]["fast-1"]["searches"]["1"]
    assert greedy["uas"] == pytest.approx(header.scores["dev_uas"], abs=0.01)
    teachers = checkpoint.read_header(tmp_path / "out" / "distilled-1").data["teachers"]
    assert teachers == "accurate-1, graph-1, linear-1"


def test_seeds_and_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(tmp_path, "en", "--rows", "mst", "--seeds", "2")) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "first order" in line]
    assert line.endswith("| 2 |")
    assert line.count("(") == 3  # of UAS and LAS, and in the title
    # what is there is neither trained nor measured again
    monkeypatch.setattr(parser_table, "train_parser", None)
    assert main(arguments(tmp_path, "en", "--rows", "mst", "--seeds", "2")) == 0
    assert line in capsys.readouterr().out
    # other files, or other settings, are another table
    assert main(arguments(tmp_path, "ko", "--rows", "mst")) == 1
    assert "parsers of another treebank" in capsys.readouterr().err
    assert main(arguments(tmp_path, "en", "--rows", "mst2")) == 1
    assert "did you mean mst?" in capsys.readouterr().err
    assert main([str(tmp_path / "none.conllu"), str(tmp_path / "none.conllu")]) == 1
    assert "none.conllu: no such file" in capsys.readouterr().err
