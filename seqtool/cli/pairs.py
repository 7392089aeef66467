"""`seqtool pairs`: language models on minimal pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtool.cli import options as cli
from seqtool.cli.models import EachModelOption, chosen_models, names_of
from seqtool.cli.usage import examples
from seqtool.core.errors import ConfigError, counted

if TYPE_CHECKING:
    from seqtool.lm.pairs import PairsEvaluation, Tally


@examples(
    "seqtool pairs -m runs/ngram -m runs/lm",
    "seqtool pairs blimp.jsonl -m runs/lm --score region -o pairs.tsv",
)
def pairs(
    files: list[str] | None = cli.argument(
        None, "Tables of good and bad sentences; the sample's pairs if not given.", "FILE"
    ),
    model: EachModelOption = None,
    score: str = cli.option(
        "sentence", "Compare sentences, or only the words that differ.", "sentence|region"
    ),
    by: str | None = cli.option(None, "Also means by the conditions in this column.", "NAME"),
    item_column: str | None = cli.option(None, "With --by: the column of items.", "NAME"),
    output: str | None = cli.option(
        None, "Write a table of all pairs; - is TSV on stdout.", "FILE", "-o"
    ),
    device: cli.DeviceOption = "auto",
    threads: cli.ThreadsOption = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Measure in how many minimal pairs a language model finds the good sentence likelier.

    Each sentence is read from the beginning of a text. A tie, where both are equally likely, is
    counted apart and not as right. The intervals are Wilson's at 95%; the mean over paradigms gives
    each of them the same weight. McNemar's exact test compares other models with the first.
    """
    from seqtool.core.progress import progress_bar
    from seqtool.lm import conditions
    from seqtool.lm.mixture.model import open_parts
    from seqtool.lm.pairs import COLUMNS, check_columns, evaluate_pairs, read_pairs
    from seqtool.lm.tables import check_target, write_table

    if as_json and output == "-":
        raise ConfigError("--json does not go with a table on stdout", hint="drop one of the two")
    if (by is None) != (item_column is None):
        raise ConfigError("--by and --item-column belong together", hint="give both, or none")
    check_target(output, files or ())
    kind: Any = score  # refused where it is none
    paths = files or [cli.stdin_or_sample("FILE", "pairs")]
    minimal_pairs, names = read_pairs(paths), names_of(chosen_models(model))
    if by is not None and item_column is not None:
        check_columns(minimal_pairs, (by, item_column))
    models = open_parts([*map(Path, names)], device=device, threads=threads)
    results: dict[str, PairsEvaluation] = {}
    for name, language_model in zip(names, models, strict=True):
        with progress_bar(f"scoring with {name}") as on_progress:
            results[name] = evaluate_pairs(
                language_model, minimal_pairs, score=kind, on_progress=on_progress
            )
    first, *others = names
    extra: dict[str, dict[str, Any]] = {first: {}}
    for name in others:
        extra[name] = {"against_first": results[name].against(results[first])}
    if by is not None and item_column is not None:
        for name in names:
            extra[name]["conditions"] = results[name].condition_means(by, item_column)
    if output is not None:
        rows = [row for name, found in results.items() for row in found.rows(name)]
        write_table(output, COLUMNS, rows)
    if as_json:
        content = [
            {"model": name, "kind": language_model.kind, **results[name].to_json(), **extra[name]}
            for name, language_model in zip(names, models, strict=True)
        ]
        head = {"pairs": len(minimal_pairs), "score": score, "confidence": 0.95}
        cli.emit({**head, "models": content})
    else:
        what = "whole sentences" if score == "sentence" else "the regions that differ"
        title = f"{' '.join(paths)}: {counted(len(minimal_pairs), 'pair')}, {what}"
        cli.show_table(title, *_summary(results), to_stderr=output == "-")
        for name in names if by else ():
            cells = [conditions.cells_of(each) for each in extra[name]["conditions"]]
            title = f"{name}: bits by which the good one is likelier, by {by}"
            cli.show_table(title, conditions.COLUMNS, cells, to_stderr=output == "-")
        for name in others:
            test = extra[name]["against_first"]
            cli.note(
                f"only {name} is right in {counted(test['only_this'], 'pair')}, only {first} in "
                f"{test['only_first']:,}: p = {test['p_value']:.4f} (McNemar, exact)"
            )
    for name, found in results.items():
        for num, what in (
            (found.num_unknown, f"the sentences differ in a word that {name} reads as <unk>"),
            (found.num_unknown_elsewhere, f"{name} reads a word elsewhere as <unk>"),
        ):
            if num:
                cli.note(f"note: in {counted(num, 'pair')} of {len(minimal_pairs):,}, {what}")


def _summary(results: Mapping[str, PairsEvaluation]) -> tuple[list[str], list[list[str]]]:
    """Return the names of columns, and rows: paradigms, their phenomena, all; models in columns."""
    columns = ["phenomenon", "paradigm", "pairs"]
    for name in results:
        columns += [f"right: {name}", "95% interval", "ties"]
    rows: list[list[str]] = []

    def add(phenomenon: str, paradigm: str, tallies: Sequence[Tally]) -> None:
        row = [phenomenon, paradigm, f"{tallies[0].pairs:,}"]
        for tally in tallies:
            low, high = tally.interval
            row += [f"{tally.accuracy:.1%}", f"{100 * low:.1f} to {100 * high:.1f}"]
            row.append(f"{tally.ties:,}")
        rows.append(row)

    found = [*results.values()]
    paradigms, phenomena = found[0].paradigms, found[0].phenomena
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
