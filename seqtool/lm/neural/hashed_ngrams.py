"""A hash table of n-gram weights, as compiled loops over plain arrays.

Dimensions in names: S slots of the table, V vocabulary, N tokens, K contexts of a token (its last
word, its last two words, ...), C different contexts of a batch, M entries found for them, R rows.

The n-grams of one context lie side by side, so that those of all words are found in one sweep:

    slot    start(context) + 0   + 1   + 2  ...  + V-1    (after the last slot comes the first)
    word                   0     1     2          V-1
    mark                   7     .     7          9

A slot belongs to the first n-gram that claims it, and bears the mark of its context; 0 is free. An
n-gram whose slot bears another mark has no weight, so that no n-gram disturbs another.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from seqtool.core.compiled import compiled

_marks = types.int16[::1]
_ids = types.int64[::1]
_entries = types.int32[::1]


@compiled(types.void(_marks, _ids, _marks, types.int64[:, ::1], _ids))
def claim(marks_S, starts_C, marks_C, contexts_NK, targets_N):  # type: ignore[no-untyped-def]
    """Let the n-gram of each target have its slot, if it is free; mark -1 is no context."""
    size = len(marks_S)
    for token in range(len(targets_N)):
        if targets_N[token] < 0:
            continue
        for k in range(contexts_NK.shape[1]):
            context = contexts_NK[token, k]
            slot = starts_C[context] + targets_N[token]
            if slot >= size:
                slot -= size
            if marks_C[context] > 0 and marks_S[slot] == 0:
                marks_S[slot] = marks_C[context]


@compiled(types.int64(_marks, types.int64, types.int64, types.int16))
def _count(marks_S, begin, end, mark):  # type: ignore[no-untyped-def]
    found = 0
    for slot in range(begin, end):
        found += marks_S[slot] == mark
    return found


_found = types.Tuple((_ids, _entries, _ids))  # type: ignore[no-untyped-call]


@compiled(_found(_marks, _ids, _marks, types.int64))
def find(marks_S, starts_C, marks_C, num_words):  # type: ignore[no-untyped-def]
    """Return where each context's entries begin, [C + 1], and of each its word and slot, [M]."""
    size = len(marks_S)
    begins = np.zeros(len(starts_C) + 1, np.int64)
    for context in range(len(starts_C)):
        start, end = starts_C[context], starts_C[context] + num_words
        found = _count(marks_S, start, min(end, size), marks_C[context])
        found += _count(marks_S, 0, max(0, end - size), marks_C[context])
        begins[context + 1] = begins[context] + found
    words = np.empty(begins[-1], np.int32)
    slots = np.empty(begins[-1], np.int64)
    for context in range(len(starts_C)):
        entry, slot, word = begins[context], starts_C[context], 0
        while entry < begins[context + 1]:
            if slot == size:
                slot = 0
            if marks_S[slot] == marks_C[context]:
                words[entry], slots[entry] = word, slot
                entry += 1
            slot += 1
            word += 1
    return begins, words, slots


def _signatures(*names: str) -> list[Any]:
    """Return the signatures of a loop over logits, in single and in double precision."""
    fixed = {"rows": _ids, "contexts": types.int64[:, ::1], "begins": _ids, "words": _entries}
    signatures = []
    for kind in (types.float32, types.float64):
        of_kind = {"logits": kind[:, ::1], "vector": kind[::1]}
        signatures.append(types.void(*({**fixed, **of_kind}[name] for name in names)))
    return signatures


@compiled(_signatures("logits", "rows", "contexts", "begins", "words", "vector"))
def add(logits_RV, rows_R, contexts_NK, begins, words_M, weights_M):  # type: ignore[no-untyped-def]
    """Add the weights of the n-grams to the logits of the tokens `rows`."""
    for r in range(len(rows_R)):
        for k in range(contexts_NK.shape[1]):
            context = contexts_NK[rows_R[r], k]
            for entry in range(begins[context], begins[context + 1]):
                logits_RV[r, words_M[entry]] += weights_M[entry]


@compiled(_signatures("logits", "vector", "rows", "contexts", "begins", "words", "vector"))
def collect(grads_RV, shares_R, rows_R, contexts_NK, begins, words_M, grad_M):  # type: ignore[no-untyped-def]
    """Add the gradients of logits, each row times its share, to those of the n-grams' weights."""
    for r in range(len(rows_R)):
        share = shares_R[r]
        for k in range(contexts_NK.shape[1]):
            context = contexts_NK[rows_R[r], k]
            for entry in range(begins[context], begins[context + 1]):
                grad_M[entry] += share * grads_RV[r, words_M[entry]]
