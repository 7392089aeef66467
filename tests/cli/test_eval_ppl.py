"""`seqtool eval-ppl` as a user meets it."""

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
from toy_models import UNIGRAM_ARPA, two_words

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def in_a_folder_with_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four sentences: 18 bits over 10 tokens and 13 bytes, 15 bits without the unknown z."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("a b\nb\n\na z b\n")


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Let every model be the toy; gives what each was opened with."""
    opened = []

    def open_toy(path: Path, **options: Any) -> Any:
        opened.append({"path": str(path), **options})
        return two_words()

    monkeypatch.setattr("seqtool.lm.mixture.model.open_language_model", open_toy)
    return opened


def test_figures_are_shown(seqtool: Run, toy: list[dict[str, Any]]) -> None:
    result = seqtool("eval-ppl", "text.txt", "-m", "toy", "--device", "cpu", "--threads", "1")
    assert (result.code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[:-1] == [
        "text               text.txt: 4 sentences, 10 tokens with </s>",
        "model              toy (toy-bigram)",
        "state              carried from sentence to sentence",
        "vocabulary         4 words",
        "unknown words      1 of 6 (16.67%)",
        "perplexity         3.48",  # 2 ** 1.8
        "  without unknown  3.17",  # 2 ** (15 / 9)
        "bits per token     1.8000",
        "bits per byte      1.3846",  # 18 / 13
        "log10 probability  -5.42",  # 18 log10 2
    ]
    assert lines[-1].startswith("seconds ")
    assert toy == [{"path": "toy", "device": "cpu", "threads": 1}]


@pytest.mark.usefixtures("toy")
def test_json(seqtool: Run) -> None:
    result = seqtool("eval-ppl", "text.txt", "-m", "toy", "--json", "--reset-state")
    assert (result.code, result.stderr) == (0, "")
    content = json.loads(result.stdout)
    assert content["perplexity"] == pytest.approx(2**1.6)
    assert content["tokens"] == 10
    assert content["state"] == "reset"


@pytest.mark.usefixtures("toy")
def test_stdin_and_a_table_on_stdout(seqtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = SimpleNamespace(buffer=io.BytesIO(b"a b\n"))
    monkeypatch.setattr(sys, "stdin", stdin)
    result = seqtool("eval-ppl", "-", "-m", "toy", "--per-token", "-")
    assert result.code == 0
    assert result.stdout.splitlines() == [
        "sentence\ttoken\tsurprisal\toov\tprevious",
        "1\ta\t1.000000\t0\t4",
        "1\tb\t1.000000\t0\t2",
        "1\t</s>\t1.000000\t0\t3",
    ]
    assert "perplexity         2.00" in result.stderr.splitlines()


@pytest.mark.usefixtures("toy")
def test_tables_in_files(seqtool: Run) -> None:
    result = seqtool(
        "eval-ppl",
        "text.txt",
        "-m",
        "toy",
        "--json",
        "--per-token",
        "tokens.tsv",
        "--per-sentence",
        "sentences.tsv",
    )
    assert result.code == 0
    assert len(Path("tokens.tsv").read_text().splitlines()) == 11
    assert len(Path("sentences.tsv").read_text().splitlines()) == 5
    before = Path("tokens.tsv").read_bytes()
    for option in ("--per-token", "--per-sentence"):
        result = seqtool("eval-ppl", "tokens.tsv", "-m", "toy", option, "tokens.tsv")
        assert (result.code, Path("tokens.tsv").read_bytes()) == (1, before)
        assert "error: tokens.tsv: is read, and would be replaced" in result.stderr


@pytest.mark.usefixtures("toy")
def test_a_row_does_not_depend_on_the_lines_before_it(seqtool: Run) -> None:
    Path("turned.txt").write_text("a z b\n\nb\na b\n")
    rows = {}
    for name in ("text", "turned"):
        table = f"{name}.csv"
        result = seqtool("eval-ppl", f"{name}.txt", "-m", "toy", "--json", "--per-sentence", table)
        assert "each sentence begins anew" in result.stderr
        content = json.loads(result.stdout)
        assert content["state"] == "reset"
        assert content["perplexity"] == pytest.approx(2**1.6)  # of what the table has
        rows[name] = [line.split(",")[1:] for line in Path(table).read_text().splitlines()[1:]]
    assert rows["text"] == rows["turned"][::-1]
    carried = ("eval-ppl", "text.txt", "-m", "toy", "--per-sentence", "x.csv", "--carry-state")
    result = seqtool(*carried)
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert "state              carried from sentence to sentence" in lines
    assert "bits per token     1.8000" in lines
    both = seqtool(*carried, "--reset-state")
    assert both.stderr.startswith("error: --reset-state and --carry-state contradict")


def test_the_default_model(seqtool: Run, toy: list[dict[str, Any]]) -> None:
    Path("runs/lm").mkdir(parents=True)
    Path("runs/lm/model.json").write_text("{}")
    result = seqtool("eval-ppl", "text.txt")
    assert result.code == 0
    assert result.stderr == "no model given: using runs/lm\n"
    assert [options["path"] for options in toy] == ["runs/lm"]


def test_the_default_model_may_be_one_of_ngrams(seqtool: Run, toy: list[dict[str, Any]]) -> None:
    Path("runs/ngram").mkdir(parents=True)
    Path("runs/ngram/model.json").write_text("{}")
    assert seqtool("eval-ppl", "text.txt").stderr == "no model given: using runs/ngram\n"
    Path("runs/lm").mkdir()
    Path("runs/lm/model.json").write_text("{}")
    assert seqtool("generate", "--seed", "1").stderr == "no model given: using runs/lm\n"
    assert [options["path"] for options in toy] == ["runs/ngram", "runs/lm"]


def test_no_model(seqtool: Run) -> None:
    result = seqtool("eval-ppl", "text.txt")
    assert (result.code, result.stdout) == (1, "")
    error, hint = result.stderr.splitlines()
    assert error.startswith("error: ")
    assert "`seqtool train-lm`" in hint


@pytest.mark.usefixtures("toy")
def test_a_text_of_the_sample_has_its_truth(seqtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    truth = SimpleNamespace(log10_probability=-6.0)
    monkeypatch.setattr("seqtool.text.datasets.true_perplexity", lambda _: truth)
    result = seqtool("eval-ppl", "text.txt", "-m", "toy")
    assert result.code == 0
    lines = result.stdout.splitlines()
    # 10 ** (6 / 10), and 6 log2(10) / 13
    assert lines[lines.index("perplexity         3.48") + 2] == "  of the grammar   3.98"
    assert lines[lines.index("bits per byte      1.3846") + 1] == "  of the grammar   1.5332"
    (note,) = result.stderr.splitlines()
    assert note.startswith("note: ")
    assert "<unk>" in note  # it reads a word as unknown, so the figures do not compare


@pytest.mark.usefixtures("toy")
def test_better_than_the_truth_is_remarked(seqtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("known.txt").write_text("a b\n")
    truth = SimpleNamespace(log10_probability=-1.0)
    monkeypatch.setattr("seqtool.text.datasets.true_perplexity", lambda _: truth)
    result = seqtool("eval-ppl", "known.txt", "-m", "toy")  # 3 bits: -0.9
    assert "has seen this text" in result.stderr


def test_a_word_without_probability(seqtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    model = two_words()
    model.log_table[:, 3] = float("-inf")
    monkeypatch.setattr("seqtool.lm.mixture.model.open_language_model", lambda *_, **__: model)
    result = seqtool("eval-ppl", "text.txt", "-m", "toy")
    assert result.code == 0
    assert "perplexity         inf" in result.stdout.splitlines()
    assert "3 tokens have no probability" in result.stderr
    assert (
        json.loads(seqtool("eval-ppl", "text.txt", "-m", "toy", "--json").stdout)["perplexity"]
        is None
    )


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.txt"], "error: none.txt: no such file"),
        (["bad.txt"], "error: bad.txt:2: not UTF-8 at byte 2"),
        (["empty.txt"], "error: empty.txt: the file is empty"),
        (["text.txt", "--per-token", "-", "--json"], "error: --json and a table"),
        (["text.txt", "--per-token", "x", "--per-sentence", "x"], "error: --per-token and"),
        (["text.txt", "--per-token", "x.txt"], "error: x.txt has no suffix of a table"),
        (["text.txt", "--per-token", "no/x.tsv"], "error: no/x.tsv: the directory"),
        (["text.txt", "--split", "test"], "error: --split test needs a prepared corpus"),
        (
            ["text.txt", "--engine=spark", "--per-token=x.parquet", "--per-sentence=y.parquet"],
            "error: --engine spark writes one table",
        ),
    ],
)
def test_bad_input(seqtool: Run, arguments: list[str], message: str) -> None:
    Path("bad.txt").write_bytes(b"a\n\xff\n")
    Path("empty.txt").touch()
    before = sorted(Path().iterdir())
    result = seqtool("eval-ppl", *arguments, "-m", "toy")
    assert (result.code, result.stdout) == (1, "")
    error, hint = result.stderr.splitlines()
    assert error.startswith(message)
    assert hint.startswith("hint: ")
    assert sorted(Path().iterdir()) == before


def test_a_directory_that_is_no_model(seqtool: Run) -> None:
    Path("folder").mkdir()
    result = seqtool("eval-ppl", "text.txt", "-m", "folder")
    assert (result.code, result.stdout) == (1, "")
    error, hint = result.stderr.splitlines()
    assert error.startswith("error: folder")
    assert hint.startswith("hint: ")


@pytest.mark.parametrize("has_unknown", [False, True])
def test_an_arpa_file_without_the_unknown_word(
    seqtool: Run, tmp_path: Path, has_unknown: bool
) -> None:
    words = ["-0.5\t<s>", "-0.5\t</s>", "-0.5\ta", *(["-1\t<unk>"] if has_unknown else [])]
    lines = ["\\data\\", f"ngram 1={len(words)}", "", "\\1-grams:", *words, "", "\\end\\", ""]
    (tmp_path / "x.arpa").write_text("\n".join(lines))
    for text, is_told in (("a", False), ("a b", not has_unknown)):
        (tmp_path / "x.txt").write_text(f"{text}\n")
        result = seqtool("eval-ppl", tmp_path / "x.txt", "-m", tmp_path / "x.arpa")
        assert result.code == 0
        assert ("from an ARPA file without <unk>" in result.stderr) is is_told


def test_a_table_is_told_to_be_read_as_text(seqtool: Run, tmp_path: Path) -> None:
    (tmp_path / "x.arpa").write_text(UNIGRAM_ARPA)
    for name, is_told in (("x.txt", False), ("x.csv", True), ("x.tsv.gz", True)):
        content = b"item,text\n1,a b\n"
        (tmp_path / name).write_bytes(gzip.compress(content) if "gz" in name else content)
        result = seqtool("eval-ppl", tmp_path / name, "-m", tmp_path / "x.arpa")
        assert result.code == 0
        assert ("surprisal --text-column NAME" in result.stderr) is is_told
