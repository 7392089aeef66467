"""What several commands share: their option types, and how they print.

Results go to stdout, through `emit`, `show_table` or `print`; everything else goes to stderr.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from seqtool.core import runtime

if TYPE_CHECKING:
    from seqtool.core.config import Config

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout.")]
SeedOption = Annotated[
    int | None, typer.Option("--seed", min=0, metavar="N", help="Seed of every random choice.")
]
DeviceOption = Annotated[
    str, typer.Option("--device", metavar="auto|cpu|cuda|mps", help="Where to compute.")
]
ThreadsOption = Annotated[
    int | None,
    typer.Option("--threads", min=1, metavar="N", help="CPU threads; all cores if not given."),
]
OutputOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="DIR", help="Directory to write to.")
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Replace the output directory if it exists.")
]

FIELD_HELP = "Read JSON Lines and take the text from this field; of .jsonl files: text."

# options of several numbers, which may be apart by spaces or by commas
NUMBER_LISTS = ("--prune", "--fallback-discounts")


class Command(TyperCommand):
    """A command whose options of several numbers may have them apart by spaces: --prune 0 0 1."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Join the numbers after such an option by commas."""
        return super().parse_args(ctx, join_numbers(args))


def join_numbers(args: Sequence[str]) -> list[str]:
    """Return arguments in which the numbers after an option of `NUMBER_LISTS` are one."""
    result: list[str] = []
    for i, arg in enumerate(args):
        if arg == "--":
            return [*result, *args[i:]]
        is_number = re.fullmatch(r"\d+(\.\d*)?|\.\d+", arg) is not None
        if is_number and len(result) > 1 and result[-2] in NUMBER_LISTS:
            result[-1] += f",{arg}"
        else:
            result.append(arg)
    return result


def note(text: str) -> None:
    """Print one line to stderr."""
    typer.echo(text, err=True)


def emit(result: Any) -> None:
    """Print one JSON object to stdout; numbers that JSON cannot hold (inf, nan) become null."""
    typer.echo(json.dumps(_plain(result), ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(dataclasses.asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # NumPy's scalars and arrays, without importing NumPy
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Path):
        return str(value)
    return value


def print_settings(config: type[Config]) -> None:
    """Print every setting as a line of the YAML file that --config takes, with its meaning."""
    from seqtool.core.config import leaves

    sections: list[str] = []
    for dotted, field in leaves(config):
        *above, name = dotted.split(".")
        for depth, section in enumerate(above, 1):
            if sections[:depth] != above[:depth]:
                sections = above[:depth]
                print(f"{'  ' * (depth - 1)}{section}:")
        sections = above
        indent = "  " * len(above)
        line = f"{indent}{name}: {json.dumps(field.default)}"  # null and true, as YAML has them
        print(f"{line:<34}# {field.metadata['help']}")


def typed() -> str:
    """Return the command as it was typed."""
    return f"{runtime.program()} {shlex.join(sys.argv[1:])}"


def show_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    to_stderr: bool = False,
) -> None:
    """Print a table: with rules and colours on a terminal, plain columns elsewhere.

    Args:
        title: a line above the table; none if empty.
        columns: the headings.
        rows: the cells, shown with `str`; columns of numbers are aligned to the right.
        to_stderr: print it there, where it is no result; otherwise to stdout.
    """
    cells = [[str(cell) for cell in row] for row in rows]
    right = [bool(cells) and all(_is_number(row[i]) for row in cells) for i in range(len(columns))]
    if (sys.stderr if to_stderr else sys.stdout).isatty():
        _show_rich_table(title, columns, cells, right, to_stderr)
        return
    from rich.cells import cell_len

    lines = [list(columns), *cells]
    widths = [max(cell_len(line[i]) for line in lines) for i in range(len(columns))]
    if title:
        typer.echo(title, err=to_stderr)
    for line in lines:
        padded = []
        for cell, width, to_right in zip(line, widths, right, strict=True):
            blank = " " * (width - cell_len(cell))  # str.ljust would count a wide character as one
            padded.append(blank + cell if to_right else cell + blank)
        typer.echo("  ".join(padded).rstrip(), err=to_stderr)


def _is_number(cell: str) -> bool:
    """Whether a cell reads as a number, perhaps with a unit: 1,234  -0.5  3:07  12%  2.5 MB."""
    return cell in ("", "-") or re.fullmatch(r"[+-]?\d[\d.,:]*( ?[^\d ]{1,5})?", cell) is not None


def _show_rich_table(
    title: str,
    columns: Sequence[str],
    cells: Sequence[Sequence[str]],
    right: Sequence[bool],
    to_stderr: bool,
) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD)
    for column, to_right in zip(columns, right, strict=True):
        table.add_column(column, justify="right" if to_right else "left")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    Console(stderr=to_stderr).print(table)
