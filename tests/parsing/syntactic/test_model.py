"""A syntactic language model: as a language model, as a parser, trained and stored."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seqtool
from seqtool.core import checkpoint
from seqtool.core.config import from_dict
from seqtool.core.errors import Interrupted, ModelError
from seqtool.core.vocabulary import EOS_ID, Vocabulary
from seqtool.lm.neural.config import ModelConfig, NeuralLMConfig
from seqtool.lm.protocol import Summary
from seqtool.parsing.syntactic import tables
from seqtool.parsing.syntactic.data import derive, side_by_side, syntactic_data
from seqtool.parsing.syntactic.model import SyntacticModel, score
from seqtool.parsing.syntactic.network import SyntacticNetwork
from seqtool.parsing.syntactic.train import SyntacticTask, train_syntactic
from seqtool.text.datasets import sample_treebank
from seqtool.text.tokenizers import WordTokenizer
from seqtool.treebank.conllu import read_conllu, write_conllu
from seqtool.treebank.evaluation import evaluate_parser

Run = Callable[..., Any]
LETTERS = "ab"
NO_ROOTS = np.zeros(2, np.bool_)


@pytest.fixture
def model() -> SyntacticModel:
    """A random one over two words, in doubles."""
    torch.manual_seed(1)
    config = from_dict(ModelConfig, {"hidden_size": 5, "init_range": 1.5})
    vocabulary = Vocabulary(["<unk>", "</s>", *LETTERS])
    network = SyntacticNetwork(config, len(vocabulary), 2).double()
    return SyntacticModel(network, WordTokenizer(vocabulary), ("x", "y"))


def log_prob(model: SyntacticModel, ids: list[int]) -> float:
    (scores,) = model.score_ids([np.array([*ids, EOS_ID], np.int32)])
    return float(scores.log_probs.sum())


def by_derivations(model: SyntacticModel, ids: list[int]) -> float:
    """The probability of a sentence: all derivations, step by step through the network."""
    network, num = model.network, len(ids)
    states = network.states(side_by_side([np.array(ids)]))

    def word(top: int, front: int, token: int) -> float:
        places = torch.tensor([[top], [front]])
        return float(network.word_log_probs(states, places, torch.tensor([token])).exp())

    def steps(top: int, front: int) -> tuple[float, float]:
        places = torch.tensor([[top], [front]])
        may_be = torch.tensor([[front <= num, front <= num, True]])
        probabilities = network.step_log_probs(states, places, may_be)[0].exp().tolist()
        return probabilities[0], sum(probabilities[1:])

    def rest(stack: list[int], front: int) -> float:
        top = stack[-1]
        if front > num and len(stack) == 1:
            return 1.0
        shift, pop = steps(top, front) if top else (1.0, 0.0)
        after = [*ids, EOS_ID]
        total = pop * rest(stack[:-1], front) if pop else 0.0
        if front <= num:
            total += shift * word(top, front, after[front]) * rest([*stack, front], front + 1)
        return total

    with torch.no_grad():
        return float(np.log(word(0, 0, ids[0]) * rest([0], 1)))


@pytest.mark.parametrize("num_words", range(1, 7))
def test_a_sentence_is_the_sum_of_all_derivations(model: SyntacticModel, num_words: int) -> None:
    for ids in itertools.islice(itertools.product([0, 2, 3], repeat=num_words), 0, 300, 37):
        wanted = by_derivations(model, [*ids])
        assert log_prob(model, [*ids]) == pytest.approx(wanted, abs=1e-10)


def test_words_one_by_one_have_the_same_probabilities(model: SyntacticModel) -> None:
    ids = np.array([2, 3, 0, 2, 2, 3, 0, EOS_ID, 3, EOS_ID], np.int32)
    (scores,) = model.score_ids([ids])
    state = model.start(2)
    for token, nats in zip(ids, scores.log_probs, strict=True):
        following = model.next_log_probs(state)
        np.testing.assert_allclose(np.exp(following).sum(1), 1.0, atol=1e-10)
        np.testing.assert_allclose(following[:, token], nats, atol=1e-10)
        state = model.advance(state[np.array([1, 0])], np.array([token, token]))
    (summary,) = model.score_ids([ids], summary=Summary(entropy=True))
    np.testing.assert_allclose(summary.log_probs, scores.log_probs, atol=1e-10)


def test_sentences_up_to_a_length_have_what_a_sampler_says(model: SyntacticModel) -> None:
    exact = [
        sum(np.exp(log_prob(model, [*ids])) for ids in itertools.product([0, 2, 3], repeat=size))
        for size in range(1, 6)
    ]
    assert 0.0 < sum(exact) < 1.0
    generator, lengths = np.random.default_rng(0), []
    state, read = model.start(500), np.zeros(500, np.int64)
    for _ in range(6):
        following = np.exp(model.next_log_probs(state))
        drawn = np.array([generator.choice(4, p=row / row.sum()) for row in following])
        lengths += [read[drawn == EOS_ID]]
        keep = np.flatnonzero(drawn != EOS_ID)
        state, read = model.advance(state[keep], drawn[keep]), read[keep] + 1
    counts = np.bincount(np.concatenate(lengths), minlength=6)[1:6]
    expected = 500 * np.array(exact)
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected + 1)).all()


def test_what_stands_beside_changes_nothing(model: SyntacticModel) -> None:
    sentences = [np.array(ids) for ids in ([2], [3, 2, 0, 2, 3], [0, 2, 2])]
    together = score(model.network, sentences, NO_ROOTS)
    for ids, one in zip(sentences, together, strict=True):
        (alone,) = score(model.network, [ids], NO_ROOTS)
        for first, second in zip(alone.sums, one.sums, strict=True):
            np.testing.assert_allclose(first, second, atol=1e-10)
        assert (alone.labels == one.labels).all()


def test_the_gradient_of_raw_text_is_that_of_its_probability() -> None:
    """Against differences, without dropout."""
    torch.manual_seed(0)
    settings = {"model": {"hidden_size": 4}, "training": {"precision": "float32"}}
    config = from_dict(NeuralLMConfig, settings)
    data = syntactic_data(
        itertools.islice(read_conllu(sample_treebank("en", "train")), 12), None, config
    )
    task = SyntacticTask(config, data)
    task.module.double().train()
    sentences = [data.train[place].ids[:6] for place in (0, 1)]
    loss, num = task._loss_of_all_trees(sentences)
    assert num == sum(len(ids) + 1 for ids in sentences)
    loss.backward()
    for name in ("words.top.weight", "steps.front.weight", "scores.bias"):
        weight = task.module.get_parameter(name)
        place = (1,) * weight.ndim
        values = []
        for change in (1e-3, -1e-3):
            with torch.no_grad():
                weight[place] += change
                values.append(
                    -sum(
                        tables.prefixes(each.sums)[-1]
                        for each in score(
                            task.module.eval(), sentences, np.zeros(len(data.labels), np.bool_)
                        )
                    )
                )
                weight[place] -= change
        slope = (values[0] - values[1]) / 2e-3
        assert weight.grad is not None
        assert float(weight.grad[place]) == pytest.approx(slope, rel=0.02, abs=1e-3)


def test_gold_steps_have_the_probability_of_the_tables(model: SyntacticModel) -> None:
    ids = np.array([2, 3, 2, 0, 3])
    heads, labels = [2, 0, 5, 3, 2], [0, 1, 0, 1, 1]
    _, steps = derive(ids, heads, labels, 2)
    (scored,) = score(model.network, [ids], NO_ROOTS)
    states = model.network.states(side_by_side([ids]))
    nats = 0.0
    with torch.no_grad():
        for top, front, number, word in steps.tolist():
            places = torch.tensor([[top], [front]])
            if word >= 0:
                nats += float(model.network.word_log_probs(states, places, torch.tensor([word])))
            if number >= 0:
                may_be = torch.tensor([[front <= len(ids), front <= len(ids), True]])
                nats += float(model.network.step_log_probs(states, places, may_be)[0, number])
    best, _, _ = tables.best_tree(scored.best, forced := np.full((7, 7), -np.inf))
    assert best == -np.inf
    forced[heads, range(1, 6)] = 0.0
    # one of the derivations of the tree, whose labels are not the best ones
    assert nats <= tables.best_tree(scored.best, forced)[0] + 1e-10
    assert (steps[:, 3] >= 0).sum() == 6


def test_marginals_are_those_of_trees_whose_relation_of_root_is_root(model: SyntacticModel) -> None:
    """By all trees of all derivations, labels drawn as the network has them."""
    ids = np.array([2, 3, 2, 0])
    (scored,) = score(model.network, [ids], np.array([False, True]))
    total: dict[tuple[int, int], float] = {}
    waiting = [([0], 1, 0.0, list[tuple[int, int]]())]
    sums = 0.0
    while waiting:
        stack, front, nats, arcs = waiting.pop()
        top = stack[-1]
        if front == 5 and len(stack) == 1:
            if sum(head == 0 for head, _ in arcs) == 1:
                sums += np.exp(nats)
                for arc in arcs:
                    total[arc] = total.get(arc, 0.0) + np.exp(nats)
            continue
        if front < 5:
            shifted = nats + scored.trees.shift[top, front]
            waiting.append(([*stack, front], front + 1, shifted, arcs))
        if top:
            right = scored.trees.right[top, front] if stack[-2] else scored.roots[top]
            if stack[-2] or front == 5:
                arc = (stack[-2], top)
                waiting.append((stack[:-1], front, nats + right, [*arcs, arc]))
            if front < 5:
                left = nats + scored.trees.left[top, front]
                waiting.append((stack[:-1], front, left, [*arcs, (front, top)]))
    _, _, marginals = tables.expected(scored.trees, one_root=True, roots=scored.roots)
    for (head, word), share in total.items():
        assert marginals[head, word] == pytest.approx(share / sums, abs=1e-10)
    assert (
        np.exp(scored.trees.right[1:5, 1:5]) < np.exp(scored.sums.right[1:5, 1:5]) + 1e-12
    ).all()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A treebank, and a model that was trained on it, once whole and once stopped amid."""
    folder = tmp_path_factory.mktemp("syntactic")
    sentences = list(itertools.islice(read_conllu(sample_treebank("en", "train")), 260))
    write_conllu(sentences[:220], folder / "train.conllu")
    write_conllu(sentences[220:], folder / "dev.conllu")
    (folder / "raw.txt").write_text("the dog sleeps .\nthe cat sees the dog .\n")
    settings = {
        "model": {"hidden_size": 32, "dropout_input": 0.1, "dropout_output": 0.1},
        "data": {"batch_size": 4},
        "training": {"epochs": 12, "learning_rate": 0.01},
    }
    given: dict[str, Any] = {"config": settings, "dev": folder / "dev.conllu", "threads": 1}
    given["unlabelled"] = [folder / "raw.txt"]
    train_syntactic(folder / "train.conllu", folder / "whole", **given)
    with pytest.raises(Interrupted):
        train_syntactic(
            folder / "train.conllu", folder / "parts", should_stop=lambda step: step == 40, **given
        )
    train_syntactic(None, folder / "parts", resume=True)
    return folder


