"""`seqtool ngram` as a user meets it."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqtool.cli.usage import join_numbers
from seqtool.core import checkpoint

Run = Callable[..., Any]
TEXT = "the dog sleeps\nthe cat sees the dog\n" * 30
OTHER = "the cat sleeps\na cat sees the owl\n"
KEPT = Path(__file__).parents[1] / "kept"


@pytest.fixture(autouse=True)
def in_a_folder_with_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(TEXT, encoding="utf-8")
    Path("other.txt").write_text(OTHER, encoding="utf-8")


@pytest.fixture
def model(seqtool: Run) -> str:
    """A model of trigrams."""
    assert seqtool("ngram", "train", "text.txt", "--order", 3, "-o", "m").code == 0
    return "m"


def two_lines(result: Any) -> tuple[str, str]:
    """The two lines of a user's error."""
    assert (result.code, result.stdout) == (1, "")
    error, hint = result.stderr.splitlines()
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")
    return error, hint


def as_json(result: Any) -> Any:
    """What a command that went well printed as JSON."""
    assert result.code == 0, result.stderr
    return json.loads(result.stdout)


def perplexity(seqtool: Run, model: str, text: str = "text.txt") -> float:
    return float(as_json(seqtool("eval-ppl", text, "-m", model, "--json"))["perplexity"])


def test_train_shows_a_table_and_prints_the_path(seqtool: Run) -> None:
    result = seqtool("ngram", "train", "text.txt", "--order", 3, "--prune", 0, 0, 30, "-o", "m")
    assert (result.code, result.stdout) == (0, "m\n")
    lines = [" ".join(line.split()) for line in result.stderr.splitlines()]
    # words and </s>: the dog sleeps </s> the cat sees the dog </s>, 30 times
    start = lines.index("60 sentences, 300 tokens with </s>, 0 unknown (0.00%), vocabulary of 7")
    # 7 words and <s>; <s> the, the dog, the cat, dog sleeps, dog </s>, sleeps </s>, cat sees and
    # sees the; <s> the dog, <s> the cat, the dog sleeps, the dog </s>, dog sleeps </s>,
    # the cat sees, cat sees the and sees the dog, all 30 times
    rows = [line.split()[:4] for line in lines[start + 2 : start + 5]]
    assert rows == [["1", "8", "8", "0"], ["2", "8", "8", "0"], ["3", "8", "0", "0"]]
    assert [line[15] for line in lines if line.startswith("warning: order ")] == ["1", "2", "3"]
    assert lines[-1].startswith("next: seqtool eval-ppl")
    assert checkpoint.read_header("m").config["prune"] == [0, 0, 30]


def test_train_as_json(seqtool: Run) -> None:
    words = ("ngram", "train", "text.txt", "--order", 2, "--arpa", "x.arpa", "--json")
    answer = as_json(seqtool(*words))
    assert answer["seconds"] == pytest.approx(sum(answer["stages"].values()))
    assert (answer["model"], answer["arpa"], answer["ngrams"]) == ("runs/ngram", "x.arpa", 16)
    assert (answer["tokens"], answer["sentences"], answer["unknown"]) == (300, 60, 0)
    assert [row["order"] for row in answer["orders"]] == [1, 2]
    assert (answer["vocabulary_size"], len(answer["warnings"])) == (7, 2)


def test_settings_arrive_and_those_of_a_corpus_must_fit(seqtool: Run) -> None:
    words = (
        "--order 2 --smoothing kneser-ney --prune 0,1 --min-count 2 --discounts kenlm "
        "--fallback-discounts .5 --special-tokens skip --lowercase --threads 1 --memory 8G"
    )
    assert seqtool("ngram", "train", "text.txt", *words.split(), "-o", "m").code == 0
    config = checkpoint.read_header("m").config
    assert (config["order"], config["smoothing"], config["prune"]) == (2, "kneser-ney", [0, 1])
    assert (config["discounts"], config["fallback"], config["lowercase"]) == ("kenlm", [0.5], True)
    assert seqtool("prepare", "text.txt", "--min-count", 2, "-o", "corpus").code == 0
    error, _ = two_lines(seqtool("ngram", "train", "corpus", "--min-count", 3, "-o", "n"))
    assert "the corpus was prepared with 2" in error
    assert seqtool("ngram", "train", "corpus", "--min-count", 2, "-o", "n").code == 0


