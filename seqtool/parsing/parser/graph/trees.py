"""The best tree by arc scores, of all trees, or of all projective ones.

Each tree has exactly one arc from ROOT. Scores of sentences stand one after another in one flat
array; those of a sentence of n words are a table with a row for each dependent, [n, 1 + n]:

                ROOT   word 1   word 2   ...   word n       (heads)
    word 1       .       -        .              .
    word 2       .       .        -              .          - is not read
    ...

A score that is NaN or minus infinity forbids an arc, one that is plus infinity demands it: a tree
takes as few of the former as it can, and then as many of the latter.

A projective tree (Eisner 1996) is put together from spans of words, i..j, whose head is one of both
ends:

    incomplete   with an arc from i to j (or from j to i): complete spans of i over i..k and of j
                 over k+1..j, which have nothing more on the sides where they meet
    complete     with all that is below the head on this side: an incomplete span from i to k, and
                 the complete one of k over k..j (or, from j, mirrored)
"""

from __future__ import annotations

import numpy as np
from numba import types

from seqtool.core.arrays import Floats, Ints, Reals
from seqtool.core.jit import compiled

# in words; charts and weights of so long a sentence take 32 MB and half a second. A longer one gets
# its best spanning tree, projective or not
LONGEST_PROJECTIVE = 1000

_floats = types.float32[::1]
_doubles = types.float64[::1]
_ints = types.int32[::1]
_int = types.int64


@compiled(types.void(_floats, _doubles, _int))
def finite_weights(scores, weights, num_words):  # type: ignore[no-untyped-def]
    """Copy the scores of a sentence as doubles, with finite numbers for infinite ones and NaN.

    The step from the finite scores up to a demanded arc outweighs whatever the other arcs of a tree
    can gain, and the step down to a forbidden one outweighs demanded ones, too; they are no larger,
    so that the differences of the others keep their digits.
    """
    width = num_words + 1
    low, high = np.inf, -np.inf
    any_demanded = False
    for word in range(num_words):
        row = scores[word * width : (word + 1) * width]
        for head in range(width):
            if head != word + 1 and abs(row[head]) < np.inf:  # not a NaN
                low, high = min(low, np.float64(row[head])), max(high, np.float64(row[head]))
            any_demanded |= head != word + 1 and row[head] == np.inf
    if low > high:
        low = high = 0.0
    # + 1: a forbidden arc costs something also where all scores are alike
    up = num_words * (high - low + 1.0)
    down = up + num_words * up if any_demanded else up
    for word in range(num_words):
        row = scores[word * width : (word + 1) * width]
        into = weights[word * width : (word + 1) * width]
        for head in range(width):
            score = np.float64(row[head])
            # `min` and `max` of a NaN are not the same everywhere
            into[head] = score if score >= low else low - down
            into[head] = into[head] if into[head] <= high else high + up
        # a word is never its own head
        into[word + 1] = -np.inf


@compiled(_int(_doubles, _int, _ints, _ints, _doubles, _ints))
def spanning_tree(  # type: ignore[no-untyped-def]
    weights, num_words, ends, parents, gains, heads
):
    """Write the heads of the best tree of one sentence, in O(n^2); `weights` are used up.

    Every word takes its best arc from another word, ROOT left out; the words of a cycle become one
    node, which takes its best arc from a word outside, and so on, until all words are one node
    (Edmonds 1967; Tarjan 1977, on dense tables; one path of nodes, as in Gabow et al. 1986). The
    best arc from ROOT then enters this node, and opens the cycles in which its word stands. So
    there is one arc from ROOT, and it is chosen as if each other one cost more than all scores
    (Gabow & Tarjan 1984; Zmigrod, Vieira & Cotterell 2020).

    Words are 0..n-1 here, heads 0 for ROOT. `ends` is room for a number for each weight: the word
    within a node in which an arc ends. Of words, then of the nodes made of them, of which there are
    fewer, `parents` become the nodes that they are in (-1 for that of all words), and `gains` what
    is gained by the best arc into them. Returns how many words and nodes there are.
    """
    width = num_words + 1
    for word in range(num_words):
        ends[word * width : (word + 1) * width] = word
    parents[: 2 * num_words] = -1
    # the best arcs into words and nodes
    sources, targets = np.zeros(2 * num_words, np.int32), np.zeros(2 * num_words, np.int32)
    rows = np.arange(2 * num_words)  # of `weights`: arcs into a node are in the row of a word
    on_path = np.zeros(2 * num_words, np.bool_)
    outermost = np.arange(num_words)  # the node that a word is in, and that is in none
    path = np.zeros(num_words, np.int32)  # each node but the last has its best arc from the next
    depth, num_nodes, num_open = 1, num_words, num_words
    # any word can be the first one: each has an arc from each other, so that all become one node
    on_path[0] = True
    while num_open > 1:
        node = path[depth - 1]
        last_row = rows[node]
        begin = last_row * width
        row = weights[begin : begin + width]
        # from column 1 on, as ROOT's arc is chosen last of all
        best, gain = 1, row[1]
        for head in range(2, width):
            if row[head] > gain:
                best, gain = head, row[head]
        sources[node], targets[node], gains[node] = best, ends[begin + best], gain
        other = outermost[best - 1]
        if not on_path[other]:
            on_path[other] = True
            path[depth] = other
            depth += 1
            continue
        # the nodes from `other` to the end of the path are a cycle: they become one, in whose row
        # an arc weighs what it has more than the arc of the cycle that it would replace
        whole = ends[begin : begin + width]
        for head in range(width):
            # column 0 as well: ROOT's arc will open the cycle like any other that enters it
            row[head] -= gain
        parents[node] = num_nodes
        while node != other:
            depth -= 1
            num_open -= 1
            node = path[depth - 1]
            parents[node] = num_nodes
            gain = gains[node]
            begin = rows[node] * width
            inner, inner_ends = weights[begin : begin + width], ends[begin : begin + width]
            for head in range(width):
                if inner[head] - gain > row[head]:
                    row[head] = inner[head] - gain
                    whole[head] = inner_ends[head]
        for word in range(num_words):
            if parents[outermost[word]] == num_nodes:
                outermost[word] = num_nodes
                # an arc from inside does not enter the node
                row[word + 1] = -np.inf
        # the last node needs its weights no longer: its row becomes that of the whole
        rows[num_nodes] = last_row
        path[depth - 1] = num_nodes
        on_path[num_nodes] = True
        num_nodes += 1
    # the node made last holds all words; of one word alone, it is the word
    begin = rows[num_nodes - 1] * width
    sources[num_nodes - 1], targets[num_nodes - 1] = 0, ends[begin]
    gains[num_nodes - 1] = weights[begin]
    # from the outermost node inwards: the arc into a node takes the place of those into the nodes
    # around its word, within that node
    replaced = np.zeros(num_nodes, np.bool_)
    # a node has a higher number than those inside of it
    for node in range(num_nodes - 1, -1, -1):
        if not replaced[node]:
            inner_node = targets[node]
            heads[inner_node] = sources[node]
            while inner_node != node:
                replaced[inner_node] = True
                inner_node = parents[inner_node]
    return num_nodes


