"""Networks of a few numbers, saved without any training."""

from __future__ import annotations

from pathlib import Path

from seqtool.lm.neural.config import DataConfig, ModelConfig, NeuralLMConfig
from seqtool.lm.neural.task import LanguageModelTask
from seqtool.text.prepared import PreparedCorpus


def save_lm(path: Path, corpus: PreparedCorpus, hidden_size: int) -> None:
    """Write an untrained model of the corpus's vocabulary."""
    config = NeuralLMConfig(
        model=ModelConfig(hidden_size=hidden_size), data=DataConfig(batch_size=2, bptt=4)
    )
    LanguageModelTask(corpus, config, device="cpu").save_model(path, {"valid_perplexity": 2.5})
