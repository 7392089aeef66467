"""The contextual encoder against `nn.LSTM`, NumPy's against torch's, parsers, side losses."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import types
from parsing.parser.test_parser import network_of
from parsing.parser.test_train import config, trained
from parsing.parser.tiny import LABELS, make_sentence, random_parser, random_sentences, tiny_config
from safetensors.numpy import load_file
from torch import Tensor, nn

from seqtool.core import checkpoint
from seqtool.core.arrays import Floats, Ints
from seqtool.core.errors import DataError, Interrupted
from seqtool.core.jit import compiled
from seqtool.parsing.encoding.encoder import (
    CLOZE_SIZE,
    NONE,
    AveragedWeights,
    Cloze,
    ContextEncoder,
    HeadChoice,
    Linear,
    dropout_mask,
    word_numbers,
)
from seqtool.parsing.encoding.features import PAD, ROOT, SymbolTable, token_rows
from seqtool.parsing.encoding.lstm import Recurrence, tanh
from seqtool.parsing.parser.config import ParserConfig
from seqtool.parsing.parser.data import prepare_data
from seqtool.parsing.parser.transition.hidden_layer import SCALE, compile_slots, extract
from seqtool.parsing.parser.transition.search import search
from seqtool.parsing.parser.transition.task import Examples, ParserTask
from seqtool.parsing.parser.transition.transitions import SYSTEMS, Configurations
from seqtool.treebank.conllu import read_conllu, write_conllu
from seqtool.treebank.sentence import FORM

WIDTH, SIZE = 5, 6
LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=7)
BILSTM: dict[str, Any] = {
    "encoder": "bilstm",
    "encoder_size": 4,
    "context_units": 16,
    "context_slots": ["s0", "b0", "s0.l1"],
}


def encoder_of(num_layers: int) -> ContextEncoder:
    """An encoder whose biases are not zero either."""
    torch.manual_seed(num_layers)
    encoder = ContextEncoder(WIDTH, SIZE, num_layers)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return encoder


@pytest.mark.parametrize("num", [0, 1, 63, 64, 65, 130])
@pytest.mark.parametrize("half", [False, True])
def test_rows_that_fill_up_a_product_change_nothing(half: bool, num: int) -> None:
    torch.manual_seed(num)
    layer, plain = Linear(WIDTH, SIZE), nn.Linear(WIDTH, SIZE)
    plain.load_state_dict(layer.state_dict())
    inputs, slopes = torch.randn(num, WIDTH), torch.randn(num, SIZE)
    found = []
    for module in (plain, layer):
        leaf = inputs.clone().requires_grad_()
        with torch.autocast("cpu", enabled=half):
            outputs = module(leaf)
        outputs.backward(slopes.to(outputs))
        found.append((outputs, leaf.grad, module.weight.grad, module.bias.grad))
    # the order of sums may differ: an ulp of bfloat16 is 2^-7
    error = 2**-7 if half else 0.0
    for ours, theirs in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=error, atol=error)


def reference_of(encoder: ContextEncoder) -> nn.LSTM:
    """Torch's own bidirectional LSTM of the same weights."""
    lstm = nn.LSTM(WIDTH, SIZE, len(encoder.layers), bidirectional=True)
    weights = {}
    for name, value in encoder.state_dict().items():
        _, layer, direction, weight = name.split(".")
        suffix = "_reverse" if direction == "backwards" else ""
        weights[weight.replace("_l0", f"_l{layer}{suffix}")] = value
    lstm.load_state_dict(weights)
    return lstm


def one_by_one(lstm: nn.LSTM, inputs_TD: Tensor, lengths: list[int]) -> Tensor:
    """The states of sentences, each read alone."""
    return torch.cat([lstm(part[:, None])[0][:, 0] for part in torch.split(inputs_TD, lengths)])


