"""Perplexity, and the other figures of how well a language model predicts a text.

Log-probabilities are natural logs ("nats") in here; what people read is in log10 or bits.
Scores can be written as tables (see `tables`), one row per token or one per sentence:

    sentence  token  surprisal  oov  ...
    1         the    4.321928   0    ...                         surprisal in bits

    sentence  tokens  oov  log10_probability  perplexity
    1         9       0    -12.345678         23.5               tokens with `</s>`

A token table ends with the model's own columns, such as the order of the n-gram that was matched.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from seqtool.core.arrays import Ids
from seqtool.core.errors import ConfigError
from seqtool.core.one_line import OneLine
from seqtool.core.units import LN_2, LN_10, perplexity_of
from seqtool.core.vocabulary import EOS, EOS_ID, UNK_ID
from seqtool.lm.tables import Table, Target, check_target
from seqtool.text.tokenizers import Tokenizer


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


# of an evaluation, in the order in which JSON has them
_FIGURES = (
    *("perplexity", "perplexity_without_oov", "tokens", "sentences", "oov", "vocabulary_size"),
    *("log10_probability", "bits_per_token", "bits_per_byte", "seconds"),
)


@dataclass(frozen=True)
class LMEvaluation(OneLine):
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
        state: "carried" from sentence to sentence, or "reset" so that each begins anew.
        unknown_words: the first unknown words with how often they occur; none of a prepared corpus,
            or of other units.
    """

    shown = (
        *("perplexity", "perplexity_without_oov", "tokens", "sentences", "oov"),
        *("bits_per_byte", "unit"),
    )

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
    state: str = "reset"
    unknown_words: Mapping[str, int] = field(default_factory=dict)

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
        result: dict[str, Any] = {name: _finite(getattr(self, name)) for name in _FIGURES}
        result |= {"unit": self.unit, "state": self.state}
        if self.adaptations:
            result["adapts_on_text"] = [found.to_json() for found in self.adaptations]
        if self.true_log10_probability is not None:
            for name in ("true_perplexity", "true_log10_probability", "true_bits_per_byte"):
                result[name] = getattr(self, name)
        if self.split is not None:
            result["split"] = self.split
        if self.impossible:
            result["zero_probability_tokens"] = self.impossible
        return result


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def check_targets(
    per_token: Target | None, per_sentence: Target | None, inputs: Iterable[str | Path] = ()
) -> None:
    """Refuse targets that cannot be written to, or over `inputs`, before the work begins.

    Raises:
        ConfigError: both are the same, or a suffix is none of a table.
        OutputError: the directory is not there, or the file is read.
    """
    if per_token is not None and per_token == per_sentence:
        raise ConfigError(
            f"--per-token and --per-sentence both write to {per_token}", hint="give them two files"
        )
    for target in (per_token, per_sentence):
        check_target(target, inputs)


def surface_tokens(tokenizer: Tokenizer, ids: Ids, text: bytes | None) -> list[str]:
    """Return the tokens as written, `</s>` after each line; ids without a text give symbols."""
    if text is None:
        return tokenizer.vocabulary.decode(ids)
    tokens = []
    for line in text.decode("utf-8").split("\n")[:-1]:
        tokens += tokenizer.tokens(line)
        tokens.append(EOS)
    return tokens


def write_tokens(
    table: Table,
    first: int,
    tokens: Sequence[str],
    ids: Ids,
    log_probs: npt.NDArray[np.float64],
    columns: Mapping[str, npt.NDArray[Any]],
) -> None:
    """Write a row per token of a block of sentences.

    Args:
        table: where to.
        first: the number of the block's first sentence, from 1.
        tokens: [N], as `surface_tokens` gives them.
        ids: [N], `EOS_ID` after each sentence.
        log_probs: [N] nats.
        columns: further values, name -> [N].
    """
    is_end = ids == EOS_ID
    table.write(
        {
            "sentence": first + np.cumsum(is_end) - is_end,
            "token": tokens,
            "surprisal": 0.0 - log_probs / LN_2,  # 0.0: a certain token shall not show "-0"
            "oov": (ids == UNK_ID).astype(np.int64),
            **columns,
        }
    )


def write_sentences(table: Table, first: int, ids: Ids, log_probs: npt.NDArray[np.float64]) -> None:
    """Write a row per sentence of a block; the arguments are those of `write_tokens`."""
    ends = np.flatnonzero(ids == EOS_ID) + 1
    begins = np.concatenate(([0], ends[:-1]))
    tokens, nats = ends - begins, np.add.reduceat(log_probs, begins)
    table.write(
        {
            "sentence": np.arange(first, first + len(ends)),
            "tokens": tokens,
            "oov": np.add.reduceat((ids == UNK_ID).astype(np.int64), begins),
            "log10_probability": nats / LN_10,
            "perplexity": np.array([perplexity_of(mean) for mean in (-nats / tokens).tolist()]),
        }
    )
