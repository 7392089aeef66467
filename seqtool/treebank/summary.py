"""What a treebank holds: its size, tags and relations, non-projective and broken sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqtool.core.reading import Progress
from seqtool.treebank.conllu import read_items
from seqtool.treebank.doubts import doubts
from seqtool.treebank.evaluation import CONTENT_RELATIONS, FUNCTION_RELATIONS
from seqtool.treebank.sentence import DEPREL, FEATS, FORM, LEMMA, UPOS, XPOS, Sentence

_SHOWN = 8  # symbols of a set in a row of the summary
_HELD = 100  # doubtful lines that are kept
_EMPTY = "_"
_RELATIONS = CONTENT_RELATIONS | FUNCTION_RELATIONS | {"punct"}  # the 37 of Universal Dependencies
_RARE = 2  # words; a treebank's own relations have more
_COUNTS = ("sentences", "words", "tokens", "multiword_tokens", "empty_nodes", "forms", "lemmas")


@dataclass(frozen=True)
class BrokenSentence:
    """Where a sentence is broken, or a line doubtful, and how."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


@dataclass(frozen=True)
class TreebankSummary:
    """Counts over the sentences that are not broken.

    Attributes:
        files: the files read.
        sentences: number of sentences.
        words: syntactic words, the rows of the trees.
        tokens: surface tokens: a multiword token counts once, in place of its words.
        multiword_tokens: tokens that are several words.
        empty_nodes: nodes of the enhanced graphs that are no words.
        forms: distinct word forms.
        lemmas: distinct lemmas.
        upos, xpos, deprels: symbol -> words, the commonest first; `_` is left out.
        feats: Feature=Value -> words that have it, the commonest first.
        non_projective_sentences, non_projective_arcs: how many; an arc of each word.
        non_projective_sentence_share, non_projective_arc_share: from 0 to 1.
        longest: words of the longest sentence.
        longest_at: its file and line.
        mean_length: words per sentence.
        broken: sentences that were left out.
        doubtful_lines: lines of the others that cannot be right, see `doubts`, those of sentences
            whose name another one of their file has, and those of relations that are not of
            Universal Dependencies, and that two words at most have.
        doubtful: the first hundred of them.
    """

    files: list[str]
    sentences: int
    words: int
    tokens: int
    multiword_tokens: int
    empty_nodes: int
    forms: int
    lemmas: int
    upos: dict[str, int]
    xpos: dict[str, int]
    feats: dict[str, int]
    deprels: dict[str, int]
    non_projective_sentences: int
    non_projective_arcs: int
    non_projective_sentence_share: float
    non_projective_arc_share: float
    longest: int
    longest_at: str
    mean_length: float
    broken: list[BrokenSentence]
    doubtful_lines: int
    doubtful: list[BrokenSentence]


def describe_treebank(
    inputs: Sequence[str | Path] | str | Path, *, on_progress: Progress | None = None
) -> TreebankSummary:
    """Read CoNLL-U files and count what they hold; broken sentences are collected.

    The arguments are those of `read_conllu`. Memory grows with the distinct forms, lemmas, tags and
    broken sentences only.

    Raises:
        DataError: no sentence at all, or a file that cannot be read.
    """
    # one counter or set for each column; what the rest is made of
    counters: dict[int, Counter[str]] = {index: Counter() for index in (UPOS, XPOS, FEATS, DEPREL)}
    distinct: dict[int, set[str]] = {FORM: set(), LEMMA: set()}
    broken: list[BrokenSentence] = []
    files: dict[str, None] = {}
    num_sentences = num_words = num_ranges = num_covered = num_empty = 0
    doubtful: list[BrokenSentence] = []
    num_non_projective = num_non_projective_arcs = longest = num_doubtful = 0
    longest_at = names_of = ""
    names: set[str] = set()  # of the sentences of a file
    own_relations: dict[str, list[BrokenSentence]] = {}  # the first lines of each
    for item in read_items(inputs, on_progress=on_progress):
        if not isinstance(item, Sentence):
            error = item.error
            files[str(error.path)] = None
            broken.append(BrokenSentence(str(error.path), error.line or 0, error.message))
            continue
        files[item.path] = None
        num_sentences += 1
        num_words += len(item)
        for index, counter in counters.items():
            counter.update(item.column(index))
        for index, values in distinct.items():
            values.update(item.column(index))
        ranges = item.multiword_tokens()
        num_ranges += len(ranges)
        num_covered += sum(last - first + 1 for first, last, _ in ranges)
        num_empty += len(item.extras) - len(ranges)
        non_projective = len(non_projective_arcs(item.heads()))
        num_non_projective_arcs += non_projective
        num_non_projective += non_projective > 0
        found = list(doubts(item))
        if item.path != names_of:
            names_of, names = item.path, set()
        if (name := item.sent_id) and name in names:
            found.append((item.line, f"another sentence has the sent_id {name}, too"))
        names.add(name)
        for word, deprel in enumerate(item.column(DEPREL), start=1):
            relation = deprel.partition(":")[0]
            if relation not in _RELATIONS and relation != _EMPTY:
                lines = own_relations.setdefault(relation, [])
                if len(lines) <= _RARE:
                    message = f"the relation {deprel} is not of Universal Dependencies, and rare"
                    lines.append(BrokenSentence(item.path, item.line_of(word), message))
        for line, message in found:
            num_doubtful += 1
            if num_doubtful <= _HELD:
                doubtful.append(BrokenSentence(item.path, line, message))
        if len(item) > longest:
            longest, longest_at = len(item), f"{item.path}:{item.line}"
    rare = [one for lines in own_relations.values() if len(lines) <= _RARE for one in lines]
    order = {path: number for number, path in enumerate(files)}
    doubtful = sorted([*doubtful, *rare], key=lambda one: (order[one.path], one.line))[:_HELD]
    features: Counter[str] = Counter()  # Case=Nom and Number=Sing of Case=Nom|Number=Sing
    for bundle, count in counters[FEATS].items():
        for feature in bundle.split("|"):
            features[feature] += count
    return TreebankSummary(
        files=list(files),
        sentences=num_sentences,
        words=num_words,
        tokens=num_words - num_covered + num_ranges,
        multiword_tokens=num_ranges,
        empty_nodes=num_empty,
        forms=len(distinct[FORM]),
        lemmas=len(distinct[LEMMA] - {_EMPTY}),
        upos=_ordered(counters[UPOS]),
        xpos=_ordered(counters[XPOS]),
        feats=_ordered(features),
        deprels=_ordered(counters[DEPREL]),
        non_projective_sentences=num_non_projective,
        non_projective_arcs=num_non_projective_arcs,
        non_projective_sentence_share=num_non_projective / max(1, num_sentences),
        non_projective_arc_share=num_non_projective_arcs / max(1, num_words),
        longest=longest,
        longest_at=longest_at,
        mean_length=num_words / max(1, num_sentences),
        broken=broken,
        doubtful_lines=num_doubtful + len(rare),
        doubtful=doubtful,
    )


