"""What the commands that train share: options, the run and its report."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqtool.cli.options import (
    DeviceOption,
    ForceOption,
    JsonOption,
    MaxMinutesOption,
    ResumeOption,
    SeedOption,
    ThreadsOption,
    emit,
    note,
    note_next,
    stdin_or_sample,
    typed,
)
from seqtool.core.terminal import echo

if TYPE_CHECKING:
    from seqtool.core.progress import Event

PANEL = "Settings"

# options of every training on a treebank
SETTINGS = {
    "--epochs": "training.epochs",
    "--lr": "training.learning_rate",
    "--patience": "training.patience",
}


def treebank_argument(what: str) -> Any:
    """Return the argument of treebanks; `what` is what they hold."""
    sample = "without any, the English treebank of the shipped sample."
    return typer.Argument(metavar="TRAIN", help=f"CoNLL-U files {what}; {sample}")


def dev_option(scores: str) -> Any:
    """Return the option of the validation part, by whose scores the best epoch is chosen."""
    chosen = f"CoNLL-U by whose {scores} the best epoch is chosen"
    help = f"{chosen}; without it, every tenth sentence of TRAIN."
    return typer.Option(metavar="FILE", help=help)


def setting_option(help: str, metavar: str, *names: str) -> Any:
    """Return an option that stands among the settings."""
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=PANEL)


ListSettingsOption = Annotated[
    bool,
    typer.Option(
        "--list-settings",
        help="Print every setting as it would be used, with its meaning, and exit.",
    ),
]
PresetFileOption = Annotated[
    Path | None, setting_option("A YAML file of settings, over the preset's.", "FILE")
]
EmbeddingsOption = Annotated[
    Path | None,
    setting_option("A file of word vectors (word2vec, also its .bin; GloVe; fastText).", "FILE"),
]
LanguageModelOption = Annotated[
    Path | None,
    setting_option(
        "A model of train-lm whose state after each word is read too; it is copied into the "
        "output. Of parsers, those with an encoder can read it (--preset accurate).",
        "DIR",
        "--lm",
    ),
]


@dataclass(frozen=True)
class TrainingOptions:
    """Options of every command that trains a network, which are no settings of the network."""

    set_: Annotated[
        list[str] | None,
        setting_option(
            "Any setting, such as training.weight_decay=0.01; repeatable.", "KEY=VALUE", "--set"
        ),
    ] = None
    list_settings: ListSettingsOption = False
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
        self,
        combine: Callable[..., Any],
        *base: Any,
        settings: dict[str, Any],
        output: Path,
        facts: Collection[str] = (),
    ) -> Any:
        """Return the configuration: `base` is a preset or a file, under options and --set.

        `combine` is the function `resolve` of what is trained; `settings` are those with options
        of their own. With --resume those of the run in `output` are the base. `facts` are what else
        is given, such as `--lm`.

        Raises:
            ConfigError: an unknown preset or setting, an impossible value, or one that is typed and
                does not count.
        """
        if self.resume and self.force:
            raise typer.BadParameter("--resume continues a run and --force replaces it: give one")
        if self.seed is not None:
            settings["training.seed"] = self.seed
        if self.time_limit is not None:
            settings["training.time_limit"] = self.time_limit
        run = output if self.resume else None
        return resolve_length(
            lambda: combine(*base, settings, self.set_ or [], run=run, facts=facts),
            settings,
            self.set_,
        )


def typed_names(settings: Mapping[str, Any], set_: Sequence[str] | None) -> set[str]:
    """Return the names of settings as they were typed: those of options, and those of --set."""
    return {*settings, *(text.partition("=")[0].strip() for text in set_ or ())}


def resolve_length(
    combine: Callable[[], Any], settings: dict[str, Any], set_: list[str] | None
) -> Any:
    """Return a configuration in which what was typed says how long is trained: epochs or a time.

    Args:
        combine: makes it from `settings`, and from what they do not say.
        settings: of options, by their dotted names; a limit that is not typed is taken out here.
        set_: those of --set.
    """
    typed = typed_names(settings, set_)
    is_counted, is_timed = (
        bool(typed & {name, f"training.{name}"}) for name in ("epochs", "time_limit")
    )
    found = combine()
    # of a pipeline, the time of all its parts
    if is_counted and (limit := getattr(found, "training", found).time_limit) is not None:
        if is_timed:
            note("note: --time-limit takes the place of --epochs")
        else:
            note(f"note: --epochs takes the place of the time limit of {limit}")
            settings["training.time_limit"] = None
            found = combine()
    return found


def note_shared(train: Sequence[Path], dev: Path | None) -> None:
    """Say so where what is validated on is trained on, or a file is named twice."""
    files = [path.resolve() for path in train]
    if dev is not None and dev.resolve() in files:
        note(f"note: {dev} is trained on, too: its scores say nothing of other text")
    if len({*files}) < len(files):
        note("note: a file to train on is named twice, so what is in it counts twice")


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
            note_shared(treebank or (), dev)
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
    from seqtool.core.progress import Display, format_seconds

    # the clock starts here: reading the data counts too
    minutes = math.inf if options.max_minutes is None else options.max_minutes
    begun = time.monotonic()
    end = begun + 60.0 * minutes
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
        trained = train(
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
    limit = None if config is None else getattr(config, "training", config).limit_seconds
    over = time.monotonic() - begun - (math.inf if limit is None or options.resume else limit)
    if limit is not None and over >= 1:
        note(
            f"this took {format_seconds(over)} more than the time limit of "
            f"{format_seconds(limit)}: the last validation and what follows come after it"
        )
    return trained


def report(trained: Any, as_json: bool, *notes: str, next: Sequence[str] = (), **more: Any) -> None:
    """Say what came of a training: lines for people, or an object with path, scores and more.

    The commands of `next` are as `note_next` takes them.
    """
    if not trained.is_fit:
        note(
            "warning: the time ended before all of the training part was read once: this model is "
            "not fit for use; train it with a longer --time-limit, or without one"
        )
    if as_json:
        content = {"model": trained.path, "seconds": trained.seconds}
        if hasattr(trained, "epochs"):  # of a pipeline, each part has its own
            content |= {"epochs": trained.epochs, "precision": trained.precision}
        return emit({**content, "parameters": trained.num_parameters, **more, **trained.scores})
    for line in notes:
        note(line)
    if trained.is_fit:
        note_next(*next, model=trained.path)
    echo(trained.path)


def note_data(summary: dict[str, Any], text: str) -> None:
    """Say what is trained on, and what of it is held out, if no validation part was given."""
    from seqtool.treebank.conllu import describe_held_out

    if summary["dev_held_out"]:
        note(describe_held_out(summary["sentences"], summary["dev_sentences"]))
    note(text)
