"""The contract of every language model: four methods, and what their numbers mean.

Tokens and numbers:

- A model works with ids of its tokenizer's vocabulary. V is the size of that vocabulary: `<unk>`
  and `</s>` are in it, `<s>` is not.
- A sentence is its tokens and `</s>`. `</s>` is scored; `<s>` conditions and is never scored.
- `<unk>` is a word of the model, with a probability as any other. An unknown word is read as it,
  and scored so.
- Log-probabilities are natural logs ("nats"), -inf for what is impossible. exp of what
  `next_log_probs` gives sums to one. What people read is in log10 or bits.

Two ways through a text give the same numbers: `score_ids` for a text that is there, and `start`,
`advance` and `next_log_probs` token by token; a network that learns from the text learns in the
first alone. A state stands for H hypotheses, each a text read so far. It is opaque, but
`state[rows]` gives the hypotheses `rows`, an array of indices which may repeat, leave out and
re-order them. No method changes a state that it takes.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from seqtool.core.arrays import Bools, Doubles, Ids, Longs, Reals
from seqtool.core.vocabulary import EOS_ID
from seqtool.text.tokenizers import Tokenizer

State = Any


@dataclass(frozen=True)
class TokenScores:
    """The scores of N tokens in the order of the text, `</s>` included.

    Attributes:
        log_probs: float64 [N], nats; -inf where the model gives no probability.
        columns: further values per token, name -> [N], such as the n-gram order that was matched.
        class_log_probs: float64 [N], nats of all symbols of `Summary.class_V` in the place of this
            token, where it is one of them; of no meaning elsewhere. None if not asked for.
        entropies: float64 [N], nats, of the distribution that the token is drawn from, `</s>` and
            `<unk>` in it. None if not asked for.
        parts: float64 [P, N], nats that the parts of a mixture give; None of other models.
    """

    log_probs: Doubles
    columns: Mapping[str, npt.NDArray[Any]] = dataclasses.field(default_factory=dict)
    class_log_probs: Doubles | None = None
    entropies: Doubles | None = None
    parts: Doubles | None = None


@dataclass(frozen=True)
class Summary:
    """What is asked of the whole distribution of each token, beside the token's own probability.

    Attributes:
        class_V: bool [V], a class of symbols whose probability is asked for; None for none.
        entropy: whether the entropy is.
    """

    class_V: Bools | None = None
    entropy: bool = False


@dataclass(frozen=True)
class Adaptation:
    """How a model learns from the very text that it is measured on.

    Its figures do not compare with those of models that stay as they were trained.

    Attributes:
        kind: "cache" or "dynamic".
        model: the model that adapts.
        settings: by name.
    """

    kind: str
    model: str
    settings: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` prints of it."""
        return {"kind": self.kind, "model": self.model, **self.settings}


class LanguageModel(Protocol):
    """A model that scores text and goes through it token by token; see the head of this file.

    This is what the package needs of a model; people call what `lm.model.LanguageModel` adds.

    Attributes:
        kind: of the model directory.
        tokenizer: whose ids the model reads.
    """

    kind: str
    tokenizer: Tokenizer

    @property
    def carries_state(self) -> bool:
        """Whether a sentence's score may depend on the sentences before it."""
        return True

    @property
    def adaptations(self) -> tuple[Adaptation, ...]:
        """How the model learns from the text that it scores; most models do not."""
        return ()

    @abstractmethod
    def score_ids(
        self, blocks: Iterable[Ids], *, reset_state: bool = False, summary: Summary | None = None
    ) -> Iterator[TokenScores]:
        """Score blocks of whole sentences, `EOS_ID` after each; one result per block, in order.

        Args:
            blocks: flat ids [N]; read no faster than results are given, up to a small look-ahead.
            reset_state: forget the text before each sentence, for models that carry it on.
            summary: what else is asked of each distribution; a model without a way of its own
                leaves it to `summarise_by_steps`.

        Raises:
            ConfigError: a model that learns from the text is to forget it.
        """
        ...

    @abstractmethod
    def start(self, num: int) -> State:
        """Return `num` hypotheses that stand at the beginning of a sentence."""
        ...

    @abstractmethod
    def advance(self, state: State, tokens: Ids) -> State:
        """Read one token per hypothesis, [H]; `EOS_ID` begins the next sentence."""
        ...

    @abstractmethod
    def next_log_probs(self, state: State) -> Reals:
        """Return [H, V] nats for the next token of each hypothesis."""
        ...


