"""How a model is trained: the settings, the table of optimisers and the table of schedules.

A schedule is a pure function of where training stands, so resuming needs no state of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from seqtool.core.config import Config, Registry, setting
from seqtool.core.errors import ConfigError, counted

_ADAM = "optimiser is adam/adamw or embedding_optimiser is sparse-adam"


@dataclass(frozen=True)
class TrainingConfig(Config):
    """Settings of the training loop."""

    epochs: int = setting(10, "passes over the training part", minimum=1)
    optimiser: Literal["sgd", "adagrad", "rmsprop", "adam", "adamw", "asgd"] = setting(
        "adam", "sgd, adagrad, rmsprop, adam, adamw or asgd (averaged SGD)"
    )
    learning_rate: float = setting(0.002, "learning rate before the schedule acts", above=0)
    momentum: float = setting(
        0.0, "momentum of sgd and rmsprop", minimum=0, below=1, when="optimiser is sgd/rmsprop"
    )
    beta1: float = setting(0.9, "decay of Adam's first moment", minimum=0, below=1, when=_ADAM)
    beta2: float = setting(0.999, "decay of Adam's second moment", minimum=0, below=1, when=_ADAM)
    weight_decay: float = setting(
        0.0, "weight decay (L2; decoupled for adamw); not on a sparse-adam embedding", minimum=0
    )
    average_after: int = setting(
        0, "asgd: epochs before averaging begins", minimum=0, when="optimiser is asgd"
    )
    asgd_trigger: int = setting(
        0,
        "asgd: averaging begins when validation is worse than the best but for this many epochs "
        "(Merity et al. 2018: 5); 0 is off",
        minimum=0,
        when="optimiser is asgd",
    )
    embedding_optimiser: Literal["same", "sparse-adam"] = setting(
        "same", "sparse-adam updates only the embedding rows that a batch uses"
    )
    clip_norm: float = setting(
        5.0, "clip the gradient, but a sparse-adam embedding's, to this norm; 0 is off", minimum=0
    )
    schedule: Literal["constant", "divide", "step", "plateau", "cyclic", "one-cycle", "cosine"] = (
        setting("constant", "constant, divide, step, plateau, cyclic, one-cycle or cosine")
    )
    schedule_factor: float = setting(
        2.0,
        "divide: divisor per epoch; step: divisor every few epochs; plateau: divisor at each "
        "plateau",
        above=1,
        when="schedule is divide/step/plateau",
    )
    schedule_every: int = setting(
        5, "step: epochs between two divisions", minimum=1, when="schedule is step"
    )
    schedule_after: int = setting(
        0, "divide: epochs before dividing begins", minimum=0, when="schedule is divide"
    )
    schedule_minimum: float = setting(
        0.0,
        "lowest learning rate, as a share of the highest",
        minimum=0,
        maximum=1,
        when="schedule is not constant or schedule_warmup is set or time_limit is set",
    )
    schedule_cycle: float = setting(
        2.0, "cyclic: epochs per cycle", above=0, when="schedule is cyclic"
    )
    schedule_warmup: float = setting(
        0.0,
        "share of all steps, or of the time, in which the rate rises; one-cycle takes 0.3 for 0",
        minimum=0,
        below=1,
    )
    plateau_patience: int = setting(
        1,
        "plateau: epochs without improvement before the rate is divided",
        minimum=1,
        when="schedule is plateau",
    )
    patience: int = setting(
        0, "stop after this many epochs without improvement; 0 is off", minimum=0
    )
    precision: Literal["auto", "float32", "bf16", "fast"] = setting(
        "auto",
        "products in float32 or bfloat16; auto is bf16 on a GPU that has it, fast also on a CPU "
        "that is faster with it",
    )
    seed: int = setting(1, "seed of everything random", minimum=0, maximum=2**63 - 1)
    save_minutes: float = setting(5.0, "minutes between saves of the state", above=0)
    time_limit: str | float | None = setting(
        None,
        "train for so long in place of `epochs`, the learning rate falling to its lowest by then: "
        "90s, 15m, 1h30m, or seconds",
    )

    @property
    def limit_seconds(self) -> float | None:
        """Return the seconds that training may take, where there is a limit."""
        return None if self.time_limit is None else seconds_of(self.time_limit)

    def check(self) -> None:
        """Refuse settings that contradict each other."""
        if self.time_limit is not None:
            seconds_of(self.time_limit)
        elif self.optimiser == "asgd" and self.average_after >= self.epochs:
            epochs = counted(self.epochs, "epoch")
            what = f"average_after is {self.average_after}, but training has {epochs}"
            raise ConfigError(what, hint="make average_after smaller than epochs")
        if self.optimiser == "asgd" and self.asgd_trigger and self.average_after:
            what = "asgd_trigger and average_after are set: either can say when averaging begins"
            raise ConfigError(what, hint="leave one of them out")


_UNITS = (("h", 3600.0), ("m", 60.0), ("s", 1.0))
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_DURATION = re.compile("".join(rf"(?:(\d+(?:\.\d+)?){unit})?" for unit, _ in _UNITS))


def seconds_of(duration: str | float) -> float:
    """Return the seconds of a duration such as 90s, 15m, 2h or 1h30m; a number is of seconds.

    Raises:
        ConfigError: it is none, or no time at all.
    """
    text = str(duration).strip().lower()
    found = _DURATION.fullmatch(f"{text}s" if _NUMBER.fullmatch(text) else text)
    numbers = found.groups(default="0") if found else ()
    total = sum(float(number) * unit for number, (_, unit) in zip(numbers, _UNITS, strict=False))
    if total <= 0.0:
        what = f"time_limit is {duration!r:.60}, which is no time"
        raise ConfigError(what, hint="write it as 90s, 15m, 2h or 1h30m")
    return total


OPTIMISERS: Registry[Callable[..., Any]] = Registry(
    "optimiser",
    {
        "sgd": "torch.optim:SGD",
        "adagrad": "torch.optim:Adagrad",
        "rmsprop": "torch.optim:RMSprop",
        "adam": "torch.optim:Adam",
        "adamw": "torch.optim:AdamW",
        "asgd": "torch.optim:ASGD",
        "sparse-adam": "torch.optim:SparseAdam",
    },
)


@dataclass(frozen=True)
class Stage:
    """Epochs of a run over which the schedule goes once; a run may have several, in turn."""

    epochs: int
    rate: float = 1.0  # what the learning rate is multiplied by


@dataclass(frozen=True)
class Position:
    """Where training stands in a stage, for a schedule."""

    step: int  # optimiser steps made so far
    total_steps: int  # of the whole stage
    epoch: float  # completed, with the fraction of the running one
    num_plateaus: int = 0  # how often the plateau rule has fired
    time_passed: float | None = None  # share of the stage's time before this step, if limited

    @property
    def done(self) -> float:
        """Return the share of the stage that is done when this step begins."""
        return self.step / self.total_steps if self.time_passed is None else self.time_passed

    @property
    def done_after(self) -> float:
        """Return the share that is done when this step ends."""
        if self.time_passed is None:
            return (self.step + 1) / self.total_steps
        return self.time_passed * (self.step + 1) / max(1, self.step)


def constant(config: TrainingConfig, at: Position) -> float:
    """Return 1: the same rate throughout."""
    return 1.0


def divide(config: TrainingConfig, at: Position) -> float:
    """Return the division by the factor, once per epoch after the first `schedule_after` epochs."""
    # + 1: the first epoch after these is divided already
    num_divisions = max(0, math.floor(at.epoch) + 1 - config.schedule_after)
    return float(config.schedule_factor**-num_divisions)


def step(config: TrainingConfig, at: Position) -> float:
    """Return the division by the factor, once after each `schedule_every` epochs."""
    return float(config.schedule_factor ** -(math.floor(at.epoch) // config.schedule_every))


def plateau(config: TrainingConfig, at: Position) -> float:
    """Return the division by the factor whenever validation has stopped improving."""
    return float(config.schedule_factor**-at.num_plateaus)


def cyclic(config: TrainingConfig, at: Position) -> float:
    """Return a triangle between the lowest and the highest rate (Smith 2017)."""
    phase = (at.epoch / config.schedule_cycle) % 1.0
    height = 1.0 - abs(2.0 * phase - 1.0)
    return config.schedule_minimum + (1.0 - config.schedule_minimum) * height


def rise(at: Position, share: float) -> float:
    """Return a linear rise to 1 over a share of the steps; 1 after it, and without."""
    if at.done >= share:
        return 1.0
    return min(1.0, at.done_after / share)  # by the step's end, so that the first step moves too


def _warm_cosine(config: TrainingConfig, at: Position, warmup: float, start: float) -> float:
    lowest = config.schedule_minimum
    if at.done < warmup:
        return start + (1.0 - start) * rise(at, warmup)
    rest = min(1.0, (at.done - warmup) / (1.0 - warmup))
    return lowest + (1.0 - lowest) * 0.5 * (1.0 + math.cos(math.pi * rest))


def one_cycle(config: TrainingConfig, at: Position) -> float:
    """Return a rise from 1/25 for 30% of the steps (or `schedule_warmup`), then a cosine down."""
    return _warm_cosine(config, at, config.schedule_warmup or 0.3, 1 / 25)


def cosine(config: TrainingConfig, at: Position) -> float:
    """Return a cosine from the highest to the lowest rate, after an optional linear warm-up."""
    return _warm_cosine(config, at, config.schedule_warmup, 0.0)


SCHEDULES: dict[str, Callable[[TrainingConfig, Position], float]] = {
    "constant": constant,
    "divide": divide,
    "step": step,
    "plateau": plateau,
    "cyclic": cyclic,
    "one-cycle": one_cycle,
    "cosine": cosine,
}
# those that end at the lowest rate by themselves; the others go by epochs, and never end
ENDING = ("one-cycle", "cosine")
COOLDOWN = 0.4  # of the time that is given, in which the rate of the others falls


def cooldown(at: Position) -> float:
    """Return 1, and near the end of the time that is given a linear fall to 0.

    A constant rate with such an end does about as well as a cosine over the same time (Hägele et
    al. 2024).
    """
    if at.time_passed is None:
        return 1.0
    return min(1.0, max(0.0, 1.0 - at.time_passed) / COOLDOWN)


def learning_rate(config: TrainingConfig, at: Position) -> float:
    """Return the learning rate at a position of the run."""
    rate = config.learning_rate * SCHEDULES[config.schedule](config, at)
    if config.schedule not in ENDING:
        rate *= rise(at, config.schedule_warmup) * cooldown(at)
    return max(rate, config.learning_rate * config.schedule_minimum)
