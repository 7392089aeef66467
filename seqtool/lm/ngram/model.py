"""An n-gram model as a `LanguageModel`, and its directory.

    model.json             settings, scores, data, what was counted per order
    vocabulary.json        or tokenizer.model
    weights.safetensors    the table: "1.log_probs", "1.backoffs", "2.words", "2.begins" and so on

Each sentence begins at `<s>`; nothing is carried over from the one before. Shapes: H hypotheses, V
words, N the order.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from seqtool.core import checkpoint
from seqtool.core.arrays import Bools, Doubles, Ids
from seqtool.core.errors import ModelError
from seqtool.core.vocabulary import EOS_ID, UNK_ID
from seqtool.lm.array_file import map_arrays, write_arrays
from seqtool.lm.model import LanguageModel
from seqtool.lm.ngram.table import BackoffTable, Int32
from seqtool.lm.protocol import Summary, TokenScores, class_log_probs, entropies
from seqtool.text.tokenizers import Tokenizer, WordTokenizer, load_tokenizer

if TYPE_CHECKING:
    from seqtool.lm.ngram.class_probabilities import ClassProbabilities
    from seqtool.lm.ngram.query import Scorer

CONTEXTS_READ = 64  # whose distributions are in memory at once


class TableModel(LanguageModel):
    """A model whose n-grams, of words or of something else, are in a backoff table.

    Attributes:
        table: of the n-grams.
    """

    carries_state = False

    def __init__(self, table: BackoffTable, tokenizer: Tokenizer) -> None:
        self.table = table
        self.tokenizer = tokenizer

    @property
    def order(self) -> int:
        """The length of the longest n-grams."""
        return self.table.order

    @property
    def num_parameters(self) -> int:
        """The probabilities and backoff weights."""
        return sum(len(array) for array in self.arrays().values() if array.dtype == np.float32)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return what a file holds."""
        return self.table.arrays()


