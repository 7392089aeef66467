"""Parsers that learn from others: what is read in which epoch, what is kept, what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parsing.parser.graph.test_task import graph_settings
from parsing.parser.test_train import SMALL, assert_same_weights, config, trained, weights
from parsing.parser.tiny import make_sentence, random_parser, tiny_config, write_treebank
from parsing.segmenter.tiny_segmenter import random_segmenter
from parsing.tagger.toy import random_tagger

import seqtool
from seqtool.core import checkpoint, storage
from seqtool.core.errors import ConfigError, DataError, Interrupted, ModelError
from seqtool.parsing.encoding.features import TokenArrays
from seqtool.parsing.parser.config import LONGEST_LEARNT
from seqtool.parsing.parser.data import GoldTrees, TrainingData
from seqtool.parsing.parser.distillation import HEAD_SHARES, LEAST_SHARE, TAUGHT, TEACHER_BEAM
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.train import train_parser
from seqtool.parsing.pipeline.model import Pipeline
from seqtool.treebank.conllu import read_conllu, write_conllu
from seqtool.treebank.sentence import FORM, UPOS, find_fault


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A treebank, two parsers over it, and text."""
    folder = tmp_path_factory.mktemp("distillation")
    write_treebank(folder / "train.conllu", 40)
    write_treebank(folder / "dev.conllu", 10, seed=1)
    for name, system in (("a", "arc-standard"), ("b", "arc-eager")):
        trained(folder, folder / name, config(3, model__system=system))
    text = list(read_conllu(write_treebank(folder / "text.conllu", 30, seed=2)))
    for number, sentence in enumerate(text):
        sentence.set_tree([0] * len(sentence), ["_"] * len(sentence))
        sentence.rows[1][FORM] = "zebra" if number % 5 else "yak"
        sentence.comments.append("# text = ...")
    write_conllu(text, folder / "text.conllu")
    return folder


def taught_by(folder: Path, **more: Any) -> dict[str, Any]:
    distil = [folder / "a", folder / "b"]
    return {"distil": distil, "unlabelled": folder / "text.conllu", **more}


def data_of(
    lengths: list[int], num_taught: int, *, taught_words: float = 1.0, seed: int = 0
) -> TrainingData:
    """Sentences of such lengths, of which the last ones are the teachers'."""
    sizes = np.asarray(lengths, np.int32)
    tokens = (1 + np.cumsum(sizes + 1) - (sizes + 1)).astype(np.int32)
    arrays = TokenArrays(np.zeros(1 + int(sizes.sum()) + len(sizes), np.int32), tokens, sizes)
    trees = GoldTrees(arrays, [([0] * n, [""] * n) for n in lengths])
    none: Any = None
    return TrainingData(
        config(learning__taught_words=taught_words, training__seed=seed),
        none,
        Labels(("dep",), ("root",)),
        trees,
        trees,
        none,
        none,
        none,
        num_taught=num_taught,
    )


@settings(max_examples=60)
@given(
    own=st.lists(st.integers(1, 9), min_size=1, max_size=8),
    taught=st.lists(st.integers(1, 9), max_size=20),
    share=st.sampled_from([0.0, 0.5, 1.0, 2.5]),
    seed=st.integers(0, 3),
)
def test_epochs_go_through_what_was_taught(
    own: list[int], taught: list[int], share: float, seed: int
) -> None:
    data = data_of([*own, *taught], len(taught), taught_words=share, seed=seed)
    usable = np.arange(len(own) + len(taught))
    wanted = int(share * sum(own))
    lengths = data.train.arrays.lengths
    total = sum(taught)
    counts = np.zeros(len(usable), int)
    for epoch in range(6):
        found = data.of_epoch(epoch, usable)
        assert np.array_equal(found, data.of_epoch(epoch, usable))
        assert np.array_equal(found, np.unique(found))
        assert np.array_equal(found[: len(own)], usable[: len(own)])  # all of the treebank
        counts[found] += 1
        if total <= wanted:
            assert len(found) == len(usable)
            continue
        # its words come up to what is asked for but for a sentence at each end of the stretch
        num = int(lengths[found[len(own) :]].sum())
        assert num <= wanted + 9
        if (epoch + 1) * wanted <= total:  # the first round: nothing twice
            assert num >= wanted - 9
            assert counts[len(own) :].max(initial=0) <= 1
    if total > wanted:
        # after whole rounds all had their turn as often
        rounds = 6 * wanted // total
        assert counts[len(own) :].min(initial=rounds) >= min(rounds, 1)


