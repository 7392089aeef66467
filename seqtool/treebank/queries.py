"""Words by their columns: `filter`, and a line of text for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from seqtool.core.errors import ConfigError, did_you_mean
from seqtool.treebank.sentence import DEPS, FIELDS, Sentence, Token

MAPPINGS = ("feats", "misc")
_FEW_VALUES = ("upos", "xpos", "deprel", "feats")  # columns of few different values

Wanted = Callable[[Token], bool]


def filter(sentences: Iterable[Sentence] | Sentence, **wanted: Any) -> list[Token]:
    r"""Return the words that have all of some columns, in order.

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

    The queries are those of `conllu.TokenList.filter`; multiword tokens and empty nodes are not
    asked.

    Args:
        sentences: a `Doc`, any sentences, or a single one.
        wanted: column, in small letters, -> its value; `feats__Case` and `misc__Gloss` name an item
            of these two. `id` and `head` are numbers. A text for `deps` is one of the enhanced
            arcs, such as "4:nsubj", or all of them. None or "_" asks for words without a value,
            whose column is `_`. A function is called with the value, and says True for the words
            that are wanted.

    Raises:
        ConfigError: no column has that name.
    """
    if isinstance(sentences, str | Path):
        raise TypeError(f"expected sentences, not {sentences!r}: read them with read_conllu")
    is_wanted = wants(wanted)
    items = [sentences] if isinstance(sentences, Sentence) else sentences
    return [token for sentence in items for token in sentence if is_wanted(token)]


def wants(wanted: Mapping[str, Any]) -> Wanted:
    """Return a function that says whether a word is wanted; see `filter`."""
    tests = [_test(name, value) for name, value in wanted.items()]
    return lambda token: all(test(token) for test in tests)


class Pattern(str):
    """A text in which `*` stands for any letters, and a relation for its subtypes, too."""

    _pattern: re.Pattern[str]

    def __new__(cls, text: str, name: str) -> Pattern:
        """Return the pattern of a text that is asked for in a column."""
        self = super().__new__(cls, text)
        some = "[^|]*" if name == "deps" else ".*"  # an enhanced arc is one of several
        pattern = some.join(map(re.escape, text.split("*")))
        pattern += f"(:{some})?" if name in ("deprel", "deps") else ""
        self._pattern = re.compile(pattern, re.DOTALL)
        return self

    def matches(self, value: object) -> bool:
        """Whether a value is such a text."""
        return value is not None and bool(self._pattern.fullmatch(str(value)))


def parse_query(texts: Iterable[str]) -> dict[str, Any]:
    """Return what texts such as `deprel=nsubj` and `feats.Case=Nom` ask for, for `filter`.

    The names of columns may be in capital letters. `_` asks for words without a value. Texts are
    `Pattern`s; those of `==`, as in `deprel==nsubj`, are asked for as they are.

    Raises:
        ConfigError: a text is no such thing, or names a column twice.
    """
    wanted: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        field, dot, item = name.partition("." if "." in name else "__")
        name = field.lower() + (f"__{item}" if dot else "")
        if not sign or not name:
            hint = "write NAME=VALUE, as deprel=nsubj or feats.Case=Nom"
            raise ConfigError(f"{text!r} asks for nothing", hint=hint)
        if name in wanted:
            raise ConfigError(f"{field} is asked for twice", hint="leave one out")
        is_exact = value.startswith("=") and value != "="  # which is a word, too
        asked = _read(name, value.removeprefix("=") if is_exact else value)
        if isinstance(asked, str) and not is_exact:
            asked = Pattern(asked, name)
        wanted[name] = asked
    wants(wanted)  # which refuses unknown names
    return wanted


class QueryHints:
    """What a query that matches no word may have meant, by the sentences that were read."""

    def __init__(self, query: Mapping[str, Any]) -> None:
        # (column, what is asked for) -> the values that words have
        self._known: dict[tuple[str, str], set[Any]] = {
            (name, value): set()
            for name, value in query.items()
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


def matches(sentence: Sentence, wanted: Wanted) -> list[Match]:
    """Return the words of a sentence that are wanted, each with the text around it."""
    tokens = [token for token in sentence if wanted(token)]
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
