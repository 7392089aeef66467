"""Transition systems and trees in plain Python: brute force, to judge the compiled code by.

The systems are the textbook's, without any rule about roots: whatever leads to a tree with one
root is legal, which is found out by trying.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from seqtool.core.arrays import Ints
from seqtool.parsing.parser.transition import transitions

SHIFT, REDUCE, LEFT, RIGHT, ROOT = range(5)
Heads = tuple[int, ...]  # of words 1..n; 0 is ROOT, -1 no head yet


class Configuration(NamedTuple):
    stack: tuple[int, ...]  # the top comes last
    buffer: tuple[int, ...]
    heads: Heads


def initial(length: int) -> Configuration:
    return Configuration((0,), tuple(range(1, length + 1)), (-1,) * length)


def attach(heads: Heads, child: int, head: int) -> Heads:
    return (*heads[: child - 1], head, *heads[child:])


def successors(system: str, config: Configuration) -> dict[int, Configuration]:
    """What each action makes of a configuration, legal in the end or not."""
    stack, buffer, heads = config
    found = {}

    def arc(action: int, stack: Heads, buffer: Heads, child: int, head: int) -> None:
        if child > 0 and heads[child - 1] < 0:
            if action == RIGHT and head == 0:
                action = ROOT
            found[action] = Configuration(stack, buffer, attach(heads, child, head))

    if buffer:
        found[SHIFT] = Configuration((*stack, buffer[0]), buffer[1:], heads)
    if system == "arc-eager":
        if buffer:
            arc(LEFT, stack[:-1], buffer, stack[-1], buffer[0])
            arc(RIGHT, (*stack, buffer[0]), buffer[1:], buffer[0], stack[-1])
        if stack[-1] > 0 and heads[stack[-1] - 1] >= 0:
            found[REDUCE] = Configuration(stack[:-1], buffer, heads)
        return found
    if len(stack) > 1:
        *rest, below, top = stack
        arc(RIGHT, (*rest, below), buffer, top, below)
        if system == "arc-hybrid":
            if buffer:
                arc(LEFT, (*rest, below), buffer, top, buffer[0])
        else:
            arc(LEFT, (*rest, top), buffer, below, top)
            if system == "swap" and 0 < below < top:
                found[REDUCE] = Configuration((*rest, top), (below, *buffer), heads)
    return found


@cache
def reachable(system: str, config: Configuration) -> frozenset[Heads]:
    """All trees with one root that a configuration can end in."""
    if -1 not in config.heads:
        return frozenset({config.heads} if is_tree(config.heads) else ())
    return frozenset().union(
        *(reachable(system, following) for following in successors(system, config).values())
    )


def legal(system: str, config: Configuration) -> dict[int, Configuration]:
    """The successors from which a tree can come; none of a configuration that is a tree."""
    if -1 not in config.heads:
        return {}
    return {
        action: following
        for action, following in successors(system, config).items()
        if reachable(system, following)
    }


def least_loss(system: str, config: Configuration, gold: Heads) -> int:
    """How many words of the best tree within reach have a wrong head."""
    return min(
        sum(head != wanted for head, wanted in zip(tree, gold, strict=True))
        for tree in reachable(system, config)
    )


def is_tree(heads: Heads) -> bool:
    """One root, no cycle."""
    if heads.count(0) != 1:
        return False
    for start in range(1, len(heads) + 1):
        word = start
        for _ in heads:
            word = heads[word - 1] if word else 0
        if word:
            return False
    return True


def dominates(heads: Heads, above: int, word: int) -> bool:
    while word not in (above, 0):
        word = heads[word - 1]
    return word == above


def non_projective_words(heads: Heads) -> list[int]:
    """The words whose head does not dominate every word between."""
    return [
        word
        for word, head in enumerate(heads, 1)
        if not all(
            dominates(heads, head, between)
            for between in range(min(head, word) + 1, max(head, word))
        )
    ]


@cache
def trees(length: int) -> tuple[Heads, ...]:
    """All trees with one root."""
    return tuple(filter(is_tree, product(range(length + 1), repeat=length)))


@cache
def projective_trees(length: int) -> tuple[Heads, ...]:
    """All of them whose arcs are all projective."""
    return tuple(heads for heads in trees(length) if not non_projective_words(heads))


def all_trees(length: int, *, projective: bool) -> tuple[Heads, ...]:
    return projective_trees(length) if projective else trees(length)


def all_configurations(system: str, length: int) -> Iterator[Configuration]:
    """All configurations that legal actions lead to, final ones left out."""
    seen = set()
    waiting = [initial(length)]
    while waiting:
        config = waiting.pop()
        if config in seen or -1 not in config.heads:
            continue
        seen.add(config)
        yield config
        waiting.extend(legal(system, config).values())


def forced(system: str, config: Configuration) -> Configuration:
    """On from a configuration as long as there is one action, and no label to choose for it."""
    following = legal(system, config)
    while len(following) == 1 and not following.keys() & {LEFT, RIGHT, ROOT}:
        [config] = following.values()
        following = legal(system, config)
    return config


def int32(values: Any) -> Ints:
    return np.asarray(values, np.int32)


def load(batch: Any, row: int, config: Configuration, tokens: int = 1) -> None:
    """Write a configuration into a row of `Configurations`, as `states` draws it."""
    stack, buffer, heads = config
    length = len(heads)
    base = batch.configs[row, transitions.BASE]
    front = length + 1 - len(buffer)
    batch.configs[row] = (base, tokens, length, len(stack), front, heads.count(-1))
    nodes = batch.nodes[base : base + length + 1]
    nodes[:] = 0
    nodes[:, transitions.HEAD] = (-1, *heads)
    nodes[:, transitions.LABEL] = -1
    nodes[: len(stack), transitions.STACK] = stack
    nodes[front:, transitions.BUFFER] = buffer
    for head in range(length + 1):
        children = [word for word in range(1, length + 1) if heads[word - 1] == head]
        left = [word for word in children if word < head]
        right = [word for word in reversed(children) if word > head]
        nodes[head, [transitions.NUM_LEFT, transitions.NUM_RIGHT]] = len(left), len(right)
        nodes[head, [transitions.LEFT1, transitions.LEFT2]] = ([*left, 0, 0])[:2]
        nodes[head, [transitions.RIGHT1, transitions.RIGHT2]] = ([*right, 0, 0])[:2]


def snapshot(batch: Any, row: int) -> Ints:
    """A configuration's numbers, but for its place, labels and what stack and buffer once held."""
    base, _, length, size, front, _ = batch.configs[row]
    nodes = batch.nodes[base : base + length + 1].copy()
    nodes[:, transitions.LABEL] = 0
    nodes[size:, transitions.STACK] = 0
    nodes[:front, transitions.BUFFER] = 0
    return np.concatenate([batch.configs[row, 2:], nodes.ravel()])
