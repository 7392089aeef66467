"""The segmenter without torch: equal to the network, and the same however texts are batched."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from parsing.segmenter.tiny_segmenter import FORMS, SPLITTER, random_segmenter

from seqtool.core import checkpoint
from seqtool.core.errors import ModelError
from seqtool.parsing.segmenter import model as model_module
from seqtool.parsing.segmenter.characters import MAX_WORD, Alphabet, code_points, seen
from seqtool.parsing.segmenter.data import MultiwordSplitter
from seqtool.parsing.segmenter.model import Segmenter, Windows
from seqtool.parsing.segmenter.network import SegmenterNetwork
from seqtool.parsing.segmenter.rules import Spans

CHARACTERS = st.sampled_from(list("abdehtu.,' \n\u00e9\u0301\u4e2d0"))
STRETCHES = st.lists(
    st.text(CHARACTERS, min_size=1, max_size=40).map(str.strip).filter(bool), min_size=1, max_size=8
)
EVERY_SPLIT = MultiwordSplitter({}, {letter: (letter, letter) for letter in "abehtdu.,'"})


def test_scores_are_those_of_the_network() -> None:
    segmenter = random_segmenter(3, character_layers=2)
    network = SegmenterNetwork(segmenter.config.model, len(segmenter.alphabet), 3, num_tags=2)
    weights = {k: torch.from_numpy(v) for k, v in segmenter.weights.items()}
    # those of tags are for training alone
    missing, unknown = network.load_state_dict(weights, strict=False)
    assert missing == ["tags.weight", "tags.bias"]
    assert not unknown
    assert network.arrays().keys() == weights.keys()
    text = "the cat, ab\nThe 0 d\u00e9 hut. a"
    codes, places = seen(code_points(text))
    assert places.tolist() == list(range(len(text)))
    spans = segmenter.split([code_points(text)])[0]
    symbols = torch.from_numpy(segmenter.alphabet.symbols(codes.tolist())).long()
    lengths = torch.tensor([len(codes)])
    with torch.no_grad():
        states = network.character_states(symbols, torch.arange(len(codes)), lengths, lambda x: x)
        end_scores = network.token_ends(states)[:, 0].numpy()
        # by the rules of tokens: never before a combining mark, always before whitespace
        ends = [
            place + 1
            for place, character in enumerate(text)
            if character not in " \n"
            and (end_scores[place] > 0 or text[place + 1 : place + 2] in ("", " ", "\n"))
        ]
        assert spans.ends == ends
        assert min(abs(end_scores)) > 1e-3  # far from where rounding could matter
        forms = [text[b:e].lower() for b, e in zip(spans.begins, spans.ends, strict=True)]
        rows = torch.tensor([segmenter.lexicon.get(form, 0) for form in forms])
        inner = network.token_states(
            states, torch.tensor(spans.begins), torch.tensor(ends) - 1, rows,
            torch.tensor([len(ends)]),
        )  # fmt: skip
        decisions = network.decisions(inner).numpy()
    of_tokens = _states_of(states, spans.begins, ends)
    scores = segmenter.reader.token_scores(of_tokens, forms, np.array([len(ends)]))
    np.testing.assert_allclose(scores, decisions, rtol=1e-4, atol=1e-5)
    expected = [place + 1 for place, score in enumerate(decisions[:-1, 0]) if score > 0]
    assert spans.sentence_ends == [*expected, len(ends)]


def _states_of(states: torch.Tensor, begins: list[int], ends: list[int]) -> np.ndarray:
    array = states.numpy()
    return np.hstack((array[begins], array[[end - 1 for end in ends]]))


@given(STRETCHES, st.integers(0, 4), st.booleans(), st.integers(1, 3))
@settings(max_examples=25)
def test_batches_do_not_matter(
    texts: list[str], seed: int, has_spaces: bool, num_members: int
) -> None:
    segmenter, *others = (
        random_segmenter(seed + number, has_spaces=has_spaces) for number in range(num_members)
    )
    segmenter = segmenter.ensemble(others)
    codes = [code_points(text) for text in texts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_module, "_CHARACTERS", 8)
        patch.setattr(model_module, "CHARACTER_CONTEXT", 3)
        patch.setattr(model_module, "_TOKENS", 8)
        patch.setattr(model_module, "TOKEN_CONTEXT", 3)
        together = segmenter.split(codes)
        patch.setattr(model_module, "GROUP", 10)
        assert segmenter.split(codes) == together
        assert [segmenter.split([single])[0] for single in codes] == together
        # nothing is lost, and no token is empty or holds whitespace that it may not
        for text, spans in zip(texts, together, strict=True):
            tokens = [text[b:e] for b, e in zip(spans.begins, spans.ends, strict=True)]
            assert "".join("".join(tokens).split()) == "".join(text.split())
            assert all(token == token.strip() != "" for token in tokens)
            assert has_spaces or all(len(token.split()) == 1 for token in tokens)
            assert spans.sentence_ends[-1] == len(tokens)
            assert all(begin < end for begin, end in pairwise([0, *spans.sentence_ends]))


@pytest.mark.parametrize("has_spaces", [False, True])
def test_a_word_without_end_is_cut(has_spaces: bool) -> None:
    segmenter = random_segmenter(has_spaces=has_spaces)
    segmenter.weights["token_ends.bias"][:] = -100.0  # never an end
    spans = segmenter.split([code_points("a" * 2500 + " b" * 10)])[0]
    found = list(zip(spans.begins, spans.ends, strict=True))
    last = (2000, 2520) if has_spaces else (2000, 2500)
    assert found[:3] == [(0, MAX_WORD), (MAX_WORD, 2 * MAX_WORD), last]
    assert len(found) == (3 if has_spaces else 13)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(1, 9), st.integers(0, 4))
def test_windows_hold_each_place_once(lengths: list[int], size: int, context: int) -> None:
    windows = Windows.over(np.array(lengths), size, context)
    bounds = np.cumsum([0, *lengths]).tolist()
    assert windows.places()[windows.used()].tolist() == list(range(bounds[-1]))
    for begin, end, read_begin, read_end in zip(
        windows.begins.tolist(), windows.ends.tolist(),
        windows.read_begins.tolist(), windows.read_ends.tolist(), strict=True,
    ):  # fmt: skip
        low = max(bound for bound in bounds if bound <= begin)
        high = min(bound for bound in bounds if bound >= end)
        assert low < high == min(bound for bound in bounds if bound > begin)
        assert (read_begin, read_end) == (max(low, begin - context), min(high, end + context))
        assert end - begin <= size + 2 * context
    groups = list(windows.groups(7))
    assert np.concatenate([group.begins for group in groups]).tolist() == windows.begins.tolist()


def test_joined_segmenters_go_by_the_mean_of_their_scores() -> None:
    """Scores are linear in the last layers: where only these differ, their means give the mean."""
    first = random_segmenter(1)
    names = ("token_ends.weight", "token_ends.bias", "decisions.weight", "decisions.bias")
    outputs = [random_segmenter(seed).weights for seed in (1, 2, 3)]
    letters = np.random.default_rng(0).choice(list("abehtdu.,' \n"), 3000)
    text = code_points("".join(letters).strip())

    def with_outputs(arrays: dict[str, Any]) -> Segmenter:
        return Segmenter(
            first.config, first.alphabet, FORMS, EVERY_SPLIT, False, {**first.weights, **arrays}
        )

    def found(segmenter: Segmenter) -> Spans:
        return segmenter.split([text])[0]

    members = [with_outputs({name: of[name] for name in names}) for of in outputs]
    means = {name: np.mean([of[name] for of in outputs], axis=0) for name in names}
    together = found(members[0].ensemble(members[1:]))
    assert together == found(with_outputs(means))
    for member in members:
        alone = found(member)
        assert together.ends != alone.ends
        assert together.sentence_ends != alone.sentence_ends
        assert together.words.keys() != alone.words.keys()
    assert found(first.ensemble([])) == found(first)


def test_joined_segmenters_read_with_their_own_networks() -> None:
    """Two of the same weights say what one says, and the order of the others does not matter."""
    members = [random_segmenter(seed) for seed in (1, 1, 2, 3)]
    text = code_points("the hat, du b\u00e9\u0301te. can't a\n\u4e2d ab. " * 20 + "a")

    def found(first: Segmenter, *others: Segmenter) -> Spans:
        return first.ensemble(others).split([text])[0]

    apart = [found(member) for member in members]
    assert found(*members[:2]) == apart[0]
    together = found(members[0], members[2], members[3])
    assert together == found(*members[2:], members[0]) == found(members[3], *members[:3:2])
    assert together not in apart
    assert found(members[0].ensemble([members[2]]), members[3]) == together


def test_segmenters_that_know_other_things_are_not_joined() -> None:
    first = random_segmenter()
    arguments = (first.config, first.alphabet, FORMS, SPLITTER, False, first.weights)
    for place, other in (
        (1, Alphabet(["LATIN"], [" ", "\n", *"abehtdu.,-"])),
        (2, {"a": 1, "the": 2, "0": 3}),
        (3, EVERY_SPLIT),
        (4, True),
    ):
        changed = Segmenter(*arguments[:place], other, *arguments[place + 1 :])
        with pytest.raises(ModelError, match="different treebanks or settings"):
            first.ensemble([changed])


def test_a_saved_segmenter_is_the_same(tmp_path: Path) -> None:
    segmenter = random_segmenter(5, has_spaces=True)
    segmenter.save(tmp_path / "s", scores={"dev_mean": 1.0}, data={"words": 2})
    loaded = checkpoint.load(tmp_path / "s")
    text = "the hat, du b\u00e9\u0301te. can't a\n\n\u4e2d ab" * 5
    before, after = ([s.to_conllu() for s in each.segment([text])] for each in (segmenter, loaded))
    assert before == after
    header = checkpoint.read_header(tmp_path / "s")
    header.config["model"]["token_units"] = 5
    checkpoint.amend(tmp_path / "s", header, "")
    with pytest.raises(ModelError, match="does not fit its own description"):
        checkpoint.load(tmp_path / "s")
