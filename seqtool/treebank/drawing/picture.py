"""Sentences as SVG: words in a row, arcs from heads to dependents above them.

Or words stand below one another: the same arcs with axes exchanged, and relations behind the words.

An arc is as high as the arcs below it make it; where several meet at a word, they stand side by
side, the longest in the middle. A sentence written from right to left is drawn so. Arcs that are
wrong are red; the gold ones in their place are green, dashed, below the words. Arcs in which
several analyses differ are orange.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate
from typing import NamedTuple

from rich.cells import cell_len

from seqtool.treebank.drawing.marked import MarkedSentence, is_leftward
from seqtool.treebank.drawing.style import CLASS, STYLE

# pixels
MARGIN = 16.0
WORD_CELL, SMALL_CELL = 9.8, 7.2  # of a character of a word, and of a tag or relation
WORD_GAP = 16.0
LABEL_GAP = 18.0
SLOT = 7.0  # between two arcs that meet at a word
LEVEL = 24.0  # from an arc to one that passes over it
CORNER = 8.0
ARROW = 5.0
ROOT_ROOM = 34.0
FORM_LINE, TAG_LINE, SURFACE_LINE, HEADING_LINE = 22.0, 16.0, 26.0, 24.0
ROW, LEVEL_DOWN = 24.0, 12.0  # where words stand below one another


class Arc(NamedTuple):
    """An arc between two words, or from above to the root, whose head is 0; words from 1."""

    head: int
    word: int
    relation: str
    kind: str  # class of its style: "", wrong, gold, differs

    @property
    def ends(self) -> tuple[int, int]:
        """The two words, the first one first."""
        return min(self.head, self.word), max(self.head, self.word)

    @property
    def length(self) -> int:
        """Words from head to dependent; 0 for the root."""
        return abs(self.head - self.word) if self.head else 0


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing between (0, 0) and (width, height).

    Attributes:
        words: the elements of words, tags and multiword tokens.
        lines, labels: the elements of each arc, that of word 1 first, gold ones last.
        leftward: whether its reader begins at the right.
    """

    width: float
    height: float
    words: str
    lines: Sequence[str] = ()
    labels: Sequence[str] = ()
    leftward: bool = False

    @property
    def elements(self) -> str:
        """All of it; the ground of a relation covers the lines that pass below it."""
        return "\n".join([*self.lines, *self.labels, self.words])


def svg_document(
    groups: Iterable[Sequence[MarkedSentence]], *, beside: bool = False, down: bool = False
) -> Iterator[str]:
    """Give one SVG document with all sentences, one below another.

    Args:
        groups: the analyses of each sentence; where they have names, these stand above them.
        beside: the analyses of a sentence stand side by side, not one over the other.
        down: words stand below one another.
    """
    drawn = []
    for group in groups:
        whole = _arranged([draw(each, each.source, down=down) for each in group], beside)
        title = f"<title>{escape(group[0].text)}</title>\n"
        drawn.append(
            Picture(whole.width, whole.height, title + whole.words, (), (), whole.leftward)
        )
    whole = _arranged(drawn, False)
    yield (
        f"{opening_tag(whole.width, whole.height)}\n<style>\n{STYLE}\n</style>\n"
        f'<rect class="paper" width="100%" height="100%"/>\n{whole.words}</svg>\n'
    )


def _arranged(pictures: Sequence[Picture], beside: bool) -> Picture:
    """Return pictures as one, each where its reader begins: at the left edge or at the right."""
    widths, heights = [each.width for each in pictures], [each.height for each in pictures]
    width = sum(widths) if beside else max(widths, default=0)
    height = max(heights) if beside else sum(heights)
    left = top = 0.0
    elements = []
    for each in pictures:
        x = width - each.width - left if each.leftward else left
        place = f"translate({x:g} {top:g})"
        elements.append(f'<g transform="{place}">\n{each.elements}</g>\n')
        left, top = (left + each.width, top) if beside else (left, top + each.height)
    leftward = bool(pictures) and pictures[0].leftward
    return Picture(width, height, "".join(elements), (), (), leftward)


def opening_tag(width: float, height: float, label: str = "") -> str:
    """Return the tag that begins an SVG of this size in pixels; `label` is read aloud."""
    spoken = f' aria-label="{escape(label)}"' if label else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" class="{CLASS}"{spoken}>'
    )


