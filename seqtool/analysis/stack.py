"""What is open on the stack of a syntactic language model, word by word.

Before each word the model sums over all stacks that the words so far may have left. Which word is
on top of them, and with which probability, says what the next word may be attached to: where a
garden path ends, the probability moves from one word to another (Buys & Blunsom 2018).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from seqtool.analysis.passage import read_passage, read_sentence
from seqtool.analysis.report import Cell, Chart, Report, Series, Table
from seqtool.core.arrays import Doubles
from seqtool.core.errors import ConfigError
from seqtool.core.units import LN_2
from seqtool.core.vocabulary import EOS_ID

SHOWN_SENTENCES = 3  # of a text
SHOWN_TOPS = 3  # of a row of the table
LEAST_SHOWN = 0.005  # of a top in the table
LEAST_SHARE = 0.05  # of a word on top, at some place, to be drawn
ROOT = "ROOT"


def top_shares(model: Any, ids: Sequence[int]) -> Doubles:
    """Return how probable each top is when the next word is read, [n + 1, n + 1].

    Row j is after word j; column i is word i, 0 for ROOT. Row 0 is the beginning.
    """
    shares = np.zeros((len(ids) + 1, len(ids) + 1))
    shares[0, 0] = 1.0
    state = model.start(1)
    for front, token in enumerate(ids, 1):
        state = model.advance(state, np.array([token]))
        (one,) = state
        shares[front, :front] = np.exp(one.shares)
    return shares


def analyse(
    models: Sequence[tuple[str, Any]],
    text: str | Path | None,
    *,
    sentences: Sequence[str] = (),
) -> Report:
    """Show, of each sentence, surprisal, the best tree, and the words on top of the stack.

    Args:
        models: names and loaded models.
        text: a file of text, whose first sentences are shown; None for `sentences` alone.
        sentences: to be shown, words between blanks.

    Raises:
        ConfigError: a model has no stack.
    """
    report = Report("What is open on the stack", values={"models": {}})
    for name, model in models:
        if not hasattr(model, "tree_of"):
            hint = "name one that `seqtool train-lm --syntactic` made"
            raise ConfigError(f"{name} has no stack", hint=hint)
        passages = [read_sentence(model, sentence) for sentence in sentences]
        if text is not None:
            passage = read_passage(model, text)
            ends = np.flatnonzero(passage.ids == EOS_ID)[:SHOWN_SENTENCES] + 1
            lines = model.tokenizer.vocabulary.decode(passage.ids[: ends[-1]])
            cuts = [0, *ends.tolist()]
            passages += [
                read_sentence(model, " ".join(lines[begin : end - 1]))
                for begin, end in pairwise(cuts)
            ]
        shown = []
        for passage in passages:
            if len(passage.ids) > 1:
                shown.append(_add_sentence(report, name, model, passage.tokens, passage.ids))
        report.values["models"][name] = shown
    return report


def _add_sentence(
    report: Report, name: str, model: Any, tokens: Sequence[str], ids: Any
) -> dict[str, Any]:
    """Add the table and the chart of a sentence, `</s>` at its end; return its values."""
    words = ids[:-1].astype(np.int64)
    shares = top_shares(model, words.tolist())
    (scores,) = model.score_ids([ids])
    bits = (0.0 - scores.log_probs / LN_2).tolist()
    (scored,) = model.score_all([words])
    heads, labels = model.tree_of(scored)
    counts = Counter(tokens)
    names = [
        token if counts[token] < 2 else f"{token} ({place})"
        for place, token in enumerate([ROOT, *tokens[:-1]])
    ]
    rows: list[list[Cell]] = []
    for place, token in enumerate(tokens):
        best = np.argsort(-shares[place], kind="stable")[:SHOWN_TOPS]
        tops = "  ".join(
            f"{names[i]} {shares[place, i]:.2f}" for i in best if shares[place, i] >= LEAST_SHOWN
        )
        is_word = place < len(words)
        head = names[heads[place]] if is_word else ""
        rows.append([token, bits[place], tops, head, labels[place] if is_word else ""])
    columns = ["word", "surprisal (bits)", "on top when it is read", "its head", "relation"]
    sentence = " ".join(tokens[:-1])
    report.tables.append(Table(f"{name}: {sentence}", columns, rows))
    x = [f"{place} {token}" for place, token in enumerate(tokens, 1)]
    series = [
        Series(names[top], x, shares[:, top].tolist())
        for top in range(len(names))
        if shares[:, top].max() >= LEAST_SHARE
    ]
    title = f"Words on top of the stack: {sentence}"
    report.charts.append(
        Chart(title, "shares", "the word that is read", "probability of each top", series)
    )
    return {
        "words": [*tokens],
        "surprisal_bits": bits,
        "tops": shares.tolist(),
        "heads": heads,
        "relations": labels,
    }
