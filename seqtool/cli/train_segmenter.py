"""`seqtool train-segmenter`: train what splits raw text into sentences and words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from seqtool.cli.options import (
    DeviceOption,
    ForceOption,
    JsonOption,
    OutputOption,
    SeedOption,
    ThreadsOption,
    note,
    print_settings,
)
from seqtool.cli.training_options import (
    SETTINGS,
    EpochsOption,
    LearningRateOption,
    ListSettingsOption,
    MaxMinutesOption,
    PatienceOption,
    ResumeOption,
    SkipInvalidOption,
    any_setting,
    check_resume,
    given_settings,
    note_held_out,
    report,
    setting,
    stop_after,
    treebanks,
    typed,
)

DEFAULT_OUTPUT = Path("runs/segmenter")


def train_segmenter(
    treebank: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="TRAIN",
            help="CoNLL-U files (also .gz, .zst), with SpaceAfter=No where no space follows; "
            "without any, the English treebank of the shipped sample.",
            show_default=False,
        ),
    ] = None,
    dev: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CoNLL-U by whose words and sentences the best epoch is chosen; without it, "
            "every tenth sentence of TRAIN.",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = DEFAULT_OUTPUT,
    config: Annotated[Path | None, setting("A YAML file of settings.", metavar="FILE")] = None,
    set_: Annotated[list[str] | None, any_setting("model.token_units=128")] = None,
    list_settings: ListSettingsOption = False,
    epochs: EpochsOption = None,
    lr: LearningRateOption = None,
    patience: PatienceOption = None,
    resume: ResumeOption = False,
    force: ForceOption = False,
    skip_invalid: SkipInvalidOption = False,
    max_minutes: MaxMinutesOption = None,
    seed: SeedOption = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    json: JsonOption = False,
) -> None:
    """Train what splits raw text into sentences, tokens and words, on a treebank.

    The raw text is made from words, multiword tokens, SpaceAfter=No, newpar and newdoc. UPOS and
    DEPREL, where there are any, help to tell which tokens are split.
    """
    given = dict(locals())
    from seqtool.parsing.segmenter.config import SegmenterConfig, resolve

    if list_settings:
        print_settings(SegmenterConfig)
        return
    check_resume(resume=resume, force=force)
    values = given_settings(given, SETTINGS)
    settings = resolve(None, config, values, set_ or [], run=output if resume else None)
    treebank, dev = treebanks(treebank, dev, resume=resume)
    from seqtool.core.progress import Display
    from seqtool.parsing.segmenter.train import train_segmenter as train

    should_stop = stop_after(max_minutes)
    with Display() as display:
        trained = train(
            treebank,
            output,
            settings,
            dev=dev,
            resume=resume,
            force=force,
            skip_invalid=skip_invalid,
            device=device,
            threads=threads,
            on_event=display.show,
            on_data=_note_data,
            should_stop=should_stop,
            command=typed(),
        )
    report(
        trained,
        [
            f"dev words F1 {trained.scores['dev_words']:.2f}, "
            f"sentences F1 {trained.scores['dev_sentences']:.2f}; model in {trained.path}",
            f"next: seqtool segment FILE.txt -m {trained.path}",
        ],
        as_json=json,
        epochs=trained.epochs,
        parameters=trained.num_parameters,
    )


def _note_data(data: Any) -> None:
    """Say what is trained on."""
    from seqtool.core.errors import counted

    summary = data.summary
    note_held_out(summary)
    note(
        f"{counted(summary['sentences'], 'sentence')} in "
        f"{counted(summary['paragraphs'], 'paragraph')}, "
        f"{counted(summary['tokens'], 'token')}, {summary['multiword_tokens']:,} of them of "
        f"several words; validation: {counted(summary['dev_sentences'], 'sentence')}"
    )
