"""Splits: which lines of text are for training, validation and testing.

They are given (files of their own, or a directory with train.*, valid.* and test.* files), or each
line is drawn for one of them at random.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from seqtool.core.errors import ConfigError
from seqtool.core.reading import find_files, is_treebank

SPLITS = ("train", "valid", "test")
DEFAULT_SHARES = (90.0, 5.0, 5.0)
SHARES_HINT = "give percentages of train, valid and test, as in --split 90,5,5"
_NAMES = {
    "train": "train",
    "training": "train",
    "valid": "valid",
    "validation": "valid",
    "dev": "valid",
    "test": "test",
}
_DROPPED = -1


@dataclass(frozen=True)
class SplitPlan:
    """The files of each split, or the shares by which lines are drawn.

    Attributes:
        files: split -> its files; only "train" when all splits are drawn from it.
        shares: percentages of train, valid and test to draw, None when the splits are given.
    """

    files: dict[str, list[str]]
    shares: tuple[float, ...] | None


def parse_shares(text: str) -> tuple[float, ...]:
    """Return the percentages in a text, as `--split` takes them: "90,5,5".

    Raises:
        ConfigError: not numbers.
    """
    try:
        return tuple(float(share) for share in text.split(","))
    except ValueError as error:
        raise ConfigError(
            f"split is {text!r}, which is no list of numbers", hint=SHARES_HINT
        ) from (error)


def check_shares(shares: Sequence[float]) -> tuple[float, ...]:
    """Return percentages of train, valid and test; those left out are 0.

    Raises:
        ConfigError: they are not that.
    """
    text = ",".join(f"{share:g}" for share in shares)
    if not 1 <= len(shares) <= len(SPLITS) or min(shares) < 0 or shares[0] <= 0:
        raise ConfigError(f"split is {text}", hint=SHARES_HINT)
    if not abs(sum(shares) - 100) < 1e-6:
        raise ConfigError(
            f"split is {text}, which sums to {sum(shares):g}, not 100", hint=SHARES_HINT
        )
    return (*shares, *[0.0] * (len(SPLITS) - len(shares)))


def plan_splits(
    inputs: Sequence[str | Path],
    *,
    valid: str | Path | None = None,
    test: str | Path | None = None,
    shares: tuple[float, ...] | None = None,
) -> SplitPlan:
    """Return the files of each split, or the shares to draw.

    Args:
        inputs: files, directories, `-`.
        valid: the validation text, if given.
        test: the test text, if given.
        shares: percentages of train, valid and test to draw from the inputs; when None, and no
            split is given, `DEFAULT_SHARES`.

    Raises:
        ConfigError: shares although splits are given.
        DataError: an input that is not there or is no text.
    """
    given = {
        name: [str(path)] for name, path in (("valid", valid), ("test", test)) if path is not None
    }
    if shares is not None:
        if given:
            raise ConfigError(
                f"--split would make splits, but --{next(iter(given))} gives one",
                hint="leave one of the two out",
            )
        return SplitPlan({"train": find_files(inputs)}, shares)
    named = _named_splits(inputs)
    files = {**named, **given} if named else {"train": [str(item) for item in inputs], **given}
    files = {split: find_files(files[split]) for split in SPLITS if split in files}
    return SplitPlan(files, DEFAULT_SHARES if len(files) == 1 else None)


def _named_splits(inputs: Sequence[str | Path]) -> dict[str, list[str]]:
    """Return the splits that the file names of a single directory tell, if there are several.

    Treebanks beside the texts are left alone.
    """
    if len(inputs) != 1 or not Path(inputs[0]).is_dir():
        return {}
    found: dict[str, list[str]] = {}
    for path in sorted(Path(inputs[0]).iterdir()):
        parts = path.name.lower().split(".")
        names = {_NAMES[part] for part in parts if part in _NAMES}
        is_text = path.is_file() and parts[0] and not is_treebank(path)
        if is_text and len(names) == 1:  # wiki.train.tokens, train.txt.gz
            found.setdefault(names.pop(), []).append(str(path))
    return found if "train" in found and len(found) > 1 else {}


class Piece(NamedTuple):
    """Whole lines of one split.

    Attributes:
        split: its name.
        block: the lines, each ended by LF.
        lines: which lines of the source block they were, 1-based; None for all of them.
    """

    split: str
    block: bytes
    lines: npt.NDArray[np.int64] | None

    def source_line(self, line: int) -> int:
        """Return the 1-based line of the source block of a 1-based line of this piece."""
        return line if self.lines is None else int(self.lines[line - 1])


def draw_splits(
    blocks: Iterable[bytes],
    *,
    shares: Sequence[float] | None,
    rng: np.random.Generator,
    split: str = "train",
    skip_empty_lines: bool = False,
) -> Iterator[Piece]:
    """Yield the lines of each block split by split.

    The draw of a line depends on the seed and on its number only, not on how large blocks are.

    Args:
        blocks: whole lines.
        shares: percentages of train, valid and test; None to send all lines to `split`.
        rng: the source of the draws.
        split: where all lines go when nothing is drawn.
        skip_empty_lines: drop lines of nothing but blanks.
    """
    bounds = None if shares is None else np.cumsum(shares) / np.sum(shares)
    names = (split,) if bounds is None else SPLITS
    for block in blocks:
        if bounds is None and not skip_empty_lines:
            yield Piece(split, block, None)
            continue
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1
        choice = np.zeros(len(ends), np.int64)
        if bounds is not None:
            # the last bound is left out: rounding may leave it a little below 1
            choice = np.searchsorted(bounds[:-1], rng.random(len(ends)), side="right")
        if skip_empty_lines:
            empty = [not line.strip(b" \t\r") for line in block.split(b"\n")[:-1]]
            choice[empty] = _DROPPED
        for number, lines_block in _lines_by_choice(block, ends, choice):
            lines = np.flatnonzero(choice == number) + 1
            yield Piece(names[number], lines_block, lines)


def _lines_by_choice(
    block: bytes, ends: npt.NDArray[np.int64], choice: npt.NDArray[np.int64]
) -> Iterator[tuple[int, bytes]]:
    """Yield (choice, the lines with that choice joined).

    Args:
        block: whole lines.
        ends: [lines] byte after each line's end.
        choice: [lines] number of a split, or `_DROPPED`.
    """
    # neighbours with one choice are copied together: nine lines of ten are for training
    changes = np.flatnonzero(np.diff(choice)) + 1
    first_lines = np.concatenate(([0], changes))
    starts = np.concatenate(([0], ends[changes - 1]))
    stops = np.append(starts[1:], len(block))
    view = memoryview(block)
    parts: dict[int, list[memoryview]] = {}
    runs = zip(choice[first_lines].tolist(), starts.tolist(), stops.tolist(), strict=True)
    for number, start, stop in runs:
        parts.setdefault(number, []).append(view[start:stop])
    parts.pop(_DROPPED, None)
    for number in sorted(parts):
        yield number, b"".join(parts[number])