class NgramModel(TableModel):
    """A backoff table of words with its tokenizer.

    A state is int32 [H, N - 1]: in column n - 1 the row of the last n words at order n, -1 where
    the table does not hold them.
    """

    kind = "ngram"

    def __init__(self, table: BackoffTable, tokenizer: Tokenizer) -> None:
        super().__init__(table, tokenizer)
        self._of_class: tuple[bytes, ClassProbabilities] | None = (
            None  # of the class asked for last
        )

    @cached_property
    def _scorer(self) -> Scorer:
        from seqtool.lm.ngram.query import Scorer

        return Scorer(self.table)

    def score_ids(
        self, blocks: Iterable[Ids], *, reset_state: bool = False, summary: Summary | None = None
    ) -> Iterator[TokenScores]:
        """Yield nats, and the order of the n-gram that was matched, of every token of a block.

        A summary is found once for each different context.
        """
        for ids in blocks:
            if summary is None:
                log_probs, orders = self._scorer.score(ids)
                yield TokenScores(log_probs, {"order": orders})
                continue
            class_V = summary.class_V
            # of the class alone, contexts are asked for where a token is of it
            places = None
            if class_V is not None and not summary.entropy:
                places = np.flatnonzero(class_V[ids])
            num = len(ids) if places is None else len(places)
            contexts = np.empty((num, self.order - 1), np.int32)
            log_probs, orders = self._scorer.score(ids, contexts, places)
            of_class = entropies_T = None
            if class_V is not None:
                of_class = np.zeros(len(ids))
                of_those = self._class_probabilities(class_V).log_probs(contexts)
                of_class[slice(None) if places is None else places] = of_those
            if summary.entropy:
                entropies_T = self.of_distributions(contexts, entropies)
            yield TokenScores(log_probs, {"order": orders}, of_class, entropies_T)

    def read(self, ids: Ids) -> tuple[Doubles, npt.NDArray[np.int16], Int32]:
        """Return the nats, the order matched and the state before it of every token, [T, ...]."""
        contexts = np.empty((len(ids), self.order - 1), np.int32)
        return *self._scorer.score(ids, contexts), contexts

    def _class_probabilities(self, class_V: Bools) -> ClassProbabilities:
        """Return what sums the probabilities of a class, which keeps what it found."""
        from seqtool.lm.ngram.class_probabilities import ClassProbabilities

        key = class_V.tobytes()
        if self._of_class is None or self._of_class[0] != key:
            sum_whole = partial(
                self.of_distributions, figure=partial(class_log_probs, class_V=class_V)
            )
            self._of_class = key, ClassProbabilities(self.table, class_V, sum_whole)
        return self._of_class[1]

    def of_distributions(self, contexts: Int32, figure: Callable[[Doubles], Doubles]) -> Doubles:
        """Return a figure of the distribution in each context, [T].

        Args:
            contexts: [T, N - 1], states; each different one is asked for once.
            figure: takes some distributions, [H, V] nats, and returns [H].
        """
        different, which = _unique_rows(contexts)
        parts = [
            figure(self.next_log_probs(different[start : start + CONTEXTS_READ]))
            for start in range(0, len(different), CONTEXTS_READ)
        ]
        found: Doubles = np.concatenate([np.zeros(0), *parts])[which]
        return found

    def start(self, num: int) -> Int32:
        """Return `num` hypotheses that have read `<s>`."""
        state = np.full((num, self.order - 1), -1, np.int32)
        state[:, :1] = self.table.vocabulary_size
        return state

    def advance(self, state: Int32, tokens: Ids) -> Int32:
        """Read one token per hypothesis; after `</s>` it stands at `<s>` again."""
        after = self.start(len(tokens))
        for hypothesis, (contexts, token) in enumerate(zip(state, tokens.tolist(), strict=True)):
            if token == EOS_ID or self.order == 1:
                continue
            after[hypothesis, 0] = token
            for n in range(2, self.order):
                after[hypothesis, n - 1] = self._find(n, int(contexts[n - 2]), token)
        return after

    def _find(self, order: int, context: int, word: int) -> int:
        """Return the row at `order` of a context (a row of the order below) and a word, or -1."""
        if context < 0:
            return -1
        level = self.table.levels[order - 1]
        begin, end = level.begins[context : context + 2].tolist()
        words = level.words[begin:end]
        place = int(np.searchsorted(words, np.int32(word)))
        return begin + place if place < len(words) and words[place] == word else -1

    def next_log_probs(self, state: Int32) -> npt.NDArray[np.float64]:
        """Return [H, V] nats; work grows with V and the continuations that the contexts have."""
        levels = self.table.levels
        # a last column for `<s>`, in case that a table has it as a continuation
        result = np.tile(levels[0].log_probs.astype(np.float64), (len(state), 1))
        for log_probs, contexts in zip(result, state.tolist(), strict=True):
            for below, level, context in zip(levels[:-1], levels[1:], contexts, strict=True):
                if context < 0:
                    continue
                begin, end = level.begins[context : context + 2].tolist()
                log_probs += below.backoffs[context]
                log_probs[level.words[begin:end]] = level.log_probs[begin:end]
        return result[:, :-1]


def _unique_rows(rows: Int32) -> tuple[Int32, npt.NDArray[np.intp]]:
    """Return the different rows, and which of them each row is."""
    if not rows.shape[1]:  # of order 1, with one context
        return rows[:1], np.zeros(len(rows), np.intp)
    different, which = np.unique(rows, axis=0, return_inverse=True)
    return different, which.reshape(-1)


