"""The examples in docstrings run as they are written."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "seqtool"
MODULES = [
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    for path in sorted(PACKAGE.rglob("*.py"))
    if "\n    >>> " in path.read_text(encoding="utf-8")
]


def test_what_people_call_first_has_examples() -> None:
    assert {
        f"seqtool.treebank.{name}" for name in ("conllu", "document", "queries", "sentence")
    } <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    result = doctest.testmod(import_module(name), raise_on_error=False)
    assert result.attempted > 0
    assert result.failed == 0
