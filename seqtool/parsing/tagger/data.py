"""Treebanks made ready for the training of a tagger, and labelled words for that of a labeller."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from seqtool.core.arrays import Ints
from seqtool.core.errors import DataError
from seqtool.parsing.data import in_parts
from seqtool.parsing.encoding.features import SymbolTable
from seqtool.parsing.encoding.vectors import WordVectors, read_vectors
from seqtool.parsing.tagger.columns import bare_sentence
from seqtool.parsing.tagger.config import LabellerConfig, TaggerConfig
from seqtool.parsing.tagger.entities import are_entities, keeps_to_bio
from seqtool.parsing.tagger.lemmas import Lemmas
from seqtool.parsing.tagger.morphology import FORM_FIELDS, Bundles, lexical_table
from seqtool.text.characters import Characters, padded
from seqtool.treebank.sentence import FEATS, FORM, LEMMA, UPOS, XPOS, Sentence

NO_SCRIPT = -1
ANALYSED = (FORM, LEMMA, UPOS, XPOS, FEATS)

Word = tuple[str, ...]  # the columns `ANALYSED`


@dataclass(frozen=True)
class TaggedPart:
    """The sentences of a part of a treebank, as numbers of distinct words.

    Attributes:
        words: which of the distinct words each word is, [T].
        lengths: words of each sentence.
    """

    words: Ints
    lengths: Ints


@dataclass(frozen=True)
class TaggerData:
    """What a tagger is trained on.

    Attributes:
        symbols, characters, bundles, lemmas: what was learnt by counting.
        distinct: the distinct words of both parts, W of them; of each, in arrays:
        lexical: the symbols of its form, [W, S].
        spelling: the characters of its form, [W, L].
        bundle_ids: its bundle, [W]; -1 for one that is of the validation part alone.
        script_ids: its edit script, [W]; `NO_SCRIPT` for one that is not learnt.
        symbol_counts: of lexical symbols: see `SymbolTable.counted`.
        train, dev: the two parts.
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
    train: TaggedPart
    dev: TaggedPart
    vectors: WordVectors | None = None
    summary: dict[str, Any] = field(default_factory=dict)

    def column(self, part: TaggedPart, column: int) -> Iterator[list[str]]:
        """Give a column, of those `ANALYSED`, of the words of each sentence of a part."""
        place = ANALYSED.index(column)
        for begin, end in pairwise(np.cumsum([0, *part.lengths.tolist()]).tolist()):
            yield [self.distinct[word][place] for word in part.words[begin:end].tolist()]

    def untagged_dev(self) -> list[Sentence]:
        """Return the sentences of the validation part without tags and lemmas."""
        return list(map(bare_sentence, self.column(self.dev, FORM)))


def tagger_data(
    train: Iterable[Sentence],
    dev: Iterable[Sentence] | None,
    config: TaggerConfig,
    *,
    embeddings: str | None = None,
) -> TaggerData:
    """Make the sentences of a treebank ready for a tagger; none of them is kept.

    Raises:
        DataError: words without UPOS.
    """
    ids: dict[Word, int] = {}
    numbers: tuple[list[int], list[int]] = ([], [])  # of the words of both parts
    lengths: tuple[list[int], list[int]] = ([], [])
    for sentence, is_dev in in_parts(train, dev):
        _check_tagged(sentence)
        words = [tuple([row[column] for column in ANALYSED]) for row in sentence.rows]
        numbers[is_dev].extend([ids.setdefault(word, len(ids)) for word in words])
        lengths[is_dev].append(len(words))
    if not lengths[True]:  # nothing is held out of so small a treebank
        numbers, lengths = (numbers[0], numbers[0]), (lengths[0], lengths[0])
    distinct = list(ids)
    forms: Counter[str] = Counter()
    tags: Counter[tuple[str, str, str]] = Counter()
    lemmatised: Counter[tuple[str, str, str]] = Counter()
    for number, count in sorted(Counter(numbers[0]).items()):
        form, lemma, upos, xpos, feats = distinct[number]
        forms[form] += count
        tags[upos, xpos, feats] += count
        lemmatised[form, upos, lemma] += count
    model = config.model
    symbols = lexical_table(forms, model.min_count)
    vectors = None
    if embeddings is not None:
        vectors = read_vectors(embeddings, FORM_FIELDS, model.lexical_size)
        symbols = vectors.add_words(symbols)
    characters = Characters.build(forms, model.min_count)
    bundles, lemmas = Bundles.build(tags), Lemmas.build(lemmatised, model.min_script_count)
    digest = repr((distinct, numbers[0], lengths[0], numbers[1], lengths[1]))
    summary = {
        "sentences": len(lengths[0]),
        "words": len(numbers[0]),
        "dev_sentences": len(lengths[1]),
        "dev_words": len(numbers[1]),
        "dev_held_out": dev is None,
        "bundles": len(bundles),
        "edit_scripts": len(lemmas.scripts),
        "digest": hashlib.sha256(digest.encode()).hexdigest()[:16],
    }
    if vectors is not None:
        summary["vectors"] = len(vectors.words)
    bundle_ids = [bundles.ids.get((upos, xpos, feats), -1) for *_, upos, xpos, feats in distinct]
    script_ids = [
        lemmas.ids.get(lemmas.script_of(form, lemma), NO_SCRIPT) for form, lemma, *_ in distinct
    ]
    return TaggerData(
        symbols=symbols,
        characters=characters,
        bundles=bundles,
        lemmas=lemmas,
        distinct=distinct,
        lexical=np.asarray([symbols.row(word[:1]) for word in distinct], np.int32),
        spelling=padded(*characters.rows(word[0] for word in distinct)),
        bundle_ids=np.asarray(bundle_ids, np.int32),
        script_ids=np.asarray(script_ids, np.int32),
        symbol_counts=symbols.counted([((form,), count) for form, count in forms.items()]),
        train=TaggedPart(np.asarray(numbers[0], np.int32), np.asarray(lengths[0], np.int32)),
        dev=TaggedPart(np.asarray(numbers[1], np.int32), np.asarray(lengths[1], np.int32)),
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


def labeller_data(
    train: Sequence[Sentence],
    dev: Sequence[Sentence] | None,
    config: LabellerConfig,
    **more: Any,
) -> TaggerData:
    """Make labelled words ready, as `columns.read_labelled` gives them; see `tagger_data`."""
    data = tagger_data(train, dev, config.as_tagger(), **more)
    summary = {name: value for name, value in data.summary.items() if name != "edit_scripts"}
    summary["labels"] = summary.pop("bundles")
    # every lemma is `_`: none is to be kept
    return replace(data, lemmas=Lemmas(data.lemmas.scripts, {}), summary=summary)


def scheme_of(data: TaggerData) -> str:
    """Return what labels of training are: "bio" throughout, "entities" in another way, or "any"."""
    if keeps_to_bio(data.column(data.train, UPOS)):
        return "bio"
    return "entities" if are_entities(data.bundles.values[0]) else "any"
