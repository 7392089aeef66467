"""`seqtool surprisal` as a user meets it."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from toy_models import UNIGRAM_ARPA, BigramModel, char_tokenizer, two_words

from seqtool.lm.mixture.cache import CacheModel
from seqtool.lm.mixture.model import MixedModel
from seqtool.lm.ngram.model import load_arpa

Run = Callable[..., Any]

# previous   <unk>  </s>   a     b     space
LETTERS = [
    [1 / 4, 1 / 4, 1 / 4, 1 / 4, 0],  # <unk>
    [0, 0, 1, 0, 0],  # </s>
    [0, 1 / 4, 1 / 4, 1 / 4, 1 / 4],  # a
    [0, 1 / 2, 1 / 8, 1 / 8, 1 / 4],  # b
    [0, 1 / 8, 1 / 2, 1 / 4, 1 / 8],  # space
    [0, 1 / 8, 1 / 4, 1 / 2, 1 / 8],  # <s>
]


@pytest.fixture(autouse=True)
def in_a_folder_with_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("ba  a\n\nb\n")
    Path("stimuli.csv").write_text(
        'id,condition,"the text",note\n1,x,b a,"say ""a"""\n\n2,"y\nz","b\nb",\n', newline=""
    )
    models = {
        "letters": BigramModel(char_tokenizer("ab "), np.array(LETTERS)),
        "words": two_words(),
        "learning": MixedModel([two_words(), CacheModel(two_words())]),
    }
    monkeypatch.setattr(
        "seqtool.lm.mixture.model.open_language_model", lambda path, **_: models[str(path)]
    )


def table(text: str, separator: str = "\t") -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, strict=True))


def test_a_row_per_word(seqtool: Run) -> None:
    result = seqtool("surprisal", "text.txt", "-m", "letters")
    assert result.code == 0
    assert result.stdout.splitlines() == [
        "sentence\tword_number\tword\tstart\tend\tsurprisal\toov\tpieces\tlength",
        "1\t1\tba\t0\t2\t5.000000\t0\t2\t2",
        "1\t2\ta\t4\t5\t6.000000\t0\t3\t1",
        "3\t1\tb\t0\t1\t1.415037\t0\t1\t1",  # 1/2, and that it ends: 3/4
    ]
    expected = "3 words in 3 lines, 0 unknown (0.00%); each line begins anew\n"
    assert result.stderr == expected


def test_the_state_is_carried_on_request(seqtool: Run) -> None:
    Path("text.txt").write_text("a\nb\n")
    anew = table(seqtool("surprisal", "text.txt", "-m", "words").stdout)
    carried = seqtool("surprisal", "text.txt", "-m", "words", "--carry-state")
    assert [row["surprisal"] for row in anew] == ["1.000000", "2.000000"]
    assert [row["surprisal"] for row in table(carried.stdout)] == ["1.000000", "2.000000"]
    assert carried.stderr.endswith("read on from line to line\n")
    Path("text.txt").write_text("b\na\n")
    anew = table(seqtool("surprisal", "text.txt", "-m", "words").stdout)
    carried = seqtool("surprisal", "text.txt", "-m", "words", "--carry-state")
    assert [row["surprisal"] for row in anew] == ["2.000000", "1.000000"]
    assert [row["surprisal"] for row in table(carried.stdout)] == ["2.000000", "3.000000"]


