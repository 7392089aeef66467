"""Derivations as they are shown: in the terminal, as a page, as JSON."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_trees import Tags, sentence

from seqtool.treebank.derivation import Arc, Choice, Derivation, Feature, Hypothesis, Step, Trace
from seqtool.treebank.drawing.marked import width_of
from seqtool.treebank.drawing.trace_page import trace_page
from seqtool.treebank.drawing.trace_text import percent, trace_json, trace_text


def trace(first: str = "dogs", second: str = "sleep", label: str = "nsubj") -> Trace:
    """Two words in arc-standard, a beam of two, and an arc that is put back."""
    beginning = Hypothesis(0.0, "", (0, 1, 2), None, False, None, True, True)
    best = Hypothesis(-0.25, f"LEFT-ARC {label}", (0,), None, True, 0, True, True)
    other = Hypothesis(-1.5, "RIGHT-ARC obj", (0,), None, True, 0, False, False)
    features = (
        Feature("s0", "word", "", 2),
        Feature("s1", "word", "", 1),
        Feature("b0", "word", "", None),
        Feature("s1-s0", "measure", "1", None),
        Feature("s1.l1", "label", "", None),
    )
    arcs = (Arc(2, 1, f"{label}↑x"), Arc(0, 2, "root"))
    steps = (
        Step((0,), (1, 2), "SHIFT", None, None, 1.0),
        Step((0, 1), (2,), "SHIFT", None, None, 1.0),
        Step(
            (0, 1, 2), (), f"LEFT-ARC {label}", arcs[0], 0, 0.75,
            (Choice("RIGHT-ARC obj", 0.25),), features,
        ),
        Step((0, 2), (), "RIGHT-ARC root", arcs[1], None, 1.0),
    )  # fmt: skip
    found = Derivation("arc-standard", 2, -0.25, steps, ((beginning,), (best, other)), arcs)
    return Trace(sentence([2, 0], [first, second], [label, "root"]), found)


def test_in_the_terminal() -> None:
    plain, coloured = ("".join(trace_text([trace()], width=56, colour=c)) for c in (False, True))
    lines = plain.splitlines()
    for line in (
        "3  LEFT-ARC nsubj                                  75.0%",
        "   stack    ROOT dogs sleep",
        "   buffer   -",
        "   arc      sleep → dogs: nsubj↑x",
        "   instead  RIGHT-ARC obj 25.0%",
        "   sees     s0 sleep/X, s1 dogs/X, s1-s0 1",
        "   empty    b0 s1.l1",
        "   beam       -0.2500  LEFT-ARC nsubj  ROOT |       tree",
        "put back: sleep → dogs: nsubj↑x, now sleep → dogs: nsubj",
    ):
        assert line in lines
    assert plain.count("   stack ") == plain.count("   buffer ") == 4
    # colour adds nothing but colour
    assert "\x1b[" not in plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from(["a", "dog", "字字字", "vámonos", "x" * 30]), min_size=20, max_size=40)
)
def test_lines_are_no_wider_than_the_terminal(forms: list[str]) -> None:
    size = len(forms)
    words = tuple(range(1, size + 1))
    arcs = tuple(Arc(word - 1, word, "dep") for word in words)
    features = tuple(Feature(f"b{word}", "word", "", word) for word in words)
    step = Step((0,), words, "SHIFT", None, 0, 0.5, (Choice("SWAP", 0.5),) * 9, features)
    found = Trace(
        sentence([word - 1 for word in words], forms),
        Derivation("swap", 1, -1.0, (step,), ((),), arcs),
    )
    lines = "".join(trace_text([found], width=60)).splitlines()
    assert max(map(width_of, lines)) <= 60
    names = [line[3:12].strip() for line in lines]
    begin, end = names.index("buffer"), names.index("instead")
    assert " ".join(line[12:] for line in lines[begin:end]).split(" ") == forms


@pytest.mark.parametrize(
    ("probability", "shown"),
    [(1.0, "100.0%"), (0.9999, ">99.9%"), (0.5, "50.0%"), (0.0001, "<0.1%"), (0.0, "0.0%")],
)
def test_probabilities_never_look_surer_than_they_are(probability: float, shown: str) -> None:
    assert percent(probability) == shown


def test_json_has_all() -> None:
    (line,) = trace_json([trace()])
    derivation = json.loads(line)["derivation"]
    assert derivation["system"] == "arc-standard"
    third = derivation["steps"][2]
    assert third["arc"] == {"head": 2, "word": 1, "label": "nsubj↑x"}
    assert third["others"] == [{"transition": "RIGHT-ARC obj", "probability": 0.25}]
    assert third["features"][0] == {"place": "s0", "kind": "word", "value": "", "word": 2}
    assert derivation["rounds"][1][1]["survives"] is False
    assert derivation["put_back"][0]["put"] == {"head": 2, "word": 1, "label": "nsubj"}


NASTY = '<script>alert("x")</script>&amp;\'"\x1b]0;\u2028'


def test_a_page_holds_every_step_and_no_text_of_data_as_markup() -> None:
    text = "".join(trace_page([trace(NASTY, label="<b>&"), trace()]))
    page = Tags(text)
    assert (page.seen.count("script"), page.seen.count("b")) == (1, 0)
    assert "\x1b" not in text
    # four transitions and the tree of each sentence, without any script
    assert page.seen.count("li") == 10
    assert "LEFT-ARC &lt;b&gt;&amp;" in text
    for svg in re.findall(r"<svg xmlns.*?</svg>", text, flags=re.DOTALL):
        ElementTree.fromstring(svg)
    # what words are drawn by is there once for each sentence
    assert set(page.addresses) == {"#words-1", "#words-2"}
    assert text.count('id="words-') == 2


def test_arcs_appear_when_they_are_made() -> None:
    steps = "".join(trace_page([trace()])).split("<li>")[1:]
    for text, numbers in (
        ('class="arc"', [0, 0, 1, 2, 2]),
        ('class="lit"', [0, 0, 1, 1, 0]),
        ("<dt>buffer</dt>", [1, 1, 1, 1, 0]),
    ):
        assert [step.count(text) for step in steps] == numbers
    assert "put back" in steps[-1]
