r"""ARPA files: written from a table of probabilities and backoffs, and read into one.

    \data\                              log10(probability) <tab> words <tab> log10(backoff weight)
    ngram 1=4                           no backoff: 0; none at the highest order
    ngram 2=1                           -99: none at all, as SRILM has it
    \1-grams:
    -1.3010300  <unk>
    -99         <s>         -0.3010300  never predicted
    ...
    \2-grams:
    -0.1760913  <s> a
    \end\

Words are separated by space, tab, LF and CR only. A file is read section by section, and each is
sorted into trie order when it is whole.
"""

from __future__ import annotations

import math
import re
import zlib
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from seqtool.core.arrays import Bools
from seqtool.core.errors import ConfigError, DataError, ModelError, OutputError, counted
from seqtool.core.reading import read_blocks, unpacked_name
from seqtool.core.storage import atomic_file, refuse_input
from seqtool.core.string_table import StringTable
from seqtool.core.terminal import stream
from seqtool.core.units import LN_10
from seqtool.core.vocabulary import BOS, EOS, EOS_ID, UNK, UNK_ID, Vocabulary
from seqtool.lm.ngram import arpa_lines
from seqtool.lm.ngram.suffixes import contexts_of, select
from seqtool.lm.ngram.table import BOS_NATS, BackoffTable, Float32, Int32, TableLevel

if TYPE_CHECKING:
    from seqtool.lm.ngram.counts import CountLevel

OnProgress = Callable[[int, "int | None"], None]

STDOUT = "-"
ROWS_PER_PIECE = 1 << 16  # some 3 MB of text
GZIP_LEVEL = 4  # 6 saves 4% and takes twice the time
_BLANK = re.compile(r"[ \t\r\n]")
_GZIP = 31  # zlib's name for a gzip member
_BINARY = b"mmap lm http://kheafield.com/code"  # how a file in KenLM's own format begins
_BINARY_NAMES = (".bin", ".binary", ".klm", ".mmap")  # as people call such files
_OTHER_PACKINGS = (".zst", ".bz2", ".xz", ".zip")


def is_arpa(path: str | Path) -> bool:
    r"""Return whether a file is ARPA by its name, or by a line `\data\` near its beginning.

    Raises:
        ModelError: it is in KenLM's own format.
    """
    path = Path(path)
    if not path.is_file():
        return False
    _refuse_binary(path)
    if unpacked_name(path).endswith(".arpa"):
        return True
    try:
        start = next(read_blocks(path, block_size=1 << 16), b"")
    except DataError:  # no text
        return False
    return re.search(rb"^[ \t]*\\data\\[ \t\r]*$", start, re.MULTILINE) is not None


def _refuse_binary(path: Path) -> None:
    with path.open("rb") as stream:
        if stream.read(len(_BINARY)) == _BINARY:
            raise ModelError(
                "is in KenLM's binary format, which is not read",
                hint="name the ARPA file that build_binary made it of",
                path=path,
            )


def read_arpa(
    path: str | Path, *, on_progress: OnProgress | None = None, on_note: OnNote | None = None
) -> tuple[BackoffTable, Vocabulary]:
    r"""Read an ARPA file of KenLM, SRILM, IRSTLM or any other tool, packed or not.

    N-grams may come in any order within their section, fields may be apart by spaces or tabs, and
    text before `\data\` is passed over. -99 is no probability at all, as SRILM has it. `<UNK>`,
    `<S>` and `</S>` stand for `<unk>`, `<s>` and `</s>` where those are not there. The `<unk>` of a
    closed vocabulary gets a log10 probability of -100, as KenLM does it. N-grams with `<s>` after,
    or `</s>` before another word are left out, since no sentence holds them; empty highest orders
    too.

    Args:
        path: the file, or `-` for stdin.
        on_progress: called with (bytes read, their total or None).
        on_note: called with a line about each of these changes.

    Raises:
        ModelError: it is no such file, cut off or damaged, with the line; or lacks `<s>` or `</s>`.
    """
    if Path(path).is_file():
        _refuse_binary(Path(path))
    try:
        return _Reader(_Lines(path, on_progress), on_note or (lambda note: None)).read()
    except DataError as error:
        raise ModelError(
            error.message, hint=error.hint, path=error.path, line=error.line
        ) from error


