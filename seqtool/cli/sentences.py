"""Sentences for a command that annotates them: options for raw text, the sample, broken ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from seqtool.cli.options import note

if TYPE_CHECKING:
    from seqtool.treebank.conllu import Broken, Sentence

Item = TypeVar("Item")

MAX_SHOWN = 5  # broken sentences named on stderr

AnnotatedFilesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE",
        help="CoNLL-U (HEAD and DEPREL may be anything) or plain text, see --raw; files (also "
        ".gz, .zst), directories, or - for stdin. The shipped sample's English test trees if "
        "not given.",
        show_default=False,
    ),
]
TargetOption = Annotated[
    str,
    typer.Option("--output", "-o", metavar="FILE", help="Where to write; - is stdout."),
]


@dataclass(frozen=True)
class LayoutOptions:
    """How plain text is split."""

    rules: Annotated[
        bool,
        typer.Option("--rules", help="Split text by simple rules, not by the model; any language."),
    ] = False
    presegmented: Annotated[
        bool, typer.Option("--presegmented", help="The text has a sentence a line.")
    ] = False
    pretokenized: Annotated[
        bool,
        typer.Option(
            "--pretokenized", help="The text has a sentence a line, and spaces between all words."
        ),
    ] = False

    def read(self, files: Sequence[str], model: Any, path: Path | None) -> Iterator[Sentence]:
        """Return the sentences of plain text, split as the options say, or by a model.

        Raises:
            ConfigError: options that do not go together.
            ModelError: the model cannot segment.
        """
        from seqtool.parsing.segmenter.documents import segment_texts

        return segment_texts(
            files,
            model,
            path,
            rules=self.rules,
            presegmented=self.presegmented,
            pretokenized=self.pretokenized,
        )


@dataclass(frozen=True)
class RawTextOptions(LayoutOptions):
    """Whether there is plain text in place of CoNLL-U, and how it is split."""

    raw: Annotated[
        bool,
        typer.Option(
            "--raw", help="FILE is plain text, as files named .txt are without this option."
        ),
    ] = False

    def are_for(self, files: Sequence[str]) -> bool:
        """Whether files hold plain text: an option says so, or all their names do."""
        from seqtool.parsing.segmenter.documents import are_texts

        says_so = self.raw or self.rules or self.presegmented or self.pretokenized
        return says_so or are_texts(files)


def sample_trees() -> str:
    """Return the English test trees of the shipped sample, which is said on stderr."""
    from seqtool.text.datasets import sample_treebank

    path = sample_treebank("en", "test")
    note(f"no FILE given: using the shipped sample, {path}")
    return str(path)


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
