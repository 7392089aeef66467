"""The families of parsers: what finds their trees, and which arrays they have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqtool.core.arrays import Floats
from seqtool.core.checkpoint import Header
from seqtool.core.config import from_dict, unmet_condition
from seqtool.core.errors import counted
from seqtool.parsing.parser import temperature
from seqtool.parsing.parser.config import ModelConfig, ParserConfig
from seqtool.parsing.parser.data import PREDICTED
from seqtool.parsing.parser.decoder import Decoder
from seqtool.parsing.parser.graph.decoder import GraphDecoder
from seqtool.parsing.parser.graph.scores import weight_shapes as graph_shapes
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.transition.classifier import weight_shapes as transition_shapes
from seqtool.parsing.parser.transition.decoder import TransitionDecoder
from seqtool.parsing.sparse import arcs as arc_scorer
from seqtool.parsing.sparse import transitions as linear_classifier
from seqtool.parsing.sparse.arc_decoder import LinearGraphDecoder
from seqtool.parsing.sparse.transitions import LinearDecoder

# the options that a parser was trained with -> what its header then tells of its data
TOLD_BY = {"--distil": "teachers", "--raw": PREDICTED}


def settings_read(header: Header) -> dict[str, Any]:
    """Return the settings of a parser that count, by section."""
    config = from_dict(ParserConfig, header.config)
    facts = {option for option, name in TOLD_BY.items() if name in header.data}
    return {
        section: {
            name: value
            for name, value in values.items()
            if unmet_condition(config, f"{section}.{name}", facts) is None
        }
        for section, values in header.config.items()
    }


def make_decoder(config: ParserConfig, labels: Labels, weights: Mapping[str, Floats]) -> Decoder:
    """Return what finds the trees of a parser of such settings, labels and weights."""
    if (config.model.decoder, config.model.classifier) == ("graph", "linear"):
        return LinearGraphDecoder(config.model, labels, weights)
    if config.model.decoder == "graph":
        return GraphDecoder(config, labels, weights)
    if config.model.classifier == "linear":
        return LinearDecoder(config.model, labels, weights)
    return TransitionDecoder(
        config.model,
        labels,
        weights,
        # what global training made of scores needs none
        temperature=temperature.of(config) if config.learning.loss == "local" else 1.0,
    )


def weight_shapes(
    config: ModelConfig,
    num_lexical: int,
    num_tags: int,
    labels: Labels,
    num_characters: int = 0,
) -> dict[str, tuple[int, ...]]:
    """Return the shape of every array of a parser, by its name in the network of its family.

    `num_lexical`, `num_tags` and `num_characters` are numbers of symbols, the last one 0 where no
    characters are read.
    """
    if (config.decoder, config.classifier) == ("graph", "linear"):
        return arc_scorer.weight_shapes(config, labels)
    if config.classifier == "linear":
        size = linear_classifier.num_weights(config, labels)
        return {linear_classifier.WEIGHTS: (size,)}
    of_family = graph_shapes if config.decoder == "graph" else transition_shapes
    return of_family(config, num_lexical, num_tags, labels, num_characters)


def describe(header: Header) -> str:
    """Return what finds the trees of a parser, and its size, in a few words for its card."""
    model = header.config["model"]
    parameters = counted(header.num_parameters, "parameter")
    family = model.get("decoder"), model.get("classifier")
    if family == ("graph", "linear"):
        return f"Graph-based ({model['trees']} trees), linear scores of arcs, {parameters}"
    if family == ("graph", "neural"):
        units = f"{model['arc_size']} units for heads, {model['relation_size']} for labels"
        return f"Graph-based (biaffine scores of arcs), a bidirectional LSTM, {units}, {parameters}"
    system = f"Transition-based ({model['system']})"
    if family == ("transition", "linear"):
        return f"{system}, linear: {len(model['templates'])} templates of features, {parameters}"
    encoder = "a bidirectional LSTM, " if model["encoder"] == "bilstm" else ""
    return f"{system}, {encoder}{model['hidden_size']} hidden units, {parameters}"
