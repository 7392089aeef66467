"""What `train-snm --resume` continues from, in the directory of the run.

run.json            what the run was started with
last/state.json     where learning stands, and what its continuation must share
last/weights        unseen float64 [2], bias float64 [1], weights float32 [2^bits x 2]
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

from seqtool.core import storage
from seqtool.core.config import to_dict
from seqtool.core.errors import ModelError
from seqtool.lm.array_file import map_arrays, write_arrays
from seqtool.lm.snm.adjustment import Table
from seqtool.lm.snm.config import SnmConfig
from seqtool.training.run import Record

LAST, STATE, TABLE = "last", "state.json", "weights"
CHANGEABLE = ("epochs", "time_limit")  # settings that a run may be continued with


@dataclass(frozen=True)
class SnmRecord(Record[SnmConfig]):
    """`run.json`; see `seqtool.training.run.Record`.

    Attributes:
        inputs: the text, as absolute paths; - is stdin.
        field: of .jsonl files.
        kind: of the model.
    """

    config: SnmConfig
    inputs: tuple[str, ...]
    field: str | None = None
    threads: int | None = None
    command: str = ""
    kind: str = "snm"

    @classmethod
    def read(cls, output: Path) -> SnmRecord:
        """Return the record of a run directory; see `read_as`."""
        return cls.read_as(output, SnmConfig, "snm")


@dataclass
class Learning:
    """Where learning stands.

    Attributes:
        epoch: the running one, from 0.
        token: its next one.
        loss_sum: of the tokens of the running epoch.
        losses: perplexity of each epoch that is over.
        seconds: of the whole run.
    """

    epoch: int = 0
    token: int = 0
    loss_sum: float = 0.0
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0


def with_absolute_vocab(config: SnmConfig) -> SnmConfig:
    """Return settings whose vocabulary is found when the run goes on from another folder."""
    if config.vocab is None:
        return config
    return dataclasses.replace(config, vocab=str(Path(config.vocab).absolute()))


def save(output: Path, record: SnmRecord, text_sum: str, at: Learning, table: Table) -> None:
    """Write the state of a run; what was saved before is replaced.

    Raises:
        OSError: it cannot be written.
    """
    output.mkdir(parents=True, exist_ok=True)
    record = dataclasses.replace(record, config=with_absolute_vocab(record.config))
    record.write(output)
    with storage.atomic_directory(output / LAST) as folder:
        numbers = {"unseen": table.unseen, "bias": table.bias}
        write_arrays(folder / TABLE, {**numbers, "weights": table.weights.reshape(-1)})
        content = {
            "config": to_dict(record.config),
            "text": text_sum,
            "weights": storage.sum_of(folder / TABLE),
            "at": dataclasses.asdict(at),
        }
        storage.write_json(folder / STATE, storage.sealed(content))


def restore(output: Path, config: SnmConfig, text_sum: str) -> tuple[Learning, Table]:
    """Return where a run stands, and its weights.

    Raises:
        ModelError: the settings or the text are others, or a file is missing or damaged.
    """
    folder = output / LAST
    storage.recover(folder)
    try:
        content = storage.read_sealed(folder / STATE)
        if storage.sum_of(folder / TABLE) != content["weights"]:
            raise ValueError("its weights have changed")
        arrays = map_arrays(folder / TABLE)
        weights = arrays["weights"].reshape(-1, 2).copy()
        table = Table(weights, arrays["unseen"].copy(), arrays["bias"].copy())
        at = Learning(**content["at"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        what, hint = "the saved state is damaged", "start again with --force"
        raise ModelError(what, hint=hint, path=folder) from error
    for name, value in to_dict(config).items():
        before = content["config"].get(name, value)
        if before != value and name not in CHANGEABLE:
            what = f"cannot be continued with other settings: {name} was {before}, not {value}"
            raise ModelError(what, hint="leave it out, or start again with --force", path=output)
    if content["text"] != text_sum:
        what, hint = "the text is not the one that the run began with", "start again with --force"
        raise ModelError(what, hint=hint, path=output)
    return at, table
