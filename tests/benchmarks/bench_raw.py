"""From raw text to trees: accuracy and words per second beside UDPipe.

    python tests/benchmarks/bench_raw.py [--train FILE --test FILE] [--epochs N] [--preset fast]

All that raw text needs is trained on one treebank: by the preset that is named, and by
`ufal.udpipe` with few iterations and, but for the parser, its own settings. Then both read the raw
text of the test treebank on one thread, in turn: from opening the file, with the model in memory,
until the trees are written. Scores are F1 as at CoNLL 2018. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench_parser import load_udpipe, seconds_of, train_udpipe, udpipe_program
from threadpoolctl import threadpool_limits

from seqtool.core import checkpoint
from seqtool.core.config import from_dict
from seqtool.parsing.pipeline.config import PARTS, PipelineConfig, preset
from seqtool.parsing.pipeline.model import Pipeline
from seqtool.parsing.pipeline.train import train_pipeline
from seqtool.parsing.segmenter.data import raw_text
from seqtool.parsing.segmenter.documents import segment_files
from seqtool.text.datasets import sample_treebank
from seqtool.training.hardware import describe_machine
from seqtool.treebank.conllu import read_conllu, write_conllu
from seqtool.treebank.evaluation import evaluate_parser

LEAST_WORDS = 50_000  # the text is repeated until it has them
REPEATS = 3
METRICS = ("Words", "Sentences", "UPOS", "Lemmas", "UAS", "LAS")


def train_ours(train: Path, test: Path, folder: Path, name: str, epochs: int | None) -> Pipeline:
    """All that raw text needs, by a preset."""
    settings = preset(name)
    for part in PARTS:
        if epochs is not None:
            settings[part]["training"]["epochs"] = epochs
    config = from_dict(PipelineConfig, settings)
    train_pipeline(train, folder / "pipeline", config, dev=test, threads=1)
    model: Pipeline = checkpoint.load(folder / "pipeline")
    return model


def our_reader(pipeline: Pipeline) -> Callable[[Path, Path], None]:
    def read(source: Path, target: Path) -> None:
        write_conllu(pipeline.parse_stream(segment_files([source], pipeline)), target)

    return read


def udpipe_reader(model: Any) -> Callable[[Path, Path], None]:
    from ufal.udpipe import Pipeline

    return udpipe_program(Pipeline(model, "tokenize", Pipeline.DEFAULT, Pipeline.DEFAULT, "conllu"))


def measure(
    racers: dict[str, Callable[[Path, Path], None]], gold: Path, folder: Path
) -> dict[str, Any]:
    """Score the readers, and race them; words per second of processor time."""
    sentences = list(read_conllu(gold))
    text = raw_text(sentences)
    (folder / "text.txt").write_text(text, encoding="utf-8")
    num_words = sum(map(len, sentences))
    times = -(-LEAST_WORDS // num_words)
    (folder / "long.txt").write_text("\n".join([text] * times), encoding="utf-8")
    result: dict[str, Any] = {}
    seconds: dict[str, list[float]] = {racer: [] for racer in racers}
    for racer, read in racers.items():
        read(folder / "text.txt", folder / "read.conllu")
        scores = evaluate_parser(sentences, folder / "read.conllu").scores
        result[racer] = {metric: round(scores[metric].f1, 2) for metric in METRICS}
    for _ in range(REPEATS):
        for racer, read in racers.items():
            action = partial(read, folder / "long.txt", folder / "read.conllu")
            seconds[racer].append(seconds_of(action)[1])
    print(f"{'':<10}{'words/s':>10}" + "".join(f"{metric:>11}" for metric in METRICS))
    for racer, values in seconds.items():
        speed = times * num_words / statistics.median(values)
        shown = "".join(f"{result[racer][metric]:>11.2f}" for metric in METRICS)
        print(f"{racer:<10}{speed:>10,.0f}{shown}")
        result[racer]["words_per_second"] = round(speed)
    return result


def main() -> None:
    """Print the table and the line of JSON."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--train", type=Path, default=sample_treebank("ko", "train"))
    options.add_argument("--test", type=Path, default=sample_treebank("ko", "valid"))
    options.add_argument("--preset", default="accurate")
    options.add_argument("--epochs", type=int, help="of our parts, instead of the preset's")
    options.add_argument("--iterations", type=int, default=10, help="of each part of UDPipe")
    options.add_argument("--model", type=Path, help="a model of ours, instead of training one")
    options.add_argument("--udpipe", type=Path, help="a UDPipe model, instead of training one")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        racers: dict[str, Callable[[Path, Path], None]] = {}
        if given.model is None:
            ours = train_ours(given.train, given.test, folder, given.preset, given.epochs)
        else:
            ours = checkpoint.load(given.model)
        threadpool_limits(1)
        racers["seqtool"] = our_reader(ours)
        if given.udpipe is None:
            udpipe = train_udpipe(
                given.train,
                given.iterations,
                folder,
                tokenizer=f"epochs={given.iterations}",
                tagger=f"iterations={given.iterations}",
            )
        else:
            udpipe = load_udpipe(given.udpipe)
        if udpipe is not None:
            racers["udpipe"] = udpipe_reader(udpipe)
        result = measure(racers, given.test, folder)
    machine = {"cpu": describe_machine("cpu")["processor"], "python": platform.python_version()}
    print(json.dumps({"benchmark": "raw", **result, **machine}))


if __name__ == "__main__":
    main()
