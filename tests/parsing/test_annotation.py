"""Chunks of a corpus become together what the whole becomes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsing.parser.tiny import random_parser, random_sentences, tiny_config

from seqtool.core.errors import DataError
from seqtool.core.processes import Pool
from seqtool.parsing.annotation import Annotated, Annotation, Chunk, Seen, put_together
from seqtool.parsing.parser.parser import Parser
from seqtool.parsing.segmenter.documents import TextLayout
from seqtool.treebank.conllu import Broken, write_conllu


@pytest.fixture(scope="module")
def parser() -> Parser:
    return random_parser(tiny_config("swap"))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Three treebanks: with a broken sentence, with CRLF, and CoNLL-U Plus."""
    folder = tmp_path_factory.mktemp("trees")
    texts = [write_conllu(random_sentences(20, 9, seed)) for seed in range(3)]
    texts[0] = texts[0].replace("\n\n", "\n\n1\tbroken\n\n", 1)
    texts[1] = texts[1].replace("\n", "\r\n")
    rows = [line.split("\t") for line in texts[2].splitlines()]
    plus = "\n".join("\t".join([*row[:2], row[3], row[2]]) if row[1:] else "" for row in rows)
    texts[2] = f"# global.columns = ID FORM UPOS LEMMA\n{plus}\n\n"
    names = [folder / name for name in ("a.conllu", "b.conllu", "c.conllup")]
    for name, text in zip(names, texts, strict=True):
        name.write_bytes(text.encode())
    return [str(name) for name in names]


def whole(
    annotation: Annotation, files: list[str], model: object
) -> tuple[dict[str, bytes], list[str], Seen]:
    """What one process writes of each file, what it tells of broken sentences, and has seen."""
    seen, broken = Seen(), list[Broken]()
    items = annotation.watched(annotation.read(files, model, None), model, seen, broken.append)
    return joined(annotation.parts(items, model)), [str(item.error) for item in broken], seen


def in_chunks(
    annotation: Annotation, files: list[str], model: object, size: int
) -> tuple[dict[str, bytes], list[str], Seen]:
    """The same of two processes."""
    seen, broken = Seen(), list[Broken]()

    def make():  # type: ignore[no-untyped-def]
        return lambda chunk: annotation.annotate(chunk, model)

    with Pool[Chunk, Annotated](make, 2, forks=True) as pool:
        chunks = annotation.read_chunks(files, size=size)
        done = pool.map(chunks)
        parts = put_together(annotation, done, seen, broken.append)
        return joined(parts), [str(item.error) for item in broken], seen


def joined(parts) -> dict[str, bytes]:  # type: ignore[no-untyped-def]
    of_files: dict[str, bytes] = {}
    for path, content in parts:
        of_files[path] = of_files.get(path, b"") + content
    return of_files


@pytest.mark.parametrize("size", [1, 300, 1 << 20])  # bytes of a chunk
def test_treebanks_are_parsed_as_by_one(parser: Parser, files: list[str], size: int) -> None:
    line = Path(files[0]).read_text().splitlines().index("1\tbroken") + 1
    message = f"{files[0]}:{line}: 2 columns, where CoNLL-U has 10"
    several: dict[str, Any] = {"nbest": 3, "options": {"beam": 4, "allow_missing": True}}
    for keeps, more in ((True, {}), (False, several)):
        annotation = Annotation("parse", skip_invalid=True, keeps_invalid=keeps, **more)
        expected = whole(annotation, files, parser)
        assert list(expected[0]) == files
        assert expected[1] == [message]
        assert (b"\tbroken\n" in expected[0][files[0]]) == keeps
        assert in_chunks(annotation, files, parser, size) == expected
    annotation = Annotation("parse")
    for run in (
        partial(whole, annotation, files, parser),
        partial(in_chunks, annotation, files, parser, size),
    ):
        with pytest.raises(DataError) as caught:
            run()
        assert str(caught.value) == message


def test_chunks_are_about_as_large_as_asked(tmp_path: Path) -> None:
    """So that all processes end at once: what is read of a file at a time is a chunk.

    None is small, as a parser that reads FEATS refuses a text without any, which a small part may
    well be.
    """
    path, sentence = tmp_path / "a.conllu", "1\tx\t_\t_\t_\t_\t_\t_\t_\t_\n\n"

    def chunk_sizes(num: int, size: int) -> list[int]:
        """Sentences in each chunk of so many, of about `size` sentences."""
        path.write_text(sentence * num)
        chunks = Annotation("parse").read_chunks([str(path)], size=size * len(sentence) + 7)
        texts = [b"".join(content for *_, content in chunk.stretches) for chunk in chunks]
        assert b"".join(texts).decode() == sentence * num
        return [len(text) // len(sentence) for text in texts]

    for num in range(3, 40):
        assert min(chunk_sizes(num, 5)) >= min(num, 3)
    sizes = chunk_sizes(2000, 100)
    assert max(sizes[:-1]) - min(sizes[:-1]) <= 1
    assert abs(sizes[0] - 100) <= 1


WORDS = st.sampled_from(["One", "two.", "Three!", "4", "(five)", "Mr.", "\u4e8c"])
SPACES = st.sampled_from([" ", "\n", "\n\n", "\r\n\r\n", "  \n", "\n \n", "\n\n\n"])


@given(st.lists(st.tuples(WORDS, SPACES), min_size=1, max_size=30), st.integers(1, 9))
@pytest.mark.parametrize("layout", [TextLayout(rules=True), TextLayout(pretokenized=True)])
def test_parts_of_a_text_are_segmented_as_the_whole(
    layout: TextLayout,
    tmp_path_factory: pytest.TempPathFactory,
    words: list[tuple[str, str]],
    size: int,
) -> None:
    path = tmp_path_factory.getbasetemp() / "parts.txt"
    path.write_bytes("".join(word + space for word, space in words).encode())
    annotation = Annotation("segment", layout)
    expected = whole(annotation, [str(path)], None)[0]
    chunks = annotation.read_chunks([str(path)], size=size)
    done = (annotation.annotate(chunk, None) for chunk in chunks)
    assert joined(put_together(annotation, done, Seen(), print)) == expected
