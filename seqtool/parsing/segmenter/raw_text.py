"""Raw text in place of CoNLL-U, for what annotates sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from seqtool.core.errors import ConfigError, ModelError
from seqtool.core.reading import unpacked_name
from seqtool.parsing.segmenter.documents import segment_files
from seqtool.treebank.sentence import Sentence


def are_texts(files: Sequence[str]) -> bool:
    """Whether files are plain text by their names, all of them."""
    return all(unpacked_name(name).endswith(".txt") for name in files)


def segment_texts(
    files: Sequence[str],
    model: Any,
    path: Path | None,
    *,
    rules: bool,
    presegmented: bool,
    pretokenized: bool,
) -> Iterator[Sentence]:
    """Return the sentences of plain text.

    Args:
        files: of plain text.
        model: one that can segment, or anything with `rules` or `pretokenized`.
        path: where it is.
        rules: split by rules, not by the model.
        presegmented: lines are sentences.
        pretokenized: and words are between spaces.

    Raises:
        ConfigError: options that do not go together.
        ModelError: the model cannot segment.
    """
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
