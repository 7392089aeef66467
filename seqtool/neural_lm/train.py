"""Training of neural language models: `train_lm` and its task for the training loop."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_model as save_weights
from torch import Tensor

import seqtool
from seqtool import checkpoint, runtime
from seqtool.config import from_dict, to_dict
from seqtool.corpora.batching import IGNORED, TokenStreams
from seqtool.corpora.prepared import PrepareConfig, PreparedCorpus, open_corpus
from seqtool.errors import ConfigError, DataError, Interrupted, ModelError
from seqtool.neural_lm.cells import State as CellState
from seqtool.neural_lm.config import NeuralLMConfig
from seqtool.neural_lm.model import NeuralLanguageModel, NeuralNetwork, detach
from seqtool.progress import EpochDone, Event, RunFinished
from seqtool.training import count_parameters, train
from seqtool.vocabulary import EOS_ID

RUN_FILE = "run.json"
RUN_VERSION = 1
EVALUATION_BLOCK = 65536


class LanguageModelTask:
    """Next-token prediction over parallel streams, for `seqtool.training.train`."""

    score = "valid_perplexity"
    larger_is_better = False

    def __init__(
        self,
        corpus: PreparedCorpus,
        config: NeuralLMConfig,
        *,
        device: str,
        command: str = "",
    ) -> None:
        self._corpus, self._config, self._command = corpus, config, command
        self._device = device
        self._train = TokenStreams(
            corpus.ids("train"), config.data.batch_size, config.data.bptt, device=device
        )
        self._valid = TokenStreams(
            corpus.ids("valid"),
            min(config.data.eval_batch_size, len(corpus.ids("valid"))),
            config.data.bptt,
            keep_all=True,
            device=device,
        )
        runtime.seed_everything(config.training.seed)
        self.module = NeuralNetwork(
            config.model,
            len(corpus.vocabulary),
            sparse_embedding=config.training.embedding_optimiser == "sparse-adam",
        ).to(device)
        self._state: list[CellState] = []
        self.start_epoch(0)

    def start_epoch(self, epoch: int) -> int:
        """Go back to the beginning of the text with a zero state."""
        self._state = self.module.initial_state(self._config.data.batch_size)
        return len(self._train)

    def loss(self, index: int) -> tuple[Tensor, int]:
        """Return the mean loss of window `index`, nats per token, and its number of tokens."""
        inputs_TB, targets_TB = self._train[index]
        hidden_TBH, state = self.module(inputs_TB, self._state)
        self._state = detach(state)
        loss = self.module.softmax.loss(hidden_TBH.flatten(0, 1), targets_TB.flatten())
        return loss, targets_TB.numel()

    def validate(self) -> dict[str, float]:
        """Return the perplexity of the validation part, read as parallel streams."""
        state = self.module.initial_state(self._valid.num_streams)
        nats, num_tokens = 0.0, 0
        for inputs_TB, targets_TB in self._valid:
            hidden_TBH, state = self.module(inputs_TB, state)
            log_probs_N = self.module.softmax.target_log_probs(
                hidden_TBH.flatten(0, 1), targets_TB.flatten()
            )
            nats -= float(log_probs_N.double().sum())
            num_tokens += int((targets_TB != IGNORED).sum())
        return {self.score: _exp(nats / num_tokens)}

    def carried(self) -> dict[str, Tensor]:
        """Return the recurrent state by layer and part."""
        return {
            f"{layer}.{part}": tensor
            for layer, parts in enumerate(self._state)
            for part, tensor in enumerate(parts)
        }

    def restore_carried(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `carried` returned."""
        self._state = [
            tuple(tensors[f"{layer}.{part}"].to(self._device) for part in range(len(parts)))
            for layer, parts in enumerate(self._state)
        ]

    def save_model(self, directory: Path, scores: Mapping[str, float]) -> None:
        """Write the network, its tokenizer and a model card as a model directory."""
        tokenizer = self._corpus.tokenizer
        header = checkpoint.Header(
            kind=NeuralLanguageModel.kind,
            config=to_dict(self._config),
            tokenizer=tokenizer.describe(),
            scores=dict(scores),
            data=describe_corpus(self._corpus),
            command=self._command,
            num_parameters=count_parameters(self.module),
            versions={"torch": torch.__version__},
        )

        def fill(target: Path) -> None:
            tokenizer.save(target)
            save_weights(self.module, str(target / checkpoint.WEIGHTS))
            (target / "README.md").write_text(model_card(header), encoding="utf-8")

        checkpoint.save(directory, header, fill)


def _exp(nats: float) -> float:
    return math.exp(nats) if nats < 700 else math.inf


