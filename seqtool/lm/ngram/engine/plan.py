"""The plan by which engines estimate a model, written once: SQL, and smoothing in between.

    ends                     the longest n-gram that ends at each token; see `keys`
    t5 = ends counted        k2, k1, raw                     GROUP BY the n-gram
    t4 = suffixes of t5      k2, k1, raw, adjusted           GROUP BY the suffix
    ...
    t2
    words = suffixes of t2                                   in memory: order 1 is the vocabulary
    p2 = t2 smoothed         k1, p, g                        in trie order, whole contexts
    p3 = t3 with p of p2     k2, k1, p, g                    LEFT JOIN by the suffix, then smoothed
    ...

`raw` counts occurrences. `adjusted` is the number of rows of the order above that have the n-gram
as suffix, which is that of different words before it; `raw` for what begins with `<s>`, and at the
highest order. Tables t have rows that begin with `<s>` twice, which only ends of sentences' first
words have: their suffixes are counted, they themselves are none. Tables p hold what is kept: the
probability p of the n-gram, the backoff weight g of its context, both as ratios.

No number of a row, and no window, is asked for, so every step can be divided by its keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from seqtool.core.arrays import Bools, Ints
from seqtool.core.reading import Progress
from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.counts import CountLevel, refuse_high_order
from seqtool.lm.ngram.engine.contexts import ContextSmoother, Words
from seqtool.lm.ngram.engine.keys import Keys
from seqtool.lm.ngram.smoothing import fallback_warnings, statistics_of

if TYPE_CHECKING:
    import pyarrow as pa

ENDS = "ends"


class Engine(Protocol):
    """What an engine must offer. It has the view or table `ends`, with the columns of `keys`.

    Its SQL has `&` and comparisons of 64-bit integers, CASE, CAST, COALESCE, GROUP BY, LEFT JOIN
    and UNION ALL; the types INT, BIGINT, FLOAT (32 bits) and DOUBLE.
    """

    def make(self, name: str, sql: str) -> None:
        """Make a table of what a query gives; its rows are in no order."""

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the few rows of a query."""

    def read(self, sql: str) -> Iterator[pa.RecordBatch]:
        """Give the rows of a query."""

    def smooth(self, name: str, sql: str, smoother: ContextSmoother) -> None:
        """Make a table of what the smoother makes of a query.

        The smoother is called with the rows in trie order: by `smoother.keys.columns`, the first of
        them first. If it is called several times, each time is with whole contexts.
        """

    def read_smoothed(self, name: str, keys: Keys, order: int) -> Iterator[pa.RecordBatch]:
        """Give such a table, of an order, in trie order."""

    def drop(self, name: str) -> None:
        """Give up a table that is not asked for again."""


def counted(keys: Keys, order: int) -> str:
    """Return the query of the n-grams of the highest order, from the ends of the text."""
    columns = ", ".join(keys.columns(order))
    return f"SELECT {columns}, CAST(count(*) AS INT) AS raw FROM {ENDS} GROUP BY {columns}"


def shortened(keys: Keys, order: int) -> str:
    """Return the query of the n-grams of an order below the highest, from the order above."""
    columns = keys.columns(order)
    suffix = keys.suffix(order + 1)
    selected = ", ".join(f"{value} AS {name}" for value, name in zip(suffix, columns, strict=True))
    named = ", ".join(columns)
    start = keys.from_start(order)
    # grouped in a query of its own, as a suffix has the name of a column that it is made of
    return (
        f"SELECT {named}, CAST(occurrences AS INT) AS raw,"
        f" CAST(CASE WHEN {start} THEN occurrences ELSE befores END AS INT) AS adjusted FROM ("
        f"SELECT {named}, sum(raw) AS occurrences, count(*) AS befores"
        f" FROM (SELECT {selected}, raw FROM t{order + 1}) AS suffixes GROUP BY {named}) AS grouped"
    )


def numbers(keys: Keys, highest: int) -> str:
    """Return the query of how many n-grams of each order there are, and n1 to n4 of both counts."""
    return " UNION ALL ".join(_numbers_of(keys, n, highest) for n in range(2, highest + 1))


def _numbers_of(keys: Keys, order: int, highest: int) -> str:
    columns = ["raw", "raw" if order == highest else "adjusted"]
    of_counts = ", ".join(
        f"sum(CASE WHEN {column} = {count} THEN 1 ELSE 0 END)"
        for column in columns
        for count in range(1, 5)
    )
    kept = f"WHERE NOT ({keys.is_filled_up(order)})"
    return f"SELECT {order}, count(*), {of_counts} FROM t{order} {kept}"


def with_suffixes(keys: Keys, order: int, highest: int, *, has_sums: bool) -> str:
    """Return the query of the n-grams of an order from 2 on, with what a smoother asks for."""
    columns = keys.columns(order)
    adjusted = "raw" if order == highest else "adjusted"
    kept = f"WHERE NOT ({keys.is_filled_up(order)})"
    own = f"SELECT {', '.join(columns)}, raw, {adjusted} AS adjusted"
    if order == 2:
        return f"{own} FROM t{order} {kept}"
    suffix = keys.suffix(order)
    below = keys.columns(order - 1)
    names = [f"s{place}" for place in range(len(suffix))]
    named = [f"{value} AS {name}" for value, name in zip(suffix, names, strict=True)]
    own = f"{own}, {', '.join(named)}"
    matches = " AND ".join(
        f"n.{name} = b.{column}" for name, column in zip(names, below, strict=True)
    )
    given = ", ".join(f"n.{column}" for column in [*columns, "raw", "adjusted"])
    sums = ", COALESCE(b.z, CAST(0 AS DOUBLE)) AS z" if has_sums else ""
    return (
        f"SELECT {given}, COALESCE(b.p, CAST(0 AS FLOAT)) AS p{sums}"
        f" FROM ({own} FROM t{order} {kept}) AS n LEFT JOIN p{order - 1} AS b ON {matches}"
    )


