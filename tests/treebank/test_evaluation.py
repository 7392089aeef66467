from __future__ import annotations

import io
import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import tree_heads

from seqtool.core.errors import DataError
from seqtool.treebank.alignment import align_words, read_annotation
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.evaluation import (
    Confusion,
    ParserEvaluation,
    Score,
    compare_annotations,
    evaluate_parser,
    paired_bootstrap,
)
from seqtool.treebank.sentence import DEPREL, FEATS, ID, LEMMA, UPOS, Sentence, parse_sentence

METRICS = (
    *("Tokens", "Sentences", "Words", "UPOS", "XPOS", "UFeats", "AllTags", "Lemmas"),
    *("UAS", "LAS", "CLAS", "MLAS", "BLEX"),
)


def treebank(*sentences: str, path: str = "") -> list[Sentence]:
    """Sentences of lines such as `1 The the DET DT Number=Sing 2 det`, columns apart by spaces."""
    parsed = []
    line_number = 1
    for text in sentences:
        lines = [line.split(" ") for line in text.strip().splitlines()]
        full = ["\t".join((*columns, *["_"] * (10 - len(columns)))) for columns in lines]
        parsed.append(parse_sentence("\n".join(full), path, line_number, "columns"))
        line_number += len(full) + 1
    return parsed


def judged(gold: Sequence[Sentence], predicted: Sequence[Sentence]) -> dict[str, tuple[Any, ...]]:
    """What the official scorer makes of them: metric -> (correct, gold, predicted, aligned)."""
    from udtools import udeval

    loaded = [
        udeval.load_conllu(io.StringIO("".join(s.to_conllu() for s in sentences)), name, {})
        for name, sentences in (("gold", gold), ("predicted", predicted))
    ]
    scores = udeval.evaluate(*loaded)
    return {
        metric: (
            *(scores[metric].correct, scores[metric].gold_total, scores[metric].system_total),
            *(scores[metric].aligned_total, scores[metric].precision, scores[metric].recall),
            *(scores[metric].f1, scores[metric].aligned_accuracy),
        )
        for metric in METRICS
    }


def ours(evaluation: ParserEvaluation) -> dict[str, tuple[Any, ...]]:
    shares = {}
    for metric, score in evaluation.scores.items():
        figures = (score.precision, score.recall, score.f1, score.aligned_accuracy)
        shares[metric] = (
            *(score.correct, score.gold, score.predicted, score.aligned),
            *(None if figure is None else pytest.approx(figure / 100) for figure in figures),
        )
    return shares


A, AB = "1 a _ _ _ _ 0 root", "1 a _ _ _ _ 0 root\n2 b _ _ _ _ 1 dep"

# six words: "the dog saw a cat ."
GOLD = """
1 the the DET DT Definite=Def 2 det
2 dog dog NOUN NN Number=Sing 3 nsubj
3 saw see VERB VBD Tense=Past 0 root
4 a a DET DT Definite=Ind 5 det
5 cat cat NOUN NN Number=Sing 3 obj
6 . . PUNCT . _ 3 punct
"""
# "the" depends on saw; "a" is tagged PRON; "cat" is obl:arg, of another lemma; "." depends on cat
PREDICTED = """
1 the the DET DT Definite=Def 3 det
2 dog dog NOUN NN Number=Sing 3 nsubj
3 saw see VERB VBD Tense=Past|Odd=Yes 0 root
4 a a PRON DT Definite=Ind 5 det
5 cat kat NOUN NN Number=Sing 3 obl:arg
6 . . PUNCT . _ 5 punct
"""


def test_by_hand() -> None:
    result = evaluate_parser(treebank(GOLD), treebank(PREDICTED))
    assert {name: score.correct for name, score in result.scores.items()} == {
        **{"Tokens": 6, "Sentences": 1, "Words": 6},
        **{"UPOS": 5, "AllTags": 5},  # not a
        **{"XPOS": 6, "UFeats": 6},  # Odd is no universal feature
        "Lemmas": 5,  # not cat
        "UAS": 4,  # not the, .
        "LAS": 3,  # nor cat
        "CLAS": 2,  # of dog, saw, cat
        "MLAS": 0,  # dog lost its det to saw
        "BLEX": 2,  # dog, saw
    }
    assert result["CLAS"] == Score(2, gold=3, predicted=3, aligned=3)
    assert result["LAS"].to_json() == dict.fromkeys(
        ("precision", "recall", "f1", "aligned_accuracy"), 50.0
    )
    assert result.to_json()["Words"]["aligned_accuracy"] is None
    assert (result.sentences, result.words) == (1, 6)


