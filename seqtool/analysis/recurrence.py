"""A trained recurrent network as what theory looks at: a map of its state, step by step.

Dimensions in names: T steps, B streams, E embedding width, H units of a layer, S numbers of a state
(H for rnn, gru and rhn; the output and the memory, P + H, for the lstm), N tokens of a text.

All is in float64 on the CPU, whatever the model was trained in. A *layer's state* is one vector,
the parts of the cell's state side by side. The *temporal Jacobian* of a layer is d state(t) / d
state(t-1) [S, S], its input being fixed: row i is the gradient of the i-th number. That of a whole
network is block triangular, as a layer reads those below: its eigenvalues are those of all layers.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import jacrev

from seqtool.core.arrays import Ids
from seqtool.core.errors import ConfigError, DataError, counted
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.evaluation import read_ids
from seqtool.lm.neural.cells import Cell, ElmanCell, LSTMCell, RecurrentHighwayCell
from seqtool.lm.neural.cells import State as CellState
from seqtool.lm.neural.maxent import MaxentSoftmax
from seqtool.lm.neural.model import NeuralLanguageModel
from seqtool.lm.neural.network import NeuralNetwork

States = list[CellState]  # of all layers, and the last words if the output layer reads them
WINDOW = 256  # steps of a text that are read at a time


def open_networks(
    models: Sequence[tuple[str, Any]],
) -> list[tuple[str, NeuralLanguageModel, NeuralNetwork]]:
    """Return the name, the model and the network in float64 of each recurrent language model.

    Raises:
        ConfigError: a model is no recurrent neural language model, or there is none.
    """
    if not models:
        raise ConfigError("no model is given", hint="name one with -m")
    result = []
    for name, model in models:
        if not isinstance(model, NeuralLanguageModel) or model.network.config.cell == "window":
            raise ConfigError(
                f"{name} is no recurrent network",
                hint="name a model of train-lm with the cell rnn, lstm, gru or rhn",
            )
        network = copy.deepcopy(model.network).cpu().double().eval().requires_grad_(False)
        result.append((name, model, network))
    return result


def initial_model(model: NeuralLanguageModel, seed: int) -> NeuralLanguageModel:
    """Return a model as it is before its training with that seed, in float64 on the CPU."""
    network = model.network
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        size = network.embedding.num_embeddings
        drawn = NeuralNetwork(network.config, size)
    # tables that are counted and not drawn: the ranks of words
    learnt = ("marks_S", "start_S")
    own = {name for name, _ in drawn.named_buffers() if not name.endswith(learnt)}
    kept = {name: value for name, value in network.state_dict().items() if name in own}
    drawn.load_state_dict(kept, strict=False)
    return NeuralLanguageModel(drawn.double().eval().requires_grad_(False), model.tokenizer)


def read_text(
    name: str, model: Any, text: str | Path, *, split: str, num_tokens: int, needed: int
) -> Ids:
    """Return the first tokens of a text as ids of a model.

    Raises:
        DataError: it cannot be read, or it has fewer tokens than are needed.
    """
    ids = read_ids(model, text, split=split, num_tokens=num_tokens)
    if len(ids) < needed:
        what = f"the text has {counted(len(ids), 'token')} for {name}, but {needed:,} are needed"
        raise DataError(what, hint="give a longer text, or look at fewer steps", path=text)
    return ids


def flatten(state: CellState) -> Tensor:
    """Return a layer's state as vectors, [B, S]."""
    return torch.cat(state, dim=1)


def unflatten(flat_BS: Tensor, like: CellState) -> CellState:
    """Return vectors [B, S] as a layer's state, cut as `like` is."""
    return torch.split(flat_BS, [part.shape[1] for part in like], dim=1)


def inputs_of(ids: Ids) -> Ids:
    """Return what is read before each token of a text: `</s>`, and all tokens but the last."""
    before: Ids = np.concatenate(([EOS_ID], ids[:-1])).astype(np.int32)
    return before


@torch.no_grad()
def states_at(network: NeuralNetwork, ids: Ids, positions: Sequence[int]) -> States:
    """Return the states before the tokens `ids[position]` are read, one stream each.

    The text is read as one stream.

    Args:
        network: in float64.
        ids: what is read, [N].
        positions: ascending.
    """
    state: States = network.initial_state(1)
    at, states = 0, []
    for position in positions:
        while at < position:
            end = min(position, at + WINDOW)
            _, state = network.run_layers(as_tensor(ids[at:end])[:, None], state)
            at = end
        states.append(state)
    return [
        tuple(torch.cat(parts) for parts in zip(*layers, strict=True))
        for layers in zip(*states, strict=True)
    ]


