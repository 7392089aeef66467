"""The content of a treebank: its size, tags and relations, and the faults of its sentences.

Broken sentences are left out of the counts. Diagnostics are faults of sentences that can be used:

    # text = Sue ran                             is the text of the words, with SpaceAfter in MISC
    1   Sue    ...  2  nsubj  2:nsubj|4:nsubj    head:relation, sorted by head, each once
    2   ran    ...  0  root   0:root
    2.1 ...         _  _      2:conj             an empty node stands in the graph, not in the tree

No command needs a treebank without them. The validator of Universal Dependencies (`udtools`) knows
many more rules.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path

from seqtool.core.reading import Progress
from seqtool.treebank.alignment import universal_relation
from seqtool.treebank.conllu import Broken, read_items
from seqtool.treebank.evaluation import CONTENT_RELATIONS, FUNCTION_RELATIONS
from seqtool.treebank.projectivity import non_projective_arcs
from seqtool.treebank.sentence import (
    COLUMNS,
    DEPREL,
    DEPS,
    FEATS,
    FORM,
    HEAD,
    ID,
    LEMMA,
    UPOS,
    XPOS,
    Sentence,
)

_SHOWN = 8  # symbols of a set in a row of the summary
_MAX_KEPT = 100  # doubtful lines
_EMPTY = "_"
_RELATIONS = CONTENT_RELATIONS | FUNCTION_RELATIONS | {"punct"}  # the 37 of Universal Dependencies
_RARE = 2  # words; a treebank's own relations have more
_SIZES = ("sentences", "words", "tokens", "multiword_tokens", "empty_nodes")
_COUNTED = (*_SIZES, "non_projective_sentences", "non_projective_arcs")

# fmt: off
UNIVERSAL_TAGS = frozenset({
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN",
    "PUNCT", "SCONJ", "SYM", "VERB", "X",
})
# fmt: on
_ARC = re.compile(r"(0|[1-9][0-9]{0,8})(?:\.([1-9][0-9]{0,8}))?:[^:].*")
_ROOT = (0, 0)
Node = tuple[int, int]  # word number, and the number of the empty node after it or 0


@dataclass(frozen=True)
class Fault:
    """The place of a broken sentence or a doubtful line, and what is wrong there."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


@dataclass
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
        doubtful_lines: lines of the others with `diagnostics`, those of sentences whose name
            another one of their file has, and those of relations that are not of Universal
            Dependencies and that two words at most have.
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
    broken: list[Fault]
    doubtful_lines: int
    doubtful: list[Fault]


