from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqtool.core import reading
from seqtool.core.errors import ConfigError, DataError, ModelError, OutputError
from seqtool.core.vocabulary import EOS_ID, UNK_ID, Vocabulary
from seqtool.text import prepared
from seqtool.text.preparation import draw_splits
from seqtool.text.prepared import PrepareConfig, PreparedCorpus, open_corpus, prepare
from seqtool.text.subwords import LineSample

LINES = [f"the cat number {i} sees a dog {i % 7} times , 고양이 {i % 3}" for i in range(400)]
PROSE = "".join(f"{line}\n" for line in LINES)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(PROSE, encoding="utf-8")
    return path


def make(tmp_path: Path, content: str | bytes, output: str = "out", **settings: Any) -> Any:
    path = tmp_path / "made.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    config = PrepareConfig(**{"split": (100.0,), **settings})
    return prepare([path], tmp_path / output, config, force=True)


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_words_by_hand(tmp_path: Path) -> None:
    corpus = make(tmp_path, "b a\tb\n\n a  c a \r\n<unk> b\N{NO-BREAK SPACE}b\x0c", min_count=2)
    # b 2, a 3, c 1, <unk> 1, "b b\x0c" 1; those met once are unknown; a comes first
    assert corpus.vocabulary.symbols == ["<unk>", "</s>", "a", "b"]
    assert corpus.vocabulary.counts == [3, 4, 3, 2]
    assert corpus.ids("train").tolist() == [3, 2, 3, 1, 1, 2, 0, 2, 1, 0, 0, 1]
    # the CR before LF is not counted, the missing last LF is
    assert corpus.info["splits"] == {
        "train": {"tokens": 12, "sentences": 4, "bytes": 6 + 1 + 9 + 12, "unknown": 3}
    }
    assert corpus.splits() == ["train"]
    assert corpus.info["format_version"] == 1
    assert corpus.info["unit"] == "word"
    assert (tmp_path / "out" / "train.bin").read_bytes()[:4] == b"\x03\x00\x02\x00"


def test_ids_are_read_only_and_mapped(source: Path, tmp_path: Path) -> None:
    corpus = prepare([source], tmp_path / "out")
    ids = corpus.ids("train")
    assert isinstance(ids, np.memmap)
    assert ids.dtype == np.uint16
    with pytest.raises(ValueError, match="read-only"):
        ids[0] = 1


def test_large_vocabularies_take_32_bits(tmp_path: Path) -> None:
    for num_words, dtype in ((65_534, np.uint16), (65_535, np.uint32)):
        words = [f"w{i}" for i in range(num_words)]
        corpus = make(tmp_path, " ".join(words))
        assert corpus.ids("train").dtype == dtype
        assert corpus.ids("train").tolist() == [*range(2, num_words + 2), EOS_ID]


words_of_text = st.lists(
    st.lists(st.sampled_from(["a", "b", "c", "dd", "é", "<unk>", "\0", "x" * 20])), min_size=1
).filter(any)


@settings(max_examples=50)
@given(lines=words_of_text, max_size=st.none() | st.integers(3, 9), min_count=st.integers(1, 3))
def test_words_equal_from_counts(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[list[str]],
    max_size: int | None,
    min_count: int,
) -> None:
    content = "".join(" ".join(line) + "\n" for line in lines)
    options = {"vocab_size": max_size, "min_count": min_count}
    corpus = make(tmp_path_factory.mktemp("words"), content, **options)
    expected = Vocabulary.from_counts(
        Counter(word for line in lines for word in line),
        max_size=max_size,
        min_count=min_count,
        num_sentences=len(lines),
    )
    assert corpus.vocabulary == expected
    assert corpus.vocabulary.counts == expected.counts
    ids = [token for line in lines for token in [*expected.encode(line).tolist(), EOS_ID]]
    assert corpus.ids("train").tolist() == ids


SETTINGS: list[dict[str, Any]] = [
    {"unit": "word", "vocab_size": 20, "skip_empty_lines": True},
    {"unit": "word", "lowercase": True},
    {"unit": "char", "min_count": 5},
    {"unit": "byte"},
    {"unit": "bpe", "vocab_size": 60, "sample_lines": 30},
    {"unit": "unigram", "sample_lines": 50},
]


