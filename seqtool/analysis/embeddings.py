"""What stands close together in a table of vectors: words, tags, labels of any model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqtool.analysis.report import Cell, Chart, Report, Series, Table
from seqtool.core.arrays import Doubles
from seqtool.core.errors import ConfigError, did_you_mean
from seqtool.parsing.model import LEXICAL

COMMONEST = 200  # of which words are drawn where none is given
DRAWN = 8
MAP_NOTE = (
    "Two dimensions of many: what is far apart here is so in the table; what is close here need "
    "not be."
)


@dataclass(frozen=True)
class VectorTable:
    """Vectors with names.

    Attributes:
        name: of the table.
        names: [N], the most frequent first, as models number them.
        vectors: [N, D].
    """

    name: str
    names: list[str]
    vectors: Doubles

    def nearest(self, place: int, num: int) -> list[tuple[str, float]]:
        """Return the names whose vectors point most alike, with the cosine, the nearest first.

        A vector of zeros is alike to none: its cosines are 0.
        """
        lengths = np.linalg.norm(self.vectors, axis=1)
        unit = self.vectors / np.where(lengths > 0, lengths, 1.0)[:, None]
        cosines = unit @ unit[place]
        order = [i for i in np.argsort(-cosines, kind="stable").tolist() if i != place]
        return [(self.names[i], float(cosines[i])) for i in order[:num]]


def vector_tables(model: Any) -> list[VectorTable]:
    """Return the tables of a model whose rows have names; none for an n-gram model.

    Of a language model these are the words' vectors on the way in; of a parser or tagger those of
    each group of symbols (forms, suffixes, tags ...), and of the labels of arcs. A mixture has
    those of its parts.
    """
    if hasattr(model, "parts"):
        return [table for part in model.parts for table in vector_tables(part)]
    if hasattr(model, "network"):
        weight = model.word_vectors().astype(np.float64)
        return [VectorTable("words", list(model.tokenizer.vocabulary.symbols), weight)]
    if hasattr(model, "tagger") and hasattr(model, "parser"):  # a pipeline
        return [*vector_tables(model.detailed), *vector_tables(model.tagger)]
    tables = []
    if hasattr(model, "types") and LEXICAL in model.weights:  # a parser, not of sparse features
        for symbols, weight in ((model.types.lexical, "lexical"), (model.types.tags, "tags")):
            tables += _groups(symbols, model.weights[f"{weight}.weight"])
        labels = list(model.labels.names)
        # label number 0 means none
        vectors = np.asarray(model.weights["labels.weight"], np.float64)[1 : 1 + len(labels)]
        tables.append(VectorTable("labels", labels, vectors))
    elif hasattr(model, "forms"):  # a tagger
        tables += _groups(model.forms.symbols, model.weights["lexical.weight"])
    return tables


def _groups(symbols: Any, weight: Any) -> list[VectorTable]:
    """Return a table for each group of symbols of a parser or tagger."""
    tables = []
    for group, names in symbols.groups.items():
        unknown, last = symbols.range_of(group)
        vectors = np.asarray(weight, np.float64)[unknown + 1 : last + 1]
        if len(names):
            tables.append(VectorTable(group, list(names), vectors))
    return tables


def plane_of(vectors: Doubles) -> tuple[Doubles, Doubles]:
    """Return vectors in the plane of their two largest principal components.

    Args:
        vectors: [N, D].

    Returns:
        The places, [N, 2], and the shares of the variance that the two components have, [2]. The
        sign of a component is that which makes its largest entry positive.
    """
    centred = vectors - vectors.mean(axis=0)
    left, sizes, right = np.linalg.svd(centred, full_matrices=False)
    if len(sizes) < 2:
        left, sizes = np.pad(left, ((0, 0), (0, 1))), np.pad(sizes, (0, 1))
        right = np.pad(right, ((0, 1), (0, 0)))
    signs = np.sign(right[np.arange(2), np.argmax(np.abs(right[:2]), axis=1)])
    total = float((sizes**2).sum()) or 1.0
    return left[:, :2] * sizes[:2] * np.where(signs == 0, 1, signs), sizes[:2] ** 2 / total


def analyse(
    models: Sequence[tuple[str, Any]],
    *,
    seed: int = 1,
    table: str = "",
    words: Sequence[str] = (),
    num_nearest: int = 6,
    num_mapped: int = 60,
) -> Report:
    """Show the nearest names of some, and a map of the commonest.

    Args, beside those of `seqtool.analysis`:
        table: of vectors; the first of each model where none is given.
        words: whose nearest are shown; some of the commonest, drawn, where none is given.
        num_nearest: how many of them.
        num_mapped: names on the map: those given and their nearest, then the commonest.
    """
    report = Report("Vectors of words, tags and labels")
    for name, model in models:
        known = {one.name: one for one in vector_tables(model)}
        if not known:
            raise ConfigError(f"{name} has no vectors", hint="name a network, a parser or a tagger")
        if table and table not in known:
            hint = did_you_mean(table, known, otherwise=f"choose one of: {', '.join(known)}")
            raise ConfigError(f"{name} has no table of {table!r}", hint=hint)
        chosen = known[table] if table else next(iter(known.values()))
        places = {one: place for place, one in enumerate(chosen.names)}
        letters = [one for one in chosen.names if one[:1].isalpha()]  # marks tell little
        for word in words:
            if word not in places:
                hint = did_you_mean(word, places, otherwise="name another, or another --table")
                what = f"{name} has no vector of {word!r} among its {chosen.name}"
                raise ConfigError(what, hint=hint)
        asked = list(words) or _drawn(letters[:COMMONEST] or chosen.names, seed)
        nearest = {one: chosen.nearest(places[one], num_nearest) for one in asked}
        rows: list[list[Cell]] = [
            [one, ", ".join(f"{other} {cosine:z.2f}" for other, cosine in near)]
            for one, near in nearest.items()
        ]
        title = f"The nearest of {chosen.name}, {name}"
        report.tables.append(Table(title, ["name", "nearest, with their cosine"], rows))
        around = [other for near in nearest.values() for other, _ in near] if words else []
        mapped = list(dict.fromkeys([*asked, *around, *letters]))[: max(num_mapped, len(asked))]
        points, shares = plane_of(chosen.vectors[[places[one] for one in mapped]])
        first, second = (
            f"{which} principal component ({100 * share:.0f}% of the variance)"
            for which, share in zip(("first", "second"), shares.tolist(), strict=True)
        )
        series = [Series("", points[:, 0].tolist(), points[:, 1].tolist(), names=mapped)]
        title = f"A map of {chosen.name}, {name}"
        report.charts.append(Chart(title, "points", first, second, series, note=MAP_NOTE))
        report.remarks.append(
            f"{name}: {len(chosen.names):,} {chosen.name}, {chosen.vectors.shape[1]} numbers each; "
            f"tables: {', '.join(known)}."
        )
        report.values[name] = {
            "table": chosen.name,
            "tables": {one.name: list(one.vectors.shape) for one in known.values()},
            "nearest": {
                one: [{"name": other, "cosine": cosine} for other, cosine in near]
                for one, near in nearest.items()
            },
            "variance_shares": shares.tolist(),
        }
    return report


def _drawn(names: Sequence[str], seed: int) -> list[str]:
    """Return some of the names, in their order."""
    places = np.random.default_rng(seed).permutation(len(names))[:DRAWN]
    return [names[place] for place in sorted(places.tolist())]
