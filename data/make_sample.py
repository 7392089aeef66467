"""Make the sample corpus from its grammars: `python data/make_sample.py [DIRECTORY]`.

Draws the sentences, writes text and trees, and records what the grammar knows of them: the true
probability of each text, summed over all derivations of each sentence.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import english
import korean
from grammar import Derivation, Paradigm, Pcfg
from inside import InsideParser
from notation import read_grammar
from trees import conllu, tokens_of

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Language:
    """What one language's part of the sample is made from."""

    code: str
    paradigms: dict[str, Paradigm]
    seed: int
    sizes: dict[str, int]
    lowercase: bool

    def grammar(self) -> Pcfg:
        """The compiled grammar."""
        return read_grammar(HERE / f"grammar-{self.code}.txt", self.paradigms)

    def inside(self, grammar: Pcfg) -> InsideParser:
        """An inside parser for the text as it is written, lower-cased or not."""
        return InsideParser(grammar, str.lower if self.lowercase else str)


# Of the seeds below 80 (English) and 150 (Korean), the ones that leave the fewest forms of valid
# and test out of train.
LANGUAGES = {
    "en": Language(
        "en", english.PARADIGMS, 5, {"train": 9600, "valid": 1200, "test": 1200}, lowercase=True
    ),
    "ko": Language(
        "ko", korean.PARADIGMS, 60, {"train": 3600, "valid": 400, "test": 400}, lowercase=False
    ),
}


def splits(language: Language, grammar: Pcfg) -> Iterator[tuple[str, list[Derivation]]]:
    """The derivations of each split; independent draws from the grammar, nothing removed."""
    source = random.Random(language.seed)
    for split, size in language.sizes.items():
        yield split, [grammar.sample(source) for _ in range(size)]


def log_probability_nats(parser: InsideParser, sentences: Sequence[Sequence[str]]) -> float:
    """Ln P of a text: the sum over its sentences, each with its end."""
    return math.fsum(math.log(parser.probability(sentence)) for sentence in sentences)


def record(text: str, parser: InsideParser) -> dict[str, int | float | str]:
    """What sample.json says of one text file."""
    sentences = [line.split(" ") for line in text.splitlines()]
    tokens = sum(map(len, sentences))
    nats = log_probability_nats(parser, sentences)
    return {
        "sentences": len(sentences),
        "tokens": tokens,
        "tokens_with_end": tokens + len(sentences),
        "bytes": len(text.encode()),
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "log10_probability": nats / math.log(10),
        "perplexity": math.exp(-nats / (tokens + len(sentences))),
    }


def contents(language: Language, derivations: list[Derivation], split: str) -> tuple[str, str]:
    """Text and treebank of one split."""
    lines = [" ".join(tokens_of(d, language.lowercase)) + "\n" for d in derivations]
    trees = [
        conllu(d, f"{language.code}-{split}-{number:05d}")
        for number, d in enumerate(derivations, 1)
    ]
    return "".join(lines), "".join(trees)


def write(directory: Path) -> None:
    """Write every file of the sample into a directory."""
    records: dict[str, dict[str, dict[str, int | float | str]]] = {}
    for code, language in LANGUAGES.items():
        grammar = language.grammar()
        parser = language.inside(grammar)
        folder = directory / code
        folder.mkdir(parents=True, exist_ok=True)
        records[code] = {}
        for split, derivations in splits(language, grammar):
            text, trees = contents(language, derivations, split)
            (folder / f"{split}.txt").write_bytes(text.encode())
            if split == "train":
                packed = gzip.compress(trees.encode(), compresslevel=9, mtime=0)
                (folder / f"{split}.conllu.gz").write_bytes(packed)
            else:
                (folder / f"{split}.conllu").write_bytes(trees.encode())
            records[code][split] = record(text, parser)
            records[code][split]["treebank_sha256"] = hashlib.sha256(trees.encode()).hexdigest()
    text = json.dumps(records, indent=2) + "\n"
    (directory / "sample.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="Make the sample corpus.")
    arguments.add_argument("directory", nargs="?", type=Path, default=HERE)
    write(arguments.parse_args().directory)
