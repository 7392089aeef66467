"""Sentences for a command that writes some of their columns anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from seqtool.cli.options import note

if TYPE_CHECKING:
    from seqtool.corpora.conllu import Broken, Sentence

MAX_SHOWN = 5  # broken sentences named on stderr


def sample_trees() -> str:
    """The English test trees of the shipped sample, which is said on stderr."""
    from seqtool.corpora.sample import sample_treebank

    path = sample_treebank("en", "test")
    note(f"no FILE given: using the shipped sample, {path}")
    return str(path)


def read_columns(files: Sequence[str], *, skip_invalid: bool) -> Iterator[Sentence | Broken]:
    """Read sentences whatever their trees; broken ones too, if they are to be passed on.

    Raises:
        DataError: when iterated: a broken sentence, unless `skip_invalid`, or an unreadable file.
    """
    from seqtool.corpora.conllu import Broken, read_conllu, read_items
    from seqtool.errors import counted

    if not skip_invalid:
        yield from read_conllu(files, check="columns")
        return
    num_broken = 0
    for item in read_items(files, check="columns"):
        if isinstance(item, Broken):
            num_broken += 1
            if num_broken <= MAX_SHOWN:
                note(f"passed through: {item.error}")
        yield item
    if num_broken > MAX_SHOWN:
        note(f"{counted(num_broken, 'broken sentence')} passed through in all")
