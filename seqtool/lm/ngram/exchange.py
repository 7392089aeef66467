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

from seqtool.core import types
from seqtool.core.arrays import Doubles, Ints, Longs
from seqtool.core.compiled import compiled
from seqtool.core.errors import ConfigError
from seqtool.core.reading import Progress
from seqtool.core.runtime import check_memory
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.ngram.classes import check_words
from seqtool.lm.ngram.config import WordsConfig
from seqtool.lm.ngram.counts import count_ngrams
from seqtool.lm.ngram.data import given_splits, read_ids
from seqtool.lm.ngram.train import OnProgress, Stages

_BYTES_PER_PAIR = 16  # of classes
_TABLE_SIZE = 1 << 16  # n log n of smaller n is looked up
_WORDS_AT_ONCE = 256  # between two looks at the progress, and at Ctrl-C
_LEAST_GAIN = 1e-7  # nats; what is smaller may be rounding, and words could go round for ever


class Neighbours(NamedTuple):
    """The words beside each word, on one side.

    Attributes:
        begins: int32 [V + 1], those of word w are begins[w] to begins[w + 1] - 1.
        words: int32 [B], never w itself.
        counts: int32 [B], how often both stand together.
    """

    begins: Ints
    words: Ints
    counts: Ints


class Text(NamedTuple):
    """The bigrams of a text, the boundary as word `EOS_ID`.

    Attributes:
        after: the words after each word.
        before: the words before each word.
        itself: int32 [V], how often a word stands beside itself.
        counts: int32 [V], how often it occurs.
    """

    after: Neighbours
    before: Neighbours
    itself: Ints
    counts: Ints


class Classes(NamedTuple):
    """The classes as they are, changed in place.

    Attributes:
        class_V: int32 [V], of each word; that of a word that does not occur is of no meaning.
        pairs: int64 [C, C], N(g, h).
        pairs_T: int64 [C, C], N(g, h) in row h.
        sizes: int64 [C], N(g).
    """

    class_V: Ints
    pairs: npt.NDArray[np.int64]
    pairs_T: npt.NDArray[np.int64]
    sizes: Longs


_int32s, _int64s, _doubles = types.int32[::1], types.int64[::1], types.float64[::1]
_neighbours = types.NamedUniTuple(_int32s, 3, Neighbours)
_text = types.NamedTuple((_neighbours, _neighbours, _int32s, _int32s), Text)
_table = types.int64[:, ::1]
_classes = types.NamedTuple((_int32s, _table, _table, _int64s), Classes)


@compiled(types.float64(types.int64, _doubles))
def _xlogx(num, logs):  # type: ignore[no-untyped-def]
    return logs[num] if num < logs.shape[0] else num * math.log(num)


@compiled(types.void(_int32s, types.int64, _neighbours, _int64s))
def _by_class(class_V, word, neighbours, nums):  # type: ignore[no-untyped-def]
    """Count the neighbours of a word by their classes, [C]."""
    nums[:] = 0
    for place in range(neighbours.begins[word], neighbours.begins[word + 1]):
        nums[class_V[neighbours.words[place]]] += neighbours.counts[place]


@compiled(
    types.void(types.int64, types.int64, types.int64, types.int64, _int64s, _int64s, _classes)
)
def _put(sign, class_, num, itself, after, before, classes):  # type: ignore[no-untyped-def]
    """Count a word in as one of a class (sign 1), or out (sign -1)."""
    classes.sizes[class_] += sign * num
    for other in range(after.shape[0]):
        classes.pairs[class_, other] += sign * after[other]
        classes.pairs_T[other, class_] += sign * after[other]
        classes.pairs[other, class_] += sign * before[other]
        classes.pairs_T[class_, other] += sign * before[other]
    classes.pairs[class_, class_] += sign * itself
    classes.pairs_T[class_, class_] += sign * itself


