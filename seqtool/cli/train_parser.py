"""`seqtool train-parser`: train a parser, or with --raw all that plain text needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from seqtool.cli.options import (
    MAX_SHOWN,
    OutputOption,
    note,
    offer,
    print_settings,
    takes_options,
)
from seqtool.cli.training import (
    PANEL,
    SETTINGS,
    EmbeddingsOption,
    LanguageModelOption,
    PresetFileOption,
    TreebankOptions,
    dev_option,
    note_data,
    report,
    run_training,
    setting_option,
    treebank_argument,
)
from seqtool.cli.usage import examples
from seqtool.core.errors import ConfigError, counted


@takes_options(
    "seqtool.parsing.parser.config:ParserConfig",
    {
        "--decoder": offer("model.decoder", help="What finds trees (default transition)."),
        "--classifier": offer("model.classifier", help="What scores them (default neural)."),
        "--loss": offer("learning.loss", help="What is learnt (default local)."),
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
        "--epochs": offer(
            "training.epochs",
            help="Passes over the training part; with --raw those of the parsers.",
        ),
    },
)
@examples(
    "seqtool train-parser train.conllu --dev dev.conllu -o runs/parser",
    "seqtool train-parser train.conllu --dev dev.conllu --raw -o runs/mine",
    "seqtool train-parser train.conllu --preset accurate --fields form,upos",
    "seqtool train-parser train.conllu --distil runs/a,runs/b --unlabelled text.txt",
    "seqtool train-parser --raw --fast --list-settings",
)
def train_parser(
    treebank: Annotated[list[Path] | None, treebank_argument("with trees (also packed)")] = None,
    dev: Annotated[Path | None, dev_option("LAS")] = None,
    output: OutputOption = Path("runs/parser"),
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Train all that plain text needs, in one directory: a segmenter, taggers with a "
            "lemmatizer, and parsers that learn from predicted tags. Parts that are trained at "
            "once, each in a process of its own, share the threads; --threads 1 trains one after "
            "another. --seed and --time-limit are of all parts, --epochs and --fields of all "
            "parsers, --lr and --patience of the neural ones, other settings of the first parser; "
            "--set tagger.training.epochs=5 names another part.",
        ),
    ] = False,
    preset: Annotated[
        str | None,
        setting_option(
            "Settings by name (default fast; accurate with --raw). Words of chen-manning have two "
            "vectors, summed: of the form, and of its lower case, which the paper has not.",
            "fast|accurate|graph|chen-manning|linear|mst|mst2",
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
        setting_option(
            "What is read of a word (form,upos,feats), or what is not (-lemma,-xpos).", "LIST"
        ),
    ] = None,
    embeddings: EmbeddingsOption = None,
    lm: LanguageModelOption = None,
    distil: Annotated[
        list[str] | None,
        setting_option(
            "Learn from parsers over the same treebank as well, A,B: how probable they take heads "
            "(--decoder graph) or transitions (from those with the same system), and the "
            "trees that all find together: of variants of the treebank's sentences, and of the "
            "text of --unlabelled.",
            "MODEL,MODEL",
        ),
    ] = None,
    unlabelled: Annotated[
        list[str] | None,
        setting_option(
            "With --distil: CoNLL-U (its trees are not looked at) or, where --distil names a model "
            "of --raw, plain text; a file or a directory, repeatable.",
            "FILE",
        ),
    ] = None,
    init: Annotated[
        Path | None,
        setting_option(
            "With --loss global: a parser of the same treebank and settings to begin from, without "
            "local training.",
            "MODEL",
        ),
    ] = None,
    *,
    settings: dict[str, Any],
    options: TreebankOptions,
) -> None:
    """Train a dependency parser on a treebank.

    The trees are those of columns HEAD and DEPREL; the parser reads the other columns, so train it
    with --fields that will be there when it parses.
    """
    from seqtool.core.checkpoint import run_kind, run_record
    from seqtool.core.storage import read_object
    from seqtool.parsing.parser import config as parsers
    from seqtool.parsing.pipeline import config as pipelines

    raw = raw or (options.resume and run_kind(output) == "pipeline")
    if fast and preset not in (None, "fast"):
        raise ConfigError(f"--fast and --preset {preset} exclude each other", hint="give only one")
    if fields is not None:
        settings["model.fields"] = parsers.parse_fields(fields)
    resolve = pipelines.resolve if raw else parsers.resolve
    preset = "fast" if fast else preset
    named = [name.strip() for names in distil or () for name in names.split(",")]
    teachers = [name for name in named if name]
    if distil and not teachers:
        raise ConfigError("--distil names no parser", hint="write --distil runs/a,runs/b")
    record = run_record(output)
    run = read_object(record) if options.resume and record.is_file() else {}
    given = {
        "--distil": teachers or run.get("distil"),
        "--lm": lm or run.get("lm"),
        "--raw": raw or run.get("gold_tags"),  # which Python can name, too
    }
    chosen = options.resolve(
        *(resolve, preset, config),
        settings=settings,
        output=output,
        facts=[name for name, value in given.items() if value],
    )
    if options.list_settings:
        return print_settings(chosen)
    treebank, dev = options.treebanks(treebank, dev)
    sources: dict[str, Any] = {"dev": dev, "embeddings": embeddings, "lm": lm}
    if raw:
        if distil or unlabelled:
            raise ConfigError(
                "--distil is for a parser alone, not for all that --raw trains",
                hint="train with --raw first, then the parser in its directory with --distil",
            )
        if init is not None:
            raise ConfigError(
                "--init is for a parser alone, not for all that --raw trains",
                hint="leave out --raw, or --init",
            )
        from seqtool.parsing.pipeline.train import train_pipeline

        trained = run_training(
            train_pipeline, treebank, output, chosen, options, has_parts=True, **sources
        )
        shown = ", ".join(
            f"{name.removeprefix('dev_').replace('_', ' ')} {value:.2f}"
            for name, value in trained.scores.items()
        )
        report(
            trained,
            options.json,
            # a run that is resumed knows its dev by itself
            f"dev, from raw text on: {shown}"
            if "dev_las" in trained.scores
            else f"on what was held out: {shown}",
            f"{counted(trained.num_parameters, 'parameter')}; model in {trained.path}",
            next=("parse FILE.txt -m {}",),
        )
        return
    from seqtool.parsing.parser.train import train_parser as train

    sources["distil"] = teachers
    sources["unlabelled"] = unlabelled or ()
    sources["init"] = init

    def on_data(data: Any) -> None:
        _note_parser_data(data)
        training = data.config.training
        if training.time_limit is None and training.epochs != chosen.training.epochs:
            note(
                f"{counted(training.epochs, 'epoch')} by learning.small_epochs, as of "
                f"any treebank of fewer than {parsers.SMALL_SENTENCES:,} sentences"
            )

    trained = run_training(train, treebank, output, chosen, options, on_data=on_data, **sources)
    # what was trained by beams is to be searched by one as wide
    learning = chosen.learning
    beam = f" --beam {learning.global_beam}" if learning.loss == "global" else ""
    shares = []
    if (share := trained.scores.get("feature_share")) is not None:
        shares.append(f"{share:.0f}% of the time of parsing is spent on features")
    report(
        trained,
        options.json,
        f"dev LAS {trained.scores['dev_las']:.2f}, UAS {trained.scores['dev_uas']:.2f}; "
        f"{counted(trained.num_parameters, 'parameter')}; model in {trained.path}",
        *shares,
        next=(f"parse FILE.conllu -m {{}}{beam}",),
        system=trained.system,
    )


def _note_parser_data(data: Any) -> None:
    """Say what is left out, what is trained on, and by which system."""
    for error in data.skipped[:MAX_SHOWN]:
        note(f"left out: {error}")
    if len(data.skipped) > MAX_SHOWN:
        note(f"{counted(len(data.skipped), 'broken sentence')} left out in all")
    summary = data.summary
    num_non_projective = summary["non_projective_sentences"]
    model = data.config.model
    builds = f"{model.trees} trees" if model.decoder == "graph" else f"system {model.system}"
    note_data(
        summary,
        f"{counted(summary['sentences'], 'sentence')} of {summary['words']:,} words, "
        f"{num_non_projective:,} non-projective ({num_non_projective / summary['sentences']:.1%}); "
        f"validation: {counted(summary['dev_sentences'], 'sentence')}; "
        f"{counted(summary['labels'], 'label')}; {builds}",
    )
    if "taught_sentences" in summary:
        note(
            f"beside them {counted(summary['taught_sentences'], 'sentence')} of "
            f"{summary['taught_words']:,} words that {summary['teachers']} parsed"
        )
    if data.head_shares is not None:
        note(f"{summary['teachers']} told how probable heads are")
    if data.teachers:
        note(
            f"{counted(len(data.teachers), 'parser')} among the teachers with probabilities of "
            "transitions"
        )
