"""The best trees of sentences, as sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

import pytest
from parsing.parser.references import is_tree
from parsing.parser.tiny import make_sentence, random_parser, random_sentences, tiny_config

from seqtool.core.errors import DataError
from seqtool.parsing.parser import parser as parser_module
from seqtool.parsing.pipeline.model import Pipeline
from seqtool.treebank.conllu import Broken
from seqtool.treebank.sentence import DEPREL, UPOS, Sentence


def test_the_best_trees_of_a_sentence() -> None:
    parser = random_parser(tiny_config("arc-hybrid"))
    sentences = random_sentences(20, 8)
    sentences[0].comments += [
        "# newdoc id = d",
        "#newpar",
        "# sent_id = a",
        "# parse_score = 7",
        "# parse_rank=9",
    ]
    before = [sentence.to_conllu() for sentence in sentences]
    groups = list(parser.nbest(sentences, 5, beam=2))
    assert [sentence.to_conllu() for sentence in sentences] == before
    ranked = parser.ranked(parser.encode(sentences), 5, beam=2)
    for sentence, group, trees in zip(sentences, groups, ranked, strict=True):
        assert isinstance(group, list)
        assert 1 <= len(group) <= 5
        assert [tree.metadata["parse_rank"] for tree in group] == [
            str(rank) for rank in range(1, len(group) + 1)
        ]
        scores = [float(tree.metadata["parse_score"] or "nan") for tree in group]
        assert scores == sorted(scores, reverse=True)
        assert scores == pytest.approx([tree.score for tree in trees], abs=0.0001)
        found = [(tuple(tree.heads()), tuple(tree.column(DEPREL))) for tree in group]
        assert len(set(found)) == len(found)
        assert all(is_tree(heads) for heads, _ in found)
        assert found == [(tuple(tree.heads), tuple(tree.deprels)) for tree in trees]
        assert all(tree.column(1) == sentence.column(1) for tree in group)
    first = groups[0]
    assert isinstance(first, list)
    assert first[0].comments[:3] == ["# newdoc id = d", "#newpar", "# sent_id = a"]
    assert len(first[0].comments) == 5
    # a document begins once
    assert [tree.comments[0] for tree in first[1:]] == ["# sent_id = a"] * (len(first) - 1)
    assert max(map(len, groups)) == 5  # type: ignore[arg-type]


def test_one_tree_is_the_one_that_is_parsed() -> None:
    parser = random_parser(tiny_config("swap"))
    sentences = random_sentences(20, 8)
    best = [group[0] for group in parser.nbest(sentences, 1, beam=4) if isinstance(group, list)]
    parser.parse(sentences, beam=4)
    assert [tree.rows for tree in best] == [sentence.rows for sentence in sentences]


def test_chunks_and_broken_sentences_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = random_parser(tiny_config())
    broken = Broken("1\tx", DataError("no columns", hint="fix it"))
    sentences = random_sentences(9, 8)
    items = [broken, *sentences[:4], broken, *sentences[4:], broken]
    expected = list(parser.nbest(items, 2))
    monkeypatch.setattr(parser_module, "RANKED_WORDS", 5)
    assert list(parser.nbest(items, 2)) == expected
    places = [place for place, item in enumerate(expected) if isinstance(item, Broken)]
    assert places == [0, 5, 11]
    assert list(parser.nbest([], 2)) == []


def test_what_is_no_sentence_is_refused() -> None:
    parser = random_parser(tiny_config())
    with pytest.raises(TypeError, match="expected sentences"):
        list(parser.nbest(["text"], 2))  # type: ignore[list-item]
    with pytest.raises(DataError, match="has UPOS"):
        list(parser.nbest([make_sentence([("a", "_"), ("B", "_")])], 2))


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
    tagged = [sentence.copy() for sentence in sentences]
    for sentence in Reader().tag_stream(tagged, retag=retag):
        assert isinstance(sentence, Sentence)

    def given() -> list[Sentence]:
        return [sentence.copy() for sentence in sentences]

    assert list(nlp.nbest(given(), 3, beam=2, retag=retag)) == list(parser.nbest(tagged, 3, beam=2))
    expected = [parser.trace(sentence, beam=2) for sentence in tagged]
    assert list(nlp.traces(given(), beam=2, retag=retag)) == expected
    before = sentences[0].to_conllu()
    assert nlp.trace(sentences[0], beam=2, retag=retag) == expected[0]
    assert sentences[0].to_conllu() == before
    (doc,) = nlp.pipe([given()[:1]], retag=retag, scores=True)
    scored = parser(tagged[:1], scores=True)
    assert [token.score for token in doc.words] == [token.score for token in scored.words]
    assert not nlp.is_calibrated
