"""Settings of a parser, and its presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from seqtool.core.config import WIDEST, Config, setting
from seqtool.core.errors import ConfigError, did_you_mean
from seqtool.parsing.config import Presets, count, depth, share, width
from seqtool.parsing.encoding.features import FIELDS
from seqtool.training.config import TrainingConfig
from seqtool.treebank.sentence import FORM

KIND = "parser"  # of the model's directory
PREDICTED_TAGS = "predicted_tags"  # of what a header says of the data
VARIANT = "# variant = yes"  # the comment of variants of a treebank's sentences

SystemName = Literal["auto", "arc-standard", "arc-eager", "arc-hybrid", "swap"]
FieldName = Literal["form", "lemma", "prefix", "suffix", "shape", "upos", "xpos", "feats"]
LEXICAL_FIELDS = ("form", "lemma", "prefix", "suffix", "shape")
TAG_FIELDS = ("upos", "xpos", "feats")

# Chen & Manning 2014, section 3.1: 18 words and tags, and the labels of the 12 that are children
_CHILDREN = (
    *("s0.l1", "s0.r1", "s0.l2", "s0.r2", "s1.l1", "s1.r1", "s1.l2", "s1.r2"),
    *("s0.l1.l1", "s0.r1.r1", "s1.l1.l1", "s1.r1.r1"),
)
CHEN_MANNING = ("s0", "s1", "s2", "b0", "b1", "b2", *_CHILDREN)
CONTEXT = ("s0", "s1", "s2", "b0")
_NEIGHBOURS = ("s0.prev", "s0.next", "s1.prev", "s1.next", "b0.prev")
SMALL_SENTENCES = 4000  # a treebank of fewer has epochs of its own in some presets
LOWEST_TEMPERATURE = 0.1
LONGEST_LEARNT = 500  # words of a sentence that arcs are learnt of: scores grow with the square
SMALLEST_BATCH = 64  # smaller ones take as long
RICH = (*CHEN_MANNING, "s3", "b3", *_NEIGHBOURS)
MEASURES = ("s1-s0", "s0-b0", "s0.lefts", "s0.rights", "s1.lefts", "s1.rights", "s2-s1")


# where settings count
_STEPS, _ARCS = "model.decoder is transition", "model.decoder is graph"
_NEURAL, _LINEAR = "model.classifier is neural", "model.classifier is linear"
_BILSTM = "model.encoder is bilstm"
_NEURAL_STEPS, _LINEAR_STEPS = f"{_STEPS} and {_NEURAL}", f"{_STEPS} and {_LINEAR}"
_NEURAL_ARCS, _BILSTM_STEPS = f"{_ARCS} and {_NEURAL}", f"{_STEPS} and {_BILSTM}"
_PAIRS = f"{_NEURAL_ARCS} and second_order is not none"
_FILTERS = f"{_NEURAL} and num_filters > 0"
_EXPLORING = f"{_STEPS} and oracle is dynamic and model.system is not swap"
_RATED = f"{_NEURAL} or {_ARCS}"
# of the training loop: a perceptron needs less of it
_LOOP = {
    **dict.fromkeys(
        [
            *("optimiser", "momentum", "beta1", "beta2", "weight_decay", "average_after"),
            *("asgd_trigger", "embedding_optimiser", "clip_norm", "precision"),
        ],
        _NEURAL,
    ),
    **dict.fromkeys(
        [
            *("learning_rate", "schedule", "schedule_factor", "schedule_every", "schedule_after"),
            *("schedule_minimum", "schedule_cycle", "schedule_warmup", "plateau_patience"),
        ],
        _RATED,
    ),
}


@dataclass(frozen=True)
class ModelConfig(Config):
    """What finds trees, what scores them, and what that sees."""

    decoder: Literal["transition", "graph"] = setting(
        "transition", "transition: a tree by steps; graph: the best tree by scores of its arcs"
    )
    classifier: Literal["neural", "linear"] = setting(
        "neural", "neural: vectors and hidden units; linear: sparse indicator features"
    )
    system: SystemName = setting(
        "auto",
        "auto, arc-standard, arc-eager, arc-hybrid or swap; auto is by the treebank",
        when=_STEPS,
    )
    fields: tuple[FieldName, ...] = setting(
        (*LEXICAL_FIELDS, *TAG_FIELDS),
        "what is read of a word; prefix, suffix and shape are parts of the form",
    )
    slots: tuple[str, ...] = setting(
        RICH, "places whose word and tags are looked at", when=_NEURAL_STEPS
    )
    label_slots: tuple[str, ...] = setting(
        _CHILDREN, "places whose label is looked at", when=_NEURAL_STEPS
    )
    measures: tuple[str, ...] = setting(
        MEASURES, "counts of children, and distances", when=_NEURAL_STEPS
    )
    lexical_size: int = width(64, "width of a word's vector", when=_NEURAL)
    tag_size: int = width(32, "width of the vector of a word's tags", when=_NEURAL)
    label_size: int = width(32, "width of a label's vector", when=_NEURAL_STEPS)
    num_filters: int = setting(
        0,
        "filters over the characters of a form, a part of a word's vector where its form or parts "
        "of it are read; 0: none (Ma & Hovy 2016)",
        minimum=0,
        maximum=WIDEST,
        when=_NEURAL,
    )
    joined_characters: bool = setting(
        True,
        "read characters also where lemmas or XPOS are joined of morphemes, as 고향+은 is",
        when=_FILTERS,
    )
    character_size: int = width(32, "width of a character's vector", when=_FILTERS)
    filter_width: int = depth(5, "characters that a filter sees; odd", when=_FILTERS)
    encoder: Literal["none", "bilstm"] = setting(
        "none", "what reads words in their sentence: none, or bilstm (Kiperwasser & Goldberg 2016)"
    )
    encoder_size: int = width(128, "bilstm: units of each direction", when=_BILSTM)
    encoder_layers: int = depth(2, "bilstm: layers", when=_BILSTM)
    context_slots: tuple[str, ...] = setting(
        CONTEXT,
        "bilstm: places whose word is looked at as it was read in its sentence",
        when=_BILSTM_STEPS,
    )
    context_units: int = width(
        96, "bilstm: gated units through which its states reach the classifier", when=_BILSTM_STEPS
    )
    type_units: int = setting(
        128,
        "gated units that join the fields of a word; 0: they are only added",
        minimum=0,
        maximum=WIDEST,
        when=_NEURAL,
    )
    arc_size: int = width(
        256, "graph: units of a word by which heads are scored", when=_NEURAL_ARCS
    )
    relation_size: int = width(
        64, "graph: units of a word by which labels are scored", when=_NEURAL_ARCS
    )
    distances: bool = setting(
        False,
        "graph: the score of an arc depends on its direction and length too (as Qi et al. 2018 do)",
        when=_NEURAL_ARCS,
    )
    second_order: Literal["none", "both"] = setting(
        "none",
        "graph: both: pairs of arcs are scored, too, of siblings and of a head with its own head, "
        "by mean-field inference (Wang & Tu 2020)",
        when=_NEURAL_ARCS,
    )
    second_size: int = width(64, "second order: products in the score of a pair", when=_PAIRS)
    second_steps: int = depth(3, "second order: steps of inference", when=_PAIRS)
    trees: Literal["auto", "projective", "all"] = setting(
        "auto", "graph: projective or all trees; auto is by the treebank and the loss", when=_ARCS
    )
    hidden_size: int = width(192, "hidden units", when=_NEURAL_STEPS)
    activation: Literal["relu", "cube", "glu"] = setting(
        "glu",
        "relu, cube (Chen & Manning 2014) or glu: a gate for each unit (Dauphin et al. 2017)",
        when=_NEURAL_STEPS,
    )
    min_count: int = count(2, "rarer forms, lemmas and parts of forms count as unknown")
    templates: tuple[str, ...] = setting(
        ("standard",),
        "linear: features of transitions, such as 's0.form b0.upos'; standard: those of Zhang & "
        "Nivre 2011 for which the fields are read",
        when=_LINEAR_STEPS,
    )
    hash_bits: int = setting(
        22,
        "linear: features are hashed to 2^this places of weights, of 2 bytes in the file",
        minimum=10,
        maximum=26,
        when=_LINEAR,
    )

    def check(self) -> None:
        """Refuse a parser that sees nothing."""
        if not self.fields:
            raise ConfigError("fields is empty", hint="name one field or more")
        if len(set(self.fields)) < len(self.fields):
            raise ConfigError("fields names one field twice", hint="name each field once")
        if not self.slots:
            raise ConfigError("slots is empty", hint="name one place or more")
        if self.encoder != "none" and not self.context_slots:
            raise ConfigError("context_slots is empty", hint="name one place or more")
        if self.filter_width % 2 == 0:
            raise ConfigError(
                f"filter_width is {self.filter_width}, but must be odd", hint="add or take 1"
            )
        if (self.decoder, self.classifier, self.encoder) == ("graph", "neural", "none"):
            raise ConfigError(
                "decoder is graph, but encoder is none: arcs are scored by what an encoder reads",
                hint="use --encoder bilstm, or --decoder transition",
            )

    @property
    def token_size(self) -> int:
        """Width of a word's vector with that of its tags, and of its characters."""
        return self.lexical_size + self.tag_size + self.character_width

    @property
    def character_width(self) -> int:
        """Width of what filters find in the characters of a form; 0 where none are read."""
        reads_forms = any(row[0] == FORM for name in self.fields for row in FIELDS[name].values())
        return self.num_filters if self.classifier == "neural" and reads_forms else 0

    @property
    def num_sums(self) -> int:
        """Sums of the first layer: one for each hidden unit, and one for each gate."""
        return self.hidden_size * (2 if self.activation == "glu" else 1)

    @property
    def contexts(self) -> tuple[str, ...]:
        """The places that are looked at in context: none without an encoder."""
        return self.context_slots if self.encoder != "none" else ()


