"""Global training: one run of two stages, resumed exactly, and what its parsers do."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parsing.parser import test_train
from parsing.parser.test_train import assert_same_weights, trained
from parsing.parser.tiny import random_parser, random_sentences, tiny_config, write_treebank

from seqtool.core import checkpoint
from seqtool.core.config import from_dict
from seqtool.core.errors import ConfigError, Interrupted, ModelError
from seqtool.core.progress import EpochDone, Event
from seqtool.parsing.parser.calibration import TEMPERATURE
from seqtool.parsing.parser.config import ParserConfig
from seqtool.parsing.parser.parser import Parser
from seqtool.parsing.parser.train import train_parser
from seqtool.parsing.parser.transition.transitions import SYSTEMS
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
