from __future__ import annotations

import json
import re
from copy import copy
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_models import char_tokenizer

from seqtool.core.errors import ConfigError, DataError, ModelError
from seqtool.core.vocabulary import BOS, EOS, EOS_ID, UNK, UNK_ID, SpecialTokens, Vocabulary
from seqtool.text.subwords import SubwordTokenizer, segments_of, train_subwords
from seqtool.text.tokenizers import (
    ByteTokenizer,
    CharTokenizer,
    Tokenizer,
    WordTokenizer,
    load_tokenizer,
)

WORDS = ["the", "cat", "no\N{NO-BREAK SPACE}break", "a\x0bb", "고양이", "nul\0", "😀"]
LETTERS = "abcdefghij ㄱ가각é\N{NO-BREAK SPACE}\t\r\x0b\x0c<>/s😀"
PROSE = [
    "the cat sat on the mat , and a bad dad had a cab",
    "  two  spaces , a tab\tand 가각 고양이 éé 😀 <s> </s> <unk> s/s",
    "each dish is a fish : jig , big , high\rthe end ",
]

lines_of_text = st.text(st.characters(codec="utf-8", exclude_characters="\n"))
covered_lines = st.text(st.sampled_from(sorted(set("".join(PROSE)))))


@cache
def tokenizer_of(unit: str) -> Tokenizer:
    """A tokenizer that covers every character of LETTERS or PROSE."""
    if unit == "word":
        return WordTokenizer(Vocabulary([UNK, EOS, *WORDS]), special_tokens="unknown")
    if unit == "char":
        return CharTokenizer(Vocabulary([UNK, EOS, *LETTERS]))
    if unit == "byte":
        return ByteTokenizer(Vocabulary(ByteTokenizer.symbols()))
    kind, _, fallback = unit.partition("+")
    size = None if kind == "unigram" else 400 if fallback else 60
    return train_subwords(
        PROSE * 20,
        unit=kind,  # type: ignore[arg-type]
        vocab_size=size,
        byte_fallback=bool(fallback),
    )


UNITS = ["word", "char", "byte", "bpe", "unigram", "bpe+bytes", "unigram+bytes"]


@pytest.mark.parametrize("unit", UNITS)
@given(lines=st.lists(lines_of_text | covered_lines | st.sampled_from(WORDS)))
def test_encode_block_is_encode_line_by_line(unit: str, lines: list[str]) -> None:
    tokenizer = tokenizer_of(unit)
    block = "".join(f"{line}\n" for line in lines).encode()
    expected = [token for line in lines for token in (*tokenizer.encode(line).tolist(), EOS_ID)]
    ids = tokenizer.encode_block(block)
    assert ids.dtype == np.int32
    assert ids.tolist() == expected


@pytest.mark.parametrize("unit", UNITS)
@given(line=lines_of_text | covered_lines)
def test_tokens_match_ids(unit: str, line: str) -> None:
    tokenizer = tokenizer_of(unit)
    tokens, ids = tokenizer.tokens(line), tokenizer.encode(line)
    assert len(tokens) == len(ids)
    for token, number in zip(tokens, ids.tolist(), strict=True):
        if number != UNK_ID:
            assert tokenizer.vocabulary.symbols[number] == token
    assert EOS_ID not in ids
    for read in (tokenizer.encode, tokenizer.tokens):
        with pytest.raises(DataError, match="half a surrogate pair"):
            read(f"{line}\udce9g")


@pytest.mark.parametrize(
    ("unit", "lines"),
    [
        ("byte", lines_of_text),
        ("char", st.text(st.sampled_from(LETTERS))),
        *((unit, covered_lines) for unit in ("bpe", "unigram")),
        *((unit, lines_of_text) for unit in ("bpe+bytes", "unigram+bytes")),
    ],
)
@given(data=st.data())
def test_round_trip(unit: str, lines: st.SearchStrategy[str], data: st.DataObject) -> None:
    tokenizer, line = tokenizer_of(unit), data.draw(lines)
    expected = line.replace("\ufdd0", "\ufffd") if unit != "byte" else line
    assert tokenizer.decode(tokenizer.encode(line)) == expected


@given(words=st.lists(st.sampled_from(WORDS)), blanks=st.text(" \t\r", min_size=1))
def test_words_round_trip(words: list[str], blanks: str) -> None:
    tokenizer = tokenizer_of("word")
    assert tokenizer.decode(tokenizer.encode(blanks.join(words))) == " ".join(words)


