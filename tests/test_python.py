"""The library as Python shows it: one line for each result, and an error that says what to give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from classification.test_model import linear
from parsing.parser import tiny
from parsing.segmenter import tiny_segmenter
from parsing.tagger import toy
from toy_networks import save_lm

import seqtool
from seqtool import ConfigError, DataError, Doc
from seqtool.classification.evaluation import evaluate
from seqtool.core.config import Config
from seqtool.lm.mixture.model import MixedModel
from seqtool.parsing.parser.train import TrainedParser
from seqtool.parsing.parser.vote import Vote
from seqtool.parsing.pipeline.model import Pipeline


class Things:
    """Models and a text."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.text = folder, folder / "text.txt"
        self.text.write_text("the dog sees a cat\na cat sees the dog\n" * 30)
        self.trained = seqtool.train_ngram(self.text, folder / "ngram")
        self.lm = self.trained.model
        self.parser: Any = tiny.random_parser(tiny.tiny_config())
        self.parser.save(folder / "parser", scores={"dev_uas": 2.5, "dev_las": 1.25}, data={})
        tiny.write_treebank(folder / "trees.conllu", 3)
        self.sentences = list(seqtool.read_conllu(folder / "trees.conllu"))


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Things:
    return Things(tmp_path_factory.mktemp("things"))


def public_things(it: Things) -> Iterator[tuple[object, str]]:
    """Yield models and results, each with what its line must hold."""
    corpus = seqtool.prepare(it.text, it.folder / "corpus")
    yield corpus, "train="
    yield it.trained, "num_tokens=360"
    snm = seqtool.train_snm(it.text, it.folder / "snm")
    yield snm, "num_tokens=360"
    save_lm(it.folder / "neural", corpus, 2)
    models = [it.lm, snm.model, seqtool.load(it.folder / "neural"), MixedModel([it.lm, snm.model])]
    yield from ((model, "7 symbols") for model in (*models, it.lm.tokenizer.vocabulary))
    measured = seqtool.evaluate_lm(it.lm, it.text)
    figure = f"={measured.perplexity:.6g}"
    yield measured, f"perplexity{figure}"
    names = [it.folder / "ngram", it.folder / "snm"]
    yield seqtool.compare_lms(names, it.text), f"ngram{figure}"
    pairs = [seqtool.MinimalPair("the dog sees a cat", "dog the a sees cat")]
    yield pairs[0], "dog the"
    yield (measured := seqtool.evaluate_pairs(it.lm, pairs)), "accuracy=1"
    yield measured.scored[0], "outcome=right"
    yield it.lm.tokenizer, "unit=word"
    yield next(seqtool.generate(it.lm)), "text="
    yield next(seqtool.score_words(it.lm, ["the"]))[0], "bits="
    yield seqtool.load(it.folder / "parser"), "dev_las=1.25"
    scores = {"dev_las": 1.25}
    yield TrainedParser(it.folder, scores, 1.0, 10, 2, "float32", 2.0, "swap"), "dev_las=1.25"
    yield seqtool.evaluate_parser(it.sentences, it.sentences), "LAS=100"
    tagger, segmenter = toy.random_tagger(), tiny_segmenter.random_segmenter()
    yield from ((part, part.kind) for part in (tagger, segmenter, linear()))
    yield Pipeline(segmenter, tagger, it.parser), "parser"
    yield Vote([it.parser, it.parser], [1.0, 0.5]), "weights=[1.0, 0.5]"
    trace = it.parser.trace(it.sentences[0])
    yield from ((trace, "Sentence"), (trace.derivation, "score="))
    yield trace.derivation.steps[0], "transition=SHIFT"
    yield it.parser.vocabulary, "Vocabulary("
    document = it.parser(seqtool.read_conllu(it.folder / "trees.conllu"))
    yield from ((document, "3 sentences"), (document[0], "Sentence"), (document[0][0], "Token"))
    yield evaluate(["a", "b"], ["a", "a"], ["a", "b"]), "accuracy=50"
    yield linear()("a"), "probability="
    for name in seqtool.__all__:
        if isinstance(kind := getattr(seqtool, name), type) and issubclass(kind, Config):
            yield kind(), f"{name}()"
    yield seqtool.NeuralLMConfig(model=seqtool.ModelConfig(cell="rhn")), "cell='rhn'"


