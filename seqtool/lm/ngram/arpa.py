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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

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
from seqtool.lm.ngram.backoff import contexts_of, select
from seqtool.lm.ngram.table import BOS_NATS, BackoffTable, Float32, Int32, TableLevel

if TYPE_CHECKING:
    from seqtool.lm.ngram.counts import CountLevel

OnProgress = Callable[[int, "int | None"], None]
OnNote = Callable[[str], None]

STDOUT = "-"
ROWS_PER_PIECE = 1 << 16  # some 3 MB of text
BLOCK_SIZE = 1 << 22
MISSING_NATS = -100 * LN_10  # what KenLM gives `<unk>` where the file has none
_GZIP, _GZIP_LEVEL = (
    31,
    4,
)  # zlib's name for a gzip member; level 6 saves 4% and takes twice the time
_BINARY = b"mmap lm http://kheafield.com/code"  # how a file in KenLM's own format begins
_BINARY_NAMES = (".bin", ".binary", ".klm", ".mmap")  # as people call such files
_OTHER_PACKINGS = (".zst", ".bz2", ".xz", ".zip")
_MAX_ROWS = 2**31 - 2
_AGAIN = "copy the file again, or have it written again"


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
    with path.open("rb") as file:
        if file.read(len(_BINARY)) == _BINARY:
            what = "is in KenLM's binary format, which is not read"
            hint = "name the ARPA file that build_binary made it of"
            raise ModelError(what, hint=hint, path=path)


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
        return _Reader(path, on_progress, on_note or (lambda note: None)).read()
    except DataError as error:
        raise ModelError(
            error.message, hint=error.hint, path=error.path, line=error.line
        ) from error


class _Piece(NamedTuple):
    """R n-grams of one order in the order of the file.

    Attributes:
        columns: int32 [order, R], their words; not filled for unigrams.
        text: for unigrams, their words, an LF after each.
        log_probs: float32 [R], nats.
        backoffs: float32 [R], nats.
    """

    columns: Int32
    text: bytes
    log_probs: Float32
    backoffs: Float32


