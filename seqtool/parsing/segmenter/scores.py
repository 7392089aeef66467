"""F1 of tokens, words and sentences, while a segmenter is trained.

Spans are compared as at CoNLL 2018, whitespace left out. A word of a multiword token is right if
the token's span and the word's form (in lower case) and place are, where the official scorer aligns
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from seqtool.parsing.segmenter.surface import surface_tokens
from seqtool.treebank.sentence import Sentence


def segmentation_scores(
    gold: Sequence[Sentence], predicted: Iterable[Sentence]
) -> dict[str, float]:
    """Return F1 of `tokens`, `words`, `multiword` tokens and `sentences`, in percent.

    Multiword tokens are left out where there are none in either.
    """
    gold_spans, predicted_spans = _spans(gold), _spans(predicted)
    scores = {}
    for name, wanted in gold_spans.items():
        found = predicted_spans[name]
        if wanted or found:
            scores[name] = 200.0 * len(wanted & found) / (len(wanted) + len(found))
    return scores


def _spans(sentences: Iterable[Sentence]) -> dict[str, set[tuple[object, ...]]]:
    spans: dict[str, set[tuple[object, ...]]] = {
        "tokens": set(),
        "words": set(),
        "multiword": set(),
        "sentences": set(),
    }
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
