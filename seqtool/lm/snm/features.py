"""Features of a history, how often they come, and the settings that say which there are.

A template says which words of the history a feature is made of: its last words as n-grams, and
words further back as skip-grams. A feature is known by a hash of its template and its words, 64
bits. Of ten million features, two have the same one in one text out of 400,000.

    history      <s> the old dog that          adjacent words, gap, remote words before the target
    trigram               . dog that           a = 2
    skip-gram         old . that               a = 1, s = 1, r = 1

Skip-grams are those of Pelemans, Shazeer & Chelba (2016): r remote words, s words that are skipped,
a adjacent words. A feature does not reach beyond the `<s>` of its sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from seqtool.core.arrays import Ids, Ints, Longs
from seqtool.core.config import setting
from seqtool.core.errors import ConfigError, DataError
from seqtool.core.jit import compiled
from seqtool.core.string_table import SEED, mix
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.ngram.config import WordsConfig
from seqtool.training.config import seconds_of

MOST_TEMPLATES = 1000
LESS_MEMORY = "choose a lower --order, fewer skip-grams or a higher --prune, or give less text"
NO_FEATURE = np.uint64(0)  # in the place of a key, where a template reaches beyond `<s>`
_LONGEST = 100  # words that a feature reaches back
_MOST = np.iinfo(np.int32).max
_ONE = np.uint64(1)

Keys = npt.NDArray[np.uint64]


class Template(NamedTuple):
    """Which words of a history a feature is made of; an n-gram where no word is skipped."""

    remote: int
    skipped: int
    adjacent: int

    @property
    def offsets(self) -> tuple[int, ...]:
        """How far before the target each of the words stands, from 1."""
        first = self.adjacent + self.skipped + 1
        return (*range(1, self.adjacent + 1), *range(first, first + self.remote))


@dataclass(frozen=True)
class SnmConfig(WordsConfig):
    """Which features a sparse non-negative matrix has, and how it is learnt."""

    order: int = setting(
        5, "the most words of a feature, its target counted", minimum=1, maximum=_LONGEST
    )
    remote: int = setting(
        2, "the most words of a skip-gram before its gap; 0 for n-grams alone", minimum=0
    )
    gap: int = setting(
        3, "the most words that a skip-gram skips", minimum=0, maximum=_LONGEST, when="remote > 0"
    )
    adjacent: int = setting(
        2, "the most words between the gap and the target", minimum=0, when="remote > 0"
    )
    prune: int = setting(0, "leave out features that occur at most this often", minimum=0)
    epochs: int = setting(2, "passes over the text; 0 leaves relative frequencies", minimum=0)
    learning_rate: float = setting(
        0.05, "learning rate of AdaGrad", above=0, when="epochs > 0 or time_limit is set"
    )
    time_limit: str | None = setting(
        None,
        "train for so long (90s, 15m, 1h30m) in place of --epochs; the learning rate falls to zero "
        "by then",
    )
    table_bits: int = setting(
        22,
        "room for 2 to the power of this many weights of metafeatures",
        minimum=8,
        maximum=30,
        when="epochs > 0 or time_limit is set",
    )

    @property
    def templates(self) -> list[Template]:
        """The features: n-grams, shortest first, then skip-grams."""
        skip_grams = [
            Template(r, s, a)
            for s in range(1, self.gap + 1)
            for r in range(1, self.remote + 1)
            for a in range(min(self.adjacent, self.order - 1 - r) + 1)
        ]
        return [Template(0, 0, num) for num in range(self.order)] + skip_grams

    def check(self) -> None:
        """Refuse settings that contradict one another."""
        super().check()
        if self.time_limit is not None:
            seconds_of(self.time_limit)
        if self.remote and (not self.gap or self.order < 2):
            raise ConfigError(
                f"remote is {self.remote}, but gap is {self.gap} and order {self.order}: a "
                "skip-gram has a gap, and a word before it",
                hint="raise gap and order, or set remote to 0 for n-grams alone",
            )
        if self.remote * self.gap > MOST_TEMPLATES or len(self.templates) > MOST_TEMPLATES:
            raise ConfigError(
                f"remote, gap and adjacent give more than {MOST_TEMPLATES:,} kinds of features",
                hint="lower one of them; remote 2, gap 3 and adjacent 2 give 18 kinds",
            )


class Templates(NamedTuple):
    """K templates of at most M words.

    Attributes:
        offsets: [K, M] how far before the target each word stands, ascending, from 1; 0 for none.
        reach: [K] the largest of them; 0 where a template has no words.
    """

    offsets: Ints
    reach: Ints


templates_type = types.NamedTuple((types.int32[:, ::1], types.int32[::1]), Templates)


def as_arrays(templates: Sequence[Template]) -> Templates:
    """Return templates as compiled code takes them."""
    most = max(1, *(len(template.offsets) for template in templates))
    offsets = np.zeros((len(templates), most), np.int32)
    for row, template in zip(offsets, templates, strict=True):
        row[: len(template.offsets)] = template.offsets
    return Templates(offsets, offsets.max(axis=1))


@compiled(types.uint64(templates_type, types.int64, types.int32[::1]))
def feature_key(templates, template, history):  # type: ignore[no-untyped-def]
    """Return the key of the feature of a template; `NO_FEATURE` if it reaches too far.

    Args:
        templates: all of them.
        template: the number of this one.
        history: the last words, the latest first; -1 beyond the beginning of the sentence.
    """
    reach = templates.reach[template]
    # where the furthest word is there, so are all nearer ones
    if reach > 0 and history[reach - 1] < 0:
        return NO_FEATURE
    key = mix(SEED, np.uint64(template))
    for place in range(templates.offsets.shape[1]):
        offset = templates.offsets[template, place]
        if offset == 0:
            break
        key = mix(key, np.uint64(history[offset - 1]))
    return key | _ONE  # never 0, which is `NO_FEATURE`


@compiled(types.void(types.int32[::1], types.int32, types.int32))
def advance(history, word, bos):  # type: ignore[no-untyped-def]
    """Let a history end with one word more; after `</s>` it is that of a new sentence."""
    if word == EOS_ID:
        for place in range(history.shape[0]):
            history[place] = -1
        word = bos
    for place in range(history.shape[0] - 1, 0, -1):
        history[place] = history[place - 1]
    if history.shape[0] > 0:
        history[0] = word


@compiled(types.void(templates_type, types.int64, types.int32[::1], types.int32, types.uint64[::1]))
def text_keys(templates, template, ids, bos, keys):  # type: ignore[no-untyped-def]
    """Find the feature of one template for each token of a text.

    Args:
        templates: all of them.
        template: the number of this one.
        ids: [T], `EOS_ID` after each sentence.
        bos: the id of `<s>`.
        keys: [T] is filled.
    """
    history = np.full(templates.reach[template], np.int32(-1), np.int32)
    # a text begins like a sentence after another's end
    advance(history, np.int32(EOS_ID), bos)
    for token in range(ids.shape[0]):
        keys[token] = feature_key(templates, template, history)
        advance(history, ids[token], bos)


def empty_histories(num: int, templates: Templates, bos: int) -> Ids:
    """Return histories that stand at the beginning of a sentence, [num, the longest reach]."""
    histories = np.full((num, int(templates.reach.max())), -1, np.int32)
    histories[:, :1] = bos
    return histories


class Counts(NamedTuple):
    """Features of K templates with their targets: a sparse matrix, of which they are the rows.

    Attributes:
        keys: uint64 [F], of the features, those of one template together, ascending.
        first: int64 [K + 1], the first feature of each template; then F.
        begins: int32 [F + 1], row f has the pairs begins[f] to begins[f + 1].
        targets: int32 [P], the target of each pair, ascending in a row.
        counts: int32 [P], C_ij: how often the feature i was before the target j.
        feature_counts: int32 [F], C_i*: how often each feature was there.
        features: int32 [P], the feature of each pair.
        events: int32 [T, K], the pair that each token is with its feature of each template, or -1.
    """

    keys: Keys
    first: Longs
    begins: Ints
    targets: Ints
    counts: Ints
    feature_counts: Ints
    features: Ints
    events: Ints


counts_type = types.NamedTuple(
    (types.uint64[::1], types.int64[::1], *[types.int32[::1]] * 5, types.int32[:, ::1]), Counts
)


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

    It takes about 80 bytes per token and thread beside what is returned.

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

    def count(template: int) -> tuple[Keys, Longs, Ints, Ints]:
        column = events[:, template]
        return _count_template(ids, templates, template, vocabulary_size, prune, column)

    with ThreadPoolExecutor(threads) as pool:
        parts = []
        for part in pool.map(count, range(num_templates)):
            parts.append(part)
            on_progress(len(parts), num_templates)
    keys, sizes, targets, counts = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    if len(targets) > _MOST:
        raise DataError(
            f"{len(targets):,} pairs of a feature and a target are more than one model holds",
            hint=LESS_MEMORY,
        )
    num_pairs = [len(part[2]) for part in parts]
    for template, shift in enumerate(np.cumsum(num_pairs)[:-1].tolist(), start=1):
        column = events[:, template]
        column[column >= 0] += np.int32(shift)
    begins = np.append(0, np.cumsum(sizes))
    return Counts(
        keys=keys,
        first=np.append(0, np.cumsum([len(part[0]) for part in parts])),
        begins=begins.astype(np.int32),
        targets=targets,
        counts=counts,
        # every feature has a target: of an empty range, reduceat would not give 0
        feature_counts=np.add.reduceat(counts, begins[:-1], dtype=np.int32),
        features=np.repeat(np.arange(len(sizes), dtype=np.int32), sizes),
        events=events,
    )


def _count_template(
    ids: Ids, templates: Templates, template: int, vocabulary_size: int, prune: int, events_T: Ints
) -> tuple[Keys, Longs, Ints, Ints]:
    """Return the keys of one template, how many pairs each has, and these; fill their events."""
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
    events_T[:] = -1
    there = np.flatnonzero(rows >= 0)
    # in the order of these codes, pairs are sorted by feature, and then by target
    codes = rows[there] * vocabulary_size + ids[there]
    pairs, which, counts = np.unique(codes, return_inverse=True, return_counts=True)
    events_T[there] = which
    sizes = np.bincount(pairs // vocabulary_size, minlength=int(is_kept.sum()))
    targets = (pairs % vocabulary_size).astype(np.int32)
    return keys[is_kept], sizes, targets, counts.astype(np.int32)
