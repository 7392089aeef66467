"""Training: text or a prepared corpus -> counts -> probabilities -> a model on disk."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seqtool.core import checkpoint, runtime, storage
from seqtool.core.arrays import Bools, Ids
from seqtool.core.config import from_dict, to_dict
from seqtool.core.errors import ConfigError, DataError, ModelError, did_you_mean
from seqtool.core.one_line import OneLine
from seqtool.core.progress import shows_stages
from seqtool.core.reading import is_corpus
from seqtool.core.units import perplexity_of
from seqtool.core.vocabulary import UNK_ID
from seqtool.lm.evaluation import cut_sentences, evaluate_lm
from seqtool.lm.held_out import describe_held_out, moved
from seqtool.lm.ngram.config import ENGINES, NgramConfig
from seqtool.lm.ngram.data import Disk, given_splits, limited, memory_needed, read_ids, sound_files
from seqtool.lm.ngram.engine import missing_package, temporary_folder
from seqtool.lm.ngram.model import NgramModel, TableModel, save_model
from seqtool.lm.ngram.table import BackoffTable
from seqtool.text.prepared import PreparedCorpus, plan_splits
from seqtool.text.tokenizers import Tokenizer, WordTokenizer

if TYPE_CHECKING:
    from seqtool.lm.ngram.classes import WordClasses
    from seqtool.lm.ngram.counts import Counts
    from seqtool.lm.ngram.engine.plan import Engine, Text
    from seqtool.lm.ngram.smoothing import Estimate

# called with a stage of the work, and how much of it is done, of how much if that is known
OnProgress = Callable[[str, int, "int | None"], None]

MOST_UNKNOWN = 0.2  # of the words of a text that are not in a given list, without a word of warning
EXISTS = "replace it with --force, or choose another with -o"
PRUNING_BYTES = 48  # of memory for each n-gram that is pruned by entropy


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
        """Time one stage, or more of it; gives the callback of its progress."""
        began = time.perf_counter()
        self._on_progress(stage, 0, None)
        yield lambda done, total: self._on_progress(stage, done, total)
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - began


@dataclass(frozen=True, kw_only=True)
class Job:
    """The options of a training; see `train_ngram`.

    Raises:
        ConfigError, OutputError: they contradict one another, or the output cannot be written.
    """

    inputs: Sequence[str | Path]
    output: Path
    config: NgramConfig
    stages: Stages
    engine: str = "auto"
    field: str | None = None
    arpa: Path | None = None
    parquet: Path | None = None
    force: bool = False
    threads: int = 1
    memory: int | None = None
    command: str = ""

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            what = f"no engine is called {self.engine!r}"
            raise ConfigError(what, hint=did_you_mean(self.engine, ENGINES))
        if self.engine in ("duckdb", "spark"):
            if self.config.classes is not None:
                what = "n-grams of classes are counted in memory only"
                raise ConfigError(what, hint="leave --engine out; with classes, a model is small")
            if self.config.discounts == "kenlm":
                what = "KenLM's counts-of-counts are found in memory only"
                raise ConfigError(what, hint="leave --engine out, or --discounts")
        if self.config.classes is not None and (self.arpa or self.parquet):
            # an n-gram of classes would be as many of words as the classes have in all combinations
            what = "a model of classes has no list of n-grams of words of a sensible size"
            hint = "leave --arpa and --parquet out; `seqtool eval-ppl` mixes it with other models"
            raise ConfigError(what, hint=hint)
        read = [*self.inputs, *self.config.files]
        check_output(read, self.output, force=self.force)
        if self.arpa is not None:
            from seqtool.lm.ngram.arpa import check_arpa

            check_arpa(self.arpa, read)
        if self.parquet is not None:
            from seqtool.lm.ngram.parquet import check_directory

            check_directory(self.parquet, force=self.force)


@dataclass(frozen=True, kw_only=True)
class TrainingText:
    """What is known of a text beside its ids, which are of V symbols: words, or classes of words.

    Attributes:
        tokenizer: of the model; without `limit_vocab`, it has the V symbols.
        data: what the model records of its data.
        num_unknown: tokens that are unknown words of the model.
        engine: which engine counts, and why.
        vocabulary_size: V.
        allowed: bool [V + 1], the symbols that the model has, `<s>` the last; None for all.
        new_ids: int32 [V], the id of each symbol in the model; None if it stays.
        classes: of the words, if the ids are classes.
        folder: of temporary files, where the memory is too small for the text.
    """

    tokenizer: Tokenizer
    data: dict[str, Any]
    num_unknown: int
    engine: str
    vocabulary_size: int = 0
    allowed: Bools | None = None
    new_ids: Ids | None = None
    classes: WordClasses | None = None
    folder: Path | None = None


class OnDisk(NamedTuple):
    """A text in an engine, which counts it step by step as it estimates."""

    engine: Engine
    text: Text


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
    config = from_dict(NgramConfig, config) if isinstance(config, Mapping) else config
    if not isinstance(config, NgramConfig | None):
        raise TypeError(f"expected an NgramConfig, or settings as a dictionary, not {config!r}")
    job = Job(
        inputs=[inputs] if isinstance(inputs, str | Path) else list(inputs),
        output=Path(output),
        config=config or NgramConfig(),
        stages=Stages(on_progress),
        engine=engine,
        field=field,
        arpa=None if arpa is None else Path(arpa),
        parquet=None if parquet is None else Path(parquet),
        force=force,
        threads=threads or runtime.available_threads(),
        memory=memory,
        command=command,
    )
    if engine == "spark":
        hint = "call seqtool.spark.train_ngram, or choose another engine"
        raise ConfigError("the engine spark needs a session of Spark", hint=hint)
    texts, valid = given_splits(job.inputs)
    skipped: list[DataError] = []
    if skip_invalid and not is_corpus(texts[0]):
        with job.stages("checking"):
            texts, skipped = sound_files(texts, field=field)
    with ExitStack() as stack:
        ids, text = read(job, texts, temp, stack)
        counts = count(job, ids, text, stack)
        del ids  # four bytes per token
        estimated = estimate(job, counts, text)
        del counts
        return save(job, estimated, text, valid, skipped)


def read(
    job: Job, texts: Sequence[str | Path], temp: str | Path | None, stack: ExitStack
) -> tuple[Ids, TrainingText]:
    """Read a text, or the train split of a corpus, as ids.

    Args:
        job: the options.
        texts: the files, or one prepared corpus.
        temp: as for `train_ngram`.
        stack: removes the folder of temporary files, if there is one.

    Returns:
        The ids, [T], `EOS_ID` after each sentence; of words, or of their classes. They are a mapped
        file where the memory is too small.
    """
    config = job.config

    def make_folder() -> Path | None:
        if job.engine == "auto" and missing_package():
            return None  # the memory is found too small, and the error says so
        return stack.enter_context(temporary_folder(job.output, temp, job.memory))

    is_for_disk = job.engine != "memory" and not config.classes and config.discounts == "paper"
    disk = Disk(job.engine == "duckdb", make_folder) if is_for_disk else None
    with job.stages("reading") as on_read:
        reading = read_ids(
            texts, config, field=job.field, memory=job.memory, disk=disk, on_progress=on_read
        )
    ids, tokenizer, num_unknown, allowed = reading.ids, reading.tokenizer, reading.num_unknown, None
    symbols, new_ids, classes = tokenizer.vocabulary.symbols, None, None
    num_symbols = len(symbols)
    if config.limit_vocab is not None:
        tokenizer, allowed = limited(tokenizer, config.limit_vocab)
        new_ids = tokenizer.vocabulary.encode(symbols)
        num_unknown = tokenizer.vocabulary.counts[UNK_ID]
    check_words(job, tokenizer)
    data = {**reading.description, **held_out(job.inputs, job.output)}
    if config.classes is not None:
        from seqtool.lm.ngram.classes import read_classes

        classes = read_classes(config.classes, tokenizer, np.bincount(ids, minlength=num_symbols))
        ids, num_symbols = classes.class_V[ids], len(classes)
        data["classes"] = num_symbols
    return ids, TrainingText(
        tokenizer=tokenizer,
        data=data,
        num_unknown=num_unknown,
        engine=_engine_line(job, len(ids), is_on_disk=reading.folder is not None),
        vocabulary_size=num_symbols,
        allowed=allowed,
        new_ids=new_ids,
        classes=classes,
        folder=reading.folder,
    )


def count(job: Job, ids: npt.NDArray[Any], text: TrainingText, stack: ExitStack) -> Counts | OnDisk:
    """Count the n-grams of all orders in memory, or give the text to DuckDB, which does it later.

    Args:
        job: the options.
        ids: the text, [T].
        text: what is known of it.
        stack: closes the database.

    Returns:
        Per order n the N n-grams in trie order, see `counts.Counts`; or the database.
    """
    size, order = text.vocabulary_size, job.config.order
    with job.stages("counting") as on_count:
        if text.folder is not None:
            from seqtool.lm.ngram.engine.duckdb import DuckDB, take_text

            engine = DuckDB(text.folder, job.threads, job.memory)
            stack.enter_context(closing(engine))
            return OnDisk(engine, take_text(engine, ids, size, order))
        from seqtool.lm.ngram.counts import count_ngrams

        quirk = job.config.discounts == "kenlm"
        options: dict[str, Any] = {"threads": job.threads, "memory": job.memory}
        return count_ngrams(ids, order, size, kenlm_quirk=quirk, on_progress=on_count, **options)


def estimate(job: Job, counts: Counts | OnDisk, text: TrainingText) -> Estimate:
    """Estimate probabilities and backoff weights of all n-grams that are kept.

    Returns:
        The table: per order float32 [N] log-probabilities and backoffs, in nats; and its
        statistics. On disk it is a mapped file.
    """
    from seqtool.lm.ngram import smoothing

    config, allowed = job.config, text.allowed
    if not isinstance(counts, OnDisk):
        with job.stages("estimating"):
            return smoothing.estimate(counts, config, threads=job.threads, allowed=allowed)
    from seqtool.lm.ngram.engine import output, plan

    assert text.folder is not None
    file = text.folder / checkpoint.WEIGHTS
    with job.stages("estimating") as on_estimate:
        tables = plan.estimate(*counts, config, allowed=allowed, on_progress=on_estimate)
    with job.stages("saving") as on_save:
        table = output.write_table(file, counts.engine, tables, on_save)
    return smoothing.Estimate(table, tables.statistics, tables.warnings, file)


def save(
    job: Job,
    estimated: Estimate,
    text: TrainingText,
    valid: Sequence[str | Path] = (),
    skipped: Sequence[DataError] = (),
) -> NgramTraining:
    """Prune the model by entropy, measure it, and write its directory, ARPA file and Parquet.

    Args:
        job: the options.
        estimated: the model.
        text: what is known of its text.
        valid: what the model is measured on; nothing if empty.
        skipped: what was wrong with each file that was left out.

    Raises:
        DataError: the memory is too small to prune the n-grams, or a valid text is damaged.
        OutputError: a file cannot be written.
    """
    estimated = _pruned(job, estimated)
    table, vocabulary = estimated.table, text.tokenizer.vocabulary
    model: TableModel = NgramModel(table, text.tokenizer)
    if text.classes is not None:
        from seqtool.lm.ngram.classes import ClassModel

        model = ClassModel(table, text.classes, text.tokenizer)
    scores = {"valid_perplexity": _perplexity(job, model, valid, text)} if valid else {}
    with job.stages("saving"):
        save_model(
            job.output,
            model,
            weights=estimated.file,
            config=to_dict(job.config),
            scores={**scores, "train_seconds": sum(job.stages.seconds.values())},
            data=text.data,
            command=job.command,
            statistics=estimated.statistics,
        )
    sizes = text.data["splits"]["train"]
    num_words = sizes["tokens"] - sizes["sentences"]
    warnings = [*_unknown_warnings(job.config, text.num_unknown, num_words), *estimated.warnings]
    if job.arpa is not None:
        from seqtool.lm.ngram.arpa import warnings_of, write_arpa

        warnings += warnings_of(table)
        with job.stages("writing ARPA") as on_write:
            write_arpa(table, vocabulary, job.arpa, threads=job.threads, on_progress=on_write)
    if job.parquet is not None:
        from seqtool.lm.ngram.parquet import write_parquet

        with job.stages("writing Parquet") as on_write:
            write_parquet(table, vocabulary, job.parquet, force=job.force, on_progress=on_write)
    return NgramTraining(
        path=job.output,
        arpa=job.arpa,
        parquet=job.parquet,
        engine=text.engine,
        statistics=estimated.statistics,
        warnings=warnings,
        skipped=[str(error) for error in skipped],
        scores=scores,
        num_tokens=sizes["tokens"],
        num_sentences=sizes["sentences"],
        num_unknown=text.num_unknown,
        vocabulary_size=len(vocabulary),
        seconds=job.stages.seconds,
    )


def _pruned(job: Job, estimated: Estimate) -> Estimate:
    """Return a model pruned by entropy, if that is asked for."""
    threshold = job.config.prune_entropy
    if not threshold:
        return estimated
    from seqtool.lm.ngram.backoff import prune_by_entropy, with_sizes

    if estimated.file is not None:
        num = sum(map(len, estimated.table.levels))
        purpose, hint = f"{num:,} n-grams to prune by entropy", "prune by counts, with --prune"
        runtime.check_memory(PRUNING_BYTES * num, purpose, hint, job.memory)
    with job.stages("pruning"):
        table = prune_by_entropy(estimated.table, threshold)
    statistics = with_sizes(estimated.statistics, table)
    return replace(estimated, table=table, statistics=statistics, file=None)


def _perplexity(
    job: Job, model: TableModel, valid: Sequence[str | Path], text: TrainingText
) -> float:
    """Return the perplexity of files, or of the valid split of a corpus."""
    split = "valid" if is_corpus(valid[0]) else None
    with job.stages("measuring") as on_measure:
        if split and text.new_ids is not None:  # the ids of the corpus are of all words
            ids = PreparedCorpus.open(valid[0]).ids(split)
            blocks = (text.new_ids[block] for block, _ in cut_sentences(ids, on_measure))
            nats = math.fsum(of.log_probs.sum() for of in model.score_ids(blocks))
            return perplexity_of(-nats / len(ids))
        options: dict[str, Any] = {"field": job.field, "on_progress": on_measure}
        return evaluate_lm(model, valid, split=split, **options).perplexity


def _unknown_warnings(config: NgramConfig, num_unknown: int, num_words: int) -> list[str]:
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


def check_words(job: Job, tokenizer: Tokenizer) -> None:
    """Refuse words that a copy of the model could not hold, before it is estimated."""
    if job.arpa is not None or job.parquet is not None:
        from seqtool.lm.ngram.arpa import check_symbols

        check_symbols(tokenizer.vocabulary)


def _engine_line(job: Job, num_tokens: int, *, is_on_disk: bool) -> str:
    """Return in one line which engine is taken, and why."""
    needed = runtime.size_text(memory_needed(num_tokens, job.config.order))
    purpose = f"{num_tokens:,} tokens at order {job.config.order} take about {needed} in memory"
    if job.engine != "auto":
        return f"{job.engine}, as was asked for; {purpose}"
    if is_on_disk:
        return f"duckdb, as {purpose}, which is more than there is"
    return f"memory, as {purpose}"


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
    threshold: float | None = None,
    *,
    vocab: str | None = None,
    arpa: str | Path | None = None,
    force: bool = False,
    threads: int = 1,
    command: str = "",
) -> tuple[BackoffTable, BackoffTable]:
    """Prune a model by relative entropy, restrict it to some words, or both; see `backoff`.

    Args:
        source: the model, or an ARPA file.
        output: the directory of the pruned one.
        threshold: the share by which the perplexity may grow for each n-gram; 1e-8 when not given,
            and none beside a list of words.
        vocab: a list of the words that stay. Those that the model does not know are not added.
        arpa: a file to write it to as ARPA, too; "-" is stdout.
        force: replace a model that is there.
        threads: that write the ARPA file.
        command: what the user typed, for the model card.

    Returns:
        The table as it was, and as it is.

    Raises:
        ConfigError: a threshold that is none, or a list without any word of the model.
        DataError: a list that cannot be used.
        ModelError: there is no such model, or it is of another kind.
        OutputError: the output exists, or cannot be written.
    """
    from seqtool.lm.ngram.arpa import check_arpa, check_symbols, write_arpa
    from seqtool.lm.ngram.backoff import prune_by_entropy, restrict, with_sizes

    if threshold is None and vocab is None:
        threshold = 1e-8
    if threshold is not None and not 0 < threshold < 1:
        raise ConfigError(
            f"the threshold is {threshold:g}, but must be between 0 and 1",
            hint="try 1e-8; more leaves out more",
        )
    checkpoint.check_output(output, force=force, hint=EXISTS)
    check_arpa(arpa, [source] if vocab is None else [source, vocab])
    model = open_ngram(source, "are pruned")
    if arpa is not None:
        check_symbols(model.tokenizer.vocabulary)
    config: dict[str, Any] = {"order": model.order}
    data: dict[str, Any] = {"pruned_from": str(source)}
    statistics: list[dict[str, Any]] = []
    if not checkpoint.is_foreign(source):
        header = checkpoint.read_header(source)
        config, data = header.config, {**moved(header.data, source, output), **data}
        statistics = header.statistics.get("orders", [])
        if not all(isinstance(of_order, dict) for of_order in statistics):
            hint = "copy the model again, or train it again"
            raise ModelError("its statistics are damaged", hint=hint, path=source)
    table, tokenizer = model.table, model.tokenizer
    if vocab is not None:
        tokenizer, allowed = limited(tokenizer, vocab)
        table = restrict(table, allowed)
        data["restricted_to"] = str(vocab)
    if threshold is not None:
        table = prune_by_entropy(table, threshold)
        config["prune_entropy"] = max(threshold, config.get("prune_entropy", 0.0))
    save_model(
        output,
        NgramModel(table, tokenizer),
        config=config,
        data=data,
        command=command,
        statistics=with_sizes(statistics, table),
    )
    if arpa is not None:
        write_arpa(table, tokenizer.vocabulary, arpa, threads=threads)
    return model.table, table


def check_output(paths: Sequence[str | Path], output: Path, *, force: bool) -> None:
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


def held_out(paths: Sequence[str | Path], output: str | Path) -> dict[str, Any]:
    """Return what the model records of the corpus or the files that it was not trained on."""
    if is_corpus(paths[0]):
        return describe_held_out(output, corpus=paths[0])
    return describe_held_out(output, files=plan_splits(paths).files)
