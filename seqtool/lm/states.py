"""The state of a network after each word of a text: word vectors in context.

Each sentence is read from the beginning of a text. A word's vector is the state after its last
unit, or the mean of the states after each of its units; the space before a word, where that is a
unit of its own, is none of them.

    the old dog          units of characters   t h e _ o l d _ d o g
                         states                1 2 3 4 5 6 7 8 9 ...
    "last"  the vector of "old" is state 7          "mean"  that of states 5, 6 and 7

Shapes: W words of a sentence, H units of a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple, get_args

import numpy as np

from seqtool.core.arrays import Floats, Ids, Reals
from seqtool.core.errors import ConfigError, ModelError, counted
from seqtool.core.reading import IN_MEMORY, Place, encoded_line
from seqtool.core.vocabulary import UNK_ID
from seqtool.lm.protocol import LanguageModel, SentenceReader
from seqtool.text.tokenizers import Tokenizer, WordTokenizer, word_spans

Pool = Literal["last", "mean"]

BATCH_IDS = 1 << 12  # read together, padding included
SENTENCES_AHEAD = 256  # among which those of like lengths are read together


class Span(NamedTuple):
    """A word of a line, and where it stands: characters `start` to `end`, from 0."""

    word: str
    start: int
    end: int


@dataclass(frozen=True)
class SentenceStates:
    """The words of a sentence, and their vectors.

    Attributes:
        words: W of them.
        vectors: float32 [W, H].
    """

    words: Sequence[Span]
    vectors: Floats


def word_states(
    model: LanguageModel, lines: Iterable[str], *, layer: int | None = None, pool: Pool = "last"
) -> Iterator[SentenceStates]:
    """Return the states of words, one result per line, in order; memory does not grow with them.

    Args:
        model: a neural language model.
        lines: sentences, without line ends.
        layer: from 1, or 0 for the embedding; the last one when not given.
        pool: which states are a word's: see above.

    Raises:
        ConfigError: there is no such layer or pool.
        DataError: a line end inside a line.
        ModelError: the model has no states.
    """
    if not isinstance(model, SentenceReader):
        raise ModelError(
            f"a model of kind {model.kind} has no states",
            hint="choose a network: a model of `seqtool train-lm`",
        )
    if pool not in get_args(Pool):
        raise ConfigError(f"pool is {pool!r}", hint="choose last or mean")
    if layer is not None:
        check_layer(layer, model.num_layers, first=0)
    # errors above come now, not when the first result is asked for
    return _word_states(model, lines, layer, pool)


def check_layer(layer: int, num_layers: int, *, first: int = 1) -> None:
    """Refuse a layer that a network does not have.

    Raises:
        ConfigError: there is no such layer.
    """
    if not first <= layer <= num_layers:
        raise ConfigError(
            f"there is no layer {layer}: the network has {counted(num_layers, 'layer')}",
            hint=f"choose a layer from {first} to {num_layers}",
        )


def _word_states(
    model: SentenceReader, lines: Iterable[str], layer: int | None, pool: Pool
) -> Iterator[SentenceStates]:
    split = sentence_splitter(model.tokenizer)
    numbered = enumerate(lines, start=1)
    while some := list(islice(numbered, SENTENCES_AHEAD)):
        sentences = [split(line, number) for number, line in some]
        batches: list[list[int]] = [[]]
        for place in sorted(range(len(some)), key=lambda place: len(sentences[place].ids)):
            padded = (len(batches[-1]) + 1) * (1 + len(sentences[place].ids))
            if batches[-1] and padded > BATCH_IDS:
                batches.append([])
            batches[-1].append(place)
        vectors: dict[int, Reals] = {}
        for batch in batches:
            states = model.sentence_states([sentences[place].ids for place in batch], layer)
            for place, states_NH in zip(batch, states, strict=True):
                vectors[place] = _of_words(sentences[place], states_NH, pool)
        for place, sentence in enumerate(sentences):
            yield SentenceStates(sentence.words, vectors.pop(place).astype(np.float32, copy=False))


def _of_words(sentence: SplitSentence, states_NH: Reals, pool: Pool) -> Reals:
    """Return the vectors of words, [W, H]; row n of the states is that after n units."""
    if pool == "last" or not sentence.ends:
        return states_NH[sentence.ends]
    # a word without any unit leaves the state as it is
    spans = zip(sentence.begins, sentence.ends, strict=True)
    means = [states_NH[min(begin + 1, end) : end + 1].mean(0) for begin, end in spans]
    return np.stack(means)


class SplitSentence(NamedTuple):
    """A sentence as ids; the units of word w are those from `begins[w]` up to `ends[w]`."""

    words: list[Span]
    ids: Ids
    begins: list[int]
    ends: list[int]


def sentence_splitter(tokenizer: Tokenizer) -> Callable[[str, int], SplitSentence]:
    """Return what turns a line of a number, from 1, into ids, and knows which are of which word."""
    if tokenizer.reverse:
        raise ConfigError(
            "the model reads lines from their ends, so a word has no words before it",
            hint="choose a model that was trained without `prepare --reverse`",
        )
    if isinstance(tokenizer, WordTokenizer):  # a word `</s>` is to be an unknown one
        tokenizer = WordTokenizer(
            tokenizer.vocabulary, lowercase=tokenizer.lowercase, special_tokens="unknown"
        )
    # what a space alone is read as, if it is a unit of its own
    blank = set() if tokenizer.unit == "word" else {*tokenizer.encode(" ").tolist()} - {UNK_ID}

    def split(line: str, number: int) -> SplitSentence:
        with Place(IN_MEMORY, 1).locating():
            encoded_line(line, number)
        words, parts, begins, ends = [], [np.zeros(0, np.int32)], [], []
        size = before = 0
        for start, end in word_spans(line):
            # no unit holds a space but as its first character, so words can be split one by one
            ids = tokenizer.encode(line[before:end])
            num_blanks = 0
            while num_blanks + 1 < len(ids) and ids[num_blanks] in blank:
                num_blanks += 1
            words.append(Span(line[start:end], start, end))
            begins.append(size + num_blanks)
            size += len(ids)
            ends.append(size)
            parts.append(ids)
            before = end
        return SplitSentence(words, np.concatenate(parts), begins, ends)

    return split
