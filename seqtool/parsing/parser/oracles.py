"""Oracles: what a gold tree says about the next transition.

A static oracle names one transition that leads to the gold tree, on its own derivation only
(arc-eager: Nivre 2003; swap: the lazy one of Nivre, Kuhlmann & Hall 2009). A dynamic one gives
the cost of every action in any configuration; `dynamic_oracles` computes it.

Gold trees of projective systems are projective; others are made so before, by
`projectivity.projectivise`. The module is imported on use only, as it imports Numba.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from seqtool.core.arrays import Bytes, Ints
from seqtool.core.compiled import compiled
from seqtool.parsing.parser.configurations import (
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
    Labels,
)
from seqtool.parsing.parser.dynamic_oracles import action_costs
from seqtool.parsing.parser.transitions import Configurations
from seqtool.treebank.projectivity import first_non_projective, projective_orders


class GoldTrees(NamedTuple):
    """Gold trees as token arrays (`configurations` draws them).

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


_ints = types.int32[::1]
_table = types.int32[:, ::1]
_masks = types.uint8[::1]
_int = types.int64
_gold = types.NamedUniTuple(_ints, 5, GoldTrees)  # type: ignore[no-untyped-call]


@compiled(types.void(_table, _table, _ints, _int, _int, _ints, _table))
def _targets(  # type: ignore[no-untyped-def]
    configs, nodes, which, system, num_arcs, gold_labels, targets
):
    """Note of each action the transition with the gold label of the word that gets a head."""
    for place in range(which.shape[0]):
        config = which[place]
        base, tokens = configs[config, BASE], configs[config, TOKENS]
        size, front = configs[config, STACK_SIZE], configs[config, FRONT]
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
            *(configurations.configs, configurations.nodes, which, self.system.number),
            *(len(self.labels.arcs), self._gold.label_ids, targets),
        )
        return targets

    def transitions(self, configurations: Configurations, which: Ints) -> Ints:
        """Return what the static oracle says: a transition that leads on to the gold tree.

        Raises:
            ValueError: a configuration is not on the way that this oracle leads, or final.
        """
        actions = np.empty(len(which), np.int32)
        _static_actions(
            *(configurations.configs, configurations.nodes, which, configurations.legal(which)),
            *(self.system.number, self._gold, actions),
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
            *(configurations.configs, configurations.nodes, which, legal),
            *(self.system.number, self._gold.heads, costs),
        )
        return costs
