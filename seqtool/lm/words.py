r"""The surprisal of words, whatever a model's units are.

A word is what blanks separate. A model of words gives its probability as it is. Other models give
those of pieces: characters, bytes, subwords. Of a line `the old dog`, with the pieces of which
several make a word and a mark `_` for a blank, a line's end being `</s>`,

    the   _o  ld  _dog  </s>

the product of the pieces `_o ld` is no probability of the word `old`: it is that of all words that
begin so, `older` too. That the word ends is told by what follows, which begins with a blank or is
`</s>`; the probability that it does belongs to the word that ends, not to the next one (Pimentel &
Meister 2024, "How to compute the probability of a word"; Oh & Schuler 2024, "Leading whitespaces of
language models' subword vocabulary pose a confound for calculating word probabilities"). With
E(text) the probability that the next piece is one of these,

    p(old | the) = p(_o ld | the) E(the old) / E(the)

and likewise for the end of the line: the probability of `</s>` after all pieces is divided by
E(the old dog). The first word of a line is not divided. A word has the blanks before it, however
many, and the end of the line those before it. So

- the probabilities of all words, and of the end of the line, sum to one in any context;
- those of the words of a line and of its end multiply to what the model gives the line.

A word is scored as the tokenizer cuts it, and the sum is one over all ways to cut all words: what a
model gives to other pieces of the same letters counts for no word.

Two cases have no place for the correction, which is then left out on both sides: a blank that is
unknown to the model, and a piece with a blank inside (subwords hold tabs so). Such a piece counts
for the word that it begins in.

Shapes: N tokens, W words of a block, U units: the words and the ends of lines, V symbols.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, Self

import numpy as np

from seqtool.core.arrays import Bools, Doubles, Ids, Longs
from seqtool.core.errors import ConfigError, DataError
from seqtool.core.units import LN_2
from seqtool.core.vocabulary import BLANKS, BOS, EOS, EOS_ID, UNK, UNK_ID
from seqtool.lm.protocol import (
    LanguageModel,
    Summary,
    TokenScores,
    adaptations_of,
    check_log_probs,
    summarise,
)
from seqtool.lm.tables import Column
from seqtool.text.tokenizers import Tokenizer, WordTokenizer

BLOCK_LINES = 1000  # of `score_words`, which are scored side by side

_LF = ord("\n")
_IS_BLANK = np.isin(np.arange(256), [ord(blank) for blank in BLANKS])
_AS_SPACES = bytes.maketrans(BLANKS.encode(), b" " * len(BLANKS))
_ENDS_AS_SPACES = str.maketrans("\r\n", "  ")


class Word(NamedTuple):
    """A word of a line, or its end.

    Attributes:
        number: of the word in its line, from 1.
        text: as written; `</s>` for the end of a line.
        start: characters of the line before it.
        end: characters of the line before its end.
        bits: its surprisal; infinite where it is impossible.
        oov: whether a piece of it is unknown to the model.
        pieces: how many tokens of the model it is, 0 if it begins inside one.
        entropy: bits, of what may come in its place, the end of the line and the unknown word among
            it; None in units other than words, and if not asked for.
        order: the length of the n-gram that its probability comes from; None in units other than
            words, and of other models.
    """

    number: int
    text: str
    start: int
    end: int
    bits: float
    oov: bool
    pieces: int
    entropy: float | None = None
    order: int | None = None


@dataclass(frozen=True)
class ScoredWords:
    """The words of a block of lines, and the ends of lines if they were asked for, in order.

    Attributes:
        num_lines: of the block.
        lines: the line of each, from 0, [U].
        is_word: False for the end of a line, [U].
        texts: of the words.
        numbers, starts, ends, bits, oov, pieces: as in `Word`, [U].
        entropies, orders: as in `Word`, [U], or None.
    """

    num_lines: int
    lines: Longs
    numbers: Longs
    is_word: Bools
    texts: list[str]
    starts: Longs
    ends: Longs
    bits: Doubles
    oov: Bools
    pieces: Longs
    entropies: Doubles | None = None
    orders: Longs | None = None

    @classmethod
    def none(cls) -> Self:
        """Return those of no lines."""
        whole, truths = np.zeros(0, np.int64), np.zeros(0, np.bool_)
        return cls(0, whole, whole, truths, [], whole, whole, np.zeros(0), truths, whole)

    def without_ends(self) -> ScoredWords:
        """Return the words alone."""
        arrays: dict[str, Any] = {
            name: value[self.is_word]
            for name, value in vars(self).items()
            if isinstance(value, np.ndarray)
        }
        return dataclasses.replace(self, **arrays)

    def all_texts(self) -> list[str]:
        """Return the texts of the words, and `</s>` for the ends of lines, [U]."""
        if len(self.texts) == len(self.is_word):
            return self.texts
        words = iter(self.texts)
        return [next(words) if is_word else EOS for is_word in self.is_word.tolist()]

    def unknown_texts(self) -> list[str]:
        """Return the texts of words with pieces that are unknown to the model."""
        return [self.texts[place] for place in np.flatnonzero(self.oov[self.is_word]).tolist()]

    def by_line(self) -> list[list[Word]]:
        """Return the words of each line."""
        nothing = [None] * len(self.lines)
        columns = (self.starts, self.ends, self.bits, self.oov, self.pieces)
        words = map(
            Word,
            self.numbers.tolist(),
            self.all_texts(),
            *(column.tolist() for column in columns),
            nothing if self.entropies is None else self.entropies.tolist(),
            nothing if self.orders is None else self.orders.tolist(),
        )
        lines: list[list[Word]] = [[] for _ in range(self.num_lines)]
        for line, word in zip(self.lines.tolist(), words, strict=True):
            lines[line].append(word)
        return lines


def score_words(
    model: LanguageModel,
    lines: Iterable[str],
    *,
    carry_state: bool = False,
    entropy: bool = False,
    line_ends: bool = False,
) -> Iterator[list[Word]]:
    r"""Score the words of lines; one list per line, in order.

    Args:
        model: any language model.
        lines: texts; what is `\r` or `\n` in one is read as a space.
        carry_state: let a model that reads text as one stream go on from line to line, in place of
            beginning each anew.
        entropy: find the entropy, too; it is that of words only.
        line_ends: end each list with `</s>`.

    Raises:
        ConfigError: the model learns from the text, and each line is to begin anew.
        DataError: a line that the model cannot read, with its number.
        ModelError: the model gives something that is no probability.
    """
    blocks = LineBlocks(lines)
    for words in score_blocks(
        model,
        blocks,
        blocks.located,
        carry_state=carry_state,
        entropy=entropy,
        line_ends=line_ends,
    ):
        yield from words.by_line()


class LineBlocks(Iterator[bytes]):
    """Lines in memory as blocks of UTF-8, as a model reads them; see `score_words`."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._num_read = self._num_last = 0  # lines before the block given last, and its own

    def __next__(self) -> bytes:
        lines = [
            line.translate(_ENDS_AS_SPACES) + "\n" for line in islice(self._lines, BLOCK_LINES)
        ]
        if not lines:
            raise StopIteration
        self._num_read, self._num_last = self._num_read + self._num_last, len(lines)
        return "".join(lines).encode(errors="replace")

    def located(self, error: DataError, line: int) -> DataError:
        """Return an error about a 1-based line of the block given last, with the line's number."""
        return DataError(error.message, hint=error.hint, line=self._num_read + line)


