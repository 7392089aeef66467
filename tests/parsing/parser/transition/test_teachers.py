"""What teachers tell of transitions: against a softmax, their own numbering, and the loss."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsing.parser.test_train import config
from parsing.parser.tiny import LABELS, random_parser, random_sentences, tiny_config, write_treebank

from seqtool.core.arrays import Floats
from seqtool.parsing.encoding.features import TokenArrays, Types, encode
from seqtool.parsing.parser.data import Teacher, TrainingData, prepare_data
from seqtool.parsing.parser.distillation import teachers_of
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.transition.classifier import Classifier
from seqtool.parsing.parser.transition.task import ParserTask
from seqtool.parsing.parser.transition.task import probabilities_of as shares
from seqtool.parsing.parser.transition.transitions import NUM_ACTIONS, SYSTEMS, Configurations

# the student's labels: those of the teacher in another order, and one that it does not know
OTHERS = Labels(("det", "obj↑det", "nsubj", "obj"), ("root",))


@given(
    st.lists(
        st.tuples(
            st.integers(1, (1 << NUM_ACTIONS) - 1),
            st.lists(st.floats(-30, 30) | st.just(-np.inf), min_size=9, max_size=9),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_shares_are_a_softmax_over_what_is_legal(rows: list[tuple[int, list[float]]]) -> None:
    legal = np.asarray([mask for mask, _ in rows], np.uint8)
    found = shares(np.asarray([own for _, own in rows], np.float32), legal, LABELS.segments)
    for (mask, scores), row in zip(rows, found.tolist(), strict=True):
        raised = [
            np.exp(np.float32(score).astype(float)) if mask >> LABELS.action_of(place)[0] & 1 else 0
            for place, score in enumerate(scores)
        ]
        total = sum(raised) or 1.0
        assert row == pytest.approx([each / total for each in raised], abs=1e-6)


@pytest.mark.parametrize("system", list(SYSTEMS))
@pytest.mark.parametrize("encoder", ["none", "bilstm"])
def test_a_teacher_tells_what_it_thinks_in_its_own_numbers(system: str, encoder: str) -> None:
    sizes = {"encoder_size": 4, "encoder_layers": 1, "context_units": 3}
    settings = tiny_config(system, encoder=encoder, **(sizes if encoder == "bilstm" else {}))
    own = random_parser(settings, seed=3)
    # a student of other words, which reads more
    student = random_parser(tiny_config(system), OTHERS)
    types = Types(student.types.lexical, student.types.tags)
    sentences = random_sentences(40, 8)
    arrays = encode(sentences, types)
    (teacher,) = teachers_of([own], student.config, types, OTHERS)
    told = scorer_of(teacher.config, teacher.weights, teacher.symbols, arrays)
    own_arrays = own.encode(sentences)
    thought = scorer_of(own.config.model, own.weights, own.types.arrays(), own_arrays)
    numbers = [OTHERS.names.index(name) for name in LABELS.names]
    transitions = [OTHERS.names.index(name) for name in LABELS.arcs]
    # of each of the teacher's transitions, the student's
    same = [0, 1, *(2 + t for t in transitions), *(6 + t for t in transitions), 10]
    assert numbers[-1] == len(OTHERS.arcs)
    chooser = np.random.default_rng(1)
    two = [Configurations(system, labels, len(sentences), 8) for labels in (OTHERS, LABELS)]
    which = np.arange(len(sentences), dtype=np.int32)
    for each, read in zip(two, (arrays, own_arrays), strict=True):
        each.start(which, read.tokens, read.lengths)
    num_compared = 0
    while len(which := two[0].unfinished(which)):
        legal = two[0].legal(which)
        assert np.array_equal(legal, two[1].legal(which))
        scores = np.empty((len(which), OTHERS.num_transitions), np.float32)
        expected = np.empty((len(which), LABELS.num_transitions), np.float32)
        told(two[0], which, scores)
        thought(two[1], which, expected)
        found = shares(scores, legal, OTHERS.segments)
        # sums of another order
        wanted = shares(expected, legal, LABELS.segments)
        np.testing.assert_allclose(found[:, same], wanted, rtol=1e-5, atol=1e-7)
        assert found.sum(axis=1) == pytest.approx(1.0, abs=1e-5)
        # any transition that is legal, in both numberings
        drawn = (found[:, same] > 0) * chooser.random(expected.shape)
        chosen = drawn.argmax(axis=1)
        two[1].advance(which, chosen.astype(np.int32))
        two[0].advance(which, np.asarray(same, np.int32)[chosen])
        num_compared += len(which)
    assert num_compared > 100


def scorer_of(
    settings: Any, weights: Mapping[str, Floats], symbols: Any, arrays: TokenArrays
) -> Any:
    classifier = Classifier(settings, weights, reserved=0)
    classifier.products.extend(*symbols)
    return classifier.scorer(arrays.types, classifier.in_context(arrays))


def test_only_parsers_of_the_same_transitions_are_asked() -> None:
    student = tiny_config()
    graph = {"encoder": "bilstm", "encoder_size": 4, "encoder_layers": 1}
    asked, *others = (
        random_parser(tiny_config(), seed=1),
        random_parser(tiny_config("arc-eager")),
        random_parser(tiny_config("auto", decoder="graph", trees="all", **graph)),
        random_parser(tiny_config(classifier="linear", hash_bits=10, templates=["s0.upos"])),
    )
    read = random_parser(tiny_config(fields=["form", "upos"]))
    globally = random_parser(
        dataclasses.replace(student, learning=dataclasses.replace(student.learning, loss="global"))
    )
    types = asked.types
    assert len(teachers_of([asked, *others, globally], student, types, LABELS)) == 1
    assert len(teachers_of([asked.ensemble([asked.copy()])], student, types, LABELS)) == 2
    assert teachers_of([asked], others[1].config, types, LABELS) == ()
    # one that reads fewer columns can be asked, one that reads more cannot
    assert len(teachers_of([read], student, types, LABELS)) == 1
    assert teachers_of([asked], student, read.types, LABELS) == ()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    """A treebank, and a teacher whose weights are those with which the student begins."""
    path = write_treebank(tmp_path_factory.mktemp("teachers") / "train.conllu", 40)
    dropouts = {f"learning__dropout_{name}": 0 for name in ("hidden", "embeddings", "types")}
    settings = config(**dropouts, learning__dropout_words=0, learning__averaging=0)
    data = prepare_data([str(path)], None, settings)
    model = ParserTask(data.config, data).model()
    teacher = Teacher(data.config.model, model.weights, data.types.arrays())
    return dataclasses.replace(data, teachers=(teacher,))


def task_of(data: TrainingData, weight: float) -> ParserTask:
    learning = dataclasses.replace(data.config.learning, teacher_weight=weight)
    task = ParserTask(dataclasses.replace(data.config, learning=learning), data)
    task.start_epoch(0)
    return task


def test_who_thinks_as_the_teacher_has_nothing_to_learn(data: TrainingData) -> None:
    gradients = []
    for weight in (0.0, 1.0):
        task = task_of(data, weight)
        task.loss(0)[0].backward()
        gradients.append(float(task.module.output.weight.grad.abs().max()))
    # at parsing time, products are rounded to steps of 1 / SCALE
    assert gradients[1] < 2e-3 * gradients[0]


def test_the_loss_is_by_weight(data: TrainingData) -> None:
    """Between that of the gold transitions and the cross-entropy, here the teacher's entropy."""
    losses = {weight: task_of(data, weight).loss(0)[0].item() for weight in (0.0, 0.25, 1.0)}
    assert losses[0.25] == pytest.approx(0.75 * losses[0.0] + 0.25 * losses[1.0], rel=1e-6)
    task = task_of(data, 1.0)
    task.loss(0)
    assert task._examples is not None
    told = task._examples.shares[task._batches[0]].astype(np.float64)
    entropy = -np.where(told > 0, told * np.log(np.maximum(told, 1e-300)), 0.0).sum(axis=1).mean()
    assert losses[1.0] == pytest.approx(entropy, abs=1e-4)
