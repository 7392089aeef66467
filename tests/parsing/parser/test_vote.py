"""Parsers that vote on arcs: by hand, against all trees, and what they find in sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsing.parser.references import trees
from parsing.parser.tiny import make_sentence, random_parser, random_sentences, tiny_config
from parsing.segmenter.tiny_segmenter import random_segmenter
from parsing.tagger.toy import random_tagger

import seqtool
from seqtool.core.errors import ConfigError, DataError, ModelError
from seqtool.parsing.parser import calibration
from seqtool.parsing.parser import parser as parser_module
from seqtool.parsing.parser import vote as vote_module
from seqtool.parsing.parser.decoder import ArcTable
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.parser import Parser
from seqtool.parsing.parser.vote import Vote, combine, vote_scores, voted_labels, weights_of
from seqtool.parsing.pipeline import model as pipelines
from seqtool.parsing.pipeline.model import Pipeline
from seqtool.treebank.conllu import Broken, read_batches
from seqtool.treebank.sentence import Sentence, find_fault

NSUBJ, OBJ, DET, ROOT = range(4)  # of LABELS


def parser(seed: int = 0, system: str = "arc-standard", **model: object) -> Parser:
    return random_parser(tiny_config(system, **model), seed=seed)


ONE = parser()
SIZES = {"encoder_size": 4, "encoder_layers": 1, "arc_size": 4, "relation_size": 3}
GRAPH: dict[str, Any] = {"decoder": "graph", "encoder": "bilstm", **SIZES}
LINEAR = {"decoder": "graph", "classifier": "linear", "trees": "projective", "hash_bits": 10}


def kinds() -> list[Parser]:
    """Transition parsers of two systems, which read other columns, too; graphs of both sorts."""
    graph, linear = parser(2, "auto", trees="all", **GRAPH), parser(3, "auto", **LINEAR)
    return [parser(), parser(1, "arc-eager", fields=["form", "upos"]), graph, linear]


def table(heads: Sequence[int], labels: Sequence[int], probability: float) -> ArcTable:
    """Of a parser that is sure of one tree."""
    num = len(heads)
    probabilities = np.zeros((num, 1 + num), np.float32)
    label_ids = np.full((num, 1 + num), -1, np.int32)
    probabilities[np.arange(num), heads] = probability
    label_ids[np.arange(num), heads] = labels
    return ArcTable(probabilities, label_ids, np.asarray(heads, np.int32))


def test_three_small_trees_by_hand() -> None:
    tables = [
        table([2, 0, 2], [NSUBJ, ROOT, OBJ], 0.5),
        table([2, 3, 0], [DET, NSUBJ, ROOT], 0.5),
        table([0, 1, 2], [ROOT, OBJ, OBJ], 0.75),
    ]
    # each arc of a tree has 0.25 more than its probability: 0.75, 0.75 and 1. The sums: word 1:
    # ROOT 1, word 2 1.5; word 2: ROOT 0.75, word 3 0.75, word 1 1; word 3: word 2 1.75, ROOT 0.75
    scores = vote_scores(tables, [1.0, 1.0, 1.0])
    assert scores.tolist() == [[1, 0, 1.5, 0], [0.75, 1, 0, 0.75], [0.75, 0, 1.75, 0]]
    # each word by itself would have 2, 1, 2: no tree. Of trees, with a weight of w for the third
    # parser, 2, ROOT, 2 has 1.5 + 0.75 + 0.75 + w and ROOT, 1, 2 has w + w + 0.75 + w: alike where
    # w is 1.125
    voting = Vote([parser(), parser(system="arc-eager"), parser(system="swap")])
    voting.weights = [1.0, 0.9, 1.0]
    # word 1: nsubj 0.75, det 0.675; word 3: obj by two of them
    assert voting.tree(tables) == ([2, 0, 2], ["nsubj", "root", "obj"])
    voting.weights = [1.0, 1.0, 1.3]
    assert voting.tree(tables) == ([0, 1, 2], ["root", "obj", "obj"])


def test_labels_are_those_of_who_has_the_arc() -> None:
    heads = np.asarray([0], np.int32)

    def chosen(*votes: tuple[float, int], has_it: int = -1) -> int:
        """Of the arc from ROOT, which is in the tree of one of the parsers, or of none."""
        tables = [
            ArcTable(
                np.asarray([[p, 0.0]], np.float32),
                np.asarray([[label, -1]], np.int32),
                np.asarray([0 if place == has_it else 1], np.int32),
            )
            for place, (p, label) in enumerate(votes)
        ]
        return int(voted_labels(tables, [1.0] * len(tables), heads)[0])

    assert chosen((0.5, 7), (0.3, 8), (0.3, 8)) == 8
    assert chosen((0.5, 7), (0.25, 8), (0.25, 8)) == 7  # alike: the first one
    assert chosen((0.5, 7), (0.3, 8), (0.3, 8), has_it=0) == 7  # 0.75 against 0.6
    assert chosen((0.9, -1), (0.1, 3)) == 3
    assert chosen((0.0, 4), (0.0, 5)) == 4  # nobody has it
    assert chosen((0.2, -1), (0.0, -1)) == -1


def test_an_arc_that_nobody_labels_gets_the_label_of_the_word_elsewhere() -> None:
    def of(head: int, label: int) -> ArcTable:
        """Word 1 is the root's; of word 2 only the label of its own arc is known."""
        label_ids = np.full((3, 4), -1, np.int32)
        label_ids[0, 0], label_ids[1, head], label_ids[2, 1] = ROOT, label, OBJ
        marginals = np.zeros((3, 4), np.float32)
        marginals[0, 0] = marginals[1, 1] = marginals[2, 1] = 9.0
        return ArcTable(marginals, label_ids, np.asarray([0, head, 1], np.int32))

    voting = Vote([parser(), parser(system="swap")])
    assert voting.tree([of(3, DET), of(3, OBJ)]) == ([0, 1, 1], ["root", "det", "obj"])
    # but none of ROOT's labels
    assert voting.tree([of(0, ROOT), of(3, DET)]) == ([0, 1, 1], ["root", "det", "obj"])
    # or the commonest one, where there is none at all
    nothing = ArcTable(
        np.zeros((2, 3), np.float32), np.full((2, 3), -1, np.int32), np.asarray([0, 1], np.int32)
    )
    assert sorted(voting.tree([nothing, nothing])[1]) == ["nsubj", "root"]


