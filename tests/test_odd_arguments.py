"""What a slip of the pen in Python gets: an error that says what was expected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from parsing.parser.tiny import random_parser, random_sentences, tiny_config

import seqtool
from seqtool import DataError, Doc

CONLLU = "1\tHi\thi\tINTJ\t_\t_\t0\troot\t_\t_\n\n"
SURROGATE = "half a surrogate pair"
NO_NAME = "expected a language model, not its name"
NO_MODEL = "expected a language model, not a Parser"
NO_SENTENCES = "expected sentences"


class Things:
    """Models and a text."""

    def __init__(self, folder: Path) -> None:
        self.text = folder / "text.txt"
        self.text.write_text("the old dog sleeps\nthe dog barks\n" * 9)
        self.lm = seqtool.train_ngram(self.text, folder / "ngram").model
        self.parser: Any = random_parser(tiny_config())
        self.sentences = random_sentences(3, 5)
        self.folder = folder


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Things:
    return Things(tmp_path_factory.mktemp("things"))


MISTAKES: dict[str, tuple[type[Exception], str, Callable[[Things], object]]] = {
    "a prompt of words": (
        TypeError,
        "expected a prompt as a string",
        lambda it: it.lm.generate(["the", "old"]),
    ),
    "the name of a model": (
        TypeError,
        NO_NAME,
        lambda it: list(seqtool.generate("runs/lm", "the")),
    ),
    "a parser": (TypeError, NO_MODEL, lambda it: seqtool.evaluate_lm(it.parser, text="a")),
    "half a character": (DataError, SURROGATE, lambda it: it.lm.surprisal("the \ud83d dog")),
    "no pairs": (DataError, "there are no pairs", lambda it: seqtool.evaluate_pairs(it.lm, [])),
    "no trees": (DataError, "there are no sentences", lambda it: seqtool.evaluate_parser([], [])),
    "one text to pipe": (
        TypeError,
        "expected a list of inputs",
        lambda it: list(it.parser.pipe("A cat.")),
    ),
    "a file to parse": (TypeError, NO_SENTENCES, lambda it: it.parser.parse("x.conllu")),
    "a file to filter": (
        TypeError,
        "read them with read_conllu",
        lambda it: seqtool.filter("x.conllu", upos="X"),  # type: ignore[arg-type]
    ),
    "one model to compare": (
        TypeError,
        "expected two models or more",
        lambda it: seqtool.compare_lms("runs/lm", it.text),
    ),
    "no model to compare": (
        seqtool.ConfigError,
        "there is no model to compare",
        lambda it: seqtool.compare_lms([], it.text),
    ),
    "nothing to open": (
        TypeError,
        "expected the path of a model",
        lambda it: seqtool.load(None),  # type: ignore[call-overload]
    ),
}


@pytest.mark.parametrize("name", list(MISTAKES))
def test_a_mistake_is_named(things: Things, name: str) -> None:
    kind, message, call = MISTAKES[name]
    with pytest.raises(kind, match=message):
        call(things)
    assert not (things.folder / "no").exists()


@pytest.mark.parametrize("head", [1.0, True, "1"])
def test_a_head_is_a_whole_number(things: Things, head: Any) -> None:
    token = next(iter(things.sentences[0]))
    before = token.head
    with pytest.raises(TypeError, match="HEAD cannot be"):
        token.head = head
    assert token.head == before
    with pytest.raises(DataError, match=r"the head 0\.0, which is no whole number"):
        Doc.from_tokenlists([[{"id": 1, "form": "a", "head": 0.0, "deprel": "root"}]])


def test_one_sentence_is_a_document_and_settings_may_be_a_dictionary(things: Things) -> None:
    assert len(Doc(things.sentences[0])) == 1
    sentence = next(seqtool.read_conllu(CONLLU))
    assert seqtool.evaluate_parser(sentence, sentence).scores["LAS"].f1 == 100.0
    corpus = seqtool.prepare(things.text, things.folder / "corpus", {"unit": "char"})
    assert corpus.tokenizer.unit == "char"
