"""What comes trained already: the states of a language model, and word vectors.

A tagger or parser that was trained with `--lm` has a copy of the language model in its directory,
`lm/`. It stays as it is; what is learnt is how its hidden states after words are projected (Peters
et al. 2017). Every sentence is read from the beginning of a text, and words are split into the
model's own units, with a space between two of them where its units are smaller than words. Torch is
imported by opening the model.

Word vectors are read as word2vec, GloVe and fastText write them in text:

    dog 0.1 -0.2 ...        GloVe: a word and its numbers a line
    2000 100                word2vec, fastText: a first line with the number of words and the width
    dog 0.1 -0.2 ...

GloVe's words may hold spaces: the numbers are the last ones of a line.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from seqtool.core import checkpoint
from seqtool.core.arrays import Floats, Halves, Ids
from seqtool.core.checkpoint import Header
from seqtool.core.errors import ConfigError, DataError, ModelError, counted
from seqtool.core.reading import read_blocks
from seqtool.lm.protocol import SentenceReader
from seqtool.parsing.encoding.features import SymbolTable
from seqtool.text.tokenizers import WordTokenizer

FOLDER = "lm"  # of a tagger's or parser's directory
WEIGHT = "lm.weight"  # the projection's, [lm_size, P], among those of a network that has one
BATCH_IDS = 1 << 12  # read together, padding included
MAX_WORDS = 1 << 16  # whose ids are remembered
LARGEST = 60_000.0  # what float16 can hold, of units without bounds


class WordStates:
    """A language model that reads sentences; `about` tells it from others, see `describe`.

    States are float16: those of a treebank are all kept in training, and what is parsed later is
    to be read in the same way. With `keep`, those of every sentence are remembered.
    """

    def __init__(
        self, model: SentenceReader, about: Mapping[str, Any], *, keep: bool = False
    ) -> None:
        self.model, self.about = model, dict(about)
        self._tokenizer = model.tokenizer
        if isinstance(self._tokenizer, WordTokenizer):  # a word `</s>` is to be an unknown one
            self._tokenizer = WordTokenizer(
                self._tokenizer.vocabulary,
                lowercase=self._tokenizer.lowercase,
                special_tokens="unknown",
            )
        self._ids: dict[str, Ids] = {}
        self._kept: dict[tuple[str, ...], Halves] | None = {} if keep else None

    @property
    def size(self) -> int:
        """P, the width of a state."""
        return self.model.state_size

    def units(self, forms: Sequence[str]) -> Ids:
        """Return the ids of the units of words, as the model reads them."""
        return self._split(forms)[0]

    def of(self, sentences: Sequence[Sequence[str]]) -> list[Halves]:
        """Return the states of sentences, each [1 + words, P]: before its words, and after each.

        They are those after the last unit of a word; a word without any, which some models of
        pieces may have, leaves the state as it is. Of each sentence, its forms are given.
        """
        if self._kept is None:
            return self._read(sentences)
        keys = [tuple(forms) for forms in sentences]
        new = list(dict.fromkeys(key for key in keys if key not in self._kept))
        self._kept.update(zip(new, self._read(new), strict=True))
        return [self._kept[key] for key in keys]

    def _read(self, sentences: Sequence[Sequence[str]]) -> list[Halves]:
        split = [self._split(forms) for forms in sentences]
        lengths = [len(ids) + 1 for ids, _ in split]
        results = [np.empty((0, self.size), np.float16)] * len(sentences)
        batch: list[int] = []
        for place in sorted(range(len(sentences)), key=lengths.__getitem__):
            # lengths rise, so that this sentence is the one to which the others are padded
            if batch and (len(batch) + 1) * lengths[place] > BATCH_IDS:
                self._read_batch(split, batch, results)
                batch = []
            batch.append(place)
        self._read_batch(split, batch, results)
        return results

    def _read_batch(
        self, split: Sequence[tuple[Ids, Ids]], batch: Sequence[int], results: list[Halves]
    ) -> None:
        states = self.model.sentence_states([split[place][0] for place in batch])
        for place, of_units in zip(batch, states, strict=True):
            rows = of_units[split[place][1]]
            results[place] = np.clip(rows, -LARGEST, LARGEST).astype(np.float16)

    def _split(self, forms: Sequence[str]) -> tuple[Ids, Ids]:
        """Return the ids of words, and how many are read before the first word and after each."""
        if len(self._ids) > MAX_WORDS:
            self._ids.clear()
        parts = []
        for number, form in enumerate(forms):
            # no unit holds a space but as its first character, so words can be split one by one
            written = f" {form}" if number else form
            if written not in self._ids:
                self._ids[written] = self._tokenizer.encode(written)
            parts.append(self._ids[written])
        ends = np.cumsum([0, *map(len, parts)], dtype=np.int32)
        return np.concatenate([np.zeros(0, np.int32), *parts]), ends


def describe(header: Header) -> dict[str, Any]:
    """Return what tells a language model from others, for the data of a model that reads it."""
    text = json.dumps([header.config, header.tokenizer, header.files], sort_keys=True)
    return {
        "lm_unit": header.tokenizer.get("unit"),
        "lm_parameters": header.num_parameters,
        "lm_bytes": sum(int(entry["bytes"]) for entry in header.files.values()),
        "lm_sum": hashlib.sha256(text.encode()).hexdigest()[:12],
    }


def summarise(data: Mapping[str, Any], *folders: str) -> str:
    """Return what a card says of the language model that the data of a header tell of, if any.

    In a model of several parts, it is in some folders of them.
    """
    if "lm_sum" not in data:
        return ""
    return (
        f"It reads the states of a language model of {data['lm_unit']} units, which is in "
        f"{' and '.join(f'`{folder}/`' for folder in folders or [FOLDER])}: "
        f"{counted(data['lm_parameters'], 'parameter')}, {data['lm_bytes'] / 1e6:.1f} MB."
    )


def project(states: Sequence[Halves], weight: Floats) -> Floats:
    """Return the states of sentences, [words, P] each, by a weight [R, P]: all together, [T, R]."""
    none = np.empty((0, weight.shape[1]), np.float16)  # of no sentences
    projected: Floats = np.concatenate([none, *states]).astype(np.float32) @ weight.T
    return projected


def open_word_states(path: str | Path, *, device: str = "cpu", keep: bool = False) -> WordStates:
    """Open the language model of a directory; for `keep` see `WordStates`.

    Raises:
        ModelError: there is none, it is damaged, or it has no hidden states.
    """
    if not Path(path).is_file():
        model = checkpoint.load(path, device=device)
        if isinstance(model, SentenceReader):
            return WordStates(model, describe(checkpoint.read_header(path)), keep=keep)
    raise ModelError(
        "is no neural language model, so it has no states to read",
        hint="give a model that `seqtool train-lm` made",
        path=path,
    )


def open_own(directory: Path, data: Mapping[str, Any]) -> WordStates | None:
    """Open the language model of a tagger or parser, if the data of its header tell of one.

    The directory is that of the model, or its `best/` while it is in training.

    Raises:
        ModelError: it is missing, damaged, or another one.
    """
    if "lm_sum" not in data:
        return None
    path = directory / FOLDER
    if not path.is_dir() and (directory.parent / FOLDER).is_dir():
        path = directory.parent / FOLDER
    hint = "copy the model again, or train it again"
    if not path.is_dir():
        raise ModelError("the language model that it reads is missing", hint=hint, path=path)
    states = open_word_states(path)
    if states.about["lm_sum"] != data["lm_sum"]:
        raise ModelError("is not the language model that was trained with", hint=hint, path=path)
    return states


def check_given(path: str | Path, output: Path) -> None:
    """Open the language model that a new run is to be trained with, to see whether that can be.

    Raises:
        ModelError: as `open_word_states`.
        ConfigError: it is in the directory that is to be replaced.
    """
    source = Path(path).resolve()
    if output.resolve() in (source, *source.parents):
        raise ConfigError(
            f"the language model {path} is part of what is replaced",
            hint="copy it elsewhere first",
        )
    open_word_states(path)


def open_for_run(path: str | None, output: Path, *, resume: bool, device: str) -> WordStates | None:
    """Open the language model that a run is trained with, if any: its own copy of that in `path`.

    Raises:
        ModelError, ConfigError: as `check_given`.
    """
    if path is None:
        return None
    if not resume:
        check_given(path, output)
        checkpoint.copy(path, output / FOLDER)
    return open_word_states(output / FOLDER, device=device, keep=True)


MAX_VECTORS = 100_000  # the files have the commonest words first
_SCALE = 0.1  # standard deviation of the numbers of an embedding when training begins
_SIZES = re.compile(rb"\s*(\d+)[ \t]+(\d+)\s*")


@dataclass(frozen=True)
class WordVectors:
    """Words in the order of a file, and their vectors, [num_words, width]."""

    words: tuple[str, ...]
    rows: Floats

    def add_words(self, table: SymbolTable) -> SymbolTable:
        """Return the symbols with the words added to the forms."""
        forms = table.groups["form"]
        known = set(forms)
        added = tuple(word for word in self.words if word not in known)
        return SymbolTable(table.columns, {**table.groups, "form": forms + added})

    def initial(self, table: SymbolTable) -> tuple[list[int], Floats]:
        """Return the numbers of the words among the symbols, and their first vectors."""
        ids = table.ids_of("form")
        return [ids[word] for word in self.words], self.rows


def read_vectors(path: str | Path, fields: Sequence[str], width: int) -> WordVectors:
    """Read word vectors, the first `MAX_VECTORS` words of a file.

    Vectors of another width than `width` are turned so that their first `width` directions keep
    the most of their variance, or are filled up with zeros.

    Args:
        path: the file, plain or packed.
        fields: what is read of a word.
        width: of an embedding.

    Raises:
        DataError: a line that is not a word and numbers, as many as in the others.
        ConfigError: forms are not read.
    """
    if "form" not in fields:
        raise ConfigError("--embeddings are for forms", hint="add form to --fields")
    words: dict[str, Floats] = {}
    for word, row in _pairs(path):
        words.setdefault(word, row)
        if len(words) == MAX_VECTORS:
            break
    if not words:
        raise DataError("holds no word vectors", hint="give a file of word vectors", path=path)
    return WordVectors(tuple(words), _fitted(np.stack([*words.values()]), width))


def _pairs(path: str | Path) -> Iterator[tuple[str, Floats]]:
    width, others_have = 0, "the others"
    for number, line in enumerate(_lines(path), 1):
        parts = line.rstrip().split(" ")
        if number == 1 and len(parts) == 2 and (sizes := _SIZES.fullmatch(line.encode())):
            width, others_have = int(sizes[2]), "and the first line says"
            continue
        if not line.strip():
            continue
        # a word with spaces: the numbers are as many as in the first line
        split = max(1, len(parts) - width) if width else 1
        word = " ".join(parts[:split])
        try:
            row = np.asarray(parts[split:], np.float32)
        except ValueError:
            _refuse(f"the vector of {word!r} holds something that is no number", path, number)
        if not len(row) or not np.isfinite(row).all() or (width and len(row) != width):
            others = f", {others_have} {width}" if width else ""
            _refuse(f"the vector of {word!r} has {len(row)} numbers{others}", path, number)
        width = len(row)
        yield word, row


def _refuse(message: str, path: str | Path, line: int) -> NoReturn:
    raise DataError(
        message,
        hint="give each word as many finite numbers, separated by spaces",
        path=path,
        line=line,
    )


def _lines(path: str | Path) -> Iterator[str]:
    for block in read_blocks([path]):
        yield from block.decode().removesuffix("\n").split("\n")


def _fitted(rows: Floats, width: int) -> Floats:
    """Return rows of the given width, their numbers of the size that embeddings begin with."""
    if rows.shape[1] > width:
        _, directions = np.linalg.eigh(rows.T.astype(np.float64) @ rows)
        # `eigh` gives the direction of the least variance first
        rows = (rows @ directions[:, ::-1][:, :width]).astype(np.float32)
    fitted = np.zeros((len(rows), width), np.float32)
    fitted[:, : rows.shape[1]] = rows
    size = float(fitted.std())
    return (fitted * (_SCALE / size if size > 0 else 1.0)).astype(np.float32)