def write_arpa(
    table: BackoffTable,
    vocabulary: Vocabulary,
    path: str | Path,
    *,
    with_unknown: bool = True,
    threads: int = 1,
    on_progress: OnProgress | None = None,
) -> int:
    """Write a table as an ARPA file, packed if its name ends in .gz; it is there whole or not.

    Log-probabilities have seven decimals, so they are off by 5e-8 at most. A backoff of 0 is left
    out where no longer n-gram begins so, which every reader takes for 0.

    Args:
        table: what to write.
        vocabulary: its words.
        path: the file to write or replace; `-` for stdout.
        with_unknown: with `<unk>` and its n-grams; see `without_unknown`.
        threads: how many pieces are made, and packed, at a time.
        on_progress: called with (n-grams written, their number).

    Returns:
        The number of n-grams.

    Raises:
        ConfigError: the vocabulary is not the table's, or has a symbol that is or holds a blank.
        OutputError: its name says another format; see `check_arpa`.
        OSError: it cannot be written.
    """
    _check_name(path)
    packed = Path(path).suffix.lower() == ".gz"
    if not with_unknown:
        table = without_unknown(table)
    num = sum(map(len, table.levels)) - (not with_unknown)
    pieces = arpa_pieces(
        table,
        vocabulary,
        with_unknown=with_unknown,
        packed=packed,
        threads=threads,
        on_progress=on_progress,
    )
    if str(path) == STDOUT:
        shown = stream()
        shown.buffer.writelines(pieces)
        shown.flush()
        return num
    with atomic_file(path) as target:
        target.writelines(pieces)
    return num


def check_target(path: str | Path | None, inputs: Iterable[str | Path] = ()) -> None:
    """Refuse, before the work begins, to write where there is no directory, or over `inputs`.

    Raises:
        OutputError: it names the file.
    """
    if path is not None and str(path) != STDOUT and not Path(path).parent.is_dir():
        raise OutputError("the directory to write to is not there", hint="make it first", path=path)
    if path is not None and Path(path).is_dir():
        raise OutputError("is a directory", hint="name a file in it", path=path)
    if path is not None:
        refuse_input(path, inputs)


def check_arpa(path: str | Path | None, inputs: Iterable[str | Path] = ()) -> None:
    """Refuse, before the work begins, what cannot become an ARPA file.

    Raises:
        OutputError: as of `check_target`, or its name says that it is packed otherwise than by
            gzip, or in KenLM's binary format.
    """
    check_target(path, inputs)
    if path is not None:
        _check_name(path)


def _check_name(path: str | Path) -> None:
    suffix = Path(path).suffix.lower()
    if suffix in _OTHER_PACKINGS:
        what = f"an ARPA file is packed as .gz, not as {suffix}"
        raise OutputError(what, hint="name a .arpa.gz or a .arpa file", path=path)
    if suffix in _BINARY_NAMES:
        what = "KenLM's binary format is not written"
        hint = "name a .arpa file; KenLM's build_binary makes the other of it"
        raise OutputError(what, hint=hint, path=path)


def warnings_of(table: BackoffTable) -> list[str]:
    """Return what a user should know before another program reads the file."""
    if table.order > 1:
        return []
    return ["KenLM refuses an ARPA file of order 1; SRILM and seqtool read it"]


def without_unknown(table: BackoffTable) -> BackoffTable:
    """Return a table without n-grams of `<unk>`, beside the word itself; the others stay.

    What `<unk>` had is not given to the other words, so that these keep their probabilities.
    """
    kept: list[Bools] = []
    is_context = table.levels[0].words != UNK_ID
    for level in table.levels[1:]:
        is_context = is_context[contexts_of(level)] & (level.words != UNK_ID)
        kept.append(is_context)
    return select(table, kept)


def check_symbols(vocabulary: Vocabulary) -> None:
    """Refuse a vocabulary that an ARPA file cannot hold.

    Raises:
        ConfigError: a symbol is or holds a blank.
    """
    for symbol in vocabulary.symbols:
        if _BLANK.search(symbol):
            raise ConfigError(
                f"the symbol {symbol!r} holds a blank, which ends a word in an ARPA file",
                hint="use a model of words, or one of bpe or unigram units",
            )