def describe_corpus(corpus: PreparedCorpus) -> dict[str, Any]:
    """Return what a model records of its data: unit, sizes per split, sources and their sums."""
    return {key: value for key, value in corpus.info.items() if key != "format_version"}


def model_card(header: checkpoint.Header) -> str:
    """Return the README.md of a model: what it is, its scores, its data and its command."""
    model = header.config["model"]
    depth = f", recurrence depth {model['depth']}" if model["cell"] == "rhn" else ""
    scores = [f"| {name.replace('_', ' ')} | {value:.2f} |" for name, value in header.scores.items()]
    splits = [
        f"| {name} | {split['sentences']:,} | {split['tokens']:,} |"
        for name, split in header.data.get("splits", {}).items()
    ]
    return "\n".join(
        [
            f"# A {model['cell'].upper()} language model",
            "",
            f"{model['layers']} layer(s) of {model['hidden_size']} units{depth}, "
            f"{header.num_parameters:,} parameters, over {header.tokenizer['unit']} units. "
            f"Made by seqtool {seqtool.__version__}.",
            "",
            "| score | value |",
            "| --- | --- |",
            *scores,
            "",
            "Perplexity counts every token and the sentence end; unknown words are included.",
            "",
            "| data | sentences | tokens with `</s>` |",
            "| --- | --- | --- |",
            *splits,
            "",
            "Made by:",
            "",
            f"    {header.command or 'train_lm (Python)'}",
            "",
            "Use it:",
            "",
            "    seqtool eval-ppl TEXT -m THIS_DIRECTORY",
            '    seqtool generate --prompt "..." -m THIS_DIRECTORY',
            "",
        ]
    )


@dataclass(frozen=True)
class TrainedLM:
    """What `train_lm` returns.

    Attributes:
        path: the model directory.
        scores: `valid_perplexity` (one stream, as `eval-ppl` measures it), and
            `tokens_per_second` of training.
        seconds: training time, validation included, over all continuations.
        num_parameters: trained numbers.
        epochs: epochs completed.
    """

    path: Path
    scores: dict[str, float]
    seconds: float
    num_parameters: int
    epochs: int


def train_lm(
    corpus: str | Path | PreparedCorpus | None = None,
    output: str | Path = "runs/lm",
    config: NeuralLMConfig | None = None,
    *,
    resume: bool = False,
    force: bool = False,
    device: str = "auto",
    threads: int | None = None,
    on_event: Callable[[Event], None] = lambda event: None,
    should_stop: Callable[[int], bool] | None = None,
    command: str = "",
) -> TrainedLM:
    """Train a neural language model.

    Args:
        corpus: a prepared corpus, or raw text (file or directory) that is prepared into
            `output/corpus`; with `resume`, the run's own by default.
        output: the run directory, which becomes the model directory.
        config: all settings; with `resume`, those of the run by default.
        resume: continue the run in `output` where it was saved.
        force: replace a run that is there.
        device: auto, cpu, cuda or mps.
        threads: CPU threads; None leaves the choice to torch.
        on_event: called with every event of the run.
        should_stop: asked with the step number before each step; True saves and interrupts.
        command: what the user typed, for the model card.

    Raises:
        Interrupted: Ctrl-C, SIGTERM or `should_stop`; the state is saved.
        DataError, ConfigError, ModelError, TrainingError: as their messages say.
    """
    output = Path(output)
    device = runtime.choose_device(device)
    runtime.set_threads(threads)
    runtime.prepare_device(device)
    if resume:
        saved_config, saved_corpus = read_run(output)
        config = config or saved_config
        corpus = corpus or saved_corpus
    else:
        checkpoint.check_output(output, force=force)
    config = config or NeuralLMConfig()
    if corpus is None:
        raise ConfigError("no corpus is given", hint="name a text file or a prepared corpus")
    started_empty = not output.exists()
    try:
        if not resume and not isinstance(corpus, PreparedCorpus):
            _refuse_inside(Path(corpus), output)
            if output.exists():
                shutil.rmtree(output)
        opened = _open(corpus, output, config)
        task = LanguageModelTask(opened, config, device=device, command=command)
        if not resume:
            if isinstance(corpus, PreparedCorpus) and output.exists():
                shutil.rmtree(output)
            output.mkdir(parents=True, exist_ok=True)
        _write_run(output, config, opened)
    except BaseException:
        if started_empty or (output.is_dir() and not (output / RUN_FILE).exists()):
            shutil.rmtree(output, ignore_errors=True)
        raise
    finished: RunFinished | None = None
    speeds: list[float] = []
    for event in train(
        task,
        config.training,
        output,
        device=device,
        fingerprint=_fingerprint(config, opened),
        resume=resume,
        should_stop=should_stop,
    ):
        on_event(event)
        if isinstance(event, EpochDone):
            speeds.append(event.items_per_second)
        elif isinstance(event, RunFinished):
            finished = event
    assert finished is not None
    if finished.reason == "interrupted":
        raise Interrupted(
            f"the run was interrupted at step {finished.step:,}; the state is saved",
            hint=f"continue with: seqtool train-lm --resume -o {output}",
        )
    return _finish(output, opened, finished, speeds, device)


