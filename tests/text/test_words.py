"""The compiled word table against a dictionary and regular expressions."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtool.core.errors import ModelError
from seqtool.core.vocabulary import EOS, EOS_ID, UNK, UNK_ID
from seqtool.text.words import WordTable


def reference(block: bytes, numbers: dict[bytes, int], *, insert: bool) -> list[int]:
    """The ids of a block with regular expressions and a dictionary."""
    ids = []
    for line in block.split(b"\n")[:-1]:
        for word in re.split(rb"[ \t\r\n]+", line):
            if word and insert:
                ids.append(numbers.setdefault(word, len(numbers)))
            elif word:
                ids.append(numbers.get(word, UNK_ID))
        ids.append(EOS_ID)
    return ids


def new_numbers() -> dict[bytes, int]:
    return {b"<unk>": 0, b"</s>": 1, b"<s>": 2}


some_bytes = st.lists(
    st.binary(max_size=40)
    | st.sampled_from([b" ", b"\n", b"\t", b"\r", b"\0", b"\x0b", b"\xc2\xa0", b"<unk>"])
    | st.sampled_from([b"a", b"ab", b"eight888", b"eight888nine9999", b"eight888nine9998"])
).map(lambda parts: b"".join(parts).replace(b"s>", b"S>"))


@given(first=some_bytes, second=some_bytes, other=some_bytes)
def test_word_table_equals_a_dictionary(first: bytes, second: bytes, other: bytes) -> None:
    table, numbers = WordTable(), new_numbers()
    for block in (first + b"\n", second + b"\n"):
        assert table.add(block).tolist() == reference(block, numbers, insert=True)
    assert len(table) == len(numbers)
    block = other + b"\n"
    assert table.encode(block).tolist() == reference(block, numbers, insert=False)
    assert len(table) == len(numbers)


@given(some_bytes, some_bytes)
def test_words_that_stand_in_a_text_are_looked_up(known: bytes, text: bytes) -> None:
    table = WordTable()
    table.add(known + b"\n")
    spans = [found.span() for found in re.finditer(rb"[^ \t\r\n]+", text)]
    begins, ends = np.array(spans, np.int64).reshape(-1, 2).T.copy()
    ids = table.look_up(np.frombuffer(text, np.uint8), begins, ends).tolist()
    numbers = new_numbers()
    reference(known + b"\n", numbers, insert=True)
    assert ids == [numbers.get(text[begin:end], -1) for begin, end in spans]


def test_word_table_grows() -> None:
    rng = np.random.default_rng(0)
    # 100,000 words of up to 30 bytes, many of them met again, and three very long ones
    words = [str(number).encode() * int(size) for number, size in rng.integers(1, 6, (100_000, 2))]
    words += [str(number).encode() for number in rng.integers(0, 10**9, 60_000)]
    words += [b"x" * 300_000, b"x" * 299_999, b"y" * 300_000, b"x" * 300_000]
    order = rng.permutation(len(words))
    block = b" ".join(words[i] for i in order) + b"\n"
    table, numbers = WordTable(), new_numbers()
    expected = reference(block, numbers, insert=True)
    assert table.add(block).tolist() == expected
    assert table.counts[3:].tolist() == np.bincount(expected, minlength=len(numbers))[3:].tolist()
    assert table.word(int(table.add(b"x" * 300_000 + b"\n")[0])) == "x" * 300_000
    some = list(numbers)[3:50]
    assert [table.word(numbers[word]).encode() for word in some] == some


@pytest.mark.parametrize("prefix", [b"", b"the_same"])
def test_words_of_the_same_hash_are_told_apart(prefix: bytes) -> None:
    # the hash reads 8 bytes at a time: state = mix(state ^ chunk). For any two first chunks there
    # are second chunks that lead to the same state
    mask, multiplier, seed = (1 << 64) - 1, 0xD6E8FEB86659FD93, 0x9E3779B97F4A7C15

    def mix(state: int, chunk: bytes) -> int:
        state = (state ^ int.from_bytes(chunk, "little")) * multiplier & mask
        return state ^ state >> 32

    begin = mix(seed, prefix) if prefix else seed
    blanks = set(b" \t\r\n")
    one, found = b"aaaaaaaabbbbbbbb", []
    for i in range(1000):
        first = f"word{i:04d}".encode()
        second = mix(begin, one[:8]) ^ mix(begin, first) ^ int.from_bytes(one[8:], "little")
        word = first + second.to_bytes(8, "little")
        assert mix(mix(begin, word[:8]), word[8:]) == mix(mix(begin, one[:8]), one[8:])
        if not blanks & set(word):
            found.append(prefix + word)
    assert len(found) > 500
    words = [prefix + one, *found]
    table = WordTable()
    ids = table.add(b" ".join(words * 2) + b"\n")
    assert len(set(table._table.arrays.hashes[3 : len(table)].tolist())) == 1
    assert ids.tolist() == [*range(3, 3 + len(words))] * 2 + [EOS_ID]


@pytest.mark.parametrize("num_words", [255, 256, 257, 1000])
def test_words_are_split_off_in_batches(num_words: int) -> None:
    # of every length about the 8 bytes that are read at once, empty lines and runs of blanks
    # between them, and the last word up to the block's last byte
    rng = np.random.default_rng(num_words)
    gaps = [b" ", b"\n", b"\t", b" \r\n", b"\n\n  "]
    parts = []
    for size, gap in rng.integers(0, [20, len(gaps)], (num_words, 2)):
        parts += [bytes(rng.integers(97, 99, size + 1, np.uint8)), gaps[gap]]
    block = b"".join(parts[:-1])
    table, numbers = WordTable(), new_numbers()
    expected = reference(block + b"\n", numbers, insert=True)[:-1]
    assert table.add(block).tolist() == expected
    assert table.encode(block).tolist() == expected
    other = WordTable()
    assert other.encode(block).tolist() == [EOS_ID * (number == EOS_ID) for number in expected]


def test_word_table_refuses_blanks_within_words() -> None:
    for symbols in (["a b"], ["a\n"], [""], ["x\r", "y"]):
        with pytest.raises(ModelError, match="blanks"):
            WordTable([UNK, EOS, *symbols])
