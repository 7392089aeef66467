"""The state of a training run on disk, `last/`: what `--resume` continues from.

state.safetensors   weights, optimiser, tensors carried from batch to batch, random generators
state.json          where the run stands, and what its continuation must share

What is carried and what is random, each process of a run has for itself: `rank1.carried.0.0`. Sums
tell damage. Types and shapes are checked all the same, as torch and compiled loops would read or
write outside of memory where a file was made to deceive.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from seqtool.core import checkpoint, storage
from seqtool.core.errors import ModelError, TrainingError
from seqtool.core.progress import GradientNorms
from seqtool.training.hardware import ALONE, Group
from seqtool.training.optimisers import Optimisers
from seqtool.training.task import Task

TENSORS = "state.safetensors"
STATE = "state.json"


@dataclass
class StepSums:
    """Sums over steps: losses, items, and norms of the gradient before and after clipping."""

    nats: float = 0.0
    items: int = 0
    norm: float = 0.0
    clipped_norm: float = 0.0
    num_clipped: int = 0
    num_norms: int = 0

    def add(self, loss: float, items: int, norm: float | None, clip_norm: float) -> None:
        """Add a step: its mean loss over its items, and its norm, if it has a gradient."""
        self.nats += loss * items
        self.items += items
        if norm is not None:
            self.norm += norm
            self.clipped_norm += min(norm, clip_norm)
            self.num_clipped += norm > clip_norm
            self.num_norms += 1

    @property
    def gradients(self) -> GradientNorms | None:
        """Return the means of the norms; None of no step."""
        if not (num := self.num_norms):
            return None
        return GradientNorms(self.norm / num, self.clipped_norm / num, self.num_clipped / num)


@dataclass
class RunState:
    """Where a run stands."""

    step: int = 0  # optimiser steps made
    stage_step: int = 0  # those made before the running stage
    epoch: int = 0  # the running one, from 0
    index: int = 0  # its next batch
    sums: StepSums = field(default_factory=StepSums)  # of the running epoch
    seconds: float = 0.0  # of training and validation
    epoch_seconds: float = 0.0  # of training in the running epoch
    first_loss: float | None = None  # of the first batch; a later one is judged by it
    best_epoch: int = 0  # from 1; 0 before the first validation
    best_scores: dict[str, float] = field(default_factory=dict)
    epochs_since_best: int = 0  # without improvement
    epochs_since_plateau: int = 0  # since the plateau rule last fired
    num_plateaus: int = 0  # how often it has fired
    validations: list[float] = field(default_factory=list)  # the deciding score of each epoch
    averaging_since: int | None = None  # steps made before the weights were averaged
    log_bytes: int = 0  # size of log.jsonl when the state was saved
    # of a run whose time is limited
    elapsed: float = 0.0  # seconds of all that was done, reading and saves too
    stage_elapsed: float = 0.0  # the same, when the running stage began
    skipped_epochs: int = 0  # of stages that ended before their last one

    @property
    def planned_epoch(self) -> int:
        """Return the running epoch among those of all stages, as a task knows it."""
        return self.epoch + self.skipped_epochs


# the hint of a run that failed; clipping does not bound the steps of Adam
AFTER_FAILURE = "the last saved state is kept: add --resume with a lower --lr"


def save(
    directory: Path,
    task: Task,
    optimisers: Optimisers,
    run: RunState,
    fingerprint: Mapping[str, Any],
    group: Group = ALONE,
) -> None:
    """Write the whole state of a run, replacing what was saved before.

    Of several processes the first one writes, and all must call. A TrainingError says that a weight
    is not finite; what was saved before stays.
    """
    weights = _weights(task.module)
    if not all(bool(torch.isfinite(value).all()) for value in weights.values()):
        what = f"the weights are no longer finite after step {run.step:,} (epoch {run.epoch + 1})"
        raise TrainingError(what, hint=AFTER_FAILURE)
    own = {f"carried.{name}": value.detach().cpu() for name, value in task.carried().items()}
    own["random.cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        own["random.cuda"] = torch.cuda.get_rng_state()
    own_by_rank = group.gathered(own)
    if not group.is_first:
        return
    tensors, numbers = optimisers.state()
    state = {f"module.{name}": value for name, value in weights.items()}
    state |= {f"optimiser.{name}": value for name, value in tensors.items()}
    for rank, part in enumerate(own_by_rank):
        state |= {_of_rank(rank) + name: value for name, value in part.items()}
    # clones, as safetensors refuses tensors that share their memory
    state = {name: value.detach().cpu().contiguous().clone() for name, value in state.items()}
    with storage.atomic_directory(directory) as temporary:
        save_file(state, temporary / TENSORS)
        content = {
            "format_version": checkpoint.FORMAT_VERSION,
            "fingerprint": dict(fingerprint),
            "processes": group.size,
            "optimiser": numbers,
            "run": asdict(run),
            "tensors": storage.sum_of(temporary / TENSORS),
        }
        storage.write_json(temporary / STATE, storage.sealed(content))


def restore(
    directory: Path,
    task: Task,
    optimisers: Optimisers,
    fingerprint: Mapping[str, Any],
    group: Group = ALONE,
) -> tuple[RunState, int]:
    """Take back what `save` wrote; return the run, and the number of steps of the running epoch.

    A ModelError says that it is damaged, cannot be read, or is of another seqtool, of a run that
    differs in `fingerprint`, or of another number of processes.
    """
    with _damage(directory):
        content, tensors = _read(directory)
    _check_fingerprint(_flat(content["fingerprint"]), fingerprint, directory)
    _check_processes(content["processes"], group, directory)
    with _damage(directory):
        run = _run_state(content["run"])
        weights = _weights(task.module)
        saved = _like(_part(tensors, "module."), weights)
        with torch.no_grad():
            for name, parameter in weights.items():
                parameter.copy_(saved[name])
        optimisers.restore(_part(tensors, "optimiser."), content["optimiser"])
    num_steps = task.start_epoch(run.planned_epoch)
    with _damage(directory):
        if run.index > num_steps:
            raise ValueError(f"step {run.index} of an epoch of {num_steps}")
        own = _part(tensors, _of_rank(group.rank))
        task.restore_carried(_like(_part(own, "carried."), task.carried()))
        # last, as what was done above may have drawn numbers
        _restore_random(own)
    return run, num_steps


def _like(saved: dict[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return saved tensors whose shapes are the expected ones; a ValueError of others."""
    for name, value in expected.items():
        if saved[name].shape != value.shape:
            raise ValueError(f"the shape of {name}")
    return saved


