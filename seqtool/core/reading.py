"""Reading text: files, directories and stdin, packed or not, as blocks of whole UTF-8 lines.

    bytes on disk -> unpacked (gzip, Zstandard, bzip2, xz) -> whole lines -> checked UTF-8
    -> text of JSON Lines, or of a column of CoNLL-U
    rows of Parquet -> text of a column

Memory is bounded by the block size, or by the longest line where that is longer. A line beyond
`MAX_LINE`, or what `limit_lines` has set, is refused before it is whole.
"""

from __future__ import annotations

import bz2
import hashlib
import io
import json
import lzma
import re
import shlex
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import zstandard

from seqtool.core.errors import ConfigError, DataError, counted
from seqtool.core.storage import present

CORPUS = "corpus.json"  # what a prepared corpus is known by
MODEL = "model.json"  # and a model

STDIN = "-"
BLOCK_SIZE = 1 << 20
BLOCK_LINES = 1000  # in memory, that a model scores side by side
IN_MEMORY = "<text>"  # stands for a path in errors about a text that is no file
_ROWS = 1 << 10  # of Parquet that are read at once
DEFAULT_FIELD = "text"
JSON_LINES = (".jsonl", ".ndjson")  # how such files are named
PARQUET = ".parquet"
MAX_LINE = 64 << 20  # bytes of a line: a packed file of 4 MB may hold one of 4 GB
NOT_UTF8 = "convert it to UTF-8, as with: iconv -f ENCODING -t UTF-8"  # a hint

Progress = Callable[[int, "int | None"], None]

_BOM = b"\xef\xbb\xbf"
# kind -> its first bytes
_PACKINGS = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "bzip2": re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"),
    "xz": re.compile(rb"\xfd7zXZ\0"),
    "Zstandard": re.compile(rb"\x28\xb5\x2f\xfd"),
}
_MAGIC_BYTES = 10  # of the longest of them
_FEED = 4096  # bytes to unpack at once: of Zstandard a byte may stand for 32,768
# the beginning of CoNLL-U: comments, then a first word, or a multiword token, with ten columns
_TREEBANK = re.compile(rb"(?:#[^\n]*\n|\n)*1(?:-[0-9]+)?(?:\t[^\t\n]+){9}\n")
# columns of CoNLL-U that can be read as a text; `treebank.sentence` has all of them
TEXT_COLUMNS = {"form": 1, "word": 1, "lemma": 2, "upos": 3, "xpos": 4}
_COLUMN_NAMES = b"ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC".split()
_ID = re.compile(rb"([0-9]+)(?:([-.])([0-9]+))?")  # of a word, a multiword token, an empty node
PLUS_MARK = b"# global.columns ="  # begins a file of CoNLL-U Plus
_AS_TEXT = (
    "take its words: seqtool prepare {} --column form (with -o - as text on stdout); parse and tag "
    "read it with --input conllu, without --raw and --rules"
)
_PACKED = re.compile(r"\.(gz|zst|bz2|xz)$", re.IGNORECASE)
# what Universal Dependencies has beside its treebanks: a licence, a page about them, their text
_BESIDE_TREEBANKS = re.compile("licen[cs]e|readme|copying|-ud-", re.IGNORECASE)

_ENDS_AS_SPACES = str.maketrans("\r\n", "  ")

_max_line = MAX_LINE
_mentioned: set[Path] = set()  # directories whose treebanks were left out


def limit_lines(max_bytes: int) -> None:
    """Set the bytes of the longest line that this process reads."""
    global _max_line
    _max_line = max_bytes


def longest_line() -> int:
    """Return the bytes of the longest line that this process reads."""
    return _max_line


def unpacked_name(path: str | Path) -> str:
    """Return the lower-cased file name without `.gz`, `.zst`, `.bz2` or `.xz`."""
    return _PACKED.sub("", Path(path).name).lower()


def is_treebank(path: str | Path) -> bool:
    """Whether a file's name says that it is a treebank."""
    return unpacked_name(path).endswith((".conllu", ".conll", ".conllup"))


def holds_treebanks(path: str | Path) -> bool:
    """Whether a path is a treebank by its name, or a directory that holds some."""
    if is_treebank(path):
        return True
    folder = Path(path)
    is_model = (folder / MODEL).is_file() or is_corpus(folder)
    return folder.is_dir() and not is_model and any(map(is_treebank, folder.iterdir()))


