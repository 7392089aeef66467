"""What segmenter, tagger and parser share: their directory, their ensembles, work in chunks.

model.json, README.md   as of every model
vocabulary.json         the tables that tell what the rows of the arrays stand for
weights.safetensors     the arrays of the network, by their names there
"""

from __future__ import annotations

import copy
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, Self

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from seqtool.core import checkpoint
from seqtool.core.arrays import Floats
from seqtool.core.checkpoint import Header
from seqtool.core.config import Config, from_dict, to_dict
from seqtool.core.errors import ConfigError, ModelError
from seqtool.core.one_line import OneLine
from seqtool.core.runtime import one_blas_thread
from seqtool.core.vocabulary import Vocabulary
from seqtool.parsing.config import C
from seqtool.parsing.sparse.engine import SEEN
from seqtool.parsing.unknown_words import UNKNOWN_SHARE
from seqtool.treebank.conllu import Broken, Item, SentenceBatch, no_item
from seqtool.treebank.sentence import Sentence

VOCABULARY = "vocabulary.json"
CHUNK_BYTES = 1 << 24  # of text, about, that a chunk holds: few words may have long comments
# arrays of these types are kept as they are: weights of less precision, and bits
NARROW = (np.dtype(np.float16), np.dtype(np.uint8))
LEXICAL = "lexical.weight"  # the vectors of forms and their parts, of a network that has them

# Models work in one thread at a time: they have memory that is used again, and number the types of
# words as they meet them; and the number of BLAS threads is one of the whole process.
AT_WORK = threading.RLock()

Shapes = Mapping[str, tuple[int, ...]]


@contextmanager
def at_work() -> Iterator[None]:
    """Compute with a model: no other thread does, and BLAS has one thread.

    On several threads, products as small as those of these models take longer.
    """
    with AT_WORK, one_blas_thread():
        yield


class TreebankModel(OneLine, ABC, Generic[C]):
    """A trained segmenter, tagger or parser, or an ensemble of several.

    Args:
        config: all settings.
        weights: the arrays of the network, by their names there.

    Attributes:
        kind: of the model directory.
        config_class: the class of the settings.
        works: what several of them do together, as a message says it ("tag").
        scores: what was measured on the validation part, where it was opened from a directory.
        data: what its header tells of that part and of the rest of the treebank, if it was.
        unknown_share: of the words of that part, how many it does not know: see `Known.usual`.
    """

    shown = ("kind", "scores", "unknown_share")

    kind: ClassVar[str]
    config_class: ClassVar[type[Config]]
    works: ClassVar[str] = "work"
    _joined: Sequence[Self] = ()  # the members of an ensemble

    def __init__(self, config: C, weights: Mapping[str, Floats]) -> None:
        self.config, self.weights = config, weights
        self.scores: Mapping[str, float] = {}
        self.data: Mapping[str, Any] = {}
        self.unknown_share: float | None = None

    @property
    def members(self) -> Sequence[Self]:
        """Those of an ensemble, this one first; itself alone otherwise."""
        # not kept: a model that holds itself is not freed before the garbage is collected
        return self._joined or [self]

    @property
    @abstractmethod
    def vocabulary(self) -> Vocabulary:
        """What it knows beside its weights."""

    @property
    def stored_as(self) -> type[np.floating[Any]]:
        """The precision of weights in the file: float32, or float16 where they all are such."""
        return np.float32

    @property
    @abstractmethod
    def shared(self) -> object:
        """What all members of an ensemble must have alike."""

    @classmethod
    @abstractmethod
    def restore(
        cls,
        config: C,
        vocabulary: Vocabulary,
        read_weights: Callable[[Shapes], dict[str, Floats]],
    ) -> Self:
        """Return the model that was saved; `read_weights` reads arrays of such shapes.

        Raises:
            KeyError, TypeError, ValueError: these do not fit each other.
        """

    @staticmethod
    @abstractmethod
    def card(header: Header) -> str:
        """Return the README.md: what the model is, its scores, its data and its command."""

    def ensemble(self, others: Sequence[Self]) -> Self:
        """Return an ensemble of this model and others: it goes by the average of their scores.

        Args:
            others: trained on the same data with the same settings, from other seeds.

        Raises:
            ModelError: one differs in more than its weights.
        """
        for other in others:
            if self.shared != other.shared:
                raise ModelError(
                    f"{self.kind}s of different treebanks or settings cannot {self.works} together",
                    hint="train them on the same files, with settings that differ in the seed only",
                )
        together = self.copy()
        together._joined = [member for model in (self, *others) for member in model.members]
        return together

    def tune(self, data: Any) -> None:
        """Fit what is fitted to the validation part once the weights are known: nothing.

        Args:
            data: what it was trained on.
        """

    def copy(self) -> Self:
        """Return a copy that shares the arrays."""
        return copy.copy(self)

    def save(
        self,
        directory: Path,
        *,
        scores: Mapping[str, float],
        data: Mapping[str, Any],
        command: str = "",
        versions: Mapping[str, str] | None = None,
    ) -> None:
        """Write the model directory: what the header tells, vocabulary, weights and card."""
        unknown = (
            {} if self.unknown_share is None else {UNKNOWN_SHARE: round(self.unknown_share, 4)}
        )
        header = Header(
            kind=self.kind,
            config=to_dict(self.config),
            tokenizer={},
            scores=dict(scores),
            data={**data, **unknown},
            command=command,
            num_parameters=sum(
                array.size for array in self.weights.values() if array.dtype != np.uint8
            ),
            versions=dict(versions or {}),
        )

        def fill(target: Path) -> None:
            self.vocabulary.save(target / VOCABULARY)
            weights = {
                name: np.ascontiguousarray(
                    array, array.dtype if array.dtype in NARROW else self.stored_as
                )
                for name, array in self.weights.items()
            }
            save_file(weights, target / checkpoint.WEIGHTS)

        checkpoint.save(directory, header, self.card(header), fill)

    @classmethod
    def load(cls, directory: Path, header: Header, *, device: str = "cpu", **more: Any) -> Self:
        """Open a model directory; the model works on the CPU, whatever the device.

        What a kind of model needs beside, `more`, its `restore` is given.

        Raises:
            ModelError: a file is missing or damaged.
        """
        checkpoint.verify(directory, header)
        try:
            model = cls.restore(
                from_dict(cls.config_class, header.config),  # type: ignore[arg-type]
                Vocabulary.load(directory / VOCABULARY),
                partial(_read_weights, directory),
                **more,
            )
        except (ConfigError, ValueError, LookupError, TypeError, SafetensorError) as error:
            raise ModelError(
                f"the {header.kind} does not fit its own description",
                hint="train it again",
                path=directory,
            ) from error
        model.scores, model.data = header.scores, header.data
        share = header.data.get(UNKNOWN_SHARE)
        model.unknown_share = float(share) if isinstance(share, int | float) else None
        return model


