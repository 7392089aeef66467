"""Settings of a classifier of texts, and their presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from seqtool.core.config import DEEPEST, WIDEST, Config, setting
from seqtool.core.errors import ConfigError
from seqtool.parsing.config import Presets
from seqtool.training.config import TrainingConfig

KIND = "classifier"  # of the model's directory

LINEAR, BILSTM, LM = "linear", "bilstm", "lm"


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

    encoder: Literal["linear", "bilstm", "lm"] = setting(
        "linear",
        "linear (a bag of n-grams), bilstm (reads words in both directions), or lm (the layers of "
        "a language model, whose weights training begins from)",
    )
    split: bool = setting(True, "punctuation is split off words; otherwise blanks alone split")
    lowercase: bool = setting(True, "words are lower-cased, but not for a language model")
    min_count: int = setting(
        1,
        "words or n-grams that fewer texts of the training part have are unknown",
        minimum=1,
        when="encoder is linear/bilstm",
    )
    word_order: int = setting(
        2,
        "linear: words of the longest n-grams; 0 for none",
        minimum=0,
        maximum=DEEPEST,
        when="encoder is linear",
    )
    character_order: int = setting(
        0,
        "linear: characters of the longest n-grams inside words; 0 for none",
        minimum=0,
        maximum=DEEPEST,
        when="encoder is linear",
    )
    embedding_size: int = setting(
        128, "bilstm: width of a word's vector", minimum=1, maximum=WIDEST, when="encoder is bilstm"
    )
    hidden_size: int = setting(
        128,
        "bilstm: units of a layer in each direction",
        minimum=1,
        maximum=WIDEST,
        when="encoder is bilstm",
    )
    layers: int = setting(
        1, "bilstm: number of layers", minimum=1, maximum=DEEPEST, when="encoder is bilstm"
    )
    lm_size: int = setting(
        128,
        "bilstm with --lm: width that the language model's states are projected to",
        minimum=1,
        maximum=WIDEST,
        when="encoder is bilstm and --lm is given",
    )
    max_words: int = setting(
        1000,
        "of a longer text, a network reads so many words from its beginning",
        minimum=1,
        when="encoder is bilstm/lm",
    )

    def check(self) -> None:
        """Refuse a bag without n-grams."""
        if self.encoder == LINEAR and not self.word_order and self.character_order < 2:
            raise ConfigError(
                "word_order is 0 and character_order below 2, so there are no n-grams",
                hint="give word_order 1 or more, or character_order 2 or more",
            )


@dataclass(frozen=True)
class LearningConfig(Config):
    """How the classifier is taught, beside the settings of the training loop."""

    batch_texts: int = setting(32, "texts per step", minimum=1)
    dropout_words: float = setting(
        0.5,
        "a word seen n times is taken for unknown with probability x / (x + n)",
        minimum=0,
        when="model.encoder is bilstm/lm",
    )
    dropout_embeddings: float = setting(
        0.3,
        "dropout on what the encoder reads",
        minimum=0,
        below=1,
        when="model.encoder is bilstm/lm",
    )
    dropout_lm: float = setting(
        0.3,
        "bilstm with --lm: dropout on the language model's states",
        minimum=0,
        below=1,
        when="model.encoder is bilstm and --lm is given",
    )
    dropout_encoder: float = setting(
        0.3,
        "dropout between the encoder's layers, and on what is pooled",
        minimum=0,
        below=1,
        when="model.encoder is bilstm/lm",
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


def _implied(values: Mapping[str, Any]) -> str | None:
    """Return the preset that belongs to an encoder."""
    return {BILSTM: "recurrent", LM: "fine-tuned"}.get(values.get("model.encoder", LINEAR))


_NETWORK_TRAINING = {
    "epochs": 6,
    "optimiser": "adamw",
    "learning_rate": 0.002,
    "schedule": "cosine",
    "clip_norm": 5.0,
}

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
            }
        },
        "recurrent": {
            "model": {"encoder": "bilstm", "min_count": 2},
            "training": _NETWORK_TRAINING,
        },
        "fine-tuned": {
            "model": {"encoder": "lm"},
            "training": {**_NETWORK_TRAINING, "learning_rate": 0.005},
        },
    },
    default="linear",
    implied=_implied,
)
preset, resolve = PRESETS.settings, PRESETS.resolve
