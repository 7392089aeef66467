"""What every language model answers, and how it is measured on a text.

A sentence is its tokens and `</s>`; `<s>` conditions and is never scored. `<unk>` is a word of the
model, so unknown words count in the perplexity; the perplexity without them drops both their
log-probability and their number (as KenLM does). Log-probabilities are natural logs ("nats") in
here; what people read is in log10 or bits.
"""

from __future__ import annotations

import dataclasses
import math
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from seqtool.core.arrays import Bools, Doubles, Ids, Reals
from seqtool.core.errors import ConfigError, DataError, ModelError
from seqtool.core.reading import BlockReader, Place, is_corpus, read_blocks
from seqtool.core.vocabulary import EOS_ID, UNK_ID
from seqtool.lm.perplexity import (
    Adaptation,
    check_targets,
    surface_tokens,
    write_sentences,
    write_tokens,
)
from seqtool.lm.perplexity import LMEvaluation as LMEvaluation
from seqtool.lm.tables import Target, open_table
from seqtool.lm.unknown import UnknownWords
from seqtool.text.tokenizers import Tokenizer

if TYPE_CHECKING:
    from seqtool.core.processes import Pool
    from seqtool.text.prepared import PreparedCorpus
    from seqtool.text.shards import IdReader
    from seqtool.text.spellings import Spellings

IDS_PER_BLOCK = 1 << 18
BYTES_PER_BLOCK = 1 << 20
BYTES_PER_SHARE = 1 << 17  # what a process is given at a time: a network needs seconds for it
IN_MEMORY = "<text>"  # stands for a path in the messages about a text that is no file
MAX_LOG_PROB = 1e-3  # a softmax in single precision may round to a little above zero

State = Any
ScoredInput = tuple[Ids, bytes | None]


@dataclass(frozen=True)
class TokenScores:
    """The scores of N tokens in the order of the text, `</s>` included.

    Attributes:
        log_probs: float64 [N], nats; -inf where the model gives no probability.
        columns: further values per token, name -> [N], such as the n-gram order that was matched.
        class_log_probs: float64 [N], nats of all symbols of `Summary.class_V` in the place of this
            token, where it is one of them; of no meaning elsewhere. None if not asked for.
        entropies: float64 [N], nats, of the distribution that the token is drawn from, `</s>` and
            `<unk>` in it. None if not asked for.
    """

    log_probs: npt.NDArray[np.float64]
    columns: Mapping[str, npt.NDArray[Any]] = dataclasses.field(default_factory=dict)
    class_log_probs: Doubles | None = None
    entropies: Doubles | None = None


@dataclass(frozen=True)
class Summary:
    """What is asked of the whole distribution of each token, beside the token's own probability.

    Attributes:
        class_V: bool [V], a class of symbols whose probability is asked for; None for none.
        entropy: whether the entropy is.
    """

    class_V: Bools | None = None
    entropy: bool = False


class LanguageModel(Protocol):
    """A model that scores text and goes through it token by token, all of it as ids.

    This is what the package needs of a model; people call what `lm.model.LanguageModel` adds.
    A `State` stands for H hypotheses, each a text read so far; it is opaque and never changed in
    place. V is the size of the vocabulary (`<unk>` and `</s>` in, `<s>` out).

    Attributes:
        kind: of the model directory.
        tokenizer: whose ids the model reads.
    """

    kind: str
    tokenizer: Tokenizer

    @abstractmethod
    def score_ids(
        self, blocks: Iterable[Ids], *, reset_state: bool = False
    ) -> Iterator[TokenScores]:
        """Score blocks of whole sentences, `EOS_ID` after each; one result per block, in order.

        Args:
            blocks: flat ids; read no faster than results are given, up to a small look-ahead.
            reset_state: forget the text before each sentence, for models that carry it on.
        """
        ...

    @abstractmethod
    def start(self, num: int) -> State:
        """Return `num` hypotheses that stand at the beginning of a sentence."""
        ...

    @abstractmethod
    def advance(self, state: State, tokens: Ids) -> State:
        """Read one token per hypothesis, [H]; `EOS_ID` begins the next sentence."""
        ...

    @abstractmethod
    def next_log_probs(self, state: State) -> Reals:
        """Return [H, V] nats for the next token of each hypothesis; exp of a row sums to one."""
        ...

    @abstractmethod
    def select(self, state: State, rows: npt.NDArray[np.intp]) -> State:
        """Return the hypotheses `rows`, which may repeat, leave out and re-order them."""
        ...


