"""Trees by arc scores: words per second of each algorithm, by the length of the sentences.

    python tests/benchmarks/bench_trees.py [--words 20000]

Scores are drawn at random, which gives words in cycles more often than a trained parser's scores
do. Each number is the best of three runs over the same sentences, in seconds of the processor, on
one thread. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable

import numpy as np
from bench_prepare import cpu_name

from seqtool.core.arrays import Floats, Ints
from seqtool.parsing.parser.graph.eisner import projective_trees
from seqtool.parsing.parser.graph.partition import marginals
from seqtool.parsing.parser.graph.ranking import ranked_trees
from seqtool.parsing.parser.graph.spanning import spanning_trees

LENGTHS = (10, 20, 40, 100)
REPEATS = 3


def ten_best(scores: Floats, lengths: Ints, *, projective: bool) -> None:
    """Find the ten best trees of each sentence, all of one length."""
    for table in scores.reshape(len(lengths), lengths[0], -1):
        ranked_trees(table, 10, projective)


# name -> what is timed, and of which share of the words
ALGORITHMS: dict[str, tuple[Callable[[Floats, Ints], object], float]] = {
    "spanning trees": (spanning_trees, 1.0),
    "projective trees": (projective_trees, 1.0),
    "marginals, all trees": (lambda scores, lengths: marginals(scores, lengths, False), 0.2),
    "marginals, projective": (lambda scores, lengths: marginals(scores, lengths, True), 0.2),
    "ten best, all trees": (lambda s, lengths: ten_best(s, lengths, projective=False), 0.05),
    "ten best, projective": (lambda s, lengths: ten_best(s, lengths, projective=True), 0.05),
}


def words_per_second(
    find: Callable[[Floats, Ints], object], length: int, num_words: float
) -> float:
    """Time one algorithm."""
    lengths = np.full(max(1, int(num_words / length)), length, np.int32)
    size = len(lengths) * length * (length + 1)
    scores = np.random.default_rng(length).normal(size=size).astype(np.float32)
    find(scores[: length * (length + 1)], lengths[:1])  # to compile it
    seconds = []
    for _ in range(REPEATS):
        start = time.process_time()
        find(scores, lengths)
        seconds.append(time.process_time() - start)
    return int(lengths.sum()) / min(seconds)


def main() -> None:
    """Print the table and the line of JSON."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--words", type=int, default=20_000, help="in the sentences of a run")
    num_words = options.parse_args().words
    print(f"{'words per second':<24}" + "".join(f"{f'{n} words':>14}" for n in LENGTHS))
    result: dict[str, dict[int, int]] = {}
    for name, (find, share) in ALGORITHMS.items():
        speeds = [words_per_second(find, length, num_words * share) for length in LENGTHS]
        print(f"{name:<24}" + "".join(f"{speed:>14,.0f}" for speed in speeds), flush=True)
        result[name] = dict(zip(LENGTHS, map(round, speeds), strict=True))
    machine = {"cpu": cpu_name(), "python": platform.python_version()}
    print(json.dumps({"benchmark": "trees", "words_per_second": result, **machine}))


if __name__ == "__main__":
    main()
