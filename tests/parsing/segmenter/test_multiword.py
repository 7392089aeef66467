"""Multiword tokens: the table, the rules for unseen ones, and case."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtool.parsing.segmenter.data import MultiwordSplitter

FRENCH = [("du", ("de", "le")), ("Du", ("De", "le")), ("au", ("\u00e0", "le")), ("du", ("du", ""))]
ENGLISH = [
    ("don't", ("do", "n't")),
    ("Isn't", ("Is", "n't")),
    ("can't", ("ca", "n't")),
    ("it's", ("it", "'s")),
    ("he's", ("he", "'s")),
    ("cannot", ("can", "not")),
]


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("du", ("de", "le")),
        ("Du", ("De", "le")),
        ("DU", ("DE", "LE")),
        ("Au", ("\u00c0", "le")),
        ("AU", ("\u00c0", "LE")),
        ("des", None),
    ],
)
def test_the_commonest_split_is_taken_and_case_is_kept(
    form: str, words: tuple[str, ...] | None
) -> None:
    assert MultiwordSplitter.learn(FRENCH).split(form) == words


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("can't", ("ca", "n't")),
        # two of three words in n't keep what is before it; of those in t, o't and s't are no rule
        ("Mustn't", ("Must", "n't")),
        ("MUSTN'T", ("MUST", "N'T")),
        ("McDonald's", ("McDonald", "'s")),
        ("Cannot", ("Can", "not")),
        ("robots", None),
        ("'s", None),  # nothing would be left
    ],
)
def test_rules_split_unseen_tokens(form: str, words: tuple[str, ...] | None) -> None:
    assert MultiwordSplitter.learn(ENGLISH).split(form) == words


@given(st.text(min_size=1, max_size=12))
def test_no_token_is_too_strange(form: str) -> None:
    splitter = MultiwordSplitter.learn(ENGLISH + FRENCH[:3])
    words = splitter.split(form)
    assert words is None or (len(words) > 1 and all(words))


@given(st.lists(st.text(st.sampled_from("ab'cAB"), min_size=1, max_size=4), min_size=2, max_size=3))
def test_what_was_learnt_is_given_back(words: list[str]) -> None:
    form = "".join(words)
    splitter = MultiwordSplitter.learn([(form, tuple(words))])
    assert splitter.split(form) == tuple(words)
    assert MultiwordSplitter(splitter.table, splitter.rules).split(form) == tuple(words)
