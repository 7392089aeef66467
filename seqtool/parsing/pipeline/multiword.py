"""Whether a form is one word or several, where it can be both, as French `des` and `du`.

    des livres               one word: DET            that was bought: `acheter des livres`
    des livres               two words: ADP + DET     `le prix des livres`

A tagger that reads surface tokens tells it by the sentence: multiword tokens have tags of their own
there, `several:ADP+DET`. It is a tagger like any other, trained on what `surface_sentence` makes of
a treebank; a segmenter, which has much less to read sentences with, decides for all other forms.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from seqtool.core.arrays import CodePoints
from seqtool.parsing.segmenter.assembly import Spans
from seqtool.parsing.segmenter.characters import to_text
from seqtool.parsing.segmenter.data import surface_tokens
from seqtool.parsing.segmenter.multiword import MultiwordSplitter
from seqtool.parsing.tagger.model import Tagger
from seqtool.treebank.sentence import FORM, NUM_COLUMNS, UPOS, Sentence

SEVERAL = "several:"  # begins the UPOS of a multiword token
# of a treebank's tokens, how many must be the rarer reading of a form for a tagger to be worth it
LEAST_SHARE = 0.002


def surface_sentence(sentence: Sentence) -> Sentence:
    """Return a sentence of surface tokens, each with the tags and relations of its words."""
    rows = []
    for number, token in enumerate(surface_tokens(sentence), 1):
        upos, relations = map("+".join, zip(*token.tags, strict=True))
        upos = SEVERAL * bool(token.words) + upos
        rows.append([str(number), token.form, token.form, upos, relations, *["_"] * 5])
    return Sentence([], rows, [])


def share_of_both(sentences: Iterable[Sentence]) -> float:
    """Return the share of tokens that are the rarer of two readings of their form."""
    readings: defaultdict[str, Counter[bool]] = defaultdict(Counter)
    num_tokens = 0
    for sentence in sentences:
        for token in surface_tokens(sentence):
            readings[token.form.lower()][bool(token.words)] += 1
            num_tokens += 1
    rarer = sum(min(counts.values()) for counts in readings.values() if len(counts) > 1)
    return rarer / max(num_tokens, 1)


class MultiwordChooser:
    """Decides for the forms that a treebank has as one word and as several.

    Args:
        tagger: of surface tokens.
        splitter: knows the words of multiword tokens.
    """

    def __init__(self, tagger: Tagger, splitter: MultiwordSplitter) -> None:
        self._tagger, self._splitter = tagger, splitter
        readings: dict[bool, set[str]] = {True: set(), False: set()}
        for upos, forms in tagger.lemmas.table.items():
            readings[upos.startswith(SEVERAL)].update(form.lower() for form in forms)
        self.forms = readings[True] & readings[False]

    def choose(self, stretches: Sequence[CodePoints], all_spans: Sequence[Spans]) -> None:
        """Decide which tokens of stretches of text are several words; their spans are changed."""
        asked: list[tuple[Spans, list[int], int]] = []
        sentences: list[Sentence] = []
        for codes, spans in zip(stretches, all_spans, strict=True):
            text = to_text(codes)
            for first, end in pairwise((0, *spans.sentence_ends)):
                forms = [
                    " ".join(text[spans.begins[place] : spans.ends[place]].split())
                    for place in range(first, end)
                ]
                both = [i for i, form in enumerate(forms) if form.lower() in self.forms]
                if both:
                    asked.append((spans, both, first))
                    sentences.append(_of_forms(forms))
        self._tagger.tag(sentences, retag=True)
        for (spans, both, first), sentence in zip(asked, sentences, strict=True):
            for place in both:
                row = sentence.rows[place]
                spans.words.pop(first + place, None)
                words = self._splitter.split(row[FORM])
                if words is not None and row[UPOS].startswith(SEVERAL):
                    spans.words[first + place] = words


def _of_forms(forms: Sequence[str]) -> Sentence:
    rest = ["_"] * (NUM_COLUMNS - 2)
    return Sentence([], [[str(i), form, *rest] for i, form in enumerate(forms, 1)], [])
