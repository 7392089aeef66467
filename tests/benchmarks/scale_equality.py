"""Models that Spark estimates beside those estimated in memory: every n-gram of real texts.

    python tests/benchmarks/scale_equality.py [--ewt FILE.conllu] [--ptb FILE] [--wikitext FILE]
                                              [--only NAME ...] [--out DIR]

The words of a treebank's sentences, PTB and WikiText-2, each cut into 1, 3 or 7 partitions, which
Spark does not join again; with pruning, closed vocabularies, words that are unknown and `<unk>` in
the text. Every n-gram of one model has to be in the other one, its log-probability and its backoff
weight within 1e-6. A text that is not there is left out, with a line that says so. The last line is
JSON, which is written to DIR/equality.json too. Exit code 1: a model is another one.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from bench_prepare import cpu_name
from ngram_text import SHARED

import seqtool
from seqtool.core.arrays import Floats
from seqtool.lm.ngram.arpa import word_columns
from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.model import NgramModel
from seqtool.spark.session import spark_session

CLOSE = 1e-6  # in natural logarithms
NUM_WORDS = 3000  # of a closed vocabulary: the most frequent ones
TEXTS = {
    "ewt": SHARED / "ewt" / "en_ewt-ud-train.conllu",
    "ptb": SHARED / "ptb" / "train.txt",
    "wikitext": SHARED / "wikitext-2" / "train.txt",
}


@dataclass(frozen=True)
class Case:
    """One model.

    Attributes:
        text: its name in `TEXTS`.
        partitions: of Spark.
        settings: of the model.
        words: which setting has a file of the most frequent words, if any.
    """

    text: str
    partitions: int
    settings: dict[str, Any] = field(default_factory=dict)
    words: str | None = None

    @property
    def name(self) -> str:
        """What it is called in the table."""
        told = [f"{key}={value}" for key, value in self.settings.items()]
        told += [self.words] if self.words else []
        return f"{self.text}, {self.partitions}: {' '.join(told)}"


CASES = (
    Case("ewt", 1, {"order": 3}),
    Case("ewt", 3, {"order": 5, "min_count": 2, "prune": (0, 0, 1)}),
    Case("ewt", 7, {"order": 4, "prune": (0, 1)}, "vocab"),
    Case("ewt", 7, {"order": 3, "smoothing": "witten-bell"}, "limit_vocab"),
    Case("ptb", 1, {"order": 4, "prune": (0, 0, 1), "discounts": "kenlm"}),
    Case("ptb", 3, {"order": 3}, "limit_vocab"),
    Case("ptb", 7, {"order": 5}),
    Case("wikitext", 7, {"order": 3, "smoothing": "kneser-ney"}, "vocab"),
    Case("wikitext", 3, {"order": 5, "prune": (0, 0, 1)}),
    Case("wikitext", 1, {"order": 4}),
)


@dataclass(frozen=True)
class Found:
    """What a comparison gave.

    Attributes:
        case: its name.
        ngrams: of the model.
        missing: n-grams that one of the two models has alone.
        log_probs: the largest difference of two log-probabilities, in nats.
        backoffs: that of two backoff weights, in nats.
        same_bytes: whether the tables are one file.
        seconds: that Spark took.
    """

    case: str
    ngrams: int
    missing: int
    log_probs: float
    backoffs: float
    same_bytes: bool
    seconds: float

    @property
    def is_equal(self) -> bool:
        """Whether it is the same model."""
        return not self.missing and max(self.log_probs, self.backoffs) <= CLOSE


def text_of(path: Path, out: Path) -> Path:
    """Return a file with a sentence a line: that of a treebank's words, or the text itself."""
    if path.suffix != ".conllu":
        return path
    text = out / f"{path.stem}.txt"
    sentences = seqtool.read_conllu(path, check="columns")
    lines = (" ".join(row[1].replace(" ", "_") for row in item.rows) for item in sentences)
    text.write_text("".join(f"{line}\n" for line in lines))
    return text


def frequent_words(text: Path, out: Path) -> Path:
    """Return a file with the most frequent words of a text."""
    path = out / f"{text.stem}.{NUM_WORDS}"
    counts = Counter(text.read_text().split())
    counts.pop("<unk>", None)
    path.write_text("".join(f"{word}\n" for word, _ in counts.most_common(NUM_WORDS)))
    return path