@given(
    st.integers(1, 4).flatmap(
        lambda num: st.tuples(
            st.lists(st.sampled_from(trees(num)), min_size=2, max_size=4),
            st.lists(st.floats(0.125, 1.0), min_size=4, max_size=4),
        )
    )
)
def test_no_tree_has_a_higher_sum(drawn: tuple[list[tuple[int, ...]], list[float]]) -> None:
    """Nor any parser's own."""
    own_trees, weights = drawn
    num = len(own_trees[0])
    voting = Vote([ONE] * len(own_trees), weights[: len(own_trees)])
    tables = [table(heads, [NSUBJ] * num, 1.0) for heads in own_trees]
    heads, _ = voting.tree(tables)
    scores = vote_scores(tables, voting.weights).astype(np.float64)

    def total(tree: Sequence[int]) -> float:
        return float(scores[np.arange(num), list(tree)].sum())

    best = max(map(total, trees(num)))
    assert find_fault(heads) is None
    assert total(heads) == pytest.approx(best, abs=1e-6)
    assert all(total(heads) >= total(tree) - 1e-6 for tree in own_trees)


def test_the_best_trees_are_those_of_all_trees() -> None:
    """And the first one is the one that is parsed."""
    voting = Vote(kinds(), [1.0, 0.5, 0.25, 0.75])
    sentences = random_sentences(15, 4)
    parsed = [sentence.copy() for sentence in sentences]
    voting.parse(parsed)
    of_each = [list(one.arc_tables(one.encode(sentences))) for one in voting.parsers]
    for place, found in enumerate(voting.nbest(sentences, 20)):
        assert isinstance(found, list)
        assert [row[:8] for row in found[0].rows] == [row[:8] for row in parsed[place].rows]
        num = len(sentences[place])
        scores = vote_scores([tables[place] for tables in of_each], voting.weights).astype(
            np.float64
        )
        sums = sorted((scores[np.arange(num), tree].sum() for tree in trees(num)), reverse=True)
        found_scores = [float(tree.metadata["parse_score"] or "nan") for tree in found]
        assert found_scores == pytest.approx([total / 2.5 for total in sums[:20]], abs=2e-4)
        heads = {tuple(tree.heads()) for tree in found}
        assert len(heads) == len(found) == min(20, len(trees(num)))


