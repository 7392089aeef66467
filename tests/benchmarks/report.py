"""What the training benchmarks share: a text, turns, the processor's peak, a table, a line of JSON.

The peak is what products of two matrices of 1,024 x 1,024 reach, in float32 or bfloat16, measured
beside each race on as many threads. The share of it counts the operations of products alone: 6 for
each weight and token, which are 2 forward, 2 for the gradient of what is read, 2 for that of the
weight.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor
from torch.nn import functional

from seqtool.core.config import from_dict
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.neural.config import NeuralLMConfig
from seqtool.lm.neural.train import LanguageModelTask
from seqtool.text.prepared import PrepareConfig, PreparedCorpus, prepare
from seqtool.training import hardware
from seqtool.training.loop import train
from seqtool.training.optimisers import Optimisers

torch.set_num_threads(1)

WARM_UP = 3
PEAK_SIZE, PEAK_REPEATS = 1_024, 30


class Seconds(NamedTuple):
    """Time of one step: by the clock, and of the processor."""

    wall: float
    processor: float


class Race(NamedTuple):
    """Steps of two programs that took turns."""

    ours: list[Seconds]
    theirs: list[Seconds]


def now() -> Seconds:
    return Seconds(time.perf_counter(), time.process_time())


def since(start: Seconds) -> Seconds:
    end = now()
    return Seconds(end.wall - start.wall, end.processor - start.processor)


def timed(step: Callable[[], object]) -> Seconds:
    start = now()
    step()
    return since(start)


def take_turns(ours: Callable[[], object], theirs: Callable[[], object], repeats: int) -> Race:
    """Time two programs step by step in turn, so that what disturbs one disturbs the other."""
    turns = [(timed(ours), timed(theirs)) for _ in range(WARM_UP + repeats)]
    return Race(*(list(side) for side in zip(*turns[WARM_UP:], strict=True)))


def peak(*, half: bool) -> float:
    """Return the operations per second of the processor's time that products reach, the best ones.

    In float32 they are torch's or NumPy's: on some processors, torch's do not use the widest
    registers. On several threads it is per second by the clock.
    """
    kind = torch.bfloat16 if half else torch.float32
    one, other = (torch.randn(PEAK_SIZE, PEAK_SIZE).to(kind) for _ in range(2))
    products: list[Callable[[], object]] = [lambda: one @ other]
    if not half:
        products.append(lambda: one.numpy() @ other.numpy())
    with threadpool_limits(torch.get_num_threads(), user_api="blas"):
        times = [timed(product) for product in products for _ in range(WARM_UP + PEAK_REPEATS)]
    seconds = min(time.wall if torch.get_num_threads() > 1 else time.processor for time in times)
    return 2.0 * PEAK_SIZE**3 / seconds


@contextmanager
def threads(num: int) -> Iterator[None]:
    """Compute on so many threads within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(num)
    try:
        with threadpool_limits(num, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


class RecordedTask(LanguageModelTask):
    """A task that keeps its losses, to be compared with those of the other program."""

    def __init__(self, corpus: PreparedCorpus, config: NeuralLMConfig) -> None:
        super().__init__(corpus, config, device="cpu")
        self.losses: list[Tensor] = []

    def loss(self, index: int) -> tuple[Tensor, int]:
        loss, num_items = super().loss(index)
        if loss.requires_grad:  # a step, and not the look ahead before a save
            self.losses.append(loss.detach())
        return loss, num_items

    def compare(self, losses: list[float], *, first: float = 1e-5) -> None:
        """Stop if the other program did not compute the same; rounding adds up over the steps.

        `first` is the relative difference that is allowed at the first step.
        """
        for step, (ours, theirs) in enumerate(zip(self.losses, losses, strict=True)):
            if abs(ours.item() - theirs) > (1e-2 if step else first) * theirs:
                raise SystemExit(f"step {step + 1}: loss {ours.item()} and {theirs} do not agree")


class Training:
    """Steps of one model as `train-lm` makes them, at a constant rate."""

    def __init__(self, corpus: PreparedCorpus, config: NeuralLMConfig) -> None:
        self.task = LanguageModelTask(corpus, config, device="cpu")
        self._optimisers = Optimisers(self.task.module, config.training)
        self._rate, self._window = config.training.learning_rate, 0
        self.task.module.train()

    def step(self) -> None:
        """Train on the next window."""
        loss, _ = self.task.loss(self._window)
        self._window += 1
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimisers.step(self._rate)


class BareLoop:
    """Training as one writes it by hand: batches, forward, loss, backward, clip, step.

    Args:
        model: answers `initial_state()` and `forward(inputs, state)` -> logits, state.
        corpus: its ids.
        config: batch size, window, clipping, and the settings of Adam, fused as ours is.
    """

    def __init__(self, model: Any, corpus: PreparedCorpus, config: NeuralLMConfig) -> None:
        training, batch = config.training, config.data.batch_size
        self.model, self.window, self.clip_norm = model, config.data.bptt, training.clip_norm
        self.optimiser = torch.optim.Adam(
            model.parameters(),
            lr=training.learning_rate,
            betas=(training.beta1, training.beta2),
            fused=True,
        )
        ids = torch.from_numpy(corpus.ids("train").astype("int64"))
        length = len(ids) // batch
        shifted = torch.cat([torch.tensor([EOS_ID]), ids[:-1]])
        self.inputs, self.targets = (
            part[: batch * length].view(batch, length).t().contiguous() for part in (shifted, ids)
        )
        self.state = model.initial_state()
        self.start = 0
        self.losses: list[float] = []

    def step(self) -> None:
        """Train on the next window."""
        window = slice(self.start, self.start + self.window)
        self.start += self.window
        self.optimiser.zero_grad()
        state = tuple(part.detach() for part in self.state)
        logits, self.state = self.model(self.inputs[window], state)
        loss = functional.cross_entropy(logits.flatten(0, 1), self.targets[window].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm)
        self.optimiser.step()
        self.losses.append(loss.item())


def race_training(
    task: RecordedTask,
    config: NeuralLMConfig,
    folder: Path,
    theirs: Callable[[], object],
    repeats: int,
) -> Race:
    """Time the training loop, as `train_lm` runs it, in turn with the steps of another program.

    The loop asks before each step whether it should stop; the other program makes its step there.
    """
    race = Race([], [])
    started: list[Seconds] = []

    def turn(step: int) -> bool:
        if started:
            race.ours.append(since(started[-1]))
        if len(race.ours) == WARM_UP + repeats:
            return True
        race.theirs.append(timed(theirs))
        started.append(now())
        return False

    for _ in train(task, config.training, folder, device="cpu", fingerprint={}, should_stop=turn):
        pass
    return Race(race.ours[WARM_UP:], race.theirs[WARM_UP:])


def make_corpus(folder: Path, vocabulary_size: int, num_ids: int) -> PreparedCorpus:
    """Prepare random words, each symbol of the vocabulary at least once."""
    rng = np.random.default_rng(0)
    num_words = vocabulary_size - 2  # beside <unk> and </s>
    drawn = np.concatenate([np.arange(num_words), rng.integers(0, num_words, num_ids)])
    words = [f"w{word}" for word in rng.permutation(drawn)]
    lines = [" ".join(words[start : start + 24]) for start in range(0, len(words), 24)]
    (folder / "train.txt").write_text("\n".join([*lines, ""]))
    (folder / "valid.txt").write_text(lines[0] + "\n")
    corpus = prepare(
        [folder / "train.txt"], folder / "corpus", PrepareConfig(), valid=folder / "valid.txt"
    )
    assert len(corpus.vocabulary) == vocabulary_size
    return corpus


def settings(**model: Any) -> NeuralLMConfig:
    """Return the settings of a model in float32, with the training settings as they come."""
    data = {"batch_size": model.pop("batch_size"), "bptt": model.pop("bptt")}
    training = {name: model.pop(name) for name in ("learning_rate", "clip_norm") if name in model}
    training["precision"] = model.pop("precision", "float32")
    return from_dict(NeuralLMConfig, {"model": model, "data": data, "training": training})


class Report:
    """Collects races of one benchmark, prints each as two lines of a table, and ends in JSON."""

    def __init__(self, benchmark: str, other: str) -> None:
        self._other = other
        self._result: dict[str, Any] = {"benchmark": benchmark, "other": other}
        title = "tokens per second, medians"
        columns = f"{'clock':>10}{'processor':>12}{'ratio':>8}{'at least':>10}{'of peak':>9}"
        print(f"{title:<44}{columns}")

    def add(
        self,
        name: str,
        race: Race,
        num_tokens: int,
        *,
        at_least: float,
        num_weights: int | None = None,
        half: bool = False,
    ) -> None:
        """Print a race, beside the ratio that is to be reached, and the share of the peak.

        The ratio is the median over the turns of processor seconds, theirs to ours: the one thread
        computes all the time, so it is that of the speeds, and other programs disturb it less. On
        several threads it is of seconds by the clock.

        Args:
            name: of the race.
            race: the steps of both.
            num_tokens: of a step.
            at_least: the ratio that is to be reached.
            num_weights: those that our products multiply each token by; without it, there is no
                share of the peak.
            half: whether the peak is that of bfloat16.
        """
        kind = "wall" if torch.get_num_threads() > 1 else "processor"
        pairs = zip(race.ours, race.theirs, strict=True)
        ratio = statistics.median(
            getattr(theirs, kind) / getattr(ours, kind) for ours, theirs in pairs
        )
        speeds, share = {}, ""
        result: dict[str, Any] = {}
        if num_weights is not None:
            most = peak(half=half)
            seconds = statistics.median(getattr(step, kind) for step in race.ours)
            reached = 6.0 * num_weights * num_tokens / seconds
            share = f"{reached / most:>9.0%}"
            result = {
                "gflops": round(reached / 1e9, 1),
                "peak_gflops": round(most / 1e9, 1),
                "share_of_peak": round(reached / most, 3),
            }
        for side, label, steps in (
            ("seqtool", f"{name}: seqtool", race.ours),
            ("other", f"{name}: {self._other}", race.theirs),
        ):
            wall, processor = (
                num_tokens / statistics.median(values) for values in zip(*steps, strict=True)
            )
            speeds[side] = {"clock": round(wall), "processor": round(processor)}
            shown = f"{ratio:>8.2f}{at_least:>10.2f}{share}" if side == "seqtool" else ""
            print(f"{label:<44}{wall:>10,.0f}{processor:>12,.0f}{shown}", flush=True)
        self._result[name] = {
            "tokens_per_second": speeds,
            "ratio": round(ratio, 3),
            "at_least": at_least,
            "threads": torch.get_num_threads(),
            **result,
        }

    def end(self) -> None:
        """Print everything as one line of JSON, with the machine."""
        machine = {
            **hardware.describe_machine("cpu"),
            "numpy": np.__version__,
            "openblas_coretype": os.environ.get("OPENBLAS_CORETYPE", ""),
        }
        print()
        print(json.dumps({**self._result, "machine": machine}))