@runtime_checkable
class SummarisingModel(Protocol):
    """A language model that reads summaries off its distributions as it scores a text.

    What other models are asked is found by `summarise`, step by step.
    """

    def summarise_ids(
        self, blocks: Iterable[Ids], summary: Summary, *, reset_state: bool = False
    ) -> Iterator[TokenScores]:
        """Score blocks as `score_ids` does, with the class or the entropy that is asked for."""
        ...


@runtime_checkable
class SpellingModel(Protocol):
    """A language model that may read a word that its vocabulary lacks by its characters."""

    def spell_unknown(self, ids: Ids, unknown: Iterable[tuple[int, str]]) -> Ids:
        """Return the ids of whole lines, with ids from V on for unknown words.

        The model scores these as `<unk>`, and reads them as the words that they are.

        Args:
            ids: of the lines.
            unknown: the places of unknown words among them, and the words as they are written.
        """
        ...


def as_read(
    model: LanguageModel, ids: Ids, block: bytes | None, spellings: Spellings | None = None
) -> Ids:
    """Return the ids of a block as a model is to read them.

    Without its text, and without the spellings of the corpus that it is of, it stays as it is.
    """
    if not isinstance(model, SpellingModel):
        return ids
    if block is not None:
        return model.spell_unknown(ids, model.tokenizer.unknown_tokens(block, ids))
    return ids if spellings is None else model.spell_unknown(ids, spellings.of(ids))


@runtime_checkable
class SentenceReader(Protocol):
    """A language model whose hidden states can be looked at: a neural one."""

    @property
    def state_size(self) -> int:
        """H, the width of a state."""
        ...

    @property
    def num_layers(self) -> int:
        """How many layers there are above the embedding."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer whose ids the model reads."""
        ...

    def sentence_states(self, sentences: Sequence[Ids], layer: int | None = None) -> list[Reals]:
        """Return the state of the top layer after `</s>` and after each token, [1 + N, H].

        Each sentence is read from the state at the beginning of a text, which `</s>` begins, so
        row n is what `next_log_probs` is computed from after `start` and n times `advance`. All are
        read at once, padded; what stands beside a sentence changes nothing but the last bits.

        Args:
            sentences: ids of each, [N], without `</s>`.
            layer: give the states of this layer, from 1, instead; 0 is the embedding.
        """
        ...


def adaptations_of(model: LanguageModel) -> tuple[Adaptation, ...]:
    """Return how a model adapts to the text that it scores; most models do not."""
    found: tuple[Adaptation, ...] = getattr(model, "adaptations", ())
    return found


def carries_state(model: LanguageModel) -> bool:
    """Return whether a sentence's score may depend on the sentences before it."""
    return bool(getattr(model, "carries_state", True))


def summarise(
    model: LanguageModel, blocks: Iterable[Ids], summary: Summary, *, reset_state: bool
) -> Iterator[TokenScores]:
    """Score blocks of whole sentences with what is asked of each token's distribution.

    Args:
        model: any language model.
        blocks: flat ids, `EOS_ID` after each sentence.
        summary: what is asked.
        reset_state: forget the text before each sentence.
    """
    if isinstance(model, SummarisingModel):
        return model.summarise_ids(blocks, summary, reset_state=reset_state)
    return summarise_by_steps(model, blocks, summary, reset_state=reset_state)


STEP_SENTENCES = 32  # read side by side; each step takes their number times V


