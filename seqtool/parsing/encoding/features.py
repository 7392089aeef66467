"""What the classifier knows of a word: fields, their symbols, and types.

A *type* is what all words share that have the same form, lemma and tags, as far as these are read.
It has lexical symbols (the form, its parts, the lemma) and tag symbols (the tags, each feature);
the embeddings of either kind are added, and the two sums are its vector. So whatever fields there
are, a word is one row of a table, and what is computed for a type is computed once.

    symbols  0 PAD  1 NONE  2 ROOT, then of each group its unknown symbol and those it has
    types    0 NONE (no word there)  1 ROOT, then those met, in this order
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from seqtool.core.arrays import Ints
from seqtool.core.vocabulary import Vocabulary
from seqtool.text.characters import Characters, padded
from seqtool.treebank.sentence import FEATS, FORM, LEMMA, UPOS, XPOS, Sentence

PAD, NONE, ROOT = range(3)
NONE_TYPE, ROOT_TYPE = range(2)

MAX_FEATS = 12  # features of a word beyond these are not looked at one by one
JOINER = "+"  # stands between the morphemes of a lemma, and between their tags: 고향+은, ncn+jxt
MAX_MORPHEMES = 6  # those of a word beyond these are not looked at one by one
# of the words of a treebank, how many have joined values where its morphemes are looked at; a stray
# lemma such as `A+E` makes none
JOINED_SHARE = 0.05


def shape(form: str) -> str:
    """Return the kinds of a form's characters, runs cut to two: `Ab-1950s` is Aa-11a."""
    if form.isascii() and form.isalpha() and form.islower():  # as most are
        return "aa"[: len(form)]
    result = ""
    for character in form:
        kind = "A" if character.isupper() else "a" if character.islower() else character
        kind = "1" if character.isdigit() else "c" if kind.isalpha() and kind not in "Aa" else kind
        if result[-2:] != kind * 2:
            result += kind
    return result[:8]


def _parts(feats: str) -> list[str]:
    return feats.split("|")[:MAX_FEATS] if "|" in feats else []


def morphemes(value: str) -> list[str]:
    """Return the parts of a joined lemma or tag: `고향+은` is 고향, 은; any other value is one."""
    parts = value.split(JOINER)
    return parts if all(parts) else [value]


# field -> name of a group of symbols -> (the column, the symbols of its value, how many at most)
Symbols = Callable[[str], Sequence[str]]
FIELDS: dict[str, dict[str, tuple[int, Symbols, int]]] = {
    "form": {
        "form": (FORM, lambda form: (form,), 1),
        "lower": (FORM, lambda form: (form.lower(),), 1),
    },
    "lemma": {
        "lemma": (LEMMA, lambda lemma: (lemma,), 1),
        "stem": (LEMMA, lambda lemma: morphemes(lemma)[:1], 1),
        "ending": (LEMMA, lambda lemma: morphemes(lemma)[1:][-MAX_MORPHEMES:], MAX_MORPHEMES),
    },
    "prefix": {
        f"prefix{n}": (FORM, lambda form, n=n: (form[:n].lower(),), 1)  # type: ignore[misc]
        for n in (1, 2, 3)
    },
    "suffix": {
        f"suffix{n}": (FORM, lambda form, n=n: (form[-n:].lower(),), 1)  # type: ignore[misc]
        for n in (1, 2, 3, 4)
    },
    "shape": {"shape": (FORM, lambda form: (shape(form),), 1)},
    "upos": {"upos": (UPOS, lambda upos: (upos,), 1)},
    "xpos": {
        "xpos": (XPOS, lambda xpos: (xpos,), 1),
        "morpheme": (XPOS, lambda xpos: morphemes(xpos)[-MAX_MORPHEMES:], MAX_MORPHEMES),
        "last_morpheme": (XPOS, lambda xpos: morphemes(xpos)[-1:], 1),
    },
    "feats": {
        "feats": (FEATS, lambda feats: (feats,), 1),
        "feature": (FEATS, _parts, MAX_FEATS),
    },
}
GROUPS = {name: row for groups in FIELDS.values() for name, row in groups.items()}
# groups that a table has only where the values of their column are joined
JOINED_GROUPS = ("stem", "ending", "morpheme", "last_morpheme")
# fields whose rare symbols are unknown; tags are few, and known by the guidelines of a treebank
OPEN_FIELDS = ("form", "lemma", "prefix", "suffix", "shape")


