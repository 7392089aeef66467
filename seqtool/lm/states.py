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

from collections.abc import Iterable, Iterator, Sequence
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
    splitter = WordSplitter(model.tokenizer)
    numbered = enumerate(lines, start=1)
    while some := list(islice(numbered, SENTENCES_AHEAD)):
        sentences = [splitter.split(line, number) for number, line in some]
        lengths = [1 + len(sentence.ids) for sentence in sentences]
        states: dict[int, Reals] = {}
        batch: list[int] = []
        for place in sorted(range(len(sentences)), key=lengths.__getitem__):
            if batch and (len(batch) + 1) * lengths[place] > BATCH_IDS:
                states.update(_read(model, sentences, batch, layer, pool))
                batch = []
            batch.append(place)
        states.update(_read(model, sentences, batch, layer, pool))
        for place, sentence in enumerate(sentences):
            yield SentenceStates(sentence.words, states.pop(place).astype(np.float32, copy=False))


class SplitSentence(NamedTuple):
    """A sentence as ids; the units of word w are those from `begins[w]` up to `ends[w]`."""

    words: list[Span]
    ids: Ids
    begins: list[int]
    ends: list[int]


class WordSplitter:
    """Turns lines into ids, and knows which of these are of which word."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        if isinstance(tokenizer, WordTokenizer):  # a word `</s>` is to be an unknown one
            tokenizer = WordTokenizer(
                tokenizer.vocabulary, lowercase=tokenizer.lowercase, special_tokens="unknown"
            )
        self._tokenizer = tokenizer
        # what a space alone is read as, if it is a unit of its own
        blank = [] if tokenizer.unit == "word" else tokenizer.encode(" ").tolist()
        self._blank = frozenset(blank) - {UNK_ID}

    def split(self, line: str, number: int = 1) -> SplitSentence:
        """Split a line of this number, from 1."""
        with Place(IN_MEMORY, 1).locating():
            encoded_line(line, number)
        words, parts, begins, ends = [], [np.zeros(0, np.int32)], [], []
        size = before = 0
        for start, end in word_spans(line):
            # no unit holds a space but as its first character, so words can be split one by one
            ids = self._tokenizer.encode(line[before:end])
            num_blanks = 0
            while num_blanks + 1 < len(ids) and ids[num_blanks] in self._blank:
                num_blanks += 1
            words.append(Span(line[start:end], start, end))
            begins.append(size + num_blanks)
            size += len(ids)
            ends.append(size)
            parts.append(ids)
            before = end
        return SplitSentence(words, np.concatenate(parts), begins, ends)


def _read(
    model: SentenceReader,
    sentences: Sequence[SplitSentence],
    batch: Sequence[int],
    layer: int | None,
    pool: Pool,
) -> Iterator[tuple[int, Reals]]:
    """Yield the vectors of some sentences, [W, H], with their places."""
    found = model.sentence_states([sentences[place].ids for place in batch], layer)
    for place, states in zip(batch, found, strict=True):
        _, _, begins, ends = sentences[place]
        if pool == "last" or not ends:
            yield place, states[ends]
            continue
        # row n is the state after n units; a word without any leaves the state as it is
        firsts = [min(begin + 1, end) for begin, end in zip(begins, ends, strict=True)]
        means = [states[i : end + 1].mean(0) for i, end in zip(firsts, ends, strict=True)]
        yield place, np.stack(means)
