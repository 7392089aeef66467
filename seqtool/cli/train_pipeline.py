"""`seqtool train-parser --raw`: train all that plain text needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqtool.cli.options import print_settings
from seqtool.cli.training_options import report


def is_run(output: Path) -> bool:
    """Whether a directory holds a run of --raw."""
    from seqtool.core import checkpoint, storage

    try:
        return storage.read_object(output / checkpoint.RUN).get("kind") == "pipeline"
    except (OSError, ValueError):
        return False


def print_all_settings(*, raw: bool) -> None:
    """Print every setting of a parser, or of all that plain text needs."""
    if raw:
        from seqtool.parsing.pipeline.config import PipelineConfig

        print_settings(PipelineConfig)
        return
    from seqtool.parsing.parser.config import ParserConfig

    print_settings(ParserConfig)


def report_all(trained: Any, *, dev: Path | None, as_json: bool) -> None:
    """Say what came of it.

    Args:
        trained: all parts.
        dev: the validation part, if one was given.
        as_json: print an object.
    """
    from seqtool.core.errors import counted

    shown = ", ".join(
        f"{name.removeprefix('dev_').replace('_', ' ')} {value:.2f}"
        for name, value in trained.scores.items()
    )
    report(
        trained,
        [
            f"dev, from raw text on: {shown}" if dev else f"on what was held out: {shown}",
            f"{counted(trained.num_parameters, 'parameter')}; model in {trained.path}",
            f"next: seqtool parse FILE.txt -m {trained.path}",
        ],
        as_json=as_json,
        parameters=trained.num_parameters,
    )
