"""Trees by transitions that a linear classifier chooses."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from time import thread_time

from seqtool.core.arrays import Floats
from seqtool.parsing.encoding.features import TokenArrays, Types
from seqtool.parsing.parser.config import ModelConfig
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.linear.transitions.classifier import LinearClassifier, Timing
from seqtool.parsing.parser.transition.classifier import average_scorer
from seqtool.parsing.parser.transition.decoder import SearchDecoder
from seqtool.parsing.parser.transition.search import Scorer


class LinearDecoder(SearchDecoder):
    """Trees by the transitions of a system, by sparse features.

    Args:
        config: templates, hash and system, which are chosen.
        labels: of arcs.
        weights: see `classifier`.
    """

    def __init__(self, config: ModelConfig, labels: Labels, weights: Mapping[str, Floats]) -> None:
        super().__init__(config.system, labels, 1.0)
        self._classifiers = [LinearClassifier(config, weights)]

    def joined(self, others: Sequence[LinearDecoder]) -> LinearDecoder:
        """Return a decoder of several members; see `Decoder.joined`."""
        together = copy.copy(self)
        together._classifiers = [c for each in (self, *others) for c in each._classifiers]
        return together

    def prepare(self, types: Types) -> None:
        """Note the attributes of the types that were met since the last time."""
        for classifier in self._classifiers:
            classifier.prepare(types)

    @property
    def num_bytes(self) -> int:
        """Memory of the attributes of types, of the member with most."""
        return max(classifier.values.table.nbytes for classifier in self._classifiers)

    def clear(self) -> None:
        """Forget the attributes of all types."""
        for classifier in self._classifiers:
            classifier.values.clear()

    def _scorer(self, arrays: TokenArrays) -> Scorer:
        return average_scorer([classifier.scorer(arrays.types) for classifier in self._classifiers])

    def timed(self, types: Types, arrays: TokenArrays) -> Timing:
        """Parse sentences twice, greedily, and return where the time of the second time went."""
        self.prepare(types)
        self.decode(arrays)  # whose time is also that of compiling
        for classifier in self._classifiers:
            classifier.timing = Timing()
        begin = thread_time()
        self.decode(arrays)
        total = thread_time() - begin
        parts = [classifier.timing for classifier in self._classifiers]
        return Timing(
            found=sum(part.found for part in parts),
            hashed=sum(part.hashed for part in parts),
            summed=sum(part.summed for part in parts),
            total=total,
        )
