"""Lists of n-grams with their counts, against a Counter."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtool.core.errors import ConfigError
from seqtool.core.vocabulary import Vocabulary
from seqtool.lm.ngram.counts import Counts, count_ngrams, list_ngrams
from seqtool.text.tokenizers import WordTokenizer

TEXT = "b a b\nb a\na b a b\n"


def counted(text: str, order: int) -> tuple[Counts, Vocabulary]:
    vocabulary = Vocabulary.from_counts(Counter(text.split()))
    ids = WordTokenizer(vocabulary).encode_block(text.encode())
    return count_ngrams(ids, order, len(vocabulary)), vocabulary


def listed(text: str, order: int, **options: object) -> list[tuple[str, int]]:
    counts, vocabulary = counted(text, order)
    listing = list_ngrams(counts, vocabulary, **options)  # type: ignore[arg-type]
    return [
        (" ".join(vocabulary.decode(words)), count)
        for words, count in zip(listing.words.tolist(), listing.counts.tolist(), strict=True)
    ]


def test_bigrams_by_hand() -> None:
    # b a | a b; b a; a b | b a | a b: three times each; sentences start with b b a, end in b a b
    assert listed(TEXT, 2) == [("b a", 3), ("a b", 3)]  # b has the smaller id: it came first
    assert listed(TEXT, 2, sort="text") == [("a b", 3), ("b a", 3)]
    assert listed(TEXT, 2, top=1) == [("b a", 3)]
    assert listed(TEXT, 2, boundaries=True, filters=["</s>"]) == [("b </s>", 2), ("a </s>", 1)]
    assert listed(TEXT, 2, boundaries=True, filters=["<s>", "a"]) == [("<s> a", 1)]
    assert listed(TEXT, 3, min_count=2) == [("b a b", 2)]
    assert listed(TEXT, 3, min_count=3) == []
    assert listed(TEXT, 1) == [("b", 5), ("a", 4)]


def test_what_there_is_to_choose_from() -> None:
    counts, vocabulary = counted(TEXT, 2)
    listing = list_ngrams(counts, vocabulary, top=1, filters=["a"])
    assert (listing.distinct, listing.total) == (2, 6)
    listing = list_ngrams(counts, vocabulary, top=1, boundaries=True)
    assert (listing.distinct, listing.total) == (6, 12)


def test_impossible_filters() -> None:
    counts, vocabulary = counted("word\n", 1)
    with pytest.raises(ConfigError, match="'wrod' does not occur in the text") as caught:
        list_ngrams(counts, vocabulary, filters=["wrod"])
    assert caught.value.hint == "did you mean word?"
    with pytest.raises(ConfigError, match="n-grams with <s> are left out"):
        list_ngrams(counts, vocabulary, filters=["<s>"])


@given(
    st.lists(st.lists(st.sampled_from("abcdé"), min_size=1, max_size=6), min_size=1, max_size=8),
    st.integers(1, 3),
    st.booleans(),
    st.integers(1, 3),
)
def test_against_a_counter(
    sentences: list[list[str]], order: int, boundaries: bool, min_count: int
) -> None:
    text = "".join(" ".join(words) + "\n" for words in sentences)
    edges = ["<s>"], ["</s>"]
    padded = [[*edges[0], *words, *edges[1]] if boundaries else words for words in sentences]
    wanted = Counter(
        " ".join(words[i : i + order]) for words in padded for i in range(len(words) - order + 1)
    )
    found = listed(text, order, boundaries=boundaries, min_count=min_count)
    assert dict(found) == {ngram: n for ngram, n in wanted.items() if n >= min_count}
    assert [count for _, count in found] == sorted((count for _, count in found), reverse=True)
    by_text = listed(text, order, boundaries=boundaries, min_count=min_count, sort="text")
    assert by_text == sorted(found, key=lambda pair: pair[0].split(" "))
