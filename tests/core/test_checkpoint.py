from __future__ import annotations

import dataclasses
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import crashes
import numpy as np
import pytest

import seqtool
from seqtool.core import checkpoint, storage
from seqtool.core.checkpoint import HEADER, WEIGHTS, Header, find, read_header, verify
from seqtool.core.errors import ModelError, OutputError
from seqtool.lm.neural.config import DataConfig, ModelConfig, NeuralLMConfig
from seqtool.lm.neural.task import LanguageModelTask
from seqtool.text.prepared import PrepareConfig, PreparedCorpus, prepare

TEXT = "".join(f"{'a b c d e'[: 2 * (i % 5) + 1]} b\n" for i in range(60))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    folder = tmp_path_factory.mktemp("text")
    (folder / "text.txt").write_text(TEXT)
    return prepare([folder / "text.txt"], folder / "corpus", PrepareConfig(split=(80.0, 20.0)))


def save_lm(path: Path, corpus: PreparedCorpus, **model: Any) -> None:
    """Write an untrained language model of a few numbers."""
    config = NeuralLMConfig(
        model=ModelConfig(**{"hidden_size": 3, **model}), data=DataConfig(batch_size=2, bptt=4)
    )
    LanguageModelTask(corpus, config, device="cpu").save_model(path, {"valid_perplexity": 2.5})


def log_probs(path: Path) -> list[float]:
    (scores,) = checkpoint.load(path).score_ids([np.array([2, 3, 1, 4, 1], dtype=np.int32)])
    return [float(value) for value in scores.log_probs]


@pytest.fixture(scope="module")
def original(corpus: PreparedCorpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "lm"
    save_lm(path, corpus)
    return path


@pytest.fixture
def model(original: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(original, tmp_path / "lm"))


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


def test_what_a_first_run_left_before_it_began_is_in_nobodys_way(tmp_path: Path) -> None:
    def prepare_and_die(run: Path) -> None:
        with storage.replacing(run):
            (run / "corpus").mkdir()
            (run / "corpus" / "corpus.json").write_text("{}")
            os._exit(0)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        prepare_and_die(tmp_path / "m")
    os.waitpid(child, 0)
    checkpoint.check_output(tmp_path / "m", force=False)
    with storage.replacing(tmp_path / "m"):
        assert list((tmp_path / "m").iterdir()) == []


def test_readers_change_nothing(tmp_path: Path) -> None:
    """A model that steps aside while it is replaced is read where it is."""
    write(tmp_path / "m" / "best", "old")
    (tmp_path / "m" / "best").rename(tmp_path / "m" / ".best.old")
    assert read(tmp_path / "m") == "old"
    assert [path.name for path in (tmp_path / "m").iterdir()] == [".best.old"]
    (tmp_path / "m").rename(tmp_path / ".m.old")
    assert find(tmp_path / "m") == tmp_path / ".m.old" / ".best.old"


def test_the_best_so_far_is_the_model_while_it_is_in_training(tmp_path: Path) -> None:
    (tmp_path / "m" / "last").mkdir(parents=True)
    with pytest.raises(ModelError, match="not a model directory"):
        find(tmp_path / "m")  # nor is it a run that could be resumed
    (tmp_path / "m" / "run.json").write_text("{}")
    with pytest.raises(ModelError, match="has not made a model yet") as caught:
        find(tmp_path / "m")
    assert caught.value.hint == f"continue with: seqtool train-lm --resume -o {tmp_path / 'm'}"
    (tmp_path / "m" / "run.json").write_text('{"kind": "parser"}')
    with pytest.raises(ModelError) as caught:
        find(tmp_path / "m")
    assert caught.value.hint == f"continue with: seqtool train-parser --resume -o {tmp_path / 'm'}"
    write(tmp_path / "m" / "best", "new")
    assert find(tmp_path / "m") == tmp_path / "m" / "best"
    assert read(tmp_path / "m") == "new"


def test_no_such_model(tmp_path: Path) -> None:
    for name, kind in (("a", "parser"), ("b", "ngram"), ("c", "pipeline")):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / HEADER).write_text(json.dumps({"kind": kind}))
    runs = tmp_path / "runs"
    for path, wanted, hint in (
        (runs, ("parser", "pipeline"), f"models in it: {runs / 'a'}, {runs / 'c'}"),
        (runs / "x", ("ngram",), f"models at hand: {runs / 'b'}"),
        (tmp_path / "x", (), f"models at hand: {runs / 'a'}, {runs / 'b'}, {runs / 'c'}"),
        (runs / "x", ("tagger",), "train one, for example with: seqtool train-tagger"),
    ):
        with pytest.raises(ModelError) as caught:
            find(path, wanted)
        assert (caught.value.hint or "").endswith(hint)