def summarise_by_steps(
    model: LanguageModel, blocks: Iterable[Ids], summary: Summary, *, reset_state: bool
) -> Iterator[TokenScores]:
    """Do what `summarise` does by `next_log_probs` alone, with whole distributions, token by token.

    Where the state is reset, sentences of like lengths are read side by side.
    """
    state = None
    for ids in blocks:
        found = TokenScores(
            np.zeros(len(ids)),
            class_log_probs=None if summary.class_V is None else np.zeros(len(ids)),
            entropies=np.zeros(len(ids)) if summary.entropy else None,
        )
        if not reset_state:
            state = model.start(1) if state is None else state
            for place, token in enumerate(ids):
                _take(found, model.next_log_probs(state), np.array([place]), ids, summary)
                state = model.advance(state, np.array([token], np.int32))
            yield found
            continue
        ends = np.flatnonzero(ids == EOS_ID)
        begins = np.concatenate(([0], ends[:-1] + 1))
        by_length = np.argsort(begins - ends, kind="stable")  # the longest first
        for first in range(0, len(ends), STEP_SENTENCES):
            chosen = by_length[first : first + STEP_SENTENCES]
            places, last = begins[chosen], ends[chosen]
            state = model.start(len(chosen))
            while len(places):
                _take(found, model.next_log_probs(state), places, ids, summary)
                # those that end are the last ones
                open_ = np.flatnonzero(places < last)
                if len(open_):
                    state = model.advance(model.select(state, open_), ids[places[open_]])
                places, last = places[open_] + 1, last[open_]
        yield found


def _take(
    found: TokenScores,
    log_probs_HV: Reals,
    places: npt.NDArray[np.intp],
    ids: Ids,
    summary: Summary,
) -> None:
    """Note what a distribution for each of some tokens says."""
    doubles_HV = log_probs_HV.astype(np.float64, copy=False)
    found.log_probs[places] = doubles_HV[np.arange(len(places)), ids[places]]
    if found.class_log_probs is not None and summary.class_V is not None:
        found.class_log_probs[places] = class_log_probs(doubles_HV, summary.class_V)
    if found.entropies is not None:
        found.entropies[places] = entropies(doubles_HV)


def class_log_probs(log_probs_HV: Doubles, class_V: Bools) -> Doubles:
    """Return the log-probability (nats) of a class of symbols in each distribution, [H]."""
    logs_HC = np.take(log_probs_HV, np.flatnonzero(class_V), axis=1)  # faster than by the mask
    probs_H = np.exp(logs_HC).sum(axis=1)
    with np.errstate(divide="ignore"):
        found: Doubles = np.log(probs_H)
    if (lost_H := probs_H < np.finfo(np.float64).tiny).any():  # rounds to zero, or nearly
        found[lost_H] = np.logaddexp.reduce(logs_HC[lost_H], axis=1)
    return found


