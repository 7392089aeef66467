"""The analyses of a sentence in one picture, and the pictures of many sentences in one SVG."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from seqtool.treebank.drawing.column import draw_down
from seqtool.treebank.drawing.marked import MarkedSentence
from seqtool.treebank.drawing.picture import (
    MARGIN,
    Picture,
    draw,
    opening_tag,
    small_width,
    text_element,
)
from seqtool.treebank.drawing.style import STYLE

SOURCE_LINE = 24.0  # pixels, of the name of an analysis


def svg_picture(
    groups: Iterable[Sequence[MarkedSentence]], *, beside: bool = False, is_down: bool = False
) -> Iterator[str]:
    """Give one SVG document with all sentences, one below another; see `draw_group`."""
    pictures = [draw_group(group, beside=beside, is_down=is_down) for group in groups]
    width = max((picture.width for picture in pictures), default=0)
    height = sum(picture.height for picture in pictures)
    yield f"{opening_tag(width, height)}\n<style>\n{STYLE}\n</style>\n"
    yield '<rect class="paper" width="100%" height="100%"/>\n'
    top = 0.0
    for picture in pictures:
        # where a reader begins: at the right edge, if the sentence does
        left = width - picture.width if picture.leftward else 0.0
        yield moved(picture, left, top)
        top += picture.height
    yield "</svg>\n"


def moved(picture: Picture, left: float, top: float) -> str:
    """Return the elements of a picture at another place, with its text as their title."""
    title = f"<title>{escape(picture.title)}</title>\n"
    return f'<g transform="translate({left:g} {top:g})">\n{title}{picture.elements}</g>\n'


def draw_group(
    group: Sequence[MarkedSentence], *, beside: bool = False, is_down: bool = False
) -> Picture:
    """Return the analyses of a sentence as one picture: one over the other, or side by side.

    Args:
        group: analyses; where they have names, these stand above them.
        beside: the first one where a reader begins, the others beside it.
        is_down: the words of each stand below one another; see `column`.
    """
    drawn = [(draw_down if is_down else draw)(each) for each in group]
    if len(drawn) == 1 and not group[0].source:
        return drawn[0]
    leftward = drawn[0].leftward
    named = []
    for each, picture in zip(group, drawn, strict=True):
        width = max(picture.width, small_width(each.source) * 1.3 + 2 * MARGIN)
        x, side = (width - MARGIN, "ends") if leftward else (MARGIN, "starts")
        name = text_element(f"source {side}", x, SOURCE_LINE - 4, each.source)
        inner = f'<g transform="translate({width - picture.width if leftward else 0:g} '
        inner += f'{SOURCE_LINE:g})">\n{picture.elements}</g>\n'
        named.append((name + "\n" + inner, width, picture.height + SOURCE_LINE))
    if beside:
        width, height = sum(width for _, width, _ in named), max(h for _, _, h in named)
    else:
        width, height = max(width for _, width, _ in named), sum(h for _, _, h in named)
    left, top, elements = 0.0, 0.0, []
    for inside, own_width, own_height in named:
        x = width - own_width - left if leftward else left
        elements.append(f'<g transform="translate({x:g} {top:g})">\n{inside}</g>\n')
        if beside:
            left += own_width
        else:
            top += own_height
    return Picture(width, height, "".join(elements), group[0].text, leftward)
