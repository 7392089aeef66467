"""The networks of a segmenter at work, without torch.

Dimensions: C characters, N tokens, H and G units of a direction over characters and tokens.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from seqtool.core.arrays import CodePoints, Floats, Ints
from seqtool.parsing.encoding.recurrence import Recurrence
from seqtool.parsing.segmenter.characters import NUM_CODES, Alphabet, Ints64
from seqtool.parsing.segmenter.config import ModelConfig
from seqtool.parsing.segmenter.surface import fold
from seqtool.parsing.segmenter.windows import Windows

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
