"""Unknown words and tags: a model that never learnt those of a text answers badly.

The first words show whether a text is in another language than the treebank, or has tags of another
tagset: many more of them are unknown than were in the validation part, where hardly any tag is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from seqtool.parsing.encoding.features import GROUPS, SymbolTable
from seqtool.treebank.sentence import COLUMNS, FORM, Sentence

FIRST_WORDS = 2000  # of a text, which are looked at
LEAST_WORDS = 50  # below which a share says nothing
MOST_TAGS = 0.2  # of the words, whose tag is unknown
# of the words, for a model that was not validated: of a treebank of 150 sentences with long words,
# 87% are unknown in its own language
MOST_WORDS = 0.95
TAGS_SHOWN = 3
UNKNOWN_SHARE = "dev_unknown_share"  # its name among what a header says of the data
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

    def num_unknown(self, forms: Iterable[str]) -> tuple[int, int]:
        """Return how many forms with a letter are unknown, and of how many; (0, 0) of no forms."""
        if not (self.forms or self.lower):
            return 0, 0
        words = [form for form in forms if any(map(str.isalpha, form))]
        return sum(not self.knows(form) for form in words), len(words)

    def share_of(self, forms: Iterable[str]) -> float | None:
        """Return how many of the forms with a letter are unknown; None where it reads none."""
        num_unknown, num_words = self.num_unknown(forms)
        return num_unknown / max(1, num_words) if self.forms or self.lower else None


@dataclass(slots=True)
class UnknownWords:
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
        return self.num_seen >= FIRST_WORDS

    def merge(self, other: UnknownWords) -> None:
        """Count those of a later part of the text as well, unless there are enough words."""
        if self.is_enough:
            return
        self.num_seen += other.num_seen
        self.num_words += other.num_words
        self.num_unknown += other.num_unknown
        for column, tags in other.tags.items():
            self.tags.setdefault(column, Counter()).update(tags)

    def add(self, sentences: Iterable[Sentence], known: Known) -> None:
        """Look at the words of sentences, until there are enough."""
        for sentence in sentences:
            if self.is_enough:
                return
            num_unknown, num_words = known.num_unknown(sentence.column(FORM))
            tags = {
                column: Counter(
                    value
                    for value in sentence.column(column)
                    if value != "_" and not known.knows_tag(column, value)
                )
                for column in known.tags
            }
            self.merge(UnknownWords(len(sentence), num_words, num_unknown, tags))

    def warnings(self, known: Known, way_out: str = "") -> Iterator[str]:
        """Give what is to be said where the text is of another kind than the treebank.

        Args:
            known: what the model knows.
            way_out: what else helps where tags are unknown.
        """
        where = f" of the first {FIRST_WORDS:,}" if self.is_enough else ""
        most = MOST_WORDS if known.usual is None else (1 + known.usual) / 2
        if self.num_words >= LEAST_WORDS and self.num_unknown > most * self.num_words:
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
            some = ", ".join(tag for tag, _ in unknown.most_common(TAGS_SHOWN))
            is_empty = all(set(symbols) <= {"_"} for symbols in known.tags[column].values())
            yield (
                f"{num / self.num_seen:.0%} of the words{where} have {name} that the model does "
                f"not know, such as {some}: "
                + (
                    f"its treebank has no {name}, so leave the column empty (_)"
                    if is_empty
                    else f"tag them as its treebank is tagged{way_out}"
                )
            )
