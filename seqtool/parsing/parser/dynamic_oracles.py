"""Dynamic oracles: what the actions of any configuration cost.

The cost of an action is the number of words that could still get their gold head before it, in one
tree, and no longer can after it (Goldberg & Nivre 2012, 2013). A gold arc with another label loses
one word as well; the label of any other arc loses nothing. The single root, and the rules of
`configurations` that ensure it, are taken into account.

    arc-hybrid    gold arcs that the action makes impossible: each of those that are possible can be
                  had together with all others
    arc-eager     the same; and one more where a word on the stack that cannot get its gold head
                  would have the last word of the sentence under it, as nothing could pop it then
    arc-standard  by the best derivation from where the action leads to, found by dynamic
                  programming over the words on the stack and the gold fragments of the buffer
                  (Goldberg, Sartorio & Satta 2014)

Gold trees are projective. The module is imported on use only, as it imports Numba.
"""

from __future__ import annotations

import numpy as np
from numba import types

from seqtool.core.compiled import compiled
from seqtool.parsing.parser.configurations import (
    ARC_HYBRID,
    ARC_STANDARD,
    BASE,
    FRONT,
    HEAD,
    LEFT,
    LENGTH,
    NUM_ACTIONS,
    NUM_RIGHT,
    REDUCE,
    RIGHT,
    ROOT,
    SHIFT,
    STACK,
    STACK_SIZE,
    TOKENS,
    UNATTACHED,
)

ILLEGAL = 1 << 20  # the cost of an action that is not legal

_ints = types.int32[::1]
_table = types.int32[:, ::1]
_masks = types.uint8[::1]
_int = types.int64


@compiled(types.void(_table, _table, _int, _ints, _int, _table))
def _hybrid_costs(configs, nodes, config, gold_heads, place, costs):  # type: ignore[no-untyped-def]
    """Fill in the costs of arc-hybrid (Goldberg & Nivre 2013)."""
    # b0 is the word numbered `first` and the buffer is `first` .. `length`, as nothing is put back
    base, tokens = configs[config, BASE], configs[config, TOKENS]
    size, first = configs[config, STACK_SIZE], configs[config, FRONT]
    length = configs[config, LENGTH]
    top = nodes[base + size - 1, STACK]
    # what s0 loses when it is popped: dependents in the buffer, its head there or below it
    dependents = 0
    for word in range(first, length + 1):
        if gold_heads[tokens + word] == top:
            dependents += 1
    head = gold_heads[tokens + top] if top > 0 else -1
    left = right = dependents
    if head >= first:
        right += 1
    # the head is lost unless it is b0, which LEFT makes it
    if head > first or (size > 1 and head == nodes[base + size - 2, STACK]):
        left += 1
    costs[place, LEFT] = left
    costs[place, RIGHT] = costs[place, ROOT] = right
    # what b0 loses when it is pushed: dependents on the stack, its head below the top
    shift = 0
    if first <= length:
        for position in range(size):
            word = nodes[base + position, STACK]
            if word > 0 and gold_heads[tokens + word] == first:
                shift += 1
            # from s0 it can get a right arc later, from no word below
            if position < size - 1 and gold_heads[tokens + first] == word:
                shift += 1
    costs[place, SHIFT] = shift


@compiled(_int(_table, _table, _int, _ints, types.boolean[::1], _int, _int, _int, _int))
def _orphaned(  # type: ignore[no-untyped-def]
    configs, nodes, config, gold_heads, stacked, first, head, child, rooted
):
    """Arc-eager: return 1 if the last word would stand below a word that nothing can pop, else 0.

    The words on the stack are `stacked`, `first` begins the buffer, and `rooted` says whether ROOT
    has its dependent, all that as an action leaves it; `head` -> `child` is the arc it makes, if
    it makes one (0, 0 otherwise).
    """
    base, tokens = configs[config, BASE], configs[config, TOKENS]
    word = configs[config, LENGTH]
    if first > word:
        return 0
    # from the last word up, along arcs that are there or can still be had
    while word > 0:
        if child == word:
            word = head
        elif nodes[base + word, HEAD] >= 0:
            word = nodes[base + word, HEAD]
        else:
            gold = gold_heads[tokens + word]
            reachable = gold >= first  # in the buffer
            # a word of the buffer finds it on the stack too; one of the stack does not
            if word >= first:
                reachable = reachable or (stacked[gold] if gold > 0 else not rooted)
            if not reachable:
                return 1 if word < first else 0
            word = gold
    return 0


