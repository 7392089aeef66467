"""`seqtool ngram` as a user meets it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
    # 7 words and <s>; eight bigrams and eight trigrams, all 30 times or more
    rows = [line.split()[:4] for line in lines[start + 2 : start + 5]]
    assert rows == [["1", "8", "8", "0"], ["2", "8", "8", "0"], ["3", "8", "0", "0"]]
    assert [line[15] for line in lines if line.startswith("warning: order ")] == ["1", "2", "3"]
    assert lines[-1].startswith("next: seqtool eval-ppl")
    assert checkpoint.read_header("m").config["prune"] == [0, 0, 30]
    words = ("ngram", "train", "text.txt", "--order", 2, "--arpa", "x.arpa", "--json")
    answer = as_json(seqtool(*words))
    assert answer["seconds"] == pytest.approx(sum(answer["stages"].values()))
    assert (answer["model"], answer["arpa"], answer["ngrams"]) == ("runs/ngram", "x.arpa", 16)
    assert (answer["tokens"], answer["sentences"], answer["unknown"]) == (300, 60, 0)
    assert [row["order"] for row in answer["orders"]] == [1, 2]
    assert (answer["vocabulary_size"], len(answer["warnings"])) == (7, 2)


def test_settings_arrive_and_those_of_a_corpus_must_fit(
    seqtool: Run, refused: Callable[..., str]
) -> None:
    words = (
        "--order 2 --smoothing kneser-ney --prune 0 1 --min-count 2 --discounts kenlm "
        "--fallback-discounts .5 --special-tokens skip --lowercase --threads 1 --memory 8G"
    )
    assert seqtool("ngram", "train", "text.txt", *words.split(), "-o", "m").code == 0
    config = checkpoint.read_header("m").config
    assert (config["order"], config["smoothing"], config["prune"]) == (2, "kneser-ney", [0, 1])
    assert (config["discounts"], config["fallback"], config["lowercase"]) == ("kenlm", [0.5], True)
    assert seqtool("prepare", "text.txt", "--min-count", 2, "-o", "corpus").code == 0
    refused("ngram train corpus --min-count 3 -o n", "the corpus was prepared with 2")
    assert seqtool("ngram", "train", "corpus", "--min-count", 2, "-o", "n").code == 0


def test_lists_of_words(seqtool: Run) -> None:
    Path("words").write_text("the\ndog\ncat\nsleeps\nhorse\n")
    words = ("text.txt", "--order", 2, "--limit-vocab", "words", "-o", "n", "--json")
    answer = as_json(seqtool("ngram", "train", *words))
    # <unk>, </s>, the, dog, cat, sleeps; the horse does not occur; sees is in every second line
    assert (answer["vocabulary_size"], answer["unknown"]) == (6, 30)
    assert "sees" not in seqtool("ngram", "export", "n", "-").stdout
    Path("words").write_text("the\nDog\nsleeps\ncat\nsees\n")
    result = seqtool("ngram", "train", "text.txt", "--vocab", "words")
    # "dog" is 2 of the 8 words of two lines
    assert "warning: 25% of the words are not in words: see whether" in result.stderr


def test_the_sample_is_the_default(seqtool: Run) -> None:
    result = seqtool("ngram", "train", "--order", 2)
    assert result.code == 0
    assert "the shipped English sample" in result.stderr.splitlines()[0]
    assert "valid perplexity" in result.stderr
    shown = seqtool("eval-ppl")
    assert "no model given: using runs/ngram" in shown.stderr
    assert "  of the grammar   " in shown.stdout


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
    assert result.stderr.startswith("16 n-grams of orders 1 to 2, ")
    assert seqtool("ngram", "export", "x.arpa.gz", "y.arpa", "--threads", 1).code == 0
    assert gzip.decompress(Path("x.arpa.gz").read_bytes()) == Path("y.arpa").read_bytes()
    assert seqtool("ngram", "import", "y.arpa", "-o", "n").stdout == "n\n"
    answer = as_json(seqtool("ngram", "import", "y.arpa", "-o", "n", "--force", "--json"))
    assert (answer["model"], answer["ngrams"], answer["vocabulary_size"]) == ("n", [8, 8], 7)
    assert len({perplexity(seqtool, model) for model in ("y.arpa", "n", "x.arpa.gz")}) == 1


def test_counts(seqtool: Run) -> None:
    result = seqtool("ngram", "counts", "text.txt", "--top", 2)
    # inside sentences: the dog 60; dog sleeps, the cat, cat sees, sees the 30 each: 180 in all
    assert result.stdout == (
        "count\tper million\tn-gram\n60\t333333.333333\tthe dog\n30\t166666.666667\tthe cat\n"
    )
    assert result.stderr == "2 of 5 n-grams of order 2\n"
    words = ("ngram", "counts", "text.txt", "--boundaries", "-o", "counts.tsv", "--json")
    assert len(as_json(seqtool(*words))["ngrams"]) == 8
    assert len(Path("counts.tsv").read_text().splitlines()) == 1 + 8  # all of them
    words = ("ngram", "counts", "text.txt", "--order", 3, "--filter", "cat", "--sort", "text")
    assert as_json(seqtool(*words, "--json")) == {
        "order": 3,
        "distinct": 4,
        "total": 120,
        "ngrams": [
            {"ngram": ["cat", "sees", "the"], "count": 30},
            {"ngram": ["the", "cat", "sees"], "count": 30},
        ],
    }


def test_counts_as_parquet(seqtool: Run) -> None:
    from pyarrow import parquet

    assert seqtool("ngram", "counts", "text.txt", "-o", "counts.parquet").code == 0
    table = parquet.read_table("counts.parquet")
    assert table.column_names == ["count", "per million", "n-gram"]
    assert [str(kind) for kind in table.schema.types] == ["int64", "double", "string"]
    assert table.num_rows == 5


# pruned, and mixed


def test_a_pruned_model(seqtool: Run) -> None:
    lines = "the dog sleeps\nthe cat sees the dog\na dog sees a cat\n" * 9
    Path("text.txt").write_text(f"{lines}the owl sleeps\n")
    assert seqtool("ngram", "train", "text.txt", "--order", 3, "-o", "m").code == 0
    words = ("ngram", "prune", "m", "--threshold", 1e-3, "-o", "p", "--arpa", "p.arpa")
    result = seqtool(*words)
    assert (result.code, result.stdout) == (0, "p\n")
    config = checkpoint.read_header("p").config
    assert config == {**checkpoint.read_header("m").config, "prune_entropy": 1e-3}
    assert perplexity(seqtool, "p") == pytest.approx(perplexity(seqtool, "p.arpa"), rel=1e-5)
    # the same at once
    words = ("text.txt", "--order", 3, "--prune-entropy", 1e-3, "-o", "q", "--json")
    as_json(seqtool("ngram", "train", *words))
    weights = [Path(name, "weights.safetensors").read_bytes() for name in ("p", "q")]
    assert weights[0] == weights[1]
    assert len(weights[0]) < Path("m/weights.safetensors").stat().st_size
    words = ("ngram", "prune", "p.arpa", "--threshold", 0.5, "-o", "r", "--json")
    answer = as_json(seqtool(*words))
    assert (answer["order"], answer["ngrams"][1:]) == (1, [0, 0])


def test_a_model_of_the_words_of_a_list(seqtool: Run, model: str) -> None:
    Path("words.txt").write_text("<eps> 0\n<s> 1\n</s> 2\ndog 3\nthe 4\nowl 5\n#0 6\n")
    words = ("ngram", "prune", model, "--vocab", "words.txt", "-o", "p", "--arpa", "p.arpa")
    answer = as_json(seqtool(*words, "--json"))
    assert answer["ngrams"][0] == 5  # <unk> </s> the dog <s>
    assert perplexity(seqtool, "p") == pytest.approx(perplexity(seqtool, "p.arpa"), rel=1e-5)
    assert checkpoint.read_header("p").data["restricted_to"] == "words.txt"
    seen = [
        as_json(seqtool(*words[:-2], "--force", "--json", *more))["ngrams"]
        for more in ((), ("--threshold", 0.5))
    ]
    assert (seen[0], seen[1][1:]) == (answer["ngrams"], [0, 0])


@pytest.mark.parametrize("option", ["--vocab", "--limit-vocab"])
def test_lists_of_kaldi(seqtool: Run, refused: Callable[..., str], option: str) -> None:
    lists = {
        "list": "dog\nthe\n",
        "words.txt": "<eps> 0\ndog 1\n#0 3\nthe\t2\n</s> 4\n",
        "lexicon.txt": "dog d ao g\nthe dh ah\nthe dh iy\n",
        "lexiconp.txt": "dog 1.0 d ao g\nthe 0.6 dh ah\nthe 0.4 dh iy\n",
        "bad": "dog 1\nthe\n",
    }
    results = set()
    for name, content in lists.items():
        Path(name).write_text(content)
        if name != "bad":
            words = ("text.txt", option, name, "--order", 2, "-o", f"{name}.m", "--json")
            ngrams = as_json(seqtool("ngram", "train", *words))["ngrams"]
            results.add((ngrams, perplexity(seqtool, f"{name}.m")))
    assert len(results) == 1
    refused(f"ngram train text.txt {option} bad -o x", "bad:2: 'the' has nothing after it")


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


def test_a_file_without_the_unknown_word(seqtool: Run) -> None:
    Path("special.txt").write_text("a <unk> b\na b c\n" * 3)
    seqtool("ngram", "train", "special.txt", "--order", 3, "-o", "u")
    seqtool("ngram", "export", "u", "whole.arpa")
    seqtool("ngram", "export", "u", "closed.arpa", "--no-unk")
    whole, closed = (Path(name).read_text() for name in ("whole.arpa", "closed.arpa"))
    wanted = [line for line in whole.splitlines()[5:] if "<unk>" not in line]
    assert closed.splitlines()[5:] == wanted
    Path("new.txt").write_text("unseen words\n", encoding="utf-8")
    noted = seqtool("eval-ppl", "new.txt", "-m", "closed.arpa")
    assert "has no <unk>" in noted.stderr


# of classes


def test_from_classes_to_a_model_in_use(
    seqtool: Run, seqtool_process: Run, refused: Callable[..., str]
) -> None:
    Path("text.txt").write_text("the dog sleeps\nthe cat sees a dog\na dog sees the cat\n" * 9)
    result = seqtool("ngram", "classes", "text.txt", "--num", 3, "-o", "c.tsv")
    assert (result.code, result.stdout) == (0, "c.tsv\n")
    # the classes of the most frequent words first, and of each the most frequent word
    lines = ["dog\t1", "cat\t1", "the\t2", "a\t2", "sees\t3", "sleeps\t3"]
    assert Path("c.tsv").read_text().splitlines() == lines
    shown = seqtool_process("ngram", "classes", "text.txt", "--num", 3).stdout
    assert shown.splitlines() == lines
    words = ("text.txt", "--num", 3, "--sweeps", 1, "-o", "d.tsv", "--json")
    made = as_json(seqtool("ngram", "classes", *words))
    assert (made["num"], made["words"], len(made["moved"])) == (3, 6, 1)
    words = ("text.txt", "--classes", "c.tsv", "--order", 3, "-o", "m", "--json")
    assert as_json(seqtool("ngram", "train", *words))["vocabulary_size"] == 8
    assert seqtool("ngram", "classes", *words[:1], "--num", 3, "--srilm", "-o", "s").code == 0
    shares = [line.split() for line in Path("s").read_text().splitlines()]
    assert [[share[0][-1], share[2]] for share in shares] == [line.split()[::-1] for line in lines]
    for name in ("CLASS-00001", "CLASS-00003"):
        assert sum(float(share[1]) for share in shares if share[0] == name) == pytest.approx(1)
    of_srilm = ("--classes", "s", "--order", 3, "-o", "n")
    assert seqtool("ngram", "train", "text.txt", *of_srilm).code == 0
    assert perplexity(seqtool, "m") == perplexity(seqtool, "n")
    assert seqtool("ngram", "train", "text.txt", "--order", 3, "-o", "words").code == 0
    for command in (
        "generate -m m --seed 1",
        "surprisal other.txt -m m --entropy",
        "eval-ppl other.txt -m m -m words --tune text.txt",
        "analyse context text.txt -m m --json",
    ):
        assert seqtool(*command.split()).code == 0, command
    shown = seqtool("inspect", "m").stdout.splitlines()
    assert ["classes", "5"] in [line.split() for line in shown]
    for command in ("export m x.arpa", "prune m -o p", "mix m words -o p"):
        kind = "m: is a model of kind class-ngram, and only n-gram models"
        assert "without --classes" in refused(f"ngram {command}", kind)
    assert seqtool("prepare", "text.txt", "--unit", "char", "-o", "chars").code == 0
    refused("ngram classes chars --num 3", "classes are of words, but the corpus is of char units")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("train text.txt --prune 0 1 0 --order 3", "must not decrease"),
        ("train text.txt -o 5", "no --order is given"),
        ("train text.txt --smoothing witten-bell --add 2", "add"),
        ("train text.txt --arpa x.klm", "KenLM's binary format"),
        ("train text.txt --memory 1K", "memory"),
        ("train text.txt --classes pair.tsv", "pair.tsv:2"),
        ("train text.txt --classes srilm", "srilm:2"),
        ("prune m --vocab other.txt -o p --threshold 2", "the threshold is 2"),
        ("train text.txt --vocab words --arpa words", "is read, and would be replaced"),
        ("train special.txt", "special.txt:1: "),
        ("counts text.txt --filter dgo", "'dgo' does not occur"),
        ("counts text.txt -o - --json", "both write to stdout"),
        ("classes text.txt --num 7", "the text has 5 words"),
        ("import x.arpa -o p", "x.arpa:5: the log-probability 0.5 is positive"),
        ("train text.txt -o m", "exists already"),
        ("train m", "is a model, not a text"),
        ("export m x.arpa.zst", ".zst"),
        (f"export {KEPT / 'lm-rnn'} x.arpa", "of kind neural-lm, and only n-gram models"),
        ("prune m.arpa -o p --arpa m.arpa", "m.arpa: is read, and would be replaced"),
        ("mix m -o p", "needs two models or more"),
        ("mix m m.arpa -o p --tune text.txt --arpa text.txt", "would be replaced"),
        ("mix m m.arpa -o p --tune text.txt --weights .5,.5", "--tune fits the weights"),
        ("mix m low -o p", "lower-cases the text"),
    ],
)
def test_mistakes(
    seqtool: Run, refused: Callable[..., str], model: str, args: str, message: str
) -> None:
    for name, content in {
        "words": "dog\ncat\nthe\n",
        "pair.tsv": "dog x\ncat\n",
        "srilm": "x 0.5 dog\nx cat\n",
        "special.txt": "a <s> b\n",
        "x.arpa": "\\data\\\nngram 1=1\n\n\\1-grams:\n0.5 a\n\n\\end\\\n",
    }.items():
        Path(name).write_text(content)
    if "m.arpa" in args:
        assert seqtool("ngram", "export", "m", "m.arpa").code == 0
    if "low" in args:
        seqtool("ngram", "train", "text.txt", "--order", 2, "--lowercase", "-o", "low")
    refused(f"ngram {args}", message)


SMALL = ("--order", "3", "--remote", "1", "--gap", "1", "--adjacent", "0", "--table-bits", "10")


@pytest.fixture
def texts() -> None:
    Path("texts").mkdir()
    Path("texts/train.txt").write_text("a b c\nb a\n" * 30, encoding="utf-8")
    Path("texts/valid.txt").write_text("a b\n", encoding="utf-8")


@pytest.mark.usefixtures("texts")
def test_snm_from_training_to_use(seqtool: Run) -> None:
    result = seqtool("ngram", "snm", "texts", "-o", "snm", *SMALL)
    assert (result.code, result.stdout) == (0, "snm\n")
    lines = result.stderr.splitlines()
    assert lines[0] == "60 sentences, 210 tokens with </s>, 0 unknown (0.00%), vocabulary of 5"
    # one feature of no words with 4 targets; <s>, a, b and c with what follows each
    assert [line.split() for line in lines[2:4]] == [
        ["0", "0", "0", "1", "4"],
        ["0", "0", "1", "4", "7"],
    ]
    assert lines[-1] == "next: seqtool eval-ppl -m snm  or  seqtool inspect snm"
    evaluation = as_json(seqtool("eval-ppl", "-m", "snm", "--json"))
    assert lines[-2] == f"valid perplexity {evaluation['perplexity']:.2f}"
    shown = as_json(seqtool("inspect", "snm", "--json"))
    assert (shown["kind"], shown["kinds"][1]["pairs"]) == ("snm", 7)
    per_token = seqtool("eval-ppl", "-m", "snm", "--per-token", "-").stdout.splitlines()
    assert per_token[0].split("\t") == ["sentence", "token", "surprisal", "oov", "features"]
    for command in ("generate --prompt a --seed 1", "surprisal texts/valid.txt"):
        assert seqtool(*command.split(), "-m", "snm").code == 0
    content = as_json(seqtool("ngram", "snm", "texts", "-o", "again", *SMALL, "--json"))
    assert (content["model"], content["tokens"], content["sentences"]) == ("again", 210, 60)
    assert [kind["skipped"] for kind in content["kinds"]] == [0, 0, 0, 1]
    assert len(content["losses"]) == 2
    assert {"valid_perplexity", "train_seconds"} <= content.keys()
    timed = ("--epochs", "0", "--time-limit", "1s", "--lr", "0.1")
    assert seqtool("ngram", "snm", "texts", "-o", "learnt", *timed).code == 0


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("--lr 0", "learning_rate is 0.0"),
        ("--remote 0 --adjacent 1", "adjacent"),
        ("--epochs 0 --lr 0.1", "learning_rate"),
    ],
)
@pytest.mark.usefixtures("texts")
def test_mistakes_of_snm(refused: Callable[..., str], typed: str, message: str) -> None:
    refused(f"ngram snm texts -o snm {typed}", message)
