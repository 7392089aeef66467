"""Scores as tables of tab-separated values, one row per token or one per sentence.

    sentence  token  surprisal  oov  ...
    1         the    4.321928   0    ...                         surprisal in bits

    sentence  tokens  oov  log10_probability  perplexity
    1         9       0    -12.345678         23.5               tokens with `</s>`

A token table ends with the model's own columns, such as the order of the n-gram that was matched.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from seqtool.core.arrays import Ids
from seqtool.core.errors import ConfigError, OutputError
from seqtool.core.storage import atomic_file
from seqtool.core.units import LN_2, LN_10, perplexity_of
from seqtool.core.vocabulary import EOS, EOS_ID, UNK_ID
from seqtool.text.tokenizers import Tokenizer

ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})

Target = str | Path | TextIO


def check_targets(per_token: Target | None, per_sentence: Target | None) -> None:
    """Refuse targets that cannot be written to, before the work begins.

    Raises:
        ConfigError: both are the same.
        OutputError: the directory is not there.
    """
    if per_token is not None and per_token == per_sentence:
        raise ConfigError(
            f"--per-token and --per-sentence both write to {per_token}",
            hint="give them two files",
        )
    for target in (per_token, per_sentence):
        if isinstance(target, str | Path) and not Path(target).parent.is_dir():
            raise OutputError(
                "the directory to write to is not there", hint="make it first", path=target
            )


@contextmanager
def open_table(target: Target | None) -> Iterator[TextIO | None]:
    """Open a TSV; a file appears under its name only when it is whole."""
    if target is None:
        yield None
    elif not isinstance(target, str | Path):
        yield target
    elif str(target) == "-":
        yield sys.stdout
    else:
        with (
            atomic_file(target) as raw,
            io.TextIOWrapper(raw, encoding="utf-8", newline="\n") as stream,
        ):
            yield stream


def _surface_tokens(tokenizer: Tokenizer, ids: Ids, text: bytes | None) -> list[str]:
    """Return the tokens as written, `</s>` after each line; ids without a text give symbols."""
    if text is None:
        return tokenizer.vocabulary.decode(ids)
    tokens = []
    for line in text.decode("utf-8").split("\n")[:-1]:
        tokens += tokenizer.tokens(line)
        tokens.append(EOS)
    return tokens


def write_tokens(
    table: TextIO,
    first: int,
    tokenizer: Tokenizer,
    ids: Ids,
    text: bytes | None,
    log_probs: npt.NDArray[np.float64],
    columns: Mapping[str, npt.NDArray[Any]],
) -> None:
    """Write a row per token of a block of sentences; the header too if it is the first block.

    Args:
        table: where to.
        first: the number of the block's first sentence, from 1.
        tokenizer: gives the tokens as written.
        ids: [N], `EOS_ID` after each sentence.
        text: the block's lines; without them tokens are written as the vocabulary has them.
        log_probs: [N] nats.
        columns: further values, name -> [N].
    """
    if first == 1:
        print("sentence", "token", "surprisal", "oov", *columns, sep="\t", file=table)
    tokens = _surface_tokens(tokenizer, ids, text)
    if tokenizer.unit != "word":
        tokens = [token.translate(ESCAPES) for token in tokens]
    is_end = ids == EOS_ID
    sentences = first + np.cumsum(is_end) - is_end
    surprisals = 0.0 - log_probs / LN_2  # 0.0: a certain token shall not show "-0"
    more = [column.tolist() for column in columns.values()]
    rows = zip(sentences.tolist(), tokens, surprisals.tolist(), ids.tolist(), *more, strict=True)
    table.writelines(
        "\t".join((str(sentence), token, f"{bits:.6f}", "01"[i == UNK_ID], *map(str, rest))) + "\n"
        for sentence, token, bits, i, *rest in rows
    )


def write_sentences(
    table: TextIO, first: int, ids: Ids, log_probs: npt.NDArray[np.float64]
) -> None:
    """Write a row per sentence of a block; the arguments are those of `write_tokens`."""
    if first == 1:
        print("sentence\ttokens\toov\tlog10_probability\tperplexity", file=table)
    ends = np.flatnonzero(ids == EOS_ID) + 1
    begins = np.concatenate(([0], ends[:-1]))
    rows = zip(
        (ends - begins).tolist(),
        np.add.reduceat((ids == UNK_ID).astype(np.int64), begins).tolist(),
        np.add.reduceat(log_probs, begins).tolist(),
        strict=True,
    )
    table.writelines(
        f"{number}\t{tokens}\t{oov}\t{nats / LN_10:.6f}\t{perplexity_of(-nats / tokens):.6g}\n"
        for number, (tokens, oov, nats) in enumerate(rows, start=first)
    )
