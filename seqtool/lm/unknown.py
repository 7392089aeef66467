"""Unknown words: which they are, and the likely reason that there are many.

A text that is cased, tokenised or written in another way than the text of a model gives figures
that say little of the model. What the unknown words would be in lower case, or without punctuation,
tells which of these it is.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from seqtool.core.arrays import Ids
from seqtool.core.vocabulary import UNK
from seqtool.text.tokenizers import Tokenizer

UNITS = {"word": "words", "char": "characters"}  # that a text can have, and a model not know
MOST_COLLECTED = 5_000  # unknown words that are looked at
SUSPICIOUS_SHARE = 0.05  # of the words of a text that are unknown
LEAST_WORDS = 20  # of a text, below which a share says nothing
SMALL_VOCABULARY = 20_000
_REASON_SHARE = 0.4  # of the unknown words, that a reason has to explain


@dataclass
class UnknownWords:
    """The first unknown words of a text, with how often they occur.

    Attributes:
        tokenizer: reads the text.
        counts: word, as it is written -> how often it was met.
    """

    tokenizer: Tokenizer
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, ids: Ids, block: bytes | None) -> None:
        """Look through a block of whole lines with its ids; one without its text tells nothing."""
        is_full = self.counts.total() >= MOST_COLLECTED
        if block is not None and not is_full and self.tokenizer.unit in UNITS:
            self.add_written(word for _, word in self.tokenizer.unknown_tokens(block, ids))

    def add_written(self, words: Iterable[str]) -> None:
        """Count unknown words of the text, as they are written."""
        room = max(0, MOST_COLLECTED - self.counts.total())
        self.counts.update(islice(words, room))


def warning_of(
    num_unknown: int, num_words: int, unknown: Mapping[str, int], tokenizer: Tokenizer
) -> str:
    """Return what to say where so many words are unknown that the figures say little.

    Args:
        num_unknown: of the words of a text.
        num_words: of a text.
        unknown: unknown words with how often they occur; they need not be all.
        tokenizer: that of the model.

    Returns:
        A sentence with the likely reason; empty for few unknown words, few words in all, a model
        of other units than words and characters, or where no reason is likely.
    """
    is_usual = num_words < LEAST_WORDS or num_unknown <= SUSPICIOUS_SHARE * num_words
    if is_usual or tokenizer.unit not in UNITS or not (reason := reason_for(unknown, tokenizer)):
        return ""
    share, those = f"{num_unknown / num_words:.1%}", UNITS[tokenizer.unit]
    return f"{share} of the {those} are unknown to the model; {reason}"


def reason_for(unknown: Mapping[str, int], tokenizer: Tokenizer) -> str:
    """Return the likely reason that words are unknown, with what to do; empty if there is none.

    Args:
        unknown: words with how often they occur, as `UnknownWords` collects them.
        tokenizer: that of the model.
    """
    vocabulary = tokenizer.vocabulary
    words = {word: count for word, count in unknown.items() if word != UNK}
    total = sum(words.values())
    if not unknown:  # of a prepared corpus they are not known
        return f"the vocabulary of {len(vocabulary):,} words is small for this text"
    if total <= _REASON_SHARE * sum(unknown.values()):
        return ""  # the text itself says <unk>
    letters = {character for symbol in vocabulary.symbols for character in symbol.lower()}

    def is_foreign(word: str) -> bool:
        return any(c.isalpha() and c not in letters for c in word.lower())

    def share_of(explains: Callable[[str], bool]) -> float:
        return sum(count for word, count in words.items() if explains(word)) / total

    def becomes_known(change: Callable[[str], str]) -> Callable[[str], bool]:
        return lambda word: change(word) in vocabulary

    # of several reasons that explain enough words, the first is given
    if tokenizer.unit == "char":
        share = share_of(lambda text: any(map(_is_part, text)))
        return f"{share:.0%} of them are parts of letters: {_NFC}" if share >= _REASON_SHARE else ""
    for reason, change in _CHANGES.items():
        share = share_of(becomes_known(change))
        if share >= _REASON_SHARE:
            return f"{share:.0%} of them are known {reason}"
    if (share := share_of(is_foreign)) >= _REASON_SHARE:
        what = "have letters that no word of the model has: the text is in another language or"
        return f"{share:.0%} of them {what} script"
    if len(vocabulary) < SMALL_VOCABULARY:
        return (
            f"the model knows only {len(vocabulary):,} words: train it on more text, or of units "
            "such as bpe, which know all words"
        )
    return "the text is of another kind or language than the model's"


def _is_part(character: str) -> bool:
    """Return whether a character is a mark on a letter, or one of those that a syllable is of."""
    return bool(unicodedata.combining(character)) or "\u1100" <= character <= "\u11ff"


def bare(word: str) -> str:
    """Return a word without punctuation and symbols at its ends; itself if it is nothing else."""
    begin, end = 0, len(word)
    while begin < end and unicodedata.category(word[begin])[0] in "PS":
        begin += 1
    while end > begin and unicodedata.category(word[end - 1])[0] in "PS":
        end -= 1
    return word[begin:end] or word


_NFC = "bring the text into Unicode NFC, see `seqtool help troubleshooting`"
_SPLIT = "split it off with `seqtool segment --rules --format text`"
# how an unknown word becomes one that is known -> what is changed
_CHANGES: dict[str, Callable[[str], str]] = {
    f"with whole letters in place of parts: {_NFC}": partial(unicodedata.normalize, "NFC"),
    "in lower case: lower-case the text": str.lower,
    f"without the punctuation that is attached: {_SPLIT}": bare,
    f"in lower case without punctuation: lower-case the text, and {_SPLIT}": (
        lambda word: bare(word).lower()
    ),
}
