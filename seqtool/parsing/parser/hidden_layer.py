"""What the classifier sees of configurations, and its hidden layer, in compiled code.

The first layer is linear in what stands in each slot, so its products with a type are the same
whenever that type stands there. They are rows of tables, [type * num_slots + slot, hidden], whole
numbers of 1 / `SCALE`. NONE's row is taken off all others and added to the bias once, so that where
nothing stands there is nothing to add. A hidden unit is the activation of a sum of rows. With gates
a row holds the parts of all units, then those of their gates.

Imports Numba, so on use only.
"""

from __future__ import annotations

import numpy as np
from numba import types

from seqtool.core.arrays import Floats, Ints, Shorts
from seqtool.core.compiled import compiled, fetch
from seqtool.parsing.parser.configurations import (
    BASE,
    BUFFER,
    FRONT,
    LABEL,
    LENGTH,
    STACK,
    STACK_SIZE,
    TOKENS,
)
from seqtool.parsing.parser.slots import (
    COUNT,
    FROM_BUFFER,
    FROM_STACK,
    NUM_BUCKETS,
    TO_CHILD,
    Slots,
)
from seqtool.parsing.parser.transitions import Configurations

SCALE = 1024.0  # of a table's numbers: they reach from -32 to 32 in steps of 0.001
STEP = np.float32(1.0 / SCALE)
AHEAD = 3  # configurations whose rows memory is asked for before they are added
RELU, CUBE, GLU = range(3)
ACTIVATIONS = {"relu": RELU, "cube": CUBE, "glu": GLU}


_ints = types.int32[::1]
_table = types.int32[:, ::1]
_products = types.int16[:, ::1]
_floats = types.float32[:, ::1]
_int = types.int64
_state = (_table, _table, _ints, _ints)  # configs, nodes, which of them, types of tokens
_slots = (_table, _ints, _ints, _table)
_tables = (_products, _products, _products, _products)


@compiled(types.void(_table, _table, _int, _table, _ints))
def _visit(configs, nodes, config, addresses, words):  # type: ignore[no-untyped-def]
    """The word at each node of the addresses; -1 where there is none."""
    base = configs[config, BASE]
    length = configs[config, LENGTH]
    for node in range(addresses.shape[0]):
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
                word = child if child > 0 else -1
            else:
                word = words[before] + argument
                if word > length:
                    word = -1
        words[node] = word


@compiled(_int(_table, _table, _int, _ints, _table, _int))
def _bucket(configs, nodes, config, words, measures, which):  # type: ignore[no-untyped-def]
    """The class of a measure, from 0 (a word is missing) to NUM_BUCKETS - 1."""
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


@compiled(types.void(*_state, *_slots, _table, _table, _table))
def _extract(  # type: ignore[no-untyped-def]
    configs, nodes, which, token_types, addresses, word_slots, label_slots, measures,
    types_out, labels_out, measures_out,
):  # fmt: skip
    words = np.empty(addresses.shape[0], np.int32)
    for place in range(which.shape[0]):
        config = which[place]
        base, tokens = configs[config, BASE], configs[config, TOKENS]
        _visit(configs, nodes, config, addresses, words)
        for slot in range(word_slots.shape[0]):
            word = words[word_slots[slot]]
            types_out[place, slot] = token_types[tokens + word] if word >= 0 else 0
        for slot in range(label_slots.shape[0]):
            word = words[label_slots[slot]]
            labels_out[place, slot] = nodes[base + word, LABEL] + 1 if word >= 0 else 0
        for slot in range(measures.shape[0]):
            bucket = _bucket(configs, nodes, config, words, measures, slot)
            measures_out[place, slot] = bucket


@compiled(types.void(_products, _ints, _int, _int, types.int32[::1]))
def _add_rows(table, rows, begin, end, sums):  # type: ignore[no-untyped-def]
    """Add rows of a table, eight at a time, so that the sums are fetched and stored less often."""
    at = begin
    while at + 8 <= end:
        a, b, c, d = rows[at], rows[at + 1], rows[at + 2], rows[at + 3]
        e, f, g, h = rows[at + 4], rows[at + 5], rows[at + 6], rows[at + 7]
        for unit in range(sums.shape[0]):
            sums[unit] += (
                (types.int32(table[a, unit]) + types.int32(table[b, unit]))
                + (types.int32(table[c, unit]) + types.int32(table[d, unit]))
                + (types.int32(table[e, unit]) + types.int32(table[f, unit]))
                + (types.int32(table[g, unit]) + types.int32(table[h, unit]))
            )
        at += 8
    while at + 2 <= end:
        a, b = rows[at], rows[at + 1]
        for unit in range(sums.shape[0]):
            sums[unit] += types.int32(table[a, unit]) + types.int32(table[b, unit])
        at += 2
    if at < end:
        a = rows[at]
        for unit in range(sums.shape[0]):
            sums[unit] += types.int32(table[a, unit])


@compiled(types.void(_products, _int))
def _fetch_row(table, row):  # type: ignore[no-untyped-def]
    """Ask memory for a row of a table, a line of 32 numbers after the other."""
    begin = row * table.shape[1]
    for unit in range(0, table.shape[1], 32):
        fetch(table, begin + unit)