def entropies(log_probs_HV: Doubles) -> Doubles:
    """Return the entropy (nats) of each distribution, [H]; what is impossible adds nothing."""
    probs_HV = np.exp(log_probs_HV)
    terms_HV = np.where(probs_HV > 0, probs_HV * np.where(probs_HV > 0, log_probs_HV, 0.0), 0.0)
    found: Doubles = 0.0 - terms_HV.sum(axis=1)
    return found


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
        return corpus.reader(split)[:num_tokens].astype(np.int32)
    parts: list[Ids] = []
    num_read = 0
    for ids, _ in _encode(read_blocks([text], field=field), model.tokenizer):
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

    Raises:
        ConfigError: inputs and a text, or neither; or what a pool cannot score.
        DataError: a text that cannot be used, or a corpus of another vocabulary.
        ModelError: the model gives something that is no probability.
    """
    began = time.perf_counter()
    if isinstance(model, str | Path):
        raise TypeError(f"expected a language model, not its name: seqtool.load({str(model)!r})")
    check_targets(per_token, per_sentence)
    if reset_state is None:
        has_table = per_token is not None or per_sentence is not None
        reset_state = has_table and not adaptations_of(model)
    paths = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    if bool(paths) == (text is not None):
        raise ConfigError(
            "there are files and a text to measure on" if paths else "there is nothing to measure",
            hint="give files, or the text itself as text=...",
        )
    tokenizer = model.tokenizer
    corpus = _prepared_corpus(paths, tokenizer)
    digests: dict[str, str] = {}
    source: Iterator[ScoredInput]
    spellings: Spellings | None = None
    if corpus is not None:
        split = _choose_split(corpus, split)
        spellings = corpus.spellings(split) if isinstance(model, SpellingModel) else None
        source = _cut_sentences(corpus.reader(split), on_progress)
        if corpus.info.get("shares") is None:  # the split is the whole of its files
            digests = {
                item["path"]: item["sha256"]
                for item in corpus.info.get("sources", [])
                if item["split"] == split and "sha256" in item  # Spark takes no sums
            }
    elif split is not None:
        raise ConfigError(
            f"--split {split} needs a prepared corpus", hint="name its directory, or drop --split"
        )
    elif text is not None:
        source = encode_text(text, tokenizer)
    else:
        size = BYTES_PER_BLOCK if pool is None else BYTES_PER_SHARE
        blocks = read_blocks(
            paths, field=field, block_size=size, on_progress=on_progress, digests=digests
        )
        source = _encode(blocks, tokenizer)

    scored: Iterator[tuple[ScoredBlock, bytes | None]]
    if pool is None:
        scored = _score(model, source, spellings, reset_state=reset_state)
    elif corpus is not None or text is not None:
        raise ConfigError(
            "several processes read files of text", hint="name the text itself, or leave out --jobs"
        )
    else:
        check_shared(model, reset_state=reset_state)
        scored = _score_in(pool, blocks)

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
        num_bytes=sums.num_bytes if corpus is None else corpus.info["splits"][split].get("bytes"),
        known_nats=math.fsum(sums.known_nats),
        unknown_nats=math.fsum(sums.unknown_nats),
        impossible=sums.impossible,
        seconds=time.perf_counter() - began,
        true_log10_probability=_true_log10_probability(digests.values()),
        split=None if corpus is None else split,
        adaptations=adaptations_of(model),
        state="reset" if reset_state or not carries_state(model) else "carried",
        unknown_words=unknown.counts,
    )


class TextBlock(NamedTuple):
    """Whole lines of a text, and where they come from."""

    text: bytes
    place: Place

    def __str__(self) -> str:
        """Return where it begins, as a message names it."""
        path, line = self.place.locate(1)
        return f"{path}, line {line:,} on"


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
    spellings: Spellings | None,
    *,
    reset_state: bool,
) -> Iterator[tuple[ScoredBlock, bytes | None]]:
    """Give the scores of each block, and its lines."""
    pending: deque[ScoredInput] = deque()  # read by the model, not scored yet

    def feed() -> Iterator[Ids]:
        for ids, text in source:
            pending.append((ids, text))
            yield as_read(model, ids, text, spellings)

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

    for scored in pool.map(read(), lambda block: f"scored {block}"):
        yield scored, pending.popleft()


def check_shared(model: LanguageModel, *, reset_state: bool) -> None:
    """Refuse a model that several processes cannot share a text with.

    Raises:
        ConfigError: what a sentence gets depends on those before it.
    """
    if adaptations_of(model) or (carries_state(model) and not reset_state):
        raise ConfigError(
            "the model reads the text as one, which processes cannot share",
            hint="add --reset-state, with which each sentence begins anew, or leave out --jobs",
        )


def scorer(model: LanguageModel, *, with_tokens: bool) -> Callable[[TextBlock], ScoredBlock]:
    """Return what scores a block of sentences, each by itself.

    Args:
        model: that keeps no state from sentence to sentence, or forgets it.
        with_tokens: give the tokens, too, as they are written.

    Raises:
        DataError: by the function: a text that cannot be used.
    """
    from seqtool.lm.rows import Cells

    def score(block: TextBlock) -> ScoredBlock:
        source = [_encoded(block.text, block.place, model.tokenizer)]
        ((scored, text),) = _score(model, source, None, reset_state=True)
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
            hint="train the model again: its weights are not sound",
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


def refuse_other_than_text(line: object, number: int) -> None:
    """Refuse a sentence, of this number, that is no string: a TypeError."""
    if not isinstance(line, str):
        raise TypeError(f"sentence {number} is {line!r}, not a string")


class _TextBlocks(Iterator[bytes]):
    """A text in memory as blocks of whole lines, as `read_blocks` gives those of files."""

    def __init__(self, text: str | Iterable[str]) -> None:
        self._num_read = self._num_last = 0  # lines before the block given last, and its own
        if isinstance(text, str):
            # as in a file: the end of the last line may be missing
            lines = text.replace("\r\n", "\n").removesuffix("\n")
            self._lines = iter(lines.split("\n") if text else [])
            self._are_sentences = False
        else:
            self._lines = iter(text)
            self._are_sentences = True

    def __next__(self) -> bytes:
        self._num_read += self._num_last
        parts: list[bytes] = []
        size = 0
        for line in self._lines:
            parts.append(self._checked(line, self._num_read + len(parts) + 1))
            size += len(parts[-1])
            if size >= BYTES_PER_BLOCK:
                break
        self._num_last = len(parts)
        if not parts:
            raise StopIteration
        return b"".join(parts)

    def _checked(self, line: str, number: int) -> bytes:
        refuse_other_than_text(line, number)
        if self._are_sentences and "\n" in line:
            raise DataError(
                "a sentence with a line end inside",
                hint="give each line as a sentence of its own",
                path=IN_MEMORY,
                line=number,
            )
        try:
            return line.encode() + b"\n"
        except UnicodeEncodeError as error:
            what = "half a surrogate pair, which is no character"
            hint = "write the character whole"
            raise DataError(what, hint=hint, path=IN_MEMORY, line=number) from error

    def locate(self, line: int) -> tuple[str, int]:
        """Return the name of the text and the 1-based line in it of one of the last block."""
        return IN_MEMORY, self._num_read + line


def encode_text(text: str | Iterable[str], tokenizer: Tokenizer) -> Iterator[ScoredInput]:
    """Yield a text in memory as blocks of ids, `EOS_ID` after each sentence, and their lines.

    Args:
        text: a string of lines, or sentences, which have no line ends inside.
        tokenizer: of the model that reads it.

    Raises:
        DataError: a text that cannot be used, with the number of the sentence as its line.
    """
    return _encode(_TextBlocks(text), tokenizer)


def _encode(blocks: BlockReader | _TextBlocks, tokenizer: Tokenizer) -> Iterator[ScoredInput]:
    for block in blocks:
        yield _encoded(block, blocks, tokenizer)


def _encoded(
    block: bytes, place: BlockReader | _TextBlocks | Place, tokenizer: Tokenizer
) -> ScoredInput:
    try:
        return tokenizer.encode_block(block), block
    except DataError as error:
        if error.path is not None or error.line is None:
            raise
        path, line = place.locate(error.line)
        raise DataError(error.message, hint=error.hint, path=path, line=line) from error


def _cut_sentences(
    ids: IdReader, on_progress: Callable[[int, int | None], None] | None
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
            on_progress(begin * ids.item_bytes, len(ids) * ids.item_bytes)


def _true_log10_probability(digests: Iterable[str]) -> float | None:
    """Sum what the sample's grammar gives the texts; None unless all of them are the sample's."""
    from seqtool.text.datasets import true_perplexity

    truths = [true_perplexity(digest) for digest in digests]
    known = [truth.log10_probability for truth in truths if truth is not None]
    return math.fsum(known) if known and len(known) == len(truths) else None
