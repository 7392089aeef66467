"""Words and their labels in files: column MISC of CoNLL-U, or one word and its label a line.

Anna    B-PER         a word, perhaps other columns, and a label last, apart by tabs or blanks
Berg    I-PER
sees    O
an empty line ends a sentence

A first column that counts 1, 2, 3 in every sentence holds numbers: the word is in the second one,
and its label in the first one after it in which nothing but labels stands, else in the last.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from seqtool.core.errors import ConfigError, DataError, counted
from seqtool.core.reading import STDIN, unpacked_name
from seqtool.parsing.tagger.entities import OUTSIDE
from seqtool.treebank.conllu import read_conllu, read_stretches
from seqtool.treebank.sentence import FORM, NUM_COLUMNS, UPOS, Sentence

_SUFFIXES = (".conll", ".bio", ".iob", ".iob2")
# at the begin of a sentence, where it has not as many cells as the words
_COMMENT = re.compile(r"#.*=|#\s+\S")
_KEY_VALUE = re.compile(r"#\s?\S+ = ")  # a comment, however many cells it has
_LABEL = re.compile(r"O|[BIES]-\S+")
_NONE = ("", "_")  # no label
_MAX_NAMES = 8  # of keys, in a hint


class WordColumns(NamedTuple):
    """How the lines of a file with a word a line are laid out; columns count from 0.

    Attributes:
        width: cells of each line.
        separator: what stands between cells.
        word: the column of words.
        label: the column of labels; None where there is none.
    """

    width: int
    separator: str
    word: int
    label: int | None

    def describe(self) -> str:
        """Return which columns are read, as people count them."""
        label = "no labels" if self.label is None else f"labels from column {self.label + 1}"
        return f"words from column {self.word + 1}, {label} of {self.width}"


@dataclass
class ColumnSentence:
    """A sentence of a file that has a word and perhaps its label in each line.

    Attributes:
        comments: lines before it that begin with #, and empty lines between them.
        rows: the cells of each word's line.
        columns: where word and label stand.
        line: where it begins in its file.
    """

    comments: list[str]
    rows: list[list[str]]
    columns: WordColumns
    line: int

    @property
    def forms(self) -> list[str]:
        """The words."""
        return [row[self.columns.word] for row in self.rows]

    @property
    def labels(self) -> list[str] | None:
        """The label of each line; None where there is no such column, or none has a label."""
        label = self.columns.label
        if label is None or all(row[label] in _NONE for row in self.rows):
            return None
        return [OUTSIDE if row[label] in _NONE else row[label] for row in self.rows]

    def written(self, labels: Sequence[str]) -> str:
        """Return its lines with other labels, or with labels where there were none."""
        column = self.columns.width if self.columns.label is None else self.columns.label
        lines = [
            self.columns.separator.join([*row[:column], label, *row[column + 1 :]])
            for row, label in zip(self.rows, labels, strict=True)
        ]
        return "\n".join((*self.comments, *lines, "", ""))


def is_column_file(path: str, *, is_named: bool = False) -> bool:
    """Whether a file has a word a line, but is no CoNLL-U; what can be read once is always that.

    With `is_named` somebody has named its columns, so all else has a word a line.
    """
    first = "" if path == STDIN else _first_line(path)
    if not first or first.count("\t") == NUM_COLUMNS - 1:
        return False
    if is_named or "\t" in first or unpacked_name(path).endswith(_SUFFIXES):
        return True
    cells = first.split()
    if len(cells) < 2 or len(cells) == NUM_COLUMNS:
        return False
    return any(map(_LABEL.fullmatch, cells[2:] if cells[0] == "1" else cells[-1:]))


def _first_line(path: str) -> str:
    """Return the first line of a file that is a word's; "" of CoNLL-U Plus and where none is."""
    if not Path(path).is_file():
        return ""
    comment = ""
    for _, _, stretch in read_stretches([path]):
        for line in stretch.decode().split("\n"):
            if line.startswith("# global.columns"):
                return ""
            if line.strip() and not _COMMENT.match(line):
                return line
            if not _KEY_VALUE.match(line):
                comment = comment or line.strip()
    return comment


def layout_of(path: str, word: int | None = None, label: int | None = None) -> WordColumns:
    """Return how a file with a word a line is laid out, which is read once for it.

    Args:
        path: the file.
        word: the column of words, from 1 on; see the top of this module if not given.
        label: that of labels.

    Raises:
        DataError: a line with more or fewer cells than others, no sentence, or no such column.
        ConfigError: words and labels in one column.
    """
    first = _first_line(path)
    separator = "\t" if "\t" in first else " "
    width = len(_cells(first, separator))
    hint = "name others: --word-column and --label-column"
    for number in (word, label):
        if number is not None and number > width > 1:
            what = f"has no column {number}, as its lines have {counted(width, 'cell')}"
            raise DataError(what, hint=hint, path=path)
    unknown = WordColumns(width, separator, 0, None)
    if width == 1:
        return unknown
    is_numbered = True
    # of each column, whether nothing but labels stands there, and whether any does
    are_labels, has_any = [True] * width, [False] * width
    for sentence in _sentences(path, unknown):
        for number, row in enumerate(sentence.rows, start=1):
            is_numbered = is_numbered and row[0] == str(number)
            for place, cell in enumerate(row):
                is_label = bool(_LABEL.fullmatch(cell))
                has_any[place] |= is_label
                are_labels[place] &= is_label or cell in _NONE
    labels = [place for place in range(width) if are_labels[place] and has_any[place]]
    if word is None:
        word = 2 if is_numbered and not (width == 2 and 1 in labels) else 1
    if label is None:
        behind = [place + 1 for place in labels if place >= word]
        label = behind[0] if word > 1 and behind else width if width > word else None
    if label == word:
        raise ConfigError(f"column {word} is to have both words and labels", hint=hint)
    return WordColumns(width, separator, word - 1, None if label is None else label - 1)


