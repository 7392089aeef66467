"""The dictionary version of sparse non-negative matrices: slow, short, written from the paper.

Sentences are lists of word ids without `<s>` and `</s>`; `<s>` is V, `</s>` is 1. A feature is its
template's number and its words; a metafeature is a tuple that says what it is.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from seqtool.lm.snm.features import Template

EOS = 1
Feature = tuple[int, tuple[int, ...]]
Name = tuple[object, ...]
Named = list[tuple[Name, float]]


def levels(count: int) -> list[tuple[int, float]]:
    """The two whole numbers around log2 of a count, with their shares."""
    scale = math.log2(count)
    low = math.floor(scale)
    return [(low, 1 - (scale - low)), (low + 1, scale - low)]


def shared(feature: Feature, target: int, count: int) -> Named:
    """The metafeatures that do not read C_ij, in the order of the columns of `Room`."""
    template = ("template", feature[0])
    both = (*template, "target", target)
    named: Named = [(template, 1.0), (both, 1.0), (("feature", *feature), 1.0)]
    named.append((("pair", *feature, target), 1.0))
    of_counts = levels(count)
    named += [((*template, "count", level), share) for level, share in of_counts]
    return named + [((*both, "count", level), share) for level, share in of_counts]


def own(feature: Feature, target: int, count: int, pair_count: int) -> Named:
    """Those that read C_ij."""
    template = ("template", feature[0])
    both = (*template, "target", target)
    named: Named = []
    for level, share in levels(pair_count):
        mine = ("pair count", level)
        named.append(((*template, *mine), share))
        named.append(((*both, *mine), share))
        named.append((("feature", *feature, *mine), share))
        for other, part in levels(count):
            named.append(((*template, *mine, "count", other), share * part))
            named.append(((*both, *mine, "count", other), share * part))
    return named


class Dictionary:
    """A model of dictionaries.

    Attributes:
        events: of each token, its features and itself.
        features: C_i*.
        pairs: C_ij.
        weights: of the metafeatures.
        squares: what AdaGrad has summed.
        unseen: A_0, and its sum.
    """

    def __init__(
        self,
        sentences: Sequence[Sequence[int]],
        size: int,
        templates: Sequence[Template],
        prune: int = 0,
    ) -> None:
        self.size, self.templates, self.prune = size, templates, prune
        self.bias = -math.log(len(templates) + 1)
        self.events = [
            (self.features_of((size, *words[:place])), words[place])
            for words in ([*sentence, EOS] for sentence in sentences)
            for place in range(len(words))
        ]
        self.features = Counter(feature for found, _ in self.events for feature in found)
        self.pairs = Counter((feature, word) for found, word in self.events for feature in found)
        self.weights: dict[Name, float] = defaultdict(float)
        self.squares: dict[Name, float] = defaultdict(float)
        self.unseen = [0.0, 0.0]

    def features_of(self, history: tuple[int, ...]) -> list[Feature]:
        """The features of the words before a token, `<s>` the first of them."""
        return [
            (number, tuple(history[-offset] for offset in template.offsets))
            for number, template in enumerate(self.templates)
            if max(template.offsets, default=0) <= len(history)
        ]

    def is_kept(self, feature: Feature, count: int) -> bool:
        """Whether a feature that occurs so often is there."""
        return count > (self.prune if feature[1] else 0)

    def element(
        self,
        feature: Feature,
        target: int,
        features: Counter[Feature],
        pairs: Counter[tuple[Feature, int]],
    ) -> float:
        """M_ij."""
        count, pair_count = features[feature], pairs[feature, target]
        if not self.is_kept(feature, count) or not pair_count:
            return 0.0
        named = shared(feature, target, count) + own(feature, target, count, pair_count)
        adjustment = self.bias + sum(self.weights[name] * share for name, share in named)
        return math.exp(adjustment) * pair_count / count

    def scores(
        self, found: list[Feature], features: Counter[Feature], pairs: Counter[tuple[Feature, int]]
    ) -> list[float]:
        """y of every word after a history with these features."""
        base = math.exp(self.unseen[0] + self.bias) / self.size
        return [
            base + sum(self.element(feature, word, features, pairs) for feature in found)
            for word in range(self.size)
        ]

    def probabilities(self, history: tuple[int, ...]) -> list[float]:
        """P(word | history)."""
        scores = self.scores(self.features_of(history), self.features, self.pairs)
        return [score / sum(scores) for score in scores]

    def loss(self) -> float:
        """The Poisson loss, each token taken out of the counts, and all words summed."""
        total = 0.0
        for found, target in self.events:
            features, pairs = self.features.copy(), self.pairs.copy()
            features.subtract(found)
            pairs.subtract((feature, target) for feature in found)
            scores = self.scores(found, features, pairs)
            total += sum(scores) - math.log(scores[target])
        return total

    def gradients(
        self, found: list[Feature], target: int
    ) -> tuple[list[tuple[Named, float]], float]:
        """Metafeatures with the gradient of their sum, for one token; and that of A_0.

        The sum of shares times gradients over a text is the gradient of `loss`.
        """
        base = math.exp(self.unseen[0] + self.bias)
        seen = base / self.size
        parts = []
        for feature in found:
            count, pair_count = self.features[feature] - 1, self.pairs[feature, target] - 1
            if not self.is_kept(feature, count):
                continue
            common = shared(feature, target, count)
            less = own(feature, target, count, pair_count) if pair_count else []
            whole = own(feature, target, count, pair_count + 1)
            adjustment = self.bias + self._sum(common)
            positive = math.exp(adjustment + self._sum(less)) * pair_count / count
            negative = math.exp(adjustment + self._sum(whole)) * (count - pair_count) / count
            seen += positive
            parts.append((common, less, whole, positive, negative))
        result = []
        for common, less, whole, positive, negative in parts:
            of_less = positive * (1 - 1 / seen)
            result += [(common, of_less + negative), (less, of_less), (whole, negative)]
        return result, base * (1 - 1 / (self.size * seen))

    def _sum(self, named: Named) -> float:
        """A sum of weights, in single precision as the table has them."""
        return sum(
            float(np.float32(self.weights[name]) * np.float32(share)) for name, share in named
        )

    def learn(self, rate: float, initial: float) -> None:
        """Go through the text once, with AdaGrad; weights and sums are kept in single precision."""
        for found, target in self.events:
            gradients, of_unseen = self.gradients(found, target)
            for named, gradient in gradients:
                for name, share in named if gradient else []:
                    step = gradient * float(np.float32(share))
                    squares = self.squares[name] + step * step
                    self.squares[name] = float(np.float32(squares))
                    moved = self.weights[name] - rate * step / math.sqrt(initial + squares)
                    self.weights[name] = float(np.float32(moved))
            self.unseen[1] += of_unseen * of_unseen
            self.unseen[0] -= rate * of_unseen / math.sqrt(initial + self.unseen[1])
