"""Training of taggers and of labellers of words: `train_tagger`, `train_labeller`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from seqtool.core.arrays import Ints
from seqtool.parsing.data import batches_of_like_lengths
from seqtool.parsing.encoding.encoder import (
    AveragedWeights,
    adversary,
    num_words,
    unknown_chances,
    word_numbers,
)
from seqtool.parsing.sparse.adagrad import SparseLearner, num_bits
from seqtool.parsing.sparse.words import attributes_of, chosen, compile_templates, words_of
from seqtool.parsing.tagger.columns import read_labelled
from seqtool.parsing.tagger.config import (
    LABELLERS,
    SMALLEST_STEP,
    TAGGERS,
    LabellerConfig,
    TaggerConfig,
)
from seqtool.parsing.tagger.data import (
    NO_SCRIPT,
    TaggerData,
    labeller_data,
    scheme_of,
    tagger_data,
)
from seqtool.parsing.tagger.labeller import Labeller
from seqtool.parsing.tagger.model import Tagger
from seqtool.parsing.tagger.network import TaggerNetwork
from seqtool.parsing.train import Kind, TreebankTask, WordOptions, read_by, train_on_treebank
from seqtool.training.run import TrainedModel
from seqtool.treebank.sentence import FEATS, LEMMA, UPOS, XPOS, Sentence


class TaggerTask(TreebankTask[TaggerConfig, TaggerData]):
    """The choice of tags and edit scripts, for `seqtool.training.loop.train`."""

    items = "words"
    score = "dev_tags"

    def __init__(self, config: TaggerConfig, data: TaggerData, **options: str) -> None:
        bits = num_bits(config, len(data.train.words))
        # as a list, which stays that of the model when the standard ones change
        templates = chosen(config.model.sparse_templates)
        model = dataclasses.replace(config.model, sparse_bits=bits, sparse_templates=templates)
        super().__init__(dataclasses.replace(config, model=model), data, **options)
        bundles = data.bundles
        self._words: Ints | None = None  # of each distinct word, the number of its word
        if config.learning.cloze_weight:
            self._words = word_numbers(data.symbols, data.lexical)
        # of no parts, unless they are learnt
        self._parts = bundles.parts[:, : None if config.learning.share_parts else 0]
        self.module = TaggerNetwork(
            config.model,
            data.symbols.num_symbols,
            data.characters.num_symbols,
            torch.from_numpy(self._parts),
            len(bundles),
            len(data.lemmas.scripts),
            num_words=num_words(self._words),
        )
        if data.vectors is not None:
            places, rows = data.vectors.initial(data.symbols)
            with torch.no_grad():
                self.module.lexical.weight[places] = torch.from_numpy(rows)
        self.module.to(self._device)
        self._lexical, self._spelling = (
            torch.from_numpy(array).long() for array in (data.lexical, data.spelling)
        )
        self._num_characters = torch.from_numpy((data.spelling > 0).sum(1))
        counts, unknowns = data.symbol_counts
        self._chances = unknown_chances(counts, config.learning.dropout_words)
        self._unknowns = torch.from_numpy(unknowns).long()
        # [B, 3]: which of all values those of a bundle are
        members = torch.from_numpy(bundles.table + bundles.starts).long()
        self._members = members.to(self._device)
        self._begins = np.cumsum(data.train.lengths) - data.train.lengths
        self._average: AveragedWeights = AveragedWeights(self.module, config.learning.averaging)
        self._batches: list[npt.NDArray[np.int64]] = []
        self._sparse: SparseLearner | None = None
        if bits:
            _, names = compile_templates(templates)
            attributes = attributes_of([word[0] for word in data.distinct], names)
            self._sparse = SparseLearner(
                self.config,
                words_of(attributes, data.train.words, data.train.lengths),
                data.bundle_ids[data.train.words],
                bundles.table + bundles.starts,
                bundles.num_values,
            )

    def start_epoch(self, epoch: int) -> int:
        """Draw batches of sentences of like lengths; return their number."""
        self._epoch = epoch
        generator = np.random.default_rng((self.config.training.seed, epoch))
        lengths, learning = self._data.train.lengths, self.config.learning
        order = generator.permutation(len(lengths))
        fewer = max(SMALLEST_STEP, int(lengths.sum()) // learning.min_steps)
        size = min(learning.batch_words, fewer)
        self._batches = batches_of_like_lengths(order, lengths, size, generator)
        return len(self._batches)

    def loss(self, index: int) -> tuple[Tensor, int]:
        """Return the mean loss of batch `index`: of bundles and, weighted, of edit scripts."""
        self._average.update()
        self._begin_step(index)
        learning = self.config.learning
        sentences = self._batches[index]
        lengths = self._data.train.lengths[sentences]
        ends = np.cumsum(lengths)
        inside = np.repeat(self._begins[sentences] - ends + lengths, lengths) + np.arange(ends[-1])
        words, places = np.unique(self._data.train.words[inside], return_inverse=True)
        vectors_UD = self._vectors(torch.from_numpy(words))
        inputs_TD = functional.embedding(torch.from_numpy(places).to(self._device), vectors_UD)
        lengths_B = torch.from_numpy(lengths)
        bundles_T, scripts_T = (
            torch.from_numpy(ids[words][places]).long().to(self._device)
            for ids in (self._data.bundle_ids, self._data.script_ids)
        )
        as_they_are: Tensor | None = None
        if learning.adversarial and torch.is_grad_enabled():
            states_TX, _ = self._states(inputs_TD, lengths_B)
            as_they_are = self._tag_loss(states_TX, bundles_T)
            inputs_TD = inputs_TD + adversary(as_they_are, inputs_TD, learning.adversarial)
        states_TX, first_TH = self._states(inputs_TD, lengths_B)
        loss = self._tag_loss(states_TX, bundles_T)
        if as_they_are is not None:
            loss = (loss + as_they_are) / 2.0
        # the mean over no word would be a NaN
        if learning.lemma_weight and bool((scripts_T != NO_SCRIPT).any()):
            scores_TE = self.module.lemma_scores(
                states_TX,
                bundles_T,
                lambda hidden: hidden * self._kept(hidden, learning.dropout_lemmas),
            )
            loss = loss + learning.lemma_weight * functional.cross_entropy(
                scores_TE.float(), scripts_T, ignore_index=NO_SCRIPT
            )
        if self._words is not None:
            words_T = torch.from_numpy(self._words[words][places]).long().to(self._device)
            cloze_loss = self.module.cloze(first_TH, words_T, lengths_B.to(self._device))
            loss = loss + learning.cloze_weight * cloze_loss
        return loss, len(inside)

    def _states(self, inputs_TD: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return what is known of words in their sentences; see `TaggerNetwork.states`."""
        learning = self.config.learning
        return self.module.states(
            inputs_TD * self._kept(inputs_TD, learning.dropout_embeddings),
            lengths_B,
            # the same for all words of a sentence (Gal & Ghahramani 2016)
            lambda states_LBD: states_LBD * self._kept(states_LBD[:1], learning.dropout_encoder),
            lambda states_TH: states_TH * self._kept(states_TH, learning.dropout_encoder),
        )

    def _tag_loss(self, states_TX: Tensor, bundles_T: Tensor) -> Tensor:
        """Return the mean loss of words' bundles."""
        values_TO = self.module.value_scores(states_TX).float()
        scores_TB = values_TO[:, self._members].sum(2)
        # that all combinations have a share would be learnt by the morphemes of all, too
        share = 0.0 if self._parts.size else self.config.learning.label_smoothing
        return functional.cross_entropy(scores_TB, bundles_T, label_smoothing=share)

    def _vectors(self, words_U: Tensor) -> Tensor:
        """Return the vectors of forms, the rarer symbols of which are now and then unknown."""
        lexical_US = self._lexical[words_U]
        if self.config.learning.dropout_words:
            unknown = self._drawn(self._chances[lexical_US])
            lexical_US = torch.where(unknown, self._unknowns[lexical_US], lexical_US)
        longest = int(self._num_characters[words_U].max())
        spelling_UL = self._spelling[words_U, :longest]
        return self.module.vectors(lexical_US.to(self._device), spelling_UL.to(self._device))

    def model(self) -> Tagger:
        """Return the tagger of the averaged weights."""
        data = self._data
        learnt = data.symbols, data.characters, data.bundles, data.lemmas
        weights = self._average.arrays()
        # the tagger itself needs to know nothing of parts
        if (of_parts := weights.pop("parts.weight", None)) is not None:
            weights["values.weight"] = weights["values.weight"] + self._parts @ of_parts
        if self._sparse is not None:
            # where a run is resumed, their epochs so far again; where it is finished, not at all
            self._sparse.learn_until(self._epoch + 1)
            weights |= self._sparse.arrays()
        return Tagger(self.config, *learnt, weights)

    def validate(self) -> dict[str, float]:
        """Return how many words of the validation part are right, in percent."""
        data = self._data
        sentences = data.untagged_dev()
        for _ in self.model().tag_stream(sentences):
            pass
        rows = [row for sentence in sentences for row in sentence.rows]
        right = dict.fromkeys(("upos", "xpos", "feats", "tags", "lemmas"), 0)
        for row, word in zip(rows, data.dev.words.tolist(), strict=True):
            _, lemma, *gold = data.distinct[word]
            found = [row[column] for column in (UPOS, XPOS, FEATS)]
            for name, value, wanted in zip(right, found, gold, strict=False):
                right[name] += value == wanted
            right["tags"] += found == gold
            right["lemmas"] += row[LEMMA] == lemma
        return {f"dev_{name}": 100.0 * count / len(rows) for name, count in right.items()}


