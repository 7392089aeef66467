"""Every figure of the manual's page Results, from one command: `make bench`.

    make bench [DATA=../shared/data] [OUT=runs/bench] [ROWS=ngram,fast]
    python tests/benchmarks/bench.py [--data DIR] [--out DIR] [--rows NAME,NAME]

Rows are measured one after another, on one core. Speeds and costs are of processor time, which
other programs disturb less than the clock. DATA holds the folders `ptb`, `wikitext-2`, `ewt` and
`hu_szeged`, with the published train and validation files under their published names. A row
without its data or its peer says so and is left out.

Models and answers of commands are kept in OUT, in a folder of the processor's class, so the same
command goes on where it was stopped. After a change of the code, remove that folder. The table is
printed, and written to results.md in that folder.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from bench_parser import train_udpipe

from seqtool.core import storage

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
COLUMNS = ("task", "data", "seqtool", "peer", "cost", "command")
PTB, EWT, HUNGARIAN = "ptb/{}.txt", "ewt/en_ewt-ud-{}.conllu", "hu_szeged/hu_szeged-ud-{}.conllu"
UDPIPE_ITERATIONS = {EWT: 10, HUNGARIAN: 20}
NO_KENLM, NO_UDPIPE = (f"{name} is not installed (make judges)" for name in ("KenLM", "UDPipe"))


class Missing(Exception):
    """Data or a peer that a row needs is not there."""


class Row(NamedTuple):
    """A line of the table; `command` is what a user types for its first figure."""

    task: str
    data: str
    seqtool: str
    peer: str
    cost: str
    command: str


def processor_class() -> str:
    """Return AMX, AVX-512 with bf16, AVX-512 or AVX2: the widest that programs here may use."""
    cpu_info = Path("/proc/cpuinfo")
    flags = set(cpu_info.read_text().split()) if cpu_info.is_file() else set()
    widest = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "other"
    if torch.backends.cpu.get_cpu_capability() == "AVX2" and widest == "AVX-512":
        return "AVX2 (AVX-512 switched off)"
    if "amx_bf16" in flags:
        return "AMX"
    return "AVX-512 with bf16" if "avx512_bf16" in flags else widest


class Bench:
    """Runs commands, once each, in the folder of the processor's class, and keeps the answers."""

    def __init__(self, data: Path, out: Path) -> None:
        self.data, self.processor = data, processor_class()
        self.out = out / re.sub(r"\W+", "-", self.processor).strip("-").lower()
        self.out.mkdir(parents=True, exist_ok=True)
        self.dates: set[str] = set()  # of the answers that were asked for
        self._file = self.out / "answers.json"
        self._answers = storage.read_object(self._file) if self._file.exists() else {}

    def files(self, names: str, *splits: str) -> list[str]:
        """Return files of DATA, quoted for a command line."""
        paths = [self.data / names.format(split) for split in splits]
        for path in paths:
            if not path.is_file():
                raise Missing(f"{path} is not there")
        return [shlex.quote(str(path)) for path in paths]

    def keep(self, key: str, measure: Callable[[], Any]) -> Any:
        """Return what is kept under a key, measured now if nothing is."""
        if key not in self._answers:
            print(f"== {key}", file=sys.stderr, flush=True)
            answer = measure()
            self._answers[key] = {"date": time.strftime("%Y-%m-%d"), "answer": answer}
            storage.write_json(self._file, self._answers)
        self.dates.add(self._answers[key]["date"])
        return self._answers[key]["answer"]

    def run(self, command: str) -> dict[str, Any]:
        """Run a command of seqtool, or a script of this folder; return its JSON.

        `processor_seconds` is what the command took.
        """
        name, *words = shlex.split(command)
        own = ["-m", name] if name == "seqtool" else [str(HERE / name)]
        more = ["--json"] if name == "seqtool" else []

        def measure() -> dict[str, Any]:
            begin = os.times()
            done = subprocess.run(
                [sys.executable, *own, *words, *more],
                stdout=subprocess.PIPE,
                encoding="utf-8",
                cwd=self.out,
            )
            end = os.times()
            if done.returncode:
                raise SystemExit(f"error: exit code {done.returncode} of: {command}")
            seconds = end.children_user + end.children_system
            seconds -= begin.children_user + begin.children_system
            return {**json.loads(done.stdout.splitlines()[-1]), "processor_seconds": seconds}

        answer: dict[str, Any] = self.keep(command, measure)
        return answer

    def udpipe(self, treebank: str, **parts: str) -> str:
        """Train UDPipe on a treebank; return the name of its file."""
        (train,) = self.files(treebank, "train")
        if find_spec("ufal") is None:
            raise Missing(NO_UDPIPE)
        folder = self.out / f"udpipe-{Path(train).stem}"

        def measure() -> str:
            folder.mkdir(exist_ok=True)
            before = signal.signal(signal.SIGINT, signal.SIG_DFL)  # its loop sees no Ctrl-C
            train_udpipe(Path(shlex.split(train)[0]), UDPIPE_ITERATIONS[treebank], folder, **parts)
            signal.signal(signal.SIGINT, before)
            return f"{folder.name}/udpipe.model"

        model: str = self.keep(f"UDPipe, {train}", measure)
        return model


