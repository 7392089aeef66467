"""The files of a model directory that parser, tagger and segmenter share.

model.json, README.md   as of every model
vocabulary.json         what the rows of the arrays stand for, by the kind of model
weights.safetensors     the arrays of its network, by their names there
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from seqtool.core import checkpoint, storage
from seqtool.core.arrays import Floats
from seqtool.core.checkpoint import Header
from seqtool.core.config import Config, to_dict
from seqtool.core.errors import ConfigError, ModelError

VOCABULARY = "vocabulary.json"


class Network(Protocol):
    """A model that is an array for each name."""

    @property
    def kind(self) -> str:
        """Of the model."""

    @property
    def config(self) -> Config:
        """All settings."""

    @property
    def weights(self) -> Mapping[str, Floats]:
        """The arrays."""


def save_network(
    directory: Path,
    model: Network,
    vocabulary: Mapping[str, Any],
    card: Callable[[Header], str],
    *,
    scores: Mapping[str, float],
    data: Mapping[str, Any],
    command: str,
    versions: Mapping[str, str] | None,
) -> None:
    """Write a model directory.

    Args:
        directory: to be made.
        model: what is written.
        vocabulary: JSON, as it is to be read again.
        card: makes the model card.
        scores: of the model.
        data: what it was trained on.
        command: what made it.
        versions: of libraries.
    """
    header = Header(
        kind=model.kind,
        config=to_dict(model.config),
        tokenizer={},
        scores=dict(scores),
        data=dict(data),
        command=command,
        num_parameters=sum(array.size for array in model.weights.values()),
        versions=dict(versions or {}),
    )

    def fill(target: Path) -> None:
        storage.write_json(target / VOCABULARY, vocabulary)
        weights = {name: np.ascontiguousarray(array) for name, array in model.weights.items()}
        save_file(weights, target / checkpoint.WEIGHTS)

    checkpoint.save(directory, header, card(header), fill)


@contextmanager
def opening(directory: Path, header: Header) -> Iterator[dict[str, Any]]:
    """Verify a model directory, and give its vocabulary to the block that makes the model of it.

    Raises:
        ModelError: a file is missing or damaged, or the block fails at what it is given.
    """
    checkpoint.verify(directory, header)
    try:
        yield storage.read_object(directory / VOCABULARY)
    except (ConfigError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise ModelError(
            f"the {header.kind} does not fit its own description",
            hint="train it again",
            path=directory,
        ) from error


def read_weights(directory: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Floats]:
    """Read the arrays of a model.

    Raises:
        ValueError, SafetensorError: they are damaged, or not those of the shapes.
    """
    weights = load_file(directory / checkpoint.WEIGHTS)
    if {name: array.shape for name, array in weights.items()} != shapes:
        raise ValueError("arrays of other shapes")
    return weights


def mean(scores: Sequence[Floats]) -> Floats:
    """The mean of arrays; the first one is changed."""
    total, *others = scores
    for more in others:
        total += more
    if others:
        total /= len(scores)
    return total
