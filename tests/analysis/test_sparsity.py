from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqtool.analysis.sparsity import analyse, rows_of_ngrams, unseen_shares
from seqtool.core import checkpoint
from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.train import train_ngram

BOS = "<s>"
ORDER = 4


def sentences_of(seed: int, lines: int) -> list[list[str]]:
    generator = np.random.default_rng(seed)
    return [list(generator.choice(list("aabbcdefg"), size=generator.integers(0, 8)))
            for _ in range(lines)]  # fmt: skip


def write(path: Path, sentences: list[list[str]]) -> Path:
    path.write_text("".join(" ".join(words) + "\n" for words in sentences), encoding="utf-8")
    return path


def ngrams_of(sentences: list[list[str]], n: int) -> list[tuple[str, ...]]:
    """Every n-gram of each sentence, one `<s>` before it and `</s>` after it."""
    found = []
    for words in sentences:
        line = [BOS, *words, "</s>"]
        found += [tuple(line[i : i + n]) for i in range(len(line) - n + 1)]
    # `<s>` alone is never predicted
    return [ngram for ngram in found if ngram != (BOS,)]


TRAIN, TEST = sentences_of(1, 80), sentences_of(2, 50)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sparsity")
    train_ngram(write(folder / "train.txt", TRAIN), folder / "model", NgramConfig(order=ORDER))
    write(folder / "test.txt", TEST)
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return checkpoint.load(folder / "model")


def test_as_dictionaries_have_it(model: Any, folder: Path) -> None:
    statistics = dict(checkpoint.read_header(folder / "model").statistics)
    report = analyse([("m", model)], folder / "test.txt", statistics={"m": statistics})
    orders = report.values["models"]["m"]["orders"]
    for n in range(1, ORDER + 1):
        seen, new = ngrams_of(TRAIN, n), ngrams_of(TEST, n)
        kinds = set(seen)
        contexts = {ngram[:-1] for ngram in seen}
        found = orders[n - 1]
        if n > 1:  # order 1 also has `<unk>` and `<s>`
            assert found["types"] == len(kinds)
            assert found["singletons"] == sum(seen.count(ngram) == 1 for ngram in kinds)
        assert found["ngrams_unseen"] == sum(ngram not in kinds for ngram in new) / len(new)
        unseen = sum(ngram[:-1] not in contexts for ngram in new) / len(new)
        assert found["contexts_unseen"] == unseen
    # the order of the longest n-gram that ends at a token
    longest = [
        max(n for n in range(1, ORDER + 1) if n <= i + 1
            and tuple(line[i + 1 - n : i + 1]) in {*ngrams_of(TRAIN, n)})
        for words in TEST
        for line in [[BOS, *words, "</s>"]]
        for i in range(1, len(line))
    ]  # fmt: skip
    for n in range(1, ORDER + 1):
        assert orders[n - 1]["probabilities_from"] == longest.count(n) / len(longest)


def test_rows_hold_the_very_ngrams(model: Any) -> None:
    table = model.table
    ids = model.tokenizer.encode_block(b"a b c\n\nz a\n")
    rows = rows_of_ngrams(table, ids)
    assert rows.shape == (ORDER, len(ids))
    assert rows[0].tolist() == ids.tolist()
    # at the first token of a sentence stand two tokens, `<s>` among them
    assert rows[2, [0, 4, 5]].tolist() == [-2, -2, -2]
    for n in range(2, ORDER + 1):
        level = table.levels[n - 1]
        for place in np.flatnonzero(rows[n - 1] >= 0).tolist():
            assert level.words[rows[n - 1, place]] == ids[place]


def test_the_text_itself_holds_nothing_new(model: Any) -> None:
    ids = model.tokenizer.encode_block("\n".join([" ".join(w) for w in TRAIN] + [""]).encode())
    assert [share for found in unseen_shares(model.table, ids) for share in found.values()] == [
        0.0
    ] * (2 * ORDER)
