"""A sentence of CoNLL-U: its lines as words, multiword tokens and empty nodes.

`Sentence` holds the columns as texts, which is fast to read and to write; `Token` is a view of one
of its lines, made when it is asked for.

    # sent_id = 7                               comments
    1-2  vámonos  _    _     ...                a multiword token: how words 1 and 2 are written
    1    vamos    ir   VERB  ...  0  root  _  _ a word: ten columns with tabs between them
    2    nos      ...
    2.1  ...                                    an empty node, the first one after word 2
                                                a blank line ends the sentence

The format: universaldependencies.org/format.html.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, get_args, overload

from seqtool.core.config import Registry
from seqtool.core.errors import DataError, counted
from seqtool.treebank.misc import (
    ITEM_BEGIN,
    is_of_tree,
    score_in,
    with_score,
    without_score,
    written,
)

COLUMNS = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
FIELDS = tuple(name.lower() for name in COLUMNS)
NUM_COLUMNS = len(COLUMNS)
ID, FORM, LEMMA, UPOS, XPOS, FEATS, HEAD, DEPREL, DEPS, MISC = range(NUM_COLUMNS)

Check = Literal["tree", "columns"]
CHECKS: tuple[Check, ...] = get_args(Check)

_FIX = "fix the line"
_MAX_SHOWN = 30  # characters of a column in a message
_MAX_WORDS = 6  # of a cycle in a message
_NOT_IN_COLUMN = frozenset("\t\n\r").union(map(chr, range(0xD800, 0xE000)))  # half characters
_TOKEN_RANGE = re.compile(r"(?:^|\|)TokenRange=([0-9]{1,12}):([0-9]{1,12})(?:\||$)")

# drawings use this module, so it imports them by name
_DRAWING: Registry[Callable[..., str]] = Registry(
    "drawing", {"html": "seqtool.treebank.drawing.rendering:inline_html"}
)


@dataclass(slots=True)
class Sentence:
    r"""A sentence of n words as a file has it.

    It is a sequence of its words: `sentence[0]` and `for token in sentence` give `Token`s.

    >>> import seqtool
    >>> (sentence,) = seqtool.read_conllu(
    ...     "1\tDogs\tdog\tNOUN\t_\tNumber=Plur\t2\tnsubj\t_\t_\n"
    ...     "2\tsleep\tsleep\tVERB\t_\t_\t0\troot\t_\t_\n"
    ... )
    >>> [(token.form, token.head, token.deprel) for token in sentence]
    [('Dogs', 2, 'nsubj'), ('sleep', 0, 'root')]
    >>> sentence.root.children[0].feats["Number"], sentence.text
    ('Plur', 'Dogs sleep')

    Attributes:
        comments: the lines that begin with #, as read.
        rows: the ten columns of words 1 to n.
        extras: multiword tokens and empty nodes in order: (how many words stand before it, the
            whole line).
        path: the file that it was read from.
        line: the 1-based line of that file where it begins.
        offset: the characters of the document's text before it, where a `Doc` has placed it.
    """

    comments: list[str]
    rows: list[list[str]]
    extras: list[tuple[int, str]]
    path: str = ""
    line: int = 0
    offset: int = field(default=0, compare=False)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Token]:
        return (Token(self, number) for number in range(1, len(self.rows) + 1))

    @overload
    def __getitem__(self, place: int) -> Token: ...
    @overload
    def __getitem__(self, place: slice) -> list[Token]: ...
    def __getitem__(self, place: int | slice) -> Token | list[Token]:
        """Return the word at a place, from 0 on, as of a list; or the words of a slice."""
        numbers = range(1, len(self.rows) + 1)[place]
        if isinstance(numbers, int):
            return Token(self, numbers)
        return [Token(self, number) for number in numbers]

    @property
    def tokens(self) -> list[Token]:
        """The surface tokens: a multiword token stands in place of its words."""
        places = {line.partition("\t")[0]: place for place, (_, line) in enumerate(self.extras)}
        rows = self.surface_rows()
        return [Token(self, first, places.get(columns[ID])) for first, _, columns in rows]

    @property
    def empty_nodes(self) -> list[Token]:
        """The empty nodes of the enhanced graph."""
        return [
            Token(self, position, place)
            for place, (position, line) in enumerate(self.extras)
            if "." in line.partition("\t")[0]
        ]

    @property
    def root(self) -> Token | None:
        """The first word whose head is 0; None without a tree."""
        return next((token for token in self if token.columns[HEAD] == "0"), None)

    @property
    def metadata(self) -> dict[str, str | None]:
        """The comments by name, as `text` of `# text = A dog.`; None of those without a value.

        Of several of one name, it is the last one.
        """
        pairs = (comment[1:].partition("=") for comment in self.comments)
        return {key.strip(): value.strip() if sign else None for key, sign, value in pairs}

    @property
    def sent_id(self) -> str:
        """Its name by the comment `sent_id`; "" without one."""
        return self.metadata.get("sent_id") or ""

    @property
    def text(self) -> str:
        """Its text: that of the comment `text`, else its words, with single spaces."""
        return self.metadata.get("text") or " ".join(self.written().split())

    def surface(self) -> list[tuple[int, int, str]]:
        """Return (first word, last word, text) of each surface token, with the spaces around it."""
        return [
            (first, last, "".join(written(row[FORM], row[MISC])))
            for first, last, row in self.surface_rows()
        ]

    def written(self) -> str:
        """Return words and spaces as the text has them, what follows the last word included."""
        return "".join(text for _, _, text in self.surface())

    def spans(self) -> list[tuple[int, int]]:
        """Return the first character of each word in the text of its document, and the end.

        By TokenRange in MISC, where it is there; else by words and spaces from `offset` on. Words
        of a multiword token have its span.
        """
        place, spans = self.offset, []
        for first, last, row in self.surface_rows():
            before, raw, after = written(row[FORM], row[MISC])
            place += len(before)
            span = place, place + len(raw)
            if (match := _TOKEN_RANGE.search(row[MISC])) is not None:
                span = int(match[1]), int(match[2])
            spans += [span] * (last - first + 1)
            place += len(raw) + len(after)
        return spans

    def surface_rows(self) -> list[tuple[int, int, list[str]]]:
        """Return (first word, last word, columns) of each surface token."""
        rows = [(number, number, row) for number, row in enumerate(self.rows, start=1)]
        for first, last, columns in reversed(self.multiword_tokens()):
            rows[first - 1 : last] = [(first, last, columns)]
        return rows

    def copy(self) -> Sentence:
        """Return a copy that shares nothing with it."""
        rows = [list(row) for row in self.rows]
        return Sentence([*self.comments], rows, [*self.extras], self.path, self.line, self.offset)

    def __repr__(self) -> str:
        text = self.text
        return f"<Sentence of {counted(len(self), 'word')}: {_shown(text)}>"

    def _repr_html_(self) -> str:
        """Return its tree as a picture, for a notebook."""
        return _DRAWING["html"]([self])

    def column(self, index: int) -> list[str]:
        """Return one column of all words, as in `sentence.column(FORM)`."""
        return [row[index] for row in self.rows]

    def heads(self) -> list[int]:
        """Return the head of each word, 0 for the root.

        Raises:
            DataError: a head is no number; only where the tree was not checked.
        """
        texts = self.column(HEAD)
        values = _number_table(1 << len(texts).bit_length())
        try:
            return [values[text] for text in texts]
        except KeyError:
            return [_head_of(text, self, word) for word, text in enumerate(texts, start=1)]

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
        """Give each word a head, 1-based or 0, and a relation; scores of another tree go.

        All else stays as it is.
        """
        for row, head, deprel in zip(self.rows, heads, deprels, strict=True):
            row[HEAD], row[DEPREL] = str(head), deprel
        self.drop_scores()

    def drop_scores(self) -> None:
        """Leave out scores of a tree that the sentence no longer has: in MISC, and in comments."""
        self.comments = [comment for comment in self.comments if not is_of_tree(comment)]
        for row in self.rows:
            if ITEM_BEGIN in row[MISC]:
                row[MISC] = without_score(row[MISC])

    def set_scores(self, probabilities: Sequence[float]) -> None:
        """Write how probable each word's arc is into column MISC; see `Token.score`."""
        for row, probability in zip(self.rows, probabilities, strict=True):
            row[MISC] = with_score(row[MISC], probability)

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


