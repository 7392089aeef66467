"""Finding the shipped sample, and its true perplexity by its bytes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from seqtool.core.errors import SeqtoolError
from seqtool.core.storage import sum_of
from seqtool.text import datasets as sample


@pytest.fixture(autouse=True)
def _fresh_cache() -> Iterator[None]:
    sample._known_texts.cache_clear()
    yield
    sample._known_texts.cache_clear()


def test_an_installed_package_uses_its_copy(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sample.sample_directory() == root / "data"  # of a checkout
    monkeypatch.setattr(sample, "_PACKAGE", tmp_path / "seqtool")
    with pytest.raises(SeqtoolError, match="sample corpus is missing"):
        sample.sample_text()
    assert sample.true_perplexity("0" * 64) is None
    copy = tmp_path / "seqtool" / "sample_data"
    copy.mkdir(parents=True)
    shutil.copy(root / "data" / "sample.json", copy)
    assert sample.sample_directory() == copy
    with pytest.raises(SeqtoolError, match="file of the sample is missing"):
        sample.sample_text("en", "test")
    (copy / "sample.json").write_text("{")
    with pytest.raises(SeqtoolError, match="record is damaged"):
        sample.sample_text("en", "test")


@pytest.mark.parametrize("language", ["en", "ko"])
def test_every_file_is_found(language: str) -> None:
    for split in ("train", "valid", "test"):
        text, treebank = (
            sample.sample_text(language, split),
            sample.sample_treebank(language, split),
        )
        assert text.name == f"{split}.txt"
        assert treebank.name == (f"{split}.conllu.gz" if split == "train" else f"{split}.conllu")
        assert text.stat().st_size
        assert treebank.stat().st_size


def test_unknown_names_are_refused_with_the_choices() -> None:
    with pytest.raises(SeqtoolError, match="no language 'fr'") as caught:
        sample.sample_text("fr")
    assert "en, ko" in caught.value.hint
    with pytest.raises(SeqtoolError, match="no split 'dev'") as caught:
        sample.sample_treebank("en", "dev")  # type: ignore[arg-type]
    assert "train, valid, test" in caught.value.hint


def test_true_perplexity_goes_by_the_bytes(tmp_path: Path) -> None:
    text = sample.sample_text("en", "test")
    truth = sample.true_perplexity(sum_of(text))
    assert truth is not None
    lines = text.read_text(encoding="utf-8").splitlines()
    assert truth.sentences == len(lines)
    assert truth.tokens == sum(len(line.split(" ")) + 1 for line in lines)
    assert truth.perplexity == pytest.approx(
        10 ** (-truth.log10_probability / truth.tokens), rel=1e-12
    )
    copy = tmp_path / "elsewhere"
    shutil.copy(text, copy)
    assert sample.true_perplexity(sum_of(copy)) == truth
    changed = text.read_bytes().replace(b"the", b"teh", 1)
    copy.write_bytes(changed)
    assert sample.true_perplexity(sum_of(copy)) is None
    assert sample.true_perplexity("0" * 64) is None


def test_pairs_are_found_and_are_no_text() -> None:
    record = json.loads((sample.sample_directory() / "sample.json").read_bytes())
    digests = [entry["sha256"] for files in record.values() for entry in files.values()]
    assert len(set(digests)) == len(digests) == 8
    for language in ("en", "ko"):
        path = sample.sample_pairs(language)
        assert sum_of(path) == record[language]["pairs"]["sha256"]
        assert sample.true_perplexity(sum_of(path)) is None