@compiled(types.void(*_state, *_slots, _ints, _ints, *_tables, _ints, _int, _floats, _floats))
def _hidden(  # type: ignore[no-untyped-def]
    configs, nodes, which, token_types, addresses, word_slots, label_slots, measures,
    context_slots, token_rows, type_table, label_table, measure_table, context_table,
    bias, activation, hidden, gates,
):  # fmt: skip
    words = np.empty(addresses.shape[0], np.int32)
    num_words, num_labels = word_slots.shape[0], label_slots.shape[0]
    num_measures, num_contexts = measures.shape[0], context_slots.shape[0]
    # where the rows of each table begin and end, for each of some configurations in turn
    widest = num_words + num_labels + num_measures + num_contexts
    rows = np.empty(AHEAD * widest, np.int32)
    ends = np.empty((AHEAD, 4), np.int32)
    sums = np.empty(bias.shape[0], np.int32)
    for place in range(which.shape[0] + AHEAD - 1):
        if place < which.shape[0]:
            config = which[place]
            base, tokens = configs[config, BASE], configs[config, TOKENS]
            _visit(configs, nodes, config, addresses, words)
            turn = place % AHEAD
            num = turn * widest
            for slot in range(num_words):
                word = words[word_slots[slot]]
                if word >= 0:
                    rows[num] = token_types[tokens + word] * num_words + slot
                    _fetch_row(type_table, rows[num])
                    num += 1
            ends[turn, 0] = num
            for slot in range(num_labels):
                word = words[label_slots[slot]]
                if word >= 0:
                    label = nodes[base + word, LABEL] + 1
                    if label > 0:
                        rows[num] = label * num_labels + slot
                        num += 1
            ends[turn, 1] = num
            for slot in range(num_measures):
                bucket = _bucket(configs, nodes, config, words, measures, slot)
                if bucket > 0:
                    rows[num] = bucket * num_measures + slot
                    num += 1
            ends[turn, 2] = num
            for slot in range(num_contexts):
                word = words[context_slots[slot]]
                if word >= 0:
                    rows[num] = token_rows[tokens + word] * num_contexts + slot
                    _fetch_row(context_table, rows[num])
                    num += 1
            ends[turn, 3] = num
        done = place - (AHEAD - 1)
        if done < 0:
            continue
        turn = done % AHEAD
        for unit in range(sums.shape[0]):
            sums[unit] = bias[unit]
        _add_rows(type_table, rows, turn * widest, ends[turn, 0], sums)
        _add_rows(label_table, rows, ends[turn, 0], ends[turn, 1], sums)
        _add_rows(measure_table, rows, ends[turn, 1], ends[turn, 2], sums)
        _add_rows(context_table, rows, ends[turn, 2], ends[turn, 3], sums)
        if activation == RELU:
            for unit in range(sums.shape[0]):
                hidden[done, unit] = max(np.float32(sums[unit]), np.float32(0.0)) * STEP
        elif activation == GLU:
            num_units = hidden.shape[1]
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
    half = np.float32(0.5)
    for place in range(hidden.shape[0]):
        for unit in range(hidden.shape[1]):
            hidden[place, unit] *= half + half * gates[place, unit]


@compiled(types.void(_floats, _products, _int))
def _round(values, table, begin):  # type: ignore[no-untyped-def]
    low, high = np.float32(-32767.0), np.float32(32767.0)
    for row in range(values.shape[0]):
        for column in range(values.shape[1]):
            value = min(max(values[row, column], low), high)
            table[row, begin + column] = np.int16(np.int32(np.rint(value)))


def gated(sums: Floats) -> Floats:
    """Units times their gates, of sums [..., 2U], which are overwritten (`network.gated`)."""
    units, gates = np.split(sums, 2, axis=-1)
    units *= 0.5 + 0.5 * np.tanh(0.5 * gates)  # the logistic function, which overflows
    return units


def round_into(values: Floats, table: Shorts, begin: int = 0) -> None:
    """Write values, in steps of 1 / SCALE, into the columns of `table` from `begin` on."""
    _round(values, table, begin)


def extract(
    configurations: Configurations, which: Ints, token_types: Ints, slots: Slots
) -> tuple[Ints, Ints, Ints]:
    """What stands in each slot of some configurations.

    Args:
        configurations: where they are.
        which: which of them, [N].
        token_types: the types of all tokens.
        slots: the places to look at.

    Returns:
        Types [N, word slots], 1 + label or 0 [N, label slots], classes of measures [N, measures].
    """
    columns = (slots.words, slots.labels, slots.measures)
    found = [np.empty((len(which), len(column)), np.int32) for column in columns]
    _extract(
        configurations.configs,
        configurations.nodes,
        which,
        token_types,
        slots.nodes,
        *columns,
        *found,
    )
    return found[0], found[1], found[2]


def hidden_layer(
    configurations: Configurations,
    which: Ints,
    token_types: Ints,
    token_rows: Ints,
    slots: Slots,
    tables: tuple[Shorts, Shorts, Shorts, Shorts],
    bias: Ints,
    activation: str,
    hidden: Floats,
    gates: Floats,
) -> None:
    """Fill `hidden`, [len(which), hidden units], from tables of products (see above).

    Args:
        configurations: where they are.
        which: which of them.
        token_types: the types of all tokens.
        token_rows: the row of each token in the table of tokens.
        slots: the places to look at.
        tables: of types, labels, measures and tokens in their context.
        bias: of the first layer and what NONE adds in every slot, in steps of 1 / SCALE.
        activation: a name in `ACTIVATIONS`.
        hidden: is written.
        gates: is written: what opened each hidden unit; without gates, no column.
    """
    _hidden(
        configurations.configs,
        configurations.nodes,
        which,
        token_types,
        slots.nodes,
        slots.words,
        slots.labels,
        slots.measures,
        slots.contexts,
        token_rows,
        *tables,
        bias,
        ACTIVATIONS[activation],
        hidden,
        gates,
    )
    if ACTIVATIONS[activation] == GLU:
        np.tanh(gates, out=gates)
        _open_gates(hidden, gates)
