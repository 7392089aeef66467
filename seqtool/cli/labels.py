"""Labels of words, such as named entities: how good they are, and `tag` with such a model."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqtool.cli.options import note, show_table
from seqtool.core.errors import ConfigError, DataError, counted

if TYPE_CHECKING:
    from seqtool.cli.corpora import Run
    from seqtool.parsing.labeller.entities import LabelCounts
    from seqtool.parsing.labeller.model import Labeller
    from seqtool.treebank.conllu import Broken
    from seqtool.treebank.sentence import Sentence

CHUNK_SENTENCES = 1 << 8  # of a file with a word a line, read together

WordColumnOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Of files with a word a line: the column of words. The first if not given, or the "
        "second where the first one counts 1, 2, 3 in every sentence.",
    ),
]
LabelColumnOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Of such files: the column of labels. The last if not given; where words are not in "
        "the first, the next one that has nothing but labels (B-X, I-X, O).",
    ),
]


def note_columns(
    files: Iterable[str], word_column: int | None = None, label_column: int | None = None
) -> None:
    """Say which columns are read of files with a word a line, where there are several.

    Raises:
        ConfigError: columns are named, and there are files, but none with a word a line.
    """
    from seqtool.parsing.labeller.columns import columns_of, is_column_file

    is_named = word_column is not None or label_column is not None
    layouts: set[object] = set()
    num_others = 0
    for path in files:
        if not is_column_file(path, is_named=is_named):
            num_others += 1
            continue
        columns = columns_of(path, word_column, label_column)
        if columns not in layouts and columns.width > 2:
            note(f"{path}: {columns.describe()}")
        layouts.add(columns)
    if num_others and not layouts:
        refuse_columns(word_column, label_column)


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


def refuse_columns(word_column: int | None, label_column: int | None) -> None:
    """Refuse columns that were named where no file with a word a line is read.

    Raises:
        ConfigError: one was.
    """
    for option, number in (("--word-column", word_column), ("--label-column", label_column)):
        if number is not None:
            raise ConfigError(
                f"{option} is for labels in files with a word a line",
                hint=f"leave {option} out, or name such a file",
            )


class Judge:
    """A labeller at work; with `retag`, its labels are compared with those that a file has."""

    def __init__(self, labeller: Labeller, *, retag: bool) -> None:
        from seqtool.parsing.labeller.entities import LabelCounts

        self._labeller, self._retag = labeller, retag
        self._counts = LabelCounts()
        self._has_gold = False
        self._num_kept = self._num_labelled = 0

    def tag_stream(self, items: Iterable[Any]) -> Iterator[Sentence | Broken]:
        """Write labels into column MISC of sentences; see `Labeller.tag_stream`."""
        from seqtool.parsing.labeller.columns import label_in
        from seqtool.parsing.labeller.entities import OUTSIDE
        from seqtool.treebank.conllu import Broken

        column = self._labeller.config.data.column
        waiting: deque[list[str] | None] = deque()

        def noted() -> Iterator[Sentence | Broken]:
            for item in items:
                if not isinstance(item, Broken):
                    waiting.append(label_in(item, column))
                yield item

        for item in self._labeller.tag_stream(noted(), retag=self._retag):
            if not isinstance(item, Broken):
                gold = waiting.popleft()
                found = label_in(item, column) or [OUTSIDE] * len(item)
                # a sentence without entities may have no label, and its labels are known
                self._count(gold or [OUTSIDE] * len(item), found, is_there=gold is not None)
            yield item

    def label_columns(
        self, path: str, word_column: int | None, label_column: int | None
    ) -> Iterator[bytes]:
        """Give the sentences of a file with a word a line, with labels."""
        from seqtool.parsing.labeller.columns import read_columns
        from seqtool.parsing.labeller.entities import OUTSIDE

        source = read_columns(path, word_column, label_column)
        while chunk := list(islice(source, CHUNK_SENTENCES)):
            gold = [item.labels for item in chunk]
            chosen = [place for place, labels in enumerate(gold) if self._retag or labels is None]
            found = self._labeller.label([chunk[place].forms for place in chosen])
            labels = dict(zip(chosen, found, strict=True))
            for place, item in enumerate(chunk):
                written = labels.get(place, gold[place] or [])
                known = gold[place]
                if known is None and not item.is_bare:  # as of a sentence of CoNLL-U
                    known = [OUTSIDE] * len(written)
                self._count(known, written, is_there=gold[place] is not None)
                yield item.written(written).encode()

    def _count(self, gold: Sequence[str] | None, found: Sequence[str], *, is_there: bool) -> None:
        self._has_gold |= is_there
        self._num_kept += is_there and not self._retag
        self._num_labelled += 1
        if self._retag and gold is not None:
            self._counts.add(gold, found)

    def report(self) -> None:
        """Say on stderr what was kept or, with `retag`, how good the labels are."""
        if self._retag and self._has_gold:
            show_types(self._counts)
            note(describe_scores(self._counts))
        elif self._num_kept and self._num_kept == self._num_labelled:
            note("every sentence has labels, which are kept; --retag predicts them anew")


def label(
    run: Run,
    labeller: Labeller,
    files: Sequence[str],
    output: str,
    *,
    columns: tuple[int | None, int | None],
    retag: bool,
    jobs: int,
    invalid: str | None,
) -> None:
    """Label a corpus; say what was kept or, with `retag`, how good the labels are.

    Args:
        run: of CoNLL-U or plain text, as `tag` goes through it.
        labeller: the model.
        files: as they were named, or none where it is said what they are; with a word a line,
            they are read here.
        output: a file, `-`, or a directory, which gets a file for each.
        columns: those of words and labels in files with a word a line, if they were named.
        retag: give labels to sentences that have some, and compare.
        jobs: processes.
        invalid: a file for broken sentences.

    Raises:
        ConfigError: files of both kinds, or what one process alone does.
    """
    from seqtool.parsing.labeller.columns import is_column_file

    is_named = columns != (None, None)

    def kind(path: str) -> bool | None:
        try:
            return is_column_file(path, is_named=is_named)
        except DataError:
            if not run.leaves_out:
                raise
            return None  # it is told of when it is read

    kinds = [found for path in files if (found := kind(path)) is not None]
    if is_named and not any(kinds):
        refuse_columns(*columns)
    if any(kinds) and not all(kinds):
        raise ConfigError(
            "files with a word a line cannot be labelled together with others",
            hint="label them one after another",
        )
    if jobs > 1 and (retag or any(kinds)):
        what = "labels are compared" if retag else "files with a word a line are labelled"
        raise ConfigError(f"{what} in one process", hint="drop --jobs")
    if jobs > 1:
        run.write(output, jobs=jobs, invalid=invalid)
        return
    judge = Judge(labeller, retag=retag)
    if any(kinds):
        data = labeller.config.data
        chosen = (columns[0] or data.word_column, columns[1] or data.label_column)
        with run.usable() as usable:
            note_columns(usable, *chosen)
            parts = (
                (path, piece) for path in usable for piece in judge.label_columns(path, *chosen)
            )
            run.write_parts(parts, output, is_conllu=False)
    else:
        with run.reading(output, invalid, fate="passed through") as items:
            run.write_items(judge.tag_stream(items), output)
    judge.report()
