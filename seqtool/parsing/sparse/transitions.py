"""Sparse features of configurations, and the linear classifier that scores transitions by them.

These are the parsers of MaltParser and of Zhang & Nivre 2011. Values of templates (`engine`):

    s0.form               an attribute of a word: that of the word on top of the stack
    s0.l1.label           the label of a word's arc, here of the leftmost child of s0
    s0.lefts s1-s0        measures: a count of children, a distance

Addresses and measures are those of `hidden_layer`; attributes are form, lower, lemma, prefix1 to
prefix3, suffix1 to suffix4, shape, upos, xpos, feats and label. The score of a transition is the
sum of the weights of features with it; a feature has a row of them (`engine`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from time import thread_time

import numpy as np
from numba import types

from seqtool.core.arrays import Floats, Ints
from seqtool.core.errors import ConfigError, did_you_mean
from seqtool.core.jit import compiled
from seqtool.parsing.encoding.features import TokenArrays, Types
from seqtool.parsing.parser.config import ModelConfig
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.transition.classifier import average_scorer
from seqtool.parsing.parser.transition.decoder import SearchDecoder
from seqtool.parsing.parser.transition.hidden_layer import (
    COUNTS,
    Seen,
    compile_slots,
    extract,
)
from seqtool.parsing.parser.transition.search import Scorer
from seqtool.parsing.parser.transition.trace import See, slot_features
from seqtool.parsing.parser.transition.transitions import Configurations
from seqtool.parsing.sparse import engine
from seqtool.parsing.sparse.engine import (
    ATTRIBUTES,
    AttributeReader,
    Templates,
    expanded,
    hash_templates,
    score_rows,
    template_list,
    templates_type,
)

WEIGHTS = "transitions"  # the name of the array

# the templates of Zhang & Nivre 2011 for the top of the stack and the buffer, and the same for the
# two words on top of the stack, between which arc-standard and swap make their arcs
STANDARD = (
    *template_list(
        "{0}.form, {0}.lemma, {0}.upos, {0}.xpos, {0}.feats,{0}.form {0}.upos, {0}.upos {0}.feats",
        *("s0", "s1", "b0"),
    ),
    *template_list("b1.form b1.upos, b1.upos, b1.xpos, b2.upos, s2.upos, s2.form s2.upos"),
    *template_list("{0}.upos {0}.prev.upos, {0}.upos {0}.next.upos", "s0", "s1"),
    # word pairs, their table 1
    *template_list(
        "{0}.form {0}.upos {1}.form {1}.upos, {0}.form {0}.upos {1}.upos,"
        "{0}.upos {1}.form {1}.upos, {0}.form {1}.form, {0}.lemma {1}.lemma, {0}.lemma {1}.upos,"
        "{0}.upos {1}.lemma, {0}.upos {1}.upos, {0}.xpos {1}.xpos, {0}.feats {1}.feats",
        *("s1 s0", "s0 b0"),
    ),
    *template_list(
        "s1.upos b0.upos, s1.lemma b0.lemma, s2.upos s0.upos, b0.upos b1.upos, b0.form b1.form,"
        "s1.upos s0.upos b0.upos, s2.upos s1.upos s0.upos, s0.upos b0.upos b1.upos,"
        "b0.upos b1.upos b2.upos, s1.upos s0.upos b0.lemma, s1.upos s0.lemma b0.upos,"
        "s1.lemma s0.upos b0.upos"
    ),
    *template_list(
        "s1.upos s0.upos {0}.upos, s1.upos s0.upos {0}.label", "s1.l1", "s1.r1", "s0.l1", "s0.r1"
    ),
    *template_list(
        "s1.upos s0.upos s1.l2.upos, s1.upos s0.upos s1.r2.upos, s1.upos s0.lemma s1.r1.upos,"
        "s1.lemma s0.upos s0.l1.upos, s0.upos b0.upos s0.r1.upos, s0.upos b0.upos s0.l1.upos,"
        "s0.upos b0.upos b0.l1.upos"
    ),
    # words of the stack with their children, their table 2
    *template_list(
        "{0}.l1.form, {0}.l1.upos, {0}.l1.label, {0}.r1.form, {0}.r1.upos, {0}.r1.label,"
        "{0}.l2.upos, {0}.l2.label, {0}.r2.upos, {0}.r2.label, {0}.upos {0}.l1.upos {0}.l2.upos,"
        "{0}.upos {0}.r1.upos {0}.r2.upos, {0}.upos {0}.l1.label {0}.l2.label,"
        "{0}.upos {0}.r1.label {0}.r2.label, {0}.lemma {0}.l1.label, {0}.lemma {0}.r1.label,"
        "{0}.lefts {0}.form, {0}.lefts {0}.upos, {0}.rights {0}.form, {0}.rights {0}.upos",
        *("s0", "s1"),
    ),
    *template_list(
        "b0.l1.upos, b0.l1.label, b0.lefts b0.upos, s1-s0 s1.form, s1-s0 s1.upos, s1-s0 s0.form,"
        "s1-s0 s0.upos, s1-s0 s1.upos s0.upos, s1-s0 s1.form s0.form, s0-b0 s0.upos b0.upos,"
        "s0-b0 s0.form"
    ),
)
# and those of treebanks that join morphemes, where whole lemmas and XPOS are too many
STANDARD_JOINED = (
    *template_list(
        "{0}.last_morpheme, {0}.stem, {0}.stem {0}.last_morpheme, {0}.upos {0}.last_morpheme",
        *("s0", "s1", "b0"),
    ),
    *template_list(
        "{0}.last_morpheme {1}.last_morpheme, {0}.last_morpheme {1}.upos,"
        "{0}.upos {1}.last_morpheme, {0}.stem {1}.stem, {0}.last_morpheme {1}.stem,"
        "{0}.stem {1}.last_morpheme, {0}.upos {0}.last_morpheme {1}.upos {1}.last_morpheme",
        *("s1 s0", "s0 b0"),
    ),
    *template_list("b1.last_morpheme, s2.last_morpheme"),
    *template_list(
        "{0}.last_morpheme {1}.last_morpheme {2}.last_morpheme",
        *("s2 s1 s0", "s1 s0 b0", "s0 b0 b1", "s1 s0 s1.l1", "s1 s0 s0.l1"),
    ),
    *template_list("s1-s0 s1.last_morpheme s0.last_morpheme, s1-s0 s1.last_morpheme"),
)

# what a value has in place of an attribute's number where it is no attribute of a word
LABEL, MEASURE = -1, -2
Places = tuple[list[str], list[str], list[str]]  # of words, of labels, and measures


def chosen(
    texts: Iterable[str], fields: Sequence[str], groups: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return templates with `engine.NAME` replaced by the standard ones that fields suffice for.

    Those of joined morphemes are among them where all that they look at is in `groups`, those of
    the symbols of a treebank.

    Raises:
        ConfigError: none is left; one cannot be read, or needs another field.
    """
    standard = [
        *(one for one in STANDARD if _fields_of(one) <= {*fields}),
        *(one for one in STANDARD_JOINED if _attributes_of(one) <= {*groups}),
    ]
    result = expanded(texts, standard)
    if not result:
        raise ConfigError("no template is left", hint="name one or more, or a field for them")
    compile_templates(result)
    for text in result:
        if lacking := sorted(_fields_of(text) - {*fields}):
            raise ConfigError(
                f"the template {text!r} looks at {lacking[0]}, which is not read",
                hint=f"add {lacking[0]} to fields, or leave the template out",
            )
    return result


