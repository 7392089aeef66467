"""Class n-gram models against dictionaries, their directories, and files of classes."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lm.ngram.references import EOS, Reference, count
from toy_models import word_tokenizer

import seqtool
from seqtool.core import checkpoint
from seqtool.core.errors import DataError, ModelError
from seqtool.lm.array_file import map_arrays, write_arrays
from seqtool.lm.ngram.classes import ClassModel, WordClasses, load_model, read_classes
from seqtool.lm.ngram.config import SMOOTHINGS, NgramConfig
from seqtool.lm.ngram.smoothing import estimate
from seqtool.lm.protocol import Summary, summarise_by_steps

WORDS = "abcdef"
SIZE = 2 + len(WORDS)

Sentences = list[list[int]]
sentences_of = st.lists(
    st.lists(st.sampled_from([0, *range(2, SIZE)]), max_size=6), min_size=1, max_size=6
)
# names of classes: of <unk>, and of each word
names_of = st.lists(st.integers(0, 3), min_size=SIZE - 1, max_size=SIZE - 1)


def numbered(names: list[int]) -> list[int]:
    """The class of each word, that of `<unk>` 0 and that of `</s>` 1."""
    others = [name for name in dict.fromkeys(names) if name != names[0]]
    numbers = {names[0]: 0, **{name: 2 + n for n, name in enumerate(others)}}
    return [0, 1, *(numbers[name] for name in names[1:])]


def flat(sentences: Sentences) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.array([word for sentence in sentences for word in (*sentence, EOS)], np.int32)


def train(sentences: Sentences, class_of: list[int], config: NgramConfig) -> ClassModel:
    class_V = np.array(class_of, np.int32)
    of_classes = [[class_of[word] for word in sentence] for sentence in sentences]
    table = estimate(count(of_classes, config.order, max(class_of) + 1), config).table
    nums = np.maximum(np.bincount(flat(sentences), minlength=SIZE), 1)
    shares = np.log(nums / np.bincount(class_V, nums)[class_V]).astype(np.float32)
    return ClassModel(table, WordClasses(class_V, shares), word_tokenizer(WORDS))


@settings(deadline=None, max_examples=40)
@given(
    sentences_of,
    sentences_of,
    names_of,
    st.integers(1, 2),
    st.sampled_from([name for name in SMOOTHINGS if name != "maximum-likelihood"]),
)
def test_probabilities_are_those_of_dictionaries_and_sum_to_one(
    sentences: Sentences, read: Sentences, names: list[int], order: int, smoothing: str
) -> None:
    class_of = numbered(names)
    num_classes = max(class_of) + 1
    config = NgramConfig(order=order, smoothing=smoothing)
    model = train(sentences, class_of, config)
    of_classes = [[class_of[word] for word in sentence] for sentence in sentences]
    reference = Reference(of_classes, num_classes, config)
    counts = Counter(flat(sentences).tolist())
    sizes = Counter[int]()
    for word in range(SIZE):
        sizes[class_of[word]] += max(counts[word], 1)
    ids = flat(read)
    (scores,) = model.score_ids([ids])
    state, history = model.start(1), [num_classes]
    for place, word in enumerate(ids.tolist()):
        probs = np.exp(model.next_log_probs(state)[0])
        assert probs.sum() == pytest.approx(1, abs=2e-6)  # tables are of single precision
        of_class = reference.probability(class_of[word], tuple(history))
        wanted = of_class * max(counts[word], 1) / sizes[class_of[word]]
        assert probs[word] == pytest.approx(wanted, rel=1e-5)
        assert math.exp(scores.log_probs[place]) == pytest.approx(probs[word], rel=1e-9)
        state = model.advance(state, np.array([word], np.int32))
        history = [num_classes] if word == EOS else [*history, class_of[word]]


@settings(deadline=None, max_examples=25)
@given(
    sentences_of,
    names_of,
    st.integers(1, 2),
    st.lists(st.booleans(), min_size=SIZE, max_size=SIZE),
    st.sampled_from(["modified-kneser-ney", "maximum-likelihood"]),
)
def test_summaries_are_those_of_whole_distributions(
    sentences: Sentences, names: list[int], order: int, asked: list[bool], smoothing: str
) -> None:
    """With zeros among the probabilities, by maximum likelihood, too."""
    model = train(sentences, numbered(names), NgramConfig(order=order, smoothing=smoothing))
    summary = Summary(np.array(asked), entropy=True)
    ids = flat(sentences)
    (found,) = model.score_ids([ids], summary=summary)
    (wanted,) = summarise_by_steps(model, [ids], summary, reset_state=True)
    np.testing.assert_allclose(found.log_probs, wanted.log_probs, rtol=1e-9, atol=1e-9)
    # sums over words of shares of single precision
    np.testing.assert_allclose(found.entropies, wanted.entropies, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found.class_log_probs, wanted.class_log_probs, rtol=1e-6, atol=1e-6)


def test_by_hand(tmp_path: Path) -> None:
    """Classes {a, b} and {c}, "a c" twice and "b c" once, by relative frequencies.

    P(a | <s>) = P({a, b} | <s>) P(a | {a, b}) = 1 * 2/3; P(c | a) = 1; P(</s> | c) = 1.
    """
    (tmp_path / "text.txt").write_text("a c\nb c\na c\n", encoding="utf-8")
    (tmp_path / "classes.txt").write_text("a\tx\nb x\n  c  \t y\n</s> z\nd x\n", encoding="utf-8")
    trained = seqtool.train_ngram(
        tmp_path / "text.txt",
        tmp_path / "m",
        {
            "order": 2,
            "smoothing": "maximum-likelihood",
            "classes": str(tmp_path / "classes.txt"),
        },
    )
    model = trained.model
    assert isinstance(model, ClassModel)
    assert math.exp(model.score("a c")) == pytest.approx(2 / 3, rel=1e-6)
    assert math.exp(model.score("b c")) == pytest.approx(1 / 3, rel=1e-6)
    # <unk>, </s>, {a, b} and {c}
    assert (len(model.classes), trained.vocabulary_size) == (4, 5)
    header = checkpoint.read_header(tmp_path / "m")
    assert (header.kind, header.data["classes"]) == ("class-ngram", 4)
    # the classes and <s>, each with a backoff; "<s> x", "x y" and "y </s>"; the words
    assert header.num_parameters == 5 * 2 + 3 + 5


def classes_in(path: Path, text: str, words: str = "abc", counts: Any = None) -> WordClasses:
    path.write_text(text, encoding="utf-8")
    tokenizer = word_tokenizer(words)
    counts = np.ones(2 + len(words), np.int64) if counts is None else np.array(counts)
    return read_classes(path, tokenizer, counts)


def test_words_without_a_class_are_one_each(tmp_path: Path) -> None:
    found = classes_in(tmp_path / "x", "b 7\na 7\n", "abcd", [0, 9, 6, 0, 4, 0])
    assert found.class_V.tolist() == [0, 1, 2, 2, 3, 4]
    # a word that does not occur counts once, beside 6 of the other one
    assert np.exp(found.shares_V) == pytest.approx([1, 1, 6 / 7, 1 / 7, 1, 1])
    found.check()


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a x\nb\n", 2, "and this one 1"),
        ("a x\n\nb x\n", 2, "and this one 0"),
        ("the a x\n", 1, "and this one 3"),
        ("a x\nb x\na y\n", 3, "'a' is in class 'x' already"),
    ],
)
def test_bad_lines(tmp_path: Path, text: str, line: int, message: str) -> None:
    with pytest.raises(DataError, match=message) as raised:
        classes_in(tmp_path / "x", text)
    assert (raised.value.path, raised.value.line) == (str(tmp_path / "x"), line)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("classes", {2: 9}, "numbered one after another"),
        ("classes", {2: -1}, "numbered one after another"),
        ("classes", {2: 1}, "<unk> or </s> has another class"),
        ("classes", {0: 2, 2: 0}, "<unk> or </s> has another class"),
        ("shares", {3: 0.5}, "do not sum to one"),
        ("shares", {3: math.nan}, "do not sum to one"),
    ],
)
def test_damaged_models(tmp_path: Path, name: str, change: dict[int, float], message: str) -> None:
    (tmp_path / "text.txt").write_text("a b c\n", encoding="utf-8")
    (tmp_path / "classes.txt").write_text("a x\nb x\n", encoding="utf-8")
    config = {"order": 2, "classes": str(tmp_path / "classes.txt")}
    seqtool.train_ngram(tmp_path / "text.txt", tmp_path / "m", config)
    header = checkpoint.read_header(tmp_path / "m")
    weights = tmp_path / "m" / checkpoint.WEIGHTS
    arrays = {key: array.copy() for key, array in map_arrays(weights).items()}
    for place, value in change.items():
        arrays[name][place] = value
    write_arrays(weights, arrays)
    header.files.clear()  # no sums, so that only what it says can be judged
    with pytest.raises(ModelError, match=message):
        load_model(tmp_path / "m", header)
    del arrays[name]
    write_arrays(weights, arrays)
    with pytest.raises(ModelError, match=f"damaged weights: .*{name}"):
        load_model(tmp_path / "m", header)