class LabellerTask(TaggerTask):
    """The choice of labels, the UPOS of a tagger.

    The best epoch is that of the highest F1 of entities; of other labels, of the highest accuracy.
    """

    def __init__(self, config: LabellerConfig, data: TaggerData, **options: str) -> None:
        super().__init__(config.as_tagger(), data, **options)
        self._labels, self._scheme = config, scheme_of(data)
        self.score = "dev_accuracy" if self._scheme == "any" else "dev_f1"

    def model(self) -> Labeller:  # type: ignore[override]
        """Return the labeller of the averaged weights."""
        return Labeller(self._labels, super().model(), is_bio=self._scheme == "bio")

    def validate(self) -> dict[str, float]:
        """Return the scores of the validation part, in percent."""
        counts = self.model().count_dev(self._data)
        scores = {"dev_accuracy": counts.accuracy}
        if self._scheme != "any":
            names = ("dev_precision", "dev_recall", "dev_f1")
            scores |= dict(zip(names, counts.total, strict=False))
        return scores


def train_tagger(
    train_files: Sequence[str | Path] | str | Path | None = None,
    output: str | Path = "runs/tagger",
    config: TaggerConfig | str | Mapping[str, Any] | None = None,
    **options: Unpack[WordOptions],
) -> TrainedModel:
    """Train a tagger and lemmatizer.

    Args:
        train_files: CoNLL-U with tags and lemmas; trees are not looked at.
        output: the model directory.
        config: all settings, the name of a preset, or some settings as a dictionary, such as
            `{"training": {"epochs": 5}}`; the preset `accurate` if not given.
        options: see `WordOptions`; the best epoch is chosen by tags.

    Returns:
        Its scores are `dev_upos`, `dev_xpos`, `dev_feats`, `dev_tags` (all three) and `dev_lemmas`
        in percent.

    Raises:
        Interrupted, SeqtoolError: see `seqtool.parsing.train.train_on_treebank`.
    """
    return train_on_treebank(TAGGER, train_files, output, config, **options)


