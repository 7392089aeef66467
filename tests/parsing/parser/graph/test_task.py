"""Training of graph-based parsers: the losses against enumeration, what is learnt, and resuming."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from parsing.parser.references import all_trees
from parsing.parser.test_train import assert_parses_as, assert_same_weights, trained, weights
from parsing.parser.tiny import make_sentence
from torch import nn
from torch.nn import functional

from seqtool.core import checkpoint
from seqtool.core.config import from_dict
from seqtool.core.errors import ConfigError, DataError, Interrupted
from seqtool.parsing.parser.config import ParserConfig, preset
from seqtool.parsing.parser.data import HeadShares, prepare_data
from seqtool.parsing.parser.graph import task as task_module
from seqtool.parsing.parser.graph.task import (
    LEAST_SHARE,
    GraphNetwork,
    GraphTask,
    shares_of_trees,
    smoothed,
    tree_loss,
)
from seqtool.parsing.parser.train import train_parser
from seqtool.treebank.projectivity import LIFTED

SIZES = {"lexical_size": 8, "tag_size": 8, "type_units": 8, "encoder_size": 16, "encoder_layers": 1}
NO_NOISE = {
    f"dropout_{name}": 0.0 for name in ("words", "fields", "types", "encoder", "arcs", "embeddings")
} | {"cloze_weight": 0.0, "averaging": 0.0}


def graph_settings(epochs: int = 8, **rest: Any) -> ParserConfig:
    """Settings of a small parser; `model__x` and `learning__x` go to their sections."""
    base = preset("graph")
    base["model"] |= {**SIZES, "arc_size": 16, "relation_size": 8}
    base["model"] |= {"num_filters": 0, "distances": False, "second_order": "none"}
    base["learning"] |= {"batch_words": 64, "averaging": 0.9, "dropout_words": 0.0}
    base["learning"] |= {"dropout_encoder": 0.1, "dropout_arcs": 0.1, "dropout_fields": 0.0}
    base["training"] |= {"epochs": epochs, "learning_rate": 0.02, "precision": "float32"}
    for name, value in rest.items():
        section, _, key = name.partition("__")
        base[section][key] = value
    return from_dict(ParserConfig, base)


@pytest.mark.parametrize(
    ("loss", "trees", "lifted", "more", "second"),
    [
        ("local", "all", False, True, "both"),
        ("local", "projective", True, False, "none"),
        ("matrix-tree", "all", False, False, "both"),
        ("crf", "projective", True, True, "none"),
    ],
)
def test_a_rule_is_learnt(
    loss: str, trees: str, lifted: bool, more: bool, second: str, treebank: Path, tmp_path: Path
) -> None:
    """Arcs that cross are built, or lifted and put back."""
    settings = graph_settings(
        14,
        learning__loss=loss,
        model__trees=trees,
        model__num_filters=6 if more else 0,
        model__distances=more,
        model__second_order=second,
    )
    result = trained(treebank, tmp_path / "p", settings, "non-projective-")
    assert result.scores["dev_las"] == 100.0
    assert result.system == trees
    names = checkpoint.load(tmp_path / "p").labels.names
    assert any(LIFTED in label for label in names) == lifted
    assert_parses_as(tmp_path / "p", treebank / "non-projective-dev.conllu")


def test_auto_looks_at_the_treebank_and_the_loss(treebank: Path) -> None:
    for name, loss, expected in (
        ("train", "local", "projective"),
        ("non-projective-train", "local", "all"),
        ("non-projective-train", "matrix-tree", "all"),
        ("non-projective-train", "crf", "projective"),
    ):
        settings = graph_settings(learning__loss=loss)
        data = prepare_data([str(treebank / f"{name}.conllu")], None, settings)
        assert data.config.model.trees == expected


def told_heads(lengths: Any, generator: np.random.Generator) -> tuple[HeadShares, list[Any]]:
    """What teachers may tell: two heads or one of each word; and the same as tables."""
    counts, heads, shares, tables = [0], [], [], []  # the row of NONE
    for length in lengths.tolist():
        counts.append(0)  # that of ROOT
        table = np.zeros((length, 1 + length))
        for word in range(length):
            likely = generator.choice(np.delete(np.arange(1 + length), word + 1), min(2, length))
            table[word, likely] += 1 / 4
            table[word, likely[0]] += 3 / 4 - table[word].sum() + 1 / 4
            if (length, word) == (3, 1):  # of one word nothing is told
                table[word] = 0.0
            found = np.flatnonzero(table[word])
            counts.append(len(found))
            heads += found.tolist()
            shares += table[word, found].tolist()
        tables.append(table)
    ends = np.concatenate(([0], np.cumsum(counts)))
    return HeadShares(ends, np.int16(heads), np.float16(shares)), tables


def drawn_trees(shares: np.ndarray, *, projective: bool) -> np.ndarray:
    """How often arcs are in a tree whose heads are drawn by shares, by enumeration."""
    found, total = np.zeros_like(shares), 0.0
    for tree in all_trees(len(shares), projective=projective):
        chance = float(
            np.prod([shares[word, head] + LEAST_SHARE for word, head in enumerate(tree)])
        )
        total += chance
        for word, head in enumerate(tree):
            found[word, head] += chance
    return found / total


@pytest.mark.parametrize("projective", [True, False])
def test_what_teachers_tell_of_words_alone_is_no_reason_for_scores_without_end(
    projective: bool,
) -> None:
    """Two words that are likely heads of each other: no tree has both arcs."""
    told = torch.tensor([[[0.1, 0.0, 0.9], [0.1, 0.9, 0.0]]])
    heads, lengths = torch.tensor([[0, 1]]), torch.tensor([2])
    for factor in (1.0, 10.0, 1000.0):
        scores = (factor * told).requires_grad_()
        loss = tree_loss(scores, lengths, heads, projective, told, weight=0.5)
        # a cross-entropy of trees; by the shares themselves it would fall to -319 at 1,000
        assert loss.item() > 0.0
    # shares in half precision, which add up to more than 1
    rounded = torch.tensor([[[0.0, 0.0, 1.002], [1.001, 0.0, 0.0]]])
    assert tree_loss(scores, lengths, heads, projective, rounded, weight=0.5).isfinite().all()
    # as likely in both trees, and the gold one has the rest
    shares = shares_of_trees(told.flatten(), lengths, projective).view(2, 3)
    assert shares.numpy() == pytest.approx(
        drawn_trees(told[0].numpy(), projective=projective), abs=1e-6
    )
    assert shares[0, 0].item() == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("teacher_weight", [0.0, 0.25])
@pytest.mark.parametrize("loss", ["local", "crf", "matrix-tree"])
def test_the_loss_is_that_of_all_choices_or_all_trees(
    loss: str, teacher_weight: float, smoothing: float, tmp_path: Path
) -> None:
    """With teachers, a share of it is that of heads drawn from what they tell.

    With label smoothing, gold labels and heads that are chosen one by one have less of it, and what
    may be chosen has the rest.
    """
    tag = iter("XYZXYZXYZXYZXY")
    trees = [[2, 0, 2, 3], [0], [0, 1, 1], [3, 1, 0]]
    sentences = [make_sentence([("a", next(tag)) for _ in heads], heads) for heads in trees]
    path = tmp_path / "train.conllu"
    path.write_text("".join(sentence.to_conllu() for sentence in sentences), encoding="utf-8")
    settings = graph_settings(
        learning__loss=loss,
        learning__teacher_weight=teacher_weight,
        learning__label_smoothing=smoothing,
        **{f"learning__{name}": value for name, value in NO_NOISE.items()},
    )
    data = prepare_data([str(path)], str(path), settings)
    told, tables = told_heads(data.train.arrays.lengths, np.random.default_rng(0))
    if teacher_weight:
        data = dataclasses.replace(data, head_shares=told)
    task = GraphTask(data.config, data)
    with torch.no_grad():  # all scores begin as zeros
        for parameter in task.module.parameters():
            nn.init.normal_(parameter, std=0.5)
    assert task.start_epoch(0) == 1
    value, num_words = task.loss(0)
    assert num_words == 11
    network: GraphNetwork = task.module.double()
    nats = 0.0
    for place, heads in enumerate(trees):
        begin = int(data.train.arrays.tokens[place])
        types = data.train.arrays.types[begin : begin + len(heads) + 1]
        rows = [torch.from_numpy(rows[types]).long() for rows in data.types.arrays()]
        lengths = torch.tensor([len(types)])
        with torch.no_grad():
            states = network.encoder(network.type_vectors(*rows), lengths)
            dependents, of_heads, *relations = network(states)
            arcs = network.arc_scores(dependents, of_heads, lengths)[0][0, 1:].double()
        told_here = tables[place].copy()  # of a word of which nothing is told, all is gold
        told_here[np.arange(len(heads)), heads] += 1.0 - told_here.sum(1)
        if teacher_weight and loss != "local":
            told_here = drawn_trees(told_here, projective=loss == "crf")
        wanted = teacher_weight * told_here
        wanted[np.arange(len(heads)), heads] += 1.0 - teacher_weight
        if loss == "local":
            of_gold = 1.0 - teacher_weight * tables[place].sum(1)
            wanted[np.arange(len(heads)), heads] -= smoothing * of_gold
            for word in range(len(heads)):
                may_be = np.delete(np.arange(len(heads) + 1), word + 1)
                wanted[word, may_be] += smoothing * of_gold[word] / len(may_be)
            logs = arcs.log_softmax(1).numpy()
            nats -= float((wanted * np.where(wanted > 0, logs, 0.0)).sum())
        else:
            totals = {
                tree: float(sum(arcs[word, head] for word, head in enumerate(tree)))
                for tree in all_trees(len(heads), projective=loss == "crf")
            }
            reached = wanted * np.where(wanted > 0, arcs.numpy(), 0.0)
            nats += float(np.logaddexp.reduce(list(totals.values()))) - float(reached.sum())
        for word, head in enumerate(heads):
            with torch.no_grad():
                scores = network.label_scores(
                    relations[0][word + 1 : word + 2], relations[1][head : head + 1]
                )[0].double()
            # the one label of arcs from ROOT is the last one
            own = scores[:-1] if head else scores[-1:]
            gold = int(data.label_ids[begin + 1 + word]) - (0 if head else len(scores) - 1)
            logs_of_labels = own.log_softmax(0)
            share = smoothing if loss == "local" else 0.0
            nats -= (1.0 - share) * float(logs_of_labels[gold])
            nats -= share * float(logs_of_labels.mean())
    assert value.item() == pytest.approx(nats / num_words, rel=1e-5)


def test_label_smoothing_is_over_what_may_be_chosen() -> None:
    scores = torch.tensor(
        [[1.0, -2.0, 0.5, 3.0], [0.0, 2.0, -torch.inf, -torch.inf], [7.0] + 3 * [-torch.inf]],
        dtype=torch.float64,
        requires_grad=True,
    )
    right = torch.tensor([2, 0, 0])
    loss = functional.cross_entropy(scores, right, reduction="none")
    assert smoothed(loss, scores, 0.0) is loss
    found = smoothed(loss, scores, 0.3)
    expected = [
        functional.cross_entropy(row[row > -torch.inf], gold, label_smoothing=0.3)
        for row, gold in zip(scores, right, strict=True)
    ]
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-12, atol=1e-12)
    (slopes,) = torch.autograd.grad(found.sum(), scores)
    assert slopes.isfinite().all()
    assert torch.equal(slopes[2], torch.zeros(4))  # there is nothing to choose


@pytest.mark.parametrize("stop_at", [1, 7])
def test_a_resumed_run_ends_with_the_same_weights(
    stop_at: int, treebank: Path, tmp_path: Path
) -> None:
    settings = graph_settings(2, model__num_filters=6, learning__dropout_fields=0.2)
    trained(treebank, tmp_path / "whole", settings)
    with pytest.raises(Interrupted, match=f"step {stop_at}"):
        trained(treebank, tmp_path / "parts", settings, should_stop=lambda step: step == stop_at)
    train_parser(None, tmp_path / "parts", resume=True, device="cpu")
    assert_same_weights(tmp_path / "whole", tmp_path / "parts")
    assert not any(name.startswith(("cloze", "gold_tags")) for name in weights(tmp_path / "whole"))


def test_gold_tags_teach_the_encoder(treebank: Path) -> None:
    path = str(treebank / "train.conllu")
    losses = []
    for gold_tags in (None, path):
        data = prepare_data([path], path, graph_settings(), gold_tags=gold_tags)
        task = GraphTask(data.config, data)
        assert hasattr(task.module, "gold_tags") == (gold_tags is not None)
        task.start_epoch(0)
        value, _ = task.loss(0)
        losses.append(value.item())
        value.backward()  # type: ignore[no-untyped-call]
        if gold_tags is not None:
            assert task.module.gold_tags.weight.grad.abs().sum() > 0
    # heads, labels and words cost the same; what is drawn is the same up to the weights
    assert losses[1] > losses[0]


def test_long_sentences_are_not_learnt(treebank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(treebank / "train.conllu")
    data = prepare_data([path], path, graph_settings(learning__batch_words=1))
    monkeypatch.setattr(task_module, "LONGEST_LEARNT", 5)
    task = GraphTask(data.config, data)
    lengths = data.train.arrays.lengths
    assert sum(task.loss(i)[1] for i in range(task.start_epoch(0))) == lengths[lengths <= 5].sum()
    monkeypatch.setattr(task_module, "LONGEST_LEARNT", 4)
    with pytest.raises(DataError, match="every sentence has more than 4 words"):
        GraphTask(data.config, data)


@pytest.mark.parametrize(
    ("model", "loss", "message"),
    [
        ({"decoder": "graph", "encoder": "none"}, "local", "encoder"),
        ({}, "crf", "transition"),
        ({"decoder": "graph", "encoder": "bilstm", "trees": "all"}, "crf", "trees"),
        ({"decoder": "graph", "encoder": "bilstm"}, "global", "graph"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    model: dict[str, Any], loss: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        from_dict(ParserConfig, {"model": model, "learning": {"loss": loss}})
