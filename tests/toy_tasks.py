"""A task for the training loop with everything that must survive a stop, in some 60 numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

NUM_STEPS, NUM_ITEMS, NUM_SYMBOLS, WIDTH = 4, 3, 6, 4


class ToyNetwork(nn.Module):
    """An embedding, dropout and a linear layer that reads its own last output."""

    def __init__(self, *, sparse: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(NUM_SYMBOLS, WIDTH, sparse=sparse)
        self.dropout = nn.Dropout(0.4)
        self.linear = nn.Linear(2 * WIDTH, WIDTH)
        self.unused = nn.Parameter(torch.ones(2))
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, ids: Tensor, state: Tensor) -> Tensor:
        below = torch.cat([self.dropout(self.embedding(ids)), state], dim=1)
        return torch.tanh(self.linear(below)) * self.scale


class ToyTask:
    """Squared error to fixed targets, over batches of three items.

    Args:
        sparse: the embedding's gradient is sparse.
        scripted: the scores that validation shall give, epoch by epoch, instead of the error.
        factors: step (from 1) -> what its loss is multiplied by.
        rate_factors: what the learning rate of each batch is multiplied by.
    """

    items = "tokens"
    score = "valid_error"
    larger_is_better = False

    def __init__(
        self,
        *,
        sparse: bool = False,
        scripted: Sequence[float] = (),
        factors: Mapping[int, float] | None = None,
        rate_factors: Sequence[float] = (1.0,) * NUM_STEPS,
    ) -> None:
        torch.manual_seed(5)
        self.module = ToyNetwork(sparse=sparse)
        self._ids = torch.randint(NUM_SYMBOLS, (NUM_STEPS, NUM_ITEMS))
        self._targets = torch.rand(NUM_STEPS, NUM_ITEMS, WIDTH)
        self._state = torch.zeros(NUM_ITEMS, WIDTH)
        self._scripted, self._factors = scripted, factors or {}
        self._rate_factors = rate_factors
        self._epoch = 0
        self.validated: list[Tensor] = []  # the linear weights at each validation
        self.progress: list[float] = []  # what the loop told before each step

    def start_epoch(self, epoch: int) -> int:
        self._epoch = epoch
        self._state = torch.zeros(NUM_ITEMS, WIDTH)
        return NUM_STEPS

    def loss(self, index: int) -> tuple[Tensor, int]:
        outputs = self.module(self._ids[index], self._state)
        self._state = outputs.detach()
        step = self._epoch * NUM_STEPS + index + 1
        loss = (outputs - self._targets[index]).square().mean() * self._factors.get(step, 1.0)
        return loss, NUM_ITEMS

    def set_progress(self, done: float) -> None:
        self.progress.append(done)

    def rate_factor(self, index: int) -> float:
        return self._rate_factors[index]

    def validate(self) -> dict[str, float]:
        assert not self.module.training
        self.validated.append(self.module.linear.weight.detach().clone())
        if self._scripted:
            return {self.score: self._scripted[self._epoch]}
        outputs = self.module(self._ids[0], torch.zeros(NUM_ITEMS, WIDTH))
        return {self.score: float((outputs - self._targets[0]).square().mean())}

    def carried(self) -> dict[str, Tensor]:
        return {"state": self._state}

    def restore_carried(self, tensors: Mapping[str, Tensor]) -> None:
        self._state = tensors["state"]

    def save_model(self, directory: Path, scores: Mapping[str, float]) -> None:
        directory.mkdir(exist_ok=True)
        tensors = {name: value.clone() for name, value in self.module.state_dict().items()}
        save_file(tensors, directory / "weights.safetensors")
