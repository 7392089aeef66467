"""The settings of dynamic evaluation, chosen on held-out text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqtool.core.errors import ModelError
from seqtool.lm.neural.dynamic import DynamicConfig, DynamicLanguageModel
from seqtool.lm.perplexity import perplexity_of
from seqtool.lm.protocol import read_ids

TUNING_TOKENS = 20_000
FACTOR = 2.0  # between the settings that are tried
MAX_HALVINGS = 20  # of a rate at which the network loses its balance
WORTH = 1e-3  # the share of the perplexity that a step must gain for another to be tried


@dataclass(frozen=True)
class DynamicTuning:
    """Dynamic evaluation with the rate and the decay that suit a held-out text best.

    Attributes:
        model: with the settings chosen.
        text: what they were chosen on.
        split: which split of a prepared corpus that is; None for a text.
        tokens: how many of its first tokens.
        tried: settings and the perplexity that each gave, in the order they were tried.
    """

    model: DynamicLanguageModel
    text: str
    split: str | None
    tokens: int
    tried: tuple[tuple[DynamicConfig, float], ...]

    @property
    def perplexity(self) -> float:
        """That of the settings chosen."""
        return min(perplexity for _, perplexity in self.tried)

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` prints of it."""
        tried = [
            {"rate": config.rate, "decay": config.decay, "perplexity": perplexity}
            for config, perplexity in self.tried
        ]
        return {
            "model": self.model.name,
            "text": self.text,
            "split": self.split,
            "tokens": self.tokens,
            "perplexity": self.perplexity,
            "tried": tried,
        }


def tune_dynamic(
    model: DynamicLanguageModel,
    text: str | Path,
    *,
    names: Sequence[str] = ("rate", "decay"),
    field: str | None = None,
    on_trial: Callable[[DynamicConfig, float], None] = lambda config, perplexity: None,
) -> DynamicTuning:
    """Choose the rate and the decay on the first tokens of a held-out text.

    Beginning with the present settings, each in turn is doubled, or else halved, as long as that
    helps by a tenth of a percent.

    Args:
        model: whose settings are to be chosen.
        text: text, or a prepared corpus, of which the valid split is read.
        names: which settings are free.
        field: which field of .jsonl files holds the text.
        on_trial: called with each setting and its perplexity.

    Raises:
        DataError: a text that cannot be used.
    """
    ids = read_ids(model, text, split="valid", field=field, num_tokens=TUNING_TOKENS)
    tried: dict[DynamicConfig, float] = {}

    def perplexity(config: DynamicConfig) -> float:
        if config not in tried:
            try:
                (scores,) = model.with_config(config).score([ids])
                tried[config] = perplexity_of(-float(scores.log_probs.mean()))
            except ModelError:  # too fast
                tried[config] = math.inf
            on_trial(config, tried[config])
        return tried[config]

    def changed(config: DynamicConfig, name: str, factor: float) -> DynamicConfig:
        return dataclasses.replace(config, **{name: getattr(config, name) * factor})

    best = model.config
    while "rate" in names and len(tried) < MAX_HALVINGS and math.isinf(perplexity(best)):
        best = changed(best, "rate", 1 / FACTOR)
    for name in names:
        start = best
        for factor in (FACTOR, 1 / FACTOR):
            gain = 1.0
            while gain > WORTH:
                candidate = changed(best, name, factor)
                gain = 1 - perplexity(candidate) / perplexity(best)
                best = candidate if gain > 0 else best
            if best != start:
                break
    split = "valid" if (Path(text) / "corpus.json").is_file() else None
    return DynamicTuning(model.with_config(best), str(text), split, len(ids), tuple(tried.items()))