def test_tables_by_hand() -> None:
    result = evaluate_parser(treebank(GOLD), treebank(PREDICTED))
    assert result.relations == {
        "det": Score(1, 2, 2),
        "nsubj": Score(1, 1, 1),
        "obj": Score(0, 1, 0),
        "punct": Score(0, 1, 1),
        "root": Score(1, 1, 1),
        "obl": Score(0, 0, 1),  # of obl:arg
    }
    # gold distances 1 1 0 1 2 3, predicted 2 1 0 1 2 1; right are the 2nd, 3rd and 4th word
    assert result.lengths == {
        "root": Score(1, 1, 1),
        "1": Score(2, 3, 3),
        "2": Score(0, 1, 2),
        "3-6": Score(0, 1, 0),
        "7-": Score(0, 0, 0),
    }
    assert result.confusions == [Confusion("obj", "obl", count=1, right_head=1)]
    details = result.details_to_json(relations=True, lengths=True, confusions=5)
    assert details["relations"]["det"] == {
        "gold": 2, "predicted": 2, "correct": 1, "precision": 50.0, "recall": 50.0, "f1": 50.0
    }  # fmt: skip


def test_punctuation_left_out_is_what_the_gold_annotation_says() -> None:
    stop_is_noun = PREDICTED.replace("PUNCT . _ 5 punct", "NOUN . _ 3 obj")
    cat_is_punct = PREDICTED.replace("NOUN NN Number=Sing 3 obl:arg", "PUNCT NN _ 3 punct")
    for predicted, relation in (
        (PREDICTED, "obl"), (stop_is_noun, "obl"), (cat_is_punct, "punct"),
    ):  # fmt: skip
        result = evaluate_parser(treebank(GOLD), treebank(predicted), punctuation=False)
        assert result["UAS"] == Score(4, 5, 5, 5)  # all but the
        assert result["LAS"] == Score(3, 5, 5, 5)  # all but the and cat
        assert result["UPOS"].gold == 6
        assert result.lengths["3-6"] == Score(0, 0, 0)
        assert result.confusions == [Confusion("obj", relation, count=1, right_head=1)]
        assert result.relations.get("punct", Score(0, 0, 0)).gold == 0


def test_the_length_of_a_right_arc_is_the_gold_one_where_words_differ() -> None:
    # a depends on c, two words away, or three where b is two
    gold = treebank("1 a _ _ _ _ 3 dep\n2 bb _ _ _ _ 3 dep\n3 c _ _ _ _ 0 root")
    predicted = treebank(
        "1 a _ _ _ _ 4 dep\n2 b _ _ _ _ 4 dep\n3 b _ _ _ _ 4 dep\n4 c _ _ _ _ 0 root"
    )
    lengths = evaluate_parser(gold, predicted).lengths
    assert lengths == {
        "root": Score(1, 1, 1),
        "1": Score(0, 1, 1),
        "2": Score(1, 1, 2),
        "3-6": Score(0, 0, 0),
        "7-": Score(0, 0, 0),
    }


def test_lengths_end_where_their_names_say() -> None:
    # word 1 is the root and word i depends on it, at distance i - 1: 1 to 8
    lines = [A, *(f"{i} a _ _ _ _ 1 dep" for i in range(2, 10))]
    lengths = evaluate_parser(*[treebank("\n".join(lines))] * 2).lengths
    assert {name: score.gold for name, score in lengths.items()} == {
        "root": 1, "1": 1, "2": 1, "3-6": 4, "7-": 2
    }  # fmt: skip


