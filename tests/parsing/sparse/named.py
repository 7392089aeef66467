"""Features of arcs and labels by name, as the papers list them: to judge the hashed ones by."""

from __future__ import annotations

from collections.abc import Sequence

from seqtool.parsing.sparse.arcs import ARC_TEMPLATES, BETWEEN_TEMPLATES, LABEL_TEMPLATES

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
