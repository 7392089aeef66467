"""`seqtool eval-parser` as a user meets it."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    """A parser that lets every word depend on the one before it, and calls it dep.

    One that tags as well finds another root where a word had no tag, which it then has.
    """

    has_beam = True

    def __init__(self, *, has_tagger: bool = False) -> None:
        self.has_tagger = has_tagger

    def parse_stream(
        self, items: Iterable[Sentence], *, beam: int, scores: bool, allow_missing: bool = False
    ) -> Iterator[Sentence]:
        for sentence in items:
            heads = list(range(len(sentence)))
            if self.has_tagger and sentence.rows[1][UPOS] == "_":
                heads = [2, 0, 2, 2]
                for row in sentence.rows:
                    row[UPOS] = "X"
            sentence.set_tree(heads, ["dep" if head else "root" for head in heads])
            if scores:
                sentence.set_scores([0.25] * len(heads))
            yield sentence


@pytest.fixture
def guess(seqtool: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run the command with guessers for models; return the object of --json."""

    def run(*args: str, has_tagger: bool = False) -> Any:
        guesser = Guesser(has_tagger=has_tagger)
        monkeypatch.setattr("seqtool.core.checkpoint.load", lambda path: guesser)
        result = seqtool("eval-parser", *args, "--json")
        assert result.code == 0, result.stderr
        return json.loads(result.stdout)

    return run


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
    names = ("gold", "predicted", "sentences", "words", "punctuation")
    assert [content[name] for name in names] == ["gold.conllu", "half.conllu", 1, 4, False]
    assert not {"relations", "lengths", "confusions", "calibration"} & set(content)


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
    command = ("eval-parser", "gold.conllu", "half.conllu", "gold.conllu")
    result = seqtool(*command, "--seed", "1")
    head, _, rest = result.stdout.partition("\n\nF1\n")
    assert head.splitlines()[1:] == ["predicted  half.conllu", "predicted  gold.conllu"]
    lines = rest.splitlines()
    assert lines[0] == "metric     half.conllu  gold.conllu"
    assert "LAS              50.00       100.00" in lines
    # of one sentence there is one treebank to draw, whose lead is the observed one
    assert lines[-7:-3] == [
        "gold.conllu against half.conllu, paired bootstrap",
        "metric  difference  95% from      to       p",
        "UAS         +50.00    +50.00  +50.00  0.0001",
        "LAS         +50.00    +50.00  +50.00  0.0001",
    ]
    content = json.loads(seqtool(*command, "--json").stdout)
    assert [each["predicted"] for each in content["results"]] == ["half.conllu", "gold.conllu"]
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


def test_models_parse_the_words_of_gold(
    guess: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = guess("gold.conllu", "-m", "a", "--beam", "2")
    # heads 0 1 2 3: that of loudly is right, its relation is not
    assert [content[key] for key in ("predicted", "words")] == ["a", 4]
    assert (content["UAS"]["f1"], content["LAS"]["f1"]) == (25, 0)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(conllu(GOLD).encode())))
    both = guess("-", "half.conllu", "-m", "a", "-m", "b", "--together")
    assert [(each["predicted"], each["UAS"]["f1"]) for each in both["results"]] == [
        ("half.conllu", 50),
        *(("a", 25), ("b", 25), ("together", 25)),
    ]
    assert [each["second"] for each in both["significance"]] == ["a", "b", "together"]


def test_a_model_does_not_see_what_another_wrote(guess: Callable[..., Any]) -> None:
    bare = [(form, "_", head, relation) for form, _, head, relation in GOLD]
    Path("bare.conllu").write_text(conllu(bare))
    for options in ((), ("--allow-missing",)):
        content = guess("bare.conllu", "-m", "a", "-m", "b", *options, has_tagger=True)
        assert [each["UAS"]["f1"] for each in content["results"]] == [100, 100]


def test_a_pipeline_keeps_gold_tags_and_says_so(seqtool: Run, guess: Callable[..., Any]) -> None:
    assert guess("gold.conllu", "-m", "a", has_tagger=True)["UPOS"]["f1"] == 100
    assert seqtool("eval-parser", "gold.conllu", "-m", "a").stderr.startswith("a: gold words, ")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ("- -", "stdin"),
        ("gold.conllu half.conllu --beam 4", "--beam"),
        ("gold.conllu half.conllu --seed 1", "--seed"),
        ("gold.conllu half.conllu --allow-missing", "--allow-missing"),
        ("gold.conllu -m a --together", "--together"),
        ("gold.conllu -m a -m a", "a is given twice"),
        ("gold.conllu other.conllu", "other.conllu:3: the text differs: 'softly', "),
        ("gold.conllu broken.conllu", "broken.conllu:2: the heads form a cycle"),
        ("gold.conllu none.conllu", "none.conllu: "),
        ("gold.conllu -m none", "none: "),
    ],
)
def test_errors_are_two_lines(seqtool: Run, arguments: str, word: str) -> None:
    other = [*GOLD[:2], ("softly", "ADV", 2, "advmod"), GOLD[3]]
    Path("other.conllu").write_text(conllu(other))
    Path("broken.conllu").write_text(
        conllu([("dogs", "NOUN", 0, "root"), ("bark", "VERB", 3, "dep"), (".", "X", 2, "dep")])
    )
    result = seqtool("eval-parser", *arguments.split())
    first, second = result.stderr.splitlines()
    assert (result.code, result.stdout) == (1, "")
    assert first.startswith("error: ")
    assert word in first
    assert second.startswith("hint: ")


def test_the_calibration_error_of_probabilities(seqtool: Run, guess: Callable[..., Any]) -> None:
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
    # models are asked for them in JSON alone; a quarter of the heads is right; GOLD's are not read
    gold = conllu(GOLD).replace("\t_\t_\n", "\t_\tScore=0.9\n")
    Path("gold.conllu").write_text(gold)
    content = guess("gold.conllu", "-m", "a")
    assert content["calibration"]["expected_calibration_error"] == pytest.approx(0)
    assert "calibration" not in seqtool("eval-parser", "gold.conllu", "-m", "a").stdout


@pytest.mark.parametrize("misc", ["Score=1.5", "Score=x", "Score=", "Scores=0.5", "score=0.5"])
def test_what_is_no_probability_is_no_score(misc: str, seqtool: Run) -> None:
    text = conllu(GOLD).replace("\t_\t_\n", f"\t_\t{misc}\n")
    Path("scored.conllu").write_text(text)
    result = seqtool("eval-parser", "gold.conllu", "scored.conllu", "--json")
    assert "calibration" not in json.loads(result.stdout)
