"""What n-grams back off to, with which weights, and which of them a model can do without.

For an n-gram h w, h' is the context h without its first word. Where p(w | h) has no row,

    p(w | h) = b(h) p(w | h')     b(h) = (1 - sum p(w | h)) / (1 - sum p(w | h'))     (Katz 1987)

with both sums over the words w that follow h in the table. So when rows go or change, the weights
b follow from the probabilities, from short contexts to long ones.

Not all suffixes are rows. Each n-gram is therefore linked to the longest one that is: to its order,
and its row at that order. The empty n-gram is row 0 of order 0.

Pruning by relative entropy is that of Stolcke (1998), Entropy-based pruning of backoff language
models. For one n-gram h w of the model p, and the model p' that lacks it and has the backoff b'(h)
that this gives,

    D = - P(h) { p(w | h) [log p'(w | h) - log p(w | h)]
                 + (1 - sum p(v | h)) [log b'(h) - log b(h)] }

with the sum over the words v that follow h in the table, and P(h) by the chain rule from shorter
n-grams; the `<s>` at the beginning of a context counts as `</s>`. The perplexity of the model grows
by the share exp(D) - 1, and where that is below a threshold the n-gram goes, as with `-prune` of
SRILM: each is judged as if all others stayed, from the longest to bigrams, and one that longer ones
begin with stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numba import types

from seqtool.core.arrays import Bools, Doubles
from seqtool.core.jit import compiled
from seqtool.core.vocabulary import EOS_ID, UNK_ID
from seqtool.lm.array_file import read_only
from seqtool.lm.ngram.table import BackoffTable, Float32, Int32, TableLevel

_read_ints = types.Array(types.int32, 1, "C", readonly=True)
_read_floats = types.Array(types.float32, 1, "C", readonly=True)
_ints, _doubles = types.int32[::1], types.float64[::1]


class Suffixes(NamedTuple):
    """The longest proper suffix of each of N n-grams that is in the table.

    Attributes:
        orders: int32 [N], its length.
        rows: int32 [N], its row at that order.
    """

    orders: Int32
    rows: Int32


_links = types.NamedUniTuple(_ints, 2, Suffixes)


@compiled(
    types.void(
        types.int64,
        _read_ints,
        _read_ints,
        _read_floats,
        _read_floats,
        _links,
        _read_ints,
        _links,
        _doubles,
    )
)
def _shorten(order, begins, words, log_probs, backoffs, suffixes, wanted, backed_off, scores):  # type: ignore[no-untyped-def]
    """Look N words up after contexts of one order; go on to a shorter context where one is missing.

    Args:
        order: of the contexts, C rows.
        begins: [C + 1], the rows of their continuations.
        words: of the continuations.
        log_probs: of the continuations, nats.
        backoffs: [C] nats.
        suffixes: [C], of the contexts.
        wanted: [N], words.
        backed_off: [N], the order and row of the context where each word stands; of those at
            `order`, it becomes that of the n-gram that is there, its order below 0, or a shorter
            context.
        scores: [N] nats, added to.
    """
    for i in range(wanted.shape[0]):
        if backed_off.orders[i] != order:
            continue
        context = backed_off.rows[i]
        low, high = np.int64(begins[context]), np.int64(begins[context + 1])
        end = high
        while low < high:
            middle = (low + high) >> 1
            if words[middle] < wanted[i]:
                low = middle + 1
            else:
                high = middle
        if low < end and words[low] == wanted[i]:
            backed_off.orders[i], backed_off.rows[i] = -order - 1, low
            scores[i] += log_probs[low]
        else:
            # shorter contexts that are no rows have a weight of 1, and are passed over
            scores[i] += backoffs[context]
            backed_off.orders[i], backed_off.rows[i] = (
                suffixes.orders[context],
                suffixes.rows[context],
            )


@compiled(types.float64(types.int64, types.int64, _read_floats))
def left_over(begin, end, log_probs):  # type: ignore[no-untyped-def]
    """Return 1 - sum p of some rows, of logarithms; 0 where that is the rounding of float32."""
    total, error = 0.0, 0.0
    for row in range(begin, end):
        # zero times -inf is NaN
        if log_probs[row] > -np.inf:
            probability = np.exp(np.float64(log_probs[row]))
            total += probability
            # a logarithm l is off by |l| / 2^24 at most
            error -= probability * log_probs[row]
    # 8388608 is 2^23: twice that bound; and 1e-12, for the rounding of the sum
    return 1 - total if 1 - total > error / 8388608 + 1e-12 else 0.0


@compiled(types.float64(types.int64, types.int64, _doubles))
def left_over_below(begin, end, lower):  # type: ignore[no-untyped-def]
    """Return 1 - sum p(w | h') of some rows, of logarithms; off by the rounding of float32."""
    total = 0.0
    for row in range(begin, end):
        total += np.exp(lower[row])
    return 1 - total


@compiled(types.void(_read_ints, _read_floats, _doubles, types.float32[::1]))
def _weigh(begins, log_probs, lower, backoffs):  # type: ignore[no-untyped-def]
    """Set the backoffs of contexts by their continuations.

    0 where nothing follows, and where all words of the order below do. What is left may be lost in
    rounding: then a backoff stays what it was, which may be -inf.
    """
    for context in range(begins.shape[0] - 1):
        begin, end = begins[context], begins[context + 1]
        if begin == end:
            backoffs[context] = 0
            continue
        left = left_over(begin, end, log_probs)
        left_below = left_over_below(begin, end, lower)
        if left > 0:
            follows_all = left_below < 1e-9  # all words of the order below, but for rounding
            backoffs[context] = 0 if follows_all else np.log(left) - np.log(left_below)


@compiled(
    types.void(
        _read_ints,
        _read_floats,
        _doubles,
        _read_floats,
        _doubles,
        types.float64,
        types.boolean[::1],
    )
)
def _judge(begins, log_probs, lower, backoffs, contexts, threshold, kept):  # type: ignore[no-untyped-def]
    """Find the n-grams of one order that are worth their place.

    Args:
        begins: [C + 1], the rows of each context.
        log_probs: [N], log p(w | h), nats.
        lower: [N], log p(w | h'), nats.
        backoffs: [C], log b(h).
        contexts: [C], log P(h).
        threshold: least growth of the perplexity, a share of it.
        kept: [N], written.
    """
    for context in range(begins.shape[0] - 1):
        begin, end = begins[context], begins[context + 1]
        left = left_over(begin, end, log_probs)
        left_below = left_over_below(begin, end, lower)
        weight = np.exp(contexts[context])
        backoff = backoffs[context]
        for row in range(begin, end):
            probability = np.exp(np.float64(log_probs[row]))
            # as if this n-gram alone went: its share joins what is unused
            rest, rest_below = left + probability, left_below + np.exp(lower[row])
            loss = 0.0
            # a word without probability, or a context that never comes, costs nothing
            if rest > 0 and weight > 0:
                new = np.log(rest) - np.log(rest_below) if rest_below > 0 else -np.inf
                if probability > 0:
                    loss -= probability * (lower[row] + new - log_probs[row])
                if left > 0 and backoff > -np.inf:
                    loss -= left * (new - backoff)
            kept[row] = np.expm1(weight * loss) >= threshold  # exp(1e-17) - 1 would be 0


class BackingOff:
    """Orders 1 to n of a table, and what the n-grams of the next one back off to.

    Args:
        first: order 1, all words and `<s>`.
    """

    def __init__(self, first: TableLevel) -> None:
        self.levels = [first]
        # of the empty n-gram, which is never gone on from, and of words
        self._suffixes = [Suffixes(*np.zeros((2, num), np.int32)) for num in (1, len(first))]

    def lower(self, begins: Int32, words: Int32) -> tuple[Doubles, Suffixes]:
        """Return log p(w | h'), nats, and the suffix of each n-gram h w of the next order.

        Args:
            begins: of the contexts h, the rows of the last level.
            words: [N], w.
        """
        suffixes = self._suffixes[-1]
        sizes = np.diff(begins)
        backed_off = Suffixes(np.repeat(suffixes.orders, sizes), np.repeat(suffixes.rows, sizes))
        scores = np.zeros(len(words))
        # from long to short, as misses go on to a shorter context; the empty one has all words
        for order in range(len(self.levels) - 1, -1, -1):
            level = self.levels[order]
            backoffs = self.levels[order - 1].backoffs if order else np.zeros(1, np.float32)
            arrays = map(read_only, (level.begins, level.words, level.log_probs, backoffs))
            _shorten(order, *arrays, self._suffixes[order], read_only(words), backed_off, scores)
        np.negative(backed_off.orders, out=backed_off.orders)  # below 0 marked what is there
        return scores, backed_off

    def weigh(self, begins: Int32, log_probs: Float32, lower: Doubles) -> None:
        """Set the backoffs of the last level by its continuations; see `_weigh`."""
        backoffs = self.levels[-1].backoffs.copy()
        _weigh(read_only(begins), read_only(log_probs), lower, backoffs)
        self.levels[-1] = replace(self.levels[-1], backoffs=backoffs)

    def append(self, level: TableLevel, suffixes: Suffixes) -> None:
        """Add the next order."""
        self.levels.append(level)
        self._suffixes.append(suffixes)


def with_weights(table: BackoffTable) -> BackoffTable:
    """Return a table whose backoffs follow from its probabilities, so that contexts sum to 1."""
    backing = BackingOff(table.levels[0])
    for level in table.levels[1:]:
        lower, suffixes = backing.lower(level.begins, level.words)
        backing.weigh(level.begins, level.log_probs, lower)
        backing.append(level, suffixes)
    return BackoffTable(tuple(backing.levels), table.vocabulary_size)


def contexts_of(level: TableLevel) -> Int32:
    """Return the row of the context of each n-gram, [N]."""
    return np.repeat(np.arange(len(level.begins) - 1, dtype=np.int32), np.diff(level.begins))


def select(table: BackoffTable, kept: Sequence[Bools]) -> BackoffTable:
    """Return a table of some n-grams; their backoffs stay, also where nothing follows any more.

    Args:
        table: what to choose from.
        kept: bool [N] per order from 2 on; the contexts of what is kept are kept. All single words
            stay. Orders of which nothing stays go.
    """
    levels = [table.levels[0]]
    is_context = np.ones(len(table.levels[0]), np.bool_)
    for level, is_kept in zip(table.levels[1:], kept, strict=True):
        if not is_kept.any():
            break
        sums = np.zeros(len(level) + 1, np.int32)
        np.cumsum(is_kept, out=sums[1:])
        ends = sums[level.begins]
        # a context that goes has no rows that stay, so that one begins where the last one ended
        begins = np.zeros(np.count_nonzero(is_context) + 1, np.int32)
        begins[1:] = ends[1:][is_context]
        levels.append(
            TableLevel(
                level.words[is_kept],
                begins,
                level.log_probs[is_kept],
                level.backoffs[is_kept] if len(level.backoffs) else level.backoffs,
            )
        )
        is_context = is_kept
    levels[-1] = replace(levels[-1], backoffs=np.empty(0, np.float32))
    return BackoffTable(tuple(levels), table.vocabulary_size)


def with_words(table: BackoffTable, allowed: Bools) -> BackoffTable:
    """Return a table without some words, of which no n-grams are left but they themselves.

    Args:
        table: its vocabulary has V words.
        allowed: [V + 1], `<s>` the last; what is left keeps its order.
    """
    numbers = (np.cumsum(allowed) - 1).astype(np.int32)
    first = table.levels[0]
    num = int(numbers[-1]) + 1
    levels = [
        TableLevel(
            np.arange(num, dtype=np.int32),
            np.array([0, num], np.int32),
            first.log_probs[allowed],
            first.backoffs[allowed] if len(first.backoffs) else first.backoffs,
        )
    ]
    for n, level in enumerate(table.levels[1:], start=2):
        begins = level.begins
        if n == 2:  # contexts that go have no rows
            begins = np.append(begins[:-1][allowed], begins[-1])
        levels.append(replace(level, begins=begins, words=numbers[level.words]))
    return BackoffTable(tuple(levels), num - 1)


def restrict(table: BackoffTable, allowed: Bools) -> BackoffTable:
    """Return a table of some words, a distribution in each context that is left.

    N-grams with other words go, and `<unk>` gets the probability of these words themselves. The
    backoffs are those that follow from what is left.

    Args:
        table: its vocabulary has V words.
        allowed: [V + 1], `<s>` the last; `<unk>`, `</s>` and `<s>` are among them.
    """
    kept, is_kept = [], allowed
    for level in table.levels[1:]:
        is_kept = is_kept[contexts_of(level)] & allowed[level.words]
        kept.append(is_kept)
    result = with_words(select(table, kept), allowed)
    first = result.levels[0]
    log_probs = first.log_probs.copy()
    others = table.levels[0].log_probs[~allowed].astype(np.float64)
    log_probs[UNK_ID] = np.logaddexp.reduce([*others, np.float64(log_probs[UNK_ID])])
    levels = (replace(first, log_probs=log_probs), *result.levels[1:])
    return with_weights(BackoffTable(levels, result.vocabulary_size))


def prune_by_entropy(table: BackoffTable, threshold: float) -> BackoffTable:
    """Return a table without the n-grams that change its perplexity by less than a share of it.

    Single words stay. The backoffs are those that follow from what is left.

    Args:
        table: what to prune.
        threshold: such as 1e-8; 0 keeps all that there is.
    """
    if not threshold:  # rounding may make a loss of nothing less than that
        return table
    log_contexts = table.levels[0].log_probs.astype(np.float64)
    log_contexts[-1] = log_contexts[EOS_ID]  # as many sentences begin as end
    backing = BackingOff(table.levels[0])
    judged: list[Bools] = []
    for below, level in zip(table.levels, table.levels[1:], strict=False):
        lower, suffixes = backing.lower(level.begins, level.words)
        kept = np.empty(len(level), np.bool_)
        arrays = map(read_only, (level.begins, level.log_probs))
        _judge(*arrays, lower, read_only(below.backoffs), log_contexts, threshold, kept)
        judged.append(kept)
        log_contexts = log_contexts[contexts_of(level)] + level.log_probs
        backing.append(level, suffixes)
    # from the longest: one that stays keeps its context, and that again its own
    for n in range(len(judged) - 1, 0, -1):
        level, is_kept = table.levels[n + 1], judged[n]
        sums = np.zeros(len(level) + 1, np.int32)
        np.cumsum(is_kept, out=sums[1:])
        judged[n - 1] |= np.diff(sums[level.begins]) > 0
    return with_weights(select(table, judged))


def with_sizes(
    statistics: Sequence[Mapping[str, Any]], table: BackoffTable
) -> list[dict[str, Any]]:
    """Return the statistics of each order, with the n-grams that a pruned table has."""
    sizes = [*map(len, table.levels), *[0] * len(statistics)]
    return [{**of_order, "ngrams": size} for of_order, size in zip(statistics, sizes, strict=False)]