def columns_of(fields: Iterable[str]) -> tuple[int, ...]:
    """Return the columns of CoNLL-U that fields are read from."""
    return tuple(sorted({row[0] for name in fields for row in FIELDS[name].values()}))


@dataclass(frozen=True)
class SymbolTable:
    """The symbols of either the lexical fields or the tag fields.

    Attributes:
        columns: the columns of CoNLL-U that make a type, those of other fields too.
        groups: group -> its symbols, in the order of their numbers; the unknown one is left out.
    """

    columns: tuple[int, ...]
    groups: Mapping[str, tuple[str, ...]]

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave out what is computed from the rest: it holds functions, which are not pickled."""
        return type(self), (self.columns, self.groups)

    @cached_property
    def _numbered(self) -> list[tuple[int, Symbols, dict[str, int], int]]:
        """Of each group: the place of its column in a type, its symbols' numbers, the unknown."""
        result = []
        unknown = ROOT + 1
        for name, symbols in self.groups.items():
            column, split, _ = GROUPS[name]
            ids = {symbol: number for number, symbol in enumerate(symbols, unknown + 1)}
            result.append((self.columns.index(column), split, ids, unknown))
            unknown += 1 + len(symbols)
        return result

    @cached_property
    def num_symbols(self) -> int:
        """The number of symbols, those without a group too."""
        return ROOT + 1 + sum(1 + len(symbols) for symbols in self.groups.values())

    @cached_property
    def width(self) -> int:
        """Symbols of a type at most."""
        return max(1, sum(GROUPS[name][2] for name in self.groups))

    @classmethod
    def build(
        cls,
        types: Iterable[tuple[Sequence[str], float]],
        fields: Iterable[str],
        min_count: int,
        columns: Sequence[int],
    ) -> Self:
        """Gather the symbols of some fields, names in `FIELDS`.

        Types are given with how often they occur, and iterated several times. Rarer symbols than
        `min_count` are left out of `OPEN_FIELDS`.
        """
        groups: dict[str, tuple[str, ...]] = {}
        for field in fields:
            for name, (column, split, _) in FIELDS[field].items():
                counts: defaultdict[str, float] = defaultdict(float)
                place = columns.index(column)
                if name in JOINED_GROUPS and not are_joined(types, place):
                    continue
                for values, count in types:
                    for symbol in split(values[place]):
                        counts[symbol] += count
                least = min_count if field in OPEN_FIELDS else 1
                groups[name] = tuple(
                    symbol
                    # the sort is stable: of equal counts, the one met first keeps its place
                    for symbol, count in sorted(counts.items(), key=itemgetter(1), reverse=True)
                    if count >= least
                )
        return cls(tuple(columns), groups)

    def row(self, values: Sequence[str]) -> list[int]:
        """Return the symbols of a type, [width], PAD at the end."""
        found: list[int] = []
        for place, split, ids, unknown in self._numbered:
            found += [ids.get(symbol, unknown) for symbol in split(values[place])]
        return found + [PAD] * (self.width - len(found))

    @cached_property
    def places(self) -> tuple[int, ...]:
        """The places, in a type, of the columns that symbols are made of."""
        return tuple(sorted({place for place, _, _, _ in self._numbered}))

    def counted(self, types: Iterable[tuple[Sequence[str], int]]) -> tuple[Ints, Ints]:
        """Return how often each symbol occurs in types, and the unknown symbol of its group.

        Both are [num_symbols]; the counts of PAD, NONE, ROOT and the unknown ones are 0.
        """
        counts = np.zeros(self.num_symbols, np.int32)
        unknowns = np.arange(self.num_symbols, dtype=np.int32)
        for _, _, ids, unknown in self._numbered:
            unknowns[list(ids.values())] = unknown
        for values, count in types:
            for place, split, ids, _ in self._numbered:
                for symbol in split(values[place]):
                    if symbol in ids:
                        counts[ids[symbol]] += count
        return counts, unknowns

    def ids_of(self, group: str) -> dict[str, int]:
        """Return the numbers of the symbols of a group."""
        return self._numbered[list(self.groups).index(group)][2]

    def range_of(self, group: str) -> tuple[int, int]:
        """Return the first symbol of a group, which is the unknown one, and the last."""
        first = self._numbered[list(self.groups).index(group)][3]
        return first, first + len(self.groups[group])

    def to_tables(self, prefix: str) -> dict[str, Sequence[str]]:
        """Return the groups as tables of a vocabulary, `prefix.group` -> symbols."""
        return {f"{prefix}.{name}": symbols for name, symbols in self.groups.items()}

    @classmethod
    def read(cls, vocabulary: Vocabulary, prefix: str) -> Self:
        """Return the table of which `to_tables` gave the groups.

        Raises:
            KeyError, TypeError, ValueError: the vocabulary holds no such table.
        """
        groups = {
            name.removeprefix(f"{prefix}."): vocabulary.texts(name)
            for name in vocabulary.tables
            if name.startswith(f"{prefix}.")
        }
        columns = tuple(vocabulary.extra["columns"])
        if not set(columns) <= {GROUPS[name][0] for name in GROUPS} or not columns:
            raise ValueError(f"columns are {columns}")
        table = cls(columns, groups)
        table._numbered  # noqa: B018 - looks for the column of each group
        return table