def is_text(path: str | Path) -> bool:
    """Whether a file's name says that it is plain text."""
    return unpacked_name(path).endswith(".txt")


def comes_with_treebanks(path: str | Path) -> bool:
    """Whether a file beside treebanks is about them, by its name, and no text of its own."""
    return _BESIDE_TREEBANKS.search(Path(path).name) is not None


def without_treebanks(folder: Path, files: Sequence[str]) -> list[str]:
    """Return the files of a directory that are texts; a line on stderr tells of the others.

    Where all are treebanks, they are returned, for an error to tell of them.
    """
    treebanks = list(filter(is_treebank, files))
    texts = [f for f in files if f not in set(treebanks) and not comes_with_treebanks(f)]
    if not texts or not treebanks:
        return list(files)
    if (place := folder.resolve()) not in _mentioned:
        import logging

        _mentioned.add(place)
        left_out = counted(len(treebanks), "treebank")
        logging.getLogger("seqtool").warning(
            "%s: %s left out; for their words: seqtool prepare %s --column form",
            folder,
            left_out,
            shlex.quote(str(folder)),
        )
    return texts


def is_corpus(path: str | Path) -> bool:
    """Whether there is a prepared corpus."""
    return (present(Path(path)) / CORPUS).is_file()


def refuse_field(field: str | None, texts: Sequence[str | Path]) -> None:
    """Refuse a field where all texts are prepared corpora.

    Raises:
        ConfigError: so it is.
    """
    if field is not None and all(map(is_corpus, texts)):
        hint = "leave --field out"
        raise ConfigError("a prepared corpus has no fields", hint=hint, path=texts[0])


def find_files(
    inputs: Sequence[str | Path], *, treebanks: bool = False, texts: bool = False
) -> list[str]:
    """Return the files that inputs stand for.

    A directory gives all its files, sorted, but for hidden ones; `-` stays as it is. With
    `treebanks`, they are all that a directory gives, and with `texts` its .txt files, too; else
    those beside texts are left out, and one that is named is refused, as it is no text.

    Raises:
        DataError: an input cannot be read.
    """
    files: list[str] = []
    for item in inputs:
        if item == "":  # else it would be the current directory, as from "$UNSET"
            raise DataError("the name of a file is empty", hint="name a file, or - for stdin")
        path = present(Path(item))
        if str(item) == STDIN:
            if STDIN in files:
                raise DataError("stdin is named twice", hint="give - once")
            files.append(STDIN)
        elif path.is_dir():
            files.extend(_files_in(path, treebanks=treebanks, texts=texts))
        elif path.exists():
            files.append(str(path))
        else:
            raise DataError("no such file or directory", hint="check the path", path=item)
    for name in files:
        if is_treebank(name) and not treebanks:
            raise is_no_text(name)
    return files


def _files_in(folder: Path, *, treebanks: bool, texts: bool) -> list[str]:
    kind = "a treebank" if treebanks else "a text"
    if is_corpus(folder):
        hint = "name it where a CORPUS is asked for, or give its source text"
        raise DataError(f"is a prepared corpus, not {kind}", hint=hint, path=folder)
    if (folder / MODEL).is_file():
        hint = "name a model with -m, and here what it reads"
        raise DataError(f"is a model, not {kind}", hint=hint, path=folder)
    inside = sorted(
        str(entry)
        for entry in folder.rglob("*")
        if entry.is_file()
        and not is_corpus(entry.parent)
        and not any(part.startswith(".") for part in entry.relative_to(folder).parts)
        and (is_treebank(entry) or not treebanks or (texts and is_text(entry)))
    )
    if not inside:
        kinds = (".conllu or .txt " if texts else ".conllu ") if treebanks else ""
        raise DataError(f"the directory holds no {kinds}files", hint="check the path", path=folder)
    return inside if treebanks else without_treebanks(folder, inside)


def is_no_text(path: str | Path) -> DataError:
    """Return the error of a treebank where a text is wanted."""
    hint = _AS_TEXT.format("-" if path == "<stdin>" else shlex.quote(str(path)))
    return DataError("is a treebank, not text", hint=hint, path=path)


