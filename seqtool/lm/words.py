r"""The surprisal of words, whatever a model's units are.

A word is what blanks separate. A model of words gives its probability as it is. Other models give
those of pieces: characters, bytes, subwords. Of a line `the old dog`, with the pieces of which
several make a word and a mark `_` for a blank, a line's end being `</s>`,

    the   _o  ld  _dog  </s>

the product of the pieces `_o ld` is no probability of the word `old`: it is that of all words that
begin so, `older` too. The word ends where what follows begins with a blank or is `</s>`; the
probability of that belongs to the word that ends, not to the next one (Pimentel & Meister 2024,
"How to compute the probability of a word"; Oh & Schuler 2024, "Leading whitespaces of language
models' subword vocabulary pose a confound for calculating word probabilities"). With E(text) the
probability that the next piece is one of these,

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
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from seqtool.core.arrays import Doubles, Ids, Longs
from seqtool.core.errors import ConfigError
from seqtool.core.one_line import html_table
from seqtool.core.reading import Blocks, LineBlocks
from seqtool.core.units import LN_2
from seqtool.core.vocabulary import BOS, EOS, EOS_ID, UNK_ID
from seqtool.lm.alignment import Pieces, Units, add_up, find_units
from seqtool.lm.evaluation import check_log_probs, paired_results
from seqtool.lm.protocol import LanguageModel, Summary, TokenScores, refuse_other_than_model
from seqtool.lm.tables import Column, plain
from seqtool.text.tokenizers import Tokenizer, WordTokenizer, turned

SPECIAL = (BOS.encode(), EOS.encode())


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


class Words(list[Word]):
    """The words of a line, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        return html_table(word._asdict() for word in self)


@dataclass(frozen=True)
class ScoredWords:
    """The words of a block of lines, and the ends of lines if they were asked for, in order.

    Attributes:
        block: the lines, in UTF-8.
        units: where they stand.
        pieces: their surprisals (bits), [U].
        entropies, orders: as in `Word`, [U], or None.
    """

    block: bytes
    units: Units
    pieces: Pieces
    entropies: Doubles | None = None
    orders: Longs | None = None

    @property
    def num_lines(self) -> int:
        """How many lines the block has."""
        return self.block.count(b"\n")

    @property
    def texts(self) -> list[str]:
        """As in `Word`, [U]."""
        spans = zip(*(each.tolist() for each in self.units[:2]), strict=True)
        return [self.block[begin:end].decode() or EOS for begin, end in spans]

    def unknown_texts(self) -> list[str]:
        """Return the texts of words with pieces that are unknown to the model."""
        rows = np.flatnonzero(self.pieces.oov & self.units.is_word)
        begins, ends = self.units.begins[rows].tolist(), self.units.ends[rows].tolist()
        return [self.block[begin:end].decode() for begin, end in zip(begins, ends, strict=True)]

    def by_line(self) -> list[list[Word]]:
        """Return the words of each line."""
        units, nothing = self.units, [None] * len(self.units.lines)
        columns: list[Iterable[Any]] = [units.numbers.tolist(), self.texts]
        columns += [array.tolist() for array in (units.starts, units.stops, *self.pieces)]
        for optional in (self.entropies, self.orders):
            columns.append(nothing if optional is None else optional.tolist())
        lines: list[list[Word]] = [Words() for _ in range(self.num_lines)]
        for line, *values in zip(units.lines.tolist(), *columns, strict=True):
            lines[line].append(Word(*values))
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
    blocks = LineBlocks(lines, join=True)
    options = {"carry_state": carry_state, "entropy": entropy, "line_ends": line_ends}
    for words in score_blocks(model, blocks, **options):
        yield from words.by_line()


def refuse_lines_anew(model: LanguageModel, *, carry_state: bool) -> None:
    """Refuse a model that learns from the text, where each line is to begin anew.

    Raises:
        ConfigError: so it is.
    """
    if not carry_state and model.adaptations:
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
    if tokenizer.reverse and tokenizer.unit != "word":
        raise ConfigError(
            "the model reads characters from the ends of lines, which gives words no probability",
            hint="take a model of words, or see what it gives lines: seqtool eval-ppl",
        )
    summary: Summary | None = None
    if tokenizer.unit != "word":
        summary = Summary(tokenizer.opens_word)
    elif entropy:  # in a vocabulary of words all that follows a word opens one: it is certain
        summary = Summary(entropy=True)
    num_tokens = 0

    encoded = ((ids, (block, ids)) for ids, block in tokenizer.encode_blocks(blocks))
    score = partial(model.score_ids, reset_state=not carry_state, summary=summary)
    for (block, ids), scores in paired_results(encoded, score):
        check_log_probs(scores.log_probs, num_tokens)
        num_tokens += len(ids)
        yield _words_of(block, ids, scores, tokenizer, line_ends=line_ends)


