"""Minimal pairs: does a model find the good sentence of two likelier than the bad one?

    good      the boxes by the door are open .
    bad       the boxes by the door is open .
    region                          ^^^        the words in which they differ

Both sentences are read from the beginning of a text. They are compared by the probability of the
whole sentence, its end included (Marvin & Linzen 2018; Warstadt et al. 2020, BLiMP), or by that of
the region alone, after what stands before it: how surprising the wrong form is when it is met. The
region are the words outside the longest common beginning and the longest common end. Where one
sentence only has words more than the other, the word behind them belongs to the region of both, or
the end of the sentence does.

A pair is right where the good sentence is likelier, and a tie where the two are equally likely, as
when the model reads both as the same units, or when both have the same words, as a few pairs of
BLiMP do. The accuracy is the share of pairs that are right; ties are none of these. Its interval is
Wilson's at 95% (Wilson 1927), which holds for few pairs and near 0 and 1, too. The mean over
paradigms is that of their accuracies, each of equal weight.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, get_args

import numpy as np

from seqtool.core.errors import ConfigError, DataError, did_you_mean
from seqtool.core.one_line import OneLine
from seqtool.core.reading import (
    IN_MEMORY,
    JSON_LINES,
    STDIN,
    LineBlocks,
    find_files,
    json_records,
    read_blocks,
    unpacked_name,
)
from seqtool.core.units import LN_2
from seqtool.core.vocabulary import BOS, EOS, UNK_ID
from seqtool.lm.conditions import condition_means
from seqtool.lm.model import LanguageModel
from seqtool.lm.protocol import refuse_other_than_model
from seqtool.lm.tables import parse_table
from seqtool.lm.words import score_words
from seqtool.text.tokenizers import Tokenizer, WordTokenizer, word_spans

Score = Literal["sentence", "region"]
Outcome = Literal["right", "wrong", "tie"]

# field -> what its column is called; the second names are BLiMP's
NAMES = {
    "good": ("good", "sentence_good"),
    "bad": ("bad", "sentence_bad"),
    "phenomenon": ("phenomenon", "linguistics_term"),
    "paradigm": ("paradigm", "UID"),
}
REQUIRED = ("good", "bad")
_NO_LINE = re.compile("[\r\n\ud800-\udfff]").search  # line ends, halves of surrogate pairs
Z_95 = 1.959963984540054  # of a normal distribution, 95% lies within so many standard deviations
TIE_NATS = 1e-6  # less is the rounding of sums
CHUNK = 500  # pairs that are scored together
K = TypeVar("K")
COLUMNS = (
    *("pair", "phenomenon", "paradigm", "model", "good", "bad"),
    *("log2_good", "log2_bad", "difference", "outcome", "unknown"),
)


@dataclass(frozen=True)
class MinimalPair(OneLine):
    """Two sentences that differ in what is tested, and what that is.

    Attributes:
        good: the right one.
        bad: the wrong one.
        phenomenon: of grammar, such as agreement; "" for none.
        paradigm: a kind of sentence that shows the phenomenon; "" for none.
        path: the file that it was read from.
        line: the 1-based line of that file.
        columns: all columns of that line.
    """

    shown = ("good", "bad", "phenomenon", "paradigm")

    good: str
    bad: str
    phenomenon: str = ""
    paradigm: str = ""
    path: str | None = field(default=None, compare=False)
    line: int | None = field(default=None, compare=False)
    columns: Mapping[str, Any] = field(default_factory=dict, compare=False)


def check_columns(pairs: Iterable[MinimalPair], names: Sequence[str]) -> None:
    """Raise DataError where the line of a pair has no column of these names."""
    for pair in pairs:
        if missing := {*names} - {*pair.columns}:
            name, hint = min(missing), did_you_mean(min(missing), [*pair.columns])
            raise DataError(f"has no column {name!r}", hint=hint, path=pair.path, line=pair.line)


def read_pairs(inputs: str | Path | Sequence[str | Path]) -> list[MinimalPair]:
    """Read minimal pairs.

    A file is a table whose first line names its columns, tab-separated (.tsv) or comma-separated
    (.csv), or has a JSON object a line (.jsonl), as BLiMP's. `NAMES` are the columns or fields;
    others are passed over. Another file, or stdin, is what its first line looks like.

    Args:
        inputs: files, also packed, directories, or "-" for stdin.

    Raises:
        DataError: no such file, or a column or a sentence is missing; with the line.
    """
    pairs: list[MinimalPair] = []
    name = None
    for name in find_files([inputs] if isinstance(inputs, str | Path) else inputs):
        path = "<stdin>" if name == STDIN else name
        pairs += [_pair(fields, path, line) for line, fields in _records(name, path)]
    if not pairs:
        raise DataError("there are no pairs", hint="give a line for each pair", path=name)
    return pairs


def _records(name: str, path: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield each record of a file with its 1-based line; `path` is for messages."""
    content = b"".join(read_blocks(name, as_written=True))
    if unpacked_name(name).endswith(JSON_LINES) or content.startswith(b"{"):
        yield from json_records(content, path)
        return
    table = parse_table(content.decode(), name)
    for line, row in zip(table.lines, table.rows, strict=True):
        yield line, dict(zip(table.names, row, strict=True))


