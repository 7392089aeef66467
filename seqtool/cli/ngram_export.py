"""`seqtool ngram export`: an n-gram model to an ARPA file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from seqtool.cli.options import ThreadsOption, note


def export(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="An n-gram model.", show_default=False)
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="The ARPA file to write (.gz: packed), or - for stdout."
        ),
    ],
    threads: ThreadsOption = None,
) -> None:
    """Write an n-gram model as an ARPA file, which KenLM, SRILM and others read."""
    from seqtool.core import checkpoint
    from seqtool.core.errors import ModelError
    from seqtool.core.progress import progress_bar
    from seqtool.lm.ngram.arpa import arpa_pieces, write_arpa
    from seqtool.lm.ngram.model import NgramModel
    from seqtool.lm.ngram.train import available_threads

    opened = checkpoint.load(model)
    if not isinstance(opened, NgramModel):
        raise ModelError(
            f"is a model of kind {opened.kind}, and only n-gram models have an ARPA form",
            hint="name one that `seqtool ngram train` made",
            path=model,
        )
    table, vocabulary = opened.table, opened.tokenizer.vocabulary
    workers = threads or available_threads()
    if target == "-":
        for piece in arpa_pieces(table, vocabulary, threads=workers):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    with progress_bar("export") as on_progress:
        write_arpa(table, vocabulary, target, threads=workers, on_progress=on_progress)
    size = Path(target).stat().st_size
    note(f"{sum(map(len, table.levels)):,} n-grams of orders 1 to {table.order}, {size:,} bytes")
    typer.echo(target)
