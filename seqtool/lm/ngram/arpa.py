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

Words are separated by space, tab, LF and CR only.
"""

from __future__ import annotations

import re
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from seqtool.core.errors import ConfigError, DataError
from seqtool.core.reading import read_blocks, unpacked_name
from seqtool.core.storage import atomic_file
from seqtool.core.vocabulary import BOS, Vocabulary
from seqtool.lm.ngram.table import BackoffTable, Int32

if TYPE_CHECKING:
    from seqtool.lm.ngram.arpa_reading import OnNote

OnProgress = Callable[[int, "int | None"], None]

ROWS_PER_PIECE = 1 << 16  # some 3 MB of text
GZIP_LEVEL = 4  # 6 saves 4% and takes twice the time
_BLANK = re.compile(r"[ \t\r\n]")
_GZIP = 31  # zlib's name for a gzip member


def is_arpa(path: str | Path) -> bool:
    r"""Return whether a file is ARPA by its name, or by a line `\data\` near its beginning."""
    path = Path(path)
    if not path.is_file():
        return False
    if unpacked_name(path).endswith(".arpa"):
        return True
    try:
        start = next(read_blocks(path, block_size=1 << 16), b"")
    except DataError:  # no text
        return False
    return re.search(rb"^[ \t]*\\data\\[ \t\r]*$", start, re.MULTILINE) is not None


def read_arpa(
    path: str | Path,
    *,
    on_progress: OnProgress | None = None,
    on_note: OnNote | None = None,
) -> tuple[BackoffTable, Vocabulary]:
    r"""Read an ARPA file of KenLM, SRILM, IRSTLM or any other tool, packed (.gz, .zst) or not.

    N-grams may come in any order within their section, fields may be apart by spaces or tabs, and
    text before `\data\` is passed over. -99 is no probability at all, as SRILM has it. `<UNK>` is
    `<unk>` where that is not there. What a file does not give has a log10 probability of -100, as
    KenLM does it: `<unk>` of a closed vocabulary, `</s>`. N-grams with `<s>` after, or `</s>`
    before another word are left out, since no sentence holds them; empty highest orders too.

    Args:
        path: the file, or `-` for stdin.
        on_progress: called with (bytes read, their total or None).
        on_note: called with a line about each of these changes.

    Raises:
        ModelError: it is no such file, cut off or damaged, with the line.
    """
    from seqtool.lm.ngram import arpa_reading

    return arpa_reading.read(path, on_progress, on_note or (lambda note: None))


def write_arpa(
    table: BackoffTable,
    vocabulary: Vocabulary,
    path: str | Path,
    *,
    threads: int = 1,
    on_progress: OnProgress | None = None,
) -> None:
    """Write a table as an ARPA file, packed if its name ends in .gz; it is there whole or not.

    Log-probabilities have seven decimals, so they are off by 5e-8 at most. A backoff of 0 is left
    out where no longer n-gram begins so, which every reader takes for 0.

    Args:
        table: what to write.
        vocabulary: its words.
        path: the file to write or replace.
        threads: how many pieces are made, and packed, at a time.
        on_progress: called with (n-grams written, their number).

    Raises:
        ConfigError: the vocabulary is not the table's, or has a symbol that is or holds a blank.
        OSError: it cannot be written.
    """
    packed = Path(path).suffix.lower() == ".gz"
    with atomic_file(path) as stream:
        for piece in arpa_pieces(
            table, vocabulary, packed=packed, threads=threads, on_progress=on_progress
        ):
            stream.write(piece)


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
    packed: bool = False,
    threads: int = 1,
    on_progress: OnProgress | None = None,
) -> Iterator[bytes | memoryview]:
    """Give an ARPA file piece by piece; see `write_arpa`. Memory is that of a few pieces."""
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

    done, total = 0, sum(map(len, table.levels))
    for part, piece in _in_order(_parts(table), make, threads):
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


def _parts(table: BackoffTable) -> Iterator[bytes | _Rows]:
    """Give the parts of a file in their order: lines as they are, and n-grams to be written."""
    sizes = [len(level) for level in table.levels]
    counts = "".join(f"ngram {n}={size}\n" for n, size in enumerate(sizes, start=1))
    yield f"\\data\\\n{counts}".encode()
    for n, size in enumerate(sizes, start=1):
        yield f"\n\\{n}-grams:\n".encode()
        for first in range(0, size, ROWS_PER_PIECE):
            yield _Rows(n, first, min(size, first + ROWS_PER_PIECE))
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
        from seqtool.lm.ngram import arpa_lines

        self._lines = arpa_lines
        self._table = table
        words = chain(vocabulary.symbols, [BOS])
        self._starts, self._words = _joined(words, arpa_lines.STEP)
        self._unigrams: Int32 = np.arange(len(vocabulary) + 1, dtype=np.int32)

    def lines(self, part: _Rows) -> memoryview:
        """Return some n-grams as lines."""
        order, first, last = part
        levels = self._table.levels
        level = levels[order - 1]
        columns = np.empty((order, last - first), np.int32)
        rows = np.arange(first, last, dtype=np.int32)
        columns[order - 1] = level.words[first:last]
        for n in range(order - 1, 0, -1):
            begins = levels[n].begins
            context = int(np.searchsorted(begins, rows[0], side="right")) - 1
            self._lines.climb(context, begins, rows)
            columns[n - 1] = self._unigrams[rows] if n == 1 else levels[n - 1].words[rows]
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
            done = self._lines.put_rows(
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


def _joined(
    words: Iterable[str], padding: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return where each word starts in their joined bytes, and the bytes, with zeros at the end."""
    encoded = [word.encode("utf-8") for word in words]
    starts = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(word) for word in encoded], out=starts[1:])
    text = np.frombuffer(b"".join(encoded) + bytes(padding), np.uint8).copy()
    return starts, text