@dataclass(frozen=True)
class LearningConfig(Config):
    """How the classifier is taught, beside the settings of the training loop."""

    loss: Literal["local", "global", "crf", "matrix-tree"] = setting(
        "local",
        "local: single decisions (transitions, or the head of each word); global: whole beams "
        "(Andor et al. 2016); crf, matrix-tree: whole trees, of a graph, projective ones or all",
    )
    oracle: Literal["dynamic", "static"] = setting(
        "dynamic",
        "dynamic: learn from the parser's own configurations; swap has only static",
        when=_STEPS,
    )
    exploration: float = setting(
        0.9,
        "dynamic: how often the parser's own choice is followed",
        minimum=0,
        maximum=1,
        when=_EXPLORING,
    )
    explore_after: float = setting(
        1.0, "dynamic: epochs before its own choices are followed", minimum=0, when=_EXPLORING
    )
    feature_count: int = setting(
        2,
        "linear transitions: in how many configurations of the first epoch a feature has to be, to "
        "be learnt",
        minimum=1,
        maximum=100,
        when=_LINEAR_STEPS,
    )
    batch_size: int = count(512, "configurations per step", when=_STEPS)
    batch_words: int = count(600, "graph: words per step, about", when=_NEURAL_ARCS)
    small_epochs: int = setting(
        0,
        f"epochs of a treebank of fewer than {SMALL_SENTENCES:,} sentences, where training.epochs "
        "is not given; 0: the same",
        minimum=0,
    )
    min_steps: int = count(
        400,
        "steps per epoch: of a small treebank, a step has fewer configurations, or words, but no "
        f"fewer than {SMALLEST_BATCH}",
        when=_NEURAL,
    )
    dropout_hidden: float = share(0.5, "dropout on the hidden layer", when=_NEURAL_STEPS)
    dropout_embeddings: float = share(0.2, "dropout on word and tag vectors", when=_NEURAL_STEPS)
    dropout_types: float = share(
        0.3, "dropout on the units that join the fields of a word", when=_NEURAL
    )
    dropout_encoder: float = share(
        0.4, "dropout on what the bilstm reads, and on its states", when=_BILSTM
    )
    dropout_contexts: float = share(
        0.3, "bilstm: dropout on the units that its states pass through", when=_BILSTM_STEPS
    )
    dropout_arcs: float = share(
        0.33, "graph: dropout on the units by which heads and labels are scored", when=_NEURAL_ARCS
    )
    head_weight: float = setting(
        0.5,
        "bilstm: weight of the loss of choosing heads and labels by its states alone, beside that "
        "of transitions",
        minimum=0,
        when=f"{_BILSTM_STEPS} or {_BILSTM} and --raw is given",
    )
    label_smoothing: float = share(
        0.05,
        "graph, loss local: share of what is learnt that all heads, and all labels, have alike "
        "(Szegedy et al. 2016)",
        when=f"{_NEURAL_ARCS} and loss is local",
    )
    cloze_weight: float = setting(
        0.2,
        "bilstm: weight of the loss of telling words by their context alone",
        minimum=0,
        when=_BILSTM,
    )
    dropout_words: float = setting(
        2.0,
        "a symbol seen n times is taken for unknown with probability x / (x + n)",
        minimum=0,
        when=_NEURAL,
    )
    dropout_fields: float = share(
        0.0,
        "how often all that is read of a word's form and lemma, its tags, or its characters are "
        "left out, each by itself (as Dozat & Manning 2017 do)",
        when=_NEURAL,
    )
    averaging: float = share(
        0.999,
        "decay per step of the average that the parser is made of; 0: the last weights",
        when=_NEURAL,
    )
    variants: int = setting(
        2,
        "with --distil: variants of each sentence, with other words of the treebank in them, that "
        "the teachers parse beside text",
        minimum=0,
        maximum=100,
        when="--distil is given",
    )
    variant_words: float = setting(
        0.5,
        "with --distil: share of the words of open classes that others stand for in a variant",
        minimum=0,
        maximum=1,
        when="--distil is given",
    )
    taught_words: float = setting(
        2.0,
        "with --distil: words of text and variants that the teachers have parsed, for each of the "
        "treebank's, in an epoch",
        minimum=0,
        when="--distil is given",
    )
    teacher_weight: float = setting(
        0.5,
        "with --distil: weight of the teachers' probabilities, beside trees, which have the rest: "
        "of heads, where arcs are scored, or of transitions, by teachers of the same system; "
        "0: trees alone",
        minimum=0,
        maximum=1,
        when=f"{_NEURAL} and --distil is given",
    )
    beam_temperature: float = setting(
        0.0,
        "what scores of transitions are divided by before the hypotheses of a beam are compared; "
        "0: fitted on the validation part, or 1.5 where global training follows",
        minimum=0,
        maximum=10,
        when=_NEURAL_STEPS,
    )
    global_epochs: int = count(
        4, "global: epochs after those of local training", when="loss is global"
    )
    global_beam: int = setting(
        8, "global: hypotheses per sentence", minimum=2, maximum=1024, when="loss is global"
    )
    global_rate: float = setting(
        0.3,
        "global: learning rate, as a share of that of local training",
        above=0,
        when="loss is global",
    )
    global_words: int = count(512, "global: words per step, about", when="loss is global")
    mark_lifted: bool = setting(
        True,
        "lift non-projective arcs, for a system that cannot build them, with labels that tell "
        "where they came from, so that they are put back (Nivre & Nilsson 2005)",
        when=f"{_STEPS} and model.system is not swap or {_ARCS} and model.trees is not all",
    )

    def check(self) -> None:
        """Refuse a temperature by which scores would be divided beyond all numbers."""
        if 0 < self.beam_temperature < LOWEST_TEMPERATURE:
            raise ConfigError(
                f"beam_temperature is {self.beam_temperature}, but must be at least "
                f"{LOWEST_TEMPERATURE}, or 0",
                hint="0 fits it on the validation part",
            )


