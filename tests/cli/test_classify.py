"""`seqtool train-classifier` and `seqtool classify` as a user meets them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from classification.opinions import opinions, write
from classification.test_model import linear, recurrent
from toy_networks import save_lm

import seqtool as package

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classify")
    write(folder / "train.csv", opinions("train")[:300])
    linear().save(folder / "linear", scores={}, data={})
    recurrent(model__max_words=3).save(folder / "network", scores={}, data={})
    (folder / "new.csv").write_text('id,review\n1,"good, good"\n2,not good\n')
    return folder


def test_a_run_from_training_to_labels(seqtool: Run, folder: Path, tmp_path: Path) -> None:
    command = ("train-classifier", folder / "train.csv", "-o", tmp_path / "m")
    small = ("--epochs", "2", "--device", "cpu", "--threads", "1")
    made = seqtool(*command, *small)
    assert (made.code, made.stdout) == (0, f"{tmp_path / 'm'}\n"), made.stderr
    lines = made.stderr.splitlines()
    assert lines[0] == "every tenth text is held out as dev: 30 of 300"
    assert lines[-1] == f"next: seqtool classify FILE.csv -m {tmp_path / 'm'}"
    content = json.loads(seqtool(*command, "--force", "--json", *small).stdout)
    assert content["dev"]["accuracy"] == content["dev_accuracy"]
    assert sum(each["texts"] for each in content["dev"]["labels"]) == 30
    out = tmp_path / "out.jsonl"
    result = seqtool("classify", folder / "train.csv", "-m", tmp_path / "m", "-o", out)
    assert (result.code, result.stdout) == (0, "")
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    right = sum(row["label"] == row["prediction"] for row in rows)
    assert f"300 texts: accuracy {right / 3:.2f}, " in result.stderr
    assert all(row["p(good)"] + row["p(bad)"] == pytest.approx(1) for row in rows)


def test_a_language_model_is_trained_further(
    seqtool: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("good film .\nbad film , not good .\n" * 20)
    save_lm(Path("lm"), package.prepare(["text.txt"], "corpus"), 4)
    args = ("--encoder", "lm", "--lm", "lm", "-o", "m", "--epochs", "1", "--device", "cpu")
    rows = ["text,label", *['"good film, odd",x', "bad film,y"] * 2]
    Path("few.csv").write_text("\n".join(rows) + "\n")
    made = seqtool("train-classifier", "few.csv", *args)
    assert made.code == 0, made.stderr
    assert "12 words, 16.7% unknown to the language model" in made.stderr
    assert seqtool("inspect", "m").code == 0
    result = seqtool("classify", "few.csv", "-m", "m", "--json")
    assert json.loads(result.stdout)["texts"] == 4


def test_columns_are_kept(seqtool: Run, folder: Path, tmp_path: Path) -> None:
    command = ("classify", folder / "new.csv", "-m", folder / "linear")
    result = seqtool(*command)
    assert (result.code, result.stderr) == (0, "2 texts\n")
    rows = list(csv.DictReader(result.stdout.splitlines(), delimiter="\t"))
    assert list(rows[0]) == ["id", "review", "prediction", "p(yes)", "p(no)"]
    assert [row["review"] for row in rows] == ["good, good", "not good"]
    content = json.loads(seqtool(*command, "--json").stdout)
    assert [row["prediction"] for row in content["rows"]] == ["yes", "no"]
    out = tmp_path / "out.csv"
    content = json.loads(seqtool(*command, "--json", "-o", out).stdout)
    assert content == {"texts": 2, "cut": 0, "output": str(out)}
    # fields of JSON Lines may be anything
    records = [{"review": "good", "tags": ["a", 1], "n": None}, {"review": "bad", "n": 2}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    for out in (tmp_path / "out.jsonl", tmp_path / "out.csv"):
        given = ("classify", tmp_path / "in.jsonl", "-m", folder / "linear", "-o", out)
        assert seqtool(*given).code == 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(row["tags"], row["n"]) for row in rows] == [(["a", 1], None), (None, 2)]
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [(row["tags"], row["n"]) for row in rows] == [('["a", 1]', ""), ("", "2")]


def test_labels_of_the_file_are_compared(seqtool: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "gold.csv").write_text("review,answer\ngood,yes\nnot good,yes\nbad,no\nx,maybe\n")
    args = ("classify", tmp_path / "gold.csv", "-m", folder / "linear")
    assert seqtool(*args).stderr == "4 texts\n"
    lines = seqtool(*args, "--label-column", "answer").stderr.splitlines()
    assert "warning: labels that training did not have, always wrong: maybe" in lines
    assert lines[-1].startswith("4 texts: accuracy 50.00, macro F1 ")
    content = json.loads(seqtool(*args, "--label-column", "answer", "--json").stdout)
    assert content["confusion"] == [[1, 1, 0], [0, 1, 0], [1, 0, 0]]


def test_lines_of_text(seqtool: Run, seqtool_process: Run, folder: Path, tmp_path: Path) -> None:
    result = seqtool_process("classify", "-m", folder / "linear", input=b"good\nbad\n")
    assert result.code == 0
    labels = [line.split("\t")[1] for line in result.stdout.splitlines()]
    assert labels == ["prediction", "yes", "no"]
    # long ones are cut
    (tmp_path / "long.txt").write_text("a b c d\n" + "word " * 200_000 + "\na b\n")
    cut = seqtool("classify", tmp_path / "long.txt", "-m", folder / "network")
    assert (cut.code, cut.stderr) == (0, "2 texts read up to word 3 only\n3 texts\n")


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("classify new.csv -m network", "new.csv:1: has no column 'text'"),
        ("classify new.csv -m linear -o new.csv", "would be replaced"),
        ("classify clash.csv -m linear", "clash.csv:1: has a column 'prediction'"),
        ("classify new.csv -m linear -m network", "-m names 2 models"),
        ("train-classifier -o m", "nothing is given to train on"),
        ("train-classifier new.csv -o m", "new.csv:1: has no column 'text'"),
        ("train-classifier train.csv -o m --encoder lm", "the encoder lm begins from"),
        ("train-classifier train.csv -o m --set dropout_words=0.9", "dropout_words counts only"),
    ],
)
def test_mistakes(
    command: str, error: str, refused: Callable[..., str], folder: Path, tmp_path: Path
) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "clash.csv").write_text("review,prediction\na,b\n")
    refused(command, error)
