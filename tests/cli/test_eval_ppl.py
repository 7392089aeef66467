"""`seqtool eval-ppl` as a user meets it: one model, a mixture, models side by side."""

from __future__ import annotations

import csv
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_models import (
    UNIGRAM_ARPA,
    BigramModel,
    random_bigrams,
    two_words,
    use_toys,
    word_tokenizer,
)
from toy_networks import save_lm

from seqtool.lm.comparison import COLUMNS
from seqtool.lm.neural.config import NeuralLMConfig
from seqtool.lm.neural.train import RunRecord
from seqtool.text.prepared import PrepareConfig, prepare

Run = Callable[..., Any]
OTHER = 9  # the seed of a model that is none of the worked examples


def hopeless() -> BigramModel:
    """Return two_words without any probability of b."""
    model = two_words()
    model.log_table[:, 3] = -np.inf
    return model


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give models by their names, and four sentences.

    Of two_words these are 18 bits over 10 tokens and 13 bytes, 15 bits without the unknown z.
    """
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("a b\nb\n\na z b\n")
    Path("tune.txt").write_text("a b\na b\n")
    models = {
        "two": two_words,
        "uniform": lambda: BigramModel(word_tokenizer("ab"), np.full((5, 4), 1 / 4)),
        "far": lambda: random_bigrams(word_tokenizer("abc"), OTHER),
        **{"hopeless": hopeless, "lost": hopeless},
        "runs/lm": two_words,
        "runs/ngram": two_words,
    }
    use_toys(monkeypatch, models)


def answer(result: Any) -> Any:
    """Return the JSON of a command that ended well."""
    assert result.code == 0, result.stderr
    return json.loads(result.stdout)


def test_figures_are_shown(seqtool: Run) -> None:
    result = seqtool("eval-ppl", "text.txt", "-m", "two")
    assert (result.code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[:-1] == [
        "text               text.txt: 4 sentences, 10 tokens with </s>",
        "model              two (toy-bigram)",
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
    content = answer(seqtool("eval-ppl", "text.txt", "-m", "two", "--json", "--reset-state"))
    assert content["perplexity"] == pytest.approx(2**1.6)
    assert (content["tokens"], content["state"], content["split"]) == (10, "reset", None)


def test_tables(seqtool: Run) -> None:
    words = ("eval-ppl", "text.txt", "-m", "two")
    result = seqtool(*words, "--per-token", "-")
    assert result.stdout.splitlines()[:3] == [
        "sentence\ttoken\tsurprisal\toov\tprevious",
        "1\ta\t1.000000\t0\t4",
        "1\tb\t1.000000\t0\t2",
    ]
    assert "perplexity         3.03" in result.stderr.splitlines()  # 2 ** 1.6
    tables = ("--per-token", "tokens.tsv", "--per-sentence", "sentences.tsv")
    answer(seqtool(*words, "--json", *tables))
    assert len(Path("tokens.tsv").read_text().splitlines()) == 11
    assert len(Path("sentences.tsv").read_text().splitlines()) == 5
    mixed = seqtool("eval-ppl", "tune.txt", "-m", "two", "-m", "uniform", "--per-token", "-")
    names = "sentence token surprisal oov surprisal_1 surprisal_2 previous_1 previous_2"
    assert mixed.stdout.splitlines()[0].split("\t") == names.split()


@pytest.mark.parametrize("options", [(), ("--reset-state",), ("--cache",)])
def test_each_file_has_the_figures_that_it_has_alone(seqtool: Run, options: tuple[str]) -> None:
    Path("empty.txt").write_text("")
    texts = ("text.txt", "tune.txt", "empty.txt", "text.txt")
    words = ("-m", "two", *options)
    whole = answer(seqtool("eval-ppl", *texts, *words, "--json"))
    files = whole.pop("files")
    alone = [answer(seqtool("eval-ppl", each["text"], *words, "--json")) for each in files]
    for of_file, same in zip(files, alone, strict=True):
        del of_file["seconds"]
        assert of_file == {name: same[name] for name in of_file} | {"text": of_file["text"]}
    for name in ("tokens", "sentences", "oov", "log10_probability"):
        assert whole[name] == pytest.approx(sum(each[name] for each in files), rel=1e-14)
    lines = seqtool("eval-ppl", *texts, *words).stdout.splitlines()
    assert [line.split()[0] for line in lines[-5:]] == ["file", *texts[:2], texts[3], "all"]
    assert "files" not in answer(seqtool("eval-ppl", texts[0], *words, "--json"))


@pytest.mark.parametrize("words", [("eval-ppl", "-", "--per-token", "-"), ("surprisal", "-")])
def test_a_pipe_gets_a_row_once_its_line_is_read(root: Path, words: tuple[str]) -> None:
    Path("x.arpa").write_text(UNIGRAM_ARPA)
    with subprocess.Popen(
        [sys.executable, "-m", "seqtool", *words, "-m", "x.arpa"],
        env={**os.environ, "PYTHONPATH": str(root)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for sentence in (b"1", b"2"):
            process.stdin.write(b"a\n")  # and stdin stays open
            while not (row := process.stdout.readline()).startswith(sentence):
                assert row
        process.stdin.close()
        assert process.wait() == 0


def test_a_row_does_not_depend_on_the_lines_before_it(seqtool: Run) -> None:
    Path("turned.txt").write_text("a z b\n\nb\na b\n")
    rows = {}
    for name in ("text", "turned"):
        table = f"{name}.csv"
        result = seqtool("eval-ppl", f"{name}.txt", "-m", "two", "--json", "--per-sentence", table)
        assert "each sentence begins anew" in result.stderr
        assert answer(result)["perplexity"] == pytest.approx(2**1.6)  # of what the table has
        rows[name] = [line.split(",")[1:] for line in Path(table).read_text().splitlines()[1:]]
    assert rows["text"] == rows["turned"][::-1]
    words = ("eval-ppl", "text.txt", "-m", "two", "--per-sentence", "x.csv", "--carry-state")
    carried = seqtool(*words)
    assert (carried.stderr, "bits per token     1.8000\n" in carried.stdout) == ("", True)


def test_the_default_model(seqtool: Run) -> None:
    missing = seqtool("eval-ppl", "text.txt")
    assert (missing.code, missing.stdout) == (1, "")
    assert "`seqtool train-lm`" in missing.stderr.splitlines()[1]
    for name in ("runs/ngram", "runs/lm"):
        Path(name).mkdir(parents=True)
        Path(name, "model.json").write_text("{}")
        assert seqtool("eval-ppl", "text.txt").stderr == f"no model given: using {name}\n"


def test_words_without_probability(seqtool: Run) -> None:
    words = ("eval-ppl", "text.txt", "-m", "hopeless")
    result = seqtool(*words)
    assert "perplexity         inf" in result.stdout.splitlines()
    assert "3 tokens have no probability" in result.stderr
    assert answer(seqtool(*words, "--json"))["perplexity"] is None
    content = answer(seqtool(*words, "-m", "lost", "--tune", "tune.txt", "--json"))
    assert content["tuning"]["perplexity"] is None
    assert [part["perplexity"] for part in content["parts"]] == [None, None]


BOTH = ("-m", "two", "-m", "uniform")


# several models, mixed


def perplexity(weight: float) -> float:
    """Return that of two (weight) and uniform on text.txt.

    Bits of two, read as one stream: 1 1 1  2 1  3  3 3 2 1; those of uniform are 2 each.
    """
    probs = [2.0**-bits for bits in (1, 1, 1, 2, 1, 3, 3, 3, 2, 1)]
    return math.exp(-sum(math.log(weight * p + (1 - weight) / 4) for p in probs) / 10)


def test_two_models_with_given_weights(seqtool: Run) -> None:
    result = seqtool("eval-ppl", "text.txt", *BOTH, "--weights", "0.75,0.25")
    assert (result.code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[1:8] == [
        "model              mixture",
        "  weight 0.7500    two (toy-bigram): perplexity 3.48 alone",  # 2 ** 1.8
        "  weight 0.2500    uniform (toy-bigram): perplexity 4.00 alone",
        "state              carried from sentence to sentence",
        "vocabulary         4 words",
        "unknown words      1 of 6 (16.67%)",
        f"perplexity         {perplexity(0.75):.2f}",
    ]
    content = answer(seqtool("eval-ppl", "text.txt", *BOTH, "--json"))
    assert content["weights"] == [0.5, 0.5]
    assert content["perplexity"] == pytest.approx(perplexity(0.5), rel=1e-13)
    assert content["parts"][0] == {
        **{"model": "two", "kind": "toy-bigram", "perplexity": pytest.approx(2**1.8)}
    }
    assert "tuning" not in content


def test_weights_fitted_on_a_text(seqtool: Run) -> None:
    # tune.txt in bits of two: a b </s> 1 1 1, then a after </s> 3, b </s> 1 1; of uniform 2 each.
    # With w the weight of two, five tokens have (1 + w) / 4 and one has (2 - w) / 8. The slope
    # 5 / (1 + w) - 1 / (2 - w) is above 0 up to w = 9 / 6, so all weight goes to two.
    fitted = ("eval-ppl", "text.txt", "-m", "uniform", "-m", "two", "--tune", "tune.txt")
    content = answer(seqtool(*fitted, "--json"))
    assert content["weights"] == pytest.approx([0, 1], abs=1e-6)
    assert content["tuning"]["perplexity"] == pytest.approx(2 ** (8 / 6), rel=1e-6)
    assert content["tuning"]["tokens"] == 6
    lines = seqtool(*fitted).stdout.splitlines()
    assert "  tuned on         tune.txt: 6 tokens, perplexity 2.52" in lines
    assert "the very text that is measured" in seqtool(*fitted[:-1], "./text.txt").stderr


def test_a_prepared_corpus_is_tuned_on_its_valid_split(seqtool: Run, refused: Run) -> None:
    Path("train.txt").write_text("a b\n")
    seqtool("prepare", "train.txt", "--valid", "text.txt", "--test", "tune.txt", "-o", "corpus")
    result = seqtool("eval-ppl", "corpus", *BOTH, "--tune", "corpus", "--json")
    assert result.stderr == ""
    content = answer(result)
    assert (content["split"], content["tokens"]) == ("test", 6)
    assert (content["tuning"]["split"], content["tuning"]["tokens"]) == ("valid", 10)
    same = seqtool("eval-ppl", "corpus", *BOTH, "--tune", "corpus", "--split", "valid")
    assert "the very text that is measured" in same.stderr
    refused("eval-ppl corpus -m two --field body", "corpus: a prepared corpus has no fields")
    Path("text.jsonl").write_text('{"body": "a b"}\n')  # a text beside it has
    answer(seqtool("eval-ppl", "text.jsonl", "--tune", "corpus", *BOTH, "--field=body", "--json"))


# several models, side by side


def test_models_side_by_side(seqtool: Run) -> None:
    for name in ("two", "uniform"):
        Path(name).write_text("x" * 500_000)
    words = ("eval-ppl", "text.txt", "--compare", *BOTH, "--samples", "50")
    result = seqtool(*words)
    assert (result.code, result.stderr) == (0, "")
    lines = [line.split() for line in result.stdout.splitlines()]
    columns = "model kind perplexity bits per byte parameters MB tokens/s training s"
    assert lines[1] == columns.split()
    assert [line[:3] for line in lines[2:4]] == [
        ["two", "toy-bigram", "3.48"],
        ["uniform", "toy-bigram", "4.00"],
    ]
    assert lines[6] == ["model", "difference", "95%", "from", "to", "p"]
    assert lines[7][:2] == ["uniform", "+0.2000"]  # 2 - 1.8
    content = answer(seqtool(*words, "--json", "-o", "t.csv", "--seed", "3"))
    models = content.pop("models")
    assert content == {"text": ["text.txt"], "per": "token", "samples": 50, "seed": 3}
    assert models[0]["against_first"] is None
    lead = models[1]["against_first"]
    assert lead.keys() == {"difference", "p_value", "low", "high", "samples"}
    with Path("t.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert float(rows[1]["difference"]) == pytest.approx(lead["difference"], abs=1e-6)
    alone = seqtool(*words, "-o", "-").stdout.splitlines()
    assert (alone[0].split("\t"), len(alone)) == (list(COLUMNS), 3)


def test_each_model_reads_stdin(seqtool_process: Run, tmp_path: Path) -> None:
    for name, of_a in (("A.arpa", "-0.39794"), ("B.arpa", "-0.6")):
        (tmp_path / name).write_text(UNIGRAM_ARPA.replace("-0.39794", of_a))
    words = ("eval-ppl", "--compare", "-m", "A.arpa", "-m", "B.arpa", "--json")
    first, second = answer(seqtool_process(*words, input=b"a a\na\n", cwd=tmp_path))["models"]
    assert first["tokens"] == second["tokens"] == 5
    assert first["parameters"] == 5
    assert second["perplexity"] > first["perplexity"]
    nothing = seqtool_process(*words, cwd=tmp_path)
    assert "an ARPA file does not say what it was trained on" in nothing.stderr


# models that learn from the text

RATE = 0.0002  # that suits the untrained network
DYNAMIC = ("--dynamic", "--dynamic-rate", RATE)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network (net), unigrams (x.arpa), a text of a a b, b and one to tune on."""
    folder = tmp_path_factory.mktemp("adapting")
    (folder / "train.txt").write_text("a b\nb a a\n" * 30)
    (folder / "text.txt").write_text("a a b\nb\n")
    (folder / "tune.txt").write_text("a a b b\na a a b\n" * 4)
    (folder / "x.arpa").write_text(UNIGRAM_ARPA)
    corpus = prepare([folder / "train.txt"], folder / "corpus", PrepareConfig(split=(80.0, 20.0)))
    save_lm(folder / "net", corpus, 3)
    RunRecord(NeuralLMConfig(), Path("../corpus")).write(folder / "net")
    return folder