def test_what_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ModelError, match=r"neither a model directory nor an ARPA"):
        checkpoint.load(tmp_path / "file")
    with pytest.raises(ModelError, match="not a model directory: it has no model"):
        checkpoint.load(tmp_path / "folder")


@pytest.mark.parametrize("version", [1, 99])
def test_a_model_of_another_version_is_refused(model: Path, version: int) -> None:
    content = json.loads((model / HEADER).read_text())
    content |= {"format_version": version, "new_field": 1}
    (model / HEADER).write_text(json.dumps(content))
    with pytest.raises(ModelError, match=f"another version .*format {version}"):
        checkpoint.load(model)


def test_a_model_of_an_unknown_kind(tmp_path: Path) -> None:
    write(tmp_path / "m", "1")
    with pytest.raises(ModelError, match="kind 'toy' is unknown"):
        checkpoint.load(tmp_path / "m")


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


def run_of_ours(path: Path) -> None:
    write(path, "1")
    for name in ("last", "best", "corpus", "tensorboard"):
        (path / name).mkdir()
    for name in ("run.json", "log.jsonl"):
        (path / name).write_text("{}")


def corpus_only(path: Path) -> None:
    (path / "corpus").mkdir(parents=True)
    (path / "corpus" / "corpus.json").write_text("{}")


@pytest.mark.parametrize("make", [run_of_ours, corpus_only])
def test_a_run_is_replaced_only_when_told_to(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "m")
    with pytest.raises(OutputError, match="exists already") as caught:
        checkpoint.check_output(tmp_path / "m", force=False)
    resume = "continue it with --resume, " if make is run_of_ours else ""
    assert caught.value.hint == f"{resume}replace it with --force, or choose another with -o"
    checkpoint.check_output(tmp_path / "m", force=True)


def a_file(path: Path) -> None:
    path.write_text("x")


def a_home(path: Path) -> None:
    """A folder with names that a run has too."""
    (path / "corpus").mkdir(parents=True)
    (path / "README.md").write_text("my project")


def a_run_with_notes(path: Path) -> None:
    run_of_ours(path)
    (path / "notes.txt").write_text("my notes")


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("make", [a_file, a_home, a_run_with_notes])
def test_what_is_not_ours_is_never_replaced(
    tmp_path: Path, make: Callable[[Path], None], force: bool
) -> None:
    make(tmp_path / "m")
    with pytest.raises(OutputError, match="so it will not be replaced") as caught:
        checkpoint.check_output(tmp_path / "m", force=force)
    assert caught.value.path == str(tmp_path / "m")


def test_the_record_of_a_run_is_read_where_it_was_set_aside(tmp_path: Path) -> None:
    run = tmp_path / "m"
    write(run, "1")
    (run / "run.json").write_text("{}")
    with storage.replacing(run):
        (run / "corpus").mkdir()
        assert checkpoint.run_record(run) == tmp_path / ".m.old" / "run.json"
        with pytest.raises(OutputError, match="exists already") as caught:
            checkpoint.check_output(run, force=False)
        assert (caught.value.hint or "").startswith("continue it with --resume, ")


def test_an_empty_directory_or_leftovers_are_no_obstacle(tmp_path: Path) -> None:
    checkpoint.check_output(tmp_path / "nothing", force=False)
    (tmp_path / ".corpus.new-17").mkdir()
    checkpoint.check_output(tmp_path, force=False)
