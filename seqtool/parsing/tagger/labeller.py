"""Labels of words: `Labeller`, without torch; its directory, of kind "labeller".

A labeller is a tagger whose UPOS are the labels; what it adds is that labels of entities fit one
another: of all sequences that BIO allows, the one of the highest sum of scores is found (Viterbi
1967). Where the labels of training are not BIO, each word gets the label of its own highest score.

Dimensions: T words, L labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from seqtool.core import checkpoint
from seqtool.core.arrays import Bools, Floats
from seqtool.core.checkpoint import Header
from seqtool.core.errors import counted
from seqtool.core.reading import whole_text
from seqtool.core.vocabulary import Vocabulary
from seqtool.parsing.model import Shapes, TreebankModel, at_work, average, in_chunks
from seqtool.parsing.tagger.columns import bare_sentence, label_in, read_columns, with_labels
from seqtool.parsing.tagger.config import LABELLERS, LabellerConfig
from seqtool.parsing.tagger.entities import OUTSIDE, LabelCounts, allowed_pairs
from seqtool.parsing.tagger.model import TAGGED_WORDS, Tagger
from seqtool.treebank.conllu import Broken
from seqtool.treebank.sentence import FORM, UPOS, Sentence

if TYPE_CHECKING:
    from seqtool.parsing.tagger.data import TaggerData

CHUNK_SENTENCES = 1 << 8  # of a file with a word a line, labelled together


def best_sequence(scores_TL: Floats, allowed: Bools) -> list[int]:
    """Return the allowed sequence of labels of the highest sum of scores, of one sentence.

    Args:
        scores_TL: of its words.
        allowed: [1 + L, L], which label may follow which; row L is of the begin of a sentence.

    Returns:
        The label of each word; of equal sums, the smaller numbers.
    """
    # BIO allows O and B- after anything, so that some sum is always finite
    barred = np.where(allowed, 0.0, -np.inf)
    sums_L = barred[-1] + scores_TL[0]
    came_from = []
    for scores_L in scores_TL[1:]:
        ways_LL = sums_L[:, None] + barred[:-1]
        came_from.append(ways_LL.argmax(0))
        sums_L = ways_LL.max(0) + scores_L
    best = [int(sums_L.argmax())]
    for places_L in reversed(came_from):
        best.append(int(places_L[best[-1]]))
    return best[::-1]


class Labeller(TreebankModel[LabellerConfig]):
    """A trained labeller of words.

    Args:
        config: all settings.
        tagger: gives the scores of labels.
        is_bio: whether labels are those of BIO, throughout the training part.
    """

    kind = LABELLERS.kind
    config_class = LabellerConfig
    works = "label"

    def __init__(self, config: LabellerConfig, tagger: Tagger, *, is_bio: bool) -> None:
        super().__init__(config, tagger.weights)
        self.tagger, self.is_bio = tagger, is_bio
        self.labels = tuple(tagger.bundles.values[0])
        self._allowed: Bools | None = allowed_pairs(self.labels) if is_bio else None

    @property
    def vocabulary(self) -> Vocabulary:
        """That of the tagger, and whether labels are BIO."""
        known = self.tagger.vocabulary
        return Vocabulary(tables=known.tables, extra={**known.extra, "bio": self.is_bio})

    @property
    def shared(self) -> object:
        """What all members of an ensemble must have alike: the labels, and where they stand."""
        return self.labels, self.is_bio, self.config.data

    @classmethod
    def restore(
        cls,
        config: LabellerConfig,
        vocabulary: Vocabulary,
        read_weights: Callable[[Shapes], dict[str, Floats]],
    ) -> Labeller:
        """Return the labeller that was saved; see `TreebankModel.restore`."""
        tagger = Tagger.restore(config.as_tagger(), vocabulary, read_weights)
        return cls(config, tagger, is_bio=bool(vocabulary.extra["bio"]))

    @staticmethod
    def card(header: Header) -> str:
        """Return the README.md: what it is, its scores, its data and its command."""
        model = header.config["model"]
        layers = counted(model["encoder_layers"], "layer")
        return checkpoint.compose(
            header,
            f"A labeller of words ({header.config['data']['column']})",
            f"A bidirectional LSTM of {layers} of {model['encoder_size']} units a direction over "
            f"forms, affixes and characters, {counted(header.num_parameters, 'parameter')}.",
            checkpoint.scores_table(header),
            "In percent. Precision, recall and F1 are of whole entities, as seqeval counts them; "
            "accuracy is of words.",
            checkpoint.data_table(header),
            maker="train_labeller (Python)",
            use=("seqtool tag FILE.conllu -m THIS_DIRECTORY",),
        )

    def label(self, sentences: Sequence[Sequence[str]]) -> list[list[str]]:
        """Return the labels of the words of sentences, each of which is a list of words.

        Raises:
            TypeError: a text in place of sentences or of one, whose letters would be words.
            DataError: half a surrogate pair in a word.
        """
        if isinstance(sentences, str) or any(isinstance(forms, str) for forms in sentences):
            raise TypeError(
                'expected sentences as lists of words, as [["Anna", "sleeps"]], not a text'
            )
        for number, forms in enumerate(sentences, start=1):
            whole_text(" ".join(forms), f"sentence {number}")
        read = [bare_sentence(forms) for forms in sentences if forms]
        if not read:
            return [[] for _ in sentences]
        with at_work():
            # those of columns without values are left out
            readings = [member.tagger.read(read).scores for member in self.members]
            scores = average([np.ascontiguousarray(s[:, : len(self.labels)]) for s in readings])
        best: list[int] = scores.argmax(1).tolist()
        if self._allowed is not None:
            ends = np.cumsum([len(sentence) for sentence in read])[:-1]
            of_sentences = np.split(scores, ends)
            best = [place for each in of_sentences for place in best_sequence(each, self._allowed)]
        labels = iter([self.labels[place] for place in best])
        return [[next(labels) for _ in forms] for forms in sentences]

    def count_dev(self, data: TaggerData) -> LabelCounts:
        """Return how it does on the validation part of what it was trained on."""
        counts = LabelCounts()
        predicted = self.label(list(data.column(data.dev, FORM)))
        for gold, labels in zip(data.column(data.dev, UPOS), predicted, strict=True):
            counts.add(gold, labels)
        return counts

    def relabel(
        self,
        sentences: Sequence[Sequence[str]],
        before: Sequence[Sequence[str] | None],
        *,
        retag: bool = False,
        counts: LabelCounts | None = None,
    ) -> list[Sequence[str]]:
        """Return the labels of sentences, of which some may have labels already.

        Args:
            sentences: words.
            before: the labels that a sentence has, which it keeps; None without any.
            retag: predict labels for these, too.
            counts: of sentences, and with `retag` of their labels before, against those predicted.
        """
        after = list(before)
        chosen = [i for i, labels in enumerate(before) if retag or labels is None]
        for i, labels in zip(chosen, self.label([sentences[i] for i in chosen]), strict=True):
            after[i] = labels
        if counts is not None:
            counts.sentences += len(before)
            counts.labelled += sum(labels is not None for labels in before)
            for i in chosen if retag else ():
                counts.add(before[i] or [OUTSIDE] * len(sentences[i]), after[i] or ())
        return [labels or () for labels in after]

    def tag(
        self,
        sentences: Sequence[Sentence],
        *,
        retag: bool = False,
        counts: LabelCounts | None = None,
    ) -> None:
        """Write the labels of words into column MISC; O is not written.

        Args:
            sentences: are changed. One in which some word has a label stays as it is.
            retag: predict labels for these, too.
            counts: as of `relabel`.
        """
        column = self.config.data.column
        before = [label_in(item, column) for item in sentences]
        forms = [item.column(FORM) for item in sentences]
        after = self.relabel(forms, before, retag=retag, counts=counts)
        for sentence, old, labels in zip(sentences, before, after, strict=True):
            if retag or old is None:
                with_labels(sentence, column, labels)

    def tag_stream(
        self,
        items: Iterable[Sentence | Broken],
        *,
        retag: bool = False,
        counts: LabelCounts | None = None,
    ) -> Iterator[Sentence | Broken]:
        """Tag sentences in chunks; broken ones pass through in their places."""
        return in_chunks(items, TAGGED_WORDS, partial(self.tag, retag=retag, counts=counts))

    def tag_columns(
        self,
        path: str,
        word_column: int | None = None,
        label_column: int | None = None,
        *,
        retag: bool = False,
        counts: LabelCounts | None = None,
    ) -> Iterator[str]:
        """Give the sentences of a file with a word a line, with labels; see `layout_of`."""
        source = read_columns(path, word_column, label_column)
        while chunk := list(islice(source, CHUNK_SENTENCES)):
            forms, before = [item.forms for item in chunk], [item.labels for item in chunk]
            if counts is not None and chunk[0].columns.label is None:  # there is nothing to compare
                counts.sentences += len(chunk)
                counts = None
            after = self.relabel(forms, before, retag=retag, counts=counts)
            for item, labels in zip(chunk, after, strict=True):
                yield item.written(labels)
