"""Several backoff tables as one: all their n-grams, and static interpolation over them.

The parts are laid out alike first: each gets a row for every n-gram that any of them has, with the
probability that it gives it, by backing off or not. So row r of every part, and of their mixture,
is the same n-gram, and

    p(w | h) = sum over the parts k of weight_k p_k(w | h)

holds exactly for all rows. For n-grams that no part has the mixture backs off, with weights that
make every context sum to 1 (as `ngram -mix-lm -bayes 0` of SRILM does).

The vocabulary is the union. A part gives words that it does not have a probability of 0, and after
one of them it goes on from the words behind it. `<unk>` is the unknown word of all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqtool.core.arrays import Doubles
from seqtool.core.vocabulary import Vocabulary
from seqtool.lm.ngram.backoff import BackingOff, contexts_of, with_weights
from seqtool.lm.ngram.table import BOS_NATS, BackoffTable, Float32, TableLevel


def union_of(vocabularies: Sequence[Vocabulary]) -> Vocabulary:
    """Return all their symbols, those of the first one first, with their counts added."""
    counts: dict[str, int] = {}
    for vocabulary in vocabularies:
        for symbol, count in zip(vocabulary.symbols, vocabulary.counts, strict=True):
            counts[symbol] = counts.get(symbol, 0) + count
    return Vocabulary(list(counts), list(counts.values()))


def aligned(
    tables: Sequence[BackoffTable], vocabularies: Sequence[Vocabulary], union: Vocabulary
) -> list[BackoffTable]:
    """Return tables that give the same probabilities, each with the n-grams of all of them.

    Args:
        tables: the parts.
        vocabularies: of each.
        union: of the tables that are returned.
    """
    num, order = len(union) + 1, max(table.order for table in tables)
    numbers = [
        np.append(union.encode(vocabulary.symbols), np.int32(num - 1)).astype(np.int64)
        for vocabulary in vocabularies
    ]
    # the n-grams of one order that any part has, and per part which of them each of its rows is
    words, begins, rows = np.arange(num, dtype=np.int32), np.array([0, num], np.int32), numbers
    backings: list[BackingOff] = []
    for n in range(order):
        if n:
            keys = [np.zeros(0, np.int64)] * len(tables)  # of parts without this order
            for part, table in enumerate(tables):
                if n < table.order:
                    level = table.levels[n]
                    keys[part] = rows[part][contexts_of(level)] * num + numbers[part][level.words]
            every = np.unique(np.concatenate(keys))
            begins = np.zeros(len(words) + 1, np.int32)
            np.cumsum(np.bincount(every // num, minlength=len(words)), out=begins[1:])
            words, rows = (
                (every % num).astype(np.int32),
                [np.searchsorted(every, of) for of in keys],
            )
        for part, table in enumerate(tables):
            backoffs = np.zeros(len(words) if n < order - 1 else 0, np.float32)
            log_probs, suffixes = np.full(len(words), -np.inf, np.float32), None
            if n:
                lower, suffixes = backings[part].lower(begins, words)
                log_probs = lower.astype(np.float32)
                log_probs += np.repeat(backings[part].levels[-1].backoffs, np.diff(begins))
            if n < table.order:
                log_probs[rows[part]] = table.levels[n].log_probs
            if n < table.order - 1:
                backoffs[rows[part]] = table.levels[n].backoffs
            filled = TableLevel(words, begins, log_probs, backoffs)
            if suffixes is None:
                backings.append(BackingOff(filled))
            else:
                backings[part].append(filled, suffixes)
    return [BackoffTable(tuple(backing.levels), len(union)) for backing in backings]


def interpolated(parts: Sequence[BackoffTable], weights: Sequence[float]) -> BackoffTable:
    """Return the mixture of tables that were laid out alike, with backoffs of its own.

    Args:
        parts: as `aligned` gives them.
        weights: of sum 1.
    """
    levels = []
    for of_order in zip(*(part.levels for part in parts), strict=True):
        first = of_order[0]
        log_probs = _mixed([level.log_probs for level in of_order], weights)
        # what stays where the mass that is left drowns in rounding
        backoffs = _mixed([level.backoffs for level in of_order], weights)
        levels.append(TableLevel(first.words, first.begins, log_probs, backoffs))
    levels[0].log_probs[-1] = BOS_NATS
    return with_weights(BackoffTable(tuple(levels), parts[0].vocabulary_size))


def _mixed(parts: Sequence[Float32], weights: Sequence[float]) -> Float32:
    """Return the logarithms of weighted sums, from those of the addends."""
    total: Doubles = np.full(len(parts[0]), -np.inf)
    with np.errstate(divide="ignore"):  # a weight of 0
        for part, log_weight in zip(parts, np.log(weights), strict=True):
            np.logaddexp(total, part + log_weight, out=total)
    return total.astype(np.float32)
