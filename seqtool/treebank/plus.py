r"""CoNLL-U Plus: files whose first line names their columns, in any order and number.

    # global.columns = ID FORM UPOS HEAD DEPREL PARSEME:MWE
    1   She   PRON  2  nsubj  *
    2   took  VERB  0  root   1:LVC.full

They are read as CoNLL-U: columns that are not there are `_`, and each that CoNLL-U does not have is
an item of column MISC, `PARSEME:MWE=1:LVC.full`, unless it is `_`. In such an item, space, bar and
backslash are written as `seqtool.treebank.spacing` tells. The format:
universaldependencies.org/ext-format.html.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seqtool.core.errors import DataError
from seqtool.core.reading import PLUS_MARK
from seqtool.treebank.sentence import COLUMNS, FORM, ID, MISC
from seqtool.treebank.spacing import escaped

MARK = PLUS_MARK.decode()
_NOTHING = ("_", "")


def columns_of(stretch: bytes, path: str) -> list[str] | None:
    """Return the columns that the first line of a file names; None of plain CoNLL-U.

    Args:
        stretch: the beginning of the file, with the whole line.
        path: of the file.

    Raises:
        DataError: there is no column for words, or one is named twice.
    """
    if not stretch.startswith(MARK.encode()):
        return None
    names = stretch.partition(b"\n")[0].decode().removeprefix(MARK).split()
    if missing := [COLUMNS[i] for i in (ID, FORM) if COLUMNS[i] not in names]:
        message = f"the columns are {' '.join(names)}, without {' and '.join(missing)}"
        raise DataError(message, hint="name all columns in this line", path=path, line=1)
    if twice := sorted({name for name in names if names.count(name) > 1}):
        message = f"column {twice[0]} is named twice"
        raise DataError(message, hint="name each column once", path=path, line=1)
    return None if names == list(COLUMNS) else names  # the line is a comment like others then


def arranged(text: str, names: Sequence[str]) -> str:
    """Return the lines of a sentence with the ten columns of CoNLL-U; see `columns_of`.

    A line without so many columns stays as it is, so that reading it as CoNLL-U refuses it.
    """
    return "\n".join(_arranged(line, names) for line in text.split("\n"))


def _arranged(line: str, names: Sequence[str]) -> str:
    if line.startswith(MARK):
        return f"# source_columns = {' '.join(names)}"  # these lines have ten
    values = line.split("\t")
    if line.startswith("#") or len(values) != len(names):
        return line
    given = dict(zip(names, values, strict=True))
    columns = [given.pop(name, "_") for name in COLUMNS]
    columns[MISC] = to_misc(columns[MISC], given)
    return "\t".join(columns)


def to_misc(misc: str, others: Mapping[str, str]) -> str:
    """Return column MISC with further columns as items."""
    items = [] if misc == "_" else [misc]
    items += [f"{name}={escaped(value)}" for name, value in others.items() if value not in _NOTHING]
    return "|".join(items) or "_"