@pytest.fixture
def adapting(made: Path, workplace: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # models are files here
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def measure(seqtool: Run, adapting: None) -> Run:
    """Return the JSON of `seqtool eval-ppl ARGS...`."""

    def run(*args: object) -> Any:
        result = seqtool("eval-ppl", *args, "--json")
        assert result.code == 0, result.stderr
        return json.loads(result.stdout)

    return run


def test_a_cache_of_counts(seqtool: Run, measure: Run) -> None:
    words = ("text.txt", "-m", "x.arpa", "--cache", "--cache-decay", 0, "--cache-lambda", 0.1)
    result = seqtool("eval-ppl", *words)
    assert (result.code, result.stderr) == (0, "")
    # before each token: nothing; a; a a; a a b; a a b </s>; a a b </s> b: two are in none
    assert "  weight 0.1000    cache of x.arpa: has 66.7% of the tokens\n" in result.stdout
    assert "  cache            x.arpa: window 2,000, decay 0\n" in result.stdout
    content = measure(*words)
    assert content["adapts_on_text"] == [
        {"kind": "cache", "model": "x.arpa", "window": 2000, "decay": 0.0}
    ]
    part = {"model": "cache of x.arpa", "kind": "cache", "perplexity": None}
    assert content["parts"][1] == {**part, "zero_probability_tokens": 2}


def test_a_cache_is_tuned_with_the_weights_saved_and_used_again(
    seqtool: Run, measure: Run, refused: Run
) -> None:
    words = ("text.txt", "-m", "net", "-m", "x.arpa", "--cache", "--cache-window", 50)
    tuned = (*words, "--tune", "tune.txt", "--save-mixture", "mix")
    content = measure(*tuned, "--per-token", "tokens.tsv")
    assert content["state"] == "carried"
    (chosen,) = content["adapts_on_text"]
    assert (chosen["kind"], chosen["model"], chosen["window"]) == ("cache", "net", 50)
    assert content["tuning"]["cache_settings_tried"] == 54
    given = ["--cache-theta", chosen["theta"], "--cache-decay", chosen["decay"]]
    weights = content["weights"]
    shares = ",".join(str(weight / sum(weights[:2])) for weight in weights[:2])
    again = measure(*words, *given, "--weights", shares, "--cache-lambda", weights[2])
    assert again["perplexity"] == pytest.approx(content["perplexity"], rel=1e-9)
    saved = measure("text.txt", "-m", "mix")
    assert saved["perplexity"] == pytest.approx(content["perplexity"], rel=1e-12)
    assert saved["adapts_on_text"] == content["adapts_on_text"]
    header, *rows = [line.split("\t") for line in Path("tokens.tsv").read_text().splitlines()]
    assert header[4:] == ["surprisal_1", "surprisal_2", "surprisal_3", "order_2"]
    bits = sum(float(row[2]) for row in rows)
    assert 2 ** (bits / 6) == pytest.approx(content["perplexity"], rel=1e-5)
    assert seqtool("generate", "-m", "mix", "--seed", 1).code == 0
    assert seqtool("inspect", "mix").code == 0
    refused("eval-ppl text.txt -m mix --cache", "the mixture has a cache already")
    refused("eval-ppl text.txt -m mix --dynamic", "mix is a mixture, whose parts --dynamic leaves")
    refused("eval-ppl text.txt -m mix --reset-state --per-token q.tsv")
    kept = " ".join(map(str, tuned))
    assert "--force" in refused(f"eval-ppl {kept}")
    measure(*tuned, "--force")
    header_path = Path("mix/model.json")
    header_path.write_text(header_path.read_text().replace('"parts"', '"others"'))
    refused("eval-ppl text.txt -m mix", "damaged model header")


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("none.txt -m two", "none.txt: no such file"),
        ("bad.txt -m two", "bad.txt:2: not UTF-8 at byte 2"),
        ("text.txt -m absent", "absent: no such model"),
        ("text.txt -m two --per-token - --json", "--json"),
        ("text.txt -m two --per-token x --per-sentence x", "--per-token and"),
        ("text.txt -m two --per-token no/x.tsv", "no/x.tsv: the directory"),
        ("x.jsonl -m two --per-token x.jsonl", "x.jsonl: is read, and would be replaced"),
        (
            "x.jsonl -m two -m uniform --compare -o x.jsonl",
            "x.jsonl: is read, and would be replaced",
        ),
        ("text.txt -m two --split test", "--split test needs a prepared corpus"),
        ("text.txt -m two --master local", "--engine spark"),
        ("text.txt -m two --weights 1", "--weights is for a mixture"),
        ("text.txt -m two -m uniform --weights 1,0 --tune tune.txt", "--weights"),
        ("text.txt - -m two -m uniform --tune -", "stdin"),
        ("text.txt -m two -m uniform --force", "--force is for --save-mixture"),
        ("text.txt -m two -m far", "the vocabularies differ: two has 0 words that far lacks"),
        ("text.txt -m two --cache-theta 1", "--cache-theta is for --cache"),
        ("text.txt -m two --cache --reset-state", "--cache"),
        ("text.txt -m two --cache --cache-lambda 0.1 --tune tune.txt", "--cache-lambda"),
        ("text.txt -m two --cache --dynamic --save-mixture mix", "--dynamic"),
        ("text.txt -m two --dynamic", "--dynamic is for neural models, and there is none"),
        ("text.txt -m two --compare", "one model to compare"),
        ("text.txt -m two -m uniform -o x.tsv", "--output is for --compare"),
    ],
)
def test_mistakes(refused: Run, typed: str, words: str) -> None:
    Path("bad.txt").write_bytes(b"a\n\xff\n")
    Path("x.jsonl").write_text('{"text": "a b"}\n')
    refused(f"eval-ppl {typed}", words)


