"""Templates of sparse features: which values of a configuration make one feature together.

A template is a text of one value or more, separated by spaces:

    s0.form               an attribute of a word: that of the word on top of the stack
    s0.upos s1.upos       two of them together
    s0.l1.label           the label of a word's arc, here of the leftmost child of s0
    s0.lefts s1-s0        measures: a count of children, a distance

Addresses and measures are those of `hidden_layer`; attributes are form, lower, lemma, prefix1 to
prefix3, suffix1 to suffix4, shape, upos, xpos, feats and label. A value that is not there (no such
word, no label yet) is 0, and the feature is one all the same, as MaltParser's null values are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from seqtool.core.arrays import Ints
from seqtool.core.errors import ConfigError, did_you_mean
from seqtool.parsing.parser.linear.hashing import ATTRIBUTES
from seqtool.parsing.parser.transition.hidden_layer import COUNTS, Slots, compile_slots

NAME = "standard"  # stands for the list below among `model.templates`
MOST_VALUES = 8  # of one template


def _around(place: str) -> tuple[str, ...]:
    """Return the templates of a place by itself."""
    return (
        *(f"{place}.form", f"{place}.lemma", f"{place}.upos", f"{place}.xpos", f"{place}.feats"),
        *(f"{place}.form {place}.upos", f"{place}.upos {place}.feats"),
    )


def _pair(first: str, second: str) -> tuple[str, ...]:
    """Return the templates of two places together (Zhang & Nivre 2011, table 1: word pairs)."""
    return (
        f"{first}.form {first}.upos {second}.form {second}.upos",
        f"{first}.form {first}.upos {second}.upos",
        f"{first}.upos {second}.form {second}.upos",
        f"{first}.form {second}.form",
        f"{first}.lemma {second}.lemma",
        f"{first}.lemma {second}.upos",
        f"{first}.upos {second}.lemma",
        f"{first}.upos {second}.upos",
        f"{first}.xpos {second}.xpos",
        f"{first}.feats {second}.feats",
    )


def _children(place: str) -> tuple[str, ...]:
    """Return the templates of a word of the stack with its children (their table 2)."""
    return (
        *(f"{place}.{side}.{name}" for side in ("l1", "r1") for name in ("form", "upos", "label")),
        *(f"{place}.{side}.{name}" for side in ("l2", "r2") for name in ("upos", "label")),
        *(f"{place}.upos {place}.{side}1.upos {place}.{side}2.upos" for side in "lr"),
        *(f"{place}.upos {place}.{side}1.label {place}.{side}2.label" for side in "lr"),
        *(f"{place}.lemma {place}.{side}1.label" for side in "lr"),
        *(f"{place}.{side} {place}.{name}" for side in COUNTS for name in ("form", "upos")),
    )


# the templates of Zhang & Nivre 2011 for the top of the stack and the buffer, and the same for the
# two words on top of the stack, between which arc-standard and swap make their arcs
STANDARD = (
    *(template for place in ("s0", "s1", "b0") for template in _around(place)),
    *("b1.form b1.upos", "b1.upos", "b1.xpos", "b2.upos", "s2.upos", "s2.form s2.upos"),
    *(f"s0.upos s0.{side}.upos" for side in ("prev", "next")),
    *(f"s1.upos s1.{side}.upos" for side in ("prev", "next")),
    *(template for pair in (("s1", "s0"), ("s0", "b0")) for template in _pair(*pair)),
    *("s1.upos b0.upos", "s1.lemma b0.lemma", "s2.upos s0.upos", "b0.upos b1.upos"),
    "b0.form b1.form",
    *("s1.upos s0.upos b0.upos", "s2.upos s1.upos s0.upos", "s0.upos b0.upos b1.upos"),
    *("b0.upos b1.upos b2.upos", "s1.upos s0.upos b0.lemma", "s1.upos s0.lemma b0.upos"),
    "s1.lemma s0.upos b0.upos",
    *(
        f"s1.upos s0.upos {place}.{side}.{name}"
        for place in ("s1", "s0")
        for side in ("l1", "r1")
        for name in ("upos", "label")
    ),
    *("s1.upos s0.upos s1.l2.upos", "s1.upos s0.upos s1.r2.upos"),
    *("s1.upos s0.lemma s1.r1.upos", "s1.lemma s0.upos s0.l1.upos"),
    *("s0.upos b0.upos s0.r1.upos", "s0.upos b0.upos s0.l1.upos", "s0.upos b0.upos b0.l1.upos"),
    *(template for place in ("s0", "s1") for template in _children(place)),
    *("b0.l1.upos", "b0.l1.label", "b0.lefts b0.upos"),
    *(f"s1-s0 {place}.{name}" for place in ("s1", "s0") for name in ("form", "upos")),
    *("s1-s0 s1.upos s0.upos", "s1-s0 s1.form s0.form"),
    *("s0-b0 s0.upos b0.upos", "s0-b0 s0.form"),
)


def _joined_around(place: str) -> tuple[str, ...]:
    """Return the templates of a place by itself, of a word of joined morphemes."""
    return (
        *(f"{place}.last_morpheme", f"{place}.stem", f"{place}.stem {place}.last_morpheme"),
        f"{place}.upos {place}.last_morpheme",
    )


def _joined_pair(first: str, second: str) -> tuple[str, ...]:
    """Return the templates of two places together, of words of joined morphemes."""
    return (
        f"{first}.last_morpheme {second}.last_morpheme",
        f"{first}.last_morpheme {second}.upos",
        f"{first}.upos {second}.last_morpheme",
        f"{first}.stem {second}.stem",
        f"{first}.last_morpheme {second}.stem",
        f"{first}.stem {second}.last_morpheme",
        f"{first}.upos {first}.last_morpheme {second}.upos {second}.last_morpheme",
    )


# and those of treebanks that join morphemes, where whole lemmas and XPOS are too many
STANDARD_JOINED = (
    *(template for place in ("s0", "s1", "b0") for template in _joined_around(place)),
    *(template for pair in (("s1", "s0"), ("s0", "b0")) for template in _joined_pair(*pair)),
    *("b1.last_morpheme", "s2.last_morpheme"),
    *(
        " ".join(f"{place}.last_morpheme" for place in places.split())
        for places in ("s2 s1 s0", "s1 s0 b0", "s0 b0 b1", "s1 s0 s1.l1", "s1 s0 s0.l1")
    ),
    *("s1-s0 s1.last_morpheme s0.last_morpheme", "s1-s0 s1.last_morpheme"),
)

# kinds of values: an attribute of the word in a slot, the label in one, the class of a measure
ATTRIBUTE, LABEL, MEASURE = range(3)


class Templates(NamedTuple):
    """Templates as compiled code reads them.

    Attributes:
        values: int32 [num_values, 3]: the kind of each value, its slot of that kind, and its
            attribute.
        parts: int32, of one template after another, the numbers of its values.
        ends: int32 [num_templates], where the parts of each end.
    """

    values: Ints
    parts: Ints
    ends: Ints


class Compiled(NamedTuple):
    """What `compile_templates` returns.

    Attributes:
        templates: as tables.
        slots: what has to be found of a configuration.
        attributes: the attributes of words that are looked at.
    """

    templates: Templates
    slots: Slots
    attributes: tuple[str, ...]


def places_of(texts: Iterable[str]) -> tuple[list[str], list[str], list[str]]:
    """Return the places that templates look at: of words, of labels, and measures."""
    values = dict.fromkeys(value for text in texts for value in text.split())
    split = [(value, *value.rpartition(".")[::2]) for value in values]
    measures = [value for value, _, name in split if "-" in value or name in COUNTS]
    labels = [place for _, place, name in split if name == "label"]
    words = [place for value, place, name in split if name != "label" and value not in measures]
    return list(dict.fromkeys(words)), labels, measures


def chosen(
    texts: Iterable[str], fields: Sequence[str], groups: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return templates with `NAME` replaced by the standard ones that some fields suffice for.

    Those of joined morphemes are among them where all that they look at is in `groups`, those of
    the symbols of a treebank.

    Raises:
        ConfigError: none is left; one cannot be read, is there twice, or needs another field.
    """
    result: list[str] = []
    for text in texts:
        if text == NAME:
            result += (one for one in STANDARD if _fields_of(one) <= {*fields})
            result += (one for one in STANDARD_JOINED if _attributes_of(one) <= {*groups})
            continue
        if lacking := sorted(_fields_of(text) - {*fields}):
            raise ConfigError(
                f"the template {text!r} looks at {lacking[0]}, which is not read",
                hint=f"add {lacking[0]} to fields, or leave the template out",
            )
        result.append(" ".join(text.split()))
    if not result:
        raise ConfigError("no template is left", hint="name one or more, or a field for them")
    compile_templates(result)
    for place, text in enumerate(result):
        if text in result[:place]:
            raise ConfigError(f"the template {text!r} is there twice", hint="name each one once")
    return tuple(result)


