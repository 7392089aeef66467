"""What the commands of `seqtool ngram` share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from seqtool.cli.options import note

NGRAM_OUTPUT = Path("runs/ngram")

InputsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="CORPUS",
        help="A prepared corpus, or text: files (.gz, .zst and .jsonl too), directories, or - for "
        "stdin; the shipped English sample if not given.",
        show_default=False,
    ),
]
FieldOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Read JSON Lines and take the text from this field; of .jsonl files: text.",
        show_default=False,
    ),
]
SpecialTokensOption = Annotated[
    str,
    typer.Option(
        metavar="auto|unknown|skip|refuse",
        help="A literal <unk>, <s> or </s> in the text: <unk> is the unknown word and the "
        "others are refused (auto), all are unknown words, left out, or refused.",
    ),
]
MemoryOption = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="Memory that it may take, such as 8G; what the machine has free if not given.",
        show_default=False,
    ),
]
LowercaseOption = Annotated[bool, typer.Option("--lowercase", help="Lower-case the text.")]


def text_or_sample(inputs: list[str] | None, doing: str) -> list[str]:
    """Return the inputs, or the shipped sample, and say so."""
    if inputs:
        return inputs
    from seqtool.text.sample import sample_text

    note(f"no CORPUS given: {doing} the shipped English sample")
    return [str(sample_text("en", "train").parent)]


@contextmanager
def stage_bars() -> Iterator[Callable[[str, int, int | None], None]]:
    """Show a bar per stage of the work on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda stage, done, total: None
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(bar_width=30),
        progress.TaskProgressColumn(),
        progress.TimeElapsedColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, progress.TaskID] = {}

        def show(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                for task in tasks.values():  # a stage that tells nothing ends when the next begins
                    bars.update(task, completed=1, total=1)
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done, total=total)

        yield show
