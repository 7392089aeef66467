"""Forms that are one word or several: told by the sentence."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from parsing.pipeline.test_pipeline import TINY
from parsing.tagger.toy import tiny_config

from seqtool.core import checkpoint
from seqtool.core.arrays import CodePoints
from seqtool.core.config import from_dict, to_dict
from seqtool.parsing.pipeline.config import PipelineConfig
from seqtool.parsing.pipeline.model import (
    MultiwordChooser,
    share_of_both,
    surface_sentence,
)
from seqtool.parsing.pipeline.train import train_pipeline
from seqtool.parsing.segmenter.characters import code_points
from seqtool.parsing.segmenter.data import MultiwordSplitter, raw_text
from seqtool.parsing.segmenter.rules import Spans
from seqtool.parsing.tagger.train import train_tagger
from seqtool.treebank.conllu import read_conllu, write_conllu
from seqtool.treebank.sentence import FORM, LEMMA, UPOS, XPOS, Sentence

RANGE = "\t_" * 8


def sentence_of(text: str) -> Sentence:
    """Of tokens `form/UPOS/relation`; a multiword token is `des=de/ADP/case+les/DET/det`."""
    rows: list[list[str]] = []
    extras: list[tuple[int, str]] = []
    for token in text.split():
        form, _, several = token.rpartition("=")
        words = several.split("+")
        if form:
            extras.append((len(rows), f"{len(rows) + 1}-{len(rows) + len(words)}\t{form}{RANGE}"))
        for word in words:
            form, upos, relation = word.split("/")
            head = "1" if rows else "0"
            rows.append([str(len(rows) + 1), form, form, upos, "_", "_", head, relation, "_", "_"])
    return Sentence([], rows, extras)


PRICE = sentence_of("prix/NOUN/root des=de/ADP/case+les/DET/det livres/NOUN/nmod:of ./PUNCT/punct")
BUY = sentence_of("acheter/VERB/root des/DET/det livres/NOUN/obj ./PUNCT/punct")


def test_surface_tokens_have_the_tags_of_all_their_words() -> None:
    found = [(row[FORM], row[LEMMA], row[UPOS], row[XPOS]) for row in surface_sentence(PRICE).rows]
    assert found == [
        ("prix", "prix", "NOUN", "root"),
        ("des", "des", "several:ADP+DET", "case+det"),
        ("livres", "livres", "NOUN", "nmod"),
        (".", ".", "PUNCT", "punct"),
    ]


def test_the_share_is_of_the_rarer_readings() -> None:
    upper = sentence_of("Des/DET/det livres=les/DET/det+livres/NOUN/root")
    # of 4 + 4 + 2 tokens: `des` is two words once and one twice, `livres` one twice and two once
    assert share_of_both([PRICE, BUY, upper]) == pytest.approx(2 / 10)
    assert share_of_both([PRICE]) == share_of_both([]) == 0.0


def test_the_sentence_decides_and_other_forms_stay(tmp_path: Path) -> None:
    chooser = random.Random(0)
    # `des` after a noun is two words, after a verb one; `du` is always two, `livres` one
    kinds = [
        f"{noun}/NOUN/root des=de/ADP/case+les/DET/det livres/NOUN/nmod" for noun in ("prix", "vol")
    ]
    kinds += [f"{verb}/VERB/root des/DET/det livres/NOUN/obj" for verb in ("acheter", "voir")]
    kinds.append("fin/NOUN/root du=de/ADP/case+le/DET/det livre/NOUN/nmod")
    treebank = [surface_sentence(sentence_of(chooser.choice(kinds))) for _ in range(60)]
    write_conllu(treebank, tmp_path / "surface.conllu")
    path = tmp_path / "multiword"
    settings = tiny_config(8, learning__lemma_weight=0.0)
    train_tagger(tmp_path / "surface.conllu", path, settings, device="cpu")
    splitter = MultiwordSplitter.learn([("des", ("de", "les")), ("du", ("de", "le"))])
    multiword = MultiwordChooser(checkpoint.load(path), splitter)
    assert multiword.forms == {"des"}

    # three sentences in two stretches, all decided wrongly before
    first, second = "prix Des livres fin du livre", "voir des livres"
    spans = [spans_of(first, [3, 6]), spans_of(second, [3])]
    spans[0].words = {5: ("wrong",)}  # `livre`, which is not its business
    spans[1].words = {1: ("de", "les")}
    multiword.choose([code_points(first), code_points(second)], spans)
    assert spans[0].words == {1: ("De", "les"), 5: ("wrong",)}
    assert spans[1].words == {}
    multiword.choose([], [])

    silent = MultiwordChooser(checkpoint.load(path), MultiwordSplitter({}, {}))
    silent.choose([code_points(first)], spans[:1])
    assert 1 not in spans[0].words  # several words, but nobody knows which


def spans_of(text: str, sentence_ends: list[int]) -> Spans:
    ends = [end for end in range(1, len(text) + 1) if end == len(text) or text[end] == " "]
    return Spans([0, *(end + 1 for end in ends[:-1])], ends, sentence_ends)


def test_a_pipeline_has_one_where_the_treebank_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two sentences that differ in the first word, only one has a multiword token."""
    chooser = random.Random(1)
    texts = [
        "prix/NOUN/root des=de/ADP/case+les/DET/det livres/NOUN/nmod ./PUNCT/punct",
        "acheter/VERB/root des/DET/det livres/NOUN/obj ./PUNCT/punct",
    ]
    for name, num in (("train", 60), ("dev", 10)):
        sentences = [sentence_of(text) for text in chooser.choices(texts, k=num)]
        write_conllu(sentences, tmp_path / f"{name}.conllu")
    settings = {**TINY, **dict.fromkeys(("segmenters", "taggers", "parsers"), 1)}
    settings["multiword"] = to_dict(tiny_config(8, learning__lemma_weight=0.0))
    config = from_dict(PipelineConfig, settings)
    parts: list[str] = []
    trained = train_pipeline(
        tmp_path / "train.conllu", tmp_path / "p", config, dev=tmp_path / "dev.conllu",
        device="cpu", threads=1, on_part=parts.append,
    )  # fmt: skip
    assert parts == ["tagger", "segmenter", "multiword", "fold 1 of 2", "fold 2 of 2", "parser"]
    assert trained.scores["dev_words"] == 100.0
    pipeline = checkpoint.load(tmp_path / "p")
    assert pipeline.multiword.forms == {"des"}
    gold = list(read_conllu(tmp_path / "dev.conllu"))
    split = pipeline.segmenter.split

    def without_words(stretches: Sequence[CodePoints], *, whole: bool) -> list[Spans]:
        found: list[Spans] = split(stretches, whole=whole)
        for spans in found:
            spans.words.clear()
        return found

    monkeypatch.setattr(pipeline.segmenter, "split", without_words)
    for unit, text in (("paragraph", raw_text(gold)), ("line", "\n".join(map(line_of, gold)))):
        found = list(pipeline.segment([text], unit=unit))
        assert [item.column(FORM) for item in found] == [item.column(FORM) for item in gold]


def line_of(sentence: Sentence) -> str:
    return " ".join(row[FORM] for row in surface_sentence(sentence).rows)
