from __future__ import annotations

import pytest

from seqtool.treebank.conllu import describe_held_out, held_out


def test_every_tenth_is_held_out() -> None:
    assert [item for item, is_dev in held_out(range(1, 36)) if is_dev] == [10, 20, 30]
    assert [item for item, _ in held_out("abc")] == ["a", "b", "c"]
    assert not any(is_dev for _, is_dev in held_out(range(9)))


@pytest.mark.parametrize(
    ("num_train", "num_dev", "line"),
    [
        (
            1080,
            120,
            "every tenth sentence is held out as dev: 120 of 1,200; give --dev for another",
        ),
        (12, 1, "1 sentence of 13 is held out as dev: its scores mean little; give --dev"),
        (
            7,
            7,
            "the treebank has fewer than 10 sentences, so none is held out: dev is train, and dev "
            "scores say nothing of other text; give --dev",
        ),
    ],
)
def test_one_line_says_it(num_train: int, num_dev: int, line: str) -> None:
    assert describe_held_out(num_train, num_dev) == line
