"""What the trainings on treebanks share: parts, precision, records, runs that are stopped."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from parsing.segmenter.tiny_segmenter import TRAINING as SEGMENTING
from parsing.segmenter.tiny_segmenter import write_treebank
from parsing.tagger.toy import tiny_config as tiny_tagger
from parsing.tagger.toy import tiny_labeller
from safetensors.numpy import load_file

import seqtool
from seqtool.core import checkpoint, runtime
from seqtool.core.config import from_dict
from seqtool.core.errors import ConfigError, Interrupted, ModelError
from seqtool.parsing.parser.config import PRESETS as PARSERS
from seqtool.parsing.parser.data import prepare_data as parser_data
from seqtool.parsing.parser.train import PARSER, train_parser
from seqtool.parsing.parser.transition.task import ParserTask
from seqtool.parsing.pipeline.config import PRESETS as PIPELINES
from seqtool.parsing.segmenter.config import SEGMENTERS
from seqtool.parsing.segmenter.train import SEGMENTER, SegmenterTask, train_segmenter
from seqtool.parsing.tagger.config import LABELLERS, TAGGERS
from seqtool.parsing.tagger.data import tagger_data
from seqtool.parsing.tagger.train import (
    LABELLER,
    TAGGER,
    TaggerTask,
    train_labeller,
    train_tagger,
)
from seqtool.parsing.train import Kind, TreebankRecord, with_precision
from seqtool.training import hardware
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.sentence import FORM

PARSING: dict[str, Any] = {
    "model": {"lexical_size": 8, "tag_size": 8, "label_size": 4, "hidden_size": 16},
    "learning": {"batch_size": 64, "averaging": 0.9},
    "training": {**PARSERS.settings()["training"], "precision": "float32"},
}


class Family(NamedTuple):
    """One kind of model, with settings of a small one."""

    kind: Kind[Any]
    train: Callable[..., Any]
    config: Any
    task: Callable[..., Any] | None
    command: str  # of the hint that tells how to go on


FAMILIES = {
    "segmenter": Family(
        SEGMENTER, train_segmenter, SEGMENTING, SegmenterTask,
        "train-parser --raw --only segmenter --resume",
    ),
    "tagger": Family(TAGGER, train_tagger, tiny_tagger(2), TaggerTask, "train-tagger --resume"),
    "labeller": Family(LABELLER, train_labeller, tiny_labeller(2), None, "train-tagger --resume"),
    "parser": Family(
        PARSER, train_parser, from_dict(PARSERS.config, PARSING), ParserTask,
        "train-parser --resume",
    ),
}  # fmt: skip


def tagged_treebank(path: Path, num: int, seed: int = 0) -> Path:
    """A treebank of the segmenter's tests, with tags, trees, and points as names."""
    lines = []
    for line in write_treebank(path, num, seed).read_text(encoding="utf-8").splitlines():
        columns = line.split("\t")
        if len(columns) == 10 and columns[0].isdecimal():
            columns[3] = columns[3].replace("_", "X")
            columns[6:8] = ("0", "root") if columns[0] == "1" else ("1", "dep")
            if columns[1] == ".":
                columns[9] = "NER=B-END" if columns[9] == "_" else f"{columns[9]}|NER=B-END"
        lines.append("\t".join(columns))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def treebank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("treebank")
    tagged_treebank(folder / "train.conllu", 60)
    tagged_treebank(folder / "dev.conllu", 20, seed=1)
    return folder


def with_training(config: Any, **training: Any) -> Any:
    return dataclasses.replace(config, training=dataclasses.replace(config.training, **training))


def trained(family: Family, folder: Path, output: Path, **rest: Any) -> Any:
    config = with_training(family.config, epochs=rest.pop("epochs", 2), seed=rest.pop("seed", 1))
    train, dev = folder / "train.conllu", folder / "dev.conllu"
    return family.train(train, output, config, dev=dev, device="cpu", **rest)


def same_weights(first: Path, second: Path) -> bool:
    one, other = (load_file(path / checkpoint.WEIGHTS) for path in (first, second))
    assert one.keys() == other.keys()
    return all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_run_that_is_stopped_ends_with_the_same_weights(
    name: str, treebank: Path, tmp_path: Path
) -> None:
    family = FAMILIES[name]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    result = trained(family, treebank, whole)
    with pytest.raises(Interrupted, match="step 1") as stopped:  # before there is a model
        trained(family, treebank, parts, should_stop=lambda step: step == 1)
    assert f"{family.command} -o {parts}" in stopped.value.hint
    with pytest.raises(ModelError) as refused:
        checkpoint.load(parts)
    assert "--resume" in refused.value.hint
    # amid the second epoch
    last = int(json.loads((whole / "log.jsonl").read_text().splitlines()[-1])["step"])
    with pytest.raises(Interrupted):
        family.train(None, parts, resume=True, device="cpu", should_stop=lambda s: s == last - 1)
    again = family.train(None, parts, resume=True, device="cpu")
    assert same_weights(whole, parts)
    assert again.epochs == result.epochs == 2
    scores = {key: value for key, value in result.scores.items() if key.startswith("dev_")}
    assert scores.items() <= again.scores.items()
    # the model that is opened is the one that was measured
    assert scores.items() <= checkpoint.load(parts).scores.items()


