"""Settings of a segmenter: what splits raw text into sentences and words."""

from __future__ import annotations

from dataclasses import dataclass

from seqtool.core.config import Config, setting
from seqtool.parsing.config import Presets, count, depth, share, width
from seqtool.training.config import TrainingConfig

SENTENCE_WORDS = 300  # longer sentences are mistakes of splitting, or lists


@dataclass(frozen=True)
class SegmenterModelConfig(Config):
    """The network over characters, and the one over the tokens that it found."""

    character_size: int = width(32, "width of a character's vector")
    character_units: int = width(64, "units of each direction of the LSTM over characters")
    character_layers: int = depth(1, "layers of the LSTM over characters")
    form_size: int = width(32, "width of a form's vector")
    token_units: int = width(96, "units of each direction of the LSTM over tokens")
    token_layers: int = depth(1, "layers of the LSTM over tokens")
    min_count: int = count(3, "rarer characters and forms count as unknown")
    sentence_words: int = setting(
        SENTENCE_WORDS,
        "a longer sentence is cut, where an end of one is likeliest",
        minimum=2,
        maximum=2000,
    )


@dataclass(frozen=True)
class SegmenterLearningConfig(Config):
    """How the networks are taught, beside the settings of the training loop."""

    batch_characters: int = count(4096, "characters per step")
    min_steps: int = count(128, "steps per epoch: of a small treebank, a step has fewer characters")
    window_characters: int = setting(
        400, "longer paragraphs are cut into pieces of so many characters", minimum=16
    )
    dropout_inputs: float = share(0.2, "dropout on vectors of characters")
    dropout_states: float = share(0.4, "dropout on the states of the LSTMs")
    dropout_symbols: float = setting(
        1.0,
        "a character or form seen n times is taken for unknown with probability x / (x + n)",
        minimum=0,
    )
    tag_weight: float = setting(
        0.2,
        "weight of the loss of part of speech and relation, which are predicted beside",
        minimum=0,
    )
    wrapped: float = setting(
        0.3, "share of paragraphs that are broken into lines", minimum=0, maximum=1
    )
    sentence_lines: float = setting(
        0.1, "share of paragraphs with one sentence a line", minimum=0, maximum=1
    )
    joined: float = share(0.2, "share of paragraphs that are run on into the next one")


@dataclass(frozen=True)
class SegmenterConfig(Config):
    """All settings of a segmenter."""

    model: SegmenterModelConfig = setting(SegmenterModelConfig, "the networks")
    learning: SegmenterLearningConfig = setting(SegmenterLearningConfig, "how they are taught")
    training: TrainingConfig = setting(TrainingConfig, "the training loop")


SEGMENTERS = Presets(
    "segmenter",
    SegmenterConfig,
    {
        "default": {
            "training": {
                "epochs": 15,
                "optimiser": "adamw",
                "learning_rate": 0.004,
                "beta2": 0.98,
                "schedule": "cosine",
                "schedule_warmup": 0.02,
                "clip_norm": 5.0,
            }
        }
    },
    default="default",
)
