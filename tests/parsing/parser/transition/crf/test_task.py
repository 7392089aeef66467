"""Global training: its loss by all derivations and by hand, runs of two stages, their parsers."""

from __future__ import annotations

import math
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from parsing.parser import test_train
from parsing.parser.random_scores import Key, Steps, beams_of, derivations, position, random_scores
from parsing.parser.test_train import assert_same_weights, trained
from parsing.parser.tiny import LABELS, random_parser, random_sentences, tiny_config, write_treebank

from seqtool.core import checkpoint
from seqtool.core.arrays import Bytes, Floats, Ints
from seqtool.core.config import from_dict
from seqtool.core.errors import ConfigError, Interrupted, ModelError
from seqtool.core.progress import EpochDone, Event
from seqtool.parsing.parser.calibration import TEMPERATURE
from seqtool.parsing.parser.config import ParserConfig
from seqtool.parsing.parser.parser import Parser
from seqtool.parsing.parser.train import train_parser
from seqtool.parsing.parser.transition.crf.task import Choices, Derivations, derive, losses
from seqtool.parsing.parser.transition.oracles import Oracle
from seqtool.parsing.parser.transition.transitions import (
    ROOT,
    SHIFT,
    SYSTEMS,
    UNATTACHED,
    Configurations,
)
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.evaluation import evaluate_parser


def config(epochs: int = 2, **rest: Any) -> ParserConfig:
    """Settings of a small parser: three epochs of local training, and some of global training."""
    settings = {"loss": "global", "global_beam": 3, "global_words": 64, "min_steps": 10}
    settings = {f"learning__{name}": value for name, value in settings.items()}
    settings |= {"training__learning_rate": 0.03, "learning__global_epochs": epochs}
    return test_train.config(3, **settings | rest)


LOCAL = config(learning__loss="local")  # the same classifier, trained locally only


def epochs_of(folder: Path, output: Path, settings: ParserConfig, **rest: Any) -> list[EpochDone]:
    events: list[Event] = []
    trained(folder, output, settings, on_event=events.append, **rest)
    return [event for event in events if isinstance(event, EpochDone)]


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_rule_is_learnt(system: str, treebank: Path, tmp_path: Path) -> None:
    # by the whole network in each epoch, so that their losses can be compared
    dropouts = {"learning__dropout_hidden": 0.0, "learning__dropout_embeddings": 0.0}
    epochs = epochs_of(treebank, tmp_path / "p", config(model__system=system, **dropouts))
    assert [epoch.items for epoch in epochs] == ["configurations"] * 3 + ["sentences"] * 2
    assert epochs[-1].scores["dev_las"] == 100.0
    assert epochs[-1].loss < epochs[-2].loss


def test_a_resumed_run_ends_with_the_same_weights(treebank: Path, tmp_path: Path) -> None:
    sizes = {"encoder_size": 6, "encoder_layers": 1, "context_units": 8}
    model = {f"model__{name}": size for name, size in sizes.items()}
    settings = config(model__encoder="bilstm", **model)
    epochs = epochs_of(treebank, tmp_path / "whole", settings)
    assert epochs[3].loss > epochs[4].loss
    # amid the first stage, at the end of its last epoch, and amid an epoch of the second stage
    for stop_at in (5, epochs[2].step, epochs[3].step + 2):
        with pytest.raises(Interrupted, match=f"step {stop_at}"):
            trained(
                treebank,
                tmp_path / "parts",
                settings,
                should_stop=lambda step, at=stop_at: step == at,  # type: ignore[misc]
                force=True,
            )
        train_parser(None, tmp_path / "parts", resume=True, device="cpu")
        assert_same_weights(tmp_path / "whole", tmp_path / "parts")


def of_loss(loss: str, seed: int = 0) -> Any:
    values = {"model": vars(tiny_config().model), "learning": {"loss": loss}}
    return random_parser(from_dict(ParserConfig, values), seed=seed)