def score_blocks(
    model: LanguageModel,
    blocks: Iterable[bytes],
    located: Callable[[DataError, int], DataError],
    *,
    carry_state: bool = False,
    entropy: bool = False,
    line_ends: bool = False,
) -> Iterator[ScoredWords]:
    """Score the words of blocks of whole lines of UTF-8, each ended by LF; see `score_words`.

    What is wrong with a line of the block read last is told as `located` says where it is.
    """
    if not carry_state and adaptations_of(model):
        raise ConfigError(
            "the model learns from the text, so a line cannot begin anew",
            hint="let it read the lines as one text: --carry-state",
        )
    tokenizer = model.tokenizer
    is_word_model = tokenizer.unit == "word"
    # in a vocabulary of words all that follows a word is of the class: its probability is one
    summary = Summary(
        None if is_word_model else tokenizer.opens_word, entropy=entropy and is_word_model
    )
    pending: deque[tuple[bytes, Ids]] = deque()  # read by the model, not scored yet
    num_tokens = 0

    def feed() -> Iterator[Ids]:
        for block in blocks:
            try:
                ids = tokenizer.encode_block(block)
            except DataError as error:
                if error.line is None or error.path is not None:
                    raise
                raise located(error, error.line) from error
            pending.append((block, ids))
            yield ids

    if summary.class_V is None and not summary.entropy:
        scored = model.score_ids(feed(), reset_state=not carry_state)
    else:
        scored = summarise(model, feed(), summary, reset_state=not carry_state)
    for scores in scored:
        block, ids = pending.popleft()
        check_log_probs(scores.log_probs, num_tokens)
        num_tokens += len(ids)
        yield _words_of(block, ids, scores, tokenizer, line_ends=line_ends)


