"""What people call of a language model, against what it gives for ids."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_models import UNIGRAM_ARPA, BigramModel, char_tokenizer, random_bigrams, two_words

import seqtool
from seqtool.core.errors import ConfigError, DataError, PromptError
from seqtool.lm.mixture.cache import CacheModel
from seqtool.lm.mixture.model import MixedModel
from seqtool.lm.model import LanguageModel
from seqtool.lm.ngram.model import load_arpa


@pytest.fixture
def lm() -> BigramModel:
    return two_words()


def stepped(model: LanguageModel, text: str, *, end: bool = True) -> float:
    """Return the log-probability of a sentence by going through it step by step."""
    state, total = model.start(1), 0.0
    ids = [*model.tokenizer.encode(text).tolist(), *([1] if end else [])]
    for token in ids:
        total += float(model.next_log_probs(state)[0, token])
        state = model.advance(state, np.array([token], np.int32))
    return total


class TestScore:
    def test_by_hand(self, lm: BigramModel) -> None:
        # P(a|<s>) P(b|a) P(</s>|b) = 1/2 1/2 1/2
        assert lm.score("a b") == pytest.approx(math.log(1 / 8), rel=1e-15)
        assert lm.score("a b", end=False) == pytest.approx(math.log(1 / 4), rel=1e-15)
        # the empty sentence: P(</s>|<s>)
        assert lm.score("") == pytest.approx(math.log(1 / 8), rel=1e-15)
        assert lm.score("", end=False) == 0.0

    def test_each_string_begins_anew(self, lm: BigramModel) -> None:
        sentences = ["b a", "a", "", "b b b"]
        assert lm.score(sentences) == [lm.score(sentence) for sentence in sentences]
        assert lm.score([]) == []

    @given(st.lists(st.text("abc ", max_size=8), max_size=6), st.booleans())
    def test_is_that_of_steps(self, sentences: list[str], end: bool) -> None:
        model = random_bigrams(char_tokenizer("ab "), 3)
        expected = [stepped(model, sentence, end=end) for sentence in sentences]
        assert model.score(sentences, end=end) == pytest.approx(expected, rel=1e-12)

    def test_a_model_that_adapts_begins_anew_too(self, lm: BigramModel) -> None:
        mixed = MixedModel([lm, CacheModel(lm)], [0.5, 0.5])
        sentences = ["a a", "b", "a a"]
        expected = [stepped(mixed, sentence) for sentence in sentences]
        assert mixed.score(sentences) == pytest.approx(expected, rel=1e-6)

    def test_a_line_end_inside_is_refused(self, lm: BigramModel) -> None:
        with pytest.raises(DataError, match=r"<text>:2: a sentence with a line end inside"):
            lm.score(["a", "a\nb"])
        with pytest.raises(DataError, match=r"<text>:1: half a surrogate pair"):
            lm.score("a \ud800")
        with pytest.raises(DataError, match=r"<text>:1: .*</s>"):
            lm.score("a </s>")
        with pytest.raises(TypeError, match="sentence 1 is 3"):
            lm.score([3])  # type: ignore[list-item]


class TestNextWords:
    def test_by_hand(self, lm: BigramModel) -> None:
        assert lm.next_words("b", top=3) == [
            ("</s>", pytest.approx(1 / 2)),
            ("a", pytest.approx(3 / 8)),
            ("<unk>", pytest.approx(1 / 16)),  # of equal ones, the lower id
        ]

    def test_is_refused(self, lm: BigramModel) -> None:
        with pytest.raises(ConfigError, match="top is 0"):
            lm.next_words("a", top=0)
        with pytest.raises(PromptError, match="'dog'"):
            lm.next_words("dog")
        assert len(lm.next_words("dog", allow_unknown=True)) == 4


def test_generate_joins_the_pieces(lm: BigramModel) -> None:
    pieces = seqtool.generate(lm, "a", seed=5, max_tokens=9, stop_at_sentence_end=False)
    text = lm.generate("a", seed=5, max_tokens=9, stop_at_sentence_end=False)
    assert text == "".join(piece.text for piece in pieces)
    assert text.startswith("a")
    assert lm.generate(beam=2, max_tokens=4) == "a"
    with pytest.raises(TypeError, match="num"):
        lm.generate("a", num=2)


class TestPerplexity:
    def test_of_strings_is_that_of_a_file(self, lm: BigramModel, tmp_path: Path) -> None:
        path = tmp_path / "text.txt"
        path.write_text("a b\n\nb c a\n")
        expected = seqtool.evaluate_lm(lm, path)
        for text in ("a b\n\nb c a\n", "a b\r\n\r\nb c a", ["a b", "", "b c a"]):
            found = seqtool.evaluate_lm(lm, text=text)
            assert found.perplexity == expected.perplexity
            assert (found.num_bytes, found.oov) == (expected.num_bytes, expected.oov)
            assert lm.perplexity(text) == expected.perplexity
        assert lm.perplexity(path) == expected.perplexity

    def test_is_refused(self, lm: BigramModel) -> None:
        with pytest.raises(ConfigError, match="nothing to measure"):
            seqtool.evaluate_lm(lm)
        with pytest.raises(ConfigError, match="files and a text"):
            seqtool.evaluate_lm(lm, "a.txt", text="a")
        with pytest.raises(ConfigError, match="--split test needs"):
            seqtool.evaluate_lm(lm, text="a", split="test")
        for nothing in ("", []):
            with pytest.raises(DataError, match="the text is empty"):
                lm.perplexity(nothing)


def test_every_model_is_one(lm: BigramModel, tmp_path: Path) -> None:
    from seqtool.lm.neural.dynamic import DynamicLanguageModel

    path = tmp_path / "x.arpa"
    path.write_text(UNIGRAM_ARPA)
    arpa = seqtool.load(path)
    assert isinstance(arpa, seqtool.LanguageModel)
    assert type(arpa) is type(load_arpa(path))
    assert arpa.score("a b") == pytest.approx(math.log(0.4 * 0.3 * 0.2), rel=1e-6)
    for kind in (CacheModel, MixedModel, DynamicLanguageModel):
        assert issubclass(kind, seqtool.LanguageModel)
    with pytest.raises(TypeError, match="abstract"):
        seqtool.LanguageModel()  # type: ignore[abstract]
