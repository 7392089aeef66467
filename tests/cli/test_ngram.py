"""`seqtool ngram` as a user meets it."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seqtool import NgramConfig
from seqtool.cli import ngram, options
from seqtool.cli.app import main
from seqtool.cli.usage import join_numbers
from seqtool.core import checkpoint

Run = Callable[..., Any]
TEXT = "the dog sleeps\nthe cat sees the dog\n" * 30


@pytest.fixture(autouse=True)
def in_a_folder_with_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(TEXT, encoding="utf-8")


def two_lines(result: Any) -> tuple[str, str]:
    """The two lines of a user's error."""
    assert (result.code, result.stdout) == (1, "")
    error, hint = result.stderr.splitlines()
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")
    return error, hint


def test_train_shows_a_table_and_prints_the_path(seqtool: Run) -> None:
    result = seqtool("ngram", "train", "text.txt", "--order", 3, "--prune", 0, 0, 30, "-o", "m")
    assert (result.code, result.stdout) == (0, "m\n")
    lines = [" ".join(line.split()) for line in result.stderr.splitlines()]
    # words and </s>: the dog sleeps </s> the cat sees the dog </s>, 30 times
    start = lines.index("60 sentences, 300 tokens with </s>, 0 unknown (0.00%), vocabulary of 7")
    assert lines[start + 1] == "order n-grams kept singletons discounts"
    # 7 words and <s>; <s> the, the dog, the cat, dog sleeps, dog </s>, sleeps </s>, cat sees and
    # sees the; <s> the dog, <s> the cat, the dog sleeps, the dog </s>, dog sleeps </s>,
    # the cat sees, cat sees the and sees the dog, all 30 times
    rows = [line.split()[:4] for line in lines[start + 2 : start + 5]]
    assert rows == [["1", "8", "8", "0"], ["2", "8", "8", "0"], ["3", "8", "0", "0"]]
    assert all(line.endswith("0.5000 1.0000 1.5000 (fallback)") for line in lines[start + 2 :][:3])
    warnings = [line for line in lines if line.startswith("warning: order ")]
    assert [warning[15] for warning in warnings] == ["1", "2", "3"]
    assert any("tokens/s" in line for line in lines)
    assert lines[-1] == "next: seqtool eval-ppl TEXT -m m or seqtool inspect m"
    assert checkpoint.read_header("m").config["prune"] == [0, 0, 30]


@pytest.mark.parametrize("command", [("ngram", "train"), ("ngram", "snm")], ids=" ".join)
def test_what_is_typed_of_a_prepared_corpus(seqtool: Run, command: tuple[str, ...]) -> None:
    assert seqtool("prepare", "text.txt", "--min-count", 2, "-o", "corpus").code == 0
    # also where it is the default, which is taken for nothing where it is not typed
    error, hint = two_lines(seqtool(*command, "corpus", "--min-count", 1, "-o", "m"))
    assert error == "error: corpus: min_count is 1, but the corpus was prepared with 2"
    assert hint == "hint: leave min_count out, or prepare the text again"
    for options_ in ((), ("--min-count", 2)):
        assert seqtool(*command, "corpus", *options_, "-o", "m", "--force").code == 0


def test_all_settings_arrive(seqtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}

    def train(inputs: object, output: Path, config: NgramConfig, **options: object) -> None:
        seen.update(options, inputs=inputs, output=str(output), config=config)
        raise KeyboardInterrupt

    monkeypatch.setattr("seqtool.lm.ngram.train.train_ngram", train)
    words = (
        "a.txt b.txt -o m --order 4 --smoothing kneser-ney --prune 0,1,1 --vocab-size 9 "
        "--min-count 2 --discounts kenlm --fallback-discounts .5 --special-tokens skip "
        "--lowercase --field body --arpa x.gz --threads 1 --memory 8G --force"
    )
    assert seqtool("ngram", "train", *words.split()).code == 130
    assert seen["config"] == NgramConfig(
        order=4,
        smoothing="kneser-ney",
        prune=(0, 1, 1),
        vocab_size=9,
        min_count=2,
        discounts="kenlm",
        fallback=(0.5,),
        special_tokens="skip",
        lowercase=True,
    )
    assert (seen["inputs"], seen["output"]) == (["a.txt", "b.txt"], "m")
    assert (seen["field"], seen["threads"], seen["force"]) == ("body", 1, True)
    assert (seen["arpa"], seen["memory"]) == (Path("x.gz"), 8 * 10**9)
    words = "a.txt --vocab v.txt --fallback-discounts 0.5 1 1.25 --order 2"
    assert seqtool("ngram", "train", *words.split()).code == 130
    assert seen["config"] == NgramConfig(order=2, vocab="v.txt", fallback=(0.5, 1, 1.25))
    for words, config in (
        ("--smoothing add-k --add 0.25", NgramConfig(smoothing="add-k", add=0.25)),
        (
            "--smoothing stupid-backoff --backoff 0.3",
            NgramConfig(smoothing="stupid-backoff", backoff=0.3),
        ),
    ):
        assert seqtool("ngram", "train", "a.txt", *words.split()).code == 130
        assert seen["config"] == config


