"""The sparse matrix as it predicts, as a `LanguageModel`, and its directory.

    P(t | history) = sum of M_it / sum of M_i*,  i over the features of the history

with 1 / V for each word, times the weight of what was not seen, added to both. A row is found by
the key of its feature, a hash.

    model.json             settings, scores, data, sizes
    vocabulary.json        or tokenizer.model
    weights.safetensors    the matrix: "keys", "sums", "begins", "targets", "values" and so on

Each sentence begins at `<s>`; nothing is carried over from the one before. Shapes: H hypotheses, V
words, R the words that the longest feature reaches back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import types

from seqtool.core import checkpoint
from seqtool.core.arrays import Doubles, Floats, Ids, Ints
from seqtool.core.config import from_dict
from seqtool.core.errors import ConfigError, ModelError
from seqtool.core.jit import compiled
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.array_file import map_arrays, read_only, write_arrays
from seqtool.lm.model import LanguageModel
from seqtool.lm.protocol import Summary, TokenScores, summarise_by_steps
from seqtool.lm.snm.features import (
    NO_FEATURE,
    Counts,
    Keys,
    SnmConfig,
    Template,
    advance,
    as_arrays,
    empty_histories,
    feature_key,
    templates_type,
)
from seqtool.text.tokenizers import Tokenizer, load_tokenizer

_LAST_KEY = np.uint64(2**64 - 1)


class Matrix(NamedTuple):
    """The matrix of K templates, F features and P pairs.

    Attributes:
        keys: uint64 [F], of one template together, ascending.
        sums: float64 [F], M_i*.
        first: int32 [K + 1], the first feature of each template; then F.
        begins: int32 [F + 1], where the pairs of a feature begin.
        targets: int32 [P], ascending in a row.
        values: float32 [P], M_ij.
        unseen: float32 [1], the weight of 1 / V.
    """

    keys: Keys
    sums: Doubles
    first: Ints
    begins: Ints
    targets: Ints
    values: Floats
    unseen: Floats


_DTYPES = (np.uint64, np.float64, *[np.int32] * 3, np.float32, np.float32)
_ints = types.Array(types.int32, 1, "C", readonly=True)
_floats = types.Array(types.float32, 1, "C", readonly=True)
matrix_type = types.NamedTuple(
    (
        types.Array(types.uint64, 1, "C", readonly=True),
        types.Array(types.float64, 1, "C", readonly=True),
        *[_ints] * 3,
        *[_floats] * 2,
    ),
    Matrix,
)


def make_matrix(counts: Counts, values: Floats, unseen: float) -> Matrix:
    """Return the matrix of these counts.

    Args:
        counts: of the text.
        values: [P], M_ij.
        unseen: the weight of 1 / V.
    """
    return Matrix(
        keys=counts.keys,
        sums=_row_sums(values, counts.begins),
        first=counts.first.astype(np.int32),
        begins=counts.begins,
        targets=counts.targets,
        values=values,
        unseen=np.array([unseen], np.float32),
    )


def check(matrix: Matrix, num_templates: int, num_words: int) -> None:
    """Check all that `score` and `distributions` take for granted.

    No row or pair lies outside its array and no target outside the vocabulary; every probability is
    above 0, and those of all words sum to 1. Keys may be any.

    Raises:
        ValueError: an array is of another type or size, or holds what it may not.
    """
    num_rows, num_pairs = len(matrix.keys), len(matrix.targets)
    sizes = (num_rows, num_rows, num_templates + 1, num_rows + 1, num_pairs, num_pairs, 1)
    named = matrix._asdict().items()
    for (name, array), dtype, size in zip(named, _DTYPES, sizes, strict=True):
        if array.dtype != dtype or len(array) != size:
            raise ValueError(f"{name} is {array.dtype} [{len(array)}], not [{size}]")
    begins, first = matrix.begins, matrix.first
    for array, end in ((begins, num_pairs), (first, num_rows)):
        if array[0] != 0 or array[-1] != end or (array[1:] < array[:-1]).any():
            raise ValueError("rows or pairs do not go up to their number")
    if (begins[1:] == begins[:-1]).any():
        raise ValueError("a feature has no pairs")
    if not 0 <= matrix.targets.min() <= matrix.targets.max() < num_words:
        raise ValueError("targets holds a word outside the vocabulary")
    is_number = 0 <= matrix.values.min() <= matrix.values.max() < np.inf
    if not is_number or not np.allclose(matrix.sums, _row_sums(matrix.values, begins), atol=0):
        raise ValueError("values or their sums are no numbers from 0 on")
    if not 0 < matrix.unseen[0] < np.inf:
        raise ValueError(f"unseen is {matrix.unseen[0]:g}")


def _row_sums(values: Floats, begins: Ints) -> Doubles:
    """Return the sums of the rows, each of which has a pair."""
    sums: Doubles = np.add.reduceat(values, begins[:-1], dtype=np.float64)
    return sums


@compiled(types.int64(matrix_type, types.int64, types.uint64))
def _find(matrix, template, key):  # type: ignore[no-untyped-def]
    """Return the row of a feature, -1 if there is none."""
    low, high = np.int64(matrix.first[template]), np.int64(matrix.first[template + 1])
    below, above = np.uint64(0), _LAST_KEY
    # keys are hashes and lie evenly, so that their place can be guessed: a search by interpolation
    while low < high:
        share = np.float64(key - below) / np.float64(above - below)
        middle = low + min(np.int64(share * (high - low)), high - low - 1)
        here = matrix.keys[middle]
        if here == key:
            return middle
        if here < key:
            low, below = middle + 1, here
        else:
            high, above = middle, here
    return np.int64(-1)


@compiled(types.float64(matrix_type, types.int64, types.int32))
def _value(matrix, row, target):  # type: ignore[no-untyped-def]
    """Return M_ij; 0 where the two never came together."""
    low, high = np.int64(matrix.begins[row]), np.int64(matrix.begins[row + 1])
    while low < high:
        middle = (low + high) >> 1
        if matrix.targets[middle] < target:
            low = middle + 1
        else:
            high = middle
    is_there = low < matrix.begins[row + 1] and matrix.targets[low] == target
    return np.float64(matrix.values[low]) if is_there else 0.0


@compiled(
    types.void(
        matrix_type,
        templates_type,
        types.int32[::1],
        types.int32[::1],
        types.int32,
        types.float64[::1],
        types.int32[::1],
    )
)
def score(matrix, templates, history, ids, num_words, log_probs, num_features):  # type: ignore[no-untyped-def]
    """Score whole sentences, each from `<s>`.

    Args:
        matrix: of K templates.
        templates: these.
        history: that of the beginning of a sentence, as of `empty_histories`; it is changed.
        ids: [T], `EOS_ID` after each sentence.
        num_words: V.
        log_probs: [T] is filled, nats.
        num_features: [T] is filled: how many features of the history have a row.
    """
    for token in range(ids.shape[0]):
        above, below = np.float64(matrix.unseen[0]) / num_words, np.float64(matrix.unseen[0])
        found = 0
        for template in range(templates.reach.shape[0]):
            key = feature_key(templates, template, history)
            if key != NO_FEATURE:
                row = _find(matrix, template, key)
                if row >= 0:
                    above += _value(matrix, row, ids[token])
                    below += matrix.sums[row]
                    found += 1
        log_probs[token], num_features[token] = np.log(above / below), found
        advance(history, ids[token], num_words)


@compiled(types.void(matrix_type, templates_type, types.int32[:, ::1], types.float64[:, ::1]))
def distributions(matrix, templates, histories, log_probs):  # type: ignore[no-untyped-def]
    """Fill the nats of all words, [H, V], after some histories, [H, the longest reach]."""
    num_words = log_probs.shape[1]
    for hypothesis in range(histories.shape[0]):
        of_words = log_probs[hypothesis]
        of_words[:] = np.float64(matrix.unseen[0]) / num_words
        below = np.float64(matrix.unseen[0])
        for template in range(templates.reach.shape[0]):
            key = feature_key(templates, template, histories[hypothesis])
            if key != NO_FEATURE:
                row = _find(matrix, template, key)
                if row >= 0:
                    for pair in range(matrix.begins[row], matrix.begins[row + 1]):
                        of_words[matrix.targets[pair]] += matrix.values[pair]
                    below += matrix.sums[row]
        for word in range(num_words):
            of_words[word] = np.log(of_words[word] / below)


class SnmModel(LanguageModel):
    """A matrix with its features and its tokenizer.

    A state is int32 [H, R]: the words before, the last one first, -1 before the sentence.
    """

    kind = "snm"
    carries_state = False

    def __init__(self, matrix: Matrix, templates: Sequence[Template], tokenizer: Tokenizer) -> None:
        self.matrix = Matrix(**{name: read_only(array) for name, array in matrix._asdict().items()})
        self.tokenizer = tokenizer
        self._templates = as_arrays(templates)
        self._vocabulary_size = len(tokenizer.vocabulary)

    @property
    def num_parameters(self) -> int:
        """The elements of the matrix, and the weight of what was not seen."""
        return len(self.matrix.values) + 1

    def score_ids(
        self, blocks: Iterable[Ids], *, reset_state: bool = False, summary: Summary | None = None
    ) -> Iterator[TokenScores]:
        """Yield nats, and how many features of the history are known, of every token of a block."""
        if summary is not None:
            yield from summarise_by_steps(self, blocks, summary, reset_state=reset_state)
            return
        for ids in blocks:
            if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self._vocabulary_size:
                raise ValueError("an id is outside the vocabulary")
            log_probs, num_features = np.empty(len(ids)), np.empty(len(ids), np.int32)
            history = self.start(1)[0]
            ids = np.ascontiguousarray(ids, np.int32)
            size = self._vocabulary_size
            score(self.matrix, self._templates, history, ids, size, log_probs, num_features)
            yield TokenScores(log_probs, {"features": num_features})

    def start(self, num: int) -> Ints:
        """Return `num` hypotheses that have read `<s>`."""
        return empty_histories(num, self._templates, self._vocabulary_size)

    def advance(self, state: Ints, tokens: Ids) -> Ints:
        """Read one token per hypothesis; after `</s>` it stands at `<s>` again."""
        after = np.concatenate((np.asarray(tokens, np.int32)[:, None], state[:, :-1]), axis=1)
        after = after[:, : state.shape[1]]  # of single words, none is kept
        ended = np.flatnonzero(np.asarray(tokens) == EOS_ID)
        after[ended] = self.start(len(ended))
        return after

    def next_log_probs(self, state: Ints) -> Doubles:
        """Return [H, V] nats; work grows with V and the targets of the features."""
        log_probs = np.empty((len(state), self._vocabulary_size))
        distributions(self.matrix, self._templates, np.ascontiguousarray(state), log_probs)
        return log_probs


def save_model(path: str | Path, model: SnmModel, **about: Any) -> None:
    """Write a model directory, whole or not at all; replace what is there.

    Args:
        path: the directory.
        model: what to write.
        about: what `checkpoint.Header` tells beside the model's kind, size and tokenizer.

    Raises:
        OSError: it cannot be written.
    """
    header = checkpoint.Header(
        kind=SnmModel.kind,
        tokenizer=model.tokenizer.describe(),
        num_parameters=model.num_parameters,
        **about,
    )

    def fill(directory: Path) -> None:
        model.tokenizer.save(directory)
        write_arrays(directory / checkpoint.WEIGHTS, model.matrix._asdict())

    checkpoint.save(path, header, _model_card(header, model), fill)


def load_model(directory: Path, header: checkpoint.Header, *, device: str = "cpu") -> SnmModel:
    """Open a model: its matrix is mapped into memory, and stays there whatever the device.

    Raises:
        ModelError: a file is missing or damaged, or matrix, settings and vocabulary do not fit.
    """
    checkpoint.verify(directory, header)
    tokenizer = load_tokenizer(directory, header.tokenizer)
    weights = directory / checkpoint.WEIGHTS
    try:
        templates = from_dict(SnmConfig, header.config).templates
        matrix = Matrix(**map_arrays(weights))
        check(matrix, len(templates), len(tokenizer.vocabulary))
    except (ValueError, TypeError, OSError, ConfigError) as error:
        hint = "copy the model again, or train it again"
        raise ModelError(f"damaged weights: {error}", hint=hint, path=weights) from error
    return SnmModel(matrix, templates, tokenizer)


def _model_card(header: checkpoint.Header, model: SnmModel) -> str:
    """Return the README.md of a model: what it is, its scores, its data and its command."""
    sizes = [
        (name.replace("_", " "), f"{value:,}")
        for name, value in header.data.items()
        if type(value) is int
    ]
    matrix = model.matrix
    return checkpoint.compose(
        header,
        "Sparse non-negative matrix language model",
        f"{len(matrix.keys):,} features with {len(matrix.values):,} pairs of a feature and a "
        f"target, over {header.tokenizer['unit']} units.",
        checkpoint.scores_table(header),
        checkpoint.table(("data", "number"), sizes),
        "Perplexity counts every token and the sentence end; unknown words are included.",
        maker="train_snm (Python)",
        use=("seqtool eval-ppl TEXT -m THIS_DIRECTORY",),
    )