@pytest.mark.parametrize("unit", ["bpe", "unigram"])
def test_the_sign_for_a_space_is_no_space(unit: Literal["bpe", "unigram"]) -> None:
    tokenizer = train_subwords(["a b▁c d", "a▁b"] * 20, unit=unit, vocab_size=None)
    for line in ("a▁b", "▁▁ a", "a b"):
        assert tokenizer.decode(tokenizer.encode(line)) == line
    assert tokenizer.encode("a▁b").tolist() != tokenizer.encode("a b").tolist()
    other = tokenizer_of(unit)  # of a text without it
    assert other.decode(other.encode("a▁b")) == "a\ufffdb"


@pytest.mark.parametrize("unit", UNITS)
@given(data=st.data())
def test_stream_decoder_gives_the_same_text(unit: str, data: st.DataObject) -> None:
    tokenizer = tokenizer_of(unit)
    ids = data.draw(st.lists(st.integers(0, len(tokenizer.vocabulary))))
    decoder = tokenizer.decoder()
    parts = [decoder.push(token) for token in ids]
    assert "".join([*parts, decoder.flush()]) == tokenizer.decode(ids)


def test_decoding_by_hand() -> None:
    tokenizer = tokenizer_of("byte")
    decoder = tokenizer.decoder()
    syllable = tokenizer.encode("집").tolist()
    assert [decoder.push(token) for token in syllable] == ["", "", "집"]
    assert decoder.push(syllable[0]) == ""
    assert decoder.push(EOS_ID) == "\N{REPLACEMENT CHARACTER}\n"
    assert decoder.push(syllable[0]) == ""
    assert decoder.flush() == "\N{REPLACEMENT CHARACTER}"
    words = tokenizer_of("word")  # parted within a line only
    assert words.decode([2, 3, EOS_ID, 2, UNK_ID, len(words.vocabulary), 3]) == (
        "the cat\nthe <unk> cat"
    )


def test_unknown_characters_and_pieces_are_marked() -> None:
    for unit in ("char", "bpe", "unigram"):
        tokenizer = tokenizer_of(unit)
        ids = tokenizer.encode("aЖb")
        assert tokenizer.decode(ids) == "a\N{REPLACEMENT CHARACTER}b"
        assert (ids == UNK_ID).sum() == 1
        assert "Ж" in tokenizer.tokens("aЖb")


@pytest.mark.parametrize("unit", UNITS)
def test_lowercase(unit: str) -> None:
    tokenizer = copy(tokenizer_of(unit))
    tokenizer.lowercase = True
    ids = tokenizer.encode("the cat é").tolist()
    assert tokenizer.encode("THE Cat É").tolist() == ids
    assert tokenizer.encode_block("THE Cat É\n".encode()).tolist() == [*ids, EOS_ID]
    assert "".join(tokenizer.tokens("CAT")) in ("cat", "<0x63><0x61><0x74>")


