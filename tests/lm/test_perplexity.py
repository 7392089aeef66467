from __future__ import annotations

import math

import pytest

from seqtool.lm.perplexity import LMEvaluation


def test_figures_by_hand() -> None:
    """Two sentences, `a <unk> </s>` and `a </s>`: 1/4 for each known token, 1/16 for `<unk>`."""
    result = LMEvaluation(
        unit="word",
        vocabulary_size=4,
        sentences=2,
        tokens=5,
        oov=1,
        num_bytes=6,
        known_nats=4 * math.log(1 / 4),
        unknown_nats=math.log(1 / 16),
        impossible=0,
        seconds=1.0,
        true_log10_probability=math.log10(1 / 2**10),
    )
    # 4 * 2 + 4 = 12 bits over 5 tokens; 8 bits over the 4 known ones; 10 bits for the grammar
    assert result.bits_per_token == pytest.approx(12 / 5, rel=1e-14)
    assert result.perplexity == pytest.approx(2 ** (12 / 5), rel=1e-14)
    assert result.perplexity_without_oov == pytest.approx(4, rel=1e-14)
    assert result.bits_per_byte == pytest.approx(12 / 6, rel=1e-14)
    assert result.log10_probability == pytest.approx(-12 * math.log10(2), rel=1e-14)
    assert result.oov_rate == pytest.approx(1 / 3, rel=1e-14)  # of `a <unk> a`
    assert result.true_perplexity == pytest.approx(2 ** (10 / 5), rel=1e-14)
    assert result.true_bits_per_byte == pytest.approx(10 / 6, rel=1e-14)


def test_an_impossible_text_is_null_in_json() -> None:
    result = LMEvaluation("word", 4, 1, 2, 2, None, 0.0, -math.inf, 2, 1.0)
    printed = result.to_json()
    assert result.perplexity == math.inf
    assert printed["perplexity"] is printed["perplexity_without_oov"] is None
    assert printed["bits_per_token"] is printed["bits_per_byte"] is None
    assert printed["zero_probability_tokens"] == 2
