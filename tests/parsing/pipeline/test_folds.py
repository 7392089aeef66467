"""Jackknifing: each fold of a treebank is tagged by a tagger that has not seen it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from parsing.tagger.toy import random_treebank, sentence_of, tiny_config

from seqtool.core import checkpoint
from seqtool.core.errors import ConfigError, Interrupted
from seqtool.core.progress import EpochDone, Event
from seqtool.parsing.pipeline.folds import check_folds, in_order, tagged_fold
from seqtool.treebank.sentence import Sentence


def jackknifed(sentences: list[Sentence], folder: Path, **rest: Any) -> list[Sentence]:
    """All of a treebank, in two folds."""
    return in_order(
        [tagged_fold(sentences, fold, folder, tiny_config(6), folds=2, **rest) for fold in (0, 1)]
    )


def test_jackknifing(tmp_path: Path) -> None:
    """A word that is met once, and what it is follows from nothing: only by itself can it be known.

    With two folds, each half is tagged by a tagger of the other half.
    """
    sentences = random_treebank(60)
    odd = sentence_of([("zzz", "yyy", "INTJ", "UH", "_")])
    sentences[30] = odd
    before = [item.to_conllu() for item in sentences]
    events: list[Event] = []
    found = jackknifed(sentences, tmp_path / "whole", on_event=events.append)
    assert [item.to_conllu() for item in sentences] == before
    assert len([event for event in events if isinstance(event, EpochDone)]) == 12
    wrong = [i for i, item in enumerate(found) if item.to_conllu() != before[i]]
    assert 30 in wrong
    assert len(wrong) < 20  # of 60: what is learnt is learnt by both
    assert ("INTJ", "UH", "_") in checkpoint.load(tmp_path / "whole" / "fold-1").bundles.ids
    assert ("INTJ", "UH", "_") not in checkpoint.load(tmp_path / "whole" / "fold-0").bundles.ids
    # stopped in the second fold, and called again
    calls = 0

    def stop(step: int) -> bool:
        nonlocal calls
        calls += 1
        return calls > 24

    with pytest.raises(Interrupted, match="saved"):
        jackknifed(sentences, tmp_path / "parts", should_stop=stop)
    assert (tmp_path / "parts" / "fold-1").is_dir()
    again = jackknifed(sentences, tmp_path / "parts")
    assert [item.to_conllu() for item in again] == [item.to_conllu() for item in found]


@pytest.mark.parametrize(("num", "folds"), [(3, 4), (3, 1)])
def test_folds_that_cannot_be(num: int, folds: int) -> None:
    with pytest.raises(ConfigError, match="cannot be split"):
        check_folds(num, folds)
