"""What models are called with: texts, words, files, sentences, TokenLists, documents of spaCy."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import conllu
import pytest
from parsing.parser.tiny import LABELS, random_parser, random_sentences
from parsing.parser.tiny import tiny_config as parser_config
from parsing.segmenter.tiny_segmenter import random_segmenter
from parsing.tagger.toy import random_tagger

import seqtool
from seqtool.core.errors import ConfigError, DataError, ModelError, SeqtoolError
from seqtool.parsing.pipeline.model import Pipeline
from seqtool.treebank.sentence import Sentence

TEXT = "du bat. Ab cet\nbad.\n\nthe bet!"
WORDS = [["the", "dog", "sees"], ["a", "b c", "."]]


@pytest.fixture(scope="module")
def nlp() -> Pipeline:
    """A pipeline of random weights: what it finds means nothing, but it finds it each time."""
    return Pipeline(random_segmenter(), random_tagger(), random_parser(parser_config(), LABELS))


def test_a_text_gets_all(nlp: Pipeline) -> None:
    doc = nlp(TEXT)
    assert isinstance(doc, seqtool.Doc)
    assert doc.text == TEXT
    for options in ({}, {"beam": 4}):
        by_hand = nlp.parse_stream(nlp.segment([TEXT]), **options)  # type: ignore[arg-type]
        assert nlp(TEXT, **options).to_conllu() == seqtool.write_conllu(by_hand)  # type: ignore[arg-type]
    for token in doc.words:
        assert token.head is not None
        assert (token.upos, token.deprel) != ("_", "_")
    surface = [token for sentence in doc for token in sentence.tokens]
    assert all(doc.text[token.start : token.end] == token.form for token in surface)
    assert len(nlp("")) == len(nlp(" \n")) == len(nlp([])) == 0
    tagged = seqtool.Doc(sentence.copy() for sentence in doc)
    for token in tagged.words:
        token.upos, token.lemma = "X", "x"
    assert {token.upos for token in nlp(tagged).words} == {"X"}
    assert nlp(tagged, retag=True).to_conllu() == doc.to_conllu()
    assert {token.upos for token in tagged.words} == {"X"}  # what is given stays as it is


def test_several_texts_are_documents_of_their_own(nlp: Pipeline) -> None:
    doc = nlp([TEXT, "bab.", "du"])
    assert doc.text == TEXT + "bab." + "du"
    newdocs = [place for place, sentence in enumerate(doc) if "newdoc" in sentence.metadata]
    lengths = [len(nlp(text)) for text in (TEXT, "bab.")]
    assert newdocs == [0, lengths[0], sum(lengths)]
    assert [sentence.sent_id for sentence in doc] == [str(i) for i in range(1, len(doc) + 1)]
    assert nlp(text for text in (TEXT, "bab.", "du")) == doc


def test_each_input_is_a_document(nlp: Pipeline) -> None:
    inputs: list[Any] = [TEXT, "", WORDS, " ", "du", []]
    docs = list(nlp.pipe(inputs))
    assert [doc.to_conllu() for doc in docs] == [nlp(given).to_conllu() for given in inputs]
    assert [doc.to_conllu() for doc in nlp.pipe(inputs, batch_size=2)] == [
        doc.to_conllu() for doc in docs
    ]
    assert list(nlp.pipe([])) == []
    assert [doc.text for doc in nlp.segmenter.pipe(["du", "ab"])] == ["du", "ab"]
    tagged = list(nlp.tagger.pipe([WORDS, WORDS[:1]]))
    assert [len(doc) for doc in nlp.parser.pipe(tagged)] == [2, 1]


def test_the_first_answer_comes_first(nlp: Pipeline) -> None:
    texts = iter([TEXT, "du", "ab", 5, "du"])
    answers = nlp.pipe(texts)
    assert next(answers) == nlp(TEXT)
    assert next(texts) == "du"  # no more was read than the text that is answered
    assert next(answers) == nlp("ab")
    with pytest.raises(TypeError, match="expected a text") as caught:
        next(answers)
    assert "input 3 " in caught.value.__notes__[0]
    with pytest.raises(ConfigError, match="batch_size is 0"):
        list(nlp.tagger.pipe([WORDS], batch_size=0))


def test_words_are_taken_as_they_are(nlp: Pipeline) -> None:
    for given in (WORDS, [tuple(words) for words in WORDS], iter(WORDS)):
        doc = nlp(given)
        assert [[token.form for token in sentence] for sentence in doc] == WORDS
        assert all(token.head is not None for token in doc.words)


def test_files(nlp: Pipeline, tmp_path: Path) -> None:
    text, trees = tmp_path / "a.txt", tmp_path / "a.conllu"
    text.write_text(TEXT, encoding="utf-8")
    from_file = nlp(text)
    assert from_file.text == TEXT
    assert from_file[0].metadata["newdoc id"] == str(text)
    trees.write_text(from_file.to_conllu(), encoding="utf-8")
    assert nlp(trees) == from_file
    both = nlp([text, trees])
    assert len(both) == 2 * len(from_file)
    with pytest.raises(DataError, match="no such file"):
        nlp(tmp_path / "nothing.txt")


def test_a_treebank_is_no_text(nlp: Pipeline) -> None:
    text = nlp(WORDS).to_conllu()
    for model, given in itertools.product((nlp, nlp.segmenter), (text, f"# newdoc\n{text}")):
        with pytest.raises(DataError, match="the text is CoNLL-U"):
            model(given)
    assert nlp(list(seqtool.read_conllu(text))) == nlp(WORDS)


def test_sentences_and_token_lists(nlp: Pipeline) -> None:
    doc = nlp(WORDS)
    lists = doc.to_tokenlists()
    bare = [conllu.TokenList([conllu.Token({"form": w}) for w in words]) for words in WORDS]
    for given in (doc, list(doc), iter(doc), lists, list(lists), bare, [doc[:1], lists[1]]):
        again = nlp(given)
        assert again.to_conllu() == doc.to_conllu()
        assert again[0] is not doc[0]
    assert nlp(doc[0]) == nlp(lists[0]) == nlp([lists[0]]) == doc[:1]
    assert nlp([dict(token) for token in lists[0]]) == doc[:1]


def test_a_tagger_and_a_parser_read_sentences(nlp: Pipeline) -> None:
    tagged = nlp.tagger(WORDS)
    assert {token.head for token in tagged.words} == {None}
    assert all(token.upos != "_" for token in tagged.words)
    assert nlp.parser(tagged) == nlp(WORDS)
    assert nlp.parser(tagged, beam=2) == nlp(WORDS, beam=2)
    for model in (nlp.tagger, nlp.parser):
        with pytest.raises(ModelError, match="not plain text") as refused:
            model("the dog")
        assert "train_pipeline" in refused.value.hint


def test_a_segmenter_reads_texts(nlp: Pipeline, tmp_path: Path) -> None:
    doc = nlp.segmenter(TEXT)
    assert doc.to_conllu() == seqtool.write_conllu(nlp.segmenter.segment([TEXT]))
    (tmp_path / "a.conllu").write_text(doc.to_conllu())
    for given in (WORDS, doc, tmp_path / "a.conllu"):
        with pytest.raises(TypeError, match="a segmenter takes texts"):
            nlp.segmenter(given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (b"text", TypeError, "not bytes; decode"),
        (3, TypeError, "not int"),
        ([None], TypeError, "not NoneType"),
        ({"a": 1}, TypeError, "not dict"),
        ([["a", 3]], TypeError, "not list with int in it"),
        ([["a", "b\tc"]], SeqtoolError, "word 2 of sentence 1"),
        ([["a"], ["  "]], SeqtoolError, "word 1 of sentence 2"),
        ([[]], SeqtoolError, "sentence 1 has no words"),
        ("a\ud800", SeqtoolError, r"character 1 of the text is U\+D800"),
        ([["a", "d\udce9g"]], SeqtoolError, "half a pair"),
    ],
)
def test_other_inputs_are_refused(
    nlp: Pipeline, given: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        nlp(given)
    for model in (nlp.parser, nlp.tagger, nlp.segmenter):
        with pytest.raises((SeqtoolError, TypeError)):
            model(given)
    with pytest.raises(error, match=message):
        list(nlp.pipe(["a", given]))


def test_streams_refuse_what_is_no_sentence(nlp: Pipeline) -> None:
    sentences = random_sentences(2, 3)
    (tokens, *_) = seqtool.Doc(sentences).to_tokenlists()
    for stream in (nlp.parse_stream, nlp.tag_stream, nlp.parser.parse_stream):
        for items in ([*sentences, "x"], [*sentences, tokens], "text"):
            with pytest.raises(TypeError, match=r"expected sentences.* got (str|conllu\.)"):
                list(stream(items))  # type: ignore[arg-type]
        assert all(isinstance(item, Sentence) for item in stream(iter(sentences)))
    with pytest.raises(DataError, match="half a pair"):
        list(nlp.segment(["d\udce9g"]))


def test_a_model_is_loaded_as_what_it_must_be(nlp: Pipeline, tmp_path: Path) -> None:
    nlp.tagger.save(tmp_path / "tagger", scores={}, data={})
    assert isinstance(seqtool.load(tmp_path / "tagger"), seqtool.Tagger)
    tagger: seqtool.Tagger = seqtool.load(tmp_path / "tagger", seqtool.Tagger)
    assert tagger(WORDS) == nlp.tagger(WORDS)
    with pytest.raises(ModelError, match="is a Tagger, not a Parser") as refused:
        seqtool.load(tmp_path / "tagger", seqtool.Parser)
    assert refused.value.path == str(tmp_path / "tagger")
