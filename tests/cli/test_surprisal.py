"""`seqtool surprisal` as a user meets it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_models import UNIGRAM_ARPA, BigramModel, char_tokenizer, two_words, use_toys

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
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("ba  a\n\nb\n")
    Path("stimuli.csv").write_text(
        'id,condition,"the text",note\n1,x,b a,"say ""a"""\n\n2,"y\nz","b\nb",\n', newline=""
    )
    Path("x.arpa").write_text(UNIGRAM_ARPA)
    models = {
        "letters": lambda: BigramModel(char_tokenizer("ab "), np.array(LETTERS)),
        "words": two_words,
        "learning": lambda: MixedModel([two_words(), CacheModel(two_words())]),
        "x.arpa": lambda: load_arpa(Path("x.arpa")),
    }
    use_toys(monkeypatch, models)


def table(text: str, separator: str = "\t") -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, strict=True))


def test_a_row_per_word(seqtool: Run) -> None:
    words = ("surprisal", "text.txt", "-m", "letters")
    result = seqtool(*words)
    assert result.code == 0
    assert result.stdout.splitlines() == [
        "sentence\tword_number\tword\tstart\tend\tsurprisal\toov\tpieces\tlength",
        "1\t1\tba\t0\t2\t5.000000\t0\t2\t2",
        "1\t2\ta\t4\t5\t6.000000\t0\t3\t1",
        "3\t1\tb\t0\t1\t1.415037\t0\t1\t1",  # 1/2, and that it ends: 3/4
    ]
    assert result.stderr == "3 words in 3 lines, 0 unknown (0.00%); each line begins anew\n"
    content = json.loads(seqtool(*words, "--json").stdout)
    assert content["models"] == [
        {"model": "letters", "unit": "char", "state": "reset", "lines": 3, "words": 3, "oov": 0}
    ]
    assert [row["word"] for row in content["rows"]] == ["ba", "a", "b"]
    both = json.loads(seqtool(*words, "-m", "words", "-o", "x.tsv", "--json").stdout)
    assert (both["output"], [*both]) == ("x.tsv", ["models", "output"])
    assert len(Path("x.tsv").read_text().splitlines()) == 7


@pytest.mark.parametrize(
    ("text", "anew", "carried"), [("a\nb\n", "1 2", "1 2"), ("b\na\n", "2 1", "2 3")]
)
def test_the_state_is_carried_on_request(seqtool: Run, text: str, anew: str, carried: str) -> None:
    Path("text.txt").write_text(text)
    for options, bits in (((), anew), (("--carry-state",), carried)):
        result = seqtool("surprisal", "text.txt", "-m", "words", *options)
        assert " ".join(f"{float(row['surprisal']):g}" for row in table(result.stdout)) == bits
    assert result.stderr.endswith("read on from line to line\n")
    # a model that learns begins anew nowhere
    words = ("surprisal", "text.txt", "-m", "words", "-m", "learning")
    refused, carried_on = seqtool(*words), seqtool(*words, "--carry-state")
    assert (refused.code, refused.stdout, carried_on.code) == (1, "", 0)


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


def test_frequencies_and_orders(seqtool: Run) -> None:
    Path("counted.txt").write_text("a a b\nA\n" + "b " * 6)
    result = seqtool("surprisal", "text.txt", "-m", "words", "--frequencies", "counted.txt")
    frequencies = [row["log10_frequency"] for row in table(result.stdout)]
    assert frequencies == ["", "-0.698970", "-0.154902"]  # no ba; a 2 of 10, b 7
    result = seqtool("surprisal", "text.txt", "-m", "x.arpa", "--entropy", "--carry-state")
    rows = table(result.stdout)
    assert [row["order"] for row in rows] == ["1", "1", "1"]
    assert "entropy" in rows[0]
    assert "log10_frequency" not in rows[0]  # an ARPA file has no counts
    # it carries no state
    assert result.stderr == "3 words in 3 lines, 1 unknown (33.33%); each line begins anew\n"


def test_stdin(seqtool_process: Run, tmp_path: Path) -> None:
    (tmp_path / "y.arpa").write_text(UNIGRAM_ARPA)
    one = seqtool_process("surprisal", "-m", "x.arpa", input=b"a\n\nb", cwd=tmp_path)
    assert [(row["sentence"], row["word"]) for row in table(one.stdout)] == [("1", "a"), ("3", "b")]
    two = seqtool_process(
        "surprisal", "-", "-m", "x.arpa", "-m", "y.arpa", input=b"a\n\nb", cwd=tmp_path
    )
    assert [(row["model"], row["word"]) for row in table(two.stdout)] == [
        *(("x.arpa", "a"), ("x.arpa", "b"), ("y.arpa", "a"), ("y.arpa", "b"))
    ]


def test_stimuli_without_words_are_noted(seqtool: Run) -> None:
    words = ("surprisal", "s.csv", "--text-column", "text", "-m", "letters")
    Path("s.csv").write_text("item,text\n1,a\n2,\n3, \n")
    result = seqtool(*words)
    assert [row["item"] for row in table(result.stdout)] == ["1"]
    assert "2 rows of s.csv without words" in result.stderr
    result = seqtool(*words, "--line-ends")  # each line has a row
    assert [row["item"] for row in table(result.stdout)][-1] == "3"
    assert "without words" not in result.stderr