@pytest.mark.parametrize(
    ("args", "joined"),
    [
        ("text --prune 0 0 1 -o m", "text --prune 0,0,1 -o m"),
        ("a b --weights 0.3 0.7 -o m", "a b --weights 0.3,0.7 -o m"),
        ("--prune=0 7", "--prune=0 7"),
        ("--prune 0,1 1 --order 3", "--prune 0,1,1 --order 3"),
        ("--order 3 4", "--order 3 4"),
        ("--fallback-discounts .5 1 1.5 --prune 0 1", "--fallback-discounts .5,1,1.5 --prune 0,1"),
        ("--prune 0 -- 1", "--prune 0 -- 1"),
    ],
)
def test_numbers_apart_by_spaces(args: str, joined: str) -> None:
    assert join_numbers(args.split()) == joined.split()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("train text.txt --prune 0 1 0 --order 3", "must not decrease"),
        ("train text.txt --order 0", "order is 0"),
        ("train text.txt --order 8", "order 8"),
        ("train text.txt -o 5", "no --order is given"),
        ("train text.txt --smoothing kneser-nay", "kneser-nay"),
        ("train text.txt --smoothing witten-bell --add 2", "witten-bell"),
        ("train text.txt --vocab text.txt --limit-vocab text.txt", "vocab"),
        ("train text.txt --prune-entropy 1", "prune_entropy is 1"),
        ("train text.txt --special-tokens keep", "'keep'"),
        ("train text.txt --arpa no/x.arpa", "no/x.arpa"),
        ("train text.txt --arpa .", ".: is a directory"),
        ("train text.txt --arpa x.klm", "KenLM's binary format"),
        ("train text.txt --arpa - --json", "--arpa - and --json"),
        ("train text.txt --memory much", "'much'"),
        ("train text.txt --memory 1K", "memory"),
        ("train text.txt --classes pair.tsv", "pair.tsv:2"),
        ("train text.txt --classes owl.tsv", "no word of the text"),
        ("train text.txt --classes good.tsv --arpa x.arpa", "classes"),
        ("train text.txt --classes good.tsv --engine duckdb", "in memory only"),
        ("train text.txt --vocab words --arpa words", "is read, and would be replaced"),
        ("train empty.txt", "empty"),
        ("train nothing.txt", "no such file"),
        ("train special.txt", "special.txt:1: "),
        ("counts special.txt", "special.txt:1: "),
        ("counts text.txt --memory 1K", "memory"),
        ("counts text.txt --filter dgo", "'dgo' does not occur"),
        ("counts text.txt -o - --json", "both write to stdout"),
        ("counts text.txt -o text.txt", "suffix"),
        ("counts text.tsv -o text.tsv", "is read, and would be replaced"),
        ("classes text.txt --num 7", "the text has 5 words"),
        ("classes text.txt -o no/c.tsv", "no/c.tsv"),
        ("classes text.txt -o ./text.txt", "is read, and would be replaced"),
        ("classes text.txt --json", "both write to stdout"),
        ("classes text.txt --memory 1K", "need about"),
        ("import x.arpa -o p", "x.arpa:5: the log-probability 0.5 is positive"),
        ("import kenlm.bin -o p", "KenLM's binary format"),
    ],
)
def test_what_is_refused_leaves_nothing(seqtool: Run, args: str, message: str) -> None:
    arpa = "\\data\\\nngram 1=1\n\n\\1-grams:\n0.5 a\n\n\\end\\\n"
    kenlm = "mmap lm http://kheafield.com/code format version 5\n\0" + "x" * 256
    for name, content in {
        "words": "dog\ncat\nthe\n",
        "good.tsv": "dog x\ncat x\n",
        "pair.tsv": "dog x\ncat\n",
        "owl.tsv": "owl x\n",
        "empty.txt": "",
        "special.txt": "a <s> b\n",
        "text.tsv": TEXT,
        "x.arpa": arpa,
        "kenlm.bin": kenlm,
    }.items():
        Path(name).write_text(content)
    before = {path: path.read_bytes() for path in Path().iterdir()}
    assert message in two_lines(seqtool("ngram", *args.split()))[0]
    assert {path: path.read_bytes() for path in Path().iterdir()} == before


