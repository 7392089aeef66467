"""What the trainings on treebanks share: one part held out, precision by features, their record."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from parsing.segmenter.tiny_segmenter import write_treebank

from seqtool.core import runtime
from seqtool.core.checkpoint import FORMAT_VERSION
from seqtool.core.config import to_dict
from seqtool.core.errors import ModelError
from seqtool.parsing.parser.config import PRESETS as PARSERS
from seqtool.parsing.parser.data import prepare_data as parser_data
from seqtool.parsing.parser.train import PARSER
from seqtool.parsing.pipeline.config import PRESETS as PIPELINES
from seqtool.parsing.segmenter.config import PRESETS as SEGMENTERS
from seqtool.parsing.segmenter.data import prepare_data as segmenter_data
from seqtool.parsing.segmenter.train import SEGMENTER
from seqtool.parsing.tagger.config import PRESETS as TAGGERS
from seqtool.parsing.tagger.data import read_data as tagger_data
from seqtool.parsing.tagger.train import TAGGER
from seqtool.parsing.train import TreebankRecord, with_precision
from seqtool.training import hardware


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Makes this processor one of these features."""

    def change(flags: str, vendor: str = "GenuineIntel") -> None:
        path = tmp_path / "cpuinfo"
        about = f"vendor_id\t: {vendor}\nflags\t\t: fpu sse2 {flags}\n"
        path.write_text(f"processor\t: 0\n{about}\nprocessor\t: 1\n")
        monkeypatch.setattr(runtime, "CPU_INFO", path)
        runtime.has_bf16_products.cache_clear()
        monkeypatch.setattr(hardware, "has_bf16_layers", lambda: True)

    yield change
    runtime.has_bf16_products.cache_clear()


@pytest.mark.parametrize(
    ("flags", "vendor", "expected"),
    [
        ("avx2 avx512f", "AuthenticAMD", "float32"),
        ("avx512_bf16", "AuthenticAMD", "bf16"),
        ("avx512_bf16", "GenuineIntel", "float32"),
        ("avx512_bf16 amx_bf16 amx_tile", "GenuineIntel", "bf16"),
    ],
)
def test_features_decide_the_precision(
    flags: str, vendor: str, expected: str, processor: Callable[..., None]
) -> None:
    processor(flags, vendor)
    for kind, presets, precision in (
        (PARSER, PARSERS, expected),
        (TAGGER, TAGGERS, expected),
        (SEGMENTER, SEGMENTERS, "float32"),
    ):
        config: Any = presets.configuration()
        assert config.training.precision == "auto"
        assert with_precision(config, "cpu", kind).training.precision == precision


def tagged_treebank(path: Path, num: int) -> str:
    """A treebank of the segmenter's tests, with tags and trees."""
    lines = []
    for line in write_treebank(path, num).read_text(encoding="utf-8").splitlines():
        columns = line.split("\t")
        if len(columns) == 10 and columns[0].isdecimal():
            columns[3] = columns[3].replace("_", "X")
            columns[6:8] = ("0", "root") if columns[0] == "1" else ("1", "dep")
        lines.append("\t".join(columns))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(("num", "num_train", "num_dev"), [(35, 32, 3), (9, 9, 9)])
def test_all_hold_out_the_same_sentences(
    num: int, num_train: int, num_dev: int, tmp_path: Path
) -> None:
    """Every tenth; none of fewer than ten, whose dev is train."""
    path = tagged_treebank(tmp_path / "t.conllu", num)
    segmenter = segmenter_data([path], None, SEGMENTERS.configuration())
    tagger = tagger_data([path], None, TAGGERS.configuration().model)
    parser = parser_data([path], None, PARSERS.configuration())
    forms = [sentence.column(1) for sentence in segmenter.dev]
    assert len(forms) == num_dev
    assert list(tagger.forms(tagger.dev.words, tagger.dev.lengths)) == forms
    assert parser.dev.arrays.lengths.tolist() == list(map(len, forms))
    for data in (segmenter, tagger, parser):
        assert data.summary["dev_held_out"]
        numbers = data.summary["sentences"], data.summary["dev_sentences"]
        assert numbers == (num_train, num_dev)


@pytest.mark.parametrize("presets", [SEGMENTERS, TAGGERS, PARSERS, PIPELINES])
def test_the_record_of_a_run(presets: Any, tmp_path: Path) -> None:
    config = presets.configuration()
    content = {
        "format_version": FORMAT_VERSION,
        "kind": presets.kind,
        "config": to_dict(config),
        "train": ["a.conllu", "b.conllu"],
        "dev": None,
        "embeddings": None,
        "skip_invalid": True,
        "threads": 2,
        "command": "seqtool train",
        **{"gold_tags": None, "distil": [], "unlabelled": [], "init": None},
    }
    (tmp_path / "run.json").write_text(json.dumps(content))
    record = TreebankRecord.read_as(tmp_path, presets.config, presets.kind)
    expected = TreebankRecord(
        presets.kind, config, ("a.conllu", "b.conllu"), skip_invalid=True, threads=2,
        command="seqtool train",
    )  # fmt: skip
    assert record == expected
    record.write(tmp_path)
    assert json.loads((tmp_path / "run.json").read_text()) == content
    assert presets.resolve(None, None, {}, [], run=tmp_path) == config
    for name, value in (("train", "a.conllu"), ("skip_invalid", "yes"), ("threads", -1)):
        (tmp_path / "run.json").write_text(json.dumps({**content, name: value}))
        with pytest.raises(ModelError, match="the run's record is damaged"):
            TreebankRecord.read_as(tmp_path, presets.config, presets.kind)
    (tmp_path / "run.json").write_text(json.dumps({**content, "kind": "other"}))
    with pytest.raises(ModelError, match=f"the run is not one of a {presets.kind}"):
        TreebankRecord.read_as(tmp_path, presets.config, presets.kind)
