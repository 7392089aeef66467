"""Splitting multiword tokens: a table learnt from a treebank, and rules for unseen ones.

    du        -> de le       by the table; case is kept: Du -> De le, DU -> DE LE
    mightn't  -> might n't   by a rule: the longest ending that was learnt, here tn't -> t n't

The rules are those of endings, which most languages' clitics are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

MAX_RULE_SHARE = 8  # characters of an ending that a rule may be about

Words = tuple[str, ...]


class MultiwordSplitter:
    """How tokens are split into words.

    Args:
        table: token -> its words; in lower case.
        rules: ending -> (what replaces it in the first word, the other words); in lower case.
    """

    def __init__(self, table: Mapping[str, Words], rules: Mapping[str, Words]) -> None:
        self.table, self.rules = dict(table), dict(rules)
        self._longest = max(map(len, rules), default=0)

    @classmethod
    def learn(cls, tokens: Iterable[tuple[str, Words]]) -> MultiwordSplitter:
        """Learn from the multiword tokens of a treebank and their words.

        A token is split as it was split most often. An ending becomes a rule if at least two
        tokens that end with it are split alike, and more of them than otherwise.
        """
        splits: dict[str, Counter[Words]] = defaultdict(Counter)
        for form, words in tokens:
            splits[form.lower()][tuple(word.lower() for word in words)] += 1
        table = {form: counts.most_common(1)[0][0] for form, counts in sorted(splits.items())}
        endings: dict[str, Counter[Words]] = defaultdict(Counter)
        for form, words in table.items():
            for size in range(1, min(len(form), MAX_RULE_SHARE + 1)):
                rule = _rule(form, words, size)
                # an ending that the split does not fit speaks against the others
                endings[form[-size:]][rule or ()] += 1
        rules = {}
        for ending, counts in endings.items():
            rule, count = counts.most_common(1)[0]
            if rule and count >= 2 and 2 * count > counts.total():
                rules[ending] = rule
        return cls(table, rules)

    def split(self, form: str) -> Words | None:
        """Return the words of a token; None if neither table nor rules know any."""
        folded = form.lower()
        words = self.table.get(folded)
        if words is None and len(folded) == len(form):
            for size in range(min(self._longest, len(folded) - 1), 0, -1):
                rule = self.rules.get(folded[-size:])
                if rule is not None:
                    words = (folded[:-size] + rule[0], *rule[1:])
                    break
        return None if words is None else _cased(form, words)


def _rule(form: str, words: Words, size: int) -> Words | None:
    """Return the rule by which an ending of so many characters gives the words, if any."""
    kept = form[:-size]
    if not words[0].startswith(kept) or not all(words[1:]):
        return None
    return (words[0][len(kept) :], *words[1:])


def _cased(form: str, words: Words) -> Words:
    """Give words the case of the token that they come from."""
    if "".join(words) == form.lower() and len(form) == len(form.lower()):
        cased, place = [], 0
        for word in words:
            cased.append(form[place : place + len(word)])
            place += len(word)
        return tuple(cased)
    if form.isupper() and sum(map(str.isalpha, form)) > 1:
        return tuple(word.upper() for word in words)
    # as far as the first word is written as the token is, so is its case
    first = words[0]
    same = 0
    while same < min(len(first), len(form)) and first[same] == form[same].lower():
        same += 1
    first = form[:same] + first[same:]
    return (first[:1].upper() + first[1:] if form[0].isupper() else first, *words[1:])
