"""A neural language model at work, as a `LanguageModel`.

Dimensions in names: T steps, B streams, H units, V vocabulary, N = T x B.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_model as load_weights
from torch import Tensor, nn

from seqtool.core import checkpoint
from seqtool.core.arrays import Doubles, Ids, Reals
from seqtool.core.errors import ConfigError, ModelError
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.model import LanguageModel
from seqtool.lm.neural.cells import State as CellState
from seqtool.lm.neural.config import ModelConfig
from seqtool.lm.neural.maxent import AfterContexts
from seqtool.lm.neural.network import NeuralNetwork
from seqtool.lm.neural.output import OutputLayer
from seqtool.lm.protocol import Summary, TokenScores
from seqtool.text.tokenizers import Tokenizer, load_tokenizer
from seqtool.training import hardware

Network = TypeVar("Network", bound=nn.Module)

WINDOW = 256  # steps at a time, so that a long text needs little memory on the way
ROWS = (
    "embedding.weight",
    "softmax.weight",
    "softmax.bias",
    "softmax.ranks_V",
)  # the arrays that have a row for each symbol
DTYPES = {torch.float32: "F32", torch.int64: "I64", torch.int16: "I16"}
RESET_BATCH = 64  # sentences at a time, where the state is reset


@dataclass(frozen=True)
class Hypotheses:
    """State of generation: cell states, and the output layer with what it reads next, (num, H)."""

    cells: list[CellState]
    hidden: Tensor
    output: OutputLayer | AfterContexts

    @torch.inference_mode()
    def __getitem__(self, rows: npt.NDArray[np.integer]) -> Hypotheses:
        """Return the hypotheses `rows`."""
        index = torch.from_numpy(rows.astype(np.int64)).to(self.hidden.device)
        cells = [tuple(part[index] for part in layer) for layer in self.cells]
        output = self.output
        if isinstance(output, AfterContexts):
            output = output.softmax.after(output.hashes_NK[index])
        return Hypotheses(cells, self.hidden[index], output)


class NeuralLanguageModel(LanguageModel):
    """A trained network with its tokenizer.

    The text is read as one stream: `</s>` stands before its first token, and the state is carried
    over sentence ends unless it is reset.
    """

    kind = "neural-lm"

    def __init__(
        self, network: NeuralNetwork, tokenizer: Tokenizer, *, device: str = "cpu"
    ) -> None:
        self.network = network.to(device).eval()
        self.tokenizer = tokenizer
        self.device = device

    @property
    def carries_state(self) -> bool:
        """Whether a sentence goes on from the state of the one before, if that is bounded."""
        return self.network.is_bounded

    def _tensor(self, ids: npt.NDArray[np.integer]) -> Tensor:
        return torch.from_numpy(ids.astype(np.int64)).to(self.device)

    @torch.inference_mode()
    def score_ids(
        self, blocks: Iterable[Ids], *, reset_state: bool = False, summary: Summary | None = None
    ) -> Iterator[TokenScores]:
        """Yield the log-probabilities (nats) of each block, and a summary in the same pass."""
        state = self.network.initial_state(1)
        for block in blocks:
            if reset_state or not self.carries_state:
                yield _as_scores(self._score_sentences(block, summary), summary)
                continue
            inputs = np.concatenate(([EOS_ID], block[:-1])) if len(block) else block
            parts = [np.zeros((_num_figures(summary), 0))]
            for start in range(0, len(block), WINDOW):
                window = slice(start, start + WINDOW)
                figures_FT1, state = self._figures(
                    self._tensor(inputs[window])[:, None],
                    self._tensor(block[window])[:, None],
                    state,
                    summary,
                )
                parts.append(figures_FT1[:, :, 0])
            yield _as_scores(np.concatenate(parts, axis=1), summary)

    def _figures(
        self,
        inputs_TB: Tensor,
        targets_TB: Tensor,
        state: Sequence[CellState],
        summary: Summary | None,
    ) -> tuple[Doubles, list[CellState]]:
        """Return F figures of each target, [F, T, B], and the state after the inputs.

        They are its nats, and of the distribution that it is drawn from, what is asked for: the
        nats of a class, the entropy.
        """
        output = self.network.output(inputs_TB, state)
        hidden_TBH, after = self.network(inputs_TB, state)
        hidden_NH, targets_N = hidden_TBH.flatten(0, 1), targets_TB.flatten()
        if summary is None:
            figures = [output.target_log_probs(hidden_NH, targets_N)]
        else:
            class_V = summary.class_V
            figures = output.summarise(
                hidden_NH,
                targets_N,
                None if class_V is None else torch.from_numpy(class_V).to(self.device),
                entropy=summary.entropy,
            )
        figures_FN = torch.stack([each.cpu().double() for each in figures])
        return figures_FN.view(-1, *targets_TB.shape).numpy(), after

    def _score_sentences(self, block: Ids, summary: Summary | None) -> Doubles:
        """Score each sentence as a text of its own, many of similar length at once; [F, N]."""
        ends = np.flatnonzero(block == EOS_ID) + 1
        starts = np.concatenate(([0], ends[:-1]))
        figures_FN = np.zeros((_num_figures(summary), len(block)))
        by_length = np.argsort(ends - starts, kind="stable")
        for first in range(0, len(by_length), RESET_BATCH):
            chosen = by_length[first : first + RESET_BATCH]
            ids_TB = _side_by_side([block[starts[one] : ends[one]] for one in chosen])
            longest = len(ids_TB) - 1
            state = self.network.initial_state(len(chosen))
            parts: list[Doubles] = []
            for start in range(0, longest, WINDOW):
                inputs_TB = self._tensor(ids_TB[start : min(start + WINDOW, longest)])
                targets_TB = self._tensor(ids_TB[start + 1 : start + 1 + len(inputs_TB)])
                figures_FTB, state = self._figures(inputs_TB, targets_TB, state, summary)
                parts.append(figures_FTB)
            all_FTB = np.concatenate(parts, axis=1)
            for column, sentence in enumerate(chosen):
                length = ends[sentence] - starts[sentence]
                figures_FN[:, starts[sentence] : ends[sentence]] = all_FTB[:, :length, column]
        return figures_FN

    @torch.inference_mode()
    def hidden_states(self, pieces: Iterable[Ids]) -> Iterator[Reals]:
        """Yield what the softmax reads to predict each token of a piece, [N, H]."""
        state, before = self.network.initial_state(1), EOS_ID
        for piece in pieces:
            inputs = np.concatenate(([before], piece[:-1]))
            hidden_N1H, state = self.network(self._tensor(inputs)[:, None], state)
            before = int(piece[-1])
            yield hidden_N1H[:, 0].cpu().numpy()

    @property
    def state_size(self) -> int:
        """H, the width of what the softmax reads."""
        return self.network.config.output_size

    @property
    def num_layers(self) -> int:
        """How many layers there are above the embedding."""
        return self.network.config.layers

    @torch.inference_mode()
    def sentence_states(self, sentences: Sequence[Ids], layer: int | None = None) -> list[Reals]:
        """Return what the softmax reads, [1 + N, H], before each token and after the last.

        Sentences are padded at their ends, and what is read later changes no state before it.

        Args:
            sentences: ids of each, without `</s>`; those of like lengths waste the least.
            layer: give what this one of the layers, from 1, hands on instead; 0 is the embedding.
        """
        if not sentences:
            return []
        ids_TB = _side_by_side(sentences)
        state = self.network.initial_state(len(sentences))
        parts = []
        for start in range(0, len(ids_TB), WINDOW):
            window_TB = self._tensor(ids_TB[start : start + WINDOW])
            states_TBH, state = self.network.run_layers(window_TB, state, layer)
            parts.append(states_TBH.cpu().numpy())
        read_TBH = np.concatenate(parts)
        return [read_TBH[: 1 + len(ids), column] for column, ids in enumerate(sentences)]

    @torch.inference_mode()
    def word_vectors(self) -> Reals:
        """Return what is read for each word of the vocabulary, [V, E]."""
        vectors: Reals = self.network.embedding.weight.cpu().numpy()
        return vectors

    def hidden_state(self, state: Hypotheses) -> Reals:
        """Return what the softmax reads next, [num, H]."""
        hidden: Reals = state.hidden.cpu().numpy()
        return hidden

    @torch.inference_mode()
    def start(self, num: int) -> Hypotheses:
        """Return `num` hypotheses at the beginning of the text."""
        state = self.network.initial_state(num)
        return self._advance(state, np.full(num, EOS_ID, dtype=np.int32))

    @torch.inference_mode()
    def advance(self, state: Hypotheses, tokens: Ids) -> Hypotheses:
        """Read one token per hypothesis."""
        return self._advance(state.cells, tokens)

    def _advance(self, cells: Sequence[CellState], tokens: Ids) -> Hypotheses:
        ids_1B = self._tensor(tokens)[None]
        hidden_1BH, after = self.network(ids_1B, cells)
        return Hypotheses(after, hidden_1BH[0], self.network.output(ids_1B, cells))

    @torch.inference_mode()
    def next_log_probs(self, state: Hypotheses) -> npt.NDArray[np.float64]:
        """Return natural-log probabilities of the next token, (num, V)."""
        log_probs_NV: npt.NDArray[np.float64] = state.output.log_probs(state.hidden).cpu().numpy()
        return log_probs_NV


def _num_figures(summary: Summary | None) -> int:
    """Return F: the nats of the token, and what is asked for beside them."""
    return 1 if summary is None else 1 + (summary.class_V is not None) + summary.entropy


def _as_scores(figures_FN: Doubles, summary: Summary | None) -> TokenScores:
    if summary is None:
        return TokenScores(figures_FN[0])
    has_class = summary.class_V is not None
    return TokenScores(
        figures_FN[0],
        class_log_probs=figures_FN[1] if has_class else None,
        entropies=figures_FN[1 + has_class] if summary.entropy else None,
    )


def _side_by_side(sentences: Sequence[Ids]) -> npt.NDArray[np.int64]:
    """Return sentences as columns, after a row of `</s>`, and with more of it at their ends."""
    ids_TB = np.full((1 + max(map(len, sentences)), len(sentences)), EOS_ID, np.int64)
    for column, ids in enumerate(sentences):
        ids_TB[1 : 1 + len(ids), column] = ids
    return ids_TB


def load_model(
    directory: Path, header: checkpoint.Header, *, device: str = "cpu"
) -> NeuralLanguageModel:
    """Open a neural language model; errors as of `load_network`."""
    network, tokenizer = load_network(directory, header, NeuralNetwork)
    # a mixture need not say that it has a network, so that "auto" comes here
    return NeuralLanguageModel(network, tokenizer, device=hardware.choose_device(device))


def load_network(
    directory: Path, header: checkpoint.Header, make: Callable[[ModelConfig, int], Network]
) -> tuple[Network, Tokenizer]:
    """Return the network and the tokenizer of a model directory.

    Args:
        directory: of the model.
        header: its header.
        make: makes a network of settings for a number of symbols.

    Raises:
        ModelError: a file is damaged, or vocabulary, configuration and weights do not fit.
    """
    weights = directory / checkpoint.WEIGHTS
    hint = "copy the model again, or train it again"
    tokenizer = load_tokenizer(directory, header.tokenizer)
    try:
        settings = header.config.get("model", {})
        config = checkpoint.stored_settings(ModelConfig, settings, directory / checkpoint.HEADER)
        make_network = partial(make, config, len(tokenizer.vocabulary))
        _check_arrays(make_network, len(tokenizer.vocabulary), weights)
        checkpoint.verify(directory, header)
        network = make_network()
        load_weights(network, weights, strict=False)  # an older model begins with zeros
    except ConfigError as error:
        raise ModelError(str(error), hint=hint, path=directory / checkpoint.HEADER) from error
    except (SafetensorError, RuntimeError, ValueError, OSError) as error:
        checkpoint.verify(directory, header)  # says more, where a file is missing or changed
        raise ModelError("damaged weights", hint=hint, path=weights) from error
    return network, tokenizer


def _check_arrays(make_network: Callable[[], nn.Module], num_symbols: int, weights: Path) -> None:
    """Check that a file holds the arrays of a network, before memory is taken for one.

    Raises:
        ModelError: it is of another vocabulary.
        ValueError, SafetensorError: arrays of other names, shapes or types, or no such file.
    """
    if not weights.is_file():
        raise ValueError("no plain file")
    with safe_open(weights, framework="pt") as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
    stored = {name: (tuple(part.get_shape()), part.get_dtype()) for name, part in slices.items()}
    rows = next(
        (shape[0] for name, (shape, _) in stored.items() if name.endswith(ROWS) and shape), 0
    )
    if not rows:
        raise ValueError("no embedding")
    if rows != num_symbols:
        raise ModelError(
            f"the vocabulary has {num_symbols:,} symbols, but the weights have {rows:,} rows",
            hint="use the vocabulary that the model was trained with",
            path=weights.parent,
        )
    with torch.device("meta"):  # shapes without memory
        arrays = make_network().state_dict(keep_vars=True)
    expected = {name: (tuple(array.shape), DTYPES[array.dtype]) for name, array in arrays.items()}
    shared = {
        id(array) for name, array in arrays.items() if name in stored or name.endswith("start_S")
    }
    missing = [name for name, array in arrays.items() if id(array) not in shared]
    if missing or any(expected.get(name) != given for name, given in stored.items()):
        raise ValueError("other arrays than those of the network")