@pytest.mark.parametrize("num_layers", [1, 2, 3])
@settings(max_examples=20)
@given(lengths=LENGTHS)
def test_states_and_gradients_are_those_of_torch(num_layers: int, lengths: list[int]) -> None:
    encoder = encoder_of(num_layers).double()
    lstm = reference_of(encoder).double()
    generator = torch.Generator().manual_seed(sum(lengths))
    inputs_TD = torch.randn(sum(lengths), WIDTH, generator=generator, dtype=torch.float64)
    weights_TD = torch.randn(sum(lengths), 2 * SIZE, generator=generator, dtype=torch.float64)
    results = []
    for states_of in (
        lambda inputs: encoder(inputs, torch.tensor(lengths)),
        lambda inputs: one_by_one(lstm, inputs, lengths),
    ):
        given_TD = inputs_TD.clone().requires_grad_()
        states_TD = states_of(given_TD)
        (states_TD * weights_TD).sum().backward()
        assert given_TD.grad is not None
        results.append((states_TD.detach(), given_TD.grad))
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def test_dropout_is_for_what_later_layers_read() -> None:
    """With everything dropped between them, the second layer reads zeros whatever comes in."""
    encoder = encoder_of(2)
    lengths = torch.tensor([3, 1])
    first, second = (
        encoder(torch.randn(4, WIDTH), lengths, lambda states_LBD: 0.0 * states_LBD)
        for _ in range(2)
    )
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_dropout_keeps_the_mean_and_something() -> None:
    values = torch.ones(200, 500)
    for dropout in (0.3, 0.9, 0.998, 0.999):
        mask = dropout_mask(values, dropout, np.random.default_rng(0))
        assert isinstance(mask, torch.Tensor)
        kept = (mask > 0).double().mean().item()
        share = max(1 - dropout, 1 / 256)
        assert kept == pytest.approx(share, abs=1 / 256)
        # four standard errors of a mean of so many draws
        assert mask.mean().item() == pytest.approx(1, abs=4 * (1 / kept - 1) ** 0.5 / 10**2.5)


def read(encoder: ContextEncoder, lengths: list[int], order: list[int]) -> list[Floats]:
    """NumPy's states of some sentences, each read as torch reads it alone.

    The inputs of token t of sentence i are row 3 i + t % 3 of a table.
    """
    inputs = np.random.default_rng(0).normal(size=(3 * len(lengths), WIDTH)).astype(np.float32)
    places = np.asarray([3 * i + t % 3 for i in order for t in range(lengths[i])], np.int32)
    sizes = [lengths[i] for i in order]
    weights = {name: value.numpy() for name, value in encoder.state_dict().items()}
    rows, tokens = Recurrence(weights).states(inputs, places, np.asarray(sizes, np.int32))
    states = np.empty_like(rows)
    states[tokens] = rows
    with torch.no_grad():
        expected = one_by_one(reference_of(encoder), torch.from_numpy(inputs[places]), sizes)
    np.testing.assert_allclose(states, expected.numpy(), rtol=0, atol=1e-5)
    return np.split(states, np.cumsum(sizes)[:-1])


@pytest.mark.parametrize("num_layers", [1, 2])
@settings(max_examples=20)
@given(lengths=LENGTHS, data=st.data())
def test_numpy_reads_as_torch_whatever_is_beside(
    num_layers: int, lengths: list[int], data: st.DataObject
) -> None:
    encoder = encoder_of(num_layers)
    order = data.draw(st.permutations(range(len(lengths))))
    for i, states in zip(order, read(encoder, lengths, order), strict=True):
        (alone,) = read(encoder, lengths, [i])
        np.testing.assert_allclose(states, alone, rtol=0, atol=1e-6)


@compiled(types.void(types.float32[::1], types.float32[::1]))
def tanh_of_all(values, results):  # type: ignore[no-untyped-def]
    for place in range(len(values)):
        results[place] = tanh(values[place])


def test_tanh() -> None:
    near_zero = np.logspace(-30, 0, 5001)
    values = np.concatenate([np.linspace(-12, 12, 500_001), near_zero, -near_zero])
    values = np.append(values, [0, 1e30, -np.inf, np.inf]).astype(np.float32)
    found = np.empty_like(values)
    tanh_of_all(values, found)
    np.testing.assert_allclose(found, np.tanh(values.astype(np.float64)), rtol=7e-7, atol=0)
    unknown = np.asarray([np.nan], np.float32)
    tanh_of_all(unknown, unknown)
    assert np.isnan(unknown[0])


