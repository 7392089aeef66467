"""Pictures: relations and lines, several analyses, LaTeX."""

from __future__ import annotations

import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_trees import GOLD, TREES, sentence, trees

from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.drawing.marked import mark, mark_together
from seqtool.treebank.drawing.rendering import grouped, render_groups
from seqtool.treebank.drawing.tikz import escaped, tikz_document
from seqtool.treebank.sentence import Sentence

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


def test_latex_of_a_tree() -> None:
    gold = sentence([0, 1], ["50%", "A_1"], ["root", "dep"])
    ours = sentence([2, 0], ["50%", "A_1"], ["nsubj", "root"])
    body = "".join(tikz_document([[mark(ours, gold)]])).partition("\\begin{document}")[2]
    for line in (
        r"50\% \& A\_1 \\",
        r"\depedge[wrong]{2}{1}{nsubj}",
        r"\deproot[wrong]{2}{root}",
        r"\depedge[gold]{1}{2}{dep}",
        r"\deproot[gold]{1}{root}",
    ):
        assert line in body.splitlines()


def test_latex_from_right_to_left() -> None:
    leftward = mark(sentence([2, 0, 4, 2], ["الكلب", "نبح", "(", "C++"]))
    text = "".join(tikz_document([[leftward]]))
    assert r"C++ \& ) \& {\treearabic نبح} \& {\treearabic الكلب} \\" in text
    assert r"\depedge{3}{4}{dep}" in text  # of word 2 to word 1
    assert r"\deproot{3}{dep}" in text
    assert text.count(r"\treefont[Script=Arabic]{\treearabic}") == 1


def test_latex_names_each_font_once_before_it_is_needed() -> None:
    groups = [[mark(sentence([0], [form]))] for form in ("a", "집이", "LG는", "ё", "「", "é", "😀")]
    text = "".join(tikz_document(groups))
    named = [
        (found.start(), found[1]) for found in re.finditer(r"^\\treefont\{(.*?)\}", text, re.M)
    ]
    assert [command for _, command in named] == [r"\treehangul", r"\treecyrillic", r"\treecjk"]
    for start, command in named:
        assert start < text.index(f"{{{command} ")


COMMANDS = {
    r"\textbackslash{}": "\\",
    r"\textasciitilde{}": "~",
    r"\textasciicircum{}": "^",
    r"\textasciigrave{}": "`",
    r"\textquotesingle{}": "'",
    r"\textquotedbl{}": '"',
    r"\textless{}": "<",
    r"\textgreater{}": ">",
    r"\textbar{}": "|",
    r"\symbol{38}": "&",
    r"\kern0pt ": "",
    "{[}": "[",
    **{f"\\{character}": character for character in "%$#_{}"},
}


@given(st.text(st.characters(codec="ascii", categories=("P", "S"))))
def test_what_latex_would_read_is_escaped(text: str) -> None:
    shown = escaped(text)
    pieces = re.split(f"({'|'.join(map(re.escape, COMMANDS))})", shown)
    for plain in pieces[::2]:
        assert not set(plain) & set("\\&%$#_{}~^`'\"<>|[")
        assert "--" not in plain
        assert ",," not in plain
    assert "".join(COMMANDS.get(piece, piece) for piece in pieces) == text


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
