"""Which encoding a text that is not UTF-8 is said to have."""

from __future__ import annotations

import pytest

from seqtool.core.encodings import conversion_hint

KOREAN = "정부는 어제 새로운 정책을 발표했다.\n나는 학교에 갔다.\n"
JAPANESE = "政府は昨日、新しい政策を発表した。\n私は学校へ行きました。\n"
SIMPLIFIED = "政府昨天宣布了新的政策。\n我去学校上课,然后回家。\n"
TRADITIONAL = "政府昨天宣布了新的政策。\n我去學校上課,然後回家。\n"
FRENCH = "Le café était fermé, où êtes-vous allés après l'été ?\nÀ bientôt, François.\n"
GERMAN = "Äpfel und Öl, größer als die Straße; über Nacht wäre es schöner gewesen.\n"
RUSSIAN = "Правительство вчера объявило новую политику. Я пошёл в школу.\n"


def hint_of(data: bytes) -> str:
    with pytest.raises(UnicodeDecodeError) as caught:
        data.decode()
    return conversion_hint(data, caught.value.start)


@pytest.mark.parametrize(
    ("text", "codec", "name"),
    [
        (KOREAN, "cp949", "CP949"),
        (KOREAN, "euc_kr", "CP949"),
        ("an English line first\n" * 9 + KOREAN, "cp949", "CP949"),
        (JAPANESE, "shift_jis", "SHIFT_JIS"),
        (JAPANESE, "euc_jp", "EUC-JP"),
        (SIMPLIFIED, "gb18030", "GB18030"),
        (TRADITIONAL, "big5", "BIG5"),
        (FRENCH, "latin-1", "LATIN1"),
        (GERMAN, "latin-1", "LATIN1"),
        (RUSSIAN, "cp1251", "LATIN1"),
        (RUSSIAN, "koi8-r", "LATIN1"),
        (KOREAN, "utf-16", "UTF-16"),
        (FRENCH * 9_000, "latin-1", "LATIN1"),
        (KOREAN * 9_000, "cp949", "CP949"),
    ],
)
def test_the_encoding_that_a_hint_names(text: str, codec: str, name: str) -> None:
    hint = hint_of(text.encode(codec))
    assert f"iconv -f {name} -t UTF-8" in hint
    assert ("whichever" in hint) == (name == "LATIN1")


@pytest.mark.parametrize("text", [KOREAN, JAPANESE, SIMPLIFIED])
def test_utf8_with_a_damaged_byte_is_no_other_encoding(text: str) -> None:
    data = text.encode()
    assert "whichever encoding" in hint_of(data[:-3] + b"\xff\n")
    assert "whichever encoding" in hint_of(data[:40] + data[41:])
