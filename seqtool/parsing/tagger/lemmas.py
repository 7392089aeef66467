"""Lemmas: those of forms that were met, by a table, and the edit scripts for all others.

An edit script makes a lemma of a form (Straka 2018, section 3.3):

    form     lemma   casing
    running  run     lower     in lower case: the last 4 characters go
    Feet     foot    lower     the last 3 go, "oot" comes
    McCains  McCain  keep      as it is written: the last one goes
    OBAMA    Obama   title     nothing goes; the first letter becomes a capital
    went     go      absolute  nothing stays: the lemma itself

The longest stretch that form and lemma share stays; what stands before it and after it is removed
and replaced. So one script serves all the words that are inflected alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any, Literal, Self, get_args

import numpy as np

from seqtool.core.arrays import Floats

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
    """What was learnt of lemmas.

    Args:
        scripts: the edit scripts that are chosen from, in the order of their numbers.
        table: the lemmas of the forms that were met.
    """

    def __init__(self, scripts: Sequence[EditScript], table: LemmaTable) -> None:
        self.scripts, self.table = tuple(scripts), table
        self.ids = {script: number for number, script in enumerate(self.scripts)}

    @classmethod
    def build(cls, counts: Mapping[tuple[str, str, str], int], min_count: int) -> Self:
        """Return the lemmas of words.

        Args:
            counts: of such words.
            min_count: rarer scripts are left out.
        """
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
        """Return the lemma of a form by the scores of edit scripts.

        Args:
            form: any.
            met: the lemmas that are chosen from; any if there are none.
            scores_E: of each script, the higher the better.
        """
        if met:
            scripts = [self.ids.get(edit_script(form, lemma)) for lemma in met]
            known = [place for place, number in enumerate(scripts) if number is not None]
            return met[max(known, key=lambda place: scores_E[scripts[place]], default=0)]
        ranked: list[int] = np.argsort(-scores_E, kind="stable").tolist()
        made = (self.scripts[number].apply(form) for number in ranked)
        return next((lemma for lemma in made if lemma is not None), form)

    @classmethod
    def of(cls, scripts: Sequence[Sequence[Any]], rows: Sequence[Sequence[Any]]) -> Self:
        """Return the lemmas of a vocabulary's tables.

        Args:
            scripts: the edit scripts.
            rows: UPOS, form and lemmas.

        Raises:
            ValueError: they are not that.
        """
        if not scripts:
            raise ValueError("no edit scripts")
        table: dict[str, dict[str, Sequence[str]]] = {}
        for upos, form, *lemmas in rows:
            table.setdefault(upos, {})[form] = lemmas
        return cls([EditScript.of(script) for script in scripts], table)
