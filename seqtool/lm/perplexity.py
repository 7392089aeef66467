"""Perplexity, and the other figures of how well a language model predicts a text.

Log-probabilities are natural logs ("nats") in here; what people read is in log10 or bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seqtool.core.units import LN_2, LN_10, perplexity_of


@dataclass(frozen=True)
class Adaptation:
    """How a model learns from the very text that it is measured on.

    Its figures do not compare with those of models that stay as they were trained.

    Attributes:
        kind: "cache" or "dynamic".
        model: the model that adapts.
        settings: by name.
    """

    kind: str
    model: str
    settings: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` prints of it."""
        return {"kind": self.kind, "model": self.model, **self.settings}


@dataclass(frozen=True)
class LMEvaluation:
    """How well a model predicts a text.

    Attributes:
        unit: what a token is (word, char, byte, bpe, unigram).
        vocabulary_size: symbols that the model can predict, `<unk>` and `</s>` included.
        sentences: lines of the text, empty ones too.
        tokens: scored tokens, one `</s>` per sentence included.
        oov: tokens outside the vocabulary.
        num_bytes: UTF-8 bytes of the text, one newline per line; None when not known.
        known_nats: summed log-probability of the tokens of the vocabulary, `</s>` included.
        unknown_nats: summed log-probability of `<unk>` where it stands for a token.
        impossible: tokens that have no probability at all; the perplexity is then infinite.
        seconds: wall time.
        true_log10_probability: what the grammar of the shipped sample gives the text, when it is
            one of the sample's; no model can be expected to do better.
        split: which split of a prepared corpus it is; None for a text.
        adaptations: how the model learned from this text, each token after it was scored.
    """

    unit: str
    vocabulary_size: int
    sentences: int
    tokens: int
    oov: int
    num_bytes: int | None
    known_nats: float
    unknown_nats: float
    impossible: int
    seconds: float
    true_log10_probability: float | None = None
    split: str | None = None
    adaptations: tuple[Adaptation, ...] = ()

    @property
    def nats(self) -> float:
        """The log-probability of the text in nats."""
        return self.known_nats + self.unknown_nats

    @property
    def perplexity(self) -> float:
        """The exponential of the mean nats per token, `</s>` and unknown words counted."""
        return perplexity_of(-self.nats / self.tokens)

    @property
    def perplexity_without_oov(self) -> float | None:
        """The same with unknown words dropped from the sum and from the number."""
        known = self.tokens - self.oov
        return perplexity_of(-self.known_nats / known) if known else None

    @property
    def log10_probability(self) -> float:
        """The log-probability of the text to the base of ten."""
        return self.nats / LN_10

    @property
    def bits_per_token(self) -> float:
        """The mean surprisal of a token in bits, `</s>` counted."""
        return -self.nats / LN_2 / self.tokens

    @property
    def bits_per_byte(self) -> float | None:
        """Bits for the whole text over its bytes: comparable between units."""
        return -self.nats / LN_2 / self.num_bytes if self.num_bytes else None

    @property
    def oov_rate(self) -> float:
        """The share of unknown tokens among all tokens but `</s>`."""
        return self.oov / max(1, self.tokens - self.sentences)

    @property
    def true_perplexity(self) -> float | None:
        """The perplexity per token of this model's unit of the grammar behind the text."""
        if self.true_log10_probability is None:
            return None
        return perplexity_of(-self.true_log10_probability * LN_10 / self.tokens)

    @property
    def true_bits_per_byte(self) -> float | None:
        """The bits per byte of the grammar behind the text."""
        if self.true_log10_probability is None or not self.num_bytes:
            return None
        return -self.true_log10_probability * LN_10 / LN_2 / self.num_bytes

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` prints.

        JSON knows no infinity: when the model gives a token no probability, the figures that are
        infinite are null, and `zero_probability_tokens` says how many tokens are to blame.
        """
        result: dict[str, Any] = {
            "perplexity": _finite(self.perplexity),
            "perplexity_without_oov": _finite(self.perplexity_without_oov),
            "tokens": self.tokens,
            "sentences": self.sentences,
            "oov": self.oov,
            "vocabulary_size": self.vocabulary_size,
            "log10_probability": _finite(self.log10_probability),
            "bits_per_token": _finite(self.bits_per_token),
            "bits_per_byte": _finite(self.bits_per_byte),
            "seconds": self.seconds,
            "unit": self.unit,
        }
        if self.adaptations:
            result["adapts_on_text"] = [found.to_json() for found in self.adaptations]
        if self.true_log10_probability is not None:
            result["true_perplexity"] = self.true_perplexity
            result["true_log10_probability"] = self.true_log10_probability
            result["true_bits_per_byte"] = self.true_bits_per_byte
        if self.split is not None:
            result["split"] = self.split
        if self.impossible:
            result["zero_probability_tokens"] = self.impossible
        return result


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