def test_no_temperature_is_needed_after_global_training() -> None:
    sentences = random_sentences(40, 9)

    def ranked(parser: Any) -> list[float]:
        found = parser.ranked(parser.encode(sentences), 3, beam=8)
        return [tree.score for trees in found for tree in trees]

    local, globally = of_loss("local"), of_loss("global")
    assert ranked(local) != ranked(globally)
    # it is in the weights
    divided = {
        name: weight / np.float32(TEMPERATURE) if name.startswith("output.") else weight
        for name, weight in globally.weights.items()
    }
    globally = Parser(globally.config, globally.types, globally.labels, divided)
    assert ranked(globally) == pytest.approx(ranked(local), abs=1e-4)


def test_ensembles_are_of_one_kind() -> None:
    sentences = random_sentences(20, 7)
    one, other = of_loss("global"), of_loss("global", seed=1)
    together = one.ensemble([other])
    trees = [list(p.trees(p.encode(sentences), beam=3)) for p in (one, other, together)]
    assert trees[2] not in trees[:2]
    twice = one.ensemble([one])
    assert list(twice.trees(twice.encode(sentences), beam=3)) == trees[0]
    with pytest.raises(ModelError, match="cannot parse together"):
        one.ensemble([of_loss("local")])


def test_training_begins_from_a_parser(treebank: Path, tmp_path: Path) -> None:
    init = tmp_path / "local"
    trained(treebank, init, LOCAL)
    # nothing is moved, so that the parser stays what it begins from
    still = config(1, learning__global_rate=1e-12)
    epochs = epochs_of(treebank, tmp_path / "still", still, init=init)
    assert [epoch.items for epoch in epochs] == ["sentences"]
    before, after = (checkpoint.load(tmp_path / name) for name in ("local", "still"))
    assert after.config.learning.loss == "global"
    sentences = list(read_conllu(treebank / "dev.conllu"))
    found = [list(p.trees(p.encode(sentences))) for p in (before, after)]
    assert found[0] == found[1]
    assert checkpoint.read_header(tmp_path / "still").data["initial"] == "local"
    with pytest.raises(ModelError, match="trained globally before"):
        trained(treebank, tmp_path / "again", config(), init=tmp_path / "still")
    # a run that saved nothing yet begins from the parser again; another one needs it no more
    trained(treebank, tmp_path / "whole", config(), init=init)
    for name, step in (("killed", 1), ("parts", 3)):
        stop = {"should_stop": lambda done, step=step: done == step}
        with pytest.raises(Interrupted):
            trained(treebank, tmp_path / name, config(), init=init, **stop)
        shutil.rmtree(tmp_path / "killed/last" if name == "killed" else init)
        train_parser(None, tmp_path / name, resume=True, device="cpu")
        assert_same_weights(tmp_path / "whole", tmp_path / name)


def test_what_training_cannot_begin_from(treebank: Path, tmp_path: Path) -> None:
    init, output = tmp_path / "local", tmp_path / "p"
    trained(treebank, init, LOCAL)
    write_treebank(tmp_path / "train.conllu", 20, seed=5)
    shutil.copy(treebank / "dev.conllu", tmp_path)
    for folder, settings, begin, message in (
        (treebank, LOCAL, init, "the loss is local"),
        (treebank, config(model__hidden_size=32), init, "other settings"),
        (tmp_path, config(), init, "other words, tags or labels"),
        (treebank, config(), tmp_path / "nothing", "no such model"),
    ):
        with pytest.raises((ConfigError, ModelError), match=message):
            trained(folder, output, settings, init=begin)
    assert not output.exists()
    with pytest.raises(ConfigError, match="would replace"):
        trained(treebank, init, config(), init=init, force=True)


def test_scores_are_those_of_the_parser_that_is_kept_where_global_training_spoils_it(
    treebank: Path, tmp_path: Path
) -> None:
    epochs = epochs_of(treebank, tmp_path / "p", config(1, learning__global_rate=3.0))
    best = max(epochs, key=lambda epoch: epoch.scores["dev_las"])
    assert best.items != "sentences"  # of local training
    header = checkpoint.read_header(tmp_path / "p")
    beam = header.data["validated_with_beam"]
    assert beam == 3
    found = list(read_conllu(treebank / "dev.conllu"))
    checkpoint.load(tmp_path / "p").parse(found, beam=beam)
    scores = evaluate_parser(treebank / "dev.conllu", found).scores
    assert scores["LAS"].f1 == pytest.approx(header.scores["dev_las"])
    assert f"--beam {beam}" in (tmp_path / "p" / "README.md").read_text()


