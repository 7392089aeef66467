"""The families of parsers: their decoders, their arrays, and the settings that count for them.

A family is imported where one of its parsers is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqtool.core.arrays import Floats
from seqtool.core.checkpoint import Header
from seqtool.core.config import from_dict, unmet_condition
from seqtool.core.errors import counted
from seqtool.parsing.parser.calibration import temperature_of
from seqtool.parsing.parser.config import PREDICTED_TAGS, ModelConfig, ParserConfig
from seqtool.parsing.parser.decoder import Decoder
from seqtool.parsing.parser.labels import Labels


def make_decoder(config: ParserConfig, labels: Labels, weights: Mapping[str, Floats]) -> Decoder:
    """Return the decoder of a parser of such settings, labels and weights."""
    model, is_linear = config.model, config.model.classifier == "linear"
    if model.decoder == "graph" and is_linear:
        from seqtool.parsing.sparse.arc_decoder import LinearGraphDecoder

        return LinearGraphDecoder(model, labels, weights)
    if model.decoder == "graph":
        from seqtool.parsing.parser.graph.decoder import GraphDecoder

        return GraphDecoder(config, labels, weights)
    if is_linear:
        from seqtool.parsing.sparse.transitions import LinearDecoder

        return LinearDecoder(model, labels, weights)
    from seqtool.parsing.parser.transition.decoder import TransitionDecoder

    # global training makes scores that need no temperature
    temperature = temperature_of(config) if config.learning.loss == "local" else 1.0
    return TransitionDecoder(model, labels, weights, temperature=temperature)


def parser_shapes(
    config: ModelConfig, num_lexical: int, num_tags: int, labels: Labels, num_characters: int
) -> dict[str, tuple[int, ...]]:
    """Return the shape of every array of a parser, by its name in the network of its family.

    `num_lexical`, `num_tags` and `num_characters` are numbers of symbols, the last one 0 where no
    characters are read.
    """
    is_linear = config.classifier == "linear"
    if config.decoder == "graph" and is_linear:
        from seqtool.parsing.sparse import arcs

        return arcs.weight_shapes(config, labels)
    if is_linear:
        from seqtool.parsing.sparse.transitions import WEIGHTS, num_weights

        return {WEIGHTS: (num_weights(config, labels),)}
    if config.decoder == "graph":
        from seqtool.parsing.parser.graph.scores import weight_shapes
    else:
        from seqtool.parsing.parser.transition.classifier import weight_shapes
    return weight_shapes(config, num_lexical, num_tags, labels, num_characters)


def settings_read(header: Header) -> dict[str, Any]:
    """Return the settings of a parser that count, by section."""
    config = from_dict(ParserConfig, header.config)
    # the options that a parser was trained with, by what its header then says of its data
    options = {"teachers": "--distil", PREDICTED_TAGS: "--raw"}
    facts = {option for name, option in options.items() if name in header.data}
    return {
        section: {
            name: value
            for name, value in values.items()
            if unmet_condition(config, f"{section}.{name}", facts) is None
        }
        for section, values in header.config.items()
    }


def describe_family(header: Header) -> str:
    """Return what finds the trees of a parser, and its size, in a few words."""
    model = header.config["model"]
    parameters = counted(header.num_parameters, "parameter")
    is_linear = model["classifier"] == "linear"
    if model["decoder"] == "graph":
        if is_linear:
            return f"Graph-based ({model['trees']} trees), linear scores of arcs, {parameters}"
        units = f"{model['arc_size']} units for heads, {model['relation_size']} for labels"
        return f"Graph-based (biaffine scores of arcs), a bidirectional LSTM, {units}, {parameters}"
    system = f"Transition-based ({model['system']})"
    if is_linear:
        return f"{system}, linear: {len(model['templates'])} templates of features, {parameters}"
    encoder = "a bidirectional LSTM, " if model["encoder"] == "bilstm" else ""
    return f"{system}, {encoder}{model['hidden_size']} hidden units, {parameters}"