def test_long_sentences_are_the_first_parsers(monkeypatch: pytest.MonkeyPatch) -> None:
    """And long and broken ones keep their places."""
    voting = Vote(kinds())
    broken = Broken("1\tx", DataError("no columns", hint="fix it"))
    sentences = random_sentences(12, 9)
    whole, of_first = (list(one.nbest(sentences, 3)) for one in (voting, voting.parsers[0]))
    monkeypatch.setattr(vote_module, "LONGEST_VOTED", 5)
    monkeypatch.setattr(parser_module, "RANKED_WORDS", 7)
    expected = [
        first if len(sentence) > 5 else voted
        for sentence, first, voted in zip(sentences, of_first, whole, strict=True)
    ]
    items = [broken, *sentences[:3], broken, *sentences[3:], broken]
    assert list(voting.nbest(items, 3)) == [broken, *expected[:3], broken, *expected[3:], broken]
    best = [group[0].rows for group in voting.nbest(sentences, 1)]  # type: ignore[union-attr]
    voting.parse(sentences)
    assert [sentence.rows for sentence in sentences] == best


def test_weights_are_by_errors_and_members() -> None:
    first, second, third, _ = kinds()
    assert weights_of([first, second]) == [1, 1]
    first.scores, second.scores = {"dev_las": 80.0}, {"dev_las": 90.0}
    # half the errors count 2 ** 2 times as much
    assert weights_of([first, second]) == [1 / 4, 1]
    assert weights_of([first, second, third]) == [1, 1, 1]  # one is not known
    both = first.ensemble([first.copy()])
    assert weights_of([both, second]) == [1 / 2, 1]
    second.scores = {"dev_las": 100.0}
    assert weights_of([both, second]) == [1, 1 / 2]
    # with gold tags a parser is better than with predicted ones
    second.scores, second.data = {"dev_las": 90.0}, {"predicted_tags": True}
    assert weights_of([first, second.copy()]) == [1, 1]
    first.data = second.data
    assert weights_of([first, second]) == [1 / 4, 1]


def test_votes_weigh_alike_where_tags_were_of_two_kinds(
    tmp_path: Path, seqtool: Callable[..., Any]
) -> None:
    first, second, *_ = kinds()
    for one, data in ((first, {}), (second, {"predicted_tags": True})):
        one.save(tmp_path / one.config.model.system, scores={"dev_las": 80.0}, data=data)
    (tmp_path / "a.conllu").write_text("1\ta\t_\tX\tX\tA=B\t_\t_\t_\t_\n\n")
    command = ("parse", tmp_path / "a.conllu", "--allow-missing")
    both = [word for one in (first, second) for word in ("-m", tmp_path / one.config.model.system)]
    assert "votes weigh alike" in seqtool(*command, *both).stderr
    assert "alike" not in seqtool(*command, *both[:2]).stderr


def test_streams_and_documents_say_the_same(tmp_path: Path) -> None:
    voting = combine(kinds())
    sentences = random_sentences(12, 9)
    voting.parse(sentences, beam=2)
    expected = "".join(item.to_conllu() for item in sentences)
    path = tmp_path / "text.conllu"
    path.write_text("".join(item.to_conllu() for item in random_sentences(12, 9)), "utf-8")
    items = voting.parse_stream(read_batches(path), beam=2)
    assert seqtool.write_conllu(items) == expected
    assert voting(path, beam=2).to_conllu() == expected
    assert "".join(doc.to_conllu() for doc in voting.pipe([path, path], beam=2)) == 2 * expected
    assert list(voting.parse_stream([])) == []
    with pytest.raises(TypeError):
        list(voting.parse_stream([1]))  # type: ignore[list-item]


def test_each_parser_must_find_what_it_reads() -> None:
    bare = make_sentence([("a", "_"), ("B", "_")])
    one = parser(fields=["form"])
    one.parse([bare])
    voting = Vote([one, parser(1)])
    for ask in (lambda: voting.parse([bare]), lambda: list(voting.nbest([bare], 2))):
        with pytest.raises(DataError, match="UPOS"):
            ask()
    voting.parse([bare], allow_missing=True)


def test_parsers_that_are_alike_are_an_ensemble_first() -> None:
    first, second, other = parser(), parser(1), parser(2, "swap")
    assert combine([first]) is first
    voting = combine([first, other, second])
    assert isinstance(voting, Vote)
    assert voting.weights == [1, 1 / 2]
    sentences, expected = random_sentences(15, 9), random_sentences(15, 9)
    voting.parse(sentences)
    Vote([first.ensemble([second]), other], [1.0, 0.5]).parse(expected)
    assert sentences == expected


