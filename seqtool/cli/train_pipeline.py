"""`seqtool train-parser --raw`: train all that plain text needs."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Any

from seqtool.cli.options import emit, note, print_settings


def is_run(output: Path) -> bool:
    """Whether a directory holds a run of --raw."""
    from seqtool import checkpoint, storage

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
    from seqtool.parsing.config import ParserConfig

    print_settings(ParserConfig)


def train_all(
    treebank: list[Path] | None,
    dev: Path | None,
    output: Path,
    settings: Any,
    *,
    embeddings: Path | None,
    resume: bool,
    force: bool,
    skip_invalid: bool,
    max_minutes: float | None,
    device: str,
    threads: int | None,
    as_json: bool,
) -> None:
    """Train, and say what came of it; the arguments are those of the command."""
    from seqtool.errors import counted
    from seqtool.parsing.pipeline.train import train_pipeline
    from seqtool.progress import Display

    deadline = None if max_minutes is None else time.monotonic() + 60.0 * max_minutes
    with Display() as display:
        trained = train_pipeline(
            list(treebank) if treebank else None,
            output,
            settings,
            dev=dev,
            embeddings=embeddings,
            resume=resume,
            force=force,
            skip_invalid=skip_invalid,
            device=device,
            threads=threads,
            on_event=display.show,
            on_part=lambda part: note(f"training the {part}"),
            should_stop=lambda step: deadline is not None and time.monotonic() >= deadline,
            command=shlex.join(["seqtool", *sys.argv[1:]]),
        )
    if as_json:
        emit(
            {
                "model": str(trained.path),
                "seconds": trained.seconds,
                "parameters": trained.num_parameters,
                **trained.scores,
            }
        )
        return
    shown = ", ".join(
        f"{name.removeprefix('dev_').replace('_', ' ')} {value:.2f}"
        for name, value in trained.scores.items()
    )
    note(f"dev, from raw text on: {shown}" if dev else f"on what was held out: {shown}")
    note(f"{counted(trained.num_parameters, 'parameter')}; model in {trained.path}")
    note(f"next: seqtool parse FILE.txt -m {trained.path}")
    print(trained.path)
