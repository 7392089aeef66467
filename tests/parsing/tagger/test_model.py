"""The tagger at work: torch's numbers, agreement, what is kept, its directory."""

from __future__ import annotations

import itertools
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from parsing.sparse.plain import sparse_scores
from parsing.tagger.toy import bare, random_tagger, random_treebank, sentence_of, tiny_config

from seqtool.core import checkpoint
from seqtool.core.errors import ModelError
from seqtool.parsing.model import VOCABULARY
from seqtool.parsing.tagger import model as model_module
from seqtool.parsing.tagger import morphology
from seqtool.parsing.tagger.lemmas import Lemmas, edit_script
from seqtool.parsing.tagger.model import Tagger
from seqtool.parsing.tagger.morphology import (
    Bundles,
    best_bundles,
)
from seqtool.parsing.tagger.network import TaggerNetwork
from seqtool.text.characters import padded
from seqtool.treebank.sentence import FEATS, LEMMA, UPOS, XPOS, Sentence

FORMS = st.text(st.characters(exclude_categories=["Cs", "Zs", "Cc"]), min_size=1, max_size=40)
TEXTS = st.lists(
    st.lists(st.sampled_from(["the", "dogs", "Ann", "walks", "unseen", "Łódź", "🙂"]) | FORMS,
             min_size=1, max_size=6),
    min_size=1, max_size=5,
)  # fmt: skip


@cache
def network_of(tagger: Tagger) -> TaggerNetwork:
    network = TaggerNetwork(
        tagger.config.model,
        tagger.forms.symbols.num_symbols,
        tagger.forms.characters.num_symbols,
        torch.zeros(tagger.bundles.num_values, 0),  # the weights have those of parts in them
        len(tagger.bundles),
        len(tagger.lemmas.scripts),
    )
    weights = {
        name: torch.from_numpy(array)
        for name, array in tagger.weights.items()
        if not name.startswith("sparse.")
    }
    network.load_state_dict(weights)
    return network.double()


def scores_by_torch(tagger: Tagger, forms: list[str], bundles: list[int]) -> tuple[Any, Any]:
    """The scores of values and of scripts of one sentence, each word's vector made anew."""
    network = network_of(tagger)
    lexical = [tagger.forms.symbols.row((form,)) for form in forms]
    spelling = padded(*tagger.forms.characters.rows(forms))
    with torch.no_grad():
        vectors = network.vectors(torch.tensor(lexical), torch.from_numpy(spelling).long())
        states, _ = network.states(vectors, torch.tensor([len(forms)]), lambda x: x, lambda x: x)
        scripts = network.lemma_scores(states, torch.tensor(bundles), lambda x: x)
        scores = network.values(states).numpy()
    return scores + sparse_scores(tagger.config.model, tagger.weights, forms), scripts.numpy()


@pytest.fixture(scope="module")
def tagger() -> Tagger:
    return random_tagger()


ONE_LAYER = random_tagger(tiny_config(model__encoder_layers=1, model__filter_width=5))


@pytest.mark.parametrize("tagger", [random_tagger(), ONE_LAYER])
@settings(max_examples=15)
@given(texts=TEXTS)
def test_scores_are_those_of_torch(tagger: Tagger, texts: list[list[str]]) -> None:
    scores = tagger.read([bare(text) for text in texts]).scores
    expected = [scores_by_torch(tagger, text, [0] * len(text))[0] for text in texts]
    np.testing.assert_allclose(scores, np.concatenate(expected), rtol=0, atol=2e-4)


