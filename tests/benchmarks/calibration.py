"""How far the probabilities of arcs are from the shares that are right, on text held out.

    python tests/benchmarks/calibration.py MODEL [MODEL ...] DEV.conllu

Of several models, it is the vote of their parsers. A parser is calibrated on the validation part
that it is trained with, so that its error there says little. Here it is calibrated anew on every
other sentence of that part, and measured on the rest; then the other way round; of a vote, first
each parser and then the vote. Printed is the expected calibration error, from 0 to 1, of both
halves, calibrated and not: as the parser itself thinks, or as the mean of calibrated parsers.
"""

from __future__ import annotations

import argparse
import copy
from types import SimpleNamespace

from seqtool.core import checkpoint
from seqtool.parsing.parser.data import GoldTrees
from seqtool.parsing.parser.parser import Parser
from seqtool.parsing.parser.vote import Vote, combine
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.evaluation import evaluate_parser
from seqtool.treebank.sentence import DEPREL, Sentence


def error_of(parser: Parser | Vote, gold: list[Sentence]) -> float:
    """Return the expected calibration error of the arcs that a parser finds."""
    parsed = copy.deepcopy(gold)
    parser.parse(parsed, scores=True)
    found = evaluate_parser(gold, parsed).calibration
    assert found is not None
    return found.error


def calibrate(parser: Parser | Vote, known: list[Sentence]) -> None:
    """Calibrate a parser, or parsers and their vote, on sentences with gold trees."""
    if isinstance(parser, Vote):
        for member in parser.parsers:
            calibrate(member, known)
        parser.calibrations = parser.fit_calibrations(known)
        return
    trees = [(sentence.heads(), sentence.column(DEPREL)) for sentence in known]
    parser.tune(SimpleNamespace(dev=GoldTrees(parser.encode(known), trees)))  # type: ignore[arg-type]


def main(models: list[str], dev: str) -> None:
    """Print the errors of both halves."""
    parser = combine([checkpoint.load(model, Parser) for model in models])
    sentences = list(read_conllu([dev]))
    for half in (0, 1):
        known, held_out = sentences[half::2], sentences[1 - half :: 2]
        calibrate(parser, known)
        calibrated = error_of(parser, held_out)
        parser.calibrations = {}
        print(f"half {half + 1}: {calibrated:.4f}, not calibrated {error_of(parser, held_out):.4f}")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="Calibration of the probabilities of arcs.")
    arguments.add_argument("models", nargs="+")
    arguments.add_argument("dev", help="CoNLL-U")
    options = arguments.parse_args()
    main(options.models, options.dev)
