"""CoNLL-U files, read and written sentence by sentence; only heads and relations ever change.

Whatever is read with its trees checked can be read by the CoNLL 2018 scorer too.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, cast

import zstandard

from seqtool.core.errors import DataError
from seqtool.core.reading import BLOCK_SIZE, STDIN, BlockReader, Progress, read_blocks
from seqtool.core.storage import atomic_file
from seqtool.treebank.sentence import (
    DEPREL,
    DEPS,
    FEATS,
    FORM,
    HEAD,
    ID,
    LEMMA,
    MISC,
    UPOS,
    XPOS,
    Check,
    Sentence,
    parse_sentence,
)

__all__ = [
    "DEPREL",
    "DEPS",
    "FEATS",
    "FORM",
    "HEAD",
    "ID",
    "LEMMA",
    "MISC",
    "UPOS",
    "XPOS",
    "Broken",
    "Check",
    "Sentence",
    "read_conllu",
    "read_items",
    "write_conllu",
]

SKIP_OPTION = "--skip-invalid"
MAX_SENTENCE_BYTES = 1 << 26  # so that a file without blank lines cannot fill the memory

_BATCH = 256  # sentences written at a time


@dataclass(frozen=True, slots=True)
class Broken:
    """A sentence that is not as it should be.

    Attributes:
        text: its lines as they were read, the last one not ended.
        error: what is wrong, with the file and line.
    """

    text: str
    error: DataError

    def to_conllu(self, *, clear_deps: bool = False) -> str:
        """Return the sentence as it was read, whatever is asked for, and a blank line."""
        return self.text + "\n\n"


def read_conllu(
    inputs: Sequence[str | Path] | str | Path,
    *,
    check: Check = "tree",
    skip_invalid: bool = False,
    skip_option: str = SKIP_OPTION,
    on_skipped: Callable[[DataError], None] | None = None,
    on_progress: Progress | None = None,
) -> Iterator[Sentence]:
    """Read the sentences of CoNLL-U files one after another; memory does not grow with the files.

    Byte order marks and CRLF are accepted, and several blank lines, and none at the end.

    Args:
        inputs: files (.gz and .zst too), directories (their .conllu files) and `-` for stdin.
        check: "tree" wants a tree in each sentence: heads in range, one root, no cycle; "columns"
            lets HEAD and DEPREL be anything, as they are to be written anew.
        skip_invalid: leave out sentences that are broken.
        skip_option: the option to advise for broken sentences; none if empty.
        on_skipped: called with what is wrong with each sentence left out.
        on_progress: called with (bytes read from disk, their total or None).

    Raises:
        DataError: when iterated: a broken sentence with its line, no sentence at all, or a file
            that cannot be read, is not UTF-8 (with the byte offset) or damaged.
    """
    first: DataError | None = None
    nothing = True
    for item in read_items(inputs, check=check, on_progress=on_progress):
        if isinstance(item, Sentence):
            nothing = False
            yield item
            continue
        if not skip_invalid:
            raise refused(item, skip_option)
        first = first or item.error
        if on_skipped is not None:
            on_skipped(item.error)
    if nothing and first is not None:
        raise DataError(
            f"every sentence is broken; the first one: {first.message}",
            hint=first.hint,
            path=first.path,
            line=first.line,
        )


def read_items(
    inputs: Sequence[str | Path] | str | Path,
    *,
    check: Check = "tree",
    on_progress: Progress | None = None,
) -> Iterator[Sentence | Broken]:
    """Read like `read_conllu`, with a broken sentence as an item of its own, in its place.

    Raises:
        DataError: when iterated: no sentence at all, or a file that cannot be read.
    """
    for path, line, text in _sentence_texts(read_stretches(inputs, on_progress=on_progress)):
        yield read_item(text, path, line, check)


def read_item(text: str, path: str, line: int, check: Check) -> Sentence | Broken:
    """Return what the lines between two blank ones are; see `parse_sentence`."""
    try:
        return parse_sentence(text, path, line, check)
    except DataError as error:
        return Broken(text, error)


def refused(broken: Broken, skip_option: str = SKIP_OPTION) -> DataError:
    """Return the error to be raised for a broken sentence.

    Args:
        broken: the sentence.
        skip_option: the option to advise; none if empty.
    """
    error = broken.error
    hint = f"{error.hint}, or skip broken sentences with {skip_option}"
    return DataError(
        error.message,
        hint=hint if skip_option else error.hint,
        path=error.path,
        line=error.line,
    )


def write_conllu(
    sentences: Iterable[Sentence | Broken],
    target: str | Path | IO[bytes],
    *,
    clear_deps: bool = False,
) -> None:
    """Write sentences as CoNLL-U, each followed by a blank line.

    A file appears only when it is complete, so it may be the one that is being read.

    Args:
        sentences: what to write; taken one after another, so they can be read meanwhile.
        target: a file (packed if its name ends in .gz or .zst), `-` for stdout, or a binary stream.
        clear_deps: leave out the enhanced graph: DEPS becomes `_`, empty nodes are dropped.

    Raises:
        OSError: the file cannot be written.
    """
    texts = (sentence.to_conllu(clear_deps=clear_deps) for sentence in sentences)
    batches = iter(lambda: "".join(islice(texts, _BATCH)), "")
    write_pieces((batch.encode() for batch in batches), target)


def write_pieces(pieces: Iterable[bytes], target: str | Path | IO[bytes]) -> None:
    """Write what `write_conllu` would, from its bytes.

    Raises:
        OSError: the file cannot be written.
    """
    with _opened(target) as stream:
        for piece in pieces:
            stream.write(piece)


@contextmanager
def _opened(target: str | Path | IO[bytes]) -> Iterator[IO[bytes]]:
    if not isinstance(target, str | Path):
        yield target
        return
    if str(target) == STDIN:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with ExitStack() as stack:
        yield _packer(Path(target), stack.enter_context(atomic_file(target)), stack)


def _packer(path: Path, raw: IO[bytes], stack: ExitStack) -> IO[bytes]:
    """Return a stream that packs what it is given as the file's name says."""
    suffix = path.suffix.lower()
    if suffix == ".gz":
        return cast(
            IO[bytes], stack.enter_context(gzip.GzipFile("", "wb", 6, fileobj=raw, mtime=0))
        )
    if suffix == ".zst":
        return stack.enter_context(zstandard.ZstdCompressor().stream_writer(raw, closefd=False))
    return raw