def test_stimuli_and_several_models(seqtool: Run) -> None:
    options = ("--text-column", "the text", "--item-column", "id", "--previous", 1, "--entropy")
    models = ("-m", "letters", "-m", "words", "-o", "out.csv")
    result = seqtool("surprisal", "stimuli.csv", *models, *options, "--line-ends")
    assert (result.code, result.stdout) == (0, "")
    rows = table(Path("out.csv").read_text(), ",")
    assert [*rows[0]] == [
        *("model", "item", "condition", "note", "sentence", "word_number", "word", "start", "end"),
        *("surprisal", "oov", "pieces", "length", "entropy", "surprisal_1", "length_1"),
    ]
    assert [(row["model"], row["item"], row["condition"], row["word"]) for row in rows] == [
        (model, *row)
        for model in ("letters", "words")
        for row in (
            *(("1", "x", "b"), ("1", "x", "a"), ("1", "x", "</s>")),
            *(("2", "y\nz", "b"), ("2", "y\nz", "b"), ("2", "y\nz", "</s>")),
        )
    ]
    assert [row["note"] for row in rows] == ['say "a"', 'say "a"', 'say "a"', "", "", ""] * 2
    assert {row["entropy"] for row in rows[:6]} == {""}  # of letters
    # the rows of <s> and b: 2 3/8 + 1/2 + 1/2, and 4 2/16 + 1/2 + 3/8 log2(8/3)
    assert [row["entropy"] for row in rows[6:8]] == ["1.750000", "1.530639"]
    assert [row["surprisal_1"] for row in rows[6:9]] == ["", "2.000000", "1.415037"]
    assert result.stderr.splitlines()[1].startswith("words: 4 words in 2 lines, 0 unknown")


def test_frequencies_of_a_text(seqtool: Run) -> None:
    Path("counted.txt").write_text("a a b\nA\n" + "b " * 6)
    result = seqtool("surprisal", "text.txt", "-m", "words", "--frequencies", "counted.txt")
    found = [row["log10_frequency"] for row in table(result.stdout)]
    assert found == ["", "-0.698970", "-0.154902"]  # no ba; a 2 of 10, b 7


