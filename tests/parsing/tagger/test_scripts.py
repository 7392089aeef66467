"""Edit scripts: what they make of forms, by hand, by all treebanks at hand, and of any text."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtool.parsing.tagger.morphology import EditScript, edit_script
from seqtool.text.datasets import sample_treebank
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.sentence import FORM, LEMMA

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
SCRIPTS = st.builds(
    EditScript,
    st.sampled_from(["lower", "keep", "title", "upper"]),
    st.integers(0, 4),
    TEXTS | st.just(""),
    st.integers(0, 4),
    TEXTS | st.just(""),
) | st.builds(lambda lemma: EditScript("absolute", 0, lemma, 0, ""), TEXTS)


@pytest.mark.parametrize(
    ("form", "lemma", "script"),
    [
        ("dogs", "dog", EditScript("lower", 0, "", 1, "")),
        ("Dogs", "dog", EditScript("lower", 0, "", 1, "")),
        ("Feet", "foot", EditScript("lower", 0, "", 3, "oot")),
        ("gemacht", "machen", EditScript("lower", 2, "", 1, "en")),
        ("McCains", "McCain", EditScript("keep", 0, "", 1, "")),
        ("OBAMA", "Obama", EditScript("title", 0, "", 0, "")),
        ("usa", "USA", EditScript("upper", 0, "", 0, "")),
        ("went", "go", EditScript("absolute", 0, "go", 0, "")),
        ("먹었다", "먹+었+다", EditScript("lower", 0, "", 2, "+었+다")),
    ],
)
def test_by_hand(form: str, lemma: str, script: EditScript) -> None:
    assert edit_script(form, lemma) == script
    assert script.apply(form) == lemma


def test_one_script_for_all_that_is_inflected_alike() -> None:
    script = edit_script("walking", "walk")
    assert script.apply("JUMPING") == "jump"
    # nothing but the ending, or less
    assert script.apply("ing") is None
    assert script.apply("in") is None


@given(TEXTS, TEXTS)
def test_the_script_of_any_two_texts_makes_the_one_of_the_other(form: str, lemma: str) -> None:
    script = edit_script(form, lemma)
    assert script.apply(form) == lemma
    assert EditScript.of(astuple(script)) == script


@given(SCRIPTS, TEXTS)
def test_a_script_makes_something_of_any_form_or_refuses_it(script: EditScript, form: str) -> None:
    assert script.apply(form) != ""


@pytest.mark.parametrize("content", [["odd", 0, "", 0, ""], ["keep", -1, "", 0, ""], ["keep"]])
def test_what_is_no_script(content: list[str | int]) -> None:
    with pytest.raises(ValueError, match=r"no edit script|not enough values"):
        EditScript.of(content)


def pairs_of(path: Path) -> set[tuple[str, str]]:
    return {
        (row[FORM], row[LEMMA]) for item in read_conllu(path, check="columns") for row in item.rows
    }


def check_pairs(path: Path, fewer_by: int) -> None:
    """All lemmas come back, and the scripts are so many times fewer than the pairs."""
    pairs = pairs_of(path)
    scripts = {pair: edit_script(*pair) for pair in pairs}
    assert [pair for pair in pairs if scripts[pair].apply(pair[0]) != pair[1]] == []
    assert len(set(scripts.values())) * fewer_by < len(pairs)


@pytest.mark.parametrize(("language", "fewer_by"), [("en", 3), ("ko", 4)])
def test_all_lemmas_of_the_sample(language: str, fewer_by: int) -> None:
    check_pairs(sample_treebank(language, "train"), fewer_by)


@pytest.mark.parametrize(
    ("name", "fewer_by"),
    [("ewt/en_ewt-ud-dev.conllu", 10), ("fr_sequoia/fr_sequoia-ud-train.conllu", 30)],
)
def test_all_lemmas_of_a_treebank(name: str, fewer_by: int, shared_data: Path) -> None:
    check_pairs(shared_data / name, fewer_by)
