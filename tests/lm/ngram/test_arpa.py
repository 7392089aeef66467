"""ARPA files: every toolkit's dialect, what is written, and what is refused."""

from __future__ import annotations

import gzip
import itertools
import math
import random
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from lm.ngram.random_tables import build, random_rows
from lm.ngram.references import Rows, entries, look_up

from seqtool.core.errors import ConfigError, ModelError
from seqtool.core.vocabulary import Vocabulary
from seqtool.lm.ngram import arpa
from seqtool.lm.ngram.arpa import is_arpa, read_arpa, write_arpa
from seqtool.lm.ngram.table import BOS_NATS, BackoffTable, TableLevel

GOLDEN = Path(__file__).parent / "golden"
LN_10 = math.log(10)

# n-gram -> log10 of its probability and of its backoff
Ngrams = dict[tuple[str, ...], tuple[float, float]]
GOLDEN_NGRAMS: Ngrams = {
    ("<unk>",): (-1.5, 0),
    ("</s>",): (-0.8, 0),
    ("a",): (-0.5, -0.25),
    ("b",): (-0.75, -0.125),
    ("<s>",): (-99, -0.30103),
    ("a", "</s>"): (-0.4, 0),
    ("a", "b"): (-0.3, -0.0625),
    ("b", "a"): (-0.6, 0),
    ("<s>", "a"): (-0.2, -0.5),
    ("<s>", "a", "</s>"): (-0.1, 0),
    ("<s>", "a", "b"): (-0.7, 0),
}


def table_of(ngrams: Ngrams, vocabulary: Vocabulary) -> BackoffTable:
    """Lay n-grams out by the definition: sorted by the row of their context, then by word."""
    ids = {word: i for i, word in enumerate([*vocabulary.symbols, "<s>"])}
    levels, rows, order = [], {(): 0}, max(map(len, ngrams))
    for n in range(1, order + 1):
        keys = sorted(
            (rows[tuple(ids[word] for word in ngram[:-1])], ids[ngram[-1]], ngram)
            for ngram in ngrams
            if len(ngram) == n
        )
        rows, num_contexts = (
            {tuple(ids[word] for word in ngram): i for i, (_, _, ngram) in enumerate(keys)},
            len(rows),
        )
        values = np.array([ngrams[ngram] for _, _, ngram in keys]).reshape(-1, 2) * LN_10
        begins = [sum(context < c for context, _, _ in keys) for c in range(num_contexts + 1)]
        levels.append(
            TableLevel(
                np.array([word for _, word, _ in keys], np.int32),
                np.array(begins, np.int32),
                values[:, 0].astype(np.float32),
                values[: None if n < order else 0, 1].astype(np.float32),
            )
        )
    return BackoffTable(tuple(levels), len(vocabulary))


def assert_equal(
    found: BackoffTable, wanted: BackoffTable, log10_error: float, relative: float = 0.0
) -> None:
    assert found.vocabulary_size == wanted.vocabulary_size
    assert found.order == wanted.order
    for name, array in wanted.arrays().items():
        other = found.arrays()[name]
        assert other.dtype == array.dtype
        if array.dtype == np.int32:
            np.testing.assert_array_equal(other, array, name)
        else:
            np.testing.assert_allclose(
                other, array, rtol=relative, atol=log10_error * LN_10, err_msg=name
            )


def read(path: Path) -> tuple[BackoffTable, Vocabulary, list[str]]:
    notes: list[str] = []
    table, vocabulary = read_arpa(path, on_note=notes.append)
    return table, vocabulary, notes


@pytest.mark.parametrize(
    ("name", "changed", "notes"),
    [
        ("kenlm", {}, []),
        (
            "srilm",
            {("<unk>",): (-100, 0)},
            ["the file has no <unk>: its log10 probability is set to -100"],
        ),
        ("irstlm", {}, []),
        ("unusual", {("a", "b"): (-0.3, 2.5)}, ["<UNK> is read as <unk>"]),
    ],
)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_every_dialect(
    name: str, changed: Ngrams, notes: list[str], line_end: str, tmp_path: Path
) -> None:
    text = (GOLDEN / f"{name}.arpa").read_text(encoding="utf-8")
    path = tmp_path / "x"
    path.write_bytes(text.replace("\n", line_end).encode())
    assert is_arpa(path)
    table, vocabulary, said = read(path)
    others = ["b", "a"] if name == "unusual" else ["a", "b"]  # in order of the file
    assert vocabulary.symbols == ["<unk>", "</s>", *others]
    assert_equal(table, table_of({**GOLDEN_NGRAMS, **changed}, vocabulary), 0, relative=1e-7)
    assert said == notes
    assert table.levels[0].log_probs[4] == np.float32(BOS_NATS)


