"""Derivations: of the trees that parsers give, by the textbook, with its probabilities."""

from __future__ import annotations

import math

import numpy as np
import pytest
from parsing.parser.random_scores import beams_of, legal_log_probs, legal_transitions, random_scores
from parsing.parser.references import initial, legal
from parsing.parser.tiny import LABELS, make_sentence, random_parser, random_sentences, tiny_config

from seqtool.core.errors import ModelError
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.transition import trace
from seqtool.parsing.parser.transition.transitions import SYSTEMS, Configurations
from seqtool.treebank.derivation import Arc, Derivation, Feature, Trace
from seqtool.treebank.projectivity import LIFTED
from seqtool.treebank.sentence import DEPREL

ALL = list(SYSTEMS)
ONE = np.ones(1, np.int32)
TEMPERATURE = 1.5


def derived(system: str, length: int, beam: int = 1, *, margin: float = math.inf) -> Derivation:
    """The derivation of a sentence by random scores."""
    beams = beams_of(system, [length], beam, margin=margin, temperature=TEMPERATURE)
    return trace.derivation(system, beams, random_scores, lambda configurations: (), 1, length)


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("encoder", ["none", "bilstm"])
@pytest.mark.parametrize("system", ALL)
def test_the_tree_is_the_one_that_is_parsed(system: str, encoder: str, beam: int) -> None:
    parser = random_parser(tiny_config(system, encoder=encoder, encoder_size=4, context_units=3))
    sentences = random_sentences(25, 11)
    parsed = [sentence.copy() for sentence in sentences]
    parser.parse(parsed, beam=beam)
    traces = list(parser.traces([sentence.copy() for sentence in sentences], beam=beam))
    assert [found.sentence for found in traces if isinstance(found, Trace)] == parsed
    ranked = parser.ranked(parser.encode(sentences), 1, beam=beam)
    for found, (tree,) in zip(traces, ranked, strict=True):
        assert isinstance(found, Trace)
        assert [arc.head for arc in found.derivation.arcs] == tree.heads
        # the search approximates the logarithm of each sum to 0.0001
        assert found.derivation.score == pytest.approx(tree.score, abs=0.0002 * 22)


@pytest.mark.parametrize("beam", [1, 5])
@pytest.mark.parametrize("system", ALL)
def test_steps_are_those_of_the_textbook(system: str, beam: int) -> None:
    """Each step's transition leads to the next one's stack and buffer, and to the arcs."""
    length = 5
    found = derived(system, length, beam)
    batch = Configurations(system, LABELS, 1, length)
    batch.begin(0, 1, length)
    here = initial(length)
    score = 0.0
    names = {trace.transition_name(system, LABELS, t): t for t in range(LABELS.num_transitions)}
    for step in found.steps:
        assert (step.stack, step.buffer) == (here.stack, here.buffer)
        possible = legal_transitions(batch, 0)
        log_probs = legal_log_probs(batch, 0, TEMPERATURE)
        taken = names[step.transition]
        assert taken in possible
        assert (step.round is None) == (len(possible) == 1)
        if step.round is None:
            assert (step.probability, step.others) == (1.0, ())
        else:
            assert step.probability == pytest.approx(math.exp(log_probs[taken]), rel=1e-6)
            others = {names[choice.transition] for choice in step.others}
            assert others <= {*possible} - {taken}
            assert len(others) == min(trace.NUM_OTHERS, len(possible) - 1)
            shares = [choice.probability for choice in step.others]
            assert shares == sorted(shares, reverse=True)
            score += log_probs[taken]
        batch.take(0, taken)
        here = legal(system, here)[LABELS.action_of(taken)[0]]
        if step.arc is not None:
            assert here.heads[step.arc.word - 1] == step.arc.head
    assert found.score == pytest.approx(score, abs=1e-6)
    assert here.heads == tuple(arc.head for arc in found.arcs)
    assert sum(step.arc is not None for step in found.steps) == length
    assert {step.arc for step in found.steps} - {None} == set(found.arcs)


@pytest.mark.parametrize("system", ALL)
def test_taking_transitions_one_by_one_is_what_a_search_does(system: str) -> None:
    """`advance` takes one, and then all that leave no choice."""
    one_by_one, at_once = (Configurations(system, LABELS, 1, 7) for _ in range(2))
    first = np.zeros(1, np.int32)
    one_by_one.begin(0, 1, 7)
    at_once.start(first, ONE, np.asarray([7], np.int32))
    generator = np.random.default_rng(0)
    while possible := legal_transitions(one_by_one, 0):
        transition = int(generator.choice(possible))
        if len(possible) > 1:
            np.testing.assert_array_equal(one_by_one.configs, at_once.configs)
            np.testing.assert_array_equal(one_by_one.nodes, at_once.nodes)
            at_once.advance(first, np.asarray([transition], np.int32))
        one_by_one.take(0, transition)
    np.testing.assert_array_equal(one_by_one.nodes, at_once.nodes)