def test_rows_of_tokens() -> None:
    # ROOT at 7 of a sentence of two words, ROOT at 1 of one of one word
    rows = token_rows(np.asarray([7, 1], np.int32), np.asarray([2, 1], np.int32))
    assert rows.tolist() == [7, 8, 9, 1, 2]


@pytest.mark.parametrize("num_filters", [0, 6])
@pytest.mark.parametrize("system", list(SYSTEMS))
def test_the_tables_give_the_scores_of_the_plain_network(system: str, num_filters: int) -> None:
    parser = random_parser(tiny_config(system, **BILSTM, num_filters=num_filters))
    model = parser.config.model
    network = network_of(parser).double()
    arrays = parser.encode(random_sentences(12, 9))
    parser.decoder.prepare(parser.types)
    in_context = parser.decoder.classifier.in_context(arrays)
    scorer = parser.decoder.classifier.scorer(arrays.types, in_context)
    symbols = [torch.from_numpy(rows).long() for rows in parser.types.arrays()]
    vectors = network.type_vectors(*symbols)
    # sentences lie one after another behind NONE
    states = network.encoder(vectors[arrays.types[1:]], torch.from_numpy(arrays.lengths + 1))
    units = nn.functional.pad(network.in_context(states), (0, 0, 1, 0))
    slots = compile_slots((*model.slots, *model.contexts), model.label_slots, model.measures)
    rows = np.arange(len(arrays.types), dtype=np.int32)
    compared, share = 0, 0.0

    def check(batch: Configurations, which: Ints, scores: Any) -> None:
        nonlocal compared, share
        scorer(batch, which, scores)
        tokens, labels, measures = extract(batch, which, rows, slots)
        types, contexts = np.split(tokens, [len(model.slots)], axis=1)
        with torch.no_grad():
            expected = network(
                vectors,
                *(torch.from_numpy(a).long() for a in (arrays.types[types], labels, measures)),
                units[torch.from_numpy(contexts)].flatten(1),
            ).numpy()
        # each of at most 46 rows is off by half a step of its table, times the output weights
        slack = 0.5 / SCALE * 46 * np.abs(parser.weights["output.weight"]).sum(axis=1)
        assert (np.abs(scores - expected) <= slack).all()
        # which is little beside the encoder's share of the scores
        plain = network(
            vectors, *(torch.from_numpy(a).long() for a in (arrays.types[types], labels, measures))
        )
        share = max(share, float(np.abs(plain.detach().numpy() - expected).max() / slack.max()))
        compared += len(which)

    search(system, LABELS, arrays.tokens, arrays.lengths, len(arrays.types), check)
    assert compared > 50
    assert share > 5.0


@pytest.mark.parametrize("beam", [1, 4])
def test_a_sentence_is_parsed_the_same_in_any_company(beam: int) -> None:
    sentences = random_sentences(20, 9)
    random_parser(tiny_config(**BILSTM)).parse(sentences, beam=beam)
    for sentence in sentences:
        text = sentence.to_conllu()
        random_parser(tiny_config(**BILSTM)).parse([sentence], beam=beam)
        assert sentence.to_conllu() == text


def test_batches_hold_few_sentences_and_every_example_once() -> None:
    """Of ten sentences with 1 to 10 examples each, in 5 batches of 11."""
    sentences = np.repeat(np.arange(10, dtype=np.int32) * 20, np.arange(1, 11))
    shuffled = np.random.default_rng(0).permutation(sentences)
    none, free = np.zeros((55, 0), np.int32), np.zeros((55, 0), np.float32)
    examples = Examples(none, none, none, np.zeros(55, np.uint8), none, shuffled, free)
    first, other = (
        [batch.tolist() for batch in examples.batches_of_sentences(5, np.random.default_rng(seed))]
        for seed in (3, 4)
    )
    assert sorted(place for batch in first for place in batch) == list(range(55))
    assert {len(batch) for batch in first} == {11}
    # only a cut between two batches can split a sentence
    assert sum(len(set(shuffled[batch])) for batch in first) <= 10 + 4
    assert first[0] != other[0]