def test_the_trees_are_what_the_teachers_find_together(folder: Path, tmp_path: Path) -> None:
    events: list[Any] = []
    result = trained(folder, tmp_path / "p", config(2), **taught_by(folder), on_data=events.append)
    found = list(read_conllu(tmp_path / "p" / TAUGHT))
    expected = list(read_conllu(folder / "text.conllu", check="columns"))
    seqtool.load([folder / "a", folder / "b"]).parse(expected, beam=TEACHER_BEAM)
    assert [item.rows for item in found] == [item.rows for item in expected]
    assert not any(item.comments or item.extras for item in found)
    (data,) = events
    # behind the treebank; words of the text are learnt too
    num = data.summary["sentences"]
    assert (num, data.num_taught) == (40, 30)
    assert [heads for heads, _ in data.train.trees[num:]] == [item.heads() for item in found]
    assert "zebra" in data.types.lexical.groups["form"]
    # a word is known from two on in the treebank, and from eight on in the text: there are six
    assert "yak" not in data.types.lexical.groups["form"]
    assert data.summary["words"] == sum(map(len, read_conllu(folder / "train.conllu")))
    header = checkpoint.read_header(result.path)
    assert header.data["teachers"] == "a, b"
    assert header.data["unlabelled"] == "text.conllu"
    assert header.data["taught_sentences"] == 30
    assert header.data["taught_words"] == sum(map(len, found))
    card = (result.path / checkpoint.CARD).read_text("utf-8")
    assert "| taught sentences | 30 |" in card
    assert "| teachers | a, b |" in card
    record = storage.read_object(result.path / checkpoint.RUN)
    assert record["distil"] == [str(folder / "a"), str(folder / "b")]
    assert record["unlabelled"] == [str(folder / "text.conllu")]


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_a_resumed_run_goes_on_as_it_would_have(
    weight: float, folder: Path, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        shutil.copytree(folder / name, tmp_path / name)
    shutil.copy(folder / "text.conllu", tmp_path)
    options = {**taught_by(tmp_path), "should_stop": lambda step: step == 3}
    settings = config(3, learning__taught_words=0.5, learning__teacher_weight=weight)
    with pytest.raises(Interrupted):
        trained(folder, tmp_path / "parts", settings, **options)
    # the text is not parsed again, but teachers may be asked for probabilities
    (tmp_path / "text.conllu").unlink()
    shutil.move(tmp_path / "a", tmp_path / "moved")
    if weight:
        with pytest.raises(ModelError, match="no such model"):
            train_parser(None, tmp_path / "parts", resume=True, device="cpu")
        shutil.move(tmp_path / "moved", tmp_path / "a")
    train_parser(None, tmp_path / "parts", resume=True, device="cpu")
    trained(folder, tmp_path / "whole", settings, **taught_by(folder))
    assert_same_weights(tmp_path / "whole", tmp_path / "parts")
    alone = trained(folder, tmp_path / "alone", settings)
    assert not np.array_equal(*first_weights(alone.path, tmp_path / "whole"))


def first_weights(*paths: Path) -> list[Any]:
    return [weights(path)["first.weight"] for path in paths]


def test_a_resumed_run_refuses_other_sources(folder: Path, tmp_path: Path) -> None:
    stopped = {**taught_by(folder), "should_stop": lambda step: step == 3}
    with pytest.raises(Interrupted):
        trained(folder, tmp_path / "p", config(3), **stopped)
    for other in ({"distil": [folder / "a"]}, {"unlabelled": folder / "dev.conllu"}):
        with pytest.raises(ConfigError, match=f"--{next(iter(other))} is not what the run began"):
            train_parser(None, tmp_path / "p", resume=True, device="cpu", **other)


def test_plain_text_is_split_by_a_pipeline(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("du bat. Ab cet\nbad.\n\nthe bet!", "utf-8")
    labels = Labels(("nsubj", "obj"), ("root",))
    nlp = Pipeline(random_segmenter(), random_tagger(), random_parser(tiny_config(), labels))
    monkeypatch.setattr(checkpoint, "load", lambda paths: nlp)
    files = [text, folder / "text.conllu"]
    stop = {"should_stop": lambda step: step == 1}
    with pytest.raises(Interrupted):
        trained(folder, tmp_path / "p", config(1), **taught_by(folder, unlabelled=files), **stop)
    found = list(read_conllu(tmp_path / "p" / TAUGHT))
    first = nlp(text, beam=TEACHER_BEAM)
    assert [item.rows[0][FORM] for item in found[: len(first)]] == [
        item.rows[0][FORM] for item in first
    ]
    assert len(found) == len(first) + 30
    assert all(find_fault(item.heads()) is None for item in found)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"unlabelled": (), "distil": "{}/b"}, ConfigError, "arc-standard"),
        ({"distil": ()}, ConfigError, "none"),
        ({"distil": ["{}/a", "{}/none"]}, ModelError, "no such model"),
        ({"unlabelled": "{}/none.conllu"}, DataError, "none.conllu"),
        ({"unlabelled": "{}/bare.conllu"}, DataError, "UPOS"),
        ({"unlabelled": "{}/text.txt"}, ConfigError, "plain text"),
        ({"distil": "{}/other"}, DataError, "labels"),
        ({"distil": ["{}/a", "{}/other"]}, ModelError, "labels"),
        ({"distil": "{}/tagger"}, ModelError, "parser"),
    ],
)
def test_what_cannot_be_is_refused(
    options: dict[str, Any], error: type[Exception], message: str, folder: Path, tmp_path: Path
) -> None:
    bare = make_sentence([("the", "_"), ("dog", "_")])
    (folder / "bare.conllu").write_text(bare.to_conllu(), "utf-8")
    (folder / "text.txt").write_text("the dog", "utf-8")
    other = random_parser(tiny_config(), Labels(("amod", "aux"), ("root",)))
    other.save(folder / "other", scores={}, data={})
    random_tagger().save(folder / "tagger", scores={}, data={})

    def placed(value: Any) -> Any:
        return value.format(folder) if isinstance(value, str) else list(map(placed, value))

    given_options = {name: placed(value) for name, value in options.items()}
    with pytest.raises(error, match=message):
        trained(folder, tmp_path / "p", config(1), **taught_by(folder, **given_options))
    assert not (tmp_path / "p").exists()
    with pytest.raises(ConfigError, match="would replace"):  # a teacher
        trained(folder, folder / "a", config(1), **taught_by(folder), force=True)


