"""`seqtool ngram import`: an ARPA file to a model directory."""

from __future__ import annotations

import shlex
import sys
import time
from typing import Annotated

import typer

from seqtool.cli.ngram import NGRAM_OUTPUT
from seqtool.cli.options import ForceOption, JsonOption, OutputOption, emit, note


def import_(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="An ARPA file of KenLM, SRILM, IRSTLM or another program, or - for stdin.",
            show_default=False,
        ),
    ],
    output: OutputOption = NGRAM_OUTPUT,
    lowercase: Annotated[
        bool, typer.Option("--lowercase", help="The model is of lower-cased text.")
    ] = False,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Turn an ARPA file into a model directory, which opens at once."""
    from seqtool.core.progress import progress_bar
    from seqtool.lm.ngram.train import import_arpa

    start = time.perf_counter()
    with progress_bar("import", is_bytes=True) as on_progress:
        table, notes = import_arpa(
            source,
            output,
            lowercase=lowercase,
            force=force,
            command=shlex.join(["seqtool", *sys.argv[1:]]),
            on_progress=on_progress,
        )
    for line in notes:
        note(line)
    sizes = [len(level) for level in table.levels]
    seconds = time.perf_counter() - start
    if as_json:
        emit(
            {
                "model": str(output),
                "order": table.order,
                "ngrams": sizes,
                "vocabulary_size": table.vocabulary_size,
                "notes": notes,
                "seconds": seconds,
            }
        )
        return
    shown = ", ".join(f"{size:,} {n}-grams" for n, size in enumerate(sizes, start=1))
    note(f"{shown} in {seconds:.1f} s")
    typer.echo(output)
