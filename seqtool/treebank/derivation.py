"""The derivation of a transition-based parser, step by step.

Words are numbered within their sentence: 0 is ROOT, then 1 to n.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, NamedTuple

from seqtool.core.one_line import OneLine
from seqtool.treebank.sentence import DEPREL, Sentence

FeatureKind = Literal["word", "context", "label", "measure"]


class Choice(NamedTuple):
    """A legal transition.

    Attributes:
        transition: its name, as in `LEFT-ARC nsubj`.
        probability: among the legal ones.
    """

    transition: str
    probability: float


class Feature(NamedTuple):
    """The content of a place of the configuration that the classifier reads.

    Attributes:
        place: its address, such as `s0.l1`.
        kind: what is looked at there: a word with its columns, a word as an encoder read it in its
            sentence, the label of a word's arc, or a number, a distance or a count.
        value: the label or number; "" for words, and where nothing stands.
        word: the word that stands there; None where none does, and for labels and numbers.
    """

    place: str
    kind: FeatureKind
    value: str
    word: int | None


class Arc(NamedTuple):
    """An arc of a tree."""

    head: int
    word: int
    label: str


@dataclass(frozen=True, slots=True)
class Step(OneLine):
    """A configuration, and the transition that is taken in it.

    Attributes:
        stack: from the bottom, ROOT, to the top.
        buffer: the words that are still to come.
        transition: its name.
        arc: that it makes; None if it makes none.
        round: of the search in which it was chosen, from 0 on; None where it is the only legal one.
        probability: among the legal transitions; 1 where there is no other.
        others: the legal transitions that are next best, the best one first.
        features: what the classifier looked at; nothing where there is no choice.
    """

    shown = ("stack", "buffer", "transition", "arc", "probability")

    stack: tuple[int, ...]
    buffer: tuple[int, ...]
    transition: str
    arc: Arc | None
    round: int | None
    probability: float
    others: tuple[Choice, ...] = ()
    features: tuple[Feature, ...] = ()


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A hypothesis of the beam at the beginning of a round.

    Attributes:
        score: what hypotheses are ranked by; see `Derivation.score`.
        transition: the one that led to it; "" at the beginning.
        top: the top of the stack, up to three words, the top one last.
        front: the first word of the buffer; None when it is empty.
        is_final: whether its tree is complete.
        parent: its place in the round before; None at the beginning.
        survives: whether it, or one that continues it, is in the next round; of the last round,
            whether it is the best tree.
        is_on_path: whether the best tree continues it.
    """

    score: float
    transition: str
    top: tuple[int, ...]
    front: int | None
    is_final: bool
    parent: int | None
    survives: bool
    is_on_path: bool


@dataclass(frozen=True, slots=True)
class Derivation(OneLine):
    """The derivation of the tree of a sentence by a transition system.

    Attributes:
        system: the transition system.
        beam: hypotheses that were followed at most.
        score: of the tree: the sum of the natural log-probabilities of its transitions; of a parser
            whose beams were trained globally, the sum of their scores.
        steps: all transitions in order.
        rounds: of the search: the hypotheses at the beginning of each, the best one first, and then
            those at its end. Nothing is in it where there was no choice at all.
        arcs: of words 1 to n, as they were built.
    """

    shown = ("system", "beam", "score")

    system: str
    beam: int
    score: float
    steps: tuple[Step, ...]
    rounds: tuple[tuple[Hypothesis, ...], ...]
    arcs: tuple[Arc, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON holds it; words by their numbers."""
        values: dict[str, Any] = _to_json(self)
        return values


def _to_json(value: Any) -> Any:
    if is_dataclass(value):
        return {each.name: _to_json(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Choice | Feature | Arc):
        return value._asdict()
    return [_to_json(each) for each in value] if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class Trace(OneLine):
    """A sentence with its tree, and how that was built.

    Attributes:
        sentence: with the tree that the parser gives.
        derivation: how it was built. Where the system builds projective trees only, the labels of
            its arcs may hold the mark of lifted ones, `projectivity.LIFTED`.
    """

    shown = ("sentence", "derivation")

    sentence: Sentence
    derivation: Derivation

    def _repr_html_(self) -> str:
        return self.sentence._repr_html_()

    @property
    def put_back(self) -> list[tuple[Arc, Arc]]:
        """The lifted arcs: as they were built, and as they are in the tree."""
        heads, labels = self.sentence.heads(), self.sentence.column(DEPREL)
        return [
            (built, Arc(heads[built.word - 1], built.word, labels[built.word - 1]))
            for built in self.derivation.arcs
            if (built.head, built.label) != (heads[built.word - 1], labels[built.word - 1])
        ]
