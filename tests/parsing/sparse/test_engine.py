"""Templates, the features that they make, sums of weights, and a perceptron of dictionaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parsing.parser.tiny import LABELS, make_sentence, tiny_config, write_treebank
from parsing.sparse.plain import place

from seqtool.core.checkpoint import read_header
from seqtool.core.config import from_dict
from seqtool.core.errors import ConfigError
from seqtool.parsing.encoding.features import SymbolTable, Types, columns_of, encode
from seqtool.parsing.parser.config import ParserConfig, preset
from seqtool.parsing.parser.data import TrainingData, prepare_data
from seqtool.parsing.parser.train import train_parser
from seqtool.parsing.parser.transition.oracles import Oracle
from seqtool.parsing.parser.transition.transitions import (
    BASE,
    BUFFER,
    FRONT,
    LEFT,
    LENGTH,
    NUM_LEFT,
    RIGHT,
    SHIFT,
    STACK,
    STACK_SIZE,
    Configurations,
)
from seqtool.parsing.sparse import words
from seqtool.parsing.sparse.engine import AttributeReader, score_rows
from seqtool.parsing.sparse.task import LinearTransitionTask
from seqtool.parsing.sparse.transitions import (
    STANDARD,
    STANDARD_JOINED,
    WEIGHTS,
    LinearDecoder,
    chosen,
    num_weights,
)

FIELDS = ("form", "upos")
BITS = 20


@pytest.mark.parametrize("num_rows", [0, 1, 3, 4, 11])
@pytest.mark.parametrize("num_outcomes", [1, 33])
def test_rows_of_weights_are_added(num_rows: int, num_outcomes: int) -> None:
    random, size = np.random.default_rng(0), 1000
    # whole numbers, whose sums are the same in any order and in half precision
    weights = random.integers(-30, 30, size + num_outcomes - 1).astype(np.float32)
    rows = random.integers(0, size, (7, num_rows)).astype(np.int32)
    rows[0] = size - 1  # the last row there is
    wanted = weights[rows[:, :, None] + np.arange(num_outcomes)].sum(axis=1)
    for given in (weights, weights.astype(np.float16).view(np.uint16)):
        scores = np.full((7, num_outcomes), np.nan, np.float32)
        score_rows(rows, given, scores)
        np.testing.assert_array_equal(scores, wanted)


def test_halves_are_read_as_numpy_reads_them() -> None:
    every = np.arange(1 << 16, dtype=np.uint16)  # subnormal numbers and infinities among them
    scores = np.empty((1, 1 << 16), np.float32)
    score_rows(np.zeros((1, 1), np.int32), every, scores)
    # 0 + -0 is 0
    np.testing.assert_array_equal(scores[0], every.view(np.float16).astype(np.float32))


def test_the_features_of_a_configuration_made_by_hand() -> None:
    # a <- b c on the stack, and the second b in the buffer: after LEFT with the label det
    columns = columns_of(FIELDS)
    keys = [((form, tag), 1) for form in ("a", "b") for tag in ("D", "N", "V")]
    types = Types(*(SymbolTable.build(keys, [field], 1, columns) for field in FIELDS))
    arrays = encode([make_sentence([("a", "D"), ("b", "N"), ("c", "V"), ("b", "D")])], types)
    templates = (
        *("s0.form", "s0.upos b0.upos", "s1.l1.form s1.l1.label", "s2.upos s1.form", "b0.form"),
        *("s1.lefts s1.upos", "s1-s0", "s0.r1.label", "b1.upos s0.prev.upos"),
    )
    config = tiny_config(fields=FIELDS, templates=templates, hash_bits=BITS).model
    weights = np.zeros(num_weights(config, LABELS), np.float32)
    decoder = LinearDecoder(config, LABELS, {WEIGHTS: weights})
    decoder.prepare(types)
    configurations = Configurations("arc-standard", LABELS, 1, 4)
    which = np.zeros(1, np.int32)
    configurations.start(which, arrays.tokens, arrays.lengths)
    det = LABELS.arcs.index("det")
    # what leaves no choice is done at once: the first two words are shifted, and then the third
    assert configurations.legal(which)[0] == 1 << SHIFT | 1 << LEFT | 1 << RIGHT
    configurations.advance(which, np.asarray([2 + det], np.int32))
    found = decoder.rows(configurations, which, arrays.types)[0]
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
    assert found.tolist() == [place(number, values, BITS) for number, values in enumerate(wanted)]


def test_attributes_of_types_are_symbols_whatever_the_order_of_fields() -> None:
    columns = columns_of(("feats", "upos", "form"))
    keys = [("a", "X", "A=1|B=2"), ("b", "Y", "_")]
    counted = [(key, 1) for key in keys]
    lexical = SymbolTable.build(counted, ["form"], 1, columns)
    tags = SymbolTable.build(counted, ["feats", "upos"], 1, columns)
    types = Types(lexical, tags)
    attributes = AttributeReader(("upos", "feats", "form"))
    types.add(keys[0])
    attributes.prepare(types)
    types.add(keys[1])
    types.add(("c", "Z", "_"))
    attributes.prepare(types)
    upos, feats, form = (
        {**table.ids_of(name), None: table.range_of(name)[0]}
        for table, name in ((tags, "upos"), (tags, "feats"), (lexical, "form"))
    )
    assert attributes.table.tolist() == [
        [0, 0, 0],
        [2, 2, 2],
        [upos["X"], feats["A=1|B=2"], form["a"]],
        [upos["Y"], feats["_"], form["b"]],
        [upos[None], feats["_"], form[None]],
    ]


def test_the_standard_templates_are_those_whose_fields_are_read() -> None:
    fields = ("form", "lemma", "upos", "xpos", "feats")
    assert chosen(("standard",), fields) == STANDARD
    some = chosen(("s0.form  b2.form", "standard"), FIELDS)
    assert some[0] == "s0.form b2.form"
    assert set(some[1:]) < {*STANDARD}
    assert not any(name in text for text in some for name in ("lemma", "xpos", "feats"))
    # those of morphemes are there where a treebank joins them, or only their tags
    of_tags = {*chosen(("standard",), fields, (*fields, "last_morpheme"))} - {*STANDARD}
    assert of_tags == {text for text in STANDARD_JOINED if "stem" not in text}


def test_a_parser_of_a_treebank_that_joins_morphemes_looks_at_them(tmp_path: Path) -> None:
    file = tmp_path / "train.conllu"
    lines = (
        "1\t고향은\t고향+은\tNOUN\tncn+jxt\t_\t2\tdep\t_\t_\n"
        "2\t멀다\t멀+다\tADJ\tpaa+ef\t_\t0\troot\t_\t_\n\n"
    )
    file.write_text(lines * 8, "utf-8")
    config = {"model": {"classifier": "linear"}, "training": {"epochs": 1}}
    trained = train_parser(file, tmp_path / "parser", config, dev=file, threads=1)
    templates = read_header(trained.path).config["model"]["templates"]
    assert templates == [*STANDARD, *STANDARD_JOINED]


def of_words(texts: list[str], _: Any) -> None:
    words.compile_templates(texts)


@pytest.mark.parametrize(
    ("read", "template", "message", "hint"),
    [
        (chosen, "s0.frm", "no attribute is called 'frm'", "form"),
        (chosen, "s0.form q0.upos", "'q0' is no place", "s0"),
        (chosen, "s0.x1.upos", "unknown step 'x1'", "l1"),
        (chosen, "s0", "'s0' is no value", "s0.form"),
        (chosen, "", "no value", "one or more"),
        (chosen, "s0.lemma", "lemma, which is not read", "fields"),
        (of_words, "w.lower v.form", "'v.form' is no value", "w.suffix3"),
        (of_words, "w-0.form", "'w-0.form' is no value", "w.suffix3"),
        (of_words, "w.sufix3", "'w.sufix3' is no value", "suffix3"),
    ],
)
def test_a_bad_template_is_quoted(
    read: Callable[[list[str], Any], Any], template: str, message: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read([template], FIELDS)
    assert repr(template) in caught.value.message
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


TEMPLATES = ("s0.form", "s1.upos s0.upos", "b0.upos", "s0.lefts")


def settings(**learning: Any) -> ParserConfig:
    base = preset("linear")
    base["model"] |= {"fields": ["form", "upos"], "templates": list(TEMPLATES)}
    base["model"] |= {"system": "arc-hybrid", "min_count": 1, "hash_bits": 22}
    # each batch is one sentence, so that sentences are learnt one after another
    base["learning"] = {"batch_size": 1, "explore_after": 1, "exploration": 1.0, **learning}
    return from_dict(ParserConfig, base)


def task_of(config: ParserConfig, folder: Path) -> tuple[LinearTransitionTask, TrainingData]:
    train, dev = (write_treebank(folder / f"{n}.conllu", n, seed=n) for n in (20, 10))
    data = prepare_data([str(train)], str(dev), config)
    return LinearTransitionTask(data.config, data), data


def features(configurations: Configurations, symbols: Any) -> list[tuple[int, ...]]:
    """The features of the one configuration, for `TEMPLATES`: template and values."""
    row, nodes = configurations.configs[0].tolist(), configurations.nodes
    stack = [int(nodes[row[BASE] + i, STACK]) for i in range(row[STACK_SIZE])]
    first = int(nodes[row[BASE] + row[FRONT], BUFFER]) if row[FRONT] <= row[LENGTH] else None
    top, below = stack[-1], stack[-2] if len(stack) > 1 else None
    lefts = min(8, 1 + int(nodes[row[BASE] + top, NUM_LEFT]))
    return [
        (0, symbols("form", top)),
        (1, symbols("upos", below), symbols("upos", top)),
        (2, symbols("upos", first)),
        (3, lefts),
    ]


def perceptron(
    data: TrainingData, order: list[list[int]]
) -> tuple[dict[Any, float], dict[Any, float]]:
    """The weights and their averages, by feature and transition, after epochs in an order."""
    config, labels, arrays = data.config, data.labels, data.train.arrays
    oracle = Oracle(
        config.model.system, labels, data.heads, data.label_ids, arrays.tokens, arrays.lengths
    )
    weights: Counter[Any] = Counter()
    counts: Counter[Any] = Counter()
    sums: Counter[Any] = Counter()
    num = 0
    which = np.zeros(1, np.int32)
    for epoch, sentences in enumerate(order):
        for sentence in sentences:
            span = slice(sentence, sentence + 1)
            configurations = Configurations(config.model.system, labels, 1, 99)
            configurations.start(which, arrays.tokens[span], arrays.lengths[span])
            while len(configurations.unfinished(which)):
                seen = features(configurations, partial(symbol, data, sentence))
                legal = configurations.legal(which)
                actions = np.repeat(np.arange(5), np.diff(labels.segments))
                legal_ones = [t for t, a in enumerate(actions) if legal[0] >> a & 1]
                score = {t: sum(weights[f, t] for f in seen) for t in legal_ones}
                costs = oracle.costs(configurations, which, legal)[0]
                free = oracle.targets(configurations, which)[0][costs == 0]
                own = max(legal_ones, key=score.__getitem__)
                best = max((t for t in free.tolist() if t >= 0), key=score.__getitem__)
                if epoch == 0:
                    counts.update(seen)
                if own != best:
                    known = [f for f in seen if counts[f] >= config.learning.feature_count]
                    weights.update({(f, best): 1 for f in known})
                    weights.subtract({(f, own): 1 for f in known})
                num += 1
                sums.update(weights)
                taken = own if epoch >= 1 else best
                configurations.advance(which, np.asarray([taken], np.int32))
    return weights, {key: value / num for key, value in sums.items()}


def symbol(data: TrainingData, sentence: int, name: str, word: int | None) -> int:
    """The number of a word's form or tag; 0 of no word."""
    if word is None:
        return 0
    if word == 0:
        return 2
    rows = data.types.arrays()[0 if name == "form" else 1]
    return int(rows[data.train.arrays.types[data.train.arrays.tokens[sentence] + word], 0])