def test_parsers_that_differ_in_more_than_the_seed_vote() -> None:
    def graph(loss: str = "local", **model: object) -> Parser:
        config = tiny_config("auto", **{**GRAPH, **model})
        learning = replace(config.learning, loss=loss)
        return random_parser(replace(config, learning=learning))

    assert isinstance(combine([graph(), graph()]), Parser)
    for other in (graph(loss="crf"), graph(encoder_size=5), graph(second_order="both")):
        assert isinstance(combine([graph(), other]), Vote)
    assert isinstance(combine([parser(), parser(hidden_size=9)]), Vote)


def test_a_vote_has_a_calibration_of_its_own() -> None:
    """What `parse` gives without it, and how often that is right, are what it is fitted to."""
    sentences = random_sentences(120, 9)
    kinds()[1].parse(sentences)  # so that one of those that vote is always right
    gold = [sentence.heads() for sentence in sentences]
    voting = Vote(kinds())
    assert not voting.is_calibrated
    found = voting.fit_calibrations(sentences)
    assert [sentence.heads() for sentence in sentences] == gold
    calibrated = Vote(kinds(), voting.weights, found)
    assert calibrated.is_calibrated
    for beam in (1, 4):
        plain, scored = random_sentences(120, 9), random_sentences(120, 9)
        voting.parse(plain, beam=beam, scores=True)
        calibrated.parse(scored, beam=beam, scores=True)
        # a sentence of one word has one tree, whatever the calibration says
        assert {item[0].score for item in scored if len(item) == 1} == {1.0}
        several = [place for place, heads in enumerate(gold) if len(heads) > 1]
        pooled = [token.score or 0 for place in several for token in plain[place]]
        are_right = [
            head == wanted
            for place in several
            for head, wanted in zip(plain[place].heads(), gold[place], strict=True)
        ]
        expected = calibration.fit_calibration(np.asarray(pooled), np.asarray(are_right))
        # MISC has three digits, and a group's border may fall between two arcs that are alike there
        assert found[beam].outputs == pytest.approx(expected.outputs, abs=0.02)
        scores = np.asarray([token.score or 0 for place in several for token in scored[place]])
        assert [item.heads() for item in scored] == [item.heads() for item in plain]
        assert scores == pytest.approx(found[beam](np.asarray(pooled)), abs=0.03)
        assert scores.mean() == pytest.approx(np.mean(are_right), abs=0.02)
        assert abs(np.mean(pooled) - np.mean(are_right)) > 0.03


def test_other_labels_are_refused() -> None:
    other = random_parser(tiny_config("swap"), Labels(("nsubj", "iobj", "amod"), ("root",)))
    with pytest.raises(ModelError, match="iobj"):
        combine([parser(), other])
    # the same label, but one parser has it for arcs from ROOT, too
    roots = (Labels(("det",), ("root",)), Labels(("det",), ("root", "det")))
    with pytest.raises(ModelError, match="ROOT"):
        Vote([random_parser(tiny_config(), labels) for labels in roots])
    # in another order, and with the marks of lifted arcs, they are the same
    lifting = Labels(("det", "obj", "nsubj", "obj↑nsubj"), ("root",))
    assert isinstance(combine([parser(), random_parser(tiny_config(), lifting)]), Vote)


def test_marks_of_lifted_arcs_are_in_no_tree() -> None:
    lifting = Labels(("obj", "det↑obj", "nsubj↑root", "obj↑nsubj"), ("root",))
    voting = Vote([random_parser(tiny_config(), lifting, seed) for seed in (1, 2)])
    sentences = random_sentences(30, 9)
    voting.parse(sentences)
    assert {row[7] for item in sentences for row in item.rows} <= {"obj", "det", "nsubj", "root"}
    assert all(find_fault(item.heads()) is None for item in sentences)


def test_a_pipeline_reads_text_for_all() -> None:
    nlp = Pipeline(random_segmenter(), random_tagger(), parser())
    other = parser(1, "arc-eager")
    joined = pipelines.together([other, nlp])
    assert isinstance(joined, Pipeline)
    text = "du bat. Ab cet\nbad."
    tagged = list(nlp.tag_stream(nlp.segment([text])))
    expected = list(Vote([other, nlp.parser]).parse_stream(tagged, allow_missing=True))
    assert joined(text).to_conllu() == seqtool.write_conllu(expected)
    # a vote among the models is its parsers
    again = pipelines.together([joined, parser(2, "swap")])
    assert isinstance(again, Pipeline)
    assert isinstance(again.parser, Vote)
    assert len(again.parser.parsers) == 3