def arpa_pieces(
    table: BackoffTable,
    vocabulary: Vocabulary,
    *,
    with_unknown: bool = True,
    packed: bool = False,
    threads: int = 1,
    on_progress: OnProgress | None = None,
) -> Iterator[bytes | memoryview]:
    """Give an ARPA file piece by piece; see `write_arpa`. Memory is that of a few pieces.

    Without `<unk>`, no n-gram of the table may have it, but for the word itself.
    """
    if len(vocabulary) != table.vocabulary_size:
        raise ConfigError(
            f"the table is of {table.vocabulary_size} words, but the vocabulary has "
            f"{len(vocabulary)}",
            hint="give the vocabulary that the table was made with",
        )
    check_symbols(vocabulary)
    writer = _Writer(table, vocabulary)

    def make(part: bytes | _Rows) -> bytes | memoryview:
        text = part if isinstance(part, bytes) else writer.lines(part)
        return _pack(text) if packed else text

    done, total = 0, sum(map(len, table.levels)) - (not with_unknown)
    for part, piece in _in_order(_parts(table, with_unknown), make, threads):
        if isinstance(part, _Rows):
            done += part.last - part.first
            if on_progress is not None:
                on_progress(done, total)
        yield piece


class _Rows(NamedTuple):
    """The n-grams of an order from row `first` to row `last - 1`."""

    order: int
    first: int
    last: int


def _parts(table: BackoffTable, with_unknown: bool) -> Iterator[bytes | _Rows]:
    """Give the parts of a file in their order: lines as they are, and n-grams to be written."""
    left_out = 0 if with_unknown else 1  # row 0 of order 1 is <unk>
    sizes = [len(level) for level in table.levels]
    sizes[0] -= left_out
    counts = "".join(f"ngram {n}={size}\n" for n, size in enumerate(sizes, start=1))
    yield f"\\data\\\n{counts}".encode()
    for n, size in enumerate(sizes, start=1):
        yield f"\n\\{n}-grams:\n".encode()
        first_row = left_out if n == 1 else 0
        for first in range(first_row, first_row + size, ROWS_PER_PIECE):
            yield _Rows(n, first, min(first_row + size, first + ROWS_PER_PIECE))
    yield b"\n\\end\\\n"


def _in_order(
    parts: Iterable[bytes | _Rows],
    make: Callable[[bytes | _Rows], bytes | memoryview],
    threads: int,
) -> Iterator[tuple[bytes | _Rows, bytes | memoryview]]:
    """Make pieces of parts on some threads; give both in order, few of them waiting at a time."""
    if threads == 1:
        for part in parts:
            yield part, make(part)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[tuple[bytes | _Rows, Future[bytes | memoryview]]] = deque()
        for part in parts:
            waiting.append((part, pool.submit(make, part)))
            if len(waiting) > 2 * threads:
                first, future = waiting.popleft()
                yield first, future.result()
        for part, future in waiting:
            yield part, future.result()


def _pack(data: bytes | memoryview) -> bytes:
    """Return a gzip member: one after another, they are a gzip file."""
    packer = zlib.compressobj(GZIP_LEVEL, wbits=_GZIP)
    return packer.compress(data) + packer.flush()


