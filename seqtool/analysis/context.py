"""How far back a language model looks: its surprisal when the context is cut.

    the whole text   ... the printer was out of paper , so she bought the printer  ?
    k = 3                                                       bought the printer  ?

The model begins with the last k tokens before the target and nothing else: a network in its initial
state, an n-gram model without a context, not even `<s>`. So the curve of an n-gram model of order n
is constant from k = n - 1 on, that of a window from its width on; that of a recurrent network falls
as far as it looks back (Khandelwal et al. 2018, "Sharp nearby, fuzzy far away").
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from seqtool.analysis.passage import (
    Passage,
    check_models,
    read_passage,
    read_sentence,
    surprisals,
    unknown_remarks,
)
from seqtool.analysis.report import Cell, Chart, Report, Series, Table
from seqtool.core.arrays import Ids
from seqtool.core.errors import ConfigError, DataError, counted
from seqtool.core.units import LN_2
from seqtool.core.vocabulary import EOS, EOS_ID, UNK_ID

LENGTHS = (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50)
BATCH = 64  # targets at a time: of each, the model gives a probability for every symbol
REACHED = 0.02  # bits: what more context changes by less is not looked at


def cut_state(model: Any, num: int) -> Any:
    """Return `num` hypotheses that have read nothing, not even the beginning of a sentence.

    Raises:
        ConfigError: a model whose context cannot be cut, as that of a cache.
    """
    if model.kind == "mixture":
        from seqtool.lm.mixture.model import MixedState

        return MixedState(tuple(cut_state(part, num) for part in model.parts))
    if model.kind in ("ngram", "class-ngram"):  # no row of any order: no context
        return np.full((num, model.order - 1), -1, np.int32)
    if model.kind == "snm":  # no word of the history, not even `<s>`
        return np.full_like(model.start(num), -1)
    if model.kind == "neural-lm":  # the next token is the first that it reads
        return dataclasses.replace(model.start(num), cells=model.network.initial_state(num))
    raise ConfigError(
        f"the context of a {model.kind} cannot be cut", hint="name an n-gram model or a network"
    )


def cut_surprisals(model: Any, contexts: Ids, targets: Ids) -> npt.NDArray[np.float64]:
    """Return the surprisal [B] of targets [B] after just these contexts [B, k], in bits."""
    parts = [np.zeros(0)]
    for begin in range(0, len(targets), BATCH):
        chosen = targets[begin : begin + BATCH]
        state = cut_state(model, len(chosen))
        for column in contexts[begin : begin + BATCH].T:
            state = model.advance(state, np.ascontiguousarray(column))
        log_probs_BV = np.asarray(model.next_log_probs(state), np.float64)
        parts.append(0.0 - log_probs_BV[np.arange(len(chosen)), chosen] / LN_2)
    return np.concatenate(parts)


def analyse(
    models: Sequence[tuple[str, Any]],
    text: str | Path | None,
    *,
    seed: int = 1,
    split: str = "valid",
    num_tokens: int = 20_000,
    num_targets: int = 300,
    lengths: Sequence[int] = LENGTHS,
    sentences: Sequence[str] = (),
) -> Report:
    """Measure the surprisal of targets of a text when their contexts are cut to k tokens.

    Args, beside those of `seqtool.analysis`:
        models: names and loaded language models, side by side.
        text: a file or directory of text, or a prepared corpus; None for the sentences alone.
        num_targets: tokens, `</s>` too, whose surprisal is taken; the more, the surer.
        lengths: k, in tokens.
        sentences: of these, the surprisal of the last token by the words before it that the model
            sees; two that differ far before it show whether the model knows.
    """
    check_models(models, text, sentences)
    lengths = sorted(set(lengths))
    if not lengths or lengths[0] < 1 or num_targets < 1:
        raise ConfigError("lengths and targets are at least 1", hint="give larger numbers")
    report = Report("How far back a model looks")
    if text is not None:
        passages = {
            name: read_passage(model, text, split=split, num_tokens=num_tokens)
            for name, model in models
        }
        _add_text(report, models, passages, text, seed, num_targets, lengths)
        report.remarks += unknown_remarks(passages)
    if sentences:
        _add_sentences(report, models, sentences)
    return report


def _add_text(
    report: Report,
    models: Sequence[tuple[str, Any]],
    passages: Mapping[str, Passage],
    text: str | Path,
    seed: int,
    num_targets: int,
    lengths: Sequence[int],
) -> None:
    """Add the curves of models over a text; see `analyse`."""
    first, reference = max(lengths), models[0][0]
    series: list[Series] = []
    columns = ["tokens of context"]
    rows: list[list[Cell]] = [[length] for length in [*map(str, lengths), "all"]]
    report.values |= {"lengths": list(lengths), "models": {}}
    for name, model in models:
        passage = passages[name]
        num = len(passage.ids)
        if num <= first:
            what = f"the text has {num:,} tokens, but {first} before a target are cut"
            raise DataError(what, hint="give a longer text, or smaller lengths", path=text)
        stream = np.concatenate((np.array([EOS_ID], np.int32), passage.ids))
        places = _drawn(first, num, num_targets, seed)
        whole = float(surprisals(model, passage)[places].mean())
        means = []
        for length in lengths:
            # the target at place t of the passage stands at t + 1 of the stream
            contexts = stream[places[:, None] + np.arange(1 - length, 1)]
            means.append(float(cut_surprisals(model, contexts, passage.ids[places]).mean()))
        series.append(Series(name, [float(length) for length in lengths], means))
        columns += [f"{name} (bits)", "perplexity"]
        for row, bits in zip(rows, [*means, whole], strict=True):
            row += [bits, 2.0**bits]
        if passage.tokens != passages[reference].tokens:
            report.remarks.append(
                f"{name} reads other tokens than {reference}, so their bits do not compare."
            )
        pairs = zip(lengths, means, strict=True)
        reach = next(k for k, bits in pairs if bits <= means[-1] + REACHED)
        report.remarks.append(
            f"{name}: with {counted(reach, 'token')} it predicts as well as with {first}, "
            f"within {REACHED} bits; with the whole text before, {whole:.3f} bits a token. "
            f"Measured on {counted(len(places), 'token')} of {num:,}."
        )
        report.values["models"][name] = {
            "surprisal_bits": means,
            "whole_text_bits": whole,
            "targets": len(places),
            "reach": reach,
        }
    report.tables.append(Table("Mean surprisal by tokens of context", columns, rows))
    title = "Surprisal by how much of the context a model sees"
    x_label, y_label = "tokens of context (k)", "mean surprisal (bits)"
    note = (
        "The context is cut to its last k tokens. Where a curve is flat, the model does not look."
    )
    chart = Chart(title, "lines", x_label, y_label, series, x_scale="log", note=note)
    report.charts.append(chart)


def _drawn(first: int, end: int, num: int, seed: int) -> npt.NDArray[np.intp]:
    """Return places from `first` to `end` - 1, rising; all of them where there are no more."""
    if end - first <= num:
        return np.arange(first, end)
    chosen = np.random.default_rng(seed).choice(end - first, num, replace=False)
    return np.sort(chosen) + first


def _add_sentences(
    report: Report, models: Sequence[tuple[str, Any]], sentences: Sequence[str]
) -> None:
    """Add the curves of sentences' last tokens."""
    series: list[Series] = []
    rows: list[list[Cell]] = []
    values: list[dict[str, Any]] = []
    for number, sentence in enumerate(sentences, start=1):
        for name, model in models:
            passage = read_sentence(model, sentence)
            bits = last_token_curve(model, passage)
            label = f"sentence {number}" if len(models) == 1 else f"{name}, sentence {number}"
            series.append(Series(label, [float(k) for k in range(1, len(bits) + 1)], bits))
            target = passage.tokens[-2]
            rows.append([name, number, sentence, target, bits[0], bits[-1]])
            values.append({"model": name, "sentence": sentence, "target": target, "bits": bits})
            places = np.flatnonzero(passage.ids == UNK_ID).tolist()
            if unknown := dict.fromkeys(passage.tokens[place] for place in places):
                report.remarks.append(f"{name} does not know {', '.join(unknown)}.")
    which = " ".join(f"Sentence {n}: “{text.strip()}”." for n, text in enumerate(sentences, 1))
    title, x_label = "Surprisal of the last word of each sentence", "tokens before it that the"
    note = f"{which} The rightmost point is the whole sentence, with {EOS} before it."
    chart = Chart(title, "lines", f"{x_label} model sees", "surprisal (bits)", series, note=note)
    report.charts.append(chart)
    columns = ["model", "number", "sentence", "target", "after one token (bits)"]
    report.tables.append(
        Table("Sentences and their last words", [*columns, "after all (bits)"], rows)
    )
    report.values["sentences"] = values


def last_token_curve(model: Any, passage: Passage) -> list[float]:
    """Return the surprisal of a sentence's last token after 1, 2 ... tokens, in bits.

    The last value is after all of the sentence and the `</s>` before it.

    Raises:
        DataError: the sentence has no token.
    """
    ids = np.concatenate((np.array([EOS_ID], np.int32), passage.ids[:-1]))
    if len(ids) < 2:
        raise DataError("a sentence has no words", hint="write one with a word")
    target = ids[-1:]
    return [
        float(cut_surprisals(model, ids[None, len(ids) - 1 - k : len(ids) - 1], target)[0])
        for k in range(1, len(ids))
    ]
