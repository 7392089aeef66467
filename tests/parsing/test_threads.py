"""Models that several threads of Python call at once, and copies for other processes."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from parsing.parser.tiny import random_parser, random_sentences, tiny_config
from parsing.segmenter.tiny_segmenter import random_segmenter
from parsing.tagger.toy import random_tagger

from seqtool.parsing.parser import parser as parser_module
from seqtool.parsing.parser.parser import Parser
from seqtool.parsing.parser.vote import Vote
from seqtool.text.words import WordTable

NUM = 40  # calls of each thread


@pytest.fixture
def switching() -> Iterator[None]:
    """Threads change as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def parser(**model: Any) -> Parser:
    return random_parser(tiny_config(fields=["form", "upos"], **model))


def texts(sentences: Any) -> list[str]:
    return [sentence.to_conllu() for sentence in sentences]


def parse(model: Parser | Vote, seed: int) -> list[str]:
    sentences = random_sentences(9, 8, seed)
    model.parse(sentences)
    return texts(sentences)


def nbest(model: Parser, seed: int) -> list[str]:
    return [
        text for found in model.nbest(random_sentences(5, 6, seed), 3, beam=4)
        if isinstance(found, list) for text in texts(found)
    ]  # fmt: skip


def tag(model: Any, seed: int) -> list[str]:
    sentences = random_sentences(9, 8, seed)
    model.tag(sentences, retag=True)
    return texts(sentences)


def segment(model: Any, seed: int) -> list[str]:
    return texts(model.segment([f"the {'tea ' * seed}bad. du tea, a bath\n"]))


def encode(model: WordTable, seed: int) -> list[list[int]]:
    block = b"the old dog " * seed + b"sleeps\n"
    return [model.encode(block).tolist() for _ in range(500)]


CALLS: dict[str, Callable[[], tuple[Callable[[Any, int], Any], Any]]] = {
    "parser": lambda: (parse, parser()),
    "encoder": lambda: (parse, parser(encoder="bilstm")),
    "n best": lambda: (nbest, parser()),
    "vote": lambda: (parse, Vote([parser(), parser(encoder="bilstm")])),
    "tagger": lambda: (tag, random_tagger()),
    "segmenter": lambda: (segment, random_segmenter(1)),
    "words": lambda: (encode, WordTable(["<unk>", "</s>", "the", "old", "dog", "sleeps"])),
}


@pytest.mark.parametrize("name", list(CALLS))
def test_threads_get_the_answers_that_each_gets_alone(
    name: str, switching: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, model = CALLS[name]()
    # types are forgotten again and again
    monkeypatch.setattr(parser_module, "TABLE_BYTES", 1 << 13)
    seeds = [seed % 8 + 1 for seed in range(4 * NUM)]
    alone = {seed: call(model, seed) for seed in set(seeds)}
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(partial(call, model), seeds))
    assert together == [alone[seed] for seed in seeds]


@pytest.mark.parametrize("name", ["parser", "encoder", "vote", "tagger", "segmenter"])
def test_a_model_is_pickled_and_copied(name: str) -> None:
    call, model = CALLS[name]()
    before = call(model, 3)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert call(other, 3) == before


def test_sentences_may_come_from_a_generator() -> None:
    model, sentences, others = parser(), random_sentences(5, 6), random_sentences(5, 6)
    model.parse(sentence for sentence in sentences)  # type: ignore[arg-type]
    model.parse(others)
    assert texts(sentences) == texts(others)
