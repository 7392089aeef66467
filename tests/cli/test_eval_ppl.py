"""`seqtool eval-ppl` as a user meets it: one model, a mixture, models side by side."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
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

from seqtool.lm.comparison import COLUMNS
from seqtool.lm.mixture.model import MixedModel

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
        "turned": lambda: random_bigrams(word_tokenizer("ba"), OTHER),
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


def test_tables(seqtool: Run, seqtool_process: Run) -> None:
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
    before = Path("tokens.tsv").read_bytes()
    for option in ("--per-token", "--per-sentence", "--compare -o"):
        result = seqtool(*words[:1], "tokens.tsv", *words[2:], *option.split(), "tokens.tsv")
        assert (result.code, Path("tokens.tsv").read_bytes()) == (1, before)
        assert "error: tokens.tsv: is read, and would be replaced" in result.stderr
    mixed = seqtool("eval-ppl", "tune.txt", "-m", "two", "-m", "uniform", "--per-token", "-")
    names = "sentence token surprisal oov surprisal_1 surprisal_2 previous_1 previous_2"
    assert mixed.stdout.splitlines()[0].split("\t") == names.split()


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
    carried = ("eval-ppl", "text.txt", "-m", "two", "--per-sentence", "x.csv", "--carry-state")
    result = seqtool(*carried)
    assert result.stderr == ""
    assert "bits per token     1.8000" in result.stdout.splitlines()


def test_the_default_model(seqtool: Run) -> None:
    missing = seqtool("eval-ppl", "text.txt")
    assert (missing.code, missing.stdout) == (1, "")
    assert "`seqtool train-lm`" in missing.stderr.splitlines()[1]
    for name in ("runs/ngram", "runs/lm"):
        Path(name).mkdir(parents=True)
        Path(name, "model.json").write_text("{}")
        assert seqtool("eval-ppl", "text.txt").stderr == f"no model given: using {name}\n"


def test_the_truth_of_the_sample(seqtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    truth = SimpleNamespace(log10_probability=-6.0)
    monkeypatch.setattr("seqtool.text.datasets.true_perplexity", lambda _: truth)
    result = seqtool("eval-ppl", "text.txt", "-m", "two")
    lines = result.stdout.splitlines()
    # 10 ** (6 / 10), and 6 log2(10) / 13
    assert lines[lines.index("perplexity         3.48") + 2] == "  of the grammar   3.98"
    assert lines[lines.index("bits per byte      1.3846") + 1] == "  of the grammar   1.5332"
    assert "<unk>" in result.stderr  # it reads a word as unknown, so the figures do not compare
    truth.log10_probability = -2.0
    result = seqtool("eval-ppl", "tune.txt", "-m", "two")  # 8 bits: -2.4
    assert result.stderr == ""
    truth.log10_probability = -3.0
    assert "has seen this text" in seqtool("eval-ppl", "tune.txt", "-m", "two").stderr


def test_words_without_probability(seqtool: Run) -> None:
    words = ("eval-ppl", "text.txt", "-m", "hopeless")
    result = seqtool(*words)
    assert "perplexity         inf" in result.stdout.splitlines()
    assert "3 tokens have no probability" in result.stderr
    assert answer(seqtool(*words, "--json"))["perplexity"] is None
    tuned = seqtool(*words, "-m", "lost", "--tune", "tune.txt", "--json")
    assert "2 tokens of the tuning text have no probability" in tuned.stderr
    content = answer(tuned)
    assert content["tuning"]["perplexity"] is None
    assert [part["perplexity"] for part in content["parts"]] == [None, None]


@pytest.mark.parametrize("has_unknown", [False, True])
def test_an_arpa_file_without_the_unknown_word(
    seqtool: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_unknown: bool
) -> None:
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    lines = UNIGRAM_ARPA.splitlines(keepends=True)
    if not has_unknown:
        lines = [line.replace("1=5", "1=4") for line in lines if "<unk>" not in line]
    Path("x.arpa").write_text("".join(lines))
    for text, is_noted in (("a", False), ("a c", not has_unknown)):
        Path("x.txt").write_text(f"{text}\n")
        result = seqtool("eval-ppl", "x.txt", "-m", "x.arpa")
        assert (result.code, "from an ARPA file without <unk>" in result.stderr) == (0, is_noted)


def test_a_table_is_read_as_text_with_a_note(seqtool: Run) -> None:
    Path("x.csv").write_text("item,text\n1,a b\n")
    result = seqtool("eval-ppl", "x.csv", "-m", "two")
    assert (result.code, "surprisal --text-column NAME" in result.stderr) == (0, True)


BOTH = ("-m", "two", "-m", "uniform")


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("none.txt -m two", "none.txt: no such file"),
        ("bad.txt -m two", "bad.txt:2: not UTF-8 at byte 2"),
        ("empty.txt -m two", "empty.txt: the file is empty"),
        ("text.txt -m folder", "folder"),
        ("text.txt -m two --per-token - --json", "--json"),
        ("text.txt -m two --compare -o - --json", "--json"),
        ("text.txt -m two --per-token x --per-sentence x", "--per-token and"),
        ("text.txt -m two --per-token x.txt", "x.txt has no suffix of a table"),
        ("text.txt -m two --per-token no/x.tsv", "no/x.tsv: the directory"),
        ("text.txt -m two --split test", "--split test needs a prepared corpus"),
        ("text.txt -m two --reset-state --carry-state", "--carry-state"),
        ("text.txt -m two --engine=spark --per-token x --per-sentence y", "one table"),
        ("text.txt -m two --engine=spark --tune x", "--tune"),
        ("text.txt -m two --master local", "--engine spark"),
        ("text.txt -m two --weights 1", "--weights is for a mixture"),
        ("text.txt -m two --tune tune.txt", "--tune is for a mixture"),
        ("text.txt -m two --save-mixture mix", "--save-mixture is for a mixture"),
        ("text.txt -m two -m uniform --weights 0.5,0.4", "the weights sum to 0.9 instead of 1"),
        ("text.txt -m two -m uniform --weights 1", "1 weight for 2 models"),
        ("text.txt -m two -m uniform --weights 0.5;0.5", "--weights is '0.5;0.5'"),
        ("text.txt -m two -m uniform --weights 1,0 --tune tune.txt", "--weights"),
        ("text.txt -m two -m uniform --tune none.txt", "none.txt: no such file"),
        ("none.txt -m two -m uniform --tune tune.txt", "none.txt: no such file"),
        ("text.txt - -m two -m uniform --tune -", "stdin"),
        ("text.txt -m two -m uniform --force", "--force is for --save-mixture"),
        ("text.txt -m two -m far", "the vocabularies differ: two has 0 words that far lacks"),
        ("text.txt -m two -m absent", "absent: no such model"),
        ("text.txt -m two --cache-theta 1", "--cache-theta is for --cache"),
        ("text.txt -m two --cache --cache-theta 1e39", "theta is 1e+39"),
        ("text.txt -m two --dynamic-stats text.txt", "--dynamic-stats is for --dynamic"),
        ("text.txt -m two --cache --reset-state", "--cache"),
        ("text.txt -m two --dynamic --reset-state", "--dynamic"),
        ("text.txt -m two --cache --cache-lambda 0.1 --tune tune.txt", "--cache-lambda"),
        ("- -m two --dynamic --dynamic-stats -", "stdin is named twice"),
        ("text.txt -m two --cache --dynamic --save-mixture mix", "--dynamic"),
        (
            "text.txt -m two --dynamic --dynamic-rate 1 --dynamic-decay 0 --tune tune.txt",
            "--tune",
        ),
        ("text.txt -m two --dynamic", "--dynamic is for neural models, and there is none"),
        ("text.txt -m two --cache --cache-theta 1", "--cache-theta compares the states"),
        ("text.txt -m two --compare", "one model to compare"),
        ("text.txt -m two -m two --compare", "two is given twice"),
        ("text.txt -m two -m uniform --compare -o t.png", "t.png has no suffix of a table"),
        ("text.txt -m two -m uniform --compare --cache", "--cache"),
        ("text.txt -m two -m uniform -o x.tsv", "--output is for --compare"),
        ("none.txt -m two -m uniform --compare", "none.txt: no such file"),
    ],
)
def test_a_mistake_is_two_lines(seqtool: Run, typed: str, words: str) -> None:
    Path("bad.txt").write_bytes(b"a\n\xff\n")
    Path("empty.txt").touch()
    Path("folder").mkdir()
    before = sorted(Path().iterdir())
    result = seqtool("eval-ppl", *typed.split())
    assert (result.code, result.stdout) == (1, "")
    error, hint = result.stderr.splitlines()
    assert error.startswith("error: ")
    assert words in error
    assert hint.startswith("hint: ")
    assert sorted(Path().iterdir()) == before


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
    content = answer(seqtool("eval-ppl", "text.txt", *BOTH, "--json"))
    assert content["weights"] == [0.5, 0.5]
    assert content["perplexity"] == pytest.approx(perplexity(0.5), rel=1e-13)
    assert content["parts"] == [
        {"model": "two", "kind": "toy-bigram", "perplexity": pytest.approx(2**1.8)},
        {"model": "uniform", "kind": "toy-bigram", "perplexity": pytest.approx(4)},
    ]
    assert "tuning" not in content
    # the words may have another order
    mixed = answer(seqtool("eval-ppl", "text.txt", "-m", "two", "-m", "turned", "--json"))
    turned = answer(seqtool("eval-ppl", "text.txt", "-m", "turned", "--json"))
    assert mixed["parts"][1]["perplexity"] == pytest.approx(turned["perplexity"], rel=1e-13)


def test_weights_fitted_on_a_text(seqtool: Run) -> None:
    # tune.txt in bits of two: a b </s> 1 1 1, then a after </s> 3, b </s> 1 1; of uniform 2 each.
    # With w the weight of two, five tokens have (1 + w) / 4 and one has (2 - w) / 8. The slope
    # 5 / (1 + w) - 1 / (2 - w) is above 0 up to w = 9 / 6, so all weight goes to two.
    fitted = ("eval-ppl", "text.txt", "-m", "uniform", "-m", "two", "--tune", "tune.txt")
    content = answer(seqtool(*fitted, "--json"))
    assert content["weights"] == pytest.approx([0, 1], abs=1e-6)
    assert content["perplexity"] == pytest.approx(2**1.8, rel=1e-6)
    assert content["tuning"]["perplexity"] == pytest.approx(2 ** (8 / 6), rel=1e-6)
    assert content["tuning"]["tokens"] == 6
    shown = seqtool(*fitted)
    assert shown.stderr == ""
    lines = shown.stdout.splitlines()
    assert "  weight 1.0000    two (toy-bigram): perplexity 3.48 alone" in lines
    assert "  tuned on         tune.txt: 6 tokens, perplexity 2.52" in lines
    assert "the very text that is measured" in seqtool(*fitted[:-1], "./text.txt").stderr


def test_a_prepared_corpus_is_tuned_on_its_valid_split(seqtool: Run) -> None:
    Path("train.txt").write_text("a b\n")
    seqtool("prepare", "train.txt", "--valid", "text.txt", "--test", "tune.txt", "-o", "corpus")
    result = seqtool("eval-ppl", "corpus", *BOTH, "--tune", "corpus", "--json")
    assert result.stderr == ""
    content = answer(result)
    assert (content["split"], content["tokens"]) == ("test", 6)
    assert (content["tuning"]["split"], content["tuning"]["tokens"]) == ("valid", 10)
    on_text = answer(seqtool("eval-ppl", "tune.txt", *BOTH, "--tune", "text.txt", "--json"))
    assert content["weights"] == on_text["weights"]
    same = seqtool("eval-ppl", "corpus", *BOTH, "--tune", "corpus", "--split", "valid")
    assert "the very text that is measured" in same.stderr
    for more in ((), ("--tune", "corpus"), ("--compare",)):
        refused = seqtool("eval-ppl", "corpus", *BOTH, *more, "--field", "body")
        assert refused.stderr.splitlines()[0].endswith("corpus: a prepared corpus has no fields")
    Path("text.jsonl").write_text('{"body": "a b"}\n')  # a text beside it has
    for texts in (("corpus", "--tune", "text.jsonl"), ("text.jsonl", "--tune", "corpus")):
        answer(seqtool("eval-ppl", *texts, *BOTH, "--field", "body", "--json"))


def test_generation_from_a_mixture(seqtool: Run) -> None:
    arguments = ("generate", "--num", 6, "--seed", 4, "--max-tokens", 8, "--no-stop", "--json")
    alone = answer(seqtool(*arguments, "-m", "two"))
    first = answer(seqtool(*arguments, "-m", "two", "-m", "turned", "--weights", "1,0"))
    assert first == alone
    mixed = answer(seqtool(*arguments, "-m", "two", "-m", "turned"))
    model = MixedModel([two_words(), random_bigrams(word_tokenizer("ba"), OTHER)])
    for sample in mixed["samples"]:
        ids = model.tokenizer.vocabulary.encode(sample["tokens"])
        (scores,) = model.score_ids([ids])
        total = float(scores.log_probs.sum()) / math.log(10)
        assert sample["log10_probability"] == pytest.approx(total, rel=1e-12)


# several models, side by side


def test_models_side_by_side(seqtool: Run) -> None:
    for name in ("two", "uniform"):
        Path(name).write_text("x" * 500_000)
    words = ("eval-ppl", "text.txt", "--compare", *BOTH, "--samples", "50")
    result = seqtool(*words)
    assert (result.code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == "text.txt: 4 sentences"
    columns = "model kind perplexity bits per byte parameters MB tokens/s training s"
    assert lines[1].split() == columns.split()
    for line, name, figure in zip(lines[2:4], ("two", "uniform"), ("3.48", "4.00"), strict=True):
        cells = line.split()
        assert cells[:3] == [name, "toy-bigram", figure]
        assert (cells[4], cells[5], cells[7]) == ("-", "0.5", "-")
    assert lines[5] == "against two: bits per token, paired bootstrap over sentences"
    assert lines[6].split() == ["model", "difference", "95%", "from", "to", "p"]
    assert lines[7].split()[:2] == ["uniform", "+0.2000"]  # 2 - 1.8
    content = answer(seqtool(*words, "--json", "-o", "t.csv", "--seed", "3"))
    models = content.pop("models")
    assert content == {"text": ["text.txt"], "per": "token", "samples": 50, "seed": 3}
    assert models[0]["against_first"] is None
    lead = models[1]["against_first"]
    assert lead.keys() == {"difference", "p_value", "low", "high", "samples"}
    with Path("t.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert (rows[0]["difference"], rows[0]["parameters"]) == ("", "")
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
