"""The weights of a mixture: fitted on held-out text, and what each part is worth beside the whole.

Shapes: P parts and N tokens. Log-probabilities are nats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqtool.errors import DataError
from seqtool.language_model import LMEvaluation, evaluate_lm
from seqtool.mixture.model import FloatArray, MixedModel
from seqtool.perplexity import perplexity_of

TOLERANCE_NATS = 1e-9  # per token
MAX_ITERATIONS = 1000


@dataclass(frozen=True)
class FittedWeights:
    """The weights that EM found.

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
        """How often the weights were changed."""
        return len(self.log_likelihoods) - 1


def fit_weights(log_probs_PN: FloatArray) -> FittedWeights:
    """Return the weights that make a text most probable, by EM (Dempster et al. 1977, sect. 4.3).

    The new weight of a part is the mean probability that a token came from it. With
    g_k = mean over the tokens of p_k / p, that is weight_k g_k, and by concavity the best weights
    gain at most max g - 1 nats per token on the present ones (Cover 1984), so that is when it
    stops: below `TOLERANCE_NATS`. After n iterations at most log(P) / n nats are left.

    Args:
        log_probs_PN: what each part gives each token.

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
    log_likelihoods: list[float] = []
    while True:
        mixed_N = weights_P @ ratios_PN
        log_likelihoods.append(constant + float(np.log(mixed_N).sum()))
        gains_P = ratios_PN @ (1 / mixed_N) / num
        if gains_P.max() - 1 < TOLERANCE_NATS or len(log_likelihoods) > MAX_ITERATIONS:
            return FittedWeights(
                tuple(weights_P.tolist()), tuple(log_likelihoods), len(possible) - num
            )
        weights_P = weights_P * gains_P
        weights_P /= weights_P.sum()


@dataclass(frozen=True)
class Tuning:
    """A mixture whose weights were fitted.

    Attributes:
        model: the mixture with the new weights.
        fitted: the course of the fit.
        text: what it was fitted on.
        split: which split of a prepared corpus that is; None for a text.
        tokens: of the text, `</s>` included.
    """

    model: MixedModel
    fitted: FittedWeights
    text: str
    split: str | None
    tokens: int

    @property
    def perplexity(self) -> float:
        """Of the mixture on the text it was tuned on; infinite if a token has no probability."""
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
        }


def tune_mixture(
    model: MixedModel,
    text: str | Path,
    *,
    field: str | None = None,
    reset_state: bool = False,
    on_progress: Callable[[int, int | None], None] | None = None,
) -> Tuning:
    """Fit the weights of a mixture on held-out text; each part scores it once.

    It takes 8 bytes per token and part, and as much again while it fits.

    Args:
        model: the mixture, whose present weights do not matter.
        text: a file or directory of text, or a prepared corpus, whose valid split is read.
        field: which field of .jsonl files holds the text.
        reset_state: forget the text before each sentence, for models that carry it on.
        on_progress: called with bytes done and in all (None when not known).

    Raises:
        DataError: a text that cannot be used.
    """
    blocks: list[FloatArray] = []
    is_corpus = (Path(text) / "corpus.json").is_file()
    split = "valid" if is_corpus else None  # never its test split, which evaluation reads
    evaluate_lm(
        model.observed(blocks.append),
        text,
        split=split,
        field=field,
        reset_state=reset_state,
        on_progress=on_progress,
    )
    log_probs_PN = np.concatenate(blocks, axis=1)
    blocks.clear()
    fitted = fit_weights(log_probs_PN)
    tuned = model.with_weights(fitted.weights)
    return Tuning(tuned, fitted, str(text), split, log_probs_PN.shape[1])


@dataclass(frozen=True)
class MixtureEvaluation:
    """How well a mixture predicts a text, and how well each part alone.

    Attributes:
        model: the mixture.
        result: of the mixture.
        perplexities: [P], of each part on the same text.
    """

    model: MixedModel
    result: LMEvaluation
    perplexities: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` prints: the figures of the mixture, its weights and its parts."""
        parts = [
            {"model": name, "kind": part.kind, "perplexity": perplexity}
            for name, part, perplexity in zip(
                self.model.names, self.model.parts, self.perplexities, strict=True
            )
        ]
        return {**self.result.to_json(), "weights": list(self.model.weights), "parts": parts}


def evaluate_mixture(
    model: MixedModel, inputs: str | Path | Sequence[str | Path], **options: Any
) -> MixtureEvaluation:
    """Measure a mixture and its parts in one pass; the arguments are those of `evaluate_lm`."""
    sums: list[FloatArray] = []
    observed = model.observed(lambda log_probs_PN: sums.append(log_probs_PN.sum(axis=1)))
    result = evaluate_lm(observed, inputs, **options)
    perplexities = [
        perplexity_of(-math.fsum(nats) / result.tokens) for nats in zip(*sums, strict=True)
    ]
    return MixtureEvaluation(model, result, tuple(perplexities))
