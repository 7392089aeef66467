"""Settings of a labeller of words, and their presets."""

from __future__ import annotations

from dataclasses import dataclass

from seqtool.core.config import Config, setting
from seqtool.core.errors import ConfigError
from seqtool.parsing.config import Presets
from seqtool.parsing.tagger.config import (
    PRESETS as TAGGERS,
)
from seqtool.parsing.tagger.config import (
    EncoderConfig,
    EncoderLearningConfig,
    LearningConfig,
    ModelConfig,
    TaggerConfig,
)
from seqtool.training.config import TrainingConfig

KIND = "labeller"  # of the model's directory


@dataclass(frozen=True)
class DataConfig(Config):
    """Where the labels stand."""

    column: str = setting("NER", "key of column MISC that holds the labels, as in NER=B-PER")
    word_column: int | None = setting(
        None, "column of words in files with a word a line, from 1 on", minimum=1
    )
    label_column: int | None = setting(None, "column of labels in such files", minimum=1)

    def check(self) -> None:
        """Refuse a name that cannot be a key of MISC."""
        if not self.column or any(character in self.column for character in "=| \t\r\n"):
            raise ConfigError(
                f"column is {self.column!r}, which is no key of column MISC",
                hint="name it as in NER=B-PER: --column NER",
            )


@dataclass(frozen=True)
class LabellerConfig(Config):
    """All settings of a labeller."""

    data: DataConfig = setting(DataConfig, "where the labels stand")
    model: EncoderConfig = setting(EncoderConfig, "the network")
    learning: EncoderLearningConfig = setting(EncoderLearningConfig, "how it is taught")
    training: TrainingConfig = setting(TrainingConfig, "the training loop")

    def as_tagger(self) -> TaggerConfig:
        """Return the settings of a tagger whose UPOS are the labels, and that learns no lemmas."""
        model = ModelConfig(**vars(self.model), lemma_size=1, sparse_bits=0)
        learning = LearningConfig(**vars(self.learning), lemma_weight=0.0, share_parts=False)
        return TaggerConfig(model, learning, self.training)


def _preset(name: str) -> dict[str, dict[str, object]]:
    """Return the settings of a tagger's preset that a labeller has; `accurate` has the defaults."""
    known = EncoderConfig.__dataclass_fields__
    settings = TAGGERS.settings(name)
    model = {} if name == "accurate" else settings["model"]
    return {
        "model": {name: value for name, value in model.items() if name in known},
        "training": settings["training"],
    }


PRESETS = Presets(
    KIND,
    LabellerConfig,
    {name: _preset(name) for name in TAGGERS.table},
    default=TAGGERS.default,
)
preset, resolve = PRESETS.settings, PRESETS.resolve
