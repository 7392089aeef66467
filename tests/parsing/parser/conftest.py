"""Treebanks that tests of training share."""

from __future__ import annotations

from pathlib import Path

import pytest
from parsing.parser.tiny import write_treebank


@pytest.fixture(scope="session")
def treebank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.conllu and dev.conllu, projective, and the same with crossing arcs."""
    folder = tmp_path_factory.mktemp("treebank")
    for name, share in (("", 0.0), ("non-projective-", 0.5)):
        write_treebank(folder / f"{name}train.conllu", 60, non_projective=share)
        write_treebank(folder / f"{name}dev.conllu", 20, seed=1, non_projective=share)
    return folder
