"""Trees as they are drawn: in the terminal, as pictures, as a page, for LaTeX, as JSON."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
import unicodedata
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from browser import browser
from hypothesis import example, given
from hypothesis import strategies as st
from toy_trees import GOLD, TREES, Tags, render, sentence, trees

from seqtool.core.errors import DataError
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.drawing.marked import mark, mark_together, printable
from seqtool.treebank.drawing.rendering import FORMATS, Format, grouped, render_groups
from seqtool.treebank.drawing.tikz import escaped, tikz_document
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
    assert html.count("&lt;script&gt;alert(1)") == 5  # text, two pictures, CoNLL-U, raw
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
    # a sentence from right to left is drawn so
    svg = drawn("svg", sentence([2, 0, 2], ["الكلب", "نبح", "."]))
    middles = [float(element.get("x", "")) for element in elements(svg, "form")]
    assert middles == sorted(middles, reverse=True)


def test_html_is_one_page_that_needs_nothing_else() -> None:
    html = "".join(render(read_conllu(TREES), "html", gold=read_conllu(GOLD)))
    tags = Tags(html)
    # words in a row, and below one another
    assert (tags.seen.count("section"), tags.seen.count("svg")) == (4, 8)
    assert tags.addresses == ["#s1", "#s2", "#s3", "#s4"]
    assert not {"link", "img"} & set(tags.seen)
    assert "url(" not in html
    assert html.count("1 wrong arc<") == html.count("0 wrong arcs<") == 2
    directions = re.findall(r'class="picture" dir="(\w+)"', html)
    assert directions == ["ltr", "ltr", "ltr", "rtl"]
    # the policy names the style and the script that are its own
    for tag in ("style", "script"):
        (own,) = re.findall(f"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in html


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


# several analyses


def two() -> list[Sentence]:
    return [
        sentence([2, 0, 2], ["a", "b", "c"], ["det", "root", "obj:x"]),
        sentence([3, 0, 2], ["a", "b", "c"], ["det", "root", "obj"], line=9),
    ]


def test_what_analyses_have_in_common_is_not_marked() -> None:
    first, second = mark_together(two(), ["A", "B"])
    assert first.differing == second.differing == {1}  # subtypes do not count
    assert [first.kind(word) for word in (1, 2, 3)] == ["differs", "", ""]
    assert first.num_marked() == 1
    # beside a gold annotation, it says what is wrong
    first, second = mark_together(two(), ["A", "B"], two()[0])
    assert (first.num_marked(), second.num_marked()) == (0, 1)
    assert second.kind(1) == "wrong"


@pytest.mark.parametrize("beside", [False, True])
def test_drawings_of_several_analyses(beside: bool) -> None:
    group = mark_together(two(), ["A_1", "B"])
    svg, tree, tikz, html = (
        "".join(render_groups([group], form, beside=beside))
        for form in ("svg", "tree", "tikz", "html")
    )
    texts = [element.text for element in ElementTree.fromstring(svg).iter()]
    assert {"A_1", "B"} <= set(texts)
    assert texts.count("obj") == texts.count("obj:x") == 1
    # a page has both forms of a picture
    assert svg.count('<g class="differs"') == html.count('<g class="differs"') // 2 == 2
    assert (tree.count("≠"), tree.count("obj")) == (2, 2)
    assert [len(line.split("●")) - 1 for line in tree.splitlines()].count(1 + beside) == 6 >> beside
    assert tikz.count(r"\begin{dependency}") == 2
    assert len(re.findall(r"\\depedge\[differs\]\{\d\}\{1\}\{det\}", tikz)) == 2
    assert r"A\_1" in tikz


@given(trees())
def test_words_below_one_another(heads: list[int]) -> None:
    groups = grouped([[sentence(heads)]], [""])
    svg = ElementTree.fromstring("".join(render_groups(groups, "svg", down=True)))
    classes = {
        kind: [e for e in svg.iter() if e.get("class", "").split()[:1] == [kind]]
        for kind in ("form", "arc", "arrow", "relation")
    }
    assert {len(found) for found in classes.values()} == {len(heads)}
    places = [(float(e.get("x", "")), float(e.get("y", ""))) for e in classes["form"]]
    assert len({x for x, _ in places}) == 1
    assert all(below - above >= 24 for (_, above), (_, below) in pairwise(places))
    # arcs are drawn with axes exchanged: each end lies beside its word
    edges = [0.0, *(y for _, y in places), float(svg.get("height", ""))]
    for word, (arc, arrow) in enumerate(zip(classes["arc"], classes["arrow"], strict=True), 1):
        ends = [(word, arrow)] + [(heads[word - 1], arc)] * (heads[word - 1] > 0)
        for number, path in ends:
            along = float(path.get("d", "")[1:].split(" ")[0])
            assert edges[number - 1] - 5 < along < edges[number + 1] - 5


# LaTeX


def test_latex_of_trees() -> None:
    gold = sentence([0, 1], ["50%", "A_1"], ["root", "dep"])
    ours = sentence([2, 0], ["50%", "A_1"], ["nsubj", "root"])
    leftward = sentence([2, 0, 4, 2], ["الكلب", "نبح", "(", "C++"])
    groups = [[mark(ours, gold)], [mark(leftward)]]
    groups += [
        [mark(sentence([0], [form]))] for form in ("a", "집이", "LG는", "ё", "「", "é", "😀")
    ]
    text = "".join(tikz_document(groups))
    for line in (
        r"50\% \& A\_1 \\",
        *(r"\depedge[wrong]{2}{1}{nsubj}", r"\deproot[wrong]{2}{root}"),
        *(r"\depedge[gold]{1}{2}{dep}", r"\deproot[gold]{1}{root}"),
        # from right to left
        r"C++ \& ) \& {\treearabic نبح} \& {\treearabic الكلب} \\",
        *(r"\depedge{3}{4}{dep}", r"\deproot{3}{dep}"),  # word 1 below word 2, and that
    ):
        assert line in text.splitlines()
    # each font is named once, before it is needed
    fonts = [(m.start(), m[1]) for m in re.finditer(r"^\\treefont.*\{(\\tree\w+)\}", text, re.M)]
    names = [r"\treearabic", r"\treehangul", r"\treecyrillic", r"\treecjk"]
    assert [name for _, name in fonts] == names
    assert all(start < text.index(f"{{{name} ") for start, name in fonts)


@given(st.text(st.characters(codec="ascii", categories=("P", "S"))))
def test_what_latex_would_read_is_escaped(text: str) -> None:
    shown = escaped(text)
    for command in re.findall(r"\\(?:[a-z]+(?:\{\d*\}|\d*pt )|.)|\{\[\}", shown):
        shown = shown.replace(command, "", 1)
    assert not set(shown) & set("\\&%$#_{}~^`'\"<>|[")


def compiled(text: str, folder: Path, program: str) -> str:
    """The text of the pages that LaTeX makes of a document."""
    (folder / "trees.tex").write_text(text, encoding="utf-8")
    command = [program, "-interaction=nonstopmode", "-halt-on-error", "trees.tex"]
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False
    )
    log = (folder / "trees.log").read_text(encoding="utf-8", errors="replace")
    assert done.returncode == 0, log
    assert "Missing character" not in log
    pages = subprocess.run(
        ["pdftotext", "-layout", "trees.pdf", "-"], cwd=folder, capture_output=True, check=True
    )
    return pages.stdout.decode()


SPECIAL = [*"\\{}%$#&_^~<>\"'`|;,[]=*@/-", "--", "---", ",,", "?`", "\\&", "\\\\", "<<", "50%", "é"]


@pytest.mark.parametrize(
    ("program", "forms"), [("pdflatex", SPECIAL), ("xelatex", ["개가", "잔다", "LG는"])]
)
def test_latex_compiles(tmp_path: Path, program: str, forms: list[str]) -> None:
    for tool in (program, "kpsewhich", "pdftotext"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    for style in ("standalone.cls", "tikz-dependency.sty", "lmodern.sty", "fontspec.sty"):
        if subprocess.run(["kpsewhich", style], capture_output=True, check=False).returncode:
            pytest.skip(f"LaTeX has no {style}")
    fonts = subprocess.run(["fc-list", ":lang=ko"], capture_output=True, check=False).stdout
    if program == "xelatex" and b"Noto Serif CJK KR" not in fonts:
        pytest.skip("the font Noto Serif CJK KR is not installed")
    special = sentence([0, *[1] * len(forms)], ["a", *forms], ["root", *forms])
    wrong = list(grouped([read_conllu(TREES)], [""], read_conllu(GOLD)))[:2]
    groups = [[mark(special)], *wrong, mark_together(two(), ["A", "B"])]
    pages = compiled("".join(tikz_document(groups)), tmp_path, program).split("\f")[:-1]
    assert len(pages) == len(groups)
    for form in forms:  # as a form, and as a relation
        assert pages[0].split().count(form) == 2, form


COUNT = 'document.getElementById("count").textContent'
SEARCH = 'query.value = "{}"; search(); ' + COUNT
DRAWN = (
    '[...document.querySelectorAll(".picture")].map((p) => p.querySelectorAll("svg, table").length)'
)
SHOWN = '[...document.querySelectorAll(".picture")].map((p) => p.dataset.shown)'


def test_the_page_in_a_browser(tmp_path: Path) -> None:
    small, many = tmp_path / "small.html", tmp_path / "many.html"
    pieces = render(read_conllu(TREES), "html", gold=read_conllu(GOLD))
    small.write_text("".join(pieces), encoding="utf-8")
    long = sentence([0, *range(1, 77)])
    pieces = render([long, *(sentence([2, 0, 2]) for _ in range(60)), long], "html")
    many.write_text("".join(pieces), encoding="utf-8")
    with browser(tmp_path) as page:
        page.open(small, 1000, 800)
        assert page.run(COUNT) == "4 sentences"
        # (typed, found): a relation with its subtypes, a part of a word, all of one word
        for typed, found in (
            ("deprel=acl", "1 of 4"),
            ("bark", "2 of 4"),
            ("form=bark", "0 of 4"),
            ("form=bark* deprel=root", "1 of 4"),
            ("UPOS=noun 비", "1 of 4"),
            ("tag=vbd", "2 of 4"),
            ("tag=verb", "4 sentences"),
            ("feats.Case=Acc", "1 of 4"),
            ("deprel=", "4 sentences"),  # more is being typed
            ("(bark >", "2 of 4"),
            ("", "4 sentences"),
        ):
            assert page.run(SEARCH.format(typed)) == found, typed
        page.run("only.click()")
        assert page.run(COUNT) == "2 of 4"
        page.run("only.click(); " + SEARCH.format("form=us"))
        page.until("document.querySelector('.hit .form') !== null")
        assert page.run('document.querySelector(".hit .form").textContent') == "us"
        page.run(SEARCH.format(""))
        page.until(f"{DRAWN}[0] === 1")

        # first sentence, second word "dog", its head, and its first dependent
        page.press("j", "ArrowRight", "ArrowRight")
        tip = 'tip.querySelector("b").textContent'
        assert page.run(tip) == "dog"
        page.press("ArrowUp")
        assert page.run(tip) == "barked"
        page.press("ArrowDown")
        assert page.run(tip) == "dog"
        page.press("Escape")
        assert page.run("tip.hidden")
        # in the last one, the next word is at the left
        page.press("j", "j", "j", "ArrowLeft", "ArrowLeft")
        assert page.run(tip) == "نبح"
        page.press("/")
        assert page.run("document.activeElement.id") == "query"

        # a picture that is wider than its window begins where its reader does
        page.open(small, 120, 800)
        page.run('layout.value = "across"; arrange()')
        last = '[...document.querySelectorAll(".picture")].pop()'
        assert page.run(f"{last}.scrollWidth > {last}.clientWidth && {last}.scrollLeft === 0")
        edge = f'{last}.querySelector("svg").getBoundingClientRect().right'
        assert abs(page.run(f"{edge} - {last}.getBoundingClientRect().right")) < 1

        page.open(many, 1000, 800)
        page.until(f"{DRAWN}[0] === 1")
        drawn = page.run(DRAWN)
        assert drawn[0] == 1
        assert sum(drawn) < 10
        assert page.run(SHOWN)[0] == "down"  # as it does not fit across
        page.run("scrollTo(0, document.body.scrollHeight)")
        page.until(f"{DRAWN}.at(-1) === 1 && {DRAWN}[5] === 0")
        page.run("dispatchEvent(new Event('beforeprint'))")
        drawn = page.run(DRAWN)
        assert set(drawn) == {1}
        assert page.run(SHOWN)[0] == "down"  # as paper is narrower still
        page.run("dispatchEvent(new Event('afterprint'))")
        assert sum(page.run(DRAWN)) < 10
        assert page.complaints == []


PLACES = """[...states.values()].map((s) => (s.across + s.down).match(/ (d|[xy]|width)="[^"]*/g))"""


def test_trees_are_corrected_in_a_browser(tmp_path: Path) -> None:
    hostile = '</script><b>&amp;"\x85\x1b'
    odd = sentence([0, 1, 2], [hostile, "b", "c"], ["root", "<i>&", "dep"])
    odd.comments += [f"# text = {hostile}\x7f", "# parse_rank = 1"]
    odd.rows[1][-1], odd.rows[2][-1] = "Score=0.500|X=\xa0", "Score=0.400"
    place, target = tmp_path / "page.html", tmp_path / "corrected.conllu"
    place.write_text(drawn("html", *read_conllu(TREES), odd), encoding="utf-8")
    parsed = TREES.read_text(encoding="utf-8") + odd.to_conllu()
    with browser(tmp_path) as page:
        page.open(place, 1000, 800)
        page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))

        def saved() -> tuple[str, str]:
            """The file, and what the page says of it."""
            target.unlink(missing_ok=True)
            page.run("save.click()")
            for _ in range(1000):
                if not target.exists():
                    page.settle()
            return target.read_bytes().decode(), page.run("edits.textContent")

        assert saved() == (parsed, "saved: 0 changed")
        before = page.run(PLACES)
        # of "dog", the head is "us", and the relation another one
        page.press("j", "ArrowRight", "ArrowRight", "h", "End", "ArrowLeft", "Enter", "r")
        page.call("Input.insertText", text="<s>x")
        page.run("relation.blur()")
        changed = parsed.replace("Number=Sing\t3\tnsubj", "Number=Sing\t5\t<s>x")
        assert saved() == (changed, "saved: 1 changed")
        assert page.run('document.querySelectorAll("g.edited").length') == 1
        # a cycle is red, and may be saved
        page.run("states.keys().next().value.focus()")
        page.press("ArrowRight", "h", "ArrowLeft", "Enter")
        assert saved()[1] == "saved: 2 changed; sentence 1 is no tree: a cycle"
        assert page.run('document.querySelectorAll("section:first-of-type g.wrong").length') == 3
        page.press("u", "u", "u")
        # with the mouse: a word is dragged to its head, and a head is chosen
        for kind, word in (("mousePressed", 2), ("mouseReleased", 5)):
            spot = f"wordOf(states.keys().next().value, {word}).getBoundingClientRect()"
            at = {key: page.run(f"{spot}.{key} + 9") for key in "xy"}
            page.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)
        assert saved()[0] == changed.replace("<s>x", "nsubj")
        page.run('undo.click(); head.value = 0; head.dispatchEvent(new Event("change"))')
        assert page.run("edits.textContent").endswith("is no tree: 2 roots")
        # in the last sentence, raw characters stay; scores of what was changed go
        page.press("u", "j", "j", "j", "j", "End", "h", "Home", "Enter")
        changed = parsed.replace("2\tdep\t_\tScore=0.400", "1\tdep\t_\t_")
        assert saved()[0] == changed.replace("# parse_rank = 1\n", "")
        page.press("u", "k", "k", "k", "k")
        # each tree is drawn anew as it was
        for _ in range(5):
            page.press("End", "h", "Home", "Enter", "u", "j")
        assert page.run(PLACES) == before
        assert saved()[0] == parsed
        assert page.complaints == []
