"""Labellers of words: entities, Viterbi by brute force, what is learnt, files of both kinds."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import sys
from collections.abc import Callable
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsing.tagger.toy import tiny_labeller
from safetensors.numpy import load_file

import seqtool as package
from seqtool.core import checkpoint
from seqtool.core.errors import ConfigError, DataError
from seqtool.parsing.tagger.columns import is_column_file, read_columns, read_labelled
from seqtool.parsing.tagger.config import LabelsConfig
from seqtool.parsing.tagger.entities import (
    LabelCounts,
    allowed_pairs,
    are_entities,
    entities_of,
    keeps_to_bio,
)
from seqtool.parsing.tagger.labeller import Labeller, best_sequence
from seqtool.parsing.tagger.train import train_labeller
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.sentence import UPOS

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "data"))

import tasks

Run = Callable[..., Any]
MISC = 9


def as_columns(conllu: str) -> str:
    """The same sentences with a word and its label a line."""
    lines = []
    for line in conllu.split("\n"):
        if cells := line.split("\t")[1:]:
            label = [item for item in cells[-1].split("|") if item.startswith("NER=")]
            line = f"{cells[0]}\t{label[0][4:] if label else 'O'}"
        lines.append(line)
    return "\n".join(lines)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("names")
    for split, num in (("train", 300), ("valid", 80)):
        named = (rows for rows in tasks.names(split) if any("NER" in row[MISC] for row in rows))
        text = tasks.conllu(islice(named, num))
        (folder / f"{split}.conllu").write_text(text)
        (folder / f"{split}.conll").write_text(as_columns(text))
    (folder / "few.conllu").write_text(tasks.conllu(islice(tasks.names("valid"), 40)))
    train, dev = folder / "train.conllu", folder / "valid.conllu"
    result = train_labeller(train, folder / "m", tiny_labeller(), dev=dev, device="cpu")
    assert result.scores["dev_f1"] > 95
    return folder


@pytest.mark.parametrize("seed", range(12))
def test_the_best_allowed_sequence_is_found(seed: int) -> None:
    """Against all sequences."""
    allowed = allowed_pairs(["O", "B-A", "I-A", "B-B", "I-B"])
    length = 1 + seed % 4
    scores = np.random.default_rng(seed).normal(size=(length, 5)).astype(np.float32)
    sequences = (
        sequence
        for sequence in product(range(5), repeat=length)
        if all(allowed[pair] for pair in zip((5, *sequence), sequence, strict=False))
    )
    expected = max(
        sequences, key=lambda each: sum(float(row[i]) for row, i in zip(scores, each, strict=True))
    )
    assert best_sequence(scores, allowed) == list(expected)


def test_names_are_found_in_files_of_both_kinds(folder: Path, tmp_path: Path) -> None:
    labeller = package.load(folder / "m", package.Labeller)
    counts = LabelCounts()
    sentences = list(read_columns(str(folder / "valid.conll")))
    for gold, found in zip(sentences, labeller.label([s.forms for s in sentences]), strict=True):
        counts.add(gold.labels or (), found)
    assert counts.total.f1 == pytest.approx(checkpoint.read_header(folder / "m").scores["dev_f1"])
    # the same words and labels, so the same weights
    for suffix in ("conll", "conllu"):
        train, dev = folder / f"train.{suffix}", folder / f"valid.{suffix}"
        train_labeller(train, tmp_path / suffix, tiny_labeller(1), dev=dev, device="cpu")
    of_columns, of_misc = (
        load_file(tmp_path / suffix / checkpoint.WEIGHTS) for suffix in ("conll", "conllu")
    )
    for name, array in of_columns.items():
        np.testing.assert_array_equal(array, of_misc[name], err_msg=name)


def test_labels_that_are_there_stay(folder: Path) -> None:
    labeller = package.load(folder / "m", Labeller)
    sentences = list(islice(read_conllu(folder / "valid.conllu"), 5))
    sentences[0][0].misc["NER"] = "B-ODD"
    before = [sentence.to_conllu() for sentence in sentences]
    labeller.tag(sentences)
    assert [sentence.to_conllu() for sentence in sentences] == before
    labeller.tag(sentences, retag=True)
    assert sentences[0][0].misc.get("NER") != "B-ODD"
    for sentence in sentences:
        for token in sentence:
            token.misc.pop("NER", None)
    labeller.tag(sentences)
    assert "NER=B-PER" in "".join(sentence.to_conllu() for sentence in sentences)


def test_other_labels_are_chosen_word_by_word(tmp_path: Path) -> None:
    lines = "der\tgerman\ndog\tenglish\nist\tgerman\n\nthe\tenglish\nHund\tgerman\n\n" * 12
    (tmp_path / "mixed.conll").write_text(lines)
    result = train_labeller(
        tmp_path / "mixed.conll", tmp_path / "m", tiny_labeller(20), device="cpu"
    )
    assert result.scores["dev_accuracy"] == 100
    assert "dev_f1" not in result.scores
    labeller = package.load(tmp_path / "m", Labeller)
    assert not labeller.is_bio
    assert labeller.label([["the", "Hund"]]) == [["english", "german"]]


def columns(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_which_files_have_a_word_a_line(tmp_path: Path) -> None:
    conllu = tasks.conllu(islice(tasks.names("valid"), 1))
    plus = "# global.columns = ID FORM NER\n1\ta\tO\n"
    yes = ["a\tO\n", "a\tx\ty\n", "a O\n", "a NN B-NP B-PER\n", "# id = 3\na B-X\n"]
    for name, texts, expected in (
        ("a.txt", yes, True),
        ("a.txt", [conllu, "a fine day\n", "word\n"], False),
        ("words.conll", ["word\n"], True),
        ("plus.conllup", [plus], False),
    ):
        for text in texts:
            assert is_column_file(columns(tmp_path / name, text)) == expected, text
    assert not is_column_file(str(tmp_path))
    assert not is_column_file(os.devnull)  # nor what can be read once


def test_columns_come_back_as_they_were(tmp_path: Path) -> None:
    text = "# id = 1\nAnna NNP B-PER\nsees VBZ O\n\n-DOCSTART- -X- O\n\n\nRome NNP _\n"
    found = list(read_columns(columns(tmp_path / "a.conll", text)))
    assert [sentence.forms for sentence in found] == [["Anna", "sees"], ["-DOCSTART-"], ["Rome"]]
    assert [sentence.labels for sentence in found] == [["B-PER", "O"], ["O"], None]
    assert [sentence.line for sentence in found] == [1, 5, 8]
    assert found[0].written(["O", "O"]) == "# id = 1\nAnna NNP O\nsees VBZ O\n\n"
    # comments that an empty line follows are of the next sentence
    text = "# doc = 1\n\n# id = 1\nAnna\tO\n\n\n# doc = 2\n\n\nRome\t_\n\n"
    found = list(read_columns(columns(tmp_path / "c.conll", text)))
    assert [sentence.line for sentence in found] == [1, 7]
    written = "".join(item.written(item.labels or ["O"]) for item in found)
    assert written == text.replace("\n\n\n#", "\n\n#").replace("_", "O")
    (alone,) = read_columns(columns(tmp_path / "b.conll", "Anna\nBerg\n"))
    assert alone.labels is None
    assert alone.written(["B-PER", "I-PER"]) == "Anna B-PER\nBerg I-PER\n\n"


NUMBERED = (  # files of names with a number first, and what is read of them
    ("1\ttampa\tB-LOC\t-\tann\n2\tbay\tI-LOC\t-\tann\n\n1\tHi\tO\t-\tann\n\n", "BIO"),
    (
        "#\thttp://a.de/b\t[2009]\n1\tAnna\tB-PER\tO\n2\tBerg\tI-PER\tB-LOC\n\n1\tja\tO\tO\n\n",
        "BIO",
    ),
    ("1 Anna N B-PER\n2 Berg N I-PER\n\n1 ja _ O\n\n", "BIO"),
    ("1\tAnna\tanna\tNN\n2\tBerg\tberg\tNP\n\n1\tja\tja\tADV\n\n", "NNA"),
    ("1\tAnna\n2\tBerg\n\n1\tja\n\n", ""),
)


@pytest.mark.parametrize(("text", "letters"), NUMBERED)
def test_a_first_column_of_numbers_is_no_word(text: str, letters: str, tmp_path: Path) -> None:
    path = columns(tmp_path / "a.conll", text)
    assert is_column_file(path)
    found = list(read_columns(path))
    assert found[1].forms in (["Hi"], ["ja"])
    labels = [label for sentence in found for label in sentence.labels or ()]
    assert "".join(label[0] for label in labels) == letters
    same = "".join(item.written(item.labels or ["X"] * len(item.rows)) for item in found)
    assert same == (text if letters else text.replace("\n", "\tX\n").replace("\n\tX", "\n"))


def test_columns_can_be_named(tmp_path: Path) -> None:
    path = columns(tmp_path / "a.conll", NUMBERED[1][0])
    inner = next(read_columns(path, label=4))
    assert (inner.forms, inner.labels) == (["Anna", "Berg"], ["O", "B-LOC"])
    assert next(read_columns(path, 1, 2)).forms == ["1", "2"]
    both = read_labelled([path, path], "NER", label=4, skip_invalid=False)
    assert [item.column(UPOS) for item in both] == [["O", "B-LOC"], ["O"]] * 2
    with pytest.raises(DataError, match="has no column 5"):
        next(read_columns(path, label=5))
    for word, label in ((None, 2), (3, 3)):
        with pytest.raises(ConfigError, match="both words and labels"):
            next(read_columns(path, word, label))
    # words may be numbers where each has a label
    path = columns(tmp_path / "b.conll", "1\tB-X\n2\tO\n\n1\tO\n\n")
    assert next(read_columns(path)).forms == ["1", "2"]


def test_a_line_with_as_many_cells_as_others_is_a_word(tmp_path: Path) -> None:
    text = "#id=1\tB-TAG\n# id = 2\na\tO\n\n#id=3\tO\tx\n#b\tO\n\n"
    with pytest.raises(DataError, match="1 column, where"):
        list(read_columns(columns(tmp_path / "a.conll", text)))
    text = "# id = 2\n#id=1\tB-TAG\na\tO\n\n#id=3 x\n#b\tO\n\n"
    path = columns(tmp_path / "a.conll", text)
    found = list(read_columns(path))
    assert [item.forms for item in found] == [["#id=1", "a"], ["#b"]]
    assert "".join(item.written(item.labels or []) for item in found) == text


@pytest.mark.parametrize(
    ("name", "text", "line", "message"),
    [
        ("a.conll", "a\tO\nb\n", 2, "1 column, where the lines before have 2"),
        ("a.conll", "a\tO\n\nb\tO\tO\n", 3, "3 columns, where the lines before have 2"),
        ("a.conll", "a\tO\n\tO\n", 2, "2 columns"),
        ("a.conll", "a\tO\nb\tO\n", None, "all words have the label 'O'"),
        ("a.conll", "a\tO\n\nb\tX|Y\n", 3, "cannot stand in column MISC"),
        ("a.conll", "", None, "the file is empty"),
        ("a.conll", "a\tO\nb\tX\n\n# end = 1\n\n", 4, "comments at the end, without words"),
        ("a.conll", "a\nb\n", None, "has no column of labels"),
        ("a.txt", "a noun\nb verb\n", None, "has no column of labels"),
        ("a.conllu", "a\nb\n", 1, "1 column, where CoNLL-U has 10"),
        (
            "a.conllu",
            "1\ta" + "\t_" * 4 + "\t0\troot\t_\tLang=en\n\n",
            None,
            "no word has NER in column MISC",
        ),
    ],
)
def test_bad_files_are_refused(
    name: str, text: str, line: int | None, message: str, tmp_path: Path
) -> None:
    path = columns(tmp_path / name, text)
    with pytest.raises(DataError, match=message) as caught:
        read_labelled([path], "NER", skip_invalid=False)
    assert (caught.value.path, caught.value.line) == (path, line)


def test_labels_are_read_from_misc(folder: Path, tmp_path: Path) -> None:
    text = (folder / "valid.conllu").read_text(encoding="utf-8")
    path = columns(tmp_path / "names.txt", f"# newdoc\n# newpar\n{text}")
    broken = columns(tmp_path / "broken.txt", f"broken\n\n{text}")
    first, *others = (
        [sentence.column(UPOS) for sentence in read_labelled([file], "NER", skip_invalid=True)]
        for file in (str(folder / "valid.conllu"), str(folder / "valid.conll"), path, broken)
    )
    assert others == [first] * 3
    assert {label for each in first for label in each} == {"O", "B-PER", "I-PER", "B-LOC"}
    with pytest.raises(ConfigError, match="no key of column MISC"):
        LabelsConfig(column="N=R")


def test_what_is_no_sentence_is_refused(folder: Path) -> None:
    labeller = package.load(folder / "m", Labeller)
    assert labeller.label([[], ["Anna", "sleeps"]])[0] == []
    for texts in ("Anna sleeps", ["Anna sleeps"], [["Anna"], "sleeps"]):
        with pytest.raises(TypeError, match="expected sentences as lists of words"):
            labeller.label(texts)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"sentence 2 is U.DCE9, half a pair"):
        labeller.label([["Anna"], ["d\udce9g"]])


def test_train_tagger_with_a_column(seqtool: Run, folder: Path, tmp_path: Path) -> None:
    options = ("--dev", folder / "valid.conllu", "--column", "NER", "--preset", "fast")
    sizes = ("--set", "model.encoder_size=12", "--set", "model.lexical_size=16", "--epochs", "1")
    output = ("-o", tmp_path / "m")
    made = seqtool("train-tagger", folder / "few.conllu", *options, *output, *sizes)
    assert (made.code, made.stdout) == (0, f"{tmp_path / 'm'}\n"), made.stderr
    assert "dev entities: precision" in made.stderr
    again = seqtool("train-tagger", "--resume", "--epochs", "2", "--json", *output)
    assert again.code == 0, again.stderr
    answer = json.loads(again.stdout)
    assert (answer["epochs"], set(answer["types"])) == (2, {"LOC", "PER"})


@pytest.mark.parametrize("name", ["valid.conllu", "valid.conll"])
def test_tag_keeps_labels_or_judges_its_own(
    name: str, seqtool: Run, folder: Path, tmp_path: Path
) -> None:
    result = seqtool("tag", folder / name, "-m", folder / "m", "--retag")
    assert result.code == 0
    assert "entities: precision " in result.stderr.splitlines()[-1]
    kept = seqtool("tag", folder / name, "-m", folder / "m")
    assert kept.stdout == (folder / name).read_text()
    assert "--retag predicts them anew" in kept.stderr
    assert len(result.stdout.splitlines()) == len(kept.stdout.splitlines())
    shutil.copy(folder / name, again := tmp_path / f"again-{name}")  # each gets a file of its own
    out = tmp_path / "out"
    assert seqtool("tag", folder / name, again, "-m", folder / "m", "-o", f"{out}/").code == 0
    assert [(out / path.name).read_text() for path in (folder / name, again)] == [kept.stdout] * 2


def test_tag_reads_columns(seqtool: Run, folder: Path, tmp_path: Path) -> None:
    retag = ("-m", folder / "m", "--retag")
    # a column in which nothing stands is no label
    blank = columns(tmp_path / "blank.conll", "Anna\tNNP\t_\nsees\tVBZ\t_\n\n" * 3)
    for options in (retag[:2], retag):
        filled = seqtool("tag", blank, *options)
        assert (filled.code, filled.stderr.count("\n")) == (0, 1)
        assert filled.stdout.startswith("Anna\tNNP\tB-PER\nsees\tVBZ\tO\n")
    # where others have labels, it is O
    part = columns(tmp_path / "part.conll", "Anna\t_\nsees\t_\n\nAnna\tB-PER\nsees\tO\n\n")
    assert seqtool("tag", part, *retag).stderr.splitlines()[-1] == (
        "entities: precision 50.00, recall 100.00, F1 66.67; 75.00 % of 4 words right"
    )
    # sentences without labels are labelled, and not counted as right
    labelled = columns(tmp_path / "labelled.conll", "Anna B-PER\nsees O\nRome B-LOC\n")
    bare = columns(tmp_path / "bare.conll", "Anna\nsees\nRome\n")
    of_one, of_both = (seqtool("tag", *names, *retag) for names in ([labelled], [labelled, bare]))
    assert "of 3 words right" in of_one.stderr
    assert of_both.stderr == of_one.stderr
    assert of_both.stdout.startswith(of_one.stdout)
    # a damaged file is left out with --skip-invalid, and an error without
    packed = tmp_path / "packed.conll.gz"
    packed.write_bytes(gzip.compress(Path(labelled).read_bytes() * 1000)[:-9])
    with_it = seqtool("tag", packed, labelled, *retag, "--skip-invalid")
    assert (with_it.code, with_it.stdout) == (0, of_one.stdout)
    assert f"left out: {packed}" in with_it.stderr
    assert seqtool("tag", packed, labelled, *retag).code == 1
    # what is said to be text is text, whatever its first line looks like
    text = columns(tmp_path / "indented.txt", "\tAnna sees Rome.\n")
    words = seqtool("tag", text, "--rules", "-m", folder / "m").stdout.splitlines()
    assert [line.split("\t")[1] for line in words if "\t" in line][:2] == ["Anna", "sees"]
    # which columns are read is said, and can be chosen
    numbered = columns(tmp_path / "numbered.conll", "1\tAnna\tO\tB-PER\n2\tsees\tO\tO\n\n")
    for more, right in ((), "50.00"), (("--label-column", 4), "100.00"):
        result = seqtool("tag", numbered, *retag, *more)
        assert result.stdout.startswith(f"1\tAnna\t{'O' if more else 'B-PER'}\tB-PER\n2\tsees\t")
        assert f"words from column 2, labels from column {4 if more else 3}" in result.stderr
        assert f"{right} % of 2 words right" in result.stderr


def test_commands_that_cannot_be(seqtool: Run, folder: Path, tmp_path: Path) -> None:
    valid, model = folder / "valid.conllu", ("-m", folder / "m")
    text = columns(tmp_path / "text.txt", "Anna sleeps\n")
    for command, message in (
        (("tag", *model, valid, "--word-column", 2), "--word-column"),
        (("train-tagger", "-o", tmp_path / "n", valid, "--word-column", 2), "--word-column"),
        (("tag", valid, folder / "valid.conll", *model), "files with a word a line cannot"),
        (("tag", valid, *model, *model), "-m names 2 models"),
        (("analyse", "surprisal", text, "-m", folder, "--tagger", folder / "m"), ""),
    ):
        refused = seqtool(*command)
        assert (refused.code, refused.stdout) == (1, "")
        assert refused.stderr.startswith(f"error: {message}")


def test_entities_by_hand() -> None:
    labels = ["B-PER", "I-PER", "O", "B-LOC", "I-LOC", "B-LOC", "O", "I-PER", "I-LOC", "I-LOC"]
    assert entities_of(labels) == [
        ("PER", 0, 2),
        ("LOC", 3, 5),
        ("LOC", 5, 6),
        ("PER", 7, 8),  # an I that goes on with nothing begins
        ("LOC", 8, 10),
    ]
    found = entities_of(["B-A", "I-A", "E-A", "I-A", "S-A", "S-A", "E-A"])
    assert found == [("A", *span) for span in ((0, 3), (3, 4), (4, 5), (5, 6), (6, 7))]
    assert entities_of(["B-A-b", "I-A-b"]) == [("A-b", 0, 2)]
    assert entities_of([]) == entities_of(["O"]) == []


def test_scores_by_hand() -> None:
    counts = LabelCounts()
    counts.add(["B-A", "I-A", "O", "B-B"], ["B-A", "I-A", "O", "B-A"])
    counts.add(["B-B", "I-B"], ["B-B", "O"])
    assert counts.total == (100 / 3, 100 / 3, 100 / 3, 3)
    assert counts.by_type == {"A": (50.0, 100.0, 200 / 3, 1), "B": (0.0, 0.0, 0.0, 2)}
    assert counts.accuracy == pytest.approx(100 * 4 / 6)


@pytest.mark.parametrize("alphabet", ["BI", "BIES"])
def test_entities_are_those_of_seqeval(alphabet: str) -> None:
    pytest.importorskip("seqeval", reason="seqeval is not installed: make judges")
    from seqeval import metrics
    from seqeval.metrics import sequence_labeling as judge

    source = random.Random(2)
    names = ["O", "O", *(f"{part}-{type_}" for part in alphabet for type_ in ("PER", "LOC", "X-Y"))]
    for _ in range(40):
        lengths = [source.randrange(1, 9) for _ in range(6)]
        gold, found = ([source.choices(names, k=n) for n in lengths] for _ in range(2))
        # some entities in common, so that scores are not all zeros
        found = [list(labels) if source.random() < 0.4 else other
                 for labels, other in zip(gold, found, strict=True)]  # fmt: skip
        counts = LabelCounts()
        for labels, others in zip(gold, found, strict=True):
            spans = [(span.type, span.begin, span.end - 1) for span in entities_of(labels)]
            assert spans == judge.get_entities(labels)
            counts.add(labels, others)
        for name in ("precision", "recall", "f1"):
            expected = getattr(metrics, f"{name}_score")(gold, found, zero_division=0)
            assert getattr(counts.total, name) == pytest.approx(100 * expected)
        assert counts.accuracy == pytest.approx(100 * metrics.accuracy_score(gold, found))
        report = metrics.classification_report(gold, found, output_dict=True, zero_division=0)
        for name, scores in counts.by_type.items():
            of_type = report[name]
            wanted = [100 * of_type[key] for key in ("precision", "recall", "f1-score")]
            assert scores == pytest.approx([*wanted, of_type["support"]])


def test_what_bio_allows() -> None:
    labels = ["O", "I-A", "B-A", "I-B", "B-B"]
    # O may be followed by all but I; A's B and I by A's I, too; the begin of a sentence is as O
    assert allowed_pairs(labels).astype(int).tolist() == [
        [1, 0, 1, 0, 1],
        [1, 1, 1, 0, 1],
        [1, 1, 1, 0, 1],
        [1, 0, 1, 1, 1],
        [1, 0, 1, 1, 1],
        [1, 0, 1, 0, 1],
    ]
    assert keeps_to_bio([["O"], ["B-A", "I-A", "O"]])
    for broken in (["I-A"], ["B-B", "I-A"], ["B-A", "E-A"], ["NOUN"], ["O", "O"], ["B-"]):
        assert not keeps_to_bio([broken])
    assert are_entities({"O", "B-A", "E-x y"})
    assert not are_entities({"O", "B"})


@given(st.lists(st.sampled_from(["O", "B-A", "I-A", "B-B", "I-B"]), max_size=9))
def test_spans_of_bio_write_the_labels_again(labels: list[str]) -> None:
    written = ["O"] * len(labels)
    for type_, begin, end in entities_of(labels):
        written[begin:end] = [f"B-{type_}", *[f"I-{type_}"] * (end - begin - 1)]
    assert entities_of(written) == entities_of(labels)
    if keeps_to_bio([labels]):
        assert written == labels