@pytest.mark.parametrize("least", [1, 2])
def test_the_perceptron_learns_as_one_of_dictionaries_does(least: int, tmp_path: Path) -> None:
    config = settings(feature_count=least)
    task, data = task_of(config, tmp_path)
    order: list[list[int]] = []
    for epoch in range(3):
        num = task.start_epoch(epoch)
        order.append([int(batch[0]) for batch in task._batches])
        assert all(len(batch) == 1 for batch in task._batches)
        for index in range(num):
            task.learn(index, 1.0)
    weights, averages = perceptron(data, order)
    found = task.weights
    places = {
        key: place(key[0][0], list(key[0][1:]), config.model.hash_bits) + key[1] for key in weights
    }
    assert len({*places.values()}) == len(places)  # none is shared
    values, average = np.zeros_like(found.values), np.zeros(len(found.values))
    for key, at in places.items():
        values[at], average[at] = weights[key], averages[key]
    assert np.array_equal(found.values, values)
    assert np.count_nonzero(values) > 10
    assert np.allclose(found.average(), average, rtol=1e-6, atol=1e-6)


def test_measuring_changes_nothing(tmp_path: Path) -> None:
    task, _ = task_of(settings(), tmp_path)
    task.start_epoch(0)
    task.learn(0, 1.0)
    before = [np.copy(array) for array in task.weights]
    measured = task.loss(1)
    assert all(np.array_equal(a, b) for a, b in zip(before, task.weights, strict=True))
    assert measured[1] == task.learn(1, 1.0)[1]
