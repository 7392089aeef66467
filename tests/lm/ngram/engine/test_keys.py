"""n-grams in columns of 63 bits, against lists of words."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.ngram.engine.keys import Keys, Packer

SIZES = st.sampled_from([3, 8, 255, 33_000, 2**21 - 1, 2**21, 2**30])  # 2 to 31 bits a word
texts = st.lists(st.sampled_from([0, EOS_ID, 2]), min_size=1, max_size=30)


def value(expression: str, columns: dict[str, int]) -> int:
    """Evaluate SQL of numbers, `&`, comparisons and AND, which are those of Python too."""
    return int(eval(expression.replace("AND", "and").replace("1 = 0", "False"), {}, columns))


@given(texts, SIZES, st.integers(1, 9), st.integers(1, 29))
def test_every_token_ends_an_ngram(text: list[int], size: int, order: int, cut: int) -> None:
    keys, ids = Keys(size), np.array(text, np.int32)
    packer = Packer(keys, order)
    columns = list(np.concatenate([packer.pack(ids[:cut]), packer.pack(ids[cut:])], axis=1))
    words = keys.words(columns, order)
    history = [size] * order
    for place, word in enumerate(text):
        history = [*history[1:], word]
        ngram = {n: np.array(history[-n:], np.int32) for n in range(1, order + 1)}
        assert words[:, place].tolist() == history
        whole = keys.values(ngram[order])
        named = dict(zip(keys.columns(order), whole, strict=True))
        assert [column[place] for column in columns] == whole
        assert value(keys.from_start(order), named) == (history[0] == size)
        assert value(keys.is_filled_up(order), named) == (order > 1 and history[:2] == [size] * 2)
        if order > 1:
            suffix = [value(part, named) for part in keys.suffix(order)]
            assert suffix == keys.values(ngram[order - 1])
            context = [column[place] for column in keys.contexts(columns, order)]
            assert context == keys.values(np.array(history[:-1], np.int32))
        if word == EOS_ID:
            history = [size] * order


@given(texts, SIZES, st.integers(2, 6))
def test_trie_order_is_that_of_the_columns(text: list[int], size: int, order: int) -> None:
    keys = Keys(size)
    columns = Packer(keys, order).pack(np.array(text, np.int32))
    ngrams = sorted({tuple(ngram) for ngram in keys.words(list(columns), order).T.tolist()})
    by_key = [keys.values(np.array(ngram, np.int32)) for ngram in ngrams]
    assert by_key == sorted(by_key)
    in_order = [np.array(column, np.int64) for column in zip(*by_key, strict=True)]
    changes = [one[:-1] != other[:-1] for one, other in pairwise(ngrams)]
    assert keys.new_context(in_order).tolist() == changes