@dataclass(frozen=True)
class ParserConfig(Config):
    """All settings of a parser."""

    # epochs and filters that are given are those of any treebank
    replaced: ClassVar[Mapping[str, str]] = {
        "training.epochs": "learning.small_epochs",
        "model.num_filters": "model.joined_characters",
    }

    model: ModelConfig = setting(ModelConfig, "the classifier")
    learning: LearningConfig = setting(LearningConfig, "how it is taught")
    training: TrainingConfig = setting(TrainingConfig, "the training loop", when=_LOOP)

    def check(self) -> None:
        """Refuse what no combination of decoder, classifier and loss can do."""
        model, loss = self.model, self.learning.loss
        if model.classifier == "linear" and model.encoder != "none":
            raise ConfigError(
                f"classifier is linear, which reads no {model.encoder}",
                hint="leave out --encoder or --preset, or take --classifier neural",
            )
        losses = LOSSES[model.decoder, model.classifier]
        others = [
            f"--decoder {decoder}" if decoder != model.decoder else f"--classifier {classifier}"
            for (decoder, classifier), known in LOSSES.items()
            if loss in known
        ]
        if loss not in losses:
            raise ConfigError(
                f"loss is {loss}, which decoder {model.decoder} with classifier "
                f"{model.classifier} does not learn by",
                hint=f"use {' or '.join(dict.fromkeys([*losses, *others]))}",
            )
        if (loss, model.trees) == ("crf", "all"):
            raise ConfigError(
                "loss is crf, which is of projective trees, but trees is all",
                hint="use --loss matrix-tree, or leave trees out",
            )