def trained_config(epochs: int, **rest: Any) -> ParserConfig:
    """Of a contextual parser so small that every unit is needed: no room for more than trees."""
    model = {f"model__{name}": value for name, value in BILSTM.items()}
    nothing_else = ("dropout_encoder", "dropout_contexts", "cloze_weight")
    learning = dict.fromkeys((f"learning__{name}" for name in nothing_else), 0.0)
    settings: ParserConfig = config(epochs, **model, **learning, **rest)
    return settings


@pytest.fixture(scope="module")
def far_treebank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Words that only differ by what stands at the other end of the sentence.

    In `x a a a a y` all words depend on the first one, in `x a a a a z` on the last one; a
    classifier that looks at s0, s1 and b0 alone cannot tell these from one another in time.
    """
    folder = tmp_path_factory.mktemp("far")
    generator = np.random.default_rng(0)
    for name, num in (("train", 120), ("dev", 30)):
        sentences = []
        for _ in range(num):
            middle, first = int(generator.integers(2, 6)), bool(generator.integers(2))
            words = [("x", "X"), *[("a", "A")] * middle, ("y" if first else "z", "Y")]
            root = 1 if first else len(words)
            heads = [0 if i == root else root for i in range(1, len(words) + 1)]
            sentences.append(make_sentence(words, heads))
        write_conllu(sentences, folder / f"{name}.conllu")
    return folder


@pytest.mark.parametrize("system", ["arc-standard", "swap"])
def test_what_is_far_away_is_learnt(system: str, far_treebank: Path, tmp_path: Path) -> None:
    narrow: dict[str, Any] = {"model__label_slots": [], "model__measures": []}
    narrow |= {"model__system": system, "model__slots": ["s0", "s1", "b0"]}
    scores = trained(far_treebank, tmp_path / "p", trained_config(10, **narrow)).scores
    assert scores["dev_las"] == 100.0
    plain = trained(far_treebank, tmp_path / "plain", config(10, **narrow)).scores
    assert plain["dev_las"] < 100.0
    parser = checkpoint.load(tmp_path / "p")
    sentences = list(read_conllu(far_treebank / "dev.conllu"))
    gold = [sentence.to_conllu() for sentence in sentences]
    parser.parse(sentences)
    assert [sentence.to_conllu() for sentence in sentences] == gold


def test_a_resumed_run_ends_with_the_same_weights(far_treebank: Path, tmp_path: Path) -> None:
    short = trained_config(3)
    trained(far_treebank, tmp_path / "whole", short)
    with pytest.raises(Interrupted):
        trained(far_treebank, tmp_path / "cut", short, should_stop=lambda step: step == 14)
    trained(far_treebank, tmp_path / "cut", short, resume=True)
    whole, cut = (load_file(tmp_path / name / "weights.safetensors") for name in ("whole", "cut"))
    assert {"encoder.layers.1.backwards.weight_hh_l0", "contexts.weight"} <= whole.keys()
    np.testing.assert_equal(cut, whole)


def test_the_average_of_a_few_steps_has_learnt() -> None:
    module = torch.nn.Linear(2, 1)
    average = AveragedWeights(module, 0.999)
    before = module.weight.detach().numpy().copy()
    for _ in range(3):
        average.update()
        module.weight.data += 1.0
    moved = average.arrays()["weight"] - before
    assert (moved > 1.0).all()  # after three steps of 1
    assert (moved < 3.0).all()


def test_large_numbers_are_bounded() -> None:
    """Gates far outside the range in which tanh is anything but 1."""
    encoder = encoder_of(1)
    with torch.no_grad():
        encoder.get_parameter("layers.0.forwards.weight_ih_l0").mul_(1e4)
    assert all(np.isfinite(states).all() for states in read(encoder, [9, 4], [0, 1]))


WANTED = config(**{f"model__{name}": value for name, value in BILSTM.items()})
STATE_WIDTH, NUM_LABELS = 6, 4
UNITS, NUM_WORDS = 3, 5


def by_loops(
    choice: HeadChoice, sentences: list[tuple[torch.Tensor, list[int], list[int]]]
) -> float:
    """The loss of sentences, each a table of states with ROOT's first, heads and labels."""
    of_heads, of_labels = [], []
    for states, heads, labels in sentences:
        for word in range(1, len(states)):
            asked = choice.dependents(states[word])
            scores = torch.stack([asked @ choice.heads(state) for state in states])
            of_heads.append(-scores.log_softmax(0)[heads[word]].item())
            of_labels.append(-choice.labels(states[word]).log_softmax(0)[labels[word]].item())
    return float(np.mean(of_heads) + np.mean(of_labels))