def are_joined(types: Iterable[tuple[Sequence[str], float]], place: int) -> bool:
    """Return whether the values at a place of types are joined of morphemes or their tags.

    Types are given with how often they occur.
    """
    joined = total = 0.0
    for values, count in types:
        joined += count * (len(morphemes(values[place])) > 1)
        total += count
    return joined > JOINED_SHARE * total


class Types:
    """The types met so far: their numbers, and the symbols of each.

    Args:
        lexical, tags: the symbols, of the same columns.
        empty_shares: of each column, the share of words of the treebank that have `_` there; None
            where it is not known.
        characters: those that forms are made of, where they are read; FORM is a column then.

    Attributes:
        empty: of each type the columns that are `_`, a bit for each place; all bits of NONE and
            ROOT are set.
    """

    def __init__(
        self,
        lexical: SymbolTable,
        tags: SymbolTable,
        empty_shares: Sequence[float] | None = None,
        characters: Characters | None = None,
    ) -> None:
        self.lexical, self.tags, self.empty_shares = lexical, tags, empty_shares
        self.characters = characters
        self._form_place = 0 if characters is None else lexical.columns.index(FORM)
        columns = lexical.columns
        # of one column alone, itemgetter would not make a tuple
        self._key_of = (
            itemgetter(*columns) if len(columns) > 1 else itemgetter(columns[0], columns[0])
        )
        self.clear()

    def clear(self) -> None:
        """Forget all types but NONE and ROOT."""
        self._ids: dict[tuple[str, ...], int] = {}
        self._forms = ["", ""]  # of all types, where characters are read
        self._rows = [
            [[symbol] + [PAD] * (table.width - 1) for symbol in (NONE, ROOT)]
            for table in (self.lexical, self.tags)
        ]
        self.empty = bytearray(b"\xff" * len(self._rows[0]))
        # the tags of a type are mostly those of another one
        self._tag_rows: dict[tuple[str, ...], list[int]] = {}

    def __len__(self) -> int:
        return len(self._rows[0])

    def texts(self) -> Iterable[tuple[str, ...]]:
        """Return the columns of the types behind ROOT, in the order of their numbers."""
        return self._ids.keys()

    def arrays(self, begin: int = 0) -> tuple[Ints, ...]:
        """Return the symbols of the types from `begin` on, each [num_types - begin, width].

        They are those of the lexical and of the tag fields and, where characters are read, those
        of the forms, as `characters.padded` gives them; NONE and ROOT are empty forms.
        """
        arrays = [np.asarray(rows[begin:], np.int32) for rows in self._rows]
        if self.characters is not None:
            symbols, lengths = self.characters.rows(self._forms[begin:])
            arrays.append(padded(symbols, lengths))
        return tuple(arrays)

    @property
    def known_characters(self) -> str | None:
        """Those that are known; None where none are read."""
        return None if self.characters is None else self.characters.known

    @property
    def num_characters(self) -> int:
        """The number of symbols of characters; 0 where none are read."""
        return 0 if self.characters is None else self.characters.num_symbols

    def as_new(self) -> Types:
        """Return types of the same symbols, none of which is met yet."""
        return Types(self.lexical, self.tags, self.empty_shares, self.characters)

    def add(self, key: tuple[str, ...]) -> int:
        """Number a type if it is new; `key` is its columns."""
        if key not in self._ids:
            self._ids[key] = len(self)
            tags = tuple([key[place] for place in self.tags.places])
            if tags not in self._tag_rows:
                self._tag_rows[tags] = self.tags.row(key)
            self.empty.append(sum(1 << i for i, value in enumerate(key) if value == "_"))
            self._rows[0].append(self.lexical.row(key))
            self._rows[1].append(self._tag_rows[tags])
            if self.characters is not None:
                self._forms.append(key[self._form_place])
        return self._ids[key]

    def numbers(self, rows: list[list[str]]) -> list[int]:
        """Return the types of words, of which the ten columns are given."""
        keys = list(map(self._key_of, rows))
        found = list(map(self._ids.get, keys))
        if None in found:
            found = list(map(self.add, keys))
        return found  # type: ignore[return-value]


