"""The shipped files: made again byte for byte, valid, and as rich as they are said to be."""

from __future__ import annotations

import gzip
import hashlib
import io
from collections import Counter
from pathlib import Path
from typing import Any

import make_sample
import pairs
import pytest
from conllu import parse
from grammar import Derivation, Pcfg
from inside import InsideParser, expected_length, spectral_radius

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
    from udtools import validator

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
    tokens = sum(record[code][split]["tokens"] for split in SPLITS)
    sentences = sum(record[code][split]["sentences"] for split in SPLITS)
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


@pytest.mark.parametrize("code", LANGUAGES)
def test_pairs_are_made_again_byte_for_byte(
    shipped: Any,
    drawn: dict[str, dict[str, list[Derivation]]],
    grammars: dict[str, Pcfg],
    parsers: dict[str, InsideParser],
    record: Record,
    code: str,
) -> None:
    language = make_sample.LANGUAGES[code]
    text = make_sample.pairs_table(language, grammars[code], parsers[code], drawn[code]["train"])
    assert text == (shipped.folder / code / "pairs.tsv").read_bytes().decode()
    assert record[code]["pairs"] == make_sample.pairs_record(text)


@pytest.mark.parametrize("code", LANGUAGES)
def test_the_grammar_knows_which_of_a_pair_is_right(
    shipped: Any, parsers: dict[str, InsideParser], code: str
) -> None:
    header, *rows = shipped.pairs(code)
    assert header == list(pairs.COLUMNS)
    train = set(shipped.text(code, "train").splitlines())
    for good, bad, *_ in rows:
        assert parsers[code].probability(good.split(" ")) > 0
        assert parsers[code].probability(bad.split(" ")) == 0
        differing = [a != b for a, b in zip(good.split(" "), bad.split(" "), strict=True)]
        assert sum(differing) == 1
        assert good not in train
    assert len({good for good, *_ in rows}) == len(rows)
    phenomena = make_sample.LANGUAGES[code].phenomena
    found = Counter((phenomenon, paradigm) for *_, phenomenon, paradigm in rows)
    assert found == {(phenomena[name], name): 2 * pairs.PER_FORM for name in phenomena}


def test_no_form_is_right_because_it_is_frequent(shipped: Any) -> None:
    """Of each paradigm, both numbers are right equally often; so are `a` and `an`."""
    _, *rows = shipped.pairs("en")
    for paradigm in pairs.ENGLISH:
        forms = Counter()
        for good, bad, _, name in rows:
            if name == paradigm:
                words = zip(good.split(" "), bad.split(" "), strict=True)
                forms.update(next((a, b) for a, b in words if a != b))
        for one, other in (("a", "an"), ("this", "these"), ("that", "those"), ("was", "were")):
            assert {forms[one], forms[other]} in ({0}, {forms[one]}), paradigm


def test_particles_are_wrong_after_the_final_consonant_of_the_noun(shipped: Any) -> None:
    _, *rows = shipped.pairs("ko")
    checked = 0
    for good, bad, phenomenon, _ in rows:
        if phenomenon != "particle_form":
            continue
        (right, wrong), *_ = (
            (a, b) for a, b in zip(good.split(" "), bad.split(" "), strict=True) if a != b
        )
        assert right[:-1] == wrong[:-1]
        # a syllable is 0xAC00 + 28 n + its final consonant, 0 for none
        is_closed = (ord(right[-2]) - 0xAC00) % 28 > 0
        assert right[-1] in ("은이을과" if is_closed else "는가를와")
        assert wrong[-1] in ("는가를와" if is_closed else "은이을과")
        checked += 1
    assert checked == 160