class _Reader:
    """Reads one file: single lines as text, and those of n-grams in compiled code."""

    def __init__(self, path: str | Path, on_progress: OnProgress | None, on_note: OnNote) -> None:
        self._blocks = read_blocks(path, block_size=BLOCK_SIZE, on_progress=on_progress)
        self._path, self._note = str(path), on_note
        self._block, self._position = b"", 0
        self._line = 0  # the number of the last line that was taken, from 1
        self._first_line = 0  # of the section
        self._blanks: list[int] = []  # the number of n-grams before each blank line of it
        self._levels: list[TableLevel] = []
        self._symbols: list[str] = []
        self._words = StringTable()
        self._num_odd = 0

    def read(self) -> tuple[BackoffTable, Vocabulary]:
        """Read all of it."""
        sizes, ahead = self._read_header()
        for order, size in enumerate(sizes, start=1):
            self._expect(ahead, f"\\{order}-grams:")
            pieces = self._pieces(order, size)
            self._levels.append(self._unigrams(pieces) if order == 1 else self._level(pieces))
            ahead = self._skip_blank()
        self._expect(ahead, "\\end\\")
        while self._fill():  # to the end of the file, which may be damaged there
            self._position = len(self._block)
        if self._num_odd:
            self._note(
                f"{self._num_odd:,} n-grams with {BOS} after or {EOS} before another word left out"
            )
        while len(self._levels) > 1 and not len(self._levels[-1]):
            self._note(f"order {len(self._levels)} holds no n-grams and was left out")
            self._levels.pop()
        self._levels[-1] = replace(self._levels[-1], backoffs=np.empty(0, np.float32))
        return BackoffTable(tuple(self._levels), len(self._symbols)), Vocabulary(self._symbols)

    def _fill(self) -> bool:
        """Make sure that a line is there; False at the end of the file."""
        while self._position == len(self._block):
            block = next(self._blocks, None)
            if block is None:
                return False
            self._block, self._position = block, 0
        return True

    def _next(self) -> str | None:
        """Take a line, without its end; None at the end of the file."""
        if not self._fill():
            return None
        # every block ends with a line end, so there is one
        end = self._block.index(b"\n", self._position)
        line = self._block[self._position : end]
        self._position = end + 1
        self._line += 1
        return line.decode("utf-8").strip(" \t\r")

    def _skip_blank(self) -> str:
        """Take the first line that is not blank, "" at the end of the file."""
        while (line := self._next()) == "":
            pass
        return line or ""

    def _error(self, message: str, hint: str = _AGAIN, line: int | None = None) -> DataError:
        """Return an error about a line: that taken last, if none is given."""
        return DataError(message, hint=hint, path=self._path, line=line or self._line)

    def _expect(self, line: str, wanted: str) -> None:
        if line and line != wanted:
            raise self._error(f"{_shown(line)} stands where {wanted} was expected")
        if not line:
            raise self._error(f"the file is cut off: it ends before {wanted}")

    def _line_of(self, row: int) -> int:
        """Return the line that an n-gram of the section stands in."""
        return self._first_line + row + bisect_right(self._blanks, row)

    def _read_header(self) -> tuple[list[int], str]:
        """Return the numbers of n-grams, and the line after them."""
        while (line := self._next()) != "\\data\\":
            if line is None:
                raise DataError(
                    "is no ARPA file: it has no line \\data\\",
                    hint="name a file that KenLM, SRILM, IRSTLM or `seqtool ngram export` wrote",
                    path=self._path,
                )
            if line.lower() in ("iarpa", "qarpa"):
                hint = "turn it into ARPA first: compile-lm FILE --text=yes OUTPUT"
                raise self._error(f"{line} is IRSTLM's own format", hint)
        sizes: list[int] = []
        size_line = re.compile(r"ngram\s+(\d{1,18})\s*=\s*(\d{1,18})")
        while found := size_line.fullmatch(ahead := self._skip_blank()):
            order, size = int(found[1]), int(found[2])
            if order != len(sizes) + 1:
                raise self._error(
                    f"the number of {order}-grams stands where that of "
                    f"{len(sizes) + 1}-grams was expected"
                )
            if size > _MAX_ROWS:
                what = f"{size:,} n-grams are more than seqtool holds, {_MAX_ROWS:,} of each order"
                raise self._error(what, "prune the model")
            sizes.append(size)
        if not sizes:
            raise self._error(f"{_shown(ahead)} stands where `ngram 1=` and a number was expected")
        return sizes, ahead

    def _pieces(self, order: int, size: int) -> Iterator[_Piece]:
        """Read a section to its end.

        Raises:
            DataError: a line that is no n-gram, or another number of them than was said.
        """
        self._first_line, self._blanks = self._line + 1, []
        num_rows, status = 0, arpa_lines.DONE
        while status == arpa_lines.DONE and self._fill():
            # the shortest line is one character a column, each with what parts it from the next
            room = len(self._block)
            most = (room - self._position) // (2 * order + 2) + 1
            columns = np.empty((order, most if order > 1 else 0), np.int32)
            text = np.empty(room if order == 1 else 0, np.uint8)
            log_probs, backoffs = np.empty(most, np.float32), np.empty(most, np.float32)
            state = np.array([self._position, 0, 0], np.int64)
            data = np.frombuffer(self._block, np.uint8)
            status = arpa_lines.BLANK
            while status == arpa_lines.BLANK:
                status = arpa_lines.take_rows(
                    data, state, self._words.arrays, text, columns, log_probs, backoffs
                )
                if status == arpa_lines.BLANK:
                    self._blanks.append(num_rows + int(state[1]))
            self._position, num, used = state.tolist()
            num_rows += num
            self._line = self._first_line + num_rows + len(self._blanks) - 1
            if num_rows > size:
                what = f"more {order}-grams than the {size:,} that \\data\\ gives"
                raise self._error(what, line=self._line_of(size))
            if status == arpa_lines.BAD:
                self._refuse_line(order)
            # copies: views would keep the room of the whole block
            yield _Piece(
                columns[:, :num],
                text[:used].tobytes(),
                log_probs[:num].copy(),
                backoffs[:num].copy(),
            )
        if num_rows < size:
            what = f"{num_rows:,} {order}-grams instead of the {size:,} of \\data\\"
            if not self._fill():
                raise self._error(f"the file is cut off: it ends after {what}")
            raise self._error(what, line=self._line + 1)

    def _refuse_line(self, order: int) -> NoReturn:
        """Say what is wrong with the next line."""
        number, *fields = re.split(r"[ \t\r]+", self._next() or "")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if value > 0:
            raise self._error(f"the log-probability {number} is positive")
        if math.isnan(value):
            raise self._error(f"{_shown(number)} stands where a log-probability was expected")
        if not order <= len(fields) <= order + 1:
            raise self._error(
                f"{counted(len(fields) + 1, 'column')}, but an n-gram of order {order} has "
                f"{order + 1}, or {order + 2} with a backoff"
            )
        known = {self._words.text(number) for number in range(len(self._words))}
        for word in fields[:order]:
            if order > 1 and word not in known:
                raise self._error(f"the word {word!r} is none of the unigrams")
        raise self._error(f"{_shown(fields[-1])} stands where a backoff was expected")

    def _unigrams(self, section: Iterator[_Piece]) -> TableLevel:
        """Build the vocabulary and its hash table, and return order 1."""
        pieces = list(section)
        words = b"".join(piece.text for piece in pieces).decode("utf-8").split("\n")[:-1]
        # a word that comes twice keeps its last row, which is how its first one is found
        place = {word: row for row, word in enumerate(words)}
        if len(place) < len(words):
            row = next(row for row, word in enumerate(words) if place[word] != row)
            again = self._line_of(words.index(words[row], row + 1))
            raise self._error(f"the word {words[row]!r} is there a second time", line=again)
        if not words:
            raise self._error("the file has no words", "name one that was written whole")
        special = [self._written(name, place) for name in (UNK, EOS, BOS)]
        others = [word for word in words if word not in special]
        self._symbols = [UNK, EOS, *others]
        names = [*special[:2], *others, special[2]]
        self._words = StringTable(names)
        # the last row stands for a word that is not there
        rows = [place.get(name, -1) for name in names]
        log_probs, backoffs = (
            np.append(np.concatenate(values), np.float32(missing))[rows]
            for values, missing in (
                ([piece.log_probs for piece in pieces], MISSING_NATS),
                ([piece.backoffs for piece in pieces], 0),
            )
        )
        log_probs[-1] = BOS_NATS
        words_V = np.arange(len(names), dtype=np.int32)
        return TableLevel(words_V, np.array([0, len(names)], np.int32), log_probs, backoffs)

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
            raise DataError(what, hint=hint, path=self._path)
        self._note(f"the file has no {symbol}: its log10 probability is set to -100")
        return symbol

    def _level(self, section: Iterator[_Piece]) -> TableLevel:
        """Find the context of every n-gram, and return them in trie order."""
        num_contexts, size = len(self._levels[-1]), len(self._symbols)
        none = np.empty(0, np.int32), np.empty(0, np.int32)
        found = [(*none, np.empty(0, np.float32), np.empty(0, np.float32))]
        first = 0
        for piece in section:
            contexts = self._contexts(piece.columns, first)
            # a copy, as the view would keep all columns
            found.append((contexts, piece.columns[-1].copy(), piece.log_probs, piece.backoffs))
            first += len(contexts)
        contexts, words, log_probs, backoffs = map(np.concatenate, zip(*found, strict=True))
        keys = contexts.astype(np.int64) * (size + 1) + words
        # files that seqtool wrote are in this order already
        if not np.all(keys[1:] > keys[:-1]):
            # stable: of two equal n-grams the later one is told as the second
            order = np.argsort(keys, kind="stable")
            keys, contexts, words = keys[order], contexts[order], words[order]
            log_probs, backoffs = log_probs[order], backoffs[order]
            twice = np.flatnonzero((keys[1:] == keys[:-1]) & (contexts[1:] < num_contexts))
            if len(twice):
                again = self._line_of(int(order[twice + 1].min()))
                raise self._error("the same n-gram is there a second time", line=again)
        # what no sentence holds was given a context that is none, so it is last
        kept = int(np.searchsorted(contexts, num_contexts))
        self._num_odd += len(contexts) - kept
        begins = np.zeros(num_contexts + 1, np.int32)
        np.cumsum(np.bincount(contexts[:kept], minlength=num_contexts), out=begins[1:])
        return TableLevel(words[:kept], begins, log_probs[:kept], backoffs[:kept])

    def _contexts(self, columns: Int32, first: int) -> Int32:
        """Return the row of the context of each of R n-grams.

        It is one past the last for n-grams that no sentence holds.

        Args:
            columns: int32 [order, R], the words.
            first: the place of the first n-gram in its section.
        """
        order, size = len(columns), len(self._symbols)
        rows: Int32 = columns[0].copy()
        for n in range(1, order - 1):
            level = self._levels[n]
            arpa_lines.descend(level.begins, level.words, columns[n], rows)
        # after the search, as their contexts may be missing, and that is no error in them
        is_odd = (columns[1:] == size).any(axis=0) | (columns[:-1] == EOS_ID).any(axis=0)
        rows[is_odd] = len(self._levels[-1])
        missing = np.flatnonzero(rows < 0)
        if len(missing):
            names, i = [*self._symbols, BOS], int(missing[0])
            context = " ".join(names[word] for word in columns[:-1, i])
            raise self._error(
                f"this n-gram begins with {context!r}, which is none of the {order - 1}-grams",
                "have the model written with the beginnings of all its n-grams",
                line=self._line_of(first + i),
            )
        return rows


