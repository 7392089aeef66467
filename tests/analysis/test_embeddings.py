from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_recurrence import WORDS, make_model

from seqtool.analysis.embeddings import VectorTable, plane_of, vector_tables
from seqtool.lm.mixture.model import MixedModel
from seqtool.parsing.encoding.features import SymbolTable
from seqtool.treebank.sentence import FORM, UPOS


def test_vectors_of_a_language_model_are_its_embedding() -> None:
    model = make_model()
    (table,) = vector_tables(model)
    assert table.names == ["<unk>", "</s>", *WORDS]
    np.testing.assert_array_equal(
        table.vectors, model.network.embedding.weight.detach().double().numpy()
    )
    assert len(vector_tables(MixedModel([make_model(), make_model(seed=2)]))) == 2


def test_every_symbol_of_a_parser_has_its_own_row() -> None:
    columns = (FORM, UPOS)
    lexical = SymbolTable(columns, {"form": ("the", "dog"), "suffix1": ("e", "g")})
    tags = SymbolTable(columns, {"upos": ("DET", "NOUN")})
    weights = {
        "lexical.weight": np.arange(2 * lexical.num_symbols).reshape(-1, 2),
        "tags.weight": np.arange(2 * tags.num_symbols).reshape(-1, 2),
        "labels.weight": np.arange(6).reshape(-1, 2),
    }
    parser: Any = SimpleNamespace(
        types=SimpleNamespace(lexical=lexical, tags=tags),
        labels=SimpleNamespace(names=("det", "root")),
        weights=weights,
    )
    found = {table.name: table for table in vector_tables(parser)}
    assert list(found) == ["form", "suffix1", "upos", "labels"]
    for symbols, weight in ((lexical, "lexical"), (tags, "tags")):
        for group in symbols.groups:
            for name, number in symbols.ids_of(group).items():
                place = found[group].names.index(name)
                assert (
                    found[group].vectors[place].tolist()
                    == weights[f"{weight}.weight"][number].tolist()
                )
    # row 0 is of no label at all
    assert found["labels"].vectors.tolist() == [[2, 3], [4, 5]]


def test_the_nearest_by_hand() -> None:
    table = VectorTable(
        "words", ["a", "b", "c", "o"], np.array([[1, 0], [2, 2], [-1, 0], [0, 0.0]])
    )
    assert table.nearest(0, 9) == [("b", pytest.approx(2**-0.5)), ("o", 0.0), ("c", -1.0)]
    assert [cosine for _, cosine in table.nearest(3, 3)] == [0, 0, 0]


@given(st.integers(2, 8), st.integers(1, 6), st.integers(0, 99))
def test_the_plane_is_that_of_the_largest_variance(num: int, width: int, seed: int) -> None:
    """By the eigenvalues of the covariance matrix."""
    vectors = np.random.default_rng(seed).normal(size=(num, width))
    points, shares = plane_of(vectors)
    variances = np.sort(np.linalg.eigvalsh(np.cov(vectors.T, bias=True).reshape(width, width)))[
        ::-1
    ]
    found = (points**2).mean(axis=0)
    expected = np.pad(variances, (0, 2))[:2]
    np.testing.assert_allclose(found, expected, atol=1e-9)
    np.testing.assert_allclose(shares, expected / variances.sum(), atol=1e-9)
    np.testing.assert_allclose(points.mean(axis=0), 0, atol=1e-9)
    again, _ = plane_of(vectors)
    np.testing.assert_array_equal(points, again)