def test_teachers_tell_probabilities_where_there_is_no_text(folder: Path, tmp_path: Path) -> None:
    """Of the treebank; also those of a pipeline, and members of a vote."""
    events: list[Any] = []
    alone = trained(folder, tmp_path / "alone", config(2))
    options = taught_by(folder, unlabelled=())
    told = trained(folder, tmp_path / "told", config(2), **options, on_data=events.append)
    assert (len(events[0].teachers), events[0].num_taught) == (1, 0)
    assert events[0].summary["teachers"] == "a, b"
    assert "unlabelled" not in events[0].summary
    assert not (told.path / TAUGHT).exists()
    assert not np.array_equal(*first_weights(alone.path, told.path))
    # with no weight, nothing is learnt from them, so there has to be text
    with pytest.raises(ConfigError, match="tells the probabilities"):
        trained(folder, tmp_path / "p", config(1, learning__teacher_weight=0), **options)
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize("has_text", [False, True])
@pytest.mark.parametrize("is_held_out", [False, True])
def test_teachers_tell_a_graph_how_probable_heads_are(
    is_held_out: bool, has_text: bool, folder: Path, tmp_path: Path
) -> None:
    """Of the sentences that are learnt, one after another; a long one is left out."""
    long = make_sentence([("the", "D")] * (LONGEST_LEARNT + 1), [0] + [1] * LONGEST_LEARNT)
    treebank = [*read_conllu(folder / "train.conllu"), long]
    write_conllu([*treebank[:5], long, *treebank[5:]], tmp_path / "train.conllu")
    events: list[Any] = []
    options = taught_by(folder, **({} if has_text else {"unlabelled": ()}))
    train_parser(
        tmp_path / "train.conllu",
        tmp_path / "p",
        graph_settings(1, learning__taught_words=2.0),
        dev=None if is_held_out else folder / "dev.conllu",
        device="cpu",
        on_data=events.append,
        **options,
    )
    (data,) = events
    assert data.num_taught == (30 if has_text else 0)
    together = seqtool.load([folder / "a", folder / "b"])
    sentences = list(read_conllu(tmp_path / "train.conllu"))
    if is_held_out:
        sentences = [item for number, item in enumerate(sentences, 1) if number % 10]
    if has_text:
        sentences += read_conllu(tmp_path / "p" / TAUGHT)
    arrays = data.train.arrays
    assert arrays.lengths.tolist() == list(map(len, sentences))
    for place, sentence in enumerate(sentences):
        rows = arrays.tokens[place] + np.arange(1 + len(sentence))
        which, heads, shares = data.head_shares.of(rows)
        table = np.zeros((1 + len(sentence), 1 + len(sentence)), np.float32)
        table[which, heads] = shares
        assert not table[0].any()
        if len(sentence) > LONGEST_LEARNT:
            assert not table.any()
            continue
        (expected,) = together.head_probabilities([sentence], beam=TEACHER_BEAM)
        # of both teachers, half and half by their weights
        one, other = (
            next(iter(parser.head_probabilities([sentence], beam=TEACHER_BEAM)))
            for parser in together.parsers
        )
        weight = together.weights[0] / sum(together.weights)
        np.testing.assert_allclose(expected, weight * one + (1 - weight) * other, atol=1e-6)
        expected = np.where(expected < LEAST_SHARE, 0.0, expected)
        expected /= expected.sum(1, keepdims=True)
        np.testing.assert_allclose(table[1:], expected, atol=1e-3)


