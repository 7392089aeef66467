"""Sentences for a command that writes some of their columns anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from seqtool.cli.options import note

if TYPE_CHECKING:
    from seqtool.treebank.conllu import Broken, Check, Sentence

Item = TypeVar("Item")

MAX_SHOWN = 5  # broken sentences named on stderr


def sample_trees() -> str:
    """The English test trees of the shipped sample, which is said on stderr."""
    from seqtool.text.sample import sample_treebank

    path = sample_treebank("en", "test")
    note(f"no FILE given: using the shipped sample, {path}")
    return str(path)


def read_treebank(
    files: Sequence[str], check: Check, *, skip_invalid: bool
) -> Iterator[Sentence | Broken]:
    """Read sentences; broken ones too, if they are not to be refused.

    Raises:
        DataError: when iterated: a broken sentence, unless `skip_invalid`, or an unreadable file.
    """
    from seqtool.treebank.conllu import read_conllu, read_items

    return read_items(files, check=check) if skip_invalid else read_conllu(files, check=check)


def noted(items: Iterator[Item | Broken], fate: str) -> Iterator[Item | Broken]:
    """Pass items on, and say which sentences are broken and what becomes of them."""
    from seqtool.core.errors import counted
    from seqtool.treebank.conllu import Broken

    num_broken = 0
    for item in items:
        if isinstance(item, Broken):
            num_broken += 1
            if num_broken <= MAX_SHOWN:
                note(f"{fate}: {item.error}")
        yield item
    if num_broken > MAX_SHOWN:
        note(f"{counted(num_broken, 'broken sentence')} {fate} in all")
