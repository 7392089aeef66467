"""Settings of a classifier of texts, and their presets."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from seqtool.core.config import DEEPEST, WIDEST, Config, setting
from seqtool.core.errors import ConfigError
from seqtool.parsing.config import Presets
from seqtool.training.config import TrainingConfig

KIND = "classifier"  # of the model's directory

LINEAR, LM = "linear", "lm"
CELLS = ("lstm", "gru", "rhn")  # encoders that read forwards only, of `seqtool.lm.neural.cells`

Encoder = Literal["linear", "none", "lstm", "gru", "rhn", "bilstm", "lm"]
Pooling = Literal["last", "mean", "max"]

# what a language model has of its own where its layers are the encoder
OF_LM = ("min_count", "embedding_size", "hidden_size", "layers", "depth", "lm_size")
# settings of the model -> the encoders that read them; all others are read by all
READ_BY: Mapping[str, Collection[str]] = {
    **dict.fromkeys(("word_order", "character_order", "buckets"), (LINEAR,)),
    **dict.fromkeys(("pooling", "max_words"), ("none", *CELLS, "bilstm", LM)),
    "embedding_size": ("none", *CELLS, "bilstm"),
    **dict.fromkeys(("hidden_size", "layers"), (*CELLS, "bilstm")),
    "depth": ("rhn",),
    "lm_size": ("none", *CELLS, "bilstm"),
}
NETWORKS = ("none", *CELLS, "bilstm", LM)
# the same of how it is taught: a linear classifier has no dropout
TAUGHT_BY: Mapping[str, Collection[str]] = {
    **dict.fromkeys(("dropout_words", "dropout_embeddings", "dropout_encoder"), NETWORKS),
    "dropout_lm": ("none", *CELLS, "bilstm"),
}


@dataclass(frozen=True)
class DataConfig(Config):
    """Where texts and labels stand in a table."""

    text_column: str = setting("text", "name of the column of texts, or of the field of JSON Lines")
    label_column: str = setting("label", "name of the column of labels, or of the field")

    def check(self) -> None:
        """Refuse one column for both."""
        if self.text_column == self.label_column:
            raise ConfigError(
                f"text_column and label_column are both {self.text_column!r}",
                hint="name two columns",
            )


@dataclass(frozen=True)
class ModelConfig(Config):
    """What the classifier is."""

    encoder: Encoder = setting(
        "linear",
        "linear (a bag of n-grams), none (vectors of words alone), lstm, gru, rhn, bilstm, or lm "
        "(the layers of a language model, whose weights training begins from)",
    )
    pooling: Pooling = setting(
        "max", "what the labels are read from: the last state, or the mean or max of all"
    )
    split: bool = setting(True, "punctuation is split off words; otherwise blanks alone split")
    marks: bool = setting(
        True,
        "split: a combining mark is of the word before it, as the vowel signs of Hindi are",
    )
    lowercase: bool = setting(True, "words are lower-cased, but not for a language model")
    min_count: int = setting(
        1, "words or n-grams that fewer texts of the training part have are unknown", minimum=1
    )
    word_order: int = setting(
        2, "linear: words of the longest n-grams; 0 for none", minimum=0, maximum=DEEPEST
    )
    character_order: int = setting(
        0,
        "linear: characters of the longest n-grams inside words; 0 for none",
        minimum=0,
        maximum=DEEPEST,
    )
    buckets: int = setting(
        0, "linear: places that n-grams are hashed to; 0 lists those of training", minimum=0
    )
    embedding_size: int = setting(128, "width of a word's vector", minimum=1, maximum=WIDEST)
    hidden_size: int = setting(
        128, "units of a layer, of a bilstm in each direction", minimum=1, maximum=WIDEST
    )
    layers: int = setting(1, "layers of the encoder", minimum=1, maximum=DEEPEST)
    depth: int = setting(3, "rhn: recurrence depth", minimum=1, maximum=DEEPEST)
    lm_size: int = setting(
        128,
        "with --lm: width that the language model's states are projected to",
        minimum=1,
        maximum=WIDEST,
    )
    max_words: int = setting(
        1000, "of a longer text, a network reads so many words from its beginning", minimum=1
    )

    def check(self) -> None:
        """Refuse a bag without n-grams, and sizes of a language model, which has its own."""
        if self.encoder == LINEAR and not self.word_order and self.character_order < 2:
            raise ConfigError(
                "word_order is 0 and character_order below 2, so there are no n-grams",
                hint="give word_order 1 or more, or character_order 2 or more",
            )
        for field in fields(self) if self.encoder == LM else ():
            if field.name in OF_LM and getattr(self, field.name) != field.default:
                raise ConfigError(
                    f"{field.name} is set, but the encoder lm has the vocabulary and the sizes of "
                    "its language model",
                    hint="leave it out, or choose another encoder",
                )

    def refuse_unread(self) -> None:
        """Refuse settings that the encoder does not read; models of earlier releases may have some.

        Raises:
            ConfigError: there is one that differs from its default.
        """
        _refuse_unread(self, DEFAULTS, READ_BY, self.encoder)


DEFAULTS = ModelConfig()


def _refuse_unread(
    config: Any, defaults: Any, read_by: Mapping[str, Collection[str]], encoder: str
) -> None:
    for name, encoders in read_by.items():
        if encoder not in encoders and getattr(config, name) != getattr(defaults, name):
            raise ConfigError(
                f"{name} is set, but the encoder {encoder} does not read it",
                hint=f"leave it out, or choose another encoder: {', '.join(encoders)}",
            )


@dataclass(frozen=True)
class LearningConfig(Config):
    """How the classifier is taught, beside the settings of the training loop."""

    batch_texts: int = setting(32, "texts per step", minimum=1)
    dropout_words: float = setting(
        0.5, "a word seen n times is taken for unknown with probability x / (x + n)", minimum=0
    )
    dropout_embeddings: float = setting(
        0.3, "dropout on what the encoder reads", minimum=0, below=1
    )
    dropout_lm: float = setting(
        0.3, "with --lm: dropout on the language model's states", minimum=0, below=1
    )
    dropout_encoder: float = setting(
        0.3, "dropout between the encoder's layers, and on what is pooled", minimum=0, below=1
    )
    averaging: float = setting(
        0.99,
        "decay per step of the average that the classifier is made of; 0: the last weights",
        minimum=0,
        below=1,
    )


@dataclass(frozen=True)
class ClassifierConfig(Config):
    """All settings of a classifier."""

    data: DataConfig = setting(DataConfig, "the table of texts")
    model: ModelConfig = setting(ModelConfig, "the classifier")
    learning: LearningConfig = setting(LearningConfig, "how it is taught")
    training: TrainingConfig = setting(TrainingConfig, "the training loop")

    def check(self) -> None:
        """Refuse dropout on states that are only read, where the language model is taught."""
        if self.model.encoder == LM and self.learning.dropout_lm != LearningConfig().dropout_lm:
            raise ConfigError(
                "dropout_lm is of the states that --lm gives another encoder, and the encoder is "
                "lm",
                hint="set learning.dropout_encoder, or choose another encoder",
            )

    def refuse_unread(self) -> None:
        """Refuse settings that the encoder does not read; see `ModelConfig.refuse_unread`.

        Raises:
            ConfigError: there is one that differs from its default.
        """
        self.model.refuse_unread()
        _refuse_unread(self.learning, LearningConfig(), TAUGHT_BY, self.model.encoder)


def _implied(given: Mapping[str, Any]) -> str | None:
    """Return the preset that belongs to an encoder."""
    encoder = given.get("model.encoder", LINEAR)
    return {LINEAR: None, LM: "fine-tuned"}.get(encoder, "recurrent")


PRESETS = Presets(
    KIND,
    ClassifierConfig,
    {
        "linear": {
            "training": {
                "epochs": 10,
                "optimiser": "adamw",
                "learning_rate": 0.02,
                "weight_decay": 0.01,
                "schedule": "cosine",
            },
        },
        "recurrent": {
            "model": {"encoder": "bilstm", "min_count": 2},
            "training": {
                "epochs": 6,
                "optimiser": "adamw",
                "learning_rate": 0.002,
                "schedule": "cosine",
                "clip_norm": 5.0,
            },
        },
        "fine-tuned": {
            "model": {"encoder": "lm"},
            "training": {
                "epochs": 6,
                "optimiser": "adamw",
                "learning_rate": 0.005,
                "schedule": "cosine",
                "clip_norm": 5.0,
            },
        },
    },
    default="linear",
    implied=_implied,
)
preset, resolve = PRESETS.settings, PRESETS.resolve
