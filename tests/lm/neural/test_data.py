"""Parallel streams: every target once, inputs one before, and the device path like the other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqtool.core.errors import DataError
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.neural.data import IGNORED, SHORTEST, TokenStreams, draw_windows


def text(num_ids: int) -> npt.NDArray[np.uint16]:
    """Return a text in which every id is different, and none is `</s>`."""
    return np.arange(2, 2 + num_ids, dtype=np.uint16)


def columns(streams: TokenStreams) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return all inputs and targets (length, B), the windows one under the other."""
    windows = list(streams)
    assert len(windows) == len(streams)
    for number, (inputs, targets) in enumerate(windows):
        steps = streams.window if number + 1 < len(windows) else None
        assert inputs.shape == targets.shape == (steps or len(inputs), streams.num_streams)
        assert inputs.dtype == targets.dtype == torch.int64
    inputs, targets = (torch.cat(parts).numpy() for parts in zip(*windows, strict=True))
    return inputs, targets


sizes = st.tuples(st.integers(1, 60), st.integers(1, 9), st.integers(1, 12))


def test_the_drawn_example() -> None:
    # 11 ids in 2 streams of 5, the last id left over; x[0] = 2, so x[5] = 7
    inputs, targets = columns(TokenStreams(text(11), 2, 3))
    assert targets.T.tolist() == [[2, 3, 4, 5, 6], [7, 8, 9, 10, 11]]
    assert inputs.T.tolist() == [[EOS_ID, 2, 3, 4, 5], [6, 7, 8, 9, 10]]


def test_the_drawn_example_with_all_ids() -> None:
    # 11 ids in 3 streams of 4, one place over
    inputs, targets = columns(TokenStreams(text(11), 3, 3, keep_all=True))
    assert targets.T.tolist() == [[2, 3, 4, 5], [6, 7, 8, 9], [10, 11, 12, IGNORED]]
    assert inputs.T.tolist() == [[EOS_ID, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, EOS_ID]]


@given(sizes, st.booleans())
def test_every_id_is_a_target_once(size: tuple[int, int, int], keep_all: bool) -> None:
    """In training, but for the last ones that fill no column; the path of a GPU is no other."""
    num_ids, num_streams, window = size
    ids = text(num_ids)
    if not keep_all and num_ids // num_streams < window:
        with pytest.raises(DataError):
            TokenStreams(ids, num_streams, window)
        return
    streams = TokenStreams(ids, num_streams, window, keep_all=keep_all)
    inputs, targets = columns(streams)
    used = num_ids if keep_all else num_ids - num_ids % num_streams
    np.testing.assert_array_equal(targets.T.ravel()[:used], ids[:used])
    np.testing.assert_array_equal(inputs.T.ravel()[:used], [EOS_ID, *ids[: used - 1]])
    assert set(targets.T.ravel()[used:].tolist()) <= {IGNORED}
    assert set(inputs.T.ravel()[used:].tolist()) <= {EOS_ID}
    streams._whole = torch.from_numpy(ids.astype(np.int32))  # as on a GPU
    others = columns(streams)
    assert np.array_equal(others[0], inputs)
    assert np.array_equal(others[1], targets)


def test_windows_of_any_length_and_order_are_parts_of_the_whole() -> None:
    streams = TokenStreams(text(200), 3, 10)
    inputs, targets = columns(streams)
    for start, steps in ((0, 1), (7, 12), (21, 5), (65, 1), (0, 66)):
        part = streams.cut(start, steps)
        assert np.array_equal(part[0].numpy(), inputs[start : start + steps])
        assert np.array_equal(part[1].numpy(), targets[start : start + steps])
    for index in (3, 0, 2, 2, 1):
        assert np.array_equal(streams[index][1], targets[10 * index : 10 * index + 10])
    for index in (-1, len(streams)):
        with pytest.raises(IndexError):
            streams[index]


def test_a_memory_map_with_large_ids(tmp_path: Path) -> None:
    ids = np.array([1, 70_000, 2, 100_000, 1, 3], dtype="<u4")
    ids.tofile(tmp_path / "train.bin")
    mapped = np.memmap(tmp_path / "train.bin", "<u4", mode="r")
    inputs, targets = columns(TokenStreams(mapped, 2, 2))
    assert targets.T.ravel().tolist() == ids.tolist()
    assert inputs.T.ravel().tolist() == [EOS_ID, *ids[:-1].tolist()]


def test_too_short_a_text_names_what_it_needs() -> None:
    with pytest.raises(DataError, match=r"19 tokens, but 20 are needed for 2 streams") as caught:
        TokenStreams(text(19), 2, 10)
    assert "--batch-size" in caught.value.hint
    with pytest.raises(DataError, match="0 tokens"):
        TokenStreams(text(0), 2, 10, keep_all=True)


@given(st.integers(10, 3000), st.integers(10, 90), st.integers(0, 2**63 - 1), st.integers(0, 999))
def test_drawn_windows_cover_a_text_once(length: int, window: int, seed: int, epoch: int) -> None:
    begins = draw_windows(length, window, (seed, epoch))
    assert (begins[0], begins[-1]) == (0, length)
    lengths = np.diff(begins)
    assert (lengths[:-1] >= SHORTEST).all()
    assert lengths[-1] > 0
    assert np.array_equal(begins, draw_windows(length, window, (seed, epoch)))


def test_drawn_lengths_have_their_distribution() -> None:
    lengths = np.diff(draw_windows(2_000_000, 70, (1, 0)))[:-1]
    # 95% N(70, 5), 5% N(35, 5), rounded down: five standard errors of some 29,000 draws
    long = lengths > 52
    assert abs(long.mean() - 0.95) < 5 * (0.95 * 0.05 / len(lengths)) ** 0.5
    for part, mean in ((lengths[long], 69.5), (lengths[~long], 34.5)):
        assert abs(part.mean() - mean) < 5 * 5 / len(part) ** 0.5
        assert abs(part.std() - 5) < 5 * 5 / (2 * len(part)) ** 0.5
    for seed, epoch in ((1, 1), (2, 0)):
        others = np.diff(draw_windows(2_000_000, 70, (seed, epoch)))
        assert not np.array_equal(lengths[:99], others[:99])
