"""Units of log-probability: nats in the library; bits, log10 and perplexity for people."""

from __future__ import annotations

import math

LN_2, LN_10 = math.log(2.0), math.log(10.0)


def perplexity_of(nats_per_token: float) -> float:
    """Return the exponential of a mean surprisal, infinite where a float cannot hold it.

    Args:
        nats_per_token: the negative of the mean log-probability, which is also the training loss.
    """
    try:
        return math.exp(nats_per_token)
    except OverflowError:
        return math.inf
