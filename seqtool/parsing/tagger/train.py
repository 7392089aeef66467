"""Training of taggers: `train_tagger`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqtool.core.config import from_dict
from seqtool.core.progress import Event
from seqtool.parsing.encoding.lm_states import open_for_run
from seqtool.parsing.tagger.config import KIND, TaggerConfig, preset
from seqtool.parsing.tagger.data import TrainingData, read_data
from seqtool.parsing.tagger.model import model_card
from seqtool.parsing.tagger.task import TaggerTask
from seqtool.parsing.train import RunRecord, open_record, train_on_treebank, with_precision
from seqtool.training.run import TrainedModel


@dataclass(frozen=True)
class TrainedTagger(TrainedModel):
    """What `train_tagger` returns.

    Attributes:
        path: the model directory.
        scores: `dev_upos`, `dev_xpos`, `dev_feats`, `dev_tags` (all three) and `dev_lemmas` in
            percent, `train_seconds`, and the `words_per_second` of training where a whole epoch was
            trained.
        seconds: training time, validation included, over all continuations.
        num_parameters: trained numbers.
        epochs: epochs completed.
    """


def train_tagger(
    train_files: Sequence[str | Path] | str | Path | None = None,
    output: str | Path = "runs/tagger",
    config: TaggerConfig | None = None,
    *,
    dev: str | Path | None = None,
    embeddings: str | Path | None = None,
    lm: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    skip_invalid: bool = False,
    device: str = "auto",
    threads: int | None = None,
    on_event: Callable[[Event], None] = lambda event: None,
    on_data: Callable[[TrainingData], None] = lambda data: None,
    should_stop: Callable[[int], bool] | None = None,
    command: str = "",
) -> TrainedTagger:
    """Train a tagger and lemmatizer.

    Args:
        train_files: CoNLL-U with tags and lemmas; trees are not looked at. A run that is resumed
            knows its own.
        output: the model directory.
        config: all settings, the preset `accurate` if not given; those of the run when one is
            resumed.
        dev: CoNLL-U by whose tags the best epoch is chosen; without it, every tenth sentence of the
            treebank is kept for that.
        embeddings: a file of word vectors that forms begin with.
        lm: a neural language model whose states after words are read too; it is copied into the
            model directory.
        resume: continue the run in `output` where it was saved.
        force: replace a run that is there.
        skip_invalid: leave out broken sentences.
        device: auto, cpu, cuda or mps.
        threads: CPU threads; None leaves the choice to torch.
        on_event: called with every event of the run.
        on_data: called with the data once they are read.
        should_stop: asked with the step number before each step; True saves and interrupts.
        command: what the user typed, for the model card.

    Raises:
        Interrupted: Ctrl-C, SIGTERM or `should_stop`; the state is saved.
        DataError, ConfigError, ModelError, TrainingError, OutputError: as their messages say.
    """
    output = Path(output)
    record = open_record(
        output,
        KIND,
        config,
        from_dict(TaggerConfig, preset("accurate")),
        train_files,
        wanted="a CoNLL-U file with tags",
        dev=dev,
        embeddings=embeddings,
        lm=lm,
        resume=resume,
        force=force,
        skip_invalid=skip_invalid,
        threads=threads,
        command=command,
    )

    def prepare(record: RunRecord[TaggerConfig], device: str) -> TaggerTask:
        training = with_precision(record.config.training, device)
        settings = dataclasses.replace(record.config, training=training)
        data = read_data(
            record.train,
            record.dev,
            settings.model,
            skip_invalid=record.skip_invalid,
            embeddings=record.embeddings,
            word_states=open_for_run(record.lm, output, resume=resume, device=device),
        )
        on_data(data)
        return TaggerTask(settings, data, device=device, command=record.command)

    trained = train_on_treebank(
        record,
        output,
        prepare,
        model_card,
        resume=resume,
        device=device,
        on_event=on_event,
        should_stop=should_stop,
    )
    return TrainedTagger(**vars(trained))
