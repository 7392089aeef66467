"""The graph-based parser at work: its scores against torch's, its trees against all trees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from parsing.parser.references import all_trees
from parsing.parser.tiny import LABELS, make_sentence, random_parser, random_sentences, tiny_config

from seqtool.core.arrays import Ints
from seqtool.core.config import from_dict, to_dict
from seqtool.parsing.parser import reading
from seqtool.parsing.parser.config import ParserConfig
from seqtool.parsing.parser.graph import decoder as decoder_module
from seqtool.parsing.parser.graph import scores as scores_module
from seqtool.parsing.parser.graph.task import GraphNetwork
from seqtool.parsing.parser.parser import Parser
from seqtool.treebank.sentence import Sentence, find_fault

LARGE = ("units.weight", "arcs.weight", "arcs.bias", "relations.weight", "labels.weight")
LARGE += ("pairs.weight",)
MORE = {"num_filters": 4, "distances": True}
SECOND = {"second_order": "both", "second_size": 5}


def graph_config(trees: str = "all", **model: Any) -> ParserConfig:
    sizes = {"encoder_size": 4, "arc_size": 6, "relation_size": 3, "type_units": 5}
    return tiny_config("auto", decoder="graph", encoder="bilstm", trees=trees, **sizes | model)


def graph_parser(trees: str = "all", seed: int = 0, **model: Any) -> Parser:
    """A parser whose scores of arcs and labels are far apart."""
    parser = random_parser(graph_config(trees, **model), seed=seed)
    weights = {name: 5 * w if name in LARGE else w for name, w in parser.weights.items()}
    return Parser(parser.config, parser.types, LABELS, weights)


def network_of(parser: Parser) -> GraphNetwork:
    lexical, tags = parser.types.lexical.num_symbols, parser.types.tags.num_symbols
    network = GraphNetwork(
        parser.config.model, lexical, tags, len(LABELS), num_characters=parser.types.num_characters
    )
    network.load_state_dict({k: torch.from_numpy(v) for k, v in parser.weights.items()})
    return network.double()


def scores_of(parser: Parser, sentence: Sentence) -> tuple[Any, Any]:
    """torch's scores of arcs [n, 1 + n] and of the labels of all arcs [n, 1 + n, K], by double."""
    network = network_of(parser)
    arrays = parser.encode([sentence])
    rows = [torch.from_numpy(rows[arrays.types[1:]]).long() for rows in parser.types.arrays()]
    lengths = torch.tensor([len(sentence) + 1])
    with torch.no_grad():
        states = network.encoder(network.type_vectors(*rows), lengths)
        dependents, heads, of_words, of_heads = network(states)
        arcs, _ = network.arc_scores(dependents, heads, lengths, network.pair_units(states))
        labels = [
            network.label_scores(of_words[[word] * len(of_heads)], of_heads)
            for word in range(1, 1 + len(sentence))
        ]
    return arcs[0, 1:].numpy(), torch.stack(labels).numpy()


def of_labels(arcs: Any, labels: Any) -> Any:
    """Log-probabilities of the best labels of arcs [n, 1 + n], by scores [n, 1 + n, K].

    Where a head is much worse than the word's best one, all labels count as alike.
    """
    num = len(LABELS.arcs)
    found = np.empty_like(arcs)
    for heads, kinds in ((slice(0, 1), slice(num, None)), (slice(1, None), slice(num))):
        own = labels[:, heads, kinds]
        found[:, heads] = own.max(2) - np.logaddexp.reduce(own, axis=2)
        unlikely = arcs[:, heads] < arcs.max(1, keepdims=True) - decoder_module.LABEL_MARGIN
        found[:, heads][unlikely] = -np.log(own.shape[2])
    return found


def test_the_distance_of_a_head_is_scored_by_hand() -> None:
    """Where all else is zero, an arc has what its ends say of its class: 1, 2, 3, 4, 5-6, ..."""
    parser = random_parser(graph_config(distances=True))
    names = {"distances.weight", "distances.bias", "head_distances.weight", "units.weight"}
    kept = {name: parser.weights[name] for name in names}
    weights = {name: np.zeros_like(array) for name, array in parser.weights.items()} | kept
    weights["units.bias"][:] = np.linspace(-1, 1, len(weights["units.bias"]))
    parser = Parser(parser.config, parser.types, LABELS, weights)
    arrays = parser.encode([make_sentence([("a", "X")] * 24)])
    parser.prepare()
    ((_, units, arcs),) = parser.decoder._scored(arrays, [np.asarray([0])])
    # all states are zeros, so that all tokens have the same units
    dependent, head = units[0][0][0], units[0][1][0]
    of_class = weights["distances.weight"] @ dependent + weights["distances.bias"]
    of_class += weights["head_distances.weight"] @ head
    classes = [0, 1, 2, 3, 4, 5, 5, *[6] * 4, *[7] * 10, *[8] * 4]
    for word in range(1, 25):
        for place in {*range(25)} - {word}:
            number = 0 if place == 0 else classes[abs(word - place)] + 8 * (place > word)
            found = arcs.scores.reshape(24, 25)[word - 1, place]
            assert found == pytest.approx(of_class[number], abs=1e-5)
    assert len({round(float(x), 3) for x in of_class}) > 10