def as_tensor(ids: Ids) -> Tensor:
    """Return ids as torch reads them."""
    return torch.from_numpy(np.asarray(ids).astype(np.int64))


def cut(ids: Ids, positions: Sequence[int], num: int) -> Tensor:
    """Return the `num` tokens from each position on, [num, B]."""
    return as_tensor(np.stack([ids[position : position + num] for position in positions], axis=1))


@dataclass(frozen=True)
class LayerStep:
    """What one layer did in one step.

    Attributes:
        cell: the layer.
        inputs_BI: what it read.
        before, after: its state.
    """

    cell: Cell
    inputs_BI: Tensor
    before: CellState
    after: CellState


def make_steps(network: NeuralNetwork, ids_TB: Tensor, states: States) -> Iterator[list[LayerStep]]:
    """Yield what each layer does, step by step."""
    current = states
    for ids_B in ids_TB.unbind(0):
        walk = zip(network.steps(network.embedding(ids_B), current), current, strict=False)
        done = [
            LayerStep(cell, inputs_BI, before, after)
            for (cell, inputs_BI, after, _), before in walk
        ]
        yield done
        current = [step.after for step in done]


def losses(network: NeuralNetwork, ids_TB: Tensor, top_BH: Tensor, targets_B: Tensor) -> Tensor:
    """Return minus the log-probability, nats, of the target after each stream [B].

    Args:
        network: in float64.
        ids_TB: the last tokens that were read.
        top_BH: what the output layer reads after them.
        targets_B: the next tokens.
    """
    if isinstance(network.softmax, MaxentSoftmax):
        direct = network.softmax.direct
        history = direct.history_after(ids_TB[:-1], direct.initial_history(ids_TB.shape[1]))
        output = network.output(ids_TB[-1:], [(history,)])
    else:
        output = network.softmax
    return -output.target_log_probs(top_BH, targets_B)


def jacobians(step: Callable[[Tensor], Tensor], points_BS: Tensor) -> Tensor:
    """Return the Jacobian of a map [B, S] -> [B, S], whose rows are independent, at points."""

    def alone(point_S: Tensor) -> Tensor:
        return step(point_S[None])[0]

    return torch.stack([jacrev(alone)(point_S) for point_S in points_BS])


def temporal_jacobians(cell: Cell, inputs_BI: Tensor, state: CellState) -> Tensor:
    """Return d state(t) / d state(t-1) of a layer for each stream, [B, S, S]."""
    matrices = []
    for row in range(len(inputs_BI)):
        like = tuple(part[row : row + 1] for part in state)

        def step(flat_S: Tensor, row: int = row, like: CellState = like) -> Tensor:
            after = cell.step(inputs_BI[row : row + 1], unflatten(flat_S[None], like))
            return flatten(after)[0]

        matrices.append(jacrev(step)(flatten(like)[0]))
    return torch.stack(matrices)


def spectral_norms(matrices: Tensor) -> Tensor:
    """Return the largest singular value of each of a stack of matrices."""
    norms: Tensor = torch.linalg.matrix_norm(matrices, ord=2)
    return norms


def spectral_radii(matrices: Tensor) -> Tensor:
    """Return the largest absolute eigenvalue of each of a stack of matrices."""
    radii: Tensor = torch.linalg.eigvals(matrices).abs().amax(dim=-1)
    return radii


def jacobian_bounds(cell: Cell, inputs_BI: Tensor, state: CellState) -> Tensor:
    """Return what the spectral norm of a layer's temporal Jacobian cannot exceed, [B].

    For the plain RNN it is gamma times sigma_max(R), gamma being the largest slope of the
    activation at this step (Pascanu et al. 2013; Zilly et al. 2017, section 3). Gated cells add
    such a term for each gate, and the largest carry; of the RHN, it is the product over the
    micro-steps. The norm of a product of Jacobians cannot exceed the product of these.
    """
    norms = [float(norm) for norm in spectral_norms(torch.stack(cell.recurrent_blocks()))]
    if isinstance(cell, ElmanCell):
        return _largest(cell.slopes(inputs_BI, state)) * norms[0]
    if isinstance(cell, RecurrentHighwayCell):
        return _highway_bound(cell, inputs_BI, state[0], norms)
    gates = cell.gates(inputs_BI, state)[0]
    if isinstance(cell, LSTMCell):
        return _lstm_bound(cell, gates, state, norms)
    reset, keep, new = gates["reset"], gates["update"], gates["candidate"]
    # h' = (1 - z) n + z h, and n reads r times what R_n makes of h
    weight_HH, bias_H = cell.recurrent_blocks()[2], cell.get_parameter("inner.bias_hh_l0")
    read = torch.nn.functional.linear(state[0], weight_HH, bias_H[-cell.hidden_size :])
    slope = (1 - keep) * (1 - new**2)
    return (
        _largest(keep)
        + _largest(_slope(keep) * (state[0] - new)) * norms[1]
        + _largest(slope * reset) * norms[2]
        + _largest(slope * read * _slope(reset)) * norms[0]
    )


