"""What an n-gram model has seen, and what it has not: the two problems of counting.

Most n-grams of a new text were never seen in training, and the more of them a model is to hold, the
larger it is (Jurafsky & Martin, "Speech and Language Processing", chapter 3). The figures are of
the model's own table, so n-grams that were pruned count as not seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from seqtool.analysis.passage import read_passage
from seqtool.analysis.report import Cell, Chart, Report, Series, Table
from seqtool.core.arrays import Ids
from seqtool.core.errors import ConfigError
from seqtool.core.vocabulary import EOS_ID

PERCENTS = ("ngrams_unseen", "contexts_unseen", "probabilities_from")

if TYPE_CHECKING:
    from seqtool.lm.ngram.table import BackoffTable, OrderSize


def rows_of_ngrams(table: BackoffTable, ids: Ids) -> npt.NDArray[np.int64]:
    """Return where the table has the n-grams that end at each token of a text.

    Args:
        table: of V words, of order N.
        ids: [T] of whole sentences, `EOS_ID` after each; each sentence begins at `<s>`.

    Returns:
        [N, T]: at order n the row, -1 where the table has no such n-gram, -2 where the sentence has
        no n tokens up to there, `<s>` counted.
    """
    bos = table.vocabulary_size
    starts = np.concatenate(([True], ids[:-1] == EOS_ID))
    # how many tokens of the sentence stand up to each, `<s>` and itself counted
    begins = np.flatnonzero(starts)
    lengths = np.arange(len(ids)) - begins[np.cumsum(starts) - 1] + 2
    rows = np.full((table.order, len(ids)), -1, np.int64)
    rows[0] = ids
    for n in range(2, table.order + 1):
        level = table.levels[n - 1]
        before = np.concatenate(([-1], rows[n - 2, :-1]))
        if n == 2:
            before[starts] = bos
        else:
            # `<s> w` ends at the first token of a sentence, and so on: those rows are carried on
            before[starts] = -1
        contexts = np.repeat(np.arange(len(level.begins) - 1), np.diff(level.begins))
        # rows are sorted by context, then by word: so is the pair as one number
        keys = contexts.astype(np.int64) * (bos + 1) + level.words
        wanted = before * (bos + 1) + ids
        places = np.searchsorted(keys, wanted)
        inside = np.minimum(places, max(0, len(keys) - 1))
        is_found = (before >= 0) & (places < len(keys))
        if len(keys):
            is_found &= keys[inside] == wanted
        rows[n - 1] = np.where(is_found, places, -1)
        rows[n - 1, lengths < n] = -2
    return rows


def analyse(
    models: Sequence[tuple[str, Any]],
    text: str | Path,
    *,
    seed: int = 1,
    split: str = "valid",
    num_tokens: int = 1_000_000,
    statistics: Mapping[str, Mapping[str, Any]] | None = None,
) -> Report:
    """Show what n-gram models hold by order, and what of a text they have not seen.

    Args, beside those of `seqtool.analysis`:
        models: names and loaded n-gram models.
        text: a file or directory of text, or a prepared corpus, which they have not read.
        statistics: what the header of a model tells of its counts, by the model's name: from there
            the n-grams that were counted once.
    """
    from seqtool.lm.ngram.table import order_sizes

    rows: list[list[Cell]] = []
    unseen: list[Series] = []
    used: list[Series] = []
    report = Report("Sparsity and size of n-gram models", values={"models": {}})
    report.charts = [
        Chart(title, "bars", "order", "tokens (percent)", series)
        for title, series in (
            ("N-grams of the text that are not in the model", unseen),
            ("The order that each probability came from", used),
        )
    ]
    for name, model in models:
        if getattr(model, "kind", "") != "ngram":
            raise ConfigError(f"{name} is no n-gram model", hint="name one that ngram train made")
        table = model.table
        arrays = {key: array.nbytes for key, array in table.arrays().items()}
        sizes = order_sizes(arrays, (statistics or {}).get(name))
        passage = read_passage(model, text, split=split, num_tokens=num_tokens)
        (scores,) = model.score_ids([passage.ids])
        counts = np.bincount(scores.columns["order"], minlength=table.order + 1)[1:]
        sources = (counts / len(passage.ids)).tolist()
        shares = unseen_shares(table, passage.ids)
        orders = [
            {"order": size.order, "types": size.ngrams, "singletons": size.singletons, **share,
             "probabilities_from": source, "bytes": size.bytes}
            for size, share, source in zip(sizes, shares, sources, strict=True)
        ]  # fmt: skip
        report.values["models"][name] = {"tokens": len(passage.ids), "orders": orders}
        for order in orders:
            plain = [order[key] for key in ("order", "types", "singletons")]
            percents = [100 * order[key] for key in PERCENTS]
            rows.append([name, *plain, order["bytes"] / 1e6, *percents])
        numbers = [str(size.order) for size in sizes]
        ngrams, contexts, sources = ([100 * one[key] for one in orders] for key in PERCENTS)
        unseen.append(Series(name, numbers, ngrams))
        used.append(Series(name, numbers, sources))
        report.charts.append(sizes_chart(sizes, name if len(models) > 1 else ""))
        report.remarks.append(
            f"{name}: of the text's {table.order}-grams {ngrams[-1]:.1f}% "
            f"are not in the model, of their contexts {contexts[-1]:.1f}%."
        )
    columns = ["model", "order", "n-grams", "seen once", "MB", "not there (%)"]
    columns += ["contexts not there (%)", "used (%)"]
    report.tables.append(Table("What each order holds, and what it does not", columns, rows))
    return report


def unseen_shares(table: BackoffTable, ids: Ids) -> list[dict[str, float]]:
    """Return, of each order, the shares of a text's n-grams and contexts that the table lacks.

    Counted are the tokens with n - 1 tokens of their sentence before them, `<s>` one of these; at
    order 1 `<unk>` is a word like others, and the context is empty.

    Args:
        table: the model's.
        ids: [T], as `rows_of_ngrams` takes them.
    """
    rows = rows_of_ngrams(table, ids)
    starts = np.concatenate(([True], ids[:-1] == EOS_ID))
    shares = []
    for n in range(1, table.order + 1):
        is_there = rows[n - 1] != -2
        num = max(1, int(is_there.sum()))
        before = np.zeros(len(ids), bool)
        if n > 1:
            before[1:] = rows[n - 2, :-1] < 0
            before[starts] = False  # `<s>` is always there
        ngrams, contexts = (rows[n - 1] == -1).sum(), (before & is_there).sum()
        shares.append(
            {"ngrams_unseen": float(ngrams / num), "contexts_unseen": float(contexts / num)}
        )
    return shares


def sizes_chart(sizes: Sequence[OrderSize], name: str = "") -> Chart:
    """Return the bytes of each order of an n-gram model, and of all orders up to it."""
    orders = [f"{size.order}: {size.ngrams:,} n-grams" for size in sizes]
    series = [
        Series("this order", orders, [size.bytes / 1e6 for size in sizes]),
        Series("all orders up to it", orders, [size.total_bytes / 1e6 for size in sizes]),
    ]
    title = f"Size by order, {name}" if name else "Size by order"
    return Chart(title, "bars", "order", "size (MB)", series)
