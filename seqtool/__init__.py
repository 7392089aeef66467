"""Train, measure and use language models and dependency parsers, on an ordinary computer.

What is public is listed in `_PUBLIC`, and is imported on first use: `import seqtool` costs nothing.
"""

from __future__ import annotations

from importlib import import_module

from seqtool.core.version import __version__ as __version__

TYPE_CHECKING = False  # `typing` would be most of what is imported before Ctrl-C is quiet
if TYPE_CHECKING:
    from seqtool.classification.config import ClassifierConfig as ClassifierConfig
    from seqtool.classification.model import Classifier as Classifier
    from seqtool.classification.train import train_classifier as train_classifier
    from seqtool.core.checkpoint import load as load
    from seqtool.core.errors import ConfigError as ConfigError
    from seqtool.core.errors import DataError as DataError
    from seqtool.core.errors import DownloadError as DownloadError
    from seqtool.core.errors import Interrupted as Interrupted
    from seqtool.core.errors import ModelError as ModelError
    from seqtool.core.errors import OutputError as OutputError
    from seqtool.core.errors import ProcessError as ProcessError
    from seqtool.core.errors import PromptError as PromptError
    from seqtool.core.errors import SeqtoolError as SeqtoolError
    from seqtool.core.errors import TrainingError as TrainingError
    from seqtool.core.vocabulary import Vocabulary as Vocabulary
    from seqtool.lm.comparison import compare_lms as compare_lms
    from seqtool.lm.evaluation import evaluate_lm as evaluate_lm
    from seqtool.lm.model import LanguageModel as LanguageModel
    from seqtool.lm.neural.config import DataConfig as DataConfig
    from seqtool.lm.neural.config import ModelConfig as ModelConfig
    from seqtool.lm.neural.config import NeuralLMConfig as NeuralLMConfig
    from seqtool.lm.neural.train import train_lm as train_lm
    from seqtool.lm.ngram.config import NgramConfig as NgramConfig
    from seqtool.lm.ngram.train import train_ngram as train_ngram
    from seqtool.lm.pairs import MinimalPair as MinimalPair
    from seqtool.lm.pairs import evaluate_pairs as evaluate_pairs
    from seqtool.lm.pairs import read_pairs as read_pairs
    from seqtool.lm.sampling import GenerateConfig as GenerateConfig
    from seqtool.lm.sampling import generate as generate
    from seqtool.lm.snm.features import SnmConfig as SnmConfig
    from seqtool.lm.snm.learning import train_snm as train_snm
    from seqtool.lm.words import score_words as score_words
    from seqtool.parsing.parser.config import ParserConfig as ParserConfig
    from seqtool.parsing.parser.parser import Parser as Parser
    from seqtool.parsing.parser.train import train_parser as train_parser
    from seqtool.parsing.pipeline.config import PipelineConfig as PipelineConfig
    from seqtool.parsing.pipeline.model import Pipeline as Pipeline
    from seqtool.parsing.pipeline.train import train_pipeline as train_pipeline
    from seqtool.parsing.segmenter.config import SegmenterConfig as SegmenterConfig
    from seqtool.parsing.segmenter.model import Segmenter as Segmenter
    from seqtool.parsing.segmenter.train import train_segmenter as train_segmenter
    from seqtool.parsing.syntactic.train import train_syntactic as train_syntactic
    from seqtool.parsing.tagger.config import LabellerConfig as LabellerConfig
    from seqtool.parsing.tagger.config import TaggerConfig as TaggerConfig
    from seqtool.parsing.tagger.labeller import Labeller as Labeller
    from seqtool.parsing.tagger.model import Tagger as Tagger
    from seqtool.parsing.tagger.train import train_labeller as train_labeller
    from seqtool.parsing.tagger.train import train_tagger as train_tagger
    from seqtool.text.prepared import PrepareConfig as PrepareConfig
    from seqtool.text.prepared import prepare as prepare
    from seqtool.training.config import TrainingConfig as TrainingConfig
    from seqtool.training.tuning import tune as tune
    from seqtool.treebank.conllu import read_conllu as read_conllu
    from seqtool.treebank.conllu import write_conllu as write_conllu
    from seqtool.treebank.document import Doc as Doc
    from seqtool.treebank.evaluation import evaluate_parser as evaluate_parser
    from seqtool.treebank.queries import filter as filter
    from seqtool.treebank.sentence import Sentence as Sentence
    from seqtool.treebank.sentence import Token as Token

_MODULES = {
    "classification.config": "ClassifierConfig",
    "classification.model": "Classifier",
    "classification.train": "train_classifier",
    "core.checkpoint": "load",
    "core.errors": "ConfigError DataError DownloadError Interrupted ModelError OutputError "
    "ProcessError PromptError SeqtoolError TrainingError",
    "core.vocabulary": "Vocabulary",
    "lm.comparison": "compare_lms",
    "lm.model": "LanguageModel",
    "lm.neural.config": "DataConfig ModelConfig NeuralLMConfig",
    "lm.neural.train": "train_lm",
    "lm.ngram.config": "NgramConfig",
    "lm.ngram.train": "train_ngram",
    "lm.pairs": "MinimalPair evaluate_pairs read_pairs",
    "lm.evaluation": "evaluate_lm",
    "lm.sampling": "GenerateConfig generate",
    "lm.snm.features": "SnmConfig",
    "lm.snm.learning": "train_snm",
    "lm.words": "score_words",
    "parsing.parser.config": "ParserConfig",
    "parsing.parser.parser": "Parser",
    "parsing.parser.train": "train_parser",
    "parsing.pipeline.config": "PipelineConfig",
    "parsing.pipeline.model": "Pipeline",
    "parsing.pipeline.train": "train_pipeline",
    "parsing.segmenter.config": "SegmenterConfig",
    "parsing.segmenter.model": "Segmenter",
    "parsing.segmenter.train": "train_segmenter",
    "parsing.syntactic.train": "train_syntactic",
    "parsing.tagger.config": "LabellerConfig TaggerConfig",
    "parsing.tagger.labeller": "Labeller",
    "parsing.tagger.model": "Tagger",
    "parsing.tagger.train": "train_labeller train_tagger",
    "text.prepared": "PrepareConfig prepare",
    "training.config": "TrainingConfig",
    "training.tuning": "tune",
    "treebank.conllu": "read_conllu write_conllu",
    "treebank.document": "Doc",
    "treebank.evaluation": "evaluate_parser",
    "treebank.queries": "filter",
    "treebank.sentence": "Sentence Token",
}
_PUBLIC = {
    name: f"seqtool.{module}" for module, names in _MODULES.items() for name in names.split()
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> object:
    if name == "spark":  # a module, with functions that have the names of commands
        return import_module("seqtool.spark")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'seqtool' has no attribute {name!r}")
    value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value  # the next access does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
