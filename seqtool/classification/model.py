"""The classifier at work: `Classifier`; its directory, of kind "classifier".

A linear one needs no torch; a network is imported when it is first asked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from seqtool.classification.config import BILSTM, KIND, LINEAR, LM, ClassifierConfig
from seqtool.classification.data import WordReader
from seqtool.classification.ngrams import Bags, laid_out
from seqtool.core import checkpoint
from seqtool.core.arrays import Floats
from seqtool.core.checkpoint import Header
from seqtool.core.errors import ModelError, counted
from seqtool.core.reading import whole_text
from seqtool.core.vocabulary import Vocabulary
from seqtool.parsing.model import Shapes, TreebankModel, at_work, average

if TYPE_CHECKING:
    from seqtool.classification.network import ReadingNetwork, TunedNetwork
    from seqtool.lm.neural.model import NeuralLanguageModel

CHUNK_TEXTS = 1 << 10  # read together
LM_FOLDER, LM_SUM = "lm", "lm_sum"  # the language model's copy; its sum, in the classifier's header

_ABOUT = {
    LINEAR: "Logistic regression over the n-grams of a text",
    BILSTM: "A bidirectional LSTM over words",
    LM: "The layers of a language model, trained further",
}


class Prediction(NamedTuple):
    """The label of a text.

    Attributes:
        label: the most probable one.
        probabilities: of all labels.
    """

    label: str
    probabilities: dict[str, float]

    def __repr__(self) -> str:
        return f"Prediction({self.label!r}, probability={self.probabilities[self.label]:.4g})"


class Classifier(TreebankModel[ClassifierConfig]):
    """A trained classifier of texts.

    Args:
        config: all settings.
        labels: the commonest one of training first.
        reader: what it knows of texts: n-grams, or words.
        weights: the arrays of `network.LinearNetwork` or of `network.network_of`.
        lm: the language model that reads texts, for weights that were trained so; of the encoder
            `lm` that which training began from.
    """

    kind = KIND
    config_class = ClassifierConfig
    works = "classify"

    def __init__(
        self,
        config: ClassifierConfig,
        labels: Sequence[str],
        reader: Bags | WordReader,
        weights: Mapping[str, Floats],
        lm: NeuralLanguageModel | None = None,
    ) -> None:
        super().__init__(config, weights)
        self.labels, self.reader, self.lm = tuple(labels), reader, lm

    @property
    def vocabulary(self) -> Vocabulary:
        """Labels, and n-grams or words."""
        name = "ngrams" if isinstance(self.reader, Bags) else "words"
        return Vocabulary(tables={"labels": self.labels, name: self.reader.known})

    @property
    def shared(self) -> object:
        """What all members of an ensemble must have alike: the labels."""
        return self.labels

    @classmethod
    def restore(
        cls,
        config: ClassifierConfig,
        vocabulary: Vocabulary,
        read_weights: Callable[[Shapes], dict[str, Floats]],
        lm: NeuralLanguageModel | None = None,
    ) -> Classifier:
        """Return the classifier that was saved; see `TreebankModel.restore`."""
        labels = vocabulary.texts("labels")
        if len(set(labels)) < max(2, len(labels)):
            raise ValueError("labels are missing, or stand twice")
        reader: Bags | WordReader
        if config.model.encoder == LINEAR:
            reader = Bags(config.model, vocabulary.texts("ngrams"))
            num = len(labels)
            shapes: Shapes = {"ngrams.weight": (len(reader.known), num), "bias": (num,)}
        else:
            from seqtool.classification.network import weight_shapes

            if config.model.encoder == LM and lm is None:
                raise ValueError("the language model is missing")
            reader = WordReader(config.model, vocabulary.texts("words"), lm)
            shapes = weight_shapes(config.model, len(reader.known), len(labels), lm)
        return cls(config, labels, reader, read_weights(shapes), lm)

    @classmethod
    def load(
        cls, directory: Path, header: Header, *, device: str = "cpu", **more: Any
    ) -> Classifier:
        """Open a model directory; see `TreebankModel.load`.

        Raises:
            ModelError: a file is missing or damaged, or the language model is another one.
        """
        if LM_SUM in header.data:
            # in training, it is beside the best model
            parts = [folder / LM_FOLDER for folder in (directory, directory.parent)]
            path = next((part for part in parts if part.is_dir()), parts[0])
            if not path.is_dir() or sum_of(path) != header.data[LM_SUM]:
                what = "the language model that the classifier reads is missing, or another one"
                hint = "copy the model again, or train it again"
                raise ModelError(what, hint=hint, path=path)
            more["lm"] = open_language_model(path)
        return super().load(directory, header, device=device, **more)

    @staticmethod
    def card(header: Header) -> str:
        """Return the README.md: what it is, its scores, its data and its command."""
        encoder = header.config["model"]["encoder"]
        of_lm = ""
        if LM_SUM in header.data:
            read = "vocabulary and sizes are in use" if encoder == LM else "states are read"
            of_lm = f"The language model is in `lm/`, as it was before: its {read}."
        labels = counted(len(header.data.get("labels", ())), "label")
        return checkpoint.compose(
            header,
            "A classifier of texts",
            f"{_ABOUT[encoder]}, {labels}, {counted(header.num_parameters, 'parameter')}.",
            of_lm,
            checkpoint.scores_table(header),
            "In percent; macro F1 is the mean of the labels' F1, and majority accuracy that of the "
            "commonest label.",
            checkpoint.data_table(header),
            maker="train_classifier (Python)",
            use=("seqtool classify FILE.csv -m THIS_DIRECTORY",),
        )

    def num_cut(self, texts: Iterable[str]) -> int:
        """Return how many texts are too long to be read to their ends; a linear one reads all."""
        reader = self.reader
        return 0 if isinstance(reader, Bags) else sum(map(reader.is_cut, texts))

    def probabilities(self, texts: Sequence[str]) -> Floats:
        """Return the probabilities of labels, [texts, labels]; of an ensemble their mean.

        Raises:
            DataError: half a surrogate pair in a text.
        """
        for number, text in enumerate(texts, start=1):
            if not isinstance(text, str):
                raise TypeError(f"expected texts, not {text!r}")
            whole_text(text, f"text {number}")
        with at_work():
            return average([_softmax(member._scores(texts)) for member in self.members])

    def _scores(self, texts: Sequence[str]) -> Floats:
        """Return the scores of labels, [texts, labels]."""
        if isinstance(self.reader, Bags):
            ids, values, begins = laid_out([self.reader.ids(text) for text in texts])
            rows = self.weights["ngrams.weight"][ids] * values[:, None]
            # a row of zeros: `reduceat` gives to a text without n-grams what stands where it begins
            rows = np.concatenate((rows, np.zeros((1, len(self.labels)), np.float32)))
            ends = np.append(begins[1:], len(ids))
            sums = np.add.reduceat(rows, begins) if len(texts) else rows[:0]
            scores: Floats = np.where((ends > begins)[:, None], sums, 0.0) + self.weights["bias"]
            return scores
        from seqtool.classification.network import scores_of

        words = [self.reader.ids(text) for text in texts]
        return scores_of(self._network, words, self.reader.states(texts))

    @cached_property
    def _network(self) -> ReadingNetwork | TunedNetwork:
        """The network of words, with the weights."""
        from seqtool.classification.network import trained_network

        num_words = len(self.reader.known)
        return trained_network(self.config.model, num_words, self.weights, self.lm)

    @overload
    def __call__(self, given: str) -> Prediction: ...
    @overload
    def __call__(self, given: list[str]) -> list[Prediction]: ...
    def __call__(self, given: str | list[str]) -> Prediction | list[Prediction]:
        """Return the label of a text, or those of several, with the probabilities of all labels.

        >>> classifier = seqtool.load("runs/classifier")            # doctest: +SKIP
        >>> classifier("A fine film.").label                        # doctest: +SKIP
        'good'
        """
        return next(self.pipe([given])) if isinstance(given, str) else list(self.pipe(given))

    def pipe(self, texts: Iterable[str]) -> Iterator[Prediction]:
        """Give the label of each text, in order; memory does not grow with their number.

        Raises:
            TypeError: when iterated: one is no string; a single string, in place of a list of them.
        """
        if isinstance(texts, str):
            raise TypeError("expected a list of texts, not one text: put it into a list")
        source = iter(texts)
        while chunk := list(islice(source, CHUNK_TEXTS)):
            for row in self.probabilities(chunk):
                label = self.labels[int(row.argmax())]
                yield Prediction(label, dict(zip(self.labels, row.tolist(), strict=True)))


def sum_of(path: str | Path) -> str:
    """Return what tells a language model from others: a sum of its settings and of its files'."""
    header = checkpoint.read_header(path)
    text = json.dumps([header.config, header.tokenizer, header.files], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def open_language_model(path: str | Path, *, device: str = "cpu") -> NeuralLanguageModel:
    """Open a neural language model.

    Raises:
        ModelError: there is none, it is damaged, or of another kind.
    """
    from seqtool.lm.neural.model import NeuralLanguageModel

    model = checkpoint.load(path, device=device)
    if not isinstance(model, NeuralLanguageModel):
        what, hint = "is no neural language model", "give a model that `seqtool train-lm` made"
        raise ModelError(what, hint=hint, path=path)
    return model


def _softmax(scores: Floats) -> Floats:
    """Return the probabilities of scores, [N, K]."""
    powers = np.exp(scores - scores.max(1, keepdims=True))
    probabilities: Floats = powers / powers.sum(1, keepdims=True)
    return probabilities


load_model = Classifier.load
