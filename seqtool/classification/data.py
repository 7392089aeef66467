"""Texts from a table, and what a classifier learns of them by counting.

text,label                          {"text": "A fine film.", "label": "good"}
"A fine film.",good                 {"text": "Dull, dull, dull.", "label": "bad"}
"Dull, dull, dull.",bad
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seqtool.classification.config import LINEAR, LM, ClassifierConfig, DataConfig, ModelConfig
from seqtool.classification.ngrams import Bags, words_of
from seqtool.core.arrays import Halves, Ids, Longs
from seqtool.core.errors import DataError, did_you_mean
from seqtool.core.reading import JSON_LINES, STDIN, json_records, read_blocks, unpacked_name
from seqtool.core.vocabulary import EOS_ID, NUM_SPECIALS, UNK_ID, Vocabulary
from seqtool.lm.states import sentence_splitter, word_states
from seqtool.lm.stimuli import is_stimuli
from seqtool.lm.tables import parse_table
from seqtool.treebank.conllu import HELD_OUT_EVERY, held_out

if TYPE_CHECKING:
    from seqtool.lm.neural.model import NeuralLanguageModel

_MAX_NAMES = 8  # of columns, in a hint
_LARGEST = 60_000.0  # what float16 can hold, of units without bounds


@dataclass(frozen=True)
class Texts:
    """The texts of a file.

    Attributes:
        path: of the file, as messages name it.
        texts: N of them.
        labels: of each; None where the file has no labels.
        names: of all columns.
        rows: the cells of each row in these columns; none for training.
    """

    path: str
    texts: list[str]
    labels: list[str] | None
    names: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()

    @classmethod
    def of(cls, path: str, pairs: Sequence[tuple[str, str]]) -> Texts:
        """Return the texts of pairs of a text and its label."""
        return cls(path, [text for text, _ in pairs], [label for _, label in pairs])

    def pairs(self) -> list[tuple[str, str]]:
        """Return the texts with their labels."""
        return list(zip(self.texts, self.labels or (), strict=True))


def read_texts(
    path: str | Path, config: DataConfig, *, labelled: bool | None = None, is_table: bool = False
) -> Texts:
    """Read the texts of a file, packed or not.

    Args:
        path: a file named .csv, .tsv, .jsonl or .ndjson; any other, and "-" for stdin, has a text
            per line.
        config: which columns hold texts and labels.
        labelled: whether there must be labels; None reads them where they are.
        is_table: a file of another name is a table too.

    Raises:
        DataError: it is no such file, lacks a column, or has a text or label that cannot be used.
    """
    shown = "<stdin>" if str(path) == STDIN else str(path)
    is_json = unpacked_name(path).endswith(JSON_LINES)
    content = b"".join(read_blocks([path], as_written=is_json))
    if is_json:
        names, rows, lines = _json_table(content, shown)
    elif is_table or is_stimuli(path):
        table = parse_table(content.decode(), path)
        names, rows, lines = table.names, table.rows, table.lines
    else:
        if labelled:
            hint = "give a .csv, .tsv or .jsonl with a column of texts and one of labels"
            raise DataError("is no table, so there are no labels", hint=hint, path=shown)
        texts = content.decode().removesuffix("\n").split("\n")
        names, rows = [config.text_column], [[text] for text in texts]
        lines = list(range(1, 1 + len(rows)))
    if not rows:
        raise DataError("has no rows", hint="give a row for each text", path=shown)

    def column(name: str, option: str, value_of: Callable[[Any], str]) -> list[str]:
        if name not in names:
            near = f"name another with {option}: {', '.join(names[:_MAX_NAMES])}"
            hint, line = did_you_mean(name, names, otherwise=near), lines[0] if is_json else 1
            raise DataError(f"has no column {name!r}", hint=hint, path=shown, line=line)
        place, values = names.index(name), []
        for row, line in zip(rows, lines, strict=True):
            try:
                values.append(value_of(row[place]))
            except ValueError as error:
                hint = "give a text in quotes, or name another column"
                raise DataError(str(error), hint=hint, path=shown, line=line) from error
        return values

    texts = column(config.text_column, "--text-column", _text)
    labels = None
    if labelled or (labelled is None and config.label_column in names):
        labels = column(config.label_column, "--label-column", _label)
    return Texts(shown, texts, labels, names, rows)


def _json_table(content: bytes, path: str) -> tuple[list[str], list[list[Any]], list[int]]:
    """Return the names, rows and lines of JSON Lines; a field that a row lacks is None."""
    records = dict(json_records(content, path, whole=True))
    names = list(dict.fromkeys(name for record in records.values() for name in record))
    rows = [[record.get(name) for name in names] for record in records.values()]
    return names, rows, list(records)


def _text(cell: Any) -> str:
    """Return a cell that is a text."""
    if not isinstance(cell, str):
        raise ValueError("the text is missing")
    if "\0" in cell:
        raise ValueError("the text holds a NUL character")
    return cell


def _label(cell: Any) -> str:
    """Return a cell that is a label; a whole number, true and false are labels as JSON has them."""
    label = json.dumps(cell) if isinstance(cell, int) else cell
    if not isinstance(label, str):
        raise ValueError("the label is neither a text nor a whole number")
    if not label.strip():
        raise ValueError("the label is empty")
    if not label.isprintable():
        raise ValueError(f"the label {label!r:.60} holds a character that cannot be printed")
    return label


class WordReader:
    """Texts as the words that a network reads, at least one, and their ids.

    Args:
        config: how texts become words.
        known: the words that have vectors, after the special symbols.
        lm: the language model whose states after words are read too; of the encoder `lm` that
            whose units a text becomes.
    """

    def __init__(
        self, config: ModelConfig, known: Sequence[str], lm: NeuralLanguageModel | None = None
    ) -> None:
        self._config, self._lm = config, lm
        self._split = None if lm is None else sentence_splitter(lm.tokenizer)
        self.vocabulary = Vocabulary.from_counts(dict.fromkeys(known, 1))

    def learn(self, texts: Sequence[str]) -> None:
        """Know the words that enough texts have, the commonest first."""
        counts = Counter(word for text in texts for word in dict.fromkeys(self._forms(text)))
        del counts[""]
        self.vocabulary = Vocabulary.from_counts(counts, min_count=self._config.min_count)

    @property
    def known(self) -> list[str]:
        """The words that have vectors, in the order of their ids."""
        return self.vocabulary.symbols[NUM_SPECIALS:]

    def is_cut(self, text: str) -> bool:
        """Whether a text is too long to be read to its end."""
        longest = self._config.max_words
        return len(text) > longest and len(words_of(text, self._config)) > longest

    def _words(self, text: str) -> list[str]:
        """Return the words of a text, as a language model reads them; "" stands for none."""
        return words_of(text, self._config)[: self._config.max_words] or [""]

    def _forms(self, text: str) -> list[str]:
        """Return the words of a text as the vocabulary has them."""
        words = self._words(text)
        return [word.lower() for word in words] if self._config.lowercase else words

    def ids(self, text: str) -> Ids:
        """Return the ids of the words; of the encoder `lm`, of `</s>` and the text's units."""
        if self._config.encoder == LM and self._split is not None:
            units = self._split(" ".join(self._words(text)), 1).ids
            return np.concatenate(([EOS_ID], units)).astype(np.int32)
        return self.vocabulary.encode(self._forms(text))

    def states(self, texts: Iterable[str]) -> list[Halves] | None:
        """Return the language model's states after the words of texts; None if none are read.

        A text without words has one row, the state before any.
        """
        if self._lm is None or self._config.encoder == LM:
            return None
        lines = (" ".join(self._words(text)) for text in texts)
        (before,) = self._lm.sentence_states([np.zeros(0, np.int32)])
        return [
            # in half precision, as those of all texts are kept in training
            np.clip(read.vectors if read.words else before, -_LARGEST, _LARGEST).astype(np.float16)
            for read in word_states(self._lm, lines)
        ]