def _fields_of(template: str) -> set[str]:
    """Return the fields that a template's attributes are read from."""
    return {ATTRIBUTES[name] for name in _attributes_of(template)}


def _attributes_of(template: str) -> set[str]:
    """Return the attributes of words that a template looks at."""
    names = {part.rpartition(".")[2] for part in template.split()}
    return names & ATTRIBUTES.keys()


def compile_templates(texts: Sequence[str]) -> Compiled:
    """Return templates as tables.

    Raises:
        ConfigError: one that cannot be read; it is quoted.
    """
    words: dict[str, int] = {}
    labels: dict[str, int] = {}
    measures: dict[str, int] = {}
    attributes: dict[str, int] = {}
    values: dict[tuple[int, int, int], int] = {}

    def value(text: str) -> int:
        address, _, name = text.rpartition(".")
        if "-" in text or (address and name in COUNTS):
            key = (MEASURE, measures.setdefault(text, len(measures)), 0)
        elif not address:
            raise ConfigError(f"{text!r} is no value", hint="write s0.form, b0.upos, s1-s0 ...")
        elif name == "label":
            key = (LABEL, labels.setdefault(address, len(labels)), 0)
        elif name in ATTRIBUTES:
            slot = words.setdefault(address, len(words))
            key = (ATTRIBUTE, slot, attributes.setdefault(name, len(attributes)))
        else:
            known = (*ATTRIBUTES, "label", *COUNTS)
            raise ConfigError(f"no attribute is called {name!r}", hint=did_you_mean(name, known))
        return values.setdefault(key, len(values))

    parts: list[int] = []
    ends: list[int] = []
    for text in texts:
        try:
            numbers = [value(part) for part in text.split()]
            if not 1 <= len(numbers) <= MOST_VALUES:
                hint = f"write one value to {MOST_VALUES}, such as s0.form b0.upos"
                raise ConfigError(f"{len(numbers)} values", hint=hint)
            compile_slots(list(words), list(labels), list(measures))
        except ConfigError as error:
            raise ConfigError(f"the template {text!r}: {error.message}", hint=error.hint) from error
        parts += numbers
        ends.append(len(parts))
    columns = (np.asarray(column, np.int32) for column in (list(values), parts, ends))
    slots = compile_slots(list(words), list(labels), list(measures))
    return Compiled(Templates(*columns), slots, tuple(attributes))
