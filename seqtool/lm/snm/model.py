"""A sparse non-negative matrix as a `LanguageModel`, and its directory.

    model.json             settings, scores, data, sizes
    vocabulary.json        or tokenizer.model
    weights.safetensors    the matrix: "keys", "sums", "begins", "targets", "values" and so on

Each sentence begins at `<s>`; nothing is carried over from the one before. Shapes: H hypotheses, V
words, R the words that the longest feature reaches back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from seqtool.core import checkpoint
from seqtool.core.arrays import Doubles, Ids, Ints
from seqtool.core.config import from_dict
from seqtool.core.errors import ConfigError, ModelError
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.array_file import map_arrays, read_only, write_arrays
from seqtool.lm.model import LanguageModel
from seqtool.lm.protocol import TokenScores
from seqtool.lm.snm.config import SnmConfig
from seqtool.lm.snm.features import Template, as_arrays, empty_histories
from seqtool.lm.snm.matrix import Matrix, distributions, from_arrays, score
from seqtool.text.tokenizers import Tokenizer, load_tokenizer


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
        self, blocks: Iterable[Ids], *, reset_state: bool = False
    ) -> Iterator[TokenScores]:
        """Yield nats, and how many features of the history are known, of every token of a block."""
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

    def select(self, state: Ints, rows: npt.NDArray[np.intp]) -> Ints:
        """Keep, repeat or re-order hypotheses."""
        chosen: Ints = state[rows]
        return chosen


def save_model(
    path: str | Path,
    model: SnmModel,
    *,
    config: Mapping[str, Any],
    scores: Mapping[str, float],
    data: Mapping[str, Any],
    statistics: Mapping[str, Any],
    command: str = "",
) -> None:
    """Write a model directory, whole or not at all.

    Args:
        path: the directory; what is there is replaced.
        model: what to write.
        config: the resolved settings.
        scores: what was measured.
        data: where the text came from and how large it was.
        statistics: "features" and "pairs", per kind of features.
        command: the command that made the model.

    Raises:
        OSError: it cannot be written.
    """
    header = checkpoint.Header(
        kind=SnmModel.kind,
        config=dict(config),
        tokenizer=model.tokenizer.describe(),
        scores=dict(scores),
        data=dict(data),
        command=command,
        num_parameters=model.num_parameters,
        statistics=dict(statistics),
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
        arrays = map_arrays(weights)
        matrix = from_arrays(arrays, len(templates), len(tokenizer.vocabulary))
    except (ValueError, OSError, ConfigError) as error:
        hint = "copy the model again, or train it again"
        raise ModelError(f"damaged weights: {error}", hint=hint, path=weights) from error
    return SnmModel(matrix, templates, tokenizer)


def _model_card(header: checkpoint.Header, model: SnmModel) -> str:
    """Return the README.md of a model: what it is, its scores, its data and its command."""
    sizes = [
        (name.replace("_", " "), f"{value:,}")
        for name, value in header.data.items()
        if isinstance(value, int) and not isinstance(value, bool)
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
