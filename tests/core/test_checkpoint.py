from __future__ import annotations

import dataclasses
import json
import shutil
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import crashes
import numpy as np
import pytest
from conftest import CommandResult

import seqtool
from seqtool.core import checkpoint, storage
from seqtool.core.checkpoint import HEADER, WEIGHTS, Header, find, read_header, verify
from seqtool.core.errors import ModelError, OutputError


@pytest.fixture
def model(root: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(root / "tests" / "kept" / "lm-rnn", tmp_path / "lm"))


def write(path: Path, version: str) -> None:
    """Write a model of two files, without torch."""

    def fill(directory: Path) -> None:
        (directory / WEIGHTS).write_text(f"weights {version}")
        (directory / "vocabulary.json").write_text(f"vocabulary {version}")

    header = Header(kind="toy", config={"version": version}, tokenizer={"unit": "word"})
    checkpoint.save(path, header, f"# Model {version}\n", fill)


def read(path: Path) -> str:
    """Return the version of the model at `path`, having seen that it is whole."""
    directory, header = find(path), read_header(path)
    verify(directory, header)
    assert sorted(header.files) == ["vocabulary.json", WEIGHTS]
    version: str = header.config["version"]
    assert (directory / WEIGHTS).read_text() == f"weights {version}"
    return version


def names(path: Path) -> list[str]:
    return sorted(item.name for item in path.iterdir())


def deaths(
    tmp_path: Path, prepare: Callable[[Path], None], act: Callable[[Path], None]
) -> Iterator[Path]:
    """Yield directories in which `act` died, a file operation later each time; it ends whole."""
    whole, number = tmp_path / "run", 0
    whole.mkdir()
    prepare(whole)
    for folder in crashes.deaths(whole, lambda: act(whole)):
        yield folder
        number += 1
    assert number > 5


def test_a_header_comes_back(tmp_path: Path) -> None:
    header = Header(
        kind="toy",
        config={"layers": 2, "름": [1.5, None]},
        tokenizer={"unit": "word"},
        scores={"valid_perplexity": 12.5},
        data={"splits": {}},
        command="seqtool train-lm 'a b'",
        num_parameters=12,
        versions={"torch": "2.13.0"},
    )
    checkpoint.save(tmp_path / "m", header, "card", lambda directory: None)
    expected = dataclasses.replace(
        header, versions={"torch": "2.13.0", "seqtool": seqtool.__version__}
    )
    assert read_header(tmp_path / "m") == expected
    content = json.loads((tmp_path / "m" / HEADER).read_text(encoding="utf-8"))
    assert content["format_version"] == checkpoint.FORMAT_VERSION
    assert "름" in (tmp_path / "m" / HEADER).read_text(encoding="utf-8")
    assert (tmp_path / "m" / "README.md").read_text() == "card"


def test_a_model_is_there_whole_or_not_at_all_at_every_crash(tmp_path: Path) -> None:
    seen = set()
    for folder in deaths(tmp_path, lambda folder: None, lambda f: write(f / "m", "new")):
        try:
            seen.add(read(folder / "m"))
        except ModelError as error:
            seen.add(error.message)
    assert seen == {"no such model", "new"}


def amend(path: Path) -> None:
    header = read_header(path)
    checkpoint.amend(path, dataclasses.replace(header, scores={"final": 1.0}), "# Final\n")


def test_an_amended_model_is_whole_at_every_crash(tmp_path: Path) -> None:
    seen = set()
    for folder in deaths(tmp_path, lambda f: write(f / "m", "old"), lambda f: amend(f / "m")):
        assert read(folder / "m") == "old"
        seen.add((str(read_header(folder / "m").scores), (folder / "m/README.md").read_text()))
    assert seen == {
        ("{}", "# Model old\n"),
        ("{}", "# Final\n"),
        ("{'final': 1.0}", "# Final\n"),
    }


@pytest.mark.parametrize("exists", [True, False])
def test_a_promoted_model_is_whole_at_every_crash(tmp_path: Path, exists: bool) -> None:
    """The new one is found from the first moment on: it was the best before it was promoted."""

    def prepare_run(folder: Path) -> None:
        if exists:
            write(folder / "m", "old")
        write(folder / "m" / "best", "new")
        (folder / "m" / "log.jsonl").write_text("log")

    def promote(folder: Path) -> None:
        checkpoint.promote(folder / "m" / "best", folder / "m")

    for folder in deaths(tmp_path, prepare_run, promote):
        assert read(folder / "m") == "new"
        if (folder / "m" / "best").exists():  # as a resumed run does
            promote(folder)
        storage.recover(folder / "m" / "best")
        assert names(folder / "m") == ["README.md", "log.jsonl", HEADER, "vocabulary.json", WEIGHTS]
        assert read(folder / "m") == "new"