def test_joined_taggers_go_by_the_mean_of_their_scores(tagger: Tagger) -> None:
    """Scores are linear in the last layers: where only these differ, their means give the mean."""
    generator = np.random.default_rng(5)
    outputs = [
        {
            name: generator.normal(0.0, 9.0, tagger.weights[name].shape).astype(np.float32)
            for name in ("values.weight", "scripts.weight")
        }
        for _ in range(3)
    ]
    sentences = [bare(["the", "dogs", "jumped", f"unseen{number}"]) for number in range(20)]

    def with_outputs(arrays: dict[str, Any]) -> Tagger:
        return Tagger(
            tagger.config, tagger.forms.symbols, tagger.forms.characters, tagger.bundles,
            tagger.lemmas, {**tagger.weights, **arrays},
        )  # fmt: skip

    def columns(by: Tagger) -> list[list[str]]:
        found = list(by.tag_stream([sentence.copy() for sentence in sentences], retag=True))
        return [[row[column] for item in found for row in item.rows] for column in (UPOS, LEMMA)]

    members = [with_outputs(arrays) for arrays in outputs]
    means = {name: np.mean([arrays[name] for arrays in outputs], axis=0) for name in outputs[0]}
    together = columns(members[0].ensemble(members[1:]))
    assert together == columns(with_outputs(means))
    apart = [columns(member) for member in members]
    assert together not in apart
    for number in (0, 1):
        assert any(together[number] != of_one[number] for of_one in apart)


@settings(max_examples=20)
@given(text=st.lists(FORMS, min_size=1, max_size=6))
def test_lemmas_are_those_of_torch(tagger: Tagger, text: list[str]) -> None:
    """Of forms that were not met: by the best script that the form is long enough for."""
    sentence = bare(text)
    tagger.tag([sentence])
    bundles = [tagger.bundles.ids[row[UPOS], row[XPOS], row[FEATS]] for row in sentence.rows]
    scores = scores_by_torch(tagger, text, bundles)[1]
    for row, form, of_word in zip(sentence.rows, text, scores, strict=True):
        met = tagger.lemmas.met(form, row[UPOS])
        ranked = np.argsort(-of_word)
        made = [tagger.lemmas.scripts[i].apply(form) for i in ranked]
        able = [(of_word[i], lemma) for i, lemma in zip(ranked, made, strict=True) if lemma]
        # scores so near each other may be rounded to another order
        near = [lemma for score, lemma in able if score > able[0][0] - 1e-3]
        assert row[LEMMA] in (met or near)


def test_the_best_bundle_is_that_of_all_combinations() -> None:
    """By brute force, and of as few kept values as can be others are chosen."""
    generator = np.random.default_rng(0)
    names = [(u, x, f) for u, x, f in itertools.product("abc", "de", "fgh") if (u, f) != ("a", "g")]
    bundles = Bundles(names[::-1])
    scores = generator.normal(size=(200, bundles.num_values)).astype(np.float32)
    kept = np.where(
        generator.random((200, 3)) < 0.4, generator.integers(0, (3, 2, 3), (200, 3)), -1
    ).astype(np.int32)
    best = np.empty(200, np.int32)
    best_bundles(scores, bundles.table, bundles.starts, kept, best)
    for word in range(200):
        ranking = {}
        for name in bundles.names:
            values = [bundles.values[column][name[column]] for column in range(3)]
            differing = sum(k not in (-1, v) for k, v in zip(kept[word], values, strict=True))
            total = sum(
                float(scores[word, bundles.starts[column] + values[column]]) for column in range(3)
            )
            ranking[name] = (-differing, total)
        assert bundles.names[best[word]] == max(ranking, key=lambda name: ranking[name])


def test_what_is_there_is_kept_and_agreed_with(tagger: Tagger) -> None:
    for sentence in random_treebank(20):  # nothing is missing
        before = sentence.to_conllu()
        tagger.tag([sentence])
        assert sentence.to_conllu() == before
    for bundle in tagger.bundles.names:
        sentence = bare(["the", "dogs", "sleep"])
        sentence.rows[1][UPOS] = bundle[0]
        tagger.tag([sentence])
        row = sentence.rows[1]
        assert row[UPOS] == bundle[0]
        assert (row[UPOS], row[XPOS], row[FEATS]) in tagger.bundles.ids


