"""`seqtool compare`: language models side by side on one text."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqtool.cli.analyse import kept_text
from seqtool.cli.eval_ppl import held_out
from seqtool.cli.models import names_of
from seqtool.cli.options import (
    DeviceOption,
    JsonOption,
    TestSplitOption,
    TextFieldOption,
    ThreadsOption,
    emit,
    note,
    show_table,
    stdin_instead,
    takes_options,
)
from seqtool.cli.usage import examples
from seqtool.core.errors import ConfigError, counted

if TYPE_CHECKING:
    from seqtool.lm.comparison import ComparedModel, Comparison


@takes_options()
@examples(
    "seqtool compare -m runs/kn5 -m runs/snm test.txt",
    "seqtool compare -m runs/lm -m runs/ngram -o table.csv",
)
def compare(
    text: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT",
            help="Text, one sentence per line: files (also packed, .jsonl, .parquet), "
            "directories, - for stdin, or one prepared corpus. If not given: stdin where that "
            "is a pipe or a file, else the held-out part of the models' own corpus.",
        ),
    ] = None,
    model: Annotated[
        list[Path] | None,
        typer.Option(
            "-m",
            "--model",
            metavar="MODEL",
            help="A language model, or an ARPA file: two or more, as -m A -m B. Each is tested "
            "against the first.",
        ),
    ] = None,
    split: TestSplitOption = None,
    field: TextFieldOption = None,
    reset_state: Annotated[
        bool,
        typer.Option("--reset-state", help="Start every sentence from the initial state."),
    ] = False,
    samples: Annotated[
        int, typer.Option(metavar="N", min=1, help="Texts drawn for each test.")
    ] = 10_000,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed of these draws.")] = 1,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the table (.tsv, .csv, .jsonl, .parquet; - is TSV on stdout).",
        ),
    ] = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure language models on one text, side by side: how well, how large, how fast.

    Models that read the text as different tokens compare by bits per byte. Each model is tested
    against the first by a paired bootstrap over sentences: the difference in bits per token (per
    byte, where tokens differ), its 95% interval, and how probable one as large is by chance. Below
    0, the model is better than the first.
    """
    from seqtool.core.progress import progress_bar
    from seqtool.lm.comparison import COLUMNS, compare_lms
    from seqtool.lm.tables import check_target, write_table

    if as_json and output == "-":
        raise ConfigError(
            "--json and a table both write to stdout", hint="give the table a file name"
        )
    check_target(output, text or ())
    models = list(model or [])
    if len(models) < 2:
        what = "no model was given" if not models else f"{models[0]} is the only model"
        raise ConfigError(what, hint="name two or more: seqtool compare -m A -m B TEXT")
    names_of(models)
    paths = list(text or [])
    if not paths and stdin_instead("TEXT"):
        paths = ["-"]
    if not paths:
        own = held_out(models, split)
        paths, split = [*map(str, own.paths)], own.split if own.is_corpus else None
    with ExitStack() as stack:
        kept = [str(stack.enter_context(kept_text(path))) for path in paths]

        def on_progress(name: str) -> Callable[[int, int | None], None]:
            bars.close()
            return bars.enter_context(progress_bar(f"scoring with {name}", is_bytes=True))

        bars = stack.enter_context(ExitStack())
        found = compare_lms(
            models,
            kept,
            split=split,
            field=field,
            reset_state=reset_state,
            device=device,
            threads=threads,
            samples=samples,
            seed=seed,
            on_progress=on_progress,
        )
    if output is not None:
        write_table(output, COLUMNS, [compared.row() for compared in found.models])
    if as_json:
        content = [compared.to_json() for compared in found.models]
        emit({"text": paths, "per": found.per, "samples": samples, "seed": seed, "models": content})
    elif output != "-":
        _show(found, " ".join("stdin" if path == "-" else path for path in paths))
    for remark in found.remarks:
        note(f"note: {remark}")


def _show(found: Comparison, text: str) -> None:
    first = found.models[0]
    part = f" ({first.result.split})" if first.result.split else ""
    title = f"{text}{part}: {counted(first.result.sentences, 'sentence')}"
    columns = ["model", "kind", "perplexity", "bits per byte", "parameters", "MB", "tokens/s"]
    show_table(title, [*columns, "training s"], [_cells(model) for model in found.models])
    rows = [
        [model.name]
        + (
            ["-"] * 4
            if model.lead is None
            else [
                *(f"{bits:+.4f}" for bits in (model.lead.difference, model.lead.low)),
                f"{model.lead.high:+.4f}",
                f"{model.lead.p_value:.4f}",
            ]
        )
        for model in found.models[1:]
    ]
    title = f"\nagainst {first.name}: bits per {found.per}, paired bootstrap over sentences"
    show_table(title, ["model", "difference", "95% from", "to", "p"], rows)


def _cells(model: ComparedModel) -> list[str]:
    result, costs = model.result, model.costs
    return [
        model.name,
        model.kind,
        f"{result.perplexity:,.2f}",
        "-" if result.bits_per_byte is None else f"{result.bits_per_byte:.4f}",
        "-" if costs.parameters is None else f"{costs.parameters:,}",
        "-" if costs.bytes is None else f"{costs.bytes / 1e6:,.1f}",
        f"{model.tokens_per_second:,.0f}",
        "-" if costs.train_seconds is None else f"{costs.train_seconds:,.1f}",
    ]
