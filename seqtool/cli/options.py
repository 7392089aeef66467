"""What several commands share: their options, those from configurations too, and how they print.

A command is a plain function. Where it has a parameter `settings`, the command line has an option
for each setting of a table, and the function gets those that are given by their dotted names. Where
a parameter is a dataclass of options, the command line has its fields.

Results go to stdout, through `emit`, `show_table` or `echo`; everything else goes to stderr.
"""

from __future__ import annotations

import dataclasses
import inspect
import io
import json
import math
import os
import re
import shlex
import stat
import sys
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property, update_wrapper
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import typer
from typer.core import TyperCommand, TyperGroup

from seqtool.cli.usage import Helpful
from seqtool.core import runtime, terminal
from seqtool.core.errors import PromptError, counted
from seqtool.core.terminal import echo, json_text

if TYPE_CHECKING:
    from rich.table import Table

    from seqtool.core.config import Config

PROSE_SPACES = 4  # a cell of so many is a sentence, which may stand on several lines
COLUMNS = 80  # of a terminal that does not say how wide it is
_COMMAND = re.compile(r"\b(seqtool|torchrun|iconv|pip) ")
MAX_LETTERS = 20  # shown of those that no font has
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout.")]
SeedOption = Annotated[
    int | None, typer.Option("--seed", min=0, metavar="N", help="Seed of every random choice.")
]
DeviceOption = Annotated[
    str, typer.Option("--device", metavar="auto|cpu|cuda|mps", help="Where to compute.")
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads", min=1, max=1024, metavar="N", help="CPU threads; all cores if not given."
    ),
]
MemoryOption = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="Memory that it may take, such as 8G; what the machine has free if not given.",
    ),
]
JobsOption = Annotated[
    int,
    typer.Option(
        "--jobs",
        "-j",
        min=1,
        max=256,
        metavar="N",
        help="Processes that share the work; what they write is in order.",
    ),
]
OutputOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="DIR", help="Directory to write to.")
]
TableOption = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the table there: .tsv, .csv, .jsonl or .parquet; - is TSV on stdout.",
    ),
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Continue the run in the output directory.")
]
MaxMinutesOption = Annotated[
    float | None,
    typer.Option(
        min=0.0, metavar="N", help="Save and stop after this long; continue with --resume."
    ),
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Replace the output directory if it exists.")
]
# of a text that is measured
TextFieldOption = Annotated[
    str | None,
    typer.Option(
        "--field",
        metavar="NAME",
        help="The field of .jsonl, or the column of .parquet, that holds the text.",
    ),
]
TestSplitOption = Annotated[
    str | None,
    typer.Option("--split", metavar="NAME", help="Split of a prepared corpus: test, else valid."),
]
StrictOption = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Of a treebank, refuse doubtful lines, too: a text or sent_id that does not fit, "
        "an unknown UPOS, a rare unknown relation, malformed FEATS, a misplaced root, a broken "
        "enhanced graph (DEPS).",
    ),
]

UNNAMED = "If not given: stdin where that is a pipe or a file, else"

FIELD_HELP = (
    "The field of JSON Lines, or the column of Parquet, that holds the text; text if not given. "
    "With it, other files are read as JSON Lines."
)

MAX_SHOWN = 5  # broken sentences named on stderr

# options of several numbers, which may be apart by spaces or by commas
NUMBER_LISTS = ("--prune", "--fallback-discounts", "--weights")