def read_columns(
    path: str, word: int | None = None, label: int | None = None
) -> Iterator[ColumnSentence]:
    """Read a file that has a word a line; for arguments and errors see `layout_of`."""
    yield from _sentences(path, layout_of(path, word, label))


def _cells(line: str, separator: str) -> list[str]:
    return line.split("\t") if separator == "\t" else line.split()


def _sentences(path: str, columns: WordColumns) -> Iterator[ColumnSentence]:
    # comments may be in one stretch, and their words in the next
    comments: list[str] = []
    rows: list[list[str]] = []
    begin = 1
    for _, start, stretch in read_stretches([path]):
        lines = stretch.decode().removesuffix("\n").split("\n")
        for number, line in enumerate(lines, start=start):
            if not line.strip():
                if rows:
                    yield ColumnSentence(comments, rows, columns, begin)
                    comments, rows = [], []
                if comments:  # they are of the next sentence
                    comments.append("")
                else:
                    begin = number + 1
                continue
            cells = _cells(line, columns.separator)
            is_other = len(cells) != columns.width
            if not rows and ((is_other and _COMMENT.match(line)) or _KEY_VALUE.match(line)):
                comments.append(line)
                continue
            if is_other or not cells[columns.word]:
                what = f"{counted(len(cells), 'column')}, where the lines before have "
                hint = "give each line a word and a label, apart by a tab"
                raise DataError(f"{what}{columns.width}", hint=hint, path=path, line=number)
            rows.append(cells)
    if rows:
        yield ColumnSentence(comments, rows, columns, begin)
    elif comments:
        hint = "remove them, or write them before a sentence"
        raise DataError("comments at the end, without words", hint=hint, path=path, line=begin)


def label_in(sentence: Sentence, key: str, keys: dict[str, None] | None = None) -> list[str] | None:
    """Return the labels that column MISC has under a key; None where no word has any.

    All keys that are there are added to `keys`.
    """
    items = [token.misc for token in sentence]
    if keys is not None:
        keys.update((name, None) for item in items for name in item)
    labels = [item.get(key, "") for item in items]
    if not any(labels):
        return None
    return [OUTSIDE if label in _NONE else label for label in labels]


def with_labels(sentence: Sentence, key: str, labels: Sequence[str]) -> None:
    """Write labels into column MISC; O is not written."""
    for token, label in zip(sentence, labels, strict=True):
        if label != OUTSIDE:
            token.misc[key] = label
        elif key in token.misc:
            del token.misc[key]


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


def read_labelled(
    files: Sequence[str],
    key: str,
    word: int | None = None,
    label: int | None = None,
    *,
    skip_invalid: bool,
) -> list[Sentence]:
    """Read words and labels of both kinds of files, as `bare_sentence` has them.

    `key` is that of MISC; for `word` and `label` see `layout_of`.

    Raises:
        DataError: a broken sentence, no label at all, or one label only.
    """
    sentences: list[Sentence] = []
    keys: dict[str, None] = {}  # those that MISC has
    is_missing = False  # whether a file is CoNLL-U, so that another key may have labels
    for path in files:
        is_of_columns = is_column_file(path, is_named=(word, label) != (None, None))
        columns = layout_of(path, word, label) if is_of_columns else None
        first = _first_line(path)
        # a line with # is a comment of CoNLL-U
        is_bare = columns.label is None if columns else "\t" not in first and first[:1] != "#"
        is_conllu = unpacked_name(path).endswith(".conllu")
        if first and is_bare and not is_conllu and not skip_invalid:
            hint = "give each line a word and its label, apart by a tab, or give CoNLL-U"
            raise DataError("has no column of labels", hint=hint, path=path)
        if columns:
            read = ((item.forms, item.labels, item.line) for item in _sentences(path, columns))
        else:
            is_missing = True
            items = read_conllu([path], check="columns", skip_invalid=skip_invalid)
            read = ((item.column(FORM), label_in(item, key, keys), item.line) for item in items)
        for forms, labels, line in read:
            sentences.append(bare_sentence(forms, labels or [OUTSIDE] * len(forms), path, line))
    first_of = {name: item for item in reversed(sentences) for name in item.column(UPOS)}
    for name, item in first_of.items():
        if "|" in name or not name.isprintable():
            what = f"the label {name!r:.60} cannot stand in column MISC"
            hint = "write it without bars and control characters"
            raise DataError(what, hint=hint, path=item.path, line=item.line)
    if len(first_of) > 1:
        return sentences
    only = next(iter(first_of), OUTSIDE)
    what = f"all words have the label {only!r}, so there is nothing to tell apart"
    hint = "give words with labels, in column MISC or as the last column"
    if is_missing and only == OUTSIDE:
        what = f"no word has {key} in column MISC"
        if names := [name for name in keys if name != key]:
            hint = f"name another key with --column: {', '.join(names[:_MAX_NAMES])}"
    raise DataError(what, hint=hint, path=files[0])