# decoder and classifier -> what parsers of these learn by
LOSSES = {
    ("transition", "neural"): ("local", "global"),
    ("transition", "linear"): ("local",),
    ("graph", "neural"): ("local", "crf", "matrix-tree"),
    ("graph", "linear"): ("local",),
}


_TABLE: dict[str, dict[str, Any]] = {
    "fast": {
        "learning": {"small_epochs": 16},
        "training": {
            "epochs": 8,
            "optimiser": "adamw",
            "learning_rate": 0.0015,
            "beta2": 0.95,  # 0.999 would move rare words' vectors too far (Dozat & Manning 2017)
            "schedule": "cosine",
            "clip_norm": 0.0,
        },
    },
    # Chen & Manning 2014; their batch is 10,000 configurations, drawn from all at once. Theirs has
    # one vector a word; the field `form` has two, summed: of the form and of its lower case
    "chen-manning": {
        "model": {
            "system": "arc-standard",
            "fields": ["form", "upos"],
            "slots": list(CHEN_MANNING),
            "label_slots": list(_CHILDREN),
            "measures": [],
            "lexical_size": 50,
            "tag_size": 50,
            "label_size": 50,
            "type_units": 0,
            "hidden_size": 200,
            "activation": "cube",
        },
        "learning": {
            "oracle": "static",
            "batch_size": 10000,
            "min_steps": 1,
            "dropout_embeddings": 0.0,
            "dropout_words": 0.0,
            "averaging": 0.0,
        },
        "training": {
            "epochs": 60,
            "patience": 10,
            "optimiser": "adagrad",
            "learning_rate": 0.01,
            "weight_decay": 1e-8,
            # AdaGrad's first steps are the widest: the sum of cubes exploded on short sentences
            "schedule_warmup": 0.02,
            "clip_norm": 0.0,
        },
    },
}