# no number is a NaN, and the highest of them is the same in any order: several at a time
@compiled(types.float64(_doubles, _doubles), fastmath={"nnan", "nsz", "reassoc"})
def highest_sum(left, right):  # type: ignore[no-untyped-def]
    """Return the highest of the sums of two numbers at the same place."""
    highest = left[0] + right[0]
    for place in range(1, left.shape[0]):
        highest = max(highest, left[place] + right[place])
    return highest


@compiled(_int(_doubles, _doubles))
def place_of_highest(left, right):  # type: ignore[no-untyped-def]
    """Return the place of the highest sum; of equal ones the first."""
    best = 0
    for place in range(1, left.shape[0]):
        if left[place] + right[place] > left[best] + right[best]:
            best = place
    return best


@compiled(_int(_doubles, _doubles, _int, _int, _int))
def place_in_complete(incomplete, by_end, size, head, end):  # type: ignore[no-untyped-def]
    """Return where the best complete span of a head consists of an incomplete and a complete one.

    `by_end` are the charts of complete spans turned around, see `fill_charts`.
    """
    of_head, of_end = head * size, end * size
    # the split is where the incomplete span ends: at `end` at the farthest, and never at the head
    first, last = (head + 1, end + 1) if head < end else (end, head)
    return first + place_of_highest(
        incomplete[of_head + first : of_head + last], by_end[of_end + first : of_end + last]
    )


@compiled(types.void(_doubles, _int, _doubles, _doubles, _doubles))
def fill_charts(weights, num_words, incomplete, complete, by_end):  # type: ignore[no-untyped-def]
    """Write the sums of the best spans of one sentence, in O(n^3).

    Words are 0..n-1 here. The charts are tables [head, other end]; `by_end` is `complete` turned
    around, so that every row is read from left to right. ROOT is in no span: the root word is the
    head of all others, on both of its sides.
    """
    size, width = num_words, num_words + 1
    # no span is much longer than those before it, so that the rows that are read stay in the cache
    for j in range(size):
        complete[j * size + j] = by_end[j * size + j] = 0.0
        # downwards: a span over i..j is made of such as begin after i, or end before j
        for i in range(j - 1, -1, -1):
            in_i, in_j = i * size, j * size
            # an arc in either direction joins the same two halves, so that one maximum serves both
            joined = highest_sum(
                complete[in_i + i : in_i + j], complete[in_j + i + 1 : in_j + j + 1]
            )
            incomplete[in_i + j] = joined + weights[j * width + i + 1]
            incomplete[in_j + i] = joined + weights[i * width + j + 1]
            # after the incomplete spans, as one over all of i..j is among the splits
            complete[in_i + j] = by_end[in_j + i] = highest_sum(
                incomplete[in_i + i + 1 : in_i + j + 1], by_end[in_j + i + 1 : in_j + j + 1]
            )
            complete[in_j + i] = by_end[in_i + j] = highest_sum(
                incomplete[in_j + i : in_j + j], by_end[in_i + i : in_i + j]
            )


