"""Trees, projectivity and the pseudo-projective transformation: all small trees, real ones."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsing.parser.references import Heads, int32, is_tree, non_projective_words, trees
from strategies import tree_heads

from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.projectivity import (
    LIFTED,
    deprojectivise,
    first_non_projective,
    is_projective,
    non_projective_arcs,
    projective_orders,
    projectivise,
)
from seqtool.treebank.sentence import DEPREL, find_fault

# Nivre & Nilsson 2005, figure 1: "Z nich je jen jedna na kvalitu ." (of them is only one to
# quality), where `Z` (AuxP, word 1) hangs on `jedna` (Sb, word 5) across `je` (Pred, word 3)
CZECH = [5, 1, 0, 5, 3, 3, 6, 3]
CZECH_LABELS = ["AuxP", "Atr", "Pred", "AuxZ", "Sb", "AuxP", "Adv", "AuxK"]


def below(heads: Heads, word: int) -> set[int]:
    """A word and all that it dominates."""
    return {word}.union(
        *(below(heads, child) for child, head in enumerate(heads, 1) if head == word)
    )


def test_the_paper_s_example() -> None:
    assert non_projective_words(tuple(CZECH)) == [1]
    heads, labels = projectivise(CZECH, CZECH_LABELS)
    assert heads == [3, *CZECH[1:]]
    assert labels == ["AuxP↑Sb", *CZECH_LABELS[1:]]
    assert deprojectivise(heads, labels) == (CZECH, CZECH_LABELS)


def test_the_shortest_arc_is_lifted_first() -> None:
    # w3 is not below w4, so that w4 -> w2 goes up to w1; w1 -> w3 is fine, as w1 dominates w2
    assert projectivise([0, 4, 1, 1], list("abcd")) == ([0, 1, 1, 1], ["a", "b↑d", "c", "d"])
    # w3 is the root, between w5 and w1 (4 apart) and between w4 and w2 (2 apart): w2 goes first, to
    # w5, which is still nearer (3) than w1, so again, to w3; then w1 goes from w5 to w3
    assert projectivise([5, 4, 0, 5, 3], list("abcde")) == (
        [3, 3, 0, 5, 3],
        ["a↑e", "b↑d", "c", "d", "e"],
    )


@pytest.mark.parametrize("length", range(1, 6))
def test_every_list_of_heads(length: int) -> None:
    num_trees = num_projective = 0
    labels = [f"l{word}" for word in range(1, length + 1)]
    for tree in product(range(length + 1), repeat=length):
        assert (find_fault(tree) is None) == is_tree(tree), tree
        if not is_tree(tree):
            continue
        heads, marked = projectivise(tree, labels)
        crossing = non_projective_words(tree)
        assert non_projective_arcs(tree) == crossing
        assert is_projective(tree) == (not crossing)
        assert is_tree(tuple(heads))
        assert not non_projective_words(tuple(heads))
        assert heads.index(0) == tree.index(0)
        for word, (label, old, new) in enumerate(zip(marked, tree, heads, strict=True), 1):
            assert label == f"l{word}" + (old != new) * f"{LIFTED}l{old}"
            assert old == new or old in below(tree, new)
        if not crossing:
            assert heads == list(tree)
        num_trees += 1
        num_projective += not crossing
    # Cayley: n^(n-1) rooted trees; of them binomial(3n-2, n-1) / n are projective under one root
    assert num_trees == length ** (length - 1)
    assert num_projective == [1, 2, 7, 30, 143][length - 1]


def test_labels_that_differ_bring_nearly_every_small_tree_back() -> None:
    """By exhaustive search there is one of 625 where lifted words stand below one another."""
    lost = 0
    for length in range(1, 6):
        labels = [f"l{word}" for word in range(1, length + 1)]
        for tree in trees(length):
            heads, back = deprojectivise(*projectivise(tree, labels))
            assert back == labels
            lost += heads != list(tree)
    assert lost <= 1


MARKED = st.sampled_from(["a", "b", "a↑b", "b↑a", "a↑a", "a↑", "a↑b↑a"])


@given(data=st.data(), length=st.integers(1, 12))
def test_whatever_a_parser_predicts_stays_a_tree_with_the_same_root(
    data: st.DataObject, length: int
) -> None:
    heads = tree_heads(data.draw, length)
    assert non_projective_arcs(heads) == non_projective_words(tuple(heads))
    labels = data.draw(st.lists(MARKED, min_size=length, max_size=length))
    new_heads, new_labels = deprojectivise(heads, labels)
    assert is_tree(tuple(new_heads))
    assert new_heads.index(0) == heads.index(0)
    assert new_labels == [label[0] for label in labels]
    for word, (label, old, new) in enumerate(zip(labels, heads, new_heads, strict=True), 1):
        assert new == old or (LIFTED in label and word not in (old, new))


def test_the_first_word_breadth_first_is_the_head() -> None:
    # w1 -> w2 -> w3 (x), w1 -> w4 (x), w1 -> w5: w4 is nearer to w1 than w3, w2 is no x
    assert deprojectivise([0, 1, 2, 1, 1], ["r", "y", "x", "x", "z↑x"]) == (
        [0, 1, 2, 1, 4],
        ["r", "y", "x", "x", "z"],
    )
    # from left to right on one level; a label nobody bears changes nothing
    assert deprojectivise([0, 1, 1, 1], ["r", "x", "x", "z↑x"])[0] == [0, 1, 1, 2]
    assert deprojectivise([0, 1, 1, 1], ["r", "x", "x", "z↑w"])[0] == [0, 1, 1, 1]
    # not below itself: w3 is the only x
    assert deprojectivise([0, 1, 2], ["r", "z↑x", "x"])[0] == [0, 1, 2]


@pytest.mark.parametrize(
    ("treebank", "num_arcs", "share"),
    [
        # extraposed clauses, stranded prepositions, scrambled objects
        *(("data/en/valid", 19, 1.0), ("data/ko/valid", 12, 1.0)),
        ("../shared/data/ewt/en_ewt-ud-train", None, 0.9),
        ("../shared/data/fr_sequoia/fr_sequoia-ud-train", None, 0.95),
    ],
)
def test_most_non_projective_arcs_of_a_treebank_come_back(
    root: Path, treebank: str, num_arcs: int | None, share: float
) -> None:
    path = root / f"{treebank}.conllu"
    if not path.is_file():
        pytest.skip(f"no {path}")
    num_non_projective = wrong = 0
    for sentence in read_conllu(path):
        heads, deprels = sentence.heads(), sentence.column(DEPREL)
        if is_projective(heads):
            continue
        lifted, labels = projectivise(heads, deprels)
        assert is_projective(lifted)
        back, back_labels = deprojectivise(lifted, labels)
        assert back_labels == deprels
        num_non_projective += len(non_projective_arcs(heads))
        wrong += sum(old != new for old, new in zip(heads, back, strict=True))
    assert num_arcs in (None, num_non_projective)
    assert wrong <= (1 - share) * num_non_projective


def test_token_arrays() -> None:
    # two trees behind the row of NONE: w1 <- w2, and CZECH
    flat = int32([-1, -1, 2, 0, -1, *CZECH])
    tokens, lengths = int32([1, 4]), int32([2, 8])
    assert first_non_projective(flat, tokens, lengths) == 1
    assert first_non_projective(flat, tokens[:1], lengths[:1]) == -1
    order, components = projective_orders(flat, tokens, lengths)
    # ROOT first; in CZECH `jen` and `jedna` come after Z nich: je is 1, then [Z nich jen jedna]
    assert order[1:4].tolist() == [0, 1, 2]
    assert order[4:].tolist() == [0, 2, 3, 1, 4, 5, 6, 7, 8]
    # everything is joined but Z with nich, and what would come after: ROOT, [Z nich], je, ...
    assert components[1:4].tolist() == [0, 0, 0]
    assert components[4:].tolist() == [0, 1, 1, 3, 5, 5, 6, 6, 8]


def test_heads_beyond_the_sentence_are_refused() -> None:
    for heads in ([3, 0], [0, -1]):
        assert find_fault(heads) is not None
        with pytest.raises(ValueError, match="not a word of the sentence"):
            is_projective(heads)
    assert is_projective([])
    assert find_fault([]) is not None
    assert np.array_equal(projectivise([], []), ([], []))


def test_deep_trees() -> None:
    # were a walk to the root made for each word, these would be 10^10 steps
    num_words = 100_000
    down, up = list(range(num_words)), [*range(2, num_words + 1), 0]
    assert find_fault(down) is find_fault(up) is None
    assert non_projective_arcs(down) == non_projective_arcs(up) == []
    ring = [0, *range(3, num_words + 1), 2]
    assert find_fault(ring) is not None


def test_agrees_with_udapi(shared_data: Path) -> None:
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
