"""Mean-field inference of second order: against enumeration, and its gradients."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from parsing.parser.graph.test_decoder import graph_parser, network_of

from seqtool.core.config import from_dict
from seqtool.parsing.parser.config import ModelConfig, ParserConfig
from seqtool.parsing.parser.graph.scores import pair_borders, refined_scores, softmax

S = 3


def settings(steps: int) -> ModelConfig:
    model = {"decoder": "graph", "encoder": "bilstm"}
    model |= {"second_order": "both", "second_size": S, "second_steps": steps}  # type: ignore[dict-item]
    return from_dict(ParserConfig, {"model": model}).model


def drawn(num_words: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores of arcs, and what pairs are scored by."""
    generator = np.random.default_rng(seed)
    scores = generator.normal(size=(num_words, 1 + num_words))
    scores[np.arange(num_words), np.arange(1, 1 + num_words)] = -np.inf
    width = sum(pair_borders(settings(1)))
    return scores, generator.normal(size=(1 + num_words, width))


def pair_scores(units: np.ndarray) -> tuple[Any, Any]:
    """Functions that give the score of siblings i and k of j, and of i under j under k.

    Words are numbered from 1.
    """
    parts = dict(zip("ambdg", np.split(units, units.shape[1] // S, axis=1), strict=True))

    def of_siblings(i: int, j: int, k: int) -> float:
        if i == k:
            return 0.0
        return float((parts["a"][j] * parts["b"][i] * parts["b"][k]).sum())

    def of_chain(i: int, j: int, k: int) -> float:
        if i == k or j == 0:
            return 0.0
        return float((parts["m"][j] * parts["d"][i] * parts["g"][k]).sum())

    return of_siblings, of_chain


def test_the_scores_are_those_of_a_transcription() -> None:
    """Sums over all words, as the equations of the module say, three times."""
    scores, units = drawn(5)
    siblings, chain = pair_scores(units)
    words = range(1, 6)
    expected = scores
    for steps in range(1, 4):
        likely = np.exp(expected) / np.exp(expected).sum(1, keepdims=True)

        def q(word: int, head: int, likely: np.ndarray = likely) -> float:
            return float(likely[word - 1, head])

        expected = scores.copy()
        for i, j in product(words, range(6)):
            for k in range(6):
                if k not in (0, j):
                    expected[i - 1, j] += q(k, j) * siblings(i, j, k)
                if j not in (0, k):
                    expected[i - 1, j] += q(j, k) * chain(i, j, k)
                if k not in (0, i):
                    expected[i - 1, j] += q(k, i) * chain(k, i, j)
        found = refined_scores(scores, units, settings(steps), softmax)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    inside = np.isfinite(scores)
    assert np.abs(expected[inside] - scores[inside]).max() > 0.1


def test_where_heads_are_certain_a_step_compares_whole_choices() -> None:
    """The score of another head is that of all heads together after the change, less a constant.

    All heads together have the scores of their arcs and of all pairs of siblings and chains.
    """
    num = 4
    scores, units = drawn(num, seed=1)
    siblings, chain = pair_scores(units)
    words = range(1, 1 + num)

    def total(heads: tuple[int, ...]) -> float:
        value = sum(float(scores[word - 1, heads[word - 1]]) for word in words)
        for i, k in product(words, words):
            if i < k and heads[i - 1] == heads[k - 1]:
                value += siblings(i, heads[i - 1], k)
        for i in words:
            j = heads[i - 1]
            if j:
                value += chain(i, j, heads[j - 1])
        return value

    others = [[head for head in range(num + 1) if head != word] for word in words]
    choices = list(product(*others))[::7]
    assert len(choices) > 30
    for heads in choices:
        certain = np.zeros_like(scores)
        certain[np.arange(num), heads] = 1.0
        found = refined_scores(scores, units, settings(1), lambda _, q=certain: q)
        for word in words:
            changed = {
                head: total((*heads[: word - 1], head, *heads[word:]))
                for head in range(num + 1)
                if head != word
            }
            first = changed[heads[word - 1]] - found[word - 1, heads[word - 1]]
            for head, value in changed.items():
                assert value - found[word - 1, head] == pytest.approx(first, abs=1e-10)


def test_gradients() -> None:
    scores, units = drawn(3)
    inside = torch.from_numpy(np.isfinite(scores))

    def refined(flat: torch.Tensor, units: torch.Tensor) -> torch.Tensor:
        table = torch.full(scores.shape, -torch.inf, dtype=torch.float64)
        table[inside] = flat
        found = refined_scores(table, units, settings(2), lambda table: table.softmax(1))
        return found[inside]

    arguments = (torch.from_numpy(scores)[inside], torch.from_numpy(units))
    assert torch.autograd.gradcheck(refined, tuple(a.requires_grad_() for a in arguments))


def test_padding_changes_nothing() -> None:
    """Sentences side by side have the scores, and give the gradients, that each has alone."""
    parser = graph_parser(second_order="both", second_size=S)
    network = network_of(parser)
    lengths = [5, 2, 7, 3]
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(
        sum(lengths), 2 * network.config.encoder_size, generator=generator, dtype=torch.float64
    )

    def scored(states: torch.Tensor, lengths: list[int]) -> tuple[list[torch.Tensor], torch.Tensor]:
        states = states.detach().requires_grad_()
        dependents, heads, *_ = network(states)
        tables, _ = network.arc_scores(
            dependents, heads, torch.tensor(lengths), network.pair_units(states)
        )
        own = [
            table[1:length, :length].log_softmax(1)
            for table, length in zip(tables, lengths, strict=True)
        ]
        sum(table[:, 0].sum() for table in own).backward()  # type: ignore[union-attr]
        assert states.grad is not None
        return own, states.grad

    together, slopes = scored(states, lengths)
    for table, slope, own in zip(
        together, slopes.split(lengths), states.split(lengths), strict=True
    ):
        (alone,), slope_alone = scored(own, [len(own)])
        torch.testing.assert_close(table, alone, rtol=0, atol=1e-5)
        torch.testing.assert_close(slope, slope_alone, rtol=1e-4, atol=1e-5)
