"""Eight bytes in one number, against the bytes one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from seqtool.core.eight_bytes import blanks, equal_to, num_continuing

EIGHT = st.binary(min_size=8, max_size=8) | st.text("aé \n\t\r🐶", min_size=8).map(
    lambda text: text.encode()[:8]
)


def first_mark(marks: int) -> int:
    """Return the byte of the lowest mark, 8 for none."""
    return 8 if not marks else ((marks & -marks).bit_length() - 1) // 8


@given(EIGHT, st.integers(0, 255))
def test_marks(data: bytes, byte: int) -> None:
    chunk = int.from_bytes(data, "little")
    found = [place for place in range(8) if data[place] == byte]
    assert first_mark(equal_to(chunk, byte)) == min(found, default=8)
    of_blanks = [place for place in range(8) if data[place] in b" \t\r\n"]
    marks = blanks(chunk)
    end = min(of_blanks, default=8)
    assert first_mark(marks) == end
    assert num_continuing(chunk, marks) == sum(0x80 <= value < 0xC0 for value in data[:end])
