"""`seqtool train-tagger`: train a tagger and lemmatizer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from seqtool.cli.options import OutputOption, note, print_settings
from seqtool.cli.settings import takes_options
from seqtool.cli.training import (
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


@takes_options("seqtool.parsing.tagger.config:TaggerConfig", SETTINGS, panel=PANEL)
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
    output: OutputOption = Path("runs/tagger"),
    preset: Annotated[
        str | None,
        typer.Option(
            help="Settings by name (default accurate).",
            metavar="accurate|fast",
            rich_help_panel=PANEL,
        ),
    ] = None,
    config: PresetFileOption = None,
    embeddings: EmbeddingsOption = None,
    lm: LanguageModelOption = None,
    *,
    settings: dict[str, Any],
    options: TreebankOptions,
) -> None:
    """Train a tagger and lemmatizer on a treebank.

    It learns columns UPOS, XPOS, FEATS and LEMMA; trees are not looked at.
    """
    from seqtool.parsing.tagger.config import TaggerConfig, resolve

    if options.list_settings:
        print_settings(TaggerConfig)
        return
    chosen = options.resolve(resolve, preset, config, settings=settings, output=output)
    treebank, dev = options.treebanks(treebank, dev)
    from seqtool.core.errors import counted
    from seqtool.parsing.tagger.train import train_tagger as train

    trained = run_training(
        train,
        treebank,
        output,
        chosen,
        options,
        dev=dev,
        embeddings=embeddings,
        lm=lm,
        on_data=_note_data,
    )
    scores = trained.scores
    report(
        trained,
        [
            f"dev UPOS {scores['dev_upos']:.2f}, XPOS {scores['dev_xpos']:.2f}, "
            f"FEATS {scores['dev_feats']:.2f}, lemmas {scores['dev_lemmas']:.2f}; "
            f"{counted(trained.num_parameters, 'parameter')}; model in {trained.path}",
            f"next: seqtool tag FILE.conllu -m {trained.path}",
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
        f"{counted(summary['sentences'], 'sentence')} of {summary['words']:,} words; "
        f"validation: {counted(summary['dev_sentences'], 'sentence')}; "
        f"{counted(summary['bundles'], 'bundle')} of tags, "
        f"{counted(summary['edit_scripts'], 'edit script')}"
    )
