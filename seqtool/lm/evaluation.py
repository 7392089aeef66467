"""Perplexity, and the other figures of how well a language model predicts a text.

`<unk>` is a word of the model, so unknown words count in the perplexity; the perplexity without
them drops both their log-probability and their number (as KenLM does). Log-probabilities are nats
in here; what people read is in log10 or bits. Scores can be written as tables (see `tables`), one
row per token or one per sentence:

    sentence  token  surprisal  oov  ...
    1         the    4.321928   0    ...                         surprisal in bits

    sentence  tokens  oov  log10_probability  perplexity
    1         9       0    -12.345678         23.5               tokens with `</s>`

A token table ends with the model's own columns, such as the order of the n-gram that was matched.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from seqtool.core.arrays import Doubles, Ids
from seqtool.core.errors import ConfigError, DataError, ModelError
from seqtool.core.one_line import OneLine
from seqtool.core.reading import (
    STDIN,
    BlockReader,
    LineBlocks,
    Place,
    find_files,
    is_corpus,
    read_blocks,
    refuse_field,
)
from seqtool.core.units import LN_2, LN_10, perplexity_of
from seqtool.core.vocabulary import EOS, EOS_ID, UNK_ID
from seqtool.lm.protocol import (
    Adaptation,
    LanguageModel,
    refuse_other_than_model,
    sentence_begins,
)
from seqtool.lm.tables import Target, check_target, open_table
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
Read = TypeVar("Read")
Kept = TypeVar("Kept")
Made = TypeVar("Made")


# of an evaluation, in the order in which JSON has them
_FIGURES = (
    *("perplexity", "perplexity_without_oov", "tokens", "sentences", "oov", "vocabulary_size"),
    *("log10_probability", "bits_per_token", "bits_per_byte", "seconds"),
)


@dataclass(frozen=True)
class LMEvaluation(OneLine):
    """How well a model predicts a text.

    Attributes:
        unit: what a token is (word, char, byte, bpe, unigram).
        vocabulary_size: symbols that the model can predict, `<unk>` and `</s>` included.
        sentences: lines of the text, empty ones too.
        tokens: scored tokens, one `</s>` per sentence included.
        oov: tokens outside the vocabulary.
        num_bytes: UTF-8 bytes of the text, one newline per line; None when not known.
        known_nats: summed log-probability of the tokens of the vocabulary, `</s>` included.
        unknown_nats: summed log-probability of `<unk>` where it stands for a token.
        impossible: tokens that have no probability at all; the perplexity is then infinite.
        seconds: wall time.
        true_log10_probability: what the grammar of the shipped sample gives the text, when it is
            one of the sample's; no model can be expected to do better.
        split: which split of a prepared corpus it is; None for a text.
        adaptations: how the model learned from this text, each token after it was scored.
        state: "carried" from sentence to sentence, or "reset" so that each begins anew.
        unknown_words: the first unknown words with how often they occur; none of a prepared corpus,
            or of other units.
        files: each file with what was measured of it, which sums to the whole; none of a single one
            or a prepared corpus. A file without any line has no entry.
    """

    shown = (
        *("perplexity", "perplexity_without_oov", "tokens", "sentences", "oov"),
        *("bits_per_byte", "unit"),
    )

    unit: str
    vocabulary_size: int
    sentences: int
    tokens: int
    oov: int
    num_bytes: int | None
    known_nats: float
    unknown_nats: float
    impossible: int
    seconds: float
    true_log10_probability: float | None = None
    split: str | None = None
    adaptations: tuple[Adaptation, ...] = ()
    state: str = "reset"
    unknown_words: Mapping[str, int] = field(default_factory=dict)
    files: tuple[tuple[str, LMEvaluation], ...] = ()

    @property
    def nats(self) -> float:
        """The log-probability of the text in nats."""
        return self.known_nats + self.unknown_nats

    @property
    def perplexity(self) -> float:
        """The exponential of the mean nats per token, `</s>` and unknown words counted."""
        return perplexity_of(-self.nats / self.tokens)

    @property
    def perplexity_without_oov(self) -> float | None:
        """The same with unknown words dropped from the sum and from the number."""
        known = self.tokens - self.oov
        return perplexity_of(-self.known_nats / known) if known else None

    @property
    def log10_probability(self) -> float:
        """The log-probability of the text to the base of ten."""
        return self.nats / LN_10

    @property
    def bits_per_token(self) -> float:
        """The mean surprisal of a token in bits, `</s>` counted."""
        return -self.nats / LN_2 / self.tokens

    @property
    def bits_per_byte(self) -> float | None:
        """Bits for the whole text over its bytes: comparable between units."""
        return -self.nats / LN_2 / self.num_bytes if self.num_bytes else None

    @property
    def oov_rate(self) -> float:
        """The share of unknown tokens among all tokens but `</s>`."""
        return self.oov / max(1, self.tokens - self.sentences)

    @property
    def true_perplexity(self) -> float | None:
        """The perplexity per token of this model's unit of the grammar behind the text."""
        if self.true_log10_probability is None:
            return None
        return perplexity_of(-self.true_log10_probability * LN_10 / self.tokens)

    @property
    def true_bits_per_byte(self) -> float | None:
        """The bits per byte of the grammar behind the text."""
        if self.true_log10_probability is None or not self.num_bytes:
            return None
        return -self.true_log10_probability * LN_10 / LN_2 / self.num_bytes

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` prints.

        JSON knows no infinity: when the model gives a token no probability, the figures that are
        infinite are null, and `zero_probability_tokens` says how many tokens are to blame.
        """
        result: dict[str, Any] = {name: _finite(getattr(self, name)) for name in _FIGURES}
        result |= {"unit": self.unit, "state": self.state}
        if self.adaptations:
            result["adapts_on_text"] = [each.to_json() for each in self.adaptations]
        if self.true_log10_probability is not None:
            for name in ("true_perplexity", "true_log10_probability", "true_bits_per_byte"):
                result[name] = getattr(self, name)
        if self.split is not None:
            result["split"] = self.split
        if self.impossible:
            result["zero_probability_tokens"] = self.impossible
        if self.files:
            result["files"] = [{"text": name, **each.to_json()} for name, each in self.files]
        return result


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


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


class TextBlock(NamedTuple):
    """Whole lines of a text, and where they come from."""

    text: bytes
    place: Place


class _File(NamedTuple):
    """Which file a block is of: the first is number 1; 0 stands for what is no file."""

    number: int = 0
    name: str = ""

    @classmethod
    def of(cls, blocks: BlockReader) -> _File:
        """Return the file of the block that was given last."""
        path = blocks.place.path
        return cls(blocks.num_files, STDIN if path == "<stdin>" else path)


class ScoredBlock(NamedTuple):
    """Sentences that were scored.

    Attributes:
        ids: [N], `EOS_ID` after each sentence.
        log_probs: [N] nats.
        columns: further values, name -> [N].
        parts: [P, N] nats that the parts of a mixture give; None of other models.
    """

    ids: Ids
    log_probs: Doubles
    columns: Mapping[str, npt.NDArray[Any]]
    parts: Doubles | None = None


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
    on_scores: Callable[[ScoredBlock, bytes | None], None] = lambda scored, block: None,
    pool: Pool[TextBlock, ScoredBlock] | None = None,
) -> LMEvaluation:
    r"""Measure a model on text; memory does not grow with it.

    Each file is read from a beginning, whatever the model has read before it.

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
        on_scores: called with each block of whole sentences and its lines (None of a corpus).
        pool: processes that score blocks of files, each by itself, as `scorer` returns it.

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
        reset_state = resets_for_tables(model, per_token, per_sentence)
    if bool(paths) == (text is not None):
        raise ConfigError(
            "there are files and a text to measure on" if paths else "there is nothing to measure",
            hint="give files, or the text itself as text=...",
        )
    tokenizer, digests = model.tokenizer, dict[str, str]()
    corpus = _prepared_corpus(paths, tokenizer)
    blocks: BlockReader | None = None
    source: Iterable[tuple[_File, ScoredInput]]
    scored: Iterator[tuple[tuple[_File, bytes | None], ScoredBlock]]
    if corpus is not None:
        refuse_field(field, [corpus.path])
        split = _choose_split(corpus, split)
        source = ((_File(), each) for each in cut_sentences(corpus.ids(split), on_progress))
    elif split is not None:
        raise ConfigError(
            f"--split {split} needs a prepared corpus", hint="name its directory, or drop --split"
        )
    elif text is not None:
        source = ((_File(), each) for each in encode_text(text, tokenizer))
    else:
        blocks = read = read_blocks(
            paths,
            field=field,
            block_size=BYTES_PER_BLOCK if pool is None else BYTES_PER_SHARE,
            on_progress=on_progress,
            digests=digests,
            live="-" in (per_token, per_sentence),
        )
        encoded = tokenizer.encode_blocks(read)
        source = ((_File.of(read), each) for each in encoded)
    if pool is None:
        scored = _score(model, source, reset_state=reset_state)
    elif blocks is None:
        raise ConfigError(
            "several processes read files of text", hint="name the text itself, or leave out --jobs"
        )
    else:
        check_shared(model, reset_state=reset_state)
        pairs = ((TextBlock(block, read.place), (_File.of(read), block)) for block in read)
        scored = paired_results(pairs, pool.map)

    measured: defaultdict[_File, list[dict[str, Any]]] = defaultdict(list)  # of each block
    num_tokens, num_sentences, ended = 0, 0, began
    unknown = UnknownWords(tokenizer)
    with ExitStack() as stack:
        token_table, sentence_table = (
            None if target is None else stack.enter_context(open_table(target))
            for target in (per_token, per_sentence)
        )
        for (file, block), scores in scored:
            ids, log_probs = scores.ids, scores.log_probs
            check_log_probs(log_probs, num_tokens)
            first, is_unknown = num_sentences + 1, ids == UNK_ID
            before, ended = ended, time.perf_counter()
            figures: dict[str, Any] = {
                "sentences": int((ids == EOS_ID).sum()),
                "tokens": len(ids),
                "oov": int(is_unknown.sum()),
                "num_bytes": 0 if block is None else len(block),
                "impossible": int(np.isneginf(log_probs).sum()),
                "known_nats": float(log_probs[~is_unknown].sum()),
                "unknown_nats": float(log_probs[is_unknown].sum()),
                "seconds": ended - before,
            }
            measured[file].append(figures)
            num_tokens += len(ids)
            num_sentences += figures["sentences"]
            unknown.add(ids, block)
            on_scores(scores, block)
            if token_table is not None:
                tokens = surface_tokens(tokenizer, ids, block)
                token_table.write(token_columns(first, tokens, scores))
            if sentence_table is not None:
                sentence_table.write(sentence_columns(first, scores))
    if not num_tokens:
        raise DataError("the text is empty", hint="give a text with at least one line")
    total = _added(chain.from_iterable(measured.values()))
    if corpus is not None:
        total["num_bytes"] = corpus.info["splits"][split].get("bytes")
    result = LMEvaluation(
        unit=tokenizer.unit,
        vocabulary_size=len(tokenizer.vocabulary),
        **{**total, "seconds": time.perf_counter() - began},
        true_log10_probability=_true_log10_probability(
            [digests.get(name, "") for name in find_files(paths)]
            if corpus is None
            else _split_digests(corpus, split)
        ),
        split=split,
        adaptations=model.adaptations,
        state="reset" if reset_state or not model.carries_state else "carried",
        unknown_words=unknown.counts,
    )
    if len(measured) == 1:
        return result
    files = []
    for file, each in measured.items():
        truth = _true_log10_probability([digests.get(file.name, "")])
        own = _added(each) | {"true_log10_probability": truth, "unknown_words": {}}
        files.append((file.name, replace(result, **own)))
    return replace(result, files=tuple(files))


def _added(figures: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sums of figures by their names, rounded once."""
    every = [*figures]
    return {
        name: type(value)(math.fsum(each[name] for each in every))
        for name, value in every[0].items()
    }


def resets_for_tables(model: LanguageModel, *tables: Target | None) -> bool:
    """Return whether the text is forgotten before each sentence where nobody says so."""
    return any(table is not None for table in tables) and not model.adaptations


def check_targets(
    per_token: Target | None, per_sentence: Target | None, inputs: Iterable[str | Path] = ()
) -> None:
    """Refuse targets that cannot be written to, or over `inputs`, before the work begins.

    Raises:
        ConfigError: both are the same, or a suffix is none of a table.
        OutputError: the directory is not there, or the file is read.
    """
    if per_token is not None and per_token == per_sentence:
        raise ConfigError(
            f"--per-token and --per-sentence both write to {per_token}", hint="give them two files"
        )
    for target in (per_token, per_sentence):
        check_target(target, inputs)


def surface_tokens(tokenizer: Tokenizer, ids: Ids, text: bytes | None) -> list[str]:
    """Return the tokens as written, `</s>` after each line; ids without a text give symbols."""
    if text is None:
        return tokenizer.vocabulary.decode(ids)
    lines = text.decode().split("\n")[:-1]
    return [token for line in lines for token in (*tokenizer.tokens(line), EOS)]


def token_columns(first: int, tokens: Sequence[str], scored: ScoredBlock) -> dict[str, Any]:
    """Return the rows of a table of tokens, as columns [N].

    Args:
        first: the number of the block's first sentence, from 1.
        tokens: [N], as `surface_tokens` gives them.
        scored: the block.
    """
    is_end = scored.ids == EOS_ID
    return {
        "sentence": first + np.cumsum(is_end) - is_end,
        "token": tokens,
        "surprisal": 0.0 - scored.log_probs / LN_2,  # 0.0: a certain token shall not show "-0"
        "oov": (scored.ids == UNK_ID).astype(np.int64),
        **scored.columns,
    }


def sentence_columns(first: int, scored: ScoredBlock) -> dict[str, Any]:
    """Return the rows of a table of sentences; the arguments are those of `token_columns`."""
    begins = sentence_begins(scored.ids)
    tokens = np.diff(begins, append=len(scored.ids))
    nats = np.add.reduceat(scored.log_probs, begins)
    return {
        "sentence": np.arange(first, first + len(begins)),
        "tokens": tokens,
        "oov": np.add.reduceat((scored.ids == UNK_ID).astype(np.int64), begins),
        "log10_probability": nats / LN_10,
        "perplexity": np.array([perplexity_of(mean) for mean in (-nats / tokens).tolist()]),
    }


def paired_results(
    pairs: Iterable[tuple[Read, Kept]], run: Callable[[Iterator[Read]], Iterable[Made]]
) -> Iterator[tuple[Kept, Made]]:
    """Give what `run` makes of the first of each pair, which it may read ahead, and the second."""
    kept: deque[Kept] = deque()

    def feed() -> Iterator[Read]:
        for first, second in pairs:
            kept.append(second)
            yield first

    for made in run(feed()):
        yield kept.popleft(), made


def _score(
    model: LanguageModel, source: Iterable[tuple[_File, ScoredInput]], *, reset_state: bool
) -> Iterator[tuple[tuple[_File, bytes | None], ScoredBlock]]:
    """Give the file and the lines of each block, and its scores."""
    for file, group in groupby(source, key=itemgetter(0)):
        pairs = ((ids, (ids, text)) for _, (ids, text) in group)
        for (ids, text), scores in paired_results(
            pairs, partial(model.score_ids, reset_state=reset_state)
        ):
            log_probs = np.asarray(scores.log_probs, np.float64)
            yield (file, text), ScoredBlock(ids, log_probs, scores.columns, scores.parts)


def check_shared(model: LanguageModel, *, reset_state: bool) -> None:
    """Refuse a model that several processes cannot share a text with.

    Raises:
        ConfigError: what a sentence gets depends on those before it.
    """
    if model.adaptations or (model.carries_state and not reset_state):
        other = "" if model.adaptations else "let each sentence begin anew with --reset-state, or "
        raise ConfigError(
            "the model reads the text as one, which processes cannot share",
            hint=f"{other}leave out --jobs",
        )


def scorer(model: LanguageModel) -> Callable[[TextBlock], ScoredBlock]:
    """Return what scores a block of sentences, each by itself.

    Args:
        model: that keeps no state from sentence to sentence, or forgets it.

    Raises:
        DataError: by the function: a text that cannot be used.
    """

    def score(block: TextBlock) -> ScoredBlock:
        with block.place.locating():
            ids = model.tokenizer.encode_block(block.text)
        source = [(_File(), (ids, block.text))]
        ((_, scored),) = _score(model, source, reset_state=True)
        return scored

    return score


def check_log_probs(log_probs: Doubles, num_before: int = 0) -> None:
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


def _split_digests(corpus: PreparedCorpus, split: str | None) -> list[str]:
    """Return the sums of the files that a split is the whole of."""
    if corpus.info.get("shares") is not None:
        return []
    sources = [item for item in corpus.info.get("sources", []) if item["split"] == split]
    return [item["sha256"] for item in sources if "sha256" in item]  # Spark takes no sums


def _prepared_corpus(paths: Sequence[str | Path], tokenizer: Tokenizer) -> PreparedCorpus | None:
    corpora = [path for path in paths if is_corpus(path)]
    if not corpora:
        return None
    if len(paths) > 1:
        raise ConfigError(
            "a prepared corpus cannot be mixed with other texts", hint="evaluate it by itself"
        )
    from seqtool.text.prepared import PreparedCorpus

    corpus = PreparedCorpus.open(corpora[0])
    theirs = corpus.tokenizer
    if theirs.reverse != tokenizer.reverse:
        raise DataError(
            "was prepared in the other direction (--reverse) than the model reads",
            hint="evaluate the text itself: the model brings its own tokenizer",
            path=corpora[0],
        )
    if theirs.unit != tokenizer.unit or theirs.vocabulary != tokenizer.vocabulary:
        raise DataError(
            "was prepared with another vocabulary than the model's",
            hint="evaluate the text itself: the model brings its own tokenizer",
            path=corpora[0],
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
