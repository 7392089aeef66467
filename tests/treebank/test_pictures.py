"""Pictures: labels, words below one another, several analyses, LaTeX."""

from __future__ import annotations

import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from toy_trees import GOLD, TREES, sentence, trees

from seqtool.core.errors import DataError
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.drawing.column import draw_down
from seqtool.treebank.drawing.grouped import draw_group
from seqtool.treebank.drawing.marked import MarkedSentence, mark, mark_together
from seqtool.treebank.drawing.picture import Picture, draw
from seqtool.treebank.drawing.rendering import grouped, render_groups
from seqtool.treebank.drawing.style import CLASS, STYLE
from seqtool.treebank.drawing.tikz import escaped, tikz_document
from seqtool.treebank.sentence import Sentence

Segment = tuple[float, float, float, float]  # x, y, x, y


def elements(picture: Picture, kind: str) -> list[ElementTree.Element]:
    """The elements that have a class, among others perhaps."""
    root = ElementTree.fromstring(f"<svg>{picture.elements}</svg>")
    return [element for element in root.iter() if kind in element.get("class", "").split()]


def place(element: ElementTree.Element) -> tuple[float, float]:
    return float(element.get("x", "")), float(element.get("y", ""))


def segments(picture: Picture) -> list[Segment]:
    """The straight lines of all arcs; their rounded corners as what lies between their ends."""
    found = []
    for element in elements(picture, "arc"):
        x = y = 0.0
        for command, inside in re.findall(r"([MVHQ])([^A-Z]*)", element.get("d", "")):
            numbers = [float(number) for number in inside.split()]
            before = x, y
            x = numbers[-2] if command in "MQ" else numbers[0] if command == "H" else x
            y = numbers[-1] if command != "H" else y
            if command != "M":
                found.append((*before, x, y))
    return found


def overlaps(segment: Segment, box: Segment) -> bool:
    left, right = sorted(segment[::2])
    top, bottom = sorted(segment[1::2])
    return left < box[2] and box[0] < right + 1e-9 and top < box[3] and box[1] < bottom + 1e-9


@example([2, 0, 2], "nmod")
@example([3, 4, 0, 3], "nmod")
@example([4, 5, 0, 3, 3], "relation:long")
@example([0, 4, 1, 1, 3], "relation:long")
@given(trees(), st.sampled_from(["r", "nmod", "relation:long"]))
def test_no_label_lies_on_a_line(heads: list[int], relation: str) -> None:
    marked = mark(sentence(heads, relations=[relation] * len(heads)))
    for picture in (draw(marked), draw_down(marked)):
        lines = segments(picture)
        assert len(lines) >= len(heads)
        for label in elements(picture, "relation"):
            x, y = place(label)
            # of a character: 6 pixels of a font of 11, of which 8 are above the line of its feet
            width = 6.0 * len(relation)
            left = x if "starts" in label.get("class", "") else x - width / 2
            box = (left, y - 8, left + width, y)
            assert not any(overlaps(line, box) for line in lines)


@given(trees())
def test_words_below_one_another(heads: list[int]) -> None:
    picture = draw_down(mark(sentence(heads)))
    feet = [place(element)[1] for element in elements(picture, "form")]
    assert feet == sorted(feet)
    assert {round(b - a, 6) for a, b in pairwise(feet)} <= {24}
    arcs = elements(picture, "arc")
    assert len(arcs) == len(elements(picture, "arrow")) == len(heads)
    (base,) = {place(element)[0] for element in elements(picture, "number")}
    outer = set()
    for line in segments(picture):
        assert all(0 < x < base for x in line[::2])
        assert all(0 < y < picture.height for y in line[1::2])
        if line[0] == line[2]:
            outer.add(line[0])
    # arcs of one depth stand at one distance
    assert len(outer) <= len(heads) - 1


def test_arcs_from_a_head_to_one_side_begin_as_one_line() -> None:
    picture = draw_down(mark(sentence([4, 4, 4, 0, 4, 4])))
    paths = [element.get("d", "") for element in elements(picture, "arc")]
    starts = [float(path[1:].split("H")[0].split()[1]) for path in paths]
    up, root, down = set(starts[:3]), starts[3], set(starts[4:])
    assert (len(up), len(down)) == (1, 1)
    assert max(up) < root < min(down)  # five pixels apart, in a row of 24
    assert min(down) - max(up) == 10


