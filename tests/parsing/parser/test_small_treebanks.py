"""What presets leave to the treebank: epochs of small ones, and characters beside morphemes."""

from __future__ import annotations

from pathlib import Path

import pytest
from parsing.parser.tiny import make_sentence, write_treebank

from seqtool.core.config import from_dict, to_dict
from seqtool.parsing.parser import data
from seqtool.parsing.parser.config import PRESETS, ParserConfig
from seqtool.parsing.parser.data import prepare_data
from seqtool.parsing.parser.train import train_parser
from seqtool.parsing.pipeline.config import PRESETS as PIPELINES
from seqtool.treebank.conllu import write_conllu
from seqtool.treebank.sentence import LEMMA, XPOS

FAST, CHEN = (from_dict(ParserConfig, PRESETS.settings(name)) for name in ("fast", "chen-manning"))
SMALL, USUAL = FAST.learning.small_epochs, FAST.training.epochs


@pytest.mark.parametrize(
    ("config", "limit", "epochs"),
    [
        (FAST, 28, SMALL),  # the 27 sentences that are not held out are fewer
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
            SMALL,
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
    assert found == [SMALL, 0, SMALL, 0]
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
