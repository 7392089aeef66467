"""`train_ngram` with DuckDB: the files that it writes in memory, and what can go wrong."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seqtool import NgramConfig, evaluate_lm, prepare, train_ngram
from seqtool.core import checkpoint
from seqtool.core.errors import ConfigError, DataError, OutputError
from seqtool.lm.ngram import data

TEXT = "the dog sees a cat\n\na cat sees the dog\nthe old dog <unk>\n" * 12
CONFIG = NgramConfig(order=3, prune=(0, 0, 1))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "train.txt").write_text(TEXT, encoding="utf-8")
    (folder / "valid.txt").write_text("the cat sees a bird\n", encoding="utf-8")
    return folder


def header(model: Path) -> dict[str, object]:
    """What the model records, but for times."""
    content = json.loads((model / "model.json").read_text(encoding="utf-8"))
    content["scores"].pop("train_seconds")
    return {name: content[name] for name in content.keys() - {"sha256"}}


@pytest.mark.parametrize(
    "config",
    [
        CONFIG,
        NgramConfig(order=2, vocab_size=5),
        NgramConfig(order=3, special_tokens="skip"),
        NgramConfig(order=3, prune_entropy=0.01),
        NgramConfig(order=3, prune_entropy=0.5),  # only words stay
    ],
)
def test_the_same_files(text: Path, tmp_path: Path, config: NgramConfig) -> None:
    inside, beyond = (tmp_path / name for name in ("memory", "duckdb"))
    for model in (inside, beyond):
        trained = train_ngram(
            text, model, config, engine=model.name, arpa=f"{model}.arpa", parquet=f"{model}.pq"
        )
        assert trained.engine.startswith(f"{model.name}, as was asked for")
        assert trained.scores.keys() == {"valid_perplexity"}
    sums = header(inside), header(beyond)
    assert sums[0] == sums[1]
    for name in ("weights.safetensors", "vocabulary.json"):
        assert (inside / name).read_bytes() == (beyond / name).read_bytes()
    assert Path(f"{inside}.arpa").read_bytes() == Path(f"{beyond}.arpa").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("duckdb", "duckdb.arpa", "duckdb.pq", "memory", "memory.arpa", "memory.pq", "texts")
    ]


def test_a_prepared_corpus_and_a_closed_vocabulary(text: Path, tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("dog\ncat\nthe\nbird\n", encoding="utf-8")
    valid = text / "valid.txt"
    corpus = prepare([text / "train.txt"], tmp_path / "corpus", valid=valid).path
    for source, config in (
        (corpus, NgramConfig(order=3, limit_vocab=str(words))),
        # counts of n-grams that are left out stay in the sums of their contexts
        (text, NgramConfig(order=3, limit_vocab=str(words), smoothing="witten-bell")),
        (text, NgramConfig(order=3, limit_vocab=str(words), smoothing="absolute-discounting")),
        (text, NgramConfig(order=3, limit_vocab=str(words), smoothing="maximum-likelihood")),
        (text, NgramConfig(order=3, vocab=str(words))),
    ):
        for engine in ("memory", "duckdb"):
            trained = train_ngram(source, tmp_path / engine, config, engine=engine, force=True)
            found = evaluate_lm(checkpoint.load(tmp_path / engine), valid).perplexity
            assert trained.scores["valid_perplexity"] == pytest.approx(found)
        weights = [tmp_path / engine / "weights.safetensors" for engine in ("memory", "duckdb")]
        assert weights[0].read_bytes() == weights[1].read_bytes()


def test_auto_takes_what_the_text_needs(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = train_ngram(text, tmp_path / "small", CONFIG)
    assert trained.engine == "memory, as 216 tokens at order 3 take about 0.0 MB in memory"
    monkeypatch.setattr(data, "memory_needed", lambda num_tokens, order: num_tokens << 40)
    trained = train_ngram(text, tmp_path / "large", CONFIG)
    assert trained.engine.startswith("duckdb, as 216 tokens at order 3 take about")
    assert trained.engine.endswith("in memory, which is more than there is")
    weights = [tmp_path / name / "weights.safetensors" for name in ("small", "large")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    with pytest.raises(DataError, match="216 tokens at order 3 need about"):
        train_ngram(text, tmp_path / "refused", CONFIG, engine="memory")


@pytest.mark.parametrize("engine", ["duckdb", "auto"])
def test_less_memory_than_any_text_takes_is_refused_at_once(
    engine: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (text / "train.txt").rename(text / "0.txt")
    (text / "valid.txt").write_bytes(b"caf\xe9\n")  # which would be found when it is read
    monkeypatch.setattr(data, "memory_needed", lambda num_tokens, order: num_tokens << 40)
    paths = [text / "0.txt", text / "valid.txt"]
    with pytest.raises(DataError, match=r"needs 0\.50 GB .* 0\.22 GB are given") as error:
        train_ngram(paths, tmp_path / "model", CONFIG, engine=engine, memory=220_000_000)
    assert error.value.hint == "give it --memory 500M or more"
    assert [path.name for path in tmp_path.iterdir()] == ["texts"]


def test_what_no_engine_does(text: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no engine is called 'duck'") as error:
        train_ngram(text, tmp_path / "model", engine="duck")
    assert error.value.hint == "did you mean duckdb?"
    with pytest.raises(ConfigError, match="n-grams of classes are counted in memory only"):
        train_ngram(text, tmp_path / "model", NgramConfig(classes="c.txt"), engine="duckdb")
    with pytest.raises(ConfigError, match="KenLM's counts-of-counts are found in memory only"):
        train_ngram(text, tmp_path / "model", NgramConfig(discounts="kenlm"), engine="duckdb")


@pytest.mark.parametrize("missing", ["duckdb", "pyarrow"])
def test_an_engine_that_is_not_installed(
    missing: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ConfigError, match=f"needs {missing}, which is not installed") as error:
        train_ngram(text, tmp_path / "model", CONFIG, engine="duckdb")
    assert error.value.hint == "pip install 'seqtool[scale]'"
    monkeypatch.setattr(data, "memory_needed", lambda num_tokens, order: num_tokens << 40)
    with pytest.raises(DataError, match="216 tokens at order 3 need about") as too_large:
        train_ngram(text, tmp_path / "model", CONFIG)
    assert too_large.value.hint.startswith("take the disk with --engine duckdb")
    assert [path.name for path in tmp_path.iterdir()] == ["texts"]


@pytest.mark.parametrize("engine", ["memory", "duckdb"])
def test_damaged_files_are_named_or_left_out(engine: str, tmp_path: Path) -> None:
    folder, good = tmp_path / "texts", tmp_path / "good"
    for place in (folder, good):
        place.mkdir()
        for number in range(3):
            packed = gzip.compress(TEXT.replace("old", f"old{number}").encode())
            (place / f"{number}.gz").write_bytes(packed)
    packed = gzip.compress(b"new words come first here\n" * 1000)
    (folder / "0-damaged.gz").write_bytes(packed[:-20])
    (folder / "latin1.txt").write_bytes(b"caf\xe9\n")
    with pytest.raises(DataError, match=r"0-damaged\.gz: the gzip file is damaged"):
        train_ngram(folder, tmp_path / "model", CONFIG, engine=engine)
    assert not (tmp_path / "model").exists()
    trained = train_ngram(folder, tmp_path / "model", CONFIG, engine=engine, skip_invalid=True)
    assert [message.split(": ")[0] for message in trained.skipped] == [
        str(folder / "0-damaged.gz"),
        f"{folder / 'latin1.txt'}:1",
    ]
    assert trained.skipped[1].endswith("not UTF-8 at byte 3")
    wanted = train_ngram(good, tmp_path / "wanted", CONFIG)
    for name in ("weights.safetensors", "vocabulary.json"):
        assert (trained.path / name).read_bytes() == (wanted.path / name).read_bytes()


@pytest.mark.parametrize("name", ["a*b [c] 'd\" %e{f,g} ~$h", "s3:", "back\\slash", "a?b"])
def test_folders_of_any_name(
    name: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).mkdir()
    options: dict[str, Any] = {"engine": "duckdb", "parquet": f"{name}/ngrams"}
    if {"\\", "?"} & {*name}:  # DuckDB would look elsewhere
        with pytest.raises(OutputError, match="to a path that holds") as error:
            train_ngram(text, f"{name}/model", CONFIG, **options)
        assert "--temp" in error.value.hint
        options["temp"] = tmp_path
    train_ngram(text, f"{name}/model", CONFIG, **options)
    assert sorted(path.name for path in Path(name).iterdir()) == ["model", "ngrams"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "texts"])


def test_nothing_is_left_of_a_disk_that_is_full(text: Path, tmp_path: Path, root: Path) -> None:
    import resource

    # no file may grow beyond this; DuckDB's own has 12 KB from the beginning
    (text / "train.txt").write_text("".join(f"w{n} w{n // 3} w{n % 7}\n" for n in range(30_000)))
    command = ["ngram", "train", str(text / "train.txt"), "-o", str(tmp_path / "model")]
    process = subprocess.run(
        [sys.executable, "-m", "seqtool", *command, "--engine", "duckdb", "--temp", str(tmp_path)],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, 700_000)),
    )
    assert process.returncode == 1
    error, hint = process.stderr.splitlines()[-2:]
    assert error.startswith(f"error: {tmp_path}: a temporary file cannot be written: ")
    assert hint == "hint: free some space, or name another folder with --temp"
    assert [path.name for path in tmp_path.iterdir()] == ["texts"]
