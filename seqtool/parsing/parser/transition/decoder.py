"""Trees by transitions: the classifiers of a parser, and the search by their scores."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import geometric_mean

import numpy as np

from seqtool.core.arrays import Floats, Ints
from seqtool.parsing.encoding.features import TokenArrays, Types
from seqtool.parsing.parser.config import ModelConfig
from seqtool.parsing.parser.decoder import ArcTable, Decoder, RankedTree
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.transition.arcs import (
    Hypothesis,
    arc_tables,
    hypotheses,
)
from seqtool.parsing.parser.transition.classifier import Classifier, average_scorer
from seqtool.parsing.parser.transition.search import BEAM_MARGIN, Beams, Scorer, lanes_for, search
from seqtool.parsing.parser.transition.trace import See, derivation, slot_features
from seqtool.treebank.derivation import Derivation

# hypotheses of a sentence at most, where several derivations lead to the same trees, so that a beam
# as wide as there are to be trees holds too few of them
WIDEST = 1024


class SearchDecoder(Decoder):
    """Trees by the transitions of a system, whatever scores these.

    Args:
        system: a name in `transitions.SYSTEMS`.
        labels: of arcs.
        temperature: what the scores are divided by before they become probabilities.
    """

    def __init__(self, system: str, labels: Labels, temperature: float) -> None:
        self._system, self._labels, self.temperature = system, labels, temperature

    @abstractmethod
    def _scorer(self, arrays: TokenArrays) -> Scorer:
        """Return what scores the configurations of sentences; `prepare` was called."""

    @abstractmethod
    def _see(self) -> See:
        """Return what tells what the classifier, of members the first one, looks at."""

    def decode(self, arrays: TokenArrays, *, beam: int = 1) -> tuple[Ints, Ints]:
        """Parse sentences; lifted arcs are where the system put them. See `Decoder.decode`."""
        return next(self.decoded(arrays, [self.temperature], beam=beam))

    def decoded(
        self, arrays: TokenArrays, temperatures: Iterable[float], *, beam: int
    ) -> Iterator[tuple[Ints, Ints]]:
        """Give what `decode` gives with each of some temperatures; words are read once."""
        scorer = self._scorer(arrays)
        for temperature in temperatures:
            yield search(
                self._system,
                self._labels,
                arrays.tokens,
                arrays.lengths,
                len(arrays.types),
                scorer,
                beam=beam,
                margin=BEAM_MARGIN,
                temperature=temperature,
            )

    def ranked(self, arrays: TokenArrays, num: int, *, beam: int = 1) -> Iterator[list[RankedTree]]:
        """Give the best trees of each sentence; see `Decoder.ranked`.

        They are the hypotheses at the end of a beam of which none is given up for being far behind.
        It is as wide as there are to be trees, and wider for sentences that have fewer trees in it:
        twice as wide, again and again, up to `WIDEST`. The score of a tree is the log-probability
        of its derivation, of the best one where there are several; after global training, within
        the beam.
        """
        if not len(arrays.lengths):
            return
        scorer = self._scorer(arrays)
        found: dict[int, list[RankedTree]] = {}
        places, width = np.arange(len(arrays.lengths)), max(beam, num)
        while len(places):
            tokens, lengths = arrays.tokens[places], arrays.lengths[places]
            beams = self._beams(lengths, width, margin=None if num == 1 else np.inf)
            too_few = []
            for place, ends in zip(
                places.tolist(), hypotheses(beams, tokens, lengths, scorer), strict=True
            ):
                found[place] = self._distinct(ends)[:num]
                # a beam that is not full has all trees that there are
                if len(found[place]) < num and len(ends) == width < WIDEST:
                    too_few.append(place)
            places, width = np.asarray(too_few, np.int64), 2 * width
        for place in range(len(arrays.lengths)):
            yield found[place]

    def _distinct(self, ends: Sequence[Hypothesis]) -> list[RankedTree]:
        """Return the trees of a sentence's hypotheses, the best first, each of them once."""
        trees: dict[bytes, RankedTree] = {}
        for hypothesis in ends:
            tree = RankedTree(hypothesis.heads, hypothesis.label_ids, hypothesis.score)
            trees.setdefault(tree.heads.tobytes() + tree.label_ids.tobytes(), tree)
        return list(trees.values())

    def arc_tables(self, arrays: TokenArrays, *, beam: int = 1) -> Iterator[ArcTable]:
        """Give the probabilities of arcs, as `arcs` defines them; see `Decoder.arc_tables`."""
        if len(arrays.lengths):
            beams = self._beams(arrays.lengths, beam)
            scorer = self._scorer(arrays)
            yield from arc_tables(beams, self._labels, arrays.tokens, arrays.lengths, scorer)

    def derivations(self, arrays: TokenArrays, *, beam: int = 1) -> Iterator[Derivation]:
        """Give how the tree of each sentence is built; see `Decoder.derivations`.

        Scores are divided by the temperature also where one hypothesis is followed, which changes
        no choice.
        """
        see = self._see()
        for place in range(len(arrays.lengths)):
            sentence = arrays.part(np.asarray([place]))
            # of this sentence alone: what others were read as lies in memory that is taken again
            scorer = self._scorer(sentence)
            beams = self._beams(sentence.lengths, beam)
            token, length = int(sentence.tokens[0]), int(sentence.lengths[0])
            yield derivation(self._system, beams, scorer, see, token, length)

    def _beams(self, lengths: Ints, beam: int, margin: float | None = None) -> Beams:
        """Return the lanes of a search in which also the score of a single hypothesis counts."""
        return Beams(
            self._system,
            self._labels,
            lanes_for(lengths, beam),
            int(lengths.max()),
            beam=beam,
            margin=BEAM_MARGIN if margin is None else margin,
            temperature=self.temperature,
            normalised=True,
        )