class _Writer:
    """Makes the lines of any range of n-grams."""

    def __init__(self, table: BackoffTable, vocabulary: Vocabulary) -> None:
        self._table = table
        words = chain(vocabulary.symbols, [BOS])
        self._starts, self._words = _joined(words, arpa_lines.STEP)

    def lines(self, part: _Rows) -> memoryview:
        """Return some n-grams as lines."""
        order, first, last = part
        levels = self._table.levels
        level = levels[order - 1]
        columns = word_columns(self._table.levels, order, first, last)
        if order == len(levels):
            backoffs, begins = level.backoffs[:0], level.words[:0]
        else:
            backoffs, begins = level.backoffs[first:last], levels[order].begins[first : last + 1]
        state = np.zeros(2, np.int64)
        done = 0
        size = 64 * (last - first)
        pieces: list[npt.NDArray[np.uint8]] = []
        while done < last - first:
            out = np.empty(max(size, int(state[1])), np.uint8)
            done = arpa_lines.put_rows(
                columns,
                done,
                level.log_probs[first:last],
                backoffs,
                begins,
                self._starts,
                self._words,
                out,
                state,
            )
            pieces.append(out[: state[0]])
            size = max(64, size // 4)
        return (pieces[0] if len(pieces) == 1 else np.concatenate(pieces)).data


def word_columns(
    levels: Sequence[TableLevel | CountLevel], order: int, first: int, last: int
) -> Int32:
    """Return the words of the n-grams of an order from row `first` to row `last - 1`.

    They are int32 [order, rows].
    """
    columns = np.empty((order, last - first), np.int32)
    rows = np.arange(first, last, dtype=np.int32)
    columns[order - 1] = levels[order - 1].words[first:last]
    for n in range(order - 1, 0, -1):
        begins = levels[n].begins
        # contexts without rows begin where the next one does: the last that begins here has the row
        context = int(np.searchsorted(begins, rows[0], side="right")) - 1
        arpa_lines.climb(context, begins, rows)
        columns[n - 1] = rows if n == 1 else levels[n - 1].words[rows]
    return columns


def _joined(
    words: Iterable[str], padding: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return where each word starts in their joined bytes, and the bytes, with zeros at the end."""
    encoded = [word.encode("utf-8") for word in words]
    starts = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(word) for word in encoded], out=starts[1:])
    text = np.frombuffer(b"".join(encoded) + bytes(padding), np.uint8).copy()
    return starts, text


OnNote = Callable[[str], None]

BLOCK_SIZE = 1 << 22
MISSING_NATS = -100 * LN_10  # what KenLM gives `<unk>` where the file has none
_MAX_ROWS = 2**31 - 2
_AGAIN = "copy the file again, or have it written again"


class _Lines:
    """The lines of a file, taken one by one or, by compiled code, many at a time."""

    def __init__(
        self, path: str | Path, on_progress: Callable[[int, int | None], None] | None
    ) -> None:
        self._blocks = read_blocks(path, block_size=BLOCK_SIZE, on_progress=on_progress)
        self.path = str(path)
        self.block = b""
        self.data: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self.position = 0
        self.number = 0  # of the last line that was taken, from 1

    def fill(self) -> bool:
        """Make sure that a line is there; False at the end of the file."""
        while self.position == len(self.block):
            block = next(self._blocks, None)
            if block is None:
                return False
            self.block, self.position = block, 0
            self.data = np.frombuffer(block, np.uint8)
        return True

    def next(self) -> str | None:
        """Take a line, without its end; None at the end of the file."""
        if not self.fill():
            return None
        # every block ends with a line end, so there is one
        end = self.block.index(b"\n", self.position)
        line = self.block[self.position : end]
        self.position = end + 1
        self.number += 1
        return line.decode("utf-8").strip(" \t\r")

    def skip_blank(self) -> str:
        """Take the first line that is not blank, "" at the end of the file."""
        while (line := self.next()) == "":
            pass
        return line or ""

    def error(self, message: str, hint: str = _AGAIN, line: int | None = None) -> DataError:
        """Return an error about a line: that taken last, if none is given."""
        return DataError(message, hint=hint, path=self.path, line=line or self.number)


class _Reader:
    """Reads one file."""

    def __init__(self, lines: _Lines, on_note: OnNote) -> None:
        self._lines = lines
        self._note = on_note
        self._sizes: list[int] = []
        self._levels: list[TableLevel] = []
        self._symbols: list[str] = []
        self._words = StringTable()
        self._num_odd = 0

    def read(self) -> tuple[BackoffTable, Vocabulary]:
        """Read all of it."""
        ahead = self._read_header()
        for order in range(1, len(self._sizes) + 1):
            self._expect(ahead, f"\\{order}-grams:")
            section = _Section(self._lines, order, self._sizes[order - 1])
            self._levels.append(self._unigrams(section) if order == 1 else self._level(section))
            ahead = self._lines.skip_blank()
        self._expect(ahead, "\\end\\")
        self._check_rest()
        if self._num_odd:
            self._note(
                f"{self._num_odd:,} n-grams with {BOS} after or {EOS} before another word left out"
            )
        while len(self._levels) > 1 and not len(self._levels[-1]):
            self._note(f"order {len(self._levels)} holds no n-grams and was left out")
            self._levels.pop()
        self._levels[-1] = replace(self._levels[-1], backoffs=np.empty(0, np.float32))
        return BackoffTable(tuple(self._levels), len(self._symbols)), Vocabulary(self._symbols)

    def _read_header(self) -> str:
        """Read the numbers of n-grams and return the line after them."""
        line = self._lines.next()
        while line is not None and line != "\\data\\":
            if line.lower() in ("iarpa", "qarpa"):
                raise self._lines.error(
                    f"{line} is IRSTLM's own format",
                    "turn it into ARPA first: compile-lm FILE --text=yes OUTPUT",
                )
            line = self._lines.next()
        if line is None:
            raise DataError(
                "is no ARPA file: it has no line \\data\\",
                hint="name a file that KenLM, SRILM, IRSTLM or `seqtool ngram export` wrote",
                path=self._lines.path,
            )
        size_line = re.compile(r"ngram\s+(\d{1,18})\s*=\s*(\d{1,18})")
        while found := size_line.fullmatch(ahead := self._lines.skip_blank()):
            order, size = int(found[1]), int(found[2])
            if order != len(self._sizes) + 1:
                raise self._lines.error(
                    f"the number of {order}-grams stands where that of "
                    f"{len(self._sizes) + 1}-grams was expected"
                )
            if size > _MAX_ROWS:
                raise self._lines.error(
                    f"{size:,} n-grams are more than seqtool holds ({_MAX_ROWS:,} of each order)",
                    "prune the model",
                )
            self._sizes.append(size)
        if not self._sizes:
            raise self._lines.error(
                f"{_shown(ahead)} stands where `ngram 1=` and a number was expected"
            )
        return ahead

    def _expect(self, line: str, wanted: str) -> None:
        if line == wanted:
            return
        if not line:
            raise self._lines.error(f"the file is cut off: it ends before {wanted}")
        raise self._lines.error(f"{_shown(line)} stands where {wanted} was expected")

    def _check_rest(self) -> None:
        """Read on to the end of the file, which may be damaged there; pass over what it holds."""
        while self._lines.fill():
            self._lines.position = len(self._lines.block)

    def _unigrams(self, section: _Section) -> TableLevel:
        """Build the vocabulary and its hash table, and return order 1."""
        pieces = list(section.pieces(self._words))
        words = b"".join(piece.text for piece in pieces).decode("utf-8").split("\n")[:-1]
        # a word that comes twice keeps its last row, which is how its first one is found
        place = {word: row for row, word in enumerate(words)}
        if len(place) < len(words):
            row = next(row for row, word in enumerate(words) if place[word] != row)
            again = words.index(words[row], row + 1)
            raise self._lines.error(
                f"the word {words[row]!r} is there a second time", line=section.line_of(again)
            )
        if not words:
            raise self._lines.error("the file has no words", "name one that was written whole")
        special = [self._written(name, place) for name in (UNK, EOS, BOS)]
        others = [word for word in words if word not in special]
        self._symbols = [UNK, EOS, *others]
        names = [*special[:2], *others, special[2]]
        self._words = StringTable(names)
        rows = np.array([place.get(name, -1) for name in names], np.int64)
        log_probs = np.where(
            rows < 0, np.float32(MISSING_NATS), _join(p.log_probs for p in pieces)[rows]
        )
        log_probs[-1] = BOS_NATS
        return TableLevel(
            np.arange(len(names), dtype=np.int32),
            np.array([0, len(names)], np.int32),
            log_probs,
            np.where(rows < 0, np.float32(0), _join(p.backoffs for p in pieces)[rows]),
        )

    def _written(self, symbol: str, place: Mapping[str, int]) -> str:
        """Return how the file writes a special symbol, in capitals perhaps."""
        if symbol in place:
            return symbol
        if (other := symbol.upper()) in place:
            self._note(f"{other} is read as {symbol}")
            return other
        if symbol != UNK:
            what = f"the file has no {symbol} among its words"
            hint = f"have it written with {BOS} and {EOS} where sentences begin and end"
            raise DataError(what, hint=hint, path=self._lines.path)
        self._note(f"the file has no {symbol}: its log10 probability is set to -100")
        return symbol

    def _level(self, section: _Section) -> TableLevel:
        """Find the context of every n-gram and sort them into trie order."""
        num_contexts = len(self._levels[-1])
        none = np.empty(0, np.int32), np.empty(0, np.int32)
        found: list[_Found] = [(*none, np.empty(0, np.float32), np.empty(0, np.float32))]
        first = 0
        for piece in section.pieces(self._words):
            contexts = self._contexts(section, first, piece.columns)
            found.append((contexts, piece.columns[-1].copy(), piece.log_probs, piece.backoffs))
            first += len(contexts)
        level, num_odd, twice = _sorted_level(found, num_contexts, len(self._symbols))
        if twice is not None:
            raise self._lines.error(
                "the same n-gram is there a second time", line=section.line_of(twice)
            )
        self._num_odd += num_odd
        return level

    def _contexts(self, section: _Section, first: int, columns: Int32) -> Int32:
        """Return the row of each n-gram's context, one past the last for what no sentence holds."""
        order = columns.shape[0]
        rows = _context_rows(self._levels, columns, len(self._symbols))
        missing = np.flatnonzero(rows < 0)
        if len(missing):
            i = int(missing[0])
            names = [*self._symbols, BOS]
            context = " ".join(names[word] for word in columns[:-1, i])
            raise self._lines.error(
                f"this n-gram begins with {context!r}, which is none of the {order - 1}-grams",
                "have the model written with the beginnings of all its n-grams",
                line=section.line_of(first + i),
            )
        return rows


@dataclass(frozen=True)
class _Piece:
    """R n-grams of one order in the order of the file.

    Attributes:
        columns: int32 [order, R], their words; not filled for unigrams.
        text: for unigrams, their words, an LF after each.
        log_probs: [R] nats.
        backoffs: [R] nats.
    """

    columns: Int32
    text: bytes
    log_probs: Float32
    backoffs: Float32


class _Section:
    """The n-grams of one order in the order of the file."""

    def __init__(self, lines: _Lines, order: int, size: int) -> None:
        self._lines = lines
        self._order = order
        self._size = size
        self._first_line = lines.number + 1
        self._blanks: list[int] = []  # the number of n-grams before each blank line

    def line_of(self, row: int) -> int:
        """Return the line that an n-gram stands in."""
        return self._first_line + row + bisect_right(self._blanks, row)

    def pieces(self, words: StringTable) -> Iterator[_Piece]:
        """Read to the end of the section.

        Raises:
            DataError: a line that is no n-gram, or another number of them than was said.
        """
        lines = self._lines
        num_rows, status = 0, arpa_lines.DONE
        while status == arpa_lines.DONE and lines.fill():
            # the shortest line is one character a column, each with what parts it from the next
            most = (len(lines.block) - lines.position) // (2 * self._order + 2) + 1
            is_first = self._order == 1
            columns = np.empty((self._order, 0 if is_first else most), np.int32)
            text = np.empty(len(lines.block) if is_first else 0, np.uint8)
            log_probs, backoffs = np.empty(most, np.float32), np.empty(most, np.float32)
            state = np.array([lines.position, 0, 0], np.int64)
            status = arpa_lines.BLANK
            while status == arpa_lines.BLANK:
                status = arpa_lines.take_rows(
                    lines.data, state, words.arrays, text, columns, log_probs, backoffs
                )
                if status == arpa_lines.BLANK:
                    self._blanks.append(num_rows + int(state[1]))
            lines.position, size, used = state.tolist()
            num_rows += size
            lines.number = self._first_line + num_rows + len(self._blanks) - 1
            if num_rows > self._size:
                raise lines.error(
                    f"more {self._order}-grams than the {self._size:,} that \\data\\ gives",
                    line=self.line_of(self._size),
                )
            if status == arpa_lines.BAD:
                self._refuse_line(words)
            yield _Piece(
                columns[:, :size],
                text[:used].tobytes(),
                # copies: views would keep the room of the whole block
                log_probs[:size].copy(),
                backoffs[:size].copy(),
            )
        if num_rows < self._size:
            what = f"{num_rows:,} {self._order}-grams instead of the {self._size:,} of \\data\\"
            if not lines.fill():
                raise lines.error(f"the file is cut off: it ends after {what}")
            raise lines.error(what, line=lines.number + 1)

    def _refuse_line(self, words: StringTable) -> NoReturn:
        """Say what is wrong with the next line."""
        line = self._lines.next() or ""
        number, *fields = re.split(r"[ \t\r]+", line)
        order = self._order
        if (value := _to_number(number)) is None:
            raise self._lines.error(f"{_shown(number)} stands where a log-probability was expected")
        if math.isnan(value):
            raise self._lines.error("the log-probability is not a number (NaN)")
        if value > 0:
            raise self._lines.error(f"the log-probability {number} is positive")
        if not order <= len(fields) <= order + 1:
            raise self._lines.error(
                f"{counted(len(fields) + 1, 'column')}, but an n-gram of order {order} has "
                f"{order + 1}, or {order + 2} with a backoff"
            )
        known = {words.text(number) for number in range(len(words))}
        for word in fields[:order]:
            if order > 1 and word not in known:
                raise self._lines.error(f"the word {word!r} is none of the unigrams")
        raise self._lines.error(f"{_shown(fields[-1])} stands where a backoff was expected")


def _context_rows(levels: Sequence[TableLevel], columns: Int32, vocabulary_size: int) -> Int32:
    """Return the row of the context of each of R n-grams, -1 where there is none.

    Args:
        levels: the orders below.
        columns: int32 [order, R], the words.
        vocabulary_size: V.

    Returns:
        int32 [R]; one past the last row for n-grams that no sentence holds.
    """
    order = columns.shape[0]
    rows: Int32 = columns[0].copy()
    for n in range(1, order - 1):
        arpa_lines.descend(levels[n].begins, levels[n].words, columns[n], rows)
    # after the search, as their contexts may be missing, and that is no error in them
    odd = (columns[1:] == vocabulary_size).any(axis=0) | (columns[:-1] == EOS_ID).any(axis=0)
    rows[odd] = len(levels[order - 2])
    return rows


# context rows, last words, log-probabilities and backoffs of some n-grams
_Found = tuple[Int32, Int32, Float32, Float32]


def _sorted_level(
    found: Sequence[_Found], num_contexts: int, vocabulary_size: int
) -> tuple[TableLevel, int, int | None]:
    """Return the n-grams of an order in trie order.

    Args:
        found: the n-grams, in any order; at least one entry.
        num_contexts: rows of the order below.
        vocabulary_size: V.

    Returns:
        The level; how many n-grams were left out, as no sentence holds them; and where one stands
        that is there for a second time.
    """
    contexts, words, log_probs, backoffs = (
        np.concatenate(part) for part in zip(*found, strict=True)
    )
    keys = contexts.astype(np.int64) * (vocabulary_size + 1) + words
    again = None
    # files that seqtool wrote are in this order already
    if not np.all(keys[1:] > keys[:-1]):
        # stable: of two equal n-grams the later one is told as the second
        order = np.argsort(keys, kind="stable")
        keys, contexts, words = keys[order], contexts[order], words[order]
        log_probs, backoffs = log_probs[order], backoffs[order]
        twice = np.flatnonzero((keys[1:] == keys[:-1]) & (contexts[1:] < num_contexts))
        again = int(order[twice + 1].min()) if len(twice) else None
    # what no sentence holds was given a context that is none, so it is last
    kept = int(np.searchsorted(contexts, num_contexts))
    begins = np.zeros(num_contexts + 1, np.int32)
    np.cumsum(np.bincount(contexts[:kept], minlength=num_contexts), out=begins[1:])
    level = TableLevel(words[:kept], begins, log_probs[:kept], backoffs[:kept])
    return level, len(contexts) - kept, again


def _to_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _shown(text: str) -> str:
    """Return a text of a damaged file as a message can hold it."""
    shown = repr(text if len(text) <= 40 else f"{text[:37]}...")
    return shown.replace("\\\\", "\\")  # the backslashes of sections


def _join(arrays: Iterable[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return np.concatenate([np.empty(0, np.float32), *arrays])
