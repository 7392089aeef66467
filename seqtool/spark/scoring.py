"""Surprisal on Spark: language models that score sentences, each by itself.

Rows are tokens or sentences, as the tables of `lm.perplexity` have them; those of files say where
the sentence is by `file` and `line`, as no worker knows how many sentences are in other files.

    file     line  token  surprisal  oov  ...          file     line  tokens  oov  perplexity ...
    big.txt  1     the    4.321928   0                 big.txt  1     9       0    23.5
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seqtool.core.errors import DataError
from seqtool.core.reading import Place
from seqtool.core.vocabulary import EOS_ID, UNK_ID
from seqtool.lm.evaluation import ScoredBlock, TextBlock, check_log_probs, check_shared, scorer
from seqtool.lm.mixture.model import open_language_model
from seqtool.lm.perplexity import LMEvaluation, surface_tokens, write_sentences, write_tokens
from seqtool.spark.blocks import (
    LINES,
    LinesBefore,
    Part,
    is_utf8,
    lines_before,
    not_utf8,
    parts_of,
    read_records,
)
from seqtool.spark.files import Target
from seqtool.spark.frames import check_column, mapped
from seqtool.spark.session import user_errors
from seqtool.spark.shipping import Model
from seqtool.spark.workers import record_batch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from seqtool.lm.protocol import LanguageModel

# what an evaluation sums up, of a sentence; in a table of tokens, where the sentence ends
_SUM_KINDS = {
    "ends": "long",
    "known": "double",
    "unknown": "double",
    "bytes": "long",
    "impossible": "long",
    "num_tokens": "long",
    "num_oov": "long",
}
_KINDS = {"i": "long", "u": "long", "f": "double"}  # of columns, by those of NumPy


def open_scoring(paths: Sequence[Path]) -> LanguageModel:
    """Open the language model at a path, of which there is one.

    Raises:
        ModelError: it is missing, damaged, or no language model.
        ConfigError: what it gives a sentence depends on those before it.
    """
    model = open_language_model(paths[0], threads=1)
    check_shared(model, reset_state=True)
    return model


@dataclass(frozen=True)
class Scores:
    """What a language model is asked for.

    Attributes:
        shipped: the model.
        per_token: rows are tokens, not sentences.
    """

    shipped: Model
    per_token: bool = True

    @classmethod
    def of(cls, path: str | Path, *, per_token: bool = True) -> Scores:
        """Return the scores of the model at a path; errors are those of `open_scoring`."""
        return cls(Model((str(path),), open_scoring).stamped(), per_token)

    @property
    def model(self) -> LanguageModel:
        """The model, which a process opens once."""
        model: LanguageModel = self.shipped.opened
        return model

    def names(self) -> dict[str, str]:
        """Return the columns of a row, with their types, without those that say where it is."""
        sample = self.score(b"\n", Place("", 1))
        made = self.rows(sample, b"\n", 1)
        del made["sentence"]
        kinds = {
            name: "string" if name == "token" else _KINDS[np.asarray(column).dtype.kind]
            for name, column in made.items()
        }
        return kinds

    def score(self, text: bytes, place: Place) -> ScoredBlock:
        """Score whole lines, each by itself.

        Raises:
            DataError: a text that cannot be used.
            ModelError: a score that is no probability.
        """
        scored = scorer(self.model, with_tokens=False)(TextBlock(text, place))
        check_log_probs(scored.log_probs)
        return scored

    def rows(self, scored: ScoredBlock, text: bytes, first: int) -> dict[str, Any]:
        """Return the rows of scored lines as columns.

        Args:
            scored: their scores.
            text: the lines.
            first: the number of the first one, for `sentence`.
        """
        taken = _Taken()
        ids, log_probs = scored.ids, scored.log_probs
        if self.per_token:
            tokens = surface_tokens(self.model.tokenizer, ids, text)
            write_tokens(taken, first, tokens, ids, log_probs, scored.columns)
        else:
            write_sentences(taken, first, ids, log_probs)
        return taken.columns

    def sums(self, scored: ScoredBlock, text: bytes) -> dict[str, Any]:
        """Return the columns `_SUM_KINDS` of the same rows."""
        ids, nats = scored.ids, scored.log_probs
        ends = np.flatnonzero(ids == EOS_ID)
        begins = np.concatenate(([0], ends[:-1] + 1))
        is_unknown = ids == UNK_ID
        of_sentences = {
            "ends": np.ones(len(ends), np.int64),
            "known": np.add.reduceat(np.where(is_unknown, 0.0, nats), begins),
            "unknown": np.add.reduceat(np.where(is_unknown, nats, 0.0), begins),
            "bytes": np.array([len(line) + 1 for line in text.split(b"\n")[:-1]]),
            "impossible": np.add.reduceat(np.isneginf(nats).astype(np.int64), begins),
            "num_tokens": ends - begins + 1,
            "num_oov": np.add.reduceat(is_unknown.astype(np.int64), begins),
        }
        if not self.per_token:
            return of_sentences
        spread = {}
        for name, values in of_sentences.items():
            spread[name] = np.zeros(len(ids), values.dtype)
            spread[name][ends] = values
        return spread


class _Taken:
    """A table that keeps what is written to it once."""

    def write(self, columns: Mapping[str, Any]) -> None:
        self.columns = dict(columns)


def surprisal(
    frame: DataFrame,
    model: str | Path,
    *,
    column: str = "text",
    ship: bool | None = None,
) -> DataFrame:
    """Return a row for each token of the texts of a column, with its surprisal in bits.

    Args:
        frame: any DataFrame of Spark.
        model: a language model, read sentence by sentence.
        column: of texts, a sentence a line.
        ship: send the model to the workers; when not given, unless these run on this machine.

    Returns:
        All other columns, then `sentence`, the number of the line in the text, and the columns of
        `seqtool eval-ppl --per-token`.

    Raises:
        ConfigError: there is no such column, or it holds no texts.
        ModelError: the model is no language model, damaged or missing.
    """
    check_column(frame, column)
    scores = Scores.of(model)
    names = {"sentence": "long", **scores.names()}
    scores.shipped.ship(frame.sparkSession, ship)
    kept = [field for field in frame.schema.fields if field.name != column]

    def score(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if any(batch.column(column).to_pylist()):
                yield _scored_rows(batch, scores, column, names)

    return mapped(frame, score, names, kept)


def _scored_rows(
    batch: pa.RecordBatch, scores: Scores, column: str, names: Mapping[str, str]
) -> pa.RecordBatch:
    import pyarrow as pa

    texts = [text.replace("\r\n", "\n") for text in batch.column(column).fill_null("").to_pylist()]
    lines = [text.removesuffix("\n").split("\n") if text else [] for text in texts]
    nums = np.array([len(of_text) for of_text in lines])
    block = "".join(f"{line}\n" for of_text in lines for line in of_text).encode()
    others = batch.select([name for name in batch.schema.names if name != column])
    scored = scores.score(block, Place("the text", 1))
    made = scores.rows(scored, block, 0)
    sentences = made.pop("sentence")
    row_of = np.repeat(np.arange(len(nums)), nums)
    first_of = np.repeat(np.cumsum(nums) - nums, nums)
    numbers = sentences - first_of[sentences] + 1
    chosen = others.take(pa.array(row_of[sentences]))
    own = record_batch({"sentence": numbers, **made}, names)
    return pa.RecordBatch.from_arrays(
        [*chosen.columns, *own.columns], names=[*chosen.schema.names, *own.schema.names]
    )


def evaluate_files(
    session: SparkSession,
    paths: Sequence[str],
    model: str | Path,
    *,
    field: str | None = None,
    per_token: str | None = None,
    per_sentence: str | None = None,
    ship: bool | None = None,
    on_damaged: Callable[[DataError], None] | None = None,
) -> LMEvaluation:
    """Measure a language model on files that Spark reads, each sentence by itself.

    Args:
        session: of Spark.
        paths: text files, a sentence a line; directories and patterns, of any file system.
        model: a language model.
        field: the column of .jsonl and .parquet that holds the text.
        per_token: a directory for Parquet, a row a token.
        per_sentence: likewise, a row a sentence; one of the two.
        ship: see `shipping.Model.ship`.
        on_damaged: as of `files.annotate_files`.

    Raises:
        DataError: a text that cannot be used.
        ModelError: the model is no language model, damaged or missing.
        OutputError: the directory is there already, or cannot be written.
    """
    began = time.perf_counter()
    with user_errors():
        option, path = ("--per-token", per_token) if per_token else ("--per-sentence", per_sentence)
        target = None if path is None else Target(session, path, option)
        records = read_records(session, paths, LINES, field, on_damaged)
        scores = Scores.of(model, per_token=per_token is not None)
        scores.shipped.ship(session, ship)
        sums = _evaluate(records, lines_before(records, LINES), scores, target)
    if not sums["num_tokens"]:
        raise DataError("the text is empty", hint="give a text with at least one line")
    tokenizer = scores.model.tokenizer
    return LMEvaluation(
        unit=tokenizer.unit,
        vocabulary_size=len(tokenizer.vocabulary),
        sentences=int(sums["ends"]),
        tokens=int(sums["num_tokens"]),
        oov=int(sums["num_oov"]),
        num_bytes=int(sums["bytes"]),
        known_nats=sums["known"],
        unknown_nats=sums["unknown"],
        impossible=int(sums["impossible"]),
        seconds=time.perf_counter() - began,
    )


def _evaluate(
    records: DataFrame, before: LinesBefore, scores: Scores, target: Target | None
) -> dict[str, float]:
    """Score files, write the rows if there is a target, and return the sums of `_SUM_KINDS`."""
    from pyspark.sql import Observation, functions

    names = {"file": "string", "line": "long", **scores.names(), **_SUM_KINDS}

    def score(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in parts_of(batches, LINES, before):
            yield _scored_part(part, scores, names)

    rows = mapped(records, score, names)
    totals = [functions.sum(name).alias(name) for name in _SUM_KINDS]
    if target is None:
        found = rows.agg(*totals).first()
        sums: dict[str, float | None] = found.asDict() if found is not None else {}
    else:
        seen = Observation()
        target.write_parquet(rows.observe(seen, *totals).drop(*_SUM_KINDS))
        sums = seen.get
    return {name: sums[name] or 0 for name in _SUM_KINDS}


def _scored_part(part: Part, scores: Scores, names: Mapping[str, str]) -> pa.RecordBatch:
    if not is_utf8(part):
        raise not_utf8(part)
    text = part.text.replace(b"\r\n", b"\n")
    scored = scores.score(text, Place(part.file, part.line))
    columns = scores.rows(scored, text, part.line)
    lines = columns.pop("sentence")
    made = {"file": [part.file] * len(lines), "line": lines, **columns}
    return record_batch({**made, **scores.sums(scored, text)}, names)
