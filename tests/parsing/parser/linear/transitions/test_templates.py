"""Templates: which features a configuration has, and what is said of bad ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from parsing.parser.tiny import LABELS, make_sentence, tiny_config

from seqtool.core.checkpoint import read_header
from seqtool.core.errors import ConfigError
from seqtool.parsing.encoding.features import SymbolTable, Types, columns_of, encode
from seqtool.parsing.encoding.sparse import FACTOR
from seqtool.parsing.parser.linear.hashing import Values
from seqtool.parsing.parser.linear.transitions.classifier import (
    WEIGHTS,
    LinearClassifier,
    num_weights,
)
from seqtool.parsing.parser.linear.transitions.templates import (
    STANDARD,
    STANDARD_JOINED,
    chosen,
)
from seqtool.parsing.parser.train import train_parser
from seqtool.parsing.parser.transition.transitions import LEFT, RIGHT, SHIFT, Configurations

FIELDS = ("form", "upos")
BITS = 20


def types_of(forms: list[str], tags: list[str]) -> Types:
    """Types of which these forms and tags are known."""
    columns = columns_of(FIELDS)
    keys = [(form, tag) for form in forms for tag in tags]
    lexical, upos = (
        SymbolTable.build([(key, 1) for key in keys], [field], 1, columns) for field in FIELDS
    )
    return Types(lexical, upos)


def place(template: int, values: list[int], bits: int = BITS) -> int:
    """The place of a feature, in whole numbers without end; templates count from 0."""
    state = 0
    for value in (template + 1, *values):
        state = (state ^ value) * int(FACTOR) % (1 << 64)
        signed = state - (1 << 64) * (state >> 63)
        state = (signed ^ (signed >> 32)) % (1 << 64)
    state = state * int(FACTOR) % (1 << 64)
    return state >> 36 & ((1 << bits) - 1)


def test_the_features_of_a_configuration_made_by_hand() -> None:
    # a <- b c on the stack, and the second b in the buffer: after LEFT with the label det
    types = types_of(["a", "b"], ["D", "N", "V"])
    words = [("a", "D"), ("b", "N"), ("c", "V"), ("b", "D")]
    arrays = encode([make_sentence(words)], types)
    templates = (
        *("s0.form", "s0.upos b0.upos", "s1.l1.form s1.l1.label", "s2.upos s1.form", "b0.form"),
        *("s1.lefts s1.upos", "s1-s0", "s0.r1.label", "b1.upos s0.prev.upos"),
    )
    config = tiny_config(fields=FIELDS, templates=templates, hash_bits=BITS).model
    weights = np.zeros(num_weights(config, LABELS), np.float32)
    classifier = LinearClassifier(config, {WEIGHTS: weights})
    classifier.prepare(types)
    configurations = Configurations("arc-standard", LABELS, 1, 4)
    which = np.zeros(1, np.int32)
    configurations.start(which, arrays.tokens, arrays.lengths)
    det = LABELS.arcs.index("det")
    # what leaves no choice is done at once: the first two words are shifted, and then the third
    assert configurations.legal(which)[0] == 1 << SHIFT | 1 << LEFT | 1 << RIGHT
    configurations.advance(which, np.asarray([2 + det], np.int32))
    found = classifier.rows(configurations, which, arrays.types)[0]
    # symbols: 0 to 2 are PAD, NONE and ROOT, 3 is the unknown one, then those above in their order
    a, b, unknown = 4, 5, 3
    d, n, v = 4, 5, 6
    root = 2
    wanted = [
        [unknown],
        [v, d],
        [a, 1 + det],
        [root, b],
        [b],
        [2, n],  # one child is class 2: 0 is no word, 1 no child
        [2],  # a distance of 1 is class 2
        [0],
        [0, n],
    ]
    assert found.tolist() == [place(number, values) for number, values in enumerate(wanted)]


def test_values_of_types_are_symbols_whatever_the_order_of_fields() -> None:
    columns = columns_of(("feats", "upos", "form"))
    keys = [("a", "X", "A=1|B=2"), ("b", "Y", "_")]
    counted = [(key, 1) for key in keys]
    lexical = SymbolTable.build(counted, ["form"], 1, columns)
    tags = SymbolTable.build(counted, ["feats", "upos"], 1, columns)
    types = Types(lexical, tags)
    values = Values(("upos", "feats", "form"))
    types.add(keys[0])
    values.extend(types)
    types.add(keys[1])
    types.add(("c", "Z", "_"))
    values.extend(types)
    upos, feats, form = (
        {**table.ids_of(name), None: table.range_of(name)[0]}
        for table, name in ((tags, "upos"), (tags, "feats"), (lexical, "form"))
    )
    assert values.table.tolist() == [
        [0, 0, 0],
        [2, 2, 2],
        [upos["X"], feats["A=1|B=2"], form["a"]],
        [upos["Y"], feats["_"], form["b"]],
        [upos[None], feats["_"], form[None]],
    ]
    values.clear()
    assert len(values.table) == 0


def test_the_standard_templates_are_those_whose_fields_are_read() -> None:
    every = chosen(("standard",), ("form", "lemma", "upos", "xpos", "feats"))
    assert every == STANDARD
    some = chosen(("s0.form  b2.form", "standard"), ("form", "upos"))
    assert some[0] == "s0.form b2.form"
    assert set(some[1:]) < set(STANDARD)
    assert not any(name in text for text in some for name in ("lemma", "xpos", "feats"))


def test_joined_morphemes_have_templates_where_a_treebank_has_them() -> None:
    fields = ("form", "lemma", "upos", "xpos")
    plain = chosen(("standard",), fields, ("form", "lemma", "upos", "xpos"))
    assert not {*plain} & {*STANDARD_JOINED}
    joined = chosen(("standard",), fields, (*fields, "stem", "ending", "last_morpheme"))
    assert joined == (*plain, *STANDARD_JOINED)
    # only tags are joined
    tags = {*chosen(("standard",), fields, (*fields, "last_morpheme"))}
    assert {text for text in STANDARD_JOINED if "stem" not in text} == tags - {*plain}


def test_a_parser_of_a_treebank_that_joins_morphemes_looks_at_them(tmp_path: Path) -> None:
    file = tmp_path / "train.conllu"
    words = [
        ("고향은", "고향+은", "NOUN", "ncn+jxt", 2, "dep"),
        ("멀다", "멀+다", "ADJ", "paa+ef", 0, "root"),
    ]
    lines = [
        f"{number}\t{form}\t{lemma}\t{upos}\t{xpos}\t_\t{head}\t{deprel}\t_\t_\n"
        for number, (form, lemma, upos, xpos, head, deprel) in enumerate(words, 1)
    ]
    file.write_text(("".join(lines) + "\n") * 8, "utf-8")
    config = {"model": {"classifier": "linear"}, "training": {"epochs": 1}}
    trained = train_parser(file, tmp_path / "parser", config, dev=file, threads=1)
    templates = read_header(trained.path).config["model"]["templates"]
    assert templates == [*STANDARD, *STANDARD_JOINED]


@pytest.mark.parametrize(
    ("templates", "message"),
    [
        (["s0.frm"], "the template 's0.frm': no attribute is called 'frm'"),
        (["s0.form q0.upos"], "the template 's0.form q0.upos': 'q0' is no place of"),
        (["s0.x1.upos"], "the template 's0.x1.upos': 's0.x1' has the unknown step 'x1'"),
        (["s0"], "the template 's0': 's0' is no value"),
        ([""], "the template '': 0 values"),
        (["s0.lemma"], "the template 's0.lemma' looks at lemma, which is not read"),
        (["s0.form", "s0.form"], "the template 's0.form' is there twice"),
        ([], "no template is left"),
    ],
)
def test_a_bad_template_is_quoted(templates: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        chosen(templates, FIELDS)
    assert caught.value.message.startswith(message)
    assert caught.value.hint
