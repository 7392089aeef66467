"""The enhanced graph of a sentence, column DEPS: what keeps it from being one.

    1   Sue    ...  2  nsubj  2:nsubj|4:nsubj    head:relation, sorted by head, each once
    2   ran    ...  0  root   0:root
    2.1 ...         _  _      2:conj             an empty node stands in the graph, not in the tree

No command needs the graph, so a sentence without a sound one is of use; who publishes a treebank
wants to know.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from seqtool.treebank.sentence import COLUMNS, DEPS, HEAD, ID, Sentence

_ARC = re.compile(r"(0|[1-9][0-9]{0,8})(?:\.([1-9][0-9]{0,8}))?:[^:].*")
_ROOT = (0, 0)
_NONE = "_"

Node = tuple[int, int]  # word number, and the number of the empty node after it or 0


def doubts(sentence: Sentence) -> Iterator[tuple[int, str]]:
    """Yield (line of the file, message) for each line whose DEPS, or HEAD, cannot be right.

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
