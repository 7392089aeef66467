"""N-best lists: their formats, word errors, weights, and `seqtool rescore` as a user meets it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_models import two_words, use_toys

from seqtool.lm.rescoring import read_nbest, rescore, word_errors

Run = Callable[..., Any]
HYPOTHESES = [("u", "a b", -1), ("u", "b a", 0), ("u", "", -3), ("v", "b", 2), ("v", "a a", 0)]
# log10 of P(a | <s>) P(b | a) P(</s> | b) = 1/2 1/2 1/2, and so on
LOGS = np.log10([1 / 8, 1 / 4 * 3 / 8 * 1 / 4, 1 / 8, 1 / 8, 1 / 2 * 1 / 8 * 1 / 4])


@pytest.fixture(autouse=True)
def _workplace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    use_toys(monkeypatch, {"A": two_words, "B": two_words})
    keyed = [(f"{i}-{n}", text, -score) for n, (i, text, score) in enumerate(HYPOTHESES)]
    for name, lines in {
        "kaldi": [f"{key} {text}" for key, text, _ in keyed],
        "ac": [f"{key} {cost}" for key, _, cost in keyed],
        "moses": [f"{i} ||| {t} ||| T= 1 2 W= 0 ||| {score}" for i, t, score in HYPOTHESES],
        "x.tsv": ["id\ttext\tac", *("\t".join(map(str, each)) for each in HYPOTHESES)],
        "refs": ["u\ta b", "v a a b"],
    }.items():
        Path(name).write_text("".join(f"{line}\n" for line in lines))


@given(st.lists(st.sampled_from("abc"), max_size=6), st.lists(st.sampled_from("abc"), max_size=6))
def test_word_errors_are_the_fewest_of_all_alignments(one: list[str], other: list[str]) -> None:
    @functools.cache
    def fewest(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        same = fewest(i - 1, j - 1) + (one[i - 1] != other[j - 1])
        return min(fewest(i - 1, j) + 1, fewest(i, j - 1) + 1, same)

    assert word_errors(one, other) == fewest(len(one), len(other))


@pytest.mark.parametrize(("path", "files"), [("kaldi", ["ac"]), ("x.tsv", []), ("moses", [])])
def test_all_formats_give_the_same(path: str, files: list[str]) -> None:
    utterances = list(rescore(two_words(), read_nbest(path, files)))
    assert [(each.id, len(each.cells)) for each in utterances] == [("u", 3), ("v", 2)]
    weights = utterances[0].default_weights() | {"words": -0.5}
    totals = np.concatenate([each.totals(weights) for each in utterances])
    wanted = LOGS + np.array([-1, 0, -3, 2, 0]) - np.array([2, 2, 0, 1, 2]) / 2
    np.testing.assert_allclose(totals, wanted, rtol=1e-12)


def test_the_state_is_carried_from_the_first_hypothesis() -> None:
    first, second = rescore(two_words(), read_nbest("kaldi"), carry_state=True)
    np.testing.assert_allclose(first.scores["lm_log10"], LOGS[:3])
    wanted = np.log10([1 / 4 * 1 / 2, 1 / 8 * 1 / 8 * 1 / 4])  # after </s>
    np.testing.assert_allclose(second.scores["lm_log10"], wanted)


def test_the_command(seqtool: Run) -> None:
    result = seqtool("rescore", "kaldi", "-m", "A", "-m", "B", "--costs", "ac", "--tune", "refs")
    head, first, *_ = (line.split("\t") for line in result.stdout.splitlines())
    assert head == ["id", "hypothesis", "text", "ac", "lm_log10", "total"]
    assert first[:5] == ["u", "u-0", "a b", "-1.0", f"{LOGS[0]:.6f}"]
    assert "WER 20.00%: 1 errors in 5 words of 2 utterances; of the first ones" in result.stderr
    result = seqtool("rescore", "x.tsv", "-m", "A", "--best", "--references", "refs")
    assert result.stdout == "id\ttext\nu\tb a\nv\tb\n"
    assert "WER 80.00%: 4 errors" in result.stderr
    assert "of the first ones 40.00%, oracle 20.00%" in result.stderr
    assert seqtool("rescore", "x.tsv", "-m", "A", "-o", "y.tsv").code == 0
    assert seqtool("rescore", "y.tsv", "-m", "A").stdout == Path("y.tsv").read_text()
    for text in ("u-1 a\nb\n", "u ||| a ||| 1 ||| 2\nu ||| a\n", "id\ttext\nu\n"):
        Path("list").write_text(text)
        result = seqtool("rescore", "list", "-m", "A", "-o", "z.tsv")
        assert (result.code, result.stderr[:13]) == (1, "error: list:2")
        assert not Path("z.tsv").exists()
