"""`seqtool fetch`: a public data set to a folder of text files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from seqtool.cli.options import ForceOption, JsonOption, emit, note


def fetch(
    name: Annotated[
        str | None, typer.Argument(help="The data set: wikitext-2 or ptb.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The folder to make; NAME by default."),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Take the texts from this local folder, without network."),
    ] = None,
    force: ForceOption = False,
    list_all: Annotated[bool, typer.Option("--list", help="List the data sets.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Fetch a public data set, checked by its SHA-256, to a folder of train, valid and test text.

    An interrupted download goes on where it stopped. The folder's path is printed.
    """
    from seqtool.text import datasets

    if list_all:
        _print_list(as_json)
        return
    if name is None:
        raise typer.BadParameter("name a data set, or see them all with --list", param_hint="NAME")
    target = Path(name) if output is None else output
    with _progress() as (on_progress, on_message):
        folder = datasets.fetch(
            name, target, source=source, force=force, on_progress=on_progress, on_message=on_message
        )
    description = datasets.describe(folder)
    if as_json:
        emit({"folder": str(folder), **description})
        return
    missing = [
        split for split in datasets.DATASETS[name].splits if split not in description["splits"]
    ]
    for split, entry in description["splits"].items():
        remark = "" if entry["as_published"] else ", not the published file byte for byte"
        note(f"{split}: {entry['file']}, {entry['bytes']:,} bytes{remark}")
    if missing:
        note(f"not in the source: {', '.join(missing)}")
    note(f"licence: {description['licence']}")
    typer.echo(str(folder))


def _print_list(as_json: bool) -> None:
    from seqtool.text.datasets import DATASETS

    table: list[dict[str, Any]] = [
        {
            "name": name,
            "description": dataset.description,
            "licence": dataset.licence,
            "splits": {split: file.size for split, file in dataset.splits.items()},
        }
        for name, dataset in DATASETS.items()
    ]
    if as_json:
        emit({"datasets": table})
        return
    for row in table:
        megabytes = sum(row["splits"].values()) / 1e6
        typer.echo(f"{row['name']:<12} {row['description']} ({megabytes:.1f} MB, {row['licence']})")


@contextmanager
def _progress() -> Iterator[tuple[Callable[[str, int, int | None], None], Callable[[str], None]]]:
    """Give two functions that show a download and a message on stderr: a bar, or plain lines."""
    if not sys.stderr.isatty():
        yield _plain_progress(), note
        return
    from rich import progress
    from rich.console import Console

    console = Console(stderr=True)
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=console) as bars:
        tasks: dict[str, progress.TaskID] = {}

        def show(file_name: str, done: int, total: int | None) -> None:
            if file_name not in tasks:
                tasks[file_name] = bars.add_task(file_name, total=total)
            bars.update(tasks[file_name], completed=done, total=total)

        yield show, lambda message: console.out(message, highlight=False)


def _plain_progress() -> Callable[[str, int, int | None], None]:
    """Return a function that prints one line when a file begins to come in, and one at its end."""
    begun: set[str] = set()

    def show(file_name: str, done: int, total: int | None) -> None:
        if file_name not in begun:
            begun.add(file_name)
            size = "" if total is None else f" ({total:,} bytes)"
            note(f"fetching {file_name}{size}")
        if done == total:
            note(f"fetched {file_name}")

    return show
