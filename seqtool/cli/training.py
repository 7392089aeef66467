"""What the commands `train-*` share: their options, their course, and what they say at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqtool.cli.options import (
    DeviceOption,
    ForceOption,
    JsonOption,
    SeedOption,
    ThreadsOption,
    emit,
    note,
    typed,
)

if TYPE_CHECKING:
    from seqtool.core.progress import Event

PANEL = "Settings"
MAX_SHOWN = 5  # broken sentences named on stderr

# options of every training on a treebank
SETTINGS = {
    "--epochs": "training.epochs",
    "--lr": "training.learning_rate",
    "--patience": "training.patience",
}

PresetFileOption = Annotated[
    Path | None,
    typer.Option(
        help="A YAML file of settings, over the preset's.",
        metavar="FILE",
        rich_help_panel=PANEL,
        show_default=False,
    ),
]
EmbeddingsOption = Annotated[
    Path | None,
    typer.Option(
        help="A file of word vectors (word2vec, also its .bin; GloVe; fastText).",
        metavar="FILE",
        rich_help_panel=PANEL,
        show_default=False,
    ),
]
LanguageModelOption = Annotated[
    Path | None,
    typer.Option(
        "--lm",
        help="A model of train-lm whose state after each word is read too; it is copied into the "
        "output. A parser has to have an encoder for it (--preset accurate).",
        metavar="DIR",
        rich_help_panel=PANEL,
        show_default=False,
    ),
]


@dataclass(frozen=True)
class TrainingOptions:
    """Options of every command that trains a network, which are no settings of the network."""

    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any setting, such as training.weight_decay=0.01; repeatable.",
            rich_help_panel=PANEL,
            show_default=False,
        ),
    ] = None
    list_settings: Annotated[
        bool,
        typer.Option("--list-settings", help="Print every setting with its meaning, and exit."),
    ] = False
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in the output directory.")
    ] = False
    force: ForceOption = False
    max_minutes: Annotated[
        float | None,
        typer.Option(
            min=0.0, metavar="N", help="Save and stop after this long; continue with --resume."
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
    ) -> Any:
        """Return the configuration: `base` is a preset or a file, under options and --set.

        Args:
            combine: the function `resolve` of what is trained.
            base: what it takes before the settings.
            settings: those with options of their own; the seed is added.
            output: the directory of the run, whose settings are the base of --resume.

        Raises:
            ConfigError: an unknown preset or setting, or an impossible value.
        """
        if self.resume and self.force:
            raise typer.BadParameter("--resume continues a run and --force replaces it: give one")
        if self.seed is not None:
            settings["training.seed"] = self.seed
        run = output if self.resume else None
        return combine(*base, settings, self.set_ or [], run=run)


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
        from seqtool.text.datasets import sample_treebank

        files = [sample_treebank("en", "train")], dev or sample_treebank("en", "valid")
        note("no treebank given: training on the shipped English sample")
        return files


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

    Args:
        train: the function.
        data: its first argument: what is trained on.
        output: the directory of the run.
        config: the settings.
        options: of the command.
        has_parts: it trains several models, and each is announced.
        on_event: is shown each event before the display is.
        more: arguments of this function alone.
    """
    from seqtool.core.progress import Display

    # the clock starts here: reading the data counts too
    should_stop = _stop_after(options.max_minutes)
    with ExitStack() as stack:
        display = stack.enter_context(Display())

        def show(event: Event, part: str = "") -> None:
            if on_event is not None:
                on_event(event)
            display.show(event, part)

        if has_parts:
            from seqtool.treebank.held_out import describe

            more["on_part"] = lambda part: display.note(f"{part}: reading the treebank")
            more["on_held_out"] = lambda *numbers: display.note(describe(*numbers))
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
            should_stop=should_stop,
            command=typed(),
            **more,
        )


def _stop_after(minutes: float | None) -> Callable[[int], bool]:
    """Return what says before each step whether to stop: once so many minutes are over."""
    end = None if minutes is None else time.monotonic() + 60.0 * minutes
    return lambda step: end is not None and time.monotonic() >= end


def report(trained: Any, notes: Iterable[str], *, as_json: bool, **numbers: Any) -> None:
    """Say what came of a training.

    Args:
        trained: what the training function returned.
        notes: lines for people.
        as_json: print an object in place of them.
        numbers: what it has beside path, seconds and scores.
    """
    if as_json:
        path = str(trained.path)
        emit({"model": path, "seconds": trained.seconds, **numbers, **trained.scores})
        return
    for line in notes:
        note(line)
    print(trained.path)


def note_held_out(summary: Mapping[str, Any]) -> None:
    """Say what of a treebank is held out, if no validation part was given."""
    from seqtool.treebank.held_out import describe

    if summary["dev_held_out"]:
        note(describe(summary["sentences"], summary["dev_sentences"]))