def check_trees(parser: Parser, trees: str, *, num: int = 25) -> tuple[int, int]:
    """Compare with all trees; return how many are not each word's best heads, or not the best ones.

    The latter are so because of their labels.
    """
    sentences = random_sentences(num, 5)
    found = list(parser.trees(parser.encode(sentences)))
    no_choice = of_labels_alone = 0
    for sentence, (heads, deprels) in zip(sentences, found, strict=True):
        arcs, labels = scores_of(parser, sentence)
        words = range(len(sentence))
        candidates = all_trees(len(sentence), projective=trees == "projective")

        def best(
            scores: Any, words: range = words, candidates: Any = candidates
        ) -> tuple[int, ...]:
            tree: tuple[int, ...] = max(
                candidates, key=lambda tree: sum(scores[word, tree[word]] for word in words)
            )
            return tree

        assert tuple(heads) == best(arcs + of_labels(arcs, labels))
        of_labels_alone += tuple(heads) != best(arcs)
        for word in words:
            of_arc = labels[word, heads[word]]
            names = LABELS.arcs if heads[word] else LABELS.roots
            first = 0 if heads[word] else len(LABELS.arcs)
            own = of_arc[first : first + len(names)]
            assert deprels[word] == names[int(own.argmax())]
        no_choice += tuple(heads) != tuple(arcs.argmax(1))
    return no_choice, of_labels_alone


@pytest.mark.parametrize("model", [{}, MORE, SECOND], ids=["", "more", "second"])
@pytest.mark.parametrize("trees", ["all", "projective"])
def test_trees_are_the_best_of_all_by_the_scores_of_the_plain_network(
    trees: str, model: dict[str, Any]
) -> None:
    no_choice, _ = check_trees(graph_parser(trees, **model), trees)
    assert no_choice > 3  # or every decoder would do


def test_a_certain_label_decides_between_like_heads() -> None:
    parser = random_parser(graph_config())
    for name in ("relations.weight", "labels.weight"):
        parser.weights[name][:] *= 9
    _, of_labels_alone = check_trees(
        Parser(parser.config, parser.types, LABELS, parser.weights), "all", num=40
    )
    assert of_labels_alone > 3


