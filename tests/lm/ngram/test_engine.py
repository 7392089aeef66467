"""DuckDB against what is estimated in memory: the same tables and files, to the last bit."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtool import NgramConfig, evaluate_lm, prepare, train_ngram
from seqtool.core import checkpoint
from seqtool.core.errors import ConfigError, DataError, OutputError
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.ngram import data
from seqtool.lm.ngram.config import SMOOTHINGS
from seqtool.lm.ngram.counts import count_ngrams
from seqtool.lm.ngram.engine import contexts, duckdb, output, plan
from seqtool.lm.ngram.engine.keys import Keys, Packer
from seqtool.lm.ngram.smoothing import estimate
from seqtool.lm.ngram.table import BackoffTable

TEXT = "the dog sees a cat\n\na cat sees the dog\nthe old dog <unk>\n" * 12
CONFIG = NgramConfig(order=3, prune=(0, 0, 1))
SIZE = 30  # words, some of which the text does not have
SIZES = st.sampled_from([3, 8, 255, 33_000, 2**21 - 1, 2**21, 2**30])  # 2 to 31 bits a word
texts = st.lists(st.sampled_from([0, EOS_ID, 2]), min_size=1, max_size=30)


def value(expression: str, columns: dict[str, int]) -> int:
    """Evaluate SQL of numbers, `&`, comparisons and AND, which are those of Python too."""
    return int(eval(expression.replace("AND", "and").replace("1 = 0", "False"), {}, columns))


@given(texts, SIZES, st.integers(1, 9), st.integers(1, 29))
def test_every_token_ends_an_ngram(text: list[int], size: int, order: int, cut: int) -> None:
    keys, ids = Keys(size), np.array(text, np.int32)
    packer = Packer(keys, order)
    columns = list(np.concatenate([packer.pack(ids[:cut]), packer.pack(ids[cut:])], axis=1))
    words = keys.words(columns, order)
    history = [size] * order
    for place, word in enumerate(text):
        history = [*history[1:], word]
        ngram = {n: np.array(history[-n:], np.int32) for n in range(1, order + 1)}
        assert words[:, place].tolist() == history
        whole = keys.values(ngram[order])
        named = dict(zip(keys.columns(order), whole, strict=True))
        assert [column[place] for column in columns] == whole
        assert value(keys.from_start(order), named) == (history[0] == size)
        assert value(keys.is_filled_up(order), named) == (order > 1 and history[:2] == [size] * 2)
        if order > 1:
            suffix = [value(part, named) for part in keys.suffix(order)]
            assert suffix == keys.values(ngram[order - 1])
            context = [column[place] for column in keys.contexts(columns, order)]
            assert context == keys.values(np.array(history[:-1], np.int32))
        if word == EOS_ID:
            history = [size] * order


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let contexts, rows and sentences go on from piece to piece."""
    sizes = ((contexts, "GIVEN", 50), (duckdb, "_BATCH", 30), (duckdb, "_PIECE", 37))
    for module, name, num in (*sizes, (output, "_PIECE", 7)):
        monkeypatch.setattr(module, name, num)


def random_text(num_sentences: int = 300, seed: int = 0) -> np.ndarray:
    """Sentences of no word to seven; `<unk>` is among the words."""
    rng = np.random.default_rng(seed)
    ids: list[int] = []
    for _ in range(num_sentences):
        words = np.minimum(rng.zipf(1.5, rng.integers(0, 8)), SIZE - 4) + 1
        ids += [*np.where(words == 4, 0, np.maximum(words, 2)).tolist(), EOS_ID]
    return np.array(ids, np.int32)


