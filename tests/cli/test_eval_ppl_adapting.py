"""`seqtool eval-ppl` with models that learn from the text: --cache and --dynamic."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toy_models import UNIGRAM_ARPA, two_words
from toy_networks import save_lm

from seqtool.lm.mixture import model as opening
from seqtool.lm.mixture.config import WEIGHT, CacheConfig
from seqtool.lm.neural.config import DynamicConfig, NeuralLMConfig
from seqtool.lm.neural.train import RunRecord
from seqtool.text.prepared import PrepareConfig, prepare

Run = Callable[..., Any]

RATE = 0.0002  # that suits the untrained network
UNIGRAMS = [0.4, 0.4, 0.3, 0.2, 0.3, 0.2]  # a a b </s> b </s>


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a network (net), unigrams (x.arpa), a text of a a b, b and one to tune on."""
    monkeypatch.chdir(tmp_path)
    Path("train.txt").write_text("a b\nb a a\n" * 30)
    Path("text.txt").write_text("a a b\nb\n")
    Path("tune.txt").write_text("a a b b\na a a b\n" * 4)
    Path("x.arpa").write_text(UNIGRAM_ARPA)
    corpus = prepare(["train.txt"], "corpus", PrepareConfig(split=(80.0, 20.0)))
    save_lm(Path("net"), corpus, 3)
    RunRecord(NeuralLMConfig(), corpus.path.resolve()).write(Path("net"))


def sums() -> dict[str, str]:
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in Path("net").iterdir()
    }


@pytest.mark.parametrize(
    "options",
    [
        ("--cache", "--tune", "read.tsv", "--per-token"),
        ("--dynamic", "--dynamic-stats", "read.tsv", "--per-sentence"),
    ],
)
def test_no_table_takes_the_place_of_what_an_option_reads(
    seqtool: Run, options: tuple[str, ...]
) -> None:
    Path("read.tsv").write_text("a a b b\na a a b\n" * 4)
    before = Path("read.tsv").read_bytes()
    result = seqtool("eval-ppl", "text.txt", "-m", "net", *options, "read.tsv")
    assert result.stderr.startswith("error: read.tsv: is read, and would be replaced\n")
    assert (result.code, Path("read.tsv").read_bytes()) == (1, before)


@pytest.mark.parametrize(
    ("options", "error", "hint"),
    [
        (
            ("--cache", "--cache-theta", "1e39"),
            "theta is 1e+39, but must be at most 1e+06",
            "theta",
        ),
        (
            ("--cache", "--cache-decay", "1e39"),
            "decay is 1e+39, but must be at most 1e+06",
            "decay",
        ),
        (
            ("--dynamic", "--dynamic-stats-tokens", 5),
            "statistics_tokens is 5, but gradients are taken from windows of 20 tokens",
            "read more with --dynamic-stats-tokens, or lower --dynamic-segment",
        ),
    ],
)
def test_a_setting_out_of_range_is_named(
    seqtool: Run, options: tuple[str, ...], error: str, hint: str
) -> None:
    result = seqtool("eval-ppl", "text.txt", "-m", "net", *options)
    assert (result.code, result.stdout) == (1, "")
    first, second = result.stderr.splitlines()
    assert first == f"error: {error}"
    assert hint in second


def test_a_corpus_has_no_fields(seqtool: Run) -> None:
    for command in (
        ("eval-ppl", "corpus", "-m", "net"),
        ("eval-ppl", "-m", "net"),
        ("eval-ppl", "corpus", "-m", "net", "--cache", "--tune", "corpus"),
        ("compare", "corpus", "-m", "net", "-m", "x.arpa"),
    ):
        result = seqtool(*command, "--field", "body")
        error, hint = result.stderr.splitlines()[-2:]
        assert error.endswith("corpus: a prepared corpus has no fields")
        assert (result.code, hint) == (1, "hint: leave --field out")
    # a text beside it has
    Path("text.jsonl").write_text('{"body": "a a b b"}\n{"body": "a a a b"}\n')
    for texts in (("corpus", "--tune", "text.jsonl"), ("text.jsonl", "--tune", "corpus")):
        result = seqtool("eval-ppl", *texts, "-m", "net", "--cache", "--field", "body", "--json")
        assert result.code == 0, result.stderr