def leftward() -> MarkedSentence:
    return mark(sentence([2, 0, 4, 2], ["الكلب", "نبح", "(", "C++"]))


def test_words_below_one_another_from_right_to_left() -> None:
    picture = draw_down(leftward())
    assert picture.leftward
    numbers, forms, tags = (elements(picture, kind) for kind in ("number", "form", "tag"))
    for number, form, tag in zip(numbers, forms, tags, strict=True):
        assert place(number)[0] > place(form)[0] > place(tag)[0]
    assert min(x for line in segments(picture) for x in line[::2]) > place(numbers[0])[0]
    # what is written to the left starts at its right end, "C++" ends there
    assert ["starts" in form.get("class", "") for form in forms] == [True, True, True, False]


def test_styles_hold_inside_pictures_only() -> None:
    for line in STYLE.splitlines():
        line = line.removeprefix("@supports (color-scheme: dark) { ")
        selectors, brace, _ = line.partition(" {")
        if brace and not line.startswith("@media"):
            assert all(part.startswith(f".{CLASS}") for part in selectors.split(", "))
    assert STYLE.count("{") == STYLE.count("}")


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


def test_analyses_one_over_the_other_or_side_by_side() -> None:
    group = mark_together(two(), ["A", "B"])
    over, beside = draw_group(group), draw_group(group, beside=True)
    single = [draw(each) for each in group]
    assert over.width == max(each.width for each in single)
    assert beside.width == sum(each.width for each in single)
    assert over.height > beside.height > max(each.height for each in single)
    for picture in (over, beside):
        assert [element.text for element in elements(picture, "source")] == ["A", "B"]
        assert len(elements(picture, "form")) == 6
        assert len(elements(picture, "differs")) == 4  # two arcs, two relations


def test_trees_side_by_side_in_the_terminal() -> None:
    groups = [mark_together(two(), ["first", "b"])]
    expected = [
        "# a b c",
        "        first          b",
        "1 a  X  ┌─●  det    ≠    ┌─●  det   ≠",
        "2 b  X  ●──  root      ●─│──  root",
        "3 c  X  └─●  obj:x     └─●──  obj",
    ]
    text = "".join(render_groups(groups, "tree", beside=True))
    assert text == "\n".join([*expected, "", ""])


def test_json_of_several_analyses() -> None:
    lines = "".join(render_groups([mark_together(two(), ["A", "B"])], "json")).splitlines()
    assert ['"source": "A"' in line.replace('":"', '": "') for line in lines] == [True, False]
    assert [line.count("true") for line in lines] == [1, 1]


def test_analyses_of_other_sentences_are_refused() -> None:
    first, second = two()
    with pytest.raises(DataError, match="file:1: B has no such sentence"):
        list(grouped([[first], []], ["A", "B"]))
    with pytest.raises(DataError, match="file:9: A has no such sentence"):
        list(grouped([[first], [first, second]], ["A", "B"]))
    with pytest.raises(DataError, match="file:1: the words differ from those of file:1") as caught:
        list(grouped([[first], [sentence([0])]], ["A", "B"]))
    assert caught.value.hint == "give analyses of the same words"


# LaTeX


def test_latex_of_a_tree() -> None:
    gold = sentence([0, 1], ["50%", "A_1"], ["root", "dep"])
    ours = sentence([2, 0], ["50%", "A_1"], ["nsubj", "root"])
    text = "".join(tikz_document([[mark(ours, gold)]]))
    _, _, body = text.partition("\\begin{deptext}[tree words]\n")
    # points are 10/16 pixels. The relation `nsubj` (36) between two words, the gap beside it (18)
    # and the three arcs at each word (3 x 7) put them 75 apart; an arc is 28 high, a root's 42
    # above it and 4 x 10.5 long; where two arcs meet at a word, they are 7 apart.
    assert body.splitlines() == [
        r"50\% \&[46.9pt] A\_1 \\",
        r"X \& X \\",
        r"\end{deptext}",
        r"\depedge[wrong, edge height=17.5pt, edge start x offset=-2.2pt]{2}{1}{nsubj}",
        r"\coordinate[shift={(2.2pt,0pt)}] (wrong-1-2) at (\wordref{1}{2}.north);",
        r"\deproot[wrong, dep id=wrong, edge unit distance=6.6pt]{2}{root}",
        r"\coordinate[shift={(-2.2pt,0pt)}] (gold-2-1) at (\wordref{2}{1}.south);",
        r"\deproot[gold, dep id=gold, edge unit distance=6.6pt]{1}{root}",
        r"\depedge[gold, edge height=17.5pt, edge start x offset=2.2pt]{1}{2}{dep}",
        r"\end{dependency}",
        r"\end{trees}",
        r"\end{document}",
    ]


