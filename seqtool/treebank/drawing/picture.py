"""A sentence as a picture (SVG): its words in a row, arcs from heads to dependents above them.

An arc is as high as the arcs below it make it; where several meet at a word, they stand side by
side, the longest in the middle. A sentence written from right to left is drawn so. Arcs that are
wrong are red; the gold ones in their place are green, dashed, below the words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape

from rich.cells import cell_len

from seqtool.treebank.drawing.marked import MarkedSentence, is_leftward

# pixels
MARGIN = 16.0
WORD_CELL, SMALL_CELL = 9.8, 6.8  # of a character of a word, and of a tag or relation
WORD_GAP = 16.0
LABEL_GAP = 18.0
SLOT = 7.0  # between two arcs that meet at a word
LEVEL = 24.0
CORNER = 8.0
ARROW = 5.0
ROOT_ROOM = 34.0
FORM_LINE, TAG_LINE, SURFACE_LINE = 22.0, 16.0, 26.0

STYLE = """
text { font-family: sans-serif; text-anchor: middle; fill: #1a1a1a }
.form { font-size: 16px }
.tag, .relation, .surface { font-size: 11px }
.tag { fill: #666 }
.surface { font-size: 13px; fill: #444 }
.relation { paint-order: stroke; stroke: #fff; stroke-width: 5px }
.arc, .bracket { fill: none; stroke: #666; stroke-width: 1.2 }
.arrow { fill: #666 }
.wrong .arc { stroke: #c62828; stroke-width: 1.6 }
.wrong .arrow, .wrong .relation { fill: #c62828 }
.gold .arc { stroke: #2e7d32; stroke-dasharray: 4 3 }
.gold .arrow, .gold .relation { fill: #2e7d32 }
""".strip()


@dataclass(frozen=True, slots=True)
class Arc:
    """An arc between two words, or from above to the root, whose head is 0; words from 1."""

    head: int
    word: int
    relation: str
    kind: str  # class of its style: "", wrong, gold

    @property
    def ends(self) -> tuple[int, int]:
        """The two words, the first one first."""
        return min(self.head, self.word), max(self.head, self.word)

    @property
    def length(self) -> int:
        """Words from head to dependent."""
        return abs(self.head - self.word) if self.head else 0


@dataclass(frozen=True, slots=True)
class Picture:
    """Drawn elements between (0, 0) and (width, height)."""

    width: float
    height: float
    elements: str


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


def svg_picture(sentences: Iterable[MarkedSentence]) -> Iterator[str]:
    """Give one SVG document with all sentences, one below another."""
    pictures = [draw(sentence) for sentence in sentences]
    width = max((picture.width for picture in pictures), default=0)
    height = sum(picture.height for picture in pictures)
    yield f"{opening_tag(width, height)}\n<style>\n{STYLE}\n</style>\n"
    yield '<rect width="100%" height="100%" fill="#fff"/>\n'
    top = 0.0
    for picture in pictures:
        yield f'<g transform="translate(0 {top:g})">\n{picture.elements}</g>\n'
        top += picture.height
    yield "</svg>\n"


def opening_tag(width: float, height: float, kind: str = "") -> str:
    """Return the tag that begins an SVG of this size; `kind` is its class, if it has one."""
    of_kind = f' class="{kind}"' if kind else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}"{of_kind}>'
    )


def style_inside(kind: str) -> str:
    """Return `STYLE` for what stands inside an element of a class, and for nothing else."""
    rules = (rule.partition(" {") for rule in STYLE.splitlines())
    return "\n".join(
        ", ".join(f".{kind} {selector}" for selector in selectors.split(", ")) + " {" + rest
        for selectors, _, rest in rules
    )


def draw(sentence: MarkedSentence) -> Picture:
    """Return the picture of a sentence."""
    arcs, gold_arcs = _arcs(sentence)
    centres, width, leftward = _placed(sentence, arcs + gold_arcs)
    step = -SLOT if leftward else SLOT
    levels, gold_levels = _levels(arcs, len(sentence)), _levels(gold_arcs, len(sentence))
    base = ROOT_ROOM + LEVEL * max((0, *levels))
    lines, labels = _draw_arcs(arcs, levels, centres, step, base, -1)
    elements = [f"<title>{escape(sentence.text)}</title>", *lines, *labels]
    word_elements, y = _draw_words(sentence, centres, base, leftward)
    elements += word_elements
    if gold_arcs:
        lines, labels = _draw_arcs(gold_arcs, gold_levels, centres, step, y, 1)
        elements += lines + labels
        y += ROOT_ROOM + LEVEL * max(gold_levels)
    return Picture(width, y + MARGIN, "".join(f"{element}\n" for element in elements))


def draw_stages(sentence: MarkedSentence) -> Stages:
    """Return the picture of a sentence with each arc by itself; no gold arcs are drawn."""
    arcs = [
        Arc(head, word, sentence.relations[word - 1], "")
        for word, head in enumerate(sentence.heads, start=1)
    ]
    centres, width, leftward = _placed(sentence, arcs)
    levels = _levels(arcs, len(sentence))
    base = ROOT_ROOM + LEVEL * max((0, *levels))
    lines, labels = _draw_arcs(arcs, levels, centres, -SLOT if leftward else SLOT, base, -1)
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
    for centre, form, tag in zip(centres, sentence.forms, sentence.tags, strict=True):
        elements.append(text_element("form", centre, y, form, leftward))
        elements.append(text_element("tag", centre, y + TAG_LINE, tag))
    y += TAG_LINE + 8
    if sentence.surfaces:
        for surface in sentence.surfaces:
            left, right = sorted((centres[surface.first - 1], centres[surface.last - 1]))
            elements.append(f'<path class="bracket" d="M{left - 6:g} {y:g}v4H{right + 6:g}v-4"/>')
            middle = (left + right) / 2
            elements.append(text_element("surface", middle, y + 18, surface.form, leftward))
        y += SURFACE_LINE
    return elements, y


def _arcs(sentence: MarkedSentence) -> tuple[list[Arc], list[Arc]]:
    """Return the arcs of a sentence, and the gold ones where it is wrong."""
    arcs, gold_arcs = [], []
    for word, head in enumerate(sentence.heads, start=1):
        correction = sentence.correction(word)
        kind = "" if correction is None else "wrong"
        arcs.append(Arc(head, word, sentence.relations[word - 1], kind))
        if correction is not None:
            gold_arcs.append(Arc(correction[0], word, correction[1], "gold"))
    return arcs, gold_arcs


def _placed(sentence: MarkedSentence, arcs: list[Arc]) -> tuple[list[float], float, bool]:
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
            label_widths[arc.word] = max(label_widths[arc.word], _small_width(arc.relation))
    widths = [
        max(WORD_CELL * cell_len(form), _small_width(tag), SLOT * meeting[word], label_widths[word])
        for word, (form, tag) in enumerate(zip(sentence.forms, sentence.tags, strict=True), start=1)
    ]
    for surface in sentence.surfaces:
        # the last word makes room for what its multiword token has more than its words
        own = sum(widths[surface.first - 1 : surface.last])
        widths[surface.last - 1] += max(0.0, WORD_CELL * cell_len(surface.form) - own)
    centres: list[float] = []
    end = MARGIN - WORD_GAP
    for word, width in enumerate(widths, start=1):
        centre = end + WORD_GAP + width / 2
        for arc in ending[word]:
            other = arc.ends[0]
            # from the slot in the middle of the one to that of the other, at worst
            slots = SLOT * (meeting[word] + meeting[other]) / 2
            needed = _small_width(arc.relation) + LABEL_GAP + slots
            centre = max(centre, centres[other - 1] + needed)
        centres.append(centre)
        end = centre + width / 2
    return centres, end + MARGIN


def _small_width(text: str) -> float:
    return SMALL_CELL * cell_len(text)


def _levels(arcs: list[Arc], num_words: int) -> list[int]:
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


def _draw_arcs(
    arcs: list[Arc],
    levels: list[int],
    centres: list[float],
    step: float,
    base: float,
    direction: int,
) -> tuple[list[str], list[str]]:
    """Return the lines of the arcs on one side of the words, and their relations.

    They meet the words at height `base`. Relations are written after all arcs, so that no line
    crosses them.

    `step` is from one slot to the next, negative from right to left. The direction is -1 for arcs
    above the words, 1 for arcs below them.
    """
    slots = _slots(arcs, centres, step)
    lines, labels = [], []
    for i, (arc, level) in enumerate(zip(arcs, levels, strict=True)):
        top = base + direction * (LEVEL * level + 4)
        x = slots[i, arc.word]
        tip = f"M{x:g} {base:g}l{ARROW / 2 + 1:g} {direction * (ARROW + 3):g}h{-ARROW - 2:g}z"
        if arc.head:
            start = slots[i, arc.head]
            bend = CORNER if start < x else -CORNER
            line = (
                f"M{start:g} {base:g}V{top - direction * CORNER:g}"
                f"Q{start:g} {top:g} {start + bend:g} {top:g}"
                f"H{x - bend:g}Q{x:g} {top:g} {x:g} {top - direction * CORNER:g}"
                f"V{base + direction * ARROW:g}"
            )
            middle = (start + x) / 2
            label_y = top + 4
        else:
            top = base + direction * (LEVEL * level + ROOT_ROOM - 16)
            line = f"M{x:g} {top:g}V{base + direction * ARROW:g}"
            middle, label_y = x, top + (-4 if direction < 0 else 12)
        group = f' class="{arc.kind}"' if arc.kind else ""
        lines.append(f'<g{group}><path class="arc" d="{line}"/><path class="arrow" d="{tip}"/></g>')
        labels.append(f"<g{group}>{text_element('relation', middle, label_y, arc.relation)}</g>")
    return lines, labels


def _slots(arcs: list[Arc], centres: list[float], step: float) -> dict[tuple[int, int], float]:
    """Return where the arc of a number meets a word: (number of the arc, word) -> x."""
    meeting: list[list[tuple[float, int]]] = [[] for _ in range(len(centres) + 1)]
    for i, arc in enumerate(arcs):
        if not arc.head:
            meeting[arc.word].append((0.0, i))  # between those to the left and to the right
            continue
        first, last = arc.ends
        # the shorter the farther out, so that it ends below the longer ones without crossing them
        meeting[first].append((1 / arc.length, i))
        meeting[last].append((-1 / arc.length, i))
    return {
        (i, word): centres[word - 1] + step * (place - (len(found) - 1) / 2)
        for word, found in enumerate(meeting)
        for place, (_, i) in enumerate(sorted(found))
    }


def text_element(kind: str, x: float, y: float, text: str, leftward: bool = False) -> str:
    """Return a text; `leftward` turns brackets round where no letter says which way they open."""
    direction = ' direction="rtl"' if is_leftward(text, leftward) else ""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}"{direction}>{escape(text)}</text>'