def train_labeller(
    train_files: Sequence[str | Path] | str | Path | None = None,
    output: str | Path = "runs/tagger",
    config: LabellerConfig | str | Mapping[str, Any] | None = None,
    **options: Unpack[WordOptions],
) -> TrainedModel:
    """Train a labeller of words, such as of named entities.

    Args:
        train_files: CoNLL-U with the labels in column MISC, or files with a word and its label in
            each line (`data.word_column` and `data.label_column` say where).
        output: the model directory.
        config: all settings, the name of a preset, or some settings as a dictionary, such as
            `{"data": {"column": "NER"}}`; the preset `accurate` if not given.
        options: see `WordOptions`; the best epoch is chosen by the F1 of entities.

    Returns:
        Its scores are `dev_accuracy` and, of labels of entities, `dev_precision`, `dev_recall` and
        `dev_f1`, in percent.

    Raises:
        Interrupted, SeqtoolError: see `seqtool.parsing.train.train_on_treebank`.
    """
    return train_on_treebank(LABELLER, train_files, output, config, **options)


def _labelled(
    files: Sequence[str], config: LabellerConfig, *, skip_invalid: bool
) -> list[Sentence]:
    """Return the sentences of files of labels."""
    data = config.data
    return read_labelled(
        files, data.column, data.word_column, data.label_column, skip_invalid=skip_invalid
    )


TAGGER = Kind(TAGGERS, "a CoNLL-U file with tags", read_by(tagger_data), TaggerTask, Tagger.card)
LABELLER = Kind(
    LABELLERS,
    "a CoNLL-U file with labels in column MISC, or one of words and labels",
    read_by(labeller_data, _labelled),
    LabellerTask,
    Labeller.card,
)