@pytest.mark.parametrize(
    ("gold", "predicted", "scores"),
    [
        # a gold lemma that is not known agrees with all
        (
            "1 a _ X _ _ 0 root",
            "1 a b X _ _ 0 root",
            {"Lemmas": (1, 1, 1, 1), "BLEX": (1, 1, 1, 1)},
        ),
        ("1 a b X _ _ 0 root", "1 a _ X _ _ 0 root", {"Lemmas": (0, 1, 1, 1)}),
        # no-break spaces in a word do not count
        ("1 10000 _ _ _ _ 0 root", "1 10\u00a0000 _ _ _ _ 0 root", {"LAS": (1, 1, 1, 1)}),
        # the root is found, its subject is not, and the aux below it does not match
        (
            "1 cannot _ _ _ _ 2 aux\n2 stop _ _ _ _ 0 root",
            "1 can _ _ _ _ 3 aux\n2 not _ _ _ _ 3 advmod\n3 stop _ _ _ _ 0 root",
            {"Tokens": (1, 2, 3), "LAS": (1, 2, 3, 1), "MLAS": (0, 1, 2, 1)},
        ),
        # vamos and mar match
        (
            "1-2 vámonos\n1 vamos _ _ _ _ 0 root\n2 nos _ _ _ _ 1 obj\n"
            "3-4 al\n3 a _ _ _ _ 5 case\n4 el _ _ _ _ 5 det\n5 mar _ _ _ _ 1 obl",
            "1-2 vámonos\n1 Vamos _ _ _ _ 0 root\n2 os _ _ _ _ 1 obj\n"
            "3 al _ _ _ _ 4 case\n4 mar _ _ _ _ 1 obl",
            {"Tokens": (3, 3, 3), "Words": (2, 5, 4), "LAS": (2, 5, 4, 2)},
        ),
    ],
)
def test_small_texts_by_hand(gold: str, predicted: str, scores: dict[str, Any]) -> None:
    result = evaluate_parser(treebank(gold), treebank(predicted))
    assert {metric: result[metric] for metric in scores} == {
        metric: Score(*figures) for metric, figures in scores.items()
    }


def tokens(text: str) -> list[Sentence]:
    """`a bc=b+c`: the word a and the multiword token bc of the words b and c; trees are chains."""
    lines: list[str] = []
    word = 0
    for token in text.split():
        form, _, parts = token.partition("=")
        if parts:
            lines.append(f"{word + 1}-{word + 1 + parts.count('+')} {form}")
        for part in (parts or form).split("+"):
            lines.append(f"{word + 1} {part} _ _ _ _ {word} dep")
            word += 1
    return treebank("\n".join(lines))


@pytest.mark.parametrize(
    ("gold", "predicted", "pairs"),
    [
        ("ab=x+y c", "ab=x+y c", [(0, 0), (1, 1), (2, 2)]),
        ("ab=a+b", "a b", [(0, 0), (1, 1)]),
        ("ab=a+b", "ab", []),
        # both multiword tokens of either side are in one span, as each sticks out of another
        ("abc=a+b+c de=d+e", "a bcd=b+c+d e", [(i, i) for i in range(5)]),
        # the span begins with bc: xa has begun before it, and is in no multiword token
        ("xa bc=b+c", "x abc=a+b+c", [(1, 2), (2, 3)]),
        ("abc=a+b+c", "abc=c+a+b", [(0, 1), (1, 2)]),
        # a and b are equally long: gold words are left out first
        ("ab=a+b", "ab=b+a", [(1, 0)]),
        # spans, not forms, tell words apart where there is no multiword token
        ("a a a", "aa a", [(2, 1)]),
    ],
)
def test_alignments_by_hand(gold: str, predicted: str, pairs: list[tuple[int, int]]) -> None:
    found = align_words(read_annotation(tokens(gold)), read_annotation(tokens(predicted)))
    assert list(zip(*(side.tolist() for side in found), strict=True)) == pairs


RELATIONS = ("root", "nsubj", "nsubj:pass", "det", "case", "punct", "mark", "odd")


