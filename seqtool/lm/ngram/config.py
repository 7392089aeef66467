"""Settings of n-gram models."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from seqtool.core.config import DEEPEST, Config, Registry, refuse_unread, setting
from seqtool.core.errors import ConfigError, did_you_mean

# a smoothing makes probabilities and backoff weights out of counts; see `smoothing.Counted`
SMOOTHINGS: Registry[Any] = Registry(
    "smoothing",
    {
        "maximum-likelihood": "seqtool.lm.ngram.smoothing:maximum_likelihood",
        "add-k": "seqtool.lm.ngram.smoothing:add_k",
        "stupid-backoff": "seqtool.lm.ngram.smoothing:stupid_backoff",
        "witten-bell": "seqtool.lm.ngram.smoothing:witten_bell",
        "absolute-discounting": "seqtool.lm.ngram.smoothing:absolute_discounting",
        "kneser-ney": "seqtool.lm.ngram.smoothing:kneser_ney",
        "modified-kneser-ney": "seqtool.lm.ngram.smoothing:modified_kneser_ney",
    },
)

ENGINES = ("auto", "memory", "duckdb", "spark")  # what counts a text

LESS_MEMORY = (
    "take the disk with --engine duckdb, which needs 500 MB, choose a lower --order or give less "
    "text (pruning comes too late to help)"
)


@dataclass(frozen=True)
class WordsConfig(Config):
    """How a text is read for a model that counts."""

    vocab: str | None = setting(
        None, "file with a closed vocabulary, one word a line, or a table of Kaldi"
    )
    vocab_size: int | None = setting(
        None, "keep the most frequent words, <unk> and </s> counted", minimum=3
    )
    min_count: int = setting(1, "words rarer than this become <unk>", minimum=1)
    special_tokens: Literal["auto", "unknown", "skip", "refuse"] = setting(
        "auto",
        "what a literal <unk>, <s> or </s> in the text is: <unk> the unknown word and the others "
        "refused (auto), all of them unknown words, left out as KenLM's --skip_symbols does, or "
        "all refused",
    )
    lowercase: bool = setting(False, "lower-case the text")

    @property
    def files(self) -> tuple[str, ...]:
        """The files that are read beside the text."""
        return () if self.vocab is None else (self.vocab,)

    def check(self) -> None:
        """Refuse settings that contradict one another."""
        if self.vocab is not None and (self.vocab_size is not None or self.min_count > 1):
            raise ConfigError(
                "vocab gives all words, so vocab-size and min-count have nothing to choose",
                hint="leave --vocab-size and --min-count out",
            )


@dataclass(frozen=True)
class NgramConfig(WordsConfig):
    """How an n-gram model is estimated."""

    order: int = setting(5, "length of the longest n-grams", maximum=DEEPEST)
    smoothing: str = setting(
        "modified-kneser-ney",
        "how probability is kept for what was not seen: modified-kneser-ney, kneser-ney, "
        "absolute-discounting, witten-bell, add-k, stupid-backoff or maximum-likelihood",
    )
    prune: tuple[int, ...] = setting(
        (),
        "per order, leave out n-grams that occur at most this often; the last one goes on: 0 0 1",
    )
    prune_entropy: float = setting(
        0.0,
        "leave out n-grams without which the perplexity grows by less than this share of it",
        minimum=0,
        below=1,
    )
    discounts: Literal["paper", "kenlm"] = setting(
        "paper",
        "counts-of-counts as the paper has them, or with KenLM's slip at the end",
        when="smoothing is kneser-ney/modified-kneser-ney",
    )
    fallback: tuple[float, ...] = setting(
        (0.5, 1.0, 1.5),
        "discounts where the counts give none that are valid",
        when="smoothing is absolute-discounting/kneser-ney/modified-kneser-ney",
    )
    add: float = setting(1.0, "what add-k adds to each count", above=0, when="smoothing is add-k")
    backoff: float = setting(
        0.4, "the factor of stupid backoff", above=0, maximum=1, when="smoothing is stupid-backoff"
    )
    limit_vocab: str | None = setting(
        None,
        "file with the words that the model may have; all words are counted, then n-grams with "
        "others are left out, as with lmplz's --limit_vocab_file",
        when="smoothing is not add-k/stupid-backoff",
    )

    classes: str | None = setting(
        None, "file with a class of each word; the n-grams are of classes, then"
    )

    @property
    def files(self) -> tuple[str, ...]:
        """The files that are read beside the text."""
        own = (self.limit_vocab, self.classes)
        return (*super().files, *(path for path in own if path is not None))

    @property
    def thresholds(self) -> tuple[int, ...]:
        """Per order, the count up to which n-grams are left out: `prune`, the last one repeated."""
        thresholds = self.prune or (0,)
        return thresholds + thresholds[-1:] * (self.order - len(thresholds))

    def check(self) -> None:
        """Refuse settings that are out of range or contradict one another."""
        if self.order < 1:
            raise ConfigError(f"order is {self.order}, but must be at least 1", hint="try 3 or 5")
        if self.smoothing not in SMOOTHINGS:
            raise ConfigError(
                f"no smoothing is called {self.smoothing!r}",
                hint=did_you_mean(self.smoothing, SMOOTHINGS),
            )
        if self.vocab is not None and self.limit_vocab is not None:
            raise ConfigError(
                "vocab makes other words unknown, and limit-vocab leaves their n-grams out",
                hint="give --vocab or --limit-vocab",
            )
        if self.classes is not None and self.limit_vocab is not None:
            raise ConfigError(
                "limit-vocab leaves n-grams of words out, and those of classes have none",
                hint="give --vocab instead, or leave --classes out",
            )
        super().check()
        for field in fields(self):
            refuse_unread([(self, field.name)])
        shown = " ".join(map(str, self.prune))
        if len(self.prune) > self.order:
            raise ConfigError(
                f"prune is {shown}, which is more numbers than the order, {self.order}",
                hint="give at most one number per order",
            )
        if self.prune and self.prune[0] != 0:
            raise ConfigError(
                f"prune is {shown}, but single words cannot be pruned: it must begin with 0",
                hint="make rare words unknown with --min-count or --vocab-size",
            )
        if list(self.prune) != sorted(self.prune):
            raise ConfigError(
                f"prune is {shown}, but must not decrease",
                hint="an n-gram needs the shorter ones in it; give the same number or a larger",
            )
        single = self.smoothing in ("absolute-discounting", "kneser-ney")
        shown = " ".join(f"{discount:g}" for discount in self.fallback)
        if len(self.fallback) != 3 and not (single and len(self.fallback) == 1):
            wanted = "one discount, or three" if single else "three discounts"
            raise ConfigError(
                f"fallback is {shown or 'empty'}, but {self.smoothing} takes {wanted}",
                hint="try 0.5" if single else "try 0.5 1 1.5, for counts of 1, 2, and 3 or more",
            )
        for count, discount in enumerate(self.fallback, start=1):
            if not 0 <= discount <= count:
                raise ConfigError(
                    f"fallback is {shown}, but a count of {count} cannot lose {discount:g}",
                    hint=f"give a number from 0 to {count}",
                )
