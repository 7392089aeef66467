"""Documents of spaCy, and the component that annotates them."""

from __future__ import annotations

import tomllib
import warnings
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from parsing.parser.tiny import LABELS, random_parser
from parsing.parser.tiny import tiny_config as parser_config
from parsing.segmenter.tiny_segmenter import random_segmenter
from parsing.tagger.toy import random_tagger

from seqtool.core.errors import ConfigError, DataError, ModelError
from seqtool.parsing.pipeline.model import Pipeline

with warnings.catch_warnings():  # its own imports, which are no business of ours
    warnings.simplefilter("ignore")
    spacy = pytest.importorskip("spacy", reason="spaCy is not installed: make judges")

TEXT = "\n the dog sees.  a cat\nsees the dog.\n\n"


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    return Pipeline(random_segmenter(), random_tagger(), random_parser(parser_config(), LABELS))


@pytest.fixture(autouse=True)
def component(root: Path, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the component as the entry point does, with a model that is not on disk."""
    points = tomllib.loads((root / "pyproject.toml").read_text())["project"]["entry-points"]
    group = "spacy_factories"
    EntryPoint("seqtool", points[group]["seqtool"], group).load()
    models: dict[str, Any] = {
        "pipeline": pipeline,
        "tagger": pipeline.tagger,
        "parser": pipeline.parser,
        "segmenter": pipeline.segmenter,
    }
    monkeypatch.setattr("seqtool.core.checkpoint.load", models.__getitem__)


def blank(**config: Any) -> Any:
    nlp = spacy.blank("xx")
    nlp.add_pipe("seqtool", config=config)
    return nlp


def words_of(doc: Any) -> list[Any]:
    return [token for token in doc if not token.is_space]


def test_a_document_gets_what_the_pipeline_finds(pipeline: Pipeline) -> None:
    theirs = blank(model="pipeline")(TEXT)
    assert theirs.text == TEXT
    bare = spacy.blank("xx")(TEXT)
    ours = pipeline(bare)
    assert ours.text == TEXT
    tokens, words = words_of(theirs), list(ours.words)
    assert [token.text for token in tokens] == [word.form for word in words]
    place = {id(word.sentence) * 1000 + word.number: i for i, word in enumerate(words)}
    for token, word in zip(tokens, words, strict=True):
        head = word.head_token or word
        assert token.head == tokens[place[id(head.sentence) * 1000 + head.number]]
        assert token.dep_ == ("ROOT" if word.deprel == "root" else word.deprel)
        assert token.lemma_ == word.lemma
        assert token.tag_ == ("" if word.xpos == "_" else word.xpos)
        assert token.pos_ == (word.upos if word.upos != "_" else "")
        assert token.morph.to_dict() == dict(word.feats)
        assert (token.idx, token.idx + len(token)) == (word.start, word.end)
    starts = [next(t for t in span if not t.is_space) for span in theirs.sents]
    assert starts == [tokens[place[id(s) * 1000 + 1]] for s in ours]
    for name in ("DEP", "HEAD", "SENT_START", "LEMMA"):
        assert theirs.has_annotation(name, require_complete=name in ("DEP", "SENT_START"))
    # whitespace hangs on the word beside it, so that it roots no tree
    assert all(token.head != token for token in theirs if token.is_space)


def test_sentences_of_earlier_components_stay() -> None:
    text = "the dog sees. a cat sees."
    nlp = spacy.blank("xx")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("seqtool", config={"model": "parser"})
    with pytest.raises(DataError, match="no word of the sentence has LEMMA and UPOS"):
        nlp(text)
    nlp.add_pipe("seqtool", name="tags", config={"model": "tagger"}, before="seqtool")
    doc = nlp(text)
    assert [span.text for span in doc.sents] == ["the dog sees.", "a cat sees."]
    assert all(token.dep_ for token in doc)
    nlp.remove_pipe("seqtool")  # a tagger alone leaves trees alone
    doc = nlp(text)
    assert len(list(doc.sents)) == 2
    assert not doc.has_annotation("DEP")
    assert all(token.lemma_ for token in doc)


def test_tags_of_earlier_components_stay_if_asked(pipeline: Pipeline) -> None:
    doc = spacy.tokens.Doc(spacy.vocab.Vocab(), words=["a", "dog"], pos=["X", "X"])
    assert [word.upos for word in pipeline(doc).words] == ["X", "X"]
    with_component = blank(model="pipeline", retag=False).get_pipe("seqtool")(doc)
    assert [token.pos_ for token in with_component] == ["X", "X"]


def test_documents_of_nothing() -> None:
    nlp = blank(model="pipeline", beam=2)
    assert [doc.text for doc in nlp.pipe(["", " \n ", "dog"])] == ["", " \n ", "dog"]


def test_what_cannot_be_is_refused(pipeline: Pipeline) -> None:
    with pytest.raises(ConfigError, match="the component has no model"):
        blank()
    with pytest.raises(ModelError, match="no pipeline, parser or tagger"):
        blank(model="segmenter")
    with pytest.raises(ModelError, match="has no sentences"):
        pipeline.parser(spacy.blank("xx")("a dog"))
