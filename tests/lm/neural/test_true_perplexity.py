"""No model does better on the sample than the grammar that wrote it."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from seqtool.core import checkpoint
from seqtool.core.config import from_dict
from seqtool.core.storage import sum_of
from seqtool.lm.evaluation import evaluate_lm
from seqtool.lm.neural.config import CellName, NeuralLMConfig
from seqtool.lm.neural.train import train_lm
from seqtool.text.datasets import sample_text, true_perplexity
from seqtool.text.prepared import PrepareConfig, PreparedCorpus, prepare

TEST = sample_text("en", "test")
VALID = sample_text("en", "valid")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    """The small valid part to train on; the vocabulary knows every word, for <unk> is cheap."""
    folder = tmp_path_factory.mktemp("sample")
    words = {
        word
        for split in ("train", "valid", "test")
        for word in sample_text("en", split).read_text(encoding="utf-8").split()
    }
    word_list = folder / "words.txt"
    word_list.write_text("".join(f"{word}\n" for word in sorted(words)), encoding="utf-8")
    config = PrepareConfig(vocab=str(word_list))
    return prepare([VALID], folder / "corpus", config, valid=VALID)


@pytest.mark.parametrize("cell", get_args(CellName))
def test_no_cell_is_better_than_the_grammar(
    cell: str, corpus: PreparedCorpus, tmp_path: Path
) -> None:
    config = from_dict(
        NeuralLMConfig,
        {
            "model": {"cell": cell, "hidden_size": 16, "depth": 2},
            "data": {"batch_size": 20, "bptt": 20},
            "training": {"epochs": 2, "learning_rate": 0.01},
        },
    )
    train_lm(corpus, tmp_path / "lm", config, threads=1)
    evaluation = evaluate_lm(checkpoint.load(tmp_path / "lm"), [TEST])
    truth = true_perplexity(sum_of(TEST))
    assert truth is not None
    assert evaluation.oov == 0
    assert evaluation.true_perplexity == pytest.approx(truth.perplexity, rel=1e-12)
    # it has learnt something too: a uniform guess is at the size of the vocabulary
    assert truth.perplexity < evaluation.perplexity < len(corpus.vocabulary) / 3
