"""Trees, projectivity and the pseudo-projective transformation: all small trees, real ones."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsing.parser.references import Heads, int32, is_tree, non_projective_words, trees

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


@given(data=st.data(), length=st.integers(1, 12))
def test_whatever_a_parser_predicts_stays_a_tree_with_the_same_root(
    data: st.DataObject, length: int
) -> None:
    order = data.draw(st.permutations(range(1, length + 1)))
    heads = [0] * length
    for rank, word in enumerate(order[1:], 1):
        heads[word - 1] = order[data.draw(st.integers(0, rank - 1))]
    labels = data.draw(
        st.lists(
            st.sampled_from(["a", "b", "a↑b", "b↑a", "a↑a", "a↑", "a↑b↑a"]),
            min_size=length,
            max_size=length,
        )
    )
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


@pytest.mark.parametrize("language", ["en", "ko"])
def test_the_sample_comes_back_whole(root: Path, language: str) -> None:
    """Extraposed clauses, stranded prepositions, scrambled objects: 19 and 12 of them."""
    num_non_projective = num_words = num_wrong = 0
    for sentence in read_conllu([root / "data" / language / "valid.conllu"]):
        heads = sentence.heads()
        deprels = [row[DEPREL] for row in sentence.rows]
        lifted, labels = projectivise(heads, deprels)
        assert is_projective(lifted)
        back, back_labels = deprojectivise(lifted, labels)
        assert back_labels == deprels
        num_words += len(heads)
        num_non_projective += len(non_projective_arcs(heads))
        num_wrong += sum(old != new for old, new in zip(heads, back, strict=True))
    assert num_non_projective == {"en": 19, "ko": 12}[language]
    assert num_wrong == 0


@pytest.mark.parametrize(
    ("treebank", "share"), [("ewt/en_ewt-ud", 0.9), ("fr_sequoia/fr_sequoia-ud", 0.95)]
)
def test_most_non_projective_arcs_of_a_treebank_come_back(
    shared_data: Path, treebank: str, share: float
) -> None:
    num_non_projective = wrong = 0
    for sentence in read_conllu([shared_data / f"{treebank}-train.conllu"]):
        heads = sentence.heads()
        if is_projective(heads):
            continue
        back, _ = deprojectivise(*projectivise(heads, [row[DEPREL] for row in sentence.rows]))
        num_non_projective += len(non_projective_arcs(heads))
        wrong += sum(old != new for old, new in zip(heads, back, strict=True))
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
        with pytest.raises(ValueError, match="not a word of the sentence"):
            is_projective(heads)
    assert is_projective([])
    assert np.array_equal(projectivise([], []), ([], []))


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
    assert non_projective_arcs(heads) == non_projective_words(tuple(heads))


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