class WithMaxLine:
    """A command with the option --max-line, which holds for all that it reads."""

    def __init__(self, function: Callable[..., None]) -> None:
        update_wrapper(self, function, updated=())  # not its signature
        self._function = function
        self.examples: tuple[str, ...] = getattr(function, "examples", ())

    @cached_property  # as that of the function, not before it is asked for
    def __signature__(self) -> inspect.Signature:
        from seqtool.core.reading import MAX_LINE

        own = inspect.signature(self._function, eval_str=True)
        option = typer.Option("--max-line", min=1, metavar="MB", help="Longest line that is read.")
        added = _keyword("max_line", Annotated[int, option], MAX_LINE >> 20)
        return own.replace(parameters=[*own.parameters.values(), added])

    def __call__(self, *args: Any, max_line: int, **given: Any) -> None:
        """Call the function while this limit is set."""
        from seqtool.core.reading import MAX_LINE, limit_lines

        limit_lines(max_line << 20)
        try:
            self._function(*args, **given)
        finally:
            limit_lines(MAX_LINE)


COMPLETION = "_SEQTOOL_COMPLETE"  # set by a shell that asks how a command may be completed

# click's class of that name: Typer has a copy of click of its own, and no public name for this one
UsageError: type[Any] = typer.BadParameter.__bases__[0]


class Group(Helpful, TyperGroup):
    """A group of commands, or all of them, that leaves every error to `cli.app.main`."""

    def main(self, args: Any = None, prog_name: str | None = None, *_: Any, **__: Any) -> None:
        """Run the command that was typed, or tell the shell how it may be completed."""
        if COMPLETION in os.environ:
            super().main(args, prog_name)
        with self.make_context(prog_name, list(args)) as context:
            self.invoke(context)


# metavars of options that name a file or a directory
FILES = frozenset(
    {"FILE", "DIR", "FILE|DIR/", "MODEL", "CORPUS", "GOLD", "TRAIN", "RUN", "NAME|FILE"}
)


class Command(Helpful, TyperCommand):
    """A command whose options of several numbers may have them apart by spaces: --prune 0 0 1."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Join the numbers after such an option by commas; refuse names of files that are empty."""
        try:
            self._refuse_empty_names(ctx, args)
            return super().parse_args(ctx, join_numbers(args))
        except UsageError as error:
            error.ctx = error.ctx or ctx  # of an option without its value, the parser says nothing
            raise

    def _refuse_empty_names(self, ctx: Any, args: Sequence[str]) -> None:
        """Refuse a name as from "$UNSET": it would be that of the current directory."""
        named = {name: param for param in self.params for name in param.opts}
        for before, arg in pairwise(("", *args)):
            option, is_joined, value = arg.partition("=")
            if arg == "":
                option, value = before, arg
            elif not (is_joined and option.startswith("--")):
                continue
            param = named.get(option)
            if arg == "" and getattr(param, "is_flag", False):  # it stands by itself
                param = None
            if value == "" and (
                (param is None and arg == "") or getattr(param, "metavar", None) in FILES
            ):
                where = f"after {option}" if param is not None else "among the arguments"
                raise UsageError(f"the name {where} is empty", ctx)


def join_numbers(args: Sequence[str]) -> list[str]:
    """Return arguments in which the numbers after an option of `NUMBER_LISTS` are one."""
    result: list[str] = []
    for i, arg in enumerate(args):
        if arg == "--":
            return [*result, *args[i:]]
        is_number = re.fullmatch(r"\d+(\.\d*)?|\.\d+", arg) is not None
        if is_number and len(result) > 1 and result[-2] in NUMBER_LISTS:
            result[-1] += f",{arg}"
        else:
            result.append(arg)
    return result


SETTINGS = "settings"  # the parameter that gets them
METAVARS = {int: "N", float: "X", str: "NAME"}


class Offer(NamedTuple):
    """What an option of a command sets."""

    names: tuple[str, ...]  # dotted settings, all of which get the value
    help: str = ""  # in place of that of the field, where that says too much or too little
    metavar: str = ""  # in place of the one that goes with the field's type


def offer(*names: str, help: str = "", metavar: str = "") -> Offer:
    """Return an entry of a table of options whose texts are not those of the field alone."""
    return Offer(names, help, metavar)


# "--hidden", "--tied/--untied" or "-n,--num" -> what it sets
OptionTable = Mapping[str, str | Offer]