def test_a_resumed_run_ends_the_same(folder: Path) -> None:
    whole, parts = (folder / name / "weights.safetensors" for name in ("whole", "parts"))
    assert whole.read_bytes() == parts.read_bytes()


def test_it_learns_trees_and_words(folder: Path) -> None:
    model = seqtool.load(folder / "whole")
    scores = checkpoint.read_header(folder / "whole").scores
    assert scores["dev_las"] > 20
    gold = list(read_conllu(folder / "dev.conllu"))
    text = "\n".join(" ".join(token.form for token in sentence) for sentence in gold)
    perplexity = seqtool.evaluate_lm(model, text=text).perplexity
    assert perplexity == pytest.approx(scores["dev_perplexity"], rel=1e-4)
    assert evaluate_parser(gold, model(gold)).scores["LAS"].f1 == pytest.approx(scores["dev_las"])
    # the relation of ROOT is that of no other arc
    for parsed in model(gold):
        assert all((token.head == 0) == (token.deprel == "root") for token in parsed)
    # of the best trees the first is the tree, and marginals are of heads
    sentence = gold[0]
    ranked = next(model.nbest([sentence], 30))
    assert ranked[0].heads() == model([sentence])[0].heads()
    trees = {(*each.heads(), *(token.deprel for token in each)) for each in ranked}
    assert len(trees) == len(ranked) == 30
    (marginals,) = model.head_probabilities([sentence])
    np.testing.assert_allclose(marginals.sum(1), 1.0, atol=1e-5)