@compiled(types.void(types.int64, types.int64, _int64s, _int64s, _classes, _doubles, _doubles))
def _find_gains(num, itself, after, before, classes, logs, gains):  # type: ignore[no-untyped-def]
    """Fill in by how much F grows where a word that is counted out goes to each class, [C]."""
    for class_ in range(gains.shape[0]):
        size = classes.sizes[class_]
        gains[class_] = -2 * (_xlogx(size + num, logs) - _xlogx(size, logs))
    for other in range(gains.shape[0]):
        # row by row, so that memory is read in its order. The pair of a class with itself grows by
        # both sides and by the word beside itself at once: that is put right below
        if after[other] > 0:
            for class_ in range(gains.shape[0]):
                pair = classes.pairs_T[other, class_]
                gains[class_] += _xlogx(pair + after[other], logs) - _xlogx(pair, logs)
        if before[other] > 0:
            for class_ in range(gains.shape[0]):
                pair = classes.pairs[other, class_]
                gains[class_] += _xlogx(pair + before[other], logs) - _xlogx(pair, logs)
    for class_ in range(gains.shape[0]):
        pair = classes.pairs[class_, class_]
        at_once = _xlogx(pair + after[class_] + before[class_] + itself, logs)
        alone = _xlogx(pair + after[class_], logs) + _xlogx(pair + before[class_], logs)
        gains[class_] += at_once + _xlogx(pair, logs) - alone


@compiled(types.int64(_int32s, _text, _classes, _doubles))
def exchange(words, text, classes, logs):  # type: ignore[no-untyped-def]
    """Move each of some words to its best class; return how many moved.

    `logs` holds n log n for small n.
    """
    num_classes = classes.sizes.shape[0]
    after, before = np.empty(num_classes, np.int64), np.empty(num_classes, np.int64)
    gains = np.empty(num_classes)
    num_moved = 0
    for word in words:
        num, itself, old = text.counts[word], text.itself[word], classes.class_V[word]
        _by_class(classes.class_V, word, text.after, after)
        _by_class(classes.class_V, word, text.before, before)
        _put(-1, old, num, itself, after, before, classes)
        _find_gains(num, itself, after, before, classes, logs, gains)
        best = old
        for class_ in range(1, num_classes):  # none joins the boundary
            if gains[class_] > gains[best] + _LEAST_GAIN:
                best = class_
        _put(1, best, num, itself, after, before, classes)
        classes.class_V[word] = best
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
    is_itself = first == level.words
    itself = np.bincount(first[is_itself], level.counts[is_itself], minlength=vocabulary_size)
    first, second, counts = (array[~is_itself] for array in (first, level.words, level.counts))
    return Text(
        _grouped(first, second, counts, vocabulary_size),
        _grouped(second, first, counts, vocabulary_size),
        itself.astype(np.int32),
        unigrams.counts[:vocabulary_size].copy(),
    )


def _grouped(by: Any, words: Any, counts: Ints, size: int) -> Neighbours:
    order = np.argsort(by, kind="stable")
    begins = np.concatenate(([0], np.bincount(by, minlength=size).cumsum()))
    return Neighbours(begins.astype(np.int32), words[order].astype(np.int32), counts[order])


@dataclass(frozen=True)
class Clustering:
    """Words in classes.

    Attributes:
        class_V: int32 [V], the class of each word, 1 to C; 0 for `</s>` and what does not occur.
        num_moved: per sweep, how many words changed their class.
        log_likelihoods: of the text by a class bigram model with relative frequencies, nats: to
            begin with, and after each sweep.
    """

    class_V: Ints
    num_moved: list[int]
    log_likelihoods: list[float]


