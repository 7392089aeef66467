"""Enhanced graphs: sound ones pass, and each fault is told with its line."""

from __future__ import annotations

import pytest

from seqtool.treebank.graph import doubts
from seqtool.treebank.sentence import parse_sentence


def told(*lines: str) -> list[tuple[int, str]]:
    """Return the doubts about lines of ID, HEAD, DEPREL and DEPS, read from line 10 on."""
    rows = []
    for line in lines:
        identity, head, deprel, deps = line.split()
        rows.append("\t".join((identity, "a", "_", "_", "_", "_", head, deprel, deps, "_")))
    return list(doubts(parse_sentence("\n".join(("# c", *rows)), "x", 10, "columns")))


@pytest.mark.parametrize(
    "lines",
    [
        ("1 2 a _", "2 0 root _"),
        ("1 2 a 2:a", "2 0 root 0:root"),
        ("1 2 a 2:a:b:и|2.1:c", "2 0 root 0:root", "2.1 _ _ 2:d"),
        ("1 2 a 2:a|2:b", "2 0 root 0:root"),  # two relations of one head
        ("1 2 a 2:a", "2 0 root 0:root|1:x"),  # a cycle that is reached
        ("1-2 _ _ _", "1 2 a 2:a", "2 0 root 0:root"),
        ("0.1 _ _ 1:x", "1 0 root 0:root"),
        ("1 0 root 0:root", *(f"{n} 1 a {n - 1}:a" for n in range(2, 5000))),
    ],
)
def test_sound_graphs(lines: tuple[str, ...]) -> None:
    assert told(*lines) == []


@pytest.mark.parametrize(
    ("lines", "line", "message"),
    [
        (("1 0 root 0:root", "2 1 a x"), 12, "the DEPS of node 2 is no list of head:relation"),
        (("1 0 root 0:root", "2 1 a 1:"), 12, "the DEPS of node 2 is no list of head:relation"),
        (("1 0 root 0:root", "2 1 a 01:x"), 12, "the DEPS of node 2 is no list of head:relation"),
        (("1 0 root 0:root", "2 1 a 1:x|"), 12, "the DEPS of node 2 is no list of head:relation"),
        (("1 0 root 0:root|9:x",), 11, "the DEPS of node 1 has the head 9, which is not there"),
        (("1 0 root 0:root|1.1:x",), 11, "the DEPS of node 1 has the head 1.1, which is not there"),
        (("1 0 root 0:root|1:x",), 11, "the DEPS of node 1 has the node itself as its head"),
        (("1 0 root 0:root", "2 1 a 1:x|1:x"), 12, "the DEPS of node 2 has an arc twice"),
        (("1 0 root 0:root", "2 1 a 1:x|0:y"), 12, "the DEPS of node 2 is not sorted by head"),
        (("1 0 root 0:root", "2 1 a _"), 12, "by DEPS, node 2 is not reached from the root"),
        (
            ("1 0 root 0:root", "2 1 a 3:x", "3 1 a 2:x"),
            12,
            "by DEPS, node 2 is not reached from the root",
        ),
        (
            ("1 0 root _", "1.1 _ _ _"),
            11,
            "by DEPS, node 1 is not reached from the root",
        ),
        (("1-2 1 _ _", "1 0 root _", "2 1 a _"), 11, "the multiword token 1-2 has a HEAD"),
        (("1-2 _ x _", "1 0 root _", "2 1 a _"), 11, "the multiword token 1-2 has a DEPREL"),
        (("1-2 _ _ 0:x", "1 0 root _", "2 1 a _"), 11, "the multiword token 1-2 has a DEPS"),
        (("1 0 root 0:root", "1.1 1 _ 1:x"), 12, "the empty node 1.1 has a HEAD"),
    ],
)  # fmt: skip
def test_doubts(lines: tuple[str, ...], line: int, message: str) -> None:
    assert told(*lines) == [(line, message)]
