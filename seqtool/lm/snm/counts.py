"""What is counted: how often each feature comes, and each feature with each target.

A row of the sparse matrix is a feature, its columns the targets that were seen with it:

    keys    [F]      uint64   of the features, those of one template together, ascending
    begins  [F + 1]  int32    row f has the pairs begins[f] to begins[f + 1]
    targets [P]      int32    of each pair, ascending in a row
    counts  [P]      int32    C_ij: how often the feature i was before the target j
    events  [T, K]   int32    the pair that each token is with its feature of each template, or -1

Building it takes about 80 bytes per token and thread beside that.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from seqtool.core.arrays import Ids, Ints, Longs
from seqtool.core.errors import DataError
from seqtool.lm.snm.features import NO_FEATURE, Templates, text_keys

LESS_MEMORY = "choose a lower --order, fewer skip-grams or a higher --prune, or give less text"
_MOST = np.iinfo(np.int32).max

Keys = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Counts:
    """Features of K templates with their targets; the arrays are above.

    Attributes:
        first: [K + 1] the first feature of each template; then F.
        feature_counts: int32 [F], C_i*: how often each feature was there.
        features: int32 [P], the feature of each pair.
        vocabulary_size: V.
    """

    keys: Keys
    first: Longs
    begins: Ints
    targets: Ints
    counts: Ints
    feature_counts: Ints
    features: Ints
    events: Ints
    vocabulary_size: int


class CountArrays(NamedTuple):
    """What compiled code reads of `Counts`."""

    first: Longs
    targets: Ints
    counts: Ints
    feature_counts: Ints
    features: Ints


counts_type = types.NamedTuple((types.int64[::1], *[types.int32[::1]] * 4), CountArrays)


class _Part(NamedTuple):
    """The features of one template."""

    keys: Keys
    sizes: Longs  # targets of each
    targets: Ints
    counts: Ints
    events: Ints  # [T], the pair within the template


def count_features(
    ids: Ids,
    templates: Templates,
    vocabulary_size: int,
    *,
    prune: int = 0,
    threads: int = 1,
    on_progress: Callable[[int, int | None], None] = lambda done, total: None,
) -> Counts:
    """Count the features of a text; the result does not depend on the number of threads.

    Args:
        ids: [T], `EOS_ID` after each sentence.
        templates: K of them.
        vocabulary_size: V; `<s>` has this id.
        prune: leave out features that occur at most this often; that of no word stays.
        threads: templates that are counted at once.
        on_progress: called with how many templates are done, and all.

    Raises:
        DataError: there are more pairs than 31 bits can number.
    """
    num_templates = len(templates.reach)
    events = np.empty((len(ids), num_templates), np.int32)

    def count(template: int) -> _Part:
        part = _count_template(ids, templates, template, vocabulary_size, prune)
        events[:, template] = part.events
        return part._replace(events=part.events[:0])

    with ThreadPoolExecutor(threads) as pool:
        parts = []
        for part in pool.map(count, range(num_templates)):
            parts.append(part)
            on_progress(len(parts), num_templates)
    num_pairs = np.array([len(part.targets) for part in parts])
    if num_pairs.sum() > _MOST:
        raise DataError(
            f"{num_pairs.sum():,} pairs of a feature and a target are more than one model holds",
            hint=LESS_MEMORY,
        )
    for template, shift in enumerate(np.cumsum(num_pairs)[:-1].tolist(), start=1):
        column = events[:, template]
        column[column >= 0] += np.int32(shift)
    sizes = np.concatenate([part.sizes for part in parts])
    counts = np.concatenate([part.counts for part in parts])
    begins = np.concatenate(([0], np.cumsum(sizes)))
    return Counts(
        keys=np.concatenate([part.keys for part in parts]),
        first=np.concatenate(([0], np.cumsum([len(part.keys) for part in parts]))),
        begins=begins.astype(np.int32),
        targets=np.concatenate([part.targets for part in parts]),
        counts=counts,
        # every feature has a target: of an empty range, reduceat would not give 0
        feature_counts=np.add.reduceat(counts, begins[:-1], dtype=np.int32),
        features=np.repeat(np.arange(len(sizes), dtype=np.int32), sizes),
        events=events,
        vocabulary_size=vocabulary_size,
    )


def _count_template(
    ids: Ids, templates: Templates, template: int, vocabulary_size: int, prune: int
) -> _Part:
    """Count the features of one template."""
    of_tokens = np.empty(len(ids), np.uint64)
    text_keys(templates, template, ids, np.int32(vocabulary_size), of_tokens)
    keys, rows, totals = np.unique(of_tokens, return_inverse=True, return_counts=True)
    del of_tokens
    is_kept = keys != NO_FEATURE
    if templates.reach[template]:
        is_kept &= totals > prune
    new_rows = np.cumsum(is_kept) - 1
    new_rows[~is_kept] = -1
    rows = new_rows[rows]
    events = np.full(len(ids), -1, np.int32)
    there = np.flatnonzero(rows >= 0)
    # in the order of these codes, pairs are sorted by feature, and then by target
    codes = rows[there] * vocabulary_size + ids[there]
    pairs, which, counts = np.unique(codes, return_inverse=True, return_counts=True)
    events[there] = which
    sizes = np.bincount(pairs // vocabulary_size, minlength=int(is_kept.sum()))
    targets = (pairs % vocabulary_size).astype(np.int32)
    return _Part(keys[is_kept], sizes, targets, counts.astype(np.int32), events)
