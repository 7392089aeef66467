"""The weights of a mixture: fitted on held-out text, and what each part is worth beside the whole.

Shapes: P parts and N tokens. Log-probabilities are nats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from seqtool.core.arrays import Doubles
from seqtool.core.errors import DataError
from seqtool.core.reading import is_corpus
from seqtool.core.units import perplexity_of
from seqtool.lm.evaluation import evaluate_lm
from seqtool.lm.mixture.cache import CacheModel
from seqtool.lm.mixture.config import CacheConfig, FreeConfig
from seqtool.lm.mixture.model import MixedModel
from seqtool.lm.perplexity import LMEvaluation

TOLERANCE_NATS = 1e-9  # per token
TRIAL_TOLERANCE_NATS = 1e-5  # while settings of a cache are compared
MAX_ITERATIONS = 1000  # a guard: some ten are made
BLOCK = 1 << 15  # tokens whose curvature is summed at once, which bounds the memory
ARMIJO = 1e-4  # a step is taken if it gains this share of what the slope promises
SHORTEST = 1e-6  # share of a Newton step that is tried last
RIDGE = 1e-10  # of the curvature, which alike parts leave without an inverse
SLACK = 1e-13  # of the likelihood, which rounding may hide
TINY = np.finfo(np.float64).tiny  # beside 0 / 0


@dataclass(frozen=True)
class FittedWeights:
    """The weights that were found.

    Attributes:
        weights: [P], of sum 1.
        log_likelihoods: nats of the text at the beginning and after each iteration; tokens that no
            part gives a probability are left out.
        impossible: how many tokens these are.
    """

    weights: tuple[float, ...]
    log_likelihoods: tuple[float, ...]
    impossible: int

    @property
    def iterations(self) -> int:
        """Return how often the weights were changed."""
        return len(self.log_likelihoods) - 1


def fit_weights(log_probs_PN: Doubles, *, tolerance: float = TOLERANCE_NATS) -> FittedWeights:
    """Return the weights that make a text most probable: never less so than the best part does.

    The first step is one of EM (Dempster et al. 1977, sect. 4.3): the new weight of a part is the
    mean probability that a token came from it. Those after it are Newton's, on all weights that are
    not below 0 (Kim et al. 2020, "A fast algorithm for maximum likelihood estimation of mixture
    proportions"), as EM comes to a weight of 0 only slowly; where no such step gains, there is
    another one of EM.

    With g_k = mean over the tokens of p_k / p, the best weights gain at most max g - 1 nats per
    token on the present ones (Cover 1984), so that is when it stops: below `tolerance`. A part
    alone that is still better then has weight 1.

    Args:
        log_probs_PN: what each part gives each token.
        tolerance: nats per token that may be left to gain.

    Raises:
        DataError: no part gives any token a probability.
    """
    best_N = log_probs_PN.max(axis=0)
    possible = best_N > -math.inf
    num = int(possible.sum())
    if not num:
        raise DataError(
            "no model gives any token of the tuning text a probability",
            hint="tune on text like the one that the models were trained on",
        )
    if num < len(possible):
        log_probs_PN, best_N = log_probs_PN[:, possible], best_N[possible]
    ratios_PN = np.exp(log_probs_PN - best_N)  # no underflow: the best part has 1
    constant = float(best_N.sum())
    weights_P = np.full(len(ratios_PN), 1 / len(ratios_PN))
    mixed_N = weights_P @ ratios_PN
    nats = float(np.log(mixed_N).sum())
    log_likelihoods = [constant + nats]
    while True:
        gains_P, curvature_PP = _derivatives(ratios_PN, mixed_N)
        if gains_P.max() - 1 < tolerance or len(log_likelihoods) > MAX_ITERATIONS:
            break
        found = None
        if len(log_likelihoods) > 1:
            aim_P = _newton(curvature_PP, gains_P, weights_P)
            found = _step(ratios_PN, weights_P, aim_P, gains_P, nats)
        if found is None:
            weights_P = weights_P * gains_P
            weights_P /= weights_P.sum()  # is 1 already, but for rounding, which would grow
            mixed_N = weights_P @ ratios_PN
            found = weights_P, mixed_N, float(np.log(mixed_N).sum())
        weights_P, mixed_N, nats = found
        log_likelihoods.append(constant + nats)
    with np.errstate(divide="ignore"):  # a token that a part finds impossible
        alone_P = [float(np.log(ratios_N).sum()) for ratios_N in ratios_PN]
    best = int(np.argmax(alone_P))
    if alone_P[best] > nats:
        weights_P = np.eye(len(ratios_PN))[best]
        log_likelihoods.append(constant + alone_P[best])
    return FittedWeights(tuple(weights_P.tolist()), tuple(log_likelihoods), len(possible) - num)


def _derivatives(ratios_PN: Doubles, mixed_N: Doubles) -> tuple[Doubles, Doubles]:
    """Return the gradient of the mean log-likelihood, [P], and its Hessian less its sign, [P, P].

    These are the means of p_k / p, and of (p_j / p) (p_k / p).
    """
    num_parts, num_tokens = ratios_PN.shape
    gains_P, curvature_PP = np.zeros(num_parts), np.zeros((num_parts, num_parts))
    for begin in range(0, num_tokens, BLOCK):
        block = slice(begin, begin + BLOCK)
        shares_PB = ratios_PN[:, block] / mixed_N[block]
        gains_P += shares_PB.sum(axis=1)
        curvature_PP += shares_PB @ shares_PB.T
    return gains_P / num_tokens, curvature_PP / num_tokens


def _newton(curvature_PP: Doubles, gains_P: Doubles, weights_P: Doubles) -> Doubles:
    """Return the weights of the largest likelihood by its second derivatives, of sum 1.

    Of sum 1 by itself is the best of mean log p - sum of weights, over all weights from 0 up. About
    the present weights w that is c'y - y'Hy / 2 but for a constant, with c = 2 g - 1, as H w = g.
    """
    ridge = RIDGE * float(np.trace(curvature_PP))
    hessian_PP = curvature_PP + ridge * np.eye(len(weights_P))
    aim_P = _non_negative(hessian_PP, 2 * gains_P - 1 + ridge * weights_P)
    total = float(aim_P.sum())
    return aim_P / total if total > 0 else weights_P


def _non_negative(hessian_PP: Doubles, slope_P: Doubles) -> Doubles:
    """Return the y >= 0 of the largest slope'y - y'Hy / 2 (Lawson & Hanson 1974, chapter 23)."""
    point_P = np.zeros(len(slope_P))
    free_P = np.zeros(len(slope_P), dtype=np.bool_)
    for _ in range(3 * len(slope_P)):  # rounding could go round in a circle
        rising_P = np.where(free_P, -math.inf, slope_P - hessian_PP @ point_P)
        if rising_P.max() <= 0:
            break
        free_P[rising_P.argmax()] = True
        while free_P.any():
            aim_P = np.zeros(len(slope_P))
            aim_P[free_P] = np.linalg.solve(hessian_PP[np.ix_(free_P, free_P)], slope_P[free_P])
            falling_P = free_P & (aim_P <= 0)
            if not falling_P.any():
                point_P = aim_P
                break
            # as far as the first of these comes to 0, which is bound from then on
            ways_P = np.full(len(slope_P), math.inf)
            ways_P[falling_P] = point_P[falling_P] / (point_P - aim_P + TINY)[falling_P]
            first = int(ways_P.argmin())
            point_P = np.where(free_P, point_P + ways_P[first] * (aim_P - point_P), 0.0)
            free_P &= ~(falling_P & (ways_P <= ways_P[first]))
            point_P[~free_P] = 0.0
    return point_P


def _step(
    ratios_PN: Doubles, weights_P: Doubles, aim_P: Doubles, gains_P: Doubles, nats: float
) -> tuple[Doubles, Doubles, float] | None:
    """Return weights on the way to others that gain enough, with p and its nats; None for none."""
    way_P = aim_P - weights_P
    promised = float(gains_P @ way_P) * ratios_PN.shape[1]
    share = 1.0
    while promised > 0 and share > SHORTEST:
        tried_P = weights_P + share * way_P if share < 1 else aim_P  # with its zeros
        tried_N = tried_P @ ratios_PN
        with np.errstate(divide="ignore"):  # of a weight 0, which may make a token impossible
            found = float(np.log(tried_N).sum())
        # where so little is left, rounding hides what a step gains
        if found >= nats + ARMIJO * share * promised - SLACK * abs(nats):
            return tried_P, tried_N, found
        share /= 2
    return None


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
            "iterations": self.fitted.iterations,
        } | ({"cache_settings_tried": self.num_tried} if self.num_tried else {})


def tune_mixture(
    model: MixedModel,
    text: str | Path,
    *,
    cache: FreeConfig | None = None,
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
        cache: what is free to be chosen of the settings of the cache, if there is one in it.
        field: which field of .jsonl files holds the text.
        reset_state: forget the text before each sentence, for models that carry it on.
        on_progress: called with bytes done and in all (None when not known).

    Raises:
        DataError: a text that cannot be used.
    """
    place = next((k for k, part in enumerate(model.parts) if isinstance(part, CacheModel)), None)
    tried: list[npt.NDArray[np.float32]] = []
    candidates: list[CacheConfig] = []
    trial = model
    if place is not None and cache is not None:
        part = cast("CacheModel", model.parts[place])
        candidates = cache.candidates(has_states=part.has_states)
        keep = part.trying(candidates, lambda found: tried.append(found.astype(np.float32)))
        trial = model.with_part(place, keep)
    blocks: list[Doubles] = []
    split = "valid" if is_corpus(text) else None  # never its test split, which evaluation reads
    evaluate_lm(
        trial.observed(blocks.append),
        text,
        split=split,
        field=field,
        reset_state=reset_state,
        on_progress=on_progress,
    )
    log_probs_PN = np.concatenate(blocks, axis=1)
    blocks.clear()
    if place is not None and candidates:
        tried_CN = np.concatenate(tried, axis=1)
        tried.clear()
        best = _best_row(log_probs_PN, place, tried_CN)
        log_probs_PN[place] = tried_CN[best]
        model = model.with_part(place, part.with_config(candidates[best]))
    fitted = fit_weights(log_probs_PN)
    tuned = model.with_weights(fitted.weights)
    return Tuning(tuned, fitted, str(text), split, log_probs_PN.shape[1], len(candidates))


def _best_row(log_probs_PN: Doubles, place: int, tried_CN: npt.NDArray[np.float32]) -> int:
    """Return which row of [C, N] is the best part at this place, with weights fitted to it."""
    trial_PN = log_probs_PN.copy()

    def merit(row: int) -> tuple[int, float]:
        trial_PN[place] = tried_CN[row]
        fitted = fit_weights(trial_PN, tolerance=TRIAL_TOLERANCE_NATS)
        # first the fewest tokens left out: likelihoods of fewer tokens are larger
        return -fitted.impossible, fitted.log_likelihoods[-1]

    return max(range(len(tried_CN)), key=merit)


@dataclass(frozen=True)
class MixtureEvaluation:
    """How well a mixture predicts a text, and how well each part alone.

    Attributes:
        model: the mixture.
        result: of the mixture.
        perplexities: [P], of each part on the same text.
        impossible: [P], how many tokens each part gives no probability.
    """

    model: MixedModel
    result: LMEvaluation
    perplexities: tuple[float, ...]
    impossible: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` prints: the figures of the mixture, its weights and its parts."""
        parts = [
            {"model": name, "kind": part.kind, "perplexity": perplexity}
            | ({"zero_probability_tokens": impossible} if impossible else {})
            for name, part, perplexity, impossible in zip(
                self.model.names, self.model.parts, self.perplexities, self.impossible, strict=True
            )
        ]
        return {**self.result.to_json(), "weights": list(self.model.weights), "parts": parts}


def evaluate_mixture(
    model: MixedModel, inputs: str | Path | Sequence[str | Path], **options: Any
) -> MixtureEvaluation:
    """Measure a mixture and its parts in one pass; the arguments are those of `evaluate_lm`."""
    sums: list[Doubles] = []
    impossible_P = np.zeros(len(model.parts), dtype=np.int64)

    def observe(log_probs_PN: Doubles) -> None:
        sums.append(log_probs_PN.sum(axis=1))
        impossible_P[:] += np.isneginf(log_probs_PN).sum(axis=1)

    result = evaluate_lm(model.observed(observe), inputs, **options)
    perplexities = [
        perplexity_of(-math.fsum(nats) / result.tokens) for nats in zip(*sums, strict=True)
    ]
    return MixtureEvaluation(model, result, tuple(perplexities), tuple(impossible_P.tolist()))