def draw(sentence: MarkedSentence, heading: str = "", *, down: bool = False) -> Picture:
    """Return a sentence, with its heading if it has one; `down`: its words below one another."""
    if down:
        return _draw_down(sentence, heading)
    leftward = sentence.is_leftward
    arcs, gold = arcs_of(sentence)
    centres, width = _centres(sentence, arcs + gold)
    width = max(width, 1.3 * small_width(heading) + 2 * MARGIN if heading else 0.0)
    if leftward:
        centres = [width - centre for centre in centres]
    top = HEADING_LINE if heading else 0.0
    lines, labels, height = _draw_arcs(arcs, centres, leftward, top, -1)
    words, y = _draw_words(sentence, centres, top + height)
    if heading:
        x, side = (width - MARGIN, "ends") if leftward else (MARGIN, "starts")
        words.append(text_element(f"source {side}", x, top - 4, heading))
    if gold:
        gold_lines, gold_labels, height = _draw_arcs(gold, centres, leftward, y, 1)
        lines, labels, y = lines + gold_lines, labels + gold_labels, y + height
    drawn = "".join(f"{element}\n" for element in words)
    return Picture(width, y + MARGIN, drawn, lines, labels, leftward)


def _draw_down(sentence: MarkedSentence, heading: str) -> Picture:
    leftward = sentence.is_leftward
    arcs, gold = arcs_of(sentence)
    meeting = Counter(end for arc in arcs + gold for end in arc.ends)
    heights = [max(ROW, SLOT * (meeting[arc.word] + 1)) for arc in arcs]
    ends = list(accumulate(heights, initial=MARGIN + HEADING_LINE * bool(heading)))
    centres = [end - height / 2 for end, height in zip(ends[1:], heights, strict=True)]
    lines, _, x = _draw_arcs(arcs, centres, False, 0, -1, LEVEL_DOWN)
    ring = x + 3
    x += 8
    corrected = {arc.word: arc.relation for arc in gold}
    columns: list[tuple[str, float, Sequence[str]]] = []
    for kind, texts in (
        ("form", sentence.forms),
        ("tag", sentence.tags),
        ("relation", sentence.relations),
        ("relation gold", [corrected.get(arc.word, "") for arc in arcs]),
    ):
        columns.append((kind, x, texts))
        cells = max(map(cell_len, texts))
        x += (WORD_CELL if kind == "form" else SMALL_CELL) * cells + WORD_GAP * bool(cells)
    surfaces_x = x + 10
    for token in sentence.surfaces:
        first, last = centres[token.first - 1] - 8, centres[token.last - 1] + 8
        lines.append(f'<path class="bracket" d="M{first:g} {x:g}v4H{last:g}v-4"/>')
    forms = [WORD_CELL * cell_len(token.form) + 2 * WORD_GAP for token in sentence.surfaces]
    x += max(forms, default=0)
    if gold:
        gold_lines, _, depth = _draw_arcs(gold, centres, False, x, 1, LEVEL_DOWN)
        lines, x = lines + gold_lines, x + depth
    width = max(x + MARGIN, 1.3 * small_width(heading) + 2 * MARGIN)
    # y of arcs becomes x, from the edge where the reader begins
    turned = f"matrix(0 1 {-1 if leftward else 1} 0 {width if leftward else 0:g} 0)"

    def cell(kind: str, place: float, y: float, text: str) -> str:
        side = "starts" if is_leftward(text, leftward) == leftward else "ends"
        at = width - place if leftward else place
        return text_element(f"{kind} {side}", at, y, text, leftward)

    words = [cell("source", MARGIN, MARGIN + 6, heading)] if heading else []
    for word, (arc, y) in enumerate(zip(arcs, centres, strict=True)):
        shown = "".join(
            cell(f"{kind} {arc.kind}" if kind == "relation" else kind, place, y + 5, column[word])
            for kind, place, column in columns
            if column[word]
        )
        words.append(
            f'<g class="word" data-w="{arc.word}"><rect class="ring" transform="{turned}" rx="5" '
            f'x="{y - 11:g}" y="{ring:g}" width="22" height="{columns[2][1] - 8 - ring:g}"/>'
            f"{shown}</g>"
        )
    for token in sentence.surfaces:
        y = (centres[token.first - 1] + centres[token.last - 1]) / 2 + 5
        words.append(cell("surface", surfaces_x, y, token.form))
    lines = [f'<g transform="{turned}">', *lines, "</g>"]
    drawn = "".join(f"{element}\n" for element in words)
    return Picture(width, ends[-1] + MARGIN, drawn, lines, (), leftward)


