"""Unknown words as they are written: in a text, and in a prepared corpus."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_models import char_tokenizer

from seqtool.core.config import from_dict
from seqtool.core.errors import DataError
from seqtool.core.vocabulary import EOS, UNK, UNK_ID, SpecialTokens, Vocabulary
from seqtool.text.prepared import PrepareConfig, PreparedCorpus, prepare
from seqtool.text.tokenizers import Tokenizer, WordTokenizer

LINES = st.lists(st.text("abÉé \t\r\u00a0\u2028\0", max_size=12), max_size=5)


def by_line(tokenizer: Tokenizer, lines: list[str]) -> list[tuple[int, str]]:
    """The same, one line after another."""
    found, place = [], 0
    for line in lines:
        ids, tokens = tokenizer.encode(line).tolist(), tokenizer.tokens(line)
        pairs = enumerate(zip(ids, tokens, strict=True), place)
        found += [(number, token) for number, (id_, token) in pairs if id_ == UNK_ID]
        place += len(ids) + 1
    return found


@given(LINES, st.booleans(), st.sampled_from(["unknown", "skip"]))
def test_unknown_words(lines: list[str], lowercase: bool, special: SpecialTokens) -> None:
    lines = [*lines, "a <s> ab </s> <unk> ba", "</s>", ""]
    vocabulary = Vocabulary([UNK, EOS, "a", "é", "ba"])
    tokenizer = WordTokenizer(vocabulary, lowercase=lowercase, special_tokens=special)
    for some in (lines, lines[:-3]):  # with marks and without
        block = "".join(f"{line}\n" for line in some).encode()
        found = list(tokenizer.unknown_tokens(block, tokenizer.encode_block(block)))
        assert found == by_line(tokenizer, some)


@given(LINES)
def test_unknown_characters(lines: list[str]) -> None:
    tokenizer = char_tokenizer("a É")
    block = "".join(f"{line}\n" for line in lines).encode()
    ids = tokenizer.encode_block(block)
    found = list(tokenizer.unknown_tokens(block, ids))
    assert found == by_line(tokenizer, lines)
    sizes = tokenizer.unknown_sizes(block, ids)
    assert sizes.tolist() == [len(token.encode()) for _, token in found]


def corpus_of(folder: Path, *, valid: str = "b c a\n\nÜx <unk> a c\n", unit: str = "word") -> Path:
    """Prepare a corpus with the words a and b, or such characters."""
    (folder / "train").write_text("a b\n")
    (folder / "valid").write_text(valid, encoding="utf-8")
    config = from_dict(PrepareConfig, {"unit": unit})
    return prepare(folder / "train", folder / "out", config, valid=folder / "valid").path


def test_a_corpus_keeps_them(tmp_path: Path) -> None:
    path = corpus_of(tmp_path)
    assert (path / "valid.words").read_text("utf-8") == "c\nÜx\n<unk>\nc\n"
    corpus = PreparedCorpus.open(path)
    assert corpus.spellings("train") is None
    spellings = corpus.spellings("valid")
    assert spellings is not None
    ids = corpus.ids("valid").astype("int32")
    assert list(spellings.of(ids[:4])) == [(1, "c")]
    assert list(spellings.of(ids[4:])) == [(1, "Üx"), (2, "<unk>"), (4, "c")]


def test_drawn_splits_have_theirs(tmp_path: Path) -> None:
    lines = [f"a{number} b\n" for number in range(60)]
    (tmp_path / "text").write_text("".join(lines))
    config = PrepareConfig(split=(50.0, 25.0, 25.0))
    corpus = prepare(tmp_path / "text", tmp_path / "out", config)
    for split in ("valid", "test"):
        words = (corpus.path / f"{split}.words").read_text().split()
        assert len(words) == corpus.info["splits"][split]["unknown"] > 5
        assert not {*words} & {*corpus.vocabulary.symbols}


@pytest.mark.parametrize(("valid", "unit"), [("a b\n", "word"), ("c\n", "char")])
def test_there_is_no_file_without_them(tmp_path: Path, valid: str, unit: str) -> None:
    path = corpus_of(tmp_path, valid=valid, unit=unit)
    assert not list(path.glob("*.words"))
    assert PreparedCorpus.open(path).spellings("valid") is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"c\nx\n<unk>\n", "has 3 words instead of 4"),
        (b"", "has 0 words instead of 4"),
        (b"c\nx\n<unk>\nc\nd", "is cut off"),
        (b"c\n\xffx\n<unk>\nc\n", "is no UTF-8"),
    ],
)
def test_damage_is_found(tmp_path: Path, content: bytes, message: str) -> None:
    path = corpus_of(tmp_path) / "valid.words"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        PreparedCorpus.open(path.parent).spellings("valid")
    assert caught.value.path == str(path)
    assert caught.value.hint == "prepare the text again"
