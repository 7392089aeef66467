"""Raw text in place of CoNLL-U: the options of the commands that take it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from seqtool.treebank.sentence import Sentence

RulesOption = Annotated[
    bool,
    typer.Option("--rules", help="Split text by simple rules, not by the model; any language."),
]
PresegmentedOption = Annotated[
    bool, typer.Option("--presegmented", help="The text has a sentence a line.")
]
PretokenizedOption = Annotated[
    bool,
    typer.Option(
        "--pretokenized", help="The text has a sentence a line, and spaces between all words."
    ),
]
RawOption = Annotated[
    bool,
    typer.Option("--raw", help="FILE is plain text, as files named .txt are without this option."),
]


def is_raw(files: Sequence[str], *, raw: bool, rules: bool, given: bool) -> bool:
    """Whether files hold plain text: an option says so, or all their names do.

    Args:
        files: as typed.
        raw: --raw is given.
        rules: --rules is given.
        given: --presegmented or --pretokenized is given.
    """
    from seqtool.core.reading import unpacked_name

    return raw or rules or given or all(unpacked_name(name).endswith(".txt") for name in files)


def read_raw(
    files: Sequence[str],
    model: Any,
    path: Path | None,
    *,
    rules: bool,
    presegmented: bool,
    pretokenized: bool,
) -> Iterator[Sentence]:
    """Give the sentences of plain text.

    Args:
        files: as typed.
        model: one that can segment, or anything with `rules` or `pretokenized`.
        path: where it is.
        rules: split by rules.
        presegmented: lines are sentences.
        pretokenized: and words are between spaces.

    Raises:
        ConfigError: options that do not go together.
        ModelError: the model cannot segment.
    """
    from seqtool.core.errors import ConfigError, ModelError
    from seqtool.parsing.segmenter.documents import segment_files

    if presegmented and pretokenized:
        raise ConfigError("--pretokenized includes --presegmented", hint="give only one of the two")
    if rules and pretokenized:
        raise ConfigError("--pretokenized leaves nothing to --rules", hint="give only one of both")
    needs_model = not rules and not pretokenized
    if needs_model and not hasattr(model, "split"):
        raise ModelError(
            "has no segmenter, so it cannot read plain text",
            hint="train one with `seqtool train-parser --raw`, or split the text by --rules",
            path=path,
        )
    return segment_files(
        files,
        model if needs_model else None,
        given="words" if pretokenized else "sentences" if presegmented else "nothing",
    )
