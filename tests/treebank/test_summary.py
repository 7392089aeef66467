from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from seqtool.core.errors import DataError
from seqtool.treebank.summary import describe_treebank, summary_rows

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
    assert [str(broken) for broken in summary.broken] == [
        f"{COUNTED}:12: no token has head 0: the tree has no root",
        f"{COUNTED}:23: tokens 1 and 2 have head 0: the tree has two roots",
    ]


def test_rows() -> None:
    rows = dict(summary_rows(describe_treebank(COUNTED)))
    assert rows["words"] == "11"
    assert rows["FEATS"] == "3: Number=Sing 5, Definite=Ind 1, PronType=Art 1"
    assert rows["DEPREL"].startswith("9: punct 2, root 2, aux 1, ")
    assert rows["DEPREL"].endswith(", nsubj 1, ...")
    assert rows["non-projective sentences"] == "1 (50.00%)"
    assert rows["non-projective arcs"] == "1 (9.09%)"
    assert rows["longest sentence"] == f"7 words ({COUNTED}:1)"
    assert rows["broken sentences"] == "2"


def test_several_files_add_up() -> None:
    one, other = describe_treebank(COUNTED), describe_treebank(GOLDEN / "everything.conllu")
    both = describe_treebank([COUNTED, GOLDEN / "everything.conllu"])
    assert both.files == [*one.files, *other.files]
    for name in ("sentences", "words", "tokens", "empty_nodes", "non_projective_arcs"):
        assert getattr(both, name) == getattr(one, name) + getattr(other, name)
    assert both.broken == one.broken
    # both have a sentence of seven words: the first one is named
    assert one.longest == other.longest == both.longest == 7
    assert both.longest_at == one.longest_at


def test_nothing_but_broken_sentences(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    path.write_text("1\ta\n\n2\tb\n")
    summary = describe_treebank(path)
    assert (summary.sentences, summary.words, summary.longest, summary.mean_length) == (0, 0, 0, 0)
    assert [broken.line for broken in summary.broken] == [1, 3]
    names = [name for name, _ in summary_rows(summary)]
    assert "longest sentence" not in names


def test_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    path.touch()
    with pytest.raises(DataError, match="the file is empty"):
        describe_treebank(path)


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
