"""The parser: words per second beside UDPipe, from file to file, greedy and with a beam.

    python tests/benchmarks/bench_parser.py [--train FILE --test FILE] [--epochs 4] [--preset NAME]
    python tests/benchmarks/bench_parser.py --model DIR --test FILE

A parser of a preset, `fast` if none is named, and one of `ufal.udpipe`, with the options that it
was tuned to on English, are trained on the same treebank, few epochs each: how long they were
trained decides their scores, and hardly their speed. Then both parse the same file on one thread,
in turn: from opening it, with the model in memory as it was loaded, until the result is written.
What our parser keeps of types of words is dropped before each run; as a short test file is
repeated, most words are met again, so a file of 200,000 words gives another picture. Our own stages
are timed apart too. A graph-based parser has no beam: it runs against both of UDPipe's. LAS is on
that file, by its own words and tags. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from seqtool.core import checkpoint
from seqtool.core.config import from_dict
from seqtool.parsing.parser.config import ParserConfig, preset
from seqtool.parsing.parser.parser import Parser
from seqtool.parsing.parser.train import train_parser
from seqtool.parsing.parser.transition.decoder import TransitionDecoder
from seqtool.text.datasets import sample_treebank
from seqtool.training.hardware import describe_machine
from seqtool.treebank.conllu import SentenceBatch, read_batches, read_conllu, write_conllu
from seqtool.treebank.sentence import DEPREL

LEAST_WORDS = 200_000  # the test file is repeated until it has them
REPEATS = 5
# of the project's own recipe for English; embeddings for forms are of the treebank alone
UDPIPE = (
    "embedding_form=50;embedding_upostag=20;embedding_feats=20;embedding_deprel=20;"
    "hidden_layer=200;batch_size=10;transition_system=projective;transition_oracle=dynamic;"
    "structured_interval=8;learning_rate=0.02;learning_rate_final=0.001;l2=0.5"
)


def seconds_of(action: Callable[[], object]) -> tuple[float, float]:
    """By the clock, and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - clock, time.process_time() - processor


def las(gold: Path, parsed: Path) -> float:
    """Per cent of words with the right head and relation, subtypes apart."""
    right = total = 0
    for one, other in zip(read_conllu(gold), read_conllu(parsed), strict=True):
        heads = zip(one.heads(), other.heads(), strict=True)
        deprels = zip(one.column(DEPREL), other.column(DEPREL), strict=True)
        for (head, parsed_head), (deprel, parsed_deprel) in zip(heads, deprels, strict=True):
            total += 1
            same = deprel.partition(":")[0] == parsed_deprel.partition(":")[0]
            right += head == parsed_head and same
    return 100.0 * right / total


def load_udpipe(path: Path) -> Any:
    """A model of `ufal.udpipe`; None if the package is not there."""
    try:
        from ufal import udpipe
    except ImportError:
        return None
    model = udpipe.Model.load(str(path))
    if model is None:
        raise SystemExit(f"{path} is no model of UDPipe")
    return model


def train_udpipe(
    train: Path, epochs: int, folder: Path, *, tokenizer: str = "none", tagger: str = "none"
) -> Any:
    """A model of the project's options for the parser; None if the package is not there."""
    try:
        from ufal import udpipe
    except ImportError:
        return None
    reader = udpipe.InputFormat.newConlluInputFormat()
    reader.setText("".join(sentence.to_conllu() for sentence in read_conllu(train)))
    sentences, sentence, error = udpipe.Sentences(), udpipe.Sentence(), udpipe.ProcessingError()
    while reader.nextSentence(sentence, error):
        sentences.append(sentence)
    content = udpipe.Trainer.train(
        "morphodita_parsito",
        sentences,
        udpipe.Sentences(),
        tokenizer,
        tagger,
        f"{UDPIPE};iterations={epochs}",
        error,
    )
    (folder / "udpipe.model").write_bytes(content)
    return load_udpipe(folder / "udpipe.model")


def udpipe_parser(model: Any, beam: int) -> Callable[[Path, Path], None]:
    from ufal.udpipe import Pipeline

    return udpipe_program(Pipeline(model, "conllu", Pipeline.NONE, f"beam_search={beam}", "conllu"))


def udpipe_program(pipeline: Any) -> Callable[[Path, Path], None]:
    """From one file to another by a pipeline of UDPipe."""
    from ufal import udpipe

    def parse(source: Path, target: Path) -> None:
        error = udpipe.ProcessingError()
        text = pipeline.process(source.read_text(encoding="utf-8"), error)
        if error.occurred():
            raise SystemExit(error.message)
        target.write_text(text, encoding="utf-8")

    return parse


