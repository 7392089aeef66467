"""Words by their characters: the equations, gradients, what is kept, ties, and unknown words."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_model, save_model
from torch import Tensor, nn
from torch.func import functional_call
from toy_models import word_tokenizer

from seqtool.analysis.passage import read_passage, surprisals
from seqtool.core import checkpoint
from seqtool.core.config import from_dict
from seqtool.core.errors import ConfigError
from seqtool.core.vocabulary import EOS_ID, UNK_ID
from seqtool.lm.evaluation import evaluate_lm
from seqtool.lm.mixture.model import MixedModel
from seqtool.lm.neural.config import (
    DynamicConfig,
    InputConfig,
    ModelConfig,
    NeuralLMConfig,
    OutputConfig,
)
from seqtool.lm.neural.dynamic import DynamicLanguageModel, GradientStatistics, tune_dynamic
from seqtool.lm.neural.model import NeuralLanguageModel
from seqtool.lm.neural.network import NeuralNetwork
from seqtool.lm.neural.spelling import SpelledWords
from seqtool.lm.neural.train import train_lm
from seqtool.lm.pairs import MinimalPair, evaluate_pairs
from seqtool.text.characters import BEGIN, END, PAD
from seqtool.text.prepared import prepare

WORDS = ["<unk>", "</s>", "ab", "a", "bab", "abba", "Éa", "the", "het", "bé"]
SMALL: dict[str, Any] = {
    "kind": "char-cnn",
    "character_size": 3,
    "filter_widths": (1, 2, 3, 4),
    "num_filters": (2, 1, 3, 2),
}


def make(*, words: list[str] | None = None, **settings: Any) -> NeuralNetwork:
    """Return a network in float64 that reads words by their characters."""
    torch.manual_seed(3)
    inputs = InputConfig(**{**SMALL, **settings.pop("input", {})})
    config = ModelConfig(**{"hidden_size": 5, "input": inputs, "init_range": 0.5, **settings})
    words = WORDS if words is None else words
    counts = np.arange(1, len(words) + 1)
    return NeuralNetwork(config, len(words), words=words, counts=counts).double()


def letters(network: NeuralNetwork) -> SpelledWords:
    assert isinstance(network.embedding, SpelledWords)
    return network.embedding


def transcribed(embedding: SpelledWords, symbols: list[int], highways: int) -> Tensor:
    """Kim et al. (2016), section 2.2 and eq. 8, of one word, and the map that follows.

    f[i] = tanh(<C[*, i : i + w - 1], H> + b) at each place i, y = max over i, and highways
    z = t * g(W y + b) + (1 - t) * y. The map reads them less their mean, over the root of their
    number.
    """
    weights = dict(embedding.named_parameters())
    found = []
    number = 0
    while f"filters.{number}.weight" in weights:
        filters_FCK, bias_F = (weights[f"filters.{number}.{name}"] for name in ("weight", "bias"))
        width = filters_FCK.shape[2]
        for filter_CK, bias in zip(filters_FCK, bias_F, strict=True):
            answers = []
            for place in range(len(symbols)):
                total = bias
                for offset in range(width):
                    at = place + offset - width // 2
                    if 0 <= at < len(symbols):
                        vector_C = weights["characters.weight"][symbols[at]]
                        total = total + filter_CK[:, offset] @ vector_C
                answers.append(torch.tanh(total))
            found.append(torch.stack(answers).max())
        number += 1
    y = torch.stack(found)
    for layer in range(highways):
        gate = weights[f"highways.{layer}.gate.weight"] @ y + weights[f"highways.{layer}.gate.bias"]
        t = torch.sigmoid(gate)
        g = torch.relu(weights[f"layers.{layer}.weight"] @ y + weights[f"layers.{layer}.bias"])
        y = t * g + (1 - t) * y
    y = (y - embedding.mean_F) / math.sqrt(len(y))
    return weights["projection.weight"] @ y + weights["projection.bias"]


@pytest.mark.parametrize("highways", [0, 1, 2])
def test_vectors_are_those_of_the_equations(highways: int) -> None:
    embedding = letters(make(input={"highways": highways}).eval())
    nn.init.uniform_(embedding.mean_F)
    ids = torch.tensor([[0, 5, 2], [7, 6, 5]])
    found = embedding(ids)
    known = {char: number for number, char in enumerate(embedding._alphabet.known)}
    first = embedding._alphabet.num_symbols - len(known)
    assert "É" not in known  # it occurs once, and é and b more often
    for place in ((0, 1), (0, 2), (1, 0)):
        word = WORDS[int(ids[place])]
        symbols = [BEGIN, *(first + known[char] for char in word), END]
        expected = transcribed(embedding, symbols, highways)
        torch.testing.assert_close(found[place], expected, rtol=0, atol=1e-12)
    special = [BEGIN, embedding._alphabet.num_symbols + UNK_ID, END]
    torch.testing.assert_close(
        found[0, 0], transcribed(embedding, special, highways), rtol=0, atol=1e-12
    )


def test_gradient_is_the_numerical_one() -> None:
    embedding = letters(make(input={"highways": 1}))
    names = [name for name, _ in embedding.named_parameters()]
    ids = torch.tensor([0, 1, 2, 5, 6, 5])

    def run(*weights: Tensor) -> Tensor:
        found = functional_call(embedding, dict(zip(names, weights, strict=True)), (ids,))
        return torch.as_tensor(found)

    # PAD is read by no filter, so its gradient is zero as an embedding's of padding is
    assert torch.autograd.gradcheck(run, tuple(embedding.parameters()))


def test_training_reads_words_less_the_mean_of_a_window() -> None:
    embedding = letters(make())
    ids = torch.tensor([[2, 5], [2, 3]])
    found = embedding.train()(ids)
    mixed = embedding._mix(embedding.spelled_UL[[2, 3, 5]])  # each word once
    mean = mixed.mean(dim=0)
    torch.testing.assert_close(embedding.mean_F, 0.1 * mean, rtol=0, atol=1e-12)
    embedding.eval().mean_F.copy_(mean.detach())
    torch.testing.assert_close(found, embedding(ids), rtol=0, atol=1e-12)
    # what the words have in common has no gradient
    each_once = embedding.train()(torch.tensor([2, 3, 5]))
    (gradient,) = torch.autograd.grad(each_once.sum(), embedding.projection.weight)
    assert gradient.abs().max() < 1e-12


def test_compiled_filters_are_convolutions() -> None:
    embedding = letters(make())
    for part in embedding._filters():
        fast = part.strongest(embedding.characters, embedding.spelled_UL)
        vectors_UCL = embedding.characters(embedding.spelled_UL).transpose(1, 2)
        answers_UFL = part(vectors_UCL)[:, :, : embedding.spelled_UL.shape[1]]
        beyond_U1L = (embedding.spelled_UL == PAD)[:, None]
        expected = answers_UFL.masked_fill(beyond_U1L, -math.inf).amax(2)
        torch.testing.assert_close(fast, expected, rtol=0, atol=1e-12)
        leaves = [embedding.characters.weight, *part.parameters()]
        weights = torch.randn(fast.shape, dtype=fast.dtype)
        for one, other in zip(
            torch.autograd.grad((fast * weights).sum(), leaves),
            torch.autograd.grad((expected * weights).sum(), leaves),
            strict=True,
        ):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_what_is_kept_is_what_would_be_made() -> None:
    network = make().eval()
    ids = torch.tensor([[3, 9], [0, 1]])
    made = network.embedding(ids)
    assert made.requires_grad
    with torch.no_grad():
        torch.testing.assert_close(network.embedding(ids), made, rtol=0, atol=1e-12)
        network.get_parameter("embedding.projection.bias").add_(1.0)
        assert torch.equal(network.embedding(ids), network.word_vectors()[ids])
        network.eval()  # forgets
        torch.testing.assert_close(network.embedding(ids), made + 1, rtol=0, atol=1e-12)
    torch.testing.assert_close(network.word_vectors()[ids], made + 1, rtol=0, atol=1e-12)


def test_weights_start_at_the_size_of_what_they_read() -> None:
    words = [*WORDS[:2], *(f"{a}{b}{c}" for a in "abcde" for b in "abcde" for c in "abcde")]
    network = make(
        words=words, hidden_size=200, input={"filter_widths": (2,), "num_filters": (90,)}
    )
    # answers of tanh within +-1, some 0.5 large, times weights of +- sqrt(6 / (90 + 200)), of which
    # 90 are added and divided by the root of 90: 0.5 x 0.144 / sqrt(3)
    assert network.word_vectors().std().item() == pytest.approx(0.04, rel=0.5)
    assert network.get_parameter("embedding.highways.0.gate.bias").unique().tolist() == [-2.0]


# Unknown words.


def test_an_unknown_word_has_the_vector_of_its_letters() -> None:
    embedding = letters(make().eval())
    with torch.no_grad():
        before = embedding(torch.arange(len(WORDS)))  # kept from here on
        first = embedding.add(["abab", "ab", "abab"])
        assert first == [len(WORDS), len(WORDS) + 1, len(WORDS)]
        longer = embedding.add(["b" * 20, "abab"])
        assert longer == [len(WORDS) + 2, len(WORDS)]
        found = embedding(torch.tensor([*first, longer[0], 2]))
        torch.testing.assert_close(found[1], found[4], rtol=0, atol=1e-12)  # spelled as word 2
        assert not torch.allclose(found[0], found[1])
        assert torch.equal(embedding(torch.arange(len(WORDS))), before)
        assert torch.equal(embedding.table(), before)
    torch.testing.assert_close(embedding(torch.tensor(longer)), found[[3, 0]], rtol=0, atol=1e-12)


def test_unknown_words_are_told_apart_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqtool.lm.neural.spelling.MOST_UNKNOWN", 2)
    embedding = letters(make())
    assert embedding.add(["x", "y", "z", "x"]) == [len(WORDS), len(WORDS) + 1, UNK_ID, len(WORDS)]


def language_model(**settings: Any) -> NeuralLanguageModel:
    tokenizer = word_tokenizer(WORDS[2:])
    assert tokenizer.vocabulary.symbols == WORDS
    return NeuralLanguageModel(make(**settings), tokenizer)


def test_a_text_is_read_by_its_letters() -> None:
    model = language_model()
    found = evaluate_lm(model, text="ab abab a\nthe <unk> a\n", reset_state=True)
    assert (found.oov, found.tokens) == (2, 8)
    # by hand: what is read is the word's own vector, what is predicted is <unk>
    network, expected = model.network, 0.0
    (unknown,) = letters(network).add(["abab"])
    for sentence in ([2, unknown, 3], [7, UNK_ID, 3]):
        inputs = torch.tensor([EOS_ID, *sentence])[:, None]
        with torch.no_grad():
            hidden, _ = network(inputs, network.initial_state(1))
            log_probs = network.softmax.log_probs(hidden[:, 0])
        targets = [UNK_ID if word == unknown else word for word in sentence]
        expected += float(log_probs[range(4), [*targets, EOS_ID]].sum())
    assert found.known_nats + found.unknown_nats == pytest.approx(expected, abs=1e-12)
    other = evaluate_lm(model, text="ab thehet a\nthe <unk> a\n", reset_state=True)
    unspelled = evaluate_lm(model, text="ab <unk> a\nthe <unk> a\n", reset_state=True)
    assert len({part.known_nats for part in (found, other, unspelled)}) == 3


def test_a_prepared_corpus_is_read_by_its_letters_too(tmp_path: Path) -> None:
    text = tmp_path / "valid"
    text.write_text("ab abab a\nthe <unk> a\n\nthehet Éa abab\n" * 3, encoding="utf-8")
    (tmp_path / "train").write_text("".join(f"{word} " for word in WORDS[2:]), encoding="utf-8")
    corpus = prepare(tmp_path / "train", tmp_path / "corpus", valid=text)
    words = corpus.vocabulary.symbols
    model = NeuralLanguageModel(make(words=words), corpus.tokenizer)
    for reset_state in (False, True):
        of_text = evaluate_lm(model, [text], reset_state=reset_state)
        of_corpus = evaluate_lm(model, [corpus.path], split="valid", reset_state=reset_state)
        assert of_corpus.known_nats == pytest.approx(of_text.known_nats, abs=1e-12)
        assert of_corpus.unknown_nats == pytest.approx(of_text.unknown_nats, abs=1e-12)
    (corpus.path / "valid.words").unlink()  # as one of release 0.1.0: without letters
    unspelled = evaluate_lm(model, [corpus.path], split="valid", reset_state=True)
    assert unspelled.oov == of_text.oov == 12
    assert unspelled.known_nats != pytest.approx(of_text.known_nats, abs=1e-6)


def test_an_analysis_reads_the_letters_of_a_corpus_too(tmp_path: Path) -> None:
    (tmp_path / "valid").write_text("ab abab a\nthe <unk> a\nthehet\n", encoding="utf-8")
    (tmp_path / "train").write_text(" ".join(WORDS[2:]), encoding="utf-8")
    corpus = prepare(tmp_path / "train", tmp_path / "corpus", valid=tmp_path / "valid")
    model = NeuralLanguageModel(make(words=corpus.vocabulary.symbols), corpus.tokenizer)
    of_text, of_corpus = (read_passage(model, text) for text in (tmp_path / "valid", corpus.path))
    assert of_corpus.tokens == of_text.tokens
    np.testing.assert_array_equal(of_corpus.ids, of_text.ids)
    np.testing.assert_array_equal(surprisals(model, of_corpus), surprisals(model, of_text))


def test_pairs_of_unknown_words_are_told_apart_by_their_letters() -> None:
    model = language_model()
    pairs = [MinimalPair("ab abab a", "ab thehet a"), MinimalPair("ab <unk> a", "ab  <unk> a")]
    for each in (model, MixedModel([model, model])):
        other, same = evaluate_pairs(each, pairs).scored
        expected = each.score([pairs[0].good, pairs[0].bad])
        assert [other.good, other.bad] == pytest.approx(expected, abs=1e-9)
        assert other.outcome != "tie"
        assert other.unknown == ("abab", "thehet")
        assert same.good == same.bad


def test_surprisal_reads_letters_too() -> None:
    model = language_model()
    one, other = model.surprisal(["ab abab a", "ab thehet a"])
    assert one[1].bits == pytest.approx(other[1].bits, abs=1e-9)  # both are <unk>
    assert one[2].bits != pytest.approx(other[2].bits, abs=1e-6)


def test_a_network_that_learns_makes_its_vectors_anew() -> None:
    model = language_model()
    ids = np.array([2, 0, 3, 7, 5, EOS_ID] * 3, np.int32)
    statistics = GradientStatistics(
        tuple(torch.ones_like(parameter) for parameter in model.network.parameters()), "", 1
    )
    scores = []
    for segment in (4, 5):  # 18 tokens: of the last segment two are read, or three
        config = DynamicConfig(rate=0.05, decay=0.0, segment=segment)
        (found,) = DynamicLanguageModel(model, statistics, config).score_ids([ids])
        scores.append(found.log_probs)
    assert np.allclose(scores[0][:4], scores[1][:4], rtol=0, atol=1e-12)
    # by hand: the last two tokens with weights after four steps of four tokens
    network = copy.deepcopy(model.network)
    state, before = network.initial_state(1), EOS_ID
    for start in range(0, 16, 4):
        segment_ids = ids[start : start + 4]
        inputs = torch.tensor([before, *segment_ids[:-1]])[:, None]
        hidden, after = network(inputs, state)
        log_probs = network.softmax.target_log_probs(
            hidden[:, 0], torch.from_numpy(segment_ids.astype(np.int64))
        )
        network.zero_grad()
        (-log_probs.mean()).backward()
        with torch.no_grad():
            for parameter in network.parameters():
                if parameter.grad is not None:
                    parameter -= 0.05 / (1 + config.epsilon) * parameter.grad.to_dense()
        state = [tuple(part.detach() for part in layer) for layer in after]
        before = int(segment_ids[-1])
    hidden, _ = network(torch.tensor([[before], [int(ids[16])]]), state)
    targets = torch.from_numpy(ids[16:].astype(np.int64))
    expected = network.softmax.target_log_probs(hidden[:, 0], targets)
    np.testing.assert_allclose(scores[0][16:], expected.detach().numpy(), rtol=0, atol=1e-10)


def test_a_network_that_learns_reads_unknown_words_by_their_letters(tmp_path: Path) -> None:
    model = language_model()
    text = "ab abab a\nthe <unk> thehet a\n" * 2
    statistics = GradientStatistics(
        tuple(torch.ones_like(parameter) for parameter in model.network.parameters()), "", 1
    )
    still = DynamicLanguageModel(model, statistics, DynamicConfig(rate=1e-12, decay=0.0, segment=5))
    found, expected = (
        evaluate_lm(still, text=text),
        evaluate_lm(model, text=text, reset_state=False),
    )
    assert (found.oov, expected.oov) == (6, 6)
    assert found.known_nats == pytest.approx(expected.known_nats, abs=1e-9)
    assert found.unknown_nats == pytest.approx(expected.unknown_nats, abs=1e-9)
    # where it learns, as it does without unknown words, if the vocabulary has them all
    learning = DynamicLanguageModel(model, statistics, DynamicConfig(rate=0.05, segment=5))
    (abab,) = letters(model.network).add(["abab"])
    blocks = [np.array([2, abab, 3, EOS_ID], np.int32), np.array([7, 2, EOS_ID] * 3, np.int32)]
    scores = [block.log_probs for block in learning.score_ids(iter(blocks))]
    known = copy.deepcopy(model)
    known.network.embedding.spelled_UL[UNK_ID] = letters(model.network).spelled_UL[abab]
    same = DynamicLanguageModel(known, statistics, learning.config)
    blocks[0] = np.where(blocks[0] == abab, UNK_ID, blocks[0]).astype(np.int32)
    np.testing.assert_allclose(
        np.concatenate(scores),
        np.concatenate([block.log_probs for block in same.score_ids(iter(blocks))]),
        rtol=0,
        atol=1e-12,
    )
    # settings are chosen on the text as it will be read
    (tmp_path / "held-out").write_text(text, encoding="utf-8")
    tuning = tune_dynamic(still, tmp_path / "held-out", names=("decay",))
    assert tuning.tried[0][1] == pytest.approx(found.perplexity, rel=1e-9)


# Ties.


@pytest.mark.parametrize("layer", ["full", "nce", "blackout", "importance"])
def test_tied_weights_are_the_vectors_of_the_words(layer: str) -> None:
    samples = {} if layer == "full" else {"noise_samples": 4}
    output = OutputConfig(layer=layer, **samples)  # type: ignore[arg-type]
    network = make(tied=True, output=output)
    assert not any("softmax.weight" in name for name in network.state_dict())
    # the same layer with a weight of its own, which has the same numbers
    counts = np.arange(1, len(WORDS) + 1)
    judge = NeuralNetwork(ModelConfig(hidden_size=5, output=output), len(WORDS), counts=counts)
    judge.double()
    nn.init.uniform_(letters(network).mean_F)
    table, bias = network.word_vectors(), network.get_parameter("softmax.bias")
    with torch.no_grad():
        judge.get_parameter("softmax.weight").copy_(table)
        judge.get_parameter("softmax.bias").copy_(bias)
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(6, 5, generator=generator, dtype=torch.float64)
    targets = torch.tensor([2, 3, 0, 1, 9, 9])
    losses = []
    for one in (network, judge):
        torch.manual_seed(2)
        losses.append(one.train().softmax.loss(hidden, targets))
    torch.testing.assert_close(*losses, rtol=0, atol=1e-12)
    (gradient,) = torch.autograd.grad(
        losses[0], network.get_parameter("embedding.filters.0.weight")
    )
    assert gradient.abs().max() > 0
    with torch.no_grad():
        ours, theirs = (one.eval().softmax.log_probs(hidden) for one in (network, judge))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    torch.testing.assert_close(ours.exp().sum(1), torch.ones(6).double(), rtol=0, atol=1e-12)


def test_a_copy_reads_its_own_letters() -> None:
    network = make(tied=True).eval()
    other = copy.deepcopy(network)
    with torch.no_grad():
        for parameter in letters(network).parameters():
            parameter.zero_()
    hidden = torch.ones(1, 5, dtype=torch.float64)
    assert network.softmax.log_probs(hidden).std() < 0.2
    assert torch.equal(
        other.softmax.log_probs(hidden), copy.deepcopy(other).softmax.log_probs(hidden)
    )
    assert not torch.allclose(other.word_vectors(), network.word_vectors())


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_weights_return_from_a_file(tmp_path: Path, tied: bool) -> None:
    network = make(tied=tied)
    save_model(network, str(tmp_path / "weights"))
    opened = make(tied=tied)
    with torch.no_grad():
        for parameter in opened.parameters():
            parameter.zero_()
    load_model(opened, tmp_path / "weights")
    assert torch.equal(opened.word_vectors(), network.word_vectors())
    assert not any("spelled" in name for name in network.state_dict())


# Settings.


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"model": {"input": {**SMALL, "num_filters": [3]}}},
            "one number for each of the 4 widths",
        ),
        ({"model": {"input": {**SMALL, "filter_widths": [0, 1, 2, 3]}}}, "numbers from 1 to"),
        (
            {"model": {"input": SMALL, "tied": True, "output": {"layer": "adaptive"}}},
            "adaptive cannot read words by their characters",
        ),
        (
            {"model": {"input": SMALL}, "training": {"embedding_optimiser": "sparse-adam"}},
            "needs a table of words",
        ),
        ({"model": {"input": SMALL}, "data": {"unit": "char"}}, "but the unit is char"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        from_dict(NeuralLMConfig, settings)
    assert caught.value.hint


def test_default_filters_are_those_of_the_small_model_of_the_paper() -> None:
    # Kim et al. (2016), table 2: w = [1, ..., 6], h = [25 w], d = 15, one highway layer
    config = InputConfig(kind="char-cnn")
    assert config.filters == (25, 50, 75, 100, 125, 150)
    assert (config.character_size, config.highways) == (15, 1)


@pytest.mark.parametrize("layer", ["full", "adaptive", "class", "importance"])
def test_a_model_that_was_trained_can_be_opened(tmp_path: Path, layer: str) -> None:
    """Also where its only array with a row for each word is one of the output layer."""
    (tmp_path / "text.txt").write_text("the old man\na dog barks at the man\n" * 20)
    settings = {
        "model": {
            "hidden_size": 8,
            "tied": False,
            "input": {"kind": "char-cnn", "filter_widths": [1, 2], "num_filters": [3, 3]},
            "output": {"layer": layer, **({"cutoffs": [4]} if layer == "adaptive" else {})},
        },
        "data": {"batch_size": 2, "bptt": 10},
        "training": {"epochs": 1},
    }
    train_lm(tmp_path / "text.txt", tmp_path / "lm", settings, device="cpu", progress=False)
    assert math.isfinite(evaluate_lm(checkpoint.load(tmp_path / "lm"), text=["a man"]).perplexity)
