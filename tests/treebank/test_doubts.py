"""Doubtful lines: sound sentences pass, and each fault is told with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqtool.treebank.doubts import doubts
from seqtool.treebank.sentence import parse_sentence
from seqtool.treebank.summary import describe_treebank


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


def sentence_of(*lines: str) -> list[tuple[int, str]]:
    """Return the doubts about comments, and lines of FORM, FEATS, HEAD, DEPREL and MISC."""
    comments = [line for line in lines if line.startswith("#")]
    rows = []
    for number, line in enumerate(lines[len(comments) :], start=1):
        form, feats, head, deprel, misc = line.split()
        rows.append(f"{number}\t{form}\t_\t_\t_\t{feats}\t{head}\t{deprel}\t_\t{misc}")
    return list(doubts(parse_sentence("\n".join((*comments, *rows)), "x", 10, "tree")))


@pytest.mark.parametrize(
    "lines",
    [
        ("Hi _ 0 root _",),
        ("# text = Hi there.", "Hi _ 0 root _", "there A=1|B=2,3 1 a SpaceAfter=No", ". _ 1 b _"),
        ("# text = Hi  there", "Hi _ 0 root SpacesAfter=\\s\\s", "there A[x]=1 1 a _"),
    ],
)
def test_sound_sentences(lines: tuple[str, ...]) -> None:
    assert sentence_of(*lines) == []


@pytest.mark.parametrize(
    ("lines", "line", "message"),
    [
        (("Hi Foo 0 root _",), 10, "the FEATS Foo are no list of Name=Value"),
        (("Hi A=1|A=2 0 root _",), 10, "the FEATS A=1|A=2 are no list of Name=Value"),
        (("Hi A=1|=2 0 root _",), 10, "the FEATS A=1|=2 are no list of Name=Value"),
        (("Hi A= 0 root _",), 10, "the FEATS A= are no list of Name=Value"),
        (("Hi _ 0 a _", "you _ 1 root _"), 11, "word 2 is a root, but depends on another"),
        (
            ("# c", "# text = Hi", "Ho _ 0 root _"),
            11,
            "the text has 'Hi' where the words make 'Ho'",
        ),
        (
            ("# text = a b c d", "a _ 0 root _", "b _ 1 x SpaceAfter=No", "c _ 1 x _", "d _ 1 x _"),
            10,
            "the text has 'b c d' where the words make 'bc d'",
        ),
        (
            ("# text = a", "a _ 0 root _", "b _ 1 x _"),
            10,
            "the text has 'its end' where the words make 'b'",
        ),
    ],
)
def test_doubtful_sentences(lines: tuple[str, ...], line: int, message: str) -> None:
    assert sentence_of(*lines) == [(line, message)]


def test_a_name_given_twice(tmp_path: Path) -> None:
    one = "# sent_id = a\n1\tHi\thi\tINTJ\t_\t_\t0\troot\t_\t_\n\n"
    (tmp_path / "a.conllu").write_text(one + one.replace("= a", "= b") + one)
    (tmp_path / "b.conllu").write_text(one)  # a name of another file is no doubt
    summary = describe_treebank(tmp_path)
    assert [str(each) for each in summary.doubtful] == [
        f"{tmp_path / 'a.conllu'}:7: another sentence has the sent_id a, too"
    ]


def test_tags_and_rare_relations_that_are_not_of_universal_dependencies(tmp_path: Path) -> None:
    row = "{}\ta\t_\t{}\t_\t_\t{}\t{}\t_\t_\n".format
    root = row(1, "_", 0, "root")
    (tmp_path / "a.conllu").write_text(
        root + row(2, "NOUN", 1, "nsbj") + row(3, "NOU", 1, "nsubj:pas") + "\n"
        + (root + row(2, "X", 1, "own:x") + "\n") * 3
        + root + row(2, "_", 1, "nsbj:pass") + "\n"
    )  # fmt: skip
    summary = describe_treebank(tmp_path)
    assert [(each.line, each.message.split()[2]) for each in summary.doubtful] == [
        (2, "nsbj"), (3, "NOU"), (15, "nsbj:pass"),
    ]  # fmt: skip
    assert summary.doubtful_lines == 3