@pytest.mark.parametrize("inside", ["", "best"])
def test_a_model_that_is_replaced_is_found_until_the_new_one_is_whole(
    tmp_path: Path, inside: str
) -> None:
    """Whenever the process is killed that prepares, trains and finishes the new one."""

    def train(folder: Path) -> None:
        run = folder / "m"
        with storage.replacing(run):
            (run / "run.json").write_text("new run")
        write(run / "best", "new")
        storage.drop_kept(run)
        checkpoint.promote(run / "best", run)
        checkpoint.amend(run, read_header(run), "# Final\n")

    def prepare_run(folder: Path) -> None:
        write(folder / "m" / inside, "old")
        (folder / "m" / "run.json").write_text("old run")

    seen = []
    for folder in deaths(tmp_path, prepare_run, train):
        seen.append(read(folder / "m"))
        with pytest.raises(OutputError, match="exists already"):
            checkpoint.check_output(folder / "m", force=False)
        train(folder)  # again, with --force
        assert read(folder / "m") == "new"
        assert names(folder / "m") == ["README.md", HEADER, "run.json", "vocabulary.json", WEIGHTS]
    assert seen == sorted(seen, reverse=True)
    assert set(seen) == {"old", "new"}


def test_readers_change_nothing(tmp_path: Path) -> None:
    """A model that steps aside while it is replaced is read where it is."""
    write(tmp_path / "m" / "best", "old")
    (tmp_path / "m" / "best").rename(tmp_path / "m" / ".best.old")
    assert read(tmp_path / "m") == "old"
    assert [path.name for path in (tmp_path / "m").iterdir()] == [".best.old"]
    (tmp_path / "m").rename(tmp_path / ".m.old")
    assert find(tmp_path / "m") == tmp_path / ".m.old" / ".best.old"