@st.composite
def annotations(draw: st.DrawFn, text: str) -> list[Sentence]:
    """An annotation of a text: sentences, tokens, words, columns and trees are all drawn."""
    sentences = []
    for span in draw(partitions(text)):
        lines: list[list[str]] = []
        num_words = 0
        for token in draw(partitions(span)):
            size = draw(st.sampled_from((1, 1, 1, 0, 2, 3)))
            if size == 1:
                forms = [token]
            else:
                size = max(size, 1)  # 0 stands for a multiword token of a single word
                forms = [draw(st.sampled_from(("a", "B", "b", "c", token))) for _ in range(size)]
                lines.append([f"{num_words + 1}-{num_words + size}", token, *["_"] * 8])
            for form in forms:
                num_words += 1
                tags = [
                    draw(st.sampled_from(choices))
                    for choices in (("_", "l", "m"), ("X", "PUNCT"), ("x", "y"))
                ]
                feats = draw(st.sampled_from(("_", "Odd=Yes", "Case=Nom|Odd=Yes", "Case=Nom")))
                lines.append([str(num_words), form, *tags, feats, "_", "_", "_", "_"])
        heads = tree_heads(draw, num_words)
        for columns in lines:
            if "-" not in columns[ID]:
                columns[6] = str(heads[int(columns[ID]) - 1])
                columns[7] = draw(st.sampled_from(RELATIONS))
        joined = "\n".join("\t".join(columns) for columns in lines)
        sentences.append(parse_sentence(joined, "", 1, "tree"))
    return sentences


def partitions(text: str) -> st.SearchStrategy[list[str]]:
    """Ways to divide a text into parts."""

    def divide(cuts: set[int]) -> list[str]:
        bounds = [0, *sorted(cuts), len(text)]
        return [text[i:j] for i, j in pairwise(bounds)]

    if len(text) == 1:
        return st.just([text])
    return st.sets(st.integers(1, len(text) - 1)).map(divide)


PAIRS = st.text("ab", min_size=1, max_size=8).flatmap(
    lambda text: st.tuples(annotations(text), annotations(text))
)


@settings(max_examples=100)
@given(PAIRS)
def test_agrees_with_the_official_scorer_however_words_differ(
    pair: tuple[list[Sentence], list[Sentence]],
) -> None:
    assert ours(evaluate_parser(*pair)) == judged(*pair)


@settings(max_examples=50)
@given(PAIRS)
def test_properties(pair: tuple[list[Sentence], list[Sentence]]) -> None:
    forth, back = evaluate_parser(*pair), evaluate_parser(*reversed(pair))
    for metric in ("Tokens", "Sentences"):
        assert forth[metric].correct == back[metric].correct
    las = forth["LAS"]
    # the tables divide LAS up, and so do sentences
    for table in (forth.relations, forth.lengths):
        assert sum(score.correct for score in table.values()) == las.correct
        assert sum(score.gold for score in table.values()) == las.gold
        assert sum(score.predicted for score in table.values()) == las.predicted
    for metric, counts in forth.by_sentence.items():
        score = forth[metric]
        assert counts.sum(axis=0).tolist() == [score.correct, score.gold, score.predicted]
    assert sum(pair.right_head for pair in forth.confusions) == forth["UAS"].correct - las.correct
    perfect = evaluate_parser(pair[0], pair[0])
    assert all(score.f1 in (0, 100) for score in perfect.scores.values())
    assert perfect.confusions == []


@pytest.mark.parametrize(
    "name", ["ewt/en_ewt-ud-dev.conllu", "fr_sequoia/fr_sequoia-ud-dev.conllu"]
)
def test_real_treebanks_as_the_official_scorer_sees_them(shared_data: Path, name: str) -> None:
    """One word in eight or so is wrong in each column, and a leaf of each tree moves."""
    gold = list(read_conllu(shared_data / name))[:400]
    rng = random.Random(1)
    values = {
        column: sorted({value for sentence in gold for value in sentence.column(column)})
        for column in (LEMMA, UPOS, FEATS, DEPREL)
    }
    predicted = [sentence.copy() for sentence in gold]
    for sentence in predicted:
        for row in sentence.rows:
            for column, choices in values.items():
                if rng.random() < 0.12:
                    row[column] = rng.choice(choices)
        for leaf in [token for token in sentence if token.head and not token.children][:1]:
            leaf.head = rng.choice([word.number for word in sentence if word != leaf])
    result = evaluate_parser(gold, predicted)
    assert ours(result) == judged(gold, predicted)
    assert 20 < result["MLAS"].f1 < result["LAS"].f1 < 100


