"""What works without PyTorch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest
from classification.test_model import linear
from parsing.parser import tiny
from parsing.segmenter import tiny_segmenter
from parsing.tagger import toy
from toy_networks import save_lm

import seqtool
from seqtool.cli.app import COMMANDS

ROOT = Path(__file__).resolve().parents[1]
# runs commands one after another, and prints what became of each; the first argument may be a
# library that is missing
DRIVER = """
import contextlib, io, json, sys
from pathlib import Path

missing, *commands = sys.argv[1:]

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from seqtool.cli.app import main

for command in commands:
    before = sorted(map(str, Path().rglob("*")))
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(command.split())
    texts = [stream.buffer.getvalue().decode() for stream in (out, err) if not stream.flush()]
    changed = before != sorted(map(str, Path().rglob("*")))
    imported = sorted({"torch"} & set(sys.modules))
    print(json.dumps([code, *texts, changed, imported]))
"""
TEXT = "the dog sees a cat\na cat sees the dog\n" * 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models of every kind, and texts for them."""
    folder = tmp_path_factory.mktemp("light")
    for name in ("train.txt", "raw.txt"):
        (folder / name).write_text(TEXT)
    tiny.random_parser(tiny.tiny_config()).save(folder / "parser", scores={}, data={})
    toy.random_tagger().save(folder / "tagger", scores={}, data={})
    tiny_segmenter.random_segmenter().save(folder / "segmenter", scores={}, data={})
    linear().save(folder / "classifier", scores={}, data={})
    (folder / "nbest").write_text("a-1 the dog\na-2 a cat\n")
    (folder / "reviews.csv").write_text("text,label\ngood,yes\nbad,no\n")
    tiny.write_treebank(folder / "trees.conllu", 3)
    seqtool.train_ngram([folder / "train.txt"], folder / "ngram")
    corpus = seqtool.prepare([folder / "train.txt"], folder / "corpus")
    save_lm(folder / "neural", corpus, 2)
    (folder / "model.arpa").write_text(
        "\\data\\\nngram 1=4\n\n\\1-grams:\n-99\t<s>\n-1\t</s>\n-1\t<unk>\n-0.5\tthe\n\n\\end\\\n"
    )
    return folder


class Result(NamedTuple):
    """What became of a command."""

    code: int
    stdout: str
    stderr: str
    changed: bool  # the files in the folder
    imported: list[str]


def run(folder: Path, commands: Iterable[str], missing: str = "-") -> list[Result]:
    """Run commands in a process of their own."""
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, missing, *commands],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""  # what libraries say when Python ends
    return [Result(*json.loads(line)) for line in done.stdout.splitlines()]


LIGHT = {
    "prepare": "prepare train.txt -o prepared --force",
    "ngram train": "ngram train train.txt --order 2 -o new --force",
    "ngram export": "ngram export ngram exported.arpa",
    "ngram import": "ngram import model.arpa -o imported --force",
    "ngram prune": "ngram prune ngram -o pruned --force",
    "ngram mix": "ngram mix ngram model.arpa -o mixed --force",
    "ngram counts": "ngram counts train.txt",
    "ngram classes": "ngram classes train.txt --num 2",
    "pack": "pack ngram -o packed.zip",
    "eval-ppl": "eval-ppl raw.txt -m packed.zip",
    "ngram snm": "ngram snm train.txt -o snm --force",
    "draw": "draw trees.conllu",
    "generate": "generate -m ngram --prompt the --seed 1",
    "surprisal": "surprisal raw.txt -m ngram",
    "pairs": "pairs -m ngram",
    "rescore": "rescore nbest -m ngram",
    "analyse context": "analyse context raw.txt -m ngram",
    "analyse surprisal": "analyse surprisal raw.txt -m ngram",
    "analyse sparsity": "analyse sparsity raw.txt -m ngram",
    "analyse errors": "analyse errors trees.conllu -m parser",
    "analyse embeddings": "analyse embeddings -m tagger",
    "analyse states": "analyse states trees.conllu -m tagger -o states.npy",
    "parse": "parse trees.conllu -m parser",
    "tag": "tag trees.conllu -m tagger",
    "classify": "classify raw.txt -m classifier",
    "segment": "segment raw.txt -m segmenter",
    "eval-parser": "eval-parser trees.conllu -m parser",
    "inspect": "inspect neural",
    "help": "help parsing",
}
HEAVY = {
    "train-lm": "train-lm train.txt",
    "train-parser": "train-parser trees.conllu",
    "tune": "tune lm train.txt --try hidden_size=4,8 -o tuned",
    "train-tagger": "train-tagger trees.conllu",
    "train-classifier": "train-classifier reviews.csv",
    "analyse cells": "analyse cells",
    **{
        f"analyse {name}": f"analyse {name} raw.txt -m neural"
        for name in ("gradients", "spectrum", "gates", "dynamics", "stack")
    },
}
# trains; needs a network; models of all kinds; ends when it is told to
OTHERS = {"demo", "fetch", "analyse report", "serve"}


def test_every_command_is_tried_without_torch() -> None:
    assert set(LIGHT) | set(HEAVY) | OTHERS == set(COMMANDS)


def test_works_without_torch(folder: Path) -> None:
    for command, result in zip(LIGHT, run(folder, LIGHT.values(), "torch"), strict=True):
        assert result.code == 0, f"{command}: {result.stderr}"
        assert result.stdout, command


def test_torch_is_named_where_it_is_missing(folder: Path) -> None:
    commands = [*HEAVY.values(), "eval-ppl raw.txt -m neural", "generate -m neural --prompt the"]
    for command, result in zip(commands, run(folder, commands, "torch"), strict=True):
        *_, error, hint = result.stderr.splitlines()
        assert error == "error: this needs PyTorch, which is not installed", command
        assert hint.startswith("hint: pip install torch")
        assert (result.code, result.stdout, result.changed) == (1, "", False), command


def test_the_page_leaves_networks_out_without_torch(folder: Path) -> None:
    command = "analyse report . --text train.txt --treebank trees.conllu -o page.html --json"
    for missing, is_left_out in (("torch", True), ("-", False)):
        (result,) = run(folder, [command], missing)
        assert result.code == 0, result.stderr
        remarks = [line for one in json.loads(result.stdout)["reports"] for line in one["remarks"]]
        reason = "neural: left out, as this needs PyTorch, which is not installed."
        assert (reason in remarks) == is_left_out
        assert len(json.loads(result.stdout)["reports"]) > 2
