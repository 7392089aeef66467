"""Labelled words made ready for the training of a labeller: the data of a tagger."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from seqtool.parsing.labeller.columns import read_labelled
from seqtool.parsing.labeller.config import LabellerConfig
from seqtool.parsing.labeller.entities import LabelCounts, are_entities, keeps_to_bio
from seqtool.parsing.labeller.model import Labeller
from seqtool.parsing.tagger.data import ANALYSED, TrainingData, prepare_data
from seqtool.parsing.tagger.lemmas import Lemmas
from seqtool.treebank.sentence import UPOS

_LABEL = ANALYSED.index(UPOS)  # of a distinct word: its label


def read_data(
    train_files: Sequence[str],
    dev_file: str | None,
    config: LabellerConfig,
    *,
    skip_invalid: bool = False,
    embeddings: str | None = None,
) -> TrainingData:
    """Read labelled words and make ready what a labeller is trained on: their labels are UPOS.

    Raises:
        DataError: a broken sentence, no label at all, or one label only.
    """
    data = config.data
    parts = [
        None
        if files is None
        else read_labelled(
            files, data.column, data.word_column, data.label_column, skip_invalid=skip_invalid
        )
        for files in (train_files, None if dev_file is None else [dev_file])
    ]
    model = config.as_tagger().model
    read = prepare_data(parts[0] or (), parts[1], model, embeddings=embeddings)
    lemmas = Lemmas(read.lemmas.scripts, {})  # every lemma is `_`: none is to be kept
    summary = {name: read.summary[name] for name in read.summary if name != "edit_scripts"}
    summary["labels"] = summary.pop("bundles")
    return dataclasses.replace(read, lemmas=lemmas, summary=summary)


def gold_labels(
    data: TrainingData, words: Sequence[int], lengths: Sequence[int]
) -> Iterator[list[str]]:
    """Give the gold labels of each sentence of a part."""
    for begin, end in pairwise(np.cumsum([0, *lengths]).tolist()):
        yield [data.distinct[word][_LABEL] for word in words[begin:end]]


def scheme_of(data: TrainingData) -> str:
    """Return what labels of training are: "bio" throughout, "entities" in another way, or "any"."""
    if keeps_to_bio(gold_labels(data, data.words.tolist(), data.lengths.tolist())):
        return "bio"
    return "entities" if are_entities(data.bundles.values[0]) else "any"


def count_dev(labeller: Labeller, data: TrainingData) -> LabelCounts:
    """Return how a labeller does on the validation part."""
    part = data.dev
    found = labeller.label(list(data.forms(part.words, part.lengths)))
    counts = LabelCounts()
    for gold, labels in zip(gold_labels(data, part.words, part.lengths), found, strict=True):
        counts.add(gold, labels)
    return counts
