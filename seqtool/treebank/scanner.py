"""The compiled reader of CoNLL-U: sentences found in bytes, and written with new trees.

    # text = ...                              comments, multiword tokens and empty nodes
    3  form lemma upos xpos feats  head deprel  deps misc
       ^ form                      ^ head     ^ end

Compiled code notes these three places of each word and writes all other bytes as they are. It takes
only sentences that `sentence.parse_sentence` accepts by its check "columns". It stops at any other
one, which is *odd*, and leaves it to that function, which says what is wrong.

`conllu.read_batches` is the one that calls it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import types

from seqtool.core.arrays import Bytes, Ints, Longs
from seqtool.core.instructions import copy_bytes
from seqtool.core.jit import compiled
from seqtool.core.string_table import StringTable, bytes_in, enter, find, string_hash, strings
from seqtool.treebank.sentence import DEPREL, FEATS, FORM, MISC, NUM_COLUMNS

FORM_AT, HEAD_AT, DEPREL_END = range(3)  # columns of words
BEGIN, END, NUM_WORDS = range(3)  # columns of sentences

_TAB, _LF, _CR, _HASH, _DASH, _DOT, _ZERO, _NINE = b"\t\n\r#-.09"
_MAX_DIGITS = 9  # of an ID
_ODD, _NO_ROOM = -1, -2

_int = types.int64
_places = types.int64[:, ::1]
_ints = types.int32[::1]


@compiled(types.boolean(bytes_in, _int))
def _begins_blank(data, at):  # type: ignore[no-untyped-def]
    """Return whether a character that Unicode counts as white space stands here."""
    # by its one to three bytes of UTF-8; most characters are decided by the first one
    first = data[at]
    if first < 0xC2:
        return first <= 0x20 and (first == 0x20 or first >= 0x1C or 9 <= first <= 13)
    second = data[at + 1]
    if first == 0xC2:
        return second == 0x85 or second == 0xA0
    if first < 0xE1 or first > 0xE3:
        return False
    third = data[at + 2]
    if first == 0xE1:
        return second == 0x9A and third == 0x80
    if first == 0xE3:
        return second == 0x80 and third == 0x80
    if second == 0x80:
        return third <= 0x8A or third == 0xA8 or third == 0xA9 or third == 0xAF
    return second == 0x81 and third == 0x9F


@compiled(types.UniTuple(_int, 2)(bytes_in, _int))
def _number(data, at):  # type: ignore[no-untyped-def]
    """Return the number that stands here, -1 if there is none or one too long, and its end."""
    begin, value = at, np.int64(0)
    # no further than one digit too many, so that no number overflows
    while _ZERO <= data[at] <= _NINE and at - begin <= _MAX_DIGITS:
        value = 10 * value + np.int64(data[at]) - _ZERO
        at += 1
    num_digits = at - begin
    if num_digits == 0 or num_digits > _MAX_DIGITS or (data[begin] == _ZERO and num_digits > 1):
        return -1, at
    return value, at


@compiled(types.UniTuple(_int, 3)(bytes_in, _int))
def _columns(data, at):  # type: ignore[no-untyped-def]
    """Go through columns FORM to MISC.

    Returns:
        The places of HEAD and of the end of DEPREL, and that behind the line; -1 if it is odd.
    """
    head = deprel_end = 0
    if _begins_blank(data, at):  # a FORM of blanks only is refused, and few forms begin with one
        return head, deprel_end, _ODD
    for column in range(FORM, NUM_COLUMNS):
        begin = at
        # one comparison for nearly every byte: tab and line ends are among the lowest
        while data[at] > _CR or (data[at] != _TAB and data[at] != _LF and data[at] != _CR):
            at += 1
        if at == begin or data[at] != (_LF if column == MISC else _TAB):
            return head, deprel_end, _ODD
        if column == DEPREL:
            deprel_end = at
        at += 1
        if column == FEATS:
            head = at
    return head, deprel_end, at


@compiled(types.UniTuple(_int, 2)(bytes_in, _int, _places, _int))
def _find_words(data, at, words, begin):  # type: ignore[no-untyped-def]
    """Note the words of one sentence in the rows of `words` from `begin` on.

    Returns:
        The place behind its last line, or `_ODD` or `_NO_ROOM`; how many words there are.
    """
    size, room = data.shape[0], words.shape[0] - begin
    while at < size and data[at] == _HASH:  # comments; every line is ended, so no bound is needed
        while data[at] != _LF:
            if data[at] == _CR:
                return _ODD, 0
            at += 1
        at += 1
    # the same rules as `sentence._sort_out`
    num_words = num_empty = range_end = 0
    range_begins = False  # the line before named a multiword token
    while at < size and data[at] != _LF:
        number, at = _number(data, at)
        kind, second = data[at], 0
        if kind in (_DASH, _DOT):
            second, at = _number(data, at + 1)
        if number < 0 or second < 0 or data[at] != _TAB:
            return _ODD, 0
        # the rest is the same for words, multiword tokens and empty nodes
        form = at + 1
        head, deprel_end, at = _columns(data, form)
        if at < 0:
            return _ODD, 0
        if kind == _TAB:
            if number != num_words + 1:
                return _ODD, 0
            if num_words == room:
                return _NO_ROOM, 0
            row = begin + num_words
            words[row, FORM_AT], words[row, HEAD_AT] = form, head
            words[row, DEPREL_END] = deprel_end
            num_words += 1
            num_empty, range_begins = 0, False
        elif range_begins:  # only a word may follow the line of a multiword token
            return _ODD, 0
        elif kind == _DASH:
            if number != num_words + 1 or number <= range_end or second < number:
                return _ODD, 0
            range_end, range_begins = second, True
        else:
            num_empty += 1
            if number != num_words or second != num_empty:
                return _ODD, 0
    if num_words == 0 or range_end > num_words:
        return _ODD, 0
    return at, num_words


@compiled(types.UniTuple(_int, 4)(bytes_in, _int, _int, _places, _int, _places, _int))
def _find_sentences(  # type: ignore[no-untyped-def]
    data, position, limit, words, num_words, sentences, num_sentences
):
    """Note sentences from a position on, until there are enough words or something else comes.

    Returns:
        The position behind them, the numbers of words and of sentences, and 0, `_ODD` or
        `_NO_ROOM` by what comes there.
    """
    size = data.shape[0]
    while num_words < limit:
        while position < size and data[position] == _LF:  # blank lines
            position += 1
        if position == size:
            break
        end, count = _find_words(data, position, words, num_words)
        if end < 0:
            return position, num_words, num_sentences, end
        sentences[num_sentences, BEGIN], sentences[num_sentences, END] = position, end
        sentences[num_sentences, NUM_WORDS] = count
        num_sentences += 1
        num_words += count
        position = end
    return position, num_words, num_sentences, 0


@compiled(
    _int(bytes_in, _places, _places, _ints, _ints, bytes_in, types.int64[::1], types.uint8[::1])
)
def _write(  # type: ignore[no-untyped-def]
    data, sentences, words, heads, labels, label_bytes, label_ends, out
):
    """Write sentences with new trees into `out` as `write` says; return how many bytes.

    Label i stands in `label_bytes` from `label_ends[i]` to `label_ends[i + 1]`.
    """
    at = word = 0
    for sentence in range(sentences.shape[0]):
        copied = sentences[sentence, BEGIN]  # all before it is written
        for _ in range(sentences[sentence, NUM_WORDS]):
            count = words[word, HEAD_AT] - copied
            copy_bytes(out, at, data, copied, count)
            at += count
            # the digits of a number come last one first, so how many there are is found before
            head, digits = heads[word], 1
            rest = head // 10
            while rest:
                digits += 1
                rest //= 10
            for place in range(at + digits - 1, at - 1, -1):
                out[place] = _ZERO + head % 10
                head //= 10
            at += digits
            out[at] = _TAB
            begin = label_ends[labels[word]]
            count = label_ends[labels[word] + 1] - begin
            copy_bytes(out, at + 1, label_bytes, begin, count)
            at += 1 + count
            copied = words[word, DEPREL_END]
            word += 1
        count = sentences[sentence, END] - copied
        copy_bytes(out, at, data, copied, count)
        at += count
        out[at] = _LF
        at += 1
    return at


class Scanner:
    """Finds sentences, and keeps the room that it needs to note their places."""

    def __init__(self) -> None:
        self._words: Longs = np.empty((1 << 12, 3), np.int64)
        self._sentences: Longs = np.empty((1 << 12, 3), np.int64)

    def find(self, data: Bytes, position: int, limit: int) -> tuple[Longs, Longs, int, bool]:
        """Find the sentences from a position on, until there are `limit` words.

        Args:
            data: whole sentences in UTF-8; the last byte is a line end.
            position: where a sentence or a blank line begins.
            limit: see above; the last sentence is a whole one.

        Returns:
            Of each sentence begin, end and number of words, [S, 3]; of each word the places of FORM
            and HEAD and of the end of DEPREL, [W, 3]; the position behind the sentences; whether an
            odd sentence begins there.
        """
        assert data[-1] == _LF
        num_words = num_sentences = 0
        while True:
            position, num_words, num_sentences, result = _find_sentences(
                data, position, limit, self._words, num_words, self._sentences, num_sentences
            )
            if result != _NO_ROOM:
                words, sentences = self._words[:num_words], self._sentences[:num_sentences]
                return sentences.copy(), words.copy(), position, result == _ODD
            room = 2 * len(self._words)
            self._words = np.resize(self._words, (room, 3))
            self._sentences = np.resize(self._sentences, (room, 3))


def write(
    data: Bytes, sentences: Longs, words: Longs, heads: Ints, labels: Ints, label_texts: LabelTexts
) -> bytes:
    """Return sentences with new trees, each with a blank line behind it.

    The places of sentences and words in `data` are those that `Scanner.find` returns. Heads are 0
    for ROOT, and labels numbers of `label_texts`.
    """
    num_bytes = int((sentences[:, END] - sentences[:, BEGIN]).sum())
    # a head of int32 has ten digits at most, and a tab behind it
    room = num_bytes + len(sentences) + len(heads) * (11 + label_texts.longest)
    out = np.empty(room, np.uint8)
    end = _write(data, sentences, words, heads, labels, label_texts.bytes, label_texts.ends, out)
    return out[:end].tobytes()


class LabelTexts:
    """Labels, by their numbers, as compiled code writes them."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        texts = [name.encode() for name in names]
        self.longest = max(map(len, texts))
        self.bytes: Bytes = np.frombuffer(b"".join(texts), np.uint8)
        self.ends: Longs = np.cumsum([0, *map(len, texts)], dtype=np.int64)


