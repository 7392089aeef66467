"""A sentence as a picture (SVG): its words in a row, arcs from heads to dependents above them.

An arc is as high as the arcs below it make it; where several meet at a word, they stand side by
side, the longest in the middle. A sentence written from right to left is drawn so. Arcs that are
wrong are red; the gold ones in their place are green, dashed, below the words. Arcs in which
several analyses differ are orange. Colours are those of a light or a dark ground, as the reader's
screen has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import NamedTuple

from rich.cells import cell_len

from seqtool.treebank.drawing.marked import MarkedSentence, is_leftward
from seqtool.treebank.drawing.style import CLASS

# pixels
MARGIN = 16.0
WORD_CELL, SMALL_CELL = 9.8, 7.2  # of a character of a word, and of a tag or relation
WORD_GAP = 16.0
LABEL_GAP = 18.0
LABEL_RISE = 4.0  # from an arc to the feet of its relation, which stands above it
LABEL_HEIGHT = 11.0
SLOT = 7.0  # between two arcs that meet at a word
LEVEL = 24.0
CORNER = 8.0
ARROW = 5.0
ROOT_ROOM = 34.0
FORM_LINE, TAG_LINE, SURFACE_LINE = 22.0, 16.0, 26.0


@dataclass(frozen=True, slots=True)
class Arc:
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
        """Words from head to dependent."""
        return abs(self.head - self.word) if self.head else 0


class PlacedArc(NamedTuple):
    """An arc with its place: where it leaves its head (None without one) and meets its word.

    Its relation stands at `middle`; `level` says how high it is, from 1 on.
    """

    arc: Arc
    start: float | None
    end: float
    middle: float
    level: int


@dataclass(frozen=True, slots=True)
class Picture:
    """Drawn elements between (0, 0) and (width, height)."""

    width: float
    height: float
    elements: str
    title: str = ""  # the text of the sentence
    leftward: bool = False  # whether its reader begins at the right


@dataclass(frozen=True, slots=True)
class Stages:
    """A sentence whose tree grows: all arcs have the places that they have in the whole tree.

    Attributes:
        width, height: of the whole.
        words: the elements of the words, tags and multiword tokens.
        arcs: the elements of each arc, that of word 1 first.
        spans: left and right end of each word.
        base: how far down the arcs end.
    """

    width: float
    height: float
    words: str
    arcs: list[str]
    spans: list[tuple[float, float]]
    base: float


def opening_tag(width: float, height: float, kind: str = CLASS, label: str = "") -> str:
    """Return the tag that begins an SVG of this size.

    Args:
        width: in pixels.
        height: in pixels.
        kind: its class.
        label: what is read to those who do not see it.
    """
    spoken = f' aria-label="{escape(label)}"' if label else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" class="{kind}"{spoken}>'
    )


def draw(sentence: MarkedSentence) -> Picture:
    """Return the picture of a sentence."""
    arcs, gold_arcs = arcs_of(sentence)
    centres, width, leftward = place_words(sentence, arcs + gold_arcs)
    placed, placed_gold = (place_arcs(side, centres, leftward) for side in (arcs, gold_arcs))
    base = _height_of(placed)
    lines, labels = _draw_arcs(placed, base, -1)
    elements = [*lines, *labels]
    word_elements, y = _draw_words(sentence, centres, base, leftward)
    elements += word_elements
    if gold_arcs:
        lines, labels = _draw_arcs(placed_gold, y, 1)
        elements += lines + labels
        y += _height_of(placed_gold)
    drawn = "".join(f"{element}\n" for element in elements)
    return Picture(width, y + MARGIN, drawn, sentence.text, leftward)


def draw_stages(sentence: MarkedSentence) -> Stages:
    """Return the picture of a sentence with each arc by itself; no gold arcs are drawn."""
    arcs = [
        Arc(head, word, sentence.relations[word - 1], "")
        for word, head in enumerate(sentence.heads, start=1)
    ]
    centres, width, leftward = place_words(sentence, arcs)
    placed = place_arcs(arcs, centres, leftward)
    base = _height_of(placed)
    lines, labels = _draw_arcs(placed, base, -1)
    words, y = _draw_words(sentence, centres, base, leftward)
    halves = [WORD_CELL * cell_len(form) / 2 for form in sentence.forms]
    return Stages(
        width=width,
        height=y + MARGIN,
        words="".join(f"{element}\n" for element in words),
        arcs=[f"{line}{label}\n" for line, label in zip(lines, labels, strict=True)],
        spans=[
            (centre - half, centre + half) for centre, half in zip(centres, halves, strict=True)
        ],
        base=base,
    )


def _draw_words(
    sentence: MarkedSentence, centres: list[float], base: float, leftward: bool
) -> tuple[list[str], float]:
    """Return the elements of words, tags and multiword tokens, and how far down they reach."""
    elements = []
    y = base + FORM_LINE
    words = zip(centres, sentence.forms, sentence.tags, strict=True)
    for number, (centre, form, tag) in enumerate(words, start=1):
        half = max(WORD_CELL * cell_len(form), small_width(tag)) / 2 + 5
        elements.append(
            f'<g class="word" data-w="{number}">{ring(centre - half, y - 17, 2 * half, 40)}'
            f"{text_element('form', centre, y, form, leftward)}"
            f"{text_element('tag', centre, y + TAG_LINE, tag)}</g>"
        )
    y += TAG_LINE + 8
    if sentence.surfaces:
        for surface in sentence.surfaces:
            left, right = sorted((centres[surface.first - 1], centres[surface.last - 1]))
            elements.append(f'<path class="bracket" d="M{left - 6:g} {y:g}v4H{right + 6:g}v-4"/>')
            middle = (left + right) / 2
            elements.append(text_element("surface", middle, y + 18, surface.form, leftward))
        y += SURFACE_LINE
    return elements, y


def arcs_of(sentence: MarkedSentence) -> tuple[list[Arc], list[Arc]]:
    """Return the arcs of a sentence, and the gold ones where it is wrong."""
    arcs, gold_arcs = [], []
    for word, head in enumerate(sentence.heads, start=1):
        correction = sentence.correction(word)
        arcs.append(Arc(head, word, sentence.relations[word - 1], sentence.kind(word)))
        if correction is not None:
            gold_arcs.append(Arc(correction[0], word, correction[1], "gold"))
    return arcs, gold_arcs


def place_words(sentence: MarkedSentence, arcs: list[Arc]) -> tuple[list[float], float, bool]:
    """Return the middle of each word, the width of all, and whether they run to the left."""
    centres, width = _centres(sentence, arcs)
    leftward = is_leftward(sentence.text)
    return [width - centre for centre in centres] if leftward else centres, width, leftward


def _centres(sentence: MarkedSentence, arcs: list[Arc]) -> tuple[list[float], float]:
    """Return where the middle of each word is, left to right, and the width of all.

    Words are as far apart as they and the relations of the arcs between them need.
    """
    num_words = len(sentence)
    meeting = [0] * (num_words + 1)
    ending: list[list[Arc]] = [[] for _ in range(num_words + 1)]  # at their second word
    label_widths = [0.0] * (num_words + 1)  # of the relations written above the word itself
    for arc in arcs:
        meeting[arc.word] += 1
        if arc.head:
            meeting[arc.head] += 1
            ending[arc.ends[1]].append(arc)
        else:
            label_widths[arc.word] = max(label_widths[arc.word], small_width(arc.relation))
    widths = [
        max(WORD_CELL * cell_len(form), small_width(tag), SLOT * meeting[word], label_widths[word])
        for word, (form, tag) in enumerate(zip(sentence.forms, sentence.tags, strict=True), start=1)
    ]
    for surface in sentence.surfaces:
        # the last word makes room for what its multiword token has more than its words
        own = sum(widths[surface.first - 1 : surface.last])
        widths[surface.last - 1] += max(0.0, WORD_CELL * cell_len(surface.form) - own)
    crossed = _crossed(arcs)
    centres: list[float] = []
    end = MARGIN - WORD_GAP
    for word, width in enumerate(widths, start=1):
        centre = end + WORD_GAP + width / 2
        for arc in ending[word]:
            other = arc.ends[0]
            # from the slot in the middle of the one to that of the other, at worst
            slots = SLOT * (meeting[word] + meeting[other]) / 2
            needed = small_width(arc.relation) + LABEL_GAP + slots
            centre = max(centre, centres[other - 1] + needed)
            if arc in crossed:
                centre = max(centre, _room_for(arc, centres, meeting))
        centres.append(centre)
        end = centre + width / 2
    return centres, end + MARGIN


def _crossed(arcs: Sequence[Arc]) -> set[Arc]:
    """Return the arcs that others cross: from inside them to outside."""
    return {
        arc
        for arc in arcs
        if arc.head
        for low, high in (arc.ends,)
        if any(
            (low < other.word < high and not low <= other.head <= high)
            or (low < other.head < high and not low <= other.word <= high)
            for other in arcs
        )
    }


def _room_for(arc: Arc, centres: Sequence[float], meeting: Sequence[int]) -> float:
    """Return where the second word of a crossed arc is at least.

    Between two words no line goes up or down. There must be two, the last ones if no others, that
    are far enough apart for the relation.

    Args:
        arc: crossed by others.
        centres: of the words before its second one.
        meeting: the number of arcs at each word, that of word 1 at place 1.
    """
    first, last = arc.ends
    width = small_width(arc.relation) + LABEL_GAP

    def taken(word: int) -> float:
        return SLOT * (meeting[word] + meeting[word + 1]) / 2

    if any(
        centres[word] - centres[word - 1] >= width + taken(word) for word in range(first, last - 1)
    ):
        return 0.0
    return centres[last - 2] + width + taken(last - 1)


def small_width(text: str) -> float:
    """Return about how wide a tag or a relation is."""
    return SMALL_CELL * cell_len(text)


def levels_of(arcs: list[Arc], num_words: int) -> list[int]:
    """Return how high each arc is, from 1 on: one more than the highest that it passes over.

    Arcs that cross count as passed over too, by the longer one, so that their tops lie apart. An
    arc to the root begins above all.
    """
    heights = [0] * (num_words + 1)  # over the gap after each word
    levels = [0] * len(arcs)
    for i in sorted(range(len(arcs)), key=lambda i: arcs[i].length):
        arc = arcs[i]
        if not arc.head:
            continue
        first, last = arc.ends
        levels[i] = 1 + max(heights[first:last])
        heights[first:last] = [levels[i]] * (last - first)
    top = max((0, *levels))
    return [level if arc.head else top for arc, level in zip(arcs, levels, strict=True)]


def place_arcs(arcs: list[Arc], centres: list[float], leftward: bool) -> list[PlacedArc]:
    """Return the arcs of one side with their places.

    Args:
        arcs: on one side of the words.
        centres: of the words.
        leftward: words, and so the arcs that meet at one, run to the left.
    """
    levels = levels_of(arcs, len(centres))
    slots = _slots(arcs, centres, -SLOT if leftward else SLOT)
    return [
        PlacedArc(
            arc,
            start=slots[i, arc.head] if arc.head else None,
            end=slots[i, arc.word],
            middle=_label_place(i, arcs, levels, slots) if arc.head else slots[i, arc.word],
            level=levels[i],
        )
        for i, arc in enumerate(arcs)
    ]


def rise_of(placed: PlacedArc) -> float:
    """Return how high an arc is."""
    return LEVEL * placed.level + (4 if placed.arc.head else ROOT_ROOM - 16)


def _height_of(arcs: list[PlacedArc]) -> float:
    """Return how high all arcs of one side are, with their relations."""
    return ROOT_ROOM + LEVEL * max((0, *(placed.level for placed in arcs)))


def _draw_arcs(arcs: list[PlacedArc], base: float, direction: int) -> tuple[list[str], list[str]]:
    """Return the lines of the arcs on one side of the words, and their relations.

    They meet the words at height `base`. A relation stands above its arc, beside the lines that go
    farther up; see `_label_place`. The direction is -1 for arcs above the words, 1 for arcs below
    them.
    """
    lines, labels = [], []
    for placed in arcs:
        arc, start, x = placed.arc, placed.start, placed.end
        top = base + direction * rise_of(placed)
        tip = f"M{x:g} {base:g}l{ARROW / 2 + 1:g} {direction * (ARROW + 3):g}h{-ARROW - 2:g}z"
        if start is not None:
            bend = CORNER if start < x else -CORNER
            line = (
                f"M{start:g} {base:g}V{top - direction * CORNER:g}"
                f"Q{start:g} {top:g} {start + bend:g} {top:g}"
                f"H{x - bend:g}Q{x:g} {top:g} {x:g} {top - direction * CORNER:g}"
                f"V{base + direction * ARROW:g}"
            )
            label_y = top - LABEL_RISE if direction < 0 else top + LABEL_HEIGHT
        else:
            line = f"M{x:g} {top:g}V{base + direction * ARROW:g}"
            label_y = top + (-4 if direction < 0 else 12)
        lines.append(arc_element(arc, line, tip))
        kind = f"relation {arc.kind}".rstrip()
        labels.append(text_element(kind, placed.middle, label_y, arc.relation))
    return lines, labels


def arc_element(arc: Arc, line: str, tip: str) -> str:
    """Return the line of an arc and its tip, both given as paths."""
    kind = f' class="{arc.kind}"' if arc.kind else ""
    return (
        f'<g{kind} data-w="{arc.word}" data-h="{arc.head}"><path class="arc" d="{line}"/>'
        f'<path class="arrow" d="{tip}"/></g>'
    )


def ring(x: float, y: float, width: float, height: float) -> str:
    """Return what shows that a word was found, or is looked at."""
    return f'<rect class="ring" x="{x:g}" y="{y:g}" width="{width:g}" height="{height}" rx="5"/>'


def _label_place(
    number: int, arcs: list[Arc], levels: list[int], slots: dict[tuple[int, int], float]
) -> float:
    """Return the middle of the relation of an arc: that of the arc, if no line goes up there."""
    arc = arcs[number]
    left, right = sorted((slots[number, arc.head], slots[number, arc.word]))
    # in a projective tree, nothing that is inside an arc leads to what is outside
    ups = sorted(
        slots[i, end]
        for i, other in enumerate(arcs)
        if i != number and (levels[i] > levels[number] or not other.head)
        for end in (other.head, other.word)
        if end and left < slots[i, end] < right
    )
    half, middle = small_width(arc.relation) / 2 + 3, (left + right) / 2
    free = [
        min(max(middle, low + half), high - half)
        for low, high in pairwise([left, *ups, right])
        if high - low >= 2 * half
    ]
    return min(free, key=lambda place: abs(place - middle), default=middle)


def _slots(arcs: list[Arc], centres: list[float], step: float) -> dict[tuple[int, int], float]:
    """Return where the arc of a number meets a word: (number of the arc, word) -> x."""
    return {
        (i, word): centres[word - 1] + step * (place - (len(found) - 1) / 2)
        for word, found in enumerate(meetings(arcs, len(centres)))
        for place, i in enumerate(found)
    }


def meetings(arcs: Sequence[Arc], num_words: int) -> list[list[int]]:
    """Return the numbers of the arcs that meet at each word, in the order in which they stand.

    The shorter an arc is, the farther out, on the side to which it leads: so it ends below the
    longer ones without crossing them. What belongs to word 1 is at place 1.
    """
    meeting: list[list[tuple[float, int]]] = [[] for _ in range(num_words + 1)]
    for i, arc in enumerate(arcs):
        if not arc.head:
            meeting[arc.word].append((0.0, i))  # between those to the left and to the right
            continue
        first, last = arc.ends
        meeting[first].append((1 / arc.length, i))
        meeting[last].append((-1 / arc.length, i))
    return [[i for _, i in sorted(found)] for found in meeting]


def text_element(kind: str, x: float, y: float, text: str, leftward: bool = False) -> str:
    """Return a text; `leftward` turns brackets round where no letter says which way they open."""
    direction = ' direction="rtl"' if is_leftward(text, leftward) else ""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}"{direction}>{escape(text)}</text>'