@compiled(types.void(_table, _table, _int, _ints, types.boolean[::1], _int, _table))
def _eager_costs(  # type: ignore[no-untyped-def]
    configs, nodes, config, gold_heads, stacked, place, costs
):
    """Fill in the costs of arc-eager (Goldberg & Nivre 2012)."""
    base, tokens = configs[config, BASE], configs[config, TOKENS]
    size, first = configs[config, STACK_SIZE], configs[config, FRONT]
    length = configs[config, LENGTH]
    top = nodes[base + size - 1, STACK]
    rooted = nodes[base, NUM_RIGHT] > 0
    stacked[: length + 1] = False
    waiting = 0  # words on the stack whose head is b0
    for position in range(1, size):
        word = nodes[base + position, STACK]
        stacked[word] = True
        if nodes[base + word, HEAD] < 0 and gold_heads[tokens + word] == first:
            waiting += 1
    dependents = later_root = 0
    for word in range(first, length + 1):
        if gold_heads[tokens + word] == top:
            dependents += 1
        if word > first and gold_heads[tokens + word] == 0:
            later_root = 1  # which an arc from ROOT to b0 would leave without its head
    # SHIFT and RIGHT: b0 can take no head but the one it gets
    head = gold_heads[tokens + first]
    on_stack = stacked[head] if head > 0 else not rooted
    before = _orphaned(configs, nodes, config, gold_heads, stacked, first, 0, 0, rooted)
    shift = right = waiting
    if head < first and on_stack:
        shift += 1
    if head != top and (head >= first or on_stack):
        right += 1
    # LEFT and REDUCE: s0 takes no more dependents
    left = dependents
    if top > 0 and gold_heads[tokens + top] > first:
        left += 1
    if top > 0:
        stacked[top] = False  # as it is after either of the two
        after = _orphaned(configs, nodes, config, gold_heads, stacked, first, first, top, rooted)
        costs[place, LEFT] = left + after - before
        after = _orphaned(configs, nodes, config, gold_heads, stacked, first, 0, 0, rooted)
        costs[place, REDUCE] = dependents + after - before
        stacked[top] = True
    stacked[first] = True
    after = _orphaned(configs, nodes, config, gold_heads, stacked, first + 1, 0, 0, rooted)
    costs[place, SHIFT] = shift + after - before
    if top == 0:
        right += later_root
        rooted = True
    after = _orphaned(configs, nodes, config, gold_heads, stacked, first + 1, top, first, rooted)
    costs[place, RIGHT] = costs[place, ROOT] = right + after - before


@compiled(_int(_ints, _int, _int, _int, _ints))
def _best_loss(stack, size, first, length, gold_heads):  # type: ignore[no-untyped-def]
    """Arc-standard: return the fewest wrong heads of the words that have none yet.

    The items are the words on the stack and, of the buffer, the roots of its gold fragments: a
    fragment is what can be built of the gold tree before its root is linked with the stack.
    `losses[t, h]` is the least loss of one tree with the root h that has used up all but `left`
    words of the stack and t fragments; it is joined with the next word below or with the next
    fragment, either one as the head. Roots without a gold link to what is left are all alike, so
    that they share one entry, `other`. `gold_heads` are those of the one sentence.
    """
    # words of the buffer above a word of the stack: no fragment of the buffer has one inside it, as
    # their dependent on the stack is still missing
    spine = np.zeros(length + 1, np.bool_)
    for position in range(1, size):
        word = gold_heads[stack[position]]
        while word >= first and not spine[word]:
            spine[word] = True
            word = gold_heads[word]
    words = np.empty(size + length + 1 - first, np.int32)
    words[:size] = stack[:size]
    other = size
    for word in range(first, length + 1):
        if spine[word] or gold_heads[word] < first:
            words[other] = word
            other += 1
    if other == 1:  # nothing but ROOT
        return 0
    ids = np.full(length + 1, -1, np.int32)
    for item in range(other):
        ids[words[item]] = item
    gold = np.full(other + 1, -1, np.int32)
    # the lowest and the highest item that each is linked with
    lowest, highest = np.full(other + 1, other, np.int32), np.full(other + 1, -1, np.int32)
    for item in range(1, other):
        head = ids[gold_heads[words[item]]]
        gold[item] = head
        if head >= 0:
            lowest[item], highest[item] = min(lowest[item], head), max(highest[item], head)
            lowest[head], highest[head] = min(lowest[head], item), max(highest[head], item)
    fragments = other - size
    limit = np.int32(length + 1)  # more than any loss: no tree of that kind yet
    losses = np.full((fragments + 1, other + 1), limit, np.int32)
    losses_below = losses.copy()
    linked = np.empty(other + 1, np.int32)
    best = np.int64(limit)
    # the first tree is s0 alone; with ROOT alone on the stack, the first fragment
    left = max(size - 1, 1)
    taken = left + 1 - size
    is_linked = lowest[left] < left or highest[left] >= size + taken
    losses[taken, left if is_linked else other] = 0
    # words of the stack are used up one by one, and for each the fragments from left to right
    while left > 0:
        below = left - 1
        # only items with a gold link to what is left have entries of their own
        num_linked = 0
        for item in range(left, other):
            if lowest[item] < left or highest[item] >= size:
                linked[num_linked] = item
                num_linked += 1
        linked[num_linked] = other
        for taken in range(fragments + 1):
            following = size + taken
            next_root = following
            if taken < fragments and lowest[next_root] >= left and highest[next_root] <= following:
                next_root = other
            below_root = below
            if lowest[below] >= below and highest[below] < following:
                below_root = other
            for place in range(num_linked + 1):
                item = linked[place]
                loss = losses[taken, item]
                if loss == limit:
                    continue
                losses[taken, item] = limit  # emptied, as the table serves again
                head = gold[item]
                if taken < fragments:  # link with the next fragment: as its head, then under it
                    root = other
                    if lowest[item] < left or highest[item] > following:
                        root = item
                    wrong = loss + (gold[following] != item)
                    losses[taken + 1, root] = min(losses[taken + 1, root], wrong)
                    wrong = loss + (head != following)
                    losses[taken + 1, next_root] = min(losses[taken + 1, next_root], wrong)
                if below > 0:  # link with the next word of the stack, the same two ways
                    root = other
                    if lowest[item] < below or highest[item] >= following:
                        root = item
                    wrong = loss + (gold[below] != item)
                    losses_below[taken, root] = min(losses_below[taken, root], wrong)
                    wrong = loss + (head != below)
                    losses_below[taken, below_root] = min(losses_below[taken, below_root], wrong)
                elif taken == fragments:  # all words are in one tree, whose root ROOT takes
                    best = min(best, np.int64(loss + (head != 0)))
        left = below
        losses, losses_below = losses_below, losses
    return best


