"""Compiled scoring against a slow look-up, on tables made by chance and on KenLM's own."""

from __future__ import annotations

import dataclasses
import gzip
import math
import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lm.ngram.random_tables import build, random_rows, some_table
from lm.ngram.references import Rows, entries, look_up
from toy_models import char_tokenizer

from seqtool.lm.evaluation import evaluate_lm
from seqtool.lm.ngram import query
from seqtool.lm.ngram.model import NgramModel, load_arpa
from seqtool.lm.ngram.query import Scorer
from seqtool.lm.ngram.table import BackoffTable

EOS = 1
LN_10 = math.log(10)
KENLM_MODELS = [
    ("ptb-valid.2", "ptb"),
    ("ptb-valid.3", "ptb"),
    ("ptb-valid.5", "ptb"),
    ("unkword.3", "unkword"),
    ("ewt-dev.3", "ewt"),
    ("ewt-dev.5.fallback", "ewt"),
    ("ewt-dev.5.pruned", "ewt"),
]


def slow_scores(rows: Rows, size: int, order: int, ids: list[int]) -> list[tuple[float, int]]:
    """Nats and order matched of every token, each sentence from `<s>`."""
    result, history = [], (size,)
    for word in ids:
        context = history[max(0, len(history) - order + 1) :]
        longest_first = ((*context[begin:], word) for begin in range(len(context) + 1))
        matched = next(len(ngram) for ngram in longest_first if ngram in rows)
        result.append((look_up(rows, word, context), matched))
        history = (size,) if word == EOS else (*history, word)
    return result


def check(table: BackoffTable, ids: list[int]) -> None:
    rows = entries(table)
    expected = slow_scores(rows, table.vocabulary_size, table.order, ids)
    log_probs, orders = scores_of(table, ids, index_after=math.inf)
    # sums of at most a few float32 values in float64
    np.testing.assert_allclose(log_probs, [nats for nats, _ in expected], rtol=1e-14)
    assert orders.tolist() == [order for _, order in expected]
    with_index = scores_of(table, ids, index_after=0)
    np.testing.assert_array_equal(with_index[0], log_probs)  # bit for bit
    np.testing.assert_array_equal(with_index[1], orders)


def scores_of(
    table: BackoffTable, ids: list[int], index_after: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int16]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query, "INDEX_AFTER", index_after)
        return Scorer(table).score(np.array(ids, np.int32))


def sentences(size: int) -> st.SearchStrategy[list[int]]:
    words = st.integers(2, size - 1) | st.just(0)
    return st.lists(st.lists(words, max_size=8), max_size=5).map(
        lambda lines: [word for line in lines for word in (*line, EOS)]
    )


def test_by_hand() -> None:
    # <s> a b a </s> | a </s> | </s>
    log_probs, orders = Scorer(some_table()).score(np.array([2, 3, 2, EOS, 2, EOS, EOS], np.int32))
    assert log_probs.tolist() == [
        -0.75,  # <s> a
        -0.5 - 1.0,  # a b, and the backoff of <s> a
        -0.0625,  # a b a, whose suffix b a is no row
        -1.0 - 0.25,  # </s> and the backoff of a; the context b a is no row
        -0.75,  # <s> a again: nothing is carried over
        -0.375,  # <s> a </s>
        -1.0 - 0.125,  # </s> and the backoff of <s>
    ]
    assert orders.tolist() == [2, 2, 3, 1, 2, 3, 1]


@given(st.data())
def test_scores_are_those_of_the_definition(data: st.DataObject) -> None:
    size, order = data.draw(st.integers(3, 6)), data.draw(st.integers(1, 4))
    check(build(data.draw(random_rows(size, order)), size, order), data.draw(sentences(size)))


def test_a_context_with_very_many_continuations() -> None:
    """Every place of a range that is searched: the first, the last, between, and in gaps."""
    size = 1000
    rows: Rows = {(word,): (-5.0, -1.0) for word in range(size + 1)}
    rows |= {(size, word): (-word / 1024, 0.0) for word in range(2, size, 3)}
    rows |= {(7, word): (-word / 2048, 0.0) for word in range(500, size)}
    table = build(rows, size, 2)
    ids = [token for word in (0, *range(2, size)) for token in (word, 7, word, EOS)]
    check(table, ids)


@pytest.mark.parametrize("size", range(22, 222))
def test_the_first_row_is_found_in_its_own_context_alone(size: int) -> None:
    """A probe for `<unk>` in another context may meet row 0, `<unk> <unk>`, on its way."""
    rows: Rows = {(word,): (-5.0, -1.0) for word in range(size + 1)}
    rows |= {(context, 1 + i): (-i / 64, 0.0) for context in range(2, size) for i in range(20)}
    rows |= {(0, i): (-0.125 - i, 0.0) for i in range(20)}
    check(build(rows, size, 2), [token for word in range(2, size) for token in (word, 0, EOS)])


