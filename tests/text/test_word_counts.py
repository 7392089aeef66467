"""Words counted in a database: the corpus of one table in memory, however few words fit into it."""

from __future__ import annotations

import gzip
import json
import random
import sys
from collections import Counter
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
import zstandard

from seqtool import PrepareConfig, prepare
from seqtool.core.errors import ConfigError, DataError, OutputError
from seqtool.text import word_counts

duckdb = pytest.importorskip(
    "duckdb", reason="duckdb is not installed: pip install 'seqtool[scale]'"
)


def lines(num: int, seed: int) -> list[str]:
    """Lines of 6,000 different words, most of them rare; some are empty."""
    rng = random.Random(seed)
    words = [*(f"w{number}" for number in range(6000)), "École", "<unk>", "<s>"]
    return [
        rng.choice([" ", "\t", "  "]).join(
            words[min(len(words) - 1, int(rng.paretovariate(0.25)))]
            for _ in range(rng.randrange(9))
        )
        for _ in range(num)
    ]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_bytes("\r\n".join(lines(4000, 1)).encode())
    (folder / "b.txt.gz").write_bytes(gzip.compress("\n".join(lines(2000, 2)).encode()))
    (folder / "c.txt.zst").write_bytes(zstandard.compress("\n".join(lines(2000, 3)).encode()))
    rows = [json.dumps({"text": "\n".join(lines(40, seed))}) for seed in range(4, 24)]
    (folder / "d.jsonl").write_text("\n".join(rows))
    return folder


def content(corpus: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in corpus.iterdir()}


@pytest.mark.parametrize(
    "options",
    [
        {"special_tokens": "unknown"},
        {"special_tokens": "skip", "lowercase": True, "min_count": 2, "split": (80.0, 20.0)},
        {"special_tokens": "skip", "vocab_size": 50, "skip_empty_lines": True},
    ],
)
@pytest.mark.parametrize("share", [word_counts._TABLE_SHARE, 1e-9])
def test_the_same_files(
    texts: Path,
    tmp_path: Path,
    options: dict[str, Any],
    share: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generations = []
    add = word_counts.WordCounts.add
    monkeypatch.setattr(
        word_counts.WordCounts,
        "add",
        lambda counts, table: (generations.append(len(table)), add(counts, table))[1],
    )
    monkeypatch.setattr(word_counts, "_TABLE_SHARE", share)
    config = PrepareConfig(**options)
    for engine in ("memory", "duckdb"):
        prepare([texts], tmp_path / engine, config, engine=engine, shards=2)
    assert content(tmp_path / "memory") == content(tmp_path / "duckdb")
    assert (len(generations) > 1) == (share < 1e-3)
    assert {path.name for path in tmp_path.iterdir()} == {"memory", "duckdb", "texts"}


def test_the_vocabulary_is_what_a_dictionary_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(word_counts, "_TABLE_SHARE", 1e-9)
    plain = [line.replace("<s>", "s") for line in lines(9000, 5)]
    text = tmp_path / "text.txt"
    text.write_text("\n".join(plain) + "\n")
    config = PrepareConfig(min_count=3, split=(100.0,))
    corpus = prepare(text, tmp_path / "corpus", config, engine="duckdb")
    counts = Counter(word for line in plain for word in line.split())
    unknown = counts.pop("<unk>", 0) + sum(num for num in counts.values() if num < 3)
    kept = sorted((word for word in counts if counts[word] >= 3), key=lambda word: -counts[word])
    assert corpus.vocabulary.symbols == ["<unk>", "</s>", *kept]  # stable: first ones first
    assert corpus.vocabulary.counts == [unknown, len(plain), *(counts[word] for word in kept)]
    words = [word for line in plain for word in [*line.split(), "</s>"]]
    assert corpus.ids("train").tolist() == corpus.vocabulary.encode(words).tolist()


def test_auto_takes_the_disk_when_the_words_fill_the_memory(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    config = PrepareConfig(special_tokens="skip")
    prepare([texts], tmp_path / "small", config, on_message=told.append)
    assert told == []
    monkeypatch.setattr(word_counts, "_TABLE_SHARE", 1e-9)
    prepare([texts], tmp_path / "large", config, on_message=told.append)
    assert told == ["engine: duckdb, as the words are too many for the memory"]
    assert content(tmp_path / "small") == content(tmp_path / "large")
    with pytest.raises(DataError, match=r"different words need about .* of memory") as error:
        prepare([texts], tmp_path / "refused", config, engine="memory", memory=1000)
    assert error.value.hint == "take the disk with --engine duckdb; raise --memory"
    assert not (tmp_path / "refused").exists()


def test_what_the_engine_does_not_do(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def error_of(kind: type[Exception], **options: Any) -> str:
        config = PrepareConfig(**options.pop("config", {"special_tokens": "skip"}))
        with pytest.raises(kind) as caught:
            prepare([texts], tmp_path / "corpus", config, **options)
        assert [path.name for path in tmp_path.iterdir()] == ["texts"]
        return str(caught.value)

    assert "no engine is called 'duck'" in error_of(ConfigError, engine="duck")
    assert "needs a session" in error_of(ConfigError, engine="spark")
    chars = error_of(ConfigError, engine="duckdb", config={"unit": "char"})
    assert chars.startswith("the engine duckdb counts words, and the unit char leaves none")
    unused = error_of(ConfigError, config={"unit": "char"}, memory=10**9)
    assert unused.startswith("--memory is for words, and the unit char leaves none to be counted")
    little = error_of(DataError, engine="duckdb", memory=10**8)
    assert little.startswith("the engine duckdb needs 0.50 GB of memory for any text, but 0.10 GB")
    missing = error_of(OutputError, engine="duckdb", temp=tmp_path / "nowhere")
    assert "the folder for temporary files is not there" in missing
    (texts / "z.txt").write_bytes(b"caf\xe9\n")
    assert "z.txt:1: not UTF-8" in error_of(DataError, engine="duckdb")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "duckdb", None)
        assert "needs duckdb, which is not" in error_of(ConfigError, engine="duckdb")


@pytest.mark.parametrize(
    "query", ["SELECT word, count FROM kept", "SELECT CAST(sum", "SELECT number"]
)
def test_what_is_told_when_the_memory_is_full(
    query: str, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query gives its rows one after another: memory may run out when the first have come."""

    class Full:
        """A connection whose queries for rows run out of memory while these are fetched."""

        def __init__(self, connection: Any) -> None:
            self._connection = connection

        def __getattr__(self, name: str) -> Any:
            return getattr(self._connection, name)

        def execute(self, sql: str) -> Any:
            return Rows() if sql.startswith(query) else self._connection.execute(sql)

    class Rows:
        """What such a query returns."""

        def fetchmany(self, num: int) -> Any:
            raise duckdb.OutOfMemoryException("Out of Memory Error: no room")

        fetchnumpy = fetchall = partialmethod(fetchmany, 1)

    config, connect = PrepareConfig(special_tokens="skip"), duckdb.connect
    monkeypatch.setattr(duckdb, "connect", lambda *args, **options: Full(connect(*args, **options)))
    with pytest.raises(DataError, match="DuckDB has too little memory: ") as caught:
        prepare([texts], tmp_path / "corpus", config, engine="duckdb")
    assert caught.value.hint == "raise --memory, or lower --threads"
    assert [path.name for path in tmp_path.iterdir()] == ["texts"]