def _column(index: int, about: str) -> Any:
    """Return an attribute of a token that is a column as it is."""
    return property(
        lambda token: token.columns[index],
        lambda token, text: token.set_column(index, text),
        doc=about,
    )


class Token:
    """A line of a sentence: a word, a multiword token or an empty node.

    It is a view: what is set is written into the sentence, and `sentence.to_conllu()` has it.
    Columns are texts as the file has them, `_` where there is nothing.

    Attributes:
        sentence: where it stands.
        number: of a word, its ID, from 1 on; of a multiword token, that of its first word; of an
            empty node, that of the word before it.
    """

    __slots__ = ("_extra", "number", "sentence")

    def __init__(self, sentence: Sentence, number: int, extra: int | None = None) -> None:
        self.sentence, self.number = sentence, number
        self._extra = extra  # its place in `sentence.extras`; None of a word

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Token):
            return NotImplemented
        same = self.sentence is other.sentence
        return same and (self.number, self._extra) == (other.number, other._extra)

    def __hash__(self) -> int:
        return hash((id(self.sentence), self.number, self._extra))

    def __str__(self) -> str:
        return self.form

    def __repr__(self) -> str:
        head, deprel = self.columns[HEAD], self.deprel[:_MAX_SHOWN]
        tree = "" if head == "_" else f" {deprel} of {head}"
        return f"<Token {self.columns[ID]} {_shown(self.form)}{tree}>"

    @property
    def columns(self) -> list[str]:
        """The ten columns; those of a word are the sentence's own list."""
        if self._extra is None:
            return self.sentence.rows[self.number - 1]
        return self.sentence.extras[self._extra][1].split("\t")

    def set_column(self, index: int, text: str) -> None:
        """Write a column, as in `token.set_column(XPOS, "NN")`.

        Raises:
            ValueError: a text that no column can hold.
        """
        if not text or not _NOT_IN_COLUMN.isdisjoint(text) or (index == FORM and text.isspace()):
            raise ValueError(f"{COLUMNS[index]} cannot be {text!r}")
        if self._extra is None:
            self.columns[index] = text
            return
        position, line = self.sentence.extras[self._extra]
        columns = line.split("\t")
        columns[index] = text
        self.sentence.extras[self._extra] = position, "\t".join(columns)

    @property
    def id(self) -> int | str:
        """The number of a word; `1-2` of a multiword token, `2.1` of an empty node."""
        return self.number if self._extra is None else self.columns[ID]

    @property
    def is_multiword(self) -> bool:
        """Whether it is a multiword token; its `words` are words of the sentence."""
        return self._extra is not None and "-" in self.columns[ID]

    @property
    def is_empty(self) -> bool:
        """Whether it is an empty node."""
        return self._extra is not None and "." in self.columns[ID]

    @property
    def words(self) -> list[Token]:
        """The words of a multiword token; of others, the token itself."""
        if not self.is_multiword:
            return [self]
        first, last = map(int, self.columns[ID].split("-"))
        return self.sentence[first - 1 : last]

    form: str = _column(FORM, "The word.")
    lemma: str = _column(LEMMA, "Its lemma.")
    upos: str = _column(UPOS, "Its universal part of speech.")
    xpos: str = _column(XPOS, "Its part of speech in the treebank's own tag set.")
    deprel: str = _column(DEPREL, "Its relation to its head.")

    @property
    def feats(self) -> Features:
        """The morphological features: `token.feats["Case"]`, `token.feats.get("Case")`."""
        return Features(self, FEATS)

    @property
    def misc(self) -> Features:
        """The items of column MISC: `token.misc.get("SpaceAfter")`."""
        return Features(self, MISC)

    @property
    def head(self) -> int | None:
        """The number of its head, as in the file: 0 for the root; None without a head.

        `head_token` is the head itself.

        Raises:
            DataError: column HEAD holds no number.
        """
        text = self.columns[HEAD]
        return None if text == "_" else _head_of(text, self.sentence, self.id)

    @head.setter
    def head(self, number: int | None) -> None:
        if number is not None and number not in range(len(self.sentence) + 1):
            size = counted(len(self.sentence), "word")
            raise ValueError(f"HEAD cannot be {number!r} in a sentence of {size}")
        self.set_column(HEAD, "_" if number is None else str(int(number)))

    @property
    def score(self) -> float | None:
        """The probability that its head is right, by `Score` of column MISC; None without one."""
        return score_in(self.columns[MISC])

    @property
    def head_token(self) -> Token | None:
        """Its head; None for the root, and without a head."""
        head = self.head
        if not head or head > len(self.sentence):
            return None
        return Token(self.sentence, head)

    @property
    def children(self) -> list[Token]:
        """The words whose head it is, in order."""
        own = str(self.id)
        rows = enumerate(self.sentence.rows, start=1)
        return [Token(self.sentence, number) for number, row in rows if row[HEAD] == own]

    @property
    def subtree(self) -> list[Token]:
        """It and all words that depend on it, in order; of an empty node, which has no tree, none.

        Of a multiword token, its words and all that depends on them.
        """
        pending = [] if self.is_empty else self.words
        reached = {word.number for word in pending}
        while pending:
            new = [child for child in pending.pop().children if child.number not in reached]
            reached.update(child.number for child in new)
            pending += new
        return [Token(self.sentence, number) for number in sorted(reached)]

    @property
    def deps(self) -> list[tuple[int | str, str]]:
        """The arcs of the enhanced graph: (head, relation); the head as `id` is."""
        text = self.columns[DEPS]
        arcs = [arc.partition(":")[::2] for arc in text.split("|")] if text != "_" else []
        return [(int(head) if head.isdecimal() else head, relation) for head, relation in arcs]

    @property
    def start(self) -> int | None:
        """The character where it begins in the text of its document; None of an empty node.

        See `Sentence.spans`.
        """
        return None if self.is_empty else self.sentence.spans()[self.number - 1][0]

    @property
    def end(self) -> int | None:
        """The character after its last one; see `start`."""
        return None if self.is_empty else self.sentence.spans()[self.number - 1][1]


