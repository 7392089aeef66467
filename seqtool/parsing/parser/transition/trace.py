"""How a tree is built: the search of one sentence is watched, and its transitions taken again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from seqtool.core.arrays import Bytes, Doubles, Floats, Ints
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.transition.hidden_layer import compile_slots, extract, measure_text
from seqtool.parsing.parser.transition.search import Beams, History, Scorer
from seqtool.parsing.parser.transition.transitions import (
    BASE,
    BUFFER,
    FRONT,
    HEAD,
    LABEL,
    LEFT,
    LENGTH,
    NUM_ACTIONS,
    REDUCE,
    SHIFT,
    STACK,
    STACK_SIZE,
    TOKENS,
    UNATTACHED,
    Configurations,
)
from seqtool.treebank.derivation import Arc, Choice, Derivation, Feature, Hypothesis, Step

NUM_OTHERS = 4  # transitions that are named beside the one that is taken
NUM_TOP = 3  # words of the stack that are noted of a hypothesis

# gives what is looked at in the only one of some configurations
See = Callable[[Configurations], tuple[Feature, ...]]
# of a hypothesis, the number of the node that it comes from and the transition that was taken
# there, both -1 at the beginning; there are no two with the same key
Key = tuple[int, int]
ONE = np.zeros(1, np.int32)  # the first row


class Seen(NamedTuple):
    """A hypothesis at the beginning of a round; see `Hypothesis`."""

    key: Key
    top: tuple[int, ...]
    front: int | None
    is_final: bool


def derivation(
    system: str,
    beams: Beams,
    scorer: Scorer,
    see: See,
    token: int,
    length: int,
) -> Derivation:
    """Search the tree of one sentence, and return how it was built.

    Args:
        system: a name in `transitions.SYSTEMS`, that of `beams`.
        beams: of one lane, which is free; it is free again afterwards.
        scorer: fills in the scores of transitions.
        see: gives what is looked at.
        token: the row of ROOT in the token arrays.
        length: words.
    """
    labels = beams.configurations.labels
    sizes = np.diff(labels.segments)
    # of each configuration that is scored, what each transition adds to the score, [A]; -inf where
    # it is not legal
    gains: list[Doubles] = []

    def note(configurations: Configurations, rows: Ints, masks: Bytes, scores: Floats) -> None:
        for mask, of_row in zip(masks.tolist(), scores, strict=True):
            is_legal = np.repeat(mask >> np.arange(NUM_ACTIONS) & 1, sizes)
            values = np.where(is_legal, of_row.astype(np.float64), -np.inf)
            gains.append(values - np.logaddexp.reduce(values))

    beams.history = History(len(beams.hypotheses.used), note)
    beams.begin(ONE, np.asarray([token], np.int32), np.asarray([length], np.int32))
    rounds = [_hypotheses(beams, beams.history)]
    while beams.step(scorer):
        rounds.append(_hypotheses(beams, beams.history))
    best = beams.finished()
    path = [rounds[-1][int(best[0])].key]
    beams.free(best)
    # of each configuration that was scored, its hypothesis, and the score of that
    origins: list[Key] = list(zip(*(a.tolist() for a in beams.history.tree()), strict=True))
    totals: list[float] = []

    def total(key: Key) -> float:
        return totals[key[0]] + float(gains[key[0]][key[1]]) if key[0] >= 0 else 0.0

    for origin in origins:
        totals.append(total(origin))
    while path[-1][0] >= 0:
        path.append(origins[path[-1][0]])
    path.reverse()
    replayed = Configurations(system, labels, 1, length)
    replayed.begin(0, token, length)
    steps = tuple(_steps(system, replayed, gains, path, see))
    words = range(1, length + 1)
    columns = replayed.nodes[1 : length + 1, [HEAD, LABEL]].tolist()
    return Derivation(
        system=system,
        beam=beams.beam,
        score=total(path[-1]),
        steps=steps,
        # without a choice, there is nothing to search
        rounds=tuple(_rounds(system, labels, rounds, origins, total, path)) if gains else (),
        arcs=tuple(
            Arc(head, word, labels.names[label])
            for word, (head, label) in zip(words, columns, strict=True)
        ),
    )


def _hypotheses(beams: Beams, history: History) -> dict[int, Seen]:
    """Return the hypotheses at the beginning of a round, by their rows."""
    configurations, found = beams.configurations, {}
    for row in np.flatnonzero(beams.hypotheses.used).tolist():
        stack, buffer = _stack(configurations, row), _buffer(configurations, row)
        found[row] = Seen(
            key=(int(history.last[row]), int(history.taken[row])),
            top=stack[-NUM_TOP:],
            front=buffer[0] if buffer else None,
            is_final=bool(configurations.configs[row, UNATTACHED] == 0),
        )
    return found


def transition_name(system: str, labels: Labels, transition: int) -> str:
    """Return the name of a transition, as in `LEFT-ARC nsubj`."""
    action, label = labels.action_of(transition)
    if action == SHIFT:
        return "SHIFT"
    if action == REDUCE:
        return "REDUCE" if system == "arc-eager" else "SWAP"
    # the arc from ROOT is one to the right
    return f"{'LEFT' if action == LEFT else 'RIGHT'}-ARC {labels.names[label]}"


def _stack(configurations: Configurations, row: int) -> tuple[int, ...]:
    """Return the words on the stack, the top one last."""
    base, size = configurations.configs[row, [BASE, STACK_SIZE]]
    return tuple(configurations.nodes[base : base + size, STACK].tolist())


def _buffer(configurations: Configurations, row: int) -> tuple[int, ...]:
    """Return the words in the buffer."""
    base, length, front = configurations.configs[row, [BASE, LENGTH, FRONT]]
    return tuple(configurations.nodes[base + front : base + length + 1, BUFFER].tolist())


def _steps(
    system: str, configurations: Configurations, gains: list[Doubles], path: list[Key], see: See
) -> Iterator[Step]:
    """Give all steps of a derivation, those without a choice too; they are taken meanwhile.

    Args:
        system: the transition system.
        configurations: of one row, at the beginning of the sentence; final in the end.
        gains: of each configuration that was scored in its search.
        path: the hypotheses on the way to the tree.
        see: gives what is looked at.
    """
    labels = configurations.labels
    segments = labels.segments.tolist()
    chosen = iter(enumerate(path[1:]))
    while mask := int(configurations.legal(ONE)[0]):
        legal = [action for action in range(NUM_ACTIONS) if mask >> action & 1]
        begin, end = segments[legal[0]], segments[legal[0] + 1]
        round_, probability = None, 1.0
        others: tuple[Choice, ...] = ()
        features: tuple[Feature, ...] = ()
        if len(legal) == 1 and end - begin == 1:  # as `transitions.Configurations` takes it at once
            transition = begin
        else:
            round_, (number, transition) = next(chosen)
            probabilities = np.exp(gains[number])
            probability = float(probabilities[transition])
            order = np.argsort(-probabilities, kind="stable").tolist()
            others = tuple(
                Choice(transition_name(system, labels, other), float(probabilities[other]))
                for other in [other for other in order if other != transition][:NUM_OTHERS]
                if np.isfinite(gains[number][other])
            )
            features = see(configurations)
        stack, buffer = _stack(configurations, 0), _buffer(configurations, 0)
        heads = configurations.nodes[:, HEAD].copy()
        configurations.take(0, transition)
        made = np.flatnonzero(configurations.nodes[:, HEAD] != heads).tolist()
        arcs = [
            Arc(int(configurations.nodes[word, HEAD]), word, labels.names[label])
            for word in made
            for label in [int(configurations.nodes[word, LABEL])]
        ]
        yield Step(
            stack=stack,
            buffer=buffer,
            transition=transition_name(system, labels, transition),
            arc=arcs[0] if arcs else None,
            round=round_,
            probability=probability,
            others=others,
            features=features,
        )


def _rounds(
    system: str,
    labels: Labels,
    rounds: list[dict[int, Seen]],
    origins: list[Key],
    total: Callable[[Key], float],
    path: list[Key],
) -> Iterator[tuple[Hypothesis, ...]]:
    """Give the hypotheses of each round, the best one first."""
    on_path = set(path)
    ranked = [sorted(seen.values(), key=lambda each: -total(each.key)) for seen in rounds]
    places: list[dict[Key, int]] = [
        {each.key: place for place, each in enumerate(hypotheses)} for hypotheses in ranked
    ]

    def parent_of(each: Seen, number: int) -> int | None:
        """Return the place of the parent in the round before; of one final then, its own."""
        if not number:
            return None
        before = places[number - 1]
        return before.get(each.key, before.get(origins[each.key[0]]))

    for number, hypotheses in enumerate(ranked):
        is_last = number == len(ranked) - 1
        following = [] if is_last else ranked[number + 1]
        continued = {parent_of(each, number + 1) for each in following}
        if is_last:
            continued.add(places[number][path[-1]])
        yield tuple(
            Hypothesis(
                score=total(each.key),
                transition=transition_name(system, labels, each.key[1]) if number else "",
                top=each.top,
                front=each.front,
                is_final=each.is_final,
                parent=parent_of(each, number),
                survives=place in continued,
                is_on_path=each.key in on_path,
            )
            for place, each in enumerate(hypotheses)
        )


def slot_features(
    words: Sequence[str],
    labels: Sequence[str],
    measures: Sequence[str],
    *,
    contexts: Sequence[str] = (),
) -> See:
    """Return what tells what stands in the slots of a classifier; for these see `hidden_layer`.

    Args:
        words: addresses whose word and columns are looked at.
        labels: addresses of which the label is.
        measures: counts and distances.
        contexts: addresses whose word is looked at as an encoder read it.
    """
    slots = compile_slots((*words, *contexts), labels, measures)
    kinds = slots.measures[:, 0].tolist()

    def see(configurations: Configurations) -> tuple[Feature, ...]:
        names = ("", *configurations.labels.names)
        root = int(configurations.configs[0, TOKENS])
        numbers = np.arange(root + configurations.max_words + 1, dtype=np.int32)
        seen = extract(configurations, ONE, numbers, slots)
        # the row of ROOT is 1 or more, and 0 is none
        places = [token - root if token else None for token in seen.words[0].tolist()]
        found = [
            Feature(address, "word" if number < len(words) else "context", "", place)
            for number, (address, place) in enumerate(zip((*words, *contexts), places, strict=True))
        ]
        found += [
            Feature(address, "label", names[label], None)
            for address, label in zip(labels, seen.labels[0].tolist(), strict=True)
        ]
        found += [
            Feature(measure, "measure", measure_text(kind, bucket), None)
            for measure, kind, bucket in zip(
                measures, kinds, seen.measures[0].tolist(), strict=True
            )
        ]
        return tuple(found)

    return see
