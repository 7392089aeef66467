"""Words counted in a database, where memory has no room for all different words of a text.

    text        | generation 0 ............ | generation 1 ............. |
    its table     words 0, 1, 2, ...          words 0, 1, 2, ...
    `words`       generation, number, word, count
    `kept`        word, count, id             GROUP BY the word, the most frequent first

A generation is what was read until its table filled its share of the memory; the next one begins
with an empty table. The text waits as numbers of its generation, which are exchanged for ids when
all words have been counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seqtool.core.arrays import Ids
from seqtool.core.database import LEAST, Database
from seqtool.core.runtime import check_memory, memory_available, memory_limit
from seqtool.core.vocabulary import EOS, EOS_ID, NUM_SPECIALS, UNK, UNK_ID, Vocabulary

if TYPE_CHECKING:
    from seqtool.text.words import WordTable

# of the memory that is free at the beginning; a table that grows is there twice for a while
_TABLE_SHARE, _DATABASE_SHARE = 0.2, 0.5


@dataclass(frozen=True)
class Room:
    """What the words of a text may take, and where they go when that is not enough.

    Attributes:
        memory: bytes that the process may take, in all; what it has and half of what is free where
            the words may go to disk, and all of that else, when None.
        make_folder: makes an empty folder, which others remove; None where words stay in memory.
        always: count in a database also what fits into memory.
        threads: that the database uses.
    """

    memory: int | None = None
    make_folder: Callable[[], Path] | None = None
    always: bool = False
    threads: int = 1

    def available(self) -> int:
        """Return how many bytes there are for the words of a text.

        Raises:
            DataError: less than a database needs, where there must be one.
        """
        limit = memory_limit() if self.memory is None else self.memory
        if self.always:
            check_memory(LEAST, "the tables of DuckDB", "free some memory", limit)
        return memory_available(limit) or 0

    def check(self, table: WordTable) -> None:
        """Refuse a table that may not be able to grow again, where its words stay in memory.

        Raises:
            DataError: the memory is too small.
        """
        what = f"{len(table):,} different words"
        check_memory(table.nbytes, what, "take the disk with --engine duckdb", self.memory)


class WordCounts:
    """The words of a text, in tables of a database; to be closed.

    Args:
        room: with a folder.
        available: bytes that there are for all of this.
    """

    def __init__(self, room: Room, available: int) -> None:
        assert room.make_folder is not None
        memory = int(available * _DATABASE_SHARE)
        self._database = Database(room.make_folder(), memory, room.threads)
        self._database.run(
            "CREATE TABLE words (generation INT, number INT, word BLOB, count BIGINT)"
        )
        self._sizes: list[int] = []
        self._num_unknown = 0

    @staticmethod
    def most(available: int) -> int:
        """Return how many bytes the table of a generation may take."""
        return int(available * _TABLE_SHARE)

    def close(self) -> None:
        """End the database; its files stay."""
        self._database.close()

    def add(self, table: WordTable) -> None:
        """Take in the words of the next generation."""
        import pyarrow as pa

        first, counts = table.bos_id + 1, table.counts
        words = pa.table(
            {
                "number": np.arange(first, len(table), dtype=np.int32),
                "word": table.as_arrow()[first:],
                "count": counts[first:],
            }
        )
        generation = len(self._sizes)
        with self._database.naming():
            self._database.connection.register("added", words)
            self._database.run(
                f"INSERT INTO words SELECT {generation}, number, word, count FROM added"
            )
            self._database.connection.unregister("added")
        self._sizes.append(len(table))
        self._num_unknown += int(counts[UNK_ID])

    def vocabulary(self, num_sentences: int, *, max_size: int | None, min_count: int) -> Vocabulary:
        """Return the vocabulary, ranked as by `core.vocabulary.rank_symbols`.

        Raises:
            DataError: the database has too little memory.
        """
        most = "" if max_size is None else f" LIMIT {max_size - NUM_SPECIALS}"
        first = f"min(generation * {1 << 32}::BIGINT + number)"
        self._database.run(
            "CREATE TABLE kept AS SELECT word, count,"
            f" row_number() OVER (ORDER BY count DESC, place) + {NUM_SPECIALS - 1} AS id FROM ("
            f"SELECT word, CAST(sum(count) AS BIGINT) AS count, {first} AS place FROM words"
            f" GROUP BY word HAVING sum(count) >= {min_count} ORDER BY 2 DESC, 3{most})"
        )
        symbols, counts = [UNK, EOS], [0, num_sentences]
        with self._database.naming():  # rows are made while they are fetched
            rows = self._database.run("SELECT word, count FROM kept ORDER BY id")
            while some := rows.fetchmany(1 << 16):
                symbols += [word.decode() for word, _ in some]
                counts += [count for _, count in some]
        [(total,)] = self._database.fetch("SELECT CAST(sum(count) AS BIGINT) FROM words")
        counts[UNK_ID] = self._num_unknown + (total or 0) - sum(counts[NUM_SPECIALS:])
        return Vocabulary(symbols, counts)

    def final_ids(self, generation: int) -> Ids:
        """Return the id of each number of a generation."""
        rows = self._database.fetch_arrays(
            f"SELECT number, CAST(id AS INT) AS id FROM words JOIN kept USING (word)"
            f" WHERE generation = {generation}"
        )
        result = np.full(self._sizes[generation], UNK_ID, np.int32)
        result[rows["number"]] = rows["id"]
        result[EOS_ID] = EOS_ID
        return result
