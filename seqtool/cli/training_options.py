"""What the commands `train-*` share: options, when to stop, and what they say at the end."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from seqtool.cli.options import emit, note


def setting(help: str, *names: str, metavar: str | None = None) -> Any:
    """An option that stands for a setting; without it, the setting is as the preset has it."""
    return typer.Option(
        *names, help=help, rich_help_panel="Settings", metavar=metavar, show_default=False
    )


def any_setting(example: str) -> Any:
    """The option --set, with an example of what can be set."""
    return setting(f"Any setting, such as {example}; repeatable.", "--set", metavar="KEY=VALUE")


ListSettingsOption = Annotated[
    bool, typer.Option("--list-settings", help="Print every setting with its meaning, and exit.")
]
PresetFileOption = Annotated[
    Path | None, setting("A YAML file of settings, over the preset's.", metavar="FILE")
]
LanguageModelOption = Annotated[
    Path | None,
    setting(
        "A model of train-lm whose state after each word is read too; it is copied into the "
        "output. A parser has to have an encoder for it (--preset accurate).",
        "--lm",
        metavar="DIR",
    ),
]
EpochsOption = Annotated[int | None, setting("Passes over the treebank.", metavar="N")]
LearningRateOption = Annotated[float | None, setting("Learning rate.", metavar="X")]
PatienceOption = Annotated[
    int | None, setting("Stop after N epochs without improvement; 0 is off.", metavar="N")
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Continue the run in the output directory.")
]
SkipInvalidOption = Annotated[
    bool, typer.Option("--skip-invalid", help="Leave out broken sentences.")
]
MaxMinutesOption = Annotated[
    float | None,
    typer.Option(
        min=0.0, metavar="N", help="Save and stop after this long; continue with --resume."
    ),
]

# option -> the setting it stands for, of every training on a treebank
SETTINGS = {
    "epochs": "training.epochs",
    "lr": "training.learning_rate",
    "patience": "training.patience",
    "seed": "training.seed",
}


def given_settings(given: Mapping[str, Any], settings: Mapping[str, str]) -> dict[str, Any]:
    """The settings that are given by options of their own.

    Args:
        given: option -> its value, None if it was not given.
        settings: option -> the setting it stands for.
    """
    return {name: given[option] for option, name in settings.items() if given[option] is not None}


def check_resume(*, resume: bool, force: bool) -> None:
    """Refuse --resume with --force."""
    if resume and force:
        raise typer.BadParameter("--resume continues a run and --force replaces it: give one")


def treebanks(
    treebank: list[Path] | None, dev: Path | None, *, resume: bool
) -> tuple[list[Path] | None, Path | None]:
    """What is trained and validated on: the sample if nothing is given; a run knows its own."""
    if treebank or resume:
        return treebank or None, dev
    from seqtool.text.sample import sample_treebank

    files = [sample_treebank("en", "train")], dev or sample_treebank("en", "valid")
    note("no treebank given: training on the shipped English sample")
    return files


def note_held_out(summary: Mapping[str, Any]) -> None:
    """Say what of a treebank is held out, if no validation part was given."""
    from seqtool.treebank.held_out import describe

    if summary["dev_held_out"]:
        note(describe(summary["sentences"], summary["dev_sentences"]))


def typed() -> str:
    """The command as it was typed."""
    return shlex.join(["seqtool", *sys.argv[1:]])


def stop_after(minutes: float | None) -> Callable[[int], bool]:
    """What says before each step whether to stop: once so many minutes are over from now on."""
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
