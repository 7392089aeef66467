"""Global training: one run of two stages, resumed exactly, and what its parsers do."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parsing.parser.tiny import random_parser, random_sentences, tiny_config, write_treebank
from safetensors.numpy import load_file

from seqtool.core import checkpoint
from seqtool.core.config import from_dict
from seqtool.core.errors import ConfigError, Interrupted, ModelError
from seqtool.core.progress import EpochDone, Event
from seqtool.parsing.parser.calibration import TEMPERATURE
from seqtool.parsing.parser.config import ParserConfig, preset
from seqtool.parsing.parser.parser import Parser
from seqtool.parsing.parser.train import train_parser
from seqtool.parsing.parser.transition.transitions import SYSTEMS
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.evaluation import evaluate_parser

SMALL = {"lexical_size": 8, "tag_size": 8, "label_size": 4, "hidden_size": 24}
LSTM = {"encoder": "bilstm", "encoder_size": 6, "encoder_layers": 1, "context_units": 8}


def config(**model: Any) -> ParserConfig:
    """Settings of a small parser: three epochs of local training, two of global training."""
    base = preset("fast")
    base["model"] = {**SMALL, **model}
    base["learning"] = {
        **{"loss": "global", "global_epochs": 2, "global_beam": 3, "global_words": 64},
        **{"batch_size": 64, "min_steps": 10, "averaging": 0.9},
    }
    base["training"] |= {"epochs": 3, "learning_rate": 0.03, "precision": "float32"}
    return from_dict(ParserConfig, base)


@pytest.fixture(scope="module")
def treebank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("treebank")
    write_treebank(folder / "train.conllu", 60)
    write_treebank(folder / "dev.conllu", 20, seed=1)
    return folder


def trained(folder: Path, output: Path, settings: ParserConfig, **rest: Any) -> list[EpochDone]:
    events: list[Event] = []
    train_parser(
        folder / "train.conllu",
        output,
        settings,
        dev=folder / "dev.conllu",
        device="cpu",
        on_event=events.append,
        **rest,
    )
    return [event for event in events if isinstance(event, EpochDone)]


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_rule_is_learnt(system: str, treebank: Path, tmp_path: Path) -> None:
    settings = config(system=system)
    # by the whole network in each epoch, so that their losses can be compared
    learning = dataclasses.replace(
        settings.learning,
        dropout_hidden=0.0,
        dropout_embeddings=0.0,
    )
    epochs = trained(treebank, tmp_path / "p", dataclasses.replace(settings, learning=learning))
    assert [epoch.items for epoch in epochs] == ["configurations"] * 3 + ["sentences"] * 2
    assert epochs[-1].scores["dev_las"] == 100.0
    assert epochs[-1].loss < epochs[-2].loss


def test_a_resumed_run_ends_with_the_same_weights(treebank: Path, tmp_path: Path) -> None:
    settings = config(**LSTM)
    epochs = trained(treebank, tmp_path / "whole", settings)
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
        whole, parts = (
            load_file(tmp_path / name / "weights.safetensors") for name in ("whole", "parts")
        )
        assert whole.keys() == parts.keys()
        for name, array in whole.items():
            assert np.array_equal(array, parts[name]), name


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


def local_settings() -> ParserConfig:
    """The same classifier, trained locally only."""
    whole = config()
    learning = dataclasses.replace(whole.learning, loss="local")
    return dataclasses.replace(whole, learning=learning)


def test_training_begins_from_a_parser(treebank: Path, tmp_path: Path) -> None:
    trained(treebank, tmp_path / "local", local_settings())
    settings = config()
    # nothing is moved, so that the parser stays what it begins from
    still = dataclasses.replace(settings.learning, global_rate=1e-12, global_epochs=1)
    still = dataclasses.replace(settings, learning=still)
    epochs = trained(treebank, tmp_path / "still", still, init=tmp_path / "local")
    assert [epoch.items for epoch in epochs] == ["sentences"]
    before, after = (checkpoint.load(tmp_path / name) for name in ("local", "still"))
    assert after.config.learning.loss == "global"
    sentences = list(read_conllu(treebank / "dev.conllu"))
    found = [list(p.trees(p.encode(sentences))) for p in (before, after)]
    assert found[0] == found[1]
    assert checkpoint.read_header(tmp_path / "still").data["initial"] == "local"
    # a run that is resumed needs its beginning no more
    trained(treebank, tmp_path / "whole", settings, init=tmp_path / "local")
    with pytest.raises(Interrupted):
        trained(
            treebank,
            tmp_path / "parts",
            settings,
            init=tmp_path / "local",
            should_stop=lambda step: step == 3,
        )
    shutil.rmtree(tmp_path / "local")
    train_parser(None, tmp_path / "parts", resume=True, device="cpu")
    whole, parts = (
        load_file(tmp_path / name / "weights.safetensors") for name in ("whole", "parts")
    )
    for name, array in whole.items():
        assert np.array_equal(array, parts[name]), name
    with pytest.raises(ModelError, match="trained globally before"):
        trained(treebank, tmp_path / "again", settings, init=tmp_path / "still")


def test_a_run_that_saved_nothing_yet_begins_from_the_parser_when_it_is_resumed(
    treebank: Path, tmp_path: Path
) -> None:
    trained(treebank, tmp_path / "local", local_settings())
    trained(treebank, tmp_path / "whole", config(), init=tmp_path / "local")
    with pytest.raises(Interrupted):
        trained(
            treebank,
            tmp_path / "killed",
            config(),
            init=tmp_path / "local",
            should_stop=lambda step: True,
        )
    shutil.rmtree(tmp_path / "killed" / "last")  # as if it was killed before it saved its state
    train_parser(None, tmp_path / "killed", resume=True, device="cpu")
    whole, killed = (
        load_file(tmp_path / name / "weights.safetensors") for name in ("whole", "killed")
    )
    for name, array in whole.items():
        assert np.array_equal(array, killed[name]), name


def test_what_training_cannot_begin_from(treebank: Path, tmp_path: Path) -> None:
    trained(treebank, tmp_path / "local", local_settings())
    output = tmp_path / "p"
    with pytest.raises(ConfigError, match="the loss is local"):
        trained(treebank, output, local_settings(), init=tmp_path / "local")
    with pytest.raises(ConfigError, match="would replace"):
        trained(treebank, tmp_path / "local", config(), init=tmp_path / "local", force=True)
    with pytest.raises(ModelError, match="other settings"):
        trained(treebank, output, config(hidden_size=32), init=tmp_path / "local")
    write_treebank(tmp_path / "train.conllu", 20, seed=5)
    shutil.copy(treebank / "dev.conllu", tmp_path)
    with pytest.raises(ModelError, match="other words, tags or labels"):
        trained(tmp_path, output, config(), init=tmp_path / "local")
    with pytest.raises(ModelError):
        trained(treebank, output, config(), init=tmp_path / "nothing")
    assert not output.exists()


def test_scores_are_those_of_the_parser_that_is_kept_where_global_training_spoils_it(
    treebank: Path, tmp_path: Path
) -> None:
    whole = config()
    learning = dataclasses.replace(whole.learning, global_rate=3.0, global_epochs=1)
    epochs = trained(treebank, tmp_path / "p", dataclasses.replace(whole, learning=learning))
    best = max(epochs, key=lambda epoch: epoch.scores["dev_las"])
    assert best.items != "sentences"  # of local training
    header = checkpoint.read_header(tmp_path / "p")
    beam = header.data["validated_with_beam"]
    assert beam == whole.learning.global_beam
    found = list(read_conllu(treebank / "dev.conllu"))
    checkpoint.load(tmp_path / "p").parse(found, beam=beam)
    scores = evaluate_parser(treebank / "dev.conllu", found).scores
    assert scores["LAS"].f1 == pytest.approx(header.scores["dev_las"])
    assert f"--beam {beam}" in (tmp_path / "p" / "README.md").read_text()
