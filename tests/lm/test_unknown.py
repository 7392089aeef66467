"""Unknown words, and the likely reason for many of them."""

from __future__ import annotations

import io
import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtool.core.vocabulary import EOS, UNK, Vocabulary
from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.train import train_ngram
from seqtool.lm.unknown import MOST_COLLECTED, UnknownWords, reason_for, warning_of
from seqtool.text.tokenizers import CharTokenizer, WordTokenizer

Run = Callable[..., Any]
WORDS = ["the", "dog", "sleeps", ".", ",", "can't"]
TOKENIZER = WordTokenizer(Vocabulary([UNK, EOS, *WORDS]))


@given(lines=st.lists(st.lists(st.sampled_from([*WORDS, "x", "The", UNK]), max_size=5), max_size=6))
def test_all_of_a_short_text_are_collected(lines: list[list[str]]) -> None:
    block = "".join(" ".join(line) + "\n" for line in lines).encode()
    found = UnknownWords(TOKENIZER)
    found.add(TOKENIZER.encode_block(block), block)
    assert found.counts == Counter(w for line in lines for w in line if w not in WORDS)


def test_no_more_than_a_sample_is_collected() -> None:
    found = UnknownWords(TOKENIZER)
    for _ in range(4):
        found.add_written(["x"] * 2_000)
    assert found.counts == {"x": MOST_COLLECTED}
    found = UnknownWords(TOKENIZER)
    found.add(TOKENIZER.encode_block(b"the x\n"), None)  # of a prepared corpus there is no text
    assert not found.counts


@pytest.mark.parametrize("word", ["caf\u00e9", "\ud55c\uad6d\uc5b4", "\u0439"])
def test_letters_in_parts_are_a_reason(word: str) -> None:
    text = unicodedata.normalize("NFD", word)
    tokenizer = WordTokenizer(Vocabulary([UNK, EOS, word]))
    told = "75% of them are known with whole letters in place of parts: bring the text into "
    assert reason_for({text: 3, "x": 1}, tokenizer).startswith(told)
    letters = CharTokenizer(Vocabulary([UNK, EOS, *sorted(set(word) | {"e", "\u0438"})]))
    block = f"{text * 20}\n".encode()
    found = UnknownWords(letters)
    found.add(letters.encode_block(block), block)
    assert found.counts
    warning = warning_of(90, 100, found.counts, letters)
    assert warning.startswith("90.0% of the characters are unknown to the model; ")
    assert "of them are parts of letters: bring the text into Unicode NFC" in warning
    # of other characters that are unknown no reason is known
    assert warning_of(90, 100, {"x": 90}, letters) == ""


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"The": 5, "DOG": 3, "x": 2}, "80% of them are known in lower case: lower-case the text"),
        ({"dog.": 5, "(sleeps": 3, "x": 2}, "80% of them are known without the punctuation"),
        ({"Dog.": 6, "The": 2, "x": 2}, "80% of them are known in lower case without punctuation"),
        ({"собака": 9, "goad": 1}, "90% of them have letters that no word of the model has"),
        ({"goad": 9, "dense": 1}, "the model knows only 8 words"),
        ({UNK: 9, "x": 1}, ""),
        ({}, "the vocabulary of 8 words is small for this text"),
    ],
)
def test_the_reason(words: dict[str, int], reason: str) -> None:
    found = reason_for(words, TOKENIZER)
    assert found.startswith(reason)
    assert bool(found) is bool(reason)


def test_eval_ppl_warns_from_five_percent_on(
    seqtool: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.txt").write_text("the dog sleeps .\n" * 30)
    train_ngram("train.txt", "m", NgramConfig(order=2), threads=1)
    for text, expected in (
        ("the dog sleeps .\n" * 19 + "The dog sleeps .\n", ""),  # 1 of 80
        ("the dog sleeps .\n" * 15 + "The dog sleeps .\n" * 5, "6.2% of the words are unknown"),
        ("The dog sleeps .\n", ""),  # too few to say anything
        ("the dog <unk> .\n" * 9, ""),  # the text says so itself
    ):
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))
        result = seqtool("eval-ppl", "-", "-m", "m")
        assert result.code == 0, result.stderr
        assert result.stderr.startswith(f"warning: {expected}" if expected else "")
        assert bool(result.stderr) is bool(expected)
