"""A treebank laid out anew as raw text for each epoch, cut into windows.

How a text is broken into lines and paragraphs tells little about its sentences, so that is drawn
at random: lines of some width, a line for each sentence, a paragraph run on into the next one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqtool.core.arrays import Bools, CodePoints, Ints
from seqtool.parsing.segmenter.characters import NEWLINE, SPACE, Ints64
from seqtool.parsing.segmenter.config import LearningConfig
from seqtool.parsing.segmenter.surface import GoldText

_WIDTHS = (40, 101)  # characters of a line


@dataclass(frozen=True)
class Layout:
    """A text as the network sees it, of C characters and N tokens, in windows.

    Attributes:
        codes: its characters, [C].
        firsts, lasts: the first and the last character of each token, [N].
        windows: the first token of each window, and N, ascending.
    """

    codes: CodePoints
    firsts: Ints
    lasts: Ints
    windows: Ints


def lay_out(gold: GoldText, config: LearningConfig, random: np.random.Generator) -> Layout:
    """Draw a layout of a treebank."""
    breaks = gold.breaks.copy()
    breaks[breaks] = random.random(int(breaks.sum())) >= config.joined
    breaks[-1:] = True
    separators = _separators(gold, breaks, config, random)
    sizes = gold.lengths + (separators > 0)
    firsts = (np.cumsum(sizes) - sizes).astype(np.int32)
    lasts = (firsts + gold.lengths - 1).astype(np.int32)
    codes = np.empty(int(sizes.sum()), np.uint32)
    is_separator = np.zeros(len(codes), np.bool_)
    is_separator[lasts[separators > 0] + 1] = True
    codes[~is_separator] = gold.codes
    codes[is_separator] = separators[separators > 0]
    return Layout(codes, firsts, lasts, _windows(sizes, breaks, config.window_characters, random))


def _separators(
    gold: GoldText, breaks: Bools, config: LearningConfig, random: np.random.Generator
) -> CodePoints:
    """What stands after each token: 0 for nothing, SPACE or NEWLINE, [N]."""
    # paragraphs are apart, even where their last token says that nothing follows it
    is_spaced = gold.spaced | gold.breaks
    separators = np.where(is_spaced, SPACE, 0).astype(np.uint32)
    ends = (np.flatnonzero(breaks) + 1).tolist()
    drawn = random.random(len(ends))
    widths = random.integers(*_WIDTHS, len(ends))
    for begin, end, draw, width in zip([0, *ends], ends, drawn, widths, strict=False):
        paragraph = slice(begin, end)
        spaced = is_spaced[paragraph]
        if draw < config.wrapped:
            # a line ends at the last space within its width, about
            places = np.cumsum(gold.lengths[paragraph] + spaced)
            line = (places + random.integers(width)) // width
            broken = np.flatnonzero(spaced[:-1] & (np.diff(line) > 0))
        elif draw < config.wrapped + config.sentence_lines:
            broken = np.flatnonzero(spaced & gold.ends[paragraph])
        else:
            continue
        separators[begin + broken] = NEWLINE
    separators[breaks] = 0  # nothing follows in a paragraph
    return separators


def _windows(sizes: Ints, breaks: Bools, width: int, random: np.random.Generator) -> Ints:
    """The first token of each window: paragraphs, the long ones in pieces that begin anywhere."""
    firsts_N: Ints64 = np.cumsum(sizes, dtype=np.int64) - sizes
    begins = np.concatenate(([0], np.flatnonzero(breaks)[:-1] + 1))
    offsets = random.integers(width, size=len(begins))
    lengths = np.add.reduceat(sizes, begins)
    # the paragraph of each token, and how far in it the token is
    paragraph_N: Ints64 = np.cumsum(breaks, dtype=np.int64) - breaks
    inside_N = firsts_N - firsts_N[begins][paragraph_N]
    piece_N = (inside_N + offsets[paragraph_N]) // width
    piece_N[(lengths <= width)[paragraph_N]] = 0
    cuts = np.flatnonzero((np.diff(piece_N) != 0) | (np.diff(paragraph_N) != 0)) + 1
    return np.concatenate(([0], cuts, [len(sizes)])).astype(np.int32)
