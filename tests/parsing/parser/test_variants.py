"""Variants of sentences: what may change, what stays, by hand and by what all of them keep."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_trees import trees

from seqtool.parsing.parser.config import VARIANT
from seqtool.parsing.parser.distillation import OPEN_CLASSES, variants
from seqtool.text.datasets import sample_treebank
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.sentence import (
    DEPREL,
    FEATS,
    FORM,
    HEAD,
    LEMMA,
    UPOS,
    XPOS,
    Sentence,
    find_fault,
    parse_sentence,
)  # fmt: skip


def sentence_of(lines: str) -> Sentence:
    rows = ["\t".join([*line.split(" "), "_", "_"]) for line in lines.splitlines()]
    return parse_sentence("\n".join(rows), "file", 1, "tree")


def test_a_word_gives_way_to_one_with_its_tags() -> None:
    """The commoner a word is, the more often it comes; sentences begin with a capital."""
    verbs = "1 Go go VERB _ _ 0 root\n2 and and CCONJ _ _ 3 cc\n3 {0} {0} VERB _ _ 1 conj\n"
    treebank = [sentence_of(verbs.format(word)) for word in [*["eat"] * 16, "dig"]]
    made = list(variants(treebank, 300, 1, words=1.0))
    assert {row[FORM] for item in made for row in item.rows[:1]} == {"Eat", "Dig"}
    assert {item.rows[1][FORM] for item in made} == {"and"}
    counts = Counter((item.rows[2][FORM], item.rows[2][LEMMA]) for item in made)
    assert counts.keys() == {("eat", "eat"), ("dig", "dig")}
    # 16 to the power of 0.75 is 8
    assert counts["dig", "dig"] / len(made) == pytest.approx(1 / 9, abs=0.02)


def tags_of(row: list[str]) -> tuple[str, ...]:
    return row[UPOS], row[XPOS], row[FEATS]


def arcs_of(sentence: Sentence) -> set[tuple[Any, ...]]:
    """Of each arc the tags of its ends, its label, and its direction."""
    found = set()
    for number, row in enumerate(sentence.rows, 1):
        head = int(row[HEAD])
        above = tags_of(sentence.rows[head - 1]) if head else ()
        found.add((above, tags_of(row), row[DEPREL], head < number))
    return found


def check_kept(treebank: list[Sentence], made: list[Sentence], num: int) -> None:
    """Variants have trees, of arcs and words that the treebank has."""
    assert len(made) == num * len(treebank)
    arcs = set().union(*map(arcs_of, treebank))
    words = {(row[FORM].lower(), row[LEMMA], *tags_of(row)) for s in treebank for row in s.rows}
    for sentence in made:
        assert find_fault(sentence.heads()) is None
        assert [row[0] for row in sentence.rows] == [str(i + 1) for i in range(len(sentence))]
        assert arcs_of(sentence) <= arcs
        assert {(row[FORM].lower(), row[LEMMA], *tags_of(row)) for row in sentence.rows} <= words
        assert sentence.comments == [VARIANT]
        assert not sentence.extras


@pytest.mark.parametrize("language", ["en", "ko"])
def test_arcs_and_words_are_those_of_the_treebank(language: str) -> None:
    treebank = list(read_conllu(sample_treebank(language)))[:300]
    made = list(variants(treebank, 2, 1, words=0.5))
    check_kept(treebank, made, 2)
    # closed classes stay, others change; the root never does
    changed = sum(one.rows != other.rows for one, other in zip(treebank, made[:300], strict=True))
    assert changed > 150
    for one, other in zip([*treebank, *treebank], made, strict=True):
        assert tags_of(one.root.columns) == tags_of(other.root.columns)  # type: ignore[union-attr]
    assert [s.rows for s in variants(treebank, 2, 1, words=0.5)] == [s.rows for s in made]
    assert [s.rows for s in variants(treebank, 2, 2, words=0.5)] != [s.rows for s in made]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_trees_stay_trees(data: st.DataObject) -> None:
    """Crossing arcs too."""
    treebank = []
    for heads in data.draw(st.lists(trees(), min_size=1, max_size=4)):
        tags = data.draw(
            st.lists(
                st.sampled_from(["NOUN", "VERB", "PRON", "DET"]),
                min_size=len(heads),
                max_size=len(heads),
            )
        )
        rows = [
            [str(i), f"{tag}{i}", f"{tag}{i}", tag, "_", "_", str(head), "dep", "_", "_"]
            for i, (tag, head) in enumerate(zip(tags, heads, strict=True), 1)
        ]
        treebank.append(Sentence([], rows, []))
    before = [[list(row) for row in sentence.rows] for sentence in treebank]
    made = list(variants(treebank, 3, 1, words=0.5))
    assert [sentence.rows for sentence in treebank] == before
    has_open = any(row[UPOS] in OPEN_CLASSES for sentence in treebank for row in sentence.rows)
    check_kept(treebank, made, 3 if has_open else 0)


def test_without_tags_there_are_none() -> None:
    verb = sentence_of("1 Go go VERB _ _ 0 root")
    assert not list(variants([verb], 0, 1, words=0.5))
    verb.rows[0][UPOS] = "_"
    assert not list(variants([verb], 3, 1, words=0.5))
