"""A sentence with its words below one another, each with its tag and relation; arcs beside them.

So a long sentence goes into a narrow window, or onto paper. A sentence that is written from right
to left has its arcs at the right. Gold arcs are dashed; the gold relation stands behind a wrong
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.cells import cell_len

from seqtool.treebank.drawing.marked import MarkedSentence, is_leftward
from seqtool.treebank.drawing.picture import (
    ARROW,
    CORNER,
    MARGIN,
    WORD_CELL,
    Arc,
    Picture,
    arc_element,
    arcs_of,
    levels_of,
    meetings,
    ring,
    small_width,
    text_element,
)

# pixels
ROW = 24.0
LEVEL = 13.0  # from an arc to one that passes around it, where there is room
ARCS_WIDTH = 150.0  # of all levels together, at most
STEM = 16.0  # of the innermost arc
GAP = 16.0  # between columns
SPREAD = 5.0  # between two arcs that meet at a word, where there is room
FEET = {"form": 5.5}  # from the middle of a row to the feet of its letters
SMALL_FEET = 4.0


def draw_down(sentence: MarkedSentence) -> Picture:
    """Return the picture of a sentence, its words below one another."""
    arcs, gold_arcs = arcs_of(sentence)
    arcs += gold_arcs
    levels = levels_of(arcs, len(sentence))
    deepest = max((1, *levels))
    step = min(LEVEL, ARCS_WIDTH / deepest)
    base = MARGIN + STEM + step * deepest  # where arcs end
    middles = [MARGIN + ROW * word + ROW / 2 for word in range(len(sentence))]

    words = range(1, len(sentence) + 1)
    corrections = map(sentence.correction, words)
    gold = ["" if correction is None else correction[1] for correction in corrections]
    columns = [
        ("number", list(map(str, words))),
        ("form", sentence.forms),
        ("tag", sentence.tags),
        ("relation", sentence.relations),
        ("relation gold", gold),
    ]
    starts: list[float] = []
    x = base + 8
    for kind, texts in columns:
        starts.append(x)
        cell = WORD_CELL * max(map(cell_len, texts)) if kind == "form" else None
        width = max(map(small_width, texts)) if cell is None else cell
        x += width + GAP if width else 0
    surfaces_start = x
    if sentence.surfaces:
        x += WORD_CELL * max(cell_len(surface.form) for surface in sentence.surfaces) + 12 + GAP
    width = x - GAP + MARGIN
    leftward = sentence.is_leftward

    def at(place: float) -> float:
        """Return the x of what stands so far from where the reader begins."""
        return width - place if leftward else place

    def cell_element(kind: str, place: float, y: float, text: str) -> str:
        own = is_leftward(text, leftward and kind.startswith(("form", "surface")))
        side = "starts" if own == leftward else "ends"
        return text_element(f"{kind} {side}", at(place), y, text, own)

    elements = _arc_elements(arcs, levels, step, base, middles, width if leftward else None)
    for word, middle in zip(words, middles, strict=True):
        low, high = sorted((at(base + 3), at(starts[2] - GAP / 2)))
        cells = [ring(low, middle - ROW / 2 + 1, high - low, ROW - 2)]
        for (kind, texts), start in zip(columns, starts, strict=True):
            if text := texts[word - 1]:
                shown = f"{kind} {sentence.kind(word)}".rstrip() if kind == "relation" else kind
                feet = middle + FEET.get(kind, SMALL_FEET)
                cells.append(cell_element(shown, start, feet, text))
        elements.append(f'<g class="word" data-w="{word}">{"".join(cells)}</g>')
    for surface in sentence.surfaces:
        top, bottom = middles[surface.first - 1] - 8, middles[surface.last - 1] + 8
        edge, inner = at(surfaces_start + 4), at(surfaces_start)
        line = f"M{inner:g} {top:g}H{edge:g}V{bottom:g}H{inner:g}"
        elements.append(f'<path class="bracket" d="{line}"/>')
        y = (top + bottom) / 2 + SMALL_FEET
        elements.append(cell_element("surface", surfaces_start + 12, y, surface.form))
    drawn = "".join(f"{element}\n" for element in elements)
    return Picture(width, 2 * MARGIN + ROW * len(sentence), drawn, sentence.text, leftward)


def _arc_elements(
    arcs: Sequence[Arc],
    levels: Sequence[int],
    step: float,
    base: float,
    middles: Sequence[float],
    mirrored: float | None,
) -> list[str]:
    """Return the arcs, from the row of the head around those within them to that of the dependent.

    Args:
        arcs: also gold ones.
        levels: how far out each is, from 1 on.
        step: from a level to the next.
        base: where they end.
        middles: of the rows.
        mirrored: the width of the picture where arcs stand at its right edge.
    """
    rows = _rows(arcs, middles)
    turn = 1 if mirrored is None else -1
    end = base if mirrored is None else mirrored - base
    elements = []
    for i, (arc, level) in enumerate(zip(arcs, levels, strict=True)):
        y = rows[i, arc.word]
        point = end - turn * ARROW
        tip = f"M{end:g} {y:g}l{-turn * (ARROW + 3):g} {-(ARROW / 2 + 1):g}v{ARROW + 2:g}z"
        if arc.head:
            start = rows[i, arc.head]
            bend = CORNER if start < y else -CORNER
            outer = end - turn * (STEM + step * (level - 1) + 6)
            line = (
                f"M{end:g} {start:g}H{outer + turn * CORNER:g}"
                f"Q{outer:g} {start:g} {outer:g} {start + bend:g}"
                f"V{y - bend:g}Q{outer:g} {y:g} {outer + turn * CORNER:g} {y:g}H{point:g}"
            )
        else:
            line = f"M{end - turn * (base - MARGIN):g} {y:g}H{point:g}"
        elements.append(arc_element(arc, line, tip))
    return elements


def _rows(arcs: Sequence[Arc], middles: Sequence[float]) -> dict[tuple[int, int], float]:
    """Return where the arc of a number meets a word: (number of the arc, word) -> y.

    Arcs that lead from a head to the same side begin as one line.
    """
    rows = {}
    for word, found in enumerate(meetings(arcs, len(middles))):

        def kind(i: int, word: int = word) -> tuple[int, str]:
            arc = arcs[i]
            leads = 0 if arc.head != word else 1 if arc.word > word else -1
            return leads, arc.kind

        together = [list(group) for _, group in groupby(found, kind)]
        spread = min(SPREAD, (ROW - 6) / max(1, len(together) - 1))
        for place, group in enumerate(together):
            for i in group:
                rows[i, word] = middles[word - 1] + spread * (place - (len(together) - 1) / 2)
    return rows
