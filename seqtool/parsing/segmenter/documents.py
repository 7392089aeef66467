"""Files of raw text to sentences: by a model, by rules, or as the text is laid out already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, Protocol

from seqtool.core.arrays import CodePoints
from seqtool.parsing.segmenter.assembly import Spans, assemble
from seqtool.parsing.segmenter.rules import split_at_spaces, split_by_rules
from seqtool.text.documents import read_documents
from seqtool.treebank.sentence import Sentence


class Splitter(Protocol):
    """A model that finds tokens and sentences."""

    def split(self, stretches: Sequence[CodePoints], *, whole: bool = False) -> list[Spans]:
        """See `model.Segmenter.split`."""


Given = Literal["nothing", "sentences", "words"]


def segment_files(
    inputs: Sequence[str | Path], segmenter: Splitter | None, *, given: Given = "nothing"
) -> Iterator[Sentence]:
    """Segment files, each a document with its name as id, in bounded memory.

    Args:
        inputs: files of plain text (.gz and .zst too), directories and `-` for stdin.
        segmenter: a model; None for rules.
        given: "sentences" takes a line for a sentence, "words" also what stands between spaces for
            a word; no multiword token is split then.

    Raises:
        DataError: when iterated: a file that is empty, no text or cannot be read.
    """

    def split(stretches: Sequence[CodePoints]) -> Sequence[Spans]:
        if given == "words":
            return split_at_spaces(stretches)
        whole = given == "sentences"
        if segmenter is None:
            return split_by_rules(stretches, whole=whole)
        return segmenter.split(stretches, whole=whole)

    number = 1
    for name, pieces in read_documents(inputs):
        for sentence in assemble(
            pieces,
            split,
            unit="paragraph" if given == "nothing" else "line",
            document=name or None,
            first_number=number,
        ):
            number += 1
            yield sentence