def training(seconds: float) -> str:
    shown = f"{seconds:.1f} s" if seconds < 60 else f"{seconds / 60:.0f} min"
    return f"{shown} of training"


def train_ngram(bench: Bench) -> dict[str, Any]:
    (train,) = bench.files(PTB, "train")
    return bench.run(f"seqtool ngram train {train} -o kn5 --arpa kn5.arpa --threads 1 --force")


def ngram(bench: Bench) -> Row:
    """Perplexity of a 5-gram model; the peer scores the same text with our ARPA file."""
    trained = train_ngram(bench)
    (valid,) = bench.files(PTB, "valid")
    ours = bench.run(f"seqtool eval-ppl {valid} -m kn5")
    peer = NO_KENLM
    if find_spec("kenlm"):

        def score() -> float:
            import kenlm

            model = kenlm.Model(str(bench.out / "kn5.arpa"))
            lines = Path(shlex.split(valid)[0]).read_text(encoding="utf-8").splitlines()
            log10 = sum(model.score(" ".join(line.split())) for line in lines if line.strip())
            return float(10.0 ** (-log10 / ours["tokens"]))

        peer = f"KenLM reads our ARPA file: {bench.keep(f'KenLM, {valid}', score):.2f}"
    return Row(
        "Kneser-Ney 5-gram: perplexity",
        "PTB dev",
        f"{ours['perplexity']:.2f}",
        peer,
        training(trained["processor_seconds"]),
        "seqtool ngram train ptb/train.txt`, then `seqtool eval-ppl ptb/valid.txt -m runs/ngram",
    )


def ngram_speed(bench: Bench) -> Row:
    """Text to model, and scoring."""
    texts = [*bench.files("wikitext-2/{}.txt", "train"), *bench.files(PTB, "train")]
    if find_spec("kenlm") is None:
        raise Missing(NO_KENLM)
    found = bench.run(f"bench_ngram.py --megabytes 50 --texts {' '.join(texts)}")
    ours, theirs, train = (
        found[name]["million_words_per_cpu_second"]
        for name in ("score a text", "score lines with kenlm", "text to saved model")
    )
    return Row(
        "5-gram, scoring: million words/s",
        f"{found['words'] / 1e6:.0f} million words",
        f"{ours:.1f}",
        f"KenLM's Python module: {theirs:.1f}",
        f"training: {train:.1f} million words/s",
        "python tests/benchmarks/bench_ngram.py --megabytes 50",
    )


def race_training(bench: Bench, script: str, race: str, task: str, data: str, peer: str) -> Row:
    """Training steps beside those of a plain loop, as a script of this folder times them."""
    found = bench.run(script)[race]
    speeds = found["tokens_per_second"]
    return Row(
        f"{task}, training: tokens/s",
        data,
        f"{speeds['seqtool']['processor']:,}",
        f"{peer} in a plain loop: {speeds['other']['processor']:,}",
        f"{found['ratio']:.1f} times as fast, float32",
        f"python tests/benchmarks/{script}",
    )


def lstm_speed(bench: Bench) -> Row:
    """Training steps of an LSTM beside a loop around torch.nn.LSTM."""
    race = ("bench_lstm.py", "training, float32")
    return race_training(bench, *race, "LSTM of 2 x 200 units", "33,278 words", "`torch.nn.LSTM`")


