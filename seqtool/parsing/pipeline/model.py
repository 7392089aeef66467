"""From raw text to trees: segmenters, taggers, parsers in one directory, of kind "pipeline".

model.json      which parts there are, and their scores together
segmenter/      each a model directory of its own kind, that may be trained again alone; with
                segmenter-2/ and so on of an ensemble
multiword/      likewise, where there are forms that are one word or several
tagger/         likewise
parser/         likewise
graph/          likewise, where parsers of another kind vote with it: see `parser.vote`
perceptron/     likewise, of sparse features

A form such as French `des` can be one word or several:

    des livres               one word: DET            that was bought: `acheter des livres`
    des livres               two words: ADP + DET     `le prix des livres`

A tagger that reads surface tokens tells it by the sentence: multiword tokens have tags of their own
there, `several:ADP+DET`. It is a tagger like any other, trained on what `surface_sentence` makes of
a treebank; a segmenter, which has much less to read sentences with, decides for all other forms.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from seqtool.core import checkpoint
from seqtool.core.arrays import CodePoints
from seqtool.core.checkpoint import Header
from seqtool.core.config import from_dict
from seqtool.core.errors import ModelError, counted
from seqtool.core.one_line import OneLine
from seqtool.parsing.inputs import BATCH_SIZE, Given, annotate, annotate_each
from seqtool.parsing.model import TreebankModel
from seqtool.parsing.parser.calibration import (
    CALIBRATIONS,
    Calibration,
    calibrations_from_json,
)
from seqtool.parsing.parser.parser import Parser
from seqtool.parsing.parser.vote import Vote, combine
from seqtool.parsing.pipeline.config import KIND, PARSERS, PipelineConfig, folders
from seqtool.parsing.segmenter.characters import Unit, to_text
from seqtool.parsing.segmenter.data import MultiwordSplitter, surface_tokens
from seqtool.parsing.segmenter.documents import assemble, read_text
from seqtool.parsing.segmenter.model import Segmenter
from seqtool.parsing.segmenter.rules import Spans
from seqtool.parsing.tagger.model import Tagger
from seqtool.parsing.unknown_words import Known
from seqtool.treebank.conllu import Broken, Item, refuse_no_sentence, sentences_of
from seqtool.treebank.derivation import Trace
from seqtool.treebank.document import Doc
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
    """Decides, by a tagger of surface tokens, for forms that a treebank has in both ways."""

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
                    rest = ["_"] * (NUM_COLUMNS - 2)
                    rows = [[str(i), form, *rest] for i, form in enumerate(forms, 1)]
                    sentences.append(Sentence([], rows, []))
        self._tagger.tag(sentences, retag=True)
        for (spans, both, first), sentence in zip(asked, sentences, strict=True):
            for place in both:
                row = sentence.rows[place]
                spans.words.pop(first + place, None)
                words = self._splitter.split(row[FORM])
                if words is not None and row[UPOS].startswith(SEVERAL):
                    spans.words[first + place] = words


M = TypeVar("M", bound=TreebankModel[Any])


class Pipeline(OneLine):
    """All that raw text needs.

    Args:
        segmenter: splits text into sentences and words.
        tagger: gives words tags and lemmas.
        parser: gives sentences trees.
        multiword: tells whether forms that can be both are one word or several; without it, the
            segmenter does.
        detailed: shows how trees are built where the parser is a vote, which cannot; the parser
            itself if not given.
    """

    shown = ("kind", "tagger", "parser")

    kind = KIND
    has_tagger = True  # it tags words itself

    def __init__(
        self,
        segmenter: Segmenter,
        tagger: Tagger,
        parser: Parser | Vote,
        multiword: MultiwordChooser | None = None,
        detailed: Parser | None = None,
    ) -> None:
        self.segmenter, self.tagger, self.parser = segmenter, tagger, parser
        self.multiword, self.detailed = multiword, detailed or parser

    @property
    def longest(self) -> int | None:
        """That of the parser, see `Decoder.longest`."""
        return self.parser.longest

    @property
    def known(self) -> Known:
        """What tagger and parser know: words, and the tags that a text may have already."""
        return replace(self.tagger.known, tags=self.parser.known.tags)

    @property
    def votes(self) -> bool:
        """Whether its trees are those of several parsers that vote."""
        return self.parser.votes

    @property
    def has_beam(self) -> bool:
        """Whether a beam makes a difference to the parser."""
        return self.parser.has_beam

    @property
    def is_calibrated(self) -> bool:
        """Whether the parser's probabilities of arcs say how often these are right."""
        return self.parser.is_calibrated

    def __call__(
        self, given: Given, *, beam: int = 1, retag: bool = False, scores: bool = False
    ) -> Doc:
        """Return a text, or whatever else is given, with tags, lemmas and trees.

        Args:
            given: a text; a list of texts; sentences as lists of words; a `pathlib.Path` of plain
                text or CoNLL-U; a `Doc` or sentences; `conllu.TokenList`s; a document of spaCy. See
                `seqtool.parsing.inputs`.
            beam: hypotheses per sentence.
            retag: predict also tags and lemmas that are there.
            scores: tell how probable it is that each word's head is right: `Token.score`.

        Raises:
            TypeError: something else is given.
            DataError: a file that cannot be read, or what no sentence can be made of.
        """
        work = partial(self.parse_stream, beam=beam, retag=retag, scores=scores)
        return annotate(given, work, self.read_text, what=self.kind)

    def pipe(
        self,
        inputs: Iterable[Given],
        *,
        beam: int = 1,
        retag: bool = False,
        scores: bool = False,
        batch_size: int = BATCH_SIZE,
    ) -> Iterator[Doc]:
        """Give a document for each input, in order; faster than one call for each.

        Up to `batch_size` inputs are worked on together, the first one alone.
        """
        work = partial(self.parse_stream, beam=beam, retag=retag, scores=scores)
        return annotate_each(inputs, work, self.read_text, what=self.kind, batch_size=batch_size)

    def segment(
        self, pieces: Iterable[str], *, unit: Unit = "paragraph", **options: Any
    ) -> Iterator[Sentence]:
        """Split a text; see `Segmenter.segment`."""
        split = partial(self.split, whole=unit == "line")
        return assemble(pieces, split, unit=unit, **options)

    def read_text(self, source: str | Path, number: int = 1) -> Iterator[Sentence]:
        """Give the sentences of a text, or of a file, from a number on; see `documents`."""
        return read_text(source, self.split, number=number)

    def split(self, stretches: Sequence[CodePoints], *, whole: bool = False) -> list[Spans]:
        """Find tokens and sentences; see `Segmenter.split`."""
        spans = self.segmenter.split(stretches, whole=whole)
        if self.multiword is not None:
            self.multiword.choose(stretches, spans)
        return spans

    def tag_stream(
        self, items: Iterable[Sentence | Broken], *, retag: bool = False
    ) -> Iterator[Sentence | Broken]:
        """Give words tags and lemmas; see `Tagger.tag_stream`."""
        return self.tagger.tag_stream(items, retag=retag)

    def parse_stream(
        self, items: Iterable[Item], *, beam: int = 1, retag: bool = False, scores: bool = False
    ) -> Iterator[Item]:
        """Give every sentence a tree; its tags and lemmas are kept where they are there.

        Batches come back as sentences; broken ones pass through in their places. With `retag`, all
        tags and lemmas are predicted; `scores` are those of `TreeParser.parse_stream`.
        """
        tagged = self.tag_stream(sentences_of(items), retag=retag)
        # what its tagger leaves empty, a word has not
        return self.parser.parse_stream(tagged, beam=beam, allow_missing=True, scores=scores)

    def nbest(
        self, items: Iterable[Item], num: int, *, beam: int = 1, retag: bool = False
    ) -> Iterator[list[Sentence] | Broken]:
        """Give the best trees of each sentence; see `TreeParser.nbest`."""
        tagged = self.tag_stream(sentences_of(items), retag=retag)
        return self.parser.nbest(tagged, num, beam=beam, allow_missing=True)

    def trace(self, sentence: Sentence, *, beam: int = 1, retag: bool = False) -> Trace:
        """Return how the tree of a sentence, which is not changed, is built."""
        (trace,) = self.traces([refuse_no_sentence(sentence).copy()], beam=beam, retag=retag)
        assert isinstance(trace, Trace)
        return trace

    def traces(
        self, items: Iterable[Item], *, beam: int = 1, retag: bool = False
    ) -> Iterator[Trace | Broken]:
        """Give each sentence, and how `detailed` builds its tree; see `TreeParser.traces`."""
        tagged = self.tag_stream(sentences_of(items), retag=retag)
        return self.detailed.traces(tagged, beam=beam, allow_missing=True)


