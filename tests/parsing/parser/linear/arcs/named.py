"""Features of arcs and labels by name, as the papers list them: to judge the hashed ones by."""

from __future__ import annotations

from collections.abc import Sequence

from seqtool.parsing.parser.linear.arcs.templates import (
    ARC_TEMPLATES,
    BETWEEN_TEMPLATES,
    GRAND_TEMPLATES,
    LABEL_TEMPLATES,
    PAIR_TEMPLATES,
    SIBLING_TEMPLATES,
)

Row = dict[str, str]  # atom -> value
Feature = tuple[object, ...]
NOTHING: Row = {}


def words_of(forms: Sequence[str], tags: Sequence[str]) -> list[Row]:
    """ROOT and the words of a sentence."""
    words = [
        {"form": form.lower(), "tag": tag, "suffix": form[-3:].lower()}
        for form, tag in zip(forms, tags, strict=True)
    ]
    return [dict.fromkeys(("form", "tag", "suffix"), "ROOT"), *words]


def bucket(head: int, word: int) -> str:
    """Direction and length of an arc."""
    length = abs(head - word)
    size = str(length) if length <= 5 else "6 to 10" if length <= 10 else "more"
    return ("right " if word > head else "left ") + size


def instances(templates: Sequence[str], at: dict[str, Row], where: str) -> list[Feature]:
    """Each template of known atoms, without and with the distance."""
    found: list[Feature] = []
    for text in templates:
        parts = [part.partition(".")[::2] for part in text.split()]
        if all(atom in ("form", "tag", "suffix") for _, atom in parts):
            values = tuple(at[address].get(atom, "nothing") for address, atom in parts)
            found += [(text, *values), (text, *values, where)]
    return found


def beside(words: list[Row], head: int, word: int) -> dict[str, Row]:
    padded = [NOTHING, *words, NOTHING]
    return {
        name + change: padded[1 + place + int(change or 0)]
        for name, place in (("h", head), ("d", word))
        for change in ("", "-1", "+1")
    }


def arc(words: list[Row], head: int, word: int) -> list[Feature]:
    """The features of an arc."""
    at, where = beside(words, head, word), bucket(head, word)
    found = instances(ARC_TEMPLATES, at, where)
    step = 1 if word > head else -1  # outwards from the head; each tag once
    for tag in dict.fromkeys(words[i]["tag"] for i in range(head + step, word, step)):
        found += instances(BETWEEN_TEMPLATES, {**at, "b": {"tag": tag}}, where)
    return found


def siblings(words: list[Row], head: int, sibling: int, word: int) -> list[Feature]:
    """The features of a dependent and its sibling, 0 for none, under a head that is a word."""
    other = words[sibling] if sibling else NOTHING
    at, where = {"h": words[head], "s": other, "d": words[word]}, bucket(sibling or head, word)
    side = "right" if word > head else "left"
    return instances(PAIR_TEMPLATES, at, where) + instances(SIBLING_TEMPLATES, at, side)[1::2]


def grands(words: list[Row], grand: int, head: int, word: int) -> list[Feature]:
    """The features of a word, its head, which is a word, and the head's head."""
    at = {"g": words[grand], "h": words[head], "d": words[word]}
    turns = " ".join(
        "right" if end > begin else "left" for begin, end in ((grand, head), (head, word))
    )
    return instances(GRAND_TEMPLATES, at, turns)[1::2]


def sibling_of(heads: Sequence[int], word: int) -> int:
    """The next dependent of a word's head, between the two; 0 where there is none."""
    head = heads[word - 1]
    inner = [i for i in range(min(head, word) + 1, max(head, word)) if heads[i - 1] == head]
    return 0 if not inner else inner[-1] if word > head else inner[0]


def parts(words: list[Row], heads: Sequence[int], word: int) -> list[Feature]:
    """The features of second order of a word in a tree."""
    head = heads[word - 1]
    if not head:
        return []
    of_siblings = siblings(words, head, sibling_of(heads, word), word)
    return of_siblings + grands(words, heads[head - 1], head, word)


def label(words: list[Row], heads: Sequence[int], word: int) -> list[Feature]:
    """The features of the label of a word in a tree."""
    head = heads[word - 1]
    children = [child for child, parent in enumerate(heads, 1) if parent == word]
    siblings = [child for child, parent in enumerate(heads, 1) if parent == head]
    inner = [c for c in siblings if min(head, word) < c < max(head, word)]
    nearest = (max(inner) if word > head else min(inner)) if inner else None
    at = {
        **beside(words, head, word),
        "dl": words[children[0]] if children and children[0] < word else NOTHING,
        "dr": words[children[-1]] if children and children[-1] > word else NOTHING,
        "s": words[nearest] if nearest else NOTHING,
        "g": words[heads[head - 1]] if head else NOTHING,
    }
    where = "right" if word > head else "left"
    return instances(LABEL_TEMPLATES, at, where)
