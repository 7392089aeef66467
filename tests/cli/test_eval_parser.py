"""`seqtool eval-parser` as a user meets it."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seqtool.treebank.sentence import UPOS, Sentence

Run = Callable[..., Any]

# (form, UPOS, head, relation)
GOLD = [
    ("dogs", "NOUN", 2, "nsubj"),
    ("bark", "VERB", 0, "root"),
    ("loudly", "ADV", 2, "advmod"),
    (".", "PUNCT", 2, "punct"),
]
# loudly depends on dogs, and the full stop on loudly: half of the heads are right
HALF = [*GOLD[:2], ("loudly", "ADV", 1, "amod"), (".", "PUNCT", 3, "punct")]


def conllu(words: Sequence[tuple[str, str, int, str]]) -> str:
    lines = [
        f"{i}\t{form}\t{form}\t{upos}\t_\t_\t{head}\t{relation}\t_\t_\n"
        for i, (form, upos, head, relation) in enumerate(words, start=1)
    ]
    return "".join(lines) + "\n"


@pytest.fixture(autouse=True)
def in_a_folder_with_treebanks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gold.conllu").write_text(conllu(GOLD))
    Path("half.conllu").write_text(conllu(HALF))


class Guesser:
    """A parser that lets every word depend on the one before it, and calls it dep."""

    has_beam = True
    has_tagger = False

    def parse_stream(
        self, items: Sequence[Sentence], *, beam: int, allow_missing: bool, scores: bool
    ) -> Iterator[Sentence]:
        assert (beam, allow_missing) == (2, False)
        for sentence in items:
            num_words = len(sentence)
            sentence.set_tree(list(range(num_words)), ["root", *["dep"] * (num_words - 1)])
            if scores:
                sentence.set_scores([0.25] * num_words)
            yield sentence


@pytest.fixture
def guesser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every model be the guesser."""
    monkeypatch.setattr("seqtool.core.checkpoint.load", lambda path: Guesser())


def test_scores_are_shown(seqtool: Run) -> None:
    result = seqtool("eval-parser", "gold.conllu", "half.conllu")
    assert (result.code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "gold       gold.conllu: 1 sentence, 4 words",
        "predicted  half.conllu",
        "",
        "metric     precision  recall      F1  aligned accuracy",
        "Tokens        100.00  100.00  100.00",
        "Sentences     100.00  100.00  100.00",
        "Words         100.00  100.00  100.00",
        "UPOS          100.00  100.00  100.00            100.00",
        "XPOS          100.00  100.00  100.00            100.00",
        "UFeats        100.00  100.00  100.00            100.00",
        "AllTags       100.00  100.00  100.00            100.00",
        "Lemmas        100.00  100.00  100.00            100.00",
        "UAS            50.00   50.00   50.00             50.00",
        "LAS            50.00   50.00   50.00             50.00",
        # of dogs, bark and loudly, the first two
        "CLAS           66.67   66.67   66.67             66.67",
        "MLAS           66.67   66.67   66.67             66.67",
        "BLEX           66.67   66.67   66.67             66.67",
    ]


def test_json_is_one_flat_object(seqtool: Run) -> None:
    result = seqtool("eval-parser", "gold.conllu", "half.conllu", "--json", "--no-punct")
    content = json.loads(result.stdout)
    assert content["UAS"] == dict.fromkeys(
        ("precision", "recall", "f1", "aligned_accuracy"), pytest.approx(200 / 3)
    )
    assert content["Tokens"]["aligned_accuracy"] is None
    assert content["gold"] == "gold.conllu"
    assert content["predicted"] == "half.conllu"
    assert (content["sentences"], content["words"], content["punctuation"]) == (1, 4, False)
    assert not {"relations", "lengths", "confusions"} & set(content)


TABLES = ("--per-relation", "--per-length", "--confusion")


