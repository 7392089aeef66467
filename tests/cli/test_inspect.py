from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from seqtool.cli import inspect
from seqtool.core import checkpoint
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.queries import matches, wants

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


@pytest.fixture
def model(tmp_path: Path) -> Path:
    def fill(directory: Path) -> None:
        (directory / "weights.safetensors").write_bytes(bytes(2_500_000))
        (directory / "vocabulary.json").write_bytes(b"{}")

    checkpoint.save(tmp_path / "model", HEADER, "# A model\n", fill)
    return tmp_path / "model"


def test_model_is_shown(seqtool: Run, model: Path) -> None:
    result = seqtool("inspect", model)
    assert (result.code, result.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    for expected in (
        str(model),
        "kind neural-lm",
        "parameters 1,234,567",
        "size 2.5 MB",
        "made by seqtool train-lm --cell rhn",
        "valid_perplexity 98.7654",
        "split sentences tokens",
        "train 1,000 23,456",
        "valid 50 1,170",
        "뉴스.txt abc",
        "unit word",
        "lowercase no",
        "model.cell rhn",
        "model.tied yes",
        "training.rate 0.002",
        "weights.safetensors 2.5 MB",
        "vocabulary.json 2 bytes",
    ):
        assert expected in lines


def test_model_as_json(seqtool: Run, model: Path) -> None:
    result = seqtool("inspect", model, "--json")
    assert (result.code, result.stderr) == (0, "")
    shown = json.loads(result.stdout)
    assert shown["path"] == str(model)
    assert shown["bytes"] == 2_500_002
    assert {key: shown[key] for key in ("kind", "config", "scores", "data", "num_parameters")} == {
        "kind": HEADER.kind,
        "config": HEADER.config,
        "scores": HEADER.scores,
        "data": HEADER.data,
        "num_parameters": HEADER.num_parameters,
    }


def test_default_model_is_inspected(
    seqtool: Run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    (model.parent / "runs").mkdir()
    model.rename(model.parent / "runs" / "lm")
    result = seqtool("inspect")
    assert result.code == 0
    assert "runs/lm" in result.stderr


def test_damaged_model_is_an_error(seqtool: Run, model: Path) -> None:
    with (model / "weights.safetensors").open("r+b") as stream:
        stream.seek(1_000_000)
        stream.write(b"\x01")
    result = seqtool("inspect", model)
    assert (result.code, result.stdout) == (1, "")
    error, hint = result.stderr.splitlines()
    assert error.startswith(f"error: {model / 'weights.safetensors'}: damaged")
    assert hint.startswith("hint: ")


@pytest.mark.parametrize("name", ["nowhere", "folder", "file.txt"])
def test_no_model_is_two_lines(seqtool: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file.txt").touch()
    result = seqtool("inspect", tmp_path / name)
    assert (result.code, result.stdout) == (1, "")
    error, hint = result.stderr.splitlines()
    assert error.startswith(f"error: {tmp_path / name}: ")
    assert hint.startswith("hint: ")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    from seqtool.text.prepared import PrepareConfig, prepare

    (tmp_path / "text.txt").write_text("a b a\nb\n" * 50, encoding="utf-8")
    text, output = tmp_path / "text.txt", tmp_path / "corpus"
    prepare([text], output, PrepareConfig(lowercase=True), valid=text)
    return output


def test_prepared_corpus_is_shown(seqtool: Run, corpus: Path) -> None:
    result = seqtool("inspect", corpus)
    assert (result.code, result.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    # 50 times "a b a </s> b </s>": 6 tokens, 2 sentences, 8 bytes
    assert "train 300 100 400 0" in lines
    assert "kind prepared corpus" in lines
    assert "vocabulary_size 4" in lines
    assert "lowercase yes" in lines


def test_prepared_corpus_as_json(seqtool: Run, corpus: Path) -> None:
    shown = json.loads(seqtool("inspect", corpus, "--json").stdout)
    assert shown["kind"] == "prepared corpus"
    assert shown["vocabulary_size"] == 4  # a, b, <unk>, </s>
    assert shown["splits"]["train"]["tokens"] == 300


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


def test_words_are_shown_in_their_sentences(tmp_path: Path, seqtool: Run) -> None:
    path = tmp_path / "x.conllu"
    path.write_text(TREES)
    result = seqtool("inspect", path, "--where", "deprel=nsubj")
    blank = " " * 36
    assert result.stdout.splitlines() == [
        f"{'the ':>36}[dog]{' sees it.':<36}  first",
        f"{blank}[dogs]{' sleep':<36}  {path}:8",
    ]
    assert result.stderr == "2 words in 2 of 2 sentences\n"
    both = ("--where", "deprel=nsubj", "--where", "feats.Number=Plur", "--json")
    shown = json.loads(seqtool("inspect", path, *both).stdout)
    assert shown["where"] == {"deprel": "nsubj", "feats__Number": "Plur"}
    (word,) = shown["words"]
    assert (word["line"], word["sent_id"], word["form"], word["head"]) == (8, None, "dogs", 2)
    assert word["text"] == "dogs sleep"
    assert seqtool("inspect", path, "--where", "xpos=NN").stdout == ""


def test_long_sentences_are_cut_beside_the_word(tmp_path: Path, seqtool: Run) -> None:
    path = tmp_path / "x.conllu"
    words = ["语言"] * 30 + ["dog"] + ["x" * 50]
    rows = [f"{i}\t{w}\t_\tX\t_\t_\t_\t_\t_\t_" for i, w in enumerate(words, 1)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    (line,) = seqtool("inspect", path, "--where", "form=dog").stdout.splitlines()
    before, _, after = line.partition("[dog]")
    assert before.endswith("语言 语言 ")
    assert len(before) < 36  # characters that are two cells wide
    assert after.startswith(f" {'x' * 35}  {path}:31")


def test_a_line_fits_the_terminal() -> None:
    words = ["long"] * 30 + ["dog"] + ["语言"] * 30
    rows = [f"{i}\t{w}\t_\tX\t_\t_\t_\t_\t_\t_" for i, w in enumerate(words, 1)]
    text = "# sent_id = news-1\n" + "\n".join(rows) + "\n"
    (sentence,) = read_conllu(io.StringIO(text), check="columns")
    (match,) = matches(sentence, wants({"form": "dog"}))
    for width, wanted in ((60, 60), (80, 26 + 5 + 36 + 8), (120, 36 + 5 + 36 + 8)):
        line = inspect._line(match, width)
        assert cell_len(line) == wanted
        assert line.endswith("  news-1")
    line, place = inspect._line(match, 40).split("\n")
    assert cell_len(line) == 13 + 5 + 22
    assert place == "  news-1"
    assert inspect._line(match, None) == inspect._line(match, 120)


def test_a_value_that_no_word_has(tmp_path: Path, seqtool: Run) -> None:
    path = tmp_path / "x.conllu"
    path.write_text(TREES)
    for query, hint in (
        ("deprel=subj", "note: no word has deprel=subj: did you mean nsubj?"),
        ("upos=noun", "note: no word has upos=noun: did you mean NOUN?"),
        ("upos=9", "note: no word has upos=9: choose one of: DET, NOUN, PRON, PUNCT, VERB"),
        ("feats.Number=plur", "note: no word has feats.Number=plur: did you mean Plur?"),
    ):
        lines = seqtool("inspect", path, "--where", query).stderr.splitlines()
        assert lines == [hint, "0 words in 0 of 2 sentences"]
    # each has words, but none has both; and words may have any form
    for query in (("upos=DET", "deprel=nsubj"), ("form=cat",)):
        where = [text for one in query for text in ("--where", one)]
        assert "note" not in seqtool("inspect", path, *where).stderr


def test_words_that_are_written_together(tmp_path: Path, seqtool: Run) -> None:
    path = tmp_path / "x.conllu"
    row = "{}\t{}\t_\tX\t_\t_\t{}\t{}\t_\t_\n".format
    joined = "1-2\tdu" + "\t_" * 8 + "\n" + row(1, "de", 3, "a") + row(2, "le", 3, "a")
    path.write_text((joined + row(3, "pain", 0, "root") + "\n") * 2 + row(1, "du", 0, "root"))
    result = seqtool("inspect", path, "--where", "form=du")
    assert result.stderr.splitlines() == [
        "note: 2 multiword tokens are written du, and not counted here: the words are de + le, "
        "which --where form=de finds",
        "1 word in 1 of 3 sentences",
    ]
    assert "note" not in seqtool("inspect", path, "--where", "form=de").stderr


@pytest.mark.parametrize("command", ["inspect", "prepare"])
def test_a_directory_of_treebanks(tmp_path: Path, seqtool: Run, command: str) -> None:
    folder = tmp_path / "UD"
    folder.mkdir()
    for name in ("a.conllu", "b.conllu", "README.txt"):
        (folder / name).write_text(TREES if name.endswith("conllu") else "of trees\n")
    result = seqtool(command, folder)
    assert result.code == 0
    assert result.stdout.splitlines()[0].split() == ["sentences", "4"]
    shown = seqtool("inspect", folder, "--where", "upos=DET")
    assert shown.stderr == "2 words in 2 of 4 sentences\n"


def test_words_are_asked_of_treebanks_only(tmp_path: Path, seqtool: Run, model: Path) -> None:
    path = tmp_path / "x.conllu"
    path.write_text(TREES)
    for arguments, message in (
        ((model, "--where", "upos=X"), "--where is for treebanks"),
        ((path, "--where", "upos"), "'upos' asks for nothing"),
        ((path, "--where", "upo=X"), "upo is no column"),
    ):
        result = seqtool("inspect", *arguments)
        assert (result.code, result.stdout) == (1, "")
        assert message in result.stderr
        assert len(result.stderr.splitlines()) == 2


@pytest.mark.parametrize(
    "options",
    [
        ("--where", "upos=NOUN", "--strict"),
        ("--where", "upos=NOUN", "--plot", "a.svg"),
        ("--plot", "a.svg", "--strict"),
    ],
)
def test_options_that_exclude_each_other(
    tmp_path: Path, seqtool: Run, options: tuple[str, ...]
) -> None:
    path = tmp_path / "a.conllu"
    path.write_text("1\tYes\tyes\tNOUN\t_\t_\t0\troot\t_\t_\n\n")
    result = seqtool("inspect", path, *options)
    assert result.code == 1
    names = [option for option in options if option.startswith("--")]
    told = {f"error: {' and '.join(each)} exclude each other" for each in (names, names[::-1])}
    assert result.stderr.splitlines()[0] in told
    assert result.stdout == ""
