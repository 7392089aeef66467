"""The surprisal of words as a table: of a text, or of stimuli.

Stimuli are a CSV or TSV with a text in each row, and columns that say what it is:

item,condition,text
1,match,"The dogs in the garden bark ."
1,mismatch,"The dogs in the garden barks ."
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from seqtool.core.errors import ConfigError, DataError, did_you_mean
from seqtool.core.reading import Blocks, LineBlocks, Progress, read_blocks, unpacked_name
from seqtool.core.vocabulary import UNK_ID
from seqtool.lm.printed_words import PrintedText, Span, Split, add_parts, printed_text
from seqtool.lm.protocol import LanguageModel
from seqtool.lm.tables import SEPARATORS, Column, ParsedTable, Table, check_names, parse_table
from seqtool.lm.unknown import UnknownWords, bare, warning_of
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
        kept: the other columns, by their names in the result: that of the item first, as "item".
        printed: the text of each row, its words and their parts.
        is_split: whether words may have parts.
        regions: the critical words of each row, as a slice; None for no such column.
        allow_unknown: whether models need not know the words of these.
    """

    table: ParsedTable
    kept: Mapping[str, int]
    printed: Sequence[PrintedText]
    is_split: bool = False
    regions: Sequence[Span] | None = None
    allow_unknown: bool = False

    def columns(self, numbers: Sequence[int]) -> dict[str, list[str]]:
        """Return what the other columns have in the rows of these numbers, from 0."""
        rows = [self.table.rows[number] for number in numbers]
        return {name: [row[place] for row in rows] for name, place in self.kept.items()}

    def empty_rows(self) -> list[int]:
        """Return the lines of the rows whose text has no words, which get no rows of surprisal."""
        pairs = zip(self.table.lines, self.printed, strict=True)
        return [line for line, text in pairs if not text.words]

    def refuse_unknown(self, model: LanguageModel, name: str) -> None:
        """Refuse a model that does not know a word of a critical region."""
        rows = zip(self.table.lines, self.printed, self.regions or (), strict=False)
        for line, text, (begin, end) in rows:
            for span, of, is_apart in zip(text.parts, text.word_of, text.is_apart, strict=True):
                word = text.text[slice(*span)]
                is_read = begin <= of < end and not is_apart
                if is_read and (model.tokenizer.encode(word) == UNK_ID).any():
                    hint = "choose a model of subwords, or score <unk> with --allow-unknown"
                    what = f"{word!r} of the critical region is unknown to {name}"
                    raise DataError(what, hint=hint, path=self.table.path, line=line)


def _regions(table: ParsedTable, printed: Sequence[PrintedText], column: str) -> Iterator[Span]:
    """Yield slices of critical words: words that stand once in a text, or their numbers."""
    for line, text, cell in zip(table.lines, printed, table.column(column), strict=True):
        words = [bare(text.text[slice(*span)]) for span in text.words]
        if numbers := re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", cell):
            first, last = int(numbers[1]), int(numbers[2] or numbers[1])
            spans = [(first - 1, last)] if 1 <= first <= last <= len(words) else []
            named = [(i, i + 1) for i, word in enumerate(words) if word == cell.strip()]
            spans = [*{*spans, *named}]  # a number may stand in the text, too
        else:
            sought = [*map(bare, cell.split())]
            spans = [(i, i + len(sought)) for i in range(len(words))]
            spans = [(begin, end) for begin, end in spans if words[begin:end] == sought]
        if cell.strip() and len(spans) != 1:
            what = f"the critical region {cell!r} is in the text {len(spans)} times"
            hint = "write words that stand there once, or their numbers: 5, or 5-6"
            raise DataError(what, hint=hint, path=table.path, line=line)
        yield spans[0] if cell.strip() else (0, 0)


def is_stimuli(path: str | Path) -> bool:
    """Whether a file's name says that it is a table."""
    return unpacked_name(path).endswith(tuple(SEPARATORS))


