"""Exchange clustering against dictionaries, and against all partitions of few words."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqtool.core.errors import ConfigError
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.ngram.exchange import bigrams, cluster

SIZE = 9
Ids = np.ndarray[Any, np.dtype[np.int32]]

texts = st.lists(st.sampled_from([0, *range(1, SIZE)]), min_size=4, max_size=60).map(
    lambda words: np.array([*words, EOS_ID], np.int32)
)


def likelihood(ids: Ids, class_of: list[int]) -> float:
    """Sum ln p(class | class before) + ln p(word | class), by relative frequencies."""
    words = [EOS_ID, *ids.tolist()]
    classes = [class_of[word] for word in words]
    pairs = Counter(itertools.pairwise(classes))
    before, after = Counter(classes[:-1]), Counter(classes[1:])
    of_words = Counter(words[1:])
    return math.fsum(
        math.log(pairs[one, other] / before[one] * of_words[word] / after[other])
        for (one, other), word in zip(itertools.pairwise(classes), words[1:], strict=True)
    )


def moved(class_of: list[int], word: int, class_: int) -> list[int]:
    return [class_ if other == word else own for other, own in enumerate(class_of)]


@settings(deadline=None, max_examples=60)
@given(texts, st.integers(1, 4))
def test_the_objective_never_falls_and_ends_where_no_word_gains(ids: Ids, num: int) -> None:
    text = bigrams(ids, SIZE)
    words = [word for word in set(ids.tolist()) if word != EOS_ID]
    if num > len(words):
        with pytest.raises(ConfigError, match="classes are wanted, but the text has"):
            cluster(text, num, max_sweeps=1)
        return
    class_V, num_moved, log_likelihoods = cluster(text, num, max_sweeps=100)
    assert num_moved[-1] == 0
    assert all(a <= b + 1e-9 for a, b in itertools.pairwise(log_likelihoods))
    class_of = class_V.tolist()
    assert {class_of[word] for word in words} <= set(range(1, num + 1))
    assert all(class_of[word] == 0 for word in range(SIZE) if word not in words)
    last = log_likelihoods[-1]
    assert last == pytest.approx(likelihood(ids, class_of), rel=1e-9, abs=1e-9)
    for word, class_ in itertools.product(words, range(1, num + 1)):
        assert likelihood(ids, moved(class_of, word, class_)) <= last + 1e-6


@settings(deadline=None, max_examples=30)
@given(texts, st.integers(2, 4))
def test_each_sweep_is_that_of_dictionaries(ids: Ids, num: int) -> None:
    """The same moves, word by word, as by the whole objective of every class."""
    text = bigrams(ids, SIZE)
    counts = Counter(ids.tolist())
    words = sorted((w for w in counts if w != EOS_ID), key=lambda word: (-counts[word], word))
    if num > len(words):
        return
    class_of = [0] * SIZE
    before, total = 0, len(ids) - counts[EOS_ID]
    for word in words:  # equal shares of the text
        class_of[word] = 1 + before * num // total
        before += counts[word]
    class_V, _, log_likelihoods = cluster(text, num, max_sweeps=1)
    assert log_likelihoods[0] == pytest.approx(likelihood(ids, class_of), rel=1e-9, abs=1e-9)
    for word in words:
        values = [likelihood(ids, moved(class_of, word, c)) for c in range(1, num + 1)]
        if max(values) > values[class_of[word] - 1] + 1e-7:
            # of classes that are equally good, rounding may choose another
            if sum(value > max(values) - 1e-6 for value in values) > 1:
                return
            class_of[word] = 1 + int(np.argmax(values))
    assert class_V.tolist() == class_of