def together(models: Sequence[Parser | Vote | Pipeline]) -> Parser | Vote | Pipeline:
    """Return parsers over one treebank as one; see `seqtool.parsing.parser.vote`.

    Where there are pipelines, their parsers are among these, and the first pipeline splits and tags
    text for all.

    Raises:
        ModelError: the labels of the parsers differ.
    """
    pipelines = [model for model in models if isinstance(model, Pipeline)]
    parsers: list[Parser] = []
    for model in models:
        parser = model.parser if isinstance(model, Pipeline) else model
        parsers += parser.parsers if isinstance(parser, Vote) else [parser]
    parser = combine(parsers)
    if not pipelines:
        return parser
    first = pipelines[0]
    return Pipeline(first.segmenter, first.tagger, parser, first.multiword)


def load_model(directory: Path, header: Header, *, device: str = "cpu") -> Pipeline:
    """Open the parts of a pipeline; they work on the CPU, whatever the device.

    Raises:
        ModelError: a part is missing, damaged or of another kind.
    """
    try:
        calibrations = calibrations_from_json(header.statistics.get(CALIBRATIONS))
    except ValueError as error:
        what, hint = "the calibrations in its header are damaged", "train it again"
        raise ModelError(what, hint=hint, path=directory) from error
    config = from_dict(PipelineConfig, header.config)
    return open_pipeline(directory, config, calibrations, device=device)


