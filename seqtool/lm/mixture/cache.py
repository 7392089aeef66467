"""The cache: what the text itself has just said, as a language model to be mixed with others.

Each token of a text has a state h, from which a network predicts it. Before the token of state h,
the cache gives each of the tokens that it remembers, of state h_i, the share

    exp(theta h . h_i - decay age_i)

of the sum over all of them, and each word the sum of its tokens' shares: the continuous cache of
Grave, Joulin & Usunier (2017, eq. 2 to 4), where the decay is 0. The age of the last token is 1. A
model without states has theta 0, which counts the words in the window (Kuhn & De Mori 1990); with a
decay they fade (Clarkson & Robinson 1997). The weight of the cache in a mixture is Grave's lambda.

A cache reads the text across sentence ends, and adapts to the very text that is measured.

Shapes: N tokens, M tokens remembered, D units of the state, C settings tried, H hypotheses and V
symbols. Log-probabilities are nats.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from seqtool.core.arrays import Doubles, Ids, Reals
from seqtool.core.errors import ConfigError
from seqtool.lm.mixture.config import CacheConfig
from seqtool.lm.model import LanguageModel
from seqtool.lm.protocol import (
    Adaptation,
    State,
    Summary,
    TokenScores,
    summarise_by_steps,
)

CHUNK = 256  # tokens that are compared with what is remembered in one product
FEWEST = 4096  # tokens that there is room for at once; for more, when they come
NO_WORD = -1

Observer = Callable[[Doubles], None]


@runtime_checkable
class StatefulModel(Protocol):
    """A language model whose states can be compared with each other."""

    def hidden_states(self, pieces: Iterable[Ids]) -> Iterator[Reals]:
        """Read a text in pieces, none empty; give the state [N, D] that predicts each token."""
        ...

    def hidden_state(self, state: State) -> Reals:
        """Return the state [H, D] from which each hypothesis predicts its next token."""
        ...


class CacheModel(LanguageModel):
    """A cache over the states of a model.

    Before the first token of a text it knows nothing: every symbol has the same probability. Later,
    words that are not remembered have none, so it is of use in a mixture only.

    Args:
        source: the model whose ids it reads, and whose states it compares if it has any.
        config: settings; theta is of no account for a model without states.
        name: what the source is called.
    """

    kind = "cache"

    def __init__(
        self, source: LanguageModel, config: CacheConfig | None = None, *, name: str = ""
    ) -> None:
        self.source, self.name, self.tokenizer = source, name, source.tokenizer
        self._states = source if isinstance(source, StatefulModel) else None
        config = config or CacheConfig()
        self.config = config if self.has_states else dataclasses.replace(config, theta=0.0)
        self._tried: tuple[Sequence[CacheConfig], Observer] | None = None

    @property
    def has_states(self) -> bool:
        """Return whether states are compared, or words counted only."""
        return self._states is not None

    @property
    def adaptations(self) -> tuple[Adaptation, ...]:
        """Return how it adapts to the text that is measured."""
        settings = dataclasses.asdict(self.config)
        if not self.has_states:
            del settings["theta"]
        return (Adaptation("cache", self.name, settings),)

    def trying(self, candidates: Sequence[CacheConfig], observer: Observer) -> CacheModel:
        """Return a cache that hands to `observer` what each of C settings gives, [C, N] per block.

        Its own scores are those of the first.
        """
        result = copy.copy(self)
        result._tried = (candidates, observer)
        return result

    def score_ids(
        self, blocks: Iterable[Ids], *, reset_state: bool = False, summary: Summary | None = None
    ) -> Iterator[TokenScores]:
        """Score blocks; -inf for words that are not remembered.

        Raises:
            ConfigError: the text is to be forgotten before each sentence.
        """
        if reset_state:
            raise ConfigError(
                "a cache remembers the text, but it is to be forgotten before each sentence",
                hint="drop --reset-state, or name models without a cache",
            )
        if summary is not None:
            yield from summarise_by_steps(self, blocks, summary, reset_state=False)
            return
        candidates, observer = self._tried or ((self.config,), None)
        # two readers of the same pieces, model and memory: tee keeps one block at most, since the
        # memory reads a piece as soon as the model has given its states
        cut, to_read = itertools.tee(
            [block[start : start + CHUNK] for start in range(0, len(block), CHUNK)]
            for block in blocks
        )
        states = self._states_of(itertools.chain.from_iterable(to_read))
        memory = _Memory(candidates, len(self.tokenizer.vocabulary))
        for pieces in cut:
            parts = [np.zeros((len(candidates), 0))]
            # a block without tokens has no pieces, and then no state is asked for
            parts += [memory.read(piece, next(states)) for piece in pieces]
            log_probs_CN = np.concatenate(parts, axis=1)
            if observer is not None:
                observer(log_probs_CN)
            yield TokenScores(log_probs_CN[0])

    def _states_of(self, pieces: Iterable[Ids]) -> Iterator[Reals]:
        """Yield the states [N, D] of each piece of a text; D is 0 for a model without states."""
        if self._states is not None:
            return self._states.hidden_states(pieces)
        return (np.zeros((len(piece), 0)) for piece in pieces)

    def start(self, num: int) -> State:
        """Return `num` hypotheses that remember nothing."""
        inner = self.source.start(num) if self._states is not None else None
        size = 0 if self._states is None else self._states.hidden_state(inner).shape[1]
        return _Hypotheses(
            inner, np.zeros((num, 0), dtype=np.int32), np.zeros((num, 0, size), dtype=np.float32)
        )

    def advance(self, state: State, tokens: Ids) -> State:
        """Read and remember one token per hypothesis, [H]."""
        words_HM = np.concatenate([state.words, tokens[:, None]], axis=1)
        hidden_HD = self._present(state)
        states_HMD = np.concatenate([state.states, hidden_HD[:, None]], axis=1)
        inner = None if self._states is None else self.source.advance(state.inner, tokens)
        kept = slice(-self.config.window, None)
        return _Hypotheses(inner, words_HM[:, kept], states_HMD[:, kept])

    def next_log_probs(self, state: State) -> Doubles:
        """Return [H, V] nats for the next token of each hypothesis."""
        num_symbols = len(self.tokenizer.vocabulary)
        num, num_words = state.words.shape
        if not num_words:
            return np.full((num, num_symbols), -math.log(num_symbols))
        scores_HM = (state.states @ self._present(state)[:, :, None])[:, :, 0].astype(np.float64)
        scores_HM *= self.config.theta
        scores_HM -= self.config.decay * np.arange(num_words, 0, -1)
        # less the largest, so that none overflows
        shares_HM = np.exp(scores_HM - scores_HM.max(axis=1, keepdims=True))
        probs_HV = np.zeros((num, num_symbols))
        # a plain += would count a word once that is remembered several times
        np.add.at(probs_HV, (np.arange(num)[:, None], state.words), shares_HM)
        with np.errstate(divide="ignore"):
            log_probs_HV: Doubles = np.log(probs_HV / shares_HM.sum(axis=1, keepdims=True))
        return log_probs_HV

    def _present(self, state: _Hypotheses) -> Reals:
        if self._states is None:
            return np.zeros((len(state.words), 0), dtype=np.float32)
        return self._states.hidden_state(state.inner)


@dataclass(frozen=True)
class _Hypotheses:
    """The source's state, and what each hypothesis remembers: words [H, M], states [H, M, D]."""

    inner: Any
    words: Ids
    states: Reals

    def __getitem__(self, rows: npt.NDArray[np.intp]) -> _Hypotheses:
        """Return the hypotheses `rows`."""
        inner = None if self.inner is None else self.inner[rows]
        return _Hypotheses(inner, self.words[rows], self.states[rows])


