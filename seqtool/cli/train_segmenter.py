"""`seqtool train-segmenter`: train what splits raw text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from seqtool.cli.options import (
    OutputOption,
    print_settings,
    takes_options,
)
from seqtool.cli.training import (
    SETTINGS,
    TreebankOptions,
    dev_option,
    note_data,
    report,
    run_training,
    setting_option,
    treebank_argument,
)
from seqtool.cli.usage import examples
from seqtool.core.errors import counted


@takes_options("seqtool.parsing.segmenter.config:SegmenterConfig", SETTINGS)
@examples(
    "seqtool train-segmenter train.conllu --dev dev.conllu -o runs/segmenter",
)
def train_segmenter(
    treebank: Annotated[
        list[Path] | None,
        treebank_argument("(also packed), with SpaceAfter=No where no space follows"),
    ] = None,
    dev: Annotated[Path | None, dev_option("words and sentences")] = None,
    output: OutputOption = Path("runs/segmenter"),
    config: Annotated[Path | None, setting_option("A YAML file of settings.", "FILE")] = None,
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
        note_data(
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
