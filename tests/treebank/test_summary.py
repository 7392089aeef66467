"""The counts of a treebank, and its faults with their lines."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from seqtool.treebank.sentence import parse_sentence
from seqtool.treebank.summary import describe_treebank, diagnostics, summary_rows

GOLDEN = Path(__file__).parent / "golden"
COUNTED = GOLDEN / "counted.conllu"


def test_counts_by_hand() -> None:
    summary = describe_treebank(COUNTED)
    assert summary.files == [str(COUNTED)]
    # "broken" and the one of two roots are left out: 7 words and 4 words stay
    assert (summary.sentences, summary.words) == (2, 11)
    # 1-3 is one token of three words: 11 - 3 + 1
    assert (summary.tokens, summary.multiword_tokens, summary.empty_nodes) == (9, 1, 1)
    # A hearing is scheduled on it today, d ' .: "it" is in both
    assert summary.forms == 10
    # the same, but that d has none
    assert summary.lemmas == 9
    assert summary.upos == {
        "AUX": 1, "ADP": 1, "DET": 1, "X": 1, "VERB": 1, "NOUN": 2, "PRON": 2, "PUNCT": 2,
    }  # fmt: skip
    # by count, then by name
    assert list(summary.upos)[:4] == ["NOUN", "PRON", "PUNCT", "ADP"]
    assert summary.xpos == {
        "NN": 2, "PRP": 2, ".": 1, "DT": 1, "IN": 1, "VBN": 1, "VBZ": 1,
    }  # fmt: skip
    assert summary.feats == {"Number=Sing": 5, "Definite=Ind": 1, "PronType=Art": 1}
    assert summary.deprels == {
        "punct": 2, "root": 2, "aux": 1, "case": 1, "dep": 1, "det": 1, "nmod": 1, "nsubj": 1,
        "obl:tmod": 1,
    }  # fmt: skip
    # hearing -> it spans "is scheduled", which do not descend from "hearing"
    assert (summary.non_projective_sentences, summary.non_projective_arcs) == (1, 1)
    assert summary.non_projective_sentence_share == 1 / 2
    assert summary.non_projective_arc_share == 1 / 11
    assert (summary.longest, summary.longest_at) == (7, f"{COUNTED}:1")
    assert summary.mean_length == 5.5
    rows = dict(summary_rows(summary))
    assert rows["FEATS"] == "3: Number=Sing 5, Definite=Ind 1, PronType=Art 1"
    assert rows["non-projective arcs"] == "1 (9.09%)"
    assert [str(broken) for broken in summary.broken] == [
        f"{COUNTED}:12: no token has head 0: the tree has no root",
        f"{COUNTED}:23: tokens 1 and 2 have head 0: the tree has two roots",
    ]


def test_nothing_but_broken_sentences(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    path.write_text("1\ta\n\n2\tb\n")
    summary = describe_treebank(path)
    assert (summary.sentences, summary.words, summary.longest, summary.mean_length) == (0, 0, 0, 0)
    assert [broken.line for broken in summary.broken] == [1, 3]
    names = [name for name, _ in summary_rows(summary)]
    assert "longest sentence" not in names


def test_ewt(shared_data: Path) -> None:
    path = shared_data / "ewt" / "en_ewt-ud-dev.conllu"
    summary = describe_treebank(path)
    lines = [line.split("\t") for line in path.read_text(encoding="utf-8").split("\n")]
    words = [columns for columns in lines if columns[0].isdecimal()]
    assert summary.words == len(words)
    assert summary.forms == len({columns[1] for columns in words})
    assert summary.upos == Counter(columns[3] for columns in words)
    assert summary.deprels == Counter(columns[7] for columns in words)
    plural = sum("Number=Plur" in columns[5].split("|") for columns in words)
    assert summary.feats["Number=Plur"] == plural
    assert summary.broken == []


def of_graph(*lines: str) -> list[tuple[int, str]]:
    """Return the diagnostics of lines of ID, HEAD, DEPREL and DEPS, read from line 10 on."""
    rows = []
    for line in lines:
        identity, head, deprel, deps = line.split()
        rows.append("\t".join((identity, "a", "_", "_", "_", "_", head, deprel, deps, "_")))
    return list(diagnostics(parse_sentence("\n".join(("# c", *rows)), "x", 10, "columns")))


def of_sentence(*lines: str) -> list[tuple[int, str]]:
    """Return the diagnostics of comments, and lines of FORM, FEATS, HEAD, DEPREL and MISC."""
    comments = [line for line in lines if line.startswith("#")]
    rows = []
    for number, line in enumerate(lines[len(comments) :], start=1):
        form, feats, head, deprel, misc = line.split()
        rows.append(f"{number}\t{form}\t_\t_\t_\t{feats}\t{head}\t{deprel}\t_\t{misc}")
    return list(diagnostics(parse_sentence("\n".join((*comments, *rows)), "x", 10, "tree")))


@pytest.mark.parametrize(
    ("of", "lines"),
    [
        (of_graph, ("1 2 a _", "2 0 root _")),
        (of_graph, ("1 2 a 2:a", "2 0 root 0:root")),
        (of_graph, ("1 2 a 2:a:b:и|2.1:c", "2 0 root 0:root", "2.1 _ _ 2:d")),
        (of_graph, ("1 2 a 2:a|2:b", "2 0 root 0:root")),  # two relations of one head
        (of_graph, ("1 2 a 2:a", "2 0 root 0:root|1:x")),  # a cycle that is reached
        (of_graph, ("1-2 _ _ _", "1 2 a 2:a", "2 0 root 0:root")),
        (of_graph, ("0.1 _ _ 1:x", "1 0 root 0:root")),
        (of_graph, ("1 0 root 0:root", *(f"{n} 1 a {n - 1}:a" for n in range(2, 5000)))),
        (of_sentence, ("Hi _ 0 root _",)),
        (
            of_sentence,
            ("# text = a b.", "a _ 0 root _", "b A=1|B=2,3 1 x SpaceAfter=No", ". _ 1 x _"),
        ),
        (of_sentence, ("# text = Hi  a", "Hi _ 0 root SpacesAfter=\\s\\s", "a A[x]=1 1 a _")),
    ],
)
def test_what_is_sound(of: Any, lines: tuple[str, ...]) -> None:
    assert of(*lines) == []


ONE = "1 0 root 0:root"


@pytest.mark.parametrize(
    ("lines", "line", "message"),
    [
        ((ONE, "2 1 a x"), 12, "no list"),
        ((ONE, "2 1 a 1:"), 12, "no list"),
        ((ONE, "2 1 a 01:x"), 12, "no list"),
        ((ONE, "2 1 a 1:x|"), 12, "no list"),
        ((f"{ONE}|9:x",), 11, "head that is not there"),
        ((f"{ONE}|1.1:x",), 11, "head that is not there"),
        ((f"{ONE}|1:x",), 11, "itself"),
        ((ONE, "2 1 a 1:x|1:x"), 12, "twice"),
        ((ONE, "2 1 a 1:x|0:y"), 12, "not sorted"),
        ((ONE, "2 1 a _"), 12, "node 2 is not reached"),
        ((ONE, "2 1 a 3:x", "3 1 a 2:x"), 12, "node 2 is not reached"),
        (("1 0 root _", "1.1 _ _ _"), 11, "node 1 is not reached"),
        (("1-2 1 _ _", "1 0 root _", "2 1 a _"), 11, "multiword token 1-2 has a HEAD"),
        (("1-2 _ x _", "1 0 root _", "2 1 a _"), 11, "multiword token 1-2 has a DEPREL"),
        (("1-2 _ _ 0:x", "1 0 root _", "2 1 a _"), 11, "multiword token 1-2 has a DEPS"),
        ((ONE, "1.1 1 _ 1:x"), 12, "empty node 1.1 has a HEAD"),
        # of sentences: five columns, or comments
        (("Hi Foo 0 root _",), 10, "FEATS Foo"),
        (("Hi A=1|A=2 0 root _",), 10, "FEATS A=1|A=2"),
        (("Hi A=1|=2 0 root _",), 10, "FEATS A=1|=2"),
        (("Hi A= 0 root _",), 10, "FEATS A="),
        (("Hi _ 0 a _", "you _ 1 root _"), 11, "is a root, but"),
        (("# c", "# text = Hi", "Ho _ 0 root _"), 11, "'Hi' where the words make 'Ho'"),
        (("# text = a b c", "a _ 0 root _", "b _ 1 x SpaceAfter=No", "c _ 1 x _"), 10, "make 'bc'"),
        (("# text = a", "a _ 0 root _", "b _ 1 x _"), 10, "make 'b'"),
    ],
)
def test_faults(lines: tuple[str, ...], line: int, message: str) -> None:
    of = of_graph if lines[0][0].isdecimal() else of_sentence
    ((place, fault),) = of(*lines)
    assert place == line
    assert message in fault


def test_a_name_given_twice(tmp_path: Path) -> None:
    one = "# sent_id = a\n1\tHi\thi\tINTJ\t_\t_\t0\troot\t_\t_\n\n"
    (tmp_path / "a.conllu").write_text(one + one.replace("= a", "= b") + one)
    (tmp_path / "b.conllu").write_text(one)  # a name of another file is another
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
