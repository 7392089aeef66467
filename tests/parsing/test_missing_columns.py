"""Missing columns of a text: found by both roads, and nothing else is."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsing.parser.tiny import make_sentence, random_parser, random_sentences, tiny_config

from seqtool.core import checkpoint
from seqtool.core.errors import DataError
from seqtool.parsing.encoding.features import SymbolTable, Types, encode
from seqtool.parsing.missing_columns import CHANCE, CLUSTER, ColumnCheck, most_without
from seqtool.parsing.parser.vote import combine
from seqtool.treebank.conllu import read_batches, read_conllu, write_conllu
from seqtool.treebank.sentence import FEATS, FORM, UPOS, XPOS, Sentence

COLUMNS = (FORM, UPOS, XPOS, FEATS)
LETTERS = {"U": UPOS, "X": XPOS, "F": FEATS}


def types_of(*shares: float) -> Types:
    """Of a treebank that leaves these shares of UPOS, XPOS and FEATS empty."""
    lexical, tags = SymbolTable(COLUMNS, {"form": ("a",)}), SymbolTable(COLUMNS, {})
    return Types(lexical, tags, [0.0, *shares])


def sentence_of(words: list[str]) -> Sentence:
    """Words such as UF: U, X and F say that UPOS, XPOS and FEATS are there."""
    rows = []
    for number, word in enumerate(words, 1):
        rows.append([str(number), "a", *["_"] * 8])
        for letter, column in LETTERS.items():
            rows[-1][column] = "v" if letter in word else "_"
    return Sentence([], rows, [])


@pytest.mark.parametrize(
    ("share", "most"), [(0.0, 0), (1.0, math.inf), (0.1, 6), (0.5, 19.93), (0.9, 131.13)]
)
def test_more_words_than_chance_would_bring(share: float, most: float) -> None:
    # 0.1 ** 6 is one in a million
    assert most_without(share) == pytest.approx(most, abs=0.01)
    if 0 < share < 1:
        assert share ** (most_without(share) + 1) < CHANCE


words = st.text("UXF", min_size=0, max_size=3)


@given(
    chunks=st.lists(st.lists(st.lists(words, min_size=1, max_size=4), max_size=4), max_size=4),
    from_start=st.booleans(),
    shares=st.tuples(*[st.sampled_from([0.0, 0.01, 0.4, 1.0])] * 3),
)
def test_the_first_sentence_that_misses_something(
    chunks: list[list[list[str]]], from_start: bool, shares: tuple[float, ...]
) -> None:
    types = types_of(*shares)
    check = ColumnCheck(types, from_start=from_start)
    in_a_row = dict.fromkeys("UXF", 0)
    for number, chunk in enumerate(chunks):
        found = check.find(encode(map(sentence_of, chunk), types), types)
        # the same, word by word
        expected = None
        for place, sentence in enumerate(chunk):
            missing = []
            for letter, share in zip("UXF", shares, strict=True):
                has = any(letter in word for word in sentence)
                in_a_row[letter] = 0 if has else in_a_row[letter] + len(sentence)
                is_nowhere = not any(letter in word for one in chunk for word in one)
                most = most_without(share)
                if most and not (number == 0 and from_start and is_nowhere):
                    most = max(most, CLUSTER)
                if in_a_row[letter] > most:
                    missing.append(LETTERS[letter])
            expected = expected or ((place, missing) if missing else None)
        assert (found and found[:2]) == expected
        if expected:
            return


@pytest.mark.parametrize(
    ("num", "has_first", "is_missing"),
    [(10, False, True), (CLUSTER, True, False), (51, True, True)],
)
def test_many_words_in_a_row_of_a_long_text(num: int, has_first: bool, is_missing: bool) -> None:
    """A word of a hundred has no FEATS; in a longer text such words may stand together."""
    types = types_of(1.0, 1.0, 0.01)
    sentences = [sentence_of(["F", "F"])] * has_first + [sentence_of(["-"])] * num
    assert bool(ColumnCheck(types).find(encode(sentences, types), types)) == is_missing


def test_both_roads_refuse_the_same_sentence(tmp_path: Path) -> None:
    parser, path = random_parser(tiny_config()), tmp_path / "x.conllu"
    sentences = random_sentences(4, 5)
    for row in sentences[-1].rows:
        row[UPOS] = "_"
    write_conllu(sentences, path)
    first = len(path.read_text().rstrip("\n").split("\n")) - len(sentences[-1]) + 1
    for read in (lambda: read_conllu(path, check="columns"), lambda: read_batches([path])):
        with pytest.raises(DataError, match="has UPOS, which this parser reads") as caught:
            list(parser.parse_stream(read()))
        assert (caught.value.path, caught.value.line) == (str(path), first)
        assert len(list(parser.parse_stream(read(), allow_missing=True))) > 0
    with pytest.raises(DataError, match="has UPOS"):
        parser.parse(sentences)
    parser.parse(sentences, allow_missing=True)
    assert sentences[-1].heads()
    # a parser of forms asks for nothing, and a word without a tag among others is no fault
    assert list(random_parser(tiny_config(fields=["form"])).parse_stream(sentences)) == sentences
    sentence = make_sentence([("a", "X"), ("B", "_"), ("cc", "_")])
    assert list(parser.parse_stream([sentence])) == [sentence]


def test_the_shares_are_kept_with_the_model(tmp_path: Path) -> None:
    parser = random_parser(tiny_config(lexical_size=1))
    parser.save(tmp_path / "old", scores={}, data={})
    assert checkpoint.load(tmp_path / "old").known.usual is None
    empty = parser.types.empty_shares = [0.25] * len(parser.types.lexical.columns)
    parser.unknown_share = 0.12341
    parser.save(tmp_path / "p", scores={}, data={})
    loaded = checkpoint.load(tmp_path / "p")
    for model in (loaded, loaded.copy()):
        assert (model.types.empty_shares, model.known.usual) == (empty, 0.1234)
    assert combine([random_parser(tiny_config("swap")), loaded]).known.usual is None
