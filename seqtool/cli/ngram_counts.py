"""`seqtool ngram counts`: the n-grams of a text."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqtool.cli.ngram import (
    FieldOption,
    InputsArgument,
    LowercaseOption,
    MemoryOption,
    SpecialTokensOption,
    stage_bars,
    text_or_sample,
)
from seqtool.cli.options import JsonOption, ThreadsOption, emit, note, show_table

if TYPE_CHECKING:
    from seqtool.core.vocabulary import Vocabulary
    from seqtool.lm.ngram.counts import Listing

LISTED = 20  # n-grams that are shown when nothing is said


def counts(
    inputs: InputsArgument = None,
    order: Annotated[int, typer.Option(metavar="N", help="Length of the n-grams.")] = 2,
    top: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help=f"How many, the most frequent; 0 is all. {LISTED}, or all with -o.",
            show_default=False,
        ),
    ] = None,
    min_count: Annotated[
        int, typer.Option(metavar="N", help="Leave out n-grams that are rarer.")
    ] = 1,
    sort: Annotated[
        str, typer.Option(metavar="frequency|text", help="What to sort by.")
    ] = "frequency",
    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            metavar="WORD",
            help="Only n-grams with this word; repeatable, then with all of them.",
            show_default=False,
        ),
    ] = None,
    boundaries: Annotated[
        bool, typer.Option("--boundaries", help="Also n-grams with <s> and </s>.")
    ] = False,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write them there as TSV.", show_default=False
        ),
    ] = None,
    special_tokens: SpecialTokensOption = "auto",
    lowercase: LowercaseOption = False,
    field: FieldOption = None,
    threads: ThreadsOption = None,
    memory: MemoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count the n-grams of a text: a table on a terminal, tab-separated values elsewhere."""
    if sort not in ("frequency", "text"):
        raise typer.BadParameter("choose frequency or text", param_hint="--sort")
    from seqtool.core.config import from_dict
    from seqtool.core.runtime import parse_size
    from seqtool.lm.ngram.config import NgramConfig
    from seqtool.lm.ngram.train import count_text

    values = {"order": order, "special_tokens": special_tokens, "lowercase": lowercase}
    config: NgramConfig = from_dict(NgramConfig, values)
    with stage_bars() as on_progress:
        counted, vocabulary = count_text(
            text_or_sample(inputs, "counting"),
            config,
            field=field,
            threads=threads,
            memory=None if memory is None else parse_size(memory),
            on_progress=on_progress,
        )
    from seqtool.lm.ngram.counts import list_ngrams

    if top is None:
        top = LISTED if output is None else 0
    listing = list_ngrams(
        counted,
        vocabulary,
        top=top or None,
        min_count=min_count,
        sort="text" if sort == "text" else "frequency",
        filters=filters or (),
        boundaries=boundaries,
    )
    if output is not None or not as_json:
        _show_listing(listing, vocabulary, output)
    if as_json:
        emit(_listing_to_json(listing, vocabulary, order))
        return
    note(f"{len(listing.counts):,} of {listing.distinct:,} n-grams of order {order}")


def _listing_to_json(listing: Listing, vocabulary: Vocabulary, order: int) -> dict[str, Any]:
    ngrams = [
        {"ngram": vocabulary.decode(words), "count": count}
        for words, count in zip(listing.words.tolist(), listing.counts.tolist(), strict=True)
    ]
    return {
        "order": order,
        "distinct": listing.distinct,
        "total": listing.total,
        "ngrams": ngrams,
    }


def _show_listing(listing: Listing, vocabulary: Vocabulary, output: str | None) -> None:
    """Print the n-grams as a table to a terminal, or as TSV."""
    from seqtool.lm.score_tables import open_table

    columns = ("count", "per million", "n-gram")
    rate = 1e6 / max(1, listing.total)
    rows = (
        (str(count), f"{count * rate:.1f}", " ".join(vocabulary.decode(words)))
        for words, count in zip(listing.words.tolist(), listing.counts.tolist(), strict=True)
    )
    if output is None and sys.stdout.isatty():
        show_table("", columns, list(rows))
        return
    with open_table(output or "-") as table:
        assert table is not None
        table.write("\t".join(columns) + "\n")
        table.writelines("\t".join(row) + "\n" for row in rows)