@compiled(types.void(_doubles, _int, _doubles, _doubles, _doubles, _ints))
def _projective_tree(  # type: ignore[no-untyped-def]
    weights, num_words, incomplete, complete, by_end, heads
):
    """Write the heads of the best projective tree of one sentence."""
    fill_charts(weights, num_words, incomplete, complete, by_end)
    size, width = num_words, num_words + 1
    root, highest = 0, -np.inf
    for word in range(size):
        score = weights[word * width] + complete[word * size] + complete[word * size + size - 1]
        if score > highest:
            root, highest = word, score
    heads[root] = 0
    # what the best spans were made of is found again, which is cheaper than to keep it
    waiting = np.empty((num_words + 2, 3), np.int32)  # complete or not, head, other end
    waiting[0, 0] = waiting[1, 0] = 1
    waiting[0, 1] = waiting[1, 1] = root
    waiting[0, 2], waiting[1, 2] = 0, size - 1
    # never above num_words + 1: taken apart, a span over m words is m spans that wait at most
    depth = 2
    while depth > 0:
        depth -= 1
        is_complete, head, end = waiting[depth]
        i, j = min(head, end), max(head, end)
        if i == j:
            continue
        in_i, in_j = np.int64(i) * size, np.int64(j) * size
        if not is_complete:
            heads[end] = head + 1
            k = i + place_of_highest(
                complete[in_i + i : in_i + j], complete[in_j + i + 1 : in_j + j + 1]
            )
            waiting[depth, 0], waiting[depth, 1], waiting[depth, 2] = 1, i, k
            waiting[depth + 1, 0], waiting[depth + 1, 1], waiting[depth + 1, 2] = 1, j, k + 1
        else:
            k = place_in_complete(incomplete, by_end, size, head, end)
            waiting[depth, 0], waiting[depth, 1], waiting[depth, 2] = 0, head, k
            waiting[depth + 1, 0], waiting[depth + 1, 1], waiting[depth + 1, 2] = 1, k, end
        depth += 2


@compiled(types.void(_floats, _ints, _int, _ints))
def _best_trees(scores, lengths, longest_projective, heads):  # type: ignore[no-untyped-def]
    """Write the heads of the best trees, projective ones of sentences up to so many words."""
    longest = longest_chart = np.int64(0)
    for length in lengths:
        if length > longest:
            longest = np.int64(length)
        if longest_chart < length <= longest_projective:
            longest_chart = np.int64(length)
    weights = np.empty(longest * (longest + 1), np.float64)
    # of spanning trees alone, if there are any
    ends = np.empty(longest * (longest + 1) if longest > longest_chart else 0, np.int32)
    parents, gains = np.empty(2 * longest, np.int32), np.empty(2 * longest, np.float64)
    # charts have the size of the longest sentence that is parsed by them, not of the longest of all
    incomplete = np.empty(longest_chart * longest_chart, np.float64)
    complete, by_end = np.empty_like(incomplete), np.empty_like(incomplete)
    at = begin = np.int64(0)
    for length in lengths:
        num_words = np.int64(length)
        end = begin + num_words * (num_words + 1)
        finite_weights(scores[begin:end], weights, num_words)
        into = heads[at : at + num_words]
        if num_words <= longest_projective:
            _projective_tree(weights, num_words, incomplete, complete, by_end, into)
        else:
            spanning_tree(weights, num_words, ends, parents, gains, into)
        at, begin = at + num_words, end


def spanning_trees(scores: Floats, lengths: Ints) -> Ints:
    """Return the best trees of sentences.

    Takes O(n^2) for a sentence of n words, and 12 n^2 bytes for the longest one.

    Args:
        scores: float32, flat; see above.
        lengths: of the sentences, in words, int32 [B]; 1 or more.

    Returns:
        Heads, int32 [sum of the lengths]; 0 is ROOT.

    Raises:
        ValueError: there are not as many scores as arcs.
    """
    return _checked(scores, lengths, 0)


def projective_trees(scores: Floats, lengths: Ints) -> Ints:
    """Return the best projective trees of sentences, as `spanning_trees` does.

    Takes O(n^3) for a sentence of n words, and 32 n^2 bytes for the longest one. A sentence of more
    than `LONGEST_PROJECTIVE` words gets its best spanning tree, which may not be projective.
    """
    return _checked(scores, lengths, LONGEST_PROJECTIVE)


def _checked(scores: Floats, lengths: Ints, longest_projective: int) -> Ints:
    check_sizes(scores, lengths)
    heads = np.empty(lengths.sum(), np.int32)
    _best_trees(scores, lengths, longest_projective, heads)
    return heads


def check_sizes(scores: Reals, lengths: Ints) -> None:
    """Raise a ValueError if flat scores are not those of sentences of so many words."""
    num_words = lengths.astype(np.int64)
    if lengths.size and lengths.min() < 1:
        raise ValueError("a sentence has no words")
    if scores.size != (num_words * (num_words + 1)).sum():
        raise ValueError(f"{scores.size} scores are not those of sentences of {lengths} words")
