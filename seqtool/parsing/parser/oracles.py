"""What a gold tree says about the next transition.

A static oracle names one transition that leads to the gold tree, on its own derivation only
(arc-eager: Nivre 2003; swap: the lazy one of Nivre, Kuhlmann & Hall 2009). A dynamic one gives
the cost of every action in any configuration; `costs` computes it.

Gold trees of projective systems are projective; others are made so before, by
`projective.projectivise`. The module is imported on use only, as it imports Numba.
"""

from __future__ import annotations

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
from seqtool.parsing.parser.costs import action_costs
from seqtool.parsing.parser.transitions import Configurations
from seqtool.treebank.projectivity import first_non_projective, projective_orders

_ints = types.int32[::1]
_table = types.int32[:, ::1]
_masks = types.uint8[::1]
_int = types.int64


@compiled(types.void(_table, _table, _ints, _int, _int, _int, _ints, _table))
def _targets(  # type: ignore[no-untyped-def]
    configs, nodes, which, system, num_arcs, num_labels, gold_labels, targets
):
    for place in range(which.shape[0]):
        config = which[place]
        base, tokens = configs[config, BASE], configs[config, TOKENS]
        size, front = configs[config, STACK_SIZE], configs[config, FRONT]
        targets[place, SHIFT], targets[place, REDUCE] = SHIFT, REDUCE
        targets[place, LEFT] = targets[place, RIGHT] = targets[place, ROOT] = -1
        left = right = nodes[base + size - 1, STACK]
        if system in (ARC_STANDARD, SWAPPING):
            left = nodes[base + size - 2, STACK] if size > 1 else 0
        elif system == ARC_EAGER:
            right = nodes[base + front, BUFFER] if front <= configs[config, LENGTH] else 0
        label = gold_labels[tokens + left]
        if left > 0 and label < num_arcs:
            targets[place, LEFT] = 2 + label
        label = gold_labels[tokens + right]
        if right > 0:
            targets[place, RIGHT if label < num_arcs else ROOT] = 2 + num_arcs + label


@compiled(_int(_table, _int))
def _num_attached(nodes, row):  # type: ignore[no-untyped-def]
    return nodes[row, NUM_LEFT] + nodes[row, NUM_RIGHT]


@compiled(types.void(_table, _table, _ints, _masks, _int, _ints, _ints, _ints, _ints, _ints))
def _static_actions(  # type: ignore[no-untyped-def]
    configs, nodes, which, legal, system, gold_heads, num_children, order, components, actions
):
    for place in range(which.shape[0]):
        config = which[place]
        base, tokens = configs[config, BASE], configs[config, TOKENS]
        size, front = configs[config, STACK_SIZE], configs[config, FRONT]
        top = nodes[base + size - 1, STACK]
        below = nodes[base + size - 2, STACK] if size > 1 else -1
        first = nodes[base + front, BUFFER] if front <= configs[config, LENGTH] else -1
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
                # the first word has to be linked with one further down
                if first_head < top:
                    action = REDUCE
                for position in range(1, size - 1):
                    word = nodes[base + position, STACK]
                    if gold_heads[tokens + word] == first and nodes[base + word, HEAD] < 0:
                        action = REDUCE
        elif (system == ARC_HYBRID and top > 0 and top_head == first) or (
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
            and (below > 0 or first < 0)
        ):
            action = RIGHT if below > 0 else ROOT
        elif (
            system == SWAPPING
            and 0 < below < top
            and order[tokens + below] > order[tokens + top]
            # lazily: what can be joined without swapping is joined first
            and (first < 0 or components[tokens + top] != components[tokens + first])
        ):
            action = REDUCE
        actions[place] = action if legal[place] >> action & 1 else -1


class Oracle:
    """The gold trees of a treebank, asked about configurations of its sentences.

    Args:
        system: a name in `SYSTEMS`.
        labels: the labels of arcs.
        heads, label_ids: token arrays (`states`); the rows of ROOT and of NONE are not read.
        tokens, lengths: each sentence's row of ROOT in the token arrays, and number of words.

    Raises:
        ValueError: a tree is not projective, and the system builds projective ones only.
    """

    def __init__(
        self, system: str, labels: Labels, heads: Ints, label_ids: Ints, tokens: Ints, lengths: Ints
    ) -> None:
        self.system, self.labels = SYSTEMS[system], labels
        self._heads, self._label_ids = heads, label_ids
        self._num_children = np.zeros_like(heads)
        inside = np.ones(len(heads), np.bool_)
        inside[0] = False
        inside[tokens] = False
        begins = np.repeat(tokens, lengths)
        np.add.at(self._num_children, begins + heads[inside], 1)
        self._order = self._components = np.zeros(0, np.int32)
        if not self.system.projective:
            self._order, self._components = projective_orders(heads, tokens, lengths)
        elif (place := first_non_projective(heads, tokens, lengths)) >= 0:
            raise ValueError(f"tree {place} is not projective, as {system} needs it")

    def targets(self, configurations: Configurations, which: Ints) -> Ints:
        """Of each action, the transition with the gold label; int32 [len(which), NUM_ACTIONS].

        -1 where the gold label cannot stand on that arc, as one from ROOT against all others.
        """
        targets = np.empty((len(which), NUM_ACTIONS), np.int32)
        _targets(
            configurations.configs,
            configurations.nodes,
            which,
            self.system.number,
            len(self.labels.arcs),
            len(self.labels),
            self._label_ids,
            targets,
        )
        return targets

    def transitions(self, configurations: Configurations, which: Ints) -> Ints:
        """The static oracle: a transition that leads on to the gold tree.

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
            self._heads,
            self._num_children,
            self._order,
            self._components,
            actions,
        )
        targets = self.targets(configurations, which)
        transitions: Ints = targets[np.arange(len(which)), actions]
        if len(which) and int(np.minimum(actions, transitions).min()) < 0:
            raise ValueError("a static oracle was asked about a configuration it never leads to")
        return transitions

    def costs(self, configurations: Configurations, which: Ints, legal: Bytes) -> Ints:
        """The dynamic oracle: what each action costs; int32 [len(which), NUM_ACTIONS].

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
            self._heads,
            costs,
        )
        return costs
