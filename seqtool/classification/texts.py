"""Texts, with or without labels, from a table: CSV, TSV, JSON Lines, or one text per line.

text,label                          {"text": "A fine film.", "label": "good"}
"A fine film.",good                 {"text": "Dull, dull, dull.", "label": "bad"}
"Dull, dull, dull.",bad
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqtool.classification.config import DataConfig
from seqtool.core.errors import DataError, did_you_mean
from seqtool.core.reading import JSON_LINES, STDIN, read_blocks, unpacked_name
from seqtool.lm.stimuli import is_stimuli
from seqtool.lm.tables import parse_table

_MAX_NAMES = 8  # of columns, in a hint


@dataclass(frozen=True)
class Texts:
    """The texts of a file.

    Attributes:
        path: of the file, as messages name it.
        texts: N of them.
        labels: of each; None where the file has no labels.
        lines: where each begins in the file, from 1.
        names: of all columns.
        rows: what each row has in these, as it is to be written again.
    """

    path: str
    texts: list[str]
    labels: list[str] | None
    lines: list[int]
    names: list[str]
    rows: list[list[Any]]


def read_texts(
    path: str | Path, config: DataConfig, *, labelled: bool | None = None, is_table: bool = False
) -> Texts:
    """Read the texts of a file, packed or not.

    Args:
        path: a file named .csv, .tsv, .jsonl or .ndjson; any other, and "-" for stdin, has a text
            per line.
        config: which columns hold texts and labels.
        labelled: whether there must be labels; None reads them where they are.
        is_table: a file of another name is a table too.

    Raises:
        DataError: it is no such file, lacks a column, or has a text or label that cannot be used.
    """
    if unpacked_name(path).endswith(JSON_LINES):
        texts = _json_texts(path, config, labelled=labelled)
    elif is_stimuli(path) or is_table:
        texts = _table_texts(path, config, labelled=labelled)
    elif labelled:
        raise DataError(
            "is no table, so there are no labels",
            hint="give a .csv, .tsv or .jsonl with a column of texts and one of labels",
            path=_shown(path),
        )
    else:
        lines = _content(path).removesuffix("\n").split("\n")
        numbers = list(range(1, 1 + len(lines)))
        name = config.text_column
        texts = Texts(_shown(path), lines, None, numbers, [name], [[line] for line in lines])
    _check(texts)
    return texts


def _shown(path: str | Path) -> str:
    return "<stdin>" if str(path) == STDIN else str(path)


def _content(path: str | Path, *, as_written: bool = False) -> str:
    return b"".join(read_blocks([path], as_written=as_written)).decode()


def _place(name: str, names: Sequence[str], option: str, path: str, line: int) -> int:
    """Return which column has a name."""
    if name not in names:
        near = f"name another with {option}: {', '.join(list(names)[:_MAX_NAMES])}"
        hint = did_you_mean(name, names, otherwise=near) + ("" if names else " nothing is there")
        raise DataError(f"has no column {name!r}", hint=hint, path=path, line=line)
    return names.index(name)


def _table_texts(path: str | Path, config: DataConfig, *, labelled: bool | None) -> Texts:
    table = parse_table(_content(path), path)
    if not table.rows:
        raise DataError("has no rows", hint="give a row for each text", path=table.path)
    place = _place(config.text_column, table.names, "--text-column", table.path, 1)
    labels = None
    if labelled or (labelled is None and config.label_column in table.names):
        of_labels = _place(config.label_column, table.names, "--label-column", table.path, 1)
        labels = [row[of_labels] for row in table.rows]
    texts = [row[place] for row in table.rows]
    rows: list[list[Any]] = [[*row] for row in table.rows]
    return Texts(table.path, texts, labels, table.lines, table.names, rows)


def _json_texts(path: str | Path, config: DataConfig, *, labelled: bool | None) -> Texts:
    shown, lines = _shown(path), []
    records: list[dict[str, Any]] = []
    for number, line in enumerate(_content(path, as_written=True).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            json.dumps(record, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            what, hint = "holds half a surrogate pair", "write the character whole"
            raise DataError(what, hint=hint, path=shown, line=number) from error
        except (ValueError, RecursionError) as error:
            what, hint = f"not JSON: {error}", "each line must be one JSON object"
            raise DataError(what, hint=hint, path=shown, line=number) from error
        if not isinstance(record, dict):
            what, hint = "is no JSON object", "write it as {...}"
            raise DataError(what, hint=hint, path=shown, line=number)
        lines.append(number)
        records.append(record)
    if not records:
        raise DataError("has no rows", hint="give a line for each text", path=shown)
    names = list(dict.fromkeys(name for record in records for name in record))
    if labelled is None:
        labelled = config.label_column in names
    texts: list[str] = []
    labels: list[str] | None = [] if labelled else None
    for number, record in zip(lines, records, strict=True):
        _place(config.text_column, list(record), "--text-column", shown, number)
        text = record[config.text_column]
        if not isinstance(text, str):
            what = f"the field {config.text_column!r} is not a text"
            raise DataError(what, hint="write it in quotes", path=shown, line=number)
        texts.append(text)
        if labels is not None:
            _place(config.label_column, list(record), "--label-column", shown, number)
            label = record[config.label_column]
            if not isinstance(label, str | int):  # true and false are ints, too
                what = f"the field {config.label_column!r} is neither a text nor a whole number"
                raise DataError(what, hint="write it in quotes", path=shown, line=number)
            labels.append(label if isinstance(label, str) else json.dumps(label))
    rows = [[record.get(name) for name in names] for record in records]
    return Texts(shown, texts, labels, lines, names, rows)


def _check(texts: Texts) -> None:
    """Refuse texts and labels that cannot be used."""
    for number, text in zip(texts.lines, texts.texts, strict=True):
        if "\0" in text:
            what, hint = "the text holds a NUL character", "remove it: texts have none"
            raise DataError(what, hint=hint, path=texts.path, line=number)
    for number, label in zip(texts.lines, texts.labels or (), strict=False):
        if not label.strip():
            what, hint = "the label is empty", "give one, or leave the row out"
            raise DataError(what, hint=hint, path=texts.path, line=number)
        if not label.isprintable():
            what = f"the label {label!r:.60} holds a character that cannot be printed"
            hint = "quote cells that hold line ends, and name the column with --label-column"
            raise DataError(what, hint=hint, path=texts.path, line=number)
