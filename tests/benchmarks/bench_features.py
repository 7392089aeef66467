"""Where the time of a linear transition parser goes: features against all the rest.

    python tests/benchmarks/bench_features.py [--train FILE --test FILE] [--epochs 4] [--model DIR]

A parser of the preset `linear` parses a text that is in memory, greedily, on one core. Features are
three stages, each timed around one call for up to 256 configurations: what stands in the places
that they look at is found; each template is hashed; the weights are fetched and added. The rest is
legality, the choice, transitions and their bookkeeping; reading and writing files is left out.
Prints a table, and one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
from pathlib import Path

from bench_prepare import cpu_name

from seqtool.core import checkpoint
from seqtool.core.config import from_dict
from seqtool.parsing.parser.config import ParserConfig, preset
from seqtool.parsing.parser.linear.transitions.decoder import LinearDecoder
from seqtool.parsing.parser.train import train_parser
from seqtool.text.datasets import sample_treebank
from seqtool.treebank.conllu import read_conllu

REPEATS = 5


def main() -> None:
    """Print the table and the line of JSON."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--train", type=Path, default=sample_treebank("en", "train"))
    options.add_argument("--test", type=Path, default=sample_treebank("en", "valid"))
    options.add_argument("--epochs", type=int, default=4)
    options.add_argument("--model", type=Path, help="a linear parser, instead of training one")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        path = given.model or Path(name) / "parser"
        if given.model is None:
            settings = preset("linear")
            settings["training"]["epochs"] = given.epochs
            config = from_dict(ParserConfig, settings)
            train_parser(given.train, path, config, dev=given.test, threads=1)
        parser = checkpoint.load(path)
    if not isinstance(parser.decoder, LinearDecoder):
        raise SystemExit(f"{path} is no linear transition parser")
    arrays = parser.encode(read_conllu(given.test))
    num_words = int(arrays.lengths.sum())
    timings = [parser.decoder.timed(parser.types, arrays) for _ in range(REPEATS)]
    best = min(timings, key=lambda timing: timing.total)
    stages = {"found": best.found, "hashed": best.hashed, "summed": best.summed}
    stages["the rest"] = best.total - sum(stages.values())
    for stage, seconds in stages.items():
        micros = 1e6 * seconds / num_words
        print(f"{stage:<12}{micros:>8.2f} us/word{100 * seconds / best.total:>8.1f}%")
    result = {
        "words_per_second": num_words / best.total,
        "feature_share": best.share,
        "microseconds_per_word": {
            stage: 1e6 * seconds / num_words for stage, seconds in stages.items()
        },
    }
    machine = {"cpu": cpu_name(), "python": platform.python_version()}
    print(json.dumps({"benchmark": "features", "words": num_words, **result, **machine}))


if __name__ == "__main__":
    main()
