"""Reading text: files, directories and stdin, packed or not, as blocks of whole UTF-8 lines.

    bytes on disk -> unpacked (.gz, .zst, .bz2, .xz) -> whole lines -> checked UTF-8 -> text of JSON
    Lines, or of a column of CoNLL-U
    rows of Parquet -> text of a column

Memory is bounded by the block size, or by the longest line where that is longer. A line beyond
`MAX_LINE`, or what `limit_lines` has set, is refused before it is whole.
"""

from __future__ import annotations

import bz2
import hashlib
import json
import lzma
import re
import shlex
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any, NoReturn

import zstandard

from seqtool.core.errors import ConfigError, DataError, counted
from seqtool.core.parquet import column_batches, load_pyarrow

CORPUS = "corpus.json"  # what a prepared corpus is known by
MODEL = "model.json"  # and a model

STDIN = "-"
BLOCK_SIZE = 1 << 20
DEFAULT_FIELD = "text"
JSON_LINES = (".jsonl", ".ndjson")  # how such files are named
PARQUET = ".parquet"
MAX_LINE = 64 << 20  # bytes of a line: a packed file of 4 MB may hold one of 4 GB

Progress = Callable[[int, "int | None"], None]

_BOM = b"\xef\xbb\xbf"
# suffix -> (name, first bytes)
_PACKINGS = {
    ".gz": ("gzip", re.compile(rb"\x1f\x8b")),
    ".zst": ("Zstandard", re.compile(rb"\x28\xb5\x2f\xfd")),
    ".bz2": ("bzip2", re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")),
    ".xz": ("xz", re.compile(rb"\xfd7zXZ\0")),
}
_MAGIC_BYTES = 10  # of the longest of them
_XZ_MEMORY = 256 << 20  # bytes for its dictionary: that of xz -9 is 64 MB
# the beginning of CoNLL-U: comments, then a first word, or a multiword token, with ten columns
_TREEBANK = re.compile(rb"(?:#[^\n]*\n|\n)*1(?:-[0-9]+)?(?:\t[^\t\n]+){9}\n")
# columns of CoNLL-U that can be read as a text; `treebank.sentence` has all of them
TEXT_COLUMNS = {"form": 1, "lemma": 2, "upos": 3, "xpos": 4}
_COLUMN_NAMES = b"ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC".split()
_ID = re.compile(rb"([0-9]+)(?:([-.])([0-9]+))?")  # of a word, a multiword token, an empty node
PLUS_MARK = b"# global.columns ="  # begins a file of CoNLL-U Plus
_AS_TEXT = (
    "take its words: seqtool prepare {} --column form (with -o - as text on stdout); parse and tag "
    "read it with --input conllu, without --raw and --rules"
)

_ZSTD_FEED = 4096  # its decompressor gives all at once, and a byte may stand for 32,768
_PACKED = re.compile(r"\.(gz|zst|bz2|xz)$", re.IGNORECASE)


_max_line = MAX_LINE
# what Universal Dependencies has beside its treebanks: a licence, a page about them, their text
_BESIDE_TREEBANKS = re.compile("licen[cs]e|readme|copying|-ud-", re.IGNORECASE)
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
    from seqtool.core.storage import present  # with NumPy, which --help does without

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
    """Return the files that inputs stand for; a DataError tells what cannot be read.

    A directory gives all its files, sorted, but for hidden ones; `-` stays as it is. With
    `treebanks`, they are all that a directory gives, and with `texts` its .txt files, too; else
    those beside texts are left out, and one that is named is refused, as it is no text.
    """
    from seqtool.core.storage import present

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
            if is_corpus(path):
                what = f"is a prepared corpus, not {'a treebank' if treebanks else 'text'}"
                hint = "name it where a CORPUS is asked for, or give its source text"
                raise DataError(what, hint=hint, path=path)
            if (path / MODEL).is_file():
                what = f"is a model, not {'a treebank' if treebanks else 'a text'}"
                raise DataError(
                    what, hint="name a model with -m, and here what it reads", path=path
                )
            inside = sorted(
                str(entry)
                for entry in path.rglob("*")
                if entry.is_file()
                and not is_corpus(entry.parent)
                and not any(part.startswith(".") for part in entry.relative_to(path).parts)
                and (is_treebank(entry) or not treebanks or (texts and is_text(entry)))
            )
            if not inside:
                kind = (
                    ".conllu or .txt files" if texts else ".conllu files" if treebanks else "files"
                )
                raise DataError(f"the directory holds no {kind}", hint="check the path", path=path)
            files.extend(inside if treebanks else without_treebanks(path, inside))
        elif path.exists():
            files.append(str(path) if path != Path(item) else str(item))
        else:
            raise DataError("no such file or directory", hint="check the path", path=item)
    for name in files:
        if is_treebank(name) and not treebanks:
            raise is_no_text(name)
    return files


def is_no_text(path: str | Path) -> DataError:
    """Return the error of a treebank where a text is wanted."""
    return DataError(
        "is a treebank, not text", hint=_AS_TEXT.format(shlex.quote(str(path))), path=path
    )


def total_size(inputs: Sequence[str | Path], *, treebanks: bool = False) -> int | None:
    """Return how many bytes `read_blocks` will read from disk, None where it cannot be known."""
    paths = [Path(name) for name in find_files(inputs, treebanks=treebanks)]
    if all(path.is_file() for path in paths):
        return sum(path.stat().st_size for path in paths)
    return None


def read_open_file(
    file: IO[bytes], name: str, *, block_size: int = BLOCK_SIZE, may_be_empty: bool = False
) -> BlockReader:
    """Read an open file, from where it stands, as `read_blocks` reads one; the name is for errors.

    Raises:
        DataError: when iterated: as of `read_blocks`.
    """
    return _OpenFileReader(file, name, block_size, may_be_empty)


def read_blocks(
    inputs: Sequence[str | Path] | str | Path,
    *,
    field: str | None = None,
    lowercase: bool = False,
    treebanks: bool = False,
    block_size: int = BLOCK_SIZE,
    on_progress: Progress | None = None,
    digests: dict[str, str] | None = None,
    as_written: bool = False,
    column: str | None = None,
) -> BlockReader:
    """Read text as blocks of whole lines, each line ended by LF.

    A missing last line end is added, CRLF becomes LF, a byte order mark at a file's start is
    dropped. Files named .jsonl or .ndjson are JSON Lines, and so is everything when `field` is
    given. Packed files (.gz, .zst, .bz2, .xz) are known by their first bytes. Of files named
    .parquet the field is a column, and their rows are lines.

    Args:
        inputs: files, directories (read recursively, sorted) and `-` for stdin.
        field: the field that holds the text of JSON Lines or Parquet; "text" when not given.
        lowercase: lower-case the text.
        treebanks: read treebanks, not text; see `find_files`.
        block_size: bytes to read at a time; a longer line makes a longer block.
        on_progress: called with (bytes read from disk, their total or None).
        digests: filled with file name -> SHA-256 of each file as it is on disk.
        as_written: give lines of JSON as they are, not the text in them.
        column: read treebanks as a text of this column, one of `TEXT_COLUMNS`: a sentence a line,
            blanks between words, a no-break space for a blank in one. Of "form" a multiword token
            is read as it is written, of other columns its words are.

    Raises:
        DataError: when iterated: no such file, no text at all, invalid UTF-8 (with the byte
            offset), a damaged packed file, a line that is too long, or a bad line of JSON; a
            treebank where a text is wanted; a broken line of a treebank, or a sentence without the
            column.
    """
    inputs = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    treebanks = treebanks or column is not None
    options = (field, lowercase, treebanks, block_size, on_progress, digests, as_written, column)
    return BlockReader(inputs, *options)


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


@dataclass(eq=False)
class BlockReader(Iterator[bytes]):
    """The iterator that `read_blocks` returns; it knows where the block came from."""

    inputs: Sequence[str | Path]
    field: str | None
    lowercase: bool
    treebanks: bool
    block_size: int
    on_progress: Progress | None
    digests: dict[str, str] | None
    as_written: bool = False
    column: str | None = None

    def __post_init__(self) -> None:
        self._bytes_read = 0
        self._total: int | None = None
        self._path = ""
        self._first_line = 1
        self._source_lines: list[int] | None = None
        self._blocks = self._read()

    def __next__(self) -> bytes:
        return next(self._blocks)

    def locate(self, line: int) -> tuple[str, int]:
        """Return (file, 1-based line in it) of a 1-based line of the block given last."""
        return self.place.locate(line)

    @property
    def place(self) -> Place:
        """Where the block given last comes from."""
        return Place(self._path, self._first_line, self._source_lines)

    def located(self, error: DataError, line: int) -> DataError:
        """Return an error about a 1-based line of the block given last, with its file and line."""
        path, source_line = self.locate(line)
        return DataError(error.message, hint=error.hint, path=path, line=source_line)

    def _read(self) -> Iterator[bytes]:
        files = find_files(self.inputs, treebanks=self.treebanks)
        self._total = total_size(files, treebanks=self.treebanks)
        nothing = True
        for name in files:
            self._path = "<stdin>" if name == STDIN else name
            is_table = unpacked_name(name).endswith(PARQUET) and not self.treebanks
            for block in self._read_table(name) if is_table else self._read_file(name):
                nothing = False
                yield block.decode().lower().encode() if self.lowercase else block
        if nothing:
            what, path = "the file is empty", self._path
            if files == [STDIN]:
                what = "the text is empty"
            if not files:
                raise DataError("no file is given", hint="name one or more, or - for stdin")
            if len(files) > 1:
                what, path = "all the files are empty", str(self.inputs[0])
            hint = f"give a file that holds {'trees' if self.treebanks else 'text'}"
            raise DataError(what, hint=hint, path=path)

    def _read_file(self, name: str) -> Iterator[bytes]:
        is_json = self.field is not None or unpacked_name(name).endswith(JSON_LINES)
        is_json = is_json and not self.as_written
        try:
            with nullcontext(sys.stdin.buffer) if name == STDIN else open(name, "rb", 0) as file:
                lines = self._lines_of(file, name)
                if self.column is not None:
                    lines = self._column_texts(lines, self.column)
                elif is_json:
                    lines = self._json_texts(lines)
                elif not self.treebanks:
                    lines = self._refuse_treebanks(lines)
                yield from lines
        except OSError as error:
            what = f"cannot be read: {error.strerror or error}"
            hint = "check the path and its permissions"
            raise DataError(what, hint=hint, path=self._path) from error

    def _read_table(self, name: str) -> Iterator[bytes]:
        """Read a column of a file of Parquet."""
        arrow, parquet = load_pyarrow()
        if not Path(name).is_file():
            hint = "give Parquet as a file on disk"
            raise DataError("is not a regular file", hint=hint, path=name)
        column, before = self.field or DEFAULT_FIELD, self._bytes_read
        size = Path(name).stat().st_size
        try:
            with parquet.ParquetFile(name, pre_buffer=False) as file:
                names = file.schema_arrow.names
                if column not in names:
                    hint = f"choose with --field one of: {', '.join(names[:8])}"
                    raise DataError(f"no column {column!r}", hint=hint, path=name)
                kind = file.schema_arrow.field(column).type
                # such as a category of pandas
                values = kind.value_type if arrow.types.is_dictionary(kind) else kind
                if values not in (arrow.string(), arrow.large_string(), arrow.string_view()):
                    hint = "name a column that holds text with --field"
                    raise DataError(f"the column {column!r} is not text", hint=hint, path=name)
                row, num = 0, file.metadata.num_rows
                texts: list[bytes] = []
                source_lines: list[int] = []
                num_bytes = 0
                for batch in column_batches(file, name, column, _max_line):
                    cells = batch.cast(arrow.large_string()).cast(arrow.large_binary())
                    for cell in cells.to_pylist():
                        row += 1
                        texts.append(self._cell_text(cell, row))
                        source_lines.extend([row] * texts[-1].count(b"\n"))
                        num_bytes += len(texts[-1])
                        if num_bytes >= self.block_size or row == num:
                            self._source_lines = source_lines
                            yield b"".join(texts)
                            texts, source_lines, num_bytes = [], [], 0
                    self._bytes_read = before + size * row // max(1, row, num)
                    if self.on_progress is not None:
                        self.on_progress(self._bytes_read, self._total)
                if row != num:
                    what = f"the Parquet file is damaged: it has {row:,} rows, not {num:,}"
                    raise DataError(what, hint="fetch or write it again", path=name)
        except (OSError, arrow.ArrowException) as error:
            what, hint = f"the Parquet file is damaged: {error}", "fetch or write it again"
            raise DataError(what, hint=hint, path=name) from error
        if self.digests is not None:
            with open(name, "rb") as stream:
                self.digests[name] = hashlib.file_digest(stream, "sha256").hexdigest()

    def _cell_text(self, cell: bytes | None, row: int) -> bytes:
        """Return the text of a 1-based row as lines."""
        if cell is None:
            hint = "leave out rows without text, or give them an empty one"
            raise DataError(f"row {row} has no text", hint=hint, path=self._path)
        if len(cell) > _max_line:
            raise self._too_long(row)
        try:
            cell.decode()
        except UnicodeDecodeError as error:
            what, hint = f"not UTF-8 at byte {error.start} of row {row}", "write it again"
            raise DataError(what, hint=hint, path=self._path) from error
        line = cell.replace(b"\r\n", b"\n")
        return line if line.endswith(b"\n") else line + b"\n"

    def _lines_of(self, file: IO[bytes], name: str = "") -> Iterator[bytes]:
        return self._check_utf8(self._whole_lines(self._unpack(name, self._chunks(file))))

    def _chunks(self, file: IO[bytes]) -> Iterator[bytes]:
        digest = hashlib.sha256()
        while chunk := file.read(self.block_size):
            digest.update(chunk)
            self._bytes_read += len(chunk)
            if self.on_progress is not None:
                self.on_progress(self._bytes_read, self._total)
            yield chunk
        if self.digests is not None:
            self.digests[self._path] = digest.hexdigest()

    def _unpack(self, name: str, chunks: Iterator[bytes]) -> Iterator[bytes]:
        start = b""
        for chunk in chunks:
            start += chunk
            if len(start) >= _MAGIC_BYTES:
                break
        chunks = chain(filter(None, [start]), chunks)
        for suffix, (kind, magic) in _PACKINGS.items():
            if magic.match(start):
                return self._unpacked(kind, chunks)
            if start and Path(name).suffix.lower() == suffix:
                hint = "rename it, or pack it again"
                raise DataError(f"is not a {kind} file", hint=hint, path=self._path)
        return chunks

    def _unpacked(self, kind: str, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Unpack members, of which several may follow one another."""
        is_zstd = kind == "Zstandard"
        # the others give what they are asked for and keep the rest
        limits = [] if is_zstd else [max(self.block_size, 1)]

        def begin() -> Any:
            if kind == "bzip2":
                return bz2.BZ2Decompressor()
            if kind == "xz":
                return lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY)
            if is_zstd:
                return zstandard.ZstdDecompressor().decompressobj()
            return zlib.decompressobj(wbits=31)

        def unpack(piece: bytes) -> bytes:
            try:
                return unpacker.decompress(piece, *limits)  # type: ignore[no-any-return]
            except (zlib.error, zstandard.ZstdError, lzma.LZMAError, OSError) as error:
                raise self._damaged(kind, str(error)) from error

        unpacker = begin()
        for chunk in chunks:
            feed = _ZSTD_FEED if is_zstd else len(chunk)
            for start in range(0, len(chunk), feed):
                piece = chunk[start : start + feed]
                while piece or not (unpacker.eof or getattr(unpacker, "needs_input", True)):
                    if unpacker.eof:
                        piece = piece if is_zstd else piece.lstrip(b"\0")  # padding is allowed
                        if not piece:
                            break
                        unpacker = begin()
                    yield unpack(piece)
                    # bzip2 and xz keep what they have not unpacked themselves
                    rest = getattr(unpacker, "unconsumed_tail", b"")
                    piece = unpacker.unused_data if unpacker.eof else rest
        if not unpacker.eof:
            raise self._damaged(kind, "it ends too early")

    def _damaged(self, kind: str, reason: str) -> DataError:
        what = f"the {kind} file is damaged: {reason}"
        return DataError(what, hint="fetch or pack it again", path=self._path)

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
            cut = ended if size >= self.block_size else 0
            if cut:
                yield b"".join((*pending, chunk[:cut]))
                is_begun = True
                pending, size = [chunk[cut:]], len(chunk) - cut
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
        hint = "break the line, or raise --max-line MB"
        what = f"a line of more than {_max_line / (1 << 20):,.0f} MB"
        return DataError(what, hint=hint, path=self._path, line=line)

    def _check_utf8(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Check the encoding, drop the byte order mark and the CR of CRLF; count the lines."""
        offset = 0
        self._first_line, self._source_lines = 1, None
        for block in blocks:
            if not block.isascii():
                try:
                    block.decode()
                except UnicodeDecodeError as error:
                    raise self._not_utf8(block, offset, error.start) from error
            if offset == 0:
                self._refuse_utf16(block)
            text = block.removeprefix(_BOM) if offset == 0 else block
            if b"\r" in text:
                text = text.replace(b"\r\n", b"\n")
            if text:
                yield text
            offset += len(block)
            self._first_line += text.count(b"\n")

    def _refuse_utf16(self, block: bytes) -> None:
        """Refuse what begins as UTF-16 does without its mark: every other byte is often a NUL."""
        head = block[:4096]
        nuls = [head[parity::2].count(b"\0") for parity in (0, 1)]
        if len(head) < 256 or min(nuls) or 4 * max(nuls) < len(head):
            return
        encoding = "UTF-16BE" if nuls[0] else "UTF-16LE"
        hint = f"convert it: iconv -f {encoding} -t UTF-8"
        raise DataError(f"this is {encoding}, not UTF-8", hint=hint, path=self._path)

    def _not_utf8(self, block: bytes, offset: int, start: int) -> DataError:
        packed = " of the unpacked text" if _PACKED.search(self._path) else ""
        where = f"byte {offset + start}{packed}"
        hint = conversion_hint(block)
        line = self._first_line + block.count(b"\n", 0, start)
        return DataError(f"not UTF-8 at {where}", hint=hint, path=self._path, line=line)

    def _refuse_treebanks(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Pass text on; what is not named as a treebank, as stdin is not, may still be one."""
        for number, block in enumerate(blocks):
            if not number:
                refuse_treebank(block, self._path)
            yield block

    def _column_texts(self, blocks: Iterable[bytes], column: str) -> Iterator[bytes]:
        words: list[bytes] = []  # of the sentence that is being read
        begin, number = 0, 1  # its first line, and the number of its next word
        last = 0  # the last word of a multiword token
        names: list[bytes] = _COLUMN_NAMES
        id_place, place = 0, TEXT_COLUMNS[column]

        def refuse(what: str, line: int) -> NoReturn:
            hint = "give CoNLL-U; `seqtool prepare FILE.conllu` checks all of it"
            raise DataError(what, hint=hint, path=self._path, line=line)

        def sentence() -> bytes:
            if last >= number:
                refuse(f"a multiword token ends with word {last}, of {number - 1}", begin)
            if place > 1 and {*words} == {b"_"}:
                what = f"no word of the sentence has {column.upper()}"
                raise DataError(what, hint="tag it first: seqtool tag", path=self._path, line=begin)
            return b" ".join(words) + b"\n"

        for block in blocks:
            texts: list[bytes] = []
            source_lines: list[int] = []
            for line_number, line in enumerate(block.split(b"\n")[:-1], start=self._first_line):
                if line.startswith(b"#"):
                    if line_number == 1 and line.startswith(PLUS_MARK):  # CoNLL-U Plus
                        names = line.removeprefix(PLUS_MARK).split()
                        wanted = (b"ID", column.upper().encode())
                        if missing := [name.decode() for name in wanted if name not in names]:
                            refuse(f"there is no column {missing[0]}", line_number)
                        id_place, place = map(names.index, wanted)
                    continue
                if not line:
                    if words:
                        texts.append(sentence())
                        source_lines.append(begin)
                    words, last, number = [], 0, 1
                    continue
                columns = line.split(b"\t")
                if len(columns) != len(names):
                    kind = "CoNLL-U" if names is _COLUMN_NAMES else "the first line"
                    what = f"{counted(len(columns), 'column')}, where {kind} has {len(names)}"
                    refuse(what, line_number)
                begin = begin if words else line_number
                id_, value = columns[id_place], columns[place]
                found = _ID.fullmatch(id_)
                if found is None or not value:
                    what = f"column {column.upper()} is empty" if found else "column ID is no ID"
                    refuse(what, line_number)
                first, mark, end = found.groups()
                if mark == b".":  # an empty node
                    continue
                is_next = int(first) == number and (mark is None or int(end) >= int(first) > last)
                if not is_next:
                    refuse(f"the ID is {id_.decode()}, where word {number} is next", line_number)
                is_written = column == "form" and int(first) <= last
                if mark is None:
                    number += 1
                else:
                    last = int(end)
                if is_written or (mark is not None and column != "form"):
                    continue  # by the multiword token, or by its words
                words.append(value.replace(b" ", "\u00a0".encode()))
            if texts:
                self._source_lines = source_lines
                yield b"".join(texts)
        if words:
            self._source_lines = [begin]
            yield sentence()

    def _json_texts(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        field = self.field or DEFAULT_FIELD
        for block in blocks:
            text, self._source_lines = json_texts(block, self._path, self._first_line, field)
            if text:
                yield text


def conversion_hint(text: bytes) -> str:
    """Return how to convert a text to UTF-8, of which the beginning is given."""
    is_utf16 = text.startswith((b"\xff\xfe", b"\xfe\xff"))
    return f"convert it: iconv -f {'UTF-16' if is_utf16 else 'ENCODING'} -t UTF-8"


def is_conllu(block: bytes) -> bool:
    """Whether a text begins as a treebank does."""
    return _TREEBANK.match(block) is not None


def refuse_treebank(block: bytes, path: str) -> None:
    """Refuse a file of text that begins as a treebank does.

    Raises:
        DataError: so it is.
    """
    if is_conllu(block):
        error = is_no_text("-" if path == "<stdin>" else path)
        raise DataError(error.message, hint=error.hint, path=path)


def json_texts(block: bytes, path: str, first_line: int, field: str) -> tuple[bytes, list[int]]:
    """Return the texts of lines of JSON as lines, and the line of the file where each comes from.

    Args:
        block: whole lines.
        path: of their file.
        first_line: the 1-based line of it where they begin.
        field: that holds the text.

    Raises:
        DataError: a line without such a text.
    """
    texts: list[bytes] = []
    source_lines: list[int] = []
    for number, line in enumerate(block.split(b"\n")[:-1], start=first_line):
        if not line.strip():
            continue
        text = _json_text(line, path, number, field)
        texts.append(text if text.endswith(b"\n") else text + b"\n")
        source_lines.extend([number] * texts[-1].count(b"\n"))
    return b"".join(texts), source_lines


def _json_text(line: bytes, path: str, number: int, field: str) -> bytes:
    def bad(what: str, hint: str) -> DataError:
        return DataError(what, hint=hint, path=path, line=number)

    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise bad(f"not JSON: {error}", "each line must be one JSON object") from error
    if not isinstance(record, dict) or field not in record:
        names = ", ".join(list(record)[:8]) if isinstance(record, dict) else ""
        hint = f"choose with --field one of: {names}" if names else "name it with --field"
        raise bad(f"no field {field!r} in this line", hint)
    if not isinstance(text := record[field], str):
        hint = "name a field that holds text with --field"
        raise bad(f"the field {field!r} is not a text", hint)
    try:
        return text.replace("\r\n", "\n").encode()
    except UnicodeEncodeError as error:
        what = f"the field {field!r} holds half a surrogate pair"
        raise bad(what, "write the character whole") from error


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


class _OpenFileReader(BlockReader):
    """Gives the blocks of an open file."""

    def __init__(self, file: IO[bytes], name: str, block_size: int, may_be_empty: bool) -> None:
        self._file, self._may_be_empty = file, may_be_empty
        super().__init__([], None, False, True, block_size, None, None)
        self._path = name

    def _read(self) -> Iterator[bytes]:
        nothing = not self._may_be_empty
        for block in self._lines_of(self._file):
            nothing = False
            yield block
        if nothing:
            hint = "give a file that holds trees"
            raise DataError("the file is empty", hint=hint, path=self._path)
