"""The sum of large files: every bit counts, and so does where it is."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqtool.core import checkpoint
from seqtool.core.checkpoint import Header
from seqtool.core.errors import ModelError
from seqtool.core.storage import quick_sum_of

SIZES = [0, 1, 8, 511, 512, 513, 5000, (1 << 20) - 1, 1 << 20, (1 << 20) + 513]


def content(size: int) -> bytes:
    return np.random.default_rng(size).bytes(size)


def by_definition(data: bytes) -> str:
    padded = data + bytes(-len(data) % 512)
    sums = b""
    for row in range(0, len(padded), 512):
        words = [int.from_bytes(padded[i : i + 8], "little") for i in range(row, row + 512, 8)]
        sums += (sum(words) % 2**64).to_bytes(8, "little")
    return hashlib.sha256(len(data).to_bytes(8, "little") + sums).hexdigest()


@pytest.mark.parametrize("size", SIZES)
def test_it_is_what_it_says(tmp_path: Path, size: int) -> None:
    (tmp_path / "x").write_bytes(content(size))
    assert quick_sum_of(tmp_path / "x") == by_definition(content(size))


@pytest.mark.parametrize("size", SIZES[1:])
def test_a_changed_bit_changes_it(tmp_path: Path, size: int) -> None:
    path = tmp_path / "x"
    path.write_bytes(content(size))
    before = quick_sum_of(path)
    positions = np.random.default_rng(0).integers(0, 8 * size, 40).tolist()
    for position in {0, 8 * size - 1, *positions}:
        changed = bytearray(content(size))
        changed[position // 8] ^= 1 << position % 8
        path.write_bytes(changed)
        assert quick_sum_of(path) != before


def test_moved_rows_and_added_zeros_change_it(tmp_path: Path) -> None:
    data = content(4096)
    swapped = data[512:1024] + data[:512] + data[1024:]
    blank = data[:512] + bytes(512) + data[1024:]
    sums = set()
    for variant in (data, swapped, blank, data + b"\0", data[:-1], b"", b"\0"):
        (tmp_path / "x").write_bytes(variant)
        sums.add(quick_sum_of(tmp_path / "x"))
    assert len(sums) == 7


def test_only_large_files_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "QUICK_SUM_BYTES", 1000)

    def fill(directory: Path) -> None:
        (directory / "small").write_bytes(bytes(999))
        (directory / "large").write_bytes(bytes(1000))

    checkpoint.save(tmp_path / "m", Header(kind="toy", config={}, tokenizer={}), "", fill)
    files = checkpoint.read_header(tmp_path / "m").files
    assert files["small"] == {"bytes": 999, "sha256": hashlib.sha256(bytes(999)).hexdigest()}
    assert files["large"] == {"bytes": 1000, "quick_sum": by_definition(bytes(1000))}
    checkpoint.verify(tmp_path / "m", checkpoint.read_header(tmp_path / "m"))
    (tmp_path / "m" / "large").write_bytes(bytes(999) + b"\1")
    with pytest.raises(ModelError, match="does not match the sum"):
        checkpoint.verify(tmp_path / "m", checkpoint.read_header(tmp_path / "m"))


@pytest.mark.parametrize(
    "sums", [{}, {"sha256": "a", "quick_sum": "b"}, {"quick_sum": 3}, {"md5": "a"}]
)
def test_a_file_has_one_sum(sums: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="weights"):
        Header(kind="toy", config={}, tokenizer={}, files={"weights": {"bytes": 1, **sums}})
