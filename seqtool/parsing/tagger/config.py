"""Settings of a tagger and lemmatizer and of a labeller of words, and their presets."""

from __future__ import annotations

from dataclasses import dataclass

from seqtool.core.config import Config, setting
from seqtool.core.errors import ConfigError
from seqtool.parsing.config import Presets, count, depth, share, width
from seqtool.parsing.sparse.engine import NAME
from seqtool.parsing.sparse.words import FEWEST_BITS, chosen, compile_templates
from seqtool.training.config import TrainingConfig

SMALLEST_STEP = 64  # smaller ones take as long


@dataclass(frozen=True)
class EncoderConfig(Config):
    """How words are read: forms and their characters, then a bilstm."""

    lexical_size: int = width(128, "width of the vector of a form and its affixes")
    character_size: int = width(32, "width of a character's vector")
    filter_width: int = depth(5, "characters that a filter sees; odd")
    num_filters: int = width(128, "filters over the characters of a form")
    encoder_size: int = width(192, "bilstm: units of each direction")
    encoder_layers: int = depth(2, "bilstm: layers")
    min_count: int = count(2, "rarer forms, affixes and characters count as unknown")

    def check(self) -> None:
        """Refuse filters that have no middle."""
        if self.filter_width % 2 == 0:
            raise ConfigError(
                f"filter_width is {self.filter_width}, but must be odd", hint="add or take 1"
            )


@dataclass(frozen=True)
class TaggerModelConfig(EncoderConfig):
    """What the network is."""

    lemma_size: int = width(128, "hidden units of the lemmatizer")
    min_script_count: int = count(
        2, "rarer edit scripts are only for the forms that they were met with"
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

    batch_words: int = count(512, "words per step, about")
    min_steps: int = count(
        256,
        "steps per epoch: of a small treebank, a step has fewer words, but no fewer than "
        f"{SMALLEST_STEP}",
    )
    dropout_words: float = setting(
        0.5, "a symbol seen n times is taken for unknown with probability x / (x + n)", minimum=0
    )
    dropout_embeddings: float = share(0.33, "dropout on what the bilstm reads")
    dropout_encoder: float = share(0.4, "dropout between the bilstm's layers, and on its states")
    cloze_weight: float = setting(
        0.2, "weight of the loss of telling words by their context alone", minimum=0
    )
    averaging: float = share(
        0.999, "decay per step of the average that the tagger is made of; 0: the last weights"
    )


@dataclass(frozen=True)
class TaggerLearningConfig(EncoderLearningConfig):
    """How the network is taught, beside the settings of the training loop."""

    dropout_lemmas: float = share(0.3, "dropout on the lemmatizer's hidden units")
    label_smoothing: float = share(
        0.0,
        "share of what is learnt that all combinations of tags have alike (Szegedy et al. 2016), "
        "but none where they share morphemes (share_parts)",
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
    sparse_epochs: int = count(4, "epochs in which sparse features are learnt")
    dropout_sparse: float = share(
        0.15, "share of the sparse features that a word is learnt without"
    )


@dataclass(frozen=True)
class TaggerConfig(Config):
    """All settings of a tagger."""

    model: TaggerModelConfig = setting(TaggerModelConfig, "the network")
    learning: TaggerLearningConfig = setting(TaggerLearningConfig, "how it is taught")
    training: TrainingConfig = setting(TrainingConfig, "the training loop")


@dataclass(frozen=True)
class LabelsConfig(Config):
    """Where the labels stand."""

    column: str = setting("NER", "key of column MISC that holds the labels, as in NER=B-PER")
    word_column: int | None = count(None, "column of words in files with a word a line, from 1 on")
    label_column: int | None = count(None, "column of labels in such files")

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

    data: LabelsConfig = setting(LabelsConfig, "where the labels stand")
    model: EncoderConfig = setting(EncoderConfig, "the network")
    learning: EncoderLearningConfig = setting(EncoderLearningConfig, "how it is taught")
    training: TrainingConfig = setting(TrainingConfig, "the training loop")

    def as_tagger(self) -> TaggerConfig:
        """Return the settings of a tagger whose UPOS are the labels, and that learns no lemmas."""
        model = TaggerModelConfig(**vars(self.model), lemma_size=1, sparse_bits=0)
        learning = TaggerLearningConfig(**vars(self.learning), lemma_weight=0.0, share_parts=False)
        return TaggerConfig(model, learning, self.training)


_TRAINING = {
    "epochs": 15,
    "optimiser": "adamw",
    "learning_rate": 0.003,
    "beta2": 0.95,  # 0.999 would move rare words' vectors too far (Dozat & Manning 2017)
    "schedule": "cosine",
    "clip_norm": 5.0,
}
_SMALL = {"lexical_size": 64, "num_filters": 64, "encoder_size": 64, "encoder_layers": 1}
TAGGERS = Presets(
    "tagger",
    TaggerConfig,
    {
        "accurate": {
            "model": {"encoder_size": 256},
            "learning": {"label_smoothing": 0.05, "adversarial": 0.1},
            "training": {**_TRAINING, "epochs": 18},
        },
        "fast": {"model": {**_SMALL, "lemma_size": 64}, "training": _TRAINING},
    },
    default="accurate",
)
LABELLERS = Presets(
    "labeller",
    LabellerConfig,
    {
        "accurate": {"training": {**_TRAINING, "epochs": 18}},
        "fast": {"model": _SMALL, "training": _TRAINING},
    },
    default="accurate",
)
