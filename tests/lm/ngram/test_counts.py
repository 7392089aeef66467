"""Counting, against a dictionary of tuples."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seqtool.core.errors import DataError
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.ngram.counts import Counts, count_ngrams

Ngram = tuple[int, ...]
Sentences = list[list[int]]

sentences = st.integers(1, 6).flatmap(
    lambda num_words: st.lists(
        st.lists(st.sampled_from([0, *range(2, num_words + 1)]), max_size=9), min_size=1, max_size=9
    )
)


def stream(texts: Sentences) -> np.ndarray:
    return np.array([word for text in texts for word in (*text, EOS_ID)], np.int32)


def vocabulary_size(texts: Sentences) -> int:
    return max(stream(texts).tolist()) + 3  # two words that are not in the text


def longest(texts: Sentences) -> int:
    return max(map(len, texts)) + 2


def by_hand(texts: Sentences, order: int, bos: int) -> Counter[Ngram]:
    """Count the n-grams of one order."""
    whole = [(bos, *text, EOS_ID) for text in texts]
    return Counter(text[i : i + order] for text in whole for i in range(len(text) - order + 1))


def ngrams(counts: Counts, order: int) -> list[Ngram]:
    """Read the n-grams of one order off the levels, by row."""
    result: list[Ngram] = [()]
    for level in counts.levels[:order]:
        children = pairwise(level.begins.tolist())
        result = [
            (*context, int(word))
            for context, (begin, end) in zip(result, children, strict=True)
            for word in level.words[begin:end]
        ]
    return result


@given(sentences, st.integers(1, 6), st.integers(1, 3))
@example([[]], 2, 1)  # nothing but an empty sentence
@example([[2]], 3, 2)
@example([[2] * 9, [], [2] * 9], 6, 2)
@example([[0, 2], [], [0, 2, 3, 0, 2]], 4, 3)
def test_equals_a_dictionary(texts: Sentences, order: int, threads: int) -> None:
    order = min(order, longest(texts))
    size = vocabulary_size(texts)
    counts = count_ngrams(stream(texts), order, size, threads=threads)

    assert counts.vocabulary_size == size
    assert counts.num_tokens == sum(len(text) + 1 for text in texts)
    assert counts.num_sentences == len(texts)
    assert counts.last_in_suffix_order == ()
    assert counts.order == order
    for n, level in enumerate(counts.levels, start=1):
        expected = by_hand(texts, n, bos=size)
        found = ngrams(counts, n)
        assert found == ([(word,) for word in range(size + 1)] if n == 1 else sorted(expected))
        assert level.counts.tolist() == [expected[ngram] for ngram in found]
        if n > 1:
            rows = {ngram: row for row, ngram in enumerate(ngrams(counts, n - 1))}
            assert level.suffixes.tolist() == [rows[ngram[1:]] for ngram in found]
            assert len(level.begins) == len(rows) + 1
        if n < order:
            before = Counter(ngram[1:] for ngram in by_hand(texts, n + 1, bos=size))
            adjusted = [expected[x] if x[0] == size else before[x] for x in found]
        else:
            adjusted = level.counts.tolist()
        assert level.adjusted.tolist() == adjusted
        for name in ("words", "begins", "suffixes", "counts", "adjusted"):
            assert getattr(level, name).dtype == np.int32


def large_text() -> np.ndarray:
    """Some 20,000 words, more than one block of any pass; frequent and rare ones."""
    rng = np.random.default_rng(0)
    ids = np.minimum(rng.zipf(1.4, 20_000), 3000).astype(np.int32)  # 1 is </s>
    ids[-1] = EOS_ID
    return ids


def test_a_large_text_equals_a_dictionary() -> None:
    ids = large_text()
    texts: Sentences = [[]]
    for word in ids.tolist():
        if word == EOS_ID:
            texts.append([])
        else:
            texts[-1].append(word)
    counts = count_ngrams(ids, 4, 3001)
    for n in (2, 3, 4):
        expected = by_hand(texts[:-1], n, bos=3001)
        assert ngrams(counts, n) == sorted(expected)
        assert counts.levels[n - 1].counts.tolist() == [expected[x] for x in sorted(expected)]


@given(sentences, st.integers(2, 5))
def test_the_last_in_suffix_order(texts: Sentences, order: int) -> None:
    """As the estimator of KenLM sorts them: from the last word, words in order of occurrence.

    It pads with `<s>`, and an n-gram with two of them is none: no lower order has a last n-gram
    then whose count could be taken wrongly.
    """
    order = min(order, longest(texts))
    size = vocabulary_size(texts)
    ranks = {0: 0, size: 1, EOS_ID: 2}
    for word in stream(texts).tolist():
        ranks.setdefault(word, len(ranks))
    padded = [((size,) * (order - 1) + (*text, EOS_ID)) for text in texts]
    full = {text[i : i + order] for text in padded for i in range(len(text) - order + 1)}
    last = max(full, key=lambda ngram: [ranks[word] for word in reversed(ngram)])
    expected = [last[-n:] for n in range(1, order) if last[-n:].count(size) < 2]

    counts = count_ngrams(stream(texts), order, size, kenlm_quirk=True)
    rows = counts.last_in_suffix_order
    assert [ngrams(counts, n)[row] for n, row in enumerate(rows, start=1)] == expected


@pytest.mark.parametrize(
    ("ids", "order", "message"),
    [
        ([], 2, "there is no text"),
        # <s> 2 3 </s> has one 4-gram and no 5-gram
        ([2, 3, 1, 2, 1], 5, "order 5 .* 2 words"),
        ([1], 3, "order 3 .* 0 words"),
        ([2, 3], 2, "no end"),
        ([2, 7, 1], 2, "not of this vocabulary"),
        ([2, -1, 1], 2, "not of this vocabulary"),
    ],
)
def test_refuses_what_cannot_be_counted(ids: list[int], order: int, message: str) -> None:
    with pytest.raises(DataError, match=message):
        count_ngrams(np.array(ids, np.int32), order, 4)