@pytest.mark.parametrize(
    ("gold", "predicted", "message"),
    [
        (f"{A}\n2 bcd _ _ _ _ 1 dep", f"{AB}\n3 xd _ _ _ _ 1 dep", "'xd', where gold:2 has 'bcd'"),
        (AB, A, "other:1: the text differs: its end, where gold:2 has 'b'"),
        (A, f"1-2 ab\n{AB}", "other:1: the text differs: 'ab', where gold:1 has its end"),
        ("1 é _ _ _ _ 0 root", "1 e\u0301 _ _ _ _ 0 root", "NFC"),
    ],
)  # fmt: skip
def test_another_text_is_refused(gold: str, predicted: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        evaluate_parser(treebank(gold, path="gold"), treebank(predicted, path="other"))
    assert message in str(caught.value) + caught.value.hint


@pytest.mark.parametrize("heads", ["0 0", "2 1", "0 3", "0 2", "0 _"])
def test_what_is_no_tree_is_refused(tmp_path: Path, heads: str) -> None:
    first, second = heads.split()
    broken = treebank(f"1 a _ _ _ _ {first} dep\n2 b _ _ _ _ {second} dep", path="p")
    with pytest.raises(DataError, match=r"root|head|cycle"):
        evaluate_parser(broken, broken)
    file = tmp_path / "broken.conllu"
    file.write_text(broken[0].to_conllu())
    with pytest.raises(DataError) as caught:
        evaluate_parser(file, file)
    assert caught.value.line is not None
    assert "--skip-invalid" not in caught.value.hint  # which would change the text


def counts(*right: int, words: int = 10) -> dict[str, Any]:
    """The counts of sentences with so many words right each."""
    return {"LAS": np.array([[num, words, words] for num in right], np.int64)}


def test_bootstrap_against_all_samples_of_two_sentences() -> None:
    # of sentences with leads of +2 and -1 in 10 words, the observed lead is 5 points; samples are
    # both of the first (+20), one each (+5, twice as often), both of the second (-10). As far as
    # 5 from 5 are all but +5, so p is 1/2; the interval is from -10 to 20.
    result = paired_bootstrap(counts(5, 5), counts(7, 4), samples=40_000)["LAS"]
    assert result.difference == pytest.approx(5)
    # four standard deviations of a mean of 40,000 draws: 4 * sqrt(.25 / 40000) = 0.01
    assert result.p_value == pytest.approx(0.5, abs=0.01)
    assert (result.low, result.high) == pytest.approx((-10, 20))
    assert result.samples == 40_000


def test_bootstrap_of_a_sure_and_of_no_lead() -> None:
    better = paired_bootstrap(counts(*[5] * 30), counts(*[6] * 30), samples=999)["LAS"]
    # every sample has the observed lead of 10 points: only the observed treebank itself counts
    assert better.p_value == 1 / 1000
    assert better.difference == better.low == better.high == pytest.approx(10)
    assert paired_bootstrap(counts(5, 6), counts(5, 6), samples=99)["LAS"].p_value == 1
    first, second = counts(5, 6, 7, 1), counts(6, 5, 9, 2)
    results = [paired_bootstrap(first, second, samples=500, seed=seed) for seed in (3, 3, 4)]
    assert results[0] == results[1] != results[2]


def test_significance_of_two_annotations() -> None:
    annotations = [treebank(PREDICTED, PREDICTED), treebank(GOLD, PREDICTED)]
    results, [leads] = compare_annotations(treebank(GOLD, GOLD), annotations)
    assert [result["LAS"].correct for result in results] == [6, 9]
    # 9 of 12 words instead of 6 have the right head and relation; 3 of 6 not 0 in MLAS
    assert leads["LAS"].difference == pytest.approx(25)
    assert leads["MLAS"].difference == pytest.approx(50)
    assert list(leads) == ["UAS", "LAS", "CLAS", "MLAS", "BLEX"]
