"""Texts in stretches and their spaces: by hand, in whatever pieces they come, and rebuilt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from parsing.segmenter.tiny_segmenter import random_segmenter

from seqtool.core.errors import DataError
from seqtool.parsing.segmenter import characters, documents
from seqtool.parsing.segmenter.characters import Unit, UnitReader, to_text
from seqtool.parsing.segmenter.documents import (
    GivenUnits,
    Split,
    assemble,
    read_parts,
    segment_files,
    segment_parts,
)
from seqtool.parsing.segmenter.rules import split_at_spaces, split_by_rules
from seqtool.treebank.document import rebuild
from seqtool.treebank.misc import escaped, misc_of, unescaped
from seqtool.treebank.sentence import FORM, Sentence, parse_sentence


def stretches(pieces: list[str], unit: Unit = "paragraph") -> list[tuple[str, str, bool]]:
    reader = UnitReader(pieces, unit)
    found = []
    while (stretch := reader.take()) is not None:
        found.append((stretch.before, to_text(stretch.codes), stretch.begins_paragraph))
    return [*found, (reader.spaces, "", False)]


def test_paragraphs_and_lines() -> None:
    text = " a b\nc\r\n \r\nd \n\x0b e\n"
    assert stretches([text]) == [
        (" ", "a b\nc", True),
        ("\r\n \r\n", "d", True),
        (" \n\x0b ", "e", True),
        ("\n", "", False),
    ]
    assert stretches([text], "line") == [
        (" ", "a b", True),
        ("\n", "c", False),
        ("\r\n \r\n", "d", True),
        (" \n\x0b ", "e", True),
        ("\n", "", False),
    ]

    assert stretches([]) == [("", "", False)]
    assert stretches([" ", "\n\n"]) == [(" \n\n", "", False)]


LINES = st.text(st.sampled_from("ab. \n\r"), max_size=60)


@given(LINES, st.lists(st.integers(0, 60), max_size=4), st.sampled_from(["paragraph", "line"]))
def test_the_pieces_do_not_matter(text: str, cuts: list[int], unit: Unit) -> None:
    bounds = [0, *sorted(cuts), len(text)]
    pieces = [text[begin:end] for begin, end in pairwise(bounds)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(characters, "READ", 1)
        whole = stretches([text], unit)
        assert stretches(pieces, unit) == whole
    assert "".join(before + inner for before, inner, _ in whole) == text
    # by an independent rule: what stands between breaks
    line = r"[ ]*[\n\r]"
    rule = rf"{line}{line}\s*" if unit == "paragraph" else rf"{line}\s*"
    expected = [part.strip() for part in re.split(rule, text.replace("\r\n", "\n"))]
    found = [inner.replace("\r\n", "\n") for _, inner, _ in whole[:-1]]
    assert found == [part for part in expected if part]


@given(
    st.lists(st.text(st.sampled_from("abc .\n"), max_size=50), min_size=1, max_size=6),
    st.integers(1, 3),
)
@settings(max_examples=20)
def test_a_paragraph_that_is_too_long_is_read_on(pieces: list[str], seed: int) -> None:
    """Its sentences are whole: none ends because a stretch did."""
    text = "".join(pieces)
    for split in (split_by_rules, random_segmenter(seed, sentence_words=4).split):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(characters, "READ", 7)
            patch.setattr(characters, "MAX_STRETCH", 96)
            patch.setattr(documents, "SURE", 24)
            in_pieces = list(documents.assemble(pieces, split))
            at_once = list(documents.assemble([text], split))
        assert [s.to_conllu() for s in in_pieces] == [s.to_conllu() for s in at_once]
        assert rebuild(at_once) == (text if text.strip() else "")
        if split is split_by_rules:
            plain = list(documents.assemble([text], split))
            assert [s.to_conllu() for s in at_once] == [s.to_conllu() for s in plain]


def test_a_line_that_is_too_long_is_refused_before_it_is_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(characters, "longest_line", lambda: 100_000)
    taken = 0

    def pieces(num: int) -> Iterator[str]:
        nonlocal taken
        for _ in range(num):
            taken += 1
            yield "ab " * 10_000
        yield "\nnext line\n"

    reader = UnitReader(pieces(2), "line")
    assert [len(stretch.codes) for stretch in iter(reader.take, None)] == [59_999, 9]
    with pytest.raises(DataError, match="more than 100,000 characters"):
        UnitReader(pieces(1000), "line").take()
    assert taken == 2 + 4


@pytest.mark.parametrize("given", get_args(GivenUnits))
def test_parts_are_read_as_the_whole_is(tmp_path: Path, given: GivenUnits) -> None:
    path = tmp_path / "text"
    lines = ["a b c", "", "d e", "f", "", "", "g", "h i", "j\tk", "", "l"] * 20
    path.write_text("\r\n".join(lines), encoding="utf-8")
    whole = [sentence.to_conllu() for sentence in segment_files([path], None, given=given)]
    parts = list(read_parts([path], given=given, size=30))
    assert len(parts) > 9
    texts = ((name, [text], begins) for name, text, begins in parts)
    assert [found.to_conllu() for found in segment_parts(texts, None, given=given)] == whole


# texts that tokenizers stumble over, between characters of any kind
PIECES = st.sampled_from(
    [
        *("\r\n", "\n\n", "  ", "\u00a0", "\u2028", "\x85", "\x1c", "\u3000", "\ufeff", "\0"),
        *("|", "\\", "\\s", "#", "=", "_", "a b", "du", "can't", "...", "1,000.5", "www.a.b/c"),
        *("e\u0301", "\u0301", "\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea"),
        *("\u202eabc", "\u05d0\u05d1", "x" * 1001),
    ]
)
TEXTS = st.lists(PIECES | st.text(max_size=8), max_size=12).map("".join)

SEGMENTERS = {
    "rules": split_by_rules,
    "network": random_segmenter(1).split,
    "network with spaces in tokens": random_segmenter(2, has_spaces=True).split,
}


def through_a_file(sentences: list[Sentence]) -> list[Sentence]:
    """Sentences as they are read again."""
    texts = [sentence.to_conllu().removesuffix("\n\n") for sentence in sentences]
    return [parse_sentence(text, "", 1, "columns") for text in texts]


def check(text: str, sentences: list[Sentence]) -> None:
    assert rebuild(through_a_file(sentences)) == (text if text.strip() else "")
    for number, sentence in enumerate(sentences, 1):
        assert f"# sent_id = {number}" in sentence.comments
        assert (sentence.comments[0] == "# newdoc") == (number == 1)
        shown = sentence.comments[-1].removeprefix("# text = ")
        # the text of a sentence has its characters in order, whitespace as single spaces
        assert " ".join(shown.split()) == shown
        copy = Sentence([], [list(row) for row in sentence.rows], sentence.extras)
        assert " ".join(rebuild([copy]).split()) == shown


@pytest.mark.parametrize("name", SEGMENTERS)
@pytest.mark.parametrize("unit", ["paragraph", "line"])
def test_any_text_is_rebuilt(name: str, unit: Unit) -> None:
    split: Split = SEGMENTERS[name]

    @given(TEXTS)
    @example("")
    @example(" \n ")
    @example("a")
    @example("\U0001f600")
    @example("a" * 3001)
    @settings(max_examples=25)
    def run(text: str) -> None:
        check(text, list(assemble([text], split, unit=unit)))

    run()


@given(TEXTS)
@settings(max_examples=50)
def test_words_between_spaces_are_taken_as_they_are(text: str) -> None:
    sentences = list(assemble([text], split_at_spaces, unit="line"))
    check(text, sentences)
    assert [form for s in sentences for form in s.column(FORM)] == text.split()


@given(st.text())
def test_what_is_escaped_comes_back(text: str) -> None:
    shown = escaped(text)
    assert unescaped(shown) == text
    assert not set(shown) & set(" \t\r\n|")


def test_misc_follows_the_convention_of_udpipe() -> None:
    assert misc_of(" ") == "_"
    assert misc_of("") == "SpaceAfter=No"
    assert misc_of("\n\n") == r"SpacesAfter=\n\n"
    assert misc_of("", before=" \t") == r"SpaceAfter=No|SpacesBefore=\s\t"
    assert misc_of(" ", raw="10\r\n000") == r"SpacesInToken=10\r\n000"
    assert misc_of("\u00a0") == "SpacesAfter=\u00a0"
