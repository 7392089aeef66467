"""Texts from a table, and what a classifier learns of them by counting.

text,label                          {"text": "A fine film.", "label": "good"}
"A fine film.",good                 {"text": "Dull, dull, dull.", "label": "bad"}
"Dull, dull, dull.",bad
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from seqtool.classification.config import LINEAR, LM, ClassifierConfig, DataConfig, ModelConfig
from seqtool.classification.ngrams import Bags, words_of
from seqtool.core.arrays import Halves, Ids, Longs
from seqtool.core.errors import DataError, did_you_mean
from seqtool.core.reading import JSON_LINES, STDIN, read_blocks, unpacked_name
from seqtool.core.vocabulary import EOS_ID, NUM_SPECIALS, UNK_ID, Vocabulary
from seqtool.lm.stimuli import is_stimuli
from seqtool.lm.tables import parse_table
from seqtool.parsing.encoding.pretrained import WordStates
from seqtool.treebank.conllu import held_out

_MAX_NAMES = 8  # of columns, in a hint


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
    is_plain = not (is_json or is_table or is_stimuli(path))
    if is_plain and labelled:
        raise DataError(
            "is no table, so there are no labels",
            hint="give a .csv, .tsv or .jsonl with a column of texts and one of labels",
            path=shown,
        )
    content = b"".join(read_blocks([path], as_written=is_json)).decode()
    names: Sequence[str]
    rows: Sequence[Sequence[Any]]
    if is_json:
        names, rows, lines = _json_table(content, shown)
    elif is_plain:
        names, rows = [config.text_column], [[x] for x in content.removesuffix("\n").split("\n")]
        lines = list(range(1, 1 + len(rows)))
    else:
        table = parse_table(content, path)
        names, rows, lines = table.names, table.rows, table.lines
    if not rows:
        raise DataError("has no rows", hint="give a row for each text", path=shown)

    header = lines[0] if is_json else 1

    def column(name: str, option: str) -> list[tuple[int, Any]]:
        if name not in names:
            near = f"name another with {option}: {', '.join(names[:_MAX_NAMES])}"
            hint = did_you_mean(name, names, otherwise=near)
            raise DataError(f"has no column {name!r}", hint=hint, path=shown, line=header)
        place = names.index(name)
        return list(zip(lines, (row[place] for row in rows), strict=True))

    cells = column(config.text_column, "--text-column")
    labels = None
    if labelled or (labelled is None and config.label_column in names):
        found = column(config.label_column, "--label-column")
        labels = [_label(cell, shown, line) for line, cell in found]
    texts = [_text(cell, shown, line) for line, cell in cells]
    return Texts(shown, texts, labels, names, rows)


def _json_table(content: str, path: str) -> tuple[list[str], list[list[Any]], list[int]]:
    """Return the names, rows and lines of JSON Lines; a field that a row lacks is None."""
    records: dict[int, dict[str, Any]] = {}
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            json.dumps(record, ensure_ascii=False).encode()  # refuses half a surrogate pair
        except (ValueError, RecursionError) as error:
            hint = "each line must be one JSON object"
            raise DataError(f"not JSON: {error}", hint=hint, path=path, line=number) from error
        if not isinstance(record, dict):
            what, hint = "is no JSON object", "write it as {...}"
            raise DataError(what, hint=hint, path=path, line=number)
        records[number] = record
    names = list(dict.fromkeys(name for record in records.values() for name in record))
    rows = [[record.get(name) for name in names] for record in records.values()]
    return names, rows, list(records)


def _text(cell: Any, path: str, line: int) -> str:
    """Return a cell that is a text.

    Raises:
        DataError: it is none, or cannot be used.
    """
    if isinstance(cell, str) and "\0" not in cell:
        return cell
    what = "the text holds a NUL character" if isinstance(cell, str) else "the text is missing"
    raise DataError(what, hint="give a text in quotes, without NUL", path=path, line=line)


def _label(cell: Any, path: str, line: int) -> str:
    """Return a cell that is a label; a whole number, true and false are labels as JSON has them.

    Raises:
        DataError: it is none, or cannot be printed.
    """
    label = json.dumps(cell) if isinstance(cell, int) else cell
    if not isinstance(label, str):
        what, hint = "the label is neither a text nor a whole number", "write it in quotes"
    elif not label.strip():
        what, hint = "the label is empty", "give one, or leave the row out"
    elif not label.isprintable():
        what = f"the label {label!r:.60} holds a character that cannot be printed"
        hint = "quote cells that hold line ends, and name the column with --label-column"
    else:
        return label
    raise DataError(what, hint=hint, path=path, line=line)


class WordReader:
    """Texts as the words that a network reads, at least one, and their ids.

    Args:
        config: how texts become words.
        known: the words that have vectors, after the special symbols.
        word_states: the language model whose states after words are read too; of the encoder `lm`
            that whose units a text becomes.
    """

    def __init__(
        self, config: ModelConfig, known: Sequence[str], word_states: WordStates | None = None
    ) -> None:
        self._config, self.word_states = config, word_states
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
        if self._config.encoder == LM and self.word_states is not None:
            units = self.word_states.units(self._words(text))
            return np.concatenate(([EOS_ID], units)).astype(np.int32)
        return self.vocabulary.encode(self._forms(text))

    def states(self, texts: Iterable[str]) -> list[Halves] | None:
        """Return the language model's states after the words of texts; None if none are read."""
        if self.word_states is None or self._config.encoder == LM:
            return None
        # without the state before the first word
        return [rows[1:] for rows in self.word_states.of([self._words(text) for text in texts])]


