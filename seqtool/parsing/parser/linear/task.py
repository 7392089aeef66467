"""Linear models of parsing as tasks of the training loop, with updates of their own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from seqtool.core.arrays import Floats
from seqtool.parsing.encoding.averages import Averaged
from seqtool.parsing.parser.config import ParserConfig
from seqtool.parsing.parser.data import TrainingData
from seqtool.parsing.parser.parser import Parser
from seqtool.parsing.train import TreebankTask


class LinearWeights(nn.Module):
    """Weights with what their averages need, as a module that is saved and restored.

    Args:
        sizes: name -> how many weights.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        for name, size in sizes.items():
            # a parameter is counted as a trained number; without a gradient, no optimiser moves it
            self.register_parameter(name, nn.Parameter(torch.zeros(size), requires_grad=False))
            self.register_buffer(f"{name}_noted", torch.zeros(size, dtype=torch.float64))
            self.register_buffer(f"{name}_num", torch.zeros(1, dtype=torch.int64))

    def arrays(self, name: str) -> Averaged:
        """Return the weights of a name as arrays, in the same memory."""
        tensors = (getattr(self, name + part).detach() for part in ("", "_noted", "_num"))
        return Averaged(*(tensor.numpy() for tensor in tensors))


class LinearTask(TreebankTask[ParserConfig, TrainingData]):
    """A linear model for `seqtool.training.loop.train`, an `OnlineTask`.

    Args:
        config: all settings.
        data: what is learnt from.
        sizes: of the arrays of weights, by their names in the model.
        device, command: see `TreebankTask`; it works on the CPU, whatever the device.

    Attributes:
        weights: those that are learnt, by name.
    """

    score = "dev_las"

    def __init__(
        self, config: ParserConfig, data: TrainingData, sizes: Mapping[str, int], **options: str
    ) -> None:
        super().__init__(config, data, **options)
        self.module = LinearWeights(sizes)
        self.weights = {name: self.module.arrays(name) for name in sizes}

    @abstractmethod
    def _pass(self, index: int, rate: float | None) -> tuple[float, int]:
        """Go through the items of batch `index`, and learn each at a rate, unless it is None.

        Returns their mean loss, each before it is learnt, and their number. What chance decides
        comes from `self._random`.
        """

    def learn(self, index: int, rate: float) -> tuple[Tensor, int]:
        """Learn batch `index`; return its mean loss and number of items."""
        self._begin_step(index)
        loss, num_items = self._pass(index, rate)
        return torch.tensor(loss), num_items

    def loss(self, index: int) -> tuple[Tensor, int]:
        """Return the same without learning."""
        self._begin_step(index)
        loss, num_items = self._pass(index, None)
        return torch.tensor(loss), num_items

    def averages(self) -> dict[str, Floats]:
        """Return the averaged weights by name: those of the model."""
        return {name: weights.average() for name, weights in self.weights.items()}

    @property
    def about(self) -> Mapping[str, Any]:
        """That of the data."""
        return self._data.about

    def model(self) -> Parser:
        """Return the parser of the averaged weights."""
        return Parser(self.config, self._data.types, self._data.labels, self.averages())

    def validate(self) -> dict[str, float]:
        """Return UAS and LAS of the validation part; see `GoldTrees.scores`."""
        dev = self._data.dev
        return dev.scores(self.model().trees(dev.arrays))
