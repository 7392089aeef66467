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
from seqtool.core.errors import ConfigError, DataError, ModelError, PromptError
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

    def test_scores_that_are_no_probabilities_are_refused(self, lm: BigramModel) -> None:
        lm.log_table = lm.log_table + 1.0
        with pytest.raises(ModelError, match="token 1 is no probability"):
            lm.score("a b")


class TestNextWords:
    def test_by_hand(self, lm: BigramModel) -> None:
        assert lm.next_words("b", top=3) == [
            ("</s>", pytest.approx(1 / 2)),
            ("a", pytest.approx(3 / 8)),
            ("<unk>", pytest.approx(1 / 16)),  # of equal ones, the lower id
        ]

    def test_all_sum_to_one(self, lm: BigramModel) -> None:
        found = lm.next_words(top=100)
        assert len(found) == 4
        assert math.fsum(probability for _, probability in found) == pytest.approx(1.0)

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

    def test_the_state_goes_on_or_is_reset(self, lm: BigramModel) -> None:
        # P(b|<s>) P(</s>|b) and then P(b|</s>) P(</s>|b), or the first again
        assert lm.perplexity(["b", "b"]) == pytest.approx((1 / 8 * 1 / 8) ** -0.25)
        assert lm.perplexity(["b", "b"], reset_state=True) == pytest.approx((1 / 8) ** -0.5)
        other = BigramModel(lm.tokenizer, np.vstack([lm.table[:4], np.full((1, 4), 1 / 4)]))
        other.table[4] = other.table[1]
        assert lm.perplexity(["b", "a"]) != lm.perplexity(["b", "a"], reset_state=True)

    def test_long_texts_are_read_in_blocks(
        self, lm: BigramModel, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sentences = ["a b", "b", "", "a a a", "c"] * 7
        expected = seqtool.evaluate_lm(lm, text=sentences)
        monkeypatch.setattr("seqtool.lm.evaluation.BYTES_PER_BLOCK", 5)
        found = seqtool.evaluate_lm(lm, text=iter(sentences))
        assert found.nats == pytest.approx(expected.nats, rel=1e-14)
        assert found.sentences == len(sentences)
        with pytest.raises(DataError, match="<text>:12:"):
            lm.perplexity([*["a b"] * 11, "</s>"])

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


class TestSurprisal:
    def test_by_hand(self, lm: BigramModel) -> None:
        words = lm.surprisal("a b")  # P(a|<s>) = 1/2, P(b|a) = 1/2
        assert [(word.text, word.start, word.end, word.bits) for word in words] == [
            ("a", 0, 1, 1.0),
            ("b", 2, 3, 1.0),
        ]
        assert lm.surprisal(["b", "b"]) == [lm.surprisal("b")] * 2
        assert lm.surprisal("") == []

    def test_options_are_those_of_words(self, lm: BigramModel) -> None:
        _, (word,) = lm.surprisal(["b", "b"], carry_state=True)
        assert word.bits == 2.0  # P(b|</s>) = 1/4
        (word, end) = lm.surprisal("b", line_ends=True, entropy=True)
        assert word.entropy == pytest.approx(1.75)  # of 1/8, 1/8, 1/2, 1/4
        assert (end.text, end.bits) == ("</s>", 1.0)

    @given(st.lists(st.text("ab ", max_size=8), max_size=4))
    def test_words_and_the_end_are_the_score(self, sentences: list[str]) -> None:
        model = random_bigrams(char_tokenizer("ab "), 8)
        bits = [
            math.fsum(w.bits for w in words) for words in model.surprisal(sentences, line_ends=True)
        ]
        expected = [-score / math.log(2) for score in model.score(sentences)]
        assert bits == pytest.approx(expected, rel=1e-12)


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


def test_a_model_without_states(lm: BigramModel) -> None:
    with pytest.raises(ModelError, match="toy-bigram has no states"):
        lm.states("a b")
