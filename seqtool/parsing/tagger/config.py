"""Settings of a tagger and lemmatizer, and their presets."""

from __future__ import annotations

from dataclasses import dataclass

from seqtool.core.config import DEEPEST, WIDEST, Config, setting
from seqtool.core.errors import ConfigError
from seqtool.parsing.config import Presets
from seqtool.parsing.sparse.engine import NAME
from seqtool.parsing.sparse.words import FEWEST_BITS, chosen, compile_templates
from seqtool.training.config import TrainingConfig

KIND = "tagger"  # of the model's directory
SMALLEST_BATCH = 64  # smaller ones take as long


@dataclass(frozen=True)
class EncoderConfig(Config):
    """How words are read: forms and their characters, then a bilstm."""

    lexical_size: int = setting(
        128, "width of the vector of a form and its affixes", minimum=1, maximum=WIDEST
    )
    character_size: int = setting(32, "width of a character's vector", minimum=1, maximum=WIDEST)
    filter_width: int = setting(5, "characters that a filter sees; odd", minimum=1, maximum=DEEPEST)
    num_filters: int = setting(
        128, "filters over the characters of a form", minimum=1, maximum=WIDEST
    )
    encoder_size: int = setting(192, "bilstm: units of each direction", minimum=1, maximum=WIDEST)
    encoder_layers: int = setting(2, "bilstm: layers", minimum=1, maximum=DEEPEST)
    min_count: int = setting(2, "rarer forms, affixes and characters count as unknown", minimum=1)

    def check(self) -> None:
        """Refuse filters that have no middle."""
        if self.filter_width % 2 == 0:
            raise ConfigError(
                f"filter_width is {self.filter_width}, but must be odd", hint="add or take 1"
            )


@dataclass(frozen=True)
class ModelConfig(EncoderConfig):
    """What the network is."""

    lemma_size: int = setting(128, "hidden units of the lemmatizer", minimum=1, maximum=WIDEST)
    min_script_count: int = setting(
        2, "rarer edit scripts are only for the forms that they were met with", minimum=1
    )
    sparse_bits: int = setting(
        22,
        "sparse features are hashed to 2^this places of weights, of 2 bytes in the file, or to "
        "fewer where the treebank is small; 0: none",
        minimum=0,
        maximum=26,
    )
    sparse_templates: tuple[str, ...] = setting(
        (NAME,), "the sparse features, such as 'w-1.lower w.suffix3'; standard: 36 usual ones"
    )

    def check(self) -> None:
        """Refuse templates that cannot be read, and too few places for any."""
        super().check()
        if 0 < self.sparse_bits < FEWEST_BITS:
            raise ConfigError(
                f"sparse_bits is {self.sparse_bits}, but must be 0 or {FEWEST_BITS} or more",
                hint="features would share nearly all places: 0 leaves them out",
            )
        if self.sparse_bits:
            if not self.sparse_templates:
                raise ConfigError("no template is left", hint="name one, or set sparse_bits=0")
            compile_templates(chosen(self.sparse_templates))


@dataclass(frozen=True)
class EncoderLearningConfig(Config):
    """How what reads words is taught, beside the settings of the training loop."""

    batch_words: int = setting(512, "words per step, about", minimum=1)
    min_steps: int = setting(
        256,
        "steps per epoch: of a small treebank, a step has fewer words, but no fewer than "
        f"{SMALLEST_BATCH}",
        minimum=1,
    )
    dropout_words: float = setting(
        0.5, "a symbol seen n times is taken for unknown with probability x / (x + n)", minimum=0
    )
    dropout_embeddings: float = setting(
        0.33, "dropout on what the bilstm reads", minimum=0, below=1
    )
    dropout_encoder: float = setting(
        0.4, "dropout between the bilstm's layers, and on its states", minimum=0, below=1
    )
    cloze_weight: float = setting(
        0.2, "weight of the loss of telling words by their context alone", minimum=0
    )
    averaging: float = setting(
        0.999,
        "decay per step of the average that the tagger is made of; 0: the last weights",
        minimum=0,
        below=1,
    )


@dataclass(frozen=True)
class LearningConfig(EncoderLearningConfig):
    """How the network is taught, beside the settings of the training loop."""

    dropout_lemmas: float = setting(
        0.3, "dropout on the lemmatizer's hidden units", minimum=0, below=1
    )
    label_smoothing: float = setting(
        0.0,
        "share of what is learnt that all combinations of tags have alike (Szegedy et al. 2016), "
        "but none where they share morphemes (share_parts)",
        minimum=0,
        below=1,
    )
    adversarial: float = setting(
        0.0,
        "tags are learnt from each batch twice: as it is, and with words' vectors moved by this "
        "share of their length to where the loss rises the most (Miyato et al. 2017); 0: once",
        minimum=0,
    )
    lemma_weight: float = setting(
        0.5, "weight of the lemmas' loss beside that of the tags", minimum=0
    )
    share_parts: bool = setting(
        True,
        "tags that have morphemes in common, such as ncn+jxt and nq+jxt of XPOS, share weights",
    )
    sparse_epochs: int = setting(4, "epochs in which sparse features are learnt", minimum=1)
    dropout_sparse: float = setting(
        0.15, "share of the sparse features that a word is learnt without", minimum=0, below=1
    )


@dataclass(frozen=True)
class TaggerConfig(Config):
    """All settings of a tagger."""

    model: ModelConfig = setting(ModelConfig, "the network")
    learning: LearningConfig = setting(LearningConfig, "how it is taught")
    training: TrainingConfig = setting(TrainingConfig, "the training loop")


_TRAINING = {
    "epochs": 15,
    "optimiser": "adamw",
    "learning_rate": 0.003,
    "beta2": 0.95,  # 0.999 would move rare words' vectors too far (Dozat & Manning 2017)
    "schedule": "cosine",
    "clip_norm": 5.0,
}
PRESETS = Presets(
    KIND,
    TaggerConfig,
    {
        "accurate": {
            "model": {"encoder_size": 256},
            "learning": {"label_smoothing": 0.05, "adversarial": 0.1},
            "training": {**_TRAINING, "epochs": 18},
        },
        "fast": {
            "model": {
                "lexical_size": 64,
                "num_filters": 64,
                "encoder_size": 64,
                "encoder_layers": 1,
                "lemma_size": 64,
            },
            "training": _TRAINING,
        },
    },
    default="accurate",
)
preset, resolve = PRESETS.settings, PRESETS.resolve
