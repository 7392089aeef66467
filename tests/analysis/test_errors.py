from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqtool.analysis.errors import LENGTHS, analyse, arcs_of
from seqtool.treebank.evaluation import evaluate_parser
from seqtool.treebank.projectivity import is_projective
from seqtool.treebank.sentence import Sentence, find_fault

RELATIONS = ("nsubj", "obj", "obl:tmod", "det")


def trees(generator: np.random.Generator, words: int) -> list[int]:
    """Return heads of any tree."""
    while True:
        heads = generator.integers(0, words + 1, size=words).tolist()
        if heads.count(0) == 1 and find_fault(heads) is None:
            return heads


def sentence_of(heads: list[int], relations: list[str]) -> Sentence:
    rows = [
        [str(i), f"w{i}", "_", "X", "_", "_", str(head), relation, "_", "_"]
        for i, (head, relation) in enumerate(zip(heads, relations, strict=True), start=1)
    ]
    return Sentence([], rows, [])


def treebank(seed: int, sizes: list[int]) -> list[Sentence]:
    generator = np.random.default_rng(seed)
    found = []
    for size in sizes:
        heads = trees(generator, size)
        relations = ["root" if not head else str(generator.choice(RELATIONS)) for head in heads]
        found.append(sentence_of(heads, relations))
    return found


class FakeParser:
    """Gives the trees of another treebank."""

    def __init__(self, sentences: list[Sentence]) -> None:
        self.sentences = sentences

    def parse_stream(self, items: Any, *, beam: int = 1) -> Any:
        for item, parsed in zip(items, self.sentences, strict=True):
            item.set_tree(parsed.heads(), parsed.column(7))
            yield item


SIZES = [1, 3, 4, 5, 6, 6, 7, 7, 8, 5, 4, 6]
GOLD, FIRST, SECOND = (treebank(seed, SIZES) for seed in (1, 2, 3))


@pytest.fixture
def gold(tmp_path: Path) -> Path:
    path = tmp_path / "gold.conllu"
    path.write_text("".join(sentence.to_conllu() for sentence in GOLD), encoding="utf-8")
    return path


def all_words(sentences: list[Sentence]) -> list[tuple[int, int, int, str]]:
    """(sentence, word, head, relation without subtype) of every word."""
    return [
        (number, word, head, relation.partition(":")[0])
        for number, sentence in enumerate(sentences)
        for word, (head, relation) in enumerate(
            zip(sentence.heads(), sentence.column(7), strict=True), start=1
        )
    ]


def test_figures_are_those_of_the_scorer(gold: Path, tmp_path: Path) -> None:
    report = analyse([("a", FakeParser(FIRST))], gold)
    scores = evaluate_parser(str(gold), FIRST)
    assert report.values["LAS"]["a"] == pytest.approx(scores["LAS"].f1)
    for name, score in scores.relations.items():
        if score.gold:
            assert report.values["relations"][name]["a"] == pytest.approx(score.f1)
    found = {(one["gold"], one["predicted"]): one["words"] for one in
             report.values["confusions"]["a"]}  # fmt: skip
    assert found == {(one.gold, one.predicted): one.count for one in scores.confusions}
    assert [one["words"] for one in report.values["confusions"]["a"]] == [
        one.count for one in scores.confusions
    ]


def test_distances_by_sets(gold: Path) -> None:
    """Recall and precision of each length and depth, from sets of arcs."""
    report = analyse([("a", FakeParser(FIRST)), ("b", FakeParser(SECOND))], gold)

    def depth(sentence: Sentence, word: int) -> int:
        num = 0
        while word:
            word, num = sentence.heads()[word - 1], num + 1
        return num

    for parser, parsed in (("a", FIRST), ("b", SECOND)):
        for key, starts in (("length", LENGTHS), ("distance_to_the_root", range(1, 8))):

            def place(sentences: list[Sentence], arc: Any, key: str = key) -> int:
                number, word, head, _ = arc
                if key == "length":
                    return abs(head - word) if head else 0
                return depth(sentences[number], word)

            expected, predicted = set(all_words(GOLD)), set(all_words(parsed))
            values = report.values[key]
            arcs_of_all = [(s, arc) for s in (GOLD, FIRST, SECOND) for arc in all_words(s)]
            farthest = max(place(sentences, arc) for sentences, arc in arcs_of_all)
            assert len(values["bands"]) == sum(start <= farthest for start in starts)
            for i, start in enumerate(starts[: len(values["bands"])]):
                last = starts[i + 1] if i + 1 < len(starts) else 1000
                for kind, arcs, sentences in (
                    ("recall", expected, GOLD),
                    ("precision", predicted, parsed),
                ):
                    here = [arc for arc in arcs if start <= place(sentences, arc) < last]
                    found = values[kind][parser][i]
                    if here:
                        both = [arc for arc in here if arc in expected and arc in predicted]
                        assert found == pytest.approx(100 * len(both) / len(here))
                    else:
                        assert np.isnan(found)


def test_the_two_parsers_together(gold: Path) -> None:
    report = analyse([("a", FakeParser(FIRST)), ("b", FakeParser(SECOND))], gold)
    expected = set(all_words(GOLD))
    a, b = expected & set(all_words(FIRST)), expected & set(all_words(SECOND))
    assert report.values["two_parsers"] == {
        "both": len(a & b),
        "a alone": len(a - b),
        "b alone": len(b - a),
        "neither": len(expected - a - b),
    }


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_tree_is_projective_if_no_arc_crosses(size: int) -> None:
    for heads in itertools.product(range(size + 1), repeat=size):
        if heads.count(0) != 1 or find_fault(heads) is not None:
            continue
        arcs = arcs_of([sentence_of(list(heads), ["x"] * size)])
        assert (not arcs.crossing.any()) == is_projective(heads)
