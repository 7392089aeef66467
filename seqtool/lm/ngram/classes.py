"""Class n-gram models: an n-gram model of word classes, and the words within each class.

Each word belongs to one class, so with the classes g of a text (Brown et al. 1992)

    p(w | history) = p(g(w) | classes of the history) p(w | g(w))

The first factor is a backoff table whose words are the classes; the second is by relative
frequency, a word that does not occur counted once. `</s>` is a class of its own.

    model.json             as of every n-gram model
    vocabulary.json        or tokenizer.model: the words
    weights.safetensors    the table of the classes, "classes" and "shares": what `WordClasses` has

Shapes: H hypotheses, V words, C classes, N the order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from seqtool.core import checkpoint
from seqtool.core.arrays import Doubles, Ids
from seqtool.core.storage import atomic_file
from seqtool.core.terminal import stream
from seqtool.core.vocabulary import EOS_ID, UNK_ID
from seqtool.lm.ngram.model import NgramModel, TableModel, mapped_weights
from seqtool.lm.ngram.table import BackoffTable, Float32, Int32
from seqtool.lm.protocol import Summary, TokenScores
from seqtool.lm.tables import STDOUT
from seqtool.text.tokenizers import Tokenizer
from seqtool.text.word_classes import read_class_numbers

CLASSES, SHARES = "classes", "shares"  # arrays of the file, beside those of the table


@dataclass(frozen=True)
class WordClasses:
    """Which class each word belongs to, and its share of it.

    The classes are numbered as the words of a vocabulary are: that of `<unk>` is `UNK_ID`, and that
    of `</s>` is `EOS_ID`, which no other word has.

    Attributes:
        class_V: int32 [V], the class of each word, 0 to C - 1; none is empty.
        shares_V: float32 [V], ln p(w | g(w)).
    """

    class_V: Int32
    shares_V: Float32

    def __len__(self) -> int:
        return int(self.class_V.max()) + 1

    def check(self) -> None:
        """Refuse what is no such thing: a ValueError."""
        class_V, num = self.class_V, len(self)
        if int(class_V.min()) < 0 or not np.bincount(class_V, minlength=num).all():
            raise ValueError("the classes are not numbered one after another")
        if class_V[UNK_ID] != UNK_ID or np.flatnonzero(class_V == EOS_ID).tolist() != [EOS_ID]:
            raise ValueError("<unk> or </s> has another class")
        sums = np.bincount(class_V, np.exp(self.shares_V.astype(np.float64)), minlength=num)
        if not np.allclose(sums, 1, atol=1e-4, rtol=0):
            raise ValueError("the shares of a class do not sum to one")


def read_classes(
    path: str | Path, tokenizer: Tokenizer, counts_V: npt.NDArray[np.int64]
) -> WordClasses:
    """Read a file of classes; the shares are by relative frequency, 0 counted as 1.

    Args:
        path: the file.
        tokenizer: of the words.
        counts_V: int64 [V], how often each occurs in the text.

    Raises:
        ConfigError, DataError: as `read_class_numbers` tells.
    """
    class_V = read_class_numbers(path, tokenizer)
    nums_V = np.maximum(counts_V, 1).astype(np.float64)
    shares_V = np.log(nums_V / np.bincount(class_V, nums_V)[class_V]).astype(np.float32)
    return WordClasses(class_V, shares_V)


def write_classes(
    path: str | Path,
    classes: Iterable[Iterable[str]],
    shares: Iterable[Iterable[float]],
    *,
    srilm: bool = False,
) -> None:
    """Write classes to a file, or to stdout for `-`; their names are their numbers, from 1.

    With `srilm` a line has a class, the word's share of it, and the word: classes-format(5).

    Raises:
        OSError: it cannot be written.
    """
    line = "CLASS-{0:05} {1:.9g} {2}\n" if srilm else "{2}\t{0}\n"
    content = "".join(
        line.format(number, share, word)
        for number, of_class in enumerate(zip(classes, shares, strict=True), start=1)
        for word, share in zip(*of_class, strict=True)
    ).encode()
    if str(path) == STDOUT:
        shown = stream()
        shown.buffer.write(content)
        shown.flush()
        return
    with atomic_file(path) as file:
        file.write(content)


class ClassModel(TableModel):
    """A backoff table of classes, the classes of the words, and their tokenizer.

    A state is that of an `NgramModel` whose words are the classes.
    """

    kind = "class-ngram"

    def __init__(self, table: BackoffTable, classes: WordClasses, tokenizer: Tokenizer) -> None:
        super().__init__(table, tokenizer)
        self.classes = classes
        self.of_classes = NgramModel(table, tokenizer)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return what a file holds."""
        own = {CLASSES: self.classes.class_V, SHARES: self.classes.shares_V}
        return super().arrays() | own

    def score_ids(
        self, blocks: Iterable[Ids], *, reset_state: bool = False, summary: Summary | None = None
    ) -> Iterator[TokenScores]:
        """Yield nats, and the order of the classes that were matched, of every token of a block.

        A summary is made once for each different context.
        """
        class_V, shares_V = self.classes.class_V, self.classes.shares_V
        exact_V = shares_V.astype(np.float64)
        figures: dict[str, Callable[[Doubles], Doubles]] = {}
        if summary is not None and summary.class_V is not None:
            asked_V = np.where(summary.class_V, np.exp(exact_V), 0.0)
            mass_C = np.bincount(class_V, asked_V).astype(np.float64)
            figures["class_log_probs"] = partial(_log_sums, mass_C=mass_C)
        if summary is not None and summary.entropy:
            inner_C: Doubles = np.bincount(class_V, np.exp(exact_V) * -exact_V).astype(np.float64)
            figures["entropies"] = partial(_entropies, inner_C=inner_C)
        for ids in blocks:
            if summary is None:
                (scores,) = self.of_classes.score_ids([class_V[ids]])
                yield TokenScores(scores.log_probs + shares_V[ids], scores.columns)
                continue
            log_probs, orders, contexts = self.of_classes.read(class_V[ids])
            summaries = {
                name: self.of_classes.of_distributions(contexts, figure)
                for name, figure in figures.items()
            }
            yield TokenScores(log_probs + shares_V[ids], {"order": orders}, **summaries)

    def start(self, num: int) -> Int32:
        """Return `num` hypotheses that have read `<s>`."""
        return self.of_classes.start(num)

    def advance(self, state: Int32, tokens: Ids) -> Int32:
        """Read one token per hypothesis; after `</s>` it stands at `<s>` again."""
        return self.of_classes.advance(state, self.classes.class_V[tokens])

    def next_log_probs(self, state: Int32) -> npt.NDArray[np.float64]:
        """Return [H, V] nats."""
        log_probs_HC = self.of_classes.next_log_probs(state)
        result: Doubles = log_probs_HC[:, self.classes.class_V] + self.classes.shares_V
        return result


