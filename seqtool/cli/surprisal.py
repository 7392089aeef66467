"""`seqtool surprisal`: how surprising each word of a text is to a language model."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtool.cli import options as cli
from seqtool.cli.draw import check_name
from seqtool.cli.models import EachModelOption, chosen_models, names_of
from seqtool.cli.usage import examples
from seqtool.core.errors import counted

if TYPE_CHECKING:
    from seqtool.lm.stimuli import WordTotals
    from seqtool.lm.tables import Column

STATES = {"carried": "read on from line to line", "reset": "each line begins anew"}
STIMULI_PANEL = "Stimuli: a text in each row of a CSV or TSV"
COLUMNS_PANEL = "Columns"


_option = partial(cli.option, panel=STIMULI_PANEL)


@dataclass(frozen=True)
class StimuliOptions:
    """Which columns of a table hold what, and what its words are."""

    text_column: str | None = _option(None, "The column that holds the text.", "NAME")
    item_column: str | None = _option(None, "The column that tells items apart.", "NAME")
    tokenize: bool = _option(False, "Let models read the text as `segment --rules` splits it.")
    punctuation: str | None = _option(
        None, "With --tokenize: apart from words (default) or with them.", "apart|with"
    )
    critical: str | None = _option(None, "The column of critical words or their numbers.", "NAME")
    by: str | None = _option(None, "Also means by the conditions in this column.", "NAME")
    allow_unknown: bool = _option(False, "Critical words may be unknown to a model.")


def _split(text: str) -> list[tuple[int, int]]:
    """Return where `segment --rules` finds tokens in a line."""
    from seqtool.parsing.segmenter.characters import code_points
    from seqtool.parsing.segmenter.rules import split_by_rules

    (spans,) = split_by_rules([code_points(text)], whole=True)
    return [*zip(spans.begins, spans.ends, strict=True)]


@dataclass(frozen=True)
class WordOptions:
    """What the table of surprisal holds, and how the text is read."""

    carry_state: bool = cli.option(False, "A network reads on from line to line, as of one text.")
    previous: int = cli.option(
        0, "The same of the N words before, for spillover.", "N", min=0, max=20, panel=COLUMNS_PANEL
    )
    entropy: bool = cli.option(
        False, "Also the entropy of what may come in the word's place.", panel=COLUMNS_PANEL
    )
    frequencies: list[Path] | None = cli.option(
        None, "Take frequencies from this text, not from training.", "TEXT", panel=COLUMNS_PANEL
    )
    line_ends: bool = cli.option(
        False, "Also a row for the end of each line, </s>.", panel=COLUMNS_PANEL
    )


@examples(
    "seqtool surprisal text.txt -m runs/lm -o surprisal.csv",
    "seqtool surprisal stimuli.csv --text-column text -m runs/ngram",
)
def surprisal(
    text: list[str] | None = cli.argument(
        None, "Text, a sentence a line, or one table of stimuli; else the sample.", "TEXT"
    ),
    model: EachModelOption = None,
    output: cli.TableOption = "-",
    field: cli.TextFieldOption = None,
    device: cli.DeviceOption = "auto",
    threads: cli.ThreadsOption = None,
    as_json: cli.JsonOption = False,
    *,
    stimuli: StimuliOptions,
    words: WordOptions,
) -> None:
    """Give the surprisal of each word of a text, in bits, whatever the unit of the model.

    Words are what blanks separate. For models of characters, bytes or subwords, the pieces of a
    word are summed, and that the word ends counts for it, not for the next one. The table is for R,
    pandas or a spreadsheet: see `seqtool help measure`. With --json there is one object, of
    the totals and, without -o, the rows.
    """
    from seqtool.core.progress import progress_bar
    from seqtool.core.reading import find_files
    from seqtool.lm.conditions import COLUMNS, cells_of, condition_means
    from seqtool.lm.mixture.model import open_parts
    from seqtool.lm.stimuli import find_stimuli, write_words
    from seqtool.lm.tables import check_target, open_table

    if stimuli.punctuation is not None:
        check_name("punctuation", stimuli.punctuation, ("apart", "with"))
    check_target(output, [*(text or ()), *(words.frequencies or ())])
    paths = text or [cli.stdin_or_sample("TEXT")]
    if words.frequencies:
        find_files([*paths, *words.frequencies])  # of which one may be stdin
    names = names_of(chosen_models(model))
    is_shown, rows = as_json and output == "-", _Rows()
    totals, bar = [], partial(progress_bar, "scoring", is_bytes=True)
    with ExitStack() as stack:
        if len(names) > 1:  # stdin can be read once
            from seqtool.cli.analyse import kept_text

            paths = [str(stack.enter_context(kept_text(path))) for path in paths]
        options = {**vars(stimuli), "tokenize": _split if stimuli.tokenize else None}
        given = find_stimuli(paths, field=field, **options)
        models = open_parts([*map(Path, names)], device=device, threads=threads)
        for total, warning, values in write_words(
            dict(zip(names, models, strict=True)),
            paths,
            given,
            rows if is_shown else stack.enter_context(open_table(output)),
            field=field,
            **vars(words),
            progress=nullcontext if output == "-" else bar,
        ):
            totals.append(vars(total))
            if given is not None and stimuli.by is not None:
                columns = map(given.table.column, (stimuli.by, str(stimuli.item_column)))
                totals[-1]["conditions"] = condition_means(zip(values, *columns, strict=True))
            shown = f"{total.model}: " if len(names) > 1 else ""
            if not as_json:
                cli.note(f"{shown}{_described(total)}")
            if warning:
                cli.note(f"warning: {shown}{warning}")
    if given is not None and not words.line_ends and (empty := given.empty_rows()):
        those = counted(len(empty), "row")
        cli.note(
            f"note: {those} of {given.table.path} without words, which the table leaves out; the "
            f"first is in line {empty[0]}"
        )
    if as_json:
        content = {"rows": rows.rows} if is_shown else {"output": output}
        return cli.emit({"models": totals, **content})
    for each in totals if stimuli.by else ():
        what = "bits of the critical region" if stimuli.critical else "bits per word"
        title, means = f"{each['model']}: {what}, by {stimuli.by}", each["conditions"]
        cli.show_table(title, COLUMNS, [*map(cells_of, means)], to_stderr=output == "-")


def _described(total: WordTotals) -> str:
    """Return what a model has read, as a note."""
    words = f"{counted(total.words, 'word')} in {counted(total.lines, 'line')}"
    share = total.oov / max(1, total.words)
    return f"{words}, {total.oov:,} unknown ({share:.2%}); {STATES[total.state]}"


class _Rows:
    """Rows that are collected for --json."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def write(self, columns: Mapping[str, Column]) -> None:
        """Append rows."""
        from seqtool.lm.tables import plain

        values = zip(*map(plain, columns.values()), strict=True)
        self.rows += [dict(zip(columns, row, strict=True)) for row in values]
