"""Words and tags of a text that a model never learnt: it answers all the same, and badly.

A text in another language, or one whose tags are of another tagset than the treebank's, is told by
the first words that are not known: of words, many more than were unknown in the validation part; of
tags, hardly any is unknown there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from seqtool.parsing.encoding.features import GROUPS, WHOLE, SymbolTable
from seqtool.treebank.sentence import COLUMNS, FORM, Sentence

LOOKED_AT = 2000  # words at the beginning of a text
LEAST_WORDS = 50  # below which a share says nothing
MOST_TAGS = 0.2  # of the words, whose tag is unknown
OLD_SHARE = 0.8  # of the words that are unknown to a model that does not tell its usual share
SHOWN = 3  # unknown tags that are named
LOWER = "lower"  # the group of forms in lower case
SHARE = "dev_unknown_share"  # its name among what a header tells of the data


@dataclass(frozen=True)
class Known:
    """What a model knows of the words that it reads.

    Attributes:
        words: forms in lower case; None where it reads no forms.
        tags: of each column of tags that it reads, the values, or the parts of joined ones.
        usual: the share of the words of its validation part that it does not know, if it says so.
    """

    words: Collection[str] | None
    tags: Mapping[int, Collection[str]] = field(default_factory=dict)
    usual: float | None = None

    @classmethod
    def of(cls, tables: Iterable[SymbolTable], usual: float | None) -> Known:
        """Return what the symbols of a model tell."""
        groups = {name: set(found) for table in tables for name, found in table.groups.items()}
        tags: dict[int, set[str]] = {}
        for name, symbols in groups.items():
            column = GROUPS[name][0]
            if column in WHOLE and column != FORM and name in _TAG_GROUPS:
                tags.setdefault(column, set()).update(symbols)
        return cls(groups.get(LOWER), tags, usual)

    def knows(self, column: int, value: str) -> bool:
        """Return whether a tag, or a part of it, is known."""
        known = self.tags[column]
        return value in known or any(
            symbol in known
            for name in _TAG_GROUPS
            if GROUPS[name][0] == column
            for symbol in GROUPS[name][1](value)
        )

    @property
    def most(self) -> float:
        """The share of unknown words from which on a text is another one than the treebank's."""
        return OLD_SHARE if self.usual is None else (1 + self.usual) / 2


# groups of symbols that are tags, or parts of tags; features of lemmas are none
_TAG_GROUPS = ("upos", "xpos", "morpheme", "feats", "feature")


def unknown_share(forms: Iterable[str], words: Collection[str]) -> float:
    """Return how many of the forms with a letter are unknown, as a share; 0 of none."""
    counted = [form for form in forms if _has_letter(form)]
    return sum(form.lower() not in words for form in counted) / max(1, len(counted))


def _has_letter(form: str) -> bool:
    return any(map(str.isalpha, form))


@dataclass(slots=True)
class Unknown:
    """The unknown words and tags at the beginning of a text.

    Attributes:
        num_seen: words so far, of any kind.
        num_words: those with a letter.
        num_unknown: how many of these are unknown.
        num_tagged: words that have a tag, by column.
        tags: the unknown tags, by column.
    """

    num_seen: int = 0
    num_words: int = 0
    num_unknown: int = 0
    num_tagged: Counter[int] = field(default_factory=Counter)
    tags: dict[int, Counter[str]] = field(default_factory=dict)

    @property
    def is_enough(self) -> bool:
        """Whether enough words were looked at."""
        return self.num_seen >= LOOKED_AT

    def merge(self, other: Unknown) -> None:
        """Count what was seen later in the text as well, unless there has been enough."""
        if self.is_enough:
            return
        self.num_seen += other.num_seen
        self.num_words += other.num_words
        self.num_unknown += other.num_unknown
        self.num_tagged += other.num_tagged
        for column, tags in other.tags.items():
            self.tags.setdefault(column, Counter()).update(tags)

    def add(self, sentences: Iterable[Sentence], known: Known) -> None:
        """Look at the words of sentences, until there have been enough."""
        for sentence in sentences:
            if self.is_enough:
                return
            self.num_seen += len(sentence)
            forms = [form for form in sentence.column(FORM) if _has_letter(form)]
            if known.words is not None:
                self.num_words += len(forms)
                self.num_unknown += sum(form.lower() not in known.words for form in forms)
            for column in known.tags:
                found = [value for value in sentence.column(column) if value != "_"]
                self.num_tagged[column] += len(found)
                self.tags.setdefault(column, Counter()).update(
                    value for value in found if not known.knows(column, value)
                )

    def warnings(self, known: Known) -> Iterator[str]:
        """Give what is to be said where the text is of another kind than the treebank."""
        if self.num_words >= LEAST_WORDS and self.num_unknown > known.most * self.num_words:
            usual = "" if known.usual is None else f" ({known.usual:.0%} where it was validated)"
            yield (
                f"{self.num_unknown / self.num_words:.0%} of the words are unknown to the model"
                f"{usual}: they are in another language or script than its treebank, or written "
                "in another way"
            )
        for column, unknown in self.tags.items():
            num, total = self.num_tagged[column], unknown.total()
            if num >= LEAST_WORDS and total > MOST_TAGS * num:
                some = ", ".join(tag for tag, _ in unknown.most_common(SHOWN))
                yield (
                    f"{total / num:.0%} of the words have {COLUMNS[column]} that the model does "
                    f"not know, such as {some}: tag them as its treebank is tagged"
                )
