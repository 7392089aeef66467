"""`seqtool train-parser`: train a dependency parser, or with --raw all that plain text needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from seqtool.cli.options import OutputOption, note, print_settings
from seqtool.cli.settings import offer, takes_options
from seqtool.cli.training import (
    MAX_SHOWN,
    PANEL,
    SETTINGS,
    EmbeddingsOption,
    LanguageModelOption,
    PresetFileOption,
    TreebankOptions,
    note_held_out,
    report,
    run_training,
)


@takes_options(
    "seqtool.parsing.parser.config:ParserConfig",
    {
        "--system": offer(
            "model.system",
            help="auto (by the treebank, the default), arc-standard, arc-eager, arc-hybrid or "
            "swap.",
            metavar="NAME",
        ),
        "--encoder": offer(
            "model.encoder", help="What reads words in their sentence (default none)."
        ),
        "--hidden": "model.hidden_size",
        **SETTINGS,
    },
    panel=PANEL,
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
    output: OutputOption = Path("runs/parser"),
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Train all that plain text needs, in one directory: a segmenter, taggers with a "
            "lemmatizer, and parsers that are used to their tags. Parts that are trained at once, "
            "each in a process of its own, share the threads; --threads 1 trains one after "
            "another.",
        ),
    ] = False,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Settings by name (default fast; accurate with --raw).",
            metavar="fast|accurate|chen-manning",
            rich_help_panel=PANEL,
        ),
    ] = None,
    fast: Annotated[
        bool,
        typer.Option(
            "--fast",
            help="The same as --preset fast, also with --raw.",
            rich_help_panel=PANEL,
            show_default=False,
        ),
    ] = False,
    config: PresetFileOption = None,
    fields: Annotated[
        str | None,
        typer.Option(
            help="What is read of a word (form,upos,feats), or what is not (-lemma,-xpos).",
            metavar="LIST",
            rich_help_panel=PANEL,
        ),
    ] = None,
    embeddings: EmbeddingsOption = None,
    lm: LanguageModelOption = None,
    *,
    settings: dict[str, Any],
    options: TreebankOptions,
) -> None:
    """Train a dependency parser on a treebank.

    The trees are those of columns HEAD and DEPREL; the parser reads the other columns, so train it
    with --fields that will be there when it parses.
    """
    raw = raw or (options.resume and _is_pipeline(output))
    from seqtool.parsing.parser import config as parsers
    from seqtool.parsing.pipeline import config as pipelines

    if options.list_settings:
        print_settings(pipelines.PipelineConfig if raw else parsers.ParserConfig)
        return
    if fast and preset not in (None, "fast"):
        from seqtool.core.errors import ConfigError

        raise ConfigError(f"--fast and --preset {preset} exclude each other", hint="give only one")
    if fields is not None:
        settings["model.fields"] = parsers.parse_fields(fields)
    chosen = options.resolve(
        pipelines.resolve if raw else parsers.resolve,
        "fast" if fast else preset,
        config,
        settings=settings,
        output=output,
    )
    treebank, given_dev = options.treebanks(treebank, dev)
    sources: dict[str, Any] = {"dev": given_dev, "embeddings": embeddings, "lm": lm}
    if raw:
        from seqtool.parsing.pipeline.train import train_pipeline

        trained = run_training(
            train_pipeline, treebank, output, chosen, options, has_parts=True, **sources
        )
        _report_pipeline(trained, dev=given_dev, as_json=options.json)
        return
    from seqtool.parsing.parser.train import train_parser as train

    trained = run_training(train, treebank, output, chosen, options, on_data=_note_data, **sources)
    _report_parser(trained, as_json=options.json)


def _is_pipeline(output: Path) -> bool:
    """Whether a directory holds a run of --raw."""
    from seqtool.core import checkpoint, storage

    try:
        return storage.read_object(output / checkpoint.RUN).get("kind") == "pipeline"
    except (OSError, ValueError):
        return False


def _report_parser(trained: Any, *, as_json: bool) -> None:
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


def _report_pipeline(trained: Any, *, dev: Path | None, as_json: bool) -> None:
    from seqtool.core.errors import counted

    shown = ", ".join(
        f"{name.removeprefix('dev_').replace('_', ' ')} {value:.2f}"
        for name, value in trained.scores.items()
    )
    report(
        trained,
        [
            f"dev, from raw text on: {shown}" if dev else f"on what was held out: {shown}",
            f"{counted(trained.num_parameters, 'parameter')}; model in {trained.path}",
            f"next: seqtool parse FILE.txt -m {trained.path}",
        ],
        as_json=as_json,
        parameters=trained.num_parameters,
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
