"""What a segmenter is trained and validated on: the tokens of a treebank, laid out as raw text.

    form    spaced  multiword  ends  breaks
    I       yes     no         no    no
    can't   no      yes        no    no      ca + n't
    .       yes     no         yes   yes     the sentence ends, and the paragraph

A paragraph that begins inside a sentence (NewPar=Yes in MISC) is taken for a space. How a text is
broken into lines and paragraphs tells little about its sentences, so that is drawn anew for each
epoch: lines of some width, a line for each sentence, a paragraph run on into the next one.

Multiword tokens are split by a table learnt from the treebank, and by rules for unseen ones, which
are those of endings, as most languages' clitics are:

    du        -> de le       by the table; case is kept: Du -> De le, DU -> DE LE
    mightn't  -> might n't   by a rule: the longest ending that was learnt, here tn't -> t n't
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from seqtool.core.arrays import Bools, CodePoints, Ints
from seqtool.parsing.data import in_parts
from seqtool.parsing.segmenter.characters import NEWLINE, SPACE, Alphabet, Ints64, code_points
from seqtool.parsing.segmenter.config import SegmenterConfig, SegmenterLearningConfig
from seqtool.treebank.layouts import begins_text
from seqtool.treebank.sentence import DEPREL, FORM, ID, MISC, UPOS, Sentence

MAX_RULE_SHARE = 8  # characters of an ending that a rule may be about

TokenWords = tuple[str, ...]


class MultiwordSplitter:
    """How tokens are split into words.

    Args:
        table: token -> its words; in lower case.
        rules: ending -> (what replaces it in the first word, the other words); in lower case.
    """

    def __init__(self, table: Mapping[str, TokenWords], rules: Mapping[str, TokenWords]) -> None:
        self.table, self.rules = dict(table), dict(rules)
        self._longest = max(map(len, rules), default=0)

    @classmethod
    def learn(cls, tokens: Iterable[tuple[str, TokenWords]]) -> MultiwordSplitter:
        """Learn from the multiword tokens of a treebank and their words.

        A token is split as it was split most often. An ending becomes a rule if at least two
        tokens that end with it are split alike, and more of them than otherwise.
        """
        splits: dict[str, Counter[TokenWords]] = defaultdict(Counter)
        for form, words in tokens:
            splits[form.lower()][tuple(word.lower() for word in words)] += 1
        table = {form: counts.most_common(1)[0][0] for form, counts in sorted(splits.items())}
        endings: dict[str, Counter[TokenWords]] = defaultdict(Counter)
        for form, words in table.items():
            for size in range(1, min(len(form), MAX_RULE_SHARE + 1)):
                rule = _rule(form, words, size)
                # an ending that the split does not fit speaks against the others
                endings[form[-size:]][rule or ()] += 1
        rules = {}
        for ending, counts in endings.items():
            rule, count = counts.most_common(1)[0]
            if rule and count >= 2 and 2 * count > counts.total():
                rules[ending] = rule
        return cls(table, rules)

    def split(self, form: str) -> TokenWords | None:
        """Return the words of a token; None if neither table nor rules know any."""
        folded = form.lower()
        words = self.table.get(folded)
        # not of a form such as İ, whose lower case has more characters
        if words is None and len(folded) == len(form):
            for size in range(min(self._longest, len(folded) - 1), 0, -1):
                rule = self.rules.get(folded[-size:])
                if rule is not None:
                    words = (folded[:-size] + rule[0], *rule[1:])
                    break
        return None if words is None else _cased(form, words)


def _rule(form: str, words: TokenWords, size: int) -> TokenWords | None:
    """Return the rule by which an ending of so many characters gives the words, if any."""
    kept = form[:-size]
    if not words[0].startswith(kept) or not all(words[1:]):
        return None
    return (words[0][len(kept) :], *words[1:])


def _cased(form: str, words: TokenWords) -> TokenWords:
    """Give words the case of the token that they come from."""
    if "".join(words) == form.lower() and len(form) == len(form.lower()):
        bounds = accumulate(map(len, words), initial=0)
        return tuple(form[begin:end] for begin, end in pairwise(bounds))
    if form.isupper() and sum(map(str.isalpha, form)) > 1:
        return tuple(word.upper() for word in words)
    # as far as the first word is written as the token is, so is its case
    first = words[0]
    same = 0
    while same < min(len(first), len(form)) and first[same] == form[same].lower():
        same += 1
    first = form[:same] + first[same:]
    return (first[:1].upper() + first[1:] if form[0].isupper() else first, *words[1:])


LINE_WIDTH = 80  # of the raw texts that Universal Dependencies publishes
_DIGITS = re.compile(r"\d")


@dataclass(frozen=True, slots=True)
class Token:
    """A surface token: what stands in the text as one piece.

    Attributes:
        form: as it is written, or with single spaces where it has whitespace.
        words: those that it is split into; () for itself.
        spaced: whether whitespace follows.
        tags: part of speech and relation, without its subtype, of each of its words.
    """

    form: str
    words: tuple[str, ...]
    spaced: bool
    tags: tuple[tuple[str, str], ...]

    @property
    def tag(self) -> str:
        """The tags as one text: ADP/case+DET/det."""
        return "+".join(map("/".join, self.tags))


def surface_tokens(sentence: Sentence) -> Iterator[Token]:
    """Give the tokens of a sentence, a multiword token in place of its words."""
    ranges = {}
    for position, line in sentence.extras:
        columns = line.split("\t")
        first, dash, last = columns[ID].partition("-")
        if dash:
            ranges[position] = (columns, int(last) - int(first) + 1)
    word = 0
    while word < len(sentence.rows):
        row = sentence.rows[word]
        if word in ranges:
            row, count = ranges[word]
            inner = sentence.rows[word : word + count]
            words = tuple(columns[FORM] for columns in inner)
        else:
            count, inner, words = 1, [row], ()
        word += count
        spaced = "SpaceAfter=No" not in row[MISC].split("|")
        tags = tuple((part[UPOS], part[DEPREL].partition(":")[0]) for part in inner)
        yield Token(row[FORM], words, spaced, tags)


def begins_paragraph(sentence: Sentence) -> bool:
    """Return whether a paragraph or a document begins with the sentence."""
    return any(map(begins_text, sentence.comments))


@dataclass(frozen=True)
class GoldText:
    """The tokens of a treebank, N of them, of C characters in all.

    Attributes:
        codes: their characters, one after another, [C].
        lengths: characters of each, [N].
        forms: each one's number in the lexicon, 0 for none, [N].
        tags: the number of each one's tag, [N].
        spaced: whether whitespace follows each, [N].
        multiword: whether each is several words, [N].
        ends: whether a sentence ends with each, [N].
        breaks: whether a paragraph does, [N].
    """

    codes: CodePoints
    lengths: Ints
    forms: Ints
    tags: Ints
    spaced: Bools
    multiword: Bools
    ends: Bools
    breaks: Bools

    @property
    def num_tags(self) -> int:
        """The number of tags."""
        return int(self.tags.max()) + 1


def gold_text(sentences: Sequence[Sentence], lexicon: dict[str, int]) -> GoldText:
    """Gather the tokens of sentences; the lexicon is folded form -> number from 1 on."""
    tokens: list[Token] = []
    ends: list[int] = []
    breaks: list[int] = []
    for number, sentence in enumerate(sentences):
        if number and begins_paragraph(sentence):
            breaks.append(len(tokens) - 1)
        tokens.extend(surface_tokens(sentence))
        ends.append(len(tokens) - 1)
    breaks.append(len(tokens) - 1)
    is_end, is_break = np.zeros((2, len(tokens)), np.bool_)
    is_end[ends] = True
    is_break[breaks] = True
    forms = [token.form for token in tokens]
    _, tags = np.unique([token.tag for token in tokens], return_inverse=True)
    return GoldText(
        codes=code_points("".join(forms)),
        lengths=np.array([len(form) for form in forms], np.int32),
        forms=np.array([lexicon.get(fold(form), 0) for form in forms], np.int32),
        tags=tags.astype(np.int32),
        spaced=np.array([token.spaced for token in tokens], np.bool_),
        multiword=np.array([bool(token.words) for token in tokens], np.bool_),
        ends=is_end,
        breaks=is_break,
    )


def fold(form: str) -> str:
    """Return a form as the lexicon has it: in lower case, digits as 0."""
    return form if form.isalpha() and form.islower() else _DIGITS.sub("0", form.lower())


def raw_text(sentences: Iterable[Sentence], *, width: int | None = LINE_WIDTH) -> str:
    """Return the text of a treebank, as Universal Dependencies publishes it.

    Paragraphs and documents are apart by a blank line; inside, lines are broken at spaces after so
    many characters. None leaves each paragraph on one line.
    """
    paragraphs: list[list[str]] = []
    for sentence in sentences:
        if not paragraphs or begins_paragraph(sentence):
            paragraphs.append([])
        pieces = paragraphs[-1]
        pieces.extend(token.form + " " * token.spaced for token in surface_tokens(sentence))
    texts = ["".join(pieces).rstrip() for pieces in paragraphs]
    if width is not None:
        texts = [_wrapped(text, width) for text in texts]
    return "\n\n".join(texts) + "\n"


def _wrapped(text: str, width: int) -> str:
    lines: list[str] = []
    begin, space = 0, -1
    for place, character in enumerate(text):
        if place - begin > width and space > begin:
            lines.append(text[begin:space])
            begin = space + 1
        if character == " ":
            space = place
    return "\n".join((*lines, text[begin:]))


@dataclass(frozen=True)
class SegmenterData:
    """A treebank as a segmenter learns from it.

    Attributes:
        text: tokens and sentences of the training part.
        alphabet, lexicon, splitter, has_spaces: see `model.Segmenter`.
        dev: the validation part.
        dev_text: its raw text.
        summary: counts, for the model card.
    """

    text: GoldText
    alphabet: Alphabet
    lexicon: dict[str, int]
    splitter: MultiwordSplitter
    has_spaces: bool
    dev: list[Sentence]
    dev_text: str
    summary: dict[str, Any]


def segmenter_data(
    train: Iterable[Sentence], dev: Iterable[Sentence] | None, config: SegmenterConfig
) -> SegmenterData:
    """Make the sentences of a treebank ready for a segmenter.

    Beside words and tokens, parts of speech and relations are looked at.
    """
    parts: tuple[list[Sentence], list[Sentence]] = ([], [])
    for sentence, is_dev in in_parts(train, dev):
        parts[is_dev].append(sentence)
    learnt, validation = parts[0], parts[1] or parts[0]  # nothing is held out of a small treebank
    tokens = [token for sentence in learnt for token in surface_tokens(sentence)]
    counts = Counter(fold(token.form) for token in tokens)
    known = [form for form, count in counts.most_common() if count >= config.model.min_count]
    lexicon = {form: row for row, form in enumerate(known, start=1)}
    text = gold_text(learnt, lexicon)
    multiword = [(token.form, token.words) for token in tokens if token.words]
    return SegmenterData(
        text=text,
        alphabet=Alphabet.learn(text.codes, min_count=config.model.min_count),
        lexicon=lexicon,
        splitter=MultiwordSplitter.learn(multiword),
        has_spaces=any(len(token.form.split()) > 1 for token in tokens),
        dev=validation,
        dev_text=raw_text(validation),
        summary={
            "sentences": len(learnt),
            "paragraphs": sum(map(begins_paragraph, learnt[1:])) + 1,
            "words": sum(map(len, learnt)),
            "tokens": len(tokens),
            "multiword_tokens": len(multiword),
            "characters": len(text.codes),
            "tags": text.num_tags,
            "dev_sentences": len(validation),
            "dev_held_out": dev is None,
        },
    )


_WIDTHS = (40, 101)  # characters of a line


@dataclass(frozen=True)
class DrawnLayout:
    """A text as the network sees it, of C characters and N tokens, in windows.

    Attributes:
        codes: its characters, [C].
        firsts, lasts: the first and the last character of each token, [N].
        windows: the first token of each window, and N, ascending.
    """

    codes: CodePoints
    firsts: Ints
    lasts: Ints
    windows: Ints


def lay_out(
    gold: GoldText, config: SegmenterLearningConfig, random: np.random.Generator
) -> DrawnLayout:
    """Draw a layout of a treebank."""
    breaks = gold.breaks.copy()
    breaks[breaks] = random.random(int(breaks.sum())) >= config.joined
    breaks[-1:] = True
    separators = _separators(gold, breaks, config, random)
    sizes = gold.lengths + (separators > 0)
    firsts = (np.cumsum(sizes) - sizes).astype(np.int32)
    lasts = (firsts + gold.lengths - 1).astype(np.int32)
    codes = np.empty(int(sizes.sum()), np.uint32)
    is_separator = np.zeros(len(codes), np.bool_)
    is_separator[lasts[separators > 0] + 1] = True
    codes[~is_separator] = gold.codes
    codes[is_separator] = separators[separators > 0]
    return DrawnLayout(
        codes, firsts, lasts, _windows(sizes, breaks, config.window_characters, random)
    )


def _separators(
    gold: GoldText, breaks: Bools, config: SegmenterLearningConfig, random: np.random.Generator
) -> CodePoints:
    """Return what stands after each token: 0 for nothing, SPACE or NEWLINE, [N]."""
    # paragraphs are apart, even where their last token says that nothing follows it
    is_spaced = gold.spaced | gold.breaks
    separators = np.where(is_spaced, SPACE, 0).astype(np.uint32)
    ends = (np.flatnonzero(breaks) + 1).tolist()
    drawn = random.random(len(ends))
    widths = random.integers(*_WIDTHS, len(ends))
    for begin, end, draw, width in zip([0, *ends], ends, drawn, widths, strict=False):
        paragraph = slice(begin, end)
        spaced = is_spaced[paragraph]
        if draw < config.wrapped:
            # a line ends at the last space within its width, about
            places = np.cumsum(gold.lengths[paragraph] + spaced)
            line = (places + random.integers(width)) // width
            broken = np.flatnonzero(spaced[:-1] & (np.diff(line) > 0))
        elif draw < config.wrapped + config.sentence_lines:
            broken = np.flatnonzero(spaced & gold.ends[paragraph])
        else:
            continue
        separators[begin + broken] = NEWLINE
    separators[breaks] = 0  # nothing follows in a paragraph
    return separators


def _windows(sizes: Ints, breaks: Bools, width: int, random: np.random.Generator) -> Ints:
    """Return the first token of each window: a paragraph, or a piece of a long one."""
    firsts_N: Ints64 = np.cumsum(sizes, dtype=np.int64) - sizes
    begins = np.concatenate(([0], np.flatnonzero(breaks)[:-1] + 1))
    # drawn, so that a long paragraph is cut at other places in each epoch
    offsets = random.integers(width, size=len(begins))
    lengths = np.add.reduceat(sizes, begins)
    # the paragraph of each token, and how far in it the token is
    paragraph_N: Ints64 = np.cumsum(breaks, dtype=np.int64) - breaks
    inside_N = firsts_N - firsts_N[begins][paragraph_N]
    piece_N = (inside_N + offsets[paragraph_N]) // width
    piece_N[(lengths <= width)[paragraph_N]] = 0
    cuts = np.flatnonzero((np.diff(piece_N) != 0) | (np.diff(paragraph_N) != 0)) + 1
    return np.concatenate(([0], cuts, [len(sizes)])).astype(np.int32)
