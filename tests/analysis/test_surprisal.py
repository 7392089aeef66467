from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from toy_models import char_tokenizer, random_bigrams, word_tokenizer

from seqtool.analysis.passage import SENTENCE_END
from seqtool.analysis.surprisal import analyse, numbered
from seqtool.core.errors import ConfigError
from seqtool.core.vocabulary import EOS, UNK, Vocabulary
from seqtool.lm.evaluation import evaluate_lm
from seqtool.text.tokenizers import WordTokenizer

TEXT = "a b a\nc\n\nb a x\n"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def model(seed: int, words: str = "abc") -> Any:
    return random_bigrams(word_tokenizer(words), seed)


def bits_of(one: Any, text: Path) -> list[tuple[str, float]]:
    """Token by token, from the table of the model."""
    found = []
    ids = {word: i for i, word in enumerate(one.tokenizer.vocabulary.symbols)}
    previous = len(ids)
    for line in text.read_text().splitlines():
        for token in [*line.split(), EOS]:
            number = ids.get(token, 0)
            found.append((token, -math.log2(one.table[previous, number])))
            previous = number
    return found


def test_means_are_those_of_the_perplexity(text: Path) -> None:
    models = [("one", model(1)), ("two", model(2))]
    report = analyse(models, text)
    for name, one in models:
        mean = report.values["mean_bits"][name]
        assert mean == pytest.approx(evaluate_lm(one, text).bits_per_token, rel=1e-12)
        for bands in report.values["bands"].values():
            assert sum(band["tokens"] for band in bands.values()) == 11
            total = sum(band["tokens"] * band[name] for band in bands.values())
            assert total / 11 == pytest.approx(mean, rel=1e-12)


def test_distances_to_the_last_time(text: Path) -> None:
    one = model(1)
    bits = bits_of(one, text)
    report = analyse([("one", one)], text)
    bands = report.values["bands"]["tokens since the word was last there"]
    first = [b for i, (token, b) in enumerate(bits) if token not in dict(bits[:i])]
    again = [b for i, (token, b) in enumerate(bits) if token in dict(bits[:i])]
    assert {name: band["tokens"] for name, band in bands.items()} == {"not before": 5, "1 to 10": 6}
    assert bands["not before"]["one"] == pytest.approx(sum(first) / 5)
    assert bands["1 to 10"]["one"] == pytest.approx(sum(again) / 6)


def test_counts_of_the_training_text(text: Path) -> None:
    one = model(1)
    one.tokenizer = WordTokenizer(Vocabulary([UNK, EOS, "a", "b", "c"], [9, 50, 2000, 100, 9]))
    bands = analyse([("one", one)], text).values["bands"]["count in the training text"]
    # `<unk>`, which stands for x, was counted itself, and x never
    assert {name: band["tokens"] for name, band in bands.items()} == {
        "0": 1, "1 to 9": 1, "10 to 99": 4, "100 to 999": 2, "1,000 and more": 3,
    }  # fmt: skip
    # a model without counts takes those of another, or of the text itself
    report = analyse([("two", model(2)), ("one", one)], text)
    assert report.remarks[0] == "The counts in the training text are those of one."
    counted = report.values["bands"]
    assert counted["count in the training text"]["0"]["tokens"] == 1
    alone = analyse([("two", model(2))], text).values["bands"]["count in this text"]
    assert {name: band["tokens"] for name, band in alone.items()} == {"1 to 9": 11}


def test_where_one_is_better(text: Path) -> None:
    one, two = model(1), model(2)
    report = analyse([("one", one), ("two", two)], text)
    gains: dict[str, float] = {}
    for (token, first), (_, second) in zip(bits_of(one, text), bits_of(two, text), strict=True):
        gains[token] = gains.get(token, 0) + first - second
    for title, sign in (
        ("Words that two predicts better than one", 1),
        ("Words that one predicts better than two", -1),
    ):
        (table,) = [table for table in report.tables if table.title == title]
        expected = sorted(((token, sign * gain) for token, gain in gains.items()
                           if sign * gain > 0), key=lambda pair: -pair[1])  # fmt: skip
        assert [row[0] for row in table.rows] == [token for token, _ in expected]
        assert [row[-1] for row in table.rows] == pytest.approx([gain for _, gain in expected])


class _Tagger:
    """Every word's class is its first letter, in capitals."""

    def tag_stream(self, items: Any) -> Any:
        for sentence in items:
            for row in sentence.rows:
                row[3] = row[1][0].upper()
            yield sentence


def test_word_classes(text: Path) -> None:
    report = analyse([("one", model(1))], text, tagger=_Tagger())
    bands = report.values["bands"]["word class"]
    assert {name: band["tokens"] for name, band in bands.items()} == {
        "A": 3, "B": 2, "C": 1, "X": 1, SENTENCE_END: 4,
    }  # fmt: skip


def test_profiles(text: Path) -> None:
    one = model(1)
    report = analyse([("one", one)], text, sentences=["a a"])
    (found,) = report.values["sentences"]
    assert found["tokens"] == ["a", "a", EOS]
    assert report.charts[0].series[0].x == ["a", "a (2)", EOS]
    # without a sentence, the first ones of the text as they stand there
    drawn = analyse([("one", one)], text).values["sentences"]
    assert [one["tokens"] for one in drawn] == [["a", "b", "a", EOS], ["b", "a", "x", EOS]]
    bits = [value for _, value in bits_of(one, text)]
    assert drawn[1]["bits"]["one"] == pytest.approx(bits[-4:])
    assert numbered(["a", "b", "a"]) == ["a", "b", "a (2)"]


def test_sentences_alone(text: Path) -> None:
    models = [("one", model(1)), ("two", model(2))]
    alone = analyse(models, None, sentences=["a b", "c"])
    beside = analyse(models, text, sentences=["a b", "c"])
    assert alone.charts == beside.charts[:2]
    assert dict(alone.values) == {"sentences": beside.values["sentences"]}
    letters = ("letters", random_bigrams(char_tokenizer("abcx "), 1))
    for asked, message in (
        ((models, None), "no text and no sentence"),
        (([*models, letters], text), "different tokens"),
    ):
        with pytest.raises(ConfigError, match=message):
            analyse(*asked)
