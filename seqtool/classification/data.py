"""Labelled texts made ready for the training of a classifier."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from seqtool.classification.config import LINEAR, LM, ClassifierConfig, ModelConfig
from seqtool.classification.ngrams import Bags, words_of
from seqtool.classification.texts import Texts, read_texts
from seqtool.core.arrays import Ids, Longs
from seqtool.core.errors import DataError
from seqtool.core.vocabulary import EOS_ID, NUM_SPECIALS, UNK_ID, Vocabulary
from seqtool.parsing.encoding.pretrained import WordStates
from seqtool.treebank.conllu import held_out


class WordReader:
    """Texts as the words that a network reads, at least one, and their ids.

    Args:
        config: how texts become words.
        known: the words that have vectors, after the special symbols.
    """

    def __init__(self, config: ModelConfig, known: Sequence[str]) -> None:
        self._config = config
        self.vocabulary = Vocabulary.from_counts(dict.fromkeys(known, 1))

    @classmethod
    def build(cls, config: ModelConfig, texts: Sequence[str]) -> WordReader:
        """Return a reader that knows the words that enough texts have, the commonest first."""
        reader = cls(config, ())
        counts = Counter(word for text in texts for word in dict.fromkeys(reader.shown(text)))
        del counts[""]
        vocabulary = Vocabulary.from_counts(counts, min_count=config.min_count)
        reader.vocabulary = vocabulary
        return reader

    @property
    def known(self) -> list[str]:
        """The words that have vectors, in the order of their ids."""
        return self.vocabulary.symbols[NUM_SPECIALS:]

    def is_cut(self, text: str) -> bool:
        """Whether a text is too long to be read to its end."""
        longest = self._config.max_words
        return len(text) > longest and len(words_of(text, self._config)) > longest

    def words(self, text: str) -> list[str]:
        """Return the words of a text, as a language model reads them; "" stands for none."""
        words = words_of(text, self._config)
        return words[: self._config.max_words] or [""]

    def shown(self, text: str) -> list[str]:
        """Return the words of a text as the vocabulary has them."""
        words = self.words(text)
        return [word.lower() for word in words] if self._config.lowercase else words

    def ids(self, text: str) -> Ids:
        """Return the ids of the words of a text."""
        return self.vocabulary.encode(self.shown(text))


class UnitReader(WordReader):
    """Texts as the units that a language model reads: `</s>` first, then those of the words."""

    def __init__(self, config: ModelConfig, word_states: WordStates) -> None:
        super().__init__(config, ())
        self._word_states = word_states

    def ids(self, text: str) -> Ids:
        """Return `EOS_ID` and the ids of the units of a text."""
        units = self._word_states.units(self.words(text))
        return np.concatenate(([EOS_ID], units)).astype(np.int32)


@dataclass(frozen=True)
class TrainingData:
    """What a classifier is trained on.

    Attributes:
        train: the texts of the training part, N of them.
        dev: those of the validation part.
        labels: the commonest first, K of them.
        label_ids: of the training part, [N].
        reader: what was learnt by counting: the n-grams of a linear classifier, or words.
        word_states: the language model that reads the texts, if given.
        summary: numbers that tell these data from others, for people and for `--resume`.
    """

    train: Texts
    dev: Texts
    labels: tuple[str, ...]
    label_ids: Longs
    reader: Bags | WordReader
    word_states: WordStates | None = None
    summary: dict[str, Any] = field(default_factory=dict)


def read_data(
    train_files: Sequence[str],
    dev_file: str | None,
    config: ClassifierConfig,
    *,
    word_states: WordStates | None = None,
) -> TrainingData:
    """Read labelled texts and make ready what a classifier is trained on.

    Without a validation part, every tenth text is held out for that.

    Raises:
        DataError: a file that cannot be used, or texts that all have one label.
    """
    parts = [read_texts(path, config.data, labelled=True) for path in train_files]
    train = _joined(parts)
    dev = train  # nothing is held out of so few texts
    if dev_file is not None:
        dev = read_texts(dev_file, config.data, labelled=True)
    else:
        is_dev = np.array([is_held_out for _, is_held_out in held_out(train.texts)])
        if is_dev.any():
            train, dev = _chosen(train, ~is_dev), _chosen(train, is_dev)
    return prepare_data(
        train, dev, config.model, word_states=word_states, is_held_out=dev_file is None
    )


def prepare_data(
    train: Texts,
    dev: Texts,
    config: ModelConfig,
    *,
    word_states: WordStates | None = None,
    is_held_out: bool = False,
) -> TrainingData:
    """Make texts with labels ready: see `read_data`."""
    assert train.labels is not None
    assert dev.labels is not None
    counts = Counter(train.labels)
    labels = tuple(sorted(counts, key=lambda label: (-counts[label], label)))
    if len(labels) < 2:
        raise DataError(
            f"all texts have the label {labels[0]!r}, so there is nothing to tell apart",
            hint="give texts of two labels or more",
            path=train.path,
        )
    reader: Bags | WordReader
    if config.encoder == LINEAR:
        reader = Bags.build(config, train.texts)
        known = {"features": reader.num_features}
    elif config.encoder == LM:
        assert word_states is not None
        reader = UnitReader(config, word_states)
        known = _units(reader, train)
    else:
        reader = WordReader.build(config, train.texts)
        known = {"words": len(reader.known)}
    if not any(known.values()) and word_states is None:
        raise DataError(
            "no word occurs often enough to be learnt",
            hint="give texts with words, or --set min_count=1",
            path=train.path,
        )
    digest = repr((train.texts, train.labels, dev.texts, dev.labels)).encode("utf-8")
    summary: dict[str, Any] = {
        "texts": len(train.texts),
        "dev_texts": len(dev.texts),
        "dev_held_out": is_held_out,
        "labels": {label: counts[label] for label in labels},
        **known,
        "digest": hashlib.sha256(digest).hexdigest()[:16],
    }
    if word_states is not None:
        summary |= word_states.about
    places = {label: place for place, label in enumerate(labels)}
    ids = np.array([places[label] for label in train.labels], np.int64)
    return TrainingData(train, dev, labels, ids, reader, word_states, summary)


def _units(reader: UnitReader, texts: Texts) -> dict[str, int]:
    """Return how many units a language model reads of texts, and how many are unknown to it."""
    ids = np.concatenate([reader.ids(text)[1:] for text in texts.texts])
    num_unknown = int((ids == UNK_ID).sum())
    if num_unknown == len(ids):
        raise DataError(
            "the language model knows no word of the texts",
            hint="give a language model of their language, or another --encoder",
            path=texts.path,
        )
    return {"units": len(ids), "unknown_units": num_unknown}


def _joined(parts: Sequence[Texts]) -> Texts:
    """Return the texts of several files as one; only texts, labels and lines are kept."""
    texts = [text for part in parts for text in part.texts]
    labels = [label for part in parts for label in part.labels or ()]
    lines = [line for part in parts for line in part.lines]
    return Texts(parts[0].path, texts, labels, lines, [], [])


def _chosen(texts: Texts, which: np.ndarray[Any, np.dtype[np.bool_]]) -> Texts:
    places = np.flatnonzero(which).tolist()
    labels = texts.labels or []
    return Texts(
        texts.path,
        [texts.texts[place] for place in places],
        [labels[place] for place in places],
        [texts.lines[place] for place in places],
        [],
        [],
    )