# two sentences behind NONE's row: of three words, and of two
HEADS = np.asarray([-1, -1, 2, 0, 2, -1, 0, 1], np.int32)
LABEL_IDS = np.asarray([-1, -1, 2, 3, 1, -1, 3, 0], np.int32)
TOKENS, LENGTHS = np.asarray([1, 5], np.int32), np.asarray([3, 2], np.int32)


def oracle_of(system: str) -> Oracle:
    return Oracle(system, LABELS, HEADS, LABEL_IDS, TOKENS, LENGTHS)


class Observed:
    """The configurations of a search, and their scores in float64, of which gradients are taken."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self.scores: list[Floats] = []

    def __call__(
        self, configurations: Configurations, which: Ints, masks: Bytes, scores: Floats
    ) -> None:
        self.keys += [position(configurations, row) for row in which]
        self.scores += list(scores.copy())

    def of(self, derivations: Derivations) -> tuple[list[Key], torch.Tensor]:
        numbers = derivations.configurations.tolist()
        scores = np.asarray([self.scores[number] for number in numbers], np.float64)
        scores = scores.reshape(len(numbers), LABELS.num_transitions)
        return [self.keys[number] for number in numbers], torch.tensor(scores, requires_grad=True)


def correct(oracle: Oracle, *, canonical: bool = False) -> Choices:
    """What leads on to the gold tree: all that does, or one way where the oracle knows no more."""
    if oracle.system.dynamic and not canonical:
        return oracle.free
    return lambda configurations, which, legal: oracle.transitions(configurations, which)[:, None]


def searched(
    system: str, beam: int, scorer: Callable[..., None], *, canonical: bool = False
) -> tuple[Derivations, Observed]:
    observed = Observed()
    choices = correct(oracle_of(system), canonical=canonical)
    beams = beams_of(system, LENGTHS, beam, normalised=False)
    return derive(beams, TOKENS, LENGTHS, scorer, choices, observed), observed


def enumerated(
    system: str, place: int, *, canonical: bool
) -> tuple[float, dict[tuple[Key, int], float], int]:
    """The loss of a sentence and its gradient, by all derivations; how many of these are correct.

    A derivation is correct if its tree is the gold one; `canonical` if it is the static oracle's.
    """
    length, token = int(LENGTHS[place]), int(TOKENS[place])
    words = slice(token + 1, token + 1 + length)
    gold_tree = tuple(HEADS[words].tolist()), tuple(LABEL_IDS[words].tolist())
    found = [
        (score, steps, tree == gold_tree)
        for tree, score, steps in derivations(system, length, token=token, normalised=False)
    ]
    batch, oracle = Configurations(system, LABELS, 1, length), oracle_of(system)
    zero, place_ = np.zeros(1, np.int32), slice(place, place + 1)
    gold: Steps = []
    batch.start(zero, TOKENS[place_], LENGTHS[place_])
    while batch.configs[0, UNATTACHED]:
        transition = int(oracle.transitions(batch, zero)[0])
        gold.append((position(batch, 0), transition))
        batch.advance(zero, np.asarray([transition], np.int32))
    if canonical:
        found = [(score, steps, steps == gold) for score, steps, _ in found]
    highest = max(score for score, _, _ in found)
    total = sum(math.exp(score - highest) for score, _, _ in found)
    right = sum(math.exp(score - highest) for score, _, is_gold in found if is_gold)
    gradient: dict[tuple[Key, int], float] = defaultdict(float)
    for score, steps, is_gold in found:
        for step in steps:
            gradient[step] += math.exp(score - highest) * (1 / total - is_gold / right)
    return math.log(total) - math.log(right), gradient, sum(is_gold for _, _, is_gold in found)


@pytest.mark.parametrize("canonical", [False, True])
@pytest.mark.parametrize("system", list(SYSTEMS))
def test_a_beam_of_all_derivations(system: str, canonical: bool) -> None:
    # swap's oracle is static: of a tree it knows one derivation
    canonical = canonical or system == "swap"
    derivations, observed = searched(system, 4096, random_scores, canonical=canonical)
    keys, scores = observed.of(derivations)
    found = losses(scores, derivations)
    found.sum().backward()
    assert scores.grad is not None
    expected: dict[tuple[Key, int], float] = {}
    for place in (0, 1):
        loss, gradient, num_correct = enumerated(system, place, canonical=canonical)
        assert found[place].item() == pytest.approx(loss, abs=1e-9)
        expected |= gradient
        assert derivations.is_gold[derivations.sentences == place].sum() == num_correct
    # swap comes to one configuration in several ways, each with a number of its own
    here: dict[tuple[Key, int], float] = defaultdict(float)
    for key, row in zip(keys, scores.grad.tolist(), strict=True):
        for transition, value in enumerate(row):
            here[key, transition] += value
    for step in expected.keys() | here.keys():
        assert here.get(step, 0.0) == pytest.approx(expected.get(step, 0.0), abs=1e-9)


def test_the_gradient_is_that_of_the_loss() -> None:
    derivations, observed = searched("arc-hybrid", 3, random_scores)
    _, scores = observed.of(derivations)
    assert torch.autograd.gradcheck(lambda values: losses(values, derivations), scores)


def test_an_early_update_by_hand() -> None:
    # arc-standard: both sentences begin with two words on the stack, as nothing else is legal.
    # In the first one, 2 -> 1 by LEFT with label 2 is the first gold choice, then SHIFT is forced,
    # and RIGHT with label 1 is the second and last one, but for the only arc from ROOT.
    # In the second one, RIGHT with label 0 is the only choice.
    left, right = 2 + 2, 2 + 3 + 1

    def scorer(batch: Configurations, which: Ints, scores: Any) -> None:
        scores[:] = -100.0
        for place, row in enumerate(which):
            if batch.configs[row, 1] == TOKENS[1]:
                scores[place, 2 + 3 + 0] = 1.0
                scores[place, 2] = 2.0
            elif batch.nodes[batch.configs[row, 0] + 1, 0] < 0:  # word 1 has no head yet
                scores[place, SHIFT], scores[place, left] = 4.0, 3.0
                scores[place, left - 1] = 3.5
            else:
                scores[place, right], scores[place, right + 1] = 0.5, 5.0

    derivations, observed = searched("arc-standard", 2, scorer, canonical=True)
    _, scores = observed.of(derivations)
    # a beam of two loses the first gold derivation at once: SHIFT has 4, LEFT 3.5, the gold one 3.
    # That of the second sentence stays: 2 against 1
    expected = [
        math.log(math.exp(4.0) + math.exp(3.5) + math.exp(3.0)) - 3.0,
        math.log(math.exp(2.0) + math.exp(1.0)) - 1.0,
    ]
    assert losses(scores, derivations).tolist() == pytest.approx(expected, abs=1e-12)
    assert derivations.sentences.tolist() == [0, 0, 0, 1, 1]
    assert derivations.is_gold.tolist().count(True) == 2
    # a beam of three keeps it, with LEFT of label 1, and SHIFT. Then the gold one has 3 + 0.5; the
    # beam is filled with 3.5 + 5, 3 + 5 and, after SHIFT, LEFT's best: 4 + 3.5
    derivations, observed = searched("arc-standard", 3, scorer, canonical=True)
    _, scores = observed.of(derivations)
    rest = [math.exp(value) for value in (8.5, 8.0, 7.5, 3.5)]
    loss = math.log(sum(rest)) - 3.5
    assert losses(scores, derivations)[0].item() == pytest.approx(loss, abs=1e-12)


def test_sentences_without_a_choice() -> None:
    heads = np.asarray([-1, -1, 0, -1, 0], np.int32)
    labels = np.asarray([-1, -1, ROOT - 1, -1, 3], np.int32)
    tokens, lengths = np.asarray([1, 3], np.int32), np.ones(2, np.int32)
    oracle = Oracle("swap", LABELS, heads, labels, tokens, lengths)
    beams = beams_of("swap", lengths, 4, normalised=False)
    found = derive(beams, tokens, lengths, random_scores, correct(oracle), Observed())
    assert len(found.configurations) == len(found.steps) == 0
    assert found.is_gold.tolist() == [True, True]
