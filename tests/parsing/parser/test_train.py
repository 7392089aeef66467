"""Training of parsers: what is learnt, what is left to the treebank, and what is recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parsing.parser.tiny import make_sentence, write_treebank
from safetensors.numpy import load_file, save_file

from seqtool.core import checkpoint, storage
from seqtool.core.config import from_dict, to_dict
from seqtool.core.errors import DataError, Interrupted, ModelError, OutputError
from seqtool.core.progress import EpochDone, Event
from seqtool.parsing.parser import data
from seqtool.parsing.parser.config import PRESETS, ParserConfig, preset
from seqtool.parsing.parser.data import prepare_data
from seqtool.parsing.parser.train import train_parser
from seqtool.parsing.parser.transition.task import ParserTask
from seqtool.parsing.parser.transition.transitions import SYSTEMS
from seqtool.parsing.pipeline.config import PRESETS as PIPELINES
from seqtool.treebank.conllu import read_conllu, write_conllu
from seqtool.treebank.sentence import LEMMA, XPOS

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


def assert_parses_as(model: Path, gold: Path) -> None:
    """The parser that is opened finds all that it found when it was measured."""
    sentences = list(read_conllu(gold))
    checkpoint.load(model).parse(sentences)
    assert sentences == list(read_conllu(gold))


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
    assert_parses_as(tmp_path / "p", treebank / "dev.conllu")


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


FAST, CHEN = (from_dict(ParserConfig, PRESETS.settings(name)) for name in ("fast", "chen-manning"))
SMALL_EPOCHS, USUAL = FAST.learning.small_epochs, FAST.training.epochs


@pytest.mark.parametrize(
    ("config", "limit", "epochs"),
    [
        (FAST, 28, SMALL_EPOCHS),  # the 27 sentences that are not held out are fewer
        (FAST, 27, USUAL),
        (CHEN, 28, CHEN.training.epochs),
        # epochs that are given are those of any treebank
        (PRESETS.resolve(None, None, {"training.epochs": 3}, ()), 28, 3),
        (PRESETS.resolve("fast", None, {}, ["epochs=3"]), 28, 3),
        (PRESETS.chosen({"training": {"epochs": 3}}), 28, 3),
        (PRESETS.resolve(None, None, {}, ["training.epochs=3", "small_epochs=5"]), 28, 5),
        # other settings leave them
        (
            PRESETS.resolve(None, None, {"training.learning_rate": 0.1}, ["hidden_size=8"]),
            28,
            SMALL_EPOCHS,
        ),
    ],
)
def test_a_treebank_of_fewer_sentences_is_small(
    config: ParserConfig, limit: int, epochs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "SMALL_SENTENCES", limit)
    assert config == PRESETS.chosen(to_dict(config))
    found = prepare_data([str(write_treebank(tmp_path / "train.conllu", 30))], None, config)
    assert found.summary["sentences"] == 27
    assert found.config.learning.small_epochs == 0  # nothing is left to be chosen
    assert found.config.training.epochs == epochs


def test_those_of_a_pipeline_are_replaced_part_by_part() -> None:
    named = PIPELINES.chosen({"parser": {"training": {"epochs": 2}}})
    whole = PIPELINES.resolve("fast", None, {}, ())
    all_parts = PIPELINES.resolve("fast", None, {"training.epochs": 2}, ())
    other = PIPELINES.resolve("fast", None, {}, ["graph.training.epochs=2"])
    assert named is not None
    found = [each.parser.learning.small_epochs for each in (whole, all_parts, other, named)]
    assert found == [SMALL_EPOCHS, 0, SMALL_EPOCHS, 0]
    assert other.graph.learning.small_epochs == 0


@pytest.mark.parametrize("column", [LEMMA, XPOS])
def test_characters_are_not_read_where_morphemes_are_told(column: int, tmp_path: Path) -> None:
    sentences = [make_sentence([("고향은", "X"), ("멀다", "Y")], [2, 0]) for _ in range(4)]
    told = [sentence.copy() for sentence in sentences]
    for sentence in told:
        sentence.rows[0][column] = "고향+은" if column == LEMMA else "ncn+jxt"
    plain, joined = tmp_path / "plain.conllu", tmp_path / "joined.conllu"
    write_conllu(sentences, plain)
    write_conllu(told, joined)

    def filters(path: Path, *overrides: str, preset: str = "graph") -> int:
        config = PRESETS.resolve(preset, None, {}, overrides)
        data = prepare_data([str(path)], str(path), config)
        assert data.config.model.joined_characters  # nothing is left to be chosen
        assert (data.types.characters is None) == (data.config.model.num_filters == 0)
        return data.config.model.num_filters

    assert filters(plain) == 96
    assert filters(joined) == 0
    # those that are given are those of any treebank, as are a preset's that says nothing of it
    assert filters(joined, "num_filters=8") == 8
    assert filters(joined, "num_filters=8", preset="accurate") == 8
    # of a column that is not read, nothing is told
    others = "fields=[form, lemma]" if column == XPOS else "fields=[form, xpos]"
    assert filters(joined, others) == 96


ONE_WORD = {"Yes": "answer", "Oh": "cry", "Go": "command"}


@pytest.mark.parametrize("settings", ["fast", "linear", "global"])
def test_sentences_of_one_word_teach_labels_of_root(settings: str, tmp_path: Path) -> None:
    """Where ROOT has several, each such sentence is a choice, and there is no other to learn by."""
    trees = [make_sentence([(word, "X")], [0]) for word in [*ONE_WORD] * 16]
    trees += [make_sentence([("a", "Y"), ("word", "X")], [2, 0])] * 8
    for tree in trees:
        tree.rows[-1][7] = ONE_WORD.get(tree.rows[-1][1], "statement")
    file = tmp_path / "train.conllu"
    write_conllu(trees, file)
    preset = "linear" if settings == "linear" else "fast"
    given = {"training.epochs": 20, "model.fields": ["form"], "model.min_count": 1}
    if preset == "fast":
        given |= {"training.learning_rate": 0.04, "model.hidden_size": 64, "model.lexical_size": 32}
    else:
        given |= {"model.hash_bits": 14}
    if settings == "global":
        given |= {"learning.loss": "global", "learning.global_epochs": 1}
    config = PRESETS.resolve(preset, None, given, ["dropout_words=0"])
    trained = train_parser(file, tmp_path / "model", config, dev=file, threads=1)
    assert trained.scores["dev_las"] == 100.0


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
