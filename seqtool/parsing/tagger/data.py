"""Treebanks made ready for the training of a tagger."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from seqtool.core.arrays import Ints
from seqtool.core.errors import DataError
from seqtool.parsing.encoding.features import SymbolTable
from seqtool.parsing.encoding.vectors import WordVectors, read_vectors
from seqtool.parsing.tagger.config import ModelConfig
from seqtool.parsing.tagger.lemmas import Lemmas
from seqtool.parsing.tagger.morphology import (
    FIELDS,
    Bundles,
    lexical_table,
)
from seqtool.text.characters import Characters, padded
from seqtool.treebank.conllu import held_out, read_conllu
from seqtool.treebank.sentence import FEATS, FORM, LEMMA, NUM_COLUMNS, UPOS, XPOS, Sentence

NO_SCRIPT = -1
ANALYSED = (FORM, LEMMA, UPOS, XPOS, FEATS)

Word = tuple[str, ...]  # the columns `ANALYSED`


@dataclass
class Part:
    """The sentences of a part of a treebank, as numbers of distinct words.

    Attributes:
        words: which of the distinct words each word is.
        lengths: words of each sentence.
    """

    words: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)

    def add(self, sentence: Sentence, ids: dict[Word, int]) -> None:
        """Add a sentence, and its words to the distinct ones; refuse one without tags."""
        _check_tagged(sentence)
        found = [tuple([row[column] for column in ANALYSED]) for row in sentence.rows]
        self.words += [ids.setdefault(word, len(ids)) for word in found]
        self.lengths.append(len(found))


@dataclass(frozen=True)
class TrainingData:
    """What a tagger is trained on.

    Attributes:
        symbols, characters, bundles, lemmas: what was learnt by counting.
        distinct: the distinct words of both parts, W of them; of each, in arrays:
        lexical: the symbols of its form, [W, S].
        spelling: the characters of its form, [W, L].
        bundle_ids: its bundle, [W]; -1 for one that is of the validation part alone.
        script_ids: its edit script, [W]; `NO_SCRIPT` for one that is not learnt.
        symbol_counts: of lexical symbols: see `SymbolTable.counted`.
        words: which of them each word of the treebank is, [T].
        lengths: words of each sentence.
        dev: the validation part.
        vectors: what forms begin with, if given.
        summary: numbers that tell these data from others, for people and for `--resume`.
    """

    symbols: SymbolTable
    characters: Characters
    bundles: Bundles
    lemmas: Lemmas
    distinct: Sequence[Word]
    lexical: Ints
    spelling: Ints
    bundle_ids: Ints
    script_ids: Ints
    symbol_counts: tuple[Ints, Ints]
    words: Ints
    lengths: Ints
    dev: Part
    vectors: WordVectors | None = None
    summary: dict[str, Any] = field(default_factory=dict)

    def forms(self, words: Sequence[int], lengths: Sequence[int]) -> Iterator[list[str]]:
        """Return the forms of each sentence of a part."""
        for begin, end in pairwise(np.cumsum([0, *lengths]).tolist()):
            yield [self.distinct[word][0] for word in words[begin:end]]

    def untagged_dev(self) -> list[Sentence]:
        """Return the sentences of the validation part without tags and lemmas."""
        sentences = []
        for forms in self.forms(self.dev.words, self.dev.lengths):
            blank = ["_"] * (NUM_COLUMNS - 2)
            rows = [[str(number), form, *blank] for number, form in enumerate(forms, 1)]
            sentences.append(Sentence([], rows, []))
        return sentences


def read_data(
    train_files: Sequence[str],
    dev_file: str | None,
    config: ModelConfig,
    *,
    skip_invalid: bool = False,
    embeddings: str | None = None,
) -> TrainingData:
    """Read a treebank and make ready what a tagger is trained on.

    The files are those of a `TreebankRecord`.

    Raises:
        DataError: a broken sentence, or words without UPOS.
    """
    train = read_conllu(train_files, check="columns", skip_invalid=skip_invalid)
    dev = None
    if dev_file is not None:
        dev = read_conllu([dev_file], check="columns", skip_invalid=skip_invalid)
    return prepare_data(train, dev, config, embeddings=embeddings)


def prepare_data(
    train_sentences: Iterable[Sentence],
    dev_sentences: Iterable[Sentence] | None,
    config: ModelConfig,
    *,
    embeddings: str | None = None,
) -> TrainingData:
    """Make sentences ready, none of which is kept: see `read_data`."""
    ids: dict[Word, int] = {}
    train, dev = Part(), Part()
    for sentence, is_dev in held_out(train_sentences):
        (dev if is_dev and dev_sentences is None else train).add(sentence, ids)
    for sentence in dev_sentences or ():
        dev.add(sentence, ids)
    if not dev.lengths:  # nothing is held out of so small a treebank
        dev = train
    distinct = list(ids)
    forms: Counter[str] = Counter()
    bundles: Counter[tuple[str, str, str]] = Counter()
    lemmas: Counter[tuple[str, str, str]] = Counter()
    for word, count in sorted(Counter(train.words).items()):
        form, lemma, upos, xpos, feats = distinct[word]
        forms[form] += count
        bundles[upos, xpos, feats] += count
        lemmas[form, upos, lemma] += count
    symbols = lexical_table(forms, config.min_count)
    vectors = None
    if embeddings is not None:
        vectors = read_vectors(embeddings, FIELDS, config.lexical_size)
        symbols = vectors.add_words(symbols)
    characters = Characters.build(forms, config.min_count)
    learnt, scripts = Bundles.build(bundles), Lemmas.build(lemmas, config.min_script_count)
    summary = {
        "sentences": len(train.lengths),
        "words": len(train.words),
        "dev_sentences": len(dev.lengths),
        "dev_words": len(dev.words),
        "dev_held_out": dev_sentences is None,
        "bundles": len(learnt),
        "edit_scripts": len(scripts.scripts),
        "digest": hashlib.sha256(
            repr((distinct, train.words, train.lengths, dev.words, dev.lengths)).encode()
        ).hexdigest()[:16],
    }
    if vectors is not None:
        summary["vectors"] = len(vectors.words)
    return TrainingData(
        symbols=symbols,
        characters=characters,
        bundles=learnt,
        lemmas=scripts,
        distinct=distinct,
        lexical=np.asarray([symbols.row(word[:1]) for word in distinct], np.int32),
        spelling=padded(*characters.rows(word[0] for word in distinct)),
        bundle_ids=np.asarray(
            [learnt.ids.get((upos, xpos, feats), -1) for _, _, upos, xpos, feats in distinct],
            np.int32,
        ),
        script_ids=np.asarray(
            [scripts.ids.get(scripts.script_of(*word[:2]), NO_SCRIPT) for word in distinct],
            np.int32,
        ),
        symbol_counts=symbols.counted([((form,), count) for form, count in forms.items()]),
        words=np.asarray(train.words, np.int32),
        lengths=np.asarray(train.lengths, np.int32),
        dev=dev,
        vectors=vectors,
        summary=summary,
    )


def _check_tagged(sentence: Sentence) -> None:
    """Refuse a sentence in which a word has no UPOS; its line is named."""
    for number, row in enumerate(sentence.rows, 1):
        if row[UPOS] == "_":
            raise DataError(
                f"token {number} has no UPOS",
                hint="give a treebank with tags",
                path=sentence.path,
                line=sentence.line_of(number),
            )