@pytest.mark.parametrize("options", SETTINGS)
def test_tiny_blocks_give_the_same_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    path = tmp_path / "text.txt"
    path.write_text(PROSE.replace("5 times", "5\n  \n\nTimes"), encoding="utf-8")
    config = PrepareConfig(seed=3, **options)
    whole = prepare([path], tmp_path / "whole", config)
    original = reading.BlockReader.__init__

    def tiny(self: reading.BlockReader, *arguments: Any) -> None:
        original(self, *arguments)
        self._block_size = 64

    monkeypatch.setattr(reading.BlockReader, "__init__", tiny)
    pieces = prepare([path], tmp_path / "pieces", config)
    assert pieces.info == whole.info
    assert pieces.vocabulary == whole.vocabulary
    assert pieces.vocabulary.counts == whole.vocabulary.counts
    assert whole.splits() == ["train", "valid", "test"]
    for split in whole.splits():
        assert pieces.ids(split).tolist() == whole.ids(split).tolist()


@pytest.mark.parametrize("unit", ["char", "byte", "bpe", "unigram"])
def test_text_comes_back(tmp_path: Path, unit: str) -> None:
    corpus = make(tmp_path, PROSE + "\n  two\tblanks \n", unit=unit)
    expected = PROSE + "\n  two\tblanks \n"
    assert corpus.tokenizer.decode(corpus.ids("train")) == expected
    part = corpus.info["splits"]["train"]
    assert part["bytes"] == len(expected.encode())
    assert part["sentences"] == expected.count("\n")
    assert part["unknown"] == 0
    if unit == "char":
        assert part["tokens"] == len(expected)
    if unit in ("char", "byte"):
        counts = np.bincount(corpus.ids("train"), minlength=len(corpus.vocabulary))
        assert corpus.vocabulary.counts == counts.tolist()


def test_characters_in_order_of_first_occurrence(tmp_path: Path) -> None:
    corpus = make(tmp_path, "zb😀ab\n가z\n", unit="char")
    assert corpus.vocabulary.symbols[2:] == ["z", "b", "😀", "a", "가"]
    assert corpus.vocabulary.counts == [0, 2, 2, 2, 1, 1, 1]


def test_bytes_are_counted_before_lowercasing(tmp_path: Path) -> None:
    corpus = make(tmp_path, "İ A\n", lowercase=True)  # 2 bytes; its lower case has 3
    assert corpus.vocabulary.symbols[2:] == ["i̇", "a"]
    assert corpus.info["splits"]["train"]["bytes"] == 5
    assert corpus.tokenizer.encode("İ A").tolist() == [2, 3]


# --- splits


def test_splits_are_drawn_by_line_and_seed(source: Path, tmp_path: Path) -> None:
    def sentences(seed: int, output: str) -> dict[str, list[str]]:
        config = PrepareConfig(split=(60.0, 30.0, 10.0), unit="byte", seed=seed)
        corpus = prepare([source], tmp_path / output, config)
        return {s: corpus.tokenizer.decode(corpus.ids(s)).splitlines() for s in corpus.splits()}

    first, again, other = sentences(1, "a"), sentences(1, "b"), sentences(2, "c")
    assert first == again != other
    assert sorted(line for lines in first.values() for line in lines) == sorted(LINES)
    # 400 draws: three standard deviations are 29, 27 and 18 lines
    assert abs(len(first["train"]) - 240) < 29
    assert abs(len(first["valid"]) - 120) < 27
    assert abs(len(first["test"]) - 40) < 18
    for lines in first.values():  # in the order of the text
        assert lines == [line for line in LINES if line in set(lines)]


def test_the_vocabulary_is_that_of_the_training_lines(source: Path, tmp_path: Path) -> None:
    corpus = prepare([source], tmp_path / "out", PrepareConfig(split=(50.0, 50.0)))
    train, valid = corpus.ids("train"), corpus.ids("valid")
    assert corpus.splits() == ["train", "valid"]
    assert UNK_ID not in train
    assert UNK_ID in valid  # numbers that only the other half has
    counts = np.bincount(train, minlength=len(corpus.vocabulary))
    assert corpus.vocabulary.counts == counts.tolist()
    assert corpus.info["splits"]["valid"]["unknown"] == int((valid == UNK_ID).sum())


