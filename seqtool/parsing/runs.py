"""What the training runs on treebanks share: their record, their precision, their last words."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from seqtool import checkpoint, runtime, storage
from seqtool.checkpoint import Header
from seqtool.config import Config, from_dict, to_dict
from seqtool.errors import ConfigError, ModelError
from seqtool.training_run import CompletedRun

RUN_VERSION = 1

C = TypeVar("C", bound=Config)


@dataclass(frozen=True)
class RunRecord(Generic[C]):
    """What `--resume` needs when nothing else is typed: `run.json`.

    Attributes:
        kind: of the model.
        config: all settings; nothing is left to be chosen.
        train: the treebank's files.
        dev: those of the validation part; None for a tenth of the treebank.
        embeddings: a file of word vectors.
        skip_invalid: whether broken sentences are left out.
        threads: as they were asked for.
        command: what was typed.
    """

    kind: str
    config: C
    train: tuple[str, ...]
    dev: str | None = None
    embeddings: str | None = None
    skip_invalid: bool = False
    threads: int | None = None
    command: str = ""

    def write(self, output: Path) -> None:
        """Write `run.json` in the run directory."""
        content = {"format_version": RUN_VERSION, **vars(self)}
        content |= {"config": to_dict(self.config), "train": list(self.train)}
        storage.replace_text(output / checkpoint.RUN, storage.to_json(content))

    @classmethod
    def read(cls, output: Path, kind: str, config: type[C]) -> RunRecord[C]:
        """Read `run.json` of a run directory.

        Args:
            output: the directory.
            kind: of the model.
            config: the class of its settings.

        Raises:
            ModelError: there is no run of that kind, or its record is damaged.
        """
        path = output / checkpoint.RUN
        try:
            content = storage.read_object(path)
            if content.get("kind") != kind:
                raise ModelError(
                    f"the run is not one of a {kind}", hint="name another with -o", path=output
                )
            if content["format_version"] > RUN_VERSION:
                raise ModelError("made by a newer seqtool", hint="upgrade seqtool", path=path)
            settings = from_dict(config, content["config"])
            names = [field.name for field in dataclasses.fields(cls) if field.name != "config"]
            values = {name: content[name] for name in names}
            values["train"] = tuple(map(str, values["train"]))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ModelError(
                "no run to resume is there", hint="train one first, without --resume", path=output
            ) from error
        except (ValueError, KeyError, TypeError, ConfigError) as error:
            raise ModelError(
                "the run's record is damaged", hint="start again with --force", path=path
            ) from error
        return cls(config=settings, **values)


def absolute_paths(paths: Sequence[str | Path] | str | Path | None) -> tuple[str, ...]:
    """Paths that stay right when the run is resumed elsewhere; `-` cannot be read twice.

    Raises:
        ConfigError: one is `-`.
    """
    if isinstance(paths, str | Path):
        paths = [paths]
    if paths and "-" in map(str, paths):
        raise ConfigError("a treebank cannot come from stdin", hint="write it to a file first")
    return tuple(str(Path(path).absolute()) for path in paths or ())


def absolute_path(path: str | Path | None) -> str | None:
    """The same of a file that may not be given."""
    return None if path is None else str(Path(path).absolute())


def chosen_precision(precision: str, device: str) -> str:
    """The precision, `auto` decided: bfloat16 also on a processor that it is faster on."""
    if precision != "auto":
        return precision
    precision = runtime.resolve_precision("auto", device)
    return "bf16" if device == "cpu" and _bf16_is_faster() else precision


def _bf16_is_faster() -> bool:
    """Whether products of a small network's size take less than 0.7 of float32's time here."""
    seconds = {}
    for dtype in (torch.float32, torch.bfloat16):
        left, right = torch.ones(512, 1024, dtype=dtype), torch.ones(1024, 256, dtype=dtype)
        times = []
        for _ in range(4):
            begin = time.perf_counter()
            left @ right
            times.append(time.perf_counter() - begin)
        seconds[dtype] = min(times[1:])
    return seconds[torch.bfloat16] < 0.7 * seconds[torch.float32]


def add_scores(
    output: Path, run: CompletedRun, items: str, card: Callable[[Header], str]
) -> Mapping[str, Any]:
    """Write the time of training and its speed into the header and card of the best model.

    Returns:
        All its scores.
    """
    header = checkpoint.read_header(output)
    scores = {**header.scores, "train_seconds": run.finished.seconds}
    if run.items_per_second is not None:
        scores[f"{items}_per_second"] = run.items_per_second
    header = dataclasses.replace(header, scores=scores)
    checkpoint.amend(output, header, card(header))
    return header.scores
