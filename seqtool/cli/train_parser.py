"""`seqtool train-parser`: train a dependency parser."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from seqtool.cli.options import (
    DeviceOption,
    ForceOption,
    JsonOption,
    SeedOption,
    ThreadsOption,
    emit,
    note,
)

DEFAULT_OUTPUT = Path("runs/parser")
MAX_SHOWN = 5  # broken sentences named on stderr

# option -> the setting it stands for
SETTINGS = {
    "system": "model.system",
    "encoder": "model.encoder",
    "hidden": "model.hidden_size",
    "epochs": "training.epochs",
    "lr": "training.learning_rate",
    "patience": "training.patience",
    "seed": "training.seed",
}


def _setting(help: str, *names: str, metavar: str | None = None) -> Any:
    return typer.Option(
        *names, help=help, rich_help_panel="Settings", metavar=metavar, show_default=False
    )


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
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Directory to write to.")
    ] = DEFAULT_OUTPUT,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Train all that plain text needs, in one directory: a segmenter, a tagger with a "
            "lemmatizer, and a parser that is used to its tags.",
        ),
    ] = False,
    preset: Annotated[
        str | None,
        _setting(
            "Settings by name (default fast; accurate with --raw).",
            metavar="fast|accurate|chen-manning",
        ),
    ] = None,
    config: Annotated[
        Path | None, _setting("A YAML file of settings, over the preset's.", metavar="FILE")
    ] = None,
    set_: Annotated[
        list[str] | None,
        _setting(
            "Any setting, such as model.hidden_size=300; repeatable.", "--set", metavar="KEY=VALUE"
        ),
    ] = None,
    list_settings: Annotated[
        bool,
        typer.Option("--list-settings", help="Print every setting with its meaning, and exit."),
    ] = False,
    system: Annotated[
        str | None,
        _setting(
            "auto (by the treebank, the default), arc-standard, arc-eager, arc-hybrid or swap.",
            metavar="NAME",
        ),
    ] = None,
    fields: Annotated[
        str | None,
        _setting(
            "What is read of a word (form,upos,feats), or what is not (-lemma,-xpos).",
            metavar="LIST",
        ),
    ] = None,
    embeddings: Annotated[
        Path | None,
        _setting("A text file of word vectors (word2vec, GloVe, fastText).", metavar="FILE"),
    ] = None,
    encoder: Annotated[
        str | None,
        _setting("What reads words in their sentence (default none).", metavar="none|bilstm"),
    ] = None,
    hidden: Annotated[int | None, _setting("Hidden units.", metavar="N")] = None,
    epochs: Annotated[int | None, _setting("Passes over the treebank.", metavar="N")] = None,
    lr: Annotated[float | None, _setting("Learning rate.", metavar="X")] = None,
    patience: Annotated[
        int | None, _setting("Stop after N epochs without improvement; 0 is off.", metavar="N")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in the output directory.")
    ] = False,
    force: ForceOption = False,
    skip_invalid: Annotated[
        bool, typer.Option("--skip-invalid", help="Leave out broken sentences.")
    ] = False,
    max_minutes: Annotated[
        float | None,
        typer.Option(
            min=0.0, metavar="N", help="Save and stop after this long; continue with --resume."
        ),
    ] = None,
    seed: SeedOption = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    json: JsonOption = False,
) -> None:
    """Train a dependency parser on a treebank.

    The trees are those of columns HEAD and DEPREL; the parser reads the other columns, so train it
    with --fields that will be there when it parses.
    """
    given = dict(locals())
    from seqtool.cli import train_pipeline

    raw = raw or (resume and train_pipeline.is_run(output))
    if list_settings:
        train_pipeline.print_all_settings(raw=raw)
        return
    if resume and force:
        raise typer.BadParameter("--resume continues a run and --force replaces it: give one")
    from seqtool.parsing.config import parse_fields, resolve

    values = {name: given[option] for option, name in SETTINGS.items() if given[option] is not None}
    if fields is not None:
        values["model.fields"] = parse_fields(fields)
    run = output if resume else None
    if raw:
        from seqtool.parsing.pipeline.config import resolve as resolve_all

        resolve = resolve_all  # type: ignore[assignment]
    settings = resolve(preset, config, values, set_ or [], run=run)
    if not treebank and not resume:
        from seqtool.corpora.sample import sample_treebank

        treebank = [sample_treebank("en", "train")]
        dev = dev or sample_treebank("en", "valid")
        note("no treebank given: training on the shipped English sample")
    train = train_pipeline.train_all if raw else _train
    train(
        treebank,
        dev,
        output,
        settings,
        embeddings=embeddings,
        resume=resume,
        force=force,
        skip_invalid=skip_invalid,
        max_minutes=max_minutes,
        device=device,
        threads=threads,
        as_json=json,
    )


def _train(
    treebank: list[Path] | None,
    dev: Path | None,
    output: Path,
    settings: Any,
    *,
    embeddings: Path | None,
    resume: bool,
    force: bool,
    skip_invalid: bool,
    max_minutes: float | None,
    device: str,
    threads: int | None,
    as_json: bool,
) -> None:
    from seqtool.errors import counted
    from seqtool.parsing.train import train_parser as train
    from seqtool.progress import Display

    deadline = None if max_minutes is None else time.monotonic() + 60.0 * max_minutes
    with Display() as display:
        trained = train(
            list(treebank) if treebank else None,
            output,
            settings,
            dev=dev,
            embeddings=embeddings,
            resume=resume,
            force=force,
            skip_invalid=skip_invalid,
            device=device,
            threads=threads,
            on_event=display.show,
            on_data=_note_data,
            should_stop=lambda step: deadline is not None and time.monotonic() >= deadline,
            command=shlex.join(["seqtool", *sys.argv[1:]]),
        )
    if as_json:
        emit(
            {
                "model": str(trained.path),
                "seconds": trained.seconds,
                "epochs": trained.epochs,
                "parameters": trained.num_parameters,
                "system": trained.system,
                **trained.scores,
            }
        )
        return
    note(
        f"dev LAS {trained.scores['dev_las']:.2f}, UAS {trained.scores['dev_uas']:.2f}; "
        f"{counted(trained.num_parameters, 'parameter')}; model in {trained.path}"
    )
    note(f"next: seqtool parse FILE.conllu -m {trained.path}")
    print(trained.path)


def _note_data(data: Any) -> None:
    """Say what is left out, what is trained on, and by which system."""
    from seqtool.errors import counted

    for error in data.skipped[:MAX_SHOWN]:
        note(f"left out: {error}")
    if len(data.skipped) > MAX_SHOWN:
        note(f"{counted(len(data.skipped), 'broken sentence')} left out in all")
    summary = data.summary
    crossing = summary["non_projective_sentences"]
    held_out = ", every tenth of the treebank" if summary["dev_held_out"] else ""
    note(
        f"{counted(summary['sentences'], 'sentence')} of {summary['words']:,} words, "
        f"{crossing:,} with crossing arcs ({crossing / summary['sentences']:.1%}); "
        f"validation: {counted(summary['dev_sentences'], 'sentence')}{held_out}; "
        f"{counted(summary['labels'], 'label')}; system {data.config.model.system}"
    )
