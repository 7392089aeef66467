"""`seqtool prepare` as a user meets it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqtool.text.prepared import PreparedCorpus

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def in_a_folder_with_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("".join(f"a b {i % 3}\n" for i in range(300)))
    Path("valid.txt").write_text("a b c\n")
    Path("a.conllu").write_text(GOOD_TREE)


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
    options = ("--unit", "char", "--split", "80,20", "-o", "out", "--json")
    result = seqtool("prepare", "text.txt", *options)
    assert result.stderr.startswith("error: out: exists already\n")
    result = seqtool("prepare", "text.txt", *options, "--force")
    assert (result.code, result.stderr) == (0, "")
    answer = json.loads(result.stdout)
    assert answer.pop("seconds") > 0
    assert answer == {"corpus": "out", **PreparedCorpus.open("out").info}
    assert list(answer["splits"]) == ["train", "valid"]
    assert sum(part["sentences"] for part in answer["splits"].values()) == 300


def test_stdin_and_all_options(seqtool_process: Run, tmp_path: Path) -> None:
    text = gzip.compress(b'{"body": "A a <s>\\nB"}\n{"body": ""}\n')
    options = "--field body --lowercase --skip-empty-lines --special-tokens unknown --split 100"
    words = ("prepare", "-", "-o", "out", *options.split(), "--min-count", "2")
    assert seqtool_process(*words, input=text, cwd=tmp_path).code == 0
    corpus = PreparedCorpus.open("out")
    assert corpus.vocabulary.symbols == ["<unk>", "</s>", "a"]
    assert corpus.ids("train").tolist() == [2, 2, 0, 1, 0, 1]


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
    answer = json.loads(seqtool("prepare", "a.conllu", "--json").stdout)
    assert (answer["sentences"], answer["deprels"]) == (1, {"det": 1, "root": 1})
    message = "token 1 has head 3, but the sentence has 2 tokens"
    assert answer["broken"][0] == {"path": "a.conllu", "line": 4, "message": message}


def test_a_column_is_a_text(seqtool: Run) -> None:
    Path("a.conllu").write_text(GOOD_TREE * 30 + "# text = a\n" + GOOD_TREE)
    result = seqtool("prepare", "a.conllu", "--column", "upos", "-o", "out", "--json")
    assert result.code == 0, result.stderr
    info = json.loads(result.stdout)
    assert sum(split["tokens"] for split in info["splits"].values()) == 31 * 3
    assert (info["vocabulary_size"], info["config"]["column"]) == (3, "upos")
    for options, expected in (("form", "A b\n"), ("form --lowercase", "a b\n"), ("upos", "X X\n")):
        result = seqtool("prepare", "a.conllu", "--column", *options.split(), "-o", "-")
        assert (result.code, result.stdout, result.stderr) == (0, expected * 31, "")
    # files that are called so give the splits, as those of text do
    Path("ud").mkdir()
    for number, name in enumerate(("train", "dev", "test"), start=1):
        Path(f"ud/en_x-ud-{name}.conllu").write_text(GOOD_TREE * number)
    result = seqtool("prepare", "ud", "--column", "form", "-o", "splits", "--json")
    splits = json.loads(result.stdout)["splits"]
    assert [splits[name]["sentences"] for name in ("train", "valid", "test")] == [1, 2, 3]


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("none.txt -o out", "none.txt: no such file or directory"),
        ("bad.txt -o out", "bad.txt:4: not UTF-8 at byte 16"),
        ("bad.gz -o out", "bad.gz: the gzip file is damaged"),
        ("bad.jsonl -o out", "bad.jsonl:2: the field 'text'"),
        ("s.txt -o out", "s.txt:2: the text contains the spe"),
        ("text.txt -o out --split 50,40", "sums to 90"),
        ("text.txt -o out --split 90,10 --valid valid.txt", "--valid gives one"),
        ("text.txt -o out --unit byte --vocab-size 300", "vocab_size counts only where"),
        ("text.txt -o out --unit byte --reverse", "reverse counts only where"),
        ("text.txt -o out --vocab none.txt", "none.txt: no such file"),
        ("text.txt -o out --valid a.conllu", "a.conllu: is a treebank, not text"),
        ("text.txt -o out --strict", "--strict is for treebanks"),
        ("text.txt a.conllu -o out", "a.conllu: is a treebank, but text.txt is not"),
        ("text.txt -o -", "a corpus is a directory"),
        ("text.txt -o mine --force", "no prepared corpus"),
        ("a.conllu --column xpos -o -", "a.conllu:1: no word of the sentence has XPOS"),
        ("a.conllu --unit char", "--unit means nothing for a treebank that is only checked"),
    ],
)
def test_mistakes(refused: Callable[..., str], typed: str, message: str) -> None:
    for name, content in {
        "bad.txt": b"good\n" * 3 + b"b\xe4d\n",
        "bad.gz": gzip.compress(b"text " * 1000)[:-20],
        "bad.jsonl": b'{"text": "fine"}\n{"text": 1}\n',
        "s.txt": b"a\nb <s>\n",
    }.items():
        Path(name).write_bytes(content)
    Path("mine").mkdir()
    Path("mine/file").touch()
    refused(f"prepare {typed}", message)


def test_of_texts_and_treebanks_in_a_directory_texts_are_read(
    seqtool: Run, refused: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    Path("mixed").mkdir()
    for name in ("train", "valid"):
        Path(f"mixed/{name}.txt").write_text("a b\n" * 40)
        Path(f"mixed/{name}.conllu").write_text(GOOD_TREE)
    assert seqtool("prepare", "mixed", "-o", "out").code == 0
    (note,) = caplog.messages
    assert note.startswith("mixed: 2 treebanks left out")
    assert "seqtool prepare mixed --column form" in note
    Path("ud").mkdir()  # as Universal Dependencies has it
    for name in ("LICENSE.txt", "README.md", "x-ud-train.txt"):
        Path(f"ud/{name}").write_text("a\n")
    Path("ud/x-ud-train.conllu").write_text(GOOD_TREE)
    assert "sentences" in seqtool("prepare", "ud").stdout
    # a licence is no text to count
    refused("ngram counts ud", "x-ud-train.conllu: is a treebank, not text")


@pytest.mark.parametrize("unit", ["word", "char"])
def test_a_backward_model_reads_what_its_corpus_was(
    seqtool: Run, refused: Callable[..., str], unit: str
) -> None:
    lines = ["abb cdd e", "cdd abb abb abb", "", "e cdd cdd abb e"] * 9
    turn = {"word": lambda line: " ".join(line.split()[::-1]), "char": lambda line: line[::-1]}
    Path("in").write_text("".join(f"{line}\n" for line in lines))
    Path("turned").write_text("".join(f"{turn[unit](line)}\n" for line in lines))
    for name, *words in (("in", "--reverse"), ("turned",)):
        ours = ("--valid", name, "--test", name, "--unit", unit, "-o", f"{name}.c", *words)
        assert seqtool("prepare", name, *ours).code == 0
        assert seqtool("ngram", "train", f"{name}.c", "--order", 3, "-o", f"{name}.m").code == 0
    for split in ("train", "test"):
        assert Path(f"in.c/{split}.bin").read_bytes() == Path(f"turned.c/{split}.bin").read_bytes()
    figures = [
        json.loads(seqtool("eval-ppl", text, "-m", model, "--json").stdout)["log10_probability"]
        for text, model in (("in", "in.m"), ("in.c", "in.m"), ("turned", "turned.m"))
    ]
    assert len(set(figures)) == 1
    prompts = {"in.m": "cdd abb", "turned.m": turn[unit]("cdd abb")}
    made = [
        seqtool("generate", "-m", name, "--seed", 1, "--prompt", prompt).stdout[:-1]
        for name, prompt in prompts.items()
    ]
    assert made[0].endswith("cdd abb")
    assert made[0] == turn[unit](made[1])
    refused("eval-ppl in -m in.m -m turned.m", "in.m reads lines from their ends")
    refused("eval-ppl turned.c -m in.m", "in the other direction")
    if unit == "char":
        refused("surprisal in -m in.m", "from the ends of lines")
        return
    tables = [seqtool("surprisal", text, "-m", f"{text}.m").stdout for text in ("in", "turned")]
    rows = [[line.split("\t") for line in table.splitlines()[1:]] for table in tables]
    assert [row[2] for row in rows[0]] == " ".join(lines).split()
    of_first = [[(row[2], row[5]) for row in each if row[0] == "1"] for each in rows]
    assert of_first[0] == of_first[1][::-1]