def test_dynamic_evaluation(seqtool: Run, measure: Run, refused: Run) -> None:
    before = {file.name: file.read_bytes() for file in Path("net").iterdir()}
    static = measure("tune.txt", "-m", "net")
    words = ("tune.txt", "-m", "net", *DYNAMIC, "--dynamic-segment", 3)
    content = measure(*words)
    assert content["perplexity"] < static["perplexity"]
    (settings,) = content["adapts_on_text"]
    assert settings.pop("statistics_tokens") > 50
    assert settings == {
        **{"kind": "dynamic", "model": "net", "rate": RATE, "decay": 0.008, "segment": 3}
    }
    assert "adapts_on_text" not in static
    assert {file.name: file.read_bytes() for file in Path("net").iterdir()} == before
    # the training text itself, of which the corpus holds 80%
    named = measure(*words, "--dynamic-stats", "corpus")
    assert named["perplexity"] == content["perplexity"]
    tuned = measure("tune.txt", "-m", "net", *DYNAMIC, "--tune", "tune.txt")
    assert tuned["perplexity"] == pytest.approx(tuned["dynamic_tuning"][0]["perplexity"])
    # all at once; where rate and decay are given, only the others are tuned
    options = ("--cache", "--cache-decay", 0.1, *DYNAMIC, "--dynamic-decay", 0.008)
    content = measure("text.txt", "-m", "net", "-m", "x.arpa", *options, "--tune", "tune.txt")
    assert [learner["kind"] for learner in content["adapts_on_text"]] == ["dynamic", "cache"]
    assert [part["kind"] for part in content["parts"]] == ["neural-lm", "ngram", "cache"]
    assert "dynamic_tuning" not in content
    shutil.move("corpus", "elsewhere")
    hint = refused("eval-ppl text.txt -m net --dynamic", "the corpus that it was trained on is no")
    assert "--dynamic-stats" in hint


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--dynamic --jobs 2", "processes cannot share"),
        ("--cache --jobs 2", "--jobs is for one model"),
        ("--cache --tune read.tsv --per-token read.tsv", "would be replaced"),
        ("--cache --save-mixture net --force", "a part of the mixture is there"),
    ],
)
@pytest.mark.usefixtures("measure")
def test_mistakes_with_models_that_learn(refused: Run, options: str, words: str) -> None:
    shutil.copy("tune.txt", "read.tsv")
    refused(f"eval-ppl text.txt -m net {options}", words)
