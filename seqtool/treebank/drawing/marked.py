"""A sentence to be drawn: its words with what is wrong about them, safe to show anywhere."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from rich.cells import cell_len

from seqtool.core.errors import DataError
from seqtool.treebank.alignment import checked, universal_relation
from seqtool.treebank.misc import RANK, SCORE
from seqtool.treebank.sentence import DEPREL, FORM, UPOS, Sentence

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

# Unicode's classes of characters that are written, or make others be written, to the left
_LEFTWARD = frozenset({"R", "AL", "AN", "RLE", "RLO", "RLI"})

# keep a terminal from turning a line round that has words written from right to left
LEFT_TO_RIGHT = "\N{LEFT-TO-RIGHT MARK}"
_ISOLATE, _END = "\N{FIRST STRONG ISOLATE}", "\N{POP DIRECTIONAL ISOLATE}"
_WITHOUT_DIRECTION = dict.fromkeys(map(ord, (LEFT_TO_RIGHT, _ISOLATE, _END)))


class Surface(NamedTuple):
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
        gold: the gold (head, relation) of each word; None with nothing to compare with.
        surfaces: its multiword tokens.
        rank: of several trees of the sentence, which one it is, and its score; "" otherwise.
        source: whose analysis it is, of several; "" otherwise.
        differing: the words whose head or relation another analysis of the sentence has otherwise.
    """

    sentence: Sentence
    name: str
    text: str
    forms: list[str]
    tags: list[str]
    relations: list[str]
    heads: list[int]
    gold: list[tuple[int, str]] | None
    surfaces: list[Surface]
    rank: str = ""
    source: str = ""
    differing: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self.heads)

    def correction(self, word: int) -> tuple[int, str] | None:
        """Return the gold (head, relation) of a word whose own are wrong, else None."""
        if self.gold is None:
            return None
        head, relation = self.gold[word - 1]
        ours = universal_relation(self.relations[word - 1])
        if head == self.heads[word - 1] and universal_relation(relation) == ours:
            return None
        return head, relation

    def kind(self, word: int) -> str:
        """Return what is to be marked about the arc of a word: `wrong`, `differs` or nothing."""
        if self.gold is not None:
            return "" if self.correction(word) is None else "wrong"
        return "differs" if word in self.differing else ""

    def num_marked(self) -> int:
        """Return how many words are wrong, or differ where there is no gold annotation."""
        return sum(self.kind(word) != "" for word in range(1, len(self) + 1))

    @property
    def is_leftward(self) -> bool:
        """Whether it is written from right to left."""
        return is_leftward(self.text)


Group = list[MarkedSentence]  # the analyses of a sentence


def mark_together(
    analyses: Sequence[Sentence], names: Sequence[str], gold: Sentence | None = None
) -> Group:
    """Return several analyses of a sentence, each with its name, and where they differ.

    They differ in a word where heads are not all the same, or relations (subtypes apart).

    Raises:
        DataError: as of `mark`; or an analysis has other words than the first.
    """
    found = [mark(sentence, gold) for sentence in analyses]
    for sentence in analyses[1:]:
        _check_words(sentence, analyses[0], "analyses")
    arcs = [
        list(zip(each.heads, map(universal_relation, each.relations), strict=True))
        for each in found
    ]
    differing = frozenset(
        word for word, same in enumerate(zip(*arcs, strict=True), start=1) if len(set(same)) > 1
    )
    return [
        replace(each, source=printable(name), differing=differing)
        for each, name in zip(found, names, strict=True)
    ]


def mark(sentence: Sentence, gold: Sentence | None = None) -> MarkedSentence:
    """Return a sentence to be drawn, and what is wrong where the gold one is given.

    Raises:
        DataError: a sentence has no tree, or the gold one has other words.
    """
    checked(sentence)
    gold_tree = None
    if gold is not None:
        _check_words(sentence, checked(gold), "the gold annotation")
        gold_tree = list(zip(gold.heads(), map(printable, gold.column(DEPREL)), strict=True))
    rank, score = sentence.metadata.get(RANK), sentence.metadata.get(SCORE)
    return MarkedSentence(
        sentence=sentence,
        name=printable(sentence.sent_id),
        text=printable(sentence.text),
        forms=[printable(form) for form in sentence.column(FORM)],
        tags=[printable(tag) for tag in sentence.column(UPOS)],
        relations=[printable(relation) for relation in sentence.column(DEPREL)],
        heads=sentence.heads(),
        gold=gold_tree,
        surfaces=[
            Surface(first, last, printable(columns[FORM]))
            for first, last, columns in sentence.multiword_tokens()
        ],
        rank=printable(f"tree {rank}, score {score}") if rank and score else "",
    )


def _check_words(sentence: Sentence, other: Sentence, given: str) -> None:
    """Raise a DataError where another analysis has other words."""
    if sentence.column(FORM) != other.column(FORM):
        message = f"the words differ from those of {other.path or given}:{other.line}"
        raise fault_of(sentence, message, given, "words")


def fault_of(sentence: Sentence, message: str, given: str, what: str = "sentences") -> DataError:
    """Return the error that a sentence and what is `given` beside it do not go together."""
    hint = f"give {given} of the same {what}"
    return DataError(message, hint=hint, path=sentence.path or None, line=sentence.line)


def columns_of(sentence: Sentence) -> str:
    """Return a sentence as CoNLL-U that is safe to show."""
    lines = sentence.to_conllu().rstrip("\n").split("\n")
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in lines)


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

    Where none does, as in numbers and punctuation, return `otherwise`.
    """
    for character in text:
        direction = unicodedata.bidirectional(character)
        if direction in ("L", "R", "AL"):
            return direction != "L"
    return otherwise


def width_of(text: str) -> int:
    """Return the cells that a text takes in a terminal; marks of direction take none."""
    return cell_len(text.translate(_WITHOUT_DIRECTION))


def isolated(text: str) -> str:
    """Return a text that keeps its own direction and does not turn what stands beside it."""
    return f"{_ISOLATE}{text}{_END}" if has_leftward(text) else text
