"""Every probability and backoff weight that KenLM's estimator gives, from the same text."""

from __future__ import annotations

import gzip
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from lm.ngram.references import entries

from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.counts import count_ngrams
from seqtool.lm.ngram.smoothing import estimate

# the model, its text, and the orders that need fallback discounts (of the README in that folder)
MODELS = [
    ("ptb-valid.2", "../ptb/valid.txt", {}, []),
    ("ptb-valid.3", "../ptb/valid.txt", {}, []),
    ("ptb-valid.5", "../ptb/valid.txt", {}, []),
    ("unkword.3", "unkword-train.txt", {}, []),
    ("ewt-dev.3", "ewt-dev.txt", {}, []),
    ("ewt-dev.5.fallback", "ewt-dev.txt", {}, [5]),
    ("ewt-dev.5.pruned", "ewt-dev.txt", {"prune": (0, 0, 1)}, [5]),
]
NAMES = [name for name, *_ in MODELS]
SKIPPED = {"", "<unk>", "<s>", "</s>"}  # the models were made with --skip_symbols


def read_text(path: Path, skipped: set[str]) -> tuple[npt.NDArray[np.int32], list[str]]:
    """The ids of a text, `</s>` after each line, and the words they stand for."""
    ids = {"<unk>": 0, "</s>": 1}
    stream = []
    for line in path.read_text(encoding="utf-8").removesuffix("\n").split("\n"):
        words = [word for word in re.split("[ \t\r]+", line) if word not in skipped]
        stream += [ids.setdefault(word, len(ids)) for word in (*words, "</s>")]
    return np.array(stream, np.int32), list(ids)


def read_arpa(path: Path) -> dict[tuple[str, ...], tuple[float, float]]:
    """The rows of KenLM's file: words -> (log10 probability, log10 backoff)."""
    rows: dict[tuple[str, ...], tuple[float, float]] = {}
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            fields = line.rstrip("\n").split("\t")
            if len(fields) > 1:
                backoff = float(fields[2]) if len(fields) == 3 else 0.0
                rows[tuple(fields[1].split(" "))] = float(fields[0]), backoff
    return rows


@pytest.mark.parametrize(("name", "text", "settings", "fallback"), MODELS, ids=NAMES)
def test_every_ngram_has_the_numbers_of_kenlm(
    shared_data: Path, name: str, text: str, settings: dict[str, Any], fallback: list[int]
) -> None:
    folder = shared_data / "kenlm"
    stream, words = read_text(folder / text, SKIPPED)
    expected = read_arpa(folder / f"{name}.arpa.gz")
    config = NgramConfig(order=max(map(len, expected)), discounts="kenlm", **settings)
    counts = count_ngrams(stream, config.order, len(words), kenlm_quirk=True)

    result = estimate(counts, config)

    words.append("<s>")
    found = {tuple(words[i] for i in ngram): row for ngram, row in entries(result.table).items()}
    assert found.keys() == expected.keys()
    worst: dict[str, tuple[float, tuple[str, ...]]] = {"probability": (0, ()), "backoff": (0, ())}
    for ngram, values in expected.items():
        for kind, value, row in zip(worst, values, found[ngram], strict=True):
            if ngram == ("<s>",) and kind == "probability":
                continue  # never predicted; KenLM writes 0
            difference = abs(value - row / math.log(10))
            worst[kind] = max(worst[kind], (difference, ngram))
    assert max(worst.values())[0] <= 2e-6, worst
    assert [level["order"] for level in result.statistics if level["fallback"]] == fallback
    assert [warning.split(":")[0] for warning in result.warnings] == [
        f"order {n}" for n in fallback
    ]


def test_slip_of_kenlm_on_the_penn_treebank(shared_data: Path) -> None:
    stream, words = read_text(shared_data / "ptb" / "train.txt", {""})
    counts = count_ngrams(stream, 2, len(words), kenlm_quirk=True)
    largest = {
        name: estimate(counts, NgramConfig(order=2, discounts=name)).statistics[0]["discounts"][2]
        for name in ("paper", "kenlm")
    }
    # what KenLM itself prints for D3+ of single words, and what the paper's formula gives
    assert largest == {
        "kenlm": pytest.approx(1.264915, abs=5e-7),
        "paper": pytest.approx(1.262271, abs=1e-6),
    }
