"""The compiled loops of the tagger. Imports Numba, so on use only."""

from __future__ import annotations

import numpy as np
from numba import types

from seqtool.core.compiled import compiled

_ints = types.int32[::1]
_floats = types.float32[:, ::1]


@compiled(types.void(types.float32[:, :, ::1], types.float32[::1], _ints, _ints, _floats))
def strongest(products, bias, symbols, lengths, vectors):  # type: ignore[no-untyped-def]
    """What each filter finds at most in each form, zero at least.

    Args:
        products: [K, num_symbols, F]; those of PAD are not used: beyond a form there is nothing.
        bias: [F].
        symbols: of forms, one after another.
        lengths: of each.
        vectors: [U, F], is written.
    """
    width, num_filters = products.shape[0], products.shape[2]
    half = width // 2
    sums = np.empty(num_filters, np.float32)
    begin = 0
    for form in range(lengths.shape[0]):
        end = begin + lengths[form]
        best = vectors[form]
        best[:] = np.float32(0.0)
        for place in range(begin, end):
            sums[:] = bias
            for offset in range(width):
                at = place + offset - half
                if begin <= at < end:
                    row = products[offset, symbols[at]]
                    for unit in range(num_filters):
                        sums[unit] += row[unit]
            for unit in range(num_filters):
                best[unit] = max(best[unit], sums[unit])
        begin = end


@compiled(types.void(_floats, types.int32[:, ::1], _ints, types.int32[:, ::1], _ints))
def best_bundles(scores, bundles, starts, kept, best):  # type: ignore[no-untyped-def]
    """The bundle of the highest score of each word; the first one of equals.

    Args:
        scores: [T, sum of the columns' values], of one column after another.
        bundles: [B, columns], the value of each column.
        starts: [columns], where the scores of each column begin.
        kept: [T, columns], the value that is there, -1 where there is none.
        best: [T], is written. As few kept values as can be differ from those of the bundle.
    """
    num_columns = bundles.shape[1]
    for token in range(scores.shape[0]):
        highest = np.float32(-np.inf)
        fewest = num_columns + 1
        for bundle in range(bundles.shape[0]):
            score, differing = np.float32(0.0), 0
            for column in range(num_columns):
                value = bundles[bundle, column]
                score += scores[token, starts[column] + value]
                wanted = kept[token, column]
                if wanted >= 0 and wanted != value:
                    differing += 1
            if differing < fewest or (differing == fewest and score > highest):
                highest, fewest = score, differing
                best[token] = bundle
