"""Tasks with a known answer, made from the sample's trees: opinions of sentences, and names.

An opinion is a sentence whose predicate is an adjective that praises or blames, such as

    The soup was not very tasty.        bad: `tasty` praises, and `not` turns it round

so that its label follows from two words, one of which alone would mislead. A share of the labels
may be turned round, at random: then no classifier can be expected to be right more often than the
labels that are left, and a text's own best accuracy is known.

A name is a person, `Anna` or `Anna Berg`, or a city; the grammar lists all of them. Names are told
by column MISC, in BIO: `NER=B-PER`.
"""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PRAISE = _words("""
    famous happy kind clever honest patient brave eager cheerful polite gentle sensible beautiful
    handsome elegant graceful strong fresh sweet delicious tasty interesting useful brilliant
    pleasant peaceful obedient playful
""")
BLAME = _words("""
    ugly angry nervous lonely anxious stubborn lazy jealous impatient clumsy fierce bitter sour
    awful stale strange difficult dull silly unfair dangerous absurd terrible sad broken noisy
    elderly tired
""")
_ID, _FORM, _LEMMA, _UPOS, _HEAD, _DEPREL, _MISC = 0, 1, 2, 3, 6, 7, 9

Rows = list[list[str]]  # the words of a sentence, ten columns each


class Opinion(NamedTuple):
    """A sentence and its label, good or bad; `is_turned` if that is not what it says."""

    text: str
    label: str
    is_turned: bool


def trees(split: str) -> Iterator[tuple[str, Rows]]:
    """Give text and words of the English trees of a split: train, valid or test."""
    path = HERE / "en" / f"{split}.conllu"
    packed = path.with_suffix(".conllu.gz")
    content = path.read_bytes() if path.exists() else gzip.decompress(packed.read_bytes())
    for block in content.decode().strip("\n").split("\n\n"):
        lines = block.split("\n")
        text = next(line for line in lines if line.startswith("# text = "))
        rows = [line.split("\t") for line in lines if not line.startswith("#")]
        yield text.removeprefix("# text = "), [row for row in rows if row[_ID].isdigit()]


def opinions(split: str, *, draws: int = 6, turned: float = 0.0, seed: int = 1) -> list[Opinion]:
    """Return opinions made of the sentences of a split, a share of their labels turned round.

    Of each sentence whose predicate is an adjective there are as many as `draws`, each with an
    adjective of the same group of the grammar. Those of one split share no sentence with another's.
    """
    source = random.Random(seed)
    groups = [line.split() for line in _lines("adjective")]
    found = []
    for text, rows in trees(split):
        root = next(row for row in rows if row[_DEPREL] == "root")
        children = [row for row in rows if row[_HEAD] == root[_ID]]
        is_predicate = any(child[_DEPREL] == "cop" for child in children)
        if not is_predicate or root[_UPOS] != "ADJ" or text.count(f" {root[_FORM]}") != 1:
            continue
        group = next(group for group in groups if root[_LEMMA] in group)
        telling = sorted((PRAISE | BLAME).intersection(group))
        is_denied = any(child[_LEMMA] == "not" for child in children)
        for adjective in source.sample(telling, min(draws, len(telling))):
            is_turned = source.random() < turned
            is_good = (adjective in PRAISE) ^ is_denied ^ is_turned
            written = text.replace(f" {root[_FORM]}", f" {adjective}")
            found.append(Opinion(written, "good" if is_good else "bad", is_turned))
    source.shuffle(found)
    return found


def best_accuracy(given: list[Opinion]) -> float:
    """Return the share of labels, in percent, that say what their sentences do."""
    return 100.0 * sum(not opinion.is_turned for opinion in given) / len(given)


def _lines(kind: str) -> list[str]:
    """Return what the grammar lists in lines that begin so, after the colon."""
    grammar = (HERE / "grammar-en.txt").read_text(encoding="utf-8")
    return re.findall(rf"^{kind}[^:\n]*: (.*)$", grammar, flags=re.MULTILINE)


def names(split: str) -> Iterator[Rows]:
    """Give the words of the sentences of a split, with names in column MISC."""
    cities = {city for line in _lines("name city") for city in line.split()}
    for _, rows in trees(split):
        for row in rows:
            if row[_UPOS] == "PROPN":
                begin = "I" if row[_DEPREL] == "flat" else "B"
                label = f"{begin}-{'LOC' if row[_LEMMA] in cities else 'PER'}"
                misc = [] if row[_MISC] == "_" else row[_MISC].split("|")
                row[_MISC] = "|".join([*misc, f"NER={label}"])
        yield rows


def conllu(sentences: Iterator[Rows]) -> str:
    """Return sentences as CoNLL-U."""
    return "".join("\n".join("\t".join(row) for row in rows) + "\n\n" for rows in sentences)
