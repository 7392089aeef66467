"""Settings of a neural language model; recipes are settings by name, a YAML file each.

What the lecture names, and the setting that chooses it (of `model`, `model.output`, `training`):

    RNN, tanh or logistic             cell=rnn  activation=tanh, logistic
    RNN of rectifiers                 cell=rnn  activation=relu, leaky-relu, parametric-relu
    RNN that starts from the identity cell=rnn  activation=relu  recurrent_init=identity
    LSTM; GRU                         cell=lstm; cell=gru
    recurrent highway network         cell=rhn  depth=5  carry=coupled, separate
    fixed window                      cell=window  window=4
    projection                        cell=lstm  projection_size=...
    stacks                            layers=2  connection=plain, residual, dense, highway
    RNN + MaxEnt                      output.layer=maxent  direct_order=3
    NCE; BlackOut                     output.layer=nce; output.layer=blackout
    adaptive softmax                  output.layer=adaptive  cutoffs=...
    rates halved where it stalls      schedule=plateau  schedule_factor=2
    rates halved by epochs            schedule=step  schedule_factor=2
    rates by formula                  schedule=divide; schedule=cosine
    cyclic rates                      schedule=cyclic; schedule=one-cycle
    SGD, Adagrad, RMSprop, Adam       optimiser=sgd, adagrad, rmsprop, adam

Sparse non-negative matrices are in `seqtool.lm.snm`.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from seqtool.core.config import (
    DEEPEST,
    WIDEST,
    Config,
    apply_overrides,
    from_dict,
    load_yaml,
    named_settings,
    refuse_unread,
    set_value,
    setting,
    to_dict,
)
from seqtool.core.errors import ConfigError, did_you_mean
from seqtool.training.config import TrainingConfig
from seqtool.training.run import read_settings

LayerName = Literal["full", "adaptive", "nce", "blackout", "maxent"]


@dataclass(frozen=True)
class OutputConfig(Config):
    """How hidden states become probabilities of the next token."""

    layer: LayerName = setting(
        "full",
        "full, adaptive (softmax in clusters by frequency), nce or blackout (trained on samples), "
        "or maxent (full, with direct connections from n-grams)",
    )
    cutoffs: tuple[int, ...] | None = setting(
        None,
        "adaptive: where clusters begin; default: a sixteenth and a quarter of the vocabulary",
        when="layer is adaptive",
    )
    div_value: float | None = setting(
        None,
        "adaptive: how many times narrower each cluster is than the one before; default: 4, or 1 "
        "if tied",
        minimum=1,
        maximum=1000,
        when="layer is adaptive",
    )
    noise_samples: int = setting(
        500,
        "nce and blackout: samples per step, which all tokens of the batch share",
        minimum=1,
        maximum=WIDEST,
        when="layer is nce/blackout",
    )
    noise_power: float | None = setting(
        None,
        "nce and blackout: samples come from the counts to this power; default: 1, or 0.4 for "
        "blackout",
        minimum=0,
        maximum=1,
        when="layer is nce/blackout",
    )
    log_normaliser: float | None = setting(
        None, "nce: the constant ln Z; default: ln of the vocabulary size", when="layer is nce"
    )
    direct_order: int = setting(
        3, "maxent: longest n-grams", minimum=2, maximum=DEEPEST, when="layer is maxent"
    )
    direct_size: int = setting(
        1 << 22,
        "maxent: n-grams that the hash table has room for",
        minimum=1,
        when="layer is maxent",
    )
    direct_rate: float = setting(
        0.3,
        "maxent: learning rate of the n-grams (AdaGrad), before the schedule acts",
        above=0,
        when="layer is maxent",
    )

    def check(self) -> None:
        """Refuse settings that contradict each other."""
        if self.cutoffs is None:
            return
        borders = (1, *self.cutoffs)  # the short list holds <unk> and </s> at least
        if not self.cutoffs or not all(low < high for low, high in itertools.pairwise(borders)):
            raise ConfigError(
                f"cutoffs is {list(self.cutoffs)}, but must be numbers from 2 up, each larger than "
                "the one before",
                hint="such as [2000, 10000], or leave it out",
            )


CellName = Literal["rnn", "lstm", "gru", "rhn", "window"]

_IN_STREAMS = "--syntactic is not given"
_DROPS = (
    "dropout_words > 0 or dropout_input > 0 or dropout_hidden > 0 or dropout_state > 0 or "
    "dropout_update > 0 or dropout_weights > 0 or dropout_output > 0"
)


@dataclass(frozen=True)
class ModelConfig(Config):
    """What the network is."""

    cell: CellName = setting("lstm", "rnn, lstm, gru, rhn or window (Bengio's fixed window)")
    hidden_size: int = setting(200, "units per layer", minimum=1, maximum=WIDEST)
    embedding_size: int | None = setting(
        None,
        "embedding width; default: hidden_size, or the vocabulary size if that is smaller",
        minimum=1,
        maximum=WIDEST,
    )
    layers: int = setting(1, "stacked layers", minimum=1, maximum=DEEPEST)
    last_size: int | None = setting(
        None,
        "units of the last layer; default: hidden_size",
        minimum=1,
        maximum=WIDEST,
        when="layers > 1",
    )
    projection_size: int | None = setting(
        None,
        "lstm: width that each layer's output is projected to (Sak et al. 2014)",
        minimum=1,
        maximum=WIDEST,
        when="cell is lstm",
    )
    connection: Literal["plain", "residual", "dense", "highway"] = setting(
        "plain",
        "how a layer is joined to the one below: plain, residual, dense or highway",
        when="layers > 1 or connection is not dense",
    )
    tied: bool = setting(False, "output weights are the embedding's (Press & Wolf 2017)")
    output: OutputConfig = setting(OutputConfig, "the output layer")
    depth: int = setting(5, "rhn: recurrence depth", minimum=1, maximum=DEEPEST, when="cell is rhn")
    carry: Literal["coupled", "separate"] = setting(
        "coupled",
        "rhn: carry gate is 1 - transform gate, or has weights of its own",
        when="cell is rhn",
    )
    transform_bias: float = setting(
        -2.0,
        "rhn and highway: initial bias of the transform gate",
        when="cell is rhn or connection is highway",
    )
    activation: Literal["tanh", "relu", "leaky-relu", "parametric-relu", "logistic"] = setting(
        "tanh",
        "rnn: activation: tanh, relu, leaky-relu, parametric-relu or logistic",
        when="cell is rnn",
    )
    activation_slope: float | None = setting(
        None,
        "rnn: slope below zero of leaky-relu (default 0.01), or where those that parametric-relu "
        "learns start from (default 0.25)",
        when="cell is rnn and activation is leaky-relu/parametric-relu",
    )
    window: int = setting(
        4, "window: tokens of context", minimum=1, maximum=DEEPEST, when="cell is window"
    )
    forget_bias: float = setting(0.0, "lstm: initial bias of the forget gate", when="cell is lstm")
    init: Literal["uniform", "xavier", "units"] = setting(
        "uniform", "initialisation of the weights; units: uniform, a cell's in +- 1 / sqrt(units)"
    )
    init_range: float = setting(0.1, "uniform: weights are drawn from +- this", above=0)
    recurrent_init: Literal["same", "orthogonal", "identity"] = setting(
        "same",
        "initialisation of the recurrent weights; identity is for relu (Le et al. 2015)",
        when="cell is not window",
    )
    recurrent_init_noise: float = setting(
        0.0,
        "identity: standard deviation of random values off the diagonal",
        minimum=0,
        when="cell is not window and recurrent_init is identity",
    )
    dropout: Literal["plain", "variational"] = setting(
        "plain",
        "variational: one mask per BPTT window, shared over time (Gal & Ghahramani 2016)",
        when=_DROPS,
    )
    dropout_words: float = setting(
        0.0, "share of word types whose embedding is dropped", minimum=0, below=1
    )
    dropout_words_per: Literal["batch", "stream"] = setting(
        "batch",
        "types are dropped in all streams (Merity et al. 2018), or in each anew (Gal)",
        when="dropout_words > 0",
    )
    dropout_input: float = setting(0.0, "dropout on what enters a layer", minimum=0, below=1)
    dropout_hidden: float | None = setting(
        None,
        "dropout between layers; default: dropout_input",
        minimum=0,
        below=1,
        when="layers > 1",
    )
    dropout_state: float = setting(
        0.0,
        "dropout on the recurrent state, always one mask per window",
        minimum=0,
        below=1,
        when="cell is not window",
    )
    dropout_update: float = setting(
        0.0,
        "lstm, gru, rhn: dropout on what is added to the memory",
        minimum=0,
        below=1,
        when="cell is lstm/gru/rhn",
    )
    dropout_weights: float = setting(
        0.0,
        "share of recurrent weights dropped, one mask per window",
        minimum=0,
        below=1,
        when="cell is not window",
    )
    dropout_output: float = setting(0.0, "dropout before the output layer", minimum=0, below=1)
    dropout_rise: float = setting(
        0.0,
        "share of the training over which all dropout rises to what is set, from half of it; 0: it "
        "is the same throughout",
        minimum=0,
        maximum=1,
        when=_DROPS,
    )
    activation_penalty: float = setting(
        0.0,
        "alpha x mean square of what the output layer reads (AR)",
        minimum=0,
        when=_IN_STREAMS,
    )
    temporal_penalty: float = setting(
        0.0,
        "beta x mean square of the last layer's change from step to step (TAR)",
        minimum=0,
        when=_IN_STREAMS,
    )

    def units(self, layer: int) -> int:
        """Return the units of a layer, from 0."""
        is_last = layer + 1 == self.layers
        return self.last_size if is_last and self.last_size is not None else self.hidden_size

    @property
    def dropout_between(self) -> float:
        """Return the dropout between layers."""
        return self.dropout_input if self.dropout_hidden is None else self.dropout_hidden

    @property
    def output_size(self) -> int:
        """Return the width of what the output layer reads."""
        return self.projection_size or self.units(self.layers - 1)

    @property
    def slope_below_zero(self) -> float:
        """Return the slope that leaky-relu has below zero, or that parametric-relu starts from."""
        default = 0.25 if self.activation == "parametric-relu" else 0.01
        return default if self.activation_slope is None else self.activation_slope

    def check(self) -> None:
        """Refuse combinations that no model can have."""
        # whoever sets them: the network would have them, or fail
        sizes, dropout = ("last_size", "projection_size"), ("dropout_state", "dropout_update")
        for name in (*sizes, *dropout):
            refuse_unread([(self, name)])
        self._check_sizes()
        if (
            self.tied
            and self.output.layer == "adaptive"
            and self.output.div_value not in (None, 1.0)
        ):
            raise ConfigError(
                f"tied is true, but div_value is {self.output.div_value:g}: tied clusters are all "
                "as wide as the embedding",
                hint="leave div_value out, or set tied to false",
            )

    def _check_sizes(self) -> None:
        if self.projection_size is not None:
            units, name = min(
                (self.hidden_size, "hidden_size"), (self.last_size or self.hidden_size, "last_size")
            )
            if self.projection_size >= units:
                raise ConfigError(
                    f"projection_size is {self.projection_size}, but must be less than {name}, "
                    f"which is {units}",
                    hint="leave projection_size out, or make it smaller",
                )
        if self.tied and self.embedding_size not in (None, self.output_size):
            name = "hidden_size" if self.last_size is None else "last_size"
            name = "projection_size" if self.projection_size is not None else name
            raise ConfigError(
                f"tied is true, but embedding_size is {self.embedding_size} and {name} is "
                f"{self.output_size}",
                hint="leave embedding_size out, set last_size to it, or set tied to false",
            )


@dataclass(frozen=True)
class DataConfig(Config):
    """How the text is read and cut into batches."""

    unit: Literal["word", "char", "byte", "bpe", "unigram"] = setting(
        "word", "tokens of a raw text; a prepared corpus has its own", when=_IN_STREAMS
    )
    vocab_size: int | None = setting(None, "largest vocabulary of a raw text", minimum=3)
    min_count: int = setting(1, "drop rarer symbols of a raw text", minimum=1)
    lowercase: bool = setting(False, "lower-case a raw text")
    batch_size: int = setting(
        20, "parallel streams; with --syntactic, sentences of mean length", minimum=1
    )
    bptt: int = setting(
        35, "tokens per window of truncated back-propagation", minimum=1, when=_IN_STREAMS
    )
    random_bptt: bool = setting(
        False,
        "draw each window's length around bptt, or its half (Merity et al. 2018)",
        when=_IN_STREAMS,
    )
    eval_batch_size: int = setting(
        10, "parallel streams while validating during training", minimum=1, when=_IN_STREAMS
    )

    def check(self) -> None:
        """Refuse windows too short to be drawn at random."""
        if self.random_bptt and self.bptt < 10:
            raise ConfigError(
                f"random_bptt is true, but bptt is {self.bptt}",
                hint="set bptt to 10 or more, or random_bptt to false",
            )


@dataclass(frozen=True)
class NeuralLMConfig(Config):
    """All settings of `train-lm`."""

    description: str = setting("", "what the recipe is and what to expect of it")
    model: ModelConfig = setting(ModelConfig, "the network")
    data: DataConfig = setting(DataConfig, "the text")
    training: TrainingConfig = setting(TrainingConfig, "the training loop")

    def check(self) -> None:
        """Refuse combinations across sections."""
        if self.model.tied and self.training.embedding_optimiser == "sparse-adam":
            raise ConfigError(
                "sparse-adam needs an embedding of its own, but tied is true",
                hint="set tied to false, or embedding_optimiser to same",
            )


@dataclass(frozen=True)
class DynamicConfig(Config):
    """How fast a network learns from the text that it is measured on."""

    rate: float = setting(1e-4, "learning rate of each step", above=0)
    decay: float = setting(0.008, "how fast the weights go back to the trained ones", minimum=0)
    segment: int = setting(20, "tokens between two steps", minimum=1)
    epsilon: float = setting(2e-5, "is added to the size of the gradients", above=0)
    statistics_tokens: int = setting(
        200_000,
        "tokens of the training text that the size of the gradients is taken from",
        minimum=1,
    )


def recipe_names() -> list[str]:
    """Return the names of the shipped recipes."""
    folder = resources.files("seqtool") / "recipes"
    return sorted(
        item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml")
    )


def load_recipe(name: str) -> dict[str, Any]:
    """Return the settings of a recipe by name, or of a YAML file by path.

    Raises:
        ConfigError: there is none of that name; the hint lists near ones.
    """
    return load_yaml(recipe_path(name))


def recipe_path(name: str) -> Path:
    """Return the file of a recipe by name, or a YAML file by path; errors as of `load_recipe`."""
    if name in recipe_names():
        return Path(str(resources.files("seqtool") / "recipes" / f"{name}.yaml"))
    if Path(name).suffix in (".yaml", ".yml") or Path(name).exists():
        return Path(name)
    raise ConfigError(f"no recipe is called {name!r}", hint=did_you_mean(name, recipe_names()))


def resolve(
    recipe: str | None,
    values: Mapping[str, Any],
    overrides: Iterable[str],
    *,
    run: Path | None = None,
    facts: Collection[str] | None = None,
) -> NeuralLMConfig:
    """Combine a recipe (or the settings of a run that is resumed), options and overrides.

    Args:
        recipe: a recipe's name or a YAML file; None for the defaults.
        values: dotted setting -> value, from the options of the command.
        overrides: `name=value` texts, which win.
        run: the directory of the run to continue, whose settings are the base.
        facts: not None if a setting of `values`, `overrides` or a file that does not count is to
            be refused; see `seqtool.core.config.unmet_condition`.

    Raises:
        ConfigError: an unknown recipe or setting, or an impossible value.
    """
    base: dict[str, Any] = {}
    if run is not None:
        base = to_dict(read_settings(run, NeuralLMConfig))
    if recipe is not None:
        base = load_recipe(recipe)
    is_file = recipe is not None and recipe not in recipe_names()
    named = dict.fromkeys(named_settings(NeuralLMConfig, base), recipe) if is_file else {}
    names = [set_value(NeuralLMConfig, base, name, value) for name, value in values.items()]
    names += apply_overrides(NeuralLMConfig, base, overrides)
    named |= dict.fromkeys(names)
    try:
        config = from_dict(NeuralLMConfig, base)
    except ConfigError:
        if recipe is not None:
            _check_recipe(recipe)
        raise
    if facts is not None:
        for name, path in named.items():
            refuse_unread([(config, name)], facts, path=path)
    return config


def _check_recipe(name: str) -> None:
    """Raise the recipe's own mistake, if it is one, with its path."""
    try:
        from_dict(NeuralLMConfig, load_recipe(name))
    except ConfigError as error:
        raise ConfigError(error.message, hint=error.hint, path=name) from error