@runtime_checkable
class SentenceReader(Protocol):
    """A language model whose hidden states can be looked at: a neural one."""

    @property
    def state_size(self) -> int:
        """H, the width of a state."""
        ...

    @property
    def num_layers(self) -> int:
        """How many layers there are above the embedding."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer whose ids the model reads."""
        ...

    def sentence_states(self, sentences: Sequence[Ids], layer: int | None = None) -> list[Reals]:
        """Return the state of the top layer after `</s>` and after each token, [1 + N, H].

        Each sentence is read from the state at the beginning of a text, which `</s>` begins, so
        row n is what `next_log_probs` is computed from after `start` and n times `advance`. All are
        read at once, padded; what stands beside a sentence changes nothing but the last bits.

        Args:
            sentences: ids of each, [N], without `</s>`.
            layer: give the states of this layer, from 1, instead; 0 is the embedding.
        """
        ...


STEP_SENTENCES = 32  # read side by side; each step takes their number times V


def summarise_by_steps(
    model: LanguageModel, blocks: Iterable[Ids], summary: Summary, *, reset_state: bool
) -> Iterator[TokenScores]:
    """Do what `score_ids` does with a summary by `next_log_probs` alone, token by token.

    Where the state is reset, sentences of like lengths are read side by side.
    """
    state = None
    for ids in blocks:
        num = len(ids)
        scores = TokenScores(
            np.zeros(num),
            class_log_probs=None if summary.class_V is None else np.zeros(num),
            entropies=np.zeros(num) if summary.entropy else None,
        )
        if not reset_state:
            state = model.start(1) if state is None else state
            for place in range(num):
                _fill(scores, model.next_log_probs(state), np.array([place]), ids, summary)
                state = model.advance(state, ids[place : place + 1])
            yield scores
            continue
        ends = np.flatnonzero(ids == EOS_ID)
        begins = sentence_begins(ids)
        by_length = np.argsort(begins - ends, kind="stable")  # the longest first
        for first in range(0, len(ends), STEP_SENTENCES):
            chosen = by_length[first : first + STEP_SENTENCES]
            places, last = begins[chosen], ends[chosen]
            reading = model.start(len(chosen))
            while len(places):
                _fill(scores, model.next_log_probs(reading), places, ids, summary)
                # those that end are the last ones
                open_ = np.flatnonzero(places < last)
                if len(open_):
                    reading = model.advance(reading[open_], ids[places[open_]])
                places, last = places[open_] + 1, last[open_]
        yield scores


def _fill(
    scores: TokenScores, log_probs_HV: Reals, places: Longs, ids: Ids, summary: Summary
) -> None:
    """Fill in what a distribution for each of some tokens says."""
    doubles_HV = log_probs_HV.astype(np.float64, copy=False)
    scores.log_probs[places] = doubles_HV[np.arange(len(places)), ids[places]]
    if scores.class_log_probs is not None and summary.class_V is not None:
        scores.class_log_probs[places] = class_log_probs(doubles_HV, summary.class_V)
    if scores.entropies is not None:
        scores.entropies[places] = entropies(doubles_HV)


def sentence_begins(ids: Ids) -> Longs:
    """Return where the sentences of a block begin, [S]."""
    return np.concatenate(([0], np.flatnonzero(ids == EOS_ID)[:-1] + 1))


def class_log_probs(log_probs_HV: Doubles, class_V: Bools) -> Doubles:
    """Return the log-probability (nats) of a class of symbols in each distribution, [H]."""
    logs_HC = np.take(log_probs_HV, np.flatnonzero(class_V), axis=1)  # faster than by the mask
    probs_H = np.exp(logs_HC).sum(axis=1)
    with np.errstate(divide="ignore"):
        logs_H: Doubles = np.log(probs_H)
    if (tiny_H := probs_H < np.finfo(np.float64).tiny).any():  # rounds to zero, or nearly
        logs_H[tiny_H] = np.logaddexp.reduce(logs_HC[tiny_H], axis=1)
    return logs_H


def entropies(log_probs_HV: Doubles) -> Doubles:
    """Return the entropy (nats) of each distribution, [H]; what is impossible adds nothing."""
    probs_HV = np.exp(log_probs_HV)
    terms_HV = np.where(probs_HV > 0, probs_HV * np.where(probs_HV > 0, log_probs_HV, 0.0), 0.0)
    sums_H: Doubles = 0.0 - terms_HV.sum(axis=1)
    return sums_H


def refuse_other_than_model(model: object) -> None:
    """Refuse what is no language model, such as its name: a TypeError."""
    if isinstance(model, str | Path):
        raise TypeError(f"expected a language model, not its name: seqtool.load({str(model)!r})")
    if not hasattr(model, "tokenizer"):
        raise TypeError(f"expected a language model, not a {type(model).__name__}")