def test_orders_of_ngrams(seqtool: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    Path("x.arpa").write_text(UNIGRAM_ARPA)
    result = seqtool("surprisal", "text.txt", "-m", "x.arpa", "--entropy")
    rows = table(result.stdout)
    assert [row["order"] for row in rows] == ["1", "1", "1"]
    probs = [0.2, 0.1, 0.4, 0.3]
    bits = -sum(p * np.log2(p) for p in probs)
    assert [float(row["entropy"]) for row in rows] == pytest.approx([bits] * 3, abs=1e-5)
    assert "log10_frequency" not in rows[0]  # an ARPA file has no counts
    told = "3 words in 3 lines, 1 unknown (33.33%)"
    assert result.stderr == f"{told}\n"  # it carries no state
    carried = seqtool("surprisal", "text.txt", "-m", "x.arpa", "--carry-state").stderr
    assert carried == f"{told}; each line begins anew: the model carries no state on\n"


def test_json(seqtool: Run) -> None:
    content = json.loads(seqtool("surprisal", "text.txt", "-m", "letters", "--json").stdout)
    assert content["models"] == [
        {"model": "letters", "unit": "char", "state": "reset", "lines": 3, "words": 3, "oov": 0}
    ]
    assert [row["word"] for row in content["rows"]] == ["ba", "a", "b"]
    assert content["rows"][0]["surprisal"] == pytest.approx(5)
    words = ("surprisal", "text.txt", "-m", "letters", "-m", "words", "-o", "x.tsv", "--json")
    content = json.loads(seqtool(*words).stdout)
    assert [*content] == ["models", "output"]
    assert len(Path("x.tsv").read_text().splitlines()) == 7


def test_a_pipe_is_read_where_no_text_is_named(seqtool_process: Run, tmp_path: Path) -> None:
    (tmp_path / "x.arpa").write_text(UNIGRAM_ARPA)
    result = seqtool_process("surprisal", "-m", "x.arpa", input=b"a b\nb\n", cwd=tmp_path)
    assert result.code == 0
    assert [(row["sentence"], row["word"]) for row in table(result.stdout)] == [
        *(("1", "a"), ("1", "b"), ("2", "b"))
    ]


def test_a_model_that_learns_is_refused_before_another_scores(seqtool: Run) -> None:
    models = ("-m", "words", "-m", "learning")
    result = seqtool("surprisal", "text.txt", *models)
    assert (result.code, result.stdout) == (1, "")
    assert result.stderr == (
        "error: the model learns from the text, so a line cannot begin anew\n"
        "hint: let it read the lines as one text: --carry-state\n"
    )
    assert seqtool("surprisal", "text.txt", *models, "--carry-state").code == 0


def test_stdin_for_several_models(seqtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"a\n\nb")))
    rows = table(seqtool("surprisal", "-", "-m", "words", "-m", "letters").stdout)
    assert [(row["model"], row["sentence"], row["word"]) for row in rows] == [
        (model, *row) for model in ("words", "letters") for row in (("1", "a"), ("3", "b"))
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.txt"], "error: none.txt: no such file"),
        (["stimuli.csv"], "error: stimuli.csv: is a table, so its column"),
        (["stimuli.csv", "--item-column", "id"], "error: --item-column needs --text-column"),
        (["stimuli.csv", "--text-column", "x"], "error: stimuli.csv:1: has no column 'x'"),
        (["stimuli.csv", "text.txt", "--text-column", "note"], "error: a table of stimuli"),
        (["x.jsonl", "--text-column", "text"], "error: x.jsonl: holds JSON Lines, not a table"),
        (["bad.csv", "--text-column", "a"], "error: bad.csv:3: 3 cells in this row, but 2"),
        (["open.csv", "--text-column", "a"], "error: open.csv:2: no table: unexpected end"),
        (["own.csv", "--text-column", "text"], "error: own.csv:1: has a column 'surprisal'"),
        (["text.txt", "-m", "words"], "error: words is given twice"),
        (["twice.csv", "--text-column", "a"], "error: twice.csv:1: two columns are named 'b'"),
        (["head.csv", "--text-column", "a"], "error: head.csv: has no rows"),
        (["marks.tsv", "--text-column", "a"], "error: marks.tsv:4: the text contains the special"),
        (["marks.txt"], "error: marks.txt:2: the text contains the special"),
        (
            ["stimuli.csv", "--text-column", "note", "--field", "note"],
            "error: --field note is of JSON Lines, but stimuli.csv is a table",
        ),
        (
            ["text.txt", "--frequencies", "stimuli.csv"],
            "error: stimuli.csv: is a table, but --frequencies counts the words of running text",
        ),
        (["-", "--frequencies", "-"], "error: stdin is named twice"),
        (["text.txt", "-o", "x.txt"], "error: x.txt has no suffix of a table"),
        (["text.txt", "-o", "none/x.tsv"], "error: none/x.tsv: the directory"),
    ],
)
def test_bad_input(seqtool: Run, arguments: list[str], message: str) -> None:
    Path("bad.csv").write_text("a,b\n1,2\n1,2,3\n")
    Path("open.csv").write_text('a,b\n"1,2\n')
    Path("own.csv").write_text("text,surprisal\na,1\n")
    Path("twice.csv").write_text("a,b,b\n1,2,3\n")
    Path("head.csv").write_text("a,b\n")
    Path("x.jsonl").write_text('{"text": "a b"}\n')
    Path("marks.tsv").write_text('a\tb\n"a\nb"\t1\n</s>\t2\n')
    Path("marks.txt").write_text("a\n</s>\n")
    before = sorted(Path().iterdir())
    result = seqtool("surprisal", *arguments, "-m", "words")
    assert (result.code, result.stdout) == (1, "")
    error, hint = result.stderr.splitlines()
    assert error.startswith(message)
    assert hint.startswith("hint: ")
    assert sorted(Path().iterdir()) == before


