"""The weights of a mixture: fitted on held-out text, and what each part is worth beside the whole.

Shapes: P parts and N tokens. Log-probabilities are nats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqtool.core.arrays import Doubles, Floats
from seqtool.core.errors import DataError
from seqtool.core.reading import is_corpus
from seqtool.core.units import perplexity_of
from seqtool.lm.evaluation import LMEvaluation, ScoredBlock, evaluate_lm
from seqtool.lm.mixture.cache import CacheModel
from seqtool.lm.mixture.config import CacheConfig, candidates
from seqtool.lm.mixture.model import MixedModel

TOLERANCE_NATS = 1e-7  # per token
TRIAL_TOLERANCE_NATS = 1e-5  # while settings of a cache are compared
MAX_ITERATIONS = 2000  # EM comes to a weight of 0 only slowly


@dataclass(frozen=True)
class FittedWeights:
    """The weights that EM came to.

    Attributes:
        weights: [P], of sum 1.
        log_likelihoods: nats of the text at the beginning and after each iteration; tokens that no
            part gives a probability are left out.
        impossible: how many tokens these are.
    """

    weights: tuple[float, ...]
    log_likelihoods: tuple[float, ...]
    impossible: int


def fit_weights(log_probs_PN: Doubles, *, tolerance: float = TOLERANCE_NATS) -> FittedWeights:
    """Return the weights that make a text most probable: never less so than the best part does.

    This is EM (Dempster et al. 1977, sect. 4.3): the new weight of a part is the mean probability
    that a token came from it. With g_k = mean over the tokens of p_k / p, the best weights gain at
    most max g - 1 nats per token on the present ones (Cover 1984), so that is when it stops: below
    `tolerance`. A part alone that is still better then has weight 1.

    Args:
        log_probs_PN: what each part gives each token.
        tolerance: nats per token that may be left to gain.

    Raises:
        DataError: no part gives any token a probability.
    """
    best_N = log_probs_PN.max(axis=0)
    possible_N = best_N > -math.inf
    if not possible_N.any():
        raise DataError(
            "no model gives any token of the tuning text a probability",
            hint="tune on text like the one that the models were trained on",
        )
    log_probs_PN, best_N = log_probs_PN[:, possible_N], best_N[possible_N]
    ratios_PN = np.exp(log_probs_PN - best_N)  # no underflow: the best part has 1
    num_parts, num_tokens = ratios_PN.shape
    weights_P = np.full(num_parts, 1 / num_parts)
    log_likelihoods: list[float] = []
    while True:
        mixed_N = weights_P @ ratios_PN
        log_likelihoods.append(float(best_N.sum() + np.log(mixed_N).sum()))
        gains_P = ratios_PN @ (1 / mixed_N) / num_tokens
        if gains_P.max() - 1 < tolerance or len(log_likelihoods) > MAX_ITERATIONS:
            break
        weights_P = weights_P * gains_P
        weights_P /= weights_P.sum()  # is 1 already, but for rounding, which would grow
    alone_P = log_probs_PN.sum(axis=1)
    if alone_P.max() > log_likelihoods[-1]:
        weights_P = np.eye(num_parts)[alone_P.argmax()]
        log_likelihoods.append(float(alone_P.max()))
    num_impossible = len(possible_N) - num_tokens
    return FittedWeights(tuple(weights_P.tolist()), tuple(log_likelihoods), num_impossible)


@dataclass(frozen=True)
class Tuning:
    """A mixture whose weights were fitted.

    Attributes:
        model: the mixture with the new weights, and its cache with the settings chosen.
        fitted: the course of the fit.
        text: what it was fitted on.
        split: which split of a prepared corpus that is; None for a text.
        tokens: of the text, `</s>` included.
        num_tried: settings of its cache that were tried; 0 for a mixture without.
    """

    model: MixedModel
    fitted: FittedWeights
    text: str
    split: str | None
    tokens: int
    num_tried: int = 0

    @property
    def perplexity(self) -> float:
        """Return that of the mixture on the text of the fit; infinite if a token is impossible."""
        if self.fitted.impossible:
            return math.inf
        return perplexity_of(-self.fitted.log_likelihoods[-1] / self.tokens)

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` prints of it."""
        return {
            "text": self.text,
            "split": self.split,
            "tokens": self.tokens,
            "perplexity": self.perplexity,
            "iterations": len(self.fitted.log_likelihoods) - 1,
        } | ({"cache_settings_tried": self.num_tried} if self.num_tried else {})