def test_written_text(tmp_path: Path) -> None:
    # zeros and -99 are written short; "a </s>" and "b a" begin nothing, so they have no backoff
    vocabulary = Vocabulary(["<unk>", "</s>", "a", "b"])
    ngrams = {**GOLDEN_NGRAMS, ("b",): (-math.inf, -math.inf), ("a", "b"): (1e-9, 1.25)}
    write_arpa(table_of(ngrams, vocabulary), vocabulary, tmp_path / "x.arpa")
    assert (tmp_path / "x.arpa").read_text() == (
        "\\data\\\nngram 1=5\nngram 2=4\nngram 3=2\n\n"
        "\\1-grams:\n-1.5000000\t<unk>\n-0.8000000\t</s>\n-0.5000000\ta\t-0.2500000\n"
        "-99\tb\t-99\n-99\t<s>\t-0.3010300\n\n"
        "\\2-grams:\n-0.4000000\ta </s>\n0\ta b\t1.2500000\n-0.6000000\tb a\n"
        "-0.2000000\t<s> a\t-0.5000000\n\n"
        "\\3-grams:\n-0.1000000\t<s> a </s>\n-0.7000000\t<s> a b\n\n\\end\\\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["x.arpa"]


@st.composite
def tables(draw: st.DrawFn) -> tuple[Ngrams, Vocabulary]:
    others = st.text("ab\\-1.\xa0\x0b한é", min_size=1, max_size=20)
    words = ["<unk>", "</s>", *draw(st.lists(others, max_size=4, unique=True))]
    order = draw(st.integers(1, 4))
    log10 = st.floats(-90, 0, width=32) | st.sampled_from([-math.inf, -100.0, -1.0, 0.0])
    backoff = st.floats(-20, 3, width=32) | st.just(0.0) | st.just(-math.inf)

    def values() -> tuple[float, float]:
        return draw(log10), draw(backoff)

    ngrams: Ngrams = {(word,): values() for word in [*words, "<s>"]}
    ngrams[("<s>",)] = (-99, draw(backoff))
    level = [(word,) for word in [*words, "<s>"]]
    for _ in range(order - 1):
        possible = [(*ngram, word) for ngram in level if ngram[-1] != "</s>" for word in words]
        level = draw(st.lists(st.sampled_from(possible), min_size=1, max_size=8, unique=True))
        if all(ngram[-1] == "</s>" for ngram in level):
            level.append((*level[0][:-1], "<unk>"))
        ngrams.update({ngram: values() for ngram in level})
    return ngrams, Vocabulary(words)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables(), st.booleans(), st.randoms())
def test_what_is_written_is_read(
    tmp_path: Path, model: tuple[Ngrams, Vocabulary], packed: bool, order: random.Random
) -> None:
    table = table_of(*model)
    path = tmp_path / ("x.arpa.GZ" if packed else "x.arpa")
    write_arpa(table, model[1], path)
    found, vocabulary, notes = read(path)
    assert vocabulary == model[1]
    assert notes == []
    # 5e-8 by the decimals, and the nats are float32
    assert_equal(found, table, 5.001e-8, relative=2**-23)
    # with each section's lines in any order it is the same table, unigrams in order but for that
    raw = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
    head, *sections = re.split(r"(?=^\\[2-9]-grams:)", raw.decode(), flags=re.MULTILINE)
    mixed = [head]
    for section in sections:
        lines = section.removesuffix("\\end\\\n").strip("\n").split("\n")
        ngrams = lines[1:]
        order.shuffle(ngrams)
        mixed.append("\n".join([lines[0], *ngrams, "\n"]))
    text = "".join(mixed).removesuffix("\\end\\\n") + "\\end\\\n"
    path = tmp_path / "y"
    path.write_bytes(text.encode())
    assert_equal(read(path)[0], found, 0)


