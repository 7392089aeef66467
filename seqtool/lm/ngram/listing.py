"""The n-grams of one order in a text, each with how often it occurs, in memory that is bounded.

The text is counted as it is read. What is listed is sorted when all of it was read: only then the
words' own frequencies are known, by which equal n-grams are sorted.

    text -> ids -> tally -> chosen -> sorted -> listed

Memory does not grow with the text, but with its different words, whose spellings stay in memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from seqtool.core.arrays import Ids, Ints, Longs
from seqtool.core.errors import ConfigError, DataError, did_you_mean
from seqtool.core.reading import is_corpus
from seqtool.core.runtime import check_memory, memory_available, memory_limit
from seqtool.core.vocabulary import BOS, EOS, NUM_SPECIALS, Vocabulary, rank_symbols
from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.data import WordReader, given_splits, open_corpus, read_numbered
from seqtool.lm.ngram.engine.database import check_folder
from seqtool.lm.ngram.records import LEAST, Packing, Sorter, Workspace
from seqtool.lm.ngram.tally import Tally

Sort = Literal["frequency", "text"]
OnProgress = Callable[[str, int, "int | None"], None]

_PIECE = 1 << 18  # ids of a prepared corpus that are read at once
_BYTES_PER_WORD = 200  # of a word's spelling, as a text, and of what sorting them takes


class _Symbols(NamedTuple):
    """What the ids of a tally stand for.

    Attributes:
        names: by final id, with `<s>` as the last.
        final_ids: of the ids of the tally; None if they are the same.
    """

    names: list[str]
    final_ids: Ints | None


@dataclass(frozen=True)
class Listing:
    """n-grams of one order that were chosen from those of a text.

    Attributes:
        order: n.
        distinct: how many there were to choose from: without those that hold `<s>` or `</s>` when
            these were not asked for.
        total: how often they occurred in all.
        num_chosen: how many were chosen.
        pieces: gives them in their order, many at once: their words, and how often each occurred.
    """

    order: int
    distinct: int
    total: int
    num_chosen: int
    pieces: Callable[[], Iterator[tuple[list[list[str]], Longs]]]


@contextmanager
def list_ngrams(
    inputs: Sequence[str | Path],
    config: NgramConfig,
    *,
    top: int | None = None,
    min_count: int = 1,
    sort: Sort = "frequency",
    filters: Sequence[str] = (),
    boundaries: bool = False,
    field: str | None = None,
    threads: int = 1,
    memory: int | None = None,
    folder: str | Path | None = None,
    on_progress: OnProgress | None = None,
) -> Iterator[Listing]:
    """Count the n-grams of a text, or of the train split of a corpus, and give them as a list.

    The list can be read as long as the block lasts.

    Args:
        inputs: files, directories and `-`, or one prepared corpus.
        config: `order`, and how the text is read: `special_tokens` and `lowercase`.
        top: how many to keep, the most frequent; all when None.
        min_count: leave out those that are rarer.
        sort: "frequency" puts the most frequent first, "text" goes by code points of the words;
            ties are in the order of the words' frequencies, and of where they occur first.
        filters: words that must all occur in an n-gram.
        boundaries: keep n-grams with `<s>` or `</s>`.
        field: the field that holds the text of JSON Lines.
        threads: with two or more, one counts while another reads; the result is the same.
        memory: how many bytes the process may take; half of what is free when None.
        folder: where temporary files go, if there are any; the system's folder when None.
        on_progress: called with the stage and its progress.

    Raises:
        ConfigError: a filter that is no word of the text, settings that a corpus does not have.
        DataError: text that cannot be used, words that the memory has no room for, or an order that
            no sentence is long enough for.
        OutputError: a temporary file cannot be written.
    """
    folder = Path(tempfile.gettempdir() if folder is None else folder)
    check_folder(folder)
    for text in filters:
        if text in (BOS, EOS) and not boundaries:
            raise ConfigError(
                f"n-grams with {text} are left out, so none can be chosen",
                hint="add --boundaries to keep them",
            )
    tell = on_progress or (lambda stage, done, total: None)
    limit = memory_limit() if memory is None else memory
    check_memory(3 * LEAST, "tables of n-grams", "free some memory", memory)
    texts, _ = given_splits(inputs)
    reader = None if len(texts) == 1 and is_corpus(texts[0]) else WordReader(config)

    def room() -> int:
        """Return what may be taken; the table of words may grow, and they are written out later."""
        held = 0 if reader is None else reader.table.nbytes + _BYTES_PER_WORD * len(reader.table)
        return (memory_available(limit) or 0) - held

    space = Workspace(folder, room)
    if reader is None:
        pieces, names = _corpus_pieces(texts[0], config, field)
        tally, final_ids = Tally(config.order, len(names), boundaries, space), None
    else:
        blocks = read_numbered(
            reader, texts, field=field, on_progress=lambda *done: tell("counting", *done)
        )
        pieces = ((ids, 0) for ids in blocks)
        tally, names = Tally(config.order, reader.table.bos_id, boundaries, space), []
    with closing(tally):
        _fill(tally, pieces, threads)
        if reader is not None:
            reader.check(texts)
            num = len(reader.table)
            hint = "give less text, or text of fewer words"
            check_memory(_BYTES_PER_WORD * num, f"{num:,} different words", hint, memory)
            names, final_ids = _ordered(reader)
        if config.order > tally.longest + 2:
            raise DataError(
                f"order {config.order} is more than the longest sentence has room for, which has "
                f"{tally.longest} words",
                hint=f"choose an order up to {tally.longest + 2}: <s> and </s> count as words",
            )
        tell("sorting", 0, None)
        wanted = [_id_of(text, names) for text in filters]
        symbols = _Symbols([*names, BOS], final_ids)
        chosen = _Choice(tally, symbols, min_count, wanted, space)
        with chosen.sorted(sort, top) as pieces_of:
            num = chosen.num if top is None else min(top, chosen.num)
            yield Listing(config.order, chosen.distinct, chosen.total, num, pieces_of)


def _fill(tally: Tally, pieces: Iterable[tuple[Ids, int]], threads: int) -> None:
    """Count all pieces of a text."""
    if threads == 1:
        for ids, first in pieces:
            tally.add(ids, first)
        return
    counted: Future[None] | None = None
    with ThreadPoolExecutor(1) as counter:
        for ids, first in pieces:
            if counted is not None:
                counted.result()
            counted = counter.submit(tally.add, ids, first)
        if counted is not None:
            counted.result()


def _corpus_pieces(
    path: str | Path, config: NgramConfig, field: str | None
) -> tuple[Iterator[tuple[Ids, int]], list[str]]:
    """Return the text of a prepared corpus, and the names of its ids.

    Each piece begins with the last tokens of the one before.
    """
    corpus = open_corpus(Path(path), config, field)
    ids = corpus.ids("train")

    def pieces() -> Iterator[tuple[Ids, int]]:
        for begin in range(0, len(ids), _PIECE):
            first = min(begin, config.order)
            piece = ids[begin - first : begin + _PIECE]
            yield np.ascontiguousarray(piece, np.int32), first

    return pieces(), corpus.vocabulary.symbols


def _ordered(reader: WordReader) -> tuple[list[str], Ints]:
    """Return the words of a text, most frequent first, and the final id of each first one."""
    table = reader.table
    first = table.bos_id + 1
    kept = first + rank_symbols(table.counts[first:])
    final_ids = np.arange(len(table), dtype=np.int32)
    final_ids[kept] = np.arange(NUM_SPECIALS, NUM_SPECIALS + len(kept))
    final_ids[table.bos_id] = NUM_SPECIALS + len(kept)
    return [*map(table.word, range(NUM_SPECIALS)), *map(table.word, kept.tolist())], final_ids


class _Choice:
    """The n-grams of a tally that are listed."""

    def __init__(
        self,
        tally: Tally,
        symbols: _Symbols,
        min_count: int,
        wanted: Sequence[int],
        space: Workspace,
    ) -> None:
        self._tally, self._symbols, self._space = tally, symbols, space
        self._min_count, self._wanted = min_count, wanted
        order, largest = tally.packing.order, len(symbols.names) - 1
        self._packing = Packing(order, max(1, largest.bit_length()))
        self.distinct = self.total = self.num = 0

    @contextmanager
    def sorted(
        self, sort: Sort, top: int | None
    ) -> Iterator[Callable[[], Iterator[tuple[list[list[str]], Longs]]]]:
        """Sort them, and give what gives them."""
        width = self._packing.num_words + 1
        by_count = sort == "frequency" or top is not None
        with closing(Sorter(width, width if by_count else width - 1, self._space, top)) as sorter:
            if by_count:
                for ids, counts in self._chosen():
                    sorter.add(np.column_stack((~counts.view(np.uint64), self._packing.pack(ids))))
                if sort == "frequency":
                    yield lambda: self._named(self._by_count(sorter))
                    return
                chosen = self._by_count(sorter)
            else:
                chosen = self._chosen()
            ranks, at_rank = self._alphabet()
            with closing(Sorter(width, width - 1, self._space)) as by_text:
                for ids, counts in chosen:
                    keys = self._packing.pack(ranks[ids])
                    by_text.add(np.column_stack((keys, counts.view(np.uint64))))
                yield lambda: self._named(
                    (at_rank[self._packing.unpack(piece[:, :-1])], piece[:, -1].astype(np.int64))
                    for piece in by_text.sorted()
                )

    def _chosen(self) -> Iterator[tuple[Ints, Longs]]:
        """Give the n-grams as final ids, [R, order], and their numbers."""
        for records in self._tally.records():
            ids = self._tally.packing.unpack(records[:, :-1])
            counts = records[:, -1].astype(np.int64)
            if self._symbols.final_ids is not None:
                ids = self._symbols.final_ids[ids]
            self.distinct += len(counts)
            self.total += int(counts.sum())
            kept = counts >= self._min_count
            for id_ in self._wanted:
                kept &= (ids == id_).any(axis=1)
            self.num += int(kept.sum())
            yield ids[kept], counts[kept]

    def _by_count(self, sorter: Sorter) -> Iterator[tuple[Ints, Longs]]:
        for piece in sorter.sorted():
            yield self._packing.unpack(piece[:, 1:]), (~piece[:, 0]).astype(np.int64)

    def _alphabet(self) -> tuple[Ints, Ints]:
        """Return the rank of each id by code points, and the id at each rank."""
        names = self._symbols.names
        at_rank = np.array(sorted(range(len(names)), key=names.__getitem__), np.int32)
        ranks = np.empty_like(at_rank)
        ranks[at_rank] = np.arange(len(names))
        return ranks, at_rank

    def _named(
        self, pieces: Iterator[tuple[Ints, Longs]]
    ) -> Iterator[tuple[list[list[str]], Longs]]:
        """Give n-grams as their words."""
        name = self._symbols.names.__getitem__
        for ids, counts in pieces:
            yield [[*map(name, ngram)] for ngram in ids.tolist()], counts


def _id_of(text: str, names: list[str]) -> int:
    """Return the id of a word that is a filter; `<s>` is behind the names."""
    if text == BOS:
        return len(names)
    try:
        return names.index(text)
    except ValueError:
        near = Vocabulary(names).nearest(text)
    raise ConfigError(
        f"the word {text!r} does not occur in the text",
        hint=did_you_mean(text, near) if near else "check its spelling and its case",
    )
