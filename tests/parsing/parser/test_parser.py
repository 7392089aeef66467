"""The parser at work: tables of its network, k-best trees, streams, its directory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from faults.attacks import reseal
from parsing.parser.references import is_tree
from parsing.parser.tiny import LABELS, make_sentence, random_parser, random_sentences, tiny_config
from parsing.tagger.toy import random_tagger
from safetensors.numpy import load_file, save_file

from seqtool.core import checkpoint
from seqtool.core.arrays import Ints
from seqtool.core.checkpoint import Header
from seqtool.core.config import from_dict, set_value, to_dict
from seqtool.core.errors import DataError, ModelError
from seqtool.parsing.model import in_chunks
from seqtool.parsing.parser import parser as parser_module
from seqtool.parsing.parser.config import CHEN_MANNING, PRESETS, ParserConfig
from seqtool.parsing.parser.families import settings_read
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.parser import Parser
from seqtool.parsing.parser.transition.hidden_layer import SCALE, extract
from seqtool.parsing.parser.transition.search import search
from seqtool.parsing.parser.transition.task import ParserNetwork
from seqtool.parsing.parser.transition.transitions import SYSTEMS, Configurations
from seqtool.parsing.pipeline.model import Pipeline
from seqtool.treebank.conllu import Broken
from seqtool.treebank.sentence import DEPREL, FORM, Sentence

CHEN = {
    "fields": ["form", "upos"],
    "slots": list(CHEN_MANNING),
    "measures": [],
    "type_units": 0,
    "activation": "cube",
}
LSTM = {"encoder": "bilstm", "encoder_size": 4, "context_units": 3}
GRAPH = {"decoder": "graph", "encoder": "bilstm", "trees": "all"}
GRAPH |= {"encoder_size": 4, "arc_size": 6, "relation_size": 3}
BROKEN = Broken("not CoNLL-U", DataError("nine columns"))


def network_of(parser: Parser) -> ParserNetwork:
    types = parser.types
    network = ParserNetwork(
        parser.config.model,
        types.lexical.num_symbols,
        types.tags.num_symbols,
        len(parser.labels),
        parser.labels.num_transitions,
        num_characters=types.num_characters,
    )
    network.load_state_dict({k: torch.from_numpy(v) for k, v in parser.weights.items()})
    return network


@pytest.mark.parametrize(
    ("system", "model"),
    [
        *itertools.product(SYSTEMS, [{}, {"num_filters": 6}]),
        ("swap", {"activation": "relu"}),
        ("arc-standard", CHEN),
    ],
)
def test_the_tables_give_the_scores_of_the_plain_network(
    system: str, model: dict[str, Any]
) -> None:
    parser = random_parser(tiny_config(system, **model))
    network = network_of(parser).double()
    arrays = parser.encode(random_sentences(12, 9))
    parser.prepare()
    classifier: Any = parser.decoder.classifier  # type: ignore[attr-defined]
    scorer = classifier.scorer(arrays.types)
    symbols = [torch.from_numpy(rows).long() for rows in parser.types.arrays()]
    compared = 0

    def check(batch: Configurations, which: Ints, scores: Any) -> None:
        nonlocal compared
        scorer(batch, which, scores)
        inputs = extract(batch, which, arrays.types, classifier.slots)
        vectors = network.type_vectors(*symbols)
        with torch.no_grad():
            expected = network(vectors, *(torch.from_numpy(a).long() for a in inputs)).numpy()
        # each of at most 43 rows is off by half a step of its table, times the output weights
        slack = 0.5 / SCALE * 43 * np.abs(parser.weights["output.weight"]).sum()
        # the steepest slope of an activation whose argument is below 5, and a gate's is no more
        slopes = {"relu": 1.0, "glu": 1.0 + 5.0 / 4.0, "cube": 3 * 25.0}
        slack *= slopes[parser.config.model.activation]
        np.testing.assert_allclose(scores, expected, rtol=0, atol=slack)
        assert float(np.abs(scores - expected).max()) < 0.05 * float(np.abs(expected).max())
        compared += len(which)

    search(system, LABELS, arrays.tokens, arrays.lengths, len(arrays.types), check)
    assert compared > 50


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("model", [{}, LSTM, GRAPH], ids=["", "lstm", "graph"])
def test_ensembles_go_by_the_mean_of_their_scores(model: dict[str, Any], beam: int) -> None:
    """Scores are linear in the output layer: where only that differs, its mean gives the mean."""
    first = random_parser(tiny_config(**model))
    layers = ("arcs", "relations", "labels") if "decoder" in model else ("output",)
    names = [name for name in first.weights if name.startswith(layers)]
    outputs = [random_parser(first.config, seed=seed).weights for seed in (0, 1, 2)]

    def with_outputs(arrays: dict[str, Any]) -> Parser:
        return Parser(first.config, first.types, LABELS, {**first.weights, **arrays})

    members = [with_outputs({name: of[name] for name in names}) for of in outputs]
    means = {name: np.mean([of[name] for of in outputs], axis=0) for name in names}

    def trees(parser: Parser) -> list[Any]:
        return list(parser.trees(parser.encode(random_sentences(30, 12)), beam=beam))

    together = trees(members[0].ensemble(members[1:]))
    assert together == trees(with_outputs(means))
    assert together == trees(members[0].ensemble([members[1]]).ensemble([members[2]]))
    assert all(together != trees(member) for member in members)
    for config, labels in (
        (first.config, Labels(("nsubj", "det", "obj"), ("root",))),
        (tiny_config("arc-eager"), LABELS),
        (tiny_config(**{**model, "fields": ["form", "upos"]}), LABELS),
    ):
        with pytest.raises(ModelError, match="different treebanks or settings"):
            first.ensemble([random_parser(config, labels)])


def test_a_stream_is_parsed_in_chunks_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = random_parser(tiny_config())
    expected = random_sentences(20, 9)
    parser.parse(expected)
    monkeypatch.setattr(parser_module, "PARSED_WORDS", 12)
    num_taken = 0

    def items() -> Iterator[Sentence | Broken]:
        nonlocal num_taken
        sentences: list[Any] = random_sentences(20, 9)
        for item in [*sentences[:5], BROKEN, *sentences[5:]]:
            num_taken += 1
            yield item

    result = []
    for item in random_parser(tiny_config()).parse_stream(items()):
        result.append(item)
        assert num_taken - len(result) < 12  # no more than a chunk is held
    assert result == [*expected[:5], BROKEN, *expected[5:]]


def test_runs_of_broken_sentences_are_passed_on() -> None:
    sentences = random_sentences(12, 1)
    broken = Broken("x\nx", DataError("nine columns"))
    items = [*sentences[:3], *[broken] * 100, *sentences[3:]]
    worked: list[Sentence] = []
    num_taken = 0

    def taken() -> Iterator[Sentence | Broken]:
        nonlocal num_taken
        for item in items:
            num_taken += 1
            yield item

    for place, item in enumerate(in_chunks(taken(), 5, worked.extend)):
        assert item is items[place]
        assert num_taken - place <= 2 * 5  # 4 words and 2 broken ones fill no chunk
    assert worked == sentences


def test_the_best_trees_of_a_sentence() -> None:
    parser = random_parser(tiny_config("arc-hybrid"))
    sentences = random_sentences(20, 8)
    sentences[0].comments += ["# newdoc id = d", "#newpar", "# sent_id = a", "# parse_score = 7"]
    before = [sentence.to_conllu() for sentence in sentences]
    groups = cast(list[list[Sentence]], list(parser.nbest(sentences, 5, beam=2)))
    assert [sentence.to_conllu() for sentence in sentences] == before
    ranked = parser.ranked(parser.encode(sentences), 5, beam=2)
    for sentence, group, trees in zip(sentences, groups, ranked, strict=True):
        ranks = [tree.metadata["parse_rank"] for tree in group]
        assert ranks == [str(rank) for rank in range(1, len(group) + 1)]
        scores = [float(tree.metadata["parse_score"] or "nan") for tree in group]
        assert scores == sorted(scores, reverse=True)
        assert scores == pytest.approx([tree.score for tree in trees], abs=0.0001)
        found = [(tuple(tree.heads()), tuple(tree.column(DEPREL))) for tree in group]
        assert len(set(found)) == len(found) <= 5
        assert all(is_tree(heads) for heads, _ in found)
        assert found == [(tuple(tree.heads), tuple(tree.deprels)) for tree in trees]
        assert all(tree.column(FORM) == sentence.column(FORM) for tree in group)
    first, *others = groups[0]
    assert first.comments[:3] == ["# newdoc id = d", "#newpar", "# sent_id = a"]
    assert len(first.comments) == 5
    assert {tree.comments[0] for tree in others} == {"# sent_id = a"}  # a document begins once
    assert max(map(len, groups)) == 5


def test_best_trees_and_broken_sentences_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    parser, sentences = random_parser(tiny_config()), random_sentences(9, 8)
    items = [BROKEN, *sentences[:4], BROKEN, *sentences[4:], BROKEN]
    expected = list(parser.nbest(items, 2))
    monkeypatch.setattr(parser_module, "RANKED_WORDS", 5)
    assert list(parser.nbest(items, 2)) == expected
    assert [place for place, item in enumerate(expected) if item is BROKEN] == [0, 5, 11]
    assert list(parser.nbest([], 2)) == []
    with pytest.raises(TypeError, match="expected sentences"):
        list(parser.nbest(["text"], 2))  # type: ignore[list-item]
    with pytest.raises(DataError, match="has UPOS"):
        list(parser.nbest([make_sentence([("a", "_"), ("B", "_")])], 2))


@pytest.mark.parametrize("retag", [False, True])
def test_a_pipeline_tags_first(retag: bool) -> None:
    parser, tagger = random_parser(tiny_config("arc-eager")), random_tagger()
    nlp = Pipeline(cast(Any, None), tagger, parser)
    sentences = [make_sentence([("a", "_"), ("B", "Y"), ("cc", "_")]) for _ in range(3)]
    tagged: Any = list(tagger.tag_stream([one.copy() for one in sentences], retag=retag))

    def given() -> list[Sentence]:
        return [sentence.copy() for sentence in sentences]

    assert list(nlp.nbest(given(), 3, beam=2, retag=retag)) == list(parser.nbest(tagged, 3, beam=2))
    expected = [parser.trace(sentence, beam=2) for sentence in tagged]
    assert list(nlp.traces(given(), beam=2, retag=retag)) == expected
    assert nlp.trace(sentences[0], beam=2, retag=retag) == expected[0]
    assert sentences == given()
    (doc,) = nlp.pipe([given()[:1]], retag=retag, scores=True)
    scored = parser(tagged[:1], scores=True)
    assert [token.score for token in doc.words] == [token.score for token in scored.words]
    assert not nlp.is_calibrated


def test_a_saved_parser_parses_the_same_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    parser, path = random_parser(tiny_config(activation="cube")), tmp_path / "model"
    parser.save(path, scores={"dev_las": 12.5}, data={"words": 7})
    sentences, again = random_sentences(20, 9), random_sentences(20, 9)
    parser.parse(sentences)
    checkpoint.load(path, Parser).parse(again)
    assert again == sentences
    assert "| dev las | 12.50 |" in (path / "README.md").read_text()
    # compiled code takes one type of an array only; bytes are the bits of a tagger alone
    weights = load_file(path / "weights.safetensors")
    name = next(iter(weights))
    save_file({**weights, name: weights[name].astype(np.uint8)}, path / "weights.safetensors")
    reseal(path)
    with pytest.raises(ModelError, match="does not fit"):
        checkpoint.load(path)
    save_file(weights, path / "weights.safetensors")
    reseal(path)
    header = checkpoint.read_header(path)
    header.config["model"]["hidden_size"] = 9
    checkpoint.amend(path, header, "")
    with pytest.raises(ModelError, match="does not fit"):
        checkpoint.load(path)


TEACHERS, TAGS = {"teachers": "a"}, {"predicted_tags": True}


@pytest.mark.parametrize(
    ("preset", "changes", "data", "own", "others"),
    [
        ("fast", {}, {}, "slots oracle exploration mark_lifted", "encoder_size trees"),
        ("accurate", {}, {}, "slots head_weight", "arc_size"),
        ("graph", {}, {}, "arc_size second_order", "slots system head_weight"),
        ("graph", {}, TAGS, "head_weight", ""),
        ("linear", {}, {}, "templates exploration", "slots trees"),
        ("mst", {}, {}, "trees learning_rate", "templates arc_size"),
        # a static oracle explores nothing, and the swap system has no other
        ("chen-manning", {}, {}, "oracle optimiser", "exploration"),
        ("fast", {"learning.oracle": "static"}, {}, "", "exploration"),
        ("fast", {"model.system": "swap"}, {}, "", "exploration mark_lifted"),
        ("fast", {}, TEACHERS, "teacher_weight", ""),
        ("linear", {}, TEACHERS, "taught_words", "teacher_weight"),
        ("mst", {"model.trees": "projective"}, {}, "mark_lifted", ""),
        ("mst", {"model.trees": "all"}, {}, "", "mark_lifted"),
    ],
)
def test_a_family_has_settings_of_its_own(
    preset: str, changes: dict[str, str], data: dict[str, Any], own: str, others: str
) -> None:
    settings = to_dict(from_dict(ParserConfig, PRESETS.settings(preset)))
    for setting, value in changes.items():
        set_value(ParserConfig, settings, setting, value)
    sections = settings_read(Header("parser", settings, {}, data=data))
    shown = {name for values in sections.values() for name in values}
    assert {*own.split(), "fields", "epochs"} <= shown
    hidden = {*others.split(), "global_beam"} | (set() if data else {"taught_words"})
    assert not hidden & shown
