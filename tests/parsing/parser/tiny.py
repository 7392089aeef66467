"""Small treebanks and parsers for the tests of parsing."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np

from seqtool.core.config import from_dict
from seqtool.parsing.encoding.features import SymbolTable, Types, columns_of
from seqtool.parsing.parser.config import ParserConfig
from seqtool.parsing.parser.families import parser_shapes
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.parser import Parser
from seqtool.text.characters import Characters
from seqtool.treebank.sentence import Sentence

LABELS = Labels(("nsubj", "obj", "det"), ("root",))
SIZES = {"lexical_size": 5, "tag_size": 3, "label_size": 4, "hidden_size": 7}


def tiny_config(system: str = "arc-standard", **model: Any) -> ParserConfig:
    """Settings of a small classifier."""
    return from_dict(ParserConfig, {"model": {"system": system, **SIZES, **model}})


def make_sentence(words: list[tuple[str, str]], heads: list[int] | None = None) -> Sentence:
    """Of (form, tag), with the tree of these heads, if given."""
    rows = []
    for i, (form, upos) in enumerate(words, 1):
        head, deprel = "_", "_"
        if heads is not None:
            head = str(heads[i - 1])
            deprel = "root" if head == "0" else "nsubj" if int(head) > i else "obj"
        rows.append([str(i), form, form.lower(), upos, "_", "_", head, deprel, "_", "_"])
    return Sentence([], rows, [])


def random_sentences(num: int, longest: int, seed: int = 0, tags: str = "XYZ") -> list[Sentence]:
    """Of words that random parsers have symbols for, and some that they do not; so the tags."""
    chooser = random.Random(seed)
    return [
        make_sentence(
            [
                (chooser.choice(["a", "B", "cc", "unseen"]), chooser.choice(tags))
                for _ in range(chooser.randint(1, longest))
            ]
        )
        for _ in range(num)
    ]


def random_parser(config: ParserConfig, labels: Labels = LABELS, seed: int = 0) -> Parser:
    """A parser of random weights, large enough for its scores to be far apart."""
    model = config.model
    columns = columns_of(model.fields)
    rows = [
        ["1", form, form.lower(), upos, "_", "_", "_", "_", "_", "_"]
        for form in ("a", "B", "cc")
        for upos in ("X", "Y")
    ]
    counts = {tuple(row[column] for column in columns): 2 for row in rows}
    lexical, tags = (
        SymbolTable.build(counts.items(), [f for f in model.fields if f in kind], 1, columns)
        for kind in (("form", "lemma", "prefix", "suffix", "shape"), ("upos", "xpos", "feats"))
    )
    characters = Characters("aB") if model.character_width else None
    # what a treebank of these words leaves empty
    empty = [float(all(key[i] == "_" for key in counts)) for i in range(len(columns))]
    types = Types(lexical, tags, empty, characters)
    shapes = parser_shapes(
        model, lexical.num_symbols, tags.num_symbols, labels, types.num_characters
    )
    generator = np.random.default_rng(seed)
    weights = {
        name: generator.normal(0.0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()
    }
    padded = {"lexical.weight", "tags.weight", "characters.embedding.weight"}
    for name in padded & weights.keys():  # a linear parser has none
        weights[name][0] = 0.0
    return Parser(config, types, labels, weights)


def write_treebank(path: Path, num: int, seed: int = 0, non_projective: float = 0.0) -> Path:
    """Sentences whose trees follow from their tags: D depends on the next N, N and A on V.

    Args:
        path: the file.
        num: sentences.
        seed: of the words.
        non_projective: share of sentences with an arc that crosses another.
    """
    chooser = random.Random(seed)
    texts = []
    for _ in range(num):
        left = [("the", "D"), (chooser.choice(["dog", "cat", "bird"]), "N")]
        right = [("a", "D"), (chooser.choice(["bone", "fish", "tree"]), "N")]
        words = [*left, (chooser.choice(["sees", "bites"]), "V"), *right]
        heads = [2, 3, 0, 5, 3]
        if chooser.random() < non_projective:
            # the noun's clause stands after the second noun: "the dog sees a bone that"
            words.append(("that", "R"))
            heads.append(2)
        elif chooser.random() < 0.5:
            words.append(("now", "A"))
            heads.append(3)
        texts.append(make_sentence(words, heads).to_conllu())
    path.write_text("".join(texts), encoding="utf-8")
    return path