def total_size(inputs: Sequence[str | Path], *, treebanks: bool = False) -> int | None:
    """Return how many bytes `read_blocks` will read from disk, None where it cannot be known."""
    paths = [Path(name) for name in find_files(inputs, treebanks=treebanks)]
    if all(path.is_file() for path in paths):
        return sum(path.stat().st_size for path in paths)
    return None


@dataclass(frozen=True)
class Place:
    """Where a block comes from.

    Attributes:
        path: of the file.
        first_line: the 1-based line where it begins.
        lines: of each of its lines the one in the file, where these are not all the lines of it.
    """

    path: str
    first_line: int
    lines: Sequence[int] | None = None

    def locate(self, line: int) -> tuple[str, int]:
        """Return (file, 1-based line in it) of a 1-based line of the block."""
        return self.path, self.first_line + line - 1 if self.lines is None else self.lines[line - 1]

    def located(self, error: DataError, line: int) -> DataError:
        """Return an error about a 1-based line of the block, with its file and line."""
        path, line = self.locate(line)
        return DataError(error.message, hint=error.hint, path=path, line=line)

    @contextmanager
    def locating(self) -> Iterator[None]:
        """Give errors that name a line of the block alone its file, and its line there."""
        try:
            yield
        except DataError as error:
            if error.path is not None or error.line is None:
                raise
            raise self.located(error, error.line) from error


class Blocks(Iterator[bytes]):
    """Text as blocks of whole lines of UTF-8, each line ended by LF.

    Attributes:
        place: where the block given last comes from.
    """

    place: Place

    def locate(self, line: int) -> tuple[str, int]:
        """Return (file, 1-based line in it) of a 1-based line of the block given last."""
        return self.place.locate(line)


class LineBlocks(Blocks):
    r"""Lines in memory, as `read_blocks` gives those of files.

    Args:
        lines: texts.
        path: that errors name.
        numbers: of each line the one that errors name; counted from 1 when not given.
        join: read what is `\r` or `\n` in a line as a space; a line end is refused otherwise.

    Raises:
        TypeError: when iterated: a line is no string.
        DataError: when iterated: a line holds half a surrogate pair, or a line end.
    """

    def __init__(
        self,
        lines: Iterable[str],
        path: str = IN_MEMORY,
        numbers: Sequence[int] | None = None,
        *,
        join: bool = False,
    ) -> None:
        if isinstance(lines, str):
            raise TypeError("expected lines, as a list of strings, not one string")
        self._lines, self._numbers, self._join = iter(lines), numbers, join
        self.place, self._num_read = Place(path, 1), 0

    def __next__(self) -> bytes:
        lines = [*islice(self._lines, BLOCK_LINES)]
        if not lines:
            raise StopIteration
        begin, self._num_read = self._num_read, self._num_read + len(lines)
        with Place(self.place.path, 1, self._numbers).locating():
            numbered = enumerate(lines, begin + 1)
            parts = [encoded_line(line, number, join=self._join) for number, line in numbered]
        numbers = None if self._numbers is None else self._numbers[begin : self._num_read]
        self.place = Place(self.place.path, begin + 1, numbers)
        return b"\n".join([*parts, b""])


def encoded_line(line: str, number: int, *, join: bool = False) -> bytes:
    """Return a line of this number, from 1, in UTF-8; see `LineBlocks`."""
    if not isinstance(line, str):
        raise TypeError(f"sentence {number} is {line!r}, not a string")
    if join:
        line = line.translate(_ENDS_AS_SPACES)
    if "\n" in line:
        hint = "give each line as a sentence of its own"
        raise DataError("a sentence with a line end inside", hint=hint, line=number)
    try:
        return line.encode()
    except UnicodeEncodeError as error:
        what, hint = "half a surrogate pair, which is no character", "write the character whole"
        raise DataError(what, hint=hint, line=number) from error


def read_open_file(
    file: IO[bytes], name: str, *, block_size: int = BLOCK_SIZE, may_be_empty: bool = False
) -> BlockReader:
    """Read an open file, from where it stands, as `read_blocks` reads one; the name is for errors.

    Raises:
        DataError: when iterated: as of `read_blocks`.
    """
    reader = BlockReader([name], treebanks=True, block_size=block_size)
    blocks = reader._lines_of(file)
    reader._blocks = blocks if may_be_empty else reader._refuse_empty(blocks, [name])
    return reader