def test_tables_on_request(seqtool: Run) -> None:
    result = seqtool("eval-parser", "gold.conllu", "half.conllu", *TABLES)
    tables = result.stdout.split("\n\n")[2:]
    assert [table.rstrip().splitlines() for table in tables] == [
        [
            "labelled attachment by relation",
            "relation  gold  predicted  correct  precision  recall      F1",
            "advmod       1          0        0       0.00    0.00    0.00",
            "nsubj        1          1        1     100.00  100.00  100.00",
            "punct        1          1        0       0.00    0.00    0.00",
            "root         1          1        1     100.00  100.00  100.00",
            "amod         0          1        0       0.00    0.00    0.00",
        ],
        [
            # distances 1 0 1 2, predicted 1 0 2 1
            "labelled attachment by length",
            "length  gold  predicted  correct  precision  recall      F1",
            "root       1          1        1     100.00  100.00  100.00",
            "1          2          2        1      50.00   50.00   50.00",
            "2          1          1        0       0.00    0.00    0.00",
            "3-6        0          0        0       0.00    0.00    0.00",
            "7-         0          0        0       0.00    0.00    0.00",
        ],
        [
            "commonest confusions",
            "gold    predicted  words  with the right head",
            "advmod  amod           1                    0",
        ],
    ]
    content = json.loads(
        seqtool("eval-parser", "gold.conllu", "half.conllu", "--json", *TABLES).stdout
    )
    assert content["relations"]["nsubj"]["f1"] == 100
    assert content["lengths"]["1"]["correct"] == 1
    assert content["confusions"] == [
        {"gold": "advmod", "predicted": "amod", "count": 1, "right_head": 0}
    ]


def test_nothing_confused(seqtool: Run) -> None:
    result = seqtool("eval-parser", "gold.conllu", "gold.conllu", "--confusion")
    assert result.stdout.endswith("\n\nno relation is taken for another\n")


def test_two_annotations(seqtool: Run) -> None:
    result = seqtool("eval-parser", "gold.conllu", "half.conllu", "gold.conllu", "--seed", "1")
    assert result.code == 0
    head, _, rest = result.stdout.partition("\n\nF1\n")
    assert head.splitlines()[1:] == ["predicted  half.conllu", "predicted  gold.conllu"]
    lines = rest.splitlines()
    assert lines[0] == "metric     half.conllu  gold.conllu"
    assert "LAS              50.00       100.00" in lines
    # of one sentence there is one treebank to draw, whose lead is the observed one
    assert lines[-6:-3] == [
        "metric  difference  95% from      to       p",
        "UAS         +50.00    +50.00  +50.00  0.0001",
        "LAS         +50.00    +50.00  +50.00  0.0001",
    ]
    assert lines[-7] == "gold.conllu against half.conllu, paired bootstrap"


def test_two_annotations_as_json(seqtool: Run) -> None:
    result = seqtool("eval-parser", "gold.conllu", "half.conllu", "gold.conllu", "--json")
    content = json.loads(result.stdout)
    assert [found["predicted"] for found in content["results"]] == ["half.conllu", "gold.conllu"]
    assert content["results"][1]["LAS"]["f1"] == 100
    [lead] = content["significance"]
    assert (lead["first"], lead["second"]) == ("half.conllu", "gold.conllu")
    assert lead["LAS"] == {
        "difference": 50, "p_value": pytest.approx(1e-4, rel=1e-3), "low": 50, "high": 50,
        "samples": 10_000,
    }  # fmt: skip


def test_the_seed_decides_the_samples(seqtool: Run) -> None:
    Path("gold.conllu").write_text(conllu(GOLD) * 8)
    Path("first.conllu").write_text(conllu(GOLD) * 3 + conllu(HALF) * 5)
    Path("second.conllu").write_text(conllu(HALF) * 2 + conllu(GOLD) * 6)

    def p_value(*options: str) -> float:
        arguments = ("eval-parser", "gold.conllu", "first.conllu", "second.conllu", "--json")
        content = json.loads(seqtool(*arguments, *options).stdout)
        return float(content["significance"][0]["LAS"]["p_value"])

    assert p_value() == p_value("--seed", "1")
    assert p_value("--seed", "1") != p_value("--seed", "2")


@pytest.mark.usefixtures("guesser")
def test_a_model_parses_the_words_of_gold(seqtool: Run) -> None:
    result = seqtool("eval-parser", "gold.conllu", "-m", "guess", "--beam", "2", "--json")
    content = json.loads(result.stdout)
    assert content["predicted"] == "guess"
    # heads 0 1 2 3: that of loudly is right, its relation is not
    assert (content["UAS"]["f1"], content["LAS"]["f1"]) == (25, 0)


