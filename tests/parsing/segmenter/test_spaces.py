"""Whatever splits a text, words and spaces of the output rebuild it."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from parsing.segmenter.tiny_segmenter import random_segmenter

from seqtool.parsing.segmenter.characters import Unit
from seqtool.parsing.segmenter.documents import (
    Split,
    assemble,
)
from seqtool.parsing.segmenter.rules import split_at_spaces, split_by_rules
from seqtool.treebank.document import rebuild
from seqtool.treebank.misc import escaped, misc_of, unescaped
from seqtool.treebank.sentence import FORM, Sentence, parse_sentence

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
    for sentence in sentences:
        shown = sentence.comments[-1].removeprefix("# text = ")
        # the text of a sentence has its characters in order, whitespace as single spaces
        assert " ".join(shown.split()) == shown
        copy = Sentence([], [list(row) for row in sentence.rows], sentence.extras)
        assert " ".join(rebuild([copy]).split()) == shown
    ids = [comment for s in sentences for comment in s.comments if "sent_id" in comment]
    assert ids == [f"# sent_id = {number}" for number in range(1, len(sentences) + 1)]
    assert [s.comments[0] == "# newdoc" for s in sentences] == [
        place == 0 for place in range(len(sentences))
    ]


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
