"""Segmentation by rules: languages and scripts by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest

from seqtool.parsing.segmenter.characters import code_points
from seqtool.parsing.segmenter.rules import split_by_rules


def segmented(text: str, *, whole: bool = False) -> list[str]:
    """Sentences, with spaces between tokens."""
    spans = split_by_rules([code_points(text)], whole=whole)[0]
    tokens = [text[b:e] for b, e in zip(spans.begins, spans.ends, strict=True)]
    bounds = [0, *spans.sentence_ends]
    return [" ".join(tokens[b:e]) for b, e in pairwise(bounds)]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Hello, world! Yes.", ["Hello , world !", "Yes ."]),
        ('He said "No." Then he left.', ['He said " No . "', "Then he left ."]),
        ("(Really?) Yes...", ["( Really ? )", "Yes ..."]),
        ("it works. but slowly", ["it works . but slowly"]),
        ("Mr. A. Smith of the U.S. army", ["Mr. A. Smith of the U.S. army"]),
        ("$1,000.50 at 12:30, 3.", ["$ 1,000.50 at 12:30 , 3 ."]),
        ("don't l'eau dogs' O\u2019Neill", ["don't l'eau dogs ' O\u2019Neill"]),
        ("well-known snake_case", ["well - known snake_case"]),
        ("see www.a.org/b?c=1, or x.y@a-b.org.", ["see www.a.org/b?c=1 , or x.y@a-b.org ."]),
        ("a.b.c", ["a.b. c"]),
        ("\u4eca\u65e5\u306f\u3002\u30eb\u30fc\u30eb\uff01",
         ["\u4eca \u65e5 \u306f \u3002", "\u30eb\u30fc\u30eb \uff01"]),
        ("\uc548\ub155 \uc138\uc0c1. \ub124.", ["\uc548\ub155 \uc138\uc0c1 .", "\ub124 ."]),
        ("\u0646\u0639\u0645\u061f \u0644\u0627.", ["\u0646\u0639\u0645 \u061f", "\u0644\u0627 ."]),
        ("\u0939\u093f\u0928\u094d\u0926\u0940\u0964 \u0939\u093e\u0901",
         ["\u0939\u093f\u0928\u094d\u0926\u0940 \u0964", "\u0939\u093e\u0901"]),
        ("\u0e2a\u0e27\u0e31\u0e2a", ["\u0e2a \u0e27\u0e31 \u0e2a"]),
        ("e\u0301t\u00e9", ["e\u0301t\u00e9"]),
        ("\U0001f469\u200d\U0001f467\U0001f600!!", ["\U0001f469\u200d\U0001f467 \U0001f600 !!"]),
        ("\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7", ["\U0001f1e9\U0001f1ea \U0001f1eb\U0001f1f7"]),
    ],
)  # fmt: skip
def test_text_is_split(text: str, sentences: list[str]) -> None:
    assert segmented(text) == sentences
    assert segmented(text, whole=True) == [" ".join(sentences)]


def test_a_long_text_without_points_is_cut() -> None:
    lengths = [len(sentence.split()) for sentence in segmented("ab " * 700 + "ab")]
    assert sum(lengths) == 701
    assert max(lengths) <= 300


def test_time_grows_with_the_text_alone() -> None:
    """What backtracks would take minutes for these."""
    for piece in ("a.", "a@", "-.", "1,", "www.", "''"):
        text = piece * 20_000
        assert "".join(segmented(text)).replace(" ", "") == text
