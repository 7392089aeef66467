"""The families of parsers: what finds their trees, and which arrays they have."""

from __future__ import annotations

from collections.abc import Mapping

from seqtool.core.arrays import Floats
from seqtool.core.checkpoint import Header
from seqtool.core.errors import counted
from seqtool.parsing.parser.config import ModelConfig, ParserConfig
from seqtool.parsing.parser.decoder import Decoder
from seqtool.parsing.parser.graph.decoder import GraphDecoder
from seqtool.parsing.parser.graph.scores import weight_shapes as graph_shapes
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.linear.arcs import scorer as arc_scorer
from seqtool.parsing.parser.linear.arcs.decoder import LinearGraphDecoder
from seqtool.parsing.parser.linear.transitions import classifier as linear_classifier
from seqtool.parsing.parser.linear.transitions.decoder import LinearDecoder
from seqtool.parsing.parser.transition.classifier import weight_shapes as transition_shapes
from seqtool.parsing.parser.transition.decoder import TransitionDecoder


def make_decoder(config: ParserConfig, labels: Labels, weights: Mapping[str, Floats]) -> Decoder:
    """Return what finds the trees of a parser of such settings, labels and weights."""
    if (config.model.decoder, config.model.classifier) == ("graph", "linear"):
        return LinearGraphDecoder(config.model, labels, weights)
    if config.model.decoder == "graph":
        return GraphDecoder(config, labels, weights)
    if config.model.classifier == "linear":
        return LinearDecoder(config.model, labels, weights)
    is_global = config.learning.loss == "global"
    return TransitionDecoder(config.model, labels, weights, normalised=not is_global)


def weight_shapes(
    config: ModelConfig, num_lexical: int, num_tags: int, labels: Labels, state_size: int = 0
) -> dict[str, tuple[int, ...]]:
    """Return the shape of every array of a parser, by its name in the network of its family.

    `num_lexical` and `num_tags` are numbers of symbols, `state_size` is the width of a language
    model's states, 0 without one.
    """
    if (config.decoder, config.classifier) == ("graph", "linear"):
        return arc_scorer.weight_shapes(config, labels)
    if config.classifier == "linear":
        size = linear_classifier.num_weights(config, labels)
        return {linear_classifier.WEIGHTS: (size,)}
    of_family = graph_shapes if config.decoder == "graph" else transition_shapes
    return of_family(config, num_lexical, num_tags, labels, state_size)


def describe(header: Header) -> str:
    """Return what finds the trees of a parser, and its size, in a few words for its card."""
    model = header.config["model"]
    parameters = counted(header.num_parameters, "parameter")
    family = model.get("decoder"), model.get("classifier")  # which older models do not name
    if family == ("graph", "linear"):
        parts = " and pairs of arcs" if model.get("order") == 2 else ""
        return f"Graph-based ({model['trees']} trees), linear scores of arcs{parts}, {parameters}"
    if family == ("graph", "neural"):
        units = f"{model['arc_size']} units for heads, {model['relation_size']} for labels"
        return f"Graph-based (biaffine scores of arcs), a bidirectional LSTM, {units}, {parameters}"
    system = f"Transition-based ({model['system']})"
    if family == ("transition", "linear"):
        return f"{system}, linear: {len(model['templates'])} templates of features, {parameters}"
    encoder = "a bidirectional LSTM, " if model["encoder"] == "bilstm" else ""
    return f"{system}, {encoder}{model['hidden_size']} hidden units, {parameters}"
