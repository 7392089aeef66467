"""The network of a neural language model.

Dimensions in names: T steps, B streams, E embedding width, H units, V vocabulary, S numbers of
a state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from seqtool.core.arrays import Longs
from seqtool.lm.neural.cells import CELLS, Cell
from seqtool.lm.neural.cells import State as CellState
from seqtool.lm.neural.config import ModelConfig
from seqtool.lm.neural.maxent import AfterContexts, MaxentSoftmax
from seqtool.lm.neural.output import OUTPUT_LAYERS, OutputLayer, Surroundings


def draw_mask(like: Tensor, shape: tuple[int, ...], share: float) -> Tensor:
    """Return a mask of zeros (`share` of it) and 1 / (1 - share): its mean is 1."""
    return (
        torch.empty(shape, dtype=like.dtype, device=like.device)
        .bernoulli_(1.0 - share)
        .div_(1.0 - share)
    )


def drop_units(inputs_TBH: Tensor, share: float, *, variational: bool) -> Tensor:
    """Drop units: for each token anew (plain), or the same over the window (variational)."""
    if share == 0.0:
        return inputs_TBH
    if not variational:
        return functional.dropout(inputs_TBH, share)
    return inputs_TBH * draw_mask(inputs_TBH, (1, *inputs_TBH.shape[1:]), share)


def activation_penalties(read_TBH: Tensor, last_TBH: Tensor, config: ModelConfig) -> Tensor:
    """Return what is added to the loss for large and for changing activations, in nats.

    AR is alpha times the mean square of what the output layer reads, and TAR is beta times the mean
    square of h(t + 1) - h(t) within the window (Merity, McCann & Socher 2017).

    Args:
        read_TBH: the last layer's output after dropout.
        last_TBH: the same before dropout.
        config: names alpha and beta.
    """
    penalty = read_TBH.new_zeros((), dtype=torch.float32)
    if config.activation_penalty:
        penalty = penalty + config.activation_penalty * read_TBH.float().square().mean()
    if config.temporal_penalty and len(last_TBH) > 1:
        change_SBH = last_TBH[1:].float() - last_TBH[:-1].float()
        penalty = penalty + config.temporal_penalty * change_SBH.square().mean()
    return penalty


def embedding_size(config: ModelConfig, vocabulary_size: int) -> int:
    """Return E: as given, else H, or V if that is smaller (Zilly et al.'s character models)."""
    if config.embedding_size is not None:
        return config.embedding_size
    return config.output_size if config.tied else min(config.hidden_size, vocabulary_size)


class Highway(nn.Module):
    """Joins a layer's output f(x) to its input: t * f(x) + (1 - t) * x (Srivastava et al. 2015)."""

    def __init__(self, size: int, config: ModelConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(size, size)
        self._bias = config.transform_bias

    def forward(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """Return the gated sum of two (T, B, H)."""
        return torch.lerp(inputs, outputs, torch.sigmoid(self.gate(inputs)))

    def initialise_biases(self) -> None:
        """Start by carrying the input, as the transform bias says."""
        nn.init.constant_(self.gate.bias, self._bias)


class NeuralNetwork(nn.Module):
    """Embedding, stacked cells and softmax.

    A layer whose input is not as wide as its output (the first, when E is not H) is joined plainly
    whatever the connection. Dense layers read the embedding and the outputs of all layers below;
    the softmax reads the last.

    Args:
        config: settings of the network.
        vocabulary_size: V.
        sparse_embedding: the embedding's gradient is sparse (for SparseAdam), and that of an output
            layer that is trained on samples.
        counts: of the symbols in the training text [V], for output layers that need them.

    Attributes:
        start_S: the state of all layers that a text begins with, (S,): zero until training measures
            the mean state between sentences.
    """

    start_S: Tensor

    def __init__(
        self,
        config: ModelConfig,
        vocabulary_size: int,
        *,
        sparse_embedding: bool = False,
        counts: Longs | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self._dropout_strength = 1.0
        width = embedding_size(config, vocabulary_size)
        # on this device there are shapes without numbers, and to draw these takes a second
        is_real = torch.get_default_device().type != "meta"
        self.embedding = nn.Embedding(
            vocabulary_size,
            width,
            sparse=sparse_embedding,
            _weight=None if is_real else torch.empty(vocabulary_size, width),
        )
        self.cells = nn.ModuleList()
        self.highways = nn.ModuleDict()
        for layer in range(config.layers):
            cell = CELLS[config.cell](width, config.units(layer), config)
            self.cells.append(cell)
            if config.connection == "highway" and width == cell.output_size:
                self.highways[str(layer)] = Highway(width, config)
            dense = config.connection == "dense"
            width = width + cell.output_size if dense else cell.output_size
        self.softmax = OUTPUT_LAYERS[config.output.layer](
            config.output,
            Surroundings(
                config.output_size,
                vocabulary_size,
                self.embedding.weight if config.tied else None,
                counts,
                sparse_embedding,
            ),
        )
        self.register_buffer("start_S", self.flat_state(self.zero_state(1))[0])
        if is_real:
            self.initialise()

    @torch.no_grad()
    def initialise(self) -> None:
        """Draw all weights as the configuration says."""
        config = self.config
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -config.init_range, config.init_range)
        if config.init == "xavier":
            for matrix in self._matrices():
                nn.init.xavier_uniform_(matrix)
        if config.init == "units":
            for cell in self._cells():
                bound = cell.hidden_size**-0.5
                for parameter in cell.parameters():
                    nn.init.uniform_(parameter, -bound, bound)
        self.softmax.initialise_biases()
        for cell in self._cells():
            cell.initialise_biases(config)
            for block in cell.recurrent_blocks():
                if config.recurrent_init == "identity":
                    if config.recurrent_init_noise:
                        nn.init.normal_(block, std=config.recurrent_init_noise)
                        block.fill_diagonal_(1.0)
                    else:
                        nn.init.eye_(block)
                elif config.recurrent_init == "orthogonal":
                    nn.init.orthogonal_(block)
        for highway in self._joints():
            highway.initialise_biases()

    def _matrices(self) -> Iterator[Tensor]:
        """Yield every linear map but the embedding: gates that are stored as one stand alone."""
        for cell in self._cells():
            yield from cell.input_blocks()
            yield from cell.recurrent_blocks()
            yield from cell.output_blocks()
        for highway in self._joints():
            yield highway.gate.weight
        yield from self.softmax.matrices()

    def _joints(self) -> Sequence[Highway]:
        return [joint for joint in self.highways.values() if isinstance(joint, Highway)]

    def _cells(self) -> Sequence[Cell]:
        return [cell for cell in self.cells if isinstance(cell, Cell)]

    def set_dropout(self, done: float) -> None:
        """Let dropout be as the configuration has it where a share of the training is done."""
        rise = self.config.dropout_rise
        self._dropout_strength = 1.0 if done >= rise else 0.5 + 0.5 * done / rise
        for cell in self._cells():
            cell.dropout_weights = self._share(self.config.dropout_weights)

    def _share(self, share: float) -> float:
        """Return what share is dropped, of what is set."""
        return share * self._dropout_strength

    @property
    def is_bounded(self) -> bool:
        """Whether a state stays finite; nothing shrinks where the recurrent weights are one."""
        return self.config.recurrent_init != "identity"

    def initial_state(self, batch: int) -> list[CellState]:
        """Return the state that a text begins with: `start_S`, and no last words."""
        return self.state_from(self.start_S.expand(batch, -1))

    def state_from(self, flat_BS: Tensor) -> list[CellState]:
        """Return the state that `flat_state` gives these vectors of, and no last words."""
        state = self.zero_state(len(flat_BS))
        sizes = [part.shape[1:].numel() for part in self._parts(state)]
        parts = iter(torch.split(flat_BS, sizes, dim=1))
        for layer, zeros in enumerate(state[: self.config.layers]):
            state[layer] = tuple(part + next(parts).reshape(part.shape) for part in zeros)
        return state

    def zero_state(self, batch: int) -> list[CellState]:
        """Return the zero state of every layer, and the last words if the softmax reads them."""
        state = [cell.initial_state(batch) for cell in self._cells()]
        if isinstance(self.softmax, MaxentSoftmax):
            state.append((self.softmax.direct.initial_history(batch),))
        return state

    def flat_state(self, state: Sequence[CellState]) -> Tensor:
        """Return the states of all layers as vectors, (B, S)."""
        return torch.cat([part.flatten(1) for part in self._parts(state)], dim=1)

    def _parts(self, state: Sequence[CellState]) -> list[Tensor]:
        """Return the parts of the states of all layers, but not the last words."""
        return [part for layer in state[: self.config.layers] for part in layer]

    def output(self, ids_TB: Tensor, state: Sequence[CellState]) -> OutputLayer | AfterContexts:
        """Return the output layer for what `forward` gives for the same ids and state."""
        if not isinstance(self.softmax, MaxentSoftmax):
            return self.softmax
        return self.softmax.after(self.softmax.direct.context_hashes(ids_TB, state[-1][0]))

    @property
    def _variational(self) -> bool:
        return self.config.dropout == "variational"

    def embed(self, ids_TB: Tensor) -> Tensor:
        """Return the embeddings (T, B, E); in training, some word types are dropped whole."""
        # to the gradient that a tied weight has of the softmax, rows are added faster than a
        # second of its size
        embedded_TBE = functional.embedding(
            ids_TB, self.embedding.weight, sparse=self.config.tied or self.embedding.sparse
        )
        share = self._share(self.config.dropout_words)
        if not self.training or share == 0.0:
            return embedded_TBE
        num_types = self.embedding.num_embeddings
        if self.config.dropout_words_per == "stream":
            kept_VB = draw_mask(embedded_TBE, (num_types, ids_TB.shape[1]), share)
            return embedded_TBE * kept_VB.gather(0, ids_TB)[..., None]
        kept_V = draw_mask(embedded_TBE, (num_types,), share)
        return embedded_TBE * kept_V[ids_TB][..., None]

    def forward(self, ids_TB: Tensor, state: Sequence[CellState]) -> tuple[Tensor, list[CellState]]:
        """Return what the softmax reads, (T, B, H), and the state of every layer after it."""
        last_TBH, states = self.run_layers(ids_TB, state)
        return self.drop_output(last_TBH), states

    def drop_output(self, last_TBH: Tensor) -> Tensor:
        """Return what the softmax reads: the last layer's output, in training with dropout."""
        if not self.training:
            return last_TBH
        share = self._share(self.config.dropout_output)
        return drop_units(last_TBH, share, variational=self._variational)

    def run_layers(
        self, ids_TB: Tensor, state: Sequence[CellState], num_layers: int | None = None
    ) -> tuple[Tensor, list[CellState]]:
        """Return the last layer's output, (T, B, H), and the state of every layer after it.

        Layers stay in float32 whatever the precision, but on a CPU those with `Cell.bf16_on_cpu`.
        On a GPU cuDNN's loops would be in float16 under autocast, which gradients do not fit in.
        With `num_layers`, only so many are read, and the last of these counts as the last one.
        """
        num_layers = self.config.layers if num_layers is None else num_layers
        device = ids_TB.device.type
        if not torch.is_autocast_enabled(device):
            return self._run_layers(ids_TB, state, num_layers, bf16=False)
        with torch.autocast(device, enabled=False):
            return self._run_layers(ids_TB, state, num_layers, bf16=device == "cpu")

    def float32_layers(self, device: str) -> str:
        """Return what the layers are called where they stay in float32 in bf16, else nothing."""
        is_bf16 = device == "cpu" and all(cell.bf16_on_cpu for cell in self._cells())
        return "" if is_bf16 else f"{self.config.cell} layers"

    def _join(self, layer: int, below: Tensor, outputs: Tensor, *, is_last: bool) -> Tensor:
        """Return what the next layer reads, from what a layer read and gave, (..., E)."""
        if self.config.connection == "dense" and not is_last:
            return torch.cat([below, outputs], dim=-1)
        if str(layer) in self.highways:
            joined: Tensor = self.highways[str(layer)](below, outputs)
            return joined
        if self.config.connection == "residual" and below.shape == outputs.shape:
            return below + outputs
        return outputs

    def steps(
        self, embedded_BE: Tensor, state: Sequence[CellState]
    ) -> Iterator[tuple[Cell, Tensor, CellState, Tensor]]:
        """Make one step by plain operations, which can be differentiated any number of times.

        Yields of each layer its cell, its input (B, I), its state after the step, and what the next
        layer reads, or the output layer (B, H). There is no dropout.
        """
        below = embedded_BE
        for layer, cell in enumerate(self._cells()):
            after = cell.step(below, state[layer])
            is_last = layer + 1 == self.config.layers
            joined = self._join(layer, below, after[0], is_last=is_last)
            yield cell, below, after, joined
            below = joined

    def _masks(
        self, cell: Cell, inputs_TBE: Tensor, like: Tensor
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return the masks of a cell's state and of what is added to its memory."""
        config, (num_steps, batch, _) = self.config, inputs_TBE.shape
        mask_BP = update_SBH = None
        if self.training and config.dropout_state:
            share = self._share(config.dropout_state)
            mask_BP = draw_mask(like, (batch, cell.output_size), share)
        if self.training and config.dropout_update:
            # anew for each addition to the memory, or the same for all
            num = num_steps * cell.num_updates
            shape = 1 if self._variational else num, batch, cell.hidden_size
            update_SBH = draw_mask(like, shape, self._share(config.dropout_update))
            update_SBH = update_SBH.expand(num, -1, -1)
        return mask_BP, update_SBH

    def _run_layers(
        self, ids_TB: Tensor, state: Sequence[CellState], num_layers: int, *, bf16: bool
    ) -> tuple[Tensor, list[CellState]]:
        config = self.config
        below = self.embed(ids_TB)
        states: list[CellState] = []
        for layer, cell in enumerate(self._cells()[:num_layers]):
            share = self._share(config.dropout_input if layer == 0 else config.dropout_between)
            inputs_TBE = below
            if self.training:
                inputs_TBE = drop_units(below, share, variational=self._variational)
            masks = self._masks(cell, inputs_TBE, next(cell.parameters()))
            if bf16 and cell.bf16_on_cpu:
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    outputs_TBH, after = cell(inputs_TBE, state[layer], *masks)
            else:
                outputs_TBH, after = cell(inputs_TBE, state[layer], *masks)
            states.append(after)
            below = self._join(layer, below, outputs_TBH, is_last=layer + 1 == num_layers)
        if isinstance(self.softmax, MaxentSoftmax):
            states.append((self.softmax.direct.history_after(ids_TB, state[-1][0]),))
        return below, states


def detach(state: Sequence[CellState]) -> list[CellState]:
    """Cut the history of a state: truncated back-propagation stops here.

    Copies, aligned as those that a resumed run reads from disk: the bits of a product may depend
    on it.
    """
    return [tuple(part.detach().clone() for part in layer) for layer in state]
