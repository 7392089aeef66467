from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtool.treebank.projectivity import non_projective_arcs
from seqtool.treebank.sentence import find_fault


def ancestors(heads: tuple[int, ...], word: int) -> list[int]:
    """The words above a word up to the root, 0; without it if there is a cycle."""
    found: list[int] = []
    for _ in heads:
        if word:
            word = heads[word - 1]
            found.append(word)
    return found


def is_tree(heads: tuple[int, ...]) -> bool:
    return (
        all(0 <= head <= len(heads) for head in heads)
        and sum(head == 0 for head in heads) == 1
        and all(0 in ancestors(heads, word) for word in range(1, len(heads) + 1))
    )


def crossing(heads: tuple[int, ...]) -> list[int]:
    """Words with a word between them and their head that does not descend from that head."""
    return [
        word
        for word, head in enumerate(heads, start=1)
        if any(
            head not in ancestors(heads, between)
            for between in range(min(word, head) + 1, max(word, head))
        )
    ]


@pytest.mark.parametrize("num_words", range(1, 6))
def test_every_list_of_heads(num_words: int) -> None:
    num_trees = num_projective = 0
    for heads in product(range(num_words + 1), repeat=num_words):
        assert (find_fault(heads) is None) == is_tree(heads), heads
        if is_tree(heads):
            num_trees += 1
            arcs = non_projective_arcs(heads)
            assert arcs == crossing(heads), heads
            num_projective += not arcs
    # Cayley: n^(n-1) rooted trees; of them binomial(3n-2, n-1) / n are projective under one root
    assert num_trees == num_words ** (num_words - 1)
    assert num_projective == [1, 2, 7, 30, 143][num_words - 1]


@pytest.mark.parametrize(
    ("heads", "word", "message"),
    [
        ([], 1, "no tokens"),
        ([2], 1, "head 2, but the sentence has 1 token"),
        ([0, -1, 9], 2, "head -1, but the sentence has 3 tokens"),
        ([2, 1], 1, "no token has head 0"),
        ([2, 0, 2, 0, 0], 4, "tokens 2 and 4 have head 0"),
        ([0, 1, 4, 5, 4], 4, "cycle: 4 -> 5 -> 4"),
        ([0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 2], 2, "2 -> 3 -> 4 -> 5 -> 6 -> 7 -> ... -> 2"),
    ],
)
def test_faults_are_named(heads: list[int], word: int, message: str) -> None:
    fault = find_fault(heads)
    assert fault is not None
    assert fault[0] == word
    assert message in fault[1]


def test_deep_trees() -> None:
    # were a walk to the root made for each word, these would be 10^10 steps
    num_words = 100_000
    down, up = list(range(num_words)), [*range(2, num_words + 1), 0]
    assert find_fault(down) is find_fault(up) is None
    assert non_projective_arcs(down) == non_projective_arcs(up) == []
    ring = [0, *range(3, num_words + 1), 2]
    assert find_fault(ring) is not None


@given(st.permutations(range(1, 31)), st.randoms(use_true_random=False))
def test_arcs_of_larger_trees(order: list[int], random: object) -> None:
    heads = [0] * 30
    for index in range(1, 30):
        # mostly a near one, so that both kinds of arcs come up
        heads[order[index] - 1] = order[random.randrange(max(0, index - 3), index)]  # type: ignore[attr-defined]
    assert non_projective_arcs(heads) == crossing(tuple(heads))


def test_agrees_with_udapi(shared_data: Path) -> None:
    pytest.importorskip("udapi")
    from udapi.core.document import Document

    num_arcs = 0
    path = shared_data / "fr_sequoia" / "fr_sequoia-ud-dev.conllu"
    document = Document()
    document.from_conllu_string(path.read_text(encoding="utf-8"))
    for tree in document.trees:
        words = tree.descendants
        heads = [word.parent.ord for word in words]
        expected = [word.ord for word in words if word.is_nonprojective()]
        assert non_projective_arcs(heads) == expected
        num_arcs += len(expected)
    assert num_arcs > 0
