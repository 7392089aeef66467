"""`seqtool eval-ppl` with several models, and `seqtool generate` with them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_models import BigramModel, random_bigrams, two_words, word_tokenizer

from seqtool.core.errors import ModelError
from seqtool.lm.mixture.model import MixedModel

Run = Callable[..., Any]
OTHER = 9  # the seed of a model that is none of the worked examples


@pytest.fixture(autouse=True)
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give two, uniform, other, letters and far models by name; and which were opened."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("a b\nb\n\na z b\n")
    Path("tune.txt").write_text("a b\na b\n")
    opened = []
    models = {
        "two": two_words,
        "uniform": lambda: BigramModel(word_tokenizer("ab"), np.full((5, 4), 1 / 4)),
        "turned": lambda: random_bigrams(word_tokenizer("ba"), OTHER),
        "far": lambda: random_bigrams(word_tokenizer("abc"), OTHER),
    }

    def open_toy(path: Path, **_: Any) -> Any:
        opened.append(str(path))
        if str(path) not in models:
            raise ModelError("no such model", path=path)
        return models[str(path)]()

    monkeypatch.setattr("seqtool.lm.mixture.model.open_language_model", open_toy)
    return opened


def perplexity(weight: float) -> float:
    """Return that of two (weight) and uniform on text.txt.

    Bits of two, read as one stream: 1 1 1  2 1  3  3 3 2 1; those of uniform are 2 each.
    """
    probs = [2.0**-bits for bits in (1, 1, 1, 2, 1, 3, 3, 3, 2, 1)]
    return math.exp(-sum(math.log(weight * p + (1 - weight) / 4) for p in probs) / 10)


def test_two_models_with_given_weights(seqtool: Run) -> None:
    result = seqtool("eval-ppl", "text.txt", "-m", "two", "-m", "uniform", "--weights", "0.75,0.25")
    assert (result.code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[:8] == [
        "text               text.txt: 4 sentences, 10 tokens with </s>",
        "model              mixture",
        "  weight 0.7500    two (toy-bigram): perplexity 3.48 alone",  # 2 ** 1.8
        "  weight 0.2500    uniform (toy-bigram): perplexity 4.00 alone",
        "state              carried from sentence to sentence",
        "vocabulary         4 words",
        "unknown words      1 of 6 (16.67%)",
        f"perplexity         {perplexity(0.75):.2f}",
    ]


def test_json(seqtool: Run) -> None:
    result = seqtool("eval-ppl", "text.txt", "-m", "two", "-m", "uniform", "--json")
    content = json.loads(result.stdout)
    assert content["weights"] == [0.5, 0.5]
    assert content["perplexity"] == pytest.approx(perplexity(0.5), rel=1e-13)
    assert content["tokens"] == 10
    assert content["parts"] == [
        {"model": "two", "kind": "toy-bigram", "perplexity": pytest.approx(2**1.8)},
        {"model": "uniform", "kind": "toy-bigram", "perplexity": pytest.approx(4)},
    ]
    assert "tuning" not in content


def test_weights_fitted_on_a_text(seqtool: Run) -> None:
    # tune.txt in bits of two: a b </s> 1 1 1, then a after </s> 3, b </s> 1 1; of uniform 2 each.
    # With w the weight of two, five tokens have (1 + w) / 4 and one has (2 - w) / 8. The slope
    # 5 / (1 + w) - 1 / (2 - w) is above 0 up to w = 9 / 6, so all weight goes to two.
    fitted = ("eval-ppl", "text.txt", "-m", "uniform", "-m", "two", "--tune", "tune.txt")
    content = json.loads(seqtool(*fitted, "--json").stdout)
    assert content["weights"] == pytest.approx([0, 1], abs=1e-6)
    assert content["perplexity"] == pytest.approx(2**1.8, rel=1e-6)
    assert content["tuning"]["perplexity"] == pytest.approx(2 ** (8 / 6), rel=1e-6)
    assert content["tuning"]["tokens"] == 6
    lines = seqtool(*fitted).stdout.splitlines()
    assert "  weight 1.0000    two (toy-bigram): perplexity 3.48 alone" in lines
    assert "  tuned on         tune.txt: 6 tokens, perplexity 2.52" in lines


def test_tuning_on_the_measured_text_is_remarked(seqtool: Run) -> None:
    arguments = ("eval-ppl", "text.txt", "-m", "uniform", "-m", "two", "--tune")
    assert "the very text that is measured" in seqtool(*arguments, "./text.txt").stderr
    assert seqtool(*arguments, "tune.txt").stderr == ""


def test_a_prepared_corpus_is_tuned_on_its_valid_split(seqtool: Run) -> None:
    Path("train.txt").write_text("a b\n")
    seqtool("prepare", "train.txt", "--valid", "text.txt", "--test", "tune.txt", "-o", "corpus")
    models = ("-m", "uniform", "-m", "two")
    result = seqtool("eval-ppl", "corpus", *models, "--tune", "corpus", "--json")
    assert (result.code, result.stderr) == (0, "")
    content = json.loads(result.stdout)
    assert (content["split"], content["tokens"]) == ("test", 6)
    assert (content["tuning"]["split"], content["tuning"]["tokens"]) == ("valid", 10)
    on_text = json.loads(
        seqtool("eval-ppl", "tune.txt", *models, "--tune", "text.txt", "--json").stdout
    )
    assert content["weights"] == on_text["weights"]
    same = seqtool("eval-ppl", "corpus", *models, "--tune", "corpus", "--split", "valid")
    assert "the very text that is measured" in same.stderr


def test_tables(seqtool: Run) -> None:
    arguments = ("eval-ppl", "tune.txt", "-m", "two", "-m", "uniform", "--weights", "1,0")
    result = seqtool(*arguments, "--per-token", "-")
    header, first, *_ = result.stdout.splitlines()
    assert header.split("\t") == [
        *("sentence", "token", "surprisal", "oov"),
        *("surprisal_1", "surprisal_2", "previous_1", "previous_2"),
    ]
    assert first.split("\t") == ["1", "a", "1.000000", "0", "1.000000", "2.000000", "4", "4"]


def test_the_words_may_have_another_order(seqtool: Run) -> None:
    content = json.loads(
        seqtool("eval-ppl", "text.txt", "-m", "two", "-m", "turned", "--json").stdout
    )
    turned = json.loads(seqtool("eval-ppl", "text.txt", "-m", "turned", "--json").stdout)
    assert content["parts"][1]["perplexity"] == pytest.approx(turned["perplexity"], rel=1e-13)


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["--weights", "0.5,0.4"], "the weights sum to 0.9 instead of 1", "0.555556,0.444444"),
        (["--weights", "1"], "1 weight for 2 models", "one weight per model"),
        (["--weights", "0.5;0.5"], "--weights is '0.5;0.5'", "0.3,0.7"),
        (["--weights", "-1,2"], "a weight is -1", "from 0 to 1"),
        (["--weights", "1,0", "--tune", "tune.txt"], "--tune fits the weights", "drop one"),
        (["--tune", "none.txt"], "none.txt: no such file", "path"),
        (["--tune", "-", "-"], "stdin", "once"),
        (["--tune", "-", "--dynamic"], "stdin can be read once, and --tune", "name a"),
        (["--force"], "--force is for --save-mixture", "drop it"),
        (["-m", "far"], "the vocabularies differ: two has 0 words that far lacks", "prepare"),
        (["-m", "absent"], "absent: no such model", ""),
    ],
)
def test_bad_options(
    seqtool: Run, toys: list[str], arguments: list[str], message: str, hint: str
) -> None:
    before = sorted(Path().iterdir())
    models = ["-m", "two"] if arguments[0] == "-m" else ["-m", "two", "-m", "uniform"]
    result = seqtool("eval-ppl", "text.txt", *models, *arguments)
    assert (result.code, result.stdout) == (1, "")
    error, *hints = result.stderr.splitlines()
    assert error.startswith(f"error: {message}")
    assert hint in "".join(hints)
    assert sorted(Path().iterdir()) == before
    if arguments[0] != "-m":
        assert toys == []  # found out before any model is opened


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--weights", "1"], "--weights is for a mixture"),
        (["--tune", "tune.txt"], "--tune is for a mixture"),
        (["--save-mixture", "mix"], "--save-mixture is for a mixture"),
    ],
)
def test_one_model_is_no_mixture(
    seqtool: Run, toys: list[str], arguments: list[str], message: str
) -> None:
    result = seqtool("eval-ppl", "text.txt", "-m", "two", *arguments)
    assert (result.code, result.stdout, toys) == (1, "", [])
    error, hint = result.stderr.splitlines()
    assert error == f"error: {message}"
    assert hint == "hint: name another model with -m, or drop it"


def test_a_text_that_is_missing_is_found_out_before_the_tuning(
    seqtool: Run, toys: list[str]
) -> None:
    result = seqtool("eval-ppl", "no.txt", "-m", "two", "-m", "uniform", "--tune", "tune.txt")
    assert result.stderr.startswith("error: no.txt: no such file")
    assert toys == []


def test_no_probability_at_all(seqtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    model = two_words()
    model.log_table[:, 3] = -np.inf
    monkeypatch.setattr("seqtool.lm.mixture.model.open_language_model", lambda *_, **__: model)
    arguments = ("eval-ppl", "text.txt", "-m", "x", "-m", "y", "--tune", "tune.txt")
    result = seqtool(*arguments, "--json")
    content = json.loads(result.stdout)
    assert content["perplexity"] is None
    assert content["tuning"]["perplexity"] is None
    assert [part["perplexity"] for part in content["parts"]] == [None, None]
    assert "2 tokens of the tuning text have no probability" in result.stderr


def test_generation_from_a_mixture(seqtool: Run) -> None:
    arguments = ("generate", "--num", 6, "--seed", 4, "--max-tokens", 8, "--no-stop", "--json")
    alone = json.loads(seqtool(*arguments, "-m", "two").stdout)
    first = json.loads(seqtool(*arguments, "-m", "two", "-m", "turned", "--weights", "1,0").stdout)
    assert first == alone
    mixed = json.loads(seqtool(*arguments, "-m", "two", "-m", "turned").stdout)
    model = MixedModel([two_words(), random_bigrams(word_tokenizer("ba"), OTHER)])
    for sample in mixed["samples"]:
        ids = model.tokenizer.vocabulary.encode(sample["tokens"])
        (scores,) = model.score_ids([ids])
        total = float(scores.log_probs.sum()) / math.log(10)
        assert sample["log10_probability"] == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-m", "two", "--weights", "1"], "error: --weights is for a mixture"),
        (["-m", "two", "-m", "turned", "--weights", "1,1"], "error: the weights sum to 2"),
        (["-m", "two", "-m", "far"], "error: the vocabularies differ"),
    ],
)
def test_generation_refuses_too(seqtool: Run, arguments: list[str], message: str) -> None:
    result = seqtool("generate", *arguments)
    assert (result.code, result.stdout) == (1, "")
    error, hint = result.stderr.splitlines()
    assert error.startswith(message)
    assert hint.startswith("hint: ")
