"""What a student of transitions learns from its teachers beside their trees: their probabilities.

A teacher that has the student's transition system is asked in each configuration that the student
comes through, those after its own mistakes too (Liu et al. 2018): the student is to give the
transitions the probabilities that the teacher gives them (Hinton, Vinyals & Dean 2015). So it
learns what the teacher takes for the next best, how sure it is, and what is left to do when a
mistake was made. Of several such teachers, the mean of their probabilities is learnt. Teachers of
other kinds have none in these configurations; what they know is in the trees (`distillation`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from seqtool.core.arrays import Bytes, Floats, Ints
from seqtool.parsing.encoding.features import NONE_TYPE, ROOT_TYPE, Types
from seqtool.parsing.parser.config import ParserConfig
from seqtool.parsing.parser.data import Teacher
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.parser import Parser
from seqtool.parsing.parser.transition.transitions import NUM_ACTIONS
from seqtool.treebank.projectivity import LIFTED


def teachers_of(
    parsers: Sequence[Parser], config: ParserConfig, types: Types, labels: Labels
) -> tuple[Teacher, ...]:
    """Return those of some parsers that can be asked in a student's configurations.

    These are neural, and have learnt transitions of the same system one by one; they read no
    columns that the student does not.

    Args:
        parsers: members of an ensemble count one by one.
        config: of the student, with the system chosen.
        types: of the student.
        labels: of the student.
    """
    if (config.model.decoder, config.model.classifier) != ("transition", "neural"):
        return ()
    members = [member for parser in parsers for member in parser.members]
    return tuple(
        Teacher(
            member.config.model,
            _renumbered(member.weights, member.labels, labels),
            _symbols(member.types, types),
        )
        for member in members
        if member.config.model.decoder == "transition"
        and member.config.model.classifier == "neural"
        and member.config.model.system == config.model.system
        and member.config.learning.loss == "local"
        and {*member.types.lexical.columns} <= {*types.lexical.columns}
    )


def _symbols(own: Types, wanted: Types) -> tuple[Ints, ...]:
    """Return the symbols that a parser has for another one's types."""
    places = [wanted.lexical.columns.index(column) for column in own.lexical.columns]
    # of its own, so that the parser keeps none of them
    met = own.as_new()
    numbers = [NONE_TYPE, ROOT_TYPE]
    numbers += [met.add(tuple([key[place] for place in places])) for key in wanted.texts()]
    return tuple(table[numbers] for table in met.arrays())


def _renumbered(weights: Mapping[str, Floats], own: Labels, wanted: Labels) -> Mapping[str, Floats]:
    """Return a classifier's weights with labels and transitions numbered as another one's.

    A transition that the classifier does not know is never chosen: its score is minus infinity. An
    arc of a label that it does not know looks as one without the mark of a lifted arc, or as none.
    """
    arcs = [own.arcs.index(label) if label in own.arcs else -1 for label in wanted.arcs]
    roots = [own.roots.index(label) if label in own.roots else -1 for label in wanted.roots]
    places = {label: number for number, label in enumerate(own.names, start=1)}
    seen = [places.get(label, places.get(label.partition(LIFTED)[0], 0)) for label in wanted.names]
    left, right, root = own.segments[2:5].tolist()
    transitions = np.asarray(
        [
            *(0, 1),
            *(left + place if place >= 0 else -1 for place in arcs),
            *(right + place if place >= 0 else -1 for place in arcs),
            *(root + place if place >= 0 else -1 for place in roots),
        ]
    )
    output, bias = weights["output.weight"][transitions], weights["output.bias"][transitions]
    output[transitions < 0], bias[transitions < 0] = 0.0, -np.inf
    return {
        **weights,
        "labels.weight": weights["labels.weight"][[0, *seen]],
        "output.weight": output,
        "output.bias": bias,
    }


def shares(scores: Floats, legal: Bytes, segments: Ints) -> Floats:
    """Return the probabilities of transitions, float32 [N, A]: softmax over the legal ones.

    Where none of these has a score, all are 0.

    Args:
        scores: [N, A].
        legal: the legal actions, as bits, [N].
        segments: of `Labels`.
    """
    is_legal = legal[:, None] >> np.arange(NUM_ACTIONS, dtype=np.uint8) & 1
    is_open = np.repeat(is_legal.astype(np.bool_), np.diff(segments), axis=1)
    values = np.where(is_open, scores, np.float32(-np.inf))
    highest = values.max(axis=1, keepdims=True)
    # where no legal one has a score, -inf less -inf would be a NaN
    found: Floats = np.exp(values - np.where(np.isfinite(highest), highest, np.float32(0.0)))
    total = found.sum(axis=1, keepdims=True)
    found /= np.where(total > 0, total, np.float32(1.0))
    return found
