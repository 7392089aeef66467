"""Horizontal and vertical layouts: words in, words out, as UDPipe reads and writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtool.core.errors import DataError
from seqtool.core.reading import MAX_LINE, limit_lines
from seqtool.treebank.layouts import Layout, horizontal, read_layout, vertical
from seqtool.treebank.sentence import FORM

WORD = st.text(st.sampled_from("ab#1-.\u00e9\uac00"), min_size=1, max_size=4)
WORDS = st.lists(st.lists(st.tuples(WORD, st.booleans()), min_size=1, max_size=4), max_size=4)


def forms_of(text: str, layout: Layout) -> list[list[str]]:
    return [sentence.column(FORM) for sentence in read_layout(text.split("\n"), layout)]


def test_a_sentence_a_line() -> None:
    text = "The dog\u00a0house  barks .\nHi !\r\n\n\nBye\n"
    first, second, third = read_layout(text.split("\n"), "horizontal", document="a.txt")
    assert first.to_conllu() == (
        "# newdoc id = a.txt\n# newpar\n# sent_id = 1\n# text = The dog house barks .\n"
        "1\tThe\t_\t_\t_\t_\t_\t_\t_\t_\n2\tdog house\t_\t_\t_\t_\t_\t_\t_\t_\n"
        "3\tbarks\t_\t_\t_\t_\t_\t_\t_\t_\n4\t.\t_\t_\t_\t_\t_\t_\t_\t_\n\n"
    )
    assert second.comments == ["# sent_id = 2", "# text = Hi !"]
    assert third.comments == ["# newpar", "# sent_id = 3", "# text = Bye"]


def test_a_word_a_line() -> None:
    text = "\nThe\tDET\tx\ndog house\n#\n\nHi\n\n\n\nBye"
    first, second, third = read_layout(text.split("\n"), "vertical", first_number=7)
    assert first.comments == ["# newdoc", "# newpar", "# sent_id = 7", "# text = The dog house #"]
    assert first.column(FORM) == ["The", "dog house", "#"]
    assert second.comments == ["# sent_id = 8", "# text = Hi"]
    assert third.comments == ["# newpar", "# sent_id = 9", "# text = Bye"]


def test_a_later_part_of_a_document_has_no_beginning() -> None:
    for layout in ("horizontal", "vertical"):
        (found,) = read_layout(["a"], layout, first_number=3, goes_on=True)
        assert found.comments == ["# sent_id = 3", "# text = a"]


def test_words_without_end_are_refused() -> None:
    limit_lines(100)
    try:
        with pytest.raises(DataError, match="no empty line in 101 characters of words"):
            list(read_layout(["a"] * 200, "vertical"))
    finally:
        limit_lines(MAX_LINE)


@given(WORDS)
def test_what_is_written_is_read_again_as_udpipe_reads_it(
    sentences: list[list[tuple[str, bool]]],
) -> None:
    udpipe = pytest.importorskip("ufal.udpipe")
    # with a blank inside, or without
    wanted = [[f"{word} x" if blank else word for word, blank in each] for each in sentences]
    lines = "".join(" ".join(each).replace(" x", "\u00a0x") + "\n" for each in wanted)
    for layout, write in (("horizontal", horizontal), ("vertical", vertical)):
        found = list(read_layout(lines.split("\n"), "horizontal"))
        text = "".join(map(write, found))
        assert forms_of(text, layout) == wanted
        reader = udpipe.InputFormat.newInputFormat(layout)
        reader.setText(text)
        theirs, error = udpipe.Sentence(), udpipe.ProcessingError()
        for own in wanted:
            assert reader.nextSentence(theirs, error)
            assert [word.form for word in theirs.words][1:] == own
        assert not reader.nextSentence(theirs, error)
