"""What the classifier sees of configurations, and its hidden layer, in compiled code.

The first layer is linear in what stands in each slot, so its products with a type are the same
whenever that type stands there. They are rows of tables, [type * num_slots + slot, hidden], whole
numbers of 1 / `SCALE`. NONE's row is taken off all others and added to the bias once, so that where
nothing stands there is nothing to add. A hidden unit is the activation of a sum of rows.

Imports Numba, so on use only.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from seqtool.compiled import compiled
from seqtool.parsing.slots import (
    COUNT,
    FROM_BUFFER,
    FROM_STACK,
    NUM_BUCKETS,
    TO_CHILD,
    Slots,
)
from seqtool.parsing.states import (
    BASE,
    BUFFER,
    FRONT,
    LABEL,
    LENGTH,
    STACK,
    STACK_SIZE,
    TOKENS,
    Ints,
)
from seqtool.parsing.transitions import Configurations

SCALE = 1024.0  # of a table's numbers: they reach from -32 to 32 in steps of 0.001
RELU, CUBE = range(2)
ACTIVATIONS = {"relu": RELU, "cube": CUBE}

Floats = npt.NDArray[np.float32]
Products = npt.NDArray[np.int16]

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


@compiled(types.void(_products, _ints, _int, types.int32[::1]))
def _add_rows(table, rows, num, sums):  # type: ignore[no-untyped-def]
    """Add rows of a table, four at a time, so that the sums are fetched and stored less often."""
    done = 0
    while done + 4 <= num:
        a, b, c, d = rows[done], rows[done + 1], rows[done + 2], rows[done + 3]
        for unit in range(sums.shape[0]):
            sums[unit] += table[a, unit] + table[b, unit] + table[c, unit] + table[d, unit]
        done += 4
    while done < num:
        a = rows[done]
        for unit in range(sums.shape[0]):
            sums[unit] += table[a, unit]
        done += 1


@compiled(types.void(*_state, *_slots, _ints, _ints, *_tables, _ints, _int, _floats))
def _hidden(  # type: ignore[no-untyped-def]
    configs, nodes, which, token_types, addresses, word_slots, label_slots, measures,
    context_slots, token_rows, type_table, label_table, measure_table, context_table,
    bias, activation, hidden,
):  # fmt: skip
    words = np.empty(addresses.shape[0], np.int32)
    widest = max(word_slots.shape[0], label_slots.shape[0])
    widest = max(widest, max(measures.shape[0], context_slots.shape[0]))
    rows = np.empty(widest, np.int32)
    sums = np.empty(bias.shape[0], np.int32)
    for place in range(which.shape[0]):
        config = which[place]
        base, tokens = configs[config, BASE], configs[config, TOKENS]
        _visit(configs, nodes, config, addresses, words)
        sums[:] = bias
        num = 0
        for slot in range(word_slots.shape[0]):
            word = words[word_slots[slot]]
            if word >= 0:
                rows[num] = token_types[tokens + word] * word_slots.shape[0] + slot
                num += 1
        _add_rows(type_table, rows, num, sums)
        num = 0
        for slot in range(label_slots.shape[0]):
            word = words[label_slots[slot]]
            if word >= 0:
                label = nodes[base + word, LABEL] + 1
                if label > 0:
                    rows[num] = label * label_slots.shape[0] + slot
                    num += 1
        _add_rows(label_table, rows, num, sums)
        num = 0
        for slot in range(measures.shape[0]):
            bucket = _bucket(configs, nodes, config, words, measures, slot)
            if bucket > 0:
                rows[num] = bucket * measures.shape[0] + slot
                num += 1
        _add_rows(measure_table, rows, num, sums)
        num = 0
        for slot in range(context_slots.shape[0]):
            word = words[context_slots[slot]]
            if word >= 0:
                rows[num] = token_rows[tokens + word] * context_slots.shape[0] + slot
                num += 1
        _add_rows(context_table, rows, num, sums)
        if activation == RELU:
            for unit in range(sums.shape[0]):
                hidden[place, unit] = np.float32(max(sums[unit], 0)) * np.float32(1.0 / SCALE)
        else:
            for unit in range(sums.shape[0]):
                value = np.float32(sums[unit]) * np.float32(1.0 / SCALE)
                hidden[place, unit] = value * value * value


@compiled(types.void(_floats, types.float32[::1], _products))
def _quantise(values, base, table):  # type: ignore[no-untyped-def]
    """Rows of products less a row, in steps of 1 / SCALE."""
    for row in range(values.shape[0]):
        for column in range(values.shape[1]):
            value = (values[row, column] - base[column]) * np.float32(SCALE)
            value = min(max(value, np.float32(-32767.0)), np.float32(32767.0))
            half = np.float32(0.5) if value >= 0 else np.float32(-0.5)
            table[row, column] = np.int16(value + half)


def quantise(values: Floats, base: Floats, table: Products) -> None:
    """Write `values` less the row `base` into `table`, both [num_rows, num_columns]."""
    _quantise(values, base, table)


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
    tables: tuple[Products, Products, Products, Products],
    bias: Ints,
    activation: str,
    hidden: Floats,
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
    )
