"""Surprisal on Spark: language models that score sentences, each by itself.

Rows are tokens or sentences, as the tables of `lm.evaluation` have them; those of files say where
the sentence is by `file` and `line`, as no worker knows how many sentences are in other files.

    file     line  token  surprisal  oov  ...          file     line  tokens  oov  perplexity ...
    big.txt  1     the    4.321928   0                 big.txt  1     9       0    23.5
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seqtool.core.errors import DataError
from seqtool.core.reading import Place
from seqtool.core.vocabulary import UNK_ID
from seqtool.lm.evaluation import (
    LMEvaluation,
    ScoredBlock,
    TextBlock,
    check_log_probs,
    check_shared,
    scorer,
    sentence_columns,
    surface_tokens,
    token_columns,
)
from seqtool.lm.mixture.model import open_language_model
from seqtool.spark.files import LINES, Folder, read_records
from seqtool.spark.session import user_errors
from seqtool.spark.workers import (
    Batches,
    Model,
    beside,
    check_texts,
    mapped,
    other_fields,
    record_batch,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from seqtool.lm.protocol import LanguageModel

# what an evaluation sums up of a part of a text, in the first row of the part
_SUMS = {
    "sentences": "long",
    "num_tokens": "long",
    "num_oov": "long",
    "num_bytes": "long",
    "known_nats": "double",
    "unknown_nats": "double",
    "impossible": "long",
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


def _score(model: Model, text: bytes, place: Place) -> ScoredBlock:
    """Score whole lines, each by itself.

    Raises:
        DataError: a text that cannot be used.
        ModelError: a score that is no probability.
    """
    scored = scorer(model.opened)(TextBlock(text, place))
    check_log_probs(scored.log_probs)
    return scored


def _rows(
    model: Model, scored: ScoredBlock, text: bytes, first: int, *, per_token: bool
) -> dict[str, Any]:
    """Return the rows of scored lines as columns; `first` is the number of the first line."""
    if not per_token:
        return sentence_columns(first, scored)
    return token_columns(first, surface_tokens(model.opened.tokenizer, scored.ids, text), scored)


def _names(model: Model, *, per_token: bool) -> dict[str, str]:
    """Return the columns of such rows, with their types, but for the number of the line."""
    columns = _rows(model, _score(model, b"\n", Place("", 1)), b"\n", 1, per_token=per_token)
    del columns["sentence"]
    return {
        name: "string" if name == "token" else _KINDS[np.asarray(column).dtype.kind]
        for name, column in columns.items()
    }


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
        AnalysisException: of Spark, as where there is no such column.
        ConfigError: it holds no texts.
        ModelError: the model is no language model, damaged or missing.
    """
    check_texts(frame, column)
    scoring = Model((str(model),), open_scoring)
    names = {"sentence": "long", **_names(scoring, per_token=True)}
    scoring.ship(frame.sparkSession, ship)

    def score(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            texts = batch.column(column).fill_null("").to_pylist()
            lines = [
                text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []
                for text in texts
            ]
            if not any(lines):
                continue
            block = "".join(f"{line}\n" for of_text in lines for line in of_text).encode()
            scored = _score(scoring, block, Place("the text", 1))
            made = _rows(scoring, scored, block, 0, per_token=True)
            nums = np.array([len(of_text) for of_text in lines])
            row_of = np.repeat(np.arange(len(nums)), nums)[made["sentence"]]
            made["sentence"] -= (np.cumsum(nums) - nums)[row_of] - 1
            yield beside(batch, column, row_of, record_batch(made, names))

    return mapped(frame, score, names, other_fields(frame, column))


def evaluate_files(
    session: SparkSession,
    paths: Sequence[str],
    model: str | Path,
    *,
    field: str | None = None,
    per_token: str | None = None,
    per_sentence: str | None = None,
    ship: bool | None = None,
) -> LMEvaluation:
    """Measure a language model on files that Spark reads, each sentence by itself.

    Args:
        session: of Spark.
        paths: text files, a sentence a line; directories and patterns, of any file system.
        model: a language model.
        field: the column of .jsonl and .parquet that holds the text.
        per_token: a directory for Parquet, a row a token.
        per_sentence: likewise, a row a sentence; one of the two.
        ship: see `Model.ship`.

    Raises:
        DataError: a text that cannot be used.
        ModelError: the model is no language model, damaged or missing.
        OutputError: the directory is there already, or Spark cannot read or write.
    """
    from pyspark.sql import Observation, functions

    began = time.perf_counter()
    table = per_token or per_sentence
    with user_errors():
        target = None if table is None else Folder(session, table)
        if target is not None:
            target.refuse_present()
        records, scoring = (
            read_records(session, paths, LINES, field),
            Model((str(model),), open_scoring),
        )
        names = {"file": "string", "line": "long"} if table else {}
        if table:
            names |= _names(scoring, per_token=per_token is not None)
        scoring.ship(session, ship)
        parts_of = records.parts

        def score(batches: Batches) -> Iterator[pa.RecordBatch]:
            for part in parts_of(batches):
                scored = _score(scoring, part.text, Place(part.file, part.line))
                columns: dict[str, Any] = {"line": [part.line]}
                if names:
                    is_token = per_token is not None
                    columns = _rows(scoring, scored, part.text, part.line, per_token=is_token)
                    columns["line"] = columns.pop("sentence")
                num = len(columns["line"])
                columns["file"] = [part.file] * num
                for name, value in _sums(scored, part.text).items():
                    columns[name] = [value, *[0] * (num - 1)]
                yield record_batch(columns, {**names, **_SUMS})

        rows = mapped(records.frame, score, {**names, **_SUMS})
        totals = [functions.sum(name).alias(name) for name in _SUMS]
        if target is None:
            sums = rows.agg(*totals).collect()[0].asDict()
        else:
            observation = Observation()
            with target.whole():
                rows.observe(observation, *totals).drop(*_SUMS).write.parquet(target.path)
            sums = observation.get
    if not sums["num_tokens"]:
        raise DataError("the text is empty", hint="give a text with at least one line")
    tokenizer = scoring.opened.tokenizer
    return LMEvaluation(
        unit=tokenizer.unit,
        vocabulary_size=len(tokenizer.vocabulary),
        tokens=sums.pop("num_tokens"),
        oov=sums.pop("num_oov"),
        seconds=time.perf_counter() - began,
        **sums,
    )


def _sums(scored: ScoredBlock, text: bytes) -> dict[str, float]:
    """Return the sums `_SUMS` of scored lines."""
    nats, is_unknown = scored.log_probs, scored.ids == UNK_ID
    return {
        "sentences": text.count(b"\n"),
        "num_tokens": len(nats),
        "num_oov": int(is_unknown.sum()),
        "num_bytes": len(text),
        "known_nats": float(nats[~is_unknown].sum()),
        "unknown_nats": float(nats[is_unknown].sum()),
        "impossible": int(np.isneginf(nats).sum()),
    }
