"""`seqtool ngram train`: estimate an n-gram model."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqtool.cli.ngram import (
    NGRAM_OUTPUT,
    FieldOption,
    InputsArgument,
    LowercaseOption,
    MemoryOption,
    SpecialTokensOption,
    stage_bars,
    text_or_sample,
)
from seqtool.cli.options import (
    ForceOption,
    JsonOption,
    OutputOption,
    ThreadsOption,
    emit,
    note,
    show_table,
)
from seqtool.core.errors import counted

if TYPE_CHECKING:
    from seqtool.lm.ngram.config import NgramConfig
    from seqtool.lm.ngram.train import NgramTraining


def train(
    inputs: InputsArgument = None,
    output: OutputOption = NGRAM_OUTPUT,
    order: Annotated[int, typer.Option(metavar="N", help="Length of the longest n-grams.")] = 5,
    smoothing: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="modified-kneser-ney, kneser-ney, absolute-discounting, witten-bell, add-k, "
            "stupid-backoff or maximum-likelihood.",
        ),
    ] = "modified-kneser-ney",
    prune: Annotated[
        str | None,
        typer.Option(
            metavar="N N ...",
            help="Per order, leave out n-grams that occur at most this often; the last number "
            "holds for the longer ones too. As KenLM has it: 0 0 1.",
            show_default=False,
        ),
    ] = None,
    vocab: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A closed vocabulary, one word a line.", show_default=False
        ),
    ] = None,
    vocab_size: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Keep the most frequent words, <unk> and </s> counted.",
            show_default=False,
        ),
    ] = None,
    min_count: Annotated[
        int, typer.Option(metavar="N", help="Words rarer than this become <unk>.")
    ] = 1,
    discounts: Annotated[
        str,
        typer.Option(
            metavar="paper|kenlm",
            help="Discounts as the paper has them, or with KenLM's slip at the end of a text.",
        ),
    ] = "paper",
    fallback_discounts: Annotated[
        str | None,
        typer.Option(
            metavar="D D D",
            help="Discounts where the counts give none that are valid (0.5 1 1.5).",
            show_default=False,
        ),
    ] = None,
    add: Annotated[
        float | None,
        typer.Option(metavar="X", help="What add-k adds (1).", show_default=False),
    ] = None,
    backoff: Annotated[
        float | None,
        typer.Option(metavar="X", help="The factor of stupid-backoff (0.4).", show_default=False),
    ] = None,
    special_tokens: SpecialTokensOption = "auto",
    lowercase: LowercaseOption = False,
    field: FieldOption = None,
    arpa: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the model as ARPA too (.gz: packed).", show_default=False
        ),
    ] = None,
    threads: ThreadsOption = None,
    memory: MemoryOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Estimate an n-gram model of a text; modified Kneser-Ney, as KenLM has it, by default.

    Order by order, what was counted, kept and discounted is shown.
    """
    from seqtool.core.config import from_dict
    from seqtool.core.runtime import parse_size
    from seqtool.lm.ngram.config import NgramConfig
    from seqtool.lm.ngram.train import train_ngram

    values = {
        "order": order,
        "smoothing": smoothing,
        "prune": _numbers(prune, int, "--prune"),
        "vocab": None if vocab is None else str(vocab),
        "vocab_size": vocab_size,
        "min_count": min_count,
        "discounts": discounts,
        "fallback": _numbers(fallback_discounts, float, "--fallback-discounts"),
        "add": add,
        "backoff": backoff,
        "special_tokens": special_tokens,
        "lowercase": lowercase,
    }
    given = {name: value for name, value in values.items() if value is not None}
    config: NgramConfig = from_dict(NgramConfig, given)
    if str(arpa) == "-":
        raise typer.BadParameter(
            "name a file; `seqtool ngram export MODEL -` writes to stdout", param_hint="--arpa"
        )
    with stage_bars() as on_progress:
        trained = train_ngram(
            text_or_sample(inputs, "training on"),
            output,
            config,
            field=field,
            arpa=arpa,
            force=force,
            threads=threads,
            memory=None if memory is None else parse_size(memory),
            command=shlex.join(["seqtool", *sys.argv[1:]]),
            on_progress=on_progress,
        )
    for warning in trained.warnings:
        note(f"warning: {warning}")
    if as_json:
        emit(_to_json(trained))
    else:
        _show_training(trained)


def _numbers(text: str | None, kind: Callable[[str], Any], option: str) -> tuple[Any, ...] | None:
    if text is None:
        return None
    try:
        return tuple(kind(part) for part in re.split(r"[,\s]+", text.strip(", ")))
    except ValueError as error:
        wanted = "whole numbers, as in 0 0 1" if kind is int else "numbers, as in 0.5 1 1.5"
        raise typer.BadParameter(f"{text!r} is no list of {wanted}", param_hint=option) from error


def _to_json(trained: NgramTraining) -> dict[str, Any]:
    return {
        "model": str(trained.path),
        "arpa": None if trained.arpa is None else str(trained.arpa),
        "seconds": trained.total_seconds,
        "stages": trained.seconds,
        "tokens": trained.num_tokens,
        "sentences": trained.num_sentences,
        "unknown": trained.num_unknown,
        "vocabulary_size": trained.vocabulary_size,
        "ngrams": trained.num_ngrams,
        "orders": trained.statistics,
        "warnings": trained.warnings,
        **trained.scores,
    }


def _show_training(trained: NgramTraining) -> None:
    columns = ["order", "n-grams", "kept", "singletons", "discounts"]
    rows = [
        [
            str(row["order"]),
            f"{row['counted']:,}",
            f"{row['ngrams']:,}",
            f"{row['singletons']:,}",
            "  ".join(f"{discount:.4f}" for discount in row["discounts"])
            + (" (fallback)" if row["fallback"] else ""),
        ]
        for row in trained.statistics
    ]
    if not any(row["discounts"] for row in trained.statistics):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    words = trained.num_tokens - trained.num_sentences
    note(
        f"{counted(trained.num_sentences, 'sentence')}, {trained.num_tokens:,} tokens with </s>, "
        f"{trained.num_unknown:,} unknown ({trained.num_unknown / max(1, words):.2%}), "
        f"vocabulary of {trained.vocabulary_size:,}"
    )
    show_table("", columns, rows, to_stderr=True)
    seconds = trained.total_seconds
    parts = ", ".join(f"{stage} {value:.1f}" for stage, value in trained.seconds.items())
    note(f"{seconds:.1f} s ({parts}), {trained.num_tokens / seconds:,.0f} tokens/s")
    for name, value in trained.scores.items():
        note(f"{name.replace('_', ' ')} {value:.2f}")
    if trained.arpa is not None:
        note(f"ARPA file: {trained.arpa}")
    note(f"next: seqtool eval-ppl TEXT -m {trained.path}  or  seqtool inspect {trained.path}")
    typer.echo(trained.path)