@pytest.mark.parametrize(
    "args",
    [
        *("train text.txt --prune 0,x", "train text.txt --fallback-discounts 1,a"),
        *("counts text.txt --sort size", "train --discount_fallback text.txt"),
    ],
)
def test_usage_errors(seqtool: Run, args: str) -> None:
    result = seqtool("ngram", *args.split())
    assert (result.code, result.stderr.splitlines()[-1][:6]) == (2, "hint: ")
    if "discount_fallback" in args:  # as KenLM has it
        assert "--fallback-discounts" in result.stderr


def test_models_are_replaced_by_force_alone_and_are_no_text(seqtool: Run, model: str) -> None:
    assert "exists already" in two_lines(seqtool("ngram", "train", "text.txt", "-o", model))[0]
    for command in ("train", "counts"):
        assert "is a model, not a text" in two_lines(seqtool("ngram", command, model))[0]
    assert seqtool("ngram", "train", "other.txt", "-o", model, "--force").code == 0


def test_lists_of_words(seqtool: Run) -> None:
    Path("words").write_text("the\nDog\nsleeps\ncat\nsees\n")
    for option in ("--vocab", "--limit-vocab"):
        result = seqtool("ngram", "train", "text.txt", option, "words", "--force")
        # "dog" is 2 of the 8 words of two lines
        assert "warning: 25% of the words are not in words: see whether" in result.stderr
    Path("words").write_text("the\ndog\ncat\nsleeps\nhorse\n")
    words = ("text.txt", "--order", 2, "--limit-vocab", "words", "-o", "n", "--json")
    answer = as_json(seqtool("ngram", "train", *words))
    # <unk>, </s>, the, dog, cat, sleeps; the horse does not occur; sees is in every second line
    assert (answer["vocabulary_size"], answer["unknown"]) == (6, 30)
    assert "sees" not in seqtool("ngram", "export", "n", "-").stdout


def test_the_sample_is_the_default(seqtool: Run) -> None:
    result = seqtool("ngram", "train", "--order", 2)
    assert result.code == 0
    assert "the shipped English sample" in result.stderr.splitlines()[0]
    assert "valid perplexity" in result.stderr
    assert "no model given: using runs/ngram" in seqtool("eval-ppl", "text.txt").stderr


def test_stdin_and_stdout(seqtool_process: Run) -> None:
    words = ("ngram", "train", "-", "--order", 2, "-o", "m", "--arpa", "-")
    result = seqtool_process(*words, input=TEXT.encode())
    assert result.code == 0
    arpa = seqtool_process("ngram", "export", "m", "-").stdout
    assert result.stdout == arpa
    assert result.stderr.endswith("\nm\n")
    assert arpa.startswith("\\data\\\nngram 1=8\nngram 2=8\n\n\\1-grams:\n")
    lines = [line for line in arpa.splitlines(keepends=True) if "<unk>" not in line]
    without = "".join(lines).replace("1=8", "1=7").encode()
    result = seqtool_process("ngram", "import", "-", "-o", "n", input=without)
    note, sizes = result.stderr.splitlines()
    assert note == "the file has no <unk>: its log10 probability is set to -100"
    assert sizes.startswith("8 1-grams, 8 2-grams in ")
    empty = seqtool_process("ngram", "train", "-", "-o", "e", input=b"\n\n")
    assert "error: <stdin>: the text has only empty lines" in empty.stderr


