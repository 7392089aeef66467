"""`seqtool predict`: what comes next, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from seqtool.cli.models import ModelsOption, WeightsOption, chosen_models, parse_weights
from seqtool.cli.options import DeviceOption, ThreadsOption, prompt_text, takes_options
from seqtool.cli.reports import ShownOptions, show
from seqtool.cli.usage import examples


@takes_options()
@examples(
    "seqtool predict --prompt 'the old' -m runs/ngram --top 5",
)
def predict(
    prompt: Annotated[
        str | None,
        typer.Option(
            "-p",
            "--prompt",
            metavar="TEXT",
            help="The text before; - reads stdin, as does a command at the end of a pipe without "
            "it. Else the beginning of a sentence.",
        ),
    ] = None,
    model: ModelsOption = None,
    weights: WeightsOption = None,
    top: Annotated[
        int, typer.Option("--top", "-k", metavar="K", help="How many tokens to show.")
    ] = 10,
    allow_unknown: Annotated[
        bool, typer.Option("--allow-unknown", help="Read unknown words of the prompt as <unk>.")
    ] = False,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    *,
    shown: ShownOptions,
) -> None:
    """Show the most probable next tokens, with where each probability comes from.

    Of an n-gram model that is the order of the n-gram that gave it; of several models mixed, what
    each gives the token, and how much of the sum is its own.
    """
    from seqtool.analysis.prediction import predict
    from seqtool.lm.mixture.model import open_mixture

    shown.check()
    paths = chosen_models(model)
    shares = parse_weights(weights, len(paths))
    language_model = open_mixture(paths, shares, device=device, threads=threads)
    name = " + ".join(map(str, paths))
    report = predict(
        language_model, name, prompt_text(prompt), top=top, allow_unknown=allow_unknown
    )
    show(report, shown)
