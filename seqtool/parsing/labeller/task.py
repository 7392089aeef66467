"""Labels of words as a task of the training loop: that of a tagger, judged by entities."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from seqtool.parsing.labeller.config import LabellerConfig
from seqtool.parsing.labeller.data import count_dev, scheme_of
from seqtool.parsing.labeller.model import Labeller
from seqtool.parsing.tagger.data import TrainingData
from seqtool.parsing.tagger.task import TaggerTask
from seqtool.parsing.train import TreebankTask


class LabellerTask(TreebankTask[LabellerConfig, TrainingData]):
    """The choice of labels, for `seqtool.training.loop.train`.

    The best epoch is that of the highest F1 of entities; of other labels, of the highest accuracy.
    """

    items = "words"

    def __init__(self, config: LabellerConfig, data: TrainingData, **options: str) -> None:
        super().__init__(config, data, **options)
        self._tagging = TaggerTask(config.as_tagger(), data, **options)
        self.module = self._tagging.module
        scheme = scheme_of(data)
        self._is_bio, self._are_entities = scheme == "bio", scheme != "any"
        self.score = "dev_f1" if self._are_entities else "dev_accuracy"

    def start_epoch(self, epoch: int) -> int:
        """Draw batches of sentences of like lengths; return their number."""
        return self._tagging.start_epoch(epoch)

    def loss(self, index: int) -> tuple[Tensor, int]:
        """Return the mean loss of batch `index`, in nats per word."""
        return self._tagging.loss(index)

    def model(self) -> Labeller:
        """Return the labeller of the averaged weights."""
        return Labeller(self.config, self._tagging.model(), is_bio=self._is_bio)

    def validate(self) -> dict[str, float]:
        """Return the scores of the validation part, in percent."""
        counts = count_dev(self.model(), self._data)
        scores = {"dev_accuracy": counts.accuracy}
        if self._are_entities:
            names = ("dev_precision", "dev_recall", "dev_f1")
            scores |= dict(zip(names, counts.total, strict=False))
        return scores

    def carried(self) -> dict[str, Tensor]:
        """Return the averages."""
        return self._tagging.carried()

    def restore_carried(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `carried` returned."""
        self._tagging.restore_carried(tensors)