def test_commands(folder: Path, seqtool: Run, tmp_path: Path) -> None:
    model = folder / "whole"
    parsed = seqtool("parse", folder / "dev.conllu", "-m", model, "--scores")
    assert parsed.code == 0, parsed.stderr
    assert "Score=" in parsed.stdout
    for command in (
        ("eval-parser", folder / "dev.conllu", "-m", model, "--json"),
        ("generate", "-m", model, "--seed", "1", "--num", "2"),
        ("surprisal", folder / "raw.txt", "-m", model),
        ("eval-ppl", folder / "raw.txt", "-m", model, "--json"),
        ("parse", folder / "dev.conllu", "-m", model, "--format", "tree"),
        ("inspect", model),
        ("analyse", "stack", "-m", model, "-s", "the dog sleeps", "--json"),
        (
            "eval-ppl",
            folder / "raw.txt",
            "-m",
            model,
            "-m",
            folder / "parts",
            "--weights",
            "0.5,0.5",
        ),
    ):
        result = seqtool(*command)
        assert result.code == 0, (command, result.stderr)
    assert json.loads(seqtool("eval-ppl", folder / "raw.txt", "-m", model, "--json").stdout)[
        "tokens"
    ]
    train = ("train-lm", folder / "train.conllu", "-o", tmp_path / "m")
    assert seqtool(*train, "--dev", folder / "dev.conllu").code == 1
    begun = seqtool(*train, "--syntactic", "--epochs", "1", "--hidden", "8", "--json")
    assert begun.code == 0, begun.stderr
    assert json.loads(begun.stdout)["dev_perplexity"] > 1


