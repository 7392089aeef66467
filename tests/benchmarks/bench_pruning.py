"""n-gram models made smaller: by counts, by relative entropy, and mixed of two halves of a text.

    python tests/benchmarks/bench_pruning.py [TRAIN VALID] [--order 5] [--svg FILE]

A text, by default the shipped sample, is made into models of several sizes, and the perplexity of
another is measured with each. The entropy-pruned and the mixed ones are written as ARPA, read by
the `kenlm` module if it is installed, and score every sentence; the largest difference in log10 per
token is shown. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from bench_prepare import cpu_name

from seqtool.analysis.drawing import save_charts
from seqtool.analysis.report import Chart, Series
from seqtool.core.units import LN_10
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.evaluation import evaluate_lm
from seqtool.lm.mixture.static import mix_ngrams
from seqtool.lm.ngram.arpa import write_arpa
from seqtool.lm.ngram.backoff import prune_by_entropy
from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.counts import count_ngrams
from seqtool.lm.ngram.data import read_ids
from seqtool.lm.ngram.model import NgramModel
from seqtool.lm.ngram.smoothing import estimate
from seqtool.lm.ngram.train import train_ngram

SAMPLE = Path(__file__).resolve().parents[2] / "data" / "en"
THRESHOLDS = (1e-8, 1e-7, 3e-7, 1e-6, 3e-6, 1e-5)
COUNTS = ((0, 0, 1), (0, 1), (0, 1, 2), (0, 2), (0, 4), (0, 8))
KINDS = {
    "modified Kneser-Ney": "modified-kneser-ney",
    "Witten-Bell": "witten-bell",
}
Row = dict[str, Any]


def difference(model: NgramModel, text: Path, folder: Path) -> float | None:
    """Return how far KenLM is from the model at most, log10 per token; None without KenLM."""
    try:
        import kenlm
    except ImportError:
        return None
    path = folder / "x.arpa"
    write_arpa(model.table, model.tokenizer.vocabulary, path)
    theirs = kenlm.Model(str(path))
    block = text.read_bytes()
    ids = model.tokenizer.encode_block(block)
    (scores,) = model.score_ids([ids])
    ours = iter(np.split(scores.log_probs / LN_10, np.flatnonzero(ids == EOS_ID) + 1))
    largest = 0.0
    for line, own in zip(block.decode().splitlines(), ours, strict=False):
        found = [score for score, _, _ in theirs.full_scores(line)]
        largest = max(largest, float(np.abs(own - found).max()))
    return largest


def measured(model: NgramModel, text: Path, **about: Any) -> Row:
    """Return a row of the table, and print it."""
    ngrams = sum(map(len, model.table.levels))
    row = {**about, "ngrams": ngrams, "perplexity": evaluate_lm(model, text).perplexity}
    print(
        f"{row['kind']:22} {row['pruned']:18} {ngrams:10,} {row['perplexity']:8.2f}"
        + (f"  KenLM {row['kenlm']:.1e}" if row.get("kenlm") is not None else ""),
        flush=True,
    )
    return row


def of_one_text(train: Path, valid: Path, order: int, folder: Path) -> list[Row]:
    """Measure a model of each smoothing, pruned by counts and by entropy."""
    rows: list[Row] = []
    for kind, smoothing in KINDS.items():
        config = NgramConfig(order=order, smoothing=smoothing)
        reading = read_ids([train], config)
        counts = count_ngrams(reading.ids, order, len(reading.tokenizer.vocabulary))
        for prune in ((0,), *COUNTS):
            pruned = NgramConfig(order=order, smoothing=smoothing, prune=prune)
            table = estimate(counts, pruned).table
            by = f"counts {' '.join(map(str, prune))}" if any(prune) else "nothing"
            model = NgramModel(table, reading.tokenizer)
            rows.append(measured(model, valid, kind=kind, pruned=by))
        whole = estimate(counts, config).table
        for threshold in THRESHOLDS:
            model = NgramModel(prune_by_entropy(whole, threshold), reading.tokenizer)
            about = {"kind": kind, "pruned": f"entropy {threshold:g}"}
            rows.append(measured(model, valid, **about, kenlm=difference(model, valid, folder)))
    return rows


def of_two_texts(train: Path, valid: Path, order: int, folder: Path) -> list[Row]:
    """Measure the models of two halves of a text, and their mixture, pruned by entropy."""
    lines = train.read_bytes().splitlines(keepends=True)
    middle = len(lines) // 2
    paths, rows = [], []
    for name, part in (("first half", lines[:middle]), ("second half", lines[middle:])):
        text = folder / f"{name}.txt"
        text.write_bytes(b"".join(part))
        paths.append(folder / name)
        model = train_ngram(text, paths[-1], NgramConfig(order=order)).model
        rows.append(measured(model, valid, kind=name, pruned="nothing"))
    mixed = mix_ngrams(paths, folder / "mixed", tune=valid)
    assert mixed.tuning is not None
    dynamic = mixed.tuning.perplexity
    for threshold in (0, *THRESHOLDS):
        table = prune_by_entropy(mixed.model.table, threshold)
        model = NgramModel(table, mixed.model.tokenizer)
        about: Row = {"kind": "static mixture", "pruned": f"entropy {threshold:g}"}
        about |= {"dynamic_perplexity": dynamic, "kenlm": difference(model, valid, folder)}
        rows.append(measured(model, valid, **about))
    print(f"mixed at every word, by `eval-ppl`: {dynamic:.2f}")
    return rows


def chart_of(rows: list[Row], order: int) -> Chart:
    """Return the perplexity by size, a line for each kind of model and of pruning."""
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["kind"].endswith("half"):
            continue
        ways = ["counts", "entropy"] if row["pruned"] == "nothing" else [row["pruned"].split()[0]]
        for way in ways:
            name = f"{row['kind']}, {way}"
            series.setdefault(name, []).append((float(row["ngrams"]), row["perplexity"]))
    drawn = [
        Series(name, *map(list, zip(*sorted(points), strict=True)))
        for name, points in series.items()
    ]
    title = f"Perplexity by size of models of order {order}"
    axes = "n-grams in the model", "perplexity"
    return Chart(title, "lines", *axes, drawn, x_scale="log")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("texts", nargs="*", type=Path, metavar="TRAIN VALID")
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--svg", type=Path)
    options = parser.parse_args()
    train, valid = options.texts or (SAMPLE / "train.txt", SAMPLE / "valid.txt")
    with tempfile.TemporaryDirectory() as name:
        rows = of_one_text(train, valid, options.order, Path(name))
        rows += of_two_texts(train, valid, options.order, Path(name))
    if options.svg:
        save_charts([chart_of(rows, options.order)], options.svg)
    print(json.dumps({"order": options.order, "cpu": cpu_name(), "models": rows}))


if __name__ == "__main__":
    main()
