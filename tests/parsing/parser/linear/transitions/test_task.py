"""Linear transition parsers: what is learnt, saved, resumed, opened, and refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parsing.parser.tiny import write_treebank
from safetensors.numpy import load_file

from seqtool.core import checkpoint
from seqtool.core.config import from_dict
from seqtool.core.errors import ConfigError, Interrupted
from seqtool.core.progress import EpochDone, Event
from seqtool.parsing.parser.config import ParserConfig, implied, preset
from seqtool.parsing.parser.data import prepare_data
from seqtool.parsing.parser.linear.transitions.calibration import Calibration
from seqtool.parsing.parser.linear.transitions.classifier import WEIGHTS
from seqtool.parsing.parser.linear.transitions.task import LinearTransitionTask
from seqtool.parsing.parser.linear.transitions.templates import STANDARD
from seqtool.parsing.parser.train import TrainedParser, train_parser
from seqtool.parsing.parser.transition.transitions import SYSTEMS
from seqtool.treebank.conllu import read_conllu


def config(epochs: int = 4, **rest: Any) -> ParserConfig:
    """Settings of a small parser; `model__x` and `learning__x` go to their sections."""
    base = preset("linear")
    base["model"] |= {"hash_bits": 20}
    base["learning"] |= {"batch_size": 64}
    base["training"] |= {"epochs": epochs}
    for name, value in rest.items():
        section, _, key = name.partition("__")
        base[section][key] = value
    return from_dict(ParserConfig, base)


@pytest.fixture(scope="module")
def treebank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("treebank")
    write_treebank(folder / "train.conllu", 60)
    write_treebank(folder / "dev.conllu", 20, seed=1)
    return folder


def trained(folder: Path, output: Path, settings: ParserConfig, **rest: Any) -> TrainedParser:
    dev = folder / "dev.conllu"
    return train_parser(folder / "train.conllu", output, settings, dev=dev, device="cpu", **rest)


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_rule_is_learnt(system: str, treebank: Path, tmp_path: Path) -> None:
    events: list[Event] = []
    settings = config(model__system=system)
    result = trained(treebank, tmp_path / "p", settings, on_event=events.append)
    assert result.scores["dev_las"] == 100.0
    assert 0.0 < result.scores["feature_share"] < 100.0
    assert result.system == system
    epochs = [event for event in events if isinstance(event, EpochDone)]
    assert epochs[-1].loss < 0.5 * epochs[0].loss
    assert epochs[-1].gradients is None
    # the model that is opened parses as the one that was measured; with a beam, too
    parser = checkpoint.load(tmp_path / "p")
    assert tuple(parser.config.model.templates) == STANDARD
    for beam in (1, 4):
        sentences = list(read_conllu(treebank / "dev.conllu"))
        gold = [sentence.to_conllu() for sentence in sentences]
        parser.parse(sentences, beam=beam)
        assert [sentence.to_conllu() for sentence in sentences] == gold
    weights = load_file(tmp_path / "p" / "weights.safetensors")[WEIGHTS]
    assert weights.dtype == np.float16
    assert np.array_equal(parser.weights[WEIGHTS], weights)
    card = (tmp_path / "p" / "README.md").read_text()
    assert f"Transition-based ({system}), linear: {len(STANDARD)} templates" in card


def test_trees_are_ranked_and_arcs_weighed(treebank: Path, tmp_path: Path) -> None:
    trained(treebank, tmp_path / "p", config(epochs=1))
    parser = checkpoint.load(tmp_path / "p")
    arrays = parser.encode(read_conllu(treebank / "dev.conllu"))
    parser.decoder.prepare(parser.types)
    heads, _ = parser.decoder.decode(arrays, beam=4)
    ranked = list(parser.decoder.ranked(arrays, 4))
    tables = list(parser.decoder.arc_tables(arrays))
    assert len(ranked) == len(tables) == len(arrays.lengths)
    agreeing = 0
    spans = zip(arrays.tokens.tolist(), arrays.lengths.tolist(), strict=True)
    for (begin, length), trees, table in zip(spans, ranked, tables, strict=True):
        scores = [tree.score for tree in trees]
        assert scores == sorted(scores, reverse=True)
        assert scores[0] <= 1e-4 * 2 * length  # each of its logarithms is right to 1e-4
        assert table.probabilities.shape == (length, 1 + length)
        assert table.probabilities.sum(axis=1).max() <= 1.0 + 1e-5
        agreeing += np.array_equal(trees[0].heads, heads[begin + 1 : begin + 1 + length])
    assert agreeing >= 0.9 * len(ranked)  # a beam that gives up hypotheses may miss the best one


def test_a_resumed_run_ends_with_the_same_weights(treebank: Path, tmp_path: Path) -> None:
    settings = config(learning__exploration=0.5)
    trained(treebank, tmp_path / "whole", settings)
    with pytest.raises(Interrupted):
        trained(treebank, tmp_path / "p", settings, should_stop=lambda step: step == 15)
    trained(treebank, tmp_path / "p", settings, resume=True)
    whole, resumed = (load_file(tmp_path / d / "weights.safetensors") for d in ("whole", "p"))
    assert np.array_equal(whole[WEIGHTS], resumed[WEIGHTS])


def test_scores_are_log_probabilities(treebank: Path) -> None:
    settings = config(model__system="arc-standard", model__templates=["s0.upos", "b0.upos"])
    train, dev = (str(treebank / f"{name}.conllu") for name in ("train", "dev"))
    data = prepare_data([train], dev, settings)
    task = LinearTransitionTask(data.config, data)
    for index in range(task.start_epoch(0)):
        task.learn(index, 1.0)
    weights = task.weights[WEIGHTS].average()
    calibration = Calibration.of(data.config, data, task._classifier)
    scale = calibration.scale(weights)

    def loss(factor: float) -> float:
        """-log P(gold), summed, in a way of its own."""
        total = 0.0
        for rows, legal, gold in zip(*vars(calibration).values(), strict=True):
            scores = factor * sum(
                weights[row : row + len(legal)].astype(np.float64) for row in rows
            )
            total += np.log(np.exp(scores[legal]).sum()) - scores[gold]
        return total

    assert loss(scale) < min(loss(0.99 * scale), loss(1.01 * scale))
    assert scale != pytest.approx(1.0, rel=0.05)
    # in half precision, eleven bits
    assert np.allclose(task.averages()[WEIGHTS], weights * scale, rtol=2**-11, atol=2**-24)
    # nothing is learnt yet: there is nothing to tell a factor by
    assert calibration.scale(np.zeros_like(weights)) == 1.0


def test_what_a_linear_classifier_cannot_do_is_refused(treebank: Path, tmp_path: Path) -> None:
    assert implied({"model.classifier": "linear"}) == "linear"
    with pytest.raises(ConfigError, match="reads no bilstm"):
        config(model__encoder="bilstm")
    with pytest.raises(ConfigError, match="loss"):
        config(learning__loss="global")
    with pytest.raises(ConfigError, match="looks at shape, which is not read"):
        trained(treebank, tmp_path / "p", config(model__templates=["s0.shape"]))
    with pytest.raises(ConfigError, match="a linear classifier has none"):
        trained(treebank, tmp_path / "p", config(), embeddings=tmp_path / "vectors.txt")
    assert not (tmp_path / "p").exists()