@given(st.floats(-1000, 0, width=32) | st.floats(-(2.0**-20), 0, width=32))
@example(-1e-45)
@example(-2.3025850929940455)  # -1 in log10
@example(-9.99999995 * math.log(10))  # rounds to ten
def test_numbers_have_seven_exact_decimals(nats: float) -> None:
    level = TableLevel(
        np.arange(3, dtype=np.int32),
        np.array([0, 3], np.int32),
        np.array([nats, 0, BOS_NATS], np.float32),
        np.empty(0, np.float32),
    )
    text = b"".join(arpa.arpa_pieces(BackoffTable((level,), 2), Vocabulary(["<unk>", "</s>"])))
    number = text.decode().split("\n")[4].split("\t")[0]
    log10 = float(np.float32(nats)) / LN_10
    assert abs(float(number) - log10) <= 5.0001e-8
    assert re.fullmatch(r"0|-\d+\.\d{7}", number)


def test_what_no_sentence_holds_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text(
        "\\data\\\nngram 1=3\nngram 2=4\nngram 3=2\nngram 4=0\n\n\\1-grams:\n-1 <s> -.5\n-2 </s>\n"
        "-1 a\n\n\\2-grams:\n-1 </s> <s>\n-1 <s> <s>\n-1 a <s>\n-.25 a a\n\n"
        "\\3-grams:\n-1 a <s> a\n-1 </s> <s> a\n\n\\4-grams:\n\n\\end\\\n"
    )
    table, vocabulary, notes = read(path)
    assert vocabulary.symbols == ["<unk>", "</s>", "a"]
    assert [len(level) for level in table.levels] == [4, 1]
    assert table.levels[1].words.tolist() == [2]
    assert table.levels[1].begins.tolist() == [0, 0, 0, 1, 1]  # the context is a, row 2
    assert len(table.levels[1].backoffs) == 0
    assert notes == [
        "the file has no <unk>: its log10 probability is set to -100",
        "5 n-grams with <s> after or </s> before another word left out",
        "order 4 holds no n-grams and was left out",
        "order 3 holds no n-grams and was left out",
    ]


KENLM = (GOLDEN / "kenlm.arpa").read_text(encoding="utf-8")


@pytest.mark.parametrize("mark", ["<s>", "</s>"])
def test_marks_of_sentences_may_be_in_capitals_but_not_missing(tmp_path: Path, mark: str) -> None:
    path = tmp_path / "x.arpa"
    path.write_text(KENLM.replace(mark, mark.upper()), encoding="utf-8")
    table, vocabulary, notes = read(path)
    expected = arpa.read_arpa(GOLDEN / "kenlm.arpa")
    assert entries(table) == entries(expected[0])
    assert vocabulary.symbols == expected[1].symbols
    assert notes == [f"{mark.upper()} is read as {mark}"]
    path.write_text(KENLM.replace(mark, "[mark]"), encoding="utf-8")
    with pytest.raises(ModelError, match=f"has no {mark}"):
        read(path)


