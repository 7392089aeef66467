"""Training: text or a prepared corpus -> counts -> probabilities -> a model on disk."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from seqtool.core import checkpoint, runtime, storage
from seqtool.core.arrays import Bools
from seqtool.core.config import from_dict, to_dict
from seqtool.core.errors import ConfigError, DataError, ModelError
from seqtool.core.one_line import OneLine
from seqtool.core.progress import shows_stages
from seqtool.core.reading import is_corpus
from seqtool.core.units import perplexity_of
from seqtool.core.vocabulary import UNK_ID, Vocabulary
from seqtool.lm.evaluation import cut_sentences, evaluate_lm
from seqtool.lm.held_out import describe_held_out, moved
from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.data import (
    Disk,
    Reading,
    given_splits,
    limited,
    memory_needed,
    read_ids,
    sound_files,
)
from seqtool.lm.ngram.engine import database
from seqtool.lm.ngram.model import NgramModel, TableModel, model_card, save_model
from seqtool.lm.ngram.table import BackoffTable
from seqtool.text.prepared import PreparedCorpus, plan_splits
from seqtool.text.tokenizers import Tokenizer, WordTokenizer

# called with a stage of the work, and how much of it is done, of how much if that is known
OnProgress = Callable[[str, int, "int | None"], None]

Measure = Callable[[TableModel], dict[str, float]]

MOST_UNKNOWN = 0.2  # of the words of a text that are not in a given list, without a word of warning
EXISTS = "replace it with --force, or choose another with -o"


@dataclass(frozen=True, kw_only=True)
class CountedTraining(OneLine):
    """A model that was made of counts, and what its training tells.

    Attributes:
        path: the model's directory.
        scores: "valid_perplexity" where the corpus has a valid split, and others.
        num_tokens: tokens of the text, `</s>` counted.
        num_sentences: sentences of the text.
        num_unknown: tokens of the text that are unknown words.
        vocabulary_size: V.
        seconds: wall time per stage that there was.
    """

    shown = ("path", "scores", "num_tokens", "num_unknown", "vocabulary_size")

    path: Path
    scores: dict[str, float]
    num_tokens: int
    num_sentences: int
    num_unknown: int
    vocabulary_size: int
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def total_seconds(self) -> float:
        """Wall time in all."""
        return sum(self.seconds.values())


@dataclass(frozen=True, kw_only=True)
class NgramTraining(CountedTraining):
    """An n-gram model that was trained, and what its training tells.

    Stages are checking, reading, counting, estimating, pruning, measuring, saving, writing ARPA and
    writing Parquet.

    Attributes:
        arpa: the ARPA file, if one was written.
        parquet: the directory of Parquet files, if one was written.
        engine: which engine was taken, and why.
        statistics: per order, what `estimate` tells.
        warnings: what a user should know of the estimation.
        skipped: what was wrong with each file that was left out.
    """

    arpa: Path | None
    parquet: Path | None
    engine: str
    statistics: list[dict[str, Any]]
    warnings: list[str]
    skipped: list[str] = field(default_factory=list)

    @cached_property
    def model(self) -> TableModel:
        """The model, opened from `path`: an `NgramModel`, or a `ClassModel` of classes."""
        model: TableModel = checkpoint.load(self.path)
        return model

    @property
    def num_ngrams(self) -> int:
        """The n-grams of the model, of all orders."""
        return sum(int(order["ngrams"]) for order in self.statistics)


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
    engine: str = "auto",
    temp: str | Path | None = None,
    parquet: str | Path | None = None,
    skip_invalid: bool = False,
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
        memory: how many bytes the process may take, in all; what the machine has when None.
        engine: what estimates: "memory", in which all n-grams must fit; "duckdb", which takes the
            disk for the rest; or "auto": the former where it fits, else the latter.
        temp: the folder for temporary files, if there are any; beside the output when None.
        parquet: a directory to write the n-grams to as Parquet, too; see `parquet`.
        skip_invalid: leave out files that cannot be read to their end; they are told in `skipped`.
        command: what the user typed, for the model card.
        on_progress: called with the stage and its progress.
        progress: show the stages on a terminal; if None, where there is no `on_progress`.

    Raises:
        ConfigError: settings that contradict one another or the text.
        DataError: text that is not there, empty, damaged or too large for the memory.
        OutputError: the output exists, or cannot be written.
    """
    paths = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    if not isinstance(config, NgramConfig | Mapping | None):
        raise TypeError(f"expected an NgramConfig, or settings as a dictionary, not {config!r}")
    config = from_dict(NgramConfig, config) if isinstance(config, Mapping) else config
    config = config or NgramConfig()
    threads = threads or runtime.available_threads()
    check_engine(engine, config)
    if engine == "spark":
        raise ConfigError(
            "the engine spark needs a session of Spark",
            hint="call seqtool.spark.train_ngram, or choose another engine",
        )
    if config.classes is not None and (arpa is not None or parquet is not None):
        # an n-gram of classes would be as many of words as the classes have in all combinations
        raise ConfigError(
            "a model of classes has no list of n-grams of words of a sensible size",
            hint="leave --arpa and --parquet out; `seqtool eval-ppl` mixes it with other models",
        )
    read = [*paths, *config.files]
    check_output(read, Path(output), force=force, arpa=arpa, parquet=parquet)
    texts, valid = given_splits(paths)
    stages = Stages(on_progress)
    skipped: list[DataError] = []
    if skip_invalid and not is_corpus(texts[0]):
        with stages("checking"):
            texts, skipped = sound_files(texts, field=field)
    with ExitStack() as stack:

        def make_folder() -> Path | None:
            if engine == "auto" and database.missing_package():
                return None  # the memory is found too small, and that is told
            database.check_packages()
            database.check_least(memory)
            folder = database.temporary_folder(Path(output), temp)
            return stack.enter_context(folder)

        is_for_disk = engine != "memory" and not config.classes and config.discounts == "paper"
        with stages("reading") as on_read:
            reading = read_ids(
                texts,
                config,
                field=field,
                memory=memory,
                disk=Disk(engine == "duckdb", make_folder) if is_for_disk else None,
                on_progress=on_read,
            )
        tokenizer, data = reading.tokenizer, {**reading.description, **held_out(paths, output)}
        num_unknown, allowed = reading.num_unknown, None
        if config.limit_vocab is not None:
            all_words = tokenizer.vocabulary.symbols
            tokenizer, allowed = limited(tokenizer, config.limit_vocab)
            new_ids_V = tokenizer.vocabulary.encode(all_words)
            num_unknown = tokenizer.vocabulary.counts[UNK_ID]
        check_words(tokenizer.vocabulary, arpa, parquet)
        about = {"config": to_dict(config), "data": data, "command": command}
        making = _Making(Path(output), config, threads, memory, allowed, tokenizer, about, stages)
        summary = {
            "engine": _why_engine(engine, reading, config),
            "num_tokens": len(reading.ids),
            "num_sentences": reading.description["splits"]["train"]["sentences"],
            "num_unknown": num_unknown,
            "vocabulary_size": len(tokenizer.vocabulary),
            "skipped": [str(error) for error in skipped],
        }

        def measure(model: TableModel) -> dict[str, float]:
            split = "valid" if is_corpus(valid[0]) else None
            with stages("measuring") as on_measure:
                if split and allowed is not None:  # the ids of the corpus are of all words
                    ids = PreparedCorpus.open(valid[0]).ids(split)
                    blocks = (new_ids_V[block] for block, _ in cut_sentences(ids, on_measure))
                    nats = math.fsum(of.log_probs.sum() for of in model.score_ids(blocks))
                    return {"valid_perplexity": perplexity_of(-nats / len(ids))}
                found = evaluate_lm(model, valid, split=split, field=field, on_progress=on_measure)
            return {"valid_perplexity": found.perplexity}

        make = making.in_memory if reading.folder is None else making.on_disk
        held = [reading]
        del reading  # its ids are four bytes per token, and to be let go when they are counted
        made = make(held.pop(), measure if valid else None)
    num_words = summary["num_tokens"] - summary["num_sentences"]
    warnings = write_copies(
        made.table,
        tokenizer.vocabulary,
        stages,
        arpa=arpa,
        parquet=parquet,
        force=force,
        threads=threads,
    )
    return NgramTraining(
        path=Path(output),
        arpa=None if arpa is None else Path(arpa),
        parquet=None if parquet is None else Path(parquet),
        statistics=made.statistics,
        warnings=[*unknown_warnings(config, num_unknown, num_words), *made.warnings, *warnings],
        scores=made.scores,
        seconds=stages.seconds,
        **summary,
    )


