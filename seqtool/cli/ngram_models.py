"""`seqtool ngram prune` and `seqtool ngram mix`: n-gram models made of others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from seqtool.cli.models import WeightsOption, names_of, parse_weights
from seqtool.cli.ngram import ArpaOption, refuse_two_outputs, show_path
from seqtool.cli.options import (
    ForceOption,
    JsonOption,
    TextFieldOption,
    ThreadsOption,
    emit,
    note,
    note_next,
    show_table,
    typed,
)
from seqtool.cli.usage import examples

NewModelOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="DIR", help="Where the new model goes.")
]


@examples(
    "seqtool ngram prune runs/kn5 -o runs/small",
    "seqtool ngram prune big.arpa.gz --threshold 1e-7 -o small --arpa small.arpa",
)
def prune(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="An n-gram model, or an ARPA file.")
    ],
    output: NewModelOption,
    threshold: Annotated[
        float,
        typer.Option(
            metavar="X",
            help="The share by which the perplexity may grow for each n-gram that is left out.",
        ),
    ] = 1e-8,
    arpa: ArpaOption = None,
    threads: ThreadsOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Leave out the n-grams that matter least, by relative entropy (Stolcke 1998).

    What SRILM does as `ngram -prune`. The model that is read stays.
    """
    from seqtool.core.runtime import available_threads
    from seqtool.lm.ngram.arpa import warnings_of
    from seqtool.lm.ngram.train import prune_model

    refuse_two_outputs(arpa, as_json=as_json)
    before, after = prune_model(
        model,
        output,
        threshold,
        arpa=arpa,
        force=force,
        threads=threads or available_threads(),
        command=typed(),
    )
    old = [len(level) for level in before.levels]
    new = [len(level) for level in after.levels]
    new += [0] * (len(old) - len(new))
    warnings = warnings_of(after) if arpa is not None else []
    for warning in warnings:
        note(f"warning: {warning}")
    if as_json:
        about = {"order": after.order, "before": old, "ngrams": new, "warnings": warnings}
        return emit({"model": output, "arpa": arpa, **about})
    rows = [
        # pruned by counts, an order may be empty already
        [n, f"{size:,}", f"{kept:,}", f"{kept / max(1, size):.1%}"]
        for n, (size, kept) in enumerate(zip(old, new, strict=True), start=1)
    ]
    rows.append(["all", f"{sum(old):,}", f"{sum(new):,}", f"{sum(new) / sum(old):.1%}"])
    show_table("", ["order", "n-grams", "kept", "share"], rows, to_stderr=True)
    note_next("eval-ppl TEXT -m {}", "inspect {}", model=output)
    show_path(output, arpa)


@examples(
    "seqtool ngram mix runs/news runs/talk --tune dev.txt -o mix --arpa mix.arpa",
    "seqtool ngram mix a.arpa b.arpa --weights 0.3,0.7 -o runs/mixed",
)
def mix(
    models: Annotated[
        list[Path],
        typer.Argument(metavar="MODEL", help="Two n-gram models or more, or ARPA files."),
    ],
    output: NewModelOption,
    weights: WeightsOption = None,
    tune: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Fit the weights on this held-out text (a corpus: its valid split).",
        ),
    ] = None,
    field: TextFieldOption = None,
    arpa: ArpaOption = None,
    threads: ThreadsOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Interpolate n-gram models into one, with the words and the n-grams of all.

    Probabilities of n-grams that any of them has are exact; for others the new model backs off.
    """
    from seqtool.core.progress import progress_bar
    from seqtool.core.runtime import available_threads
    from seqtool.lm.mixture.static import mix_ngrams
    from seqtool.lm.ngram.arpa import warnings_of

    refuse_two_outputs(arpa, as_json=as_json)
    names = names_of(models)
    with progress_bar("tuning", is_bytes=True) as on_progress:
        mixed = mix_ngrams(
            models,
            output,
            weights=parse_weights(weights, len(models)) if len(models) > 1 else None,
            tune=tune,
            field=field,
            arpa=arpa,
            force=force,
            threads=threads or available_threads(),
            command=typed(),
            on_progress=on_progress,
        )
    warnings = warnings_of(mixed.model.table) if arpa is not None else []
    for warning in warnings:
        note(f"warning: {warning}")
    if as_json:
        about = {"weights": list(mixed.weights), "ngrams": list(mixed.sizes), "warnings": warnings}
        if mixed.tuning is not None:
            about |= {"perplexity": mixed.perplexity, "tuning": mixed.tuning.to_json()}
        return emit({"model": mixed.path, "arpa": mixed.arpa, **about})
    _show_weights(names, mixed.weights)
    shown = ", ".join(f"{size:,} {n}-grams" for n, size in enumerate(mixed.sizes, start=1))
    note(shown)
    if mixed.tuning is not None:
        note(
            f"perplexity of {mixed.tuning.text}: {mixed.perplexity:.2f}; of the models mixed at "
            f"every word, by `eval-ppl`: {mixed.tuning.perplexity:.2f}"
        )
    note_next("eval-ppl TEXT -m {}", "inspect {}", model=mixed.path)
    show_path(mixed.path, arpa)


def _show_weights(names: Sequence[str], weights: Sequence[float]) -> None:
    rows = [[name, f"{weight:.4f}"] for name, weight in zip(names, weights, strict=True)]
    show_table("", ["model", "weight"], rows, to_stderr=True)
