"""The matrix as a language model: sums, states, files, training, mixtures."""

from __future__ import annotations

import math
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
from seqtool.core import checkpoint, runtime
from seqtool.core.errors import (
    ConfigError,
    DataError,
    ModelError,
    OutputError,
    TrainingError,
)
from seqtool.core.reading import MODEL
from seqtool.lm.array_file import map_arrays, write_arrays
from seqtool.lm.evaluation import evaluate_lm
from seqtool.lm.mixture.model import mix
from seqtool.lm.snm import train as training
from seqtool.lm.snm.adjustment import INITIAL, adjusted, arrays_of, learn, make_room, make_table
from seqtool.lm.snm.config import SnmConfig
from seqtool.lm.snm.counts import count_features
from seqtool.lm.snm.features import Template, as_arrays
from seqtool.lm.snm.matrix import Matrix, from_arrays, make_matrix
from seqtool.lm.snm.model import SnmModel
from seqtool.lm.snm.train import memory_needed, train_snm

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
)


def train(sentences: list[list[int]], config: SnmConfig, epochs: int = 1) -> SnmModel:
    templates = config.templates
    ids = np.array([word for sentence in sentences for word in (*sentence, EOS)], np.int32)
    counts = count_features(ids, as_arrays(templates), SIZE, prune=config.prune)
    table, room = make_table(20, len(templates)), make_room(len(templates))
    given_ = (arrays_of(counts), counts.events, 0, len(ids), SIZE, config.prune, RATE, table, room)
    for _ in range(epochs):
        learn(*given_)
    unseen = math.exp(table.unseen[0] + table.bias[0])
    return SnmModel(make_matrix(counts, adjusted(counts, table), unseen), templates, TOKENIZER)


@settings(deadline=None, max_examples=25)
@given(sentences_of, sentences_of, configs)
def test_probabilities_are_those_of_dictionaries_and_sum_to_one(
    sentences: list[list[int]], read: list[list[int]], config: SnmConfig
) -> None:
    model = train(sentences, config)
    wanted = Dictionary(sentences, SIZE, config.templates, config.prune)
    wanted.learn(RATE, INITIAL)
    ids = np.array([word for sentence in read for word in (*sentence, EOS)], np.int32)
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


def test_relative_frequencies_by_hand() -> None:
    """Without learning, each kind of features has the same say, and 1 / V has one too.

    "a b a c" once: after `<s> a b`, the unigram gives b 1/5 of 5 tokens, the bigram "b" always a.
    P(b) = (1/5 + 0 + 1/6) / 3 and P(a) = (2/5 + 1 + 1/6) / 3.
    """
    config = SnmConfig(order=2, remote=0)
    model = train([[2, 3, 2, 4]], config, epochs=0)
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


def test_states_are_chosen_and_never_changed() -> None:
    model = train([[2, 3, 2, 4], [4, 2]], SnmConfig(order=3))
    state = model.start(2)
    kept = state.copy()
    model.advance(state, np.array([3, EOS], np.int32))
    assert (state == kept).all()
    after = model.advance(state, np.array([3, EOS], np.int32))
    assert (after[1] == state[1]).all()
    assert (model.select(after, np.array([1, 0, 0])) == after[[1, 0, 0]]).all()


