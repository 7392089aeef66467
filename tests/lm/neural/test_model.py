"""A trained network as a `LanguageModel`: scoring, stepping, and opening from disk."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load_file, save_file, save_model
from toy_models import word_tokenizer

from seqtool.core import checkpoint
from seqtool.core.arrays import Ids
from seqtool.core.config import to_dict
from seqtool.core.errors import ModelError
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.neural import model as module
from seqtool.lm.neural.cells import CELLS
from seqtool.lm.neural.config import ModelConfig, NeuralLMConfig
from seqtool.lm.neural.model import NeuralLanguageModel
from seqtool.lm.neural.network import NeuralNetwork
from seqtool.lm.neural.train import save_weights

WORDS = "abcdefg"
SIZE = len(WORDS) + 2
SENTENCES = [[2, 3, 4], [], [0, 8, 8, 5, 2, 7], [6], [3, 3], [4, 5, 6, 7, 8], [2]]
BLOCK = np.array([word for s in SENTENCES for word in [*s, EOS_ID]], dtype=np.int32)
SETTINGS: list[dict[str, Any]] = [
    *(
        {"cell": cell, "layers": 2, "connection": connection}
        for cell, connection in itertools.product(
            sorted(CELLS), ("plain", "residual", "dense", "highway")
        )
    ),
    {"cell": "rhn", "carry": "separate", "tied": True},
    {"cell": "rnn", "activation": "relu", "recurrent_init": "identity"},
    {"cell": "lstm", "dropout_state": 0.5, "dropout_words": 0.5, "dropout_output": 0.5},
]


def name_of(settings: dict[str, Any]) -> str:
    return "-".join(str(value) for value in settings.values())


def make(*, double: bool = True, **settings: Any) -> NeuralLanguageModel:
    torch.manual_seed(4)
    config = ModelConfig(**{"hidden_size": 5, "init_range": 0.6, **settings})
    network = NeuralNetwork(config, SIZE)
    return NeuralLanguageModel(network.double() if double else network, word_tokenizer(WORDS))


def score(model: NeuralLanguageModel, *blocks: Ids, **options: Any) -> npt.NDArray[np.float64]:
    results = list(model.score_ids(blocks, **options))
    assert [len(result.log_probs) for result in results] == [len(block) for block in blocks]
    assert all(result.log_probs.dtype == np.float64 for result in results)
    return np.concatenate([result.log_probs for result in results])


def divide(block: Ids, sentences_per_block: int) -> list[Ids]:
    """Cut a text into blocks of whole sentences."""
    ends = np.flatnonzero(block == EOS_ID) + 1
    return np.split(block, ends[sentences_per_block - 1 : -1 : sentences_per_block])


@pytest.mark.parametrize("settings", SETTINGS, ids=name_of)
class TestProtocol:
    def test_scores_are_those_of_steps(self, settings: dict[str, Any]) -> None:
        model = make(**settings)
        expected = []
        for sentences in divide(BLOCK, len(SENTENCES) if model.carries_state else 1):
            state = model.start(1)
            for token in sentences:
                expected.append(model.next_log_probs(state)[0, token])
                state = model.advance(state, np.array([token], dtype=np.int32))
        np.testing.assert_allclose(score(model, BLOCK), expected, rtol=0, atol=1e-12)

    def test_division_into_blocks_does_not_matter(
        self, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = make(**settings)
        for reset_state in (False, True):
            whole = score(model, BLOCK, reset_state=reset_state)
            for window, sentences in itertools.product((1, 4, 256), (1, 2, 3)):
                monkeypatch.setattr(module, "WINDOW", window)
                blocks = divide(BLOCK, sentences)
                assert len(blocks) == -(-len(SENTENCES) // sentences)
                pieces = score(model, *blocks, reset_state=reset_state)
                np.testing.assert_allclose(pieces, whole, rtol=0, atol=1e-12)

    def test_reset_state_scores_each_sentence_alone(
        self, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = make(**settings)
        alone = np.concatenate([score(model, sentence) for sentence in divide(BLOCK, 1)])
        for batch in (1, 2, 64):
            monkeypatch.setattr(module, "RESET_BATCH", batch)
            reset = score(model, BLOCK, reset_state=True)
            np.testing.assert_allclose(reset, alone, rtol=0, atol=1e-12)
        assert np.allclose(score(model, BLOCK), alone, atol=1e-6) is not model.carries_state

    def test_sentence_states_are_those_of_steps(
        self, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = make(**settings)
        sentences = [np.array(s, dtype=np.int32) for s in SENTENCES]
        expected = []
        for sentence in sentences:
            state = model.start(1)
            rows = [model.hidden_state(state)[0]]
            for token in sentence:
                state = model.advance(state, np.array([token], dtype=np.int32))
                rows.append(model.hidden_state(state)[0])
            expected.append(rows)
        assert model.sentence_states([]) == []
        for window in (2, 256):
            monkeypatch.setattr(module, "WINDOW", window)
            together = model.sentence_states(sentences)
            alone = [model.sentence_states([sentence])[0] for sentence in sentences]
            for rows, *found in zip(expected, together, alone, strict=True):
                for states in found:
                    assert states.shape == (len(rows), model.state_size)
                    np.testing.assert_allclose(states, rows, rtol=0, atol=1e-12)

    def test_select_repeats_reorders_and_drops(self, settings: dict[str, Any]) -> None:
        model = make(**settings)
        state = model.advance(model.start(3), np.array([2, 3, 4], dtype=np.int32))
        before = model.next_log_probs(state)
        rows = np.array([2, 0, 2, 2])
        chosen = state[rows]
        np.testing.assert_allclose(model.next_log_probs(chosen), before[rows], rtol=0, atol=1e-12)
        follow = np.array([5, 5, 6, EOS_ID], dtype=np.int32)
        after = model.next_log_probs(model.advance(chosen, follow))
        for row, token, expected in zip(rows, follow, after, strict=True):
            alone = state[np.array([row])]
            stepped = model.advance(alone, np.array([token], dtype=np.int32))
            np.testing.assert_allclose(
                model.next_log_probs(stepped)[0], expected, rtol=0, atol=1e-12
            )
        np.testing.assert_array_equal(model.next_log_probs(state), before)  # left as it was


# On disk.


def write(
    path: Path, spoil: Callable[[Path], object] = lambda directory: None, **settings: Any
) -> NeuralLanguageModel:
    """Save a model; `spoil` may change its files before their sums are taken."""
    model = make(double=False, **settings)
    config = to_dict(NeuralLMConfig(model=model.network.config))
    header = checkpoint.Header(kind=model.kind, config=config, tokenizer=model.tokenizer.describe())

    def fill(directory: Path) -> None:
        model.tokenizer.save(directory)
        save_model(model.network, str(directory / checkpoint.WEIGHTS))
        spoil(directory)

    checkpoint.save(path, header, "", fill)
    return model


@pytest.mark.parametrize("settings", SETTINGS, ids=name_of)
def test_arrays_that_lie_in_one_piece_of_memory_are_saved(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    network = make(double=False, **settings).network
    save_model(network, str(tmp_path / "expected"))
    save_weights(network, tmp_path / "found")
    # as cuDNN has those of a layer
    arrays = [*network.cells.parameters()] if hasattr(network, "cells") else []
    piece = torch.cat([array.detach().flatten() for array in (*arrays, torch.zeros(3))])
    for array, part in zip(arrays, piece.split([*map(torch.numel, arrays), 3]), strict=False):
        array.data = part.view_as(array)
    save_weights(network, tmp_path / "packed")
    expected = (tmp_path / "expected").read_bytes()
    assert (tmp_path / "found").read_bytes() == expected == (tmp_path / "packed").read_bytes()


@pytest.mark.parametrize("settings", SETTINGS, ids=name_of)
def test_saved_model_scores_alike(tmp_path: Path, settings: dict[str, Any]) -> None:
    model = write(tmp_path / "model", **settings)
    opened = checkpoint.load(tmp_path / "model")
    np.testing.assert_array_equal(score(opened, BLOCK), score(model, BLOCK))
    assert opened.kind == "neural-lm"
    assert opened.tokenizer.vocabulary.symbols == model.tokenizer.vocabulary.symbols


@pytest.mark.parametrize("tied", [False, True])
def test_vocabulary_that_does_not_fit(tmp_path: Path, tied: bool) -> None:
    path = tmp_path / "model"
    for betrayed in (False, True):  # by the sums
        write(path, tied=tied, spoil=(lambda _: None) if betrayed else word_tokenizer("abc").save)
        word_tokenizer("abc").save(path)
        with pytest.raises(ModelError, match=r"vocabulary has 5 symbols.* 9 rows") as caught:
            checkpoint.load(path)
        assert caught.value.path == str(path)
        assert caught.value.hint


@pytest.mark.parametrize(
    "change", ["missing", "unexpected", "another shape", "no embedding", "cut off"]
)
def test_weights_of_another_network(tmp_path: Path, change: str) -> None:
    path = tmp_path / "model"
    name = "cells.0.inner.weight_hh_l0"

    def spoil(directory: Path) -> None:
        weights = directory / checkpoint.WEIGHTS
        tensors = load_file(weights)
        if change == "missing":
            del tensors[name]
        elif change == "unexpected":
            tensors[name.replace("0", "1", 1)] = torch.zeros(2)
        elif change == "another shape":
            tensors[name] = torch.zeros(6, 2)
        elif change == "no embedding":
            tensors = {key: part for key, part in tensors.items() if key.startswith("cells")}
        else:
            weights.write_bytes(weights.read_bytes()[:-1])
            return
        save_file(tensors, weights)

    write(path, spoil, cell="gru")
    with pytest.raises(ModelError, match="damaged weights") as caught:
        checkpoint.load(path)
    assert caught.value.path == str(path / checkpoint.WEIGHTS)


@pytest.mark.parametrize(
    "settings", [{"hidden_size": 0}, {"output": {"layer": "class"}}, {"mogrifier_rounds": 2}]
)
def test_settings_that_this_version_does_not_have(tmp_path: Path, settings: dict[str, Any]) -> None:
    model = make()
    header = checkpoint.Header(
        kind=model.kind, config={"model": settings}, tokenizer=model.tokenizer.describe()
    )
    checkpoint.save(tmp_path / "model", header, "", lambda path: model.tokenizer.save(path))
    with pytest.raises(ModelError, match="made by another version of seqtool") as caught:
        checkpoint.load(tmp_path / "model")
    assert caught.value.path == str(tmp_path / "model" / checkpoint.HEADER)
