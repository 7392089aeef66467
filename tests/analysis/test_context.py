from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_recurrence import make_model

from seqtool import prepare
from seqtool.analysis.context import analyse, cut_surprisals, last_token_curve
from seqtool.analysis.passage import read_passage, read_sentence, surprisals
from seqtool.core import checkpoint
from seqtool.core.errors import ConfigError
from seqtool.core.units import LN_2
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.mixture.model import MixedModel
from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.train import train_ngram
from seqtool.text.prepared import PrepareConfig

WORDS = "abcde"


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    generator = np.random.default_rng(3)
    lines = [" ".join(generator.choice(list(WORDS), size=generator.integers(0, 9)))
             for _ in range(60)]  # fmt: skip
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def ngram(text: Path) -> Any:
    train_ngram(text, text.parent / "ngram", NgramConfig(order=3))
    return checkpoint.load(text.parent / "ngram")


def curve_of(model: Any, text: Path, lengths: list[int]) -> tuple[list[float], float]:
    report = analyse([("m", model)], text, lengths=lengths, num_targets=100_000)
    found = report.values["models"]["m"]
    return found["surprisal_bits"], found["whole_text_bits"]


def test_an_ngram_model_looks_back_one_token_less_than_its_order(ngram: Any, text: Path) -> None:
    bits, whole = curve_of(ngram, text, [1, 2, 3, 4, 7])
    assert bits[1] == bits[2] == bits[3] == bits[4]
    assert bits[1] == pytest.approx(whole, rel=1e-12)
    assert bits[0] != pytest.approx(bits[1], rel=1e-3)


@pytest.mark.parametrize("width", [1, 3])
def test_a_window_looks_back_as_far_as_it_is_wide(text: Path, width: int) -> None:
    bits, whole = curve_of(make_model(cell="window", window=width), text, [1, 2, 3, 4, 6])
    flat = bits[[1, 2, 3, 4, 6].index(width) :]
    assert flat == pytest.approx([whole] * len(flat), rel=1e-12)
    if width > 1:
        assert bits[0] != pytest.approx(whole, rel=1e-6)


def test_a_bigram_model_gives_what_its_table_says(ngram: Any, text: Path) -> None:
    """By the steps of the model itself, from every context of one token and of two."""
    size = len(ngram.tokenizer.vocabulary)
    for context in itertools.product(range(1, size), repeat=2):
        ids = np.array([context], np.int32)
        # after `</s>` a sentence begins; before any other token there is no context
        state = ngram.start(1)
        if context[0] != EOS_ID:
            state = np.full_like(state, -1)
            state = ngram.advance(state, ids[:, 0])
        state = ngram.advance(state, ids[:, 1])
        nats = ngram.next_log_probs(state)[0]
        found = [float(cut_surprisals(ngram, ids, np.array([target]))[0]) for target in range(size)]
        assert found == pytest.approx((-nats / LN_2).tolist(), rel=1e-12)


def test_mixtures_are_cut_in_all_their_parts(ngram: Any, text: Path) -> None:
    first, second = make_model(cell="lstm"), make_model(cell="window", window=2)
    mixed = MixedModel([first, second], [0.3, 0.7])
    contexts, targets = np.array([[2, 3, 4], [5, 1, 2]], np.int32), np.array([4, 6])
    parts = [2 ** -cut_surprisals(part, contexts, targets) for part in (first, second)]
    mean = 0.3 * parts[0] + 0.7 * parts[1]
    np.testing.assert_allclose(2 ** -cut_surprisals(mixed, contexts, targets), mean, rtol=1e-12)


def test_all_of_a_sentence_is_the_sentence(ngram: Any) -> None:
    for model in (ngram, make_model(cell="window", window=3), make_model(cell="lstm")):
        passage = read_sentence(model, "a b c d e")
        bits = last_token_curve(model, passage)
        assert len(bits) == 5
        assert bits[-1] == pytest.approx(surprisals(model, passage)[4], rel=1e-9)


def test_two_sentences_that_differ_far_before(ngram: Any, text: Path) -> None:
    report = analyse(
        [("ngram", ngram), ("net", make_model(cell="gru"))],
        text,
        lengths=[1],
        num_targets=5,
        sentences=["a b c d e", "e b c d e", "a x"],
    )
    found = {(one["model"], one["sentence"]): one["bits"] for one in report.values["sentences"]}
    # the third order does not see the first word, and the network does
    assert found["ngram", "a b c d e"] == found["ngram", "e b c d e"]
    assert found["net", "a b c d e"][:3] == found["net", "e b c d e"][:3]
    assert found["net", "a b c d e"][3:] != found["net", "e b c d e"][3:]
    assert [one["target"] for one in report.values["sentences"]] == ["e"] * 4 + ["x"] * 2
    assert "ngram does not know x." in report.remarks


def test_sentences_alone(ngram: Any, text: Path) -> None:
    models = [("m", ngram)]
    alone = analyse(models, None, sentences=["a b c"])
    beside = analyse(models, text, lengths=[1], sentences=["a b c"])
    assert alone.charts == beside.charts[1:]
    assert dict(alone.values) == {"sentences": beside.values["sentences"]}
    with pytest.raises(ConfigError, match="no text and no sentence"):
        analyse(models, None)


def test_a_prepared_corpus_is_read_as_its_text(text: Path, tmp_path: Path) -> None:
    corpus = prepare([text], tmp_path / "corpus", PrepareConfig(split=(100.0,)))
    train_ngram(corpus.path, tmp_path / "model", NgramConfig(order=2))
    model = checkpoint.load(tmp_path / "model")
    of_corpus = read_passage(model, corpus.path, split="train", num_tokens=50)
    of_text = read_passage(model, text, num_tokens=50)
    assert of_corpus.tokens == of_text.tokens
    assert of_corpus.ids.tolist() == of_text.ids.tolist()
    assert of_corpus.tokens[-1] == "</s>"
