"""Train, measure and use language models and dependency parsers, on an ordinary computer.

What is public is listed in `_PUBLIC`, and is imported on first use: `import seqtool` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from seqtool.errors import ConfigError as ConfigError
    from seqtool.errors import DataError as DataError
    from seqtool.errors import DownloadError as DownloadError
    from seqtool.errors import Interrupted as Interrupted
    from seqtool.errors import ModelError as ModelError
    from seqtool.errors import OutputError as OutputError
    from seqtool.errors import PromptError as PromptError
    from seqtool.errors import SeqtoolError as SeqtoolError
    from seqtool.errors import TrainingError as TrainingError
    from seqtool.vocabulary import Vocabulary as Vocabulary

_PUBLIC = {
    "ConfigError": "seqtool.errors",
    "DataError": "seqtool.errors",
    "DownloadError": "seqtool.errors",
    "Interrupted": "seqtool.errors",
    "ModelError": "seqtool.errors",
    "OutputError": "seqtool.errors",
    "PromptError": "seqtool.errors",
    "SeqtoolError": "seqtool.errors",
    "TrainingError": "seqtool.errors",
    "Vocabulary": "seqtool.vocabulary",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'seqtool' has no attribute {name!r}")
    value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value  # the next access does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