def forget_types(parser: Parser) -> None:
    """Make the parser as it was when it was loaded."""
    parser.types.clear()
    if isinstance(parser.decoder, TransitionDecoder):
        parser.decoder.classifier.products.clear()


def beams_of(parser: Parser) -> list[int]:
    """Beams to time it with; one that finds the best tree has none."""
    return [1, 4, 8] if isinstance(parser.decoder, TransitionDecoder) else [1]


def our_parser(parser: Parser, beam: int) -> Callable[[Path, Path], None]:
    def parse(source: Path, target: Path) -> None:
        forget_types(parser)
        write_conllu(parser.parse_stream(read_batches(source), beam=beam), target)

    return parse


def find(source: Path) -> None:
    """Find the words of a file and number their texts, which is all that parsing reads of it."""
    if not all(isinstance(item, SentenceBatch) for item in read_batches(source)):
        raise SystemExit(f"{source} holds broken sentences")


def stages(parser: Parser, source: Path, num_words: int) -> dict[str, float]:
    """Words per second of processor time of each of our stages, the best of some repeats."""
    arrays = parser.encode(read_conllu(source, check="columns"))
    parser.prepare()
    actions: dict[str, Callable[[], object]] = {
        "finding and numbering": lambda: find(source),
    }
    for beam in beams_of(parser):
        parse = partial(parser.heads_and_labels, arrays, beam=beam)
        actions[f"parsing alone, beam {beam}"] = parse
    return {
        name: num_words / min(seconds_of(action)[1] for _ in range(3))
        for name, action in actions.items()
    }


def main() -> None:
    """Print the table and the line of JSON."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--train", type=Path, default=sample_treebank("en", "train"))
    options.add_argument("--test", type=Path, default=sample_treebank("en", "valid"))
    options.add_argument("--epochs", type=int, default=2)
    options.add_argument("--preset", default="fast")
    options.add_argument("--model", type=Path, help="a parser, instead of training one")
    options.add_argument("--udpipe", type=Path, help="a UDPipe model, instead of training one")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = given.model or folder / "parser"
        if given.model is None:
            settings = preset(given.preset)
            settings["training"]["epochs"] = given.epochs
            train_parser(
                given.train, path, from_dict(ParserConfig, settings), dev=given.test, threads=1
            )
        threadpool_limits(1)
        parser = checkpoint.load(path)
        if given.udpipe is None:
            udpipe = train_udpipe(given.train, given.epochs, folder)
        else:
            udpipe = load_udpipe(given.udpipe)
        text = "".join(sentence.to_conllu() for sentence in read_conllu(given.test))
        num_words = sum(map(len, read_conllu(given.test)))
        times = -(-LEAST_WORDS // num_words)
        (folder / "long.conllu").write_text(text * times, encoding="utf-8")
        num_words *= times
        result = measure(parser, udpipe, folder, num_words)
    machine = {"cpu": describe_machine("cpu")["processor"], "python": platform.python_version()}
    print(json.dumps({"benchmark": "parser", "words": num_words, **result, **machine}))


def measure(parser: Parser, udpipe: Any, folder: Path, num_words: int) -> dict[str, Any]:
    """Race both from file to file; words per second of processor time, and their ratio."""
    source = folder / "long.conllu"
    result: dict[str, Any] = {"stages": stages(parser, source, num_words)}
    for name, speed in result["stages"].items():
        print(f"{name:<36}{speed:>12,.0f} words/s")
    for ours, theirs in ((1, 1), (beams_of(parser)[:2][-1], 5)):
        racers = {"seqtool": our_parser(parser, ours)}
        if udpipe is not None:
            racers["udpipe"] = udpipe_parser(udpipe, theirs)
        seconds: dict[str, list[float]] = {racer: [] for racer in racers}
        for _ in range(REPEATS):
            for racer, parse in racers.items():
                target = folder / f"{racer}.conllu"
                seconds[racer].append(seconds_of(partial(parse, source, target))[1])
        for racer, values in seconds.items():
            speed = num_words / statistics.median(values)
            score = las(source, folder / f"{racer}.conllu")
            beam = ours if racer == "seqtool" else theirs
            title = f"{racer}, file to file, beam {beam}"
            print(f"{title:<36}{speed:>12,.0f} words/s, LAS {score:.2f}")
            result[f"{racer}_beam_{beam}"] = {"words_per_second": speed, "las": score}
        if udpipe is not None:
            pairs = zip(seconds["seqtool"], seconds["udpipe"], strict=True)
            ratio = statistics.median(their / our for our, their in pairs)
            print(f"{'ratio':<36}{ratio:>12.1f}")
            result[f"ratio_beam_{ours}_{theirs}"] = ratio
    return result


if __name__ == "__main__":
    main()