def _pair(fields: Mapping[str, Any], path: str, line: int) -> MinimalPair:
    values: dict[str, str] = {}
    for part, names in NAMES.items():
        is_required = part in REQUIRED
        value = next((fields[name] for name in names if name in fields), None)
        text = "" if value is None and not is_required else value
        if isinstance(text, str):
            text = values[part] = text.strip()
        if not isinstance(text, str) or _NO_LINE(text) or (is_required and not text):
            columns = ", ".join([*fields][:8])
            hint = f"give both sentences, each on one line; the columns are: {columns}"
            what = f"{' or '.join(names)} is missing or empty, or is no line of text"
            raise DataError(what, hint=hint, path=path, line=line)
    return MinimalPair(**values, path=path, line=line, columns=fields)


def _scored_words(sentence: str, tokenizer: Tokenizer) -> list[str]:
    """Return the words of a sentence that have a score: `<s>` and `</s>` may have none."""
    words = [sentence[start:end] for start, end in word_spans(sentence)]
    if isinstance(tokenizer, WordTokenizer) and tokenizer.special_tokens == "skip":
        fold = str.lower if tokenizer.lowercase else str
        words = [word for word in words if fold(word) not in (BOS, EOS)]
    return words


def regions(good: Sequence[str], bad: Sequence[str]) -> tuple[slice, slice]:
    """Return where two sentences, given as their words, differ: see the head of this file.

    A region that goes beyond the words has the end of the sentence in it.

    >>> regions("the dogs bark .".split(), "the dogs barks .".split())
    (slice(2, 3, None), slice(2, 3, None))
    >>> regions("dogs bark .".split(), "dogs do bark .".split())
    (slice(1, 2, None), slice(1, 3, None))
    """
    shortest = min(len(good), len(bad))
    begin = 0
    while begin < shortest and good[begin] == bad[begin]:
        begin += 1
    num_after = 0
    while num_after < shortest - begin and good[-1 - num_after] == bad[-1 - num_after]:
        num_after += 1
    if begin == shortest - num_after:  # one of the two would be empty
        num_after -= 1
    return slice(begin, len(good) - num_after), slice(begin, len(bad) - num_after)


@dataclass(frozen=True)
class ScoredPair(OneLine):
    """A pair, and what a model makes of it.

    Attributes:
        pair: the pair.
        good: nats of the good sentence, or of its region.
        bad: nats of the bad one.
        unknown: words of the two regions that the model does not know.
        has_unknown: whether it does not know some word of the sentences, wherever it stands.
    """

    shown = ("pair.good", "pair.bad", "good", "bad", "outcome")

    pair: MinimalPair
    good: float
    bad: float
    unknown: tuple[str, ...] = ()
    has_unknown: bool = False

    @property
    def outcome(self) -> Outcome:
        """Whether the good one is likelier; a tie also where neither has any probability."""
        if self.good == self.bad or abs(self.good - self.bad) <= TIE_NATS:
            return "tie"
        return "right" if self.good > self.bad else "wrong"