def test_a_cache_of_counts(seqtool: Run) -> None:
    # before each token: nothing; a; a a; a a b; a a b </s>; and so on, all in the window
    shares = [1 / 4, 1, 0, 0, 1 / 4, 1 / 5]
    probs = [0.9 * p + 0.1 * share for p, share in zip(UNIGRAMS, shares, strict=True)]
    options = ("--cache", "--cache-decay", 0, "--cache-lambda", 0.1)
    result = seqtool("eval-ppl", "text.txt", "-m", "x.arpa", *options)
    assert (result.code, result.stderr) == (0, "")
    perplexity = math.prod(probs) ** (-1 / 6)
    alone = math.prod(UNIGRAMS) ** (-1 / 6)
    assert result.stdout.splitlines()[1:10] == [
        "model              mixture",
        f"  weight 0.9000    x.arpa (ngram): perplexity {alone:.2f} alone",
        "  weight 0.1000    cache of x.arpa: has 66.7% of the tokens",
        "adapting           to this very text, as it is read; fixed models do not compare",
        "  cache            x.arpa: window 2,000, decay 0",
        "state              carried from sentence to sentence",
        "vocabulary         4 words",
        "unknown words      0 of 4 (0.00%)",
        f"perplexity         {perplexity:.2f}",
    ]
    content = json.loads(seqtool("eval-ppl", "text.txt", "-m", "x.arpa", *options, "--json").stdout)
    assert content["perplexity"] == pytest.approx(perplexity, rel=1e-5)
    assert content["adapts_on_text"] == [
        {"kind": "cache", "model": "x.arpa", "window": 2000, "decay": 0.0}
    ]
    assert content["parts"][1] == {
        "model": "cache of x.arpa",
        "kind": "cache",
        "perplexity": None,
        "zero_probability_tokens": 2,
    }


def test_a_cache_is_tuned_with_the_weights_saved_and_used_again(seqtool: Run) -> None:
    arguments = ("text.txt", "-m", "net", "-m", "x.arpa", "--cache", "--cache-window", 50)
    tuned = (*arguments, "--tune", "tune.txt", "--save-mixture", "mix", "--json")
    made = seqtool("eval-ppl", *tuned, "--per-token", "tokens.tsv")
    assert (made.code, made.stderr.count("\n")) == (0, 1)
    assert "a row depends on the sentences before it" in made.stderr
    content = json.loads(made.stdout)
    assert content["state"] == "carried"
    (told,) = content["adapts_on_text"]
    assert (told["kind"], told["model"], told["window"]) == ("cache", "net", 50)
    assert content["tuning"]["cache_settings_tried"] == 54
    given = ("--cache-theta", told["theta"], "--cache-decay", told["decay"])
    weights = content["weights"]
    rest = sum(weights[:2])
    shares = ",".join(str(weight / rest) for weight in weights[:2])
    again = seqtool(
        "eval-ppl",
        *arguments,
        *given,
        "--json",
        "--weights",
        shares,
        "--cache-lambda",
        weights[2],
    )
    assert json.loads(again.stdout)["perplexity"] == pytest.approx(content["perplexity"], rel=1e-9)
    saved = json.loads(seqtool("eval-ppl", "text.txt", "-m", "mix", "--json").stdout)
    assert saved["perplexity"] == pytest.approx(content["perplexity"], rel=1e-12)
    assert saved["adapts_on_text"] == content["adapts_on_text"]
    assert seqtool("generate", "-m", "mix", "--seed", 1).code == 0
    assert seqtool("inspect", "mix").code == 0
    twice = seqtool("eval-ppl", "text.txt", "-m", "mix", "--cache")
    assert twice.stderr.startswith("error: the mixture has a cache already")
    header, *rows = [line.split("\t") for line in Path("tokens.tsv").read_text().splitlines()]
    assert header[4:] == ["surprisal_1", "surprisal_2", "surprisal_3", "order_2"]
    bits = sum(float(row[2]) for row in rows)
    assert 2 ** (bits / 6) == pytest.approx(content["perplexity"], rel=1e-5)


