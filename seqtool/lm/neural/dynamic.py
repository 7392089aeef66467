"""Dynamic evaluation: a network that goes on learning from the text that it is measured on.

Krause, Kahembwe, Murray & Renals (2018), in their RMS form. The text is read in segments. After a
segment was scored, the weights w take one step along the gradient g of its mean loss, and back
towards the trained weights w0:

    w  <-  w - rate g / (RMS + epsilon) + decay D (w0 - w)

RMS is the root of the mean squared gradient of each weight over the training text, and D is RMS
divided by its mean over all weights, at most 1 / decay. No token is scored by weights that have
seen it. The trained weights stay as they are.

Dimensions in names: T steps, H units, N = T tokens of a segment.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqtool.core.arrays import Ids
from seqtool.core.errors import ConfigError, DataError, ModelError, counted
from seqtool.core.progress import progress_bar
from seqtool.core.reading import is_corpus
from seqtool.core.runtime import give_back_memory
from seqtool.core.units import perplexity_of
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.evaluation import read_ids
from seqtool.lm.model import LanguageModel
from seqtool.lm.neural.config import DynamicConfig
from seqtool.lm.neural.data import TokenStreams
from seqtool.lm.neural.model import NeuralLanguageModel
from seqtool.lm.neural.network import NeuralNetwork, detach
from seqtool.lm.neural.train import RunRecord
from seqtool.lm.protocol import Adaptation, Summary, TokenScores

STATISTICS_STREAMS = 100  # as Krause et al.
LEAST = -1e4  # nats of a token that a network gives which has not lost its balance
_STEPS = 50  # between two times that freed memory is given back: about a megabyte may stay a step


@dataclass(frozen=True)
class GradientStatistics:
    """How large the gradients of a network are in training.

    Attributes:
        rms: the root of the mean squared gradient of each weight, one tensor per parameter.
        text: what they were taken from.
        tokens: how many tokens of it.
    """

    rms: tuple[Tensor, ...]
    text: str
    tokens: int

    def relative(self) -> tuple[Tensor, ...]:
        """Return the same divided by its mean over all weights."""
        mean = sum(float(part.sum()) for part in self.rms) / sum(part.numel() for part in self.rms)
        return tuple(part / mean for part in self.rms)


def gradient_statistics(
    model: NeuralLanguageModel,
    text: str | Path,
    config: DynamicConfig,
    *,
    field: str | None = None,
    on_progress: Callable[[int, int | None], None] | None = None,
) -> GradientStatistics:
    """Measure the gradients of a trained network on its training text, without dropout.

    Args:
        model: the model, which is not changed.
        text: text, or a prepared corpus, of which the train split is read.
        config: how long a window is, and how much of the text is read.
        field: which field of .jsonl files holds the text.
        on_progress: called with tokens done and in all.

    Raises:
        ConfigError: less of the text is to be read than a window.
        DataError: a text that cannot be used, or is too short.
    """
    if config.statistics_tokens < config.segment:
        raise ConfigError(
            f"statistics_tokens is {config.statistics_tokens}, but gradients are taken from "
            f"windows of {config.segment} tokens",
            hint="read more with --dynamic-stats-tokens, or lower --dynamic-segment",
        )
    ids = read_ids(model, text, split="train", field=field, num_tokens=config.statistics_tokens)
    num_streams = min(STATISTICS_STREAMS, len(ids) // config.segment)
    if not num_streams:
        raise DataError(
            f"the text is too short to take gradients from: {counted(len(ids), 'token')}",
            hint="give the training text",
            path=text,
        )
    streams = TokenStreams(ids.astype(np.uint32), num_streams, config.segment, device=model.device)
    network = copy.deepcopy(model.network)
    parameters = list(network.parameters())
    squares = [torch.zeros_like(parameter) for parameter in parameters]
    state = network.initial_state(num_streams)
    num_windows = streams.length // config.segment  # a shorter last one would weigh too much
    for index in range(num_windows):
        inputs_TB, targets_TB = streams[index]
        with _native_loops(model.device):
            output = network.output(inputs_TB, state)
            hidden_TBH, state = network(inputs_TB, state)
            loss = output.loss(hidden_TBH.flatten(0, 1), targets_TB.flatten())
            _differentiate(loss, network)
        state = detach(state)
        with torch.no_grad():
            for square, parameter in zip(squares, parameters, strict=True):
                if parameter.grad is not None:
                    grad = parameter.grad.to_dense()
                    square.addcmul_(grad, grad)
        if on_progress is not None:
            on_progress((index + 1) * num_streams * config.segment, len(ids))
    rms = tuple((square / num_windows).sqrt_() for square in squares)
    return GradientStatistics(rms, str(text), num_windows * num_streams * config.segment)


def _differentiate(loss: Tensor, network: NeuralNetwork) -> None:
    """Leave the gradient of a loss, and nothing of those before it, in the parameters."""
    network.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]


class DynamicLanguageModel(NeuralLanguageModel):
    """A network that learns while it scores a text; each scoring begins with the trained weights.

    Its hidden states, and the steps that generation makes, are those of the trained weights.

    Args:
        model: the trained model, which is not changed.
        statistics: of this model.
        config: settings.
        name: what the model is called.
    """

    def __init__(
        self,
        model: NeuralLanguageModel,
        statistics: GradientStatistics,
        config: DynamicConfig,
        *,
        name: str = "",
    ) -> None:
        super().__init__(model.network, model.tokenizer, device=model.device)
        self.statistics, self.config, self.name = statistics, config, name

    @property
    def adaptations(self) -> tuple[Adaptation, ...]:
        """Return how it adapts to the text that is measured."""
        names = ("rate", "decay", "segment")
        settings = {name: getattr(self.config, name) for name in names}
        settings["statistics_tokens"] = self.statistics.tokens
        return (Adaptation("dynamic", self.name, settings),)

    def with_config(self, config: DynamicConfig) -> DynamicLanguageModel:
        """Return the same with other settings."""
        return DynamicLanguageModel(self, self.statistics, config, name=self.name)

    def score_ids(
        self, blocks: Iterable[Ids], *, reset_state: bool = False, summary: Summary | None = None
    ) -> Iterator[TokenScores]:
        """Yield the log-probabilities (nats) of each block; where blocks end changes nothing.

        Raises:
            ConfigError: the text is to be forgotten before each sentence, or more is asked than the
                probabilities of tokens, as the distributions change as it reads.
        """
        if summary is not None:
            raise ConfigError(
                "a network that learns from the text gives the probabilities of tokens alone",
                hint="measure it by `seqtool eval-ppl --dynamic --per-token FILE`",
            )
        if reset_state:
            raise ConfigError(
                "dynamic evaluation learns from the text, but it is to be forgotten before each "
                "sentence",
                hint="drop --reset-state, or --dynamic",
            )
        network = copy.deepcopy(self.network)
        learner = _Learner(network, self.statistics, self.config)
        state, before = network.initial_state(1), EOS_ID
        segment: Ids = np.zeros(0, dtype=np.int32)  # what was scored, but not learned from
        for block in blocks:
            parts = [np.zeros(0)]
            start = 0
            while start < len(block):
                # what an earlier block left of the segment is read again: a step needs all of it
                num_scored = len(segment)
                end = start + self.config.segment - num_scored
                segment = np.concatenate([segment, block[start:end]])
                is_whole = len(segment) == self.config.segment
                inputs_T1 = self._tensor(np.concatenate(([before], segment[:-1])))[:, None]
                with torch.set_grad_enabled(is_whole), _native_loops(self.device):
                    output = network.output(inputs_T1, state)
                    hidden_T1H, after = network(inputs_T1, state)
                    log_probs_N = output.target_log_probs(hidden_T1H[:, 0], self._tensor(segment))
                    if is_whole:
                        learner.step(-log_probs_N.mean())
                scores = log_probs_N.detach()[num_scored:].double().cpu().numpy()
                if not (scores > LEAST).all():  # a NaN is not, either
                    raise ModelError(
                        f"the network that learns from the text has lost its balance at a rate of "
                        f"{self.config.rate:g}",
                        hint="lower --dynamic-rate, or choose it on held-out text with --tune",
                    )
                parts.append(scores)
                if is_whole:
                    # until the segment is whole, the state stays that before it
                    state, before, segment = detach(after), int(segment[-1]), segment[:0]
                start = end
            yield TokenScores(np.concatenate(parts))


class _Learner:
    """The steps of a network along the gradients, and back to its trained weights."""

    def __init__(
        self, network: NeuralNetwork, statistics: GradientStatistics, config: DynamicConfig
    ) -> None:
        self._network = network
        self._weights = list(network.parameters())
        self._trained = [weight.detach().clone() for weight in self._weights]
        self._rates = [config.rate / (rms + config.epsilon) for rms in statistics.rms]
        # at most 1: more would carry a weight beyond the trained one
        self._decays = [(config.decay * part).clamp_(max=1.0) for part in statistics.relative()]
        self._num_steps = 0

    def step(self, loss: Tensor) -> None:
        """Learn from the mean loss (nats) of a segment."""
        _differentiate(loss, self._network)
        with torch.no_grad():
            for weight, trained, rate, decay in zip(
                self._weights, self._trained, self._rates, self._decays, strict=True
            ):
                # the gradient is known already, so that both steps are from the same weights
                weight.lerp_(trained, decay)
                if weight.grad is not None:
                    weight.addcmul_(weight.grad.to_dense(), rate, value=-1.0)
        self._num_steps += 1
        if self._num_steps % _STEPS == 0:
            give_back_memory()


def _native_loops(device: str) -> AbstractContextManager[object]:
    """Return the context in which a network that is not in training has gradients.

    cuDNN refuses them, so torch's own loops run there.
    """
    if not device.startswith("cuda"):
        return nullcontext()
    context: AbstractContextManager[object] = torch.backends.cudnn.flags(enabled=False)
    return context


TUNING_TOKENS = 20_000
FACTOR = 2.0  # between the settings that are tried
MAX_HALVINGS = 20  # of a rate at which the network loses its balance
WORTH = 1e-3  # the share of the perplexity that a step must gain for another to be tried


@dataclass(frozen=True)
class DynamicTuning:
    """Dynamic evaluation with the rate and the decay that suit a held-out text best.

    Attributes:
        model: with the settings chosen.
        text: what they were chosen on.
        split: which split of a prepared corpus that is; None for a text.
        tokens: how many of its first tokens.
        tried: settings and the perplexity that each gave, in the order they were tried.
    """

    model: DynamicLanguageModel
    text: str
    split: str | None
    tokens: int
    tried: tuple[tuple[DynamicConfig, float], ...]

    @property
    def perplexity(self) -> float:
        """Return the perplexity with the settings chosen."""
        return min(perplexity for _, perplexity in self.tried)

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` prints of it."""
        tried = [
            {"rate": config.rate, "decay": config.decay, "perplexity": perplexity}
            for config, perplexity in self.tried
        ]
        return {
            "model": self.model.name,
            "text": self.text,
            "split": self.split,
            "tokens": self.tokens,
            "perplexity": self.perplexity,
            "tried": tried,
        }