@settings(max_examples=25)
@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_the_loss_is_that_of_words_one_by_one(lengths: list[int], seed: int) -> None:
    torch.manual_seed(seed)
    choice = HeadChoice(STATE_WIDTH, NUM_LABELS).double()
    random = np.random.default_rng(seed)
    sentences = []
    for length in lengths:
        heads = [NONE, *random.integers(0, length + 1, length).tolist()]
        labels = [NONE, *random.integers(0, NUM_LABELS, length).tolist()]
        sentences.append((torch.randn(length + 1, STATE_WIDTH, dtype=torch.float64), heads, labels))
    states, heads, labels = zip(*sentences, strict=True)
    loss = choice(
        torch.cat(states),
        torch.tensor(lengths) + 1,
        torch.tensor([*chain(*heads)]),
        torch.tensor([*chain(*labels)]),
    )
    # scores are in float32
    np.testing.assert_allclose(loss.item(), by_loops(choice, sentences), rtol=1e-5)


def test_gold_tags_are_a_loss_too(tmp_path: Path) -> None:
    """Those of the same sentences in another file; by loops, from the files on."""
    path, gold_path = tmp_path / "train.conllu", tmp_path / "gold.conllu"
    trees = {"NVN": [2, 0, 2], "V": [0], "NV": [2, 0]}
    write_conllu((make_sentence([("a", "X")] * len(t), t) for t in trees.values()), path)
    gold = [make_sentence([("a", tag) for tag in tags], tree) for tags, tree in trees.items()]
    for sentence in gold[:2]:
        sentence.rows[0][5] = "Case=Nom|Number=Sing"
    write_conllu(gold[:2], gold_path)
    with pytest.raises(DataError, match="other sentences"):
        prepare_data([str(path)], str(path), WANTED, gold_tags=str(gold_path))
    write_conllu(gold, gold_path)
    assert prepare_data([str(path)], str(path), WANTED).gold_tags is None
    data = prepare_data([str(path)], str(path), WANTED, gold_tags=str(gold_path))
    assert data.gold_tags is not None
    # N with features, N, V with features, V
    assert data.gold_tags.tolist() == [-1, -1, 0, 3, 1, -1, 2, -1, 1, 3]
    task = ParserTask(data.config, data)
    choice = task.module.head_choice
    arrays = data.train.arrays
    states = torch.randn(len(arrays.types) - 1, 2 * BILSTM["encoder_size"])
    inside = np.arange(1, len(arrays.types))
    found = task._head_loss(states, inside, arrays.lengths).item()
    told = [(states[row - 1], data.gold_tags[row]) for row in inside if data.gold_tags[row] >= 0]
    of_tags = np.mean([-choice.tags(state).log_softmax(0)[tag].item() for state, tag in told])
    data.gold_tags[:] = NONE
    without = task._head_loss(states, inside, arrays.lengths).item()
    np.testing.assert_allclose(found - without, 0.5 * of_tags, rtol=1e-4)


