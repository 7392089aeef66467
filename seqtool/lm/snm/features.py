"""Features of a history: its last words as n-grams, and words further back as skip-grams.

A template says which words of the history a feature is made of. Features of one template differ in
these words; a feature is known by a hash of its template and its words, 64 bits. Of ten million
features, two have the same one in one text out of 400,000.

    history      <s> the old dog that          adjacent words, gap, remote words before the target
    trigram               . dog that           a = 2
    skip-gram         old . that               a = 1, s = 1, r = 1

Skip-grams are those of Pelemans, Shazeer & Chelba (2016): r remote words, s words that are skipped,
a adjacent words. A feature does not reach beyond the `<s>` of its sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import types

from seqtool.core.arrays import Ids, Ints
from seqtool.core.jit import compiled
from seqtool.core.string_table import SEED, mix
from seqtool.core.vocabulary import EOS_ID

NO_FEATURE = np.uint64(0)  # in the place of a key, where a template reaches beyond `<s>`
_ONE = np.uint64(1)


class Templates(NamedTuple):
    """K templates of at most M words.

    Attributes:
        offsets: [K, M] how far before the target each word stands, ascending, from 1; 0 for none.
        reach: [K] the largest of them; 0 where a template has no words.
    """

    offsets: Ints
    reach: Ints


templates_type = types.NamedTuple((types.int32[:, ::1], types.int32[::1]), Templates)


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


def list_templates(order: int, remote: int, gap: int, adjacent: int) -> list[Template]:
    """Return the n-grams, shortest first, then the skip-grams.

    Args:
        order: the most words of a feature and its target.
        remote: the most remote words of a skip-gram.
        gap: the most words that are skipped.
        adjacent: the most words between the gap and the target.
    """
    ngrams = [Template(0, 0, num) for num in range(order)]
    skip_grams = [
        Template(r, s, a)
        for s in range(1, gap + 1)
        for r in range(1, remote + 1)
        for a in range(min(adjacent, order - 1 - r) + 1)
    ]
    return ngrams + skip_grams


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
