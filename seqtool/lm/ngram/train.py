"""Training: text or a prepared corpus -> counts -> probabilities -> a model on disk."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seqtool.core import checkpoint, runtime
from seqtool.core.config import from_dict, to_dict
from seqtool.core.errors import ConfigError, ModelError
from seqtool.core.progress import shows_stages
from seqtool.core.reading import is_corpus
from seqtool.core.vocabulary import UNK_ID
from seqtool.lm.held_out import describe_held_out
from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.data import Reading, given_splits, limited, read_ids
from seqtool.lm.ngram.model import NgramModel, save_model
from seqtool.lm.ngram.table import BackoffTable
from seqtool.lm.protocol import evaluate_lm
from seqtool.text.preparation import plan_splits
from seqtool.text.tokenizers import WordTokenizer

if TYPE_CHECKING:
    from seqtool.lm.ngram.classes import ClassModel, WordClasses
    from seqtool.lm.ngram.counts import Counts

# called with a stage of the work, and how much of it is done, of how much if that is known
OnProgress = Callable[[str, int, "int | None"], None]

EXISTS = "replace it with --force, or choose another with -o"


@dataclass(frozen=True)
class NgramTraining:
    """A model that was trained, and what its training tells.

    Attributes:
        path: the model's directory.
        arpa: the ARPA file, if one was written.
        statistics: per order, what `estimate` tells.
        warnings: what a user should know of the estimation.
        scores: "valid_perplexity" where the corpus has a valid split.
        num_tokens: tokens of the text, `</s>` counted.
        num_sentences: sentences of the text.
        num_unknown: tokens of the text that are unknown words.
        vocabulary_size: V.
        seconds: wall time per stage: reading, counting, estimating, pruning, measuring, saving,
            writing ARPA; those that there were.
    """

    path: Path
    arpa: Path | None
    statistics: list[dict[str, Any]]
    warnings: list[str]
    scores: dict[str, float]
    num_tokens: int
    num_sentences: int
    num_unknown: int
    vocabulary_size: int
    seconds: dict[str, float] = field(default_factory=dict)

    @cached_property
    def model(self) -> NgramModel | ClassModel:
        """The model, opened from `path`; of classes where they were given."""
        model: NgramModel | ClassModel = checkpoint.load(self.path)
        return model

    @property
    def num_ngrams(self) -> int:
        """The n-grams of the model, of all orders."""
        return sum(int(order["ngrams"]) for order in self.statistics)

    @property
    def total_seconds(self) -> float:
        """Wall time in all."""
        return sum(self.seconds.values())


class Stages:
    """Times the stages of the work and passes their progress on."""

    def __init__(self, on_progress: OnProgress | None) -> None:
        self._on_progress = on_progress or (lambda stage, done, total: None)
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[Callable[[int, int | None], None]]:
        """Time one stage; gives what its progress is told to."""
        began = time.perf_counter()
        self._on_progress(stage, 0, None)
        yield lambda done, total: self._on_progress(stage, done, total)
        self.seconds[stage] = time.perf_counter() - began


@shows_stages
@runtime.writes_to("output")
def train_ngram(
    inputs: str | Path | Sequence[str | Path],
    output: str | Path = "runs/ngram",
    config: NgramConfig | Mapping[str, Any] | None = None,
    *,
    field: str | None = None,
    arpa: str | Path | None = None,
    force: bool = False,
    threads: int | None = None,
    memory: int | None = None,
    command: str = "",
    on_progress: OnProgress | None = None,
    progress: bool | None = None,
) -> NgramTraining:
    """Estimate an n-gram model.

    Args:
        inputs: text files, directories or `-`; a directory with train.* and valid.* files, of which
            train is read; or one prepared corpus, of any unit.
        output: the model directory.
        config: all settings, or a dictionary of those that are not the defaults.
        field: which field of .jsonl files holds the text.
        arpa: a file to write the model to as ARPA, too; "-" is stdout.
        force: replace a model that is there.
        threads: CPU threads; all cores when None.
        memory: how many bytes the process may take, in all; what the machine has when None. A text
            that needs more is refused.
        command: what the user typed, for the model card.
        on_progress: called with the stage and its progress.
        progress: show the stages on a terminal; if None, where there is no `on_progress`.

    Raises:
        ConfigError: settings that contradict one another or the text.
        DataError: text that is not there, empty, damaged or too large for the memory.
        OutputError: the output exists, or cannot be written.
    """
    paths = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    config = from_dict(NgramConfig, config) if isinstance(config, Mapping) else config
    config = config or NgramConfig()
    threads = threads or available_threads()
    check_output(paths, Path(output), arpa, force=force)
    if arpa is not None and config.classes is not None:
        # an n-gram of classes would be as many of words as the classes have in all combinations
        raise ConfigError(
            "a model of classes has no ARPA form of a sensible size",
            hint="leave --arpa out; `seqtool eval-ppl` mixes it with an n-gram model",
        )
    texts, valid = given_splits(paths)
    stages = Stages(on_progress)
    reading, classes, counts = _count(texts, config, field, threads, memory, stages)
    tokenizer, data = reading.tokenizer, {**reading.description, **held_out(paths, output)}
    if classes is not None:
        data["classes"] = len(classes)
    num_unknown, allowed = reading.num_unknown, None
    if config.limit_vocab is not None:
        tokenizer, allowed = limited(tokenizer, config.limit_vocab)
        num_unknown = tokenizer.vocabulary.counts[UNK_ID]
    sizes = {
        "num_tokens": counts.num_tokens,
        "num_sentences": counts.num_sentences,
        "num_unknown": num_unknown,
        "vocabulary_size": len(tokenizer.vocabulary),
    }
    if arpa is not None:
        from seqtool.lm.ngram.arpa import check_symbols

        check_symbols(tokenizer.vocabulary)
    from seqtool.lm.ngram.smoothing import estimate

    del reading  # its ids are four bytes per token
    with stages("estimating"):
        estimated = estimate(counts, config, threads=threads, allowed=allowed)
    del counts
    table, statistics = estimated.table, estimated.statistics
    if config.prune_entropy:
        from seqtool.lm.ngram.pruning import prune_by_entropy

        with stages("pruning"):
            table = prune_by_entropy(table, config.prune_entropy)
        statistics = _with_sizes(statistics, table)
    model: NgramModel | ClassModel = NgramModel(table, tokenizer)
    if classes is not None:
        from seqtool.lm.ngram.classes import ClassModel

        model = ClassModel(table, classes, tokenizer)
    scores = {}
    if valid:
        split = "valid" if is_corpus(valid[0]) else None
        with stages("measuring") as on_measure:
            evaluation = evaluate_lm(model, valid, split=split, field=field, on_progress=on_measure)
        scores["valid_perplexity"] = evaluation.perplexity
    with stages("saving"):
        save_model(
            output,
            model,
            config=to_dict(config),
            scores={**scores, "train_seconds": sum(stages.seconds.values())},
            data=data,
            command=command,
            statistics=statistics,
        )
    warnings = estimated.warnings
    if arpa is not None:
        from seqtool.lm.ngram.arpa import warnings_of, write_arpa

        warnings = [*warnings, *warnings_of(table)]

        with stages("writing ARPA") as on_write:
            write_arpa(table, tokenizer.vocabulary, arpa, threads=threads, on_progress=on_write)
    return NgramTraining(
        path=Path(output),
        arpa=None if arpa is None else Path(arpa),
        statistics=statistics,
        warnings=warnings,
        scores=scores,
        seconds=stages.seconds,
        **sizes,
    )


def _count(
    texts: Sequence[str | Path],
    config: NgramConfig,
    field: str | None,
    threads: int,
    memory: int | None,
    stages: Stages,
) -> tuple[Reading, WordClasses | None, Counts]:
    from seqtool.lm.ngram.counts import count_ngrams

    with stages("reading") as on_read:
        reading = read_ids(texts, config, field=field, memory=memory, on_progress=on_read)
    ids, num_symbols, classes = reading.ids, len(reading.tokenizer.vocabulary), None
    if config.classes is not None:
        from seqtool.lm.ngram.classes import read_classes

        word_counts = np.bincount(ids, minlength=num_symbols)
        classes = read_classes(config.classes, reading.tokenizer, word_counts)
        ids, num_symbols = classes.class_V[ids], len(classes)
    with stages("counting") as on_count:
        counts = count_ngrams(
            ids,
            config.order,
            num_symbols,
            threads=threads,
            kenlm_quirk=config.discounts == "kenlm",
            memory=memory,
            on_progress=on_count,
        )
    return reading, classes, counts


@runtime.writes_to("output")
def import_arpa(
    source: str | Path,
    output: str | Path,
    *,
    lowercase: bool = False,
    force: bool = False,
    command: str = "",
    on_progress: Callable[[int, int | None], None] | None = None,
) -> tuple[BackoffTable, list[str]]:
    """Turn an ARPA file into a model directory.

    Args:
        source: the file, or `-` for stdin.
        output: the directory.
        lowercase: whether texts are to be lower-cased for the model.
        force: replace a model that is there.
        command: what the user typed, for the model card.
        on_progress: called with (bytes read, their total or None).

    Returns:
        The table, and a line for each thing that is not as the file has it.

    Raises:
        ModelError: the file is no ARPA file, or damaged.
        OutputError: the output exists.
    """
    from seqtool.lm.ngram.arpa import read_arpa

    checkpoint.check_output(output, force=force, hint=EXISTS)
    notes: list[str] = []
    table, vocabulary = read_arpa(source, on_progress=on_progress, on_note=notes.append)
    model = NgramModel(table, WordTokenizer(vocabulary, lowercase=lowercase))
    save_model(
        output,
        model,
        config={"order": table.order},
        data={"imported_from": str(source)},
        command=command,
    )
    return table, notes


def open_ngram(path: str | Path, purpose: str) -> NgramModel:
    """Open an n-gram model, a directory or an ARPA file.

    Args:
        path: of the model.
        purpose: what only n-gram models are good for, as a message says it.

    Raises:
        ModelError: there is none, it is damaged, or it is of another kind.
    """
    model = checkpoint.load(path)
    if not isinstance(model, NgramModel):
        raise ModelError(
            f"is a model of kind {model.kind}, and only n-gram models {purpose}",
            hint="name one that `seqtool ngram train` made without --classes",
            path=path,
        )
    return model


@runtime.writes_to("output")
def prune_model(
    source: str | Path,
    output: str | Path,
    threshold: float,
    *,
    arpa: str | Path | None = None,
    force: bool = False,
    threads: int = 1,
    command: str = "",
) -> tuple[BackoffTable, BackoffTable]:
    """Prune a model by relative entropy; see `pruning`.

    Args:
        source: the model, or an ARPA file.
        output: the directory of the pruned one.
        threshold: the share by which the perplexity may grow for each n-gram.
        arpa: a file to write it to as ARPA, too; "-" is stdout.
        force: replace a model that is there.
        threads: that write the ARPA file.
        command: what the user typed, for the model card.

    Returns:
        The table as it was, and as it is.

    Raises:
        ConfigError: a threshold that is none.
        ModelError: there is no such model, or it is of another kind.
        OutputError: the output exists, or cannot be written.
    """
    from seqtool.lm.ngram.arpa import check_symbols, check_target, write_arpa
    from seqtool.lm.ngram.pruning import prune_by_entropy

    if not 0 < threshold < 1:
        raise ConfigError(
            f"the threshold is {threshold:g}, but must be between 0 and 1",
            hint="try 1e-8; more leaves out more",
        )
    checkpoint.check_output(output, force=force, hint=EXISTS)
    check_target(arpa)
    model = open_ngram(source, "are pruned")
    if arpa is not None:
        check_symbols(model.tokenizer.vocabulary)
    config: dict[str, Any] = {"order": model.order}
    data: dict[str, Any] = {"pruned_from": str(source)}
    statistics: list[dict[str, Any]] = []
    if Path(source).is_dir():
        header = checkpoint.read_header(source)
        config, data = header.config, {**header.data, **data}
        statistics = header.statistics.get("orders", [])
    table = prune_by_entropy(model.table, threshold)
    save_model(
        output,
        NgramModel(table, model.tokenizer),
        config={**config, "prune_entropy": max(threshold, config.get("prune_entropy", 0.0))},
        data=data,
        command=command,
        statistics=_with_sizes(statistics, table),
    )
    if arpa is not None:
        write_arpa(table, model.tokenizer.vocabulary, arpa, threads=threads)
    return model.table, table


def _with_sizes(statistics: Sequence[dict[str, Any]], table: BackoffTable) -> list[dict[str, Any]]:
    """Return what is told of each order, with the n-grams that a pruned table has."""
    sizes = [*map(len, table.levels), *[0] * len(statistics)]
    return [{**told, "ngrams": size} for told, size in zip(statistics, sizes, strict=False)]


def available_threads() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_output(
    paths: Sequence[str | Path], output: Path, arpa: str | Path | None, *, force: bool
) -> None:
    """Refuse, before the work begins, what could not be written or would destroy the input."""
    checkpoint.check_output(output, force=force, hint=EXISTS)
    for path in paths:
        if output.exists() and Path(path).resolve().is_relative_to(output.resolve()):
            raise ConfigError(
                f"the corpus {path} lies in {output}, which is to be replaced",
                hint="choose another output with -o",
            )
    if arpa is not None:
        from seqtool.lm.ngram.arpa import check_target

        check_target(arpa)


def held_out(paths: Sequence[str | Path], output: str | Path) -> dict[str, Any]:
    """Return what the model records of the corpus or the files that it was not trained on."""
    if is_corpus(paths[0]):
        return describe_held_out(output, corpus=paths[0])
    return describe_held_out(output, files=plan_splits(paths).files)
