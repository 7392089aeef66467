"""`seqtool pairs`: language models on minimal pairs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from seqtool.cli.models import chosen_models, names_of
from seqtool.cli.options import (
    DeviceOption,
    JsonOption,
    ThreadsOption,
    emit,
    note,
    show_table,
    stdin_or_sample,
    takes_options,
)
from seqtool.cli.usage import examples
from seqtool.core.errors import ConfigError, counted

if TYPE_CHECKING:
    from seqtool.lm.pairs import PairsEvaluation, Score, Tally


@takes_options()
@examples(
    "seqtool pairs -m runs/ngram -m runs/lm",
    "seqtool pairs blimp.jsonl -m runs/lm --score region -o pairs.tsv",
)
def pairs(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="Tables (.tsv, .csv) with the columns good and bad, and perhaps phenomenon and "
            "paradigm, or BLiMP's JSON Lines; also packed, directories, - for stdin. The pairs "
            "of the shipped sample if not given: English ones.",
        ),
    ] = None,
    model: Annotated[
        list[Path] | None,
        typer.Option(
            "-m",
            "--model",
            metavar="MODEL",
            help="A language model, or an ARPA file; several (-m A -m B) stand side by side. "
            "runs/lm by default, else runs/ngram.",
        ),
    ] = None,
    score: Annotated[
        str,
        typer.Option(
            metavar="sentence|region",
            help="Compare whole sentences, or only the words in which they differ.",
        ),
    ] = "sentence",
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write a table of all pairs (.tsv, .csv, .jsonl, .parquet; - is TSV on stdout): "
            "both log2 probabilities, their difference, the unknown words.",
        ),
    ] = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure in how many minimal pairs a language model finds the good sentence likelier.

    Each sentence is read from the beginning of a text. A tie, where both are equally likely, is
    counted apart and not as right. The intervals are Wilson's at 95%; the mean over paradigms gives
    each of them the same weight.
    """
    from seqtool.core.progress import progress_bar
    from seqtool.lm.mixture.model import open_parts
    from seqtool.lm.pairs import COLUMNS, evaluate_pairs, read_pairs, refuse_region
    from seqtool.lm.tables import check_target, write_table

    if score not in ("sentence", "region"):
        raise ConfigError(f"--score is {score!r}", hint="choose sentence or region")
    if as_json and output == "-":
        raise ConfigError(
            "--json and a table both write to stdout", hint="give the table a file name"
        )
    if output is not None:
        check_target(output, files or ())
    chosen = chosen_models(model)
    names = files or [stdin_or_sample("FILE", "pairs")]
    given = read_pairs(names)
    # all of them, so that what cannot be opened is told before the work begins
    opened = open_parts(chosen, device=device, threads=threads)
    for language_model in opened:
        refuse_region(language_model, cast("Score", score))
    results: list[tuple[str, str, PairsEvaluation]] = []
    for name, path, language_model in zip(names_of(chosen), chosen, opened, strict=True):
        with progress_bar(f"scoring with {path}") as on_progress:
            found = evaluate_pairs(
                language_model, given, score=cast("Score", score), on_progress=on_progress
            )
        results.append((name, language_model.kind, found))
    if output is not None:
        rows = [row for name, _, found in results for row in found.rows(name)]
        write_table(output, COLUMNS, rows)
    if as_json:
        emit(
            {
                "pairs": len(given),
                "score": score,
                "confidence": 0.95,
                "models": [
                    {"model": name, "kind": kind, **found.to_json()}
                    for name, kind, found in results
                ],
            }
        )
    else:
        title = f"{' '.join(names)}: {counted(len(given), 'pair')}, "
        title += "whole sentences" if score == "sentence" else "the regions that differ"
        show_table(title, *_summary(results), to_stderr=output == "-")
    for name, _, found in results:
        if found.num_unknown:
            note(
                f"note: {counted(found.num_unknown, 'pair')} of {len(given):,} "
                f"{'differs' if found.num_unknown == 1 else 'differ'} in a word "
                f"that {name} does not know, in whose place it predicts <unk>"
            )
        if found.num_unknown_elsewhere:
            more = counted(found.num_unknown_elsewhere, "pair")
            verb = "has" if found.num_unknown_elsewhere == 1 else "have"
            what = f"{more} of {len(given):,} {verb} a word elsewhere that {name} does not know"
            note(f"note: {what}")


def _summary(
    results: Sequence[tuple[str, str, PairsEvaluation]],
) -> tuple[list[str], list[list[str]]]:
    """Return the names of columns, and rows: paradigms, their phenomena, all; models in columns."""
    columns = ["phenomenon", "paradigm", "pairs"]
    for name, _, _ in results:
        columns += [f"right: {name}", "95% interval", "ties"]
    first = results[0][2]
    rows: list[list[str]] = []

    def add(phenomenon: str, paradigm: str, tallies: Sequence[Tally]) -> None:
        row: list[str] = [phenomenon, paradigm, f"{tallies[0].pairs:,}"]
        for tally in tallies:
            low, high = tally.interval
            row += [f"{tally.accuracy:.1%}", f"{100 * low:.1f} to {100 * high:.1f}"]
            row += [f"{tally.ties:,}"]
        rows.append(row)

    found: list[Any] = [item for _, _, item in results]
    paradigms, phenomena = first.paradigms, first.phenomena
    for phenomenon in phenomena:
        names = [name for of, name in paradigms if of == phenomenon]
        for name in names:
            add(phenomenon, name, [item.paradigms[phenomenon, name] for item in found])
        if len(names) > 1 and len(phenomena) > 1:
            add(phenomenon, "all", [item.phenomena[phenomenon] for item in found])
    if len(paradigms) > 1:
        add("all", "", [item.total for item in found])
        row = [f"mean of {len(paradigms)} paradigms", "", ""]
        for item in found:
            row += [f"{item.mean_accuracy:.1%}", "", ""]
        rows.append(row)
    return columns, rows
