"""Probabilistic context-free grammars whose derivations are dependency trees."""

from __future__ import annotations

import itertools
import math
import random
from bisect import bisect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


class GrammarError(ValueError):
    """A grammar file that cannot be compiled."""


@dataclass(frozen=True)
class Word:
    """A terminal: one syntactic word. `glue` is "", "~" (no space before) or "+" (same token)."""

    form: str
    lemma: str
    upos: str
    xpos: str
    feats: str
    glue: str = ""


@dataclass(frozen=True)
class Child:
    """One symbol of a rule's body: its relation, and the index of the sibling it hangs on."""

    symbol: str
    relation: str = ""
    target: int = -1
    lifted: bool = False


@dataclass(frozen=True)
class Rule:
    """`left -> children` (or `left -> word`); `head` is an index into children, -1 if headless."""

    left: str
    children: tuple[Child, ...]
    head: int
    probability: float
    word: Word | None = None


@dataclass
class Pcfg:
    """Rules by left-hand side, probabilities summing to one for each; free of empty rules."""

    start: str
    rules: dict[str, list[Rule]]
    cumulative: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for left, rules in self.rules.items():
            self.cumulative[left] = list(itertools.accumulate(r.probability for r in rules))

    def vocabulary(self) -> set[str]:
        """All word forms that the grammar can emit."""
        return {r.word.form for rules in self.rules.values() for r in rules if r.word}

    def sample(self, random_source: random.Random) -> Derivation:
        """Draw one derivation from the start symbol."""
        derivation = Derivation([], [], [], 0.0)
        head, _ = self._expand(self.start, random_source, derivation)
        assert head is not None
        derivation.heads[head], derivation.relations[head] = -1, "root"
        return derivation

    def _expand(
        self, symbol: str, source: random.Random, out: Derivation
    ) -> tuple[int | None, list[tuple[int, str]]]:
        cumulative = self.cumulative[symbol]
        index = bisect(cumulative, source.random() * cumulative[-1])
        rule = self.rules[symbol][min(index, len(cumulative) - 1)]
        out.log_probability_nats += math.log(rule.probability)
        if rule.word is not None:
            out.words.append(rule.word)
            out.heads.append(-2)
            out.relations.append("")
            return len(out.words) - 1, []
        parts = [self._expand(child.symbol, source, out) for child in rule.children]
        head = parts[rule.head][0] if rule.head >= 0 else None
        left_open: list[tuple[int, str]] = []
        for child, (child_head, open_words) in zip(rule.children, parts, strict=True):
            if child.lifted:
                pending = open_words
            elif child.relation:
                assert child_head is not None
                pending = [(child_head, child.relation)]
            else:
                continue
            above = parts[child.target][0] if child.target >= 0 else head
            if above is None:
                left_open += pending
                continue
            for word, relation in pending:
                out.heads[word], out.relations[word] = above, relation
        return head, left_open


@dataclass
class Derivation:
    """A sampled tree: words, 0-based heads (-1 at the root), relations, and ln P."""

    words: list[Word]
    heads: list[int]
    relations: list[str]
    log_probability_nats: float

    def crossing(self) -> bool:
        """Whether the dependency tree is non-projective."""
        for word, head in enumerate(self.heads):
            for between in range(min(word, head) + 1, max(word, head)) if head >= 0 else ():
                ancestor = between
                while ancestor not in (-1, head):
                    ancestor = self.heads[ancestor]
                if ancestor != head:
                    return True
        return False


Paradigm = Callable[[str, str], Iterator[tuple[str, Word]]]
"""(class, lexicon entry) -> pairs of a symbol and a word."""


def make_word(form: str, lemma: str, upos: str, xpos: str, feats: str) -> Word:
    """A word whose form may carry the glue marks `~` and `+`."""
    glue = form[0] if form[0] in "~+" and len(form) > 1 else ""
    return Word(form[len(glue) :], lemma, upos, xpos, feats, glue)