def test_export_and_import(seqtool: Run) -> None:
    seqtool("ngram", "train", "text.txt", "--order", 2, "-o", "m")
    result = seqtool("ngram", "export", "m", "x.arpa.gz")
    assert (result.code, result.stdout) == (0, "x.arpa.gz\n")
    size = Path("x.arpa.gz").stat().st_size
    assert result.stderr == f"16 n-grams of orders 1 to 2, {size:,} bytes\n"
    assert seqtool("ngram", "export", "x.arpa.gz", "y.arpa", "--threads", 1).code == 0
    assert gzip.decompress(Path("x.arpa.gz").read_bytes()) == Path("y.arpa").read_bytes()
    assert seqtool("ngram", "import", "y.arpa", "-o", "n").stdout == "n\n"
    answer = as_json(seqtool("ngram", "import", "y.arpa", "-o", "n", "--force", "--json"))
    assert (answer["model"], answer["ngrams"], answer["vocabulary_size"]) == ("n", [8, 8], 7)
    assert len({perplexity(seqtool, model) for model in ("y.arpa", "n", "x.arpa.gz")}) == 1


def test_what_is_no_ngram_model_or_no_arpa_file(seqtool: Run, model: str) -> None:
    for words in (("export", KEPT / "lm-rnn", "x.arpa"), ("prune", KEPT / "lm-rnn", "-o", "p")):
        error, hint = two_lines(seqtool("ngram", *words))
        assert "is a model of kind neural-lm, and only n-gram models" in error
        assert "seqtool ngram train" in hint
    for name, word in (("x.bin", "KenLM"), ("x.arpa.zst", ".zst")):
        assert word in two_lines(seqtool("ngram", "export", model, name))[0]
        assert not Path(name).exists()


def test_counts(seqtool: Run) -> None:
    result = seqtool("ngram", "counts", "text.txt", "--top", 2)
    # inside sentences: the dog 60; dog sleeps, the cat, cat sees, sees the 30 each: 180 in all
    assert result.stdout == (
        "count\tper million\tn-gram\n60\t333333.333333\tthe dog\n30\t166666.666667\tthe cat\n"
    )
    assert result.stderr == "2 of 5 n-grams of order 2\n"
    result = seqtool("ngram", "counts", "text.txt", "--filter", "dog", "--sort", "text")
    shown = [line.split("\t")[2] for line in result.stdout.splitlines()[1:]]
    assert shown == ["dog sleeps", "the dog"]
    words = ("ngram", "counts", "text.txt", "--boundaries", "-o", "counts.tsv", "--json")
    assert len(as_json(seqtool(*words))["ngrams"]) == 8
    assert len(Path("counts.tsv").read_text().splitlines()) == 1 + 8  # all of them
    words = ("ngram", "counts", "text.txt", "--order", 3, "--filter", "cat", "--json")
    assert as_json(seqtool(*words)) == {
        "order": 3,
        "distinct": 4,
        "total": 120,
        "ngrams": [
            {"ngram": ["the", "cat", "sees"], "count": 30},
            {"ngram": ["cat", "sees", "the"], "count": 30},
        ],
    }


def test_counts_as_parquet(seqtool: Run) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    for words, num in (((), 5), (("--min-count", 99), 0)):
        assert seqtool("ngram", "counts", "text.txt", *words, "-o", "counts.parquet").code == 0
        table = parquet.read_table("counts.parquet")
        assert table.column_names == ["count", "per million", "n-gram"]
        assert [str(kind) for kind in table.schema.types] == ["int64", "double", "string"]
        assert len(table["n-gram"].to_pylist()) == num


def test_counts_of_special_tokens(seqtool: Run) -> None:
    Path("special.txt").write_text("a <s> b\n")
    words = ("ngram", "counts", "special.txt", "--json", "--special-tokens")
    listed = {
        policy: sorted(row["ngram"] for row in as_json(seqtool(*words, policy))["ngrams"])
        for policy in ("unknown", "skip")
    }
    assert listed == {"skip": [["a", "b"]], "unknown": [["<unk>", "b"], ["a", "<unk>"]]}


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


# pruned, and mixed