def _sentence_texts(
    stretches: Iterable[tuple[str, int, bytes]],
) -> Iterator[tuple[str, int, str]]:
    """Give (file, first line, lines) of each sentence: what stands between blank lines."""
    for path, line, stretch in stretches:
        for piece in stretch.decode().split("\n\n"):
            lines = piece.strip("\n")
            if lines:
                # of more than two line ends in a row, those left over begin the next piece
                yield path, line + len(piece) - len(piece.lstrip("\n")), lines
            line += piece.count("\n") + 2


def read_stretches(
    inputs: Sequence[str | Path] | str | Path,
    *,
    on_progress: Progress | None = None,
    block_size: int = BLOCK_SIZE,
) -> Iterator[tuple[str, int, bytes]]:
    """Read CoNLL-U files as stretches of whole sentences, in UTF-8, each line ended by LF.

    Args:
        inputs: as `read_conllu` takes them.
        on_progress: called with (bytes read from disk, their total or None).
        block_size: bytes to read at a time.

    Returns:
        The file, the line of it where the stretch begins, and the stretch.

    Raises:
        DataError: when iterated: no sentence at all, or a file that cannot be read.
    """
    reader = read_blocks(inputs, treebanks=True, block_size=block_size, on_progress=on_progress)
    nothing = True
    for path, line, stretch in _stretches(reader):
        if stretch:
            nothing = nothing and not stretch.strip(b"\n")
            yield path, line, stretch
    if nothing:
        raise DataError(
            "holds no sentences", hint="give a CoNLL-U file with trees", path=reader.locate(1)[0]
        )


def _stretches(reader: BlockReader) -> Iterator[tuple[str, int, bytes]]:
    """Join blocks to stretches of whole sentences: (file, first line, text)."""
    path, line = "", 1
    pending: list[bytes] = []
    for block in reader:
        block_path, block_line = reader.locate(1)
        if block_line == 1:  # a new file
            if pending:
                yield path, line, b"".join(pending)
            path, line, pending = block_path, 1, []
        end = block.rfind(b"\n\n")
        cut = end + 2 if end >= 0 else 0
        if cut:
            stretch = b"".join((*pending, block[:cut]))
            yield path, line, stretch
            line += stretch.count(b"\n")
            pending = []
        pending.append(block[cut:])
        if sum(map(len, pending)) > MAX_SENTENCE_BYTES:
            raise DataError(
                f"no blank line in {MAX_SENTENCE_BYTES:,} bytes",
                hint="end each sentence with a blank line",
                path=path,
                line=line,
            )
    if pending:
        yield path, line, b"".join(pending)
