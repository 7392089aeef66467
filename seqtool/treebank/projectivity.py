"""Projectivity, projective order, and the pseudo-projective transformation.

An arc is projective when its head dominates every word between its two ends. A projective parser
is trained on trees whose other arcs were lifted, and its own trees get them back afterwards, by
labels that name the original head's relation (Nivre & Nilsson 2005, "Pseudo-projective dependency
parsing", the encoding `Head`).

Heads are those of words 1..n, 0 for ROOT; they must be a tree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from numba import types

from seqtool.core.arrays import Ints
from seqtool.core.jit import compiled

LIFTED = "↑"  # nsubj↑advcl: an nsubj whose head is an advcl somewhere below the head it has now

_ints = types.int32[::1]
_int = types.int64


@compiled(types.void(_ints, _ints, _ints, _ints))
def _traverse(heads, enters, leaves, order):  # type: ignore[no-untyped-def]
    """Number the words (0 ROOT) depth first, children from left to right.

    `a` dominates `b` where enters[a] <= enters[b] < leaves[a]; `order` numbers each word after its
    left children and before its right ones: the projective order.
    """
    size = heads.shape[0]
    # children as linked lists; from the last word on, so that each list begins at the left
    first, following = np.zeros(size, np.int32), np.zeros(size, np.int32)
    for word in range(size - 1, 0, -1):
        following[word] = first[heads[word]]
        first[heads[word]] = word
    order[:] = -1
    word, clock, rank = 0, 1, 0
    enters[0] = 0
    while True:
        child = first[word]  # the next one that was not visited; 0: none is left
        # all left children are done, so it is the word's turn
        if order[word] < 0 and (child == 0 or child > word):
            order[word] = rank
            rank += 1
        if child:
            first[word] = following[child]  # so that coming back needs no stack
            enters[child] = clock
            clock += 1
            word = child
        else:
            leaves[word] = clock
            if word == 0:
                return
            word = heads[word]


@compiled(_int(_ints))
def _shortest_non_projective(heads):  # type: ignore[no-untyped-def]
    """Return the first word with the shortest arc that is not projective, or 0."""
    size = heads.shape[0]
    enters, leaves = np.zeros(size, np.int32), np.zeros(size, np.int32)
    order = np.zeros(size, np.int32)
    _traverse(heads, enters, leaves, order)
    shortest, length = 0, size
    for word in range(1, size):
        head = heads[word]
        if abs(head - word) >= length:  # no shorter than the one found; of equals the first
            continue
        for between in range(min(head, word) + 1, max(head, word)):
            if not enters[head] <= enters[between] < leaves[head]:
                shortest, length = word, abs(head - word)
                break
    return shortest


@compiled(types.void(_ints))
def _lift(heads):  # type: ignore[no-untyped-def]
    """Lift the shortest arc that is not projective by one step, until there is none.

    A root word dominates all others, so that no arc of its is lifted and it stays the only one.
    """
    while True:
        word = _shortest_non_projective(heads)
        if word == 0:
            return
        heads[word] = heads[heads[word]]  # to the head of its head


@compiled(types.void(_ints, _ints))
def _join(heads, components):  # type: ignore[no-untyped-def]
    """Note the maximal projective components: what arc-standard builds without swapping."""
    size = heads.shape[0]
    missing, stack = np.zeros(size, np.int32), np.zeros(size, np.int32)  # children not yet attached
    joined = np.full(size, -1, np.int32)
    for word in range(1, size):
        missing[heads[word]] += 1
    depth = 0
    for word in range(size):
        stack[depth] = word
        depth += 1
        # attach as early as possible: arc-standard can take no child after its head is popped
        while depth > 1:
            below, top = stack[depth - 2], stack[depth - 1]
            if heads[below] == top and missing[below] == 0:
                joined[below] = top
                missing[top] -= 1
                stack[depth - 2] = top
            elif heads[top] == below and missing[top] == 0:
                joined[top] = below
                missing[below] -= 1
            else:
                break
            depth -= 1
    # what is left unattached are the roots of the components
    for word in range(size):
        root = word
        while joined[root] >= 0:
            root = joined[root]
        components[word] = root


@compiled(_int(_ints, _ints, _ints))
def first_non_projective(heads, tokens, lengths):  # type: ignore[no-untyped-def]
    """Return the place of the first non-projective sentence of token arrays, or -1."""
    for place in range(tokens.shape[0]):
        tree = heads[tokens[place] : tokens[place] + lengths[place] + 1]
        if _shortest_non_projective(tree) > 0:
            return place
    return -1


@compiled(types.void(_ints, _ints, _ints, _ints, _ints))
def _orders(heads, tokens, lengths, order, components):  # type: ignore[no-untyped-def]
    for place in range(tokens.shape[0]):
        begin, end = tokens[place], tokens[place] + lengths[place] + 1
        enters, leaves = np.zeros(end - begin, np.int32), np.zeros(end - begin, np.int32)
        _traverse(heads[begin:end], enters, leaves, order[begin:end])
        _join(heads[begin:end], components[begin:end])


def projective_orders(heads: Ints, tokens: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """Return of every token its place in projective order and the root of its maximal component.

    The component is one that is built without swapping (Nivre, Kuhlmann & Hall 2009). Both
    results are token arrays of numbers within the sentence: of one with ROOT at row r of the array,
    word i is at row r + i.
    """
    order, components = np.zeros_like(heads), np.zeros_like(heads)
    _orders(heads, tokens, lengths, order, components)
    return order, components


def is_projective(heads: Sequence[int]) -> bool:
    """Return whether every arc of a tree is projective."""
    return not _shortest_non_projective(_tree(heads))


def non_projective_arcs(heads: Sequence[int]) -> list[int]:
    """Return the words, ascending, whose arc from their head is not projective.

    An arc is projective if every word between head and dependent descends from the head (Kübler,
    McDonald & Nivre 2009, definition 2.5).
    """
    tree = _tree(heads)
    enters, leaves, order = np.zeros((3, len(tree)), np.int32)
    _traverse(tree, enters, leaves, order)
    crossing = []
    for word, head in enumerate(heads, start=1):
        between = enters[min(word, head) + 1 : max(word, head)]
        if len(between) and (between.min() < enters[head] or between.max() >= leaves[head]):
            crossing.append(word)
    return crossing


def projectivise(heads: Sequence[int], deprels: Sequence[str]) -> tuple[list[int], list[str]]:
    """Lift the arcs of a tree until all are projective, the shortest one first each time.

    A lifted arc goes to the head of its head. Its word gets its own label, `LIFTED`, and the label
    of its original head. A projective tree comes back as it is.
    """
    lifted = _tree(heads)
    _lift(lifted)
    new_heads: list[int] = lifted[1:].tolist()
    new_deprels = [
        deprel if old == new else f"{deprel}{LIFTED}{deprels[old - 1]}"
        for deprel, old, new in zip(deprels, heads, new_heads, strict=True)
    ]
    return new_heads, new_deprels


def deprojectivise(heads: Sequence[int], deprels: Sequence[str]) -> tuple[list[int], list[str]]:
    """Undo `projectivise` on a tree whose labels a parser predicted.

    From the head of a lifted arc downwards, breadth first and from left to right, the first word
    with the label that is asked for becomes the head; where there is none, the arc stays. Words
    below the dependent are left out, so that the result is a tree with the same root.
    """
    new_heads = list(heads)
    own = [deprel.partition(LIFTED)[0] for deprel in deprels]
    parts = enumerate((deprel.partition(LIFTED) for deprel in deprels), start=1)
    wanted = {word: label for word, (_, is_lifted, label) in parts if is_lifted}
    if not wanted:
        return new_heads, own
    children: list[list[int]] = [[] for _ in range(len(heads) + 1)]
    for word, head in enumerate(heads, 1):
        children[head].append(word)
    # from the root downwards, so that the heads of a chain of lifted arcs are put right first
    for word in _breadth_first(children, 0):
        if word not in wanted or new_heads[word - 1] == 0:
            continue
        for candidate in _breadth_first(children, new_heads[word - 1], leave_out=word):
            if own[candidate - 1] == wanted[word]:
                children[new_heads[word - 1]].remove(word)
                children[candidate] = sorted([*children[candidate], word])
                new_heads[word - 1] = candidate
                break
    return new_heads, own


def _breadth_first(children: list[list[int]], start: int, leave_out: int = 0) -> list[int]:
    """Return the words below `start`, but for one word and those below it."""
    found: list[int] = []
    queue = deque(children[start])
    while queue:
        word = queue.popleft()
        if word != leave_out:
            found.append(word)
            queue.extend(children[word])
    return found


def _tree(heads: Sequence[int]) -> Ints:
    """Return heads as compiled code takes them, ROOT's first; refuse what would lead it astray."""
    tree = np.asarray([-1, *heads], np.int32)
    if tree[1:].size and not (tree[1:].min() >= 0 and tree[1:].max() <= len(heads)):
        raise ValueError("a head is not a word of the sentence")
    return tree
