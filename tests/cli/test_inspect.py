from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lm.ngram.random_tables import some_table

from seqtool.core import checkpoint
from seqtool.core.vocabulary import Vocabulary
from seqtool.lm.ngram.arpa import write_arpa
from seqtool.lm.ngram.model import NgramModel, save_model
from seqtool.text.tokenizers import WordTokenizer

Run = Callable[..., Any]

HEADER = checkpoint.Header(
    kind="neural-lm",
    config={"model": {"cell": "rhn", "depth": 5, "tied": True}, "training": {"rate": 0.002}},
    tokenizer={"unit": "word", "lowercase": False},
    scores={"valid_perplexity": 98.7654321},
    data={
        "unit": "word",
        "splits": {
            "train": {"sentences": 1000, "tokens": 23456},
            "valid": {"sentences": 50, "tokens": 1170},
        },
        "sources": [{"path": "뉴스.txt", "sha256": "abc"}],
    },
    command="seqtool train-lm --cell rhn",
    num_parameters=1234567,
)
VOCABULARY = Vocabulary(["<unk>", "</s>", "a", "b"])
STATISTICS = [
    {"order": 1, "counted": 5, "singletons": 1, "discounts": [0.5, 1.0, 1.5], "fallback": True},
    {"order": 2, "counted": 2, "singletons": 0, "discounts": [0.25, 0.75, 1.25], "fallback": False},
    {"order": 3, "counted": 1002, "singletons": 900, "discounts": [], "fallback": False},
]
# int32 and float32 numbers per order: 5 probabilities and backoffs; 2 words, 6 begins, 2 and 2;
# 2 words, 3 begins, 2 probabilities
BYTES = [4 * 10, 4 * 12, 4 * 7]
TREES = """\
# sent_id = first
1	the	the	DET	_	_	2	det	_	_
2	dog	dog	NOUN	_	Number=Sing	3	nsubj	_	_
3	sees	see	VERB	_	_	0	root	_	_
4	it	it	PRON	_	Case=Acc	3	obj	_	SpaceAfter=No
5	.	.	PUNCT	_	_	3	punct	_	_

1	dogs	dog	NOUN	_	Number=Plur	2	nsubj	_	_
2	sleep	sleep	VERB	_	_	0	root	_	_

"""


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    def fill(directory: Path) -> None:
        (directory / "weights.safetensors").write_bytes(bytes(2_500_000))
        (directory / "vocabulary.json").write_bytes(b"{}")

    checkpoint.save(tmp_path / "model", HEADER, "# A model\n", fill)
    return tmp_path / "model"


@pytest.fixture
def ngrams(tmp_path: Path) -> Path:
    save_model(
        tmp_path / "ngrams",
        NgramModel(some_table(), WordTokenizer(VOCABULARY)),
        config={"order": 3, "prune": [0, 0, 1]},
        scores={"valid_perplexity": 12.5},
        command="seqtool ngram train --order 3",
        statistics=STATISTICS,
    )
    return tmp_path / "ngrams"


@pytest.fixture
def trees(tmp_path: Path) -> Path:
    path = tmp_path / "x.conllu"
    path.write_text(TREES)
    return path


def test_a_model(seqtool: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = seqtool("inspect", model)
    assert (result.code, result.stderr) == (0, "")
    shown = lines(result.stdout)
    for expected in (
        *("kind neural-lm", "parameters 1,234,567", "size 2.5 MB", "valid_perplexity 98.7654"),
        *("made by seqtool train-lm --cell rhn", "train 1,000 23,456", "뉴스.txt abc"),
        *("lowercase no", "model.cell rhn", "training.rate 0.002", "weights.safetensors 2.5 MB"),
    ):
        assert expected in shown
    content = json.loads(seqtool("inspect", model, "--json").stdout)
    assert (content["path"], content["bytes"]) == (str(model), 2_500_002)
    for name in ("kind", "config", "scores", "data", "num_parameters"):
        assert content[name] == getattr(HEADER, name)
    monkeypatch.chdir(model.parent)
    Path("runs").mkdir()
    model.rename("runs/lm")
    result = seqtool("inspect")
    assert (result.code, "runs/lm" in result.stderr) == (0, True)


def test_an_ngram_model(seqtool: Run, ngrams: Path, tmp_path: Path) -> None:
    shown = lines(seqtool("inspect", ngrams).stdout)
    for expected in (
        "order n-grams pruned singletons discounts size up to here",
        "1 5 0 1 0.5000 1.0000 1.5000 (fallback) 40 bytes 40 bytes",
        "3 2 1,000 900 28 bytes 116 bytes",
        "prune 0, 0, 1",
    ):
        assert expected in shown
    content = json.loads(seqtool("inspect", ngrams, "--json").stdout)
    assert [order["bytes"] for order in content["orders"]] == BYTES
    assert content["orders"][2] == {
        **{"order": 3, "ngrams": 2, "pruned": 1000, "singletons": 900, "discounts": []},
        **{"fallback": False, "bytes": BYTES[2], "total_bytes": sum(BYTES)},
    }
    output = tmp_path / "sizes.svg"
    assert seqtool("inspect", ngrams, "--plot", output).stdout == f"{output}\n"
    assert "all orders up to it" in output.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["m.arpa", "m.arpa.gz"])
