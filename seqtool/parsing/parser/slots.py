"""Slots: the places of a configuration that the classifier looks at, written as addresses.

    s0 s1 ...    the top of the stack, the word below it, ...
    b0 b1 ...    the first word of the buffer, the next one, ...
    .l1 .l2      its leftmost and second leftmost child so far
    .r1 .r2      its rightmost and second rightmost child so far
    .prev .next  the word before and after it in the sentence

`s1.r1.next` is the word after the rightmost child of s1. A measure is a number instead of a word:

    s0.lefts s0.rights   how many children s0 has on its left, on its right
    s1-s0                how far s0 is to the right of s1
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from seqtool.core.arrays import Ints
from seqtool.core.errors import ConfigError
from seqtool.parsing.parser.configurations import LEFT1, LEFT2, NUM_LEFT, NUM_RIGHT, RIGHT1, RIGHT2

# what a node of an address does: take a word from the stack or buffer, or go on from another word
FROM_STACK, FROM_BUFFER, TO_CHILD, TO_NEIGHBOUR = range(4)
CHILDREN = {"l1": LEFT1, "l2": LEFT2, "r1": RIGHT1, "r2": RIGHT2}
NEIGHBOURS = {"prev": -1, "next": 1}

COUNT, DISTANCE = range(2)
COUNTS = {"lefts": NUM_LEFT, "rights": NUM_RIGHT}
NUM_BUCKETS = 9  # values of a measure: 0 none, 1 + a count up to 7, 1.. for classes of distances

_WORD = re.compile(r"[sb][0-9]")
_HINT = "write s0, b1, s0.l1, s1.r2.next ...; steps are l1 l2 r1 r2 prev next"
_MEASURE_HINT = "write s0.lefts, s1.rights or s1-s0"


class Slots(NamedTuple):
    """Addresses as compiled code reads them.

    Attributes:
        nodes: int32 [num_nodes, 3], the parts of all addresses: the node to go on from (-1: none),
            what to do, and its argument.
        words: int32, the node of each slot that looks at a word.
        labels: int32, the node of each slot that looks at the label of a word's arc.
        measures: int32 [num_measures, 3]: kind, node, and column of counts or second node.
        contexts: int32, the node of each slot that looks at a word in its context.
    """

    nodes: Ints
    words: Ints
    labels: Ints
    measures: Ints
    contexts: Ints


def compile_slots(
    words: Sequence[str],
    labels: Sequence[str],
    measures: Sequence[str],
    contexts: Sequence[str] = (),
) -> Slots:
    """Return addresses and measures as tables.

    Raises:
        ConfigError: one that cannot be read; it is quoted.
    """
    table: dict[str, int] = {}
    rows: list[tuple[int, int, int]] = []

    def node(address: str) -> int:
        if address not in table:
            before, _, step = address.rpartition(".")
            if not before:
                if not _WORD.fullmatch(address):
                    raise ConfigError(f"{address!r} is no place of a configuration", hint=_HINT)
                kind = FROM_STACK if address[0] == "s" else FROM_BUFFER
                row = (-1, kind, int(address[1]))
            elif step in CHILDREN:
                row = (node(before), TO_CHILD, CHILDREN[step])
            elif step in NEIGHBOURS:
                row = (node(before), TO_NEIGHBOUR, NEIGHBOURS[step])
            else:
                raise ConfigError(f"{address!r} has the unknown step {step!r}", hint=_HINT)
            table[address] = len(rows)
            rows.append(row)
        return table[address]

    def column(addresses: Iterable[str]) -> Ints:
        return np.asarray([node(address) for address in addresses], np.int32)

    def measure(text: str) -> tuple[int, int, int]:
        first, dash, second = text.partition("-")
        if dash:
            return DISTANCE, node(first), node(second)
        address, _, count = text.rpartition(".")
        if not address or count not in COUNTS:
            raise ConfigError(f"{text!r} is no measure", hint=_MEASURE_HINT)
        return COUNT, node(address), COUNTS[count]

    of_words, of_labels, of_contexts = column(words), column(labels), column(contexts)
    measured = np.asarray([measure(text) for text in measures], np.int32).reshape(-1, 3)
    nodes = np.asarray(rows, np.int32).reshape(-1, 3)
    return Slots(nodes, of_words, of_labels, measured, of_contexts)
