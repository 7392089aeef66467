"""`seqtool train-tagger`: train a tagger and lemmatizer."""

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
    LanguageModelOption,
    LearningRateOption,
    ListSettingsOption,
    MaxMinutesOption,
    PatienceOption,
    PresetFileOption,
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

DEFAULT_OUTPUT = Path("runs/tagger")


def train_tagger(
    treebank: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="TRAIN",
            help="CoNLL-U files with tags and lemmas (also .gz, .zst); without any, the English "
            "treebank of the shipped sample.",
            show_default=False,
        ),
    ] = None,
    dev: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CoNLL-U by whose tags the best epoch is chosen; without it, every tenth sentence "
            "of TRAIN.",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = DEFAULT_OUTPUT,
    preset: Annotated[
        str | None,
        setting("Settings by name (default accurate).", metavar="accurate|fast"),
    ] = None,
    config: PresetFileOption = None,
    set_: Annotated[list[str] | None, any_setting("model.encoder_size=128")] = None,
    list_settings: ListSettingsOption = False,
    embeddings: Annotated[
        Path | None,
        setting(
            "A file of word vectors (word2vec's text or .bin, GloVe, fastText's .vec).",
            metavar="FILE",
        ),
    ] = None,
    lm: LanguageModelOption = None,
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
    """Train a tagger and lemmatizer on a treebank.

    It learns columns UPOS, XPOS, FEATS and LEMMA; trees are not looked at.
    """
    given = dict(locals())
    from seqtool.parsing.tagger.config import TaggerConfig, resolve

    if list_settings:
        print_settings(TaggerConfig)
        return
    check_resume(resume=resume, force=force)
    values = given_settings(given, SETTINGS)
    settings = resolve(preset, config, values, set_ or [], run=output if resume else None)
    treebank, dev = treebanks(treebank, dev, resume=resume)
    from seqtool.core.errors import counted
    from seqtool.core.progress import Display
    from seqtool.parsing.tagger.train import train_tagger as train

    should_stop = stop_after(max_minutes)
    with Display() as display:
        trained = train(
            treebank,
            output,
            settings,
            dev=dev,
            embeddings=embeddings,
            lm=lm,
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
    scores = trained.scores
    report(
        trained,
        [
            f"dev UPOS {scores['dev_upos']:.2f}, XPOS {scores['dev_xpos']:.2f}, "
            f"FEATS {scores['dev_feats']:.2f}, lemmas {scores['dev_lemmas']:.2f}; "
            f"{counted(trained.num_parameters, 'parameter')}; model in {trained.path}",
            f"next: seqtool tag FILE.conllu -m {trained.path}",
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
        f"{counted(summary['sentences'], 'sentence')} of {summary['words']:,} words; "
        f"validation: {counted(summary['dev_sentences'], 'sentence')}; "
        f"{counted(summary['bundles'], 'bundle')} of tags, "
        f"{counted(summary['edit_scripts'], 'edit script')}"
    )
