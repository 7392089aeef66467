"""The states that texts and windows begin with: resets, warm-up, and what is told of both."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from seqtool.core import checkpoint
from seqtool.core.config import from_dict
from seqtool.core.errors import Interrupted
from seqtool.lm.evaluation import evaluate_lm
from seqtool.lm.neural.config import InputConfig, NeuralLMConfig
from seqtool.lm.neural.model import NeuralLanguageModel
from seqtool.lm.neural.task import LanguageModelTask
from seqtool.lm.neural.train import train_lm
from seqtool.text.prepared import PrepareConfig, PreparedCorpus, prepare

CELLS: list[dict[str, Any]] = [
    {"cell": "rnn", "layers": 2},
    {"cell": "lstm"},
    {"cell": "window"},
    {"cell": "rnn", "output": {"layer": "maxent", "direct_size": 500}},
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    folder = tmp_path_factory.mktemp("starts")
    words = np.random.default_rng(1).choice(list("abcde"), size=(90, 5))
    lines = [" ".join(row) + "\n" for row in words.tolist()]
    (folder / "train.txt").write_text("".join(lines[:60]))
    (folder / "valid.txt").write_text("".join(lines[60:]))
    return prepare([folder], folder / "corpus", PrepareConfig())


def make_task(corpus: PreparedCorpus, model: dict[str, Any], **data: Any) -> LanguageModelTask:
    """Return a task whose states matter, and are forgotten within 30 tokens."""
    values = {
        "model": {"hidden_size": 6, "init_range": 0.3, **model},
        "data": {"batch_size": 4, "bptt": 7, **data},
    }
    return LanguageModelTask(corpus, from_dict(NeuralLMConfig, values), device="cpu")


def one_stream(task: LanguageModelTask, corpus: PreparedCorpus) -> float:
    model = NeuralLanguageModel(task.module, corpus.tokenizer)
    return evaluate_lm(model, corpus.path, split="valid").perplexity


@pytest.mark.parametrize("settings", CELLS, ids=str)
def test_the_number_of_streams_does_not_change_the_perplexity(
    corpus: PreparedCorpus, settings: dict[str, Any]
) -> None:
    expected = None
    for num_streams in (1, 2, 5):
        task = make_task(corpus, settings, eval_batch_size=num_streams, eval_warm_up=30)
        expected = expected or one_stream(task, corpus)
        task.module.eval()
        with torch.no_grad():
            found = task.validate()["valid_perplexity"]
        # what 30 tokens leave of the state before them, and single precision
        assert found == pytest.approx(expected, rel=1e-5)


def test_without_a_warm_up_it_does(corpus: PreparedCorpus) -> None:
    settings = {"cell": "lstm"}
    cold, warm = (
        make_task(corpus, settings, eval_batch_size=30, eval_warm_up=num) for num in (0, 64)
    )
    for task in (cold, warm):
        task.module.eval()
    with torch.no_grad():
        values = [task.validate()["valid_perplexity"] for task in (cold, warm)]
    assert abs(values[0] / one_stream(cold, corpus) - 1) > 1e-4
    # a stream of six tokens can be warmed up by the six before it
    assert abs(values[1] / one_stream(warm, corpus) - 1) < abs(
        values[0] / one_stream(cold, corpus) - 1
    )


def flat(state: list[tuple[Tensor, ...]]) -> Tensor:
    return torch.cat([part.flatten(1).double() for layer in state for part in layer], dim=1)


@pytest.mark.parametrize("settings", CELLS, ids=str)
def test_windows_begin_as_a_text_does_in_some_streams(
    corpus: PreparedCorpus, settings: dict[str, Any]
) -> None:
    for share in (0.0, 0.5, 1.0):
        task = make_task(corpus, settings, reset_states=share)
        task.loss(0)
        num_reset = 0
        fresh, carried = flat(task.module.initial_state(4)), flat(task._state)
        for index in range(50):
            begun = flat(task._some_reset(task._state, index))
            is_fresh = (begun == fresh).all(dim=1)
            assert bool(((begun == carried).all(dim=1) | is_fresh).all())
            num_reset += int(is_fresh.sum())
        assert num_reset == {0.0: 0, 1.0: 200}.get(share, num_reset)
        assert share != 0.5 or 70 < num_reset < 130


def test_a_reset_window_has_the_loss_of_a_beginning(corpus: PreparedCorpus) -> None:
    always, never = (make_task(corpus, {"cell": "gru"}, reset_states=p) for p in (1.0, 0.0))
    always.loss(0)
    second = float(always.loss(1)[0].detach())
    never.loss(0)
    assert second != float(never.loss(1)[0].detach())
    never.start_epoch(0)  # from the zero state, straight into the second window
    assert second == float(never.loss(1)[0].detach())


def config(**data: Any) -> NeuralLMConfig:
    values = {
        "model": {"hidden_size": 6, "cell": "rnn"},
        "data": {"batch_size": 3, "bptt": 7, **data},
        "training": {"epochs": 2},
    }
    return from_dict(NeuralLMConfig, values)


def test_a_run_with_resets_continues_exactly(tmp_path: Path, corpus: PreparedCorpus) -> None:
    settings = config(reset_states=0.3)
    train_lm(corpus, tmp_path / "whole", settings)
    for number, stop in enumerate((4, 11)):
        with pytest.raises(Interrupted):
            train_lm(
                corpus if not number else None,
                tmp_path / "parts",
                settings,
                resume=number > 0,
                should_stop=lambda step, stop=stop: step == stop,
            )
    train_lm(output=tmp_path / "parts", resume=True)
    whole, parts = (
        (tmp_path / name / "weights.safetensors").read_bytes() for name in ("whole", "parts")
    )
    assert whole == parts


@pytest.mark.parametrize(
    ("cell", "given", "share"),
    [("rnn", None, 0.01), ("rhn", None, 0), ("lstm", None, 0), ("rnn", 0.0, 0), ("gru", 1, 1)],
)
def test_the_default_share_is_that_of_the_cell(
    cell: str, given: float | None, share: float
) -> None:
    values = {"model": {"cell": cell}, "data": {"reset_states": given}}
    assert from_dict(NeuralLMConfig, values).reset_states == share


def test_perplexity_by_start_is_of_both_starts(corpus: PreparedCorpus) -> None:
    # windows of 20 tokens, so that the first ones are the whole part
    task = make_task(corpus, {"cell": "rnn"}, bptt=20, eval_batch_size=1, eval_warm_up=0)
    begun, carried = task.perplexity_by_start()
    assert begun == carried  # nothing was trained: all states are zero
    assert begun == pytest.approx(one_stream(task, corpus), rel=1e-6)
    task._state = [tuple(part + 0.7 for part in layer) for layer in task._state]
    again, moved = task.perplexity_by_start()
    assert again == begun
    assert moved != begun


@pytest.mark.parametrize(("starts", "told"), [((20.0, 18.5), False), ((20.0, 18.0), True)])
def test_a_perplexity_that_depends_on_the_start_is_told(
    tmp_path: Path,
    corpus: PreparedCorpus,
    monkeypatch: pytest.MonkeyPatch,
    starts: tuple[float, float],
    told: bool,
) -> None:
    monkeypatch.setattr(LanguageModelTask, "perplexity_by_start", lambda self: starts)
    trained = train_lm(corpus, tmp_path / "m", config())
    assert bool(trained.warning) == told
    if told:
        assert trained.warning == (
            "the perplexity depends on where the model begins: after the last epoch it is about "
            "20.0 from the beginning of a text, as eval-ppl and generate begin, and 18.0 from the "
            "states of training; try --set reset_states=0.05"
        )


def test_streams_that_differ_from_one_are_told(
    tmp_path: Path, corpus: PreparedCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    score = {"valid_perplexity": 40.0}
    monkeypatch.setattr(LanguageModelTask, "validate", lambda self: score)
    trained = train_lm(corpus, tmp_path / "m", config())
    assert trained.scores["valid_perplexity"] < 10
    assert trained.warning.startswith(
        "the perplexity depends on where the model begins: it is 40.0"
    )


@pytest.mark.parametrize("kind", ["table", "char-cnn"])
def test_nothing_is_told_where_only_one_stream_has_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Literal["table", "char-cnn"]
) -> None:
    """In streams, an unknown word is `<unk>`, which says nothing of where the model begins."""
    (tmp_path / "train.txt").write_text("a b c\n" * 30)
    (tmp_path / "valid.txt").write_text("a bb c\n" * 10)
    corpus = prepare([tmp_path], tmp_path / "corpus", PrepareConfig())
    monkeypatch.setattr(LanguageModelTask, "validate", lambda self: {"valid_perplexity": 40.0})
    small = config()
    model = dataclasses.replace(small.model, input=InputConfig(kind=kind))
    trained = train_lm(corpus, tmp_path / "m", dataclasses.replace(small, model=model))
    assert bool(trained.warning) == (kind == "table")


@pytest.mark.parametrize("settings", CELLS, ids=str)
def test_streams_are_warmed_up_from_a_sentence_on(
    corpus: PreparedCorpus, settings: dict[str, Any]
) -> None:
    num_streams, warm_up = 7, 16  # sentences are of six tokens, streams of 26: none begins at one
    task = make_task(corpus, settings, eval_batch_size=num_streams, eval_warm_up=warm_up)
    task.module.eval()
    ids = np.asarray(corpus.ids("valid")).astype(np.int64)
    length = -(-len(ids) // num_streams)
    with torch.no_grad():
        found = task._warmed_up()
        for stream in range(num_streams):
            # what is read before the stream's first target: the token before it is the last
            before = [1, *ids[: stream * length].tolist()][-1 - warm_up : -1] if stream else []
            expected = task.module.initial_state(1)
            if before:
                tokens = before[before.index(1) :]  # </s> and a sentence
                _, expected = task.module(torch.tensor(tokens)[:, None], expected)
            for layer, parts in zip(found, expected, strict=True):
                for part, expected_part in zip(layer, parts, strict=True):
                    torch.testing.assert_close(
                        part[stream : stream + 1], expected_part, rtol=0, atol=1e-6
                    )


@pytest.mark.parametrize("cell", ["lstm", "rhn", "window"])
def test_what_it_costs_to_begin_each_sentence_anew_is_measured(
    tmp_path: Path, corpus: PreparedCorpus, cell: str
) -> None:
    settings = from_dict(
        NeuralLMConfig,
        {
            "model": {"hidden_size": 6, "cell": cell, "init_range": 0.5},
            "data": {"batch_size": 3, "bptt": 7},
            "training": {"epochs": 2},
        },
    )
    trained = train_lm(corpus, tmp_path / "m", settings)
    model = checkpoint.load(tmp_path / "m", NeuralLanguageModel)
    if cell == "window":  # it has no state
        assert "reset_state_factor" not in trained.scores
        assert model.reset_factor is None
        return
    anew, carried = (
        evaluate_lm(model, corpus.path, split="valid", reset_state=reset).perplexity
        for reset in (True, False)
    )
    assert anew != carried
    assert model.reset_factor == trained.scores["reset_state_factor"]
    assert model.reset_factor == pytest.approx(anew / carried, rel=1e-5)
