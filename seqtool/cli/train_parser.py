"""`seqtool train-parser`: train a dependency parser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from seqtool.cli.options import (
    DeviceOption,
    ForceOption,
    JsonOption,
    OutputOption,
    SeedOption,
    note,
)
from seqtool.cli.training_options import SETTINGS as SHARED_SETTINGS
from seqtool.cli.training_options import (
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
from seqtool.cli.treebanks import MAX_SHOWN

DEFAULT_OUTPUT = Path("runs/parser")

# option -> the setting it stands for
SETTINGS = {
    "system": "model.system",
    "encoder": "model.encoder",
    "hidden": "model.hidden_size",
    **SHARED_SETTINGS,
}


def train_parser(
    treebank: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="TRAIN",
            help="CoNLL-U files with trees (also .gz, .zst); without any, the English treebank of "
            "the shipped sample.",
            show_default=False,
        ),
    ] = None,
    dev: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CoNLL-U by whose LAS the best epoch is chosen; without it, every tenth sentence "
            "of TRAIN.",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = DEFAULT_OUTPUT,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Train all that plain text needs, in one directory: a segmenter, taggers with a "
            "lemmatizer, and parsers that are used to their tags.",
        ),
    ] = False,
    preset: Annotated[
        str | None,
        setting(
            "Settings by name (default fast; accurate with --raw).",
            metavar="fast|accurate|chen-manning",
        ),
    ] = None,
    fast: Annotated[bool, setting("The same as --preset fast, also with --raw.", "--fast")] = False,
    config: PresetFileOption = None,
    set_: Annotated[list[str] | None, any_setting("model.hidden_size=300")] = None,
    list_settings: ListSettingsOption = False,
    system: Annotated[
        str | None,
        setting(
            "auto (by the treebank, the default), arc-standard, arc-eager, arc-hybrid or swap.",
            metavar="NAME",
        ),
    ] = None,
    fields: Annotated[
        str | None,
        setting(
            "What is read of a word (form,upos,feats), or what is not (-lemma,-xpos).",
            metavar="LIST",
        ),
    ] = None,
    embeddings: Annotated[
        Path | None,
        setting(
            "A file of word vectors (word2vec, also its .bin; GloVe; fastText).", metavar="FILE"
        ),
    ] = None,
    lm: LanguageModelOption = None,
    encoder: Annotated[
        str | None,
        setting("What reads words in their sentence (default none).", metavar="none|bilstm"),
    ] = None,
    hidden: Annotated[int | None, setting("Hidden units.", metavar="N")] = None,
    epochs: EpochsOption = None,
    lr: LearningRateOption = None,
    patience: PatienceOption = None,
    resume: ResumeOption = False,
    force: ForceOption = False,
    skip_invalid: SkipInvalidOption = False,
    max_minutes: MaxMinutesOption = None,
    seed: SeedOption = None,
    device: DeviceOption = "auto",
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="CPU threads; all cores if not given. With --raw they are shared by parts that "
            "are trained at once, each in a process of its own; 1 trains one after another.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Train a dependency parser on a treebank.

    The trees are those of columns HEAD and DEPREL; the parser reads the other columns, so train it
    with --fields that will be there when it parses.
    """
    given = dict(locals())
    from seqtool.cli import train_pipeline as all_parts

    raw = raw or (resume and all_parts.is_run(output))
    if list_settings:
        all_parts.print_all_settings(raw=raw)
        return
    check_resume(resume=resume, force=force)
    if fast and preset not in (None, "fast"):
        from seqtool.core.errors import ConfigError

        raise ConfigError(f"--fast and --preset {preset} exclude each other", hint="give only one")
    preset = "fast" if fast else preset
    from seqtool.parsing.parser.config import parse_fields, resolve

    values = given_settings(given, SETTINGS)
    if fields is not None:
        values["model.fields"] = parse_fields(fields)
    run = output if resume else None
    if raw:
        from seqtool.parsing.pipeline.config import resolve as resolve_all

        resolve = resolve_all  # type: ignore[assignment]
    settings = resolve(preset, config, values, set_ or [], run=run)
    treebank, dev = treebanks(treebank, dev, resume=resume)
    from seqtool.core.progress import Display

    train: Callable[..., Any]
    noted: dict[str, Callable[..., None]] = {}
    if raw:
        from seqtool.parsing.pipeline.train import train_pipeline as train
        from seqtool.treebank.held_out import describe
    else:
        from seqtool.parsing.parser.train import train_parser as train

        noted["on_data"] = _note_data
    should_stop = stop_after(max_minutes)
    with Display() as display:
        if raw:
            noted["on_part"] = lambda part: display.note(f"{part}: reading the treebank")
            noted["on_held_out"] = lambda *numbers: display.note(describe(*numbers))
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
            should_stop=should_stop,
            command=typed(),
            **noted,
        )
    if raw:
        all_parts.report_all(trained, dev=dev, as_json=json)
    else:
        _report(trained, as_json=json)


def _report(trained: Any, *, as_json: bool) -> None:
    from seqtool.core.errors import counted

    report(
        trained,
        [
            f"dev LAS {trained.scores['dev_las']:.2f}, UAS {trained.scores['dev_uas']:.2f}; "
            f"{counted(trained.num_parameters, 'parameter')}; model in {trained.path}",
            f"next: seqtool parse FILE.conllu -m {trained.path}",
        ],
        as_json=as_json,
        epochs=trained.epochs,
        parameters=trained.num_parameters,
        system=trained.system,
    )


def _note_data(data: Any) -> None:
    """Say what is left out, what is trained on, and by which system."""
    from seqtool.core.errors import counted

    for error in data.skipped[:MAX_SHOWN]:
        note(f"left out: {error}")
    if len(data.skipped) > MAX_SHOWN:
        note(f"{counted(len(data.skipped), 'broken sentence')} left out in all")
    summary = data.summary
    num_non_projective = summary["non_projective_sentences"]
    note_held_out(summary)
    note(
        f"{counted(summary['sentences'], 'sentence')} of {summary['words']:,} words, "
        f"{num_non_projective:,} non-projective ({num_non_projective / summary['sentences']:.1%}); "
        f"validation: {counted(summary['dev_sentences'], 'sentence')}; "
        f"{counted(summary['labels'], 'label')}; system {data.config.model.system}"
    )
