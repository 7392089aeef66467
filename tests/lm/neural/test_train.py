from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from toy_models import random_lines

from seqtool.core import checkpoint, storage
from seqtool.core.config import from_dict
from seqtool.core.errors import (
    ConfigError,
    DataError,
    Interrupted,
    ModelError,
    OutputError,
    TrainingError,
)
from seqtool.core.progress import EpochDone, Event, RunFinished, RunStarted, StepDone
from seqtool.lm.evaluation import evaluate_lm
from seqtool.lm.neural import train as train_module
from seqtool.lm.neural.config import NeuralLMConfig
from seqtool.lm.neural.train import RunRecord, TrainedLM, train_lm
from seqtool.text.prepared import PrepareConfig, PreparedCorpus, prepare
from seqtool.training import loop


def config(**settings: Any) -> NeuralLMConfig:
    """Settings of a tiny model: name -> value of a section, or a whole section."""
    values: dict[str, dict[str, Any]] = {
        "model": {"hidden_size": 6},
        "data": {"batch_size": 3, "bptt": 7},
        "training": {"epochs": 2},
    }
    for dotted, value in settings.items():
        section, _, name = dotted.partition("__")
        values[section][name] = value
    return from_dict(NeuralLMConfig, values)


def weights(path: Path) -> dict[str, torch.Tensor]:
    return load_file(path / checkpoint.WEIGHTS)


def assert_same_weights(one: Path, other: Path) -> None:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert value.equal(second[name]), name


def stop_at(*steps: int) -> Callable[[int], bool]:
    return lambda step: step in steps


def names(path: Path) -> list[str]:
    return sorted(item.name for item in path.iterdir())


def test_what_training_leaves_and_returns(tmp_path: Path, corpus: PreparedCorpus) -> None:
    events: list[Event] = []
    trained = train_lm(
        corpus, tmp_path / "m", config(), on_event=events.append, command="seqtool train-lm x"
    )
    assert isinstance(trained, TrainedLM)
    assert trained.path == tmp_path / "m"
    assert trained.epochs == 2
    assert names(tmp_path / "m") == [
        *("README.md", "last", "log.jsonl", "model.json", "run.json"),
        *("vocabulary.json", "weights.safetensors"),
    ]
    assert [type(event) for event in events if not isinstance(event, StepDone)] == [
        *(RunStarted, EpochDone, EpochDone, RunFinished)
    ]
    header = checkpoint.read_header(tmp_path / "m")
    assert header.scores == trained.scores
    measured = ("valid_perplexity", "tokens_per_second", "train_seconds")
    assert set(trained.scores) == set(measured)
    assert header.num_parameters == trained.num_parameters
    assert header.data["splits"] == corpus.info["splits"]
    card = (tmp_path / "m" / "README.md").read_text()
    assert card.startswith("# An LSTM language model\n")
    assert "1 layer of 6 units" in card
    assert f"| valid perplexity | {trained.scores['valid_perplexity']:.2f} |" in card
    assert "    seqtool train-lm x\n" in card
    splits = corpus.info["splits"]["valid"]
    assert f"| valid | {splits['sentences']} | {splits['tokens']} |" in card


RUNS: dict[str, dict[str, Any]] = {
    "lstm-variational": {
        "model__dropout": "variational",
        "model__dropout_words": 0.2,
        "model__dropout_input": 0.2,
        "model__dropout_state": 0.2,
        "model__dropout_output": 0.2,
    },
    "rhn-tied": {"model__cell": "rhn", "model__tied": True, "model__dropout_state": 0.3},
    "gru-layers": {"model__cell": "gru", "model__layers": 2, "model__dropout_output": 0.3},
    "rnn-sparse": {
        "model__cell": "rnn",
        "training__embedding_optimiser": "sparse-adam",
        "training__optimiser": "sgd",
    },
    "window-asgd": {"model__cell": "window", "training__optimiser": "asgd"},
    "bf16": {"training__precision": "bf16", "training__schedule": "one-cycle"},
}