def arcs_of(sentence: MarkedSentence) -> tuple[list[Arc], list[Arc]]:
    """Return the arcs of a sentence, and the gold ones where it is wrong."""
    arcs, gold = [], []
    for word, head in enumerate(sentence.heads, start=1):
        correction = sentence.correction(word)
        arcs.append(Arc(head, word, sentence.relations[word - 1], sentence.kind(word)))
        if correction is not None:
            gold.append(Arc(correction[0], word, correction[1], "gold"))
    return arcs, gold


def small_width(text: str) -> float:
    """Return about how wide a tag or a relation is, in pixels."""
    return SMALL_CELL * cell_len(text)


def _centres(sentence: MarkedSentence, arcs: Sequence[Arc]) -> tuple[list[float], float]:
    """Return where the middle of each word is, left to right, and the width of all.

    Words are as far apart as they and the relations of the arcs between them need.
    """
    meeting = Counter(end for arc in arcs for end in arc.ends)
    widths = [
        max(WORD_CELL * cell_len(form), small_width(tag), SLOT * meeting[word])
        for word, (form, tag) in enumerate(zip(sentence.forms, sentence.tags, strict=True), start=1)
    ]
    ending: list[list[Arc]] = [[] for _ in widths]  # at their second word
    for arc in arcs:
        if arc.head:
            ending[arc.ends[1] - 1].append(arc)
        else:
            widths[arc.word - 1] = max(widths[arc.word - 1], small_width(arc.relation))
    for surface in sentence.surfaces:
        # the last word makes room for what its multiword token has more than its words
        own = sum(widths[surface.first - 1 : surface.last])
        widths[surface.last - 1] += max(0.0, WORD_CELL * cell_len(surface.form) - own)
    centres: list[float] = []
    end = MARGIN - WORD_GAP
    for word, width in enumerate(widths, start=1):
        centre = end + WORD_GAP + width / 2
        for arc in ending[word - 1]:
            other = arc.ends[0]
            # from the slot in the middle of the one to that of the other, at worst
            slots = SLOT * (meeting[word] + meeting[other]) / 2
            needed = small_width(arc.relation) + LABEL_GAP + slots
            centre = max(centre, centres[other - 1] + needed)
        centres.append(centre)
        end = centre + width / 2
    return centres, end + MARGIN


def _levels(arcs: Sequence[Arc], num_words: int) -> list[int]:
    """Return how high each arc is, from 1 on: one more than the highest that it passes over.

    Of arcs that cross, the longer one passes over the other. An arc to the root begins above all.
    """
    heights = [0] * (num_words + 1)  # over the gap after each word
    levels = [0] * len(arcs)
    for i in sorted(range(len(arcs)), key=lambda i: arcs[i].length):
        if arcs[i].head:
            first, last = arcs[i].ends
            levels[i] = 1 + max(heights[first:last])
            heights[first:last] = [levels[i]] * (last - first)
    top = max((0, *levels))
    return [level if arc.head else top for arc, level in zip(arcs, levels, strict=True)]


def _slots(
    arcs: Sequence[Arc], centres: Sequence[float], step: float
) -> dict[tuple[int, int], float]:
    """Return where the arc of a number meets a word: (number of the arc, word) -> x.

    The shorter an arc is, the farther out, on the side to which it leads: so it ends below the
    longer ones without crossing them. An arc to the root stands between the two sides.
    """
    meeting: list[list[tuple[float, int]]] = [[] for _ in centres]
    for i, arc in enumerate(arcs):
        if not arc.head:
            meeting[arc.word - 1].append((0.0, i))
            continue
        for end, sign in zip(arc.ends, (1, -1), strict=True):
            meeting[end - 1].append((sign / arc.length, i))
    return {
        (i, word): centre + step * (place - (len(ends) - 1) / 2)
        for word, (centre, ends) in enumerate(zip(centres, meeting, strict=True), start=1)
        for place, (_, i) in enumerate(sorted(ends))
    }