def test_a_graph_that_was_taught_heads_is_resumed_without_teachers(
    folder: Path, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        shutil.copytree(folder / name, tmp_path / name)
    options = {"distil": [tmp_path / "a", tmp_path / "b"]}
    settings = graph_settings(2)
    with pytest.raises(Interrupted):
        trained(folder, tmp_path / "p", settings, **options, should_stop=lambda step: step == 2)
    trained(folder, tmp_path / "whole", settings, **options)
    shutil.rmtree(tmp_path / "a")
    shutil.copytree(tmp_path / "p", tmp_path / "damaged")
    for damage in (lambda path: path.write_bytes(b"{"), Path.unlink):
        damage(tmp_path / "damaged" / HEAD_SHARES)
        with pytest.raises(ModelError, match="of heads"):
            train_parser(None, tmp_path / "damaged", resume=True, device="cpu")
    train_parser(None, tmp_path / "p", resume=True, device="cpu")
    assert_same_weights(tmp_path / "whole", tmp_path / "p")


@pytest.mark.parametrize("is_held_out", [False, True])
@pytest.mark.parametrize("is_graph", [False, True])
def test_teachers_parse_variants_of_what_is_learnt(
    is_graph: bool, is_held_out: bool, folder: Path, tmp_path: Path
) -> None:
    """Not of sentences that are held out. Text must have its columns in spite of them."""
    treebank = list(read_conllu(folder / "train.conllu"))
    for number, sentence in enumerate(treebank, 1):
        for row in sentence.rows:
            row[UPOS] = {"N": "NOUN", "V": "VERB"}.get(row[UPOS], row[UPOS])
        if number % 10 == 0:
            sentence.rows[1][FORM] = "zebra"
    write_conllu(treebank, tmp_path / "train.conllu")
    settings = graph_settings(1) if is_graph else config(1)
    events: list[Any] = []
    options: dict[str, Any] = {"device": "cpu", "on_data": events.append}
    options |= {"dev": None if is_held_out else folder / "dev.conllu"}
    source = tmp_path / "train.conllu"
    train_parser(source, tmp_path / "a", config(1), **options)
    result = train_parser(source, tmp_path / "p", settings, distil=tmp_path / "a", **options)
    found = list(read_conllu(tmp_path / "p" / TAUGHT))
    num = 36 if is_held_out else 40
    assert (len(found), events[-1].num_taught) == (2 * num, 2 * num)
    assert checkpoint.read_header(result.path).data["variants"] == 2 * num
    forms = {row[FORM] for sentence in found for row in sentence.rows}
    assert ("zebra" in forms) is not is_held_out
    text = treebank[:5]
    for sentence in text:
        for row in sentence.rows:
            row[2] = "_"
    write_conllu(text, tmp_path / "text.conllu")
    fields = {"fields": ["form", "upos"], **SMALL}
    train_parser(source, tmp_path / "b", {"model": fields, "training": {"epochs": 1}}, **options)
    options |= {"distil": tmp_path / "b", "unlabelled": tmp_path / "text.conllu"}
    with pytest.raises(DataError, match="lacks LEMMA"):
        train_parser(source, tmp_path / "c", settings, **options)
