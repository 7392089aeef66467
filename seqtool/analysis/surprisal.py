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

from seqtool.analysis.passage import (
    Passage,
    check_models,
    read_passage,
    read_sentence,
    surprisals,
    unknown_remarks,
    word_classes,
)
from seqtool.analysis.report import Cell, Chart, Report, Series, Table
from seqtool.core.arrays import Doubles
from seqtool.core.errors import ConfigError
from seqtool.core.vocabulary import EOS, UNK

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

    Args, beside those of `seqtool.analysis`:
        models: names and loaded language models of the same tokens, side by side.
        text: a file or directory of text, or a prepared corpus; None for the sentences alone.
        sentences: whose profiles are drawn; the first short ones of the text where none is given.
        tagger: a loaded tagger, which gives word classes.
    """
    check_models(models, text, sentences)
    report = Report("Surprisal word by word")
    profiles = [_of_sentence(models, sentence) for sentence in sentences]
    if text is None:
        _add_profiles(report, profiles)
        return report
    passages = {
        name: read_passage(model, text, split=split, num_tokens=num_tokens)
        for name, model in models
    }
    passage = passages[models[0][0]]
    for name, own in passages.items():
        if own.tokens != passage.tokens:
            raise _other_tokens(name, models[0][0], "text")
    bits = {name: surprisals(model, passages[name]) for name, model in models}
    bands = dict([_count_bands(models, passage)])
    bands["tokens since the word was last there"] = _distance_bands(passage)
    if tagger is not None:
        if models[0][1].tokenizer.unit != "word":
            raise ConfigError("word classes are of words", hint="leave --tagger out")
        bands["word class"] = word_classes(tagger, passage)
    means = {name: float(values.mean()) for name, values in bits.items()}
    rows: list[list[Cell]] = [
        [name, len(passage.tokens), mean, 2.0**mean] for name, mean in means.items()
    ]
    columns = ["model", "tokens", "surprisal (bits)", "perplexity"]
    report.tables.append(Table("The whole text", columns, rows))
    report.values |= {"tokens": len(passage.tokens), "mean_bits": means, "bands": {}}
    if not profiles:
        short = [at for at in passage.sentences() if 2 < at.stop - at.start <= LONGEST]
        profiles = [
            (passage.tokens[at], {name: values[at].tolist() for name, values in bits.items()})
            for at in short[:PROFILED]
        ]
    _add_profiles(report, profiles)
    for what, band_of in bands.items():
        _add_bands(report, what, band_of, bits)
    if len(models) > 1:
        if counting := _counting_model(models):
            report.remarks.append(f"The counts in the training text are those of {counting[0]}.")
        report.remarks += unknown_remarks(passages)
        _add_gains(report, bits, passage)
    return report


def _other_tokens(name: str, first: str, what: str) -> ConfigError:
    return ConfigError(
        f"{name} and {first} read the {what} as different tokens",
        hint="compare models of one unit, or their bits per byte with eval-ppl",
    )


def _counting_model(models: Sequence[tuple[str, Any]]) -> tuple[str, Any] | None:
    """Return the first model that has the counts of its training text, with its name; or None."""
    return next((each for each in models if any(each[1].tokenizer.vocabulary.counts)), None)


def _count_bands(models: Sequence[tuple[str, Any]], passage: Passage) -> tuple[str, list[str]]:
    """Return what is counted, and the band of each token by its count in the training text.

    Where no model has counts (an ARPA file), tokens are counted in this text. A word that stands
    for `<unk>` was never counted.
    """
    what, counts = "count in this text", dict(Counter(passage.tokens))
    if counting := _counting_model(models):
        vocabulary, what = counting[1].tokenizer.vocabulary, "count in the training text"
        counts = dict(zip(vocabulary.symbols, vocabulary.counts, strict=True)) | {UNK: 0}
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


def _add_bands(report: Report, what: str, band_of: Sequence[str], bits: dict[str, Doubles]) -> None:
    """Add the mean surprisal of each band."""
    known = [name for name in (NEVER, *COUNT_BANDS, *DISTANCE_BANDS) if name in band_of]
    bands = list(dict.fromkeys([*known, *sorted(set(band_of))]))
    labels = np.asarray(band_of, object)
    chosen = {band: labels == band for band in bands}
    means = {
        name: [float(values_N[is_in].mean()) for is_in in chosen.values()]
        for name, values_N in bits.items()
    }
    rows: list[list[Cell]] = [
        [band, int(is_in.sum()), 100 * float(is_in.mean()), *(of[i] for of in means.values())]
        for i, (band, is_in) in enumerate(chosen.items())
    ]
    title = f"Surprisal by {what}"
    columns = [what, "tokens", "share (percent)", *(f"{name} (bits)" for name in bits)]
    series = [Series(name, bands, values) for name, values in means.items()]
    report.tables.append(Table(title, columns, rows))
    report.charts.append(Chart(title, "bars", what, "mean surprisal (bits)", series))
    report.values["bands"][what] = {
        band: {"tokens": num, **dict(zip(bits, values, strict=True))}
        for band, num, _, *values in rows
    }


def _add_gains(report: Report, bits: dict[str, Doubles], passage: Passage) -> None:
    """Add, for each model but the first, the words that it predicts better or worse than that."""
    first, *others = bits
    places: dict[str, list[int]] = {}
    for place, token in enumerate(passage.tokens):
        places.setdefault(token, []).append(place)
    for name in others:
        gain = bits[first] - bits[name]
        # no probability on both sides is no difference
        known = np.nan_to_num(gain, nan=0.0)
        sums = {token: float(known[at].sum()) for token, at in places.items()}
        ordered = sorted(sums, key=lambda token: (-sums[token], token))
        mean = float(gain.mean())
        report.remarks.append(
            f"{name} gives {int((gain > 0).sum()):,} of {len(gain):,} tokens more probability than "
            f"{first} does, and needs {abs(mean):.3f} bits a token "
            f"{'less' if mean > 0 else 'more'}."
        )
        columns = ["word", "tokens", f"{first} (bits)", f"{name} (bits)", "saved in all (bits)"]
        for better, worse, sign in ((name, first, 1), (first, name, -1)):
            shown = [token for token in ordered[::sign][:WORDS_SHOWN] if sign * sums[token] > 0]
            rows: list[list[Cell]] = []
            for token in shown:
                means = (float(bits[one][places[token]].mean()) for one in (first, name))
                rows.append([token, len(places[token]), *means, sign * sums[token]])
            title = f"Words that {better} predicts better than {worse}"
            report.tables.append(Table(title, columns, rows))


def _of_sentence(models: Sequence[tuple[str, Any]], sentence: str) -> Profile:
    """Return the tokens of a sentence, and the surprisal of each by each model."""
    bits: dict[str, list[float]] = {}
    tokens: list[str] = []
    for name, model in models:
        own = read_sentence(model, sentence)
        if tokens and own.tokens != tokens:
            raise _other_tokens(name, models[0][0], "sentence")
        tokens, bits[name] = own.tokens, surprisals(model, own).tolist()
    return tokens, bits


def _add_profiles(report: Report, profiles: Sequence[Profile]) -> None:
    """Add the surprisal of each word of sentences."""
    report.values["sentences"] = [{"tokens": tokens, "bits": bits} for tokens, bits in profiles]
    for number, (tokens, bits) in enumerate(profiles, start=1):
        title = f"Surprisal of each word, sentence {number}"
        names = numbered(tokens)
        series = [Series(name, names, values) for name, values in bits.items()]
        shown = " ".join(tokens[:-1] if tokens[-1] == EOS else tokens)
        report.charts.append(Chart(title, "bars", "word", "surprisal (bits)", series, note=shown))
        rows: list[list[Cell]] = [list(row) for row in zip(tokens, *bits.values(), strict=True)]
        columns = ["word", *(f"{name} (bits)" for name in bits)]
        report.tables.append(Table(title, columns, rows))


def numbered(tokens: Sequence[str]) -> list[str]:
    """Return tokens as names of a chart, all different: the second "the" is "the (2)"."""
    seen: dict[str, int] = {}
    names = []
    for token in tokens:
        seen[token] = seen.get(token, 0) + 1
        names.append(token if seen[token] == 1 else f"{token} ({seen[token]})")
    return names