def test_the_text_is_not_replaced(seqtool: Run) -> None:
    before = Path("stimuli.csv").read_bytes()
    result = seqtool("surprisal", "stimuli.csv", "--text-column", "the text", "-o", "stimuli.csv")
    assert (result.code, Path("stimuli.csv").read_bytes()) == (1, before)
    assert result.stderr.startswith("error: stimuli.csv: is read, and would be replaced\n")
    Path("counted.jsonl").write_text('{"text": "the dog"}\n')
    before = Path("counted.jsonl").read_bytes()
    words = ("text.txt", "-m", "words", "--frequencies", "counted.jsonl", "-o", "counted.jsonl")
    result = seqtool("surprisal", *words)
    assert (result.code, Path("counted.jsonl").read_bytes()) == (1, before)
    assert result.stderr.startswith("error: counted.jsonl: is read, and would be replaced\n")


def test_entropy_of_pieces_is_refused(seqtool: Run) -> None:
    result = seqtool("surprisal", "text.txt", "-m", "letters", "--entropy")
    assert result.stderr.startswith("error: --entropy is of models of words")


STIMULI = "surprisal", "s.csv", "--text-column", "text"


def test_no_column_is_lost_to_that_of_the_item(seqtool: Run) -> None:
    Path("s.csv").write_text("subject,item,text\n7,3,a b\n")
    result = seqtool(*STIMULI, "--item-column", "subject", "-m", "letters")
    assert (result.code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: s.csv:1: has a column 'item', which is what the column")
    both = table(seqtool(*STIMULI, "-m", "letters").stdout)
    assert [(row["subject"], row["item"]) for row in both] == [("7", "3")] * 2
    named = table(seqtool(*STIMULI, "--item-column", "item", "-m", "letters").stdout)
    assert [(row["subject"], row["item"]) for row in named] == [("7", "3")] * 2


@pytest.mark.parametrize(("separator", "name"), [(";", "semicolons"), ("\t", "tabs")])
def test_another_separator_than_the_suffix_says(seqtool: Run, separator: str, name: str) -> None:
    rows = [["item", "text"], ["1", "a, b"], ["2", '"a ""b"""']]
    Path("s.csv").write_text("".join(separator.join(row) + "\n" for row in rows))
    result = seqtool(*STIMULI, "-m", "letters")
    assert result.code == 1
    assert f"the cells seem to be separated by {name}, where commas are read\n" in result.stderr


def test_stimuli_without_words_are_told(seqtool: Run) -> None:
    Path("s.csv").write_text("item,text\n1,a\n2,\n3, \n")
    result = seqtool(*STIMULI, "-m", "letters")
    assert [row["item"] for row in table(result.stdout)] == ["1"]
    expected = "note: 2 rows of s.csv without words, which the table leaves out; the first is in "
    assert result.stderr.endswith(f"{expected}line 3\n")
    # a no-break space is a word; and with line ends, each line has a row
    Path("s.csv").write_text("item,text\n1,a\n2,\u00a0\n3, \n")
    assert "1 row of s.csv without words" in seqtool(*STIMULI, "-m", "letters").stderr
    result = seqtool(*STIMULI, "-m", "letters", "--line-ends")
    assert [row["item"] for row in table(result.stdout)][-1] == "3"
    assert "without words" not in result.stderr


def test_many_unknown_words_are_told_with_the_reason(
    seqtool: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("words.arpa").write_text(UNIGRAM_ARPA)
    model = load_arpa(Path("words.arpa"))
    monkeypatch.setattr("seqtool.lm.mixture.model.open_language_model", lambda *_, **__: model)
    Path("cased.txt").write_text("A a a a\n" * 5)
    result = seqtool("surprisal", "cased.txt", "-m", "words.arpa")
    expected = "25.0% of the words are unknown to the model; 100% of them are known in lower case: "
    warning = f"warning: {expected}lower-case the text"
    assert result.stderr.splitlines()[1:] == [warning]
    assert seqtool("eval-ppl", "cased.txt", "-m", "words.arpa").stderr.splitlines() == [warning]
    Path("cased.txt").write_text("A a a a\n" + "a a a a\n" * 5)  # 1 of 24
    assert seqtool("surprisal", "cased.txt", "-m", "words.arpa").stderr.count("\n") == 1