def _finish(
    output: Path,
    corpus: PreparedCorpus,
    finished: RunFinished,
    speeds: list[float],
    device: str,
) -> TrainedLM:
    """Measure the best model as `eval-ppl` does, and write that into its header and card."""
    model: NeuralLanguageModel = checkpoint.load(output, device=device)
    header = checkpoint.read_header(output)
    scores = {**header.scores, "valid_perplexity": exact_perplexity(model, corpus, "valid")}
    if speeds:
        scores["tokens_per_second"] = sorted(speeds)[len(speeds) // 2]
    scores["train_seconds"] = finished.seconds
    header = dataclasses.replace(header, scores=scores)
    checkpoint.amend(output, header, {"README.md": model_card(header)})
    return TrainedLM(
        path=output,
        scores=scores,
        seconds=finished.seconds,
        num_parameters=header.num_parameters,
        epochs=finished.epoch,
    )


def exact_perplexity(model: NeuralLanguageModel, corpus: PreparedCorpus, split: str) -> float:
    """Return the perplexity of a split read as one stream, `</s>` counted."""
    ids = corpus.ids(split)
    nats, start = 0.0, 0
    while start < len(ids):
        # blocks of whole sentences, as score() takes them
        ends = start + 1 + (ids[start : start + EVALUATION_BLOCK] == EOS_ID).nonzero()[0]
        stop = int(ends[-1]) if len(ends) else len(ids)
        (scores,) = model.score([ids[start:stop].astype("int32")])
        nats -= math.fsum(scores.log_probs)
        start = stop
    return _exp(nats / len(ids))


def _refuse_inside(corpus: Path, output: Path) -> None:
    if output.exists() and corpus.resolve().is_relative_to(output.resolve()):
        raise ConfigError(
            f"the corpus {corpus} lies in {output}, which is to be replaced",
            hint="choose another output with -o",
        )


def _open(
    corpus: str | Path | PreparedCorpus, output: Path, config: NeuralLMConfig
) -> PreparedCorpus:
    if isinstance(corpus, PreparedCorpus):
        opened = corpus
    else:
        data = config.data
        settings = PrepareConfig(
            unit=data.unit,
            vocab_size=data.vocab_size,
            min_count=data.min_count,
            lowercase=data.lowercase,
        )
        opened = open_corpus(corpus, workspace=output / "corpus", config=settings)
    for split in ("train", "valid"):
        if split not in opened.splits() or not len(opened.ids(split)):
            raise DataError(
                f"the corpus has no {split} part",
                hint="prepare it again with --valid FILE or --split 90,5,5",
                path=opened.path,
            )
    return opened


def _digest(corpus: PreparedCorpus) -> str:
    """Return a sum that tells one prepared corpus from another."""
    content = json.dumps(corpus.info, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(content.encode("utf-8")).hexdigest()


def _fingerprint(config: NeuralLMConfig, corpus: PreparedCorpus) -> dict[str, Any]:
    """Return what a continued run must share with its beginning."""
    content = to_dict(config)
    return {
        "model": content["model"],
        "batch_size": config.data.batch_size,
        "bptt": config.data.bptt,
        "optimiser": [config.training.optimiser, config.training.embedding_optimiser],
        "corpus": _digest(corpus),
    }


def _write_run(output: Path, config: NeuralLMConfig, corpus: PreparedCorpus) -> None:
    """Record what `--resume` needs when nothing else is typed."""
    temporary = output / f".{RUN_FILE}.new"
    checkpoint.write_json(
        temporary,
        {
            "format_version": RUN_VERSION,
            "config": to_dict(config),
            "corpus": str(corpus.path.resolve()),
        },
    )
    temporary.replace(output / RUN_FILE)


def read_run(output: Path) -> tuple[NeuralLMConfig, Path]:
    """Return the settings and the corpus of a run.

    Raises:
        ModelError: there is no run, or its record is damaged.
    """
    path = output / RUN_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return from_dict(NeuralLMConfig, content["config"]), Path(content["corpus"])
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ModelError(
            "no run to resume is there", hint="train one first, without --resume", path=output
        ) from error
    except (ValueError, KeyError, TypeError, ConfigError) as error:
        raise ModelError(
            "the run's record is damaged", hint="start again with --force", path=path
        ) from error
