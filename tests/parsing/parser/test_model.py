"""The parser at work: its tables against the plain network, its directory, streaming."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from faults.attacks import reseal
from parsing.parser.tiny import LABELS, random_parser, random_sentences, tiny_config
from safetensors.numpy import load_file, save_file

from seqtool.core import checkpoint
from seqtool.core.arrays import Ints
from seqtool.core.errors import DataError, ModelError
from seqtool.parsing.parser import model
from seqtool.parsing.parser import stream as stream_module
from seqtool.parsing.parser.config import CHEN_MANNING
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.model import Parser
from seqtool.parsing.parser.transition import classifier
from seqtool.parsing.parser.transition.hidden_layer import SCALE, extract
from seqtool.parsing.parser.transition.task import ParserNetwork
from seqtool.parsing.parser.transition.transitions import SYSTEMS, Configurations
from seqtool.treebank.conllu import Broken
from seqtool.treebank.projectivity import LIFTED
from seqtool.treebank.sentence import DEPREL, FORM, HEAD, Sentence, find_fault

CHEN = {
    "fields": ["form", "upos"],
    "slots": list(CHEN_MANNING),
    "measures": [],
    "type_units": 0,
    "activation": "cube",
}


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
    "model",
    [{}, {"activation": "relu"}, CHEN, {"num_filters": 6}],
    ids=["glu", "relu", "cube", "characters"],
)
@pytest.mark.parametrize("system", list(SYSTEMS))
def test_the_tables_give_the_scores_of_the_plain_network(
    system: str, model: dict[str, Any]
) -> None:
    parser = random_parser(tiny_config(system, **model))
    network = network_of(parser).double()
    arrays = parser.encode(random_sentences(12, 9))
    parser.decoder.prepare(parser.types)
    scorer = parser.decoder.classifier.scorer(arrays.types)
    symbols = [torch.from_numpy(rows).long() for rows in parser.types.arrays()]
    compared = 0

    def check(batch: Configurations, which: Ints, scores: Any) -> None:
        nonlocal compared
        scorer(batch, which, scores)
        slots = parser.decoder.classifier.slots
        inputs = [torch.from_numpy(a).long() for a in extract(batch, which, arrays.types, slots)]
        vectors = network.type_vectors(*symbols)
        with torch.no_grad():
            expected = network(vectors, *inputs).numpy()
        # each of at most 43 rows is off by half a step of its table, times the output weights
        slack = 0.5 / SCALE * 43 * np.abs(parser.weights["output.weight"]).sum()
        # the steepest slope of an activation whose argument is below 5, and a gate's is no more
        slopes = {"relu": 1.0, "glu": 1.0 + 5.0 / 4.0, "cube": 3 * 25.0}
        slack *= slopes[parser.config.model.activation]
        np.testing.assert_allclose(scores, expected, rtol=0, atol=slack)
        assert float(np.abs(scores - expected).max()) < 0.05 * float(np.abs(expected).max())
        compared += len(which)

    from seqtool.parsing.parser.transition.search import search

    search(system, LABELS, arrays.tokens, arrays.lengths, len(arrays.types), check)
    assert compared > 50


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("encoder", ["none", "bilstm"])
def test_joined_parsers_go_by_the_mean_of_their_scores(encoder: str, beam: int) -> None:
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
    assert trees(first.ensemble([])) == trees(first)


def test_a_parser_forgets_its_types_without_those_it_is_joined_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = (random_parser(tiny_config(), seed=seed) for seed in (0, 1))
    together = first.ensemble([second])

    def trees(parser: Parser, seed: int) -> list[Any]:
        return list(parser.trees(parser.encode(random_sentences(20, 9, seed))))

    expected = trees(together, 1)
    trees(first, 2)
    monkeypatch.setattr(model, "TABLE_BYTES", 0)
    trees(first, 3)
    monkeypatch.undo()
    assert trees(together, 1) == expected


def test_parsers_that_say_other_things_are_not_joined() -> None:
    first = random_parser(tiny_config())
    for other in (
        random_parser(tiny_config(), Labels(("nsubj", "det", "obj"), ("root",))),
        random_parser(tiny_config("arc-eager")),
        random_parser(tiny_config(fields=["form", "upos"])),
    ):
        with pytest.raises(ModelError, match="different treebanks or settings"):
            first.ensemble([other])


@pytest.mark.parametrize("system", list(SYSTEMS))
@pytest.mark.parametrize("beam", [1, 3])
def test_every_sentence_gets_a_tree_and_keeps_the_rest(system: str, beam: int) -> None:
    parser = random_parser(tiny_config(system))
    sentences = random_sentences(30, 12)
    before = [[row[:HEAD] + row[DEPREL + 1 :] for row in s.rows] for s in sentences]
    parser.parse(sentences, beam=beam)
    for sentence, rows in zip(sentences, before, strict=True):
        assert find_fault(sentence.heads()) is None
        assert [row[:HEAD] + row[DEPREL + 1 :] for row in sentence.rows] == rows
        for head, deprel in zip(sentence.heads(), sentence.column(DEPREL), strict=True):
            assert (deprel == "root") == (head == 0)


def test_a_stream_is_parsed_in_chunks_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = random_parser(tiny_config())
    sentences = random_sentences(20, 9)
    parser.parse(sentences)
    expected = [sentence.to_conllu() for sentence in sentences]
    monkeypatch.setattr(stream_module, "CHUNK_WORDS", 12)
    broken = Broken("not CoNLL-U", DataError("nine columns"))
    taken = 0

    def items() -> Any:
        nonlocal taken
        for sentence in random_sentences(20, 9):
            taken += 1
            yield sentence
            if taken == 5:
                yield broken

    result = []
    for item in random_parser(tiny_config()).parse_stream(items()):
        result.append(item.to_conllu())
        # no more than a chunk is held
        assert taken - len(result) < 12
    assert result == [*expected[:5], "not CoNLL-U\n\n", *expected[5:]]


def test_forgotten_types_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = random_sentences(30, 9)
    parser = random_parser(tiny_config())
    parser.parse(sentences)
    expected = [sentence.to_conllu() for sentence in sentences]
    assert len(parser.types) > 8
    monkeypatch.setattr(model, "TABLE_BYTES", 1)
    monkeypatch.setattr(classifier, "BLOCK", 3)
    for sentence, text in zip(sentences, expected, strict=True):
        parser.parse([sentence])
        assert sentence.to_conllu() == text
        assert len(parser.types) <= 2 + len(sentence)


def test_lifted_arcs_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is parsed, words 1-3 of a chain get heads 0 1 1, and word 3 says that it was lifted.

    Its label asks for an obj, and the only one below word 1 is word 2.
    """
    labels = Labels(("obj", f"det{LIFTED}obj"), ("root",))
    parser = random_parser(tiny_config(), labels)
    sentences = random_sentences(40, 3, seed=1)
    sentence = next(s for s in sentences if len(s) == 3)

    def fixed(self: Parser, arrays: Any, **options: Any) -> tuple[Ints, Ints]:
        rows = np.asarray([-1, -1, 0, 1, 1], np.int32), np.asarray([-1, -1, 2, 0, 1], np.int32)
        return rows

    monkeypatch.setattr(Parser, "heads_and_labels", fixed)
    parser.parse([sentence])
    assert sentence.heads() == [0, 1, 2]
    assert sentence.column(DEPREL) == ["root", "obj", "det"]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    parser = random_parser(tiny_config(activation="cube", fields=["form", "feats"]))
    parser.save(tmp_path / "model", scores={"dev_las": 12.5}, data={"words": 7})
    return tmp_path / "model"