def _words_of(
    block: bytes, ids: Ids, scores: TokenScores, tokenizer: Tokenizer, *, line_ends: bool
) -> ScoredWords:
    """Return the words of a block, and the ends of its lines if they are asked for."""
    starts_W, ends_W = _word_places(block)
    texts = [*filter(None, block.translate(_AS_SPACES).decode().split(" "))]
    if isinstance(tokenizer, WordTokenizer):
        if tokenizer.special_tokens == "skip":
            kept = [i for i, text in enumerate(texts) if text not in (BOS, EOS)]
            starts_W, ends_W, texts = starts_W[kept], ends_W[kept], [texts[i] for i in kept]
        last_W = np.flatnonzero(ids != EOS_ID)
        is_told_W = np.zeros(len(last_W), np.bool_)
    else:
        last_W, is_told_W = _last_tokens(block, ids, tokenizer)
    # a piece may end with two words; the end of a line comes after its words
    last_L = np.flatnonzero(ids == EOS_ID)
    place_L = np.arange(len(last_L)) + np.searchsorted(last_W, last_L, side="right")
    is_word_U = np.ones(len(last_W) + len(last_L), np.bool_)
    is_word_U[place_L] = False

    def merged(of_words: Longs | Bools, of_ends: Longs | bool) -> Longs:
        values_U = np.empty(len(is_word_U), np.int64)
        values_U[is_word_U], values_U[place_L] = of_words, of_ends
        return values_U

    last_U = merged(last_W, last_L)
    first_U = np.concatenate(([0], last_U[:-1] + 1))
    nats_U = unit_log_probs(scores, first_U, last_U, merged(is_told_W, False) > 0)
    orders = scores.columns.get("order") if isinstance(tokenizer, WordTokenizer) else None
    # characters before each byte of the block: all but the bytes that go on with one
    data = np.frombuffer(block, np.uint8)
    num_before = np.concatenate(([0], np.cumsum((data & 0xC0) != 0x80)))
    end_L = num_before[np.flatnonzero(data == _LF)]
    line_U: Longs = np.cumsum(~is_word_U) - ~is_word_U
    start_L = np.concatenate(([0], end_L[:-1] + 1))  # characters before each line
    first_L = np.concatenate(([0], place_L[:-1] + 1))  # units before it
    found = ScoredWords(
        num_lines=len(last_L),
        lines=line_U,
        numbers=np.arange(1, len(line_U) + 1) - first_L[line_U],
        is_word=is_word_U,
        texts=texts,
        starts=merged(num_before[starts_W], end_L) - start_L[line_U],
        ends=merged(num_before[ends_W], end_L) - start_L[line_U],
        bits=np.maximum(0.0, -nats_U / LN_2),
        oov=_sums(ids == UNK_ID, first_U, last_U) > 0,
        pieces=last_U + 1 - first_U,
        entropies=None if scores.entropies is None else scores.entropies[last_U] / LN_2,
        orders=None if orders is None else orders[last_U],
    )
    return found if line_ends else found.without_ends()


class Frequencies:
    """How often words occur in a text, to be looked up.

    Args:
        counts: of each word.
        lowercase: look words up in lower case.
    """

    def __init__(self, counts: Mapping[str, int], *, lowercase: bool = False) -> None:
        self._counts, self._lowercase = counts, lowercase
        self._log_total = math.log10(max(1, sum(counts.values())))

    @classmethod
    def of_model(cls, model: LanguageModel) -> Self | None:
        """Return those in the training text of a model of words that has kept them, else None."""
        tokenizer = model.tokenizer
        vocabulary = tokenizer.vocabulary
        counts = dict(zip(vocabulary.symbols, vocabulary.counts, strict=True))
        counts.pop(EOS)
        if tokenizer.unit != "word" or not any(counts.values()):
            return None
        found = cls(counts, lowercase=tokenizer.lowercase)
        counts.pop(UNK)  # many words, not one; they count in the total alone
        return found

    @classmethod
    def of_text(cls, blocks: Iterable[bytes]) -> Self:
        """Count the words of blocks of whole lines, as they are written."""
        from seqtool.text.words import WordTable

        table = WordTable(special_tokens="unknown")
        for block in blocks:
            table.add(block)
        words = ((table.word(i), count) for i, count in enumerate(table.counts.tolist()))
        return cls({word: count for word, count in words if count and word not in (UNK, EOS, BOS)})

    def log10(self, word: str) -> float | None:
        """Return log10 of the word's share of the text, None if it is not there."""
        count = self._counts.get(word.lower() if self._lowercase else word, 0)
        return math.log10(count) - self._log_total if count else None