@pytest.mark.parametrize("name", ["head_choice", "cloze"])
def test_it_teaches_the_encoder_and_is_no_part_of_the_model(name: str, tmp_path: Path) -> None:
    path = tmp_path / "train.conllu"
    trees = [[2, 0, 2], [0], [2, 3, 0, 3, 4]]
    write_conllu((make_sentence([("a", "X")] * len(heads), heads) for heads in trees), path)
    data = prepare_data([str(path)], str(path), WANTED)
    task = ParserTask(data.config, data)
    assert not any(weight.startswith(name) for weight in task.model().weights)
    task.start_epoch(1)
    task.loss(0)[0].backward()
    slopes = [weight.grad for weight in getattr(task.module, name).parameters()]
    assert all(slope is not None and slope.abs().sum() > 0 for slope in slopes)


def cloze_by_loops(cloze: Cloze, sentences: list[tuple[torch.Tensor, list[int]]]) -> float:
    """The loss of sentences, each a table of states and the numbers of its words."""
    losses = []
    for states, words in sentences:
        for place, word in enumerate(words):
            if word == NONE:
                continue
            context = torch.zeros(CLOZE_SIZE, dtype=states.dtype)
            if place > 0:
                context = context + cloze.before.weight @ states[place - 1][:UNITS]
            if place < len(words) - 1:
                context = context + cloze.behind.weight @ states[place + 1][UNITS:]
            losses.append(-cloze.words(torch.tanh(context)).log_softmax(0)[word].item())
    return float(np.mean(losses)) if losses else 0.0


@settings(max_examples=40)
@given(
    sentences=st.lists(
        st.lists(st.integers(NONE, NUM_WORDS - 1), min_size=1, max_size=6), min_size=1, max_size=4
    ),
    seed=st.integers(0, 99),
)
def test_the_loss_of_words_is_that_of_one_by_one(sentences: list[list[int]], seed: int) -> None:
    torch.manual_seed(seed)
    network = Cloze(UNITS, NUM_WORDS).double()
    states = [torch.randn(len(words), 2 * UNITS, dtype=torch.float64) for words in sentences]
    words = torch.tensor([word for words in sentences for word in words])
    before = words.clone()
    loss = network(torch.cat(states), words, torch.tensor([len(words) for words in sentences]))
    # scores are in float32
    wanted = cloze_by_loops(network, list(zip(states, sentences, strict=True)))
    np.testing.assert_allclose(loss.item(), wanted, rtol=1e-5)
    assert words.equal(before)


def test_the_states_have_not_seen_what_is_to_be_told() -> None:
    """The forward ones of the first layer nothing of later words, nor the others of earlier."""
    torch.manual_seed(0)
    encoder = ContextEncoder(4, UNITS, 2)
    lengths = torch.tensor([5, 2])
    inputs = torch.randn(7, 4, requires_grad=True)
    first, last = encoder.first_and_last(inputs, lengths)
    assert last.equal(encoder(inputs, lengths))
    for half, seen in (
        (first[:, :UNITS], [[*range(word + 1)] for word in range(5)] + [[5], [5, 6]]),
        (first[:, UNITS:], [[*range(word, 5)] for word in range(5)] + [[5, 6], [6]]),
    ):
        for state, words in zip(half, seen, strict=True):
            (slopes,) = torch.autograd.grad(state.sum(), inputs, retain_graph=True)
            assert slopes.abs().sum(1).nonzero().flatten().tolist() == words


def test_words_are_numbered_by_how_common_they_are() -> None:
    counts = {"the": 5, "The": 4, "dog": 6, "cat": 3, "rare": 1}
    types = [((form,), count) for form, count in counts.items()]
    symbols = SymbolTable.build(types, ("form", "suffix"), 2, (FORM,))
    forms = ["THE", "dog", "cat", "rare", "new"]
    root = [ROOT] + [PAD] * (symbols.width - 1)
    rows = np.asarray([*(symbols.row((form,)) for form in forms), root], np.int32)
    # in lower case: the 9, dog 6, cat 3, then those that are unknown, then ROOT
    found = word_numbers(symbols, rows)
    assert found is not None
    assert found.tolist() == [1, 2, 3, 0, 0, NONE]
    assert word_numbers(SymbolTable.build(types, ("suffix",), 2, (FORM,)), rows) is None
