"""`seqtool segment`: split raw text into sentences and words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seqtool.cli.models import default_model, open_model
from seqtool.cli.options import note, takes_options
from seqtool.cli.sentences import LayoutOptions, TargetOption


@takes_options()
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
    output: TargetOption = "-",
    *,
    layout: LayoutOptions,
) -> None:
    """Split raw text into sentences and words, as CoNLL-U.

    Paragraphs end with an empty line. Words and the spaces in MISC (SpaceAfter, SpacesAfter)
    rebuild the text exactly. Memory does not grow with it, and the output comes in order.
    """
    from seqtool.core.errors import ConfigError
    from seqtool.treebank.conllu import write_conllu

    needs_no_model = layout.rules or layout.pretokenized
    if model is not None and needs_no_model:
        option = "--rules" if layout.rules else "--pretokenized"
        raise ConfigError(f"{option} needs no model", hint="leave out one of the two")
    segmenter = None
    if not needs_no_model:
        segmenter = open_model(model or default_model("segmenter"), "segmenter")
    write_conllu(layout.read(files or [_sample()], segmenter, model), output)


def _sample() -> str:
    from seqtool.text.sample import sample_text

    path = sample_text("en", "test")
    note(f"no FILE given: using the shipped sample, {path}")
    return str(path)
