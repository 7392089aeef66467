"""Oracles: what a gold tree says about the next transition.

A static oracle names one transition that leads to the gold tree, on its own derivation only
(arc-eager: Nivre 2003; swap: the lazy one of Nivre, Kuhlmann & Hall 2009). A dynamic one gives the
cost of every action in any configuration: the number of words that could still get their gold head
before it, in one tree, and no longer can after it (Goldberg & Nivre 2012, 2013). A gold arc with
another label loses one word as well; the label of any other arc loses nothing. The single root, and
the rules of `transitions` that ensure it, are taken into account.

    arc-hybrid    gold arcs that the action makes impossible: each of those that are possible can be
                  had together with all others
    arc-eager     the same; and one more where a word on the stack that cannot get its gold head
                  would have the last word of the sentence under it, as nothing could pop it then
    arc-standard  by the best derivation from where the action leads to, found by dynamic
                  programming over the words on the stack and the gold fragments of the buffer
                  (Goldberg, Sartorio & Satta 2014)

Gold trees of projective systems are projective; others are made so before, by
`projectivity.projectivise`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from seqtool.core.arrays import Bytes, Ints
from seqtool.core.jit import compiled
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.transition.transitions import (
    ARC_EAGER,
    ARC_HYBRID,
    ARC_STANDARD,
    BASE,
    BUFFER,
    FRONT,
    HEAD,
    LEFT,
    LENGTH,
    NUM_ACTIONS,
    NUM_LEFT,
    NUM_RIGHT,
    REDUCE,
    RIGHT,
    ROOT,
    SHIFT,
    STACK,
    STACK_SIZE,
    SWAPPING,
    SYSTEMS,
    TOKENS,
    UNATTACHED,
    Configurations,
)
from seqtool.treebank.projectivity import first_non_projective, projective_orders

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

    `stacked`, `first` (of the buffer) and `rooted` (ROOT has its dependent) are as an action leaves
    them; `head` -> `child` is the arc it makes, if it makes one (0, 0 otherwise).
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
    # where the last word is in that place already, no action is to blame for it
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
        # upwards, as a link with a fragment fills the row that comes next
        for taken in range(fragments + 1):
            following = size + taken
            # a joined tree has items from left to following - 1. The root that it gets needs an
            # entry of its own only if a gold link of that root leads out of the tree: beyond left
            # or following with a fragment, beyond `below` or following with a word of the stack
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
        # those that are not legal are set anew by the caller
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
            # final: none is legal, and all costs are set below
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


class GoldTrees(NamedTuple):
    """Gold trees as token arrays (`transitions` draws them).

    Attributes:
        heads: within the sentence, 0 for ROOT.
        label_ids: of the arc from the head.
        num_children: of each token, ROOT too.
        order: the token's place in projective order; empty for projective systems.
        components: the root of its maximal projective component; empty for projective systems.
    """

    heads: Ints
    label_ids: Ints
    num_children: Ints
    order: Ints
    components: Ints


_gold = types.NamedUniTuple(_ints, 5, GoldTrees)


@compiled(types.void(_table, _table, _ints, _int, _int, _ints, _table))
def _targets(  # type: ignore[no-untyped-def]
    configs, nodes, which, system, num_arcs, gold_labels, targets
):
    """Note of each action the transition with the gold label of the word that gets a head."""
    for place in range(which.shape[0]):
        config = which[place]
        base, tokens = configs[config, BASE], configs[config, TOKENS]
        size, front = configs[config, STACK_SIZE], configs[config, FRONT]
        # these two make no arc: each is a transition of the action's own number
        targets[place, SHIFT], targets[place, REDUCE] = SHIFT, REDUCE
        targets[place, LEFT] = targets[place, RIGHT] = targets[place, ROOT] = -1
        # the dependents: s0, but for s1 of LEFT in two systems, and b0 of RIGHT in arc-eager
        left = right = nodes[base + size - 1, STACK]
        if system in (ARC_STANDARD, SWAPPING):
            left = nodes[base + size - 2, STACK] if size > 1 else 0
        elif system == ARC_EAGER:
            right = nodes[base + front, BUFFER] if front <= configs[config, LENGTH] else 0
        # word 0 is ROOT, which gets no head, and stands for a word that is not there
        label = gold_labels[tokens + left]
        if left > 0 and label < num_arcs:
            targets[place, LEFT] = 2 + label
        label = gold_labels[tokens + right]
        if right > 0:
            # one of the two: the gold label is one of arcs between words, or of arcs from ROOT
            targets[place, RIGHT if label < num_arcs else ROOT] = 2 + num_arcs + label


@compiled(_int(_table, _int))
def _num_attached(nodes, row):  # type: ignore[no-untyped-def]
    return nodes[row, NUM_LEFT] + nodes[row, NUM_RIGHT]


@compiled(types.void(_table, _table, _ints, _masks, _int, _gold, _ints))
def _static_actions(configs, nodes, which, legal, system, gold, actions):  # type: ignore[no-untyped-def]
    """Note the static oracle's action in each configuration; -1 where it is not legal."""
    gold_heads, num_children = gold.heads, gold.num_children
    for place in range(which.shape[0]):
        config = which[place]
        base, tokens = configs[config, BASE], configs[config, TOKENS]
        size, front = configs[config, STACK_SIZE], configs[config, FRONT]
        top = nodes[base + size - 1, STACK]
        below = nodes[base + size - 2, STACK] if size > 1 else -1
        first = nodes[base + front, BUFFER] if front <= configs[config, LENGTH] else -1
        # -1 is equal to no word of the sentence, so that missing words have no gold arcs
        top_head = gold_heads[tokens + top] if top > 0 else -1
        below_head = gold_heads[tokens + below] if below > 0 else -1
        action = SHIFT
        if system == ARC_EAGER:
            first_head = gold_heads[tokens + first]
            if top > 0 and top_head == first:
                action = LEFT
            elif first_head == top:
                action = RIGHT if top > 0 else ROOT
            elif nodes[base + top, HEAD] > 0:
                # s0 is popped where b0 has its head or a dependent further down
                if first_head < top:
                    action = REDUCE
                for position in range(1, size - 1):
                    word = nodes[base + position, STACK]
                    if gold_heads[tokens + word] == first and nodes[base + word, HEAD] < 0:
                        action = REDUCE
        # arc-hybrid needs no count: in a projective tree, all dependents of s0 stood before b0
        elif (system == ARC_HYBRID and top > 0 and top_head == first) or (
            # arc-standard and swap: a word gets its head when it has all its dependents
            system != ARC_HYBRID
            and below > 0
            and below_head == top
            and num_children[tokens + below] == _num_attached(nodes, base + below)
        ):
            action = LEFT
        elif (
            top > 0
            and top_head == below
            and num_children[tokens + top] == _num_attached(nodes, base + top)
            and (below > 0 or first < 0)  # the arc from ROOT comes last
        ):
            action = RIGHT if below > 0 else ROOT
        elif (
            system == SWAPPING
            and 0 < below < top
            and gold.order[tokens + below] > gold.order[tokens + top]
            # lazily: not before what b0 and s0 belong to is built without swapping
            and (first < 0 or gold.components[tokens + top] != gold.components[tokens + first])
        ):
            action = REDUCE
        actions[place] = action if legal[place] >> action & 1 else -1


