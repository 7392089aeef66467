"""Exact probabilities of strings under a PCFG: inside algorithm, consistency, expected length."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from grammar import GrammarError, Pcfg

Cell = dict[int, float]
"""Inside probabilities of one span, by symbol number."""


class InsideParser:
    """Sums the probabilities of all derivations of a string (CKY on a left-binarised grammar).

    Rules with the same first children share their dotted symbols; unary chains, which must not
    form a cycle, are closed beforehand.

    Args:
        grammar: the grammar.
        fold: applied to the grammar's word forms, so that strings folded in the same way
            (`str.lower`) get the summed probability of all their spellings.
    """

    def __init__(self, grammar: Pcfg, fold: Callable[[str], str] = str) -> None:
        self._numbers: dict[tuple[str, ...], int] = {}
        unary: dict[int, list[tuple[int, float]]] = defaultdict(list)
        binary: dict[int, dict[int, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
        words: dict[str, Cell] = defaultdict(dict)
        for left, rules in grammar.rules.items():
            parent = self._number(left)
            for rule in rules:
                if rule.word is not None:
                    cell = words[fold(rule.word.form)]
                    cell[parent] = cell.get(parent, 0.0) + rule.probability
                    continue
                symbols = tuple(child.symbol for child in rule.children)
                if len(symbols) == 1:
                    unary[self._number(*symbols)].append((parent, rule.probability))
                    continue
                for end in range(2, len(symbols)):
                    dotted = self._number(*symbols[:end])
                    pair = binary[self._number(*symbols[: end - 1])]
                    pair[self._number(symbols[end - 1])][dotted] = 1.0
                parents = binary[self._number(*symbols[:-1])][self._number(symbols[-1])]
                parents[parent] = parents.get(parent, 0.0) + rule.probability
        self._closure = [_close(symbol, unary) for symbol in range(len(self._numbers))]
        self._binary = {
            left: {right: list(parents.items()) for right, parents in by_right.items()}
            for left, by_right in binary.items()
        }
        self._words = {form: self._closed(cell) for form, cell in words.items()}
        self._start = self._number(grammar.start)

    def _number(self, *symbols: str) -> int:
        return self._numbers.setdefault(symbols, len(self._numbers))

    def _closed(self, cell: Cell) -> Cell:
        result: Cell = {}
        for symbol, value in cell.items():
            for parent, weight in self._closure[symbol]:
                result[parent] = result.get(parent, 0.0) + value * weight
        return result

    def probability(self, tokens: Sequence[str]) -> float:
        """Probability of the whole string, its end included; zero if it is not in the language."""
        length = len(tokens)
        if not length:
            return 0.0
        chart: dict[tuple[int, int], Cell] = {}
        for position, token in enumerate(tokens):
            chart[position, position + 1] = self._words.get(token, {})
        for width in range(2, length + 1):
            for begin in range(length - width + 1):
                end = begin + width
                cell: Cell = {}
                for middle in range(begin + 1, end):
                    self._combine(chart[begin, middle], chart[middle, end], cell)
                chart[begin, end] = self._closed(cell)
        return chart[0, length].get(self._start, 0.0)

    def _combine(self, left: Cell, right: Cell, out: Cell) -> None:
        if not left or not right:
            return
        binary = self._binary
        for symbol, left_value in left.items():
            by_right = binary.get(symbol)
            if by_right is None:
                continue
            if len(by_right) < len(right):
                common = [s for s in by_right if s in right]
            else:
                common = [s for s in right if s in by_right]
            for other in common:
                value = left_value * right[other]
                for parent, weight in by_right[other]:
                    out[parent] = out.get(parent, 0.0) + value * weight


def _close(symbol: int, unary: dict[int, list[tuple[int, float]]]) -> list[tuple[int, float]]:
    """All symbols reached from one by unary rules, with the summed probability of the chains."""
    total: dict[int, float] = {}

    def climb(current: int, weight: float, path: frozenset[int]) -> None:
        if current in path:
            raise GrammarError("unary rules form a cycle")
        total[current] = total.get(current, 0.0) + weight
        for parent, probability in unary.get(current, ()):
            climb(parent, weight * probability, path | {current})

    climb(symbol, 1.0, frozenset())
    return list(total.items())


def _offspring(grammar: Pcfg) -> dict[str, dict[str, float]]:
    mean: dict[str, dict[str, float]] = {left: defaultdict(float) for left in grammar.rules}
    for left, rules in grammar.rules.items():
        for rule in rules:
            for child in rule.children:
                mean[left][child.symbol] += rule.probability
    return mean


def spectral_radius(grammar: Pcfg, steps: int = 400) -> float:
    """Growth of the mean number of symbols per rewriting step; below 1 the grammar is proper.

    The n-th root of the norm of the n-th power of the offspring matrix (Gelfand), which is never
    below the spectral radius.
    """
    mean = _offspring(grammar)
    vector = dict.fromkeys(mean, 1.0)
    scale = 1.0
    for _ in range(steps):
        vector = {
            left: sum(count * vector[child] for child, count in row.items())
            for left, row in mean.items()
        }
        norm = max(vector.values())
        if norm == 0.0:
            return 0.0
        scale *= norm ** (1.0 / steps)
        vector = {left: value / norm for left, value in vector.items()}
    return scale


def expected_length(grammar: Pcfg) -> float:
    """Mean number of words of a sentence, as the grammar gives it."""
    mean = _offspring(grammar)
    words = {
        left: sum(rule.probability for rule in rules if rule.word)
        for left, rules in grammar.rules.items()
    }
    length = dict(words)
    for _ in range(100_000):
        new = {
            left: words[left] + sum(count * length[child] for child, count in row.items())
            for left, row in mean.items()
        }
        change = max(abs(new[left] - length[left]) for left in new)
        length = new
        if change < 1e-12:
            break
    return length[grammar.start]