def stairs() -> BackoffTable:
    """40 words, of which word w goes on with w - 2 others: as many as one line holds, and more."""
    size = 40
    rng = np.random.default_rng(0)
    rows: Rows = {(word,): (-5.0, -1.0 - word / 64) for word in range(size + 1)}
    for word in range(2, size):
        others = rng.choice(np.arange(size), word - 2, replace=False).tolist()
        rows |= {(word, other): (-other / 128, -word / 32) for other in others}
    rows |= {(2 + i, i, j): (-j / 256, 0.0) for i in range(size - 2) for j in range(0, size, 1 + i)}
    return build({ngram: row for ngram, row in rows.items() if ngram[:-1] in {(), *rows}}, size, 3)


def every_pair(size: int) -> list[int]:
    pairs = [(first, second) for first in range(2, size) for second in (0, *range(2, size))]
    return [token for pair in pairs for token in (*pair, 2, pair[1], EOS)]


@pytest.mark.parametrize("lead", range(query.LINE))
def test_ranges_anywhere_in_cache_lines(lead: int) -> None:
    """Every range of continuations that one comparison takes, and every place for it."""
    table = stairs()
    levels = []
    for level in table.levels:
        room = np.empty(len(level) + 2 * query.LINE, np.int32)
        begin = lead - room.ctypes.data // 4 % query.LINE
        words = room[begin % query.LINE :][: len(level)]
        words[:] = level.words
        assert not len(words) or words.ctypes.data // 4 % query.LINE == lead
        levels.append(dataclasses.replace(level, words=words))
    check(BackoffTable(tuple(levels), table.vocabulary_size), every_pair(table.vocabulary_size))


def test_an_order_without_ngrams() -> None:
    """As when all were pruned; a backoff that stands in the file counts all the same."""
    rows: Rows = {(word,): (-1.0 - word, -0.5) for word in range(5)}
    rows[2, 3] = (-0.25, -0.125)
    table = build(rows, 4, 4)
    assert [len(level) for level in table.levels] == [5, 1, 0, 0]
    log_probs, _ = Scorer(table).score(np.array([2, 3, 2, EOS], np.int32))
    # a: -3 and <s>; a b; then a: -3 and the backoffs of b and a b; </s>: -2 and that of a
    assert log_probs.tolist() == [-3.5, -0.25, -3.625, -2.5]


@given(sentences(4), st.integers(1, 7), st.data())
def test_contexts_of_some_places(ids: list[int], chunk: int, data: st.DataObject) -> None:
    table = some_table()
    places = np.array([place for place in range(len(ids)) if data.draw(st.booleans())], np.int64)
    of_all, of_some = (np.empty((num, 2), np.int32) for num in (len(ids), len(places)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query, "PIECE", chunk)
        Scorer(table).score(np.array(ids, np.int32), of_all)
        Scorer(table).score(np.array(ids, np.int32), of_some, places)
    np.testing.assert_array_equal(of_some, of_all[places])
    # by the definition: a state of the model that has read the tokens before
    model = NgramModel(table, char_tokenizer("ab"))
    state = model.start(1)
    for token, context in zip(ids, of_all, strict=True):
        np.testing.assert_array_equal(state[0], context)
        state = model.advance(state, np.array([token], np.int32))


@pytest.mark.parametrize("outside", [-1, 4, 5, 2**31 - 1])
def test_ids_outside_the_vocabulary_are_refused(outside: int) -> None:
    with pytest.raises(ValueError, match="outside the vocabulary"):
        Scorer(some_table()).score(np.array([2, outside, EOS], np.int32))


@pytest.mark.parametrize(("name", "text"), KENLM_MODELS, ids=[name for name, _ in KENLM_MODELS])
def test_every_word_has_the_score_of_kenlm(shared_data: Path, name: str, text: str) -> None:
    folder = shared_data / "kenlm"
    model = load_arpa(folder / f"{name}.arpa.gz")
    assert isinstance(model, NgramModel)
    block = (folder / f"{text}-query.txt").read_bytes()
    ids = model.tokenizer.encode_block(block)
    (scores,) = model.score_ids([ids])
    with gzip.open(folder / f"{name}.words.txt.gz", "rt", encoding="utf-8") as lines:
        shown = [entry for line in lines for entry in line.split("\t") if "=" in entry]
    found = [entry.rsplit("=", 1)[1].split(" ") for entry in shown]
    assert len(found) == len(ids)
    # KenLM adds in single precision and prints eight digits
    expected = np.array([float(log10) for _, _, log10 in found])
    np.testing.assert_allclose(scores.log_probs / LN_10, expected, rtol=0, atol=1e-5)
    assert scores.columns["order"].tolist() == [int(order) for _, order, _ in found]
    assert (ids == 0).tolist() == [number == "0" for number, _, _ in found]
    result = evaluate_lm(model, folder / f"{text}-query.txt")
    summary = (folder / f"{name}.summary.txt").read_text()
    including, excluding, oov, tokens = re.findall(r":\t(\S+)", summary)
    # seven decimals of log10 in the file: a relative 1e-7 or so of the perplexity
    assert result.perplexity == pytest.approx(float(including), rel=1e-6)
    assert result.perplexity_without_oov == pytest.approx(float(excluding), rel=1e-6)
    assert (result.oov, result.tokens) == (int(oov), int(tokens))
