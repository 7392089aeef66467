r"""Trees as a LaTeX document for the package tikz-dependency (Pighin 2012).

Words and arcs have the places of the SVG picture, so that no relation lies on a line. Each tree is
an environment `dependency`, to be copied into a paper with the styles of the preamble. pdfLaTeX
reads Latin letters, XeLaTeX all: a word in other letters is set in the first installed font of a
list, which stands before the first sentence that needs it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from seqtool.treebank.drawing.marked import Group, MarkedSentence, turned
from seqtool.treebank.drawing.picture import (
    SURFACE_LINE,
    PlacedArc,
    arcs_of,
    place_arcs,
    place_words,
    rise_of,
)
from seqtool.treebank.drawing.style import LIGHT, SIZES

_POINTS = 10 / SIZES["form"]  # of a pixel: words are set in 10 points
_SHIFTED = 0.05  # points; a shorter way is none

_SPECIAL = {
    **{character: f"\\{character}" for character in "%$#_{}"},
    "&": r"\symbol{38}",  # \& begins a column
    **{
        character: f"\\text{name}{{}}"
        for character, name in (
            ("\\", "backslash"),
            ("~", "asciitilde"),
            ("^", "asciicircum"),
            ("`", "asciigrave"),
            ("'", "quotesingle"),
            ('"', "quotedbl"),
            ("<", "less"),
            (">", "greater"),
            ("|", "bar"),
        )
    },
    "[": "{[}",  # after a new line, it begins an option
}
_ESCAPES = str.maketrans(_SPECIAL)
_LIGATURE = re.compile(r"([-,])(?=\1)")  # of ASCII, what becomes a dash or a quote

# For letters that Latin Modern has not: fonts by the first word of a letter's name in Unicode.
_NOTO = "Noto Serif {0},Noto Sans {0}"
_EAST_ASIAN = "Noto Serif CJK {0},Noto Sans CJK {0},Source Han Serif {0}"
_JAPANESE = f"{_EAST_ASIAN.format('JP')},Hiragino Mincho ProN,Yu Mincho,IPAexMincho"
_WIDE = "Noto Serif,DejaVu Serif,FreeSerif,Times New Roman,DejaVu Sans"
_FONTS = {
    "ARABIC": "Noto Naskh Arabic,Amiri,Scheherazade New,Geeza Pro,Times New Roman",
    "ARMENIAN": f"{_NOTO.format('Armenian')},{_WIDE}",
    "BENGALI": f"{_NOTO.format('Bengali')},Lohit Bengali,Nirmala UI,Bangla MN",
    "CJK": f"{_EAST_ASIAN.format('SC')},FandolSong,SimSun,Songti SC",
    "CYRILLIC": _WIDE,
    "DEVANAGARI": f"{_NOTO.format('Devanagari')},Lohit Devanagari,Nirmala UI,Devanagari MT",
    "ETHIOPIC": f"{_NOTO.format('Ethiopic')},Abyssinica SIL,Kefa",
    "GEORGIAN": f"{_NOTO.format('Georgian')},{_WIDE}",
    "GREEK": _WIDE,
    "HANGUL": f"{_EAST_ASIAN.format('KR')},UnBatang,Batang,AppleMyungjo",
    "HEBREW": f"{_NOTO.format('Hebrew')},David CLM,Times New Roman",
    "HIRAGANA": _JAPANESE,
    "KATAKANA": _JAPANESE,
    "TAMIL": f"{_NOTO.format('Tamil')},Lohit Tamil,Nirmala UI,Tamil MN",
    "TELUGU": f"{_NOTO.format('Telugu')},Lohit Telugu,Nirmala UI,Telugu MN",
    "THAI": f"{_NOTO.format('Thai')},Norasi,TH Sarabun New,Thonburi",
}
_SHAPED = {  # by fonts that are told the script
    script: f"Script={script.capitalize()}"
    for script in ("ARABIC", "BENGALI", "DEVANAGARI", "HEBREW", "TAMIL", "TELUGU", "THAI")
}

_PREAMBLE = r"""% pdflatex FILE, or xelatex FILE where letters are not Latin; a sentence a page
\documentclass[multi=trees, border=4pt]{standalone}
\usepackage{iftex}
\ifPDFTeX
  \usepackage[T1]{fontenc}
  \usepackage{lmodern}
\else
  \usepackage{fontspec}
