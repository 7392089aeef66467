"""English inflection: the paradigms that `grammar-en.txt` names."""

from __future__ import annotations

from collections.abc import Iterator

from grammar import Paradigm, Word, make_word

_VOWELS = "aeiou"
_AN = ("hour", "honest")
_A = ("uni", "use", "usu", "one", "eu")


def initial_sound(form: str) -> str:
    """`v` for a word that takes "an", `k` for one that takes "a"."""
    lower = form.lower()
    if lower.startswith(_AN):
        return "v"
    return "k" if lower.startswith(_A) or lower[0] not in _VOWELS else "v"


def plural(noun: str) -> str:
    """Regular plural."""
    if noun.endswith(("s", "x", "z", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in _VOWELS:
        return noun[:-1] + "ies"
    return noun + "s"


def _doubles(verb: str) -> bool:
    """One short vowel before one final consonant, in a verb of one syllable: stop, plan."""
    return (
        len(verb) > 2
        and verb[-1] not in "aeiouwxy"
        and verb[-2] in _VOWELS
        and verb[-3] not in _VOWELS
        and sum(letter in _VOWELS for letter in verb) == 1
    )


def past(verb: str) -> str:
    """Regular past tense."""
    if verb.endswith("e"):
        return verb + "d"
    if verb.endswith("y") and verb[-2] not in _VOWELS:
        return verb[:-1] + "ied"
    return verb + (verb[-1] if _doubles(verb) else "") + "ed"


def gerund(verb: str) -> str:
    """Present participle."""
    if verb.endswith("ie"):
        return verb[:-2] + "ying"
    if verb.endswith("e") and not verb.endswith("ee"):
        return verb[:-1] + "ing"
    return verb + (verb[-1] if _doubles(verb) else "") + "ing"


def noun(category: str, entry: str) -> Iterator[tuple[str, Word]]:
    """`dog` or `mouse/mice`: singular and plural."""
    singular, _, irregular = entry.partition("/")
    forms = {
        "s": (singular, "NN", "Number=Sing"),
        "p": (irregular or plural(singular), "NNS", "Number=Plur"),
    }
    for number, (form, tag, feats) in forms.items():
        sound = initial_sound(form)
        yield f"N[{category},{number},{sound}]", Word(form, singular, "NOUN", tag, feats)


def mass(category: str, entry: str) -> Iterator[tuple[str, Word]]:
    """A noun without plural."""
    yield (
        f"N[{category},s,{initial_sound(entry)}]",
        Word(entry, entry, "NOUN", "NN", "Number=Sing"),
    )


def verb(category: str, entry: str) -> Iterator[tuple[str, Word]]:
    """`walk`, `tell/told`, `eat/ate/eaten` or `travel/travelled/travelled/travelling`."""
    parts = entry.split("/")
    base = parts[0]
    preterite = parts[1] if len(parts) > 1 else past(base)
    participle = parts[2] if len(parts) > 2 else preterite
    finite = "Mood=Ind|{}VerbForm=Fin"
    forms = {
        "base": (base, "VB", "VerbForm=Inf"),
        "imp": (base, "VB", "Mood=Imp|VerbForm=Fin"),
        "pres": (base, "VBP", finite.format("Tense=Pres|")),
        "pres3": (plural(base), "VBZ", finite.format("Number=Sing|Person=3|Tense=Pres|")),
        "past": (preterite, "VBD", finite.format("Tense=Past|")),
        "part": (participle, "VBN", "Tense=Past|VerbForm=Part"),
        "pass": (participle, "VBN", "Tense=Past|VerbForm=Part|Voice=Pass"),
        "ing": (parts[3] if len(parts) > 3 else gerund(base), "VBG", "Tense=Pres|VerbForm=Part"),
    }
    for name, (form, tag, feats) in forms.items():
        yield f"V[{category},{name}]", Word(form, base, "VERB", tag, feats)


def adjective(category: str, entry: str) -> Iterator[tuple[str, Word]]:
    """An adjective in the positive degree."""
    yield f"A[{category},{initial_sound(entry)}]", Word(entry, entry, "ADJ", "JJ", "Degree=Pos")


def adverb(category: str, entry: str) -> Iterator[tuple[str, Word]]:
    """An adverb."""
    yield f"Adverb[{category}]", Word(entry, entry, "ADV", "RB", "_")


def name(category: str, entry: str) -> Iterator[tuple[str, Word]]:
    """A proper noun."""
    yield f"Proper[{category}]", Word(entry, entry, "PROPN", "NNP", "Number=Sing")


def closed(category: str, entry: str) -> Iterator[tuple[str, Word]]:
    """`form,lemma,UPOS,XPOS,FEATS` entries of a closed class, most frequent first."""
    form, lemma, upos, xpos, feats = entry.split(",")
    yield category, make_word(form, lemma, upos, xpos, feats)


PARADIGMS: dict[str, Paradigm] = {
    "noun": noun,
    "mass": mass,
    "verb": verb,
    "adjective": adjective,
    "adverb": adverb,
    "name": name,
    "closed": closed,
}
