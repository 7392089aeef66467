"""Class probabilities in the contexts of a table, against sums over whole distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lm.ngram.random_tables import build, random_rows
from lm.ngram.references import Rows, count
from toy_models import char_tokenizer

from seqtool.core.arrays import Bools, Doubles, Ids
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.ngram.class_probabilities import ClassProbabilities
from seqtool.lm.ngram.config import SMOOTHINGS, NgramConfig
from seqtool.lm.ngram.model import NgramModel
from seqtool.lm.ngram.query import Scorer
from seqtool.lm.ngram.smoothing import estimate
from seqtool.lm.ngram.table import BackoffTable, Int32
from seqtool.lm.protocol import class_log_probs

TOLERANCE = 1e-10  # nats


class Whole:
    """Sums whole distributions, and counts for how many contexts it was asked."""

    def __init__(self, table: BackoffTable, class_V: Bools) -> None:
        letters = "".join(map(chr, range(0x100, 0x100 + table.vocabulary_size - 2)))
        self._model = NgramModel(table, char_tokenizer(letters))
        self._class = class_V
        self.num = 0

    def __call__(self, contexts_TN: Int32) -> Doubles:
        self.num += len(contexts_TN)
        return class_log_probs(self._model.next_log_probs(contexts_TN), self._class)


def contexts_of(table: BackoffTable, ids: Ids) -> Int32:
    contexts = np.empty((len(ids), table.order - 1), np.int32)
    Scorer(table).score(ids, contexts)
    return contexts


def text(size: int, num: int, seed: int, *, skewed: float = 1.5) -> Ids:
    """Return sentences of words that are the rarer the higher their ids."""
    rng = np.random.default_rng(seed)
    words = 2 + np.minimum(rng.zipf(skewed, num) - 1, size - 3)
    ids = np.where(rng.random(num) < 0.1, EOS_ID, words).astype(np.int32)
    ids[-1] = EOS_ID
    return ids


def check(table: BackoffTable, class_V: Bools, ids: Ids) -> int:
    """Compare all contexts of a text, twice; return how many needed whole distributions."""
    contexts = contexts_of(table, ids)
    expected = Whole(table, class_V)(contexts)
    whole = Whole(table, class_V)
    masses = ClassProbabilities(table, class_V, whole)
    half = len(ids) // 2
    found = np.concatenate([masses.log_probs(contexts[:half]), masses.log_probs(contexts[half:])])
    num = whole.num
    for one in (found, masses.log_probs(contexts)):
        np.testing.assert_allclose(one, expected, rtol=0, atol=TOLERANCE)
    return num


@pytest.mark.parametrize("prune", [(), (0, 0, 1, 2)], ids=["", "pruned"])
@pytest.mark.parametrize("smoothing", [*SMOOTHINGS])
def test_each_smoothing(smoothing: str, prune: tuple[int, ...]) -> None:
    size = 60
    training = text(size, 4000, 1)
    sentences = [part[:-1].tolist() for part in np.split(training, _ends(training))[:-1]]
    config = NgramConfig(order=4, smoothing=smoothing, prune=prune)
    table = estimate(count(sentences, 4, size), config).table
    rng = np.random.default_rng(2)
    num_contexts = sum(len(level) for level in table.levels[:-1])
    for share in (0.05, 0.5, 0.95):
        class_V = rng.random(size) < share
        num = check(table, class_V, text(size, 3000, 3))
        # without smoothing some classes have nothing; others are summed from shorter contexts
        if smoothing != "maximum-likelihood":
            assert num < num_contexts / 100


def _ends(ids: Ids) -> Ids:
    return np.flatnonzero(ids == EOS_ID) + 1  # type: ignore[return-value]


@settings(max_examples=60)
@given(st.data())
def test_any_table(data: st.DataObject) -> None:
    """Suffixes of contexts may be missing, and probabilities and backoffs be zero."""
    size, order = data.draw(st.integers(3, 6)), data.draw(st.integers(1, 4))
    table = build(data.draw(random_rows(size, order)), size, order)
    class_V = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    ids = data.draw(st.lists(st.integers(0, size - 1), max_size=30))
    check(table, class_V, np.array([*ids, EOS_ID], np.int32))


def two_words(explicit: float, backoff: float, rest: float) -> BackoffTable:
    """Word 2 after word 2 is explicit; word 3, of little probability, is backed off to."""
    most = math.log1p(-rest)
    rows: Rows = {
        (0,): (-math.inf, 0.0),
        (1,): (-math.inf, 0.0),
        (2,): (most, backoff),
        (3,): (math.log(rest), 0.0),
        (4,): (-99.0, 0.0),
        (2, 2): (explicit, 0.0),
    }
    return build(rows, 4, 2)


CLASS = np.array([False, False, True, True])
IDS = np.array([2, 2, 3, EOS_ID], np.int32)


def test_by_hand() -> None:
    # 0.25 after the context, and e^-0.5 of what is left of 1 without word 2: 0.25
    table = two_words(math.log(0.25), -0.5, 0.25)
    found = ClassProbabilities(table, CLASS, Whole(table, CLASS)).log_probs(contexts_of(table, IDS))
    expected = [0.0, math.log(0.25 + math.exp(-0.5) * 0.25)]
    assert found[:2] == pytest.approx(expected, abs=1e-7)  # the table has single precision


def test_a_difference_that_is_lost_is_summed() -> None:
    # 1 - (1 - 1e-13) has four digits, and e^-40 beside it is nothing
    table = two_words(-40.0, 3.0, 1e-13)
    assert check(table, CLASS, IDS) > 0
