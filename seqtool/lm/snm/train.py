"""Training: text or a prepared corpus -> counts -> metafeatures' weights -> a matrix on disk."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from seqtool.core import checkpoint, runtime, storage
from seqtool.core.compile_cache import working_time
from seqtool.core.config import from_dict, to_dict
from seqtool.core.errors import Interrupted, ModelError, TrainingError
from seqtool.core.progress import shows_stages
from seqtool.core.reading import is_corpus
from seqtool.core.signals import Interruption
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.evaluation import evaluate_lm
from seqtool.lm.ngram.data import given_splits, read_ids
from seqtool.lm.ngram.train import CountedTraining, OnProgress, Stages, check_output, held_out
from seqtool.lm.snm import state
from seqtool.lm.snm.adjustment import Table
from seqtool.lm.snm.config import SnmConfig
from seqtool.lm.snm.model import SnmModel, save_model
from seqtool.lm.snm.state import Learning, SnmRecord
from seqtool.text.tokenizers import Tokenizer
from seqtool.training.config import seconds_of

_TOKENS = 1 << 14  # between two looks at the progress, at the clock, and at Ctrl-C
_SAVE_SECONDS = 300.0  # between saves of the state
# of a limited time, what is left for adjusting, measuring and saving, in times of counting
_AFTER_LEARNING = 1.0

# Peak memory of training beyond what the imports take, measured on PTB (0.93 million tokens, 5 and
# 23 kinds of features): of every token, of every token and kind of features (its pair, 4 bytes, and
# what there is of features and pairs), and of each weight
_BYTES_PER_TOKEN = 90
_BYTES_PER_PAIR = 45
_BYTES_PER_WEIGHT = 8


@dataclass(frozen=True, kw_only=True)
class SnmTraining(CountedTraining):
    """A matrix that was trained, and what its training tells.

    Stages are reading, counting, learning, adjusting, measuring and saving; "train_seconds" is
    among the scores.

    Attributes:
        losses: per epoch, the perplexity of the text with each token left out of the counts, while
            the weights are learnt; of y as it is, not divided by its sum.
        passes: over the text, with the last one as far as it came.
        kinds: per kind of features, its words ("remote", "skipped", "adjacent") and how many
            "features" and "pairs" with a target there are.
    """

    losses: list[float]
    passes: float
    kinds: list[dict[str, int]]

    @cached_property
    def model(self) -> SnmModel:
        """The model, opened from `path`."""
        return checkpoint.load(self.path, SnmModel)


@shows_stages
@runtime.writes_to("output")
def train_snm(
    inputs: str | Path | Sequence[str | Path] = (),
    output: str | Path = "runs/snm",
    config: SnmConfig | Mapping[str, Any] | None = None,
    *,
    field: str | None = None,
    resume: bool = False,
    force: bool = False,
    threads: int | None = None,
    memory: int | None = None,
    command: str = "",
    on_progress: OnProgress | None = None,
    should_stop: Callable[[int], bool] | None = None,
    progress: bool | None = None,
) -> SnmTraining:
    """Train a sparse non-negative matrix language model (Shazeer, Pelemans & Chelba 2015).

    The result does not depend on the number of threads.

    Args:
        inputs: text files, directories or `-`; a directory with train.* and valid.* files, of which
            train is read; or one prepared corpus, of any unit. A run that is resumed knows its own.
        output: the model directory.
        config: all settings, or a dictionary of those that are not the defaults, or, of a run that
            is resumed, not the run's.
        field: which field of .jsonl files holds the text.
        resume: continue the run in `output` where it was saved: every five minutes of learning, and
            when it was stopped while it learnt. The model is the same as without a stop, unless a
            limit of time ends it; reading and counting again are not counted for that.
        force: replace a model that is there.
        threads: CPU threads to count and adjust with; learning takes one. All cores when None.
        memory: how many bytes the process may take, in all; what the machine has when None. A text
            that needs more is refused.
        command: what the user typed, for the model card.
        on_progress: called with the stage and its progress.
        should_stop: asked while it learns with the tokens read so far; True saves and interrupts.
        progress: show the stages on a terminal; if None, where there is no `on_progress`.

    Raises:
        Interrupted: Ctrl-C, SIGTERM or `should_stop` while it learns; the state is saved.
        ConfigError: settings that contradict one another or the text.
        DataError: text that is not there, empty, damaged or too large for the memory.
        ModelError: there is no run to resume, or one of another text or other settings.
        OutputError: the output exists, or cannot be written.
        TrainingError: the loss is no number, as with too high a learning rate.
    """
    begun, output = working_time(), Path(output)
    paths = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    if resume:
        storage.restore(output)
        is_model = (output / checkpoint.HEADER).exists()
        if (
            is_model
            and not checkpoint.run_record(output).exists()
            and checkpoint.read_header(output).kind == SnmModel.kind
        ):
            hint = "train another with --force, or to another directory with -o"
            raise ModelError("the run has ended: the model is complete", hint=hint, path=output)
        record = SnmRecord.read(output)
        given = to_dict(config) if isinstance(config, SnmConfig) else dict(config or {})
        if "epochs" in given and "time_limit" not in given:
            given["time_limit"] = None  # what is told last ends it
        config = from_dict(SnmConfig, to_dict(record.config) | given)
        record = replace(record, config=state.with_absolute_vocab(config))
        record = replace(record, threads=threads or record.threads)
        paths, field = paths or list(record.inputs), field or record.field
    else:
        config = from_dict(SnmConfig, config) if isinstance(config, Mapping) else config
        check_output(paths, output, force=force, hint=None)
        whole = tuple(str(path if str(path) == "-" else Path(path).absolute()) for path in paths)
        record = SnmRecord(config or SnmConfig(), whole, field, threads, command)
    config = record.config
    threads = record.threads or runtime.available_threads()
    texts, valid = given_splits(paths)
    stages = Stages(on_progress)
    with stages("reading") as on_read:
        reading = read_ids(texts, config, field=field, memory=memory, on_progress=on_read)
    tokenizer = reading.tokenizer
    stop = should_stop or (lambda num_tokens: False)
    run = _Run(output, record, reading.ids, stages, begun, stop, resume)
    model, at, kinds = _learn(run, tokenizer, threads, memory)
    scores = {}
    if valid:
        split = "valid" if is_corpus(valid[0]) else None
        with stages("measuring") as on_measure:
            evaluation = evaluate_lm(model, valid, split=split, field=field, on_progress=on_measure)
        scores["valid_perplexity"] = evaluation.perplexity
    scores["train_seconds"] = run.seconds(at)
    with stages("saving"):
        save_model(
            output,
            model,
            config=to_dict(config),
            scores=scores,
            data={**reading.description, **held_out(paths, output)},
            statistics={"kinds": kinds, "losses": at.losses},
            command=record.command,
        )
    return SnmTraining(
        path=output,
        losses=at.losses,
        passes=at.epoch + at.token / len(reading.ids),
        kinds=kinds,
        scores=scores,
        num_tokens=len(reading.ids),
        num_sentences=int((reading.ids == EOS_ID).sum()),
        num_unknown=reading.num_unknown,
        vocabulary_size=len(tokenizer.vocabulary),
        seconds=stages.seconds,
    )


class _Run:
    """What learning asks of the run around it.

    Args:
        output: the model directory.
        record: of the run.
        ids: of the text.
        stages: of the work.
        begun: when the run, or its continuation, began, as `working_time` tells.
        should_stop: whether to save and interrupt, given the tokens read so far.
        resumed: whether there is a saved state to take back.
    """

    def __init__(
        self,
        output: Path,
        record: SnmRecord,
        ids: npt.NDArray[Any],
        stages: Stages,
        begun: float,
        should_stop: Callable[[int], bool],
        resumed: bool,
    ) -> None:
        self.config, self.ids, self.stages = record.config, ids, stages
        self._output, self._record, self._begun = output, record, begun
        self._should_stop, self._resumed = should_stop, resumed
        self._sum = hashlib.sha256(np.ascontiguousarray(ids).data).hexdigest()
        self._interruption = Interruption()
        self.listening = self._interruption.listening
        self._saved_at = working_time()

    def begin(self, fresh: Table, counting: float) -> tuple[Learning, Table]:
        """Return where learning stands, and the weights: `fresh` ones, unless it is resumed.

        Counting took so many seconds, as `working_time` tells.
        """
        limit = self.config.time_limit
        self._end = math.inf if limit is None else seconds_of(limit) - _AFTER_LEARNING * counting
        if not self._resumed:
            return Learning(), fresh
        self._begun = working_time()  # the run has counted its reading and counting already
        return state.restore(self._output, self.config, self._sum)

    def seconds(self, at: Learning) -> float:
        """Return the seconds of the whole run."""
        return at.seconds + working_time() - self._begun

    def rate(self, at: Learning) -> float:
        """Return the learning rate, which a limit of time lets fall to zero; 0 at the end."""
        if math.isinf(self._end):
            return self.config.learning_rate if at.epoch < self.config.epochs else 0.0
        seconds = self.seconds(at)
        if seconds >= self._end:  # reading and counting may have taken all of the time
            return 0.0
        return self.config.learning_rate * (1 - seconds / self._end)

    def look(self, at: Learning, table: Table) -> None:
        """Save the state where it is due; an Interrupted error where the run is to stop."""
        num_tokens = at.epoch * len(self.ids) + at.token
        stops = self._interruption.requested or self._should_stop(num_tokens)
        if not stops and working_time() - self._saved_at < _SAVE_SECONDS:
            return
        saved = replace(at, seconds=self.seconds(at))
        state.save(self._output, self._record, self._sum, saved, table)
        self._saved_at = working_time()
        if stops:
            what = f"the run was interrupted after {num_tokens:,} tokens; the state is saved"
            resume = runtime.resuming("train-snm", self._output)
            raise Interrupted(what, hint=f"continue with: {resume}")


def _learn(
    run: _Run, tokenizer: Tokenizer, threads: int, memory: int | None
) -> tuple[SnmModel, Learning, list[dict[str, int]]]:
    """Return a model of a text, where learning ended, and the sizes of each kind of features."""
    from seqtool.lm.snm.adjustment import adjusted, arrays_of, learn, make_room, make_table
    from seqtool.lm.snm.counts import LESS_MEMORY, count_features
    from seqtool.lm.snm.features import as_arrays
    from seqtool.lm.snm.matrix import make_matrix

    config, ids, stages = run.config, run.ids, run.stages
    templates, size = config.templates, len(tokenizer.vocabulary)
    purpose = f"{len(ids):,} tokens with {len(templates)} kinds of features"
    needed = memory_needed(len(ids), len(templates), config.table_bits)
    runtime.check_memory(needed, purpose, LESS_MEMORY, memory)
    begun = working_time()
    with stages("counting") as on_count:
        counts = count_features(
            np.ascontiguousarray(ids, np.int32),
            as_arrays(templates),
            size,
            prune=config.prune,
            threads=threads,
            on_progress=on_count,
        )
    room, arrays = make_room(len(templates)), arrays_of(counts)
    counting = working_time() - begun
    at, table = run.begin(make_table(config.table_bits, len(templates)), counting)
    with stages("learning") as on_learn, run.listening():
        total = None if config.time_limit else config.epochs * len(ids)
        while rate := run.rate(at):
            end = min(at.token + _TOKENS, len(ids))
            at.loss_sum += learn(
                arrays, counts.events, at.token, end, size, config.prune, rate, table, room
            )
            if not math.isfinite(at.loss_sum):
                raise TrainingError(
                    f"the loss is {at.loss_sum} in epoch {at.epoch + 1}: weights have grown too "
                    "large",
                    hint=f"lower --lr, which is {config.learning_rate:g}",
                )
            at.token = end
            if end == len(ids):
                at.losses.append(math.exp(at.loss_sum / len(ids) - 1))  # the sum of y is about 1
                at.epoch, at.token, at.loss_sum = at.epoch + 1, 0, 0.0
            on_learn(at.epoch * len(ids) + at.token, total)
            run.look(at, table)
    with stages("adjusting"):
        unseen = math.exp(table.unseen[0] + table.bias[0])
        matrix = make_matrix(counts, adjusted(counts, table, threads=threads), unseen)
    sizes = np.diff(counts.begins[counts.first])
    kinds = [
        {**template._asdict(), "features": int(num), "pairs": int(pairs)}
        for template, num, pairs in zip(templates, np.diff(counts.first), sizes, strict=True)
    ]
    return SnmModel(matrix, templates, tokenizer), at, kinds


def memory_needed(num_tokens: int, num_kinds: int, table_bits: int) -> int:
    """Return about how many bytes it takes to train on a text."""
    per_token = _BYTES_PER_TOKEN + _BYTES_PER_PAIR * num_kinds
    return num_tokens * per_token + (_BYTES_PER_WEIGHT << table_bits)