@dataclass(frozen=True)
class Text:
    """What is known of a text before its n-grams are counted.

    Attributes:
        keys: how its n-grams stand in columns.
        num_sentences: its sentences.
        longest: the tokens of its longest sentence, with `</s>`.
    """

    keys: Keys
    num_sentences: int
    longest: int


@dataclass(frozen=True)
class Estimated:
    """A model whose n-grams from order 2 on are tables of an engine: p2, p3, ...

    Attributes:
        keys: how they stand in columns.
        words: order 1, [V + 1].
        sizes: per order, how many n-grams are kept.
        statistics: as of `smoothing.Estimate`.
        warnings: as of `smoothing.Estimate`.
        allowed: [V + 1], the words that the model has; all when None.
    """

    keys: Keys
    words: Words
    sizes: list[int]
    statistics: list[dict[str, Any]]
    warnings: list[str]
    allowed: Bools | None = None

    def kept_words(self) -> Ints:
        """Return the words of the model, `<s>` the last."""
        num = self.keys.vocabulary_size + 1
        kept = np.ones(num, np.bool_) if self.allowed is None else self.allowed
        return np.flatnonzero(kept).astype(np.int32)

    def numbers(self) -> Ints:
        """Return the id of each of its words in the model, [V + 1]."""
        numbers = np.zeros(self.keys.vocabulary_size + 1, np.int32)
        kept = self.kept_words()
        numbers[kept] = np.arange(len(kept))
        return numbers


def estimate(
    engine: Engine,
    text: Text,
    config: NgramConfig,
    *,
    allowed: Bools | None = None,
    on_progress: Progress | None = None,
) -> Estimated:
    """Estimate a model on an engine; the same numbers as `smoothing.estimate` gives.

    Args:
        engine: with the ends of the text.
        text: the text.
        config: the smoothing, its settings, and what is pruned by counts.
        allowed: as for `smoothing.estimate`.
        on_progress: called with (steps done, their number).

    Raises:
        DataError: an order that no sentence is long enough for.
    """
    refuse_high_order(config.order, text.longest)
    order, keys = config.order, text.keys
    steps = iter(range(1, 2 * order))

    def done() -> None:
        if on_progress is not None:
            on_progress(next(steps), 2 * order - 1)

    for n in range(order, 1, -1):
        engine.make(f"t{n}", _grouped(keys, n, order))
        done()
    first = _first_order(engine, text, order)
    done()
    nums, raw, adjusted = _numbers(engine, first, keys, order)
    smoother = ContextSmoother(1, keys, config, raw, adjusted, allowed)
    words, discounts = smoother.smooth_words(first)
    sizes = [len(first) if allowed is None else int(np.count_nonzero(allowed))]
    for n in range(2, order + 1):
        smoother = replace(smoother, order=n, words=words if n == 2 else None)
        query = with_suffixes(keys, n, order, has_sums=smoother.has_sums)
        engine.smooth(f"p{n}", query, smoother)
        engine.drop(f"t{n}")
        sizes.append(int(engine.fetch(f"SELECT count(*) FROM p{n}")[0][0]))
        done()
    of_orders = zip(nums, sizes, raw, discounts or [None] * order, strict=True)
    statistics = [statistics_of(n, *of_order) for n, of_order in enumerate(of_orders, start=1)]
    return Estimated(keys, words, sizes, statistics, fallback_warnings(discounts), allowed)


def _grouped(keys: Keys, n: int, order: int) -> str:
    return counted(keys, n) if n == order else shortened(keys, n)


def _first_order(engine: Engine, text: Text, order: int) -> CountLevel:
    """Return order 1: all words, those too that the text does not have, and `<s>`.

    `<s>` ends no n-gram, so it is in no table. Its context is the empty one, which all other words
    follow.
    """
    size = text.keys.vocabulary_size
    raw, adjusted = np.zeros((2, size + 1), np.int32)
    for batch in engine.read(_grouped(text.keys, 1, order)):
        words = batch.column("k1").to_numpy()
        raw[words] = batch.column("raw").to_numpy()
        adjusted[words] = batch.column("raw" if order == 1 else "adjusted").to_numpy()
    raw[size] = adjusted[size] = text.num_sentences
    return CountLevel(
        words=np.arange(size + 1, dtype=np.int32),
        begins=np.array([0, size], np.int32),
        suffixes=np.zeros(size + 1, np.int32),
        counts=raw,
        adjusted=adjusted,
    )


def _numbers(
    engine: Engine, first: CountLevel, keys: Keys, order: int
) -> tuple[list[int], list[list[int]], list[list[int]]]:
    """Return per order how many n-grams there are, and n1 to n4 of both counts."""
    nums = [len(first)]
    raw: list[list[int]] = []
    adjusted: list[list[int]] = []
    for counts, of in ((first.counts, raw), (first.adjusted, adjusted)):
        of.append(np.bincount(np.minimum(counts[:-1], 5), minlength=6)[1:5].tolist())
    for row in sorted(engine.fetch(numbers(keys, order))) if order > 1 else []:
        _, num, *found = [int(value or 0) for value in row]  # the sum of no rows is NULL
        nums.append(num)
        raw.append(found[:4])
        adjusted.append(found[4:])
    return nums, raw, adjusted
