"""Perplexity: numbers worked out by hand, brute force, and what is written and refused."""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_models import (
    BigramModel,
    random_bigrams,
    two_words,
    word_tokenizer,
)

from seqtool.core.errors import ConfigError, DataError, ModelError
from seqtool.core.processes import Pool
from seqtool.lm.evaluation import LMEvaluation, evaluate_lm, scorer
from seqtool.text.prepared import PreparedCorpus, prepare

# Four sentences; with `</s>` they have 3 + 2 + 1 + 4 = 10 tokens, and z is unknown.
TEXT = "a b\nb\n\na z b\n"
# Bits of each token, read as one stream (rows of two_words: <s>, then always </s>):
#   a b </s>  1 1 1     b </s>  2 1     </s>  3     a <unk> b </s>  3 3 2 1
BITS = [1, 1, 1, 2, 1, 3, 3, 3, 2, 1]  # 18 in all, 15 without <unk>
# With each sentence begun at <s>:
#   a b </s>  1 1 1     b </s>  2 1     </s>  3     a <unk> b </s>  1 3 2 1
RESET_BITS = [1, 1, 1, 2, 1, 3, 1, 3, 2, 1]  # 16 in all, 13 without <unk>

KEYS = [
    *("perplexity", "perplexity_without_oov", "tokens", "sentences", "oov", "vocabulary_size"),
    *("log10_probability", "bits_per_token", "bits_per_byte", "seconds", "unit", "state"),
]


