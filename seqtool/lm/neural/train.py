"""Training of neural language models: `train_lm`, and what it records to be resumed."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqtool.core import checkpoint, runtime, storage
from seqtool.core.config import from_dict, named_settings, refuse_unread, to_dict
from seqtool.core.errors import ConfigError, DataError, ModelError
from seqtool.core.progress import Event, shows_progress
from seqtool.lm.evaluation import evaluate_lm
from seqtool.lm.neural.config import NeuralLMConfig, resolve
from seqtool.lm.neural.model import NeuralLanguageModel
from seqtool.lm.neural.task import LanguageModelTask, model_card
from seqtool.text.prepared import (
    PrepareConfig,
    PreparedCorpus,
    check_preparation,
    open_corpus,
)
from seqtool.training import hardware
from seqtool.training.hardware import Group, joined
from seqtool.training.loop import train
from seqtool.training.run import CompletedRun, Record, TrainedModel, complete, finish

# settings that decide what the ids of a prepared corpus are
PREPARATION = ("unit", "vocab_size", "min_count", "lowercase")


@dataclass(frozen=True)
class TrainedLM(TrainedModel):
    """What `train_lm` returns.

    Attributes:
        path: the model directory.
        scores: `valid_perplexity` (as `eval-ppl` measures it), `train_seconds`,
            and the `tokens_per_second` of training where a whole epoch was trained.
        seconds: training time, validation included, over all continuations.
        num_parameters: trained numbers.
        epochs: epochs completed.
        precision: of products, as it really was.
        passes: over the training part, with the last one as far as it came.
    """

    @property
    def is_fit(self) -> bool:
        """True: a language model learns from a part of a large text, too."""
        return True


@dataclass(frozen=True)
class RunRecord(Record[NeuralLMConfig]):
    """`run.json` of a neural language model; see `seqtool.training.run.Record`.

    Attributes:
        corpus: the prepared corpus; relative to the run where it lies in it.
        device: as it was asked for.
        command: what was typed, resumed runs with other settings included.
    """

    config: NeuralLMConfig
    corpus: Path
    device: str = "auto"
    threads: int | None = None
    command: str = ""

    @classmethod
    def read(cls, output: Path) -> RunRecord:
        """Return the record of a run directory; see `read_as`."""
        return cls.read_as(output, NeuralLMConfig)


@shows_progress()
@runtime.writes_to("output")
def train_lm(
    corpus: str | Path | PreparedCorpus | None = None,
    output: str | Path = "runs/lm",
    config: NeuralLMConfig | Mapping[str, Any] | str | None = None,
    *,
    resume: bool = False,
    force: bool = False,
    device: str = "auto",
    threads: int | None = None,
    on_event: Callable[[Event], None] = lambda event: None,
    should_stop: Callable[[int], bool] | None = None,
    command: str = "",
    progress: bool | None = None,
) -> TrainedLM:
    """Train a neural language model.

    Started by torchrun, each process trains on its share of the streams; the first one writes and
    hears the events, and all return the same.

    Args:
        corpus: a prepared corpus, or a text file or directory, which is prepared in
            `output/corpus`. A run that is resumed knows its own.
        output: the model directory.
        config: all settings, a dictionary of those that are not the defaults, or the name of a
            recipe; those of the run when one is resumed.
        resume: continue the run in `output` where it was saved.
        force: replace a run that is there.
        device: auto, cpu, cuda or mps; that of the run when one is resumed with auto.
        threads: CPU threads of each process; None leaves the choice to torch, or to the run that is
            resumed.
        on_event: called with every event of the run.
        should_stop: asked with the step number before each step; True saves and interrupts.
        command: what the user typed, for the model card.
        progress: show on stderr how it goes on; if None, where there is no `on_event`.

    Raises:
        Interrupted: Ctrl-C, SIGTERM or `should_stop`; the state is saved.
        DataError, ConfigError, ModelError, TrainingError, OutputError: as their messages say.
    """
    begun = time.perf_counter()
    output = Path(output)
    if isinstance(config, str):
        config = resolve(config, {}, ())
    elif isinstance(config, Mapping):
        names = named_settings(NeuralLMConfig, config)
        config = from_dict(NeuralLMConfig, config)
        for name in names:
            refuse_unread([(config, name)])
    if resume:
        if not runtime.place().rank:
            storage.recover(output)
        saved = RunRecord.read(output)
        config = config or saved.config
        device = saved.device if device == "auto" else device
        threads = saved.threads if threads is None else threads
        command = saved.command if config == saved.config else f"{saved.command} && {command}"
    config = config or NeuralLMConfig()
    chosen = hardware.choose_device(device)
    hardware.set_threads(threads)
    hardware.prepare_device(chosen)
    recorded = saved.corpus if resume else None
    with joined(chosen) as group:
        with ExitStack() as stack:
            opened: PreparedCorpus | None = None
            with group.agreed():
                if group.is_first:
                    opened = _obtain(corpus, output, recorded, config, stack, force=force)
            opened = _shared(opened, group)
            with group.agreed():
                task = LanguageModelTask(
                    opened, config, device=chosen, command=command, group=group
                )
                record = RunRecord(config, _relative(opened.path, output), device, threads, command)
                if group.is_first and not resume:
                    record.write(output)
        ids = _sums_of_ids(opened)
        events = train(
            task,
            config.training,
            output,
            device=chosen,
            fingerprint={
                **_fingerprint(config),
                "corpus": _summary(opened),
                "ids": ids,
            },
            resume=resume,
            should_stop=should_stop,
            group=group,
            begun=begun,
            float32_layers=task.module.float32_layers(chosen),
        )
        with runtime.keeping_freed_memory():
            run = complete(
                events,
                output,
                "train-lm",
                on_event=on_event if group.is_first else lambda event: None,
                on_started=lambda: record.write(output) if resume and group.is_first else None,
            )
        trained: TrainedLM | None = None
        with group.agreed():
            if group.is_first:
                trained = _finish(output, opened, run, device)
        trained = group.from_first(trained)
        assert trained is not None
        return trained


def _obtain(
    corpus: str | Path | PreparedCorpus | None,
    output: Path,
    recorded: Path | None,
    config: NeuralLMConfig,
    stack: ExitStack,
    *,
    force: bool,
) -> PreparedCorpus:
    """Open the corpus of a run, a new one or that whose corpus is `recorded`.

    The stack puts back what a new run replaces, if it fails before it begins.
    """
    if recorded is not None:
        return _reopen(corpus, output, recorded, config)
    checkpoint.check_output(output, force=force)
    if corpus is None:
        raise ConfigError("no corpus is given", hint="name a text file or a prepared corpus")
    _refuse_inside(corpus, output)
    stack.enter_context(storage.replacing(output))
    return _open(corpus, output / "corpus", config)


def _shared(corpus: PreparedCorpus | None, group: Group) -> PreparedCorpus:
    """Return the corpus that the first process opened; the others open it too."""
    path = group.from_first(None if corpus is None else corpus.path.resolve())
    assert path is not None
    with group.agreed():
        return PreparedCorpus.open(path) if corpus is None else corpus


def _finish(output: Path, corpus: PreparedCorpus, run: CompletedRun, device: str) -> TrainedLM:
    """Measure the best model as `eval-ppl` does, and write that into its header and card.

    The `device` is as it was asked for: the GPU that one of several processes has may not be.
    """
    model = checkpoint.load(output, NeuralLanguageModel, device=device)
    perplexity = evaluate_lm(model, corpus.path, split="valid").perplexity
    measured = {"valid_perplexity": perplexity}
    return TrainedLM(**vars(finish(output, run, "tokens", model_card, measured=measured)))


def _refuse_inside(corpus: str | Path | PreparedCorpus, output: Path) -> None:
    path = corpus.path if isinstance(corpus, PreparedCorpus) else Path(corpus)
    if output.exists() and path.resolve().is_relative_to(output.resolve()):
        raise ConfigError(
            f"the corpus {path} lies in {output}, which is to be replaced",
            hint="choose another output with -o",
        )


def _relative(corpus: Path, output: Path) -> Path:
    """Return a corpus path that stays right when the run is moved, or is resumed elsewhere."""
    corpus, output = corpus.resolve(), output.resolve()
    return corpus.relative_to(output) if corpus.is_relative_to(output) else corpus


def _open(
    corpus: str | Path | PreparedCorpus, workspace: Path, config: NeuralLMConfig
) -> PreparedCorpus:
    """Open a prepared corpus, or prepare raw text in `workspace`."""
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
        opened = open_corpus(corpus, workspace=workspace, config=settings)
    check_preparation(opened, config.data, PREPARATION)
    for split in ("train", "valid"):
        if not opened.info["splits"].get(split, {}).get("tokens"):
            raise DataError(
                f"the corpus has no {split} part",
                hint="prepare it again with --valid FILE or --split 90,5,5",
                path=opened.path,
            )
    return opened


def _reopen(
    corpus: str | Path | PreparedCorpus | None, output: Path, recorded: Path, config: NeuralLMConfig
) -> PreparedCorpus:
    """Open the corpus of a run that is resumed; its fingerprint will tell if it is another."""
    path = output / recorded
    if corpus is None:
        if not path.is_dir():
            raise DataError(
                "the corpus of the run is no longer there",
                hint=f"name it: {runtime.resuming('train-lm CORPUS', output)}",
                path=path,
            )
        return _open(path, path, config)
    with storage.temporary_sibling(output / "corpus") as folder:
        opened = _open(corpus, folder / "corpus", config)
        if opened.path.parent != folder:
            return opened
        # raw text was typed again: it is the run's own if it gives the same ids
        if path.is_dir() and _summary(opened) == _summary(before := PreparedCorpus.open(path)):
            return before
        raise ModelError(
            f"the run was trained on another text than {corpus}",
            hint="leave the text out, or start again with --force",
            path=output,
        )


def _summary(corpus: PreparedCorpus) -> dict[str, Any]:
    """Return what tells one prepared corpus from another, wherever its sources were."""
    sources = [
        {key: value for key, value in source.items() if key != "path"}
        for source in corpus.info.get("sources", [])
    ]
    content = {**corpus.info, "sources": sources, "seqtool_version": ""}
    text = json.dumps(content, sort_keys=True)
    return {
        "vocabulary_size": len(corpus.vocabulary),
        "train_tokens": corpus.info["splits"]["train"]["tokens"],
        "sum": hashlib.sha256(text.encode("ascii")).hexdigest()[:12],
    }


def _sums_of_ids(corpus: PreparedCorpus) -> dict[str, str]:
    """Return a sum of each file of ids."""
    files = [corpus.path / f"{split}.bin" for split in ("train", "valid")]
    return {file.stem: storage.sum_of(file)[:12] for file in files if file.is_file()}


def _fingerprint(config: NeuralLMConfig) -> dict[str, Any]:
    """Return the settings that a continued run must share with its beginning."""
    training, settings = config.training, to_dict(config)
    return {
        "model": settings["model"],
        "data": {name: settings["data"][name] for name in ("batch_size", "bptt", "random_bptt")},
        "training": {
            "seed": training.seed,
            "optimiser": training.optimiser,
            "embedding_optimiser": training.embedding_optimiser,
        },
    }
