"""The shipped files: made again byte for byte, valid, and as rich as they are said to be."""

from __future__ import annotations

import gzip
import hashlib
import io
from pathlib import Path
from typing import Any

import make_sample
import pytest
from conllu import parse
from grammar import Derivation, Pcfg
from inside import expected_length, spectral_radius

LANGUAGES = ("en", "ko")
SPLITS = ("train", "valid", "test")
Record = dict[str, dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def drawn(grammars: dict[str, Pcfg]) -> dict[str, dict[str, list[Derivation]]]:
    return {
        code: dict(make_sample.splits(language, grammars[code]))
        for code, language in make_sample.LANGUAGES.items()
    }


@pytest.mark.parametrize("code", LANGUAGES)
@pytest.mark.parametrize("split", SPLITS)
def test_files_are_made_again_byte_for_byte(
    shipped: Any,
    drawn: dict[str, dict[str, list[Derivation]]],
    record: Record,
    code: str,
    split: str,
) -> None:
    text, trees = make_sample.contents(make_sample.LANGUAGES[code], drawn[code][split], split)
    assert text == shipped.text(code, split)
    assert trees == shipped.trees(code, split)
    entry = record[code][split]
    assert entry["sha256"] == hashlib.sha256(text.encode()).hexdigest()
    assert entry["treebank_sha256"] == hashlib.sha256(trees.encode()).hexdigest()
    assert entry["sentences"] == text.count("\n")
    assert entry["tokens"] == len(text.split())
    assert entry["tokens_with_end"] == entry["tokens"] + entry["sentences"]
    assert entry["bytes"] == len(text.encode())


@pytest.mark.parametrize("code", LANGUAGES)
def test_the_validator_finds_no_error(shipped: Any, code: str, tmp_path: Path) -> None:
    validator = pytest.importorskip("udtools.validator")
    report = io.StringIO()
    judge = validator.Validator(lang="ud", level=3, output=report)
    files = []
    for split in SPLITS:
        files.append(tmp_path / f"{split}.conllu")
        files[-1].write_text(shipped.trees(code, split), encoding="utf-8")
    state = judge.validate_files([str(path) for path in files])
    assert state.passed(), report.getvalue()[:2000]
    assert state.sentence_id is not None


@pytest.mark.parametrize("code", LANGUAGES)
@pytest.mark.parametrize("split", ["valid", "test"])
def test_text_and_trees_have_the_same_words(shipped: Any, code: str, split: str) -> None:
    sentences = parse(shipped.trees(code, split))
    lower = make_sample.LANGUAGES[code].lowercase
    lines = shipped.text(code, split).splitlines()
    assert len(sentences) == len(lines)
    for sentence, line in zip(sentences, lines, strict=True):
        forms = [token["form"] for token in sentence if isinstance(token["id"], int)]
        assert [form.lower() if lower else form for form in forms] == line.split(" ")


@pytest.mark.parametrize(
    ("code", "lowest", "highest"), [("en", 0.010, 0.020), ("ko", 0.030, 0.060)]
)
def test_a_small_share_is_non_projective(
    drawn: dict[str, dict[str, list[Derivation]]], code: str, lowest: float, highest: float
) -> None:
    trees = [tree for split in drawn[code].values() for tree in split]
    assert lowest < sum(tree.crossing() for tree in trees) / len(trees) < highest


def test_contractions_are_multiword_tokens(shipped: Any) -> None:
    sentences = parse(shipped.trees("en", "test"))
    ranges = {
        token["form"].lower()
        for sentence in sentences
        for token in sentence
        if not isinstance(token["id"], int)
    }
    assert {"doesn't", "can't", "won't", "she's", "they're"} <= ranges


def test_the_showcase_prompt_is_in_the_vocabulary(shipped: Any) -> None:
    words = set(shipped.text("en", "train").split())
    assert {"the", "old"} <= words
    assert "the old" in shipped.text("en", "train")


@pytest.mark.parametrize(("code", "unseen", "fewest"), [("en", 2, 1500), ("ko", 20, 800)])
def test_nearly_every_form_is_in_train(shipped: Any, code: str, unseen: int, fewest: int) -> None:
    train = set(shipped.text(code, "train").split())
    held_out = set(shipped.text(code, "valid").split()) | set(shipped.text(code, "test").split())
    assert len(train) > fewest
    assert len(held_out - train) <= unseen


@pytest.mark.parametrize("code", LANGUAGES)
def test_the_grammar_is_proper(grammars: dict[str, Pcfg], record: Record, code: str) -> None:
    grammar = grammars[code]
    assert spectral_radius(grammar) < 0.8
    for rules in grammar.rules.values():
        assert sum(rule.probability for rule in rules) == pytest.approx(1.0, abs=1e-12)
    tokens = sum(entry["tokens"] for entry in record[code].values())
    sentences = sum(entry["sentences"] for entry in record[code].values())
    assert tokens / sentences == pytest.approx(expected_length(grammar), rel=0.03)


def test_packed_files_name_no_time_and_none_is_large(shipped: Any) -> None:
    files = [
        path
        for path in shipped.folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    assert all(path.stat().st_size < 1_400_000 for path in files)
    assert sum(path.stat().st_size for path in files) < 6_000_000
    for path in files:
        if path.suffix == ".gz":
            assert path.read_bytes()[4:8] == b"\0\0\0\0"
            assert gzip.decompress(path.read_bytes()).endswith(b"\n\n")
