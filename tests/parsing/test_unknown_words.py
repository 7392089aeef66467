"""What a model says of a text that lacks columns, or is not of the kind that it learnt."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsing.parser.tiny import make_sentence, random_parser, random_sentences, tiny_config
from parsing.segmenter.tiny_segmenter import random_segmenter
from parsing.tagger.toy import random_tagger

from seqtool.core import checkpoint
from seqtool.core.errors import DataError
from seqtool.parsing.encoding.features import SymbolTable, Types, encode
from seqtool.parsing.missing_columns import CHANCE, CLUSTER, ColumnCheck, most_without
from seqtool.parsing.parser import vote
from seqtool.parsing.pipeline.model import Pipeline
from seqtool.parsing.unknown_words import FIRST_WORDS, LEAST_WORDS, Known, UnknownWords
from seqtool.treebank.conllu import read_batches, read_conllu, write_conllu
from seqtool.treebank.sentence import FEATS, FORM, UPOS, XPOS, Sentence

Run = Callable[..., Any]
COLUMNS = (FORM, UPOS, XPOS, FEATS)


def words(*rows: Sequence[str]) -> Sentence:
    """A sentence of words, each of form, UPOS, XPOS and FEATS."""
    return Sentence(
        [],
        [
            [str(number), form, "_", upos, xpos, feats, *["_"] * 4]
            for number, (form, upos, xpos, feats) in enumerate(rows, 1)
        ],
        [],
    )


def known(usual: float | None = None, xpos: str = "pvg+ep+ef") -> Known:
    types = [
        (("집에", "NOUN", "ncn", "_"), 3),
        (("Gone", "VERB", xpos, "Tense=Past|Mood=Ind"), 30),
        ((".", "PUNCT", "sf", "_"), 9),
    ]
    lexical = SymbolTable.build(types, ["form", "suffix"], 1, COLUMNS)
    tags = SymbolTable.build(types, ["upos", "xpos", "feats"], 1, COLUMNS)
    return Known.of([lexical, tags], usual)


def test_what_is_known() -> None:
    found = known(0.5)
    assert all(map(found.knows, ("집에", "GONE", "gone")))
    assert not found.knows("집")
    # a new combination of known morphemes or features is no other tagset
    for column, own, other in (
        (UPOS, "NOUN", "N"),
        (XPOS, "ncn+ef", "NN"),
        (FEATS, "Mood=Ind|Number=Sing", "Number=Sing"),
    ):
        assert found.knows_tag(column, own)
        assert not found.knows_tag(column, other)
    # where tags are not read by their parts, their parts do not count
    assert not known(xpos="pvg").knows_tag(XPOS, "ncn+pvg")
    assert (found.without_tags.tags, found.without_tags.usual) == ({}, 0.5)


def warnings(sentence: Sentence, learnt: Known) -> list[str]:
    unknown = UnknownWords()
    unknown.add([sentence], learnt)
    return list(unknown.warnings(learnt, ", or so"))


def test_a_model_that_reads_no_forms() -> None:
    table = SymbolTable.build([(("a", "X"), 1)], ["upos"], 1, (FORM, UPOS))
    found = Known.of([table], None)
    assert found.share_of(["b"]) is None
    assert warnings(words(*[("house", "X", "_", "_")] * LEAST_WORDS), found) == []


def test_counts() -> None:
    unknown = UnknownWords()
    text = [("집에", "NOUN", "NNG", "_"), ("House", "N", "NN", "_"), (".", "PUNCT", "sf", "_")]
    unknown.add([words(*text), words(("1999", "_", "_", "_"))], known())
    assert (unknown.num_seen, unknown.num_words, unknown.num_unknown) == (4, 2, 1)
    assert unknown.tags == {UPOS: {"N": 1}, XPOS: {"NNG": 1, "NN": 1}, FEATS: {}}
    assert known().share_of(["집에", "House", "1999", "A"]) == pytest.approx(2 / 3)
    assert known().share_of(["1", "."]) == 0


NOUN, KNOWN = ("house", "NOUN", "_", "_"), ("집에", "NOUN", "_", "_")


@pytest.mark.parametrize(
    ("text", "usual", "beginning"),
    [
        ([NOUN] * 95 + [KNOWN] * 5, None, ""),  # as many as the least share
        ([NOUN] * 96 + [KNOWN] * 4, None, "96% of the words are unknown to the model: "),
        ([NOUN] * 96 + [KNOWN] * 4, 0.25, "96% of the words are unknown to the model, 25% where"),
        ([NOUN] * 96 + [KNOWN] * 4, 0.95, ""),
        ([NOUN] * (LEAST_WORDS - 1), None, ""),  # too few to tell
        ([NOUN] * FIRST_WORDS, None, "100% of the words of the first 2,000 are unknown"),
    ],
)
def test_another_language(text: list[Any], usual: float | None, beginning: str) -> None:
    found = "".join(warnings(words(*text), known(usual)))
    assert found.startswith(beginning)
    assert bool(beginning) == bool(found)


def test_another_tagset() -> None:
    text = [("집에", "NOUN", "ncn", "_")] * 80 + [("집에", "NOUN", "NNG", "_")] * 20
    assert warnings(words(*text), known()) == []  # one of five
    # words without a tag count as well: few stray ones are no other tagset
    stray = [("집에", "_", "_", "_")] * 100 + [("집에", "X", "X", "X=Y")] * 25
    assert warnings(words(*stray), known()) == []
    text[:20] = [("집에", "NOUN", "NNP", "_")] * 20
    (warning,) = warnings(words(*text), known())
    assert warning.startswith("40% of the words have XPOS")
    assert "such as NNP, NNG: tag them as its treebank is tagged, or so" in warning
    # of a column that the treebank does not have, it is said
    table = SymbolTable.build([(("a", "X", "_", "_"), 9)], ["upos", "feats"], 1, COLUMNS)
    empty = words(*[("a", "X", "_", "Case=Nom")] * LEAST_WORDS)
    (warning,) = warnings(empty, Known.of([table], None))
    assert "its treebank has no FEATS" in warning


def test_only_the_beginning_is_looked_at() -> None:
    unknown, later = UnknownWords(), UnknownWords()
    sentence = words(*[("집에", "NOUN", "_", "_")] * (FIRST_WORDS // 2))
    unknown.add([sentence], known())
    assert not unknown.is_enough
    later.add([sentence] * 9, known())
    assert later.num_seen == FIRST_WORDS
    for _ in range(2):
        unknown.merge(later)
        unknown.add([words(("house", "N", "_", "_"))], known())
    assert (unknown.num_seen, unknown.num_unknown) == (3 * FIRST_WORDS // 2, 0)


def test_what_a_vote_and_a_pipeline_know() -> None:
    few, more = (
        random_parser(tiny_config(fields=["form", *tags])) for tags in ([], ["upos", "feats"])
    )
    together = vote.combine([few, more])
    assert together.known.tags.keys() == {UPOS, FEATS}
    tagger = random_tagger()
    tagger.unknown_share = 0.5
    found = Pipeline(random_segmenter(), tagger, together).known
    assert found.tags == together.known.tags
    assert (found.forms, found.usual) == (tagger.known.forms, 0.5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A parser, and a treebank of more than one chunk with unknown tags at its end."""
    folder = tmp_path_factory.mktemp("unknown")
    random_parser(tiny_config()).save(folder / "parser", scores={}, data={})
    usual = make_sentence([("a", "X"), ("b", "Y")] * 10, [0, *[1] * 19])
    strange = make_sentence([("a", "X")] * 9 + [("a", "NN")] * 3, [0, *[1] * 11])
    for name, sentences in (
        ("usual", [usual] * 700 + [strange] * 700),
        ("strange", [strange] * 170 + [usual] * 700),
    ):
        (folder / f"{name}.conllu").write_text(write_conllu(sentences), encoding="utf-8")
    return folder