@dataclass(frozen=True)
class TokenArrays:
    """Sentences in flat arrays, as `lstm` lays them out.

    Attributes:
        types: int32 [num_rows], the type of each token; NONE's row first.
        tokens: int32 [num_sentences], the row of each sentence's ROOT.
        lengths: int32 [num_sentences], words of each.
    """

    types: Ints
    tokens: Ints
    lengths: Ints

    def part(self, places: npt.NDArray[np.int64]) -> TokenArrays:
        """Return some of the sentences, in the same rows."""
        return TokenArrays(self.types, self.tokens[places], self.lengths[places])


def token_rows(tokens: Ints, lengths: Ints) -> npt.NDArray[np.int64]:
    """Return the rows of all tokens of some sentences, with their ROOTs, one after another."""
    sizes = lengths.astype(np.int64) + 1
    ends = np.cumsum(sizes)
    # of each sentence, how far its ROOT is from its place among the rows returned
    return np.repeat(tokens - ends + sizes, sizes) + np.arange(sizes.sum())


def encode(sentences: Iterable[Sentence], types: Types) -> TokenArrays:
    """Encode sentences, none of which is kept; `types` meets new ones on the way."""
    numbers = [NONE_TYPE]
    tokens: list[int] = []
    lengths: list[int] = []
    for sentence in sentences:
        tokens.append(len(numbers))
        lengths.append(len(sentence.rows))
        numbers.append(ROOT_TYPE)
        numbers += types.numbers(sentence.rows)
    columns = [np.asarray(column, np.int32) for column in (numbers, tokens, lengths)]
    return TokenArrays(columns[0], columns[1], columns[2])