@dataclass(frozen=True)
class Tally:
    """How many of some pairs are right, and how many are ties."""

    pairs: int
    right: int
    ties: int

    @classmethod
    def of(cls, items: Iterable[ScoredPair]) -> Self:
        """Count some pairs."""
        outcomes = [item.outcome for item in items]
        return cls(len(outcomes), outcomes.count("right"), outcomes.count("tie"))

    @property
    def accuracy(self) -> float:
        """The share of pairs that are right."""
        return self.right / self.pairs

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's interval of the accuracy at 95%."""
        return wilson(self.right, self.pairs)

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` prints of it."""
        wrong = self.pairs - self.right - self.ties
        counts = {"pairs": self.pairs, "right": self.right, "wrong": wrong, "ties": self.ties}
        return counts | {"accuracy": self.accuracy, "interval": self.interval}


def wilson(right: int, num: int) -> tuple[float, float]:
    """Return Wilson's interval at 95% for a share of `right` of `num` (Wilson 1927).

    >>> low, high = wilson(37, 40)
    >>> print(f"{low:.3f} to {high:.3f}")
    0.801 to 0.974
    """
    share, z2 = right / num, Z_95**2
    centre = (share + z2 / (2 * num)) / (1 + z2 / num)
    half = Z_95 / (1 + z2 / num) * math.sqrt(share * (1 - share) / num + z2 / (4 * num**2))
    # at 0 and at 1 an end is exactly there, but for rounding
    return (
        max(0.0, centre - half) if right else 0.0,
        min(1.0, centre + half) if right < num else 1.0,
    )


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the p-value of McNemar's exact test, two-sided: the sign test on discordant pairs.

    >>> mcnemar(1, 5)  # 2 (1 + 6) / 2^6
    0.21875
    """
    num = only_first + only_second
    term = tail = 1  # of the binomial coefficients
    for k in range(min(only_first, only_second)):
        term = term * (num - k) // (k + 1)
        tail += term
    return min(1.0, 2 * tail / (1 << num))


@dataclass(frozen=True)
class PairsEvaluation(OneLine):
    """What a model makes of minimal pairs.

    Attributes:
        score: what is compared.
        scored: the pairs, in their order.
    """

    shown = ("score", "total.pairs", "total.accuracy", "total.ties")

    score: Score
    scored: Sequence[ScoredPair]

    @property
    def total(self) -> Tally:
        """All pairs together."""
        return Tally.of(self.scored)

    @property
    def phenomena(self) -> dict[str, Tally]:
        """The pairs of each phenomenon together, in the order of the file."""
        return _by(self.scored, lambda item: item.pair.phenomenon)

    @property
    def paradigms(self) -> dict[tuple[str, str], Tally]:
        """The pairs of each phenomenon and paradigm, in the order of the file."""
        return _by(self.scored, lambda item: (item.pair.phenomenon, item.pair.paradigm))

    @property
    def mean_accuracy(self) -> float:
        """The mean of the accuracies of the paradigms, each of equal weight."""
        accuracies = [tally.accuracy for tally in self.paradigms.values()]
        return math.fsum(accuracies) / len(accuracies)

    @property
    def num_unknown(self) -> int:
        """How many pairs have a word in their regions that the model does not know."""
        return sum(bool(item.unknown) for item in self.scored)

    @property
    def num_unknown_elsewhere(self) -> int:
        """How many other pairs have such a word in what is the same in both sentences."""
        return sum(item.has_unknown and not item.unknown for item in self.scored)

    def _html_rows(self) -> Iterator[dict[str, Any]]:
        for name, tally in (("all", self.total), *self.phenomena.items()):
            counts = {"pairs": tally.pairs, "accuracy": tally.accuracy, "ties": tally.ties}
            yield {"phenomenon": name, **counts}

    def against(self, first: PairsEvaluation) -> dict[str, Any]:
        """Return how many pairs only this model or only the first has right, and the p-value."""
        both = zip(self.scored, first.scored, strict=True)
        right = [(mine.outcome == "right", other.outcome == "right") for mine, other in both]
        here, there = right.count((True, False)), right.count((False, True))
        return {"only_this": here, "only_first": there, "p_value": mcnemar(here, there)}

    def condition_means(self, by: str, item: str) -> list[dict[str, Any]]:
        """Compare the conditions in a column by bits for the good sentence, paired by item."""
        check_columns([it.pair for it in self.scored], (by, item))
        rows: list[tuple[float, str, str]] = []
        for it in self.scored:
            bits = 0.0 if it.good == it.bad else (it.good - it.bad) / LN_2
            rows.append((bits, str(it.pair.columns[by]), str(it.pair.columns[item])))
        return condition_means(rows)

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` prints of a model."""
        return {
            **self.total.to_json(),
            "mean_over_paradigms": self.mean_accuracy,
            "pairs_that_differ_in_unknown_words": self.num_unknown,
            "pairs_with_unknown_words_elsewhere": self.num_unknown_elsewhere,
            "phenomena": [{"phenomenon": k, **v.to_json()} for k, v in self.phenomena.items()],
            "paradigms": [
                {"phenomenon": phenomenon, "paradigm": paradigm, **tally.to_json()}
                for (phenomenon, paradigm), tally in self.paradigms.items()
            ],
        }

    def rows(self, model: str) -> Iterator[tuple[Any, ...]]:
        """Yield a row of `COLUMNS` for each pair; probabilities are log2, of the model so named."""
        for number, item in enumerate(self.scored, start=1):
            pair, good, bad = item.pair, item.good / LN_2, item.bad / LN_2
            # neither has any probability: there is no difference to speak of
            difference = 0.0 if good == bad else good - bad
            yield (
                *(number, pair.phenomenon, pair.paradigm, model, pair.good, pair.bad),
                *(good, bad, difference, item.outcome, " ".join(item.unknown)),
            )


def _by(items: Iterable[ScoredPair], key: Callable[[ScoredPair], K]) -> dict[K, Tally]:
    groups: dict[K, list[ScoredPair]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return {name: Tally.of(group) for name, group in groups.items()}


def evaluate_pairs(
    model: LanguageModel,
    pairs: str | Path | Sequence[MinimalPair],
    *,
    score: Score = "sentence",
    on_progress: Callable[[int, int | None], None] = lambda done, total: None,
) -> PairsEvaluation:
    """Measure in how many minimal pairs a model finds the good sentence likelier.

    Args:
        model: any language model.
        pairs: what `read_pairs` gives, or a file of pairs.
        score: what is compared: the whole "sentence" or the "region" that differs.
        on_progress: called with pairs done and in all.

    Raises:
        ConfigError: no such score, or a region of a model that learns from the text.
        DataError: a file or a sentence that cannot be used.
    """
    if score not in get_args(Score):
        raise ConfigError(f"score is {score!r}", hint="choose sentence or region")
    if isinstance(pairs, str | Path):
        pairs = read_pairs(pairs)
    refuse_other_than_model(model)
    if score == "region" and model.adaptations:
        raise ConfigError(
            "the model learns from the text, so a region cannot be scored by itself",
            hint="use --score sentence, or name a model without a cache",
        )
    if not pairs:
        raise DataError("there are no pairs", hint="give one or more, as read_pairs gives them")
    scored: list[ScoredPair] = []
    for start in range(0, len(pairs), CHUNK):
        scored += _score(model, pairs[start : start + CHUNK], score)
        on_progress(len(scored), len(pairs))
    return PairsEvaluation(score, scored)


def _score(
    model: LanguageModel, pairs: Sequence[MinimalPair], score: Score
) -> Iterator[ScoredPair]:
    sentences = [sentence for pair in pairs for sentence in (pair.good, pair.bad)]
    words = [_scored_words(sentence, model.tokenizer) for sentence in sentences]
    differing = [
        span for two in zip(words[::2], words[1::2], strict=True) for span in regions(*two)
    ]
    try:
        if score == "sentence":
            nats = model.score(sentences)
        else:  # one list per sentence: its words, and its end
            of_words = score_words(model, sentences, line_ends=True)
            nats = [
                -LN_2 * math.fsum(word.bits for word in line[span])
                for line, span in zip(of_words, differing, strict=True)
            ]
    except DataError as error:  # it counts the sentences
        if error.path not in (None, IN_MEMORY) or error.line is None:
            raise
        pair = pairs[(error.line - 1) // 2]
        raise DataError(error.message, hint=error.hint, path=pair.path, line=pair.line) from error
    ids = [
        model.tokenizer.encode_block(next(LineBlocks([sentence], join=True)))
        for sentence in sentences
    ]
    for place, pair in enumerate(pairs):
        one, other = 2 * place, 2 * place + 1
        # the same words are a tie in any unit, and that one is a hair likelier is rounding
        is_same = words[one] == words[other] or np.array_equal(ids[one], ids[other])
        has_unknown = any((ids[row] == UNK_ID).any() for row in (one, other))
        unknown: dict[str, None] = {}
        if has_unknown:
            for row in (one, other):
                unknown |= dict.fromkeys(
                    word
                    for word in words[row][differing[row]]
                    if (model.tokenizer.encode(word) == UNK_ID).any()
                )
        bad = nats[one] if is_same else nats[other]
        yield ScoredPair(pair, nats[one], bad, tuple(unknown), has_unknown)
