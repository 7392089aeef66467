"""Training of neural language models: the task of the loop, `train_lm`, and the model's card."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from seqtool.core import checkpoint, runtime, storage
from seqtool.core.config import from_dict, named_settings, refuse_unread, to_dict
from seqtool.core.errors import ConfigError, DataError, ModelError, counted
from seqtool.core.progress import TOKENS, Event, shows_progress
from seqtool.core.units import perplexity_of
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.evaluation import evaluate_lm
from seqtool.lm.neural.cells import State as CellState
from seqtool.lm.neural.config import NeuralLMConfig, resolve
from seqtool.lm.neural.data import IGNORED, TokenStreams, draw_windows
from seqtool.lm.neural.model import NeuralLanguageModel
from seqtool.lm.neural.network import NeuralNetwork, activation_penalties, detach
from seqtool.lm.neural.output import OUTPUT_LAYERS, count_symbols
from seqtool.text.prepared import (
    PrepareConfig,
    PreparedCorpus,
    check_preparation,
    open_corpus,
)
from seqtool.text.tokenizers import Tokenizer
from seqtool.training import hardware
from seqtool.training.hardware import ALONE, Group, joined
from seqtool.training.loop import count_parameters, train
from seqtool.training.run import CompletedRun, Record, TrainedModel, complete, finish

# settings that decide what the ids of a prepared corpus are
PREPARATION = ("unit", "vocab_size", "min_count", "lowercase")
# the start of a text is fitted to the first tokens of lines
START_TOKENS = 3  # of each line
START_LINES = 100  # in each step
START_STEPS = 60
START_RATE = 0.15  # at first; it falls to 0
START_TEXT = 200_000  # tokens of the training text, from which the lines are drawn

_TITLES = {
    "rnn": "An RNN",
    "lstm": "An LSTM",
    "gru": "A GRU",
    "rhn": "A recurrent highway",
    "window": "A fixed-window",
}


class LanguageModelTask:
    """Next-token prediction over parallel streams, for `seqtool.training.loop.train`.

    Of several processes, each reads an equal share of the streams. All that is random goes by
    `training.seed`: torch's random state (weights, dropout, noise), which is saved, and NumPy's
    generators (windows, lines of text), which are made of it anew.
    """

    items = TOKENS
    score = "valid_perplexity"
    larger_is_better = False

    def __init__(
        self,
        corpus: PreparedCorpus,
        config: NeuralLMConfig,
        *,
        device: str,
        command: str = "",
        group: Group = ALONE,
    ) -> None:
        self._corpus, self._config, self._command = corpus, config, command
        self._device, self._group = device, group
        self._part = group.even_share(config.data.batch_size, "batch_size")
        self._train = TokenStreams(
            corpus.ids("train"),
            config.data.batch_size,
            config.data.bptt,
            device=device,
            part=self._part,
        )
        num_streams = min(config.data.eval_batch_size, len(corpus.ids("valid")))
        self._valid = TokenStreams(
            corpus.ids("valid"),
            num_streams,
            config.data.bptt,
            keep_all=True,
            device=device,
            part=group.share(num_streams),
        )
        if group.size > 1 and config.model.output.layer == "maxent":
            raise ConfigError(
                "several processes cannot share a hash table of n-grams",
                hint="train in one process, or choose another output layer than maxent",
            )
        hardware.seed_everything(config.training.seed)
        counts = None
        if OUTPUT_LAYERS[config.model.output.layer].needs_counts:
            ids = corpus.ids("train")
            # each process counts where its streams are, and the last one what is left over
            length, is_last = self._train.length, group.rank == group.size - 1
            stop = len(ids) if is_last else self._part.stop * length
            own = range(self._part.start * length, stop)
            own_counts = count_symbols(ids, len(corpus.vocabulary), own)
            counts = np.array(group.totals(own_counts.tolist()), np.int64)
        self.module = NeuralNetwork(
            config.model,
            len(corpus.vocabulary),
            sparse_embedding=config.training.embedding_optimiser == "sparse-adam",
            counts=counts,
        ).to(device)
        self._state: list[CellState] = []
        length, window = self._train.length, self._train.window
        self._begins = np.append(np.arange(0, length, window), length)
        self.start_epoch(0)

    def start_epoch(self, epoch: int) -> int:
        """Go back to the beginning of the text with a zero state."""
        self._state = self.module.zero_state(self._train.num_streams)
        if self._config.data.random_bptt:
            seed = self._config.training.seed, epoch
            self._begins = draw_windows(self._train.length, self._train.window, seed)
        return len(self._begins) - 1

    def set_progress(self, done: float) -> None:
        """Let the dropout of the next window be what it is to be when so much is done."""
        self.module.set_dropout(done)

    def loss(self, index: int) -> tuple[Tensor, int]:
        """Return the mean loss of window `index`, nats per token, and its number of tokens."""
        start, end = self._begins[index : index + 2].tolist()
        inputs_TB, targets_TB = self._train.cut(start, end - start)
        before = self._state
        if not self.module.is_bounded:  # each window begins anew, as in Le et al. (2015)
            before = self.module.zero_state(self._train.num_streams)
        output = self.module.output(inputs_TB, before)
        last_TBH, state = self.module.run_layers(inputs_TB, before)
        hidden_TBH = self.module.drop_output(last_TBH)
        self._state = detach(state)
        loss = output.loss(hidden_TBH.flatten(0, 1), targets_TB.flatten())
        # of the value, the perplexity is made: penalties are in the gradient alone
        penalty = activation_penalties(hidden_TBH, last_TBH, self._config.model)
        loss = loss + (penalty - penalty.detach())
        return loss, targets_TB.numel()

    def rate_factor(self, index: int) -> float:
        """Return the share of `bptt` that a window has, where lengths are drawn; else 1."""
        if not self._config.data.random_bptt:
            return 1.0
        start, end = self._begins[index : index + 2].tolist()
        return float((end - start) / self._train.window)

    def validate(self) -> dict[str, float]:
        """Return the perplexity of the validation part, read as parallel streams.

        They begin with the mean of the states that training carries: some networks never leave the
        states that the zero state leads to, and training knows others. Texts then begin with the
        mean of the states that these streams pass.
        """
        module, num_streams = self.module, self._valid.num_streams
        self._set_start(module.flat_state(self._state).double().sum(dim=0), len(self._state[0][0]))
        state = module.initial_state(num_streams)
        passed_S = torch.zeros_like(module.start_S, dtype=torch.float64)
        nats, num_tokens, num_states = 0.0, 0, 0
        for index in range(len(self._valid) if num_streams else 0):
            inputs_TB, targets_TB = self._valid[index]
            state = state if module.is_bounded else module.initial_state(num_streams)
            output = module.output(inputs_TB, state)
            hidden_TBH, state = module(inputs_TB, state)
            log_probs_N = output.target_log_probs(hidden_TBH.flatten(0, 1), targets_TB.flatten())
            nats -= float(log_probs_N.double().sum())
            num_tokens += int((targets_TB != IGNORED).sum())
            passed_S += module.flat_state(state).double().sum(dim=0)
            num_states += num_streams
        self._set_start(passed_S, num_states)
        total_nats, total_tokens = self._group.totals([nats, num_tokens])
        return {self.score: perplexity_of(total_nats / max(1, total_tokens))}

    def _set_start(self, sum_S: Tensor, num: int) -> None:
        """Let texts begin with the mean of states of all processes; here they have this sum."""
        all_num, *all_S = self._group.totals([num, *sum_S.tolist()])
        self.module.start_S.copy_(torch.tensor(all_S, dtype=torch.float64) / all_num)

    @torch.no_grad()
    def _fit_start(self) -> None:
        """Let the start of a text suit the first tokens of lines of the training text.

        It is begun with, and is not far from, the mean state. That one is no state of the network:
        where what comes first depends on the line before, as with headings and paragraphs, it is
        half a bit worse.
        """
        ids = np.asarray(self._corpus.ids("train")[:START_TEXT]).astype(np.int64)
        ends = np.flatnonzero(
            (ids[:-START_TOKENS] == EOS_ID) & (ids[1 : 1 - START_TOKENS] != EOS_ID)
        )
        if not len(ends):
            return
        draw, module = np.random.default_rng(self._config.training.seed), self.module
        start_S = module.start_S.clone().requires_grad_()
        optimiser = torch.optim.Adam([start_S], lr=START_RATE)
        # cuDNN has no gradients outside training
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            for step in range(START_STEPS):
                optimiser.param_groups[0]["lr"] = START_RATE * (1 - step / START_STEPS)
                lines_B = draw.choice(ends, START_LINES)
                read_TB = ids[lines_B + np.arange(START_TOKENS + 1)[:, None]]
                inputs_TB, targets_TB = (
                    torch.from_numpy(part).to(self._device) for part in (read_TB[:-1], read_TB[1:])
                )
                state = module.state_from(start_S.expand(START_LINES, -1))
                output = module.output(inputs_TB, state)
                hidden_TBH, _ = module(inputs_TB, state)
                log_probs_N = output.target_log_probs(
                    hidden_TBH.flatten(0, 1), targets_TB.flatten()
                )
                (start_S.grad,) = torch.autograd.grad(-log_probs_N.mean(), start_S)
                optimiser.step()
        module.start_S.copy_(start_S)

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
            tuple(tensors[f"{layer}.{part}"].to(like) for part, like in enumerate(parts))
            for layer, parts in enumerate(self.module.zero_state(1))
        ]

    def save_model(self, directory: Path, scores: Mapping[str, float]) -> None:
        """Write the network, its tokenizer and a model card as a model directory."""
        self._fit_start()
        save_network(
            directory,
            NeuralLanguageModel.kind,
            self.module,
            self._corpus.tokenizer,
            model_card,
            config=to_dict(self._config),
            scores=dict(scores),
            data=describe_corpus(self._corpus),
            command=self._command,
        )


def save_network(
    directory: Path,
    kind: str,
    module: nn.Module,
    tokenizer: Tokenizer,
    card: Callable[[checkpoint.Header], str],
    **more: Any,
) -> None:
    """Write a network, its tokenizer and a model card as a model directory.

    Args:
        directory: where.
        kind: of the model.
        module: the network.
        tokenizer: of its words.
        card: makes the model card.
        more: what else the header says.
    """
    header = checkpoint.Header(
        kind=kind,
        tokenizer=tokenizer.describe(),
        num_parameters=count_parameters(module),
        versions={"torch": torch.__version__},
        **more,
    )

    def fill(target: Path) -> None:
        tokenizer.save(target)
        save_weights(module, target / checkpoint.WEIGHTS)

    checkpoint.save(directory, header, card(header), fill)


def save_weights(module: nn.Module, path: Path) -> None:
    """Write the arrays of a network, those that layers share once.

    They may lie in one piece of memory, as cuDNN has those of a recurrent layer, which
    safetensors' own function refuses.
    """
    written: dict[str, Tensor] = {}
    names: dict[tuple[int, torch.Size], str] = {}
    shared: dict[str, str] = {}
    for name, array in sorted(module.state_dict().items()):
        first = names.setdefault((array.data_ptr(), array.shape), name)
        if first != name and array.numel():
            shared[name] = first
            continue
        if array.untyped_storage().nbytes() > array.nbytes:
            array = array.clone()
        written[name] = array.cpu().contiguous()
    save_file(written, path, metadata=shared or None)


def describe_corpus(corpus: PreparedCorpus) -> dict[str, Any]:
    """Return what a model records of its data: unit, sizes per split, sources and their sums."""
    return {key: value for key, value in corpus.info.items() if key != "format_version"}


def model_card(header: checkpoint.Header) -> str:
    """Return the README.md of a model: what it is, its scores, its data and its command."""
    model = header.config["model"]
    depth = f", recurrence depth {model['depth']}" if model["cell"] == "rhn" else ""
    layers = counted(model["layers"], "layer")
    units = counted(model["hidden_size"], "unit")
    if model.get("last_size") is not None:
        units += f", the last of {model['last_size']:,},"
    if model.get("projection_size") is not None:
        units += f" projected to {model['projection_size']:,}"
    parameters = counted(header.num_parameters, "parameter")
    splits = [
        (name, f"{split['sentences']:,}", f"{split['tokens']:,}")
        for name, split in header.data.get("splits", {}).items()
    ]
    # of a model that parses as it reads
    parses = header.kind != NeuralLanguageModel.kind
    use = "parse FILE.conllu" if parses else 'generate --prompt "..."'
    return checkpoint.compose(
        header,
        f"{_TITLES[model['cell']]} language model{' that parses' if parses else ''}",
        f"{layers} of {units.removesuffix(',')}{depth}, {parameters}, "
        f"over {header.tokenizer['unit']} units.",
        checkpoint.scores_table(header),
        "Perplexity counts every token and the sentence end; unknown words are included.",
        checkpoint.table(("data", "sentences", "tokens with `</s>`"), splits)
        or checkpoint.data_table(header),
        maker="train_syntactic (Python)" if parses else "train_lm (Python)",
        use=("seqtool eval-ppl TEXT -m THIS_DIRECTORY", f"seqtool {use} -m THIS_DIRECTORY"),
    )


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