def _words_of(
    block: bytes, ids: Ids, scores: TokenScores, tokenizer: Tokenizer, *, line_ends: bool
) -> ScoredWords:
    """Return the words of a block, and the ends of its lines if they are asked for."""
    if not isinstance(tokenizer, WordTokenizer):
        units = find_units(block, line_ends=line_ends)
        return ScoredWords(block, units, _pieces_of(block, units, ids, scores, tokenizer))
    skipped: tuple[bytes, ...] = ()
    if tokenizer.special_tokens == "skip":
        skipped = SPECIAL
        if tokenizer.lowercase:  # so are these, once they are read
            skipped += tuple(token.upper() for token in SPECIAL)
    units = find_units(block, line_ends=line_ends, skipped=skipped)
    # a token is a word or the end of a line
    tokens_U: Any = slice(None) if line_ends else np.flatnonzero(ids != EOS_ID)
    if tokenizer.reverse:  # back to the order of the text
        tokens_U = turned(ids == EOS_ID)[tokens_U]
    ids_U = ids[tokens_U]
    # what a softmax in single precision has above one is certain
    bits_U = np.maximum(0.0, -scores.log_probs[tokens_U] / LN_2)
    orders = scores.columns.get("order")
    return ScoredWords(
        block,
        units,
        Pieces(bits_U, ids_U == UNK_ID, np.ones(len(ids_U), np.int64)),
        entropies=None if scores.entropies is None else scores.entropies[tokens_U] / LN_2,
        orders=None if orders is None else orders[tokens_U],
    )


def _pieces_of(
    block: bytes, units: Units, ids: Ids, scores: TokenScores, tokenizer: Tokenizer
) -> Pieces:
    """Return what the tokens of the units of a block say, of a model that is not of words."""
    text = tokenizer.as_read(block)
    if text is not block:  # the same units, of other lengths
        units = find_units(text, line_ends=not units.is_word.all())
    assert scores.class_log_probs is not None
    sizes = tokenizer.symbol_sizes[ids]
    sizes[ids == UNK_ID] = tokenizer.unknown_sizes(block, ids)
    if sizes.sum() != len(text):
        raise ValueError(f"tokens of {sizes.sum()} bytes, but a text of {len(text)}")
    return add_up(units, ids, sizes, tokenizer.opens_word, scores.log_probs, scores.class_log_probs)


def own_frequencies(model: LanguageModel) -> dict[str, float] | None:
    """Return log10 of the share of each word of the training text, of a model that has kept them.

    None of a model of other units than words, or without counts.
    """
    vocabulary = model.tokenizer.vocabulary
    counts = np.array(vocabulary.counts, np.int64)
    counts[EOS_ID] = 0
    if model.tokenizer.unit != "word" or not counts.any():
        return None
    total = int(counts.sum())
    counts[UNK_ID] = 0  # many words, not one; they count in the total alone
    return _log_shares(counts, total, vocabulary.symbols.__getitem__)


def text_frequencies(blocks: Iterable[bytes]) -> dict[str, float]:
    """Return log10 of the share of each word of a text of whole lines, as it is written."""
    from seqtool.text.words import WordTable

    table = WordTable(special_tokens="unknown")
    for block in blocks:
        table.add(block)
    counts = table.counts.copy()
    counts[[UNK_ID, EOS_ID, table.bos_id]] = 0
    return _log_shares(counts, int(counts.sum()), table.word)


def _log_shares(counts: Longs, total: int, word_of: Callable[[int], str]) -> dict[str, float]:
    numbers = np.flatnonzero(counts)
    shares = np.log10(counts[numbers]) - math.log10(max(1, total))
    return dict(zip(map(word_of, numbers.tolist()), shares.tolist(), strict=True))


def word_columns(
    words: ScoredWords,
    first: int,
    *,
    entropy: bool = False,
    order: bool = False,
    frequencies: Mapping[str, float] | None = None,
    lowercase: bool = False,
    previous: int = 0,
) -> dict[str, Column]:
    """Return words as the columns of a table, one row per word, None where there is no value.

    Args:
        words: of some lines.
        first: the number of the first line.
        entropy: whether there is a column of entropies.
        order: whether there is one of the orders of n-grams.
        frequencies: what a column log10_frequency is taken from: log10 of the share of each word.
        lowercase: whether words are looked up in lower case.
        previous: how many words before each one have their surprisal, length and frequency beside
            it, those of the word before in surprisal_1, and so on.
    """
    units, nothing = words.units, [None] * len(words.units.lines)
    columns: dict[str, Column] = {
        "sentence": units.lines + first,
        "word_number": units.numbers,
        "word": words.texts,
        "start": units.starts,
        "end": units.stops,
        "surprisal": words.pieces.bits,
        "oov": words.pieces.oov.astype(np.int64),
        "pieces": words.pieces.nums,
        "length": units.stops - units.starts,
    }
    if entropy:
        columns["entropy"] = nothing if words.entropies is None else words.entropies
    if order:
        columns["order"] = nothing if words.orders is None else words.orders
    if frequencies is not None:
        texts = [text.lower() for text in words.texts] if lowercase else words.texts
        columns["log10_frequency"] = [
            frequencies.get(text) if is_word else None
            for text, is_word in zip(texts, units.is_word.tolist(), strict=True)
        ]
    names = ("surprisal", "length", "log10_frequency")
    carried = {name: plain(columns[name]) for name in names if name in columns}
    numbers = units.numbers.tolist()
    for back in range(1, previous + 1):
        for name, values in carried.items():
            columns[f"{name}_{back}"] = [
                None if number <= back else values[row - back] for row, number in enumerate(numbers)
            ]
    return columns