@dataclass(frozen=True)
class TrainingData:
    """What a classifier is trained on.

    Attributes:
        train: the texts of the training part, N of them.
        dev: those of the validation part.
        labels: the commonest first, K of them.
        label_ids: of the training part, [N].
        reader: what counting has found: the n-grams of a linear classifier, or words.
        lm: the language model that reads the texts, if there is one.
        summary: numbers that tell these data from others, for people and for `--resume`.
    """

    train: Texts
    dev: Texts
    labels: tuple[str, ...]
    label_ids: Longs
    reader: Bags | WordReader
    lm: NeuralLanguageModel | None = None
    summary: dict[str, Any] = field(default_factory=dict)


def read_data(
    train_files: Sequence[str],
    dev_file: str | None,
    config: ClassifierConfig,
    *,
    lm: NeuralLanguageModel | None = None,
) -> TrainingData:
    """Read labelled texts and make ready what a classifier is trained on.

    Without a validation part, every tenth text is held out for that.

    Raises:
        DataError: a file that cannot be used, or texts that all have one label.
    """
    parts = [read_texts(path, config.data, labelled=True) for path in train_files]
    path = parts[0].path
    pairs = [pair for part in parts for pair in part.pairs()]
    dev_pairs = pairs  # nothing is held out of so few texts
    if dev_file is not None:
        dev_pairs = read_texts(dev_file, config.data, labelled=True).pairs()
    elif len(pairs) >= HELD_OUT_EVERY:
        split = list(held_out(pairs))
        pairs, dev_pairs = ([pair for pair, is_dev in split if is_dev == x] for x in (False, True))
    train, dev = Texts.of(path, pairs), Texts.of(path, dev_pairs)
    counts = Counter(label for _, label in pairs)
    labels = sorted(counts, key=lambda label: (-counts[label], label))
    if len(labels) < 2:
        what = f"all texts have the label {labels[0]!r}, so there is nothing to tell apart"
        raise DataError(what, hint="give texts of two labels or more", path=path)
    reader: Bags | WordReader
    if config.model.encoder == LINEAR:
        reader = Bags.build(config.model, train.texts)
        known = {"features": len(reader.known)}
    else:
        reader = WordReader(config.model, (), lm)
        if config.model.encoder == LM:
            known = _units(reader, train)
        else:
            reader.learn(train.texts)
            known = {"words": len(reader.known)}
    if not any(known.values()) and lm is None:
        hint = "give texts with words, or --set min_count=1"
        raise DataError("no word occurs often enough to be learnt", hint=hint, path=path)
    digest = repr((train.texts, train.labels, dev.texts, dev.labels)).encode("utf-8")
    summary: dict[str, Any] = {
        "texts": len(pairs),
        "dev_texts": len(dev_pairs),
        "dev_held_out": dev_file is None,
        "labels": {label: counts[label] for label in labels},
        **known,
        "digest": hashlib.sha256(digest).hexdigest()[:16],
    }
    places = {label: place for place, label in enumerate(labels)}
    ids = np.array([places[label] for _, label in pairs], np.int64)
    return TrainingData(train, dev, tuple(labels), ids, reader, lm, summary)


def _units(reader: WordReader, texts: Texts) -> dict[str, int]:
    """Return how many units a language model reads of texts, and how many are unknown to it."""
    ids = np.concatenate([reader.ids(text)[1:] for text in texts.texts])
    num_unknown = int((ids == UNK_ID).sum())
    if num_unknown == len(ids):
        what = "the language model knows no word of the texts"
        hint = "give a language model of their language, or another --encoder"
        raise DataError(what, hint=hint, path=texts.path)
    return {"units": len(ids), "unknown_units": num_unknown}