def rhn_speed(bench: Bench) -> Row:
    """Training steps of an RHN beside linear layers in a loop."""
    race = ("bench_rhn.py", "training, 10,000 words")
    return race_training(
        bench, *race, "RHN of depth 5 and 256 units", "10,000 words", "linear layers"
    )


def rhn(bench: Bench) -> Row:
    """A recurrent highway network in a quarter of an hour."""
    train, valid = bench.files(PTB, "train", "valid")
    train_ngram(bench)
    has_bf16 = bench.processor in ("AMX", "AVX-512 with bf16")
    recipe = "ptb-15min" if has_bf16 else "ptb-15min-avx2"
    bench.run(f"seqtool prepare {train} --valid {valid} -o ptb --force")
    train_rhn = f"seqtool train-lm ptb --config {recipe} --threads 1 -o rhn --force"
    trained = bench.run(train_rhn)
    ours = bench.run(f"seqtool eval-ppl {valid} -m rhn")
    kn5 = bench.run(f"seqtool eval-ppl {valid} -m kn5")
    return Row(
        "Recurrent highway network: perplexity",
        "PTB dev",
        f"{ours['perplexity']:.2f}",
        f"Kneser-Ney 5-gram: {kn5['perplexity']:.2f}",
        training(trained["processor_seconds"]),
        "seqtool prepare ptb -o corpora/ptb`, then "
        f"`seqtool train-lm corpora/ptb --config {recipe} --threads 1",
    )


def race_parsers(bench: Bench) -> tuple[dict[str, Any], dict[str, Any]]:
    """Train `fast` and UDPipe on English-EWT, and let both parse its dev part."""
    train, dev = bench.files(EWT, "train", "dev")
    udpipe = bench.udpipe(EWT)
    trained = bench.run(f"seqtool train-parser {train} --dev {dev} --threads 1 -o fast --force")
    return trained, bench.run(f"bench_parser.py --model fast --udpipe {udpipe} --test {dev}")


def parser_row(
    task: str, ours: dict[str, Any], peer: str, theirs: dict[str, Any], cost: str, command: str
) -> Row:
    """Return a row of two parsers, by their LAS and words per second."""
    shown, other = (
        f"{side['las']:.2f}; {side['words_per_second']:,.0f}" for side in (ours, theirs)
    )
    name = f"Parser `fast`, {task}: LAS; words/s"
    return Row(name, "English-EWT dev, gold tags", shown, f"{peer}: {other}", cost, command)


def fast(bench: Bench) -> Row:
    """The greedy parser beside UDPipe's."""
    trained, race = race_parsers(bench)
    ours, theirs = race["seqtool_beam_1"], race["udpipe_beam_1"]
    cost = training(trained["processor_seconds"])
    command = "seqtool train-parser TRAIN --dev DEV`, then `seqtool eval-parser DEV"
    return parser_row("greedy", ours, "UDPipe 1", theirs, cost, command)


def beam(bench: Bench) -> Row:
    """The same two with a beam."""
    _, race = race_parsers(bench)
    ours, theirs = race["seqtool_beam_4"], race["udpipe_beam_5"]
    command = "seqtool eval-parser DEV --beam 4"
    return parser_row("beam of 4", ours, "UDPipe 1, beam of 5", theirs, "as above", command)


def crf(bench: Bench) -> Row:
    """The graph-based parser."""
    train, dev = bench.files(EWT, "train", "dev")
    _, race = race_parsers(bench)
    preset = "--preset graph --loss crf"
    trained = bench.run(
        f"seqtool train-parser {train} --dev {dev} {preset} --threads 1 -o crf --force"
    )
    scores = bench.run(f"seqtool eval-parser {dev} -m crf")
    return Row(
        "Parser `graph` with a CRF: LAS",
        "English-EWT dev, gold tags",
        f"{scores['LAS']['f1']:.2f}",
        f"UDPipe 1, beam of 5: {race['udpipe_beam_5']['las']:.2f}",
        training(trained["processor_seconds"]),
        f"seqtool train-parser TRAIN --dev DEV {preset}`, then `seqtool eval-parser DEV",
    )


