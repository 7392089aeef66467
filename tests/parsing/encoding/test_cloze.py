"""The loss of telling words by their context: against loops, word by word."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from parsing.encoding.test_encoder import BILSTM
from parsing.parser.test_train import config as parser_config
from parsing.parser.tiny import make_sentence
from parsing.tagger.toy import random_treebank
from parsing.tagger.toy import tiny_config as tagger_config

from seqtool.parsing.encoding import encoder
from seqtool.parsing.encoding.encoder import CLOZE_SIZE, NONE, Cloze, ContextEncoder, word_numbers
from seqtool.parsing.encoding.features import PAD, ROOT, SymbolTable
from seqtool.parsing.parser.data import prepare_data as parser_data
from seqtool.parsing.parser.transition.task import ParserTask
from seqtool.parsing.tagger.data import tagger_data
from seqtool.parsing.tagger.train import TaggerTask
from seqtool.treebank.sentence import FORM

UNITS, NUM_WORDS = 3, 5


def by_loops(cloze: Cloze, sentences: list[tuple[torch.Tensor, list[int]]]) -> float:
    """The loss of sentences, each a table of states and the numbers of its words."""
    losses = []
    for states, words in sentences:
        for place, word in enumerate(words):
            if word == NONE:
                continue
            context = torch.zeros(CLOZE_SIZE, dtype=states.dtype)
            if place > 0:
                context = context + cloze.before.weight @ states[place - 1][:UNITS]
            if place < len(words) - 1:
                context = context + cloze.behind.weight @ states[place + 1][UNITS:]
            losses.append(-cloze.words(torch.tanh(context)).log_softmax(0)[word].item())
    return float(np.mean(losses)) if losses else 0.0


@settings(max_examples=40)
@given(
    sentences=st.lists(
        st.lists(st.integers(NONE, NUM_WORDS - 1), min_size=1, max_size=6), min_size=1, max_size=4
    ),
    seed=st.integers(0, 99),
)
def test_the_loss_is_that_of_words_one_by_one(sentences: list[list[int]], seed: int) -> None:
    torch.manual_seed(seed)
    network = Cloze(UNITS, NUM_WORDS).double()
    states = [torch.randn(len(words), 2 * UNITS, dtype=torch.float64) for words in sentences]
    words = torch.tensor([word for words in sentences for word in words])
    before = words.clone()
    loss = network(torch.cat(states), words, torch.tensor([len(words) for words in sentences]))
    # scores are in float32
    wanted = by_loops(network, list(zip(states, sentences, strict=True)))
    np.testing.assert_allclose(loss.item(), wanted, rtol=1e-5)
    assert words.equal(before)


def test_the_states_have_not_seen_what_is_to_be_told() -> None:
    """The forward ones of the first layer nothing of later words, nor the others of earlier."""
    torch.manual_seed(0)
    encoder = ContextEncoder(4, UNITS, 2)
    lengths = torch.tensor([5, 2])
    inputs = torch.randn(7, 4, requires_grad=True)
    first, last = encoder.first_and_last(inputs, lengths)
    assert last.equal(encoder(inputs, lengths))
    for half, seen in (
        (first[:, :UNITS], [[*range(word + 1)] for word in range(5)] + [[5], [5, 6]]),
        (first[:, UNITS:], [[*range(word, 5)] for word in range(5)] + [[5, 6], [6]]),
    ):
        for state, words in zip(half, seen, strict=True):
            (slopes,) = torch.autograd.grad(state.sum(), inputs, retain_graph=True)
            assert slopes.abs().sum(1).nonzero().flatten().tolist() == words


def test_words_are_numbered_by_how_common_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"the": 5, "The": 4, "dog": 6, "cat": 3, "rare": 1}
    types = [((form,), count) for form, count in counts.items()]
    symbols = SymbolTable.build(types, ("form", "suffix"), 2, (FORM,))
    forms = ["THE", "dog", "cat", "rare", "new"]
    root = [ROOT] + [PAD] * (symbols.width - 1)
    rows = np.asarray([*(symbols.row((form,)) for form in forms), root], np.int32)
    # in lower case: the 9, dog 6, cat 3, then those that are unknown, then ROOT
    found = word_numbers(symbols, rows)
    assert found is not None
    assert found.tolist() == [1, 2, 3, 0, 0, NONE]
    monkeypatch.setattr(encoder, "CLOZE_WORDS", 3)
    found = word_numbers(symbols, rows)
    assert found is not None
    assert found.tolist() == [1, 2, 0, 0, 0, NONE]
    assert word_numbers(SymbolTable.build(types, ("suffix",), 2, (FORM,)), rows) is None


def parser_task(folder: Path, weight: float) -> ParserTask:
    sentences = [
        make_sentence([("a", "X"), ("b", "Y")] * n, [0] + [1] * (2 * n - 1)) for n in (1, 3)
    ]
    path = folder / "train.conllu"
    path.write_text("".join(sentence.to_conllu() for sentence in sentences), encoding="utf-8")
    model = {f"model__{name}": value for name, value in BILSTM.items()}
    data = parser_data(
        [str(path)], str(path), parser_config(learning__cloze_weight=weight, **model)
    )
    return ParserTask(data.config, data)


def tagger_task(folder: Path, weight: float) -> TaggerTask:
    settings = tagger_config(learning__cloze_weight=weight)
    return TaggerTask(settings, tagger_data(random_treebank(6), (), settings))


@pytest.mark.parametrize("task_of", [parser_task, tagger_task])
def test_it_teaches_the_encoder_and_is_no_part_of_the_model(
    task_of: Callable[[Path, float], ParserTask | TaggerTask],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = task_of(tmp_path, 0.5)
    assert not any(name.startswith("cloze") for name in task.model().weights)
    assert not hasattr(task_of(tmp_path, 0.0).module, "cloze")
    task.start_epoch(1)
    with_it = task.loss(0)[0]
    with_it.backward()
    slopes = task.module.cloze.before.weight.grad
    assert slopes is not None
    assert slopes.abs().sum() > 0
    # its loss is added with its weight
    told: list[float] = []
    forward = Cloze.forward

    def doubled(*arguments: Any) -> torch.Tensor:
        loss = forward(*arguments)
        told.append(loss.item())
        return 2 * loss

    monkeypatch.setattr(Cloze, "forward", doubled)
    np.testing.assert_allclose((task.loss(0)[0] - with_it).item(), 0.5 * told[0], rtol=1e-4)