class _Memory:
    """What was read last, under C settings at once, which share the products of states.

    The scores of a chunk's tokens are a band of one product, seen as a matrix of tokens and ages:

        remembered  chunk           age  3  2  1           of a window of 3
          x  x  x   .  .             x  x  x
             x  x   x  .     ->      x  x  x
                x   x  x             x  x  x

    Of a window that is longer than the text so far, there is room for a part, which doubles.
    """

    def __init__(self, candidates: Sequence[CacheConfig], num_symbols: int) -> None:
        self._candidates = candidates
        self._num_symbols = num_symbols
        self._window = max(config.window for config in candidates)
        self._words_W = np.full(min(self._window, FEWEST), NO_WORD, dtype=np.int32)
        self._states_WD: Reals | None = None
        self._num_read = 0

    def read(self, words_N: Ids, states_ND: Reals) -> Doubles:
        """Return the log-probabilities [C, N] of the next words, and remember these."""
        num = len(words_N)
        if self._states_WD is None:
            self._states_WD = np.zeros((len(self._words_W), states_ND.shape[1]), states_ND.dtype)
        needed = min(self._num_read + num, self._window)
        if needed > len(self._words_W):
            more = min(2 * needed, self._window) - len(self._words_W)
            self._words_W = np.pad(self._words_W, (more, 0), constant_values=NO_WORD)
            self._states_WD = np.pad(self._states_WD, ((more, 0), (0, 0)))
        window = len(self._words_W)
        words = np.concatenate([self._words_W, words_N])
        states = np.concatenate([self._states_WD, states_ND])
        # one step down and one to the right is the same age: no copy of the band is made
        product = np.ascontiguousarray(states_ND @ states.T)
        row, item = product.strides
        similar_NW = np.lib.stride_tricks.as_strided(
            product, (num, window), (row + item, item), writeable=False
        )
        before_NW = np.lib.stride_tricks.sliding_window_view(words, window)[:num]
        # where the next word itself stands in the window: only these shares are summed
        rows, columns = np.nonzero(before_NW == words_N[:, None])
        ages_W = np.arange(window, 0, -1, dtype=states_ND.dtype)
        log_probs_CN = np.empty((len(self._candidates), num))
        for found_N, config in zip(log_probs_CN, self._candidates, strict=True):
            # a shorter window is the end of the longest one
            first = max(0, window - config.window)
            # the product is a new array, which is changed below; the band serves all settings
            scores_NM = similar_NW[:, first:] * states_ND.dtype.type(config.theta)
            if config.decay:
                scores_NM -= states_ND.dtype.type(config.decay) * ages_W[first:]
            if self._num_read < config.window:  # places before the text's beginning
                scores_NM[before_NW[:, first:] == NO_WORD] = -np.inf
            within = columns >= first
            found_N[:] = self._log_shares(scores_NM, rows[within], columns[within] - first)
        self._words_W, self._states_WD = words[num:], states[num:]
        self._num_read += num
        return log_probs_CN

    def _log_shares(
        self, scores_NM: Reals, rows: npt.NDArray[np.intp], columns: npt.NDArray[np.intp]
    ) -> Doubles:
        """Return the log of the share [N] of exp(scores) that each row has at its columns."""
        best_N = scores_NM.max(axis=1)
        is_empty_N = np.isneginf(best_N)
        scores_NM -= np.where(is_empty_N, 0, best_N)[:, None]  # no exp overflows
        shares_NM = np.exp(scores_NM, out=scores_NM)
        totals_N = shares_NM.sum(axis=1, dtype=np.float64)
        sums_N = np.bincount(rows, shares_NM[rows, columns], minlength=len(scores_NM))
        with np.errstate(divide="ignore", invalid="ignore"):
            logs_N: Doubles = np.log(sums_N) - np.log(totals_N)
        logs_N[is_empty_N] = -math.log(self._num_symbols)
        return logs_N
