"""How a language model is measured on a text.

`<unk>` is a word of the model, so unknown words count in the perplexity; the perplexity without
them drops both their log-probability and their number (as KenLM does).
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seqtool.core.arrays import Doubles, Ids
from seqtool.core.errors import ConfigError, DataError, ModelError
from seqtool.core.reading import (
    BlockReader,
    LineBlocks,
    Place,
    find_files,
    is_corpus,
    read_blocks,
    refuse_field,
)
from seqtool.core.vocabulary import EOS_ID, UNK_ID
from seqtool.lm.perplexity import (
    LMEvaluation,
    check_targets,
    surface_tokens,
    write_sentences,
    write_tokens,
)
from seqtool.lm.protocol import (
    LanguageModel,
    adaptations_of,
    carries_state,
    refuse_other_than_model,
)
from seqtool.lm.tables import Target, open_table
from seqtool.lm.unknown import UnknownWords
from seqtool.text.tokenizers import Tokenizer

if TYPE_CHECKING:
    from seqtool.core.processes import Pool
    from seqtool.text.prepared import PreparedCorpus

IDS_PER_BLOCK = 1 << 18
BYTES_PER_BLOCK = 1 << 20
BYTES_PER_SHARE = 1 << 17  # what a process is given at a time: a network needs seconds for it
MAX_LOG_PROB = 1e-3  # a softmax in single precision may round to a little above zero

ScoredInput = tuple[Ids, bytes | None]


def read_ids(
    model: LanguageModel,
    text: str | Path,
    *,
    split: str,
    field: str | None = None,
    num_tokens: int | None = None,
) -> Ids:
    """Return a text as ids of the model, `EOS_ID` after each sentence.

    Args:
        model: the model that is to read it.
        text: a file or directory of text, or a prepared corpus of the model's vocabulary.
        split: which split of a prepared corpus.
        field: which field of .jsonl files holds the text.
        num_tokens: read no more than these first tokens.

    Raises:
        DataError: a text that cannot be used, or a corpus of another vocabulary.
    """
    corpus = _prepared_corpus([text], model.tokenizer)
    if corpus is not None:
        return corpus.ids(split)[:num_tokens].astype(np.int32)
    parts: list[Ids] = []
    num_read = 0
    for ids, _ in model.tokenizer.encode_blocks(read_blocks([text], field=field)):
        parts.append(ids)
        num_read += len(ids)
        if num_tokens is not None and num_read >= num_tokens:
            break
    if not num_read:
        raise DataError("the text is empty", hint="give a text with at least one line", path=text)
    return np.concatenate(parts)[:num_tokens]


def evaluate_lm(
    model: LanguageModel,
    inputs: str | Path | Sequence[str | Path] = (),
    *,
    text: str | Iterable[str] | None = None,
    reset_state: bool | None = None,
    split: str | None = None,
    per_token: Target | None = None,
    per_sentence: Target | None = None,
    field: str | None = None,
    on_progress: Callable[[int, int | None], None] | None = None,
    on_scores: Callable[[Ids, Doubles, bytes | None], None] | None = None,
    pool: Pool[TextBlock, ScoredBlock] | None = None,
) -> LMEvaluation:
    r"""Measure a model on text; memory does not grow with it.

    Args:
        model: any language model.
        inputs: files, directories or "-" (standard input), one sentence per line; or one prepared
            corpus of the model's own vocabulary.
        text: instead of inputs, the text itself: a string of lines, or a sequence of sentences.
        reset_state: forget the text before each sentence, for models that carry it on. When not
            given, it is forgotten if a table is written, so that no row of it depends on the
            sentences before, unless the model adapts to the text.
        split: which split of a prepared corpus; its test split, else valid, when not given.
        per_token: where a table goes (.tsv, .csv, .parquet; "-" is TSV on standard output) with the
            columns sentence (1-based), token (as written), surprisal (bits), oov (0 or 1), then the
            model's own.
        per_sentence: where a table goes with sentence, tokens (with `</s>`), oov,
            log10_probability and perplexity.
        field: which field of .jsonl files holds the text.
        on_progress: called with bytes done and in all (None when not known).
        on_scores: called with the ids of each block of whole sentences, their nats, and the lines
            (None of a prepared corpus).
        pool: processes that score blocks, each by itself, as `scorer` returns it: of files of text
            that a model reads sentence by sentence.

    Returns:
        Perplexity per token with and without unknown words, bits per character and byte, and what
        they were counted on: sentences, tokens, unknown words.

    Raises:
        ConfigError: inputs and a text, or neither; or what a pool cannot score.
        DataError: a text that cannot be used, or a corpus of another vocabulary.
        ModelError: the model gives something that is no probability.
    """
    began = time.perf_counter()
    refuse_other_than_model(model)
    paths = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    check_targets(per_token, per_sentence, paths)
    if reset_state is None:
        has_table = per_token is not None or per_sentence is not None
        reset_state = has_table and not adaptations_of(model)
    if bool(paths) == (text is not None):
        raise ConfigError(
            "there are files and a text to measure on" if paths else "there is nothing to measure",
            hint="give files, or the text itself as text=...",
        )
    tokenizer = model.tokenizer
    size = BYTES_PER_BLOCK if pool is None else BYTES_PER_SHARE
    source = _open_source(paths, text, tokenizer, split, field, size, on_progress)
    corpus = source.corpus
    scored: Iterator[tuple[ScoredBlock, bytes | None]]
    if pool is None:
        scored = _score(model, source.inputs, reset_state=reset_state)
    elif source.blocks is None:
        raise ConfigError(
            "several processes read files of text", hint="name the text itself, or leave out --jobs"
        )
    else:
        check_shared(model, reset_state=reset_state)
        scored = _score_in(pool, source.blocks)

    sums = _Sums()
    unknown = UnknownWords(tokenizer)
    with ExitStack() as stack:
        token_table, sentence_table = (
            None if target is None else stack.enter_context(open_table(target))
            for target in (per_token, per_sentence)
        )
        for (ids, log_probs, columns, tokens), block in scored:
            first = sums.sentences + 1
            sums.add(ids, log_probs, block)
            unknown.add(ids, block)
            if on_scores is not None:
                on_scores(ids, log_probs, block)
            if token_table is not None:
                if tokens is None:
                    tokens = surface_tokens(tokenizer, ids, block)
                write_tokens(token_table, first, tokens, ids, log_probs, columns)
            if sentence_table is not None:
                write_sentences(sentence_table, first, ids, log_probs)
        if not sums.tokens:
            raise DataError("the text is empty", hint="give a text with at least one line")
    return LMEvaluation(
        unit=tokenizer.unit,
        vocabulary_size=len(tokenizer.vocabulary),
        sentences=sums.sentences,
        tokens=sums.tokens,
        oov=sums.oov,
        num_bytes=(
            sums.num_bytes if corpus is None else corpus.info["splits"][source.split].get("bytes")
        ),
        known_nats=math.fsum(sums.known_nats),
        unknown_nats=math.fsum(sums.unknown_nats),
        impossible=sums.impossible,
        seconds=time.perf_counter() - began,
        true_log10_probability=_true_log10_probability(source.read_digests(paths)),
        split=None if corpus is None else source.split,
        adaptations=adaptations_of(model),
        state="reset" if reset_state or not carries_state(model) else "carried",
        unknown_words=unknown.counts,
    )


class _Source(NamedTuple):
    """The text that a model is measured on.

    Attributes:
        inputs: ids of blocks of whole sentences, and their lines.
        blocks: the lines of files alone; None of a corpus, or of a text that is given itself.
        corpus: the prepared corpus; None of another text.
        split: of it; empty for other texts.
        digests: of whole files, by their paths, complete when they have been read.
    """

    inputs: Iterator[ScoredInput]
    blocks: BlockReader | None
    corpus: PreparedCorpus | None
    split: str
    digests: dict[str, str]

    def read_digests(self, paths: Sequence[str | Path]) -> list[str]:
        """Return those of what was read, of a file that is named twice two; "" where unknown."""
        names = self.digests if self.blocks is None else find_files(paths)
        return [self.digests.get(name, "") for name in names]


def _open_source(
    paths: Sequence[str | Path],
    text: str | Iterable[str] | None,
    tokenizer: Tokenizer,
    split: str | None,
    field: str | None,
    block_size: int,
    on_progress: Callable[[int, int | None], None] | None,
) -> _Source:
    """Open what `evaluate_lm` measures, by its arguments; `block_size` is in bytes.

    Raises:
        ConfigError: a split or a field of what has none.
        DataError: a corpus of another vocabulary.
    """
    digests: dict[str, str] = {}
    corpus = _prepared_corpus(paths, tokenizer)
    if corpus is not None:
        refuse_field(field, [corpus.path])
        split = _choose_split(corpus, split)
        if corpus.info.get("shares") is None:  # the split is the whole of its files
            digests = {
                item["path"]: item["sha256"]
                for item in corpus.info.get("sources", [])
                if item["split"] == split and "sha256" in item  # Spark takes no sums
            }
        inputs = cut_sentences(corpus.ids(split), on_progress)
        return _Source(inputs, None, corpus, split, digests)
    if split is not None:
        raise ConfigError(
            f"--split {split} needs a prepared corpus", hint="name its directory, or drop --split"
        )
    if text is not None:
        return _Source(encode_text(text, tokenizer), None, None, "", digests)
    blocks = read_blocks(
        paths, field=field, block_size=block_size, on_progress=on_progress, digests=digests
    )
    return _Source(tokenizer.encode_blocks(blocks), blocks, None, "", digests)


class TextBlock(NamedTuple):
    """Whole lines of a text, and where they come from."""

    text: bytes
    place: Place


class ScoredBlock(NamedTuple):
    """What is written of some sentences.

    Attributes:
        ids: [N], `EOS_ID` after each sentence.
        log_probs: [N] nats.
        columns: further values, name -> [N].
        tokens: as they are written, where another process has taken that work over.
    """

    ids: Ids
    log_probs: Doubles
    columns: Mapping[str, npt.NDArray[Any]]
    tokens: Sequence[str] | None = None


def _score(
    model: LanguageModel,
    source: Iterable[ScoredInput],
    *,
    reset_state: bool,
) -> Iterator[tuple[ScoredBlock, bytes | None]]:
    """Give the scores of each block, and its lines."""
    pending: deque[ScoredInput] = deque()  # read by the model, not scored yet

    def feed() -> Iterator[Ids]:
        for ids, text in source:
            pending.append((ids, text))
            yield ids

    for scores in model.score_ids(feed(), reset_state=reset_state):
        ids, text = pending.popleft()
        log_probs = np.asarray(scores.log_probs, dtype=np.float64)
        yield ScoredBlock(ids, log_probs, scores.columns), text


def _score_in(
    pool: Pool[TextBlock, ScoredBlock], blocks: BlockReader
) -> Iterator[tuple[ScoredBlock, bytes | None]]:
    """Give what processes make of each block, and its lines."""
    pending: deque[bytes] = deque()

    def read() -> Iterator[TextBlock]:
        for block in blocks:
            pending.append(block)
            yield TextBlock(block, blocks.place)

    for scored in pool.map(read()):
        yield scored, pending.popleft()


def check_shared(model: LanguageModel, *, reset_state: bool) -> None:
    """Refuse a model that several processes cannot share a text with.

    Raises:
        ConfigError: what a sentence gets depends on those before it.
    """
    is_adapting = bool(adaptations_of(model))
    if is_adapting or (carries_state(model) and not reset_state):
        other = (
            "" if is_adapting else "add --reset-state, with which each sentence begins anew, or "
        )
        raise ConfigError(
            "the model reads the text as one, which processes cannot share",
            hint=f"{other}leave out --jobs",
        )


def scorer(model: LanguageModel, *, with_tokens: bool) -> Callable[[TextBlock], ScoredBlock]:
    """Return what scores a block of sentences, each by itself.

    Args:
        model: that keeps no state from sentence to sentence, or forgets it.
        with_tokens: give the tokens, too, as they are written.

    Raises:
        DataError: by the function: a text that cannot be used.
    """
    from seqtool.lm.tables import Cells

    def score(block: TextBlock) -> ScoredBlock:
        with block.place.locating():
            source = [(model.tokenizer.encode_block(block.text), block.text)]
        ((scored, text),) = _score(model, source, reset_state=True)
        if not with_tokens:
            return scored
        tokens = surface_tokens(model.tokenizer, scored.ids, text)
        return scored._replace(tokens=Cells.of(tokens))

    return score


@dataclass
class _Sums:
    """What is counted block by block; `LMEvaluation` says what each is."""

    sentences: int = 0
    tokens: int = 0
    oov: int = 0
    num_bytes: int = 0
    impossible: int = 0
    known_nats: list[float] = dataclasses.field(default_factory=list)  # one per block, for fsum
    unknown_nats: list[float] = dataclasses.field(default_factory=list)

    def add(self, ids: Ids, log_probs: npt.NDArray[np.float64], text: bytes | None) -> None:
        if log_probs.shape != ids.shape:
            raise ValueError(f"{len(log_probs)} scores for {len(ids)} tokens")
        check_log_probs(log_probs, self.tokens)
        unknown = ids == UNK_ID
        self.sentences += int((ids == EOS_ID).sum())
        self.tokens += len(ids)
        self.oov += int(unknown.sum())
        self.num_bytes += 0 if text is None else len(text)
        self.impossible += int(np.isneginf(log_probs).sum())
        self.known_nats.append(float(log_probs[~unknown].sum()))
        self.unknown_nats.append(float(log_probs[unknown].sum()))


def check_log_probs(log_probs: npt.NDArray[np.float64], num_before: int = 0) -> None:
    """Refuse scores, [N] nats, that are no log-probabilities; they follow `num_before` others.

    Raises:
        ModelError: there is such a score.
    """
    sound = log_probs < MAX_LOG_PROB  # False for NaN
    if not sound.all():
        token = num_before + int(np.argmin(sound)) + 1
        raise ModelError(
            f"the model's score of token {token} is no probability",
            hint="its weights are not sound: train the model, or write the ARPA file, again",
        )


def _prepared_corpus(paths: Sequence[str | Path], tokenizer: Tokenizer) -> PreparedCorpus | None:
    found = [path for path in paths if is_corpus(path)]
    if not found:
        return None
    if len(paths) > 1:
        raise ConfigError(
            "a prepared corpus cannot be mixed with other texts", hint="evaluate it by itself"
        )
    from seqtool.text.prepared import PreparedCorpus

    corpus = PreparedCorpus.open(found[0])
    theirs = corpus.tokenizer
    if theirs.unit != tokenizer.unit or theirs.vocabulary != tokenizer.vocabulary:
        raise DataError(
            "was prepared with another vocabulary than the model's",
            hint="evaluate the text itself: the model brings its own tokenizer",
            path=found[0],
        )
    return corpus


def _choose_split(corpus: PreparedCorpus, split: str | None) -> str:
    splits = list(corpus.splits())
    if split is None:
        return next((name for name in ("test", "valid") if name in splits), splits[0])
    if split not in splits:
        raise DataError(
            f"has no {split} split", hint=f"choose one of: {', '.join(splits)}", path=corpus.path
        )
    return split


def encode_text(text: str | Iterable[str], tokenizer: Tokenizer) -> Iterator[ScoredInput]:
    """Yield a text in memory as blocks of ids, `EOS_ID` after each sentence, and their lines.

    Args:
        text: a string of lines, or sentences, which have no line ends inside.
        tokenizer: of the model that reads it.

    Raises:
        DataError: a text that cannot be used, with the number of the sentence as its line.
    """
    if isinstance(text, str):
        # as in a file: the end of the last line may be missing
        lines = text.replace("\r\n", "\n").removesuffix("\n")
        text = lines.split("\n") if text else []
    return tokenizer.encode_blocks(LineBlocks(text))


def cut_sentences(
    ids: npt.NDArray[np.unsignedinteger], on_progress: Callable[[int, int | None], None] | None
) -> Iterator[ScoredInput]:
    """Yield a stream of ids in blocks that end with a sentence; one long sentence stays whole."""
    begin = 0
    while begin < len(ids):
        end, cut = begin + IDS_PER_BLOCK, 0
        while not cut:
            block = np.asarray(ids[begin:end], dtype=np.int32)
            ends = np.flatnonzero(block == EOS_ID)
            cut = int(ends[-1]) + 1 if len(ends) else len(block) * (end >= len(ids))
            end += IDS_PER_BLOCK
        yield block[:cut], None
        begin += cut
        if on_progress is not None:
            on_progress(begin * ids.itemsize, len(ids) * ids.itemsize)


def _true_log10_probability(digests: Iterable[str]) -> float | None:
    """Sum what the sample's grammar gives the texts; None unless all of them are the sample's."""
    from seqtool.text.datasets import true_perplexity

    truths = [true_perplexity(digest) for digest in digests]
    known = [truth.log10_probability for truth in truths if truth is not None]
    return math.fsum(known) if known and len(known) == len(truths) else None
