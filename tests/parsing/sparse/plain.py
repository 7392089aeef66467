"""Sparse features in plain Python, without arrays of places or compiled code."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seqtool.parsing.encoding.features import shape
from seqtool.parsing.tagger.config import TaggerModelConfig

WORD = (1 << 64) - 1
FACTOR = 0x9E3779B97F4A7C15


def attribute(form: str, name: str) -> str:
    """What is looked at of a form."""
    if name.startswith(("prefix", "suffix")):
        length, lower = int(name[-1]), form.lower()
        # in small letters only when it is cut: a capital such as the Turkish one may become two
        return form[:length].lower() if name[0] == "p" else form[-length:].lower() or lower
    if name == "case":
        return f"{form[0].isupper()}{form == form.upper()}"
    return {"form": form, "lower": form.lower(), "shape": shape(form)}[name]


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def mixed(state: int, value: int) -> int:
    """One more value in a hash of 64 bits."""
    state = ((state ^ value) & WORD) * FACTOR & WORD
    return state ^ (signed(state, 64) >> 32 & WORD)


def place(number: int, values: Sequence[int], num_bits: int) -> int:
    """Where the weights of a feature are, of a template by its number and the values in it."""
    state = mixed(0, number + 1)
    for value in values:
        state = mixed(state, value)
    return (state * FACTOR & WORD) >> 36 & ((1 << num_bits) - 1)


def value_of(part: str, forms: Sequence[str], word: int) -> int:
    """The number of a value such as `w-1.lower`."""
    where, name = part.split(".")
    other = word + int(where[1:] or 0)
    if not 0 <= other < len(forms):
        return 0
    text = attribute(forms[other], name)
    return signed(zlib.crc32(text.encode("utf-8", "surrogatepass")), 32)


def places(config: TaggerModelConfig, forms: Sequence[str]) -> list[list[int]]:
    """The places of the features of each word."""
    bits = config.sparse_bits
    return [
        [
            place(number, [value_of(part, forms, word) for part in text.split()], bits)
            for number, text in enumerate(config.sparse_templates)
        ]
        for word in range(len(forms))
    ]


def sparse_scores(
    config: TaggerModelConfig, weights: Mapping[str, np.ndarray], forms: Sequence[str]
) -> Any:
    """The sums of weights of the features that were learnt, [words, values]."""
    rows, seen = weights["sparse.weight"], np.unpackbits(weights["sparse.seen"])
    num_values = len(rows) - (1 << config.sparse_bits) + 1
    scores = np.zeros((len(forms), num_values))
    for word, found in enumerate(places(config, forms)):
        for at in found:
            if seen[at]:
                # as the file has them
                scores[word] += rows[at : at + num_values].astype(np.float16)
    return scores