def test_a_pruned_model(seqtool: Run) -> None:
    lines = "the dog sleeps\nthe cat sees the dog\na dog sees a cat\n" * 9
    Path("text.txt").write_text(f"{lines}the owl sleeps\n")
    assert seqtool("ngram", "train", "text.txt", "--order", 3, "-o", "m").code == 0
    words = ("ngram", "prune", "m", "--threshold", 1e-3, "-o", "p", "--arpa", "p.arpa")
    result = seqtool(*words)
    assert (result.code, result.stdout) == (0, "p\n")
    old, new = (checkpoint.read_header(name) for name in ("m", "p"))
    sizes = [order["ngrams"] for order in new.statistics["orders"]]
    assert 0 < sum(sizes) < sum(order["ngrams"] for order in old.statistics["orders"])
    assert new.config == {**old.config, "prune_entropy": 1e-3}
    assert perplexity(seqtool, "p") == pytest.approx(perplexity(seqtool, "p.arpa"), rel=1e-5)
    # the same at once
    words = ("text.txt", "--order", 3, "--prune-entropy", 1e-3, "-o", "q", "--json")
    answer = as_json(seqtool("ngram", "train", *words))
    assert [order["ngrams"] for order in answer["orders"]] == sizes
    weights = [Path(name, "weights.safetensors").read_bytes() for name in ("p", "q")]
    assert weights[0] == weights[1]
    words = ("ngram", "prune", "p.arpa", "--threshold", 0.5, "-o", "r", "--json")
    answer = as_json(seqtool(*words))
    assert (answer["order"], answer["ngrams"][1:]) == (1, [0, 0])


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("prune m -o p --threshold 2", "the threshold is 2"),
        ("prune m -o m", "exists already"),
        ("prune no -o p", "no such model"),
        ("prune m.arpa -o p --arpa m.arpa", "m.arpa: is read, and would be replaced"),
        ("mix m -o p", "needs two models or more"),
        ("mix m m -o p", "m is given twice"),
        ("mix m m.arpa -o p --arpa m.arpa", "m.arpa: is read, and would be replaced"),
        ("mix m m.arpa -o p --tune text.txt --arpa text.txt", "would be replaced"),
        ("mix m m.arpa -o p --tune text.txt --weights .5,.5", "--tune fits the weights"),
        ("mix m m.arpa -o p --tune -", "stdin can be read once"),
        ("mix m low -o p", "lower-cases the text"),
    ],
)
def test_what_is_not_pruned_or_mixed(
    seqtool: Run, seqtool_process: Run, model: str, command: str, message: str
) -> None:
    seqtool("ngram", "export", "m", "m.arpa")
    seqtool("ngram", "train", "text.txt", "--order", 2, "--lowercase", "-o", "low")
    before = Path("m.arpa").read_bytes()
    if command.endswith("-"):
        error, _ = two_lines(seqtool_process("ngram", *command.split(), input=b""))
    else:
        error, _ = two_lines(seqtool("ngram", *command.split()))
    assert message in error
    assert (Path("m.arpa").read_bytes(), Path("p").exists()) == (before, False)


def test_a_pruned_model_knows_its_held_out_text(seqtool: Run) -> None:
    Path("texts").mkdir()
    for name in ("train", "valid"):
        Path(f"texts/{name}.txt").write_text(TEXT, encoding="utf-8")
    seqtool("prepare", "texts", "-o", "corpus")
    for source in ("texts", "corpus"):
        assert seqtool("ngram", "train", source, "-o", "runs/deep/big", "--force").code == 0
        assert seqtool("ngram", "prune", "runs/deep/big", "-o", "small", "--force").code == 0
        assert [seqtool("eval-ppl", "-m", name).code for name in ("runs/deep/big", "small")] == [
            0,
            0,
        ]


