"""`seqtool plot`: how runs were learned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seqtool.cli.models import default_model
from seqtool.cli.options import takes_options
from seqtool.cli.reports import ShownOptions, show
from seqtool.cli.usage import examples


@takes_options()
@examples(
    "seqtool plot runs/lm runs/other -o curves.svg",
)
def plot(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUN",
            help="Models that were trained here, or their log.jsonl; of a pipeline, all its parts. "
            "The default output of a training command if not given.",
        ),
    ] = None,
    *,
    shown: ShownOptions,
) -> None:
    """Show learning curves: of one run, or of several on one chart.

    Of a language model these are its perplexities by epoch, of a parser, tagger or segmenter its
    loss and scores; below them the learning rate, and what clipping did to the gradient.
    """
    from seqtool.analysis.learning import find_logs, learning_curves

    shown.check()
    paths = runs or [default_model("lm", "parser", "tagger", "segmenter")]
    show(learning_curves([log for path in paths for log in find_logs(path)]), shown)