@pytest.mark.usefixtures("guesser")
def test_a_file_and_a_model_and_gold_from_stdin(
    seqtool: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(conllu(GOLD).encode())))
    result = seqtool("eval-parser", "-", "half.conllu", "-m", "guess", "--beam", "2", "--json")
    found = json.loads(result.stdout)["results"]
    assert [(entry["predicted"], entry["UAS"]["f1"]) for entry in found] == [
        ("half.conllu", 50),
        ("guess", 25),
    ]


@pytest.mark.usefixtures("guesser")
def test_what_models_find_together_is_scored_beside_them(seqtool: Run) -> None:
    models = ("-m", "a", "-m", "b")
    arguments = ("eval-parser", "gold.conllu", *models, "--beam", "2", "--together")
    content = json.loads(seqtool(*arguments, "--json").stdout)
    assert [entry["predicted"] for entry in content["results"]] == ["a", "b", "together"]
    assert [entry["second"] for entry in content["significance"]] == ["b", "together"]
    result = seqtool("eval-parser", "gold.conllu", *models[:2], "--together")
    assert (result.code, result.stdout) == (1, "")
    assert "--together is for several models" in result.stderr


class TaggingGuesser(Guesser):
    """A pipeline: it tags a word that has no tag, and finds the root only where it did so."""

    has_tagger = True

    def parse_stream(  # type: ignore[override]
        self, items: Sequence[Sentence], *, beam: int, scores: bool
    ) -> Iterator[Sentence]:
        for sentence in items:
            was_bare = sentence.rows[1][UPOS] == "_"
            heads = [2, 0, 2, 2] if was_bare else [0, 1, 1, 1]
            for columns in sentence.rows:
                columns[UPOS] = "X" if columns[UPOS] == "_" else columns[UPOS]
            sentence.set_tree(heads, ["root" if head == 0 else "dep" for head in heads])
            yield sentence


