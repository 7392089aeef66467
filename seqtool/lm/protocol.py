"""What every language model answers.

A sentence is its tokens and `</s>`; `<s>` conditions and is never scored. `<unk>` is a word of the
model. Log-probabilities are natural logs ("nats") in here; what people read is in log10 or bits.
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

from seqtool.core.arrays import Bools, Doubles, Ids, Reals
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.perplexity import Adaptation
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
    """

    log_probs: npt.NDArray[np.float64]
    columns: Mapping[str, npt.NDArray[Any]] = dataclasses.field(default_factory=dict)
    class_log_probs: Doubles | None = None
    entropies: Doubles | None = None


@dataclass(frozen=True)
class Summary:
    """What is asked of the whole distribution of each token, beside the token's own probability.

    Attributes:
        class_V: bool [V], a class of symbols whose probability is asked for; None for none.
        entropy: whether the entropy is.
    """

    class_V: Bools | None = None
    entropy: bool = False


class LanguageModel(Protocol):
    """A model that scores text and goes through it token by token, all of it as ids.

    This is what the package needs of a model; people call what `lm.model.LanguageModel` adds.
    A `State` stands for H hypotheses, each a text read so far; it is opaque and never changed in
    place. V is the size of the vocabulary (`<unk>` and `</s>` in, `<s>` out).

    Attributes:
        kind: of the model directory.
        tokenizer: whose ids the model reads.
    """

    kind: str
    tokenizer: Tokenizer

    @abstractmethod
    def score_ids(
        self, blocks: Iterable[Ids], *, reset_state: bool = False
    ) -> Iterator[TokenScores]:
        """Score blocks of whole sentences, `EOS_ID` after each; one result per block, in order.

        Args:
            blocks: flat ids; read no faster than results are given, up to a small look-ahead.
            reset_state: forget the text before each sentence, for models that carry it on.
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
        """Return [H, V] nats for the next token of each hypothesis; exp of a row sums to one."""
        ...

    @abstractmethod
    def select(self, state: State, rows: npt.NDArray[np.intp]) -> State:
        """Return the hypotheses `rows`, which may repeat, leave out and re-order them."""
        ...


@runtime_checkable
class SummarisingModel(Protocol):
    """A language model that reads summaries off its distributions as it scores a text.

    What other models are asked is found by `summarise`, step by step.
    """

    def summarise_ids(
        self, blocks: Iterable[Ids], summary: Summary, *, reset_state: bool = False
    ) -> Iterator[TokenScores]:
        """Score blocks as `score_ids` does, with the class or the entropy that is asked for."""
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


def adaptations_of(model: LanguageModel) -> tuple[Adaptation, ...]:
    """Return how a model adapts to the text that it scores; most models do not."""
    found: tuple[Adaptation, ...] = getattr(model, "adaptations", ())
    return found


def carries_state(model: LanguageModel) -> bool:
    """Return whether a sentence's score may depend on the sentences before it."""
    return bool(getattr(model, "carries_state", True))


def summarise(
    model: LanguageModel, blocks: Iterable[Ids], summary: Summary, *, reset_state: bool
) -> Iterator[TokenScores]:
    """Score blocks of whole sentences with what is asked of each token's distribution.

    Args:
        model: any language model.
        blocks: flat ids, `EOS_ID` after each sentence.
        summary: what is asked.
        reset_state: forget the text before each sentence.
    """
    if isinstance(model, SummarisingModel):
        return model.summarise_ids(blocks, summary, reset_state=reset_state)
    return summarise_by_steps(model, blocks, summary, reset_state=reset_state)


STEP_SENTENCES = 32  # read side by side; each step takes their number times V


def summarise_by_steps(
    model: LanguageModel, blocks: Iterable[Ids], summary: Summary, *, reset_state: bool
) -> Iterator[TokenScores]:
    """Do what `summarise` does by `next_log_probs` alone, with whole distributions, token by token.

    Where the state is reset, sentences of like lengths are read side by side.
    """
    state = None
    for ids in blocks:
        found = TokenScores(
            np.zeros(len(ids)),
            class_log_probs=None if summary.class_V is None else np.zeros(len(ids)),
            entropies=np.zeros(len(ids)) if summary.entropy else None,
        )
        if not reset_state:
            state = model.start(1) if state is None else state
            for place, token in enumerate(ids):
                _take(found, model.next_log_probs(state), np.array([place]), ids, summary)
                state = model.advance(state, np.array([token], np.int32))
            yield found
            continue
        ends = np.flatnonzero(ids == EOS_ID)
        begins = np.concatenate(([0], ends[:-1] + 1))
        by_length = np.argsort(begins - ends, kind="stable")  # the longest first
        for first in range(0, len(ends), STEP_SENTENCES):
            chosen = by_length[first : first + STEP_SENTENCES]
            places, last = begins[chosen], ends[chosen]
            state = model.start(len(chosen))
            while len(places):
                _take(found, model.next_log_probs(state), places, ids, summary)
                # those that end are the last ones
                open_ = np.flatnonzero(places < last)
                if len(open_):
                    state = model.advance(model.select(state, open_), ids[places[open_]])
                places, last = places[open_] + 1, last[open_]
        yield found


def _take(
    found: TokenScores,
    log_probs_HV: Reals,
    places: npt.NDArray[np.intp],
    ids: Ids,
    summary: Summary,
) -> None:
    """Note what a distribution for each of some tokens says."""
    doubles_HV = log_probs_HV.astype(np.float64, copy=False)
    found.log_probs[places] = doubles_HV[np.arange(len(places)), ids[places]]
    if found.class_log_probs is not None and summary.class_V is not None:
        found.class_log_probs[places] = class_log_probs(doubles_HV, summary.class_V)
    if found.entropies is not None:
        found.entropies[places] = entropies(doubles_HV)


def class_log_probs(log_probs_HV: Doubles, class_V: Bools) -> Doubles:
    """Return the log-probability (nats) of a class of symbols in each distribution, [H]."""
    logs_HC = np.take(log_probs_HV, np.flatnonzero(class_V), axis=1)  # faster than by the mask
    probs_H = np.exp(logs_HC).sum(axis=1)
    with np.errstate(divide="ignore"):
        found: Doubles = np.log(probs_H)
    if (lost_H := probs_H < np.finfo(np.float64).tiny).any():  # rounds to zero, or nearly
        found[lost_H] = np.logaddexp.reduce(logs_HC[lost_H], axis=1)
    return found


def entropies(log_probs_HV: Doubles) -> Doubles:
    """Return the entropy (nats) of each distribution, [H]; what is impossible adds nothing."""
    probs_HV = np.exp(log_probs_HV)
    terms_HV = np.where(probs_HV > 0, probs_HV * np.where(probs_HV > 0, log_probs_HV, 0.0), 0.0)
    found: Doubles = 0.0 - terms_HV.sum(axis=1)
    return found


def refuse_other_than_model(model: object) -> None:
    """Refuse what is no language model, such as its name: a TypeError."""
    if isinstance(model, str | Path):
        raise TypeError(f"expected a language model, not its name: seqtool.load({str(model)!r})")
    if not hasattr(model, "tokenizer"):
        raise TypeError(f"expected a language model, not a {type(model).__name__}")
