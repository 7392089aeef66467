"""`seqtool ngram prune` and `mix`, and what else an n-gram model is made into."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.test_ngram import two_lines

from seqtool.core import checkpoint

Run = Callable[..., Any]
TEXT = "the dog sleeps\nthe cat sees the dog\na dog sees a cat\n" * 9 + "the owl sleeps\n"


@pytest.fixture(autouse=True)
def with_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seqtool: Run) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(TEXT, encoding="utf-8")
    assert seqtool("ngram", "train", "text.txt", "--order", 3, "-o", "m").code == 0


def perplexity(seqtool: Run, model: str) -> float:
    answer = json.loads(seqtool("eval-ppl", "text.txt", "-m", model, "--json").stdout)
    return float(answer["perplexity"])


def test_a_pruned_model(seqtool: Run) -> None:
    words = ("ngram", "prune", "m", "--threshold", 1e-3, "-o", "p", "--arpa", "p.arpa")
    result = seqtool(*words)
    assert (result.code, result.stdout) == (0, "p\n")
    assert result.stderr.splitlines()[-1] == "ARPA file: p.arpa"
    old, new = (checkpoint.read_header(name) for name in ("m", "p"))
    sizes = [order["ngrams"] for order in new.statistics["orders"]]
    assert 0 < sum(sizes) < sum(order["ngrams"] for order in old.statistics["orders"])
    assert new.config == {**old.config, "prune_entropy": 1e-3}
    assert perplexity(seqtool, "p") == pytest.approx(perplexity(seqtool, "p.arpa"), rel=1e-5)
    # the same at once
    words = ("text.txt", "--order", 3, "--prune-entropy", 1e-3, "-o", "q", "--json")
    answer = json.loads(seqtool("ngram", "train", *words).stdout)
    assert [order["ngrams"] for order in answer["orders"]] == sizes
    assert (Path("q") / "weights.safetensors").read_bytes() == (
        Path("p") / "weights.safetensors"
    ).read_bytes()
    answer = json.loads(
        seqtool("ngram", "prune", "p.arpa", "--threshold", 0.5, "-o", "r", "--json").stdout
    )
    assert (answer["order"], answer["ngrams"][1:]) == (1, [0, 0])


def test_what_is_not_pruned(seqtool: Run) -> None:
    words = ("ngram", "prune", "m", "-o")
    assert "the threshold is 2, but" in two_lines(seqtool(*words, "p", "--threshold", 2))[0]
    assert two_lines(seqtool(*words, "m"))[0] == "error: m: exists already"
    assert "no such model" in two_lines(seqtool("ngram", "prune", "no", "-o", "p"))[0]
    error, _ = two_lines(seqtool(*words, "p", "--arpa", "no/x.arpa"))
    assert error == "error: no/x.arpa: the directory to write to is not there"
    seqtool("ngram", "export", "m", "m.arpa")
    before = Path("m.arpa").read_bytes()
    for command in (
        ("ngram", "prune", "m.arpa", "-o", "p", "--arpa", "m.arpa"),
        ("ngram", "mix", "m", "m.arpa", "-o", "p", "--arpa", "m.arpa"),
        ("ngram", "train", "m.arpa", "-o", "p", "--arpa", "m.arpa"),
    ):
        assert two_lines(seqtool(*command))[0] == "error: m.arpa: is read, and would be replaced"
    assert Path("m.arpa").read_bytes() == before
    assert not Path("p").exists()


@pytest.mark.parametrize(
    "command",
    [
        "mix m m.arpa --tune read.tsv -o p --arpa read.tsv",
        "train text.txt --vocab read.tsv -o p --arpa read.tsv",
        "train text.txt --limit-vocab read.tsv -o p --arpa read.tsv",
        "classes text.txt --vocab read.tsv --num 2 -o read.tsv",
    ],
)
def test_what_an_option_reads_is_not_replaced(seqtool: Run, command: str) -> None:
    seqtool("ngram", "export", "m", "m.arpa")
    Path("read.tsv").write_text("dog\ncat\nthe\n")
    before = Path("read.tsv").read_bytes()
    error, _ = two_lines(seqtool("ngram", *command.split()))
    assert error == "error: read.tsv: is read, and would be replaced"
    assert Path("read.tsv").read_bytes() == before
    assert not Path("p").exists()


def test_a_pruned_model_knows_its_held_out_text(seqtool: Run) -> None:
    Path("texts").mkdir()
    for name in ("train", "valid"):
        Path(f"texts/{name}.txt").write_text(TEXT, encoding="utf-8")
    seqtool("prepare", "texts", "-o", "corpus")
    for source in ("texts", "corpus"):
        assert seqtool("ngram", "train", source, "-o", "runs/deep/big", "--force").code == 0
        assert seqtool("ngram", "prune", "runs/deep/big", "-o", "small", "--force").code == 0
        answers = [seqtool("eval-ppl", "-m", name) for name in ("runs/deep/big", "small")]
        assert [answer.code for answer in answers] == [0, 0], answers[1].stderr


def test_binary_files_of_kenlm_are_neither_written_nor_read(seqtool: Run) -> None:
    for words in (
        ("ngram", "export", "m", "x.bin"),
        ("ngram", "train", "text.txt", "-o", "p", "--arpa", "x.klm"),
        ("ngram", "prune", "m", "-o", "p", "--arpa", "x.binary"),
    ):
        error, hint = two_lines(seqtool(*words))
        assert error == f"error: {words[-1]}: KenLM's binary format is not written"
        assert "build_binary" in hint
        assert not Path(words[-1]).exists()
        assert not Path("p").exists()
    content = b"mmap lm http://kheafield.com/code format version 5\n\0" + bytes(range(256))
    for name in ("x.bin", "x.arpa"):
        Path(name).write_bytes(content)
        for words in (
            ("ngram", "import", name, "-o", "p"),
            ("ngram", "prune", name, "-o", "p"),
            ("eval-ppl", "text.txt", "-m", name),
        ):
            error, hint = two_lines(seqtool(*words))
            assert error == f"error: {name}: is in KenLM's binary format, which is not read"
            assert "build_binary" in hint


def test_an_arpa_file_is_packed_by_gzip_only(seqtool: Run) -> None:
    error, hint = two_lines(seqtool("ngram", "export", "m", "x.arpa.zst"))
    assert error == "error: x.arpa.zst: an ARPA file is packed as .gz, not as .zst"
    assert ".arpa.gz" in hint
    assert not Path("x.arpa.zst").exists()


def test_a_perplexity_of_forty_digits_is_shown_with_an_exponent(seqtool: Run) -> None:
    assert seqtool("ngram", "export", "m", "closed.arpa", "--no-unk").code == 0
    Path("new.txt").write_text("unseen words\n", encoding="utf-8")
    shown = seqtool("eval-ppl", "new.txt", "-m", "closed.arpa").stdout
    # two of three tokens have a log10 probability of -100
    (figure,) = (line.split()[1] for line in shown.splitlines() if line.startswith("perplexity"))
    exact = json.loads(seqtool("eval-ppl", "new.txt", "-m", "closed.arpa", "--json").stdout)
    assert figure == f"{exact['perplexity']:.3e}"
    assert "e+6" in figure
    assert not Path("p").exists()


def test_a_mixture(seqtool: Run) -> None:
    Path("other.txt").write_text("a bird sings\nthe bird sees a dog\n" * 8, encoding="utf-8")
    seqtool("ngram", "train", "other.txt", "--order", 2, "-o", "n")
    words = ("ngram", "mix", "m", "n", "--tune", "text.txt", "-o", "x")
    answer = json.loads(seqtool(*words, "--arpa", "x.arpa", "--json").stdout)
    assert answer["weights"][0] > 0.9
    assert answer["perplexity"] == pytest.approx(perplexity(seqtool, "x"))
    assert perplexity(seqtool, "x") == pytest.approx(perplexity(seqtool, "x.arpa"), rel=1e-5)
    assert checkpoint.read_header("x").data["mixed_of"] == ["m", "n"]
    assert "mixed of others" in (Path("x") / "README.md").read_text()
    shown = seqtool(*words, "--force")
    assert shown.stdout == "x\n"
    assert "of the models mixed at every word, by `eval-ppl`: " in shown.stderr
    # of the one alone it gives the same as that, but to its words
    seqtool("ngram", "mix", "m", "n", "--weights", "1,0", "-o", "y")
    assert perplexity(seqtool, "y") == pytest.approx(perplexity(seqtool, "m"), rel=1e-5)


def test_what_is_not_mixed(seqtool: Run) -> None:
    words = ("ngram", "mix", "m")
    assert two_lines(seqtool(*words, "-o", "x"))[0].endswith("needs two models or more")
    assert two_lines(seqtool(*words, "m", "-o", "x"))[0] == "error: m is given twice"
    seqtool("ngram", "train", "text.txt", "--order", 2, "--lowercase", "-o", "low")
    assert "lower-cases the text" in two_lines(seqtool(*words, "low", "-o", "x"))[0]
    error, _ = two_lines(seqtool(*words, "n", "--tune", "-", "-o", "x"))
    assert "stdin can be read once" in error
    both = ("--tune", "text.txt", "--weights", ".5,.5")
    assert "--tune fits the weights" in two_lines(seqtool(*words, "low", *both, "-o", "x"))[0]
    assert not Path("x").exists()


def test_a_file_without_the_unknown_word(seqtool: Run) -> None:
    Path("special.txt").write_text("a <unk> b\na b c\n" * 3)
    seqtool("ngram", "train", "special.txt", "--order", 3, "-o", "u")
    seqtool("ngram", "export", "u", "whole.arpa")
    result = seqtool("ngram", "export", "u", "closed.arpa", "--no-unk")
    whole, closed = (Path(name).read_text() for name in ("whole.arpa", "closed.arpa"))
    wanted = [line for line in whole.splitlines()[5:] if "<unk>" not in line]
    assert closed.splitlines()[5:] == wanted
    # <unk>, "a <unk>", "<unk> b", "<s> a <unk>", "a <unk> b", "<unk> b </s>" are gone
    num = sum(line.startswith("-") for line in wanted)
    assert result.stderr.startswith(f"{num} n-grams of orders 1 to 3, ")
    assert len([line for line in whole.splitlines() if "<unk>" in line]) == 6
    notes = seqtool("ngram", "import", "closed.arpa", "-o", "v").stderr
    assert notes.startswith("the file has no <unk>: its log10 probability is set to -100\n")


def test_order_1_is_not_for_kenlm(seqtool: Run) -> None:
    result = seqtool("ngram", "train", "text.txt", "--order", 1, "-o", "n", "--arpa", "n.arpa")
    warning = "warning: KenLM refuses an ARPA file of order 1; SRILM and seqtool read it"
    assert warning in result.stderr.splitlines()
    assert warning in seqtool("ngram", "export", "n", "x.arpa").stderr.splitlines()
    assert warning not in seqtool("ngram", "export", "m", "x.arpa").stderr


def test_a_limited_vocabulary(seqtool: Run) -> None:
    Path("words.txt").write_text("the\ndog\ncat\nsleeps\nhorse\n")
    words = ("text.txt", "--order", 2, "--limit-vocab", "words.txt", "-o", "n", "--json")
    answer = json.loads(seqtool("ngram", "train", *words).stdout)
    # <unk>, </s>, the, dog, cat, sleeps; the horse does not occur
    assert answer["vocabulary_size"] == 6
    # of each nine times three sentences: sees, a sees a; and one owl
    assert answer["unknown"] == 9 * (1 + 3) + 1
    assert "sees" not in seqtool("ngram", "export", "n", "-").stdout
