"""Word classes by the exchange algorithm (Kneser & Ney 1993; Martin, Liermann & Ney 1998).

Each word belongs to one class. A class bigram model by relative frequencies,

    p(w | v) = p(g(w) | g(v)) p(w | g(w)),

gives the text a log-likelihood of F plus a constant that no classes change, with

    F = sum over g, h of xlogx(N(g, h)) - 2 sum over g of xlogx(N(g)),      xlogx(n) = n log n

N(g, h) is how often a word of class h follows one of class g, and N(g) how often words of class g
occur. Words are taken one after another, the most frequent first; each goes to the class where F
is the highest. So F never falls. It is over when no word moves.

`</s>` and the `<s>` after it are one word here, the boundary, alone in class 0. Shapes: V words, C
classes with that of the boundary, B different bigrams.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from seqtool.core.arrays import Ints
from seqtool.core.errors import ConfigError
from seqtool.core.jit import compiled
from seqtool.core.reading import Progress
from seqtool.core.runtime import check_memory
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.ngram.config import WordsConfig
from seqtool.lm.ngram.counts import count_ngrams
from seqtool.lm.ngram.data import given_splits, read_ids
from seqtool.lm.ngram.train import OnProgress, Stages
from seqtool.text.word_classes import check_words

_BYTES_PER_PAIR = 16  # of classes
_TABLE_SIZE = 1 << 16  # n log n of smaller n is looked up
_WORDS_AT_ONCE = 256  # between two looks at the progress, and at Ctrl-C
_LEAST_GAIN = 1e-7  # nats; what is smaller may be rounding, and words could go round for ever


class Text(NamedTuple):
    """The bigrams of a text, the boundary as word `EOS_ID`.

    They stand there twice: sorted by their first words (side 0), and by their second words (1).

    Attributes:
        begins: int32 [2, V + 1], those of word w are begins[side, w] to begins[side, w + 1] - 1.
        others: int32 [2, B], the word that w stands with in each, perhaps itself.
        counts: int32 [2, B], how often it occurs.
        nums: int32 [V], how often each word occurs.
    """

    begins: Ints
    others: Ints
    counts: Ints
    nums: Ints


_int32s, _int64s, _doubles = types.int32[::1], types.int64[::1], types.float64[::1]
_text = types.NamedTuple((*[types.int32[:, ::1]] * 3, _int32s), Text)
_beside, _pairs = types.int64[:, ::1], types.int64[:, :, ::1]


@compiled(types.float64(types.int64, _doubles))
def _xlogx(num, logs):  # type: ignore[no-untyped-def]
    return logs[num] if num < logs.shape[0] else num * math.log(num)


@compiled(types.void(types.int64, types.int64, types.int64, _beside, _pairs, _int64s))
def _put(sign, class_, num, beside, pairs, sizes):  # type: ignore[no-untyped-def]
    """Count a word in as one of a class (sign 1), or out (sign -1).

    `beside` [2, C + 1] says how often each class stands after it and before it; the last column is
    of the word itself.
    """
    sizes[class_] += sign * num
    for side in range(2):
        for other in range(sizes.shape[0]):
            pairs[side, class_, other] += sign * beside[side, other]
            # the two tables are transposes of one another: both change
            pairs[1 - side, other, class_] += sign * beside[side, other]
        # a word after itself is one pair, and is counted once in each table
        pairs[side, class_, class_] += sign * beside[side, -1]


@compiled(types.void(types.int64, _beside, _pairs, _int64s, _doubles, _doubles))
def _find_gains(num, beside, pairs, sizes, logs, gains):  # type: ignore[no-untyped-def]
    """Fill in by how much F grows where a word that is counted out goes to each class, [C]."""
    for class_ in range(gains.shape[0]):
        size, pair = sizes[class_], pairs[0, class_, class_]
        after, before = beside[0, class_], beside[1, class_]
        # its pair with itself grows by all of these at once; the loop below takes each side alone
        at_once = _xlogx(pair + after + before + beside[0, -1], logs) + _xlogx(pair, logs)
        alone = _xlogx(pair + after, logs) + _xlogx(pair + before, logs)
        gains[class_] = at_once - alone - 2 * (_xlogx(size + num, logs) - _xlogx(size, logs))
    for other in range(gains.shape[0]):
        for side in range(2):
            more = beside[side, other]
            if more > 0:  # most classes never stand beside a rare word
                for class_ in range(gains.shape[0]):  # a row, so that memory is read in its order
                    pair = pairs[1 - side, other, class_]
                    gains[class_] += _xlogx(pair + more, logs) - _xlogx(pair, logs)


@compiled(types.int64(_int32s, _text, _int32s, _pairs, _int64s, _doubles))
def exchange(words, text, class_V, pairs, sizes, logs):  # type: ignore[no-untyped-def]
    """Move each of some words to its best class; return how many moved.

    Args:
        words: int32, their numbers.
        text: its bigrams.
        class_V: int32 [V], of each word; changed in place, as are the counts.
        pairs: int64 [2, C, C], N(g, h) and, for side 1, N(h, g).
        sizes: int64 [C], N(g).
        logs: n log n of small n.
    """
    num_classes, num_moved = sizes.shape[0], 0
    beside, gains = np.empty((2, num_classes + 1), np.int64), np.empty(num_classes)
    for word in words:
        num, old = text.nums[word], class_V[word]
        class_V[word] = num_classes  # alone, so that the word beside itself is counted apart
        beside[:] = 0
        for side in range(2):
            for place in range(text.begins[side, word], text.begins[side, word + 1]):
                beside[side, class_V[text.others[side, place]]] += text.counts[side, place]
        _put(-1, old, num, beside, pairs, sizes)
        _find_gains(num, beside, pairs, sizes, logs, gains)
        best = old
        for class_ in range(1, num_classes):  # none joins the boundary
            if gains[class_] > gains[best] + _LEAST_GAIN:
                best = class_
        _put(1, best, num, beside, pairs, sizes)
        class_V[word] = best
        num_moved += best != old
    return num_moved


def bigrams(ids: npt.NDArray[Any], vocabulary_size: int, *, threads: int = 1) -> Text:
    """Count the bigrams of a text.

    Args:
        ids: [T], `EOS_ID` after each sentence.
        vocabulary_size: V.
        threads: that count.
    """
    unigrams, level = count_ngrams(ids, 2, vocabulary_size, threads=threads).levels
    first = np.repeat(np.arange(vocabulary_size + 1), np.diff(level.begins))
    first[first == vocabulary_size] = EOS_ID  # `<s>`
    words = np.stack((first, level.words)).astype(np.int32)
    order = np.argsort(words, axis=1, kind="stable")
    ends = [np.bincount(side, minlength=vocabulary_size).cumsum() for side in words]
    return Text(
        np.pad(ends, ((0, 0), (1, 0))).astype(np.int32),
        np.take_along_axis(words[::-1], order, axis=1),
        level.counts[order],
        unigrams.counts[:vocabulary_size].copy(),
    )


def count_pairs(text: Text, class_V: Ints, num_classes: int) -> npt.NDArray[np.int64]:
    """Return N(g, h) and N(h, g), [2, C, C]; of C classes, that of the boundary counted."""
    pairs = np.zeros((2, num_classes, num_classes), np.int64)
    first = np.repeat(class_V, np.diff(text.begins[0]))
    np.add.at(pairs[0], (first, class_V[text.others[0]]), text.counts[0])
    pairs[1] = pairs[0].T
    return pairs


def log_likelihood(text: Text, pairs: npt.NDArray[np.int64]) -> float:
    """Return the log-likelihood of the text, in nats: F, and the sum of xlogx of words' counts."""
    parts = [pairs[0], pairs[0].sum(axis=1), text.nums]
    of_pairs, of_classes, of_words = (float((n * np.log(np.maximum(n, 1))).sum()) for n in parts)
    return of_pairs - 2 * of_classes + of_words


