"""The side losses of an encoder, of heads and of words: against loops, word by word."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from parsing.encoding.test_encoder import BILSTM
from parsing.parser.test_train import config
from parsing.parser.tiny import make_sentence

from seqtool.core.errors import DataError
from seqtool.parsing.encoding.encoder import (
    CLOZE_SIZE,
    NONE,
    Cloze,
    ContextEncoder,
    HeadChoice,
    word_numbers,
)
from seqtool.parsing.encoding.features import PAD, ROOT, SymbolTable
from seqtool.parsing.parser.data import prepare_data
from seqtool.parsing.parser.transition.task import ParserTask
from seqtool.treebank.conllu import write_conllu
from seqtool.treebank.sentence import FORM

WANTED = config(**{f"model__{name}": value for name, value in BILSTM.items()})
WIDTH, NUM_LABELS = 6, 4
UNITS, NUM_WORDS = 3, 5


def by_loops(
    choice: HeadChoice, sentences: list[tuple[torch.Tensor, list[int], list[int]]]
) -> float:
    """The loss of sentences, each a table of states with ROOT's first, heads and labels."""
    of_heads, of_labels = [], []
    for states, heads, labels in sentences:
        for word in range(1, len(states)):
            asked = choice.dependents(states[word])
            scores = torch.stack([asked @ choice.heads(state) for state in states])
            of_heads.append(-scores.log_softmax(0)[heads[word]].item())
            of_labels.append(-choice.labels(states[word]).log_softmax(0)[labels[word]].item())
    return float(np.mean(of_heads) + np.mean(of_labels))


@settings(max_examples=25)
@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_the_loss_is_that_of_words_one_by_one(lengths: list[int], seed: int) -> None:
    torch.manual_seed(seed)
    choice = HeadChoice(WIDTH, NUM_LABELS).double()
    random = np.random.default_rng(seed)
    sentences = []
    for length in lengths:
        heads = [NONE, *random.integers(0, length + 1, length).tolist()]
        labels = [NONE, *random.integers(0, NUM_LABELS, length).tolist()]
        sentences.append((torch.randn(length + 1, WIDTH, dtype=torch.float64), heads, labels))
    states, heads, labels = zip(*sentences, strict=True)
    loss = choice(
        torch.cat(states),
        torch.tensor(lengths) + 1,
        torch.tensor([*chain(*heads)]),
        torch.tensor([*chain(*labels)]),
    )
    # scores are in float32
    np.testing.assert_allclose(loss.item(), by_loops(choice, sentences), rtol=1e-5)


def test_gold_tags_are_a_loss_too(tmp_path: Path) -> None:
    """Those of the same sentences in another file; by loops, from the files on."""
    path, gold_path = tmp_path / "train.conllu", tmp_path / "gold.conllu"
    trees = {"NVN": [2, 0, 2], "V": [0], "NV": [2, 0]}
    write_conllu((make_sentence([("a", "X")] * len(t), t) for t in trees.values()), path)
    gold = [make_sentence([("a", tag) for tag in tags], tree) for tags, tree in trees.items()]
    for sentence in gold[:2]:
        sentence.rows[0][5] = "Case=Nom|Number=Sing"
    write_conllu(gold[:2], gold_path)
    with pytest.raises(DataError, match="other sentences"):
        prepare_data([str(path)], str(path), WANTED, gold_tags=str(gold_path))
    write_conllu(gold, gold_path)
    assert prepare_data([str(path)], str(path), WANTED).gold_tags is None
    data = prepare_data([str(path)], str(path), WANTED, gold_tags=str(gold_path))
    assert data.gold_tags is not None
    # N with features, N, V with features, V
    assert data.gold_tags.tolist() == [-1, -1, 0, 3, 1, -1, 2, -1, 1, 3]
    task = ParserTask(data.config, data)
    choice = task.module.head_choice
    arrays = data.train.arrays
    states = torch.randn(len(arrays.types) - 1, 2 * BILSTM["encoder_size"])
    inside = np.arange(1, len(arrays.types))
    found = task._head_loss(states, inside, arrays.lengths).item()
    told = [(states[row - 1], data.gold_tags[row]) for row in inside if data.gold_tags[row] >= 0]
    of_tags = np.mean([-choice.tags(state).log_softmax(0)[tag].item() for state, tag in told])
    data.gold_tags[:] = NONE
    without = task._head_loss(states, inside, arrays.lengths).item()
    np.testing.assert_allclose(found - without, 0.5 * of_tags, rtol=1e-4)


@pytest.mark.parametrize("name", ["head_choice", "cloze"])
def test_it_teaches_the_encoder_and_is_no_part_of_the_model(name: str, tmp_path: Path) -> None:
    path = tmp_path / "train.conllu"
    trees = [[2, 0, 2], [0], [2, 3, 0, 3, 4]]
    write_conllu((make_sentence([("a", "X")] * len(heads), heads) for heads in trees), path)
    data = prepare_data([str(path)], str(path), WANTED)
    task = ParserTask(data.config, data)
    assert not any(weight.startswith(name) for weight in task.model().weights)
    task.start_epoch(1)
    task.loss(0)[0].backward()
    slopes = [weight.grad for weight in getattr(task.module, name).parameters()]
    assert all(slope is not None and slope.abs().sum() > 0 for slope in slopes)


def cloze_by_loops(cloze: Cloze, sentences: list[tuple[torch.Tensor, list[int]]]) -> float:
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
def test_the_loss_of_words_is_that_of_one_by_one(sentences: list[list[int]], seed: int) -> None:
    torch.manual_seed(seed)
    network = Cloze(UNITS, NUM_WORDS).double()
    states = [torch.randn(len(words), 2 * UNITS, dtype=torch.float64) for words in sentences]
    words = torch.tensor([word for words in sentences for word in words])
    before = words.clone()
    loss = network(torch.cat(states), words, torch.tensor([len(words) for words in sentences]))
    # scores are in float32
    wanted = cloze_by_loops(network, list(zip(states, sentences, strict=True)))
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


def test_words_are_numbered_by_how_common_they_are() -> None:
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
    assert word_numbers(SymbolTable.build(types, ("suffix",), 2, (FORM,)), rows) is None
