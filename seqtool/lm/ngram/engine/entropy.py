"""Pruning by relative entropy on an engine: what `pruning` does, as queries and whole contexts.

    q2 = p2 judged           keys, p, g, c, kept            whole contexts
    q3 = p3 judged           b of q2 by the suffix, c of q2 by the context
    ...
    r5 = q5                  keys, p, g, kept
    r4 = q4                  what r5 keeps n-grams after is kept, too
    ...
    v2 = r2 weighed          keys, p, g, v, kept            whole contexts
    v3 = r3 weighed          v of v2 by the suffix
    ...

Suffixes and contexts of all n-grams of p are rows of it: they occur as often, and thresholds do not
fall with the order. c is log P(h w) by the chain rule; v is log p(w | h) of the pruned model, which
n-grams that go have too: so what an n-gram backs off to is always one row, that of its suffix.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from seqtool.core.arrays import Doubles, Longs
from seqtool.core.reading import Progress
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.ngram.engine.contexts import contexts_in, own, whole_contexts
from seqtool.lm.ngram.engine.keys import Keys
from seqtool.lm.ngram.engine.plan import Engine, Estimated
from seqtool.lm.ngram.pruning import judge
from seqtool.lm.ngram.smoothing import take_logarithms
from seqtool.lm.ngram.suffixes import weigh

if TYPE_CHECKING:
    import pyarrow as pa

_KINDS = {"p": "float32", "g": "float32", "c": "float64", "v": "float64", "kept": "int32"}


@dataclass(frozen=True)
class _Contexts(ABC):
    """Works on whole contexts of order n.

    Attributes:
        order: n.
        keys: how n-grams stand in columns.
        words: [V + 1], log p of order 1, if n is 2.
        given: the columns that are given, beside those of the n-gram.
    """

    order: int
    keys: Keys
    words: Doubles | None
    given: Sequence[str]

    def schema(self) -> pa.Schema:
        """Return the columns that are given."""
        import pyarrow as pa

        columns = [(name, pa.int64()) for name in self.keys.columns(self.order)]
        kinds = [(name, getattr(pa, _KINDS[name])()) for name in self.given]
        return pa.schema([*columns, *kinds])

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give rows for n-grams in trie order, whole contexts."""
        import pyarrow as pa

        for batch in whole_contexts(batches, self.keys, self.order):
            columns, begins = contexts_in(batch, self.keys, self.order)
            made = self._made(batch, columns, begins.astype(np.int32))
            arrays = [*columns, *(made[name] for name in self.given)]
            yield pa.RecordBatch.from_arrays([*map(pa.array, arrays)], schema=self.schema())

    @abstractmethod
    def _made(self, batch: pa.RecordBatch, columns: list[Longs], begins: Any) -> dict[str, Any]:
        """Return what is given, [N] a column; the contexts begin at `begins`, [C + 1]."""

    def _logs(self, batch: pa.RecordBatch, begins: Any) -> tuple[Any, Any]:
        """Return log p of the n-grams, [N], and log g of the contexts, [C]."""
        log_probs, backoffs = own(batch.column("p"), np.float32), own(batch.column("g"), np.float32)
        backoffs = backoffs[begins[:-1]]
        take_logarithms(log_probs)
        take_logarithms(backoffs)
        return log_probs, backoffs


@dataclass(frozen=True)
class _Judge(_Contexts):
    """Finds the n-grams that are worth their place.

    Attributes:
        threshold: as of `pruning.prune_by_entropy`.
    """

    threshold: float

    def _made(self, batch: pa.RecordBatch, columns: list[Longs], begins: Any) -> dict[str, Any]:
        log_probs, backoffs = self._logs(batch, begins)
        if self.words is None:
            # its logarithm is rounded to float32 like a table's: the same n-grams go as in memory
            lower = own(batch.column("b"), np.float32)
            take_logarithms(lower)
            lower, contexts = lower.astype(np.float64), own(batch.column("c"), np.float64)
        else:
            first, last = self.keys.words(columns, 2)
            lower = self.words[last]
            # as many sentences begin as end
            contexts = self.words[np.where(first == self.keys.vocabulary_size, EOS_ID, first)]
        kept = np.empty(len(log_probs), np.bool_)
        judge(begins, log_probs, lower, backoffs, contexts[begins[:-1]], self.threshold, kept)
        return {
            **{name: batch.column(name).to_numpy() for name in ("p", "g")},
            "c": contexts + log_probs,
            "kept": kept.astype(np.int32),
        }


class _Weigher(_Contexts):
    """Gives contexts the backoff weights that follow from what is kept."""

    def _made(self, batch: pa.RecordBatch, columns: list[Longs], begins: Any) -> dict[str, Any]:
        log_probs, backoffs = self._logs(batch, begins)
        if self.words is None:
            lower = own(batch.column("v"), np.float64)
        else:
            lower = self.words[self.keys.words(columns, 2)[1]]
        kept = batch.column("kept").to_numpy() == 1
        sums = np.concatenate(([0], np.cumsum(kept))).astype(np.int32)
        # `sums` numbers the rows that are kept, as if the others were not there
        weigh(sums[begins], log_probs[kept], lower[kept], backoffs)
        of_rows = np.repeat(backoffs, np.diff(begins))
        with np.errstate(under="ignore"):
            ratios = np.exp(of_rows.astype(np.float64)).astype(np.float32)
        return {
            "p": batch.column("p").to_numpy(),
            "g": ratios,
            "v": np.where(kept, log_probs, of_rows + lower),
            "kept": kept.astype(np.int32),
        }