def word_columns(
    words: ScoredWords,
    first: int,
    *,
    entropy: bool = False,
    order: bool = False,
    frequencies: Frequencies | None = None,
    previous: int = 0,
) -> dict[str, Column]:
    """Return words as the columns of a table, one row per word, None where there is no value.

    Args:
        words: of some lines.
        first: the number of the first line.
        entropy: whether there is a column of entropies.
        order: whether there is one of the orders of n-grams.
        frequencies: what a column log10_frequency is taken from.
        previous: how many words before each one have their surprisal, length and frequency beside
            it, those of the word before in surprisal_1, and so on.
    """
    texts = words.all_texts()
    columns: dict[str, Column] = {
        "sentence": words.lines + first,
        "word_number": words.numbers,
        "word": texts,
        "start": words.starts,
        "end": words.ends,
        "surprisal": words.bits,
        "oov": words.oov.astype(np.int64),
        "pieces": words.pieces,
        "length": words.ends - words.starts,
    }
    nothing = [None] * len(texts)
    if entropy:
        columns["entropy"] = nothing if words.entropies is None else words.entropies
    if order:
        columns["order"] = nothing if words.orders is None else words.orders
    if frequencies is not None:
        columns["log10_frequency"] = [
            frequencies.log10(text) if is_word else None
            for text, is_word in zip(texts, words.is_word.tolist(), strict=True)
        ]
    carried = [name for name in ("surprisal", "length", "log10_frequency") if name in columns]
    for back in range(1, previous + 1):
        rows = np.arange(len(texts)) - back
        is_missing = words.numbers <= back
        rows[is_missing] = 0
        for name in carried:
            column = columns[name]
            columns[f"{name}_{back}"] = (
                np.ma.masked_array(column[rows], is_missing)
                if isinstance(column, np.ndarray)
                else [
                    None if missing else column[row]
                    for row, missing in zip(rows.tolist(), is_missing.tolist(), strict=True)
                ]
            )
    return columns


def unit_log_probs(scores: TokenScores, first_U: Longs, last_U: Longs, is_told_U: Bools) -> Doubles:
    """Return the log-probabilities (nats) of words and ends of lines, [U].

    Args:
        scores: of N tokens, with the class of those that may follow a word where one is told.
        first_U: the first token of each unit; what follows the one before.
        last_U: its last token, the one before its first for a unit without any.
        is_told_U: whether the token after it tells that it has ended; False for ends of lines.
    """
    nats_U = _sums(scores.log_probs, first_U, last_U)
    if scores.class_log_probs is None:
        return nats_U
    ended_U = np.zeros(len(last_U))
    # what is read off a distribution in single precision may be less than the token's own
    after = last_U[is_told_U] + 1
    ended_U[is_told_U] = np.minimum(
        0.0, np.maximum(scores.class_log_probs[after], scores.log_probs[after])
    )
    before_U = np.concatenate(([0.0], ended_U[:-1]))
    before_U[np.isneginf(before_U)] = 0.0  # the word before is impossible; say it once
    return nats_U + ended_U - before_U


def _sums(values: Doubles | Bools, first_U: Longs, last_U: Longs) -> Doubles:
    """Return the sums of ranges of values, which follow each other; an empty one has 0."""
    sums_U = np.zeros(len(first_U))
    has_some = np.flatnonzero(last_U >= first_U)
    if len(has_some):
        sums_U[has_some] = np.add.reduceat(values.astype(np.float64), first_U[has_some])
    return sums_U


def _word_places(block: bytes) -> tuple[Longs, Longs]:
    """Return the bytes of a block at which words begin and end, [W] each."""
    is_blank = _IS_BLANK[np.frombuffer(block, np.uint8)]
    before = np.concatenate(([True], is_blank[:-1]))
    starts = np.flatnonzero(before & ~is_blank)
    ends = np.flatnonzero(is_blank & ~before)
    return starts, ends


def _last_tokens(block: bytes, ids: Ids, tokenizer: Tokenizer) -> tuple[Longs, Bools]:
    """Return the token in which each word ends, and whether the next one tells so, [W] each."""
    text = tokenizer.as_read(block)
    token_ends = np.cumsum(tokenizer.token_sizes(block, ids))
    if token_ends[-1] != len(text):
        raise ValueError(f"tokens of {token_ends[-1]} bytes, but a text of {len(text)}")
    _, ends_W = _word_places(text)
    last_W = np.searchsorted(token_ends, ends_W)
    is_whole_W = token_ends[last_W] == ends_W
    # inside a piece, the next token is of no account, and after the last one there is none
    after_W = np.minimum(last_W + 1, len(ids) - 1)
    return last_W, is_whole_W & tokenizer.opens_word[ids[after_W]]