\fi
\usepackage{tikz-dependency}
\tikzset{
  tree words/.style={column sep={0pt,between origins}, row sep=-2pt,
    row 2/.style={nodes={font=\scriptsize, text=black!65}}},
  tree bracket/.style={black!65, rounded corners=1pt},
  tree surface/.style={below, text=black!65, font=\small, inner sep=2pt},
  tree source/.style={text=black!65, font=\small, inner sep=0pt},
}
\depstyle{tree}{theme=simple, segmented edge, edge slant=0pt, edge horizontal padding=0pt,
  text style={text height=2ex, text depth=0.4ex}, edge style={black!70, semithick},
  label style={scale=1.43, inner sep=1.5pt}} % as the theme shrinks labels to 0.7
\depstyle{arc}{rounded corners=4pt}
\makeatletter
% \treefont[options]{command}{fonts}: the command chooses the first of the fonts that is installed;
% define it before, by \newfontfamily, for another font
\newcommand{\treefont}[3][]{%
  \ifPDFTeX\PackageError{trees}{letters that pdflatex has not}{Use xelatex.}\fi
  \@for\next:=#3\do{\ifdefined#2\else\IfFontExistsTF{\next}{%
    \expandafter\treefont@set\expandafter{\next}{#1}{#2}}{}\fi}%
  \ifdefined#2\else\PackageWarning{trees}{none of these fonts is installed: #3}\let#2\relax\fi}
\newcommand{\treefont@set}[3]{\newfontfamily#3{#1}[#2]}
\makeatother
"""


def tikz_document(groups: Iterable[Group], *, beside: bool = False) -> Iterator[str]:
    """Give the document in pieces, a sentence each.

    Args:
        groups: the analyses of each sentence; where they have names, these stand above them.
        beside: they stand side by side; otherwise one over the other.
    """
    yield _PREAMBLE
    for name, colour in (("wrong", LIGHT.wrong), ("gold", LIGHT.gold), ("differs", LIGHT.differs)):
        dashes = ", dashed" if name == "gold" else ""
        below = "edge below, " if name == "gold" else ""
        side = "below, " if name == "gold" else ""
        yield f"\\definecolor{{dep-{name}}}{{HTML}}{{{colour.lstrip('#').upper()}}}\n"
        yield (
            f"\\depstyle{{{name}}}{{arc, {below}edge style={{dep-{name}, thick{dashes}}},\n"
            f"  label style={{{side}text=dep-{name}}}}}\n"
        )
    yield "\\begin{document}\n"
    known: set[str] = set()
    for group in groups:
        yield _about(group[0])
        for script in sorted(_scripts_of(group) - known):
            options = f"[{_SHAPED[script]}]" if script in _SHAPED else ""
            yield f"\\treefont{options}{{{_command(script)}}}{{{_FONTS[script]}}}\n"
            known.add(script)
        trees = [_dependency(sentence) for sentence in group]
        if beside or len(trees) == 1:
            inside = "\\qquad\n".join(trees)
        else:
            side = "r" if group[0].is_leftward else "l"
            over = "\\\\[10pt]\n".join(trees)
            inside = f"\\begin{{tabular}}{{@{{}}{side}@{{}}}}\n{over}\\end{{tabular}}\n"
        yield f"\\begin{{trees}}\n{inside}\\end{{trees}}\n"
    yield "\\end{document}\n"


def escaped(text: str) -> str:
    r"""Return a text as LaTeX shows it, in the font that has its letters.

    >>> print(escaped("50% of A_1"))
    50\% of A\_1
    >>> print(escaped("집"))
    {\treehangul 집}
    """
    shown = _LIGATURE.sub(r"\1\\kern0pt ", text.translate(_ESCAPES))
    script = _script_of(text)
    if script is None:
        return shown
    return f"{{{_command(script)} {shown}}}"


def _command(script: str) -> str:
    return f"\\tree{script.lower()}"


def _script_of(text: str) -> str | None:
    """Return the writing of the first letter that Latin Modern has not, as `_FONTS` names it."""
    for character in text:
        if not character.isascii():
            script = unicodedata.name(character, "").partition(" ")[0]
            if script in _FONTS:
                return script
            # punctuation and letters as wide as ideographs, no emoji
            is_wide = unicodedata.east_asian_width(character) in ("W", "F")
            if is_wide and unicodedata.category(character) != "So":
                return "CJK"
    return None


def _scripts_of(group: Group) -> set[str]:
    found = {
        _script_of(text)
        for sentence in group
        for text in (
            *sentence.forms,
            *sentence.tags,
            *sentence.relations,
            *(relation for _, relation in sentence.gold or ()),
            *(surface.form for surface in sentence.surfaces),
            sentence.source,
        )
    }
    return {script for script in found if script is not None}


def _about(sentence: MarkedSentence) -> str:
    """Return a comment that says which sentence follows."""
    about = " ".join(filter(None, (sentence.name, sentence.rank)))
    return f"\n% {about}: {sentence.text}\n" if about else f"\n% {sentence.text}\n"


def _dependency(sentence: MarkedSentence) -> str:
    """Return the environment of a tree; words from right to left stand in columns so."""
    sides = arcs_of(sentence)
    centres, _, leftward = place_words(sentence, [arc for side in sides for arc in side])
    order = list(range(len(sentence)))
    forms = sentence.forms
    if leftward:
        order.reverse()
        forms = [turned(form) for form in forms]
    column_of = {word + 1: column for column, word in enumerate(order, start=1)}
    gaps = [_points(centres[right] - centres[left]) for left, right in pairwise(order)]

    def row(cells: Sequence[str], separators: Sequence[str]) -> str:
        parts = [escaped(cells[order[0]])]
        for separator, word in zip(separators, order[1:], strict=True):
            parts.append(f" {separator} {escaped(cells[word])}")
        return "".join(parts) + " \\\\\n"

    lines = [
        "\\begin{dependency}[tree]\n\\begin{deptext}[tree words]\n",
        row(forms, [f"\\&[{gap}]" for gap in gaps]),
        row(sentence.tags, ["\\&"] * len(gaps)),
        "\\end{deptext}\n",
    ]
    arcs, gold_arcs = (place_arcs(side, centres, leftward) for side in sides)
    for placed in arcs:
        lines += _arc(placed, centres, column_of, 0.0)
    for surface in sentence.surfaces:
        ends = sorted((column_of[surface.first], column_of[surface.last]))
        first, last = (f"\\wordref{{2}}{{{column}}}.south" for column in ends)
        lines.append(
            f"\\draw[tree bracket] ([xshift=-4pt]{first}) -- +(0,-2.5pt) -|\n"
            f"  node[tree surface, pos=0.25] {{{escaped(surface.form)}}} ([xshift=4pt]{last});\n"
        )
    below = SURFACE_LINE if sentence.surfaces else 0.0
    for placed in gold_arcs:
        lines += _arc(placed, centres, column_of, below)
    if sentence.source:
        corner, anchor = ("east", "south east") if leftward else ("west", "south west")
        lines.append(
            f"\\node[tree source, anchor={anchor}] at (current bounding box.north {corner}) "
            f"{{{escaped(sentence.source)}}};\n"
        )
    lines.append("\\end{dependency}\n")
    return "".join(lines)


def _points(pixels: float) -> str:
    return f"{round(pixels * _POINTS, 1) + 0.0:g}pt"  # and no -0


def _arc(
    placed: PlacedArc, centres: Sequence[float], column_of: dict[int, int], below: float
) -> list[str]:
    """Return the command of an arc, of a root after one that says where it ends.

    Args:
        placed: the arc.
        centres: of the words.
        column_of: each word.
        below: the pixels between the words and gold arcs, which stand below them.
    """
    arc, column = placed.arc, column_of[placed.arc.word]
    options = [arc.kind or "arc"]
    end = placed.end - centres[arc.word - 1]
    label = escaped(arc.relation)
    if placed.start is None:
        # four times the unit is how long a root's arc is, on either side
        options += [
            f"dep id={arc.kind or 'root'}",
            f"edge unit distance={_points(rise_of(placed) / 4)}",
        ]
        row, side, shift = (2, "south", f"({_points(end)},{_points(-below)})")
        if arc.kind != "gold":
            row, side, shift = (1, "north", f"({_points(end)},0pt)")
        end_of = f"({arc.kind or 'root'}-{row}-{column}) at (\\wordref{{{row}}}{{{column}}}.{side})"
        return [
            f"\\coordinate[shift={{{shift}}}] {end_of};\n",
            f"\\deproot[{', '.join(options)}]{{{column}}}{{{label}}}\n",
        ]
    start = placed.start - centres[arc.head - 1]
    options.append(f"edge height={_points(rise_of(placed))}")
    shifts = (
        ("edge start x offset", start),
        ("edge end x offset", end),
        ("edge vertical padding", below),
    )
    options += [f"{name}={_points(by)}" for name, by in shifts if abs(by) * _POINTS > _SHIFTED]
    aside = placed.middle - (placed.start + placed.end) / 2
    if abs(aside) * _POINTS > _SHIFTED:
        options.append(f"label style={{xshift={_points(aside)}}}")
    head = column_of[arc.head]
    return [f"\\depedge[{', '.join(options)}]{{{head}}}{{{column}}}{{{label}}}\n"]
