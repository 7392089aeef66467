"""Words as a language model reads them: its hidden state after each word of a sentence.

A tagger or parser that was trained with `--lm` has a copy of the model in its directory, `lm/`. It
stays as it is; what is learnt is how its states are projected (Peters et al. 2017). Every sentence
is read from the beginning of a text, and words are split into the model's own units, with a space
between two of them where its units are smaller than words. Torch is imported by opening the model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqtool.core import checkpoint
from seqtool.core.arrays import Floats, Halves, Ids
from seqtool.core.checkpoint import Header
from seqtool.core.errors import ConfigError, ModelError, counted
from seqtool.lm.protocol import SentenceReader
from seqtool.text.tokenizers import WordTokenizer

FOLDER = "lm"  # of a tagger's or parser's directory
WEIGHT = "lm.weight"  # the projection's, [lm_size, P], among those of a network that has one
BATCH_IDS = 1 << 12  # read together, padding included
MAX_WORDS = 1 << 16  # whose ids are remembered
LARGEST = 60_000.0  # what float16 can hold, of units without bounds


class WordStates:
    """A language model that reads sentences.

    States are float16: those of a treebank are all kept in training, and what is parsed later is
    to be read in the same way.

    Args:
        model: the language model.
        about: what tells it from others, see `describe`.
        keep: remember the states of every sentence, for sentences that are read again and again.
    """

    def __init__(
        self, model: SentenceReader, about: Mapping[str, Any], *, keep: bool = False
    ) -> None:
        self._model, self.about = model, dict(about)
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
        return self._model.state_size

    def of(self, sentences: Sequence[Sequence[str]]) -> list[Halves]:
        """Return the states of sentences, each [1 + words, P]: before its words, and after each.

        They are those after the last unit of a word; a word without any, which some models of
        pieces may have, leaves the state as it is.

        Args:
            sentences: the forms of each.
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
            if batch and (len(batch) + 1) * lengths[place] > BATCH_IDS:
                self._read_batch(split, batch, results)
                batch = []
            batch.append(place)
        self._read_batch(split, batch, results)
        return results

    def _read_batch(
        self, split: Sequence[tuple[Ids, Ids]], batch: Sequence[int], results: list[Halves]
    ) -> None:
        states = self._model.sentence_states([split[place][0] for place in batch])
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
    """Return what a card says of the language model that a model reads; nothing without one.

    Args:
        data: of the model's header.
        folders: those that it is in, in a model of several parts.
    """
    if "lm_sum" not in data:
        return ""
    return (
        f"It reads the states of a language model of {data['lm_unit']} units, which is in "
        f"{' and '.join(f'`{folder}/`' for folder in folders or [FOLDER])}: "
        f"{counted(data['lm_parameters'], 'parameter')}, {data['lm_bytes'] / 1e6:.1f} MB."
    )


def project(states: Sequence[Halves], weight: Floats) -> Floats:
    """Return the projected states of sentences, one after another, [T, R].

    Args:
        states: of each sentence, [words, P].
        weight: [R, P].
    """
    none = np.empty((0, weight.shape[1]), np.float16)  # of no sentences
    projected: Floats = np.concatenate([none, *states]).astype(np.float32) @ weight.T
    return projected


def open_word_states(path: str | Path, *, device: str = "cpu", keep: bool = False) -> WordStates:
    """Open a language model.

    Args:
        path: its directory.
        device: where it runs.
        keep: see `WordStates`.

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
    """Open the language model of a tagger or parser, if it has one.

    Args:
        directory: of the model, or its `best/` while it is in training.
        data: of its header.

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

    Args:
        path: its directory.
        output: that of the run.

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
    """Open the language model that a run is trained with, if any: its own copy.

    Args:
        path: as it was given.
        output: the directory of the run.
        resume: whether the copy is there.
        device: where it runs.

    Raises:
        ModelError, ConfigError: as `check_given`.
    """
    if path is None:
        return None
    if not resume:
        check_given(path, output)
        checkpoint.copy(path, output / FOLDER)
    return open_word_states(output / FOLDER, device=device, keep=True)