def test_latex_from_right_to_left() -> None:
    text = "".join(tikz_document([[leftward()]]))
    words = re.sub(r"\\&\[[\d.]+pt\]", r"\\&", text)
    assert r"C++ \& ) \& {\treearabic نبح} \& {\treearabic الكلب} \\" in words
    assert re.search(r"\\depedge\[[^]]*\]\{3\}\{4\}\{dep\}", text)  # of word 2 to word 1
    assert re.search(r"\\deproot\[[^]]*\]\{3\}\{dep\}", text)
    assert text.count(r"\treefont[Script=Arabic]{\treearabic}") == 1


def test_latex_says_each_font_once_before_it_is_needed() -> None:
    groups = [[mark(sentence([0], [form]))] for form in ("a", "집이", "LG는", "ё", "「", "é", "😀")]
    text = "".join(tikz_document(groups))
    commands = re.findall(r"^\\treefont\{(.*?)\}|(\{\\tree\w+ .*\}|^\S+) \\\\$", text, re.M)
    assert [font or shown for font, shown in commands if font or shown != "X"] == [
        "a",
        r"\treehangul",
        r"{\treehangul 집이}",
        r"{\treehangul LG는}",
        r"\treecyrillic",
        r"{\treecyrillic ё}",
        r"\treecjk",
        r"{\treecjk 「}",
        "é",
        "😀",
    ]


def test_latex_of_several_analyses() -> None:
    group = mark_together(two(), ["A_1", "B"])
    over, beside = ("".join(tikz_document([group], beside=side)) for side in (False, True))
    for text in (over, beside):
        assert text.count(r"\begin{trees}") == 1
        assert text.count(r"\begin{dependency}") == 2
        assert re.findall(r"\\node\[tree source.*\{(.*)\};", text) == [r"A\_1", "B"]
        assert len(re.findall(r"\\depedge\[differs, .*\]\{\d\}\{1\}\{det\}", text)) == 2
    assert r"\begin{tabular}" in over
    assert r"\qquad" in beside


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


def needs_latex(program: str, *styles: str) -> None:
    for tool in (program, "kpsewhich", "pdftotext"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    for style in ("standalone.cls", "tikz-dependency.sty", "lmodern.sty", *styles):
        if subprocess.run(["kpsewhich", style], capture_output=True, check=False).returncode:
            pytest.skip(f"LaTeX has no {style}")


SPECIAL = [*"\\{}%$#&_^~<>\"'`|;,[]=*@/-", "--", "---", ",,", "?`", "\\&", "\\\\", "<<", "50%", "é"]


def test_latex_compiles(tmp_path: Path) -> None:
    needs_latex("pdflatex")
    special = sentence([0, *[1] * len(SPECIAL)], ["a", *SPECIAL], ["root", *SPECIAL])
    wrong = list(grouped([read_conllu(TREES)], [""], read_conllu(GOLD)))[:2]
    groups = [[mark(special)], *wrong, mark_together(two(), ["A", "B"])]
    text = compiled("".join(tikz_document(groups)), tmp_path, "pdflatex")
    pages = text.split("\f")[:-1]
    assert len(pages) == len(groups)
    words = pages[0].split()
    for special_one in SPECIAL:  # as a form, and as a relation
        assert words.count(special_one) == 2, special_one


def test_latex_of_other_letters_compiles(tmp_path: Path) -> None:
    needs_latex("xelatex", "fontspec.sty")
    fonts = subprocess.run(["fc-list", ":lang=ko"], capture_output=True, check=False).stdout
    if b"Noto Serif CJK KR" not in fonts:
        pytest.skip("the font Noto Serif CJK KR is not installed")
    korean = sentence([2, 0], ["개가", "잔다"], ["nsubj", "root"])
    text = compiled("".join(tikz_document([[mark(korean)]])), tmp_path, "xelatex")
    assert {"개가", "잔다", "nsubj"} <= set(text.split())