def _shown(text: str) -> str:
    """Return a text of a damaged file as a message can hold it."""
    shown = repr(text if len(text) <= 40 else f"{text[:37]}...")
    return shown.replace("\\\\", "\\")  # the backslashes of sections


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
    if not with_unknown:
        table = without_unknown(table)
    pieces = arpa_pieces(
        table,
        vocabulary,
        with_unknown=with_unknown,
        packed=Path(path).suffix.lower() == ".gz",
        threads=threads,
        on_progress=on_progress,
    )
    if str(path) == STDOUT:
        shown = stream()
        shown.buffer.writelines(pieces)
        shown.flush()
    else:
        with atomic_file(path) as target:
            target.writelines(pieces)
    return sum(map(len, table.levels)) - (not with_unknown)


def check_target(path: str | Path | None, inputs: Iterable[str | Path] = ()) -> None:
    """Refuse, before the work begins, to write where there is no directory, or over `inputs`.

    Raises:
        OutputError: it names the file.
    """
    if path is None:
        return
    if str(path) != STDOUT and not Path(path).parent.is_dir():
        raise OutputError("the directory to write to is not there", hint="make it first", path=path)
    if Path(path).is_dir():
        raise OutputError("is a directory", hint="name a file in it", path=path)
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


def check_symbols(vocabulary: Vocabulary) -> None:
    """Refuse a vocabulary that an ARPA file cannot hold.

    Raises:
        ConfigError: a symbol is or holds a blank.
    """
    for symbol in vocabulary.symbols:
        if re.search(r"[ \t\r\n]", symbol):
            raise ConfigError(
                f"the symbol {symbol!r} holds a blank, which ends a word in an ARPA file",
                hint="use a model of words, or one of bpe or unigram units",
            )


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