def test_a_mixture(seqtool: Run, model: str) -> None:
    Path("birds.txt").write_text("a bird sings\nthe bird sees a dog\n" * 8, encoding="utf-8")
    seqtool("ngram", "train", "birds.txt", "--order", 2, "-o", "n")
    words = ("ngram", "mix", model, "n", "--tune", "text.txt", "-o", "x")
    answer = as_json(seqtool(*words, "--arpa", "x.arpa", "--json"))
    assert answer["weights"][0] > 0.9
    assert answer["perplexity"] == pytest.approx(perplexity(seqtool, "x"))
    assert perplexity(seqtool, "x") == pytest.approx(perplexity(seqtool, "x.arpa"), rel=1e-5)
    assert checkpoint.read_header("x").data["mixed_of"] == ["m", "n"]
    shown = seqtool(*words, "--force")
    assert shown.stdout == "x\n"
    assert "of the models mixed at every word" in shown.stderr
    # of the one alone it gives the same as that, but to its words
    seqtool("ngram", "mix", model, "n", "--weights", "1,0", "-o", "y")
    assert perplexity(seqtool, "y") == pytest.approx(perplexity(seqtool, model), rel=1e-5)


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
    # two of three tokens have a log10 probability of -100: a figure with an exponent
    Path("new.txt").write_text("unseen words\n", encoding="utf-8")
    shown = seqtool("eval-ppl", "new.txt", "-m", "closed.arpa").stdout
    (figure,) = (line.split()[1] for line in shown.splitlines() if line.startswith("perplexity"))
    assert figure == f"{perplexity(seqtool, 'closed.arpa', 'new.txt'):.3e}"


def test_order_1_is_not_for_kenlm(seqtool: Run) -> None:
    result = seqtool("ngram", "train", "text.txt", "--order", 1, "-o", "n", "--arpa", "n.arpa")
    for shown in (result, seqtool("ngram", "export", "n", "x.arpa")):
        assert "warning: KenLM refuses an ARPA file of order 1" in shown.stderr


# of classes


def test_from_classes_to_a_model_in_use(seqtool: Run, seqtool_process: Run) -> None:
    Path("text.txt").write_text("the dog sleeps\nthe cat sees a dog\na dog sees the cat\n" * 9)
    result = seqtool("ngram", "classes", "text.txt", "--num", 3, "-o", "c.tsv")
    assert (result.code, result.stdout) == (0, "c.tsv\n")
    lines = Path("c.tsv").read_text(encoding="utf-8").splitlines()
    # the largest class first, and of each the most frequent word
    assert lines == ["dog\t1", "cat\t1", "the\t2", "a\t2", "sees\t3", "sleeps\t3"]
    shown = seqtool_process("ngram", "classes", "text.txt", "--num", 3).stdout
    assert shown.splitlines() == lines
    words = ("text.txt", "--num", 3, "--sweeps", 1, "-o", "d.tsv", "--json")
    made = as_json(seqtool("ngram", "classes", *words))
    assert (made["num"], made["words"], len(made["moved"])) == (3, 6, 1)
    words = ("text.txt", "--classes", "c.tsv", "--order", 3, "-o", "m", "--json")
    assert as_json(seqtool("ngram", "train", *words))["vocabulary_size"] == 8
    assert seqtool("ngram", "train", "text.txt", "--order", 3, "-o", "words").code == 0
    of_classes, of_words = (perplexity(seqtool, name, "other.txt") for name in ("m", "words"))
    assert of_classes < of_words  # it generalises over the cat
    words = ("other.txt", "-m", "m", "-m", "words", "--tune", "text.txt", "--json")
    assert sum(as_json(seqtool("eval-ppl", *words))["weights"]) == pytest.approx(1)
    for command in (
        "generate -m m --seed 1",
        "surprisal other.txt -m m --entropy",
        "compare other.txt -m m -m words",
        "analyse context text.txt -m m --json",
    ):
        assert seqtool(*command.split()).code == 0, command
    shown = seqtool("inspect", "m").stdout.splitlines()
    assert ["classes", "5"] in [line.split() for line in shown]
    for command in ("export m x.arpa", "prune m -o p", "mix m words -o p"):
        error, hint = two_lines(seqtool("ngram", *command.split()))
        assert "m: is a model of kind class-ngram, and only n-gram models" in error
        assert "without --classes" in hint
    assert seqtool("prepare", "text.txt", "--unit", "char", "-o", "chars").code == 0
    error, _ = two_lines(seqtool("ngram", "classes", "chars", "--num", 3))
    assert "classes are of words, but the corpus is of char units" in error