def test_features_of_no_words_alone() -> None:
    model = train([[2, 3, 2]], SnmConfig(order=1, remote=0), epochs=0)
    state = model.advance(model.start(2), np.array([2, EOS], np.int32))
    assert state.shape == (2, 0)
    assert (model.next_log_probs(state)[0] == model.next_log_probs(state)[1]).all()


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_a_model_that_is_trained_and_opened(text: Path, tmp_path: Path) -> None:
    stages: list[str] = []
    trained = train_snm(
        text,
        tmp_path / "snm",
        SMALL,
        threads=2,
        command="typed",
        on_progress=lambda stage, done, total: stages.append(stage),
    )
    assert list(dict.fromkeys(stages)) == ["reading", "counting", "learning", "adjusting", "saving"]
    assert (trained.num_tokens, trained.num_sentences, trained.vocabulary_size) == (240, 60, 5)
    assert len(trained.losses) == 2
    assert trained.losses[1] < trained.losses[0]
    header = checkpoint.read_header(trained.path)
    assert (header.kind, header.command, header.config["remote"]) == ("snm", "typed", 1)
    assert header.num_parameters == 1 + sum(kind["pairs"] for kind in trained.kinds)
    model = seqtool.load(trained.path, SnmModel)
    assert evaluate_lm(model, text).perplexity < 3
    assert model.score("a b") == pytest.approx(
        float(next(model.score_ids([np.array([2, 3, EOS], np.int32)])).log_probs.sum())
    )
    again = train_snm(text, tmp_path / "again", SMALL, threads=1)
    weights = [path / checkpoint.WEIGHTS for path in (trained.path, again.path)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    mixed = mix([model, again.model], [trained.path, again.path], None)
    assert evaluate_lm(mixed, text).perplexity == pytest.approx(
        evaluate_lm(model, text).perplexity, rel=1e-12
    )
    assert [word.text for word in model.surprisal("a b")] == ["a", "b"]
    assert len(model.next_words("a", 3)) == 3
    assert model.generate("a", seed=1) == model.generate("a", seed=1)


def test_a_folder_with_a_validation_part(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "train.txt").write_text(TEXT, encoding="utf-8")
    (folder / "valid.txt").write_text("b a c\n", encoding="utf-8")
    trained = train_snm(folder, tmp_path / "snm", SMALL)
    wanted = evaluate_lm(trained.model, folder / "valid.txt").perplexity
    assert trained.scores["valid_perplexity"] == wanted
    corpus = seqtool.prepare([folder], tmp_path / "corpus")
    assert train_snm(corpus.path, tmp_path / "b", SMALL).scores["valid_perplexity"] == wanted


def test_a_limited_time(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting takes three seconds of ten, so that as much is left for adjusting and the rest.

    Each piece that is learnt takes a second of a clock that stands still otherwise.
    """
    monkeypatch.setattr(training, "_TOKENS", 100)  # pieces of 100, 100 and 40
    clock = {"now": 0.0}
    monkeypatch.setattr(training.time, "perf_counter", lambda: clock["now"])
    last: dict[str, int | None] = {}

    def tick(stage: str, done: int, total: int | None) -> None:
        if stage == "counting" and done == total:
            clock["now"] += 3.0
        if stage == "learning" and done != last.get(stage, 0):
            clock["now"] += 1.0
        last[stage] = done

    timed = {**SMALL, "time_limit": "10s"}
    trained = train_snm(text, tmp_path / "snm", timed, on_progress=tick)
    assert trained.passes == pytest.approx(1 + 100 / 240)
    assert len(trained.losses) == 1
    assert trained.scores["train_seconds"] == 7
    with pytest.raises(ConfigError, match="which is no time"):
        SnmConfig(time_limit="soon")


def test_a_time_that_counting_takes_is_over_at_once(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the clock takes a second, of which counting has one or more."""
    seconds = iter(range(10**6))
    monkeypatch.setattr(training.time, "perf_counter", lambda: float(next(seconds)))
    trained = train_snm(text, tmp_path / "snm", {**SMALL, "time_limit": "1s"})
    assert (trained.passes, trained.losses) == (0, [])


def test_what_is_refused_before_the_work(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError, match="no such"):
        train_snm(tmp_path / "none.txt", tmp_path / "snm", SMALL)
    needed = memory_needed(240, 5, 12)
    monkeypatch.setattr(runtime, "memory_available", lambda limit: needed - 1)
    with pytest.raises(DataError, match="240 tokens with 5 kinds of features need about") as caught:
        train_snm(text, tmp_path / "snm", SMALL)
    assert caught.value.hint.startswith("choose a lower --order, fewer skip-grams")
    monkeypatch.setattr(runtime, "memory_available", lambda limit: needed)
    train_snm(text, tmp_path / "snm", SMALL)
    with pytest.raises(OutputError, match="exists already"):
        train_snm(text, tmp_path / "snm", SMALL)


def test_weights_that_grow_without_bounds_are_no_model(text: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"the loss is .* in epoch 1") as caught:
        train_snm(text, tmp_path / "snm", {**SMALL, "learning_rate": 1e4})
    assert caught.value.hint == "lower --lr, which is 10000"
    assert not (tmp_path / "snm").exists()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"gap": 0}, "remote is 2, but gap is 0"),
        ({"order": 1}, "features of order 1 have no words"),
        ({"remote": 50, "gap": 50, "order": 60}, "more than 1,000 kinds of features"),
        ({"remote": 10**9, "order": 60}, "more than 1,000 kinds of features"),
        ({"order": 0}, "order is 0, but must be at least 1"),
        ({"vocab": "words.txt", "min_count": 2}, "have nothing to choose"),
    ],
)
def test_settings_that_make_no_sense(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SnmConfig(**wrong)


def _set(name: str, place: Any, value: float) -> Callable[[dict[str, Any]], None]:
    return lambda arrays: arrays[name].__setitem__(place, value)


DAMAGE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a missing array": lambda arrays: arrays.pop("sums"),
    "another type": lambda arrays: arrays.update(sums=arrays["sums"].astype(np.float32)),
    "a short array": lambda arrays: arrays.update(values=arrays["values"][:-1]),
    "nothing": lambda arrays: arrays.update(bits=arrays["bits"][:0]),
    "a foreign word": _set("targets", 3, 5),
    "a word below all": _set("targets", 3, -1),
    "rows that go back": _set("begins", 1, 10**6),
    "an empty row": lambda arrays: arrays["begins"].__setitem__(1, arrays["begins"][2]),
    "buckets outside": _set("buckets", -1, 10**6),
    "buckets of another template": _set("buckets", 2, 0),
    "bits of a giant": _set("bits", 0, 40),
    "no bits": _set("bits", 0, 0),
    "no bits, with buckets that fit": lambda arrays: arrays.update(
        bits=np.append(np.int32(0), arrays["bits"][1:]), buckets=np.delete(arrays["buckets"], 1)
    ),
    "a negative value": _set("values", 0, -1.0),
    "an infinite value": _set("values", 0, np.inf),
    "no number": _set("values", 0, np.nan),
    "other sums": _set("sums", 1, 3e38),
    "a negative sum": _set("sums", 0, -3e38),
    "no weight of what was not seen": _set("unseen", 0, 0.0),
    "no number for what was not seen": _set("unseen", 0, np.nan),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_matrices_that_do_not_fit_are_refused(text: Path, tmp_path: Path, damage: str) -> None:
    trained = train_snm(text, tmp_path / "snm", SMALL)
    path = trained.path / checkpoint.WEIGHTS
    arrays = {name: array.copy() for name, array in map_arrays(path).items()}
    assert isinstance(from_arrays(arrays, 5, 5), Matrix)
    DAMAGE[damage](arrays)
    write_arrays(path, arrays)
    with pytest.raises(ModelError, match="damaged"):  # by its sum, before it is looked at
        seqtool.load(trained.path)
    with pytest.raises(ValueError, match=r"\w+"):
        from_arrays(map_arrays(path), 5, 5)


def test_another_setting_of_a_header_is_found(text: Path, tmp_path: Path) -> None:
    trained = train_snm(text, tmp_path / "snm", SMALL)
    header = checkpoint.read_header(trained.path)
    header.config["order"] = 4
    checkpoint.amend(trained.path, header, "")
    with pytest.raises(ModelError, match="bits are not those of its templates") as caught:
        seqtool.load(trained.path)
    assert (trained.path / MODEL).is_file()
    assert caught.value.hint == "copy the model again, or train it again"
