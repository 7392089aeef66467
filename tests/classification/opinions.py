"""Opinions as tables, and settings of small classifiers, for the tests of classification."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from seqtool.classification.config import ClassifierConfig, preset
from seqtool.core.config import from_dict

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "data"))

import tasks
from tasks import Opinion


@cache
def opinions(split: str) -> list[Opinion]:
    return tasks.opinions(split)


def write(path: Path, given: Sequence[Opinion]) -> Path:
    return table(path, [(each.text, each.label) for each in given])


def table(path: Path, rows: Sequence[tuple[str, str]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    return path


def small(encoder: str, epochs: int = 2, **settings: Any) -> ClassifierConfig:
    """Settings of a small classifier; `model__x` and the like go to their sections."""
    values = preset({"linear": "linear", "lm": "fine-tuned"}.get(encoder, "recurrent"))
    if encoder == "bilstm":
        values["model"] |= {"embedding_size": 12, "hidden_size": 10, "lm_size": 6}
    values["training"] |= {"epochs": epochs, "precision": "float32"}
    for name, value in settings.items():
        section, _, key = name.partition("__")
        values.setdefault(section, {})[key] = value
    return from_dict(ClassifierConfig, values)