def _largest(values_BH: Tensor) -> Tensor:
    return values_BH.abs().amax(dim=1)


def _slope(gate: Tensor) -> Tensor:
    """Return the slope of the logistic function, from its value."""
    return gate * (1 - gate)


def _highway_bound(
    cell: RecurrentHighwayCell, inputs_BI: Tensor, state_BH: Tensor, norms: Sequence[float]
) -> Tensor:
    bound_B = torch.ones(len(state_BH), dtype=state_BH.dtype)
    for level in range(cell.depth):
        after_BH, gates = cell.micro_step(level, inputs_BI, state_BH)
        opened, candidate = gates["transform"], gates["candidate"]
        of_level = norms[level * cell.num_gates : (level + 1) * cell.num_gates]
        # s' = h t + s c: by h, by the gates, and by s itself
        total = _largest((1 - candidate**2) * opened) * of_level[0]
        if "carry" in gates:
            carry = gates["carry"]
            total = total + _largest(_slope(opened) * candidate) * of_level[1]
            total = total + _largest(_slope(carry) * state_BH) * of_level[2] + _largest(carry)
        else:
            total = total + _largest(_slope(opened) * (candidate - state_BH)) * of_level[1]
            total = total + _largest(1 - opened)
        bound_B, state_BH = bound_B * total, after_BH
    return bound_B


def _lstm_bound(
    cell: LSTMCell, gates: Mapping[str, Tensor], state: CellState, norms: Sequence[float]
) -> Tensor:
    """Return the norm of the two by two matrix of the bounds of its blocks."""
    opened, forget, output = gates["input"], gates["forget"], gates["output"]
    candidate = gates["candidate"]
    memory = forget * state[1] + opened * candidate
    bounded = torch.tanh(memory)
    memory_by_output = (
        _largest(_slope(opened) * candidate) * norms[0]
        + _largest(_slope(forget) * state[1]) * norms[1]
        + _largest(opened * (1 - candidate**2)) * norms[2]
    )
    shown = output * (1 - bounded**2)
    projection = 1.0
    for weight_PH in cell.output_blocks():
        projection = float(spectral_norms(weight_PH))
    output_by_output = _largest(_slope(output) * bounded) * norms[3]
    output_by_output = output_by_output + _largest(shown) * memory_by_output
    blocks = torch.stack(
        [
            projection * output_by_output,
            projection * _largest(shown * forget),
            memory_by_output,
            _largest(forget),
        ],
        dim=1,
    )
    return spectral_norms(blocks.view(-1, 2, 2))


def layer_labels(name: str, network: NeuralNetwork) -> list[str]:
    """Return what the layers are called in legends: the model's name where there is one layer."""
    num = network.config.layers
    return [name] if num == 1 else [f"{name}, layer {layer + 1}" for layer in range(num)]


def spread_out(first: int, last: int, num: int, seed: int) -> list[int]:
    """Return up to `num` different positions from `first` to `last`, drawn and ascending."""
    everything = np.arange(first, last + 1)
    drawn = np.random.default_rng(seed).choice(everything, min(num, len(everything)), replace=False)
    return sorted(int(position) for position in drawn)


def quantiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the lower quartile, the median and the upper quartile."""
    low, middle, high = np.quantile(np.asarray(values, dtype=np.float64), (0.25, 0.5, 0.75))
    return float(low), float(middle), float(high)


def products(matrices_TSS: Sequence[Tensor]) -> Iterator[Tensor]:
    """Yield d state(t) / d state(t-k) for k = 1, 2, ... from the Jacobians, step t's the last."""
    return itertools.accumulate(reversed(matrices_TSS), torch.matmul)
