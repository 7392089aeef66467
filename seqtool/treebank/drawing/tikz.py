"""Trees as a LaTeX document for the package tikz-dependency (Pighin 2012).

Each tree is an environment of its own, to be copied into a paper. LuaLaTeX and XeLaTeX read text of
any writing; a font that has its letters is set in the preamble.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from seqtool.treebank.drawing.marked import Group, MarkedSentence, turned
from seqtool.treebank.drawing.picture import arcs_of
from seqtool.treebank.drawing.style import LIGHT

_SPECIAL = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    # ligatures and quotes that LaTeX makes of ASCII
    **{character: f"{{{character}}}" for character in "-`',<>\"?!|"},
}
_ESCAPES = str.maketrans(_SPECIAL)

_PREAMBLE = r"""% lualatex or xelatex FILE; every tree is a page
\documentclass[tikz, border=4pt]{standalone}
\usepackage{fontspec} % \setmainfont{...} for letters that the standard font has not
\usepackage{tikz-dependency}
"""


def tikz_document(groups: Iterable[Group]) -> Iterator[str]:
    """Give the document in pieces, a sentence each."""
    yield _PREAMBLE
    for name, colour in (("wrong", LIGHT.wrong), ("gold", LIGHT.gold), ("differs", LIGHT.differs)):
        dashes = ", dashed" if name == "gold" else ""
        yield f"\\definecolor{{dep-{name}}}{{HTML}}{{{colour.lstrip('#').upper()}}}\n"
        yield (
            f"\\depstyle{{{name}}}{{edge style={{dep-{name}, thick{dashes}}}, "
            f"label style={{text=dep-{name}}}}}\n"
        )
    yield "\\begin{document}\n"
    for group in groups:
        for sentence in group:
            yield _dependency(sentence)
    yield "\\end{document}\n"


def escaped(text: str) -> str:
    r"""Return a text as LaTeX shows it.

    >>> print(escaped("50% of A_1"))
    50\% of A\_1
    """
    return text.translate(_ESCAPES)


def _dependency(sentence: MarkedSentence) -> str:
    """Return the environment of a tree; words from right to left stand in columns so."""
    num_words = len(sentence)
    columns = list(range(num_words))
    forms = sentence.forms
    if sentence.is_leftward:
        columns.reverse()
        forms = [turned(form) for form in forms]
    place = {word + 1: column for column, word in enumerate(columns, start=1)}

    def row(cells: Sequence[str]) -> str:
        return r" \& ".join(escaped(cells[word]) for word in columns) + " \\\\\n"

    about = " ".join(filter(None, (sentence.name, sentence.source, sentence.rank)))
    lines = [f"\n% {about}: {sentence.text}\n" if about else f"\n% {sentence.text}\n"]
    lines.append("\\begin{dependency}[theme=simple]\n\\begin{deptext}[column sep=0.8em]\n")
    lines += [row(forms), row(sentence.tags)]
    lines.append("\\end{deptext}\n")
    arcs, gold_arcs = arcs_of(sentence)
    for arc in arcs + gold_arcs:
        below = "edge below" if arc.kind == "gold" and arc.head else ""
        options = ", ".join(filter(None, (arc.kind, below)))
        shown = f"[{options}]" if options else ""
        label, word = escaped(arc.relation), place[arc.word]
        if arc.head:
            lines.append(f"\\depedge{shown}{{{place[arc.head]}}}{{{word}}}{{{label}}}\n")
        else:
            lines.append(f"\\deproot{shown}{{{word}}}{{{label}}}\n")
    for surface in sentence.surfaces:
        first, last = sorted((place[surface.first], place[surface.last]))
        name = f"t{surface.first}"
        lines.append(f"\\wordgroup{{1}}{{{first}}}{{{last}}}{{{name}}} % {surface.form}\n")
    lines.append("\\end{dependency}\n")
    return "".join(lines)