def test_several_are_loaded_as_one(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "abcd"]
    for path, one in zip(paths, kinds(), strict=True):
        one.save(path, scores={}, data={})
    sentences, expected = random_sentences(10, 9), random_sentences(10, 9)
    seqtool.load(paths).parse(sentences)
    combine(kinds()).parse(expected)
    assert [item.rows for item in sentences] == [item.rows for item in expected]
    assert isinstance(seqtool.load(paths[:1]), Parser)
    random_tagger().save(tmp_path / "tagger", scores={}, data={})
    for wrong, kind, word in (
        (paths, Parser, "Vote"),
        ([], None, "no model"),
        ([paths[0], tmp_path / "tagger"], None, "alone"),
    ):
        with pytest.raises(ModelError, match=word):
            seqtool.load(wrong, *([kind] if kind else []))


@pytest.mark.parametrize("beam", [0, -1, "4", 1.5, True])
def test_a_beam_and_a_number_of_trees_are_numbers_from_1_on(beam: Any) -> None:
    sentences = random_sentences(2, 3)
    pipeline = Pipeline(random_segmenter(), random_tagger(), ONE)
    for model in (*kinds(), Vote(kinds()), pipeline):
        for ask in (
            partial(model.parse_stream, sentences, beam=beam),
            partial(model.parse_stream, sentences, beam=beam, scores=True),
            partial(model.nbest, sentences, 2, beam=beam),
            partial(model.nbest, sentences, beam),
        ):
            with pytest.raises(ConfigError, match="must be a whole number from 1 on"):
                list(ask())
        assert len(list(model.nbest(sentences, np.int64(1), beam=np.int32(2)))) == 2


def new_words(number: int) -> list[Sentence]:
    return [make_sentence([(f"new{number}-{place}", "X") for place in range(9)])]


@pytest.mark.parametrize("table_bytes", [-1, 0, parser_module.TABLE_BYTES])
@pytest.mark.parametrize("which", range(7))
def test_answers_stay_while_others_are_parsed(
    monkeypatch: pytest.MonkeyPatch, which: int, table_bytes: int
) -> None:
    """Whoever asks for trees one by one may parse other sentences before, and between any two."""
    monkeypatch.setattr(parser_module, "GROUP_ARCS", 1)
    monkeypatch.setattr(vote_module, "LONGEST_VOTED", 6)  # longer ones are the first parser's
    encoder = parser(encoder="bilstm", encoder_size=4, context_units=3)
    model = [*kinds(), Vote(kinds()), parser(4).ensemble([parser(5)]), encoder][which]
    sentences = random_sentences(12, 9, seed=1)

    def ranked() -> Iterator[Any]:
        for group in model.nbest(sentences, 2):
            for tree in group:
                yield tree.heads(), tree.column(7), float(tree.metadata["parse_score"])

    expected, tables = list(ranked()), list(model.head_probabilities(sentences))
    traced = [trace.sentence for trace in model.traces(sentences)] if which in (0, 6) else []
    monkeypatch.setattr(parser_module, "TABLE_BYTES", table_bytes)
    for number, (*tree, score) in enumerate(ranked()):
        assert tree == [*expected[number][:2]]
        # tables of more types round otherwise, in the last digit
        assert score == pytest.approx(expected[number][2], abs=2e-4)
        model.parse(new_words(number))
    answers = model.head_probabilities(sentences)
    first = next(answers)
    model.parse(new_words(0))
    for table, same in zip((first, *answers), tables, strict=True):
        np.testing.assert_allclose(table, same, rtol=1e-5)
        model.parse(new_words(1))
    for number, trace in enumerate(model.traces(sentences) if traced else ()):
        assert trace.sentence == traced[number]
        model.parse(new_words(number))
    if isinstance(model, Parser):
        # another thread may parse between the encoding and the first answer
        unfetched = model.ranked(model.encode(sentences), 2)
        model.parse(new_words(2))
        heads = [tree.heads for group in unfetched for tree in group]
        assert heads == [each[0] for each in expected]
        if table_bytes <= 0:
            model.parse(new_words(3))
            assert len(model.types) <= 2 + 9