# sparse features as of MaltParser
_TABLE["linear"] = {
    "model": {"classifier": "linear", "fields": ["form", "lemma", "upos", "xpos", "feats"]},
    "learning": {"batch_size": 4096},
    "training": {"epochs": 10, "clip_norm": 0.0},
}

# the same classifier, which an encoder reads for
_TABLE["accurate"] = {
    "model": {"encoder": "bilstm"},
    "learning": {"small_epochs": 26},
    "training": {**_TABLE["fast"]["training"], "epochs": 13},
}

_TABLE["graph"] = {
    "model": {
        "decoder": "graph",
        "encoder": "bilstm",
        "encoder_size": 224,
        "encoder_layers": 2,
        "lexical_size": 128,
        "num_filters": 96,
        "joined_characters": False,
        "distances": True,
        "second_order": "both",
    },
    "learning": {"min_steps": 200},
    "training": {
        "epochs": 30,
        "optimiser": "adamw",
        "learning_rate": 0.002,
        "beta2": 0.95,
        "schedule": "cosine",
        # at the whole rate, the first steps may throw scores far off: a loss of 59 nats per word
        "schedule_warmup": 0.01,
        "clip_norm": 5.0,
    },
}

# McDonald, Crammer & Pereira 2005; the learning rate is the C of MIRA
_TABLE["mst"] = {
    "model": {"decoder": "graph", "classifier": "linear"},
    "training": {"epochs": 10, "learning_rate": 1.0, "schedule": "constant", "clip_norm": 0.0},
}


def implied(values: Mapping[str, Any]) -> str | None:
    """Return the preset that options stand for, given as dotted settings; None for the default."""
    decoder, classifier = values.get("model.decoder"), values.get("model.classifier")
    if decoder == "graph":
        return "mst" if classifier == "linear" else "graph"
    return "linear" if classifier == "linear" else None


PRESETS = Presets(KIND, ParserConfig, _TABLE, default="fast", implied=implied)
preset = PRESETS.settings


def parse_fields(text: str) -> list[str]:
    """Return the fields of a list as typed: `form,upos,feats`, or `-lemma` for all but lemma.

    Raises:
        ConfigError: one is unknown.
    """
    known = get_args(FieldName)
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name.removeprefix("-") not in known:
            raise ConfigError(f"no field is called {name!r}", hint=did_you_mean(name, known))
    left_out = {name[1:] for name in names if name.startswith("-")}
    if left_out and len(left_out) < len(names):
        raise ConfigError(
            f"--fields {text} both names fields and leaves some out", hint="do one of the two"
        )
    return [name for name in known if name not in left_out] if left_out else names