@pytest.mark.parametrize("beam", [2, 6])
def test_rounds_are_the_hypotheses_of_the_beam(beam: int) -> None:
    found = derived("arc-hybrid", 6, beam, margin=3.0)
    steps = [step for step in found.steps if step.round is not None]
    assert [step.round for step in steps] == list(range(len(steps)))
    assert [hypothesis.score for hypothesis in found.rounds[0]] == [0.0]
    for number, (hypotheses, following) in enumerate(
        zip(found.rounds, [*found.rounds[1:], ()], strict=True)
    ):
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert len(scores) <= beam
        assert scores == sorted(scores, reverse=True)
        # approximated sums may let one stay that is a little farther behind
        assert max(scores) - min(scores) <= 3.0 + 0.001 * number
        assert sum(hypothesis.is_on_path for hypothesis in hypotheses) == 1
        parents = {hypothesis.parent for hypothesis in following}
        for place, hypothesis in enumerate(hypotheses):
            if following:
                assert hypothesis.survives == (place in parents)
            else:
                assert hypothesis.is_final
                assert hypothesis.survives == hypothesis.is_on_path == (place == 0)
        (way,) = [hypothesis for hypothesis in hypotheses if hypothesis.is_on_path]
        if number < len(steps):
            step = steps[number]
            assert way.top == step.stack[-3:]
            assert way.front == (step.buffer[0] if step.buffer else None)
            if number:
                assert way.transition == steps[number - 1].transition
    gains = [math.log(step.probability) for step in steps]
    assert found.score == pytest.approx(sum(gains), abs=1e-9)
    assert found.score == found.rounds[-1][0].score


def test_a_sentence_without_choices_has_no_rounds() -> None:
    found = derived("arc-standard", 1, 4)
    assert [step.transition for step in found.steps] == ["SHIFT", "RIGHT-ARC root"]
    assert (found.rounds, found.score) == ((), 0.0)
    assert found.arcs == (Arc(0, 1, "root"),)


def test_features_by_hand() -> None:
    """The configuration before word 3 is shifted: `a` is a child of `B`, which is on the stack."""
    batch = Configurations("arc-standard", LABELS, 1, 3)
    batch.begin(0, 5, 3)
    for transition in (0, 0, 2):  # SHIFT, SHIFT, LEFT-ARC nsubj
        batch.take(0, transition)
    slots = ["s0", "s1", "s0.l1", "b0", "b1", "s0.prev"]
    measures = ["s1-s0", "s0.lefts", "s0-b0"]
    assert trace.slot_features(slots, ["s0.l1", "s0.r1"], measures)(batch) == (
        *(
            Feature(slot, "word", "", word)
            for slot, word in zip(slots, (2, 0, 1, 3, None, 1), strict=True)
        ),
        Feature("s0.l1", "label", "nsubj", None),
        Feature("s0.r1", "label", "", None),
        *(
            Feature(name, "measure", value, None)
            for name, value in zip(measures, "211", strict=True)
        ),
    )


def test_lifted_arcs_are_told_as_they_were_built_and_as_they_are() -> None:
    labels = Labels(("nsubj", "obj", f"nsubj{LIFTED}obj", f"obj{LIFTED}nsubj"), ("root",))
    parser = random_parser(tiny_config(), labels, seed=3)
    sentences = random_sentences(30, 9, seed=5)
    parsed = [sentence.copy() for sentence in sentences]
    parser.parse(parsed)
    num_moved = 0
    for found, expected in zip(parser.traces(sentences), parsed, strict=True):
        assert isinstance(found, Trace)
        assert found.sentence == expected
        marked = [arc for arc in found.derivation.arcs if LIFTED in arc.label]
        assert [built for built, _ in found.put_back] == marked
        for built, put in found.put_back:
            assert put == Arc(
                expected.heads()[built.word - 1],
                built.word,
                expected.column(DEPREL)[built.word - 1],
            )
            num_moved += built.head != put.head
    assert num_moved > 5


@pytest.mark.parametrize("beam", [1, 3])
def test_a_linear_parser_is_traced_by_the_places_of_its_templates(beam: int) -> None:
    templates = ("s0.form s1.upos", "s0.l1.label", "s0.lefts b0.upos", "s1-s0 s0.form")
    parser = random_parser(tiny_config(classifier="linear", templates=templates, hash_bits=10))
    sentences = random_sentences(15, 9)
    parsed = [sentence.copy() for sentence in sentences]
    parser.parse(parsed, beam=beam)
    traces = [found for found in parser.traces(sentences, beam=beam) if isinstance(found, Trace)]
    assert [found.sentence for found in traces] == parsed
    seen = {
        tuple((feature.place, feature.kind) for feature in step.features)
        for found in traces
        for step in found.derivation.steps
        if step.round is not None
    }
    assert seen == {
        (
            *(("s0", "word"), ("s1", "word"), ("b0", "word")),
            *(("s0.l1", "label"), ("s0.lefts", "measure"), ("s1-s0", "measure")),
        )
    }


def test_a_graph_based_parser_has_no_derivation() -> None:
    parser = random_parser(tiny_config(decoder="graph", encoder="bilstm"))
    with pytest.raises(ModelError, match="no transitions build it") as caught:
        parser.trace(make_sentence([("a", "X"), ("B", "Y")]))
    assert "--scores" in (caught.value.hint or "")
