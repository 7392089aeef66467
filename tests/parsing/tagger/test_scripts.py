"""Edit scripts: what they make of forms, by hand, by all treebanks at hand, and of any text."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtool.parsing.tagger.lemmas import CopyScript, EditScript, Lemmas, copy_script, edit_script
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


def test_copying_keeps_casing_and_is_of_words_that_are_not_long() -> None:
    for form, lemma, script in (
        ("McCains", "McCain", CopyScript("keep", "*-")),
        ("OBAMA", "Obama", CopyScript("title", "*")),
        ("usa", "USA", CopyScript("upper", "*")),
        ("went", "go", EditScript("absolute", 0, "go", 0, "")),
        ("a" * 65 + "s", "a" * 65, EditScript("lower", 0, "", 1, "")),
    ):
        assert copy_script(form, lemma) == script


@given(TEXTS, TEXTS)
def test_the_script_of_any_two_texts_makes_the_one_of_the_other(form: str, lemma: str) -> None:
    script = edit_script(form, lemma)
    assert script.apply(form) == lemma
    assert EditScript.of(astuple(script)) == script


@given(SCRIPTS, TEXTS)
def test_a_script_makes_something_of_any_form_or_refuses_it(script: EditScript, form: str) -> None:
    assert script.apply(form) != ""


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        *((EditScript, c) for c in (["odd", 0, "", 0, ""], ["keep", -1, "", 0, ""], ["keep"])),
        *((CopyScript, ["lower", c]) for c in ("(", ")", "((=))", "x", "+", "=+", "**", "(*)", 3)),
        (CopyScript, ["absolute", "*"]),
    ],
)
def test_what_is_no_script(kind: Any, content: list[str | int]) -> None:
    with pytest.raises(ValueError, match=r"no edit script|no edits|not enough values"):
        kind.of(content)


@pytest.mark.parametrize(
    ("form", "lemma", "edits"),
    [
        # nouns and their particles, which stay as they are: + stands before one or two syllables
        ("고향은", "고향+은", "*++="),
        ("집에서", "집+에서", "=++*"),
        ("고향에서", "고향+에서", "*++=="),
        # of the syllable 한, letters ㅎ ㅏ ㄴ, two stay, and the last is one of the ending
        ("한다", "하+ㄴ다", "(==-+++ㄴ)*"),
        ("생각한다", "생각+하+ㄴ다", "*(++==-+++ㄴ)="),
        # 했 is 하 and 었: ㅎ stays, ㅐ goes, ㅏ+ㅇㅓ comes, ㅆ stays
        ("했다", "하+었+다", "(=-+ᅡ+++ᄋ+ᅥ=++)*"),
        # 져 is 지 and 어
        ("가져야", "가지+어야", "*(=-+ᅵ+++ᄋ+ᅥ)="),
        # nothing but letters stays
        ("쏴", "쏘+아", "(=-+ᅩ+++ᄋ+ᅡ)"),
        ("있는", "있", "*-"),
        ("dogs", "dog", "*-"),
    ],
)
def test_copying_by_hand(form: str, lemma: str, edits: str) -> None:
    assert copy_script(form, lemma) == CopyScript("lower", edits)
    assert CopyScript("lower", edits).apply(form) == lemma


def test_a_script_serves_other_stems() -> None:
    script = edit_script("walking", "walk")
    assert script.apply("JUMPING") == "jump"
    # nothing but the ending, or less
    assert script.apply("ing") is None
    assert script.apply("in") is None
    assert copy_script("고향은", "고향+은").apply("사람을") == "사람+을"
    contracted = copy_script("생각한다", "생각+하+ㄴ다")
    assert contracted.apply("시작한다") == "시작+하+ㄴ다"
    # 간 has three letters, too, and so it fits; 가 has two, and does not
    assert contracted.apply("나간다") == "나+가+ㄴ다"
    assert contracted.apply("나가다") is None
    # something must stay where there is a stem
    assert contracted.apply("한다") is None


KOREAN = st.text(st.sampled_from("가간갔고해했하한한다의은을었+ㄴㄹ()*=-"), min_size=1, max_size=8)


@given(TEXTS | KOREAN, TEXTS | KOREAN)
def test_the_copying_script_of_any_two_texts_makes_the_one_of_the_other(
    form: str, lemma: str
) -> None:
    script = copy_script(form, lemma)
    assert script.apply(form) == lemma
    assert Lemmas.of([astuple(script)], []).scripts == (script,)


@given(KOREAN, KOREAN, TEXTS | KOREAN)
def test_a_copying_script_makes_something_of_any_form_or_refuses_it(
    form: str, lemma: str, other: str
) -> None:
    assert copy_script(form, lemma).apply(other) != ""


def test_the_treebank_decides_for_a_kind_of_script() -> None:
    particles = ["은", "을", "에", "의", "이"]
    joined = {
        (f"{stem}{p}", "NOUN", f"{stem}+{p}"): 1 for stem in ("고향", "사람") for p in particles
    }
    lemmas = Lemmas.build(joined, 1)
    assert lemmas.scripts == (CopyScript("lower", "*++="),)
    assert lemmas.script_of is copy_script
    # plain scripts: one for each particle; the lemma of a form that was not met
    assert lemmas.choose("바다도", (), np.zeros(1, np.float32)) == "바다+도"
    again = Lemmas.of([astuple(script) for script in lemmas.scripts], [("NOUN", "집은", "집+은")])
    assert again.script_of is copy_script
    inflected = {(f"{stem}s", "NOUN", stem): 1 for stem in ("dog", "cat", "bird")}
    assert Lemmas.build(inflected, 1).scripts == (EditScript("lower", 0, "", 1, ""),)


@pytest.mark.parametrize(("language", "fewer_by"), [("en", 3), ("ko", 4)])
def test_all_lemmas_of_the_sample(language: str, fewer_by: int) -> None:
    """All come back, and the scripts are so many times fewer than the pairs."""
    sentences = read_conllu(sample_treebank(language, "train"), check="columns")
    pairs = {(row[FORM], row[LEMMA]) for item in sentences for row in item.rows}
    scripts = {pair: edit_script(*pair) for pair in pairs}
    assert [pair for pair in pairs if scripts[pair].apply(pair[0]) != pair[1]] == []
    assert len(set(scripts.values())) * fewer_by < len(pairs)
