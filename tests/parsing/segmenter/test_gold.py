"""What is taken from a treebank, the raw text that is laid out of it, and what is learnt."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from parsing.segmenter.tiny_segmenter import TRAINING, sentence_of, write_treebank

from seqtool.core import checkpoint
from seqtool.core.config import from_dict
from seqtool.parsing.segmenter.characters import Alphabet, code_points, seen, to_text
from seqtool.parsing.segmenter.config import SegmenterConfig, SegmenterLearningConfig
from seqtool.parsing.segmenter.data import (
    MultiwordSplitter,
    gold_text,
    lay_out,
    raw_text,
    segmenter_data,
    surface_tokens,
)
from seqtool.parsing.segmenter.train import SegmenterTask, segmentation_scores, train_segmenter
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.document import rebuild
from seqtool.treebank.sentence import DEPREL, UPOS

SENTENCES = [
    sentence_of([("Viens", (), True), ("du", ("de", "le"), True), ("10 000", (), False)]),
    sentence_of([("!", (), True)]),
    sentence_of([("Oui", (), True)], ["# newpar id = 2"]),
    sentence_of([("Non", (), True)], ["# newdoc"]),
]


def test_tokens_and_raw_text() -> None:
    tokens = [(t.form, t.words, t.spaced) for t in surface_tokens(SENTENCES[0])]
    assert tokens == [("Viens", (), True), ("du", ("de", "le"), True), ("10 000", (), False)]
    assert raw_text(SENTENCES) == "Viens du 10 000!\n\nOui\n\nNon\n"
    # a line holds as many words as fit
    words = sentence_of([(form, (), True) for form in ("aaaa", "bbbb", "cc", "dddddddddd", "e")])
    assert raw_text([words], width=9) == "aaaa bbbb\ncc\ndddddddddd\ne\n"
    gold = gold_text(SENTENCES, {"du": 1, "0 0": 2, "!": 3})
    assert to_text(gold.codes) == "Viensdu10 000!OuiNon"
    assert gold.forms.tolist() == [0, 1, 0, 3, 0, 0]
    assert np.flatnonzero(gold.multiword).tolist() == [1]
    assert np.flatnonzero(gold.ends).tolist() == [2, 3, 4, 5]
    assert np.flatnonzero(gold.breaks).tolist() == [3, 4, 5]


def test_a_tag_is_part_of_speech_and_relation_of_each_word() -> None:
    words = sentence_of([("Viens", (), True), ("du", ("de", "le"), True), ("bar", (), False)])
    labels = ("VERB root", "ADP case", "DET det", "NOUN obl:arg")
    for row, label in zip(words.rows, labels, strict=True):
        row[UPOS], row[DEPREL] = label.split()
    tags = [token.tag for token in surface_tokens(words)]
    assert tags == ["VERB/root", "ADP/case+DET/det", "NOUN/obl"]
    gold = gold_text([words], {})
    # numbered in the order of their names
    assert (gold.tags.tolist(), gold.num_tags) == ([2, 0, 1], 3)


def test_layouts_hold_the_tokens() -> None:
    gold = gold_text(SENTENCES * 20, {})
    forms = [token.form for s in SENTENCES * 20 for token in surface_tokens(s)]
    learning = SegmenterLearningConfig(
        window_characters=16, wrapped=0.3, sentence_lines=0.3, joined=0.4
    )
    shapes = set()
    for seed in range(12):
        layout = lay_out(gold, learning, np.random.default_rng(seed))
        firsts, lasts, windows = layout.firsts, layout.lasts, layout.windows
        text = to_text(layout.codes)
        shapes.add(text)
        assert [text[b : e + 1] for b, e in zip(firsts, lasts, strict=True)] == forms
        # between tokens there is nothing, or one space or newline; only where the treebank has it
        gaps = firsts[1:] - lasts[:-1] - 1
        assert set(gaps.tolist()) <= {0, 1}
        assert not gaps[~(gold.spaced | gold.breaks)[:-1]].any()
        assert (windows[0], windows[-1]) == (0, len(forms))
        assert (np.diff(windows) > 0).all()
        # no window is longer than was asked for, but by a token
        assert (lasts[windows[1:] - 1] + 1 - firsts[windows[:-1]]).max() <= 16 + 8
    assert len(shapes) == 12


def test_nothing_is_drawn_where_nothing_is_asked_for() -> None:
    gold = gold_text(SENTENCES, {})
    learning = SegmenterLearningConfig(wrapped=0.0, sentence_lines=0.0, joined=0.0)
    layout = lay_out(gold, learning, np.random.default_rng(0))
    assert to_text(layout.codes) == "Viens du 10 000!OuiNon"
    assert layout.windows.tolist() == [0, 4, 5, 6]
    lines = SegmenterLearningConfig(wrapped=0.0, sentence_lines=1.0, joined=0.0)
    sentences = [sentence_of([("a", (), True), ("b", (), True)]), sentence_of([("c", (), True)])]
    layout = lay_out(gold_text(sentences, {}), lines, np.random.default_rng(0))
    assert to_text(layout.codes) == "a b\nc"


def test_whitespace_is_seen_in_runs() -> None:
    codes, places = seen(code_points("a \t b\r\n c\u00a0d\x85e"))
    assert to_text(codes) == "a b\nc d\ne"
    assert places.tolist() == [0, 1, 4, 5, 8, 9, 10, 11, 12]


def test_unknown_characters_have_their_category_and_script() -> None:
    alphabet = Alphabet.learn(code_points("aab\u03b1"), min_count=2)
    assert alphabet.characters == ("\n", " ", "a")
    assert alphabet.scripts == ("GREEK", "LATIN")
    a, b, e_acute, alpha, beta, zhe = alphabet.symbols(map(ord, "ab\u00e9\u03b1\u03b2\u0436"))
    assert a[0] > 0
    assert b[0] == e_acute[0] == alpha[0] == 0
    assert (b == e_acute).all()  # a small Latin letter
    assert (alpha == beta).all()  # a small Greek one
    assert zhe[2] == 0  # of a script that was not learnt
    again = Alphabet(alphabet.scripts, alphabet.characters)
    assert (again.symbols([97]) == a).all()
    assert len(again) == len(alphabet)


def test_scores_count_spans() -> None:
    gold = [
        sentence_of([("a", (), True), ("du", ("de", "le"), True), ("b", (), False)]),
        sentence_of([(".", (), True)]),
    ]
    assert segmentation_scores(gold, gold) == {
        "tokens": 100.0, "words": 100.0, "multiword": 100.0, "sentences": 100.0,
    }  # fmt: skip
    other = [sentence_of([("a", (), True), ("du", (), True), ("b.", (), True)])]
    # tokens a, du of 4 and of 3; words a of 5 and of 3; no sentence of 2 and 1
    assert segmentation_scores(gold, other) == {
        "tokens": 200 * 2 / 7, "words": 200 * 1 / 8, "multiword": 0.0, "sentences": 0.0,
    }  # fmt: skip
    # case does not matter, as in the official scorer
    upper = [sentence_of([("DU", ("DE", "le"), True)])], [sentence_of([("DU", ("DE", "LE"), True)])]
    assert set(segmentation_scores(*upper).values()) == {100.0}


def test_what_is_learnt_of_a_treebank(tmp_path: Path) -> None:
    path = write_treebank(tmp_path / "t.conllu", 200)
    data = segmenter_data(read_conllu(path, check="columns"), None, SegmenterConfig())
    assert data.splitter.split("du") == ("de", "le")
    assert not data.has_spaces
    assert "".join(data.dev_text.split()) == "".join(
        token.form for sentence in data.dev for token in surface_tokens(sentence)
    )
    # whitespace of any kind ends a word where no token holds any
    path.write_text(path.read_text("utf-8").replace("du", "d\u00a0u"), "utf-8")
    odd = segmenter_data(read_conllu(path, check="columns"), None, SegmenterConfig())
    assert odd.has_spaces


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


def test_rules_are_learnt(tmp_path: Path) -> None:
    train, dev = (write_treebank(tmp_path / str(n), 80 - 50 * n, seed=n) for n in (0, 1))
    whole = train_segmenter(train, tmp_path / "whole", TRAINING, dev=dev, device="cpu")
    kinds = ("words", "multiword", "sentences")
    assert [whole.scores[f"dev_{kind}"] for kind in kinds] == [100.0] * 3
    segmenter = checkpoint.load(tmp_path / "whole")
    # an unseen word, and line breaks where the treebank has none
    text = "  aba ab-ba du\nab-ba Du. bab\tdu. aa.\n"
    sentences = list(segmenter.segment([text]))
    assert [" ".join(s.column(1)) for s in sentences] == [
        "aba ab - ba de le ab - ba De le .", "bab de le .", "aa .",
    ]  # fmt: skip
    assert rebuild(sentences) == text


def test_tags_add_their_loss(tmp_path: Path) -> None:
    path = write_treebank(tmp_path / "t.conllu", 80)
    data = segmenter_data(read_conllu(path, check="columns"), None, SegmenterConfig())
    assert data.text.num_tags == 2  # a word without tags, or two
    losses = []
    for weight in (0.0, 3.0):
        config = from_dict(SegmenterConfig, {"learning": {"tag_weight": weight}})
        task = SegmenterTask(config, data)
        torch.nn.init.zeros_(task.module.tags.weight)
        torch.nn.init.zeros_(task.module.tags.bias)
        task.start_epoch(0)
        loss, num_characters = task.loss(0)
        losses.append(loss.item())
    windows = task._batches[0]
    num_tokens = int((task._layout.windows[windows + 1] - task._layout.windows[windows]).sum())
    # both tags are equally likely at first
    expected = 3.0 * math.log(2.0) * num_tokens / num_characters
    assert losses[1] - losses[0] == pytest.approx(expected, rel=1e-4)
