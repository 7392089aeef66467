"""A large text for the n-gram benchmarks, drawn from the texts at hand.

A walk through a text goes on to the next word, or, now and then, to what follows another
occurrence of the word just read. Words that are read in this way get a number appended once in a
hundred times. So frequent and rare n-grams, hapaxes and new words all grow with the text about as
they do in a real one: of its 5-grams, about 70% are different.

    python tests/benchmarks/ngram_text.py FILE MEGABYTES SEED [TEXT ...]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data"
BASES = (SHARED / "wikitext-2" / "train.txt", SHARED / "ptb" / "train.txt")
SAMPLE = ROOT / "data" / "en" / "train.txt"
NUM_WALKS, JUMP, RENAME = 2048, 0.35, 0.01


def base_words(bases: Sequence[Path] = ()) -> list[bytes]:
    """Return the words of texts, those at hand if none is given, a line end after each sentence."""
    paths = bases or [path for path in BASES if path.is_file()] or [SAMPLE]
    text = b"\n".join(path.read_bytes() for path in paths).replace(b" . ", b" .\n")
    lines = [line.split() for line in re.split(rb"\n+", text)]
    return [word for line in lines if line for word in (*line, b"\n")]


def walks(num_bytes: int, seed: int, bases: Sequence[Path] = ()) -> Iterator[bytes]:
    """Give the walks of a text of about this many bytes in all, a line a sentence."""
    words = base_words(bases)
    symbols, ids = np.unique(np.array(words, object), return_inverse=True)
    lengths = np.array([len(symbol) + 1 for symbol in symbols])
    occurrences = np.argsort(ids, kind="stable")
    counts = np.bincount(ids)
    begins = np.cumsum(counts) - counts
    line_end = int(np.searchsorted(symbols, b"\n"))
    num_steps = int(num_bytes / lengths[ids].mean() / NUM_WALKS)

    rng = np.random.default_rng(seed)
    places = rng.integers(0, len(ids), NUM_WALKS)
    walked = np.empty((NUM_WALKS, num_steps), np.int32)
    for step in range(num_steps):
        here = ids[places]
        jump = rng.random(NUM_WALKS) < JUMP
        drawn = (rng.random(NUM_WALKS) * counts[here]).astype(np.int64)
        places = (np.where(jump, occurrences[begins[here] + drawn], places) + 1) % len(ids)
        walked[:, step] = ids[places]
    walked[:, -1] = line_end

    names: list[bytes] = symbols.tolist()
    for walk in walked:
        parts = [names[word] for word in walk.tolist()]
        for place in np.flatnonzero((rng.random(len(walk)) < RENAME) & (walk != line_end)):
            parts[place] += b"-%d" % min(rng.zipf(1.3), 10_000)
        yield b" ".join(parts).replace(b"\n ", b"\n")


def write_text(path: Path, num_bytes: int, seed: int, bases: Sequence[Path] = ()) -> None:
    """Write a text of about this many bytes."""
    with path.open("wb") as file:
        file.writelines(walks(num_bytes, seed, bases))


if __name__ == "__main__":
    _, target, megabytes, number, *texts = sys.argv
    write_text(Path(target), int(float(megabytes) * 1e6), int(number), [*map(Path, texts)])
