"""Lines of ARPA files to n-grams, compiled by Numba."""

from __future__ import annotations

import numpy as np
from numba import types

from seqtool.core.jit import compiled
from seqtool.core.string_table import bytes_in, find, strings
from seqtool.core.units import LN_10
from seqtool.lm.ngram.table import BOS_NATS
from seqtool.text.words import scan_word

DONE, BLANK, SECTION, BAD = 0, 1, 2, 3

_NO_PROBABILITY = -99.0  # in log10
_POWERS = 10.0 ** np.arange(23)  # those that a double holds exactly
_SPACE, _TAB, _LF, _CR = 32, 9, 10, 13
_BACKSLASH, _ZERO, _NINE, _PLUS, _MINUS, _POINT = 92, 48, 57, 43, 45, 46

_int32_in = types.Array(types.int32, 1, "C", readonly=True)


@compiled(types.float64(bytes_in, types.int64, types.int64))
def _number(block, start, end):  # type: ignore[no-untyped-def]
    """Return the number that bytes spell, NaN if they spell none."""
    position = start
    negative = block[position] == _MINUS
    if negative or block[position] == _PLUS:
        position += 1
    if position + 3 <= end and block[position] | 32 == 105:  # inf, Infinity in any case
        size = end - position
        if size != 3 and size != 8:
            return np.nan
        letters = b"infinity"
        for i in range(size):
            if block[position + i] | 32 != letters[i]:
                return np.nan
        return -np.inf if negative else np.inf
    mantissa = np.int64(0)
    num_digits = 0
    exponent = np.int64(0)
    after_point = False
    while position < end:
        byte = block[position]
        if _ZERO <= byte <= _NINE:
            num_digits += 1
            if mantissa < 100_000_000_000_000_000:  # one digit more still fits into an int64
                mantissa = 10 * mantissa + (np.int64(byte) - _ZERO)
                exponent -= np.int64(after_point)
            else:  # digits that a double cannot hold
                exponent += np.int64(not after_point)
        elif byte == _POINT and not after_point:
            after_point = True
        else:
            break
        position += 1
    if num_digits == 0:
        return np.nan
    if position < end:
        if block[position] | 32 != 101 or position + 1 == end:  # the e of an exponent
            return np.nan
        position += 1
        sign = -1 if block[position] == _MINUS else 1
        if block[position] == _MINUS or block[position] == _PLUS:
            position += 1
        if position == end:
            return np.nan
        power = np.int64(0)
        while position < end:
            byte = block[position]
            if not _ZERO <= byte <= _NINE:
                return np.nan
            if power < 100_000:  # beyond, the value is 0 or infinite anyhow
                power = 10 * power + (np.int64(byte) - _ZERO)
            position += 1
        exponent += sign * power
    value = np.float64(mantissa)
    # one exact number by another: rounded once, as Python's float() up to 15 digits
    if exponent < 0:
        value = value / _POWERS[-exponent] if exponent >= -22 else value * 10.0**exponent
    elif exponent > 0 and mantissa > 0:  # 0e999 is 0, not 0 times infinity
        value = value * _POWERS[exponent] if exponent <= 22 else value * 10.0**exponent
    return -value if negative else value


