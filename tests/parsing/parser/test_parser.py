"""The parser at work: tables of its network, k-best trees, streams, its directory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from faults.attacks import reseal
from parsing.parser.references import is_tree
from parsing.parser.tiny import LABELS, make_sentence, random_parser, random_sentences, tiny_config
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
from seqtool.treebank.projectivity import LIFTED
from seqtool.treebank.sentence import DEPREL, FORM, HEAD, UPOS, Sentence, find_fault

CHEN = {
    "fields": ["form", "upos"],
    "slots": list(CHEN_MANNING),
    "measures": [],
    "type_units": 0,
    "activation": "cube",
}
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
@pytest.mark.parametrize("encoder", ["none", "bilstm"])
def test_ensembles_go_by_the_mean_of_their_scores(encoder: str, beam: int) -> None:
    """Scores are linear in the output layer: where only that differs, its mean gives the mean."""
    first = random_parser(tiny_config(encoder=encoder, encoder_size=4, context_units=3))
    names = ("output.weight", "output.bias")
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


@pytest.mark.parametrize(
    ("config", "labels"),
    [
        (tiny_config(), Labels(("nsubj", "det", "obj"), ("root",))),
        (tiny_config("arc-eager"), LABELS),
        (tiny_config(fields=["form", "upos"]), LABELS),
    ],
)
def test_parsers_of_other_treebanks_are_no_ensemble(config: ParserConfig, labels: Labels) -> None:
    with pytest.raises(ModelError, match="different treebanks or settings"):
        random_parser(tiny_config()).ensemble([random_parser(config, labels)])


@pytest.mark.parametrize("system", list(SYSTEMS))
@pytest.mark.parametrize("beam", [1, 3])
def test_every_sentence_gets_a_tree_and_keeps_the_rest(system: str, beam: int) -> None:
    sentences = random_sentences(30, 12)
    before = [[row[:HEAD] + row[DEPREL + 1 :] for row in s.rows] for s in sentences]
    random_parser(tiny_config(system)).parse(sentences, beam=beam)
    for sentence, rows in zip(sentences, before, strict=True):
        assert find_fault(sentence.heads()) is None
        assert [row[:HEAD] + row[DEPREL + 1 :] for row in sentence.rows] == rows
        for head, deprel in zip(sentence.heads(), sentence.column(DEPREL), strict=True):
            assert (deprel == "root") == (head == 0)


def test_words_of_no_known_symbol_parse() -> None:
    sentence = random_sentences(1, 1)[0]
    sentence.rows[0][FORM] = "𝄞" * 50
    random_parser(tiny_config()).parse([sentence])
    assert sentence.heads() == [0]


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


def test_forgotten_types_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of the parser nor of an ensemble that it is in."""
    first, second = (random_parser(tiny_config(), seed=seed) for seed in (0, 1))
    for parser in (first, first.ensemble([second])):
        expected = random_sentences(30, 9)
        parser.parse(expected)
        with monkeypatch.context() as patched:
            patched.setattr(parser_module, "TABLE_BYTES", 1)
            for sentence in expected:
                again = sentence.copy()
                parser.parse([again])
                assert again == sentence
                assert len(parser.types) <= 2 + len(sentence)
            first.parse(random_sentences(30, 9, 2))


@pytest.mark.parametrize("which", ["parser", "encoder"])
def test_traces_stay_while_others_are_parsed(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parser_module, "GROUP_ARCS", 1)
    sizes = {"encoder": "bilstm", "encoder_size": 4} if which == "encoder" else {}
    parser = random_parser(tiny_config(**sizes))
    for name in parser.weights:
        if name.startswith(("contexts", "bottleneck")):
            parser.weights[name] *= 5  # so that the context counts
    parser = parser.copy()
    sentences, others = random_sentences(10, 12, seed=1), random_sentences(10, 12, seed=2)
    expected = [trace.sentence.heads() for trace in parser.traces(sentences)]  # type: ignore[union-attr]
    assert expected == [trees[0].heads() for trees in parser.nbest(sentences, 1)]  # type: ignore[index]
    both = zip(parser.traces(sentences), parser.traces(others), strict=True)
    assert [trace.sentence.heads() for trace, _ in both] == expected  # type: ignore[union-attr]
    monkeypatch.setattr(parser_module, "TABLE_BYTES", 0)
    for number, trace in enumerate(parser.traces(sentences)):
        assert trace.sentence.heads() == expected[number]  # type: ignore[union-attr]
        parser.parse([make_sentence([(f"new{number}", "X")])])


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


def test_one_tree_is_the_one_that_is_parsed() -> None:
    parser, sentences = random_parser(tiny_config("swap")), random_sentences(20, 8)
    best = [group[0] for group in parser.nbest(sentences, 1, beam=4) if isinstance(group, list)]
    parser.parse(sentences, beam=4)
    assert [tree.rows for tree in best] == [sentence.rows for sentence in sentences]


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


