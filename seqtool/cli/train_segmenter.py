"""`seqtool train-segmenter`: train what splits raw text into sentences and words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from seqtool.cli.options import OutputOption, note, print_settings
from seqtool.cli.settings import takes_options
from seqtool.cli.training import (
    PANEL,
    SETTINGS,
    TreebankOptions,
    note_held_out,
    report,
    run_training,
)


@takes_options("seqtool.parsing.segmenter.config:SegmenterConfig", SETTINGS, panel=PANEL)
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
            help="CoNLL-U by whose words and sentences the best epoch is chosen; without it, "
            "every tenth sentence of TRAIN.",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = Path("runs/segmenter"),
    config: Annotated[
        Path | None,
        typer.Option(
            help="A YAML file of settings.",
            metavar="FILE",
            rich_help_panel=PANEL,
            show_default=False,
        ),
    ] = None,
    *,
    settings: dict[str, Any],
    options: TreebankOptions,
) -> None:
    """Train what splits raw text into sentences, tokens and words, on a treebank.

    The raw text is made from words, multiword tokens, SpaceAfter=No, newpar and newdoc. UPOS and
    DEPREL, where there are any, help to tell which tokens are split.
    """
    from seqtool.parsing.segmenter.config import SegmenterConfig, resolve

    if options.list_settings:
        print_settings(SegmenterConfig)
        return
    chosen = options.resolve(resolve, None, config, settings=settings, output=output)
    treebank, dev = options.treebanks(treebank, dev)
    from seqtool.parsing.segmenter.train import train_segmenter as train

    trained = run_training(train, treebank, output, chosen, options, dev=dev, on_data=_note_data)
    report(
        trained,
        [
            f"dev words F1 {trained.scores['dev_words']:.2f}, "
            f"sentences F1 {trained.scores['dev_sentences']:.2f}; model in {trained.path}",
            f"next: seqtool segment FILE.txt -m {trained.path}",
        ],
        as_json=options.json,
        epochs=trained.epochs,
        parameters=trained.num_parameters,
    )


def _note_data(data: Any) -> None:
    """Say what is trained on."""
    from seqtool.core.errors import counted

    summary = data.summary
    note_held_out(summary)
    note(
        f"{counted(summary['sentences'], 'sentence')} in "
        f"{counted(summary['paragraphs'], 'paragraph')}, "
        f"{counted(summary['tokens'], 'token')}, {summary['multiword_tokens']:,} of them of "
        f"several words; validation: {counted(summary['dev_sentences'], 'sentence')}"
    )
