"""The scores of a parser, as the scorer of the CoNLL 2018 shared task gives them.

    Tokens, Sentences   spans of the text that are the same
    Words               words that match, see `seqtool.treebank.alignment`
    UPOS, XPOS, Lemmas  words that match and agree in the column; a gold lemma `_` agrees with all
    UFeats              ... in the universal features
    AllTags             ... in UPOS, XPOS and universal features
    UAS                 ... in the head
    LAS                 ... in the head and the relation, subtypes apart
    CLAS                LAS of words that carry content, by their relation
    MLAS                CLAS, with UPOS, universal features, and the function words below it
    BLEX                CLAS, with the lemma

Every word counts, punctuation too. Zeman et al. 2018, "CoNLL 2018 Shared Task", section 6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from seqtool.core.arrays import Bools, Doubles, Longs
from seqtool.core.bootstrap import NUM_SAMPLES, SEED, Significance, bootstrap
from seqtool.core.one_line import OneLine, html_table
from seqtool.treebank.alignment import (
    NOT_ALIGNED,
    ROOT,
    Annotation,
    Texts,
    Treebank,
    align_words,
    check_same_text,
    read_annotation,
)

NUM_BINS = 10  # of the expected calibration error


@dataclass(frozen=True, slots=True)
class Score:
    """How much of one annotation is in the other.

    Attributes:
        correct: what both agree in.
        gold: how many there are in the gold annotation.
        predicted: how many in the other one.
        aligned: how many of the gold ones match a word; None where nothing is matched by words.
    """

    correct: int
    gold: int
    predicted: int
    aligned: int | None = None

    @property
    def precision(self) -> float:
        """Percent of what is predicted."""
        return _percent(self.correct, self.predicted)

    @property
    def recall(self) -> float:
        """Percent of what is in the gold annotation."""
        return _percent(self.correct, self.gold)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall, in percent."""
        return _percent(2 * self.correct, self.gold + self.predicted)

    @property
    def aligned_accuracy(self) -> float | None:
        """Percent of the words that match."""
        return None if self.aligned is None else _percent(self.correct, self.aligned)

    def to_json(self) -> dict[str, float | None]:
        """Return the four figures in percent."""
        figures = ("precision", "recall", "f1", "aligned_accuracy")
        return {figure: getattr(self, figure) for figure in figures}


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


@dataclass(frozen=True, slots=True)
class Confusion:
    """A relation taken for another.

    Attributes:
        gold: the relation in the gold annotation.
        predicted: the one in the other.
        count: words.
        right_head: how many of them have the right head.
    """

    gold: str
    predicted: str
    count: int
    right_head: int


