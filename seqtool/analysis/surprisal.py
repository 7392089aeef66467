"""Surprisal word by word: profiles of sentences, and where one model is better than another.

The surprisal of a token is -log2 of its probability given all of the text before it. Means are over
tokens, `</s>` counted, in bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from seqtool.analysis.passage import (
    Passage,
    check_asked,
    check_language_models,
    read_passage,
    read_sentence,
    surprisals,
    unknown_remarks,
    word_classes,
)
from seqtool.analysis.report import Cell, Chart, Report, Series, Table
from seqtool.core.arrays import Doubles
from seqtool.core.errors import ConfigError
from seqtool.core.vocabulary import EOS, UNK, UNK_ID

TITLE = "Surprisal word by word"
# name -> the largest value of the band; None for all that is above
COUNT_BANDS = {"0": 0, "1 to 9": 9, "10 to 99": 99, "100 to 999": 999, "1,000 and more": None}
DISTANCE_BANDS = {"1 to 10": 10, "11 to 100": 100, "101 to 1,000": 1000, "more than 1,000": None}
NEVER = "not before"
WORDS_SHOWN = 12  # of those where one model gains most
PROFILED = 2  # sentences of the text that are drawn where none is given
LONGEST = 25  # tokens of these
Profile = tuple[list[str], dict[str, list[float]]]  # tokens, and by model the bits of each


def analyse(
    models: Sequence[tuple[str, Any]],
    text: str | Path | None,
    *,
    seed: int = 1,
    split: str = "valid",
    num_tokens: int = 20_000,
    sentences: Sequence[str] = (),
    tagger: Any = None,
) -> Report:
    """Compare the surprisal of models on the same tokens.

    Args:
        models: names and loaded language models of the same tokens, side by side.
        text: a file or directory of text, or a prepared corpus; None for the sentences alone.
        seed: nothing is drawn; every analysis has one.
        split: of a prepared corpus.
        num_tokens: that are read of the text, at most.
        sentences: whose profiles are drawn; the first short ones of the text where none is given.
        tagger: a loaded tagger, which gives word classes.

    Raises:
        ConfigError: no language model, or models of different tokens.
        DataError: a text that cannot be used.
    """
    check_language_models(models)
    check_asked(text, sentences)
    drawn = [_of_sentence(models, sentence) for sentence in sentences]
    if text is None:
        profiles, shown = _profiles(drawn)
        return Report(TITLE, charts=profiles, values={"sentences": shown})
    passage = read_passage(models[0][1], text, split=split, num_tokens=num_tokens)
    bits: dict[str, Doubles] = {}
    unknown: dict[str, int] = {}
    for name, model in models:
        own = read_passage(model, text, split=split, num_tokens=num_tokens)
        if own.tokens != passage.tokens:
            raise _other_tokens(name, models[0][0], "text")
        bits[name] = surprisals(model, own)
        unknown[name] = int((own.ids == UNK_ID).sum())
    bands = dict([_count_bands(models, passage)])
    bands["tokens since the word was last there"] = _distance_bands(passage)
    if tagger is not None:
        if models[0][1].tokenizer.unit != "word":
            raise ConfigError("word classes are of words", hint="leave --tagger out")
        bands["word class"] = word_classes(tagger, passage)
    tables = [_whole(bits, len(passage.tokens))]
    charts = []
    values: dict[str, Any] = {
        "tokens": len(passage.tokens),
        "mean_bits": {name: float(found.mean()) for name, found in bits.items()},
        "bands": {},
    }
    for what, band_of in bands.items():
        table, chart, found = _by_band(what, band_of, bits)
        tables.append(table)
        charts.append(chart)
        values["bands"][what] = found
    remarks = []
    if len(models) > 1:
        if counting := _counting_model(models):
            remarks.append(f"The counts in the training text are those of {counting[0]}.")
        remarks += unknown_remarks(unknown)
        differences, gains = _where_one_gains(bits, passage)
        tables += differences
        remarks += gains
    if not sentences:
        short = [at for at in passage.sentences() if 2 < at.stop - at.start <= LONGEST]
        drawn = [
            (passage.tokens[at], {name: found[at].tolist() for name, found in bits.items()})
            for at in short[:PROFILED]
        ]
    profiles, shown = _profiles(drawn)
    values["sentences"] = shown
    return Report(TITLE, remarks, tables, [*profiles, *charts], values)


def _other_tokens(name: str, first: str, what: str) -> ConfigError:
    return ConfigError(
        f"{name} and {first} read the {what} as different tokens",
        hint="compare models of one unit, or their bits per byte with eval-ppl",
    )


def _whole(bits: dict[str, Doubles], num: int) -> Table:
    rows: list[list[Cell]] = [
        [name, num, float(found.mean()), 2.0 ** float(found.mean())] for name, found in bits.items()
    ]
    return Table("The whole text", ["model", "tokens", "surprisal (bits)", "perplexity"], rows)


def _counting_model(models: Sequence[tuple[str, Any]]) -> tuple[str, Any] | None:
    """Return the first model that has the counts of its training text, with its name; or None."""
    return next((each for each in models if any(each[1].tokenizer.vocabulary.counts)), None)


def _count_bands(models: Sequence[tuple[str, Any]], passage: Passage) -> tuple[str, list[str]]:
    """Return what is counted, and the band of each token by its count in the training text.

    The counts are those of the first model that has some: an ARPA file tells none. Where none has,
    tokens are counted in this text. A word that stands for `<unk>` was never counted.
    """
    if counting := _counting_model(models):
        vocabulary = counting[1].tokenizer.vocabulary
        counts = dict(zip(vocabulary.symbols, vocabulary.counts, strict=True)) | {UNK: 0}
        what = "count in the training text"
    else:
        counts, what = Counter(passage.tokens), "count in this text"
    return what, [_band(counts.get(token, 0), COUNT_BANDS) for token in passage.tokens]


def _distance_bands(passage: Passage) -> list[str]:
    last: dict[str, int] = {}
    bands = []
    for place, token in enumerate(passage.tokens):
        before = last.get(token)
        bands.append(NEVER if before is None else _band(place - before, DISTANCE_BANDS))
        last[token] = place
    return bands


def _band(value: int, bands: dict[str, int | None]) -> str:
    return next(name for name, most in bands.items() if most is None or value <= most)


def _by_band(
    what: str, band_of: Sequence[str], bits: dict[str, Doubles]
) -> tuple[Table, Chart, dict[str, Any]]:
    """Return the mean surprisal of each band, as table, chart and values."""
    present = set(band_of)
    known = [name for name in (NEVER, *COUNT_BANDS, *DISTANCE_BANDS) if name in present]
    names = list(dict.fromkeys([*known, *sorted(present)]))
    labels = np.asarray(band_of, object)
    rows: list[list[Cell]] = []
    means: dict[str, list[float]] = {name: [] for name in bits}
    for band in names:
        chosen = labels == band
        for name, found in bits.items():
            means[name].append(float(found[chosen].mean()))
        share = 100 * float(chosen.mean())
        rows.append([band, int(chosen.sum()), share, *(means[name][-1] for name in bits)])
    columns = [what, "tokens", "share (percent)", *(f"{name} (bits)" for name in bits)]
    chart = Chart(
        f"Surprisal by {what}",
        "bars",
        what,
        "mean surprisal (bits)",
        [Series(name, names, means[name]) for name in bits],
    )
    values = {
        band: {"tokens": row[1], **{name: means[name][i] for name in bits}}
        for i, (band, row) in enumerate(zip(names, rows, strict=True))
    }
    return Table(f"Surprisal by {what}", columns, rows), chart, values


def _where_one_gains(bits: dict[str, Doubles], passage: Passage) -> tuple[list[Table], list[str]]:
    """Return, of each model but the first, the words that it predicts better or worse than that."""
    first, *others = bits
    places: dict[str, list[int]] = {}
    for place, token in enumerate(passage.tokens):
        places.setdefault(token, []).append(place)
    tables, remarks = [], []
    for name in others:
        gain = bits[first] - bits[name]
        sums = {token: _finite_sum(gain[at]) for token, at in places.items()}
        ordered = sorted(sums, key=lambda token: (-sums[token], token))
        better = int((gain > 0).sum())
        mean = float(gain.mean())
        remarks.append(
            f"{name} gives {better:,} of {len(gain):,} tokens more probability than {first} does, "
            f"and needs {abs(mean):.3f} bits a token {'less' if mean > 0 else 'more'}."
        )
        for better_one, worse_one, sign in ((name, first, 1), (first, name, -1)):
            rows: list[list[Cell]] = [
                [
                    token,
                    len(places[token]),
                    float(bits[first][places[token]].mean()),
                    float(bits[name][places[token]].mean()),
                    sign * sums[token],
                ]
                for token in ordered[::sign][:WORDS_SHOWN]
                if sign * sums[token] > 0
            ]
            title = f"Words that {better_one} predicts better than {worse_one}"
            columns = ["word", "tokens", f"{first} (bits)", f"{name} (bits)", "saved in all (bits)"]
            tables.append(Table(title, columns, rows))
    return tables, remarks


def _finite_sum(values: npt.NDArray[np.float64]) -> float:
    """Return the sum, in which no probability on both sides is no difference."""
    return float(np.nan_to_num(values, nan=0.0).sum())


def _of_sentence(models: Sequence[tuple[str, Any]], sentence: str) -> Profile:
    """Return the tokens of a sentence, and the surprisal of each by each model."""
    found: dict[str, list[float]] = {}
    tokens: list[str] = []
    for name, model in models:
        own = read_sentence(model, sentence)
        if tokens and own.tokens != tokens:
            raise _other_tokens(name, models[0][0], "sentence")
        tokens, found[name] = own.tokens, surprisals(model, own).tolist()
    return tokens, found


def _profiles(drawn: Sequence[Profile]) -> tuple[list[Chart], list[dict[str, Any]]]:
    """Return a chart for each sentence, a bar for each word and model, and what is drawn."""
    charts, values = [], []
    for number, (tokens, found) in enumerate(drawn, start=1):
        names = numbered(tokens)
        shown = " ".join(tokens[:-1] if tokens[-1] == EOS else tokens)
        charts.append(
            Chart(
                f"Surprisal of each word, sentence {number}",
                "bars",
                "word",
                "surprisal (bits)",
                [Series(name, names, bits) for name, bits in found.items()],
                note=shown,
            )
        )
        values.append({"tokens": tokens, "bits": found})
    return charts, values


def numbered(tokens: Sequence[str]) -> list[str]:
    """Return tokens as names of a chart, all different: the second "the" is "the (2)"."""
    seen: dict[str, int] = {}
    names = []
    for token in tokens:
        seen[token] = seen.get(token, 0) + 1
        names.append(token if seen[token] == 1 else f"{token} ({seen[token]})")
    return names
