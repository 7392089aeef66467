"""Training of parsers: what is learnt, what is recorded, and that a resumed run ends the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parsing.parser.tiny import make_sentence, write_treebank
from safetensors.numpy import load_file, save_file

from seqtool.core import checkpoint, storage
from seqtool.core.config import from_dict
from seqtool.core.errors import DataError, Interrupted, ModelError, OutputError
from seqtool.core.progress import EpochDone, Event
from seqtool.parsing.parser.config import ParserConfig, preset
from seqtool.parsing.parser.data import prepare_data
from seqtool.parsing.parser.train import TrainedParser, train_parser
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


@pytest.fixture(scope="module")
def treebank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("treebank")
    write_treebank(folder / "train.conllu", 60)
    write_treebank(folder / "dev.conllu", 20, seed=1)
    write_treebank(folder / "non-projective.conllu", 60, non_projective=0.5)
    write_treebank(folder / "non-projective-dev.conllu", 20, seed=1, non_projective=0.5)
    return folder


def trained(folder: Path, output: Path, settings: ParserConfig, **rest: Any) -> TrainedParser:
    name = rest.pop("name", "")
    return train_parser(
        folder / f"{name or 'train'}.conllu",
        output,
        settings,
        dev=folder / (f"{name}-dev.conllu" if name else "dev.conllu"),
        device="cpu",
        **rest,
    )


def weights(path: Path) -> dict[str, Any]:
    return load_file(path / "weights.safetensors")


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
    scores = trained(treebank, tmp_path / "p", settings, name="non-projective").scores
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


@pytest.mark.parametrize("name", ["tokens", "labels", "measures", "legal", "free", "sentences"])
def test_examples_of_a_saved_block_are_looked_through(
    name: str, treebank: Path, tmp_path: Path
) -> None:
    with pytest.raises(Interrupted):
        trained(treebank, tmp_path / "p", config(4), should_stop=lambda step: step == 2)
    last = tmp_path / "p" / "last"
    tensors = load_file(last / "state.safetensors")
    column = tensors[f"carried.examples.{name}"]
    column.reshape(-1)[-1] = np.asarray(251 if name == "legal" else 10**6)
    save_file(tensors, last / "state.safetensors")
    content = storage.read_sealed(last / "state.json")
    content["tensors"] = storage.sum_of(last / "state.safetensors")
    storage.write_json(last / "state.json", storage.sealed(content))
    with pytest.raises(ModelError, match="the saved state is damaged"):
        train_parser(None, tmp_path / "p", resume=True, device="cpu")


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
    single = tmp_path / "single.conllu"
    single.write_text(make_sentence([("hi", "X")], [0]).to_conllu())
    with pytest.raises(DataError, match="more than one word"):
        train_parser(single, tmp_path / "p", config(), device="cpu")
    bare = tmp_path / "bare.conllu"
    bare.write_text(make_sentence([("hi", "X"), ("you", "X")]).to_conllu())
    with pytest.raises(DataError, match="head '_'"):
        train_parser(bare, tmp_path / "p", config(), device="cpu")
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
