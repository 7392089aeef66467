"""`seqtool eval-ppl` with models that learn from the text: --cache and --dynamic."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toy_models import UNIGRAM_ARPA
from toy_networks import save_lm

from seqtool.lm.mixture.config import WEIGHT, CacheConfig
from seqtool.lm.neural.config import DynamicConfig, NeuralLMConfig
from seqtool.lm.neural.train import RunRecord
from seqtool.text.prepared import PrepareConfig, prepare

Run = Callable[..., Any]

RATE = 0.0002  # that suits the untrained network
UNIGRAMS = [0.4, 0.4, 0.3, 0.2, 0.3, 0.2]  # a a b </s> b </s>
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


@pytest.fixture(autouse=True)
def workplace(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def measure(seqtool: Run) -> Run:
    """Return the JSON of `seqtool eval-ppl ARGS...`."""

    def run(*args: object) -> Any:
        result = seqtool("eval-ppl", *args, "--json")
        assert result.code == 0, result.stderr
        return json.loads(result.stdout)

    return run


def test_a_cache_of_counts(seqtool: Run, measure: Run) -> None:
    # before each token: nothing; a; a a; a a b; a a b </s>; and so on, all in the window
    shares = [1 / 4, 1, 0, 0, 1 / 4, 1 / 5]
    probs = [0.9 * p + 0.1 * share for p, share in zip(UNIGRAMS, shares, strict=True)]
    words = ("text.txt", "-m", "x.arpa", "--cache", "--cache-decay", 0, "--cache-lambda", 0.1)
    result = seqtool("eval-ppl", *words)
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
    content = measure(*words)
    assert content["perplexity"] == pytest.approx(perplexity, rel=1e-5)
    assert content["adapts_on_text"] == [
        {"kind": "cache", "model": "x.arpa", "window": 2000, "decay": 0.0}
    ]
    part = {"model": "cache of x.arpa", "kind": "cache", "perplexity": None}
    assert content["parts"][1] == {**part, "zero_probability_tokens": 2}


def test_a_cache_is_tuned_with_the_weights_saved_and_used_again(seqtool: Run, measure: Run) -> None:
    words = ("text.txt", "-m", "net", "-m", "x.arpa", "--cache", "--cache-window", 50)
    tuned = (*words, "--tune", "tune.txt", "--save-mixture", "mix", "--json")
    made = seqtool("eval-ppl", *tuned, "--per-token", "tokens.tsv")
    assert (made.code, made.stderr.count("\n")) == (0, 1)
    assert "a row depends on the sentences before it" in made.stderr
    content = json.loads(made.stdout)
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
    for more, error in (
        (("--cache",), "the mixture has a cache already"),
        (("--dynamic",), "mix is a mixture, whose parts --dynamic leaves"),
        (("--reset-state", "--per-token", "q.tsv"), ""),
    ):
        refused = seqtool("eval-ppl", "text.txt", "-m", "mix", *more)
        assert (refused.code, refused.stdout) == (1, "")
        assert refused.stderr.startswith(f"error: {error}")
    assert not Path("q.tsv").exists()
    kept = seqtool("eval-ppl", *tuned)
    assert kept.stderr.splitlines()[-1] == (
        "hint: replace it with --force, or choose another directory"
    )
    assert seqtool("eval-ppl", *tuned, "--force").code == 0
    header_path = Path("mix/model.json")
    header_path.write_text(header_path.read_text().replace('"parts"', '"others"'))
    for texts in ((), ("text.txt",)):
        assert "damaged model header" in seqtool("eval-ppl", *texts, "-m", "mix").stderr


def test_dynamic_evaluation(seqtool: Run, measure: Run) -> None:
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
    # the training text itself, of which the corpus holds 80%
    named = seqtool("eval-ppl", *words, "--dynamic-stats", "corpus")
    assert f"perplexity         {content['perplexity']:.2f}" in named.stdout.splitlines()
    assert {file.name: file.read_bytes() for file in Path("net").iterdir()} == before
    fast = ("--dynamic", "--dynamic-rate", 0.1, "--dynamic-decay", 0, "--dynamic-segment", 3)
    lost = seqtool("eval-ppl", "tune.txt", "-m", "net", *fast)
    assert "worse than that of guessing among all symbols" in lost.stderr


def test_dynamic_evaluation_is_tuned(seqtool: Run, measure: Run) -> None:
    options = (*DYNAMIC, "--tune", "tune.txt")
    result = seqtool("eval-ppl", "text.txt", "-m", "net", *options)
    assert "dynamic: rate 0.0002, decay 0.008: perplexity " in result.stderr
    (row,) = [line for line in result.stdout.splitlines() if line.startswith("  dynamic ")]
    assert "settings on the first 40 tokens of tune.txt, perplexity" in row
    same = seqtool("eval-ppl", "tune.txt", "-m", "net", *options, "--json")
    assert "the settings were fitted on the very text that is measured" in same.stderr
    content = json.loads(same.stdout)
    assert content["perplexity"] == pytest.approx(content["dynamic_tuning"][0]["perplexity"])


def test_all_at_once(measure: Run) -> None:
    options = ("--cache", "--cache-decay", 0.1, "--dynamic", "--tune", "tune.txt")
    content = measure("text.txt", "-m", "net", "-m", "x.arpa", *options)
    assert [found["kind"] for found in content["adapts_on_text"]] == ["dynamic", "cache"]
    assert [part["kind"] for part in content["parts"]] == ["neural-lm", "ngram", "cache"]
    assert math.fsum(content["weights"]) == pytest.approx(1)
    # where rate and decay are given, only the others are tuned
    options += ("--dynamic-rate", RATE, "--dynamic-decay", 0.008)
    given = measure("text.txt", "-m", "net", *options)
    assert given["adapts_on_text"][0]["rate"] == RATE
    assert "dynamic_tuning" not in given


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--dynamic --dynamic-stats-tokens 5", "statistics_tokens is 5"),
        ("--dynamic --jobs 2", "processes cannot share"),
        ("--cache --jobs 2", "--jobs is for one model"),
        ("--cache --tune read.tsv --per-token read.tsv", "would be replaced"),
        ("--dynamic --dynamic-stats read.tsv --per-sentence read.tsv", "would be replaced"),
        ("--cache --save-mixture net --force", "a part of the mixture is there"),
    ],
)
def test_a_mistake_is_two_lines(seqtool: Run, options: str, words: str) -> None:
    shutil.copy("tune.txt", "read.tsv")
    before = sorted(Path().iterdir())
    result = seqtool("eval-ppl", "text.txt", "-m", "net", *options.split())
    assert (result.code, result.stdout) == (1, "")
    error, hint = result.stderr.splitlines()
    assert words in error
    assert hint.startswith("hint: ")
    assert sorted(Path().iterdir()) == before
    assert Path("read.tsv").read_bytes() == Path("tune.txt").read_bytes()


def test_a_training_text_that_is_not_there(seqtool: Run) -> None:
    words = ("eval-ppl", "text.txt", "-m", "net", "--dynamic")
    shutil.move("corpus", "elsewhere")
    gone = seqtool(*words)
    assert gone.stderr.startswith("error: net: the corpus that it was trained on is no longer")
    assert "--dynamic-stats" in gone.stderr
    Path("net/run.json").unlink()
    assert seqtool(*words).stderr.startswith("error: net: the run's record")


def test_the_help_names_the_defaults(seqtool: Run) -> None:
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
        shown = f"{value:,}" if isinstance(value, int) else f"{value:g}"
        after = text.partition(f" --{name} ")[2].partition(" --")[0]
        assert f"({shown})." in after, name
