from __future__ import annotations

import math

import pytest

from seqtool.core.units import perplexity_of


def test_perplexity_never_overflows() -> None:
    assert perplexity_of(0.0) == 1.0
    assert perplexity_of(math.log(50)) == pytest.approx(50, rel=1e-14)
    assert perplexity_of(709.7) == pytest.approx(math.exp(709.7), rel=1e-14)
    assert perplexity_of(710.0) == math.inf  # the largest float is e^709.78
    assert perplexity_of(math.inf) == math.inf
    assert math.isnan(perplexity_of(math.nan))
