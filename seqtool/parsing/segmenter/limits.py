"""Where sentences end, by their scores and a limit of their length."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from seqtool.core.arrays import Bools, CodePoints
from seqtool.parsing.segmenter.characters import ZERO_WIDTH_JOINER, continuing_table, space_table

MAX_WORD = 1000  # characters
MAX_SENTENCE = 1 << 15  # characters


def may_end(codes: CodePoints) -> Bools:
    """After which characters a token may end: not before a combining mark, nor in an emoji."""
    following = np.append(codes[1:], np.uint32(ord(" ")))
    joined = (codes == ZERO_WIDTH_JOINER) & ~space_table()[following]
    barred: Bools = continuing_table()[following] | joined | space_table()[codes]
    return ~barred


def sentence_ends(
    scores: npt.NDArray[np.float32],
    spaced: Bools,
    token_ends: npt.NDArray[np.int64],
    max_words: int,
) -> list[int]:
    """Return the number of the token after each sentence, ascending; the last is that of tokens.

    A sentence of more than `max_words` tokens, or MAX_SENTENCE characters, ends in its later half
    where its end is likeliest, at whitespace if there is any.

    Args:
        scores: of tokens: above 0 where a sentence ends.
        spaced: whether whitespace follows each.
        token_ends: the place in the text after each.
        max_words: see above.
    """
    num = len(scores)
    ends: list[int] = []
    begin = 0
    for end in [*(np.flatnonzero(scores[:-1] > 0) + 1).tolist(), num]:
        while True:
            origin = token_ends[begin - 1] if begin else 0
            longest = int(np.searchsorted(token_ends, origin + MAX_SENTENCE, side="right"))
            limit = min(begin + max_words, max(begin + 1, longest))
            if end <= limit:
                break
            later = np.arange(begin + (limit - begin) // 2, limit)
            at_spaces = later[spaced[later]]
            later = at_spaces if len(at_spaces) else later
            begin = int(later[np.argmax(scores[later])]) + 1
            ends.append(begin)
        ends.append(end)
        begin = end
    return ends
