"""Jackknifing: each fold of a treebank is tagged by a tagger that has not seen it.

What reads predicted tags later is trained on such: on gold tags it would learn to trust them.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from seqtool.core import checkpoint
from seqtool.core.config import from_dict
from seqtool.core.errors import ConfigError, counted
from seqtool.core.progress import Event
from seqtool.parsing.tagger.config import TAGGERS, TaggerConfig
from seqtool.parsing.tagger.data import tagger_data
from seqtool.parsing.tagger.train import TaggerTask
from seqtool.parsing.train import fingerprint
from seqtool.training.loop import train
from seqtool.training.run import complete
from seqtool.treebank.sentence import Sentence

EPOCHS = 6  # of each fold: fewer than of a tagger that is kept


def fold_config(**training: Any) -> TaggerConfig:
    """Return the settings of a fold's tagger: `fast`, few epochs, and given ones of the loop."""
    base = TAGGERS.settings("fast")
    base["training"] |= {"epochs": EPOCHS, **training}
    return from_dict(TaggerConfig, base)


def check_folds(num_sentences: int, folds: int) -> None:
    """Raise ConfigError where there are fewer sentences than folds, or fewer than two folds."""
    if folds < 2 or num_sentences < folds:
        raise ConfigError(
            f"{counted(num_sentences, 'sentence')} cannot be split into {folds} folds",
            hint="give a larger treebank, or 2 folds or more",
        )


def tagged_fold(
    sentences: Sequence[Sentence],
    fold: int,
    directory: str | Path,
    config: TaggerConfig | None = None,
    *,
    folds: int,
    device: str = "cpu",
    embeddings: str | None = None,
    command: str = "train-parser",
    on_event: Callable[[Event], None] = lambda event: None,
    should_stop: Callable[[int], bool] | None = None,
) -> list[Sentence]:
    """Return copies of the sentences of a fold, with predicted UPOS, XPOS, FEATS and lemmas.

    Sentence i, from 0, is of fold i % folds, and is tagged by a tagger of all others. The folds do
    not depend on one another. The same sentences and settings give the same tags. Called again
    after an interruption, it goes on where it stopped, with the same result. The runs of the folds,
    `fold-0` and so on, are in `directory`, and may be removed afterwards; the hint of an
    interrupted run names `command` and the directory above. Without `config`, it is that of
    `fold_config()`. See `check_folds`, and `WordOptions` for the others.

    Raises:
        Interrupted: it was stopped; the state is saved.
        DataError, ModelError, TrainingError, OutputError: as their messages say.
    """
    begun = time.perf_counter()
    output = Path(directory) / f"fold-{fold}"
    output.mkdir(parents=True, exist_ok=True)
    config = config or fold_config()
    others = [item for number, item in enumerate(sentences) if number % folds != fold]
    data = tagger_data(others, sentences[fold::folds], config, embeddings=embeddings)
    events = train(
        TaggerTask(config, data, device=device),
        config.training,
        output,
        device=device,
        fingerprint=fingerprint(config, data.summary),
        resume=True,
        should_stop=should_stop,
        begun=begun,
    )
    complete(events, output.parent.parent, command, on_event=on_event)
    tagged = [
        dataclasses.replace(item, rows=[list(row) for row in item.rows])
        for item in sentences[fold::folds]
    ]
    for _ in checkpoint.load(output).tag_stream(tagged, retag=True):
        pass
    return tagged


def in_order(tagged: Sequence[Sequence[Sentence]]) -> list[Sentence]:
    """Return the sentences of all folds, from 0 on, in the order of the treebank."""
    num = sum(map(len, tagged))
    return [tagged[i % len(tagged)][i // len(tagged)] for i in range(num)]
