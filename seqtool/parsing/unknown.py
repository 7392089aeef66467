"""Words and tags of a text that a model never learnt: it answers all the same, and badly.

A text in another language, or one whose tags are of another tagset than the treebank's, is told by
the first words that are not known: of words, many more than were unknown in the validation part; of
tags, hardly any is unknown there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from seqtool.parsing.encoding.features import GROUPS, SymbolTable
from seqtool.treebank.sentence import COLUMNS, FORM, Sentence

LOOKED_AT = 2000  # words at the beginning of a text
LEAST_WORDS = 50  # below which a share says nothing
MOST_TAGS = 0.2  # of the words, whose tag is unknown
# of the words, for a model that does not tell its usual share: of a treebank of 150 sentences with
# long words, 87% are unknown in its own language
OLD_SHARE = 0.95
SHOWN = 3  # unknown tags that are named
SHARE = "dev_unknown_share"  # its name among what a header tells of the data
WHOLE, LOWER = "form", "lower"  # groups of symbols that are forms, the second ones in lower case
TAG_GROUPS = ("upos", "xpos", "morpheme", "feats", "feature")  # those that are tags, or parts


@dataclass(frozen=True)
class Known:
    """What a model knows of the words that it reads.

    Attributes:
        forms: as they are written.
        lower: in lower case; where both are empty, it reads no forms.
        tags: of each column of tags that it reads, the groups of symbols that are made of it.
        usual: the share of the words of its validation part that it does not know, if it says so.
    """

    forms: Collection[str]
    lower: Collection[str]
    tags: Mapping[int, Mapping[str, Collection[str]]] = field(default_factory=dict)
    usual: float | None = None

    @classmethod
    def of(cls, tables: Iterable[SymbolTable], usual: float | None) -> Known:
        """Return what the symbols of a model tell."""
        groups = {name: table.ids_of(name) for table in tables for name in table.groups}
        tags: dict[int, dict[str, Collection[str]]] = {}
        for name in TAG_GROUPS:
            if name in groups:
                tags.setdefault(GROUPS[name][0], {})[name] = groups[name]
        return cls(groups.get(WHOLE, ()), groups.get(LOWER, ()), tags, usual)

    @property
    def without_tags(self) -> Known:
        """What it knows of words, where it does not read their tags."""
        return replace(self, tags={})

    @property
    def reads_forms(self) -> bool:
        """Whether it knows any."""
        return bool(self.forms or self.lower)

    def knows(self, form: str) -> bool:
        """Return whether a form is known."""
        return form in self.forms or form.lower() in self.lower

    def knows_tag(self, column: int, value: str) -> bool:
        """Return whether a tag, or a part of it that the model reads by itself, is known."""
        return any(
            symbol in known
            for name, known in self.tags[column].items()
            for symbol in GROUPS[name][1](value)
        )

    def is_empty(self, column: int) -> bool:
        """Return whether the treebank has nothing in a column of tags."""
        return all(set(known) <= {"_"} for known in self.tags[column].values())

    @property
    def most(self) -> float:
        """The share of unknown words above which a text is of another kind than the treebank."""
        return OLD_SHARE if self.usual is None else (1 + self.usual) / 2

    def share_of(self, forms: Iterable[str]) -> float | None:
        """Return how many of the forms with a letter are unknown; None where it reads none."""
        counted = [form for form in forms if _has_letter(form)]
        num = sum(not self.knows(form) for form in counted)
        return num / max(1, len(counted)) if self.reads_forms else None


def _has_letter(form: str) -> bool:
    return any(map(str.isalpha, form))


@dataclass(slots=True)
class Unknown:
    """The unknown words and tags at the beginning of a text.

    Attributes:
        num_seen: words so far, of any kind.
        num_words: those with a letter, where the model reads forms.
        num_unknown: how many of these are unknown.
        tags: the unknown tags, by column.
    """

    num_seen: int = 0
    num_words: int = 0
    num_unknown: int = 0
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
        for column, tags in other.tags.items():
            self.tags.setdefault(column, Counter()).update(tags)

    def add(self, sentences: Iterable[Sentence], known: Known) -> None:
        """Look at the words of sentences, until there have been enough."""
        for sentence in sentences:
            if self.is_enough:
                return
            self.num_seen += len(sentence)
            if known.reads_forms:
                forms = [form for form in sentence.column(FORM) if _has_letter(form)]
                self.num_words += len(forms)
                self.num_unknown += sum(not known.knows(form) for form in forms)
            for column in known.tags:
                self.tags.setdefault(column, Counter()).update(
                    value
                    for value in sentence.column(column)
                    if value != "_" and not known.knows_tag(column, value)
                )

    def warnings(self, known: Known, way_out: str = "") -> Iterator[str]:
        """Give what is to be said where the text is of another kind than the treebank.

        Args:
            known: what the model knows.
            way_out: what else helps where tags are unknown.
        """
        where = f" of the first {LOOKED_AT:,}" if self.is_enough else ""
        if self.num_words >= LEAST_WORDS and self.num_unknown > known.most * self.num_words:
            usual = "" if known.usual is None else f", {known.usual:.0%} where it was validated"
            yield (
                f"{self.num_unknown / self.num_words:.0%} of the words{where} are unknown to the "
                f"model{usual}: the text may be in another language or script than its treebank, "
                "or written in another way"
            )
        for column, unknown in self.tags.items():
            num, name = unknown.total(), COLUMNS[column]
            if self.num_seen < LEAST_WORDS or num <= MOST_TAGS * self.num_seen:
                continue
            some = ", ".join(tag for tag, _ in unknown.most_common(SHOWN))
            yield (
                f"{num / self.num_seen:.0%} of the words{where} have {name} that the model does "
                f"not know, such as {some}: "
                + (
                    f"its treebank has no {name}, so leave the column empty (_)"
                    if known.is_empty(column)
                    else f"tag them as its treebank is tagged{way_out}"
                )
            )
