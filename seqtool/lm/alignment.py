"""Where the words of a text stand, and which tokens they are made of, compiled by Numba.

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
from numba import types

from seqtool.core.arrays import Bools, Bytes, Doubles, Ids, Longs
from seqtool.core.eight_bytes import blanks, num_continuing
from seqtool.core.instructions import load, num_zeros
from seqtool.core.jit import compiled
from seqtool.core.units import LN_2
from seqtool.core.vocabulary import BOS, EOS, EOS_ID, UNK_ID

_SPACE, _TAB, _LF, _CR = (ord(sign) for sign in " \t\n\r")
SPARE = 8  # bytes behind a text that are read, and are of no account
_THREE, _EIGHT = np.uint64(3), np.uint64(8)
_EOS, _BOS = (np.frombuffer(mark.encode(), np.uint8) for mark in (EOS, BOS))

_bytes = types.Array(types.uint8, 1, "C", readonly=True)
_truths = types.Array(types.boolean, 1, "C", readonly=True)
_longs = types.Array(types.int64, 1, "C", readonly=True)
_ids = types.Array(types.int32, 1, "C", readonly=True)
_doubles = types.Array(types.float64, 1, "C", readonly=True)


class Places(NamedTuple):
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


_places = types.NamedTuple((*[types.int64[::1]] * 6, types.boolean[::1]), Places)


@compiled(types.boolean(_bytes, types.int64, types.int64, _bytes))
def _is(text, begin, end, mark):  # type: ignore[no-untyped-def]
    """Return whether text[begin:end] is a mark."""
    is_same = end - begin == mark.shape[0]
    for i in range(mark.shape[0] if is_same else 0):
        is_same &= text[begin + i] == mark[i]
    return is_same


@compiled(types.int64(_bytes, types.int64, types.boolean, types.boolean, _bytes, _bytes, _places))
def _find_units(text, size, line_ends, skip, bos, eos, places):  # type: ignore[no-untyped-def]
    """Fill in the units of a text of whole lines; return how many there are.

    Args:
        text: UTF-8, each line ended by LF, and `SPARE` bytes more.
        size: bytes of the text.
        line_ends: whether there is a unit for the end of each line.
        skip: whether a word that is one of the marks is left out.
        bos: one of the marks.
        eos: the other one.
        places: is filled.
    """
    at, unit, line, number = np.int64(0), 0, 0, 1
    characters = np.int64(0)  # of the line before this byte
    while at < size:
        byte = text[at]
        if byte == _LF:
            if line_ends:
                places.begins[unit], places.ends[unit] = at, at
                places.starts[unit], places.stops[unit] = characters, characters
                places.lines[unit], places.numbers[unit] = line, number
                places.is_word[unit] = False
                unit += 1
            line += 1
            at += 1
            number, characters = 1, np.int64(0)
            continue
        if byte <= _SPACE and byte in (_SPACE, _TAB, _CR):
            at += 1
            characters += 1
            continue
        begin, start = at, characters
        length = _EIGHT
        while length == _EIGHT:  # most words end within eight bytes
            chunk = load(text, np.uint64(at))
            marks = blanks(chunk)
            length = num_zeros(marks) >> _THREE
            characters += np.int64(length - num_continuing(chunk, marks))
            at += np.int64(length)
        if not (skip and (_is(text, begin, at, bos) or _is(text, begin, at, eos))):
            places.begins[unit], places.ends[unit] = begin, at
            places.starts[unit], places.stops[unit] = start, characters
            places.lines[unit], places.numbers[unit] = line, number
            places.is_word[unit] = True
            unit += 1
            number += 1
    return unit


def find_units(text: Bytes, size: int, *, line_ends: bool, skip_marks: bool = False) -> Places:
    """Return where the units of whole lines stand.

    Args:
        text: UTF-8, each line ended by LF, and `SPARE` bytes more.
        size: bytes of the text.
        line_ends: whether the end of each line is a unit.
        skip_marks: leave out words that are `<s>` or `</s>`.
    """
    # after each word comes a blank; LF may end one, and be the end of a line
    num = int(np.count_nonzero(text[:size] <= _SPACE))
    num += line_ends * int(np.count_nonzero(text[:size] == _LF))
    begins, ends, lines, numbers, starts, stops = (np.empty(num, np.int64) for _ in range(6))
    places = Places(begins, ends, lines, numbers, starts, stops, np.empty(num, np.bool_))
    found = _find_units(text, size, line_ends, skip_marks, _BOS, _EOS, places)
    return Places._make(array[:found] for array in places)


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


_pieces = types.NamedTuple((types.float64[::1], types.boolean[::1], types.int64[::1]), Pieces)


@compiled(
    types.int64(
        _longs,
        _truths,
        _ids,
        _longs,
        _longs,
        _truths,
        _doubles,
        _doubles,
        _pieces,
    )
)
def _add_up(  # type: ignore[no-untyped-def]
    ends, is_word, ids, sizes, unknown_sizes, opens, log_probs, class_log_probs, found
):
    """Add up the tokens of units; return how many bytes all tokens are, -1 for too few.

    Args:
        ends: bytes of the text before the end of each unit, [U].
        is_word: False for the end of a line, [U].
        ids: the tokens, [N].
        sizes: bytes of each symbol, [V].
        unknown_sizes: bytes of each token that is unknown.
        opens: which symbols tell that a word has ended, [V].
        log_probs: nats of each token, [N].
        class_log_probs: nats of these symbols in its place, [N].
        found: is filled.
    """
    token, size, num_unknown = np.int64(0), np.int64(0), np.int64(0)
    before = 0.0  # nats of that the unit before this one has ended
    for unit in range(ends.shape[0] + 1):
        is_last = unit == ends.shape[0]  # after the units come the ends of lines
        end = np.int64(0)
        if not is_last:
            end = ends[unit] + np.int64(not is_word[unit])  # with LF
        nats, num, is_unknown = 0.0, np.int64(0), False
        while (size < end or is_last) and token < ids.shape[0]:
            id_ = ids[token]
            if id_ == UNK_ID:
                size += unknown_sizes[num_unknown]
                num_unknown += 1
                is_unknown = True
            else:
                size += sizes[id_]
            nats += log_probs[token]
            token, num = token + 1, num + 1
            if id_ == EOS_ID and size < end:  # of a line whose end is no unit
                nats, num, is_unknown, before = 0.0, np.int64(0), False, 0.0
        if is_last:
            break
        if size < end:
            return np.int64(-1)
        ended = 0.0
        # inside a piece, the next token is of no account
        if is_word[unit] and size == end and token < ids.shape[0] and opens[ids[token]]:
            # what is read off a distribution in single precision may be less than the token's own
            ended = min(0.0, max(class_log_probs[token], log_probs[token]))
        found.bits[unit] = max(0.0, -(nats + ended - before) / LN_2)
        found.oov[unit], found.nums[unit] = is_unknown, num
        before = 0.0 if ended == -np.inf else ended  # the word before is impossible; say it once
    return size


def add_up(
    ends: Longs,
    is_word: Bools,
    ids: Ids,
    sizes: Longs,
    unknown_sizes: Longs,
    opens: Bools,
    log_probs: Doubles,
    class_log_probs: Doubles,
) -> tuple[Pieces, int]:
    """Return what the tokens of units say, and how many bytes the tokens are; see `_add_up`."""
    num = len(ends)
    found = Pieces(np.empty(num), np.empty(num, np.bool_), np.empty(num, np.int64))
    arrays = ends, is_word, ids, sizes, unknown_sizes, opens, log_probs, class_log_probs
    return found, _add_up(*arrays, found)