def find_stimuli(
    paths: Sequence[str],
    text_column: str | None = None,
    item_column: str | None = None,
    field: str | None = None,
    critical: str | None = None,
    by: str | None = None,
    tokenize: Split | None = None,
    punctuation: str | None = None,
    *,
    allow_unknown: bool = False,
) -> Stimuli | None:
    """Return stimuli where a column of texts is named, or a file is a table; None for a text.

    Raises:
        ConfigError: options that do not go together.
        DataError: it is no such table, has no such column, or has another column "item".
    """
    if punctuation is not None and tokenize is None:
        raise ConfigError("--punctuation counts only with --tokenize", hint="give both, or drop it")
    if allow_unknown and critical is None:
        what = "--allow-unknown is of critical words"
        raise ConfigError(what, hint="name their column with --critical, or drop it")
    options = {"item-column": item_column, "critical": critical, "by": by, "tokenize": tokenize}
    if text_column is None and not any(map(is_stimuli, paths)):
        for name, value in options.items():
            if value is not None:
                raise ConfigError(f"--{name} needs --text-column", hint="name both, or drop it")
        return None
    if by is not None and item_column is None:
        hint = "name the column of items with --item-column"
        raise ConfigError("--by compares conditions item by item", hint=hint)
    if len(paths) > 1 or field is not None:
        hint = "name one table, and the column of its texts with --text-column"
        what = "a table of stimuli is read alone, and --field is of JSON Lines"
        raise ConfigError(what, hint=hint)
    table = parse_table(b"".join(read_blocks(paths)).decode(), paths[0])
    shown, names = table.path, table.names
    if text_column is None:
        hint = f"add --text-column NAME, one of: {', '.join(names)}"
        what = "is a table, so its column of texts must be named"
        raise DataError(what, hint=hint, path=shown)
    for name in filter(None, (text_column, item_column, critical, by)):
        if name not in names:
            hint = did_you_mean(name, names)
            raise DataError(f"has no column {name!r}", hint=hint, path=shown, line=1)
    if item_column not in (None, ITEM) and text_column != ITEM:
        check_names([ITEM], names, shown)
    if not table.rows:
        raise DataError("has no rows", hint="give a row for each text", path=shown)
    items = {} if item_column is None else {ITEM: names.index(item_column)}
    others = {
        name: place for place, name in enumerate(names) if name not in (text_column, item_column)
    }
    apart = punctuation != "with"
    printed = [printed_text(text, tokenize, apart=apart) for text in table.column(text_column)]
    regions = None if critical is None else [*_regions(table, printed, critical)]
    return Stimuli(table, items | others, printed, tokenize is not None, regions, allow_unknown)


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
) -> Iterator[tuple[WordTotals, str, list[float]]]:
    """Write a row for each word of a text or of stimuli, by one model after another.

    The names of several models are a column. Stimuli are read in place of the text at `paths`.
    The other arguments are options of `seqtool surprisal`, but for what shows the progress of a
    model.

    Returns:
        Of each model, when it is done, what it has read, a warning where many words are unknown to
        it, and of each row of stimuli the bits of its critical region, or else those per word; nan
        of a row without such words.

    Raises:
        ConfigError: no model can give an entropy, or one learns from lines that begin anew.
        DataError: a text that cannot be used, columns of one name, or an unknown critical word.
    """
    opened = [*models.values()]
    for model in opened:  # before one of them has scored for an hour
        refuse_lines_anew(model, carry_state=carry_state)
    if stimuli is not None and not stimuli.allow_unknown:
        for name, model in models.items():
            stimuli.refuse_unknown(model, name)
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
        values: list[float] = []
        lowercase = not frequencies and model.tokenizer.lowercase
        with progress() as on_progress:
            blocks: Blocks
            if stimuli is None:
                blocks = read_blocks(paths, field=field, on_progress=on_progress, live=True)
            else:
                texts = [each.as_read for each in stimuli.printed]
                blocks = LineBlocks(texts, stimuli.table.path, stimuli.table.lines, join=True)
            for words in score_blocks(model, blocks, **options):
                unknown.add_written(words.unknown_texts())
                extra: dict[str, Column] = {}
                if stimuli is not None and stimuli.is_split:
                    those = stimuli.printed[total.lines : total.lines + words.num_lines]
                    words, extra["punctuation"] = add_parts(words, those)
                lines = words.units.lines + total.lines
                row: dict[str, Column] = {"model": [name] * len(lines)} if len(models) > 1 else {}
                made = columns(words, total.lines + 1, frequencies=of_words, lowercase=lowercase)
                if stimuli is not None:
                    counted = words.units.is_word
                    if stimuli.regions is not None:
                        begins, ends = np.array(stimuli.regions)[lines].T
                        number = words.units.numbers
                        counted = counted & (begins < number) & (number <= ends)
                        extra["in_region"] = counted.astype(np.int64)
                    of_lines = words.units.lines[counted]
                    sums = np.bincount(of_lines, words.pieces.bits[counted], words.num_lines)
                    nums = np.bincount(of_lines, minlength=words.num_lines)
                    divisors = np.where(nums > 0, 1 if stimuli.regions else nums, np.nan)
                    values += (sums / divisors).tolist()
                    check_names(stimuli.kept, ["model", *made, *extra], stimuli.table.path)
                    row |= stimuli.columns(lines.tolist())
                table.write(row | made | extra)
                total.lines += words.num_lines
                total.words += int(words.units.is_word.sum())
                total.oov += len(words.unknown_texts())
        warning = warning_of(total.oov, total.words, unknown.counts, model.tokenizer)
        yield total, warning, values
