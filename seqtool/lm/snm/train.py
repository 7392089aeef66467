"""Training: text or a prepared corpus -> counts -> metafeatures' weights -> a matrix on disk."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from seqtool.core import checkpoint, runtime
from seqtool.core.arrays import Ids
from seqtool.core.config import from_dict, to_dict
from seqtool.core.errors import TrainingError
from seqtool.core.progress import shows_stages
from seqtool.core.reading import is_corpus
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.evaluation import evaluate_lm
from seqtool.lm.ngram.data import given_splits, read_ids
from seqtool.lm.ngram.train import CountedTraining, OnProgress, Stages, check_output, held_out
from seqtool.lm.snm.config import SnmConfig
from seqtool.lm.snm.model import SnmModel, save_model
from seqtool.text.tokenizers import Tokenizer
from seqtool.training.config import seconds_of

_TOKENS = 1 << 14  # between two looks at the progress and the clock; Ctrl-C waits for that
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
    force: bool = False,
    threads: int | None = None,
    memory: int | None = None,
    command: str = "",
    on_progress: OnProgress | None = None,
    progress: bool | None = None,
) -> SnmTraining:
    """Train a sparse non-negative matrix language model (Shazeer, Pelemans & Chelba 2015).

    The result does not depend on the number of threads.

    Args:
        inputs: text files, directories or `-`; a directory with train.* and valid.* files, of which
            train is read; or one prepared corpus, of any unit.
        output: the model directory.
        config: all settings, or a dictionary of those that are not the defaults.
        field: which field of .jsonl files holds the text.
        force: replace a model that is there.
        threads: CPU threads to count and adjust with; learning takes one. All cores when None.
        memory: how many bytes the process may take, in all; what the machine has when None. A text
            that needs more is refused.
        command: what the user typed, for the model card.
        on_progress: called with the stage and its progress.
        progress: show the stages on a terminal; if None, where there is no `on_progress`.

    Raises:
        ConfigError: settings that contradict one another or the text.
        DataError: text that is not there, empty, damaged or too large for the memory.
        OutputError: the output exists, or cannot be written.
        TrainingError: the loss is no number, as with too high a learning rate.
    """
    begun, output = time.perf_counter(), Path(output)
    paths = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    config = from_dict(SnmConfig, config) if isinstance(config, Mapping) else config or SnmConfig()
    check_output(paths, output, force=force)
    texts, valid = given_splits(paths)
    stages = Stages(on_progress)
    with stages("reading") as on_read:
        reading = read_ids(texts, config, field=field, memory=memory, on_progress=on_read)
    tokenizer = reading.tokenizer
    threads = threads or runtime.available_threads()
    model, losses, passes, kinds = _learn(
        config, reading.ids, tokenizer, stages, begun, threads, memory
    )
    scores = {}
    if valid:
        split = "valid" if is_corpus(valid[0]) else None
        with stages("measuring") as on_measure:
            evaluation = evaluate_lm(model, valid, split=split, field=field, on_progress=on_measure)
        scores["valid_perplexity"] = evaluation.perplexity
    scores["train_seconds"] = time.perf_counter() - begun
    with stages("saving"):
        save_model(
            output,
            model,
            config=to_dict(config),
            scores=scores,
            data={**reading.description, **held_out(paths, output)},
            statistics={"kinds": kinds, "losses": losses},
            command=command,
        )
    return SnmTraining(
        path=output,
        losses=losses,
        passes=passes,
        kinds=kinds,
        scores=scores,
        num_tokens=len(reading.ids),
        num_sentences=int((reading.ids == EOS_ID).sum()),
        num_unknown=reading.num_unknown,
        vocabulary_size=len(tokenizer.vocabulary),
        seconds=stages.seconds,
    )


def _learn(
    config: SnmConfig,
    ids: Ids,
    tokenizer: Tokenizer,
    stages: Stages,
    begun: float,
    threads: int,
    memory: int | None,
) -> tuple[SnmModel, list[float], float, list[dict[str, int]]]:
    """Return a model of a text, its losses and passes, and the sizes of each kind of features.

    The run began at this `time.perf_counter`.
    """
    from seqtool.lm.snm.adjustment import adjusted, arrays_of, learn, make_room, make_table
    from seqtool.lm.snm.counts import LESS_MEMORY, count_features
    from seqtool.lm.snm.features import as_arrays
    from seqtool.lm.snm.matrix import check, make_matrix

    templates, size = config.templates, len(tokenizer.vocabulary)
    purpose = f"{len(ids):,} tokens with {len(templates)} kinds of features"
    needed = memory_needed(len(ids), len(templates), config.table_bits)
    runtime.check_memory(needed, purpose, LESS_MEMORY, memory)
    before_counting = time.perf_counter()
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
    table = make_table(config.table_bits, len(templates))
    end = math.inf
    if config.time_limit is not None:
        end = seconds_of(config.time_limit) - _AFTER_LEARNING * (
            time.perf_counter() - before_counting
        )
    losses: list[float] = []
    token, loss_sum = 0, 0.0  # of the running epoch

    def rate() -> float:
        """Return the learning rate, which a limit of time lets fall to zero; 0 at the end."""
        if math.isinf(end):
            return config.learning_rate if len(losses) < config.epochs else 0.0
        # reading and counting may have taken all of the time
        left = end - (time.perf_counter() - begun)
        return config.learning_rate * left / end if left > 0 else 0.0

    too_large = "weights have grown too large"
    lower_rate = f"lower --lr, which is {config.learning_rate:g}"
    with stages("learning") as on_learn:
        total = None if config.time_limit else config.epochs * len(ids)
        while step := rate():
            stop = min(token + _TOKENS, len(ids))
            loss_sum += learn(
                arrays, counts.events, token, stop, size, config.prune, step, table, room
            )
            if not math.isfinite(loss_sum):
                what = f"the loss is {loss_sum} in epoch {len(losses) + 1}: {too_large}"
                raise TrainingError(what, hint=lower_rate)
            token = stop
            if stop == len(ids):
                losses.append(math.exp(loss_sum / len(ids) - 1))  # the sum of y is about 1
                token, loss_sum = 0, 0.0
            on_learn(len(losses) * len(ids) + token, total)
    with stages("adjusting"):
        unseen = np.exp(table.unseen[0] + table.bias[0])
        matrix = make_matrix(counts, adjusted(counts, table, threads=threads), unseen)
    try:
        check(matrix, len(templates), size)
    except ValueError as error:  # the loss of one piece more would have shown it
        raise TrainingError(f"{error}: {too_large}", hint=lower_rate) from error
    sizes = np.diff(counts.begins[counts.first])
    kinds = [
        {**template._asdict(), "features": int(num), "pairs": int(pairs)}
        for template, num, pairs in zip(templates, np.diff(counts.first), sizes, strict=True)
    ]
    passes = len(losses) + token / len(ids)
    return SnmModel(matrix, templates, tokenizer), losses, passes, kinds


def memory_needed(num_tokens: int, num_kinds: int, table_bits: int) -> int:
    """Return about how many bytes it takes to train on a text."""
    per_token = _BYTES_PER_TOKEN + _BYTES_PER_PAIR * num_kinds
    return num_tokens * per_token + (_BYTES_PER_WEIGHT << table_bits)
