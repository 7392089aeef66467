"""The hash table that compiled functions share."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numba import types

from seqtool.core.jit import compiled
from seqtool.core.string_table import StringTable, bytes_in, find, string_hash


@compiled(types.int64(types.uint64[::1], types.int64[::1], types.uint8[::1], bytes_in))
def find_all(slots, starts, text, data):  # type: ignore[no-untyped-def]
    """The number of a string that is all of an array."""
    hash_, first = string_hash(data, 0, data.shape[0])
    return find(slots, starts, text, hash_, first, data, 0, data.shape[0])[1]


texts = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=30)
    | st.sampled_from(["", "\0", "1234567", "12345678", "123456781234567", "1234567812345678"])
)


@given(texts, texts)
def test_strings_are_numbered_as_by_a_dictionary(first: list[str], second: list[str]) -> None:
    table = StringTable(first)
    numbers = {text: number for number, text in enumerate(dict.fromkeys(first))}
    assert [table.text(number) for number in range(len(table))] == list(numbers)
    assert table.num_bytes == len("".join(numbers).encode())
    for _ in range(2):
        arrays = table.arrays
        for text in first + second:
            data = np.frombuffer(text.encode(), np.uint8)
            found = find_all(arrays.slots, arrays.starts, arrays.text, data)
            assert found == numbers.get(text, -1)
        table.make_room(10_000, 100_000)  # as if many were to come: new slots, the same strings
