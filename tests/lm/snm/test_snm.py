"""Counting, learning and predicting against the dictionary version; files, training, mixtures."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lm.snm.dictionary import EOS, Dictionary
from toy_models import word_tokenizer

import seqtool
from seqtool.core import checkpoint
from seqtool.core.errors import ConfigError, DataError, ModelError, OutputError, TrainingError
from seqtool.lm.array_file import map_arrays, write_arrays
from seqtool.lm.evaluation import evaluate_lm
from seqtool.lm.mixture.model import mix
from seqtool.lm.snm.features import SnmConfig, Template, as_arrays, count_features
from seqtool.lm.snm.learning import INITIAL, adjusted, learn_table, make_table, train_snm
from seqtool.lm.snm.model import SnmModel, make_matrix

TOKENIZER = word_tokenizer("abcd")
SIZE = 6
RATE = 0.1
SMALL = {"order": 3, "remote": 1, "gap": 1, "adjacent": 1, "table_bits": 12}
TEXT = "a b a c\nb a\nc a b\n" * 20

sentences_of = st.lists(st.lists(st.integers(2, SIZE - 1), max_size=7), min_size=1, max_size=8)
configs = st.builds(
    SnmConfig,
    order=st.integers(2, 5),
    remote=st.integers(0, 2),
    gap=st.integers(1, 3),
    adjacent=st.integers(0, 2),
    prune=st.integers(0, 2),
    table_bits=st.just(20),
    learning_rate=st.just(RATE),
)


def ids_of(sentences: list[list[int]]) -> np.ndarray:
    return np.array([word for sentence in sentences for word in (*sentence, EOS)], np.int32)


def train(
    sentences: list[list[int]], config: SnmConfig, threads: int = 1
) -> tuple[SnmModel, list[float]]:
    templates = config.templates
    counts = count_features(
        ids_of(sentences), as_arrays(templates), SIZE, prune=config.prune, threads=threads
    )
    table = make_table(config.table_bits, len(templates))
    losses, _ = learn_table(counts, table, config, SIZE, 0.0, lambda done, total: None)
    unseen = float(np.exp(table.unseen[0] + table.bias[0]))
    matrix = make_matrix(counts, adjusted(counts, table, threads=threads), unseen)
    return SnmModel(matrix, templates, TOKENIZER), losses


@settings(deadline=None, max_examples=40)
@given(sentences_of, sentences_of, configs, st.integers(0, 2))
def test_probabilities_are_those_of_dictionaries_and_sum_to_one(
    sentences: list[list[int]], read: list[list[int]], config: SnmConfig, epochs: int
) -> None:
    model, _ = train(sentences, SnmConfig(**{**vars(config), "epochs": epochs}))
    wanted = Dictionary(sentences, SIZE, config.templates, config.prune)
    for _ in range(epochs):
        wanted.learn(RATE, INITIAL)
    ids = ids_of(read)
    (scores,) = model.score_ids([ids])
    state = model.start(1)
    history: tuple[int, ...] = (SIZE,)
    for place, word in enumerate(ids.tolist()):
        log_probs = model.next_log_probs(state)[0]
        assert np.exp(log_probs).sum() == pytest.approx(1, abs=1e-12)
        np.testing.assert_allclose(np.exp(log_probs), wanted.probabilities(history), rtol=1e-5)
        assert scores.log_probs[place] == pytest.approx(log_probs[word], rel=1e-12)
        state = model.advance(state, np.array([word], np.int32))
        history = (SIZE,) if word == EOS else (*history, word)


@pytest.mark.parametrize("prune", [0, 1])
def test_gradients_are_those_of_leaving_each_token_out(prune: int) -> None:
    """Of the dictionary version, which is that of the model; by differences of its loss."""
    draw = random.Random(3)
    sentences = [[draw.randrange(2, SIZE) for _ in range(draw.randrange(5))] for _ in range(4)]
    model = Dictionary(
        sentences, SIZE, SnmConfig(order=3, remote=1, gap=1, adjacent=1).templates, prune
    )
    model.learn(RATE, INITIAL)  # now it has all its weights
    for name in model.weights:
        model.weights[name] = draw.gauss(0, 0.5)
    of_names, of_unseen = dict.fromkeys(model.weights, 0.0), 0.0
    for features, target in model.events:
        parts, unseen = model.gradients(features, target)
        of_unseen += unseen
        for named, gradient in parts:
            for name, share in named:
                of_names[name] = of_names.get(name, 0.0) + gradient * share
    step = 1e-4

    def slope(weights: Any, name: Any) -> float:
        before = weights[name]
        weights[name] = before + step
        above = model.loss()
        weights[name] = before - step
        below = model.loss()
        weights[name] = before
        return (above - below) / (2 * step)

    for name in draw.sample(sorted(of_names, key=str), 25):
        assert slope(model.weights, name) == pytest.approx(of_names[name], rel=1e-5, abs=1e-6)
    assert slope(model.unseen, 0) == pytest.approx(of_unseen, rel=1e-6)


@pytest.mark.parametrize("table_bits", [8, 20])  # every hash falls into a table of 256 places
def test_the_loss_falls_and_nothing_depends_on_threads(table_bits: int) -> None:
    draw = random.Random(5)
    sentences = [[draw.randrange(2, SIZE) for _ in range(draw.randrange(10))] for _ in range(200)]
    config = SnmConfig(order=4, gap=2, adjacent=1, epochs=4, table_bits=table_bits)
    model, losses = train(sentences, config)
    assert losses == sorted(losses, reverse=True)
    again, _ = train(sentences, config, threads=3)
    for name, array in model.matrix._asdict().items():
        assert (array == getattr(again.matrix, name)).all(), name


def test_relative_frequencies_by_hand() -> None:
    """Without learning, each kind of features has the same say, and 1 / V has one too.

    "a b a c" once: after `<s> a b`, the unigram gives b 1/5 of 5 tokens, the bigram "b" always a.
    P(b) = (1/5 + 0 + 1/6) / 3 and P(a) = (2/5 + 1 + 1/6) / 3.
    """
    model, _ = train([[2, 3, 2, 4]], SnmConfig(order=2, remote=0, epochs=0))
    state = model.advance(model.start(1), np.array([2], np.int32))
    state = model.advance(state, np.array([3], np.int32))
    probs = np.exp(model.next_log_probs(state)[0])
    assert probs[3] == pytest.approx((1 / 5 + 1 / 6) / 3, rel=1e-6)
    assert probs[2] == pytest.approx((2 / 5 + 1 + 1 / 6) / 3, rel=1e-6)
    # the word d and <unk> never came
    assert probs[5] == probs[0] == pytest.approx(1 / 6 / 3, rel=1e-6)


def test_templates() -> None:
    assert SnmConfig(order=3, remote=0).templates == [Template(0, 0, n) for n in range(3)]
    offsets = [template.offsets for template in SnmConfig(order=3, remote=2, gap=2).templates[3:]]
    # one remote word, with and without an adjacent one; two; the same further away
    assert offsets == [(2,), (1, 3), (2, 3), (3,), (1, 4), (3, 4)]


@pytest.mark.parametrize("order", [1, 3])
def test_states_are_chosen_and_never_changed(order: int) -> None:
    config = SnmConfig(order=order, remote=0, epochs=0)
    model, _ = train([[2, 3, 2, 4], [4, 2]], config)
    state = model.start(2)
    assert state.shape == (2, order - 1)
    kept = state.copy()
    after = model.advance(state, np.array([3, EOS], np.int32))
    assert (state == kept).all()
    assert (after[1] == state[1]).all()
    assert (after[np.array([1, 0, 0])] == after[[1, 0, 0]]).all()


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_a_model_that_is_trained_and_opened(text: Path, tmp_path: Path) -> None:
    trained = train_snm(text, tmp_path / "snm", SMALL, threads=2, command="typed")
    assert (trained.num_tokens, trained.num_sentences, trained.vocabulary_size) == (240, 60, 5)
    assert trained.losses[1] < trained.losses[0]
    header = checkpoint.read_header(trained.path)
    assert (header.kind, header.command, header.config["remote"]) == ("snm", "typed", 1)
    assert header.num_parameters == 1 + sum(kind["pairs"] for kind in trained.kinds)
    model = seqtool.load(trained.path, SnmModel)
    assert evaluate_lm(model, text).perplexity < 3
    again = train_snm(text, tmp_path / "again", SMALL, threads=1)
    weights = [path / checkpoint.WEIGHTS for path in (trained.path, again.path)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    mixed = mix([model, again.model], [trained.path, again.path], None)
    assert evaluate_lm(mixed, text).perplexity == pytest.approx(
        evaluate_lm(model, text).perplexity, rel=1e-12
    )
    assert [word.text for word in model.surprisal("a b")] == ["a", "b"]
    assert model.generate("a", seed=1) == model.generate("a", seed=1)
    timed = train_snm(text, tmp_path / "timed", {**SMALL, "time_limit": "1s"})
    assert timed.passes >= len(timed.losses)
    assert timed.seconds["learning"] < 2


def test_a_corpus_with_a_validation_part(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "train.txt").write_text(TEXT, encoding="utf-8")
    (folder / "valid.txt").write_text("b a c\n", encoding="utf-8")
    corpus = seqtool.prepare([folder], tmp_path / "corpus")
    for number, path in enumerate((folder, corpus.path)):
        trained = train_snm(path, tmp_path / f"snm-{number}", SMALL)
        wanted = evaluate_lm(trained.model, folder / "valid.txt").perplexity
        assert trained.scores["valid_perplexity"] == wanted


def test_what_is_refused(text: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"240 tokens .* need about"):
        train_snm(text, tmp_path / "snm", {**SMALL, "table_bits": 30}, memory=10**9)
    with pytest.raises(TrainingError, match="weights have grown too large") as caught:
        train_snm(text, tmp_path / "snm", {**SMALL, "learning_rate": 1e4})
    assert caught.value.hint == "lower --lr, which is 10000"
    assert not (tmp_path / "snm").exists()
    train_snm(text, tmp_path / "snm", SMALL)
    with pytest.raises(OutputError, match="exists already"):
        train_snm(text, tmp_path / "snm", SMALL)


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"gap": 0}, "gap is 0"),
        ({"order": 1}, "order 1"),
        ({"remote": 10**9, "order": 60}, "1,000 kinds"),
        ({"order": 0}, "order is 0"),
        ({"time_limit": "soon"}, "soon"),
    ],
)
def test_settings_that_make_no_sense(wrong: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        SnmConfig(**wrong)


DAMAGE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a missing array": lambda arrays: arrays.pop("sums"),
    "another type": lambda arrays: arrays.update(sums=arrays["sums"].astype(np.float32)),
    "a short array": lambda arrays: arrays.update(values=arrays["values"][:-1]),
    "templates of another model": lambda arrays: arrays.update(first=arrays["first"][1:]),
    "a foreign word": lambda arrays: arrays["targets"].__setitem__(3, 5),
    "rows that go back": lambda arrays: arrays["begins"].__setitem__(1, 10**6),
    "an empty row": lambda arrays: arrays["begins"].__setitem__(1, arrays["begins"][2]),
    "no number": lambda arrays: arrays["values"].__setitem__(0, np.nan),
    "other sums": lambda arrays: arrays["sums"].__setitem__(1, 3e38),
    "no weight of what was not seen": lambda arrays: arrays["unseen"].__setitem__(0, 0.0),
}


def test_matrices_that_do_not_fit_are_refused(text: Path, tmp_path: Path) -> None:
    trained = train_snm(text, tmp_path / "snm", SMALL)
    header, weights = checkpoint.read_header(trained.path), trained.path / checkpoint.WEIGHTS
    arrays = map_arrays(weights)
    for name, damage in DAMAGE.items():
        damaged = {key: array.copy() for key, array in arrays.items()}
        damage(damaged)
        weights.unlink()  # the arrays stay mapped
        write_arrays(weights, damaged)
        header.files[weights.name]["bytes"] = weights.stat().st_size
        checkpoint.amend(trained.path, header, "")
        with pytest.raises(ModelError, match="damaged weights"):
            pytest.fail(f"{name}: {seqtool.load(trained.path)}")
