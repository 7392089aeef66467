"""Scores of arcs that know of other arcs: mean-field inference of second order (Wang & Tu 2020).

Beside arcs, two kinds of pairs of arcs have scores:

    siblings       words i and k depend on head j             sum over s of  a_js b_is b_ks
    grandparents   i depends on j, which depends on k         sum over s of  m_js d_is g_ks

The tree that is best by all of these is hard to find. So every word i has a distribution Q over its
heads, at first by the scores of its arcs alone, and each step adds to these scores what the pairs
bring, as is expected by the distributions of the other words:

    F_ij = score of the arc + sum over k of  Q_kj sibling(i, j, k)
                            + sum over k of  Q_jk grandparent(i, j, k)
                            + sum over k of  Q_ki grandparent(k, i, j)          Q = softmax of F

The last F are scores of arcs like any others. As the scores of pairs are sums of products, a step
is a few products of matrices: no table of all pairs is made, so that time and memory grow with the
square of a sentence, not with its cube.

What a pair's score is made of are units of tokens, in this order, S of each:

    a (siblings)   m (grandparents)   b (siblings)   d   g (grandparents)

The first two stand once in a product, by which it is learnt whether it counts.

Dimensions: N words, H = 1 + N heads (0 is ROOT), P units of a token; other dimensions, of
sentences, may stand before. Arrays are NumPy's, or tensors in training.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seqtool.parsing.parser.config import ModelConfig

Array = Any  # of NumPy, or a tensor


def pair_borders(config: ModelConfig) -> tuple[int, int]:
    """Return the widths of the two parts of a token's units: those that stand once in a product.

    These are [a, m] of the equations above, and the others [b, d, g].
    """
    return 2 * config.second_size, 3 * config.second_size


def refined_scores(
    scores: Array, units: Array, config: ModelConfig, distributions: Callable[[Array], Array]
) -> Array:
    """Return F after `second_steps` steps, [N, H]: row of the dependent, column of the head.

    In no pair is a word its own sibling or grandparent.

    Args:
        scores: of arcs, [N, H]; -inf for what is no arc, as of a word with itself.
        units: of tokens, [H, P].
        config: the width S of each part of the units, and the number of steps.
        distributions: returns the softmax of each row; of rows of padding, zeros.
    """
    size = config.second_size
    a_HS, m_HS, b_HS, d_HS, g_HS = (units[..., i * size : (i + 1) * size] for i in range(5))
    m_NS, b_NS, d_NS = m_HS[..., 1:, :], b_HS[..., 1:, :], d_HS[..., 1:, :]
    # sums go over all words; what a word would add of itself is taken off again
    itself_NH = (b_NS * b_NS) @ _turned(a_HS)
    itself_NN = (d_NS * g_HS[..., 1:, :]) @ _turned(m_NS)
    refined = scores
    for _ in range(config.second_steps):
        likely_NH = distributions(refined)
        others_HS = a_HS * (_turned(likely_NH) @ b_NS)
        refined = scores + (b_NS @ _turned(others_HS) - likely_NH * itself_NH)
        likely_NN = likely_NH[..., 1:]  # only a word has a head of its own
        below_NS, above_NS = m_NS * (_turned(likely_NN) @ d_NS), m_NS * (likely_NH @ g_HS)
        refined = refined + below_NS @ _turned(g_HS)
        refined[..., 1:] += d_NS @ _turned(above_NS)
        refined[..., 1:] -= _turned(likely_NN) * itself_NN + _turned(likely_NN * itself_NN)
    return refined


def _turned(matrices: Array) -> Array:
    return matrices.swapaxes(-1, -2)
