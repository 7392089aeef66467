"""The surprisal of words as a table: of a text, or of stimuli.

Stimuli are a CSV or TSV with a text in each row, and columns that say what it is:

item,condition,text
1,match,"The dogs in the garden bark ."
1,mismatch,"The dogs in the garden barks ."
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from seqtool.core.errors import ConfigError, DataError, did_you_mean
from seqtool.core.reading import (
    JSON_LINES,
    Blocks,
    LineBlocks,
    Progress,
    read_blocks,
    unpacked_name,
)
from seqtool.core.vocabulary import BLANKS
from seqtool.lm.protocol import LanguageModel
from seqtool.lm.tables import SEPARATORS, Column, ParsedTable, Table, check_names, parse_table
from seqtool.lm.unknown import UnknownWords, warning_of
from seqtool.lm.words import (
    own_frequencies,
    refuse_lines_anew,
    score_blocks,
    text_frequencies,
    word_columns,
)

ITEM = "item"


@dataclass(frozen=True)
class Stimuli:
    """A table of stimuli.

    Attributes:
        table: as it was read.
        text: the number of the column of texts, from 0.
        kept: the other columns, by their names in the result: that of the item first, as "item".
    """

    table: ParsedTable
    text: int
    kept: Mapping[str, int]

    @property
    def texts(self) -> list[str]:
        """The text of each row."""
        return [row[self.text] for row in self.table.rows]

    def columns(self, numbers: Sequence[int]) -> dict[str, list[str]]:
        """Return what the other columns have in the rows of these numbers, from 0."""
        rows = [self.table.rows[number] for number in numbers]
        return {name: [row[place] for row in rows] for name, place in self.kept.items()}

    def empty_rows(self) -> list[int]:
        """Return the lines of the rows whose text has no words, which get no rows of surprisal."""
        # of white space, words are parted by blanks alone: a no-break space is one
        pairs = zip(self.table.lines, self.texts, strict=True)
        return [line for line, text in pairs if not text.strip(BLANKS)]


def is_stimuli(path: str | Path) -> bool:
    """Whether a file's name says that it is a table."""
    return unpacked_name(path).endswith(tuple(SEPARATORS))


def _read_stimuli(path: str | Path, text_column: str | None, item_column: str | None) -> Stimuli:
    """Read a file of stimuli, in UTF-8, packed or not, with quotes as RFC 4180 has them."""
    if unpacked_name(path).endswith(JSON_LINES):
        raise DataError(
            "holds JSON Lines, not a table of CSV or TSV",
            hint="leave --text-column out and name the field with --field, or write it as .csv",
            path=path,
        )
    table = parse_table(b"".join(read_blocks([path])).decode(), path)
    shown, names = table.path, table.names
    if text_column is None:
        raise DataError(
            "is a table, so its column of texts must be named",
            hint=f"add --text-column NAME, one of: {', '.join(names)}",
            path=shown,
        )
    for name in filter(None, (text_column, item_column)):
        if name not in names:
            hint = did_you_mean(name, names)
            raise DataError(f"has no column {name!r}", hint=hint, path=shown, line=1)
    if item_column not in (None, ITEM) and ITEM in names and text_column != ITEM:
        raise DataError(
            f"has a column {ITEM!r}, which is what the column {item_column!r} is to be called",
            hint=f"rename {ITEM!r} in the first line, or leave --item-column out: both are kept",
            path=shown,
            line=1,
        )
    if not table.rows:
        raise DataError("has no rows", hint="give a row for each text", path=shown)
    items = {} if item_column is None else {ITEM: names.index(item_column)}
    others = {
        name: place for place, name in enumerate(names) if name not in (text_column, item_column)
    }
    return Stimuli(table, names.index(text_column), items | others)


