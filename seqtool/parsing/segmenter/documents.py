"""Files of raw text to sentences: by a model, by rules, or as the text is laid out already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from seqtool.core.arrays import CodePoints
from seqtool.core.errors import ConfigError, DataError, ModelError
from seqtool.core.reading import STDIN, BlockReader, find_files, unpacked_name
from seqtool.parsing.segmenter.assembly import Spans, assemble
from seqtool.parsing.segmenter.rules import split_at_spaces, split_by_rules
from seqtool.treebank.sentence import Sentence

BLOCK_SIZE = 1 << 18  # bytes


def read_documents(
    inputs: Sequence[str | Path], *, block_size: int = BLOCK_SIZE
) -> Iterator[tuple[str, Iterator[str]]]:
    """Give each file's name, and its text in pieces, which must be read before the next file.

    Only a byte order mark at its beginning is left out. Packed files (.gz, .zst) are unpacked.

    Args:
        inputs: files, directories (read recursively, sorted) and `-` for stdin.
        block_size: bytes of a piece, about.

    Raises:
        DataError: no such file, an empty one, invalid UTF-8 or a NUL (with the byte offset), a
            damaged packed file, a treebank or JSON Lines; all but the first while the text is read.
    """
    for name in find_files(inputs):
        if unpacked_name(name).endswith((".jsonl", ".ndjson")):
            raise DataError(
                "holds JSON Lines, not plain text",
                hint="write each text to a file of its own",
                path=name,
            )
        reader = _VerbatimReader([name], None, False, False, block_size, None, None)
        yield ("" if name == STDIN else name), (block.decode() for block in reader)


class _VerbatimReader(BlockReader):
    """Gives blocks of whole characters, not of whole lines."""

    def _whole_lines(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        rest = b""
        for chunk in chunks:
            block = rest + chunk
            cut = _whole(block)
            rest = block[cut:]
            if cut:
                yield block[:cut]
        if rest:
            yield rest

    def _check_utf8(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        offset = 0
        self._first_line, self._source_lines = 1, None
        for block in blocks:
            try:
                text = block.decode()
            except UnicodeDecodeError as error:
                raise self._not_utf8(block, offset, error.start) from error
            if "\0" in text:
                place = block.index(b"\0")
                raise DataError(
                    f"a NUL at byte {offset + place}, so this is no text",
                    hint="name a text file; convert it if it is UTF-16: iconv -f UTF-16 -t UTF-8",
                    path=self._path,
                    line=self._first_line + block.count(b"\n", 0, place),
                )
            offset += len(block)
            if offset == len(block):
                block = block.removeprefix("\ufeff".encode())
            if block:
                yield block
            self._first_line += block.count(b"\n")


def _whole(block: bytes) -> int:
    """Bytes of a block before a character whose end is missing."""
    for back in range(1, min(4, len(block)) + 1):
        byte = block[-back]
        if byte < 0x80:
            return len(block)
        if byte >= 0xC0:  # the first byte of a character; it tells how many there are
            size = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(block) - back if size > back else len(block)
    return len(block)


class Splitter(Protocol):
    """A model that finds tokens and sentences."""

    def split(self, stretches: Sequence[CodePoints], *, whole: bool = False) -> list[Spans]:
        """See `model.Segmenter.split`."""


Given = Literal["nothing", "sentences", "words"]


def segment_files(
    inputs: Sequence[str | Path], segmenter: Splitter | None, *, given: Given = "nothing"
) -> Iterator[Sentence]:
    """Segment files, each a document with its name as id, in bounded memory.

    Args:
        inputs: files of plain text (.gz and .zst too), directories and `-` for stdin.
        segmenter: a model; None for rules.
        given: "sentences" takes a line for a sentence, "words" also what stands between spaces for
            a word; no multiword token is split then.

    Raises:
        DataError: when iterated: a file that is empty, no text or cannot be read.
    """

    def split(stretches: Sequence[CodePoints]) -> Sequence[Spans]:
        if given == "words":
            return split_at_spaces(stretches)
        whole = given == "sentences"
        if segmenter is None:
            return split_by_rules(stretches, whole=whole)
        return segmenter.split(stretches, whole=whole)

    number = 1
    for name, pieces in read_documents(inputs):
        for sentence in assemble(
            pieces,
            split,
            unit="paragraph" if given == "nothing" else "line",
            document=name or None,
            first_number=number,
        ):
            number += 1
            yield sentence


def are_texts(files: Sequence[str]) -> bool:
    """Whether files are plain text by their names, all of them."""
    return all(unpacked_name(name).endswith(".txt") for name in files)


def segment_texts(
    files: Sequence[str],
    model: Any,
    path: Path | None,
    *,
    rules: bool,
    presegmented: bool,
    pretokenized: bool,
) -> Iterator[Sentence]:
    """Return the sentences of plain text.

    Args:
        files: of plain text.
        model: one that can segment, or anything with `rules` or `pretokenized`.
        path: where it is.
        rules: split by rules, not by the model.
        presegmented: lines are sentences.
        pretokenized: and words are between spaces.

    Raises:
        ConfigError: options that do not go together.
        ModelError: the model cannot segment.
    """
    if presegmented and pretokenized:
        raise ConfigError("--pretokenized includes --presegmented", hint="give only one of the two")
    if rules and pretokenized:
        raise ConfigError("--pretokenized leaves nothing to --rules", hint="give only one of both")
    needs_model = not rules and not pretokenized
    if needs_model and not hasattr(model, "split"):
        raise ModelError(
            "has no segmenter, so it cannot read plain text",
            hint="train one with `seqtool train-parser --raw`, or split the text by --rules",
            path=path,
        )
    return segment_files(
        files,
        model if needs_model else None,
        given="words" if pretokenized else "sentences" if presegmented else "nothing",
    )
