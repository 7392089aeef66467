"""The optimisers of a module, their step and their state."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from seqtool.training.config import OPTIMISERS, TrainingConfig

# what torch keeps of a parameter: tensors of its shape, and numbers
_MOMENTS = {
    "SGD": (),
    "Adagrad": ("sum",),
    "RMSprop": ("square_avg",),
    "ASGD": ("ax",),
    **dict.fromkeys(("Adam", "AdamW", "SparseAdam"), ("exp_avg", "exp_avg_sq")),
}
_NUMBERS = {"SGD": (), "ASGD": ("step", "eta", "mu")}  # of others: step


class Optimisers:
    """One optimiser for all parameters, and others for weights with sparse gradients.

    Those are the `weight` of modules whose attribute `sparse` is true: SparseAdam updates them, or
    AdaGrad if the module has a learning rate for it, `own_rate`.
    """

    def __init__(self, module: nn.Module, config: TrainingConfig) -> None:
        sparse: list[Tensor] = []
        own_rates: list[tuple[Tensor, float]] = []
        for inner in module.modules():
            weight = getattr(inner, "weight", None)
            if getattr(inner, "sparse", False) and isinstance(weight, Tensor):
                if isinstance(rate := getattr(inner, "own_rate", None), float):
                    own_rates.append((weight, rate))
                else:
                    sparse.append(weight)
        apart = {id(weight) for weight in (*sparse, *(weight for weight, _ in own_rates))}
        self._dense: list[Tensor] = [
            parameter for parameter in module.parameters() if id(parameter) not in apart
        ]
        self._clip_norm = config.clip_norm
        dense = OPTIMISERS[config.optimiser](self._dense, **_arguments(config))
        self._all: list[torch.optim.Optimizer] = [dense]
        if sparse:
            betas = (config.beta1, config.beta2)
            rate = config.learning_rate
            self._all.append(OPTIMISERS["sparse-adam"](sparse, lr=rate, betas=betas))
        for weight, rate in own_rates:
            # the schedule acts on the common rate, which this one follows in proportion
            scale = rate / config.learning_rate
            self._all.append(OPTIMISERS["adagrad"]([{"params": [weight], "scale": scale}]))

    def step(self, rate: float) -> Tensor:
        """Make one step at the learning rate `rate`, and clear the gradients.

        Dense gradients are clipped first, by the norm of all of them together. Returns that norm,
        as it was before; on a GPU it need not be known yet.
        """
        if self._clip_norm:
            norm = nn.utils.clip_grad_norm_(self._dense, self._clip_norm)
        else:
            gradients = [part.grad for part in self._dense if part.grad is not None]
            norm = nn.utils.get_total_norm(gradients)
        for optimiser in self._all:
            for group in optimiser.param_groups:
                group["lr"] = rate * group.get("scale", 1.0)
            for values in optimiser.state.values():
                if "eta" in values:  # torch's ASGD steps at the rate of the step before
                    values["eta"].fill_(rate)
            # torch warns of the sparse tensors that its own AdaGrad makes
            with torch.sparse.check_sparse_tensor_invariants(enable=False):  # type: ignore[no-untyped-call]
                optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        return norm

    def average_from(self, step: int) -> None:
        """Average all weights after the first `step` steps (averaged SGD; Polyak & Juditsky 1992).

        Until then, and for other optimisers, nothing is averaged.
        """
        for group in self._all[0].param_groups:
            if "t0" in group:
                group["t0"] = step - 1  # torch begins one step later

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Within the block, parameters are their running averages (averaged SGD), if kept."""
        swapped: list[tuple[Tensor, Tensor]] = []
        is_averaging = self._all[0].param_groups[0].get("t0", math.inf) < math.inf
        for parameter in self._dense if is_averaging else ():
            average = self._all[0].state.get(parameter, {}).get("ax")
            if average is not None:
                swapped.append((parameter, parameter.detach().clone()))
                parameter.data.copy_(average)
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
                    kind = tensors if isinstance(value, Tensor) else numbers
                    kind[f"{number}.{index}.{name}"] = value
        return tensors, numbers

    def restore(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Take back what `state` returned; learning rates and the like stay as configured.

        Raises:
            ValueError: it is no state of these parameters, which torch's own code would believe.
        """
        for number, optimiser in enumerate(self._all):
            content = optimiser.state_dict()
            state: dict[int, dict[str, Any]] = {}
            for key, value in {**tensors, **numbers}.items():
                which, index, name = key.split(".", 2)
                if int(which) == number:
                    state.setdefault(int(index), {})[name] = value
            if isinstance(optimiser, torch.optim.RMSprop) and optimiser.defaults["momentum"]:
                # a run that begins to have momentum has none yet; torch makes it with a new state
                for values in state.values():
                    values.setdefault("momentum_buffer", torch.zeros_like(values["square_avg"]))
            _check_state(optimiser, state)
            content["state"] = state
            optimiser.load_state_dict(content)


def _check_state(optimiser: torch.optim.Optimizer, state: Mapping[int, Mapping[str, Any]]) -> None:
    """Refuse a state whose tensors are not those of the parameters: a ValueError."""
    kind = type(optimiser).__name__
    moments, numbers = _MOMENTS[kind], _NUMBERS.get(kind, ("step",))
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    if not set(optimiser.state_dict()["state"]) <= set(state) <= set(range(len(parameters))):
        raise ValueError("the state of other parameters")
    for index, values in state.items():
        known = {name: value for name, value in values.items() if value is not None}
        # a run may go on with another momentum, and with none
        if known.keys() - {"momentum_buffer"} != {*moments, *numbers}:
            raise ValueError(f"the state of another optimiser than {kind}")
        for name in known.keys() - {*numbers}:
            value, parameter = known[name], parameters[index]
            is_like = isinstance(value, Tensor) and value.shape == parameter.shape
            if not is_like or not value.is_floating_point():
                raise ValueError(f"{name} is not like its parameter")
        for name in numbers:
            value = known[name]
            is_one = (
                value.numel() == 1 if isinstance(value, Tensor) else type(value) in (int, float)
            )
            if not is_one or not 0 <= float(value) < math.inf:
                raise ValueError(f"{name} is no number from 0 on")


def _arguments(config: TrainingConfig) -> dict[str, Any]:
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
            arguments["lambd"] = 0.0  # leaves plain SGD
            arguments["t0"] = math.inf  # no averaging until `average_from`
    return arguments