class TransitionDecoder(SearchDecoder):
    """Trees by the transitions of a system, by a neural classifier.

    Args:
        config: what the classifier is; its system is no longer auto.
        labels: of arcs.
        weights: of the classifier, by their names in `task.ParserNetwork`.
        temperature: see `SearchDecoder`.

    Attributes:
        classifier: of the first member.
    """

    def __init__(
        self,
        config: ModelConfig,
        labels: Labels,
        weights: Mapping[str, Floats],
        *,
        temperature: float,
    ) -> None:
        super().__init__(config.system, labels, temperature)
        self._config = config  # of the first member
        self.classifier = Classifier(config, weights)
        self._classifiers = [self.classifier]

    def joined(self, others: Sequence[TransitionDecoder]) -> TransitionDecoder:
        """Return a decoder of several members; see `Decoder.joined`.

        Its temperature is the geometric mean of theirs.
        """
        together, members = copy.copy(self), (self, *others)
        together._classifiers = [c for each in members for c in each._classifiers]
        together.temperature = geometric_mean([each.temperature for each in members])
        return together

    def prepare(self, types: Types) -> None:
        """Make the products of the types that were met since the last time."""
        for classifier in self._classifiers:
            num_types = classifier.products.num_types
            if num_types < len(types):
                classifier.products.extend(*types.arrays(num_types))

    @property
    def num_bytes(self) -> int:
        """Memory of the products of types, of the member with most."""
        return max(classifier.products.num_bytes for classifier in self._classifiers)

    def clear(self) -> None:
        """Forget the products of all types."""
        for classifier in self._classifiers:
            classifier.products.clear()

    @property
    def num_layers(self) -> int:
        """How many layers the encoder has; 0 without one."""
        tokens = self.classifier.tokens
        return 0 if tokens is None else tokens.num_layers

    def states(self, arrays: TokenArrays, layer: int | None = None) -> Floats:
        """Return the encoder's states; see `Decoder.states`."""
        assert self.classifier.tokens is not None
        return self.classifier.tokens.states(self.classifier.products.vectors, arrays, layer)

    def _scorer(self, arrays: TokenArrays) -> Scorer:
        return average_scorer(
            [
                classifier.scorer(arrays.types, classifier.in_context(arrays))
                for classifier in self._classifiers
            ]
        )

    def _see(self) -> See:
        config = self._config
        return slot_features(
            config.slots, config.label_slots, config.measures, contexts=config.contexts
        )
