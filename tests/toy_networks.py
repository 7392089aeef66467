"""Networks of a few numbers, saved without any training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from seqtool.lm.neural.config import DataConfig, ModelConfig, NeuralLMConfig
from seqtool.lm.neural.train import LanguageModelTask
from seqtool.text.prepared import PreparedCorpus


def save_lm(path: Path, corpus: PreparedCorpus, hidden_size: int) -> None:
    """Write an untrained model of the corpus's vocabulary."""
    config = NeuralLMConfig(
        model=ModelConfig(hidden_size=hidden_size), data=DataConfig(batch_size=2, bptt=4)
    )
    LanguageModelTask(corpus, config, device="cpu").save_model(path, {"valid_perplexity": 2.5})


def run_as_on_gpu(run: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    """Do to autocast of the CPU what `hardware.run_recurrent` does to that of a GPU."""
    with torch.autocast("cpu", enabled=False):
        return run(inputs.float())
