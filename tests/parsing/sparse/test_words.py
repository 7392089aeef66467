"""Sparse features of taggers: their learning against plain Python, and what they are made of."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict

import numpy as np
import pytest
from parsing.sparse.plain import mixed, places
from parsing.tagger.toy import bare, random_treebank, tiny_config

from seqtool.core.errors import ConfigError
from seqtool.parsing.sparse.adagrad import (
    LEAST_GRADIENT,
    RATE,
    SHARE,
    SparseLearner,
)
from seqtool.parsing.sparse.words import STANDARD, attributes_of, compile_templates, words_of
from seqtool.parsing.tagger.config import TaggerModelConfig
from seqtool.parsing.tagger.data import TaggerData, tagger_data
from seqtool.parsing.tagger.train import TaggerTask
from seqtool.treebank.sentence import FORM

BITS = 24  # so many that no two features of a small treebank share a place


@pytest.fixture(scope="module")
def data() -> TaggerData:
    return tagger_data(random_treebank(12), None, tiny_config())


def learner_of(data: TaggerData, dropout: float, epochs: int, bits: int = BITS) -> SparseLearner:
    config = tiny_config(
        model__sparse_bits=bits,
        model__sparse_templates=STANDARD,
        learning__dropout_sparse=dropout,
        learning__sparse_epochs=epochs,
    )
    _, names = compile_templates(config.model.sparse_templates)
    bundles = data.bundles
    return SparseLearner(
        config,
        words_of(
            attributes_of([word[0] for word in data.distinct], names),
            data.train.words,
            data.train.lengths,
        ),
        data.bundle_ids[data.train.words],
        bundles.table + bundles.starts,
        bundles.num_values,
    )


def learnt_plainly(
    data: TaggerData, dropout: float, epochs: int
) -> tuple[dict[tuple[int, int], float], set[int]]:
    """The averaged weights by place and value, and the places that are learnt."""
    config = dataclasses.replace(tiny_config().model, sparse_bits=BITS, sparse_templates=STANDARD)
    seed = tiny_config().training.seed
    forms = data.column(data.train, FORM)
    found = [row for sentence in forms for row in places(config, sentence)]
    counts = Counter(at for row in found for at in row)
    members = data.bundles.table + data.bundles.starts
    weights: dict[tuple[int, int], float] = defaultdict(float)
    squares: dict[tuple[int, int], float] = defaultdict(float)
    totals: dict[tuple[int, int], float] = defaultdict(float)
    num = 0
    for epoch in range(1, epochs + 1):
        order = np.random.default_rng((seed, epoch)).permutation(len(found))
        for word in order.tolist():
            state = mixed(mixed(0, seed * epochs + epoch + 1), word)
            row = [
                at
                for number, at in enumerate(found[word])
                if counts[at] > 1 and not is_dropped(mixed(state, number), dropout)
            ]
            scores = [
                sum(weights[at, value] for at in row for value in bundle)
                for bundle in members.tolist()
            ]
            chances = np.exp(np.asarray(scores) - max(scores))
            chances /= chances.sum()
            gradients: dict[int, float] = defaultdict(float)
            for bundle, chance in zip(members.tolist(), chances.tolist(), strict=True):
                for value in bundle:
                    gradients[value] += chance
            for value in members[data.bundle_ids[data.train.words[word]]].tolist():
                gradients[value] -= 1.0
            for value, gradient in gradients.items():
                if abs(gradient) >= LEAST_GRADIENT:
                    for at in row:
                        squares[at, value] += gradient**2
                        weights[at, value] -= RATE * gradient / np.sqrt(squares[at, value] + 1e-6)
            num += 1
            for key, weight in weights.items():
                totals[key] += weight
    return {key: total / num for key, total in totals.items()}, {
        at for at, count in counts.items() if count > 1
    }


def is_dropped(state: int, dropout: float) -> bool:
    top = (state * 0x9E3779B97F4A7C15 & (1 << 64) - 1) >> 36 & (1 << 20) - 1
    return top < dropout * (1 << 20)


@pytest.mark.parametrize(("dropout", "epochs"), [(0.0, 1), (0.3, 2)])
def test_learning_is_that_of_a_dictionary(data: TaggerData, dropout: float, epochs: int) -> None:
    learner = learner_of(data, dropout, epochs)
    learner.learn_until(epochs)
    arrays = learner.arrays()
    weights, learnt = learnt_plainly(data, dropout, epochs)
    assert set(np.flatnonzero(np.unpackbits(arrays["sparse.seen"])).tolist()) == learnt
    # features whose rows overlap have their weights in common, and are left out
    rows = sorted(learnt)
    size = data.bundles.num_values
    alone = {
        at
        for before, at, after in zip([-size, *rows], rows, [*rows[1:], 1 << 30], strict=False)
        if at - before >= size and after - at >= size
    }
    assert len(alone) > 0.99 * len(rows)
    expected = {
        (at, value): SHARE * (1.0 - dropout) * weight
        for (at, value), weight in weights.items()
        if at in alone
    }
    found = [float(arrays["sparse.weight"][at + value]) for at, value in expected]
    np.testing.assert_allclose(found, list(expected.values()), rtol=2e-3, atol=1e-4)
    assert max(map(abs, found)) > 0.05


def test_epochs_do_not_depend_on_how_they_are_asked_for(data: TaggerData) -> None:
    once, twice = (learner_of(data, 0.2, 3, bits=14) for _ in range(2))
    once.learn_until(3)
    for epochs in (1, 1, 2, 5):
        twice.learn_until(epochs)
    assert once.epochs == twice.epochs == 3
    for name, array in once.arrays().items():
        np.testing.assert_array_equal(array, twice.arrays()[name])


def test_what_the_network_cannot_know_is_learnt_by_them() -> None:
    """Tags by the pair of the words beside: a network that does not learn leaves it to them."""
    pairs = [("a", "c", "X"), ("a", "d", "Y"), ("b", "c", "Y"), ("b", "d", "X")]
    sentences = []
    for first, last, tag in pairs * 6:
        sentence = bare([first, "m", last])
        for row, upos in zip(sentence.rows, ("A", tag, "C"), strict=True):
            row[3] = upos
        sentences.append(sentence)
    config = tiny_config(
        4, training__learning_rate=1e-9, learning__sparse_epochs=4, learning__dropout_sparse=0.0
    )
    data = tagger_data(sentences, sentences, config)
    task = TaggerTask(config, data)
    for epoch in range(4):
        task.start_epoch(epoch)
    assert task.validate()["dev_upos"] == 100.0


def test_a_hash_has_ten_bits_or_none() -> None:
    for settings in ({"sparse_bits": 9}, {"sparse_bits": 10, "sparse_templates": ()}):
        with pytest.raises(ConfigError, match=r"must be 0 or 10|no template is left"):
            TaggerModelConfig(**settings)  # type: ignore[arg-type]