def describe_treebank(
    inputs: Sequence[str | Path] | str | Path, *, on_progress: Progress | None = None
) -> TreebankSummary:
    """Read CoNLL-U files and count what they hold; broken sentences are collected.

    The arguments are those of `read_conllu`. Memory grows with the distinct forms, lemmas, tags and
    names of sentences, and with what is wrong.

    Raises:
        DataError: no sentence at all, or a file that cannot be read.
    """
    counts: Counter[str] = Counter()
    counters: dict[int, Counter[str]] = {
        index: Counter() for index in (FORM, LEMMA, UPOS, XPOS, FEATS, DEPREL)
    }
    files: dict[str, int] = {}  # their numbers
    names: set[tuple[str, str]] = set()  # file and sent_id
    broken: list[Fault] = []
    doubtful: list[Fault] = []
    own_relations: dict[str, list[Fault]] = {}  # the first lines of each
    longest, longest_at = 0, ""
    for item in read_items(inputs, on_progress=on_progress):
        if isinstance(item, Broken):
            error = item.error
            broken.append(Fault(str(error.path), error.line or 0, error.message))
            files.setdefault(str(error.path), len(files))
            continue
        files.setdefault(item.path, len(files))
        for index, counter in counters.items():
            counter.update(item.column(index))
        num_ranges, num_crossing = (
            len(item.multiword_tokens()),
            len(non_projective_arcs(item.heads())),
        )
        counts.update(
            sentences=1,
            words=len(item),
            tokens=len(item.surface_rows()),
            multiword_tokens=num_ranges,
            empty_nodes=len(item.extras) - num_ranges,
            non_projective_sentences=num_crossing > 0,
            non_projective_arcs=num_crossing,
        )
        if len(item) > longest:
            longest, longest_at = len(item), f"{item.path}:{item.line}"
        doubtful += [Fault(item.path, *fault) for fault in diagnostics(item)]
        if name := item.sent_id:
            if (item.path, name) in names:
                message = f"another sentence has the sent_id {name}, too"
                doubtful.append(Fault(item.path, item.line, message))
            names.add((item.path, name))
        for word, deprel in enumerate(item.column(DEPREL), start=1):
            relation = universal_relation(deprel)
            if relation not in _RELATIONS and relation != _EMPTY:
                lines = own_relations.setdefault(relation, [])
                if len(lines) <= _RARE:
                    message = f"the relation {deprel} is not of Universal Dependencies, and rare"
                    lines.append(Fault(item.path, item.line_of(word), message))
    doubtful += [one for lines in own_relations.values() if len(lines) <= _RARE for one in lines]
    doubtful.sort(key=lambda one: (files[one.path], one.line))
    features: Counter[str] = Counter()  # Case=Nom and Number=Sing of Case=Nom|Number=Sing
    for bundle, count in counters[FEATS].items():
        features.update(dict.fromkeys(bundle.split("|"), count))
    num_sentences, num_words = max(1, counts["sentences"]), max(1, counts["words"])
    return TreebankSummary(
        files=list(files),
        **{name: counts[name] for name in _COUNTED},
        forms=len(counters[FORM]),
        lemmas=len(counters[LEMMA].keys() - {_EMPTY}),
        upos=_ordered(counters[UPOS]),
        xpos=_ordered(counters[XPOS]),
        feats=_ordered(features),
        deprels=_ordered(counters[DEPREL]),
        non_projective_sentence_share=counts["non_projective_sentences"] / num_sentences,
        non_projective_arc_share=counts["non_projective_arcs"] / num_words,
        longest=longest,
        longest_at=longest_at,
        mean_length=counts["words"] / num_sentences,
        broken=broken,
        doubtful_lines=len(doubtful),
        doubtful=doubtful[:_MAX_KEPT],
    )


def _ordered(counts: Mapping[str, int]) -> dict[str, int]:
    kept = ((symbol, count) for symbol, count in counts.items() if symbol != _EMPTY)
    return dict(sorted(kept, key=lambda item: (-item[1], item[0])))


def summary_rows(summary: TreebankSummary) -> list[tuple[str, str]]:
    """Return a summary as (name, text) rows to show."""
    rows = [
        *(
            (name.replace("_", " "), f"{getattr(summary, name):,}")
            for name in (*_SIZES, "forms", "lemmas")
        ),
        ("UPOS", _set_text(summary.upos)),
        ("XPOS", _set_text(summary.xpos)),
        ("FEATS", _set_text(summary.feats)),
        ("DEPREL", _set_text(summary.deprels)),
        *(
            (
                f"non-projective {kind}s",
                f"{getattr(summary, f'non_projective_{kind}s'):,} "
                f"({getattr(summary, f'non_projective_{kind}_share'):.2%})",
            )
            for kind in ("sentence", "arc")
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


def diagnostics(sentence: Sentence) -> Iterator[tuple[int, str]]:
    """Yield (line of the file, message) for each fault."""
    yield from _diagnostics_of_text(sentence)
    for word, row in enumerate(sentence.rows, start=1):
        if row[UPOS] != _EMPTY and row[UPOS] not in UNIVERSAL_TAGS:
            tag = f"the UPOS {row[UPOS]} is none of the {len(UNIVERSAL_TAGS)}"
            yield sentence.line_of(word), f"{tag} of Universal Dependencies"
        if not _are_features(row[FEATS]):
            yield sentence.line_of(word), f"the FEATS {row[FEATS]} are no list of Name=Value"
        if row[DEPREL].partition(":")[0] == "root" and row[HEAD] != "0":
            yield sentence.line_of(word), f"word {word} is a {row[DEPREL]}, but depends on another"
    yield from _diagnostics_of_graph(sentence)


def _diagnostics_of_text(sentence: Sentence) -> Iterator[tuple[int, str]]:
    text = sentence.metadata.get("text")
    if text is None:
        return
    # SpaceAfter does not say how many spaces stand between words
    stated, made = text.split(), sentence.written().split()
    if stated != made:
        pairs = zip_longest(stated, made)
        place = next(place for place, (one, other) in enumerate(pairs) if one != other)
        parts = [" ".join(each[place : place + 3]) or "its end" for each in (stated, made)]
        names = [comment.lstrip("# ").partition("=")[0].strip() for comment in sentence.comments]
        line = sentence.line + names.index("text")
        yield line, f"the text has {parts[0]!r} where the words make {parts[1]!r}"


@lru_cache(maxsize=1 << 16)
def _are_features(feats: str) -> bool:
    """Return whether a column is a list of Name=Value, no name twice, or is empty."""
    if feats == _EMPTY:
        return True
    items = [item.partition("=") for item in feats.split("|")]
    names = [name for name, _, _ in items]
    return all(name and value for name, _, value in items) and len(set(names)) == len(names)


def _diagnostics_of_graph(sentence: Sentence) -> Iterator[tuple[int, str]]:
    """Yield the faults of DEPS, and of what multiword tokens and empty nodes have beside it.

    Each node has its arcs, from heads that are there, in their order and none twice, and can be
    reached from the root. A multiword token has no part in tree or graph, and an empty node none
    in the tree.
    """
    first = sentence.line + len(sentence.comments)
    nodes: dict[Node, tuple[int, str]] = {}  # (line, DEPS)
    for number, (before, text) in enumerate(sentence.extras):
        columns, line = text.split("\t"), first + before + number
        is_range = "-" in columns[ID]
        if not is_range:
            nodes[before, int(columns[ID].partition(".")[2])] = line, columns[DEPS]
        for index in range(HEAD, DEPS + 1 if is_range else DEPS):
            if columns[index] != _EMPTY:
                kind = "multiword token" if is_range else "empty node"
                yield line, f"the {kind} {columns[ID]} has a {COLUMNS[index]}"
    if not nodes and set(sentence.column(DEPS)) == {_EMPTY}:
        return
    for word, text in enumerate(sentence.column(DEPS), start=1):
        nodes[word, 0] = sentence.line_of(word), text
    children: dict[Node, list[Node]] = {}
    is_sound = True
    for node, (line, text) in sorted(nodes.items()):
        texts = text.split("|") if text != _EMPTY else []
        matches = [match for arc in texts if (match := _ARC.fullmatch(arc))]
        heads = [(int(match[1]), int(match[2] or 0)) for match in matches]
        faults = {
            "is no list of head:relation": len(matches) < len(texts),
            "has a head that is not there": not nodes.keys() >= set(heads) - {_ROOT},
            "has the node itself as its head": node in heads,
            "has an arc twice": len(set(texts)) < len(texts),
            "is not sorted by head": heads != sorted(heads),
        }
        for fault in [fault for fault, is_there in faults.items() if is_there][:1]:
            is_sound = False
            yield line, f"the DEPS of node {_name(node)} {fault}"
        for head in heads:
            children.setdefault(head, []).append(node)
    reached, pending = {_ROOT}, [_ROOT]
    while pending and is_sound:
        new = set(children.get(pending.pop(), ())) - reached
        reached |= new
        pending += new
    if is_sound and (missing := sorted(nodes.keys() - reached)):
        name = _name(missing[0])
        yield nodes[missing[0]][0], f"by DEPS, node {name} is not reached from the root"


def _name(node: Node) -> str:
    return f"{node[0]}.{node[1]}" if node[1] else str(node[0])