def save_model(
    path: str | Path,
    model: TableModel,
    *,
    config: Mapping[str, Any],
    weights: Path | None = None,
    scores: Mapping[str, float] | None = None,
    data: Mapping[str, Any] | None = None,
    command: str = "",
    statistics: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Write a model as a directory, replacing what is there.

    Args:
        path: the directory.
        model: what to write.
        config: the resolved settings.
        weights: a file of its arrays, which is moved into the directory; written when None.
        scores: what was measured.
        data: where the text came from and how large it was.
        command: the command that made the model.
        statistics: what was counted per order.

    Raises:
        OSError: it cannot be written.
    """
    header = checkpoint.Header(
        kind=model.kind,
        config=dict(config),
        tokenizer=model.tokenizer.describe(),
        scores=dict(scores or {}),
        data=dict(data or {}),
        command=command,
        num_parameters=model.num_parameters,
        statistics={"orders": [dict(order) for order in statistics]},
    )

    def fill(directory: Path) -> None:
        model.tokenizer.save(directory)
        if weights is None:
            write_arrays(directory / checkpoint.WEIGHTS, model.arrays())
        else:
            shutil.move(weights, directory / checkpoint.WEIGHTS)

    sizes = [len(level) for level in model.table.levels]
    checkpoint.save(path, header, model_card(header, sizes), fill)


def load_model(directory: Path, header: checkpoint.Header, *, device: str = "cpu") -> NgramModel:
    """Open an n-gram model: its table is mapped into memory, and nothing is built.

    The table stays where it is, whatever the device.

    Raises:
        ModelError: a file is missing or damaged, or vocabulary and table do not fit.
    """
    with mapped_weights(directory, header) as (arrays, tokenizer):
        rows, symbols = len(arrays.get("1.log_probs", ())), len(tokenizer.vocabulary)
        if rows != symbols + 1:
            raise ModelError(
                f"the vocabulary has {symbols:,} symbols, but the table is for {rows - 1:,}",
                hint="use the vocabulary that the model was trained with",
                path=directory,
            )
        return NgramModel(BackoffTable.from_arrays(arrays, symbols), tokenizer)


@contextmanager
def mapped_weights(
    directory: Path, header: checkpoint.Header
) -> Iterator[tuple[dict[str, npt.NDArray[Any]], Tokenizer]]:
    """Give the arrays of a model and its tokenizer; errors of the block name the file.

    Raises:
        ModelError: a file is missing or damaged.
    """
    checkpoint.verify(directory, header)
    tokenizer = load_tokenizer(directory, header.tokenizer)
    weights = directory / checkpoint.WEIGHTS
    try:
        yield map_arrays(weights), tokenizer
    except (ValueError, KeyError, OSError) as error:
        hint = "copy the model again, or train it again"
        raise ModelError(f"damaged weights: {error}", hint=hint, path=weights) from error


def load_arpa(path: Path) -> NgramModel | None:
    """Open an ARPA file as a model of words; None if it is not such a file.

    Raises:
        ModelError: the file is damaged.
    """
    from seqtool.lm.ngram.arpa import is_arpa, read_arpa

    if not is_arpa(path):
        return None
    table, vocabulary = read_arpa(path)
    return NgramModel(table, WordTokenizer(vocabulary))


def lacks_unknown(model: object) -> bool:
    """Whether a model comes from an ARPA file without `<unk>`, whose log10 probability is -100."""
    from seqtool.lm.ngram.arpa import MISSING_NATS

    if not isinstance(model, NgramModel):
        return False
    return bool(model.table.levels[0].log_probs[UNK_ID] == np.float32(MISSING_NATS))


def model_card(header: checkpoint.Header, sizes: Sequence[int]) -> str:
    """Return the README.md of a model: what it is, its scores, its data and its command.

    Args:
        header: of the model.
        sizes: the number of n-grams per order.
    """
    numbers = [
        (name.replace("_", " "), f"{value:,}")
        for name, value in header.data.items()
        if isinstance(value, int) and not isinstance(value, bool)
    ]
    origin = "mixed of others" if "mixed_of" in header.data else "imported"
    smoothing = header.config.get("smoothing", origin)
    orders = [(str(order), f"{size:,}") for order, size in enumerate(sizes, start=1)]
    of_classes, use = "", ["seqtool ngram export THIS_DIRECTORY model.arpa"]
    if "classes" in header.data:
        of_classes, use = f" of {header.data['classes']:,} word classes", []
    return checkpoint.compose(
        header,
        f"{len(sizes)}-gram language model{of_classes}",
        f"Smoothing: {smoothing}; {sum(sizes):,} n-grams over {header.tokenizer['unit']} units.",
        checkpoint.table(("order", "n-grams"), orders),
        checkpoint.scores_table(header),
        checkpoint.table(("data", "number"), numbers),
        "Perplexity counts every token and the sentence end; unknown words are included.",
        maker="train_ngram (Python)",
        use=("seqtool eval-ppl TEXT -m THIS_DIRECTORY", *use),
    )
