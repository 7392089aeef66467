"""Where words stand and which tokens they are made of, against Python that says it plainly."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtool.core.vocabulary import BOS, EOS, EOS_ID, UNK_ID
from seqtool.lm.alignment import add_up, find_units
from seqtool.text.tokenizers import word_spans

LINES = st.lists(st.text("ab é\u3000🐶\t\r", max_size=30) | st.sampled_from([BOS, f"a {EOS} b"]))


@given(LINES, st.booleans(), st.booleans())
def test_places_of_words(lines: list[str], line_ends: bool, skip_marks: bool) -> None:
    block = "".join(f"{line}\n" for line in lines).encode()
    expected = []
    size = 0
    for number, line in enumerate(lines):
        spans = [
            (start, stop)
            for start, stop in word_spans(line)
            if not (skip_marks and line[start:stop] in (BOS, EOS))
        ]
        ends = [(len(line), len(line))] * line_ends
        for place, (start, stop) in enumerate([*spans, *ends], start=1):
            begin, end = (size + len(line[:k].encode()) for k in (start, stop))
            expected.append((begin, end, number, place, start, stop, place <= len(spans)))
        size += len(line.encode()) + 1
    skipped = (BOS.encode(), EOS.encode()) * skip_marks
    found = find_units(block, line_ends=line_ends, skipped=skipped)
    assert [*zip(*(array.tolist() for array in found), strict=True)] == expected


# symbols: <unk>, </s>, "a", "ab", a blank, "a" and a blank and "b"
TEXTS = ["?", "\n", "a", "ab", " ", "a b"]
IDS = np.array([2, 4, 2, EOS_ID], np.int32)
OPENS = np.array([text[0] in " \n" for text in TEXTS])
SYMBOLS = st.lists(st.sampled_from([UNK_ID, 2, 3, 4, 5]))


@given(st.lists(SYMBOLS, min_size=1), st.booleans(), st.data())
def test_tokens_of_words(lines: list[list[int]], line_ends: bool, data: st.DataObject) -> None:
    """Each word has the tokens up to the one in which it ends, and what says that it has."""
    ids = [token for line in lines for token in (*line, EOS_ID)]
    shown = [data.draw(st.text("xyz", min_size=1)) if t == UNK_ID else TEXTS[t] for t in ids]
    logs = data.draw(st.lists(st.floats(-9, 0), min_size=2 * len(ids), max_size=2 * len(ids)))
    own, of_class = np.array(logs).reshape(2, -1)
    block = "".join(shown).encode()
    found_units = find_units(block, line_ends=True)
    ends = np.cumsum([len(text) for text in shown]).tolist()
    expected = []
    first, before = 0, 0.0
    for end, is_word in zip(found_units.ends.tolist(), found_units.is_word.tolist(), strict=True):
        end += not is_word
        last = next(place for place, token_end in enumerate(ends) if token_end >= end)
        nats, ended = own[first : last + 1].sum(), 0.0
        if is_word and ends[last] == end and OPENS[ids[last + 1]]:
            ended = max(own[last + 1], of_class[last + 1])
        oov = UNK_ID in ids[first : last + 1]
        bits = max(0.0, -(nats + ended - before) / math.log(2))
        if is_word or line_ends:
            expected.append((pytest.approx(bits, abs=1e-12), oov, last + 1 - first))
        first, before = last + 1, ended
    sizes = np.array([len(text) for text in shown])
    asked = find_units(block, line_ends=line_ends)
    found = add_up(asked, np.array(ids, np.int32), sizes, OPENS, own, of_class)
    assert [*zip(*(array.tolist() for array in found), strict=True)] == expected


def test_too_few_tokens_are_refused() -> None:
    logs = np.zeros(2)
    with pytest.raises(ValueError, match="fewer bytes"):
        add_up(
            find_units(b"ab a\n", line_ends=True), IDS[:2], np.ones(2, np.int64), OPENS, logs, logs
        )


def test_an_impossible_end_is_said_once() -> None:
    own = np.array([-1.0, -np.inf, -1.0, -1.0])  # after the first word, no blank
    units, sizes = find_units(b"a a\n", line_ends=True), np.ones(4, np.int64)
    pieces = add_up(units, IDS, sizes, OPENS, own, own)
    # the blank's own probability is what is impossible in the second word
    assert pieces.bits.tolist() == [math.inf, math.inf, 0.0]
