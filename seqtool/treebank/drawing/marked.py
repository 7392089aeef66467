"""A sentence to be drawn: its words with what is wrong about them, safe to show anywhere."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from seqtool.core.errors import DataError
from seqtool.treebank.alignment import checked, universal_relation
from seqtool.treebank.conllu import DEPREL, FORM, MISC, UPOS, Sentence

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

# Unicode's classes of characters that are written, or make others be written, to the left
_LEFTWARD = frozenset({"R", "AL", "AN", "RLE", "RLO", "RLI"})


@dataclass(frozen=True, slots=True)
class Surface:
    """A multiword token: words `first` to `last`, written as `form`."""

    first: int
    last: int
    form: str


@dataclass(frozen=True, slots=True)
class MarkedSentence:
    """A sentence of n words; words are numbered from 1, and lists begin with word 1.

    Attributes:
        sentence: as it was read.
        name: its sent_id, "" without one.
        text: how it is written.
        forms, tags, relations: of each word, safe to show.
        heads: of each word, 0 for the root.
        gold_heads, gold_relations: the gold ones; None with nothing to compare with.
        surfaces: its multiword tokens.
    """

    sentence: Sentence
    name: str
    text: str
    forms: list[str]
    tags: list[str]
    relations: list[str]
    heads: list[int]
    gold_heads: list[int] | None
    gold_relations: list[str] | None
    surfaces: list[Surface]

    def __len__(self) -> int:
        return len(self.heads)

    def correction(self, word: int) -> tuple[int, str] | None:
        """Return the gold (head, relation) of a word whose own are wrong, else None."""
        if self.gold_heads is None or self.gold_relations is None:
            return None
        head, relation = self.gold_heads[word - 1], self.gold_relations[word - 1]
        ours = universal_relation(self.relations[word - 1])
        if head == self.heads[word - 1] and universal_relation(relation) == ours:
            return None
        return head, relation

    def num_wrong(self) -> int:
        """Return how many words are wrong."""
        return sum(self.correction(word) is not None for word in range(1, len(self) + 1))


def mark(
    sentence: Sentence, gold: Sentence | None = None, *, compared: bool = False
) -> MarkedSentence:
    """Return a sentence to be drawn.

    Args:
        sentence: with a tree.
        gold: the same sentence with the tree to compare with.
        compared: there must be such a one.

    Raises:
        DataError: a sentence has no tree, or the gold one has other words.
    """
    checked(sentence)
    if gold is not None:
        if checked(gold).column(FORM) != sentence.column(FORM):
            raise DataError(
                f"the words differ from those of {gold.path or 'the gold sentence'}:{gold.line}",
                hint="give the gold annotation of the same words",
                path=sentence.path or None,
                line=sentence.line,
            )
    elif compared:
        raise DataError(
            "there is no gold sentence for this one",
            hint="give the gold annotation of the same sentences",
            path=sentence.path or None,
            line=sentence.line,
        )
    surfaces = _surfaces(sentence)
    return MarkedSentence(
        sentence=sentence,
        name=printable(_comment(sentence, "sent_id")),
        text=printable(_comment(sentence, "text") or _written(sentence, surfaces)),
        forms=[printable(form) for form in sentence.column(FORM)],
        tags=[printable(tag) for tag in sentence.column(UPOS)],
        relations=[printable(relation) for relation in sentence.column(DEPREL)],
        heads=sentence.heads(),
        gold_heads=None if gold is None else gold.heads(),
        gold_relations=None if gold is None else [printable(r) for r in gold.column(DEPREL)],
        surfaces=surfaces,
    )


def printable(text: str) -> str:
    """Return a text without characters that steer a terminal or that XML cannot hold."""
    if text.isprintable():
        return text
    return "".join(REPLACEMENT if _steers(c) else c for c in text)


def _steers(character: str) -> bool:
    # controls, surrogates, line and paragraph separators, and U+FFFE and U+FFFF of each plane
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or (
        ord(character) & 0xFFFE == 0xFFFE
    )


def has_leftward(text: str) -> bool:
    """Return whether a text has characters written from right to left."""
    return not text.isascii() and any(unicodedata.bidirectional(c) in _LEFTWARD for c in text)


def is_leftward(text: str, otherwise: bool = False) -> bool:
    """Return whether a text is written from right to left, by its first letter that says so.

    Args:
        text: of a sentence or a word.
        otherwise: what to return where no letter says so, as in numbers and punctuation.
    """
    for character in text:
        direction = unicodedata.bidirectional(character)
        if direction in ("L", "R", "AL"):
            return direction != "L"
    return otherwise


def _comment(sentence: Sentence, name: str) -> str:
    """Return the value of a comment such as `# text = A dog barks.`, "" without one."""
    for comment in sentence.comments:
        key, equals, value = comment[1:].partition("=")
        if equals and key.strip() == name:
            return value.strip()
    return ""


def _surfaces(sentence: Sentence) -> list[Surface]:
    surfaces = []
    for _, line in sentence.extras:
        columns = line.split("\t")
        first, dash, last = columns[0].partition("-")
        if dash:
            surfaces.append(Surface(int(first), int(last), printable(columns[FORM])))
    return surfaces


def _written(sentence: Sentence, surfaces: list[Surface]) -> str:
    """Return the text of a sentence whose comments do not have it."""
    miscs = {
        line.split("\t")[0].partition("-")[0]: line.split("\t")[MISC]
        for _, line in sentence.extras
        if "-" in line.partition("\t")[0]
    }
    by_first = {surface.first: surface for surface in surfaces}
    pieces = []
    word = 1
    while word <= len(sentence):
        surface = by_first.get(word)
        row = sentence.rows[word - 1]
        form, misc = (row[FORM], row[MISC]) if surface is None else (surface.form, miscs[str(word)])
        pieces.append(form)
        if "SpaceAfter=No" not in misc.split("|"):
            pieces.append(" ")
        word = word + 1 if surface is None else surface.last + 1
    return "".join(pieces).strip()