@pytest.mark.parametrize("jobs", [1, 2])
def test_parse_warns_of_the_beginning(seqtool: Run, folder: Path, jobs: int) -> None:
    command = ("-m", folder / "parser", "--jobs", jobs, "-o", folder / "out.conllu")
    result = seqtool("parse", folder / "strange.conllu", *command)
    assert result.code == 0
    assert result.stderr.count("warning: ") == 1
    assert "25% of the words of the first 2,000 have UPOS that the model does" in result.stderr
    assert "such as NN: tag them as its treebank is tagged\n" in result.stderr
    assert seqtool("parse", folder / "usual.conllu", *command).stderr == ""


def test_tags_that_are_not_read_are_none_to_warn_of(
    seqtool: Run, folder: Path, tmp_path: Path
) -> None:
    random_tagger().save(tmp_path / "tagger", scores={}, data={})
    text = make_sentence([("a", "NN")] * LEAST_WORDS, [0, *[1] * (LEAST_WORDS - 1)])
    (tmp_path / "text.conllu").write_text(text.to_conllu(), encoding="utf-8")
    for retag in ([], ["--retag"]):
        result = seqtool("tag", tmp_path / "text.conllu", "-m", tmp_path / "tagger", *retag)
        assert result.code == 0
        assert "warning" not in result.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("train-parser", "--preset", "linear", "--fields", "form,upos"),
        ("train-tagger", "--preset", "fast"),
    ],
)
def test_training_notes_the_share(seqtool: Run, command: tuple[str, ...], tmp_path: Path) -> None:
    train = [make_sentence([("a", "X"), ("b", "Y")], [2, 0])] * 30
    dev = [make_sentence([("a", "X"), ("q", "Y"), ("b", "Y"), ("9", "X")], [2, 0, 2, 2])] * 5
    for name, sentences in (("train", train), ("dev", dev)):
        write_conllu(sentences, tmp_path / f"{name}.conllu")
    files = tmp_path / "train.conllu", "--dev", tmp_path / "dev.conllu", "-o", tmp_path / "model"
    result = seqtool(*command, *files, "--epochs", "1", "--threads", "1")
    assert result.code == 0, result.stderr
    assert checkpoint.load(tmp_path / "model").known.usual == pytest.approx(1 / 3, abs=1e-4)