def test_lifted_arcs_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is parsed, words 1-3 of a chain get heads 0 1 1, and word 3 says that it was lifted.

    Its label asks for an obj, and the only one below word 1 is word 2.
    """
    parser = random_parser(tiny_config(), Labels(("obj", f"det{LIFTED}obj"), ("root",)))
    sentence = make_sentence([("a", "X")] * 3)

    def fixed(arrays: Any, **options: Any) -> tuple[Ints, Ints]:
        return np.asarray([-1, -1, 0, 1, 1], np.int32), np.asarray([-1, -1, 2, 0, 1], np.int32)

    monkeypatch.setattr(parser.decoder, "decode", fixed)
    parser.parse([sentence])
    assert sentence.heads() == [0, 1, 2]
    assert sentence.column(DEPREL) == ["root", "obj", "det"]


class Reader:
    """Stands for the tagger of a pipeline: it gives every word without a tag the tag X."""

    def tag_stream(
        self, items: Iterable[Sentence | Broken], *, retag: bool = False
    ) -> Iterator[Sentence | Broken]:
        for item in items:
            for row in item.rows if isinstance(item, Sentence) else []:
                row[UPOS] = "X" if retag or row[UPOS] == "_" else row[UPOS]
            yield item


@pytest.mark.parametrize("retag", [False, True])
def test_a_pipeline_tags_first(retag: bool) -> None:
    parser = random_parser(tiny_config("arc-eager"))
    nlp = Pipeline(cast(Any, None), cast(Any, Reader()), parser)
    sentences = [make_sentence([("a", "_"), ("B", "Y"), ("cc", "_")]) for _ in range(3)]
    tagged: Any = list(Reader().tag_stream([one.copy() for one in sentences], retag=retag))

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


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    parser = random_parser(tiny_config(activation="cube", fields=["form", "feats"]))
    parser.save(tmp_path / "model", scores={"dev_las": 12.5}, data={"words": 7})
    return tmp_path / "model"


def test_a_saved_parser_parses_the_same(saved: Path) -> None:
    sentences, again = random_sentences(20, 9), random_sentences(20, 9)
    random_parser(tiny_config(activation="cube", fields=["form", "feats"])).parse(sentences)
    loaded = checkpoint.load(saved, Parser)
    loaded.parse(again)
    assert again == sentences
    card = (saved / "README.md").read_text()
    assert "| dev las | 12.50 |" in card
    assert "form, feats" in card


def test_a_parser_that_does_not_fit_its_description(saved: Path) -> None:
    header = checkpoint.read_header(saved)
    header.config["model"]["hidden_size"] = 9
    checkpoint.amend(saved, header, "")
    with pytest.raises(ModelError, match="does not fit"):
        checkpoint.load(saved)


def test_weights_of_another_type_are_damaged(saved: Path) -> None:
    """Compiled code takes one type of an array only; bytes are the bits of a tagger alone."""
    weights = load_file(saved / "weights.safetensors")
    name = next(iter(weights))
    save_file({**weights, name: weights[name].astype(np.uint8)}, saved / "weights.safetensors")
    reseal(saved)
    with pytest.raises(ModelError, match="does not fit its own description"):
        checkpoint.load(saved)


def test_a_damaged_vocabulary_is_found(saved: Path, seqtool: Callable[..., Any]) -> None:
    path = saved / "vocabulary.json"
    path.write_text(path.read_text().replace("nsubj", "nsubk"))
    assert "damaged" in seqtool("inspect", saved).stderr


def shown_settings(preset: str, changes: dict[str, str], data: dict[str, Any]) -> set[str]:
    settings = to_dict(from_dict(ParserConfig, PRESETS.settings(preset)))
    for setting, value in changes.items():
        set_value(ParserConfig, settings, setting, value)
    sections = settings_read(Header("parser", settings, {}, data=data))
    return {f"{section}.{name}" for section, values in sections.items() for name in values}


@pytest.mark.parametrize(
    ("preset", "own", "others"),
    [
        ("fast", ["model.slots", "learning.oracle"], ["model.encoder_size", "model.trees"]),
        ("accurate", ["model.slots", "learning.head_weight"], ["model.arc_size"]),
        ("graph", ["model.arc_size", "model.second_order"], ["model.slots", "model.system"]),
        ("linear", ["model.templates", "learning.exploration"], ["model.slots", "model.trees"]),
        ("mst", ["model.trees", "training.learning_rate"], ["model.templates", "model.arc_size"]),
        # a static oracle explores nothing, and the swap system has no other
        ("chen-manning", ["learning.oracle", "training.optimiser"], ["learning.exploration"]),
    ],
)
def test_a_family_has_settings_of_its_own(preset: str, own: list[str], others: list[str]) -> None:
    shown = shown_settings(preset, {}, {})
    assert {*own, "model.fields", "training.epochs"} <= shown
    assert not {*others, "learning.global_beam", "learning.taught_words"} & shown


@pytest.mark.parametrize(
    ("preset", "changes", "data", "name", "is_read"),
    [
        ("fast", {"model.system": "swap"}, {}, "learning.exploration", False),
        ("fast", {"learning.oracle": "static"}, {}, "learning.exploration", False),
        ("linear", {}, {"teachers": "a"}, "learning.taught_words", True),
        ("fast", {}, {"teachers": "a"}, "learning.teacher_weight", True),
        ("linear", {}, {"teachers": "a"}, "learning.teacher_weight", False),
        ("graph", {}, {}, "learning.head_weight", False),
        ("graph", {}, {"predicted_tags": True}, "learning.head_weight", True),
        ("fast", {}, {}, "learning.mark_lifted", True),
        ("fast", {"model.system": "swap"}, {}, "learning.mark_lifted", False),
        ("mst", {"model.trees": "projective"}, {}, "learning.mark_lifted", True),
        ("mst", {"model.trees": "all"}, {}, "learning.mark_lifted", False),
    ],
)
def test_what_decides_whether_a_setting_counts(
    preset: str, changes: dict[str, str], data: dict[str, Any], name: str, is_read: bool
) -> None:
    assert (name in shown_settings(preset, changes, data)) == is_read