def test_given_splits(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for name, words in (("wiki.train.tokens", "a b"), ("wiki.valid.tokens", "b c")):
        (folder / name).write_text(words + "\n")
    (folder / "test.txt.gz").write_bytes(gzip.compress(b"a\n"))
    (folder / "README.md").write_text("not a text")
    (folder / "train.conllu").write_text("a treebank of the same sentences")
    (folder / ".train.txt.swp").write_bytes(b"\xff")
    corpus = prepare([folder], tmp_path / "out")
    assert {split: corpus.ids(split).tolist() for split in corpus.splits()} == {
        "train": [2, 3, 1],
        "valid": [3, 0, 1],
        "test": [2, 1],
    }
    assert corpus.info["shares"] is None
    assert corpus.info["sources"] == [
        {
            "path": str(folder / name),
            "split": split,
            "sha256": hashlib.sha256((folder / name).read_bytes()).hexdigest(),
        }
        for split, name in (
            ("train", "wiki.train.tokens"),
            ("valid", "wiki.valid.tokens"),
            ("test", "test.txt.gz"),
        )
    ]
    other = prepare(
        [folder / "wiki.train.tokens"], tmp_path / "two", valid=folder / "wiki.valid.tokens"
    )
    assert other.splits() == ["train", "valid"]
    (folder / "wiki.valid.tokens").rename(folder / "dev.txt")
    assert prepare([folder], tmp_path / "three").splits() == ["train", "valid", "test"]


def test_split_with_given_splits_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--valid gives one"):
        prepare([source], tmp_path / "out", PrepareConfig(split=(90.0, 10.0)), valid=source)
    assert leftovers(tmp_path) == ["text.txt"]


def test_a_text_too_short_for_all_splits(tmp_path: Path) -> None:
    corpus = make(tmp_path, "one line\n", split=(99.8, 0.1, 0.1))
    assert corpus.splits() == ["train"]
    with pytest.raises(DataError, match="no valid split, only train") as error:
        corpus.ids("valid")
    assert "--valid" in error.value.hint
    with pytest.raises(DataError, match="no line is left for training"):
        make(tmp_path, "one line\n", split=(0.01, 99.99))
    with pytest.raises(DataError, match="no line is left for training"):
        make(tmp_path, " \n\n", skip_empty_lines=True)
    with pytest.raises(DataError, match="the text has only empty lines"):
        make(tmp_path, " \n\n" * 50)


def test_an_empty_given_split(source: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(DataError, match="the file is empty"):
        prepare([source], tmp_path / "out", valid=tmp_path / "empty")
    (tmp_path / "empty").write_text(" \n\n")
    with pytest.raises(DataError, match="the valid text has only empty lines"):
        prepare(
            [source],
            tmp_path / "out",
            PrepareConfig(skip_empty_lines=True),
            valid=tmp_path / "empty",
        )
    assert leftovers(tmp_path) == ["empty", "text.txt"]


@given(
    lines=st.lists(st.sampled_from([b"", b" ", b"a", b"bb", b" c"])),
    size=st.integers(1, 5),
    skip=st.booleans(),
    shares=st.none() | st.just((50, 30, 20)),
)
def test_draw_splits_keeps_lines_and_their_numbers(
    lines: list[bytes], size: int, skip: bool, shares: tuple[int, ...] | None
) -> None:
    blocks = [
        b"".join(line + b"\n" for line in lines[i : i + size]) for i in range(0, len(lines), size)
    ]
    found = []
    at = iter(blocks)
    current: list[bytes] = []

    def count() -> Any:
        for block in at:
            current[:] = block.split(b"\n")[:-1]
            yield block

    rng = np.random.default_rng(0)
    for piece in draw_splits(count(), shares=shares, rng=rng, skip_empty_lines=skip):
        for number, line in enumerate(piece.block.split(b"\n")[:-1], start=1):
            assert current[piece.source_line(number) - 1] == line
            found.append(line)
    assert Counter(found) == Counter(line for line in lines if line.strip() or not skip)


def test_line_sample_is_uniform() -> None:
    # 4 of 12 lines, 3000 times: each line 1000 times, standard deviation 26
    counts: Counter[str] = Counter()
    rng = np.random.default_rng(5)
    for _ in range(3000):
        sample = LineSample(4, rng)
        for start in (0, 5, 6):
            stop = {0: 5, 5: 6, 6: 12}[start]
            sample.add("".join(f"{i}\n" for i in range(start, stop)))
        assert len(set(sample.lines)) == 4
        assert sample.num_seen == 12
        counts.update(sample.lines)
    assert len(counts) == 12
    assert all(abs(count - 1000) < 4 * 26 for count in counts.values())


# --- vocabularies from outside


def test_word_list(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("<unk>\n<s>\n</s>\ndog\n cat\r\nbird\n")
    corpus = make(tmp_path, "cat dog cat cow\n", vocab=str(tmp_path / "words"))
    assert corpus.vocabulary.symbols[2:] == ["dog", "cat", "bird"]
    assert corpus.vocabulary.counts == [1, 1, 1, 2, 0]
    assert corpus.ids("train").tolist() == [3, 2, 3, 0, 1]
    (tmp_path / "words").write_text("Dog\ndog\n")
    lower = make(tmp_path, "DOG\n", vocab=str(tmp_path / "words"), lowercase=True)
    assert lower.ids("train").tolist() == [2, 1]
    (tmp_path / "words").write_text("a\nb\n\n \n")  # as an editor leaves it
    ended = make(tmp_path, "b\n", vocab=str(tmp_path / "words"))
    assert ended.vocabulary.symbols[2:] == ["a", "b"]
    (tmp_path / "words").write_text("a\n \n")
    chars = make(tmp_path, "a b\n", vocab=str(tmp_path / "words"), unit="char")
    assert chars.ids("train").tolist() == [2, 3, 0, 1]


@pytest.mark.parametrize(
    ("content", "unit", "message"),
    [
        ("a\n\nb\n", "word", ":2: an empty line"),
        ("a\n\n \nb\n\n", "word", ":2: an empty line"),
        ("a\nb\na\n", "word", ":3: 'a' is listed twice"),
        ("a\nb c\n", "word", ":2: 'b c' holds a blank"),
        ("a\nbc\n", "char", ":2: 'bc' is not one character"),
        ("", "word", "empty"),
    ],
)
def test_bad_word_lists(tmp_path: Path, content: str, unit: str, message: str) -> None:
    (tmp_path / "words").write_text(content)
    with pytest.raises(DataError) as error:
        make(tmp_path, "a\n", vocab=str(tmp_path / "words"), unit=unit)
    assert message in str(error.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unit": "wrd"}, "unit is 'wrd'"),
        ({"vocab_size": 2}, "vocab-size is 2, but must be at least 3"),
        ({"min_count": 0}, "min-count is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"unit": "bpe", "character_coverage": 0.5}, "character-coverage is 0.5"),
        ({"unit": "bpe", "character_coverage": 1.5}, "character-coverage is 1.5"),
        ({"unit": "byte", "vocab_size": 300}, "vocab-size means nothing"),
        ({"unit": "bpe", "min_count": 2}, "min-count means nothing"),
        ({"unit": "bpe", "vocab": "x"}, "vocab means nothing"),
        ({"unit": "char", "special_tokens": "skip"}, "special-tokens means nothing"),
        ({"byte_fallback": True}, "byte-fallback means nothing"),
        ({"character_coverage": 0.99}, "character-coverage means nothing"),
        ({"vocab": "x", "min_count": 2}, "vocab gives all words"),
        ({"split": (50.0, 40.0)}, "sums to 90"),
        ({"split": (0.0, 100.0)}, "split is 0,100"),
        ({"split": (110.0, -10.0)}, "split is 110,-10"),
        ({"split": (25.0, 25.0, 25.0, 25.0)}, "split is 25"),
        ({"split": ()}, "split is"),
        ({"split": (float("nan"), 1.0)}, "split is nan"),
    ],
)
def test_impossible_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PrepareConfig(**options)


# --- special symbols


@pytest.mark.parametrize("split", [(100.0,), (1.0, 99.0)])
def test_special_symbols_are_located(tmp_path: Path, split: tuple[float, ...]) -> None:
    content = "fine\n" * 300 + "not </s> fine\n" + "fine\n" * 10
    with pytest.raises(DataError, match="special symbol </s>") as error:
        make(tmp_path, content, split=split)
    assert (error.value.path, error.value.line) == (str(tmp_path / "made.txt"), 301)
    assert leftovers(tmp_path) == ["made.txt"]
    unknown = make(tmp_path, content, special_tokens="unknown")
    assert unknown.info["splits"]["train"]["unknown"] == 1
    assert unknown.vocabulary.counts[UNK_ID] == 1
    skipped = make(tmp_path, content, special_tokens="skip")
    assert skipped.info["splits"]["train"]["unknown"] == 0
    assert skipped.info["splits"]["train"]["tokens"] == 311 + 312
    assert make(tmp_path, content, unit="char").info["splits"]["train"]["unknown"] == 0


def test_special_symbols_in_given_splits_and_json_are_located(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one\\ntwo"}\n\n{"text": "a\\nb\\n<s> c"}\n')
    with pytest.raises(DataError, match="special symbol <s>") as error:
        make(tmp_path, "x\n", special_tokens="refuse") and prepare(
            [tmp_path / "made.txt"], tmp_path / "two", valid=path
        )
    assert (error.value.path, error.value.line) == (str(path), 3)


# --- the directory


def test_output_that_exists(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    first = prepare([source], output)  # an empty directory is as good as none
    with pytest.raises(OutputError, match="exists already") as error:
        prepare([source], output)
    assert "--force" in error.value.hint
    second = prepare([source], output, PrepareConfig(unit="char"), force=True)
    assert second.info["unit"] == "char"
    assert first.info["unit"] == "word"
    files = ["corpus.json", "test.bin", "train.bin", "valid.bin", "vocabulary.json"]
    assert leftovers(output) == files
    assert leftovers(tmp_path) == ["out", "text.txt"]


def test_force_replaces_nothing_but_corpora(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "precious"
    folder.mkdir()
    (folder / "thesis.tex").write_text("x")
    (tmp_path / "link").symlink_to(folder)
    for target in (folder, source, tmp_path / "link"):
        with pytest.raises(OutputError, match="no prepared corpus"):
            prepare([source], target, force=True)
    assert leftovers(folder) == ["thesis.tex"]


def test_an_error_leaves_what_was_there(source: Path, tmp_path: Path) -> None:
    before = prepare([source], tmp_path / "out")
    (tmp_path / "bad").write_bytes(b"a\n" * 1000 + b"\xff")
    with pytest.raises(DataError, match="byte 2000"):
        prepare([tmp_path / "bad"], tmp_path / "out", force=True)
    assert leftovers(tmp_path) == ["bad", "out", "text.txt"]
    assert PreparedCorpus.open(tmp_path / "out").info == before.info


@pytest.mark.parametrize("unit", ["word", "bpe"])
def test_interruption_leaves_nothing(source: Path, tmp_path: Path, unit: str) -> None:
    def interrupt(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare([source], tmp_path / "out", PrepareConfig(unit=unit), on_progress=interrupt)
    assert leftovers(tmp_path) == ["text.txt"]


def test_full_disk_leaves_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: prepared.IdWriter, ids: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(prepared.IdWriter, "write", full)
    with pytest.raises(OutputError, match="no space left on device") as error:
        prepare([source], tmp_path / "out")
    assert error.value.path == str(tmp_path / "out")
    assert "free some space" in error.value.hint
    assert leftovers(tmp_path) == ["text.txt"]


def test_a_write_that_the_system_refuses(source: Path, tmp_path: Path) -> None:
    # a real limit on file sizes, the nearest there is to a full disk
    program = f"""
import resource, sys
from seqtool.cli.app import main
import seqtool.text.words
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
sys.exit(main(["prepare", {str(source)!r}, "-o", {str(tmp_path / "out")!r}]))
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.startswith(f"error: {tmp_path / 'out'}: file too large\nhint: ")
    assert result.stderr.count("\n") == 2
    assert leftovers(tmp_path) == ["text.txt"]


def test_progress_covers_all_files(source: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    prepare([source], tmp_path / "out", valid=source, on_progress=lambda *at: seen.append(at))
    size = source.stat().st_size
    assert seen == [(size, 2 * size), (2 * size, 2 * size)]


# --- opening


def change(path: Path, **changes: Any) -> None:
    info = json.loads((path / "corpus.json").read_text())
    info.update(changes)
    (path / "corpus.json").write_text(json.dumps(info))


def test_open_checks_what_is_there(source: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such prepared corpus"):
        PreparedCorpus.open(tmp_path / "out")
    with pytest.raises(DataError, match="is a file"):
        PreparedCorpus.open(source)
    with pytest.raises(DataError, match=r"it has no corpus\.json"):
        PreparedCorpus.open(tmp_path)
    out = prepare([source], tmp_path / "out").path
    good = (out / "corpus.json").read_bytes()
    for content in (b"", b"[]", b"\xff", b"{}", b'{"format_version": "1"}', good[:100]):
        (out / "corpus.json").write_bytes(content)
        with pytest.raises(DataError, match="is damaged"):
            PreparedCorpus.open(out)
    for changes, message in (
        ({"format_version": 3}, "format 3 is newer"),
        ({"unit": "syllable"}, "unit is 'syllable'"),
    ):
        (out / "corpus.json").write_bytes(good)
        change(out, **changes)
        with pytest.raises(ModelError, match=message):
            PreparedCorpus.open(out)
    for damage in ({"dtype": "int8"}, {"splits": 3}, {"splits": {"train": {}}}):
        (out / "corpus.json").write_bytes(good)
        change(out, **damage)
        with pytest.raises(DataError, match="is damaged"):
            PreparedCorpus.open(out)
    (out / "corpus.json").write_bytes(good)
    change(out, vocabulary_size=5)
    with pytest.raises(DataError, match="says 5"):
        PreparedCorpus.open(out)
    (out / "corpus.json").write_bytes(good)
    with (out / "train.bin").open("ab") as file:
        file.write(b"x")
    with pytest.raises(DataError, match=r"has \d+ bytes instead of") as error:
        PreparedCorpus.open(out)
    assert error.value.path == str(out / "train.bin")
    (out / "train.bin").unlink()
    with pytest.raises(DataError, match="is missing"):
        PreparedCorpus.open(out)


def test_open_corpus(source: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "run" / "corpus"
    made = open_corpus(source, workspace=workspace, config=PrepareConfig(unit="char"))
    assert made.path == workspace
    opened = open_corpus(workspace, workspace=tmp_path / "unused")
    assert opened.info == made.info
    again = open_corpus(source, workspace=workspace)  # replaces the one that was there
    assert again.info["unit"] == "word"
    assert leftovers(tmp_path) == ["run", "text.txt"]


# --- memory, and real text

PEAK = """
import resource, sys
from seqtool.text.prepared import PrepareConfig, prepare
if sys.argv[3] == "word":
    import seqtool.text.words
prepare([sys.argv[1]], sys.argv[2], PrepareConfig(unit=sys.argv[3], sample_lines=2000))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)  # KiB
"""


def peak_kib(path: Path, output: Path, unit: str) -> int:
    command = [sys.executable, "-c", PEAK, str(path), str(output), unit]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(result.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss in KiB is Linux's")
@pytest.mark.parametrize(
    ("unit", "megabytes"), [("word", 3), ("char", 3), ("byte", 3), ("bpe", 1.5)]
)
def test_peak_memory_does_not_grow_with_the_text(
    tmp_path: Path, unit: str, megabytes: float
) -> None:
    num = int(megabytes * 1e6 / len(PROSE.encode()))
    (tmp_path / "short").write_text(PROSE * num, encoding="utf-8")
    (tmp_path / "long").write_text(PROSE * num * 10, encoding="utf-8")
    short = peak_kib(tmp_path / "short", tmp_path / "a", unit)
    long = peak_kib(tmp_path / "long", tmp_path / "b", unit)
    # ten times the text is 13 to 27 MB more; what is allowed is the allocator's noise
    assert abs(long - short) < 6 * 1024


def test_one_line_of_50_megabytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"word " * 9_999_999 + b"end")
    corpus = prepare([tmp_path / "a"], tmp_path / "words", PrepareConfig(split=(100.0,)))
    ids = corpus.ids("train")
    assert len(ids) == 10_000_001
    assert ids[-3:].tolist() == [2, 3, 1]
    (tmp_path / "a").write_bytes(b"x" * 50_000_000)
    corpus = prepare([tmp_path / "a"], tmp_path / "word", PrepareConfig(split=(100.0,)))
    assert corpus.ids("train").tolist() == [2, 1]


def test_wikitext_2(shared_data: Path, tmp_path: Path) -> None:
    train = shared_data / "wikitext-2" / "train.txt"
    if not train.is_file():
        pytest.skip("no WikiText-2 in ../shared/data")
    corpus = prepare([train], tmp_path / "out", PrepareConfig(split=(100.0,)))
    part = corpus.info["splits"]["train"]
    num_words = part["tokens"] - part["sentences"]
    counts = Counter(re.findall(r"[^ \t\r\n]+", train.read_text(encoding="utf-8")))
    assert num_words == counts.total() == 2_051_910
    assert len(corpus.vocabulary) == 33_277 + 1  # its <unk> is among the types, </s> is not
    # symbols in the order of their counts, each with its own
    assert {
        word: count
        for word, count in zip(corpus.vocabulary.symbols, corpus.vocabulary.counts, strict=True)
        if word != "</s>"
    } == counts
    assert corpus.vocabulary.counts[2:] == sorted(corpus.vocabulary.counts[2:], reverse=True)
