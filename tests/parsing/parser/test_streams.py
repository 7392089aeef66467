"""Batches that compiled code reads and writes against single sentences, byte for byte."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from parsing.parser.tiny import LABELS, random_parser, random_sentences, tiny_config
from strategies import sentence_texts

from seqtool.core.errors import DataError
from seqtool.parsing import model as shared
from seqtool.parsing.parser import parser as parser_module
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.parser import Parser
from seqtool.text.datasets import sample_treebank
from seqtool.treebank import conllu, scanner
from seqtool.treebank.conllu import (
    SentenceBatch,
    read_batches,
    read_conllu,
    read_items,
    read_stretches,
    sentences_of,
    write_conllu,
)
from seqtool.treebank.projectivity import LIFTED
from seqtool.treebank.scanner import LabelTexts, Scanner, TextTable
from seqtool.treebank.sentence import Sentence

GOLDEN = Path(__file__).parents[2] / "treebank" / "golden" / "everything.conllu"

# some labels ask for others that no arc of the parser has
LIFTING = Labels(("obj", f"det{LIFTED}obj", f"acl{LIFTED}root"), ("root",))
PARSERS = [random_parser(tiny_config(), labels, seed=2) for labels in (LABELS, LIFTING)]

Result = tuple[bytes, tuple[Any, ...]]


def result_of(write: Callable[[], bytes]) -> Result:
    """What is written, or what is wrong."""
    try:
        return write(), ()
    except DataError as error:
        return b"", (error.message, error.hint, error.path, error.line)


def parsed(
    parser: Parser, path: Path, road: str, skip_invalid: bool = False, beam: int = 1
) -> bytes:
    """What is written of a file that is read by sentences, or in batches."""
    items: Any = read_batches([str(path)], skip_invalid=skip_invalid)
    if road == "sentences":
        items = (read_items if skip_invalid else read_conllu)(path, check="columns")
    return written(parser.parse_stream(items, beam=beam))


def written(items: Any, clear_deps: bool = False) -> bytes:
    stream = io.BytesIO()
    write_conllu(items, stream, clear_deps=clear_deps)
    return stream.getvalue()


# what a file that somebody edited may have in the wrong place
ODD = ["\t", "\n", "\r", "\r\n", "\n\n", "#", "-", ".", "0", "1", "2-3", " ", "_", "\xa0", "é", ""]


@st.composite
def edited(draw: st.DrawFn) -> str:
    """A sentence that is mostly as it should be, or not quite."""
    text = draw(sentence_texts(trees=False))
    for _ in range(draw(st.sampled_from((0, 0, 1, 2)))):
        begin = draw(st.integers(0, len(text)))
        end = begin + draw(st.integers(0, 2))
        text = text[:begin] + draw(st.sampled_from(ODD)) + text[end:]
    return text


def row(identity: str, form: str = "a") -> str:
    return "\t".join((identity, form, *"bcdefgh", "i"))


def block(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


@settings(max_examples=60)
@given(
    texts=st.lists(edited(), min_size=1, max_size=4),
    between=st.sampled_from(("\n", "\n", "\n\n", "\n\n\n")),
    line_end=st.sampled_from(("\n", "\n", "\r\n", "\r")),
    start=st.sampled_from(("", "", "\ufeff", "\n", "\n\n")),
    cut=st.integers(0, 2),
    block_size=st.integers(1, 400),
    chunk_words=st.integers(1, 12),
    batch_words=st.integers(1, 12),
    which=st.integers(0, 1),
)
@example([block(row("1")), "#\n", block(row("1"))], "\n", "\n", "", 0, 99, 9, 9, 0)
@example([block(row("1")), block("#", row("1", "\u2003x"))], "\n", "\n", "", 1, 400, 9, 9, 0)
@example([block(row("1-1"), row("1"), row("1.1"), row("1.2"))], "\n", "\n", "", 0, 400, 9, 9, 0)
@example([block(row("0.1"), row("1-2"), row("1"), row("2"))], "\n", "\n", "", 0, 400, 9, 9, 0)
@example([block(row("1-3"), row("1"), row("2-2"), row("2"))], "\n", "\n", "", 0, 400, 9, 9, 0)
@example([block(row("1-2"), row("1"), row("2-2"), row("2"))], "\n", "\n", "", 0, 400, 9, 9, 0)
@example([block(row("1-2"), row("0.1"), row("1"), row("2"))], "\n", "\n", "", 0, 400, 9, 9, 0)
@example([block(row("1"), row("2-1"), row("2"))], "\n", "\n", "", 0, 400, 9, 9, 0)
@example([block(row("1"), row("2-2"))], "\n", "\n", "", 0, 400, 9, 9, 0)
@example([block(row("1"), row("1.2"))], "\n", "\n", "", 0, 400, 9, 9, 0)
@example([block(row("01"))], "\n", "\n", "", 0, 400, 9, 9, 0)
@example([block(row("1"), row("2-1000000002"), row("2"))], "\n", "\n", "", 0, 400, 9, 9, 0)
@example([block(row("1"), row("2", "\x85"))], "\n", "\n", "", 0, 400, 9, 9, 0)
@example(["1\t\n"], "\n", "\n", "", 0, 400, 9, 9, 0)
@example(["1-\n"], "\n", "\n", "", 0, 400, 9, 9, 0)
def test_the_same_bytes_and_the_same_errors(
    tmp_path_factory: pytest.TempPathFactory,
    texts: list[str],
    between: str,
    line_end: str,
    start: str,
    cut: int,
    block_size: int,
    chunk_words: int,
    batch_words: int,
    which: int,
) -> None:
    path = tmp_path_factory.mktemp("files") / "a.conllu"
    text = start + between.join(texts) + "\n"
    path.write_bytes(text[: len(text) - cut].replace("\n", line_end).encode())
    parser = PARSERS[which]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser_module, "PARSED_WORDS", chunk_words)
        patch.setattr(conllu, "BATCH_WORDS", batch_words)
        patch.setattr(conllu, "read_stretches", partial(read_stretches, block_size=block_size))
        for skip_invalid in (False, True):
            found, expected = (
                result_of(partial(parsed, parser, path, road, skip_invalid, beam=1 + which))
                for road in ("batches", "sentences")
            )
            assert found == expected


def test_small_rooms_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several files, longer sentences than there is room for at first, more bytes than are held."""
    for number, longest in enumerate((7, 5000, 7)):
        text = "".join(s.to_conllu() for s in random_sentences(3, longest, seed=number))
        (tmp_path / f"{number}.conllu").write_text(text)
    (tmp_path / "golden.conllu").write_bytes(GOLDEN.read_bytes())
    expected = parsed(PARSERS[0], tmp_path, "sentences")
    assert parsed(PARSERS[0], tmp_path, "batches") == expected
    monkeypatch.setattr(shared, "CHUNK_BYTES", 100)
    monkeypatch.setattr(conllu, "TEXT_TABLE_BYTES", 1)
    assert parsed(PARSERS[0], tmp_path, "batches") == expected
    monkeypatch.setattr(parser_module, "PARSED_WORDS", 2)
    monkeypatch.setattr(conllu, "BATCH_WORDS", 2)
    monkeypatch.setattr(parser_module, "TABLE_BYTES", 1)
    assert parsed(PARSERS[0], tmp_path, "batches") == expected


