"""Training of segmenters: what is learnt, and that a resumed run ends the same."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from parsing.segmenter.tiny_segmenter import write_treebank
from safetensors.numpy import load_file

from seqtool.core import checkpoint
from seqtool.core.config import from_dict
from seqtool.core.errors import ConfigError, Interrupted, ModelError
from seqtool.parsing.segmenter.config import SegmenterConfig, resolve
from seqtool.parsing.segmenter.data import prepare_data
from seqtool.parsing.segmenter.task import SegmenterTask
from seqtool.parsing.segmenter.train import train_segmenter
from seqtool.training.run import TrainedModel
from seqtool.treebank.document import rebuild

SETTINGS = {
    "model": {
        "character_size": 8, "character_units": 16, "form_size": 8, "token_units": 16,
    },
    "learning": {
        "batch_characters": 512, "min_steps": 1, "window_characters": 32, "dropout_states": 0.1,
    },
    "training": {"epochs": 8, "learning_rate": 0.03, "optimiser": "adamw", "precision": "float32"},
}  # fmt: skip


@pytest.fixture(scope="module")
def treebank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("treebank")
    write_treebank(folder / "train.conllu", 80)
    write_treebank(folder / "dev.conllu", 30, seed=1)
    return folder


def trained(folder: Path, output: Path, **rest: Any) -> TrainedModel:
    settings = from_dict(SegmenterConfig, SETTINGS)
    train, dev = folder / "train.conllu", folder / "dev.conllu"
    return train_segmenter(train, output, settings, dev=dev, device="cpu", **rest)


def test_rules_are_learnt_and_a_resumed_run_ends_the_same(treebank: Path, tmp_path: Path) -> None:
    whole = trained(treebank, tmp_path / "whole")
    assert whole.scores["dev_words"] == whole.scores["dev_multiword"] == 100.0
    assert whole.scores["dev_sentences"] == 100.0
    segmenter = checkpoint.load(tmp_path / "whole")
    # an unseen word, and line breaks where the treebank has none
    text = "  aba ab-ba du\nab-ba Du. bab\tdu. aa.\n"
    sentences = list(segmenter.segment([text]))
    assert [s.column(1) for s in sentences] == [
        ["aba", "ab", "-", "ba", "de", "le", "ab", "-", "ba", "De", "le", "."],
        ["bab", "de", "le", "."],
        ["aa", "."],
    ]
    assert rebuild(sentences) == text

    part = tmp_path / "part"
    with pytest.raises(Interrupted, match="step 4") as stopped:
        trained(treebank, part, should_stop=lambda step: step == 4)
    assert f"--only segmenter --resume -o {part}" in stopped.value.hint
    with pytest.raises(Interrupted):
        train_segmenter(output=part, resume=True, device="cpu", should_stop=lambda step: step == 20)
    resumed = train_segmenter(output=part, resume=True, device="cpu")
    assert resumed.epochs == whole.epochs == 8
    before, after = (load_file(path / "weights.safetensors") for path in (whole.path, part))
    assert before.keys() == after.keys()
    assert all((before[name] == after[name]).all() for name in before)


def test_tags_add_their_loss(treebank: Path) -> None:
    data = prepare_data([treebank / "train.conllu"], treebank / "dev.conllu", SegmenterConfig())
    assert data.text.num_tags == 2  # a word without tags, or two
    losses = []
    for weight in (0.0, 3.0):
        config = from_dict(SegmenterConfig, {"learning": {"tag_weight": weight}})
        task = SegmenterTask(config, data)
        torch.nn.init.zeros_(task.module.tags.weight)
        torch.nn.init.zeros_(task.module.tags.bias)
        task.start_epoch(0)
        loss, num_characters = task.loss(0)
        losses.append(loss.item())
    windows = task._batches[0]
    num_tokens = int((task._layout.windows[windows + 1] - task._layout.windows[windows]).sum())
    # both tags are equally likely at first
    expected = 3.0 * math.log(2.0) * num_tokens / num_characters
    assert losses[1] - losses[0] == pytest.approx(expected, rel=1e-4)


def test_a_small_treebank_has_smaller_batches(treebank: Path) -> None:
    data = prepare_data([treebank / "train.conllu"], treebank / "dev.conllu", SegmenterConfig())
    task = SegmenterTask(from_dict(SegmenterConfig, {"learning": {"min_steps": 5}}), data)
    assert 5 <= task.start_epoch(0) <= 6  # the rest is a step too
    task = SegmenterTask(from_dict(SegmenterConfig, {"learning": {"min_steps": 10**6}}), data)
    assert task.start_epoch(0) == len(task._layout.windows) - 1


def test_a_run_without_a_model_says_how_to_go_on(treebank: Path, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        trained(treebank, tmp_path / "s", should_stop=lambda step: step == 1)
    with pytest.raises(ModelError) as refused:
        checkpoint.load(tmp_path / "s")
    assert "--only segmenter --resume" in refused.value.hint


def test_settings_are_combined(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("model:\n  token_units: 7\ntraining:\n  epochs: 3\n")
    config = resolve(None, file, {"training.epochs": 4}, ["model.form_size=9"])
    assert (config.model.token_units, config.model.form_size, config.training.epochs) == (7, 9, 4)
    assert config.training.optimiser == "adamw"
    with pytest.raises(ConfigError, match="token_unit"):
        resolve(None, None, {}, ["token_unit=3"])
    with pytest.raises(ConfigError, match="nothing is given to train on"):
        train_segmenter(output=tmp_path / "s")
