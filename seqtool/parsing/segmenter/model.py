"""The segmenter at work, without torch: raw text to sentences; its directory, of kind "segmenter".

A text is read in windows, so that memory and the length of a recurrence are bounded.

Dimensions: C characters, N tokens, S stretches of text, W windows, H and G units of a direction
over characters and tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqtool.core import checkpoint
from seqtool.core.arrays import Bools, CodePoints, Floats, Ints
from seqtool.core.checkpoint import Header
from seqtool.core.errors import counted
from seqtool.core.vocabulary import Vocabulary
from seqtool.parsing.encoding.lstm import Recurrence, bilstm_shapes, part_of
from seqtool.parsing.inputs import BATCH_SIZE, annotate, annotate_each
from seqtool.parsing.model import Shapes, TreebankModel, at_work, average
from seqtool.parsing.segmenter.characters import (
    MAX_WORD,
    Alphabet,
    Ints64,
    Unit,
    may_end,
    seen,
    sentence_ends,
    space_table,
    to_text,
)
from seqtool.parsing.segmenter.config import SEGMENTERS, SegmenterConfig, SegmenterModelConfig
from seqtool.parsing.segmenter.data import MultiwordSplitter, fold
from seqtool.parsing.segmenter.documents import assemble, read_text
from seqtool.parsing.segmenter.rules import Spans
from seqtool.text.marks import NUM_CODES
from seqtool.treebank.document import Doc
from seqtool.treebank.sentence import Sentence


@dataclass(frozen=True)
class Windows:
    """The windows of sequences that stand one after another, W of them, in order.

    The states of a place do not depend on what is far away, so long sequences are read in windows:

        sequence   a b c d e f g h i j
        windows    a b c d e +             `+` is read for the context of what is before it,
                       + + f g h i j       or after, and its states are not used

    A sequence of up to `size` + 2 * `context` places is one window.

    Attributes:
        begins, ends: the places of what is used of each; together, these are all places.
        read_begins, read_ends: the places of what is read, [W].
    """

    begins: Ints64
    ends: Ints64
    read_begins: Ints64
    read_ends: Ints64

    @classmethod
    def over(cls, lengths: Ints64, size: int, context: int) -> Windows:
        """Lay windows over sequences of some lengths, 1 or more.

        Of a window, `size` places are used, and `context` more are read before and after them.
        """
        counts = np.where(lengths <= size + 2 * context, 1, -(-lengths // size))
        firsts = np.repeat(np.cumsum(lengths) - lengths, counts)
        lasts = np.repeat(np.cumsum(lengths), counts)
        number = np.arange(len(firsts)) - np.repeat(np.cumsum(counts) - counts, counts)
        single = np.repeat(counts == 1, counts)
        begins = firsts + number * size
        ends = np.where(single, lasts, np.minimum(begins + size, lasts))
        return cls(
            begins, ends, np.maximum(begins - context, firsts), np.minimum(ends + context, lasts)
        )

    def groups(self, limit: int) -> Iterator[Windows]:
        """Give windows in groups that read about so many places together, in order."""
        read = np.cumsum(self.read_ends - self.read_begins) // limit
        cuts = np.flatnonzero(np.diff(read)) + 1
        for begin, end in zip([0, *cuts], [*cuts, len(self.begins)], strict=True):
            part = slice(begin, end)
            yield Windows(
                self.begins[part], self.ends[part], self.read_begins[part], self.read_ends[part]
            )

    def places(self) -> Ints64:
        """Return the places that are read, one window after another."""
        return ranges(self.read_begins, self.read_ends)

    def used(self) -> Ints64:
        """Return which of `places` are used, ascending; each place of the sequences is once."""
        lengths = self.read_ends - self.read_begins
        origin = np.cumsum(lengths) - lengths - self.read_begins
        return ranges(self.begins + origin, self.ends + origin)


def ranges(begins: Ints64, ends: Ints64) -> Ints64:
    """Return the numbers from each begin to its end, one range after another."""
    sizes = ends - begins
    shifts: Ints64 = np.repeat(begins - (np.cumsum(sizes) - sizes), sizes)
    return shifts + np.arange(len(shifts))


# what is read together, and the context that is read with it on both sides
_CHARACTERS, CHARACTER_CONTEXT = 1024, 128
_TOKENS, TOKEN_CONTEXT = 256, 64
GROUP = 1 << 16  # characters or tokens whose states are in memory together
MAX_TYPES = 1 << 14  # characters whose vectors are kept


class Reader:
    """Reads characters, then the tokens that they make.

    Args:
        config: sizes.
        alphabet: of characters.
        lexicon: folded form -> row of its vector, from 1 on.
        weights: the arrays of `network.SegmenterNetwork`, by their names there.
    """

    def __init__(
        self,
        config: SegmenterModelConfig,
        alphabet: Alphabet,
        lexicon: Mapping[str, int],
        weights: Mapping[str, Floats],
    ) -> None:
        self.alphabet, self.lexicon, self.weights = alphabet, dict(lexicon), weights
        self._size = config.character_size
        self._characters = Recurrence(part_of(weights, "characters."))
        self._tokens = Recurrence(part_of(weights, "tokens."))
        self._decisions_G2 = np.ascontiguousarray(weights["decisions.weight"].T)
        self._forget_types()

    def _forget_types(self) -> None:
        self._rows = np.full(NUM_CODES, -1, np.int32)  # row of a code point's vector
        self._vectors: Floats = np.empty((0, self._size), np.float32)

    def rows_of(self, codes: CodePoints) -> Ints:
        """Return the rows of characters' vectors, which are made when a character is met first.

        They are good until the next call.
        """
        if len(self._vectors) > MAX_TYPES:
            self._forget_types()
        rows = self._rows[codes]
        if len(rows) and rows.min() < 0:
            new = np.unique(codes[rows < 0])
            symbols = self.alphabet.symbols(new.tolist())
            vectors = self.weights["symbols.weight"][symbols].sum(axis=1, dtype=np.float32)
            self._rows[new] = np.arange(len(self._vectors), len(self._vectors) + len(new))
            self._vectors = np.concatenate((self._vectors, vectors))
            rows = self._rows[codes]
        return rows

    def character_states(self, rows: Ints, group: Windows) -> Floats:
        """Return the states of the characters that a group of windows uses, [C, 2H].

        The rows are those of all characters, by `rows_of`.
        """
        return _states(self._characters, self._vectors, rows[group.places()], group)

    def end_scores(self, states_CH: Floats) -> Floats:
        """Score characters, [C]: above 0 where a token ends."""
        scores_C: Floats = states_CH @ self.weights["token_ends.weight"][0]
        scores_C += self.weights["token_ends.bias"]
        return scores_C

    def token_scores(self, states: Floats, forms: list[str], counts_S: Ints64) -> Floats:
        """Score tokens, [N, 2]: above 0 where a sentence ends, and for several words.

        The states are those of the first and last character of each, [N, 4H].
        """
        rows = np.array([self.lexicon.get(fold(form), 0) for form in forms], np.int32)
        inputs_NI = np.hstack((states, self.weights["forms.weight"][rows]))
        scores = []
        for group in Windows.over(counts_S, _TOKENS, TOKEN_CONTEXT).groups(GROUP):
            # all inputs that are given are projected, so those of other groups stay out
            begin, end = int(group.read_begins.min()), int(group.read_ends.max())
            places = (group.places() - begin).astype(np.int32)
            states_NG = _states(self._tokens, inputs_NI[begin:end], places, group)
            scores.append(states_NG @ self._decisions_G2)
        scores_N2: Floats = np.concatenate(scores) + self.weights["decisions.bias"]
        return scores_N2


def _states(recurrence: Recurrence, inputs: Floats, places: Ints, group: Windows) -> Floats:
    """Return the states of what windows use, in order; see `Recurrence.states`."""
    lengths = (group.read_ends - group.read_begins).astype(np.int32)
    states, order = recurrence.states(inputs, places, lengths)
    rows = np.empty(len(order), np.int64)
    # states come step by step: this leads from a place to its state
    rows[order] = np.arange(len(order))
    return states[rows[group.used()]]


class Segmenter(TreebankModel[SegmenterConfig]):
    """A trained segmenter.

    Args:
        lexicon: folded form -> row of its vector, from 1 on.
        splitter: of multiword tokens.
        has_spaces: whether a token may hold whitespace.
        weights: the arrays of `network.SegmenterNetwork`, by their names there.
    """

    kind = SEGMENTERS.kind
    config_class = SegmenterConfig

    def __init__(
        self,
        config: SegmenterConfig,
        alphabet: Alphabet,
        lexicon: Mapping[str, int],
        splitter: MultiwordSplitter,
        has_spaces: bool,
        weights: Mapping[str, Floats],
    ) -> None:
        super().__init__(config, weights)
        self.alphabet, self.lexicon = alphabet, dict(lexicon)
        self.splitter, self.has_spaces = splitter, has_spaces
        self.reader = Reader(config.model, alphabet, lexicon, weights)

    @property
    def vocabulary(self) -> Vocabulary:
        """What it knows beside its weights."""
        return Vocabulary(
            tables={
                "scripts": self.alphabet.scripts,
                "characters": self.alphabet.characters,
                "forms": list(self.lexicon),
                "multiword": [(form, *words) for form, words in self.splitter.table.items()],
                "endings": [(ending, *rule) for ending, rule in self.splitter.rules.items()],
            },
            extra={"has_spaces": self.has_spaces},
        )

    @property
    def shared(self) -> object:
        """What all members of an ensemble must have alike: all but the weights."""
        return self.vocabulary

    @classmethod
    def restore(
        cls,
        config: SegmenterConfig,
        vocabulary: Vocabulary,
        read_weights: Callable[[Shapes], dict[str, Floats]],
    ) -> Segmenter:
        """Return the segmenter that was saved; see `TreebankModel.restore`."""
        alphabet = Alphabet(vocabulary.texts("scripts"), vocabulary.texts("characters"))
        lexicon = {form: row for row, form in enumerate(vocabulary.texts("forms"), start=1)}
        splits, rules = (
            {str(form): tuple(map(str, words)) for form, *words in vocabulary.rows(name)}
            for name in ("multiword", "endings")
        )
        if not (all(splits.values()) and all(rules.values())):
            raise ValueError("a split is empty")
        if not all(map(all, [*splits.values(), *(words[1:] for words in rules.values())])):
            raise ValueError("a word is empty")
        splitter = MultiwordSplitter(splits, rules)
        weights = read_weights(segmenter_shapes(config.model, len(alphabet), len(lexicon)))
        has_spaces = bool(vocabulary.extra["has_spaces"])
        return cls(config, alphabet, lexicon, splitter, has_spaces, weights)

    @staticmethod
    def card(header: Header) -> str:
        """Return the README.md: what it is, its scores, its data and its command."""
        model = header.config["model"]
        return checkpoint.compose(
            header,
            "A segmenter: raw text to sentences and words",
            f"Bidirectional LSTMs over characters ({model['character_units']} units) and over "
            f"tokens ({model['token_units']}), {counted(header.num_parameters, 'parameter')}.",
            checkpoint.scores_table(header),
            "F1 in percent, on the raw text of the validation part, lines broken after 80 "
            "characters.",
            checkpoint.data_table(header),
            maker="train_segmenter (Python)",
        )

    def __call__(self, given: str | Path | Iterable[str | Path]) -> Doc:
        """Return a text, several texts, or the plain text of paths, as sentences of words.

        Raises:
            TypeError: something else is given.
            DataError: a file that cannot be read.
        """
        return annotate(given, iter, self.read_text, what=self.kind, only_texts=True)

    def pipe(self, inputs: Iterable[str | Path], *, batch_size: int = BATCH_SIZE) -> Iterator[Doc]:
        """Give a document for each text, in order; see `Pipeline.pipe`."""
        read, of = self.read_text, self.kind
        return annotate_each(inputs, iter, read, what=of, only_texts=True, batch_size=batch_size)

    def read_text(self, source: str | Path, number: int = 1) -> Iterator[Sentence]:
        """Give the sentences of a text, or of a file, from a number on; see `documents`."""
        return read_text(source, self.split, number=number)

    def segment(
        self,
        pieces: Iterable[str],
        *,
        unit: Unit = "paragraph",
        **options: Any,
    ) -> Iterator[Sentence]:
        """Segment a text; see `documents.assemble`. With unit "line", a line is a sentence."""
        return assemble(pieces, partial(self.split, whole=unit == "line"), unit=unit, **options)

    def split(self, stretches: Sequence[CodePoints], *, whole: bool = False) -> list[Spans]:
        """Find the tokens and sentences of stretches of text, each by itself.

        Args:
            stretches: of one character or more, without whitespace at their ends.
            whole: each of them is one sentence.
        """
        with at_work():
            return self._split(stretches, whole)

    def _split(self, stretches: Sequence[CodePoints], whole: bool) -> list[Spans]:
        if not stretches:
            return []
        texts = [seen(codes) for codes in stretches]
        sizes_S = np.array([len(codes) for codes, _ in texts])
        origins_S = np.cumsum([0, *map(len, stretches[:-1])])
        found = self._read_characters(np.concatenate([codes for codes, _ in texts]), sizes_S)
        # the places in the text itself, not in what is seen of it
        places_C = np.concatenate(
            [places + origin for (_, places), origin in zip(texts, origins_S, strict=True)]
        )
        begins_N, ends_N = places_C[found.firsts], places_C[found.lasts] + 1
        text = "".join(map(to_text, stretches))
        begins, ends = begins_N.tolist(), ends_N.tolist()
        forms = [text[begin:end] for begin, end in zip(begins, ends, strict=True)]
        if self.has_spaces:
            forms = [" ".join(form.split()) for form in forms]
        counts_S = np.diff(np.searchsorted(found.lasts, np.cumsum(sizes_S)), prepend=0)
        pairs = zip(self.members, found.states, strict=True)
        scores_N2 = average([m.reader.token_scores(states, forms, counts_S) for m, states in pairs])
        all_spans = []
        first = 0
        for count, origin, size in zip(
            counts_S.tolist(), origins_S.tolist(), map(len, stretches), strict=True
        ):
            part = slice(first, first + count)
            local_begins, local_ends = begins_N[part] - origin, ends_N[part] - origin
            after = np.append(local_begins[1:], size)
            cuts = [count] if whole else sentence_ends(
                scores_N2[part, 0], after > local_ends, local_ends,
                self.config.model.sentence_words,
            )  # fmt: skip
            spans = Spans(local_begins.tolist(), local_ends.tolist(), cuts)
            for place in np.flatnonzero(scores_N2[part, 1] > 0).tolist():
                words = self.splitter.split(forms[first + place])
                if words is not None:
                    spans.words[place] = words
            all_spans.append(spans)
            first += count
        return all_spans

    def _read_characters(self, codes_C: CodePoints, sizes_S: Ints64) -> _Tokens:
        """Find the tokens of texts as they are seen."""
        readers = [member.reader for member in self.members]
        rows = [reader.rows_of(codes_C) for reader in readers]
        is_space = space_table()[codes_C]
        next_is_space = np.append(is_space[1:], True)
        is_last = np.zeros(len(codes_C), np.bool_)
        is_last[np.cumsum(sizes_S) - 1] = True
        allowed = may_end(codes_C)
        forced = is_last if self.has_spaces else is_last | (next_is_space & ~is_space)
        firsts: list[Ints64] = []
        lasts: list[Ints64] = []
        of_firsts: list[list[Floats]] = [[] for _ in readers]
        of_lasts: list[list[Floats]] = [[] for _ in readers]
        # kept from group to group: a token may begin in one and end in the next
        place, is_new = 0, True  # where the open token begins, and whether it is to be noted
        for group in Windows.over(sizes_S, _CHARACTERS, CHARACTER_CONTEXT).groups(GROUP):
            states = [
                reader.character_states(rows_C, group)
                for reader, rows_C in zip(readers, rows, strict=True)
            ]
            pairs = zip(readers, states, strict=True)
            scores_C = average([reader.end_scores(states_CH) for reader, states_CH in pairs])
            begin, end = int(group.begins[0]), int(group.ends[-1])
            part = slice(begin, end)
            is_end = (scores_C > 0) & allowed[part] | forced[part]
            ends = _with_cuts(np.flatnonzero(is_end) + begin, place, end, is_space)
            nexts = ends + 1
            # at the end of a text nothing follows, and the next one begins without whitespace
            nexts += is_space[np.minimum(nexts, len(is_space) - 1)]
            begins = np.concatenate(([place], nexts)) if is_new else nexts
            place = int(begins[-1]) if len(begins) else place
            is_new = place >= end
            begins = begins[begins < end]
            firsts.append(begins)
            lasts.append(ends)
            for number, states_CH in enumerate(states):
                of_firsts[number].append(states_CH[begins - begin])
                of_lasts[number].append(states_CH[ends - begin])
        return _Tokens(
            np.concatenate(firsts),
            np.concatenate(lasts),
            [
                np.hstack((np.concatenate(of_first), np.concatenate(of_last)))
                for of_first, of_last in zip(of_firsts, of_lasts, strict=True)
            ],
        )


class _Tokens(NamedTuple):
    """The first and last place of each token, ascending; each reader's states there, [N, 4H]."""

    firsts: Ints64
    lasts: Ints64
    states: list[Floats]


