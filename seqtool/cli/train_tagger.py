"""`seqtool train-tagger`: train a tagger and lemmatizer."""

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

DEFAULT_OUTPUT = Path("runs/tagger")

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


def train_tagger(
    treebank: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="TRAIN",
            help="CoNLL-U files with tags and lemmas (also .gz, .zst); without any, the English "
            "treebank of the shipped sample.",
            show_default=False,
        ),
    ] = None,
    dev: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CoNLL-U by whose tags the best epoch is chosen; without it, every tenth sentence "
            "of TRAIN.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Directory to write to.")
    ] = DEFAULT_OUTPUT,
    preset: Annotated[
        str | None,
        _setting("Settings by name (default accurate).", metavar="accurate|fast"),
    ] = None,
    config: Annotated[
        Path | None, _setting("A YAML file of settings, over the preset's.", metavar="FILE")
    ] = None,
    set_: Annotated[
        list[str] | None,
        _setting(
            "Any setting, such as model.encoder_size=128; repeatable.", "--set", metavar="KEY=VALUE"
        ),
    ] = None,
    list_settings: Annotated[
        bool,
        typer.Option("--list-settings", help="Print every setting with its meaning, and exit."),
    ] = False,
    embeddings: Annotated[
        Path | None,
        _setting(
            "A file of word vectors (word2vec's text or .bin, GloVe, fastText's .vec).",
            metavar="FILE",
        ),
    ] = None,
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
    """Train a tagger and lemmatizer on a treebank.

    It learns columns UPOS, XPOS, FEATS and LEMMA; trees are not looked at.
    """
    given = dict(locals())
    from seqtool.parsing.tagging.config import TaggerConfig, resolve

    if list_settings:
        print_settings(TaggerConfig)
        return
    if resume and force:
        raise typer.BadParameter("--resume continues a run and --force replaces it: give one")
    values = {name: given[option] for option, name in SETTINGS.items() if given[option] is not None}
    settings = resolve(preset, config, values, set_ or [], run=output if resume else None)
    if not treebank and not resume:
        from seqtool.corpora.sample import sample_treebank

        treebank = [sample_treebank("en", "train")]
        dev = dev or sample_treebank("en", "valid")
        note("no treebank given: training on the shipped English sample")
    from seqtool.parsing.tagging.train import train_tagger as train
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
    _report(trained, as_json=json)


def _report(trained: Any, *, as_json: bool) -> None:
    from seqtool.errors import counted

    if as_json:
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
    scores = trained.scores
    note(
        f"dev UPOS {scores['dev_upos']:.2f}, XPOS {scores['dev_xpos']:.2f}, "
        f"FEATS {scores['dev_feats']:.2f}, lemmas {scores['dev_lemmas']:.2f}; "
        f"{counted(trained.num_parameters, 'parameter')}; model in {trained.path}"
    )
    note(f"next: seqtool tag FILE.conllu -m {trained.path}")
    print(trained.path)


def _note_data(data: Any) -> None:
    """Say what is trained on."""
    from seqtool.errors import counted

    summary = data.summary
    held_out = ", every tenth of the treebank" if summary["dev_held_out"] else ""
    note(
        f"{counted(summary['sentences'], 'sentence')} of {summary['words']:,} words; "
        f"validation: {counted(summary['dev_sentences'], 'sentence')}{held_out}; "
        f"{counted(summary['bundles'], 'bundle')} of tags, "
        f"{counted(summary['edit_scripts'], 'edit script')}"
    )
