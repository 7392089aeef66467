"""Dependency trees as lists of heads: whether they are trees, and which arcs are not projective.

`heads[i]` is the head of word i + 1: a 1-based word number, or 0 for the root.
"""

from __future__ import annotations

from collections.abc import Sequence

from seqtool.core.errors import counted

_SHOWN = 6  # words of a cycle in a message


def find_fault(heads: Sequence[int]) -> tuple[int, str] | None:
    """Return what keeps heads from being a tree: (the word, a message), or None if they are one.

    A tree has every head in range, exactly one root and no cycle. Takes time linear in the words.
    """
    num_words = len(heads)
    if not num_words or min(heads) < 0 or max(heads) > num_words:
        for word, head in enumerate(heads, start=1):
            if not 0 <= head <= num_words:
                size = counted(num_words, "token")
                return word, f"token {word} has head {head}, but the sentence has {size}"
        return 1, "the sentence has no tokens"
    if heads.count(0) != 1:
        roots = [word for word, head in enumerate(heads, start=1) if head == 0]
        if not roots:
            return 1, "no token has head 0: the tree has no root"
        return roots[1], f"tokens {roots[0]} and {roots[1]} have head 0: the tree has two roots"
    # each walk up marks its words with where it began; one that meets its own mark is a cycle
    marks = [0] * num_words
    for start, head in enumerate(heads, start=1):
        if marks[start - 1]:
            continue
        marks[start - 1] = start
        word = head
        while word and not marks[word - 1]:
            marks[word - 1] = start
            word = heads[word - 1]
        if word and marks[word - 1] == start:
            return word, f"the heads form a cycle: {_cycle(heads, word)}"
    return None


def _cycle(heads: Sequence[int], start: int) -> str:
    words = [start]
    while heads[words[-1] - 1] != start:
        words.append(heads[words[-1] - 1])
    shown = [str(word) for word in words[:_SHOWN]]
    if len(words) > _SHOWN:
        shown.append("...")
    return " -> ".join((*shown, str(start)))


def non_projective_arcs(heads: Sequence[int]) -> list[int]:
    """Return the words, ascending, whose arc from their head is not projective.

    An arc is projective if every word between head and dependent descends from the head (Kübler,
    McDonald & Nivre 2009, definition 2.5); the root, number 0, stands before the first word.

    Args:
        heads: of a tree.
    """
    children: list[list[int]] = [[] for _ in range(len(heads) + 1)]
    for word, head in enumerate(heads, start=1):
        children[head].append(word)
    # in preorder, those that descend from a word are the `sizes` numbers from its own on
    order: list[int] = []
    numbers = [0] * (len(heads) + 1)
    pending = [0]
    while pending:
        word = pending.pop()
        numbers[word] = len(order)
        order.append(word)
        pending.extend(children[word])
    sizes = [1] * (len(heads) + 1)
    for word in order[:0:-1]:
        sizes[heads[word - 1]] += sizes[word]
    found: list[int] = []
    for word, head in enumerate(heads, start=1):
        first, last = (word + 1, head) if word < head else (head + 1, word)
        if first < last:
            between = numbers[first:last]
            number = numbers[head]
            if min(between) < number or max(between) >= number + sizes[head]:
                found.append(word)
    return found
