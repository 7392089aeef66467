"""`seqtool analyse`: what recurrent networks do inside, and the small ones that are set by hand."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from seqtool.cli.analyse import (
    ANALYSES,
    InitialOption,
    ModelOption,
    SplitOption,
    TaggerOption,
    TextArgument,
    numbers_of,
    open_language_models,
    run_analysis,
    tokens_option,
)
from seqtool.cli.models import default_model, open_tagger
from seqtool.cli.options import SeedOption, ThreadsOption, stdin_or_sample, takes_options
from seqtool.cli.reports import ShownOptions, show
from seqtool.cli.usage import examples


def _run_networks(
    name: str,
    models: Sequence[Path] | None,
    text: Path | None,
    shown: ShownOptions,
    threads: int | None,
    *,
    with_runs: bool = False,
    **options: Any,
) -> None:
    """Run an analysis of recurrent networks, and show its report.

    Args:
        name: of the analysis.
        models: their directories; the default one if not given.
        text: the sample if not given.
        shown: where the report goes.
        threads: of the networks.
        with_runs: the analysis reads the models' directories, too.
        options: of the analysis; None for its own.
    """
    shown.check()
    paths = list(models or [default_model("lm")])
    found = open_language_models(paths, threads)
    runs = paths if with_runs else None
    run_analysis(name, found, text or stdin_or_sample("TEXT"), shown, runs=runs, **options)


@takes_options()
@examples(
    "seqtool analyse gradients -m runs/lm --initial -o gradients.svg",
)
def gradients(
    text: TextArgument = None,
    model: ModelOption = None,
    initial: InitialOption = False,
    lags: Annotated[
        int | None, typer.Option(min=1, metavar="K", help="The largest lag; 50 if not given.")
    ] = None,
    positions: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Tokens of the text whose loss is taken; 64 if not given."
        ),
    ] = None,
    jacobians: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Of these, how many have their temporal Jacobians taken; 4 if not given.",
        ),
    ] = None,
    clipping: Annotated[
        bool,
        typer.Option(
            "--clipping", help="Show the norms before and after clipping of the models' runs, too."
        ),
    ] = False,
    tokens: Annotated[int | None, tokens_option("2,000")] = None,
    split: SplitOption = "valid",
    seed: SeedOption = None,
    threads: ThreadsOption = None,
    *,
    shown: ShownOptions,
) -> None:
    """Show how far back gradients reach: their norm by the lag, and products of Jacobians.

    Beside the products stands the bound that the weights and gates allow.
    """
    _run_networks(
        "gradients",
        model,
        text,
        shown,
        threads,
        initial=initial,
        seed=seed,
        split=split,
        num_tokens=tokens,
        lags=lags,
        num_positions=positions,
        num_jacobians=jacobians,
        with_runs=clipping,
    )


@takes_options()
@examples(
    "seqtool analyse spectrum -m runs/lm -o spectrum.svg",
)
def spectrum(
    text: TextArgument = None,
    model: ModelOption = None,
    initial: InitialOption = False,
    at: Annotated[
        list[str] | None,
        typer.Option(
            "--at",
            metavar="TOKEN",
            help="Take the Jacobian where this token is read; repeat it for several. Drawn "
            "positions if not given.",
        ),
    ] = None,
    positions: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many are drawn; 3 if not given.")
    ] = None,
    tokens: Annotated[int | None, tokens_option("2,000")] = None,
    split: SplitOption = "valid",
    seed: SeedOption = None,
    threads: ThreadsOption = None,
    *,
    shown: ShownOptions,
) -> None:
    """Show eigenvalues and singular values of recurrent matrices and of Jacobians.

    They are drawn in the complex plane, with the discs of Gersgorin and the unit circle.
    """
    _run_networks(
        "spectrum",
        model,
        text,
        shown,
        threads,
        initial=initial,
        seed=seed,
        split=split,
        num_tokens=tokens,
        tokens=at,
        num_positions=positions,
    )


@takes_options()
@examples(
    "seqtool analyse gates test.txt -m runs/lm",
)
def gates(
    text: TextArgument = None,
    model: ModelOption = None,
    initial: InitialOption = False,
    tagger: TaggerOption = None,
    tokens: Annotated[int | None, tokens_option("1,000")] = None,
    split: SplitOption = "valid",
    seed: SeedOption = None,
    threads: ThreadsOption = None,
    *,
    shown: ShownOptions,
) -> None:
    """Show how open gates are over a text, and how long the memory lasts."""
    _run_networks(
        "gates",
        model,
        text,
        shown,
        threads,
        initial=initial,
        seed=seed,
        split=split,
        num_tokens=tokens,
        tagger=open_tagger(tagger),
    )


@takes_options()
@examples(
    "seqtool analyse dynamics test.txt -m runs/lm",
)
def dynamics(
    text: TextArgument = None,
    model: ModelOption = None,
    initial: InitialOption = False,
    at: Annotated[
        list[str] | None,
        typer.Option(
            "--at",
            metavar="TOKEN",
            help="A fixed input; repeat it for several. </s> if not given; the mean input always.",
        ),
    ] = None,
    starts: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="States that are followed for each input; 24 if not given."
        ),
    ] = None,
    newton: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Of these, from how many Newton's method looks for sources; 8 if not given.",
        ),
    ] = None,
    carried: Annotated[
        bool,
        typer.Option(
            "--carried", help="Begin in the states that the models' training carried last, too."
        ),
    ] = False,
    tokens: Annotated[int | None, tokens_option("500")] = None,
    split: SplitOption = "valid",
    seed: SeedOption = None,
    threads: ThreadsOption = None,
    *,
    shown: ShownOptions,
) -> None:
    """Show where the state settles when the input stays the same, and whether the start matters.

    A warning says where two initial states lead to different perplexities.
    """
    _run_networks(
        "dynamics",
        model,
        text,
        shown,
        threads,
        initial=initial,
        seed=seed,
        split=split,
        num_tokens=tokens,
        tokens=at,
        num_starts=starts,
        num_newton=newton,
        with_runs=carried,
    )


@takes_options()
@examples(
    "seqtool analyse cells",
)
def cells(
    network: Annotated[
        list[str] | None,
        typer.Option(
            metavar="sum|comparison|parity",
            help="A network that is set by hand; repeat it for several. All if not given.",
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            "-i",
            metavar="X,X...",
            help="What a network reads at a step, one number or two with a comma; repeat it for "
            "each step. A sequence of its own if not given.",
        ),
    ] = None,
    map_: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="logistic|quadratic|tanh",
            help="A map x(t+1) = f(x(t)); repeat it for several. All if not given.",
        ),
    ] = None,
    parameter: Annotated[
        float | None, typer.Option(metavar="A", help="Of the map; its own if not given.")
    ] = None,
    start: Annotated[
        float | None, typer.Option(metavar="X", help="x(0) of the map; its own if not given.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Steps of the map; 40 if not given.")
    ] = None,
    *,
    shown: ShownOptions,
) -> None:
    """Run networks that are set by hand, and maps of one number: what states can do.

    The networks hold a sum, compare two sums, and tell whether ones are odd in number; the maps
    settle in a point, go round in a cycle, or never settle.
    """
    shown.check()
    asked = bool(network or inputs) != bool(map_ or parameter is not None)
    options: dict[str, Any] = {
        "networks": network or ([] if asked and not inputs else None),
        "inputs": None if inputs is None else [numbers_of(row, float, "0.5,2") for row in inputs],
        "maps": map_ or ([] if asked and parameter is None else None),
        "parameter": parameter,
        "start": start,
        "num_steps": steps,
    }
    given = {name: value for name, value in options.items() if value is not None}
    show(import_module(ANALYSES["cells"]).analyse(**given), shown)
