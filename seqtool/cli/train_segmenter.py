"""`seqtool train-segmenter`: train what splits raw text into sentences and words."""

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
    print_settings,
)

DEFAULT_OUTPUT = Path("runs/segmenter")

# option -> the setting it stands for
SETTINGS = {
    "epochs": "training.epochs",
    "lr": "training.learning_rate",
    "patience": "training.patience",
    "seed": "training.seed",
}


def _setting(help: str, *names: str, metavar: str | None = None) -> Any:
    return typer.Option(
        *names, help=help, rich_help_panel="Settings", metavar=metavar, show_default=False
    )


def train_segmenter(
    treebank: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="TRAIN",
            help="CoNLL-U files (also .gz, .zst), with SpaceAfter=No where no space follows; "
            "without any, the English treebank of the shipped sample.",
            show_default=False,
        ),
    ] = None,
    dev: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CoNLL-U by whose words and sentences the best epoch is chosen; without it, a "
            "tenth of TRAIN.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Directory to write to.")
    ] = DEFAULT_OUTPUT,
    config: Annotated[Path | None, _setting("A YAML file of settings.", metavar="FILE")] = None,
    set_: Annotated[
        list[str] | None,
        _setting(
            "Any setting, such as model.token_units=128; repeatable.", "--set", metavar="KEY=VALUE"
        ),
    ] = None,
    list_settings: Annotated[
        bool,
        typer.Option("--list-settings", help="Print every setting with its meaning, and exit."),
    ] = False,
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
    """Train what splits raw text into sentences, tokens and words, on a treebank.

    The raw text is made from words, multiword tokens, SpaceAfter=No, newpar and newdoc. UPOS and
    DEPREL, where there are any, help to tell which tokens are split.
    """
    given = dict(locals())
    from seqtool.parsing.segmentation.config import SegmenterConfig, resolve

    if list_settings:
        print_settings(SegmenterConfig)
        return
    if resume and force:
        raise typer.BadParameter("--resume continues a run and --force replaces it: give one")
    values = {name: given[option] for option, name in SETTINGS.items() if given[option] is not None}
    settings = resolve(config, values, set_ or [], run=output if resume else None)
    if not treebank and not resume:
        from seqtool.corpora.sample import sample_treebank

        treebank = [sample_treebank("en", "train")]
        dev = dev or sample_treebank("en", "valid")
        note("no treebank given: training on the shipped English sample")
    from seqtool.parsing.segmentation.train import train_segmenter as train
    from seqtool.progress import Display

    deadline = None if max_minutes is None else time.monotonic() + 60.0 * max_minutes
    with Display() as display:
        trained = train(
            list(treebank) if treebank else None,
            output,
            settings,
            dev=dev,
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
    if json:
        emit(
            {
                "model": str(trained.path),
                "seconds": trained.seconds,
                "epochs": trained.epochs,
                "parameters": trained.num_parameters,
                **trained.scores,
            }
        )
        return
    note(
        f"dev words F1 {trained.scores['dev_words']:.2f}, "
        f"sentences F1 {trained.scores['dev_sentences']:.2f}; model in {trained.path}"
    )
    note(f"next: seqtool segment FILE.txt -m {trained.path}")
    print(trained.path)


def _note_data(data: Any) -> None:
    """Say what is trained on."""
    from seqtool.errors import counted

    summary = data.summary
    held_out = ", a tenth of the treebank" if summary["dev_held_out"] else ""
    note(
        f"{counted(summary['sentences'], 'sentence')} in "
        f"{counted(summary['paragraphs'], 'paragraph')}, "
        f"{counted(summary['tokens'], 'token')}, {summary['multiword_tokens']:,} of them of "
        f"several words; validation: {counted(summary['dev_sentences'], 'sentence')}{held_out}"
    )
