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

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from seqtool.core.arrays import Bools, Bytes, Doubles, Ids, Longs
from seqtool.core.errors import ConfigError
from seqtool.core.reading import BLOCK_SIZE, Blocks, LineBlocks, read_blocks
from seqtool.core.units import LN_2
from seqtool.core.vocabulary import EOS, EOS_ID, UNK_ID
from seqtool.lm.alignment import SPARE, Pieces, Places, add_up, find_units
from seqtool.lm.evaluation import check_log_probs
from seqtool.lm.protocol import (
    LanguageModel,
    Summary,
    TokenScores,
    adaptations_of,
    refuse_other_than_model,
    summarise,
)
from seqtool.lm.tables import Cells, Column, Numbers
from seqtool.text.tokenizers import Tokenizer, WordTokenizer

NGRAM_BLOCK = 1 << 18  # bytes of a text: what is found of so many stays in the second cache


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
        texts: as in `Word`, [U].
        numbers, starts, ends, bits, oov, pieces: as in `Word`, [U].
        entropies, orders: as in `Word`, [U], or None.
        ids: what a model of words reads them as, [U]; None for other units.
    """

    num_lines: int
    lines: Longs
    numbers: Longs
    is_word: Bools
    texts: Cells
    starts: Longs
    ends: Longs
    bits: Doubles
    oov: Bools
    pieces: Longs
    entropies: Doubles | None = None
    orders: Longs | None = None
    ids: Ids | None = None

    @classmethod
    def none(cls) -> Self:
        """Return those of no lines."""
        whole, truths = np.zeros(0, np.int64), np.zeros(0, np.bool_)
        return cls(0, whole, whole, truths, Cells.of([]), whole, whole, np.zeros(0), truths, whole)

    def unknown_texts(self) -> Cells:
        """Return the texts of words with pieces that are unknown to the model."""
        return self.texts.take(np.flatnonzero(self.oov & self.is_word))

    def by_line(self) -> list[list[Word]]:
        """Return the words of each line."""
        nothing = [None] * len(self.lines)
        columns = (self.starts, self.ends, self.bits, self.oov, self.pieces)
        words = map(
            Word,
            self.numbers.tolist(),
            self.texts,
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
    for words in score_blocks(
        model,
        LineBlocks(lines, join=True),
        carry_state=carry_state,
        entropy=entropy,
        line_ends=line_ends,
    ):
        yield from words.by_line()


def block_size(model: LanguageModel, *, entropy: bool) -> int:
    """Return the bytes of a block of text for which `score_blocks` takes the least time.

    An n-gram model gains nothing by larger ones, unless it is asked for entropies, which it finds
    once for each context of a block. Others read the lines of a block side by side.
    """
    return NGRAM_BLOCK if model.kind == "ngram" and not entropy else BLOCK_SIZE


def refuse_lines_anew(model: LanguageModel, *, carry_state: bool) -> None:
    """Refuse a model that learns from the text, where each line is to begin anew.

    Raises:
        ConfigError: so it is.
    """
    if not carry_state and adaptations_of(model):
        raise ConfigError(
            "the model learns from the text, so a line cannot begin anew",
            hint="let it read the lines as one text: --carry-state",
        )


def score_blocks(
    model: LanguageModel,
    blocks: Blocks,
    *,
    carry_state: bool = False,
    entropy: bool = False,
    line_ends: bool = False,
) -> Iterator[ScoredWords]:
    """Score the words of blocks of whole lines of UTF-8, each ended by LF; see `score_words`."""
    refuse_other_than_model(model)
    refuse_lines_anew(model, carry_state=carry_state)
    tokenizer = model.tokenizer
    is_word_model = tokenizer.unit == "word"
    # in a vocabulary of words all that follows a word is of the class: its probability is one
    summary = Summary(
        None if is_word_model else tokenizer.opens_word, entropy=entropy and is_word_model
    )
    pending: deque[tuple[bytes, Ids]] = deque()  # read by the model, not scored yet
    num_tokens = 0

    def feed() -> Iterator[Ids]:
        for ids, block in tokenizer.encode_blocks(blocks):
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
    skips = isinstance(tokenizer, WordTokenizer) and tokenizer.special_tokens == "skip"
    data = searched = _with_room(block)
    if skips and tokenizer.lowercase:  # these are marks as well, once they are read
        searched = _with_room(block.replace(b"<S>", b"<s>").replace(b"</S>", b"</s>"))
    places = find_units(searched, len(block), line_ends=line_ends, skip_marks=skips)
    begins_U, ends_U = places.begins, places.ends
    if line_ends:  # they are written as one that stands behind the text
        begins_U = np.where(places.is_word, begins_U, len(block))
        ends_U = np.where(places.is_word, ends_U, len(block) + len(EOS))
    entropies_U = orders_U = ids_U = None
    if isinstance(tokenizer, WordTokenizer):
        # a token is a word or the end of a line
        tokens_U = slice(None) if line_ends else np.flatnonzero(ids != EOS_ID)
        ids_U = ids[tokens_U]
        if len(ids_U) != len(ends_U):
            raise ValueError(f"{len(ids_U)} tokens, but {len(ends_U)} words")
        bits_U = _bits(scores.log_probs[tokens_U])
        found = Pieces(bits_U, ids_U == UNK_ID, np.ones(len(ids_U), np.int64))
        if scores.entropies is not None:
            entropies_U = scores.entropies[tokens_U] / LN_2
        orders_U = scores.columns.get("order")
        orders_U = None if orders_U is None else orders_U[tokens_U]
    else:
        found = _pieces_of(block, ids, scores, tokenizer, places, line_ends=line_ends)
    return ScoredWords(
        num_lines=block.count(b"\n"),
        lines=places.lines,
        numbers=places.numbers,
        is_word=places.is_word,
        texts=Cells(data, begins_U, ends_U),
        starts=places.starts,
        ends=places.stops,
        bits=found.bits,
        oov=found.oov,
        pieces=found.nums,
        entropies=entropies_U,
        orders=orders_U,
        ids=ids_U,
    )


def _with_room(block: bytes) -> Bytes:
    """Return the bytes of a block, the mark of the end of a line, and what may be read after it."""
    return np.frombuffer(block + EOS.encode() + bytes(SPARE), np.uint8)


def _pieces_of(
    block: bytes,
    ids: Ids,
    scores: TokenScores,
    tokenizer: Tokenizer,
    places: Places,
    *,
    line_ends: bool,
) -> Pieces:
    """Return what the tokens of the units of a block say, of a model that is not of words."""
    text = tokenizer.as_read(block)
    ends_U = places.ends
    if text is not block:  # the same units, of other lengths
        ends_U = find_units(_with_room(text), len(text), line_ends=line_ends).ends
    class_log_probs = scores.class_log_probs
    if class_log_probs is None:
        raise ValueError("the class of what may follow a word was not asked for")
    found, size = add_up(
        ends_U,
        places.is_word,
        ids,
        tokenizer.symbol_sizes,
        tokenizer.unknown_sizes(block, ids),
        tokenizer.opens_word,
        np.ascontiguousarray(scores.log_probs, np.float64),
        np.ascontiguousarray(class_log_probs, np.float64),
    )
    if size != len(text):
        raise ValueError(f"tokens of {size} bytes, but a text of {len(text)}")
    return found


def _bits(nats_U: Doubles) -> Doubles:
    """Return surprisals; what a softmax in single precision has above one is certain."""
    return np.maximum(0.0, -nats_U / LN_2)


class Frequencies:
    """How often words occur in a text, to be looked up.

    Args:
        counts: of each word of the text by its number; 0 for what is no word.
        total: words of the text, those without a number too.
        numbers_of: returns the numbers of words, [U], -1 for one that has none.
    """

    def __init__(self, counts: Longs, total: int, numbers_of: Callable[[ScoredWords], Ids]) -> None:
        log10s = np.full(len(counts) + 1, -np.inf)  # the last one is that of -1
        occurs = np.flatnonzero(counts)
        log10s[occurs] = np.log10(counts[occurs]) - math.log10(max(1, total))
        self._log10s, self._numbers_of = log10s, numbers_of

    @classmethod
    def of_nothing(cls) -> Self:
        """Return those of a text without words."""
        return cls(np.zeros(0, np.int64), 0, lambda words: np.full(len(words.lines), -1, np.int32))

    @classmethod
    def of_model(cls, model: LanguageModel) -> Self | None:
        """Return those in the training text of a model of words that has kept them, else None.

        They are known of words that this model has scored.
        """
        counts = np.array(model.tokenizer.vocabulary.counts, np.int64)
        counts[EOS_ID] = 0
        if model.tokenizer.unit != "word" or not counts.any():
            return None
        total = int(counts.sum())
        counts[UNK_ID] = 0  # many words, not one; they count in the total alone

        def numbers_of(words: ScoredWords) -> Ids:
            return np.zeros(0, np.int32) if words.ids is None else words.ids

        return cls(counts, total, numbers_of)

    @classmethod
    def of_models(
        cls, models: Sequence[LanguageModel], texts: Sequence[str | Path] | None = None
    ) -> list[Self | None]:
        """Return those of each model: of texts, or of its own; None where no model has counts."""
        if texts:
            return [cls.of_text(read_blocks([*texts]))] * len(models)
        found = [cls.of_model(model) for model in models]
        # beside others, the cells of a model without counts are empty
        return [each or cls.of_nothing() for each in found] if any(found) else found

    @classmethod
    def of_text(cls, blocks: Iterable[bytes]) -> Self:
        """Count the words of blocks of whole lines, as they are written."""
        from seqtool.text.words import WordTable

        table = WordTable(special_tokens="unknown")
        for block in blocks:
            table.add(block)
        counts = table.counts.copy()
        counts[[UNK_ID, EOS_ID, table.bos_id]] = 0
        return cls(
            counts,
            int(counts.sum()),
            lambda words: table.look_up(words.texts.data, words.texts.begins, words.texts.ends),
        )

    def log10s(self, words: ScoredWords) -> Numbers:
        """Return log10 of each word's share of the text, [U], missing where it is not there."""
        found_U = self._log10s[self._numbers_of(words)]
        return Numbers(found_U, np.isneginf(found_U))


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
    num = len(words.lines)
    columns: dict[str, Column] = {
        "sentence": words.lines + first,
        "word_number": words.numbers,
        "word": words.texts,
        "start": words.starts,
        "end": words.ends,
        "surprisal": words.bits,
        "oov": words.oov.astype(np.int64),
        "pieces": words.pieces,
        "length": words.ends - words.starts,
    }
    nothing = Numbers(np.zeros(num), np.ones(num, np.bool_))
    if entropy:
        columns["entropy"] = nothing if words.entropies is None else words.entropies
    if order:
        columns["order"] = nothing if words.orders is None else words.orders
    none = np.zeros(num, np.bool_)
    carried = {
        "surprisal": Numbers(words.bits, none),
        "length": Numbers(words.ends - words.starts, none),
    }
    if frequencies is not None:
        columns["log10_frequency"] = carried["log10_frequency"] = frequencies.log10s(words)
    for back in range(1, previous + 1):
        rows = np.arange(num) - back
        is_missing = words.numbers <= back
        rows[is_missing] = 0
        for name, column in carried.items():
            columns[f"{name}_{back}"] = Numbers(
                column.values[rows], column.missing[rows] | is_missing
            )
    return columns
