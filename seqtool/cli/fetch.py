"""`seqtool fetch`: a public data set to a folder of text files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seqtool.cli.options import ForceOption, JsonOption, emit, note


def fetch(
    name: Annotated[
        str | None,
        typer.Argument(help="The data set: wikitext-2 or ptb; without it, all are listed."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The folder to make; NAME by default."),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Take the texts from this folder or zip file, no network."),
    ] = None,
    force: ForceOption = False,
    list_all: Annotated[bool, typer.Option("--list", help="List the data sets.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Fetch a public data set, checked by its SHA-256, to a folder of train, valid and test text.

    The folder's path is printed.
    """
    from seqtool.core.progress import progress_bar
    from seqtool.text import datasets

    if list_all or name is None:
        _print_list(as_json)
        return
    with progress_bar(f"fetching {name}", is_bytes=True) as on_progress:
        folder = datasets.fetch(
            name,
            Path(name) if output is None else output,
            source=source,
            force=force,
            on_progress=on_progress,
            on_message=note,
        )
    description = datasets.describe(folder)
    if as_json:
        emit({"folder": str(folder), **description})
        return
    for split, entry in description["splits"].items():
        remark = "" if entry["as_published"] else ", not the published file byte for byte"
        note(f"{split}: {entry['file']}, {entry['bytes']:,} bytes{remark}")
    if missing := datasets.DATASETS[name].splits.keys() - description["splits"]:
        note(f"not in the source: {', '.join(sorted(missing))}")
    note(f"licence: {description['licence']}")
    typer.echo(str(folder))


def _print_list(as_json: bool) -> None:
    from seqtool.text.datasets import DATASETS

    if as_json:
        emit({"datasets": [{"name": name, **vars(data)} for name, data in DATASETS.items()]})
        return
    for name, data in DATASETS.items():
        typer.echo(f"{name:<12} {data.description} ({data.size / 1e6:.1f} MB, {data.licence})")