def _with_cuts(ends: Ints64, begin: int, limit: int, is_space: Bools) -> Ints64:
    """Return the last places of tokens, and more where one would be longer than MAX_WORD."""
    bounds = np.concatenate(([begin - 1], ends, [limit]))
    gaps = np.flatnonzero(np.diff(bounds) > MAX_WORD)
    if not len(gaps):
        return ends
    more = []
    for last, following in zip(bounds[gaps].tolist(), bounds[gaps + 1].tolist(), strict=True):
        cuts = range(last + MAX_WORD, following, MAX_WORD)
        more += [cut - int(is_space[cut]) for cut in cuts]  # no token ends at whitespace
    return np.union1d(ends, np.array(more, np.int64))


def segmenter_shapes(
    config: SegmenterModelConfig, num_symbols: int, num_forms: int
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays of `network.SegmenterNetwork`."""
    shapes: dict[str, tuple[int, ...]] = {
        "symbols.weight": (num_symbols, config.character_size),
        "token_ends.weight": (1, 2 * config.character_units),
        "token_ends.bias": (1,),
        "forms.weight": (1 + num_forms, config.form_size),
        "decisions.weight": (2, 2 * config.token_units),
        "decisions.bias": (2,),
    }
    units, width = config.character_units, 4 * config.character_units + config.form_size
    shapes |= bilstm_shapes("characters", config.character_size, units, config.character_layers)
    return shapes | bilstm_shapes("tokens", width, config.token_units, config.token_layers)