@pytest.fixture
def text_path(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def test_figures_by_hand(text_path: Path) -> None:
    result = evaluate_lm(two_words(), text_path)
    assert (result.tokens, result.sentences, result.oov) == (10, 4, 1)
    assert (result.vocabulary_size, result.num_bytes, result.unit) == (4, 13, "word")
    assert result.perplexity == pytest.approx(2 ** (18 / 10), rel=1e-14)
    assert result.perplexity_without_oov == pytest.approx(2 ** (15 / 9), rel=1e-14)
    assert result.bits_per_token == pytest.approx(18 / 10, rel=1e-14)
    assert result.bits_per_byte == pytest.approx(18 / 13, rel=1e-14)
    assert result.log10_probability == pytest.approx(-18 * math.log10(2), rel=1e-14)
    assert result.oov_rate == 1 / 6  # of a b b a z b
    assert result.true_perplexity is None


def test_json_has_the_promised_keys(text_path: Path) -> None:
    content = evaluate_lm(two_words(), text_path).to_json()
    assert list(content) == KEYS
    assert json.loads(json.dumps(content, allow_nan=False)) == content


def test_per_token_table(text_path: Path, tmp_path: Path) -> None:
    table = tmp_path / "tokens.tsv"
    evaluate_lm(two_words(), text_path, per_token=table, reset_state=False)
    lines = table.read_text().splitlines()
    assert lines[0] == "sentence\ttoken\tsurprisal\toov\tprevious"
    rows = [line.split("\t") for line in lines[1:]]
    assert [row[0] for row in rows] == list("1112234444")
    assert [row[1] for row in rows] == [
        "a",
        "b",
        "</s>",
        "b",
        "</s>",
        "</s>",
        "a",
        "z",
        "b",
        "</s>",
    ]
    assert [row[2] for row in rows] == [f"{bits}.000000" for bits in BITS]
    assert [row[3] for row in rows] == list("0000000100")
    assert [row[4] for row in rows] == list("4231311203")
    assert list(tmp_path.glob(".*")) == []


@given(
    seed=st.integers(0, 1000),
    text=st.lists(st.lists(st.sampled_from("abcdz"), max_size=6), min_size=1, max_size=8),
    reset=st.booleans(),
)
def test_brute_force(
    tmp_path_factory: pytest.TempPathFactory, seed: int, text: list[list[str]], reset: bool
) -> None:
    """The same from a dictionary and a loop; both tables sum to the totals."""
    model = random_bigrams(word_tokenizer("abcd"), seed, sharpness=2.0)
    names = ["<unk>", "</s>", "a", "b", "c", "d", "<s>"]
    probability = {
        (before, after): model.table[i, j]
        for i, before in enumerate(names)
        for j, after in enumerate(names[:-1])
    }
    before, logs, known_logs = "<s>", [], []
    for sentence in text:
        for word in [*sentence, "</s>"]:
            after = "<unk>" if word == "z" else word
            logs.append(math.log(probability[before, after]))
            if after != "<unk>":
                known_logs.append(logs[-1])
            before = "<s>" if reset and after == "</s>" else after

    path = tmp_path_factory.mktemp("brute") / "text.txt"
    path.write_text("".join(" ".join(sentence) + "\n" for sentence in text))
    tokens, sentences = io.StringIO(), io.StringIO()
    result = evaluate_lm(model, path, reset_state=reset, per_token=tokens, per_sentence=sentences)
    assert result.perplexity == pytest.approx(math.exp(-sum(logs) / len(logs)), rel=1e-12)
    expected = math.exp(-sum(known_logs) / len(known_logs))
    assert result.perplexity_without_oov == pytest.approx(expected, rel=1e-12)
    token_rows = [line.split("\t") for line in tokens.getvalue().splitlines()[1:]]
    sentence_rows = [line.split("\t") for line in sentences.getvalue().splitlines()[1:]]
    rounding = 0.5e-6
    bits = sum(float(row[2]) for row in token_rows)
    assert bits == pytest.approx(-sum(logs) / math.log(2), abs=rounding * (len(logs) + 1))
    log10 = sum(float(row[3]) for row in sentence_rows)
    assert log10 == pytest.approx(result.log10_probability, abs=rounding * (len(text) + 1))
    assert sum(int(row[1]) for row in sentence_rows) == result.tokens == len(token_rows)
    assert sum(int(row[2]) for row in sentence_rows) == result.oov


@pytest.mark.parametrize("bad", [math.nan, 0.5])
def test_scores_that_are_no_probabilities(text_path: Path, tmp_path: Path, bad: float) -> None:
    model = two_words()
    model.log_table[0, 3] = bad  # after <unk>: the ninth token
    table = tmp_path / "tokens.tsv"
    with pytest.raises(ModelError, match="token 9 is no probability"):
        evaluate_lm(model, text_path, per_token=table)
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_a_bad_text_leaves_no_table(tmp_path: Path) -> None:
    path, table = tmp_path / "text.txt", tmp_path / "tokens.tsv"
    path.write_bytes(b"a b\na \xff b\n")
    with pytest.raises(DataError, match="not UTF-8 at byte 6"):
        evaluate_lm(two_words(), path, per_token=table)
    assert not table.exists()
    assert list(tmp_path.glob(".*")) == []


def prepare_corpus(directory: Path) -> PreparedCorpus:
    """Prepare TEXT as the test split of a corpus whose vocabulary is that of two_words."""
    texts = {"train": "b b\nb a\n", "valid": "a\n", "test": TEXT}
    for name, text in texts.items():
        (directory / f"{name}.txt").write_text(text)
    return prepare(
        [directory / "train.txt"],
        directory / "corpus",
        valid=directory / "valid.txt",
        test=directory / "test.txt",
    )


def model_of(corpus: PreparedCorpus) -> BigramModel:
    """Return two_words with the ids that the corpus has."""
    model = two_words()
    symbols = [*corpus.vocabulary.symbols, "<s>"]
    order = [[*model.tokenizer.vocabulary.symbols, "<s>"].index(symbol) for symbol in symbols]
    return BigramModel(corpus.tokenizer, model.table[np.ix_(order, order[:-1])])


def test_a_prepared_corpus_gives_what_its_text_gives(tmp_path: Path) -> None:
    corpus = prepare_corpus(tmp_path)
    model = model_of(corpus)
    tables = io.StringIO(), io.StringIO()
    from_text = evaluate_lm(model, tmp_path / "test.txt", per_token=tables[0], reset_state=False)
    from_ids = evaluate_lm(model, corpus.path, per_token=tables[1], reset_state=False)
    assert from_ids.bits_per_token == pytest.approx(1.8, rel=1e-14)
    named = {**from_text.to_json(), "seconds": 0, "split": "test"}
    assert {**from_ids.to_json(), "seconds": 0} == named
    # a corpus keeps no unknown words
    assert tables[1].getvalue() == tables[0].getvalue().replace("\tz\t", "\t<unk>\t")
    # valid is a </s>: 1 + 2 bits
    valid = evaluate_lm(model, corpus.path, split="valid")
    assert valid.log10_probability == pytest.approx(-3 * math.log10(2))


def test_a_prepared_corpus_of_another_vocabulary(tmp_path: Path) -> None:
    corpus = prepare_corpus(tmp_path)
    with pytest.raises(DataError, match="another vocabulary"):
        evaluate_lm(random_bigrams(word_tokenizer("abc"), 0), corpus.path)
    with pytest.raises(DataError, match="has no dev split") as caught:
        evaluate_lm(model_of(corpus), corpus.path, split="dev")
    assert "train, valid, test" in caught.value.hint
    with pytest.raises(ConfigError, match="cannot be mixed"):
        evaluate_lm(model_of(corpus), [corpus.path, tmp_path / "test.txt"])


@pytest.mark.skipif(sys.platform == "win32", reason="copies of processes")
def test_processes_measure_what_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqtool.lm.evaluation.BYTES_PER_SHARE", 7)
    path = tmp_path / "t.txt"
    path.write_text("a b\n\nb z\na a b\n" * 5)
    tables = [tmp_path / f"{name}.tsv" for name in ("one", "two")]
    expected = evaluate_lm(two_words(), path, per_token=tables[0])
    make = functools.partial(scorer, two_words())
    with Pool(make, 2, forks=True) as pool:
        found = evaluate_lm(two_words(), path, per_token=tables[1], pool=pool)
        with pytest.raises(ConfigError, match="reads the text as one, which processes cannot"):
            evaluate_lm(two_words(), path, pool=pool)
        with pytest.raises(ConfigError, match="several processes read files of text"):
            evaluate_lm(two_words(), text="a b", reset_state=True, pool=pool)
    assert tables[1].read_text() == tables[0].read_text()
    # sums of powers of two, and of threes that add up in another order
    assert found.nats == pytest.approx(expected.nats, rel=1e-15)
    same = {"known_nats": 0.0, "unknown_nats": 0.0, "seconds": 0.0}
    assert dataclasses.replace(found, **same) == dataclasses.replace(expected, **same)


def test_an_impossible_text_is_null_in_json() -> None:
    result = LMEvaluation("word", 4, 1, 2, 2, None, 0.0, -math.inf, 2, 1.0)
    printed = result.to_json()
    assert result.perplexity == math.inf
    assert printed["perplexity"] is printed["perplexity_without_oov"] is None
    assert printed["bits_per_token"] is printed["bits_per_byte"] is None
    assert printed["zero_probability_tokens"] == 2
