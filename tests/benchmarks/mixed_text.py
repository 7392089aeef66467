"""A large text of two kinds of sentence in turn: drawn from the sample's grammar, and real words.

Half of the bytes are sentences of the English grammar in `data/`, each an independent draw, so
that their vocabulary is small and their n-grams repeat themselves. The other half is real text cut
up and put together anew, as `ngram_text.py` does it, so that rare n-grams and new words grow with
the text. The lines of both are shuffled.

    python tests/benchmarks/mixed_text.py FILE MEGABYTES SEED [REAL ...]

The real texts are WikiText-2 and PTB where they are at hand, else the shipped sample.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt
from ngram_text import ROOT, walks

sys.path.insert(0, str(ROOT / "data"))
from make_sample import LANGUAGES
from notation import read_grammar

DEEPEST = 1000  # symbols that wait to be expanded


class Rules(NamedTuple):
    """A grammar as arrays. A symbol is a number from 0 on, a word w the number -1 - w.

    Attributes:
        rules: [S + 1], where the rules of each symbol begin.
        cumulative: [R], the sums of their probabilities.
        bodies: [R + 1], where the symbols of each rule begin.
        symbols: those, the first of each rule first.
    """

    rules: npt.NDArray[np.int64]
    cumulative: npt.NDArray[np.float64]
    bodies: npt.NDArray[np.int64]
    symbols: npt.NDArray[np.int64]


@cache
def grammar() -> tuple[Rules, int, list[bytes]]:
    """Return the English grammar of the sample: its rules, the start symbol, its words."""
    language = LANGUAGES["en"]
    pcfg = read_grammar(ROOT / "data" / "grammar-en.txt", language.paradigms)
    numbers = {left: number for number, left in enumerate(pcfg.rules)}
    words: dict[str, int] = {}
    rules, bodies, symbols, cumulative = [0], [0], [], []
    for left, of_symbol in pcfg.rules.items():
        cumulative += pcfg.cumulative[left]
        rules.append(len(cumulative))
        for rule in of_symbol:
            if rule.word is not None:
                symbols.append(-1 - words.setdefault(rule.word.form.lower(), len(words)))
            symbols += [numbers[child.symbol] for child in rule.children]
            bodies.append(len(symbols))
    arrays = (np.array(rules), np.array(cumulative), np.array(bodies), np.array(symbols))
    return Rules(*arrays), numbers[pcfg.start], [word.encode() for word in words]


@numba.njit
def _draw(rules, start, seed, tokens, line_end):  # type: ignore[no-untyped-def]
    """Fill `tokens` with words of sentences, `line_end` after each; return how many are whole."""
    np.random.seed(seed)
    waiting = np.empty(DEEPEST, np.int64)
    done = num = 0
    while True:
        waiting[0], height = start, 1
        while height:
            height -= 1
            symbol = waiting[height]
            if num == len(tokens):
                return done
            if symbol < 0:
                tokens[num] = -1 - symbol
                num += 1
                continue
            first, last = rules.rules[symbol], rules.rules[symbol + 1]
            at = np.random.random() * rules.cumulative[last - 1]
            rule = first + np.searchsorted(rules.cumulative[first:last], at, side="right")
            rule = min(rule, last - 1)
            for place in range(rules.bodies[rule + 1] - 1, rules.bodies[rule] - 1, -1):
                waiting[height] = rules.symbols[place]
                height += 1
        if num == len(tokens):
            return done
        tokens[num] = line_end
        num += 1
        done = num


def grammar_lines(num_bytes: int, seed: int) -> list[bytes]:
    """Return sentences of the grammar of about this many bytes."""
    rules, start, words = grammar()
    names = [*words, b"\n"]
    tokens = np.empty(num_bytes // 4, np.int32)  # its words have more than three letters
    whole = tokens[: _draw(rules, start, seed, tokens, len(words))]
    lengths = np.array([len(name) + 1 for name in words] + [0])
    kept = int(np.searchsorted(np.cumsum(lengths[whole]), num_bytes))
    text = b" ".join([names[token] for token in whole[:kept].tolist()])
    lines = text.replace(b" \n ", b"\n").split(b"\n")
    return lines[:-1]  # the last one may be cut off


def write_mixed(path: Path, num_bytes: int, seed: int, real: Sequence[Path] = ()) -> None:
    """Write a text of about this many bytes, half of it from real texts."""
    lines = grammar_lines(num_bytes // 2, seed)
    for walk in walks(num_bytes - num_bytes // 2, seed, real):
        lines += walk.splitlines()
    with path.open("wb") as file:
        for number in np.random.default_rng(seed).permutation(len(lines)).tolist():
            file.write(lines[number] + b"\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A large text, half of it from a grammar.")
    parser.add_argument("file", type=Path)
    parser.add_argument("megabytes", type=float)
    parser.add_argument("seed", type=int)
    parser.add_argument("real", type=Path, nargs="*")
    options = parser.parse_args()
    write_mixed(options.file, int(options.megabytes * 1e6), options.seed, options.real)