def test_a_saved_parser_parses_the_same(saved: Path) -> None:
    sentences, again = random_sentences(20, 9), random_sentences(20, 9)
    random_parser(tiny_config(activation="cube", fields=["form", "feats"])).parse(sentences)
    loaded = checkpoint.load(saved)
    assert loaded.kind == "parser"
    loaded.parse(again)
    assert [s.to_conllu() for s in again] == [s.to_conllu() for s in sentences]
    card = (saved / "README.md").read_text()
    assert "| dev las | 12.50 |" in card
    assert "form, feats" in card


def test_a_parser_that_does_not_fit_its_description(saved: Path) -> None:
    header = checkpoint.read_header(saved)
    header.config["model"]["hidden_size"] = 9
    header.config["model"]["slots"] = ["s0"]
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


def test_a_description_without_a_transition_system_is_damaged(saved: Path) -> None:
    header = checkpoint.read_header(saved)
    del header.config["model"]["system"]  # the default is to choose one in training
    checkpoint.amend(saved, header, "")
    with pytest.raises(ModelError, match="does not fit its own description"):
        checkpoint.load(saved)


def test_a_damaged_vocabulary_is_found(saved: Path, seqtool: Callable[..., Any]) -> None:
    path = saved / "vocabulary.json"
    path.write_text(path.read_text().replace("nsubj", "nsubk"))
    assert "damaged" in seqtool("inspect", saved).stderr
    content = json.loads(path.read_text())
    assert content["tables"]["root_labels"] == ["root"]


def test_words_of_no_known_symbol_parse() -> None:
    parser = random_parser(tiny_config())
    sentence = random_sentences(1, 1)[0]
    sentence.rows[0][FORM] = "𝄞" * 50
    parser.parse([sentence])
    assert sentence.heads() == [0]
    empty: list[Sentence] = []
    parser.parse(empty)