def tune_dynamic(
    model: DynamicLanguageModel,
    text: str | Path,
    *,
    names: Sequence[str] = ("rate", "decay"),
    field: str | None = None,
    on_trial: Callable[[DynamicConfig, float], None] = lambda config, perplexity: None,
) -> DynamicTuning:
    """Choose the rate and the decay on the first tokens of a held-out text.

    Beginning with the present settings, each in turn is doubled, or else halved, as long as that
    helps by a tenth of a percent.

    Args:
        model: whose settings are to be chosen.
        text: text, or a prepared corpus, of which the valid split is read.
        names: which settings are free.
        field: which field of .jsonl files holds the text.
        on_trial: called with each setting and its perplexity.

    Raises:
        DataError: a text that cannot be used.
    """
    ids = read_ids(model, text, split="valid", field=field, num_tokens=TUNING_TOKENS)
    tried: dict[DynamicConfig, float] = {}

    def perplexity(config: DynamicConfig) -> float:
        if config not in tried:
            try:
                (scores,) = model.with_config(config).score_ids([ids])
                tried[config] = perplexity_of(-float(scores.log_probs.mean()))
            except ModelError:  # too fast
                tried[config] = math.inf
            on_trial(config, tried[config])
        return tried[config]

    def changed(config: DynamicConfig, name: str, factor: float) -> DynamicConfig:
        return dataclasses.replace(config, **{name: getattr(config, name) * factor})

    best = model.config
    while "rate" in names and len(tried) < MAX_HALVINGS and math.isinf(perplexity(best)):
        best = changed(best, "rate", 1 / FACTOR)
    for name in names:
        start = best
        for factor in (FACTOR, 1 / FACTOR):
            gain = 1.0
            while gain > WORTH:
                candidate = changed(best, name, factor)
                gain = 1 - perplexity(candidate) / perplexity(best)
                best = candidate if gain > 0 else best
            # where doubling helped, halving is not tried
            if best != start:
                break
    split = "valid" if is_corpus(text) else None
    return DynamicTuning(model.with_config(best), str(text), split, len(ids), tuple(tried.items()))


