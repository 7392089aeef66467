"""Small language models in NumPy whose every probability is written down."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from seqtool.core.arrays import Ids
from seqtool.core.errors import ModelError
from seqtool.core.vocabulary import EOS, EOS_ID, UNK, Vocabulary
from seqtool.lm.model import LanguageModel
from seqtool.lm.protocol import Summary, TokenScores, summarise_by_steps
from seqtool.lm.sampling import Sample, collect, generate
from seqtool.text.tokenizers import ByteTokenizer, CharTokenizer, Tokenizer, WordTokenizer

# P(</s>) = 0.2, P(<unk>) = 0.1, P(a) = 0.4, P(b) = 0.3; b comes after a here
UNIGRAM_ARPA = """\\data\\
ngram 1=5

\\1-grams:
-99\t<s>
-0.69897\t</s>
-1\t<unk>
-0.39794\ta
-0.5228787\tb

\\end\\
"""


class BigramModel(LanguageModel):
    """A table of P(next | previous).

    Row and column i are the symbol with id i; a last row, V, stands for `<s>`. Like a neural model
    it reads a text as one stream: after the first sentence the row of `</s>` is used. With
    `reset_state`, and at the beginning, it is the row of `<s>`.

        table [V + 1, V]     columns  <unk>  </s>  word 2 ...
        rows: <unk>, </s>, word 2, ..., <s>
    """

    kind = "toy-bigram"

    def __init__(self, tokenizer: Tokenizer, table: npt.ArrayLike) -> None:
        self.tokenizer = tokenizer
        self.table = np.asarray(table, dtype=np.float64)
        size = len(tokenizer.vocabulary)
        assert self.table.shape == (size + 1, size)
        np.testing.assert_allclose(self.table.sum(axis=1), 1.0, atol=1e-12)
        with np.errstate(divide="ignore"):
            self.log_table = np.log(self.table)

    def score_ids(
        self, blocks: Iterable[Ids], *, reset_state: bool = False, summary: Summary | None = None
    ) -> Iterator[TokenScores]:
        """Score blocks of ids; the extra column is the id that conditions the token."""
        if summary is not None:
            yield from summarise_by_steps(self, blocks, summary, reset_state=reset_state)
            return
        bos_id = len(self.tokenizer.vocabulary)
        previous_id = bos_id
        for ids in blocks:
            previous = np.concatenate(([previous_id], ids[:-1]))
            if reset_state:
                previous[previous == EOS_ID] = bos_id
            yield TokenScores(self.log_table[previous, ids], {"previous": previous})
            previous_id = int(ids[-1])

    def start(self, num: int) -> Ids:
        """Return the state: the last token of each hypothesis."""
        return np.full(num, len(self.tokenizer.vocabulary), dtype=np.int32)

    def advance(self, state: Ids, tokens: Ids) -> Ids:
        """Read a token per hypothesis."""
        assert tokens.shape == state.shape
        return tokens.copy()

    def next_log_probs(self, state: Ids) -> npt.NDArray[np.float64]:
        """Return [N, V] nats."""
        return self.log_table[state]


class TrigramModel(LanguageModel):
    """A random table of P(next | the last two), so that a state is more than its last token.

    A text begins after two `<s>`; nothing is forgotten at the end of a sentence.
    """

    kind = "toy-trigram"

    def __init__(self, tokenizer: Tokenizer, seed: int) -> None:
        self.tokenizer = tokenizer
        size = len(tokenizer.vocabulary)
        scores = np.random.default_rng(seed).normal(size=(size + 1, size + 1, size))
        self.log_table: npt.NDArray[np.float64] = scores - np.log(
            np.exp(scores).sum(axis=2, keepdims=True)
        )

    def log_prob(self, tokens: Sequence[int]) -> float:
        """Return the log-probability of the beginning of a text, by its definition."""
        bos_id = len(self.tokenizer.vocabulary)
        history = (bos_id, bos_id, *tokens)
        return float(sum(self.log_table[history[i : i + 3]] for i in range(len(tokens))))

    def score_ids(
        self, blocks: Iterable[Ids], *, reset_state: bool = False, summary: Summary | None = None
    ) -> Iterator[TokenScores]:
        """Not needed where text is generated."""
        raise NotImplementedError

    def start(self, num: int) -> Ids:
        """Return the state: the last two tokens of each hypothesis, [N, 2]."""
        return np.full((num, 2), len(self.tokenizer.vocabulary), dtype=np.int32)

    def advance(self, state: Ids, tokens: Ids) -> Ids:
        """Read a token per hypothesis."""
        return np.stack([state[:, 1], tokens], axis=1)

    def next_log_probs(self, state: Ids) -> npt.NDArray[np.float64]:
        """Return [N, V] nats."""
        log_probs: npt.NDArray[np.float64] = self.log_table[state[:, 0], state[:, 1]]
        return log_probs


def word_tokenizer(words: Sequence[str]) -> WordTokenizer:
    """Return a tokenizer of these words, in this order from id 2 on."""
    return WordTokenizer(Vocabulary([UNK, EOS, *words]))


def char_tokenizer(characters: str) -> CharTokenizer:
    """Return a tokenizer of these characters, in this order from id 2 on."""
    return CharTokenizer(Vocabulary([UNK, EOS, *characters]))


def byte_tokenizer() -> ByteTokenizer:
    """Return the tokenizer of the 256 bytes."""
    return ByteTokenizer(Vocabulary(ByteTokenizer.symbols()))


def two_words() -> BigramModel:
    """Return the model of the worked examples: the words a (2) and b (3).

    previous    <unk>  </s>   a     b
    """
    table = [
        [1 / 4, 1 / 4, 1 / 4, 1 / 4],  # <unk>
        [1 / 2, 1 / 8, 1 / 8, 1 / 4],  # </s>
        [1 / 8, 1 / 4, 1 / 8, 1 / 2],  # a
        [1 / 16, 1 / 2, 3 / 8, 1 / 16],  # b
        [1 / 8, 1 / 8, 1 / 2, 1 / 4],  # <s>
    ]
    return BigramModel(word_tokenizer("ab"), table)


def random_bigrams(tokenizer: Tokenizer, seed: int, *, sharpness: float = 1.0) -> BigramModel:
    """Return a table drawn at random; a high sharpness makes rows of few likely symbols."""
    size = len(tokenizer.vocabulary)
    scores = np.random.default_rng(seed).normal(scale=sharpness, size=(size + 1, size))
    table = np.exp(scores - scores.max(axis=1, keepdims=True))
    return BigramModel(tokenizer, table / table.sum(axis=1, keepdims=True))


def chain(tokenizer: Tokenizer, text: str) -> BigramModel:
    """Return a byte-like model that writes `text` with certainty, if no token in it comes twice."""
    size = len(tokenizer.vocabulary)
    table = np.full((size + 1, size), 1.0 / size)
    ids = [size, *tokenizer.encode(text).tolist(), EOS_ID]
    assert len(set(ids)) == len(ids)
    for previous, current in itertools.pairwise(ids):
        table[previous] = np.eye(size)[current]
    return BigramModel(tokenizer, table)


def generate_samples(model: LanguageModel, prompt: str = "", **options: Any) -> list[Sample]:
    """Return whole samples; the arguments are those of `generate`."""
    return collect(generate(model, prompt, **options), model.tokenizer.vocabulary)


def use_toys(
    monkeypatch: pytest.MonkeyPatch, models: Mapping[str, Callable[[], LanguageModel]]
) -> None:
    """Let commands open these models by their names, and no others."""

    def open_toy(path: Path, **_: object) -> LanguageModel:
        if str(path) not in models:
            raise ModelError("no such model", hint="name another", path=path)
        return models[str(path)]()

    monkeypatch.setattr("seqtool.lm.mixture.model.open_language_model", open_toy)


def random_lines(num_lines: int, seed: int) -> str:
    """Return lines of one to seven of six letters, as words."""
    generator = np.random.default_rng(seed)
    lines = (
        " ".join(generator.choice(list("abcdef"), size=k))
        for k in generator.integers(1, 8, num_lines)
    )
    return "".join(f"{line}\n" for line in lines)
