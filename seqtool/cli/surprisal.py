"""`seqtool surprisal`: how surprising each word of a text is to a language model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqtool.cli.models import chosen_models, names_of
from seqtool.cli.options import (
    DeviceOption,
    JsonOption,
    TableOption,
    TextFieldOption,
    ThreadsOption,
    emit,
    note,
    stdin_or_sample,
)
from seqtool.cli.usage import examples
from seqtool.core.errors import ConfigError, DataError, counted

if TYPE_CHECKING:
    from seqtool.core.reading import Progress
    from seqtool.lm.protocol import LanguageModel
    from seqtool.lm.stimuli import Stimuli
    from seqtool.lm.tables import Column
    from seqtool.lm.words import Frequencies, ScoredWords

STATES = {"carried": "read on from line to line", "reset": "each line begins anew"}
STIMULI_PANEL = "Stimuli: a text in each row of a CSV or TSV"
COLUMNS_PANEL = "Columns"


@examples(
    "seqtool surprisal text.txt -m runs/lm -o surprisal.csv",
    "seqtool surprisal stimuli.csv --text-column text -m runs/ngram",
)
def surprisal(
    text: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="TEXT",
            help="Text, one sentence per line: files (also packed, .jsonl, .parquet), "
            "directories, - for stdin; or one CSV or TSV of stimuli. Stdin if it is a pipe or a "
            "file, else the shipped sample's English test text.",
        ),
    ] = None,
    model: Annotated[
        list[Path] | None,
        typer.Option(
            "-m",
            "--model",
            metavar="MODEL",
            help="A language model, or an ARPA file; each of several (-m A -m B) gives rows of its "
            "own. runs/lm by default, else runs/ngram.",
        ),
    ] = None,
    output: TableOption = "-",
    text_column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The column that holds the text.",
            rich_help_panel=STIMULI_PANEL,
        ),
    ] = None,
    item_column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The column that tells items apart; it becomes the column item. All others are "
            "kept as they are.",
            rich_help_panel=STIMULI_PANEL,
        ),
    ] = None,
    previous: Annotated[
        int,
        typer.Option(
            min=0,
            max=20,
            metavar="N",
            help="Beside each word, what the N words before it have, for spillover: surprisal_1, "
            "length_1, log10_frequency_1 of the word before, and so on.",
            rich_help_panel=COLUMNS_PANEL,
        ),
    ] = 0,
    entropy: Annotated[
        bool,
        typer.Option(
            "--entropy",
            help="Also the entropy of what may come in the word's place; of models of words alone, "
            "and slower.",
            rich_help_panel=COLUMNS_PANEL,
        ),
    ] = False,
    frequencies: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="TEXT",
            help="Take log10_frequency from this text, as words are written; from the training "
            "text if not given, where the model has kept its counts.",
            rich_help_panel=COLUMNS_PANEL,
        ),
    ] = None,
    line_ends: Annotated[
        bool,
        typer.Option(
            "--line-ends",
            help="Also a row for the end of each line, </s>.",
            rich_help_panel=COLUMNS_PANEL,
        ),
    ] = False,
    carry_state: Annotated[
        bool,
        typer.Option(
            "--carry-state",
            help="Let a neural model read on from line to line, as the sentences of one text; "
            "otherwise each line begins anew.",
        ),
    ] = False,
    field: TextFieldOption = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give the surprisal of each word of a text, in bits, whatever the unit of the model.

    Words are what blanks separate. For models of characters, bytes or subwords, the pieces of a
    word are summed, and that the word ends counts for it, not for the next one. The table is for R,
    pandas or a spreadsheet: see `seqtool help word-surprisal`. With --json there is one object, of
    the totals and, without -o, the rows.
    """
    from seqtool.core.reading import find_files
    from seqtool.lm.mixture.model import open_parts
    from seqtool.lm.protocol import carries_state
    from seqtool.lm.tables import check_names, check_target, open_table
    from seqtool.lm.unknown import UnknownWords, warning_of
    from seqtool.lm.words import (
        ScoredWords,
        block_size,
        refuse_lines_anew,
        score_blocks,
        word_columns,
    )

    check_target(output, [*(text or ()), *(frequencies or ())])
    paths = [str(path) for path in text] if text else [stdin_or_sample("TEXT")]
    if frequencies:
        find_files([*paths, *frequencies])  # of which one may be stdin
    stimuli = _stimuli(paths, text_column, item_column, field)
    models = chosen_models(model)
    names = names_of(models)
    parts = open_parts(models, device=device, threads=threads)
    for part in parts:  # before one of them has scored for an hour
        refuse_lines_anew(part, carry_state=carry_state)
    if entropy and all(part.tokenizer.unit != "word" for part in parts):
        raise ConfigError(
            "--entropy is of models of words: the pieces of others are no whole words",
            hint="drop it, or choose a model of words with -m",
        )
    make_columns = partial(
        word_columns,
        entropy=entropy,
        order=any(part.kind == "ngram" for part in parts),
        previous=previous,
    )
    all_counts = _frequencies(parts, frequencies)
    if stimuli is not None:
        shown_columns = make_columns(ScoredWords.none(), 1, frequencies=all_counts[0])
        check_names(stimuli.names, ["model", *shown_columns], stimuli.path)
    read = _reader(paths, stimuli, field, again=len(parts) > 1)
    totals: list[_Totals] = []
    collected = _Rows()
    is_shown = as_json and output == "-"
    opened = nullcontext(collected) if is_shown else open_table(output)
    with opened as table:
        for model_name, part, counts in zip(names, parts, all_counts, strict=True):
            total = _Totals(model_name, part.tokenizer.unit)
            unknown = UnknownWords(part.tokenizer)
            if carry_state and carries_state(part):
                total.state = "carried"
            with _bar(output) as on_progress:
                for words in score_blocks(
                    part,
                    *read(on_progress, block_size(part, entropy=entropy)),
                    carry_state=carry_state,
                    entropy=entropy,
                    line_ends=line_ends,
                ):
                    own = make_columns(words, total.lines + 1, frequencies=counts)
                    name = {"model": [model_name] * len(words.lines)} if len(parts) > 1 else {}
                    lines = words.lines + total.lines
                    given = {} if stimuli is None else stimuli.columns(lines)
                    table.write(name | given | own)
                    total.add(words)
                    unknown.add_written(words.unknown_texts())
            totals.append(total)
            shown = f"{model_name}: " if len(parts) > 1 else ""
            if not as_json:
                state = f"; {STATES[total.state]}" if carries_state(part) else ""
                if carry_state and not carries_state(part):
                    state = "; each line begins anew: the model carries no state on"
                note(f"{shown}{total.describe()}{state}")
            if warning := warning_of(total.oov, total.words, unknown.counts, part.tokenizer):
                note(f"warning: {shown}{warning}")
    if stimuli is not None and not line_ends and (empty := stimuli.empty_rows()):
        those = counted(len(empty), "row")
        note(
            f"note: {those} of {stimuli.path} without words, which the table leaves out; the first "
            f"is in line {empty[0]}"
        )
    if as_json:
        rows = {"rows": collected.rows} if is_shown else {"output": output}
        emit({"models": [vars(total) for total in totals], **rows})


