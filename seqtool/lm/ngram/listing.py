"""The n-grams of one order in a text, each with how often it occurs.

They are counted as for training; where the memory is too small, DuckDB counts and sorts them.

Shapes: R n-grams of N words, T tokens.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from seqtool.core.arrays import Ints, Longs
from seqtool.core.errors import ConfigError, did_you_mean
from seqtool.core.vocabulary import BOS, EOS, EOS_ID, Vocabulary
from seqtool.lm.ngram.arpa import word_columns
from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.counts import count_ngrams, refuse_high_order
from seqtool.lm.ngram.data import Disk, Reading, given_splits, read_ids
from seqtool.lm.ngram.engine import check_folder, temporary_folder

if TYPE_CHECKING:
    from seqtool.lm.ngram.engine.duckdb import DuckDB

Sort = Literal["frequency", "text"]
OnProgress = Callable[[str, int, "int | None"], None]
Rows = Iterable[tuple[Ints, Longs]]  # words [N, R] and counts [R], many at once

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
    """Which n-grams are listed, and how they are sorted; see `list_ngrams`.

    Attributes:
        ranks: int32 [V + 1], the place of each word by code points, `<s>` the last; None to sort by
            frequency.
        required: ids that an n-gram must hold.
        excluded: ids that it must not hold.
    """

    order: int
    ranks: Ints | None
    required: Sequence[int]
    excluded: Sequence[int]
    min_count: int
    top: int | None


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
    check_folder(folder)
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
            return stack.enter_context(temporary_folder(Path(), folder, memory))

        reading = read_ids(
            texts,
            config,
            field=field,
            memory=memory,
            disk=Disk(False, make_folder),
            on_progress=lambda *done: tell("counting", *done),
        )
        names = [*reading.tokenizer.vocabulary.symbols, BOS]
        ranks = None
        if sort == "text":
            ranks = np.empty(len(names), np.int32)
            ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        required = [_id_of(text, names) for text in filters]
        excluded = () if boundaries else (EOS_ID, len(names) - 1)
        choice = _Choice(config.order, ranks, required, excluded, min_count, top)
        tell("sorting", 0, None)
        if reading.folder is None:
            sizes, rows = _in_memory(reading, choice, threads, memory)
        else:
            from seqtool.lm.ngram.engine.duckdb import DuckDB

            engine = stack.enter_context(closing(DuckDB(reading.folder, threads, memory)))
            sizes, rows = _on_disk(reading, choice, engine)

        def pieces() -> Iterator[tuple[list[list[str]], Longs]]:
            for ids_NR, counts_R in rows():
                yield [[names[word] for word in ngram] for ngram in ids_NR.T.tolist()], counts_R

        yield Listing(config.order, *sizes, pieces)


def _in_memory(
    reading: Reading, choice: _Choice, threads: int, memory: int | None
) -> tuple[tuple[int, int, int], Callable[[], Rows]]:
    """Return the sizes and the rows of the listing of a text that is in memory."""
    order, size = choice.order, len(reading.tokenizer.vocabulary)
    counts = count_ngrams(reading.ids, order, size, threads=threads, memory=memory)
    counts_R = counts.levels[-1].counts.astype(np.int64)
    ids_NR = word_columns(counts.levels, order, 0, len(counts_R))
    is_there = counts_R > 0  # order 1 has all words
    for word in choice.excluded:
        is_there &= (ids_NR != word).all(axis=0)
    distinct, total = int(is_there.sum()), int(counts_R[is_there].sum())
    is_there &= counts_R >= choice.min_count
    for word in choice.required:
        is_there &= (ids_NR == word).any(axis=0)
    rows = np.flatnonzero(is_there)
    if choice.ranks is None or choice.top is not None:
        # n-grams are in the order of their ids, in which ties stay
        rows = rows[np.argsort(-counts_R[rows], kind="stable")][: choice.top]
    if choice.ranks is not None:
        rows = rows[np.lexsort(choice.ranks[ids_NR[::-1, rows]])]
    pieces = [rows[begin : begin + _PIECE] for begin in range(0, len(rows), _PIECE)]
    return (distinct, total, len(rows)), lambda: (
        (ids_NR[:, some], counts_R[some]) for some in pieces
    )


def _on_disk(
    reading: Reading, choice: _Choice, engine: DuckDB
) -> tuple[tuple[int, int, int], Callable[[], Rows]]:
    """Return the sizes and the rows of the listing of a text that is counted by DuckDB."""
    import pyarrow as pa

    from seqtool.lm.ngram.engine.duckdb import take_text
    from seqtool.lm.ngram.engine.plan import counted

    order, bos_id = choice.order, len(reading.tokenizer.vocabulary)
    text = take_text(engine, reading.ids, bos_id, order)
    refuse_high_order(order, text.longest)
    keys, names = text.keys, [f"w{n}" for n in range(order)]
    words = ", ".join(names)
    columns = ", ".join(f"CAST({keys.word(order, n)} AS INT) AS w{n}" for n in range(order))
    # what is filled up with `<s>` is none; `<s>` ends no n-gram
    rows = f"SELECT {columns}, raw AS num FROM ({counted(keys, order)})"
    rows += f" WHERE NOT ({keys.is_filled_up(order)})"
    if order == 1:
        rows += f" UNION ALL SELECT {bos_id}, {text.num_sentences}"
    kept = "".join(f" AND {word} NOT IN ({words})" for word in choice.excluded)
    engine.make("counted", f"SELECT * FROM ({rows}) WHERE num > 0{kept}")
    distinct, total = engine.fetch("SELECT count(*), coalesce(sum(num), 0) FROM counted")[0]
    required = [f"num >= {choice.min_count}", *(f"{id_} IN ({words})" for id_ in choice.required)]
    by_count = f" ORDER BY num DESC, {words}"
    limit = "" if choice.top is None else f"{by_count} LIMIT {choice.top}"
    engine.make("chosen", f"SELECT * FROM counted WHERE {' AND '.join(required)}{limit}")
    query = f"SELECT * FROM chosen{by_count}"
    if choice.ranks is not None:
        ranks = pa.table({"word": np.arange(bos_id + 1), "rank": choice.ranks})
        engine.connection.register("ranks", ranks)
        joins = "".join(f" JOIN ranks AS of_{name} ON of_{name}.word = {name}" for name in names)
        by_rank = ", ".join(f"of_{name}.rank" for name in names)
        query = f"SELECT {words}, num FROM chosen{joins} ORDER BY {by_rank}"

    def read() -> Rows:
        for batch in engine.read(query):
            *ids, counts = (column.to_numpy() for column in batch.columns)
            yield np.stack(ids), counts.astype(np.int64)

    num_chosen = engine.fetch("SELECT count(*) FROM chosen")[0][0]
    return (int(distinct), int(total), int(num_chosen)), read


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