def test_json(seqtool: Run) -> None:
    result = seqtool("ngram", "train", "text.txt", "--order", 2, "--arpa", "x.arpa", "--json")
    answer = json.loads(result.stdout)
    assert answer["seconds"] == pytest.approx(sum(answer["stages"].values()))
    assert answer["ngrams"] == 16
    assert (answer["model"], answer["arpa"]) == ("runs/ngram", "x.arpa")
    assert (answer["tokens"], answer["sentences"], answer["unknown"]) == (300, 60, 0)
    assert answer["vocabulary_size"] == 7
    assert [row["order"] for row in answer["orders"]] == [1, 2]
    assert len(answer["warnings"]) == 2


@pytest.mark.parametrize(
    ("args", "joined"),
    [
        ("text --prune 0 0 1 -o m", "text --prune 0,0,1 -o m"),
        ("--prune 0 0 1 text 5", "--prune 0,0,1 text 5"),
        ("a b --weights 0.3 0.7 -o m", "a b --weights 0.3,0.7 -o m"),
        ("--prune=0 7", "--prune=0 7"),
        ("--prune 0,1 1 --order 3", "--prune 0,1,1 --order 3"),
        ("--order 3 4", "--order 3 4"),
        ("--fallback-discounts .5 1 1.5 --prune 0 1", "--fallback-discounts .5,1,1.5 --prune 0,1"),
        ("--prune", "--prune"),
        ("-- --prune 0 1", "-- --prune 0 1"),
        ("--prune 0 -- 1", "--prune 0 -- 1"),
    ],
)
def test_numbers_apart_by_spaces(args: str, joined: str) -> None:
    assert join_numbers(args.split()) == joined.split()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("--prune 0 1 0 --order 3", "must not decrease"),
        ("--prune 1", "must begin with 0"),
        ("--order 0", "order is 0, but must be at least 1"),
        ("--order 8", "order 8 is more than the longest sentence has room for"),
        ("--smoothing kneser-nay", "no smoothing is called 'kneser-nay'"),
        ("--smoothing witten-bell --add 2", "add counts only where smoothing is add-k"),
        ("--smoothing add-k --limit-vocab text.txt", "limit_vocab counts only where"),
        ("--vocab text.txt --limit-vocab text.txt", "vocab makes other words unknown"),
        ("--prune-entropy 1", "prune_entropy is 1"),
        ("--special-tokens keep", "special_tokens is 'keep'"),
        ("--discounts srilm", "discounts is 'srilm'"),
        ("--vocab-size 2", "vocab_size is 2, but must be at least 3"),
        ("--arpa no/x.arpa", "the directory to write to is not there"),
        ("--arpa .", "error: .: is a directory"),
    ],
)
def test_impossible_settings(seqtool: Run, args: str, message: str) -> None:
    error, _ = two_lines(seqtool("ngram", "train", "text.txt", *args.split()))
    assert message in error
    assert not Path("runs").exists()


def test_a_list_of_other_words_is_told(seqtool: Run) -> None:
    Path("words").write_text("the\ndog\nsleeps\ncat\nsees\n\n")
    assert (
        "words are not in" not in seqtool("ngram", "train", "text.txt", "--vocab", "words").stderr
    )
    Path("words").write_text("the\nDog\nsleeps\ncat\nsees\n")
    for option in ("--vocab", "--limit-vocab"):
        result = seqtool("ngram", "train", "text.txt", option, "words", "--force")
        # "dog" is 2 of the 8 words of two lines
        assert "warning: 25% of the words are not in words: see whether" in result.stderr


