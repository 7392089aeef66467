"""Training: text or a prepared corpus -> counts -> metafeatures' weights -> a matrix on disk."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from seqtool.core import checkpoint, runtime
from seqtool.core.config import from_dict, to_dict
from seqtool.core.errors import TrainingError
from seqtool.core.progress import shows_stages
from seqtool.core.reading import is_corpus
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.ngram.data import given_splits, read_ids
from seqtool.lm.ngram.train import (
    OnProgress,
    Stages,
    available_threads,
    check_output,
    held_out,
)
from seqtool.lm.protocol import evaluate_lm
from seqtool.lm.snm.config import SnmConfig
from seqtool.lm.snm.model import SnmModel, save_model
from seqtool.text.tokenizers import Tokenizer

_TOKENS = 1 << 14  # between two looks at the progress, and at Ctrl-C

# Peak memory of training beyond what the imports take, measured on PTB (0.93 million tokens, 5 and
# 23 kinds of features): of every token, of every token and kind of features (its pair, 4 bytes, and
# what there is of features and pairs), and of each weight
_BYTES_PER_TOKEN = 90
_BYTES_PER_PAIR = 45
_BYTES_PER_WEIGHT = 8


@dataclass(frozen=True)
class SnmTraining:
    """A model that was trained, and what its training tells.

    Attributes:
        path: the model's directory.
        losses: per epoch, the perplexity of the text with each token left out of the counts, while
            the weights are learnt; of y as it is, not divided by its sum.
        kinds: per kind of features, its words ("remote", "skipped", "adjacent") and how many
            "features" and "pairs" with a target there are.
        scores: "valid_perplexity" where the corpus has a valid split, and "train_seconds".
        num_tokens: tokens of the text, `</s>` counted.
        num_sentences: sentences of the text.
        num_unknown: tokens of the text that are unknown words.
        vocabulary_size: V.
        seconds: wall time per stage: reading, counting, learning, adjusting, measuring, saving;
            those that there were.
    """

    path: Path
    losses: list[float]
    kinds: list[dict[str, int]]
    scores: dict[str, float]
    num_tokens: int
    num_sentences: int
    num_unknown: int
    vocabulary_size: int
    seconds: dict[str, float] = field(default_factory=dict)

    @cached_property
    def model(self) -> SnmModel:
        """The model, opened from `path`."""
        return checkpoint.load(self.path, SnmModel)

    @property
    def total_seconds(self) -> float:
        """Wall time in all."""
        return sum(self.seconds.values())


@shows_stages
@runtime.writes_to("output")
def train_snm(
    inputs: str | Path | Sequence[str | Path],
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
    paths = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    config = from_dict(SnmConfig, config) if isinstance(config, Mapping) else config
    config = config or SnmConfig()
    threads = threads or available_threads()
    check_output(paths, Path(output), force=force)
    texts, valid = given_splits(paths)
    stages = Stages(on_progress)
    with stages("reading") as on_read:
        reading = read_ids(texts, config, field=field, memory=memory, on_progress=on_read)
    tokenizer = reading.tokenizer
    model, losses, kinds = _learn(reading.ids, tokenizer, config, threads, memory, stages)
    scores = {}
    if valid:
        split = "valid" if is_corpus(valid[0]) else None
        with stages("measuring") as on_measure:
            evaluation = evaluate_lm(model, valid, split=split, field=field, on_progress=on_measure)
        scores["valid_perplexity"] = evaluation.perplexity
    scores["train_seconds"] = sum(stages.seconds.values())
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
        path=Path(output),
        losses=losses,
        kinds=kinds,
        scores=scores,
        num_tokens=len(reading.ids),
        num_sentences=int((reading.ids == EOS_ID).sum()),
        num_unknown=reading.num_unknown,
        vocabulary_size=len(tokenizer.vocabulary),
        seconds=stages.seconds,
    )


def _learn(
    ids: npt.NDArray[Any],
    tokenizer: Tokenizer,
    config: SnmConfig,
    threads: int,
    memory: int | None,
    stages: Stages,
) -> tuple[SnmModel, list[float], list[dict[str, int]]]:
    """Return a model of a text, the loss of each epoch and the sizes of each kind of features."""
    from seqtool.lm.snm.adjustment import adjusted, arrays_of, learn, make_room, make_table
    from seqtool.lm.snm.counts import LESS_MEMORY, count_features
    from seqtool.lm.snm.features import as_arrays
    from seqtool.lm.snm.matrix import make_matrix

    templates, size = config.templates, len(tokenizer.vocabulary)
    purpose = f"{len(ids):,} tokens with {len(templates)} kinds of features"
    needed = memory_needed(len(ids), len(templates), config.table_bits)
    runtime.check_memory(needed, purpose, LESS_MEMORY, memory)
    with stages("counting") as on_count:
        counts = count_features(
            np.ascontiguousarray(ids, np.int32),
            as_arrays(templates),
            size,
            prune=config.prune,
            threads=threads,
            on_progress=on_count,
        )
    table, room, arrays = (
        make_table(config.table_bits, len(templates)),
        make_room(len(templates)),
        arrays_of(counts),
    )
    losses = []
    with stages("learning") as on_learn:
        for epoch in range(config.epochs):
            sum_ = 0.0
            for begin in range(0, len(ids), _TOKENS):
                end = min(begin + _TOKENS, len(ids))
                sum_ += learn(
                    arrays,
                    counts.events,
                    begin,
                    end,
                    size,
                    config.prune,
                    config.learning_rate,
                    table,
                    room,
                )
                if not math.isfinite(sum_):
                    raise TrainingError(
                        f"the loss is {sum_} in epoch {epoch + 1}: weights have grown too large",
                        hint=f"lower --lr, which is {config.learning_rate:g}",
                    )
                on_learn(epoch * len(ids) + end, config.epochs * len(ids))
            losses.append(math.exp(sum_ / len(ids) - 1))  # the sum of y is about 1
    with stages("adjusting"):
        unseen = math.exp(table.unseen[0] + table.bias[0])
        matrix = make_matrix(counts, adjusted(counts, table, threads=threads), unseen)
    sizes = np.diff(counts.begins[counts.first])
    kinds = [
        {**template._asdict(), "features": int(num), "pairs": int(pairs)}
        for template, num, pairs in zip(templates, np.diff(counts.first), sizes, strict=True)
    ]
    return SnmModel(matrix, templates, tokenizer), losses, kinds


def memory_needed(num_tokens: int, num_kinds: int, table_bits: int) -> int:
    """Return about how many bytes it takes to train on a text."""
    per_token = _BYTES_PER_TOKEN + _BYTES_PER_PAIR * num_kinds
    return num_tokens * per_token + (_BYTES_PER_WEIGHT << table_bits)
