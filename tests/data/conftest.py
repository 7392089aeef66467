"""The sample's grammars, compiled once, and the files that are shipped."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).resolve().parents[2] / "data"
sys.path.insert(0, str(DATA))

import make_sample  # noqa: E402
from grammar import Pcfg  # noqa: E402
from inside import InsideParser  # noqa: E402


@pytest.fixture(scope="session")
def grammars() -> dict[str, Pcfg]:
    return {code: language.grammar() for code, language in make_sample.LANGUAGES.items()}


@pytest.fixture(scope="session")
def parsers(grammars: dict[str, Pcfg]) -> dict[str, InsideParser]:
    return {
        code: language.inside(grammars[code]) for code, language in make_sample.LANGUAGES.items()
    }


@pytest.fixture(scope="session")
def record() -> dict[str, dict[str, dict[str, Any]]]:
    result: dict[str, dict[str, dict[str, Any]]] = json.loads((DATA / "sample.json").read_bytes())
    return result


class Shipped:
    """The files of the sample as they are shipped."""

    folder = DATA

    def text(self, code: str, split: str) -> str:
        return (DATA / code / f"{split}.txt").read_bytes().decode()

    def sentences(self, code: str, split: str) -> list[list[str]]:
        return [line.split(" ") for line in self.text(code, split).splitlines()]

    def pairs(self, code: str) -> list[list[str]]:
        """The rows of the minimal pairs, their names first."""
        text = (DATA / code / "pairs.tsv").read_bytes().decode()
        return [line.split("\t") for line in text.splitlines()]

    def trees(self, code: str, split: str) -> str:
        path = DATA / code / f"{split}.conllu"
        if path.exists():
            return path.read_bytes().decode()
        return gzip.decompress(path.with_suffix(".conllu.gz").read_bytes()).decode()


@pytest.fixture(scope="session")
def shipped() -> Shipped:
    return Shipped()