def test_damage_is_an_error(folder: Path, tmp_path: Path) -> None:
    header = checkpoint.read_header(folder / "whole")
    checkpoint.copy(folder / "whole", tmp_path / "m")
    weights = tmp_path / "m" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(ModelError):
        seqtool.load(tmp_path / "m")
    assert header.kind == "syntactic-lm"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--bptt", "20"), "data.bptt counts only where --syntactic is not given"),
        (("--output-layer", "maxent"), "cannot read words from two places"),
    ],
)
def test_what_it_cannot_do_is_refused(
    seqtool: Run, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    result = seqtool("train-lm", "--syntactic", "-o", tmp_path / "m", *options)
    assert result.code == 1
    assert said in result.stderr
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    "options",
    [
        {"output": {"layer": "adaptive", "cutoffs": [20]}, "tied": False},
        {"output": {"layer": "nce", "noise_samples": 8}},
        {"cell": "rhn", "depth": 2, "dropout": "variational", "dropout_rise": 0.5},
        {"cell": "gru", "layers": 2, "connection": "residual"},
    ],
    ids=["adaptive", "nce", "rhn", "gru"],
)
def test_all_that_networks_can_be(folder: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    """It learns, and its probabilities sum to one."""
    training = {"epochs": 2, "learning_rate": 0.01}
    settings = {"model": {"hidden_size": 8, **options}, "training": training}
    trained = train_syntactic(folder / "train.conllu", tmp_path / "m", settings, threads=1)
    model = seqtool.load(trained.path)
    following = model.next_log_probs(model.advance(model.start(1), np.array([2])))
    np.testing.assert_allclose(np.exp(following).sum(1), 1.0, atol=1e-5)
    assert trained.scores["dev_perplexity"] < len(model.tokenizer.vocabulary)
