"""The text that networks of these tests are trained on."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_models import random_lines

from seqtool.text.prepared import PrepareConfig, PreparedCorpus, prepare


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of raw text: 60 lines to train on, 15 to validate."""
    path = tmp_path_factory.mktemp("raw")
    (path / "train.txt").write_text(random_lines(60, 1))
    (path / "valid.txt").write_text(random_lines(15, 2))
    return path


@pytest.fixture(scope="session")
def corpus(folder: Path) -> PreparedCorpus:
    return prepare([folder], folder.parent / f"{folder.name}-prepared", PrepareConfig())