def unknown_warnings(config: NgramConfig, num_unknown: int, num_words: int) -> list[str]:
    """Return a warning where many words of the text are not in the list that is given.

    A list of fewer words than the text has is usual, so the share is larger than the one from which
    `eval-ppl` warns; one in another case or with other punctuation leaves out more.
    """
    words = config.vocab or config.limit_vocab
    if words is None or num_unknown <= MOST_UNKNOWN * num_words:
        return []
    return [
        f"{num_unknown / num_words:.0%} of the words are not in {words}: see whether it writes "
        "words as the text does, with their case and punctuation"
    ]


def check_words(
    vocabulary: Vocabulary, arpa: str | Path | None, parquet: str | Path | None
) -> None:
    """Refuse words that a copy of the model could not hold, before it is estimated."""
    if arpa is not None or parquet is not None:
        from seqtool.lm.ngram.arpa import check_symbols

        check_symbols(vocabulary)


def write_copies(
    table: BackoffTable,
    vocabulary: Vocabulary,
    stages: Stages,
    *,
    arpa: str | Path | None,
    parquet: str | Path | None,
    force: bool,
    threads: int,
) -> list[str]:
    """Write a model as ARPA and as Parquet too, if that is asked for; return what to warn of.

    Raises:
        OutputError: one cannot be written.
    """
    warnings: list[str] = []
    if arpa is not None:
        from seqtool.lm.ngram.arpa import warnings_of, write_arpa

        warnings = warnings_of(table)
        with stages("writing ARPA") as on_write:
            write_arpa(table, vocabulary, arpa, threads=threads, on_progress=on_write)
    if parquet is not None:
        from seqtool.lm.ngram.parquet import write_parquet

        with stages("writing Parquet") as on_write:
            write_parquet(table, vocabulary, parquet, force=force, on_progress=on_write)
    return warnings


