"""The one training loop: a generator of events, over any task, that can be resumed exactly.

A run directory, while it trains:

    log.jsonl   every event
    last/       model, optimiser, random state and data position: what --resume continues from
    best/       the model directory of the best validation so far

A run that is stopped, or killed, and resumed ends with the same weights as one that was not, bit
for bit on the CPU with the same number of threads.
"""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from seqtool import checkpoint, runtime
from seqtool.errors import ModelError, TrainingError
from seqtool.optimisation import OPTIMISERS, Position, TrainingConfig, learning_rate
from seqtool.progress import EpochDone, Event, EventLog, RunFinished, RunStarted, StepDone

STATE_VERSION = 1
REPORT_SECONDS = 0.5
# losses are fetched from a GPU this often: each fetch waits for it
FETCH_STEPS = 16
# nats per item above which a loss has exploded, whatever the vocabulary
LOSS_LIMIT = 50.0
LOSS_LIMIT_FACTOR = 3.0


class Task(Protocol):
    """What is trained: a module, its batches, its loss and its validation.

    Attributes:
        module: holds every trained parameter.
        score: the key of `validate()` that decides which epoch is best.
        larger_is_better: whether a larger score is better.
    """

    module: nn.Module
    score: str
    larger_is_better: bool

    def start_epoch(self, epoch: int) -> int:
        """Begin epoch `epoch` (from 0): reset what is carried; return its number of steps."""

    def loss(self, index: int) -> tuple[Tensor, int]:
        """Return the mean loss (nats per item) of batch `index` and its number of items."""

    def validate(self) -> dict[str, float]:
        """Measure the module, in evaluation mode, on the validation part."""

    def carried(self) -> dict[str, Tensor]:
        """Return the tensors carried from batch to batch, to be saved."""

    def restore_carried(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `carried` returned."""

    def save_model(self, directory: Path, scores: Mapping[str, float]) -> None:
        """Write the module as a model directory."""


class Interruption:
    """Set by Ctrl-C or SIGTERM; the loop then saves and stops. A second Ctrl-C stops at once."""

    def __init__(self) -> None:
        self.requested = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen to signals while the block runs; outside the main thread nothing is heard."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(number, self._handle) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)


class Optimisers:
    """The optimisers of a module: one for all parameters, and SparseAdam for sparse embeddings."""

    def __init__(self, module: nn.Module, config: TrainingConfig, steps_per_epoch: int) -> None:
        sparse = {
            parameter
            for inner in module.modules()
            if isinstance(inner, nn.Embedding) and inner.sparse
            for parameter in inner.parameters()
        }
        dense = [parameter for parameter in module.parameters() if parameter not in sparse]
        self._config = config
        self._all: list[torch.optim.Optimizer] = [
            OPTIMISERS[config.optimiser](dense, **_arguments(config, steps_per_epoch))
        ]
        if sparse:
            self._all.append(
                OPTIMISERS["sparse-adam"](
                    list(sparse), lr=config.learning_rate, betas=(config.beta1, config.beta2)
                )
            )
        self._dense = dense

    def step(self, rate: float) -> None:
        """Clip, make one step at the learning rate `rate`, and clear the gradients."""
        if self._config.clip_norm:
            nn.utils.clip_grad_norm_(self._dense, self._config.clip_norm)
        for optimiser in self._all:
            for group in optimiser.param_groups:
                group["lr"] = rate
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Within the block, parameters are their running averages (averaged SGD), if kept."""
        swapped: list[tuple[Tensor, Tensor]] = []
        if self._config.optimiser == "asgd":
            for parameter in self._dense:
                state = self._all[0].state.get(parameter)
                if state:
                    swapped.append((parameter, parameter.detach().clone()))
                    parameter.data.copy_(state["ax"])
        try:
            yield
        finally:
            for parameter, original in swapped:
                parameter.data.copy_(original)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the state as named tensors and as plain numbers."""
        tensors: dict[str, Tensor] = {}
        numbers: dict[str, Any] = {}
        for number, optimiser in enumerate(self._all):
            for index, values in optimiser.state_dict()["state"].items():
                for name, value in values.items():
                    key = f"{number}.{index}.{name}"
                    if isinstance(value, Tensor):
                        tensors[key] = value
                    else:
                        numbers[key] = value
        return tensors, numbers

    def restore(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Take back what `state` returned."""
        for number, optimiser in enumerate(self._all):
            content = optimiser.state_dict()
            state: dict[int, dict[str, Any]] = {}
            for key, value in {**tensors, **numbers}.items():
                which, index, name = key.split(".", 2)
                if int(which) == number:
                    state.setdefault(int(index), {})[name] = value
            content["state"] = state
            optimiser.load_state_dict(content)


def _arguments(config: TrainingConfig, steps_per_epoch: int) -> dict[str, Any]:
    """Return the keyword arguments of the optimiser's class."""
    arguments: dict[str, Any] = {"lr": config.learning_rate, "weight_decay": config.weight_decay}
    if config.optimiser in ("sgd", "adam", "adamw"):
        arguments["fused"] = True  # one pass over the memory instead of several
    match config.optimiser:
        case "sgd" | "rmsprop":
            arguments["momentum"] = config.momentum
        case "adam" | "adamw":
            arguments["betas"] = (config.beta1, config.beta2)
        case "asgd":
            # lambd 0 leaves plain SGD with averaging (Polyak & Juditsky 1992) from step t0
            arguments["lambd"] = 0.0
            arguments["t0"] = config.average_after * steps_per_epoch
    return arguments


class _Run:
    """The state of one training run, beside the module's and the optimiser's own."""

    def __init__(self) -> None:
        self.step = 0
        self.epoch = 0  # the running epoch, from 0
        self.index = 0  # the next batch of it
        self.loss_sum = 0.0
        self.num_items = 0
        self.seconds = 0.0
        self.epoch_seconds = 0.0
        self.first_loss = math.nan
        self.best_epoch = 0
        self.best_scores: dict[str, float] = {}
        self.epochs_since_best = 0
        self.epochs_since_plateau = 0
        self.num_plateaus = 0
        self.log_bytes = 0


def train(
    task: Task,
    config: TrainingConfig,
    directory: Path,
    *,
    device: str,
    fingerprint: Mapping[str, Any],
    resume: bool = False,
    should_stop: Callable[[int], bool] | None = None,
) -> Iterator[Event]:
    """Train `task` in `directory`, yielding events; the caller shows them.

    Args:
        task: what is trained.
        config: settings of the loop.
        directory: the run directory; `last/` and `best/` are written in it.
        device: torch device of the module.
        fingerprint: what must not differ between a run and its continuation (model, data).
        resume: continue from `last/` where it is there.
        should_stop: asked with the step number before each step; True stops as Ctrl-C does.

    Raises:
        TrainingError: the loss became NaN, infinite or exploded; `last/` holds the last good state.
        ModelError: the saved state is damaged or belongs to another configuration.
    """
    run = _Run()
    steps_per_epoch = task.start_epoch(0)
    total_steps = steps_per_epoch * config.epochs
    runtime.seed_everything(config.seed)
    optimisers = Optimisers(task.module, config, steps_per_epoch)
    precision = runtime.resolve_precision(config.precision, device)
    last = directory / "last"
    checkpoint.recover(last)
    resumed = resume and last.is_dir()
    if resumed:
        _restore(last, task, optimisers, run, fingerprint)
    log = EventLog(directory / "log.jsonl", keep_bytes=run.log_bytes if resumed else 0)
    interruption = Interruption()
    better = (lambda new, old: new > old) if task.larger_is_better else (lambda new, old: new < old)

    def logged(event: Event) -> Event:
        log.write(event)
        return event

    def save() -> None:
        run.log_bytes = log.size()
        _save(last, task, optimisers, run, fingerprint)

    try:
        with interruption.listening():
            if not resumed:
                save()
            yield logged(
                RunStarted(
                    step=run.step,
                    total_steps=total_steps,
                    epochs=config.epochs,
                    num_parameters=count_parameters(task.module),
                    machine=runtime.describe_machine(device),
                    resumed=resumed,
                )
            )
            reason = "finished"
            while run.epoch < config.epochs:
                if run.index == 0:
                    steps_per_epoch = task.start_epoch(run.epoch)
                task.module.train()
                interrupted = yield from _run_epoch(
                    task,
                    config,
                    optimisers,
                    run,
                    steps_per_epoch=steps_per_epoch,
                    total_steps=total_steps,
                    device=device,
                    precision=precision,
                    interruption=interruption,
                    save=save,
                    log=log,
                    should_stop=should_stop or (lambda step: False),
                )
                if interrupted:
                    reason = "interrupted"
                    break
                rate = learning_rate(config, _position(run, steps_per_epoch, total_steps))
                clock = time.perf_counter()
                task.module.eval()
                with optimisers.averaged(), torch.no_grad():
                    scores = task.validate()
                    best_before = run.best_scores.get(task.score)
                    is_best = best_before is None or better(scores[task.score], best_before)
                    if is_best:
                        task.save_model(directory / "best", scores)
                run.seconds += time.perf_counter() - clock
                done = EpochDone(
                    epoch=run.epoch + 1,
                    step=run.step,
                    loss=run.loss_sum / max(1, run.num_items),
                    scores=scores,
                    is_best=is_best,
                    items_per_second=run.num_items / max(1e-9, run.epoch_seconds),
                    learning_rate=rate,
                    seconds=run.epoch_seconds,
                )
                _end_epoch(run, config, scores, is_best=is_best)
                yield logged(done)
                save()
                if config.patience and run.epochs_since_best >= config.patience:
                    reason = "stopped early"
                    break
            yield logged(
                RunFinished(
                    reason=reason,
                    epoch=run.epoch,
                    step=run.step,
                    best_epoch=run.best_epoch,
                    best_scores=run.best_scores,
                    seconds=run.seconds,
                )
            )
    finally:
        log.close()
    if reason != "interrupted" and (directory / "best").is_dir():
        checkpoint.promote(directory / "best", directory)


def _position(run: _Run, steps_per_epoch: int, total_steps: int) -> Position:
    return Position(
        step=run.step,
        total_steps=total_steps,
        epoch=run.epoch + min(run.index, steps_per_epoch - 1) / steps_per_epoch,
        num_plateaus=run.num_plateaus,
    )


def _run_epoch(
    task: Task,
    config: TrainingConfig,
    optimisers: Optimisers,
    run: _Run,
    *,
    steps_per_epoch: int,
    total_steps: int,
    device: str,
    precision: str,
    interruption: Interruption,
    save: Callable[[], None],
    log: EventLog,
    should_stop: Callable[[int], bool],
) -> Generator[Event, None, bool]:
    """Run the rest of an epoch; return whether it was interrupted."""
    fetch_steps = 1 if device == "cpu" else FETCH_STEPS
    pending: list[tuple[int, Tensor, int]] = []
    clock = saved_at = reported_at = time.perf_counter()
    session_start, session_step = clock, run.step
    report_loss, report_items = 0.0, 0
    rate = config.learning_rate
    while run.index < steps_per_epoch:
        if interruption.requested or should_stop(run.step):
            save()
            return True
        rate = learning_rate(config, _position(run, steps_per_epoch, total_steps))
        with runtime.autocast(device, precision):
            loss, num_items = task.loss(run.index)
        loss.backward()  # type: ignore[no-untyped-call]
        run.step += 1
        pending.append((run.step, loss.detach(), num_items))
        end_of_epoch = run.index + 1 == steps_per_epoch
        if len(pending) >= fetch_steps or end_of_epoch or fetch_steps == 1:
            for step, value, items in pending:
                number = float(value)
                _check_loss(number, step, run)
                report_loss += number * items
                report_items += items
                run.loss_sum += number * items
                run.num_items += items
            pending.clear()
        optimisers.step(rate)
        run.index += 1
        now = time.perf_counter()
        run.seconds += now - clock
        run.epoch_seconds += now - clock
        clock = now
        if not pending and now - reported_at >= REPORT_SECONDS:
            per_step = (now - session_start) / (run.step - session_step)
            event = StepDone(
                epoch=run.epoch + 1,
                step=run.step,
                loss=report_loss / report_items,
                items_per_second=report_items / (now - reported_at),
                learning_rate=rate,
                seconds_left=per_step * (total_steps - run.step),
            )
            log.write(event)
            yield event
            reported_at, report_loss, report_items = now, 0.0, 0
        if not pending and now - saved_at >= 60.0 * config.save_minutes:
            save()
            saved_at = clock = time.perf_counter()
    return False


def _check_loss(loss: float, step: int, run: _Run) -> None:
    if math.isnan(run.first_loss):
        run.first_loss = loss
    limit = max(LOSS_LIMIT, LOSS_LIMIT_FACTOR * run.first_loss)
    if math.isfinite(loss) and loss <= limit:
        return
    what = "is not a number" if math.isnan(loss) else "is infinite"
    if math.isfinite(loss):
        what = f"exploded to {loss:.1f} nats per token"
    raise TrainingError(
        f"the loss {what} at step {step:,} (epoch {run.epoch + 1})",
        hint="the last good state is kept: add --resume with a lower --lr or --clip",
    )


def _end_epoch(
    run: _Run, config: TrainingConfig, scores: dict[str, float], *, is_best: bool
) -> None:
    """Count the epoch, note the best, and fire the plateau rule."""
    run.epoch += 1
    run.index = 0
    run.loss_sum, run.num_items, run.epoch_seconds = 0.0, 0, 0.0
    if is_best:
        run.best_epoch, run.best_scores = run.epoch, dict(scores)
        run.epochs_since_best = run.epochs_since_plateau = 0
        return
    run.epochs_since_best += 1
    run.epochs_since_plateau += 1
    if run.epochs_since_plateau >= config.plateau_patience:
        run.num_plateaus += 1
        run.epochs_since_plateau = 0


def count_parameters(module: nn.Module) -> int:
    """Return the number of trained numbers, shared ones counted once."""
    return sum(parameter.numel() for parameter in module.parameters())


def _save(
    last: Path, task: Task, optimisers: Optimisers, run: _Run, fingerprint: Mapping[str, Any]
) -> None:
    """Write the whole state of the run as `last/`."""
    tensors, numbers = optimisers.state()
    state = {
        **{f"module.{name}": value for name, value in _unshared(task.module).items()},
        **{f"optimiser.{name}": value for name, value in tensors.items()},
        **{f"carried.{name}": value for name, value in task.carried().items()},
        "random.cpu": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        state["random.cuda"] = torch.cuda.get_rng_state()
    with checkpoint.atomic_directory(last) as directory:
        save_file(
            {name: value.detach().cpu().contiguous().clone() for name, value in state.items()},
            directory / "state.safetensors",
        )
        checkpoint.write_json(
            directory / "state.json",
            {
                "format_version": STATE_VERSION,
                "fingerprint": dict(fingerprint),
                "optimiser": numbers,
                "run": vars(run),
            },
        )


def _unshared(module: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and buffers by name, those shared by two names once."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _restore(
    last: Path, task: Task, optimisers: Optimisers, run: _Run, fingerprint: Mapping[str, Any]
) -> None:
    """Take back what `_save` wrote."""
    hint = "start again with --force"
    try:
        content = json.loads((last / "state.json").read_text(encoding="utf-8"))
        tensors = load_file(last / "state.safetensors")
        if content["format_version"] > STATE_VERSION:
            raise ModelError("saved by a newer seqtool", hint="upgrade seqtool", path=last)
        differing = sorted(
            key
            for key in {*fingerprint, *content["fingerprint"]}
            if _jsonable(fingerprint.get(key)) != content["fingerprint"].get(key)
        )
        if differing:
            raise ModelError(
                f"the saved run differs in {', '.join(differing)}",
                hint="resume with the settings and data of the run, or start again with --force",
                path=last,
            )
        vars(run).update(content["run"])
        with torch.no_grad():
            for name, parameter in _unshared(task.module).items():
                parameter.copy_(tensors[f"module.{name}"])
        optimisers.restore(_part(tensors, "optimiser."), content["optimiser"])
        task.start_epoch(run.epoch)
        task.restore_carried(_part(tensors, "carried."))
        torch.set_rng_state(tensors["random.cpu"])
        if torch.cuda.is_available() and "random.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["random.cuda"])
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise ModelError("the saved state is damaged", hint=hint, path=last) from error


def _jsonable(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }

