"""What cannot be right in a sentence that can be used: text, UPOS, FEATS, root, enhanced graph.

    # text = Sue ran                             what words and SpaceAfter in MISC make
    1   Sue    ...  2  nsubj  2:nsubj|4:nsubj    head:relation, sorted by head, each once
    2   ran    ...  0  root   0:root
    2.1 ...         _  _      2:conj             an empty node stands in the graph, not in the tree

No command needs these to be sound; who publishes a treebank wants to know. The validator of
Universal Dependencies (`udtools`) knows many more rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from seqtool.treebank.sentence import COLUMNS, DEPREL, DEPS, FEATS, HEAD, ID, UPOS, Sentence

# fmt: off
UNIVERSAL_TAGS = frozenset({
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN",
    "PUNCT", "SCONJ", "SYM", "VERB", "X",
})
# fmt: on
_ARC = re.compile(r"(0|[1-9][0-9]{0,8})(?:\.([1-9][0-9]{0,8}))?:[^:].*")
_ROOT = (0, 0)
_NONE = "_"

Node = tuple[int, int]  # word number, and the number of the empty node after it or 0


def doubts(sentence: Sentence) -> Iterator[tuple[int, str]]:
    """Yield (line of the file, message) for each line that cannot be right."""
    yield from _doubts_of_text(sentence)
    for word, row in enumerate(sentence.rows, start=1):
        if row[UPOS] != _NONE and row[UPOS] not in UNIVERSAL_TAGS:
            tag = f"the UPOS {row[UPOS]} is none of the {len(UNIVERSAL_TAGS)}"
            yield sentence.line_of(word), f"{tag} of Universal Dependencies"
        if not _are_features(row[FEATS]):
            yield sentence.line_of(word), f"the FEATS {row[FEATS]} are no list of Name=Value"
        if row[DEPREL].partition(":")[0] == "root" and row[HEAD] != "0":
            yield sentence.line_of(word), f"word {word} is a {row[DEPREL]}, but depends on another"
    yield from _doubts_of_enhancement(sentence)


def _doubts_of_text(sentence: Sentence) -> Iterator[tuple[int, str]]:
    text = sentence.metadata.get("text")
    if text is None:
        return
    # how many spaces stand between words is not told by SpaceAfter
    stated, made = text.split(), sentence.written().split()
    if stated != made:
        place = next(
            (i for i, (one, other) in enumerate(zip(stated, made, strict=False)) if one != other),
            min(len(stated), len(made)),
        )
        found = [" ".join(each[place : place + 3]) or "its end" for each in (stated, made)]
        names = [comment.lstrip("# ").partition("=")[0].strip() for comment in sentence.comments]
        line = sentence.line + names.index("text")
        yield line, f"the text has {found[0]!r} where the words make {found[1]!r}"


@lru_cache(maxsize=1 << 16)
def _are_features(feats: str) -> bool:
    """Return whether a column is a list of Name=Value, no name twice, or is empty."""
    if feats == _NONE:
        return True
    items = [item.partition("=") for item in feats.split("|")]
    names = [name for name, _, _ in items]
    return all(name and value for name, _, value in items) and len(set(names)) == len(names)


def _doubts_of_enhancement(sentence: Sentence) -> Iterator[tuple[int, str]]:
    """Yield the lines whose DEPS, or HEAD, cannot be right.

    Each line of the graph has its arcs, from heads that are there, in their order and none twice;
    every node can be reached from the root. A line of a multiword token has no part in tree or
    graph, and that of an empty node none in the tree.
    """
    first = sentence.line + len(sentence.comments)
    nodes: dict[Node, tuple[int, str]] = {}  # (line, DEPS)
    for number, (before, text) in enumerate(sentence.extras):
        columns, line = text.split("\t"), first + before + number
        is_range = "-" in columns[ID]
        if not is_range:
            nodes[before, int(columns[ID].partition(".")[2])] = line, columns[DEPS]
        for index in range(HEAD, DEPS + 1 if is_range else DEPS):
            if columns[index] != _NONE:
                kind = "multiword token" if is_range else "empty node"
                yield line, f"the {kind} {columns[ID]} has a {COLUMNS[index]}"
    deps = sentence.column(DEPS)
    if not nodes and deps.count(_NONE) == len(deps):
        return
    for word, text in enumerate(deps, start=1):
        nodes[word, 0] = sentence.line_of(word), text
    yield from _doubts_of_graph(nodes)


def _doubts_of_graph(nodes: dict[Node, tuple[int, str]]) -> Iterator[tuple[int, str]]:
    children: dict[Node, list[Node]] = {}
    is_sound = True
    for node, (line, text) in sorted(nodes.items()):
        arcs = [_ARC.fullmatch(arc) for arc in text.split("|")] if text != _NONE else []
        heads = [(int(arc[1]), int(arc[2] or 0)) for arc in arcs if arc is not None]
        keys = [(head, arc.string) for head, arc in zip(heads, filter(None, arcs), strict=True)]
        fault = ""
        if None in arcs:
            fault = "is no list of head:relation"
        elif outside := [head for head in heads if head != _ROOT and head not in nodes]:
            fault = f"has the head {_name(outside[0])}, which is not there"
        elif node in heads:
            fault = "has the node itself as its head"
        elif len(set(keys)) < len(keys):
            fault = "has an arc twice"
        elif heads != sorted(heads):
            fault = "is not sorted by head"
        if fault:
            is_sound = False
            yield line, f"the DEPS of node {_name(node)} {fault}"
        for head in heads:
            children.setdefault(head, []).append(node)
    reached, pending = {_ROOT}, [_ROOT]
    while pending and is_sound:
        for node in children.get(pending.pop(), ()):
            if node not in reached:
                reached.add(node)
                pending.append(node)
    if is_sound and (lost := sorted(nodes.keys() - reached)):
        yield nodes[lost[0]][0], f"by DEPS, node {_name(lost[0])} is not reached from the root"


def _name(node: Node) -> str:
    return f"{node[0]}.{node[1]}" if node[1] else str(node[0])
