"""On a real Spark: a corpus is that of one process, to the byte. `test_spark` runs this file."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from conftest import CommandResult
from spark.on_spark import CLUSTER, local, session  # noqa: F401 - fixtures

import seqtool as package
from seqtool.core.errors import ConfigError, DataError, SeqtoolError
from seqtool.spark import preparation
from seqtool.text.prepared import PrepareConfig

Run = Callable[..., CommandResult]


def lines(num: int, seed: int) -> list[str]:
    """Lines of rare and frequent words, empty ones, `<unk>`, and words of several bytes."""
    rng = random.Random(seed)
    result = []
    for _ in range(num):
        words = [f"w{int(rng.paretovariate(0.7)) % 500}" for _ in range(rng.randrange(12))]
        words += ["<unk>"] * (rng.random() < 0.1) + ["École"] * (rng.random() < 0.1)
        result.append(rng.choice([" ", "  ", "\t"]).join(words))
    return result


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of all kinds, larger than a block, whose names are not in the order of their kinds."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "b.txt").write_bytes("\r\n".join(lines(150, 1)).encode())
    (folder / "a.txt").write_text("".join(f"{line}\n" for line in lines(60, 2)))
    (folder / "c.txt.gz").write_bytes(gzip.compress("\n".join(lines(60, 3)).encode()))
    packed = zstandard.compress(("\ufeff" + "\n".join(lines(60, 4))).encode())
    (folder / "d [1].zst").write_bytes(packed)
    rows = [json.dumps({"id": 1, "text": "\r\n".join(lines(3, seed))}) for seed in range(5, 30)]
    (folder / "e.jsonl").write_text("\n\n".join(rows))
    (folder / "f.txt").write_text("")
    return folder


def files_of(corpus: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in corpus.iterdir() if path.name != "corpus.json"}


def same(ours: Path, others: Path) -> None:
    assert files_of(ours) == files_of(others)
    infos = [json.loads((path / "corpus.json").read_text()) for path in (ours, others)]
    for info in infos:
        for source in info["sources"]:
            source.pop("sha256", None)
            source["path"] = os.path.abspath(source["path"])
    assert infos[0] == infos[1]


@pytest.mark.parametrize(
    ("partitions", "shards", "options"),
    [
        (1, 1, {}),
        (3, 5, {"min_count": 2, "lowercase": True, "split": (70.0, 20.0, 10.0), "seed": 3}),
        (7, 2, {"unit": "char", "vocab_size": 20, "skip_empty_lines": True}),
        (3, 1, {"vocab": "words", "lowercase": True}),
        (3, 2, {"unit": "unigram", "vocab_size": 30, "sample_lines": 100}),
    ],
)
def test_a_corpus_is_that_of_one_process(
    session: Any,  # noqa: F811
    texts: Path,
    tmp_path: Path,
    partitions: int,
    shards: int,
    options: dict[str, Any],
) -> None:
    if "vocab" in options:
        (tmp_path / "words").write_text("w1\nw2\nÉcole\n")
        options = {**options, "vocab": str(tmp_path / "words")}
    config = PrepareConfig(**options)
    session.conf.set("spark.sql.shuffle.partitions", str(partitions))
    found = package.spark.prepare(session, [texts], tmp_path / "spark", config, shards=shards)
    package.prepare([texts], tmp_path / "memory", config, shards=shards)
    same(tmp_path / "spark", tmp_path / "memory")
    assert found.splits() == ["train", "valid", "test"]
    left = {path.name for path in tmp_path.iterdir()} - {"words"}
    assert left == {"spark", "memory"}


def test_texts_of_a_cluster_and_splits_of_their_own(
    session: Any,  # noqa: F811
    texts: Path,
    tmp_path: Path,
    seqtool: Run,
) -> None:
    """The command, on another file system; and training and measuring on what it makes."""
    for name in ("train.txt", "more.jsonl", "valid.txt"):
        source = texts / ("e.jsonl" if name == "more.jsonl" else "b.txt")
        content = source.read_text().replace("<unk>", "w1")
        (CLUSTER / name).write_text(content if name != "valid.txt" else content.upper())
    train = ["train.txt", "more.jsonl"]
    options = ["--min-count", "2", "--shards", "2", "--json"]
    urls = [f"viewfs://cluster/data/{name}" for name in [*train, "valid.txt"]]
    made = ["prepare", *urls[:2], "--valid", urls[2], "-o", tmp_path / "spark", *options]
    result = seqtool(*made, "--engine", "spark")
    assert result.code == 0, result.stderr
    info = json.loads(result.stdout)
    assert [source["path"] for source in info["sources"]] == urls
    named = [*(CLUSTER / name for name in train), "--valid", CLUSTER / "valid.txt"]
    assert seqtool("prepare", *named, "-o", tmp_path / "memory", *options).code == 0
    assert files_of(tmp_path / "spark") == files_of(tmp_path / "memory")
    assert "valid.words" in files_of(tmp_path / "spark")
    figures = []
    for corpus in (tmp_path / "spark", tmp_path / "memory"):
        model = tmp_path / f"lm-{corpus.name}"
        size = ["--hidden", "8", "--embedding", "8", "--epochs", "1", "--seed", "1"]
        trained = seqtool("train-lm", corpus, "-o", model, *size, "--json")
        assert trained.code == 0, trained.stderr
        measured = json.loads(seqtool("eval-ppl", corpus, "-m", model, "--json").stdout)
        figures.append([measured[name] for name in ("perplexity", "tokens", "oov")])
    assert figures[0] == figures[1]


def test_what_cannot_be_used_is_told_and_leaves_nothing(
    session: Any,  # noqa: F811
    tmp_path: Path,
) -> None:
    def error_of(kind: type[SeqtoolError], *inputs: str | Path, **options: Any) -> SeqtoolError:
        config = PrepareConfig(**options)
        with pytest.raises(kind) as caught:
            package.spark.prepare(session, inputs, tmp_path / "corpus", config)
        assert {path.name for path in tmp_path.iterdir()} == {"texts"}
        return caught.value

    folder = tmp_path / "texts"
    folder.mkdir()
    rows = [f"a line of words, the one of number {number}" for number in range(200)]
    for name, line, written in (
        ("latin.txt", 150, b"caf\xe9"),
        ("special.txt", 180, b"a <s> b"),
        ("bad.jsonl", 90, b"{"),
    ):
        kept = [json.dumps({"text": row}) if name == "bad.jsonl" else row for row in rows]
        content = [row.encode() for row in kept]
        content[line - 1] = written
        (folder / name).write_bytes(b"\n".join(content))
        error = error_of(DataError, folder / name, split=(100.0,))
        assert (error.path, error.line) == (str(folder / name), line), error
    assert "is a treebank" in str(error_of(DataError, *[_treebank(folder)]))
    (folder / "_hidden.txt").write_text("a\n")
    assert "passes over" in str(error_of(DataError, folder / "_hidden.txt"))
    assert "cannot read stdin" in str(error_of(DataError, "-"))
    assert "twice" in str(error_of(DataError, folder / "latin.txt", folder / "latin.txt"))
    nothing = error_of(DataError, f"{folder}/none-*.txt")
    assert nothing.hint == "check the path; each worker must be able to read it"
    assert "treebanks" in str(error_of(ConfigError, folder / "special.txt", column="form"))
    with pytest.raises(ConfigError, match="a corpus is written to a disk that all machines see"):
        package.spark.prepare(session, folder / "special.txt", "hdfs://host/corpus")


def test_a_line_of_a_table_is_none_of_its_file(
    session: Any,  # noqa: F811
    tmp_path: Path,
) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    rng = random.Random(0)
    rows = [" ".join(str(rng.random()) for _ in range(10)) for _ in range(200)]
    rows[180] = "a <s> b"
    table, text = tmp_path / "b.parquet", tmp_path / "a.txt"
    parquet.write_table(pa.table({"text": rows}), table, row_group_size=20)
    text.write_text("a b\n")
    config = PrepareConfig(split=(100.0,))
    for inputs in ([text, table], [table]):
        with pytest.raises(DataError, match="<s>") as caught:
            package.spark.prepare(session, inputs, tmp_path / "corpus", config)
        assert (caught.value.path, caught.value.line) == (str(table), None)


def _treebank(folder: Path) -> Path:
    (folder / "trees.txt").write_text("1\ta" + "\t_" * 8 + "\n\n")
    return folder / "trees.txt"


def test_a_worker_that_is_killed_costs_nothing(
    session: Any,  # noqa: F811
    texts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    marker = tmp_path / "killed"
    encode, kill, number = preparation._encode, os.kill, signal.SIGKILL

    def encode_once(parts: Iterator[Any], **options: Any) -> Iterator[Any]:
        """Encode, but for the first worker that has a batch."""
        for batch in encode(parts, **options):
            yield batch
            if not marker.exists():
                marker.touch()
                kill(os.getpid(), number)

    monkeypatch.setattr(preparation, "_encode", encode_once)
    config = PrepareConfig(split=(100.0,))
    package.spark.prepare(session, texts / "b.txt", tmp_path / "spark", config)
    assert marker.exists()
    package.prepare(texts / "b.txt", tmp_path / "memory", config)
    assert files_of(tmp_path / "spark") == files_of(tmp_path / "memory")


def test_a_worker_that_is_killed_while_it_writes_leaves_nothing(
    session: Any,  # noqa: F811
    texts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    marker = tmp_path / "killed"
    write, kill, number = preparation._write, os.kill, signal.SIGKILL

    def write_once(batches: Any, **options: Any) -> Iterator[Any]:
        """Write files, but for the first worker: it has written one, and not given it its name."""
        if not marker.exists():
            marker.touch()
            write.__globals__["flush"] = lambda path: kill(os.getpid(), number)
        yield from write(batches, **options)

    monkeypatch.setattr(preparation, "_write", write_once)
    config = PrepareConfig(split=(100.0,))
    package.spark.prepare(session, texts / "b.txt", tmp_path / "spark", config)
    assert marker.exists()
    package.prepare(texts / "b.txt", tmp_path / "memory", config)
    assert files_of(tmp_path / "spark") == files_of(tmp_path / "memory")
