"""Text that lacks columns which a parser reads: found by both roads, and nothing else is."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsing.parser.tiny import make_sentence, random_parser, random_sentences, tiny_config

from seqtool.core import checkpoint
from seqtool.core.errors import DataError
from seqtool.parsing.encoding.features import SymbolTable, Types, encode
from seqtool.parsing.missing_columns import CHANCE, CLUSTER, ColumnCheck, most_without
from seqtool.parsing.parser.parser import Parser
from seqtool.treebank.conllu import read_batches, read_conllu, write_conllu
from seqtool.treebank.sentence import FEATS, FORM, UPOS, XPOS, Sentence

COLUMNS = (FORM, UPOS, XPOS, FEATS)


def types_of(shares: list[float] | None, symbols: dict[str, tuple[str, ...]]) -> Types:
    lexical = SymbolTable(COLUMNS, {"form": ("a",)})
    return Types(lexical, SymbolTable(COLUMNS, symbols), shares)


def sentence_of(words: str) -> Sentence:
    """Words such as UF: u or U says whether UPOS is there, x or X XPOS, f or F FEATS."""
    rows = []
    for number, word in enumerate(words.split(), 1):
        columns = ["_"] * 10
        columns[0], columns[FORM] = str(number), "a"
        for place, letter in ((UPOS, "U"), (XPOS, "X"), (FEATS, "F")):
            columns[place] = "v" if letter in word else "_"
        rows.append(columns)
    return Sentence([], rows, [])


@pytest.mark.parametrize(
    ("share", "most"), [(0.0, 0), (1.0, math.inf), (0.1, 6), (0.5, 19.93), (0.9, 131.13)]
)
def test_more_words_than_chance_would_bring(share: float, most: float) -> None:
    # 0.1 ** 6 is one in a million
    assert most_without(share) == pytest.approx(most, abs=0.01)
    if 0 < share < 1:
        assert share ** (most_without(share) + 1) < CHANCE


words = st.text("uUxXfF", min_size=0, max_size=3)
texts = st.lists(st.lists(st.lists(words, min_size=1, max_size=4), max_size=4), max_size=4)


@given(
    chunks=texts,
    is_all=st.booleans(),
    shares=st.tuples(*[st.sampled_from([0.0, 0.01, 0.4, 1.0])] * 3),
)
def test_the_first_sentence_that_lacks_something(
    chunks: list[list[list[str]]], is_all: bool, shares: tuple[float, ...]
) -> None:
    check = ColumnCheck(types_of([0.0, *shares], {}))
    in_a_row = dict.fromkeys("UXF", 0)
    for chunk in chunks:
        sentences = [sentence_of(" ".join(word or "-" for word in words)) for words in chunk]
        found = check.find(encode(sentences, check._types), is_all=is_all)
        # the same, word by word
        in_all = {letter: not any(letter in w for s in chunk for w in s) for letter in "UXF"}
        expected: tuple[int, list[str]] | None = None
        for place, words_of in enumerate(chunk):
            lacking = []
            for letter, share in zip("UXF", shares, strict=True):
                has = any(letter in word for word in words_of)
                in_a_row[letter] = 0 if has else in_a_row[letter] + len(words_of)
                most = most_without(share)
                whole = is_all and in_all[letter] and chunk is chunks[0]
                if most and not whole:
                    most = max(most, CLUSTER)
                if in_a_row[letter] > most:
                    lacking.append(letter)
            if lacking and expected is None:
                expected = place, lacking
        if expected is None:
            assert found is None
        else:
            names = {"U": "UPOS", "X": "XPOS", "F": "FEATS"}
            assert found is not None
            assert found.sentence == expected[0]
            assert found.columns == tuple(names[letter] for letter in expected[1])
            return
        is_all = False


def test_many_words_in_a_row_of_a_long_text() -> None:
    # a word of a hundred has no FEATS; a text of ten words without any is one that lacks them, but
    # in a longer one such words may stand together
    for num, is_all, is_found in ((10, True, True), (CLUSTER, False, False), (51, False, True)):
        check = ColumnCheck(types_of([0.0, 1.0, 1.0, 0.01], {}))
        sentences = [sentence_of("F F"), *[sentence_of("-")] * num][0 if not is_all else 1 :]
        found = check.find(encode(sentences, check._types), is_all=is_all)
        assert (found is not None) is is_found
    assert found is not None
    assert found.error("x", 3).message == "no word up to here has FEATS, which this parser reads"


def test_what_a_parser_without_shares_had() -> None:
    # of what older models know: UPOS always there, FEATS for some words, XPOS for none
    symbols = {"upos": ("v",), "xpos": ("_",), "feats": ("_", "v")}
    check = ColumnCheck(types_of(None, symbols))
    assert check.find(encode([sentence_of("U U U")], check._types)) is None
    found = check.find(encode([sentence_of("U U"), sentence_of("F F")], check._types))
    assert found is not None
    assert (found.sentence, found.columns) == (1, ("UPOS",))
    # 0.6 ** 28 is the first power below one in a million
    for num, is_found in ((27, False), (28, True)):
        check = ColumnCheck(types_of(None, symbols))
        arrays = encode([sentence_of("U " * num)], check._types)
        assert (check.find(arrays, is_all=True) is not None) is is_found


@pytest.fixture
def parser() -> Parser:
    return random_parser(tiny_config())


def untagged(num: int) -> list[Sentence]:
    sentences = random_sentences(num, 5)
    for row in sentences[-1].rows:
        row[UPOS] = "_"
    return sentences


def test_both_roads_refuse_the_same_sentence(parser: Parser, tmp_path: Path) -> None:
    path = tmp_path / "x.conllu"
    write_conllu(untagged(4), path)
    line = path.read_text().rstrip("\n").rfind("\n\n")
    first = path.read_text()[:line].count("\n") + 3
    for read in (lambda: read_conllu(path, check="columns"), lambda: read_batches([path])):
        with pytest.raises(DataError) as caught:
            list(parser.parse_stream(read()))
        assert str(caught.value) == (
            f"{path}:{first}: no word of the sentence has UPOS, which this parser reads"
        )
        assert "seqtool tag" in caught.value.hint
        assert len(list(parser.parse_stream(read(), allow_missing=True))) > 0
    sentences = untagged(1)
    with pytest.raises(DataError, match="has UPOS"):
        parser.parse(sentences)
    parser.parse(sentences, allow_missing=True)
    assert sentences[0].heads()


def test_a_parser_of_forms_asks_for_nothing() -> None:
    parser = random_parser(tiny_config(fields=["form", "suffix"]))
    assert len(list(parser.parse_stream(untagged(3)))) == 3


def test_a_word_without_a_tag_among_others_is_no_fault(parser: Parser) -> None:
    sentence = make_sentence([("a", "X"), ("B", "_"), ("cc", "_")])
    assert list(parser.parse_stream([sentence])) == [sentence]


def test_the_shares_are_kept_with_the_model(parser: Parser, tmp_path: Path) -> None:
    parser.types.empty_shares = [0.0] * len(parser.types.lexical.columns)
    parser.save(tmp_path / "p", scores={}, data={})
    loaded = checkpoint.load(tmp_path / "p")
    assert loaded.types.empty_shares == parser.types.empty_shares
    assert loaded.copy().types.empty_shares == parser.types.empty_shares


@pytest.mark.parametrize("shares", [[0.0], "x", [2.0] * 5, [None] * 5])
def test_shares_that_are_none_are_refused(parser: Parser, shares: Any) -> None:
    from seqtool.parsing.parser.parser import read_shares

    vocabulary = parser.vocabulary
    vocabulary.extra["empty_shares"] = shares
    with pytest.raises(ValueError, match="shares"):
        read_shares(vocabulary, 5)