def test_stdin_is_a_text_and_stdout_a_place_for_arpa(seqtool_process: Run, seqtool: Run) -> None:
    words = ("ngram", "train", "-", "--order", 2, "-o", "m", "--arpa", "-")
    result = seqtool_process(*words, input=TEXT.encode())
    assert result.code == 0
    assert result.stdout == seqtool_process("ngram", "export", "m", "-").stdout
    assert result.stdout.endswith("\\end\\\n")
    assert result.stderr.endswith("\nm\n")
    error, hint = two_lines(seqtool("ngram", "train", "text.txt", "--arpa", "-", "--json"))
    assert error == "error: --arpa - and --json would both write to stdout"
    assert hint == "hint: name a file after --arpa, or drop --json"


@pytest.mark.parametrize("args", ["--prune 0,x", "--fallback-discounts 1,a", "--prune ,"])
def test_no_numbers_is_a_usage_error(seqtool: Run, args: str) -> None:
    result = seqtool("ngram", "train", "text.txt", *args.split())
    assert result.code == 2
    assert "is no list of" in " ".join(result.stderr.split())


def test_unusable_texts(seqtool: Run) -> None:
    Path("empty.txt").write_text("")
    assert "empty" in two_lines(seqtool("ngram", "train", "empty.txt"))[0]
    assert "no such file" in two_lines(seqtool("ngram", "train", "nothing.txt"))[0]
    Path("special.txt").write_text("a <s> b\n")
    error, _ = two_lines(seqtool("ngram", "train", "special.txt"))
    assert error.startswith("error: special.txt:1: ")
    seqtool("ngram", "train", "text.txt", "--order", 1, "-o", "m")
    assert two_lines(seqtool("ngram", "train", "text.txt", "-o", "m")) == (
        "error: m: exists already",
        "hint: replace it with --force, or choose another with -o",
    )
    for command in ("train", "counts"):
        error, _ = two_lines(seqtool("ngram", command, "m"))
        assert error == "error: m: is a model, not a text"


def test_memory_is_what_the_user_says(seqtool: Run) -> None:
    for command in (["train", "-o", "small"], ["counts"]):
        error, hint = two_lines(seqtool("ngram", *command, "text.txt", "--memory", "1K"))
        if command[0] == "train":  # by DuckDB, as memory has no room
            assert error.endswith("GB of memory for any text, but 0.0 MB are given")
            assert hint == "hint: give it --memory 500M or more"
        else:
            assert error.endswith("B of memory, but 0.0 MB are available")
            assert hint.endswith("; raise --memory")
        error, _ = two_lines(seqtool("ngram", *command, "text.txt", "--memory", "much"))
        assert error == "error: 'much' is no size of memory"


def test_the_sample_is_the_default(seqtool: Run) -> None:
    result = seqtool("ngram", "train", "--order", 2)
    assert result.code == 0
    assert result.stderr.startswith("no CORPUS given: training on the shipped English sample\n")
    assert "valid perplexity" in result.stderr
    evaluated = seqtool("eval-ppl", "text.txt")
    assert "no model given: using runs/ngram" in evaluated.stderr


def test_export_and_import(seqtool: Run) -> None:
    seqtool("ngram", "train", "text.txt", "--order", 2, "-o", "m")
    result = seqtool("ngram", "export", "m", "x.arpa.gz")
    assert (result.code, result.stdout) == (0, "x.arpa.gz\n")
    size = Path("x.arpa.gz").stat().st_size
    assert result.stderr == f"16 n-grams of orders 1 to 2, {size:,} bytes\n"
    again = seqtool("ngram", "export", "x.arpa.gz", "y.arpa", "--threads", 1)
    assert again.code == 0
    assert gzip.decompress(Path("x.arpa.gz").read_bytes()) == Path("y.arpa").read_bytes()
    result = seqtool("ngram", "import", "y.arpa", "-o", "n")
    assert (result.code, result.stdout) == (0, "n\n")
    assert result.stderr.startswith("8 1-grams, 8 2-grams in ")
    answer = json.loads(seqtool("ngram", "import", "y.arpa", "-o", "n", "--force", "--json").stdout)
    assert answer.pop("seconds") > 0
    assert answer == {
        "model": "n",
        "order": 2,
        "ngrams": [8, 8],
        "vocabulary_size": 7,
        "notes": [],
    }
    perplexities = {
        json.loads(seqtool("eval-ppl", "text.txt", "-m", model, "--json").stdout)["perplexity"]
        for model in ("y.arpa", "n", "x.arpa.gz")
    }
    assert len(perplexities) == 1


