"""Training of segmenters: what is learnt."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from parsing.segmenter.tiny_segmenter import TRAINING, write_treebank

from seqtool.core import checkpoint
from seqtool.core.config import from_dict
from seqtool.parsing.segmenter.config import SegmenterConfig
from seqtool.parsing.segmenter.data import segmenter_data
from seqtool.parsing.segmenter.train import SegmenterTask, train_segmenter
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.document import rebuild


@pytest.fixture(scope="module")
def treebank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("treebank")
    write_treebank(folder / "train.conllu", 80)
    write_treebank(folder / "dev.conllu", 30, seed=1)
    return folder


def test_rules_are_learnt(treebank: Path, tmp_path: Path) -> None:
    train, dev = treebank / "train.conllu", treebank / "dev.conllu"
    whole = train_segmenter(train, tmp_path / "whole", TRAINING, dev=dev, device="cpu")
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


def test_tags_add_their_loss(treebank: Path) -> None:
    data = segmenter_data(
        *(read_conllu(treebank / f"{name}.conllu", check="columns") for name in ("train", "dev")),
        SegmenterConfig(),
    )
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
