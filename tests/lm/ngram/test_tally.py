"""How often n-grams occur, against a Counter."""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.ngram import tally as module
from seqtool.lm.ngram.records import Workspace
from seqtool.lm.ngram.tally import Tally

BOS = 9
sentences = st.lists(st.lists(st.sampled_from([0, 2, 3, 4]), max_size=9), min_size=1, max_size=9)


def by_hand(texts: list[list[int]], order: int, edges: bool) -> Counter[tuple[int, ...]]:
    whole = [(BOS, *text, EOS_ID) if edges else tuple(text) for text in texts]
    return Counter(text[i : i + order] for text in whole for i in range(len(text) - order + 1))


def counted(tally: Tally) -> Counter[tuple[int, ...]]:
    found: Counter[tuple[int, ...]] = Counter()
    for records in tally.records():
        for ngram, count in zip(
            tally.packing.unpack(records[:, :-1]).tolist(), records[:, -1].tolist(), strict=True
        ):
            assert tuple(ngram) not in found  # each comes once
            found[tuple(ngram)] = count
    return found


@given(sentences, st.integers(1, 6), st.booleans(), st.integers(1, 20))
def test_against_a_counter(texts: list[list[int]], order: int, edges: bool, size: int) -> None:
    ids = np.array([word for text in texts for word in (*text, EOS_ID)], np.int32)
    space = Workspace(Path(tempfile.gettempdir()), lambda: 0)
    with closing(Tally(order, BOS, edges, space)) as tally:
        for begin in range(0, len(ids), size):  # pieces that overlap
            first = min(begin, order)
            tally.add(ids[begin - first : begin + size], first)
        assert counted(tally) == by_hand(texts, order, edges)
    assert tally.longest == max(map(len, texts))


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("least", [1, 100_000, 1 << 24])
def test_tables_that_grow_and_tables_that_go_to_disk(order: int, least: int) -> None:
    rng = np.random.default_rng(order)
    texts = [(10 + rng.integers(0, 40, rng.integers(0, 30))).tolist() for _ in range(300)]
    space = Workspace(Path(tempfile.gettempdir()), lambda: 0, least)
    with closing(Tally(order, BOS, True, space)) as tally:
        for text in texts:
            tally.add(np.array([*text, EOS_ID], np.int32))
        assert (len(tally._runs) > 0) == (
            (least < 1 << 24 and order > 2) or (least == 1 and order > 1)
        )
        assert counted(tally) == by_hand(texts, order, True)


def test_a_table_makes_room_for_words() -> None:
    room = [1 << 20]
    space = Workspace(Path(tempfile.gettempdir()), lambda: room[0], 1 << 15)
    ids = np.arange(2, 40_002, dtype=np.int32)
    with closing(Tally(1, 50_000, False, space)) as tally:
        tally.add(ids[:20_000])
        size = tally._slots.nbytes
        room[0] = -1
        tally.add(ids[20_000:])
        assert tally._slots.nbytes < size
        assert counted(tally) == {(id_,): 1 for id_ in ids.tolist()}


def test_no_slot_is_left_for_a_batch_too_many() -> None:
    """The table is filled up to two thirds, a batch at a time."""
    assert module._FEWEST - module._FEWEST // 3 >= 2 * module._BATCH
