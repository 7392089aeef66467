"""The linear graph parser: trees, their probabilities, training, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parsing.parser.linear.arcs.test_features import FIELDS, types_of
from parsing.parser.references import is_tree, non_projective_words, projective_trees, trees
from parsing.parser.tiny import LABELS, make_sentence, random_sentences, write_treebank
from safetensors.numpy import load_file

from seqtool.core import checkpoint
from seqtool.core.config import from_dict
from seqtool.core.errors import ConfigError, Interrupted
from seqtool.parsing.parser.config import ParserConfig, implied, preset
from seqtool.parsing.parser.data import prepare_data
from seqtool.parsing.parser.graph.partition import marginals
from seqtool.parsing.parser.linear.arcs.scorer import WEIGHTS
from seqtool.parsing.parser.linear.arcs.task import Calibration, MiraTask
from seqtool.parsing.parser.parser import Parser
from seqtool.parsing.parser.train import train_parser
from seqtool.treebank.conllu import read_conllu


def config(**model: Any) -> ParserConfig:
    """Settings of a small parser."""
    base = preset("mst")
    base["model"] |= {"fields": FIELDS, "hash_bits": 16, **model}
    base["training"] |= {"epochs": 4}
    return from_dict(ParserConfig, base)


def random_parser(trees_: str, seed: int = 0, **model: Any) -> Parser:
    """A parser of random weights; `random_sentences` have words that it knows."""
    rows = make_sentence([(form, tag) for form in ("a", "B", "cc") for tag in "XY"]).rows
    settings = config(trees=trees_, system="arc-standard", **model)
    generator = np.random.default_rng(seed)
    weights = generator.normal(0, 0.1, (1 << 16) + len(LABELS)).astype(np.float32)
    return Parser(settings, types_of(rows), LABELS, {WEIGHTS: weights})


@pytest.mark.parametrize("which", ["projective", "all"])
def test_trees_and_their_probabilities(which: str) -> None:
    parser = random_parser(which)
    sentences = random_sentences(30, 4)
    arrays = parser.encode(sentences)
    found = list(parser.trees(arrays))
    ranked = list(parser.ranked(arrays, 200))
    tables = list(parser.arc_tables(arrays))
    for (heads, deprels), best, table in zip(found, ranked, tables, strict=True):
        # all trees are given, so their probabilities add up to 1, and so do those of an arc
        possible = projective_trees(len(heads)) if which == "projective" else trees(len(heads))
        assert {tuple(tree.heads) for tree in best} == {*possible}
        assert (heads, deprels) == (best[0].heads, best[0].deprels)
        chances = np.exp([tree.score for tree in best])
        assert chances.sum() == pytest.approx(1.0, abs=1e-5)
        expected = np.zeros(table.probabilities.shape)
        for tree, chance in zip(best, chances, strict=True):
            expected[np.arange(len(heads)), tree.heads] += chance
        assert np.allclose(table.probabilities, expected, atol=1e-5)
        names = [parser.deprels[i] for i in table.label_ids[np.arange(len(heads)), heads]]
        assert names == deprels


@pytest.mark.parametrize("which", ["projective", "all"])
def test_every_output_is_a_tree(which: str) -> None:
    parser = random_parser(which)
    sentences = random_sentences(60, 30)
    parser.parse(sentences)
    crossing = 0
    for sentence in sentences:
        heads = tuple(sentence.heads())
        assert is_tree(heads)
        crossing += len(non_projective_words(heads))
        for head, deprel in zip(heads, sentence.column(7), strict=True):
            assert deprel in (LABELS.arcs if head else LABELS.roots)
    assert (crossing == 0) == (which == "projective")


def test_a_long_sentence_is_parsed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = random_parser("all")
    sentences = random_sentences(12, 30)
    alone = list(parser.trees(parser.encode(sentences)))
    monkeypatch.setattr("seqtool.parsing.parser.linear.arcs.decoder.LONGEST", 10)
    found = list(parser.trees(parser.encode(sentences)))
    for sentence, tree, other in zip(sentences, found, alone, strict=True):
        assert is_tree(tuple(tree[0]))
        if len(sentence) <= 10:
            assert tree == other
        else:
            begin = make_sentence([(row[1], row[3]) for row in sentence.rows[:10]])
            (first,) = parser.trees(parser.encode([begin]))
            assert tree[0][:10] == first[0]
    assert max(map(len, sentences)) > 20
    # what is thought of its arcs is of the same tree, and there is no other one
    arrays = parser.encode(sentences)
    for (heads, deprels), table, ranked in zip(
        found, parser.arc_tables(arrays), parser.ranked(arrays, 3), strict=True
    ):
        words = np.arange(len(heads))
        assert table.heads.tolist() == heads
        assert [parser.deprels[i] for i in table.label_ids[words, heads]] == deprels
        assert np.allclose(table.probabilities.sum(axis=1), 1.0, atol=1e-5)
        if len(heads) <= 10:
            assert (ranked[0].heads, ranked[0].deprels) == (heads, deprels)
            continue
        (only,) = ranked
        assert (only.heads, only.deprels) == (heads, deprels)
        assert only.score < 0
        # arcs from one piece into another are those of later roots to the first root
        first_root = 1 + heads.index(0)
        for word in range(10, len(heads)):
            outside = [h for h in range(1, 11) if h != first_root]
            assert not table.probabilities[word, outside].any()


def test_members_are_averaged() -> None:
    one, two = (random_parser("all", seed) for seed in (1, 2))
    mean = {WEIGHTS: (one.weights[WEIGHTS] + two.weights[WEIGHTS]) / 2}
    alone = Parser(one.config, one.types, one.labels, mean)
    sentences = random_sentences(40, 12)
    found, expected, of_one = (
        list(parser.trees(parser.encode(sentences))) for parser in (one.ensemble([two]), alone, one)
    )
    assert found == expected
    assert found != of_one


@pytest.fixture(scope="module")
def treebank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("treebank")
    write_treebank(folder / "train.conllu", 60, non_projective=0.3)
    write_treebank(folder / "dev.conllu", 20, seed=1, non_projective=0.3)
    return folder


@pytest.mark.parametrize("which", ["projective", "all", "auto"])
def test_a_rule_is_learnt(which: str, treebank: Path, tmp_path: Path) -> None:
    dev = treebank / "dev.conllu"
    settings = config(trees=which)
    result = train_parser(treebank / "train.conllu", tmp_path / "p", settings, dev=dev)
    assert result.scores["dev_las"] == 100.0
    assert result.system == ("projective" if which == "projective" else "all")
    # the model that is opened parses as the one that was measured; lifted arcs are put back
    parser = checkpoint.load(tmp_path / "p")
    sentences = list(read_conllu(dev))
    gold = [sentence.to_conllu() for sentence in sentences]
    parser.parse(sentences)
    assert [sentence.to_conllu() for sentence in sentences] == gold
    card = (tmp_path / "p" / "README.md").read_text()
    assert "linear scores of arcs" in card


def test_a_resumed_run_ends_with_the_same_weights(treebank: Path, tmp_path: Path) -> None:
    train, dev = (treebank / f"{name}.conllu" for name in ("train", "dev"))
    settings = config()
    train_parser(train, tmp_path / "whole", settings, dev=dev)
    with pytest.raises(Interrupted):
        train_parser(train, tmp_path / "p", settings, dev=dev, should_stop=lambda step: step == 3)
    train_parser(train, tmp_path / "p", settings, dev=dev, resume=True)
    whole, resumed = (load_file(tmp_path / d / "weights.safetensors") for d in ("whole", "p"))
    assert np.array_equal(whole[WEIGHTS], resumed[WEIGHTS])


def test_scores_are_log_probabilities(treebank: Path) -> None:
    train, dev = (str(treebank / f"{name}.conllu") for name in ("train", "dev"))
    data = prepare_data([train], dev, config())
    task = MiraTask(data.config, data)
    # some gold trees that cannot win: if all won, the larger the factor, the better
    wrong = [
        (list(range(len(heads))) if place % 4 == 0 else heads, deprels)
        for place, (heads, deprels) in enumerate(data.dev.trees)
    ]
    gold = dataclasses.replace(data.dev, trees=wrong)
    task._calibration = Calibration(task._scorer, gold, is_projective=False)
    task.start_epoch(0)
    task.learn(0, 1.0)
    weights, calibration = task.weights[WEIGHTS].average(), task._calibration
    scale = calibration.scale(weights)
    arrays = data.dev.arrays
    scores = np.zeros((arrays.lengths * (arrays.lengths + 1)).sum(), np.float32)
    task._scorer.add_arc_scores(weights, arrays, scores)

    def loss(factor: float) -> float:
        scaled = scores.astype(np.float64) * factor
        return float(
            marginals(scaled, arrays.lengths, False)[0].sum() - scaled[calibration._gold].sum()
        )

    assert loss(scale) < min(loss(0.95 * scale), loss(1.05 * scale))
    # in half precision, as in the file
    expected = (weights * np.float32(scale)).astype(np.float16)
    assert np.array_equal(task.averages()[WEIGHTS], expected.astype(np.float32))
    # nothing is learnt yet: there is nothing to tell a factor by
    assert calibration.scale(np.zeros_like(weights)) == 1.0


def test_what_it_cannot_do_is_refused() -> None:
    assert implied({"model.decoder": "graph", "model.classifier": "linear"}) == "mst"
    with pytest.raises(ConfigError, match="reads no bilstm"):
        config(encoder="bilstm")
    with pytest.raises(ConfigError, match="loss is crf") as refused:
        from_dict(ParserConfig, {**preset("mst"), "learning": {"loss": "crf"}})
    assert refused.value.hint == "use local or --classifier neural"
