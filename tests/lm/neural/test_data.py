"""Parallel streams: every target once, inputs one before, and the device path like the other."""

from __future__ import annotations

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


@given(sizes)
def test_training_leaves_out_the_last_ids_only(size: tuple[int, int, int]) -> None:
    num_ids, num_streams, window = size
    ids = text(num_ids)
    if num_ids // num_streams < window:
        with pytest.raises(DataError):
            TokenStreams(ids, num_streams, window)
        return
    streams = TokenStreams(ids, num_streams, window)
    inputs, targets = columns(streams)
    used = num_ids - num_ids % num_streams
    np.testing.assert_array_equal(targets.T.ravel(), ids[:used])
    np.testing.assert_array_equal(inputs.T.ravel(), [EOS_ID, *ids[: used - 1]])
    assert streams.length == num_ids // num_streams
    assert len(streams) == -(-streams.length // window)


@given(sizes)
def test_every_id_is_a_target_once(size: tuple[int, int, int]) -> None:
    num_ids, num_streams, window = size
    ids = text(num_ids)
    inputs, targets = columns(TokenStreams(ids, num_streams, window, keep_all=True))
    flat_inputs, flat_targets = inputs.T.ravel(), targets.T.ravel()
    np.testing.assert_array_equal(flat_targets[:num_ids], ids)
    assert set(flat_targets[num_ids:].tolist()) <= {IGNORED}
    np.testing.assert_array_equal(flat_inputs[:num_ids], [EOS_ID, *ids[:-1]])
    assert set(flat_inputs[num_ids:].tolist()) <= {EOS_ID}


@given(sizes, st.booleans())
def test_device_path_gives_the_same_batches(size: tuple[int, int, int], keep_all: bool) -> None:
    num_ids, num_streams, window = size
    if num_ids // num_streams < window:
        keep_all = True
    plain = TokenStreams(text(num_ids), num_streams, window, keep_all=keep_all)
    gathered = TokenStreams(text(num_ids), num_streams, window, keep_all=keep_all)
    gathered._whole = torch.from_numpy(text(num_ids).astype(np.int32))  # as on a GPU
    for (inputs, targets), (other_inputs, other_targets) in zip(plain, gathered, strict=True):
        assert torch.equal(inputs, other_inputs)
        assert torch.equal(targets, other_targets)


def test_too_short_a_text_names_what_it_needs() -> None:
    TokenStreams(text(20), 2, 10)
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
    assert not np.array_equal(lengths[:99], np.diff(draw_windows(2_000_000, 70, (1, 1)))[:99])
    assert not np.array_equal(lengths[:99], np.diff(draw_windows(2_000_000, 70, (2, 0)))[:99])