def test_columns_of_which_a_sentence_has_some(tagger: Tagger) -> None:
    """FEATS that one word has are there for all: the others have none."""
    words = [("the", "_", "DET", "_", "_"), ("dogs", "DOG", "_", "_", "Number=Odd")]
    sentence = sentence_of(words)
    tagger.tag([sentence])
    assert sentence.column(FEATS) == ["_", "Number=Odd"]
    assert sentence.rows[0][UPOS] == "DET"
    assert sentence.rows[1][LEMMA] == "DOG"
    assert "_" not in sentence.column(UPOS) + sentence.column(XPOS) + sentence.column(LEMMA)
    expected = bare(["the", "dogs"])
    tagger.tag([expected])
    tagger.tag([sentence], retag=True)
    assert sentence.to_conllu() == expected.to_conllu()


def tagged(tagger: Tagger, sentences: list[Sentence]) -> list[str]:
    return [item.to_conllu() for item in tagger.tag_stream(sentences, retag=True)]


def test_company_and_chunks_change_nothing(tagger: Tagger, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = tagged(tagger, random_treebank(40))
    assert [tagged(tagger, [item])[0] for item in random_treebank(40)] == expected
    monkeypatch.setattr(model_module, "TAGGED_WORDS", 7)
    monkeypatch.setattr(morphology, "MAX_FORMS", 5)
    assert tagged(tagger, random_treebank(40)) == expected


def test_lemmas_by_hand() -> None:
    counts = {
        ("saw", "VERB", "see"): 5,
        ("saw", "VERB", "saw"): 2,
        ("saw", "NOUN", "saw"): 1,
        ("dogs", "NOUN", "dog"): 3,
        ("went", "VERB", "go"): 1,
    }
    lemmas = Lemmas.build(counts, 2)
    pairs = (("saw", "see"), ("dogs", "dog"), ("saw", "saw"))
    see, strip, same = (lemmas.ids[edit_script(*pair)] for pair in pairs)
    assert sorted([see, strip, same]) == [0, 1, 2]
    assert len(lemmas.scripts) == 3
    assert list(lemmas.met("saw", "VERB")) == ["see", "saw"]
    assert list(lemmas.met("Dogs", "NOUN")) == ["dog"]
    assert list(lemmas.met("dogs", "VERB")) == []
    scores = np.zeros(len(lemmas.scripts), np.float32)
    scores[strip] = 2.0
    # of those that were met, though another script is better
    scores[same] = 1.0
    assert lemmas.choose("saw", ["see", "saw"], scores) == "saw"
    assert lemmas.choose("cats", [], scores) == "cat"
    # too short for the best one
    assert lemmas.choose("s", [], scores) == "s"
    # a lemma of a script that is not learnt
    assert lemmas.choose("went", ["go", "wend"], scores) == "go"


def test_the_directory_gives_the_same_tagger_back(tagger: Tagger, tmp_path: Path) -> None:
    tagger.save(tmp_path / "t", scores={"dev_upos": 1.0}, data={"words": 3})
    expected = tagged(tagger, random_treebank(30))
    assert tagged(checkpoint.load(tmp_path / "t"), random_treebank(30)) == expected
    assert "| dev upos | 1.00 |" in (tmp_path / "t" / "README.md").read_text()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bundles", [["A", "B"]]),
        ("bundles", []),
        ("edit_scripts", []),
        ("edit_scripts", [["keep", -1, "", 0, ""]]),
        ("lemmas", [["X"]]),
        ("characters", ["a", "b", "c"]),
    ],
)
def test_a_damaged_vocabulary(key: str, value: Any, tagger: Tagger, tmp_path: Path) -> None:
    """One that fits its sum in the header, but not the weights."""
    tagger.save(tmp_path / "t", scores={}, data={})
    path = tmp_path / "t" / VOCABULARY
    content = json.loads(path.read_text())
    content["tables"][key] = value
    path.write_text(json.dumps(content))
    header = checkpoint.read_header(tmp_path / "t")
    header.files.clear()
    with pytest.raises(ModelError, match="does not fit"):
        Tagger.load(tmp_path / "t", header)