@compiled(
    types.int64(
        bytes_in,
        types.int64[::1],
        strings,
        types.uint8[::1],
        types.int32[:, ::1],
        types.float32[::1],
        types.float32[::1],
    )
)
def take_rows(block, state, table, text, columns, log_probs, backoffs):  # type: ignore[no-untyped-def]
    """Read n-grams of one order from whole lines, until something else comes.

    Words are looked up, but for those of unigrams: they are appended to `text`, an LF after each.

    Args:
        block: the lines.
        state: [position in block, rows read, bytes of text used], brought up to date; at a line
            that is no n-gram, the position is its first byte.
        table: the words of the unigrams.
        text: what unigrams are appended to.
        columns: [order, rows], filled with words.
        log_probs: [rows], filled, nats.
        backoffs: [rows], filled, nats; 0 where there is none.

    Returns:
        DONE at the end, BLANK after a blank line, SECTION at a line that begins with a backslash,
        BAD at a line that is no n-gram of this order, or holds a word that is not known.
    """
    order = columns.shape[0]
    position, row, used = state[0], state[1], state[2]
    result = DONE
    while position < block.shape[0]:
        line = position
        field = 0
        # no loop here looks for the end of the block: its last byte is an LF
        while True:
            while block[position] == _SPACE or block[position] == _TAB or block[position] == _CR:
                position += 1
            if block[position] == _LF:
                break
            first = position
            position, hash_, eight = scan_word(block, first)
            # fields: the log-probability, the words, and perhaps a backoff
            if field == 0:
                if block[first] == _BACKSLASH:
                    result = SECTION
                    break
                value = _number(block, first, position)
                if not value <= 0:  # NaN too
                    result = BAD
                    break
                nats = -np.inf if value == _NO_PROBABILITY else value * LN_10
                log_probs[row] = nats
                backoffs[row] = 0  # if the line gives none
            elif field <= order:
                size = position - first
                if order == 1:
                    for i in range(size):
                        text[used + i] = block[first + i]
                    text[used + size] = _LF
                    used += size + 1
                else:
                    _, found = find(
                        table.slots,
                        table.starts,
                        table.text,
                        hash_,
                        eight,
                        block,
                        first,
                        position,
                    )
                    if found < 0:
                        result = BAD
                        break
                    columns[field - 1, row] = found
            elif field == order + 1:
                value = _number(block, first, position)
                if not value < np.inf:  # NaN too; a weight, unlike a probability, may be above 1
                    result = BAD
                    break
                backoffs[row] = -np.inf if value == _NO_PROBABILITY else value * LN_10
            else:
                result = BAD
                break
            field += 1
        if result == DONE and 0 < field < order + 1:
            result = BAD
        if result != DONE:
            position = line  # so that the reader can quote it
            break
        position += 1
        if field == 0:
            result = BLANK
            break
        row += 1
    state[0], state[1], state[2] = position, row, used
    return result


@compiled(types.void(_int32_in, _int32_in, _int32_in, types.int32[::1]))
def descend(begins, words, last, rows):  # type: ignore[no-untyped-def]
    """Turn rows of one order into the rows of the n-grams that are one word longer.

    Args:
        begins: of the order above.
        words: of the order above.
        last: [R], the word that is added.
        rows: [R], changed in place; -1 where there is no such n-gram, and where it was -1.
    """
    previous, previous_word, previous_found = np.int64(-1), np.int64(-1), np.int64(-1)
    for i in range(rows.shape[0]):
        context, word = np.int64(rows[i]), np.int64(last[i])
        if context < 0:
            continue
        if context == previous and word == previous_word:  # files are often in this order
            rows[i] = previous_found
            continue
        low, high = np.int64(begins[context]), np.int64(begins[context + 1])
        stop = high  # the halving below leaves the first word that is not less
        while low < high:
            middle = (low + high) >> 1
            if words[middle] < word:
                low = middle + 1
            else:
                high = middle
        found = low if low < stop and words[low] == word else np.int64(-1)
        rows[i] = found
        previous, previous_word, previous_found = context, word, found


STEP = 16  # words are copied in steps of so many bytes, and then cut to their length

_DECIMALS = 10_000_000  # seven decimals: an error of at most 5e-8 in log10
_SCALE = _DECIMALS / LN_10
# its scaled number still fits into an int64
_LEAST = -1e11  # nats; below it a probability is written as none
_BOS = np.float32(BOS_NATS)
_NUMBER_SIZE = 24  # bytes of the longest number that is written
_float32_in = types.Array(types.float32, 1, "C", readonly=True)


@compiled(types.void(types.int64, _int32_in, types.int32[::1]))
def climb(first, begins, rows):  # type: ignore[no-untyped-def]
    """Turn ascending rows of one order into the rows of their contexts.

    Args:
        first: the context of the first row.
        begins: of the order of `rows`.
        rows: changed in place.
    """
    context = first
    for i in range(rows.shape[0]):
        # contexts without rows are passed over as well
        while begins[context + 1] <= rows[i]:
            context += 1
        rows[i] = context


