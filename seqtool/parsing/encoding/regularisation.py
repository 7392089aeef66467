"""What keeps the networks of treebanks from learning them by heart: dropout and averaging.

Random numbers are NumPy's: a generator for each step, so that a continued run draws the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from seqtool.parsing.encoding import cloze, head_choice

TRAINING_ONLY = (cloze.PREFIX, head_choice.PREFIX)  # weights that are no part of a model
AVERAGE_EVERY = 4  # steps between updates of the average


def dropout_mask(values: Tensor, dropout: float, generator: np.random.Generator) -> Tensor | float:
    """What dropout multiplies values by; of bytes, as torch's own draws are slow on a CPU."""
    if not dropout:
        return 1.0
    share = round(256 * dropout)
    drawn = generator.integers(0, 256, values.shape, np.uint8)
    kept = torch.from_numpy(drawn >= share).to(values.device)
    return kept.to(values.dtype).mul_(256 / (256 - share))


def unknown_chances(counts: npt.NDArray[np.integer[Any]], weight: float) -> Tensor:
    """How often symbols are to be taken for unknown: weight / (weight + count).

    Args:
        counts: of symbols in the treebank; those that do not occur there are never dropped.
        weight: a symbol of this count is dropped half of the time; 0 is off.
    """
    chances = np.where(counts > 0, weight / np.maximum(weight + counts, 1e-9), 0.0)
    return torch.from_numpy(chances.astype(np.float32))


class AveragedWeights:
    """An exponential moving average of the parameters of a network.

    Args:
        module: the network; it begins with its weights as they are.
        decay: per step; 0 for none, then the last weights stand for the average.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self._module, self._decay = module, decay
        self._averages = [parameter.detach().clone() for parameter in module.parameters()]
        self._steps = 0

    def update(self) -> None:
        """Count a step that is about to be made; every so often, take in the weights before it."""
        if self._decay and self._steps % AVERAGE_EVERY == 0:
            # the first weights are soon forgotten
            decay = min(self._decay**AVERAGE_EVERY, (1 + self._steps) / (10 + self._steps))
            with torch.no_grad():
                torch._foreach_lerp_(self._averages, list(self._module.parameters()), 1.0 - decay)
        self._steps += 1

    def arrays(self) -> dict[str, np.ndarray]:
        """The weights by their names, as NumPy has them, but those for training only.

        On a CPU they change with the average.
        """
        tensors = dict(self._module.state_dict())
        if self._decay:
            names = [name for name, _ in self._module.named_parameters()]
            tensors |= zip(names, self._averages, strict=True)
        return {
            name: tensor.detach().cpu().numpy()
            for name, tensor in tensors.items()
            if not name.startswith(TRAINING_ONLY)
        }

    def carried(self) -> dict[str, Tensor]:
        """What a continued run needs of it."""
        carried = {f"average.{i}": tensor.clone() for i, tensor in enumerate(self._averages)}
        return {**carried, "steps": torch.tensor(self._steps)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `carried` returned; other tensors are passed over."""
        for i, average in enumerate(self._averages):
            average.copy_(tensors[f"average.{i}"])
        self._steps = int(tensors["steps"])
