"""Lists of n-grams with their counts, against a Counter."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from seqtool.core.errors import ConfigError
from seqtool.lm.ngram import data
from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.listing import list_ngrams
from seqtool.text.prepared import PrepareConfig, prepare

TEXT = "b a b\nb a\na b a b\n"
Listed = list[tuple[str, int]]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def listed(path: Path, order: int, **options: Any) -> Listed:
    with list_ngrams([path], NgramConfig(order=order), **options) as listing:
        found = [
            (" ".join(words), count)
            for ngrams, counts in listing.pieces()
            for words, count in zip(ngrams, counts.tolist(), strict=True)
        ]
        assert listing.num_chosen == len(found)
    return found


def test_bigrams_by_hand(text: Path) -> None:
    # b a | a b; b a; a b | b a | a b: three times each; sentences start with b b a, end in b a b
    assert listed(text, 2) == [("b a", 3), ("a b", 3)]  # b has the smaller id: it came first
    assert listed(text, 2, sort="text") == [("a b", 3), ("b a", 3)]
    assert listed(text, 2, top=1) == [("b a", 3)]
    assert listed(text, 2, boundaries=True, filters=["</s>"]) == [("b </s>", 2), ("a </s>", 1)]
    assert listed(text, 2, boundaries=True, filters=["<s>", "a"]) == [("<s> a", 1)]
    assert listed(text, 3, min_count=2) == [("b a b", 2)]
    assert listed(text, 3, min_count=3) == []
    assert listed(text, 1) == [("b", 5), ("a", 4)]
    assert listed(text, 1, boundaries=True)[2:] == [("</s>", 3), ("<s>", 3)]


def test_impossible_filters(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("word\n")
    with pytest.raises(ConfigError, match="'wrod' does not occur in the text") as caught:
        listed(tmp_path / "one", 1, filters=["wrod"])
    assert caught.value.hint == "did you mean word?"
    with pytest.raises(ConfigError, match="n-grams with <s> are left out"):
        listed(tmp_path / "one", 1, filters=["<s>"])


@pytest.mark.parametrize("unit", ["word", "char"])
def test_a_prepared_corpus(text: Path, tmp_path: Path, unit: str) -> None:
    source = tmp_path / "source.txt"
    source.write_text(TEXT if unit == "word" else TEXT.replace(" ", ""))
    prepare([source], tmp_path / "corpus", PrepareConfig(unit=unit), valid=source)
    for boundaries in (False, True):
        found = listed(tmp_path / "corpus", 3, boundaries=boundaries)
        assert found == listed(text, 3, boundaries=boundaries)


def expected(
    sentences: list[list[str]],
    order: int,
    *,
    top: int | None,
    min_count: int,
    sort: str,
    filters: list[str],
    boundaries: bool,
) -> Listed:
    """What is promised: by frequency, ties by the words' frequencies, and first occurrence."""
    frequency = Counter(word for words in sentences for word in words)
    id_of = {word: i for i, (word, _) in enumerate(frequency.most_common(), start=2)}  # stable
    id_of |= {"</s>": 1, "<s>": len(id_of) + 2}
    padded = [["<s>", *words, "</s>"] if boundaries else words for words in sentences]
    found = Counter(
        tuple(words[i : i + order]) for words in padded for i in range(len(words) - order + 1)
    )
    kept = [(w, n) for w, n in found.items() if n >= min_count and {*filters} <= {*w}]
    kept.sort(key=lambda pair: (-pair[1], [id_of[word] for word in pair[0]]))
    kept = kept[:top]
    if sort == "text":
        kept.sort(key=lambda pair: pair[0])
    return [(" ".join(words), count) for words, count in kept]


@contextmanager
def engine_of(name: str) -> Iterator[None]:
    """Let every text be too large for the memory, if the engine is DuckDB."""
    with pytest.MonkeyPatch.context() as patch:
        if name == "duckdb":
            patch.setattr(data, "memory_needed", lambda num_tokens, order: 1 << 60)
        yield


@pytest.mark.parametrize("engine", ["memory", "duckdb"])
@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from("abcdé"), min_size=1, max_size=6), min_size=1, max_size=8),
    st.integers(1, 3),
    st.fixed_dictionaries(
        {
            "top": st.none() | st.integers(1, 9),
            "min_count": st.integers(1, 3),
            "sort": st.sampled_from(["frequency", "text"]),
            "boundaries": st.booleans(),
        }
    ),
    st.integers(0, 1),
)
def test_against_a_counter(
    engine: str, sentences: list[list[str]], order: int, options: dict[str, Any], num_filters: int
) -> None:
    options |= {"filters": sentences[0][:num_filters]}
    assume(order <= max(map(len, sentences)) + 2)
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write("".join(" ".join(words) + "\n" for words in sentences))
        file.flush()
        with engine_of(engine):
            found = listed(Path(file.name), order, **options)
    assert found == expected(sentences, order, **options)
