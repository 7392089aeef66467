"""Linear parsers: trees, their probabilities, training, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parsing.parser.references import is_tree, projective_trees, trees
from parsing.parser.tiny import LABELS, make_sentence, random_sentences, write_treebank
from parsing.sparse.test_arcs import FIELDS, types_of
from safetensors.numpy import load_file

from seqtool.core import checkpoint
from seqtool.core.config import from_dict
from seqtool.core.errors import ConfigError, Interrupted
from seqtool.core.progress import EpochDone, Event
from seqtool.parsing.parser.config import ParserConfig, implied, preset
from seqtool.parsing.parser.data import prepare_data
from seqtool.parsing.parser.graph.partition import marginals
from seqtool.parsing.parser.parser import Parser
from seqtool.parsing.parser.train import TrainedParser, train_parser
from seqtool.parsing.parser.transition.transitions import SYSTEMS
from seqtool.parsing.sparse.arcs import WEIGHTS
from seqtool.parsing.sparse.task import LinearTransitionTask, MiraTask
from seqtool.treebank.conllu import read_conllu


def mst(**model: Any) -> ParserConfig:
    """Settings of a small parser by scores of arcs."""
    base = preset("mst")
    base["model"] |= {"fields": FIELDS, "hash_bits": 16, **model}
    base["training"] |= {"epochs": 4}
    return from_dict(ParserConfig, base)


def linear(learning: dict[str, Any] | None = None, **model: Any) -> ParserConfig:
    """Settings of a small parser by scores of transitions."""
    base = preset("linear")
    base["model"] |= {"hash_bits": 20, **model}
    base["learning"] |= {"batch_size": 64, **(learning or {})}
    base["training"] |= {"epochs": 4}
    return from_dict(ParserConfig, base)


def random_parser(trees_: str, seed: int = 0, **model: Any) -> Parser:
    """A parser of random weights; `random_sentences` have words that it knows."""
    rows = make_sentence([(form, tag) for form in ("a", "B", "cc") for tag in "XY"]).rows
    settings = mst(trees=trees_, system="arc-standard", **model)
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


def test_a_long_sentence_is_parsed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = random_parser("all")
    sentences = random_sentences(12, 30)
    assert max(map(len, sentences)) > 20
    arrays = parser.encode(sentences)
    alone = list(parser.trees(arrays))
    monkeypatch.setattr("seqtool.parsing.sparse.arc_decoder.LONGEST", 10)
    # what is thought of its arcs is of the same tree, and there is no other one
    for sentence, tree, whole, table, ranked in zip(
        sentences, parser.trees(arrays), alone, parser.arc_tables(arrays),
        parser.ranked(arrays, 3), strict=True,
    ):  # fmt: skip
        heads, deprels = tree
        words = np.arange(len(heads))
        assert is_tree(tuple(heads))
        assert table.heads.tolist() == heads
        assert [parser.deprels[i] for i in table.label_ids[words, heads]] == deprels
        assert np.allclose(table.probabilities.sum(axis=1), 1.0, atol=1e-5)
        assert (ranked[0].heads, ranked[0].deprels) == tree
        if len(heads) <= 10:
            assert tree == whole
            continue
        begin = make_sentence([(row[1], row[3]) for row in sentence.rows[:10]])
        (first,) = parser.trees(parser.encode([begin]))
        assert heads[:10] == first[0]
        assert len(ranked) == 1
        assert ranked[0].score < 0
        # arcs from one piece into another are those of later roots to the first root
        outside = [h for h in range(1, 11) if h != 1 + heads.index(0)]
        assert not table.probabilities[10:, outside].any()


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
    for share in ("", "0.3"):  # of sentences with crossing arcs
        write_treebank(folder / f"train{share}.conllu", 60, non_projective=float(share or 0))
        write_treebank(folder / f"dev{share}.conllu", 20, 1, non_projective=float(share or 0))
    return folder


def files(folder: Path, settings: ParserConfig) -> tuple[Path, Path]:
    """The training and the validation part."""
    share = "0.3" if settings.model.decoder == "graph" else ""
    return folder / f"train{share}.conllu", folder / f"dev{share}.conllu"


def trained(folder: Path, output: Path, settings: ParserConfig, **rest: Any) -> TrainedParser:
    train, dev = files(folder, settings)
    return train_parser(train, output, settings, dev=dev, device="cpu", **rest)


@pytest.mark.parametrize(
    ("settings", "system", "described"),
    [
        *((linear(system=name), name, f"Transition-based ({name}), linear:") for name in SYSTEMS),
        *((mst(trees=name), name, f"Graph-based ({name} trees)") for name in ("projective", "all")),
        (mst(trees="auto"), "all", "linear scores of arcs"),
    ],
)
def test_a_rule_is_learnt(
    settings: ParserConfig, system: str, described: str, treebank: Path, tmp_path: Path
) -> None:
    events: list[Event] = []
    result = trained(treebank, tmp_path / "p", settings, on_event=events.append)
    assert result.scores["dev_las"] == 100.0
    assert result.system == system
    epochs = [event for event in events if isinstance(event, EpochDone)]
    assert epochs[-1].loss < 0.5 * epochs[0].loss
    assert epochs[-1].gradients is None
    if settings.model.decoder == "transition":
        assert 0.0 < result.scores["feature_share"] < 100.0
    # the model that is opened parses as the one that was measured; with a beam, too
    parser = checkpoint.load(tmp_path / "p")
    for beam in (1, 4):
        sentences = list(read_conllu(files(treebank, settings)[1]))
        gold = [sentence.to_conllu() for sentence in sentences]
        parser.parse(sentences, beam=beam)
        assert [sentence.to_conllu() for sentence in sentences] == gold
    (weights,) = load_file(tmp_path / "p" / "weights.safetensors").values()
    assert weights.dtype == np.float16
    assert np.array_equal(*parser.weights.values(), weights)
    assert described in (tmp_path / "p" / "README.md").read_text()


@pytest.mark.parametrize(
    ("settings", "step"), [(linear({"exploration": 0.5}), 15), (mst(), 3)], ids=["linear", "mst"]
)
def test_a_resumed_run_ends_with_the_same_weights(
    settings: ParserConfig, step: int, treebank: Path, tmp_path: Path
) -> None:
    trained(treebank, tmp_path / "whole", settings)
    with pytest.raises(Interrupted):
        trained(treebank, tmp_path / "p", settings, should_stop=lambda done: done == step)
    trained(treebank, tmp_path / "p", settings, resume=True)
    whole, resumed = (load_file(tmp_path / d / "weights.safetensors") for d in ("whole", "p"))
    assert np.array_equal(*whole.values(), *resumed.values())


def test_scores_of_transitions_are_log_probabilities(treebank: Path) -> None:
    settings = linear(system="arc-standard", templates=["s0.upos", "b0.upos"])
    train, dev = map(str, files(treebank, settings))
    data = prepare_data([train], dev, settings)
    task = LinearTransitionTask(data.config, data)
    for index in range(task.start_epoch(0)):
        task.learn(index, 1.0)
    weights = task.weights.average()
    factor = task.factor(weights)

    def loss(factor: float) -> float:
        """-log P(gold), summed, in a way of its own."""
        total = 0.0
        for rows, legal, gold in zip(*task._calibration, strict=True):
            scores = factor * sum(
                weights[row : row + len(legal)].astype(np.float64) for row in rows
            )
            total += np.log(np.exp(scores[legal]).sum()) - scores[gold]
        return total

    assert loss(factor) < min(loss(0.99 * factor), loss(1.01 * factor))
    assert factor != pytest.approx(1.0, rel=0.05)
    # in half precision, eleven bits
    (averages,) = task.averages().values()
    assert np.allclose(averages, weights * factor, rtol=2**-11, atol=2**-24)
    # nothing is learnt yet: there is nothing to tell a factor by
    assert task.factor(np.zeros_like(weights)) == 1.0


def test_scores_of_trees_are_log_probabilities(treebank: Path) -> None:
    settings = mst()
    train, dev = map(str, files(treebank, settings))
    data = prepare_data([train], dev, settings)
    # some gold trees that cannot win: if all won, the larger the factor, the better
    wrong = [
        (list(range(len(heads))) if place % 4 == 0 else heads, deprels)
        for place, (heads, deprels) in enumerate(data.dev.trees)
    ]
    data = dataclasses.replace(data, dev=dataclasses.replace(data.dev, trees=wrong))
    task, arrays = MiraTask(data.config, data), data.dev.arrays
    task.start_epoch(0)
    task.learn(0, 1.0)
    weights = task.weights.average()
    factor = task.factor(weights)
    scores = task._decoder_of(weights).arc_scores(arrays).astype(np.float64)

    def loss(factor: float) -> float:
        totals, _ = marginals(scores * factor, arrays.lengths, False)
        return float(totals.sum() - factor * scores[task._gold_arcs].sum())

    assert loss(factor) < min(loss(0.95 * factor), loss(1.05 * factor))
    # in half precision, as in the file
    expected = (weights * np.float32(factor)).astype(np.float16)
    assert np.array_equal(task.averages()[WEIGHTS], expected.astype(np.float32))
    # nothing is learnt yet: there is nothing to tell a factor by
    assert task.factor(np.zeros_like(weights)) == 1.0


def test_what_they_cannot_do_is_refused(treebank: Path, tmp_path: Path) -> None:
    assert implied({"model.classifier": "linear"}) == "linear"
    assert implied({"model.decoder": "graph", "model.classifier": "linear"}) == "mst"
    vectors, crf = tmp_path / "vectors.txt", {**preset("mst"), "learning": {"loss": "crf"}}
    for word, call in (
        ("reads no bilstm", lambda: linear(encoder="bilstm")),
        ("reads no bilstm", lambda: mst(encoder="bilstm")),
        ("loss", lambda: linear({"loss": "global"})),
        ("loss is crf", lambda: from_dict(ParserConfig, crf)),
        ("not read", lambda: trained(treebank, tmp_path / "p", linear(templates=["s0.shape"]))),
        ("has none", lambda: trained(treebank, tmp_path / "p", linear(), embeddings=vectors)),
    ):
        with pytest.raises(ConfigError, match=word):
            call()
    assert not (tmp_path / "p").exists()