def open_pipeline(
    directory: Path,
    config: PipelineConfig,
    calibrations: Mapping[int, Calibration] | None = None,
    *,
    device: str = "cpu",
) -> Pipeline:
    """Open the parts of a pipeline that may be without its `model.json` yet; see `load_model`.

    Args:
        directory: of all parts.
        config: what parts there are.
        calibrations: of the vote of its parsers, if they vote.
        device: as of `load_model`.
    """
    segmenter = open_part(directory, "segmenter", config.segmenters, Segmenter, device=device)
    parsers = [
        open_part(directory, part, num, Parser, device=device)
        for part in PARSERS
        if (num := getattr(config, f"{part}s"))
    ]
    tagger = open_part(directory, "tagger", config.taggers, Tagger, device=device)
    multiword = None
    if config.multiwords and (directory / "multiword").is_dir():  # there may be no need of it
        chooser = open_part(directory, "multiword", config.multiwords, Tagger, device=device)
        multiword = MultiwordChooser(chooser, segmenter.splitter)
    parser = combine(parsers, calibrations)
    detailed = parser.parsers[0] if isinstance(parser, Vote) else None
    return Pipeline(segmenter, tagger, parser, multiword, detailed)


def open_part(directory: Path, part: str, num: int, kind: type[M], *, device: str = "cpu") -> M:
    """Open the `num` members of a part of a pipeline as one ensemble; see `load_model`."""
    members: list[M] = []
    for folder in folders(part, num):
        member = checkpoint.load(directory / folder, device=device)
        if not isinstance(member, kind):
            raise ModelError(
                f"is no {kind.kind}",
                hint=f"train it again, with train-{kind.kind} -o {directory / folder}",
                path=directory / folder,
            )
        members.append(member)
    first, *others = members
    try:
        return first.ensemble(others)
    except ModelError as error:  # which does not know where its members are
        raise ModelError(error.message, hint=error.hint, path=error.path or directory) from error


def model_card(header: Header) -> str:
    """Return the README.md of a pipeline: what it is, its scores, its data and its command."""
    return checkpoint.compose(
        header,
        "From raw text to dependency trees",
        "A segmenter, taggers with a lemmatizer, and parsers, in folders of their own; "
        f"{counted(header.num_parameters, 'parameter')}.",
        checkpoint.scores_table(header),
        "Of each part, in percent, as it was validated by itself: see the cards in their folders."
        if header.data.get("dev_held_out")
        else "F1 in percent, from the raw text of the validation part on, as at CoNLL 2018.",
        checkpoint.data_table(header),
        maker="train_pipeline (Python)",
        use=(
            "seqtool parse FILE.txt -m THIS_DIRECTORY",
            "seqtool parse FILE.conllu -m THIS_DIRECTORY",
        ),
    )