LETTERS = {"U": UPOS, "X": XPOS, "F": FEATS}


def types_of(*shares: float) -> Types:
    """Of a treebank that leaves these shares of UPOS, XPOS and FEATS empty."""
    lexical, tags = SymbolTable(COLUMNS, {"form": ("a",)}), SymbolTable(COLUMNS, {})
    return Types(lexical, tags, [0.0, *shares])


def sentence_of(marks: list[str]) -> Sentence:
    """Words such as UF: U, X and F say that UPOS, XPOS and FEATS are there."""
    rows = []
    for number, word in enumerate(marks, 1):
        rows.append([str(number), "a", *["_"] * 8])
        for letter, column in LETTERS.items():
            rows[-1][column] = "v" if letter in word else "_"
    return Sentence([], rows, [])


@pytest.mark.parametrize(
    ("share", "most"), [(0.0, 0), (1.0, math.inf), (0.1, 6), (0.5, 19.93), (0.9, 131.13)]
)
def test_more_words_than_chance_would_bring(share: float, most: float) -> None:
    # 0.1 ** 6 is one in a million
    assert most_without(share) == pytest.approx(most, abs=0.01)
    if 0 < share < 1:
        assert share ** (most_without(share) + 1) < CHANCE


marks = st.text("UXF", min_size=0, max_size=3)