def test_dynamic_evaluation(seqtool: Run) -> None:
    before = sums()
    static = json.loads(seqtool("eval-ppl", "tune.txt", "-m", "net", "--json").stdout)
    options = ("--dynamic", "--dynamic-rate", RATE, "--dynamic-segment", 3)
    result = seqtool("eval-ppl", "tune.txt", "-m", "net", *options, "--json")
    assert (result.code, result.stderr) == (0, "")
    content = json.loads(result.stdout)
    assert content["perplexity"] < static["perplexity"]
    (told,) = content["adapts_on_text"]
    assert told.pop("statistics_tokens") > 50
    assert told == {"kind": "dynamic", "model": "net", "rate": RATE, "decay": 0.008, "segment": 3}
    assert "adapts_on_text" not in static
    # the training text itself, of which the corpus holds 80%
    named = seqtool("eval-ppl", "tune.txt", "-m", "net", *options, "--dynamic-stats", "corpus")
    assert f"perplexity         {content['perplexity']:.2f}" in named.stdout.splitlines()
    assert sums() == before


def test_a_rate_that_is_too_high_is_told(seqtool: Run) -> None:
    options = ("--dynamic", "--dynamic-rate", 0.1, "--dynamic-decay", 0, "--dynamic-segment", 3)
    result = seqtool("eval-ppl", "tune.txt", "-m", "net", *options, "--json")
    content = json.loads(result.stdout)
    assert content["perplexity"] > content["vocabulary_size"]
    assert "worse than that of guessing among all symbols" in result.stderr
    assert "a lower --dynamic-rate may keep the network in balance" in result.stderr


def test_dynamic_evaluation_is_tuned(seqtool: Run) -> None:
    options = ("--dynamic", "--dynamic-rate", RATE, "--tune", "tune.txt")
    result = seqtool("eval-ppl", "text.txt", "-m", "net", *options)
    assert result.code == 0
    assert "dynamic: rate 0.0002, decay 0.008: perplexity " in result.stderr
    (row,) = [line for line in result.stdout.splitlines() if line.startswith("  dynamic ")]
    assert "settings on the first 40 tokens of tune.txt, perplexity" in row
    same = seqtool("eval-ppl", "tune.txt", "-m", "net", *options, "--json")
    assert "the settings were fitted on the very text that is measured" in same.stderr
    content = json.loads(same.stdout)
    assert content["perplexity"] == pytest.approx(content["dynamic_tuning"][0]["perplexity"])


def test_all_at_once(seqtool: Run) -> None:
    models = ("-m", "net", "-m", "x.arpa")
    options = ("--cache", "--cache-decay", 0.1, "--dynamic", "--tune", "tune.txt", "--json")
    content = json.loads(seqtool("eval-ppl", "text.txt", *models, *options).stdout)
    assert [found["kind"] for found in content["adapts_on_text"]] == ["dynamic", "cache"]
    # where rate and decay are given, only the others are tuned
    options += ("--dynamic-rate", RATE, "--dynamic-decay", 0.008)
    given = json.loads(seqtool("eval-ppl", "text.txt", "-m", "net", *options).stdout)
    assert given["adapts_on_text"][0]["rate"] == RATE
    assert "dynamic_tuning" not in given
    assert [part["kind"] for part in content["parts"]] == ["neural-lm", "ngram", "cache"]
    assert math.fsum(content["weights"]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["--cache-theta", "1"], "--cache-theta is for --cache", "add --cache"),
        (["--dynamic-stats", "train.txt"], "--dynamic-stats is for --dynamic", "add --dynamic"),
        (["--cache", "--reset-state"], "--cache learns from the text", "drop one"),
        (["--dynamic", "--reset-state"], "--dynamic learns from the text", "drop one"),
        (["--dynamic", "--dynamic-rate", "0"], "--dynamic-rate is 0", "above 0"),
        (
            ["--cache", "--cache-lambda", "0.1", "--tune", "tune.txt"],
            "--tune fits the weights that --cache-lambda gives",
            "drop one",
        ),
        (
            ["-", "--dynamic", "--dynamic-stats", "-"],
            "stdin is named twice",
            "give - once",
        ),
        (["--dynamic", "--save-mixture", "mix"], "--save-mixture is for a mixture", "-m"),
        (
            ["--cache", "--dynamic", "--save-mixture", "mix"],
            "what --dynamic learns from a text is not kept",
            "drop",
        ),
        (
            ["--dynamic", "--dynamic-rate", "1", "--dynamic-decay", "0", "--tune", "tune.txt"],
            "--dynamic-rate and --dynamic-decay leave --tune nothing to choose",
            "drop",
        ),
    ],
)
def test_bad_options(
    seqtool: Run,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
    hint: str,
) -> None:
    def refuse(path: Path, **_: Any) -> Any:
        raise AssertionError("found out before any model is opened")

    monkeypatch.setattr(opening, "open_language_model", refuse)
    result = seqtool("eval-ppl", "text.txt", "-m", "net", *arguments)
    assert (result.code, result.stdout) == (1, "")
    error, hints = result.stderr.splitlines()
    assert error.startswith(f"error: {message}")
    assert hint in hints
    assert not Path("mix").exists()