def takes_options(
    config: str = "",
    table: OptionTable | None = None,
    *,
    panel: str | None = "Settings",
    shows_defaults: bool = False,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command options for settings, and those of dataclasses.

    Bounds are not told to Typer: the configuration itself refuses what is out of bounds.

    Args:
        config: the configuration, as "module:class"; imported when the options are asked for.
        table: which of its settings have options, and what these are called.
        panel: where the options stand in --help; None for those of the command itself.
        shows_defaults: the defaults of the fields are those of the command; otherwise a setting
            that is not given stays as a preset, a recipe or a run has it.
    """
    return lambda function: _Command(function, config, table or {}, panel, shows_defaults)


class _Command:
    """A command with the options of `takes_options`; what Typer sees is its `__signature__`."""

    def __init__(
        self,
        function: Callable[..., None],
        config: str,
        table: OptionTable,
        panel: str | None,
        shows_defaults: bool,
    ) -> None:
        update_wrapper(self, function)
        self._function, self._config, self._table = function, config, table
        self._panel, self._shows_defaults = panel, shows_defaults

    @cached_property
    def _own(self) -> inspect.Signature:
        return inspect.signature(self._function, eval_str=True)

    @cached_property
    def _groups(self) -> dict[str, Any]:
        """Return the dataclasses of options among the parameters, by the parameter's name."""
        types = {name: own.annotation for name, own in self._own.parameters.items()}
        return {name: kind for name, kind in types.items() if dataclasses.is_dataclass(kind)}

    @cached_property
    def _settings(self) -> dict[str, _Setting]:
        """Return the options of the table, by the names that their parameters have."""
        if not self._table:
            return {}
        module, _, name = self._config.partition(":")
        config = getattr(import_module(module), name)
        settings = [_Setting(*entry, config) for entry in self._table.items()]
        return {setting.parameter_name: setting for setting in settings}

    @cached_property
    def __signature__(self) -> inspect.Signature:
        parameters: list[inspect.Parameter] = []
        for own in self._own.parameters.values():
            if own.name == SETTINGS:
                parameters += [
                    setting.parameter(self._panel, self._shows_defaults)
                    for setting in self._settings.values()
                ]
            elif own.name in self._groups:
                hints = get_type_hints(own.annotation, include_extras=True)
                parameters += [
                    _keyword(field.name, hints[field.name], field.default)
                    for field in dataclasses.fields(own.annotation)
                ]
            else:
                parameters.append(own.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        return inspect.Signature(parameters)

    def __call__(self, *args: Any, **given: Any) -> None:
        """Call the function with the settings and the dataclasses that stand for the options."""
        for name, group in self._groups.items():
            names = {field.name for field in dataclasses.fields(group)} & given.keys()
            given[name] = group(**{name: given.pop(name) for name in names})
        if SETTINGS in self._own.parameters:
            given[SETTINGS] = {
                dotted: setting.read(value)
                for name, setting in self._settings.items()
                if (value := given.pop(name, None)) is not None
                for dotted in setting.names
            }
        self._function(*args, **given)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


class _Setting:
    """An option for a setting: an entry of an `OptionTable`, and the class that has its field."""

    def __init__(self, declared: str, entry: str | Offer, config: type[Any]) -> None:
        if isinstance(entry, str):
            entry = Offer((entry,))
        self.names = entry.names
        self._declared = declared.split(",")
        *sections, last = entry.names[0].split(".")
        for section in sections:
            config = get_type_hints(config)[section]
        self._field = config.__dataclass_fields__[last]
        self._kind = _without_none(get_type_hints(config)[last])
        self._help = entry.help or _sentence(self._field.metadata["help"])
        self._metavar = entry.metavar or self._default_metavar()

    @property
    def parameter_name(self) -> str:
        """Return the name of the parameter, after the longest way to write the option."""
        longest = max((part.partition("/")[0] for part in self._declared), key=len)
        return longest.lstrip("-").replace("-", "_")

    def _default_metavar(self) -> str | None:
        if get_origin(self._kind) is Literal:
            return "|".join(map(str, get_args(self._kind)))
        if get_origin(self._kind) is tuple:
            letter = METAVARS[get_args(self._kind)[0]]
            return f"{letter} {letter} ..."
        return METAVARS.get(self._kind)

    def parameter(self, panel: str | None, shows_default: bool) -> inspect.Parameter:
        """Return the parameter that Typer makes the option of."""
        kind = self._kind if self._kind in (int, float, bool) else str
        default = self._field.default if shows_default else None
        option = typer.Option(
            *self._declared,
            help=self._help,
            metavar=self._metavar,
            rich_help_panel=panel,
            show_default=shows_default and default not in (None, ()),
        )
        if get_origin(self._kind) is tuple:
            default, option.show_default = None, False
        return _keyword(self.parameter_name, Annotated[kind | None, option], default)

    def read(self, value: Any) -> Any:
        """Return a value as the configuration takes it: a list of numbers is typed as one text."""
        if get_origin(self._kind) is not tuple:
            return value
        kind = get_args(self._kind)[0]
        try:
            return tuple(kind(part) for part in re.split(r"[,\s]+", value.strip(", ")))
        except ValueError as error:
            wanted = "whole numbers, as in 0 0 1" if kind is int else "numbers, as in 0.5 1 1.5"
            raise typer.BadParameter(
                f"{value!r} is no list of {wanted}", param_hint=self._declared[0]
            ) from error


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, types.UnionType):
        (annotation,) = (part for part in get_args(annotation) if part is not type(None))
    return annotation


def _sentence(text: str) -> str:
    """Return a help text of a field as the command line writes it; names stay in lower case."""
    first = text.partition(" ")[0]
    begin = text if first[-1:] in ":," else text[:1].upper() + text[1:]
    return begin if begin.endswith(".") else f"{begin}."


def note(text: str) -> None:
    """Print a line to stderr; on a terminal no word of it is broken at the edge.

    A line with a command to copy is left as it is, since it would be pasted as several commands.
    """
    if terminal.stream(err=True).isatty():
        width = _stderr_width()
        text = "\n".join(
            line if _COMMAND.search(line) else _folded(line, width) for line in text.split("\n")
        )
    echo(text, err=True)


def _stderr_width() -> int:
    """Return the width of the terminal that stderr is; stdout may be a file."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(terminal.stream(err=True).fileno()).columns or COLUMNS
    except (OSError, ValueError):
        return COLUMNS


def _folded(line: str, width: int) -> str:
    """Return a line broken at spaces, so that each piece fits if no word is wider by itself."""
    from rich.cells import cell_len

    if cell_len(line) <= width:
        return line
    pieces = [""]
    for word in line.split(" "):
        joined = f"{pieces[-1]} {word}" if pieces[-1] else word
        if pieces[-1] and cell_len(joined) > width:
            pieces.append(word)
        else:
            pieces[-1] = joined
    return "\n".join(pieces)


def note_letters(missing: Collection[str]) -> None:
    """Print a line with the letters that no installed font has, the first of them."""
    shown = " ".join(sorted(missing)[:MAX_LETTERS])
    note(f"no installed font has {counted(len(missing), 'letter')}: {shown}")


def note_next(*commands: str, model: Path) -> None:
    """Print a line on what to do with a model; in each command, {} stands for its path."""
    path = shlex.quote(str(model))
    note("next: " + "  or  ".join(f"seqtool {command.format(path)}" for command in commands))


def is_stdin_given() -> bool:
    """Whether stdin is a pipe or a file, so that an input that is not named may come from there.

    A terminal is not, nor is any other device: cron and CI give /dev/null.
    """
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):  # it is closed, or no file of the system
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def stdin_instead(name: str) -> bool:
    """Whether stdin is read, as the input of this name is not given; says so if it is."""
    if is_given := is_stdin_given():
        note(f"no {name} given: reading stdin")
    return is_given


def prompt_text(given: str | None) -> str:
    """Return the text of --prompt: stdin for -, or where none is given at the end of a pipe."""
    if given is None:
        given = "-" if stdin_instead("prompt") else ""
    if given != "-":
        return given
    # as of files, a byte order mark is none of the text
    text = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8-sig")
    try:
        return text.read().rstrip("\r\n")
    except UnicodeDecodeError as error:
        hint = "convert it: iconv -f ENCODING -t UTF-8"
        raise PromptError("the prompt is not valid UTF-8", hint=hint) from error
    finally:
        text.detach()  # else stdin would be closed with it


def stdin_or_sample(
    name: str, kind: Literal["text", "trees", "pairs"] = "text", *, training: str = ""
) -> str:
    """Return what a command reads whose input is not named, and say which it is.

    Stdin, if that is a pipe or a file; else the shipped English sample.

    Args:
        name: of the input, as the usage of the command has it.
        kind: which of the sample is wanted.
        training: what is done with its training part, as "training on"; without it, the test part
            is used. Of a text it is the folder, which has the other parts too.
    """
    if stdin_instead(name):
        return "-"
    from seqtool.text.datasets import sample_pairs, sample_text, sample_treebank

    find = sample_treebank if kind == "trees" else sample_text
    path = sample_pairs("en") if kind == "pairs" else find("en", "train" if training else "test")
    if training:
        note(f"no {name} given: {training} the shipped English sample")
        return str(path if kind == "trees" else path.parent)
    note(f"no {name} given: using the shipped sample, {terminal.short_path(path)}")
    return str(path)


def is_folder(output: str) -> bool:
    """Return whether files are written to a folder: one that is there, or that a / ends."""
    return output != "-" and (output.endswith(("/", os.sep)) or Path(output).is_dir())


def emit(result: Any) -> None:
    """Print one JSON object to stdout; numbers that JSON cannot hold (inf, nan) become null."""
    echo(json_text(_plain(result)))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(dataclasses.asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # NumPy's scalars and arrays, without importing NumPy
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Path):
        return str(value)
    return value


def print_settings(config: Config) -> None:
    """Print every setting as a line of the YAML file that --config takes, with its meaning."""
    from seqtool.core.config import leaves, to_dict

    values = dict(flattened(to_dict(config)))
    sections: list[str] = []
    for dotted, field in leaves(type(config)):
        *above, name = dotted.split(".")
        for depth, section in enumerate(above, 1):
            if sections[:depth] != above[:depth]:
                sections = above[:depth]
                echo(f"{'  ' * (depth - 1)}{section}:")
        sections = above
        indent = "  " * len(above)
        line = f"{indent}{name}: {json.dumps(values[dotted])}"  # null and true, as YAML has them
        echo(f"{line:<33} # {field.metadata['help']}")


def flattened(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Give names and values; what is in a section has a dotted name."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def typed() -> str:
    """Return the command as it was typed."""
    return f"{runtime.program()} {shlex.join(sys.argv[1:])}"


def is_typed(context: typer.Context, name: str) -> bool:
    """Whether the parameter of a command was typed, be it with its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def show_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    to_stderr: bool = False,
) -> None:
    """Print a table: with rules and colours on a terminal, plain columns elsewhere.

    Cells are shown with `str`; columns of numbers are aligned to the right. A table that is no
    result goes to stderr. On a terminal no number and no name is ever cut: where there is too
    little room, the words of headings and of prose stand below one another, and where that is not
    enough each row is a block of lines.
    """
    cells = [[str(cell) for cell in row] for row in rows]
    right = [bool(cells) and all(_is_number(row[i]) for row in cells) for i in range(len(columns))]
    if title:
        echo(title, err=to_stderr)
    if terminal.stream(err=to_stderr).isatty():
        from seqtool.core.progress import open_console

        console = open_console(err=to_stderr)
        for gap in (3, 2):
            room = console.width - gap * len(columns) - 1
            if (widths := _fitting(columns, cells, room)) is not None:
                return console.print(_ruled(columns, cells, right, widths, gap))
        return _show_blocks(columns, cells, right, console.width, to_stderr=to_stderr)
    from rich.cells import cell_len

    lines = [list(columns), *cells]
    widths = [max(cell_len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        padded = []
        for cell, width, to_right in zip(line, widths, right, strict=True):
            blank = " " * (width - cell_len(cell))  # str.ljust would count a wide character as one
            padded.append(blank + cell if to_right else cell + blank)
        echo("  ".join(padded).rstrip(), err=to_stderr)


def _fitting(columns: Sequence[str], cells: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """Return widths of columns that fit, the widest narrowed first; None where they cannot."""
    from rich.cells import cell_len

    widths, least = [], []
    for number, column in enumerate(columns):
        texts = [row[number] for row in cells]
        widths.append(max(map(cell_len, [column, *texts])))
        words = column.split()
        for text in texts:  # a few words are a name or an interval, which stays on one line
            words += text.split() if text.count(" ") >= PROSE_SPACES else [text]
        least.append(max(map(cell_len, words), default=0))
    if sum(least) > room:
        return None
    while sum(widths) > room:
        number = max(range(len(widths)), key=lambda n: (widths[n] > least[n], widths[n]))
        widths[number] -= 1
    return widths


def _ruled(
    columns: Sequence[str],
    cells: Sequence[Sequence[str]],
    right: Sequence[bool],
    widths: Sequence[int],
    gap: int,
) -> Table:
    """Return a table for a terminal with columns of these widths, 2 or 3 apart."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, gap - 2))
    for column, to_right, width in zip(columns, right, widths, strict=True):
        justify: Literal["left", "right"] = "right" if to_right else "left"
        table.add_column(Text(column), justify=justify, width=width)
    for row in cells:
        table.add_row(*map(Text, row))
    return table


def _show_blocks(
    columns: Sequence[str],
    cells: Sequence[Sequence[str]],
    right: Sequence[bool],
    room: int,
    *,
    to_stderr: bool,
) -> None:
    """Print each row as a line of its names and, below, its figures with what they are.

    A figure stands at the same place in all blocks, so that one can be followed down the page.
    """
    from rich.cells import cell_len

    widths = [max((cell_len(row[n]) for row in cells), default=0) for n in range(len(columns))]
    num_names = next((n for n in range(1, len(columns)) if right[n]), len(columns))
    while num_names > 1 and sum(widths[:num_names]) + 2 * num_names > room:
        num_names -= 1
    for row in cells:
        what = f"{columns[0]} " if right[0] else ""  # a number says nothing by itself
        echo(what + "  ".join(row[:num_names]).rstrip(), err=to_stderr, bold=True)
        lines: list[str] = []
        line, used = "", 0
        for n in range(num_names, len(columns)):
            blank = " " * (widths[n] - cell_len(row[n]))
            item = columns[n] + "  " + (blank + row[n] if right[n] else row[n] + blank)
            item = item if row[n] else " " * cell_len(item)
            if line and used + cell_len(item) + 3 > room:
                lines.append(line.rstrip())
                line, used = "", 0
            line += f"   {item}"
            used += cell_len(item) + 3
        for figures in filter(None, [*lines, line.rstrip()]):
            echo(figures, err=to_stderr)


def _is_number(cell: str) -> bool:
    """Whether a cell reads as a number, perhaps with a unit: 1,234  -0.5  3:07  12%  2.5 MB."""
    return cell in ("", "-") or re.fullmatch(r"[+-]?\d[\d.,:]*( ?[^\d ]{1,5})?", cell) is not None
