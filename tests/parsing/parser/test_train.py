"""Training of parsers: what is learnt, what is recorded, and that a resumed run ends the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parsing.parser.tiny import make_sentence, write_treebank
from safetensors.numpy import load_file

from seqtool.core import checkpoint
from seqtool.core.config import from_dict
from seqtool.core.errors import DataError, OutputError
from seqtool.core.progress import EpochDone, Event
from seqtool.parsing.parser.config import ParserConfig, preset
from seqtool.parsing.parser.data import prepare_data
from seqtool.parsing.parser.train import train_parser
from seqtool.parsing.parser.transition.task import ParserTask
from seqtool.parsing.parser.transition.transitions import SYSTEMS
from seqtool.treebank.conllu import read_conllu

SMALL = {"lexical_size": 8, "tag_size": 8, "label_size": 4, "hidden_size": 24}


def config(epochs: int = 6, **rest: Any) -> ParserConfig:
    """Settings of a small parser; `model__x` and `learning__x` go to their sections."""
    base = preset("fast")
    base["model"] = dict(SMALL)
    base["learning"] = {"batch_size": 64, "averaging": 0.9}
    base["training"] |= {"epochs": epochs, "learning_rate": 0.02, "precision": "float32"}
    for name, value in rest.items():
        section, _, key = name.partition("__")
        base[section][key] = value
    return from_dict(ParserConfig, base)


def trained(folder: Path, output: Path, settings: Any, name: str = "", **rest: Any) -> Any:
    """Train on a folder's train.conllu; `name` is what the names of its files begin with."""
    train, dev = (folder / f"{name}{part}.conllu" for part in ("train", "dev"))
    return train_parser(train, output, settings, dev=dev, device="cpu", **rest)


def weights(path: Path) -> dict[str, Any]:
    return load_file(path / "weights.safetensors")


def assert_same_weights(one: Path, other: Path) -> None:
    expected, found = weights(one), weights(other)
    assert expected.keys() == found.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, name)


@pytest.mark.parametrize("system", list(SYSTEMS))
@pytest.mark.parametrize("oracle", ["static", "dynamic"])
def test_a_rule_is_learnt(system: str, oracle: str, treebank: Path, tmp_path: Path) -> None:
    settings = config(model__system=system, learning__oracle=oracle)
    events: list[Event] = []
    result = trained(treebank, tmp_path / "p", settings, on_event=events.append)
    assert result.scores["dev_las"] == 100.0
    assert result.system == system
    epochs = [event for event in events if isinstance(event, EpochDone)]
    assert len(epochs) == result.epochs == 6
    assert epochs[-1].loss < 0.5 * epochs[0].loss
    # the model that is opened parses as the one that was measured
    parser = checkpoint.load(tmp_path / "p")
    sentences = list(read_conllu(treebank / "dev.conllu"))
    gold = [sentence.to_conllu() for sentence in sentences]
    parser.parse(sentences)
    assert [sentence.to_conllu() for sentence in sentences] == gold


@pytest.mark.parametrize(
    ("system", "mark", "expected"),
    [("swap", True, 100.0), ("arc-standard", True, 100.0), ("arc-standard", False, None)],
)
def test_non_projective_arcs(
    system: str, mark: bool, expected: float | None, treebank: Path, tmp_path: Path
) -> None:
    settings = config(10, model__system=system, learning__mark_lifted=mark)
    scores = trained(treebank, tmp_path / "p", settings, "non-projective-").scores
    if expected is not None:
        assert scores["dev_las"] == expected
    else:
        # arcs are lifted for good: in each such sentence of six words, the last one is wrong
        dev = list(read_conllu(treebank / "non-projective-dev.conllu"))
        wrong = sum(sentence.heads()[-1] == 2 and len(sentence) == 6 for sentence in dev)
        words = sum(map(len, dev))
        assert scores["dev_uas"] == pytest.approx(100.0 * (words - wrong) / words)


def test_a_treebank_of_one_sentence(tmp_path: Path) -> None:
    path = write_treebank(tmp_path / "one.conllu", 1)
    result = train_parser(path, tmp_path / "p", config(30, learning__oracle="static"), device="cpu")
    assert result.scores["dev_las"] == 100.0


def test_the_average_is_what_is_saved(treebank: Path) -> None:
    for decay in (0.0, 0.9):
        data = prepare_data(
            [str(treebank / "train.conllu")], None, config(learning__averaging=decay)
        )
        task = ParserTask(data.config, data)
        now = task.module.first.weight.detach().numpy().copy()
        task.start_epoch(0)
        task.loss(0)
        with_noise = task.module.first.weight
        with_noise.data += 1.0
        saved = task.model().weights["first.weight"]
        expected = with_noise.detach().numpy() if not decay else now
        np.testing.assert_allclose(saved, expected, atol=1e-6)


def test_data_that_cannot_be_learnt_from(treebank: Path, tmp_path: Path) -> None:
    path = tmp_path / "train.conllu"
    for sentence, message in (
        (make_sentence([("hi", "X")], [0]), "more than one word"),
        (make_sentence([("hi", "X"), ("you", "X")]), "head '_'"),
    ):
        path.write_text(sentence.to_conllu())
        with pytest.raises(DataError, match=message):
            train_parser(path, tmp_path / "p", config(), device="cpu")
    assert not (tmp_path / "p").exists()
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "thesis.tex").write_text("")
    with pytest.raises(OutputError, match=r"thesis\.tex"):
        trained(treebank, tmp_path / "p", config(), force=True)


def test_broken_sentences_are_left_out(treebank: Path, tmp_path: Path) -> None:
    path = tmp_path / "broken.conllu"
    text = (treebank / "train.conllu").read_text()
    broken = make_sentence([("x", "X"), ("y", "X")], [2, 1]).to_conllu()
    path.write_text(broken + text)
    with pytest.raises(DataError, match="no root") as caught:
        prepare_data([str(path)], None, config())
    assert caught.value.line == 1
    data = prepare_data([str(path)], None, config(), skip_invalid=True)
    assert data.summary["sentences"] + data.summary["dev_sentences"] == 60
