"""Batches for truncated back-propagation through time: parallel streams cut out of one text.

A text of N ids becomes B columns of L = N // B (training) or ceil(N / B) (evaluation) targets:

    target  x[0]   x[L]   x[2L]  ...        input  </s>     x[L-1]   x[2L-1] ...
            x[1]   x[L+1] ...                      x[0]     x[L]     ...
            ...                                    ...

so that each input is the id before its target, and each window continues the one before it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from seqtool.core.errors import DataError, counted
from seqtool.core.vocabulary import EOS_ID

IGNORED = -100
SHORTEST = 5  # tokens of a window whose length is drawn


def draw_windows(length: int, window: int, seed: tuple[int, int]) -> npt.NDArray[np.int64]:
    """Return where windows of random lengths begin, and `length` behind them.

    Each is N(window, 5) tokens long, in 5% of the cases N(window / 2, 5), and no shorter than 5;
    the last one is what is left (Merity et al. 2018).
    """
    generator = np.random.default_rng(seed)
    most = length // SHORTEST + 1
    means = np.where(generator.random(most) < 0.95, window, window / 2)
    lengths = np.maximum(SHORTEST, generator.normal(means, 5.0).astype(np.int64))
    ends = np.cumsum(lengths)
    return np.concatenate(([0], ends[ends < length], [length]))


class TokenStreams:
    """B parallel streams over the ids of one text.

    Args:
        ids: the text, ids [N]; a file is read window by window.
        num_streams: B.
        window: K, the BPTT length in tokens.
        keep_all: pad the last stream instead of leaving out the last N % B ids.
        device: where the batches go; a GPU holds the whole text.
        part: the streams that batches hold, of 0 to B - 1; all when not given.

    Raises:
        DataError: a stream would be shorter than one window (training only).
    """

    def __init__(
        self,
        ids: npt.NDArray[np.unsignedinteger],
        num_streams: int,
        window: int,
        *,
        keep_all: bool = False,
        device: str = "cpu",
        part: range | None = None,
    ) -> None:
        num_ids = len(ids)
        self._part = range(num_streams) if part is None else part
        self.num_streams, self.window = len(self._part), window
        self.length = -(-num_ids // num_streams) if keep_all else num_ids // num_streams
        if self.length < (1 if keep_all else window):
            streams, tokens = counted(num_streams, "stream"), counted(window, "token")
            raise DataError(
                f"the text has {counted(num_ids, 'token')}, but {num_streams * window:,} are "
                f"needed for {streams} of one window of {tokens}",
                hint="give more text, or lower --batch-size or --bptt",
            )
        self._ids = ids
        self._device = device
        self._whole = (
            None
            if device == "cpu"
            else torch.from_numpy(np.asarray(ids[:]).astype(np.int32)).to(device)
        )

    def __len__(self) -> int:
        """Return the number of windows."""
        return -(-self.length // self.window)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of a window, int64 (T, B).

        Where there is no text left, the input is `</s>` and the target `IGNORED`.
        """
        start = index * self.window
        if start >= self.length or index < 0:
            raise IndexError(index)
        return self.cut(start, min(self.window, self.length - start))

    def cut(self, start: int, steps: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of any window, int64 (T, B), as `[]` does of the even ones.

        Args:
            start: its first target, counted in each stream; at most `length - steps`.
            steps: T.
        """
        if self._whole is not None:
            return self._gather(start, steps)
        inputs_TB = np.full((steps, self.num_streams), EOS_ID, dtype=np.int64)
        targets_TB = np.full((steps, self.num_streams), IGNORED, dtype=np.int64)
        for at, stream in enumerate(self._part):
            first = stream * self.length + start
            column = np.asarray(self._ids[max(first - 1, 0) : first + steps]).astype(np.int64)
            if first == 0:
                column = np.concatenate(([EOS_ID], column))
            num = max(0, len(column) - 1)
            inputs_TB[:num, at] = column[:num]
            targets_TB[:num, at] = column[1:]
        return torch.from_numpy(inputs_TB), torch.from_numpy(targets_TB)

    def _gather(self, start: int, steps: int) -> tuple[Tensor, Tensor]:
        """Cut a window out of the text on the device, without a loop over the streams."""
        assert self._whole is not None
        last = len(self._whole) - 1
        rows_T1 = torch.arange(start, start + steps, device=self._device)[:, None]
        streams_B = torch.arange(self._part.start, self._part.stop, device=self._device)
        columns_B = streams_B * self.length
        at_TB = rows_T1 + columns_B
        targets_TB = self._whole[at_TB.clamp(max=last)].long()
        targets_TB = targets_TB.masked_fill(at_TB > last, IGNORED)
        inputs_TB = self._whole[(at_TB - 1).clamp(min=0, max=last)].long()
        return inputs_TB.masked_fill((at_TB == 0) | (at_TB > last), EOS_ID), targets_TB
