"""Next-token prediction as a task of the training loop, and the card of the model it makes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from seqtool.core import checkpoint
from seqtool.core.config import to_dict
from seqtool.core.errors import ConfigError, counted
from seqtool.core.progress import TOKENS
from seqtool.core.units import perplexity_of
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.neural.cells import State as CellState
from seqtool.lm.neural.config import NeuralLMConfig
from seqtool.lm.neural.data import IGNORED, TokenStreams, draw_windows
from seqtool.lm.neural.model import NeuralLanguageModel
from seqtool.lm.neural.network import NeuralNetwork, activation_penalties, detach
from seqtool.lm.neural.output import OUTPUT_LAYERS, count_symbols
from seqtool.text.prepared import PreparedCorpus
from seqtool.training import hardware
from seqtool.training.hardware import ALONE, Group
from seqtool.training.loop import count_parameters

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

    Of several processes, each reads an equal share of the streams.
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
            found = count_symbols(ids, len(corpus.vocabulary), own)
            counts = np.array(group.totals(found.tolist()), np.int64)
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
        rise = self._config.model.dropout_rise
        self.module.set_dropout(1.0 if done >= rise else 0.5 + 0.5 * done / rise)

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
            save_weights(self.module, target / checkpoint.WEIGHTS)

        checkpoint.save(directory, header, model_card(header), fill)


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
    return checkpoint.compose(
        header,
        f"{_TITLES[model['cell']]} language model",
        f"{layers} of {units.removesuffix(',')}{depth}, {parameters}, "
        f"over {header.tokenizer['unit']} units.",
        checkpoint.scores_table(header),
        "Perplexity counts every token and the sentence end; unknown words are included.",
        checkpoint.table(("data", "sentences", "tokens with `</s>`"), splits),
        maker="train_lm (Python)",
        use=(
            "seqtool eval-ppl TEXT -m THIS_DIRECTORY",
            'seqtool generate --prompt "..." -m THIS_DIRECTORY',
        ),
    )