class Bin(NamedTuple):
    """Words whose arcs are about as probable.

    Attributes:
        words: how many.
        confidence: the mean of their probabilities.
        accuracy: the share of them whose head is right.
    """

    words: int
    confidence: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class CalibrationError(OneLine):
    """How far the probabilities of arcs are from the shares of them that are right.

    Attributes:
        error: the expected calibration error, from 0 to 1 (Guo et al. 2017, equation 3): the mean
            over bins of |accuracy - confidence|, by their words.
        bins: of as many words each, the least probable first.
    """

    shown = ("error",)

    error: float
    bins: tuple[Bin, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return {
            "expected_calibration_error": self.error,
            "words": sum(each.words for each in self.bins),
            "bins": [each._asdict() for each in self.bins],
        }


def calibration_error(
    probabilities: Doubles, are_right: Bools, *, num_bins: int = NUM_BINS
) -> CalibrationError:
    """Return the error of probabilities, [N], of arcs, which are right or not, in equal-mass bins.

    Where a bin ends among arcs of one probability, their accuracy is that of all of them, so that
    the order of the words does not matter.
    """
    order = np.argsort(probabilities, kind="stable")
    _, places, sizes = np.unique(probabilities, return_inverse=True, return_counts=True)
    accuracies = (np.bincount(places, weights=are_right) / sizes)[places]
    bins = tuple(
        Bin(len(rows), float(probabilities[rows].mean()), float(accuracies[rows].mean()))
        for rows in np.array_split(order, num_bins)
        if len(rows)
    )
    gaps = [each.words * abs(each.accuracy - each.confidence) for each in bins]
    return CalibrationError(sum(gaps) / max(1, len(order)), bins)


@dataclass(frozen=True)
class ParserEvaluation:
    """The scores of an annotation.

    Attributes:
        scores: metric -> score, in the order of this module's table.
        relations: relation without subtype -> labelled attachments of it, the commonest first.
        lengths: distance from head to dependent in words -> labelled attachments of it, as named in
            `LENGTHS`.
        confusions: relations taken for others, the commonest first.
        sentences: of the gold annotation.
        words: of the gold annotation.
        punctuation: whether UAS, LAS, relations, lengths and confusions count it.
        by_sentence: metric -> (S, 3) words right, in gold, and predicted, of each gold sentence;
            for every metric of words.
        calibration: of the probabilities that arcs have in column MISC (`Score`), of words that
            match, against their heads; None without any.
    """

    scores: dict[str, Score]
    relations: dict[str, Score]
    lengths: dict[str, Score]
    confusions: list[Confusion]
    sentences: int
    words: int
    punctuation: bool
    by_sentence: dict[str, Longs]
    calibration: CalibrationError | None = None

    def __repr__(self) -> str:
        figures = [f"{name}={self[name].f1:.2f}" for name in ("UAS", "LAS", "CLAS", "MLAS", "BLEX")]
        return f"ParserEvaluation({', '.join(figures)}, words={self.words})"

    def _repr_html_(self) -> str:
        return html_table({"metric": name, **each.to_json()} for name, each in self.scores.items())

    def __getitem__(self, metric: str) -> Score:
        return self.scores[metric]

    def to_json(self) -> dict[str, Any]:
        """Return metric -> precision, recall, F1 and accuracy of aligned words, in percent.

        Beside them is `calibration`, where arcs have probabilities.
        """
        metrics: dict[str, Any] = {metric: score.to_json() for metric, score in self.scores.items()}
        if self.calibration is not None:
            metrics["calibration"] = self.calibration.to_json()
        return metrics

    def details_to_json(
        self, *, relations: bool = False, lengths: bool = False, confusions: int = 0
    ) -> dict[str, Any]:
        """Return the tables asked for; of confusions, as many of the commonest."""
        figures = ("gold", "predicted", "correct", "precision", "recall", "f1")
        tables: dict[str, Any] = {
            name: {
                key: {figure: getattr(score, figure) for figure in figures}
                for key, score in getattr(self, name).items()
            }
            for name, is_wanted in (("relations", relations), ("lengths", lengths))
            if is_wanted
        }
        if confusions:
            tables["confusions"] = [asdict(pair) for pair in self.confusions[:confusions]]
        return tables


# fmt: off
CONTENT_RELATIONS = frozenset({
    "acl", "advcl", "advmod", "amod", "appos", "ccomp", "compound", "conj", "csubj", "dep",
    "discourse", "dislocated", "expl", "fixed", "flat", "goeswith", "iobj", "list", "nmod",
    "nsubj", "nummod", "obj", "obl", "orphan", "parataxis", "reparandum", "root", "vocative",
    "xcomp",
})
# fmt: on
FUNCTION_RELATIONS = frozenset({"aux", "case", "cc", "clf", "cop", "det", "mark"})

TREE_METRICS = ("UAS", "LAS", "CLAS", "MLAS", "BLEX")

# name -> longest distance in words from head to dependent, those of Nivre et al. 2007
LENGTHS = {"root": 0, "1": 1, "2": 2, "3-6": 6, "7-": None}


def evaluate_parser(
    gold: Treebank, predicted: Treebank, *, punctuation: bool = True
) -> ParserEvaluation:
    """Score an annotation against the gold one; words, tokens and sentences may differ.

    Args:
        gold: a CoNLL-U file or directory, `-`, or sentences.
        predicted: the annotation of the same text.
        punctuation: count it in UAS and LAS. Without, the older convention: words whose gold UPOS
            is PUNCT or whose gold relation is punct are left out, and predicted words that match no
            gold word by their own.

    Returns:
        Precision, recall and F1, in percent, of tokens, sentences, words, tags, lemmas and trees,
        and tables of relations, lengths of arcs and confusions.

    Raises:
        DataError: a sentence is broken or has no tree, or the texts differ; with file and line.
    """
    return score_annotation(
        read_annotation(gold), read_annotation(predicted), punctuation=punctuation
    )


def compare_annotations(
    gold: Treebank, predicted: Iterable[Treebank], *, punctuation: bool = True, seed: int = SEED
) -> tuple[list[ParserEvaluation], list[dict[str, Significance]]]:
    """Score annotations of one text, and compare each after the first with the first.

    Args:
        gold: as of `evaluate_parser`.
        predicted: the annotations, read one after another.
        punctuation: as of `evaluate_parser`.
        seed: of `paired_bootstrap`.

    Raises:
        DataError: as of `evaluate_parser`.
    """
    read = read_annotation(gold)
    results = [
        score_annotation(read, read_annotation(each), punctuation=punctuation) for each in predicted
    ]
    first, *others = [{name: each.by_sentence[name] for name in TREE_METRICS} for each in results]
    return results, [paired_bootstrap(first, other, seed=seed) for other in others]


def score_annotation(
    gold: Annotation, predicted: Annotation, *, punctuation: bool = True
) -> ParserEvaluation:
    """Score an annotation against the gold one like `evaluate_parser`, both read before.

    Of the aligned words, A of them, `of_gold` and `of_predicted` are their rows among the G gold
    and P predicted words, and whether something is right of each is Bools [A]; which words count,
    Bools [G] and [P].

    Raises:
        DataError: the texts differ.
    """
    check_same_text(gold, predicted)
    of_gold, of_predicted = align_words(gold, predicted)

    def same(column: Callable[[Annotation], Texts]) -> Bools:
        return np.asarray(column(gold)[of_gold] == column(predicted)[of_predicted], bool)

    # where the gold word of each predicted word is; -1, the root, is the last row
    to_gold = np.full(len(predicted.parents) + 1, NOT_ALIGNED)
    to_gold[of_predicted], to_gold[ROOT] = of_gold, ROOT
    upos, xpos, feats = same(lambda a: a.upos), same(lambda a: a.xpos), same(lambda a: a.feats)
    lemmas = same(lambda a: a.lemmas) | (gold.lemmas[of_gold] == "_")
    heads = gold.parents[of_gold] == to_gold[predicted.parents[of_predicted]]
    relations = same(lambda a: a.deprels)
    labelled = heads & relations
    tagged = upos & feats
    functions = _same_function_words(gold, predicted, of_gold, of_predicted, labelled & tagged)

    all_words = np.ones(len(gold.parents), bool), np.ones(len(predicted.parents), bool)
    content = _is_in(gold, CONTENT_RELATIONS), _is_in(predicted, CONTENT_RELATIONS)
    counted = all_words
    if not punctuation:
        counted = ~_is_punctuation(gold), ~_is_punctuation(predicted)
        counted[1][of_predicted] = counted[0][of_gold]
    # metric -> (which aligned words are right, which words of both count)
    metrics = {
        "Words": (np.ones(len(of_gold), bool), all_words),
        "UPOS": (upos, all_words),
        "XPOS": (xpos, all_words),
        "UFeats": (feats, all_words),
        "AllTags": (tagged & xpos, all_words),
        "Lemmas": (lemmas, all_words),
        "UAS": (heads, counted),
        "LAS": (labelled, counted),
        "CLAS": (labelled, content),
        "MLAS": (labelled & tagged & functions, content),
        "BLEX": (labelled & lemmas, content),
    }
    scores = {
        "Tokens": _score_spans(gold.tokens, predicted.tokens),
        "Sentences": _score_spans(gold.sentences, predicted.sentences),
    }
    by_sentence = _count_by_sentence(gold, predicted, of_gold, metrics)
    for metric, counts in by_sentence.items():
        correct, num_gold, num_predicted = counts.sum(axis=0).tolist()
        _, (in_gold, _) = metrics[metric]
        aligned = None if metric == "Words" else int(np.sum(in_gold[of_gold]))
        scores[metric] = Score(correct, num_gold, num_predicted, aligned)

    is_counted = counted[0][of_gold]
    confidences = predicted.scores[of_predicted]
    is_scored = is_counted & np.isfinite(confidences)
    calibration = None
    if is_scored.any():
        calibration = calibration_error(confidences[is_scored], heads[is_scored])
    wrong = ~relations & is_counted
    return ParserEvaluation(
        scores=scores,
        relations=_score_relations(gold, predicted, of_gold[labelled & is_counted], counted),
        lengths=_score_lengths(gold, predicted, of_gold[labelled], of_predicted[labelled], counted),
        confusions=_confusions(
            gold.deprels[of_gold[wrong]], predicted.deprels[of_predicted[wrong]], heads[wrong]
        ),
        sentences=len(gold.sentences),
        words=len(gold.parents),
        punctuation=punctuation,
        by_sentence=by_sentence,
        calibration=calibration,
    )


def _count_by_sentence(
    gold: Annotation,
    predicted: Annotation,
    of_gold: Longs,
    metrics: Mapping[str, tuple[Bools, tuple[Bools, Bools]]],
) -> dict[str, Longs]:
    """Return the counts of each metric, [gold sentences, 3]: right, gold and predicted words."""
    # the gold sentence of each word is that of its first character
    sentence_of_gold, sentence_of_predicted = (
        np.searchsorted(gold.sentences[:, 0], words.spans[:, 0], side="right") - 1
        for words in (gold, predicted)
    )
    num_sentences = len(gold.sentences)
    by_sentence = {}
    for metric, (right, (in_gold, in_predicted)) in metrics.items():
        places = (
            sentence_of_gold[of_gold[right & in_gold[of_gold]]],
            sentence_of_gold[in_gold],
            sentence_of_predicted[in_predicted],
        )
        by_sentence[metric] = np.stack(
            [np.bincount(place, minlength=num_sentences) for place in places], axis=1
        )
    return by_sentence


def _is_in(annotation: Annotation, relations: frozenset[str]) -> Bools:
    return np.fromiter((relation in relations for relation in annotation.deprels), bool)


def _is_punctuation(annotation: Annotation) -> Bools:
    return np.asarray((annotation.upos == "PUNCT") | (annotation.deprels == "punct"), bool)


def _same_function_words(
    gold: Annotation, predicted: Annotation, of_gold: Longs, of_predicted: Longs, right: Bools
) -> Bools:
    """Return whether the function words that depend on each aligned word are the same.

    They are if as many depend on both and as many of them are right, as words match in order;
    right are aligned words that agree in head, relation, UPOS and features.
    """
    gold_function = _is_in(gold, FUNCTION_RELATIONS) & (gold.parents != ROOT)
    function = _is_in(predicted, FUNCTION_RELATIONS) & (predicted.parents != ROOT)
    num_gold = np.bincount(gold.parents[gold_function], minlength=len(gold.parents))
    num_predicted = np.bincount(predicted.parents[function], minlength=len(predicted.parents))
    both = of_gold[right & gold_function[of_gold]]
    num_right = np.bincount(gold.parents[both], minlength=len(gold.parents))
    expected = num_gold[of_gold]
    same = (expected == num_predicted[of_predicted]) & (expected == num_right[of_gold])
    return np.asarray(same, bool)


def _score_spans(gold: Longs, predicted: Longs) -> Score:
    """Score spans of one text, which two partitions of it have, (N, 2) and (M, 2)."""
    _, in_gold, in_predicted = np.intersect1d(gold[:, 0], predicted[:, 0], return_indices=True)
    same = int(np.sum(gold[in_gold, 1] == predicted[in_predicted, 1]))
    return Score(same, len(gold), len(predicted))


def _score_relations(
    gold: Annotation, predicted: Annotation, correct: Longs, counted: tuple[Bools, Bools]
) -> dict[str, Score]:
    of_gold = Counter(gold.deprels[counted[0]].tolist())
    of_predicted = Counter(predicted.deprels[counted[1]].tolist())
    of_correct = Counter(gold.deprels[correct].tolist())
    ordered = sorted({*of_gold, *of_predicted}, key=lambda name: (-of_gold[name], name))
    return {name: Score(of_correct[name], of_gold[name], of_predicted[name]) for name in ordered}


def _score_lengths(
    gold: Annotation,
    predicted: Annotation,
    correct: Longs,
    correct_predicted: Longs,
    counted: tuple[Bools, Bools],
) -> dict[str, Score]:
    """Score by distance; that of an arc that is right is the gold one, should words differ."""
    lengths = predicted.lengths.copy()
    lengths[correct_predicted] = gold.lengths[correct]
    bounds = [bound for bound in LENGTHS.values() if bound is not None]
    right = correct[counted[0][correct]]
    of_correct, of_gold, of_predicted = (
        np.bincount(np.searchsorted(bounds, values), minlength=len(LENGTHS)).tolist()
        for values in (gold.lengths[right], gold.lengths[counted[0]], lengths[counted[1]])
    )
    return {
        name: Score(*counts)
        for name, *counts in zip(LENGTHS, of_correct, of_gold, of_predicted, strict=True)
    }


def _confusions(gold: Texts, predicted: Texts, heads: Bools) -> list[Confusion]:
    pairs = list(zip(gold.tolist(), predicted.tolist(), strict=True))
    counts = Counter(pairs)
    right_heads = Counter(pair for pair, right in zip(pairs, heads.tolist(), strict=True) if right)
    ordered = sorted(counts, key=lambda pair: (-counts[pair], pair))
    return [Confusion(*pair, counts[pair], right_heads[pair]) for pair in ordered]


def paired_bootstrap(
    first: Mapping[str, Longs],
    second: Mapping[str, Longs],
    *,
    samples: int = NUM_SAMPLES,
    seed: int = SEED,
) -> dict[str, Significance]:
    """Compare two annotations of the same gold sentences by their F1 in each metric.

    Differences are in percentage points; how they are judged, `core.bootstrap` says.

    Args:
        first: metric -> (S, 3) words right, in gold and predicted, of each sentence.
        second: the same of the other annotation.
        samples: treebanks to draw; all metrics see the same ones.
        seed: of the draws.
    """
    # float64 holds the sums exactly, so that they do not depend on the order of adding
    counts_SM = np.concatenate(
        [counts[metric] for metric in first for counts in (first, second)], axis=1
    ).astype(np.float64)
    found = bootstrap(counts_SM, _differences, samples=samples, seed=seed)
    return dict(zip(first, found, strict=True))


def _differences(sums: Doubles) -> Doubles:
    """Return F1 of the second less that of the first, in percent, of (N, 6 metrics) counts."""
    counts = sums.reshape(len(sums), -1, 2, 3)
    f1 = 200 * counts[..., 0] / np.maximum(counts[..., 1] + counts[..., 2], 1)
    return np.asarray(f1[..., 1] - f1[..., 0], np.float64)
