"""What a segmenter is trained and validated on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqtool.core.errors import DataError
from seqtool.parsing.segmenter.characters import Alphabet
from seqtool.parsing.segmenter.config import SegmenterConfig
from seqtool.parsing.segmenter.multiword import MultiwordSplitter
from seqtool.parsing.segmenter.surface import (
    GoldText,
    begins_paragraph,
    fold,
    gold_text,
    raw_text,
    surface_tokens,
)
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.sentence import Sentence

HELD_OUT = 10  # without a validation part, a tenth of the treebank, in blocks of so many sentences


@dataclass(frozen=True)
class TrainingData:
    """A treebank as a segmenter learns from it.

    Attributes:
        text: tokens and sentences of the training part.
        alphabet, lexicon, splitter, has_spaces: see `model.Segmenter`.
        dev: the validation part.
        dev_text: its raw text.
        summary: counts, for the model card.
    """

    text: GoldText
    alphabet: Alphabet
    lexicon: dict[str, int]
    splitter: MultiwordSplitter
    has_spaces: bool
    dev: list[Sentence]
    dev_text: str
    summary: dict[str, Any]


def prepare_data(
    train_files: Sequence[str | Path],
    dev_file: str | Path | None,
    config: SegmenterConfig,
    *,
    skip_invalid: bool = False,
) -> TrainingData:
    """Read treebanks; beside words and tokens, parts of speech and relations are looked at.

    Raises:
        DataError: a file cannot be read or a sentence is broken; the treebank is too small.
    """
    train = list(read_conllu(train_files, check="columns", skip_invalid=skip_invalid))
    if dev_file is None:
        train, dev = _held_out(train)
    else:
        dev = list(read_conllu(dev_file, check="columns", skip_invalid=skip_invalid))
    tokens = [token for sentence in train for token in surface_tokens(sentence)]
    counts = Counter(fold(token.form) for token in tokens)
    known = [form for form, count in counts.most_common() if count >= config.model.min_count]
    lexicon = {form: row for row, form in enumerate(known, start=1)}
    text = gold_text(train, lexicon)
    multiword = [(token.form, token.words) for token in tokens if token.words]
    return TrainingData(
        text=text,
        alphabet=Alphabet.learn(text.codes, min_count=config.model.min_count),
        lexicon=lexicon,
        splitter=MultiwordSplitter.learn(multiword),
        has_spaces=any(" " in token.form for token in tokens),
        dev=dev,
        dev_text=raw_text(dev),
        summary={
            "sentences": len(train),
            "paragraphs": sum(map(begins_paragraph, train[1:])) + 1,
            "words": sum(map(len, train)),
            "tokens": len(tokens),
            "multiword_tokens": len(multiword),
            "characters": len(text.codes),
            "tags": text.num_tags,
            "dev_sentences": len(dev),
            "dev_held_out": dev_file is None,
        },
    )


def _held_out(sentences: list[Sentence]) -> tuple[list[Sentence], list[Sentence]]:
    """Part a treebank: every tenth block of ten sentences is kept for validation."""
    if len(sentences) < 2 * HELD_OUT:
        raise DataError(
            f"{len(sentences)} sentences are too few to keep a tenth of them for validation",
            hint="give a validation part with --dev",
        )
    train: list[Sentence] = []
    dev: list[Sentence] = []
    blocks = [sentences[at : at + HELD_OUT] for at in range(0, len(sentences), HELD_OUT)]
    for number, block in enumerate(blocks):
        (dev if number % HELD_OUT == 1 else train).extend(block)
    return train, dev
