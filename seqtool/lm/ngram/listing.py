"""The n-grams of one order in a text, each with how often it occurs.

They are counted as for training; where the memory is too small, DuckDB counts and sorts them.

Shapes: R n-grams of N words, T tokens.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from seqtool.core.arrays import Bools, Ints, Longs
from seqtool.core.errors import ConfigError, did_you_mean
from seqtool.core.vocabulary import BOS, EOS, EOS_ID, Vocabulary
from seqtool.lm.ngram.arpa import word_columns
from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.counts import count_ngrams, refuse_high_order
from seqtool.lm.ngram.data import Disk, Reading, given_splits, read_ids
from seqtool.lm.ngram.engine import database

if TYPE_CHECKING:
    import pyarrow as pa

    from seqtool.lm.ngram.engine.duckdb import DuckDB

Sort = Literal["frequency", "text"]
OnProgress = Callable[[str, int, "int | None"], None]

_PIECE = 1 << 16  # n-grams that are given at once


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


@dataclass(frozen=True)
class _Choice:
    """What is listed, and how it is sorted; see `list_ngrams`.

    Attributes:
        names: of the ids, `<s>` the last.
        required: ids that an n-gram must hold.
    """

    order: int
    names: Sequence[str]
    required: Sequence[int]
    min_count: int
    boundaries: bool
    sort: Sort
    top: int | None

    @property
    def bos_id(self) -> int:
        return len(self.names) - 1

    def without_boundaries(self, ids_NR: Ints) -> Bools:
        """Return which n-grams there are to choose from, [R]."""
        if self.boundaries:
            return np.ones(ids_NR.shape[1], np.bool_)
        inside: Bools = ((ids_NR != EOS_ID) & (ids_NR != self.bos_id)).all(axis=0)
        return inside

    def ranks(self) -> Ints:
        """Return the place of each name by code points."""
        ranks = np.empty(len(self.names), np.int32)
        ranks[sorted(range(len(self.names)), key=self.names.__getitem__)] = np.arange(len(ranks))
        return ranks

    def named(self, ids_NR: Ints) -> list[list[str]]:
        """Return n-grams as their words."""
        return [[self.names[word] for word in ngram] for ngram in ids_NR.T.tolist()]


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
        threads: how many to use; the result is the same.
        memory: how many bytes the process may take; what the machine has when None.
        folder: where temporary files go, if there are any; the system's folder when None.
        on_progress: called with the stage and its progress.

    Raises:
        ConfigError: a filter that is no word of the text, settings that a corpus does not have, or
            a text that is too large for the memory where DuckDB is not installed.
        DataError: text that cannot be used, too little memory, or an order that no sentence is long
            enough for.
        OutputError: a temporary file cannot be written.
    """
    folder = Path(tempfile.gettempdir() if folder is None else folder)
    database.check_folder(folder)
    for text in filters:
        if text in (BOS, EOS) and not boundaries:
            raise ConfigError(
                f"n-grams with {text} are left out, so none can be chosen",
                hint="add --boundaries to keep them",
            )
    tell = on_progress or (lambda stage, done, total: None)
    texts, _ = given_splits(inputs)
    with ExitStack() as stack:

        def make_folder() -> Path:
            database.check_packages()
            database.check_least(memory)
            return stack.enter_context(database.temporary_folder(Path(), folder))

        reading = read_ids(
            texts,
            config,
            field=field,
            memory=memory,
            disk=Disk(False, make_folder),
            on_progress=lambda *done: tell("counting", *done),
        )
        names = [*reading.tokenizer.vocabulary.symbols, BOS]
        required = [_id_of(text, names) for text in filters]
        choice = _Choice(config.order, names, required, min_count, boundaries, sort, top)
        tell("sorting", 0, None)
        if reading.folder is None:
            yield _in_memory(reading, choice, threads, memory)
        else:
            from seqtool.lm.ngram.engine.estimation import open_engine

            engine = stack.enter_context(closing(open_engine(reading.folder, threads, memory)))
            yield _on_disk(reading, choice, engine)


