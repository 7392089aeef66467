"""The surprisal of words: by hand, by enumeration, and against what models say of whole lines."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lm.ngram.random_tables import build, random_rows
from toy_models import (
    BigramModel,
    byte_tokenizer,
    char_tokenizer,
    random_bigrams,
    two_words,
)

from seqtool.core.errors import DataError
from seqtool.core.reading import LineBlocks, read_open_file
from seqtool.core.vocabulary import BLANKS, EOS, EOS_ID, Vocabulary
from seqtool.lm.mixture.model import MixedModel
from seqtool.lm.neural.config import ModelConfig, OutputConfig
from seqtool.lm.neural.model import NeuralLanguageModel
from seqtool.lm.neural.network import NeuralNetwork
from seqtool.lm.ngram.model import NgramModel
from seqtool.lm.protocol import LanguageModel, Summary, summarise_by_steps
from seqtool.lm.tables import plain
from seqtool.lm.words import (
    Word,
    own_frequencies,
    score_blocks,
    score_words,
    text_frequencies,
    word_columns,
)
from seqtool.text.subwords import SubwordTokenizer, train_subwords
from seqtool.text.tokenizers import Tokenizer, WordTokenizer

TRAINING = ["ab abc bca", "abc ab  cab", "ca bc abcab", "bb ab a c", "cab cab  ab bca"]


def subwords(unit: Any, *, lowercase: bool = False) -> SubwordTokenizer:
    return train_subwords(TRAINING, unit=unit, vocab_size=10, lowercase=lowercase)


def tokenizers() -> dict[str, Tokenizer]:
    return {
        "char": char_tokenizer("abc \t"),
        "byte": byte_tokenizer(),
        "bpe": subwords("bpe"),
        "unigram": subwords("unigram"),
    }


ALL = tokenizers()


def bits_of(line: Sequence[Word]) -> list[float]:
    return [word.bits for word in line]


def test_by_hand() -> None:
    # previous   <unk>  </s>   a     b     space
    table = [
        [1 / 4, 1 / 4, 1 / 4, 1 / 4, 0],  # <unk>
        [0, 0, 1, 0, 0],  # </s>
        [0, 1 / 4, 1 / 4, 1 / 4, 1 / 4],  # a: a word has ended with 1/2
        [0, 1 / 2, 1 / 8, 1 / 8, 1 / 4],  # b: with 3/4
        [0, 1 / 8, 1 / 2, 1 / 4, 1 / 8],  # space
        [0, 1 / 8, 1 / 4, 1 / 2, 1 / 8],  # <s>
    ]
    model = BigramModel(char_tokenizer("ab "), table)
    ((ba, a, end), (only,), (after,)) = score_words(model, ["ba  a ", "", " "], line_ends=True)
    # b, a, and that it ends: 1/2 1/8 1/2
    assert ba == Word(1, "ba", 0, 2, pytest.approx(5), False, 2)
    # two spaces and a: 1/4 1/8 1/2, and that it ends: 1/2, of what has ended before: 1/2
    assert a == Word(2, "a", 4, 5, pytest.approx(6), False, 3)
    # a space 1/4 and </s> 1/8, of what has ended before: 1/2
    assert end == Word(3, EOS, 6, 6, pytest.approx(4), False, 2)
    assert only == Word(1, EOS, 0, 0, pytest.approx(3), False, 1)
    assert after == Word(1, EOS, 1, 1, pytest.approx(6), False, 2)


def structured(tokenizer: Tokenizer, symbols: Sequence[int], seed: int) -> BigramModel:
    """Return bigrams in which a word has the same symbols in rising order, so that it ends.

    One blank alone may follow a word's last symbol, and a line may end after it.
    """
    size = len(tokenizer.vocabulary)
    rng = np.random.default_rng(seed)
    table = np.full((size + 1, size), 1 / size)
    opens = tokenizer.opens_word
    texts = [text_of(tokenizer, token) for token in range(size)]
    for previous in (*symbols, EOS_ID, size):
        is_blank = previous < size and texts[previous].strip(BLANKS) == ""
        row = np.zeros(size)
        for token in (*symbols, EOS_ID):
            blank_again = is_blank and opens[token] and token != EOS_ID
            rises = opens[token] or previous in (EOS_ID, size) or is_blank or token > previous
            row[token] = rng.random() * (rises and not blank_again)
        table[previous] = row / row.sum()
    return BigramModel(tokenizer, table)


def text_of(tokenizer: Tokenizer, token: int) -> str:
    """Return the text of a symbol; "\\n" of the end of a line."""
    return tokenizer.decode([token])


def units(
    model: BigramModel, symbols: Sequence[int], context: Sequence[int]
) -> Iterator[list[int]]:
    """Give the symbols of every word that may follow a context, by their texts, and of the end."""
    tokenizer = model.tokenizer
    pending: list[list[int]] = [[]]
    while pending:
        unit = pending.pop()
        text = tokenizer.decode(unit)
        if text.strip(BLANKS):
            yield unit
        last = (*context, *unit)[-1] if (*context, *unit) else len(tokenizer.vocabulary)
        for token in symbols:
            begins_next = text_of(tokenizer, token)[0] in BLANKS
            if begins_next and text.strip(BLANKS):
                continue  # it is of the next word
            if not begins_next and not unit and context:
                continue  # it would be of the word before
            if model.table[last, token] > 0:
                pending.append([*unit, token])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("unit", ALL)
def test_words_sum_to_one(unit: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = tokenizers()[unit]
    symbols = [
        token
        for token in range(2, len(tokenizer.vocabulary))
        if set(text_of(tokenizer, token)) <= set("abc \t")
    ]
    assert any(tokenizer.opens_word[symbols])
    model = structured(tokenizer, symbols, seed)
    first = next(unit for unit in units(model, symbols, []) if len(unit) > 1)
    second = next(unit for unit in units(model, symbols, first) if len(unit) > 1)
    for context in ([], first, [*first, *second]):
        before = tokenizer.decode(context)
        lines = [[*context, *unit] for unit in units(model, symbols, context)]
        # every end of the line: at once, or after a blank
        ends = [
            context,
            *([*context, token] for token in symbols if text_of(tokenizer, token) in BLANKS),
        ]
        # all ways to cut a text into pieces, not the tokenizer's own alone
        ids = np.array([token for line in (*lines, *ends) for token in (*line, EOS_ID)], np.int32)
        block = "".join(tokenizer.decode(line) + "\n" for line in (*lines, *ends)).encode()
        monkeypatch.setattr(tokenizer, "encode_block", lambda _, ids=ids: ids)
        (scored,) = score_blocks(model, read_open_file(io.BytesIO(block), "text"), line_ends=True)
        found = scored.by_line()
        num = len(before.split())
        probs = [2 ** -words[num].bits for words in found]
        assert len({words[num].text for words in found}) > 5
        assert math.fsum(probs) == pytest.approx(1, rel=1e-12)
        assert [words[num].text for words in found[len(lines) :]] == [EOS] * len(ends)


@pytest.mark.parametrize("unit", ALL)
@given(
    lines=st.lists(
        st.text("ab c\t\rdzéİ\xa0\u2581\u3000🐶<_>")
        | st.text(st.characters(exclude_categories=["Cs"])),
        max_size=5,
    )
)
def test_words_of_a_line_multiply_to_its_probability(unit: str, lines: list[str]) -> None:
    lines = [line.replace("\n", " ").replace("\r", " ") for line in lines]
    model = random_bigrams(ALL[unit], 1)
    for lowercase in (False, True):
        model.tokenizer.lowercase = lowercase
        found = list(score_words(model, lines, line_ends=True))
        own = [
            -float(scores.log_probs.sum()) / math.log(2)
            for line in lines
            for scores in model.score_ids(
                [model.tokenizer.encode_block(line.encode() + b"\n")], reset_state=True
            )
        ]
        assert [math.fsum(bits_of(words)) for words in found] == pytest.approx(own, rel=1e-12)
        for line, words in zip(lines, found, strict=True):
            expected = [word for word in line.replace("\t", " ").split(" ") if word]
            assert [word.text for word in words[:-1]] == expected
            assert all(line[word.start : word.end] == word.text for word in words[:-1])
            assert [word.number for word in words] == list(range(1, len(words) + 1))
            assert min(bits_of(words)) >= 0
    model.tokenizer.lowercase = False


def test_a_model_of_words_is_taken_at_its_word() -> None:
    model = two_words()
    ((a, z, b, end), (again, _)) = score_words(
        model, [" a\tz  b", "b"], line_ends=True, entropy=True
    )
    assert bits_of([a, z, b, end]) == [1, 3, 2, 1]
    assert [word.oov for word in (a, z, b, end)] == [False, True, False, False]
    assert (z.start, z.end, z.number, z.pieces, z.order) == (3, 4, 2, 1, None)
    # the row of <s>: 1/8 1/8 1/2 1/4
    assert a.entropy == pytest.approx(2 * 3 / 8 + 1 / 2 + 2 / 4)
    assert z.entropy == pytest.approx(2 * 3 / 8 + 2 / 4 + 1 / 2)
    assert again.bits == 2
    carried = list(score_words(model, ["a b", "b"], carry_state=True))
    assert carried[1][0].bits == 2  # the row of </s>, not that of <s>
    assert [word.text for word in carried[0]] == ["a", "b"]


def test_a_piece_with_a_blank_inside_counts_for_the_word_it_begins_in() -> None:
    tokenizer = train_subwords(["1\t1 1", "1\t1"] * 5, unit="bpe", vocab_size=None)
    assert "1\t1" in tokenizer.vocabulary.symbols
    model = random_bigrams(tokenizer, 2)
    (words,) = score_words(model, ["1\t1 1"], line_ends=True)
    assert [word.text for word in words] == ["1", "1", "1", EOS]
    assert [word.pieces for word in words[:2]] == [1, 0]
    (scores,) = model.score_ids([tokenizer.encode_block(b"1\t1 1\n")], reset_state=True)
    assert sum(bits_of(words)) == pytest.approx(-scores.log_probs.sum() / math.log(2))


# ---- what models read off their distributions, against going through the text step by step


LINES = ["ab abc  bca", "", "c", " cab ab\tabca ", "b b b b ca"]


def network(tokenizer: Tokenizer, **output: Any) -> NeuralLanguageModel:
    torch.manual_seed(1)
    config = ModelConfig(
        cell="lstm", hidden_size=6, embedding_size=5, layers=1, output=OutputConfig(**output)
    )
    layers = NeuralNetwork(config, len(tokenizer.vocabulary)).double()
    with torch.no_grad():
        for parameter in layers.parameters():
            parameter.uniform_(-1.0, 1.0)
    return NeuralLanguageModel(layers, tokenizer)


def check_summaries(model: LanguageModel, *, exactly: float = 1e-10) -> None:
    blocks = [
        model.tokenizer.encode_block("".join(line + "\n" for line in lines).encode())
        for lines in (LINES[:2], LINES[2:])
    ]
    class_V = model.tokenizer.opens_word
    for reset_state in (True, False):
        for summary in (Summary(class_V, entropy=True), Summary(class_V), Summary(entropy=True)):
            fast = list(model.score_ids(blocks, reset_state=reset_state, summary=summary))
            steps = list(summarise_by_steps(model, blocks, summary, reset_state=reset_state))
            own = list(model.score_ids(blocks, reset_state=reset_state))
            for ids, one, other, alone in zip(blocks, fast, steps, own, strict=True):
                np.testing.assert_allclose(one.log_probs, alone.log_probs, rtol=1e-15)
                np.testing.assert_allclose(one.log_probs, other.log_probs, rtol=exactly)
                for name in ("class_log_probs", "entropies"):
                    found, expected = getattr(one, name), getattr(other, name)
                    assert (found is None) == (expected is None)
                    if found is not None:
                        asked = class_V[ids] if name == "class_log_probs" else slice(None)
                        np.testing.assert_allclose(found[asked], expected[asked], rtol=exactly)


@pytest.mark.parametrize(
    "output",
    [
        {},
        {"layer": "adaptive", "cutoffs": (4,)},
        {"layer": "maxent", "direct_size": 1000},
    ],
    ids=lambda output: output.get("layer", "full"),
)
def test_networks_read_summaries_as_they_score(output: dict[str, Any]) -> None:
    check_summaries(network(ALL["bpe"], **output))


@settings(max_examples=30)
@given(st.data())
def test_ngrams_read_summaries_once_for_each_context(data: st.DataObject) -> None:
    tokenizer = char_tokenizer("abc \t")
    size = len(tokenizer.vocabulary)
    order = data.draw(st.integers(1, 3))
    table = build(data.draw(random_rows(size, order)), size, order)
    check_summaries(NgramModel(table, tokenizer))


def test_mixtures_add_the_classes_of_their_parts() -> None:
    turned = char_tokenizer("cab\t ")  # the same symbols in another order
    parts = [
        network(ALL["char"]),
        NgramModel(build({(i,): (-1.5 - i / 8, 0.0) for i in range(8)}, 7, 1), turned),
    ]
    check_summaries(MixedModel(parts, [0.25, 0.75]))
    (first, *_), *_ = score_words(MixedModel(parts), ["ab c"])
    assert first.order is None


# ---- what surrounds them


def test_a_bad_line_is_told_by_its_number() -> None:
    lines = ["a b"] * 1500 + ["a </s>"]
    with pytest.raises(DataError, match="special symbol") as caught:
        list(score_words(two_words(), lines))
    assert caught.value.line == 1501
    skipping = WordTokenizer(Vocabulary(["<unk>", EOS, "a", "b"]), special_tokens="skip")
    ((a, b),) = score_words(BigramModel(skipping, two_words().table), ["a </s> b"])
    assert (a.bits, b.bits, b.start, b.number) == (1, 1, 7, 2)
    skipping.lowercase = True  # what is a mark once it is read is left out, too
    ((a, b),) = score_words(BigramModel(skipping, two_words().table), ["A </S> <S> b"])
    assert (a.text, b.text, b.start, b.number) == ("A", "b", 11, 2)


def test_frequencies() -> None:
    vocabulary = Vocabulary(["<unk>", EOS, "a", "b"], [2, 5, 6, 2])
    model = BigramModel(WordTokenizer(vocabulary, lowercase=True), two_words().table)
    own = own_frequencies(model)
    # </s> is no word, <unk> counts
    assert own == pytest.approx({"a": math.log10(6 / 10), "b": math.log10(2 / 10)})
    (words,) = score_blocks(model, LineBlocks(["A z <unk>"]), line_ends=True)
    logs = word_columns(words, 1, frequencies=own, lowercase=True)["log10_frequency"]
    assert logs == [own["a"], None, None, None]
    assert own_frequencies(two_words()) is None  # no counts
    assert own_frequencies(random_bigrams(ALL["char"], 1)) is None
    of_text = text_frequencies([b"The the\n", b"the\tend </s> <unk>\n\n"])
    expected = {"the": math.log10(2 / 4), "The": math.log10(1 / 4), "end": math.log10(1 / 4)}
    assert of_text == pytest.approx(expected)


def test_columns() -> None:
    model = two_words()
    (lines,) = score_blocks(model, LineBlocks(["a b", "", "b"]), line_ends=True)
    frequencies = text_frequencies([b"a " + b"b " * 9 + b"\n"])
    columns = {
        name: [*plain(column)]
        for name, column in word_columns(lines, 5, frequencies=frequencies, previous=2).items()
    }
    assert columns["sentence"] == [5, 5, 5, 6, 7, 7]
    assert columns["word"] == ["a", "b", EOS, EOS, "b", EOS]
    assert columns["length"] == [1, 1, 0, 0, 1, 0]
    assert columns["surprisal"] == [1, 1, 1, 3, 2, 1]
    assert columns["surprisal_1"] == [None, 1, 1, None, None, 2]
    assert columns["surprisal_2"] == [None, None, 1, None, None, None]
    assert columns["length_1"] == [None, 1, 1, None, None, 1]
    assert columns["log10_frequency"][0] == -1
    assert columns["log10_frequency"][2:4] == [None, None]
    assert columns["log10_frequency_1"][1] == -1
    assert "entropy" not in columns
    assert "order" not in columns
