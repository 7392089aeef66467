"""Words by their columns and by the words around them: `filter`, and a line of text for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seqtool.core.errors import ConfigError, did_you_mean
from seqtool.treebank.sentence import DEPS, FIELDS, HEAD, Sentence, Token

MAPPINGS = ("feats", "misc")
_FEW_VALUES = ("upos", "xpos", "deprel", "feats")  # columns of few different values

Wanted = Callable[[Token], bool]
Select = Callable[[Sequence[Token]], Sequence[Token]]  # some words of those of a sentence

# whether it holds of words a and b, by the words above each, the head first
_RELATIONS: dict[str, Callable[[Sequence[Sequence[int]], int, int], bool]] = {
    ">": lambda above, a, b: a in above[b][:1],
    "<": lambda above, a, b: b in above[a][:1],
    ">>": lambda above, a, b: a in above[b],
    "<<": lambda above, a, b: b in above[a],
    "+": lambda above, a, b: b == a + 1,
    "-": lambda above, a, b: b == a - 1,
    "++": lambda above, a, b: b > a,
    "--": lambda above, a, b: b < a,
}
_JOINT = r"(!?)(?=[<>+-])(>>?|<<?)?(\+\+?|--?)?(?= |$)"
_RELATION = re.compile(f" *{_JOINT}")
_AND, _OR = re.compile(" *&(?= |$)"), re.compile(r" *\|(?= |$)")
# a value may hold any sign, but one between spaces ends it, and so does the end of a parenthesis
_SIGN = re.compile(rf" +([&|](?= |$)|{_JOINT})")
_CLOSING = re.compile(r" *\)(?=[ )]|$)")


def filter(sentences: Iterable[Sentence] | Sentence, *queries: str, **wanted: Any) -> list[Token]:
    r"""Return the words that are asked for by queries and by columns, in order.

    >>> import seqtool
    >>> sentences = list(seqtool.read_conllu(
    ...     "1\tDogs\tdog\tNOUN\t_\tNumber=Plur\t2\tnsubj\t_\t_\n"
    ...     "2\tsleep\tsleep\tVERB\t_\t_\t0\troot\t_\t_\n"
    ... ))
    >>> seqtool.filter(sentences, deprel="nsubj", upos="NOUN")
    [<Token 1 'Dogs' nsubj of 2>]
    >>> seqtool.filter(sentences, feats__Number="Plur") == seqtool.filter(sentences, id=1)
    True
    >>> seqtool.filter(sentences, form=lambda form: form.endswith("p"))
    [<Token 2 'sleep' root of 0>]
    >>> seqtool.filter(sentences, "upos=VERB > deprel=nsubj & feats.Number=Plur")
    [<Token 2 'sleep' root of 0>]

    `wanted` is that of `conllu.TokenList.filter`; multiword tokens and empty nodes are not asked.

    Args:
        sentences: a `Doc`, any sentences, or a single one.
        queries: as of `inspect --where`; all must hold.
        wanted: column, in small letters, -> its value; `feats__Case` and `misc__Gloss` name an item
            of these two. `id` and `head` are numbers. A text for `deps` is one of the enhanced
            arcs, such as "4:nsubj", or all of them. None or "_" asks for words without a value,
            whose column is `_`. A function is called with the value, and says True for the words
            that are wanted.

    Raises:
        ConfigError: no column has that name, or a query cannot be read.
    """
    if isinstance(sentences, str | Path):
        raise TypeError(f"expected sentences, not {sentences!r}: read them with read_conllu")
    query = Query(queries, wanted)
    items = [sentences] if isinstance(sentences, Sentence) else sentences
    return [token for sentence in items for token in query.words(sentence)]


class Pattern(str):
    """A text in which `*` stands for any letters, and a relation for its subtypes, too.

    Texts that `|` parts are alternatives, and so is the whole, as a tag may have `|` in it.
    """

    _pattern: re.Pattern[str]

    def __new__(cls, text: str, name: str) -> Pattern:
        """Return the pattern of a text that is asked for in a column."""
        self = super().__new__(cls, text)
        some = "[^|]*" if name == "deps" else ".*"  # an enhanced arc is one of several
        parts = [] if name == "deps" else text.split("|")
        if not all(part.strip("*") for part in parts):  # as of the word `|`
            parts = []
        patterns = [some.join(map(re.escape, part.split("*"))) for part in (text, *parts)]
        pattern = f"({'|'.join(patterns)})"
        pattern += f"(:{some})?" if name in ("deprel", "deps") else ""
        self._pattern = re.compile(pattern, re.DOTALL)
        return self

    def matches(self, value: object) -> bool:
        """Whether a value is such a text."""
        if value is None:
            return "_" in self.split("|")
        return bool(self._pattern.fullmatch(str(value)))


class Query:
    """What words are asked for.

    Args:
        texts: queries as of `inspect --where`, all of which must hold.
        wanted: columns and their values, as of `filter`.

    Raises:
        ConfigError: a text cannot be read, with the place; or two are of one column.
    """

    def __init__(self, texts: Iterable[str], wanted: Mapping[str, Any] | None = None) -> None:
        self._texts = list(texts)
        for text in self._texts:
            if not isinstance(text, str):
                raise TypeError(f"a query is a text, not {text!r:.60}")
        parsers = [_Parser(text) for text in self._texts]
        parts = [parser.parse() for parser in parsers]
        parts += [_having(_test(name, value)) for name, value in (wanted or {}).items()]
        self._select = _all(parts)
        self.conditions = [pair for parser in parsers for pair in parser.conditions]
        names = [name for parser in parsers if parser.is_plain for name, _ in parser.conditions]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            what = f"{twice.partition('__')[0]} is asked for twice"
            raise ConfigError(what, hint="leave one out, or write NAME=A|B for either")
        self._is_plain = all(parser.is_plain for parser in parsers)

    def words(self, sentence: Sentence) -> list[Token]:
        """Return the words of a sentence that are asked for, in order."""
        return [*self._select([*sentence])]

    def to_json(self) -> dict[str, Any] | list[str]:
        """Return column -> value; of more than such conditions, the queries as they are."""
        return dict(self.conditions) if self._is_plain else self._texts


class _Parser:
    """Reads a query by recursive descent; all relations are of the first word.

    query = word (RELATION word)*
    word  = all (" | " all)*
    all   = item (" & " item)*
    item  = "(" query ")", "*", NAME=VALUE, NAME==VALUE or NAME!=VALUE
    """

    def __init__(self, text: str) -> None:
        self.conditions: list[tuple[str, Any]] = []  # those that are not negated
        self.is_plain = True  # a single condition
        self._text, self._place, self._depth = text, 0, 0

    def parse(self) -> Select:
        select = self._query()
        if rest := self._text[self._place :].strip():
            hint = "write &, | or a relation, such as >, before it"
            raise self._error(f"nothing joins {rest!r} to what is before it", hint)
        return select

    def _query(self) -> Select:
        select = self._word()
        while relation := self._take(_RELATION):
            select = _related(select, relation, self._word())
        return select

    def _word(self) -> Select:
        parts = [self._all()]
        while self._take(_OR):
            parts.append(self._all())
        return _either(parts) if len(parts) > 1 else parts[0]

    def _all(self) -> Select:
        parts = [self._item()]
        while self._take(_AND):
            parts.append(self._item())
        return _all(parts)

    def _item(self) -> Select:
        text = self._text
        while text.startswith(" ", self._place):
            self._place += 1
        if text.startswith("(", self._place):
            begin, self.is_plain = self._place, False
            if self._depth == 50:  # Python's own stack ends
                raise self._error("parentheses stand too deep", "leave some out")
            self._place, self._depth = begin + 1, self._depth + 1
            select = self._query()
            if not self._take(_CLOSING):
                self._place = begin
                raise self._error("a parenthesis is not closed", "write ) at its end")
            self._depth -= 1
            return select
        ends = [_SIGN.search(text, self._place), self._depth and _CLOSING.search(text, self._place)]
        end = min((sign.start() for sign in ends if sign), default=len(text))
        try:
            select = self._condition(text[self._place : end])
        except ConfigError as error:
            raise self._error(error.message, error.hint) from error
        self._place = end
        return select

    def _condition(self, text: str) -> Select:
        if text == "*":
            self.is_plain = False
            return lambda tokens: tokens
        name, sign, value = text.partition("=")
        field, dot, item = name.removesuffix("!").partition("." if "." in name else "__")
        column = field.lower() + (f"__{item}" if dot else "")
        if not sign or not name[:1].isalpha():
            hint = "write NAME=VALUE, as deprel=nsubj or feats.Case=Nom"
            raise ConfigError(f"{text!r} asks for nothing", hint=hint)
        is_exact = value.startswith("=") and value != "="  # which is a word, too
        asked = _read(column, value.removeprefix("=") if is_exact else value)
        if isinstance(asked, str) and not is_exact:
            asked = Pattern(asked, column)
        test = _test(column, asked)
        if name.endswith("!"):
            self.is_plain = False
            return lambda tokens: [token for token in tokens if not test(token)]
        self.conditions.append((column, asked))
        return _having(test)

    def _take(self, sign: re.Pattern[str]) -> re.Match[str] | None:
        """Go behind a sign, if it is next."""
        if match := sign.match(self._text, self._place):
            self._place, self.is_plain = match.end(), False
        return match

    def _error(self, message: str, hint: str) -> ConfigError:
        place = f"character {self._place + 1} of {self._text!r}"
        return ConfigError(f"{message}, at {place}", hint=hint)


def _having(test: Wanted) -> Select:
    return lambda tokens: [token for token in tokens if test(token)]


def _all(parts: Sequence[Select]) -> Select:
    def select(tokens: Sequence[Token]) -> Sequence[Token]:
        for part in parts:
            tokens = part(tokens)
        return tokens

    return select


def _either(parts: Sequence[Select]) -> Select:
    def select(tokens: Sequence[Token]) -> Sequence[Token]:
        numbers = {token.number for part in parts for token in part(tokens)}
        return [token for token in tokens if token.number in numbers]

    return select


def _related(left: Select, relation: re.Match[str], right: Select) -> Select:
    """Return what selects the words of `left` that a relation joins to any of `right`."""
    is_absent = bool(relation[1])
    tests = [_RELATIONS[sign] for sign in relation.groups()[1:] if sign]
    of_tree, of_order = tests[0], tests[-1]  # one and the same where there is one

    def select(tokens: Sequence[Token]) -> Sequence[Token]:
        words = left(tokens)
        if not words:
            return words
        sentence = words[0].sentence
        others = [token.number for token in right([*sentence])]
        above = _above(sentence)
        return [
            word
            for word in words
            if any(
                of_tree(above, word.number, other) and of_order(above, word.number, other)
                for other in others
            )
            != is_absent
        ]

    return select


def _above(sentence: Sentence) -> list[list[int]]:
    """Return the head of each word, its head, and so on; [0] is nothing."""
    numbers = {str(number): number for number in range(1, len(sentence) + 1)}
    heads = [0, *(numbers.get(row[HEAD], 0) for row in sentence.rows)]  # `_` may stand there
    above: list[list[int]] = [[] for _ in heads]
    for word, words in enumerate(above):
        while (word := heads[word]) and word not in words:  # a cycle ends
            words.append(word)
    return above


class QueryHints:
    """What a query that matches no word may have meant, by the sentences that were read."""

    def __init__(self, query: Query) -> None:
        # (column, what is asked for) -> the values that words have
        self._known: dict[tuple[str, str], set[Any]] = {
            (name, value): set()
            for name, value in query.conditions
            if isinstance(value, str) and name.partition("__")[0] in _FEW_VALUES
        }

    def add(self, sentence: Sentence) -> None:
        """Note the values of a sentence."""
        for (name, _), known in self._known.items():
            known.update(_value(token, name) for token in sentence)

    def lines(self) -> Iterator[str]:
        """Give a line for each value that no word has."""
        for (name, value), known in self._known.items():
            known.discard(None)
            if known and not any(_equals(value, other) for other in known):
                same = [other for other in known if other.lower() == value.lower()]
                hint = did_you_mean(same[0] if same else value, known)
                yield f"no word has {name.replace('__', '.')}={value}: {hint}"


class Match(NamedTuple):
    """A word in its sentence, as a concordance shows it."""

    token: Token
    before: str  # the text of the sentence before it, with single spaces
    written: str  # the word, or the multiword token that it is of
    after: str

    @property
    def place(self) -> str:
        """Its sentence by name, or file and line."""
        sentence = self.token.sentence
        return sentence.sent_id or f"{sentence.path}:{sentence.line_of(self.token.number)}"

    def to_json(self) -> dict[str, Any]:
        """Return the place of the word, its columns, and the text of its sentence."""
        sentence = self.token.sentence
        columns = dict(zip(FIELDS, self.token.columns, strict=True))
        return {
            "path": sentence.path,
            "line": sentence.line_of(self.token.number),
            "sent_id": sentence.sent_id or None,
            **columns,
            "id": self.token.id,
            "head": self.token.head,
            "text": sentence.text,
        }


def matches(sentence: Sentence, query: Query) -> list[Match]:
    """Return the words of a sentence that are asked for, each with the text around it."""
    tokens = query.words(sentence)
    pieces = sentence.surface() if tokens else []
    texts = [text for _, _, text in pieces]
    result = []
    for token in tokens:
        place = next(i for i, (_, last, _) in enumerate(pieces) if last >= token.number)
        parts = ("".join(texts[:place]), texts[place], "".join(texts[place + 1 :]))
        before, written, after = (" ".join(part.split()) for part in parts)
        # where no space parts the word from what is beside it, neither does the concordance
        before += " " * (bool(before) and texts[place - 1][-1:].isspace())
        after = " " * (bool(after) and texts[place][-1:].isspace()) + after
        result.append(Match(token, before, written, after))
    return result


def _read(name: str, value: str) -> str | int | None:
    """Return what a text asks for: of a number, the number; of `_`, no value."""
    is_number = name in ("id", "head") and value.isascii() and value.isdecimal()
    return int(value) if is_number else None if value == "_" else value


def _equals(wanted: Any, value: Any) -> bool:
    """Return whether a column has what a query asks for."""
    return wanted.matches(value) if isinstance(wanted, Pattern) else bool(wanted == value)


def _value(token: Token, name: str) -> Any:
    """Return a column of a word, or an item of one; None without a value."""
    field, _, item = name.partition("__")
    value = getattr(token, field)
    if item:
        return value.get(item)
    # a word or lemma may be `_` itself
    return None if value in ("_", []) and field not in ("form", "lemma") else value


def _test(name: str, wanted: Any) -> Wanted:
    field, _, item = name.partition("__")
    if field not in FIELDS or bool(item) != (field in MAPPINGS):
        known = [*(field for field in FIELDS if field not in MAPPINGS), "feats.NAME", "misc.NAME"]
        message = f"{name} is no column that can be asked for"
        raise ConfigError(message, hint=did_you_mean(name, known))
    if isinstance(wanted, str) and not isinstance(wanted, Pattern):
        wanted = _read(name, wanted)
    if callable(wanted):
        return lambda token: wanted(_value(token, name)) is True
    if wanted is None:
        return lambda token: _value(token, name) in (None, "_")
    if field == "deps" and isinstance(wanted, str):
        # one of the enhanced arcs, or all of them as the column has them
        return lambda token: any(
            _equals(wanted, arc) for arc in (token.columns[DEPS], *token.columns[DEPS].split("|"))
        )
    return lambda token: _equals(wanted, _value(token, name))