def tune_mixture(
    model: MixedModel,
    text: str | Path,
    *,
    cache: Mapping[str, Any] | None = None,
    field: str | None = None,
    reset_state: bool = False,
    on_progress: Callable[[int, int | None], None] | None = None,
) -> Tuning:
    """Fit the weights of a mixture on held-out text; each part scores it once.

    It takes 8 bytes per token and part, and as much again while it fits; 4 bytes more for each
    setting of a cache that is tried.

    Args:
        model: the mixture, whose present weights do not matter.
        text: a file or directory of text, or a prepared corpus, whose valid split is read.
        cache: those settings of its cache that stay, if it has one; the others are chosen.
        field: which field of .jsonl files holds the text.
        reset_state: forget the text before each sentence, for models that carry it on.
        on_progress: called with bytes done and in all (None when not known).

    Raises:
        DataError: a text that cannot be used.
    """
    parts, blocks = [*model.parts], list[Doubles]()
    tried, configs = list[Floats](), list[CacheConfig]()
    place = next((k for k, part in enumerate(parts) if isinstance(part, CacheModel)), 0)
    own = parts[place]
    if isinstance(own, CacheModel) and cache is not None:
        configs = candidates(cache, has_states=own.has_states)
        parts[place] = own.trying(configs, lambda scores: tried.append(scores.astype(np.float32)))

    def collect(scored: ScoredBlock, _: bytes | None) -> None:
        assert scored.parts is not None
        blocks.append(scored.parts)

    split = "valid" if is_corpus(text) else None  # never its test split, which evaluation reads
    evaluate_lm(
        MixedModel(parts, names=model.names),
        text,
        on_scores=collect,
        split=split,
        field=field,
        reset_state=reset_state,
        on_progress=on_progress,
    )
    log_probs_PN = np.concatenate(blocks, axis=1)
    blocks.clear()
    if isinstance(own, CacheModel) and configs:
        tried_CN = np.concatenate(tried, axis=1)
        tried.clear()
        best = _best_row(log_probs_PN, place, tried_CN)
        log_probs_PN[place] = tried_CN[best]
        parts[place] = CacheModel(own.source, configs[best], name=own.name)
    fitted = fit_weights(log_probs_PN)
    tuned = MixedModel(parts, fitted.weights, names=model.names)
    return Tuning(tuned, fitted, str(text), split, log_probs_PN.shape[1], len(configs))


def _best_row(log_probs_PN: Doubles, place: int, tried_CN: Floats) -> int:
    """Return which row of [C, N] is the best part at this place, with weights fitted to it."""
    trial_PN = log_probs_PN.copy()

    def merit(row: int) -> tuple[int, float]:
        trial_PN[place] = tried_CN[row]
        fitted = fit_weights(trial_PN, tolerance=TRIAL_TOLERANCE_NATS)
        # first the fewest tokens left out: likelihoods of fewer tokens are larger
        return -fitted.impossible, fitted.log_likelihoods[-1]

    return max(range(len(tried_CN)), key=merit)


def evaluate_mixture(
    model: MixedModel, inputs: str | Path | Sequence[str | Path], **options: Any
) -> tuple[LMEvaluation, list[dict[str, Any]]]:
    """Measure a mixture and its parts in one pass; the arguments are those of `evaluate_lm`.

    Returns:
        The figures of the mixture, and of each part what `--json` prints of it: its perplexity, and
        how many tokens have no probability under it, if there are any.
    """
    nats: list[Doubles] = []  # of the parts, [P], one array per block, for fsum
    impossible_P = np.zeros(len(model.parts), dtype=np.int64)

    def add(scored: ScoredBlock, _: bytes | None) -> None:
        assert scored.parts is not None
        nats.append(scored.parts.sum(axis=1))
        impossible_P[:] += np.isneginf(scored.parts).sum(axis=1)

    result = evaluate_lm(model, inputs, on_scores=add, **options)
    rows = zip(
        model.names, model.parts, zip(*nats, strict=True), impossible_P.tolist(), strict=True
    )
    return result, [
        {
            "model": name,
            "kind": part.kind,
            "perplexity": perplexity_of(-math.fsum(sums) / result.tokens),
        }
        | ({"zero_probability_tokens": impossible} if impossible else {})
        for name, part, sums, impossible in rows
    ]
