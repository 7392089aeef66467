"""Words and their labels in files: column MISC of CoNLL-U, or one word and its label a line.

Anna    B-PER         a word, perhaps other columns, and a label last, apart by tabs or blanks
Berg    I-PER
sees    O
an empty line ends a sentence
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqtool.core.errors import DataError, counted
from seqtool.core.reading import STDIN, unpacked_name
from seqtool.parsing.labeller.entities import OUTSIDE
from seqtool.treebank.conllu import read_conllu, read_stretches
from seqtool.treebank.sentence import FORM, MISC, NUM_COLUMNS, UPOS, Sentence

_SUFFIXES = (".conll", ".bio", ".iob", ".iob2")
_COMMENT = re.compile(r"#.*=")
_LABEL = re.compile(r"O|[BIES]-\S+")
_NONE = ("", "_")  # no label
_MAX_NAMES = 8  # of keys, in a hint


@dataclass
class ColumnSentence:
    """A sentence of a file that has a word and perhaps its label in each line.

    Attributes:
        comments: lines before it that begin with # and hold =, and empty lines between them.
        rows: the cells of each word's line.
        separator: what stands between cells.
        path, line: where it begins.
    """

    comments: list[str]
    rows: list[list[str]]
    separator: str
    path: str
    line: int

    @property
    def forms(self) -> list[str]:
        """The words."""
        return [row[0] for row in self.rows]

    @property
    def is_bare(self) -> bool:
        """Whether words stand alone, so that nothing is known of their labels."""
        return len(self.rows[0]) == 1

    @property
    def labels(self) -> list[str] | None:
        """The last cell of each line; None where words stand alone, or none has a label."""
        if self.is_bare or all(row[-1] in _NONE for row in self.rows):
            return None
        return [OUTSIDE if row[-1] in _NONE else row[-1] for row in self.rows]

    def written(self, labels: Sequence[str]) -> str:
        """Return its lines with other labels, or with labels where there were none."""
        kept = [row[:-1] if len(row) > 1 else row for row in self.rows]
        lines = [
            self.separator.join([*row, label]) for row, label in zip(kept, labels, strict=True)
        ]
        return "\n".join((*self.comments, *lines, "", ""))


def is_column_file(path: str) -> bool:
    """Whether a file has a word a line, but is no CoNLL-U; what can be read once is always that."""
    first = "" if path == STDIN else _first_line(path)
    if not first or first.count("\t") == NUM_COLUMNS - 1:
        return False
    if "\t" in first or unpacked_name(path).endswith(_SUFFIXES):
        return True
    cells = first.split()
    return len(cells) > 1 and len(cells) != NUM_COLUMNS and bool(_LABEL.fullmatch(cells[-1]))


def _first_line(path: str) -> str:
    """Return the first line of a file that is no comment; "" of CoNLL-U Plus and where none is."""
    if not Path(path).is_file():
        return ""
    _, _, stretch = next(read_stretches([path]))
    lines = stretch.decode().split("\n")
    if lines[0].startswith("# global.columns"):
        return ""
    return next((line for line in lines if line.strip() and not _COMMENT.match(line)), "")


def read_columns(path: str) -> Iterator[ColumnSentence]:
    """Read a file that has a word a line.

    Raises:
        DataError: when iterated: a line with more or fewer cells than others, or no sentence.
    """
    width, separator = 0, ""
    # comments may be in one stretch, and their words in the next
    comments: list[str] = []
    rows: list[list[str]] = []
    shown, begin = path, 1
    for shown, start, stretch in read_stretches([path]):
        lines = stretch.decode().removesuffix("\n").split("\n")
        for number, line in enumerate(lines, start=start):
            if not line.strip():
                if rows:
                    yield ColumnSentence(comments, rows, separator, shown, begin)
                    comments, rows = [], []
                if comments:  # they are of the next sentence
                    comments.append("")
                else:
                    begin = number + 1
                continue
            if not rows and _COMMENT.match(line):
                comments.append(line)
                continue
            if not width:
                separator = "\t" if "\t" in line else " "
            cells = line.split("\t") if separator == "\t" else line.split()
            width = width or len(cells)
            if len(cells) != width or not cells[0]:
                raise DataError(
                    f"{counted(len(cells), 'column')}, where the lines before have {width}",
                    hint="give each line a word and a label, apart by a tab",
                    path=shown,
                    line=number,
                )
            rows.append(cells)
    if rows:
        yield ColumnSentence(comments, rows, separator, shown, begin)
    elif comments:
        raise DataError(
            "comments at the end, without words",
            hint="remove them, or write them before a sentence",
            path=shown,
            line=begin,
        )


def label_in(sentence: Sentence, column: str) -> list[str] | None:
    """Return the labels that column MISC has under a key; None where no word has any."""
    labels = [token.misc.get(column, "") for token in sentence]
    if not any(labels):
        return None
    return [OUTSIDE if label in _NONE else label for label in labels]


def with_labels(sentence: Sentence, column: str, labels: Sequence[str]) -> None:
    """Write labels into column MISC; O is not written."""
    for token, label in zip(sentence, labels, strict=True):
        if label != OUTSIDE:
            token.misc[column] = label
        elif column in token.misc:
            del token.misc[column]


def bare_sentence(
    forms: Sequence[str], labels: Sequence[str] | None = None, path: str = "", line: int = 0
) -> Sentence:
    """Return words as a sentence whose UPOS are labels, of which a tagger learns."""
    rows = []
    for number, form in enumerate(forms, start=1):
        row = [str(number), form, *["_"] * (NUM_COLUMNS - 2)]
        row[UPOS] = "_" if labels is None else labels[number - 1]
        rows.append(row)
    return Sentence([], rows, [], path, line)


def read_labelled(files: Sequence[str], column: str, *, skip_invalid: bool) -> list[Sentence]:
    """Read words and labels of both kinds of files, as `bare_sentence` has them.

    Raises:
        DataError: a broken sentence, no label at all, or one label only.
    """
    sentences: list[Sentence] = []
    met: set[str] = set()
    keys: dict[str, None] = {}
    for path in files:
        for forms, labels, line in _labelled_words(path, column, keys, skip_invalid=skip_invalid):
            found = labels or [OUTSIDE] * len(forms)
            for label in found:
                if label not in met and ("|" in label or not label.isprintable()):
                    raise DataError(
                        f"the label {label!r:.60} cannot stand in column MISC",
                        hint="write it without bars and control characters",
                        path=path,
                        line=line,
                    )
            met.update(found)
            sentences.append(bare_sentence(forms, found, path, line))
    if len(met) < 2:
        names = [key for key in keys if key != column]
        is_missing = met == {OUTSIDE} and not all(map(is_column_file, files))
        raise DataError(
            f"no word has {column} in column MISC"
            if is_missing
            else f"all words have the label {met.pop()!r}, so there is nothing to tell apart",
            hint=f"name another key with --column: {', '.join(names[:_MAX_NAMES])}"
            if is_missing and names
            else "give words with labels, in column MISC or as the last column",
            path=files[0],
        )
    return sentences


def _labelled_words(
    path: str, column: str, keys: dict[str, None], *, skip_invalid: bool
) -> Iterator[tuple[list[str], list[str] | None, int]]:
    """Give forms, labels and the first line of sentences; note which keys MISC has."""
    first, is_of_columns = _first_line(path), is_column_file(path)
    is_comment = first.startswith("#")  # of CoNLL-U; one of columns holds a =
    is_bare = len(first.split()) == 1 if is_of_columns else "\t" not in first and not is_comment
    is_named_so = unpacked_name(path).endswith(".conllu")
    if first and is_bare and not is_named_so and not skip_invalid:
        raise DataError(
            "has no column of labels",
            hint="give each line a word and its label, apart by a tab, or give CoNLL-U",
            path=path,
        )
    if is_of_columns:
        for words in read_columns(path):
            yield words.forms, words.labels, words.line
        return
    for sentence in read_conllu([path], check="columns", skip_invalid=skip_invalid):
        for misc in sentence.column(MISC):
            if misc != "_":
                keys.update(dict.fromkeys(item.partition("=")[0] for item in misc.split("|")))
        yield sentence.column(FORM), label_in(sentence, column), sentence.line