class Features(MutableMapping[str, str]):
    """The items of column FEATS or MISC of a token as a mapping; changes are written.

    An item without `=` has the value "". Of several items of one name, which MISC may have, the
    last one counts, and a change leaves only that one. All others stay as they are written. A new
    item takes its alphabetical place in FEATS, and the last one in MISC.
    """

    __slots__ = ("_index", "_token")

    def __init__(self, token: Token, index: int) -> None:
        self._token, self._index = token, index

    def _items(self) -> list[str]:
        column = self._token.columns[self._index]
        return [] if column == "_" else column.split("|")

    def _values(self) -> dict[str, str]:
        return dict(item.partition("=")[::2] for item in self._items())

    def __getitem__(self, name: str) -> str:
        return self._values()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values())

    def __len__(self) -> int:
        return len(self._values())

    def __setitem__(self, name: str, value: str) -> None:
        if not name or any(character in name for character in "=|\t\n\r") or "|" in value:
            raise ValueError(f"{name}={value} cannot stand in a column of features")
        items = [item for item in self._items() if item.partition("=")[0] != name]
        items.append(f"{name}={value}" if value else name)
        if self._index == FEATS:
            items.sort(key=str.lower)
        self._token.set_column(self._index, "|".join(items))

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        kept = [item for item in self._items() if item.partition("=")[0] != name]
        self._token.set_column(self._index, "|".join(kept) or "_")

    def __repr__(self) -> str:
        return repr(self._values())


