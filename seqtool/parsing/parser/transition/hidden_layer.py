"""What the classifier sees of a configuration, and its hidden layer, in compiled code.

Slots are the places of a configuration that it looks at, written as addresses:

    s0 s1 ...    the top of the stack, the word below it, ...
    b0 b1 ...    the first word of the buffer, the next one, ...
    .l1 .l2      its leftmost and second leftmost child so far
    .r1 .r2      its rightmost and second rightmost child so far
    .prev .next  the word before and after it in the sentence

`s1.r1.next` is the word after the rightmost child of s1. A measure is a number instead of a word:

    s0.lefts s0.rights   how many children s0 has on its left, on its right
    s1-s0                how far s0 is to the right of s1

The first layer is linear in what stands in each slot, so its products with a type are the same
whenever that type stands there. They are rows of tables, [type * num_slots + slot, hidden], whole
numbers of 1 / `SCALE`. NONE's row is taken off all others and added to the bias once, so that where
nothing stands there is nothing to add. A hidden unit is the activation of a sum of rows. With gates
a row holds the parts of all units, then those of their gates.

"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numba import types

from seqtool.core.arrays import Floats, Ints, Shorts
from seqtool.core.errors import ConfigError
from seqtool.core.instructions import fetch
from seqtool.core.jit import compiled
from seqtool.parsing.parser.transition.transitions import (
    BASE,
    BUFFER,
    FRONT,
    LABEL,
    LEFT1,
    LEFT2,
    LENGTH,
    NUM_LEFT,
    NUM_RIGHT,
    RIGHT1,
    RIGHT2,
    STACK,
    STACK_SIZE,
    TOKENS,
    Configurations,
)

# what a node of an address does: take a word from the stack or buffer, or go on from another word
FROM_STACK, FROM_BUFFER, TO_CHILD, TO_NEIGHBOUR = range(4)
CHILDREN = {"l1": LEFT1, "l2": LEFT2, "r1": RIGHT1, "r2": RIGHT2}
NEIGHBOURS = {"prev": -1, "next": 1}

COUNT, DISTANCE = range(2)
COUNTS = {"lefts": NUM_LEFT, "rights": NUM_RIGHT}
NUM_BUCKETS = 9  # values of a measure: 0 none, 1 + a count up to 7, 1 to 8 for classes of distances

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


SCALE = 1024.0  # of a table's numbers: they reach from -32 to 32 in steps of 0.001
STEP = np.float32(1.0 / SCALE)
AHEAD = 3  # configurations whose rows memory is asked for before they are added
RELU, CUBE, GLU = range(3)
ACTIVATIONS = {"relu": RELU, "cube": CUBE, "glu": GLU}


class Tokens(NamedTuple):
    """What stands for each token of the token arrays (`transitions` draws them).

    Attributes:
        types: its type, whose products are rows of `Tables.types`.
        rows: its number among the tokens that were read in context.
    """

    types: Ints
    rows: Ints


class Tables(NamedTuple):
    """Products with the first layer, int16 [what * num_slots + slot, F].

    Attributes:
        types: of types, with the slots for words.
        labels: of 1 + label, with the slots for labels.
        measures: of classes of measures, with each measure.
        contexts: of tokens as an encoder reads them, with the slots for contexts.
    """

    types: Shorts
    labels: Shorts
    measures: Shorts
    contexts: Shorts


class Seen(NamedTuple):
    """What stands in the slots of N configurations.

    Attributes:
        words: what is noted of the token in each slot for a word, 0 for none; int32 [N, S].
        labels: 1 + label, or 0; int32 [N, C].
        measures: classes; int32 [N, M].
    """

    words: Ints
    labels: Ints
    measures: Ints


_ints = types.int32[::1]
_table = types.int32[:, ::1]
_products = types.int16[:, ::1]
_floats = types.float32[:, ::1]
_int = types.int64
_slots = types.NamedTuple((_table, _ints, _ints, _table, _ints), Slots)
_tokens = types.NamedUniTuple(_ints, 2, Tokens)
_tables = types.NamedUniTuple(_products, 4, Tables)
_seen = types.NamedUniTuple(_table, 3, Seen)


@compiled(types.void(_table, _table, _int, _table, _ints))
def _visit(configs, nodes, config, addresses, words):  # type: ignore[no-untyped-def]
    """Note the word at each node of the addresses; -1 where there is none."""
    base = configs[config, BASE]
    length = configs[config, LENGTH]
    for node in range(addresses.shape[0]):
        # a node stands behind the one that it goes on from, whose word is known by now
        before, kind, argument = addresses[node, 0], addresses[node, 1], addresses[node, 2]
        word = -1
        if kind == FROM_STACK:
            position = configs[config, STACK_SIZE] - 1 - argument
            if position >= 0:
                word = nodes[base + position, STACK]
        elif kind == FROM_BUFFER:
            position = configs[config, FRONT] + argument
            if position <= length:
                word = nodes[base + position, BUFFER]
        elif words[before] >= 0:
            if kind == TO_CHILD:
                child = nodes[base + words[before], argument]
                word = child if child > 0 else -1  # ROOT is nobody's child: 0 means none
            else:
                word = words[before] + argument  # of ROOT, the word before is -1: none
                if word > length:
                    word = -1
        words[node] = word


@compiled(_int(_table, _table, _int, _ints, _table, _int))
def _bucket(configs, nodes, config, words, measures, which):  # type: ignore[no-untyped-def]
    """Return the class of a measure, from 0 (a word is missing) to NUM_BUCKETS - 1."""
    word = words[measures[which, 1]]
    if word < 0:
        return 0
    if measures[which, 0] == COUNT:
        count = nodes[configs[config, BASE] + word, measures[which, 2]]
        return min(1 + count, NUM_BUCKETS - 1)
    other = words[measures[which, 2]]
    if other < 0:
        return 0
    # backwards (after a swap), then 1, 2, 3, 4, 5-6, 7-10, more
    distance = other - word
    if distance < 1:
        return 1
    if distance <= 4:
        return 1 + distance
    return 6 if distance <= 6 else 7 if distance <= 10 else 8


def measure_text(kind: int, bucket: int) -> str:
    """Return what a class of a measure stands for, as in `2`, `7-10` or `11+`; "" for none."""
    if bucket == 0:
        return ""
    if kind == COUNT:
        return f"{bucket - 1}+" if bucket == NUM_BUCKETS - 1 else str(bucket - 1)
    return ("<1", "1", "2", "3", "4", "5-6", "7-10", "11+")[bucket - 1]


@compiled(types.void(_table, _table, _ints, _ints, _slots, _seen))
def _extract(configs, nodes, which, token_numbers, slots, seen):  # type: ignore[no-untyped-def]
    words = np.empty(slots.nodes.shape[0], np.int32)
    for place in range(which.shape[0]):
        config = which[place]
        base, tokens = configs[config, BASE], configs[config, TOKENS]
        _visit(configs, nodes, config, slots.nodes, words)
        for slot in range(slots.words.shape[0]):
            word = words[slots.words[slot]]
            # row 0 of the token arrays is NONE, and so is number 0
            seen.words[place, slot] = token_numbers[tokens + word] if word >= 0 else 0
        for slot in range(slots.labels.shape[0]):
            word = words[slots.labels[slot]]
            # a word without a head has label -1: no label, as if no word stood there
            seen.labels[place, slot] = nodes[base + word, LABEL] + 1 if word >= 0 else 0
        for slot in range(slots.measures.shape[0]):
            bucket = _bucket(configs, nodes, config, words, slots.measures, slot)
            seen.measures[place, slot] = bucket


@compiled(types.void(_products, _ints, _int, _int, types.int32[::1]))
def _add_rows(table, rows, begin, end, sums):  # type: ignore[no-untyped-def]
    """Add rows of a table."""
    # eight at a time, so that the sums are fetched and stored less often
    at = begin
    while at + 8 <= end:
        a, b, c, d = rows[at], rows[at + 1], rows[at + 2], rows[at + 3]
        e, f, g, h = rows[at + 4], rows[at + 5], rows[at + 6], rows[at + 7]
        for unit in range(sums.shape[0]):
            sums[unit] += (
                (np.int32(table[a, unit]) + np.int32(table[b, unit]))
                + (np.int32(table[c, unit]) + np.int32(table[d, unit]))
                + (np.int32(table[e, unit]) + np.int32(table[f, unit]))
                + (np.int32(table[g, unit]) + np.int32(table[h, unit]))
            )
        at += 8
    while at + 2 <= end:
        a, b = rows[at], rows[at + 1]
        for unit in range(sums.shape[0]):
            sums[unit] += np.int32(table[a, unit]) + np.int32(table[b, unit])
        at += 2
    if at < end:
        a = rows[at]
        for unit in range(sums.shape[0]):
            sums[unit] += np.int32(table[a, unit])


@compiled(types.void(_products, _int))
def _fetch_row(table, row):  # type: ignore[no-untyped-def]
    """Ask memory for a row of a table."""
    begin = row * table.shape[1]
    for unit in range(0, table.shape[1], 32):  # 32 numbers of two bytes are a line of the cache
        fetch(table, begin + unit)


@compiled(
    types.void(
        _table,
        _table,
        _ints,
        _tokens,
        _slots,
        _tables,
        _ints,
        _int,
        _floats,
        _floats,
    )
)
def _hidden(  # type: ignore[no-untyped-def]
    configs, nodes, which, tokens_seen, slots, tables, bias, activation, hidden, gates
):
    token_types, token_rows = tokens_seen.types, tokens_seen.rows
    words = np.empty(slots.nodes.shape[0], np.int32)
    num_words, num_labels = slots.words.shape[0], slots.labels.shape[0]
    num_measures, num_contexts = slots.measures.shape[0], slots.contexts.shape[0]
    # the rows to add, for `AHEAD` configurations in turn, and where those of each table end
    widest = num_words + num_labels + num_measures + num_contexts
    rows = np.empty(AHEAD * widest, np.int32)
    ends = np.empty((AHEAD, 4), np.int32)
    # 32 bits: to overflow, it would take some 65,000 rows of the largest numbers
    sums = np.empty(bias.shape[0], np.int32)
    # memory takes longer than adding: the rows of one configuration are asked for, and those of an
    # earlier one, which have come meanwhile, are added
    for place in range(which.shape[0] + AHEAD - 1):
        if place < which.shape[0]:
            config = which[place]
            base, tokens = configs[config, BASE], configs[config, TOKENS]
            _visit(configs, nodes, config, slots.nodes, words)
            turn = place % AHEAD
            num = turn * widest
            # where nothing stands, there is nothing to add: NONE is in the bias already
            for slot in range(num_words):
                word = words[slots.words[slot]]
                if word >= 0:
                    rows[num] = token_types[tokens + word] * num_words + slot
                    _fetch_row(tables.types, rows[num])
                    num += 1
            ends[turn, 0] = num
            # these tables are small and stay in the cache, so that none of their rows is asked for
            for slot in range(num_labels):
                word = words[slots.labels[slot]]
                if word >= 0:
                    label = nodes[base + word, LABEL] + 1
                    if label > 0:
                        rows[num] = label * num_labels + slot
                        num += 1
            ends[turn, 1] = num
            for slot in range(num_measures):
                bucket = _bucket(configs, nodes, config, words, slots.measures, slot)
                if bucket > 0:
                    rows[num] = bucket * num_measures + slot
                    num += 1
            ends[turn, 2] = num
            for slot in range(num_contexts):
                word = words[slots.contexts[slot]]
                if word >= 0:
                    rows[num] = token_rows[tokens + word] * num_contexts + slot
                    _fetch_row(tables.contexts, rows[num])
                    num += 1
            ends[turn, 3] = num
        # the first rounds only ask for rows, the last ones only add
        done = place - (AHEAD - 1)
        if done < 0:
            continue
        turn = done % AHEAD
        # whole numbers, whose sum is the same in any order
        for unit in range(sums.shape[0]):
            sums[unit] = bias[unit]
        _add_rows(tables.types, rows, turn * widest, ends[turn, 0], sums)
        _add_rows(tables.labels, rows, ends[turn, 0], ends[turn, 1], sums)
        _add_rows(tables.measures, rows, ends[turn, 1], ends[turn, 2], sums)
        _add_rows(tables.contexts, rows, ends[turn, 2], ends[turn, 3], sums)
        if activation == RELU:
            for unit in range(sums.shape[0]):
                hidden[done, unit] = max(np.float32(sums[unit]), np.float32(0.0)) * STEP
        elif activation == GLU:
            num_units = hidden.shape[1]
            # the tanh of all gates is taken afterwards, by NumPy, which does several at a time
            for unit in range(num_units):
                hidden[done, unit] = np.float32(sums[unit]) * STEP
                # half, as the logistic function is a tanh of half its argument
                gates[done, unit] = np.float32(sums[num_units + unit]) * (STEP * np.float32(0.5))
        else:
            for unit in range(sums.shape[0]):
                value = np.float32(sums[unit]) * STEP
                hidden[done, unit] = value * value * value


@compiled(types.void(_floats, _floats))
def _open_gates(hidden, gates):  # type: ignore[no-untyped-def]
    """Multiply units by their gates, which are given as tanh."""
    half = np.float32(0.5)  # a Python float would make it all double precision
    for place in range(hidden.shape[0]):
        for unit in range(hidden.shape[1]):
            hidden[place, unit] *= half + half * gates[place, unit]


@compiled(types.void(_floats, types.int64[::1], _products, _int))
def round_into(values, rows, table, begin):  # type: ignore[no-untyped-def]
    """Write values, in steps of 1 / SCALE, into some rows of a table, from column `begin` on."""
    low, high = np.float32(-32767.0), np.float32(32767.0)
    for place in range(values.shape[0]):
        row = rows[place]
        for column in range(values.shape[1]):
            # an int16 must not wrap around, so what is too large is cut off
            value = min(max(values[place, column], low), high)
            table[row, begin + column] = np.int16(np.int32(np.rint(value)))


def extract(configurations: Configurations, which: Ints, token_numbers: Ints, slots: Slots) -> Seen:
    """Return what stands in each slot of some configurations, [N].

    Of a token, its number is noted, `token_numbers`, such as its type.
    """
    columns = (slots.words, slots.labels, slots.measures)
    seen = Seen(*(np.empty((len(which), len(column)), np.int32) for column in columns))
    _extract(configurations.configs, configurations.nodes, which, token_numbers, slots, seen)
    return seen


def hidden_layer(
    configurations: Configurations,
    which: Ints,
    tokens: Tokens,
    slots: Slots,
    tables: Tables,
    bias: Ints,
    activation: str,
    hidden: Floats,
    gates: Floats,
) -> None:
    """Fill `hidden`, [len(which), hidden units], from tables of products (see above).

    `bias` is that of the first layer with what NONE adds in every slot, in steps of 1 / SCALE.
    `gates` [len(which), units] is room to work in; without gates it has no columns.
    """
    _hidden(
        configurations.configs,
        configurations.nodes,
        which,
        tokens,
        slots,
        tables,
        bias,
        ACTIVATIONS[activation],
        hidden,
        gates,
    )
    if ACTIVATIONS[activation] == GLU:
        np.tanh(gates, out=gates)
        _open_gates(hidden, gates)
