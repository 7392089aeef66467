"""Units of log-probability: nats in the library; bits, log10 and perplexity for people."""

from __future__ import annotations

import math

LN_2, LN_10 = math.log(2.0), math.log(10.0)


def perplexity_of(nats_per_token: float) -> float:
    """Return exp of a mean surprisal in nats (a training loss), infinite where too large."""
    try:
        return math.exp(nats_per_token)
    except OverflowError:
        return math.inf