def test_an_arpa_file(seqtool: Run, tmp_path: Path, name: str) -> None:
    write_arpa(some_table(), VOCABULARY, tmp_path / name)
    shown = lines(seqtool("inspect", tmp_path / name).stdout)
    for expected in ("kind ARPA file", "vocabulary 4", "3 2 28 bytes 116 bytes"):
        assert expected in shown
    content = json.loads(seqtool("inspect", tmp_path / name, "--json").stdout)
    assert content["bytes"] == (tmp_path / name).stat().st_size
    assert [order["bytes"] for order in content["orders"]] == BYTES


def test_a_prepared_corpus(seqtool: Run, tmp_path: Path) -> None:
    text, corpus = tmp_path / "text.txt", tmp_path / "corpus"
    text.write_text("a b a\nb\n" * 50, encoding="utf-8")
    assert seqtool("prepare", text, "--valid", text, "--lowercase", "-o", corpus).code == 0
    shown = lines(seqtool("inspect", corpus).stdout)
    # 50 times "a b a </s> b </s>": 6 tokens, 2 sentences, 8 bytes
    for expected in ("train 300 100 400 0", "kind prepared corpus", "lowercase yes"):
        assert expected in shown
    content = json.loads(seqtool("inspect", corpus, "--json").stdout)
    assert content["vocabulary_size"] == 4  # a, b, <unk>, </s>
    assert content["splits"]["train"]["tokens"] == 300


def test_words_are_shown_in_their_sentences(trees: Path, seqtool: Run) -> None:
    result = seqtool("inspect", trees, "--where", "deprel=nsubj")
    assert result.stdout.splitlines() == [
        f"{'the ':>30}[dog]{' sees it.':<30}  first",
        f"{'':30}[dogs]{' sleep':<30}  {trees}:8",
    ]
    assert result.stderr == "2 words in 2 of 2 sentences\n"
    both = ("--where", "deprel=nsubj", "--where", "feats.Number=Plur", "--json")
    shown = json.loads(seqtool("inspect", trees, *both).stdout)
    assert shown["where"] == {"deprel": "nsubj", "feats__Number": "Plur"}
    (word,) = shown["words"]
    assert (word["line"], word["sent_id"], word["form"], word["head"]) == (8, None, "dogs", 2)
    assert word["text"] == "dogs sleep"


@pytest.mark.parametrize(
    ("query", "note"),
    [
        ("deprel=subj", "did you mean nsubj?"),
        ("upos=9", "choose one of: DET, NOUN, PRON, PUNCT, VERB"),
        ("feats.Number=plur", "did you mean Plur?"),
        ("form=cat", ""),
    ],
)
def test_a_value_that_no_word_has(trees: Path, seqtool: Run, query: str, note: str) -> None:
    *notes, last = seqtool("inspect", trees, "--where", query).stderr.splitlines()
    assert last == "0 words in 0 of 2 sentences"
    assert [note in line for line in notes] == [True] * bool(note)


@pytest.mark.parametrize("command", ["inspect", "prepare"])
def test_a_directory_of_treebanks(tmp_path: Path, seqtool: Run, command: str) -> None:
    for name in ("a.conllu", "b.conllu", "README.txt"):
        (tmp_path / name).write_text(TREES if name.endswith("conllu") else "of trees\n")
    result = seqtool(command, tmp_path)
    assert result.code == 0
    assert result.stdout.splitlines()[0].split() == ["sentences", "4"]
    shown = seqtool("inspect", tmp_path, "--where", "upos=DET")
    assert shown.stderr == "2 words in 2 of 4 sentences\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("nowhere", "no such model"),
        ("folder", "folder: "),
        ("file.txt", "file.txt: "),
        ("ngrams", "weights.safetensors: damaged"),
        ("model --where upos=X", "--where is for treebanks"),
        ("x.conllu --where upos", "'upos' asks for nothing"),
        ("x.conllu --where upos=NOUN --strict", "exclude each other"),
    ],
)
@pytest.mark.usefixtures("model", "trees")
def test_mistakes(words: str, message: str, refused: Callable[..., str], ngrams: Path) -> None:
    Path("folder").mkdir()
    Path("file.txt").touch()
    weights = ngrams / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x07")
    refused(f"inspect {words}", message)
