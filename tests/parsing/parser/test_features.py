"""Fields, symbols, types and slots."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsing.parser.tiny import make_sentence

from seqtool.core.errors import ConfigError
from seqtool.core.vocabulary import Vocabulary
from seqtool.parsing.encoding.features import (
    NONE,
    NONE_TYPE,
    PAD,
    ROOT,
    ROOT_TYPE,
    SymbolTable,
    Types,
    columns_of,
    encode,
    shape,
)
from seqtool.parsing.parser.config import parse_fields
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.transition.hidden_layer import compile_slots, extract
from seqtool.parsing.parser.transition.transitions import Configurations
from seqtool.treebank.sentence import FEATS, FORM, LEMMA, UPOS, XPOS

WORDS = st.lists(
    st.tuples(st.text("abA1", min_size=1, max_size=4), st.sampled_from(["NOUN", "VERB"])),
    min_size=1,
    max_size=8,
)


def tables(counts: dict[tuple[str, ...], int], fields: tuple[str, ...], **rest: int) -> SymbolTable:
    return SymbolTable.build(counts.items(), fields, rest.get("min_count", 1), columns_of(fields))


@pytest.mark.parametrize(
    ("form", "expected"),
    [("Ab-1950s", "Aa-11a"), ("USA", "AA"), ("hello", "aa"), ("서울", "cc"), (":-)", ":-)")],
)
def test_the_shape_of_a_form(form: str, expected: str) -> None:
    assert shape(form) == expected


def test_symbols_are_numbered_by_group_and_frequency() -> None:
    # 0 PAD 1 NONE 2 ROOT | 3 unknown form, 4 "The", 5 "dog" | 6 unknown, 7 "the", 8 "dog"
    table = tables({("dog",): 2, ("The",): 3}, ("form",))
    assert table.groups == {"form": ("The", "dog"), "lower": ("the", "dog")}
    assert table.num_symbols == 9
    assert table.row(("The",)) == [4, 7]
    assert table.row(("THE",)) == [3, 7]
    assert table.row(("cat",)) == [3, 6]


def test_rare_symbols_are_unknown_but_not_those_of_tags() -> None:
    # cats once, dogs twice: -s three times, -gs and -ogs twice
    table = tables({("cats",): 1, ("dogs",): 2}, ("form", "suffix"), min_count=2)
    assert table.groups["form"] == ("dogs",)
    assert table.groups["suffix1"] == ("s",)
    assert table.groups["suffix3"] == ("ogs",)
    assert tables({("X",): 1}, ("upos",), min_count=2).groups["upos"] == ("X",)


def test_every_feature_is_a_symbol_beside_the_whole() -> None:
    table = tables({("Case=Nom|Number=Sing",): 1}, ("feats",))
    assert table.groups == {
        "feats": ("Case=Nom|Number=Sing",),
        "feature": ("Case=Nom", "Number=Sing"),
    }
    # 3 unknown, 4 the whole; 5 unknown, 6 and 7 the features
    row = table.row(("Case=Nom|Number=Plur",))
    assert row[:3] == [3, 6, 5]
    assert set(row[3:]) == {PAD}
    assert len(row) == table.width


def test_morphemes_of_joined_values_are_symbols_beside_the_whole() -> None:
    counts = {("고향+은", "ncn+jxt"): 2, ("서울+이+ㅂ니다", "nq+jp+ef"): 1, ("내", "mma"): 1}
    table = SymbolTable.build(counts.items(), ["lemma", "xpos"], 1, (LEMMA, XPOS))
    assert table.groups["lemma"] == ("고향+은", "서울+이+ㅂ니다", "내")
    assert table.groups["stem"] == ("고향", "서울", "내")
    assert table.groups["ending"] == ("은", "이", "ㅂ니다")
    assert table.groups["morpheme"] == ("ncn", "jxt", "nq", "jp", "ef", "mma")
    assert table.groups["last_morpheme"] == ("jxt", "ef", "mma")
    # 3 unknown, 4 to 6 lemmas; 7 unknown, 8 to 10 stems; 11 unknown, 12 to 14 endings; 15 unknown,
    # 16 to 18 tags; 19 unknown, 20 to 25 their morphemes; 26 unknown, 27 to 29 the last ones
    row = table.row(("서울+은", "nq+jxt"))
    assert row[:7] == [3, 9, 12, 15, 22, 21, 27]
    assert set(row[7:]) == {PAD}


def test_a_few_joined_values_make_no_groups() -> None:
    for lemma in ("C++", "+", "a+", "plain"):
        assert tables({(lemma,): 1}, ("lemma",)).groups == {"lemma": (lemma,)}
    # one word of 20 is no more than 5%; one of 19 is
    assert set(tables({("A+E",): 1, ("be",): 19}, ("lemma",)).groups) == {"lemma"}
    assert set(tables({("A+E",): 1, ("be",): 18}, ("lemma",)).groups) == {
        *("lemma", "stem", "ending")
    }


def test_counts_of_symbols_that_training_drops() -> None:
    counts = {("dog", "dog"): 2, ("Dog", "dog"): 3}
    table = SymbolTable.build(counts.items(), ["form", "lemma", "shape"], 1, (FORM, LEMMA))
    numbers, unknowns = table.counted(counts.items())
    by_symbol = {}
    for group, symbols in table.groups.items():
        for symbol in symbols:
            by_symbol[group, symbol] = numbers[table.ids_of(group)[symbol]]
    assert by_symbol == {
        ("form", "Dog"): 3, ("form", "dog"): 2, ("lower", "dog"): 5, ("lemma", "dog"): 5,
        ("shape", "Aaa"): 3, ("shape", "aa"): 2,
    }  # fmt: skip
    # of each group, the unknown symbol stands before the others: form, lower, lemma, shape
    assert [unknowns[table.ids_of(group)[symbol]] for group, symbol in by_symbol] == [
        3, 3, 6, 8, 10, 10,
    ]  # fmt: skip
    assert numbers[:4].tolist() == [0, 0, 0, 0]
    assert unknowns[:4].tolist() == [0, 1, 2, 3]


@given(WORDS)
def test_symbols_survive_the_tables_of_a_vocabulary(words: list[tuple[str, str]]) -> None:
    counts = {(form, form, upos, "_"): 1 for form, upos in words}
    table = SymbolTable.build(counts.items(), ["form", "upos"], 1, (FORM, LEMMA, UPOS, FEATS))
    tables, extra = table.to_tables("lexical"), {"columns": list(table.columns)}
    again = SymbolTable.read(Vocabulary(tables=tables, extra=extra), "lexical")
    assert again == table
    assert [again.row(key) for key in counts] == [table.row(key) for key in counts]


@given(st.lists(WORDS, min_size=1, max_size=4))
def test_words_share_a_type_if_and_only_if_their_columns_are_the_same(
    texts: list[list[tuple[str, str]]],
) -> None:
    counts = {(form, upos): 1 for text in texts for form, upos in text}
    columns = (FORM, UPOS)
    types = Types(
        SymbolTable.build(counts.items(), ["form"], 1, columns),
        SymbolTable.build(counts.items(), ["upos"], 1, columns),
    )
    sentences = [make_sentence(text) for text in texts]
    for place, row in enumerate(row for sentence in sentences for row in sentence.rows):
        row[LEMMA] = f"lemma{place}"  # which no field reads
    arrays = encode(sentences, types)
    assert arrays.lengths.tolist() == [len(text) for text in texts]
    assert arrays.types[0] == NONE_TYPE
    keys: dict[tuple[str, str], int] = {}
    for begin, text in zip(arrays.tokens.tolist(), texts, strict=True):
        assert arrays.types[begin] == ROOT_TYPE
        for i, key in enumerate(text, 1):
            assert arrays.types[begin + i] == keys.setdefault(key, int(arrays.types[begin + i]))
    assert len(set(keys.values())) == len(keys)
    assert len(types) == 2 + len(keys)
    lexical, tags = types.arrays()
    for (form, upos), number in keys.items():
        assert lexical[number].tolist() == types.lexical.row((form, upos))
        assert tags[number].tolist() == types.tags.row((form, upos))
    assert lexical[NONE_TYPE, 0] == tags[NONE_TYPE, 0] == NONE
    assert lexical[ROOT_TYPE, 0] == tags[ROOT_TYPE, 0] == ROOT


def test_bad_places_are_quoted() -> None:
    for address, part in (("q0", "'q0'"), ("s0.l3", "'l3'"), ("s0..l1", "''"), ("s10", "'s10'")):
        with pytest.raises(ConfigError, match=part):
            compile_slots([address], [], [])
    for measure in ("s0", "s0.middles", "s0-q"):
        with pytest.raises(ConfigError, match=r"measure|place"):
            compile_slots([], [], [measure])


def test_what_stands_in_the_slots() -> None:
    """Of "a b c d e" after SH SH SH LEFT(l0) SH: stack ROOT a c d, buffer e; b depends on c."""
    labels = Labels(("x", "y"), ("root",))
    batch = Configurations("arc-standard", labels, 1, 5)
    which = np.zeros(1, np.int32)
    # types 11..15 for a..e, 10 for ROOT
    token_types = np.asarray([0, 10, 11, 12, 13, 14, 15], np.int32)
    batch.start(which, np.ones(1, np.int32), np.asarray([5], np.int32))  # shifts a and b itself
    for transition in (0, 3, 0):  # SHIFT c, LEFT with y, SHIFT d
        batch.advance(which, np.asarray([transition], np.int32))
    words = ["s0", "s1", "s2", "s3", "s4", "b0", "b1", "s1.l1", "s1.l1.l1", "s1.l2", "s1.r1"]
    words += ["s0.prev", "s0.next", "s1.prev", "b0.next", "s3.prev", "s1.l1.next"]
    slots = compile_slots(
        words, ["s1.l1", "s0.l1", "s1"], ["s1.lefts", "s1.rights", "s0.lefts", "s2-s0", "s1-b1"]
    )
    found, found_labels, measures = extract(batch, which, token_types, slots)
    named = dict(zip(words, found[0].tolist(), strict=True))
    assert named == {
        "s0": 14, "s1": 13, "s2": 11, "s3": 10, "s4": 0, "b0": 15, "b1": 0,
        "s1.l1": 12, "s1.l1.l1": 0, "s1.l2": 0, "s1.r1": 0,
        "s0.prev": 13, "s0.next": 15, "s1.prev": 12, "b0.next": 0, "s3.prev": 0, "s1.l1.next": 13,
    }  # fmt: skip
    assert found_labels[0].tolist() == [2, 0, 0]  # label y is 1, and one more
    # one left child: 2; none: 1; s2-s0 is 3 words: 4; b1 is not there: 0
    assert measures[0].tolist() == [2, 1, 1, 4, 0]


def test_fields_are_named_or_left_out() -> None:
    assert parse_fields("form, upos") == ["form", "upos"]
    assert "lemma" not in parse_fields("-lemma")
    assert len(parse_fields("-lemma,-xpos")) == 6
    with pytest.raises(ConfigError, match="'formm'"):
        parse_fields("formm")
    with pytest.raises(ConfigError, match="leaves some out"):
        parse_fields("form,-lemma")
