"""The scores of arcs and of their labels, by weights of features: `ArcScorer`."""

from __future__ import annotations

from seqtool.core.arrays import Floats, Ints
from seqtool.parsing.encoding.features import TokenArrays, Types
from seqtool.parsing.parser.config import ModelConfig
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.linear.arcs.features import score_labels, score_sentences
from seqtool.parsing.parser.linear.arcs.templates import atoms_of, compile_templates
from seqtool.parsing.parser.linear.hashing import Values

WEIGHTS = "features"  # their name among the arrays of a model


def weight_shapes(config: ModelConfig, labels: Labels) -> dict[str, tuple[int, ...]]:
    """Return the shape of the weights: a place for each hashed feature, room for labels behind."""
    return {WEIGHTS: ((1 << config.hash_bits) + len(labels),)}


class ArcScorer:
    """Scores by weights that are given, or changed, from call to call.

    Args:
        config: what is read, and how many weights there are.
        labels: of arcs.

    Attributes:
        features: those of the types that are known.
    """

    def __init__(self, config: ModelConfig, labels: Labels) -> None:
        read = atoms_of(config.fields)
        self._labels = labels
        self._values = Values(tuple(read.values()))
        self.features = compile_templates(read, config.hash_bits)

    def extend(self, known: Types) -> None:
        """Add the types that were met since the last time."""
        self._values.extend(known)
        self.features = self.features._replace(values=self._values.table)

    def clear(self) -> None:
        """Forget all types."""
        self._values.clear()
        self.features = self.features._replace(values=self._values.table)

    def add_arc_scores(self, weights: Floats, arrays: TokenArrays, scores: Floats) -> None:
        """Add the scores of all arcs of sentences to `scores`, flat, as `graph.trees` says."""
        tokens, lengths = arrays.tokens, arrays.lengths
        score_sentences(self.features, arrays.types, tokens, lengths, weights, scores)

    def add_label_scores(
        self, weights: Floats, arrays: TokenArrays, heads: Ints, tree: Ints, scores_WL: Floats
    ) -> None:
        """Add the scores of the labels that arcs may have.

        Args:
            weights: of features.
            arrays: sentences.
            heads: of all words, where the arcs come from.
            tree: heads of all words, in the trees that the arcs are in, or would be.
            scores_WL: [words, labels].
        """
        first = len(self._labels.arcs)
        sentences = arrays.types, arrays.tokens, arrays.lengths
        score_labels(self.features, *sentences, heads, tree, first, weights, scores_WL)