@pytest.mark.parametrize("name", RUNS)
def test_a_stopped_run_continues_exactly(tmp_path: Path, corpus: PreparedCorpus, name: str) -> None:
    settings = config(**RUNS[name])
    train_lm(corpus, tmp_path / "whole", settings)
    with pytest.raises(Interrupted, match="interrupted at step 5; the state is saved") as caught:
        train_lm(corpus, tmp_path / "parts", settings, should_stop=stop_at(5))
    assert caught.value.hint == f"continue with: seqtool train-lm --resume -o {tmp_path / 'parts'}"
    with pytest.raises(Interrupted):
        train_lm(output=tmp_path / "parts", resume=True, should_stop=stop_at(17))
    train_lm(output=tmp_path / "parts", resume=True)
    assert_same_weights(tmp_path / "whole", tmp_path / "parts")


def test_the_seed_decides_the_weights(tmp_path: Path, corpus: PreparedCorpus) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train_lm(corpus, tmp_path / name, config(training__seed=seed))
    assert_same_weights(tmp_path / "a", tmp_path / "b")
    assert not weights(tmp_path / "a")["embedding.weight"].equal(
        weights(tmp_path / "c")["embedding.weight"]
    )


def test_a_raw_file_is_split(tmp_path: Path, folder: Path) -> None:
    settings = config(data__unit="char", data__vocab_size=6, data__bptt=5)
    train_lm(folder / "train.txt", tmp_path / "m", settings)
    prepared = PreparedCorpus.open(tmp_path / "m" / "corpus")
    assert "valid" in prepared.splits()
    assert (prepared.tokenizer.unit, len(prepared.vocabulary)) == ("char", 6)
    assert checkpoint.load(tmp_path / "m").tokenizer.unit == "char"


