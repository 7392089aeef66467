"""What the tasks of segmenter, tagger and parser share, as the training loop sees them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from seqtool.parsing.encoding.encoder import dropout_mask
from seqtool.parsing.model import TreebankModel
from seqtool.training import hardware
from seqtool.training.config import TrainingConfig


class TreebankConfig(Protocol):
    """The settings of a segmenter, tagger or parser, as far as they are alike."""

    @property
    def training(self) -> TrainingConfig:
        """The training loop."""


class TrainingData(Protocol):
    """What a kind of model is trained on."""

    @property
    def summary(self) -> Mapping[str, Any]:
        """Numbers that tell these data from others."""


C = TypeVar("C", bound=TreebankConfig)
D = TypeVar("D", bound=TrainingData)


class TreebankTask(ABC, Generic[C, D]):
    """A task of `seqtool.training.loop.train` on a treebank.

    Args:
        config: all settings.
        data: what is learnt from.
        device: torch device of the network.
        command: what the user typed, for the model card.
    """

    larger_is_better = True

    def __init__(self, config: C, data: D, *, device: str = "cpu", command: str = "") -> None:
        self.config, self._data, self._device, self._command = config, data, device, command
        self._epoch = 0
        hardware.seed_everything(config.training.seed)

    @abstractmethod
    def model(self) -> TreebankModel[Any]:
        """Return the model of the weights as they are."""

    @property
    def summary(self) -> Mapping[str, Any]:
        """Numbers that tell its data from others."""
        return self._data.summary

    def rate_factor(self, index: int) -> float:
        """Return 1: every batch counts alike."""
        return 1.0

    def carried(self) -> dict[str, Tensor]:
        """Return what is carried from batch to batch: nothing."""
        return {}

    def restore_carried(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `carried` returned."""

    def save_model(self, directory: Path, scores: Mapping[str, float]) -> None:
        """Write the model as a model directory."""
        self.model().save(
            directory,
            scores=scores,
            data=self.summary,
            command=self._command,
            versions={"torch": torch.__version__},
        )

    def _begin_step(self, index: int) -> None:
        """Begin to draw random numbers anew, so that a resumed run draws the same ones."""
        self._random = np.random.default_rng((self.config.training.seed, self._epoch, index))

    def _kept(self, values: Tensor, dropout: float) -> Tensor | float:
        return dropout_mask(values, dropout, self._random)
