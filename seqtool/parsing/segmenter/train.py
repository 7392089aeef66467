"""Training of segmenters: `train_segmenter`, and its task of the training loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from seqtool.parsing.encoding.encoder import unknown_chances
from seqtool.parsing.segmenter.characters import space_table
from seqtool.parsing.segmenter.config import SEGMENTERS, SegmenterConfig
from seqtool.parsing.segmenter.data import SegmenterData, lay_out, segmenter_data, surface_tokens
from seqtool.parsing.segmenter.model import Segmenter, ranges
from seqtool.parsing.segmenter.network import SegmenterNetwork
from seqtool.parsing.train import Kind, RunOptions, TreebankTask, read_by, train_on_treebank
from seqtool.text.marks import NUM_CODES
from seqtool.training.run import TrainedModel
from seqtool.treebank.sentence import Sentence


def segmentation_scores(
    gold: Sequence[Sentence], predicted: Iterable[Sentence]
) -> dict[str, float]:
    """Return F1 of `tokens`, `words`, `multiword` tokens and `sentences`, in percent.

    Spans are compared as at CoNLL 2018, whitespace left out. A word of a multiword token is right
    if the token's span and the word's form (in lower case) and place are, where the official scorer
    aligns them. Multiword tokens are left out where there are none in either.
    """
    gold_spans, predicted_spans = _spans(gold), _spans(predicted)
    scores = {}
    for name, wanted in gold_spans.items():
        found = predicted_spans[name]
        if wanted or found:
            scores[name] = 200.0 * len(wanted & found) / (len(wanted) + len(found))
    return scores


def _spans(sentences: Iterable[Sentence]) -> dict[str, set[tuple[object, ...]]]:
    names = ("tokens", "words", "multiword", "sentences")
    spans: dict[str, set[tuple[object, ...]]] = {name: set() for name in names}
    place = 0
    for sentence in sentences:
        begin = place
        for token in surface_tokens(sentence):
            size = len("".join(token.form.split()))
            span = (place, place + size)
            spans["tokens"].add(span)
            words = tuple(word.lower() for word in token.words)
            if words:
                spans["multiword"].add((*span, words))
            for number, word in enumerate(words or ("",)):
                spans["words"].add((*span, number, word))
            place += size
        spans["sentences"].add((begin, place))
    return spans


class SegmenterTask(TreebankTask[SegmenterConfig, SegmenterData]):
    """The ends of tokens and sentences, for `seqtool.training.loop.train`."""

    items = "characters"
    score = "dev_mean"

    def __init__(self, config: SegmenterConfig, data: SegmenterData, **options: str) -> None:
        super().__init__(config, data, **options)
        self.module = SegmenterNetwork(
            config.model, len(data.alphabet), len(data.lexicon), data.text.num_tags
        )
        self.module.to(self._device)
        present, counts = np.unique(data.text.codes, return_counts=True)
        # newlines and spaces are drawn anew in each epoch
        present = np.union1d(present, [ord(" "), ord("\n")])
        self._rows = np.zeros(NUM_CODES, np.int64)
        self._rows[present] = np.arange(len(present))
        self._symbols = torch.from_numpy(data.alphabet.symbols(present.tolist())).long()
        by_code = dict(zip(np.unique(data.text.codes).tolist(), counts.tolist(), strict=True))
        counts_U = np.array([by_code.get(code, 0) for code in present.tolist()])
        self._drop_characters = unknown_chances(counts_U, config.learning.dropout_symbols)
        counts_F = np.bincount(data.text.forms, minlength=1 + len(data.lexicon))
        self._drop_forms = unknown_chances(counts_F, config.learning.dropout_symbols)

    def start_epoch(self, epoch: int) -> int:
        """Lay the treebank out, and draw an order of its windows; return the number of steps."""
        self._epoch = epoch
        random = np.random.default_rng((self.config.training.seed, epoch))
        learning = self.config.learning
        self._layout = lay_out(self._data.text, learning, random)
        begins, ends = self._layout.windows[:-1], self._layout.windows[1:]
        num_characters = self._layout.lasts[ends - 1] + 1 - self._layout.firsts[begins]
        # windows of like lengths together, but not always the same
        order = np.argsort(num_characters * random.uniform(0.9, 1.1, len(begins)), kind="stable")
        size = min(learning.batch_characters, int(num_characters.sum()) // learning.min_steps)
        batch = np.cumsum(num_characters[order]) // max(size, 1)
        batches = np.split(order, np.flatnonzero(np.diff(batch)) + 1)
        self._batches = [batches[place] for place in random.permutation(len(batches))]
        return len(self._batches)

    def loss(self, index: int) -> tuple[Tensor, int]:
        """Return the mean loss of batch `index`: nats per character that is no whitespace."""
        self._begin_step(index)
        learning, layout, text = self.config.learning, self._layout, self._data.text
        windows = self._batches[index]
        begins, ends = layout.windows[windows], layout.windows[windows + 1]
        tokens = ranges(begins, ends)
        first_places = layout.firsts[begins]
        lengths = layout.lasts[ends - 1] + 1 - first_places
        places = ranges(first_places, first_places + lengths)
        # of each token, how far its window's characters are from where they stand in the text
        shift = np.repeat(first_places - (np.cumsum(lengths) - lengths), ends - begins)
        firsts = torch.from_numpy(layout.firsts[tokens] - shift).long().to(self._device)
        lasts = torch.from_numpy(layout.lasts[tokens] - shift).long().to(self._device)
        codes = layout.codes[places]

        symbols_U3 = self._symbols.clone()
        unknown = self._drawn(self._drop_characters)
        # the first symbol alone: category and script of an unknown character are known
        symbols_U3[unknown, 0] = 0
        states_CH = self.module.character_states(
            symbols_U3.to(self._device),
            torch.from_numpy(self._rows[codes]).to(self._device),
            torch.from_numpy(lengths),
            lambda vectors_CD: vectors_CD * self._kept(vectors_CD, learning.dropout_inputs),
        )
        states_CH = states_CH * self._kept(states_CH, learning.dropout_states)
        is_last = torch.zeros(len(codes), device=self._device)
        is_last[lasts] = 1.0
        inside = torch.from_numpy(~space_table()[codes]).to(self._device)
        # whitespace is not asked about, as no token ends with it
        end_loss = functional.binary_cross_entropy_with_logits(
            self.module.token_ends(states_CH)[:, 0][inside], is_last[inside], reduction="sum"
        )
        forms = torch.from_numpy(text.forms[tokens]).long()
        forms[self._drawn(self._drop_forms[forms])] = 0
        states_NG = self.module.token_states(
            states_CH,
            firsts,
            lasts,
            forms.to(self._device),
            torch.from_numpy(ends - begins),
            lambda states: states * self._kept(states, learning.dropout_states),
        )
        states_NG = states_NG * self._kept(states_NG, learning.dropout_states)
        wanted = np.stack((text.ends[tokens], text.multiword[tokens]), axis=1).astype(np.float32)
        decision_loss = functional.binary_cross_entropy_with_logits(
            self.module.decisions(states_NG),
            torch.from_numpy(wanted).to(self._device),
            reduction="sum",
        )
        tag_loss = functional.cross_entropy(
            self.module.tags(states_NG),
            torch.from_numpy(text.tags[tokens]).long().to(self._device),
            reduction="sum",
        )
        num_items = int(inside.sum())
        loss = end_loss + decision_loss + learning.tag_weight * tag_loss
        return loss / num_items, num_items

    def model(self) -> Segmenter:
        """Return the segmenter of the weights as they are."""
        data = self._data
        learnt = data.alphabet, data.lexicon, data.splitter, data.has_spaces
        return Segmenter(self.config, *learnt, self.module.arrays())

    def validate(self) -> dict[str, float]:
        """Return F1 of tokens, words and sentences of the validation part's raw text, in percent.

        `dev_mean` is the mean of words and sentences.
        """
        predicted = list(self.model().segment([self._data.dev_text]))
        scores = segmentation_scores(self._data.dev, predicted)
        mean = (scores["words"] + scores["sentences"]) / 2
        return {**{f"dev_{name}": score for name, score in scores.items()}, self.score: mean}


def train_segmenter(
    train_files: Sequence[str | Path] | str | Path | None = None,
    output: str | Path = "runs/segmenter",
    config: SegmenterConfig | str | Mapping[str, Any] | None = None,
    **options: Unpack[RunOptions],
) -> TrainedModel:
    """Train what splits raw text into sentences, tokens and words.

    Args:
        train_files: CoNLL-U; words, multiword tokens, the spaces between them, and parts of speech
            and relations where there are any.
        output: the model directory.
        config: all settings, or some as a dictionary, such as `{"training": {"epochs": 5}}`.
        options: see `RunOptions`; the best epoch is chosen by words and sentences.

    Returns:
        Its scores are F1 in percent, `dev_tokens`, `dev_words`, `dev_sentences`, `dev_multiword`
        where there are multiword tokens, and `dev_mean` of words and sentences.

    Raises:
        Interrupted, SeqtoolError: see `seqtool.parsing.train.train_on_treebank`.
    """
    return train_on_treebank(SEGMENTER, train_files, output, config, **options)


SEGMENTER = Kind(
    SEGMENTERS,
    "a CoNLL-U file",
    read_by(segmenter_data),
    SegmenterTask,
    Segmenter.card,
    bf16_on_cpu=False,  # its figures are those of float32
)
