"""Model cards: the README.md of a model directory, which says what the model is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import seqtool
from seqtool.core.checkpoint import Header


def compose(
    header: Header,
    title: str,
    about: str,
    *sections: str,
    maker: str,
    use: Sequence[str] = (),
) -> str:
    """Put a card together.

    Args:
        header: of the model.
        title: its heading.
        about: what the model is, in sentences.
        sections: tables and notes; empty ones are left out.
        maker: what made the model, if no command did.
        use: commands that use it.
    """
    parts = [
        f"# {title}",
        f"{about} Made by seqtool {seqtool.__version__}.",
        *filter(None, sections),
        "Made by:",
        f"    {header.command or maker}",
    ]
    if use:
        parts += ["Use it:", "\n".join(f"    {command}" for command in use)]
    return "\n\n".join(parts) + "\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown; nothing if it has no rows."""
    lines = [_row(columns), "| --- " * len(columns) + "|", *map(_row, rows)]
    return "\n".join(lines) if len(lines) > 2 else ""


def _row(cells: Sequence[str]) -> str:
    return "".join(f"| {cell} " if cell else "| " for cell in cells) + "|"


def scores_table(header: Header) -> str:
    """The scores of a model."""
    rows = [(name.replace("_", " "), f"{value:.2f}") for name, value in header.scores.items()]
    return table(("score", "value"), rows)


def data_table(header: Header) -> str:
    """All that a header records of the data."""
    rows = [(name.replace("_", " "), str(value)) for name, value in header.data.items()]
    return table(("data", ""), rows)
