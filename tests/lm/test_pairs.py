"""Minimal pairs: reading them, what is compared, and the figures."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_models import BigramModel, char_tokenizer, random_bigrams, two_words

import seqtool
from seqtool.core.errors import DataError
from seqtool.lm.conditions import t_95
from seqtool.lm.pairs import (
    MinimalPair,
    ScoredPair,
    evaluate_pairs,
    mcnemar,
    read_pairs,
    regions,
    wilson,
)
from seqtool.text.datasets import sample_pairs, sample_text

A, B, END, UNKNOWN = "a", "b", "</s>", "<unk>"


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


class TestReading:
    def test_a_table(self, tmp_path: Path) -> None:
        rows = ("paradigm\tbad\tnote\tgood\tphenomenon", "p\ta b\tx\tb a\tf", "", "q\tb\t\t a \tf")
        expected = [MinimalPair("b a", "a b", "f", "p"), MinimalPair("a", "b", "f", "q")]
        assert read_pairs(write(tmp_path / "x.tsv", *rows)) == expected
        commas = [row.replace("\t", ",") for row in rows]
        assert read_pairs(write(tmp_path / "x.csv", *commas)) == expected
        assert read_pairs(write(tmp_path / "x.txt", *commas)) == expected
        assert read_pairs(write(tmp_path / "y.txt", *rows)) == expected
        (tmp_path / "x.tsv.gz").write_bytes(gzip.compress((tmp_path / "x.tsv").read_bytes()))
        assert read_pairs(tmp_path / "x.tsv.gz") == expected
        assert read_pairs([tmp_path / "x.tsv", tmp_path / "x.csv"]) == expected * 2

    def test_blimp(self, tmp_path: Path) -> None:
        record = {
            "sentence_good": "Who left?",
            "sentence_bad": "Who leave?",
            "field": "morphology",
            "linguistics_term": "subject_verb_agreement",
            "UID": "irregular_1",
            "one_prefix_method": False,
            "pair_id": 0,
        }
        expected = [MinimalPair("Who left?", "Who leave?", "subject_verb_agreement", "irregular_1")]
        for name in ("x.jsonl", "x.txt"):
            path = write(tmp_path / name, json.dumps(record), "")
            assert read_pairs(path) == expected

    @pytest.mark.parametrize(
        ("lines", "message"),
        [
            (["good\twrong", "a\tb"], "x.tsv:2: bad or sentence_bad is missing"),
            (["good\tbad", "a\tb", "a"], "x.tsv:3: 1 cells in this row, but 2 columns"),
            (["good\tbad", 'a\t"b', 'c"'], "x.tsv:2: bad"),
            (["good\tbad"], "x.tsv: there are no pairs"),
            (["good\tgood", "a\tb"], "x.tsv:1: two columns are named 'good'"),
            (['{"good": "a", "bad": 3}'], "x.tsv:1: bad"),
            (['{"good": "a", "bad": "b"}', "[]"], "x.tsv:2: not JSON"),
            (['{"good": "a", "bad": "\\ud800"}'], "x.tsv:1: bad"),
        ],
    )
    def test_is_refused(self, lines: list[str], message: str, tmp_path: Path) -> None:
        with pytest.raises(DataError) as caught:
            read_pairs(write(tmp_path / "x.tsv", *lines))
        assert message in str(caught.value)


class TestRegions:
    @pytest.mark.parametrize(
        ("good", "bad", "expected"),
        [
            ("a b c", "a x c", ((1, 2), (1, 2))),
            ("a b", "x b", ((0, 1), (0, 1))),
            ("a b c d", "a x y d", ((1, 3), (1, 3))),
            ("a b b c", "a b c", ((2, 4), (2, 3))),  # `c` stands behind the word too many
            ("a c", "a b c", ((1, 2), (1, 3))),
            ("a b", "a", ((1, 3), (1, 2))),  # the end of the sentence does
            ("a", "a a", ((1, 2), (1, 3))),
            ("a b", "b a", ((0, 2), (0, 2))),
        ],
    )
    def test_by_hand(self, good: str, bad: str, expected: Any) -> None:
        found = regions(good.split(), bad.split())
        assert tuple((each.start, each.stop) for each in found) == expected

    @given(*[st.lists(st.sampled_from("abc"), min_size=1, max_size=7)] * 2)
    def test_what_is_outside_is_the_same(self, good: list[str], bad: list[str]) -> None:
        if good == bad:
            return
        one, other = regions(good, bad)
        assert one.start == other.start < min(one.stop, other.stop)
        assert good[: one.start] == bad[: other.start]
        assert good[one.stop :] == bad[other.stop :]
        assert (one.stop > len(good)) == (other.stop > len(bad))
        assert one != other or good[one] != bad[other]


@pytest.fixture
def lm() -> BigramModel:
    return two_words()


class TestScores:
    def test_whole_sentences(self, lm: BigramModel) -> None:
        pairs = [
            MinimalPair("a b", "b a", "f", "p"),  # 1/2 1/2 1/2 > 1/4 3/8 1/4
            MinimalPair("b b", "a a", "f", "q"),  # 1/4 1/16 1/2 < 1/2 1/8 1/4
            MinimalPair("dog", "cat", "g", "q"),  # both <unk>
        ]
        found = evaluate_pairs(lm, pairs)
        assert [item.outcome for item in found.scored] == ["right", "wrong", "tie"]
        assert found.scored[0].good == pytest.approx(math.log(1 / 8), rel=1e-14)
        assert found.scored[0].bad == pytest.approx(math.log(3 / 128), rel=1e-14)
        assert [item.unknown for item in found.scored] == [(), (), ("dog", "cat")]
        assert found.num_unknown == 1
        total = found.total
        assert (total.pairs, total.right, total.ties) == (3, 1, 1)
        assert total.accuracy == pytest.approx(1 / 3)
        assert {name: tally.accuracy for name, tally in found.phenomena.items()} == {
            "f": 0.5,
            "g": 0.0,
        }
        assert list(found.paradigms) == [("f", "p"), ("f", "q"), ("g", "q")]
        assert found.mean_accuracy == pytest.approx(1 / 3)

    def test_sums_that_differ_by_rounding_are_ties(self) -> None:
        pair = MinimalPair("a", "b")
        for good, bad, outcome in (
            (-1.0, -1.0 - 1e-9, "tie"),
            (-1.0, -1.0 - 1e-5, "right"),
            (-math.inf, -math.inf, "tie"),
            (-1e9, -math.inf, "right"),
            (-math.inf, -1e9, "wrong"),
        ):
            assert ScoredPair(pair, good, bad).outcome == outcome

    @pytest.mark.parametrize("score", ["sentence", "region"])
    def test_two_sentences_of_the_same_words_are_a_tie(self, score: Any, tmp_path: Path) -> None:
        """BLiMP has seven pairs of equal sentences; blanks alone are no difference either."""
        path = write(tmp_path / "x.tsv", "good\tbad", "a b\tb a", "a b\ta b", "a  b\ta b")
        for model in (two_words(), random_bigrams(char_tokenizer("ab "), 4)):
            found = evaluate_pairs(model, path, score=score)
            assert [item.outcome for item in found.scored[1:]] == ["tie", "tie"]
            assert (found.total.pairs, found.total.ties) == (3, 2)

    def test_the_region(self, lm: BigramModel) -> None:
        pairs = [
            MinimalPair("a b b", "a a b"),  # P(b|a) = 1/2, P(a|a) = 1/8
            MinimalPair("b", "b a"),  # P(</s>|b) = 1/2, P(a|b) P(</s>|a) = 3/8 1/4
        ]
        found = evaluate_pairs(lm, pairs, score="region").scored
        assert math.exp(found[0].good) == pytest.approx(1 / 2, rel=1e-12)
        assert math.exp(found[0].bad) == pytest.approx(1 / 8, rel=1e-12)
        assert math.exp(found[1].good) == pytest.approx(1 / 2, rel=1e-12)
        assert math.exp(found[1].bad) == pytest.approx(3 / 32, rel=1e-12)

    def test_a_region_of_characters_is_of_whole_words(self) -> None:
        """That a word ends belongs to it: `b` is not likelier than `ba` for being its beginning."""
        model = random_bigrams(char_tokenizer("ab "), 4)
        begin, end, a, b, blank = 5, 1, 2, 3, 4
        to = model.table
        (found,) = evaluate_pairs(model, [MinimalPair("b a", "ba a")], score="region").scored
        expected = to[begin, b] * (to[b, blank] + to[b, end])
        assert math.exp(found.good) == pytest.approx(expected, rel=1e-12)
        expected = to[begin, b] * to[b, a] * (to[a, blank] + to[a, end])
        assert math.exp(found.bad) == pytest.approx(expected, rel=1e-12)

    def test_a_sentence_that_the_model_cannot_read_has_its_line(
        self, lm: BigramModel, tmp_path: Path
    ) -> None:
        path = write(tmp_path / "x.tsv", "good\tbad", "a\tb", "", "b\tb </s>")
        with pytest.raises(DataError, match=r"x.tsv:4: .*</s>"):
            evaluate_pairs(lm, path)


@pytest.mark.parametrize(
    ("right", "num", "low", "high"),
    [  # Newcombe (1998), table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson(right: int, num: int, low: float, high: float) -> None:
    assert wilson(right, num) == pytest.approx((low, high), abs=5e-5)
    assert wilson(num - right, num) == pytest.approx((1 - high, 1 - low), abs=5e-5)


@pytest.mark.parametrize(("one", "other"), [(0, 0), (5, 0), (3, 3), (9, 21), (400, 500)])
def test_mcnemar_is_a_binomial(one: int, other: int) -> None:
    tail = sum(math.comb(one + other, k) for k in range(min(one, other) + 1)) / 2 ** (one + other)
    assert mcnemar(one, other) == mcnemar(other, one) == pytest.approx(min(1, 2 * tail))


def test_student() -> None:
    tables = {1: 12.7062, 2: 4.3027, 3: 3.1824, 10: 2.2281, 1000: 1.9623}
    assert {n: t_95(n) for n in tables} == pytest.approx(tables, abs=5e-5)


def test_five_grams_know_local_agreement_and_not_that_across_a_phrase(tmp_path: Path) -> None:
    """What decides stands within the last four words, or before a noun of the other number."""
    made = seqtool.train_ngram(sample_text("en", "train"), tmp_path / "m", seqtool.NgramConfig())
    found = evaluate_pairs(seqtool.load(made.path), sample_pairs("en"))
    for paradigm in ("pronoun_verb", "there_is", "article_noun", "article_adjective"):
        tallies = [tally for (_, name), tally in found.paradigms.items() if name == paradigm]
        assert tallies[0].interval[0] > 0.75, paradigm
    for paradigm in ("across_prepositional_phrase", "across_relative_clause"):
        low, high = found.paradigms["subject_verb_agreement", paradigm].interval
        assert low < 0.5 < high, paradigm
    assert found.total.ties == 0