def test_a_model_does_not_find_what_another_wrote(
    seqtool: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqtool.core.checkpoint.load", lambda path: TaggingGuesser())
    Path("bare.conllu").write_text(
        conllu([(form, "_", head, relation) for form, _, head, relation in GOLD])
    )
    result = seqtool("eval-parser", "bare.conllu", "-m", "a", "-m", "b", "--json")
    assert [entry["UAS"]["f1"] for entry in json.loads(result.stdout)["results"]] == [100, 100]
    assert result.stderr == ""


def test_of_models_that_tag_nothing_is_missing(
    seqtool: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqtool.core.checkpoint.load", lambda path: TaggingGuesser())
    result = seqtool("eval-parser", "gold.conllu", "-m", "a", "--allow-missing")
    assert (result.code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: the models tag words that have no tags, so there is")


def test_it_says_that_a_pipeline_keeps_gold_tags(
    seqtool: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqtool.core.checkpoint.load", lambda path: TaggingGuesser())
    result = seqtool("eval-parser", "gold.conllu", "-m", "a")
    assert result.stderr.startswith(
        "a: gold words, and the tags and lemmas that gold.conllu has; to score it from plain text,"
    )


def test_the_sample_is_what_is_scored_without_gold(
    seqtool: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "seqtool.text.datasets.sample_treebank", lambda language, split: Path("gold.conllu")
    )
    result = seqtool("eval-parser")
    assert result.code == 1
    lines = result.stderr.splitlines()
    assert lines[0] == "no GOLD given: using the shipped sample, gold.conllu"
    assert lines[1].startswith("error: no model was given, and there is none in runs/parser")
    assert "seqtool train-parser" in lines[2]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("-", "-"), "error: stdin can be read once only"),
        (("gold.conllu", "half.conllu", "--beam", "4"), "error: --beam is for models that parse"),
        (("gold.conllu", "half.conllu", "--seed", "1"), "error: --seed is of the bootstrap that"),
        (("gold.conllu", "half.conllu", "--allow-missing"), "error: --allow-missing is for models"),
        (("gold.conllu", "-m", "a", "-m", "a"), "error: a is given twice"),
        (("gold.conllu", "other.conllu"), "error: other.conllu:3: the text differs: 'softly', "),
        (("gold.conllu", "broken.conllu"), "error: broken.conllu:2: the heads form a cycle"),
        (("gold.conllu", "none.conllu"), "error: none.conllu: "),
        (("gold.conllu", "-m", "none"), "error: none: "),
    ],
)
def test_errors_are_two_lines(seqtool: Run, arguments: tuple[str, ...], error: str) -> None:
    other = [*GOLD[:2], ("softly", "ADV", 2, "advmod"), GOLD[3]]
    Path("other.conllu").write_text(conllu(other))
    Path("broken.conllu").write_text(
        conllu([("dogs", "NOUN", 0, "root"), ("bark", "VERB", 3, "dep"), (".", "X", 2, "dep")])
    )
    result = seqtool("eval-parser", *arguments)
    assert (result.code, result.stdout) == (1, "")
    lines = result.stderr.splitlines()
    assert lines[0].startswith(error)
    assert lines[1].startswith("hint: ")
    assert len(lines) == 2


def test_a_model_that_is_no_parser(seqtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqtool.core.checkpoint.load", lambda path: object())
    result = seqtool("eval-parser", "gold.conllu", "-m", "lm")
    assert result.code == 1
    assert result.stderr.splitlines()[0] == "error: lm: is no parser"


def test_the_calibration_error_of_probabilities(seqtool: Run) -> None:
    """Each of the four words is a bin; the heads of the first two are right, 0.5 and 0.5."""
    rows = [line.split("\t") for line in conllu(HALF).splitlines()]
    for row, score in zip(rows, ("0.5", "0.500", "0.25", "0.75"), strict=False):
        row[9] = f"x=y|Score={score}"
    Path("half.conllu").write_text("\n".join("\t".join(row) for row in rows) + "\n")
    result = seqtool("eval-parser", "gold.conllu", "half.conllu", "--json")
    found = json.loads(result.stdout)["calibration"]
    assert found["words"] == 4
    assert found["expected_calibration_error"] == pytest.approx((0.5 + 0.5 + 0.25 + 0.75) / 4)
    assert [each["accuracy"] for each in found["bins"]] == [0.0, 1.0, 1.0, 0.0]
    shown = seqtool("eval-parser", "gold.conllu", "half.conllu").stdout.splitlines()
    assert shown[-1] == (
        "expected calibration error of the arcs' probabilities 0.5000 (4 bins of as many words)"
    )
    plain = json.loads(seqtool("eval-parser", "gold.conllu", "gold.conllu", "--json").stdout)
    assert "calibration" not in plain


@pytest.mark.parametrize("misc", ["Score=1.5", "Score=x", "Score=", "Scores=0.5", "score=0.5"])
def test_what_is_no_probability_is_no_score(misc: str, seqtool: Run) -> None:
    text = conllu(GOLD).replace("\t_\t_\n", f"\t_\t{misc}\n")
    Path("scored.conllu").write_text(text)
    result = seqtool("eval-parser", "gold.conllu", "scored.conllu", "--json")
    assert "calibration" not in json.loads(result.stdout)


@pytest.mark.usefixtures("guesser")
def test_models_are_asked_for_probabilities_in_json(seqtool: Run) -> None:
    options = ("-m", "runs/guesser", "--beam", 2)
    found = json.loads(seqtool("eval-parser", "gold.conllu", *options, "--json").stdout)
    # all words have the same probability
    right = found["UAS"]["precision"] / 100
    assert found["calibration"]["expected_calibration_error"] == pytest.approx(abs(right - 0.25))
    assert "calibration" not in seqtool("eval-parser", "gold.conllu", *options).stdout


@pytest.mark.usefixtures("guesser")
def test_probabilities_of_the_gold_file_are_not_the_models(seqtool: Run) -> None:
    text = conllu(GOLD).replace("\t_\t_\n", "\t_\tScore=0.9\n")
    Path("scored.conllu").write_text(text)
    options = ("-m", "runs/guesser", "--beam", 2)
    assert "calibration" in seqtool("eval-parser", "gold.conllu", "scored.conllu").stdout
    assert "calibration" not in seqtool("eval-parser", "scored.conllu", *options).stdout
