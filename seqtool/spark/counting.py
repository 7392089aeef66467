"""Symbols of texts, counted by workers: by the block and then by the symbol.

blocks of texts -> symbols and their counts, and a row for the block itself
-> GROUP BY the symbol; in order of first occurrence, on the driver
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol

from seqtool.core.errors import DataError
from seqtool.spark.texts import PLACES, TextPart, Texts
from seqtool.spark.workers import ROWS, Rows

if TYPE_CHECKING:
    import pyarrow as pa

TOTALS = ("sentences", "tokens", "longest", "bytes")  # of a block
_COUNTS = {
    "symbol": "string",  # none of a row that tells of the block itself
    "count": "long",
    "place": "long",  # of its first occurrence among those of the block's symbols
    **dict.fromkeys(TOTALS, "long"),
    **PLACES,
}


class Counter(Protocol):
    """Counts the symbols of a block."""

    def add(self, text: TextPart) -> None:
        """Count those of some lines.

        Raises:
            DataError: a line that cannot be used, by its number in the text.
        """

    def symbols(self) -> Iterable[tuple[str, int]]:
        """Return the symbols in order of first occurrence, with their counts."""

    def totals(self) -> dict[str, int]:
        """Return what there is of `TOTALS`."""


def counted(
    texts: Texts, counter: Callable[[int, int], Counter]
) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Return the symbols of texts in order of first occurrence, and the totals of each block.

    Args:
        texts: what is counted.
        counter: makes what counts a block, by the rank of the file and the byte of the block.

    Returns:
        The counts of symbols; rows with `rank`, `block` and `TOTALS`, in order.

    Raises:
        DataError: a text that cannot be used.
    """
    from pyspark.sql import functions

    def count(parts: Iterator[TextPart]) -> Iterator[pa.RecordBatch]:
        return _count(parts, counter)

    counts = texts.mapped(count, _COUNTS)
    first = functions.struct("rank", "block", "place")
    of_block = functions.when(functions.col("symbol").isNull(), first)
    grouped = counts.groupBy("symbol", of_block.alias("of"), "error", "hint", "line", "unread").agg(
        functions.min(first).alias("first"),
        *(functions.sum(name).alias(name) for name in ("count", *TOTALS)),
    )
    rows: list[dict[str, Any]] = (
        grouped.orderBy("first", "line")
        .select("symbol", "error", "hint", "line", "unread", "count", *TOTALS, "first.*")
        .toArrow()
        .to_pylist()
    )
    if broken := next((row for row in rows if row["error"] is not None), None):
        texts.refuse(broken)
    blocks = [row for row in rows if row["symbol"] is None]
    return {row["symbol"]: row["count"] for row in rows if row["symbol"] is not None}, blocks


def _count(
    parts: Iterator[TextPart], counter: Callable[[int, int], Counter]
) -> Iterator[pa.RecordBatch]:
    """Give rows of `_COUNTS`: the symbols of each block, and one without a symbol for all of it."""
    rows = Rows(_COUNTS)
    for (rank, block), some in groupby(parts, lambda text: (text.rank, text.block)):
        of_block = counter(rank, block)
        for text in some:
            try:
                of_block.add(text)
            except DataError as error:
                raise text.refused(error) from error
        for place, (symbol, count) in enumerate(of_block.symbols()):
            rows.add(symbol=symbol, count=count, rank=rank, block=block, place=place)
            if len(rows) >= ROWS:
                yield rows.take()
        rows.add(rank=rank, block=block, place=-1, **of_block.totals())
    if len(rows):
        yield rows.take()