def prune(
    engine: Engine, estimated: Estimated, threshold: float, on_progress: Progress | None = None
) -> Estimated:
    """Return a model without the n-grams that change its perplexity least; see `pruning`.

    The numbers are those of `pruning.prune_by_entropy`.

    Args:
        engine: with the tables of the model, which are given up.
        estimated: the model.
        threshold: the share by which the perplexity may grow for each n-gram; 0 keeps all.
        on_progress: called with (steps done, their number).
    """
    if not threshold:
        return estimated
    keys, highest = estimated.keys, len(estimated.sizes)
    num_steps = 3 * (highest - 1)
    steps = iter(range(1, num_steps + 1))

    def done() -> None:
        if on_progress is not None:
            on_progress(next(steps), num_steps)

    logs = estimated.words.probabilities.copy()
    logs[-1] = 1  # <s>, which is never predicted
    take_logarithms(logs)
    words = logs.astype(np.float64)
    for n in range(2, highest + 1):
        judged = ("p", "g", "c", "kept")
        contexts = _Judge(n, keys, words if n == 2 else None, judged, threshold)
        by = {"b": ("p", keys.suffix), "c": ("c", keys.context)} if n > 2 else {}
        engine.smooth(f"q{n}", _joined(keys, n, "p", "q", by), contexts)
        engine.drop(f"p{n}")
        done()
    for n in range(highest, 1, -1):
        engine.make(f"r{n}", _with_contexts(keys, n, is_highest=n == highest))
        engine.drop(f"q{n}")
        done()
    sizes = estimated.sizes[:1]
    for n in range(2, highest + 1):
        weighed = ("p", "g", "v", "kept")
        weigher = _Weigher(n, keys, words if n == 2 else None, weighed)
        by = {"v": ("v", keys.suffix)} if n > 2 else {}
        engine.smooth(f"v{n}", _joined(keys, n, "r", "v", by, "kept"), weigher)
        engine.drop(f"r{n}")
        sizes.append(int(engine.fetch(f"SELECT count(*) FROM v{n} WHERE kept = 1")[0][0]))
        done()
    statistics = [
        {**of_order, "ngrams": size}
        for of_order, size in zip(estimated.statistics, sizes, strict=True)
    ]
    sizes = [size for size in sizes if size]  # orders of which nothing stays go
    return replace(estimated, sizes=sizes, statistics=statistics, tables="v")


def _joined(
    keys: Keys,
    n: int,
    table: str,
    below: str,
    by: Mapping[str, tuple[str, Callable[[int], list[str]]]],
    *more: str,
) -> str:
    """Return the query of the rows of an order, with columns of rows of the order below.

    Args:
        keys: how n-grams stand in columns.
        n: the order.
        table: the letter of its table.
        below: that of the table of the order below.
        by: name of a column -> the column there, and what gives the row there of an n-gram.
        more: columns beside p and g.
    """
    columns = [*keys.columns(n), "p", "g", *more]
    inner, outer, joins = list(columns), [f"n.{name}" for name in columns], ""
    for name, (column, part) in by.items():
        values = part(n)
        aliases = [f"{name}{place}" for place in range(len(values))]
        inner += [f"{value} AS {alias}" for value, alias in zip(values, aliases, strict=True)]
        pairs = zip(aliases, keys.columns(n - 1), strict=True)
        matches = " AND ".join(f"n.{alias} = of_{name}.{key}" for alias, key in pairs)
        joins += f" JOIN {below}{n - 1} AS of_{name} ON {matches}"
        outer.append(f"of_{name}.{column} AS {name}")
    return f"SELECT {', '.join(outer)} FROM (SELECT {', '.join(inner)} FROM {table}{n}) AS n{joins}"


def _with_contexts(keys: Keys, n: int, *, is_highest: bool) -> str:
    """Return the query of the rows of an order, of which the contexts of what is kept are kept."""
    columns = keys.columns(n)
    given = ", ".join(f"n.{name}" for name in [*columns, "p", "g"])
    if is_highest:
        return f"SELECT {given}, n.kept FROM q{n} AS n"
    values = zip(keys.context(n + 1), columns, strict=True)
    contexts = ", ".join(f"{value} AS {name}" for value, name in values)
    matches = " AND ".join(f"n.{name} = a.{name}" for name in columns)
    return (
        f"SELECT {given}, CAST(CASE WHEN a.found = 1 THEN 1 ELSE n.kept END AS INT) AS kept"
        f" FROM q{n} AS n LEFT JOIN (SELECT {', '.join(columns)}, 1 AS found FROM"
        f" (SELECT {contexts} FROM r{n + 1} WHERE kept = 1) AS c"
        f" GROUP BY {', '.join(columns)}) AS a ON {matches}"
    )
