"""Settings of the output layer of a neural language model."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields
from typing import Literal

from seqtool.core.config import Config, setting
from seqtool.core.errors import ConfigError

LayerName = Literal["full", "adaptive", "nce", "blackout", "mixture", "maxent"]

# settings that some layers alone read
READ_BY: dict[str, tuple[LayerName, ...]] = {
    "cutoffs": ("adaptive",),
    "div_value": ("adaptive",),
    "noise_samples": ("nce", "blackout"),
    "noise_power": ("nce", "blackout"),
    "log_normaliser": ("nce",),
    "mixtures": ("mixture",),
    "dropout_latent": ("mixture",),
    "direct_order": ("maxent",),
    "direct_size": ("maxent",),
    "direct_rate": ("maxent",),
}


@dataclass(frozen=True)
class OutputConfig(Config):
    """How hidden states become probabilities of the next token."""

    layer: LayerName = setting(
        "full",
        "full, adaptive (softmax in clusters by frequency), nce or blackout (trained on samples), "
        "mixture (of softmaxes) or maxent (full, with direct connections from n-grams)",
    )
    cutoffs: tuple[int, ...] | None = setting(
        None, "adaptive: where clusters begin; default: a sixteenth and a quarter of the vocabulary"
    )
    div_value: float | None = setting(
        None,
        "adaptive: how many times narrower each cluster is than the one before; default: 4, or 1 "
        "if tied",
        minimum=1,
    )
    noise_samples: int = setting(
        500, "nce and blackout: samples per step, which all tokens of the batch share", minimum=1
    )
    noise_power: float | None = setting(
        None,
        "nce and blackout: samples come from the counts to this power; default: 1, or 0.4 for "
        "blackout",
        minimum=0,
        maximum=1,
    )
    log_normaliser: float | None = setting(
        None, "nce: the constant ln Z; default: ln of the vocabulary size"
    )
    mixtures: int = setting(10, "mixture: softmaxes", minimum=1)
    dropout_latent: float = setting(
        0.0, "mixture: dropout on what each softmax reads", minimum=0, below=1
    )
    direct_order: int = setting(3, "maxent: longest n-grams", minimum=2)
    direct_size: int = setting(
        1 << 22, "maxent: n-grams that the hash table has room for", minimum=1
    )
    direct_rate: float = setting(
        0.3, "maxent: learning rate of the n-grams (AdaGrad), before the schedule acts", above=0
    )

    def check(self) -> None:
        """Refuse settings that contradict each other."""
        for field in fields(self):
            layers = READ_BY.get(field.name)
            if layers and self.layer not in layers and getattr(self, field.name) != field.default:
                raise ConfigError(
                    f"{field.name} is set, but the output layer is {self.layer}",
                    hint=f"leave it out, or choose the output layer {' or '.join(layers)}",
                )
        if self.cutoffs is None:
            return
        borders = (1, *self.cutoffs)  # the short list holds <unk> and </s> at least
        if not self.cutoffs or not all(low < high for low, high in itertools.pairwise(borders)):
            raise ConfigError(
                f"cutoffs is {list(self.cutoffs)}, but must be numbers from 2 up, each larger than "
                "the one before",
                hint="such as [2000, 10000], or leave it out",
            )
