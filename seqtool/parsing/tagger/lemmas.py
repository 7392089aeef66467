"""Lemmas: those of forms that were met, by a table, and the edit scripts for all others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from seqtool.core.arrays import Floats
from seqtool.parsing.tagger.scripts import EditScript, edit_script

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
        """Those of words as (form, UPOS, lemma), with how often each occurs.

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
        """The lemmas that a form with a tag had, or else that it had in lower case."""
        forms = self.table.get(upos, {})
        return forms.get(form) or forms.get(form.lower()) or ()

    def choose(self, form: str, met: Sequence[str], scores_E: Floats) -> str:
        """The lemma of a form by the scores of edit scripts.

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

    def to_json(self) -> dict[str, Any]:
        """Scripts and table as JSON can hold them."""
        return {
            "scripts": [script.to_json() for script in self.scripts],
            "table": {
                upos: {form: list(lemmas) for form, lemmas in forms.items()}
                for upos, forms in self.table.items()
            },
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """What `to_json` returned.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: it is not that.
        """
        scripts = [EditScript.from_json(script) for script in content["scripts"]]
        if not scripts:
            raise ValueError("no edit scripts")
        for forms in content["table"].values():
            for lemmas in forms.values():
                if not isinstance(lemmas, list) or not all(isinstance(x, str) for x in lemmas):
                    raise TypeError(f"no lemmas: {lemmas!r}")
        return cls(scripts, content["table"])
