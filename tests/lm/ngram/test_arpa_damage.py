"""Damaged ARPA files: each is refused with its line, or read as what it still is."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seqtool.core.errors import ModelError
from seqtool.lm.ngram.arpa import read_arpa

GOLDEN = Path(__file__).parent / "golden"
KENLM = (GOLDEN / "kenlm.arpa").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("ngram 1=5\n", "ngram 1=4\n", 11, "more 1-grams than the 4 that \\data\\ gives"),
        ("ngram 2=4", "ngram 2=5", 19, "4 2-grams instead of the 5 of \\data\\"),
        ("ngram 3=2", "ngram 3=3", 23, "2 3-grams instead of the 3 of \\data\\"),
        ("ngram 2=4\n", "", 3, "the number of 3-grams stands where that of 2-grams was expected"),
        ("ngram 1=5\nngram 2=4\nngram 3=2\n", "", 3, "stands where `ngram 1=` and a number was"),
        ("ngram 2=4", "ngram 2=4000000000", 3, "4,000,000,000 n-grams are more than seqtool holds"),
        ("ngram 3=2\n", "", 18, "'\\3-grams:' stands where \\end\\ was expected"),
        ("\\2-grams:", "\\4-grams:", 13, "'\\4-grams:' stands where \\2-grams: was expected"),
        ("-0.3\ta b", "nan\ta b", 17, "the log-probability is not a number (NaN)"),
        ("-0.3\ta b", "0.3\ta b", 17, "the log-probability 0.3 is positive"),
        ("-0.3\ta b", "inf\ta b", 17, "the log-probability inf is positive"),
        ("-0.3\ta b", "a b", 17, "'a' stands where a log-probability was expected"),
        ("-0.3\ta b", "-0.3e\ta b", 17, "'-0.3e' stands where a log-probability was expected"),
        ("-0.3\ta b", "--1\ta b", 17, "'--1' stands where a log-probability was expected"),
        ("-0.3\ta b", "-\ta b", 17, "'-' stands where a log-probability was expected"),
        ("-0.3\ta b\t", "-0.3\ta\t", 17, "the word '-0.0625' is none of the unigrams"),
        ("-0.3\ta b\t", "-0.3\ta b c\t", 17, "5 columns, but an n-gram of order 2 has 3, or 4 wi"),
        ("-0.3\ta b\t-0.0625", "-0.3", 17, "1 column, but an n-gram of order 2 has 3"),
        ("-0.0625", "x" * 99, 17, f"'{'x' * 37}...' stands where a backoff was expected"),
        ("-0.0625", "NaN", 17, "'NaN' stands where a backoff was expected"),
        ("-0.3\ta b", "-0.3\ta c", 17, "the word 'c' is none of the unigrams"),
        ("-0.3\ta b", "-0.3\tb a", 17, "the same n-gram is there a second time"),
        ("<s> a b", "<s> a </s>", 21, "the same n-gram is there a second time"),
        ("\tb\t-0.125", "\ta", 11, "the word 'a' is there a second time"),
        ("<s> a b", "<s> b a", 21, "this n-gram begins with '<s> b', which is none of the 2-grams"),
        ("\\end\\\n", "", 22, "the file is cut off: it ends before \\end\\"),
        ("-0.7\t<s> a b\n\n\\end\\\n", "", 20, "it ends after 1 3-grams instead of the 2 of"),
        ("\\3-grams:", "", 18, "it ends before"),
    ],
)
def test_damaged_files(old: str, new: str, line: int, message: str, tmp_path: Path) -> None:
    assert old in KENLM
    text = KENLM.replace(old, new)
    if old == "\\3-grams:":
        text = text[: KENLM.index(old)]
    path = tmp_path / "x.arpa"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ModelError) as caught:
        read_arpa(path)
    assert message in caught.value.message
    assert (caught.value.path, caught.value.line) == (str(path), line)
    assert caught.value.hint


def test_other_files_are_refused(tmp_path: Path) -> None:
    cases = {
        "empty.arpa": (b"", "the file is empty", None),
        "text.arpa": (b"a b\nngram 1=2\n", "is no ARPA file: it has no line \\data\\", None),
        "only.arpa": (b"\\data\\\n", "stands where `ngram 1=` and a number was expected", 1),
        "none.arpa": (b"\\data\\\nngram 1=0\n\n\\1-grams:\n\n\\end\\\n", "has no words", 5),
        "irstlm.arpa": (b"iARPA\n\n\\data\\\n", "iARPA is IRSTLM's own format", 1),
        "latin.arpa": (KENLM.replace("a b", "a \xe9").encode("latin-1"), "not UTF-8 at byte", 17),
        "cut.arpa.gz": (gzip.compress(KENLM.encode())[:-20], "the gzip file is damaged", None),
    }
    for name, (content, message, line) in cases.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(ModelError) as caught:
            read_arpa(path)
        assert message in caught.value.message
        assert (caught.value.path, caught.value.line) == (str(path), line)
        assert caught.value.hint
    with pytest.raises(ModelError, match="no such file"):
        read_arpa(tmp_path / "nothing.arpa")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(KENLM)),
            st.integers(0, 3),
            st.sampled_from([b"", b"\n", b"\t", b" ", b"-", b"1", b"a", b"\\", b"\xff", b"\n\n"]),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_damage_anywhere_is_refused_or_harmless(
    tmp_path: Path, changes: list[tuple[int, int, bytes]]
) -> None:
    content = KENLM.encode()
    for start, size, new in changes:
        content = content[:start] + new + content[start + size :]
    (tmp_path / "x.arpa").write_bytes(content)
    try:
        table, vocabulary = read_arpa(tmp_path / "x.arpa")
    except ModelError:
        return
    assert len(table.levels[0]) == len(vocabulary) + 1
    for below, level in zip(table.levels, table.levels[1:], strict=False):
        assert len(level.begins) == len(below) + 1
        assert (level.begins[0], level.begins[-1]) == (0, len(level))
        assert np.all(np.diff(level.begins) >= 0)
        assert np.all((level.words >= 0) & (level.words < len(vocabulary)))
        assert len(level.log_probs) == len(level)
        assert np.all(level.log_probs <= 0)