def find_stimuli(
    paths: Sequence[str],
    text_column: str | None = None,
    item_column: str | None = None,
    field: str | None = None,
) -> Stimuli | None:
    """Return stimuli where a column of texts is named, or a file is a table; None for a text.

    Raises:
        ConfigError: options that do not go together.
        DataError: it is no such table, has no such column, or has another column "item".
    """
    if text_column is None and not any(map(is_stimuli, paths)):
        if item_column is not None:
            raise ConfigError("--item-column needs --text-column", hint="name both, or drop it")
        return None
    if len(paths) > 1 or field is not None:
        raise ConfigError(
            "a table of stimuli is read alone, and --field is of JSON Lines",
            hint="name one table, and the column of its texts with --text-column",
        )
    return _read_stimuli(paths[0], text_column, item_column)


@dataclass
class WordTotals:
    """What a model of this name, with tokens of this unit, has read; state: carried or reset."""

    model: str
    unit: str
    state: str
    lines: int = 0
    words: int = 0
    oov: int = 0


def write_words(
    models: Mapping[str, LanguageModel],
    paths: Sequence[str],
    stimuli: Stimuli | None,
    table: Table,
    *,
    field: str | None = None,
    frequencies: Sequence[str | Path] | None = None,
    previous: int = 0,
    entropy: bool = False,
    line_ends: bool = False,
    carry_state: bool = False,
    progress: Callable[[], AbstractContextManager[Progress | None]] = nullcontext,
) -> Iterator[tuple[WordTotals, str]]:
    """Write a row for each word of a text or of stimuli, by one model after another.

    The names of several models are a column. Stimuli are read in place of the text at `paths`.
    The other arguments are options of `seqtool surprisal`, but for what shows the progress of a
    model.

    Returns:
        Of each model, when it is done, what it has read, and a warning where many words are
        unknown to it.

    Raises:
        ConfigError: no model can give an entropy, or one learns from lines that begin anew.
        DataError: a text that cannot be used, or columns of one name.
    """
    opened = [*models.values()]
    for model in opened:  # before one of them has scored for an hour
        refuse_lines_anew(model, carry_state=carry_state)
    if entropy and all(model.tokenizer.unit != "word" for model in opened):
        raise ConfigError(
            "--entropy is of models of words: the pieces of others are no whole words",
            hint="drop it, or choose a model of words with -m",
        )
    order = any(model.kind == "ngram" for model in opened)
    columns = partial(word_columns, entropy=entropy, order=order, previous=previous)
    shares: Sequence[Mapping[str, float] | None] = [own_frequencies(model) for model in opened]
    if frequencies:
        shares = [text_frequencies(read_blocks([*frequencies]))] * len(opened)
    elif any(shares):  # beside others, the cells of a model without counts are empty
        shares = [each or {} for each in shares]
    options = {"carry_state": carry_state, "entropy": entropy, "line_ends": line_ends}
    for (name, model), of_words in zip(models.items(), shares, strict=True):
        state = "carried" if carry_state and model.carries_state else "reset"
        total = WordTotals(name, model.tokenizer.unit, state)
        unknown = UnknownWords(model.tokenizer)
        lowercase = not frequencies and model.tokenizer.lowercase
        with progress() as on_progress:
            blocks: Blocks
            if stimuli is None:
                blocks = read_blocks(paths, field=field, on_progress=on_progress)
            else:
                blocks = LineBlocks(
                    stimuli.texts, stimuli.table.path, stimuli.table.lines, join=True
                )
            for words in score_blocks(model, blocks, **options):
                lines = words.units.lines + total.lines
                row: dict[str, Column] = {"model": [name] * len(lines)} if len(models) > 1 else {}
                made = columns(words, total.lines + 1, frequencies=of_words, lowercase=lowercase)
                if stimuli is not None:
                    check_names(stimuli.kept, ["model", *made], stimuli.table.path)
                    row |= stimuli.columns(lines.tolist())
                table.write(row | made)
                unknown_texts = words.unknown_texts()
                total.lines += words.num_lines
                total.words += int(words.units.is_word.sum())
                total.oov += len(unknown_texts)
                unknown.add_written(unknown_texts)
        yield total, warning_of(total.oov, total.words, unknown.counts, model.tokenizer)