def _stimuli(
    paths: Sequence[str], text_column: str | None, item_column: str | None, field: str | None
) -> Stimuli | None:
    """Read a table of stimuli; None where the text is no table."""
    from seqtool.lm.stimuli import is_stimuli, read_stimuli

    if text_column is None and item_column is not None:
        raise ConfigError("--item-column needs --text-column", hint="name both, or drop it")
    if text_column is None and not any(map(is_stimuli, paths)):
        return None
    if len(paths) > 1:
        raise ConfigError("a table of stimuli cannot be read with others", hint="name it alone")
    if field is not None:
        raise ConfigError(
            f"--field {field} is of JSON Lines, but {paths[0]} is a table",
            hint="name the column of its texts with --text-column, and drop --field",
        )
    return read_stimuli(paths[0], text_column, item_column)


def _frequencies(
    parts: Sequence[LanguageModel], texts: Sequence[Path] | None
) -> list[Frequencies | None]:
    """Return what each model's log10_frequency is taken from, None where no model has counts."""
    from seqtool.core.reading import read_blocks
    from seqtool.lm.stimuli import is_stimuli
    from seqtool.lm.words import Frequencies

    if texts is not None:
        for path in filter(is_stimuli, texts):
            raise DataError(
                "is a table, but --frequencies counts the words of running text",
                hint="give a text, one sentence per line",
                path=path,
            )
        return [Frequencies.of_text(read_blocks([*texts]))] * len(parts)
    found = [Frequencies.of_model(part) for part in parts]
    if any(found):  # the cells of a model without counts are empty
        return [each or Frequencies.of_nothing() for each in found]
    return found


Located = Callable[[DataError, int], DataError]


def _reader(
    paths: Sequence[str], stimuli: Stimuli | None, field: str | None, *, again: bool
) -> Callable[[Progress | None, int], tuple[Iterator[bytes], Located]]:
    """Return what begins to read the text: it gives blocks, and what says where an error is.

    It is called with what shows progress, and with the bytes of a block of a file.

    Args:
        paths: of the text.
        stimuli: in place of it.
        field: of JSON Lines.
        again: whether it is read several times.
    """
    from seqtool.core.reading import STDIN, read_blocks
    from seqtool.lm.words import LineBlocks

    texts, located = None, None
    if stimuli is not None:
        texts, located = stimuli.texts, stimuli.located
    elif again and STDIN in paths:  # it can be read once
        content = b"".join(read_blocks(paths, field=field)).decode()
        texts = content.removesuffix("\n").split("\n")

    def read(on_progress: Progress | None, size: int) -> tuple[Iterator[bytes], Located]:
        if texts is None:
            reader = read_blocks(paths, field=field, on_progress=on_progress, block_size=size)
            return reader, reader.located
        blocks = LineBlocks(texts)
        if located is None:
            return blocks, blocks.located
        return blocks, lambda error, line: located(blocks.located(error, line))

    return read


def _bar(output: str) -> AbstractContextManager[Progress | None]:
    """Return a bar on stderr, but where the table itself is shown."""
    from seqtool.core.progress import progress_bar

    return nullcontext() if output == "-" else progress_bar("scoring", is_bytes=True)


class _Rows:
    """Rows that are collected for --json."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def write(self, columns: Mapping[str, Column]) -> None:
        """Append rows."""
        import numpy as np

        names = [*columns]
        plain = [
            column.tolist() if isinstance(column, np.ndarray) else column
            for column in columns.values()
        ]
        self.rows += [dict(zip(names, row, strict=True)) for row in zip(*plain, strict=True)]


@dataclass
class _Totals:
    """What was read by a model, as --json has it."""

    model: str
    unit: str
    state: str = "reset"
    lines: int = 0
    words: int = 0
    oov: int = 0

    def add(self, words: ScoredWords) -> None:
        """Count lines and words, but no ends of lines."""
        self.lines += words.num_lines
        self.words += int(words.is_word.sum())
        self.oov += len(words.unknown_texts())

    def describe(self) -> str:
        """Return it as a note says it."""
        share = self.oov / max(1, self.words)
        words = f"{counted(self.words, 'word')} in {counted(self.lines, 'line')}"
        return f"{words}, {self.oov:,} unknown ({share:.2%})"
