"""Where the words of a text stand, and which tokens they are made of.

    text      the old dog <lf>       a block of whole lines of UTF-8
    units     the  old  dog  </s>    its words, and the ends of its lines if they are asked for
    tokens    the _o ld _dog </s>    as the tokenizer of a model cuts it

Each unit has the tokens that follow those of the unit before it, up to the one in which it ends;
the end of a line has those up to `</s>`.

Shapes: N tokens, U units, V symbols.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqtool.core.arrays import Bools, Doubles, Ids, Longs
from seqtool.core.units import LN_2
from seqtool.core.vocabulary import BLANKS, EOS_ID, UNK_ID

_LF = ord("\n")
_IS_BLANK = np.zeros(256, np.bool_)
_IS_BLANK[[_LF, *map(ord, BLANKS)]] = True


class Units(NamedTuple):
    """Where the units of a block stand; those that end a line begin and end where it does.

    Attributes:
        begins: bytes of the block before each, [U].
        ends: bytes of the block before its end, [U].
        lines: the line of each, from 0, [U].
        numbers: of each in its line, from 1, [U].
        starts: characters of the line before each, [U].
        stops: characters of the line before its end, [U].
        is_word: False for the end of a line, [U].
    """

    begins: Longs
    ends: Longs
    lines: Longs
    numbers: Longs
    starts: Longs
    stops: Longs
    is_word: Bools


def find_units(block: bytes, *, line_ends: bool, skipped: tuple[bytes, ...] = ()) -> Units:
    """Return where the units of whole lines stand.

    Args:
        block: UTF-8, each line ended by LF.
        line_ends: whether the end of each line is a unit.
        skipped: words that are left out.
    """
    text = np.frombuffer(block, np.uint8)
    edges = np.flatnonzero(np.diff(_IS_BLANK[text], prepend=True))
    # LF is the last byte, so that no word is open
    begins, ends = edges[::2].copy(), edges[1::2].copy()  # compiled code takes no strides
    if any(word in block for word in skipped):
        spans = zip(begins.tolist(), ends.tolist(), strict=True)
        kept = np.array([block[begin:end] not in skipped for begin, end in spans], np.bool_)
        begins, ends = begins[kept], ends[kept]
    line_feeds = np.flatnonzero(text == _LF)
    is_word = np.ones(len(begins), np.bool_)
    if line_ends:
        begins, ends = (np.concatenate((each, line_feeds)) for each in (begins, ends))
        order = np.argsort(begins, kind="stable")
        begins, ends = begins[order], ends[order]
        is_word = order < len(is_word)
    lines = np.searchsorted(line_feeds, begins)
    origins = np.concatenate(([0], line_feeds + 1))[lines]
    starts, stops = begins - origins, ends - origins
    if not block.isascii():
        begins_character = (text & 0xC0) != 0x80
        characters = np.concatenate(([0], np.cumsum(begins_character)))
        starts, stops = (characters[each] - characters[origins] for each in (begins, ends))
    numbers = np.arange(1, len(lines) + 1) - np.searchsorted(lines, lines)
    return Units(begins, ends, lines, numbers, starts, stops, is_word)


class Pieces(NamedTuple):
    """What the tokens of units say of them.

    Attributes:
        bits: surprisal, [U].
        oov: whether a token is unknown, [U].
        nums: tokens, [U]; 0 for a unit that begins and ends inside one.
    """

    bits: Doubles
    oov: Bools
    nums: Longs


def add_up(
    units: Units,
    ids: Ids,
    sizes: Longs,
    opens: Bools,
    log_probs: Doubles,
    class_log_probs: Doubles,
) -> Pieces:
    """Return what the tokens of units say; `lm.words` has the equation.

    Args:
        units: of the text.
        ids: the tokens, [N].
        sizes: bytes of each token, [N].
        opens: which symbols show that a word has ended, [V].
        log_probs: nats of each token, [N].
        class_log_probs: nats of these symbols in its place, [N].

    Raises:
        ValueError: the tokens are fewer bytes than the units.
    """
    num = len(units.ends)
    stops_N = np.cumsum(sizes)
    ends_U = units.ends + ~units.is_word  # with LF
    if num and (not len(ids) or stops_N[-1] < ends_U[-1]):
        raise ValueError("tokens of fewer bytes than the text")
    unit_N = np.searchsorted(ends_U, stops_N - sizes, side="right")
    line_N = np.cumsum(ids == EOS_ID) - (ids == EOS_ID)
    # where the end of a line is no unit, what stands before it counts for none
    of_unit_N = np.append(units.lines, -1)[unit_N] == line_N
    unit_N, kept_N, logs_N = unit_N[of_unit_N], ids[of_unit_N], log_probs[of_unit_N]
    nats_U = np.bincount(unit_N, logs_N, num)  # adds in the order of the text
    oov_U = np.bincount(unit_N[kept_N == UNK_ID], minlength=num) > 0
    # the token after a unit shows that it has ended, unless the unit ends inside a piece
    after_U = np.searchsorted(stops_N - sizes, ends_U)
    ended_U = np.zeros(num)
    closed_U = units.is_word & (after_U < len(ids))
    closed_U[closed_U] &= opens[ids[after_U[closed_U]]]
    closed_U[closed_U] &= stops_N[after_U[closed_U] - 1] == ends_U[closed_U]
    after = after_U[closed_U]
    # what is read off a distribution in single precision may be less than the token's own
    ended_U[closed_U] = np.minimum(0.0, np.maximum(class_log_probs[after], log_probs[after]))
    # the unit before, of the same line; where it is impossible, that is said once
    before_U = np.concatenate(([0.0], ended_U[:-1]))[:num]
    before_U[(units.numbers == 1) | np.isneginf(before_U)] = 0.0
    bits_U = np.maximum(0.0, -(nats_U + ended_U - before_U) / LN_2)
    return Pieces(bits_U + 0.0, oov_U, np.bincount(unit_N, minlength=num))