@pytest.mark.parametrize("name", FAMILIES)
def test_seeds_repeat_and_a_run_is_of_its_own_data(
    name: str, treebank: Path, tmp_path: Path
) -> None:
    family = FAMILIES[name]
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        trained(family, treebank, tmp_path / folder, epochs=1, seed=seed)
    assert same_weights(tmp_path / "a", tmp_path / "b")
    assert not same_weights(tmp_path / "a", tmp_path / "c")
    with pytest.raises(ModelError, match=r"treebank\.\w+ was"):
        family.train(treebank / "dev.conllu", tmp_path / "a", resume=True, device="cpu")
    assert trained(family, treebank, tmp_path / "a", resume=True).epochs == 2


@pytest.mark.parametrize("name", FAMILIES)
def test_settings_and_treebanks_have_to_be_given_well(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    presets, output = family.kind.presets, tmp_path / "m"
    for preset in presets.table:
        assert isinstance(presets.chosen(preset), presets.config)
    file = tmp_path / "settings.yaml"
    file.write_text("model:\n  min_count: 7\ntraining:\n  epochs: 3\n  beta2: 0.5\n")
    config: Any = presets.resolve(None, file, {"training.epochs": 4}, ["training.beta2=0.6"])
    assert (config.model.min_count, config.training.epochs, config.training.beta2) == (7, 4, 0.6)
    for preset, more in (("quick", []), *((None, [f"min_coun{x}"]) for x in ("=3", "t=0", "t=x"))):
        with pytest.raises(ConfigError, match=r"no preset|min_coun"):
            presets.resolve(preset, None, {}, more)
    for train, options, error in (
        (None, {}, ConfigError),
        ("-", {}, ConfigError),
        (file, {"unheard": 1}, TypeError),
    ):
        with pytest.raises(error, match=r"nothing is given|stdin|unheard"):
            family.train(train, output, **options)
    assert not output.exists()
    output.mkdir()
    (output / "run.json").write_text('{"kind": "other"}')
    with pytest.raises(ModelError, match=f"not one of a {name}"):
        family.train(None, output, resume=True)


def data_of(name: str, path: Path) -> Any:
    config = FAMILIES[name].config
    record: Any = TreebankRecord(name, config, (str(path),))
    return FAMILIES[name].kind.read(record, path.parent)[1]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(("num", "num_train", "num_dev"), [(35, 32, 3), (9, 9, 9)])
def test_every_tenth_sentence_is_held_out(
    name: str, num: int, num_train: int, num_dev: int, tmp_path: Path
) -> None:
    """None is of fewer than ten, whose validation part is the whole."""
    path = tagged_treebank(tmp_path / "t.conllu", num)
    forms = [item.column(FORM) for item in read_conllu(path)]
    held_out = forms[9::10] or forms
    data = data_of(name, path)
    summary = data.summary
    assert summary["dev_held_out"]
    assert (summary["sentences"], summary["dev_sentences"]) == (num_train, num_dev)
    if name == "segmenter":
        assert [item.column(FORM) for item in data.dev] == held_out
    elif name == "parser":
        assert data.dev.arrays.lengths.tolist() == list(map(len, held_out))
    else:
        assert list(data.column(data.dev, FORM)) == held_out


@pytest.mark.parametrize("name", [name for name in FAMILIES if FAMILIES[name].task])
def test_a_small_treebank_has_smaller_batches(name: str, treebank: Path) -> None:
    family, data = FAMILIES[name], data_of(name, treebank / "train.conllu")
    assert family.task is not None
    nums = []
    for min_steps in (1, 3):
        size = {"segmenter": "batch_characters", "parser": "batch_size"}.get(name, "batch_words")
        learning = dataclasses.replace(family.config.learning, min_steps=min_steps, **{size: 10**5})
        config = getattr(data, "config", family.config)
        task = family.task(dataclasses.replace(config, learning=learning), data)
        nums.append(task.start_epoch(0))
    assert nums[0] in (1, 2)  # the rest is a step, too
    assert nums[1] in (3, 4)


def test_vectors_are_what_forms_begin_with(treebank: Path, tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("3 2\naa 1 0\nzebra 0 1\nbab -1 0.5\n")
    files = [str(treebank / "train.conllu")]
    of_parser = parser_data(files, None, FAMILIES["parser"].config, embeddings=str(path))
    sentences = read_conllu(files)
    of_tagger = tagger_data(sentences, None, FAMILIES["tagger"].config, embeddings=str(path))
    for task, symbols in (
        (ParserTask(of_parser.config, of_parser), of_parser.types.lexical),
        (TaggerTask(FAMILIES["tagger"].config, of_tagger), of_tagger.symbols),
    ):
        ids = symbols.ids_of("form")
        rows = task.module.lexical.weight.detach().numpy()[[ids[w] for w in ("aa", "zebra", "bab")]]
        # of the width of an embedding, and one scale for all
        assert not rows[:, 2:].any()
        expected = rows[0, 0] * np.array([[1, 0], [0, 1], [-1, 0.5]])
        np.testing.assert_allclose(rows[:, :2], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("flags", "vendor", "expected"),
    [
        ("avx2 avx512f", "AuthenticAMD", "float32"),
        ("avx512_bf16", "AuthenticAMD", "bf16"),
        ("avx512_bf16", "GenuineIntel", "float32"),
        ("avx512_bf16 amx_bf16 amx_tile", "GenuineIntel", "bf16"),
        (None, "", "float32"),  # no features are known
    ],
)
def test_features_decide_the_precision(
    flags: str | None, vendor: str, expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "cpuinfo"
    if flags is not None:
        path.write_text(f"vendor_id\t: {vendor}\nflags\t\t: fpu sse2 {flags}\n")
    monkeypatch.setattr(runtime, "CPU_INFO", path)
    monkeypatch.setattr(hardware, "has_bf16_layers", lambda: True)
    runtime.has_bf16_products.cache_clear()
    try:
        for name, family in FAMILIES.items():
            config = family.kind.presets.configuration()
            precision = with_precision(config, "cpu", family.kind).training.precision
            assert precision == ("float32" if name == "segmenter" else expected)
    finally:
        runtime.has_bf16_products.cache_clear()


@pytest.mark.parametrize("presets", [SEGMENTERS, TAGGERS, LABELLERS, PARSERS, PIPELINES])
def test_the_record_of_a_run(presets: Any, tmp_path: Path) -> None:
    config = presets.configuration()
    record = TreebankRecord(
        presets.kind, config, ("a.conllu", "b.conllu"), skip_invalid=True, threads=2,
        command="seqtool train",
    )  # fmt: skip
    record.write(tmp_path)
    assert TreebankRecord.read_as(tmp_path, presets.config, presets.kind) == record
    assert presets.resolve(None, None, {}, [], run=tmp_path) == config
    content = json.loads((tmp_path / "run.json").read_text())
    for name, value in (("train", "a.conllu"), ("skip_invalid", "yes"), ("threads", -1)):
        (tmp_path / "run.json").write_text(json.dumps({**content, name: value}))
        with pytest.raises(ModelError, match="the run's record is damaged"):
            TreebankRecord.read_as(tmp_path, presets.config, presets.kind)


def test_a_parser_is_trained_from_python_and_used(
    treebank: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train, output = treebank / "train.conllu", tmp_path / "p"
    heard: list[Any] = []
    for more, is_shown in (
        ({}, True),
        ({"progress": False}, False),
        ({"on_event": heard.append}, False),
        ({"on_event": heard.append, "progress": True}, True),
    ):
        num = len(heard)
        result = seqtool.train_parser(train, output, PARSING, device="cpu", force=True, **more)
        shown = capsys.readouterr()
        assert (shown.out, bool(shown.err)) == ("", is_shown)
        assert (len(heard) > num) == ("on_event" in more)
    assert result.model.config.model.hidden_size == 16
    # what is not given is as in the default preset
    assert type(result.model.config.learning) is type(PARSERS.configuration().learning)
    (sentence, *_) = result.model(train)
    assert sentence.root is not None


def test_settings_from_python_have_names(treebank: Path, tmp_path: Path) -> None:
    for train, config, message in (
        (seqtool.train_parser, {"model": {"hiden": 3}}, "hiden"),
        (seqtool.train_parser, 3, "the settings are 3"),
        *((train, "slow", "slow") for train in (seqtool.train_pipeline, seqtool.train_lm)),
    ):
        with pytest.raises(ConfigError, match=message):
            train(treebank / "train.conllu", tmp_path / "p", config)
    assert not (tmp_path / "p").exists()
