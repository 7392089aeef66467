"""Mutated files of every format: an answer or two lines, never another exception."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from faults.attacks import damage
from faults.targets import TARGETS
from hypothesis import given, settings
from hypothesis import strategies as st

EXAMPLES = 20_000 if os.environ.get("SEQTOOL_SOAK") else 150
FOUND = Path(__file__).parent / "found"


@pytest.mark.parametrize("name", TARGETS)
def test_mutations(name: str) -> None:
    target = TARGETS[name]
    seeds = target.seeds()
    for seed in seeds:
        target.read(seed)

    @settings(max_examples=EXAMPLES)
    @given(st.integers(0, 2**32), st.integers(1, 4))
    def mutate(number: int, times: int) -> None:
        chosen = random.Random(number)
        content = chosen.choice(seeds)
        for _ in range(times):
            content = damage(content, chosen)
        target.read(content)

    mutate()


@pytest.mark.parametrize("path", sorted(FOUND.iterdir()), ids=lambda path: path.name)
def test_what_was_found_once(path: Path) -> None:
    """Files that were faults: `TARGET-what-it-was`."""
    name = max((name for name in TARGETS if path.name.startswith(name)), key=len)
    TARGETS[name].read(path.read_bytes())