def cluster(
    text: Text, num_classes: int, *, max_sweeps: int, on_progress: Progress | None = None
) -> tuple[Ints, list[int], list[float]]:
    """Put words into classes: sweep by sweep, each word to its best class, until none moves.

    To begin with, the classes have about equal shares of the text, by the words' frequencies: a few
    frequent words, or many rare ones.

    Args:
        text: its bigrams.
        num_classes: C, without the class of the boundary.
        max_sweeps: how many times each word is taken, at most.
        on_progress: called with the words that were taken in a sweep, and their number.

    Returns:
        int32 [V], the class of each word, 1 to C; 0 for `</s>` and what does not occur. Per sweep,
        how many words changed their class. The log-likelihood of the text by a class bigram model
        with relative frequencies, in nats: to begin with, and after each sweep.

    Raises:
        ConfigError: fewer words than classes.
    """
    words = np.argsort(-text.nums, kind="stable").astype(np.int32)
    words = words[(text.nums[words] > 0) & (words != EOS_ID)]
    if num_classes > len(words):
        raise ConfigError(
            f"{num_classes:,} classes are wanted, but the text has {len(words):,} words",
            hint="choose fewer with --num",
        )
    class_V = np.zeros(len(text.nums), np.int32)
    nums = text.nums[words].astype(np.int64)
    # by the share of the text before each word; in int64, as the sums are taken C times
    class_V[words] = 1 + (nums.cumsum() - nums) * num_classes // nums.sum()
    pairs = count_pairs(text, class_V, num_classes + 1)
    sizes = pairs[0].sum(axis=1)
    numbers = np.arange(1, _TABLE_SIZE, dtype=np.float64)
    logs = np.concatenate(([0.0], numbers * np.log(numbers)))
    all_moved: list[int] = []
    log_likelihoods = [log_likelihood(text, pairs)]
    while len(all_moved) < max_sweeps and all_moved[-1:] != [0]:
        num_moved = 0
        for begin in range(0, len(words), _WORDS_AT_ONCE):
            some = words[begin : begin + _WORDS_AT_ONCE]
            num_moved += exchange(some, text, class_V, pairs, sizes, logs)
            if on_progress is not None:
                on_progress(begin + len(some), len(words))
        all_moved.append(num_moved)
        log_likelihoods.append(log_likelihood(text, pairs))
    return class_V, all_moved, log_likelihoods


