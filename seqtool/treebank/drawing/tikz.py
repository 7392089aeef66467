r"""Trees as a LaTeX document for the package tikz-dependency (Pighin 2012), which lays them out.

Each tree is an environment `dependency`, to be copied into a paper with the styles of the preamble.
pdfLaTeX reads Latin letters, XeLaTeX all: a word in other letters is set in a font of the Noto
family, which is chosen before the first sentence that needs it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

from seqtool.treebank.drawing.marked import Group, MarkedSentence, is_leftward
from seqtool.treebank.drawing.picture import arcs_of
from seqtool.treebank.drawing.style import LIGHT

_ESCAPES = str.maketrans(
    {
        **{character: f"\\{character}" for character in "%$#_{}"},
        "&": r"\symbol{38}",  # \& begins a column
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "`": r"\textasciigrave{}",
        "'": r"\textquotesingle{}",
        '"': r"\textquotedbl{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "[": "{[}",  # after a new line, it begins an option
    }
)
_MIRRORED = str.maketrans("()[]{}<>«»", ")(][}{><»«")
_LIGATURE = re.compile(r"([-,])(?=\1)")  # of ASCII, what becomes a dash or a quote

# scripts, by the first word of a letter's name in Unicode -> font, where it is not Noto Serif Name
_FONTS = {
    "ARABIC": "Noto Naskh Arabic",
    "CJK": "Noto Serif CJK SC",
    "CYRILLIC": "Noto Serif",
    "GREEK": "Noto Serif",
    "HANGUL": "Noto Serif CJK KR",
    "HIRAGANA": "Noto Serif CJK JP",
    "KATAKANA": "Noto Serif CJK JP",
}
_SHAPED = ("ARABIC", "BENGALI", "DEVANAGARI", "HEBREW", "TAMIL", "TELUGU", "THAI")
_NAMED = (*_FONTS, *_SHAPED, "ARMENIAN", "ETHIOPIC", "GEORGIAN")

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
% \treefont[options]{command}{font}: define the command before, by \newfontfamily, for another font
\newcommand{\treefont}[3][]{%
  \ifPDFTeX\PackageError{trees}{letters that pdflatex has not}{Use xelatex.}\fi
  \ifdefined#2\else\IfFontExistsTF{#3}{\newfontfamily#2{#3}[#1]}{%
    \PackageWarning{trees}{this font is not installed: #3}\let#2\relax}\fi}
\depstyle{tree}{theme=simple, text style={text height=2ex, text depth=0.4ex},
  edge unit distance=1.5ex}
\depstyle{wrong}{edge style={dep-wrong, thick}, label style={text=dep-wrong}}
\depstyle{differs}{edge style={dep-differs, thick}, label style={text=dep-differs}}
\depstyle{gold}{edge below, edge style={dep-gold, thick, dashed},
  label style={below, text=dep-gold}}
"""


def tikz_document(groups: Iterable[Group], *, beside: bool = False) -> Iterator[str]:
    """Give the document in pieces, a sentence each.

    Args:
        groups: the analyses of each sentence; where they have names, these stand above them.
        beside: they stand side by side; otherwise one over the other.
    """
    yield _PREAMBLE
    for kind in ("wrong", "differs", "gold"):
        yield f"\\definecolor{{dep-{kind}}}{{HTML}}{{{LIGHT[kind].lstrip('#').upper()}}}\n"
    yield "\\begin{document}\n"
    known: set[str] = set()
    for group in groups:
        first = group[0]
        about = " ".join(filter(None, (first.name, first.rank)))
        yield f"\n% {about}{': ' if about else ''}{first.text}\n"
        trees = [_dependency(sentence) for sentence in group]
        scripts = set(re.findall(r"\{\\tree([a-z]+) ", "".join(trees)))
        for script in sorted(scripts - known):
            name = script.upper()
            options = f"[Script={script.capitalize()}]" if name in _SHAPED else ""
            font = _FONTS.get(name, f"Noto Serif {script.capitalize()}")
            yield f"\\treefont{options}{{\\tree{script}}}{{{font}}}\n"
        known |= scripts
        inside = "\\qquad\n".join(trees)
        if not beside and len(trees) > 1:
            side = "r" if first.is_leftward else "l"
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
    return shown if script is None else f"{{\\tree{script.lower()} {shown}}}"


def _script_of(text: str) -> str | None:
    """Return the writing of the first letter that Latin Modern has not."""
    for character in text:
        if not character.isascii():
            script = unicodedata.name(character, "").partition(" ")[0]
            if script in _NAMED:
                return script
            # punctuation and letters as wide as ideographs, no emoji
            is_wide = unicodedata.east_asian_width(character) in ("W", "F")
            if is_wide and unicodedata.category(character) != "So":
                return "CJK"
    return None


def _dependency(sentence: MarkedSentence) -> str:
    """Return the environment of a tree; words from right to left stand in columns so."""
    num_words, leftward = len(sentence), sentence.is_leftward
    # LaTeX does not turn brackets round; a word that has letters says itself how they open
    forms = [
        form.translate(_MIRRORED)
        if leftward and is_leftward(form, True) and not is_leftward(form)
        else form
        for form in sentence.forms
    ]

    def column(word: int) -> int:
        return num_words + 1 - word if leftward else word

    def row(cells: Sequence[str]) -> str:
        return " \\& ".join(map(escaped, cells[::-1] if leftward else cells)) + " \\\\\n"

    lines = [
        "\\begin{dependency}[tree]\n\\begin{deptext}[column sep=1.5em]\n",
        row(forms),
        row(sentence.tags),
        "\\end{deptext}\n",
    ]
    for side in arcs_of(sentence):
        for arc in side:
            options = f"[{arc.kind}]" if arc.kind else ""
            ends = f"{{{column(arc.word)}}}{{{escaped(arc.relation)}}}\n"
            if arc.head:
                lines.append(f"\\depedge{options}{{{column(arc.head)}}}{ends}")
            else:
                lines.append(f"\\deproot{options}{ends}")
    for surface in sentence.surfaces:
        first, last = sorted((column(surface.first), column(surface.last)))
        lines.append(
            f"\\wordgroup{{2}}{{{first}}}{{{last}}}{{token{first}}}\n"
            f"\\node[below] at (token{first}.south) {{{escaped(surface.form)}}};\n"
        )
    if sentence.source:
        corner, anchor = ("east", "south east") if leftward else ("west", "south west")
        lines.append(
            f"\\node[anchor={anchor}] at (current bounding box.north {corner}) "
            f"{{{escaped(sentence.source)}}};\n"
        )
    return "".join([*lines, "\\end{dependency}\n"])