def _draw_arcs(
    arcs: Sequence[Arc],
    centres: Sequence[float],
    leftward: bool,
    top: float,
    direction: int,
    step: float = LEVEL,
) -> tuple[list[str], list[str], float]:
    """Return the lines of the arcs on one side of the words, their relations, and their height.

    Args:
        arcs: on this side.
        centres: of the words.
        leftward: whether words, and so the arcs that meet at one, run to the left.
        top: the upper edge of the side.
        direction: -1 for arcs above the words, 1 for arcs below them.
        step: from an arc to one that passes over it.
    """
    levels = _levels(arcs, len(centres))
    height = ROOT_ROOM + step * max((0, *levels))
    base = top + height if direction < 0 else top
    slots = _slots(arcs, centres, -SLOT if leftward else SLOT)
    lines, labels = [], []
    for i, (arc, level) in enumerate(zip(arcs, levels, strict=True)):
        x = middle = slots[i, arc.word]
        far = base + direction * (step * level + (4 if arc.head else ROOT_ROOM - 16))
        line = f"M{x:g} {far:g}"
        if arc.head:
            start = slots[i, arc.head]
            middle = (start + x) / 2
            bend = CORNER if start < x else -CORNER
            turn = far - direction * CORNER
            line = (
                f"M{start:g} {base:g}V{turn:g}Q{start:g} {far:g} {start + bend:g} {far:g}"
                f"H{x - bend:g}Q{x:g} {far:g} {x:g} {turn:g}"
            )
        tip = f"M{x:g} {base:g}l{ARROW / 2 + 1:g} {direction * (ARROW + 3):g}h{-ARROW - 2:g}z"
        kind = f' class="{arc.kind}"' if arc.kind else ""
        lines.append(
            f'<g{kind} data-w="{arc.word}" data-h="{arc.head}">'
            f'<path class="arc" d="{line}V{base + direction * ARROW:g}"/>'
            f'<path class="arrow" d="{tip}"/></g>'
        )
        feet = far + (-4 if direction < 0 else 12)
        wide, style = small_width(arc.relation), f"relation {arc.kind}".rstrip()
        labels.append(
            f'<rect class="paper" x="{middle - wide / 2:g}" y="{feet - 9:g}" width="{wide:g}" '
            f'height="11"/>{text_element(style, middle, feet, arc.relation)}'
        )
    return lines, labels, height


def _draw_words(
    sentence: MarkedSentence, centres: Sequence[float], base: float
) -> tuple[list[str], float]:
    """Return the elements of words, tags and multiword tokens, and how far down they reach."""
    elements = []
    leftward, y = sentence.is_leftward, base + FORM_LINE
    words = zip(centres, sentence.forms, sentence.tags, strict=True)
    for number, (centre, form, tag) in enumerate(words, start=1):
        half = max(WORD_CELL * cell_len(form), small_width(tag)) / 2 + 5
        elements.append(
            f'<g class="word" data-w="{number}"><rect class="ring" x="{centre - half:g}" '
            f'y="{y - 17:g}" width="{2 * half:g}" height="40" rx="5"/>'
            f"{text_element('form', centre, y, form, leftward)}"
            f"{text_element('tag', centre, y + TAG_LINE, tag)}</g>"
        )
    y += TAG_LINE + 8
    for surface in sentence.surfaces:
        left, right = sorted((centres[surface.first - 1], centres[surface.last - 1]))
        elements.append(f'<path class="bracket" d="M{left - 6:g} {y:g}v4H{right + 6:g}v-4"/>')
        elements.append(text_element("surface", (left + right) / 2, y + 18, surface.form, leftward))
    return elements, y + (SURFACE_LINE if sentence.surfaces else 0)


def text_element(kind: str, x: float, y: float, text: str, leftward: bool = False) -> str:
    """Return a text; `leftward` turns brackets round where no letter says which way they open."""
    direction = ' direction="rtl"' if is_leftward(text, leftward) else ""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}"{direction}>{escape(text)}</text>'
