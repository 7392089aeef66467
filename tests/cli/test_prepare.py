"""`seqtool prepare` as a user meets it."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli.test_ngram import two_lines

from seqtool.text.prepared import PreparedCorpus

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def in_a_folder_with_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("".join(f"a b {i % 3}\n" for i in range(300)))
    Path("valid.txt").write_text("a b c\n")


def test_summary_and_path(seqtool: Run) -> None:
    result = seqtool("prepare", "text.txt", "--valid", "valid.txt", "-o", "out")
    assert (result.code, result.stdout) == (0, "out\n")
    lines = [" ".join(line.split()) for line in result.stderr.splitlines()]
    assert lines[:3] == [
        "unit word, vocabulary of 7 symbols",
        "train 300 sentences 1,200 tokens 0 unknown (0.00%)",
        "valid 1 sentences 4 tokens 1 unknown (25.00%)",
    ]
    assert len(lines) == 4
    assert lines[3].startswith("0.0 MB in ")
    assert PreparedCorpus.open("out").splits() == ["train", "valid"]


def test_drawn_splits_are_announced(seqtool: Run) -> None:
    drawn = "each line was drawn for 90% train, 5% valid, 5% test, seed 5"
    assert drawn in seqtool("prepare", "text.txt", "-o", "out", "--seed", "5").stderr
    result = seqtool("prepare", "text.txt", "-o", "out", "--split", "80,20", "--force")
    assert "drawn" not in result.stderr
    assert PreparedCorpus.open("out").splits() == ["train", "valid"]


def test_json(seqtool: Run) -> None:
    result = seqtool("prepare", "text.txt", "--unit", "char", "-o", "out", "--json")
    assert (result.code, result.stderr) == (0, "")
    answer = json.loads(result.stdout)
    assert answer.pop("seconds") > 0
    assert answer == {"corpus": "out", **PreparedCorpus.open("out").info}
    assert sum(part["sentences"] for part in answer["splits"].values()) == 300


def test_stdin_and_all_options(seqtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    text = gzip.compress(b'{"body": "A a <s>\\nB"}\n{"body": ""}\n')
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text)))
    options = "--field body --lowercase --skip-empty-lines --special-tokens unknown --split 100"
    result = seqtool("prepare", "-", "-o", "out", *options.split(), "--min-count", "2")
    assert result.code == 0
    corpus = PreparedCorpus.open("out")
    assert corpus.vocabulary.symbols == ["<unk>", "</s>", "a"]
    assert corpus.ids("train").tolist() == [2, 2, 0, 1, 0, 1]


def test_subwords_say_what_they_were_learnt_from(seqtool: Run) -> None:
    options = ["--unit", "bpe", "--byte-fallback", "--vocab-size", "265"]
    result = seqtool("prepare", "text.txt", "-o", "out", *options)
    assert result.code == 0
    assert "vocabulary of 265 symbols, learnt from all training lines" in result.stderr


def test_no_input_is_the_sample(seqtool: Run) -> None:
    result = seqtool("prepare", "--min-count", "2")
    assert (result.code, result.stdout) == (0, "runs/corpus\n")
    assert result.stderr.startswith("no INPUT given: using the shipped English sample\n")
    assert "drawn" not in result.stderr
    corpus = PreparedCorpus.open("runs/corpus")
    assert corpus.splits() == ["train", "valid", "test"]
    assert corpus.info["splits"]["train"]["sentences"] > 1000


WORDS = "1\tA\ta\tX\t_\t_\t{}\tdet\t_\t_\n2\tb\tb\tX\t_\t_\t0\troot\t_\t_\n\n"
GOOD_TREE, BAD_TREE = WORDS.format(2), WORDS.format(3)
BAD_UTF8 = b"good\n" * 3 + b"b\xe4d\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.txt", None, "missing.txt: no such file or directory"),
        ("empty.txt", b"", "empty.txt: the file is empty"),
        ("bad.txt", BAD_UTF8, "bad.txt:4: not UTF-8 at byte 16"),
        ("bad.gz", gzip.compress(b"text " * 1000)[:-20], "bad.gz: the gzip file is damaged"),
        ("no.gz", BAD_UTF8, "no.gz:4: not UTF-8 at byte 16"),
        ("bad.jsonl", b'{"text": "fine"}\n{"text": 1}\n', "bad.jsonl:2: the field 'text'"),
        ("s.txt", b"a\nb <s>\n", "s.txt:2: the text contains the spe"),
        ("none.conllu", None, "none.conllu: no such file or directory"),
        ("empty.conllu", b"", "empty.conllu: the file is empty"),
        ("bad.conllu", BAD_UTF8, "bad.conllu:4: not UTF-8 at byte 16"),
    ],
)
def test_bad_input(
    seqtool: Run, tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        Path(name).write_bytes(content)
    before = sorted(tmp_path.iterdir())
    output = [] if name.endswith("conllu") else ["-o", "out"]
    error, _ = two_lines(seqtool("prepare", name, *output))
    assert error.startswith(f"error: {message}")
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("text.txt -o out --split 50,40", "sums to 90"),
        ("text.txt -o out --split most", "'most'"),
        ("text.txt -o out --split 90,10 --valid valid.txt", "--valid gives one"),
        ("text.txt -o out --vocab-size 2", "vocab-size is 2"),
        ("text.txt -o out --unit words", "'words'"),
        ("text.txt -o out --unit bpe --vocab-size 4", "alone need"),
        ("text.txt -o out --unit bpe --vocab-size 9999", "at most"),
        ("text.txt -o out --unit byte --vocab-size 300", "means nothing"),
        ("text.txt -o out --vocab none.txt", "none.txt: no such file"),
        ("text.txt -o out --valid none.txt", "none.txt: no such file"),
        ("text.txt -o out --valid a.conllu", "a.conllu: is a treebank, not text"),
        ("text.txt -o out --strict", "--strict is for treebanks"),
        ("text.txt a.conllu -o out", "a.conllu: is a treebank, but text.txt is not"),
        ("text.txt -o -", "a corpus is a directory"),
        ("a.conllu --column form -o - --unit char", "--unit means nothing"),
        ("a.conllu --column form --field text", "field means nothing"),
        ("a.conllu --column head", "column"),
        ("a.conllu --column xpos -o -", "a.conllu:1: no word of the sentence has XPOS"),
        ("a.conllu --unit char", "--unit means nothing for a treebank that is only checked"),
        ("a.conllu -o out", "--output means nothing for a treebank that is only checked"),
    ],
)
def test_bad_options(seqtool: Run, tmp_path: Path, options: str, message: str) -> None:
    Path("a.conllu").write_text(GOOD_TREE)
    before = sorted(tmp_path.iterdir())
    assert message in two_lines(seqtool("prepare", *options.split()))[0]
    assert sorted(tmp_path.iterdir()) == before


def test_output_that_exists(seqtool: Run) -> None:
    assert seqtool("prepare", "text.txt", "-o", "out").code == 0
    error, _ = two_lines(seqtool("prepare", "text.txt", "-o", "out"))
    assert error == "error: out: exists already"
    assert seqtool("prepare", "text.txt", "-o", "out", "--force").code == 0
    Path("mine").mkdir()
    Path("mine/file").touch()
    error, _ = two_lines(seqtool("prepare", "text.txt", "-o", "mine", "--force"))
    assert "no prepared corpus" in error
    assert Path("mine/file").exists()


# treebanks


def test_a_treebank_is_summarised(seqtool: Run, tmp_path: Path) -> None:
    Path("a.conllu").write_text(GOOD_TREE * 3)
    Path("b.conllu.gz").write_bytes(gzip.compress(GOOD_TREE.encode()))
    before = sorted(tmp_path.iterdir())
    result = seqtool("prepare", "a.conllu", "b.conllu.gz")
    assert (result.code, result.stderr) == (0, "")
    rows = dict(line.split("  ", 1) for line in result.stdout.splitlines())
    rows = {name: text.strip() for name, text in rows.items()}
    assert (rows["sentences"], rows["words"], rows["broken sentences"]) == ("4", "8", "0")
    assert rows["DEPREL"] == "2: det 4, root 4"
    assert sorted(tmp_path.iterdir()) == before


def test_a_treebank_as_json(seqtool: Run) -> None:
    Path("a.conllu").write_text(GOOD_TREE + BAD_TREE)
    result = seqtool("prepare", "a.conllu", "--json")
    assert result.code == 1
    answer = json.loads(result.stdout)
    assert answer.pop("seconds") > 0
    assert (answer["sentences"], answer["deprels"]) == (1, {"det": 1, "root": 1})
    message = "token 1 has head 3, but the sentence has 2 tokens"
    assert answer["broken"] == [{"path": "a.conllu", "line": 4, "message": message}]


def test_broken_sentences_are_listed(seqtool: Run) -> None:
    Path("a.conllu").write_text(GOOD_TREE + BAD_TREE * 12)
    result = seqtool("prepare", "a.conllu")
    assert result.code == 1
    assert "broken sentences          12\n" in result.stdout
    *listed, error, _ = result.stderr.splitlines()
    # each sentence has three lines, the first one is good
    starts = [f"broken: a.conllu:{line}: token 1 has head 3" for line in range(4, 34, 3)]
    assert [line.partition(",")[0] for line in listed] == starts
    assert error == "error: 12 of 13 sentences cannot be used"


def test_a_column_is_a_text(seqtool: Run) -> None:
    Path("a.conllu").write_text(GOOD_TREE * 30 + "# text = a\n" + GOOD_TREE)
    result = seqtool("prepare", "a.conllu", "--column", "upos", "-o", "out", "--json")
    assert result.code == 0, result.stderr
    info = json.loads(result.stdout)
    assert sum(split["sentences"] for split in info["splits"].values()) == 31
    assert sum(split["tokens"] for split in info["splits"].values()) == 31 * 3
    assert (info["vocabulary_size"], info["config"]["column"]) == (3, "upos")
    for options, expected in (
        (["--column", "form"], "A b\n"),
        (["--column", "form", "--lowercase"], "a b\n"),
        (["--column", "lemma"], "a b\n"),
        (["--column", "upos"], "X X\n"),
    ):
        result = seqtool("prepare", "a.conllu", *options, "-o", "-")
        assert (result.code, result.stdout, result.stderr) == (0, expected * 31, "")
    # files that are called so give the splits, as those of text do
    Path("ud").mkdir()
    for number, name in enumerate(("train", "dev", "test"), start=1):
        Path(f"ud/en_x-ud-{name}.conllu").write_text(GOOD_TREE * number)
    result = seqtool("prepare", "ud", "--column", "form", "-o", "splits", "--json")
    splits = json.loads(result.stdout)["splits"]
    assert [splits[name]["sentences"] for name in ("train", "valid", "test")] == [1, 2, 3]


@pytest.mark.parametrize("command", ["prepare", "ngram counts", "ngram train", "eval-ppl"])
def test_of_texts_and_treebanks_in_a_directory_the_texts_are_read(
    seqtool: Run, command: str, caplog: pytest.LogCaptureFixture
) -> None:
    Path("mixed").mkdir()
    for name in ("train", "valid"):
        Path(f"mixed/{name}.txt").write_text("a b\n" * 40)
        Path(f"mixed/{name}.conllu").write_text(GOOD_TREE)
    options = ["--order", "1"] if command.startswith("ngram") else []
    if command == "eval-ppl":
        assert seqtool("ngram", "train", "text.txt", "-o", "m").code == 0
        options = ["-m", "m"]
    else:
        options += ["-o", "out.tsv"]
    result = seqtool(*command.split(), "mixed", *options)
    assert result.code == 0
    (said,) = caplog.messages
    assert said.startswith("mixed: 2 treebanks left out")
    assert "seqtool prepare mixed --column form" in said
    Path("ud").mkdir()  # as Universal Dependencies has it
    for name in ("LICENSE.txt", "README.md", "x-ud-train.txt"):
        Path(f"ud/{name}").write_text("a\n")
    Path("ud/x-ud-train.conllu").write_text(GOOD_TREE)
    assert "sentences" in seqtool("prepare", "ud").stdout
    error, _ = two_lines(seqtool("ngram", "counts", "ud"))  # a licence is no text to count
    assert "x-ud-train.conllu: is a treebank, not text" in error
