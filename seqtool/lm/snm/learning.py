"""Training: features counted, and their relative frequencies adjusted by hashed metafeatures.

The adjustment is learnt by leaving one out.

The element of the matrix for feature i and target j is (Shazeer, Pelemans & Chelba 2015)

    M_ij = exp(A(i, j)) C_ij / C_i*

A(i, j) is a sum of weights, one for each metafeature of the pair: conjunctions of what the feature
is, of which template, how often it came, what the target is, and how often both came together.
Counts are on a scale of log2: the two whole numbers around it share the weight. A conjunction with
the feature needs neither its template nor its count, which the feature has always; one with the
pair needs no counts at all. The weights are in one table of 2^bits, wherever their hashes fall.

The loss is the Poisson loss of each token t in its history, with y the sum of M over the features
that are there, and 1 / V for a word that no feature predicts, times exp(A_0):

    sum over all words u of y_u, less log y_t

Each token is left out of the counts as it is predicted: C_ij and C_i* are less by one, in the
matrix and in the metafeatures. What a feature expects of words that do not come, in all its
tokens, is spread over the tokens where they do come: with c = C_i* - 1, of each pair that token t
is in, exp(A-) (C_i* - C_ij) / c, where A- has C_ij as it is. So a token takes no time for the words
that it is not, and the sum of gradients over a text is exact.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import types

from seqtool.core import checkpoint, runtime
from seqtool.core.arrays import Doubles, Floats, Longs
from seqtool.core.config import from_dict, to_dict
from seqtool.core.errors import TrainingError
from seqtool.core.jit import compiled
from seqtool.core.progress import shows_stages
from seqtool.core.reading import Progress, is_corpus
from seqtool.core.string_table import SEED, mix
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.evaluation import evaluate_lm
from seqtool.lm.ngram.data import given_splits, read_ids
from seqtool.lm.ngram.train import CountedTraining, OnProgress, Stages, check_output, held_out
from seqtool.lm.snm.features import (
    LESS_MEMORY,
    Counts,
    SnmConfig,
    as_arrays,
    count_features,
    counts_type,
)
from seqtool.lm.snm.model import SnmModel, make_matrix, save_model
from seqtool.training.config import seconds_of

_TOKENS = 1 << 14  # between two looks at the progress and the clock; Ctrl-C waits for that
NUM_SHARED, NUM_OWN = 8, 14  # metafeatures of a pair without, and with, its own count
_PIECE = 1 << 16  # pairs that one thread adjusts at a time
INITIAL = 1.0  # of the sums of squared gradients: no first step is longer than the rate
_TEMPLATE, _TARGET, _FEATURE, _PAIR = (np.uint64(number) for number in range(1, 5))
_SCALE = np.uint64(64)  # more than any log2 of a count
_ONE = np.uint64(1)


class Table(NamedTuple):
    """The weights of metafeatures, and what AdaGrad needs.

    Attributes:
        weights: float32 [2^bits, 2], the weight and the sum of squared gradients.
        unseen: float64 [2], A_0 and its sum.
        bias: float64 [1], added to every A: the sum of y is near 1 from the beginning.
    """

    weights: Floats
    unseen: Doubles
    bias: Doubles


table_type = types.NamedTuple(
    (types.float32[:, ::1], types.float64[::1], types.float64[::1]), Table
)


class Room(NamedTuple):
    """The metafeatures of one token: of K features, [K, 8 + 14 + 14].

    Attributes:
        slots: int64, where they are in the table; those of all counts, with C_ij - 1, with C_ij.
        shares: float32, what they count.
    """

    slots: Longs
    shares: Floats


room_type = types.NamedTuple((types.int64[:, ::1], types.float32[:, ::1]), Room)


def make_table(bits: int, num_templates: int) -> Table:
    """Return a table in which all weights are zero."""
    # with A = 0 each of K templates, and what is unseen, would add 1 to the sum of y
    bias = -math.log(num_templates + 1)
    return Table(np.zeros((1 << bits, 2), np.float32), np.zeros(2), np.array([bias]))


def make_room(num_features: int) -> Room:
    """Return room for the metafeatures of so many features."""
    width = NUM_SHARED + 2 * NUM_OWN
    return Room(
        np.zeros((num_features, width), np.int64), np.zeros((num_features, width), np.float32)
    )


@compiled(types.void(room_type, types.int64, types.int64, types.uint64, types.float64))
def _put(room, row, column, hash_, share):  # type: ignore[no-untyped-def]
    """Note one metafeature."""
    room.slots[row, column], room.shares[row, column] = np.int64(hash_), share


_pair = [types.int64] * 4  # a template, the number of its feature, a target, and C_i*, above 0


@compiled(types.void(room_type, types.int64, types.uint64, *_pair))
def find_shared(room, row, mask, template, feature, target, count):  # type: ignore[no-untyped-def]
    """Find the metafeatures of a pair that do not read C_ij.

    Args:
        room: where to.
        row: of it.
        mask: the last slot of the table.
        template: of the feature.
        feature: its number.
        target: the word.
        count: C_i*, above 0.
    """
    scale = np.log2(count)
    low = np.int64(scale)
    upper = scale - low
    of_template = mix(mix(SEED, _TEMPLATE), np.uint64(template))
    of_target = mix(mix(of_template, _TARGET), np.uint64(target))
    of_feature = mix(mix(SEED, _FEATURE), np.uint64(feature))
    of_pair = mix(mix(of_feature, _PAIR), np.uint64(target))
    _put(room, row, 0, of_template & mask, 1.0)
    _put(room, row, 1, of_target & mask, 1.0)
    _put(room, row, 2, of_feature & mask, 1.0)
    _put(room, row, 3, of_pair & mask, 1.0)
    for step in range(2):
        level, share = np.uint64(low + step) + _ONE, upper if step else 1.0 - upper
        _put(room, row, 4 + step, mix(of_template, level) & mask, share)
        _put(room, row, 6 + step, mix(of_target, level) & mask, share)


@compiled(types.void(room_type, *[types.int64] * 2, types.uint64, *_pair, types.int64))
def find_own(room, row, first, mask, template, feature, target, count, pair_count):  # type: ignore[no-untyped-def]
    """Find the metafeatures of a pair that read C_ij, which is above 0; from a column on."""
    scale, own_scale = np.log2(count), np.log2(pair_count)
    low, own_low = np.int64(scale), np.int64(own_scale)
    upper, own_upper = scale - low, own_scale - own_low
    of_template = mix(mix(SEED, _TEMPLATE), np.uint64(template))
    of_target = mix(mix(of_template, _TARGET), np.uint64(target))
    of_feature = mix(mix(SEED, _FEATURE), np.uint64(feature))
    column = first
    for step in range(2):
        # levels of C_i* are below 64: what stands for one count is never what stands for both
        own = (np.uint64(own_low + step) + _ONE) * _SCALE
        share = own_upper if step else 1.0 - own_upper
        _put(room, row, column, mix(of_template, own) & mask, share)
        _put(room, row, column + 1, mix(of_target, own) & mask, share)
        _put(room, row, column + 2, mix(of_feature, own) & mask, share)
        column += 3
        for other in range(2):
            # never `own` itself, which stands for C_ij alone
            level = own + np.uint64(low + other) + _ONE
            both = share * (upper if other else 1.0 - upper)
            _put(room, row, column, mix(of_template, level) & mask, both)
            _put(room, row, column + 1, mix(of_target, level) & mask, both)
            column += 2


@compiled(types.float64(table_type, room_type, types.int64, types.int64, types.int64))
def _sum(table, room, row, begin, end):  # type: ignore[no-untyped-def]
    """Return the sum of the weights of some metafeatures."""
    total = 0.0
    for column in range(begin, end):
        total += table.weights[room.slots[row, column], 0] * room.shares[row, column]
    return total


@compiled(
    types.float64(
        counts_type,
        types.int32[:, ::1],
        *[types.int64] * 3,
        table_type,
        room_type,
        types.float64[:, ::1],
    )
)
def token_gradients(counts, events, token, num_words, prune, table, room, gradients):  # type: ignore[no-untyped-def]
    """Return the loss of one token, left out of the counts, with its gradients.

    Args:
        counts: of the text.
        events: [T, K], the pairs of all tokens.
        token: which.
        num_words: V.
        prune: features that are as rare without the token are not there.
        table: the weights.
        room: filled with the metafeatures of K features.
        gradients: [K + 1, 3] is filled: those of A where it does not read C_ij, where it reads
            C_ij - 1, and where it reads C_ij; zero where there is no feature, or no such A. In the
            last row, that of A_0.
    """
    mask = np.uint64(table.weights.shape[0] - 1)
    unseen = np.exp(table.unseen[0] + table.bias[0])
    seen, expected = unseen / num_words, unseen
    num_templates, middle = events.shape[1], NUM_SHARED + NUM_OWN
    for k in range(num_templates):
        gradients[k, 0] = gradients[k, 1] = gradients[k, 2] = 0.0
        pair = events[token, k]
        if pair < 0:
            continue
        feature = np.int64(counts.features[pair])
        count = np.int64(counts.feature_counts[feature]) - 1
        pair_count = np.int64(counts.counts[pair]) - 1
        # template 0, of no words, is never pruned
        if count <= 0 or (count <= prune and k > 0):
            continue
        target = np.int64(counts.targets[pair])
        find_shared(room, k, mask, k, feature, target, count)
        shared = table.bias[0] + _sum(table, room, k, 0, NUM_SHARED)
        # a pair of this token alone is not known without it
        if pair_count > 0:
            find_own(room, k, NUM_SHARED, mask, k, feature, target, count, pair_count)
            own = _sum(table, room, k, NUM_SHARED, middle)
            gradients[k, 1] = np.exp(shared + own) * pair_count / count
            seen += gradients[k, 1]
        # other tokens of the feature have other targets: what it expects of this word there
        if pair_count < count:
            find_own(room, k, middle, mask, k, feature, target, count, pair_count + 1)
            own = _sum(table, room, k, middle, middle + NUM_OWN)
            gradients[k, 2] = np.exp(shared + own) * (count - pair_count) / count
        expected += gradients[k, 1] + gradients[k, 2]
    for k in range(num_templates):
        # the loss is expected - ln(seen): what is in both sums has the slope 1 - 1 / seen
        gradients[k, 1] *= 1.0 - 1.0 / seen
        gradients[k, 0] = gradients[k, 1] + gradients[k, 2]
    gradients[num_templates, 0] = unseen * (1.0 - 1.0 / (num_words * seen))
    return expected - np.log(seen)


@compiled(types.void(table_type, room_type, *[types.int64] * 3, types.float64, types.float64))
def _step(table, room, row, begin, end, gradient, rate):  # type: ignore[no-untyped-def]
    """Take one step of AdaGrad for the weights of some metafeatures."""
    for column in range(begin, end):
        slot, of_weight = room.slots[row, column], gradient * room.shares[row, column]
        squares = table.weights[slot, 1] + of_weight * of_weight
        table.weights[slot, 1] = squares
        table.weights[slot, 0] -= rate * of_weight / np.sqrt(INITIAL + squares)


@compiled(
    types.float64(
        counts_type, types.int32[:, ::1], *[types.int64] * 4, types.float64, table_type, room_type
    )
)
def learn(counts, events, begin, end, num_words, prune, rate, table, room):  # type: ignore[no-untyped-def]
    """Learn from the tokens `begin` to `end` in turn; return the sum of their losses.

    AdaGrad (Duchi et al. 2011): the rate over the root of the sum of squared gradients. The other
    arguments are those of `token_gradients`.
    """
    num_templates = events.shape[1]
    gradients = np.zeros((num_templates + 1, 3))
    middle, last = NUM_SHARED + NUM_OWN, NUM_SHARED + 2 * NUM_OWN
    loss = 0.0
    for token in range(begin, end):
        loss += token_gradients(counts, events, token, num_words, prune, table, room, gradients)
        # a zero is a metafeature that is not there: its places in `room` are of an earlier token
        for k in range(num_templates):
            if gradients[k, 0] != 0.0:
                _step(table, room, k, 0, NUM_SHARED, gradients[k, 0], rate)
            if gradients[k, 1] != 0.0:
                _step(table, room, k, NUM_SHARED, middle, gradients[k, 1], rate)
            if gradients[k, 2] != 0.0:
                _step(table, room, k, middle, last, gradients[k, 2], rate)
        of_unseen = gradients[num_templates, 0]
        table.unseen[1] += of_unseen * of_unseen
        table.unseen[0] -= rate * of_unseen / np.sqrt(INITIAL + table.unseen[1])
    return loss


@compiled(
    types.void(counts_type, types.int64, types.int64, table_type, room_type, types.float32[::1])
)
def _adjust(counts, begin, end, table, room, matrix):  # type: ignore[no-untyped-def]
    """Fill M_ij for the pairs `begin` to `end`."""
    mask = np.uint64(table.weights.shape[0] - 1)
    template = np.int64(0)
    for pair in range(begin, end):
        feature = np.int64(counts.features[pair])
        # features of one template are together, so that it only goes up
        while counts.first[template + 1] <= feature:
            template += 1
        count = np.int64(counts.feature_counts[feature])
        target, pair_count = np.int64(counts.targets[pair]), np.int64(counts.counts[pair])
        find_shared(room, 0, mask, template, feature, target, count)
        find_own(room, 0, NUM_SHARED, mask, template, feature, target, count, pair_count)
        adjustment = table.bias[0] + _sum(table, room, 0, 0, NUM_SHARED + NUM_OWN)
        matrix[pair] = np.exp(adjustment) * pair_count / count


def adjusted(counts: Counts, table: Table, *, threads: int = 1) -> Floats:
    """Return M_ij of every pair, [P]."""
    matrix = np.empty(len(counts.targets), np.float32)

    def fill(begin: int) -> None:
        end = min(begin + _PIECE, len(matrix))
        _adjust(counts, begin, end, table, make_room(1), matrix)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(fill, range(0, len(matrix), _PIECE)))
    return matrix


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
    templates, size = config.templates, len(tokenizer.vocabulary)
    num_tokens = len(reading.ids)
    purpose = f"{num_tokens:,} tokens with {len(templates)} kinds of features"
    # measured on PTB (0.93 million tokens, 5 and 23 kinds), beyond what the imports take
    needed = num_tokens * (90 + 45 * len(templates)) + (8 << config.table_bits)
    runtime.check_memory(needed, purpose, LESS_MEMORY, memory)
    with stages("counting") as on_count:
        counts = count_features(
            np.ascontiguousarray(reading.ids, np.int32),
            as_arrays(templates),
            size,
            prune=config.prune,
            threads=threads,
            on_progress=on_count,
        )
    table = make_table(config.table_bits, len(templates))
    with stages("learning") as on_learn:
        losses, passes = learn_table(counts, table, config, size, begun, on_learn)
    with stages("adjusting"):
        unseen = np.exp(table.unseen[0] + table.bias[0])
        matrix = make_matrix(counts, adjusted(counts, table, threads=threads), unseen)
    if not (np.isfinite(matrix.sums).all() and 0 < matrix.unseen[0] < np.inf):
        raise _too_large(config, len(losses))
    sizes = np.diff(counts.begins[counts.first])
    kinds = [
        {**template._asdict(), "features": int(num), "pairs": int(pairs)}
        for template, num, pairs in zip(templates, np.diff(counts.first), sizes, strict=True)
    ]
    model, scores = SnmModel(matrix, templates, tokenizer), dict[str, float]()
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
        num_tokens=num_tokens,
        num_sentences=int((reading.ids == EOS_ID).sum()),
        num_unknown=reading.num_unknown,
        vocabulary_size=len(tokenizer.vocabulary),
        seconds=stages.seconds,
    )


def learn_table(
    counts: Counts,
    table: Table,
    config: SnmConfig,
    vocabulary_size: int,
    begun: float,
    on_progress: Progress,
) -> tuple[list[float], float]:
    """Learn the weights of a table, and return the losses and passes of `SnmTraining`.

    A limit of time counts from `begun`, of `time.perf_counter`; the rate falls to zero by then.

    Raises:
        TrainingError: the loss is no number.
    """
    num_tokens, room = len(counts.events), make_room(counts.events.shape[1])
    total = None if config.time_limit else config.epochs * num_tokens
    losses: list[float] = []
    token, loss_sum = 0, 0.0  # of the running epoch
    while True:
        rate = config.learning_rate
        if config.time_limit:
            rate *= 1 - (time.perf_counter() - begun) / seconds_of(config.time_limit)
        if rate <= 0 or (not config.time_limit and len(losses) == config.epochs):
            return losses, len(losses) + token / num_tokens
        stop = min(token + _TOKENS, num_tokens)
        loss_sum += learn(
            counts, counts.events, token, stop, vocabulary_size, config.prune, rate, table, room
        )
        if not math.isfinite(loss_sum):
            raise _too_large(config, len(losses) + 1)
        token = stop
        if stop == num_tokens:
            losses.append(math.exp(loss_sum / num_tokens - 1))  # the sum of y is about 1
            token, loss_sum = 0, 0.0
        on_progress(len(losses) * num_tokens + token, total)


def _too_large(config: SnmConfig, epoch: int) -> TrainingError:
    what = f"the loss is no number in epoch {epoch}: weights have grown too large"
    return TrainingError(what, hint=f"lower --lr, which is {config.learning_rate:g}")