@compiled(types.int64(types.uint8[::1], types.int64, types.float32))
def _put_number(out, position, nats):  # type: ignore[no-untyped-def]
    """Write a log-probability in log10 and return where it ends."""
    if not nats > _LEAST or nats == _BOS:  # NaN too
        out[position], out[position + 1], out[position + 2] = _MINUS, _NINE, _NINE
        return position + 3
    # as a whole number of the last decimal, which is exact from here on
    scaled = np.int64(np.rint(np.abs(np.float64(nats)) * _SCALE))
    if scaled == 0:
        out[position] = _ZERO
        return position + 1
    if nats < 0:
        out[position] = _MINUS
        position += 1
    whole = scaled // _DECIMALS
    fraction = scaled - whole * _DECIMALS
    if whole < 10:
        out[position] = _ZERO + whole
        position += 1
    else:
        size = 1
        limit = 10
        while limit <= whole:
            size += 1
            limit *= 10
        for i in range(size):
            out[position + size - 1 - i] = _ZERO + whole % 10
            whole //= 10
        position += size
    out[position] = _POINT
    # two chains of divisions, which the processor can run side by side
    high = fraction // 1000
    low = fraction - high * 1000
    out[position + 1] = _ZERO + high // 1000
    out[position + 2] = _ZERO + high // 100 % 10
    out[position + 3] = _ZERO + high // 10 % 10
    out[position + 4] = _ZERO + high % 10
    out[position + 5] = _ZERO + low // 100
    out[position + 6] = _ZERO + low // 10 % 10
    out[position + 7] = _ZERO + low % 10
    return position + 8


@compiled(
    types.int64(
        types.Array(types.int32, 2, "C", readonly=True),
        types.int64,
        _float32_in,
        _float32_in,
        _int32_in,
        types.int64[::1],
        types.uint8[::1],
        types.uint8[::1],
        types.int64[::1],
    )
)
def put_rows(columns, row, log_probs, backoffs, begins, starts, text, out, state):  # type: ignore[no-untyped-def]
    """Write n-grams as lines until all are written or `out` has no room for the next.

    Args:
        columns: [order, R], the words of each n-gram.
        row: where to begin.
        log_probs: [R] nats; above 0 by rounding is written as 0; -inf and that of `<s>` as -99.
        backoffs: [R] nats, or empty for the highest order.
        begins: [R + 1], of the order above: one without continuations or backoff needs no backoff.
        starts: word i is text[starts[i]:starts[i + 1]].
        text: the words; `STEP` bytes more at its end.
        out: the lines.
        state: the number of bytes written is left in state[0]; in state[1] what the next needs.

    Returns:
        The row to go on from.
    """
    order = columns.shape[0]
    position = 0
    state[1] = 0
    while row < columns.shape[1]:
        needed = 2 * _NUMBER_SIZE + STEP + order
        for k in range(order):
            needed += starts[columns[k, row] + 1] - starts[columns[k, row]]
        if position + needed > out.shape[0]:
            state[1] = needed
            break
        position = _put_number(out, position, min(log_probs[row], np.float32(0.0)))
        out[position] = _TAB
        for k in range(order):
            position += 1
            start = starts[columns[k, row]]
            size = starts[columns[k, row] + 1] - start
            done = 0
            while True:
                for j in range(STEP):  # a vector at a time; what is too much is written over
                    out[position + done + j] = text[start + done + j]
                done += STEP
                if done >= size:
                    break
            position += size
            # after the last word, a tab or the line end is written over it
            out[position] = _SPACE
        # 0 is left out where no longer n-gram begins so
        if backoffs.shape[0] and (backoffs[row] != 0 or begins[row + 1] > begins[row]):
            out[position] = _TAB
            position = _put_number(out, position + 1, backoffs[row])
        out[position] = _LF
        position += 1
        row += 1
    state[0] = position
    return row
