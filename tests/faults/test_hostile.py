"""Models and corpora that a stranger made: never a traceback, a hang, or another file's content."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from faults import models
from faults.attacks import attack, write_json
from faults.conftest import locked
from faults.runs import Commands

from seqtool.core import checkpoint, storage
from seqtool.core.reading import MODEL

SECONDS = 10

Source = Callable[[str], Path]


@pytest.fixture(scope="session")
def source(commands: Commands, shared_folder: Path) -> Source:
    """Give a model, corpus or run to attack by its name; each is trained once for all workers."""
    folder = shared_folder / "attacked"

    def find(name: str) -> Path:
        with locked(shared_folder / "attacked.lock"):
            if not folder.exists():
                models.lay_out(folder)
            return models.make(commands, name, folder)

    return find


def lay_out(folder: Path, name: str, source: Source) -> Path:
    """Give a directory with a copy `x` of what is attacked, and the texts to use it on."""
    models.lay_out(folder)
    for needed in models.NEEDS.get(name, ()):
        path = source(needed)
        (shutil.copytree if path.is_dir() else shutil.copy)(path, folder / needed)
    return Path(shutil.copytree(source(name), folder / "x", symlinks=True))


def test_every_kind_of_model_and_of_run_is_attacked(source: Source) -> None:
    attacked = [source(name) for name, _ in models.USES]
    kinds = {checkpoint.read_header(path).kind for path in attacked if (path / MODEL).is_file()}
    assert kinds == set(checkpoint.LOADERS)
    runs = {checkpoint.run_kind(path) for path in attacked if (path / "run.json").is_file()}
    assert runs >= set(checkpoint.TRAINERS)


@pytest.mark.parametrize(
    ("name", "use"), models.USES, ids=[f"{name} {' '.join(use)}" for name, use in models.USES]
)
def test_hostile_directories(
    name: str,
    use: tuple[str, ...],
    commands: Commands,
    source: Source,
    chosen: random.Random,
    tmp_path: Path,
) -> None:
    lay_out(tmp_path / "honest", name, source)
    before = {path.name for path in (tmp_path / "honest").iterdir()}
    honest = commands(*use, cwd=tmp_path / "honest")
    assert honest.code in (0, 130 if name == "pipeline-stopped" else 0), honest
    folder = tmp_path / "hostile"
    lay_out(folder, name, source)
    told = attack(folder / models.attacked(name, use), chosen)
    result = commands(*use, cwd=folder, seconds=2 * SECONDS)
    made = {path.name for path in folder.iterdir()} - before - {"out", "x.arpa"}
    assert not made, f"{told}: wrote {made}"
    assert {path.name for path in tmp_path.iterdir()} == {"honest", "hostile"}
    # it answers soon, and in the memory that an honest file takes
    assert result.is_clean, f"{told}\n{result}"
    assert result.seconds < SECONDS + honest.seconds, f"{told}\n{result}"
    assert result.memory < 2 * honest.memory + (64 << 20), f"{told}: {result.memory:,} bytes"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("layers", 1_000_000),
        ("layers", 10**30),
        ("hidden_size", 10**9),
        ("embedding_size", 2**31),
        ("depth", 10**7),
        ("window", 10**9),
        ("projection_size", 10**9),
    ],
)
def test_sizes_that_nobody_has(
    field: str, value: int, commands: Commands, source: Source, tmp_path: Path
) -> None:
    model = lay_out(tmp_path / "x", "lm-rhn", source)
    header = json.loads((model / "model.json").read_bytes())
    header["config"]["model"][field] = value
    write_json(model / "model.json", header, seal=True)
    result = commands(*models.PERPLEXITY, cwd=tmp_path / "x", seconds=20)
    assert result.code == 1, result
    assert result.is_clean, result
    assert result.seconds < SECONDS
    assert result.memory < 1 << 30


@pytest.mark.parametrize("length", [3, 200])
def test_chains_of_mixtures(
    length: int, commands: Commands, source: Source, tmp_path: Path
) -> None:
    """Each mixes the next one with itself, so that the first has 2 ** length parts."""
    folder = tmp_path / "x"
    lay_out(folder, "ngram", source)
    shutil.copytree(folder / "x", folder / "y")
    text = "valid.txt"
    honest = commands("eval-ppl", text, "-m", "x", "-m", "y", "--save-mixture", "m", cwd=folder)
    assert honest.code == 0, honest
    header = json.loads((folder / "m" / "model.json").read_bytes())
    below = "m"
    for number in range(length):
        (folder / f"m{number}").mkdir()
        sum_of_part = storage.sum_of(folder / below / "model.json")
        for part in header["config"]["parts"].values():
            part |= {"path": f"../{below}", "kind": "mixture", "sha256": sum_of_part}
        below = f"m{number}"
        write_json(folder / below / "model.json", header, seal=True)
    result = commands("eval-ppl", text, "-m", below, cwd=folder, seconds=20)
    assert result.code == (0 if length == 3 else 1), result
    assert result.is_clean, result
    assert result.seconds < SECONDS


CORPORA = {
    "an id beyond the vocabulary": ("train.bin", lambda c: c[:-2] + b"\xff\xff"),
    "no end of a sentence": ("train.bin", lambda c: b"\x02\x00" * (len(c) // 2)),
    "an empty split": ("train.bin", lambda c: b""),
    "a short split": ("train.bin", lambda c: c[: len(c) // 2]),
    "half an id": ("train.bin", lambda c: c[:-1]),
}
INFOS = {
    "no number of sentences": lambda info: info["splits"]["train"].pop("sentences"),
    "a text for sentences": lambda info: info["splits"]["train"].update(sentences="many"),
    "negative sentences": lambda info: info["splits"]["train"].update(sentences=-5),
    "too many sentences": lambda info: info["splits"]["train"].update(sentences=10**9),
    "no tokens": lambda info: info["splits"]["train"].update(tokens=0),
    "a negative vocabulary": lambda info: info.update(vocabulary_size=-1),
    "a source without a path": lambda info: info["sources"][0].pop("path"),
    "a source without a split": lambda info: info["sources"][0].pop("split"),
    "another unit": lambda info: info.update(unit="sound"),
    "another type": lambda info: info.update(dtype="float64"),
    "a split elsewhere": lambda info: info["splits"].update({"../train": info["splits"]["train"]}),
    "NUL in a name": lambda info: info["splits"].update({"a\x00b": info["splits"]["train"]}),
    "a surrogate in a name": lambda info: info["splits"].update(
        {"\ud800": info["splits"]["train"]}
    ),
}
TRAINING = (
    ("train-lm", "x", "-o", "out", *models.LM),
    ("ngram", "train", "x", "--order", "2", "-o", "out"),
)


@pytest.mark.parametrize("use", TRAINING, ids=lambda use: use[0])
@pytest.mark.parametrize("name", [*CORPORA, *INFOS])
def test_corpora_are_not_believed(
    name: str, use: tuple[str, ...], commands: Commands, source: Source, tmp_path: Path
) -> None:
    corpus = lay_out(tmp_path / "x", "corpus", source)
    if name in CORPORA:
        file, change = CORPORA[name]
        (corpus / file).write_bytes(change((corpus / file).read_bytes()))
    else:
        info = json.loads((corpus / "corpus.json").read_bytes())
        INFOS[name](info)
        write_json(corpus / "corpus.json", info)
    result = commands(*use, cwd=tmp_path / "x", seconds=60)
    assert result.code == 1, result
    assert result.is_clean, result
    assert not (tmp_path / "x" / "out" / "model.json").exists()
