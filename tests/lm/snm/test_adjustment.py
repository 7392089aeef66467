"""Counting and learning against the dictionary version, and against leaving one out indeed."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from lm.snm.dictionary import EOS, Dictionary, Named, own, shared

from seqtool.lm.snm.adjustment import (
    INITIAL,
    NUM_OWN,
    NUM_SHARED,
    Room,
    Table,
    adjusted,
    arrays_of,
    find_own,
    find_shared,
    learn,
    make_room,
    make_table,
    token_gradients,
)
from seqtool.lm.snm.counts import Counts, count_features
from seqtool.lm.snm.features import Template, as_arrays, list_templates

BITS = 20
SIZE = 6
RATE = 0.1
TEMPLATES = list_templates(3, 1, 1, 1)


def text(seed: int, num: int = 6, longest: int = 5) -> list[list[int]]:
    """Sentences of the words 2 to 5."""
    draw = random.Random(seed)
    return [
        [draw.randrange(2, SIZE) for _ in range(draw.randrange(longest + 1))] for _ in range(num)
    ]


def counted(
    sentences: list[list[int]], templates: list[Template], prune: int = 0, threads: int = 1
) -> Counts:
    ids = np.array([word for sentence in sentences for word in (*sentence, EOS)], np.int32)
    return count_features(ids, as_arrays(templates), SIZE, prune=prune, threads=threads)


def names_of_pairs(counts: Counts, model: Dictionary) -> list[tuple[tuple[object, ...], int]]:
    """The feature, as the dictionary has it, and the target of each pair of the counts."""
    found: dict[int, tuple[tuple[object, ...], int]] = {}
    for row, (features, target) in zip(counts.events.tolist(), model.events, strict=True):
        by_template = {feature[0]: feature for feature in features}
        for template, pair in enumerate(row):
            if pair >= 0:
                assert found.setdefault(pair, (by_template[template], target)) == (
                    by_template[template],
                    target,
                )
    return [found[pair] for pair in range(len(counts.targets))]


def slots_of_names(counts: Counts, model: Dictionary) -> dict[tuple[object, ...], int]:
    """Where each metafeature is in a table; two in one place would be an error of this test."""
    room, mask = make_room(1), np.uint64((1 << BITS) - 1)
    slots: dict[tuple[object, ...], int] = {}

    def note(named: Named, first: int) -> None:
        for column, (name, share) in enumerate(named, first):
            assert slots.setdefault(name, int(room.slots[0, column])) == room.slots[0, column]
            assert room.shares[0, column] == np.float32(share)

    for pair, (feature, target) in enumerate(names_of_pairs(counts, model)):
        number = int(counts.features[pair])
        for count in range(max(1, model.features[feature] - 1), model.features[feature] + 1):
            find_shared(room, 0, mask, feature[0], number, target, count)
            note(shared(feature, target, count), 0)
            whole = model.pairs[feature, target]
            for pair_count in range(max(1, whole - 1), min(whole, count) + 1):
                find_own(room, 0, NUM_SHARED, mask, feature[0], number, target, count, pair_count)
                note(own(feature, target, count, pair_count), NUM_SHARED)
    assert len(set(slots.values())) == len(slots)
    return slots


def draw_weights(model: Dictionary, table: Table, slots: dict[tuple[object, ...], int]) -> None:
    generator = np.random.default_rng(5)
    for name, slot in slots.items():
        weight = np.float32(generator.normal(scale=0.5))
        model.weights[name] = float(weight)
        table.weights[slot, 0] = weight
    model.unseen[0] = table.unseen[0] = 0.25


def total(counts: Counts, table: Table, prune: int) -> tuple[float, dict[int, float], float]:
    """The loss of a text, its gradient of each slot, and that of A_0."""
    num_templates = counts.events.shape[1]
    room, gradients = make_room(num_templates), np.zeros((num_templates + 1, 3))
    loss, of_slots, of_unseen = 0.0, dict[int, float](), 0.0
    middle, end = NUM_SHARED + NUM_OWN, NUM_SHARED + 2 * NUM_OWN
    for token in range(len(counts.events)):
        given = (arrays_of(counts), counts.events, token, SIZE, prune, table, room, gradients)
        loss += token_gradients(*given)
        for k in range(num_templates):
            for part, columns in enumerate(
                (range(NUM_SHARED), range(NUM_SHARED, middle), range(middle, end))
            ):
                for column in columns if gradients[k, part] else ():
                    slot = int(room.slots[k, column])
                    step = gradients[k, part] * room.shares[k, column]
                    of_slots[slot] = of_slots.get(slot, 0.0) + step
        of_unseen += gradients[num_templates, 0]
    return loss, of_slots, of_unseen


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("prune", [0, 1])
def test_counts_are_those_of_dictionaries(prune: int, threads: int) -> None:
    templates = list_templates(4, 2, 2, 1)
    sentences = text(1, num=30, longest=9)
    counts, model = (
        counted(sentences, templates, prune, threads),
        Dictionary(sentences, SIZE, templates),
    )
    pairs = names_of_pairs(counts, model)
    kept = {key for key in model.pairs if model.features[key[0]] > (prune if key[0][1] else 0)}
    assert len(pairs) == len(kept)
    assert set(pairs) == kept
    for number, (feature, target) in enumerate(pairs):
        assert counts.targets[number] == target
        assert counts.counts[number] == model.pairs[feature, target]
        assert counts.feature_counts[counts.features[number]] == model.features[feature]
        row = counts.features[number]
        assert counts.begins[row] <= number < counts.begins[row + 1]
        assert counts.first[feature[0]] <= row < counts.first[feature[0] + 1]
    order = counts.targets[:-1] < counts.targets[1:]
    assert (order | (np.diff(counts.features) > 0)).all()
    for first, last in zip(counts.first[:-1], counts.first[1:], strict=True):
        assert (np.diff(counts.keys[first:last].astype(object)) > 0).all()


@pytest.mark.parametrize("prune", [0, 1])
def test_the_loss_is_that_of_leaving_each_token_out(prune: int) -> None:
    sentences = text(2)
    counts, model = (
        counted(sentences, TEMPLATES, prune),
        Dictionary(sentences, SIZE, TEMPLATES, prune),
    )
    table = make_table(BITS, len(TEMPLATES))
    draw_weights(model, table, slots_of_names(counts, model))
    assert total(counts, table, prune)[0] == pytest.approx(model.loss(), rel=1e-7)


def test_gradients_are_those_of_the_loss() -> None:
    sentences = text(3, num=4, longest=4)
    counts, model = counted(sentences, TEMPLATES), Dictionary(sentences, SIZE, TEMPLATES)
    table = make_table(BITS, len(TEMPLATES))
    slots = slots_of_names(counts, model)
    draw_weights(model, table, slots)
    _, of_slots, of_unseen = total(counts, table, prune=0)
    step = 1e-4

    def slope(weights: dict[tuple[object, ...], float], name: tuple[object, ...]) -> float:
        before = weights[name]
        weights[name] = before + step
        above = model.loss()
        weights[name] = before - step
        below = model.loss()
        weights[name] = before
        return (above - below) / (2 * step)

    for name in random.Random(1).sample(sorted(slots, key=str), 25):
        assert slope(model.weights, name) == pytest.approx(
            of_slots.get(slots[name], 0.0), rel=1e-5, abs=1e-6
        )
    model.unseen[0] += step
    above = model.loss()
    model.unseen[0] -= 2 * step
    assert (above - model.loss()) / (2 * step) == pytest.approx(of_unseen, rel=1e-6)


@pytest.mark.parametrize("prune", [0, 1])
def test_learning_is_that_of_dictionaries(prune: int) -> None:
    sentences = text(4, num=12, longest=8)
    counts, model = (
        counted(sentences, TEMPLATES, prune),
        Dictionary(sentences, SIZE, TEMPLATES, prune),
    )
    slots = slots_of_names(counts, model)
    table, room = make_table(BITS, len(TEMPLATES)), make_room(len(TEMPLATES))
    num = len(counts.events)
    for begin, end in ((0, num // 2), (num // 2, num), (0, num)):
        learn(arrays_of(counts), counts.events, begin, end, SIZE, prune, RATE, table, room)
    for _ in range(2):
        model.learn(RATE, INITIAL)
    for name, slot in slots.items():
        assert table.weights[slot, 0] == pytest.approx(model.weights[name], rel=1e-5, abs=1e-7)
        assert table.weights[slot, 1] == pytest.approx(model.squares[name], rel=1e-5, abs=1e-7)
    np.testing.assert_allclose(table.unseen, model.unseen, rtol=1e-6)
    assert np.count_nonzero(table.weights[:, 1]) == sum(map(bool, model.squares.values()))
    matrix = adjusted(counts, table)
    for pair, (feature, target) in enumerate(names_of_pairs(counts, model)):
        wanted = model.element(feature, target, model.features, model.pairs)
        assert matrix[pair] == pytest.approx(wanted, rel=2e-6)


def test_the_loss_falls_and_the_matrix_does_not_depend_on_threads() -> None:
    sentences = text(5, num=200, longest=9)
    templates = list_templates(4, 2, 2, 1)
    counts = counted(sentences, templates)
    table, room = make_table(BITS, len(templates)), make_room(len(templates))
    given = (arrays_of(counts), counts.events, 0, len(counts.events), SIZE, 0, RATE, table, room)
    losses = [learn(*given) for _ in range(4)]
    assert losses == sorted(losses, reverse=True)
    assert math.isfinite(losses[-1])
    assert (adjusted(counts, table) == adjusted(counts, table, threads=3)).all()


def test_a_full_table_shares_its_places() -> None:
    """Every hash falls into a table of 256 places, and what is learnt stays sound."""
    sentences = text(6, num=50, longest=9)
    counts = counted(sentences, TEMPLATES)
    table, room = make_table(8, len(TEMPLATES)), make_room(len(TEMPLATES))
    assert isinstance(room, Room)
    given = (arrays_of(counts), counts.events, 0, len(counts.events), SIZE, 0, RATE, table, room)
    losses = [learn(*given) for _ in range(3)]
    assert losses[-1] < losses[0]
    assert np.isfinite(table.weights).all()
    assert (adjusted(counts, table) > 0).all()