@dataclass(eq=False)
class BlockReader(Blocks):
    """The text of files as blocks of whole lines.

    A missing last line end is added, CRLF becomes LF, a byte order mark at a file's start is
    dropped. Files named .jsonl or .ndjson are JSON Lines, and so is everything when `field` is
    given. Packed files are known by their first bytes. Of files named .parquet the field is a
    column, and their rows are lines.

    Attributes:
        num_files: of the files that were begun; it tells apart one that is named twice.

    Args:
        inputs: files, directories (read recursively, sorted) and `-` for stdin; or one of these.
        field: the field that holds the text of JSON Lines or Parquet; "text" when not given.
        lowercase: lower-case the text.
        treebanks: read treebanks, not text; see `find_files`.
        block_size: bytes to read at a time; a longer line makes a longer block.
        on_progress: called with (bytes read from disk, their total or None).
        digests: filled with file name -> SHA-256 of each file as it is on disk.
        as_written: give lines of JSON as they are, not the text in them.
        live: give the whole lines of stdin as they come, for answers before it ends.
        column: read treebanks as a text of this column, one of `TEXT_COLUMNS`: a sentence a line,
            blanks between words, a no-break space for a blank in one. Of "form" a multiword token
            is read as it is written, of other columns its words are.

    Raises:
        DataError: when iterated: no such file, no text at all, invalid UTF-8, a damaged packed
            file, a line that is too long, or a bad line of JSON or of a treebank; a treebank where
            a text is wanted.
    """

    inputs: Sequence[str | Path] | str | Path
    _: KW_ONLY
    field: str | None = None
    lowercase: bool = False
    treebanks: bool = False
    block_size: int = BLOCK_SIZE
    on_progress: Progress | None = None
    digests: dict[str, str] | None = None
    as_written: bool = False
    live: bool = False
    column: str | None = None

    def __post_init__(self) -> None:
        inputs = self.inputs
        self._inputs = [inputs] if isinstance(inputs, str | Path) else list(inputs)
        self.treebanks = self.treebanks or self.column is not None
        self._bytes_read = self.num_files = 0
        self._total: int | None = None
        self._path = str(self._inputs[0]) if self._inputs else ""
        self._first_line = 1
        self._source_lines: list[int] | None = None
        self._blocks = self._read()

    def __next__(self) -> bytes:
        return next(self._blocks)

    @property
    def place(self) -> Place:  # type: ignore[override] # made when asked for
        """Where the block given last comes from."""
        return Place(self._path, self._first_line, self._source_lines)

    def _error(self, what: str, hint: str, line: int | None = None) -> DataError:
        return DataError(what, hint=hint, path=self._path, line=line)

    def _read(self) -> Iterator[bytes]:
        files = find_files(self._inputs, treebanks=self.treebanks)
        if not files:
            raise DataError("no file is given", hint="name one or more, or - for stdin")
        self._total = total_size(files, treebanks=self.treebanks)
        for block in self._refuse_empty(chain.from_iterable(map(self._read_one, files)), files):
            yield block.decode().lower().encode() if self.lowercase else block

    def _refuse_empty(self, blocks: Iterator[bytes], files: Sequence[str]) -> Iterator[bytes]:
        if (first := next(blocks, None)) is None:
            what = "the file is empty" if len(files) == 1 else "all the files are empty"
            if len(files) > 1:
                self._path = str(self._inputs[0])
            hint = f"give a file that holds {'trees' if self.treebanks else 'text'}"
            raise self._error("the text is empty" if [*files] == [STDIN] else what, hint)
        yield first
        yield from blocks

    def _read_one(self, name: str) -> Iterator[bytes]:
        self._path = "<stdin>" if name == STDIN else name
        self.num_files += 1
        is_table = unpacked_name(name).endswith(PARQUET) and not self.treebanks
        return self._read_table(name) if is_table else self._read_file(name)

    def _read_file(self, name: str) -> Iterator[bytes]:
        is_json = self.field is not None or unpacked_name(name).endswith(JSON_LINES)
        try:
            with nullcontext(sys.stdin.buffer) if name == STDIN else open(name, "rb", 0) as file:
                blocks = self._lines_of(file)
                if self.column is not None:
                    yield from self._column_texts(blocks, self.column)
                elif is_json and not self.as_written:
                    yield from self._json_texts(blocks)
                else:
                    for number, block in enumerate(blocks):
                        # what is not named as a treebank, as stdin is not, may still be one
                        if not number and not self.treebanks and is_conllu(block):
                            raise is_no_text(self._path)
                        yield block
        except OSError as error:
            what = f"cannot be read: {error.strerror or error}"
            raise self._error(what, "check the path and its permissions") from error

    def _read_table(self, name: str) -> Iterator[bytes]:
        """Read a column of a file of Parquet; its rows are lines."""
        arrow, parquet = load_pyarrow()
        if not Path(name).is_file():
            raise self._error("is not a regular file", "give Parquet as a file on disk")
        column, num_read = self.field or DEFAULT_FIELD, 0
        try:
            with open(name, "rb") as stream, parquet.ParquetFile(stream) as file:
                schema = file.schema_arrow
                if column not in schema.names:
                    hint = f"choose with --field one of: {', '.join(schema.names[:8])}"
                    raise self._error(f"no column {column!r}", hint)
                for batch in file.iter_batches(_ROWS, columns=[column]):
                    texts = []
                    self._source_lines = []
                    for row, cell in enumerate(batch.column(0), start=num_read + 1):
                        texts.append(self._cell_text(cell.as_py(), column, row))
                        self._source_lines += [row] * texts[-1].count(b"\n")
                    num_read += len(texts)
                    yield b"".join(texts)
                stream.seek(0)
                for _ in self._chunks(stream):  # counts what was read, and takes its sum
                    pass
        except (OSError, arrow.ArrowException, UnicodeDecodeError) as error:
            what = f"the Parquet file is damaged: {error}"
            raise self._error(what, "fetch or write it again") from error

    def _cell_text(self, text: Any, column: str, row: int) -> bytes:
        """Return the text of a 1-based row as lines."""
        if not isinstance(text, str):
            hint = "name a column that holds text with --field, or leave out rows without text"
            raise self._error(f"row {row} of the column {column!r} is not text", hint)
        data = text.replace("\r\n", "\n").encode()
        if len(data) > _max_line:
            raise self._too_long(row)
        return data if data.endswith(b"\n") else data + b"\n"

    def _lines_of(self, file: IO[bytes]) -> Iterator[bytes]:
        """Give blocks of whole lines of UTF-8, without a byte order mark and the CR of CRLF."""
        self._first_line, self._source_lines = 1, None
        offset = 0
        for block in self._whole_lines(self._unpack(self._chunks(file))):
            self._check_utf8(block, self._first_line, offset)
            text = block if offset else block.removeprefix(_BOM)
            if b"\r" in text:
                text = text.replace(b"\r\n", b"\n")
            yield text
            offset += len(block)
            self._first_line += text.count(b"\n")

    def _is_live(self) -> bool:
        return self.live and self._path == "<stdin>"

    def _chunks(self, file: IO[bytes]) -> Iterator[bytes]:
        digest = hashlib.sha256()
        read = file.read1 if self._is_live() else file.read  # type: ignore[attr-defined]
        while chunk := read(self.block_size):
            if self.digests is not None:
                digest.update(chunk)
            self._bytes_read += len(chunk)
            if self.on_progress is not None:
                self.on_progress(self._bytes_read, self._total)
            yield chunk
        if self.digests is not None:
            self.digests[self._path] = digest.hexdigest()

    def _unpack(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        start = b""
        for chunk in chunks:
            start += chunk
            if len(start) >= _MAGIC_BYTES or b"\n" in start:  # which no packing begins with
                break
        chunks = chain([start], chunks)
        kind = next((kind for kind, magic in _PACKINGS.items() if magic.match(start)), "")
        try:
            if not kind:
                yield from chunks
            elif kind in ("gzip", "Zstandard"):
                yield from _unpack_members(chunks, is_gzip=kind == "gzip")
            else:
                opened = bz2.BZ2File if kind == "bzip2" else lzma.LZMAFile
                with opened(io.BufferedReader(_Stream(chunks))) as file:
                    yield from iter(partial(file.read, self.block_size), b"")
        except (EOFError, OSError, zlib.error, zstandard.ZstdError, lzma.LZMAError) as error:
            if not kind:
                raise
            what = f"the {kind} file is damaged: {error}"
            raise self._error(what, "fetch or pack it again") from error

    def _whole_lines(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Join chunks to blocks of about the block size that end with a line."""
        pending: list[bytes] = []
        is_begun = False
        size = num_open = 0  # bytes that wait, and those of them behind the last line end
        for chunk in chunks:
            if num_open + len(chunk) > _max_line:
                self._refuse_long_lines(pending, num_open, chunk)
            size += len(chunk)
            ended = chunk.rfind(b"\n") + 1  # bytes of whole lines
            num_open = len(chunk) - ended if ended else num_open + len(chunk)
            if ended and (size >= self.block_size or self._is_live()):
                yield b"".join((*pending, chunk[:ended]))
                is_begun = True
                pending, size = [chunk[ended:]], len(chunk) - ended
            else:
                pending.append(chunk)
        last = b"".join(pending)
        if last and (is_begun or last != _BOM):  # of a file with a byte order mark alone, nothing
            yield last if last.endswith(b"\n") else last + b"\n"

    def _refuse_long_lines(self, pending: list[bytes], num_open: int, chunk: bytes) -> None:
        """Refuse a line of more than the limit, of which `num_open` bytes were before the chunk."""
        line = self._first_line + sum(piece.count(b"\n") for piece in pending)
        for part in chunk.split(b"\n"):
            if num_open + len(part) > _max_line:
                raise self._too_long(line)
            line, num_open = line + 1, 0

    def _too_long(self, line: int) -> DataError:
        what = f"a line of more than {_max_line / (1 << 20):,.0f} MB"
        return self._error(what, "break the line, or raise --max-line MB", line)

    def _check_utf8(self, text: bytes, first_line: int, offset: int = 0) -> None:
        if text.isascii():
            return
        try:
            text.decode()
        except UnicodeDecodeError as error:
            line = first_line + text.count(b"\n", 0, error.start)
            raise self._error(
                f"not UTF-8 at byte {offset + error.start}", NOT_UTF8, line
            ) from error

    def _column_texts(self, blocks: Iterable[bytes], column: str) -> Iterator[bytes]:
        names, id_place, place = _COLUMN_NAMES, 0, TEXT_COLUMNS[column]
        words: list[bytes] = []  # of the sentence that is being read
        begin = last = 0  # its first line, and the last word of a multiword token
        bad = partial(self._error, hint="give CoNLL-U; check it with prepare")
        for block in chain(blocks, [b"\n"]):  # the last sentence may have no end
            texts: list[bytes] = []
            source_lines: list[int] = []
            for line_number, line in enumerate(block.split(b"\n")[:-1], start=self._first_line):
                if not line and words:
                    if TEXT_COLUMNS[column] > 1 and {*words} == {b"_"}:
                        what = f"no word of the sentence has {column.upper()}"
                        raise self._error(what, "tag it first: seqtool tag", begin)
                    texts.append(b" ".join(words) + b"\n")
                    source_lines.append(begin)
                    words, last = [], 0
                elif line_number == 1 and line.startswith(PLUS_MARK):  # CoNLL-U Plus
                    names = line.removeprefix(PLUS_MARK).split()
                    wanted = (b"ID", _COLUMN_NAMES[TEXT_COLUMNS[column]])
                    if missing := [name.decode() for name in wanted if name not in names]:
                        raise bad(f"there is no column {missing[0]}", line=line_number)
                    id_place, place = map(names.index, wanted)
                if not line or line.startswith(b"#"):
                    continue
                columns = line.split(b"\t")
                if len(columns) != len(names):
                    kind = "CoNLL-U" if names is _COLUMN_NAMES else "the first line"
                    what = f"{counted(len(columns), 'column')}, where {kind} has {len(names)}"
                    raise bad(what, line=line_number)
                begin = begin if words else line_number
                id_, value = _ID.fullmatch(columns[id_place]), columns[place]
                if id_ is None or not value:
                    what = f"column {column.upper() if id_ else 'ID'} is wrong"
                    raise bad(what, line=line_number)
                first, mark, end = id_.groups()
                if mark == b"." or (mark == b"-" and column != "form"):
                    continue  # an empty node; of other columns than the form, words are read
                if mark == b"-":
                    last = int(end)
                elif int(first) <= last and column == "form":
                    continue  # it is read as the multiword token is written
                words.append(value.replace(b" ", "\u00a0".encode()))
            if texts:
                self._source_lines = source_lines
                yield b"".join(texts)

    def _json_texts(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        for block in blocks:
            texts: list[bytes] = []
            self._source_lines = []
            for number, record in json_records(block, self._path, self._first_line):
                text = self._field_of(record, number)
                texts.append(text if text.endswith(b"\n") else text + b"\n")
                self._source_lines += [number] * texts[-1].count(b"\n")
            if texts:
                yield b"".join(texts)

    def _field_of(self, record: dict[str, Any], number: int) -> bytes:
        field = self.field or DEFAULT_FIELD
        text = record.get(field)
        try:
            if isinstance(text, str):
                return text.replace("\r\n", "\n").encode()
        except UnicodeEncodeError as error:
            what = f"the field {field!r} holds half a surrogate pair"
            raise self._error(what, "write the character whole", number) from error
        if field in record:
            hint = "name a field that holds text with --field"
            raise self._error(f"the field {field!r} is not a text", hint, number)
        names = ", ".join(list(record)[:8])
        hint = f"choose with --field one of: {names}" if names else "name it with --field"
        raise self._error(f"no field {field!r} in this line", hint, number)


read_blocks = BlockReader


class _Stream(io.RawIOBase):
    """A file of the bytes that an iterator gives."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._rest = chunks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or memoryview(next(self._chunks, b""))
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


def _unpack_members(chunks: Iterable[bytes], *, is_gzip: bool) -> Iterator[bytes]:
    """Unpack what may be several members; an EOFError if the last has no end.

    Python's own reader of gzip is slower, and that of Zstandard takes half a file for a whole one.
    """
    unpacker: Any = None
    for chunk in chunks:
        for start in range(0, len(chunk), _FEED):
            piece = chunk[start : start + _FEED]
            while piece := piece.lstrip(b"\0") if unpacker is None else piece:  # gzip is padded
                if unpacker is None:
                    zstd = zstandard.ZstdDecompressor()
                    unpacker = zlib.decompressobj(wbits=31) if is_gzip else zstd.decompressobj()
                yield unpacker.decompress(piece)
                piece = unpacker.unused_data
                if unpacker.eof:
                    unpacker = None
    if unpacker is not None:
        raise EOFError("it ends too early")


def load_pyarrow() -> tuple[Any, Any]:
    """Return pyarrow and its module of Parquet.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError(
            "a .parquet file needs pyarrow, which is not installed",
            hint="install it: pip install 'seqtool[parquet]', or take another format",
        ) from error
    return pyarrow, pyarrow.parquet


def json_records(
    content: bytes, path: str, first_line: int = 1, *, whole: bool = False
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of JSON Lines with the numbers of their lines; empty lines are passed over.

    Args:
        content: whole lines.
        path: of their file, for errors.
        first_line: the 1-based line of it where they begin.
        whole: refuse half a surrogate pair in any field.

    Raises:
        DataError: a line that is no object, or holds what is refused.
    """
    for number, line in enumerate(content.split(b"\n"), start=first_line):
        if not line.strip():
            continue
        bad = partial(DataError, path=path, line=number)
        try:
            record = json.loads(line)
            if not isinstance(record, dict):
                raise ValueError("it is no object")
            if whole and b"\\u" in line:
                json.dumps(record, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            what, hint = "half a surrogate pair, which is no character", "write the character whole"
            raise bad(what, hint=hint) from error
        except (ValueError, RecursionError) as error:
            raise bad(f"not JSON: {error}", hint="each line must be one JSON object") from error
        yield number, record


def is_conllu(block: bytes) -> bool:
    """Whether a text begins as a treebank does."""
    return _TREEBANK.match(block) is not None


def whole_text(text: str, what: str = "the text") -> str:
    """Return a text that is given in Python, or refuse halves of pairs of UTF-16 in it.

    Raises:
        DataError: it, or `what` it is, holds one, which no file can.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"U+{ord(text[error.start]):04X}, half a pair"
        raise DataError(
            f"character {error.start} of {what} is {half}",
            hint="decode the text with errors='replace'",
        ) from error
    return text