def test_what_is_taken_for_an_arpa_file(tmp_path: Path) -> None:
    contents = {
        "model.arpa": b"",  # by its name: reading it says what is wrong
        "model.ARPA.GZ": b"no gzip",
        "model.lm": KENLM.encode(),
        "model.gz": gzip.compress(KENLM.encode()),
        "text.txt": b"about \\data\\ in a line\n",
        "binary": bytes(range(256)),
        "nothing": b"",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder.arpa").mkdir()
    found = sorted(path.name for path in tmp_path.iterdir() if is_arpa(path))
    assert found == ["model.ARPA.GZ", "model.arpa", "model.gz", "model.lm"]
    assert not is_arpa(tmp_path / "missing.arpa")


@given(random_rows(4, 3))
def test_without_unknown_the_other_words_keep_their_probabilities(rows: Rows) -> None:
    table = build(rows, 4, 3)
    closed = arpa.without_unknown(table)
    kept = entries(closed)
    assert not [ngram for ngram in kept if len(ngram) > 1 and 0 in ngram]
    if closed.order < table.order:  # an order goes if each of its n-grams has the word
        return
    for length in range(3):
        for context in itertools.product((1, 2, 3, 4), repeat=length):
            for word in (1, 2, 3):
                expected = look_up(entries(table), word, context)
                assert look_up(kept, word, context) == expected, (context, word)


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    table, vocabulary = read_arpa(GOLDEN / "kenlm.arpa")
    with pytest.raises(ConfigError, match="the table is of 4 words, but the vocabulary has 2"):
        write_arpa(table, Vocabulary(["<unk>", "</s>"]), tmp_path / "x.arpa")
    with pytest.raises(ConfigError, match="the symbol ' ' holds a blank"):
        write_arpa(table, Vocabulary(["<unk>", "</s>", " ", "a"]), tmp_path / "x.arpa")
    assert list(tmp_path.iterdir()) == []
    write_arpa(table, vocabulary, tmp_path / "x.arpa")
    before = (tmp_path / "x.arpa").read_bytes()

    def stop(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_arpa(table, vocabulary, tmp_path / "x.arpa", on_progress=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["x.arpa"]
    assert (tmp_path / "x.arpa").read_bytes() == before


def slow_read(path: Path) -> Ngrams:
    """Read an ARPA file as its definition says, in ten lines."""
    ngrams: Ngrams = {}
    order = 0
    for line in gzip.decompress(path.read_bytes()).decode().split("\n"):
        if section := re.fullmatch(r"\\(\d+)-grams:", line):
            order = int(section[1])
        elif order and "\t" in line:
            probability, words, *backoff = line.split("\t")
            ngrams[tuple(words.split(" "))] = float(probability), float((backoff or ["0"])[0])
    return ngrams


@pytest.mark.parametrize("name", ["ewt-dev.5.pruned", "ptb-valid.3", "unkword.3"])
def test_files_of_kenlm(name: str, shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "kenlm" / f"{name}.arpa.gz"
    wanted = slow_read(path)
    wanted[("<s>",)] = (-99, wanted[("<s>",)][1])
    table, vocabulary, notes = read(path)
    assert notes == []
    write_arpa(table, vocabulary, tmp_path / "x.gz")
    found = slow_read(tmp_path / "x.gz")
    assert found.keys() == wanted.keys()
    # float32 nats of at most 20 are off by 1e-6 at most, 4e-7 in log10
    np.testing.assert_allclose(
        [found[ngram] for ngram in wanted], list(wanted.values()), rtol=0, atol=5e-7
    )


@pytest.mark.parametrize(
    ("old", "new", "line", "word"),
    [
        ("ngram 1=5\n", "ngram 1=4\n", 11, "more 1-grams"),
        ("ngram 2=4", "ngram 2=5", 19, "instead of the 5"),
        ("ngram 2=4\n", "", 3, "number of 3-grams"),
        ("ngram 1=5\nngram 2=4\nngram 3=2\n", "", 3, "ngram 1="),
        ("ngram 2=4", "ngram 2=4000000000", 3, "4,000,000,000"),
        ("ngram 3=2\n", "", 18, "\\end\\"),
        ("\\2-grams:", "\\4-grams:", 13, "\\4-grams:"),
        *[
            ("-0.3\ta b", f"{number}\ta b", 17, "log-probability")
            for number in ("nan", "0.3", "inf", "x", "-0.3e", "--1", "-")
        ],
        ("-0.3\ta b\t", "-0.3\ta\t", 17, "'-0.0625' is none of the unigrams"),
        ("-0.3\ta b\t", "-0.3\ta b c\t", 17, "5 columns"),
        ("-0.3\ta b\t-0.0625", "-0.3", 17, "1 column"),
        ("-0.0625", "x" * 99, 17, "backoff"),
        ("-0.0625", "NaN", 17, "backoff"),
        ("-0.3\ta b", "-0.3\ta c", 17, "'c' is none of the unigrams"),
        ("-0.3\ta b", "-0.3\tb a", 17, "second time"),
        ("<s> a b", "<s> a </s>", 21, "second time"),
        ("\tb\t-0.125", "\ta", 11, "second time"),
        ("<s> a b", "<s> b a", 21, "'<s> b'"),
        ("\\end\\\n", "", 22, "cut off"),
        ("-0.7\t<s> a b\n\n\\end\\\n", "", 20, "cut off"),
        ("a b", "a \xe9", 17, "UTF-8"),
        (KENLM, "", None, "empty"),
        (KENLM, "a b\nngram 1=2\n", None, "\\data\\"),
        (KENLM, "\\data\\\nngram 1=0\n\n\\1-grams:\n\n\\end\\\n", 5, "no words"),
        (KENLM, "iARPA\n\n\\data\\\n", 1, "IRSTLM"),
    ],
)
def test_damaged_files(old: str, new: str, line: int | None, word: str, tmp_path: Path) -> None:
    assert old in KENLM
    path = tmp_path / "x.arpa"
    path.write_text(KENLM.replace(old, new), encoding="latin-1")
    with pytest.raises(ModelError) as caught:
        read_arpa(path)
    assert word in caught.value.message
    assert (caught.value.path, caught.value.line) == (str(path), line)
    assert caught.value.hint


def test_a_packed_file_that_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(gzip.compress(KENLM.encode())[:-4])
    with pytest.raises(ModelError, match="gzip file is damaged"):
        read_arpa(tmp_path / "x.gz")