@pytest.mark.parametrize("unit", UNITS)
def test_save_and_load(unit: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(unit)
    names = tokenizer.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    description = json.loads(json.dumps(tokenizer.describe()))
    loaded = load_tokenizer(tmp_path, description)
    assert loaded.describe() == tokenizer.describe()
    assert loaded.vocabulary == tokenizer.vocabulary
    for line in PROSE[:1]:
        assert loaded.encode(line).tolist() == tokenizer.encode(line).tolist()


def test_loading_what_is_not_there_or_damaged(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="unit is 'syllable'"):
        load_tokenizer(tmp_path, {"unit": "syllable"})
    with pytest.raises(ModelError, match="unit is None"):
        load_tokenizer(tmp_path, {})
    for unit in ("word", "bpe"):
        with pytest.raises(ModelError, match="missing"):
            load_tokenizer(tmp_path, {"unit": unit})
    (tmp_path / "tokenizer.model").write_bytes(b"no model")
    with pytest.raises(ModelError, match="not a SentencePiece model"):
        load_tokenizer(tmp_path, {"unit": "bpe"})
    tokenizer_of("word").save(tmp_path)
    with pytest.raises(ModelError, match="special_tokens"):
        load_tokenizer(tmp_path, {"unit": "word", "special_tokens": "perhaps"})
    with pytest.raises(ModelError, match="single characters"):
        load_tokenizer(tmp_path, {"unit": "char"}).encode("a")
    Vocabulary([UNK, EOS, "a b"]).save(tmp_path / "vocabulary.json")
    with pytest.raises(ModelError, match="blanks"):
        load_tokenizer(tmp_path, {"unit": "word"}).encode_block(b"a b\n")


@pytest.mark.parametrize("symbol", [BOS, EOS])
@pytest.mark.parametrize("blank", [" ", "\t", "\r"])
def test_special_symbols_among_words(symbol: str, blank: str) -> None:
    vocabulary = Vocabulary([UNK, EOS, "a", "b"])
    line = f"a{blank}{symbol}{blank}b"
    block = f"x\n{symbol}s s{symbol}\n{line}\n".encode()
    refusing = WordTokenizer(vocabulary)
    with pytest.raises(DataError, match=f"special symbol {symbol}") as error:
        refusing.encode_block(block)
    assert error.value.line == 3
    with pytest.raises(DataError, match=f"special symbol {symbol}"):
        refusing.encode(line)
    unknown = WordTokenizer(vocabulary, special_tokens="unknown")
    assert unknown.encode(line).tolist() == [2, UNK_ID, 3]
    assert unknown.encode_block(f"{line}\n".encode()).tolist() == [2, UNK_ID, 3, EOS_ID]
    skipping = WordTokenizer(vocabulary, special_tokens="skip")
    assert skipping.encode(line).tolist() == [2, 3]
    assert skipping.tokens(line) == ["a", "b"]
    assert skipping.encode("a <unk> <UNK>").tolist() == [2, UNK_ID, UNK_ID]
    assert skipping.encode_block(f"{line}\n".encode()).tolist() == [2, 3, EOS_ID]


def test_special_symbols_in_the_text_are_not_learnt() -> None:
    lines = ["<s> a </s> <unk> <0x41>"] * 200
    for unit in ("bpe", "unigram"):
        tokenizer = train_subwords(lines, unit=unit, vocab_size=None)  # type: ignore[arg-type]
        assert tokenizer.vocabulary.symbols[:2] == [UNK, EOS]
        assert not {BOS, "<0x41>"} & set(tokenizer.vocabulary.symbols)
        ids = tokenizer.encode(lines[0])
        assert not {UNK_ID, EOS_ID} & set(ids.tolist())
        assert tokenizer.decode(ids) == lines[0]


@pytest.mark.parametrize("unit", ["bpe", "unigram"])
def test_impossible_sizes_name_a_possible_one(unit: str) -> None:
    for size, option in ((5000, "at most"), (5, "alone need")):
        with pytest.raises(ConfigError, match=option) as error:
            train_subwords(PROSE * 9, unit=unit, vocab_size=size)  # type: ignore[arg-type]
        possible = int(re.findall(r"vocab-size (\d+)", error.value.hint)[0])
        tokenizer = train_subwords(PROSE * 9, unit=unit, vocab_size=possible)  # type: ignore[arg-type]
        assert len(tokenizer.vocabulary) == possible
    largest = train_subwords(PROSE * 9, unit=unit, vocab_size=None)  # type: ignore[arg-type]
    assert 40 < len(largest.vocabulary) < 5000


@settings(max_examples=30)
@given(words=st.lists(st.sampled_from(["the", "cat", "fish", "가각"]), min_size=1, max_size=60))
def test_cutting_long_lines_changes_no_piece(words: list[str]) -> None:
    tokenizer = tokenizer_of("bpe")
    assert isinstance(tokenizer, SubwordTokenizer)
    line = " ".join(words)
    whole = tokenizer.encode(line).tolist()
    parts = [tokenizer.encode(part).tolist() for part in segments_of(line, 12)]
    assert [token for part in parts for token in part] == whole


def test_a_very_long_line_of_subwords() -> None:
    tokenizer = tokenizer_of("bpe")
    line = "the cat " * 20_000 + "x" * 30_000
    ids = [*tokenizer.encode(line).tolist(), EOS_ID]
    assert tokenizer.encode_block(f"{line}\n{line}\n".encode()).tolist() == ids * 2
    assert len(tokenizer.tokens(line)) == len(ids) - 1


LINES = st.lists(st.text("abÉé \t\r\u00a0\u2028\0", max_size=12), max_size=5)


def by_line(tokenizer: Tokenizer, lines: list[str]) -> list[tuple[int, str]]:
    """The unknown tokens of lines, one line after another."""
    found, place = [], 0
    for line in lines:
        ids, tokens = tokenizer.encode(line).tolist(), tokenizer.tokens(line)
        pairs = enumerate(zip(ids, tokens, strict=True), place)
        found += [(number, token) for number, (id_, token) in pairs if id_ == UNK_ID]
        place += len(ids) + 1
    return found


@given(LINES, st.booleans(), st.sampled_from(["unknown", "skip"]))
def test_unknown_tokens(lines: list[str], lowercase: bool, special: SpecialTokens) -> None:
    lines = [*lines, "a <s> ab </s> <unk> ba", "</s>", ""]
    vocabulary = Vocabulary([UNK, EOS, "a", "é", "ba"])
    words = WordTokenizer(vocabulary, lowercase=lowercase, special_tokens=special)
    for tokenizer in (words, char_tokenizer("a É")):
        block = "".join(f"{line}\n" for line in lines).encode()
        ids = tokenizer.encode_block(block)
        found = list(tokenizer.unknown_tokens(block, ids))
        assert found == by_line(tokenizer, lines)
        sizes = tokenizer.unknown_sizes(block, ids).tolist()
        assert sizes == [len(token.encode()) for _, token in found]