def _in_memory(reading: Reading, choice: _Choice, threads: int, memory: int | None) -> Listing:
    """Return the listing of a text that is in memory."""
    order = choice.order
    counts = count_ngrams(reading.ids, order, choice.bos_id, threads=threads, memory=memory)
    counts_R = counts.levels[-1].counts.astype(np.int64)
    ids_NR = word_columns(counts.levels, order, 0, len(counts_R))
    there = choice.without_boundaries(ids_NR) & (counts_R > 0)  # order 1 has all words
    distinct, total = int(there.sum()), int(counts_R[there].sum())
    there &= counts_R >= choice.min_count
    for word in choice.required:
        there &= (ids_NR == word).any(axis=0)
    rows = np.flatnonzero(there)
    if choice.sort == "frequency" or choice.top is not None:
        # n-grams are in the order of their ids, in which ties stay
        rows = rows[np.argsort(-counts_R[rows], kind="stable")][: choice.top]
    if choice.sort == "text":
        rows = rows[np.lexsort(choice.ranks()[ids_NR[::-1, rows]])]

    def pieces() -> Iterator[tuple[list[list[str]], Longs]]:
        for begin in range(0, len(rows), _PIECE):
            some = rows[begin : begin + _PIECE]
            yield choice.named(ids_NR[:, some]), counts_R[some]

    return Listing(order, distinct, total, len(rows), pieces)


def _on_disk(reading: Reading, choice: _Choice, engine: DuckDB) -> Listing:
    """Return the listing of a text that is counted and sorted by DuckDB."""
    import pyarrow as pa

    from seqtool.lm.ngram.engine.plan import ENDS

    names = [f"w{n}" for n in range(1, choice.order + 1)]
    words = ", ".join(names)
    engine.take(_ends(reading, choice), pa.schema([(name, pa.int32()) for name in names]))
    engine.make("counted", f"SELECT {words}, count(*) AS num FROM {ENDS} GROUP BY {words}")
    distinct, total = engine.fetch("SELECT count(*), coalesce(sum(num), 0) FROM counted")[0]
    required = [f"num >= {choice.min_count}", *(f"{id_} IN ({words})" for id_ in choice.required)]
    by_count = f" ORDER BY num DESC, {words}"
    limit = "" if choice.top is None else f"{by_count} LIMIT {choice.top}"
    engine.make("chosen", f"SELECT * FROM counted WHERE {' AND '.join(required)}{limit}")
    query = f"SELECT * FROM chosen{by_count}"
    if choice.sort == "text":
        ranks = pa.table({"word": np.arange(len(choice.names)), "rank": choice.ranks()})
        engine.connection.register("ranks", ranks)
        joins = "".join(f" JOIN ranks AS of_{name} ON of_{name}.word = {name}" for name in names)
        by_rank = ", ".join(f"of_{name}.rank" for name in names)
        query = f"SELECT {words}, num FROM chosen{joins} ORDER BY {by_rank}"

    def pieces() -> Iterator[tuple[list[list[str]], Longs]]:
        for batch in engine.read(query):
            *ids, counts = (column.to_numpy() for column in batch.columns)
            yield choice.named(np.stack(ids)), counts

    num_chosen = engine.fetch("SELECT count(*) FROM chosen")[0][0]
    return Listing(choice.order, int(distinct), int(total), int(num_chosen), pieces)


def _ends(reading: Reading, choice: _Choice) -> Iterator[pa.RecordBatch]:
    """Give the n-grams that end at each token of a text on disk, a column for each word."""
    import pyarrow as pa

    from seqtool.lm.ngram.engine.estimation import describe_text, text_pieces
    from seqtool.lm.ngram.engine.keys import Keys, Packer

    order, bos_id = choice.order, choice.bos_id
    keys = Keys(bos_id)
    refuse_high_order(order, describe_text(reading.ids, keys).longest)
    packer = Packer(keys, order)
    for piece in text_pieces(reading.ids):
        ids_NR = keys.words(list(packer.pack(piece)), order)
        if order == 1:  # `<s>` ends no n-gram
            starts = np.full((1, np.count_nonzero(piece == EOS_ID)), bos_id, np.int32)
            ids_NR = np.append(ids_NR, starts, axis=1)
        # what is filled up with `<s>` is none
        kept = choice.without_boundaries(ids_NR) & ((ids_NR[:2] == bos_id).sum(axis=0) < 2)
        arrays = [pa.array(column[kept]) for column in ids_NR]
        yield pa.RecordBatch.from_arrays(arrays, [f"w{n}" for n in range(1, order + 1)])


def _id_of(text: str, names: list[str]) -> int:
    """Return the id of a word that is a filter."""
    try:
        return names.index(text)
    except ValueError:
        near = Vocabulary(names[:-1]).nearest(text)
    raise ConfigError(
        f"the word {text!r} does not occur in the text",
        hint=did_you_mean(text, near) if near else "check its spelling and its case",
    )
