"""The next word: its probability under a model, and where the probability comes from.

Of an n-gram model this is the order of the longest n-gram that ends with the word; of a mixture,
what each part gives the word, and the part's share of the sum; of a mixture's n-gram model both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from seqtool.analysis.report import Cell, Report, Table
from seqtool.core.arrays import Doubles, Ids
from seqtool.core.units import LN_2
from seqtool.lm.sampling import begin, largest, read_prompt

REST = "all other words"


def matched_orders(model: Any, state: Any, words: Ids) -> list[int]:
    """Return the order of the longest n-gram that gives each word [K] in a state [1, N - 1]."""
    orders = np.ones(len(words), np.int64)
    for n, (context, level) in enumerate(
        zip(state[0].tolist(), model.table.levels[1:], strict=True), start=2
    ):
        if context >= 0:
            begin, end = level.begins[context : context + 2].tolist()
            orders[np.isin(words, level.words[begin:end])] = n
    return [int(order) for order in orders]


def next_words(
    model: Any, name: str, prompt: str, *, top: int = 10, allow_unknown: bool = False
) -> Report:
    """Return the most probable next tokens after a prompt.

    The probabilities of the table, with the row of all other words, sum to one.

    Args:
        model: any language model.
        name: of the model.
        prompt: the text before; a newline in it ends a sentence, and none at all is the beginning.
        top: how many tokens are shown, 1 or more.
        allow_unknown: read unknown words of the prompt as `<unk>`.

    Raises:
        PromptError: a prompt that the model cannot read.
    """
    ids, _ = read_prompt(model.tokenizer, prompt, allow_unknown=allow_unknown)
    state = begin(model, ids, 1)
    probs: Doubles = np.exp(np.asarray(model.next_log_probs(state)[0], np.float64))
    best: Ids = largest(probs, top).astype(np.int32)
    words = model.tokenizer.vocabulary.decode(best)
    columns, sources = _sources(model, state, best)
    rows: list[list[Cell]] = []
    tokens: list[dict[str, Any]] = []
    for i, (word, probability) in enumerate(zip(words, probs[best].tolist(), strict=True)):
        bits = -math.log(probability) / LN_2 if probability else math.inf
        rows.append([word, probability, bits, *(cells[i] for _, cells in columns)])
        figures = {"probability": probability, "surprisal_bits": bits}
        tokens.append({"token": word, **figures, **sources[i]})
    rest = max(0.0, 1.0 - float(probs[best].sum()))
    rows.append([REST, rest, *[None] * (1 + len(columns))])
    shown = prompt.replace("\n", " / ") or "the beginning of a sentence"
    title = f"What comes after: {shown}"
    names = ["token", "probability", "surprisal (bits)", *(name for name, _ in columns)]
    values = {"model": name, "prompt": prompt, "tokens": tokens, "rest": rest}
    return Report(title, tables=[Table(f"{title} ({name})", names, rows)], values=values)


def _sources(
    model: Any, state: Any, words: Ids
) -> tuple[list[tuple[str, Sequence[Cell]]], list[dict[str, Any]]]:
    """Return where the probability of each of K words comes from, in the state of one hypothesis.

    Returns:
        Columns of a table, (name, [K] cells), and of each word what JSON has.
    """
    if model.kind == "ngram":
        orders = matched_orders(model, state, words)
        return [("order", orders)], [{"order": order} for order in orders]
    sources_of_words: list[dict[str, Any]] = [{} for _ in words]
    if model.kind != "mixture":
        return [], sources_of_words
    columns: list[tuple[str, Sequence[Cell]]] = []
    total = np.exp(np.asarray(model.next_log_probs(state)[0], np.float64))[words]
    for number, (part, inner, weight, name) in enumerate(
        zip(model.parts, state.parts, model.weights, model.names, strict=True)
    ):
        of_part = model.in_part(number, words)
        probs = np.exp(np.asarray(part.next_log_probs(inner)[0], np.float64))[of_part]
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = 100 * weight * probs / total
        more, sources = _sources(part, inner, of_part)
        columns += [(f"{weight:.3g} of {name}", probs.tolist()), ("share (%)", shares.tolist())]
        columns += more
        for i, one in enumerate(sources_of_words):
            figures = {"probability": float(probs[i]), "share_percent": float(shares[i])}
            of_word = {"model": name, "weight": weight, **figures, **sources[i]}
            one.setdefault("parts", []).append(of_word)
    return columns, sources_of_words
