"""`seqtool segment`: split raw text into sentences and words."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Annotated

import typer

from seqtool.cli.options import default_model, note
from seqtool.cli.raw_text import (
    PresegmentedOption,
    PretokenizedOption,
    RulesOption,
    read_raw,
)


def segment(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="Files of plain text (also .gz, .zst), directories, or - for stdin; each is a "
            "document. The shipped sample's English test text if not given.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model", "-m", metavar="DIR", help="A segmenter; runs/segmenter if not given."
        ),
    ] = None,
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE", help="Where to write; - is stdout."),
    ] = "-",
    rules: RulesOption = False,
    presegmented: PresegmentedOption = False,
    pretokenized: PretokenizedOption = False,
) -> None:
    """Split raw text into sentences and words, as CoNLL-U.

    Paragraphs end with an empty line. Words and the spaces in MISC (SpaceAfter, SpacesAfter)
    rebuild the text exactly. Memory does not grow with it, and the output comes in order.
    """
    from seqtool.core.errors import ConfigError
    from seqtool.treebank.conllu import write_conllu

    if model is not None and (rules or pretokenized):
        option = "--rules" if rules else "--pretokenized"
        raise ConfigError(f"{option} needs no model", hint="leave out one of the two")
    segmenter = None
    if not rules and not pretokenized:
        from seqtool.cli.models import open_segmenter

        segmenter = open_segmenter(model or default_model("segmenter"))
    sentences = read_raw(
        files or [_sample()],
        segmenter,
        model,
        rules=rules,
        presegmented=presegmented,
        pretokenized=pretokenized,
    )
    # what is loaded stays, so the collector of cycles need not look at it again and again
    gc.freeze()
    write_conllu(sentences, output)


def _sample() -> str:
    from seqtool.text.sample import sample_text

    path = sample_text("en", "test")
    note(f"no FILE given: using the shipped sample, {path}")
    return str(path)