def test_export_to_stdout_and_import_from_stdin(seqtool_process: Run) -> None:
    seqtool_process("ngram", "train", "text.txt", "--order", 2, "-o", "m")
    text = seqtool_process("ngram", "export", "m", "-").stdout
    assert text.startswith("\\data\\\nngram 1=8\nngram 2=8\n\n\\1-grams:\n")
    without = "".join(line for line in text.splitlines(keepends=True) if "<unk>" not in line)
    result = seqtool_process(
        "ngram", "import", "-", "-o", "n", input=without.replace("1=8", "1=7").encode()
    )
    assert result.code == 0
    assert result.stderr.startswith(
        "the file has no <unk>: its log10 probability is set to -100\n8 1-grams, 8 2-grams in "
    )


def test_only_ngram_models_are_exported(seqtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    network = SimpleNamespace(kind="neural-lm")
    monkeypatch.setattr(checkpoint, "load", lambda path: network)
    error, hint = two_lines(seqtool("ngram", "export", "net", "x.arpa"))
    assert (
        error
        == "error: net: is a model of kind neural-lm, and only n-gram models have an ARPA form"
    )
    assert "seqtool ngram train" in hint
    assert not Path("x.arpa").exists()


def test_damaged_arpa(seqtool: Run) -> None:
    Path("x.arpa").write_text("\\data\\\nngram 1=1\n\n\\1-grams:\n0.5 a\n\n\\end\\\n")
    error, hint = two_lines(seqtool("ngram", "import", "x.arpa", "-o", "n"))
    assert error == "error: x.arpa:5: the log-probability 0.5 is positive"
    assert hint.startswith("hint: ")
    assert not Path("n").exists()


def test_counts_as_tsv(seqtool: Run) -> None:
    result = seqtool("ngram", "counts", "text.txt", "--top", 2)
    # inside sentences: the dog 60; dog sleeps, the cat, cat sees, sees the 30 each: 180 in all
    assert result.stdout == (
        "count\tper million\tn-gram\n60\t333333.333333\tthe dog\n30\t166666.666667\tthe cat\n"
    )
    assert result.stderr == "2 of 5 n-grams of order 2\n"
    result = seqtool("ngram", "counts", "text.txt", "--filter", "dog", "--sort", "text")
    assert [line.split("\t")[2] for line in result.stdout.splitlines()[1:]] == [
        "dog sleeps",
        "the dog",
    ]


def test_counts_as_parquet(seqtool: Run) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    found = []
    for words in ((), ("--filter", "dog")):
        result = seqtool("ngram", "counts", "text.txt", *words, "-o", "counts.parquet")
        assert result.code == 0, result.stderr
        table = parquet.read_table("counts.parquet")
        assert table.column_names == ["count", "per million", "n-gram"]
        assert [str(kind) for kind in table.schema.types] == ["int64", "double", "string"]
        found.append(table["n-gram"].to_pylist())
    assert len(found[0]) > len(found[1]) > 0
    assert all(isinstance(each, str) for each in found[0])


def test_counts_to_a_file_and_as_json(seqtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngram, "LISTED", 1)
    assert len(seqtool("ngram", "counts", "text.txt").stdout.splitlines()) == 2
    result = seqtool("ngram", "counts", "text.txt", "--boundaries", "-o", "counts.tsv")
    assert result.stdout == ""
    written = Path("counts.tsv").read_text()
    assert len(written.splitlines()) == 1 + 8  # all of them
    words = ("ngram", "counts", "text.txt", "--boundaries", "-o", "again.tsv", "--json")
    assert len(json.loads(seqtool(*words).stdout)["ngrams"]) == 8
    assert Path("again.tsv").read_text() == written
    answer = json.loads(
        seqtool("ngram", "counts", "text.txt", "--order", 3, "--filter", "cat", "--json").stdout
    )
    assert answer == {
        "order": 3,
        "distinct": 4,
        "total": 120,
        "ngrams": [{"ngram": ["the", "cat", "sees"], "count": 30}],
    }


def test_counts_refuses(seqtool: Run) -> None:
    error, _ = two_lines(seqtool("ngram", "counts", "text.txt", "--filter", "dgo"))
    assert error == "error: the word 'dgo' does not occur in the text"
    assert seqtool("ngram", "counts", "text.txt", "--sort", "size").code == 2
    error, _ = two_lines(seqtool("ngram", "counts", "text.txt", "-o", "-", "--json"))
    assert error == "error: --json and a table both write to stdout"
    before = Path("text.txt").read_bytes()
    Path("text.tsv").write_bytes(before)
    error, _ = two_lines(seqtool("ngram", "counts", "text.tsv", "-o", "text.tsv"))
    assert error == "error: text.tsv: is read, and would be replaced"
    assert Path("text.tsv").read_bytes() == before


def test_counts_of_special_tokens(seqtool: Run) -> None:
    Path("special.txt").write_text("a <s> b\n")
    _, hint = two_lines(seqtool("ngram", "counts", "special.txt"))
    assert hint == "hint: remove it, or choose --special-tokens unknown or skip"
    listed = {}
    for policy in ("unknown", "skip"):
        words = ("ngram", "counts", "special.txt", "--special-tokens", policy, "--json")
        listed[policy] = [row["ngram"] for row in json.loads(seqtool(*words).stdout)["ngrams"]]
    assert listed["skip"] == [["a", "b"]]
    assert sorted(listed["unknown"]) == [["<unk>", "b"], ["a", "<unk>"]]


def test_counts_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    monkeypatch.setattr(options.sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(ngram, "show_table", lambda *table: shown.append(table))
    assert main(["ngram", "counts", "text.txt", "--top", "1"]) == 0
    assert shown == [("", ("count", "per million", "n-gram"), [("60", "333333.3", "the dog")])]


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom seqtool.cli.app import main\n"
        "codes = [main(['ngram', *name, '--help']) for name in ([], ['train'], ['counts'])]\n"
        "heavy = {'torch', 'numpy', 'numba', 'rich.progress', 'sentencepiece'}\n"
        "print(codes, sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert run.stderr == "[0, 0, 0] []\n"
    assert "--prune" in run.stdout


def test_without_a_command_the_group_shows_its_help(seqtool: Run) -> None:
    result = seqtool("ngram")
    assert result.code == 2
    assert "export" in result.stdout + result.stderr


@pytest.mark.parametrize("command", ["train", "counts"])
def test_an_order_is_no_output(seqtool: Run, command: str) -> None:
    error, hint = two_lines(seqtool("ngram", command, "text.txt", "-o", "5"))
    assert error == "error: -o 5 would write to '5', and no --order is given"
    assert "--order 5 -o" in hint
    assert not Path("5").exists()
    # who says both means it
    named = {"train": "5", "counts": "5.tsv"}[command]  # a table is of a kind
    assert seqtool("ngram", command, "text.txt", "--order", 2, "-o", named).code == 0
    assert Path(named).exists()


def test_a_long_option_with_one_dash_is_no_output(seqtool: Run) -> None:
    error, hint = two_lines(seqtool("ngram", "train", "text.txt", "-order"))
    assert error == "error: -order is read as -o rder, the output, and no --order is given"
    assert hint == "hint: the option has two dashes here: --order N"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("--discount_fallback", "--fallback-discounts"),
        ("--discount-fallback", "--fallback-discounts"),
        ("--limit_vocab_file", "--limit-vocab"),
        ("--text", "the argument CORPUS"),
        ("-S", "--memory"),
    ],
)
def test_options_of_other_programs_are_told_by_their_names_here(
    seqtool: Run, theirs: str, ours: str
) -> None:
    result = seqtool("ngram", "train", theirs, "text.txt")
    assert result.code == 2
    assert result.stderr.splitlines()[-1].startswith(f"hint: it is {ours} here; see `seqtool ngram")


def test_empty_lines_of_stdin(seqtool_process: Run) -> None:
    result = seqtool_process("ngram", "train", "-", "-o", "m", input=b"\n\n")
    assert "error: <stdin>: the text has only empty lines" in result.stderr