def raw(bench: Bench) -> Row:
    """Plain text of a small treebank to trees."""
    train, dev = bench.files(HUNGARIAN, "train", "dev")
    iterations = UDPIPE_ITERATIONS[HUNGARIAN]
    parts = {"tokenizer": f"epochs={iterations}", "tagger": f"iterations={iterations}"}
    udpipe = bench.udpipe(HUNGARIAN, **parts)
    trained = bench.run(
        f"seqtool train-parser {train} --dev {dev} --raw --threads 1 -o raw --force"
    )
    race = bench.run(f"bench_raw.py --model raw --udpipe {udpipe} --test {dev}")
    ours, theirs = (
        f"{race[side]['UPOS']:.2f}; {race[side]['LAS']:.2f}; {race[side]['words_per_second']:,}"
        for side in ("seqtool", "udpipe")
    )
    return Row(
        "Raw text to trees: UPOS; LAS; words/s",
        "Hungarian-Szeged dev",
        ours,
        f"UDPipe 1: {theirs}",
        training(trained["processor_seconds"]),
        "seqtool train-parser TRAIN --dev DEV --raw",
    )


def syntactic(bench: Bench) -> Row:
    """The language model that parses beside a plain network of the same recipe."""
    train, dev = bench.files(EWT, "train", "dev")
    trained = bench.run(
        f"seqtool train-lm {train} --syntactic --dev {dev} --threads 1 -o syntactic --force"
    )
    prepare = [sys.executable, "-m", "seqtool", "prepare", *shlex.split(dev), "--column", "word"]
    with (bench.out / "dev.txt").open("w", encoding="utf-8") as text:
        subprocess.run([*prepare, "-o", "-"], stdout=text, check=True)
    ours = bench.run("seqtool eval-ppl dev.txt -m syntactic")
    trees = bench.run(f"seqtool eval-parser {dev} -m syntactic")
    words = f"seqtool prepare {train} --valid {dev} --column word --min-count 2 -o words --force"
    bench.run(words)
    bench.run("seqtool train-lm words --config syntactic --threads 1 -o plain --force")
    plain = bench.run("seqtool eval-ppl dev.txt -m plain")
    return Row(
        "Language model that parses: perplexity; UAS",
        "English-EWT dev, words alone",
        f"{ours['perplexity']:.2f}; {trees['UAS']['f1']:.2f}",
        f"plain LSTM of the same recipe: {plain['perplexity']:.2f}",
        training(trained["processor_seconds"]),
        "seqtool train-lm TRAIN --syntactic --dev DEV",
    )


ROWS: dict[str, Callable[[Bench], Row]] = {
    "ngram": ngram,
    "ngram-speed": ngram_speed,
    "lstm-speed": lstm_speed,
    "rhn-speed": rhn_speed,
    "rhn": rhn,
    "syntactic": syntactic,
    "fast": fast,
    "beam": beam,
    "crf": crf,
    "raw": raw,
}


def main() -> None:
    """Measure the rows, print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "bench")
    parser.add_argument("--rows", default="", help=f"some of {','.join(ROWS)}")
    options = parser.parse_args()
    names = [name for name in options.rows.split(",") if name] or list(ROWS)
    if unknown := sorted({*names} - {*ROWS}):
        parser.error(f"no row is called {unknown[0]!r}; there are {', '.join(ROWS)}")
    os.environ.pop("OPENBLAS_CORETYPE", None)
    os.environ.update({f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "NUMBA")})
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    bench = Bench(options.data.resolve(), options.out.resolve())
    rows: list[Row] = []
    for name in names:
        try:
            rows.append(ROWS[name](bench))
        except Missing as reason:
            print(f"{name}: left out: {reason}", file=sys.stderr, flush=True)
    if not rows:
        raise SystemExit("error: no row can be measured\nhint: name the data: make bench DATA=DIR")
    made = " to ".join(sorted({min(bench.dates), max(bench.dates)}))
    lines = [f"{made}, {bench.processor}, one core, torch {torch.__version__}", ""]
    lines += [f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}"]
    lines += [f"| {' | '.join(row[:-1])} | `{row.command}` |" for row in rows]
    storage.replace_text(bench.out / "results.md", "\n".join([*lines, ""]))
    print("\n".join(lines))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("error: interrupted\nhint: the same command goes on") from None