def non_projective_arcs(heads: Sequence[int]) -> list[int]:
    """Return the words, ascending, whose arc from their head is not projective.

    An arc is projective if every word between head and dependent descends from the head (Kübler,
    McDonald & Nivre 2009, definition 2.5); the root, number 0, stands before the first word.
    `heads[i]` is the head of word i + 1 of a tree.
    """
    children: list[list[int]] = [[] for _ in range(len(heads) + 1)]
    for word, head in enumerate(heads, start=1):
        children[head].append(word)
    # in preorder, those that descend from a word are the `sizes` numbers from its own on
    order: list[int] = []
    numbers = [0] * (len(heads) + 1)
    pending = [0]
    while pending:
        word = pending.pop()
        numbers[word] = len(order)
        order.append(word)
        pending.extend(children[word])
    sizes = [1] * (len(heads) + 1)
    for word in order[:0:-1]:
        sizes[heads[word - 1]] += sizes[word]
    found: list[int] = []
    for word, head in enumerate(heads, start=1):
        first, last = (word + 1, head) if word < head else (head + 1, word)
        if first < last:
            between = numbers[first:last]
            number = numbers[head]
            if min(between) < number or max(between) >= number + sizes[head]:
                found.append(word)
    return found


def _ordered(counts: Mapping[str, int]) -> dict[str, int]:
    kept = ((symbol, count) for symbol, count in counts.items() if symbol != _EMPTY)
    return dict(sorted(kept, key=lambda item: (-item[1], item[0])))


def summary_rows(summary: TreebankSummary) -> list[tuple[str, str]]:
    """Return a summary as (name, text) rows to show."""
    rows = [
        *((name.replace("_", " "), f"{getattr(summary, name):,}") for name in _COUNTS),
        ("UPOS", _set_text(summary.upos)),
        ("XPOS", _set_text(summary.xpos)),
        ("FEATS", _set_text(summary.feats)),
        ("DEPREL", _set_text(summary.deprels)),
        (
            "non-projective sentences",
            f"{summary.non_projective_sentences:,} ({summary.non_projective_sentence_share:.2%})",
        ),
        (
            "non-projective arcs",
            f"{summary.non_projective_arcs:,} ({summary.non_projective_arc_share:.2%})",
        ),
        ("mean length", f"{summary.mean_length:.1f} words"),
        ("longest sentence", f"{summary.longest:,} words ({summary.longest_at})"),
        ("broken sentences", f"{len(summary.broken):,}"),
        ("doubtful lines", f"{summary.doubtful_lines:,}"),
    ]
    return [row for row in rows if summary.longest or row[0] != "longest sentence"]


def _set_text(counts: Mapping[str, int]) -> str:
    shown = [f"{symbol} {count:,}" for symbol, count in list(counts.items())[:_SHOWN]]
    more = ["..."] if len(counts) > _SHOWN else []
    return f"{len(counts):,}" + (f": {', '.join(shown + more)}" if shown else "")