@compiled(_int(strings, _int, bytes_in, _places, _ints))
def _look_up(table, num_texts, data, words, numbers):  # type: ignore[no-untyped-def]
    """Fill in the numbers of words, the next ones for new texts; return how many texts there are.

    There is room for them all.
    """
    slots, starts, text = table.slots, table.starts, table.text
    for word in range(words.shape[0]):
        begin, end = words[word, FORM_AT], words[word, HEAD_AT] - 1
        hash_, first = string_hash(data, begin, end)
        slot, found = find(slots, starts, text, hash_, first, data, begin, end)
        if found < 0:
            found = num_texts
            num_texts += 1
            enter(table, slot, hash_, first, found, data, begin, end)
        numbers[word] = found
    return num_texts


class TextTable:
    """The texts of columns FORM to FEATS met so far, each once, numbered in this order."""

    def __init__(self) -> None:
        self._table = StringTable()

    def __len__(self) -> int:
        return len(self._table)

    @property
    def num_bytes(self) -> int:
        """Memory of the table."""
        return self._table.nbytes

    def texts(self, numbers: Ints) -> list[str]:
        """Return the columns with each of these numbers, tabs between them."""
        starts, data = self._table.arrays.starts, self._table.arrays.text.data
        # as lists: a number of an array is an object that takes longer to make and to use
        begins, ends = starts[numbers].tolist(), starts[numbers + 1].tolist()
        return [str(data[b:e], "utf-8") for b, e in zip(begins, ends, strict=True)]

    def numbers(self, data: Bytes, words: Longs) -> Ints:
        """Return the numbers of words that `Scanner.find` found, new ones for texts not met yet."""
        num_bytes = int((words[:, HEAD_AT] - words[:, FORM_AT]).sum())
        self._table.make_room(len(words), num_bytes)
        numbers = np.empty(len(words), np.int32)
        num = _look_up(self._table.arrays, len(self._table), data, words, numbers)
        self._table.count(num)
        return numbers
