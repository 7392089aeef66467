from __future__ import annotations

import gzip
import io
import os
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import conllu
import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import sentence_texts

from seqtool.core.errors import ConfigError, DataError, OutputError
from seqtool.core.reading import MAX_LINE, limit_lines
from seqtool.treebank.conllu import (
    Broken,
    items_in,
    read_batches,
    read_conllu,
    read_items,
    read_stretches,
    write_conllu,
)
from seqtool.treebank.sentence import DEPREL, DEPS, FORM, ID, MISC, Sentence, parse_sentence

GOLDEN = Path(__file__).parent / "golden"
EVERYTHING = GOLDEN / "everything.conllu"


def row(word: int | str, head: int | str = 0, **columns: str) -> str:
    """One line of CoNLL-U: `row(2, 1, form="b")`."""
    names = ("form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
    values = dict.fromkeys(names, "_") | {"form": "w", "head": str(head)} | columns
    return "\t".join((str(word), *(values[name] for name in names)))


def block(*lines: str) -> str:
    """Lines as a sentence of a file."""
    return "".join(f"{line}\n" for line in lines) + "\n"


def read(path: Path, **options: object) -> list[Sentence]:
    return list(read_conllu(path, **options))  # type: ignore[arg-type]


def written(sentences: object, **options: bool) -> bytes:
    stream = io.BytesIO()
    write_conllu(sentences, stream, **options)  # type: ignore[arg-type]
    return stream.getvalue()


def chain(num_words: int) -> str:
    """A sentence whose every word depends on the one before."""
    return block(*(row(word, word - 1) for word in range(1, num_words + 1)))


# what is read


def test_everything_has_its_place() -> None:
    first, second, third = read(EVERYTHING)
    assert first.comments == [
        "# newdoc",
        "# sent_id = everything",
        "#no space, a tab\tand  = signs",
    ]
    assert (len(first), len(first.rows), first.path, first.line) == (7, 7, str(EVERYTHING), 1)
    assert first.column(ID) == ["1", "2", "3", "4", "5", "6", "7"]
    assert first.column(FORM)[:6] == ["vamos", "nos", "_", "a", "el", "10 000"]
    assert first.heads() == [0, 1, 1, 7, 7, 7, 1]
    assert first.column(DEPREL) == ["root", "obj", "punct", "case", "det", "nummod", "obl"]
    places = [(before, line.split("\t")[0]) for before, line in first.extras]
    assert places == [
        (0, "0.1"),
        (0, "1-2"),
        (2, "2.1"),
        (2, "2.2"),
        (3, "4-5"),
        (5, "6-6"),
        (7, "7.1"),
    ]
    assert (second.comments, second.heads(), second.extras) == ([], [0], [])
    # 17 lines and a blank one, then one line and a blank one, then two comments
    assert (second.line, third.line) == (19, 21)
    assert (third.line_of(1), third.line_of(2)) == (23, 24)
    # 3 comments, 0.1 and 1-2 stand before word 1; 2.1 and 2.2 before word 3, and so on
    assert [first.line_of(word) for word in range(1, 8)] == [6, 7, 10, 12, 13, 15, 16]


@pytest.mark.parametrize("name", ["", "ewt/en_ewt-ud-dev", "fr_sequoia/fr_sequoia-ud-dev"])
def test_agrees_with_the_conllu_package(shared_data: Path, name: str) -> None:
    path = shared_data / f"{name}.conllu" if name else EVERYTHING
    sentences = read(path)
    assert written(sentences) == path.read_bytes()
    expected = conllu.parse(path.read_text(encoding="utf-8"))
    for sentence, tokens in zip(sentences, expected, strict=True):
        words = [token for token in tokens if isinstance(token["id"], int)]
        assert sentence.column(FORM) == [token["form"] for token in words]
        assert sentence.heads() == [token["head"] for token in words]
        assert sentence.column(DEPREL) == [token["deprel"] for token in words]
        others = [token["id"] for token in tokens if not isinstance(token["id"], int)]
        ids = [line.split("\t")[0] for _, line in sentence.extras]
        assert ids == ["".join(map(str, identity)) for identity in others]


SIMPLE = block("# x", row(1), row(2, 1)) + block(row(1))


@pytest.mark.parametrize(
    "raw",
    [
        SIMPLE.encode(),
        SIMPLE.rstrip("\n").encode(),
        (SIMPLE.rstrip("\n") + "\n").encode(),
        ("\n\n" + SIMPLE.replace("\n\n", "\n\n\n\n\n")).encode(),
        SIMPLE.replace("\n", "\r\n").encode(),
        b"\xef\xbb\xbf" + SIMPLE.encode(),
        b"\xef\xbb\xbf\r\n" + SIMPLE.replace("\n", "\r\n").rstrip("\r\n").encode(),
        gzip.compress(SIMPLE.encode()),
        zstandard.ZstdCompressor().compress(SIMPLE.encode()),
    ],
    ids=["plain", "no end", "one end", "blank", "crlf", "bom", "bom crlf", "gzip", "zstd"],
)
def test_accepted(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "a.conllu"
    path.write_bytes(raw)
    with path.open("rb") as file:
        for source in (path, str(path), [path], raw, io.BytesIO(raw), file):
            assert written(read_conllu(source)) == SIMPLE.encode()
    if raw[0] in SIMPLE.encode()[:1]:
        text = raw.decode()
        for source in (text, "\ufeff" + text, io.StringIO(text)):
            assert written(read_conllu(source)) == SIMPLE.encode()


def test_files_do_not_run_into_one_another(tmp_path: Path) -> None:
    first, second, third = (tmp_path / f"{name}.conllu" for name in "abc")
    first.write_text(row(1, form="a"))
    second.write_text(row(1, form="b"))
    (tmp_path / "LICENSE.txt").write_text("not a treebank")
    sentences = [*read(tmp_path), *read_conllu([second, first, second])]
    assert [sentence.column(FORM)[0] for sentence in sentences] == [*"ab", *"bab"]
    assert {sentence.line for sentence in sentences} == {1}
    third.write_text(block(row(1)) * 3 + block(row(1), row(2, 9)))
    for files in ([first, second, third], tmp_path):  # lines are those of each file
        with pytest.raises(DataError, match="head 9") as error:
            list(read_conllu(files))
        assert (error.value.path, error.value.line) == (str(third), 8)


def test_pipes_are_read_and_written_as_they_are(tmp_path: Path) -> None:
    source, target = tmp_path / "from", tmp_path / "to"
    raw = EVERYTHING.read_bytes()
    for pipe in (source, target):
        os.mkfifo(pipe)
    with ThreadPoolExecutor() as others:
        others.submit(source.write_bytes, raw)
        sentences = list(read_conllu(source))
        received = others.submit(target.read_bytes)
        write_conllu(sentences, target)
        assert received.result(60) == raw
    assert {sentence.path for sentence in sentences} == {str(source)}
    assert target.is_fifo()


def test_a_sentence_of_many_words(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    path.write_text(chain(30_000))
    (sentence,) = read(path)
    assert sentence.heads() == list(range(30_000))
    assert written([sentence]) == path.read_bytes()


@pytest.mark.parametrize("num_blank", range(1, 6))
def test_blank_lines_are_counted(tmp_path: Path, num_blank: int) -> None:
    path = tmp_path / "a.conllu"
    path.write_text("\n" * num_blank + (row(1) + "\n" + "\n" * num_blank) * 3)
    step = 1 + num_blank
    assert [sentence.line for sentence in read(path)] == [step, 2 * step, 3 * step]


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    def peak(copies: int) -> int:
        path = tmp_path / f"{copies}.conllu.gz"
        path.write_bytes(gzip.compress(chain(20).encode() * copies, 1))
        tracemalloc.start()
        try:
            num_sentences = sum(1 for _ in read_conllu(path))
            assert num_sentences == copies
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    # 420 bytes a sentence: 2.5 MB and 7.6 MB of text, in blocks of 1 MB
    assert peak(18_000) < 1.1 * peak(6_000)


PLUS = """\
# global.columns = ID UPOS FORM HEAD DEPREL PARSEME:MWE
# text = She took part
1	PRON	She	2	nsubj	*
2	VERB	took	0	root	1:LVC.full

1	NOUN	part	0	root	_
2	X	odd

"""


def test_conllu_plus(tmp_path: Path) -> None:
    path = tmp_path / "x.conllup"
    path.write_text(PLUS.replace("2\tX\todd\n", ""))
    first, second = read_conllu(tmp_path)
    assert [(token.form, token.upos, token.head, token.deprel) for token in first] == [
        ("She", "PRON", 2, "nsubj"), ("took", "VERB", 0, "root"),
    ]  # fmt: skip
    assert [dict(token.misc) for sentence in (first, second) for token in sentence] == [
        {"PARSEME:MWE": "*"}, {"PARSEME:MWE": "1:LVC.full"}, {},
    ]  # fmt: skip
    assert [token["form"] for token in conllu.parse(path.read_text())[0]] == first.column(FORM)
    assert (first.line, first.line_of(1), second.line) == (1, 3, 6)
    assert list(read_batches(tmp_path)) == [first, second]
    for text, message in (
        (PLUS, r"<text>:7: 3 columns"),
        ("# global.columns = ID HEAD\n1\t0\n", "without ID or FORM"),
        ("# global.columns = ID FORM FORM\n1\ta\tb\n", "one of them twice"),
    ):
        with pytest.raises(DataError, match=message):
            list(read_conllu(text))
    # of ten columns in another order, which would pass for CoNLL-U
    names = "ID LEMMA FORM UPOS XPOS FEATS HEAD DEPREL DEPS MISC"
    text = f"# global.columns = {names}\n\n1\tl\tf\tX\t_\t_\t0\troot\t_\t_\n"
    (only,) = read_batches(text)
    assert only.column(FORM) == ["f"]
    # of the usual ten, it is CoNLL-U, whose comments stay as they are
    usual = "# global.columns = ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC"
    (plain,) = read_conllu(f"{usual}\n1\tf\tl\tX\t_\t_\t0\troot\t_\t_\n")
    assert plain.comments == [usual]
    # a file after it has its own columns
    (tmp_path / "y.conllu").write_text(SIMPLE)
    assert len(list(read_conllu(tmp_path))) == 4


# what is refused

GOOD = (row(1), row(2, 1), row(3, 1))
# name -> lines, the line at fault, a part of the message
BAD: dict[str, tuple[tuple[str, ...], int, str]] = {
    "nine columns": ((*GOOD, "4\ta\t_\t_\t_\t_\t1\t_\t_"), 4, "9 columns"),
    "eleven columns": ((row(1), row(2, 1, form="a\tb")), 2, "11 columns"),
    "spaces": ((row(1).replace("\t", "  "),), 1, "1 column"),
    "a blank line with spaces": ((row(1), "  "), 2, "only blanks"),
    "empty last": ((row(1), row(2, 1, misc="")), 2, "MISC is empty"),
    "empty last, earlier": ((row(1, misc=""), row(2, 1)), 1, "MISC is empty"),
    "empty first": ((row(""),), 1, "ID is empty"),
    "empty first, later": ((row(1), row("", 1)), 2, "ID is empty"),
    "empty form": ((row(1, form=""),), 1, "FORM is empty"),
    "blank form": ((row(1), row(2, 1, form="\u00a0 ")), 2, "FORM holds only blanks"),
    "carriage return": ((row(1, misc="a\rb"),), 1, "carriage return"),
    "comments only": (("# x", "# y"), 1, "comments only"),
    "late comment": ((row(1), "# x", row(2, 1)), 2, "comment after"),
    "head too high": ((*GOOD, row(4, 31)), 4, "head 31"),
    "head too low": ((row(1), row(2, -1)), 2, "head '-1'"),
    "head no number": ((row(1), row(2, "x")), 2, "head 'x'"),
    "head with zero": ((row(1), row(2, "01")), 2, "head '01'"),
    "head with sign": ((row(1), row(2, "+1")), 2, "head '+1'"),
    "head Arabic": ((row(1), row(2, "\u0661")), 2, "head '\u0661'"),
    "head enormous": ((row(1), row(2, "9" * 5000)), 2, f"head '{'9' * 30}...'"),
    "no trees": ((row(1, "_"), row(2, "_")), 1, "head '_'"),
    "cycle": ((row(1), row(2, 3), row(3, 4), row(4, 2)), 2, "cycle: 2 -> 3 -> 4 -> 2"),
    "long cycle": (
        (row(1), *(row(n, n + 1) for n in range(2, 11)), row(11, 2)),
        2,
        "cycle: 2 -> 3 -> 4 -> 5 -> 6 -> 7 -> ... -> 2",
    ),
    "own head": ((row(1), row(2, 2)), 2, "cycle: 2 -> 2"),
    "two roots": ((*GOOD, row(4, 0)), 4, "tokens 1 and 4"),
    "no root": (("# x", row(1, 2), row(2, 1)), 2, "no token has head 0"),
    "starts late": ((row(2),), 1, "ID '2' where 1"),
    "id repeated": ((row(1), row(1, 1)), 2, "ID '1' where 2"),
    "id left out": ((row(1), row(3, 1)), 2, "ID '3' where 2"),
    "ids swapped": ((row(1), row(3, 1), row(2, 1)), 2, "ID '3' where 2"),
    "id no number": ((row(1), row("2a", 1)), 2, "ID '2a' where 2"),
    "id with zero": ((row(1), row("02", 1)), 2, "ID '02' where 2"),
    "range reversed": ((row(1), row(2, 1), row("4-3"), row(3, 1)), 3, "4-3 ends before"),
    "range overlaps": ((row("1-2"), row(1), row("2-3"), row(2, 1), row(3, 1)), 3, "2-3 overlaps"),
    "range late": ((row(1), row("1-2"), row(2, 1)), 2, "1-2 stands before word 2"),
    "range early": ((row("2-3"), *GOOD), 1, "2-3 stands before word 1"),
    "range too long": ((*GOOD[:2], row("3-4"), GOOD[2]), 3, "ends with word 4"),
    "range too long, with a node": (
        (row("1-2"), *GOOD[:2], row("3-9"), row(3, 1), row("3.1", "_")), 4, "ends with word 9",
    ),
    "range at the end": ((row(1), row("2-3")), 2, "ends with word 3"),
    "range no number": ((row(1), row("2-x"), row(2, 1)), 2, "ID '2-x' where 2"),
    "two ranges": ((row("1-2"), row("1-2"), row(1), row(2, 1)), 2, "'1-2' where word 1"),
    "node in a range": ((row("1-2"), row("0.1", "_"), *GOOD), 2, "'0.1' where word 1"),
    "node skips": ((row(1), row("1.2", "_")), 2, "1.2 stands where 1.1 is"),
    "node repeated": ((row(1), *[row("1.1", "_")] * 2), 3, "1.1 stands where 1.2 is"),
    "node of another": ((row(1), row("2.1", "_"), row(2, 1)), 2, "2.1 stands where 1.1 is"),
    "node no number": ((row(1), row("1.x", "_")), 2, "ID '1.x' where 2 is"),
    "nodes alone": ((row("0.1", "_"),), 1, "without words"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_broken_sentences_are_located(tmp_path: Path, name: str) -> None:
    lines, at_fault, message = BAD[name]
    path = tmp_path / "a.conllu"
    before, after = block("# fine", row(1)), block(row(1), row(2, 1))
    # as the first, one between others and the last sentence of a file
    for prefix in ("", before):
        for suffix in ("", after):
            path.write_bytes((prefix + block(*lines) + suffix).encode())
            with pytest.raises(DataError) as error:
                read(path)
            assert message in error.value.message
            assert "\n" not in str(error.value)
            assert error.value.hint.endswith("--skip-invalid")
            expected = prefix.count("\n") + at_fault
            assert (error.value.path, error.value.line) == (str(path), expected)
    # where only columns are asked for, trees are not looked at
    path.write_bytes(block(*lines).encode())
    (item,) = read_items(path, check="columns")
    of_tree = ("no trees", "two roots", "no root")
    assert isinstance(item, Sentence) == (
        name.startswith("head") or name in of_tree or "cycle" in message
    )
    assert item.to_conllu().encode() == path.read_bytes()


def test_what_is_checked_has_two_names() -> None:
    with pytest.raises(ConfigError, match="check is 'trees'"):
        list(read_conllu(block(row(1)), check="trees"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "the file is empty"),
        (b"\n\n\r\n", "holds no sentences"),
        (SIMPLE.encode() + b"1\t\xe4", f"not UTF-8 at byte {len(SIMPLE) + 2}"),
        ("\ud800\n", "not UTF-8"),
    ],
)
@pytest.mark.parametrize("skip_invalid", [False, True])
def test_files_that_cannot_be_read(
    tmp_path: Path, raw: bytes | str, message: str, skip_invalid: bool
) -> None:
    path = tmp_path / "a.conllu"
    sources: list[Any] = [raw]
    if isinstance(raw, bytes):
        path.write_bytes(raw)
        sources += [path, io.BytesIO(raw)]
    for source in sources:
        with pytest.raises(DataError, match=message) as error:
            read(source, skip_invalid=skip_invalid)
        assert error.value.path == (str(path) if source is path else "<text>")


def test_a_file_without_blank_lines_ends_before_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    limit_lines(len(chain(50)))
    try:
        path.write_text(SIMPLE + chain(50))
        assert len(list(items_in(read_stretches(path, block_size=100)))) == 3
        path.write_text(SIMPLE + chain(60))
        with pytest.raises(DataError, match=r"no blank line in [\d,]+ bytes") as error:
            list(read_stretches(path, block_size=100))
    finally:
        limit_lines(MAX_LINE)
    assert error.value.line == SIMPLE.count("\n") + 1


# broken sentences left out, or passed on

MIXED = block("# 1", row(1)) + block("# 2", row(1, 9)) + block(row(1)) + block("# comment")


def test_broken_sentences_are_left_out_or_passed_on(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    path.write_text(MIXED)
    skipped: list[DataError] = []
    sentences = read(path, skip_invalid=True, on_skipped=skipped.append)
    assert [sentence.line for sentence in sentences] == [1, 7]
    assert [error.line for error in skipped] == [5, 9]
    items = list(read_items(path))
    assert [type(item) for item in items] == [Sentence, Broken, Sentence, Broken]
    assert written(items) == written(items, clear_deps=True) == MIXED.encode()
    with pytest.raises(DataError) as error:
        read(path, skip_option="")
    assert "--skip-invalid" not in error.value.hint
    path.write_text(block("# 2", row(1, 9)) * 2)
    with pytest.raises(DataError, match="every sentence is broken; the first one") as error:
        read(path, skip_invalid=True)
    assert error.value.line == 2


# what is written


def test_enhanced_graphs_can_be_cleared() -> None:
    kept = [
        "\t".join((*columns[:DEPS], "_", columns[MISC])) if len(columns := line.split("\t")) == 10
        else line
        for line in EVERYTHING.read_text(encoding="utf-8").split("\n")
        if "." not in line.split("\t")[0]
    ]  # fmt: skip
    sentences = read(EVERYTHING)
    assert written(sentences, clear_deps=True).decode() == "\n".join(kept)
    assert written(sentences) == EVERYTHING.read_bytes()  # what was read is as it was


def test_conllu_is_written_to_anything(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    sentences, expected = read(EVERYTHING), EVERYTHING.read_bytes()
    text, data = io.StringIO(), io.BytesIO()
    names = ("a.conllu", "a.conllu.gz", "a.conllu.ZST")
    for target in (text, data, "-", *(tmp_path / name for name in names)):
        write_conllu(sentences, target)
    assert write_conllu(sentences).encode() == expected
    assert text.getvalue().encode() == data.getvalue() == expected
    assert capfdbinary.readouterr().out == expected
    unpack = (bytes, gzip.decompress, zstandard.ZstdDecompressor().decompressobj().decompress)
    for name, unpacked in zip(names, unpack, strict=True):
        assert unpacked((tmp_path / name).read_bytes()) == expected


def test_a_file_can_be_written_while_it_is_read(tmp_path: Path) -> None:
    path, link = tmp_path / "a.conllu", tmp_path / "link.conllu"
    path.write_text(chain(3) * 2000)
    link.symlink_to(path)

    def renamed() -> Iterator[Sentence]:
        for sentence in read_conllu(link):
            sentence.set_tree(sentence.heads(), ["new"] * 3)
            yield sentence

    write_conllu(renamed(), link)
    assert path.read_text() == chain(3).replace("\t_\t_\t_\n", "\tnew\t_\t_\n") * 2000
    assert link.is_symlink()


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    def fails() -> Iterator[Sentence]:
        yield from read(EVERYTHING) * 300
        raise KeyboardInterrupt

    path = tmp_path / "a.conllu"
    for old in ({}, {path: b"old"}):
        for file, content in old.items():
            file.write_bytes(content)
        for target, sentences, error in (
            (path, fails(), KeyboardInterrupt),
            (path, ["x"], TypeError),
            (tmp_path / "no" / "a.conllu", fails(), OSError),
            (tmp_path / "a.bz2", fails(), OutputError),
        ):
            with pytest.raises(error):
                write_conllu(sentences, target)  # type: ignore[arg-type]
            assert {file: file.read_bytes() for file in tmp_path.iterdir()} == old


# round trips


@given(texts=st.lists(sentence_texts(), min_size=1, max_size=3), block_size=st.integers(1, 200))
@example(texts=[block(row(1))[:-1]], block_size=1)
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], block_size: int
) -> None:
    path = tmp_path_factory.mktemp("conllu") / "a.conllu"
    raw = "".join(text + "\n" for text in texts).encode()
    path.write_bytes(raw)
    sentences = read(path)
    assert written(sentences) == raw
    # however the file falls into blocks
    assert list(items_in(read_stretches(path, block_size=block_size))) == sentences
    lines = raw.decode().split("\n")
    for sentence in sentences:
        for word, columns in enumerate(sentence.rows, start=1):
            assert lines[sentence.line_of(word) - 1] == "\t".join(columns)


@given(st.lists(sentence_texts(), min_size=1, max_size=2))
def test_the_official_scorer_reads_what_is_read(texts: list[str]) -> None:
    from udtools import udeval

    raw = "".join(text + "\n" for text in texts)
    sentences = [parse_sentence(text[:-1], "", 1, "tree") for text in texts]
    # it also looks at the enhanced graphs, which are read here as they come
    cleared = written(sentences, clear_deps=True).decode()
    judged = udeval.load_conllu(io.StringIO(cleared, newline="\n"), "", {})
    assert len(judged.sentences) == len(texts)
    forms = [form for sentence in sentences for form in sentence.column(FORM)]
    spaces = str.maketrans("", "", "".join(c for c in raw if c.isspace()))
    assert [w.columns[FORM].translate(spaces) for w in judged.words] == [
        form.translate(spaces) for form in forms
    ]
