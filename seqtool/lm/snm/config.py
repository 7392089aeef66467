"""Settings of sparse non-negative matrix models."""

from __future__ import annotations

from dataclasses import dataclass

from seqtool.core.config import setting
from seqtool.core.errors import ConfigError
from seqtool.lm.ngram.config import WordsConfig
from seqtool.lm.snm.features import Template, list_templates
from seqtool.training.config import seconds_of

LONGEST = 100  # words that a feature reaches back
MOST_TEMPLATES = 1000


@dataclass(frozen=True)
class SnmConfig(WordsConfig):
    """Which features a sparse non-negative matrix has, and how it is learnt."""

    order: int = setting(
        5, "the most words of a feature, its target counted", minimum=1, maximum=LONGEST
    )
    remote: int = setting(
        2, "the most words of a skip-gram before its gap; 0 for n-grams alone", minimum=0
    )
    gap: int = setting(
        3, "the most words that a skip-gram skips", minimum=0, maximum=LONGEST, when="remote > 0"
    )
    adjacent: int = setting(
        2, "the most words between the gap and the target", minimum=0, when="remote > 0"
    )
    prune: int = setting(0, "leave out features that occur at most this often", minimum=0)
    epochs: int = setting(2, "passes over the text; 0 leaves relative frequencies", minimum=0)
    learning_rate: float = setting(
        0.05, "learning rate of AdaGrad", above=0, when="epochs > 0 or time_limit is set"
    )
    time_limit: str | None = setting(
        None,
        "train for so long (90s, 15m, 1h30m) in place of --epochs; the learning rate falls to zero "
        "by then",
    )
    table_bits: int = setting(
        22,
        "room for 2 to the power of this many weights of metafeatures",
        minimum=8,
        maximum=30,
        when="epochs > 0 or time_limit is set",
    )

    @property
    def templates(self) -> list[Template]:
        """The features: n-grams, shortest first, then skip-grams."""
        return list_templates(self.order, self.remote, self.gap, self.adjacent)

    def check(self) -> None:
        """Refuse settings that contradict one another."""
        super().check()
        if self.time_limit is not None:
            seconds_of(self.time_limit)
        if self.remote and not self.gap:
            raise ConfigError(
                f"remote is {self.remote}, but gap is 0: skip-grams skip at least one word",
                hint="raise gap, or set remote to 0 for n-grams alone",
            )
        if self.remote and self.order < 2:
            raise ConfigError(
                "remote is set, but features of order 1 have no words",
                hint="raise order, or set remote to 0",
            )
        num = len(self.templates) if self.remote * self.gap < MOST_TEMPLATES else None
        if num is None or num > MOST_TEMPLATES:
            raise ConfigError(
                f"remote, gap and adjacent give more than {MOST_TEMPLATES:,} kinds of features",
                hint="lower one of them; remote 2, gap 3 and adjacent 2 give 18 kinds",
            )
