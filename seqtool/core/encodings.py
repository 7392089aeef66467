"""A guess at the encoding of a text that is not UTF-8, for the hint that says how to convert it.

LATIN1 gives every byte a letter, so that converting from it never fails: a Korean text becomes
mojibake without a word. So the encodings of the East are tried first. One is named where the text
decodes with it, and almost all that is not ASCII then are letters that are common in its language:

    SHIFT_JIS, EUC-JP   a fifth is kana, as in any Japanese text
    CP949               Hangul
    GB18030, BIG5       characters of the first, more frequent part of the standard
"""

from __future__ import annotations

from collections.abc import Callable

SAMPLE = 1 << 16  # bytes that are looked at
LEAST = 4  # letters that say something
MOST_UTF8 = 16  # bytes that are not ASCII before the error: more are of UTF-8 that is damaged
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def conversion_hint(text: bytes, start: int) -> str:
    """Return how to convert a text to UTF-8, at whose byte `start` it is not.

    Args:
        text: its beginning.
        start: of the first byte that is not UTF-8.
    """
    if text.startswith(UTF_16_MARKS):
        return "convert it: iconv -f UTF-16 -t UTF-8"
    if (name := _guess(text, start)) is not None:
        return f"it seems to be in {name}, so convert it: iconv -f {name} -t UTF-8"
    return "convert it: iconv -f LATIN1 -t UTF-8, or whichever encoding it has"


def _guess(text: bytes, start: int) -> str | None:
    """Return the name that iconv has for the encoding of a text; None where it may be any."""
    num_before = sum(byte >= 0x80 for byte in text[max(0, start - SAMPLE) : start])
    begin = text.rfind(b"\n", 0, start) + 1
    end = text.rfind(b"\n", begin, begin + SAMPLE) if len(text) > begin + SAMPLE else len(text)
    if num_before > MOST_UTF8 or end <= start:
        return None
    for name, codec, is_likely in _TRIED:
        try:
            letters = [letter for letter in text[begin:end].decode(codec) if not letter.isascii()]
        except UnicodeDecodeError:
            continue
        if len(letters) >= LEAST and is_likely(letters):
            return name
    return None


def _is_japanese(letters: list[str]) -> bool:
    # kana of half width are what other encodings become when they are read as SHIFT_JIS
    return (
        _share(letters, lambda letter: "\u3041" <= letter <= "\u30ff") >= 0.2
        and _share(letters, lambda letter: "\uff61" <= letter <= "\uff9f") < 0.1
    )


def _is_korean(letters: list[str]) -> bool:
    return _share(letters, lambda letter: "가" <= letter <= "힣") >= 0.8


def _is_simplified(letters: list[str]) -> bool:
    # rows 16 to 55 of GB 2312; symbols and punctuation stand in rows before them
    return _share(letters, lambda letter: 0xA1 <= _lead(letter, "gb2312") <= 0xD7) >= 0.8


def _is_traditional(letters: list[str]) -> bool:
    return _share(letters, lambda letter: 0xA1 <= _lead(letter, "big5") <= 0xC6) >= 0.8


def _lead(letter: str, codec: str) -> int:
    """Return the first byte of a letter in an encoding; 0 where it has none."""
    return letter.encode(codec, "ignore")[:1][0] if letter.encode(codec, "ignore") else 0


def _share(letters: list[str], is_one: Callable[[str], bool]) -> float:
    return sum(map(is_one, letters)) / len(letters)


# (name for iconv, Python's codec, whether its letters are likely), in this order: characters of
# Japanese and Hangul decode as common ones of GB 2312, but not the other way round
_TRIED: tuple[tuple[str, str, Callable[[list[str]], bool]], ...] = (
    ("SHIFT_JIS", "shift_jis", _is_japanese),
    ("EUC-JP", "euc_jp", _is_japanese),
    ("CP949", "cp949", _is_korean),
    ("GB18030", "gb18030", _is_simplified),
    ("BIG5", "big5", _is_traditional),
)