def _head_of(text: str, sentence: Sentence, word: int | str) -> int:
    """Return the number in column HEAD of a word, or of a line with this ID."""
    if text != "0" and not _is_number(text):
        raise DataError(
            f"token {word} has head {_shown(text)}, which is no word number",
            hint="give a treebank with trees" if text == "_" else _FIX,
            path=sentence.path or None,
            line=sentence.line_of(word) if isinstance(word, int) else None,
        )
    return int(text)


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
    if [row[ID] for row in rows] != [*map(str, range(1, len(rows) + 1))]:
        rows, extras = _sort_out(rows, path, line + num_comments)
    sentence = Sentence(comments, rows, extras, path, line)
    if check == "tree" and (fault := find_fault(sentence.heads())) is not None:
        word, message = fault
        raise DataError(message, hint=_FIX, path=path, line=sentence.line_of(word))
    return sentence


def _check_columns(lines: list[str], num_comments: int, path: str, line: int) -> None:
    """Refuse the first line without ten columns with something in each, or a lack of words."""
    for place, content in enumerate(lines):
        columns = content.split("\t")
        if "\r" in content:
            message, hint = "a carriage return inside the line", "end lines with LF or CRLF alone"
        elif place < num_comments:
            continue
        elif content.startswith("#"):
            message = "a comment after the first word"
            hint = "move it to the beginning of the sentence"
        elif len(columns) != NUM_COLUMNS:
            message = f"{counted(len(columns), 'column')}, where CoNLL-U has {NUM_COLUMNS}"
            message += "" if content.strip() else ", and the line holds only blanks"
            hint = "separate columns with tabs, and end sentences with an empty line"
        elif "" in columns:
            message = f"column {COLUMNS[columns.index('')]} is empty"
            hint = "write _ where there is nothing"
        elif columns[FORM].isspace():
            message, hint = "column FORM holds only blanks", "write the word"
        else:
            continue
        raise DataError(message, hint=hint, path=path, line=line + place)
    if num_comments == len(lines):
        message = "a sentence of comments only, without words"
        hint = "remove it, or the blank line after its comments"
        raise DataError(message, hint=hint, path=path, line=line)


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
    place = "put each multiword token directly before its first word, in no other"

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
            raise fault(f"ID {_shown(identity)} where word {next_word} of {range_id} begins", place)
        if dash and _is_number(first) and _is_number(last):
            for is_wrong, message in (
                (int(last) < int(first), "ends before it begins"),
                (int(first) <= range_end, "overlaps the one before it"),
                (int(first) != next_word, f"stands before word {next_word}"),
            ):
                if is_wrong:
                    raise fault(f"the multiword token {identity} {message}", place)
            range_id, range_end = identity, int(last)
        elif dot and (_is_number(word) or word == "0") and _is_number(number):
            expected = f"{len(words)}.{num_empty + 1}"
            if identity != expected:
                hint = "number empty nodes after the word before them: 2.1, 2.2 ..."
                raise fault(f"the empty node {identity} stands where {expected} is expected", hint)
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
def _number_table(size: int) -> dict[str, int]:
    """Return the values of "0", "1", ... below a power of two."""
    return {str(number): number for number in range(size)}


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
