"""Small treebanks and taggers for the tests of tagging."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from seqtool.core.config import from_dict
from seqtool.parsing.sparse.engine import SEEN
from seqtool.parsing.sparse.words import STANDARD
from seqtool.parsing.tagger.config import LABELLERS, TAGGERS, LabellerConfig, TaggerConfig
from seqtool.parsing.tagger.lemmas import Lemmas
from seqtool.parsing.tagger.model import Tagger, tagger_shapes
from seqtool.parsing.tagger.morphology import Bundles, Characters, lexical_table
from seqtool.treebank.sentence import Sentence

SIZES: dict[str, Any] = {
    "lexical_size": 12,
    "character_size": 5,
    "filter_width": 3,
    "num_filters": 8,
    "encoder_size": 10,
    "encoder_layers": 2,
    "lemma_size": 9,
    "min_count": 1,
    "min_script_count": 1,
    "sparse_bits": 12,
}

# form, lemma, UPOS, XPOS, FEATS
WORDS = {
    "determiner": [("the", "the", "DET", "DT", "_"), ("a", "a", "DET", "DT", "Definite=Ind")],
    "noun": [
        (f"{stem}{ending}", stem, "NOUN", tag, f"Number={number}")
        for stem in ("dog", "cat", "fish", "walk", "talk")
        for ending, tag, number in (("", "NN", "Sing"), ("s", "NNS", "Plur"))
    ],
    "verb": [
        (f"{stem}{ending}", stem, "VERB", tag, f"Tense={tense}")
        for stem in ("walk", "talk", "jump")
        for ending, tag, tense in (("s", "VBZ", "Pres"), ("ed", "VBD", "Past"))
    ],
    "name": [("Ann", "Ann", "PROPN", "NNP", "_"), ("Bob", "Bob", "PROPN", "NNP", "_")],
}


def tiny_config(epochs: int = 8, **rest: Any) -> TaggerConfig:
    """Settings of a small tagger; `model__x` and the like go to their sections."""
    base = TAGGERS.settings("fast")
    base["model"] = {**SIZES, "sparse_templates": STANDARD}
    noise = {f"dropout_{kind}": 0.1 for kind in ("words", "embeddings", "encoder", "lemmas")}
    base["learning"] = {"batch_words": 40, "averaging": 0.9, **noise}
    base["training"] |= {"epochs": epochs, "learning_rate": 0.03, "precision": "float32"}
    for name, value in rest.items():
        section, _, key = name.partition("__")
        base[section][key] = value
    return from_dict(TaggerConfig, base)


def tiny_labeller(epochs: int = 3, **training: Any) -> LabellerConfig:
    """Settings of a small labeller."""
    base = LABELLERS.settings("fast")
    base["model"] |= {
        **{"lexical_size": 16, "character_size": 6, "num_filters": 16, "encoder_size": 12}
    }
    base["learning"] = {"batch_words": 64, "averaging": 0.9, "cloze_weight": 0.0}
    base["training"] |= {"epochs": epochs, "learning_rate": 0.02, "precision": "float32"}
    base["training"] |= training
    return from_dict(LabellerConfig, base)


def sentence_of(words: list[tuple[str, ...]]) -> Sentence:
    """Of (form, lemma, UPOS, XPOS, FEATS)."""
    rows = []
    for number, word in enumerate(words, 1):
        tree = ("0", "root") if number == 1 else ("1", "dep")
        rows.append([str(number), *word, *tree, "_", "_"])
    return Sentence([], rows, [])


def bare(forms: list[str]) -> Sentence:
    """A sentence of forms alone."""
    return sentence_of([(form, "_", "_", "_", "_") for form in forms])


def random_treebank(num: int, seed: int = 0) -> list[Sentence]:
    """Sentences in which what a word is depends on its ending and on the word before it."""
    chooser = random.Random(seed)
    kinds = (
        ("determiner", "noun", "verb"),
        ("name", "verb"),
        ("name", "verb", "determiner", "noun"),
    )
    return [
        sentence_of([chooser.choice(WORDS[kind]) for kind in chooser.choice(kinds)])
        for _ in range(num)
    ]


def write_treebank(path: Path, num: int, seed: int = 0) -> Path:
    path.write_text("".join(s.to_conllu() for s in random_treebank(num, seed)), encoding="utf-8")
    return path


def random_tagger(config: TaggerConfig | None = None, seed: int = 0) -> Tagger:
    """A tagger of random weights, large enough for its scores to be far apart."""
    config = config or tiny_config()
    model = config.model
    rows = [row for sentence in random_treebank(60) for row in sentence.rows]
    forms = Counter(row[1] for row in rows)
    symbols = lexical_table(forms, 1)
    characters = Characters.build(forms, 1)
    bundles = Bundles.build(Counter((row[3], row[4], row[5]) for row in rows))
    lemmas = Lemmas.build(Counter((row[1], row[3], row[2]) for row in rows), 1)
    shapes = tagger_shapes(
        model, symbols.num_symbols, characters.num_symbols, bundles, len(lemmas.scripts)
    )
    generator = np.random.default_rng(seed)
    weights = {
        name: generator.normal(0.0, 0.4, shape).astype(np.float32) for name, shape in shapes.items()
    }
    if model.sparse_bits:
        shape = shapes[SEEN]
        weights[SEEN] = generator.integers(0, 256, shape, dtype=np.uint8)
    weights["lexical.weight"][0] = 0.0
    weights["characters.embedding.weight"][0] = 0.0
    return Tagger(config, symbols, characters, bundles, lemmas, weights)