@given(
    chunks=st.lists(st.lists(st.lists(marks, min_size=1, max_size=4), max_size=4), max_size=4),
    from_start=st.booleans(),
    shares=st.tuples(*[st.sampled_from([0.0, 0.01, 0.4, 1.0])] * 3),
)
def test_the_first_sentence_that_misses_something(
    chunks: list[list[list[str]]], from_start: bool, shares: tuple[float, ...]
) -> None:
    types = types_of(*shares)
    check = ColumnCheck(types, from_start=from_start)
    in_a_row = dict.fromkeys("UXF", 0)
    for number, chunk in enumerate(chunks):
        found = check.find(encode(map(sentence_of, chunk), types), types)
        # the same, word by word
        expected = None
        for place, sentence in enumerate(chunk):
            missing = []
            for letter, share in zip("UXF", shares, strict=True):
                has = any(letter in word for word in sentence)
                in_a_row[letter] = 0 if has else in_a_row[letter] + len(sentence)
                is_nowhere = not any(letter in word for one in chunk for word in one)
                most = most_without(share)
                if most and not (number == 0 and from_start and is_nowhere):
                    most = max(most, CLUSTER)
                if in_a_row[letter] > most:
                    missing.append(LETTERS[letter])
            expected = expected or ((place, missing) if missing else None)
        assert (found and found[:2]) == expected
        if expected:
            return


@pytest.mark.parametrize(
    ("num", "has_first", "is_missing"),
    [(10, False, True), (CLUSTER, True, False), (51, True, True)],
)
def test_many_words_in_a_row_of_a_long_text(num: int, has_first: bool, is_missing: bool) -> None:
    """A word of a hundred has no FEATS; in a longer text such marks may stand together."""
    types = types_of(1.0, 1.0, 0.01)
    sentences = [sentence_of(["F", "F"])] * has_first + [sentence_of(["-"])] * num
    assert bool(ColumnCheck(types).find(encode(sentences, types), types)) == is_missing


def test_both_roads_refuse_the_same_sentence(tmp_path: Path) -> None:
    parser, path = random_parser(tiny_config()), tmp_path / "x.conllu"
    sentences = random_sentences(4, 5)
    for row in sentences[-1].rows:
        row[UPOS] = "_"
    write_conllu(sentences, path)
    first = len(path.read_text().rstrip("\n").split("\n")) - len(sentences[-1]) + 1
    for read in (lambda: read_conllu(path, check="columns"), lambda: read_batches([path])):
        with pytest.raises(DataError, match="has UPOS, which this parser reads") as caught:
            list(parser.parse_stream(read()))
        assert (caught.value.path, caught.value.line) == (str(path), first)
        assert len(list(parser.parse_stream(read(), allow_missing=True))) > 0
    with pytest.raises(DataError, match="has UPOS"):
        parser.parse(sentences)
    parser.parse(sentences, allow_missing=True)
    assert sentences[-1].heads()
    # a parser of forms asks for nothing, and a word without a tag among others is no fault
    assert list(random_parser(tiny_config(fields=["form"])).parse_stream(sentences)) == sentences
    sentence = make_sentence([("a", "X"), ("B", "_"), ("cc", "_")])
    assert list(parser.parse_stream([sentence])) == [sentence]


def test_the_shares_are_kept_with_the_model(tmp_path: Path) -> None:
    parser = random_parser(tiny_config(lexical_size=1))
    parser.save(tmp_path / "old", scores={}, data={})
    assert checkpoint.load(tmp_path / "old").known.usual is None
    empty = parser.types.empty_shares = [0.25] * len(parser.types.lexical.columns)
    parser.unknown_share = 0.12341
    parser.save(tmp_path / "p", scores={}, data={})
    loaded = checkpoint.load(tmp_path / "p")
    for model in (loaded, loaded.copy()):
        assert (model.types.empty_shares, model.known.usual) == (empty, 0.1234)
    assert vote.combine([random_parser(tiny_config("swap")), loaded]).known.usual is None