def test_each_thing_is_one_line_that_holds_its_figure(things: Things) -> None:
    for thing, figure in public_things(things):
        line = repr(thing)
        assert figure in line
        assert " object at 0x" not in line
        assert len(line) < 200 + len(str(things.folder)) * 2, line
        assert "\n" not in line


def test_a_notebook_shows_results_as_tables(things: Things) -> None:
    pair = seqtool.MinimalPair("the dog sees a cat", "dog the a sees cat", "<b>&order")
    names = [things.folder / "ngram", things.folder / "parser" / ".." / "ngram"]
    for result, rows, cell in (
        (seqtool.evaluate_lm(things.lm, things.text), 2, "perplexity_without_oov"),
        (seqtool.compare_lms(names, things.text), 3, "ngram</td>"),
        (seqtool.evaluate_pairs(things.lm, [pair]), 3, "<td>&lt;b&gt;&amp;order</td>"),
        (things.lm.tokenizer, 2, "<td>word</td>"),
        (things.lm.surprisal("the <b> cat"), 4, "<td>&lt;b&gt;</td>"),
        (things.lm.surprisal("cat " * 100), 41, "<p>60 more</p>"),
        (seqtool.evaluate_parser(things.sentences, things.sentences), 14, "<td>LAS</td>"),
        (things.parser.trace(things.sentences[0]), 0, "<svg"),
    ):
        html: str = result._repr_html_()
        assert (html.count("<tr>"), cell in html, "<b>" in html) == (rows, True, False), html


Call = Callable[[Things], object]


@pytest.mark.parametrize(
    ("kind", "message", "call"),
    [
        (TypeError, "a prompt as a string", lambda it: it.lm.generate(["the", "old"])),
        (TypeError, "not its name", lambda it: list(seqtool.generate("runs/lm", "the"))),
        (TypeError, "not a Parser", lambda it: seqtool.evaluate_lm(it.parser, text="a")),
        (DataError, "half a surrogate pair", lambda it: it.lm.surprisal("the \ud83d dog")),
        (DataError, "there are no pairs", lambda it: seqtool.evaluate_pairs(it.lm, [])),
        (DataError, "there are no sentences", lambda it: seqtool.evaluate_parser([], [])),
        (TypeError, "expected a list of inputs", lambda it: list(it.parser.pipe("A cat."))),
        (TypeError, "expected sentences", lambda it: it.parser.parse("x.conllu")),
        (TypeError, "with read_conllu", lambda it: seqtool.filter("x.conllu", upos="X")),  # type: ignore[arg-type]
        (TypeError, "two models or more", lambda it: seqtool.compare_lms("runs/lm", it.text)),
        (ConfigError, "no model to compare", lambda it: seqtool.compare_lms([], it.text)),
        (TypeError, "the path of a model", lambda it: seqtool.load(None)),  # type: ignore[call-overload]
    ],
)
def test_mistakes(things: Things, kind: type[Exception], message: str, call: Call) -> None:
    with pytest.raises(kind, match=message):
        call(things)


@pytest.mark.parametrize("head", [1.5, -1, 99, "1"])
def test_a_head_is_the_number_of_a_word(things: Things, head: Any) -> None:
    token = next(iter(things.sentences[0]))
    before = token.head
    with pytest.raises(ValueError, match="HEAD cannot be"):
        token.head = head
    assert token.head == before
    with pytest.raises(DataError, match=r"the head 0\.0, which is no whole number"):
        Doc.from_tokenlists([[{"id": 1, "form": "a", "head": 0.0, "deprel": "root"}]])


def test_one_sentence_is_a_document_and_settings_may_be_a_dictionary(things: Things) -> None:
    assert len(Doc(things.sentences[0])) == 1
    sentence = things.sentences[0]
    assert seqtool.evaluate_parser(sentence, sentence).scores["LAS"].f1 == 100.0
    corpus = seqtool.prepare(things.text, things.folder / "chars", {"unit": "char"})
    assert corpus.tokenizer.unit == "char"