def _attributes_of(template: str) -> set[str]:
    """Return the attributes of words that a template looks at."""
    return {part.rpartition(".")[2] for part in template.split()} & ATTRIBUTES.keys()


def _fields_of(template: str) -> set[str]:
    """Return the fields that a template's attributes are read from."""
    return {ATTRIBUTES[name] for name in _attributes_of(template)}


def compile_templates(texts: Iterable[str]) -> tuple[Templates, Places, tuple[str, ...]]:
    """Return templates as tables, the places that they look at, and the attributes of words.

    Raises:
        ConfigError: one that cannot be read; it is quoted.
    """
    words: dict[str, int] = {}
    labels: dict[str, int] = {}
    measures: dict[str, int] = {}
    attributes: dict[str, int] = {}

    def number_of(value: str) -> tuple[int, int]:
        address, _, name = value.rpartition(".")
        if "-" in value or (address and name in COUNTS):
            compile_slots([], [], [value])  # raises where there is no such measure
            return measures.setdefault(value, len(measures)), MEASURE
        if not address:
            raise ConfigError(f"{value!r} is no value", hint="write s0.form, b0.upos, s1-s0 ...")
        known = (*ATTRIBUTES, "label", *COUNTS)
        if name not in known:
            raise ConfigError(f"no attribute is called {name!r}", hint=did_you_mean(name, known))
        compile_slots([address], [], [])
        if name == "label":
            return labels.setdefault(address, len(labels)), LABEL
        column = attributes.setdefault(name, len(attributes))
        return words.setdefault(address, len(words)), column

    tables = engine.compile_templates(texts, number_of)
    return tables, (list(words), list(labels), list(measures)), tuple(attributes)