@pytest.mark.parametrize("name", [WEIGHTS, HEADER, "vocabulary.json"])
def test_inspect_finds_a_flipped_bit(model: Path, name: str) -> None:
    """Wherever it is; but in a number 1e-05 becoming 1E-05 changes nothing."""
    path = model / name
    whole = path.read_bytes()
    verify(model, read_header(model), sums=True)
    generator = np.random.default_rng(1)
    for position in generator.choice(8 * len(whole), size=150, replace=False).tolist():
        flipped = bytearray(whole)
        flipped[position // 8] ^= 1 << position % 8
        path.write_bytes(bytes(flipped))
        try:
            verify(model, read_header(model), sums=True)
        except ModelError:
            continue
        assert name == HEADER
        assert bytes(flipped).lower() == whole.lower() or b'"sha256"' not in bytes(flipped)


@pytest.mark.parametrize("name", [WEIGHTS, HEADER, "vocabulary.json"])
def test_a_file_that_is_cut_off_or_missing_is_found(model: Path, name: str) -> None:
    path = model / name
    whole = path.read_bytes()
    for size in (0, 1, 7, 8, 9, len(whole) // 2, len(whole) - 1 - (name == HEADER)):
        path.write_bytes(whole[:size])
        with pytest.raises(ModelError) as caught:
            checkpoint.load(model)
        assert caught.value.hint
    path.unlink()
    with pytest.raises(ModelError) as caught:
        checkpoint.load(model)
    assert caught.value.hint


def test_what_is_no_model(model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "last").mkdir()
    write(tmp_path / "toy", "1")
    content = json.loads((model / HEADER).read_text())
    (model / HEADER).write_text(json.dumps(content | {"format_version": 1, "new_field": 1}))
    for name, word in (
        ("missing", "no such model"),
        ("file", "neither a model directory nor an ARPA"),
        ("folder", "not a model directory"),
        ("toy", "kind 'toy' is unknown"),
        ("lm", "another version .*format 1"),
    ):
        with pytest.raises(ModelError, match=word) as caught:
            checkpoint.load(tmp_path / name)
        assert caught.value.hint


def test_a_run_has_its_best_model_so_far(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    for record, command in (("{}", "train-lm"), ('{"kind": "parser"}', "train-parser")):
        (tmp_path / "m" / "run.json").write_text(record)
        with pytest.raises(ModelError, match="has not made a model yet") as caught:
            find(tmp_path / "m")
        assert f"seqtool {command} --resume -o {tmp_path / 'm'}" in caught.value.hint
    write(tmp_path / "m" / "best", "new")
    assert find(tmp_path / "m") == tmp_path / "m" / "best"
    assert read(tmp_path / "m") == "new"


RUN = ("last/x", "best/x", "corpus/corpus.json", "tensorboard/x", "run.json", HEADER, "log.jsonl")


@pytest.mark.parametrize(
    ("files", "answer"),
    [
        ((), None),
        ((".x.new-17/x",), None),  # a leftover
        (RUN, "exists already"),
        (("corpus/corpus.json",), "exists already"),
        ((*RUN, "notes.txt"), "holds notes.txt"),
        (("corpus/x", "README.md"), "is no model"),  # a home, with names that a run has too
    ],
)
def test_only_a_run_is_replaced_and_only_when_asked_to(
    tmp_path: Path, files: tuple[str, ...], answer: str | None
) -> None:
    for name in files:
        (tmp_path / "m" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "m" / name).write_text("{}")
    for force in (False, True):
        if answer is None or (force and answer == "exists already"):
            checkpoint.check_output(tmp_path / "m", force=force)
            continue
        with pytest.raises(OutputError, match=answer) as caught:
            checkpoint.check_output(tmp_path / "m", force=force)
        assert ("--resume" in caught.value.hint) == (files == RUN)


def test_a_packed_model_is_the_model(
    root: Path, tmp_path: Path, seqtool: Callable[..., CommandResult]
) -> None:
    source, packed, text = (
        root / "tests/kept/pipeline",
        tmp_path / "x.zip",
        root / "tests/kept/raw.txt",
    )
    assert seqtool("pack", str(source), "-o", str(packed)).code == 0
    packed.chmod(0o444)
    assert set(names(source)) - set(names(find(packed))) == {"run.json"}
    parsed = seqtool("parse", str(text), "-m", str(packed)).stdout
    assert parsed == seqtool("parse", str(text), "-m", str(source)).stdout != ""
    shown = json.loads(seqtool("inspect", str(packed), "--json").stdout)
    assert (shown["path"], shown["kind"]) == (str(packed), "pipeline")
    with pytest.raises(ModelError, match="mixture"):
        checkpoint.pack(root / "tests/kept/mixture", tmp_path / "y.zip")


WHOLE = (HEADER, "vocabulary.json", WEIGHTS)
LINK = zipfile.ZipInfo(WEIGHTS)
LINK.external_attr = 0o120777 << 16


@pytest.mark.parametrize(
    ("members", "content", "packing"),
    [
        ([*WHOLE, "/tmp/x"], "1", 0),
        ([*WHOLE, "../x"], "1", 0),
        ([*WHOLE, "more.json"], "1", 0),
        ([*WHOLE, WEIGHTS], "1", 0),
        ([*WHOLE, "lm", "lm/model.json"], "1", 0),
        (WHOLE[:2], "1", 0),
        ([*WHOLE[:2], LINK], "1", 0),
        (WHOLE, "2", 0),  # not as the header has its sum
        (WHOLE, "1", zipfile.ZIP_DEFLATED),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_hostile_packed_models(
    members: Sequence[str | zipfile.ZipInfo], content: str, packing: int, tmp_path: Path
) -> None:
    write(tmp_path / "m", "1")
    (tmp_path / "m" / WEIGHTS).write_text(f"weights {content}")
    with zipfile.ZipFile(tmp_path / "x.zip", "w", packing) as archive:
        for member in members:
            file = tmp_path / "m" / getattr(member, "filename", str(member))
            archive.writestr(member, file.read_bytes() if file.is_file() else b"{}")
    before = set(tmp_path.rglob("*"))
    with pytest.raises(ModelError) as caught:
        find(tmp_path / "x.zip")
    assert caught.value.path == str(tmp_path / "x.zip")
    assert set(tmp_path.rglob("*")) == before


def test_damaged_packed_models(tmp_path: Path) -> None:
    write(tmp_path / "m", "1")
    checkpoint.pack(tmp_path / "m", tmp_path / "x.zip")
    whole = (tmp_path / "x.zip").read_bytes()
    for position in np.random.default_rng(1).choice(range(4, len(whole)), 200).tolist():
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        packed = tmp_path / f"{position}.zip"
        packed.write_bytes(damaged[:position] if position % 3 == 0 else damaged)
        with suppress(ModelError):
            assert read(packed) == "1"