def rows_of(
    model: NgramModel, n: int, numbers: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return the n-grams of an order, sorted, with log-probabilities and backoff weights.

    Args:
        model: the model.
        n: the order.
        numbers: what stands for each of its words, `<s>` the last.
    """
    level = model.table.levels[n - 1]
    num = len(level.log_probs)
    words = (
        word_columns(model.table.levels, n, 0, num)
        if n > 1
        else np.arange(num, dtype=np.int32)[None]
    )
    columns = numbers[words]
    order = np.lexsort(columns[::-1])
    weights = level.backoffs if len(level.backoffs) else np.zeros(num, np.float32)
    return columns[:, order], level.log_probs[order], weights[order]


def apart(one: Floats, other: Floats) -> float:
    """Return the largest difference; infinite ones are the same, and NaN never is."""
    with np.errstate(invalid="ignore"):
        gaps = np.where(one == other, 0.0, np.abs(one - other))
    return float(np.nan_to_num(gaps, nan=np.inf).max(initial=0))


def compare(case: Case, spark: Path, memory: Path, seconds: float) -> Found:
    """Compare two models, n-gram by n-gram."""
    found, wanted = (seqtool.load(path) for path in (spark, memory))
    assert isinstance(found, NgramModel)
    assert isinstance(wanted, NgramModel)
    symbols = [[*model.tokenizer.vocabulary.symbols, "<s>"] for model in (found, wanted)]
    ids = {symbol: number for number, symbol in enumerate(symbols[1])}
    # a word that only one model has gets a number that the other one does not have
    numbers = [ids.setdefault(symbol, len(ids)) for symbol in symbols[0]]
    missing, log_probs, backoffs, num = 0, 0.0, 0.0, 0
    own = np.arange(len(symbols[1]), dtype=np.int32)
    for n in range(1, max(len(found.table.levels), len(wanted.table.levels)) + 1):
        ngrams, log_probs_n, weights = rows_of(found, n, np.array(numbers, np.int32))
        expected, other_log_probs, other_weights = rows_of(wanted, n, own)
        num += expected.shape[1]
        if ngrams.shape != expected.shape or (ngrams != expected).any():
            both = [set(zip(*columns.tolist(), strict=True)) for columns in (ngrams, expected)]
            missing += len(both[0] ^ both[1])
            continue
        log_probs = max(log_probs, apart(log_probs_n, other_log_probs))
        backoffs = max(backoffs, apart(weights, other_weights))
    files = [(path / "weights.safetensors").read_bytes() for path in (spark, memory)]
    same = files[0] == files[1]
    return Found(case.name, num, missing, log_probs, backoffs, same, round(seconds, 1))


def run(session: Any, case: Case, text: Path, out: Path) -> Found:
    """Estimate a model twice, and compare."""
    settings = dict(case.settings)
    if case.words is not None:
        settings[case.words] = str(frequent_words(text, out))
    config = NgramConfig(**settings)
    memory, spark = out / "memory", out / "spark"
    seqtool.train_ngram([text], memory, config, engine="memory", force=True)
    session.conf.set("spark.sql.shuffle.partitions", str(case.partitions))
    began = time.perf_counter()
    seqtool.spark.train_ngram(session, [str(text)], spark, config, force=True)
    return compare(case, spark, memory, time.perf_counter() - began)


def main(options: argparse.Namespace) -> None:
    """Run all cases, print a table, and write JSON."""
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    given = {name: getattr(options, name) for name in TEXTS}
    cases = [case for case in CASES if case.text in (options.only or TEXTS)]
    for name, path in given.items():
        if not path.is_file():
            print(f"left out: {name}, as {path} is not there")
    texts = {name: text_of(path, out) for name, path in given.items() if path.is_file()}
    conf = {
        "spark.driver.memory": "2g",
        "spark.local.dir": str(out / "temporary"),
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
    }
    found: list[Found] = []
    print(f"{'text, partitions':<60}{'n-grams':>11}{'missing':>9}", end="")
    print(f"{'p':>10}{'backoff':>10}{'bytes':>8}{'seconds':>9}", flush=True)
    with spark_session("local[2]", conf) as session:
        for case in cases:
            if case.text not in texts:
                continue
            row = run(session, case, texts[case.text], out)
            found.append(row)
            print(
                f"{row.case:<60}{row.ngrams:>11,}{row.missing:>9,}{row.log_probs:>10.1e}"
                f"{row.backoffs:>10.1e}{'same' if row.same_bytes else 'other':>8}"
                f"{row.seconds:>9.1f}",
                flush=True,
            )
    shutil.rmtree(out / "temporary", ignore_errors=True)
    rows = [vars(row) for row in found]
    report = {"benchmark": "scale_equality", "cpu": cpu_name(), "within": CLOSE, "rows": rows}
    (out / "equality.json").write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report))
    if others := [row.case for row in found if not row.is_equal]:
        raise SystemExit(f"other models: {'; '.join(others)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Spark's models beside those of memory.")
    for name, path in TEXTS.items():
        parser.add_argument(f"--{name}", type=Path, default=path)
    parser.add_argument("--only", nargs="*", choices=[*TEXTS])
    parser.add_argument("--out", type=Path, default=Path("runs/scale"))
    main(parser.parse_args())