def cluster(
    text: Text, num_classes: int, *, max_sweeps: int, on_progress: Progress | None = None
) -> Clustering:
    """Put words into classes: sweep by sweep, each word to its best class, until none moves.

    To begin with, the classes have about equal shares of the text, by the words' frequencies: a few
    frequent words, or many rare ones. This ends better than the start of Martin et al., where each
    of the most frequent words has a class and the last class all others (PTB train, 100 classes: a
    bigram perplexity of 269.4 instead of 271.2; shipped sample, 40 classes: 65.3 instead of 75.1).

    Args:
        text: its bigrams.
        num_classes: C, without the class of the boundary.
        max_sweeps: how many times each word is taken, at most.
        on_progress: called with the words that were taken in a sweep, and their number.

    Raises:
        ConfigError: fewer words than classes.
    """
    words = np.argsort(-text.counts, kind="stable").astype(np.int32)
    words = words[(text.counts[words] > 0) & (words != EOS_ID)]
    if num_classes > len(words):
        raise ConfigError(
            f"{num_classes:,} classes are wanted, but the text has {len(words):,} words",
            hint="choose fewer with --num",
        )
    class_V = np.zeros(len(text.counts), np.int32)
    counts = text.counts[words].astype(np.int64)
    class_V[words] = 1 + (counts.cumsum() - counts) * num_classes // counts.sum()
    classes = classes_of(text, class_V, num_classes + 1)
    numbers = np.arange(1, _TABLE_SIZE, dtype=np.float64)
    logs = np.concatenate(([0.0], numbers * np.log(numbers)))
    result = Clustering(class_V, [], [log_likelihood(text, classes)])
    while len(result.num_moved) < max_sweeps and result.num_moved[-1:] != [0]:
        num_moved = 0
        for begin in range(0, len(words), _WORDS_AT_ONCE):
            some = words[begin : begin + _WORDS_AT_ONCE]
            num_moved += exchange(some, text, classes, logs)
            if on_progress is not None:
                on_progress(begin + len(some), len(words))
        result.num_moved.append(num_moved)
        result.log_likelihoods.append(log_likelihood(text, classes))
    return result


def classes_of(text: Text, class_V: Ints, num_classes: int) -> Classes:
    """Return the counts of classes; of C classes, that of the boundary counted."""
    pairs = np.zeros((num_classes, num_classes), np.int64)
    first = np.repeat(class_V, np.diff(text.after.begins))
    np.add.at(pairs, (first, class_V[text.after.words]), text.after.counts)
    np.add.at(pairs, (class_V, class_V), text.itself)
    sizes = np.bincount(class_V, text.counts, minlength=num_classes).astype(np.int64)
    return Classes(class_V, pairs, pairs.T.copy(), sizes)


def log_likelihood(text: Text, classes: Classes) -> float:
    """Return the log-likelihood of the text, in nats: F, and the sum of xlogx of words' counts."""
    parts = classes.pairs.ravel(), classes.sizes, classes.sizes, text.counts
    of_pairs, of_classes, again, of_words = (_sum(part.astype(np.float64)) for part in parts)
    return of_pairs - of_classes - again + of_words


def _sum(nums: Doubles) -> float:
    nums = nums[nums > 0]
    return float((nums * np.log(nums)).sum())


@dataclass(frozen=True)
class MadeClasses:
    """Classes that were made of a text.

    Attributes:
        classes: the words of each, the most frequent ones first; the largest class first.
        shares: of each class, the share of the text's words.
        perplexities: of the text by a class bigram model with relative frequencies, to begin with
            and after each sweep over the words.
        num_moved: per sweep, how many words changed their class.
    """

    classes: list[list[str]]
    shares: list[float]
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
        found = cluster(text, num, max_sweeps=max_sweeps, on_progress=on_cluster)
    sizes = np.bincount(found.class_V, text.counts, minlength=num + 1)[1:]
    by_size = np.argsort(-sizes, kind="stable")
    by_count = np.argsort(-text.counts, kind="stable")
    classes = [
        [symbols[word] for word in by_count[found.class_V[by_count] == 1 + class_].tolist()]
        for class_ in by_size.tolist()
    ]
    return MadeClasses(
        classes,
        (sizes[by_size] / sizes.sum()).tolist(),
        np.exp(-np.array(found.log_likelihoods) / len(reading.ids)).tolist(),
        found.num_moved,
    )
