"""A small segmenter of random weights, and treebanks for the tests of segmentation."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np

from seqtool.core.config import from_dict
from seqtool.parsing.segmenter.characters import Alphabet
from seqtool.parsing.segmenter.config import SegmenterConfig
from seqtool.parsing.segmenter.data import MultiwordSplitter
from seqtool.parsing.segmenter.model import Segmenter, segmenter_shapes
from seqtool.treebank.sentence import Sentence

SIZES = {"character_size": 5, "character_units": 4, "form_size": 3, "token_units": 4}
SPLITTER = MultiwordSplitter({"du": ("de", "le"), "can't": ("ca", "n't")}, {"n't": ("", "n't")})
FORMS = {"the": 1, "a": 2, "0": 3}
TRAINING = from_dict(
    SegmenterConfig,
    {
        "model": {"character_size": 8, "character_units": 16, "form_size": 8, "token_units": 16},
        "learning": {
            **{"batch_characters": 512, "min_steps": 1, "window_characters": 32},
            "dropout_states": 0.1,
        },
        "training": {
            **{"epochs": 8, "learning_rate": 0.03, "optimiser": "adamw", "precision": "float32"}
        },
    },
)


def tiny_config(**sections: Any) -> SegmenterConfig:
    """Settings of a small segmenter."""
    model = {**SIZES, **sections.pop("model", {})}
    return from_dict(SegmenterConfig, {"model": model, **sections})


def random_segmenter(seed: int = 0, *, has_spaces: bool = False, **model: Any) -> Segmenter:
    """A segmenter of random weights, which are large, so that scores are far from 0."""
    config = tiny_config(model=model)
    alphabet = Alphabet(["LATIN"], [" ", "\n", *"abehtdu.,'"])
    generator = np.random.default_rng(seed)
    weights = {
        name: generator.normal(0.0, 0.7, shape).astype(np.float32)
        for name, shape in segmenter_shapes(config.model, len(alphabet), len(FORMS)).items()
    }
    weights["symbols.weight"][0] = 0.0
    return Segmenter(config, alphabet, FORMS, SPLITTER, has_spaces, weights)


def sentence_of(
    tokens: list[tuple[str, tuple[str, ...], bool]], comments: list[str] | None = None
) -> Sentence:
    """Of (form, words or (), whether whitespace follows)."""
    rows: list[list[str]] = []
    extras: list[tuple[int, str]] = []
    empty = ["_"] * 7
    for form, words, spaced in tokens:
        misc = "_" if spaced else "SpaceAfter=No"
        if words:
            identity = f"{len(rows) + 1}-{len(rows) + len(words)}"
            extras.append((len(rows), "\t".join((identity, form, *empty, misc))))
        for word in words or (form,):
            rows.append([str(len(rows) + 1), word, *empty, "_" if words else misc])
    return Sentence(comments or [], rows, extras)


def write_treebank(path: Path, num: int, seed: int = 0) -> Path:
    """Write sentences by simple rules: each ends with a point; "du" is two words; "a-b" three."""
    chooser = random.Random(seed)
    texts = []
    for number in range(num):
        tokens: list[tuple[str, tuple[str, ...], bool]] = []
        for _ in range(chooser.randint(2, 6)):
            kind = chooser.random()
            if kind < 0.2:
                tokens.append(("du", ("de", "le"), True))
            elif kind < 0.4:
                tokens += [("ab", (), False), ("-", (), False), ("ba", (), True)]
            else:
                tokens.append((chooser.choice(["abba", "bab", "aa"]), (), True))
        form, words, _ = tokens[-1]
        tokens[-1] = (form, words, False)
        tokens.append((".", (), True))
        comments = ["# newpar"] if number % 5 == 0 else []
        texts.append(sentence_of(tokens, comments).to_conllu())
    path.write_text("".join(texts), encoding="utf-8")
    return path
