"""Forms as their characters: the filters as torch has them, and symbols by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqtool.text.characters import (
    BEGIN,
    END,
    MAX_CHARACTERS,
    Characters,
    Convolution,
    filter_shapes,
    padded,
)
from seqtool.text.network import CharacterNetwork

FORMS = st.text(st.characters(exclude_categories=["Cs", "Zs", "Cc"]), max_size=40)


@pytest.mark.parametrize("width", [1, 3, 5])
@settings(max_examples=20)
@given(forms=st.lists(FORMS, min_size=1, max_size=6))
def test_filters_are_those_of_torch(width: int, forms: list[str]) -> None:
    torch.manual_seed(width)
    characters = Characters.build({"abcdefg": 2, "ÄÖ": 2}, 2)
    network = CharacterNetwork(characters.num_symbols, 3, 7, width)
    symbols, lengths = characters.rows(forms)
    arrays = {f"characters.{name}": w.numpy() for name, w in network.state_dict().items()}
    shapes = filter_shapes(characters.num_symbols, 3, 7, width)
    assert {name: array.shape for name, array in arrays.items()} == shapes
    found = Convolution(arrays).vectors(symbols, lengths)
    with torch.no_grad():
        expected = network(torch.from_numpy(padded(symbols, lengths)).long()).numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_characters_by_hand() -> None:
    characters = Characters.build({"ab": 3, "ac": 1}, 2)
    assert characters.known == "ab"
    symbols, lengths = characters.rows(["ba", "B"])
    known = characters.num_symbols - 2
    # a capital that is not known is one of its class, the first after END
    assert symbols.tolist() == [BEGIN, known + 1, known, END, BEGIN, END + 1, END]
    assert lengths.tolist() == [4, 3]
    long = "".join(map(chr, range(0x100, 0x100 + 2 * MAX_CHARACTERS)))
    known_all = Characters(long)
    ends = known_all.rows([long[: MAX_CHARACTERS // 2] + long[-MAX_CHARACTERS // 2 :]])[0]
    assert known_all.rows([long])[0].tolist() == ends.tolist()