def test_batches_are_the_sentences_that_are_read_one_by_one(tmp_path: Path) -> None:
    """With their files and lines, with their trees, and without the enhanced graph."""
    for number, path in enumerate((GOLDEN, sample_treebank("ko", "valid"))):
        text = path.read_text(encoding="utf-8")
        (tmp_path / f"{number}.conllu").write_text(f"1\t1\n\n{text}2\t2\n\n\n{text}")
    expected = list(read_items(tmp_path, check="columns"))
    items = list(read_batches(tmp_path, skip_invalid=True))
    assert sum(isinstance(item, SentenceBatch) for item in items) < len(items) < 20
    assert [vars_of(item) for item in sentences_of(items)] == [vars_of(item) for item in expected]
    labels = LabelTexts(["x", "yé", "z:z"])
    begin = 0
    for batch in items:
        if isinstance(batch, SentenceBatch):
            heads = np.arange(begin, begin + len(batch.words), dtype=np.int32)
            batch.trees = heads, heads % 3, labels
            begin += len(heads)
    begin = 0
    for sentence in expected:
        if isinstance(sentence, Sentence):
            numbers = range(begin, begin + len(sentence))
            sentence.set_tree([*numbers], [labels.names[number % 3] for number in numbers])
            begin += len(sentence)
    for clear_deps in (False, True):
        assert written(items, clear_deps) == written(expected, clear_deps)
    assert written(list(sentences_of(items))) == written(expected)


def vars_of(item: Any) -> Any:
    """What an item is, errors too, to be compared."""
    if isinstance(item, Sentence):
        return item
    return item.text, item.error.message, item.error.path, item.error.line


def test_blanks_are_those_of_unicode() -> None:
    for code in range(0x3100):
        data = np.frombuffer(chr(code).encode() + b"\n", np.uint8)
        assert scanner._begins_blank(data, 0) == chr(code).isspace()
    assert not any(map(str.isspace, map(chr, range(0x3100, 0x110000))))


def places_of(texts: list[str]) -> tuple[Any, Any]:
    """Words with these columns FORM to FEATS as they are found in a file."""
    lines = [f"{number}\t{text}\th\td\t_\t_\n" for number, text in enumerate(texts, 1)]
    data = np.frombuffer("".join(lines).encode(), np.uint8)
    _, words, end, is_odd = Scanner().find(data, 0, len(texts))
    assert (end, is_odd) == (len(data), False)
    return data, words


analyses = st.tuples(*[st.text("abé", min_size=1, max_size=9)] * 5).map("\t".join)


@settings(max_examples=40)
@given(st.lists(analyses, min_size=1, max_size=30), st.lists(analyses, min_size=1, max_size=30))
def test_texts_are_numbered_as_by_a_dictionary(first: list[str], second: list[str]) -> None:
    table, numbers = TextTable(), dict[str, int]()
    for texts in (first, second, first):
        expected = [numbers.setdefault(text, len(numbers)) for text in texts]
        assert table.numbers(*places_of(texts)).tolist() == expected
    assert table.texts(np.arange(len(table), dtype=np.int32)) == list(numbers)