@compiled(types.void(_table, _table, _int, _ints, _ints, _int, _table))
def _standard_costs(  # type: ignore[no-untyped-def]
    configs, nodes, config, gold_heads, stack, place, costs
):
    """Fill in the costs of arc-standard: what is lost after an action beyond the least of all."""
    base, tokens = configs[config, BASE], configs[config, TOKENS]
    size, first = configs[config, STACK_SIZE], configs[config, FRONT]
    length = configs[config, LENGTH]
    gold = gold_heads[tokens : tokens + length + 1]
    for position in range(size):
        stack[position] = nodes[base + position, STACK]
    costs[place] = ILLEGAL
    least = ILLEGAL
    if first <= length:
        stack[size] = first
        loss = _best_loss(stack, size + 1, first + 1, length, gold)
        costs[place, SHIFT] = loss
        least = min(least, loss)
    if size > 2:
        below, top = stack[size - 2], stack[size - 1]
        loss = _best_loss(stack, size - 1, first, length, gold) + (gold[top] != below)
        costs[place, RIGHT] = loss
        least = min(least, loss)
        stack[size - 2] = top  # what LEFT leaves; this comes last, as it changes the stack
        loss = _best_loss(stack, size - 1, first, length, gold) + (gold[below] != top)
        costs[place, LEFT] = loss
        least = min(least, loss)
    elif first > length:  # no other action is legal
        costs[place, ROOT] = 0
        least = 0
    for action in range(NUM_ACTIONS):
        costs[place, action] -= least


@compiled(types.void(_table, _table, _ints, _masks, _int, _ints, _table))
def action_costs(configs, nodes, which, legal, system, gold_heads, costs):  # type: ignore[no-untyped-def]
    """Fill `costs`, int32 [len(which), NUM_ACTIONS]; `gold_heads` is a token array."""
    longest = 0
    for config in which:
        longest = max(longest, configs[config, LENGTH])
    stack = np.empty(longest + 2, np.int32)
    stacked = np.empty(longest + 2, np.bool_)
    for place in range(which.shape[0]):
        config = which[place]
        if configs[config, UNATTACHED] == 0:
            pass
        elif system == ARC_STANDARD:
            _standard_costs(configs, nodes, config, gold_heads, stack, place, costs)
        elif system == ARC_HYBRID:
            _hybrid_costs(configs, nodes, config, gold_heads, place, costs)
        else:
            _eager_costs(configs, nodes, config, gold_heads, stacked, place, costs)
        for action in range(NUM_ACTIONS):
            if not legal[place] >> action & 1:
                costs[place, action] = ILLEGAL
