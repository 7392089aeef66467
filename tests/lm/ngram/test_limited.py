"""Words that a model may not have: n-grams with them are counted, then left out."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lm.ngram.references import EOS, Ngram, Reference, count, entries, look_up

from seqtool.core.errors import ConfigError
from seqtool.core.vocabulary import Vocabulary
from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.data import limited
from seqtool.lm.ngram.smoothing import estimate
from seqtool.text.tokenizers import CharTokenizer, WordTokenizer

SIZE = 7


class LimitedReference(Reference):
    """Keeps n-grams of some words only; the uniform distribution is over these."""

    def __init__(
        self, sentences: Sequence[Sequence[int]], config: NgramConfig, allowed: set[int]
    ) -> None:
        super().__init__(sentences, SIZE, config)
        self.allowed = allowed
        self.num_words = len(allowed)

    def is_kept(self, ngram: Ngram) -> bool:
        return super().is_kept(ngram) and {*ngram} <= {*self.allowed, SIZE}


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 4),
    st.sets(st.integers(2, SIZE - 1), min_size=1),
    st.sampled_from(["modified-kneser-ney", "absolute-discounting", "witten-bell"]),
    st.sampled_from([(), (0, 1)]),
)
def test_equals_the_definition(
    seed: int, order: int, words: set[int], smoothing: str, prune: tuple[int, ...]
) -> None:
    generator = random.Random(seed)
    sentences = [
        [generator.randrange(2, SIZE) for _ in range(generator.randrange(1, 8))] for _ in range(20)
    ]
    allowed = {0, EOS, *words}
    config = NgramConfig(order=order, smoothing=smoothing, prune=prune[:order])
    mask = np.array([word in allowed for word in range(SIZE)] + [True])
    table = estimate(count(sentences, order, SIZE), config, allowed=mask).table
    assert table.vocabulary_size == len(allowed)
    numbers = {word: number for number, word in enumerate([*sorted(allowed), SIZE])}
    rows, reference = entries(table), LimitedReference(sentences, config, allowed)
    contexts: list[Ngram] = [(), *(ngram for ngram in reference.raw if len(ngram) < order)]
    for context in contexts:
        if EOS in context or not {*context} <= {*allowed, SIZE}:
            continue
        found = [
            math.exp(look_up(rows, numbers[word], tuple(numbers[other] for other in context)))
            for word in sorted(allowed)
        ]
        wanted = [reference.probability(word, context) for word in sorted(allowed)]
        assert found == pytest.approx(wanted, abs=1e-6)
        assert math.fsum(found) == pytest.approx(1, abs=1e-6)


def test_which_words(tmp_path: Path) -> None:
    path = tmp_path / "words"
    path.write_text("c\na\nz\n")
    old = WordTokenizer(Vocabulary(["<unk>", "</s>", "a", "b", "c"], [1, 9, 5, 4, 3]))
    tokenizer, allowed = limited(old, str(path))
    assert tokenizer.vocabulary.symbols == ["<unk>", "</s>", "a", "c"]
    assert tokenizer.vocabulary.counts == [5, 9, 5, 3]
    assert allowed.tolist() == [True, True, True, False, True, True]
    path.write_text("z\n")
    with pytest.raises(ConfigError, match="no word of the text is among those of"):
        limited(old, str(path))
    with pytest.raises(ConfigError, match="of char units"):
        limited(CharTokenizer(old.vocabulary), str(path))