@dataclass(frozen=True)
class TrainingData:
    """What a classifier is trained on.

    Attributes:
        train: the texts of the training part, N of them.
        dev: those of the validation part.
        labels: the commonest first, K of them.
        label_ids: of the training part, [N].
        reader: what counting has found: the n-grams of a linear classifier, or words.
        word_states: the language model that reads the texts, if there is one.
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
    train = _part([row for part in parts for row in _rows(part)], parts[0].path)
    dev = train  # nothing is held out of so few texts
    if dev_file is not None:
        dev = read_texts(dev_file, config.data, labelled=True)
    else:
        split = list(held_out(_rows(train)))
        if any(is_held_out for _, is_held_out in split):
            train, dev = (
                _part([row for row, is_held_out in split if is_held_out == is_dev], train.path)
                for is_dev in (False, True)
            )
    counts = Counter(train.labels)
    labels = tuple(sorted(counts, key=lambda label: (-counts[label], label)))
    if len(labels) < 2:
        raise DataError(
            f"all texts have the label {labels[0]!r}, so there is nothing to tell apart",
            hint="give texts of two labels or more",
            path=train.path,
        )
    reader: Bags | WordReader
    if config.model.encoder == LINEAR:
        reader = Bags.build(config.model, train.texts)
        known = {"features": len(reader.known)}
    else:
        reader = WordReader(config.model, (), word_states)
        if config.model.encoder == LM:
            known = _units(reader, train)
        else:
            reader.learn(train.texts)
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
        "dev_held_out": dev_file is None,
        "labels": {label: counts[label] for label in labels},
        **known,
        "digest": hashlib.sha256(digest).hexdigest()[:16],
    }
    if word_states is not None:
        summary |= word_states.about
    places = {label: place for place, label in enumerate(labels)}
    ids = np.array([places[label] for label in train.labels or ()], np.int64)
    return TrainingData(train, dev, labels, ids, reader, word_states, summary)


def _units(reader: WordReader, texts: Texts) -> dict[str, int]:
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


def _rows(texts: Texts) -> list[tuple[str, str]]:
    """Return texts with their labels."""
    return list(zip(texts.texts, texts.labels or (), strict=True))


def _part(rows: Sequence[tuple[str, str]], path: str) -> Texts:
    return Texts(path, [text for text, _ in rows], [label for _, label in rows])
