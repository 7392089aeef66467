"""Lemmas: those of forms that were met, in a table; all others are made by edit scripts.

A plain script (Straka 2018, section 3.3) keeps the longest stretch that form and lemma share. What
stands before it and after it is removed and replaced, so that one script serves all the words that
are inflected alike:

    form     lemma   casing
    running  run     lower     in lower case: the last 4 characters go
    Feet     foot    lower     the last 3 go, "oot" comes
    McCains  McCain  keep      as it is written: the last one goes
    OBAMA    Obama   title     nothing goes; the first letter becomes a capital
    went     go      absolute  nothing stays: the lemma itself

Where lemmas are joined morphemes, that makes one script for each ending. A copying script copies
what is alike there, too, character by character and, in a syllable that is changed, letter by
letter (in Unicode's decomposition, NFD):

    form    lemma    edits        * is the longest stretch of characters that stay
    고향은  고향+은  *++=         put +, copy a character: of 집을 and 책이, too
    한다    하+ㄴ다  (==-+++ㄴ)*  copy two letters of the first syllable, drop one, put +ㄴ

    edits   = copies a character   - drops it   +x puts x there   ( ) the same, letter by letter

A treebank has the kind of which it needs clearly fewer: on the training part of Korean-Kaist, 441
copying scripts do what 2,140 plain ones do; 337 copying and 274 plain ones on French-Sequoia's.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import groupby
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np

from seqtool.core.arrays import Floats

Casing = Literal["lower", "keep", "title", "upper", "absolute"]
CASINGS: tuple[Casing, ...] = ("lower", "keep", "title", "upper")
MAX_COPIED = 64  # characters; longer words have plain scripts, as the time is that of the square
SAMPLE = 3000  # words of a treebank by which it is decided which kind of script it has
FEWER = 0.5  # copying scripts must be fewer than this share of the plain ones


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
        return _in_case(lemma, self.casing)

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


class _Edit(NamedTuple):
    """One step: its kind, of `=-+(`; what it puts there; the steps inside of `(`."""

    kind: str
    text: str = ""
    inside: tuple[_Edit, ...] = ()

    @property
    def num_letters(self) -> int:
        """How many letters the steps inside read."""
        return sum(edit.kind != "+" for edit in self.inside)

    def __str__(self) -> str:
        return f"({''.join(map(str, self.inside))})" if self.kind == "(" else self.kind + self.text


_COPY, _DROP, _STAYS = _Edit("="), _Edit("-"), _Edit("*")


@lru_cache(1 << 14)
def _read_edits(text: str) -> tuple[_Edit, ...]:
    """Return the steps that a text stands for; ValueError if it is not that."""
    edits: list[_Edit] = []
    outer: list[_Edit] = []
    is_inside = False
    characters = iter(text)
    for kind in characters:
        if kind == "+":
            edits.append(_Edit("+", next(characters, "")))
        elif kind in "=-" or (kind == "*" and not is_inside):
            edits.append(_Edit(kind))
        elif kind == "(" and not is_inside:
            outer, edits, is_inside = edits, [], True
        elif kind == ")" and is_inside:
            edits, is_inside = [*outer, _Edit("(", "", tuple(edits))], False
        else:
            raise ValueError(f"no edits: {text!r}")
    if is_inside or edits.count(_STAYS) > 1 or _Edit("+") in edits:
        raise ValueError(f"no edits: {text!r}")
    return tuple(edits)


@dataclass(frozen=True)
class CopyScript:
    """One way of making a lemma, by which parts of what is changed are copied: see the module.

    Attributes:
        casing: as of an `EditScript`, but never absolute.
        edits: as text; without a `*`, they are of the whole form.
    """

    casing: Casing
    edits: str

    def apply(self, form: str) -> str | None:
        """Return the lemma of a form; None if the edits do not fit it, or nothing would be left."""
        text = form if self.casing == "keep" else form.lower()
        edits = _read_edits(self.edits)
        place = edits.index(_STAYS) if _STAYS in edits else len(edits)
        before, after = edits[:place], edits[place + 1 :]
        # both from their end of the form inwards: how long it is does not matter
        begin, size = _reach(text, before), _reach(text[::-1], after[::-1])
        if begin is None or size is None:
            return None
        end = len(text) - size
        # what stays is one character at least
        if begin >= end if place < len(edits) else begin != end:
            return None
        lemma = _edited(text[:begin], before) + text[begin:end] + _edited(text[end:], after)
        return _in_case(lemma, self.casing) or None

    @classmethod
    def of(cls, entry: Sequence[Any]) -> Self:
        """Return the script of an entry of a vocabulary's table.

        Raises:
            ValueError: it is not that.
        """
        casing, edits = entry
        if casing not in CASINGS or not isinstance(edits, str):
            raise ValueError(f"no edit script: {entry!r}")
        _read_edits(edits)
        return cls(casing, edits)


Script = EditScript | CopyScript


def _letters(text: str) -> str:
    return unicodedata.normalize("NFD", text)


def _in_case(text: str, casing: Casing) -> str:
    """Return a text, made of one in lower case, as a casing has it."""
    if casing == "title":
        return text[:1].upper() + text[1:]
    return text.upper() if casing == "upper" else text


def _reach(text: str, edits: Sequence[_Edit]) -> int | None:
    """Return how many characters of a text, from the first on, edits read; None: they do not fit.

    Of `(` these are as many as have its letters.
    """
    place = 0
    for edit in edits:
        if edit.kind in "=-":
            place += 1
        letters = edit.num_letters
        while letters > 0 and place < len(text):
            letters -= len(_letters(text[place]))
            place += 1
        # a last syllable with more letters than the steps read does not fit either
        if letters or place > len(text):
            return None
    return place


def _edited(text: str, edits: Sequence[_Edit]) -> str:
    """Return what edits make of the text that they read."""
    result, place = "", 0
    for edit in edits:
        if edit.kind == "+":
            result += edit.text
        elif edit.kind == "(":
            end = place + (_reach(text[place:], [edit]) or 0)
            made = _edited(_letters(text[place:end]), edit.inside)
            result += unicodedata.normalize("NFC", made)
            place = end
        else:
            result += text[place] * (edit.kind == "=")
            place += 1
    return result


def _fewest_edits(source: str, target: str) -> list[_Edit]:
    """Return fewest steps that make a text of another; of several, those that copy last.

    In between two copies, what goes stands before what comes.
    """
    num, width = len(source), len(target) + 1
    costs = [list(range(width))]
    for i, character in enumerate(source, 1):
        above, row = costs[-1], [i]
        for j, wanted in enumerate(target):
            # to replace a character is to drop it and to put another: no step of its own, so two
            cost = 1 + min(above[j + 1], row[j])
            row.append(min(cost, above[j]) if character == wanted else cost)
        costs.append(row)
    edits: list[_Edit] = []
    i, j = num, width - 1
    while i or j:
        cost = costs[i][j]
        if i and j and source[i - 1] == target[j - 1] and cost == costs[i - 1][j - 1]:
            i, j = i - 1, j - 1
            edits.append(_COPY)
        elif j and cost == costs[i][j - 1] + 1:
            j -= 1
            edits.append(_Edit("+", target[j]))
        else:
            i -= 1
            edits.append(_DROP)
    edits.reverse()
    return [
        edit
        for is_copy, stretch in groupby(edits, _COPY.__eq__)
        for edit in (stretch if is_copy else sorted(stretch, key=lambda edit: edit.kind == "+"))
    ]


def _by_letters(source: str, edits: Sequence[_Edit]) -> list[_Edit]:
    """Return edits, with changes of characters as changes of their letters where some stay."""
    result: list[_Edit] = []
    place = 0
    for is_copy, group in groupby(edits, _COPY.__eq__):
        stretch = list(group)
        taken = sum(edit.kind != "+" for edit in stretch)
        if not is_copy:
            old = _letters(source[place : place + taken])
            inside = _fewest_edits(old, _letters("".join(edit.text for edit in stretch)))
            if _COPY in inside:
                stretch = [_Edit("(", "", tuple(inside))]
        result += stretch
        place += taken
    return result


def _longest_copy(edits: Sequence[_Edit]) -> tuple[int, int]:
    """Return where the longest stretch of copies begins, the first of equals, and its length."""
    best, begin = (0, 0), 0
    for is_copy, group in groupby(edits, _COPY.__eq__):
        size = len(list(group))
        if is_copy and size > best[1]:
            best = begin, size
        begin += size
    return best


@lru_cache(1 << 16)
def copy_script(form: str, lemma: str) -> Script:
    """Return the script that makes a lemma of a form, a copying one if anything stays.

    Of several casings, it is the one by which the most characters stay, the first one of equals.
    """
    best: Script = EditScript("absolute", 0, lemma, 0, "")
    most = -1
    if max(len(form), len(lemma)) > MAX_COPIED:
        return edit_script(form, lemma)
    for casing in CASINGS:
        source, target = (form, lemma) if casing == "keep" else (form.lower(), lemma.lower())
        if casing != "keep" and _in_case(target, casing) != lemma:
            continue
        edits = _fewest_edits(source, target)
        kept = edits.count(_COPY)
        if kept <= most:
            continue
        edits = _by_letters(source, edits)
        begin, size = _longest_copy(edits)
        if size:
            edits[begin : begin + size] = [_STAYS]
        script = CopyScript(casing, "".join(map(str, edits)))
        if any(edit.kind in "*(" for edit in edits) and script.apply(form) == lemma:
            best, most = script, kept
    return best


# UPOS -> form -> its lemmas with that tag, the commonest first
LemmaTable = Mapping[str, Mapping[str, Sequence[str]]]


class Lemmas:
    """What was learnt: scripts that are chosen from, by number, and the lemmas of forms met.

    Args:
        scripts: either kind; absolute ones are `EditScript`s in both.
        table: of the forms met.
    """

    def __init__(self, scripts: Sequence[Script], table: LemmaTable) -> None:
        self.scripts, self.table = tuple(scripts), table
        self.ids = {script: number for number, script in enumerate(self.scripts)}
        copies = any(isinstance(script, CopyScript) for script in self.scripts)
        self.script_of = copy_script if copies else edit_script

    @classmethod
    def build(cls, counts: Mapping[tuple[str, str, str], int], min_count: int) -> Self:
        """Return the lemmas of words (form, UPOS, lemma) by their counts, without rarer scripts."""
        words = sorted(counts, key=lambda word: (-counts[word], word))
        script_of = _kind_for(words)
        scripts: Counter[Script] = Counter()
        table: dict[str, dict[str, list[str]]] = {}
        for word in words:
            form, upos, lemma = word
            scripts[script_of(form, lemma)] += counts[word]
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
            scripts = [self.ids.get(self.script_of(form, lemma)) for lemma in met]
            known = [place for place, number in enumerate(scripts) if number is not None]
            # of scripts that are all unknown, the first lemma stands, which is the commonest
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
        kinds = {2: CopyScript}  # items of an entry -> its kind
        return cls([kinds.get(len(entry), EditScript).of(entry) for entry in scripts], table)


def _kind_for(words: Sequence[tuple[str, str, str]]) -> Callable[[str, str], Script]:
    """Return `copy_script` or `edit_script`, whichever makes clearly fewer scripts.

    Args:
        words: forms, UPOS and lemmas, of which as many as `SAMPLE` are looked at.
    """
    # words come by falling counts, so that steps through them meet rare ones as well as common ones
    sample = words[:: max(1, -(-len(words) // SAMPLE))]
    plain, copying = (
        len({script_of(form, lemma) for form, _, lemma in sample})
        for script_of in (edit_script, copy_script)
    )
    return copy_script if copying < FEWER * plain else edit_script