def _why_engine(engine: str, reading: Reading, config: NgramConfig) -> str:
    """Return in one line which engine is taken, and why."""
    needed = runtime.size_text(memory_needed(len(reading.ids), config.order))
    purpose = f"{len(reading.ids):,} tokens at order {config.order} take about {needed} in memory"
    if engine != "auto":
        return f"{engine}, as was asked for; {purpose}"
    if reading.folder is not None:
        return f"duckdb, as {purpose}, which is more than there is"
    return f"memory, as {purpose}"


@dataclass(frozen=True)
class _Made:
    """A model that is in its directory."""

    path: Path
    statistics: list[dict[str, Any]]
    warnings: list[str]
    scores: dict[str, float]
    held: BackoffTable | None = None  # if it is in memory

    @cached_property
    def table(self) -> BackoffTable:
        """The table, mapped if it is not in memory."""
        return self.held or checkpoint.load(self.path, NgramModel).table


@dataclass(frozen=True)
class _Making:
    """Makes a model of a text that was read; see `train_ngram`."""

    output: Path
    config: NgramConfig
    threads: int
    memory: int | None
    allowed: Bools | None
    tokenizer: Tokenizer
    about: dict[str, Any]
    stages: Stages

    def in_memory(self, reading: Reading, measure: Measure | None) -> _Made:
        """Count and estimate in memory, measure the model, and save it."""
        from seqtool.lm.ngram.counts import count_ngrams

        ids, num_symbols, classes = reading.ids, len(reading.tokenizer.vocabulary), None
        if self.config.classes is not None:
            from seqtool.lm.ngram.classes import ClassModel, read_classes

            counts_V = np.bincount(ids, minlength=num_symbols)
            classes = read_classes(self.config.classes, reading.tokenizer, counts_V)
            ids, num_symbols = classes.class_V[ids], len(classes)
            self.about["data"]["classes"] = num_symbols
        with self.stages("counting") as on_count:
            counts = count_ngrams(
                ids,
                self.config.order,
                num_symbols,
                threads=self.threads,
                kenlm_quirk=self.config.discounts == "kenlm",
                memory=self.memory,
                on_progress=on_count,
            )
        from seqtool.lm.ngram.smoothing import estimate

        del reading, ids
        with self.stages("estimating"):
            estimated = estimate(counts, self.config, threads=self.threads, allowed=self.allowed)
        del counts
        table, statistics = estimated.table, estimated.statistics
        if self.config.prune_entropy:
            from seqtool.lm.ngram.pruning import prune_by_entropy, with_sizes

            with self.stages("pruning"):
                table = prune_by_entropy(table, self.config.prune_entropy)
            statistics = with_sizes(statistics, table)
        model: TableModel = NgramModel(table, self.tokenizer)
        if classes is not None:
            model = ClassModel(table, classes, self.tokenizer)
        scores = {} if measure is None else measure(model)
        with self.stages("saving"):
            with_seconds = {**scores, "train_seconds": sum(self.stages.seconds.values())}
            save_model(self.output, model, scores=with_seconds, statistics=statistics, **self.about)
        return _Made(self.output, statistics, estimated.warnings, scores, table)

    def on_disk(self, reading: Reading, measure: Measure | None) -> _Made:
        """Have DuckDB count and estimate, save the model as it comes, and measure it then."""
        from seqtool.lm.ngram.engine.estimation import estimated_on_disk
        from seqtool.lm.ngram.engine.output import save_estimated

        assert reading.folder is not None
        with ExitStack() as stack:
            with self.stages("estimating") as on_estimate:
                engine, estimated = stack.enter_context(
                    estimated_on_disk(
                        reading.ids,
                        len(reading.tokenizer.vocabulary),
                        self.config,
                        reading.folder,
                        threads=self.threads,
                        memory=self.memory,
                        allowed=self.allowed,
                        on_progress=on_estimate,
                    )
                )
            with self.stages("saving") as on_save:
                statistics = save_estimated(
                    self.output,
                    self.tokenizer,
                    engine,
                    estimated,
                    memory=self.memory,
                    on_progress=on_save,
                    scores={"train_seconds": sum(self.stages.seconds.values())},
                    **self.about,
                )
        scores: dict[str, float] = {}
        if measure is not None:
            model = checkpoint.load(self.output, NgramModel)
            scores = measure(model)
            header = checkpoint.read_header(self.output)
            header = replace(header, scores={**scores, **header.scores})
            checkpoint.amend(
                self.output, header, model_card(header, [*map(len, model.table.levels)])
            )
        return _Made(self.output, statistics, estimated.warnings, scores)


