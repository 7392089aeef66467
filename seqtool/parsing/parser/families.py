"""The families of parsers: what finds their trees, and which arrays they have."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from seqtool.core.arrays import Floats
from seqtool.core.checkpoint import Header
from seqtool.core.config import to_dict
from seqtool.core.errors import ConfigError, counted
from seqtool.parsing.parser import temperature
from seqtool.parsing.parser.config import ModelConfig, ParserConfig, adds_probabilities
from seqtool.parsing.parser.data import PREDICTED
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

_RATES = (
    *("training.learning_rate", "training.schedule", "training.schedule_factor"),
    *("training.schedule_every", "training.schedule_after", "training.schedule_minimum"),
    *("training.schedule_cycle", "training.schedule_warmup", "training.plateau_patience"),
)

# settings that only some parsers read: the words that hold of these, see `settings_read`; what
# stands in several lines is read by the parsers of each
READ_BY: dict[tuple[str, ...], tuple[str, ...]] = {
    ("transition",): ("model.system", "learning.oracle", "learning.batch_size"),
    ("transition", "dynamic"): ("learning.exploration", "learning.explore_after"),
    ("graph",): ("model.trees",),
    ("neural",): (
        *("model.lexical_size", "model.tag_size", "model.type_units"),
        *("learning.min_steps", "learning.dropout_types", "learning.dropout_words"),
        *("model.num_filters", "learning.dropout_fields", "learning.averaging"),
        *("training.optimiser", "training.momentum", "training.beta1", "training.beta2"),
        *("training.weight_decay", "training.average_after", "training.asgd_trigger"),
        *("training.embedding_optimiser", "training.clip_norm", "training.precision"),
        *_RATES,
    ),
    ("neural", "filters"): (
        *("model.character_size", "model.filter_width", "model.joined_characters"),
    ),
    ("linear",): ("model.hash_bits",),
    ("encoder",): (
        *("model.encoder_size", "model.encoder_layers"),
        *("learning.dropout_encoder", "learning.cloze_weight"),
    ),
    ("encoder", "lm"): ("model.lm_size", "learning.dropout_lm"),
    ("transition", "neural"): (
        *("model.slots", "model.label_slots", "model.measures", "model.label_size"),
        *("model.hidden_size", "model.activation", "learning.beam_temperature"),
        *("learning.dropout_hidden", "learning.dropout_embeddings"),
    ),
    ("transition", "encoder"): (
        *("model.context_slots", "model.context_units", "learning.dropout_contexts"),
        "learning.head_weight",
    ),
    ("graph", "encoder", "gold tags"): ("learning.head_weight",),
    ("transition", "linear"): ("model.templates", "learning.linear", "learning.feature_count"),
    ("transition", "linear", "logistic"): _RATES,  # a perceptron has none
    ("graph", "linear"): ("model.order", *_RATES),
    ("graph", "neural"): (
        *("model.arc_size", "model.relation_size", "model.distances"),
        *("model.second_order", "model.second_size", "model.second_steps"),
        *("learning.batch_words", "learning.dropout_arcs"),
    ),
    ("graph", "neural", "local"): ("learning.label_smoothing",),
    ("global",): (
        *("learning.global_epochs", "learning.global_beam", "learning.global_rate"),
        *("learning.global_words", "learning.global_scores"),
    ),
    ("global", "sums"): ("learning.log_sum_weight",),
    ("lifting",): ("learning.mark_lifted",),
    ("teachers",): (
        *("learning.taught_words", "learning.variants"),
        *("learning.variant_words", "learning.variant_subtrees"),
    ),
    ("teachers", "neural"): ("learning.teacher_weight",),
}
# words that hold by what a parser is given to learn: what a header then tells of its data
TOLD_BY = {"teachers": "teachers", "lm": "lm_bytes", "gold tags": PREDICTED}
_SHOWN = {  # the words, as options
    "transition": "--decoder transition",
    "graph": "--decoder graph",
    "neural": "--classifier neural",
    "linear": "--classifier linear",
    "logistic": "--set linear=logistic",
    "dynamic": "--set oracle=dynamic of another system than swap",
    "encoder": "an encoder",
    "lm": "a language model (train-parser --lm)",
    "gold tags": "tags that are predicted (--raw)",
    "lifting": "trees that are built without crossing arcs",
    "local": "--loss local",
    "global": "--loss global",
    "sums": "--set global_scores=sums",
    "filters": "filters over characters (--set num_filters=32)",
    "teachers": "--distil",
}


def settings_read(header: Header) -> dict[str, Any]:
    """Return the settings of a parser without those that parsers of its family do not read."""
    others = _unread(header.config, {word for word, name in TOLD_BY.items() if name in header.data})
    return {
        section: {
            name: value for name, value in values.items() if f"{section}.{name}" not in others
        }
        for section, values in header.config.items()
    }


def refuse_unread(config: ParserConfig, names: Iterable[str], also: Collection[str]) -> None:
    """Refuse settings that somebody named, and that such a parser does not read.

    Args:
        config: all settings.
        names: dotted.
        also: of the words in `TOLD_BY`, those that hold.

    Raises:
        ConfigError: there is one.
    """
    others = _unread(to_dict(config), also)
    for name in names:
        if name not in others:
            continue
        model = config.model
        *_, last = name.split(".")
        readers = "; or for ".join(
            " and ".join(map(_SHOWN.__getitem__, holds))
            for holds, of_these in READ_BY.items()
            if name in of_these
        )
        oracle = f", oracle {config.learning.oracle}" if model.decoder == "transition" else ""
        raise ConfigError(
            f"{last} is set, which decoder {model.decoder} with classifier {model.classifier} and "
            f"encoder {model.encoder}{oracle} does not read",
            hint=f"leave it out: it is for {readers}",
        )


def _unread(config: Mapping[str, Any], also: Collection[str]) -> set[str]:
    """Return the settings, dotted, that parsers of such settings do not read."""
    model, learning = (config.get(name) or {} for name in ("model", "learning"))
    words = {model.get("decoder", "transition"), model.get("classifier", "neural")}
    words.add(learning.get("linear", "perceptron"))
    if model.get("system") != "swap":  # which has none but the static oracle
        words.add(learning.get("oracle", "dynamic"))
    words.update({"sums"} if learning.get("global_scores") == "sums" else ())
    words.update({"filters"} if model.get("num_filters") else ())
    words.add(learning.get("loss", "local"))
    words.update({"encoder"} if model.get("encoder", "none") != "none" else ())
    builds_crossing = model.get("system") == "swap" or model.get("trees") == "all"
    words.update(() if builds_crossing else {"lifting"})
    words.update(also)
    read = {name for holds, names in READ_BY.items() if words.issuperset(holds) for name in names}
    return {name for names in READ_BY.values() for name in names} - read


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
        normalised=adds_probabilities(config.learning),
    )


def weight_shapes(
    config: ModelConfig,
    num_lexical: int,
    num_tags: int,
    labels: Labels,
    state_size: int = 0,
    num_characters: int = 0,
) -> dict[str, tuple[int, ...]]:
    """Return the shape of every array of a parser, by its name in the network of its family.

    `num_lexical`, `num_tags` and `num_characters` are numbers of symbols, the last one 0 where no
    characters are read; `state_size` is the width of a language model's states, 0 without one.
    """
    if (config.decoder, config.classifier) == ("graph", "linear"):
        return arc_scorer.weight_shapes(config, labels)
    if config.classifier == "linear":
        size = linear_classifier.num_weights(config, labels)
        return {linear_classifier.WEIGHTS: (size,)}
    of_family = graph_shapes if config.decoder == "graph" else transition_shapes
    return of_family(config, num_lexical, num_tags, labels, state_size, num_characters)


def describe(header: Header) -> str:
    """Return what finds the trees of a parser, and its size, in a few words for its card."""
    model = header.config["model"]
    parameters = counted(header.num_parameters, "parameter")
    family = model.get("decoder"), model.get("classifier")
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