class Oracle:
    """The gold trees of a treebank, asked about configurations of its sentences.

    Args:
        system: a name in `SYSTEMS`.
        labels: the labels of arcs.
        heads, label_ids: token arrays; the rows of ROOT and of NONE are not read.
        tokens, lengths: each sentence's row of ROOT in the token arrays, and number of words.

    Raises:
        ValueError: a tree is not projective, and the system builds projective ones only.
    """

    def __init__(
        self, system: str, labels: Labels, heads: Ints, label_ids: Ints, tokens: Ints, lengths: Ints
    ) -> None:
        self.system, self.labels = SYSTEMS[system], labels
        num_children = np.zeros_like(heads)
        inside = np.ones(len(heads), np.bool_)
        inside[0] = False
        inside[tokens] = False
        begins = np.repeat(tokens, lengths)
        np.add.at(num_children, begins + heads[inside], 1)
        order = components = np.zeros(0, np.int32)
        if not self.system.projective:
            order, components = projective_orders(heads, tokens, lengths)
        elif (place := first_non_projective(heads, tokens, lengths)) >= 0:
            raise ValueError(f"tree {place} is not projective, as {system} needs it")
        self._gold = GoldTrees(heads, label_ids, num_children, order, components)

    def targets(self, configurations: Configurations, which: Ints) -> Ints:
        """Return of each action the transition with the gold label; int32 [N, NUM_ACTIONS].

        -1 where the gold label cannot stand on that arc, as one from ROOT against all others.
        """
        targets = np.empty((len(which), NUM_ACTIONS), np.int32)
        _targets(
            configurations.configs,
            configurations.nodes,
            which,
            self.system.number,
            len(self.labels.arcs),
            self._gold.label_ids,
            targets,
        )
        return targets

    def transitions(self, configurations: Configurations, which: Ints) -> Ints:
        """Return what the static oracle says: a transition that leads on to the gold tree.

        Raises:
            ValueError: a configuration is not on the way that this oracle leads, or final.
        """
        actions = np.empty(len(which), np.int32)
        _static_actions(
            configurations.configs,
            configurations.nodes,
            which,
            configurations.legal(which),
            self.system.number,
            self._gold,
            actions,
        )
        targets = self.targets(configurations, which)
        transitions: Ints = targets[np.arange(len(which)), actions]
        if len(which) and int(np.minimum(actions, transitions).min()) < 0:
            raise ValueError("a static oracle was asked about a configuration it never leads to")
        return transitions

    def costs(self, configurations: Configurations, which: Ints, legal: Bytes) -> Ints:
        """Return what the dynamic oracle says: the cost of each action; int32 [N, NUM_ACTIONS].

        An action of cost 0 is among the legal ones of any configuration that is not final; one
        that is not legal costs `ILLEGAL`.

        Args:
            configurations: where the configurations are.
            which: which of them.
            legal: `configurations.legal(which)`.
        """
        if not self.system.dynamic:
            raise ValueError("this transition system has no dynamic oracle")
        costs = np.empty((len(which), NUM_ACTIONS), np.int32)
        action_costs(
            configurations.configs,
            configurations.nodes,
            which,
            legal,
            self.system.number,
            self._gold.heads,
            costs,
        )
        return costs

    def free(self, configurations: Configurations, which: Ints, legal: Bytes) -> Ints:
        """Return of each action the transition that costs nothing; int32 [N, NUM_ACTIONS].

        -1 where its action costs something, or the gold label cannot stand there. For the arguments
        see `costs`.
        """
        targets = self.targets(configurations, which)
        return np.where(self.costs(configurations, which, legal) == 0, targets, -1)
