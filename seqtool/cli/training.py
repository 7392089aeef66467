"""`seqtool train-segmenter`, `train-tagger` and `train-parser`, and what every `train-*` shares."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqtool.cli.options import (
    MAX_SHOWN,
    DeviceOption,
    ForceOption,
    JsonOption,
    MaxMinutesOption,
    OutputOption,
    ResumeOption,
    SeedOption,
    ThreadsOption,
    emit,
    note,
    note_next,
    offer,
    print_settings,
    stdin_or_sample,
    takes_options,
    typed,
)
from seqtool.cli.usage import examples
from seqtool.core.errors import ConfigError, counted
from seqtool.core.terminal import echo

if TYPE_CHECKING:
    from seqtool.core.progress import Event

PANEL = "Settings"
SCHEMES = {  # of labels of words
    "bio": "BIO: what it does not allow is never predicted, and the best epoch has the highest F1",
    "entities": "those of entities, but not BIO throughout (I-X after B-X or I-X alone): each is "
    "chosen by itself, and the best epoch has the highest F1",
    "any": "not those of entities (B-X, I-X, O): the best epoch has the highest accuracy",
}

# options of every training on a treebank
SETTINGS = {
    "--epochs": "training.epochs",
    "--lr": "training.learning_rate",
    "--patience": "training.patience",
}


def _train(what: str) -> Any:
    sample = "without any, the English treebank of the shipped sample."
    return typer.Argument(metavar="TRAIN", help=f"CoNLL-U files {what}; {sample}")


def _dev(scores: str) -> Any:
    chosen = f"CoNLL-U by whose {scores} the best epoch is chosen"
    help = f"{chosen}; without it, every tenth sentence of TRAIN."
    return typer.Option(metavar="FILE", help=help)


def _setting(help: str, metavar: str, *names: str) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=PANEL)


PresetFileOption = Annotated[
    Path | None, _setting("A YAML file of settings, over the preset's.", "FILE")
]
EmbeddingsOption = Annotated[
    Path | None,
    _setting("A file of word vectors (word2vec, also its .bin; GloVe; fastText).", "FILE"),
]
LanguageModelOption = Annotated[
    Path | None,
    _setting(
        "A model of train-lm whose state after each word is read too; it is copied into the "
        "output. A parser has to have an encoder for it (--preset accurate).",
        "DIR",
        "--lm",
    ),
]


@dataclass(frozen=True)
class TrainingOptions:
    """Options of every command that trains a network, which are no settings of the network."""

    set_: Annotated[
        list[str] | None,
        _setting(
            "Any setting, such as training.weight_decay=0.01; repeatable.", "KEY=VALUE", "--set"
        ),
    ] = None
    list_settings: Annotated[
        bool,
        typer.Option(
            "--list-settings",
            help="Print every setting as it would be used, with its meaning, and exit.",
        ),
    ] = False
    resume: ResumeOption = False
    force: ForceOption = False
    max_minutes: MaxMinutesOption = None
    time_limit: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Train for so long (90s, 15m, 1h30m) in place of --epochs; the learning rate "
            "falls to its lowest by then.",
        ),
    ] = None
    seed: SeedOption = None
    device: DeviceOption = "auto"
    threads: ThreadsOption = None
    json: JsonOption = False

    def resolve(
        self, combine: Callable[..., Any], *base: Any, settings: dict[str, Any], output: Path
    ) -> Any:
        """Return the configuration: `base` is a preset or a file, under options and --set.

        `combine` is the function `resolve` of what is trained; `settings` are those with options
        of their own. With --resume those of the run in `output` are the base.

        Raises:
            ConfigError: an unknown preset or setting, or an impossible value.
        """
        if self.resume and self.force:
            raise typer.BadParameter("--resume continues a run and --force replaces it: give one")
        if self.seed is not None:
            settings["training.seed"] = self.seed
        if self.time_limit is not None:
            settings["training.time_limit"] = self.time_limit
        return combine(*base, settings, self.set_ or [], run=output if self.resume else None)


@dataclass(frozen=True)
class TreebankOptions(TrainingOptions):
    """Options of every command that trains on a treebank."""

    skip_invalid: Annotated[
        bool, typer.Option("--skip-invalid", help="Leave out broken sentences.")
    ] = False

    def treebanks(
        self, treebank: list[Path] | None, dev: Path | None
    ) -> tuple[list[Path] | None, Path | None]:
        """Return what is trained and validated on: the sample if nothing is given.

        A run that is resumed knows its own.
        """
        if treebank or self.resume:
            return treebank or None, dev
        train = stdin_or_sample("TRAIN", "trees", training="training on")
        if train != "-":
            from seqtool.text.datasets import sample_treebank

            dev = dev or sample_treebank("en", "valid")
        return [Path(train)], dev


def run_training(
    train: Callable[..., Any],
    data: Any,
    output: Path,
    config: Any,
    options: TrainingOptions,
    *,
    has_parts: bool = False,
    on_event: Callable[[Event], None] | None = None,
    **more: Any,
) -> Any:
    """Call a training function of the library, and show how it goes on.

    With `has_parts` it trains several models, and each is announced. `on_event` is shown each event
    before the display is. `more` are arguments of this function alone.
    """
    from seqtool.core.progress import Display

    # the clock starts here: reading the data counts too
    minutes = math.inf if options.max_minutes is None else options.max_minutes
    end = time.monotonic() + 60.0 * minutes
    with Display() as display:

        def show(event: Event, part: str = "") -> None:
            if on_event is not None:
                on_event(event)
            display.show(event, part)

        if has_parts:
            from seqtool.treebank.conllu import describe_held_out

            more["on_part"] = lambda part: display.note(f"{part}: reading the treebank")
            more["on_plan"] = display.plan
            more["on_held_out"] = lambda *numbers: display.note(describe_held_out(*numbers))
        if isinstance(options, TreebankOptions):
            more["skip_invalid"] = options.skip_invalid
        return train(
            data,
            output,
            config,
            resume=options.resume,
            force=options.force,
            device=options.device,
            threads=options.threads,
            on_event=show,
            should_stop=lambda step: time.monotonic() >= end,
            command=typed(),
            **more,
        )


def report(trained: Any, as_json: bool, *notes: str, next: Sequence[str] = (), **more: Any) -> None:
    """Say what came of a training: lines for people, or an object with path, scores and more.

    The commands of `next` are as `note_next` takes them.
    """
    if as_json:
        content = {"model": trained.path, "seconds": trained.seconds}
        if hasattr(trained, "epochs"):  # of a pipeline, each part has its own
            content["epochs"] = trained.epochs
        return emit({**content, "parameters": trained.num_parameters, **more, **trained.scores})
    for line in notes:
        note(line)
    note_next(*next, model=trained.path)
    echo(trained.path)


def _note_data(summary: dict[str, Any], text: str) -> None:
    """Say what is trained on, and what of it is held out, if no validation part was given."""
    from seqtool.treebank.conllu import describe_held_out

    if summary["dev_held_out"]:
        note(describe_held_out(summary["sentences"], summary["dev_sentences"]))
    note(text)


@takes_options("seqtool.parsing.segmenter.config:SegmenterConfig", SETTINGS)
@examples(
    "seqtool train-segmenter train.conllu --dev dev.conllu -o runs/segmenter",
)
def train_segmenter(
    treebank: Annotated[
        list[Path] | None,
        _train("(also .gz, .zst), with SpaceAfter=No where no space follows"),
    ] = None,
    dev: Annotated[Path | None, _dev("words and sentences")] = None,
    output: OutputOption = Path("runs/segmenter"),
    config: Annotated[Path | None, _setting("A YAML file of settings.", "FILE")] = None,
    *,
    settings: dict[str, Any],
    options: TreebankOptions,
) -> None:
    """Train what splits raw text into sentences, tokens and words, on a treebank.

    The raw text is made from words, multiword tokens, SpaceAfter=No, newpar and newdoc. UPOS and
    DEPREL, where there are any, help to tell which tokens are split.
    """
    from seqtool.parsing.segmenter.config import resolve

    chosen = options.resolve(resolve, None, config, settings=settings, output=output)
    if options.list_settings:
        return print_settings(chosen)
    treebank, dev = options.treebanks(treebank, dev)
    from seqtool.parsing.segmenter.train import train_segmenter as train

    def on_data(data: Any) -> None:
        summary = data.summary
        _note_data(
            summary,
            f"{counted(summary['sentences'], 'sentence')} in "
            f"{counted(summary['paragraphs'], 'paragraph')}, "
            f"{counted(summary['tokens'], 'token')}, {summary['multiword_tokens']:,} of them of "
            f"several words; validation: {counted(summary['dev_sentences'], 'sentence')}",
        )

    trained = run_training(train, treebank, output, chosen, options, dev=dev, on_data=on_data)
    report(
        trained,
        options.json,
        f"dev words F1 {trained.scores['dev_words']:.2f}, "
        f"sentences F1 {trained.scores['dev_sentences']:.2f}; model in {trained.path}",
        next=("segment FILE.txt -m {}",),
    )


@takes_options("seqtool.parsing.tagger.config:TaggerConfig", SETTINGS)
@examples(
    "seqtool train-tagger train.conllu --dev dev.conllu -o runs/tagger",
    "seqtool train-tagger train.conllu --preset fast --embeddings vectors.vec",
    "seqtool train-tagger names.conllu --column NER -o runs/names",
)
def train_tagger(
    treebank: Annotated[list[Path] | None, _train("with tags and lemmas (also .gz, .zst)")] = None,
    dev: Annotated[Path | None, _dev("tags")] = None,
    output: OutputOption = Path("runs/tagger"),
    preset: Annotated[
        str | None, _setting("Settings by name (default accurate).", "accurate|fast")
    ] = None,
    config: PresetFileOption = None,
    embeddings: EmbeddingsOption = None,
    lm: LanguageModelOption = None,
    column: Annotated[
        str | None,
        _setting(
            "Learn labels in place of tags and lemmas, such as named entities: what column MISC "
            "has under this key, as NER=B-PER; of files with a word a line, the last column.",
            "KEY",
        ),
    ] = None,
    *,
    settings: dict[str, Any],
    options: TreebankOptions,
) -> None:
    """Train a tagger and lemmatizer on a treebank, or with --column a labeller of words.

    It learns columns UPOS, XPOS, FEATS and LEMMA; trees are not looked at.
    """
    sources: dict[str, Any] = {"dev": dev, "embeddings": embeddings, "lm": lm}
    if column is not None or (options.resume and _is_labeller(output)):
        given = {"data.column": column} if column else {}
        return _train_labels(
            treebank, output, preset, config, settings=settings | given, options=options, **sources
        )
    from seqtool.parsing.tagger.config import resolve

    chosen = options.resolve(resolve, preset, config, settings=settings, output=output)
    if options.list_settings:
        return print_settings(chosen)
    treebank, dev = options.treebanks(treebank, dev)
    from seqtool.parsing.tagger.train import train_tagger as train

    def on_data(data: Any) -> None:
        summary = data.summary
        _note_data(
            summary,
            f"{counted(summary['sentences'], 'sentence')} of {summary['words']:,} words; "
            f"validation: {counted(summary['dev_sentences'], 'sentence')}; "
            f"{counted(summary['bundles'], 'bundle')} of tags, "
            f"{counted(summary['edit_scripts'], 'edit script')}",
        )

    sources["dev"] = dev
    trained = run_training(train, treebank, output, chosen, options, on_data=on_data, **sources)
    scores = trained.scores
    report(
        trained,
        options.json,
        f"dev UPOS {scores['dev_upos']:.2f}, XPOS {scores['dev_xpos']:.2f}, "
        f"FEATS {scores['dev_feats']:.2f}, lemmas {scores['dev_lemmas']:.2f}; "
        f"{counted(trained.num_parameters, 'parameter')}; model in {trained.path}",
        next=("tag FILE.conllu -m {}",),
    )


def _is_labeller(output: Path) -> bool:
    """Whether the run in a directory trains a labeller."""
    from seqtool.core.checkpoint import run_kind

    return run_kind(output) == "labeller"


def _train_labels(
    files: list[Path] | None,
    output: Path,
    preset: str | None,
    config: Path | None,
    *,
    settings: dict[str, Any],
    options: TreebankOptions,
    **sources: Any,
) -> None:
    """Train a labeller of words; the options are those of `train-tagger`."""
    from seqtool.parsing.labeller.config import resolve

    chosen = options.resolve(resolve, preset, config, settings=settings, output=output)
    if options.list_settings:
        return print_settings(chosen)
    from seqtool.cli.labels import show_types, told
    from seqtool.core import checkpoint
    from seqtool.parsing.labeller.data import count_dev, scheme_of
    from seqtool.parsing.labeller.train import train_labeller as train

    read: list[Any] = []

    def on_data(data: Any) -> None:
        read.append(data)
        summary = data.summary
        _note_data(
            summary,
            f"{counted(summary['sentences'], 'sentence')} of {summary['words']:,} words; "
            f"validation: {counted(summary['dev_sentences'], 'sentence')}; "
            f"{counted(summary['labels'], 'label')}",
        )
        note(f"the labels are {SCHEMES[scheme_of(data)]}")

    trained = run_training(train, files, output, chosen, options, on_data=on_data, **sources)
    counts = count_dev(checkpoint.load(output), read[-1])
    if not options.json:
        show_types(counts)
    report(
        trained,
        options.json,
        f"dev {told(counts)}; {counted(trained.num_parameters, 'parameter')}; "
        f"model in {trained.path}",
        next=("tag FILE -m {}",),
        types={name: scores._asdict() for name, scores in counts.by_type.items()},
    )


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
    treebank: Annotated[list[Path] | None, _train("with trees (also .gz, .zst)")] = None,
    dev: Annotated[Path | None, _dev("LAS")] = None,
    output: OutputOption = Path("runs/parser"),
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Train all that plain text needs, in one directory: a segmenter, taggers with a "
            "lemmatizer, and parsers that are used to their tags. Parts that are trained at once, "
            "each in a process of its own, share the threads; --threads 1 trains one after "
            "another. Options for settings are those of the parsers, --seed that of all parts; "
            "--set tagger.training.epochs=5 names another part.",
        ),
    ] = False,
    preset: Annotated[
        str | None,
        _setting(
            "Settings by name (default fast; accurate with --raw).",
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
        _setting(
            "What is read of a word (form,upos,feats), or what is not (-lemma,-xpos).", "LIST"
        ),
    ] = None,
    embeddings: EmbeddingsOption = None,
    lm: LanguageModelOption = None,
    distil: Annotated[
        list[str] | None,
        _setting(
            "Learn from parsers over the same treebank as well, A,B: the probabilities of "
            "transitions, from those with the same system, and what all parse together of the text "
            "of --unlabelled.",
            "MODEL,MODEL",
        ),
    ] = None,
    unlabelled: Annotated[
        list[str] | None,
        _setting(
            "With --distil: CoNLL-U (its trees are not looked at) or, where --distil names a model "
            "of --raw, plain text; a file or a directory, repeatable.",
            "FILE",
        ),
    ] = None,
    init: Annotated[
        Path | None,
        _setting(
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
    raw = raw or (options.resume and _is_pipeline(output))
    from seqtool.parsing.parser import config as parsers
    from seqtool.parsing.pipeline import config as pipelines

    if fast and preset not in (None, "fast"):
        raise ConfigError(f"--fast and --preset {preset} exclude each other", hint="give only one")
    if fields is not None:
        settings["model.fields"] = parsers.parse_fields(fields)
    resolve = pipelines.resolve if raw else parsers.resolve
    preset = "fast" if fast else preset
    chosen = options.resolve(resolve, preset, config, settings=settings, output=output)
    if not raw:
        _check_read(chosen, settings, options.set_, distil, unlabelled)
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
            f"dev, from raw text on: {shown}" if dev else f"on what was held out: {shown}",
            f"{counted(trained.num_parameters, 'parameter')}; model in {trained.path}",
            next=("parse FILE.txt -m {}",),
        )
        return
    from seqtool.parsing.parser.train import train_parser as train

    sources["distil"] = [name for names in distil or () for name in names.split(",") if name]
    sources["unlabelled"] = unlabelled or ()
    sources["init"] = init
    trained = run_training(
        train, treebank, output, chosen, options, on_data=_note_parser_data, **sources
    )
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


def _check_read(
    config: Any,
    settings: Mapping[str, Any],
    overrides: list[str] | None,
    distil: list[str] | None,
    unlabelled: list[str] | None,
) -> None:
    """Refuse options and --set of what the parser does not read, by the library's rule."""
    from seqtool.core.config import apply_overrides
    from seqtool.parsing.parser.families import refuse_unread

    names = [*settings, *apply_overrides(type(config), {}, overrides or [])]
    given = {"teachers": distil, "unlabelled": unlabelled}
    refuse_unread(config, names, [name for name, value in given.items() if value])


def _is_pipeline(output: Path) -> bool:
    """Whether a directory holds a run of --raw."""
    from seqtool.core import checkpoint, storage

    try:
        return storage.read_object(checkpoint.run_record(output)).get("kind") == "pipeline"
    except (OSError, ValueError):
        return False


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
    _note_data(
        summary,
        f"{counted(summary['sentences'], 'sentence')} of {summary['words']:,} words, "
        f"{num_non_projective:,} non-projective ({num_non_projective / summary['sentences']:.1%}); "
        f"validation: {counted(summary['dev_sentences'], 'sentence')}; "
        f"{counted(summary['labels'], 'label')}; {builds}",
    )
    if "unlabelled" in summary:
        note(
            f"beside them {counted(summary['taught_sentences'], 'sentence')} of "
            f"{summary['taught_words']:,} words that {summary['teachers']} parsed"
        )
    if data.teachers:
        note(
            f"{counted(len(data.teachers), 'parser')} among the teachers with probabilities of "
            "transitions"
        )