def _run_state(content: Mapping[str, Any]) -> RunState:
    """Return where a run stands from JSON; a ValueError of fields or types that are not its own."""
    for kind, values in ((RunState, content), (StepSums, content["sums"])):
        types = {one.name: str(one.type) for one in fields(kind)}
        if values.keys() != types.keys() or not all(
            _is_of(value, types[name]) for name, value in values.items()
        ):
            raise ValueError("no state of a run")
    return RunState(**{**content, "sums": StepSums(**content["sums"])})


def _is_of(value: Any, kind: str) -> bool:
    """Return whether JSON's value is one of a field, by its annotation."""
    kind, _, optional = kind.partition(" | ")
    if optional and value is None:
        return True
    if kind in ("list[float]", "dict[str, float]"):
        if type(value).__name__ != kind.partition("[")[0]:
            return False
        return all(_is_of(x, "float") for x in (value.values() if kind[0] == "d" else value))
    if kind in ("float", "StepSums"):
        return type(value) in ((int, float) if kind == "float" else (dict,))
    return type(value).__name__ == kind and 0 <= value < 1 << 53


def _restore_random(own: Mapping[str, Tensor]) -> None:
    """Take back the states of random generators; a ValueError where there is none."""
    try:
        torch.set_rng_state(own["random.cpu"])
        if torch.cuda.is_available() and "random.cuda" in own:
            torch.cuda.set_rng_state(own["random.cuda"])
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"no random generator: {error}") from error


def _read(directory: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return what `state.json` and `state.safetensors` hold."""
    checkpoint.check_format(storage.read_object(directory / STATE)["format_version"], directory)
    content = storage.read_sealed(directory / STATE)
    if not all(isinstance(content[name], dict) for name in ("fingerprint", "run", "optimiser")):
        raise ValueError("no state of a run")
    if storage.sum_of(directory / TENSORS) != content["tensors"]:
        raise ValueError("its tensors do not match their sum")
    # copies, which are aligned as in the run that was stopped: in a file they are not, and
    # then some matrix products differ in the last bit
    return content, {name: value.clone() for name, value in load_file(directory / TENSORS).items()}


@contextmanager
def _damage(directory: Path) -> Iterator[None]:
    """Turn what only a damaged file causes into a ModelError.

    No other failure may advise to start again: that destroys good work. What cannot be read now may
    be read tomorrow, what does not fit into memory fits another machine, and the rest is a bug.
    """
    try:
        yield
    except (ValueError, KeyError, SafetensorError, FileNotFoundError) as error:
        hint = "start again with --force"
        raise ModelError("the saved state is damaged", hint=hint, path=directory) from error
    except OSError as error:
        reason = error.strerror or str(error)
        what = f"the saved state cannot be read: {reason[:1].lower()}{reason[1:]}"
        hint = "check its permissions and the disk, then continue with --resume"
        raise ModelError(what, hint=hint, path=error.filename or directory) from error


def _check_fingerprint(old: Mapping[str, Any], now: Mapping[str, Any], directory: Path) -> None:
    """Refuse a continuation that differs from the run, naming what does."""
    new = _flat(json.loads(json.dumps(now)))  # as JSON has it: of tuples, lists
    pairs = [(name, old.get(name), new.get(name)) for name in sorted({*old, *new})]
    if differing := [f"{name} was {was}, not {now}" for name, was, now in pairs if was != now]:
        hint = "resume with the settings and data of the run, or start again with --force"
        raise ModelError(f"the run differs: {'; '.join(differing)}", hint=hint, path=directory)


def _check_processes(num: int, group: Group, directory: Path) -> None:
    """Refuse another number of processes: each carries a state of its own."""
    if num != group.size:
        before = "one process" if num == 1 else f"{num} processes"
        start = "without torchrun" if num == 1 else f"with torchrun --nproc-per-node {num}"
        what = f"the run was trained by {before}, not by {group.size}"
        hint = f"resume it {start}, or start again with --force"
        raise ModelError(what, hint=hint, path=directory)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by their dotted names."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        name = prefix + name
        flat |= _flat(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return flat


def _weights(module: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and buffers by name, those shared by two names once."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _of_rank(rank: int) -> str:
    """Return what the names of a process's own tensors begin with; nothing for the first."""
    return f"rank{rank}." if rank else ""


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    part = {name: value for name, value in tensors.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): value for name, value in part.items()}