def make_dynamic(
    models: Sequence[LanguageModel],
    paths: Sequence[Path],
    settings: Mapping[str, Any],
    *,
    training_text: str | None = None,
    tune: str | None = None,
    field: str | None = None,
    on_trial: Callable[[DynamicConfig, float], None] = lambda config, perplexity: None,
) -> tuple[list[LanguageModel], list[DynamicTuning]]:
    """Return the models with every neural one learning, and how its settings were chosen.

    Args:
        models: of any kind, one of them neural.
        paths: where they are.
        settings: those of `DynamicConfig` that are given.
        training_text: what the size of gradients is taken from; when not given, the corpus that a
            model was trained on.
        tune: a held-out text, on which the other settings are chosen.
        field: which field of .jsonl files holds the text.
        on_trial: called with each setting that is tried, and its perplexity.

    Raises:
        ConfigError: none is neural, or a mixture hides one.
        DataError: a text that cannot be used.
        ModelError: the training text of a model is not known or not there.
    """
    for model, path in zip(models, paths, strict=True):
        if model.kind == "mixture":
            raise ConfigError(
                f"{path} is a mixture, whose parts --dynamic leaves as they are",
                hint="name its parts, each with -m",
            )
    if not any(model.kind == "neural-lm" for model in models):
        raise ConfigError(
            "--dynamic is for neural models, and there is none", hint="drop it, or add one with -m"
        )
    config = DynamicConfig(**settings)
    free = [name for name in ("rate", "decay") if name not in settings]
    adapted: list[LanguageModel] = []
    tunings = []
    for model, path in zip(models, paths, strict=True):
        if not isinstance(model, NeuralLanguageModel):
            adapted.append(model)
            continue
        text = training_text or training_corpus(path)
        with progress_bar("gradients of the training text") as on_progress:
            statistics = gradient_statistics(
                model, text, config, field=field, on_progress=on_progress
            )
        learning = DynamicLanguageModel(model, statistics, config, name=str(path))
        if tune is not None and free:
            tuning = tune_dynamic(learning, tune, names=free, field=field, on_trial=on_trial)
            tunings.append(tuning)
            learning = tuning.model
        adapted.append(learning)
    return adapted, tunings


def training_corpus(path: Path) -> Path:
    """Return the prepared corpus that a model was trained on.

    Raises:
        ModelError: the run does not say, or the corpus is no longer there.
    """
    hint = "name the training text with --dynamic-stats"
    try:
        corpus = path / RunRecord.read(path).corpus
    except ModelError as error:
        raise ModelError(
            "the run's record, which names the training text, is not there or damaged",
            hint=hint,
            path=path,
        ) from error
    if not is_corpus(corpus):
        raise ModelError(
            f"the corpus that it was trained on is no longer there: {corpus}", hint=hint, path=path
        )
    return corpus