def _read_weights(directory: Path, shapes: Shapes) -> dict[str, Floats]:
    """Return the arrays of a model, or raise ValueError or SafetensorError where they differ."""
    weights = load_file(directory / checkpoint.WEIGHTS)
    if {name: array.shape for name, array in weights.items()} != shapes:
        raise ValueError("arrays of other shapes")
    for name, array in weights.items():
        kinds = (np.uint8,) if name == SEEN else (np.float16, np.float32)
        # what is not finite would be an index later, as the place of the largest score
        if array.dtype not in kinds or not np.isfinite(array).all():
            raise ValueError(f"{name} holds other than numbers")
    return {
        name: array if array.dtype == np.uint8 else array.astype(np.float32, copy=False)
        for name, array in weights.items()
    }


def average(scores: Sequence[Floats]) -> Floats:
    """Return the average of arrays; the first one is changed."""
    total = scores[0]
    for more in scores[1:]:
        total += more
    if len(scores) > 1:
        total /= len(scores)
    return total


def chunks(items: Iterable[Item], num_words: int) -> Iterator[list[Item]]:
    """Give items in lists of about `num_words` words; no list holds much text besides.

    Raises:
        TypeError: when iterated: an item is something else.
    """
    chunk: list[Item] = []
    size = num_broken = num_bytes = 0
    stretch = b""
    for item in items:
        chunk.append(item)
        if isinstance(item, SentenceBatch):
            size += len(item.words)
            # batches of one stretch hold it once
            num_bytes += len(item.stretch) if item.stretch is not stretch else 0
            stretch = item.stretch
        elif isinstance(item, Sentence):
            size += len(item)
            num_bytes += sum(map(len, item.comments))
        elif isinstance(item, Broken):
            num_broken += item.num_lines
            num_bytes += len(item.text)
        else:
            raise no_item(item)
        if max(size, num_broken) >= num_words or num_bytes >= CHUNK_BYTES:
            yield chunk
            chunk, size, num_broken, num_bytes, stretch = [], 0, 0, 0, b""
    if chunk:
        yield chunk


def in_chunks(
    items: Iterable[Sentence | Broken], num_words: int, work: Callable[[list[Sentence]], None]
) -> Iterator[Sentence | Broken]:
    """Do work on the sentences of `chunks`, and give the items in their places."""
    for chunk in chunks(items, num_words):
        work([item for item in chunk if isinstance(item, Sentence)])
        yield from chunk  # type: ignore[misc]  # there are no batches
