"""A sentence of CoNLL-U: its lines as words, multiword tokens and empty nodes.

    # sent_id = 7                               comments
    1-2  vámonos  _    _     ...                a multiword token: how words 1 and 2 are written
    1    vamos    ir   VERB  ...  0  root  _  _ a word: ten columns with tabs between them
    2    nos      ...
    2.1  ...                                    an empty node, the first one after word 2
                                                a blank line ends the sentence

The format: universaldependencies.org/format.html.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from seqtool.core.errors import DataError, counted

COLUMNS = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
NUM_COLUMNS = len(COLUMNS)
ID, FORM, LEMMA, UPOS, XPOS, FEATS, HEAD, DEPREL, DEPS, MISC = range(NUM_COLUMNS)

Check = Literal["tree", "columns"]

_FIX = "fix the line"
_MAX_SHOWN = 30  # characters of a column in a message
_MAX_WORDS = 6  # of a cycle in a message


@dataclass(slots=True)
class Sentence:
    """A sentence of n words as a file has it.

    Attributes:
        comments: the lines that begin with #, as read.
        rows: the ten columns of words 1 to n.
        extras: multiword tokens and empty nodes in order: (how many words stand before it, the
            whole line).
        path: the file that it was read from.
        line: the 1-based line of that file where it begins.
    """

    comments: list[str]
    rows: list[list[str]]
    extras: list[tuple[int, str]]
    path: str = ""
    line: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, index: int) -> list[str]:
        """Return one column of all words, as in `sentence.column(FORM)`."""
        return [row[index] for row in self.rows]

    def heads(self) -> list[int]:
        """Return the head of each word, 0 for the root.

        Raises:
            DataError: a head is no number; only where the tree was not checked.
        """
        texts = self.column(HEAD)
        values = _number_table(1 << len(texts).bit_length())[1]
        try:
            return [values[text] for text in texts]
        except KeyError:
            pass
        heads: list[int] = []
        for word, text in enumerate(texts, start=1):
            if text != "0" and not _is_number(text):
                raise DataError(
                    f"token {word} has head {_shown(text)}, which is no word number",
                    hint="give a treebank with trees" if text == "_" else _FIX,
                    path=self.path,
                    line=self.line_of(word),
                )
            heads.append(int(text))
        return heads

    def multiword_tokens(self) -> list[tuple[int, int, list[str]]]:
        """Return (first word, last word, columns) of each multiword token."""
        tokens = []
        for _, line in self.extras:
            columns = line.split("\t")
            first, dash, last = columns[ID].partition("-")
            if dash:
                tokens.append((int(first), int(last), columns))
        return tokens

    def set_tree(self, heads: Sequence[int], deprels: Sequence[str]) -> None:
        """Give each word a head, 1-based or 0, and a relation; all else stays as it is."""
        for row, head, deprel in zip(self.rows, heads, deprels, strict=True):
            row[HEAD], row[DEPREL] = str(head), deprel

    def line_of(self, word: int) -> int:
        """Return the 1-based line of the file that word 1, 2, ... n was read from."""
        before = sum(position < word for position, _ in self.extras)
        return self.line + len(self.comments) + before + word - 1

    def to_conllu(self, *, clear_deps: bool = False) -> str:
        """Return the sentence as it stands in a file, its blank line included.

        Args:
            clear_deps: leave out the enhanced graph: DEPS becomes `_`, empty nodes are dropped.
        """
        rows, extras = self.rows, self.extras
        if clear_deps:
            rows = [[*row[:DEPS], "_", row[MISC]] for row in rows]
            extras = [extra for extra in extras if "." not in extra[1].partition("\t")[0]]
        lines = ["\t".join(row) for row in rows]
        for position, line in reversed(extras):
            lines.insert(position, line)
        return "\n".join((*self.comments, *lines, "", ""))


def parse_sentence(text: str, path: str, line: int, check: Check) -> Sentence:
    """Return the sentence that stands between two blank lines, its last line not ended.

    It begins in this line of the file at `path`.

    Raises:
        DataError: it is broken, with the line.
    """
    lines = text.split("\n")
    num_comments = 0
    while num_comments < len(lines) and lines[num_comments].startswith("#"):
        num_comments += 1
    comments = lines[:num_comments]
    rows = [content.split("\t") for content in lines[num_comments:]]
    extras: list[tuple[int, str]] = []
    # all that can be wrong is looked for at once here, and row by row only where something is
    if (
        set(map(len, rows)) != {NUM_COLUMNS}
        or "\t\t" in text
        or "\t\n" in text
        or "\n\t" in text
        or "\r" in text
        or text.startswith("\t")
        or text.endswith("\t")
        or any(map(str.isspace, [row[FORM] for row in rows]))
    ):
        _check_columns(lines, num_comments, path, line)
    if [row[ID] for row in rows] != _numbers(len(rows)):
        rows, extras = _sort_out(rows, path, line + num_comments)
    sentence = Sentence(comments, rows, extras, path, line)
    if check == "tree" and (fault := find_fault(sentence.heads())) is not None:
        word, message = fault
        raise DataError(message, hint=_FIX, path=path, line=sentence.line_of(word))
    return sentence


def _check_columns(lines: list[str], num_comments: int, path: str, line: int) -> None:
    """Refuse the first line without ten columns with something in each, or a lack of words."""
    for number, content in enumerate(lines, start=line):
        fault = _fault_of_line(content, is_comment=number - line < num_comments)
        if fault is not None:
            raise DataError(fault[0], hint=fault[1], path=path, line=number)
    if num_comments == len(lines):
        raise DataError(
            "a sentence of comments only, without words",
            hint="remove it, or the blank line after its comments",
            path=path,
            line=line,
        )


def _fault_of_line(content: str, *, is_comment: bool) -> tuple[str, str] | None:
    """Return (message, hint) for a line that is not as it should be."""
    if "\r" in content:
        return "a carriage return inside the line", "end lines with LF or CRLF alone"
    if is_comment:
        return None
    if content.startswith("#"):
        return "a comment after the first word", "move it to the beginning of the sentence"
    columns = content.split("\t")
    num_columns = len(columns)
    if num_columns > NUM_COLUMNS:
        hint = "remove the tabs inside a column: they separate columns only"
        return f"{num_columns} columns, where CoNLL-U has {NUM_COLUMNS}", hint
    if num_columns < NUM_COLUMNS:
        message = f"{counted(num_columns, 'column')}, where CoNLL-U has {NUM_COLUMNS}"
        if not content.strip():
            hint = "let the line that ends a sentence be empty"
            return f"{message}, and the line holds only blanks", hint
        if num_columns == 1 and len(content.split()) == NUM_COLUMNS:
            return message, "separate columns with tabs, not spaces"
        return message, "separate columns with tabs, and write _ where there is nothing"
    for name, value in zip(COLUMNS, columns, strict=True):
        if not value:
            return f"column {name} is empty", "write _ where there is nothing"
    if columns[FORM].isspace():
        return "column FORM holds only blanks", "write the word"
    return None


def _sort_out(
    rows: list[list[str]], path: str, line: int
) -> tuple[list[list[str]], list[tuple[int, str]]]:
    """Part words from multiword tokens and empty nodes; refuse an ID that is out of its place.

    The rows are the columns of all lines but the comments; `line` is that of the first one.
    """
    words: list[list[str]] = []
    extras: list[tuple[int, str]] = []
    range_end = 0  # last word of the multiword token named last
    range_id = ""  # that token, until its first word is read
    num_empty = 0  # empty nodes since the last word

    def fault(message: str, hint: str = "number words 1, 2, 3 ... in each sentence") -> DataError:
        at = line + len(words) + len(extras)
        return DataError(message, hint=hint, path=path, line=at)

    for row in rows:
        identity = row[ID]
        if identity == str(len(words) + 1):
            words.append(row)
            range_id, num_empty = "", 0
            continue
        first, dash, last = identity.partition("-")
        word, dot, number = identity.partition(".")
        next_word = len(words) + 1
        if range_id:
            raise fault(
                f"ID {_shown(identity)} where word {next_word} of the multiword token {range_id} "
                "begins",
                "put the multiword token directly before its first word",
            )
        if dash and _is_number(first) and _is_number(last):
            if int(last) < int(first):
                raise fault(
                    f"the multiword token {identity} ends before it begins", "turn it round"
                )
            if int(first) <= range_end:
                raise fault(
                    f"the multiword token {identity} overlaps the one before it",
                    "let a word belong to one multiword token at most",
                )
            if int(first) != next_word:
                raise fault(
                    f"the multiword token {identity} stands before word {next_word}",
                    "put the multiword token directly before its first word",
                )
            range_id, range_end = identity, int(last)
        elif dot and (_is_number(word) or word == "0") and _is_number(number):
            expected = f"{len(words)}.{num_empty + 1}"
            if identity != expected:
                raise fault(
                    f"the empty node {identity} stands where {expected} is expected",
                    f"number the empty nodes after word {len(words)} "
                    f"{len(words)}.1, {len(words)}.2 ...",
                )
            num_empty += 1
        else:
            raise fault(f"ID {_shown(identity)} where {next_word} is expected")
        extras.append((len(words), "\t".join(row)))
    if not words:
        raise DataError("a sentence without words", hint="remove it", path=path, line=line)
    if range_end > len(words):
        raise DataError(
            f"the last multiword token ends with word {range_end}, but the sentence has "
            f"{counted(len(words), 'token')}",
            hint=_FIX,
            path=path,
            line=line + max(i for i, row in enumerate(rows) if "-" in row[ID]),
        )
    return words, extras


def _is_number(text: str) -> bool:
    """Return whether a text is a number from 1 on as CoNLL-U writes it; below 10^9."""
    return text.isascii() and text.isdecimal() and text[0] != "0" and len(text) < 10


def _shown(text: str) -> str:
    return repr(text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}...")


@cache
def _number_table(size: int) -> tuple[list[str], dict[str, int]]:
    """Return the numbers "1", "2", ... below a power of two, and their values, "0" with them."""
    texts = [str(number) for number in range(size)]
    return texts[1:], {text: number for number, text in enumerate(texts)}


def _numbers(count: int) -> list[str]:
    return _number_table(1 << count.bit_length())[0][:count]


def find_fault(heads: Sequence[int]) -> tuple[int, str] | None:
    """Return what keeps heads from being a tree: (the word, a message), or None if they are one.

    `heads[i]` is the head of word i + 1: a 1-based word number, or 0 for the root. A tree has every
    head in range, exactly one root and no cycle. Takes time linear in the words.
    """
    num_words = len(heads)
    if not num_words or min(heads) < 0 or max(heads) > num_words:
        for word, head in enumerate(heads, start=1):
            if not 0 <= head <= num_words:
                size = counted(num_words, "token")
                return word, f"token {word} has head {head}, but the sentence has {size}"
        return 1, "the sentence has no tokens"
    if heads.count(0) != 1:
        roots = [word for word, head in enumerate(heads, start=1) if head == 0]
        if not roots:
            return 1, "no token has head 0: the tree has no root"
        return roots[1], f"tokens {roots[0]} and {roots[1]} have head 0: the tree has two roots"
    # each walk up marks its words with where it began; one that meets its own mark is a cycle
    marks = [0] * num_words
    for start, head in enumerate(heads, start=1):
        if marks[start - 1]:
            continue
        marks[start - 1] = start
        word = head
        while word and not marks[word - 1]:
            marks[word - 1] = start
            word = heads[word - 1]
        if word and marks[word - 1] == start:
            return word, f"the heads form a cycle: {_cycle(heads, word)}"
    return None


def _cycle(heads: Sequence[int], start: int) -> str:
    words = [start]
    while heads[words[-1] - 1] != start:
        words.append(heads[words[-1] - 1])
    shown = [str(word) for word in words[:_MAX_WORDS]]
    if len(words) > _MAX_WORDS:
        shown.append("...")
    return " -> ".join((*shown, str(start)))