PRINTED = """item;c;critical;text
1;x;b;"a-b, (b). :-) É, #a"
1;y;a;b a
2;x;2;b b
2;y;1-2;a b a
"""
A, B, UNK = 1.321928, 1.736966, 3.321928  # bits of 0.4, 0.3 and 0.1


def bits_of(rows: list[dict[str, str]], name: str = "surprisal") -> Any:
    return pytest.approx([float(row[name]) for row in rows], abs=1e-5)


def test_printed_words_are_sums_of_their_parts(seqtool: Run) -> None:
    Path("p.csv").write_text(PRINTED, encoding="utf-8")
    words = ("surprisal", "p.csv", "--text-column", "text", "-m", "x.arpa", "--tokenize")
    rows = table(seqtool(*words, "--previous", 1).stdout)[:5]
    assert [[row["word"], row["start"], row["pieces"], row["oov"]] for row in rows] == [
        *(["a-b", "0", "3", "1"], ["b", "6", "1", "0"], [":-)", "10", "3", "1"]),
        *(["É", "14", "1", "1"], ["#a", "17", "2", "1"]),
    ]
    bits, apart = [A + UNK + B, B, 3 * UNK, UNK, UNK + A], [UNK, 3 * UNK, 0, UNK, 0]
    assert bits == bits_of(rows)
    assert apart == bits_of(rows, "punctuation")
    assert (rows[1]["surprisal_1"], rows[0]["c"]) == (rows[0]["surprisal"], "x")
    rows = table(seqtool(*words, "--punctuation", "with", "--line-ends").stdout)[:6]
    assert " ".join(row["word"] for row in rows) == "a-b, (b). :-) É, #a </s>"
    assert [*np.add(bits, apart), -np.log2(0.2)] == bits_of(rows)


def test_critical_regions_by_condition(seqtool: Run) -> None:
    Path("p.csv").write_text(PRINTED, encoding="utf-8")
    words = ("surprisal", "p.csv", "--text-column", "text", "--tokenize", "-m", "x.arpa")
    words += ("--item-column", "item", "--critical", "critical", "--by", "c", "-o", "out.csv")
    (model,) = json.loads(seqtool(*words, "--json").stdout)["models"]
    x, y = model["conditions"]
    assert (x["num"], x["mean"], x["difference"]) == (2, pytest.approx(B, abs=1e-5), None)
    # x: b, b; y: a, and a and b. Of Student's t with one degree of freedom, 95% are within 12.7062,
    # and 2/pi arctan(t) within t
    mean, error = (A - B + A) / 2, (A - (A - B)) / 2
    assert y["difference"]["mean"] == pytest.approx(mean, abs=1e-5)
    ends = [mean - 12.7062 * error, mean + 12.7062 * error]
    assert y["difference"]["interval"] == pytest.approx(ends, abs=1e-3)
    share = 2 / np.pi * np.arctan(mean / error)
    assert y["difference"]["p_value"] == pytest.approx(1 - share, abs=1e-5)
    rows = table(Path("out.csv").read_text(encoding="utf-8"), ",")
    assert [row["word"] for row in rows if row["in_region"] == "1"] == ["b", "a", "b", "a", "b"]
    shown = seqtool(*words).stdout.splitlines()
    assert [line.split()[:3] for line in shown[2:]] == [["x", "2", "1.737"], ["y", "2", "2.190"]]


def test_unknown_critical_words_are_refused(refused: Callable[..., str], seqtool: Run) -> None:
    Path("u.csv").write_text("item,critical,text\n1,a,a dog\n2,dog,a dog\n")
    words = "surprisal u.csv --text-column text --critical critical -m words"
    refused(words, "u.csv:3: 'dog' of the critical region")
    assert len(table(seqtool(*words.split(), "--allow-unknown").stdout)) == 4


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("none.txt", "none.txt: no such file"),
        ("stimuli.csv", "stimuli.csv: is a table, so its column"),
        ("text.txt --item-column id", "--item-column needs --text-column"),
        ("stimuli.csv --text-column x", "stimuli.csv:1: has no column 'x'"),
        ("stimuli.csv text.txt --text-column note", "a table of stimuli is read alone"),
        ("bad.csv --text-column a", "bad.csv:3: 3 cells in this row, but 2"),
        ("text.txt --tokenize", "--tokenize needs --text-column"),
        ("regions.csv --text-column text --by c", "--by compares"),
        ("regions.csv --text-column text --critical c", "regions.csv:2: the critical region 'a'"),
        ("text.txt -m words", "words is given twice"),
        ("marks.tsv --text-column a", "marks.tsv:4: the text contains the special"),
        ("- --frequencies -", "stdin is named twice"),
        ("text.txt -o none/x.tsv", "none/x.tsv: the directory"),
        ("text.txt --frequencies x.jsonl -o x.jsonl", "x.jsonl: is read, and would be replaced"),
    ],
)
def test_mistakes(refused: Callable[..., str], typed: str, words: str) -> None:
    files = {
        "bad.csv": "a,b\n1,2\n1,2,3\n",
        "regions.csv": "item,c,text\n1,a,a b a\n",
        "x.jsonl": '{"text": "a b"}\n',
        "marks.tsv": 'a\tb\n"a\nb"\t1\n</s>\t2\n',
    }
    for name, content in files.items():
        Path(name).write_text(content)
    refused(f"surprisal {typed} -m words", words)