_int = types.int64
_table = types.int32[:, ::1]
_seen = types.NamedUniTuple(_table, 3, Seen)


@compiled(types.void(_seen, _table, templates_type, _int, _table))
def _hash(seen, of_types, templates, num_bits, rows):  # type: ignore[no-untyped-def]
    """Note the row of each feature of some configurations, [N, templates]."""
    values = np.empty(templates.values.shape[0], np.int64)
    for place in range(rows.shape[0]):
        for number in range(values.shape[0]):
            slot, attribute = templates.values[number, 0], templates.values[number, 1]
            if attribute >= 0:
                values[number] = of_types[seen.words[place, slot], attribute]
            elif attribute == LABEL:
                values[number] = seen.labels[place, slot]
            else:
                values[number] = seen.measures[place, slot]
        hash_templates(templates, values, num_bits, rows[place])


def num_weights(config: ModelConfig, labels: Labels) -> int:
    """Return the length of the array of weights."""
    return (1 << config.hash_bits) + labels.num_transitions - 1


class LinearDecoder(AttributeReader, SearchDecoder):
    """Trees by the transitions of a system, by sparse features.

    Args:
        config: templates, hash and system, which are chosen.
        labels: of arcs.
        weights: by name; of this array, `num_weights`.
    """

    def __init__(self, config: ModelConfig, labels: Labels, weights: Mapping[str, Floats]) -> None:
        self._templates, self._places, attributes = compile_templates(config.templates)
        AttributeReader.__init__(self, attributes)
        SearchDecoder.__init__(self, config.system, labels, 1.0)
        self._num_bits, self._slots = config.hash_bits, compile_slots(*self._places)
        # half precision is what the file has
        self._weights = weights[WEIGHTS].astype(np.float16).view(np.uint16)
        self._seconds = 0.0  # of the processor, spent on features

    def rows(self, configurations: Configurations, which: Ints, token_types: Ints) -> Ints:
        """Return the places of the features of configurations, int32 [N, templates].

        They are those of the first member; `prepare` was called.

        Args:
            configurations: where the configurations are.
            which: which of them.
            token_types: the type of every token.
        """
        seen = extract(configurations, which, token_types, self._slots)
        rows = np.empty((len(which), len(self._templates.states)), np.int32)
        _hash(seen, self.table, self._templates, self._num_bits, rows)
        return rows

    def _own_scorer(self, token_types: Ints) -> Scorer:
        """Return the scorer of the first member."""

        def score(configurations: Configurations, which: Ints, scores: Floats) -> None:
            begin = thread_time()
            score_rows(self.rows(configurations, which, token_types), self._weights, scores)
            self._seconds += thread_time() - begin

        return score

    def _scorer(self, arrays: TokenArrays) -> Scorer:
        return average_scorer([member._own_scorer(arrays.types) for member in self.members])

    def _see(self) -> See:
        return slot_features(*self._places)

    def feature_share(self, types: Types, arrays: TokenArrays) -> float:
        """Parse sentences twice, greedily; return the share of features in the second time, in %.

        There are no other members.
        """
        self.prepare(types)
        self.decode(arrays)  # whose time is also that of compiling
        self._seconds, begin = 0.0, thread_time()
        self.decode(arrays)
        return 100.0 * self._seconds / (thread_time() - begin)
