"""Minimal pairs: a sentence of a grammar, and the same with one word in another form.

The grammar gives the first one a probability and the second one none, so which of the two is right
is known. Of each paradigm, half of the pairs have the one form in the good sentence (the singular,
the form after a vowel) and half the other, so that no form is right because it is frequent.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass

from grammar import Derivation, GrammarError, Pcfg, Word
from inside import InsideParser
from trees import tokens_of

COLUMNS = ("good", "bad", "phenomenon", "paradigm")
PER_FORM = 20  # pairs of each of the two forms of a paradigm
LONGEST = 14  # words of a sentence
MOST_DRAWN = 200_000  # sentences; that a paradigm is not full by then is a fault of the grammar


@dataclass(frozen=True)
class Change:
    """A word of a sentence in another form.

    Attributes:
        place: of the word.
        form: the wrong one.
        paradigm: what is tested.
        side: which of the two forms the sentence has; there are as many pairs of either.
    """

    place: int
    form: str
    paradigm: str
    side: bool


Changes = Callable[[Derivation], Iterator[Change]]


def minimal_pairs(
    grammar: Pcfg,
    parser: InsideParser,
    paradigms: dict[str, str],
    changes: Changes,
    *,
    seed: int,
    lowercase: bool,
    known: Set[str],
) -> list[tuple[str, str, str, str]]:
    """Draw sentences until all paradigms are full; rows of `COLUMNS`, by paradigm.

    `paradigms` gives the phenomenon of each paradigm, in the order of the rows. Sentences that are
    `known`, from the texts to train on, are left out.
    """
    source = random.Random(seed)
    found: dict[tuple[str, bool], list[tuple[str, str, str, str]]] = {
        (paradigm, side): [] for paradigm in paradigms for side in (False, True)
    }
    sentences = set(known)
    for _ in range(MOST_DRAWN):
        if all(len(rows) == PER_FORM for rows in found.values()):
            return [
                row
                for paradigm in paradigms
                for two in zip(found[paradigm, False], found[paradigm, True], strict=True)
                for row in two
            ]
        derivation = grammar.sample(source)
        if len(derivation.words) > LONGEST:
            continue
        tokens = tokens_of(derivation, lowercase)
        good = " ".join(tokens)
        for change in changes(derivation):
            rows = found[change.paradigm, change.side]
            if len(rows) == PER_FORM or good in sentences:
                continue
            wrong = [*tokens[: change.place], change.form, *tokens[change.place + 1 :]]
            if parser.probability(wrong) > 0:  # it is right, too
                continue
            sentences.add(good)
            rows.append((good, " ".join(wrong), paradigms[change.paradigm], change.paradigm))
    lacking = [name for (name, _), rows in found.items() if len(rows) < PER_FORM]
    raise GrammarError(f"the grammar has too few pairs of {', '.join(lacking)}")


def table(rows: list[tuple[str, str, str, str]]) -> str:
    """Rows as tab-separated values, with a line of their names."""
    return "".join("\t".join(row) + "\n" for row in (COLUMNS, *rows))


def _child(derivation: Derivation, head: int, *relations: str) -> int | None:
    """The first word of a relation to a head."""
    return next(
        (
            word
            for word, above in enumerate(derivation.heads)
            if above == head and derivation.relations[word] in relations
        ),
        None,
    )


# ---------------------------------------------------------------- English

ENGLISH = {
    "pronoun_verb": "subject_verb_agreement",
    "noun_verb": "subject_verb_agreement",
    "across_prepositional_phrase": "subject_verb_agreement",
    "across_relative_clause": "subject_verb_agreement",
    "question": "subject_verb_agreement",
    "there_is": "subject_verb_agreement",
    "demonstrative_noun": "determiner_noun_agreement",
    "demonstrative_adjective_noun": "determiner_noun_agreement",
    "article_noun": "article_form",
    "article_adjective": "article_form",
}
_NOUNS = ("NN", "NNS")
_ARTICLES = {"a": "an", "an": "a"}
_DEMONSTRATIVES = {"this": "these", "these": "this", "that": "those", "those": "that"}


class EnglishChanges:
    """Agreement of verbs, demonstratives and articles; a side is the singular, or `a`."""

    def __init__(self, grammar: Pcfg) -> None:
        finite: dict[tuple[str, str, bool], str] = {}
        for word in _words(grammar):
            if (is_singular := _is_singular(word)) is not None:
                finite[word.lemma, word.xpos[:3], is_singular] = word.form
                # the present has a tag for each number
                if word.xpos in ("VBZ", "VBP"):
                    finite[word.lemma, "VB", is_singular] = word.form
        self._finite = finite

    def __call__(self, derivation: Derivation) -> Iterator[Change]:
        for place, word in enumerate(derivation.words):
            is_singular = _is_singular(word)
            if is_singular is not None:
                tag = "VBD" if word.xpos == "VBD" else "VB"
                other = self._finite.get((word.lemma, tag, not is_singular))
                paradigm = self._agreement(derivation, place)
                if other is not None and other != word.form and paradigm is not None:
                    yield Change(place, other, paradigm, is_singular)
            elif word.upos == "DET":
                yield from self._determiner(derivation, place)

    def _agreement(self, derivation: Derivation, verb: int) -> str | None:
        """The paradigm of a finite verb by where its subject stands; None for any other place."""
        words, relations = derivation.words, derivation.relations
        is_helper = relations[verb].startswith(("aux", "cop"))
        predicate = derivation.heads[verb] if is_helper else verb
        subject = _child(derivation, predicate, "nsubj", "nsubj:pass")
        if subject is None:
            return None
        if _child(derivation, predicate, "expl") is not None:
            return "there_is" if words[subject].xpos in _NOUNS else None
        if words[subject].xpos == "PRP":
            return "pronoun_verb" if subject == verb - 1 else None
        if words[subject].xpos not in _NOUNS:
            return None
        if subject == verb - 1:
            return "noun_verb"
        if verb < subject:
            return "question"
        # a noun of the other number stands right before the verb
        before = words[verb - 1].xpos
        if before not in _NOUNS or before == words[subject].xpos:
            return None
        clause = _child(derivation, subject, "acl:relcl")
        if clause is not None and clause < verb:
            return "across_relative_clause"
        is_inside = derivation.heads[verb - 1] == subject and relations[verb - 1] == "nmod"
        return "across_prepositional_phrase" if is_inside else None

    @staticmethod
    def _determiner(derivation: Derivation, place: int) -> Iterator[Change]:
        words, form = derivation.words, derivation.words[place].form
        after = words[place + 1].xpos
        if form in _ARTICLES and after in ("NN", "JJ"):
            paradigm = "article_noun" if after == "NN" else "article_adjective"
            yield Change(place, _ARTICLES[form], paradigm, form == "a")
        if form in _DEMONSTRATIVES and "PronType=Dem" in words[place].feats:
            noun = derivation.heads[place]
            if words[noun].xpos not in _NOUNS or after not in (*_NOUNS, "JJ"):
                return
            paradigm = "demonstrative_noun" if noun == place + 1 else "demonstrative_adjective_noun"
            if noun == place + 1 or after == "JJ":
                is_singular = form in ("this", "that")
                yield Change(place, _DEMONSTRATIVES[form], paradigm, is_singular)


def _words(grammar: Pcfg) -> Iterator[Word]:
    for rules in grammar.rules.values():
        for rule in rules:
            if rule.word is not None:
                yield rule.word


def _is_singular(word: Word) -> bool | None:
    """Whether a finite verb is the singular, if it has forms for both; `am` is neither."""
    if word.glue or word.form == "am" or "VerbForm=Fin" not in word.feats:
        return None
    if word.form in ("was", "were"):
        return word.form == "was"
    return {"VBZ": True, "VBP": False}.get(word.xpos)


# ---------------------------------------------------------------- Korean

KOREAN = {
    "topic": "particle_form",
    "subject": "particle_form",
    "object": "particle_form",
    "with": "particle_form",
    "honorific_verb": "honorific_agreement",
}
# (after a vowel, after a consonant) of each paradigm of particles, and the tag of the particle
_PARTICLES = {
    "topic": ("는", "은", "JX"),
    "subject": ("가", "이", "JKS"),
    "object": ("를", "을", "JKO"),
    "with": ("와", "과", "JC"),
}


class KoreanChanges:
    """Particles by the final consonant, a side being the vowel's; verbs that respect a subject."""

    def __init__(self, grammar: Pcfg) -> None:
        self._particles = {
            (tag, form): (paradigm, other, is_open)
            for paradigm, (after_vowel, after_consonant, tag) in _PARTICLES.items()
            for form, other, is_open in (
                (after_vowel, after_consonant, True),
                (after_consonant, after_vowel, False),
            )
        }
        # a verb's plain and honorific forms stand at one place of two lists
        self._verbs: dict[tuple[str, str], tuple[str, bool]] = {}
        for left, rules in grammar.rules.items():
            honorific = grammar.rules.get(left.replace(",p]", ",h]"), [])
            if (
                not left.startswith("V[")
                or not left.endswith(",p]")
                or len(honorific) != len(rules)
            ):
                continue
            for plain, respectful in zip(rules, honorific, strict=True):
                assert plain.word is not None
                assert respectful.word is not None
                for one, other in ((plain.word, respectful.word), (respectful.word, plain.word)):
                    self._verbs[one.form, one.lemma] = other.form, one is respectful.word

    def __call__(self, derivation: Derivation) -> Iterator[Change]:
        for place, word in enumerate(derivation.words):
            noun, _, particle = word.lemma.partition("+")
            found = self._particles.get((word.xpos.rpartition("+")[2], particle))
            if found is not None and word.form == noun + particle:
                paradigm, other, is_open = found
                yield Change(place, noun + other, paradigm, is_open)
            verb = self._verbs.get((word.form, word.lemma))
            if verb is not None and _child(derivation, place, "nsubj") is not None:
                yield Change(place, verb[0], "honorific_verb", verb[1])
