from __future__ import annotations

import base64
import hashlib
import json
import re
import unicodedata
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from toy_trees import GOLD, TREES, Tags, render, sentence, trees

from seqtool.core.errors import DataError
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.drawing.marked import printable
from seqtool.treebank.drawing.rendering import FORMATS, Format, grouped
from seqtool.treebank.projectivity import is_projective
from seqtool.treebank.sentence import Sentence

SVG = "{http://www.w3.org/2000/svg}"


def drawn(form: Format, *sentences: Sentence, gold: list[Sentence] | None = None) -> str:
    return "".join(render(sentences, form, gold=gold))


# in the terminal


def read_drawing(lines: list[str]) -> list[int]:
    """Find the head of each word by following the lines of a drawing."""
    heads = []
    for row, line in enumerate(lines):
        column = line.index("●") - 1
        # to the left, under what passes over
        while column >= 0 and line[column] in "─│":
            column -= 1
        if column < 0 or line[column] == " ":
            heads.append(0)
            continue
        steps = {"┌": [1], "└": [-1], "├": [-1, 1]}[line[column]]
        found = []
        for step in steps:
            at = row + step
            while 0 <= at < len(lines) and lines[at][column] in "│├":
                at += step
            if 0 <= at < len(lines) and lines[at][column] == "●":
                found.append(at + 1)
        assert len(found) == 1
        heads.append(found[0])
    return heads


@given(trees())
@example([2, 0, 2])
@example([3, 4, 0, 3])
def test_a_drawing_shows_its_tree(heads: list[int]) -> None:
    lines = drawn("tree", sentence(heads)).splitlines()
    assert lines[0].startswith("# ")
    assert lines[-1] == ""
    assert read_drawing(lines[1:-1]) == heads


def cells(text: str) -> int:
    """Cells of a terminal, for characters whose width nobody disputes."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


WORDS = st.lists(
    st.sampled_from(["a", "é", "e\u0301", "한", "中", "。"]), min_size=1, max_size=5
).map("".join)


@given(st.lists(WORDS, min_size=2, max_size=6))
def test_columns_line_up_however_wide_characters_are(forms: list[str]) -> None:
    heads = [0, *range(1, len(forms))]
    relations = [f"relation{i}" for i in range(len(forms))]
    lines = drawn("tree", sentence(heads, forms, relations)).splitlines()[1:-1]
    assert len({cells(line.partition("  X  ")[0]) for line in lines}) == 1
    assert len({cells(line.partition(" relation")[0]) for line in lines}) == 1
    for form, line in zip(forms, lines, strict=True):
        assert f" {form} " in line


def test_words_from_right_to_left_do_not_turn_the_line() -> None:
    text = drawn("tree", sentence([0, 1, 1], ["كلب", "dog", "1"]))
    isolated = "\N{FIRST STRONG ISOLATE}كلب\N{POP DIRECTIONAL ISOLATE}"
    assert f" {isolated}  X" in text
    assert all(line.startswith("\N{LEFT-TO-RIGHT MARK}") for line in text.splitlines() if line)
    assert "\N{LEFT-TO-RIGHT MARK}" not in drawn("tree", sentence([0], ["dog"]))


# as pictures


def elements(svg: str, kind: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(svg)
    return [e for e in root.iter() if e.get("class") == kind]


def arcs(svg: str) -> list[tuple[float, float, float]]:
    """(left end, right end, top) of each arc that is not the root's."""
    found = []
    for element in elements(svg, "arc"):
        path = element.get("d", "")
        if "Q" in path:
            start = float(path[1:].split(" ")[0])
            top = float(path.split("Q")[1].split(" ")[1])
            end = float(path.split("Q")[2].split(" ")[2].split("V")[0])
            found.append((min(start, end), max(start, end), top))
    return found


@example([2, 7, 4, 2, 6, 4, 0, 7])  # the dog that barked at us came ;
@given(trees())
def test_arcs_of_a_picture(heads: list[int]) -> None:
    svg = drawn("svg", sentence(heads))
    found = arcs(svg)
    assert len(found) == len(heads) - 1
    assert len(elements(svg, "arrow")) == len(heads)
    ends = [end for left, right, _ in found for end in (left, right)]
    assert len(set(ends)) == len(ends)  # no two arcs meet at one point
    for (left, right, top), (other_left, other_right, other_top) in combinations(found, 2):
        if left < other_left and other_right < right:
            assert top < other_top  # what goes over another one is above it
        if max(left, other_left) < min(right, other_right):
            assert top != other_top  # horizontal lines never run into each other
        if is_projective(heads):
            assert not left < other_left < right < other_right
            assert not other_left < left < other_right < right
    root = ElementTree.fromstring(svg)
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    for element in root.iter(f"{SVG}text"):
        assert 0 < float(element.get("x", "")) < width
        assert 0 < float(element.get("y", "")) < height
    assert all(0 < left < right < width and 0 < top < height for left, right, top in found)


@example([0, *[1] * 9], ["a"] * 10, "relation:long")
@example([2, 3, 0, 3, 4], ["a"] * 10, "relation:long")
@given(trees(), st.lists(WORDS, min_size=10, max_size=10), st.sampled_from(["r", "relation:long"]))
def test_words_relations_and_lines_do_not_overlap(
    heads: list[int], forms: list[str], relation: str
) -> None:
    num_words = len(heads)
    svg = drawn("svg", sentence(heads, forms[:num_words], [relation] * num_words))
    middles = [float(e.get("x", "")) for e in elements(svg, "form")]
    # of a character: 8 pixels of a word's 16 a cell, 6 of a relation's 11
    widths = [8 * cells(form) for form in forms]
    for (first, a), (second, b) in pairwise(zip(middles, widths, strict=False)):
        assert first + a / 2 < second - b / 2
    # a ground covers what arcs that cross have below a relation
    assert len(elements(svg, "paper")) == 1 + num_words
    half = 3 * len(relation)
    for label in elements(svg, "relation") if is_projective(heads) else ():
        x, y = float(label.get("x", "")), float(label.get("y", ""))
        for left, right, top in arcs(svg):
            assert right - left > 2 * half
            assert not (y - 8 <= top <= y and left < x + half and x - half < right)
            assert not (top < y - 8 and any(abs(end - x) < half for end in (left, right)))


