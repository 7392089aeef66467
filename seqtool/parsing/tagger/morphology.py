"""Morphology as a tagger knows it: the forms of words, the bundles of their tags, their lemmas.

The vector of a form is the sum of the embeddings of its lexical symbols (itself, its affixes, its
shape), beside what filters find in its characters (see `encoding.characters`).

A bundle is a combination of UPOS, XPOS and FEATS that was met in training. A word gets one of them
as a whole, so that its three tags agree.

The lemmas of forms that were met are in a table; all others are made by an edit script (Straka
2018, section 3.3):

    form     lemma   casing
    running  run     lower     in lower case: the last 4 characters go
    Feet     foot    lower     the last 3 go, "oot" comes
    McCains  McCain  keep      as it is written: the last one goes
    OBAMA    Obama   title     nothing goes; the first letter becomes a capital
    went     go      absolute  nothing stays: the lemma itself

The longest stretch that form and lemma share stays; what stands before it and after it is removed
and replaced. So one script serves all the words that are inflected alike.

Dimensions: U forms, D width of a form's vector, T words, B bundles, E edit scripts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property, lru_cache
from typing import Any, Literal, Self, get_args

import numpy as np

from seqtool.core import types
from seqtool.core.arrays import Floats, Ints
from seqtool.core.compiled import compiled
from seqtool.parsing.encoding.characters import Characters, Convolution
from seqtool.parsing.encoding.features import SymbolTable
from seqtool.treebank.sentence import FEATS, FORM, UPOS, XPOS

_ints = types.int32[::1]
_floats = types.float32[:, ::1]


# forms remembered; a text's own are few, but no text is to fill the memory
MAX_FORMS = 1 << 15

FIELDS = ("form", "prefix", "suffix", "shape")


def lexical_table(counts: Mapping[str, int], min_count: int) -> SymbolTable:
    """Return the symbols of forms: themselves, in lower case, their affixes and their shapes."""
    types = [((form,), count) for form, count in counts.items()]
    return SymbolTable.build(types, FIELDS, min_count, (FORM,))


class Forms:
    """Forms and their vectors, made when a form is first met.

    Args:
        symbols: of forms and their affixes.
        characters: those that are known.
        weights: the arrays of `network.TaggerNetwork`, by their names there.
    """

    def __init__(
        self, symbols: SymbolTable, characters: Characters, weights: Mapping[str, Floats]
    ) -> None:
        self.symbols, self.characters = symbols, characters
        self._lexical = weights["lexical.weight"]
        self._convolution = Convolution(weights)
        self._width = self._lexical.shape[1] + self._convolution.num_filters
        self.clear()

    def clear(self) -> None:
        """Forget all forms."""
        self._ids: dict[str, int] = {}
        self._vectors: Floats = np.empty((0, self._width), np.float32)

    def numbers(self, forms: Sequence[str]) -> Ints:
        """Return the numbers of forms; the next call may number them anew, if too many are met."""
        if len(self._ids) > MAX_FORMS:
            self.clear()
        new = list(dict.fromkeys(form for form in forms if form not in self._ids))
        if new:
            self._add(new)
        return np.asarray([self._ids[form] for form in forms], np.int32)

    def _add(self, forms: Sequence[str]) -> None:
        first, needed = len(self._ids), len(self._ids) + len(forms)
        for number, form in enumerate(forms, first):
            self._ids[form] = number
        if needed > len(self._vectors):
            grown = np.empty((needed + needed // 4, self._width), np.float32)
            grown[:first] = self._vectors[:first]
            self._vectors = grown
        rows = np.asarray([self.symbols.row((form,)) for form in forms], np.int32)
        split = self._lexical.shape[1]
        self._vectors[first:needed, :split] = self._lexical[rows].sum(1)
        self._vectors[first:needed, split:] = self._convolution.vectors(
            *self.characters.rows(forms)
        )

    def vectors(self, numbers: Ints) -> Floats:
        """Return the vectors of forms, [U, D]."""
        chosen: Floats = self._vectors[numbers]
        return chosen


COLUMNS = (UPOS, XPOS, FEATS)

Bundle = tuple[str, str, str]


_ints = types.int32[::1]
_table = types.int32[:, ::1]


@compiled(types.void(types.float32[:, ::1], _table, _ints, _table, _ints))
def best_bundles(scores, bundles, starts, kept, best):  # type: ignore[no-untyped-def]
    """Choose the bundle of the highest score for each word; the first one of equals.

    Args:
        scores: [T, sum of the columns' values], of one column after another.
        bundles: [B, columns], the value of each column.
        starts: [columns], where the scores of each column begin.
        kept: [T, columns], the value that is there, -1 where there is none.
        best: [T], is written. As few kept values as can be differ from those of the bundle.
    """
    num_columns = bundles.shape[1]
    for token in range(scores.shape[0]):
        highest = np.float32(-np.inf)
        fewest = num_columns + 1  # more than can differ, so that the first bundle is taken
        for bundle in range(bundles.shape[0]):
            score, differing = np.float32(0.0), 0
            for column in range(num_columns):
                value = bundles[bundle, column]
                score += scores[token, starts[column] + value]
                wanted = kept[token, column]
                if wanted >= 0 and wanted != value:
                    differing += 1
            # tags that are there come first: no score outweighs one more that differs
            if differing < fewest or (differing == fewest and score > highest):
                highest, fewest = score, differing
                best[token] = bundle


class Bundles:
    """The bundles in the order of their numbers, and the values of each column."""

    def __init__(self, names: Sequence[Bundle]) -> None:
        self.names = tuple(names)
        # of each column, value -> number, in the order in which bundles first have them
        self.values: tuple[dict[str, int], ...] = tuple({} for _ in COLUMNS)
        for bundle in self.names:
            for numbers, value in zip(self.values, bundle, strict=True):
                numbers.setdefault(value, len(numbers))
        self.ids = {bundle: number for number, bundle in enumerate(self.names)}

    @classmethod
    def build(cls, counts: Mapping[Bundle, int]) -> Self:
        """Return the bundles that occur, the most frequent first."""
        return cls(sorted(counts, key=lambda bundle: (-counts[bundle], bundle)))

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def table(self) -> Ints:
        """The value of each column in each bundle, [B, 3]."""
        rows = [
            [numbers[value] for numbers, value in zip(self.values, bundle, strict=True)]
            for bundle in self.names
        ]
        return np.asarray(rows, np.int32).reshape(-1, len(COLUMNS))

    @cached_property
    def starts(self) -> Ints:
        """Where the values of each column begin among those of all, [3]."""
        sizes = [len(numbers) for numbers in self.values]
        return np.cumsum([0, *sizes[:-1]], dtype=np.int32)

    @property
    def num_values(self) -> int:
        """Values of all columns together."""
        return sum(len(numbers) for numbers in self.values)

    @classmethod
    def of(cls, table: Sequence[Sequence[Any]]) -> Self:
        """Return the bundles of a vocabulary's table.

        Raises:
            ValueError: it is not that.
        """
        names = [(str(upos), str(xpos), str(feats)) for upos, xpos, feats in table]
        if not names or len(set(names)) < len(names) or not all(map(all, names)):
            raise ValueError("bundles are missing, or met twice")
        return cls(names)


def values_there(rows: Sequence[Sequence[str]], values: Sequence[Mapping[str, int]]) -> Ints:
    """Return the number of the value that each column of a word has already, [T, 3]; -1: none.

    A word has no UPOS if that is `_`. In XPOS and FEATS `_` is a value too: these are missing where
    no word of the sentence has any.
    """
    there = np.full((len(rows), len(COLUMNS)), -1, np.int32)
    for place, (column, numbers) in enumerate(zip(COLUMNS, values, strict=True)):
        found = [row[column] for row in rows]
        if found.count("_") == len(found):
            continue
        there[:, place] = [numbers.get(value, -1) for value in found]
        if column == UPOS:
            there[[value == "_" for value in found], place] = -1
    return there


Casing = Literal["lower", "keep", "title", "upper", "absolute"]
CASINGS: tuple[Casing, ...] = ("lower", "keep", "title", "upper")


@dataclass(frozen=True)
class EditScript:
    """One way of making a lemma.

    Attributes:
        casing: lower, title, upper: of the form in lower case, its result then written so; keep: of
            the form as it is written; absolute: the lemma is `before`.
        cut_before, before: how many characters go at the beginning, and what comes in their place.
        cut_after, after: the same at the end.
    """

    casing: Casing
    cut_before: int
    before: str
    cut_after: int
    after: str

    def apply(self, form: str) -> str | None:
        """Return the lemma of a form; None if the form is too short, or nothing would be left."""
        if self.casing == "absolute":
            return self.before
        text = form if self.casing == "keep" else form.lower()
        end = len(text) - self.cut_after
        # what is shared is one character at least
        if self.cut_before >= end:
            return None
        lemma = self.before + text[self.cut_before : end] + self.after
        if self.casing == "title":
            return lemma[0].upper() + lemma[1:]
        return lemma.upper() if self.casing == "upper" else lemma

    @classmethod
    def of(cls, entry: Sequence[Any]) -> Self:
        """Return the script of an entry of a vocabulary's table.

        Raises:
            ValueError: it is not that.
        """
        casing, cut_before, before, cut_after, after = entry
        if casing not in get_args(Casing) or min(int(cut_before), int(cut_after)) < 0:
            raise ValueError(f"no edit script: {entry!r}")
        return cls(casing, int(cut_before), str(before), int(cut_after), str(after))


@lru_cache(1 << 16)
def edit_script(form: str, lemma: str) -> EditScript:
    """Return the script that makes a lemma of a form: `edit_script(f, l).apply(f) == l`.

    Of several casings, the one by which the most stays, the first one of equals.
    """
    best, most = EditScript("absolute", 0, lemma, 0, ""), 0
    for casing in CASINGS:
        source, target = (form, lemma) if casing == "keep" else (form.lower(), lemma.lower())
        shared = SequenceMatcher(None, source, target, autojunk=False).find_longest_match()
        if shared.size <= most:
            continue
        begin, end = shared.b, shared.b + shared.size
        cut_after = len(source) - shared.a - shared.size
        script = EditScript(casing, shared.a, target[:begin], cut_after, target[end:])
        if script.apply(form) == lemma:
            best, most = script, shared.size
    return best


# UPOS -> form -> its lemmas with that tag, the commonest first
LemmaTable = Mapping[str, Mapping[str, Sequence[str]]]


class Lemmas:
    """What was learnt: scripts that are chosen from, by number, and the lemmas of forms met."""

    def __init__(self, scripts: Sequence[EditScript], table: LemmaTable) -> None:
        self.scripts, self.table = tuple(scripts), table
        self.ids = {script: number for number, script in enumerate(self.scripts)}

    @classmethod
    def build(cls, counts: Mapping[tuple[str, str, str], int], min_count: int) -> Self:
        """Return the lemmas of words (form, UPOS, lemma) by their counts, without rarer scripts."""
        scripts: Counter[EditScript] = Counter()
        table: dict[str, dict[str, list[str]]] = {}
        for word in sorted(counts, key=lambda word: (-counts[word], word)):
            form, upos, lemma = word
            scripts[edit_script(form, lemma)] += counts[word]
            table.setdefault(upos, {}).setdefault(form, []).append(lemma)
        common = [script for script, count in scripts.most_common() if count >= min_count]
        return cls(common or list(scripts), table)

    def met(self, form: str, upos: str) -> Sequence[str]:
        """Return the lemmas that a form with a tag had, or else those of its lower case."""
        forms = self.table.get(upos, {})
        return forms.get(form) or forms.get(form.lower()) or ()

    def choose(self, form: str, met: Sequence[str], scores_E: Floats) -> str:
        """Return the lemma of a form by the scores of edit scripts: one of `met`, if there are."""
        if met:
            scripts = [self.ids.get(edit_script(form, lemma)) for lemma in met]
            known = [place for place, number in enumerate(scripts) if number is not None]
            return met[max(known, key=lambda place: scores_E[scripts[place]], default=0)]
        ranked: list[int] = np.argsort(-scores_E, kind="stable").tolist()
        made = (self.scripts[number].apply(form) for number in ranked)
        return next((lemma for lemma in made if lemma is not None), form)

    @classmethod
    def of(cls, scripts: Sequence[Sequence[Any]], rows: Sequence[Sequence[Any]]) -> Self:
        """Return the lemmas of a vocabulary's tables: edit scripts; UPOS, form and lemmas.

        Raises:
            ValueError: they are not that.
        """
        if not scripts:
            raise ValueError("no edit scripts")
        table: dict[str, dict[str, Sequence[str]]] = {}
        for upos, form, *lemmas in rows:
            if not lemmas or not all(isinstance(text, str) and text for text in lemmas):
                raise ValueError(f"no lemma of {form!r}")
            table.setdefault(upos, {})[form] = lemmas
        return cls([EditScript.of(script) for script in scripts], table)
