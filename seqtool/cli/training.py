"""What the commands that train share: options, the run and its report."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from seqtool.cli import options as cli
from seqtool.cli.options import argument, emit, note, option, setting_option
from seqtool.core.errors import counted
from seqtool.core.terminal import echo

# options of every training on a treebank
SETTINGS = {
    "--epochs": "training.epochs",
    "--lr": "training.learning_rate",
    "--patience": "training.patience",
}


def treebank_argument(what: str) -> Any:
    """Return the argument of treebanks; `what` is what they hold."""
    sample = "without any, the English treebank of the shipped sample."
    return argument(None, f"CoNLL-U files {what}; {sample}", "TRAIN")


def dev_option(scores: str, data: str = "CoNLL-U", unit: str = "sentence") -> Any:
    """Return the option of the validation part, by whose scores the best epoch is chosen."""
    chosen = f"{data} by whose {scores} the best epoch is chosen"
    return option(None, f"{chosen}; without it, every tenth {unit} of TRAIN.", "FILE")


def preset_file_option() -> Any:
    """Return the option of a file of settings."""
    return setting_option(None, "A YAML file of settings, over the preset's.", "FILE")


@dataclass(frozen=True)
class RunOptions:
    """Options of every command that trains networks, one of them or many."""

    set_: list[str] | None = setting_option(
        None, "Any setting, such as training.weight_decay=0.01; repeatable.", "KEY=VALUE"
    )
    time_limit: str | None = option(
        None, "Train for so long (90s, 15m, 1h30m) in place of --epochs.", "TIME"
    )
    list_settings: bool = option(
        False, "Print every setting as it would be used, with its meaning, and exit."
    )
    force: cli.ForceOption = False
    device: cli.DeviceOption = "auto"
    threads: cli.ThreadsOption = None
    json: cli.JsonOption = False

    def typed_names(self, settings: Iterable[str]) -> set[str]:
        """Return the names of settings as they were typed: those of options, and those of --set."""
        return {*settings, *(text.partition("=")[0].strip() for text in self.set_ or ())}

    def limited(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings of options with what says how long is trained.

        Epochs that are typed take the place of a time limit that a file or a run has.
        """
        typed = self.typed_names(settings)
        if self.time_limit is None and typed.isdisjoint(("epochs", "training.epochs")):
            return {**settings}
        return {**settings, "training.time_limit": self.time_limit}


@dataclass(frozen=True)
class TrainingOptions(RunOptions):
    """Options of every command that trains one network, which are no settings of the network."""

    resume: cli.ResumeOption = False
    max_minutes: cli.MaxMinutesOption = None
    seed: cli.SeedOption = None

    def resolve(
        self,
        combine: Callable[..., Any],
        base: Sequence[Any],
        settings: dict[str, Any],
        output: Path,
        facts: Collection[str] = (),
    ) -> Any:
        """Return the configuration; None if it was to be listed, and was.

        Args:
            combine: the function `resolve` of what is trained.
            base: its first arguments: a preset or a recipe, and a file. With --resume the settings
                of the run in `output` are the base.
            settings: those with options of their own.
            output: the directory of the run.
            facts: what else is given, such as `--lm`.

        Raises:
            ConfigError: an unknown preset or setting, an impossible value, or one that is typed and
                does not count.
        """
        if self.resume and self.force:
            raise typer.BadParameter("--resume continues a run and --force replaces it: give one")
        if self.seed is not None:
            settings["training.seed"] = self.seed
        run = output if self.resume else None
        chosen = combine(*base, self.limited(settings), self.set_ or [], run=run, facts=facts)
        return cli.print_settings(chosen) if self.list_settings else chosen

    def run(self, train: Callable[..., Any], *what: Any, **more: Any) -> Any:
        """Call a training function of the library, which shows how it goes on.

        `what` is trained on, the output and the configuration; `more` are other arguments.
        """
        # the clock starts here: reading the data counts too
        minutes = math.inf if self.max_minutes is None else self.max_minutes
        end = time.monotonic() + 60.0 * minutes
        return train(
            *what,
            resume=self.resume,
            force=self.force,
            device=self.device,
            threads=self.threads,
            progress=True,
            should_stop=lambda step: time.monotonic() >= end,
            command=cli.typed(),
            **more,
        )


@dataclass(frozen=True)
class TreebankOptions(TrainingOptions):
    """Options of every command that trains on a treebank."""

    config: Path | None = preset_file_option()
    embeddings: Path | None = setting_option(
        None, "A file of word vectors as text (word2vec, GloVe, fastText).", "FILE"
    )
    skip_invalid: bool = option(False, "Leave out broken sentences.")

    def run(self, train: Callable[..., Any], *what: Any, **more: Any) -> Any:
        """Call a training function; see `TrainingOptions.run`."""
        return super().run(train, *what, skip_invalid=self.skip_invalid, **more)

    def treebanks(
        self, treebank: list[Path] | None, dev: Path | None
    ) -> tuple[list[Path] | None, Path | None]:
        """Return what is trained and validated on: the sample if nothing is given.

        A run that is resumed knows its own.
        """
        if treebank or self.resume:
            note_shared(treebank or (), dev)
            return treebank or None, dev
        train = cli.stdin_or_sample("TRAIN", "trees", training="training on")
        if train != "-":
            from seqtool.text.datasets import sample_treebank

            dev = dev or sample_treebank("en", "valid")
        return [Path(train)], dev


def note_shared(train: Sequence[Path], dev: Path | None) -> None:
    """Say so where what is validated on is trained on, or a file is named twice."""
    files = [path.resolve() for path in train]
    if dev is not None and dev.resolve() in files:
        note(f"note: {dev} is trained on, too: its scores say nothing of other text")
    if len({*files}) < len(files):
        note("note: a file to train on is named twice, so what is in it counts twice")


def report(trained: Any, as_json: bool, scores: str, *, next: Sequence[str], **more: Any) -> None:
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
    parameters = counted(trained.num_parameters, "parameter")
    note(f"{scores}; {parameters}; model in {trained.path}")
    if trained.is_fit:
        cli.note_next(*next, model=trained.path)
    echo(trained.path)


def note_data(summary: Mapping[str, Any], *parts: str) -> None:
    """Say what is trained on, and what of it is held out, if no validation part was given."""
    from seqtool.treebank.conllu import describe_held_out

    num, num_dev = summary["sentences"], summary["dev_sentences"]
    if summary["dev_held_out"]:
        note(describe_held_out(num, num_dev))
    words = f" of {summary['words']:,} words" if "words" in summary else ""
    validation = f"validation: {counted(num_dev, 'sentence')}"
    note("; ".join([f"{counted(num, 'sentence')}{words}", validation, *parts]))