@dataclass(frozen=True)
class MadeClasses:
    """Classes that were made of a text.

    Attributes:
        classes: the words of each, the most frequent ones first; the largest class first.
        shares: of each class, the share of the text's words.
        word_shares: of each word of each class, its share of the class.
        perplexities: of the text by a class bigram model, to begin with and after each sweep.
        num_moved: per sweep, how many words changed their class.
    """

    classes: list[list[str]]
    shares: list[float]
    word_shares: list[list[float]]
    perplexities: list[float]
    num_moved: list[int]


def make_classes(
    inputs: Sequence[str | Path],
    config: WordsConfig,
    *,
    num: int,
    max_sweeps: int,
    field: str | None = None,
    threads: int = 1,
    memory: int | None = None,
    on_progress: OnProgress | None = None,
) -> MadeClasses:
    """Make classes of the words of a text by the exchange algorithm.

    Args:
        inputs: text or a prepared corpus of words, as for `train_ngram`.
        config: which words there are; those that do not occur get no class.
        num: how many classes.
        max_sweeps: how many times each word is taken, at most.
        field: which field of .jsonl files holds the text.
        threads: that count.
        memory: how many bytes the process may take; what the machine has when None.
        on_progress: called with the stage and its progress.

    Raises:
        ConfigError: fewer words than classes, or units that are no words.
        DataError: text that is not there, empty, damaged or too large for the memory.
    """
    texts, _ = given_splits(inputs)
    stages = Stages(on_progress)
    with stages("reading") as on_read:
        reading = read_ids(texts, config, field=field, memory=memory, on_progress=on_read)
    check_words(reading.tokenizer)
    check_memory(_BYTES_PER_PAIR * num**2, f"{num:,} classes", "choose fewer with --num", memory)
    symbols = reading.tokenizer.vocabulary.symbols
    with stages("clustering") as on_cluster:
        text = bigrams(reading.ids, len(symbols), threads=threads)
        class_V, num_moved, log_likelihoods = cluster(
            text, num, max_sweeps=max_sweeps, on_progress=on_cluster
        )
    sizes = np.bincount(class_V, text.nums, minlength=num + 1)[1:]
    by_size = np.argsort(-sizes, kind="stable")
    by_count = np.argsort(-text.nums, kind="stable")
    members = [by_count[class_V[by_count] == 1 + class_] for class_ in by_size.tolist()]
    return MadeClasses(
        [[symbols[word] for word in words.tolist()] for words in members],
        (sizes[by_size] / sizes.sum()).tolist(),
        [(text.nums[words] / text.nums[words].sum()).tolist() for words in members],
        np.exp(-np.array(log_likelihoods) / len(reading.ids)).tolist(),
        num_moved,
    )
