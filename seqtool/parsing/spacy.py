"""Documents of spaCy: read by a model, and a component that annotates them.

    nlp = spacy.blank("xx")
    nlp.add_pipe("seqtool", config={"model": "runs/mine"})
    nlp("I love it.")[0].dep_

spaCy finds the component by the entry point `spacy_factories` of the package. It keeps spaCy's
tokens. Tokens of whitespace, which spaCy has and CoNLL-U has not, depend on the word before them.
spaCy is imported when the component is asked for, and not by this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from seqtool.core import checkpoint
from seqtool.core.errors import ConfigError, ModelError
from seqtool.treebank.misc import misc_of
from seqtool.treebank.sentence import DEPREL, FEATS, FORM, LEMMA, UPOS, XPOS, Sentence

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc as SpacyDoc

Split = Callable[[str, int], Iterable[Sentence]]  # numbers the sentences from a number on
NAME = "seqtool"
SPACE_RELATION = "dep"  # of whitespace; without any, spaCy gives it no head
NO_PART = "X"  # the part of speech of a word whose own is not universal


def from_spacy(doc: SpacyDoc, read_text: Split | None) -> tuple[list[Sentence], list[list[int]]]:
    """Return a document of spaCy as sentences, and which of its tokens their words are.

    Tags and lemmas are those that it has.

    Args:
        doc: its sentences are kept.
        read_text: splits the text, to find the sentences where it has none.

    Raises:
        ModelError: it has none, and there is nothing that finds them.
    """
    places = [token.i for token in doc if not token.is_space]
    starts = _sentence_starts(doc, places, read_text)
    numbers: list[list[int]] = []
    for place in places:
        if place in starts or not numbers:
            numbers.append([])
        numbers[-1].append(place)
    following = dict(pairwise([*places, None]))
    text, sentences = doc.text, []
    for number, members in enumerate(numbers, start=1):
        rows: list[list[str]] = []
        for place in members:
            token, after = doc[place], following[place]
            end = token.idx + len(token)
            form = " ".join(token.text.split())
            misc = misc_of(
                text[end : len(text) if after is None else doc[after].idx],
                before=text[: token.idx] if place == places[0] else "",
                raw="" if form == token.text else token.text,
            )
            tags = token.lemma_, token.pos_, token.tag_, str(token.morph)
            rows.append([str(len(rows) + 1), form, *(tag or "_" for tag in tags), *["_"] * 3, misc])
        comments = [f"# sent_id = {number}"]
        sentences.append(Sentence(comments, rows, []))
    return sentences, numbers


def _sentence_starts(doc: SpacyDoc, places: list[int], read_text: Split | None) -> set[int]:
    """Return the tokens that sentences begin with."""
    if doc.has_annotation("SENT_START"):
        # where whitespace begins a sentence, the word after it does
        begins = [span.start for span in doc.sents]
        return {next((i for i in places if i >= begin), len(doc)) for begin in begins}
    if read_text is None:
        raise ModelError(
            "the document of spaCy has no sentences, and this model cannot find them",
            hint='add spaCy\'s "sentencizer" before it, or load a model of seqtool.train_pipeline',
        )
    starts, offset = set[int](), 0
    for sentence in read_text(doc.text, 1):
        starts.add(next((i for i in places if doc[i].idx >= offset), len(doc)))
        offset += len(sentence.written())
    return starts


class SeqtoolComponent:
    """A component of spaCy: heads, relations, tags, lemmas, morphology and sentences.

    Args:
        model: the directory of a pipeline, a parser or a tagger.
        beam: hypotheses per sentence.
        retag: predict also what earlier components have tagged.

    Raises:
        ModelError: there is no such model, or it is of another kind.
    """

    def __init__(self, model: str, *, beam: int = 1, retag: bool = True) -> None:
        loaded = checkpoint.load(model)
        self._read_text: Split | None = getattr(loaded, "read_text", None)
        self._work: Callable[[Iterable[Sentence]], Iterable[Any]]
        if hasattr(loaded, "parser"):
            self._work = partial(loaded.parse_stream, beam=beam, retag=retag)
        elif hasattr(loaded, "parse_stream"):
            self._work = partial(loaded.parse_stream, beam=beam)
        elif loaded.kind == "tagger":
            self._work = partial(loaded.tag_stream, retag=retag)
        else:
            hint = "name what train-parser or train-tagger made"
            raise ModelError("is no pipeline, parser or tagger", hint=hint, path=model)

    def __call__(self, doc: SpacyDoc) -> SpacyDoc:
        """Annotate a document in place, and return it."""
        sentences, numbers = from_spacy(doc, self._read_text)
        for _ in self._work(iter(sentences)):
            pass
        to_spacy(doc, sentences, numbers)
        return doc


def to_spacy(doc: SpacyDoc, sentences: list[Sentence], numbers: list[list[int]]) -> None:
    """Write what sentences say into the document of spaCy that they were made from.

    Columns that are `_` are left alone there.
    """
    import numpy as np
    from spacy import attrs
    from spacy.parts_of_speech import IDS

    if not numbers:
        return
    # whitespace depends on the word before it, or on the first word; a head is given as a distance
    heads = np.full(len(doc), -1, np.int64)
    heads[: numbers[0][0]] = numbers[0][0] - np.arange(numbers[0][0])
    deps = np.full(len(doc), doc.vocab.strings.add(SPACE_RELATION), np.uint64)
    has_trees = all(row[DEPREL] != "_" for sentence in sentences for row in sentence.rows)
    for sentence, members in zip(sentences, numbers, strict=True):
        if has_trees:
            for row, place, head in zip(sentence.rows, members, sentence.heads(), strict=True):
                heads[place] = members[head - 1] - place if head else 0
                # the root of a tree, which spaCy's own tools look for by this name
                relation = "ROOT" if row[DEPREL] == "root" else row[DEPREL]
                deps[place] = doc.vocab.strings.add(relation)
        elif not doc.has_annotation("SENT_START"):
            doc[members[0]].is_sent_start = True
    if has_trees:
        table = np.stack((heads.astype(np.uint64), deps), axis=1)
        doc.from_array([attrs.HEAD, attrs.DEP], table)
    for sentence, members in zip(sentences, numbers, strict=True):
        for row, place in zip(sentence.rows, members, strict=True):
            token = doc[place]
            if row[UPOS] != "_":
                token.pos_ = row[UPOS] if row[UPOS] in IDS else NO_PART
            if row[XPOS] != "_":
                token.tag_ = row[XPOS]
            if row[LEMMA] != "_" or row[FORM] == "_":
                token.lemma_ = row[LEMMA]
            if row[FEATS] != "_":
                token.set_morph(row[FEATS])


def __getattr__(name: str) -> Any:
    """Register the component, which imports spaCy, when `factory` is asked for."""
    if name != "factory":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _register()


def _register() -> Callable[..., SeqtoolComponent]:
    from spacy.language import Language

    register: Callable[..., Any] = Language.factory(
        NAME,
        assigns=[
            *("token.head", "token.dep", "token.is_sent_start", "token.pos", "token.tag"),
            *("token.lemma", "token.morph", "doc.sents"),
        ],
        default_config={"model": "", "beam": 1, "retag": True},
    )

    def factory(nlp: Language, name: str, model: str, beam: int, retag: bool) -> SeqtoolComponent:
        if not model:
            hint = 'nlp.add_pipe("seqtool", config={"model": "runs/mine"})'
            raise ConfigError("the component has no model", hint=hint)
        return SeqtoolComponent(model, beam=beam, retag=retag)

    register(factory)
    globals()["factory"] = factory  # so that this is done once
    return factory
