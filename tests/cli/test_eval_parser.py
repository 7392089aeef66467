"""`seqtool eval-parser` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from seqtool import evaluate_parser
from seqtool.core.checkpoint import load
from seqtool.treebank.conllu import read_conllu

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


def test_scores_are_shown(seqtool: Run) -> None:
    result = seqtool("eval-parser", "gold.conllu", "half.conllu")
    assert (result.code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[:4] == [
        "gold       gold.conllu: 1 sentence, 4 words",
        "predicted  half.conllu",
        "",
        "metric     precision  recall      F1  aligned accuracy",
    ]
    assert [line.split()[0] for line in lines[4:]] == [
        *("Tokens", "Sentences", "Words", "UPOS", "XPOS", "UFeats", "AllTags", "Lemmas"),
        *("UAS", "LAS", "CLAS", "MLAS", "BLEX"),
    ]
    assert "UAS            50.00   50.00   50.00             50.00" in lines


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


def test_tables_on_request(seqtool: Run) -> None:
    options = ("--per-relation", "--per-length", "--confusion", "--changes")
    result = seqtool("eval-parser", "gold.conllu", "half.conllu", *options)
    relations, lengths, confusions, changes = result.stdout.split("\n\n")[2:]
    assert "nsubj        1          1        1     100.00  100.00  100.00" in relations
    assert "1          2          2        1      50.00   50.00   50.00" in lengths
    assert confusions.splitlines()[2].split() == ["advmod", "amod", "1", "0"]
    assert changes.splitlines()[0] == "2 changed words"
    assert " ".join(changes.split()[-9:]) == "1 4 . 2 bark punct 3 loudly punct"
    shown = seqtool("eval-parser", "gold.conllu", "half.conllu", "--json", *options).stdout
    content = json.loads(shown)
    assert content["relations"]["nsubj"]["f1"] == 100
    assert content["lengths"]["1"]["correct"] == 1
    assert [row["predicted_head"] for row in content["changes"]] == ["1 dogs", "3 loudly"]
    assert content["confusions"] == [
        {"gold": "advmod", "predicted": "amod", "count": 1, "right_head": 0}
    ]


def test_two_annotations(seqtool: Run) -> None:
    command = ("eval-parser", "gold.conllu", "half.conllu", "gold.conllu")
    result = seqtool(*command, "--seed", "1")
    head, _, rest = result.stdout.partition("\n\nF1\n")
    assert head.splitlines()[1:] == ["predicted  half.conllu", "predicted  gold.conllu"]
    lines = rest.splitlines()
    assert "LAS              50.00       100.00" in lines
    # of one sentence there is one treebank to draw, whose lead is the observed one
    assert "gold.conllu against half.conllu, paired bootstrap" in lines
    assert "LAS         +50.00    +50.00  +50.00  0.0001" in lines
    content = json.loads(seqtool(*command, "--json").stdout)
    assert [each["predicted"] for each in content["results"]] == ["half.conllu", "gold.conllu"]
    [lead] = content["significance"]
    assert (lead["first"], lead["second"]) == ("half.conllu", "gold.conllu")
    assert lead["LAS"].keys() == {"difference", "p_value", "low", "high", "samples"}


def test_models_parse_the_words_of_gold(
    seqtool: Run, seqtool_process: Run, models: Path, tmp_path: Path
) -> None:
    parser, second = str(models / "parser"), str(models / "second")
    words = ("eval-parser", "gold.conllu", "-m", parser, "--beam", "2")
    content = json.loads(seqtool(*words, "--json").stdout)
    parsed = load(parser).parse_stream(read_conllu("gold.conllu"), beam=2)
    scores = evaluate_parser("gold.conllu", list(parsed)).scores
    for name in ("UAS", "LAS", "CLAS"):
        assert content[name]["f1"] == scores[name].f1
    assert (content["predicted"], content["words"]) == (parser, 4)
    # they are asked for probabilities in JSON alone
    assert "calibration" in content
    assert "calibration" not in seqtool(*words).stdout
    words = ("eval-parser", "-", "half.conllu", "-m", parser, "-m", second, "--together", "--json")
    both = json.loads(seqtool_process(*words, input=conllu(GOLD).encode(), cwd=tmp_path).stdout)
    names = ["half.conllu", parser, second, "together"]
    assert [each["predicted"] for each in both["results"]] == names
    assert [each["second"] for each in both["significance"]] == names[1:]


def test_a_model_does_not_see_what_another_wrote(seqtool: Run, models: Path) -> None:
    bare = [(form, "_", head, relation) for form, _, head, relation in GOLD]
    Path("bare.conllu").write_text(conllu(bare))
    words = ("eval-parser", "bare.conllu", "--allow-missing", "--json")
    pipeline, parser = ("-m", models / "pipeline"), ("-m", models / "parser")
    both = json.loads(seqtool(*words, *pipeline, *parser).stdout)["results"]
    alone = [json.loads(seqtool(*words, *model).stdout) for model in (pipeline, parser)]
    assert [each["UAS"] for each in both] == [each["UAS"] for each in alone]
    # a pipeline keeps gold tags, and says so
    kept = seqtool("eval-parser", "gold.conllu", *pipeline)
    assert f"{models / 'pipeline'}: gold words, " in kept.stderr
    assert "UPOS          100.00  100.00  100.00            100.00\n" in kept.stdout


def test_the_calibration_error_of_probabilities(seqtool: Run) -> None:
    """Each of the four words is a bin; the heads of the first two are right, 0.5 and 0.5."""
    rows = [line.split("\t") for line in conllu(HALF).splitlines()]
    for row, score in zip(rows, ("0.5", "0.500", "0.25", "0.75"), strict=False):
        row[9] = f"x=y|Score={score}"
    Path("half.conllu").write_text("\n".join("\t".join(row) for row in rows) + "\n")
    result = seqtool("eval-parser", "gold.conllu", "half.conllu", "--json")
    calibration = json.loads(result.stdout)["calibration"]
    assert calibration["expected_calibration_error"] == pytest.approx((0.5 + 0.5 + 0.25 + 0.75) / 4)
    assert [each["accuracy"] for each in calibration["bins"]] == [0.0, 1.0, 1.0, 0.0]
    shown = seqtool("eval-parser", "gold.conllu", "half.conllu").stdout
    assert "expected calibration error of the arcs' probabilities 0.5000" in shown
    Path("scored.conllu").write_text(conllu(GOLD).replace("\t_\t_\n", "\t_\tScore=1.5\n"))
    result = seqtool("eval-parser", "gold.conllu", "scored.conllu", "--json")
    assert "calibration" not in json.loads(result.stdout)


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
        ("gold.conllu none.conllu", "none.conllu: "),
        ("gold.conllu -m none", "none: "),
    ],
)
def test_mistakes(refused: Callable[..., str], arguments: str, word: str) -> None:
    other = [*GOLD[:2], ("softly", "ADV", 2, "advmod"), GOLD[3]]
    Path("other.conllu").write_text(conllu(other))
    refused(f"eval-parser {arguments}", word)