class _Rows(NamedTuple):
    """The n-grams of an order from row `first` to row `last - 1`."""

    order: int
    first: int
    last: int


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
    encoded = [word.encode("utf-8") for word in chain(vocabulary.symbols, [BOS])]
    starts = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(word) for word in encoded], out=starts[1:])
    words = np.frombuffer(b"".join(encoded) + bytes(arpa_lines.STEP), np.uint8).copy()

    def make(part: bytes | _Rows) -> bytes | memoryview:
        text = part if isinstance(part, bytes) else _lines(table, part, starts, words)
        if not packed:
            return text
        packer = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP)
        return packer.compress(text) + packer.flush()  # one after another they are a gzip file

    done, total = 0, sum(map(len, table.levels)) - (not with_unknown)
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[tuple[bytes | _Rows, Callable[[], bytes | memoryview]]] = deque()
        parts = _parts(table, with_unknown)
        while True:
            while len(waiting) <= 2 * threads and (part := next(parts, None)) is not None:
                # one thread makes each when it is asked for, as waking another takes time
                piece = pool.submit(make, part).result if threads > 1 else partial(make, part)
                waiting.append((part, piece))
            if not waiting:
                return
            part, get = waiting.popleft()
            if isinstance(part, _Rows):
                done += part.last - part.first
                if on_progress is not None:
                    on_progress(done, total)
            yield get()


def _parts(table: BackoffTable, with_unknown: bool) -> Iterator[bytes | _Rows]:
    """Give the parts of a file in their order: lines as they are, and n-grams to be written."""
    firsts = [int(not with_unknown), *[0] * (table.order - 1)]  # row 0 of order 1 is <unk>
    sizes = [len(level) - first for level, first in zip(table.levels, firsts, strict=True)]
    counts = "".join(f"ngram {n}={size}\n" for n, size in enumerate(sizes, start=1))
    yield f"\\data\\\n{counts}".encode()
    for n, (level, begin) in enumerate(zip(table.levels, firsts, strict=True), start=1):
        yield f"\n\\{n}-grams:\n".encode()
        for first in range(begin, len(level), ROWS_PER_PIECE):
            yield _Rows(n, first, min(len(level), first + ROWS_PER_PIECE))
    yield b"\n\\end\\\n"


def _lines(
    table: BackoffTable, part: _Rows, starts: npt.NDArray[np.int64], words: npt.NDArray[np.uint8]
) -> memoryview:
    """Return some n-grams as lines.

    Args:
        table: their table.
        part: which.
        starts: int64 [V + 2], where each word starts in `words`.
        words: the bytes of all words, and zeros at the end.
    """
    order, first, last = part
    level = table.levels[order - 1]
    columns = word_columns(table.levels, order, first, last)
    backoffs, begins = level.backoffs[:0], level.words[:0]
    if order < table.order:
        backoffs = level.backoffs[first:last]
        begins = table.levels[order].begins[first : last + 1]
    log_probs = level.log_probs[first:last]
    state = np.zeros(2, np.int64)
    done, size = 0, 64 * (last - first)
    pieces: list[npt.NDArray[np.uint8]] = []
    while done < last - first:
        out = np.empty(max(size, int(state[1])), np.uint8)
        done = arpa_lines.put_rows(
            columns, done, log_probs, backoffs, begins, starts, words, out, state
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