def test_any_word_is_shown_as_it_is() -> None:
    forms = ["<script>alert(1)</script>", "&amp;", '"', "it's", "a\x1b[31m\x00"]
    shown = [*forms[:4], "a\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}"]
    broken = sentence([0, 1, 1, 1, 1], forms)
    svg = drawn("svg", broken)
    assert [element.text for element in elements(svg, "form")] == shown
    html = drawn("html", broken)
    assert html.count("<script") == 1
    assert html.count("&lt;script&gt;alert(1)") == 4  # text, picture, table, CoNLL-U
    assert "\x1b" not in drawn("tree", broken)
    assert [word["form"] for word in json.loads(drawn("json", broken))["words"]] == forms


@given(st.text(st.characters(codec="utf-8"), max_size=5))
def test_what_is_printable_can_stand_in_xml(text: str) -> None:
    shown = printable(text)
    assert len(shown) == len(text)
    escaped = shown.replace("&", "&amp;").replace("<", "&lt;")
    assert ElementTree.fromstring(f"<a>{escaped}</a>").text == (shown or None)
    assert not any(unicodedata.category(c) == "Cc" for c in shown)


def test_wrong_arcs_are_marked_in_a_picture() -> None:
    svg = "".join(render(read_conllu(TREES), "svg", gold=read_conllu(GOLD)))
    relations = {
        kind: [element.text for element in elements(svg, f"relation {kind}")]
        for kind in ("wrong", "gold")
    }
    # nsubj for nsubj:outer is right: subtypes do not count
    assert relations == {"wrong": ["obl", "acl:relcl"], "gold": ["obj", "advcl"]}
    assert elements(drawn("svg", *read_conllu(TREES)), "wrong") == []
    assert [element.text for element in elements(svg, "surface")] == ["왔다"]


def test_a_sentence_from_right_to_left_is_drawn_so() -> None:
    svg = drawn("svg", sentence([2, 0, 2], ["الكلب", "نبح", "."]))
    middles = [float(element.get("x", "")) for element in elements(svg, "form")]
    assert middles == sorted(middles, reverse=True)


def test_html_is_one_page_that_needs_nothing_else() -> None:
    html = "".join(render(read_conllu(TREES), "html", gold=read_conllu(GOLD)))
    tags = Tags(html)
    assert tags.seen.count("section") == 4
    assert tags.seen.count("svg") == 8  # words in a row, and below one another
    assert tags.addresses == ["#s1", "#s2", "#s3", "#s4"]
    assert not {"link", "img"} & set(tags.seen)
    assert "url(" not in html
    assert html.count("1 wrong arc<") == html.count("0 wrong arcs<") == 2
    assert '<p dir="auto">비가 왔다.</p>' in html
    directions = re.findall(r'class="picture" dir="(\w+)"', html)
    assert directions == ["ltr", "ltr", "ltr", "rtl"]


def test_the_page_says_which_style_and_script_are_its_own() -> None:
    html = "".join(render(read_conllu(TREES), "html"))
    for tag in ("style", "script"):
        (own,) = re.findall(f"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in html
    assert " style=" not in html  # which the policy would refuse


# as objects


def test_json_holds_every_column() -> None:
    sentences = list(read_conllu(TREES))
    objects = [json.loads(line) for line in drawn("json", *sentences).splitlines()]
    for read, found in zip(sentences, objects, strict=True):
        assert [list(map(str, word.values())) for word in found["words"]] == read.rows
        assert (found["id"], found["text"]) == (read.sent_id, read.text)
    names = ["id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"]
    assert list(objects[0]["words"][0]) == names
    token = objects[2]["multiword_tokens"][0]
    assert (token["first"], token["last"], token["form"]) == (2, 3, "왔다")
    assert objects[2]["empty_nodes"][0]["after"] == 3
    compared = json.loads(drawn("json", sentences[0], gold=list(read_conllu(GOLD))[:1]))
    assert [word["wrong"] for word in compared["words"]] == [False] * 4 + [True, False]
    assert compared["words"][4]["gold"] == {"head": 3, "deprel": "obj"}


# errors


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_no_tree_is_refused(form: Format) -> None:
    with pytest.raises(DataError, match="cycle") as caught:
        drawn(form, sentence([0, 3, 2]))
    assert (caught.value.path, caught.value.line) == ("file", 2)


def test_sentences_that_do_not_fit_are_refused() -> None:
    first, second, other = sentence([0, 1]), sentence([0, 1], line=4), sentence([0, 1], ["w", "v"])
    for analyses, gold, place in (
        ([[first]], [other], "file:1: the words"),
        ([[first, second]], [first], "file:4: the gold annotation has no"),
        ([[first]], [first, second], "file:4: "),
        ([[first], []], None, "file:1: B has no"),
        ([[first], [first, second]], None, "file:4: A has no"),
        ([[first], [other]], None, "file:1: the words"),
    ):
        with pytest.raises(DataError, match=place):
            list(grouped(analyses, ["A", "B"][: len(analyses)], gold))