@runtime.writes_to("output")
def import_ngrams(
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
        ModelError: it is no such file, or damaged.
        OutputError: the output exists.
    """
    checkpoint.check_output(output, force=force, hint=EXISTS)
    data, notes = {"imported_from": str(source)}, list[str]()
    from seqtool.lm.ngram.arpa import read_arpa

    table, vocabulary = read_arpa(source, on_progress=on_progress, on_note=notes.append)
    model = NgramModel(table, WordTokenizer(vocabulary, lowercase=lowercase))
    save_model(output, model, config={"order": table.order}, data=data, command=command)
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
    from seqtool.lm.ngram.arpa import check_arpa, check_symbols, write_arpa
    from seqtool.lm.ngram.pruning import prune_by_entropy, with_sizes

    if not 0 < threshold < 1:
        raise ConfigError(
            f"the threshold is {threshold:g}, but must be between 0 and 1",
            hint="try 1e-8; more leaves out more",
        )
    checkpoint.check_output(output, force=force, hint=EXISTS)
    check_arpa(arpa, [source])
    model = open_ngram(source, "are pruned")
    if arpa is not None:
        check_symbols(model.tokenizer.vocabulary)
    config: dict[str, Any] = {"order": model.order}
    data: dict[str, Any] = {"pruned_from": str(source)}
    statistics: list[dict[str, Any]] = []
    if Path(source).is_dir():
        header = checkpoint.read_header(source)
        config, data = header.config, {**moved(header.data, source, output), **data}
        statistics = header.statistics.get("orders", [])
        if not all(isinstance(of_order, dict) for of_order in statistics):
            hint = "copy the model again, or train it again"
            raise ModelError("its statistics are damaged", hint=hint, path=source)
    table = prune_by_entropy(model.table, threshold)
    save_model(
        output,
        NgramModel(table, model.tokenizer),
        config={**config, "prune_entropy": max(threshold, config.get("prune_entropy", 0.0))},
        data=data,
        command=command,
        statistics=with_sizes(statistics, table),
    )
    if arpa is not None:
        write_arpa(table, model.tokenizer.vocabulary, arpa, threads=threads)
    return model.table, table


def check_engine(engine: str, config: NgramConfig) -> None:
    """Refuse an engine that is none, or that cannot do what the settings say.

    Raises:
        ConfigError: so it is.
    """
    database.check_engine(engine)
    if engine in ("duckdb", "spark") and config.classes is not None:
        raise ConfigError(
            "n-grams of classes are counted in memory only",
            hint="leave --engine out; with classes, a model is small",
        )
    if engine in ("duckdb", "spark") and config.discounts == "kenlm":
        raise ConfigError(
            "KenLM's counts-of-counts are found in memory only",
            hint="leave --engine out, or --discounts",
        )


def check_output(
    paths: Sequence[str | Path],
    output: Path,
    *,
    force: bool,
    arpa: str | Path | None = None,
    parquet: str | Path | None = None,
) -> None:
    """Refuse, before the work begins, what could not be written or would destroy the input."""
    checkpoint.check_output(output, force=force, hint=EXISTS)
    for path in (*paths, output):
        storage.refuse_unwritable_name(path, checkpoint.HEADER)
    for path in paths:
        if output.exists() and Path(path).resolve().is_relative_to(output.resolve()):
            raise ConfigError(
                f"the corpus {path} lies in {output}, which is to be replaced",
                hint="choose another output with -o",
            )
    if arpa is not None:
        from seqtool.lm.ngram.arpa import check_arpa

        check_arpa(arpa, paths)
    if parquet is not None:
        from seqtool.lm.ngram.parquet import check_directory

        check_directory(parquet, force=force)


def held_out(paths: Sequence[str | Path], output: str | Path) -> dict[str, Any]:
    """Return what the model records of the corpus or the files that it was not trained on."""
    if is_corpus(paths[0]):
        return describe_held_out(output, corpus=paths[0])
    return describe_held_out(output, files=plan_splits(paths).files)
