"""The loss of choosing heads by states alone: against loops, word by word."""

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
from seqtool.parsing.encoding import encoder
from seqtool.parsing.encoding.encoder import NONE, HeadChoice
from seqtool.parsing.parser.data import prepare_data
from seqtool.parsing.parser.transition.task import ParserTask

WIDTH, NUM_LABELS = 6, 4


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
    sentences = [
        make_sentence([("a", "X")] * len(heads), heads) for heads in ([2, 0, 2], [0], [2, 0])
    ]
    tags = (("N", "V", "N"), ("V",), ("N", "V"))
    gold = [
        make_sentence([("a", tag) for tag in of_words], sentence.heads())
        for of_words, sentence in zip(tags, sentences, strict=True)
    ]
    for sentence in gold[:2]:
        sentence.rows[0][5] = "Case=Nom|Number=Sing"
    path, gold_path = tmp_path / "train.conllu", tmp_path / "gold.conllu"
    for file, items in ((path, sentences), (gold_path, gold)):
        file.write_text("".join(item.to_conllu() for item in items), encoding="utf-8")
    wanted = config(**{f"model__{name}": value for name, value in BILSTM.items()})
    assert prepare_data([str(path)], str(path), wanted).gold_tags is None
    data = prepare_data([str(path)], str(path), wanted, gold_tags=str(gold_path))
    assert data.gold_tags is not None
    # N with features, N, V with features, V
    assert data.gold_tags.tolist() == [-1, -1, 0, 3, 1, -1, 2, -1, 1, 3]
    gold_path.write_text("".join(item.to_conllu() for item in gold[:2]), encoding="utf-8")
    with pytest.raises(DataError, match="other sentences"):
        prepare_data([str(path)], str(path), wanted, gold_tags=str(gold_path))
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


def test_it_teaches_the_encoder_and_is_no_part_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "train.conllu"
    trees = [[2, 0, 2], [0], [2, 3, 0, 3, 4]]
    sentences = [make_sentence([("a", "X")] * len(heads), heads) for heads in trees]
    path.write_text("".join(sentence.to_conllu() for sentence in sentences), encoding="utf-8")
    wanted = config(**{f"model__{name}": value for name, value in BILSTM.items()})
    data = prepare_data([str(path)], str(path), wanted)
    task = ParserTask(data.config, data)
    assert not any(name.startswith("head_choice") for name in task.model().weights)

    arrays, choice = data.train.arrays, task.module.head_choice
    inside = np.arange(1, len(arrays.types))
    states = torch.randn(len(inside), 2 * BILSTM["encoder_size"])
    parts = [
        (states[rows - 1], data.heads[rows].tolist(), data.label_ids[rows].tolist())
        for begin, length in zip(arrays.tokens.tolist(), arrays.lengths.tolist(), strict=True)
        for rows in [np.arange(begin, begin + 1 + length)]
    ]
    # long sentences are left out, since scores grow with the square
    for longest, included in ((400, parts), (4, parts[:2])):
        monkeypatch.setattr(encoder, "HEAD_CHOICE_LONGEST", longest)
        found = task._head_loss(states, inside, arrays.lengths).item()
        np.testing.assert_allclose(found, by_loops(choice, included), rtol=1e-5)
    monkeypatch.setattr(encoder, "HEAD_CHOICE_LONGEST", 0)
    assert task._head_loss(states, inside, arrays.lengths).item() == 0.0

    monkeypatch.undo()
    task.start_epoch(1)
    task.loss(0)[0].backward()
    assert choice.heads.weight.grad is not None
    assert choice.heads.weight.grad.abs().sum() > 0
