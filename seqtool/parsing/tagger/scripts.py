"""Edit scripts: how a lemma is made of a form (Straka 2018, section 3.3).

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

from dataclasses import astuple, dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Literal, Self, get_args

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
        """The lemma of a form; None if the form is too short, or nothing would be left."""
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

    def to_json(self) -> list[str | int]:
        """The script as JSON can hold it."""
        return list(astuple(self))

    @classmethod
    def from_json(cls, content: list[str | int]) -> Self:
        """What `to_json` returned.

        Raises:
            ValueError: it is not that.
        """
        casing, cut_before, before, cut_after, after = content
        if casing not in get_args(Casing) or min(int(cut_before), int(cut_after)) < 0:
            raise ValueError(f"no edit script: {content!r}")
        return cls(casing, int(cut_before), str(before), int(cut_after), str(after))  # type: ignore[arg-type]


@lru_cache(1 << 16)
def edit_script(form: str, lemma: str) -> EditScript:
    """The script that makes a lemma of a form: `edit_script(f, l).apply(f) == l` for any two.

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