def test_a_table_resets_nothing_that_adapts(seqtool: Run) -> None:
    """--reset-state is refused, with a table as without one."""
    saved = seqtool("eval-ppl", "text.txt", "-m", "net", "--cache", "--save-mixture", "mix")
    assert saved.code == 0, saved.stderr
    asked = ("eval-ppl", "text.txt", "-m", "mix", "--reset-state")
    for arguments in (asked, (*asked, "--per-token", "q.tsv")):
        result = seqtool(*arguments)
        assert (result.code, result.stdout) == (1, "")
        assert result.stderr.startswith("error: ")
    assert not Path("q.tsv").exists()


def test_processes_do_not_share_what_adapts(seqtool: Run) -> None:
    """No hint names --reset-state, which adapting refuses."""
    result = seqtool("eval-ppl", "text.txt", "-m", "net", "--dynamic", "--jobs", "2")
    assert result.stderr.splitlines()[-1] == "hint: leave out --jobs"


def test_models_that_cannot(seqtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = seqtool("eval-ppl", "text.txt", "-m", "x.arpa", "--cache", "--cache-theta", 1)
    assert counts.stderr.startswith("error: --cache-theta compares the states of a network")
    none = seqtool("eval-ppl", "text.txt", "-m", "x.arpa", "--dynamic")
    assert none.stderr.startswith("error: --dynamic is for neural models, and there is none")
    seqtool("eval-ppl", "text.txt", "-m", "net", "-m", "x.arpa", "--save-mixture", "mix")
    hidden = seqtool("eval-ppl", "text.txt", "-m", "mix", "--dynamic")
    assert hidden.stderr.startswith("error: mix is a mixture, whose parts --dynamic leaves")
    shutil.move("corpus", "elsewhere")
    gone = seqtool("eval-ppl", "text.txt", "-m", "net", "--dynamic")
    assert gone.stderr.startswith("error: net: the corpus that it was trained on is no longer")
    assert "--dynamic-stats" in gone.stderr
    Path("net/run.json").unlink()
    unknown = seqtool("eval-ppl", "text.txt", "-m", "net", "--dynamic")
    assert unknown.stderr.startswith("error: net: the run's record, which names the training text")
    monkeypatch.setattr(opening, "open_language_model", lambda *_, **__: two_words())
    assert seqtool("eval-ppl", "text.txt", "-m", "toy", "--cache").code == 0


def test_the_help_tells_the_defaults(seqtool: Run) -> None:
    text = " ".join(seqtool("eval-ppl", "--help").stdout.replace("│", " ").split())
    defaults: dict[str, float] = {
        **{f"cache-{name}": value for name, value in vars(CacheConfig()).items()},
        "cache-lambda": WEIGHT,
        "dynamic-rate": DynamicConfig().rate,
        "dynamic-decay": DynamicConfig().decay,
        "dynamic-segment": DynamicConfig().segment,
        "dynamic-stats-tokens": DynamicConfig().statistics_tokens,
    }
    for name, value in defaults.items():
        help_of_option = text.partition(f" --{name} ")[2].partition(" --")[0]
        shown = f"{value:,}" if isinstance(value, int) else f"{value:g}"
        assert re.search(rf"; {shown} if (neither given nor tuned|not given)\.", help_of_option), (
            name
        )