def test_a_run_that_is_moved_or_resumed_elsewhere_finds_its_corpus(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_lm(folder, tmp_path / "whole", config())
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(Interrupted):
        train_lm(folder, "m", config(), should_stop=stop_at(5))
    (tmp_path / "here" / "m").rename(tmp_path / "there" / "moved")
    monkeypatch.chdir(tmp_path / "there")
    train_lm(output="moved", resume=True)
    assert_same_weights(tmp_path / "whole", tmp_path / "there" / "moved")


def test_resuming_with_the_corpus_typed_again(tmp_path: Path, folder: Path) -> None:
    copied = Path(shutil.copytree(folder, tmp_path / "copy"))
    train_lm(folder, tmp_path / "whole", config())
    with pytest.raises(Interrupted):
        train_lm(folder, tmp_path / "m", config(), should_stop=stop_at(5))
    (copied / "valid.txt").write_text(random_lines(15, 3))
    before = names(tmp_path / "m")
    for other in (copied, folder / "train.txt"):
        with pytest.raises(ModelError, match="the run was trained on another text") as caught:
            train_lm(other, tmp_path / "m", resume=True)
        assert str(other) in caught.value.message
        assert names(tmp_path / "m") == before
    shutil.copy(folder / "valid.txt", copied / "valid.txt")
    train_lm(copied, tmp_path / "m", resume=True)  # the same text, from another place
    assert_same_weights(tmp_path / "whole", tmp_path / "m")


def test_a_prepared_corpus_that_moved_or_is_another(
    tmp_path: Path, corpus: PreparedCorpus, folder: Path
) -> None:
    moved = Path(shutil.copytree(corpus.path, tmp_path / "corpus"))
    with pytest.raises(Interrupted):
        train_lm(moved, tmp_path / "m", config(), should_stop=stop_at(5))
    shutil.rmtree(moved)
    with pytest.raises(DataError, match="the corpus of the run is no longer there") as caught:
        train_lm(output=tmp_path / "m", resume=True)
    assert caught.value.hint == f"name it: seqtool train-lm CORPUS --resume -o {tmp_path / 'm'}"
    other = prepare([folder / "train.txt"], tmp_path / "other", PrepareConfig())
    with pytest.raises(ModelError, match=r"the run differs: corpus\.sum was"):
        train_lm(other, tmp_path / "m", resume=True)
    train_lm(corpus, tmp_path / "m", resume=True)
    assert RunRecord.read(tmp_path / "m").corpus == corpus.path.resolve()


def test_other_model_settings_are_refused_and_forgotten(
    tmp_path: Path, corpus: PreparedCorpus
) -> None:
    train_lm(corpus, tmp_path / "whole", config())
    with pytest.raises(Interrupted):
        train_lm(corpus, tmp_path / "m", config(), should_stop=stop_at(5))
    for settings, name in (
        ({"model__hidden_size": 7}, "model.hidden_size was 6, not 7"),
        ({"model__cell": "gru"}, "model.cell was lstm, not gru"),
        ({"data__bptt": 5}, "data.bptt was 7, not 5"),
        ({"training__optimiser": "sgd"}, "training.optimiser was adam, not sgd"),
    ):
        with pytest.raises(ModelError) as caught:
            train_lm(None, tmp_path / "m", config(**settings), resume=True)
        assert caught.value.message == f"the run differs: {name}"
    train_lm(output=tmp_path / "m", resume=True)  # nothing else need be typed, still
    assert_same_weights(tmp_path / "whole", tmp_path / "m")


def test_more_epochs_and_another_rate_are_taken(tmp_path: Path, corpus: PreparedCorpus) -> None:
    train_lm(corpus, tmp_path / "whole", config(training__epochs=4))
    train_lm(corpus, tmp_path / "m", config(), command="seqtool train-lm first")
    first = checkpoint.read_header(tmp_path / "m")
    events: list[Event] = []
    trained = train_lm(
        output=tmp_path / "m",
        config=config(training__epochs=4),
        resume=True,
        command="seqtool train-lm second",
        on_event=events.append,
    )
    assert trained.epochs == 4
    assert_same_weights(tmp_path / "whole", tmp_path / "m")
    header = checkpoint.read_header(tmp_path / "m")
    assert first.command == "seqtool train-lm first"
    assert header.command == "seqtool train-lm first && seqtool train-lm second"
    assert header.config["training"]["epochs"] == 4
    assert RunRecord.read(tmp_path / "m").config.training.epochs == 4
    assert trained.seconds > first.scores["train_seconds"]
    # a finished run that is resumed is measured again, and stays what it is
    again = train_lm(output=tmp_path / "m", resume=True)
    assert again.scores["valid_perplexity"] == trained.scores["valid_perplexity"]
    assert again.scores["tokens_per_second"] == trained.scores["tokens_per_second"]
    lower = config(training__epochs=5, training__learning_rate=1e-6)
    train_lm(output=tmp_path / "m", config=lower, resume=True, on_event=events.append)
    assert [e.learning_rate for e in events if isinstance(e, EpochDone)][-1] == 1e-6


BAD_CORPORA: dict[str, tuple[bytes | None, str]] = {
    "missing": (None, "no such file"),
    "empty": (b"", "empty"),
    "encoding": (b"a b\nc \xff d\n", "byte 6"),
    "short": (b"a b c\n" * 4, "tokens"),
}


def test_a_model_stays_usable_until_the_run_that_replaces_it_has_one(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its process is killed once the text is prepared, or in the first epoch."""
    path = tmp_path / "m"
    train_lm(folder, path, config())
    before = weights(path)

    def die(*arguments: Any, **options: Any) -> None:
        os._exit(9)

    def killed_at(name: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            monkeypatch.setattr(train_module, name, die)
            train_lm(folder, path, config(model__hidden_size=5), force=True)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9

    killed_at("LanguageModelTask")
    assert evaluate_lm(checkpoint.load(path), folder / "valid.txt").tokens
    with pytest.raises(OutputError, match="exists already"):
        train_lm(folder, path, config())
    assert train_lm(output=path, resume=True).epochs == 2  # the old run is put back
    assert all(value.equal(before[name]) for name, value in weights(path).items())

    killed_at("complete")
    assert checkpoint.read_header(path).config["model"]["hidden_size"] == 6
    trained = train_lm(output=path, resume=True)  # the new one, which had begun
    assert checkpoint.read_header(trained.path).config["model"]["hidden_size"] == 5
    assert not any(storage.is_leftover(name) for name in names(path))


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("name", BAD_CORPORA)
def test_a_bad_text_leaves_what_was_there(tmp_path: Path, name: str, force: bool) -> None:
    content, message = BAD_CORPORA[name]
    path, output = tmp_path / "bad.txt", tmp_path / "runs" / "m"
    if content is not None:
        path.write_bytes(content)
    if force:
        output.mkdir(parents=True)
        (output / "model.json").write_text("{}")
        (output / "last").mkdir()
    with pytest.raises(DataError) as caught:
        train_lm(path, output, config(data__batch_size=20), force=force)
    assert message in str(caught.value)
    assert caught.value.hint
    assert not output.exists() or names(output) == ["last", "model.json"]
    assert output.exists() is force


def test_an_output_that_exists(tmp_path: Path, corpus: PreparedCorpus) -> None:
    train_lm(corpus, tmp_path / "m", config())
    before = weights(tmp_path / "m")
    with pytest.raises(OutputError, match="exists already"):
        train_lm(corpus, tmp_path / "m", config())
    train_lm(corpus, tmp_path / "m", config(training__seed=2), force=True)
    assert not weights(tmp_path / "m")["embedding.weight"].equal(before["embedding.weight"])
    assert names(tmp_path) == ["m"]
    (tmp_path / "m" / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputError, match=r"holds thesis\.txt, which is not of a model"):
        train_lm(corpus, tmp_path / "m", config(), force=True)


def test_a_corpus_inside_the_output_is_never_removed(tmp_path: Path, folder: Path) -> None:
    train_lm(folder, tmp_path / "m", config())
    inside = tmp_path / "m" / "corpus"
    for given in (inside, PreparedCorpus.open(inside)):
        with pytest.raises(ConfigError, match="which is to be replaced"):
            train_lm(given, tmp_path / "m", config(), force=True)
    assert PreparedCorpus.open(inside).splits() == ["train", "valid"]


def test_a_huge_rate_stops_and_a_lower_one_goes_on(
    tmp_path: Path, corpus: PreparedCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"training__optimiser": "sgd", "training__clip_norm": 0.0}
    wild = config(**settings, training__learning_rate=1e6)
    with pytest.raises(TrainingError, match=r"^the loss .* at step \d+ \(epoch 1\)") as caught:
        train_lm(corpus, tmp_path / "m", wild)
    assert caught.value.hint == ("the last saved state is kept: add --resume with a lower --lr")
    state = load_file(tmp_path / "m" / "last" / "state.safetensors")
    assert all(bool(v.isfinite().all()) for v in state.values() if v.is_floating_point())
    with pytest.raises(ModelError, match="has not made a model yet"):
        checkpoint.load(tmp_path / "m")
    monkeypatch.setattr(loop, "REPORT_SECONDS", 0.0)
    train_lm(output=tmp_path / "m", config=config(**settings), resume=True)
    lines = (tmp_path / "m" / "log.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines if '"step"' in line.split(",")[1]]
    assert steps == sorted(set(steps))


def test_settings_of_raw_text_do_not_change_a_prepared_corpus(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the old dog sleeps .\n" * 60, encoding="utf-8")
    corpus = prepare([text], tmp_path / "corpus")
    for name, value in {"unit": "char", "vocab_size": 5, "min_count": 2, "lowercase": True}.items():
        config = from_dict(NeuralLMConfig, {"data": {name: value}})
        with pytest.raises(ConfigError, match=f"{name} is .* was prepared with"):
            train_lm(corpus, tmp_path / "lm", config)
    assert not (tmp_path / "lm").exists()
