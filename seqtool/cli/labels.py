"""Labels of words, such as named entities: how good they are, and `tag` with such a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from seqtool.cli.options import note, show_table
from seqtool.core.errors import ConfigError, DataError, counted

if TYPE_CHECKING:
    from seqtool.parsing.tagger.entities import LabelCounts

WordColumnOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="The column of words; the first if not given."),
]
LabelColumnOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="The column of labels; the last if not given."),
]


@dataclass(frozen=True)
class ColumnOptions:
    """Which columns of files with a word a line are read."""

    word_column: WordColumnOption = None
    label_column: LabelColumnOption = None

    @property
    def are_given(self) -> bool:
        """Whether one is named."""
        return self.word_column is not None or self.label_column is not None

    def refuse(self) -> None:
        """Refuse columns that were named where no file with a word a line is read.

        Raises:
            ConfigError: one was.
        """
        if self.are_given:
            raise ConfigError(
                "--word-column and --label-column are for labels in files with a word a line",
                hint="leave them out, or name such a file",
            )

    def are_for(self, files: Sequence[str], *, skips_damaged: bool) -> bool:
        """Whether files have a word a line.

        Raises:
            ConfigError: some have, and others have not.
            DataError: one cannot be read, and is not to be skipped.
        """
        from seqtool.parsing.tagger.columns import is_column_file

        kinds = set()
        for path in files:
            try:
                kinds.add(is_column_file(path, is_named=self.are_given))
            except DataError:  # it is told of when it is read
                if not skips_damaged:
                    raise
        if len(kinds) == 2:
            raise ConfigError(
                "files with a word a line cannot be labelled together with others",
                hint="label them one after another",
            )
        if kinds != {True}:
            self.refuse()
        return kinds == {True}


def note_columns(
    files: Iterable[str], word_column: int | None = None, label_column: int | None = None
) -> None:
    """Say which columns are read of files with a word a line, where there are several.

    Raises:
        ConfigError: columns are named, and there are files, but none with a word a line.
    """
    from seqtool.parsing.tagger.columns import is_column_file, layout_of

    options = ColumnOptions(word_column, label_column)
    layouts: set[object] = set()
    num_others = 0
    for path in files:
        if not is_column_file(path, is_named=options.are_given):
            num_others += 1
            continue
        columns = layout_of(path, word_column, label_column)
        if columns not in layouts and columns.width > 2:
            note(f"{path}: {columns.describe()}")
        layouts.add(columns)
    if num_others and not layouts:
        options.refuse()


def describe_scores(counts: LabelCounts) -> str:
    """Return the scores of all entities and words as a note says them."""
    words = f"{counts.accuracy:.2f} % of {counted(counts.words, 'word')} right"
    if not counts.by_type:
        return words
    total = counts.total
    return (
        f"entities: precision {total.precision:.2f}, recall {total.recall:.2f}, F1 {total.f1:.2f}; "
        f"{words}"
    )


def show_types(counts: LabelCounts) -> None:
    """Show the scores of each type of entity on stderr."""
    rows = [
        [name, *(f"{score:.2f}" for score in scores[:3]), f"{scores.entities:,}"]
        for name, scores in counts.by_type.items()
    ]
    if rows:
        show_table("", ["type", "precision", "recall", "F1", "entities"], rows, to_stderr=True)


def note_labels(counts: LabelCounts, *, retag: bool) -> None:
    """Say what was kept or, with `retag`, how good the labels are where there were some."""
    if retag and counts.labelled:
        show_types(counts)
        note(describe_scores(counts))
    elif counts.labelled and counts.labelled == counts.sentences:
        note("every sentence has labels, which are kept; --retag predicts them anew")