@pytest.mark.parametrize("model", [{}, SECOND], ids=["", "second"])
def test_a_sentence_is_parsed_the_same_in_any_company(
    model: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sentences = random_sentences(30, 9)
    graph_parser(**model).parse(sentences)
    for sentence in sentences:
        text = sentence.to_conllu()
        graph_parser(**model).parse([sentence])
        assert sentence.to_conllu() == text
    monkeypatch.setattr(reading, "GROUP_TOKENS", 12)
    together = random_sentences(30, 9)
    graph_parser(**model).parse(together)
    assert [s.to_conllu() for s in together] == [s.to_conllu() for s in sentences]


@pytest.mark.parametrize("trees", ["all", "projective"])
def test_long_sentences_are_parsed_in_parts(trees: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part is a tree of its own, as scored by the states of the whole sentence."""
    parser = graph_parser(trees)
    sentences = random_sentences(20, 14, seed=2)
    arrays = parser.encode(sentences)
    whole = [scores_of(parser, sentence) for sentence in sentences]
    monkeypatch.setattr(scores_module, "LONGEST", 4)
    num_parts = 0
    for (heads, deprels), (arcs, labels) in zip(parser.trees(arrays), whole, strict=True):
        length = len(heads)
        assert find_fault(heads) is None
        assert heads.count(0) == 1
        assert [label in LABELS.roots for label in deprels] == [head == 0 for head in heads]
        num = -(-length // 4)
        num_parts += num
        root = heads.index(0) + 1
        for part in range(num):
            begin, end = part * length // num, (part + 1) * length // num
            inside = [0, *range(begin + 1, end + 1)]
            scores = arcs[begin:end, inside]
            scores = scores + of_labels(scores, labels[begin:end, inside])
            best = max(
                all_trees(end - begin, projective=trees == "projective"),
                key=lambda tree: sum(scores[word, head] for word, head in enumerate(tree)),
            )
            own = [inside[head] for head in best]
            if part:
                own = [head or root for head in own]
            assert heads[begin:end] == own
    assert num_parts > 40


def test_a_sentence_of_two_thousand_words_and_one_of_none() -> None:
    words = [("a", "X"), ("B", "Y"), ("cc", "Z")]
    long = make_sentence([words[i * i % 7 % 3] for i in range(2000)])
    sentences = [make_sentence(words[:1]), long, Sentence([], [], [])]
    graph_parser("projective").parse(sentences)
    assert sentences[0].heads() == [0]
    assert find_fault(long.heads()) is None


def test_states_are_those_of_the_encoder() -> None:
    parser = graph_parser(encoder_layers=2)
    sentences = random_sentences(5, 6)
    assert parser.num_layers == 2
    for layer, found in ((1, parser.sentence_states(sentences, 1)), (2, None)):
        found = found or parser.sentence_states(sentences, layer)
        network = network_of(parser)
        for sentence, states in zip(sentences, found, strict=True):
            types: Ints = parser.encode([sentence]).types[1:]
            rows = [torch.from_numpy(rows[types]).long() for rows in parser.types.arrays()]
            first, last = network.encoder.first_and_last(
                network.type_vectors(*rows), torch.tensor([len(types)])
            )
            wanted = (first, last)[layer - 1][1:].detach().numpy()
            np.testing.assert_allclose(states, wanted, rtol=0, atol=1e-6)


def with_loss(parser: Parser, loss: str) -> Parser:
    settings = to_dict(parser.config)
    settings["learning"]["loss"] = loss
    config = from_dict(ParserConfig, settings)
    return Parser(config, parser.types, LABELS, parser.weights)


@pytest.mark.parametrize(
    ("loss", "trees", "model"),
    [
        ("local", "all", {"encoder_layers": 3}),
        ("local", "all", SECOND),
        ("crf", "projective", {}),
        ("matrix-tree", "all", {}),
    ],
)
def test_ranked_trees_and_arcs_have_the_probabilities_of_enumeration(
    loss: str, trees: str, model: dict[str, Any]
) -> None:
    """By the scores of torch."""
    parser = with_loss(graph_parser(trees, **model), loss)
    sentences = [Sentence([], [], []), *random_sentences(12, 4), Sentence([], [], [])]
    arrays = parser.encode(sentences)
    best = list(parser.trees(arrays))
    ranked = list(parser.decoder.ranked(arrays, 400))
    tables = list(parser.decoder.arc_tables(arrays))
    assert len(ranked) == len(tables) == len(sentences)
    for sentence, tree, found, table in zip(sentences, best, ranked, tables, strict=True):
        if not len(sentence):
            assert [len(one.heads) for one in found] == [0]
            assert table.probabilities.shape == table.label_ids.shape == (0, 1)
            continue
        words = np.arange(len(sentence))
        arcs, labels = scores_of(parser, sentence)
        logs = arcs - np.logaddexp.reduce(arcs, axis=1, keepdims=True)
        totals = {
            heads: float((logs if loss == "local" else arcs)[words, heads].sum())
            for heads in all_trees(len(sentence), projective=trees == "projective")
        }
        added = of_labels(arcs, labels)
        expected = np.exp(logs)
        if loss != "local":
            partition = float(np.logaddexp.reduce(list(totals.values())))
            totals = {heads: total - partition for heads, total in totals.items()}
            expected = np.zeros_like(logs)
            for heads, total in totals.items():
                expected[words, heads] += np.exp(total)
        totals = {heads: total + added[words, heads].sum() for heads, total in totals.items()}
        scores = {tuple(one.heads.tolist()): one.score for one in found}
        assert scores.keys() == totals.keys()
        for heads, score in scores.items():
            assert score == pytest.approx(totals[heads], abs=2e-5)
        assert [one.score for one in found] == sorted(scores.values(), reverse=True)
        assert found[0].heads.tolist() == table.heads.tolist() == tree[0]
        assert [LABELS.names[i] for i in found[0].label_ids] == tree[1]
        np.testing.assert_allclose(table.probabilities, expected, rtol=0, atol=1e-5)
        own = labels[:, :, : len(LABELS.arcs)].argmax(2)
        own[:, 0] = len(LABELS.arcs) + labels[:, 0, len(LABELS.arcs) :].argmax(1)
        own[words, words + 1] = -1
        is_known = arcs >= arcs.max(1, keepdims=True) - decoder_module.LABEL_MARGIN
        is_known[words, tree[0]] = True
        own[~is_known] = -1
        assert table.label_ids.tolist() == own.tolist()


@pytest.mark.parametrize(("loss", "model"), [("local", {}), ("matrix-tree", {}), ("local", SECOND)])
def test_parts_are_ranked_and_weighed_too(
    loss: str, model: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    parser = with_loss(graph_parser(**model), loss)
    arrays = parser.encode(random_sentences(12, 14, seed=2))
    monkeypatch.setattr(scores_module, "LONGEST", 4)
    trees = list(parser.trees(arrays))
    ranked, tables = parser.decoder.ranked(arrays, 3), parser.decoder.arc_tables(arrays)
    for (heads, deprels), found, table in zip(trees, ranked, tables, strict=True):
        assert len(found) == 1 or len(heads) <= 4
        assert found[0].heads.tolist() == heads
        assert [LABELS.names[i] for i in found[0].label_ids] == deprels
        np.testing.assert_allclose(table.probabilities.sum(1), 1.0, atol=1e-5)
        rows = np.arange(len(heads))
        assert (table.probabilities[rows, heads] > 0).all()
        # of an arc of the tree the label is that of the tree
        assert [LABELS.names[i] for i in table.label_ids[rows, heads]] == deprels
