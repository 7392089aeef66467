"""Shards of a prepared corpus are read as one; a process needs only its own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtool.core.errors import ConfigError, DataError
from seqtool.lm.neural.data import TokenStreams
from seqtool.text import shards
from seqtool.text.prepared import PreparedCorpus, prepare

NUM = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of 1,500 ids as one file, and in shards that share 20 ids with their neighbours."""
    folder = tmp_path_factory.mktemp("shards")
    generator = np.random.default_rng(1)
    lines = (" ".join(generator.choice(list("abcdef"), size=4)) for _ in range(300))
    (folder / "text.txt").write_text("".join(f"{line}\n" for line in lines))
    text, valid = folder / "text.txt", folder / "text.txt"
    prepare([text], folder / "whole", valid=valid)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "OVERLAP", 20)
        prepare([text], folder / "cut", valid=valid, shards=NUM)
    return folder


def test_shards_hold_what_one_file_does(folder: Path) -> None:
    whole, cut = (PreparedCorpus.open(folder / name) for name in ("whole", "cut"))
    assert sorted(path.name for path in (folder / "cut").iterdir()) == [
        *("corpus.json", "train.0.bin", "train.1.bin", "train.2.bin", "train.3.bin"),
        *("valid.bin", "vocabulary.json"),
    ]
    assert cut.ids("train").tolist() == whole.ids("train").tolist()
    begins = [shard["begin"] for shard in cut.info["splits"]["train"].pop("shards")]
    assert begins == [0, 355, 730, 1105]  # 1500 / 4, less the overlap
    assert cut.info.pop("format_version") == 1
    assert whole.info.pop("format_version") == 1
    assert cut.info == whole.info


@given(st.integers(0, 1500), st.integers(0, 1500))
def test_any_slice_is_that_of_the_whole(folder: Path, start: int, stop: int) -> None:
    whole, cut = (PreparedCorpus.open(folder / name) for name in ("whole", "cut"))
    expected = whole.reader("train")[start:stop].tolist()
    assert cut.reader("train")[start:stop].tolist() == expected


@pytest.mark.parametrize("rank", range(NUM))
def test_the_streams_of_a_process_need_its_shard_alone(
    folder: Path, tmp_path: Path, rank: int
) -> None:
    shutil.copytree(folder / "cut", tmp_path / "cut")
    for number in range(NUM):
        if number != rank:
            shards.shard_path(tmp_path / "cut", "train", number).unlink()
    whole, cut = (PreparedCorpus.open(path) for path in (folder / "whole", tmp_path / "cut"))
    part = range(3 * rank, 3 * rank + 3)
    # 11 streams leave 4 ids over, so that no stream begins where a shard does
    streams = 11 if rank == 3 else 12
    part = range(part.start, min(part.stop, streams))
    expected, found = (
        TokenStreams(corpus.reader("train"), streams, 7, part=part) for corpus in (whole, cut)
    )
    for ours, theirs in zip(found, expected, strict=True):
        assert all(a.equal(b) for a, b in zip(ours, theirs, strict=True))
    missing = (rank + 1) % NUM
    with pytest.raises(DataError) as caught:
        cut.ids("train")
    first = shards.shard_path(tmp_path / "cut", "train", 0 if rank else missing)
    assert caught.value.path == str(first)
    assert "is not on this machine" in caught.value.message


def test_what_is_damaged_is_told(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "cut", tmp_path / "cut")
    shard = shards.shard_path(tmp_path / "cut", "train", 2)
    content = shard.read_bytes()
    shard.write_bytes(b"\xff\xff" + content[2:])
    reader = PreparedCorpus.open(tmp_path / "cut").reader("train")
    assert len(reader[:700]) == 700  # the others are sound
    with pytest.raises(DataError, match=r"train\.2\.bin: is damaged: id 65,535"):
        reader[1000:1100]
    shard.write_bytes(content[2:])
    with pytest.raises(DataError, match=r"train\.2\.bin: has 788 bytes instead of 790"):
        PreparedCorpus.open(tmp_path / "cut")
    shard.write_bytes(content)
    info = json.loads((tmp_path / "cut/corpus.json").read_text())
    info["splits"]["train"]["shards"][1]["begin"] += 200  # a gap
    (tmp_path / "cut/corpus.json").write_text(json.dumps(info))
    with pytest.raises(DataError, match=r"corpus\.json: is damaged"):
        PreparedCorpus.open(tmp_path / "cut")


def test_more_shards_than_tokens_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    with pytest.raises(ConfigError, match="2 tokens are too few for 3 shards"):
        prepare([tmp_path / "a.txt"], tmp_path / "out", valid=tmp_path / "a.txt", shards=3)
    assert not (tmp_path / "out").exists()