def assert_same(
    folder: Path,
    config: NgramConfig,
    *,
    ids: np.ndarray | None = None,
    size: int = SIZE,
    allowed: np.ndarray | None = None,
) -> BackoffTable:
    """Estimate in memory and by the plan; compare all of it, and return the table."""
    ids = random_text() if ids is None else ids
    wanted = estimate(count_ngrams(ids, config.order, size), config, allowed=allowed)
    with closing(duckdb.DuckDB(folder, 2, None)) as engine:
        text = duckdb.take_text(engine, ids, size, config.order)
        found = plan.estimate(engine, text, config, allowed=allowed)
        table = output.write_table(folder / "weights", engine, found)
    assert found.statistics == wanted.statistics
    assert found.warnings == wanted.warnings
    assert list(table.arrays()) == list(wanted.table.arrays())
    for name, array in wanted.table.arrays().items():
        np.testing.assert_array_equal(table.arrays()[name], array, err_msg=name)
    return table


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("smoothing", sorted(SMOOTHINGS))
@pytest.mark.parametrize("prune", [(), (0, 1, 2)])
def test_every_smoothing(smoothing: str, prune: tuple[int, ...], tmp_path: Path) -> None:
    table = assert_same(tmp_path, NgramConfig(order=4, smoothing=smoothing, prune=prune))
    assert all(len(level) for level in table.levels)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize(
    "config",
    [
        NgramConfig(order=1),
        NgramConfig(order=2, fallback=(0.4, 0.9, 1.3)),
        NgramConfig(order=7),
        NgramConfig(order=3, prune=(0, 0, 10_000)),  # to nothing
    ],
)
def test_orders(config: NgramConfig, tmp_path: Path) -> None:
    assert_same(tmp_path, config)


@pytest.mark.usefixtures("small_pieces")
def test_only_some_words(tmp_path: Path) -> None:
    allowed = np.ones(SIZE + 1, np.bool_)
    allowed[[3, 5, 6, 20]] = False
    assert_same(tmp_path, NgramConfig(order=3, prune=(0, 0, 1)), allowed=allowed)


def test_words_of_many_bits(tmp_path: Path) -> None:
    # 22 bits a word, 2 words a column; most words are not in the text
    size = 2_200_000
    ids = np.where(random_text(60) > 5, random_text(60) + size - 40, random_text(60))
    assert_same(tmp_path, NgramConfig(order=5), ids=ids.astype(np.int32), size=size)


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
    assert train_ngram(text, tmp_path / "small", CONFIG).engine.startswith("memory, as 216 tokens")
    monkeypatch.setattr(data, "memory_needed", lambda num_tokens, order: num_tokens << 40)
    assert train_ngram(text, tmp_path / "large", CONFIG).engine.startswith("duckdb, as 216 tokens")
    weights = [tmp_path / name / "weights.safetensors" for name in ("small", "large")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    with pytest.raises(DataError, match="216 tokens at order 3 need about"):
        train_ngram(text, tmp_path / "refused", CONFIG, engine="memory")
    monkeypatch.setitem(sys.modules, "duckdb", None)  # it is not installed
    for engine, wanted in (("auto", DataError), ("duckdb", ConfigError)):
        with pytest.raises(wanted) as error:
            train_ngram(text, tmp_path / "refused", CONFIG, engine=engine)
        assert error.value.hint
    assert not (tmp_path / "refused").exists()


def test_what_is_refused(text: Path, tmp_path: Path) -> None:
    for engine, settings, memory, word in (
        ("duck", {}, None, "duck"),
        ("duckdb", {"classes": "c.txt"}, None, "classes"),
        ("duckdb", {"discounts": "kenlm"}, None, "KenLM"),
        ("duckdb", {}, 220_000_000, "0.50 GB"),
        ("duckdb", {"order": 9}, None, "longest sentence"),
    ):
        config = NgramConfig(**settings)
        with pytest.raises((ConfigError, DataError), match=word) as error:
            train_ngram(text, tmp_path / "model", config, engine=engine, memory=memory)
        assert error.value.hint
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


@pytest.mark.parametrize("name", ["a*b [c] 'd\" %e{f,g} ~$h", "s3:", "back\\slash"])
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
