"""The averaged perceptron, judged by one of dictionaries."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parsing.parser.tiny import write_treebank
from parsing.sparse.plain import place

from seqtool.core.config import from_dict
from seqtool.parsing.parser.config import ParserConfig, preset
from seqtool.parsing.parser.data import TrainingData, prepare_data
from seqtool.parsing.parser.transition.oracles import Oracle
from seqtool.parsing.parser.transition.transitions import (
    BASE,
    BUFFER,
    FRONT,
    LENGTH,
    NUM_LEFT,
    STACK,
    STACK_SIZE,
    Configurations,
)
from seqtool.parsing.sparse.task import LinearTransitionTask

TEMPLATES = ("s0.form", "s1.upos s0.upos", "b0.upos", "s0.lefts")


def settings(**learning: Any) -> ParserConfig:
    base = preset("linear")
    base["model"] |= {"fields": ["form", "upos"], "templates": list(TEMPLATES)}
    base["model"] |= {"system": "arc-hybrid", "min_count": 1, "hash_bits": 22}
    # each batch is one sentence, so that sentences are learnt one after another
    base["learning"] = {"batch_size": 1, "explore_after": 1, "exploration": 1.0, **learning}
    return from_dict(ParserConfig, base)


def task_of(config: ParserConfig, folder: Path) -> tuple[LinearTransitionTask, TrainingData]:
    train, dev = (write_treebank(folder / f"{n}.conllu", n, seed=n) for n in (20, 10))
    data = prepare_data([str(train)], str(dev), config)
    return LinearTransitionTask(data.config, data), data


def features(configurations: Configurations, symbols: Any) -> list[tuple[int, ...]]:
    """The features of the one configuration, for `TEMPLATES`: template and values."""
    row, nodes = configurations.configs[0].tolist(), configurations.nodes
    stack = [int(nodes[row[BASE] + i, STACK]) for i in range(row[STACK_SIZE])]
    first = int(nodes[row[BASE] + row[FRONT], BUFFER]) if row[FRONT] <= row[LENGTH] else None
    top, below = stack[-1], stack[-2] if len(stack) > 1 else None
    lefts = min(8, 1 + int(nodes[row[BASE] + top, NUM_LEFT]))
    return [
        (0, symbols("form", top)),
        (1, symbols("upos", below), symbols("upos", top)),
        (2, symbols("upos", first)),
        (3, lefts),
    ]


def perceptron(
    data: TrainingData, order: list[list[int]]
) -> tuple[dict[Any, float], dict[Any, float]]:
    """The weights and their averages, by feature and transition, after epochs in an order."""
    config, labels, arrays = data.config, data.labels, data.train.arrays
    oracle = Oracle(
        config.model.system, labels, data.heads, data.label_ids, arrays.tokens, arrays.lengths
    )
    weights: Counter[Any] = Counter()
    counts: Counter[Any] = Counter()
    sums: Counter[Any] = Counter()
    num = 0
    which = np.zeros(1, np.int32)
    for epoch, sentences in enumerate(order):
        for sentence in sentences:
            span = slice(sentence, sentence + 1)
            configurations = Configurations(config.model.system, labels, 1, 99)
            configurations.start(which, arrays.tokens[span], arrays.lengths[span])
            while len(configurations.unfinished(which)):
                seen = features(configurations, partial(symbol, data, sentence))
                legal = configurations.legal(which)
                actions = np.repeat(np.arange(5), np.diff(labels.segments))
                legal_ones = [t for t, a in enumerate(actions) if legal[0] >> a & 1]
                score = {t: sum(weights[f, t] for f in seen) for t in legal_ones}
                costs = oracle.costs(configurations, which, legal)[0]
                free = oracle.targets(configurations, which)[0][costs == 0]
                own = max(legal_ones, key=score.__getitem__)
                best = max((t for t in free.tolist() if t >= 0), key=score.__getitem__)
                if epoch == 0:
                    counts.update(seen)
                if own != best:
                    known = [f for f in seen if counts[f] >= config.learning.feature_count]
                    weights.update({(f, best): 1 for f in known})
                    weights.subtract({(f, own): 1 for f in known})
                num += 1
                sums.update(weights)
                taken = own if epoch >= 1 else best
                configurations.advance(which, np.asarray([taken], np.int32))
    return weights, {key: value / num for key, value in sums.items()}


def symbol(data: TrainingData, sentence: int, name: str, word: int | None) -> int:
    """The number of a word's form or tag; 0 of no word."""
    if word is None:
        return 0
    if word == 0:
        return 2
    rows = data.types.arrays()[0 if name == "form" else 1]
    return int(rows[data.train.arrays.types[data.train.arrays.tokens[sentence] + word], 0])


@pytest.mark.parametrize("least", [1, 2])
def test_the_perceptron_learns_as_one_of_dictionaries_does(least: int, tmp_path: Path) -> None:
    config = settings(feature_count=least)
    task, data = task_of(config, tmp_path)
    order: list[list[int]] = []
    for epoch in range(3):
        num = task.start_epoch(epoch)
        order.append([int(batch[0]) for batch in task._batches])
        assert all(len(batch) == 1 for batch in task._batches)
        for index in range(num):
            task.learn(index, 1.0)
    weights, averages = perceptron(data, order)
    found = task.weights
    places = {
        key: place(key[0][0], list(key[0][1:]), config.model.hash_bits) + key[1] for key in weights
    }
    assert len({*places.values()}) == len(places)  # none is shared
    values, average = np.zeros_like(found.values), np.zeros(len(found.values))
    for key, at in places.items():
        values[at], average[at] = weights[key], averages[key]
    assert np.array_equal(found.values, values)
    assert np.count_nonzero(values) > 10
    assert np.allclose(found.average(), average, rtol=1e-6, atol=1e-6)


def test_measuring_changes_nothing(tmp_path: Path) -> None:
    task, _ = task_of(settings(), tmp_path)
    task.start_epoch(0)
    task.learn(0, 1.0)
    before = [np.copy(array) for array in task.weights]
    measured = task.loss(1)
    assert all(np.array_equal(a, b) for a, b in zip(before, task.weights, strict=True))
    assert measured[1] == task.learn(1, 1.0)[1]
