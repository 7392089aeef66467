"""The networks of a segmenter at work, without torch.

Dimensions: C characters, N tokens, H and G units of a direction over characters and tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from seqtool.core.arrays import CodePoints, Floats, Ints
from seqtool.parsing.encoding.lstm import Recurrence
from seqtool.parsing.segmenter.characters import NUM_CODES, Alphabet, Ints64
from seqtool.parsing.segmenter.config import ModelConfig
from seqtool.parsing.segmenter.data import fold


@dataclass(frozen=True)
class Windows:
    """The windows of sequences that stand one after another, W of them, in order.

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
        """Lay windows over sequences.

        Args:
            lengths: of the sequences, 1 or more.
            size: places of a window that are used.
            context: places read before and after them.
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
        """The places that are read, one window after another."""
        return ranges(self.read_begins, self.read_ends)

    def used(self) -> Ints64:
        """Which of `places` are used, ascending; each place of the sequences is once."""
        lengths = self.read_ends - self.read_begins
        origin = np.cumsum(lengths) - lengths - self.read_begins
        return ranges(self.begins + origin, self.ends + origin)


def ranges(begins: Ints64, ends: Ints64) -> Ints64:
    """The numbers from each begin to its end, one range after another."""
    sizes = ends - begins
    shifts: Ints64 = np.repeat(begins - (np.cumsum(sizes) - sizes), sizes)
    return shifts + np.arange(len(shifts))


# what is read together, and the context that is read with it on both sides
CHARACTERS, CHARACTER_CONTEXT = 1024, 128
TOKENS, TOKEN_CONTEXT = 256, 64
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
        config: ModelConfig,
        alphabet: Alphabet,
        lexicon: Mapping[str, int],
        weights: Mapping[str, Floats],
    ) -> None:
        self.alphabet, self.lexicon, self.weights = alphabet, dict(lexicon), weights
        self._size = config.character_size
        self._characters = Recurrence(_part(weights, "characters."))
        self._tokens = Recurrence(_part(weights, "tokens."))
        self._decisions_G2 = np.ascontiguousarray(weights["decisions.weight"].T)
        self._forget_types()

    def _forget_types(self) -> None:
        self._rows = np.full(NUM_CODES, -1, np.int32)  # row of a code point's vector
        self._vectors: Floats = np.empty((0, self._size), np.float32)

    def rows_of(self, codes: CodePoints) -> Ints:
        """The rows of characters' vectors, which are made when a character is met first.

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
        """The states of the characters that a group of windows uses, [C, 2H].

        Args:
            rows: of all characters, by `rows_of`.
            group: of windows over them.
        """
        return _states(self._characters, self._vectors, rows[group.places()], group)

    def end_scores(self, states_CH: Floats) -> Floats:
        """Score characters, [C]: above 0 where a token ends."""
        scores_C: Floats = states_CH @ self.weights["token_ends.weight"][0]
        scores_C += self.weights["token_ends.bias"]
        return scores_C

    def token_scores(self, states: Floats, forms: list[str], counts_S: Ints64) -> Floats:
        """Score tokens, [N, 2]: above 0 where a sentence ends, and for several words.

        Args:
            states: of the first and last character of each, [N, 4H].
            forms: of each.
            counts_S: tokens of each stretch.
        """
        rows = np.array([self.lexicon.get(fold(form), 0) for form in forms], np.int32)
        inputs_NI = np.hstack((states, self.weights["forms.weight"][rows]))
        scores = []
        for group in Windows.over(counts_S, TOKENS, TOKEN_CONTEXT).groups(GROUP):
            begin, end = int(group.read_begins.min()), int(group.read_ends.max())
            places = (group.places() - begin).astype(np.int32)
            states_NG = _states(self._tokens, inputs_NI[begin:end], places, group)
            scores.append(states_NG @ self._decisions_G2)
        scores_N2: Floats = np.concatenate(scores) + self.weights["decisions.bias"]
        return scores_N2


def _states(recurrence: Recurrence, inputs: Floats, places: Ints, group: Windows) -> Floats:
    """The states of what windows use, in order; see `Recurrence.states`."""
    lengths = (group.read_ends - group.read_begins).astype(np.int32)
    states, order = recurrence.states(inputs, places, lengths)
    rows = np.empty(len(order), np.int64)
    rows[order] = np.arange(len(order))
    return states[rows[group.used()]]


def _part(weights: Mapping[str, Floats], prefix: str) -> dict[str, Floats]:
    return {
        name.removeprefix(prefix): array
        for name, array in weights.items()
        if name.startswith(prefix)
    }
