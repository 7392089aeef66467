"""The parsers of `seqtool demo`: train on the sample's trees, parse its test part, draw a tree."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtool.cli.options import note

if TYPE_CHECKING:
    from seqtool.treebank.conllu import Sentence
    from seqtool.treebank.evaluation import ParserEvaluation

# the sample's grammar is soon learnt, and the Korean part is a third of the English one
EPOCHS = {"en": 2, "ko": 4}
METRICS = ("UAS", "LAS", "CLAS")


@dataclass(frozen=True)
class DemoParser:
    """What became of one parser of the demo."""

    path: Path
    language: str
    system: str
    num_parameters: int
    seconds: float
    evaluation: ParserEvaluation

    def cells(self) -> list[str]:
        """Return what the demo's table shows of it, but its language."""
        scores = (f"{self.evaluation[metric].f1:.2f}" for metric in METRICS)
        return [self.system, f"{self.num_parameters:,}", *scores, f"{self.seconds:.1f}"]

    def to_json(self) -> dict[str, Any]:
        """Return what `seqtool demo --json` prints of it."""
        return {
            "model": str(self.path),
            "language": self.language,
            "system": self.system,
            "parameters": self.num_parameters,
            "test": self.evaluation.to_json(),
            "seconds": self.seconds,
        }


def run_parser(
    language: str,
    name: str,
    path: Path,
    threads: int | None,
    step: Callable[[str, list[str]], None],
    short: Callable[[Path], str],
) -> DemoParser:
    """Train a parser on the sample's trees of a language, measure it, and draw a tree.

    Args:
        language: of the sample.
        name: of the language, for people.
        path: where the model goes.
        threads: CPU threads.
        step: says what comes, and the command that does it.
        short: a path as a user would type it.
    """
    from seqtool.core import checkpoint
    from seqtool.core.progress import Display
    from seqtool.parsing.parser.config import resolve
    from seqtool.parsing.parser.train import train_parser
    from seqtool.text.sample import sample_treebank
    from seqtool.treebank.conllu import read_conllu
    from seqtool.treebank.drawing.rendering import render
    from seqtool.treebank.evaluation import evaluate_parser

    train, dev, test = (sample_treebank(language, split) for split in ("train", "valid", "test"))
    epochs = EPOCHS[language]
    command = ["train-parser", short(train), "--dev", short(dev), "--epochs", str(epochs)]
    command += ["-o", str(path), "--force"]
    command += [] if threads is None else ["--threads", str(threads)]
    step(f"Train a parser on the {name} trees", command)
    with Display() as display:
        made = train_parser(
            train,
            path,
            resolve(None, None, {"training.epochs": epochs}, []),
            dev=dev,
            force=True,
            threads=threads,
            on_event=display.show,
            command=shlex.join(["seqtool", *command]),
        )
    step("Measure it on trees that it has not seen", ["eval-parser", short(test), "-m", str(path)])
    parser = checkpoint.load(path)
    parsed: list[Sentence] = list(parser.parse_stream(read_conllu(test, check="columns")))
    evaluation = evaluate_parser(test, parsed)
    note(f"UAS {evaluation['UAS'].f1:.2f}, LAS {evaluation['LAS'].f1:.2f}")
    step("Look at its trees", ["parse", short(test), "-m", str(path), "--format", "tree"])
    for piece in render(islice(parsed, 1), "tree"):
        note(piece.rstrip("\n"))
    return DemoParser(path, language, made.system, made.num_parameters, made.seconds, evaluation)