def _log_sums(log_probs_HC: Doubles, mass_C: Doubles) -> Doubles:
    """Return the nats of the words asked for, [H], of which each class has some mass."""
    with np.errstate(divide="ignore"):
        sums_H: Doubles = np.logaddexp.reduce(log_probs_HC + np.log(mass_C), axis=1)
    return sums_H


def _entropies(log_probs_HC: Doubles, inner_C: Doubles) -> Doubles:
    """Return the entropy of the next word, nats, [H]: that of its class, and then within it."""
    probs_HC = np.exp(log_probs_HC)
    logs_HC = np.where(probs_HC > 0, log_probs_HC, 0.0)
    entropies_H: Doubles = (probs_HC * (inner_C - logs_HC)).sum(axis=1)
    return entropies_H


def load_model(directory: Path, header: checkpoint.Header, *, device: str = "cpu") -> ClassModel:
    """Open a class n-gram model, mapped into memory, whatever the device.

    Raises:
        ModelError: a file is missing or damaged, or vocabulary, classes and table do not fit.
    """
    with mapped_weights(directory, header) as (arrays, tokenizer):
        size = len(tokenizer.vocabulary)
        class_V, shares_V = arrays.pop(CLASSES), arrays.pop(SHARES)
        if class_V.dtype != np.int32 or shares_V.dtype != np.float32:
            raise ValueError("the classes are of another type")
        if class_V.shape != (size,) or shares_V.shape != (size,):
            raise ValueError(
                f"{len(class_V):,} words have classes, and the vocabulary has {size:,}"
            )
        classes = WordClasses(class_V, shares_V)
        classes.check()
        table = BackoffTable.from_arrays(arrays, len(classes))
        return ClassModel(table, classes, tokenizer)
