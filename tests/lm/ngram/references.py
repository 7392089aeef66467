"""Dictionary versions of counting and of every smoothing: slow, short, and written from the papers.

Sentences are lists of word ids, without `<s>` and `</s>`; `<s>` is V, `</s>` is 1.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.counts import CountLevel, Counts
from seqtool.lm.ngram.table import BackoffTable

Ngram = tuple[int, ...]
Rows = dict[Ngram, tuple[float, float]]
EOS = 1


def occurrences(sentences: Sequence[Sequence[int]], order: int, size: int) -> dict[Ngram, int]:
    """How often each n-gram up to the order occurs."""
    result: Counter[Ngram] = Counter()
    for sentence in sentences:
        words = (size, *sentence, EOS)
        for n in range(1, order + 1):
            result.update(words[i : i + n] for i in range(len(words) - n + 1))
    return result


def adjusted_counts(raw: dict[Ngram, int], order: int, size: int) -> dict[Ngram, int]:
    """Different words before each n-gram; occurrences at the highest order and after `<s>`."""
    before = Counter(ngram[1:] for ngram in raw)
    return {
        ngram: count if len(ngram) == order or ngram[0] == size else before[ngram]
        for ngram, count in raw.items()
    }


def count(
    sentences: Sequence[Sequence[int]], order: int, size: int, *, kenlm_quirk: bool = False
) -> Counts:
    """Count as `count_ngrams` does, with dictionaries."""
    raw = occurrences(sentences, order, size)
    adjusted = adjusted_counts(raw, order, size)
    rows: dict[Ngram, int] = {(): 0}
    lower: list[Ngram] = [()]
    levels: list[CountLevel] = []
    last: list[int] = []
    rank = {0: -3, size: -2, EOS: -1}
    for sentence in sentences:
        for word in sentence:
            rank.setdefault(word, len(rank))
    for n in range(1, order + 1):
        ngrams = [ngram for ngram in raw if len(ngram) == n]
        if n == 1:
            ngrams = [(word,) for word in range(size + 1)]
        ngrams.sort()  # contexts are sorted alike, so this is trie order
        rows |= {ngram: row for row, ngram in enumerate(ngrams)}
        children = Counter(rows[ngram[:-1]] for ngram in ngrams)
        begins = np.cumsum([0, *(children[row] for row in range(len(lower)))])
        suffixes = [rows[ngram[1:]] for ngram in ngrams] if n > 1 else []
        columns = (
            [ngram[-1] for ngram in ngrams],
            begins,
            suffixes,
            [raw.get(ngram, 0) for ngram in ngrams],
            [adjusted.get(ngram, 0) for ngram in ngrams],
        )
        levels.append(CountLevel(*(np.array(column, np.int32) for column in columns)))
        if kenlm_quirk and n < order:
            if n > 1 and (last[-1] < 0 or lower[last[-1]][0] == size):
                last.append(-1)  # longer ones were padded with <s>, and are no n-grams
            else:
                seen = [ngram for ngram in ngrams if ngram in raw]
                last.append(rows[max(seen, key=lambda ngram: [rank[word] for word in ngram[::-1]])])
        lower = ngrams
    num_tokens = sum(map(len, sentences)) + len(sentences)
    return Counts(tuple(levels), size, num_tokens, len(sentences), tuple(last))


class Reference:
    """The probability of a word after a context, by the definition of each smoothing."""

    def __init__(self, sentences: Sequence[Sequence[int]], size: int, config: NgramConfig) -> None:
        self.size, self.config, self.order = size, config, config.order
        self.num_words = size
        self.raw = occurrences(sentences, config.order, size)
        is_adjusted = config.smoothing in ("kneser-ney", "modified-kneser-ney")
        self.counts = (
            adjusted_counts(self.raw, config.order, size) if is_adjusted else dict(self.raw)
        )
        self.followers: dict[Ngram, dict[int, int]] = defaultdict(dict)
        for ngram, number in self.counts.items():
            if ngram != (size,):  # <s> never follows
                self.followers[ngram[:-1]][ngram[-1]] = number
        self.discounts = [self.discounts_of(n) for n in range(1, config.order + 1)]

    def is_kept(self, ngram: Ngram) -> bool:
        prune = [*self.config.prune, *self.config.prune[-1:] * self.order] or [0] * self.order
        return self.raw.get(ngram, 0) > prune[len(ngram) - 1]

    def discounts_of(self, n: int) -> list[float]:
        """D(0), D(1), D(2), D(3+) of order n."""
        if "kneser-ney" not in self.config.smoothing and "absolute" not in self.config.smoothing:
            return [0, 0, 0, 0]
        numbers = Counter(
            number
            for ngram, number in self.counts.items()
            if len(ngram) == n and ngram != (self.size,)
        )
        n1, n2, n3, n4 = (numbers[i] for i in (1, 2, 3, 4))
        if self.config.smoothing != "modified-kneser-ney":
            single = n1 / (n1 + 2 * n2) if n1 and n2 else self.config.fallback[0]
            return [0, single, single, single]
        if n1 and n2 and n3:
            y = n1 / (n1 + 2 * n2)
            found = [0, 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3]
            if all(0 <= found[i] <= i for i in range(4)):
                return found
        return [0, *self.config.fallback]

    def probability(self, word: int, context: Ngram) -> float:
        """p(word | context), with as much of the end of the context as the order allows."""
        context = context[-(self.order - 1) :] if self.order > 1 else ()
        if self.config.smoothing == "add-k":
            return self.add_k(word, context)
        if self.config.smoothing == "stupid-backoff":
            total = sum(self.stupid(other, context) for other in range(self.size))
            return self.stupid(word, context) / total
        return self.interpolated(word, context)

    def interpolated(self, word: int, context: Ngram) -> float:
        lower = self.interpolated(word, context[1:]) if context else 1 / self.num_words
        followers = self.followers.get(context, {})
        if not followers:
            return lower
        per_type = 1 if self.config.smoothing == "witten-bell" else 0
        discounts = self.discounts[len(context)]
        mass = {other: c + per_type for other, c in followers.items()}
        own = {
            other: c - discounts[min(c, 3)]
            for other, c in followers.items()
            if self.is_kept((*context, other))
        }
        left = math.fsum(mass.values()) - math.fsum(own.values())
        return (own.get(word, 0) + left * lower) / sum(mass.values())

    def add_k(self, word: int, context: Ngram) -> float:
        k, size = self.config.add, self.size
        if len(context) < self.order - 1 and context[:1] != (size,):
            return 1 / size
        followers = self.followers.get(context, {})
        total = sum(followers.values()) + k * size
        own = {w: (c + k) / total for w, c in followers.items() if self.is_kept((*context, w))}
        if word in own:
            return own[word]
        return (1 - math.fsum(own.values())) / (size - len(own))

    def stupid(self, word: int, context: Ngram) -> float:
        followers = self.followers.get(context, {})
        if not context or self.is_kept((*context, word)):
            return followers.get(word, 0) / sum(followers.values())
        return self.config.backoff * self.stupid(word, context[1:])


def entries(table: BackoffTable) -> Rows:
    """The rows of a table: n-gram -> (log-probability, backoff), in nats."""
    result: Rows = {}
    lower: list[Ngram] = [()]
    for n, level in enumerate(table.levels, start=1):
        assert len(level.begins) == len(lower) + 1
        assert level.begins[-1] == len(level.words)
        sizes = np.diff(level.begins)
        assert (sizes >= 0).all()
        contexts = [context for context, s in zip(lower, sizes, strict=True) for _ in range(s)]
        lower = [(*c, w) for c, w in zip(contexts, level.words.tolist(), strict=True)]
        assert lower == sorted(set(lower))
        backoffs = level.backoffs.tolist() if n < table.order else [0.0] * len(lower)
        values = zip(level.log_probs.tolist(), backoffs, strict=True)
        result |= dict(zip(lower, values, strict=True))
    return result


def look_up(rows: Rows, word: int, context: Ngram) -> float:
    """The log-probability of a word by the rows of a backoff model (Katz 1987)."""
    if (*context, word) in rows:
        return rows[*context, word][0]
    return rows.get(context, (0, 0))[1] + look_up(rows, word, context[1:])
