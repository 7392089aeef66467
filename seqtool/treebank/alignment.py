"""Two annotations of one text, and which words of the one are words of the other.

    text        v a m o n o s a l m a r      characters of all tokens, without spaces
    tokens      |vamonos|al|mar|             spans of characters
    words       vamos nos|a el|mar           words of a multiword token have its span

Words match by their spans. Where either side has a multiword token, the words inside the smallest
span that no multiword token sticks out of match by the longest common subsequence of their forms,
letter case apart. This is the alignment of Zeman et al. 2018 (CoNLL 2018 shared task), section 6.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqtool.core.arrays import Bools, Doubles, Longs
from seqtool.core.errors import DataError
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.misc import score_in
from seqtool.treebank.sentence import (
    DEPREL,
    FEATS,
    FORM,
    ID,
    LEMMA,
    MISC,
    UPOS,
    XPOS,
    Sentence,
    find_fault,
)

Texts = NDArray[np.object_]
Treebank = str | Path | Iterable[Sentence] | Sentence

ROOT = -1
NOT_ALIGNED = -2

# those of universal features; what else FEATS holds is not compared
# fmt: off
UNIVERSAL_FEATURES = frozenset({
    "Abbr", "Animacy", "Aspect", "Case", "Definite", "Degree", "Evident", "Foreign", "Gender",
    "Mood", "NumType", "Number", "Person", "Polarity", "Polite", "Poss", "PronType", "Reflex",
    "Tense", "VerbForm", "Voice",
})
# fmt: on


@dataclass(frozen=True)
class Annotation:
    """What a treebank says of its text; words, tokens and sentences are numbered from 0.

    Attributes:
        path: the file of its first sentence.
        text: the characters of all tokens, spaces left out.
        tokens: (T, 2) first character and the one after the last, of each token.
        token_lines: the line of the file that each token was read from.
        sentences: (S, 2) spans of characters.
        spans: (W, 2) span of the token that each word is, or is in.
        in_multiword: (W,) whether the word is in a multiword token.
        forms: forms as they are compared, in lower case.
        upos, xpos, lemmas: (W,) columns as read.
        feats: (W,) universal features in order.
        deprels: (W,) relations without subtypes.
        parents: (W,) number of the head, `ROOT` for the root.
        lengths: (W,) words from head to dependent, 0 for the root.
        scores: (W,) the probability of the word's arc by `Score` in MISC; NaN where there is none.
    """

    path: str
    text: str
    tokens: Longs
    token_lines: list[int]
    sentences: Longs
    spans: Longs
    in_multiword: Bools
    forms: list[str]
    upos: Texts
    xpos: Texts
    feats: Texts
    lemmas: Texts
    deprels: Texts
    parents: Longs
    lengths: Longs
    scores: Doubles


def universal_relation(deprel: str) -> str:
    """Return a relation without its subtype: nsubj of nsubj:pass."""
    return deprel.partition(":")[0]


def read_annotation(treebank: Treebank) -> Annotation:
    """Read what is compared of a treebank: a CoNLL-U file or directory, `-`, or its sentences.

    Raises:
        DataError: a sentence is broken or has no tree, with its line.
    """
    if isinstance(treebank, str | Path):
        sentences = list(read_conllu(treebank, skip_option=""))
    else:
        given = [treebank] if isinstance(treebank, Sentence) else treebank
        sentences = list(map(checked, given))
    if not sentences:
        raise DataError("there are no sentences", hint="give one or more")
    columns = list(zip(*(row for sentence in sentences for row in sentence.rows), strict=True))
    head_array = np.array([head for sentence in sentences for head in sentence.heads()], np.int64)
    num_words = [len(sentence) for sentence in sentences]
    surfaces = [sentence.surface_rows() for sentence in sentences]
    num_tokens = [len(surface) for surface in surfaces]
    token_lines: list[int] = []
    for sentence, surface in zip(sentences, surfaces, strict=True):
        # the line of a multiword token stands before that of its first word
        token_lines += [sentence.line_of(first) - ("-" in row[ID]) for first, _, row in surface]
    bare_tokens = _without_spaces([row[FORM] for surface in surfaces for _, _, row in surface])
    ends = np.cumsum([0, *map(len, bare_tokens)], dtype=np.int64)
    tokens = np.stack((ends[:-1], ends[1:]), axis=1)
    token_sizes = [last - first + 1 for surface in surfaces for first, last, _ in surface]
    are_ranges = ["-" in row[ID] for surface in surfaces for _, _, row in surface]
    token_of_word = np.repeat(np.arange(len(tokens)), token_sizes)
    in_multiword = np.array(are_ranges, bool)[token_of_word]
    token_ends = np.cumsum(num_tokens, dtype=np.int64)
    base = np.repeat(np.cumsum([0, *num_words[:-1]]), num_words)
    parents = np.where(head_array > 0, head_array + base - 1, ROOT)
    distances = np.abs(parents - np.arange(len(parents)))
    forms = columns[FORM]
    compared = [
        raw.lower() if inside else bare.lower()
        for raw, bare, inside in zip(
            forms, _without_spaces(forms), in_multiword.tolist(), strict=True
        )
    ]
    return Annotation(
        path=sentences[0].path or "the sentences given",
        text="".join(bare_tokens),
        tokens=tokens,
        token_lines=token_lines,
        sentences=np.stack((tokens[token_ends - num_tokens, 0], tokens[token_ends - 1, 1]), axis=1),
        spans=tokens[token_of_word],
        in_multiword=in_multiword,
        forms=compared,
        upos=_texts(columns[UPOS]),
        xpos=_texts(columns[XPOS]),
        feats=_texts(columns[FEATS], cache(_universal_features)),
        lemmas=_texts(columns[LEMMA]),
        deprels=_texts(columns[DEPREL], cache(universal_relation)),
        parents=parents,
        lengths=np.where(head_array > 0, distances, 0),
        scores=np.array([score_in(misc) for misc in columns[MISC]], np.float64),
    )


def checked(sentence: Sentence) -> Sentence:
    """Return a sentence, which may not come from a file whose trees were checked, if it has one.

    Raises:
        DataError: its heads are no tree.
    """
    if (fault := find_fault(sentence.heads())) is not None:
        word, message = fault
        path, line = sentence.path or None, sentence.line_of(word)
        raise DataError(message, hint="give sentences with trees", path=path, line=line)
    return sentence


@cache
def _space_table() -> dict[int, None]:
    """Return the table that removes spaces of all kinds (category Zs), as str.translate wants."""
    spaces = (chr(c) for c in range(sys.maxunicode + 1) if chr(c).isspace())
    return {ord(space): None for space in spaces if unicodedata.category(space) == "Zs"}


def _without_spaces(forms: Sequence[str]) -> list[str]:
    return "\n".join(forms).translate(_space_table()).split("\n") if forms else []


def _texts(values: Sequence[str], change: Callable[[str], str] | None = None) -> Texts:
    return np.array(values if change is None else [change(value) for value in values], object)


def _universal_features(feats: str) -> str:
    return "|".join(
        sorted(f for f in feats.split("|") if f.partition("=")[0] in UNIVERSAL_FEATURES)
    )


def check_same_text(gold: Annotation, predicted: Annotation) -> None:
    """Check that both have the same characters, spaces apart.

    Raises:
        DataError: they differ; the message shows where.
    """
    if gold.text == predicted.text:
        return
    pairs = enumerate(zip(gold.text, predicted.text, strict=False))
    shorter = min(len(gold.text), len(predicted.text))
    index = next((i for i, (one, other) in pairs if one != other), shorter)
    hint = "give an annotation of the same text: only spaces and the division into words may differ"
    if unicodedata.normalize("NFC", gold.text) == unicodedata.normalize("NFC", predicted.text):
        hint = "bring both files into one Unicode normal form, NFC in CoNLL-U"
    gold_word, gold_line = _token_at(gold, index)
    word, line = _token_at(predicted, index)
    message = f"the text differs: {word}, where {gold.path}:{gold_line} has {gold_word}"
    raise DataError(message, hint=hint, path=predicted.path, line=line)


def _token_at(annotation: Annotation, index: int) -> tuple[str, int]:
    """Return (token, line) at a character, to be shown; at the end of the text its last line."""
    if index >= len(annotation.text):
        return "its end", annotation.token_lines[-1]
    token = int(np.searchsorted(annotation.tokens[:, 1], index, side="right"))
    start, end = annotation.tokens[token]
    return repr(annotation.text[start:end]), annotation.token_lines[token]


def align_words(gold: Annotation, predicted: Annotation) -> tuple[Longs, Longs]:
    """Return the numbers of the words that match, ascending: (gold words, predicted words)."""
    gold_words, words = _Cursor(gold), _Cursor(predicted)
    pairs: list[tuple[int, int]] = []
    g = p = 0
    while g < gold_words.num and p < words.num:
        if gold_words.inside[g] or words.inside[p]:
            first_g, first_p, g, p = _multiword_span(gold_words, words, g, p)
            pairs.extend(_match_forms(gold_words, words, range(first_g, g), range(first_p, p)))
            continue
        start, other = gold_words.starts[g], words.starts[p]
        if start == other and gold_words.ends[g] == words.ends[p]:
            pairs.append((g, p))
            g, p = g + 1, p + 1
        elif start <= other:
            g += 1
        else:
            p += 1
    matched = np.array(pairs, np.int64).reshape(-1, 2)
    return matched[:, 0], matched[:, 1]


class _Cursor:
    """The words of an annotation as lists, which a loop in Python reads faster."""

    def __init__(self, annotation: Annotation) -> None:
        self.starts: list[Any] = annotation.spans[:, 0].tolist()
        self.ends: list[Any] = annotation.spans[:, 1].tolist()
        self.inside: list[Any] = annotation.in_multiword.tolist()
        self.forms = annotation.forms
        self.num = len(self.starts)

    def is_beyond(self, word: int, end: int) -> bool:
        """Return whether a word does not belong to a multiword span that ends at a character."""
        if word >= self.num:
            return True
        return bool(self.starts[word] >= end if self.inside[word] else self.ends[word] > end)

    def extended(self, word: int, end: int) -> int:
        """Return the end of a multiword span that this word is put into."""
        return max(end, self.ends[word]) if self.inside[word] else end


def _multiword_span(gold: _Cursor, words: _Cursor, g: int, p: int) -> tuple[int, int, int, int]:
    """Return the multiword span that begins here: (first gold, first predicted, ends of both).

    Word g or word p is in a multiword token; the other may begin before it and is left out then.
    """
    if gold.inside[g]:
        end = gold.ends[g]
        if not words.inside[p] and words.starts[p] < gold.starts[g]:
            p += 1
    else:
        end = words.ends[p]
        if not gold.inside[g] and gold.starts[g] < words.starts[p]:
            g += 1
    first_g, first_p = g, p
    while not gold.is_beyond(g, end) or not words.is_beyond(p, end):
        if g < gold.num and (p >= words.num or gold.starts[g] <= words.starts[p]):
            end = gold.extended(g, end)
            g += 1
        else:
            end = words.extended(p, end)
            p += 1
    return first_g, first_p, g, p


def _match_forms(
    gold: _Cursor, words: _Cursor, gold_range: range, word_range: range
) -> list[tuple[int, int]]:
    """Return the pairs of a longest common subsequence of forms, the earliest gold words first."""
    pairs = []
    g, p = 0, 0
    shorter = min(len(gold_range), len(word_range))
    # equal forms at the front always match, so that nearly all spans need no table
    while g < shorter and gold.forms[gold_range[g]] == words.forms[word_range[g]]:
        pairs.append((gold_range[g], word_range[g]))
        g += 1
    gold_range, word_range, g = gold_range[g:], word_range[g:], 0
    gold_forms = [gold.forms[i] for i in gold_range]
    forms = [words.forms[i] for i in word_range]
    table = _common_lengths(gold_forms, forms)
    while g < len(gold_forms) and p < len(forms):
        if gold_forms[g] == forms[p]:
            pairs.append((gold_range[g], word_range[p]))
            g, p = g + 1, p + 1
        elif table[g][p] == table[g + 1][p]:
            g += 1
        else:
            p += 1
    return pairs


def _common_lengths(first: Sequence[str], second: Sequence[str]) -> list[list[int]]:
    """Return the length of the longest common subsequence of first[i:] and second[j:] at [i][j]."""
    table = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i in reversed(range(len(first))):
        row, below = table[i], table[i + 1]
        for j in reversed(range(len(second))):
            row[j] = 1 + below[j + 1] if first[i] == second[j] else max(below[j], row[j + 1])
    return table
